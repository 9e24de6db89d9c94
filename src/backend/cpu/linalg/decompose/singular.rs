//! Singular values and vectors: reduction to a bidiagonal matrix by reflections, and to a diagonal one by rotations or, for the
//! vectors of a large matrix, by divide and conquer.

use super::blocks::subtract;
use super::columns::{Columns, axpy, axpy2, dot, scalars, scale};
use super::conquer;
use super::reflect::{qr, reflect, reflection, reflections};
use super::rotations::Rotated;
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::error::bail;
use crate::memory::scratch::filled;

/// The number of reflections that are applied to the rest of a matrix as a block. Larger blocks add more updates to what is read.
const BLOCK: usize = 16;

/// The number of columns that are summed together, independent of the number of threads.
const CHUNK: usize = 64;

/// The singular values of an `m` by `n` matrix with `m ≥ n`, in descending order, to `values`. `u` gets `n` or `m` columns of left
/// vectors, and `v` the right vectors. The matrix is overwritten. All its elements are finite.
///
/// # Errors
/// If memory runs out, or the rotations do not converge.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nothing else uses them.
pub(super) unsafe fn svd<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    m: usize,
    n: usize,
    values: &mut [T::Real],
    u: Option<(Columns<T>, usize)>,
    v: Option<Columns<T>>,
) -> Result<()> {
    let mut largest = T::Real::ZERO;
    // SAFETY: the caller's promise, for columns of the matrices; so below.
    (0..n).flat_map(|j| unsafe { a.column(j, 0, m) }).for_each(|x| {
        largest = if x.size() > largest { x.size() } else { largest };
    });
    let (zero, smallest) = (T::Real::ZERO, T::Real::SMALLEST);
    let unusual = largest > zero && (largest < smallest || largest > T::Real::ONE / smallest);
    if unusual {
        // SAFETY: as above.
        (0..n).flat_map(|j| unsafe { a.column(j, 0, m) }).for_each(|x| *x = *x / T::from_real(largest));
    }
    let mut taus = filled(op, T::ZERO, if m > n { n } else { 0 })?;
    let mut square = filled(op, T::ZERO, n * n)?;
    // SAFETY: as above.
    unsafe {
        if m > n {
            qr(op, a, m, n, &mut taus)?;
        }
        for (j, column) in square.chunks_exact_mut(n.max(1)).enumerate() {
            let len = if m > n { j + 1 } else { n };
            column[..len].copy_from_slice(a.column(j, 0, len));
        }
    }
    let r = Columns { ptr: square.as_mut_ptr(), ld: n };
    let (mut off, mut left) = (filled(op, zero, n)?, filled(op, T::ZERO, n)?);
    let (mut across, mut right) = (filled(op, T::ZERO, n * n)?, filled(op, T::ZERO, n.saturating_sub(1))?);
    let rows = Columns { ptr: across.as_mut_ptr(), ld: n };
    // SAFETY: both matrices are `n` by `n`.
    unsafe { bidiagonal(op, r, n, [values, &mut off], &mut left, rows, &mut right)? };
    let vectors = u.is_some() || v.is_some();
    let conquered = vectors && n >= conquer::LARGE;
    let (mut ub, mut vb) = if conquered {
        let (u, v) = conquer::bidiagonal(op, values, &off)?;
        (scalars(op, u)?, scalars(op, v)?)
    } else {
        // SAFETY: as above.
        unsafe { (reflections(op, r, n, 0, &left, vectors)?, reflections(op, rows, n, 1, &right, vectors)?) }
    };
    if conquered {
        let columns = |q: &mut Vec<T>| (Columns { ptr: q.as_mut_ptr(), ld: n }, n);
        // SAFETY: all of these matrices are `n` by `n`.
        unsafe {
            reflect(op, r, n, 0, &left, columns(&mut ub), false)?;
            reflect(op, rows, n, 1, &right, columns(&mut vb), false)?;
        }
    } else {
        let (mut u_rotated, mut v_rotated) = (Rotated::new(op, n, &mut ub)?, Rotated::new(op, n, &mut vb)?);
        diagonalize(op, values, &mut off, &mut u_rotated, &mut v_rotated)?;
        u_rotated.finish(&mut ub);
        v_rotated.finish(&mut vb);
    }
    // No singular value is negative.
    for (at, value) in values.iter_mut().enumerate().filter(|(_, value)| **value < zero) {
        *value = -*value;
        if vectors {
            scale(&mut vb[at * n..(at + 1) * n], -T::ONE);
        }
    }
    let order = conquer::ascending(&values[..n].iter().map(|&value| -value.to_f64()).collect::<Vec<f64>>());
    let sorted: Vec<T::Real> = order.iter().map(|&i| values[i]).collect();
    values.copy_from_slice(&sorted);
    // SAFETY: as above.
    unsafe {
        if let Some((u, count)) = u {
            for j in 0..count {
                let column = u.column(j, 0, m);
                column.fill(T::ZERO);
                match order.get(j) {
                    Some(&from) => column[..n].copy_from_slice(&ub[from * n..(from + 1) * n]),
                    None => column[j] = T::ONE,
                }
            }
            reflect(op, a, m, 0, &taus, (u, count), false)?;
        }
        if let Some(v) = v {
            for (j, &from) in order.iter().enumerate() {
                v.column(j, 0, n).copy_from_slice(&vb[from * n..(from + 1) * n]);
            }
        }
    }
    if unusual {
        scale(values, largest);
    }
    Ok(())
}

