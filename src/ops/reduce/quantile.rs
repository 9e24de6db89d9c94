//! Medians, modes and quantiles.

use crate::autograd::{BackwardContext, no_grad};
use crate::backend::spec::Rank;
use crate::error::bail;
use crate::layout::ReduceDims;
use crate::ops::arg::choices;
use crate::ops::index::gather::at_least_1d;
use crate::ops::index::order::{chosen, named_or_last, reduced};
use crate::ops::linalg::common::any;
use crate::ops::ops;
use crate::ops::reduce::sums::{ReducePlan, dim_errors, float_only, over_dims};
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Device, Result, Tensor};
use smallvec::smallvec;

choices! {
    /// The value of a quantile that lies between two elements.
    ///
    /// ```
    /// assert_eq!(cotangent::options::Interpolation::Midpoint.name(), "midpoint");
    /// ```
    pub enum Interpolation {
        /// Linear interpolation.
        #[default]
        Linear = "linear",
        /// The smaller element.
        Lower = "lower",
        /// The larger element.
        Higher = "higher",
        /// Their mean.
        Midpoint = "midpoint",
        /// The nearest element; of two equally near ones that with the even index.
        Nearest = "nearest",
    }
}

options! {
    /// The options of [`Tensor::quantile_with`] and [`Tensor::nanquantile_with`]. An [`Interpolation`] converts to them.
    ///
    /// ```
    /// use cotangent::{tensor, options::Interpolation};
    /// let x = tensor!([1.0, 2.0])?;
    /// assert_eq!(x.quantile_with(0.25, .., Interpolation::Higher)?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct QuantileOptions {
        /// The value of a quantile that lies between two elements.
        interpolation: Interpolation = Interpolation::Linear,
    }
}

impl From<Interpolation> for QuantileOptions {
    fn from(interpolation: Interpolation) -> QuantileOptions {
        QuantileOptions::new().interpolation(interpolation)
    }
}

impl ReducePlan {
    /// The reduced dimensions, flattened to a last dimension after the others.
    #[track_caller]
    fn rows(&self, x: &Tensor) -> Result<Tensor> {
        let stay = || (0..self.from.len()).filter(|d| !self.dims.contains(d));
        let order: Vec<usize> = stay().chain(self.dims.iter().copied()).collect();
        let sizes: Vec<usize> = stay().map(|d| self.from[d]).chain([self.count()]).collect();
        x.permute(order)?.reshape(sizes)
    }
}

#[track_caller]
fn median(op: &'static str, rank: Rank, x: &Tensor, over: &ReduceDims) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, over)?;
    let rows = plan.rows(&x.detach())?;
    let (values, _) = chosen(op, &rows, rows.rank() - 1, rank)?;
    values.reshape(&plan.to)?.record(op, &[x], |save| {
        let (x, y) = (save.save(&x.detach()), save.save_output());
        move |_: &BackwardContext, g: &Tensor| {
            // As for a maximum, elements equal to the median share the gradient.
            let (spread, nan) = (plan.spread(&y)?, y.ne(&y)?);
            let alike = plan.spread(&nan)?.where_(x.ne(&x)?, x.eq(&spread)?)?;
            let count = plan.sum(op, &alike)?.to_dtype(g.dtype())?;
            Ok(smallvec![Some(alike.where_(plan.spread(&g.div(count)?)?, 0.0)?)])
        }
    })
}

#[track_caller]
fn median_with_indices(op: &'static str, rank: Rank, x: &Tensor, over: &ReduceDims) -> Result<(Tensor, Tensor)> {
    if over.dims.named.as_ref().is_none_or(|named| named.len() != 1) {
        bail!(Value, op, "dim must name exactly one dimension");
    }
    let dim = named_or_last(op, x, over)?;
    let (values, indices) = chosen(op, &*at_least_1d(x)?, dim, rank)?;
    reduced(x, dim, over.keepdim, [&values, &indices])
}

