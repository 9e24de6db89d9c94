//! Classification losses with a margin or a soft margin, and the focal loss.

use crate::backend::spec::Real;
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise};
use crate::ops::loss::cross_entropy::{REDUCTIONS, from_reduction, loss_dtype, pair_errors, weighted};
use crate::ops::loss::elementwise::{LOGISTIC, losses_of, pair_samples};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Reduction, Result, Tensor};

options! {
    /// The options of [`Tensor::multi_margin_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::MultiMarginLossOptions};
    /// let options = MultiMarginLossOptions::new().p(2).margin(2.0);
    /// let loss = tensor!([[0.0, 0.0]])?.multi_margin_loss_with(&tensor!([1])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MultiMarginLossOptions<'a> {
        /// The power: 1 or 2.
        p: i64 = 1,
        /// The minimum difference between the scores of the target class and the other classes.
        margin: f64 = 1.0,
        /// A weight for each class.
        weight: Option<&'a Tensor> = None,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of losses that have only a reduction. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Reduction, tensor, options::ReductionOptions};
    /// let options = ReductionOptions::new().reduction(Reduction::Sum);
    /// let loss = tensor!([0.0, 0.0])?.soft_margin_loss_with(&tensor!([1, -1])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, 2.0 * std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ReductionOptions {
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::multilabel_soft_margin_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::MultilabelSoftMarginLossOptions};
    /// let weight = tensor!([1.0, 3.0])?;
    /// let options = MultilabelSoftMarginLossOptions::new().weight(&weight);
    /// let loss = tensor!([[0.0, 0.0]])?.multilabel_soft_margin_loss_with(&tensor!([[1.0, 0.0]])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, 2.0 * std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MultilabelSoftMarginLossOptions<'a> {
        /// A weight for each class.
        weight: Option<&'a Tensor> = None,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::sigmoid_focal_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Reduction, tensor, options::SigmoidFocalLossOptions};
    /// let options = SigmoidFocalLossOptions::new().alpha(-1.0).gamma(1.0).reduction(Reduction::Mean);
    /// let loss = tensor!([0.0])?.sigmoid_focal_loss_with(&tensor!([1.0])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2 / 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SigmoidFocalLossOptions {
        /// The weight of positive examples; negative examples have weight `1 - alpha`. A negative `alpha` disables weights.
        alpha: f64 = 0.25,
        /// The focusing exponent: larger values down-weight easy examples more.
        gamma: f64 = 2.0,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::None,
    }
}

from_reduction!(
    MultiMarginLossOptions<'_>,
    ReductionOptions,
    MultilabelSoftMarginLossOptions<'_>,
    SigmoidFocalLossOptions
);

static SOFT: Elementwise = Elementwise::new("soft_margin_loss", Domain::Float, 2, 0, |x, _| {
    let z = -(x[0] * x[1]);
    z.relu() + (-z.abs()).exp().log1p()
})
.with_gradient(|g, x, _, _| {
    let slope = -(g * (-(x[0] * x[1])).sigmoid());
    vec![Some(slope * x[1]), Some(slope * x[0])]
});

/// Checks the shape of the scores, and returns the number of classes.
fn rows(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.shape() {
        [classes] | [_, classes] if *classes > 0 => Ok(*classes),
        shape => bail!(Shape, op, "input must have shape [classes] or [batch, classes] with a class, got {shape:?}"),
    }
}

/// Checks the target classes, and returns them as `i64`.
fn classes(op: &'static str, target: &Tensor, wanted: &[usize]) -> Result<Tensor> {
    if target.shape() != wanted {
        bail!(Shape, op, "target must have shape {wanted:?}, got {:?}", target.shape());
    }
    if !target.dtype().is_int() {
        bail!(DType, op, "target must be integers, got {}", target.dtype());
    }
    target.private()?.detach().to_dtype(DType::I64)
}

