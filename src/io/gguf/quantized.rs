//! Storage types of elements: plain, or blocks of 32 or 256 elements that share scales.
//!
//! In every quantised type an element is a scale times a small integer, for some types minus a minimum. The functions below
//! compute element `i` of a block; ggml's `ggml-common.h` describes the blocks.

use super::LOAD;
use crate::error::{bail, err};
use crate::{DType, Result};
use half::f16;

/// The storage type of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Plain(DType, &'static str),
    Blocks(&'static Blocks),
}

/// A quantised type.
#[derive(Debug)]
pub(super) struct Blocks {
    name: &'static str,
    /// The elements and the bytes of a block.
    pub elements: usize,
    pub bytes: usize,
    block: fn(&[u8], &mut [f32]),
}

impl Form {
    /// The type of a number in the file.
    pub fn of(number: u32) -> Result<Form> {
        Ok(match number {
            0 => Form::Plain(DType::F32, "F32"),
            1 => Form::Plain(DType::F16, "F16"),
            24 => Form::Plain(DType::I8, "I8"),
            25 => Form::Plain(DType::I16, "I16"),
            26 => Form::Plain(DType::I32, "I32"),
            27 => Form::Plain(DType::I64, "I64"),
            28 => Form::Plain(DType::F64, "F64"),
            30 => Form::Plain(DType::BF16, "BF16"),
            2 => Form::Blocks(&Blocks { name: "Q4_0", elements: 32, bytes: 18, block: q4_0 }),
            3 => Form::Blocks(&Blocks { name: "Q4_1", elements: 32, bytes: 20, block: q4_1 }),
            6 => Form::Blocks(&Blocks { name: "Q5_0", elements: 32, bytes: 22, block: q5_0 }),
            7 => Form::Blocks(&Blocks { name: "Q5_1", elements: 32, bytes: 24, block: q5_1 }),
            8 => Form::Blocks(&Blocks { name: "Q8_0", elements: 32, bytes: 34, block: q8_0 }),
            10 => Form::Blocks(&Blocks { name: "Q2_K", elements: 256, bytes: 84, block: q2_k }),
            11 => Form::Blocks(&Blocks { name: "Q3_K", elements: 256, bytes: 110, block: q3_k }),
            12 => Form::Blocks(&Blocks { name: "Q4_K", elements: 256, bytes: 144, block: q4_k }),
            13 => Form::Blocks(&Blocks { name: "Q5_K", elements: 256, bytes: 176, block: q5_k }),
            14 => Form::Blocks(&Blocks { name: "Q6_K", elements: 256, bytes: 210, block: q6_k }),
            other => bail!(Format, LOAD, "ggml type {other} is not supported"),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Form::Plain(_, name) => name,
            Form::Blocks(blocks) => blocks.name,
        }
    }

    /// The dtype in which tensors of this type are loaded.
    pub fn dtype(self) -> DType {
        match self {
            Form::Plain(dtype, _) => dtype,
            Form::Blocks(_) => DType::F32,
        }
    }

    /// The number of bytes of a tensor in the file.
    pub fn bytes_of(self, shape: &[usize]) -> Result<u64> {
        let count = shape.iter().try_fold(1_u64, |count, size| count.checked_mul(*size as u64));
        let bytes = match self {
            Form::Plain(dtype, _) => count.and_then(|count| count.checked_mul(dtype.size() as u64)),
            Form::Blocks(blocks) => {
                let row = shape.last().copied().unwrap_or(1);
                if row % blocks.elements != 0 {
                    let (name, elements) = (blocks.name, blocks.elements);
                    bail!(Format, LOAD, "last dimension must be a multiple of {elements} for {name}, got {row}");
                }
                count.map(|count| count / blocks.elements as u64).and_then(|n| n.checked_mul(blocks.bytes as u64))
            }
        };
        bytes.ok_or_else(|| err!(Format, LOAD, "shape {shape:?} takes more bytes than can be addressed"))
    }
}

impl Blocks {
    /// Writes the elements of blocks as bytes of `f32`.
    pub fn dequantize(&self, blocks: &[u8], to: &mut [u8]) {
        let mut elements = [0.0; 256];
        let elements = &mut elements[..self.elements];
        for (block, to) in blocks.chunks_exact(self.bytes).zip(to.chunks_exact_mut(self.elements * 4)) {
            (self.block)(block, elements);
            for (to, element) in to.chunks_exact_mut(4).zip(elements.iter()) {
                to.copy_from_slice(&element.to_le_bytes());
            }
        }
    }
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Element `i` of 4-bit elements: `stride` of them are the low halves of `stride` bytes, the next the high halves.
fn nibble(bytes: &[u8], i: usize, stride: usize) -> u8 {
    let (chunk, i) = (i / (2 * stride), i % (2 * stride));
    bytes[chunk * stride + i % stride] >> (4 * (i / stride)) & 15
}

/// Element `i` of 2-bit elements: 32 are the lowest bits of 32 bytes, the next the bits above.
fn pair(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// Element `i` of 1-bit elements: the first 32 are the lowest bits of 32 bytes.
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i % 32] >> (i / 32) & 1
}

/// Bit `i` of bytes in order.
fn bit_in_order(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

fn fill(to: &mut [f32], element: impl Fn(usize) -> f32) {
    to.iter_mut().enumerate().for_each(|(i, to)| *to = element(i));
}

/// Scale (2 bytes), 32 elements of 4 bits.
fn q4_0(block: &[u8], to: &mut [f32]) {
    let scale = half(block, 0);
    fill(to, |i| scale * (f32::from(nibble(&block[2..], i, 16)) - 8.0));
}

/// Scale, minimum, 32 elements of 4 bits.
fn q4_1(block: &[u8], to: &mut [f32]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    fill(to, |i| scale * f32::from(nibble(&block[4..], i, 16)) + minimum);
}

/// Scale, fifth bits (4 bytes), 32 elements of 4 bits.
fn q5_0(block: &[u8], to: &mut [f32]) {
    let scale = half(block, 0);
    fill(to, |i| {
        let element = nibble(&block[6..], i, 16) | bit_in_order(&block[2..6], i) << 4;
        scale * (f32::from(element) - 16.0)
    });
}

/// Scale, minimum, fifth bits, 32 elements of 4 bits.
fn q5_1(block: &[u8], to: &mut [f32]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    fill(to, |i| {
        let element = nibble(&block[8..], i, 16) | bit_in_order(&block[4..8], i) << 4;
        scale * f32::from(element) + minimum
    });
}

/// Scale, 32 elements of 8 bits.
fn q8_0(block: &[u8], to: &mut [f32]) {
    let scale = half(block, 0);
    fill(to, |i| f32::from(block[2 + i] as i8) * scale);
}

/// 16 scales and minima of 4 bits (16 bytes), 256 elements of 2 bits (64), the scale of the scales and that of the minima.
fn q2_k(block: &[u8], to: &mut [f32]) {
    let (scales, elements) = (&block[..16], &block[16..80]);
    let (scale, minimum) = (half(block, 80), half(block, 82));
    fill(to, |i| {
        let own = scales[i / 16];
        let (scale, minimum) = (scale * f32::from(own & 15), minimum * f32::from(own >> 4));
        scale * f32::from(pair(elements, i)) - minimum
    });
}

/// Third bits (32 bytes), 256 elements of 2 bits (64), 16 scales of 6 bits (12), their scale.
fn q3_k(block: &[u8], to: &mut [f32]) {
    let (high, elements, scales, scale) = (&block[..32], &block[32..96], &block[96..108], half(block, 108));
    fill(to, |i| {
        let at = i / 16;
        let own = nibble(scales, at, 8) | (scales[8 + at % 4] >> (at / 4 * 2) & 3) << 4;
        // The element is negative if the third bit is 0.
        let element = f32::from(pair(elements, i)) - f32::from((bit(high, i) ^ 1) << 2);
        scale * (f32::from(own) - 32.0) * element
    });
}

/// The 8 scales and minima of 6 bits in 12 bytes: the first four in the lower bits, the others in the remaining bits.
fn scale_and_minimum(scales: &[u8], at: usize) -> (f32, f32) {
    let (scale, minimum) = if at < 4 {
        (scales[at] & 63, scales[4 + at] & 63)
    } else {
        let low = scales[4 + at];
        (low & 15 | scales[at - 4] >> 2 & 48, low >> 4 | scales[at] >> 2 & 48)
    };
    (f32::from(scale), f32::from(minimum))
}

/// The scale of the scales, that of the minima, both in 12 bytes, 256 elements of 4 bits (128).
fn q4_k(block: &[u8], to: &mut [f32]) {
    let (scale, minimum, scales) = (half(block, 0), half(block, 2), &block[4..16]);
    fill(to, |i| {
        let (own_scale, own_minimum) = scale_and_minimum(scales, i / 32);
        scale * own_scale * f32::from(nibble(&block[16..], i, 32)) - minimum * own_minimum
    });
}

/// As `q4_k`, with fifth bits (32 bytes) before the elements.
fn q5_k(block: &[u8], to: &mut [f32]) {
    let (scale, minimum, scales) = (half(block, 0), half(block, 2), &block[4..16]);
    fill(to, |i| {
        let (own_scale, own_minimum) = scale_and_minimum(scales, i / 32);
        let element = nibble(&block[48..], i, 32) | bit(&block[16..48], i) << 4;
        scale * own_scale * f32::from(element) - minimum * own_minimum
    });
}

/// 256 elements of 4 bits (128 bytes), their two higher bits (64), 16 scales of 8 bits, their scale.
fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales, scale) = (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    fill(to, |i| {
        let element = nibble(low, i, 64) | pair(high, i) << 4;
        scale * f32::from(scales[i / 16] as i8) * (f32::from(element) - 32.0)
    });
}
