//! Rotations of pairs of columns, many at a time.

use super::columns::Columns;
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::memory::scratch::with_room;
use crate::zip::zip;
use smallvec::SmallVec;

/// The number of rows that rotations are applied to at a time: those of all columns stay in the L2 cache, and those of the columns
/// of a wave of sweeps in the L1 cache.
const ROTATED_ROWS: usize = 128;

/// The number of sweeps that follow each other over the columns.
const SWEEPS: usize = 16;

/// A rotation of two columns: `x, y = c · x + s · y, c · y - s · x`.
#[derive(Clone, Copy)]
struct Rotation<T> {
    x: usize,
    y: usize,
    c: T,
    s: T,
}

/// A matrix, and pending rotations of its columns, which are applied many at a time to few rows.
pub(super) struct Rotated<T> {
    /// Contiguous strips of [`ROTATED_ROWS`] rows, each column-major: with a large stride, the columns of one wave would compete
    /// for the same cache sets.
    z: Vec<T>,
    rows: usize,
    columns: usize,
    pending: Vec<Rotation<T>>,
}

impl<T: Real> Rotated<T> {
    /// The parts of `columns` contiguous columns, or an empty matrix.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new<S: Scalar<Real = T>>(op: &'static str, columns: usize, from: &mut [S]) -> Result<Rotated<T>> {
        let from = parts(from);
        let (mut z, rows) = (with_room(op, from.len())?, from.len() / columns.max(1));
        for start in (0..rows).step_by(ROTATED_ROWS) {
            let strip = start..rows.min(start + ROTATED_ROWS);
            from.chunks_exact(rows).for_each(|column| z.extend_from_slice(&column[strip.clone()]));
        }
        Ok(Rotated { z, rows, columns, pending: Vec::new() })
    }

    /// Rotates columns `x` and `y`.
    pub fn rotate(&mut self, x: usize, y: usize, c: T, s: T) {
        if self.z.is_empty() {
            return;
        }
        self.pending.push(Rotation { x, y, c, s });
        if self.pending.len() >= 16 * self.columns {
            self.apply();
        }
    }

    fn apply(&mut self) {
        let (rows, columns, list) = (self.rows, self.columns, &in_waves(&self.pending)[..]);
        let z = Ptr::new(self.z.as_mut_ptr());
        let grain = (4 * GRAIN / (ROTATED_ROWS * list.len().max(1))).max(1);
        parallel(rows.div_ceil(ROTATED_ROWS), grain, |range| {
            for chunk in range {
                let start = chunk * ROTATED_ROWS;
                let rows = ROTATED_ROWS.min(rows - start);
                let z = Columns { ptr: z.get().wrapping_add(start * columns), ld: rows };
                dispatch(Rotations { list, z, rows });
            }
        });
        self.pending.clear();
    }

    /// Applies all rotations, and writes the columns back.
    pub fn finish<S: Scalar<Real = T>>(mut self, to: &mut [S]) {
        self.apply();
        let (rows, to) = (self.rows, parts(to));
        if self.z.is_empty() {
            return;
        }
        for (start, strip) in (0..rows).step_by(ROTATED_ROWS).zip(self.z.chunks(ROTATED_ROWS * self.columns)) {
            let len = ROTATED_ROWS.min(rows - start);
            for (to, from) in to.chunks_exact_mut(rows).zip(strip.chunks_exact(len)) {
                to[start..start + len].copy_from_slice(from);
            }
        }
    }
}

/// The numbers themselves, or the real and imaginary parts of complex numbers.
fn parts<T: Scalar>(x: &mut [T]) -> &mut [T::Real] {
    let len = size_of_val(x) / size_of::<T::Real>();
    // SAFETY: a scalar is one real number, or two side by side.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), len) }
}

/// Reorders rotations, with the same result, so that those of the same columns are close together. A sweep rotates pairs of
/// neighbouring columns in sequence; the next sweep can follow one column behind it.
fn in_waves<T: Real>(list: &[Rotation<T>]) -> Vec<Rotation<T>> {
    // 1 or -1 for neighbours. The position of a rotation in a sweep decreases by 1 from one to the next.
    let direction = |r: &Rotation<T>| r.y as isize - r.x as isize;
    let position = |r: &Rotation<T>| -direction(r) * r.x as isize;
    let (mut waves, mut start) = (Vec::with_capacity(list.len()), 0);
    while start < list.len() {
        let along = direction(&list[start]);
        // The next rotation of each sweep, and its end.
        let mut sweeps: SmallVec<[(usize, usize); SWEEPS]> = SmallVec::new();
        while sweeps.len() < SWEEPS && start < list.len() && direction(&list[start]) == along {
            let follows = |pair: &[Rotation<T>]| direction(&pair[1]) == along && pair[1].x == pair[0].y;
            let len = 1 + list[start..].windows(2).take_while(|pair| along.abs() == 1 && follows(pair)).count();
            sweeps.push((start, start + len));
            start += len;
            if along.abs() != 1 {
                break;
            }
        }
        // A rotation shares columns with those of the previous sweep up to a position below its own: these come first.
        let ahead =
            |(lag, &(next, end)): (usize, &(usize, usize))| (next < end).then(|| position(&list[next]) - lag as isize);
        while let Some(first) = sweeps.iter().enumerate().filter_map(ahead).max() {
            for (lag, sweep) in sweeps.iter_mut().enumerate() {
                if ahead((lag, sweep)) == Some(first) {
                    waves.push(list[sweep.0]);
                    sweep.0 += 1;
                }
            }
        }
    }
    waves
}

struct Rotations<'a, T> {
    list: &'a [Rotation<T>],
    z: Columns<T>,
    rows: usize,
}

impl<T: Real> Job for Rotations<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for &Rotation { x, y, c, s } in self.list {
            // SAFETY: two columns of a strip that `Rotated` has, which is this thread's.
            let (x, y) = unsafe { (self.z.column(x, 0, self.rows), self.z.column(y, 0, self.rows)) };
            for (x, y) in zip(&mut x[..], y) {
                (*x, *y) = (c.mul_add::<FMA>(*x, s * *y), c.mul_add::<FMA>(*y, -(s * *x)));
            }
        }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn rotations_in_waves_give_the_same_bits() {
        let n = 40;
        let mut list = Vec::new();
        let mut number = 0.3_f64;
        let mut rotation = |x, y| {
            number = (number * 997.0 + 0.123).fract();
            Rotation { x, y, c: number.cos(), s: number.sin() }
        };
        // Sweeps down and up, over all columns and parts of them, and single rotations of columns far apart.
        for round in 0..60 {
            let (low, high) = (round % 7, n - 1 - round % 11);
            match round / 20 {
                0 => list.extend((low..high).rev().map(|i| rotation(i + 1, i))),
                1 => list.extend((low..high).map(|i| rotation(i, i + 1))),
                _ if round % 3 == 0 => list.push(rotation(low, high)),
                _ if round % 2 == 0 => list.extend((low..high).map(|i| rotation(i, i + 1))),
                _ => list.extend((low..high).rev().map(|i| rotation(i + 1, i))),
            }
        }
        let apply = |list: &[Rotation<f64>]| {
            let mut z: Vec<f64> = (0..n * n).map(|i| i as f64).collect();
            Rotations { list, z: Columns { ptr: z.as_mut_ptr(), ld: n }, rows: n }.run::<false>();
            z
        };
        let waves = in_waves(&list);
        assert_eq!(waves.len(), list.len());
        assert!(waves.iter().zip(&list).any(|(a, b)| (a.x, a.y) != (b.x, b.y)));
        assert_eq!(apply(&waves), apply(&list));
    }
}
