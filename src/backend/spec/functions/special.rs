//! Further functions of real numbers.

use super::super::formula::Sym;
use super::super::number::{Arithmetic, Ordered, select};
use super::{Function, Meaning, Partial, Pointwise, Real, scalar, vectorized};
use crate::backend::cpu::elementwise::math::special as math;
use smallvec::SmallVec;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, PI};

const SQRT_2PI: f64 = 2.506_628_274_631_000_7;

specials! {
    scalar EXP2 exp2(x) = f32::exp2, f64::exp2, "exp2({0})", |y| [y * LN_2];
    scalar LOG2 log2(x) = f32::log2, f64::log2, "log2({0})", |y| [1.0 / (x * LN_2)];
    scalar LOG10 log10(x) = f32::log10, f64::log10, "log10({0})", |y| [1.0 / (x * LN_10)];
    vectorized RSQRT rsqrt(x) = |x: f32| 1.0 / x.sqrt(), |x: f64| 1.0 / x.sqrt(), "(T(1) / sqrt({0}))",
        |y| [-0.5 * (y * y * y)];
    scalar TAN tan(x) = f32::tan, f64::tan, "tan({0})", |y| [1.0 + y * y];
    scalar ASIN asin(x) = f32::asin, f64::asin, "asin({0})", |y| [(1.0 - x * x).rsqrt()];
    scalar ACOS acos(x) = f32::acos, f64::acos, "acos({0})", |y| [-(1.0 - x * x).rsqrt()];
    scalar ATAN atan(x) = f32::atan, f64::atan, "atan({0})", |y| [1.0 / (1.0 + x * x)];
    scalar SINH sinh(x) = f32::sinh, f64::sinh, "sinh({0})", |y| [x.cosh()];
    scalar COSH cosh(x) = f32::cosh, f64::cosh, "cosh({0})", |y| [x.sinh()];
    scalar ASINH asinh(x) = math::asinh_f32, math::asinh_f64, "asinh({0})", |y| [(x * x + 1.0).rsqrt()];
    // One root for each factor: for x < 1 both the function and the derivative are NaN.
    scalar ACOSH acosh(x) = math::acosh_f32, math::acosh_f64, "acosh({0})", |y| [(x - 1.0).rsqrt() * (x + 1.0).rsqrt()];
    scalar ATANH atanh(x) = math::atanh_f32, math::atanh_f64, "atanh({0})", |y| [1.0 / (1.0 - x * x)];
    vectorized CEIL ceil(x) = f32::ceil, f64::ceil, "ceil({0})", |y| [0.0];
    /// Rounds to the nearest integer, ties to even.
    vectorized RINT rint(x) = f32::round_ties_even, f64::round_ties_even, "rint({0})", |y| [0.0];
    /// The first argument with the sign of the second, also of zeros and NaN.
    vectorized COPYSIGN copysign(x, b) = f32::copysign, f64::copysign, "copysign({0}, {1})",
        |y| [select(x.eq(Sym::constant(0.0)), Sym::constant(0.0), y / x), 0.0];
    /// The next floating point number from the first argument towards the second.
    scalar NEXTAFTER nextafter(x, b) = next_f32, next_f64, "nextafter({0}, {1})", |y| [0.0, 0.0];
    /// The mantissa in [1/2, 1) of `frexp`.
    scalar MANTISSA mantissa(x) = |x: f32| libm::frexpf(x).0, |x: f64| libm::frexp(x).0, "mantissa({0})",
        |y| [(-x.exponent()).exp2()];
    /// The exponent of `frexp`.
    scalar EXPONENT exponent(x) = exponent_f32, exponent_f64, "exponent({0})", |y| [0.0];
    scalar ERFC erfc(x) = math::erfc_f32, math::erfc_f64, "erfc({0})", |y| [-FRAC_2_SQRT_PI * (-(x * x)).exp()];
    /// The scaled complementary error function, exp(x²) erfc(x).
    scalar ERFCX erfcx(x) = math::erfcx_f32, math::erfcx_f64, "erfcx({0})", |y| [2.0 * (x * y) - FRAC_2_SQRT_PI];
    scalar ERFINV erfinv(x) = math::erfinv_f32, math::erfinv_f64, "erfinv({0})", |y| [(1.0 / FRAC_2_SQRT_PI) * (y * y).exp()];
    /// The distribution function of the standard normal distribution.
    scalar NDTR ndtr(x) = math::ndtr_f32, math::ndtr_f64, "normcdf({0})", |y| [(-0.5 * (x * x)).exp() * (1.0 / SQRT_2PI)];
    /// The quantile function of the standard normal distribution.
    scalar NDTRI ndtri(x) = math::ndtri_f32, math::ndtri_f64, "normcdfinv({0})", |y| [SQRT_2PI * (0.5 * (y * y)).exp()];
    scalar LGAMMA lgamma(x) = math::lgamma_f32, math::lgamma_f64, "lgamma({0})", |y| [x.digamma()];
    scalar DIGAMMA digamma(x) = math::digamma_f32, math::digamma_f64, "digamma({0})", |y| [Sym::constant(2.0).zeta(x)];
    // There is no derivative with respect to the first argument; the operations refuse it.
    scalar ZETA zeta(x, q) = math::zeta_f32, math::zeta_f64, "zeta({0}, {1})", |y| [0.0, -(x * (x + 1.0).zeta(q))];
    scalar IGAMMA igamma(x, b) = math::igamma_f32, math::igamma_f64, "igamma({0}, {1})", |y| [0.0, gamma_density(x, b)];
    scalar IGAMMAC igammac(x, b) = math::igammac_f32, math::igammac_f64, "igammac({0}, {1})", |y| [0.0, -gamma_density(x, b)];
    scalar I0 i0(x) = math::i0_f32, math::i0_f64, "cyl_bessel_i0({0})", |y| [x.i1()];
    scalar I0E i0e(x) = math::i0e_f32, math::i0e_f64, "i0e({0})", |y| [x.i1e() - x.sign() * y];
    scalar I1 i1(x) = math::i1_f32, math::i1_f64, "cyl_bessel_i1({0})", |y| [half_at_zero(x, x.i0() - y / x)];
    scalar I1E i1e(x) = math::i1e_f32, math::i1e_f64, "i1e({0})", |y| [half_at_zero(x, x.i0e() - y * (x.sign() + 1.0 / x))];
}

