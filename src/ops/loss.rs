//! Losses.

use super::binary::common_dtype;
use super::formula::{Num, Real};
use super::map::map;
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::cpu::elementwise::map::{Floats, Formula};
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::{self, Targets};
use crate::error::bail;
use crate::layout::Shape;
use crate::{DType, Device, Operand, Result, Tensor};
use smallvec::smallvec;

/// How a loss of many elements becomes one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Not at all.
    None,
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl Reduction {
    /// The losses as they are, their sum, or their sum over `count`; half precision is summed in f32.
    #[track_caller]
    fn apply<'a>(self, losses: &Tensor, count: impl Into<Operand<'a>>, dtype: DType) -> Result<Tensor> {
        match self {
            Reduction::None => losses.to_dtype(dtype),
            Reduction::Sum => losses.to_dtype(compute_dtype(losses.dtype()))?.sum()?.to_dtype(dtype),
            Reduction::Mean => losses.to_dtype(compute_dtype(losses.dtype()))?.sum()?.div(count)?.to_dtype(dtype),
        }
    }
}

/// The options of [`Tensor::cross_entropy`] and [`Tensor::nll_loss`].
///
/// ```
/// use cotangent::{CrossEntropy, Reduction};
/// let options = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
/// assert_eq!((options.ignore_index, options.reduction), (Some(-100), Reduction::Mean));
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// A weight for each class.
    pub weight: Option<Tensor>,
    /// A class that does not count.
    pub ignore_index: Option<i64>,
    /// How much of each target is spread evenly over all classes.
    pub label_smoothing: f64,
    /// How the losses become one number.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    fn default() -> CrossEntropy {
        CrossEntropy { weight: None, ignore_index: Some(-100), label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

impl Tensor {
    /// The squares of the differences to `target`, which has the same shape, or their mean or sum.
    ///
    /// ```
    /// # use cotangent::{Reduction, Tensor};
    /// let (x, y) = (Tensor::new([1.0, 5.0])?, Tensor::new([2.0, 2.0])?);
    /// assert_eq!(x.mse_loss(&y, Reduction::Mean)?.item::<f32>()?, 5.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ: `[n, 1]` is not broadcast against `[n]`.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if self.shape() != target.shape() {
            let (a, b) = (self.shape(), target.shape());
            bail!(
                Shape,
                "mse_loss",
                "an input of shape {a:?} is not compared with a target of shape {b:?}: reshape one of them"
            );
        }
        let dtype = common_dtype("mse_loss", self.dtype(), target.dtype())?.to_float();
        let (a, b) = (self.to_dtype(dtype)?, target.to_dtype(dtype)?);
        let squares = map("mse_loss", Floats(Squared), dtype, [&a, &b], a.layout().shape(), dtype)?;
        let count = squares.numel() as f64;
        let factor = if reduction == Reduction::Mean { 2.0 / count } else { 2.0 };
        reduction.apply(&squares, count, dtype)?.record("mse_loss", &[&a, &b], |save| {
            let (a, b) = (save.save(&a), save.save(&b));
            move |ctx: &BackwardContext, g: &Tensor| {
                let slope = mse_slope(g, &a, &b, factor)?;
                Ok(smallvec![Some(slope.clone()), ctx.want(1, || slope.neg())?])
            }
        })
    }

    /// The cross entropy of these logits, of shape `[N, C]`, `[N, C, d1, ..]` or `[C]` for `C` classes, against
    /// `target`: integers of the same shape without the classes, or, as floats of the same shape, a probability of
    /// every class.
    ///
    /// With class weights the mean is the weighted one; classes to be ignored count for nothing. Nothing but ignored
    /// classes has the mean NaN.
    ///
    /// ```
    /// # use cotangent::{CrossEntropy, Tensor};
    /// let logits = Tensor::new([[0.0, 0.0], [100.0, 0.0]])?;
    /// let loss = logits.cross_entropy(&Tensor::new([1, 0])?, &CrossEntropy::default())?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2 / 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, a class is out of range, the smoothing is not between 0 and 1, or the logits are not
    /// floats.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor, options: &CrossEntropy) -> Result<Tensor> {
        if target.dtype().is_float() {
            return against_probabilities(self, target, options);
        }
        let problem = LossCall::new("cross_entropy", self, target, options)?;
        if self.rank() == 2 {
            return fused(self, problem, options.reduction);
        }
        // Classes last, and everything else as rows.
        let order: Vec<isize> = (0..self.rank() as isize).filter(|&d| d != 1).chain([1]).collect();
        let ordered = if self.rank() > 2 { self.permute(order)? } else { self.clone() };
        let losses = fused(&ordered.reshape([problem.rows(), problem.classes])?, problem, options.reduction)?;
        if options.reduction == Reduction::None { losses.reshape(target.shape()) } else { Ok(losses) }
    }

    /// The negative of the elements at the classes that `target` names, for these logarithms of probabilities, of shape
    /// `[N, C]`, `[N, C, d1, ..]` or `[C]`: what [`cross_entropy`](Self::cross_entropy) computes after a `log_softmax`.
    ///
    /// ```
    /// # use cotangent::{CrossEntropy, Tensor};
    /// let logs = Tensor::new([[-1.0, -2.0], [-3.0, -4.0]])?;
    /// assert_eq!(logs.nll_loss(&Tensor::new([1, 0])?, &CrossEntropy::default())?.item::<f32>()?, 2.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, a class is out of range, there is label smoothing, which this loss does not know, or
    /// the input is not of floats.
    #[track_caller]
    pub fn nll_loss(&self, target: &Tensor, options: &CrossEntropy) -> Result<Tensor> {
        if options.label_smoothing != 0.0 {
            bail!(Value, "nll_loss", "there is no label smoothing of {}: use cross_entropy", options.label_smoothing);
        }
        let mut problem = LossCall::new("nll_loss", self, target, options)?;
        let dim = class_dim(self);
        let ignored = problem.ignore.map(|class| problem.target.eq(class)).transpose()?;
        let index = ignored.as_ref().map_or(Ok(problem.target.clone()), |mask| problem.target.masked_fill(mask, 0))?;
        let weights = match &problem.weight {
            Some(weight) => weight.index_select(0, &index)?,
            None => Tensor::ones_with(index.shape(), (DType::F64, index.device()))?,
        };
        let weights = ignored.as_ref().map_or(Ok(weights.clone()), |mask| weights.masked_fill(mask, 0.0))?;
        if self.device() != Device::Cpu {
            problem.count = Count::Tensor(weights.sum()?.to_dtype(compute_dtype(self.dtype()))?);
        }
        let index = index.reshape(target.shape())?.unsqueeze(dim)?;
        let factor = weights.neg()?.reshape(target.shape())?.to_dtype(self.dtype())?;
        let losses = self.gather(dim, &index)?.squeeze_dim(dim)?.mul(&factor)?;
        let losses = match ignored {
            // 0 even where the element is infinite.
            Some(mask) => losses.masked_fill(&mask.reshape(target.shape())?, 0.0)?,
            None => losses,
        };
        options.reduction.apply(&losses, problem.count.operand(), self.dtype())
    }
}

