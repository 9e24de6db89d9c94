//! What goes around a training step: metrics, logs, a report, a progress bar.
#![forbid(unsafe_code)]

mod logs;
mod metrics;
mod report;

pub use logs::{CsvLog, JsonlLog, Log, TensorBoard};
pub use metrics::{
    Accuracy, Average, ConfusionMatrix, F1, Mean, MeanAbsoluteError, MeanSquaredError, Metric, Perplexity, Precision,
    R2Score, Recall, RocAuc, RootMeanSquaredError, TopKAccuracy,
};
pub use report::{Examples, Phases, Report};
