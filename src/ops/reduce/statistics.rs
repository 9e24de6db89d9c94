//! Truth, counts, standard deviations, and reductions that ignore NaN.

use crate::autograd::{BackwardContext, no_grad};
use crate::backend::spec::Reduce;
use crate::layout::ReduceDims;
use crate::ops::ops;
use crate::ops::reduce::sums::{
    DTypeOptions, ReducePlan, VarOptions, Variance, dim_errors, float_dim_errors, float_only, over_dims,
};
use crate::ops::sample::{ErrorCase, Sample, error, ints, sample, spread};
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

/// Whether each element is nonzero. NaN is nonzero.
fn truths(x: &Tensor) -> Result<Tensor> {
    let x = x.detach();
    if x.dtype() == DType::Bool { Ok(x) } else { x.ne(0) }
}

/// The cotangent of a variance from that of its square root `y`; zero where the root is zero.
fn under_root(g: &Tensor, y: &Tensor) -> Result<Tensor> {
    let zero = y.eq(0.0)?;
    // There is no division by zero, so that the derivative of this is not NaN.
    zero.where_(0.0, g.div(zero.where_(1.0, y)?.mul(2.0)?)?)
}

/// # Statistics
#[ops]
impl Tensor {
    /// Whether all elements over some dimensions, or all (`..`), are nonzero; true if there are none. It has no
    /// derivative. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 0.0], [2.0, 3.0]])?;
    /// assert_eq!(x.all(1)?.to_vec::<bool>()?, [false, true]);
    /// assert!(!x.all(..)?.item::<bool>()?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(samples = truth_samples, errors = dim_errors, derivative = none)]
    pub fn all(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        let plan = ReducePlan::new("all", self, &over)?;
        Ok(plan.reduce("all", Reduce::Prod, &truths(self)?, DType::Bool)?.record_barrier("all", &[self]))
    }

    /// Whether any element over some dimensions, or all (`..`), is nonzero; false if there are none. It has no
    /// derivative. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[0.0, 0.0], [2.0, 0.0]])?;
    /// assert_eq!(x.any(1)?.to_vec::<bool>()?, [false, true]);
    /// assert!(x.any(..)?.item::<bool>()?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(samples = truth_samples, errors = dim_errors, derivative = none)]
    pub fn any(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        let plan = ReducePlan::new("any", self, &over)?;
        Ok(plan.reduce("any", Reduce::Sum, &truths(self)?, DType::Bool)?.record_barrier("any", &[self]))
    }

    /// The number of nonzero elements over some dimensions, or all (`..`). It has no derivative. See [`sum`](Self::sum)
    /// for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 0.0], [2.0, 3.0]])?;
    /// assert_eq!(x.count_nonzero(0)?.to_vec::<i64>()?, [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(samples = truth_samples, errors = dim_errors, derivative = none)]
    pub fn count_nonzero(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        let plan = ReducePlan::new("count_nonzero", self, &over)?;
        let count = plan.reduce("count_nonzero", Reduce::Sum, &truths(self)?, DType::I64)?;
        Ok(count.record_barrier("count_nonzero", &[self]))
    }

