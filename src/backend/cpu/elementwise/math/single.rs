//! The f32 functions, in f32 arithmetic throughout.

use super::polynomial_f32 as polynomial;
use crate::backend::cpu::runtime::simd::mul_add;

/// Adding and subtracting this rounds to the nearest integer; in between, the low bits of the sum
/// are that integer in two's complement. Valid for |x| < 2^22.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// ln 2 in two pieces. The first has 16 bits, so that its product with an exponent is exact.
const LN2_HI: f32 = 0.693_145_75;
const LN2_LO: f32 = 1.428_606_8e-6;

/// The bias of a stored exponent.
const BIAS: f32 = 127.0;

/// e^r = 1 + r + r^2 q(r) for |r| <= (ln 2)/2, to 2^-28.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_717, 0.001_381_462_7];

/// The power of two whose exponent, biased, is in the low bits: those above are shifted out.
#[inline(always)]
fn power_of_two(biased: u32) -> f32 {
    f32::from_bits(biased << 23)
}

/// Splits x into k ln 2 + (hi - lo) with |hi - lo| <= (ln 2)/2 and hi exact. The low nine bits of the first result are
/// k + bias; adding the bias here costs nothing. A NaN stays one in hi.
#[inline(always)]
fn reduce_exp(x: f32, bias: f32) -> (u32, f32, f32) {
    let t = x * std::f32::consts::LOG2_E + (ROUND + bias);
    let kf = t - (ROUND + bias);
    (t.to_bits(), x - kf * LN2_HI, kf * LN2_LO)
}

/// e^x.
#[inline(always)]
pub(crate) fn exp_f32(x: f32) -> f32 {
    // At and beyond these bounds the result is 0 or infinite.
    let (exponents, hi, lo) = reduce_exp(x.clamp(-104.0, 89.0), 2.0 * BIAS);
    let r = hi - lo;
    // The rounding error of 1 + hi is compensated: otherwise the result is off by up to an ulp.
    let sum = 1.0 + hi;
    let lost = hi - (sum - 1.0);
    let p = sum + (lost + (r * r * polynomial(r, EXP) - lo));
    // In two steps: 2^k alone would overflow or underflow before the result does. The first product
    // is exact, so a denormal result is rounded once.
    let half = exponents >> 1;
    p * power_of_two(half) * power_of_two(exponents.wrapping_sub(half))
}

/// e^x for x <= 0, with results below 8.3e-39 flushed to 0: for sums and fractions of numbers of which one is 1. It takes a
/// third less work than [`exp_f32`]; the error is up to 1.01 ulp.
#[inline(always)]
pub(crate) fn exp_nonpositive_f32<const FMA: bool>(x: f32) -> f32 {
    // There k = -127, and 2^k is stored as 0. Not `max`, which would drop a NaN.
    const LEAST: f32 = -88.0;
    let x = if x < LEAST { LEAST } else { x };
    let t = mul_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND + BIAS);
    let k = t - (ROUND + BIAS);
    let r = mul_add::<FMA>(k, -LN2_LO, mul_add::<FMA>(k, -LN2_HI, x));
    let square = r * r;
    let [a, b, c, d, e] = EXP;
    let (even, odd) = (mul_add::<FMA>(e, square, c), mul_add::<FMA>(d, square, b));
    let q = mul_add::<FMA>(mul_add::<FMA>(even, r, odd), r, a);
    (1.0 + mul_add::<FMA>(square, q, r)) * power_of_two(t.to_bits())
}

/// e^x - 1, accurate near 0.
#[inline(always)]
pub(crate) fn expm1_f32(x: f32) -> f32 {
    const Q: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_355, 0.008_333_273, 0.001_394_100_8, 0.000_199_142_03];
    // Below -20 the result is -1; far below, 2^k would be denormal.
    // The bias is that of k - 1.
    let (half, hi, lo) = reduce_exp(x.clamp(-20.0, 89.0), BIAS - 1.0);
    let r = hi - lo;
    let tail = r * r * polynomial(r, Q) - lo;
    // Half the result is (s - 1/2) + s hi + s tail with s = 2^(k-1), which is finite even where the
    // result overflows. The first sum cancels when k = 1, so its rounding error is compensated.
    let s = power_of_two(half);
    let a = s - 0.5;
    let b = s * hi;
    let sum = a + b;
    let lost = b - (sum - a);
    let y = 2.0 * (sum + (lost + s * tail));
    // Keeps -0, and denormals, which halving would have rounded.
    if x.abs() < 1e-8 { x } else { y }
}

/// ln(2^k (1 + f)) for a mantissa 1 + f between sqrt(1/2) and sqrt(2).
#[inline(always)]
fn ln_parts(k: i32, f: f32) -> f32 {
    // ln(1 + f) = f - f^2/2 + f^3 p(f), to 2^-30.
    const P: [f32; 9] = [
        0.333_333_1,
        -0.249_999_87,
        0.200_022_27,
        -0.166_692_51,
        0.142_186_61,
        -0.123_843_506,
        0.118_729_57,
        -0.117_897_91,
        0.069_153_93,
    ];
    let kf = k as f32;
    let square = f * f;
    let tail = f * square * polynomial(f, P) + kf * LN2_LO;
    kf * LN2_HI + (f + (tail - 0.5 * square))
}

