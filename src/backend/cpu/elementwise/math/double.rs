//! The f64 functions: those of `single`, with longer polynomials and two differences. Exponents stay biased
//! and unsigned, because AVX2 has neither an arithmetic shift of 64-bit lanes nor a conversion of them to f64.
//! The logarithm takes one division, because a plain polynomial would be twice as long.

use super::polynomial_f64 as polynomial;

/// Adding and subtracting this rounds to the nearest integer; in between, the low bits of the sum
/// are that integer in two's complement. Valid for |x| < 2^51.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// ln 2 in two pieces. The first has 32 bits, so that its product with an exponent is exact.
const LN2_HI: f64 = 0.693_147_180_369_123_8;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// The bias of a stored exponent.
const BIAS: f64 = 1023.0;

/// The power of two whose exponent, biased, is in the low bits: those above are shifted out.
#[inline(always)]
fn power_of_two(biased: u64) -> f64 {
    f64::from_bits(biased << 52)
}

/// Splits x into k ln 2 + r, |r| <= (ln 2)/2, and e^r into 1 + hi + tail. Returns k + bias in the low twelve bits, hi and
/// tail. A NaN stays one in hi and tail.
#[inline(always)]
fn exp_parts(x: f64, bias: f64) -> (u64, f64, f64) {
    // e^r = 1 + r + r^2 q(r), to 2^-60.
    const Q: [f64; 11] = [
        0.5,
        0.166_666_666_666_666_77,
        0.041_666_666_666_666_7,
        0.008_333_333_333_321_615,
        0.001_388_888_888_886_672_8,
        0.000_198_412_698_861_584_02,
        2.480_158_736_073_158e-5,
        2.755_724_418_199_112_5e-6,
        2.755_724_263_258_723e-7,
        2.510_904_488_834_267e-8,
        2.092_447_773_114_515e-9,
    ];
    let t = x * std::f64::consts::LOG2_E + (ROUND + bias);
    let kf = t - (ROUND + bias);
    let (hi, lo) = (x - kf * LN2_HI, kf * LN2_LO);
    let r = hi - lo;
    (t.to_bits(), hi, r * r * polynomial(r, Q) - lo)
}

/// 1 + hi + tail, with the rounding error of 1 + hi compensated.
#[inline(always)]
fn one_plus(hi: f64, tail: f64) -> f64 {
    let sum = 1.0 + hi;
    let lost = hi - (sum - 1.0);
    sum + (lost + tail)
}

/// e^x for -709 <= x <= 709, where one scaling step is enough: a result below 1.6e-308 is 0.
#[inline(always)]
fn exp_bounded(x: f64) -> f64 {
    let (k, hi, tail) = exp_parts(x, BIAS);
    one_plus(hi, tail) * power_of_two(k)
}

/// e^x.
#[inline(always)]
pub(crate) fn exp_f64(x: f64) -> f64 {
    let (exponents, hi, tail) = exp_parts(x.clamp(-746.0, 710.0), 2.0 * BIAS);
    let half = exponents >> 1;
    one_plus(hi, tail) * power_of_two(half) * power_of_two(exponents.wrapping_sub(half))
}

/// e^x for x <= 0, with results below 1.6e-308 flushed to 0: for sums and fractions of numbers of which one is 1.
#[inline(always)]
pub(crate) fn exp_nonpositive_f64(x: f64) -> f64 {
    // There k = -1023, and 2^k is stored as 0. Not `max`, which would drop a NaN.
    const LEAST: f64 = -709.0;
    exp_bounded(if x < LEAST { LEAST } else { x })
}

/// e^x - 1, accurate near 0.
#[inline(always)]
pub(crate) fn expm1_f64(x: f64) -> f64 {
    let (half, hi, tail) = exp_parts(x.clamp(-50.0, 710.0), BIAS - 1.0);
    let s = power_of_two(half);
    let a = s - 0.5;
    let b = s * hi;
    let sum = a + b;
    let lost = b - (sum - a);
    let y = 2.0 * (sum + (lost + s * tail));
    if x.abs() < 1e-17 { x } else { y }
}

/// ln(2^k (1 + f)) for a mantissa 1 + f between sqrt(1/2) and sqrt(2).
#[inline(always)]
fn ln_parts(k: f64, f: f64) -> f64 {
    // With s = f / (2 + f), ln(1 + f) = 2 atanh s = 2 s + s^3 p(s^2), to 2^-58.
    const P: [f64; 7] = [
        0.666_666_666_666_673_4,
        0.399_999_999_994_143_43,
        0.285_714_287_424_712_83,
        0.222_221_985_637_432_84,
        0.181_835_648_585_334_57,
        0.153_140_359_178_124_44,
        0.147_961_057_790_950_06,
    ];
    let s = f / (2.0 + f);
    let z = s * s;
    // 2 s = f - s f, and s f = h - s h with h = f^2/2: in this form the error of s has little effect.
    let h = 0.5 * f * f;
    let tail = s * (h + z * polynomial(z, P)) + k * LN2_LO;
    k * LN2_HI + (f - (h - tail))
}

