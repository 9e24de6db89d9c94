//! Eigenvalues and eigenvectors of general matrices: reduction to Hessenberg form by reflections, then to a triangle by the QR
//! method (`schur.rs`), whose eigenvectors follow by substitution.

use super::columns::{Columns, axpy, dot, scale};
use super::reflect::{reflect, reflection};
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Product, Start};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::memory::scratch::filled;

/// The number of rows that are multiplied by a vector at a time.
const ROWS: usize = 256;

/// The eigenvalues of a matrix, which is overwritten, to `values`, and the eigenvectors, of length 1, to `vectors`. For real
/// matrices, a complex pair is stored as the parts of its first vector. All elements are finite.
///
/// # Errors
/// If memory runs out, or the method does not converge.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nothing else uses them.
pub(super) unsafe fn eig<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    values: &mut [T::Complex],
    vectors: Option<Columns<T>>,
) -> Result<()> {
    let mut largest = T::Real::ZERO;
    // SAFETY: the caller's promise, for columns of the matrix.
    (0..n).flat_map(|j| unsafe { a.column(j, 0, n) }).for_each(|x| {
        largest = if x.size() > largest { x.size() } else { largest };
    });
    let smallest = T::Real::SMALLEST;
    let unusual = largest > T::Real::ZERO && (largest < smallest || largest > T::Real::ONE / smallest);
    if unusual {
        // SAFETY: as above.
        (0..n).flat_map(|j| unsafe { a.column(j, 0, n) }).for_each(|x| *x = *x / T::from_real(largest));
    }
    // SAFETY: as above.
    unsafe { decompose(op, a, n, values, vectors)? };
    if unusual {
        scale(values, T::Complex::from_real(largest));
    }
    Ok(())
}

/// As [`eig`], for a matrix whose elements are not unusually large or small.
///
/// # Safety
/// As there.
unsafe fn decompose<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    values: &mut [T::Complex],
    vectors: Option<Columns<T>>,
) -> Result<()> {
    // SAFETY: the caller's promise, for columns of the matrices; so below.
    unsafe {
        let scales = balance(op, a, n)?;
        let taus = hessenberg(op, a, n)?;
        if let Some(z) = vectors {
            reflect(op, a, n, 1, &taus, (z, n), true)?;
        }
        for j in 0..n {
            a.column(j, 0, n)[(j + 2).min(n)..].fill(T::ZERO);
        }
        T::schur(op, a, n, vectors)?;
        let Some(z) = vectors else {
            read_values(a, n, values);
            return Ok(());
        };
        let mut wide = filled(op, T::Complex::ZERO, n * n)?;
        let triangle = triangular(op, a, n, values, z, Columns { ptr: wide.as_mut_ptr(), ld: n })?;
        let mut x = filled(op, T::Complex::ZERO, n * n)?;
        substitute::<T::Complex>(&triangle, n, &mut x);
        // The transposes are row-major: (z · x)ᵀ = xᵀ · zᵀ.
        let mut found = filled(op, T::Complex::ZERO, n * n)?;
        let (rows, z_rows) = (Columns { ptr: x.as_mut_ptr(), ld: n }, Columns { ptr: wide.as_mut_ptr(), ld: n });
        let (a, b) = (rows.matrix().t(), z_rows.matrix().t());
        let product = Product { m: n, n, k: n, a, b, out: found.as_mut_ptr(), width: n, start: Start::Zero };
        T::Complex::product(op, &product, false)?;
        for vector in found.chunks_exact_mut(n) {
            for (x, &by) in vector.iter_mut().zip(&scales) {
                *x = *x * T::Complex::from_real(by);
            }
            normalize(vector);
        }
        write(&mut found, n, values, z);
    }
    Ok(())
}

/// Balances a matrix: scales rows and columns by powers of 2 until their norms are similar: `d⁻¹ · a · d`. Returns `d`.
///
/// # Safety
/// As [`eig`].
unsafe fn balance<T: Scalar>(op: &'static str, a: Columns<T>, n: usize) -> Result<Vec<T::Real>> {
    let [zero, one, two] = [T::Real::ZERO, T::Real::ONE, T::Real::from_f64(2.0)];
    let mut scales = filled(op, one, n)?;
    let (enough, largest) = (T::Real::from_f64(0.95), one / T::Real::SMALLEST);
    for _ in 0..16 {
        let mut done = true;
        for (i, own) in scales.iter_mut().enumerate() {
            let (mut column, mut row) = (zero, zero);
            for j in (0..n).filter(|&j| j != i) {
                // SAFETY: the caller's promise; so below.
                unsafe {
                    column = column + a.get(j, i).size();
                    row = row + a.get(i, j).size();
                }
            }
            if column == zero || row == zero {
                continue;
            }
            let (sum, mut by, mut grown) = (column + row, one, column);
            while grown < row / two && by < largest && *own * by < largest {
                (by, grown) = (by * two, grown * two * two);
            }
            while grown >= row * two && by * largest > one && *own * by * largest > one {
                (by, grown) = (by / two, grown / (two * two));
            }
            if by != one && (grown + row) / by < enough * sum {
                (done, *own) = (false, *own * by);
                let (down, across) = (T::from_real(by), T::from_real(one / by));
                // SAFETY: as above.
                unsafe {
                    scale(a.column(i, 0, n), down);
                    (0..n).for_each(|j| a.set(i, j, a.get(i, j) * across));
                }
            }
        }
        if done {
            break;
        }
    }
    Ok(scales)
}

