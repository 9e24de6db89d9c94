//! Reduction of Hermitian matrices to tridiagonal ones, by reflections from both sides.
//!
//! Half of the time is spent in products of the matrix and vectors, one for each column, which read the whole matrix. So every
//! thread has a fixed set of columns, which stay in its cache, and the matrix is padded with zeros to whole vectors.

use super::columns::{Columns, Rows, TILE, axpy, combine, dot, dots, scale};
use super::reflect::reflection;
use super::scalar::{Real, Scalar};
use crate::Result;
use crate::backend::cpu::linalg::gemm::{MIRRORED, Matrix, Mirrored, Number, Product, Start, mirrored};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, try_parallel};
use crate::memory::scratch::filled;
use crate::zip::zip;
use std::ops::Range;

/// The number of reflections that are applied to the rest of a matrix as a block: a multiple of [`TILE`]. Larger blocks add more
/// updates to what is read.
const BLOCK: usize = 16;

/// The number of columns that are summed together, independent of the number of threads: a multiple of [`TILE`].
const CHUNK: usize = 64;

/// A Hermitian matrix, padded with rows and columns of zeros to multiples of [`TILE`]. The lower triangle and all of the tiles on
/// the diagonal are stored, so that a product only needs whole vectors.
pub(super) struct Tiled<T> {
    elements: Vec<T>,
    /// The number of rows and columns, including padding.
    size: usize,
    ld: usize,
}

impl<T: Scalar> Tiled<T> {
    /// A copy of a matrix. Only the lower triangle is read.
    ///
    /// # Errors
    /// If memory runs out.
    ///
    /// # Safety
    /// All elements of the matrix are inside its buffer, and nothing else uses it.
    pub unsafe fn new(op: &'static str, from: Columns<T>, n: usize) -> Result<Tiled<T>> {
        let size = n.next_multiple_of(TILE);
        // Columns a power of two apart compete for the same cache sets.
        let ld = size + if size.is_multiple_of(256) { TILE } else { 0 };
        let mut elements = filled(op, T::ZERO, size * ld)?;
        for j in 0..n {
            // SAFETY: the caller's promise.
            elements[j * ld + j..j * ld + n].copy_from_slice(unsafe { from.column(j, j, n - j) });
            for i in j / TILE * TILE..j {
                elements[j * ld + i] = elements[i * ld + j].conj();
            }
        }
        Ok(Tiled { elements, size, ld })
    }

    pub fn columns(&mut self) -> Columns<T> {
        Columns { ptr: self.elements.as_mut_ptr(), ld: self.ld }
    }

    /// Reduces the matrix to a real tridiagonal one, by reflections from both sides: `diagonal`, and `off[k]` between `k` and
    /// `k + 1`. The vectors are stored below the subdiagonal.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn reduce(
        &mut self,
        op: &'static str,
        diagonal: &mut [T::Real],
        off: &mut [T::Real],
        taus: &mut [T],
    ) -> Result<()> {
        let (n, size, a) = (diagonal.len(), self.size, self.columns());
        // Reflections change the matrix to `a - v · wᴴ - w · vᴴ`. The matrix is updated for a whole block of them at once; until
        // then, the elements that are read are. These are alternating `v` and `w`.
        let mut pairs = filled(op, T::ZERO, 2 * BLOCK.min(n) * size)?;
        let (mut products, mut weights) = (HermitianProduct::new(op, size)?, [T::ZERO; 2 * BLOCK]);
        for start in (0..n).step_by(BLOCK) {
            let end = n.min(start + BLOCK);
            for k in start..end {
                let (tile, first, count) = (k / TILE * TILE, k + 1, 2 * (k - start));
                let (earlier, new) = pairs.split_at_mut(count * size);
                let (v, w) = new[..2 * size].split_at_mut(size);
                // The vectors are zero before their first element, in all rows that are read.
                v[start..first].fill(T::ZERO);
                w[start..first].fill(T::ZERO);
                let earlier = |from: usize| Rows { rows: &*earlier, size, from };
                let weights = &mut weights[..count];
                // SAFETY: a column of the matrix.
                let column = unsafe { a.column(k, tile, size - tile) };
                (0..count).for_each(|t| weights[t] = -earlier(0).row(t ^ 1)[k].conj());
                combine(weights, earlier(tile), column);
                let column = &mut column[k - tile..n - tile];
                diagonal[k] = column[0].re();
                if first == n {
                    return Ok(());
                }
                let (tau, beta) = reflection(&mut column[1..]);
                (off[k], taus[k]) = (beta, tau);
                v[first] = T::ONE;
                v[first + 1..n].copy_from_slice(&column[2..]);
                let tile = first / TILE * TILE;
                let v = &v[tile..];
                // SAFETY: the matrix is `size` by `size`, and nothing writes it.
                let product = unsafe { products.of(a, tile, v)? };
                dots(earlier(tile), v, weights);
                (0..count).step_by(2).for_each(|t| (weights[t], weights[t + 1]) = (-weights[t + 1], -weights[t]));
                combine(weights, earlier(tile), product);
                scale(product, tau);
                let half = T::from_real(T::Real::from_f64(-0.5)) * tau * dot(product, v);
                for ((w, &p), &v) in zip(zip(&mut w[tile..], &*product), v).skip(first - tile) {
                    *w = p + half * v;
                }
            }
            let rows = Rows { rows: &pairs, size, from: end };
            // SAFETY: the matrix is `size` by `size`.
            unsafe { update(op, a, rows)? };
        }
        Ok(())
    }
}

