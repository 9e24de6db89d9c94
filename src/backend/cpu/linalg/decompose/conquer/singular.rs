//! Singular vectors of bidiagonal matrices (the method of Gu and Eisenstat).

use super::secular::Secular;
use super::{Columnwise, Kind, Part, ascending, conquer, largest, rotate};
use crate::Result;
use crate::backend::cpu::linalg::decompose::columns::{Columns, dot};
use crate::backend::cpu::linalg::decompose::rotations::Rotated;
use crate::backend::cpu::linalg::decompose::scalar::Real;
use crate::backend::cpu::linalg::decompose::singular::diagonalize;
use crate::backend::cpu::runtime::threads::Ptr;
use crate::memory::scratch::filled;
use crate::zip::zip;

/// The singular values of a square bidiagonal matrix, in any order, in place of its diagonal, and the left and right vectors, by
/// columns; `off` is the superdiagonal.
///
/// # Errors
/// If memory runs out, or the rotations do not converge.
pub(in super::super) fn bidiagonal<T: Real>(
    op: &'static str,
    diagonal: &mut [T],
    off: &[T],
) -> Result<(Vec<T>, Vec<T>)> {
    let n = diagonal.len();
    let unit = largest(diagonal.iter().chain(&off[..n - 1]).map(|x| x.to_f64()));
    let unit = if unit > 0.0 { unit } else { 1.0 };
    // The diagonal is read where the values are written.
    let (mut d, mut e) = (filled(op, 0.0, n)?, filled(op, 0.0, n)?);
    zip(&mut d[..], &*diagonal).for_each(|(d, x)| *d = x.to_f64() / unit);
    zip(&mut e[..], &off[..n - 1]).for_each(|(e, x)| *e = x.to_f64() / unit);
    let (mut u, mut v) = (filled(op, T::ZERO, n * n)?, filled(op, T::ZERO, n * n)?);
    let (u_ptr, v_ptr, d_ptr) = (Ptr::new(u.as_mut_ptr()), Ptr::new(v.as_mut_ptr()), Ptr::new(d.as_mut_ptr()));
    let e = &e;
    // SAFETY: parts are disjoint, and each is one thread's.
    let values = |part: Part| unsafe { std::slice::from_raw_parts_mut(d_ptr.get().add(part.start), part.len) };
    let vectors =
        |part: Part| [&u_ptr, &v_ptr].map(|ptr| Columns { ptr: ptr.get(), ld: n }.from(part.start, part.start));
    let leaf = |part: Part| {
        let above = &e[part.start..part.start + part.len];
        // SAFETY: the columns of a part are one thread's. An open part has a column after it.
        unsafe { by_rotations(op, values(part), above, part.open, vectors(part)) }
    };
    conquer(n, 1, leaf, |part, [first, _]| {
        let row = part.start + first.len;
        let (values, joint) = (values(part), e[row]);
        let joint = [values[first.len], joint];
        // SAFETY: as above.
        unsafe { join(op, values, joint, first.len, part.open, vectors(part)) }
    })?;
    zip(&mut diagonal[..], &d).for_each(|(to, d)| *to = T::from_f64(d * unit));
    Ok((u, v))
}

/// Solves a small problem. With one more column than rows, the last of the right vectors spans the null space.
///
/// # Safety
/// The matrices have as many rows and columns as there are values, the second one more if it is `open`, and nothing else uses
/// them.
unsafe fn by_rotations<T: Real>(
    op: &'static str,
    d: &mut [f64],
    e: &[f64],
    open: bool,
    vectors: [Columns<T>; 2],
) -> Result<()> {
    // A row of zeros makes the matrix square. Its left vector is the unit vector of that row.
    let (len, n) = (d.len(), d.len() + usize::from(open));
    let mut values: Vec<f64> = d.iter().copied().chain(open.then_some(0.0)).collect();
    let mut off: Vec<f64> = e.iter().copied().chain([0.0]).take(n).collect();
    off[n - 1] = 0.0;
    let mut identity = filled(op, 0.0, n * n)?;
    (0..n).for_each(|i| identity[i * n + i] = 1.0);
    let (mut u, mut v) = (identity.clone(), identity);
    let (mut u_rotated, mut v_rotated) = (Rotated::new(op, n, &mut u)?, Rotated::new(op, n, &mut v)?);
    diagonalize(op, &mut values, &mut off, &mut u_rotated, &mut v_rotated)?;
    u_rotated.finish(&mut u);
    v_rotated.finish(&mut v);
    for (j, from) in u.chunks_exact(n).take(len).enumerate() {
        // SAFETY: the caller's promise; so below.
        let to = unsafe { vectors[0].column(j, 0, len) };
        zip(&mut to[..], from).for_each(|(to, &x)| *to = T::from_f64(x));
    }
    for (j, from) in v.chunks_exact(n).enumerate() {
        // No singular value is negative.
        let sign = if values[j] < 0.0 { -1.0 } else { 1.0 };
        // SAFETY: as above.
        let to = unsafe { vectors[1].column(j, 0, n) };
        zip(&mut to[..], from).for_each(|(to, &x)| *to = T::from_f64(sign * x));
    }
    d.iter_mut().zip(values).for_each(|(d, value)| *d = value.abs());
    Ok(())
}

