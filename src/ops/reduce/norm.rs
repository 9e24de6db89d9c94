//! Norms of elements, and distances.

use crate::error::bail;
use crate::layout::resolve_dim;
use crate::layout::{Dim, Dims, ReduceDims};
use crate::ops::ops;
use crate::ops::reduce::sums::{dim_errors, float_only, over_dims};
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Tensor, keepdim};

options! {
    /// The options of [`Tensor::norm_with`]. A number converts to `p`.
    ///
    /// ```
    /// use cotangent::{tensor, options::NormOptions};
    /// let x = tensor!([3.0, -4.0])?;
    /// assert_eq!(x.norm_with(.., NormOptions::new().p(1.0))?.item::<f32>()?, 7.0);
    /// assert_eq!(x.norm_with(.., f64::INFINITY)?.item::<f32>()?, 4.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct NormOptions {
        /// The order: any number; inf and -inf give the largest and the smallest absolute value. 2 is the Frobenius norm.
        p: f64 = 2.0,
        /// The dtype that elements are cast to first.
        dtype: Option<DType> = None,
    }
}

impl From<f64> for NormOptions {
    fn from(p: f64) -> NormOptions {
        NormOptions::new().p(p)
    }
}

options! {
    /// The options of [`Tensor::dist_with`]. A number converts to `p`.
    ///
    /// ```
    /// use cotangent::{tensor, options::DistOptions};
    /// let (x, y) = (tensor!([3.0, 4.0])?, tensor!([0.0, 0.0])?);
    /// assert_eq!(x.dist_with(&y, DistOptions::new().p(1.0))?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct DistOptions {
        /// The order, as in [`NormOptions::p`].
        p: f64 = 2.0,
    }
}

impl From<f64> for DistOptions {
    fn from(p: f64) -> DistOptions {
        DistOptions::new().p(p)
    }
}

/// A power of each element, or `at_zero` for elements of 0, which get no derivative.
fn power_but_at_zero(x: &Tensor, p: f64, at_zero: f64) -> Result<Tensor> {
    let zero = x.eq(0.0)?;
    // 1 replaces 0 in the power, so that no infinity is multiplied by the zero cotangent.
    zero.where_(at_zero, zero.where_(1.0, x)?.pow(p)?)
}

/// The norm of elements of a compute dtype.
fn norm(x: &Tensor, over: ReduceDims, p: f64) -> Result<Tensor> {
    if p == 0.0 {
        // The number of nonzero elements: a function of the elements with a derivative of zero.
        return x.ne(0.0)?.where_(1.0, x.mul(0.0)?)?.sum(over);
    } else if p == 1.0 {
        return x.abs()?.sum(over);
    } else if p == f64::INFINITY {
        return x.abs()?.max(over);
    } else if p == f64::NEG_INFINITY {
        return x.abs()?.min(over);
    } else if p == 2.0 {
        return power_but_at_zero(&x.square()?.sum(over)?, 0.5, 0.0);
    } else if p < 0.0 {
        // For a negative p an element of 0 makes the norm 0.
        return power_but_at_zero(&x.abs()?, p, f64::INFINITY)?.sum(over)?.pow(1.0 / p);
    }
    power_but_at_zero(&power_but_at_zero(&x.abs()?, p, 0.0)?.sum(over)?, 1.0 / p, 0.0)
}

/// # Norms and distances
#[ops]
impl Tensor {
    /// The norm `(Σ |x|^p)^(1/p)` over some dimensions, or all (`..`); `p` is 2 by default. Where it is 0, its gradient
    /// is 0. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[3.0, -4.0], [0.0, 0.0]])?;
    /// assert_eq!(x.norm(1)?.to_vec::<f32>()?, [5.0, 0.0]);
    /// assert_eq!(x.norm_with(.., 1.0)?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, `p` is NaN, there is no such dimension, one is named twice, or there are no elements
    /// for a `p` that is infinite or negative.
    #[op(autocast_cuda = f32, samples = norm_samples, errors = norm_errors)]
    pub fn norm(&self, over: impl Into<ReduceDims>, options: impl Into<NormOptions>) -> Result<Tensor> {
        let NormOptions { p, dtype } = options;
        let dtype = dtype.unwrap_or(self.dtype());
        if dtype.is_complex() || (self.dtype().is_complex() && dtype.is_float()) {
            return self.to_dtype(dtype.to_complex())?.abs()?.norm_with(over, p);
        }
        if !dtype.is_float() {
            bail!(DType, "norm", "dtype must be floating point or complex, got {dtype}: cast with to_dtype first");
        }
        if p.is_nan() {
            bail!(Value, "norm", "p must not be NaN");
        }
        if (p < 0.0 || p == f64::INFINITY) && self.numel() == 0 {
            let over = crate::ops::reduce::sums::ReducePlan::new("norm", self, &over)?;
            if over.count() == 0 {
                bail!(
                    Shape,
                    "norm",
                    "reduced dimensions must not be empty for p = {p}, got {:?} of shape {:?}",
                    &over.dims[..],
                    self.shape()
                );
            }
        }
        // The powers of half precision are taken and added up in f32.
        norm(&self.to_dtype(dtype)?.to_dtype(dtype.compute_dtype())?, over, p)?.to_dtype(dtype)
    }

