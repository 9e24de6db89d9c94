//! The LDL factorization of symmetric and Hermitian matrices that need not be definite, after Bunch and Kaufman.

use super::columns::{Columns, axpy, axpy2, scale};
use super::scalar::{Real, Scalar};

/// Whether a matrix is symmetric or Hermitian.
#[derive(Clone, Copy)]
pub(super) struct Mirror {
    pub conjugate: bool,
}

impl Mirror {
    fn of<T: Scalar>(self, x: T) -> T {
        if self.conjugate { x.conj() } else { x }
    }

    /// An element of the diagonal, which is real for a Hermitian matrix.
    fn diagonal<T: Scalar>(self, x: T) -> T {
        if self.conjugate { T::from_real(x.re()) } else { x }
    }
}

/// The unit triangle `l` and blocks `d` of size 1 and 2 with `a = l · d · lᵀ` after exchanges (`lᴴ` for Hermitian matrices), in
/// place of the lower triangle. `pivots` are LAPACK's: the row, counted from 1, that each row was exchanged with; for both rows
/// of a block of size 2 that of the second, negative. Returns 0, or the number of the first zero block.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nothing else uses it.
pub(super) unsafe fn ldl<T: Scalar>(a: Columns<T>, n: usize, pivots: &mut [i32], mirror: Mirror) -> i32 {
    let (mut k, mut info) = (0, 0);
    // SAFETY: the caller's promise, for elements and columns of the matrix.
    unsafe {
        while k < n {
            a.set(k, k, mirror.diagonal(a.get(k, k)));
            let Some((with, two)) = choose(a, n, k, mirror) else {
                info = if info == 0 { k as i32 + 1 } else { info };
                (pivots[k], k) = (k as i32 + 1, k + 1);
                continue;
            };
            let last = k + usize::from(two);
            if with != last {
                exchange(a, n, last, with, mirror);
                if two {
                    std::ptr::swap(a.at(last, k), a.at(with, k));
                }
            }
            if two {
                a.set(last, last, mirror.diagonal(a.get(last, last)));
                remove_two(a, n, k, mirror);
                (pivots[k], pivots[last]) = (-(with as i32 + 1), -(with as i32 + 1));
            } else {
                let inverse = T::ONE / a.get(k, k);
                let column = a.column(k, k + 1, n - k - 1);
                for j in k + 1..n {
                    let weight = -(inverse * mirror.of(a.get(j, k)));
                    axpy(weight, &column[j - k - 1..], a.column(j, j, n - j));
                }
                scale(column, inverse);
                pivots[k] = with as i32 + 1;
            }
            k = last + 1;
        }
    }
    info
}

/// The row to exchange with, and whether a block of size 2 begins at `k`; `None` if its column is zero.
///
/// # Safety
/// As [`ldl`].
unsafe fn choose<T: Scalar>(a: Columns<T>, n: usize, k: usize, mirror: Mirror) -> Option<(usize, bool)> {
    let zero = T::Real::ZERO;
    // The value that bounds the growth of elements best.
    let alpha = T::Real::from_f64((1.0 + 17.0_f64.sqrt()) / 8.0);
    // SAFETY: the caller's promise.
    unsafe {
        let own = a.get(k, k).size();
        let (mut most, mut at) = (zero, k);
        for i in k + 1..n {
            if a.get(i, k).size() > most {
                (most, at) = (a.get(i, k).size(), i);
            }
        }
        if own == zero && most == zero {
            return None;
        }
        if own >= alpha * most || at == k {
            return Some((k, false));
        }
        let mut row = zero;
        for size in (k..at).map(|j| a.get(at, j).size()).chain((at + 1..n).map(|i| a.get(i, at).size())) {
            row = if size > row { size } else { row };
        }
        if own >= alpha * most * (most / row) {
            return Some((k, false));
        }
        Some((at, mirror.diagonal(a.get(at, at)).size() < alpha * row))
    }
}

/// Exchanges a row and its column with a later one, in the remaining matrix.
///
/// # Safety
/// As [`ldl`].
unsafe fn exchange<T: Scalar>(a: Columns<T>, n: usize, first: usize, second: usize, mirror: Mirror) {
    // SAFETY: the caller's promise.
    unsafe {
        for i in second + 1..n {
            std::ptr::swap(a.at(i, first), a.at(i, second));
        }
        for i in first + 1..second {
            let (x, y) = (a.get(i, first), a.get(second, i));
            a.set(i, first, mirror.of(y));
            a.set(second, i, mirror.of(x));
        }
        a.set(second, first, mirror.of(a.get(second, first)));
        std::ptr::swap(a.at(first, first), a.at(second, second));
    }
}

/// Divides by the block of size 2 at `k`, and subtracts its part from the remaining matrix.
///
/// # Safety
/// As [`ldl`].
unsafe fn remove_two<T: Scalar>(a: Columns<T>, n: usize, k: usize, mirror: Mirror) {
    // SAFETY: the caller's promise.
    unsafe {
        let below = a.get(k + 1, k);
        // In units of the off-diagonal element, which is the largest.
        let unit = T::from_real(below.abs());
        let phase = below / unit;
        let (first, second) = (a.get(k + 1, k + 1) / unit, a.get(k, k) / unit);
        let factor = T::ONE / ((first * second - phase * mirror.of(phase)) * unit);
        for j in k + 2..n {
            let (x, y) = (a.get(j, k), a.get(j, k + 1));
            let u = factor * (first * x - phase * y);
            let v = factor * (second * y - mirror.of(phase) * x);
            let (to, len) = (a.column(j, j, n - j), n - j);
            axpy2(-mirror.of(u), a.column(k, j, len), -mirror.of(v), a.column(k + 1, j, len), to);
            a.set(j, j, mirror.diagonal(a.get(j, j)));
            a.set(j, k, u);
            a.set(j, k + 1, v);
        }
    }
}
