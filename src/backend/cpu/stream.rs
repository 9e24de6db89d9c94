//! Ways past the caches, where the processor has them: elsewhere they are a plain copy and nothing.

use crate::Element;

/// Bytes of an output from which on it is not expected to stay in a cache until it is read.
pub(crate) const LARGE: usize = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 24 };

/// Asks for the memory of `len` elements that will soon be read. Nothing is read, so any address will do.
#[inline(always)]
pub(crate) fn prefetch<T>(first: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..(len * size_of::<T>()).div_ceil(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access the address; every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.cast::<i8>().wrapping_add(64 * line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, len);
}

/// Copies elements without reading their old place into the caches first, nor leaving the new ones there. Whoever copies
/// so calls [`fence`] before another thread may read. The slices have one length.
#[inline(always)]
pub(crate) fn copy<T: Element>(from: &[T], to: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        const WIDE: usize = size_of::<__m128i>();
        // Elements have sizes of 1, 2, 4 and 8, and no padding.
        let per = const { WIDE / size_of::<T>() };
        let head = to.as_ptr().align_offset(WIDE).min(to.len()).min(from.len());
        let wide = (to.len().min(from.len()) - head) / per;
        let tail = head + wide * per;
        to[..head].copy_from_slice(&from[..head]);
        for i in 0..wide {
            // SAFETY: `wide` whole vectors lie between `head` and `tail`, inside both slices; from `head` on `to` is
            // aligned for vectors. SSE2 is part of x86-64.
            unsafe {
                let at = head + i * per;
                let x = _mm_loadu_si128(from.as_ptr().add(at).cast());
                _mm_stream_si128(to.as_mut_ptr().add(at).cast(), x);
            }
        }
        to[tail..].copy_from_slice(&from[tail..]);
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Makes what [`copy`] has written by this thread visible before anything written later.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_a_copy_at_every_alignment() {
        let from: Vec<f32> = (0..100).map(|i| i as f32).collect();
        for start in 0..9 {
            for len in 0..70 {
                let mut to = vec![-1.0_f32; 100];
                copy(&from[start..start + len], &mut to[9 - start..9 - start + len]);
                fence();
                assert_eq!(to[9 - start..9 - start + len], from[start..start + len]);
                assert_eq!(to.iter().filter(|&&x| x == -1.0).count(), 100 - len);
            }
        }
        let (from, mut to) = ([1_u8; 50], [0_u8; 50]);
        copy(&from[1..], &mut to[1..]);
        assert_eq!((to[0], &to[1..]), (0, &from[1..]));
    }
}