    /// The [`norm`](Self::norm) of the difference of two tensors, which broadcast.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (x, y) = (tensor!([1.0, 2.0])?, tensor!([4.0, 6.0])?);
    /// assert_eq!(x.dist(&y)?.item::<f32>()?, 5.0);
    /// assert_eq!(x.dist_with(&y, 1.0)?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the elements are not floats, or `p` is NaN.
    #[op(autocast_cuda = f32, samples = dist_samples, errors = dist_errors)]
    pub fn dist<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<DistOptions>) -> Result<Tensor> {
        let difference = self.sub(other)?;
        if !difference.dtype().is_complex() {
            float_only("dist", &difference)?;
        }
        difference.norm_with(Dims::ALL, options.p)
    }

    /// Scales each slice along a dimension whose norm exceeds `maxnorm` to the norm `maxnorm`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[3.0, 4.0], [0.0, 1.0]])?.renorm(2.0, 0, 1.0)?;
    /// assert!(x.allclose(&tensor!([[0.6, 0.8], [0.0, 1.0]])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, there are fewer than two dimensions or no such dimension, `p` is not positive, or
    /// `maxnorm` is negative.
    #[op(in_place, autocast_cuda = f32, samples = renorm_samples, errors = renorm_errors)]
    pub fn renorm(&self, p: f64, dim: impl Into<Dim>, maxnorm: f64) -> Result<Tensor> {
        if !self.dtype().is_complex() {
            float_only("renorm", self)?;
        }
        if self.rank() < 2 {
            bail!(Shape, "renorm", "input must have at least 2 dimensions, got shape {:?}", self.shape());
        }
        let dim = resolve_dim("renorm", dim.0, self.rank())?;
        // Written so that NaN is refused as well.
        if !(p > 0.0 && maxnorm >= 0.0) {
            bail!(Value, "renorm", "p must be positive and maxnorm ≥ 0, got p = {p} and maxnorm = {maxnorm}");
        }
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        // Fails for lack of memory before anything is summed.
        let x = self.contiguous()?;
        let others: Vec<usize> = (0..self.rank()).filter(|&d| d != dim).collect();
        let size = if self.dtype().is_complex() { x.abs()? } else { x.to_dtype(self.dtype().compute_dtype())? };
        let norm = norm(&size, keepdim(others), p)?;
        // As in PyTorch, slightly smaller than `maxnorm` after rounding.
        let scale = norm.add(1e-7)?.reciprocal()?.mul(maxnorm)?;
        x.mul(norm.gt(maxnorm)?.where_(scale, 1.0)?)?.to_dtype(self.dtype())
    }
}

const POWERS: [f64; 7] = [1.0, 3.0, 0.5, 1.5, -1.0, f64::INFINITY, f64::NEG_INFINITY];

fn norm_samples() -> Result<Vec<Sample>> {
    let mut all = over_dims(0.2, 2.0, true)?;
    for p in POWERS {
        all.push(sample![spread([2, 3, 4], -2.2, 2.0)?, [0, -1]; keepdim = true, p = p]);
        all.push(sample![spread([5], -2.0, 2.2)?; p = p]);
    }
    all.push(sample![spread([2, 3], -2.0, 2.0)?, 1; p = 0.0].zero_derivative());
    all.push(sample![ints(&[3, -4, 0, 0], [2, 2])?, 1; dtype = DType::F64]);
    Ok(all)
}

fn norm_errors() -> Result<Vec<ErrorCase>> {
    let mut all = dim_errors()?;
    all.push(error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?, 0]]);
    all.push(error!["an integer dtype", "i32"; sample![normal([2], 1)?, 0; dtype = DType::I32]]);
    all.push(error!["no power", "NaN"; sample![normal([2], 1)?, 0; p = f64::NAN]]);
    all.push(error!["the largest of nothing", "inf", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1; p = f64::INFINITY]]);
    all.push(error!["a negative power of nothing", "-1", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1; p = -1.0]]);
    Ok(all)
}

fn dist_samples() -> Result<Vec<Sample>> {
    let mut all = vec![
        sample![spread([2, 3], -1.0, 2.0)?, spread([3], -2.0, 0.5)?],
        sample![spread([4], -1.0, 2.0)?, 0.3; p = 3.0],
        sample![spread([], 1.0, 2.0)?, spread([2, 2], -2.0, 0.5)?; p = 1.0],
        sample![spread([0], 1.0, 2.0)?, spread([0], -2.0, 0.5)?],
    ];
    all.push(sample![spread([5], -1.0, 2.2)?, spread([5], -2.0, 0.5)?; p = f64::INFINITY]);
    Ok(all)
}

fn dist_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![normal([2, 3], 1)?, normal([4], 2)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, ints(&[1, 2], [2])?]],
        error!["no power", "NaN"; sample![normal([2], 1)?, 1.0; p = f64::NAN]],
    ])
}

fn renorm_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, 2.0, 0, 1.5],
        sample![spread([3, 4], -2.0, 2.0)?, 1.0, -1, 2.5],
        sample![spread([2, 3, 4], -2.0, 2.0)?, 3.0, 1, 1.0],
        sample![spread([3, 4], -2.0, 2.3)?, f64::INFINITY, 0, 1.0],
        sample![spread([3, 4], -2.0, 2.0)?, 2.0, 0, 100.0],
        sample![spread([3, 0], -2.0, 2.0)?, 2.0, 0, 1.0],
    ])
}

fn renorm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a vector", "[3]"; sample![normal([3], 1)?, 2.0, 0, 1.0]],
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2.0, 2, 1.0]],
        error!["a power of zero", "p = 0"; sample![normal([2, 3], 1)?, 0.0, 0, 1.0]],
        error!["a negative norm", "-1"; sample![normal([2, 3], 1)?, 2.0, 0, -1.0]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?, 2.0, 0, 1.0]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn gradients_where_norms_are_zero_are_zero() -> Result<()> {
        for p in [0.5, 1.0, 1.5, 2.0, 3.0, -1.0] {
            let x = Tensor::from_vec(vec![0.0; 3], [3])?.requires_grad_(true)?;
            x.norm_with(.., p)?.backward()?;
            assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0; 3]), "{p}");
        }
        Ok(())
    }
}
