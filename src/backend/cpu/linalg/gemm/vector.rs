//! The vector operations of the kernels of a matrix product, for each instruction set.
//!
//! All functions are inlined into callers that have the instruction set, so they are `inline(always)` without a
//! `target_feature`.

/// A register of [`LANES`](Vector::LANES) numbers.
///
/// # Safety
/// All functions may be called only where the CPU has the implementation's instructions. `load` and `store` take
/// pointers to `LANES` elements, the `_first` versions to `n`, of which there are at most `LANES`.
pub(crate) trait Vector: Copy {
    type Item: Copy;
    const LANES: usize;
    unsafe fn splat(x: Self::Item) -> Self;
    unsafe fn load(from: *const Self::Item) -> Self;
    unsafe fn load_first(from: *const Self::Item, n: usize) -> Self;
    unsafe fn store(self, to: *mut Self::Item);
    unsafe fn store_first(self, to: *mut Self::Item, n: usize);
    unsafe fn add(self, other: Self) -> Self;
    /// `self * factor + sum`, rounded once where the CPU can.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// Prefetches the memory at any address.
    #[inline(always)]
    fn prefetch(at: *const Self::Item) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; SSE is in the baseline.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    #[allow(clippy::wildcard_imports)]
    use std::arch::x86_64::*;

    /// Eight ones and eight zeros: a window into it masks the first `n` of up to eight lanes.
    static WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    static WINDOW64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

    macro_rules! vector {
        ($v:ident, $t:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident,
         |$n:ident| $mask:expr, $mask_load:ident, $mask_store:ident) => {
            impl Vector for $v {
                type Item = $t;
                const LANES: usize = $lanes;
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
                unsafe fn load_first(from: *const $t, $n: usize) -> Self {
                    // SAFETY: as above; lanes outside the mask are not touched.
                    unsafe { $mask_load!($mask, from) }
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(to, self) }
                }
                #[inline(always)]
                unsafe fn store_first(self, to: *mut $t, $n: usize) {
                    // SAFETY: as above; lanes outside the mask are not touched.
                    unsafe { $mask_store!($mask, to, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { $fma(self, factor, sum) }
                }
            }
        };
    }
    macro_rules! load512 {
        ($m:expr, $p:expr) => {
            _mm512_maskz_loadu_ps($m, $p)
        };
    }
    macro_rules! store512 {
        ($m:expr, $p:expr, $x:expr) => {
            _mm512_mask_storeu_ps($p, $m, $x)
        };
    }
    macro_rules! load512d {
        ($m:expr, $p:expr) => {
            _mm512_maskz_loadu_pd($m, $p)
        };
    }
    macro_rules! store512d {
        ($m:expr, $p:expr, $x:expr) => {
            _mm512_mask_storeu_pd($p, $m, $x)
        };
    }
    macro_rules! load256 {
        ($m:expr, $p:expr) => {
            _mm256_maskload_ps($p, $m)
        };
    }
    macro_rules! store256 {
        ($m:expr, $p:expr, $x:expr) => {
            _mm256_maskstore_ps($p, $m, $x)
        };
    }
    macro_rules! load256d {
        ($m:expr, $p:expr) => {
            _mm256_maskload_pd($p, $m)
        };
    }
    macro_rules! store256d {
        ($m:expr, $p:expr, $x:expr) => {
            _mm256_maskstore_pd($p, $m, $x)
        };
    }

    vector!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps,
        |n| ((1_u32 << n) - 1) as __mmask16,
        load512,
        store512
    );
    vector!(
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_fmadd_pd,
        |n| ((1_u32 << n) - 1) as __mmask8,
        load512d,
        store512d
    );
    vector!(
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_fmadd_ps,
        |n| _mm256_loadu_si256(WINDOW.as_ptr().add(8 - n).cast()),
        load256,
        store256
    );
    vector!(
        __m256d,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_fmadd_pd,
        |n| _mm256_loadu_si256(WINDOW64.as_ptr().add(4 - n).cast()),
        load256d,
        store256d
    );
}

macro_rules! plain {
    ($t:ty, $lanes:literal) => {
        impl Vector for [$t; $lanes] {
            type Item = $t;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                [x; $lanes]
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller's pointer to `LANES` elements; an array needs no more alignment than they do.
                unsafe { from.cast::<Self>().read() }
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $t, n: usize) -> Self {
                // SAFETY: `i` is below `n`.
                crate::backend::cpu::runtime::simd::each(|i| if i < n { unsafe { from.add(i).read() } } else { 0.0 })
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: as in `load`.
                unsafe { to.cast::<Self>().write(self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $t, n: usize) {
                for (i, x) in self.into_iter().enumerate().take(n) {
                    // SAFETY: `i` is below `n`.
                    unsafe { to.add(i).write(x) }
                }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                crate::backend::cpu::runtime::simd::each(|i| self[i] + other[i])
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
                crate::backend::cpu::runtime::simd::each(|i| self[i] * factor[i] + sum[i])
            }
        }
    };
}
plain!(f32, 4);
plain!(f64, 2);
