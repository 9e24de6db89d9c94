//! Metrics of regression, perplexity, and means.

use super::{Metric, nothing, numbers};
use crate::autograd::no_grad;
use crate::error::bail;
use crate::options::CrossEntropyOptions;
use crate::{DType, Reduction, Result, Tensor};
use cotangent_macros::named;

/// A weighted mean, for example of losses with the sizes of their batches as weights.
///
/// ```
/// use cotangent::train::Mean;
/// let mut loss = Mean::new();
/// loss.update(0.5, 64.0);
/// loss.update(0.2, 32.0);
/// assert!((loss.compute().ok_or("two were counted")? - 0.4).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// A mean without numbers.
    pub fn new() -> Mean {
        Mean::default()
    }

    /// Adds a number with a weight.
    pub fn update(&mut self, value: f64, weight: f64) {
        if weight != 0.0 {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    /// The mean; `None` if the sum of the weights is 0.
    pub fn compute(&self) -> Option<f64> {
        (self.weight != 0.0).then(|| self.sum / self.weight)
    }

    /// Resets the mean.
    pub fn reset(&mut self) {
        *self = Mean::new();
    }

    /// The sum and the weight, for a checkpoint.
    pub(crate) fn parts(&self) -> (f64, f64) {
        (self.sum, self.weight)
    }

    pub(crate) fn from_parts(sum: f64, weight: f64) -> Mean {
        Mean { sum, weight }
    }
}

/// The predictions and the targets as numbers. They must have one shape: `[n, 1]` and `[n]` would broadcast.
fn pair(op: &'static str, prediction: &Tensor, target: &Tensor) -> Result<(Vec<f64>, Vec<f64>)> {
    if prediction.shape() != target.shape() {
        bail!(
            Shape,
            op,
            "predictions and targets must have the same shape, got {:?} and {:?}",
            prediction.shape(),
            target.shape()
        );
    }
    Ok((numbers(op, "predictions", prediction)?, numbers(op, "targets", target)?))
}

/// Defines a metric that is a mean over all elements.
macro_rules! mean_of {
    ($(#[$doc:meta])* $name:ident, $text:literal, $each:expr, $last:expr, $update:tt $compute:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name {
            mean: Mean,
        }

        impl $name {
            /// A metric without examples.
            pub fn new() -> $name {
                $name::default()
            }
        }

        impl Metric for $name {
            fn name(&self) -> String {
                $text.into()
            }

            #[named($update)]
            fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
                let (prediction, target) = pair($update, prediction, target)?;
                let each: fn(f64) -> f64 = $each;
                let sum: f64 = prediction.iter().zip(&target).map(|(p, t)| each(p - t)).sum();
                self.mean.sum += sum;
                self.mean.weight += target.len() as f64;
                Ok(())
            }

            #[named($compute)]
            fn compute(&self) -> Result<f64> {
                let last: fn(f64) -> f64 = $last;
                self.mean.compute().map(last).ok_or_else(|| nothing($compute))
            }

            fn reset(&mut self) {
                self.mean.reset();
            }

            fn higher_is_better(&self) -> bool {
                false
            }
        }
    };
}

mean_of! {
    /// The mean of |prediction − target|.
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{MeanAbsoluteError, Metric};
    /// let mut mae = MeanAbsoluteError::new();
    /// mae.update(&tensor!([1.0, 4.0])?, &tensor!([2.0, 2.0])?)?;
    /// assert_eq!(mae.compute()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "mae")]
    MeanAbsoluteError, "mae", f64::abs, |mean| mean, "MeanAbsoluteError::update" "MeanAbsoluteError::compute"
}

mean_of! {
    /// The mean of (prediction − target)².
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{MeanSquaredError, Metric};
    /// let mut mse = MeanSquaredError::new();
    /// mse.update(&tensor!([1.0, 4.0])?, &tensor!([2.0, 2.0])?)?;
    /// assert_eq!(mse.compute()?, 2.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "mse")]
    MeanSquaredError, "mse", |d| d * d, |mean| mean, "MeanSquaredError::update" "MeanSquaredError::compute"
}

mean_of! {
    /// The root of the mean of (prediction − target)², over all elements.
    ///
    /// ```
    /// use cotangent::tensor;
    /// use cotangent::train::{Metric, RootMeanSquaredError};
    /// let mut rmse = RootMeanSquaredError::new();
    /// rmse.update(&tensor!([1.0, 5.0])?, &tensor!([2.0, 2.0])?)?;
    /// assert_eq!(rmse.compute()?, 5.0_f64.sqrt());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "rmse")]
    RootMeanSquaredError, "rmse", |d| d * d, f64::sqrt, "RootMeanSquaredError::update" "RootMeanSquaredError::compute"
}

/// The coefficient of determination R²: 1 for exact predictions, 0 if the mean would be as good, negative if it would be
/// better. For targets `[n, ..]` with several values per example, the mean over these.
///
/// ```
/// use cotangent::tensor;
/// use cotangent::train::{Metric, R2Score};
/// let mut r2 = R2Score::new();
/// r2.update(&tensor!([2.5, 0.0])?, &tensor!([3.0, -0.5])?)?;
/// r2.update(&tensor!([2.0, 8.0])?, &tensor!([2.0, 7.0])?)?;
/// assert!((r2.compute()? - 0.948_608_137).abs() < 1e-8);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "r2_score")]
#[derive(Clone, Debug, Default)]
pub struct R2Score {
    examples: u64,
    outputs: Vec<Output>,
}

