//! The vector operations of the passes, for each instruction set.
//!
//! All functions are inlined into callers that have the instruction set, so they are `inline(always)` without a
//! `target_feature`.

/// The purpose of a prefetch: reading from the L2 cache, reading soon from the L1 cache, or writing.
#[cfg(target_arch = "x86_64")]
mod uses {
    use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1};
    pub(crate) const READ: i32 = _MM_HINT_T1;
    pub(crate) const READ_SOON: i32 = _MM_HINT_T0;
    pub(crate) const WRITE: i32 = _MM_HINT_ET0;
}
#[cfg(not(target_arch = "x86_64"))]
mod uses {
    pub(crate) const READ: i32 = 0;
    pub(crate) const READ_SOON: i32 = 1;
    pub(crate) const WRITE: i32 = 2;
}
pub(crate) use uses::*;

/// A register of [`LANES`](Lanes::LANES) numbers.
///
/// # Safety
/// All functions may be called only where the CPU has the implementation's instructions. `load` and `store` take
/// pointers to `LANES` numbers, aligned as one number is.
pub(crate) trait Lanes: Copy {
    type Part: Copy;
    const LANES: usize;
    /// As many registers as a register has lanes.
    type Tile: Copy + AsMut<[Self]>;
    unsafe fn splat(x: Self::Part) -> Self;
    unsafe fn load(from: *const Self::Part) -> Self;
    unsafe fn store(self, to: *mut Self::Part);
    /// The first `count` numbers, at most `LANES`, and zeros. Only these are read.
    unsafe fn load_first(from: *const Self::Part, count: usize) -> Self;
    /// Writes only the first `count` numbers.
    unsafe fn store_first(self, to: *mut Self::Part, count: usize);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + sum`.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// `self * factor - sum`.
    unsafe fn mul_sub(self, factor: Self, sum: Self) -> Self;
    /// `sum - self * factor`.
    unsafe fn neg_mul_add(self, factor: Self, sum: Self) -> Self;
    /// The numbers at even and at odd positions of two consecutive registers.
    unsafe fn split(self, next: Self) -> (Self, Self);
    /// The opposite of [`split`](Self::split): interleaves the numbers of two registers.
    unsafe fn join(self, other: Self) -> (Self, Self);
    /// The numbers in reverse order.
    unsafe fn reversed(self) -> Self;
    /// Prefetches the memory of two registers, at any address, for [`READ`], [`READ_SOON`] or [`WRITE`].
    #[inline(always)]
    fn prefetch<const USE: i32>(at: *const Self::Part) {
        #[cfg(target_arch = "x86_64")]
        for line in (0..2 * Self::LANES * size_of::<Self::Part>()).step_by(64) {
            let at = at.cast::<i8>().wrapping_add(line);
            // SAFETY: a prefetch reads nothing; a CPU that does not know the one for writing ignores it.
            unsafe { std::arch::x86_64::_mm_prefetch::<USE>(at) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
    /// Zeros.
    unsafe fn tile() -> Self::Tile;
    /// Transposes: number `i` of register `k` becomes number `k` of register `i`.
    unsafe fn transpose(tile: &mut Self::Tile);
}

/// The common part of all implementations.
macro_rules! common {
    ($v:ty, $t:ty, $lanes:literal) => {
        type Part = $t;
        const LANES: usize = $lanes;
        type Tile = [$v; $lanes];
        #[inline(always)]
        unsafe fn tile() -> Self::Tile {
            // SAFETY: the trait's contract.
            unsafe { [Self::splat(0.0); $lanes] }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    macro_rules! lanes {
        ($v:ident, $t:ty, $lanes:literal, $splat:ident $load:ident $store:ident $first:ident $load_first:ident $store_first:ident
         $add:ident $sub:ident $mul:ident
         $fmadd:ident $fmsub:ident $fnmadd:ident, $split:ident $join:ident $reversed:ident $transpose:ident) => {
            impl Lanes for $v {
                common!($v, $t, $lanes);
                #[inline(always)]
                unsafe fn splat(x: $t) -> Self {
                    // SAFETY: the trait's contract, here and below.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(from: *const $t) -> Self {
                    // SAFETY: as above.
                    unsafe { $load(from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn load_first(from: *const $t, count: usize) -> Self {
                    // SAFETY: as above.
                    unsafe { $load_first($first(count), from) }
                }
                #[inline(always)]
                unsafe fn store_first(self, to: *mut $t, count: usize) {
                    // SAFETY: as above.
                    unsafe { $store_first(to, $first(count), self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn sub(self, other: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $sub(self, other) }
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $mul(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fmadd(self, factor, sum) }
                }
                #[inline(always)]
                unsafe fn mul_sub(self, factor: Self, sum: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fmsub(self, factor, sum) }
                }
                #[inline(always)]
                unsafe fn neg_mul_add(self, factor: Self, sum: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fnmadd(self, factor, sum) }
                }
                #[inline(always)]
                unsafe fn split(self, next: Self) -> (Self, Self) {
                    // SAFETY: as above.
                    unsafe { $split(self, next) }
                }
                #[inline(always)]
                unsafe fn join(self, other: Self) -> (Self, Self) {
                    // SAFETY: as above.
                    unsafe { $join(self, other) }
                }
                #[inline(always)]
                unsafe fn reversed(self) -> Self {
                    // SAFETY: as above.
                    unsafe { $reversed(self) }
                }
                #[inline(always)]
                unsafe fn transpose(tile: &mut Self::Tile) {
                    // SAFETY: as above.
                    unsafe { $transpose(tile) }
                }
            }
        };
    }

    /// Which lanes are the first `count`.
    #[inline(always)]
    fn first512(count: usize) -> __mmask16 {
        ((1_u32 << count) - 1) as __mmask16
    }

    #[inline(always)]
    fn first512d(count: usize) -> __mmask8 {
        ((1_u32 << count) - 1) as __mmask8
    }

    /// # Safety
    /// The CPU has AVX2, here and below.
    #[inline(always)]
    unsafe fn first256(count: usize) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), places)
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn first256d(count: usize) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
    }

    /// # Safety
    /// As above, and the numbers of the mask are readable.
    #[inline(always)]
    unsafe fn maskload256(mask: __m256i, from: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_maskload_ps(from, mask) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn maskload256d(mask: __m256i, from: *const f64) -> __m256d {
        // SAFETY: as above.
        unsafe { _mm256_maskload_pd(from, mask) }
    }

    /// # Safety
    /// The CPU has AVX-512, here and below, or AVX2.
    #[inline(always)]
    unsafe fn split512(a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: the caller's promise.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn join512(a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn split512d(a: __m512d, b: __m512d) -> (__m512d, __m512d) {
        // SAFETY: the caller's promise.
        unsafe {
            let (even, odd) =
                (_mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15));
            (_mm512_permutex2var_pd(a, even, b), _mm512_permutex2var_pd(a, odd, b))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn join512d(a: __m512d, b: __m512d) -> (__m512d, __m512d) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) =
                (_mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15));
            (_mm512_permutex2var_pd(a, low, b), _mm512_permutex2var_pd(a, high, b))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn split256(a: __m256, b: __m256) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
            (_mm256_shuffle_ps::<0b10_00_10_00>(low, high), _mm256_shuffle_ps::<0b11_01_11_01>(low, high))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn join256(a: __m256, b: __m256) -> (__m256, __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn split256d(a: __m256d, b: __m256d) -> (__m256d, __m256d) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_permute2f128_pd::<0x20>(a, b), _mm256_permute2f128_pd::<0x31>(a, b));
            (_mm256_unpacklo_pd(low, high), _mm256_unpackhi_pd(low, high))
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn join256d(a: __m256d, b: __m256d) -> (__m256d, __m256d) {
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            (_mm256_permute2f128_pd::<0x20>(low, high), _mm256_permute2f128_pd::<0x31>(low, high))
        }
    }

    /// Blocks of four by four are transposed within quarters of registers, then the blocks are.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn transpose512(x: &mut [__m512; 16]) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut at = 0;
            while at < 16 {
                let (a, b) = (_mm512_unpacklo_ps(x[at], x[at + 1]), _mm512_unpackhi_ps(x[at], x[at + 1]));
                let (c, d) = (_mm512_unpacklo_ps(x[at + 2], x[at + 3]), _mm512_unpackhi_ps(x[at + 2], x[at + 3]));
                let [a, b, c, d] = [_mm512_castps_pd(a), _mm512_castps_pd(b), _mm512_castps_pd(c), _mm512_castps_pd(d)];
                x[at] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
                x[at + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
                x[at + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
                x[at + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
                at += 4;
            }
            let mut at = 0;
            while at < 4 {
                // The even quarters of two registers, and the odd ones; then the same of these.
                let a = _mm512_shuffle_f32x4::<0b10_00_10_00>(x[at], x[at + 4]);
                let b = _mm512_shuffle_f32x4::<0b10_00_10_00>(x[at + 8], x[at + 12]);
                let c = _mm512_shuffle_f32x4::<0b11_01_11_01>(x[at], x[at + 4]);
                let d = _mm512_shuffle_f32x4::<0b11_01_11_01>(x[at + 8], x[at + 12]);
                x[at] = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
                x[at + 4] = _mm512_shuffle_f32x4::<0b10_00_10_00>(c, d);
                x[at + 8] = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
                x[at + 12] = _mm512_shuffle_f32x4::<0b11_01_11_01>(c, d);
                at += 1;
            }
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn transpose512d(x: &mut [__m512d; 8]) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut at = 0;
            while at < 8 {
                (x[at], x[at + 1]) = (_mm512_unpacklo_pd(x[at], x[at + 1]), _mm512_unpackhi_pd(x[at], x[at + 1]));
                at += 2;
            }
            let mut at = 0;
            while at < 2 {
                let a = _mm512_shuffle_f64x2::<0b10_00_10_00>(x[at], x[at + 2]);
                let b = _mm512_shuffle_f64x2::<0b10_00_10_00>(x[at + 4], x[at + 6]);
                let c = _mm512_shuffle_f64x2::<0b11_01_11_01>(x[at], x[at + 2]);
                let d = _mm512_shuffle_f64x2::<0b11_01_11_01>(x[at + 4], x[at + 6]);
                x[at] = _mm512_shuffle_f64x2::<0b10_00_10_00>(a, b);
                x[at + 2] = _mm512_shuffle_f64x2::<0b10_00_10_00>(c, d);
                x[at + 4] = _mm512_shuffle_f64x2::<0b11_01_11_01>(a, b);
                x[at + 6] = _mm512_shuffle_f64x2::<0b11_01_11_01>(c, d);
                at += 1;
            }
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn transpose256(x: &mut [__m256; 8]) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut at = 0;
            while at < 8 {
                let (a, b) = (_mm256_unpacklo_ps(x[at], x[at + 1]), _mm256_unpackhi_ps(x[at], x[at + 1]));
                let (c, d) = (_mm256_unpacklo_ps(x[at + 2], x[at + 3]), _mm256_unpackhi_ps(x[at + 2], x[at + 3]));
                x[at] = _mm256_shuffle_ps::<0b01_00_01_00>(a, c);
                x[at + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, c);
                x[at + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(b, d);
                x[at + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(b, d);
                at += 4;
            }
            let mut at = 0;
            while at < 4 {
                let (a, b) = (x[at], x[at + 4]);
                x[at] = _mm256_permute2f128_ps::<0x20>(a, b);
                x[at + 4] = _mm256_permute2f128_ps::<0x31>(a, b);
                at += 1;
            }
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn transpose256d(x: &mut [__m256d; 4]) {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (_mm256_unpacklo_pd(x[0], x[1]), _mm256_unpackhi_pd(x[0], x[1]));
            let (c, d) = (_mm256_unpacklo_pd(x[2], x[3]), _mm256_unpackhi_pd(x[2], x[3]));
            x[0] = _mm256_permute2f128_pd::<0x20>(a, c);
            x[1] = _mm256_permute2f128_pd::<0x20>(b, d);
            x[2] = _mm256_permute2f128_pd::<0x31>(a, c);
            x[3] = _mm256_permute2f128_pd::<0x31>(b, d);
        }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn reversed512(x: __m512) -> __m512 {
        // SAFETY: the caller's promise, here and below.
        unsafe { _mm512_permutexvar_ps(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn reversed512d(x: __m512d) -> __m512d {
        // SAFETY: as above.
        unsafe { _mm512_permutexvar_pd(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), x) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn reversed256(x: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0)) }
    }

    /// # Safety
    /// As above.
    #[inline(always)]
    unsafe fn reversed256d(x: __m256d) -> __m256d {
        // SAFETY: as above.
        unsafe { _mm256_permute4x64_pd::<0b00_01_10_11>(x) }
    }

    lanes!(__m512, f32, 16, _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps first512
        _mm512_maskz_loadu_ps _mm512_mask_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps
        _mm512_fmadd_ps _mm512_fmsub_ps _mm512_fnmadd_ps, split512 join512 reversed512 transpose512);
    lanes!(__m512d, f64, 8, _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd first512d
        _mm512_maskz_loadu_pd _mm512_mask_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd
        _mm512_fmadd_pd _mm512_fmsub_pd _mm512_fnmadd_pd, split512d join512d reversed512d transpose512d);
    lanes!(__m256, f32, 8, _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps first256
        maskload256 _mm256_maskstore_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps
        _mm256_fmadd_ps _mm256_fmsub_ps _mm256_fnmadd_ps, split256 join256 reversed256 transpose256);
    lanes!(__m256d, f64, 4, _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd first256d
        maskload256d _mm256_maskstore_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd
        _mm256_fmadd_pd _mm256_fmsub_pd _mm256_fnmadd_pd, split256d join256d reversed256d transpose256d);
}

/// `[f(0), f(1), ..]`, inlined.
#[inline(always)]
fn each<T: Copy + Default, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [T::default(); N];
    let mut k = 0;
    while k < N {
        all[k] = f(k);
        k += 1;
    }
    all
}

/// Arrays, which the compiler vectorizes, for other architectures; of one number for old CPUs.
macro_rules! plain {
    ($t:ty, $lanes:literal) => {
        impl Lanes for [$t; $lanes] {
            common!([$t; $lanes], $t, $lanes);
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                [x; $lanes]
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller's pointer to `LANES` numbers; an array needs no more alignment than they do.
                unsafe { from.cast::<Self>().read() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: as in `load`.
                unsafe { to.cast::<Self>().write(self) }
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $t, count: usize) -> Self {
                // SAFETY: as in `load`, for `count` numbers.
                each(|i| if i < count { unsafe { from.add(i).read() } } else { 0.0 })
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $t, count: usize) {
                for (i, x) in self.into_iter().enumerate().take(count) {
                    // SAFETY: as above.
                    unsafe { to.add(i).write(x) };
                }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                each(|i| self[i] + other[i])
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                each(|i| self[i] - other[i])
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                each(|i| self[i] * other[i])
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                each(|i| self[i] * factor[i] + sum[i])
            }
            #[inline(always)]
            unsafe fn mul_sub(self, factor: Self, sum: Self) -> Self {
                each(|i| self[i] * factor[i] - sum[i])
            }
            #[inline(always)]
            unsafe fn neg_mul_add(self, factor: Self, sum: Self) -> Self {
                each(|i| sum[i] - self[i] * factor[i])
            }
            #[inline(always)]
            unsafe fn split(self, next: Self) -> (Self, Self) {
                let at = |i: usize| if i < $lanes { self[i] } else { next[i - $lanes] };
                (each(|i| at(2 * i)), each(|i| at(2 * i + 1)))
            }
            #[inline(always)]
            unsafe fn join(self, other: Self) -> (Self, Self) {
                let at = |i: usize| if i % 2 == 0 { self[i / 2] } else { other[i / 2] };
                (each(at), each(|i| at(i + $lanes)))
            }
            #[inline(always)]
            unsafe fn reversed(self) -> Self {
                each(|i| self[$lanes - 1 - i])
            }
            #[inline(always)]
            unsafe fn transpose(tile: &mut Self::Tile) {
                *tile = each(|i| each(|k| tile[k][i]));
            }
        }
    };
}
#[cfg(any(test, target_arch = "x86_64"))]
plain!(f32, 1);
#[cfg(any(test, target_arch = "x86_64"))]
plain!(f64, 1);
#[cfg(any(test, not(target_arch = "x86_64")))]
plain!(f32, 4);
#[cfg(any(test, not(target_arch = "x86_64")))]
plain!(f64, 2);
