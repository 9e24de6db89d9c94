//! Classification losses, and helpers shared by all losses.

mod classes;

use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::arg::choices;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::tensor::batch::innermost;
use crate::{DType, Device, Result, Tensor};
pub(in crate::ops) use classes::{Count, LossCall, RowLosses, fused_grad, plain_grad};
use classes::{against_probabilities, class_dim, fused, of_examples};

choices! {
    /// How the losses are reduced.
    ///
    /// ```
    /// use cotangent::{Reduction, Tensor};
    /// let (x, y) = (Tensor::ones([3])?, Tensor::zeros([3])?);
    /// assert_eq!(x.mse_loss_with(&y, Reduction::None)?.to_vec::<f32>()?, [1.0; 3]);
    /// assert_eq!(x.mse_loss_with(&y, Reduction::Sum)?.item::<f32>()?, 3.0);
    /// assert_eq!(Reduction::default().name(), "mean");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum Reduction {
        /// No reduction.
        None = "none",
        /// The mean.
        #[default]
        Mean = "mean",
        /// The sum.
        Sum = "sum",
    }
}

impl Reduction {
    /// The losses unreduced, their sum, or their sum divided by `count`.
    #[track_caller]
    pub(in crate::ops) fn apply<'a>(self, losses: &Tensor, count: impl Into<Operand<'a>>) -> Result<Tensor> {
        match self {
            Reduction::None => Ok(losses.clone()),
            Reduction::Sum => losses.sum(..),
            Reduction::Mean => losses.sum(..)?.div(count),
        }
    }

    /// The losses unreduced, their sum, or their mean.
    #[track_caller]
    pub(in crate::ops) fn of(self, losses: &Tensor) -> Result<Tensor> {
        self.apply(losses, losses.numel() as f64)
    }
}

/// The half-precision dtype that the inputs of a loss promote to, if any: the result is rounded to it, as in PyTorch.
/// Inside of an [`autocast`](crate::autocast()) losses are `f32`.
pub(in crate::ops) fn half_of(dtypes: &[DType]) -> Option<DType> {
    if crate::autograd::autocast::is_on() {
        return None;
    }
    let dtype = dtypes.iter().try_fold(DType::Bool, |all, &dtype| all.promote(dtype)).ok()?;
    matches!(dtype, DType::F16 | DType::BF16).then_some(dtype)
}

/// The dtype of a tensor; `Bool`, the lowest one, for a number.
pub(in crate::ops) fn operand_dtype(operand: &Operand<'_>) -> DType {
    match operand {
        Operand::Borrowed(x) => x.dtype(),
        Operand::Owned(x) => x.dtype(),
        Operand::Scalar(_) => DType::Bool,
    }
}

/// Casts the loss to the half-precision dtype of its inputs, if any.
#[track_caller]
pub(in crate::ops) fn rounded(loss: Result<Tensor>, half: Option<DType>) -> Result<Tensor> {
    match half {
        Some(dtype) => loss?.to_dtype(dtype),
        None => loss,
    }
}

/// The compute dtype of a loss of these tensors: half precision has too few digits for a sum.
pub(in crate::ops) fn loss_dtype(op: &'static str, tensors: &[&Tensor]) -> Result<DType> {
    let mut dtype = DType::Bool;
    for x in tensors {
        dtype = common_dtype(op, dtype, x.dtype())?;
    }
    if dtype.is_complex() {
        bail!(DType, op, "not defined for {dtype}");
    }
    Ok(dtype.to_float().compute_dtype())
}

/// Refuses a target of another shape: broadcasting `[n, 1]` against `[n]` is usually a mistake.
pub(in crate::ops) fn same_shape(op: &'static str, x: &Tensor, target: &Tensor) -> Result<()> {
    if x.shape() != target.shape() {
        let (a, b) = (x.shape(), target.shape());
        bail!(Shape, op, "shapes must match, got {a:?} and {b:?}: reshape one of them");
    }
    Ok(())
}

/// Refuses tensors of different ranks, for which broadcasting is usually a mistake; sizes of 1 broadcast.
pub(in crate::ops) fn same_rank(op: &'static str, x: &Tensor, other: &Tensor) -> Result<()> {
    if x.rank() != other.rank() {
        return same_shape(op, x, other);
    }
    broadcast(op, &[x.layout().shape(), other.layout().shape()]).map(drop)
}

