//! Products of a matrix and one or few vectors: every element of the matrix is read once, so that the speed depends on reading it
//! in memory order.

use super::kernel::{Dots, Kernels, LANES, OTHERS, ROWS};
use super::{GRAIN, Matrix, Number, Product, Start};
use crate::Result;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::parallel;
use crate::memory::scratch;
use crate::zip::zip;
use std::ops::Range;

/// The number of columns that are added at a time.
const ADDED: usize = 8;

/// `out` (`vectors` rows of `len`, `width` apart) `= start + vectors · matrixᵀ`.
#[derive(Clone, Copy)]
struct Line<T> {
    len: usize,
    k: usize,
    /// `len` rows of `k`.
    matrix: Matrix<T>,
    /// Rows of `k` contiguous elements.
    vectors: Matrix<T>,
    count: usize,
    out: *mut T,
    width: usize,
    start: Start<T>,
    /// Whether the row to start from has an element for each column of `out`; otherwise its first element is used for all.
    by_column: bool,
}

// SAFETY: pointers are only numbers; the threads that share a product write to disjoint parts of `out`.
unsafe impl<T> Sync for Line<T> {}

/// Computes a product with one row or column, or with few rows and a matrix with contiguous columns. Returns false for other
/// products.
///
/// # Safety
/// As [`gemm`](super::gemm).
pub(super) unsafe fn product<T: Number>(op: &'static str, product: &Product<T>) -> Result<bool> {
    let Product { m, n, k, a, b, out, width, start } = *product;
    let copy: Vec<T>;
    let line = if n == 1 && width == 1 {
        let vectors = Matrix { ptr: b.ptr, row: 0, col: b.row };
        Line { len: m, k, matrix: a, vectors, count: 1, out, width: m, start, by_column: false }
    } else if m == 1 || (m <= OTHERS && b.row == 1) {
        Line { len: n, k, matrix: b.t(), vectors: a, count: m, out, width, start, by_column: true }
    } else {
        return Ok(false);
    };
    let in_rows = line.matrix.col == 1;
    if !in_rows && line.matrix.row != 1 {
        return Ok(false);
    }
    // SAFETY: the caller's promise; the copy has all elements of the vectors.
    unsafe {
        let mut line = line;
        if line.vectors.col != 1 {
            let from = line.vectors;
            let mut room = scratch::with_room(op, line.count.saturating_mul(k))?;
            room.extend((0..line.count).flat_map(|i| (0..k).map(move |p| (i, p))).map(|(i, p)| from.at(i, p).read()));
            copy = room;
            line.vectors = Matrix { ptr: copy.as_ptr(), row: k as isize, col: 1 };
        }
        if in_rows {
            let rows = (GRAIN / k.saturating_mul(line.count)).max(1).next_multiple_of(ROWS);
            parallel(line.len, rows, |range| by_rows(&line, T::kernels(), range));
        } else {
            // Long enough to be read contiguously.
            let columns =
                if line.len.saturating_mul(k) < 2 * GRAIN { line.len } else { (line.len / 4).clamp(256, 4096) };
            parallel(line.len, columns.next_multiple_of(LANES), |range| dispatch(Sums(line, range)));
        }
    }
    Ok(true)
}

impl<T: Number> Line<T> {
    /// The initial value of element `i` of row `v` of the result.
    ///
    /// # Safety
    /// The element is one of the result's.
    #[inline(always)]
    unsafe fn start(&self, v: usize, i: usize) -> T {
        // SAFETY: the caller's promise; the row has as many elements as the result has columns.
        unsafe {
            match self.start {
                Start::Zero => T::ZERO,
                Start::Out => self.out.add(v * self.width + i).read(),
                Start::Row(row) => row.add(if self.by_column { i } else { 0 }).read(),
            }
        }
    }

    /// # Safety
    /// There are `k` contiguous elements from there on, which nothing writes.
    #[inline(always)]
    unsafe fn slice(&self, of: &Matrix<T>, row: usize) -> &[T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(of.at(row, 0), self.k) }
    }
}

/// A matrix with contiguous rows.
///
/// # Safety
/// The matrix has `len` rows of `k` contiguous elements, as have the vectors; the elements of `out` in the range are this
/// thread's.
unsafe fn by_rows<T: Number>(line: &Line<T>, kernels: &Kernels<T>, range: Range<usize>) {
    let mut sums = [T::ZERO; ROWS * OTHERS * LANES];
    let mut i = range.start;
    while i < range.end {
        let rows = if i + ROWS <= range.end { ROWS } else { 1 };
        let (matrix, vectors) = (line.matrix, line.vectors);
        let (rows_at, to) = (matrix.at(i, 0), sums.as_mut_ptr());
        let dots = Dots { k: line.k, rows: rows_at, row: matrix.row, others: vectors.ptr, other: vectors.row, to };
        // SAFETY: the caller's promise; there is room for as many sums as there can be.
        unsafe { kernels.dots[line.count - 1][usize::from(rows == ROWS)](&dots) };
        for (at, lanes) in sums.chunks(kernels.lanes).take(rows * line.count).enumerate() {
            let (row, vector) = (i + at / line.count, at % line.count);
            let sum = lanes.iter().fold(T::ZERO, |sum, &lane| sum + lane);
            // SAFETY: the caller's promise.
            unsafe { line.out.add(vector * line.width + row).write(line.start(vector, row) + sum) };
        }
        i += rows;
    }
}

