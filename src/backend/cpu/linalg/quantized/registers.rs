//! Unpacking of groups into registers of AVX-512, as [`unpack`](super::unpack) does it in memory, and their conversion to
//! floats, as in [`widen`](super::widen()).

use super::unpack::{GROUP, Group, PART, Unpack, blocks, clear, half, scale_by_16, scales_and_minima};
use crate::backend::cpu::runtime::simd::each;
use crate::backend::spec::NF4;
use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_setr_epi16, _mm_srli_epi16, _mm_unpackhi_epi16, _mm_unpacklo_epi8,
    _mm_unpacklo_epi16, _mm256_loadu_si256, _mm256_set_m128i, _mm256_set1_epi8, _mm256_slli_epi16, _mm256_srli_epi16,
    _mm512_add_ps, _mm512_and_si512, _mm512_broadcast_i64x4, _mm512_castsi256_si512, _mm512_castsi512_si128,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtepu8_epi64, _mm512_cvtph_ps, _mm512_extracti32x4_epi32,
    _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_mul_ps, _mm512_or_si512,
    _mm512_permutexvar_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps,
    _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi16, _mm512_srli_epi64, _mm512_store_ps, _mm512_storeu_ps,
    _mm512_sub_epi32, _mm512_test_epi8_mask, _mm512_xor_si512,
};

/// The scales of a format with blocks of 32, which begin with a scale and, if `SHIFTED`, a minimum.
///
/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
unsafe fn small_scales<const BYTES: usize, const SHIFTED: bool>(blocks: &[[u8; BYTES]; 8], to: &mut Group) {
    let eight = |at: usize| -> [i16; 8] { each(|b| i16::from_le_bytes([blocks[b][at], blocks[b][at + 1]])) };
    // SAFETY: the fields of a group are aligned to 64 bytes; the features are the caller's promise.
    unsafe {
        let twice = |[a, b, c, d, e, f, g, h]: [i16; 8]| {
            let bits = _mm_setr_epi16(a, b, c, d, e, f, g, h);
            _mm512_cvtph_ps(_mm256_set_m128i(_mm_unpackhi_epi16(bits, bits), _mm_unpacklo_epi16(bits, bits)))
        };
        _mm512_store_ps(to.scales.as_mut_ptr(), twice(eight(0)));
        if SHIFTED {
            _mm512_store_ps(to.shifts.as_mut_ptr(), twice(eight(2)));
        }
    }
}

/// A format with blocks of 32: a scale, a minimum if `SHIFTED`, fifth bits if `FIVE`, and nibbles.
///
/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
pub(super) unsafe fn small_blocks<const BYTES: usize, const SHIFTED: bool, const FIVE: bool>(
    row: &[u8],
    index: usize,
    to: &mut Group,
) -> [__m512i; 4] {
    let mut padded = [[0; BYTES]; 8];
    let some = blocks::<BYTES, 8>(row, index, &mut padded);
    // SAFETY: the caller's promise.
    unsafe { small_scales::<BYTES, SHIFTED>(some, to) };
    let high_at = if SHIFTED { 4 } else { 2 };
    let at = high_at + if FIVE { 4 } else { 0 };
    // SAFETY: the nibbles are the last 16 bytes of a block; the features are the caller's promise.
    unsafe {
        // The low halves of 16 bytes, then the high halves.
        let wide = |block: &[u8; BYTES]| {
            let bytes = _mm_loadu_si128(block.as_ptr().add(at).cast());
            _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes)
        };
        each(|pair| {
            let (first, second) = (&some[2 * pair], &some[2 * pair + 1]);
            let both = _mm512_inserti64x4(_mm512_castsi256_si512(wide(first)), wide(second), 1);
            let codes = _mm512_and_si512(both, _mm512_set1_epi8(15));
            if !FIVE {
                return codes;
            }
            let bits = |block: &[u8; BYTES]| {
                let bits = [block[high_at], block[high_at + 1], block[high_at + 2], block[high_at + 3]];
                u64::from(u32::from_le_bytes(bits))
            };
            _mm512_mask_add_epi8(codes, bits(first) | bits(second) << 32, codes, _mm512_set1_epi8(16))
        })
    }
}