/// Reduces a matrix to Hessenberg form by reflections from both sides. Their vectors are stored below the subdiagonal; returns
/// their factors.
///
/// # Safety
/// As [`eig`].
unsafe fn hessenberg<T: Scalar>(op: &'static str, a: Columns<T>, n: usize) -> Result<Vec<T>> {
    let mut taus = filled(op, T::ZERO, n.saturating_sub(2))?;
    let (mut v, mut product) = (filled(op, T::ZERO, n)?, filled(op, T::ZERO, n)?);
    for (k, factor) in taus.iter_mut().enumerate() {
        let (first, len) = (k + 1, n - k - 1);
        // SAFETY: the caller's promise, for a column of the matrix.
        let column = unsafe { a.column(k, first, len) };
        let (tau, beta) = reflection(column);
        (column[0], *factor) = (T::from_real(beta), tau);
        let v = &mut v[..len];
        v[0] = T::ONE;
        v[1..].copy_from_slice(&column[1..]);
        let (v, matrix, to) = (&*v, Ptr::new(a.ptr), Ptr::new(product.as_mut_ptr()));
        let grain = (GRAIN / n).max(1);
        // a · v, some rows at a time.
        parallel(n.div_ceil(ROWS), (GRAIN / (n * ROWS)).max(1), |range| {
            let (start, end) = (range.start * ROWS, n.min(range.end * ROWS));
            let a = Columns { ptr: matrix.get(), ld: a.ld };
            // SAFETY: the caller's promise; each row of the product is one thread's.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(to.get().add(start), end - start);
                sums.fill(T::ZERO);
                (0..len).for_each(|j| axpy(v[j], a.column(first + j, start, end - start), sums));
            }
        });
        let product = &product[..];
        parallel(len, grain, |range| {
            let a = Columns { ptr: matrix.get(), ld: a.ld };
            for j in range {
                // SAFETY: the caller's promise; each column is one thread's.
                unsafe {
                    axpy(-(tau * v[j].conj()), product, a.column(first + j, 0, n));
                    let column = a.column(first + j, first, len);
                    axpy(-(tau.conj() * dot(v, column)), v, column);
                }
            }
        });
    }
    Ok(taus)
}

/// The eigenvalues of the block of size 2 at `k`, as the real and the imaginary part of the first.
///
/// # Safety
/// As [`Scalar::schur`].
unsafe fn pair<T: Scalar>(h: Columns<T>, k: usize) -> (T::Real, T::Real) {
    let half = T::Real::from_f64(0.5);
    // SAFETY: the caller's promise.
    unsafe {
        let (a, d) = (h.get(k, k).re(), h.get(k + 1, k + 1).re());
        let p = (a - d) * half;
        let (b, c) = (h.get(k, k + 1).re(), h.get(k + 1, k).re());
        let q = p * p + b * c;
        (d + p, if q < T::Real::ZERO { (-q).sqrt() } else { T::Real::ZERO })
    }
}

/// Calls `f` for each block on the diagonal: with its first row, and whether it has size 2.
///
/// # Safety
/// As [`Scalar::schur`].
unsafe fn blocks<T: Scalar>(h: Columns<T>, n: usize, mut f: impl FnMut(usize, bool)) {
    let mut k = 0;
    while k < n {
        // SAFETY: the caller's promise.
        let two = k + 1 < n && unsafe { h.get(k + 1, k) } != T::ZERO;
        f(k, two);
        k += if two { 2 } else { 1 };
    }
}

/// The eigenvalues of a result of [`Scalar::schur`].
///
/// # Safety
/// As there.
unsafe fn read_values<T: Scalar>(h: Columns<T>, n: usize, values: &mut [T::Complex]) {
    // SAFETY: the caller's promise.
    unsafe {
        blocks(h, n, |k, two| {
            if two {
                let (re, im) = pair(h, k);
                (values[k], values[k + 1]) = (T::from_parts(re, im), T::from_parts(re, -im));
            } else {
                let value = h.get(k, k);
                values[k] = T::from_parts(value.re(), value.im());
            }
        });
    }
}