/// The losses times weights that broadcast to their shape.
pub(in crate::ops) fn weighted(op: &'static str, losses: Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
    let Some(weight) = weight else { return Ok(losses) };
    let (all, own) = (losses.layout().shape(), weight.layout().shape());
    if !broadcast(op, &[all, own]).is_ok_and(|both| both == *all) {
        bail!(Shape, op, "weight must broadcast to shape {all:?}, got shape {own:?}");
    }
    losses.mul(&weight.to_dtype(losses.dtype())?)
}

options! {
    /// The options of [`Tensor::mse_loss_with`] and [`Tensor::l1_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Reduction, Tensor, options::LossOptions};
    /// let (x, y) = (Tensor::ones([3])?, Tensor::zeros([3])?);
    /// let sum = x.mse_loss_with(&y, LossOptions::new().reduction(Reduction::Sum))?;
    /// assert_eq!(sum.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LossOptions<'a> {
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// A weight for each element; the mean is then weighted.
        weight: Option<&'a Tensor> = None,
    }
}

options! {
    /// The options of [`Tensor::cross_entropy_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Reduction, Tensor, tensor, options::CrossEntropyOptions};
    /// let (logits, classes) = (Tensor::zeros([2, 3])?, tensor!([0, 2])?);
    /// let weight = tensor!([1.0, 1.0, 2.0])?;
    /// let options = CrossEntropyOptions::new().weight(&weight).label_smoothing(0.1).reduction(Reduction::None);
    /// assert_eq!(logits.cross_entropy_with(&classes, options)?.shape(), [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CrossEntropyOptions<'a> {
        /// A weight for each class.
        weight: Option<&'a Tensor> = None,
        /// A target class that is ignored.
        ignore_index: i64 = -100,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// The share of each target that is spread uniformly over all classes.
        label_smoothing: f64 = 0.0,
    }
}