/// Q4_K and Q5_K: the scales and minima of a block.
///
/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
unsafe fn scale_by_32(block: &[u8], to: &mut Group) {
    let (scale, minimum) = (half(block[0], block[1]), half(block[2], block[3]));
    let (scales, minima) = scales_and_minima(&block[4..16]);
    // SAFETY: the fields of a group are aligned to 64 bytes; the features are the caller's promise.
    unsafe {
        let twice = |codes: [u8; 8], factor: f32| {
            let codes = _mm_cvtsi64_si128(i64::from_le_bytes(codes));
            let codes = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(codes, codes));
            _mm512_mul_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(factor))
        };
        _mm512_store_ps(to.scales.as_mut_ptr(), twice(scales, scale));
        _mm512_store_ps(to.shifts.as_mut_ptr(), twice(minima, -minimum));
    }
}

/// 64 elements of 4 bits: the low halves of 32 bytes, then the high halves.
///
/// # Safety
/// 32 bytes can be read, and the CPU has the features of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
unsafe fn nibbles(from: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = _mm256_loadu_si256(from.cast());
        let both = _mm512_inserti64x4(_mm512_castsi256_si512(bytes), _mm256_srli_epi16(bytes, 4), 1);
        _mm512_and_si512(both, _mm512_set1_epi8(15))
    }
}

/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
pub(super) unsafe fn q8_0(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
    let mut padded = [[0; 34]; 8];
    let some = blocks::<34, 8>(row, index, &mut padded);
    // SAFETY: the caller's promise.
    unsafe { small_scales::<34, false>(some, to) };
    // SAFETY: the elements are the last 32 bytes of a block; the features are the caller's promise.
    unsafe {
        let wide = |block: &[u8; 34]| _mm256_loadu_si256(block.as_ptr().add(2).cast());
        each(|pair| {
            let first = _mm512_castsi256_si512(wide(&some[2 * pair]));
            let both = _mm512_inserti64x4(first, wide(&some[2 * pair + 1]), 1);
            _mm512_xor_si512(both, _mm512_set1_epi8(i8::MIN))
        })
    }
}

/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
pub(super) unsafe fn q4k(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
    let Some(block) = row.as_chunks::<144>().0.get(index) else {
        clear(to);
        // SAFETY: the features are the caller's promise.
        return unsafe { [_mm512_setzero_si512(); 4] };
    };
    // SAFETY: the caller's promise.
    unsafe { scale_by_32(block, to) };
    // SAFETY: the last 128 bytes are the elements; the features are the caller's promise.
    unsafe { each(|chunk| nibbles(block.as_ptr().add(16 + 32 * chunk))) }
}

/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
pub(super) unsafe fn q5k(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
    let Some(block) = row.as_chunks::<176>().0.get(index) else {
        clear(to);
        // SAFETY: the features are the caller's promise.
        return unsafe { [_mm512_setzero_si512(); 4] };
    };
    // SAFETY: the caller's promise.
    unsafe { scale_by_32(block, to) };
    // SAFETY: 32 bytes of fifth bits, and 128 of elements, which are the last; the features are the caller's promise.
    unsafe {
        let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.as_ptr().add(16).cast()));
        each(|chunk| {
            let bit = |at: usize| _mm256_set1_epi8((1_u8 << at) as i8);
            let low = _mm512_castsi256_si512(bit(2 * chunk));
            let mask = _mm512_test_epi8_mask(high, _mm512_inserti64x4(low, bit(2 * chunk + 1), 1));
            let codes = nibbles(block.as_ptr().add(48 + 32 * chunk));
            _mm512_mask_add_epi8(codes, mask, codes, _mm512_set1_epi8(16))
        })
    }
}