/// # Multi-class margin losses
#[ops]
impl Tensor {
    /// The multi-class margin loss of scores of shape `[classes]` or `[batch, classes]`: the sum of `max(0, margin -
    /// x[target] + x[other])^p` over all other classes, divided by the number of classes.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([[0.25, 0.5]])?.multi_margin_loss(&tensor!([1])?)?;
    /// assert_eq!(loss.item::<f32>()?, 0.375);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a class is out of range, or `p` is neither 1 nor 2.
    #[op(samples = multi_samples, errors = multi_errors, rounds)]
    pub fn multi_margin_loss<'a>(
        &self,
        target: &Tensor,
        options: impl Into<MultiMarginLossOptions<'a>>,
    ) -> Result<Tensor> {
        const OP: &str = "multi_margin_loss";
        let MultiMarginLossOptions { p, margin, weight, reduction } = options;
        let count = rows(OP, self)?;
        if !matches!(p, 1 | 2) {
            bail!(Value, OP, "p must be 1 or 2, got {p}");
        }
        let target = classes(OP, target, &self.shape()[..self.rank() - 1])?;
        let x = self.to_dtype(loss_dtype(OP, &[self])?)?;
        let right = target.unsqueeze(-1)?;
        let above = x.sub(&x.gather(-1, &right)?)?.add(margin)?;
        let positive = above.detach().gt(0.0)?;
        let above = positive.where_(&above, 0.0)?;
        // Masked after the square as well: where it is not taken, its derivative is 0 times the cotangent.
        let above = if p == 2 { positive.where_(above.square()?, 0.0)? } else { above };
        let own = Tensor::arange_with(0, count, self.device())?.eq(&right)?;
        let mut losses = above.masked_fill(&own, 0.0)?.sum(-1)?.div(count as f64)?;
        if let Some(weight) = weight {
            if weight.shape() != [count] {
                bail!(Shape, OP, "weight must have shape [{count}], got {:?}", weight.shape());
            }
            losses = losses
                .mul(&weight.to_dtype(x.dtype())?.gather(0, &target.flatten(0, -1)?)?.reshape(target.shape())?)?;
        }
        reduction.of(&losses)
    }

    /// The multi-label margin loss of scores of shape `[classes]` or `[batch, classes]`: the sum of `max(0, 1 -
    /// x[right] + x[wrong])` over all pairs, divided by the number of classes. The right classes are those in `target`
    /// before its first -1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.5, 0.0, 0.25])?.multilabel_margin_loss(&tensor!([2, 0, -1])?)?;
    /// assert_eq!(loss.item::<f32>()?, (0.75 + 0.5) / 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or a class is out of range.
    #[op(samples = multilabel_samples, errors = multilabel_errors, rounds)]
    pub fn multilabel_margin_loss(&self, target: &Tensor, options: impl Into<ReductionOptions>) -> Result<Tensor> {
        const OP: &str = "multilabel_margin_loss";
        let count = rows(OP, self)?;
        let target = classes(OP, target, self.shape())?;
        let x = self.to_dtype(loss_dtype(OP, &[self])?)?;
        // Targets before the first -1 count.
        let counts = target.eq(-1)?.to_dtype(DType::I64)?.cumsum(-1)?.eq(0)?;
        let mut right = counts.where_(&target, 0)?;
        let is_right = Tensor::zeros_with(self.shape(), (DType::I64, self.device()))?;
        let is_right = is_right.scatter_add(-1, &right, &counts.to_dtype(DType::I64)?)?.gt(0)?;
        // On the CPU, where it takes no synchronization, cut to the largest number of right classes.
        let mut counts = counts;
        let rights = counts.sum(-1)?.all_examples()?;
        if self.device() == Device::Cpu && rights.numel() > 0 {
            let most = rights.max(..)?.item::<i64>()? as usize;
            (right, counts) = (right.narrow(-1, 0, most)?, counts.narrow(-1, 0, most)?);
        }
        // Right classes in rows, wrong ones in columns.
        let pairs = x.unsqueeze(-2)?.sub(&x.gather(-1, &right)?.unsqueeze(-1)?)?.add(1.0)?.clamp_min(0.0)?;
        let useless = counts.logical_not()?.unsqueeze(-1)?.logical_or(&is_right.unsqueeze(-2)?)?;
        options.reduction.of(&pairs.masked_fill(&useless, 0.0)?.sum([-2, -1])?.div(count as f64)?)
    }

    /// The mean of [`binary_cross_entropy_with_logits`](Self::binary_cross_entropy_with_logits) over the last
    /// dimension, the classes.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([[0.0, 0.0]])?.multilabel_soft_margin_loss(&tensor!([[1.0, 0.0]])?)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or there is no dimension.
    #[op(samples = soft_label_samples, errors = soft_label_errors, rounds)]
    pub fn multilabel_soft_margin_loss<'a>(
        &self,
        target: &Tensor,
        options: impl Into<MultilabelSoftMarginLossOptions<'a>>,
    ) -> Result<Tensor> {
        const OP: &str = "multilabel_soft_margin_loss";
        let MultilabelSoftMarginLossOptions { weight, reduction } = options;
        if self.rank() == 0 {
            bail!(Shape, OP, "input must have a class dimension, got shape []");
        }
        let losses = losses_of(OP, &LOGISTIC, [self, target], &[])?;
        reduction.of(&weighted(OP, losses, weight)?.mean(-1)?)
    }

    /// `ln(1 + exp(-target · x))` for targets 1 and -1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.0])?.soft_margin_loss(&tensor!([1])?)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[op(samples = soft_samples, errors = pair_errors, rounds)]
    pub fn soft_margin_loss(&self, target: &Tensor, options: impl Into<ReductionOptions>) -> Result<Tensor> {
        options.reduction.of(&losses_of("soft_margin_loss", &SOFT, [self, target], &[])?)
    }

    /// The focal loss of torchvision: the binary cross entropy of logits times `(1 - p)^gamma`, where `p` is the
    /// probability of the target. It is not reduced by default.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.0])?.sigmoid_focal_loss(&tensor!([1.0])?)?;
    /// assert_eq!(loss.to_vec::<f32>()?, [std::f32::consts::LN_2 / 16.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or `alpha` is larger than 1.
    #[op(samples = focal_samples, errors = focal_errors, rounds)]
    pub fn sigmoid_focal_loss(&self, target: &Tensor, options: impl Into<SigmoidFocalLossOptions>) -> Result<Tensor> {
        const OP: &str = "sigmoid_focal_loss";
        let SigmoidFocalLossOptions { alpha, gamma, reduction } = options;
        if alpha.is_nan() || alpha > 1.0 {
            bail!(Value, OP, "alpha must be at most 1, got {alpha}");
        }
        let mut losses = losses_of(OP, &LOGISTIC, [self, target], &[])?;
        let (x, t) = (self.to_dtype(losses.dtype())?, target.to_dtype(losses.dtype())?);
        let p = x.sigmoid()?;
        // `1 - p·t - (1 - p)·(1 - t)`
        let wrong = p.add(&t)?.sub(&p.mul(&t)?.mul(2.0)?)?;
        losses = losses.mul(&wrong.pow(gamma)?)?;
        if alpha >= 0.0 {
            losses = losses.mul(&t.mul(2.0 * alpha - 1.0)?.add(1.0 - alpha)?)?;
        }
        reduction.of(&losses)
    }
}

