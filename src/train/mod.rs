//! Training: metrics, logs, a report, a progress bar, and a trainer for the common case.
//!
//! A training loop takes a few lines, and all of these tools can be used in it:
//!
//! ```
//! use cotangent::data::digits;
//! use cotangent::nn::{Forward, Linear, Module};
//! use cotangent::optim::{AdamW, Optimizer, clip_grad_norm};
//! use cotangent::train::{Interrupt, Log, Report, progress};
//! # use cotangent::Generator;
//! # let (train, _) = digits()?.split(1669, 0)?;
//! let (mut model, mut optimizer) = (Linear::new(64, 10)?, AdamW::new(1e-2));
//! let (mut report, interrupt) = (Report::new("Digits"), Interrupt::new()?);
//! for (step, positions) in progress(train.batches(32, &mut Generator::seed(0))?).enumerate() {
//!     let batch = train.pick(&positions)?;
//!     let loss = model.forward(&batch.images)?.cross_entropy(&batch.labels)?;
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
//! [`Trainer`] is that loop with validation, early stopping, checkpoints and resumption. [Metrics](Metric) measure the
//! quality of a model, and the [profiler](mod@crate::profile) its time and memory.
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
