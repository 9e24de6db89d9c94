//! The innermost loop of a matrix product: a tile of the result that stays in registers during the loop over the inner
//! dimension. Every tile size up to the largest has its own version, so that edges need no padding.

use super::vector::Vector;
use crate::zip::zip;

/// A tile of `out = start + a · b`. Its numbers of rows and vectors are those of the kernel that computes it.
pub(super) struct Tile<T> {
    pub k: usize,
    /// The strides of `a` are arbitrary; those of `b` are `b_row` and 1.
    pub a: *const T,
    pub a_row: isize,
    pub a_col: isize,
    pub b: *const T,
    pub b_row: isize,
    pub out: *mut T,
    pub width: usize,
    /// The number of lanes of the last vector that belong to the tile.
    pub last: usize,
    pub start: Start<T>,
    /// Memory to prefetch: rows of `k` elements.
    pub ahead: Ahead<T>,
}

/// Rows of a later tile, which are prefetched one cache line at a time during the loop over the inner dimension. Prefetched all at
/// once, they would fill the queue of misses and delay the operands.
#[derive(Clone, Copy)]
pub(super) struct Ahead<T> {
    pub ptr: *const T,
    pub row: isize,
    pub rows: usize,
}

/// The initial value of the result.
#[derive(Clone, Copy)]
pub(crate) enum Start<T> {
    Zero,
    /// The contents of `out`.
    Out,
    /// An element for each column, the same in all rows.
    Row(*const T),
}

pub(super) type Kernel<T> = unsafe fn(&Tile<T>);

/// Rows and other rows, all of `k` contiguous elements.
pub(super) struct Dots<T> {
    pub k: usize,
    pub rows: *const T,
    pub row: isize,
    pub others: *const T,
    pub other: isize,
    /// The target of the products: for each row and each other row, a vector of partial sums.
    pub to: *mut T,
}

/// The number of rows whose products are computed together: the others are read once for all of them.
pub(super) const ROWS: usize = 4;
/// The most other rows that they are multiplied by at once.
pub(super) const OTHERS: usize = 4;
/// The most lanes of a vector.
pub(super) const LANES: usize = 16;

/// The kernels for one instruction set: `tiles[rows - 1][vectors - 1]`, and `dots[others - 1]` for one row and for
/// [`ROWS`] of them.
pub(crate) struct Kernels<T: 'static> {
    pub(super) lanes: usize,
    pub(super) tiles: &'static [&'static [Kernel<T>]],
    pub(super) dots: [[unsafe fn(&Dots<T>); 2]; OTHERS],
    pub(super) mirrored: unsafe fn(&Mirrored<T>),
}

impl<T> Kernels<T> {
    /// The most rows of a tile.
    pub(super) fn rows(&self) -> usize {
        self.tiles.len()
    }

    /// The most vectors in a row of a tile.
    pub(super) fn vectors(&self) -> usize {
        self.tiles[0].len()
    }
}

/// # Safety
/// The CPU has `V`'s instructions; `a` has `M` rows and `k` columns, `b` has `k` rows, `out` has `M` rows, each of
/// `N` vectors but for what `last` leaves out, as does the row to start from; nothing else uses that part of `out`.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const N: usize>(tile: &Tile<V::Item>, zero: V::Item) {
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        let mut sums = [[V::splat(zero); N]; M];
        let (mut a, mut b) = (tile.a, tile.b);
        let line = const { 64 / size_of::<V::Item>() };
        let at_once = M.div_ceil(tile.k.div_ceil(line));
        for p in (0..tile.k).step_by(line) {
            // The result is prefetched during the loop, as it is in the cache less often than the operands.
            let first = p / line * at_once;
            for i in first..M.min(first + at_once) {
                for j in 0..N {
                    V::prefetch(tile.out.wrapping_add(i * tile.width + j * V::LANES));
                }
            }
            for i in 0..tile.ahead.rows {
                V::prefetch(tile.ahead.ptr.wrapping_offset(i as isize * tile.ahead.row).wrapping_add(p));
            }
            for _ in p..tile.k.min(p + line) {
                let mut row = [V::splat(zero); N];
                for (j, vector) in row.iter_mut().enumerate() {
                    let from = b.add(j * V::LANES);
                    *vector = if j + 1 < N { V::load(from) } else { V::load_first(from, tile.last) };
                    V::prefetch(from.wrapping_offset(8 * tile.b_row));
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let factor = V::splat(a.offset(i as isize * tile.a_row).read());
                    for (sum, vector) in zip(&mut sums[..], row) {
                        *sum = factor.mul_add(vector, *sum);
                    }
                }
                a = a.wrapping_offset(tile.a_col);
                b = b.wrapping_offset(tile.b_row);
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let (to, partial) = (tile.out.add(i * tile.width + j * V::LANES), j + 1 == N);
                let load = |from: *const V::Item| if partial { V::load_first(from, tile.last) } else { V::load(from) };
                let sum = match tile.start {
                    Start::Zero => sum,
                    Start::Out => load(to).add(sum),
                    Start::Row(row) => load(row.add(j * V::LANES)).add(sum),
                };
                if partial { sum.store_first(to, tile.last) } else { sum.store(to) }
            }
        }
    }
}

