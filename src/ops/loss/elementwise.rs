//! Elementwise losses: functions of the difference of input and target, and binary cross entropy.

use crate::autograd::BackwardContext;
use crate::backend::spec::{Arithmetic, Formula, Ordered, Real, Sym, select};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::elementwise::call::{Domain, Elementwise, common_dtype};
use crate::ops::elementwise::map::map_alike;
use crate::ops::loss::cross_entropy::{
    REDUCTIONS, from_reduction, loss_dtype, mse_errors, pair_errors, same_shape, same_weights, weighted, weighted_mean,
};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::LossOptions;
use crate::options::options;
use crate::{Device, Reduction, Result, Scalar, Tensor};
use smallvec::smallvec;
use std::sync::LazyLock;

options! {
    /// The options of [`Tensor::smooth_l1_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::SmoothL1LossOptions};
    /// let loss = tensor!([3.0])?.smooth_l1_loss_with(&tensor!([0.0])?, SmoothL1LossOptions::new().beta(2.0))?;
    /// assert_eq!(loss.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SmoothL1LossOptions {
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// The threshold between the quadratic and the linear part.
        beta: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::huber_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::HuberLossOptions};
    /// let loss = tensor!([3.0])?.huber_loss_with(&tensor!([0.0])?, HuberLossOptions::new().delta(2.0))?;
    /// assert_eq!(loss.item::<f32>()?, 4.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HuberLossOptions<'a> {
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// The threshold between the quadratic and the linear part.
        delta: f64 = 1.0,
        /// A weight for each element.
        weight: Option<&'a Tensor> = None,
    }
}

options! {
    /// The options of [`Tensor::binary_cross_entropy_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Reduction, tensor, options::BinaryCrossEntropyOptions};
    /// let (p, weight) = (tensor!([0.5, 0.5])?, tensor!([0.0, 1.0])?);
    /// let options = BinaryCrossEntropyOptions::new().weight(&weight).reduction(Reduction::Sum);
    /// let loss = p.binary_cross_entropy_with(&tensor!([1.0, 0.0])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BinaryCrossEntropyOptions<'a> {
        /// Weights that broadcast to the losses.
        weight: Option<&'a Tensor> = None,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::binary_cross_entropy_with_logits_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::BinaryCrossEntropyWithLogitsOptions};
    /// let (x, weight) = (tensor!([0.0])?, tensor!([3.0])?);
    /// let options = BinaryCrossEntropyWithLogitsOptions::new().pos_weight(&weight);
    /// let loss = x.binary_cross_entropy_with_logits_with(&tensor!([1.0])?, options)?;
    /// assert!((loss.item::<f32>()? - 3.0 * std::f32::consts::LN_2).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BinaryCrossEntropyWithLogitsOptions<'a> {
        /// Weights that broadcast to the losses.
        weight: Option<&'a Tensor> = None,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// Weights of positive examples, which broadcast to the targets.
        pos_weight: Option<&'a Tensor> = None,
    }
}

from_reduction!(
    SmoothL1LossOptions,
    HuberLossOptions<'_>,
    BinaryCrossEntropyOptions<'_>,
    BinaryCrossEntropyWithLogitsOptions<'_>
);

pub(in crate::ops) fn constant(value: f64) -> Sym {
    <Sym as Arithmetic>::constant(value)
}

/// `ln(1 + exp(x))`, without overflow. Its derivative is given where it is used: that of this formula is wrong at 0.
fn softplus(x: Sym) -> Sym {
    x.relu() + (-x.abs()).exp().log1p()
}

static ABSOLUTE: Elementwise = Elementwise::new("l1_loss", Domain::Float, 2, 0, |x, _| (x[0] - x[1]).abs());

static SMOOTH: Elementwise = Elementwise::new("smooth_l1_loss", Domain::Float, 2, 1, |x, p| {
    let d = (x[0] - x[1]).abs();
    // NaN takes the quadratic part, whose slope is NaN.
    select(d.ge(p[0]), d - p[0] * 0.5, d * d * 0.5 / p[0])
});

