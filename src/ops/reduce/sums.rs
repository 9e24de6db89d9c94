//! Sums, means and variances over some or all dimensions.

use crate::autograd::{BackwardContext, Saver, is_grad_enabled};
use crate::backend::spec::{CenteredReduce, Formula, Reduce};
use crate::backend::{self, View};
use crate::error::bail;
use crate::layout::{Dims, ReduceDims};
use crate::layout::{reduced_dims, resolve_dims};
use crate::ops::elementwise::map::map;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::batch::{Level, behind};
use crate::{DType, Result, Scalar, Shape, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::LazyLock;

/// The dimensions of a reduction, and the shapes before and after.
#[derive(Clone, Debug)]
pub(in crate::ops) struct ReducePlan {
    pub dims: SmallVec<[usize; 5]>,
    /// The shape of the input.
    pub from: Shape,
    /// The same with size 1 for reduced dimensions.
    pub kept: Shape,
    /// The shape of the result.
    pub to: Shape,
}

impl ReducePlan {
    pub fn new(op: &'static str, x: &Tensor, over: &ReduceDims) -> Result<ReducePlan> {
        let ReduceDims { dims, keepdim } = over;
        // As in PyTorch, an empty list of dimensions reduces all of them.
        let named = dims.named.as_ref().is_some_and(|named| !named.is_empty());
        let dims = resolve_dims(op, if named { dims } else { &Dims::ALL }, x.rank())?;
        let from = x.layout().shape().clone();
        let kept: Shape = from.iter().enumerate().map(|(d, &size)| if dims.contains(&d) { 1 } else { size }).collect();
        let to = if *keepdim {
            kept.clone()
        } else {
            from.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &size)| size).collect()
        };
        Ok(ReducePlan { dims, from, kept, to })
    }

    /// The number of elements that each result is computed from.
    pub fn count(&self) -> usize {
        // Saturating, as a tensor without elements may have dimensions of any size.
        self.dims.iter().fold(1, |n: usize, &d| n.saturating_mul(self.from[d]))
    }

    /// The same reduction for each example of a `vmap`, whose dimension comes first.
    pub fn of_examples(&self, level: Level) -> Result<ReducePlan> {
        let with = |shape: &Shape| behind(level.size, shape);
        let dims = self.dims.iter().map(|dim| dim + 1).collect();
        Ok(ReducePlan { dims, from: with(&self.from)?, kept: with(&self.kept)?, to: with(&self.to)? })
    }

    /// Computes the reduction, outside the graph.
    pub fn reduce(&self, op: &'static str, by: Reduce, x: &Tensor, dtype: DType) -> Result<Tensor> {
        if x.is_batched() {
            return Tensor::over_batch(&[x], |level, x| self.of_examples(level)?.reduce(op, by, x[0], dtype));
        }
        let mut out = Tensor::empty(op, self.to.clone(), dtype, x.device())?;
        let mut to = out.as_view_mut(op)?;
        let pending = View { storage: x.storage(), layout: x.layout(), dtype: x.dtype() };
        if !x.is_pending() || !backend::reduce_deferred(by, pending, &self.dims, &mut to)? {
            backend::reduce(op, by, x.as_view()?, &self.dims, &mut to)?;
        }
        Ok(out)
    }

    /// As [`reduce`](Self::reduce), for an input that the backward pass will read again.
    pub fn reduce_and_save(&self, op: &'static str, by: Reduce, x: &Tensor, dtype: DType) -> Result<Tensor> {
        if is_grad_enabled() && x.requires_grad() {
            x.mark_needed();
        }
        self.reduce(op, by, x, dtype)
    }

    /// A reduction of the differences from a center for each result, outside the graph. Centers have the compute dtype.
    pub fn reduce_centered(
        &self,
        op: &'static str,
        by: CenteredReduce,
        x: &Tensor,
        center: &Tensor,
        dtype: DType,
    ) -> Result<Tensor> {
        if x.is_batched() || center.is_batched() {
            return Tensor::over_batch(&[x, center], |level, inputs| {
                let plan = self.of_examples(level)?;
                let (x, center) =
                    (inputs[0].expand(&plan.from)?, inputs[1].expand(behind(level.size, center.layout().shape())?)?);
                plan.reduce_centered(op, by, &x, &center, dtype)
            });
        }
        let mut out = Tensor::empty(op, self.to.clone(), dtype, x.device())?;
        backend::reduce_centered(op, by, x.as_view()?, &self.dims, center.as_view()?, &mut out.as_view_mut(op)?)?;
        Ok(out)
    }

    /// A formula of each element and of values of its result, outside the graph.
    pub fn map(
        &self,
        op: &'static str,
        call: crate::ops::elementwise::map::FormulaCall<'_>,
        x: &Tensor,
        numbers: &[&Tensor],
    ) -> Result<Tensor> {
        let numbers = numbers.iter().map(|number| self.spread(&number.detach())).collect::<Result<Vec<_>>>()?;
        let inputs: SmallVec<[&Tensor; 4]> = std::iter::once(x).chain(&numbers).collect();
        map(op, call, x.dtype(), &inputs, &self.from, x.dtype())
    }

    #[track_caller]
    pub fn sum(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        if x.dtype().is_complex() {
            return x.by_parts(|part| self.sum(op, part));
        }
        let out = self.reduce(op, Reduce::Sum, x, x.dtype().to_sum())?;
        out.record(op, &[x], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.spread(g)?)])
        })
    }

    #[track_caller]
    pub fn mean(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        if x.dtype().is_complex() {
            return x.by_parts(|part| self.mean(op, part));
        }
        self.reduce(op, Reduce::Mean, x, x.dtype())?.record(op, &[x], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.spread(&g.div(plan.count() as f64)?)?)])
        })
    }

    /// Broadcasts a tensor of the result's shape to the input's shape: the transpose of a sum.
    #[track_caller]
    pub fn spread(&self, g: &Tensor) -> Result<Tensor> {
        let Some(kept) = g.layout().reshape(&self.kept) else {
            bail!(Shape, "expand", "cannot reshape {:?} to {:?}", g.shape(), self.kept);
        };
        g.with_layout(kept.broadcast_to(&self.from)).record("expand", &[g], |_| {
            let plan = self.clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(plan.sum("sum", g)?)])
        })
    }
}