struct Squared;

impl<T: Num> Formula<T, 2> for Squared {
    #[inline(always)]
    fn at(&self, [a, b]: [T; 2]) -> T {
        let difference = a - b;
        difference.clone() * difference
    }
}

/// `g · factor · (a - b)`.
struct Slope(f64);

impl<T: Real> Formula<T, 3> for Slope {
    #[inline(always)]
    fn at(&self, [g, a, b]: [T; 3]) -> T {
        g * T::lit(self.0) * (a - b)
    }
}

fn mse_slope(g: &Tensor, a: &Tensor, b: &Tensor, factor: f64) -> Result<Tensor> {
    if is_grad_enabled() {
        return g.mul(factor)?.mul(a.sub(b)?);
    }
    map("mse_loss", Floats(Slope(factor)), a.dtype(), [g, a, b], a.layout().shape(), a.dtype())
}

/// The dimension of the classes.
fn class_dim(x: &Tensor) -> isize {
    if x.rank() == 1 { 0 } else { 1 }
}

fn check_options(op: &'static str, x: &Tensor, options: &CrossEntropy) -> Result<usize> {
    if !x.dtype().is_float() {
        bail!(DType, op, "not defined for {}: cast to a float with to_dtype first", x.dtype());
    }
    let Some(&classes) = x.shape().get(class_dim(x) as usize) else {
        bail!(Shape, op, "an input of shape {:?} has no dimension for the classes", x.shape());
    };
    if !(0.0..=1.0).contains(&options.label_smoothing) {
        bail!(Value, op, "a label smoothing of {} is not between 0 and 1", options.label_smoothing);
    }
    if let Some(weight) = &options.weight {
        if weight.shape() != [classes] {
            bail!(Shape, op, "weights of shape {:?} do not fit {classes} classes", weight.shape());
        }
        if is_grad_enabled() && weight.requires_grad() {
            bail!(Graph, op, "there is no gradient for the class weights: detach them");
        }
    }
    Ok(classes)
}

