//! The building blocks of factorizations: triangular systems and products of blocks.

use super::columns::{Columns, axpy, scale};
use super::scalar::Scalar;
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Matrix, Product, Start};
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::memory::scratch::with_room;
use crate::zip::zip;

/// The largest triangle that is solved without products of blocks.
const SMALL: usize = 32;

/// `out -= a · b` for a row-major `out` (`m` by `n`), optionally with the conjugate of `a`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, `out` overlaps neither `a` nor `b`, and nothing else uses it.
pub(super) unsafe fn subtract<T: Scalar>(
    op: &'static str,
    [m, n, k]: [usize; 3],
    (a, conjugate_a): (Matrix<T>, bool),
    b: Matrix<T>,
    out: *mut T,
    width: usize,
) -> Result<()> {
    if m == 0 || n == 0 || k == 0 {
        return Ok(());
    }
    // The copy has the layout of the matrix, so that both are accessed in order.
    let (lines, len, turned) = if a.row == 1 { (k, m, a.t()) } else { (m, k, a) };
    let negate = |x: T| if conjugate_a { -x.conj() } else { -x };
    let mut negated = with_room(op, m * k)?;
    for i in 0..lines {
        if turned.col == 1 {
            // SAFETY: the caller's promise, for a line of elements side by side.
            let line = unsafe { std::slice::from_raw_parts(turned.at(i, 0), len) };
            negated.extend(line.iter().map(|&x| negate(x)));
        } else {
            // SAFETY: the caller's promise.
            negated.extend((0..len).map(|j| negate(unsafe { turned.at(i, j).read() })));
        }
    }
    let copy = Matrix { ptr: negated.as_ptr(), row: len as isize, col: 1 };
    let a = if a.row == 1 { copy.t() } else { copy };
    // SAFETY: the caller's promise; the copy has as many elements.
    unsafe { T::product(op, &Product { m, n, k, a, b, out, width, start: Start::Out }, false) }
}

/// `c -= a · aᴴ` for `a` of `n` by `k`. Only the lower triangle is needed.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`subtract`].
pub(super) unsafe fn subtract_lower<T: Scalar>(
    op: &'static str,
    c: Columns<T>,
    n: usize,
    a: Matrix<T>,
    k: usize,
) -> Result<()> {
    // The rows of the upper left part. The transposes of the parts are row-major.
    let half = if n <= 128 { n } else { (n / 2).next_multiple_of(32) };
    let low = if half == n { 0 } else { half };
    // SAFETY: the caller's promise, for parts of the matrices.
    unsafe {
        subtract(op, [half, n - low, k], (a, true), a.from(low, 0).t(), c.at(low, 0), c.ld)?;
        if half < n {
            subtract_lower(op, c, half, a, k)?;
            subtract_lower(op, c.from(half, half), n - half, a.from(half, 0), k)?;
        }
    }
    Ok(())
}

/// A small triangular system for columns of right-hand sides.
struct SmallSolve<'a, T> {
    /// By rows; the inverse of the diagonal in `inverses`.
    triangle: &'a [[T; SMALL]; SMALL],
    inverses: &'a [T; SMALL],
    n: usize,
    upper: bool,
    b: Columns<T>,
    count: usize,
}

impl<T: Scalar> Job for SmallSolve<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // The number of columns that are solved together, in vectors.
        const TOGETHER: usize = 16;
        let SmallSolve { triangle, inverses, n, upper, b, count } = self;
        for first in (0..count).step_by(TOGETHER) {
            let mut x = [[T::ZERO; TOGETHER]; SMALL];
            // SAFETY: the promise of `solve`, which makes this.
            let columns = || (first..count).take(TOGETHER).map(|c| unsafe { b.column(c, 0, n) }).enumerate();
            for (c, column) in columns() {
                zip(&mut x[..], &*column).for_each(|(x, &from)| x[c] = from);
            }
            for step in 0..n {
                let i = if upper { n - 1 - step } else { step };
                let mut sums = x[i];
                for j in if upper { i + 1..n } else { 0..i } {
                    let (t, known) = (-triangle[i][j], x[j]);
                    for c in 0..TOGETHER {
                        sums[c] = t.mul_add::<FMA>(known[c], sums[c]);
                    }
                }
                x[i] = each(|c| sums[c] * inverses[i]);
            }
            for (c, column) in columns() {
                zip(&x[..], column).for_each(|(x, to)| *to = x[c]);
            }
        }
    }
}