/// Converts a result of [`Scalar::schur`] to a complex triangle with the eigenvalues on its diagonal, and `z` to `wide`.
///
/// # Safety
/// As there; `wide` is `n` by `n`.
unsafe fn triangular<T: Scalar>(
    op: &'static str,
    h: Columns<T>,
    n: usize,
    values: &mut [T::Complex],
    z: Columns<T>,
    wide: Columns<T::Complex>,
) -> Result<Vec<T::Complex>> {
    let mut triangle = filled(op, T::Complex::ZERO, n * n)?;
    let t = Columns { ptr: triangle.as_mut_ptr(), ld: n };
    // SAFETY: the caller's promise; all matrices are `n` by `n`.
    unsafe {
        for j in 0..n {
            for i in 0..n {
                let (x, y) = (h.get(i, j), z.get(i, j));
                if i <= j + 1 {
                    t.set(i, j, T::from_parts(x.re(), x.im()));
                }
                wide.set(i, j, T::from_parts(y.re(), y.im()));
            }
        }
        read_values(h, n, values);
        blocks(h, n, |k, two| {
            if !two {
                return;
            }
            // (value - d, below) is an eigenvector of the block.
            let (x, below) = (values[k] - t.get(k + 1, k + 1), t.get(k + 1, k));
            let length = T::Complex::from_real(x.abs().hypot(below.abs()));
            let (c, s) = (x / length, below / length);
            for j in k..n {
                let (x, y) = (t.get(k, j), t.get(k + 1, j));
                t.set(k, j, c.conj() * x + s.conj() * y);
                t.set(k + 1, j, c * y - s * x);
            }
            for (m, rows) in [(t, k + 2), (wide, n)] {
                for i in 0..rows {
                    let (x, y) = (m.get(i, k), m.get(i, k + 1));
                    m.set(i, k, c * x + s * y);
                    m.set(i, k + 1, c.conj() * y - s.conj() * x);
                }
            }
            t.set(k + 1, k, T::Complex::ZERO);
        });
        (0..n).for_each(|k| t.set(k, k, values[k]));
    }
    Ok(triangle)
}

/// The eigenvectors of a triangle, as columns of `x`.
fn substitute<T: Scalar>(triangle: &[T], n: usize, x: &mut [T]) {
    let largest = triangle.iter().fold(T::Real::ZERO, |most, x| if x.size() > most { x.size() } else { most });
    let small = T::Real::EPSILON * if largest == T::Real::ZERO { T::Real::ONE } else { largest };
    let huge = T::Real::ONE / T::Real::SMALLEST;
    let to = Ptr::new(x.as_mut_ptr());
    parallel(n, (4 * GRAIN / (n * n)).max(1), |range| {
        for k in range {
            // SAFETY: each column is one thread's.
            let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(k * n), n) };
            let value = triangle[k * n + k];
            x[k] = T::ONE;
            for (x, &t) in x[..k].iter_mut().zip(&triangle[k * n..k * n + k]) {
                *x = -t;
            }
            for i in (0..k).rev() {
                let apart = triangle[i * n + i] - value;
                // The difference of equal eigenvalues is replaced by one at the level of rounding.
                let apart = if apart.size() < small { T::from_real(small) } else { apart };
                x[i] = x[i] / apart;
                if x[i].size() > huge {
                    let by = T::from_real(T::Real::ONE / x[i].size());
                    scale(&mut x[..=k], by);
                }
                let (rest, own) = x.split_at_mut(i);
                axpy(-own[0], &triangle[i * n..i * n + i], rest);
            }
        }
    });
}

/// Makes a vector's length 1, and its largest element positive.
fn normalize<T: Scalar>(x: &mut [T]) {
    let largest = x.iter().fold(T::ZERO, |most, &x| if x.size() > most.size() { x } else { most });
    if largest == T::ZERO {
        return;
    }
    // So neither overflows.
    scale(x, T::ONE / largest);
    let length = dot(x, x).re().sqrt();
    scale(x, T::from_real(T::Real::ONE / length));
}

/// Writes contiguous eigenvectors to the columns of a matrix, real or complex.
///
/// # Safety
/// As [`eig`].
unsafe fn write<T: Scalar>(found: &mut [T::Complex], n: usize, values: &[T::Complex], to: Columns<T>) {
    let zero = T::Real::ZERO;
    for (k, vector) in found.chunks_exact(n).enumerate() {
        for (i, x) in vector.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                if let Some(x) = T::from_complex(*x) {
                    to.set(i, k, x);
                } else if values[k].im() > zero {
                    to.set(i, k, T::from_real(x.re()));
                    to.set(i, k + 1, T::from_real(x.im()));
                } else if values[k].im() == zero {
                    to.set(i, k, T::from_real(x.re()));
                }
            }
        }
    }
}
