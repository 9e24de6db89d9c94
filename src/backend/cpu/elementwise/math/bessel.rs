//! Bessel and Airy functions, and orthogonal polynomials. They are called one element at a time. The f32 functions compute in
//! f64 and round.

use super::{NEGLIGIBLE, singles};
use std::f64::consts::{FRAC_PI_4, PI};

const EULER: f64 = 0.577_215_664_901_532_9;
/// The highest degree of a polynomial that is computed by its recurrence: a loop bound.
const HIGHEST_DEGREE: f64 = 100_000.0;

singles! {
    bessel_j0_f32 bessel_j0_f64(x);
    bessel_j1_f32 bessel_j1_f64(x);
    bessel_y0_f32 bessel_y0_f64(x);
    bessel_y1_f32 bessel_y1_f64(x);
    k0_f32 k0_f64(x);
    k1_f32 k1_f64(x);
    k0e_f32 k0e_f64(x);
    k1e_f32 k1e_f64(x);
    airy_ai_f32 airy_ai_f64(x);
    airy_ai_prime_f32 airy_ai_prime_f64(x);
    chebyshev_t_f32 chebyshev_t_f64(x, n);
    chebyshev_u_f32 chebyshev_u_f64(x, n);
    hermite_h_f32 hermite_h_f64(x, n);
    hermite_he_f32 hermite_he_f64(x, n);
    laguerre_l_f32 laguerre_l_f64(x, n);
    legendre_p_f32 legendre_p_f64(x, n);
}

pub(crate) fn bessel_j0_f64(x: f64) -> f64 {
    libm::j0(x)
}

pub(crate) fn bessel_j1_f64(x: f64) -> f64 {
    libm::j1(x)
}

pub(crate) fn bessel_y0_f64(x: f64) -> f64 {
    if x < 0.0 { f64::NAN } else { libm::y0(x) }
}

pub(crate) fn bessel_y1_f64(x: f64) -> f64 {
    if x < 0.0 { f64::NAN } else { libm::y1(x) }
}

/// The modified Bessel functions of the second kind of orders 0 and 1 for 0 < x ≤ 2, by their power series.
fn small_k(x: f64) -> (f64, f64) {
    let (quarter, log) = (0.25 * x * x, (0.5 * x).ln() + EULER);
    let (mut c, mut d, mut harmonic, mut k) = (1.0, 1.0, 0.0, 0.0);
    let (mut zero, mut one) = (0.0, 0.0);
    while c > NEGLIGIBLE {
        zero += c * (harmonic - log);
        one += d * (log - harmonic - 0.5 / (k + 1.0));
        k += 1.0;
        harmonic += 1.0 / k;
        c *= quarter / (k * k);
        d *= quarter / (k * (k + 1.0));
    }
    (zero, 1.0 / x + 0.5 * x * one)
}

/// exp(x) K_ν(x) with `mu` = 4ν², by the asymptotic series, for x > 1000.
fn far_k(x: f64, mu: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..8 {
        let (k, odd) = (f64::from(k), f64::from(2 * k - 1));
        term *= (mu - odd * odd) / (8.0 * k * x);
        sum += term;
    }
    (0.5 * PI / x).sqrt() * sum
}

/// exp(x) K_m(x) and exp(x) K_{m+1}(x) for x ≥ 2 and |m| < 1/2, by Steed's continued fraction; for x > 1000, where its terms
/// overflow, by the asymptotic series.
fn large_k(x: f64, m: f64) -> (f64, f64) {
    if x > 1000.0 {
        return (far_k(x, 4.0 * m * m), far_k(x, 4.0 * (m + 1.0) * (m + 1.0)));
    }
    let first = 0.25 - m * m;
    let (mut b, mut q_before, mut q_now, mut a, mut c) = (2.0 * (1.0 + x), 0.0, 1.0, -first, first);
    let mut d = 1.0 / b;
    let (mut h, mut step, mut q) = (d, d, first);
    let mut s = 1.0 + q * step;
    for i in 2..500 {
        a -= f64::from(2 * (i - 1));
        c = -a * c / f64::from(i);
        let q_next = (q_before - b * q_now) / a;
        (q_before, q_now) = (q_now, q_next);
        q += c * q_next;
        b += 2.0;
        d = 1.0 / (b + a * d);
        step *= b * d - 1.0;
        h += step;
        s += q * step;
        if (q * step).abs() < 1e-17 * s.abs() {
            break;
        }
    }
    let low = (PI / (2.0 * x)).sqrt() / s;
    (low, low * (m + x + 0.5 - first * h) / x)
}

