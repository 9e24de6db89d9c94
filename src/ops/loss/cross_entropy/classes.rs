//! Cross entropy with class targets: the arguments of the kernel, the loss of rows with its derivative, and the batching
//! rule for `vmap`.

use super::{CrossEntropyOptions, Reduction, loss_dtype};
use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::spec::Targets;
use crate::error::bail;
use crate::ops::reduce::sums::float_only;
use crate::tensor::Operand;
use crate::tensor::batch::Level;
use crate::{DType, Device, Result, Shape, Tensor, backend, keepdim};
use smallvec::smallvec;

/// The class dimension.
pub(super) fn class_dim(x: &Tensor) -> isize {
    if x.rank() == 1 { 0 } else { 1 }
}

fn check_options(op: &'static str, x: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<usize> {
    float_only(op, x)?;
    let Some(&classes) = x.shape().get(class_dim(x) as usize) else {
        bail!(Shape, op, "input must have a class dimension, got shape {:?}", x.shape());
    };
    if !(0.0..=1.0).contains(&options.label_smoothing) {
        bail!(Value, op, "label_smoothing must be in [0, 1], got {}", options.label_smoothing);
    }
    if let Some(weight) = options.weight {
        if weight.shape() != [classes] {
            bail!(Shape, op, "weight must have shape [{classes}], got {:?}", weight.shape());
        }
        if is_grad_enabled() && weight.requires_grad() {
            bail!(Graph, op, "weight must not require a gradient: call detach() first");
        }
    }
    Ok(classes)
}

/// Checks input, target and options, and returns the number of classes.
fn check_classes(op: &'static str, x: &Tensor, target: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<usize> {
    let classes = check_options(op, x, options)?;
    if !target.dtype().is_int() {
        bail!(DType, op, "target must be integers (classes) or floating point (probabilities), got {}", target.dtype());
    }
    let mut expected = x.layout().shape().clone();
    expected.remove(class_dim(x) as usize);
    if *target.shape() != *expected {
        let (x, t) = (x.shape(), target.shape());
        bail!(Shape, op, "target must have shape {expected:?} for input of shape {x:?}, got {t:?}");
    }
    Ok(classes)
}

/// The loss of each example of a `vmap`. `losses` computes the unreduced losses of the rows of all examples; each example is
/// reduced separately.
#[track_caller]
pub(super) fn of_examples(
    op: &'static str,
    level: Level,
    x: &Tensor,
    target: &Tensor,
    options: &CrossEntropyOptions<'_>,
    losses: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    check_classes(op, x, target, options)?;
    if let Some(weight) = options.weight {
        // All examples share the class weights.
        weight.check_unbatched()?;
    }
    // In the compute dtype: losses are not rounded before the mean.
    let x = &x.to_dtype(x.dtype().compute_dtype())?;
    // The examples are merged into the first dimension, or become it.
    let rows = |all: Tensor| if x.rank() > 1 { all.flatten(0, 1) } else { Ok(all) };
    let losses = losses(&rows(x.unbatch(level)?)?, &rows(target.unbatch(level)?)?)?;
    let losses = if x.rank() > 1 { losses.unflatten(0, [level.size, x.shape()[0]])? } else { losses };
    let losses = losses.batch(level)?;
    if options.reduction != Reduction::Mean {
        return options.reduction.of(&losses);
    }
    let ignored = target.eq(options.ignore_index)?;
    let mut count = ignored.logical_not()?.to_dtype(losses.dtype())?;
    if let Some(weight) = options.weight {
        let index = target.masked_fill(&ignored, 0)?.flatten(0, -1)?;
        let own = weight.detach().to_dtype(losses.dtype())?.index_select(0, &index)?;
        count = count.mul(&own.reshape(target.shape())?)?;
    }
    options.reduction.apply(&losses, &count.sum(..)?)
}

/// Rows with class targets.
#[derive(Clone)]
pub(in crate::ops) struct LossCall {
    /// The classes, as a contiguous vector of `i64`.
    pub(super) target: Tensor,
    /// The class weights, as a contiguous vector of `f64`.
    pub(super) weight: Option<Tensor>,
    ignore: i64,
    smoothing: f64,
    /// The number of classes.
    pub(super) classes: usize,
    /// The divisor of the mean: the total weight of the rows that are not ignored. On a GPU it is computed with the losses.
    pub count: Count,
}

