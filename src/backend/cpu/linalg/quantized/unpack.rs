//! Unpacking of quantised rows into small integers and scales, 256 elements at a time. The loops are plain, and vectorised by the
//! compiler.

use crate::backend::spec::INT8_SCALE;

/// Elements that are unpacked together: one block of the K-formats, eight blocks of 32.
pub(super) const GROUP: usize = 256;
/// Elements that share a scale after unpacking.
pub(super) const PART: usize = 16;
/// Scales of a group.
pub(super) const PARTS: usize = GROUP / PART;

/// A group of elements. Element `i` is `scales[i / PART] * (codes[i] - OFFSET) + shifts[i / PART]`. In the last group of a row the
/// scales and shifts after its end are 0.
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
}

/// The value of a half-precision number, by integer operations that are vectorised.
#[inline(always)]
fn half(low: u8, high: u8) -> f32 {
    let bits = u32::from(low) | u32::from(high) << 8;
    let magnitude = (bits & 0x7fff) << 13;
    // The exponent's bias is 15 there and 127 here; subnormal numbers are subnormal here, too, before the product.
    let wide = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = if magnitude >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(wide.to_bits() | special | (bits & 0x8000) << 16)
}

/// The blocks of a group, for blocks of `BYTES` that hold `PER` parts: fewer than `PARTS / PER` at the end of a row.
#[inline(always)]
fn blocks<const BYTES: usize>(row: &[u8], index: usize, most: usize) -> &[[u8; BYTES]] {
    let all = row.as_chunks::<BYTES>().0;
    let first = (index * most).min(all.len());
    &all[first..(first + most).min(all.len())]
}

/// Clears what the last group of a row lacks, from a part on.
#[inline(always)]
fn clear_from(to: &mut Group, part: usize) {
    if part < PARTS {
        to.scales[part..].fill(0.0);
        to.shifts[part..].fill(0.0);
    }
}

/// Spreads eight bits to the bits of value 16 of eight bytes.
#[inline(always)]
fn spread(bits: u8) -> [u8; 8] {
    let each = (u64::from(bits) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    (((each + 0x7f7f_7f7f_7f7f_7f7f) & 0x8080_8080_8080_8080) >> 3).to_le_bytes()
}

/// A format with blocks of 32: a scale, a minimum if `SHIFTED`, fifth bits if `FIVE`, and nibbles.
#[inline(always)]
fn small_blocks<const BYTES: usize, const SHIFTED: bool, const FIVE: bool>(row: &[u8], index: usize, to: &mut Group) {
    let some = blocks::<BYTES>(row, index, 8);
    let high_at = if SHIFTED { 4 } else { 2 };
    let at = high_at + if FIVE { 4 } else { 0 };
    for (b, block) in some.iter().enumerate() {
        let codes = &mut to.codes[32 * b..32 * b + 32];
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
        let scale = half(block[0], block[1]);
        (to.scales[2 * b], to.scales[2 * b + 1]) = (scale, scale);
        if SHIFTED {
            let shift = half(block[2], block[3]);
            (to.shifts[2 * b], to.shifts[2 * b + 1]) = (shift, shift);
        }
    }
    clear_from(to, 2 * some.len());
}

pub(super) struct Q4_0;
impl Unpack for Q4_0 {
    const OFFSET: u8 = 8;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<18, false, false>(row, index, to);
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
}

pub(super) struct Q5_0;
impl Unpack for Q5_0 {
    const OFFSET: u8 = 16;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        small_blocks::<22, false, true>(row, index, to);
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
}

pub(super) struct Q8_0;
impl Unpack for Q8_0 {
    const OFFSET: u8 = 128;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let some = blocks::<34>(row, index, 8);
        for (b, block) in some.iter().enumerate() {
            let codes = &mut to.codes[32 * b..32 * b + 32];
            for i in 0..32 {
                codes[i] = block[2 + i] ^ 0x80;
            }
            let scale = half(block[0], block[1]);
            (to.scales[2 * b], to.scales[2 * b + 1]) = (scale, scale);
        }
        clear_from(to, 2 * some.len());
    }
}

/// The eight scales and minima of 6 bits in 12 bytes.
#[inline(always)]
fn scales_and_minima(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minima) = ([0; 8], [0; 8]);
    for i in 0..4 {
        let (a, b, c) = (packed[i], packed[4 + i], packed[8 + i]);
        scales[i] = a & 63;
        minima[i] = b & 63;
        scales[4 + i] = c & 15 | a >> 2 & 48;
        minima[4 + i] = c >> 4 | b >> 2 & 48;
    }
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
        let Some(block) = row.as_chunks::<144>().0.get(index) else { return clear_from(to, 0) };
        for chunk in 0..4 {
            for i in 0..32 {
                let byte = block[16 + 32 * chunk + i];
                to.codes[64 * chunk + i] = byte & 15;
                to.codes[64 * chunk + 32 + i] = byte >> 4;
            }
        }
        scale_by_32(block, to);
    }
}

pub(super) struct Q5K;
impl Unpack for Q5K {
    const OFFSET: u8 = 0;
    const SHIFTED: bool = true;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<176>().0.get(index) else { return clear_from(to, 0) };
        for chunk in 0..4 {
            for i in 0..32 {
                let (byte, high) = (block[48 + 32 * chunk + i], block[16 + i] >> (2 * chunk));
                to.codes[64 * chunk + i] = byte & 15 | (high & 1) << 4;
                to.codes[64 * chunk + 32 + i] = byte >> 4 | (high & 2) << 3;
            }
        }
        scale_by_32(block, to);
    }
}

pub(super) struct Q6K;
impl Unpack for Q6K {
    const OFFSET: u8 = 32;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<210>().0.get(index) else { return clear_from(to, 0) };
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
        let scale = half(block[208], block[209]);
        for i in 0..PARTS {
            to.scales[i] = scale * f32::from(block[192 + i] as i8);
        }
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
        let Some(block) = row.as_chunks::<84>().0.get(index) else { return clear_from(to, 0) };
        pairs(&block[16..80], &mut to.codes);
        let (scale, minimum) = (half(block[80], block[81]), half(block[82], block[83]));
        for i in 0..PARTS {
            to.scales[i] = scale * f32::from(block[i] & 15);
            to.shifts[i] = -(minimum * f32::from(block[i] >> 4));
        }
    }
}

pub(super) struct Q3K;
impl Unpack for Q3K {
    const OFFSET: u8 = 4;
    const SHIFTED: bool = false;
    #[inline(always)]
    fn unpack(row: &[u8], index: usize, to: &mut Group) {
        let Some(block) = row.as_chunks::<110>().0.get(index) else { return clear_from(to, 0) };
        pairs(&block[32..96], &mut to.codes);
        for run in 0..8 {
            for i in 0..32 {
                to.codes[32 * run + i] |= (block[i] >> run & 1) << 2;
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
        let some = blocks::<BYTES>(row, index, GROUP / SIZE);
        let parts = SIZE / PART;
        for (b, block) in some.iter().enumerate() {
            let codes = &mut to.codes[SIZE * b..SIZE * b + SIZE];
            for i in 0..SIZE / 2 {
                codes[i] = block[3 + i] & 15;
                codes[SIZE / 2 + i] = block[3 + i] >> 4;
            }
            let scale = half(block[0], block[1]);
            to.scales[parts * b..parts * b + parts].fill(scale);
            to.shifts[parts * b..parts * b + parts].fill(-scale * f32::from(block[2]));
        }
        clear_from(to, parts * some.len());
    }
}
