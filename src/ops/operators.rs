//! `+ - * / & | ^`, unary `-` and `!`, and `+= -= *= /=` on tensors and numbers. They panic with the message of the method's
//! error, as indexing a slice does. Where an error should be handled, call the methods.

use super::elementwise::binary::{ADD, DIV, MUL, SUB};
use crate::nn::Parameter;
use crate::{Complex, Operand, Result, Scalar, Tensor};
use std::ops;

#[track_caller]
#[allow(clippy::panic)]
fn sugar<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// A number on the left: as a tensor beside the one on the right, so that dtypes are those of the method.
#[track_caller]
fn reversed(op: &'static super::elementwise::call::Elementwise, left: Scalar, right: &Tensor) -> Result<Tensor> {
    let left = Operand::Scalar(left);
    let left = left.resolve(op.beside(right.dtype()), right.device())?;
    op.call(&[&left, right], &[])
}

/// One implementation for all right-hand sides: with one for each number, the type of `&x + 1` would not be known until the
/// type of the 1 is. On the left of a tensor stand `f64`, `i64` and `Complex<f64>` alone, for the same reason.
macro_rules! operators {
    ($($trait:ident $method:ident $named:ident;)+) => {$(
        operators!(@ $trait $method $named &Tensor);
        operators!(@ $trait $method $named Tensor);
        operators!(@ $trait $method $named &Parameter);
    )+};
    (@ $trait:ident $method:ident $named:ident $left:ty) => {
        impl<'a, R: Into<Operand<'a>>> ops::$trait<R> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: R) -> Tensor { sugar(Tensor::$named(&self, rhs)) }
        }
    };
}

operators! {
    Add add add;
    Sub sub sub;
    Mul mul mul;
    Div div div;
    BitAnd bitand bitwise_and;
    BitOr bitor bitwise_or;
    BitXor bitxor bitwise_xor;
}

macro_rules! numbers_on_the_left {
    ($($trait:ident $method:ident $static:ident;)+) => {$(
        numbers_on_the_left!(@ $trait $method $static f64, &Tensor);
        numbers_on_the_left!(@ $trait $method $static f64, Tensor);
        numbers_on_the_left!(@ $trait $method $static f64, &Parameter);
        numbers_on_the_left!(@ $trait $method $static i64, &Tensor);
        numbers_on_the_left!(@ $trait $method $static i64, Tensor);
        numbers_on_the_left!(@ $trait $method $static i64, &Parameter);
        numbers_on_the_left!(@ $trait $method $static Complex<f64>, &Tensor);
        numbers_on_the_left!(@ $trait $method $static Complex<f64>, Tensor);
        numbers_on_the_left!(@ $trait $method $static Complex<f64>, &Parameter);
    )+};
    (@ $trait:ident $method:ident $static:ident $number:ty, $right:ty) => {
        impl ops::$trait<$right> for $number {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: $right) -> Tensor {
                sugar(crate::error::named(stringify!($method), reversed(&$static, self.into(), &rhs)))
            }
        }
    };
}

numbers_on_the_left! {
    Add add ADD;
    Sub sub SUB;
    Mul mul MUL;
    Div div DIV;
}

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