/// A number on the host, or a tensor on a GPU.
#[derive(Clone)]
pub(in crate::ops) enum Count {
    Number(f64),
    Tensor(Tensor),
}

impl Count {
    pub fn operand(&self) -> Operand<'_> {
        match self {
            Count::Number(number) => (*number).into(),
            Count::Tensor(tensor) => tensor.into(),
        }
    }
}

impl LossCall {
    pub fn new(op: &'static str, x: &Tensor, target: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<LossCall> {
        let classes = check_classes(op, x, target, options)?;
        let target = target.private()?.detach().to_dtype(DType::I64)?.contiguous()?.reshape(target.numel())?;
        let weight = options.weight.map(|w| w.private()?.detach().to_dtype(DType::F64)?.contiguous()).transpose()?;
        let (ignore, smoothing) = (options.ignore_index, options.label_smoothing);
        let mut problem = LossCall { target, weight, ignore, smoothing, classes, count: Count::Number(0.0) };
        backend::common_device(op, x.device(), [problem.target.device()])?;
        if x.device() != Device::Cpu {
            return Ok(problem);
        }
        let weights = problem.weight.as_ref().map(Tensor::as_slice::<f64>).transpose()?.flatten();
        let mut count = 0.0;
        for (row, &class) in problem.target.as_slice::<i64>()?.unwrap_or_default().iter().enumerate() {
            if class == ignore {
                continue;
            }
            match usize::try_from(class) {
                Ok(class) if class < classes => count += weights.map_or(1.0, |weights| weights[class]),
                _ => bail!(
                    Index,
                    op,
                    "class {class} at position {row} of the target is out of range for {classes} classes"
                ),
            }
        }
        problem.count = Count::Number(count);
        Ok(problem)
    }

    pub fn rows(&self) -> usize {
        self.target.numel()
    }

    /// The part for a range of rows.
    pub fn part(&self, start: usize, rows: usize) -> Result<LossCall> {
        Ok(LossCall { target: self.target.narrow(0, start, rows)?, ..self.clone() })
    }

    /// The arguments of the kernel.
    fn targets(&self) -> Result<Targets<'_>> {
        let (target, weight) = (self.target.as_view()?, self.weight.as_ref().map(Tensor::as_view).transpose()?);
        Ok(Targets { target, ignore: self.ignore, weight, smoothing: self.smoothing })
    }
}

/// The results of the kernel for each row.
pub(in crate::ops) struct RowLosses {
    pub losses: Tensor,
    /// Residuals for the derivative.
    pub stats: Tensor,
    /// On a GPU, the weight of each row; 0 for ignored rows.
    pub counted: Option<Tensor>,
}

impl RowLosses {
    /// The losses of logits of shape `[rows, classes]`, outside the graph.
    #[track_caller]
    pub fn new(x: &Tensor, problem: &LossCall) -> Result<RowLosses> {
        const OP: &str = "cross_entropy";
        let (rows, compute) = (problem.rows(), x.dtype().compute_dtype());
        let mut stats = Tensor::empty(OP, [rows, 2].into(), compute, x.device())?;
        let mut counted =
            (x.device() != Device::Cpu).then(|| Tensor::empty(OP, rows.into(), compute, x.device())).transpose()?;
        let losses = Tensor::build(OP, rows.into(), compute, x.device(), |losses| {
            let stats = &mut stats.as_view_mut(OP)?;
            let mut counted = counted.as_mut().map(|counted| counted.as_view_mut(OP)).transpose()?;
            backend::cross_entropy(OP, x.as_view()?, problem.targets()?, stats, losses, counted.as_mut())
        })?;
        Ok(RowLosses { losses, stats, counted })
    }
}

