//! Ways past the caches, where the CPU has them: elsewhere they are a plain copy and nothing.

use crate::Element;

/// Bytes of an output from which on it is not expected to stay in a cache until it is read.
pub(crate) const LARGE: usize = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 23 };

/// Asks for the memory of `len` elements that will soon be read. Nothing is read, so any address will do.
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

/// Elements up to the first that begins a line of the caches.
pub(crate) fn until_line<T>(of: &[T]) -> usize {
    of.as_ptr().align_offset(LINE)
}

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Copies elements without reading their old place into the caches first, nor leaving the new ones there. For each line
/// that is written, one of each of `ahead` is asked for: what is read soon comes while what was computed leaves. Whoever
/// copies so calls [`fence`] before another thread may read. The slices have one length.
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
        // SAFETY: so many whole lines lie between `head` and `tail`, inside both slices; from `head` on `to` is aligned.
        unsafe { lines::copy(count, from[head..].as_ptr().cast(), to[head..].as_mut_ptr().cast(), ahead) };
        to[tail..].copy_from_slice(&from[tail..]);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = ahead;
        to.copy_from_slice(from);
    }
}

/// Whole lines of the caches.
#[cfg(target_arch = "x86_64")]
mod lines {
    use super::LINE;
    use std::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128, _mm512_loadu_si512, _mm512_stream_si512,
    };

    /// # Safety
    /// Both places have so many lines, which do not overlap; `to` is aligned to lines.
    #[inline]
    pub unsafe fn copy<T>(count: usize, from: *const u8, to: *mut u8, ahead: &[*const T]) {
        // SAFETY: the caller's promise; the CPU has what it was asked for. SSE2 is part of x86-64.
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
    /// As [`copy`], which `line` does for one line.
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

/// Makes what [`copy`] has written by this thread visible before anything written later.
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
