//! The numbers that may stand beside a tensor.
#![forbid(unsafe_code)]

use crate::{Complex, DType, Element, Result, error::bail};
use std::fmt;

/// A single number, as it stands beside a tensor in `x.mul(2.0)` or comes out of one.
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
    /// The dtype a tensor made from this number alone gets: `f32`, `i64`, `u64`, `bool` or `c64`.
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

    /// The dtype of a result when this number meets a tensor of `dtype`: the tensor's, unless the number is of a
    /// higher category (a float beside integers, a number beside bools).
    pub(crate) fn beside(self, dtype: DType) -> DType {
        match self {
            // Beside f64 the parts are f64, too.
            Scalar::C128(_) => dtype.to_complex(),
            _ if self.default_dtype().category() > dtype.category() => self.default_dtype(),
            _ => dtype,
        }
    }

    /// Refuses a complex number where `dtype` is a real one, which could only drop a part of it.
    pub(crate) fn check_real(self, op: &'static str, dtype: DType) -> Result<()> {
        match self {
            Scalar::C128(z) if !dtype.is_complex() => bail!(DType, op, "{z} cannot be an element of {dtype}"),
            _ => Ok(()),
        }
    }

    /// This number as a float; NaN for a complex one, which no float holds.
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