/// The sums of one value per example.
#[derive(Clone, Copy, Debug, Default)]
struct Output {
    mean: f64,
    /// The sum of squared distances of targets from their mean.
    spread: f64,
    /// The sum of squared distances of targets from predictions.
    residual: f64,
}

impl R2Score {
    /// A score without examples.
    pub fn new() -> R2Score {
        R2Score::default()
    }
}

impl Metric for R2Score {
    fn name(&self) -> String {
        "r2".into()
    }

    #[named("R2Score::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "R2Score::update";
        let (prediction, targets) = pair(OP, prediction, target)?;
        let Some(&examples) = target.shape().first() else {
            bail!(Shape, OP, "targets must have shape [n, ..], got []")
        };
        let outputs: usize = target.shape()[1..].iter().product();
        if outputs == 0 {
            bail!(Shape, OP, "targets must have at least 1 value per example, got shape {:?}", target.shape());
        }
        if self.examples > 0 && outputs != self.outputs.len() {
            let (before, shape) = (self.outputs.len(), target.shape());
            bail!(
                Shape,
                OP,
                "targets must have {before} values per example, as in earlier batches, got shape {shape:?}"
            );
        }
        self.outputs.resize(outputs, Output::default());
        for (example, (prediction, target)) in
            prediction.chunks_exact(outputs).zip(targets.chunks_exact(outputs)).enumerate()
        {
            let count = (self.examples + example as u64 + 1) as f64;
            for ((output, p), t) in self.outputs.iter_mut().zip(prediction).zip(target) {
                // Welford's running mean and sum of squares, which avoids differences of large sums.
                let from_old = t - output.mean;
                output.mean += from_old / count;
                output.spread += from_old * (t - output.mean);
                output.residual += (t - p) * (t - p);
            }
        }
        self.examples += examples as u64;
        Ok(())
    }

    #[named("R2Score::compute")]
    fn compute(&self) -> Result<f64> {
        if self.examples < 2 {
            bail!(Value, "R2Score::compute", "R² requires at least 2 examples, got {}", self.examples);
        }
        let score = |output: &Output| match (output.residual, output.spread) {
            // As in scikit-learn for constant targets.
            (0.0, 0.0) => 1.0,
            (_, 0.0) => 0.0,
            (residual, spread) => 1.0 - residual / spread,
        };
        Ok(self.outputs.iter().map(score).sum::<f64>() / self.outputs.len() as f64)
    }

    fn reset(&mut self) {
        *self = R2Score::new();
    }
}

/// The perplexity of a language model: the exponential of the mean cross entropy of its logits `[.., vocabulary]` for targets
/// `[..]`.
///
/// ```
/// use cotangent::{Tensor, tensor};
/// use cotangent::train::{Metric, Perplexity};
/// let mut perplexity = Perplexity::new().ignore_index(-100);
/// perplexity.update(&Tensor::zeros([1, 3, 50])?, &tensor!([[7, 8, -100]])?)?;
/// assert!((perplexity.compute()? - 50.0).abs() < 1e-4);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Perplexity {
    ignored: Option<i64>,
    mean: Mean,
}

impl Perplexity {
    /// A perplexity without examples.
    pub fn new() -> Perplexity {
        Perplexity::default()
    }

    /// A target that is ignored, such as padding.
    #[must_use]
    pub fn ignore_index(mut self, target: i64) -> Perplexity {
        self.ignored = Some(target);
        self
    }
}

impl Metric for Perplexity {
    fn name(&self) -> String {
        "perplexity".into()
    }

    #[named("Perplexity::update")]
    fn update(&mut self, prediction: &Tensor, target: &Tensor) -> Result<()> {
        const OP: &str = "Perplexity::update";
        let (logits, targets) = (prediction.shape(), target.shape());
        if logits.split_last().is_none_or(|(_, rest)| rest != targets) {
            bail!(
                Shape,
                OP,
                "logits must have shape [.., vocabulary] for targets [..], got {logits:?} for {targets:?}"
            );
        }
        let found = super::target_classes(OP, target)?;
        let counted = found.iter().filter(|&&target| Some(target) != self.ignored).count();
        let mut options = CrossEntropyOptions::new().reduction(Reduction::None);
        if let Some(ignored) = self.ignored {
            options = options.ignore_index(ignored);
        }
        let vocabulary = logits[logits.len() - 1];
        let losses = no_grad(|| {
            let logits = prediction.detach().reshape([-1, vocabulary as isize])?;
            let logits = if logits.dtype() == DType::F64 { logits } else { logits.to_dtype(DType::F32)? };
            logits.cross_entropy_with(&target.reshape([-1])?, options)
        })?;
        // Ignored targets have a loss of 0.
        self.mean.sum += numbers(OP, "losses", &losses)?.iter().sum::<f64>();
        self.mean.weight += counted as f64;
        Ok(())
    }

    #[named("Perplexity::compute")]
    fn compute(&self) -> Result<f64> {
        self.mean.compute().map(f64::exp).ok_or_else(|| nothing("Perplexity::compute"))
    }

    fn reset(&mut self) {
        self.mean.reset();
    }

    fn higher_is_better(&self) -> bool {
        false
    }
}
