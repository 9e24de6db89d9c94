//! Factorizations of batches of matrices.
//!
//! Matrices without elements are skipped, as a batch of them can have any size.
//!
//! Matrices are column-major: a tensor of shape `[batch.., columns, rows]` in row-major order. The matrices of a batch are split
//! among the threads. Few large ones are factored one by one; their products use all threads.

mod blocks;
mod columns;
mod conquer;
mod eigen;
mod factor;
mod general;
mod indefinite;
mod reflect;
mod rotations;
mod scalar;
mod schur;
mod singular;
mod tridiagonal;

use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::threads::{Ptr, num_threads, try_parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::{Complex, DType, Result, Shape};
use columns::Columns;
use scalar::Scalar;

/// The number of multiplications from which on all threads work on one matrix.
const LARGE: usize = 1 << 26;

/// Calls a function for real or complex numbers of `f32` or `f64`.
macro_rules! scalar {
    ($op:expr, $dtype:expr, $T:ident => $call:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $call
            }
            DType::F64 => {
                type $T = f64;
                $call
            }
            DType::C64 => {
                type $T = Complex<f32>;
                $call
            }
            DType::C128 => {
                type $T = Complex<f64>;
                $call
            }
            dtype => bail!(Backend, $op, "there is no kernel for {dtype}"),
        }
    };
}

/// The numbers of matrices, columns and rows.
fn sizes(op: &'static str, shape: &Shape) -> Result<(usize, usize, usize)> {
    let [lead @ .., columns, rows] = &shape[..] else {
        bail!(Backend, op, "expected at least 2 dimensions, got shape {shape:?}")
    };
    Ok((lead.iter().product(), *columns, *rows))
}

/// Calls `f` for every matrix of a batch.
fn each(count: usize, work: usize, f: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    if count < num_threads() || work >= LARGE {
        return (0..count).try_for_each(f);
    }
    let grain = ((1 << 15) / work.max(1)).max(1);
    try_parallel(count, grain, |mut range| range.try_for_each(&f))
}

/// Contiguous matrices of one size, which threads share.
struct Batch<T> {
    ptr: Ptr<T>,
    columns: usize,
    rows: usize,
}

impl<T: Scalar> Batch<T> {
    /// The matrices of a contiguous view.
    fn new(op: &'static str, view: &ViewMut<'_>) -> Result<Batch<T>> {
        let (_, columns, rows) = sizes(op, view.layout.shape())?;
        debug_assert!(view.layout.is_contiguous() && view.dtype == T::DTYPE);
        Ok(Batch { ptr: Ptr::new(view.first().cast::<T>()), columns, rows })
    }

    fn read(op: &'static str, view: &View<'_>) -> Result<Batch<T>> {
        let (_, columns, rows) = sizes(op, view.layout.shape())?;
        debug_assert!(view.layout.is_contiguous() && view.dtype == T::DTYPE);
        Ok(Batch { ptr: Ptr::new(view.first().cast_mut().cast::<T>()), columns, rows })
    }

    fn at(&self, number: usize) -> Columns<T> {
        let first = self.ptr.get().wrapping_add(number * self.columns * self.rows);
        Columns { ptr: first, ld: self.rows.max(1) }
    }
}

/// The elements of a contiguous view, in pieces of `each`, which threads share.
struct Pieces<T> {
    ptr: Ptr<T>,
    each: usize,
}

impl<T> Pieces<T> {
    fn new(view: &ViewMut<'_>, each: usize) -> Pieces<T> {
        Pieces { ptr: Ptr::new(view.first().cast::<T>()), each }
    }

    /// # Safety
    /// There is such a piece, and nothing else uses it.
    unsafe fn at<'a>(&self, number: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.get().add(number * self.each), self.each) }
    }
}

fn work(a: usize, b: usize, c: usize) -> usize {
    a.saturating_mul(b).saturating_mul(c)
}

/// LU factorizations in place, optionally with row exchanges: `pivots` (`i32`) are the rows, counted from 1, that each row was
/// exchanged with; `info` (`i32`) is 0, or the number of the first zero pivot.
pub(crate) fn lu(
    op: &'static str,
    a: &mut ViewMut<'_>,
    pivots: &mut ViewMut<'_>,
    info: &mut ViewMut<'_>,
    exchanges: bool,
) -> Result<()> {
    let (count, n, m) = sizes(op, a.layout.shape())?;
    let (pivots, info) = (Pieces::<i32>::new(pivots, m.min(n)), Pieces::<i32>::new(info, 1));
    scalar!(op, a.dtype, T => {
        let a = Batch::<T>::new(op, a)?;
        // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
        each(count, work(m, n, m.min(n)), |at| unsafe {
            info.at(at)[0] = factor::lu(op, a.at(at), m, n, pivots.at(at), exchanges)?;
            Ok(())
        })
    })
}

