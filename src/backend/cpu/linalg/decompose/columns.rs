//! Column-major matrices, and operations on their columns.

use super::scalar::Scalar;
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::memory::scratch::with_room;
use crate::zip::zip;

/// The number of elements that loops over padded vectors process at a time.
pub(super) const TILE: usize = 16;

/// A column-major matrix: its first element and the stride of columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns<T> {
    pub ptr: *mut T,
    pub ld: usize,
}

// SAFETY: a pointer is only a number; the code that reads or writes through it separates the elements of threads.
unsafe impl<T> Sync for Columns<T> {}

impl<T: Scalar> Columns<T> {
    pub fn at(&self, i: usize, j: usize) -> *mut T {
        self.ptr.wrapping_add(i + j * self.ld)
    }

    /// The submatrix from an element on.
    pub fn from(&self, i: usize, j: usize) -> Columns<T> {
        Columns { ptr: self.at(i, j), ld: self.ld }
    }

    /// `len` elements of column `j` from row `i` on.
    ///
    /// # Safety
    /// They are inside the buffer, and nothing else uses them as long as the slice lives.
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

    /// # Safety
    /// The element is inside the buffer, and nothing else uses it.
    pub unsafe fn set(&self, i: usize, j: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.at(i, j).write(value) };
    }

    pub fn matrix(&self) -> Matrix<T> {
        Matrix { ptr: self.ptr, row: 1, col: self.ld as isize }
    }
}

/// Converts real numbers to scalars of another type.
///
/// # Errors
/// If memory runs out.
pub(super) fn scalars<T: Scalar>(op: &'static str, from: Vec<T::Real>) -> Result<Vec<T>> {
    let mut to = with_room(op, from.len())?;
    to.extend(from.into_iter().map(T::from_real));
    Ok(to)
}

/// The last elements, fewer than `LANES`, padded with `other`. Vectors of sums are never indexed by a variable, as the compiler
/// would then keep them in memory.
#[inline(always)]
pub(super) fn padded<T: Scalar, const LANES: usize>(last: &[T], other: T) -> [T; LANES] {
    let mut lanes = [other; LANES];
    lanes[..last.len()].copy_from_slice(last);
    lanes
}

/// The sum of all lanes, whose number is a power of two.
#[inline(always)]
pub(super) fn total<T: Scalar, const LANES: usize>(mut sums: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] = sums[lane] + sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

struct Axpy<'a, T> {
    a: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Scalar> Job for Axpy<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in zip(&mut self.y[..], self.x) {
            *y = self.a.mul_add::<FMA>(x, *y);
        }
    }
}

/// `y += a · x`.
pub(super) fn axpy<T: Scalar>(a: T, x: &[T], y: &mut [T]) {
    dispatch(Axpy { a, x, y });
}

struct Axpy2<'a, T> {
    a: T,
    x: &'a [T],
    b: T,
    z: &'a [T],
    y: &'a mut [T],
}

impl<T: Scalar> Job for Axpy2<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((y, &x), &z) in zip(zip(&mut self.y[..], self.x), self.z) {
            *y = self.a.mul_add::<FMA>(x, self.b.mul_add::<FMA>(z, *y));
        }
    }
}

/// `y += a · x + b · z`.
pub(super) fn axpy2<T: Scalar>(a: T, x: &[T], b: T, z: &[T], y: &mut [T]) {
    dispatch(Axpy2 { a, x, b, z, y });
}

struct Dot<'a, T> {
    x: &'a [T],
    y: &'a [T],
}

impl<T: Scalar> Dot<'_, T> {
    #[inline(always)]
    fn add<const FMA: bool, const LANES: usize>(self) -> T {
        let n = self.x.len().min(self.y.len());
        let (x, last_x) = self.x[..n].as_chunks::<LANES>();
        let (y, last_y) = self.y[..n].as_chunks::<LANES>();
        let mut sums = [T::ZERO; LANES];
        for (x, y) in zip(x, y) {
            for lane in 0..LANES {
                sums[lane] = x[lane].conj().mul_add::<FMA>(y[lane], sums[lane]);
            }
        }
        let (x, y) = (padded::<T, LANES>(last_x, T::ZERO), padded::<T, LANES>(last_y, T::ZERO));
        for lane in 0..LANES {
            sums[lane] = x[lane].conj().mul_add::<FMA>(y[lane], sums[lane]);
        }
        total(sums)
    }
}

