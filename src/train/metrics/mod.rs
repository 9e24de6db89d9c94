//! Metrics of the quality of a model, over any number of batches.
//!
//! A metric keeps counts and sums, not means: the result over many batches of any sizes equals that over all examples at once.
//! The values equal scikit-learn's.
//!
//! ```
//! use cotangent::tensor;
//! use cotangent::train::{Accuracy, Metric};
//! let mut accuracy = Accuracy::new();
//! accuracy.update(&tensor!([[0.1, 0.9], [0.8, 0.2]])?, &tensor!([1, 1])?)?;
//! accuracy.update(&tensor!([[0.3, 0.7]])?, &tensor!([1])?)?;
//! assert_eq!(accuracy.compute()?, 2.0 / 3.0);
//! # Ok::<(), cotangent::Error>(())
//! ```

mod auc;
mod classes;
mod confusion;
mod regression;

pub use auc::RocAuc;
pub(crate) use classes::counted;
pub use classes::{Accuracy, Average, F1, Precision, Recall, TopKAccuracy};
pub use confusion::ConfusionMatrix;
pub use regression::{Mean, MeanAbsoluteError, MeanSquaredError, Perplexity, R2Score, RootMeanSquaredError};

use crate::autograd::no_grad;
use crate::error::{bail, err};
use crate::{DType, Device, Error, Result, Tensor};

/// A metric of how well predictions fit their targets, accumulated over batches.
///
/// Implement it for custom metrics: a [`Trainer`](crate::train::Trainer) takes them like those of the crate.
///
/// ```
/// use cotangent::train::{Metric, MeanAbsoluteError};
/// use cotangent::tensor;
/// let mut metrics: Vec<Box<dyn Metric>> = vec![Box::new(MeanAbsoluteError::new())];
/// for metric in &mut metrics {
///     metric.update(&tensor!([1.0, 2.0])?, &tensor!([1.5, 2.0])?)?;
///     println!("{}: {}", metric.name(), metric.compute()?);
///     metric.reset();
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Metric {
    /// The name under which it is logged.
    fn name(&self) -> String;

    /// Updates the metric with the predictions and the targets of a batch.
    ///
    /// # Errors
    /// If they do not fit each other or the metric; the metric is then unchanged.
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()>;

    /// The value over all batches since the last [`reset`](Self::reset).
    ///
    /// # Errors
    /// If there were no examples, or the value is not defined for them.
    fn compute(&self) -> Result<f64>;

    /// Resets the metric.
    fn reset(&mut self);

    /// Whether higher values are better. False for losses and errors.
    fn higher_is_better(&self) -> bool {
        true
    }
}

/// Forwards all methods.
macro_rules! metric_behind {
    ($pointer:ty) => {
        impl<M: Metric + ?Sized> Metric for $pointer {
            fn name(&self) -> String {
                (**self).name()
            }

            fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
                (**self).update(prediction, target)
            }

            fn compute(&self) -> Result<f64> {
                (**self).compute()
            }

            fn reset(&mut self) {
                (**self).reset();
            }

            fn higher_is_better(&self) -> bool {
                (**self).higher_is_better()
            }
        }
    };
}

// `&mut` is for a metric that is read afterwards, such as a confusion matrix.
metric_behind!(&mut M);
metric_behind!(Box<M>);

/// The error of a metric without examples.
fn nothing(op: &'static str) -> Error {
    err!(Value, op, "nothing was counted yet: call update first")
}

/// Values on the CPU as `f64`, detached.
fn numbers(op: &'static str, what: &str, values: &Tensor) -> Result<Vec<f64>> {
    if values.dtype().is_complex() {
        bail!(DType, op, "{what} must be real, got {}", values.dtype());
    }
    no_grad(|| values.detach().to_device(Device::Cpu)?.to_dtype(DType::F64)?.to_vec())
}

/// The classes of targets, without a check of their range.
fn target_classes(op: &'static str, target: &Tensor) -> Result<Vec<i64>> {
    if !target.dtype().is_int() && target.dtype() != DType::Bool {
        bail!(DType, op, "classes must be integers or bools, got {}", target.dtype());
    }
    target.to_device(Device::Cpu)?.to_dtype(DType::I64)?.to_vec()
}

/// The predicted classes: those with the highest score in dimension 1, or, for predictions of the targets' shape, the classes
/// themselves, or whether the probability of class 1 is above a threshold.
fn predicted_classes(
    op: &'static str,
    prediction: &Tensor,
    target: &Tensor,
    threshold: Option<f64>,
) -> Result<Vec<i64>> {
    if prediction.shape() == target.shape() {
        if !prediction.dtype().is_float() {
            return target_classes(op, prediction);
        }
        let scores = numbers(op, "predictions", prediction)?;
        if threshold.is_none()
            && let Some(score) = scores.iter().find(|score| !(0.0..=1.0).contains(*score))
        {
            bail!(
                Value,
                op,
                "predictions must be probabilities, got {score}: set a threshold for other scores (0.0 for logits)"
            );
        }
        let threshold = threshold.unwrap_or(0.5);
        return Ok(scores.into_iter().map(|score| i64::from(score > threshold)).collect());
    }
    check_scores(op, prediction, target)?;
    no_grad(|| target_classes(op, &prediction.detach().argmax(1)?))
}

/// Refuses scores that are not `[n, classes, ..]` for targets `[n, ..]`.
fn check_scores(op: &'static str, prediction: &Tensor, target: &Tensor) -> Result<()> {
    let (scores, classes) = (prediction.shape(), target.shape());
    let fits = scores.len() == classes.len() + 1
        && scores.len() >= 2
        && scores[0] == classes[0]
        && scores[2..] == classes[1..]
        && (scores[1] > 0 || classes.contains(&0));
    if fits {
        return Ok(());
    }
    bail!(
        Shape,
        op,
        "predictions must have shape [n, classes, ..] or that of the targets [n, ..], got {scores:?} for targets {classes:?}"
    )
}

/// Refuses a class that is out of range, with its position.
fn check_range(op: &'static str, what: &str, classes: usize, found: &[i64]) -> Result<()> {
    match found.iter().position(|&class| class < 0 || class as u64 >= classes as u64) {
        Some(at) => bail!(Index, op, "{what} {at} is class {}, out of range for {classes} classes", found[at]),
        None => Ok(()),
    }
}

/// Predictions and targets without the ignored target.
fn without(ignored: Option<i64>, predicted: Vec<i64>, target: Vec<i64>) -> (Vec<i64>, Vec<i64>) {
    match ignored {
        Some(ignored) => predicted.into_iter().zip(target).filter(|&(_, target)| target != ignored).unzip(),
        None => (predicted, target),
    }
}