/// Splits a positive normal number into an exponent, biased by 1023, and a mantissa between sqrt(1/2) and
/// sqrt(2).
#[inline(always)]
fn split(x: f64) -> (u64, f64) {
    const ONE: u64 = 1.0_f64.to_bits();
    let bits = x.to_bits();
    let biased = bits.wrapping_add(ONE - std::f64::consts::FRAC_1_SQRT_2.to_bits()) >> 52;
    (biased, f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(ONE)))
}

/// Subtracts the bias from an exponent, which becomes the low bits of 2^52.
#[inline(always)]
fn unbiased(exponent: u64) -> f64 {
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    f64::from_bits(TWO_52.to_bits() | exponent) - (TWO_52 + 1023.0)
}

/// ln x.
#[inline(always)]
pub(crate) fn ln_f64(x: f64) -> f64 {
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let denormal = x < f64::MIN_POSITIVE;
    let (k, m) = split(if denormal { x * TWO_52 } else { x });
    let k = unbiased(k);
    let y = ln_parts(if denormal { k - 52.0 } else { k }, m - 1.0);
    let edge = if x == 0.0 { f64::NEG_INFINITY } else { x };
    let edge = if x < 0.0 { f64::NAN } else { edge };
    if x > 0.0 && x < f64::INFINITY { y } else { edge }
}

/// ln(1 + x), accurate near 0.
#[inline(always)]
pub(crate) fn log1p_f64(x: f64) -> f64 {
    let u = 1.0 + x;
    let (large, small) = if x > 1.0 { (x, 1.0) } else { (1.0, x) };
    let c = small - (u - large);
    let (k, m) = split(u);
    let c = c * f64::from_bits(2046_u64.wrapping_sub(k) << 52);
    let f = (m - 1.0) + if x < 1e16 { c } else { 0.0 };
    let y = ln_parts(unbiased(k), f);
    let edge = if x == -1.0 { f64::NEG_INFINITY } else { x };
    let edge = if x < -1.0 { f64::NAN } else { edge };
    if x > -1.0 && x < f64::INFINITY && x != 0.0 { y } else { edge }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh_f64(x: f64) -> f64 {
    // tanh r = r + r^3 p(r^2) for |r| < 0.26, to 2^-56.
    const P: [f64; 7] = [
        -0.333_333_333_333_324_2,
        0.133_333_333_329_885_1,
        -0.053_968_253_526_710_745,
        0.021_869_461_694_971_743,
        -0.008_862_360_943_198_802,
        0.003_576_398_210_023_446,
        -0.001_307_617_784_836_489,
    ];
    const HALVES: f64 = 0.5 * ROUND + (BIAS - 1.0);
    let a = if x.abs() > 20.0 { 20.0 } else { x.abs() };
    let t = f64::from_bits((a * (2.0 * std::f64::consts::LOG2_E) + HALVES).to_bits() & !1);
    let r = a - (t - HALVES) * (0.5 * std::f64::consts::LN_2);
    let z = r * r;
    let tanh = r + r * (z * polynomial(z, P));
    let h = f64::from_bits(t.to_bits() << 51);
    let n = (h - 0.5) + tanh * (h + 0.5);
    (n / (n + (1.0 - tanh))).copysign(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid_f64(x: f64) -> f64 {
    let e = exp_f64(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    let sum = 1.0 + e;
    let lost = e - (sum - 1.0);
    let y = top / sum;
    y - y * lost
}

/// The error function.
#[inline(always)]
pub(crate) fn erf_f64(x: f64) -> f64 {
    // erf x = x + x p(x^2) for |x| < 1, to 2^-56.
    const P: [f64; 13] = [
        0.128_379_167_095_512_6,
        -0.376_126_389_031_837_5,
        0.112_837_916_709_547_88,
        -0.026_866_170_645_058_886,
        0.005_223_977_624_635_93,
        -0.000_854_832_696_995_599_1,
        0.000_120_553_307_012_547_43,
        -1.492_558_510_917_882_2e-5,
        1.646_083_326_855_16e-6,
        -1.634_849_937_301_406e-7,
        1.464_733_469_296_005_7e-8,
        -1.132_392_337_657_036_7e-9,
        5.873_158_429_688_057e-11,
    ];
    // (1 - erf x) e^(x^2) from 1 to 6, in (x - 3.25) / (x + 3.25): 2^-56 of erf x.
    const G: [f64; 14] = [
        0.166_335_348_426_823_27,
        -0.306_796_115_087_605_1,
        0.239_804_424_719_309_27,
        -0.157_061_341_485_562_7,
        0.084_180_132_526_549_36,
        -0.035_181_713_390_998_92,
        0.010_185_312_958_725_753,
        -0.001_188_004_155_881_539_8,
        -0.000_506_951_945_542_726_9,
        0.000_253_488_786_381_25,
        -1.784_374_782_270_853_2e-6,
        -2.962_915_823_725_419e-5,
        3.710_759_842_805_405e-6,
        3.532_592_792_984_963e-6,
    ];
    let a = x.abs();
    let near = a + a * polynomial(a * a, P);
    let b = if a > 6.0 { 6.0 } else { a };
    // The rounding of b^2 is harmless: where b^2 is large, the exponential is small relative to 1.
    let far = 1.0 - exp_bounded(-(b * b)) * polynomial((b - 3.25) / (b + 3.25), G);
    (if a < 1.0 { near } else { far }).copysign(x)
}
