//! The Gaussian error linear unit. Its form is a type parameter and not a field: chosen inside the formula it would be
//! chosen for every element, and vectors would compute both forms.

use super::{Keep, Unary, apply};
use crate::backend::cpu::elementwise::map::{Floats, Formula, Tile};
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
/// The approximation is `Φ(x) ≈ (1 + tanh u) / 2 = σ(2 u)` with `2 u = x (LINEAR + CUBIC x²)`.
const LINEAR: f64 = 2.0 * 0.797_884_560_802_865_4;
const CUBIC: f64 = LINEAR * 0.044_715;

/// `x · Φ(x)`, with Φ by the approximation if `TANH`.
#[derive(Clone, Copy)]
struct Form<const TANH: bool>;

impl<const TANH: bool> Form<TANH> {
    /// `Φ(x)`. The logistic function keeps the digits of the left tail, where `1 + tanh u` would lose them.
    #[inline(always)]
    fn share<T: Real>(x: T) -> T {
        if TANH {
            (x.clone() * (T::lit(LINEAR) + T::lit(CUBIC) * (x.clone() * x))).sigmoid()
        } else {
            T::lit(0.5) * (T::lit(1.0) + (x * T::lit(FRAC_1_SQRT_2)).erf())
        }
    }
}

impl<const TANH: bool, T: Real> Formula<T, 1> for Form<TANH> {
    #[inline(always)]
    fn at(&self, [x]: [T; 1]) -> T {
        x.clone() * Self::share(x)
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
        let share = Self::share(x.clone());
        if TANH {
            let inner = T::lit(LINEAR) + T::lit(3.0 * CUBIC) * (x.clone() * x.clone());
            let slope = share.clone() * (T::lit(1.0) - share.clone());
            g * (share + x * slope * inner)
        } else {
            let density = T::lit(INV_SQRT_2PI) * (x.clone() * x.clone() * T::lit(-0.5)).exp();
            g * (share + x * density)
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
    error_cases: || Ok(Vec::new()),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn the_left_tail_keeps_its_digits() -> Result<()> {
        let x = Tensor::linspace(-6.0, -2.0, 41)?;
        let (got, want) = (x.gelu(Gelu::Tanh)?, x.to_dtype(DType::F64)?.gelu(Gelu::Tanh)?);
        assert!(got.to_dtype(DType::F64)?.allclose(&want, 1e-5, 0.0)?, "{got} is not {want}");
        Ok(())
    }
}
