//! Unpacking of quantised rows into small integers and scales, 256 elements at a time. The loops are plain, and vectorised by
//! the compiler.

#[cfg(target_arch = "x86_64")]
use super::registers;
use crate::backend::cpu::runtime::simd::each;
use crate::backend::spec::INT8_SCALE;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m512i, _mm512_load_si512};

/// Elements that are unpacked together: one block of the K-formats, eight blocks of 32.
pub(super) const GROUP: usize = 256;
/// Elements that share a scale after unpacking.
pub(super) const PART: usize = 16;
/// Scales of a group.
pub(super) const PARTS: usize = GROUP / PART;

/// A group of elements. Element `i` is `scales[i / PART] * (codes[i] - OFFSET) + shifts[i / PART]`. In the last group of a
/// row the scales and shifts after its end are 0.
#[repr(align(64))]
pub(super) struct Group {
    pub codes: [u8; GROUP],
    pub scales: [f32; PARTS],
    pub shifts: [f32; PARTS],
}

impl Group {
    pub fn new() -> Group {
        Group { codes: [0; GROUP], scales: [0.0; PARTS], shifts: [0.0; PARTS] }
    }
}

/// A format whose elements are integers times scales.
pub(super) trait Unpack {
    /// What is subtracted from the codes: 0 or a power of two.
    const OFFSET: u8;
    /// Whether elements have a shift. If not, `shifts` is not written.
    const SHIFTED: bool;
    /// Unpacks the group of this index of a row.
    fn unpack(row: &[u8], index: usize, to: &mut Group);

    /// As [`unpack`](Self::unpack), with the codes in registers; those of the group need not be written.
    ///
    /// # Safety
    /// The CPU has AVX-512 with the extensions F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        Self::unpack(row, index, to);
        // SAFETY: the codes are aligned to 64 bytes, and there are four times as many.
        each(|at| unsafe { _mm512_load_si512(to.codes.as_ptr().add(64 * at).cast()) })
    }
}

/// The value of a half-precision number, by integer operations that are vectorised.
#[inline(always)]
pub(super) fn half(low: u8, high: u8) -> f32 {
    let bits = u32::from(low) | u32::from(high) << 8;
    let magnitude = (bits & 0x7fff) << 13;
    // The exponent's bias is 15 there and 127 here; subnormal numbers are subnormal here, too, before the product.
    let wide = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = if magnitude >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(wide.to_bits() | special | (bits & 0x8000) << 16)
}

/// The `N` blocks of a group, the blocks after the end of the row with zeros, which are scales of 0.
#[inline(always)]
pub(super) fn blocks<'a, const BYTES: usize, const N: usize>(
    row: &'a [u8],
    index: usize,
    padded: &'a mut [[u8; BYTES]; N],
) -> &'a [[u8; BYTES]; N] {
    let all = row.as_chunks::<BYTES>().0;
    let rest = &all[(index * N).min(all.len())..];
    if let Some(whole) = rest.first_chunk::<N>() {
        return whole;
    }
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// A group after the end of the row.
#[cold]
pub(super) fn clear(to: &mut Group) {
    to.scales.fill(0.0);
    to.shifts.fill(0.0);
}

