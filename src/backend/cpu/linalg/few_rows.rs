//! Products of few rows with a matrix of half precision, as in decoding text. The matrix is read once, in memory order, and its
//! elements are converted to f32 in the cache: no copy of it is made or packed.

use crate::backend::cpu::linalg::gemm::{GRAIN, Matrix, Product, Start};
use crate::backend::cpu::runtime::convert::Loads;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each, mul_add};
use crate::backend::cpu::runtime::threads::parallel;
use crate::error::bail;
use crate::memory::scratch;
use crate::zip::zip;
use crate::{DType, Element, Result};
use half::{bf16, f16};
use std::ops::Range;

/// The most rows, for which there are sums.
pub(crate) const MOST: usize = 16;
/// Elements of a row of the matrix that are converted together. They stay in the L1 cache.
const CHUNK: usize = 1024;
/// Columns of a matrix with contiguous rows whose sums are kept together, in the L1 cache, and rows that are added together.
const COLUMNS: usize = 256;
const TOGETHER: usize = 4;
/// Parallel sums, in several registers, so that additions need not wait for each other.
const LANES: usize = 64;

/// Elements of half precision.
pub(crate) trait Half: Element {
    /// # Safety
    /// `from` points at `to.len()` elements.
    unsafe fn widen(from: *const Self, to: &mut [f32]);
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn widen(from: *const bf16, to: &mut [f32]) {
        // SAFETY: the caller's promise; a bf16 has the size and alignment of a u16.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u16>(), to.len()) };
        zip(to, from).for_each(|(to, &bits)| *to = f32::from_bits(u32::from(bits) << 16));
    }
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn widen(from: *const f16, to: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { f32::load(DType::F16, from.cast(), 1, to.as_mut_ptr(), to.len()) };
    }
}

/// # Safety
/// As [`gemm`](super::gemm::gemm); the rows or the columns of the matrix are contiguous.
pub(crate) unsafe fn product<H: Half>(op: &'static str, product: &Product<H, f32>) -> Result<()> {
    let Product { m, n, k, a, .. } = *product;
    if m > MOST {
        bail!(Backend, op, "products of half precision must have at most {MOST} rows, got {m}");
    }
    // Rows of zeros up to a whole number of lanes, so that the sums have no remainder.
    let width = k.next_multiple_of(LANES);
    let mut vectors = scratch::with_room::<f32>(op, m.saturating_mul(width))?;
    vectors.resize(m * width, 0.0);
    for (i, vector) in vectors.chunks_exact_mut(width).enumerate() {
        // SAFETY: the caller's promise: there are `m` rows of `k` elements.
        unsafe {
            if a.col == 1 {
                H::widen(a.at(i, 0), &mut vector[..k]);
                continue;
            }
            for p in 0..k {
                H::widen(a.at(i, p), &mut vector[p..=p]);
            }
        }
    }
    let all = k.saturating_mul(m).max(1);
    let part = |range| Part { product, vectors: &vectors, width, range };
    if product.b.row == 1 {
        parallel(n, (GRAIN / all).max(1), |range| dispatch(Rows(part(range))));
    } else {
        let blocks = (GRAIN / all.saturating_mul(COLUMNS)).max(1);
        parallel(n.div_ceil(COLUMNS), blocks, |range| dispatch(Columns(part(range))));
    }
    Ok(())
}

/// A part of a product: some columns of the result, or blocks of them.
struct Part<'a, H> {
    product: &'a Product<H, f32>,
    /// The rows in f32, `width` apart.
    vectors: &'a [f32],
    width: usize,
    range: Range<usize>,
}

/// A part where the columns of the matrix are contiguous.
struct Rows<'a, H>(Part<'a, H>);

impl<H: Half> Job for Rows<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Rows(Part { product, vectors, width, range }) = self;
        let &Product { m, k, b, out, start, width: out_width, .. } = product;
        let (mut row, mut sums) = ([0.0_f32; CHUNK], [[0.0_f32; LANES]; MOST]);
        for j in range {
            sums[..m].fill([0.0; LANES]);
            for first in (0..k).step_by(CHUNK) {
                let (len, padded) = (CHUNK.min(k - first), CHUNK.min(width - first));
                // SAFETY: the caller's promise: a row of the matrix has `k` contiguous elements.
                unsafe { H::widen(Matrix::at(&b, first, j), &mut row[..len]) };
                row[len..padded].fill(0.0);
                for (v, sums) in sums[..m].iter_mut().enumerate() {
                    let at = v * width + first;
                    accumulate::<FMA>(sums, &row[..padded], &vectors[at..at + padded]);
                }
            }
            for (v, sums) in sums[..m].iter().enumerate() {
                // SAFETY: the element is one of the result's, in the range of this thread.
                unsafe { write(start, out.add(v * out_width + j), j, total(*sums)) };
            }
        }
    }
}

/// A part where the rows of the matrix are contiguous: blocks of [`COLUMNS`] columns.
struct Columns<'a, H>(Part<'a, H>);