static HUBER: Elementwise = Elementwise::new("huber_loss", Domain::Float, 2, 1, |x, p| {
    let d = (x[0] - x[1]).abs();
    select(d.gt(p[0]), p[0] * (d - p[0] * 0.5), d * d * 0.5)
});

/// A logarithm clamped to at least -100, as in PyTorch.
fn bounded(log: Sym) -> Sym {
    select(log.lt(constant(-100.0)), constant(-100.0), log)
}

static ENTROPY: Elementwise = Elementwise::new("binary_cross_entropy", Domain::Float, 2, 0, |x, _| {
    let (x, t) = (x[0], x[1]);
    (t - 1.0) * bounded((-x).log1p()) - t * bounded(x.ln())
})
.with_gradient(|g, x, _, _| {
    let (x, t) = (x[0], x[1]);
    let product = x * (1.0 - x);
    let least = select(product.lt(constant(1e-12)), constant(1e-12), product);
    vec![Some(g * (x - t) / least), Some(g * (bounded((-x).log1p()) - bounded(x.ln())))]
});

/// The loss of a logit and a target.
pub(in crate::ops) static LOGISTIC: Elementwise =
    Elementwise::new("binary_cross_entropy_with_logits", Domain::Float, 2, 0, |x, _| {
        (1.0 - x[1]) * x[0] + softplus(-x[0])
    })
    .with_gradient(|g, x, _, _| vec![Some(g * (x[0].sigmoid() - x[1])), Some(-(g * x[0]))]);

/// The loss of a logit, a target and the weight of positive examples.
static WEIGHTED_LOGISTIC: Elementwise =
    Elementwise::new("binary_cross_entropy_with_logits", Domain::Float, 3, 0, |x, _| {
        let (x, t, w) = (x[0], x[1], x[2]);
        (1.0 - t) * x + (1.0 + (w - 1.0) * t) * softplus(-x)
    })
    .with_gradient(|g, x, _, _| {
        let (x, t, w) = (x[0], x[1], x[2]);
        let slope = (1.0 - t) - (1.0 + (w - 1.0) * t) * (-x).sigmoid();
        vec![Some(g * slope), Some(g * ((w - 1.0) * softplus(-x) - x)), Some(g * t * softplus(-x))]
    });

/// The losses of an input and a target of the same shape.
#[track_caller]
pub(in crate::ops) fn losses_of(
    op: &'static str,
    function: &'static Elementwise,
    [x, target]: [&Tensor; 2],
    params: &[f64],
) -> Result<Tensor> {
    same_shape(op, x, target)?;
    let dtype = loss_dtype(op, &[x, target])?;
    let params: Vec<Scalar> = params.iter().map(|&p| p.into()).collect();
    function.call_as(&[x, target], &params, dtype, dtype)
}

/// Refuses elements outside of `[low, high]`. On a GPU nothing is checked, because that would synchronize.
pub(in crate::ops) fn within(op: &'static str, what: &str, x: &Tensor, low: f64, high: f64) -> Result<()> {
    if x.device() != Device::Cpu {
        return Ok(());
    }
    let x = x.detach().all_examples()?;
    if x.numel() == 0 {
        return Ok(());
    }
    let (least, most) = (x.min(..)?, x.max(..)?);
    let (least, most) =
        (least.to_dtype(crate::DType::F64)?.item::<f64>()?, most.to_dtype(crate::DType::F64)?.item::<f64>()?);
    if !(least >= low && most <= high) {
        bail!(Value, op, "{what} must be in [{low}, {high}], got values from {least} to {most}");
    }
    Ok(())
}

static SQUARED: LazyLock<Formula> = LazyLock::new(|| {
    Formula::new("mse_loss", 2, 0, |x, _| {
        let difference = x[0] - x[1];
        difference * difference
    })
});