/// K₀(x) and K₁(x), times exp(x) if `scaled`.
fn both_k(x: f64, scaled: bool) -> (f64, f64) {
    if x.is_nan() || x < 0.0 {
        (f64::NAN, f64::NAN)
    } else if x == 0.0 {
        (f64::INFINITY, f64::INFINITY)
    } else if x == f64::INFINITY {
        (0.0, 0.0)
    } else if x <= 2.0 {
        let (factor, (zero, one)) = (if scaled { x.exp() } else { 1.0 }, small_k(x));
        (zero * factor, one * factor)
    } else {
        let (factor, (zero, one)) = (if scaled { 1.0 } else { (-x).exp() }, large_k(x, 0.0));
        (zero * factor, one * factor)
    }
}

pub(crate) fn k0_f64(x: f64) -> f64 {
    both_k(x, false).0
}

pub(crate) fn k1_f64(x: f64) -> f64 {
    both_k(x, false).1
}

pub(crate) fn k0e_f64(x: f64) -> f64 {
    both_k(x, true).0
}

pub(crate) fn k1e_f64(x: f64) -> f64 {
    both_k(x, true).1
}

/// Ai and Ai' at the integers from -9 to 3.
const AIRY: [(f64, f64); 13] = [
    (-0.022_133_721_547_341_404, -0.975_663_980_926_331_6),
    (-0.052_705_050_356_386_2, 0.935_560_938_198_306_6),
    (0.184_280_835_250_505_64, -0.771_008_168_410_126_5),
    (-0.329_145_173_629_823_1, 0.345_935_487_281_342_9),
    (0.350_761_009_024_114_3, 0.327_192_818_554_443_1),
    (-0.070_265_532_949_289_52, -0.790_628_575_368_581_4),
    (-0.378_814_293_677_658_1, 0.314_583_769_216_598_8),
    (0.227_407_428_201_685_6, 0.618_259_020_741_691),
    (0.535_560_883_292_352_1, -0.010_160_567_116_645_21),
    (0.355_028_053_887_817_2, -0.258_819_403_792_806_8),
    (0.135_292_416_312_881_4, -0.159_147_441_296_793_2),
    (0.034_924_130_423_274_38, -0.053_090_384_433_653_63),
    (0.006_591_139_357_460_719, -0.011_912_976_705_951_318),
];

/// The Airy function and its derivative.
fn airy(x: f64) -> (f64, f64) {
    if x.is_nan() {
        return (x, x);
    }
    let size = x.abs();
    let phase = 2.0 / 3.0 * size * size.sqrt();
    if x > 3.5 {
        if phase > 750.0 {
            return (0.0, 0.0);
        }
        // Orders -1/3, for which K is that of 1/3, and 2/3.
        let (third, two_thirds) = large_k(phase, -1.0 / 3.0);
        let factor = (-phase).exp() / PI;
        return ((x / 3.0).sqrt() * third * factor, -x / 3.0_f64.sqrt() * two_thirds * factor);
    }
    if x < -9.5 {
        if size == f64::INFINITY {
            return (0.0, f64::NAN);
        }
        return oscillating_airy(size, phase);
    }
    // The Taylor series around the nearest integer, by the equation y'' = x y.
    // At the ends of the table, halves would round to an integer outside of it.
    let at = x.round().clamp(-9.0, 3.0);
    let (value, slope) = AIRY[(at + 9.0) as usize];
    let h = x - at;
    let (mut a, mut b, mut c) = (value, slope, 0.5 * at * value);
    let (mut y, mut dy, mut power) = (a + b * h, b, h);
    for n in 2..60 {
        let n = f64::from(n);
        // `c` is the coefficient of h^n.
        dy += n * c * power;
        power *= h;
        y += c * power;
        let next = (at * b + a) / ((n + 1.0) * n);
        (a, b, c) = (b, c, next);
        if (c.abs() + b.abs() + a.abs()) * power.abs() < 1e-18 {
            break;
        }
    }
    (y, dy)
}