/// Adds the products of `H` vectors from position `p` on; `left` elements of them belong to the rows.
///
/// # Safety
/// As [`dots`].
#[inline(always)]
unsafe fn dots_from<V: Vector, const R: usize, const X: usize, const H: usize>(
    of: &Dots<V::Item>,
    zero: V::Item,
    (p, left): (usize, usize),
    sums: &mut [[[V; H]; X]; R],
) {
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        let mut others = [[V::splat(zero); H]; X];
        for (x, others) in others.iter_mut().enumerate() {
            for (h, other) in others.iter_mut().enumerate() {
                *other = part(of.others.wrapping_offset(x as isize * of.other).wrapping_add(p), h, left, zero);
            }
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            for h in 0..H {
                let row: V = part(of.rows.wrapping_offset(r as isize * of.row).wrapping_add(p), h, left, zero);
                for (sums, others) in zip(&mut sums[..], &others) {
                    sums[h] = row.mul_add(others[h], sums[h]);
                }
            }
        }
    }
}

/// Vector `h` of `left` elements, padded with zeros.
///
/// # Safety
/// The CPU has `V`'s instructions, and the elements are there.
#[inline(always)]
unsafe fn part<V: Vector>(first: *const V::Item, h: usize, left: usize, zero: V::Item) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        match left.saturating_sub(h * V::LANES) {
            0 => V::splat(zero),
            n if n < V::LANES => V::load_first(first.add(h * V::LANES), n),
            _ => V::load(first.add(h * V::LANES)),
        }
    }
}

/// The products of `R` rows and `X` others, each in `H` sums: eight or more independent chains hide the latency of additions. The
/// result for a row does not depend on `R`.
///
/// # Safety
/// The CPU has `V`'s instructions; there are as many rows and others as that, and room for the results.
#[inline(always)]
unsafe fn dots<V: Vector, const R: usize, const X: usize, const H: usize>(of: &Dots<V::Item>, zero: V::Item) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[[V::splat(zero); H]; X]; R];
        let at_once = H * V::LANES;
        let whole = of.k / at_once * at_once;
        for p in (0..whole).step_by(at_once) {
            dots_from(of, zero, (p, at_once), &mut sums);
        }
        if whole < of.k {
            dots_from(of, zero, (whole, of.k - whole), &mut sums);
        }
        for (at, sums) in sums.as_flattened().iter().enumerate() {
            let mut sum = sums[0];
            for &other in &sums[1..] {
                sum = sum.add(other);
            }
            sum.store(of.to.add(at * V::LANES));
        }
    }
}

/// Columns of a symmetric matrix, which are read once for both of their contributions to its product with a vector.
pub(in crate::backend::cpu::linalg) struct Mirrored<T> {
    /// The number of rows, a multiple of [`LANES`].
    pub rows: usize,
    /// The first of [`MIRRORED`] columns, and their stride.
    pub columns: *const T,
    pub column: usize,
    /// The elements of the vector for these columns, and for the rows.
    pub weights: *const T,
    pub x: *const T,
    /// The sum of each row.
    pub sums: *mut T,
    /// The target that each column's product with `x` is added to.
    pub dots: *mut T,
}

/// The number of columns of [`Mirrored`].
pub(in crate::backend::cpu::linalg) const MIRRORED: usize = 4;

