//! Copies of the operands as bf16, in the order in which the tile unit reads them.
//!
//! The left operand is cut into panels of 32 rows and the right one into panels of 32 columns. A panel is a sequence of
//! steps of 32 elements of the inner dimension, and a step is two tiles of 16 lines of 64 bytes:
//!
//! - left: a line holds 32 elements of one row;
//! - right: a line holds two successive elements of each of 16 columns.
//!
//! One function packs both operands: it takes the right operand transposed, so that its columns are rows. Incomplete tiles are
//! padded with zeros.

use super::kernel::{PANEL_STEP, SIDE, STEP, TILE};
use crate::backend::cpu::linalg::gemm::Matrix;
use half::bf16;
#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

/// The contents of a line of a packed tile.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lines {
    /// 32 elements of one row, for the left operand.
    Rows,
    /// Two elements of each of 16 rows, for the (transposed) right operand.
    Pairs,
}

/// An element type of the operands.
///
/// f32 is rounded to the nearest bf16, ties to even. The conversion flushes subnormal numbers to zero, which does not matter, as
/// the tile unit does so, too.
///
/// # Safety
/// The unsafe functions are called where the CPU has AVX-512 with BW, VL and BF16. They access only the elements in their
/// masks, and set the others to zero. They are `inline(always)` so that they are compiled with their callers' instruction
/// sets.
pub(crate) unsafe trait PackElement: Copy + Send + Sync {
    fn bits(self) -> u16;

    /// 32 successive elements.
    unsafe fn line(from: *const Self, mask: u32) -> __m512i;

    /// 16 elements from `first`, then 16 from `second`.
    unsafe fn halves(first: *const Self, first_mask: u16, second: *const Self, second_mask: u16) -> __m512i;
}

// SAFETY: all loads are masked.
unsafe impl PackElement for f32 {
    fn bits(self) -> u16 {
        let bits = self.to_bits();
        if self.is_nan() {
            // The top of the payload is kept; the quiet bit prevents a NaN from becoming an infinity.
            return (bits >> 16) as u16 | 0x40;
        }
        if self.is_subnormal() {
            return (bits >> 16) as u16 & 0x8000;
        }
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }

    #[inline(always)]
    unsafe fn line(from: *const Self, mask: u32) -> __m512i {
        // SAFETY: the trait's contract; half a mask covers half of the elements.
        unsafe { Self::halves(from, mask as u16, from.wrapping_add(TILE), (mask >> TILE) as u16) }
    }

    #[inline(always)]
    unsafe fn halves(first: *const Self, first_mask: u16, second: *const Self, second_mask: u16) -> __m512i {
        // SAFETY: the trait's contract. The two types of 512 bits differ only in name.
        unsafe {
            let (low, high) = (_mm512_maskz_loadu_ps(first_mask, first), _mm512_maskz_loadu_ps(second_mask, second));
            std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
        }
    }
}

// SAFETY: all loads are masked.
unsafe impl PackElement for bf16 {
    fn bits(self) -> u16 {
        self.to_bits()
    }

    #[inline(always)]
    unsafe fn line(from: *const Self, mask: u32) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { _mm512_maskz_loadu_epi16(mask, from.cast()) }
    }

    #[inline(always)]
    unsafe fn halves(first: *const Self, first_mask: u16, second: *const Self, second_mask: u16) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe {
            let low = _mm256_maskz_loadu_epi16(first_mask, first.cast());
            let high = _mm256_maskz_loadu_epi16(second_mask, second.cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }
}

/// Packs `rows` x `k` elements of `x` as panels, `stride` elements apart.
///
/// # Safety
/// The tile unit is available; `x` has these elements; `to` has room for the panels, whose number is
/// `rows.div_ceil(SIDE)`, each of [`PANEL_STEP`] elements for each of `k.div_ceil(STEP)` steps; it is aligned to 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn panels<S: PackElement>(
    x: Matrix<S>,
    rows: usize,
    k: usize,
    to: *mut u16,
    stride: usize,
    lines: Lines,
) {
    let step = |panel: usize, step: usize| {
        let (i, p) = (panel * SIDE, step * STEP);
        for half in [0, TILE] {
            let (x, rows) = (x.from(i + half, p), rows.saturating_sub(i + half).min(TILE));
            // SAFETY: the caller's promise.
            unsafe {
                let to = to.add(panel * stride + step * PANEL_STEP + half * STEP);
                tile(x, rows, STEP.min(k - p), to, lines);
            }
        }
    };
    let (panels, steps) = (rows.div_ceil(SIDE), k.div_ceil(STEP));
    // The source is read along contiguous elements as far as possible, for locality.
    if x.row == 1 {
        for at in 0..steps {
            for panel in 0..panels {
                step(panel, at);
            }
        }
    } else {
        for panel in 0..panels {
            for at in 0..steps {
                step(panel, at);
            }
        }
    }
}

