//! Images as PNG files, for logs and reports.

use super::proto::crc32;
use crate::autograd::no_grad;
use crate::error::bail;
use crate::{DType, Device, Result, Tensor};

/// The most pixels of an image.
const MOST_PIXELS: usize = 1 << 24;

/// An image as a PNG file, with its height, width and number of channels.
pub(crate) struct Png {
    pub bytes: Vec<u8>,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

/// Encodes a tensor `[height, width]` or `[channels, height, width]`, of floats from 0 to 1 or of bytes, as a PNG file. The
/// channels are grey (1), red, green and blue (3), or these with alpha (2 and 4).
pub(crate) fn encode(op: &'static str, image: &Tensor) -> Result<Png> {
    let shape = match image.shape() {
        &[height, width] => [1, height, width],
        &[channels @ 1..=4, height, width] => [channels, height, width],
        other => {
            bail!(Shape, op, "image must have shape [height, width] or [1 to 4 channels, height, width], got {other:?}")
        }
    };
    let [channels, height, width] = shape;
    if height == 0 || width == 0 || height.checked_mul(width).is_none_or(|pixels| pixels > MOST_PIXELS) {
        bail!(Shape, op, "image must have 1 to {MOST_PIXELS} pixels, got {height} × {width}");
    }
    let pixels = pixels(op, &image.detach().reshape([channels, height, width])?.permute([1, 2, 0])?)?;
    let colour = match channels {
        1 => 0,
        2 => 4,
        3 => 2,
        _ => 6,
    };
    let mut head = Vec::new();
    head.extend((width as u32).to_be_bytes());
    head.extend((height as u32).to_be_bytes());
    head.extend([8, colour, 0, 0, 0]);
    let mut rows = Vec::with_capacity(pixels.len() + height);
    for row in pixels.chunks_exact(width * channels) {
        // The row's filter: none.
        rows.push(0);
        rows.extend(row);
    }
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut bytes, *b"IHDR", &head);
    chunk(&mut bytes, *b"IDAT", &zlib(&rows));
    chunk(&mut bytes, *b"IEND", &[]);
    Ok(Png { bytes, height, width, channels })
}

/// The values of an image as bytes.
fn pixels(op: &'static str, image: &Tensor) -> Result<Vec<u8>> {
    let image = image.to_device(Device::Cpu)?;
    match image.dtype() {
        DType::U8 => image.to_vec(),
        dtype if dtype.is_float() => {
            let values: Vec<f64> = no_grad(|| image.to_dtype(DType::F64)?.to_vec())?;
            // NaN becomes 0 (black) by the saturating cast.
            Ok(values.into_iter().map(|value| (value.clamp(0.0, 1.0) * 255.0).round() as u8).collect())
        }
        dtype => bail!(DType, op, "image must be u8 (0 to 255) or floating point (0 to 1), got {dtype}"),
    }
}

fn chunk(to: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    to.extend((data.len() as u32).to_be_bytes());
    let from = to.len();
    to.extend(kind);
    to.extend(data);
    let crc = crc32::<0xedb8_8320>(&to[from..]);
    to.extend(crc.to_be_bytes());
}

/// Compresses bytes to a zlib stream: one block with the fixed Huffman codes, and references to earlier matches.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut bits = Bits { bytes: vec![0x78, 0x01], buffer: 0, count: 0 };
    bits.put(0b011, 3);
    let mut last_seen = vec![usize::MAX; 1 << HASH_BITS];
    let mut at = 0;
    while at < data.len() {
        let (mut length, mut distance) = (0, 0);
        if let Some(next) = data.get(at..at + 4) {
            let key = u32::from_le_bytes([next[0], next[1], next[2], next[3]]).wrapping_mul(0x9e37_79b1);
            let slot = &mut last_seen[(key >> (32 - HASH_BITS)) as usize];
            let before = std::mem::replace(slot, at);
            if before != usize::MAX && at - before <= 32_768 {
                distance = at - before;
                length = data[before..].iter().zip(&data[at..]).take(258).take_while(|(a, b)| a == b).count();
            }
        }
        if length >= 4 {
            bits.length(length);
            bits.distance(distance);
            at += length;
        } else {
            bits.literal(u32::from(data[at]));
            at += 1;
        }
    }
    bits.literal(256);
    bits.put(0, 7);
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in data {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    bits.bytes.extend((b << 16 | a).to_be_bytes());
    bits.bytes
}

const HASH_BITS: u32 = 13;

/// A stream of bits, the lowest bit first.
struct Bits {
    bytes: Vec<u8>,
    buffer: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, bits: u32) {
        self.buffer |= u64::from(value) << self.count;
        self.count += bits;
        while self.count >= 8 {
            self.bytes.push(self.buffer as u8);
            self.buffer >>= 8;
            self.count -= 8;
        }
    }

    /// A Huffman code, whose highest bit comes first.
    fn code(&mut self, code: u32, bits: u32) {
        self.put(code.reverse_bits() >> (32 - bits), bits);
    }

    /// The fixed code of a byte, of the end of the block (256), or of a length (from 257).
    fn literal(&mut self, symbol: u32) {
        match symbol {
            0..=143 => self.code(0x30 + symbol, 8),
            144..=255 => self.code(0x190 + symbol - 144, 9),
            256..=279 => self.code(symbol - 256, 7),
            _ => self.code(0xc0 + symbol - 280, 8),
        }
    }

    fn length(&mut self, length: usize) {
        if length == 258 {
            return self.literal(285);
        }
        let (symbol, extra, bits) = bucket(length as u32 - 3, 2);
        self.literal(257 + symbol);
        self.put(extra, bits);
    }

    fn distance(&mut self, distance: usize) {
        let (symbol, extra, bits) = bucket(distance as u32 - 1, 1);
        self.code(symbol, 5);
        self.put(extra, bits);
    }
}

/// The bucket of a length or a distance, the offset in it and its number of bits. Buckets double in size after every 2^`step`.
fn bucket(value: u32, step: u32) -> (u32, u32, u32) {
    if value < 2 << step {
        return (value, 0, 0);
    }
    let bits = value.ilog2() - step;
    ((bits << step) + (value >> bits), value & ((1 << bits) - 1), bits)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_the_standard() {
        // Lengths 3, 10, 11, 12, 13, 257; distances 1, 4, 5, 6, 7, 32768, by RFC 1951.
        let lengths = [3, 10, 11, 12, 13, 257].map(|length| bucket(length - 3, 2));
        assert_eq!(lengths, [(0, 0, 0), (7, 0, 0), (8, 0, 1), (8, 1, 1), (9, 0, 1), (27, 30, 5)]);
        let distances = [1, 4, 5, 6, 7, 32_768].map(|distance| bucket(distance - 1, 1));
        assert_eq!(distances, [(0, 0, 0), (3, 0, 0), (4, 0, 1), (4, 1, 1), (5, 0, 1), (29, 8191, 13)]);
    }

    #[test]
    fn what_comes_again_is_small() -> Result<()> {
        let flat = encode("test", &Tensor::zeros([3, 64, 64])?)?;
        assert!(flat.bytes.len() < 300, "{} bytes", flat.bytes.len());
        Ok(())
    }
}