/// `b = a⁻¹ · b`, or with the transposes of `a`, for matrices that [`lu`] has factored.
pub(crate) fn lu_solve(
    op: &'static str,
    a: View<'_>,
    pivots: View<'_>,
    transposed: bool,
    b: &mut ViewMut<'_>,
) -> Result<()> {
    let (count, columns, n) = sizes(op, b.layout.shape())?;
    if columns == 0 || n == 0 {
        return Ok(());
    }
    if pivots.storage.is_foreign() {
        bail!(Backend, op, "pivots must come from a factorization, got foreign memory");
    }
    let Some(pivots) = pivots.as_slice::<i32>() else {
        bail!(Backend, op, "pivots must be contiguous i32, got {}", pivots.dtype)
    };
    scalar!(op, b.dtype, T => {
        let (a, b) = (Batch::<T>::read(op, &a)?, Batch::<T>::new(op, b)?);
        // SAFETY: the views are contiguous and have a matrix for each number, of which `b`'s is one thread's.
        each(count, work(n, n, columns), |at| unsafe {
            let (a, b, pivots) = (a.at(at).matrix(), b.at(at), &pivots[at * n..(at + 1) * n]);
            if transposed {
                blocks::solve(op, n, a.t(), false, false, b, columns)?;
                blocks::solve(op, n, a.t(), true, true, b, columns)?;
                factor::exchange(b, columns, pivots, true);
                Ok(())
            } else {
                factor::exchange(b, columns, pivots, false);
                blocks::solve(op, n, a, false, true, b, columns)?;
                blocks::solve(op, n, a, true, false, b, columns)
            }
        })
    })
}

/// Cholesky factorizations in place of the lower triangles; the elements above them are undefined. `info` (`i32`) is 0, or the
/// order of the first leading minor that is not positive.
pub(crate) fn cholesky(op: &'static str, a: &mut ViewMut<'_>, info: &mut ViewMut<'_>) -> Result<()> {
    let (count, n, _) = sizes(op, a.layout.shape())?;
    let info = Pieces::<i32>::new(info, 1);
    scalar!(op, a.dtype, T => {
        let a = Batch::<T>::new(op, a)?;
        // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
        each(count, work(n, n, n) / 3, |at| unsafe {
            info.at(at)[0] = factor::cholesky(op, a.at(at), n)?;
            Ok(())
        })
    })
}

/// LDL factorizations in place of the lower triangles of symmetric or Hermitian matrices, with LAPACK's `pivots` (`i32`); the
/// elements above them are undefined. `info` (`i32`) is 0, or the number of the first zero block.
pub(crate) fn ldl(
    op: &'static str,
    a: &mut ViewMut<'_>,
    pivots: &mut ViewMut<'_>,
    info: &mut ViewMut<'_>,
    hermitian: bool,
) -> Result<()> {
    let (count, n, _) = sizes(op, a.layout.shape())?;
    let (pivots, info) = (Pieces::<i32>::new(pivots, n), Pieces::<i32>::new(info, 1));
    let mirror = indefinite::Mirror { conjugate: hermitian };
    scalar!(op, a.dtype, T => {
        let a = Batch::<T>::new(op, a)?;
        // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
        each(count, work(n, n, n) / 3, |at| unsafe {
            info.at(at)[0] = indefinite::ldl(a.at(at), n, pivots.at(at), mirror);
            Ok(())
        })
    })
}

/// `b = a⁻¹ · b` for column-major triangles `a` or, if `by_rows`, row-major ones.
pub(crate) fn solve_triangular(
    op: &'static str,
    a: View<'_>,
    by_rows: bool,
    upper: bool,
    unit: bool,
    b: &mut ViewMut<'_>,
) -> Result<()> {
    let (count, columns, n) = sizes(op, b.layout.shape())?;
    if columns == 0 || n == 0 {
        return Ok(());
    }
    scalar!(op, b.dtype, T => {
        let (a, b) = (Batch::<T>::read(op, &a)?, Batch::<T>::new(op, b)?);
        // SAFETY: the views are contiguous and have a matrix for each number, of which `b`'s is one thread's.
        each(count, work(n, n, columns), |at| unsafe {
            let matrix: Matrix<T> = a.at(at).matrix();
            blocks::solve(op, n, if by_rows { matrix.t() } else { matrix }, upper, unit, b.at(at), columns)
        })
    })
}

/// QR factorizations in place: R on and above the diagonals, the Householder vectors below, their factors in `taus`.
pub(crate) fn qr(op: &'static str, a: &mut ViewMut<'_>, taus: &mut ViewMut<'_>) -> Result<()> {
    let (count, n, m) = sizes(op, a.layout.shape())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    scalar!(op, a.dtype, T => {
        let (a, taus) = (Batch::<T>::new(op, a)?, Pieces::<T>::new(taus, m.min(n)));
        // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
        each(count, work(m, n, m.min(n)), |at| unsafe { reflect::qr(op, a.at(at), m, n, taus.at(at)) })
    })
}

