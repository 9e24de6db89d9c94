//! Formats of quantised weights: blocks of elements that share scales.
//!
//! In every format of GGUF an element is a scale times a small integer, for some formats minus a minimum. The functions below
//! compute element `i` of a block; ggml's `ggml-common.h` describes the blocks. They are the reference for the kernels.

use crate::Result;
use crate::error::bail;
use half::f16;
use std::fmt;

/// How the elements of a quantised weight are stored. Rows are quantised independently of each other.
///
/// The formats of GGUF have the bytes of llama.cpp's files. The others are those of PyTorch's ecosystem: one scale for each
/// row, a scale and a zero point for each group, and the 4-bit NormalFloat of QLoRA.
///
/// ```
/// use cotangent::nn::QuantFormat;
/// assert_eq!(QuantFormat::Q4K.name(), "Q4_K");
/// assert_eq!(QuantFormat::Q8_0.row_bytes(64)?, 68);
/// assert!(QuantFormat::Q4K.row_bytes(64).is_err());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
#[non_exhaustive]
pub enum QuantFormat {
    /// 4 bits, blocks of 32 with a scale: 4.5 bits per element.
    Q4_0,
    /// 4 bits, blocks of 32 with a scale and a minimum: 5 bits per element.
    Q4_1,
    /// 5 bits, blocks of 32 with a scale: 5.5 bits per element.
    Q5_0,
    /// 5 bits, blocks of 32 with a scale and a minimum: 6 bits per element.
    Q5_1,
    /// 8 bits, blocks of 32 with a scale: 8.5 bits per element.
    Q8_0,
    /// 2 bits, blocks of 16 with a scale and a minimum of 4 bits: 2.6 bits per element.
    Q2K,
    /// 3 bits, blocks of 16 with a scale of 6 bits: 3.4 bits per element.
    Q3K,
    /// 4 bits, blocks of 32 with a scale and a minimum of 6 bits: 4.5 bits per element.
    Q4K,
    /// 5 bits, blocks of 32 with a scale and a minimum of 6 bits: 5.5 bits per element.
    Q5K,
    /// 6 bits, blocks of 16 with a scale of 8 bits: 6.6 bits per element.
    Q6K,
    /// 8 bits with one scale in `f32` for each row: symmetric, per channel.
    Int8,
    /// 4 bits, groups of 32 with a scale and a zero point: 4.75 bits per element.
    Int4Group32,
    /// 4 bits, groups of 64 with a scale and a zero point.
    Int4Group64,
    /// 4 bits, groups of 128 with a scale and a zero point.
    Int4Group128,
    /// The 4-bit NormalFloat of QLoRA (Dettmers et al. 2023), blocks of 64 with their largest absolute value in `f32`.
    Nf4,
}

/// The product of a matrix `x` and a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantSide {
    /// `x · matrixᵀ`, as in a linear layer.
    Transposed,
    /// `x · matrix`, as in the gradient of a layer's input.
    Plain,
}

/// The name, the elements and the bytes of a block, and the function that decodes it.
struct Block {
    name: &'static str,
    elements: usize,
    bytes: usize,
    decode: fn(&[u8], &mut [f32]),
}

/// The bytes of the scale before the elements of a row of [`QuantFormat::Int8`].
pub(crate) const INT8_SCALE: usize = 4;

impl QuantFormat {
    /// All formats.
    ///
    /// ```
    /// use cotangent::nn::QuantFormat;
    /// assert!(QuantFormat::ALL.contains(&QuantFormat::Nf4));
    /// ```
    pub const ALL: [QuantFormat; 15] = [
        QuantFormat::Q4_0,
        QuantFormat::Q4_1,
        QuantFormat::Q5_0,
        QuantFormat::Q5_1,
        QuantFormat::Q8_0,
        QuantFormat::Q2K,
        QuantFormat::Q3K,
        QuantFormat::Q4K,
        QuantFormat::Q5K,
        QuantFormat::Q6K,
        QuantFormat::Int8,
        QuantFormat::Int4Group32,
        QuantFormat::Int4Group64,
        QuantFormat::Int4Group128,
        QuantFormat::Nf4,
    ];

    fn block(self) -> Block {
        let of = |name, elements, bytes, decode| Block { name, elements, bytes, decode };
        match self {
            QuantFormat::Q4_0 => of("Q4_0", 32, 18, q4_0),
            QuantFormat::Q4_1 => of("Q4_1", 32, 20, q4_1),
            QuantFormat::Q5_0 => of("Q5_0", 32, 22, q5_0),
            QuantFormat::Q5_1 => of("Q5_1", 32, 24, q5_1),
            QuantFormat::Q8_0 => of("Q8_0", 32, 34, q8_0),
            QuantFormat::Q2K => of("Q2_K", 256, 84, q2_k),
            QuantFormat::Q3K => of("Q3_K", 256, 110, q3_k),
            QuantFormat::Q4K => of("Q4_K", 256, 144, q4_k),
            QuantFormat::Q5K => of("Q5_K", 256, 176, q5_k),
            QuantFormat::Q6K => of("Q6_K", 256, 210, q6_k),
            QuantFormat::Int8 => of("INT8", 1, 1, int8),
            QuantFormat::Int4Group32 => of("INT4_32", 32, 19, int4),
            QuantFormat::Int4Group64 => of("INT4_64", 64, 35, int4),
            QuantFormat::Int4Group128 => of("INT4_128", 128, 67, int4),
            QuantFormat::Nf4 => of("NF4", 64, 36, nf4),
        }
    }

