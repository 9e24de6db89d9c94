//! Element types and their promotion table.

use crate::{Complex, Result, Scalar, error::bail};
use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
///
/// ```
/// use cotangent::{DType, Tensor};
/// let x = Tensor::zeros_with([2], DType::BF16)?;
/// assert_eq!((x.dtype(), x.dtype().size(), x.dtype().name()), (DType::BF16, 2, "bf16"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    /// Two `f32`: `complex64` elsewhere.
    C64,
    /// Two `f64`: `complex128` elsewhere.
    C128,
}

/// The categories of promotion: a number in an operation with a tensor changes the dtype of the result only if it is of a higher
/// category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Bool,
    Int,
    Float,
    Complex,
}

impl DType {
    /// Every dtype, in the order of the promotion table.
    pub const ALL: [DType; 15] = [
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
    ];

    /// The dtypes that kernels handle: all except the complex ones.
    #[cfg(feature = "samples")]
    pub(crate) const REAL: [DType; 13] = {
        let mut real = [DType::Bool; 13];
        let mut at = 0;
        while at < 13 {
            real[at] = DType::ALL[at];
            at += 1;
        }
        real
    };

    /// The dtype that kernels compute elements of this one in.
    pub(crate) const fn compute_dtype(self) -> DType {
        match self {
            DType::F64 => DType::F64,
            DType::F32 | DType::F16 | DType::BF16 => DType::F32,
            DType::U64 => DType::U64,
            complex @ (DType::C64 | DType::C128) => complex,
            _ => DType::I64,
        }
    }

    /// The size of an element in bytes.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!((DType::F16.size(), DType::I64.size()), (2, 8));
    /// ```
    #[doc(alias = "itemsize")]
    #[doc(alias = "element_size")]
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// The short name used in messages and printing: `f32`, `i64`, `bool`.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!(DType::F32.name(), "f32");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// Whether this is a floating point type. These and the [complex](Self::is_complex) types can have a gradient.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert!(DType::BF16.is_float() && !DType::I64.is_float());
    /// ```
    #[doc(alias = "is_floating_point")]
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether this is an integer type (bool is not).
    ///
    /// ```
    /// use cotangent::DType;
    /// assert!(DType::U8.is_int() && !DType::Bool.is_int());
    /// ```
    pub const fn is_int(self) -> bool {
        !self.is_float() && !self.is_complex() && !matches!(self, DType::Bool)
    }

    /// Whether this is a type of complex numbers.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert!(DType::C64.is_complex() && !DType::F32.is_complex());
    /// ```
    #[inline]
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// Whether its elements can have a gradient.
    #[inline]
    pub(crate) const fn is_differentiable(self) -> bool {
        self.is_float() || self.is_complex()
    }

    /// The dtype of the parts of complex numbers; any other dtype is returned unchanged.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!((DType::C64.to_real(), DType::F16.to_real()), (DType::F32, DType::F16));
    /// ```
    pub const fn to_real(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex dtype for this one: `c128` for `f64`, else `c64`.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!((DType::F64.to_complex(), DType::I64.to_complex()), (DType::C128, DType::C64));
    /// ```
    pub const fn to_complex(self) -> DType {
        match self {
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }

    /// The largest finite number of a float type.
    pub(crate) const fn largest(self) -> f64 {
        match self {
            DType::F16 => 65504.0,
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F32 => f32::MAX as f64,
            _ => f64::MAX,
        }
    }

    /// The minimum and maximum of an integer dtype.
    pub(crate) const fn integers(self) -> Option<(i128, i128)> {
        if !self.is_int() {
            return None;
        }
        let bits = 8 * self.size();
        Some(if self.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) })
    }

    pub(crate) fn category(self) -> Category {
        match self {
            DType::Bool => Category::Bool,
            d if d.is_float() => Category::Float,
            d if d.is_complex() => Category::Complex,
            _ => Category::Int,
        }
    }

    /// The result dtype of floating point functions: this dtype if it is floating point or complex, else `f32`.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!((DType::F16.to_float(), DType::I64.to_float()), (DType::F16, DType::F32));
    /// ```
    pub const fn to_float(self) -> DType {
        if self.is_float() || self.is_complex() { self } else { DType::F32 }
    }

    /// The result dtype of sums and products: integers and bools become `i64`, but `u64` stays.
    pub(crate) const fn to_sum(self) -> DType {
        match self {
            DType::U64 => DType::U64,
            d if d.is_float() || d.is_complex() => d,
            _ => DType::I64,
        }
    }

