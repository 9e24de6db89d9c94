//! A linear layer fused with the cross entropy of its output.

use crate::autograd::{BackwardContext, Grads, is_grad_enabled, no_grad};
use crate::error::bail;
use crate::ops::loss::cross_entropy::{
    Count, CrossEntropyOptions, LossCall, RowLosses, from_reduction, fused_grad, plain_grad,
};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Reduction, Result, Tensor};
use smallvec::{SmallVec, smallvec};

options! {
    /// The options of [`Tensor::linear_cross_entropy_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::LinearCrossEntropyOptions};
    /// let (x, weight, bias) = (Tensor::zeros([2, 4])?, Tensor::zeros([3, 4])?, tensor!([0.0, 100.0, 0.0])?);
    /// let options = LinearCrossEntropyOptions::new().linear_bias(&bias);
    /// assert_eq!(x.linear_cross_entropy_with(&weight, &tensor!([1, 1])?, options)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LinearCrossEntropyOptions<'a> {
        /// The bias of the linear layer, one number per class.
        linear_bias: Option<&'a Tensor> = None,
        /// A weight for each class.
        weight: Option<&'a Tensor> = None,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
        /// A target class that is ignored.
        ignore_index: i64 = -100,
        /// The share of each target that is spread uniformly over all classes.
        label_smoothing: f64 = 0.0,
    }
}

from_reduction!(LinearCrossEntropyOptions<'_>);

const OP: &str = "linear_cross_entropy";

/// The maximum number of logits in memory at a time.
const fn most_logits(device: Device) -> usize {
    match device {
        Device::Cpu => 1 << 21,
        _ => 1 << 26,
    }
}

/// The rows of the input, the linear layer, and the class targets.
struct Layer {
    /// `[rows, inputs]`
    x: Tensor,
    /// `[classes, inputs]`
    weight: Tensor,
    /// `[classes]`
    bias: Option<Tensor>,
    problem: LossCall,
}

impl Layer {
    /// The first row and the number of rows of each block, at least 128: matrix products with fewer rows are slow.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> {
        let (rows, classes) = (self.x.shape()[0], self.weight.shape()[0].max(1));
        let size = (most_logits(self.x.device()) / classes).max(128);
        (0..rows).step_by(size).map(move |start| (start, size.min(rows - start)))
    }

    fn logits(&self, start: usize, rows: usize) -> Result<Tensor> {
        self.x.narrow(0, start, rows)?.linear(&self.weight, self.bias.as_ref())
    }

    /// The loss of each row.
    fn losses(&self) -> Result<RowLosses> {
        let mut all: [Vec<Tensor>; 3] = Default::default();
        for (start, rows) in self.blocks() {
            let part = RowLosses::new(&self.logits(start, rows)?, &self.problem.part(start, rows)?)?;
            all[0].push(part.losses);
            all[1].push(part.stats);
            all[2].extend(part.counted);
        }
        if all[0].is_empty() {
            return RowLosses::new(&self.logits(0, 0)?, &self.problem);
        }
        let [losses, stats, counted] = all;
        let counted = if counted.is_empty() { None } else { Some(Tensor::cat(&counted, 0)?) };
        Ok(RowLosses { losses: Tensor::cat(&losses, 0)?, stats: Tensor::cat(&stats, 0)?, counted })
    }

    /// The gradients of the inputs, the weight and the bias, block by block.
    fn grads(&self, ctx: &BackwardContext, stats: &Tensor, g: &Tensor) -> Result<Grads> {
        let (mut to_x, mut to_weight, mut to_bias) = (Vec::new(), None::<Tensor>, None::<Tensor>);
        let wide = self.x.dtype().compute_dtype();
        let add = |sum: Option<Tensor>, part: Tensor| -> Result<Option<Tensor>> {
            let part = part.to_dtype(wide)?;
            let sum = if let Some(sum) = sum { sum.add(&part)? } else { part };
            // Materialized now: a deferred sum would keep its operands alive.
            sum.compute()?;
            Ok(Some(sum))
        };
        for (start, rows) in self.blocks() {
            let (problem, g) = (self.problem.part(start, rows)?, g.narrow(0, start, rows)?);
            let slope = fused_grad(self.logits(start, rows)?, &stats.narrow(0, start, rows)?, &problem, &g)?;
            if ctx.needs(0) {
                to_x.push(slope.matmul(&self.weight)?);
            }
            if ctx.needs(1) {
                to_weight = add(to_weight, slope.t()?.matmul(&self.x.narrow(0, start, rows)?)?)?;
            }
            if self.bias.is_some() && ctx.needs(2) {
                to_bias = add(to_bias, slope.to_dtype(wide)?.sum(0)?)?;
            }
        }
        if self.x.shape()[0] == 0 {
            let zeros = |t: &Tensor| t.zeros_like().map(Some);
            return Ok(smallvec![zeros(&self.x)?, zeros(&self.weight)?, self.bias.as_ref().map_or(Ok(None), zeros)?]);
        }
        let to_x = if ctx.needs(0) { Some(Tensor::cat(&to_x, 0)?) } else { None };
        Ok(smallvec![to_x, to_weight, to_bias])
    }

    /// The gradients of all rows at once, in differentiable tensor operations.
    fn plain_grads(&self, ctx: &BackwardContext, stats: &Tensor, g: &Tensor) -> Result<Grads> {
        let logits = self.x.linear(&self.weight, self.bias.as_ref())?;
        let slope = plain_grad(&logits, stats, &self.problem, g)?.to_dtype(self.x.dtype())?;
        Ok(smallvec![
            ctx.want(0, || slope.matmul(&self.weight))?,
            ctx.want(1, || slope.t()?.matmul(&self.x))?,
            if self.bias.is_some() { ctx.want(2, || slope.sum(0))? } else { None },
        ])
    }
}

