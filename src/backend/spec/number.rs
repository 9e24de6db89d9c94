//! The traits over which formulas are written: arithmetic, order, and functions of real numbers. Numbers without an order, such as
//! complex ones, implement only the first.
//!
//! The same generic code gives machine code for the numbers of each compute dtype ([`N`]) and, for [`Sym`](super::Sym), a formula
//! as data.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// Numbers that can be added and multiplied, with each other and with constants.
pub(crate) trait Arithmetic:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// A constant.
    fn constant(value: f64) -> Self;
}

/// Constants as left operands: `1.0 - x`. A formula has the bound `f64: Constant<T>`.
pub(crate) trait Constant<T>:
    Add<T, Output = T> + Sub<T, Output = T> + Mul<T, Output = T> + Div<T, Output = T>
{
}

impl<T, F> Constant<T> for F where F: Add<T, Output = T> + Sub<T, Output = T> + Mul<T, Output = T> + Div<T, Output = T> {}

/// Numbers with an order. Comparisons with NaN are false, except `ne`.
pub(crate) trait Ordered: Arithmetic {
    /// The result of a comparison.
    type Mask: Copy + BitAnd<Output = Self::Mask> + BitOr<Output = Self::Mask> + Not<Output = Self::Mask>;

    fn lt(self, other: Self) -> Self::Mask;
    fn le(self, other: Self) -> Self::Mask;
    fn eq(self, other: Self) -> Self::Mask;

    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }

    /// `then` if the mask is true, else `otherwise`. The derivative is that of the selected branch, whatever the other is.
    fn select(mask: Self::Mask, then: Self, otherwise: Self) -> Self;

    /// 1 if the mask is true, else 0.
    #[inline(always)]
    fn from_mask(mask: Self::Mask) -> Self {
        Self::select(mask, Self::constant(1.0), Self::constant(0.0))
    }
}

/// `then` if the mask is true, else `otherwise`: `select(a.lt(b), a, b)`.
#[inline(always)]
pub(crate) fn select<T: Ordered>(mask: T::Mask, then: T, otherwise: T) -> T {
    T::select(mask, then, otherwise)
}

/// A number of the compute dtype `C`, with the arithmetic of tensors: integers wrap around, and an integer divided by zero is
/// zero.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct N<C>(pub C);

macro_rules! numbers {
    ($($c:ident, |$a:ident, $b:ident| add $add:expr, sub $sub:expr, mul $mul:expr, div $div:expr, neg $neg:expr;)+) => {$(
        numbers!(@ $c Add add |$a, $b| $add);
        numbers!(@ $c Sub sub |$a, $b| $sub);
        numbers!(@ $c Mul mul |$a, $b| $mul);
        numbers!(@ $c Div div |$a, $b| $div);

        impl Neg for N<$c> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                let $a = self.0;
                N($neg)
            }
        }

        impl Arithmetic for N<$c> {
            #[inline(always)]
            fn constant(value: f64) -> Self {
                N(value as $c)
            }
        }

        impl Ordered for N<$c> {
            type Mask = bool;

            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self.0 < other.0
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self.0 <= other.0
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self.0 == other.0
            }
            #[inline(always)]
            fn select(mask: bool, then: Self, otherwise: Self) -> Self {
                if mask { then } else { otherwise }
            }
        }
    )+};
    (@ $c:ident $trait:ident $method:ident |$a:ident, $b:ident| $value:expr) => {
        impl $trait for N<$c> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                N($value)
            }
        }
        impl $trait<f64> for N<$c> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: f64) -> Self {
                $trait::$method(self, Self::constant(other))
            }
        }
        impl $trait<N<$c>> for f64 {
            type Output = N<$c>;
            #[inline(always)]
            fn $method(self, other: N<$c>) -> N<$c> {
                $trait::$method(N::<$c>::constant(self), other)
            }
        }
    };
}

numbers! {
    f32, |a, b| add a + b, sub a - b, mul a * b, div a / b, neg -a;
    f64, |a, b| add a + b, sub a - b, mul a * b, div a / b, neg -a;
    i64, |a, b| add a.wrapping_add(b), sub a.wrapping_sub(b), mul a.wrapping_mul(b),
        div if b == 0 { 0 } else { a.wrapping_div(b) }, neg a.wrapping_neg();
    u64, |a, b| add a.wrapping_add(b), sub a.wrapping_sub(b), mul a.wrapping_mul(b),
        div a.checked_div(b).unwrap_or(0), neg a.wrapping_neg();
}
