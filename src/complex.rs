//! Complex numbers.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A complex number: the element of a tensor of [`DType::C64`](crate::DType::C64) or [`DType::C128`](crate::DType::C128).
///
/// ```
/// use cotangent::{Complex, Tensor};
/// let z = Complex::new(3.0_f32, 4.0);
/// assert_eq!((z * z.conj()).re, 25.0);
/// let x = Tensor::new([z, Complex::<f32>::I])?;
/// assert_eq!(x.abs()?.to_vec::<f32>()?, [5.0, 1.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

impl<T> Complex<T> {
    /// The number with these parts.
    pub const fn new(re: T, im: T) -> Complex<T> {
        Complex { re, im }
    }
}

macro_rules! floats {
    ($($t:ident),+) => {$(
        impl Complex<$t> {
            /// The imaginary unit.
            pub const I: Complex<$t> = Complex::new(0.0, 1.0);

            /// The complex conjugate.
            #[must_use]
            pub fn conj(self) -> Complex<$t> {
                Complex::new(self.re, -self.im)
            }

            /// The absolute value.
            pub fn abs(self) -> $t {
                self.re.hypot(self.im)
            }
        }

        impl From<$t> for Complex<$t> {
            fn from(re: $t) -> Complex<$t> {
                Complex::new(re, 0.0)
            }
        }

        impl Add for Complex<$t> {
            type Output = Complex<$t>;
            #[inline]
            fn add(self, other: Self) -> Self {
                Complex::new(self.re + other.re, self.im + other.im)
            }
        }

        impl Sub for Complex<$t> {
            type Output = Complex<$t>;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Complex::new(self.re - other.re, self.im - other.im)
            }
        }

        impl Mul for Complex<$t> {
            type Output = Complex<$t>;
            #[inline]
            fn mul(self, other: Self) -> Self {
                Complex::new(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
            }
        }

        impl Div for Complex<$t> {
            type Output = Complex<$t>;
            #[inline]
            fn div(self, other: Self) -> Self {
                // Scaled by the larger part, so that squares do not overflow.
                let scale = other.re.abs().max(other.im.abs());
                let (re, im) = (other.re / scale, other.im / scale);
                let size = (re * re + im * im) * scale;
                Complex::new((self.re * re + self.im * im) / size, (self.im * re - self.re * im) / size)
            }
        }

        impl Neg for Complex<$t> {
            type Output = Complex<$t>;
            #[inline]
            fn neg(self) -> Self {
                Complex::new(-self.re, -self.im)
            }
        }
    )+};
}
floats!(f32, f64);

/// As Python writes it: `3.0+4.0j`.
impl<T: fmt::Debug> fmt::Debug for Complex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let im = format!("{:?}", self.im);
        let sign = if im.starts_with('-') { "" } else { "+" };
        write!(f, "{:?}{sign}{im}j", self.re)
    }
}

impl<T: fmt::Debug> fmt::Display for Complex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn arithmetic() {
        let (a, b) = (Complex::new(1.0, 2.0), Complex::new(3.0, -4.0));
        assert_eq!((a + b, a - b, a * b), (Complex::new(4.0, -2.0), Complex::new(-2.0, 6.0), Complex::new(11.0, 2.0)));
        assert_eq!(a * b / b, a);
        assert_eq!(Complex::new(1e300, 1e300) / Complex::new(1e300, 1e300), Complex::new(1.0, 0.0));
        assert_eq!(format!("{} {}", a, b), "1.0+2.0j 3.0-4.0j");
    }
}