impl<T: Scalar> Job for Dot<'_, T> {
    type Output = T;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> T {
        // Complex numbers need more registers.
        if size_of::<T>() == size_of::<T::Real>() { self.add::<FMA, 32>() } else { self.add::<FMA, 8>() }
    }
}

/// `Σ conj(x) · y`.
pub(super) fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    dispatch(Dot { x, y })
}

/// Contiguous vectors of `size` elements, each from element `from` on.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub rows: &'a [T],
    pub size: usize,
    pub from: usize,
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    pub fn row(&self, at: usize) -> &'a [T] {
        &self.rows[at * self.size + self.from..(at + 1) * self.size]
    }
}

struct Combine<'a, T> {
    weights: &'a [T],
    rows: Rows<'a, T>,
    y: &'a mut [T],
}

impl<T: Scalar> Combine<'_, T> {
    #[inline(always)]
    fn lanes<const FMA: bool, const LANES: usize>(&mut self, at: usize) {
        let mut sums = [T::ZERO; LANES];
        let y = &mut self.y[at..at + LANES];
        sums.copy_from_slice(y);
        for (t, &weight) in self.weights.iter().enumerate() {
            let x = &self.rows.row(t)[at..at + LANES];
            for lane in 0..LANES {
                sums[lane] = weight.mul_add::<FMA>(x[lane], sums[lane]);
            }
        }
        y.copy_from_slice(&sums);
    }
}

impl<T: Scalar> Job for Combine<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        const WIDE: usize = 64;
        let (n, mut at) = (self.y.len(), 0);
        while at + WIDE <= n {
            self.lanes::<FMA, WIDE>(at);
            at += WIDE;
        }
        while at + TILE <= n {
            self.lanes::<FMA, TILE>(at);
            at += TILE;
        }
    }
}

/// `y += Σ weight · row`, for a number of elements that is a multiple of [`TILE`].
pub(super) fn combine<T: Scalar>(weights: &[T], rows: Rows<'_, T>, y: &mut [T]) {
    dispatch(Combine { weights, rows, y });
}

struct Dots<'a, T> {
    rows: Rows<'a, T>,
    y: &'a [T],
    to: &'a mut [T],
}

impl<T: Scalar> Job for Dots<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        const TOGETHER: usize = 4;
        let (y, _) = self.y.as_chunks::<TILE>();
        for (first, to) in (0..).step_by(TOGETHER).zip(self.to.chunks_mut(TOGETHER)) {
            let rows: [&[[T; TILE]]; TOGETHER] =
                each(|r| &self.rows.row(first + r.min(to.len() - 1)).as_chunks::<TILE>().0[..y.len()]);
            let mut sums = [[T::ZERO; TILE]; TOGETHER];
            for (at, y) in y.iter().enumerate() {
                for r in 0..TOGETHER {
                    let x = &rows[r][at];
                    for lane in 0..TILE {
                        sums[r][lane] = x[lane].conj().mul_add::<FMA>(y[lane], sums[r][lane]);
                    }
                }
            }
            let sums: [T; TOGETHER] = each(|r| total(sums[r]));
            to.copy_from_slice(&sums[..to.len()]);
        }
    }
}

/// `to = Σ conj(row) · y`, for a number of elements that is a multiple of [`TILE`].
pub(super) fn dots<T: Scalar>(rows: Rows<'_, T>, y: &[T], to: &mut [T]) {
    dispatch(Dots { rows, y, to });
}

pub(super) fn scale<T: Scalar>(x: &mut [T], by: T) {
    x.iter_mut().for_each(|x| *x = *x * by);
}