/// Quantiles, of all elements or of those that are not NaN.
#[track_caller]
fn quantile(
    op: &'static str,
    x: &Tensor,
    q: &Operand<'_>,
    over: &ReduceDims,
    interpolation: Interpolation,
    ignore_nan: bool,
) -> Result<Tensor> {
    float_only(op, x)?;
    let plan = ReducePlan::new(op, x, over)?;
    if plan.count() == 0 {
        bail!(Shape, op, "reduced dimensions must not be empty, got {:?} of shape {:?}", &plan.dims[..], x.shape());
    }
    // Half precision is too inaccurate for positions between many elements.
    let compute = x.dtype().compute_dtype();
    let (rows, last) = (plan.rows(x)?.to_dtype(compute)?, plan.to_rank());
    let end = (plan.count() - 1) as f64;
    let count = if let Operand::Scalar(_) = q { 1 } else { q.resolve(compute, x.device())?.numel() };
    let few = few_of_many(&rows, count)?;
    if let Operand::Scalar(number) = q
        && !ignore_nan
        && !few
    {
        // A number is checked on the host, so that nothing waits for a device.
        number.check_element(op, compute)?;
        let number = number.to_f64();
        refuse_outside(op, &[number])?;
        let position = if compute == DType::F32 { f64::from(number as f32 * end as f32) } else { number * end };
        return at_number(&rows.sort(-1)?.0, position, interpolation)?.reshape(&plan.to)?.to_dtype(x.dtype());
    }
    let q = match q {
        Operand::Scalar(number) => Tensor::scalar(*number, compute, x.device())?,
        q => q.resolve(compute, x.device())?.into_owned(),
    };
    if q.rank() > 1 || !q.dtype().is_float() {
        bail!(Value, op, "q must be a number or a vector of floats, got {} of shape {:?}", q.dtype(), q.shape());
    }
    check_fractions(op, &q)?;
    let (several, q) = (q.rank() == 1, q.to_dtype(compute)?.reshape([-1])?);
    let found = if !q.is_batched() && few {
        // Each quantile is selected separately, without a sort.
        between(&q.mul(end)?, interpolation, |positions| {
            let positions = positions.to_dtype(DType::F64)?.to_vec::<f64>()?;
            let all = positions.iter().map(|&at| Ok(chosen(op, &rows, last, Rank::At(at as usize))?.0));
            Tensor::cat(&all.collect::<Result<Vec<_>>>()?, last)
        })?
    } else {
        let sorted = rows.sort(-1)?.0;
        // The index of the last element that counts in each row. A row with a NaN has the quantile NaN, its last element.
        let nan = sorted.detach().ne(sorted.detach())?;
        let position = if ignore_nan {
            let count = nan.bitwise_not()?.sum(crate::keepdim(-1))?;
            q.mul(count.sub(1)?.clamp(0, None)?.to_dtype(compute)?)?
        } else {
            let positions = q.mul(end)?;
            nan.select(-1, -1)?.unsqueeze(-1)?.where_(end, positions)?
        };
        between(&position, interpolation, |positions| sorted.gather(-1, &positions.to_dtype(DType::I64)?))?
    };
    // The dimension of the quantiles comes first.
    let first: Vec<usize> = std::iter::once(last).chain(0..last).collect();
    let mut shape = plan.to.clone();
    if several {
        shape.insert(0, q.numel());
    }
    let found = if interpolation == Interpolation::Linear { found } else { depending_on(&found, &q)? };
    found.permute(first)?.reshape(&shape)?.to_dtype(x.dtype())
}

/// Whether separate selection is faster than a sort: for one or two quantiles of long rows without NaN, on the CPU.
fn few_of_many(rows: &Tensor, count: usize) -> Result<bool> {
    let (rows, many) = (rows.detach(), 64);
    let long = rows.device() == Device::Cpu && rows.shape().last().is_some_and(|&n| n >= many);
    Ok(long && count <= 2 && count > 0 && !any(&rows.ne(&rows)?)?)
}

/// The values at fractional positions, from the elements at integer positions.
#[track_caller]
fn between(position: &Tensor, interpolation: Interpolation, at: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let below = rounded(position, crate::options::Rounding::Floor)?;
    let above = || no_grad(|| rounded(&position.neg()?, crate::options::Rounding::Floor)?.neg());
    match interpolation {
        Interpolation::Lower => at(&below),
        Interpolation::Higher => at(&above()?),
        Interpolation::Nearest => at(&nearest(position, &below)?),
        Interpolation::Midpoint => lerp(&at(&below)?, &at(&above()?)?, &below.full_like(0.5)?),
        Interpolation::Linear => lerp(&at(&below)?, &at(&above()?)?, &position.sub(&below)?),
    }
}