options! {
    /// The options of [`Tensor::sum_with`], [`Tensor::cumsum_with`], [`Tensor::softmax_with`] and related operations. A dtype
    /// converts to them.
    ///
    /// ```
    /// use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1, 2])?.mean_with(.., DType::F32)?.item::<f32>()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct DTypeOptions {
        /// The dtype that elements are cast to first, and the dtype of the result.
        dtype: Option<DType> = None,
    }
}

impl From<DType> for DTypeOptions {
    fn from(dtype: DType) -> DTypeOptions {
        DTypeOptions::new().dtype(dtype)
    }
}

options! {
    /// The options of [`Tensor::var_with`], [`Tensor::std_with`] and related operations. A number converts to the correction.
    ///
    /// ```
    /// use cotangent::{tensor, options::VarOptions};
    /// let x = tensor!([1.0, 3.0])?;
    /// assert_eq!(x.var_with(.., VarOptions::new().correction(0.0))?.item::<f32>()?, 1.0);
    /// assert_eq!(x.var_with(.., 0)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct VarOptions {
        /// The divisor is the number of elements minus this: 1 for an estimate from a sample, 0 for a whole population.
        correction: Option<f64> = Some(1.0),
        /// PyTorch's older option: true is a correction of 1, false of 0.
        unbiased: Option<bool> = None,
    }
}

impl VarOptions {
    pub(in crate::ops) fn taken(&self) -> f64 {
        self.unbiased.map_or(self.correction.unwrap_or(1.0), |unbiased| f64::from(u8::from(unbiased)))
    }
}

