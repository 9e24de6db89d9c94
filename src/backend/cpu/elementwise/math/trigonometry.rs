//! Sine and cosine.
//!
//! The f32 functions compute in f64 and have one path for all arguments up to f32::MAX: the
//! reduction keeps only those bits of 1/(2 pi) that affect the fraction of a turn.

use super::polynomial_f64 as polynomial;

/// 1/(2 pi) in pieces of 29 bits; piece j is a multiple of 2^-(31 + 29 j). The product of one with
/// an f32 (24 bits) is exact in f64.
const PIECES: [f64; 5] = [
    0.159_154_942_724_853_75,
    3.670_415_811_563_021_4e-10,
    5.690_025_167_992_954e-19,
    1.470_303_684_693_260_8e-27,
    2.586_717_175_209_053_7e-36,
];

/// The remainder of 1/(2 pi) after the first j + 2 pieces, rounded to f64.
const RESTS: [f64; 4] =
    [5.690_025_182_695_99e-19, 1.470_303_687_279_978e-27, 2.586_717_176_154_868e-36, 9.458_140_970_740_169e-46];

/// |x| as a count of quarter turns and the remaining angle, at most pi/4 in magnitude. Only the low two bits of the
/// count are correct. The angle is NaN where x is infinite or NaN.
#[inline(always)]
fn quarter_turns(x: f32) -> (u64, f64) {
    const WHOLE: f64 = 4_503_599_627_370_496.0; // 2^52: adding it rounds to an integer.
    const SIGNED: f64 = 1.5 * WHOLE; // The same for either sign.

    let a = f64::from(x.abs());
    // From 2^(54 + 29 j) on, a is a multiple of 2^(31 + 29 j), its product with piece j is a whole
    // number of turns, and that piece can be skipped. Below, the first two products are under 2^52.
    let (p, q, rest) = if a < 18_014_398_509_481_984.0 {
        (PIECES[0], PIECES[1], RESTS[0])
    } else if a < 9_671_406_556_917_033_397_649_408.0 {
        (PIECES[1], PIECES[2], RESTS[1])
    } else if a < 5_192_296_858_534_827_628_530_496_329_220_096.0 {
        (PIECES[2], PIECES[3], RESTS[2])
    } else {
        (PIECES[3], PIECES[4], RESTS[3])
    };
    let (p, q) = (a * p, a * q);
    let p = p - ((p + WHOLE) - WHOLE);
    let q = q - ((q + WHOLE) - WHOLE);
    // Near a multiple of pi/2 the sum cancels, so its rounding error is kept.
    let sum = p + q;
    let q_in_sum = sum - p;
    let lost = (p - (sum - q_in_sum)) + (q - q_in_sum);
    let rest = a * rest;
    let t = 4.0 * (sum + rest) + SIGNED;
    let turns = (sum - 0.25 * (t - SIGNED)) + (lost + rest);
    (t.to_bits(), turns * std::f64::consts::TAU)
}

/// sin(count * pi/2 + r) for |r| <= pi/4, to 2^-33.
#[inline(always)]
fn sine_of(count: u64, r: f64) -> f64 {
    // sin r = r + r^3 s(r^2); cos r = 1 - r^2/2 + r^4 c(r^2).
    const S: [f64; 4] = [
        -0.166_666_666_414_284_54,
        0.008_333_329_362_486_807,
        -0.000_198_393_271_984_955_33,
        2.718_237_812_829_563_3e-6,
    ];
    const C: [f64; 3] = [0.041_666_645_554_662_68, -0.001_388_730_988_381_485_5, 2.443_241_511_337_760_4e-5];
    let z = r * r;
    let sin = r + r * (z * polynomial(z, S));
    let cos = 1.0 - z * (0.5 - z * polynomial(z, C));
    let value = if count & 1 == 0 { sin } else { cos };
    f64::from_bits(value.to_bits() ^ ((count & 2) << 62))
}

/// The sine.
#[inline(always)]
pub(crate) fn sin_f32(x: f32) -> f32 {
    let (count, r) = quarter_turns(x);
    let y = sine_of(count, r) as f32;
    f32::from_bits(y.to_bits() ^ (x.to_bits() & 0x8000_0000))
}

/// The cosine.
#[inline(always)]
pub(crate) fn cos_f32(x: f32) -> f32 {
    let (count, r) = quarter_turns(x);
    sine_of(count.wrapping_add(1), r) as f32
}

/// The sine of the standard library, which is not vectorised.
#[inline(always)]
pub(crate) fn sin_f64(x: f64) -> f64 {
    x.sin()
}

/// The cosine of the standard library, which is not vectorised.
#[inline(always)]
pub(crate) fn cos_f64(x: f64) -> f64 {
    x.cos()
}