/// Ai and Ai' far below 0, by the asymptotic series.
fn oscillating_airy(size: f64, phase: f64) -> (f64, f64) {
    let (mut even, mut odd, mut even_slope, mut odd_slope) = (1.0, 0.0, 1.0, 0.0);
    let mut u = 1.0_f64;
    for k in 1..30 {
        let k = f64::from(k);
        let next = u * (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0) * phase);
        if next.abs() > u.abs() {
            break;
        }
        u = next;
        let v = -u * (6.0 * k + 1.0) / (6.0 * k - 1.0);
        // The signs of the terms, of u as of v, follow the pattern + + - -.
        let sign = if (k as i64 / 2) % 2 == 0 { 1.0 } else { -1.0 };
        if (k as i64) % 2 == 0 {
            even += sign * u;
            even_slope += sign * v;
        } else {
            odd += sign * u;
            odd_slope += sign * v;
        }
        if u < NEGLIGIBLE {
            break;
        }
    }
    let (sin, cos) = (phase + FRAC_PI_4).sin_cos();
    let root = size.sqrt().sqrt();
    let scale = 1.0 / PI.sqrt();
    ((sin * even - cos * odd) * scale / root, -(cos * even_slope + sin * odd_slope) * scale * root)
}

pub(crate) fn airy_ai_f64(x: f64) -> f64 {
    airy(x).0
}

pub(crate) fn airy_ai_prime_f64(x: f64) -> f64 {
    airy(x).1
}

/// The polynomial of degree n, truncated to an integer, by its recurrence: `zero` and `one` are degrees 0 and 1, and
/// `next(k, before, now)` is degree k + 1. For a negative degree it is 0.
fn polynomial(n: f64, zero: f64, one: f64, next: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let n = n.trunc();
    if n.is_nan() || n > HIGHEST_DEGREE {
        return f64::NAN;
    }
    if n < 0.0 {
        return 0.0;
    }
    if n == 0.0 {
        return zero;
    }
    let (mut before, mut now, mut k) = (zero, one, 1.0);
    while k < n {
        (before, now) = (now, next(k, before, now));
        k += 1.0;
    }
    now
}

pub(crate) fn chebyshev_t_f64(x: f64, n: f64) -> f64 {
    if n > 32.0 && x.abs() < 1.0 {
        return (n.trunc() * x.acos()).cos();
    }
    polynomial(n, 1.0, x, |_, before, now| 2.0 * x * now - before)
}

pub(crate) fn chebyshev_u_f64(x: f64, n: f64) -> f64 {
    if n > 32.0 && x.abs() < 0.999 {
        let angle = x.acos();
        return ((n.trunc() + 1.0) * angle).sin() / angle.sin();
    }
    polynomial(n, 1.0, 2.0 * x, |_, before, now| 2.0 * x * now - before)
}

pub(crate) fn hermite_h_f64(x: f64, n: f64) -> f64 {
    polynomial(n, 1.0, 2.0 * x, |k, before, now| 2.0 * (x * now - k * before))
}

pub(crate) fn hermite_he_f64(x: f64, n: f64) -> f64 {
    polynomial(n, 1.0, x, |k, before, now| x * now - k * before)
}

