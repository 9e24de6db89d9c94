//! Eigenvalues and eigenvectors of Hermitian matrices: to a tridiagonal matrix by reflections, and from there to a diagonal
//! one by rotations or, for the vectors of a large one, by divide and conquer.

use super::blocks::subtract_lower;
use super::columns::{Columns, axpy, axpy2, dot, scalars, scale};
use super::conquer;
use super::reflect::{reflect, reflection, reflections};
use super::rotations::Rotated;
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::scratch::filled;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::error::bail;

/// Reflections that are applied to the rest of a matrix as one. With more of them, what is read has more to be added to it.
const BLOCK: usize = 16;

/// Columns whose sums are made together, whatever the number of threads.
const CHUNK: usize = 64;

/// The eigenvalues of a Hermitian matrix, of which the lower triangle is read, in ascending order into `values`, and the
/// eigenvectors in place of the matrix, if they are wanted. All elements are finite.
///
/// # Errors
/// If memory runs out, or the rotations do not converge.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nobody else uses it.
pub(super) unsafe fn eigh<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    values: &mut [T::Real],
    vectors: bool,
) -> Result<()> {
    let mut largest = T::Real::ZERO;
    // SAFETY: the caller's promise, for columns of the matrix.
    unsafe {
        for j in 0..n {
            // The diagonal is real, whatever is written there.
            a.set(j, j, T::from_real(a.get(j, j).re()));
            for x in a.column(j, j, n - j) {
                largest = if x.size() > largest { x.size() } else { largest };
            }
        }
    }
    let (zero, smallest) = (T::Real::ZERO, T::Real::SMALLEST);
    let unusual = largest > zero && (largest < smallest || largest > T::Real::ONE / smallest);
    if unusual {
        // SAFETY: the caller's promise.
        (0..n).for_each(|j| unsafe { a.column(j, j, n - j) }.iter_mut().for_each(|x| *x = *x / T::from_real(largest)));
    }
    let (mut off, mut taus) = (filled(op, zero, n)?, filled(op, T::ZERO, n.saturating_sub(1))?);
    // SAFETY: the caller's promise.
    unsafe { tridiagonal(op, a, n, values, &mut off, &mut taus)? };
    let q = if vectors && n >= conquer::LARGE {
        let mut q = scalars(op, conquer::tridiagonal(op, values, &off)?)?;
        // SAFETY: the caller's promise; the other matrix is `n` by `n`, too.
        unsafe { reflect(op, a, n, 1, &taus, (Columns { ptr: q.as_mut_ptr(), ld: n }, n), false)? };
        q
    } else {
        // SAFETY: the caller's promise.
        let mut q = unsafe { reflections(op, a, n, 1, &taus, vectors)? };
        let mut z = Rotated::new(op, n, &mut q)?;
        diagonalize(op, values, &mut off, &mut z)?;
        z.finish(&mut q);
        q
    };
    let order = conquer::ascending(&values[..n].iter().map(|value| value.to_f64()).collect::<Vec<f64>>());
    let sorted: Vec<T::Real> = order.iter().map(|&i| values[i]).collect();
    values.copy_from_slice(&sorted);
    if vectors {
        for (j, &from) in order.iter().enumerate() {
            // SAFETY: both matrices are `n` by `n`.
            unsafe { a.column(j, 0, n) }.copy_from_slice(&q[from * n..(from + 1) * n]);
        }
    }
    if unusual {
        scale(values, largest);
    }
    Ok(())
}