/// The derivative of the squares: cotangent · factor · difference.
static SLOPE: Elementwise =
    Elementwise::new("mse_loss_backward", Domain::Float, 3, 1, |x, p| x[0] * p[0] * (x[1] - x[2]));

/// # Elementwise losses
#[ops]
impl Tensor {
    /// The mean squared error of two tensors of the same shape. Options give the sum or the unreduced squares.
    ///
    /// ```
    /// # use cotangent::{Reduction, Tensor, tensor};
    /// let (x, y) = (tensor!([1.0, 5.0])?, tensor!([2.0, 2.0])?);
    /// assert_eq!(x.mse_loss(&y)?.item::<f32>()?, 5.0);
    /// assert_eq!(x.mse_loss_with(&y, Reduction::Sum)?.item::<f32>()?, 10.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ: `[n, 1]` is not broadcast against `[n]`.
    #[op(samples = mse_samples, errors = mse_errors, rounds)]
    pub fn mse_loss<'a>(&self, target: &Tensor, options: impl Into<LossOptions<'a>>) -> Result<Tensor> {
        same_shape("mse_loss", self, target)?;
        let dtype = loss_dtype("mse_loss", &[self, target])?;
        if let Some(weight) = options.weight {
            same_weights("mse_loss", self, weight)?;
            let squares = self.to_dtype(dtype)?.sub(&target.to_dtype(dtype)?)?.square()?;
            return weighted_mean(&squares, weight, options.reduction);
        }
        let own = common_dtype("mse_loss", self.dtype(), target.dtype())?.to_float();
        let (a, b) = (self.to_dtype(own)?, target.to_dtype(own)?);
        let squares = map_alike("mse_loss", (&*SQUARED, &[]), dtype, &[&a, &b], dtype)?;
        let factor = if options.reduction == Reduction::Mean { 2.0 / squares.numel() as f64 } else { 2.0 };
        options.reduction.of(&squares)?.record("mse_loss", &[&a, &b], |save| {
            let (a, b) = (save.save(&a), save.save(&b));
            move |ctx: &BackwardContext, g: &Tensor| {
                let slope = SLOPE.call(&[g, &a, &b], &[Scalar::F64(factor)])?;
                Ok(smallvec![Some(slope.clone()), ctx.want(1, || slope.neg())?])
            }
        })
    }

    /// The mean absolute error of two tensors of the same shape. Options give the sum or the unreduced differences.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.0, 5.0])?.l1_loss(&tensor!([2.0, 2.0])?)?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[op(samples = l1_samples, errors = mse_errors, rounds)]
    pub fn l1_loss<'a>(&self, target: &Tensor, options: impl Into<LossOptions<'a>>) -> Result<Tensor> {
        let losses = losses_of("l1_loss", &ABSOLUTE, [self, target], &[])?;
        let Some(weight) = options.weight else { return options.reduction.of(&losses) };
        same_weights("l1_loss", self, weight)?;
        weighted_mean(&losses, weight, options.reduction)
    }

    /// The smooth L1 loss: `0.5 · d² / beta` where `|d| < beta`, and `|d| - beta / 2` elsewhere, for differences d.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.5, 3.0])?.smooth_l1_loss(&tensor!([1.0, 1.0])?)?.item::<f32>()?, 0.8125);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or `beta` is negative.
    #[op(samples = || scaled_samples("beta"), errors = || scaled_errors("beta"), rounds)]
    pub fn smooth_l1_loss(&self, target: &Tensor, options: impl Into<SmoothL1LossOptions>) -> Result<Tensor> {
        let SmoothL1LossOptions { reduction, beta } = options;
        if beta.is_nan() || beta < 0.0 {
            bail!(Value, "smooth_l1_loss", "beta must be ≥ 0, got {beta}");
        }
        reduction.of(&losses_of("smooth_l1_loss", &SMOOTH, [self, target], &[beta])?)
    }

    /// The Huber loss: `0.5 · d²` where `|d| ≤ delta`, and `delta · (|d| - delta / 2)` elsewhere, for differences d.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.5, 3.0])?.huber_loss(&tensor!([1.0, 1.0])?)?.item::<f32>()?, 0.8125);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or `delta` is not positive.
    #[op(samples = huber_samples, errors = || scaled_errors("delta"), rounds)]
    pub fn huber_loss<'a>(&self, target: &Tensor, options: impl Into<HuberLossOptions<'a>>) -> Result<Tensor> {
        let HuberLossOptions { reduction, delta, weight } = options;
        if delta.is_nan() || delta <= 0.0 {
            bail!(Value, "huber_loss", "delta must be positive, got {delta}");
        }
        if let Some(weight) = weight {
            same_weights("huber_loss", self, weight)?;
        }
        let losses = losses_of("huber_loss", &HUBER, [self, target], &[delta])?;
        reduction.of(&weighted("huber_loss", losses, weight)?)
    }

    /// The binary cross entropy of probabilities: `-t · ln(p) - (1 - t) · ln(1 - p)`, with logarithms clamped to at
    /// least -100.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.5, 0.5])?.binary_cross_entropy(&tensor!([1.0, 0.0])?)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or a probability is not in [0, 1]. On a GPU such a probability gives NaN instead.
    #[op(autocast_cpu = f32, autocast_cuda = refused, samples = entropy_samples, errors = entropy_errors, rounds)]
    pub fn binary_cross_entropy<'a>(
        &self,
        target: &Tensor,
        options: impl Into<BinaryCrossEntropyOptions<'a>>,
    ) -> Result<Tensor> {
        const OP: &str = "binary_cross_entropy";
        let BinaryCrossEntropyOptions { weight, reduction } = options;
        let losses = losses_of(OP, &ENTROPY, [self, target], &[])?;
        within(OP, "probabilities", self, 0.0, 1.0)?;
        reduction.of(&weighted(OP, losses, weight)?)
    }

    /// The [`binary_cross_entropy`](Self::binary_cross_entropy) of the sigmoid of logits, computed stably.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.0, -100.0])?.binary_cross_entropy_with_logits(&tensor!([1.0, 1.0])?)?;
    /// assert_eq!(loss.item::<f32>()?, 50.0 + std::f32::consts::LN_2 / 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or the weights do not broadcast to them.
    #[op(samples = logits_samples, errors = logits_errors, rounds)]
    pub fn binary_cross_entropy_with_logits<'a>(
        &self,
        target: &Tensor,
        options: impl Into<BinaryCrossEntropyWithLogitsOptions<'a>>,
    ) -> Result<Tensor> {
        const OP: &str = "binary_cross_entropy_with_logits";
        let BinaryCrossEntropyWithLogitsOptions { weight, reduction, pos_weight } = options;
        let losses = match pos_weight {
            None => losses_of(OP, &LOGISTIC, [self, target], &[])?,
            Some(positive) => {
                same_shape(OP, self, target)?;
                let (all, own) = (self.layout().shape(), positive.layout().shape());
                if !broadcast(OP, &[all, own]).is_ok_and(|both| both == *all) {
                    bail!(Shape, OP, "pos_weight must broadcast to shape {all:?}, got shape {own:?}");
                }
                let dtype = loss_dtype(OP, &[self, target, positive])?;
                WEIGHTED_LOGISTIC.call_as(&[self, target, positive], &[], dtype, dtype)?
            }
        };
        reduction.of(&weighted(OP, losses, weight)?)
    }
}