/// Reduces a square matrix to a real bidiagonal one, by reflections from both sides: its diagonal and superdiagonal. The vectors
/// from the left are stored below the diagonal, those from the right in the columns of `rows`.
///
/// # Safety
/// As [`svd`]; both matrices are `n` by `n`.
unsafe fn bidiagonal<T: Scalar>(
    op: &'static str,
    a: Columns<T>,
    n: usize,
    [diagonal, off]: [&mut [T::Real]; 2],
    left: &mut [T],
    rows: Columns<T>,
    right: &mut [T],
) -> Result<()> {
    // Reflections change the matrix to `a - v · yᴴ - x · uᴴ`. The matrix is updated for a whole block of them at once; until then,
    // the elements that are read are.
    let panel = || filled(op, T::ZERO, n * BLOCK);
    let (mut vs, mut ys, mut xs, mut us) = (panel()?, panel()?, panel()?, panel()?);
    let mut partial = filled(op, T::ZERO, n.div_ceil(CHUNK) * n)?;
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for k in start..end {
            let (known, first) = ((k - start) * n, k + 1);
            let (earlier_v, v) = vs.split_at_mut(known);
            let (earlier_y, y) = ys.split_at_mut(known);
            let (earlier_x, x) = xs.split_at_mut(known);
            let (earlier_u, u) = us.split_at_mut(known);
            let all = [&*earlier_v, earlier_y, earlier_x, earlier_u];
            let earlier = || (0..k - start).map(|t| all.map(|panel| &panel[t * n..(t + 1) * n]));
            let (v, y, x, u) = (&mut v[..n], &mut y[..n], &mut x[..n], &mut u[..n]);
            // SAFETY: the caller's promise, for a column of the matrix.
            let column = unsafe { a.column(k, k, n - k) };
            for [v, y, x, u] in earlier() {
                axpy2(-y[k].conj(), &v[k..], -u[k].conj(), &x[k..], column);
            }
            let (tau, beta) = reflection(column);
            (diagonal[k], left[k]) = (beta, tau);
            v[k] = T::ONE;
            v[first..].copy_from_slice(&column[1..]);
            if first == n {
                return Ok(());
            }
            // The parts of `y` and of the conjugate of row `k`, after the reflections, that are known before the matrix is read.
            let new = &v[k..];
            y[first..].fill(T::ZERO);
            // SAFETY: as above.
            (first..n).for_each(|j| u[j] = unsafe { a.get(k, j) }.conj());
            for [v, known_y, x, known_u] in earlier() {
                let (known_y, known_u) = (&known_y[first..], &known_u[first..]);
                axpy2(-dot(&v[k..], new), known_y, -dot(&x[k..], new), known_u, &mut y[first..]);
                axpy2(-v[k].conj(), known_y, -x[k].conj(), known_u, &mut u[first..]);
            }
            // Each column is read once, for its element of `y`, and thus of `u`, and for its part of the product with `u`. The
            // length of `u` is not known yet, so that the product is divided by it below.
            let (size, chunks) = (n - first, (n - first).div_ceil(CHUNK));
            let (matrix, sums) = (Ptr::new(a.ptr), Ptr::new(partial.as_mut_ptr()));
            let (y_ptr, u_ptr) = (Ptr::new(y[first..].as_mut_ptr()), Ptr::new(u[first..].as_mut_ptr()));
            parallel(chunks, (GRAIN / (CHUNK * (n - k))).max(1), |range| {
                let a = Columns { ptr: matrix.get(), ld: a.ld }.from(k, first);
                for chunk in range {
                    let start = chunk * CHUNK;
                    let len = CHUNK.min(size - start);
                    // SAFETY: the caller's promise; each chunk's sums and elements are one thread's.
                    unsafe {
                        let sums = std::slice::from_raw_parts_mut(sums.get().add(chunk * n), n - k);
                        let y = std::slice::from_raw_parts_mut(y_ptr.get().add(start), len);
                        let u = std::slice::from_raw_parts_mut(u_ptr.get().add(start), len);
                        sums.fill(T::ZERO);
                        dispatch(BothProducts { a: a.from(0, start), v: new, tau, y, u, sums, skip: chunk == 0 });
                    }
                }
            });
            let before = u[first];
            let (tau, beta) = reflection(&mut u[first..]);
            (off[k], right[k]) = (beta, tau);
            u[first] = T::ONE;
            // SAFETY: as above.
            unsafe { rows.column(k, first, n - first) }.copy_from_slice(&u[first..]);
            // Without a reflection `tau` makes the product zero.
            let divisor = if tau == T::ZERO { T::ONE } else { before - T::from_real(beta) };
            let (x, u) = (&mut x[first..], &u[first..]);
            x.fill(T::ZERO);
            (0..chunks).for_each(|chunk| axpy(T::ONE, &partial[chunk * n + 1..chunk * n + n - k], x));
            scale(x, T::ONE / divisor);
            // SAFETY: as above.
            axpy(T::ONE, unsafe { a.column(first, first, n - first) }, x);
            axpy(-dot(&y[first..], u), &v[first..], x);
            for [v, y, known_x, known_u] in earlier() {
                axpy2(-dot(&y[first..], u), &v[first..], -dot(&known_u[first..], u), &known_x[first..], x);
            }
            scale(x, tau);
        }
        let rest = n - end;
        let down = |panel: &[T]| Matrix { ptr: panel.as_ptr().wrapping_add(end), row: 1, col: n as isize };
        // The transpose of the remaining matrix is row-major.
        // SAFETY: the caller's promise; the vectors have `n` elements each.
        unsafe {
            subtract(op, [rest, rest, end - start], (down(&ys), true), down(&vs).t(), a.at(end, end), a.ld)?;
            subtract(op, [rest, rest, end - start], (down(&us), true), down(&xs).t(), a.at(end, end), a.ld)?;
        }
    }
    Ok(())
}