/// Reflections from both sides make a Hermitian matrix tridiagonal and real: `diagonal`, and `off[k]` beside `k` and `k + 1`. The
/// vectors stay below the subdiagonal.
///
/// # Safety
/// As [`eigh`].
unsafe fn tridiagonal<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    diagonal: &mut [T::Real],
    off: &mut [T::Real],
    taus: &mut [T],
) -> Result<()> {
    // Reflections change the matrix to `a - v · wᴴ - w · vᴴ`: that is done for a whole block of them at once, and until then for
    // what is read.
    let (mut vs, mut ws) = (filled(op, T::ZERO, n * BLOCK)?, filled(op, T::ZERO, n * BLOCK)?);
    let (mut product, mut partial) = (filled(op, T::ZERO, n)?, filled(op, T::ZERO, n * n.div_ceil(CHUNK))?);
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for k in start..end {
            let (earlier, v) = vs.split_at_mut((k - start) * n);
            let (earlier_w, w) = ws.split_at_mut((k - start) * n);
            let pairs = || earlier.chunks_exact(n).zip(earlier_w.chunks_exact(n));
            let (v, w, first) = (&mut v[..n], &mut w[..n], k + 1);
            // SAFETY: the caller's promise, for a column of the matrix.
            let column = unsafe { a.column(k, k, n - k) };
            for (v, w) in pairs() {
                axpy2(-w[k].conj(), &v[k..], -v[k].conj(), &w[k..], column);
            }
            diagonal[k] = column[0].re();
            if first == n {
                return Ok(());
            }
            let (tau, beta) = reflection(&mut column[1..]);
            (off[k], taus[k]) = (beta, tau);
            v[first] = T::ONE;
            v[first + 1..].copy_from_slice(&column[2..]);
            let (sums, matrix, v) = (Ptr::new(partial.as_mut_ptr()), Ptr::new(a.ptr), &v[first..]);
            let (size, product) = (n - first, &mut product[first..]);
            let chunks = size.div_ceil(CHUNK);
            parallel(chunks, (GRAIN / (CHUNK * size)).max(1), |range| {
                let a = Columns { ptr: matrix.get(), ld: a.ld }.from(first, first);
                for chunk in range {
                    let columns = chunk * CHUNK..size.min((chunk + 1) * CHUNK);
                    // SAFETY: the caller's promise; each chunk's sums are one thread's.
                    unsafe {
                        let sums = std::slice::from_raw_parts_mut(sums.get().add(chunk * n), size);
                        sums[columns.start..].fill(T::ZERO);
                        T::hermitian_product(a, columns, v, sums);
                    }
                }
            });
            product.fill(T::ZERO);
            for chunk in 0..chunks {
                let from = chunk * CHUNK;
                axpy(T::ONE, &partial[chunk * n + from..chunk * n + size], &mut product[from..]);
            }
            for (earlier, earlier_w) in pairs() {
                let (earlier, earlier_w) = (&earlier[first..], &earlier_w[first..]);
                axpy2(-dot(earlier_w, v), earlier, -dot(earlier, v), earlier_w, product);
            }
            scale(product, tau);
            let half = T::from_real(T::Real::from_f64(-0.5)) * tau * dot(product, v);
            for ((w, &p), &v) in w[first..].iter_mut().zip(&*product).zip(v) {
                *w = p + half * v;
            }
        }
        let panel = |panel: &[T]| Matrix { ptr: panel.as_ptr().wrapping_add(end), row: 1, col: n as isize };
        let (v, w) = (panel(&vs), panel(&ws));
        // SAFETY: the caller's promise; the vectors have `n` elements each.
        unsafe { subtract_lower(op, a.from(end, end), n - end, &[(v, w), (w, v)], end - start)? };
    }
    Ok(())
}

/// Rotations make a tridiagonal matrix diagonal (the implicit QL method), and the columns of `z` its eigenvectors.
pub(super) fn diagonalize<T: Real>(op: &'static str, d: &mut [T], e: &mut [T], z: &mut Rotated<T>) -> Result<()> {
    let (two, n) = (T::from_f64(2.0), d.len());
    for l in 0..n {
        let mut steps = 0;
        loop {
            // The first small element beside the diagonal.
            let negligible = |m: usize| e[m].abs() <= T::EPSILON * (d[m].abs() + d[m + 1].abs()) || e[m] == T::ZERO;
            let m = (l..n - 1).find(|&m| negligible(m)).unwrap_or(n - 1);
            if m == l {
                break;
            }
            steps += 1;
            if steps > 60 {
                bail!(Value, op, "the eigenvalues of a matrix of size {n} did not converge");
            }
            let shift = (d[l + 1] - d[l]) / (two * e[l]);
            let root = shift.hypot(T::ONE);
            let signed = if shift >= T::ZERO { root } else { -root };
            let mut g = d[m] - d[l] + e[l] / (shift + signed);
            let (mut s, mut c, mut p) = (T::ONE, T::ONE, T::ZERO);
            let mut stopped = false;
            for i in (l..m).rev() {
                let (f, b) = (s * e[i], c * e[i]);
                let r = f.hypot(g);
                e[i + 1] = r;
                if r == T::ZERO {
                    d[i + 1] = d[i + 1] - p;
                    e[m] = T::ZERO;
                    stopped = true;
                    break;
                }
                (s, c) = (f / r, g / r);
                g = d[i + 1] - p;
                let t = (d[i] - g) * s + two * c * b;
                p = s * t;
                d[i + 1] = g + p;
                g = c * t - b;
                z.rotate(i + 1, i, c, s);
            }
            if stopped {
                continue;
            }
            d[l] = d[l] - p;
            e[l] = g;
            e[m] = T::ZERO;
        }
    }
    Ok(())
}