/// Samples of pairs with each reduction, in several shapes.
pub(in crate::ops) fn pair_samples(
    own: (f64, f64),
    target: (f64, f64),
    change: impl Fn(Sample) -> Result<Sample>,
) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduction in REDUCTIONS {
        for shape in [&[2, 3][..], &[], &[5], &[0]] {
            if shape == [0] && reduction == Reduction::Mean {
                continue; // 0 / 0
            }
            let (x, t) = (spread(shape, own.0, own.1)?, spread(shape, target.0, target.1)?);
            all.push(change(sample![x, t; reduction = reduction])?);
        }
    }
    Ok(all)
}

fn l1_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-1.0, 1.0), (-0.4, 1.9), Ok)?;
    let (x, t) = (spread([2, 3], -1.0, 1.0)?, spread([2, 3], -0.4, 1.9)?);
    all.push(sample![x, t; weight = spread([2, 3], 0.2, 2.0)?]);
    Ok(all)
}

fn scaled_samples(name: &'static str) -> Result<Vec<Sample>> {
    let mut all = pair_samples((-3.0, 1.0), (-0.4, 3.9), Ok)?;
    all.extend(pair_samples((-3.0, 1.0), (-0.4, 3.9), |sample| Ok(sample.with(name, 1.7)))?);
    Ok(all)
}

