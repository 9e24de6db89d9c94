//! Eigenvalues and eigenvectors of general matrices: to Hessenberg form by reflections, from there to a triangle by the QR
//! method, whose eigenvectors follow by substitution.

use super::columns::{Columns, axpy, dot, scale};
use super::reflect::{reflect, reflection};
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::{Product, Start};
use crate::backend::cpu::runtime::scratch::filled;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::error::bail;

/// Steps of the QR method for one eigenvalue before it is given up.
const STEPS: usize = 90;

/// Rows that are multiplied with a vector at a time.
const ROWS: usize = 256;

/// The eigenvalues of a matrix, which is overwritten, into `values`, and the eigenvectors, of length 1, into `vectors`: of
/// real matrices as the parts of the first of each pair. All elements are finite.
///
/// # Errors
/// If memory runs out, or the method does not converge.
///
/// # Safety
/// All elements of the matrices are inside their buffers, and nobody else uses them.
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

/// As [`eig`], of a matrix whose elements are not unusually large or small.
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
        // The transposes lie row by row: (z · x)ᵀ = xᵀ · zᵀ.
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

/// Scales rows and columns by powers of 2 until they are about as long as each other: `d⁻¹ · a · d`. Returns `d`.
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

/// Reflections from both sides make what is below the subdiagonal zero. Their vectors stay there; returns their factors.
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

fn not_converged(op: &'static str, n: usize) -> Result<()> {
    bail!(Value, op, "the eigenvalues of a matrix of size {n} did not converge")
}

/// The first row of the block that ends with row `last`: what is below the diagonal before it is negligible, and set to zero.
///
/// # Safety
/// As [`Scalar::schur`].
unsafe fn block_start<T: Scalar>(h: Columns<T>, last: usize, norm: T::Real) -> usize {
    for l in (1..=last).rev() {
        // SAFETY: the caller's promise.
        unsafe {
            let around = h.get(l - 1, l - 1).size() + h.get(l, l).size();
            let around = if around == T::Real::ZERO { norm } else { around };
            if h.get(l, l - 1).size() <= T::Real::EPSILON * around {
                h.set(l, l - 1, T::ZERO);
                return l;
            }
        }
    }
    0
}

/// # Safety
/// As [`Scalar::schur`].
unsafe fn norm<T: Scalar>(h: Columns<T>, n: usize) -> T::Real {
    // SAFETY: the caller's promise.
    let column = |j: usize| unsafe { h.column(j, 0, n) };
    (0..n).flat_map(column).fold(T::Real::ZERO, |sum, x| sum + x.size())
}

/// As [`Scalar::schur`], for complex numbers: one shift at a time.
///
/// # Safety
/// As there.
pub(super) unsafe fn complex_schur<T: Scalar<Complex = T>>(
    op: &'static str,
    h: Columns<T>,
    n: usize,
    z: Option<Columns<T>>,
) -> Result<()> {
    let half = T::from_real(T::Real::from_f64(0.5));
    let (mut last, mut steps) = (n.saturating_sub(1), 0);
    let mut rotations = filled(op, (T::Real::ZERO, T::ZERO), n)?;
    // SAFETY: the caller's promise, for elements and columns of the matrices.
    unsafe {
        let norm = norm(h, n);
        while last > 0 {
            let first = block_start(h, last, norm);
            if first == last {
                (last, steps) = (last - 1, 0);
                continue;
            }
            steps += 1;
            if steps > STEPS {
                return not_converged(op, n);
            }
            let shift = if steps % 10 == 0 {
                T::from_real(h.get(last, last - 1).size()) + h.get(last, last)
            } else {
                // The eigenvalue of the last block of size 2 that is nearest to its last element.
                let (a, d) = (h.get(last - 1, last - 1), h.get(last, last));
                let (p, bc) = ((a - d) * half, h.get(last - 1, last) * h.get(last, last - 1));
                let root = complex_sqrt(p * p + bc);
                let away = if (p + root).size() >= (p - root).size() { p + root } else { p - root };
                if away == T::ZERO { d } else { d - bc / away }
            };
            // Without vectors the rest of the triangle is not needed.
            let (top, end) = if z.is_some() { (0, n) } else { (first, last + 1) };
            (first..=last).for_each(|i| h.set(i, i, h.get(i, i) - shift));
            for j in first..end {
                let column = h.column(j, 0, last + 1);
                for (k, &(c, s)) in rotations.iter().enumerate().take(j.min(last)).skip(first) {
                    let (x, y, c) = (column[k], column[k + 1], T::from_real(c));
                    (column[k], column[k + 1]) = (c * x + s * y, c * y - s.conj() * x);
                }
                if j < last {
                    let (f, g) = (column[j], column[j + 1]);
                    let (size, length) = (f.abs(), f.abs().hypot(g.abs()));
                    let phase = if size == T::Real::ZERO { T::ONE } else { f / T::from_real(size) };
                    rotations[j] = match length == T::Real::ZERO {
                        true => (T::Real::ONE, T::ZERO),
                        false => (size / length, phase * g.conj() / T::from_real(length)),
                    };
                    (column[j], column[j + 1]) = (phase * T::from_real(length), T::ZERO);
                }
            }
            let turn = |m: Columns<T>, k: usize, start: usize, end: usize| {
                let (c, s) = rotations[k];
                let c = T::from_real(c);
                let (x, y) = (m.column(k, start, end - start), m.column(k + 1, start, end - start));
                for (x, y) in x.iter_mut().zip(y) {
                    (*x, *y) = (c * *x + s.conj() * *y, c * *y - s * *x);
                }
            };
            for k in first..last {
                turn(h, k, top, (k + 2).min(last + 1));
                if let Some(z) = z {
                    turn(z, k, 0, n);
                }
            }
            (first..=last).for_each(|i| h.set(i, i, h.get(i, i) + shift));
        }
    }
    Ok(())
}