/// Reads columns of a matrix once for two products: `y = tau · (aᴴ · v + y)` and, with `u = u - y`, `sums = sums + a · u`, the
/// latter optionally without the first column.
struct BothProducts<'a, T> {
    /// It has as many rows as `v` has elements, and as many columns as `y` and `u`.
    a: Columns<T>,
    v: &'a [T],
    tau: T,
    y: &'a mut [T],
    u: &'a mut [T],
    sums: &'a mut [T],
    skip: bool,
}

impl<T: Scalar> Job for BothProducts<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const LANES: usize = 16;
        const TOGETHER: usize = 4;
        let BothProducts { a, v, tau, y, u, sums, skip } = self;
        let (rows, whole) = (v.len(), v.len() / LANES * LANES);
        let sums = &mut sums[..rows];
        for first in (0..y.len()).step_by(TOGETHER) {
            let count = TOGETHER.min(y.len() - first);
            // Missing columns are read as the last one, and contribute nothing.
            // SAFETY: columns of the matrix, which are only read.
            let columns: [&[T]; TOGETHER] = each(|c| unsafe { &*a.column(first + c.min(count - 1), 0, rows) });
            let mut dots = [[T::ZERO; LANES]; TOGETHER];
            for at in (0..whole).step_by(LANES) {
                let v = &v[at..][..LANES];
                let parts: [&[T]; TOGETHER] = each(|c| &columns[c][at..][..LANES]);
                for lane in 0..LANES {
                    for c in 0..TOGETHER {
                        dots[c][lane] = parts[c][lane].conj().mul_add::<FMA>(v[lane], dots[c][lane]);
                    }
                }
            }
            for at in whole..rows {
                for c in 0..TOGETHER {
                    dots[c][at - whole] = columns[c][at].conj().mul_add::<FMA>(v[at], dots[c][at - whole]);
                }
            }
            let mut weights = [T::ZERO; TOGETHER];
            for c in 0..count {
                let at = first + c;
                y[at] = tau * dots[c].iter().fold(y[at], |sum, &x| sum + x);
                u[at] = u[at] - y[at];
                weights[c] = if skip && at == 0 { T::ZERO } else { u[at] };
            }
            let [a, b, c, d] = columns.map(|column| &column[..rows]);
            for i in 0..rows {
                let two = weights[0].mul_add::<FMA>(a[i], weights[1].mul_add::<FMA>(b[i], sums[i]));
                sums[i] = weights[2].mul_add::<FMA>(c[i], weights[3].mul_add::<FMA>(d[i], two));
            }
        }
    }
}

