//! Eigenvalues and eigenvectors of Hermitian matrices: to a tridiagonal matrix by reflections, and from there to a diagonal
//! one by rotations.

use super::blocks::{Columns, Real, Rotated, Scalar, axpy2, dot, scale, subtract};
use super::reflect::{reflect, reflection};
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::scratch::filled;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::error::bail;

/// Reflections that are applied to the rest of a matrix as one.
const BLOCK: usize = 32;

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
            for i in j..n {
                let x = a.get(i, j);
                a.set(j, i, x.conj());
                largest = if x.size() > largest { x.size() } else { largest };
            }
        }
    }
    let (zero, smallest) = (T::Real::ZERO, T::Real::SMALLEST);
    let unusual = largest > zero && (largest < smallest || largest > T::Real::ONE / smallest);
    if unusual {
        // SAFETY: the caller's promise.
        (0..n).for_each(|j| unsafe { a.column(j, 0, n) }.iter_mut().for_each(|x| *x = *x / T::from_real(largest)));
    }
    let (mut off, mut taus) = (filled(op, zero, n)?, filled(op, T::ZERO, n.saturating_sub(1))?);
    // SAFETY: the caller's promise.
    unsafe { tridiagonal(op, a, n, values, &mut off, &mut taus)? };
    let mut z = Rotated::identity(op, n, vectors)?;
    diagonalize(op, values, &mut off, &mut z)?;
    let z = z.finish();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| values[i].partial_cmp(&values[j]).unwrap_or(std::cmp::Ordering::Equal));
    let sorted: Vec<T::Real> = order.iter().map(|&i| values[i]).collect();
    values.copy_from_slice(&sorted);
    if vectors {
        let mut q = filled(op, T::ZERO, n * n)?;
        for (to, &from) in q.chunks_exact_mut(n.max(1)).zip(&order) {
            to.iter_mut().zip(&z[from * n..(from + 1) * n]).for_each(|(to, &z)| *to = T::from_real(z));
        }
        let made = Columns { ptr: q.as_mut_ptr(), ld: n };
        // SAFETY: both matrices are `n` by `n`.
        unsafe {
            reflect(op, a, n, 1, &taus, made, n)?;
            (0..n).for_each(|j| a.column(j, 0, n).copy_from_slice(&q[j * n..(j + 1) * n]));
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
/// As [`eigh`]; both triangles are written.
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
    let mut product = filled(op, T::ZERO, n)?;
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
            let (to, matrix, v) = (Ptr::new(product.as_mut_ptr()), Ptr::new(a.ptr), &v[first..]);
            parallel(n - first, (GRAIN / (n - first)).max(1), |range| {
                let a = Columns { ptr: matrix.get(), ld: a.ld };
                for j in range.start + first..range.end + first {
                    // SAFETY: the caller's promise; each element of the product is one thread's.
                    unsafe { to.get().add(j).write(dot(a.column(j, first, n - first), v)) };
                }
            });
            let product = &mut product[first..];
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
        let (rest, v, w) = (n - end, vs.as_ptr().wrapping_add(end), ws.as_ptr().wrapping_add(end));
        let down = |ptr: *const T| Matrix { ptr, row: 1, col: n as isize };
        // SAFETY: the caller's promise; the vectors have `n` elements each.
        unsafe {
            subtract(op, [rest, rest, end - start], (down(v), true), down(w).t(), a.at(end, end), a.ld)?;
            subtract(op, [rest, rest, end - start], (down(w), true), down(v).t(), a.at(end, end), a.ld)?;
        }
    }
    Ok(())
}

/// Rotations make a tridiagonal matrix diagonal (the implicit QL method), and the columns of `z` its eigenvectors.
fn diagonalize<T: Real>(op: &'static str, d: &mut [T], e: &mut [T], z: &mut Rotated<T>) -> Result<()> {
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
