//! Recursive LU and Cholesky factorizations: halves are factored, and joined by products of blocks.

use super::blocks::{solve, solve_right, subtract, subtract_lower};
use super::columns::{Columns, axpy, scale};
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};

/// The number of columns that are factored one by one.
const PANEL: usize = 16;

/// The LU factorization of an `m` by `n` matrix with row exchanges: `pivots[j]` is the row, counted from 1, that was exchanged
/// with row `j`. Without `exchanges` it is row `j` itself. Returns 0, or the number of the first zero pivot, counted from 1.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nothing else uses it.
pub(super) unsafe fn lu<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    m: usize,
    n: usize,
    pivots: &mut [i32],
    exchanges: bool,
) -> Result<i32> {
    let k = m.min(n);
    let left = if k <= PANEL { k } else { (k / 2).next_multiple_of(PANEL).min(k - 1) };
    // SAFETY: the caller's promise, for parts of the matrix.
    unsafe {
        if left == n || k == 0 {
            return Ok(panel(a, m, n, pivots, exchanges));
        }
        let (first, second) = pivots[..k].split_at_mut(left);
        let mut info = lu(op, a, m, left, first, exchanges)?;
        let right = a.from(0, left);
        exchange(right, n - left, first, false);
        solve(op, left, a.matrix(), false, true, right, n - left)?;
        if m > left {
            let (below, rest) = (a.from(left, 0), right.from(left, 0));
            // The transpose of the remaining matrix is row-major.
            let across = Matrix { ptr: right.ptr.cast_const(), row: a.ld as isize, col: 1 };
            subtract(op, [n - left, m - left, left], (across, false), below.matrix().t(), rest.ptr, a.ld)?;
            let then = lu(op, rest, m - left, n - left, second, exchanges)?;
            if info == 0 && then > 0 {
                info = then + left as i32;
            }
            exchange(below, left, second, false);
            second.iter_mut().for_each(|pivot| *pivot += left as i32);
        }
        Ok(info)
    }
}

/// Exchanges rows of `n` columns according to the pivots, or undoes this.
///
/// # Safety
/// As [`lu`].
pub(super) unsafe fn exchange<T: Scalar>(a: Columns<T>, n: usize, pivots: &[i32], back: bool) {
    let (first, ld) = (Ptr::new(a.ptr), a.ld);
    parallel(n, (GRAIN / pivots.len().max(1)).max(1), |range| {
        for j in range {
            let a = Columns { ptr: first.get(), ld }.from(0, j);
            // SAFETY: the caller's promise; each column is one thread's.
            let swap = |(i, &pivot): (usize, &i32)| unsafe { std::ptr::swap(a.at(i, 0), a.at(pivot as usize - 1, 0)) };
            match back {
                false => pivots.iter().enumerate().for_each(swap),
                true => pivots.iter().enumerate().rev().for_each(swap),
            }
        }
    });
}

/// The largest [`size`](Scalar::size) that is not NaN; NaN only if the first one is.
struct Largest<'a, T>(&'a [T]);

impl<T: Scalar> Job for Largest<'_, T> {
    type Output = T::Real;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> T::Real {
        const LANES: usize = 32;
        let larger = |most: T::Real, size: T::Real| if size > most { size } else { most };
        let first = self.0.first().map_or(T::Real::ZERO, |x| x.size());
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        let mut most = [first; LANES];
        for chunk in chunks {
            for lane in 0..LANES {
                most[lane] = larger(most[lane], chunk[lane].size());
            }
        }
        most.into_iter().chain(rest.iter().map(|x| x.size())).fold(first, larger)
    }
}

/// # Safety
/// As [`lu`].
unsafe fn panel<T: Scalar>(a: Columns<T>, m: usize, n: usize, pivots: &mut [i32], exchanges: bool) -> i32 {
    let mut info = 0;
    // SAFETY: the caller's promise, for columns of the matrix.
    unsafe {
        for j in 0..m.min(n) {
            let column = a.column(j, 0, m);
            let best = dispatch(Largest(&column[j..if exchanges { m } else { j + 1 }]));
            let at = j + column[j..].iter().position(|x| x.size() == best).unwrap_or(0);
            pivots[j] = at as i32 + 1;
            if best == T::Real::ZERO {
                info = if info == 0 { j as i32 + 1 } else { info };
                continue;
            }
            if at != j {
                (0..n).for_each(|c| std::ptr::swap(a.at(j, c), a.at(at, c)));
            }
            let inverse = T::ONE / column[j];
            if inverse.is_finite() {
                scale(&mut column[j + 1..], inverse);
            } else {
                let pivot = column[j];
                column[j + 1..].iter_mut().for_each(|x| *x = *x / pivot);
            }
            for c in j + 1..n {
                axpy(-a.get(j, c), &column[j + 1..], a.column(c, j + 1, m - j - 1));
            }
        }
    }
    info
}

/// The lower triangle `l` with `l · lᴴ = a`, in place of that of `a`; the elements above it are undefined. Returns 0, or the order
/// of the first leading minor that is not positive.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`lu`].
pub(super) unsafe fn cholesky<T: Scalar>(op: &'static str, a: Columns<T>, n: usize) -> Result<i32> {
    // SAFETY: the caller's promise, for columns and parts of the matrix.
    unsafe {
        if n <= 2 * PANEL {
            for j in 0..n {
                let column = a.column(j, j, n - j);
                for k in 0..j {
                    axpy(-a.get(j, k).conj(), a.column(k, j, n - j), column);
                }
                let pivot = column[0].re();
                if pivot.partial_cmp(&T::Real::ZERO) != Some(std::cmp::Ordering::Greater) || !pivot.is_finite() {
                    return Ok(j as i32 + 1);
                }
                let root = T::from_real(pivot.sqrt());
                column[0] = root;
                scale(&mut column[1..], T::ONE / root);
            }
            return Ok(0);
        }
        let half = (n / 2).next_multiple_of(2 * PANEL);
        let info = cholesky(op, a, half)?;
        if info > 0 {
            return Ok(info);
        }
        let (below, rest) = (a.from(half, 0), a.from(half, half));
        solve_right(op, n - half, half, a, below)?;
        subtract_lower(op, rest, n - half, below.matrix(), half)?;
        let info = cholesky(op, rest, n - half)?;
        Ok(if info > 0 { info + half as i32 } else { 0 })
    }
}