/// Joins two problems and the row between them, which follows the first `half` rows and has the two elements `joint`.
///
/// In the basis of the vectors, the matrix has the row `z`, and otherwise the singular values on its diagonal. The value of the
/// row itself is zero, and its right vector is the null vector of the first problem.
///
/// # Safety
/// As [`by_rotations`].
unsafe fn join<T: Real>(
    op: &'static str,
    d: &mut [f64],
    [left, right]: [f64; 2],
    half: usize,
    open: bool,
    [u, v]: [Columns<T>; 2],
) -> Result<()> {
    let n = d.len();
    let columns = n + usize::from(open);
    d[half] = 0.0;
    let most = largest(d.iter().copied().chain([left, right]));
    if most == 0.0 {
        // SAFETY: the caller's promise; so below.
        unsafe { u.set(half, half, T::ONE) };
        return Ok(());
    }
    let negligible = 4.0 * T::EPSILON.to_f64() * most;
    let mut z = filled(op, 0.0, columns)?;
    for (j, z) in z.iter_mut().enumerate() {
        let (row, by) = if j <= half { (half, left) } else { (half + 1, right) };
        // SAFETY: as above.
        *z = by * unsafe { v.get(row, j) }.to_f64();
    }
    if open {
        // The two null vectors are rotated so that one of them has no part in the row: it is the null vector of both problems.
        let length = z[half].hypot(z[n]);
        if length > negligible {
            let (c, s) = (z[half] / length, z[n] / length);
            // SAFETY: as above.
            rotate(unsafe { v.column(half, 0, columns) }, unsafe { v.column(n, 0, columns) }, c, s);
            z[half] = length;
        }
    }
    if z[half].abs() <= negligible {
        z[half] = negligible;
    }
    let of = |j: usize| if j < half { Kind::First } else { Kind::Second };
    let mut kinds: Vec<Kind> = (0..n).map(of).collect();
    let (mut changed, mut kept) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let mut previous: Option<usize> = None;
    for at in ascending(&d[..n]).into_iter().filter(|&j| j != half) {
        if z[at].abs() <= negligible {
            kept.push(at);
            continue;
        }
        if let Some(before) = previous {
            if d[at] - d[before] > negligible {
                changed.push(before);
            } else {
                let length = z[before].hypot(z[at]);
                let (c, s) = (z[at] / length, -z[before] / length);
                // SAFETY: as above, two columns of each.
                unsafe {
                    rotate(u.column(before, 0, n), u.column(at, 0, n), c, s);
                    rotate(v.column(before, 0, columns), v.column(at, 0, columns), c, s);
                }
                (z[before], z[at]) = (0.0, length);
                if kinds[before] != kinds[at] {
                    kinds[at] = Kind::Both;
                }
                kept.push(before);
            }
        }
        previous = Some(at);
    }
    changed.extend(previous);
    let of_left = Columnwise::new(&changed, &kinds, kept.clone());
    changed.insert(0, half);
    kinds[half] = if open { Kind::Both } else { Kind::First };
    kept.extend(open.then_some(n));
    let of_right = Columnwise::new(&changed, &kinds, kept);
    let count = changed.len();
    let mut poles: Vec<f64> = changed.iter().map(|&at| d[at]).collect();
    if let Some(second) = poles.get_mut(1) {
        // The first is zero.
        *second = second.max(0.5 * negligible);
    }
    let solved =
        Secular { d: poles, z: changed.iter().map(|&at| z[at]).collect(), rho: 1.0, squared: true }.solve(op)?;
    let mut number = filled(op, 0, n)?;
    changed.iter().enumerate().for_each(|(number_of, &column)| number[column] = number_of);
    let positions: Vec<usize> = of_right.multiplied.iter().map(|&column| number[column]).collect();
    // The position of the row itself.
    let own = positions.iter().position(|&position| position == 0).unwrap_or(0);
    let (mut left, mut right) = (filled(op, T::ZERO, count * count)?, filled(op, T::ZERO, count * count)?);
    let (first_left, first_right) = (Ptr::new(left.as_mut_ptr()), Ptr::new(right.as_mut_ptr()));
    solved.vectors(op, &positions, |j, poles, vector| {
        let column = |first: &Ptr<T>| {
            // SAFETY: there are `count` columns of as many elements, and each is one thread's.
            unsafe { std::slice::from_raw_parts_mut(first.get().add(j * count), count) }
        };
        let (left, right) = (column(&first_left), column(&first_right));
        let scale = 1.0 / dot(vector, vector).sqrt();
        zip(&mut right[..], vector).for_each(|(to, x)| *to = T::from_f64(x * scale));
        // The left vector is the right one times the values, and -1 for the row itself, which comes last.
        let products = || zip(vector, poles).map(|(x, d)| x * d);
        let scale = 1.0 / (1.0 + products().map(|x| x * x).sum::<f64>()).sqrt();
        let (before, after) = left.split_at_mut(own);
        before.iter_mut().zip(products()).for_each(|(to, x)| *to = T::from_f64(x * scale));
        after.iter_mut().zip(products().skip(own + 1)).for_each(|(to, x)| *to = T::from_f64(x * scale));
        left[count - 1] = T::from_f64(-scale);
    })?;
    // SAFETY: as above.
    unsafe {
        of_left.multiply(op, u, n, &[0..half, half + 1..n], (&left, count))?;
        (0..count).for_each(|j| u.set(half, j, left[j * count + count - 1]));
        of_right.multiply(op, v, columns, &[0..half + 1, half + 1..columns], (&right, count))?;
    }
    let kept: Vec<f64> = of_left.kept.iter().map(|&at| d[at]).collect();
    d.iter_mut().zip(solved.roots().chain(kept)).for_each(|(d, value)| *d = value);
    Ok(())
}