pub(crate) fn laguerre_l_f64(x: f64, n: f64) -> f64 {
    polynomial(n, 1.0, 1.0 - x, |k, before, now| ((2.0 * k + 1.0 - x) * now - k * before) / (k + 1.0))
}

pub(crate) fn legendre_p_f64(x: f64, n: f64) -> f64 {
    polynomial(n, 1.0, x, |k, before, now| ((2.0 * k + 1.0) * x * now - k * before) / (k + 1.0))
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 5e-13 * want.abs(), "{got:e} is not {want:e}");
    }

    /// The expected values are from 40-digit arithmetic.
    #[test]
    #[allow(clippy::excessive_precision)]
    fn values() {
        close(k0_f64(0.01), 4.7212447301610949);
        close(k0_f64(1.5), 0.21380556264752574);
        close(k0_f64(2.0), 0.11389387274953344);
        close(k0_f64(2.5), 0.062347553200366186);
        close(k0_f64(30.0), 2.1324774964630564e-14);
        close(k1_f64(0.01), 99.973894118296246);
        close(k1_f64(1.5), 0.27738780045684382);
        close(k1_f64(2.0), 0.13986588181652243);
        close(k1_f64(2.5), 0.073890816347747064);
        close(k1_f64(30.0), 2.1677320018915494e-14);
        close(k0e_f64(0.01), 4.7686940285444619);
        close(k0e_f64(1.5), 0.9582100532948965);
        close(k0e_f64(2.0), 0.84156821507077142);
        close(k0e_f64(2.5), 0.75954869032809958);
        close(k0e_f64(30.0), 0.22788666561625373);
        close(k1e_f64(0.01), 100.97864845824005);
        close(k1e_f64(1.5), 1.243165873552553);
        close(k1e_f64(2.0), 1.0334768470686886);
        close(k1e_f64(2.5), 0.90017442390787809);
        close(k1e_f64(30.0), 0.2316541293777118);
        close(airy_ai_f64(-40.3), 0.22220569428869306);
        close(airy_ai_prime_f64(-40.3), 0.1770817377839684);
        close(airy_ai_f64(-9.6), 0.31465158331169333);
        close(airy_ai_prime_f64(-9.6), 0.19695044232125804);
        close(airy_ai_f64(-9.4), 0.2934775561120679);
        close(airy_ai_prime_f64(-9.4), -0.39986236638984384);
        close(airy_ai_f64(-5.5), 0.017781541276574976);
        close(airy_ai_prime_f64(-5.5), 0.86419721777139839);
        close(airy_ai_f64(-1.25), 0.52004547743529918);
        close(airy_ai_prime_f64(-1.25), 0.13907956335191775);
        close(airy_ai_f64(0.3), 0.27880648195500492);
        close(airy_ai_prime_f64(0.3), -0.2451463642190548);
        close(airy_ai_f64(2.75), 0.010269209855011988);
        close(airy_ai_prime_f64(2.75), -0.017864093772294475);
        close(airy_ai_f64(3.4), 0.0031323427799042084);
        close(airy_ai_prime_f64(3.4), -0.0059872190251137953);
        close(airy_ai_f64(3.6), 0.0021264786826381705);
        close(airy_ai_prime_f64(3.6), -0.0041711317444193804);
        close(airy_ai_f64(12.0), 1.3931846888753608e-13);
        close(airy_ai_prime_f64(12.0), -4.8547365549853085e-13);
        close(chebyshev_t_f64(0.3, 0.0), 1.0);
        close(chebyshev_t_f64(0.3, 7.0), -0.84616320000000004);
        close(chebyshev_t_f64(0.9995, 40.0), 0.30108719839446312);
        close(chebyshev_t_f64(0.2, 40.0), -0.19899783563062826);
        close(chebyshev_t_f64(1.75, 5.0), 164.171875);
        close(chebyshev_t_f64(-2.0, 3.0), -26.0);
        close(chebyshev_u_f64(0.3, 0.0), 1.0);
        close(chebyshev_u_f64(0.3, 7.0), -0.67856640000000007);
        close(chebyshev_u_f64(0.9995, 40.0), 30.445150393942926);
        close(chebyshev_u_f64(0.2, 40.0), -0.39903948352491943);
        close(chebyshev_u_f64(1.75, 5.0), 364.21875);
        close(chebyshev_u_f64(-2.0, 3.0), -56.0);
        close(hermite_h_f64(0.3, 0.0), 1.0);
        close(hermite_h_f64(0.3, 7.0), -416.51792639999999);
        close(hermite_h_f64(0.9995, 40.0), -4.9979046809590827e+29);
        close(hermite_h_f64(0.2, 40.0), -7.7718457301417162e+28);
        close(hermite_h_f64(1.75, 5.0), -122.28125);
        close(hermite_h_f64(-2.0, 3.0), -40.0);
        close(hermite_he_f64(0.3, 0.0), 1.0);
        close(hermite_he_f64(0.3, 7.0), -28.715811299999999);
        close(hermite_he_f64(0.9995, 40.0), 4.1015906505189125e+23);
        close(hermite_he_f64(0.2, 40.0), 9.48573272271446e+22);
        close(hermite_he_f64(1.75, 5.0), -10.9306640625);
        close(hermite_he_f64(-2.0, 3.0), -2.0);
        close(laguerre_l_f64(0.3, 0.0), 1.0);
        close(laguerre_l_f64(0.3, 7.0), -0.30110570589285712);
        close(laguerre_l_f64(0.9995, 40.0), 0.29389569091781307);
        close(laguerre_l_f64(0.2, 40.0), 0.063005755581574843);
        close(laguerre_l_f64(1.75, 5.0), 0.44737141927083333);
        close(laguerre_l_f64(-2.0, 3.0), 14.333333333333333);
        close(legendre_p_f64(0.3, 0.0), 1.0);
        close(legendre_p_f64(0.3, 7.0), -0.22407298125000002);
        close(legendre_p_f64(0.9995, 40.0), 0.63011629379289322);
        close(legendre_p_f64(0.2, 40.0), -0.037628423706462537);
        close(legendre_p_f64(1.75, 5.0), 85.6397705078125);
        close(legendre_p_f64(-2.0, 3.0), -17.0);
    }

    #[test]
    fn far_from_zero() {
        close(k0e_f64(1000.0), 0.03962832160075422);
        close(k0e_f64(4.5e16), 5.908179503018386e-09);
        close(k1e_f64(4.5e16), 5.908179503018386e-09);
        assert_eq!((k0_f64(4.5e16), k1_f64(1e308)), (0.0, 0.0));
        assert!(k0e_f64(1e308) > 0.0);
    }

    /// Halfway to an integer outside of the table.
    #[test]
    fn the_ends_of_the_table() {
        close(airy_ai_f64(3.5), 0.002584098786989635);
        close(airy_ai_prime_f64(3.5), -0.005004413967952583);
        close(airy_ai_f64(-9.5), 0.3191032477191282);
        close(airy_ai_prime_f64(-9.5), -0.10809531881187124);
        for bits in (0..=u64::MAX).step_by(0x007f_ffff_ffff_ffff) {
            airy(f64::from_bits(bits));
        }
        for step in -2000..2000 {
            assert!(airy_ai_f64(f64::from(step) / 128.0).abs() < 0.6);
        }
    }

    #[test]
    fn degrees_that_no_loop_should_run_to() {
        assert!(hermite_h_f64(0.5, 1e18).is_nan() && legendre_p_f64(0.5, f64::INFINITY).is_nan());
        assert!(chebyshev_t_f64(0.5, 1e9).abs() <= 1.0);
        assert_eq!((laguerre_l_f64(0.5, -1.0), chebyshev_u_f64(0.5, -2.0)), (0.0, 0.0));
    }
}