/// # Safety
/// The promise of [`Unpack::unpack_512`](super::unpack::Unpack::unpack_512).
#[inline(always)]
pub(super) unsafe fn q6k(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
    let Some(block) = row.as_chunks::<210>().0.get(index) else {
        clear(to);
        // SAFETY: the features are the caller's promise.
        return unsafe { [_mm512_setzero_si512(); 4] };
    };
    scale_by_16(block, to);
    // SAFETY: 128 bytes of low and 64 of high bits; the features are the caller's promise.
    unsafe {
        each(|at| {
            let low = _mm512_loadu_si512(block.as_ptr().add(64 * (at / 2)).cast());
            let high = _mm256_loadu_si256(block.as_ptr().add(128 + 32 * (at / 2)).cast());
            // Two bits for each of 32 elements, and the next two for the other 32, as the bits of values 16 and 32.
            let (first, second, low) = if at % 2 == 0 {
                (_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), low)
            } else {
                (high, _mm256_srli_epi16(high, 2), _mm512_srli_epi16(low, 4))
            };
            let high = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
            let high = _mm512_and_si512(high, _mm512_set1_epi8(48));
            _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)), high)
        })
    }
}

/// Converts a row from column `first` on, where a group begins, to floats.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
pub(super) unsafe fn widen<U: Unpack, T: From<f32> + Copy>(row: &[u8], first: usize, to: &mut [T]) {
    let mut group = Group::new();
    for (index, to) in to.chunks_mut(GROUP).enumerate() {
        // SAFETY: the caller's promise.
        let codes = unsafe { U::unpack_512(row, first / GROUP + index, &mut group) };
        let mut values = [0.0_f32; GROUP];
        for (at, codes) in codes.into_iter().enumerate() {
            let quarters = [
                _mm512_castsi512_si128(codes),
                _mm512_extracti32x4_epi32::<1>(codes),
                _mm512_extracti32x4_epi32::<2>(codes),
                _mm512_extracti32x4_epi32::<3>(codes),
            ];
            for (quarter, codes) in quarters.into_iter().enumerate() {
                let part = 4 * at + quarter;
                let codes = _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(i32::from(U::OFFSET)));
                let mut all = _mm512_mul_ps(_mm512_cvtepi32_ps(codes), _mm512_set1_ps(group.scales[part]));
                if U::SHIFTED {
                    // No fused operation: the same bits as the reference.
                    all = _mm512_add_ps(all, _mm512_set1_ps(group.shifts[part]));
                }
                // SAFETY: a group has 16 parts of 16 elements.
                unsafe { _mm512_storeu_ps(values.as_mut_ptr().add(PART * part), all) };
            }
        }
        for (to, value) in to.iter_mut().zip(values) {
            *to = T::from(value);
        }
    }
}

/// As [`widen`], for NF4: a byte becomes two indices into the table of values, the first from its high half.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
pub(super) unsafe fn widen_nf4<T: From<f32> + Copy>(row: &[u8], first: usize, to: &mut [T]) {
    // SAFETY: the table has 16 values.
    let table = unsafe { _mm512_loadu_ps(NF4.as_ptr()) };
    let blocks = &row.as_chunks::<36>().0[first / 64..];
    for (block, to) in blocks.iter().zip(to.as_chunks_mut::<64>().0) {
        let scale = _mm512_set1_ps(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        for (eight, to) in block[4..].as_chunks::<8>().0.iter().zip(to.as_chunks_mut::<16>().0) {
            let bytes = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(*eight)));
            let low = _mm512_slli_epi64::<32>(_mm512_and_si512(bytes, _mm512_set1_epi64(15)));
            let indices = _mm512_or_si512(_mm512_srli_epi64::<4>(bytes), low);
            let mut values = [0.0_f32; 16];
            // SAFETY: there are 16 values.
            unsafe {
                _mm512_storeu_ps(values.as_mut_ptr(), _mm512_mul_ps(_mm512_permutexvar_ps(indices, table), scale));
            }
            for (to, value) in to.iter_mut().zip(values) {
                *to = T::from(value);
            }
        }
    }
}
