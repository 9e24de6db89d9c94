//! The right-hand side of a binary operation: a tensor or a number.

use super::Tensor;
use crate::{Complex, DType, Device, Result, Scalar};
use std::borrow::Cow;

/// The right-hand side of a binary operation.
///
/// A number takes the tensor's dtype unless it is of a higher category: `i64 * 2.5` is `f32`, `f16 * 2.5` stays `f16`.
///
/// ```
/// use cotangent::{Result, Tensor, tensor, arguments::Operand};
///
/// /// A user-defined function that takes what operations take.
/// fn twice_as_much<'a>(x: &Tensor, other: impl Into<Operand<'a>>) -> Result<Tensor> {
///     x.add(other)?.mul(2)
/// }
///
/// let x = tensor!([1.0, 2.0])?;
/// assert_eq!(twice_as_much(&x, 0.5)?.to_vec::<f32>()?, [3.0, 5.0]);
/// assert_eq!(twice_as_much(&x, &x)?.to_vec::<f32>()?, [4.0, 8.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Operand<'a> {
    /// A tensor that is only read.
    Borrowed(&'a Tensor),
    /// A tensor passed by value.
    Owned(Tensor),
    /// A number.
    Scalar(Scalar),
}

impl Operand<'_> {
    /// The operand as a tensor, for an operation with a tensor of `dtype` on `device`. A number out of range for an integer dtype
    /// wraps around, which is right where results wrap around: in sums, differences, products and bitwise operations.
    pub(crate) fn resolve(&self, dtype: DType, device: Device) -> Result<Cow<'_, Tensor>> {
        Ok(match self {
            Operand::Borrowed(tensor) => Cow::Borrowed(*tensor),
            Operand::Owned(tensor) => Cow::Borrowed(tensor),
            Operand::Scalar(scalar) => Cow::Owned(Tensor::scalar(*scalar, scalar.promote_with(dtype), device)?),
        })
    }

    /// As [`resolve`](Self::resolve), but a number out of range is an error.
    pub(crate) fn element(&self, op: &'static str, dtype: DType, device: Device) -> Result<Cow<'_, Tensor>> {
        if let Operand::Scalar(number) = self {
            number.check_element(op, number.promote_with(dtype))?;
        }
        self.resolve(dtype, device)
    }

    /// As [`element`](Self::element), for an operand that is stored in a tensor of `dtype`.
    pub(crate) fn put(&self, op: &'static str, dtype: DType, device: Device) -> Result<Cow<'_, Tensor>> {
        if let Operand::Scalar(number) = self {
            number.check_put(op, number.promote_with(dtype))?;
        }
        self.resolve(dtype, device)
    }

    /// As [`resolve`](Self::resolve), for comparisons: a number out of range becomes an infinity.
    pub(crate) fn compared(&self, dtype: DType, device: Device) -> Result<Cow<'_, Tensor>> {
        match self {
            Operand::Scalar(number) if !number.is_element(number.promote_with(dtype)) => {
                let beyond = f64::INFINITY.copysign(number.to_f64());
                Ok(Cow::Owned(Tensor::scalar(beyond.into(), DType::F64, device)?))
            }
            other => other.resolve(dtype, device),
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Operand<'a> {
        Operand::Borrowed(tensor)
    }
}

impl From<Tensor> for Operand<'_> {
    fn from(tensor: Tensor) -> Self {
        Operand::Owned(tensor)
    }
}

impl From<Scalar> for Operand<'_> {
    fn from(scalar: Scalar) -> Self {
        Operand::Scalar(scalar)
    }
}

macro_rules! from_numbers {
    ($($number:ty),+) => {$(
        impl From<$number> for Operand<'_> {
            fn from(number: $number) -> Self { Operand::Scalar(number.into()) }
        }
    )+};
}
from_numbers!(f64, f32, i64, i32, i16, i8, u8, u16, u32, u64, usize, isize, bool, Complex<f32>, Complex<f64>);