/// Packs a tile of up to 16 rows of up to 32 elements.
///
/// It uses loops instead of `array::from_fn`, which is compiled for the baseline, so that every AVX-512 instruction in it would
/// be a call.
///
/// # Safety
/// As [`panels`], with room for a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile<S: PackElement>(x: Matrix<S>, rows: usize, k: usize, to: *mut u16, lines: Lines) {
    // SAFETY: the caller's promise. Elements that `x` does not have are outside the masks.
    unsafe {
        let mut tile = [_mm512_setzero_si512(); TILE];
        let found = if x.col == 1 {
            let mask = u32::MAX >> (STEP - k);
            for (i, line) in tile.iter_mut().enumerate() {
                *line = S::line(x.at(i, 0), if i < rows { mask } else { 0 });
            }
            Lines::Rows
        } else if x.row == 1 {
            let mask = ((1_u32 << rows) - 1) as u16;
            for (q, line) in tile.iter_mut().enumerate() {
                let (even, odd) = (if 2 * q < k { mask } else { 0 }, if 2 * q + 1 < k { mask } else { 0 });
                *line = pairs(x, 2 * q, even, odd);
            }
            Lines::Pairs
        } else {
            tile = strided(x, rows, k);
            Lines::Rows
        };
        let tile = if found == lines { tile } else { transpose(tile) };
        for (i, &line) in tile.iter().enumerate() {
            _mm512_store_si512(to.add(i * STEP).cast(), line);
        }
    }
}

/// Elements `p` and `p + 1` of each of 16 rows that are one element apart.
///
/// # Safety
/// As [`tile`]; `x` has the elements in the masks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pairs<S: PackElement>(x: Matrix<S>, p: usize, even: u16, odd: u16) -> __m512i {
    static ALTERNATE: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 16 {
            order[2 * i] = i as u16;
            order[2 * i + 1] = 16 + i as u16;
            i += 1;
        }
        order
    };
    // SAFETY: the caller's promise; the order has 64 bytes.
    unsafe {
        let order = _mm512_loadu_si512(ALTERNATE.as_ptr().cast());
        _mm512_permutexvar_epi16(order, S::halves(x.at(0, p), even, x.at(0, p + 1), odd))
    }
}

/// The rows of a tile, gathered one element at a time.
///
/// # Safety
/// As [`tile`].
#[inline(never)]
#[target_feature(enable = "avx512f")]
unsafe fn strided<S: PackElement>(x: Matrix<S>, rows: usize, k: usize) -> [__m512i; TILE] {
    let mut tile = [[0_u16; STEP]; TILE];
    for (i, row) in tile.iter_mut().enumerate().take(rows) {
        for (p, to) in row.iter_mut().enumerate().take(k) {
            // SAFETY: `x` has `rows` x `k` elements.
            *to = unsafe { x.at(i, p).read() }.bits();
        }
    }
    // SAFETY: each row has 64 bytes.
    std::array::from_fn(|i| unsafe { _mm512_loadu_si512(tile[i].as_ptr().cast()) })
}

/// The tile, with its pairs of elements transposed: pair `j` of line `i` becomes pair `i` of line `j`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn transpose(mut x: [__m512i; TILE]) -> [__m512i; TILE] {
    let mut y = x;
    // Exchanges pairs, then groups of two, then quarters of registers.
    for i in 0..8 {
        y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    for at in [0, 4, 8, 12] {
        x[at] = _mm512_unpacklo_epi64(y[at], y[at + 2]);
        x[at + 1] = _mm512_unpackhi_epi64(y[at], y[at + 2]);
        x[at + 2] = _mm512_unpacklo_epi64(y[at + 1], y[at + 3]);
        x[at + 3] = _mm512_unpackhi_epi64(y[at + 1], y[at + 3]);
    }
    for i in 0..4 {
        let even = |a, b| _mm512_shuffle_i32x4::<0x88>(a, b);
        let odd = |a, b| _mm512_shuffle_i32x4::<0xdd>(a, b);
        let (a, b) = (even(x[i], x[i + 4]), even(x[i + 8], x[i + 12]));
        let (c, d) = (odd(x[i], x[i + 4]), odd(x[i + 8], x[i + 12]));
        y[i] = even(a, b);
        y[i + 4] = even(c, d);
        y[i + 8] = odd(a, b);
        y[i + 12] = odd(c, d);
    }
    y
}