/// Rows, each with its class.
struct LossCall {
    /// The classes as i64, in a row.
    target: Tensor,
    /// The weights in f64, in a row.
    weight: Option<Tensor>,
    ignore: Option<i64>,
    smoothing: f64,
    /// The number of classes.
    classes: usize,
    /// What a sum is divided by for a mean: the weights of all rows that count. A GPU finds out as it goes.
    count: Count,
}

/// A number that may be known to a GPU alone.
enum Count {
    Number(f64),
    Tensor(Tensor),
}

impl Count {
    fn operand(&self) -> Operand<'_> {
        match self {
            Count::Number(number) => (*number).into(),
            Count::Tensor(tensor) => tensor.into(),
        }
    }
}

impl LossCall {
    fn new(op: &'static str, x: &Tensor, target: &Tensor, options: &CrossEntropy) -> Result<LossCall> {
        let classes = check_options(op, x, options)?;
        if !target.dtype().is_int() {
            bail!(DType, op, "the target must be classes as integers, or probabilities, not {}", target.dtype());
        }
        let mut expected = x.layout().shape().clone();
        expected.remove(class_dim(x) as usize);
        if *target.shape() != *expected {
            let (x, t) = (x.shape(), target.shape());
            bail!(
                Shape,
                op,
                "a target of shape {t:?} does not fit an input of shape {x:?}: that asks for {expected:?}"
            );
        }
        let target = target.detach().to_dtype(DType::I64)?.contiguous()?.reshape(target.numel())?;
        let weight = options.weight.as_ref().map(|w| w.detach().to_dtype(DType::F64)?.contiguous()).transpose()?;
        let (ignore, smoothing) = (options.ignore_index, options.label_smoothing);
        let mut problem = LossCall { target, weight, ignore, smoothing, classes, count: Count::Number(0.0) };
        if x.device() != problem.target.device() {
            bail!(Device, op, "the input is on {}, the target on {}", x.device(), problem.target.device());
        }
        if x.device() != Device::Cpu {
            return Ok(problem);
        }
        for (row, &class) in problem.target.as_slice::<i64>()?.unwrap_or_default().iter().enumerate() {
            if Some(class) != ignore && !(0..classes as i64).contains(&class) {
                bail!(Index, op, "class {class} at position {row} of the target is out of range for {classes} classes");
            }
        }
        problem.count = Count::Number((0..problem.rows()).filter_map(|row| problem.weight_of(row)).sum());
        Ok(problem)
    }

    fn rows(&self) -> usize {
        self.target.numel()
    }

    /// The weight of a row that counts.
    fn weight_of(&self, row: usize) -> Option<f64> {
        let classes = self.targets().ok()?.classes("cross_entropy").ok()?;
        classes.class(row).map(|class| classes.weight_of(class))
    }

