//! Elementary functions of one f32 or f64, to be called in a loop.
//!
//! The platform's mathematical library is called one element at a time. These functions are inlined instead, and have no
//! branch, call or table, so that the compiler vectorises a loop over them for the instruction set the loop is compiled
//! for. They give the same bits for every instruction set: products and sums are not fused, because `mul_add` would call a
//! slow library function on CPUs without it. The exception is the f32 exponential of non-positive numbers, on which softmax,
//! cross entropy and attention spend much of their time: it has a parameter that allows fusing.
//!
//! The largest errors in units in the last place, rounded up. Those of f32 are over all 2^32 arguments, denormal
//! results included; those of f64 over 10^8 random ones per function.
//!
//! |     | exp  | expm1 | ln   | log1p | tanh | sigmoid | erf  | sin  | cos  |
//! |-----|------|-------|------|-------|------|---------|------|------|------|
//! | f32 | 0.78 | 1.16  | 0.83 | 1.39  | 1.68 | 1.97    | 1.42 | 0.51 | 0.51 |
//! | f64 | 0.78 | 1.17  | 0.86 | 1.32  | 1.86 | 1.95    | 1.58 |      |      |
//!
//! The sine and cosine of f64 are the platform's. The coefficients are minimax polynomials found by Remez'
//! exchange algorithm in 60 digits, then rounded.

pub(crate) mod bessel;
mod double;
mod single;
pub(crate) mod special;
mod trigonometry;

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;

/// Functions of f32 that round the result of the f64 function.
macro_rules! singles {
    ($($single:ident $double:ident($($x:ident),+);)+) => {$(
        pub(crate) fn $single($($x: f32),+) -> f32 {
            $double($(f64::from($x)),+) as f32
        }
    )+};
}
use singles;

/// A term smaller than this fraction of a sum does not change it.
const NEGLIGIBLE: f64 = 1e-17;

pub(crate) use double::{erf_f64, exp_f64, exp_nonpositive_f64, expm1_f64, ln_f64, log1p_f64, sigmoid_f64, tanh_f64};
pub(crate) use single::{erf_f32, exp_f32, exp_nonpositive_f32, expm1_f32, ln_f32, log1p_f32, sigmoid_f32, tanh_f32};
pub(crate) use trigonometry::{cos_f32, cos_f64, sin_f32, sin_f64};

/// `c[0] + c[1] x + c[2] x^2 + ...`, for at least two coefficients: Horner's rule on the even and on the odd
/// powers, as two chains that the CPU can overlap. The loop is unrolled since its length is constant. Halving an array in
/// place would give shorter chains, but prevents vectorisation of the caller.
macro_rules! polynomial {
    ($name:ident, $t:ty) => {
        #[inline(always)]
        fn $name<const N: usize>(x: $t, c: [$t; N]) -> $t {
            let square = x * x;
            let (mut a, mut b) = (c[N - 1], c[N - 2]);
            let mut i = N - 2;
            while i >= 2 {
                i -= 2;
                a = a * square + c[i + 1];
                b = b * square + c[i];
            }
            let top = a * x + b;
            if N.is_multiple_of(2) { top } else { top * x + c[0] }
        }
    };
}

polynomial!(polynomial_f32, f32);
polynomial!(polynomial_f64, f64);
