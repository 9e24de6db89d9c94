//! Cumulative operations.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::backend::spec::{Extreme, Scan};
use crate::layout::Dim;
use crate::layout::resolve_dim_or_scalar;
use crate::ops::index::gather::{at_least_1d, gather};
use crate::ops::reduce::sums::DTypeOptions;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::{elementwise::complex_forms, ops};
use crate::options::options;
use crate::tensor::batch::behind;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

options! {
    /// The options of [`Tensor::cumulative_sum_with`] and [`Tensor::cumulative_prod_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::CumulativeOptions};
    /// let x = tensor!([1, 2, 3])?;
    /// let sums = x.cumulative_sum_with(0, CumulativeOptions::new().include_initial(true))?;
    /// assert_eq!(sums.to_vec::<i64>()?, [0, 1, 3, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CumulativeOptions {
        /// Whether the result starts with the initial value, 0 or 1.
        include_initial: bool = false,
        /// The dtype that elements are cast to first.
        dtype: Option<DType> = None,
    }
}

/// # Cumulative operations
#[ops]
impl Tensor {
    /// The cumulative sum along a dimension. Integers and bools are added up in `i64`, `u64` in `u64`, half precision
    /// in `f32`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(x.cumsum(1)?.to_vec::<f32>()?, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(in_place, autocast_cuda = f32, samples = scan_samples, errors = scan_errors, batch)]
    pub fn cumsum(&self, dim: impl Into<Dim>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.cumsum(dim)?.to_dtype(dtype);
        }
        let dim = resolve_dim_or_scalar("cumsum", dim.0, self.rank())?;
        sums(self, dim, false)
    }

    /// The cumulative product along a dimension. Integers and bools are multiplied in `i64`, `u64` in `u64`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 2.0, 3.0])?.cumprod(0)?.to_vec::<f32>()?, [1.0, 2.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(in_place, autocast_cuda = f32, samples = cumprod_samples, errors = scan_errors, batch)]
    pub fn cumprod(&self, dim: impl Into<Dim>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.cumprod(dim)?.to_dtype(dtype);
        }
        let (dim, dtype) = (resolve_dim_or_scalar("cumprod", dim.0, self.rank())?, self.dtype().to_sum());
        if self.rank() == 0 {
            return self.to_dtype(dtype);
        }
        if dtype.is_complex() {
            return complex_forms::cumprod(self, dim);
        }
        let out = scanned(Scan::Prod, self, dim, dtype)?;
        if !dtype.is_float() {
            return Ok(out.record_barrier("cumprod", &[self]));
        }
        out.record("cumprod", &[self], |save| {
            let (x, y) = (save.save(self), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                // An element is a factor of its own product and all later ones, all of which contain the product before it.
                // There is no division, so that zeros are no special case.
                let later = recurrence(&shifted(&x, dim, false, 0.0)?, g, dim, true)?;
                Ok(smallvec![Some(shifted(&ctx.output(&y), dim, true, 1.0)?.mul(&later)?)])
            }
        })
    }

    /// The logarithm of the cumulative sum of exponentials along a dimension, computed without overflow.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1000.0, 1000.0])?.logcumsumexp(0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1000.0, 1000.6932]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = scan_samples, errors = scan_errors, batch)]
    pub fn logcumsumexp(&self, dim: impl Into<Dim>) -> Result<Tensor> {
        let (dim, dtype) = (resolve_dim_or_scalar("logcumsumexp", dim.0, self.rank())?, self.dtype().to_float());
        // The derivative takes differences of results, for which half precision is too inaccurate.
        let x = self.to_dtype(dtype)?.to_dtype(dtype.compute_dtype())?;
        if self.rank() == 0 {
            return x.to_dtype(dtype);
        }
        if dtype.is_complex() {
            return complex_forms::logcumsumexp(self, dim);
        }
        let out = scanned(Scan::LogSumExp, &x, dim, x.dtype())?.record("logcumsumexp", &[&x], |save| {
            let (x, y) = (save.save(&x), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                let y = ctx.output(&y);
                // The share of an element in a later result is its share in its own result times the share of that in the later
                // one. Both are exponentials of numbers that are not positive.
                let grown = share(&y, &shifted(&y, dim, false, f64::INFINITY)?)?;
                let later = recurrence(&grown, g, dim, true)?;
                Ok(smallvec![Some(share(&x, &y)?.mul(&later)?)])
            }
        })?;
        out.to_dtype(dtype)
    }

    /// The cumulative maximum along a dimension, and its indices. The last of equal maxima is chosen, and gets the
    /// gradient. NaN counts as the largest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices) = tensor!([1.0, 3.0, 2.0, 3.0])?.cummax(0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 3.0, 3.0, 3.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 1, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = extreme_samples, errors = scan_errors, outputs = [values, indices], batch)]
    pub fn cummax(&self, dim: impl Into<Dim>) -> Result<(Tensor, Tensor)> {
        running_extreme("cummax", Extreme::Max, self, dim)
    }

    /// The cumulative minimum along a dimension, and its indices. The last of equal minima is chosen, and gets the
    /// gradient. NaN counts as the smallest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices) = tensor!([3.0, 1.0, 2.0, 1.0])?.cummin(0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 1.0, 1.0, 1.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 1, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = extreme_samples, errors = scan_errors, outputs = [values, indices], batch)]
    pub fn cummin(&self, dim: impl Into<Dim>) -> Result<(Tensor, Tensor)> {
        running_extreme("cummin", Extreme::Min, self, dim)
    }

    /// The array API's cumulative sum: [`cumsum`](Self::cumsum), optionally with an initial 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::CumulativeOptions};
    /// let x = tensor!([1, 2, 3])?;
    /// assert_eq!(x.cumulative_sum(0)?.to_vec::<i64>()?, [1, 3, 6]);
    /// let sums = x.cumulative_sum_with(0, CumulativeOptions::new().include_initial(true))?;
    /// assert_eq!(sums.to_vec::<i64>()?, [0, 1, 3, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(autocast_cuda = f32, samples = cumulative_samples, errors = scan_errors, batch)]
    pub fn cumulative_sum(&self, dim: impl Into<Dim>, options: impl Into<CumulativeOptions>) -> Result<Tensor> {
        let sums = match options.dtype {
            Some(dtype) => self.cumsum_with(dim, dtype)?,
            None => self.cumsum(dim)?,
        };
        if options.include_initial { with_initial(&sums, dim, 0.0) } else { Ok(sums) }
    }

    /// The array API's cumulative product: [`cumprod`](Self::cumprod), optionally with an initial 1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::CumulativeOptions};
    /// let x = tensor!([2, 3, 4])?;
    /// assert_eq!(x.cumulative_prod(0)?.to_vec::<i64>()?, [2, 6, 24]);
    /// let products = x.cumulative_prod_with(0, CumulativeOptions::new().include_initial(true))?;
    /// assert_eq!(products.to_vec::<i64>()?, [1, 2, 6, 24]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(autocast_cuda = f32, samples = cumulative_samples, errors = scan_errors, batch)]
    pub fn cumulative_prod(&self, dim: impl Into<Dim>, options: impl Into<CumulativeOptions>) -> Result<Tensor> {
        let products = match options.dtype {
            Some(dtype) => self.cumprod_with(dim, dtype)?,
            None => self.cumprod(dim)?,
        };
        if options.include_initial { with_initial(&products, dim, 1.0) } else { Ok(products) }
    }
}

