//! Householder reflections `1 - tau · v · vᴴ`, in blocks, and the QR factorization.

use super::columns::{Columns, axpy, dot, scale};
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Matrix, Product, Start};
use crate::backend::cpu::runtime::threads::{parallel_map, try_parallel};
use crate::memory::scratch::filled;

/// The number of reflections that are computed one by one before they are applied to the rest of a matrix as a block.
const BLOCK: usize = 32;

/// The most reflections that are applied as a block. Larger blocks take fewer passes over a matrix, but longer to build.
const APPLIED: usize = 64;

/// The most rows that reflections are applied to one by one.
const SMALL: usize = 8;

/// The number of columns that reflections are applied to at a time: few enough to stay in the L2 cache for all blocks.
const STRIP: usize = 128;

/// Computes the reflection `h` for which `hᴴ · x` is a real multiple of the first unit vector, as in LAPACK: returns `tau` and
/// that multiple. `x` becomes `v`, except for its first element, which is an implicit 1.
pub(super) fn reflection<T: Scalar>(x: &mut [T]) -> (T, T::Real) {
    let Some((first, rest)) = x.split_first_mut() else { return (T::ZERO, T::Real::ZERO) };
    let (re, im) = (first.re(), first.im());
    let tail = dot(rest, rest).re();
    if tail == T::Real::ZERO && im == T::Real::ZERO {
        return (T::ZERO, re);
    }
    let norm = (re * re + im * im + tail).sqrt();
    let beta = if re < T::Real::ZERO { norm } else { -norm };
    let apart = *first - T::from_real(beta);
    scale(rest, T::ONE / apart);
    (-apart / T::from_real(beta), beta)
}

/// `x -= tau · v · vᴴ · x`, where the first element of `v` is an implicit 1.
fn reflect_one<T: Scalar>(v: &[T], tau: T, x: &mut [T]) {
    let weight = tau * (x[0] + dot(&v[1..], &x[1..]));
    x[0] = x[0] - weight;
    axpy(-weight, &v[1..], &mut x[1..]);
}

/// The QR factorization of an `m` by `n` matrix: R on and above the diagonal, the Householder vectors below it.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nothing else uses it.
pub(super) unsafe fn qr<T: Scalar>(op: &'static str, a: Columns<T>, m: usize, n: usize, taus: &mut [T]) -> Result<()> {
    let k = m.min(n);
    for start in (0..k).step_by(BLOCK) {
        let end = k.min(start + BLOCK);
        // SAFETY: the caller's promise, for columns of the matrix.
        unsafe {
            for (j, factor) in taus.iter_mut().enumerate().take(end).skip(start) {
                let v = a.column(j, j, m - j);
                let (tau, beta) = reflection(v);
                (j + 1..end).for_each(|c| reflect_one(v, tau.conj(), a.column(c, j, m - j)));
                v[0] = T::from_real(beta);
                *factor = tau;
            }
            let block = Block::new(op, a, start..end, m, 0, taus, true)?;
            block.apply(op, a.from(start, end), n - end)?;
        }
    }
    Ok(())
}

/// `q = H₀ · H₁ ⋯ · q`, for columns `q` of `m` elements; the vector of reflection `j` begins in row `j + below` of column `j` of
/// `a`, with an implicit 1. With `identity`, `q` is first overwritten with columns of the identity.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nothing else uses `q`.
pub(super) unsafe fn reflect<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    m: usize,
    below: usize,
    taus: &[T],
    (q, columns): (Columns<T>, usize),
    identity: bool,
) -> Result<()> {
    for j in (0..columns).filter(|_| identity) {
        // SAFETY: the caller's promise.
        let column = unsafe { q.column(j, 0, m) };
        column.fill(T::ZERO);
        column[j] = T::ONE;
    }
    if m <= SMALL {
        for (j, &tau) in taus.iter().enumerate().rev() {
            let row = j + below;
            for c in if identity { row } else { 0 }..columns {
                // SAFETY: the caller's promise.
                let (v, column) = unsafe { (a.column(j, row, m - row), q.column(c, row, m - row)) };
                reflect_one(v, tau, column);
            }
        }
        return Ok(());
    }
    let size = if m < 512 { APPLIED / 2 } else { APPLIED };
    let starts = (0..taus.len()).step_by(size).collect();
    let blocks = parallel_map(starts, |start: usize| {
        let range = start..taus.len().min(start + size);
        // SAFETY: the caller's promise.
        unsafe { Block::new(op, a, range, m, below, taus, false) }
    });
    let blocks = blocks.into_iter().collect::<Result<Vec<Block<T>>>>()?;
    try_parallel(columns.div_ceil(STRIP), 1, |mut range| {
        range.try_for_each(|strip| {
            let (start, end) = (strip * STRIP, columns.min((strip + 1) * STRIP));
            for (at, block) in blocks.iter().enumerate().rev() {
                let row = at * size + below;
                // Later reflections do not change the columns of the identity before theirs: they are zero from the row
                // where this block begins.
                let first = if identity { start.max(row).min(end) } else { start };
                // SAFETY: the caller's promise; the columns are this thread's.
                unsafe { block.apply(op, q.from(row, first), end - first)? };
            }
            Ok(())
        })
    })
}