/// A matrix with contiguous columns: the elements of the result are accumulated together.
struct Sums<T>(Line<T>, Range<usize>);

impl<T: Number> Job for Sums<T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Sums(line, range) = self;
        // SAFETY: as for `by_rows`, with the columns of the matrix in one piece; there is one vector.
        unsafe {
            for i in range.clone() {
                line.out.add(i).write(line.start(0, i));
            }
            let out = std::slice::from_raw_parts_mut(line.out.add(range.start), range.len());
            let vector = line.slice(&line.vectors, 0);
            let column = |p: usize| std::slice::from_raw_parts(line.matrix.at(range.start, p), range.len());
            let whole = line.k / ADDED * ADDED;
            for p in (0..whole).step_by(ADDED) {
                add(out, std::array::from_fn::<_, ADDED, _>(|j| column(p + j)), &vector[p..]);
            }
            for p in whole..line.k {
                add(out, [column(p)], &vector[p..]);
            }
        }
    }
}

/// Adds columns of one length, each times a factor, in order.
#[inline(always)]
fn add<T: Number, const N: usize>(out: &mut [T], columns: [&[T]; N], factors: &[T]) {
    let factors: [T; N] = each(|j| factors[j]);
    for (i, out) in out.iter_mut().enumerate() {
        let mut sum = *out;
        for (column, &factor) in zip(&columns[..], &factors) {
            // SAFETY: all slices have as many elements.
            sum = sum + factor * unsafe { *column.get_unchecked(i) };
        }
        *out = sum;
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::super::kernel::{self, MIRRORED, Mirrored};
    use super::*;
    use crate::{Generator, Result};

    /// The kernels of every instruction set that this CPU has.
    fn all_kernels() -> Vec<&'static Kernels<f32>> {
        // Only x86 has more.
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![&kernel::plain_f32::KERNELS];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                all.push(&kernel::x86::avx2_f32::KERNELS);
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                all.push(&kernel::x86::avx512_f32::KERNELS);
            }
        }
        all
    }

    #[test]
    fn every_instruction_set_reads_mirrored_columns() {
        let number = |at: usize| (at * 7 % 23) as f32 - 9.0;
        for rows in [0, 16, 32, 80] {
            let column = rows + 3;
            let a: Vec<f32> = (0..column * MIRRORED).map(number).collect();
            let (weights, x): (Vec<f32>, Vec<f32>) =
                ((0..MIRRORED).map(number).collect(), (5..5 + rows).map(number).collect());
            for kernels in all_kernels() {
                let (mut sums, mut dots) = (vec![1.0; rows], [2.0; MIRRORED]);
                let of = Mirrored {
                    rows,
                    columns: a.as_ptr(),
                    column,
                    weights: weights.as_ptr(),
                    x: x.as_ptr(),
                    sums: sums.as_mut_ptr(),
                    dots: dots.as_mut_ptr(),
                };
                // SAFETY: there are as many rows and columns; the kernels are for this CPU.
                unsafe { (kernels.mirrored)(&of) };
                let sum = |i: usize| (0..MIRRORED).fold(1.0, |sum, c| sum + a[c * column + i] * weights[c]);
                assert!(sums.into_iter().eq((0..rows).map(sum)), "{rows} rows in {} lanes", kernels.lanes);
                let dot = |c: usize| (0..rows).fold(2.0, |sum, i| sum + a[c * column + i] * x[i]);
                assert!(dots.into_iter().eq((0..MIRRORED).map(dot)), "{rows} rows in {} lanes", kernels.lanes);
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_products_of_the_definition() -> Result<()> {
        for (len, k, count) in [(1, 1, 1), (7, 15, 1), (9, 33, 2), (6, 100, 3), (11, 257, 4), (5, 64, 4)] {
            let (m, v) = (Generator::seed(1).randn([len, k])?, Generator::seed(2).randn([count, k])?);
            let (m, v) = (m.to_vec::<f32>()?, v.to_vec::<f32>()?);
            for kernels in all_kernels() {
                let mut out = vec![f32::NAN; len * count];
                let rows = |x: &[f32]| Matrix { ptr: x.as_ptr(), row: k as isize, col: 1 };
                let line = Line {
                    len,
                    k,
                    matrix: rows(&m),
                    vectors: rows(&v),
                    count,
                    out: out.as_mut_ptr(),
                    width: len,
                    start: Start::Zero,
                    by_column: true,
                };
                // SAFETY: all rows are there, and the CPU has the instructions.
                unsafe { by_rows(&line, kernels, 0..len) };
                for (at, got) in out.iter().enumerate() {
                    let (i, j) = (at % len, at / len);
                    let want: f64 = (0..k).map(|p| f64::from(m[i * k + p]) * f64::from(v[j * k + p])).sum();
                    let lanes = kernels.lanes;
                    assert!(
                        (f64::from(*got) - want).abs() < 1e-4,
                        "{len}x{k}x{count} in {lanes} lanes: {got}, not {want}"
                    );
                }
            }
        }
        Ok(())
    }
}