/// The cosine and sine of the rotation that takes `(f, g)` to `(length, 0)`, and the length.
fn rotation<T: Real>(f: T, g: T) -> (T, T, T) {
    let length = f.hypot(g);
    if length == T::ZERO { (T::ONE, T::ZERO, T::ZERO) } else { (f / length, g / length, length) }
}

/// Rotations make a bidiagonal matrix diagonal (the implicit QR method of Golub and Kahan), and turn the columns of `u` and `v`
/// into its singular vectors.
pub(super) fn diagonalize<T: Real>(
    op: &'static str,
    s: &mut [T],
    e: &mut [T],
    u: &mut Rotated<T>,
    v: &mut Rotated<T>,
) -> Result<()> {
    let n = s.len();
    let (half, mut p, mut steps) = (T::from_f64(0.5), n, 0);
    while p > 0 {
        // The last negligible element above the diagonal of the first `p`.
        let small = |k: &usize| e[*k].abs() <= T::EPSILON * (s[*k].abs() + s[*k + 1].abs()) || e[*k] == T::ZERO;
        let cut = (0..p - 1).rev().find(small);
        if let Some(cut) = cut {
            e[cut] = T::ZERO;
        }
        let k = cut.map_or(0, |cut| cut + 1);
        if k == p - 1 {
            (p, steps) = (k, 0);
            continue;
        }
        steps += 1;
        if steps > 100 {
            bail!(Value, op, "the singular values of a matrix of size {n} did not converge");
        }
        // A negligible element on the diagonal.
        let neighbours = |k0: usize| {
            let before = if k0 > k { e[k0 - 1].abs() } else { T::ZERO };
            let after = if k0 + 1 < p { e[k0].abs() } else { T::ZERO };
            before + after
        };
        let zero = (k..p).rev().find(|&at| s[at].abs() <= T::EPSILON * neighbours(at));
        match zero {
            Some(last) if last == p - 1 => {
                s[last] = T::ZERO;
                let mut f = e[p - 2];
                e[p - 2] = T::ZERO;
                for j in (k..p - 1).rev() {
                    let (c, sn, length) = rotation(s[j], f);
                    s[j] = length;
                    if j > k {
                        f = -sn * e[j - 1];
                        e[j - 1] = c * e[j - 1];
                    }
                    v.rotate(j, p - 1, c, sn);
                }
            }
            Some(at) => {
                s[at] = T::ZERO;
                let mut f = e[at];
                e[at] = T::ZERO;
                for j in at + 1..p {
                    let (c, sn, length) = rotation(s[j], f);
                    s[j] = length;
                    f = -sn * e[j];
                    e[j] = c * e[j];
                    u.rotate(j, at, c, sn);
                }
            }
            None => {
                let all = [s[p - 1], s[p - 2], e[p - 2], s[k], e[k]];
                let unit = all.iter().fold(T::ZERO, |most, x| if x.abs() > most { x.abs() } else { most });
                let [sp, before, ep, sk, ek] = all.map(|x| x / unit);
                let b = ((before + sp) * (before - sp) + ep * ep) * half;
                let c = (sp * ep) * (sp * ep);
                let shift = if b == T::ZERO && c == T::ZERO {
                    T::ZERO
                } else {
                    let root = (b * b + c).sqrt();
                    c / (b + if b < T::ZERO { -root } else { root })
                };
                let (mut f, mut g) = ((sk + sp) * (sk - sp) + shift, sk * ek);
                for j in k..p - 1 {
                    let (c, sn, length) = rotation(f, g);
                    if j > k {
                        e[j - 1] = length;
                    }
                    f = c * s[j] + sn * e[j];
                    e[j] = c * e[j] - sn * s[j];
                    g = sn * s[j + 1];
                    s[j + 1] = c * s[j + 1];
                    v.rotate(j, j + 1, c, sn);
                    let (c, sn, length) = rotation(f, g);
                    s[j] = length;
                    f = c * e[j] + sn * s[j + 1];
                    s[j + 1] = c * s[j + 1] - sn * e[j];
                    if j + 2 < p {
                        g = sn * e[j + 1];
                        e[j + 1] = c * e[j + 1];
                    }
                    u.rotate(j, j + 1, c, sn);
                }
                e[p - 2] = f;
            }
        }
    }
    Ok(())
}
