//! Classification of floats, logic and closeness.

use crate::backend::spec::Ordered;
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, infinity, zero};
use crate::ops::elementwise::compare::comparison_errors;
use crate::ops::reduce::sums::real_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::{elementwise::complex_forms, ops};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Tensor};

options! {
    /// The options of [`Tensor::isclose_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::IscloseOptions};
    /// let x = tensor!([f32::NAN])?;
    /// assert!(x.isclose_with(&x, IscloseOptions::new().equal_nan(true))?.item::<bool>()?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct IscloseOptions {
        /// The relative tolerance.
        rtol: f64 = 1e-5,
        /// The absolute tolerance.
        atol: f64 = 1e-8,
        /// Whether NaN is close to NaN.
        equal_nan: bool = false,
    }
}

/// A bool tensor of the shape of `x`, filled with `answer`.
pub(in crate::ops) fn everywhere(x: &Tensor, answer: bool) -> Result<Tensor> {
    Tensor::full_with(x.shape(), answer, (DType::Bool, x.device()))
}

/// # Tests of values and logic
#[ops]
impl Tensor {
    /// True for NaN. Integers are never NaN.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isnan()?.to_vec::<bool>()?, [false, true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = kinds_of_numbers, derivative = none)]
    pub fn isnan(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.real()?.isnan()?.logical_or(&self.imag()?.isnan()?);
        }
        if !self.dtype().is_float() {
            return everywhere(self, false);
        }
        elementwise!(Compare isnan(self) |x| x.ne(x).0)
    }

    /// True for plus and minus infinity. Integers are never infinite.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isinf()?.to_vec::<bool>()?, [false, false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = kinds_of_numbers, derivative = none)]
    pub fn isinf(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.real()?.isinf()?.logical_or(&self.imag()?.isinf()?);
        }
        if !self.dtype().is_float() {
            return everywhere(self, false);
        }
        elementwise!(Compare isinf(self) |x| x.abs().eq(infinity()).0)
    }

    /// True for elements that are neither infinite nor NaN. Integers are always finite.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isfinite()?.to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = kinds_of_numbers, derivative = none)]
    pub fn isfinite(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.real()?.isfinite()?.logical_and(&self.imag()?.isfinite()?);
        }
        if !self.dtype().is_float() {
            return everywhere(self, true);
        }
        elementwise!(Compare isfinite(self) |x| x.abs().lt(infinity()).0)
    }

    /// True for plus infinity.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isposinf()?.to_vec::<bool>()?, [false, false, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = kinds_of_numbers, derivative = none)]
    pub fn isposinf(&self) -> Result<Tensor> {
        real_only("isposinf", self)?;
        if !self.dtype().is_float() {
            return everywhere(self, false);
        }
        elementwise!(Compare isposinf(self) |x| x.eq(infinity()).0)
    }

    /// True for minus infinity.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, f32::NAN, f32::NEG_INFINITY])?;
    /// assert_eq!(x.isneginf()?.to_vec::<bool>()?, [false, false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = kinds_of_numbers, derivative = none)]
    pub fn isneginf(&self) -> Result<Tensor> {
        real_only("isneginf", self)?;
        if !self.dtype().is_float() {
            return everywhere(self, false);
        }
        elementwise!(Compare isneginf(self) |x| x.eq(-infinity()).0)
    }

    /// True where the sign bit is set: for negative numbers, -0 and NaN with a sign.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-0.0, 0.0, -1.0])?.signbit()?.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = small_numbers, derivative = none)]
    pub fn signbit(&self) -> Result<Tensor> {
        real_only("signbit", self)?;
        if !self.dtype().is_float() {
            return self.to_dtype(self.dtype().to_sum())?.lt(0);
        }
        elementwise!(Compare signbit(self) |x| (zero() + 1.0).copysign(x).lt(zero()).0)
    }

    /// The logical AND. Nonzero elements are true.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2, 0])?.logical_and(&tensor!([3, 3])?)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = truths, errors = comparison_errors, derivative = none)]
    pub fn logical_and<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare logical_and(self, other) |a, b| (a.ne(zero()) & b.ne(zero())).0)
    }

    /// The logical OR. Nonzero elements are true.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2, 0])?.logical_or(&tensor!([0, 0])?)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = truths, errors = comparison_errors, derivative = none)]
    pub fn logical_or<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare logical_or(self, other) |a, b| (a.ne(zero()) | b.ne(zero())).0)
    }

    /// The logical XOR. Nonzero elements are true.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2, 0])?.logical_xor(&tensor!([3, 3])?)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = truths, errors = comparison_errors, derivative = none)]
    pub fn logical_xor<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare logical_xor(self, other) |a, b| a.ne(zero()).differs(b.ne(zero())).0)
    }

    /// The logical NOT. Nonzero elements are true.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2.0, 0.0])?.logical_not()?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = small_numbers, derivative = none)]
    pub fn logical_not(&self) -> Result<Tensor> {
        elementwise!(Compare logical_not(self) |x| x.eq(zero()).0)
    }

    /// True where `|self - other| ≤ atol + rtol · |other|`; by default `rtol` is 1e-5 and `atol` is 1e-8. Equal
    /// infinities are close. NaNs are close only with `equal_nan`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::IscloseOptions};
    /// let (a, b) = (tensor!([1.0, 2.0])?, tensor!([1.000001, 2.1])?);
    /// assert_eq!(a.isclose(&b)?.to_vec::<bool>()?, [true, false]);
    /// assert_eq!(a.isclose_with(&b, IscloseOptions::new().rtol(0.1))?.to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or a tolerance is negative or NaN.
    #[op(samples = close_samples, errors = close_errors, derivative = none)]
    pub fn isclose<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<IscloseOptions>) -> Result<Tensor> {
        static CLOSE: Elementwise = Elementwise::new("isclose", Domain::Compare, 2, 3, |x, p| {
            let (a, b) = (x[0], x[1]);
            // Infinities are excluded: their difference is NaN, and they would make the tolerance infinite.
            let near = (a - b).abs().le(p[1] + p[0] * b.abs()) & a.abs().lt(infinity()) & b.abs().lt(infinity());
            let both_nan = p[2].ne(zero()) & a.ne(a) & b.ne(b);
            (a.eq(b) | near | both_nan).0
        });
        let IscloseOptions { rtol, atol, equal_nan } = options;
        for (name, tolerance) in [("rtol", rtol), ("atol", atol)] {
            if tolerance.is_nan() || tolerance < 0.0 {
                bail!(Value, "isclose", "{name} must be ≥ 0, got {tolerance}");
            }
        }
        let other = other.compared(self.dtype(), self.device())?;
        let (dtype, _) = CLOSE.dtypes(&[self, &other])?;
        if dtype.is_complex() {
            let close = complex_forms::isclose(self, &other, rtol, atol, equal_nan)?;
            return Ok(close.record_barrier("isclose", &[self, &other]));
        }
        let compute = if dtype.is_float() { dtype } else { DType::F64 };
        let params = [rtol.into(), atol.into(), f64::from(u8::from(equal_nan)).into()];
        CLOSE.call_as(&[self, &other], &params, compute, DType::Bool)
    }

    /// Whether all pairs of elements are close, as a single bool. See [`isclose`](Self::isclose).
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert!(tensor!([1.0, 2.0])?.all_isclose(&tensor!([1.0, 2.000001])?)?.item::<bool>()?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`isclose`](Self::isclose).
    #[op(name = "allclose", samples = all_isclose_samples, errors = all_isclose_errors, derivative = none)]
    pub fn all_isclose<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<IscloseOptions>) -> Result<Tensor> {
        self.isclose_with(other, options)?.all(..)
    }
}