macro_rules! corrections {
    ($($number:ty),+) => {$(
        impl From<$number> for VarOptions {
            fn from(correction: $number) -> VarOptions { VarOptions::new().correction(correction as f64) }
        }
    )+};
}
corrections!(f64, i32, usize);

/// # Reductions
#[ops]
impl Tensor {
    /// The sum over some dimensions, or all (`..`). They are removed or, with [`keepdim`](crate::keepdim), kept with
    /// size 1; an empty list means all. Integers and bools are added up in `i64`, `u64` in `u64`.
    ///
    /// ```
    /// # use cotangent::{Tensor, keepdim, tensor};
    /// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.sum(..)?.item::<f32>()?, 10.0);
    /// assert_eq!(x.sum(0)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum(keepdim(-1))?.shape(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(autocast_cuda = f32, samples = || over_dims(-2.0, 2.0, true), errors = dim_errors)]
    pub fn sum(&self, over: impl Into<ReduceDims>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.sum(over)?.to_dtype(dtype);
        }
        ReducePlan::new("sum", self, &over)?.sum("sum", self)
    }

    /// The mean over some dimensions, or all (`..`); NaN if there are no elements. See [`sum`](Self::sum) for the
    /// dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.mean(..)?.item::<f32>()?, 2.5);
    /// assert_eq!(x.mean(0)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = || over_dims(-2.0, 2.0, true), errors = float_dim_errors)]
    pub fn mean(&self, over: impl Into<ReduceDims>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.mean(over);
        }
        if !self.dtype().is_complex() {
            float_only("mean", self)?;
        }
        ReducePlan::new("mean", self, &over)?.mean("mean", self)
    }

    /// The variance over some dimensions, or all (`..`): the sum of squared deviations from the mean, divided by the
    /// number of elements minus a correction, 1 by default. NaN if there are no elements. See [`sum`](Self::sum) for
    /// the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])?;
    /// assert_eq!(x.var(1)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(tensor!([1.0, 3.0])?.var_with(.., 0)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = var_samples, errors = float_dim_errors)]
    pub fn var(&self, over: impl Into<ReduceDims>, options: impl Into<VarOptions>) -> Result<Tensor> {
        if self.dtype().is_complex() {
            // The variance of complex numbers is the sum of those of both parts.
            return self.real()?.var_with(over.clone(), &options)?.add(&self.imag()?.var_with(over, &options)?);
        }
        float_only("var", self)?;
        let variance = Variance::new("var", self, ReducePlan::new("var", self, &over)?, options.taken())?;
        let out = variance.out.to_dtype(self.dtype())?;
        out.record("var", &[self], |save| {
            let slope = variance.slope(save, self);
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(slope.times(g)?)])
        })
    }

    /// The variance and the mean over some dimensions, or all (`..`). See [`var`](Self::var).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (var, mean) = tensor!([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])?.var_mean(1)?;
    /// assert_eq!(var.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(mean.to_vec::<f32>()?, [2.0, 5.0]);
    /// let (var, mean) = tensor!([1.0, 3.0])?.var_mean_with(.., 0)?;
    /// assert_eq!((var.item::<f32>()?, mean.item::<f32>()?), (1.0, 2.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = var_mean_samples, errors = float_dim_errors, outputs = [var, mean])]
    pub fn var_mean(&self, over: impl Into<ReduceDims>, options: impl Into<VarOptions>) -> Result<(Tensor, Tensor)> {
        if self.dtype().is_complex() {
            return Ok((self.var_with(over.clone(), options)?, self.mean(over)?));
        }
        float_only("var_mean", self)?;
        let plan = ReducePlan::new("var_mean", self, &over)?;
        let variance = Variance::new("var_mean", self, plan, options.taken())?;
        let both = [variance.out.to_dtype(self.dtype())?, variance.mean.to_dtype(self.dtype())?];
        let [var, mean] = Tensor::record_joint(both, "var_mean", &[self], |save| {
            let slope = variance.slope(save, self);
            move |_: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let by_var = cotangents[0].as_ref().map(|g| slope.times(g)).transpose()?;
                let plan = &slope.plan;
                let share = |g: &Tensor| plan.spread(&g.div(plan.count() as f64)?);
                let by_mean = cotangents[1].as_ref().map(share).transpose()?;
                Ok(smallvec![match (by_var, by_mean) {
                    (Some(a), Some(b)) => Some(a.add(&b)?),
                    (a, b) => a.or(b),
                }])
            }
        })?;
        Ok((var, mean))
    }
}