    /// The common dtype of two dtypes, by the promotion rules of PyTorch and the array API.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert_eq!(DType::I32.promote(DType::F16)?, DType::F16);
    /// assert_eq!(DType::U8.promote(DType::I8)?, DType::I16);
    /// assert_eq!(DType::F16.promote(DType::BF16)?, DType::F32);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// `u64` has no common integer type with the signed integers.
    #[doc(alias = "promote_types")]
    #[doc(alias = "result_type")]
    pub fn promote(self, other: DType) -> Result<DType> {
        use DType::{BF16, Bool, F16, F32, U64};
        if self == other {
            return Ok(self);
        }
        Ok(match (self, other) {
            (Bool, d) | (d, Bool) => d,
            (a, b) if a.is_complex() && b.is_complex() => wider(a, b),
            (c, f) | (f, c) if c.is_complex() => {
                if f == DType::F64 {
                    DType::C128
                } else {
                    c
                }
            }
            (F16, BF16) | (BF16, F16) => F32,
            (a, b) if a.is_float() && b.is_float() => wider(a, b),
            (f, _) | (_, f) if f.is_float() => f,
            (U64, s) | (s, U64) if s.is_signed() => {
                bail!(DType, "promote", "u64 and {s} have no common integer type: cast one of them first")
            }
            (a, b) if a.is_signed() == b.is_signed() => wider(a, b),
            (a, b) => {
                let (unsigned, signed) = if a.is_signed() { (b, a) } else { (a, b) };
                wider(signed, signed_above(unsigned))
            }
        })
    }

    /// Whether `other` holds every value of this dtype exactly.
    ///
    /// ```
    /// use cotangent::DType;
    /// assert!(DType::F32.fits_into(DType::F64) && DType::U8.fits_into(DType::I16));
    /// assert!(!DType::I64.fits_into(DType::F64) && !DType::U8.fits_into(DType::I8));
    /// ```
    #[doc(alias = "can_cast")]
    pub const fn fits_into(self, other: DType) -> bool {
        // The number of bits of an integer that a float holds exactly.
        const fn exact_bits(float: DType) -> usize {
            match float {
                DType::F64 => 53,
                DType::F32 => 24,
                DType::F16 => 11,
                _ => 8,
            }
        }
        match (self, other) {
            (DType::C64, DType::C64 | DType::C128) | (DType::C128, DType::C128) => true,
            (DType::C64 | DType::C128, _) => false,
            (a, DType::C64 | DType::C128) => a.fits_into(other.to_real()),
            (DType::Bool, _) => true,
            (_, DType::Bool) => matches!(self, DType::Bool),
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => false,
            (a, b) if a.is_float() => b.is_float() && a.size() <= b.size(),
            (a, b) if b.is_float() => 8 * a.size() - a.is_signed() as usize <= exact_bits(b),
            (a, b) if a.is_signed() == b.is_signed() => a.size() <= b.size(),
            (a, b) => b.is_signed() && a.size() < b.size(),
        }
    }

    const fn is_signed(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
}

fn wider(a: DType, b: DType) -> DType {
    if a.size() >= b.size() { a } else { b }
}

/// The signed type that holds all values of an unsigned one of at most 32 bits.
fn signed_above(unsigned: DType) -> DType {
    match unsigned {
        DType::U8 => DType::I16,
        DType::U16 => DType::I32,
        _ => DType::I64,
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element type of some [`DType`].
///
/// The trait is sealed: the list of dtypes is fixed, and kernels rely on `DTYPE` naming the type's exact layout.
///
/// ```
/// use cotangent::{DType, Element, Result, Tensor, tensor};
///
/// /// The sum, in whatever type the caller reads it.
/// fn total<T: Element>(x: &Tensor) -> Result<T> {
///     x.sum(..)?.to_dtype(T::DTYPE)?.item()
/// }
///
/// assert_eq!(total::<u8>(&tensor!([1.0, 2.0])?)?, 3);
/// assert_eq!(<f32 as Element>::DTYPE, DType::F32);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Element: sealed::Sealed + Copy + Send + Sync + fmt::Debug + 'static {
    /// The dtype of this type.
    const DTYPE: DType;

    /// Converts a number to this type, by the rules of [`Tensor::to_dtype`](crate::Tensor::to_dtype). For a real type, a complex
    /// number is treated as NaN.
    fn from_scalar(value: Scalar) -> Self;

    /// This element as a number.
    fn to_scalar(self) -> Scalar;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident, $variant:ident, |$x:ident| $widen:expr, |$f:ident| $from_f:expr, |$i:ident| $from_i:expr, |$u:ident| $from_u:expr;)+) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn from_scalar(value: Scalar) -> Self {
                match value {
                    Scalar::F64($f) => $from_f,
                    Scalar::I64($i) => $from_i,
                    Scalar::U64($u) => $from_u,
                    Scalar::Bool(b) => { let $i = i64::from(b); $from_i }
                    // Callers refuse it before.
                    Scalar::C128(_) => { let $f = f64::NAN; $from_f }
                }
            }

            #[inline]
            fn to_scalar(self) -> Scalar {
                let $x = self;
                Scalar::$variant($widen)
            }
        }

        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Scalar { value.to_scalar() }
        }
    )+};
}

