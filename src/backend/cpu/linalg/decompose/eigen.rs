//! Eigenvalues and eigenvectors of Hermitian matrices: reduction to a tridiagonal matrix by reflections, and to a diagonal one by
//! rotations or, for the vectors of a large matrix, by divide and conquer.

use super::columns::{Columns, scalars, scale};
use super::conquer;
use super::reflect::{reflect, reflections};
use super::rotations::Rotated;
use super::scalar::{Real, Scalar};
use super::tridiagonal::Tiled;
use crate::Result;
use crate::error::bail;
use crate::memory::scratch::filled;

/// The eigenvalues of a Hermitian matrix, in ascending order, to `values` and, optionally, the eigenvectors in place of the
/// matrix. Only the lower triangle is read. All elements are finite.
///
/// # Errors
/// If memory runs out, or the rotations do not converge.
///
/// # Safety
/// All elements of the matrix are inside its buffer, and nothing else uses it.
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
            // The imaginary parts of the diagonal are ignored.
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
    let mut tiled = unsafe { Tiled::new(op, a, n)? };
    tiled.reduce(op, values, &mut off, &mut taus)?;
    let reduced = tiled.columns();
    let q = if vectors && n >= conquer::LARGE {
        let mut q = scalars(op, conquer::tridiagonal(op, values, &off)?)?;
        // SAFETY: the caller's promise; the other matrix is `n` by `n`, too.
        unsafe { reflect(op, reduced, n, 1, &taus, (Columns { ptr: q.as_mut_ptr(), ld: n }, n), false)? };
        q
    } else {
        // SAFETY: the caller's promise.
        let mut q = unsafe { reflections(op, reduced, n, 1, &taus, vectors)? };
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

/// Rotations make a tridiagonal matrix diagonal (the implicit QL method), and turn the columns of `z` into its eigenvectors.
pub(super) fn diagonalize<T: Real>(op: &'static str, d: &mut [T], e: &mut [T], z: &mut Rotated<T>) -> Result<()> {
    let (two, n) = (T::from_f64(2.0), d.len());
    for l in 0..n {
        let mut steps = 0;
        loop {
            // The first negligible off-diagonal element.
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