/// Cumulative folds from the first element on, or from the last, outside the graph. The tensor has at least one dimension.
fn folds(op: &'static str, by: Scan, x: &Tensor, dim: usize, backwards: bool, dtype: DType) -> Result<Tensor> {
    x.along_dim(dim, &|x, dim| {
        Tensor::build(op, x.layout().shape().clone(), dtype, x.device(), |out| {
            let x = x.as_view()?;
            kernel!("scan" on [x, out]: reduce::scan::scan(by, x, dim, backwards, out))
        })
    })
}

/// Cumulative folds, outside the graph. The tensor has at least one dimension.
fn scanned(by: Scan, x: &Tensor, dim: usize, dtype: DType) -> Result<Tensor> {
    folds("scan", by, x, dim, false, dtype)
}

/// Cumulative sums from the first element on, or from the last.
#[track_caller]
fn sums(x: &Tensor, dim: usize, backwards: bool) -> Result<Tensor> {
    if x.dtype().is_complex() {
        return x.by_parts(|part| sums(part, dim, backwards));
    }
    let dtype = x.dtype().to_sum();
    if x.rank() == 0 {
        return x.to_dtype(dtype);
    }
    let out = folds("cumsum", Scan::Sum, x, dim, backwards, dtype)?;
    if !dtype.is_float() {
        return Ok(out.record_barrier("cumsum", &[x]));
    }
    // Each element is part of all sums from its own on, so that the cotangents are summed from the other end.
    out.record("cumsum", &[x], |_| {
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(sums(g, dim, !backwards)?)])
    })
}