    /// What the kernel is told.
    fn targets(&self) -> Result<Targets<'_>> {
        let (target, weight) = (self.target.as_view()?, self.weight.as_ref().map(Tensor::as_view).transpose()?);
        Ok(Targets { target, ignore: self.ignore, weight, smoothing: self.smoothing })
    }
}

/// The loss of logits of shape `[rows, classes]`, with its derivative.
#[track_caller]
fn fused(x: &Tensor, mut problem: LossCall, reduction: Reduction) -> Result<Tensor> {
    const OP: &str = "cross_entropy";
    let (rows, compute) = (problem.rows(), compute_dtype(x.dtype()));
    let mut stats = Tensor::empty(OP, [rows, 2].into(), compute, x.device())?;
    let mut counted =
        (x.device() != Device::Cpu).then(|| Tensor::empty(OP, rows.into(), compute, x.device())).transpose()?;
    let losses = Tensor::build(OP, rows.into(), compute, x.device(), |losses| {
        let stats = &mut stats.as_view_mut(OP)?;
        let mut counted = counted.as_mut().map(|counted| counted.as_view_mut(OP)).transpose()?;
        backend::cross_entropy(OP, x.as_view()?, problem.targets()?, stats, losses, counted.as_mut())
    })?;
    if let Some(counted) = counted.filter(|_| reduction == Reduction::Mean) {
        problem.count = Count::Tensor(counted.sum()?);
    }
    let loss = reduction.apply(&losses, problem.count.operand(), x.dtype())?;
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
            let grad = if is_grad_enabled() {
                plain_grad(&x, &stats, &problem, &g)?
            } else {
                fused_grad(x, &stats, &problem, &g)?
            };
            Ok(smallvec![Some(grad)])
        }
    })
}

/// Written over the logits where nobody else has them: these are often the largest tensor of all.
fn fused_grad(mut x: Tensor, stats: &Tensor, problem: &LossCall, g: &Tensor) -> Result<Tensor> {
    const OP: &str = "cross_entropy";
    // The CPU's kernel sums them itself.
    let smooth = problem.smoothing != 0.0 && x.device() != Device::Cpu;
    let total = problem.weight.as_ref().filter(|_| smooth).map(Tensor::sum).transpose()?;
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

/// What the kernel computes, in tensor operations: `g · (total · softmax(x) - target)`, where the target of a row sums
/// to its total.
fn plain_grad(x: &Tensor, stats: &Tensor, problem: &LossCall, g: &Tensor) -> Result<Tensor> {
    let (rows, classes, dtype) = (problem.rows(), problem.classes, stats.dtype());
    let numbers = Tensor::arange(0, classes, 1)?.to_device(x.device())?;
    let own = problem.target.reshape([rows, 1])?.eq(&numbers)?.to_dtype(dtype)?;
    let target = own.mul(1.0 - problem.smoothing)?.add(problem.smoothing / classes as f64)?;
    let target = match &problem.weight {
        Some(weight) => target.mul(&weight.to_dtype(dtype)?)?,
        None => target,
    };
    let totals = target.sum_dim(1, true)?;
    let powers = x.to_dtype(dtype)?.sub(stats.narrow(1, 0, 1)?)?.exp()?;
    let softmax = powers.div(powers.sum_dim(1, true)?)?;
    let grad = softmax.mul(&totals)?.sub(&target)?.mul(g)?;
    match problem.ignore {
        Some(class) => grad.masked_fill(&problem.target.eq(class)?.unsqueeze(1)?, 0.0),
        None => Ok(grad),
    }
}

/// `-Σ weight · target · log_softmax(x)` over the classes.
#[track_caller]
fn against_probabilities(x: &Tensor, target: &Tensor, options: &CrossEntropy) -> Result<Tensor> {
    let classes = check_options("cross_entropy", x, options)?;
    if x.shape() != target.shape() {
        let (x, t) = (x.shape(), target.shape());
        bail!(Shape, "cross_entropy", "probabilities of shape {t:?} do not fit an input of shape {x:?}");
    }
    let dim = class_dim(x);
    let target = match options.label_smoothing {
        0.0 => target.clone(),
        smoothing => target.mul(1.0 - smoothing)?.add(smoothing / classes as f64)?,
    };
    let target = match &options.weight {
        None => target,
        Some(weight) => {
            let mut shape = Shape::from(vec![1; x.rank()]);
            shape = shape.with(dim as usize, classes);
            target.mul(&weight.to_dtype(target.dtype())?.reshape(&shape)?)?
        }
    };
    let losses = x.log_softmax(dim)?.mul(&target)?.sum_dim(dim, false)?.neg()?;
    options.reduction.apply(&losses, losses.numel() as f64, losses.dtype())
}

static MSE_LOSS: Op = Op {
    name: "mse_loss",
    samples: || {
        let mut all = Vec::new();
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            for shape in [&[2, 3][..], &[], &[2, 1, 3]] {
                let inputs = vec![spread(shape, -1.0, 1.0)?, spread(shape, -0.4, 1.9)?];
                all.push(Sample::new("mse_loss", inputs, move |x| x[0].mse_loss(&x[1], reduction)));
            }
        }
        let empty = vec![normal([0], 1)?, normal([0], 2)?];
        all.push(Sample::new("of nothing", empty, |x| x[0].mse_loss(&x[1], Reduction::Sum)));
        Ok(all)
    },
    error_cases: || {
        let (a, b) = (normal([3, 1], 1)?, normal([3], 2)?);
        Ok(vec![ErrorCase::new("shapes that differ", &["mse_loss", "[3, 1]", "[3]"], move || {
            a.mse_loss(&b, Reduction::Mean)
        })])
    },
};

