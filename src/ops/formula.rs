//! Formulas that mean the same for a number and for a tensor.
//!
//! The derivative of an elementwise operation is written once, generic over [`Real`]. For numbers it becomes the fused
//! kernel of the backward pass; for [`Code`], the source of the kernel on a GPU; for [`Expr`], a tensor expression, it becomes recorded tensor operations, which is how
//! derivatives of derivatives come about.

use crate::backend::code::Code;
use crate::backend::cpu::elementwise::math;
use crate::{Result, Tensor};
// Not imported by name: on an owned tensor the operator traits' methods would hide the tensor's own.
use std::ops;

/// Arithmetic: numbers of every compute dtype, and tensor expressions.
pub(crate) trait Num:
    Clone
    + ops::Add<Output = Self>
    + ops::Sub<Output = Self>
    + ops::Mul<Output = Self>
    + ops::Div<Output = Self>
    + ops::Neg<Output = Self>
{
    /// A constant.
    fn lit(value: f64) -> Self;
    /// `then` where this is greater than `bound`, else `otherwise`; a NaN is not greater.
    fn if_above(self, bound: f64, then: Self, otherwise: Self) -> Self;
    /// `then` where this is less than `bound`, else `otherwise`; a NaN is not less.
    fn if_below(self, bound: f64, then: Self, otherwise: Self) -> Self;
}

/// Functions of real numbers: floats, and tensor expressions.
pub(crate) trait Real: Num {
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn sigmoid(self) -> Self;
    fn erf(self) -> Self;
    fn expm1(self) -> Self;
    fn log1p(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
}

macro_rules! floats {
    ($t:ty, $exp:ident $ln:ident $tanh:ident $sigmoid:ident $erf:ident $expm1:ident $log1p:ident $sin:ident $cos:ident) => {
        impl Num for $t {
            #[inline(always)]
            fn lit(value: f64) -> $t {
                value as $t
            }
            #[inline(always)]
            fn if_above(self, bound: f64, then: $t, otherwise: $t) -> $t {
                if self > bound as $t { then } else { otherwise }
            }
            #[inline(always)]
            fn if_below(self, bound: f64, then: $t, otherwise: $t) -> $t {
                if self < bound as $t { then } else { otherwise }
            }
        }
        impl Real for $t {
            #[inline(always)]
            fn exp(self) -> $t {
                math::$exp(self)
            }
            #[inline(always)]
            fn ln(self) -> $t {
                math::$ln(self)
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                <$t>::sqrt(self)
            }
            #[inline(always)]
            fn tanh(self) -> $t {
                math::$tanh(self)
            }
            #[inline(always)]
            fn sigmoid(self) -> $t {
                math::$sigmoid(self)
            }
            #[inline(always)]
            fn erf(self) -> $t {
                math::$erf(self)
            }
            #[inline(always)]
            fn expm1(self) -> $t {
                math::$expm1(self)
            }
            #[inline(always)]
            fn log1p(self) -> $t {
                math::$log1p(self)
            }
            #[inline(always)]
            fn sin(self) -> $t {
                math::$sin(self)
            }
            #[inline(always)]
            fn cos(self) -> $t {
                math::$cos(self)
            }
        }
    };
}
floats!(f32, exp_f32 ln_f32 tanh_f32 sigmoid_f32 erf_f32 expm1_f32 log1p_f32 sin_f32 cos_f32);
floats!(f64, exp_f64 ln_f64 tanh_f64 sigmoid_f64 erf_f64 expm1_f64 log1p_f64 sin_f64 cos_f64);

/// An integer that wraps around, as tensors of integers do; division by zero gives zero.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Wrapping<T>(pub T);

macro_rules! wrapping {
    ($t:ty) => {
        impl ops::Add for Wrapping<$t> {
            type Output = Self;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                Wrapping(self.0.wrapping_add(other.0))
            }
        }
        impl ops::Sub for Wrapping<$t> {
            type Output = Self;
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Wrapping(self.0.wrapping_sub(other.0))
            }
        }
        impl ops::Mul for Wrapping<$t> {
            type Output = Self;
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                Wrapping(self.0.wrapping_mul(other.0))
            }
        }
        impl ops::Div for Wrapping<$t> {
            type Output = Self;
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                Wrapping(if other.0 == 0 { 0 } else { self.0.wrapping_div(other.0) })
            }
        }
        impl ops::Neg for Wrapping<$t> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Wrapping(self.0.wrapping_neg())
            }
        }
        impl Num for Wrapping<$t> {
            #[inline(always)]
            fn lit(value: f64) -> Self {
                Wrapping(value as $t)
            }
            #[inline(always)]
            fn if_above(self, bound: f64, then: Self, otherwise: Self) -> Self {
                if self.0 > bound as $t { then } else { otherwise }
            }
            #[inline(always)]
            fn if_below(self, bound: f64, then: Self, otherwise: Self) -> Self {
                if self.0 < bound as $t { then } else { otherwise }
            }
        }
    };
}
wrapping!(i64);
wrapping!(u64);

impl Num for Code {
    fn lit(value: f64) -> Code {
        Code::number(value)
    }

    fn if_above(self, bound: f64, then: Code, otherwise: Code) -> Code {
        self.choose(">", bound, &then, &otherwise)
    }

    fn if_below(self, bound: f64, then: Code, otherwise: Code) -> Code {
        self.choose("<", bound, &then, &otherwise)
    }
}

/// CUDA's functions of the same names, or those of the source's beginning.
macro_rules! code_functions {
    ($($method:ident $name:literal),+) => {
        impl Real for Code {$(
            fn $method(self) -> Code {
                Code::call($name, [self])
            }
        )+}
    };
}
code_functions!(exp "exp", ln "log", sqrt "sqrt", tanh "tanh", sigmoid "sigmoid", erf "erf", expm1 "expm1", log1p "log1p",
    sin "sin", cos "cos");