/// `b = a⁻¹ · b`, for a triangle `a` of size `n` and `count` columns `b`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, they do not overlap, and nothing else uses `b`.
pub(super) unsafe fn solve<T: Scalar>(
    op: &'static str,
    n: usize,
    a: Matrix<T>,
    upper: bool,
    unit: bool,
    b: Columns<T>,
    count: usize,
) -> Result<()> {
    if n == 0 || count == 0 {
        return Ok(());
    }
    if n <= SMALL {
        let (mut triangle, mut inverses) = ([[T::ZERO; SMALL]; SMALL], [T::ONE; SMALL]);
        for j in 0..n {
            let rows = if upper { 0..j } else { j + 1..n };
            for i in rows {
                // SAFETY: the caller's promise.
                triangle[i][j] = unsafe { a.at(i, j).read() };
            }
            if !unit {
                // SAFETY: the caller's promise.
                inverses[j] = T::ONE / unsafe { a.at(j, j).read() };
            }
        }
        let (first, ld) = (Ptr::new(b.ptr), b.ld);
        parallel(count, 4 * GRAIN / (n * n), |range| {
            let b = Columns { ptr: first.get(), ld }.from(0, range.start);
            dispatch(SmallSolve { triangle: &triangle, inverses: &inverses, n, upper, b, count: range.len() });
        });
        return Ok(());
    }
    let half = (n / 2).next_multiple_of(SMALL);
    let (first, second) = (b, b.from(half, 0));
    // The transposes of the parts of `b` are row-major.
    let across = |b: Columns<T>| Matrix { ptr: b.ptr, row: b.ld as isize, col: 1 };
    // SAFETY: the caller's promise, for parts of the matrices.
    unsafe {
        if upper {
            solve(op, n - half, a.from(half, half), true, unit, second, count)?;
            subtract(op, [count, half, n - half], (across(second), false), a.from(0, half).t(), first.ptr, b.ld)?;
            solve(op, half, a, true, unit, first, count)
        } else {
            solve(op, half, a, false, unit, first, count)?;
            subtract(op, [count, n - half, half], (across(first), false), a.from(half, 0).t(), second.ptr, b.ld)?;
            solve(op, n - half, a.from(half, half), false, unit, second, count)
        }
    }
}

/// `b = b · l⁻ᴴ`, for a lower triangle `l` of size `n` and `b` of `m` by `n`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`solve`].
pub(super) unsafe fn solve_right<T: Scalar>(
    op: &'static str,
    m: usize,
    n: usize,
    l: Columns<T>,
    b: Columns<T>,
) -> Result<()> {
    if m == 0 || n == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise, for columns and parts of the matrices.
    unsafe {
        if n <= SMALL {
            for j in 0..n {
                let column = b.column(j, 0, m);
                for k in 0..j {
                    axpy(-l.get(j, k).conj(), b.column(k, 0, m), column);
                }
                scale(column, T::ONE / l.get(j, j).conj());
            }
            return Ok(());
        }
        let half = (n / 2).next_multiple_of(SMALL);
        solve_right(op, m, half, l, b)?;
        let (rest, known) = (b.from(0, half), Matrix { ptr: b.ptr.cast_const(), row: b.ld as isize, col: 1 });
        subtract(op, [n - half, m, half], (l.from(half, 0).matrix(), true), known, rest.ptr, b.ld)?;
        solve_right(op, m, n - half, l.from(half, half), rest)
    }
}
