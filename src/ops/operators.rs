//! `+ - * / & | ^`, unary `-` and `!`, and `+= -= *= /=` on tensors and numbers. They panic with the message of the error,
//! as indexing a slice does. To handle errors, call the methods instead.

use crate::tensor::Operand;
use crate::{Result, Scalar, Tensor};
use std::ops;

#[track_caller]
#[allow(clippy::panic)]
pub(crate) fn sugar<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// An operation with a number on the left, which becomes a tensor so that dtypes are promoted as in the method.
#[track_caller]
pub(crate) fn reversed(
    op: &'static super::elementwise::call::Elementwise,
    left: Scalar,
    right: &Tensor,
) -> Result<Tensor> {
    let left = Operand::Scalar(left);
    let left = left.resolve(op.number_dtype(right.dtype()), right.device())?;
    op.call(&[&left, right], &[])
}

/// One generic implementation for all right-hand sides: with one per number type, type inference could not determine the
/// type of `&x + 1`.
macro_rules! operators {
    ($($left:ty),+) => {$(
        $crate::ops::operators::operators! { @ $left:
            Add add add;
            Sub sub sub;
            Mul mul mul;
            Div div div;
            BitAnd bitand bitwise_and;
            BitOr bitor bitwise_or;
            BitXor bitxor bitwise_xor;
        }
    )+};
    (@ $left:ty: $($trait:ident $method:ident $named:ident;)+) => {$(
        impl<'a, R: Into<$crate::tensor::Operand<'a>>> std::ops::$trait<R> for $left {
            type Output = $crate::Tensor;
            #[track_caller]
            fn $method(self, rhs: R) -> $crate::Tensor {
                $crate::ops::operators::sugar($crate::Tensor::$named(&self, rhs))
            }
        }
    )+};
}

/// On the left of a tensor stand `f64`, `i64` and `Complex<f64>` alone, for the same reason.
macro_rules! numbers_on_the_left {
    ($($right:ty),+) => {$(
        $crate::ops::operators::numbers_on_the_left!(@ f64, $right);
        $crate::ops::operators::numbers_on_the_left!(@ i64, $right);
        $crate::ops::operators::numbers_on_the_left!(@ $crate::Complex<f64>, $right);
    )+};
    (@ $number:ty, $right:ty) => {
        $crate::ops::operators::numbers_on_the_left! { @ $number, $right:
            Add add ADD;
            Sub sub SUB;
            Mul mul MUL;
            Div div DIV;
        }
    };
    (@ $number:ty, $right:ty: $($trait:ident $method:ident $static:ident;)+) => {$(
        impl std::ops::$trait<$right> for $number {
            type Output = $crate::Tensor;
            #[track_caller]
            fn $method(self, rhs: $right) -> $crate::Tensor {
                let reversed =
                    $crate::ops::operators::reversed(&$crate::ops::elementwise::binary::$static, self.into(), &rhs);
                $crate::ops::operators::sugar($crate::error::named(stringify!($method), reversed))
            }
        }
    )+};
}

pub(crate) use {numbers_on_the_left, operators};

operators!(&Tensor, Tensor);
numbers_on_the_left!(&Tensor, Tensor);

macro_rules! assignments {
    ($($trait:ident $method:ident $in_place:ident;)+) => {$(
        impl<'a, R: Into<Operand<'a>>> ops::$trait<R> for Tensor {
            #[track_caller]
            fn $method(&mut self, rhs: R) { sugar(self.$in_place(rhs)) }
        }
    )+};
}

assignments! {
    AddAssign add_assign add_;
    SubAssign sub_assign sub_;
    MulAssign mul_assign mul_;
    DivAssign div_assign div_;
}

impl ops::Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        sugar(self.bitwise_not())
    }
}

impl ops::Not for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        sugar(self.bitwise_not())
    }
}

impl ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        sugar(Tensor::neg(self))
    }
}

impl ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        sugar(Tensor::neg(&self))
    }
}