/// The derivative of the variance, as a formula of an element, the mean in two parts, and the cotangent.
static VARIANCE_SLOPE: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("var_backward", 4, 1, |x, p| x[3] * p[0] * (x[0] - x[1] - x[2])));

/// The variance over some dimensions, and the values that its derivative needs.
pub(in crate::ops) struct Variance {
    plan: ReducePlan,
    /// In the compute dtype, like the others.
    pub out: Tensor,
    mean: Tensor,
    /// The rounding error of the mean.
    lack: Tensor,
    /// The number of elements minus the correction.
    freedom: f64,
}

impl Variance {
    /// In several passes: the difference of the mean square and the squared mean would cancel for a large mean. Half precision has
    /// neither the accuracy for the mean nor the range for the squares.
    #[track_caller]
    pub fn new(op: &'static str, x: &Tensor, plan: ReducePlan, correction: f64) -> Result<Variance> {
        let count = plan.count() as f64;
        // With a divisor of 0 the result is NaN or infinite.
        let freedom = (count - correction).max(0.0);
        x.mark_needed();
        let compute = x.dtype().compute_dtype();
        let mean = plan.reduce(op, Reduce::Mean, x, compute)?;
        // The rounding error of the mean is large if the elements are large compared to their deviations. It is the mean of the
        // deviations, which are exact, and its square enters the result.
        let lack = plan.reduce_centered(op, CenteredReduce::Mean(count), x, &mean, compute)?;
        let squares = plan.reduce_centered(op, CenteredReduce::Deviation(freedom), x, &mean, compute)?;
        let excess = lack.square()?.mul(count / freedom)?;
        let out = if plan.count() == 0 || freedom == 0.0 { squares } else { squares.sub(&excess)?.maximum(0.0)? };
        Ok(Variance { plan, out, mean, lack, freedom })
    }

    pub fn slope(&self, save: &mut Saver<'_>, x: &Tensor) -> VarianceSlope {
        let (x, mean, lack) = (save.save(x), save.save(&self.mean), save.save(&self.lack));
        VarianceSlope { plan: self.plan.clone(), x, mean, lack, factor: 2.0 / self.freedom }
    }
}

/// The derivative of a variance.
pub(in crate::ops) struct VarianceSlope {
    plan: ReducePlan,
    x: Tensor,
    mean: Tensor,
    lack: Tensor,
    factor: f64,
}

impl VarianceSlope {
    /// The cotangent of the input from that of the variance.
    pub fn times(&self, g: &Tensor) -> Result<Tensor> {
        if !is_grad_enabled() {
            let call = (&*VARIANCE_SLOPE, &[Scalar::F64(self.factor)][..]);
            return self.plan.map("var", call, &self.x, &[&self.mean, &self.lack, g]);
        }
        let deviation = self.x.sub(&self.plan.spread(&self.plan.mean("mean", &self.x)?)?)?;
        self.plan.spread(&g.mul(self.factor)?)?.mul(&deviation)
    }
}

/// Refuses complex numbers.
pub(in crate::ops) fn real_only(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_complex() {
        bail!(DType, op, "input must be real, got {}", x.dtype());
    }
    Ok(())
}

/// Refuses dtypes other than floating point.
pub(in crate::ops) fn float_only(op: &'static str, x: &Tensor) -> Result<()> {
    if !x.dtype().is_float() {
        bail!(DType, op, "input must be floating point, got {}: cast with to_dtype first", x.dtype());
    }
    Ok(())
}

