//! Scalars.
#![forbid(unsafe_code)]

use crate::{Complex, DType, Element, Result, dtype::with_dtype, error::bail};
use std::fmt;

/// A single number: an operand as in `x.mul(2.0)`, or an element of a tensor.
///
/// ```
/// use cotangent::{Scalar, tensor};
/// assert_eq!(Scalar::from(2_u8), Scalar::I64(2));
/// assert_eq!(tensor!([1.5, 2.5])?.at(&[1])?, Scalar::F64(2.5));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    F64(f64),
    I64(i64),
    U64(u64),
    Bool(bool),
    C128(Complex<f64>),
}

impl Scalar {
    /// The dtype of a tensor made from this number: `f32`, `i64`, `u64`, `bool` or `c64`.
    ///
    /// ```
    /// use cotangent::{DType, Scalar};
    /// assert_eq!((Scalar::from(1.5).default_dtype(), Scalar::from(1).default_dtype()), (DType::F32, DType::I64));
    /// ```
    pub const fn default_dtype(self) -> DType {
        match self {
            Scalar::F64(_) => DType::F32,
            Scalar::I64(_) => DType::I64,
            Scalar::U64(_) => DType::U64,
            Scalar::Bool(_) => DType::Bool,
            Scalar::C128(_) => DType::C64,
        }
    }

    /// The dtype of an operation of this number and a tensor of `dtype`: the tensor's, unless the number is of a higher category (a
    /// float with integers, a number with bools).
    pub(crate) fn promote_with(self, dtype: DType) -> DType {
        match self {
            // With f64 the parts are f64, too.
            Scalar::C128(_) => dtype.to_complex(),
            _ if self.default_dtype().category() > dtype.category() => self.default_dtype(),
            _ => dtype,
        }
    }

    /// Refuses a complex number for a real dtype, which would drop the imaginary part.
    pub(crate) fn check_real(self, op: &'static str, dtype: DType) -> Result<()> {
        match self {
            Scalar::C128(z) if !dtype.is_complex() => bail!(DType, op, "cannot convert {z} to {dtype}"),
            _ => Ok(()),
        }
    }

    /// Whether this number, truncated, is in the range of `dtype`: 300 is not in that of `u8`. Floating point dtypes and bool accept
    /// every real number.
    pub(crate) fn is_element(self, dtype: DType) -> bool {
        let Some((least, greatest)) = dtype.integers() else {
            return dtype.is_complex() || !matches!(self, Scalar::C128(_));
        };
        match self {
            Scalar::I64(x) => (least..=greatest).contains(&i128::from(x)),
            Scalar::U64(x) => i128::from(x) <= greatest,
            Scalar::Bool(_) => true,
            // The integer after the greatest is a power of 2, which is exact in f64.
            Scalar::F64(x) => x.trunc() >= least as f64 && x.trunc() < (greatest + 1) as f64,
            Scalar::C128(_) => false,
        }
    }

    /// This number as a lower bound, clamped to the minimum of an integer dtype.
    pub(crate) fn lower_bound_in(self, dtype: DType) -> Scalar {
        match dtype.integers() {
            Some((least, _)) if self.to_f64() < least as f64 => Scalar::I64(least as i64),
            _ => self,
        }
    }

    /// This number as an upper bound, clamped to the maximum of an integer dtype.
    pub(crate) fn upper_bound_in(self, dtype: DType) -> Scalar {
        match dtype.integers() {
            Some((_, greatest)) if self.to_f64() > greatest as f64 => Scalar::U64(greatest as u64),
            _ => self,
        }
    }

    /// This number, wrapped around if it is out of range for an integer dtype.
    pub(crate) fn wrapped(self, dtype: DType) -> Scalar {
        if self.is_element(dtype) || !dtype.is_int() {
            return self;
        }
        with_dtype!(dtype, T => T::from_scalar(self).to_scalar())
    }

    /// Refuses a number that is out of range for `dtype`.
    pub(crate) fn check_element(self, op: &'static str, dtype: DType) -> Result<()> {
        if self.is_element(dtype) {
            return Ok(());
        }
        self.check_real(op, dtype)?;
        bail!(Value, op, "{self} is out of range for {dtype}: cast the tensor first")
    }

    /// As [`check_element`](Self::check_element), for a number that is stored in a tensor. Unsigned dtypes accept a negative number
    /// whose absolute value is in range, and wrap it around, as PyTorch does: -1 is the maximum.
    pub(crate) fn check_put(self, op: &'static str, dtype: DType) -> Result<()> {
        match (self, dtype.integers()) {
            (Scalar::I64(x), Some((0, greatest))) if x < 0 && -i128::from(x) <= greatest => Ok(()),
            _ => self.check_element(op, dtype),
        }
    }

    /// This number as a float; NaN for a complex number.
    ///
    /// ```
    /// use cotangent::Scalar;
    /// assert_eq!((Scalar::I64(3).to_f64(), Scalar::Bool(true).to_f64()), (3.0, 1.0));
    /// ```
    pub fn to_f64(self) -> f64 {
        f64::from_scalar(self)
    }
}

impl From<isize> for Scalar {
    fn from(value: isize) -> Scalar {
        Scalar::I64(value as i64)
    }
}

impl From<usize> for Scalar {
    fn from(value: usize) -> Scalar {
        Scalar::I64(value as i64)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F64(x) => write!(f, "{x:?}"),
            Scalar::I64(x) => write!(f, "{x}"),
            Scalar::U64(x) => write!(f, "{x}"),
            Scalar::Bool(x) => write!(f, "{x}"),
            Scalar::C128(x) => write!(f, "{x}"),
        }
    }
}