options! {
    /// The options of [`Tensor::nll_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::NllLossOptions};
    /// let (x, classes) = (Tensor::zeros([2, 3])?.log_softmax(1)?, tensor!([0, 2])?);
    /// let loss = x.nll_loss_with(&classes, NllLossOptions::new().ignore_index(2))?;
    /// assert!((loss.item::<f32>()? - 3.0_f32.ln()).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct NllLossOptions<'a> {
        /// A weight for each class.
        weight: Option<&'a Tensor> = None,
        /// A target class that is ignored.
        ignore_index: i64 = -100,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

/// Implements the conversion of a [`Reduction`] to options.
macro_rules! from_reduction {
    ($($options:ty),+) => {$(
        impl From<Reduction> for $options {
            fn from(reduction: Reduction) -> Self {
                Self::new().reduction(reduction)
            }
        }
    )+};
}
pub(in crate::ops) use from_reduction;
from_reduction!(LossOptions<'_>, CrossEntropyOptions<'_>, NllLossOptions<'_>);

/// # Cross entropy losses
#[ops]
impl Tensor {
    /// The cross entropy of logits of shape `[N, C]`, `[N, C, d1, ..]` or `[C]` with `C` classes. The target holds
    /// class indices, with the shape of the logits without the classes, or class probabilities, as floats of the same
    /// shape.
    ///
    /// The result is the mean, unless the options say otherwise. With class weights the mean is weighted. Targets equal to
    /// `ignore_index`, by default -100, are ignored; if all are, the mean is NaN.
    ///
    /// ```
    /// # use cotangent::{Reduction, Tensor, tensor, options::CrossEntropyOptions};
    /// let (logits, target) = (tensor!([[0.0, 0.0], [100.0, 0.0]])?, tensor!([1, 0])?);
    /// assert_eq!(logits.cross_entropy(&target)?.item::<f32>()?, std::f32::consts::LN_2 / 2.0);
    /// assert_eq!(logits.cross_entropy_with(&target, Reduction::Sum)?.item::<f32>()?, std::f32::consts::LN_2);
    /// let options = CrossEntropyOptions::new().ignore_index(1).label_smoothing(0.5);
    /// assert_eq!(logits.cross_entropy_with(&target, options)?.item::<f32>()?, 25.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a class is out of range, the smoothing is not in [0, 1], or the logits are not floats.
    #[op(samples = cross_entropy_samples, errors = cross_entropy_errors, rounds)]
    pub fn cross_entropy<'a>(&self, target: &Tensor, options: impl Into<CrossEntropyOptions<'a>>) -> Result<Tensor> {
        if target.dtype().is_float() {
            return against_probabilities(self, target, &options);
        }
        if let Some(level) = innermost([self, target]) {
            let each = CrossEntropyOptions { reduction: Reduction::None, ..options.clone() };
            return of_examples("cross_entropy", level, self, target, &options, |x, target| {
                x.cross_entropy_with(target, each.clone())
            });
        }
        let problem = LossCall::new("cross_entropy", self, target, &options)?;
        if self.rank() == 2 {
            return fused(self, problem, options.reduction);
        }
        // Classes last, all other dimensions flattened to rows.
        let order: Vec<isize> = (0..self.rank() as isize).filter(|&d| d != 1).chain([1]).collect();
        let ordered = if self.rank() > 2 { self.permute(order)? } else { self.clone() };
        let losses = fused(&ordered.reshape([problem.rows(), problem.classes])?, problem, options.reduction)?;
        if options.reduction == Reduction::None { losses.reshape(target.shape()) } else { Ok(losses) }
    }

    /// The negative log-likelihood loss: the negative of the log-probabilities, of shape `[N, C]`, `[N, C, d1, ..]` or
    /// `[C]`, at the target classes. [`cross_entropy`](Self::cross_entropy) is `log_softmax` followed by this. The
    /// result is the mean, unless the options say otherwise.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::NllLossOptions};
    /// let (logs, target) = (tensor!([[-1.0, -2.0], [-3.0, -4.0]])?, tensor!([1, 0])?);
    /// assert_eq!(logs.nll_loss(&target)?.item::<f32>()?, 2.5);
    /// let options = NllLossOptions::new().ignore_index(1);
    /// assert_eq!(logs.nll_loss_with(&target, options)?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a class is out of range, or the input is not floating point.
    #[op(samples = || class_samples(&[None]), errors = class_errors, rounds)]
    pub fn nll_loss<'a>(&self, target: &Tensor, options: impl Into<NllLossOptions<'a>>) -> Result<Tensor> {
        let NllLossOptions { weight, ignore_index, reduction } = options;
        let options = CrossEntropyOptions { weight, ignore_index, reduction, label_smoothing: 0.0 };
        if let Some(level) = innermost([self, target]) {
            let each = NllLossOptions { weight, ignore_index, reduction: Reduction::None };
            return of_examples("nll_loss", level, self, target, &options, |x, target| {
                x.nll_loss_with(target, each.clone())
            });
        }
        let mut problem = LossCall::new("nll_loss", self, target, &options)?;
        let dim = class_dim(self);
        let ignored = problem.target.eq(ignore_index)?;
        let index = problem.target.masked_fill(&ignored, 0)?;
        let weights = match &problem.weight {
            Some(weight) => weight.index_select(0, &index)?,
            None => Tensor::ones_with(index.shape(), (DType::F64, index.device()))?,
        };
        let weights = weights.masked_fill(&ignored, 0.0)?;
        if self.device() != Device::Cpu {
            problem.count = Count::Tensor(weights.sum(..)?.to_dtype(self.dtype().compute_dtype())?);
        }
        let index = index.reshape(target.shape())?.unsqueeze(dim)?;
        let dtype = self.dtype().compute_dtype();
        let factor = weights.neg()?.reshape(target.shape())?.to_dtype(dtype)?;
        let losses = self.gather(dim, &index)?.squeeze(dim)?.to_dtype(dtype)?.mul(&factor)?;
        // 0 even where the element is infinite.
        let losses = losses.masked_fill(&ignored.reshape(target.shape())?, 0.0)?;
        reduction.apply(&losses, problem.count.operand())
    }
}

/// Refuses weights of another shape.
pub(in crate::ops) fn same_weights(op: &'static str, x: &Tensor, weight: &Tensor) -> Result<()> {
    if x.shape() != weight.shape() {
        bail!(Shape, op, "weight must have shape {:?}, got {:?}", x.shape(), weight.shape());
    }
    Ok(())
}