fn complex_sqrt<T: Scalar<Complex = T>>(x: T) -> T {
    let (zero, half) = (T::Real::ZERO, T::Real::from_f64(0.5));
    let size = x.abs();
    if size == zero {
        return T::ZERO;
    }
    // The greater part first, so that nothing is lost in a difference.
    let great = ((size + x.re().abs()) * half).sqrt();
    let small = x.im().abs() * half / great;
    let (re, im) = if x.re() >= zero { (great, small) } else { (small, great) };
    T::from_parts(re, if x.im() < zero { -im } else { im })
}

/// As [`Scalar::schur`], for real numbers: two shifts at a time, after Francis.
///
/// # Safety
/// As there.
pub(super) unsafe fn real_schur<T: Real>(
    op: &'static str,
    h: Columns<T>,
    n: usize,
    z: Option<Columns<T>>,
) -> Result<()> {
    let number = T::from_f64;
    let (mut end, mut steps, mut moved) = (n, 0, T::ZERO);
    // SAFETY: the caller's promise, for elements and columns of the matrices.
    unsafe {
        let norm = norm(h, n);
        while end > 0 {
            let last = end - 1;
            let first = block_start(h, last, norm);
            let (top, wide) = if z.is_some() { (0, n) } else { (first, end) };
            if first == last {
                h.set(last, last, h.get(last, last) + moved);
                (end, steps) = (last, 0);
                continue;
            }
            if first + 1 == last {
                h.set(last, last, h.get(last, last) + moved);
                h.set(first, first, h.get(first, first) + moved);
                split_pair(h, n, first, (top, wide), z);
                (end, steps) = (first, 0);
                continue;
            }
            let (mut x, mut y) = (h.get(last, last), h.get(last - 1, last - 1));
            let mut w = h.get(last, last - 1) * h.get(last - 1, last);
            if steps > 0 && steps % 10 == 0 {
                // An unusual shift, where the usual ones go round in circles.
                moved = moved + x;
                (0..end).for_each(|i| h.set(i, i, h.get(i, i) - x));
                let s = h.get(last, last - 1).abs() + h.get(last - 1, last - 2).abs();
                (x, y, w) = (number(0.75) * s, number(0.75) * s, number(-0.4375) * s * s);
            }
            steps += 1;
            if steps > STEPS {
                return not_converged(op, n);
            }
            // Where two small elements below the diagonal follow each other the step can begin.
            let (mut m, mut column);
            m = last - 2;
            loop {
                let at = h.get(m, m);
                let (r, s) = (x - at, y - at);
                let p = (r * s - w) / h.get(m + 1, m) + h.get(m, m + 1);
                let (q, r) = (h.get(m + 1, m + 1) - at - r - s, h.get(m + 2, m + 1));
                let size = p.abs() + q.abs() + r.abs();
                column = if size == T::ZERO { [p, q, r] } else { [p / size, q / size, r / size] };
                if m == first {
                    break;
                }
                let [p, q, r] = column;
                let around = h.get(m - 1, m - 1).abs() + at.abs() + h.get(m + 1, m + 1).abs();
                if h.get(m, m - 1).abs() * (q.abs() + r.abs()) <= T::EPSILON * p.abs() * around {
                    break;
                }
                m -= 1;
            }
            for i in m + 2..end {
                h.set(i, i - 2, T::ZERO);
                if i > m + 2 {
                    h.set(i, i - 3, T::ZERO);
                }
            }
            for k in m..last {
                let three = k + 1 < last;
                let mut size = T::ONE;
                if k > m {
                    column = [h.get(k, k - 1), h.get(k + 1, k - 1), if three { h.get(k + 2, k - 1) } else { T::ZERO }];
                    size = column[0].abs() + column[1].abs() + column[2].abs();
                    if size == T::ZERO {
                        continue;
                    }
                    column = column.map(|x| x / size);
                }
                let [p, q, r] = column;
                let length = (p * p + q * q + r * r).sqrt();
                let s = if p < T::ZERO { -length } else { length };
                if s == T::ZERO {
                    continue;
                }
                if k > m {
                    h.set(k, k - 1, -s * size);
                } else if first != m {
                    h.set(k, k - 1, -h.get(k, k - 1));
                }
                let p = p + s;
                let (x, y, z3) = (p / s, q / s, r / s);
                let (q, r) = (q / p, r / p);
                for j in k..wide {
                    let column = h.column(j, k, if three { 3 } else { 2 });
                    let mut sum = column[0] + q * column[1];
                    if let Some(third) = column.get_mut(2) {
                        sum = sum + r * *third;
                        *third = *third - sum * z3;
                    }
                    column[0] = column[0] - sum * x;
                    column[1] = column[1] - sum * y;
                }
                let turn = |m: Columns<T>, start: usize, len: usize| {
                    let (a, b) = (m.column(k, start, len), m.column(k + 1, start, len));
                    if three {
                        for ((a, b), c) in a.iter_mut().zip(b).zip(m.column(k + 2, start, len)) {
                            let sum = x * *a + y * *b + z3 * *c;
                            (*a, *b, *c) = (*a - sum, *b - sum * q, *c - sum * r);
                        }
                    } else {
                        for (a, b) in a.iter_mut().zip(b) {
                            let sum = x * *a + y * *b;
                            (*a, *b) = (*a - sum, *b - sum * q);
                        }
                    }
                };
                turn(h, top, (k + 4).min(end) - top);
                if let Some(z) = z {
                    turn(z, 0, n);
                }
            }
        }
    }
    Ok(())
}