/// The columns of a triangle from a tile on, in chunks.
#[derive(Clone, Copy)]
struct Chunks {
    tile: usize,
    size: usize,
}

impl Chunks {
    /// The number of pairs of chunks.
    fn count(self) -> usize {
        (self.size.div_ceil(CHUNK) - self.tile / CHUNK).div_ceil(2)
    }

    /// A chunk of long columns and one of short ones, so that all pairs take the same time. In the middle the second is empty.
    fn pair(self, at: usize) -> [Range<usize>; 2] {
        let Chunks { tile, size } = self;
        let (long, short) = (tile / CHUNK + at, size.div_ceil(CHUNK) - 1 - at);
        let columns = |chunk: usize| (chunk * CHUNK).max(tile)..size.min((chunk + 1) * CHUNK);
        [columns(long), if long == short { 0..0 } else { columns(short) }]
    }

    /// Calls `f` with the number of every pair and its chunks, on threads. Each thread has a fixed part of the pairs, and thus the
    /// same columns every time.
    fn each(self, f: impl Fn(usize, Range<usize>) -> Result<()> + Sync) -> Result<()> {
        let (count, size) = (self.count(), self.size - self.tile);
        let grain = if size * size < 4 * GRAIN { count } else { count.div_ceil(num_threads()) };
        try_parallel(count, grain, |range| {
            let chunks = range.flat_map(|at| self.pair(at).map(|columns| (at, columns)));
            chunks.filter(|(_, columns)| !columns.is_empty()).try_for_each(|(at, columns)| f(at, columns))
        })
    }
}

/// Products of a matrix of size `size` and a vector.
struct HermitianProduct<T> {
    size: usize,
    /// The sums of each pair of chunks.
    sums: Vec<T>,
    /// Their total.
    product: Vec<T>,
}

impl<T: Scalar> HermitianProduct<T> {
    fn new(op: &'static str, size: usize) -> Result<HermitianProduct<T>> {
        let pairs = Chunks { tile: 0, size }.count();
        Ok(HermitianProduct { size, sums: filled(op, T::ZERO, pairs * size)?, product: filled(op, T::ZERO, size)? })
    }

    /// `a · v`, for the part of the matrix from a tile on.
    ///
    /// # Safety
    /// The matrix is `size` by `size`, and nothing writes it; `v` has as many elements as the part has rows.
    unsafe fn of(&mut self, a: Columns<T>, tile: usize, v: &[T]) -> Result<&mut [T]> {
        let (size, chunks) = (self.size, Chunks { tile, size: self.size });
        for at in 0..chunks.count() {
            self.sums[at * size + chunks.pair(at)[0].start..(at + 1) * size].fill(T::ZERO);
        }
        let first = Ptr::new(self.sums.as_mut_ptr());
        chunks.each(|at, columns| {
            let from = columns.start;
            // SAFETY: the caller's promise; the sums of a pair are one thread's.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(first.get().add(at * size + from), size - from);
                T::hermitian_product(a.from(from, from), columns.len(), &v[from - tile..], sums);
            }
            Ok(())
        })?;
        let product = &mut self.product[tile..];
        product.fill(T::ZERO);
        for at in 0..chunks.count() {
            let from = chunks.pair(at)[0].start;
            axpy(T::ONE, &self.sums[at * size + from..(at + 1) * size], &mut product[from - tile..]);
        }
        Ok(product)
    }
}