/// The reduction of weighted losses; the mean is the weighted mean.
#[track_caller]
pub(in crate::ops) fn weighted_mean(losses: &Tensor, weight: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let weight = weight.to_dtype(losses.dtype())?;
    let losses = losses.mul(&weight)?;
    if reduction == Reduction::Mean { losses.sum(..)?.div(&weight.sum(..)?) } else { reduction.of(&losses) }
}

pub(in crate::ops) const REDUCTIONS: [Reduction; 3] = [Reduction::None, Reduction::Mean, Reduction::Sum];

pub(in crate::ops) fn pair_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["shapes that differ", "[3, 1]", "[3]"; sample![normal([3, 1], 1)?, normal([3], 2)?]]])
}

pub(in crate::ops) fn mse_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    let x = normal([3], 1)?;
    all.push(error!["other weights", "[2]", "[3]"; sample![&x, normal([3], 2)?; weight = normal([2], 3)?]]);
    Ok(all)
}

fn cross_entropy_samples() -> Result<Vec<Sample>> {
    let mut all = class_samples(&[None, Some(0.2)])?;
    // Probabilities.
    for reduction in REDUCTIONS {
        for (shape, classes) in [(&[3, 4][..], 4), (&[2, 3, 2], 3), (&[3], 3)] {
            let sample = sample![normal(shape, 1)?, spread(shape, 0.1, 1.0)?; reduction = reduction];
            all.push(sample.with("weight", weights(classes)?).with("label_smoothing", 0.1));
        }
    }
    all.push(sample![normal([3, 4], 1)?, spread([3, 4], 0.1, 1.0)?]);
    Ok(all)
}

/// Samples with class targets: all reductions, these smoothings, with and without weights and an ignored class.
fn class_samples(smoothings: &[Option<f64>]) -> Result<Vec<Sample>> {
    let targets = [
        (&[4, 3][..], ints(&[0, 2, 1, 2], [4])?),
        (&[2, 3, 2], ints(&[0, 2, 1, 1], [2, 2])?),
        (&[3], ints(&[2], [])?),
        (&[0, 3], ints(&[], [0])?),
    ];
    let mut all = vec![sample![normal([4, 3], 1)?, &targets[0].1]];
    for (shape, target) in &targets {
        for reduction in REDUCTIONS {
            if target.numel() == 0 && reduction == Reduction::Mean {
                continue; // 0 / 0
            }
            for smoothing in smoothings {
                let sample = || -> Result<Sample> {
                    let sample = sample![normal(*shape, 1)?, target; reduction = reduction];
                    Ok(smoothing.iter().fold(sample, |sample, &amount| sample.with("label_smoothing", amount)))
                };
                all.push(sample()?);
                all.push(sample()?.with("weight", weights(3)?).with("ignore_index", 1));
            }
        }
    }
    Ok(all)
}

/// Class weights. They are integers, because floats among the arguments of a sample get gradients, and weights have none.
fn weights(classes: usize) -> Result<Tensor> {
    ints(&[2, 1, 3, 5][..classes], classes)
}

fn cross_entropy_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    let mut all = class_errors()?;
    all.push(error!["probabilities of another shape", "[2, 3]", "[2, 4]"; sample![&x, normal([2, 4], 2)?]]);
    all.push(error!["smoothing", "1.5"; sample![&x, ints(&[0, 1], [2])?; label_smoothing = 1.5]]);
    Ok(all)
}

fn class_errors() -> Result<Vec<ErrorCase>> {
    let (x, target) = (normal([2, 3], 1)?, ints(&[0, 1], [2])?);
    let learnt = normal([3], 3)?.requires_grad_(true)?;
    Ok(vec![
        error!["a class that is not there", "class 3", "position 1", "3 classes"; sample![&x, ints(&[0, 3], [2])?]],
        error!["a negative class", "class -1"; sample![&x, ints(&[-1, 0], [2])?]],
        error!["another batch size", "[2, 3]", "[3]"; sample![&x, ints(&[0, 1, 2], [3])?]],
        error!["a target of bools", "bool"; sample![&x, target.gt(0)?]],
        error!["logits of integers", "i64"; sample![&target, ints(&[1], [])?]],
        error!["no classes", "[]"; sample![normal([], 1)?, ints(&[1], [1])?]],
        error!["other weights", "[4]", "[3]"; sample![&x, &target; weight = normal([4], 3)?]],
        error!["learnt weights", "weight", "detach"; sample![&x, &target; weight = learnt]],
    ])
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
