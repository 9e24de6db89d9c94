//! The QR method: from Hessenberg form to a triangle, which for real matrices has blocks of size 2 on its diagonal.

use super::columns::Columns;
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::error::bail;
use crate::memory::scratch::filled;

/// The most steps of the QR method for one eigenvalue.
const STEPS: usize = 90;

fn not_converged(op: &'static str, n: usize) -> Result<()> {
    bail!(Value, op, "the eigenvalues of a matrix of size {n} did not converge")
}

/// The first row of the block that ends with row `last`. The subdiagonal element before it is negligible, and set to zero.
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
    // The greater part first, to avoid cancellation.
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
                // An exceptional shift, if the usual ones do not converge.
                moved = moved + x;
                (0..end).for_each(|i| h.set(i, i, h.get(i, i) - x));
                let s = h.get(last, last - 1).abs() + h.get(last - 1, last - 2).abs();
                (x, y, w) = (number(0.75) * s, number(0.75) * s, number(-0.4375) * s * s);
            }
            steps += 1;
            if steps > STEPS {
                return not_converged(op, n);
            }
            // The step can begin at two consecutive small subdiagonal elements.
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
