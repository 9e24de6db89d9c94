//! What factorizations are made of: steps on columns, triangular systems, and products of blocks. Matrices lie column by
//! column.

use crate::Result;
use crate::backend::cpu::linalg::gemm::{Matrix, Number, Product, Start, gemm};
use crate::backend::cpu::runtime::scratch::{filled, with_room};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use smallvec::SmallVec;
use std::ops::{Div, Neg, Sub};

/// The largest triangle that is solved without products of blocks.
const SMALL: usize = 32;

/// A type that matrices are factored in.
pub(crate) trait Real:
    Number + Sub<Output = Self> + Div<Output = Self> + Neg<Output = Self> + PartialOrd
{
    const ONE: Self;
    const EPSILON: Self;
    /// Matrices are scaled unless their largest elements lie between this and its inverse.
    const SMALLEST: Self;

    fn from_f64(x: f64) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn hypot(self, other: Self) -> Self;
    fn is_finite(self) -> bool;
    /// `self * b + c`, rounded once if `FMA`.
    fn mul_add<const FMA: bool>(self, b: Self, c: Self) -> Self;
}

macro_rules! reals {
    ($($t:ident $smallest:literal $hypot:expr),+) => {$(
        impl Real for $t {
            const ONE: $t = 1.0;
            const EPSILON: $t = $t::EPSILON;
            const SMALLEST: $t = $smallest;

            fn from_f64(x: f64) -> $t {
                x as $t
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> $t {
                $t::abs(self)
            }
            #[inline(always)]
            fn hypot(self, other: $t) -> $t {
                let hypot: fn($t, $t) -> $t = $hypot;
                hypot(self, other)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn mul_add<const FMA: bool>(self, b: $t, c: $t) -> $t {
                if FMA { $t::mul_add(self, b, c) } else { self * b + c }
            }
        }
    )+};
}
// Squares of f32 neither overflow in f64 nor are they rounded.
reals!(f32 1e-12 |a, b| (f64::from(a) * f64::from(a) + f64::from(b) * f64::from(b)).sqrt() as f32, f64 1e-100 f64::hypot);

/// A matrix in memory: its first element, and the step from one column to the next.
#[derive(Clone, Copy)]
pub(crate) struct Columns<T> {
    pub ptr: *mut T,
    pub ld: usize,
}

impl<T: Real> Columns<T> {
    pub fn at(&self, i: usize, j: usize) -> *mut T {
        self.ptr.wrapping_add(i + j * self.ld)
    }

    /// The part from an element on.
    pub fn from(&self, i: usize, j: usize) -> Columns<T> {
        Columns { ptr: self.at(i, j), ld: self.ld }
    }

    /// `len` elements of column `j` from row `i` on.
    ///
    /// # Safety
    /// They are inside the buffer, and nobody else uses them as long as the slice lives.
    pub unsafe fn column<'a>(&self, j: usize, i: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(i, j), len) }
    }

    /// # Safety
    /// The element is inside the buffer.
    pub unsafe fn get(&self, i: usize, j: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.at(i, j).read() }
    }

    pub fn matrix(&self) -> Matrix<T> {
        Matrix { ptr: self.ptr, row: 1, col: self.ld as isize }
    }
}

struct Axpy<'a, T> {
    a: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Job for Axpy<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = self.a.mul_add::<FMA>(x, *y);
        }
    }
}

/// `y += a · x`.
pub(super) fn axpy<T: Real>(a: T, x: &[T], y: &mut [T]) {
    dispatch(Axpy { a, x, y });
}

struct Axpy2<'a, T> {
    a: T,
    x: &'a [T],
    b: T,
    z: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Job for Axpy2<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((y, &x), &z) in self.y.iter_mut().zip(self.x).zip(self.z) {
            *y = self.a.mul_add::<FMA>(x, self.b.mul_add::<FMA>(z, *y));
        }
    }
}

/// `y += a · x + b · z`.
pub(super) fn axpy2<T: Real>(a: T, x: &[T], b: T, z: &[T], y: &mut [T]) {
    dispatch(Axpy2 { a, x, b, z, y });
}

struct Dot<'a, T> {
    x: &'a [T],
    y: &'a [T],
}

impl<T: Real> Job for Dot<'_, T> {
    type Output = T;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> T {
        const LANES: usize = 32;
        let n = self.x.len().min(self.y.len());
        let (x, y) = (&self.x[..n], &self.y[..n]);
        let mut sums = [T::ZERO; LANES];
        let whole = n - n % LANES;
        for (x, y) in x[..whole].chunks_exact(LANES).zip(y[..whole].chunks_exact(LANES)) {
            for lane in 0..LANES {
                sums[lane] = x[lane].mul_add::<FMA>(y[lane], sums[lane]);
            }
        }
        for lane in 0..n - whole {
            sums[lane] = x[whole + lane].mul_add::<FMA>(y[whole + lane], sums[lane]);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] = sums[lane] + sums[lane + width];
            }
            width /= 2;
        }
        sums[0]
    }
}