impl Tensor {
    /// The sum that undoes a broadcast from `shape`: leading dimensions are removed, broadcast ones get size 1 again.
    #[track_caller]
    pub(crate) fn sum_to(&self, op: &'static str, shape: &Shape) -> Result<Tensor> {
        let from = self.layout().shape();
        let Some(dims) = reduced_dims(from, shape) else {
            bail!(Shape, op, "cannot sum {from:?} to {shape:?}: {shape:?} does not broadcast to {from:?}");
        };
        if dims.is_empty() {
            return Ok(self.clone());
        }
        let kept = (0..from.len()).map(|d| if dims.contains(&(d as isize)) { 1 } else { from[d] }).collect();
        let dims = dims.iter().map(|&d| d as usize).collect();
        ReducePlan { dims, from: from.clone(), kept, to: shape.clone() }.sum("sum", self)
    }
}

/// Samples of a reduction, with values between `low` and `high`; empty reductions only if `empty`.
pub(in crate::ops) fn over_dims(low: f64, high: f64, empty: bool) -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, low, high);
    let mut all = vec![
        sample![x(&[2, 3])?],
        sample![x(&[7])?],
        sample![x(&[])?],
        sample![x(&[2, 3, 4])?, 0],
        sample![x(&[2, 3, 4])?, 1; keepdim = true],
        sample![x(&[2, 3, 4])?, -1],
        sample![x(&[2, 3, 4])?, [0, -1]; keepdim = true],
        sample![x(&[2, 3, 4])?, [-1, 1]],
        sample![x(&[2, 3])?; keepdim = true],
        sample![x(&[])?, 0; keepdim = true],
        sample![x(&[0, 3])?, 1],
    ];
    if empty {
        all.push(sample![x(&[2, 0])?, 1; keepdim = true]);
        all.push(sample![x(&[0, 3])?]);
    }
    Ok(all)
}

/// Errors of every reduction of some dimensions.
pub(in crate::ops) fn dim_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]],
        error!["a dimension twice", "-2", "twice"; sample![normal([2, 3], 2)?, [0, -2]]],
    ])
}

/// Also for integers.
pub(in crate::ops) fn float_dim_errors() -> Result<Vec<ErrorCase>> {
    let mut all = dim_errors()?;
    all.push(error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?, 0]]);
    Ok(all)
}

fn var_samples() -> Result<Vec<Sample>> {
    // The variance of one element is always 0.
    let single = |sample: &Sample| sample.tensor().is_some_and(|x| x.numel() == 1);
    let flat = |sample: Sample| if single(&sample) { sample.zero_derivative() } else { sample };
    Ok(var_mean_samples()?.into_iter().map(flat).collect())
}

fn var_mean_samples() -> Result<Vec<Sample>> {
    let mut all: Vec<Sample> =
        over_dims(-2.0, 2.0, true)?.into_iter().map(|sample| sample.with("correction", 0.0)).collect();
    all.push(sample![spread([3, 4], -2.0, 2.0)?, 1]);
    all.push(sample![spread([3, 4], -2.0, 2.0)?, 0; correction = 0.5]);
    Ok(all)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn the_variance_of_numbers_far_from_zero_keeps_its_digits() -> Result<()> {
        let values: Vec<f32> = (0..1000).map(|i| 1e6 + if i % 2 == 0 { 2.0 } else { -2.0 }).collect();
        let x = Tensor::from_vec(values, [1000])?;
        assert_eq!(x.var_with(.., 0)?.item::<f32>()?, 4.0);
        // One that is not a number of f32 itself.
        let values: Vec<f32> = (0..1001).map(|i| 1e6 + (i % 3) as f32).collect();
        let exact = Tensor::from_vec(values.iter().map(|&x| f64::from(x)).collect(), [1001])?.var(..)?.item::<f64>()?;
        let got = Tensor::from_vec(values, [1001])?.var(..)?.item::<f32>()?;
        assert!((f64::from(got) - exact).abs() < 1e-6, "{got} is not {exact}");
        Ok(())
    }
}
