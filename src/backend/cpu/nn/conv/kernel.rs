//! The innermost loops of convolutions. They are those of matrix products, except that one operand is gathered through
//! a table of offsets.

use crate::backend::cpu::linalg::gemm::{Start, Vector};
use crate::zip::zip;

/// The most rows a tile has.
pub(super) const ROWS: usize = 6;
/// The most dot products that are computed in parallel.
pub(super) const DOTS: usize = 9;

/// A tile of `out[i][j] = start + Σ_p a[i][offsets[p]] · b[p][j]`. Its rows and vectors are those of the kernel.
pub(super) struct Tile<T> {
    pub k: usize,
    pub a: [*const T; ROWS],
    pub offsets: *const isize,
    pub b: *const T,
    pub b_row: usize,
    pub out: *mut T,
    pub width: usize,
    pub start: Start<T>,
}

/// Rows of `out[i][j] = start + Σ_p factors[p] · a[offsets[p] + i · a_row + j]`, where `j` is below `len`.
pub(super) struct Line<T> {
    pub k: usize,
    pub factors: *const T,
    pub offsets: *const isize,
    pub a: *const T,
    pub a_row: usize,
    pub rows: usize,
    pub len: usize,
    pub out: *mut T,
    pub out_row: usize,
    pub start: T,
}

/// `sums[p] += Σ_i Σ_j b[i · b_row + j] · a[offsets[p] + i · a_row + j]`, each in as many lanes as a vector has.
pub(super) struct Dots<T> {
    pub offsets: *const isize,
    pub a: *const T,
    pub a_row: usize,
    pub b: *const T,
    pub b_row: usize,
    pub rows: usize,
    pub len: usize,
    pub sums: *mut T,
}

/// The kernels for one instruction set: `tiles[rows - 1][vectors - 1]`, and `dots[count - 1]`.
pub(crate) struct Kernels<T: 'static> {
    pub(super) lanes: usize,
    pub(super) tiles: [&'static [unsafe fn(&Tile<T>)]; ROWS],
    pub(super) line: unsafe fn(&Line<T>),
    pub(super) dots: [unsafe fn(&Dots<T>); DOTS],
}

impl<T> Kernels<T> {
    /// The most vectors of a tile whose sums stay in registers.
    pub(super) fn vectors(&self) -> usize {
        self.tiles[0].len()
    }
}

/// # Safety
/// The CPU has `V`'s instructions. For each row and each of `k` offsets there is an element of `a`; `b` has `k` rows, `out` has
/// `M`, each of `N` vectors, as has the row to start from; no other thread uses that part of `out`.
#[inline(always)]
unsafe fn tile<V: Vector, const M: usize, const N: usize>(tile: &Tile<V::Item>, zero: V::Item) {
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        let mut sums = [[V::splat(zero); N]; M];
        let mut b = tile.b;
        for p in 0..tile.k {
            let offset = tile.offsets.add(p).read();
            let mut row = [V::splat(zero); N];
            for (j, vector) in row.iter_mut().enumerate() {
                *vector = V::load(b.add(j * V::LANES));
                V::prefetch(b.wrapping_add(j * V::LANES + 8 * tile.b_row));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let factor = V::splat(tile.a[i].offset(offset).read());
                for (sum, vector) in zip(&mut sums[..], row) {
                    *sum = factor.mul_add(vector, *sum);
                }
            }
            b = b.wrapping_add(tile.b_row);
        }
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sum) in sums.into_iter().enumerate() {
                let to = tile.out.add(i * tile.width + j * V::LANES);
                let sum = match tile.start {
                    Start::Zero => sum,
                    Start::Out => V::load(to).add(sum),
                    Start::Row(row) => V::load(row.add(j * V::LANES)).add(sum),
                };
                sum.store(to);
            }
        }
    }
}