/// # Linear layer with cross entropy
#[ops]
impl Tensor {
    /// [`linear`](Self::linear) followed by [`cross_entropy`](Self::cross_entropy), without storing all logits: they
    /// are computed for some rows at a time, and again in the backward pass. The input has shape `[.., inputs]`, the
    /// weight `[classes, inputs]`. The target holds class indices of shape `[..]`, or class probabilities of shape
    /// `[.., classes]`, for which all logits are stored.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (x, weight, target) = (Tensor::randn([5, 8])?, Tensor::randn([10, 8])?, tensor!([1, 2, 3, 4, 5])?);
    /// let loss = x.linear_cross_entropy(&weight, &target)?;
    /// assert!(loss.allclose_with(&x.linear(&weight, None)?.cross_entropy(&target)?, (1e-5, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a class is out of range, the smoothing is not in [0, 1], or the inputs are not floats.
    #[op(samples = linear_samples, errors = linear_errors, rounds)]
    pub fn linear_cross_entropy<'a>(
        &self,
        linear_weight: &Tensor,
        target: &Tensor,
        options: impl Into<LinearCrossEntropyOptions<'a>>,
    ) -> Result<Tensor> {
        let LinearCrossEntropyOptions { linear_bias: bias, weight, reduction, ignore_index, label_smoothing } = options;
        float_only(OP, self)?;
        float_only(OP, linear_weight)?;
        let ([rows @ .., inputs], [classes, fitting]) = (self.shape(), linear_weight.shape()) else {
            let (x, w) = (self.shape(), linear_weight.shape());
            bail!(Shape, OP, "input must be a vector or more and linear_weight a matrix, got shapes {x:?} and {w:?}");
        };
        if inputs != fitting {
            let (x, w) = (self.shape(), linear_weight.shape());
            bail!(Shape, OP, "linear_weight must have shape [classes, {inputs}] for input of shape {x:?}, got {w:?}");
        }
        if let Some(bias) = bias.filter(|bias| bias.shape() != [*classes]) {
            bail!(Shape, OP, "linear_bias must have shape [{classes}], got {:?}", bias.shape());
        }
        let mut expected = rows.to_vec();
        if target.dtype().is_float() {
            expected.push(*classes);
        }
        if target.shape() != expected {
            let (x, t) = (self.shape(), target.shape());
            bail!(Shape, OP, "target must have shape {expected:?} for input of shape {x:?}, got {t:?}");
        }
        let count = rows.iter().product::<usize>();
        let options = CrossEntropyOptions { weight, ignore_index, reduction, label_smoothing };
        let x = self.reshape([count, *inputs])?;
        let given = [Some(self), Some(linear_weight), Some(target), bias, weight];
        if target.dtype().is_float() || given.into_iter().flatten().any(Tensor::is_batched) {
            // Examples with their own weights are one batched product, which has no form in blocks of rows.
            let flat: Vec<usize> = std::iter::once(count).chain(expected[rows.len()..].iter().copied()).collect();
            let losses = x.linear(linear_weight, bias)?.cross_entropy_with(&target.reshape(flat)?, options)?;
            return if reduction == Reduction::None { losses.reshape(rows) } else { Ok(losses) };
        }
        let mut dtype = x.dtype();
        for t in [Some(linear_weight), bias].into_iter().flatten() {
            dtype = crate::ops::elementwise::call::common_dtype(OP, dtype, t.dtype())?;
        }
        let bias = bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
        let (x, w) = (x.to_dtype(dtype)?, linear_weight.to_dtype(dtype)?);
        // A placeholder with the shape of the logits, which are not computed here.
        let shape = Tensor::zeros_with((), (dtype, x.device()))?.expand([count, *classes])?;
        let problem = LossCall::new(OP, &shape, &target.reshape([count])?, &options)?;
        let (losses, counted) = row_losses(&x, &w, bias.as_ref(), &problem)?;
        match reduction {
            Reduction::None => losses.reshape(rows),
            reduction => reduction.apply(&losses, counted.map_or(problem.count, Count::Tensor).operand()),
        }
    }
}

