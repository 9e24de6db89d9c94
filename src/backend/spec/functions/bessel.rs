//! Bessel and Airy functions, and orthogonal polynomials of degree `n`, without a derivative with respect to `n`.

use super::super::formula::Sym;
use super::super::number::{Arithmetic, Ordered, select};
use super::{Function, Meaning, Partial, Pointwise, Real, scalar};
use crate::backend::cpu::elementwise::math::bessel as math;
use smallvec::SmallVec;

specials! {
    scalar BESSEL_J0 bessel_j0(x) = math::bessel_j0_f32, math::bessel_j0_f64, "j0({0})", |y| [-x.bessel_j1()];
    scalar BESSEL_J1 bessel_j1(x) = math::bessel_j1_f32, math::bessel_j1_f64, "j1({0})",
        |y| [or_at(x, 0.0, 0.5, x.bessel_j0() - y / x)];
    scalar BESSEL_Y0 bessel_y0(x) = math::bessel_y0_f32, math::bessel_y0_f64, "y0({0})", |y| [-x.bessel_y1()];
    scalar BESSEL_Y1 bessel_y1(x) = math::bessel_y1_f32, math::bessel_y1_f64, "y1({0})", |y| [x.bessel_y0() - y / x];
    scalar K0 k0(x) = math::k0_f32, math::k0_f64, "bessel_k0({0})", |y| [-x.k1()];
    scalar K1 k1(x) = math::k1_f32, math::k1_f64, "bessel_k1({0})", |y| [-x.k0() - y / x];
    /// exp(x) K0(x).
    scalar K0E k0e(x) = math::k0e_f32, math::k0e_f64, "bessel_k0e({0})", |y| [y - x.k1e()];
    scalar K1E k1e(x) = math::k1e_f32, math::k1e_f64, "bessel_k1e({0})", |y| [y - x.k0e() - y / x];
    scalar AIRY_AI airy_ai(x) = math::airy_ai_f32, math::airy_ai_f64, "airy_ai({0})", |y| [x.airy_ai_prime()];
    scalar AIRY_AI_PRIME airy_ai_prime(x) = math::airy_ai_prime_f32, math::airy_ai_prime_f64, "airy_ai_prime({0})",
        |y| [x * x.airy_ai()];
    scalar CHEBYSHEV_T chebyshev_t(x, n) = math::chebyshev_t_f32, math::chebyshev_t_f64, "chebyshev_t({0}, {1})",
        |y| [degree(n) * x.chebyshev_u(n - 1.0), 0.0];
    scalar CHEBYSHEV_U chebyshev_u(x, n) = math::chebyshev_u_f32, math::chebyshev_u_f64, "chebyshev_u({0}, {1})",
        |y| [chebyshev_u_slope(x, n, y), 0.0];
    scalar HERMITE_H hermite_h(x, n) = math::hermite_h_f32, math::hermite_h_f64, "hermite_h({0}, {1})",
        |y| [2.0 * degree(n) * x.hermite_h(n - 1.0), 0.0];
    scalar HERMITE_HE hermite_he(x, n) = math::hermite_he_f32, math::hermite_he_f64, "hermite_he({0}, {1})",
        |y| [degree(n) * x.hermite_he(n - 1.0), 0.0];
    scalar LAGUERRE_L laguerre_l(x, n) = math::laguerre_l_f32, math::laguerre_l_f64, "laguerre_l({0}, {1})",
        |y| [laguerre_slope(x, n, y), 0.0];
    scalar LEGENDRE_P legendre_p(x, n) = math::legendre_p_f32, math::legendre_p_f64, "legendre_p({0}, {1})",
        |y| [legendre_slope(x, n, y), 0.0];
}

/// The degree rounded down; 0 if it is negative.
fn degree(n: Sym) -> Sym {
    n.floor().maximum(Sym::constant(0.0))
}

/// The limit if `x` is `position`, else `value`.
fn or_at(x: Sym, position: f64, limit: f64, value: Sym) -> Sym {
    select(x.eq(Sym::constant(position)), Sym::constant(limit), value)
}

/// The derivative. At 1 and -1, where the quotient `elsewhere` is 0/0, it is computed from the first and second derivatives at 1.
fn at_ends(x: Sym, n: Sym, [first, second]: [Sym; 2], elsewhere: Sym) -> Sym {
    let (end, one) = (x.sign(), Sym::constant(1.0));
    // The polynomials are even or odd like their degree.
    let parity = select(((n * 0.5).floor() * 2.0).eq(n) | x.gt(Sym::constant(0.0)), one, -one);
    select((x * x).eq(one), parity * (end * first + second * (x - end)), elsewhere)
}

fn chebyshev_u_slope(x: Sym, degree_given: Sym, y: Sym) -> Sym {
    let n = degree(degree_given);
    let elsewhere = ((n + 1.0) * x.chebyshev_t(n + 1.0) - x * y) / (x * x - 1.0);
    let first = n * (n + 1.0) * (n + 2.0) / 3.0;
    let slope = at_ends(x, n, [first, first * (n - 1.0) * (n + 3.0) / 5.0], elsewhere);
    select(degree_given.lt(Sym::constant(0.0)), Sym::constant(0.0), slope)
}

fn legendre_slope(x: Sym, n: Sym, y: Sym) -> Sym {
    let n = degree(n);
    let elsewhere = n * (x * y - x.legendre_p(n - 1.0)) / (x * x - 1.0);
    let first = n * (n + 1.0) * 0.5;
    at_ends(x, n, [first, first * (n - 1.0) * (n + 2.0) * 0.25], elsewhere)
}

fn laguerre_slope(x: Sym, n: Sym, y: Sym) -> Sym {
    let n = degree(n);
    let near = n * (n - 1.0) * 0.5 * x - n;
    select(x.eq(Sym::constant(0.0)), near, n * (y - x.laguerre_l(n - 1.0)) / x)
}