/// Splits a positive normal number into an exponent and a mantissa between sqrt(1/2) and sqrt(2).
#[inline(always)]
fn split(x: f32) -> (i32, f32) {
    let bits = x.to_bits();
    let k = (bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits()) as i32) >> 23;
    (k, f32::from_bits(bits.wrapping_sub((k as u32) << 23)))
}

/// ln x.
#[inline(always)]
pub(crate) fn ln_f32(x: f32) -> f32 {
    let denormal = x < f32::MIN_POSITIVE;
    let (k, m) = split(if denormal { x * 8_388_608.0 } else { x });
    let y = ln_parts(if denormal { k - 23 } else { k }, m - 1.0);
    let edge = if x == 0.0 { f32::NEG_INFINITY } else { x };
    let edge = if x < 0.0 { f32::NAN } else { edge };
    if x > 0.0 && x < f32::INFINITY { y } else { edge }
}

/// ln(1 + x), accurate near 0.
#[inline(always)]
pub(crate) fn log1p_f32(x: f32) -> f32 {
    // 1 + x = u + c without error.
    let u = 1.0 + x;
    let (large, small) = if x > 1.0 { (x, 1.0) } else { (1.0, x) };
    let c = small - (u - large);
    let (k, m) = split(u);
    // Where k = 0 this gives x exactly. Past 2^100, c is negligible.
    let f = (m - 1.0) + c * power_of_two((127 - k.clamp(-100, 100)) as u32);
    let y = ln_parts(k, f);
    let edge = if x == -1.0 { f32::NEG_INFINITY } else { x };
    let edge = if x < -1.0 { f32::NAN } else { edge };
    // The comparison with 0 is for the sign of -0.
    if x > -1.0 && x < f32::INFINITY && x != 0.0 { y } else { edge }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh_f32(x: f32) -> f32 {
    // tanh r = r + r^3 p(r^2) for |r| < 0.26, to 2^-27.
    const P: [f32; 3] = [-0.333_332_15, 0.133_227_37, -0.051_231_256];
    // Adding this rounds to halves.
    const HALVES: f32 = 0.5 * ROUND + (BIAS - 1.0);
    // Past 10 the result is 1. Not `min`, which would drop a NaN.
    let a = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    // |x| = k (ln 2)/2 + r, with -0.087 < r < 0.26 because the half is cut off. Were r as small as -0.17, n would lose
    // digits at k = 1. One piece of ln 2 is enough: where k is large, the result hardly depends on r.
    let t = f32::from_bits((a * (2.0 * std::f32::consts::LOG2_E) + HALVES).to_bits() & !1);
    let r = a - (t - HALVES) * (0.5 * std::f32::consts::LN_2);
    let z = r * r;
    let tanh = r + r * (z * polynomial(z, P));
    // By the addition theorem, with h = 2^(k-1). The divisor is computed from n, so that they share their errors; at k = 0
    // it is exactly 1.
    let h = f32::from_bits(t.to_bits() << 22);
    let n = (h - 0.5) + tanh * (h + 0.5);
    (n / (n + (1.0 - tanh))).copysign(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid_f32(x: f32) -> f32 {
    // e^-|x| cannot overflow, so that the left tail is accurate down to the denormals.
    let e = exp_f32(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    // The divisor is sum + lost. Without its small part the error would pass 2 ulp.
    let sum = 1.0 + e;
    let lost = e - (sum - 1.0);
    let y = top / sum;
    y - y * lost
}

/// The error function.
#[inline(always)]
pub(crate) fn erf_f32(x: f32) -> f32 {
    // erf x = x + x p(x^2) for |x| < 0.92, to 2^-27.
    const P: [f32; 7] =
        [0.128_379_17, -0.376_126_35, 0.112_837_03, -0.026_859_798, 0.005_201_959_5, -0.000_815_262_14, 8.409_892e-5];
    // log2(1 - erf x) from 0.92 to 4.
    const L: [f32; 8] = [
        -6.898_107_4e-6,
        -1.628_370_5,
        -0.915_94,
        -0.153_977_17,
        0.034_930_72,
        -0.005_575_386,
        0.000_546_975_8,
        -2.449_317_3e-5,
    ];
    // 2^r for |r| <= 1/2, to 2^-28.
    const E: [f32; 7] =
        [1.0, std::f32::consts::LN_2, 0.240_226_47, 0.055_503_287, 0.009_618_489, 0.001_339_995_8, 0.000_153_458_03];
    let a = x.abs();
    let near = a + a * polynomial(a * a, P);
    let l = polynomial(if a > 4.0 { 4.0 } else { a }, L);
    let t = l + (ROUND + BIAS);
    let r = l - (t - (ROUND + BIAS));
    let far = 1.0 - polynomial(r, E) * power_of_two(t.to_bits());
    (if a < 0.92 { near } else { far }).copysign(x)
}
