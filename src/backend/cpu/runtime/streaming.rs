//! Prefetches and non-temporal stores on x86-64. On other CPUs these do nothing and are plain copies.

use crate::Element;

/// The size in bytes from which an output is not expected to stay in a cache until it is read.
pub(crate) const LARGE: usize = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 23 };

/// Prefetches the memory of `len` elements. Nothing is accessed, so any address is valid.
#[inline(always)]
pub(crate) fn prefetch<T>(first: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..(len * size_of::<T>()).div_ceil(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access the address; every x86-64 CPU has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.cast::<i8>().wrapping_add(64 * line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, len);
}

/// The number of elements before the first that begins a cache line.
pub(crate) fn until_line<T>(of: &[T]) -> usize {
    of.as_ptr().align_offset(LINE)
}

/// The size of a cache line in bytes.
const LINE: usize = 64;

/// Copies elements with non-temporal stores, which bypass the caches. For each cache line written, one line of each of `ahead` is
/// prefetched, so that reads overlap with writes. The caller must call [`fence`] before another thread may read. The slices must
/// have the same length.
pub(crate) fn copy<T: Element>(from: &[T], to: &mut [T], ahead: &[*const T]) {
    #[cfg(target_arch = "x86_64")]
    {
        let len = from.len().min(to.len());
        // Elements have sizes of 1, 2, 4 and 8, and no padding.
        let per = const { LINE / size_of::<T>() };
        let head = until_line(to).min(len);
        let count = (len - head) / per;
        let tail = head + count * per;
        to[..head].copy_from_slice(&from[..head]);
        // SAFETY: there are `count` whole lines between `head` and `tail`, inside both slices; from `head` on `to` is aligned.
        unsafe { lines::copy(count, from[head..].as_ptr().cast(), to[head..].as_mut_ptr().cast(), ahead) };
        to[tail..].copy_from_slice(&from[tail..]);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = ahead;
        to.copy_from_slice(from);
    }
}

/// Copies of whole cache lines.
#[cfg(target_arch = "x86_64")]
mod lines {
    use super::LINE;
    use std::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128, _mm512_loadu_si512, _mm512_stream_si512,
    };

    /// # Safety
    /// `from` and `to` have `count` lines, which do not overlap; `to` is aligned to lines.
    #[inline]
    pub unsafe fn copy<T>(count: usize, from: *const u8, to: *mut u8, ahead: &[*const T]) {
        // SAFETY: the caller's promise; AVX-512 was detected. SSE2 is part of x86-64.
        unsafe {
            if std::arch::is_x86_feature_detected!("avx512f") {
                return wide(count, from, to, ahead);
            }
            each(count, from, to, ahead, |from, to| {
                for part in (0..LINE).step_by(size_of::<__m128i>()) {
                    _mm_stream_si128(to.add(part).cast(), _mm_loadu_si128(from.add(part).cast()));
                }
            });
        }
    }

    /// # Safety
    /// As [`copy`], on a CPU with AVX-512.
    #[target_feature(enable = "avx512f")]
    unsafe fn wide<T>(count: usize, from: *const u8, to: *mut u8, ahead: &[*const T]) {
        // SAFETY: the caller's promise.
        unsafe {
            each(count, from, to, ahead, |from, to| _mm512_stream_si512(to.cast(), _mm512_loadu_si512(from.cast())));
        }
    }

    /// # Safety
    /// As [`copy`], with `line` as the copy of one line.
    #[inline(always)]
    unsafe fn each<T>(
        count: usize,
        from: *const u8,
        to: *mut u8,
        ahead: &[*const T],
        line: impl Fn(*const u8, *mut u8),
    ) {
        for at in (0..count).map(|line| line * LINE) {
            for next in ahead {
                // SAFETY: a prefetch does not access the address; every x86-64 CPU has the instruction.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast::<i8>().wrapping_add(at)) };
            }
            line(from.wrapping_add(at), to.wrapping_add(at));
        }
    }
}

/// Orders the stores of [`copy`] by this thread before all later stores.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    };
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_a_copy_at_every_alignment() {
        let from: Vec<f32> = (0..100).map(|i| i as f32).collect();
        for start in 0..9 {
            for len in 0..70 {
                let mut to = vec![-1.0_f32; 100];
                copy(&from[start..start + len], &mut to[9 - start..9 - start + len], &[from.as_ptr()]);
                fence();
                assert_eq!(to[9 - start..9 - start + len], from[start..start + len]);
                assert_eq!(to.iter().filter(|&&x| x == -1.0).count(), 100 - len);
            }
        }
        let (from, mut to) = ([1_u8; 50], [0_u8; 50]);
        copy(&from[1..], &mut to[1..], &[]);
        assert_eq!((to[0], &to[1..]), (0, &from[1..]));
    }
}