/// `Σ x · y`.
pub(super) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    dispatch(Dot { x, y })
}

/// Rows that rotations are applied to at a time: those of all columns stay in the second cache, and those of the columns that
/// a wave of sweeps is at in the first.
const ROTATED_ROWS: usize = 128;

/// Sweeps that follow each other over the columns.
const SWEEPS: usize = 16;

/// A rotation of two columns: `x, y = c · x + s · y, c · y - s · x`.
#[derive(Clone, Copy)]
struct Rotation<T> {
    x: usize,
    y: usize,
    c: T,
    s: T,
}

/// A square matrix, and rotations of its columns that are yet to be applied: many of them, to few rows at a time.
pub(super) struct Rotated<T> {
    /// Strips of [`ROTATED_ROWS`] rows one after the other, each by columns: with whole columns far apart, those of one wave
    /// would compete for the same places in the cache.
    z: Vec<T>,
    n: usize,
    pending: Vec<Rotation<T>>,
}

impl<T: Real> Rotated<T> {
    /// A matrix of size `n` that lies by columns, or nothing at all.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(op: &'static str, n: usize, columns: &[T]) -> Result<Rotated<T>> {
        let mut z = with_room(op, columns.len())?;
        for start in (0..n).step_by(ROTATED_ROWS) {
            let rows = start..n.min(start + ROTATED_ROWS);
            columns.chunks_exact(n).for_each(|column| z.extend_from_slice(&column[rows.clone()]));
        }
        Ok(Rotated { z, n, pending: Vec::new() })
    }

    /// Rotates columns `x` and `y`.
    pub fn rotate(&mut self, x: usize, y: usize, c: T, s: T) {
        if self.z.is_empty() {
            return;
        }
        self.pending.push(Rotation { x, y, c, s });
        if self.pending.len() >= 16 * self.n {
            self.apply();
        }
    }

    fn apply(&mut self) {
        let (n, list) = (self.n, &in_waves(&self.pending)[..]);
        let z = Ptr::new(self.z.as_mut_ptr());
        let grain = (4 * GRAIN / (ROTATED_ROWS * list.len().max(1))).max(1);
        parallel(n.div_ceil(ROTATED_ROWS), grain, |range| {
            for chunk in range {
                let start = chunk * ROTATED_ROWS;
                let rows = ROTATED_ROWS.min(n - start);
                let z = Columns { ptr: z.get().wrapping_add(start * n), ld: rows };
                dispatch(Rotations { list, z, rows });
            }
        });
        self.pending.clear();
    }

    /// The columns, with all rotations applied.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn finish(mut self, op: &'static str) -> Result<Vec<T>> {
        self.apply();
        let (n, mut columns) = (self.n, filled(op, T::ZERO, self.z.len())?);
        for (start, strip) in (0..n).step_by(ROTATED_ROWS).zip(self.z.chunks(ROTATED_ROWS * n.max(1))) {
            let rows = ROTATED_ROWS.min(n - start);
            for (to, from) in columns.chunks_exact_mut(n).zip(strip.chunks_exact(rows)) {
                to[start..start + rows].copy_from_slice(from);
            }
        }
        Ok(columns)
    }
}

/// Rotations in another order with the same result, in which those of the same columns are close together. A method's sweep
/// rotates neighbouring columns, one pair after the other; the next sweep can follow a column behind it.
fn in_waves<T: Real>(list: &[Rotation<T>]) -> Vec<Rotation<T>> {
    // 1 or -1 for neighbours. The place of a rotation in a sweep falls by 1 from one to the next.
    let direction = |r: &Rotation<T>| r.y as isize - r.x as isize;
    let place = |r: &Rotation<T>| -direction(r) * r.x as isize;
    let (mut waves, mut start) = (Vec::with_capacity(list.len()), 0);
    while start < list.len() {
        let along = direction(&list[start]);
        // Where each sweep goes on, and where it ends.
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
        // A rotation has columns in common with those of the sweep before it up to a place below its own: these come first.
        let ahead =
            |(lag, &(next, end)): (usize, &(usize, usize))| (next < end).then(|| place(&list[next]) - lag as isize);
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
            for (x, y) in x.iter_mut().zip(y) {
                (*x, *y) = (c.mul_add::<FMA>(*x, s * *y), c.mul_add::<FMA>(*y, -(s * *x)));
            }
        }
    }
}