static CROSS_ENTROPY: Op = Op {
    name: "cross_entropy",
    samples: || {
        let mut all =
            class_samples("cross_entropy", &[0.0, 0.2], |x, target, options| x.cross_entropy(target, options))?;
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            for (shape, classes) in [(&[3, 4][..], 4), (&[2, 3, 2], 3), (&[3], 3)] {
                let weight = Some(spread([classes], 0.5, 2.0)?);
                let options = CrossEntropy { weight, label_smoothing: 0.1, reduction, ..CrossEntropy::default() };
                let inputs = vec![normal(shape, 1)?, spread(shape, 0.1, 1.0)?];
                all.push(Sample::new("probabilities", inputs, move |x| {
                    x[0].cross_entropy(&x[1], &beside(&x[0], &options)?)
                }));
            }
        }
        Ok(all)
    },
    error_cases: || {
        let mut all = class_refusals("cross_entropy", |x, target, options| x.cross_entropy(target, options))?;
        let (x, p) = (normal([2, 3], 1)?, normal([2, 4], 2)?);
        let smoothing = CrossEntropy { label_smoothing: 1.5, ..CrossEntropy::default() };
        let (y, target) = (x.clone(), Tensor::from_slice(&[0_i64, 1], [2])?);
        all.push(ErrorCase::new("probabilities of another shape", &["cross_entropy", "[2, 3]", "[2, 4]"], move || {
            x.cross_entropy(&p, &CrossEntropy::default())
        }));
        all.push(ErrorCase::new("smoothing", &["cross_entropy", "1.5"], move || y.cross_entropy(&target, &smoothing)));
        Ok(all)
    },
};

static NLL_LOSS: Op = Op {
    name: "nll_loss",
    samples: || class_samples("nll_loss", &[0.0], |x, target, options| x.nll_loss(target, options)),
    error_cases: || {
        let mut all = class_refusals("nll_loss", |x, target, options| x.nll_loss(target, options))?;
        let (x, target) = (normal([2, 3], 1)?, Tensor::from_slice(&[0_i64, 1], [2])?);
        let smoothing = CrossEntropy { label_smoothing: 0.5, ..CrossEntropy::default() };
        all.push(ErrorCase::new("smoothing", &["nll_loss", "0.5"], move || x.nll_loss(&target, &smoothing)));
        Ok(all)
    },
};

