//! Householder reflections `1 - tau · v · vᴴ`, in blocks, and the QR factorization.

use super::columns::{Columns, axpy, dot, scale};
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Matrix, Product, Start};
use crate::backend::cpu::runtime::scratch::filled;

/// Reflections that are applied as one.
const BLOCK: usize = 32;

/// Makes the reflection `h` with `hᴴ · x` a real multiple of the first unit vector, as LAPACK does: returns `tau` and that
/// multiple. `x` becomes `v`, but for its first element, which is 1 and stays unwritten.
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

/// The QR factorization of an `m` by `n` matrix: R on and above the diagonal, the vectors of the reflections below it.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nobody else uses it.
pub(super) unsafe fn qr<T: Scalar>(op: &'static str, a: Columns<T>, m: usize, n: usize, taus: &mut [T]) -> Result<()> {
    let k = m.min(n);
    for start in (0..k).step_by(BLOCK) {
        let end = k.min(start + BLOCK);
        // SAFETY: the caller's promise, for columns of the matrix.
        unsafe {
            for (j, factor) in taus.iter_mut().enumerate().take(end).skip(start) {
                let v = a.column(j, j, m - j);
                let (tau, beta) = reflection(v);
                for c in j + 1..end {
                    let column = a.column(c, j, m - j);
                    let weight = tau.conj() * (column[0] + dot(&v[1..], &column[1..]));
                    column[0] = column[0] - weight;
                    axpy(-weight, &v[1..], &mut column[1..]);
                }
                v[0] = T::from_real(beta);
                *factor = tau;
            }
            let block = Block::new(op, a, start..end, m, 0, taus)?;
            block.apply(op, true, a.from(start, end), n - end)?;
        }
    }
    Ok(())
}

/// `q = H₀ · H₁ ⋯ · q`, for some columns `q` of `m` elements; the vector of reflection `j` begins in row `j + below` of column
/// `j` of `a`, with a 1 that is not written. With `identity`, `q` is first overwritten with columns of the identity.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nobody else uses `q`.
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
    for start in (0..taus.len()).step_by(BLOCK).rev() {
        let end = taus.len().min(start + BLOCK);
        // The later reflections leave the columns of the identity before theirs as they are: zero where this block begins.
        let first = if identity { columns.min(start + below) } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            let block = Block::new(op, a, start..end, m, below, taus)?;
            block.apply(op, false, q.from(start + below, first), columns - first)?;
        }
    }
    Ok(())
}

/// The product of reflections as [`reflect`] takes them: a square matrix of size `n`, by columns; or nothing, if it is not
/// wanted. Rotations go on from it, and not from the identity, on which they would leave ever smaller numbers.
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

/// Some reflections as one: `1 + v · t · vᴴ`.
struct Block<T> {
    /// `rows` by `count`.
    v: Vec<T>,
    /// An upper triangle of `count` by `count`, by columns.
    t: Vec<T>,
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
    ) -> Result<Block<T>> {
        let (first, count) = (range.start, range.len());
        let rows = m - first - below;
        let (mut v, mut t) = (filled(op, T::ZERO, rows * count)?, filled(op, T::ZERO, count * count)?);
        for (at, j) in range.enumerate() {
            let column = &mut v[at * rows..(at + 1) * rows];
            column[at] = T::ONE;
            // SAFETY: the caller's promise.
            column[at + 1..].copy_from_slice(unsafe { a.column(j, j + below + 1, rows - at - 1) });
        }
        for at in 0..count {
            let tau = taus[first + at];
            let own = &v[at * rows..(at + 1) * rows];
            let mut weights = [T::ZERO; BLOCK];
            for (weight, other) in weights[..at].iter_mut().zip(v.chunks_exact(rows)) {
                *weight = -tau * dot(&other[at..], &own[at..]);
            }
            for i in 0..at {
                let sum = (i..at).fold(T::ZERO, |sum, j| sum + t[j * count + i] * weights[j]);
                t[at * count + i] = sum;
            }
            t[at * count + at] = tau;
        }
        t.iter_mut().for_each(|t| *t = -*t);
        Ok(Block { v, t, rows, count })
    }

    /// `c += v · t · vᴴ · c`, or with the conjugate transpose of `t`.
    ///
    /// # Safety
    /// As [`reflect`].
    unsafe fn apply(&self, op: &'static str, transposed: bool, c: Columns<T>, columns: usize) -> Result<()> {
        let &Block { ref v, ref t, rows, count } = self;
        if rows == 0 || columns == 0 || count == 0 {
            return Ok(());
        }
        let mut w = filled(op, T::ZERO, count * columns)?;
        let v = Matrix { ptr: v.as_ptr(), row: 1, col: rows as isize };
        let across = Matrix { ptr: c.ptr.cast_const(), row: c.ld as isize, col: 1 };
        let product = Product {
            m: columns,
            n: count,
            k: rows,
            a: across,
            b: v,
            out: w.as_mut_ptr(),
            width: count,
            start: Start::Zero,
        };
        // SAFETY: the caller's promise; `w` has as many elements.
        unsafe { T::product(op, &product, true)? };
        let t = Matrix { ptr: t.as_ptr(), row: 1, col: count as isize };
        let (from, mut w) = (w, filled(op, T::ZERO, count * columns)?);
        let product = Product {
            m: columns,
            n: count,
            k: count,
            a: Matrix { ptr: from.as_ptr(), row: count as isize, col: 1 },
            b: if transposed { t } else { t.t() },
            out: w.as_mut_ptr(),
            width: count,
            start: Start::Zero,
        };
        // SAFETY: all three have as many elements.
        unsafe { T::product(op, &product, transposed)? };
        let weights = Matrix { ptr: w.as_ptr(), row: count as isize, col: 1 };
        let product =
            Product { m: columns, n: rows, k: count, a: weights, b: v.t(), out: c.ptr, width: c.ld, start: Start::Out };
        // SAFETY: the caller's promise.
        unsafe { T::product(op, &product, false) }
    }
}