/// The product of a symmetric matrix and a vector, from some columns of its lower triangle.
pub(super) struct SymmetricProduct<'a, T> {
    /// The matrix has as many rows as `v` has elements, all of them inside the buffer.
    pub a: Columns<T>,
    pub columns: std::ops::Range<usize>,
    pub v: &'a [T],
    /// What these columns, and the rows that equal them, add to the product.
    pub sums: &'a mut [T],
}

impl<T: Real> Job for SymmetricProduct<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const LANES: usize = 16;
        const TOGETHER: usize = 4;
        let SymmetricProduct { a, columns, v, sums } = self;
        let n = v.len();
        let mut first = columns.start;
        while first < columns.end {
            let count = TOGETHER.min(columns.end - first);
            // The columns' own triangle.
            for j in first..first + count {
                // SAFETY: columns of the matrix, which are only read.
                let column = unsafe { a.column(j, j, first + count - j) };
                sums[j] = column[0].mul_add::<FMA>(v[j], sums[j]);
                for (i, &x) in (j..).zip(&*column).skip(1) {
                    sums[i] = x.mul_add::<FMA>(v[j], sums[i]);
                    sums[j] = x.mul_add::<FMA>(v[i], sums[j]);
                }
            }
            let start = first + count;
            // Columns that are not there are read as others, and count nothing.
            // SAFETY: as above.
            let below: [&[T]; TOGETHER] =
                std::array::from_fn(|c| unsafe { &*a.column(first + c.min(count - 1), start, n - start) });
            let weights: [T; TOGETHER] = std::array::from_fn(|c| if c < count { v[first + c] } else { T::ZERO });
            let mut dots = [[T::ZERO; LANES]; TOGETHER];
            let whole = (n - start) / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                let (x, to) = (&v[start + at..][..LANES], &mut sums[start + at..][..LANES]);
                let parts: [&[T]; TOGETHER] = std::array::from_fn(|c| &below[c][at..][..LANES]);
                let mut sum = [T::ZERO; LANES];
                sum.copy_from_slice(to);
                for lane in 0..LANES {
                    for c in 0..TOGETHER {
                        sum[lane] = parts[c][lane].mul_add::<FMA>(weights[c], sum[lane]);
                        dots[c][lane] = parts[c][lane].mul_add::<FMA>(x[lane], dots[c][lane]);
                    }
                }
                to.copy_from_slice(&sum);
            }
            for at in whole..n - start {
                for c in 0..TOGETHER {
                    let x = below[c][at];
                    sums[start + at] = x.mul_add::<FMA>(weights[c], sums[start + at]);
                    dots[c][at - whole] = x.mul_add::<FMA>(v[start + at], dots[c][at - whole]);
                }
            }
            for (c, dots) in dots[..count].iter().enumerate() {
                sums[first + c] = dots.iter().fold(sums[first + c], |sum, &x| sum + x);
            }
            first += count;
        }
    }
}

pub(super) fn scale<T: Real>(x: &mut [T], by: T) {
    x.iter_mut().for_each(|x| *x = *x * by);
}

/// `out -= a · b`, where `out` (`m` by `n`) lies row by row.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, `out` overlaps neither `a` nor `b`, and nobody else uses it.
pub(super) unsafe fn subtract<T: Real>(
    op: &'static str,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    out: *mut T,
    width: usize,
) -> Result<()> {
    if m == 0 || n == 0 || k == 0 {
        return Ok(());
    }
    // The copy lies as the matrix does, so that both are walked in order.
    let (lines, len, turned) = if a.row == 1 { (k, m, a.t()) } else { (m, k, a) };
    let mut negated = with_room(op, m * k)?;
    for i in 0..lines {
        if turned.col == 1 {
            // SAFETY: the caller's promise, for a line of elements side by side.
            let line = unsafe { std::slice::from_raw_parts(turned.at(i, 0), len) };
            negated.extend(line.iter().map(|&x| -x));
        } else {
            // SAFETY: the caller's promise.
            negated.extend((0..len).map(|j| -unsafe { turned.at(i, j).read() }));
        }
    }
    let copy = Matrix { ptr: negated.as_ptr(), row: len as isize, col: 1 };
    let a = if a.row == 1 { copy.t() } else { copy };
    // SAFETY: the caller's promise; the copy has as many elements.
    unsafe { gemm(op, &Product { m, n, k, a, b, out, width, start: Start::Out }) }
}

/// Columns of right-hand sides that a small triangle is solved for.
struct SmallSolve<'a, T> {
    /// By columns, of `n` elements each; the inverse of the diagonal in `inverses`.
    triangle: &'a [T],
    inverses: &'a [T],
    n: usize,
    upper: bool,
    b: Columns<T>,
    count: usize,
}