/// A tensor expression that carries the first error along, so that a formula reads like one and still cannot panic.
#[derive(Clone)]
pub(crate) enum Expr {
    Number(f64),
    Tensor(Tensor),
    /// The error is kept as made; clones of a failed expression cannot occur before it is looked at.
    Failed(std::sync::Arc<crate::Error>),
}

impl From<&Tensor> for Expr {
    fn from(tensor: &Tensor) -> Expr {
        Expr::Tensor(tensor.clone())
    }
}

impl From<Result<Tensor>> for Expr {
    fn from(result: Result<Tensor>) -> Expr {
        match result {
            Ok(tensor) => Expr::Tensor(tensor),
            Err(error) => Expr::Failed(std::sync::Arc::new(error)),
        }
    }
}

impl Expr {
    /// The value, in the shape and dtype of `like` if it turned out to be a constant.
    pub fn finish(self, like: &Tensor) -> Result<Tensor> {
        match self {
            Expr::Number(value) => like.full_like(value),
            Expr::Tensor(tensor) => Ok(tensor),
            Expr::Failed(error) => Err(std::sync::Arc::try_unwrap(error)
                .unwrap_or_else(|shared| crate::error::err!(Backend, "backward", "{shared}"))),
        }
    }

    #[track_caller]
    fn unary(self, number: impl FnOnce(f64) -> f64, tensor: impl FnOnce(&Tensor) -> Result<Tensor>) -> Expr {
        match self {
            Expr::Number(x) => Expr::Number(number(x)),
            Expr::Tensor(x) => tensor(&x).into(),
            failed => failed,
        }
    }

    #[track_caller]
    fn binary(
        self,
        other: Expr,
        numbers: impl FnOnce(f64, f64) -> f64,
        tensors: impl FnOnce(&Tensor, crate::Operand<'_>) -> Result<Tensor>,
        swapped: impl FnOnce(f64, &Tensor) -> Result<Tensor>,
    ) -> Expr {
        match (self, other) {
            (Expr::Number(a), Expr::Number(b)) => Expr::Number(numbers(a, b)),
            (Expr::Tensor(a), Expr::Tensor(b)) => tensors(&a, (&b).into()).into(),
            (Expr::Tensor(a), Expr::Number(b)) => tensors(&a, b.into()).into(),
            (Expr::Number(a), Expr::Tensor(b)) => swapped(a, &b).into(),
            (failed @ Expr::Failed(_), _) | (_, failed @ Expr::Failed(_)) => failed,
        }
    }

    fn select(
        self,
        numbers: impl FnOnce(f64) -> bool,
        mask: impl FnOnce(&Tensor) -> Result<Tensor>,
        then: Expr,
        otherwise: Expr,
    ) -> Expr {
        match self {
            Expr::Number(x) => {
                if numbers(x) {
                    then
                } else {
                    otherwise
                }
            }
            Expr::Tensor(x) => mask(&x).and_then(|mask| mask.where_(then.finish(&x)?, otherwise.finish(&x)?)).into(),
            failed => failed,
        }
    }
}

impl ops::Add for Expr {
    type Output = Expr;
    fn add(self, other: Expr) -> Expr {
        self.binary(other, |a, b| a + b, |a, b| a.add(b), |a, b| b.add(a))
    }
}

impl ops::Sub for Expr {
    type Output = Expr;
    fn sub(self, other: Expr) -> Expr {
        self.binary(other, |a, b| a - b, |a, b| a.sub(b), |a, b| Tensor::add(&b.neg()?, a))
    }
}

impl ops::Mul for Expr {
    type Output = Expr;
    fn mul(self, other: Expr) -> Expr {
        self.binary(other, |a, b| a * b, |a, b| a.mul(b), |a, b| b.mul(a))
    }
}

impl ops::Div for Expr {
    type Output = Expr;
    fn div(self, other: Expr) -> Expr {
        self.binary(other, |a, b| a / b, |a, b| a.div(b), |a, b| Tensor::div(&b.full_like(a)?, b))
    }
}

impl ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        self.unary(|x| -x, Tensor::neg)
    }
}

impl Num for Expr {
    fn lit(value: f64) -> Expr {
        Expr::Number(value)
    }

    fn if_above(self, bound: f64, then: Expr, otherwise: Expr) -> Expr {
        self.select(|x| x > bound, |x| x.gt(bound), then, otherwise)
    }

    fn if_below(self, bound: f64, then: Expr, otherwise: Expr) -> Expr {
        self.select(|x| x < bound, |x| x.lt(bound), then, otherwise)
    }
}

impl Real for Expr {
    fn exp(self) -> Expr {
        self.unary(f64::exp, Tensor::exp)
    }
    fn ln(self) -> Expr {
        self.unary(f64::ln, Tensor::log)
    }
    fn sqrt(self) -> Expr {
        self.unary(f64::sqrt, Tensor::sqrt)
    }
    fn tanh(self) -> Expr {
        self.unary(f64::tanh, Tensor::tanh)
    }
    fn sigmoid(self) -> Expr {
        self.unary(Real::sigmoid, Tensor::sigmoid)
    }
    fn erf(self) -> Expr {
        self.unary(Real::erf, Tensor::erf)
    }
    fn expm1(self) -> Expr {
        self.unary(f64::exp_m1, Tensor::expm1)
    }
    fn log1p(self) -> Expr {
        self.unary(f64::ln_1p, Tensor::log1p)
    }
    fn sin(self) -> Expr {
        self.unary(f64::sin, Tensor::sin)
    }
    fn cos(self) -> Expr {
        self.unary(f64::cos, Tensor::cos)
    }
}
