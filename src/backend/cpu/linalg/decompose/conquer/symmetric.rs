//! Eigenvectors of tridiagonal matrices (Cuppen's method).

use super::secular::Secular;
use super::{Columnwise, Kind, Part, ascending, conquer, largest, rotate};
use crate::Result;
use crate::backend::cpu::linalg::decompose::columns::{Columns, dot};
use crate::backend::cpu::linalg::decompose::eigen::diagonalize;
use crate::backend::cpu::linalg::decompose::rotations::Rotated;
use crate::backend::cpu::linalg::decompose::scalar::Real;
use crate::backend::cpu::runtime::threads::Ptr;
use crate::memory::scratch::filled;
use crate::zip::zip;

/// The eigenvalues of a tridiagonal matrix, in any order, in place of its diagonal, and the eigenvectors, by columns.
///
/// # Errors
/// If memory runs out, or the rotations do not converge.
pub(in super::super) fn tridiagonal<T: Real>(op: &'static str, diagonal: &mut [T], off: &[T]) -> Result<Vec<T>> {
    let n = diagonal.len();
    let unit = largest(diagonal.iter().chain(&off[..n - 1]).map(|x| x.to_f64()));
    let unit = if unit > 0.0 { unit } else { 1.0 };
    let (mut d, mut e) = (filled(op, 0.0, n)?, filled(op, 0.0, n)?);
    zip(&mut d[..], &*diagonal).for_each(|(d, x)| *d = x.to_f64() / unit);
    zip(&mut e[..], &off[..n - 1]).for_each(|(e, x)| *e = x.to_f64() / unit);
    let mut q = filled(op, T::ZERO, n * n)?;
    let (q_ptr, d_ptr, e) = (Ptr::new(q.as_mut_ptr()), Ptr::new(d.as_mut_ptr()), &e);
    // SAFETY: parts are disjoint, and each is one thread's.
    let values = |part: Part| unsafe { std::slice::from_raw_parts_mut(d_ptr.get().add(part.start), part.len) };
    let vectors = |part: Part| Columns { ptr: q_ptr.get(), ld: n }.from(part.start, part.start);
    let leaf = |part: Part| {
        let (d, end) = (values(part), part.start + part.len);
        // The rank-1 terms of the joints with the neighbours are subtracted.
        d[0] -= if part.start > 0 { e[part.start - 1].abs() } else { 0.0 };
        d[part.len - 1] -= e[end - 1].abs();
        // SAFETY: the columns of a part are one thread's.
        unsafe { by_rotations(op, d, &e[part.start..end], vectors(part)) }
    };
    conquer(n, 0, leaf, |part, [first, second]| {
        // SAFETY: as above.
        unsafe { join(op, values(part), e[second.start - 1], first.len, vectors(part)) }
    })?;
    zip(&mut diagonal[..], &d).for_each(|(to, d)| *to = T::from_f64(d * unit));
    Ok(q)
}

/// Solves a small problem.
///
/// # Safety
/// The matrix has as many rows and columns as there are values, and nothing else uses it.
unsafe fn by_rotations<T: Real>(op: &'static str, d: &mut [f64], e: &[f64], q: Columns<T>) -> Result<()> {
    let n = d.len();
    let (mut off, mut vectors) = (e.to_vec(), filled(op, 0.0, n * n)?);
    (0..n).for_each(|i| vectors[i * n + i] = 1.0);
    let mut rotated = Rotated::new(op, n, &mut vectors)?;
    diagonalize(op, d, &mut off, &mut rotated)?;
    rotated.finish(&mut vectors);
    for (j, from) in vectors.chunks_exact(n).enumerate() {
        // SAFETY: the caller's promise.
        let to = unsafe { q.column(j, 0, n) };
        zip(&mut to[..], from).for_each(|(to, &x)| *to = T::from_f64(x));
    }
    Ok(())
}

/// Joins two problems, the first of which has `half` rows, with the off-diagonal element `off` between them.
///
/// # Safety
/// As [`by_rotations`].
unsafe fn join<T: Real>(op: &'static str, d: &mut [f64], off: f64, half: usize, q: Columns<T>) -> Result<()> {
    let n = d.len();
    // In the basis of the vectors, `rho · z · zᵀ` is added to the two problems, with `z` of length 1.
    let (rho, sign) = (2.0 * off.abs(), if off < 0.0 { -1.0 } else { 1.0 });
    if rho == 0.0 {
        return Ok(());
    }
    let mut z = filled(op, 0.0, n)?;
    for (j, z) in z.iter_mut().enumerate() {
        // SAFETY: the caller's promise; so below.
        let x = unsafe { q.get(if j < half { half - 1 } else { half }, j) }.to_f64();
        *z = if j < half { x } else { sign * x } * std::f64::consts::FRAC_1_SQRT_2;
    }
    let mut kinds: Vec<Kind> = (0..n).map(|j| if j < half { Kind::First } else { Kind::Second }).collect();
    let negligible = 4.0 * T::EPSILON.to_f64() * largest(d.iter().copied()).max(rho);
    let (mut changed, mut kept) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let mut previous: Option<usize> = None;
    for at in ascending(&d[..n]) {
        if rho * z[at].abs() <= negligible {
            kept.push(at);
            continue;
        }
        if let Some(before) = previous {
            let length = z[before].hypot(z[at]);
            let (c, s) = (z[at] / length, -z[before] / length);
            if ((d[at] - d[before]) * c * s).abs() > negligible {
                changed.push(before);
            } else {
                // Two nearly equal eigenvalues: a rotation makes one of the vectors one that is kept.
                // SAFETY: two columns.
                rotate(unsafe { q.column(before, 0, n) }, unsafe { q.column(at, 0, n) }, c, s);
                (z[before], z[at]) = (0.0, length);
                (d[before], d[at]) = (d[before] * c * c + d[at] * s * s, d[before] * s * s + d[at] * c * c);
                if kinds[before] != kinds[at] {
                    kinds[at] = Kind::Both;
                }
                kept.push(before);
            }
        }
        previous = Some(at);
    }
    changed.extend(previous);
    let count = changed.len();
    if count == 0 {
        return Ok(());
    }
    let take = |from: &[f64]| changed.iter().map(|&at| from[at]).collect();
    let solved = Secular { d: take(d), z: take(&z), rho, squared: false }.solve(op)?;
    let columns = Columnwise::new(&changed, &kinds, kept);
    let mut weights = filled(op, T::ZERO, count * count)?;
    let first = Ptr::new(weights.as_mut_ptr());
    let mut number = filled(op, 0, n)?;
    changed.iter().enumerate().for_each(|(number_of, &column)| number[column] = number_of);
    let positions: Vec<usize> = columns.multiplied.iter().map(|&column| number[column]).collect();
    solved.vectors(op, &positions, |j, _, vector| {
        let scale = 1.0 / dot(vector, vector).sqrt();
        // SAFETY: there are `count` columns of as many elements, and each is one thread's.
        let to = unsafe { std::slice::from_raw_parts_mut(first.get().add(j * count), count) };
        zip(&mut to[..], vector).for_each(|(to, x)| *to = T::from_f64(x * scale));
    })?;
    // SAFETY: the caller's promise.
    unsafe { columns.multiply(op, q, n, &[0..half, half..n], (&weights, count))? };
    let kept: Vec<f64> = columns.kept.iter().map(|&at| d[at]).collect();
    d.iter_mut().zip(solved.roots().chain(kept)).for_each(|(d, value)| *d = value);
    Ok(())
}