impl<H: Half> Job for Columns<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Columns(Part { product, vectors, width, range }) = self;
        let &Product { m, n, k, b, out, start, width: out_width, .. } = product;
        let (mut rows, mut sums) = ([[0.0_f32; COLUMNS]; TOGETHER], [[0.0_f32; COLUMNS]; MOST]);
        for block in range {
            let (first, len) = (block * COLUMNS, COLUMNS.min(n - block * COLUMNS));
            sums[..m].fill([0.0; COLUMNS]);
            for p in (0..k).step_by(TOGETHER) {
                for (at, row) in rows.iter_mut().enumerate() {
                    if p + at < k {
                        // SAFETY: the caller's promise: a row of the matrix has `n` contiguous elements.
                        unsafe { H::widen(b.at(p + at, first), &mut row[..len]) };
                    } else {
                        row.fill(0.0);
                    }
                }
                for (v, sums) in sums[..m].iter_mut().enumerate() {
                    let at = v * width + p;
                    add_rows::<FMA>(sums, &rows, &vectors[at..at + TOGETHER]);
                }
            }
            for (v, sums) in sums[..m].iter().enumerate() {
                for (at, &sum) in sums[..len].iter().enumerate() {
                    // SAFETY: as for `Rows`.
                    unsafe { write(start, out.add(v * out_width + first + at), first + at, sum) };
                }
            }
        }
    }
}

/// Adds rows, each times a factor.
#[inline(always)]
fn add_rows<const FMA: bool>(sums: &mut [f32; COLUMNS], rows: &[[f32; COLUMNS]; TOGETHER], factors: &[f32]) {
    let factors: [f32; TOGETHER] = each(|at| factors[at]);
    for j in 0..COLUMNS {
        let mut sum = sums[j];
        for at in 0..TOGETHER {
            sum = mul_add::<FMA>(rows[at][j], factors[at], sum);
        }
        sums[j] = sum;
    }
}

/// Writes column `j` of a row of the result.
///
/// # Safety
/// The element is one of the result's, which no other thread writes; a row to start from has one for each column.
#[inline(always)]
unsafe fn write(start: Start<f32>, to: *mut f32, j: usize, sum: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let first = match start {
            Start::Zero => 0.0,
            Start::Out => to.read(),
            Start::Row(row) => row.add(j).read(),
        };
        to.write(first + sum);
    }
}

/// Adds the products of two slices of one length, a multiple of [`LANES`], to the lanes.
#[inline(always)]
fn accumulate<const FMA: bool>(sums: &mut [f32; LANES], x: &[f32], y: &[f32]) {
    let mut lanes = *sums;
    let mut at = 0;
    while at + LANES <= x.len().min(y.len()) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: `at + i` is below the lengths of both.
            let (x, y) = unsafe { (*x.get_unchecked(at + i), *y.get_unchecked(at + i)) };
            *lane = mul_add::<FMA>(x, y, *lane);
        }
        at += LANES;
    }
    *sums = lanes;
}

/// The sum of the lanes, by halves.
#[inline(always)]
fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::backend::with_num_threads;
    use crate::{Generator, Result, Tensor};

    /// Products in half precision, of which the sums in f64 are the reference.
    #[test]
    fn few_rows_give_the_products_of_the_definition_on_any_number_of_threads() -> Result<()> {
        for dtype in [DType::BF16, DType::F16] {
            for (m, n, k) in [(1, 1, 1), (1, 300, 65), (2, 7, 64), (5, 33, 1030), (MOST, 40, 129), (MOST + 1, 40, 129)]
            {
                let a = Generator::seed(1).randn_with([m, k], dtype)?;
                let b = Generator::seed(2).randn_with([n, k], dtype)?;
                let wide = |x: &Tensor| x.to_dtype(DType::F64);
                let rows = b.t()?.contiguous()?;
                assert!(
                    wide(&a.matmul(&rows)?)?
                        .allclose_with(&wide(&a)?.matmul(&wide(&rows)?)?, (1e-2, 1e-2 * (k as f64).sqrt()))?
                );
                let bias = Generator::seed(3).randn_with([n], dtype)?;
                let want = wide(&a)?.matmul(&wide(&b)?.t()?)?;
                for (got, want) in
                    [(a.matmul(&b.t()?)?, want.clone()), (a.linear(&b, Some(&bias))?, want.add(&wide(&bias)?)?)]
                {
                    assert!(
                        wide(&got)?.allclose_with(&want, (1e-2, 1e-2 * (k as f64).sqrt()))?,
                        "{m}x{n}x{k} of {dtype}"
                    );
                }
                let strided = a.t()?.contiguous()?.t()?;
                assert!(strided.matmul(&b.t()?)?.equal(&a.matmul(&b.t()?)?)?, "strided {m}x{n}x{k} of {dtype}");
                let one = with_num_threads(1, || a.matmul(&b.t()?))??;
                for threads in [2, 5] {
                    assert!(with_num_threads(threads, || a.matmul(&b.t()?))??.equal(&one)?, "{m}x{n}x{k} of {dtype}");
                    let by_rows = with_num_threads(1, || a.matmul(&rows))??;
                    assert!(with_num_threads(threads, || a.matmul(&rows))??.equal(&by_rows)?, "{m}x{n}x{k} of {dtype}");
                }
            }
        }
        Ok(())
    }
}