/// Writes the first columns of the orthogonal matrices of [`qr`] to `q`, which has the number of columns to write.
pub(crate) fn qr_q(op: &'static str, a: View<'_>, taus: View<'_>, q: &mut ViewMut<'_>) -> Result<()> {
    let (count, columns, m) = sizes(op, q.layout.shape())?;
    let k = taus.layout.shape().last().copied().unwrap_or(0);
    if columns == 0 || m == 0 {
        return Ok(());
    }
    scalar!(op, q.dtype, T => {
        let (a, q) = (Batch::<T>::read(op, &a)?, Batch::<T>::new(op, q)?);
        let Some(taus) = taus.as_slice::<T>() else { bail!(Backend, op, "tau must be contiguous") };
        // SAFETY: the views are contiguous and have a matrix for each number, of which `q`'s is one thread's.
        each(count, work(m, columns, k), |at| unsafe {
            reflect::reflect(op, a.at(at), m, 0, &taus[at * k..(at + 1) * k], (q.at(at), columns), true)
        })
    })
}

fn check_finite<T: Scalar>(op: &'static str, a: Columns<T>, len: usize, number: usize) -> Result<()> {
    // SAFETY: the caller has a matrix of `len` elements, without gaps.
    if unsafe { a.column(0, 0, len) }.iter().all(|x| x.is_finite()) {
        return Ok(());
    }
    bail!(Value, op, "matrix {number} has elements that are not finite")
}

/// Eigenvalues of Hermitian matrices, in ascending order, to `values` and, if `vectors`, the eigenvectors in place of the
/// matrices. Only the lower triangles are read.
pub(crate) fn eigh(op: &'static str, a: &mut ViewMut<'_>, values: &mut ViewMut<'_>, vectors: bool) -> Result<()> {
    let (count, n, _) = sizes(op, a.layout.shape())?;
    if n == 0 {
        return Ok(());
    }
    scalar!(op, a.dtype, T => {
        let (a, values) = (Batch::<T>::new(op, a)?, Pieces::<<T as Scalar>::Real>::new(values, n));
        each(count, work(n, n, n), |at| {
            check_finite(op, a.at(at), n * n, at)?;
            // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
            unsafe { eigen::eigh(op, a.at(at), n, values.at(at), vectors) }
        })
    })
}

/// Eigenvalues of square matrices, which are overwritten, as complex numbers to `values`, and the eigenvectors to `vectors`.
/// Complex eigenvalues of real matrices come in pairs, the one with the positive imaginary part first. The two columns of
/// `vectors` are then the real and imaginary parts of the first one's vector, as in LAPACK.
pub(crate) fn eig(
    op: &'static str,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    vectors: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let (count, n, _) = sizes(op, a.layout.shape())?;
    if n == 0 {
        return Ok(());
    }
    scalar!(op, a.dtype, T => {
        let (a, values) = (Batch::<T>::new(op, a)?, Pieces::<<T as Scalar>::Complex>::new(values, n));
        let vectors = vectors.map(|v| Batch::<T>::new(op, v)).transpose()?;
        each(count, work(n, n, n).saturating_mul(10), |at| {
            check_finite(op, a.at(at), n * n, at)?;
            // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
            unsafe { general::eig(op, a.at(at), n, values.at(at), vectors.as_ref().map(|v| v.at(at))) }
        })
    })
}

/// Writes the singular values of matrices that have at least as many rows as columns, in descending order, to `values`; the
/// first left vectors to the columns of `u`; and the right ones to `v`. The matrices are overwritten.
pub(crate) fn svd(
    op: &'static str,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    u: Option<&mut ViewMut<'_>>,
    v: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let (count, n, m) = sizes(op, a.layout.shape())?;
    if n == 0 && u.as_ref().is_none_or(|u| u.layout.numel() == 0) {
        return Ok(());
    }
    scalar!(op, a.dtype, T => {
        let (a, values) = (Batch::<T>::new(op, a)?, Pieces::<<T as Scalar>::Real>::new(values, n));
        let (u, v) = (u.map(|u| Batch::<T>::new(op, u)).transpose()?, v.map(|v| Batch::<T>::new(op, v)).transpose()?);
        each(count, work(m, n, n), |at| {
            check_finite(op, a.at(at), m * n, at)?;
            let (u, v) = (u.as_ref().map(|u| (u.at(at), u.columns)), v.as_ref().map(|v| v.at(at)));
            // SAFETY: the views are contiguous and have a piece for each matrix, which is one thread's.
            unsafe { singular::svd(op, a.at(at), m, n, values.at(at), u, v) }
        })
    })
}
