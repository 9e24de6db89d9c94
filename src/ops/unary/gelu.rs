//! The Gaussian error linear unit. Its form is a type parameter and not a field: chosen inside the formula it would be
//! chosen for every element, and vectors would compute both forms.

use super::{Keep, Unary, apply};
use crate::backend::cpu::map::{Floats, Formula, Tile};
use crate::ops::formula::Real;
use crate::ops::sample::{Op, unary_samples};
use crate::{Result, Tensor};
use std::f64::consts::FRAC_1_SQRT_2;

/// Which form of [`Tensor::gelu`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gelu {
    /// With the error function, exactly.
    #[default]
    Erf,
    /// With the hyperbolic tangent of a cubic, approximately.
    Tanh,
}

const INV_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

/// `x · Φ(x)`, with Φ by the approximation if `TANH`.
#[derive(Clone, Copy)]
struct Form<const TANH: bool>;

impl<const TANH: bool> Form<TANH> {
    /// `2 Φ(x) - 1`.
    #[inline(always)]
    fn centred<T: Real>(x: T) -> T {
        if TANH {
            (T::lit(SQRT_2_OVER_PI) * (x.clone() + T::lit(CUBIC) * (x.clone() * x.clone() * x))).tanh()
        } else {
            (x * T::lit(FRAC_1_SQRT_2)).erf()
        }
    }
}

impl<const TANH: bool, T: Real> Formula<T, 1> for Form<TANH> {
    #[inline(always)]
    fn at(&self, [x]: [T; 1]) -> T {
        x.clone() * T::lit(0.5) * (T::lit(1.0) + Self::centred(x))
    }
}

impl<const TANH: bool> Unary for Form<TANH> {
    const NAME: &'static str = "gelu";
    const KEEP: Keep = Keep::Input;
    const REAL: bool = true;

    #[inline]
    fn tile(self) -> impl Tile<1> {
        Floats(self)
    }

    #[inline(always)]
    fn grad<T: Real>(self, g: T, x: T) -> T {
        let centred = Self::centred(x.clone());
        if TANH {
            let inner = T::lit(SQRT_2_OVER_PI) * (T::lit(1.0) + T::lit(3.0 * CUBIC) * (x.clone() * x.clone()));
            let sech2 = T::lit(1.0) - centred.clone() * centred.clone();
            g * T::lit(0.5) * (T::lit(1.0) + centred + x * sech2 * inner)
        } else {
            let density = T::lit(INV_SQRT_2PI) * (x.clone() * x.clone() * T::lit(-0.5)).exp();
            g * (T::lit(0.5) * (T::lit(1.0) + centred) + x * density)
        }
    }
}

impl Tensor {
    /// The Gaussian error linear unit: `x · Φ(x)`, with Φ by the error function or by the approximation through `tanh`.
    ///
    /// ```
    /// # use cotangent::{Gelu, Tensor};
    /// assert_eq!(Tensor::new([0.0, 100.0])?.gelu(Gelu::Erf)?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is of a dtype that the function is not defined for.
    #[track_caller]
    pub fn gelu(&self, form: Gelu) -> Result<Tensor> {
        match form {
            Gelu::Erf => apply(Form::<false>, self),
            Gelu::Tanh => apply(Form::<true>, self),
        }
    }
}

pub(super) static GELU: Op = Op {
    name: "gelu",
    samples: || {
        let mut all = unary_samples("gelu", -2.0, 2.1, |x| x.gelu(Gelu::Tanh))?;
        all.extend(unary_samples("gelu", -2.0, 2.1, |x| x.gelu(Gelu::Erf))?);
        Ok(all)
    },
    refusals: || Ok(Vec::new()),
};
