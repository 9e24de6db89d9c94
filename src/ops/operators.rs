//! `+ - * /` and unary `-` on tensors: sugar that panics with the message of the method's error, as indexing a slice
//! does. Where an error should be handled, call the methods.

use crate::{Result, Tensor};
use std::ops;

#[track_caller]
#[allow(clippy::panic)]
fn sugar(result: Result<Tensor>) -> Tensor {
    match result {
        Ok(tensor) => tensor,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident |$a:ident, $b:ident| $swapped:expr;)+) => {$(
        operators!(@ $trait $method &Tensor, &Tensor);
        operators!(@ $trait $method &Tensor, Tensor);
        operators!(@ $trait $method Tensor, &Tensor);
        operators!(@ $trait $method Tensor, Tensor);
        operators!(@ $trait $method &Tensor, f64);
        operators!(@ $trait $method Tensor, f64);
        impl ops::$trait<&Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor { let ($a, $b) = (self, rhs); sugar($swapped) }
        }
        impl ops::$trait<Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { ops::$trait::$method(self, &rhs) }
        }
    )+};
    (@ $trait:ident $method:ident $left:ty, $right:ty) => {
        impl ops::$trait<$right> for $left {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: $right) -> Tensor { sugar(Tensor::$method(&self, rhs)) }
        }
    };
}

operators! {
    Add add |a, b| b.add(a);
    Sub sub |a, b| b.neg().and_then(|b| b.add(a));
    Mul mul |a, b| b.mul(a);
    Div div |a, b| b.reciprocal().and_then(|b| b.mul(a));
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
