//! Matrices that lie column by column, and steps on their columns.

use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::Matrix;
use crate::backend::cpu::runtime::scratch::with_room;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use std::ops::Range;

/// A matrix in memory: its first element, and the step from one column to the next.
#[derive(Clone, Copy)]
pub(crate) struct Columns<T> {
    pub ptr: *mut T,
    pub ld: usize,
}

impl<T: Scalar> Columns<T> {
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

    /// # Safety
    /// The element is inside the buffer, and nobody else uses it.
    pub unsafe fn set(&self, i: usize, j: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.at(i, j).write(value) };
    }

    pub fn matrix(&self) -> Matrix<T> {
        Matrix { ptr: self.ptr, row: 1, col: self.ld as isize }
    }
}

/// Real numbers as scalars of another type.
///
/// # Errors
/// If memory runs out.
pub(super) fn scalars<T: Scalar>(op: &'static str, from: Vec<T::Real>) -> Result<Vec<T>> {
    let mut to = with_room(op, from.len())?;
    to.extend(from.into_iter().map(T::from_real));
    Ok(to)
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
        for (y, &x) in self.y.iter_mut().zip(self.x) {
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
        for ((y, &x), &z) in self.y.iter_mut().zip(self.x).zip(self.z) {
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

impl<T: Scalar> Job for Dot<'_, T> {
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
                sums[lane] = x[lane].conj().mul_add::<FMA>(y[lane], sums[lane]);
            }
        }
        for lane in 0..n - whole {
            sums[lane] = x[whole + lane].conj().mul_add::<FMA>(y[whole + lane], sums[lane]);
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

/// `Σ conj(x) · y`.
pub(super) fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    dispatch(Dot { x, y })
}

pub(super) fn scale<T: Scalar>(x: &mut [T], by: T) {
    x.iter_mut().for_each(|x| *x = *x * by);
}

/// As [`Scalar::hermitian_product`] of real numbers, several columns at a time.
pub(super) struct SymmetricProduct<'a, T> {
    pub a: Columns<T>,
    pub columns: Range<usize>,
    pub v: &'a [T],
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
            let below: [&[T]; TOGETHER] = each(|c| unsafe { &*a.column(first + c.min(count - 1), start, n - start) });
            let weights: [T; TOGETHER] = each(|c| if c < count { v[first + c] } else { T::ZERO });
            let mut dots = [[T::ZERO; LANES]; TOGETHER];
            let whole = (n - start) / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                let (x, to) = (&v[start + at..][..LANES], &mut sums[start + at..][..LANES]);
                let parts: [&[T]; TOGETHER] = each(|c| &below[c][at..][..LANES]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Complex;

    fn product_of_lower_triangle<T: Scalar + std::fmt::Debug>(number: impl Fn(usize) -> T) {
        let not = T::from_real(T::Real::from_f64(f64::NAN));
        for n in [1, 3, 4, 7, 16, 21, 50] {
            let a: Vec<T> = (0..n * n).map(|at| if at % n >= at / n { number(at) } else { not }).collect();
            let v: Vec<T> = (0..n).map(|i| number(3 * i + 1)).collect();
            let at = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Less => a[i * n + j].conj(),
                std::cmp::Ordering::Equal => T::from_real(a[i * n + i].re()),
                std::cmp::Ordering::Greater => a[j * n + i],
            };
            let row = |i: usize| (0..n).fold(T::ZERO, |sum, j| sum + at(i, j) * v[j]);
            let mut sums = vec![T::ZERO; n];
            for columns in [0..n / 3, n / 3..n] {
                let a = Columns { ptr: a.as_ptr().cast_mut(), ld: n };
                // SAFETY: the matrix is `n` by `n`.
                unsafe { T::hermitian_product(a, columns, &v, &mut sums) };
            }
            assert_eq!(sums, (0..n).map(row).collect::<Vec<T>>(), "{n}");
        }
    }

    #[test]
    fn a_hermitian_product_reads_the_lower_triangle() {
        product_of_lower_triangle(|at| (at % 17) as f64 - 3.0);
        product_of_lower_triangle(|at| Complex::new((at % 17) as f64 - 3.0, (at % 13) as f64 - 5.0));
    }
}