impl ReducePlan {
    /// The number of dimensions that are not reduced.
    fn to_rank(&self) -> usize {
        self.from.len() - self.dims.len()
    }
}

/// Positions rounded down, outside the graph.
fn rounded(position: &Tensor, rounding: crate::options::Rounding) -> Result<Tensor> {
    position.detach().div_with(1.0, rounding)
}

/// Positions rounded to the nearest integer, ties to even.
fn nearest(position: &Tensor, below: &Tensor) -> Result<Tensor> {
    let rest = position.detach().sub(below)?;
    let odd = below.sub(rounded(&below.mul(0.5)?, crate::options::Rounding::Floor)?.mul(2.0)?)?;
    let up = rest.gt(0.5)?.bitwise_or(rest.eq(0.5)?.bitwise_and(odd.eq(1.0)?)?)?;
    below.add(up.to_dtype(below.dtype())?)
}

/// Linear interpolation: `a + weight · (b - a)`. It is exact at both ends, also for infinite elements.
fn lerp(a: &Tensor, b: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let distance = b.sub(a)?;
    let (from_a, from_b) = (a.add(weight.mul(&distance)?)?, b.sub(weight.neg()?.add(1.0)?.mul(&distance)?)?);
    weight.detach().lt(0.5)?.where_(from_a, from_b)
}

/// The quantile at one position of sorted rows, or NaN for a row that contains one.
fn at_number(sorted: &Tensor, position: f64, interpolation: Interpolation) -> Result<Tensor> {
    let at = |position: f64| sorted.select(-1, position as isize);
    let between = |weight: f64| {
        let (a, b) = (at(position.floor())?, at(position.ceil())?);
        let distance = b.sub(&a)?;
        if weight < 0.5 { a.add(distance.mul(weight)?) } else { b.sub(distance.mul(1.0 - weight)?) }
    };
    let found = match interpolation {
        Interpolation::Lower => at(position.floor()),
        Interpolation::Higher => at(position.ceil()),
        Interpolation::Nearest => at(position.round_ties_even()),
        Interpolation::Midpoint => between(0.5),
        Interpolation::Linear => between(position - position.floor()),
    }?;
    let last = sorted.select(-1, -1)?;
    last.detach().ne(last.detach())?.where_(&last, &found)
}

/// Results that do not change with `q`, as functions of it.
fn depending_on(found: &Tensor, q: &Tensor) -> Result<Tensor> {
    if q.requires_grad() { found.add(q.mul(0.0)?) } else { Ok(found.clone()) }
}

/// Refuses fractions outside of [0, 1]. Those on a GPU are read, too: they are few.
fn check_fractions(op: &'static str, q: &Tensor) -> Result<()> {
    refuse_outside(op, &q.detach().all_examples()?.to_dtype(DType::F64)?.to_vec::<f64>()?)
}

fn refuse_outside(op: &'static str, q: &[f64]) -> Result<()> {
    match q.iter().find(|&&q| !(0.0..=1.0).contains(&q)) {
        None => Ok(()),
        Some(q) => bail!(Value, op, "q must be in [0, 1], got {q}"),
    }
}

/// # Medians and quantiles
#[ops]
impl Tensor {
    /// The median over some dimensions, or all (`..`), the lower of two middle elements. NaN propagates. Elements equal
    /// to it share the gradient evenly. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]])?;
    /// assert_eq!(x.median(1)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// assert_eq!(x.median(..)?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = median_errors, batch)]
    pub fn median(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        median("median", Rank::Median, self, &over)
    }

    /// The [`median`](Self::median) of the elements that are not NaN; NaN if there are none.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([5.0, f32::NAN, 1.0, 3.0])?.nanmedian(..)?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = median_errors, batch)]
    pub fn nanmedian(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        median("nanmedian", Rank::NanMedian, self, &over)
    }

    /// The medians along a dimension, and their indices. The chosen element gets the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices) = tensor!([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]])?.median_with_indices(1)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 4.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[doc(alias = "median")]
    #[op(samples = along_samples, errors = along_errors, outputs = [values, indices], batch)]
    pub fn median_with_indices(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        median_with_indices("median_with_indices", Rank::Median, self, &over)
    }