/// The loss of each row, with its derivative, and on a GPU the total weight of the rows.
#[track_caller]
fn row_losses(x: &Tensor, w: &Tensor, b: Option<&Tensor>, problem: &LossCall) -> Result<(Tensor, Option<Tensor>)> {
    let outside = |t: &Tensor| t.detach();
    let layer = Layer { x: outside(x), weight: outside(w), bias: b.map(outside), problem: problem.clone() };
    let RowLosses { losses, stats, counted } = no_grad(|| layer.losses())?;
    let counted = counted.map(|counted| counted.sum(..)).transpose()?;
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), Some(w), b].into_iter().flatten().collect();
    let losses = losses.record(OP, &inputs, |save| {
        let stats = save.save(&stats);
        let layer =
            Layer { x: save.save(x), weight: save.save(w), bias: b.map(|b| save.save(b)), problem: layer.problem };
        move |ctx: &BackwardContext, g: &Tensor| {
            let g = g.unsqueeze(1)?;
            let mut grads = if is_grad_enabled() || g.is_batched() {
                layer.plain_grads(ctx, &stats, &g)?
            } else {
                layer.grads(ctx, &stats, &g)?
            };
            grads.truncate(2 + usize::from(layer.bias.is_some()));
            Ok(grads)
        }
    })?;
    Ok((losses, counted))
}

fn linear_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduction in crate::ops::loss::cross_entropy::REDUCTIONS {
        let sample = |x: &[usize], target: Tensor| -> Result<Sample> {
            Ok(sample![normal(x, 1)?, normal([4, 3], 2)?, target; reduction = reduction])
        };
        all.push(sample(&[5, 3], ints(&[0, 3, 1, 2, 1], [5])?)?);
        let full = sample(&[2, 2, 3], ints(&[0, 3, 1, 2], [2, 2])?)?.with("linear_bias", normal([4], 3)?);
        all.push(full.with("weight", ints(&[2, 1, 3, 5], [4])?).with("ignore_index", 1).with("label_smoothing", 0.2));
        all.push(sample(&[3], ints(&[2], [])?)?);
        all.push(sample(&[2, 3], spread([2, 4], 0.1, 0.6)?)?.with("linear_bias", normal([4], 3)?));
    }
    let empty = sample![normal([0, 3], 1)?, normal([4, 3], 2)?, ints(&[], [0])?; reduction = Reduction::Sum];
    all.push(empty.zero_derivative());
    Ok(all)
}

fn linear_errors() -> Result<Vec<ErrorCase>> {
    let (x, w, t) = (normal([2, 3], 1)?, normal([4, 3], 2)?, ints(&[0, 1], [2])?);
    Ok(vec![
        error!["another size", "[2, 3]", "[4, 2]"; sample![&x, normal([4, 2], 2)?, &t]],
        error!["another bias", "[3]", "[4]"; sample![&x, &w, &t; linear_bias = normal([3], 2)?]],
        error!["another target", "[3]", "[2, 3]"; sample![&x, &w, ints(&[0, 1, 2], [3])?]],
        error!["other probabilities", "[2, 3]", "[2, 4]"; sample![&x, &w, normal([2, 3], 2)?]],
        error!["a class that is not there", "class 4", "4 classes"; sample![&x, &w, ints(&[0, 4], [2])?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 3], DType::I64)?, &w, &t]],
        error!["other weights", "[3]", "[4]"; sample![&x, &w, &t; weight = ints(&[1, 2, 3], [3])?]],
        error!["smoothing", "1.5"; sample![&x, &w, &t; label_smoothing = 1.5]],
        error!["no dimension", "[]"; sample![normal([], 1)?, &w, &t]],
    ])
}