/// Spreads eight bits to the bits of value 16 of eight bytes.
#[inline(always)]
fn spread(bits: u8) -> [u8; 8] {
    let each = (u64::from(bits) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    (((each + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080) >> 3).to_le_bytes()
}

/// Eight numbers of half precision, each twice.
#[inline(always)]
fn halves_twice<const BYTES: usize>(blocks: &[[u8; BYTES]; 8], at: usize) -> [f32; PARTS] {
    let bits: [u16; 8] = each(|b| u16::from_le_bytes([blocks[b][at], blocks[b][at + 1]]));
    let mut values = [0.0; 8];
    for b in 0..8 {
        let [low, high] = bits[b].to_le_bytes();
        values[b] = half(low, high);
    }
    each(|i| values[i / 2])
}

/// The scales of a format with blocks of 32, which begin with a scale and, if `SHIFTED`, a minimum.
#[inline(always)]
fn small_scales<const BYTES: usize, const SHIFTED: bool>(blocks: &[[u8; BYTES]; 8], to: &mut Group) {
    to.scales = halves_twice(blocks, 0);
    if SHIFTED {
        to.shifts = halves_twice(blocks, 2);
    }
}

/// A format with blocks of 32: a scale, a minimum if `SHIFTED`, fifth bits if `FIVE`, and nibbles.
#[inline(always)]
fn small_blocks<const BYTES: usize, const SHIFTED: bool, const FIVE: bool>(row: &[u8], index: usize, to: &mut Group) {
    let mut padded = [[0; BYTES]; 8];
    let some = blocks::<BYTES, 8>(row, index, &mut padded);
    let high_at = if SHIFTED { 4 } else { 2 };
    let at = high_at + if FIVE { 4 } else { 0 };
    for (block, codes) in some.iter().zip(to.codes.as_chunks_mut::<32>().0) {
        for i in 0..16 {
            let byte = block[at + i];
            codes[i] = byte & 15;
            codes[16 + i] = byte >> 4;
        }
        if FIVE {
            for k in 0..4 {
                let high = spread(block[high_at + k]);
                for i in 0..8 {
                    codes[8 * k + i] |= high[i];
                }
            }
        }
    }
    small_scales::<BYTES, SHIFTED>(some, to);
}

pub(super) struct Q4_0;
impl Unpack for Q4_0 {
    const OFFSET: u8 = 8;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<18, false, false>(row, index, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::small_blocks::<18, false, false>(row, index, to) }
    }
}

pub(super) struct Q4_1;
impl Unpack for Q4_1 {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<20, true, false>(row, index, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::small_blocks::<20, true, false>(row, index, to) }
    }
}

pub(super) struct Q5_0;
impl Unpack for Q5_0 {
    const OFFSET: u8 = 16;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<22, false, true>(row, index, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::small_blocks::<22, false, true>(row, index, to) }
    }
}

pub(super) struct Q5_1;
impl Unpack for Q5_1 {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<24, true, true>(row, index, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::small_blocks::<24, true, true>(row, index, to) }
    }
}

pub(super) struct Q8_0;
impl Unpack for Q8_0 {
    const OFFSET: u8 = 128;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let mut padded = [[0; 34]; 8];
        let some = blocks::<34, 8>(row, index, &mut padded);
        small_scales::<34, false>(some, to);
        for (block, codes) in some.iter().zip(to.codes.as_chunks_mut::<32>().0) {
            for i in 0..32 {
                codes[i] = block[2 + i] ^ 0x80;
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::q8_0(row, index, to) }
    }
}

/// The eight scales and minima of 6 bits in 12 bytes, four bytes at a time.
#[inline(always)]
pub(super) fn scales_and_minima(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let four = |at: usize| u32::from_le_bytes([packed[at], packed[at + 1], packed[at + 2], packed[at + 3]]);
    let (a, b, c) = (four(0), four(4), four(8));
    let eight = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    let high = |of: u32| (of >> 6 & 0x0303_0303) << 4;
    let scales = eight(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | high(a));
    let minima = eight(b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | high(b));
    (scales, minima)
}

/// Q4_K and Q5_K: the scales and minima of a block.
#[inline(always)]
fn scale_by_32(block: &[u8], to: &mut Group) {
    let (scale, minimum) = (half(block[0], block[1]), half(block[2], block[3]));
    let (scales, minima) = scales_and_minima(&block[4..16]);
    for i in 0..PARTS {
        to.scales[i] = scale * f32::from(scales[i / 2]);
        to.shifts[i] = -(minimum * f32::from(minima[i / 2]));
    }
}

pub(super) struct Q4K;
impl Unpack for Q4K {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<144>().0.get(index) else { return clear(to) };
        for chunk in 0..4 {
            for i in 0..32 {
                let byte = block[16 + 32 * chunk + i];
                to.codes[64 * chunk + i] = byte & 15;
                to.codes[64 * chunk + 32 + i] = byte >> 4;
            }
        }
        scale_by_32(block, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::q4k(row, index, to) }
    }
}

pub(super) struct Q5K;
impl Unpack for Q5K {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<176>().0.get(index) else { return clear(to) };
        for chunk in 0..4 {
            for i in 0..32 {
                let (byte, high) = (block[48 + 32 * chunk + i], block[16 + i] >> (2 * chunk));
                to.codes[64 * chunk + i] = byte & 15 | (high & 1) << 4;
                to.codes[64 * chunk + 32 + i] = byte >> 4 | (high & 2) << 3;
            }
        }
        scale_by_32(block, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::q5k(row, index, to) }
    }
}