type Loss = fn(&Tensor, &Tensor, &CrossEntropy) -> Result<Tensor>;

fn class_samples(label: &'static str, smoothings: &[f64], loss: Loss) -> Result<Vec<Sample>> {
    let targets = [
        (&[4, 3][..], Tensor::from_slice(&[0_i64, 2, 1, 2], [4])?),
        (&[2, 3, 2], Tensor::from_slice(&[0_i64, 2, 1, 1], [2, 2])?),
        (&[3], Tensor::from_slice(&[2_i64], ())?),
        (&[0, 3], Tensor::from_slice::<i64>(&[], [0])?),
    ];
    let mut all = Vec::new();
    for (shape, target) in &targets {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            if target.numel() == 0 && reduction == Reduction::Mean {
                continue; // 0 / 0
            }
            for &label_smoothing in smoothings {
                for (weight, ignore_index) in
                    [(None, Some(-100)), (Some(spread([3], 0.5, 2.0)?), Some(1)), (None, None)]
                {
                    let options = CrossEntropy { weight, ignore_index, label_smoothing, reduction };
                    let inputs = vec![normal(*shape, 1)?, target.clone()];
                    all.push(Sample::new(label, inputs, move |x| loss(&x[0], &x[1], &beside(&x[0], &options)?)));
                }
            }
        }
    }
    Ok(all)
}

/// The options with their weights on the device of `x`.
fn beside(x: &Tensor, options: &CrossEntropy) -> Result<CrossEntropy> {
    let weight = options.weight.as_ref().map(|weight| weight.to_device(x.device())).transpose()?;
    Ok(CrossEntropy { weight, ..options.clone() })
}

fn class_refusals(name: &'static str, loss: Loss) -> Result<Vec<ErrorCase>> {
    let ints = |classes: &[i64]| Tensor::from_slice(classes, classes.len());
    let weight = Some(normal([4], 3)?);
    let learnt = Some(normal([3], 3)?.requires_grad_(true)?);
    let refuse = |label: &str, message: &[&str], x: Tensor, target: Tensor, options: CrossEntropy| {
        let message: Vec<&str> = [name].iter().chain(message).copied().collect();
        ErrorCase::new(label, &message, move || loss(&x, &target, &options))
    };
    let x = normal([2, 3], 1)?;
    Ok(vec![
        refuse(
            "a class that is not there",
            &["class 3", "position 1", "3 classes"],
            x.clone(),
            ints(&[0, 3])?,
            CrossEntropy::default(),
        ),
        refuse("a negative class", &["class -1"], x.clone(), ints(&[-1, 0])?, CrossEntropy::default()),
        refuse("another batch size", &["[2, 3]", "[3]"], x.clone(), ints(&[0, 1, 2])?, CrossEntropy::default()),
        refuse("a target of bools", &["bool"], x.clone(), x.select(1, 0)?.gt(0.0)?, CrossEntropy::default()),
        refuse(
            "logits of integers",
            &["i64"],
            ints(&[1, 2])?,
            Tensor::from_slice(&[1_i64], ())?,
            CrossEntropy::default(),
        ),
        refuse("no classes", &["[]"], normal((), 1)?, ints(&[1])?, CrossEntropy::default()),
        refuse(
            "other weights",
            &["[4]", "3 classes"],
            x.clone(),
            ints(&[0, 1])?,
            CrossEntropy { weight, ..CrossEntropy::default() },
        ),
        refuse(
            "learnt weights",
            &["weights"],
            x,
            ints(&[0, 1])?,
            CrossEntropy { weight: learnt, ..CrossEntropy::default() },
        ),
    ])
}

pub(crate) static OPS: &[&Op] = &[&MSE_LOSS, &CROSS_ENTROPY, &NLL_LOSS];

#[cfg(test)]
mod tests;