/// `R` rows by `N` vectors of a [`Line`], from row `i` and column `j` on; only `last` lanes of the last vector are
/// used.
///
/// # Safety
/// As [`line`].
#[inline(always)]
unsafe fn block<V: Vector, const R: usize, const N: usize>(of: &Line<V::Item>, (i, j): (usize, usize), last: usize) {
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        let mut sums = [[V::splat(of.start); N]; R];
        let a = of.a.add(i * of.a_row + j);
        for p in 0..of.k {
            let factor = V::splat(of.factors.add(p).read());
            let from = a.offset(of.offsets.add(p).read());
            for (r, sums) in sums.iter_mut().enumerate() {
                for (n, sum) in sums.iter_mut().enumerate() {
                    let at = from.add(r * of.a_row + n * V::LANES);
                    let vector = if n + 1 == N { V::load_first(at, last) } else { V::load(at) };
                    *sum = factor.mul_add(vector, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                let to = of.out.add((i + r) * of.out_row + j + n * V::LANES);
                if n + 1 == N { sum.store_first(to, last) } else { sum.store(to) }
            }
        }
    }
}

/// # Safety
/// The CPU has `V`'s instructions; for each offset, row and column there are elements of `a`, and there is room for the result.
#[inline(always)]
unsafe fn line<V: Vector>(of: &Line<V::Item>) {
    // SAFETY: the caller's promise; the blocks are parts of the whole.
    unsafe {
        let mut j = 0;
        while j < of.len {
            let left = of.len - j;
            let vectors = left.div_ceil(V::LANES).min(2);
            let last = (left - (vectors - 1) * V::LANES).min(V::LANES);
            let mut i = 0;
            while i < of.rows {
                let rows = of.rows - i;
                i += match (vectors, rows) {
                    (1, 8..) => (block::<V, 8, 1>(of, (i, j), last), 8).1,
                    (1, 4..) => (block::<V, 4, 1>(of, (i, j), last), 4).1,
                    (1, 2..) => (block::<V, 2, 1>(of, (i, j), last), 2).1,
                    (1, _) => (block::<V, 1, 1>(of, (i, j), last), 1).1,
                    (_, 4..) => (block::<V, 4, 2>(of, (i, j), last), 4).1,
                    (_, 2..) => (block::<V, 2, 2>(of, (i, j), last), 2).1,
                    (_, _) => (block::<V, 1, 2>(of, (i, j), last), 1).1,
                };
            }
            j += vectors * V::LANES;
        }
    }
}

/// # Safety
/// The CPU has `V`'s instructions; for each offset, row and column there are elements of `a`, `b` has the rows, and there are
/// `N` vectors of sums.
#[inline(always)]
unsafe fn dots<V: Vector, const N: usize>(of: &Dots<V::Item>, zero: V::Item) {
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        let mut sums = [V::splat(zero); N];
        let mut offsets = [0; N];
        for (n, (sum, offset)) in zip(&mut sums[..], &mut offsets).enumerate() {
            *sum = V::load(of.sums.add(n * V::LANES));
            *offset = of.offsets.add(n).read();
        }
        let whole = of.len / V::LANES * V::LANES;
        for i in 0..of.rows {
            let (a, b) = (of.a.add(i * of.a_row), of.b.add(i * of.b_row));
            for j in (0..whole).step_by(V::LANES) {
                let factor = V::load(b.add(j));
                for (sum, &offset) in zip(&mut sums[..], &offsets) {
                    *sum = factor.mul_add(V::load(a.add(j).offset(offset)), *sum);
                }
            }
            if whole < of.len {
                let factor = V::load_first(b.add(whole), of.len - whole);
                for (sum, &offset) in zip(&mut sums[..], &offsets) {
                    *sum = factor.mul_add(V::load_first(a.add(whole).offset(offset), of.len - whole), *sum);
                }
            }
        }
        for (n, sum) in sums.into_iter().enumerate() {
            sum.store(of.sums.add(n * V::LANES));
        }
    }
}

macro_rules! kernels {
    ($name:ident, $t:ty, $vector:ty, $vectors:tt $(, #[$feature:meta])?) => {
        pub(super) mod $name {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            /// # Safety
            /// As `tile`.
            $(#[$feature])?
            unsafe fn a_tile<const M: usize, const N: usize>(of: &Tile<$t>) {
                // SAFETY: the caller's promise.
                unsafe { tile::<$vector, M, N>(of, 0.0) }
            }

            /// # Safety
            /// As `line`.
            $(#[$feature])?
            unsafe fn a_line(of: &Line<$t>) {
                // SAFETY: the caller's promise.
                unsafe { line::<$vector>(of) }
            }

            /// # Safety
            /// As `dots`.
            $(#[$feature])?
            unsafe fn some_dots<const N: usize>(of: &Dots<$t>) {
                // SAFETY: the caller's promise.
                unsafe { dots::<$vector, N>(of, 0.0) }
            }

            pub(crate) static KERNELS: Kernels<$t> = Kernels {
                lanes: <$vector as Vector>::LANES,
                tiles: [
                    kernels!(@tiles 1 $vectors), kernels!(@tiles 2 $vectors), kernels!(@tiles 3 $vectors),
                    kernels!(@tiles 4 $vectors), kernels!(@tiles 5 $vectors), kernels!(@tiles 6 $vectors),
                ],
                line: a_line,
                dots: kernels!(@dots some_dots [1 2 3 4 5 6 7 8 9]),
            };
        }
    };
    (@tiles $m:literal [$($n:literal)+]) => { &[$(a_tile::<$m, $n>),+] };
    (@dots $dots:ident [$($n:literal)+]) => { [$($dots::<$n>),+] };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Dots, Kernels, Line, Tile, Vector, dots, line, tile};
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

    kernels!(avx512_f32, f32, __m512, [1 2 3 4], #[target_feature(enable = "avx512f")]);
    kernels!(avx512_f64, f64, __m512d, [1 2 3 4], #[target_feature(enable = "avx512f")]);
    kernels!(avx2_f32, f32, __m256, [1 2], #[target_feature(enable = "avx2,fma")]);
    kernels!(avx2_f64, f64, __m256d, [1 2], #[target_feature(enable = "avx2,fma")]);
}
kernels!(plain_f32, f32, [f32; 4], [1 2]);
kernels!(plain_f64, f64, [f64; 2], [1 2]);

/// A type that convolutions are computed in.
pub(crate) trait HasKernels: 'static + Sized {
    /// The kernels for this CPU.
    fn conv_kernels() -> &'static Kernels<Self>;
}

macro_rules! has_kernels {
    ($($t:ident $avx512:ident $avx2:ident $plain:ident),+) => {$(
        impl HasKernels for $t {
            fn conv_kernels() -> &'static Kernels<$t> {
                #[cfg(target_arch = "x86_64")]
                {
                    if std::arch::is_x86_feature_detected!("avx512f") {
                        return &x86::$avx512::KERNELS;
                    }
                    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                        return &x86::$avx2::KERNELS;
                    }
                }
                &$plain::KERNELS
            }
        }
    )+};
}
has_kernels!(f32 avx512_f32 avx2_f32 plain_f32, f64 avx512_f64 avx2_f64 plain_f64);