fn huber_samples() -> Result<Vec<Sample>> {
    let mut all = scaled_samples("delta")?;
    let (x, t) = (spread([2, 3], -3.0, 1.0)?, spread([2, 3], -0.4, 1.9)?);
    all.push(sample![x, t; weight = spread([2, 3], 0.2, 2.0)?]);
    Ok(all)
}

fn scaled_errors(name: &'static str) -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    all.push(error!["a negative size", "-1"; sample![normal([3], 1)?, normal([3], 2)?].with(name, -1.0)]);
    Ok(all)
}

fn entropy_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((0.1, 0.95), (0.1, 0.9), Ok)?;
    let (x, t) = (spread([2, 3], 0.1, 0.9)?, spread([2, 3], 0.0, 0.8)?);
    all.push(sample![x, t; weight = spread([3], 0.2, 2.0)?]);
    Ok(all)
}

fn weight_errors(x: f64, name: &'static str) -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    let x = Tensor::full_with([2, 3], x, crate::DType::F64)?;
    all.push(error!["other weights", "[2]", "[2, 3]"; sample![&x, &x].with(name, normal([2], 3)?)]);
    Ok(all)
}

fn entropy_errors() -> Result<Vec<ErrorCase>> {
    let mut all = weight_errors(0.5, "weight")?;
    let t = spread([2], 0.0, 1.0)?;
    all.push(error!["no probability", "1.5"; sample![Tensor::new([0.5, 1.5])?, &t]]);
    all.push(error!["not a number", "NaN"; sample![Tensor::new([0.5, f64::NAN])?, &t]]);
    Ok(all)
}

fn logits_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-3.0, 3.3), (0.1, 0.9), Ok)?;
    for reduction in REDUCTIONS {
        let sample = sample![spread([2, 3], -3.0, 3.3)?, spread([2, 3], 0.0, 0.8)?; reduction = reduction];
        all.push(sample.with("weight", spread([2, 1], 0.2, 2.0)?).with("pos_weight", spread([3], 0.2, 2.0)?));
    }
    Ok(all)
}

fn logits_errors() -> Result<Vec<ErrorCase>> {
    let mut all = weight_errors(0.5, "weight")?;
    all.extend(weight_errors(0.5, "pos_weight")?);
    Ok(all)
}

fn mse_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![spread([4], -1.0, 1.0)?, spread([4], -0.4, 1.9)?]];
    for reduction in REDUCTIONS {
        for shape in [&[2, 3][..], &[], &[2, 1, 3]] {
            all.push(sample![spread(shape, -1.0, 1.0)?, spread(shape, -0.4, 1.9)?; reduction = reduction]);
        }
        let sample = sample![spread([2, 3], -1.0, 1.0)?, spread([2, 3], -0.4, 1.9)?; reduction = reduction];
        all.push(sample.with("weight", spread([2, 3], 0.2, 2.0)?));
    }
    all.push(sample![normal([0], 1)?, normal([0], 2)?; reduction = Reduction::Sum]);
    Ok(all)
}