    /// The medians along a dimension of the elements that are not NaN, and their indices. The chosen element gets the
    /// gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (value, index) = tensor!([5.0, f32::NAN, 1.0, 3.0])?.nanmedian_with_indices(0)?;
    /// assert_eq!((value.item::<f32>()?, index.item::<i64>()?), (3.0, 3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[doc(alias = "nanmedian")]
    #[op(samples = along_samples, errors = along_errors, outputs = [values, indices], batch)]
    pub fn nanmedian_with_indices(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        median_with_indices("nanmedian_with_indices", Rank::NanMedian, self, &over)
    }

    /// The most frequent element along a dimension, the smallest of several, and the index of its last occurrence;
    /// without a dimension (`..`), along the last.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (value, index) = tensor!([3, 1, 3, 1, 2])?.mode(0)?;
    /// assert_eq!((value.item::<i64>()?, index.item::<i64>()?), (1, 3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, several are named, or there are no elements to choose from.
    #[op(samples = mode_samples, errors = mode_errors, outputs = [values, indices], batch)]
    pub fn mode(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        let (dim, x) = (named_or_last("mode", self, &over)?, at_least_1d(self)?);
        let n = x.shape()[dim];
        if n == 0 {
            bail!(Shape, "mode", "dimension {dim} must not be empty, got shape {:?}", self.shape());
        }
        let (sorted, order) = x.detach().sort(dim)?;
        // The position of each element in its run of equal elements: the distance from the start of the run.
        let mut along = vec![1; x.rank()];
        along[dim] = n;
        let positions = Tensor::arange(0, n)?.to_device(x.device())?.reshape(&along)?.expand(x.shape())?;
        let new = sorted.narrow(dim, 1, n - 1)?.ne(sorted.narrow(dim, 0, n - 1)?)?;
        let starts = new.where_(positions.narrow(dim, 1, n - 1)?, 0)?;
        let starts = Tensor::cat(&[&positions.narrow(dim, 0, 1)?, &starts], dim)?.cummax(dim)?.0;
        let last = positions.sub(&starts)?.argmax(crate::keepdim(dim))?;
        let indices = order.gather(dim, &last)?;
        let values = x.gather(dim, &indices)?;
        reduced(self, dim, over.keepdim, [&values, &indices.record_barrier("mode", &[self])])
    }

    /// The quantiles `q`, a number or a vector of numbers from 0 to 1, over some dimensions, or all (`..`). NaN
    /// propagates. A vector `q` gives a new first dimension. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::Interpolation};
    /// let x = tensor!([[1.0, 2.0], [3.0, 5.0]])?;
    /// assert_eq!(x.quantile(0.5, 1)?.to_vec::<f32>()?, [1.5, 4.0]);
    /// assert_eq!(x.quantile(&tensor!([0.0, 1.0])?, ..)?.to_vec::<f32>()?, [1.0, 5.0]);
    /// assert_eq!(x.quantile_with(0.5, 1, Interpolation::Lower)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, `q` is not between 0 and 1, there is no such dimension, one is named twice, or there are
    /// no elements.
    #[op(autocast_cpu = f32, samples = quantile_samples, errors = quantile_errors)]
    pub fn quantile<'a>(
        &self,
        q: impl Into<Operand<'a>>,
        over: impl Into<ReduceDims>,
        options: impl Into<QuantileOptions>,
    ) -> Result<Tensor> {
        quantile("quantile", self, &q, &over, options.interpolation, false)
    }

    /// The [`quantile`](Self::quantile) of the elements that are not NaN; NaN if there are none.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::Interpolation};
    /// let x = tensor!([1.0, f32::NAN, 2.0])?;
    /// assert_eq!(x.nanquantile(0.5, ..)?.item::<f32>()?, 1.5);
    /// assert_eq!(x.nanquantile_with(0.5, .., Interpolation::Lower)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`quantile`](Self::quantile).
    #[op(autocast_cpu = f32, samples = quantile_samples, errors = quantile_errors)]
    pub fn nanquantile<'a>(
        &self,
        q: impl Into<Operand<'a>>,
        over: impl Into<ReduceDims>,
        options: impl Into<QuantileOptions>,
    ) -> Result<Tensor> {
        quantile("nanquantile", self, &q, &over, options.interpolation, true)
    }
}