    /// The [`sum`](Self::sum) over some dimensions, or all (`..`), where NaN counts as 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, f32::NAN, 2.0])?.nansum(..)?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(autocast_cuda = own, samples = nan_samples, errors = dim_errors)]
    pub fn nansum(&self, over: impl Into<ReduceDims>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            // NaN is replaced before a cast, as integers have no NaN.
            let numbers =
                if dtype.is_float() || dtype.is_complex() { self.clone() } else { self.ne(self)?.where_(0, self)? };
            return numbers.to_dtype(dtype)?.nansum(over)?.to_dtype(dtype);
        }
        if self.dtype().is_complex() {
            return self.isnan()?.where_(0, self)?.sum(over);
        }
        if !self.dtype().is_float() {
            return self.sum(over);
        }
        self.ne(self)?.where_(0.0, self)?.sum(over)
    }

    /// The [`mean`](Self::mean) over some dimensions, or all (`..`), of the elements that are not NaN; NaN if there are
    /// none.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, f32::NAN, 2.0])?.nanmean(..)?.item::<f32>()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = nan_samples, errors = float_dim_errors)]
    pub fn nanmean(&self, over: impl Into<ReduceDims>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.nanmean(over);
        }
        float_only("nanmean", self)?;
        // The sum and the count may not fit into half precision.
        let wide = self.to_dtype(self.dtype().compute_dtype())?;
        let count = self.eq(self)?.sum(over.clone())?.to_dtype(wide.dtype())?;
        wide.nansum(over)?.div(count)?.to_dtype(self.dtype())
    }

    /// The standard deviation over some dimensions, or all (`..`), the square root of the [`var`](Self::var). Where it
    /// is 0, its gradient is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])?;
    /// assert_eq!(x.std(1)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(tensor!([1.0, 5.0])?.std_with(.., 0)?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = std_samples, errors = float_dim_errors)]
    pub fn std(&self, over: impl Into<ReduceDims>, options: impl Into<VarOptions>) -> Result<Tensor> {
        if self.dtype().is_complex() {
            let variance = self.var_with(over, options)?;
            let zero = variance.eq(0.0)?;
            // The square root of 0 is avoided, as its derivative is infinite.
            return zero.where_(0.0, zero.where_(1.0, &variance)?.sqrt()?);
        }
        float_only("std", self)?;
        let variance = Variance::new("std", self, ReducePlan::new("std", self, &over)?, options.taken())?;
        let out = no_grad(|| variance.out.sqrt()?.to_dtype(self.dtype()))?;
        out.record("std", &[self], |save| {
            let (slope, y) = (variance.slope(save, self), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| Ok(smallvec![Some(slope.times(&under_root(g, &ctx.output(&y))?)?)])
        })
    }

    /// The standard deviation and the mean over some dimensions, or all (`..`). See [`std`](Self::std).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (std, mean) = tensor!([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])?.std_mean(1)?;
    /// assert_eq!(std.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(mean.to_vec::<f32>()?, [2.0, 5.0]);
    /// let (std, _) = tensor!([1.0, 5.0])?.std_mean_with(.., 0)?;
    /// assert_eq!(std.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there is no such dimension, or one is named twice.
    #[op(samples = std_mean_samples, errors = float_dim_errors, outputs = [std, mean])]
    pub fn std_mean(&self, over: impl Into<ReduceDims>, options: impl Into<VarOptions>) -> Result<(Tensor, Tensor)> {
        Ok((self.std_with(over.clone(), options)?, self.mean(over)?))
    }

    /// The minimum and the maximum over some dimensions, or all (`..`). See [`min`](Self::min) and [`max`](Self::max).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (min, max) = tensor!([[1.0, 3.0], [2.0, 0.0]])?.aminmax(1)?;
    /// assert_eq!(min.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(max.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = aminmax_errors, outputs = [min, max])]
    pub fn aminmax(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        Ok((self.min(over.clone())?, self.max(over)?))
    }
}

fn truth_samples() -> Result<Vec<Sample>> {
    let mut all = over_dims(-2.0, 2.0, true)?;
    all.push(sample![ints(&[0, 2, 0, 0, 1, 3], [2, 3])?, 0]);
    all.push(sample![ints(&[0, 2, 0, 0, 1, 3], [2, 3])?.gt(0)?, 1; keepdim = true]);
    Ok(all)
}

fn nan_samples() -> Result<Vec<Sample>> {
    over_dims(-2.0, 2.0, true)
}

fn std_samples() -> Result<Vec<Sample>> {
    // The deviation of a single element is always 0.
    let single = |sample: &Sample| sample.tensor().is_some_and(|x| x.numel() == 1);
    let flat = |sample: Sample| if single(&sample) { sample.zero_derivative() } else { sample };
    Ok(std_mean_samples()?.into_iter().map(flat).collect())
}

fn std_mean_samples() -> Result<Vec<Sample>> {
    let mut all: Vec<Sample> =
        over_dims(-2.0, 2.0, true)?.into_iter().map(|sample| sample.with("correction", 0.0)).collect();
    all.push(sample![spread([3, 4], -2.0, 2.0)?, 1]);
    all.push(sample![spread([3, 4], -2.0, 2.0)?, 0; correction = 0.5]);
    Ok(all)
}

fn aminmax_errors() -> Result<Vec<ErrorCase>> {
    let mut all = dim_errors()?;
    all.push(error!["nothing to choose from", "[2, 0]"; sample![Tensor::zeros([2, 0])?]]);
    Ok(all)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn truths_of_nan_and_of_nothing() -> Result<()> {
        let x = Tensor::from_vec(vec![f64::NAN, -0.0], [2])?;
        assert!(!x.all(..)?.item::<bool>()? && x.any(..)?.item::<bool>()?);
        assert_eq!(x.count_nonzero(..)?.item::<i64>()?, 1);
        let none = Tensor::zeros([0, 2])?;
        assert_eq!(none.all(0)?.to_vec::<bool>()?, [true, true]);
        assert_eq!(none.any(0)?.to_vec::<bool>()?, [false, false]);
        // A count of 256 is 0 in a byte.
        assert!(Tensor::ones_with([256], DType::U8)?.any(..)?.item::<bool>()?);
        Ok(())
    }

    #[test]
    fn no_gradient_goes_to_nan_and_none_comes_from_a_deviation_of_zero() -> Result<()> {
        let x = Tensor::from_vec(vec![1.0, f64::NAN, 3.0], [3])?.requires_grad_(true)?;
        x.nanmean(..)?.backward()?;
        assert_eq!(x.take_grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.5, 0.0, 0.5]));
        let x = Tensor::from_vec(vec![2.0; 3], [3])?.requires_grad_(true)?;
        x.std(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0; 3]));
        Ok(())
    }
}