/// `y[k] = factor[k] * y[k - 1] + term[k]` along a dimension, starting with 0 or, backwards, with `y[k + 1]` and starting at the
/// end. `factor` and `term` have the same shape and floating point dtype.
#[track_caller]
fn recurrence(factor: &Tensor, term: &Tensor, dim: usize, backwards: bool) -> Result<Tensor> {
    solved(factor, term, dim, backwards)?.record("recurrence", &[factor, term], |save| {
        let (factor, y) = (save.save(factor), save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            // A term is part of its own result and, through it, of the next: the same recurrence from the other end.
            let term = recurrence(&shifted(&factor, dim, backwards, 0.0)?, g, dim, !backwards)?;
            let factor = ctx.want(0, || term.mul(&shifted(&ctx.output(&y), dim, !backwards, 0.0)?))?;
            Ok(smallvec![factor, Some(term)])
        }
    })
}

/// The recurrence itself, outside the graph.
fn solved(factor: &Tensor, term: &Tensor, dim: usize, backwards: bool) -> Result<Tensor> {
    if factor.is_batched() || term.is_batched() {
        return Tensor::over_batch(&[factor, term], |level, all| {
            let own = |x: &Tensor| x.expand(behind(level.size, term.layout().shape())?);
            solved(&own(all[0])?, &own(all[1])?, dim + 1, backwards)
        });
    }
    Tensor::build("recurrence", term.layout().shape().clone(), term.dtype(), term.device(), |out| {
        let (factor, term) = (factor.as_view()?, term.as_view()?);
        kernel!("recurrence" on [factor, term, out]: reduce::scan::recurrence(factor, term, dim, backwards, out))
    })
}

/// Shifts the elements by one along a dimension, forwards or backwards, and puts `edge` at the free end.
#[track_caller]
fn shifted(x: &Tensor, dim: usize, forwards: bool, edge: f64) -> Result<Tensor> {
    let (shape, n) = (x.layout().shape(), x.shape()[dim]);
    if n == 0 {
        return Ok(x.clone());
    }
    let edge = Tensor::filled("shift", shape.with(dim, 1), edge.into(), x.dtype(), x.device())?;
    if forwards {
        Tensor::cat(&[&edge, &x.narrow(dim, 0, n - 1)?], dim)
    } else {
        Tensor::cat(&[&x.narrow(dim, 1, n - 1)?, &edge], dim)
    }
}

/// `exp(part - whole)` for `part <= whole`; 1 where both are the same infinity.
fn share(part: &Tensor, whole: &Tensor) -> Result<Tensor> {
    let alike = part.eq(whole)?.bitwise_and(whole.abs()?.eq(f64::INFINITY)?)?;
    alike.where_(0.0, part)?.sub(&alike.where_(0.0, whole)?)?.exp()
}

