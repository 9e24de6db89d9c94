//! Copies of parts of the operands in the order in which the kernels read them.

use super::{Matrix, Number};
use crate::backend::cpu::runtime::streaming::prefetch;

/// The side of the squares that a matrix is transposed in.
pub(super) const SIDE: usize = 16;

/// A panel to be packed: rows of `len` elements, which are padded with zeros to rows of `width` in `to`.
pub(super) struct Panel<T> {
    pub from: Matrix<T>,
    pub len: usize,
    pub to: *mut T,
    pub width: usize,
}

/// Packs `k` rows of neighbouring panels. A panel of columns is packed as one of rows of the transpose.
///
/// # Safety
/// The operand has these elements, `to` has room for `k` rows of `width`.
pub(super) unsafe fn rows<T: Number>(panels: &[Panel<T>], k: usize) {
    let in_rows = panels.iter().all(|panel| panel.from.col == 1);
    // SAFETY: the caller's promise.
    unsafe {
        if in_rows && panels.iter().all(|panel| panel.len == SHORT && panel.width == SHORT) {
            return short(panels, k);
        }
        for &Panel { from, len, to, width } in panels {
            if len < width {
                for p in 0..k {
                    std::slice::from_raw_parts_mut(to.add(p * width + len), width - len).fill(T::ZERO);
                }
            }
            if in_rows {
                continue;
            }
            match (from.row, from.col) {
                (1, _) => transposed(from, k, len, to, width),
                // A stride of 0: one number for all columns, as in the cotangent of a sum.
                (_, 0) => (0..k).for_each(|p| {
                    std::slice::from_raw_parts_mut(to.add(p * width), len).fill(from.at(p, 0).read());
                }),
                _ => strided(from, k, len, to, width),
            }
        }
        if in_rows {
            for p in 0..k {
                for &Panel { from, len, to, width } in panels {
                    prefetch(from.at(p + AHEAD, 0), len);
                    std::ptr::copy_nonoverlapping(from.at(p, 0), to.add(p * width), len);
                }
            }
        }
    }
}

/// The prefetch distance in rows: their stride is too large for the CPU's own prefetcher.
const AHEAD: usize = 12;

/// The height of most panels of the left operand.
const SHORT: usize = 6;

/// Packs rows of a constant length: a copy is one or two loads and stores.
///
/// # Safety
/// As [`rows`]; all rows are of [`SHORT`] successive elements.
unsafe fn short<T: Number>(panels: &[Panel<T>], k: usize) {
    for p in 0..k {
        if let Some(first) = panels.first() {
            prefetch(first.from.at(p + AHEAD, 0), panels.len() * SHORT + 64 / size_of::<T>());
        }
        for panel in panels {
            // SAFETY: the caller's promise.
            unsafe {
                panel.to.add(p * SHORT).cast::<[T; SHORT]>().write(panel.from.at(p, 0).cast::<[T; SHORT]>().read());
            }
        }
    }
}

/// Packs rows of a column-major matrix: in squares, if there is a kernel that transposes one.
///
/// # Safety
/// As [`rows`].
pub(crate) unsafe fn transposed<T: Number>(b: Matrix<T>, k: usize, columns: usize, to: *mut T, width: usize) {
    let Some(turn) = T::turn() else {
        // SAFETY: the caller's promise.
        return unsafe { strided(b, k, columns, to, width) };
    };
    let (whole_k, whole_columns) = (k - k % SIDE, columns - columns % SIDE);
    // SAFETY: the caller's promise; the squares and the two edges are parts of the whole.
    unsafe {
        for j in (0..whole_columns).step_by(SIDE) {
            for p in (0..whole_k).step_by(SIDE) {
                turn(b.at(p, j), b.col, to.add(p * width + j), width);
            }
        }
        strided(b.from(whole_k, 0), k - whole_k, whole_columns, to.add(whole_k * width), width);
        strided(b.from(0, whole_columns), k, columns - whole_columns, to.add(whole_columns), width);
    }
}

/// Element by element.
///
/// # Safety
/// As [`rows`].
unsafe fn strided<T: Number>(from: Matrix<T>, rows: usize, columns: usize, to: *mut T, width: usize) {
    for j in 0..columns {
        for i in 0..rows {
            // SAFETY: the caller's promise.
            unsafe { to.add(i * width + j).write(from.at(i, j).read()) };
        }
    }
}

/// Transposes a square of 16 by 16.
///
/// # Safety
/// The CPU has AVX-512; `from` has 16 rows of 16 elements, `step` apart, and so has `to`, `width` apart.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn turn16(from: *const f32, step: isize, to: *mut f32, width: usize) {
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;
    let low = |a, b| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    let high = |a, b| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    let zero = _mm512_setzero_ps();
    let (mut x, mut y) = ([zero; 16], [zero; 16]);
    for (i, row) in x.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *row = unsafe { _mm512_loadu_ps(from.offset(i as isize * step)) };
    }
    // Exchanges numbers, then pairs, then quarters of registers.
    for i in 0..8 {
        y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    for i in (0..16).step_by(4) {
        x[i] = low(y[i], y[i + 2]);
        x[i + 1] = high(y[i], y[i + 2]);
        x[i + 2] = low(y[i + 1], y[i + 3]);
        x[i + 3] = high(y[i + 1], y[i + 3]);
    }
    for i in 0..4 {
        let even = |a, b| _mm512_shuffle_f32x4::<0x88>(a, b);
        let odd = |a, b| _mm512_shuffle_f32x4::<0xdd>(a, b);
        let (a, b) = (even(x[i], x[i + 4]), even(x[i + 8], x[i + 12]));
        let (c, d) = (odd(x[i], x[i + 4]), odd(x[i + 8], x[i + 12]));
        (y[i], y[i + 8], y[i + 4], y[i + 12]) = (even(a, b), odd(a, b), even(c, d), odd(c, d));
    }
    for (i, row) in y.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to.add(i * width), row) };
    }
}