/// The loss of logits of shape `[rows, classes]`, with its derivative.
#[track_caller]
pub(super) fn fused(x: &Tensor, mut problem: LossCall, reduction: Reduction) -> Result<Tensor> {
    let (rows, compute) = (problem.rows(), x.dtype().compute_dtype());
    let RowLosses { losses, stats, counted } = RowLosses::new(x, &problem)?;
    if let Some(counted) = counted.filter(|_| reduction == Reduction::Mean) {
        problem.count = Count::Tensor(counted.sum(..)?);
    }
    let loss = reduction.apply(&losses, problem.count.operand())?;
    loss.record("cross_entropy", &[x], |save| {
        let (x, stats) = (save.save_donated(x), save.save(&stats));
        save.save(&problem.target);
        move |ctx: &BackwardContext, g: &Tensor| {
            let x = x.take(ctx)?;
            let g = g.to_dtype(compute)?;
            let g = match reduction {
                Reduction::None => g.unsqueeze(1)?,
                Reduction::Sum => g.expand([rows, 1])?,
                Reduction::Mean => g.div(problem.count.operand())?.expand([rows, 1])?,
            };
            let grad = if is_grad_enabled() || g.is_batched() {
                plain_grad(&x, &stats, &problem, &g)?
            } else {
                fused_grad(x, &stats, &problem, &g)?
            };
            Ok(smallvec![Some(grad)])
        }
    })
}

/// The gradient by the kernel, written over the logits if they are not shared: they are often the largest tensor.
pub(in crate::ops) fn fused_grad(mut x: Tensor, stats: &Tensor, problem: &LossCall, g: &Tensor) -> Result<Tensor> {
    const OP: &str = "cross_entropy";
    // The CPU kernel computes this sum itself.
    let smooth = problem.smoothing != 0.0 && x.device() != Device::Cpu;
    let total = problem.weight.as_ref().filter(|_| smooth).map(|weight| weight.sum(..)).transpose()?;
    let total = total.as_ref().map(Tensor::as_view).transpose()?;
    let views = [stats.as_view()?, g.as_view()?];
    if x.is_sole() && x.is_contiguous() {
        backend::cross_entropy_backward(OP, problem.targets()?, None, views, total, &mut x.as_view_mut(OP)?)?;
        return Ok(x.detach());
    }
    Tensor::build(OP, x.layout().shape().clone(), x.dtype(), x.device(), |out| {
        backend::cross_entropy_backward(OP, problem.targets()?, Some(x.as_view()?), views, total, out)
    })
}

/// The gradient in differentiable tensor operations: `g · (total · softmax(x) - target)`, where `total` is the sum of the
/// target of a row.
pub(in crate::ops) fn plain_grad(x: &Tensor, stats: &Tensor, problem: &LossCall, g: &Tensor) -> Result<Tensor> {
    let (rows, classes, dtype) = (problem.rows(), problem.classes, stats.dtype());
    let numbers = Tensor::arange(0, classes)?.to_device(x.device())?;
    let own = problem.target.reshape([rows, 1])?.eq(&numbers)?.to_dtype(dtype)?;
    let target = own.mul(1.0 - problem.smoothing)?.add(problem.smoothing / classes as f64)?;
    let target = match &problem.weight {
        Some(weight) => target.mul(&weight.to_dtype(dtype)?)?,
        None => target,
    };
    let totals = target.sum(keepdim(1))?;
    let powers = x.to_dtype(dtype)?.sub(stats.narrow(1, 0, 1)?)?.exp()?;
    let softmax = powers.div(powers.sum(keepdim(1))?)?;
    let grad = softmax.mul(&totals)?.sub(&target)?.mul(g)?;
    grad.masked_fill(&problem.target.eq(problem.ignore)?.unsqueeze(1)?, 0.0)
}

/// Cross entropy with probabilities: `-Σ weight · target · log_softmax(x)` over the classes.
#[track_caller]
pub(super) fn against_probabilities(x: &Tensor, target: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<Tensor> {
    let classes = check_options("cross_entropy", x, options)?;
    if x.shape() != target.shape() {
        let (x, t) = (x.shape(), target.shape());
        bail!(Shape, "cross_entropy", "target must have shape {x:?} as probabilities, got {t:?}");
    }
    let (dim, dtype) = (class_dim(x), loss_dtype("cross_entropy", &[x, target])?);
    let (x, target) = (x.to_dtype(dtype)?, &target.to_dtype(dtype)?);
    let target = match options.label_smoothing {
        0.0 => target.clone(),
        smoothing => target.mul(1.0 - smoothing)?.add(smoothing / classes as f64)?,
    };
    let target = match options.weight {
        None => target,
        Some(weight) => {
            let mut shape = Shape::from(vec![1; x.rank()]);
            shape = shape.with(dim as usize, classes);
            target.mul(&weight.to_dtype(target.dtype())?.reshape(&shape)?)?
        }
    };
    let losses = x.log_softmax(dim)?.mul(&target)?.sum(dim)?.neg()?;
    options.reduction.of(&losses)
}