/// Puts an initial value before folds.
fn with_initial(folds: &Tensor, dim: Dim, initial: f64) -> Result<Tensor> {
    let folds = at_least_1d(folds)?;
    let dim = resolve_dim_or_scalar("cumulative", dim.0, folds.rank())?;
    let shape = folds.layout().shape().with(dim, 1);
    let first = Tensor::filled("cumulative", shape, initial.into(), folds.dtype(), folds.device())?;
    Tensor::cat(&[&first, &*folds], dim)
}

#[track_caller]
fn running_extreme(op: &'static str, which: Extreme, x: &Tensor, dim: Dim) -> Result<(Tensor, Tensor)> {
    let dim = resolve_dim_or_scalar(op, dim.0, x.rank())?;
    let lined = at_least_1d(x)?;
    let shape = lined.layout().shape();
    let indices = lined.along_dim(dim, &|x, dim| {
        Tensor::build(op, x.layout().shape().clone(), DType::I64, x.device(), |out| {
            let x = x.as_view()?;
            kernel!("cummax" on [x, out]: reduce::scan::running_arg(which, x, dim, out))
        })
    })?;
    let values = gather(op, &lined, dim, &indices, shape)?;
    let indices = indices.record_barrier(op, &[x]);
    if x.rank() == 0 { Ok((values.reshape(())?, indices.reshape(())?)) } else { Ok((values, indices)) }
}

fn scan_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, 0],
        sample![spread([3, 4], -2.0, 2.0)?, -1],
        sample![spread([2, 5, 3], -2.0, 2.0)?, 1],
        sample![spread([7], -2.0, 2.0)?, 0],
        sample![spread([], -2.0, 2.0)?, 0],
        sample![spread([2, 0], -2.0, 2.0)?, 1],
        sample![spread([0, 2], -2.0, 2.0)?, 1],
    ])
}

fn cumprod_samples() -> Result<Vec<Sample>> {
    let mut all = scan_samples()?;
    all.push(sample![Tensor::from_vec(vec![2.0, 0.0, 3.0, -1.5, 0.0, 0.5], [6])?, 0]);
    all.push(sample![Tensor::from_vec(vec![0.0, 0.0, 3.0, 1.0, 2.0, 0.0], [2, 3])?, 1]);
    Ok(all)
}

fn extreme_samples() -> Result<Vec<Sample>> {
    let mut all = scan_samples()?;
    all.push(sample![ints(&[3, -1, 3, 5, 5, 0], [2, 3])?, 1]);
    Ok(all)
}

fn cumulative_samples() -> Result<Vec<Sample>> {
    let mut all: Vec<Sample> = scan_samples()?.into_iter().map(|sample| sample.with("include_initial", true)).collect();
    all.push(sample![spread([3, 4], -2.0, 2.0)?, 0]);
    all.push(sample![ints(&[3, 1, 2], [3])?, 0; dtype = DType::F64]);
    Ok(all)
}

fn scan_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]]])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_long_lane_is_the_same_from_either_end() -> Result<()> {
        let x = spread([3, 1000], 0.9, 1.1)?;
        let forwards = recurrence(&x, &x, 1, false)?;
        let backwards = recurrence(&x.flip(1)?, &x.flip(1)?, 1, true)?.flip(1)?;
        assert!(forwards.allclose_with(&backwards, (1e-14, 0.0))?);
        let values = x.select(0, 1)?.to_vec::<f64>()?;
        let last = values.iter().fold(0.0, |y, x| x * y + x);
        assert!((forwards.at(&[1, -1])?.to_f64() - last).abs() < 1e-12 * last);
        Ok(())
    }

    #[test]
    fn running_logarithms_begin_with_nothing() -> Result<()> {
        let inf = f64::INFINITY;
        let x = Tensor::from_vec(vec![-inf, -inf, 1.0, inf], [4])?.requires_grad_(true)?;
        let y = x.logcumsumexp(0)?;
        assert_eq!(y.to_vec::<f64>()?, [-inf, -inf, 1.0, inf]);
        y.narrow(0, 0, 3)?.sum(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.at(&[2]).map(crate::Scalar::to_f64)).transpose()?, Some(1.0));
        Ok(())
    }
}