/// Makes the block of size 2 that begins at `k` triangular, if its eigenvalues are real.
///
/// # Safety
/// As [`Scalar::schur`].
unsafe fn split_pair<T: Real>(h: Columns<T>, n: usize, k: usize, (top, wide): (usize, usize), z: Option<Columns<T>>) {
    // SAFETY: the caller's promise.
    unsafe {
        let (below, p) = (h.get(k + 1, k), (h.get(k, k) - h.get(k + 1, k + 1)) * T::from_f64(0.5));
        let q = p * p + below * h.get(k, k + 1);
        if q < T::ZERO || below == T::ZERO {
            return;
        }
        // The first column of the rotation is the eigenvector of the eigenvalue that is further from the last element.
        let root = q.sqrt();
        let away = if p >= T::ZERO { p + root } else { p - root };
        let length = away.hypot(below);
        let (c, s) = (away / length, below / length);
        for j in k..wide {
            let column = h.column(j, k, 2);
            (column[0], column[1]) = (c * column[0] + s * column[1], c * column[1] - s * column[0]);
        }
        let turn = |m: Columns<T>, start: usize, len: usize| {
            for (x, y) in m.column(k, start, len).iter_mut().zip(m.column(k + 1, start, len)) {
                (*x, *y) = (c * *x + s * *y, c * *y - s * *x);
            }
        };
        turn(h, top, k + 2 - top);
        if let Some(z) = z {
            turn(z, 0, n);
        }
        h.set(k + 1, k, T::ZERO);
    }
}

/// The eigenvalues of the block of size 2 at `k`, as the real part and the imaginary one of the first.
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

/// The eigenvalues of what [`Scalar::schur`] has made.
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

/// What [`Scalar::schur`] has made as a complex triangle with the eigenvalues on its diagonal, and `z` with it into `wide`.
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
                // Of equal eigenvalues the vectors are told apart as far as rounding can.
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
    // Neither overflows.
    scale(x, T::ONE / largest);
    let length = dot(x, x).re().sqrt();
    scale(x, T::from_real(T::Real::ONE / length));
}

/// Eigenvectors, one after the other, into the columns of a matrix of the kind that they are of.
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