/// `a -= Σ v · wᴴ + w · vᴴ` from a row and column on, for the lower triangle and the tiles on the diagonal. The rows of `pairs`
/// are alternating `v` and `w`.
///
/// # Errors
/// If memory runs out.
///
/// # Safety
/// The matrix has as many rows as the vectors have elements, and as many columns, and nothing else uses it.
unsafe fn update<T: Scalar>(op: &'static str, a: Columns<T>, pairs: Rows<'_, T>) -> Result<()> {
    const COUNT: usize = 2 * BLOCK;
    let Rows { size, from: end, .. } = pairs;
    Chunks { tile: end, size }.each(|_, columns| {
        let from = columns.start;
        let mut weights = filled(op, T::ZERO, columns.len() * COUNT)?;
        for t in 0..COUNT {
            let others = &pairs.row(t ^ 1)[from - end..];
            weights[t..].iter_mut().step_by(COUNT).zip(others).for_each(|(to, x)| *to = -x.conj());
        }
        // The transpose, which is row-major.
        let product = Product {
            m: columns.len(),
            n: size - from,
            k: COUNT,
            a: Matrix { ptr: weights.as_ptr(), row: COUNT as isize, col: 1 },
            b: Matrix { ptr: pairs.row(0)[from - end..].as_ptr(), row: size as isize, col: 1 },
            out: a.at(from, from),
            width: a.ld,
            start: Start::Out,
        };
        // SAFETY: the caller's promise; the columns are this thread's.
        unsafe { T::product(op, &product, false) }
    })
}

/// As [`Scalar::hermitian_product`], for real numbers: several columns at a time.
///
/// # Safety
/// As there.
pub(super) unsafe fn symmetric_product<T: Real + Number>(a: Columns<T>, columns: usize, v: &[T], sums: &mut [T]) {
    debug_assert!(columns.is_multiple_of(TILE) && v.len().is_multiple_of(TILE) && sums.len() == v.len());
    for first in (0..columns).step_by(MIRRORED) {
        let (tile, below) = (first / TILE * TILE, first / TILE * TILE + TILE);
        for (j, &weight) in (first..).zip(&v[first..first + MIRRORED]) {
            // SAFETY: the caller's promise.
            let column: &[T] = unsafe { a.column(j, tile, TILE) };
            zip(&mut sums[tile..below], column).for_each(|(sum, &x)| *sum = *sum + x * weight);
        }
        let (own, others) = sums.split_at_mut(below);
        if others.is_empty() {
            continue;
        }
        // SAFETY: the caller's promise.
        unsafe {
            mirrored(&Mirrored {
                rows: others.len(),
                columns: a.at(below, first),
                column: a.ld,
                weights: v[first..].as_ptr(),
                x: v[below..].as_ptr(),
                sums: others.as_mut_ptr(),
                dots: own[first..].as_mut_ptr(),
            });
        }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Complex;

    fn product_of_lower_triangle<T: Scalar>(number: impl Fn(usize) -> T) -> Result<()> {
        for n in [1, 3, 16, 21, 50, 64, 70, 200, 300] {
            let a: Vec<T> = (0..n * n).map(|at| number(at % 4099)).collect();
            let at = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Less => a[i * n + j].conj(),
                std::cmp::Ordering::Equal => T::from_real(a[i * n + i].re()),
                std::cmp::Ordering::Greater => a[j * n + i],
            };
            // SAFETY: the matrix is `n` by `n`.
            let mut tiled = unsafe { Tiled::new("test", Columns { ptr: a.as_ptr().cast_mut(), ld: n }, n)? };
            let (mut products, size) = (HermitianProduct::new("test", tiled.size)?, tiled.size);
            for first in [0, n / 3, n - 1] {
                let tile = first / TILE * TILE;
                let v: Vec<T> =
                    (tile..size).map(|i| if (first..n).contains(&i) { number(3 * i + 1) } else { T::ZERO }).collect();
                // SAFETY: as many elements as there are rows and columns.
                let product = unsafe { products.of(tiled.columns(), tile, &v)? };
                for i in first..n {
                    let sum = (first..n).fold(T::ZERO, |sum, j| sum + at(i, j) * v[j - tile]);
                    assert_eq!(product[i - tile], sum, "row {i} of {n} from {first} on");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_hermitian_product_reads_the_lower_triangle() -> Result<()> {
        product_of_lower_triangle(|at| (at % 17) as f32 - 3.0)?;
        product_of_lower_triangle(|at| (at % 17) as f64 - 3.0)?;
        product_of_lower_triangle(|at| Complex::new((at % 17) as f64 - 3.0, (at % 13) as f64 - 5.0))
    }

    #[test]
    fn all_columns_are_in_one_pair_of_chunks() {
        for (tile, size) in [(0, 16), (16, 64), (0, 128), (48, 336), (64, 1024), (1008, 1024)] {
            let chunks = Chunks { tile, size };
            let mut columns: Vec<usize> = (0..chunks.count()).flat_map(|at| chunks.pair(at)).flatten().collect();
            columns.sort_unstable();
            assert!(columns.into_iter().eq(tile..size), "{tile} to {size}");
        }
    }
}