/// # Safety
/// The CPU has `V`'s instructions; all that `of` points at is there, and nothing else uses what is written.
#[inline(always)]
unsafe fn mirrored<V: Vector<Item: std::ops::Add<Output = V::Item>>>(of: &Mirrored<V::Item>, zero: V::Item) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut weights = [V::splat(zero); MIRRORED];
        let mut dots = [V::splat(zero); MIRRORED];
        for (c, weight) in weights.iter_mut().enumerate() {
            *weight = V::splat(of.weights.add(c).read());
        }
        for row in (0..of.rows).step_by(V::LANES) {
            let (x, to) = (V::load(of.x.add(row)), of.sums.add(row));
            let mut sum = V::load(to);
            for c in 0..MIRRORED {
                let part = V::load(of.columns.add(c * of.column + row));
                sum = part.mul_add(weights[c], sum);
                dots[c] = part.mul_add(x, dots[c]);
            }
            sum.store(to);
        }
        for (c, dot) in dots.into_iter().enumerate() {
            let mut lanes = [zero; LANES];
            dot.store(lanes.as_mut_ptr());
            let mut width = V::LANES / 2;
            while width > 0 {
                for lane in 0..width {
                    lanes[lane] = lanes[lane] + lanes[lane + width];
                }
                width /= 2;
            }
            let to = of.dots.add(c);
            to.write(to.read() + lanes[0]);
        }
    }
}

macro_rules! kernels {
    ($name:ident, $t:ty, $vector:ty, $(#[$feature:meta])?, [$($m:literal)+], $vectors:tt) => {
        pub(in crate::backend::cpu::linalg::gemm) mod $name {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            /// # Safety
            /// As `tile`.
            $(#[$feature])?
            unsafe fn kernel<const M: usize, const N: usize>(of: &Tile<$t>) {
                // SAFETY: the caller's promise.
                unsafe { tile::<$vector, M, N>(of, 0.0) }
            }

            /// # Safety
            /// As `dots`.
            $(#[$feature])?
            unsafe fn dot<const R: usize, const X: usize, const H: usize>(of: &Dots<$t>) {
                // SAFETY: the caller's promise.
                unsafe { dots::<$vector, R, X, H>(of, 0.0) }
            }

            /// # Safety
            /// As `mirrored`.
            $(#[$feature])?
            unsafe fn both(of: &Mirrored<$t>) {
                // SAFETY: the caller's promise.
                unsafe { mirrored::<$vector>(of, 0.0) }
            }

            pub(in crate::backend::cpu::linalg::gemm) static KERNELS: Kernels<$t> = Kernels {
                lanes: <$vector as Vector>::LANES,
                tiles: &[$(kernels!(@row $m $vectors)),+],
                dots: [
                    [dot::<1, 1, 2>, dot::<ROWS, 1, 2>],
                    [dot::<1, 2, 1>, dot::<ROWS, 2, 1>],
                    [dot::<1, 3, 1>, dot::<ROWS, 3, 1>],
                    [dot::<1, OTHERS, 1>, dot::<ROWS, OTHERS, 1>],
                ],
                mirrored: both,
            };
        }
    };
    (@row $m:literal [$($n:literal)+]) => { &[$(kernel::<$m, $n>),+] };
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::{Dots, Kernels, Mirrored, OTHERS, ROWS, Tile, Vector, dots, mirrored, tile};
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

    // Of 32 registers, 24 hold sums and the others operands; with AVX2, 12 of 16.
    kernels!(avx512_f32, f32, __m512, #[target_feature(enable = "avx512f")], [1 2 3 4 5 6], [1 2 3 4]);
    kernels!(avx512_f64, f64, __m512d, #[target_feature(enable = "avx512f")], [1 2 3 4 5 6], [1 2 3 4]);
    kernels!(avx2_f32, f32, __m256, #[target_feature(enable = "avx2,fma")], [1 2 3 4 5 6], [1 2]);
    kernels!(avx2_f64, f64, __m256d, #[target_feature(enable = "avx2,fma")], [1 2 3 4 5 6], [1 2]);
}
kernels!(plain_f32, f32, [f32; 4], , [1 2 3 4], [1 2]);
kernels!(plain_f64, f64, [f64; 2], , [1 2 3 4], [1 2]);