fn multi_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![spread([3], -1.2, 0.8)?, ints(&[1], [])?]];
    for reduction in REDUCTIONS {
        let sample = sample![spread([2, 4], -1.2, 0.8)?, ints(&[1, 3], [2])?; reduction = reduction, margin = 0.9];
        all.push(sample.with("p", 2).with("weight", spread([4], 0.2, 2.0)?));
    }
    all.push(sample![spread([2, 3], -1.2, 0.8)?, ints(&[1, 2], [2])?]);
    Ok(all)
}

fn multi_errors() -> Result<Vec<ErrorCase>> {
    let (x, t) = (normal([2, 3], 1)?, ints(&[0, 1], [2])?);
    Ok(vec![
        error!["a class that is not there", "3"; sample![&x, ints(&[0, 3], [2])?]],
        error!["another batch", "[3]", "[2]"; sample![&x, ints(&[0, 1, 2], [3])?]],
        error!["a power", "p must be", "3"; sample![&x, &t; p = 3]],
        error!["other weights", "[2]", "[3]"; sample![&x, &t; weight = normal([2], 1)?]],
        error!["floats as classes", "f64"; sample![&x, normal([2], 1)?]],
        error!["no classes", "[]"; sample![normal([], 1)?, &t]],
    ])
}

fn multilabel_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![spread([4], -1.2, 0.8)?, ints(&[3, 1, -1, 0], [4])?]];
    for reduction in REDUCTIONS {
        let target = ints(&[2, 0, -1, 1, -1, 3, 1, 2], [2, 4])?;
        all.push(sample![spread([2, 4], -1.2, 0.8)?, &target; reduction = reduction]);
    }
    Ok(all)
}

fn multilabel_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another shape", "[2, 3]", "[2]"; sample![&x, ints(&[0, 1], [2])?]],
        error!["a class that is not there", "7"; sample![&x, ints(&[0, 7, -1, 0, 0, 0], [2, 3])?]],
    ])
}

fn soft_label_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![spread([2, 2, 3], -3.0, 3.3)?, spread([2, 2, 3], 0.0, 0.8)?]];
    for reduction in REDUCTIONS {
        let sample = sample![spread([2, 3], -3.0, 3.3)?, spread([2, 3], 0.0, 0.8)?; reduction = reduction];
        all.push(sample.with("weight", spread([3], 0.2, 2.0)?));
    }
    Ok(all)
}

fn soft_label_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    let x = spread([], 0.0, 1.0)?;
    all.push(error!["no classes", "[]"; sample![&x, &x]]);
    Ok(all)
}

fn soft_samples() -> Result<Vec<Sample>> {
    pair_samples((-3.0, 3.3), (-1.0, 1.3), Ok)
}

fn focal_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-3.0, 3.3), (0.1, 0.9), Ok)?;
    all.push(sample![spread([2, 3], -3.0, 3.0)?, spread([2, 3], 0.1, 0.9)?; alpha = -1.0, gamma = 1.5]);
    all.push(sample![spread([3], -3.0, 3.0)?, ints(&[0, 1, 1], [3])?; gamma = 3.0]);
    Ok(all)
}

fn focal_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    let x = spread([2], 0.0, 1.0)?;
    all.push(error!["a weight", "1.5"; sample![&x, &x; alpha = 1.5]]);
    Ok(all)
}
