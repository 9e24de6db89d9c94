//! Rows of f32, quantised to 8 bits in blocks of 32.
#![forbid(unsafe_code)]

use super::unpack::{GROUP, PART, PARTS, Unpack};
use crate::Result;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::memory::scratch;

/// Elements that share a scale.
const BLOCK: usize = 32;

/// Quantised rows, each filled with zeros up to whole groups.
pub(super) struct Activations {
    /// The number of rows, and of the groups of a row.
    pub rows: usize,
    pub groups: usize,
    /// `rows · groups` groups, one row after the other.
    pub all: Vec<ActivationGroup>,
}

/// A group of elements: `scales[i / PART] * codes[i]`.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct ActivationGroup {
    pub codes: [i8; GROUP],
    /// Minus the sums of four codes, times the offset of the matrix' codes: what a sum of products begins with.
    pub starts: [i32; GROUP / 4],
    pub scales: [f32; PARTS],
    /// The sum of the elements of each part.
    pub sums: [f32; PARTS],
}

const EMPTY: ActivationGroup =
    ActivationGroup { codes: [0; GROUP], starts: [0; GROUP / 4], scales: [0.0; PARTS], sums: [0.0; PARTS] };

impl Activations {
    /// Rows of `k` elements. `U` is the format of the matrix that they will be multiplied with.
    pub fn new<U: Unpack>(op: &'static str, x: &[f32], k: usize) -> Result<Activations> {
        let (rows, groups) = (x.len() / k, k.div_ceil(GROUP));
        let mut all = scratch::filled(op, EMPTY, rows.saturating_mul(groups))?;
        for (x, to) in x.chunks_exact(k).zip(all.chunks_exact_mut(groups)) {
            dispatch(Quantize { x, to, offset: i32::from(U::OFFSET) });
        }
        Ok(Activations { rows, groups, all })
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    to: &'a mut [ActivationGroup],
    offset: i32,
}

impl Job for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Quantize { x, to, offset } = self;
        for (x, to) in x.chunks(GROUP).zip(to) {
            for (at, x) in x.chunks(BLOCK).enumerate() {
                let mut block = [0.0; BLOCK];
                block[..x.len()].copy_from_slice(x);
                let (codes, scale) = quantize_block(&block);
                to.codes[BLOCK * at..BLOCK * at + BLOCK].copy_from_slice(&codes);
                for half in 0..2 {
                    let mut sum = 0;
                    for i in 0..PART {
                        sum += i32::from(codes[PART * half + i]);
                    }
                    to.scales[2 * at + half] = scale;
                    to.sums[2 * at + half] = scale * sum as f32;
                }
            }
            for (start, codes) in to.starts.iter_mut().zip(to.codes.as_chunks::<4>().0) {
                *start = -offset * codes.iter().map(|&code| i32::from(code)).sum::<i32>();
            }
        }
    }
}

/// The codes of a block and its scale, which is NaN if an element is not finite.
#[inline(always)]
fn quantize_block(x: &[f32; BLOCK]) -> ([i8; BLOCK], f32) {
    let (mut most, mut bad) = ([0.0_f32; 8], [0.0_f32; 8]);
    for chunk in x.as_chunks::<8>().0 {
        for i in 0..8 {
            let size = chunk[i].abs();
            most[i] = if size > most[i] { size } else { most[i] };
            bad[i] += chunk[i] * 0.0;
        }
    }
    let mut all = 0.0_f32;
    for size in most {
        all = if size > all { size } else { all };
    }
    let scale = all / 127.0;
    // A scale so small that its inverse overflows: the elements are 0 within the precision of f32.
    let inverse = if scale > 1e-38 { 1.0 / scale } else { 0.0 };
    let mut codes = [0; BLOCK];
    for i in 0..BLOCK {
        codes[i] = round(x[i] * inverse);
    }
    (codes, scale + bad.iter().sum::<f32>())
}

/// The nearest integer of a number in ±127, even for a half. Adding and subtracting 1.5 · 2^23 rounds, as the sum has no
/// digits after the point.
#[inline(always)]
fn round(x: f32) -> i8 {
    const SHIFT: f32 = 12_582_912.0;
    // The low byte of the sum's mantissa is the integer in two's complement.
    (x + SHIFT).to_bits() as i8
}