/// The density of the gamma distribution of shape `a`.
fn gamma_density(a: Sym, x: Sym) -> Sym {
    ((a - 1.0) * x.ln() - x - a.lgamma()).exp()
}

/// 1/2, the limit at 0, if `x` is 0, else `value`.
fn half_at_zero(x: Sym, value: Sym) -> Sym {
    select(x.eq(Sym::constant(0.0)), Sym::constant(0.5), value)
}

macro_rules! by_type {
    ($($t:ident $next:ident $exponent:ident $frexp:path;)+) => {$(
        fn $next(from: $t, to: $t) -> $t {
            if from.is_nan() || to.is_nan() {
                $t::NAN
            } else if from == to {
                to
            } else if to > from {
                from.next_up()
            } else {
                from.next_down()
            }
        }

        fn $exponent(x: $t) -> $t {
            if x.is_finite() { $frexp(x).1 as $t } else { 0.0 }
        }
    )+};
}
by_type! {
    f32 next_f32 exponent_f32 libm::frexpf;
    f64 next_f64 exponent_f64 libm::frexp;
}

/// The sine and cosine of πx, from the difference to the nearest integer, which is exact; the sign follows from the integer.
fn half_turns(x: Sym) -> (Sym, Sym) {
    let whole = x.rint();
    let angle = PI * (x - whole);
    let odd = ((whole * 0.5).floor() * 2.0).ne(whole);
    let (sin, cos) = (angle.sin(), angle.cos());
    (select(odd, -sin, sin), select(odd, -cos, cos))
}

/// The normalised sinc, sin(πx) / (πx), and 1 at 0.
pub(crate) fn sinc(x: Sym) -> Sym {
    select(x.eq(Sym::constant(0.0)), Sym::constant(1.0), half_turns(x).0 / (PI * x))
}

/// The derivative of [`sinc`]: near 0, where the quotient cancels, by the series `-t/3 + t³/30 - ..` with t = πx.
pub(crate) fn sinc_slope(x: Sym) -> Sym {
    let t = PI * x;
    let (sin, cos) = half_turns(x);
    let square = t * t;
    let near = t * (-1.0 / 3.0 + square * (1.0 / 30.0 + square * (-1.0 / 840.0 + square * (1.0 / 45_360.0))));
    let far = (cos - sin / t) / t;
    PI * select(square.lt(Sym::constant(0.01)), near, far)
}