elements! {
    f64 => F64, F64, |x| x, |f| f, |i| i as f64, |u| u as f64;
    f32 => F32, F64, |x| f64::from(x), |f| f as f32, |i| i as f32, |u| u as f32;
    f16 => F16, F64, |x| x.to_f64(), |f| f16::from_f64(f), |i| f16::from_f64(i as f64), |u| f16::from_f64(u as f64);
    bf16 => BF16, F64, |x| x.to_f64(), |f| bf16::from_f64(f), |i| bf16::from_f64(i as f64), |u| bf16::from_f64(u as f64);
    i64 => I64, I64, |x| x, |f| f as i64, |i| i, |u| u as i64;
    i32 => I32, I64, |x| i64::from(x), |f| f as i64 as i32, |i| i as i32, |u| u as i32;
    i16 => I16, I64, |x| i64::from(x), |f| f as i64 as i16, |i| i as i16, |u| u as i16;
    i8 => I8, I64, |x| i64::from(x), |f| f as i64 as i8, |i| i as i8, |u| u as i8;
    u8 => U8, I64, |x| i64::from(x), |f| f as i64 as u8, |i| i as u8, |u| u as u8;
    u16 => U16, I64, |x| i64::from(x), |f| f as i64 as u16, |i| i as u16, |u| u as u16;
    u32 => U32, I64, |x| i64::from(x), |f| f as i64 as u32, |i| i as u32, |u| u as u32;
    u64 => U64, U64, |x| x, |f| float_to_u64(f), |i| i as u64, |u| u;
    bool => Bool, Bool, |x| x, |f| f != 0.0, |i| i != 0, |u| u != 0;
}

macro_rules! complex_elements {
    ($($part:ident => $dtype:ident;)+) => {$(
        impl sealed::Sealed for Complex<$part> {}
        impl Element for Complex<$part> {
            const DTYPE: DType = DType::$dtype;

            fn from_scalar(value: Scalar) -> Self {
                match value {
                    Scalar::C128(z) => Complex::new(z.re as $part, z.im as $part),
                    real => Complex::new($part::from_scalar(real), 0.0),
                }
            }

            fn to_scalar(self) -> Scalar {
                Scalar::C128(Complex::new(self.re.into(), self.im.into()))
            }
        }

        impl From<Complex<$part>> for Scalar {
            fn from(value: Complex<$part>) -> Scalar { value.to_scalar() }
        }
    )+};
}
complex_elements! {
    f32 => C64;
    f64 => C128;
}

/// Converts a float to `u64`: rounds towards zero; negative numbers wrap around, as for all integer dtypes.
#[inline(always)]
pub(crate) fn float_to_u64(x: f64) -> u64 {
    if x < 0.0 { x as i64 as u64 } else { x as u64 }
}

/// Runs a block with a type alias bound to the Rust type of a dtype: `with_dtype!(dtype, T => body)`.
macro_rules! with_dtype {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F64 => {
                type $t = f64;
                $body
            }
            $crate::DType::F32 => {
                type $t = f32;
                $body
            }
            $crate::DType::F16 => {
                type $t = half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $t = half::bf16;
                $body
            }
            $crate::DType::I64 => {
                type $t = i64;
                $body
            }
            $crate::DType::I32 => {
                type $t = i32;
                $body
            }
            $crate::DType::I16 => {
                type $t = i16;
                $body
            }
            $crate::DType::I8 => {
                type $t = i8;
                $body
            }
            $crate::DType::U8 => {
                type $t = u8;
                $body
            }
            $crate::DType::U16 => {
                type $t = u16;
                $body
            }
            $crate::DType::U32 => {
                type $t = u32;
                $body
            }
            $crate::DType::U64 => {
                type $t = u64;
                $body
            }
            $crate::DType::Bool => {
                type $t = bool;
                $body
            }
            // No kernel gets complex numbers, see `Tensor::as_view`.
            $crate::DType::C64 | $crate::DType::C128 => {
                type $t = u8;
                debug_assert!(false, "a kernel for complex numbers");
                $body
            }
        }
    };
}
/// As [`with_dtype!`], also for complex numbers: for code that copies elements and does not compute with them.
macro_rules! with_any_dtype {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::DType::C64 => {
                type $t = $crate::Complex<f32>;
                $body
            }
            $crate::DType::C128 => {
                type $t = $crate::Complex<f64>;
                $body
            }
            real => $crate::dtype::with_dtype!(real, $t => $body),
        }
    };
}
pub(crate) use {with_any_dtype, with_dtype};

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_symmetric_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a).ok(), Some(a));
            for b in DType::ALL {
                assert_eq!(a.promote(b).ok(), b.promote(a).ok(), "{a} with {b}");
            }
        }
    }

    #[test]
    fn promotion_holds_the_values_of_both() {
        for (a, b, want) in [
            (DType::Bool, DType::U8, DType::U8),
            (DType::U8, DType::I8, DType::I16),
            (DType::U16, DType::I16, DType::I32),
            (DType::U32, DType::I8, DType::I64),
            (DType::I64, DType::F16, DType::F16),
            (DType::U64, DType::U8, DType::U64),
            (DType::BF16, DType::F32, DType::F32),
        ] {
            assert_eq!(a.promote(b).ok(), Some(want), "{a} with {b}");
        }
        let refused = DType::U64.promote(DType::I8).map_err(|e| e.to_string());
        assert_eq!(refused, Err("promote: u64 and i8 have no common integer type: cast one of them first".into()));
    }
}