    /// The name, for the formats of GGUF that of llama.cpp.
    ///
    /// ```
    /// use cotangent::nn::QuantFormat;
    /// assert_eq!(QuantFormat::Int4Group64.name(), "INT4_64");
    /// ```
    pub fn name(self) -> &'static str {
        self.block().name
    }

    /// The format of this name.
    ///
    /// ```
    /// use cotangent::nn::QuantFormat;
    /// assert_eq!(QuantFormat::from_name("Q6_K"), Some(QuantFormat::Q6K));
    /// ```
    pub fn from_name(name: &str) -> Option<QuantFormat> {
        QuantFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The number of elements that share a block: rows are a multiple of it. 1 for [`Int8`](QuantFormat::Int8), whose rows
    /// have any size.
    ///
    /// ```
    /// use cotangent::nn::QuantFormat;
    /// assert_eq!(QuantFormat::Q4K.block_elements(), 256);
    /// ```
    pub fn block_elements(self) -> usize {
        self.block().elements
    }

    /// The bytes of a block.
    pub(crate) fn block_bytes(self) -> usize {
        self.block().bytes
    }

    /// The bytes before the first block of a row.
    fn row_header(self) -> usize {
        if self == QuantFormat::Int8 { INT8_SCALE } else { 0 }
    }

    /// The number of bytes of a row of `inputs` elements.
    ///
    /// ```
    /// use cotangent::nn::QuantFormat;
    /// assert_eq!(QuantFormat::Q4K.row_bytes(512)?, 288);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `inputs` is not a multiple of [`block_elements`](Self::block_elements).
    pub fn row_bytes(self, inputs: usize) -> Result<usize> {
        const OP: &str = "QuantFormat::row_bytes";
        let Block { name, elements, bytes, .. } = self.block();
        if !inputs.is_multiple_of(elements) {
            bail!(Value, OP, "the size of a row must be a multiple of {elements} for {name}, got {inputs}");
        }
        match (inputs / elements).checked_mul(bytes).and_then(|bytes| bytes.checked_add(self.row_header())) {
            Some(bytes) => Ok(bytes),
            None => bail!(Value, OP, "a row of {inputs} elements takes more bytes than can be addressed"),
        }
    }

    /// The number of elements in a row of `row_bytes` bytes, or `None` if no row has this size.
    pub(crate) fn row_elements(self, row_bytes: usize) -> Option<usize> {
        let Block { elements, bytes, .. } = self.block();
        let rest = row_bytes.checked_sub(self.row_header())?;
        rest.is_multiple_of(bytes).then_some(rest / bytes)?.checked_mul(elements)
    }

    /// Decodes a row, element by element: the reference.
    pub(crate) fn decode_row(self, row: &[u8], to: &mut [f32]) {
        let Block { elements, bytes, decode, .. } = self.block();
        if self == QuantFormat::Int8 {
            return decode(row, to);
        }
        row.chunks_exact(bytes).zip(to.chunks_exact_mut(elements)).for_each(|(block, to)| decode(block, to));
    }
}

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

/// A scale (4 bytes), elements of 8 bits.
fn int8(row: &[u8], to: &mut [f32]) {
    let scale = single(row);
    fill(to, |i| f32::from(row[INT8_SCALE + i] as i8) * scale);
}

/// A scale (2 bytes), a zero point (1 byte), elements of 4 bits: the first half of the group in the low halves of the bytes.
fn int4(block: &[u8], to: &mut [f32]) {
    let (scale, zero, stride) = (half(block, 0), f32::from(block[2]), to.len() / 2);
    fill(to, |i| scale * (f32::from(nibble(&block[3..], i, stride)) - zero));
}

/// The values of NF4: quantiles of the normal distribution, scaled to [-1, 1]. From the paper's appendix E.
pub(crate) const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The largest absolute value (4 bytes), 64 elements of 4 bits: the first of two in the high half of the byte, as in
/// bitsandbytes.
fn nf4(block: &[u8], to: &mut [f32]) {
    let scale = single(block);
    fill(to, |i| NF4[usize::from(block[4 + i / 2] >> (4 * (1 - i % 2)) & 15)] * scale);
}

fn single(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
