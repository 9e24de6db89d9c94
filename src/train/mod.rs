//! Training: metrics, logs, a report, a progress bar, and a trainer for the common case.
//!
//! A training loop takes a few lines, and all of these tools can be used in it:
//!
//! ```
//! use cotangent::data::{DataLoader, DataLoaderOptions, digits};
//! use cotangent::nn::{Forward, Linear, Module};
//! use cotangent::optim::{AdamW, Optimizer, clip_grad_norm};
//! use cotangent::train::{Interrupt, Log, Report, progress};
//!
//! let (train, _test) = digits()?.split(360, 0)?;
//! let loader = DataLoader::new_with(train, DataLoaderOptions::new().batch_size(32).shuffle(true))?;
//! let (mut model, mut optimizer) = (Linear::new(64, 10)?, AdamW::new(1e-2));
//! let (mut report, interrupt) = (Report::new("Digits"), Interrupt::new()?);
//! for (step, batch) in progress(&loader).enumerate() {
//!     let (images, labels) = batch?;
//!     let loss = model.forward(&images)?.cross_entropy(&labels)?;
//!     model.zero_grad();
//!     loss.backward()?;
//!     clip_grad_norm(&model, 1.0)?;
//!     optimizer.step(&mut model)?;
//!     report.log(step as u64, &[("loss", loss.item()?), ("lr", optimizer.lr())])?;
//!     if interrupt.is_set() {
//!         break;
//!     }
//! }
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! Each iteration over a [`DataLoader`](crate::data::DataLoader) is an epoch.
//!
//! [`Trainer`] is that loop with validation, early stopping, checkpoints and resumption. Its [`fit`](Trainer::fit) calls a
//! function for the batches of each epoch, which can return a loader:
//!
//! ```
//! use cotangent::data::{DataLoader, DataLoaderOptions, digits};
//! use cotangent::nn::{Forward, Linear};
//! use cotangent::optim::AdamW;
//! use cotangent::{Tensor, train::Trainer};
//!
//! let loader = DataLoader::new_with(digits()?, DataLoaderOptions::new().batch_size(32).shuffle(true).seed(0))?;
//! let (mut model, mut optimizer) = (Linear::new(64, 10)?, AdamW::new(1e-2));
//! let loss = |model: &Linear, (images, labels): &(Tensor, Tensor)| model.forward(images)?.cross_entropy(labels);
//! let fit = Trainer::new(loss).epochs(2).fit(&mut model, &mut optimizer, |epoch| {
//!     // A resumed run continues in this epoch.
//!     loader.set_epoch(epoch as usize);
//!     Ok(&loader)
//! })?;
//! assert_eq!(fit.epochs(), 2);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! [Metrics](Metric) measure the quality of a model, and the [profiler](mod@crate::profile) its time and memory.
#![forbid(unsafe_code)]

mod evaluate;
mod interrupt;
mod logs;
mod metrics;
mod progress;
mod report;
mod trainer;

pub use evaluate::{Batch, evaluate, in_eval};
pub use interrupt::Interrupt;
pub use logs::{CsvLog, JsonlLog, Log, TensorBoard};
pub use metrics::{
    Accuracy, Average, ConfusionMatrix, F1, Mean, MeanAbsoluteError, MeanSquaredError, Metric, Perplexity, Precision,
    R2Score, Recall, RocAuc, RootMeanSquaredError, TopKAccuracy,
};
pub use progress::{Progress, ProgressIter, progress};
pub use report::{Examples, Phases, Report};
pub use trainer::{Fit, Moment, Stop, Trainer};