fn kinds_of_numbers() -> Result<Vec<Sample>> {
    let x = Tensor::from_vec(vec![1.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -2.5], [2, 3])?;
    Ok(vec![
        sample![x],
        sample![ints(&[1, 0, -3], [3])?],
        sample![ints(&[1, 0], [2])?.gt(0)?],
        sample![spread([], -1.0, 1.0)?],
        sample![spread([0, 2], -1.0, 1.0)?],
    ])
}

/// Samples with values that fit every integer dtype.
fn small_numbers() -> Result<Vec<Sample>> {
    let x = Tensor::from_vec(vec![1.0, -0.0, 0.0, -2.5, 7.0, -1.0], [2, 3])?;
    Ok(vec![
        sample![x],
        sample![ints(&[1, 0, -3], [3])?],
        sample![ints(&[1, 0], [2])?.gt(0)?],
        sample![spread([], -1.0, 1.0)?],
        sample![spread([0, 2], -1.0, 1.0)?],
    ])
}

fn truths() -> Result<Vec<Sample>> {
    let x = Tensor::from_vec(vec![1.0, 0.0, f64::NAN, -2.0], [4])?;
    Ok(vec![
        sample![&x, Tensor::from_vec(vec![0.0, 0.0, 1.0, 1.0], [4])?],
        sample![x.reshape([2, 2])?, 0.0],
        sample![ints(&[1, 0, 3], [3])?, ints(&[1, 1, 0], [3])?],
        sample![spread([2, 1], -1.0, 1.0)?.gt(0.0)?, spread([3], -1.0, 1.0)?.gt(0.0)?],
    ])
}

fn close_samples() -> Result<Vec<Sample>> {
    let inf = f64::INFINITY;
    let a = Tensor::from_vec(vec![1.0, 1.0, inf, inf, f64::NAN, 0.0], [6])?;
    let b = Tensor::from_vec(vec![1.000_001, 1.1, inf, 1.0, f64::NAN, 1e-9], [6])?;
    Ok(vec![
        sample![&a, &b],
        sample![&a, &b; equal_nan = true],
        sample![&a, b.reshape([6, 1])?; rtol = 0.2, atol = 0.0],
        sample![ints(&[100, 7], [2])?, ints(&[101, 7], [2])?; rtol = 0.02],
        sample![spread([0, 2], 0.0, 1.0)?, 1.0],
    ])
}

fn close_errors() -> Result<Vec<ErrorCase>> {
    let mut all = comparison_errors()?;
    let x = spread([2], 0.0, 1.0)?;
    all.push(error!["a negative tolerance", "rtol", "-1"; sample![&x, &x; rtol = -1.0]]);
    Ok(all)
}

fn all_isclose_samples() -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, x()?],
        sample![x()?, x()?.add(0.1)?],
        sample![x()?, x()?.add(0.1)?; atol = 0.2],
        sample![ints(&[1, 2], [2])?, 1; rtol = 2.0],
        sample![spread([0], 0.0, 1.0)?, 1.0],
    ])
}

fn all_isclose_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a negative tolerance", "rtol", "-1"; sample![normal([2], 1)?, 1.0; rtol = -1.0]]])
}