impl<T: Real> Job for SmallSolve<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let SmallSolve { triangle, inverses, n, upper, b, count } = self;
        for c in 0..count {
            // SAFETY: the promise of `solve`, which makes this.
            let x = unsafe { b.column(c, 0, n) };
            for step in 0..n {
                let j = if upper { n - 1 - step } else { step };
                let xj = x[j] * inverses[j];
                x[j] = xj;
                let column = &triangle[j * n..(j + 1) * n];
                let rest = if upper { 0..j } else { j + 1..n };
                for (x, &t) in x[rest.clone()].iter_mut().zip(&column[rest]) {
                    *x = (-xj).mul_add::<FMA>(t, *x);
                }
            }
        }
    }
}

/// `b = a⁻¹ · b`, for a triangle `a` of size `n` and `count` columns `b`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// All elements of the matrices are inside their buffers, they do not overlap, and nobody else uses `b`.
pub(super) unsafe fn solve<T: Real>(
    op: &'static str,
    n: usize,
    a: Matrix<T>,
    upper: bool,
    unit: bool,
    b: Columns<T>,
    count: usize,
) -> Result<()> {
    if n == 0 || count == 0 {
        return Ok(());
    }
    if n <= SMALL {
        let (mut triangle, mut inverses) = ([T::ZERO; SMALL * SMALL], [T::ONE; SMALL]);
        for j in 0..n {
            let rows = if upper { 0..j } else { j + 1..n };
            for i in rows {
                // SAFETY: the caller's promise.
                triangle[j * n + i] = unsafe { a.at(i, j).read() };
            }
            if !unit {
                // SAFETY: the caller's promise.
                inverses[j] = T::ONE / unsafe { a.at(j, j).read() };
            }
        }
        let (triangle, inverses) = (&triangle[..n * n], &inverses[..n]);
        dispatch(SmallSolve { triangle, inverses, n, upper, b, count });
        return Ok(());
    }
    let half = (n / 2).next_multiple_of(SMALL);
    let (first, second) = (b, b.from(half, 0));
    // The transposes of `b`'s parts lie row by row.
    let across = |b: Columns<T>| Matrix { ptr: b.ptr, row: b.ld as isize, col: 1 };
    // SAFETY: the caller's promise, for parts of the matrices.
    unsafe {
        if upper {
            solve(op, n - half, a.from(half, half), true, unit, second, count)?;
            subtract(op, [count, half, n - half], across(second), a.from(0, half).t(), first.ptr, b.ld)?;
            solve(op, half, a, true, unit, first, count)
        } else {
            solve(op, half, a, false, unit, first, count)?;
            subtract(op, [count, n - half, half], across(first), a.from(half, 0).t(), second.ptr, b.ld)?;
            solve(op, n - half, a.from(half, half), false, unit, second, count)
        }
    }
}

/// `b = b · l⁻ᵀ`, for a lower triangle `l` of size `n` and `b` of `m` by `n`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// As [`solve`].
pub(super) unsafe fn solve_right<T: Real>(
    op: &'static str,
    m: usize,
    n: usize,
    l: Columns<T>,
    b: Columns<T>,
) -> Result<()> {
    if m == 0 || n == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise, for columns and parts of the matrices.
    unsafe {
        if n <= SMALL {
            for j in 0..n {
                let column = b.column(j, 0, m);
                for k in 0..j {
                    axpy(-l.get(j, k), b.column(k, 0, m), column);
                }
                scale(column, T::ONE / l.get(j, j));
            }
            return Ok(());
        }
        let half = (n / 2).next_multiple_of(SMALL);
        solve_right(op, m, half, l, b)?;
        let (rest, known) = (b.from(0, half), Matrix { ptr: b.ptr.cast_const(), row: b.ld as isize, col: 1 });
        subtract(op, [n - half, m, half], l.from(half, 0).matrix(), known, rest.ptr, b.ld)?;
        solve_right(op, m, n - half, l.from(half, half), rest)
    }
}

#[cfg(test)]
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

    #[test]
    fn a_symmetric_product_reads_the_lower_triangle() {
        for n in [1, 3, 4, 7, 16, 21, 50] {
            let a: Vec<f64> = (0..n * n).map(|at| if at % n >= at / n { (at % 17) as f64 } else { f64::NAN }).collect();
            let v: Vec<f64> = (0..n).map(|i| i as f64 - 3.0).collect();
            let lower = |i: usize, j: usize| a[i.min(j) * n + i.max(j)];
            let want: Vec<f64> = (0..n).map(|i| (0..n).map(|j| lower(i, j) * v[j]).sum()).collect();
            let mut sums = vec![0.0; n];
            for columns in [0..n / 3, n / 3..n] {
                let a = Columns { ptr: a.as_ptr().cast_mut(), ld: n };
                SymmetricProduct { a, columns, v: &v, sums: &mut sums }.run::<false>();
            }
            assert_eq!(sums, want, "{n}");
        }
    }
}