/// Q6_K: the scales of a block.
#[inline(always)]
pub(super) fn scale_by_16(block: &[u8; 210], to: &mut Group) {
    let scale = half(block[208], block[209]);
    for i in 0..PARTS {
        to.scales[i] = scale * f32::from(block[192 + i] as i8);
    }
}

pub(super) struct Q6K;
impl Unpack for Q6K {
    const OFFSET: u8 = 32;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<210>().0.get(index) else { return clear(to) };
        for h in 0..2 {
            for i in 0..32 {
                let (first, second) = (block[64 * h + i], block[64 * h + 32 + i]);
                let high = block[128 + 32 * h + i];
                to.codes[128 * h + i] = first & 15 | (high & 3) << 4;
                to.codes[128 * h + 32 + i] = second & 15 | (high & 12) << 2;
                to.codes[128 * h + 64 + i] = first >> 4 | high & 48;
                to.codes[128 * h + 96 + i] = second >> 4 | (high & 192) >> 2;
            }
        }
        scale_by_16(block, to);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn unpack_512(row: &[u8], index: usize, to: &mut Group) -> [__m512i; 4] {
        // SAFETY: the caller's promise.
        unsafe { registers::q6k(row, index, to) }
    }
}

/// Writes elements of 2 bits: of 64 bytes, 32 have the first four runs of 32, the others the next.
#[inline(always)]
fn pairs(bytes: &[u8], codes: &mut [u8; GROUP]) {
    for run in 0..8 {
        for i in 0..32 {
            codes[32 * run + i] = bytes[32 * (run / 4) + i] >> (2 * (run % 4)) & 3;
        }
    }
}

pub(super) struct Q2K;
impl Unpack for Q2K {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<84>().0.get(index) else { return clear(to) };
        pairs(&block[16..80], &mut to.codes);
        let (scale, minimum) = (half(block[80], block[81]), half(block[82], block[83]));
        for (i, own) in block[..PARTS].iter().enumerate() {
            to.scales[i] = scale * f32::from(own & 15);
            to.shifts[i] = -(minimum * f32::from(own >> 4));
        }
    }
}

pub(super) struct Q3K;
impl Unpack for Q3K {
    const OFFSET: u8 = 4;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<110>().0.get(index) else { return clear(to) };
        pairs(&block[32..96], &mut to.codes);
        for run in 0..8 {
            for (code, high) in to.codes[32 * run..].iter_mut().zip(&block[..32]) {
                *code |= (high >> run & 1) << 2;
            }
        }
        let (packed, scale) = (&block[96..108], half(block[108], block[109]));
        for i in 0..PARTS {
            let low = packed[i % 8] >> (4 * (i / 8)) & 15;
            let code = low | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4;
            to.scales[i] = scale * (f32::from(code) - 32.0);
        }
    }
}

pub(super) struct Int8;
impl Unpack for Int8 {
    const OFFSET: u8 = 128;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let scale = f32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        let rest = &row[(INT8_SCALE + index * GROUP).min(row.len())..];
        let rest = &rest[..rest.len().min(GROUP)];
        for (to, &byte) in to.codes.iter_mut().zip(rest) {
            *to = byte ^ 0x80;
        }
        // The vectors that are multiplied are 0 after the end of the row.
        to.scales.fill(scale);
    }
}

/// Groups of `SIZE` elements in `BYTES`: scale, zero point, nibbles.
pub(super) struct Int4<const SIZE: usize, const BYTES: usize>;
impl<const SIZE: usize, const BYTES: usize> Unpack for Int4<SIZE, BYTES> {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let mut padded = [[0; BYTES]; GROUP / 32];
        let all = row.as_chunks::<BYTES>().0;
        let rest = &all[(index * (GROUP / SIZE)).min(all.len())..];
        let count = rest.len().min(GROUP / SIZE);
        padded[..count].copy_from_slice(&rest[..count]);
        let parts = SIZE / PART;
        for (b, block) in padded[..GROUP / SIZE].iter().enumerate() {
            let codes = &mut to.codes[SIZE * b..SIZE * b + SIZE];
            for i in 0..SIZE / 2 {
                codes[i] = block[3 + i] & 15;
                codes[SIZE / 2 + i] = block[3 + i] >> 4;
            }
            let scale = half(block[0], block[1]);
            let shift = -scale * f32::from(block[2]);
            for part in parts * b..parts * b + parts {
                (to.scales[part], to.shifts[part]) = (scale, shift);
            }
        }
    }
}
