//! Elementwise functions of one tensor.

use crate::backend::spec::{Ordered, Real, select};
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, sample, spread};
use crate::{DType, Result, Tensor};

/// # Sign, roots and powers of one tensor
#[ops]
impl Tensor {
    /// The negative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, -2])?.neg()?.to_vec::<i64>()?, [-1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.0, 2.0), errors = no_bools, aliases = ["negative"])]
    #[doc(alias = "negative")]
    pub fn neg(&self) -> Result<Tensor> {
        elementwise!(Number neg(self) |x| -x)
    }

    /// The absolute value; the magnitude of complex numbers. The gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 2.0])?.abs()?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.0, 2.1), errors = no_bools, aliases = ["absolute"])]
    #[doc(alias = "absolute")]
    pub fn abs(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return complex_abs(self);
        }
        elementwise!(Number abs(self) |x| x.abs())
    }

    /// The sign: -1, 0 or 1; 0 for NaN. Bools are unchanged. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 0.0, 2.0])?.sign()?.to_vec::<f32>()?, [-1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = signs, derivative = zero)]
    pub fn sign(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return Ok(self.clone());
        }
        elementwise!(Number sign(self) |x| x.sign())
    }

    /// The square. Bools give `i64`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.5, -2.0])?.square()?.to_vec::<f32>()?, [2.25, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = signs)]
    pub fn square(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.to_dtype(DType::I64);
        }
        elementwise!(Number square(self) |x| x * x, |g, _y| [g * (x + x)])
    }

    /// `1 / x`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2.0, -4.0])?.reciprocal()?.to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(0.5, 3.0))]
    pub fn reciprocal(&self) -> Result<Tensor> {
        elementwise!(Float reciprocal(self) |x| 1.0 / x, |g, y| [-g * (y * y)])
    }

    /// The square root.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([4.0, 2.25])?.sqrt()?.to_vec::<f32>()?, [2.0, 1.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(0.3, 3.0))]
    pub fn sqrt(&self) -> Result<Tensor> {
        elementwise!(Float sqrt(self) |x| x.sqrt(), |g, y| [g / (y + y)])
    }

    /// The reciprocal of the square root, `1 / √x`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([4.0])?.rsqrt()?.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(0.3, 3.0))]
    pub fn rsqrt(&self) -> Result<Tensor> {
        elementwise!(Float rsqrt(self) |x| x.rsqrt())
    }

    /// Returns the tensor unchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, -2])?.positive()?.to_vec::<i64>()?, [1, -2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(samples = || unary(-2.0, 2.1), errors = no_bools)]
    pub fn positive(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            bail!(DType, "positive", "not defined for bool: cast with to_dtype first");
        }
        Ok(self.clone())
    }
}

/// The magnitude; the gradient at 0 is 0.
#[track_caller]
fn complex_abs(x: &Tensor) -> Result<Tensor> {
    static ABS: Elementwise = Elementwise::new("abs", Domain::Float, 2, 0, |x, _| x[0].hypot(x[1]))
        .with_gradient(|g, x, y, _| x.iter().map(|&part| Some(select(y.eq(zero()), zero(), g * (part / y)))).collect());
    ABS.call(&[&x.real()?, &x.imag()?], &[])
}

/// Samples of a function of one tensor, on values between `low` and `high`.
pub(in crate::ops) fn unary(low: f64, high: f64) -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([3, 4], low, high)?], sample![spread([], low, high)?], sample![spread([2, 0], low, high)?]])
}

pub(in crate::ops) fn with_option(
    low: f64,
    high: f64,
    name: &'static str,
    value: &crate::ops::Arg,
) -> Result<Vec<Sample>> {
    let with = |sample: Sample| sample.with(name, value.clone());
    Ok(unary(low, high)?.into_iter().map(with).chain([sample![spread([4], low, high)?]]).collect())
}

/// The samples of [`unary`], and bools.
fn signs() -> Result<Vec<Sample>> {
    let mut all = unary(-2.0, 2.1)?;
    all.push(sample![Tensor::new([true, false])?]);
    Ok(all)
}

pub(in crate::ops) fn no_bools() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["bools", "bool", "cast"; sample![Tensor::zeros_with([2], DType::Bool)?]]])
}
