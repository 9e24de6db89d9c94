//! The numbers that may stand beside a tensor.
#![forbid(unsafe_code)]

use crate::{Complex, DType, Element, Result, dtype::with_dtype, error::bail};
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

    /// Whether `dtype` has this number, a float without what is behind its point: bytes have no 300. Every dtype of floats has
    /// every real number, rounded, and that of bools has the truth of it.
    pub(crate) fn is_element(self, dtype: DType) -> bool {
        let Some((least, greatest)) = dtype.integers() else {
            return dtype.is_complex() || !matches!(self, Scalar::C128(_));
        };
        match self {
            Scalar::I64(x) => (least..=greatest).contains(&i128::from(x)),
            Scalar::U64(x) => i128::from(x) <= greatest,
            Scalar::Bool(_) => true,
            // The next integer is a power of 2, which f64 has.
            Scalar::F64(x) => x.trunc() >= least as f64 && x.trunc() < (greatest + 1) as f64,
            Scalar::C128(_) => false,
        }
    }

    /// This number as the least of a range: one below all that integers of this dtype have excludes none of them.
    pub(crate) fn lower_bound_in(self, dtype: DType) -> Scalar {
        match dtype.integers() {
            Some((least, _)) if self.to_f64() < least as f64 => Scalar::I64(least as i64),
            _ => self,
        }
    }

    /// The same as the greatest.
    pub(crate) fn upper_bound_in(self, dtype: DType) -> Scalar {
        match dtype.integers() {
            Some((_, greatest)) if self.to_f64() > greatest as f64 => Scalar::U64(greatest as u64),
            _ => self,
        }
    }

    /// This number as integers of this dtype have it, wrapped around if they do not.
    pub(crate) fn wrapped(self, dtype: DType) -> Scalar {
        if self.is_element(dtype) || !dtype.is_int() {
            return self;
        }
        with_dtype!(dtype, T => T::from_scalar(self).to_scalar())
    }

    /// Refuses a number that `dtype` does not have, and that would wrap around to another one.
    pub(crate) fn check_element(self, op: &'static str, dtype: DType) -> Result<()> {
        if self.is_element(dtype) {
            return Ok(());
        }
        self.check_real(op, dtype)?;
        bail!(Value, op, "{self} is not a number of {dtype}: cast the tensor first, or give one that is")
    }

    /// As [`check_element`](Self::check_element), where the number is put into a tensor. Unsigned integers take a negative one whose
    /// size they have, wrapped around, as in PyTorch: -1 is the largest.
    pub(crate) fn check_put(self, op: &'static str, dtype: DType) -> Result<()> {
        match (self, dtype.integers()) {
            (Scalar::I64(x), Some((0, greatest))) if x < 0 && -i128::from(x) <= greatest => Ok(()),
            _ => self.check_element(op, dtype),
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