/// If it is requested, the product of reflections as [`reflect`] takes them: a square column-major matrix of size `n`. Rotations
/// start with it, not with the identity, on which they would leave ever smaller numbers.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`reflect`].
pub(super) unsafe fn reflections<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    below: usize,
    taus: &[T],
    wanted: bool,
) -> Result<Vec<T>> {
    let mut q = filled(op, T::ZERO, if wanted { n * n } else { 0 })?;
    if wanted {
        // SAFETY: the caller's promise; the other matrix has as many elements.
        unsafe { reflect(op, a, n, below, taus, (Columns { ptr: q.as_mut_ptr(), ld: n }, n), true)? };
    }
    Ok(q)
}

/// A block of reflections: `1 + v · t · vᴴ`, or its conjugate transpose, to multiply matrices from the left.
struct Block<T> {
    /// The conjugate of `v`: `rows` by `count`, row-major.
    v: Vec<T>,
    /// The transpose of `v · t`: `count` by `rows`, row-major.
    vt: Vec<T>,
    rows: usize,
    count: usize,
}

impl<T: Scalar> Block<T> {
    /// # Safety
    /// As [`reflect`].
    unsafe fn new(
        op: &'static str,
        a: Columns<T>,
        range: std::ops::Range<usize>,
        m: usize,
        below: usize,
        taus: &[T],
        transposed: bool,
    ) -> Result<Block<T>> {
        let (first, count) = (range.start, range.len());
        let rows = m - first - below;
        let (mut across, mut v) = (filled(op, T::ZERO, rows * count)?, filled(op, T::ZERO, rows * count)?);
        for (at, j) in range.enumerate() {
            let column = &mut across[at * rows..(at + 1) * rows];
            column[at] = T::ONE;
            // SAFETY: the caller's promise.
            column[at + 1..].copy_from_slice(unsafe { a.column(j, j + below + 1, rows - at - 1) });
        }
        for (i, row) in v.chunks_exact_mut(count).enumerate() {
            row.iter_mut().zip(across[i..].iter().step_by(rows)).for_each(|(to, x)| *to = x.conj());
        }
        let by_rows = |of: &[T], width: usize| Matrix { ptr: of.as_ptr(), row: width as isize, col: 1 };
        let mut dots = filled(op, T::ZERO, count * count)?;
        let product = Product {
            m: count,
            n: count,
            k: rows,
            a: by_rows(&across, rows),
            b: by_rows(&v, count),
            out: dots.as_mut_ptr(),
            width: count,
            start: Start::Zero,
        };
        // SAFETY: all three have as many elements.
        unsafe { T::product(op, &product, false)? };
        // An upper triangle, by columns.
        let mut t = filled(op, T::ZERO, count * count)?;
        for at in 0..count {
            let tau = taus[first + at];
            let (known, column) = t.split_at_mut(at * count);
            for (j, known) in known.chunks_exact(count).enumerate() {
                axpy(-tau * dots[at * count + j], &known[..=j], &mut column[..=j]);
            }
            column[at] = tau;
        }
        t.iter_mut().for_each(|t| *t = if transposed { -t.conj() } else { -*t });
        let t = by_rows(&t, count);
        let mut vt = filled(op, T::ZERO, rows * count)?;
        let product = Product {
            m: count,
            n: rows,
            k: count,
            a: if transposed { t.t() } else { t },
            b: by_rows(&across, rows),
            out: vt.as_mut_ptr(),
            width: rows,
            start: Start::Zero,
        };
        // SAFETY: all three have as many elements.
        unsafe { T::product(op, &product, false)? };
        Ok(Block { v, vt, rows, count })
    }

    /// Replaces `c`, columns of `rows` elements, with its product.
    ///
    /// # Safety
    /// As [`reflect`].
    unsafe fn apply(&self, op: &'static str, c: Columns<T>, columns: usize) -> Result<()> {
        let &Block { ref v, ref vt, rows, count } = self;
        if rows == 0 || columns == 0 || count == 0 {
            return Ok(());
        }
        // The transposes, which are row-major.
        let mut weights = filled(op, T::ZERO, count * columns)?;
        let product = Product {
            m: columns,
            n: count,
            k: rows,
            a: Matrix { ptr: c.ptr.cast_const(), row: c.ld as isize, col: 1 },
            b: Matrix { ptr: v.as_ptr(), row: count as isize, col: 1 },
            out: weights.as_mut_ptr(),
            width: count,
            start: Start::Zero,
        };
        // SAFETY: the caller's promise; there are as many weights.
        unsafe { T::product(op, &product, false)? };
        let product = Product {
            m: columns,
            n: rows,
            k: count,
            a: Matrix { ptr: weights.as_ptr(), row: count as isize, col: 1 },
            b: Matrix { ptr: vt.as_ptr(), row: rows as isize, col: 1 },
            out: c.ptr,
            width: c.ld,
            start: Start::Out,
        };
        // SAFETY: the caller's promise.
        unsafe { T::product(op, &product, false) }
    }
}