fn median_errors() -> Result<Vec<ErrorCase>> {
    let mut all = dim_errors()?;
    all.push(error!["nothing to choose from", "[0]"; sample![Tensor::zeros([2, 0])?]]);
    all.push(error!["nothing along a dimension", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1]]);
    Ok(all)
}

fn along_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3, 4], -2.0, 2.0)?, 0],
        sample![spread([2, 3, 4], -2.0, 2.0)?, 1, true],
        sample![spread([2, 3, 4], -2.0, 2.0)?, -1],
        sample![spread([7], -2.0, 2.0)?, 0],
        sample![spread([], -2.0, 2.0)?, -1, true],
        sample![spread([0, 3], -2.0, 2.0)?, 1],
    ])
}

fn along_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "-3", "rank 2"; sample![normal([2, 3], 1)?, -3]],
        error!["nothing to choose from", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1]],
        error!["no dimension", "one dimension"; sample![normal([2, 3], 1)?]],
        error!["two dimensions", "one dimension"; sample![normal([2, 3], 1)?, [0, 1]]],
    ])
}

fn mode_samples() -> Result<Vec<Sample>> {
    let mut all = along_samples()?;
    all.push(sample![spread([2, 3], -2.0, 2.0)?]);
    all.push(sample![ints(&[3, 1, 3, 2, 2, 1, 1, 1], [2, 4])?, 1]);
    Ok(all)
}

fn mode_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "-3", "rank 2"; sample![normal([2, 3], 1)?, -3]],
        error!["nothing to choose from", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1]],
        error!["two dimensions", "[0, 1]"; sample![normal([2, 3], 1)?, [0, 1]]],
    ])
}

fn quantile_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    let mut all = vec![
        sample![x(&[2, 3])?, 0.3],
        sample![x(&[7])?, spread([3], 0.1, 0.85)?, 0],
        sample![x(&[2, 3, 4])?, spread([2], 0.2, 0.7)?, 1; keepdim = true],
        sample![x(&[2, 3, 4])?, 0.55, [0, -1]],
        sample![x(&[2, 3])?, 0.6; keepdim = true],
        sample![x(&[])?, 0.6, -1; keepdim = true],
        sample![x(&[0, 3])?, 0.4, 1],
    ];
    for interpolation in ["lower", "higher", "midpoint", "nearest"] {
        all.push(sample![x(&[3, 4])?, spread([2], 0.2, 0.7)?, 1; interpolation = interpolation]);
    }
    Ok(all)
}

fn quantile_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![x()?, 0.5, 2]],
        error!["a fraction above 1", "1.5"; sample![x()?, 1.5]],
        error!["no fraction", "NaN"; sample![x()?, f64::NAN]],
        error!["a matrix of fractions", "[1, 2]"; sample![x()?, spread([1, 2], 0.0, 1.0)?]],
        error!["fractions of integers", "i64"; sample![x()?, ints(&[0, 1], [2])?]],
        error!["no elements", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 0.5]],
        error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?, 0.5]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn quantiles_without_a_sort_are_those_of_one() -> Result<()> {
        let x = spread([3, 200], -2.0, 2.0)?;
        let all = [
            Interpolation::Linear,
            Interpolation::Lower,
            Interpolation::Higher,
            Interpolation::Midpoint,
            Interpolation::Nearest,
        ];
        for interpolation in all {
            for q in [0.0, 0.3, 0.5, 1.0] {
                // Three quantiles are computed by sorting.
                let several = Tensor::from_vec(vec![q, q, q], [3])?;
                let leaves = [x.clone(), x.clone()].map(|x| x.requires_grad_(true));
                let [a, b] = leaves;
                let (a, b) = (a?, b?);
                let one = a.quantile_with(q, 1, interpolation)?;
                let sorted = b.quantile_with(&several, 1, interpolation)?.select(0, 1)?;
                assert_eq!(one.to_vec::<f64>()?, sorted.to_vec::<f64>()?, "{q} {interpolation:?}");
                one.sum(..)?.backward()?;
                sorted.sum(..)?.backward()?;
                let grads = [a, b].map(|x| x.grad().map(|g| g.to_vec::<f64>()).transpose());
                let [a, b] = grads;
                assert_eq!(a?, b?, "{q} {interpolation:?}");
            }
        }
        Ok(())
    }
}
