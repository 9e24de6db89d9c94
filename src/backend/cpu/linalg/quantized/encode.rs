//! Quantisation of rows. The formats with blocks of 32 get the bytes of ggml's reference implementation. The K-formats are
//! fitted by least squares: for each of several numbers of levels the codes are rounded, and the scale and minimum that fit
//! them best are compared by their error.
#![forbid(unsafe_code)]

use crate::Result;
use crate::backend::cpu::linalg::gemm::GRAIN;
use crate::backend::cpu::runtime::threads::try_parallel;
use crate::backend::spec::{INT8_SCALE, NF4, QuantFormat};
use crate::error::bail;
use half::f16;
use std::sync::Mutex;

/// Quantises rows of `k` elements. `to` has the bytes of as many rows.
///
/// # Errors
/// If a value is not finite, or so large that a scale overflows.
pub(crate) fn quantize(op: &'static str, format: QuantFormat, x: &[f32], k: usize, to: &mut [u8]) -> Result<()> {
    if x.is_empty() || to.is_empty() {
        return Ok(());
    }
    let rows = x.len() / k;
    let row_bytes = to.len() / rows;
    // Each lock is taken once: the rows are the pieces.
    let parts: Vec<Mutex<&mut [u8]>> = to.chunks_exact_mut(row_bytes).map(Mutex::new).collect();
    try_parallel(rows, (GRAIN / k / 16).max(1), |range| {
        for at in range {
            let mut to = parts[at].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let x = &x[at * k..(at + 1) * k];
            if x.iter().any(|x| !x.is_finite()) || row(format, x, &mut to).is_none() {
                bail!(
                    Value,
                    op,
                    "values must be finite and within the range of {format}'s scales, got others in row {at}"
                );
            }
        }
        Ok(())
    })
}

/// Encodes a row; `None` if a scale overflows.
fn row(format: QuantFormat, x: &[f32], to: &mut [u8]) -> Option<()> {
    let encode: fn(&[f32], &mut [u8]) -> Option<()> = match format {
        QuantFormat::Int8 => return int8(x, to),
        QuantFormat::Q4_0 => |x, to| symmetric(x, to, 8.0, false),
        QuantFormat::Q5_0 => |x, to| symmetric(x, to, 16.0, true),
        QuantFormat::Q4_1 => |x, to| affine(x, to, 15.0, false),
        QuantFormat::Q5_1 => |x, to| affine(x, to, 31.0, true),
        QuantFormat::Q8_0 => q8_0,
        QuantFormat::Q2K => q2_k,
        QuantFormat::Q3K => q3_k,
        QuantFormat::Q4K => |x, to| q45_k(x, to, false),
        QuantFormat::Q5K => |x, to| q45_k(x, to, true),
        QuantFormat::Q6K => q6_k,
        QuantFormat::Int4Group32 | QuantFormat::Int4Group64 | QuantFormat::Int4Group128 => int4,
        QuantFormat::Nf4 => nf4,
    };
    // Far beyond the range of scales in half precision; the sums of squares of the fits would overflow.
    if format != QuantFormat::Nf4 && extreme(x).abs() > 1e10 {
        return None;
    }
    let (elements, bytes) = (format.block_elements(), format.block_bytes());
    x.chunks_exact(elements).zip(to.chunks_exact_mut(bytes)).try_for_each(|(x, to)| encode(x, to))
}

/// Writes a number in half precision, and returns what was written; `None` if it overflows.
fn put_half(to: &mut [u8], at: usize, value: f32) -> Option<f32> {
    let half = f16::from_f32(value);
    to[at..at + 2].copy_from_slice(&half.to_le_bytes());
    half.is_finite().then(|| half.to_f32())
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 || !scale.recip().is_finite() { 0.0 } else { scale.recip() }
}

/// The element with the largest absolute value.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most })
}

/// Packs 4-bit codes: `stride` of them in the low halves of `stride` bytes, the next in the high halves.
fn pack_nibbles(codes: &[u8], stride: usize, to: &mut [u8]) {
    for (codes, to) in codes.chunks_exact(2 * stride).zip(to.chunks_exact_mut(stride)) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = codes[i] & 15 | (codes[stride + i] & 15) << 4;
        }
    }
}

/// Packs fifth bits of 32 codes in order.
fn pack_fifth_bits(codes: &[u8], to: &mut [u8]) {
    for (codes, to) in codes.chunks_exact(8).zip(to) {
        *to = codes.iter().enumerate().fold(0, |bits, (i, code)| bits | (code >> 4) << i);
    }
}

/// Q4_0 and Q5_0: the extreme element has the code 0.
fn symmetric(x: &[f32], to: &mut [u8], offset: f32, five: bool) -> Option<()> {
    let scale = extreme(x) / -offset;
    put_half(to, 0, scale)?;
    let inverse = f64::from(inverse(scale));
    let most = 2.0 * offset - 1.0;
    // The product and the sum are rounded once, as in the reference with fused multiply-add.
    let code = |x: &f32| ((f64::from(*x) * inverse + f64::from(offset) + 0.5) as f32).trunc().clamp(0.0, most) as u8;
    let codes: Vec<u8> = x.iter().map(code).collect();
    if five {
        pack_fifth_bits(&codes, &mut to[2..6]);
    }
    pack_nibbles(&codes, 16, &mut to[if five { 6 } else { 2 }..]);
    Some(())
}

/// Q4_1 and Q5_1: the least element has the code 0, the greatest the last.
fn affine(x: &[f32], to: &mut [u8], most: f32, five: bool) -> Option<()> {
    let least = x.iter().copied().fold(f32::INFINITY, f32::min);
    let scale = (x.iter().copied().fold(f32::NEG_INFINITY, f32::max) - least) / most;
    put_half(to, 0, scale)?;
    put_half(to, 2, least)?;
    let inverse = inverse(scale);
    let codes: Vec<u8> = x.iter().map(|x| ((x - least) * inverse + 0.5).trunc().clamp(0.0, most) as u8).collect();
    if five {
        pack_fifth_bits(&codes, &mut to[4..8]);
    }
    pack_nibbles(&codes, 16, &mut to[if five { 8 } else { 4 }..]);
    Some(())
}

fn q8_0(x: &[f32], to: &mut [u8]) -> Option<()> {
    let scale = extreme(x).abs() / 127.0;
    put_half(to, 0, scale)?;
    let inverse = inverse(scale);
    to[2..].iter_mut().zip(x).for_each(|(to, x)| *to = (x * inverse).round() as i8 as u8);
    Some(())
}

fn int8(x: &[f32], to: &mut [u8]) -> Option<()> {
    let scale = extreme(x).abs() / 127.0;
    to[..INT8_SCALE].copy_from_slice(&scale.to_le_bytes());
    let inverse = inverse(scale);
    to[INT8_SCALE..].iter_mut().zip(x).for_each(|(to, x)| *to = (x * inverse).round() as i8 as u8);
    Some(())
}

/// Groups with a zero point: zero is a code, so that it is kept exactly.
fn int4(x: &[f32], to: &mut [u8]) -> Option<()> {
    let least = x.iter().copied().fold(0.0, f32::min);
    let most = x.iter().copied().fold(0.0, f32::max);
    let scale = put_half(to, 0, (most - least) / 15.0)?;
    let inverse = inverse(scale);
    let zero = (-least * inverse).round().clamp(0.0, 15.0);
    to[2] = zero as u8;
    let codes: Vec<u8> = x.iter().map(|x| (x * inverse + zero).round().clamp(0.0, 15.0) as u8).collect();
    pack_nibbles(&codes, x.len() / 2, &mut to[3..]);
    Some(())
}

fn nf4(x: &[f32], to: &mut [u8]) -> Option<()> {
    let scale = extreme(x).abs();
    to[..4].copy_from_slice(&scale.to_le_bytes());
    let inverse = inverse(scale);
    // The number of midpoints between values that are below.
    let code = |x: f32| NF4.windows(2).filter(|two| x * inverse > (two[0] + two[1]) / 2.0).count() as u8;
    for (x, to) in x.as_chunks::<2>().0.iter().zip(&mut to[4..]) {
        *to = code(x[0]) << 4 | code(x[1]);
    }
    Some(())
}

/// The scale that fits best codes from `-levels` to `levels - 1`.
fn fit_scale(x: &[f32], levels: f32) -> f32 {
    let extreme = extreme(x);
    if inverse(extreme) == 0.0 {
        return 0.0;
    }
    let (mut best, mut scale) = (0.0, 0.0);
    for step in -9..=9 {
        let inverse = -(levels + 0.1 * step as f32) / extreme;
        let (mut products, mut squares) = (0.0_f32, 0.0_f32);
        for &x in x {
            let code = (x * inverse).round().clamp(-levels, levels - 1.0);
            // Errors of large elements weigh more.
            let weight = x * x;
            products += weight * x * code;
            squares += weight * code * code;
        }
        if squares > 0.0 && products * products / squares > best {
            (best, scale) = (products * products / squares, products / squares);
        }
    }
    scale
}

/// The scale and the minimum, at least 0, that fit best: an element is `scale * code - minimum` with codes from 0 to `most`.
fn fit_affine(x: &[f32], most: f32) -> (f32, f32) {
    let least = x.iter().copied().fold(0.0, f32::min);
    let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if inverse(greatest - least) == 0.0 {
        return (0.0, -least);
    }
    let size = (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
    let (mut best, mut fit) = (f32::INFINITY, (0.0, 0.0));
    for step in -10..=10 {
        let inverse = (most + 0.1 * step as f32) / (greatest - least);
        let code = |x: f32| ((x - least) * inverse).round().clamp(0.0, most);
        let [mut w, mut l, mut ll, mut wx, mut xl] = [0.0_f32; 5];
        for &x in x {
            let (code, weight) = (code(x), size + x.abs());
            w += weight;
            l += weight * code;
            ll += weight * code * code;
            wx += weight * x;
            xl += weight * x * code;
        }
        let determinant = w * ll - l * l;
        if determinant <= 0.0 || ll <= 0.0 {
            continue;
        }
        let (mut scale, mut shift) = ((w * xl - wx * l) / determinant, (ll * wx - l * xl) / determinant);
        if shift > 0.0 {
            (scale, shift) = (xl / ll, 0.0);
        }
        let error = |&x: &f32| (size + x.abs()) * (scale * code(x) + shift - x).powi(2);
        let error = x.iter().map(error).sum::<f32>();
        if scale > 0.0 && error < best {
            (best, fit) = (error, (scale, -shift));
        }
    }
    // With fewer than two codes nothing can be fitted.
    if best.is_finite() { fit } else { ((greatest - least) / most, -least) }
}

/// Scales of `bits` for parts of `size`, quantised, with the scale of all; and the codes, at least 0.
fn fit_parts_symmetric(
    x: &[f32],
    levels: f32,
    most_scale: f32,
    to: &mut [u8],
    scale_at: usize,
) -> Option<([i8; 16], [u8; 256])> {
    let mut fits = [0.0; 16];
    x.chunks_exact(16).zip(&mut fits).for_each(|(x, fit)| *fit = fit_scale(x, levels));
    let scale = put_half(to, scale_at, extreme(&fits) / -most_scale)?;
    let all = inverse(scale);
    let (mut scales, mut codes) = ([0; 16], [0; 256]);
    for (part, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
        let own = (fits[part] * all).round().clamp(-most_scale, most_scale - 1.0);
        scales[part] = own as i8;
        let inverse = inverse(scale * own);
        for (x, code) in x.iter().zip(codes) {
            *code = ((x * inverse).round().clamp(-levels, levels - 1.0) + levels) as u8;
        }
    }
    Some((scales, codes))
}

/// As [`fit_parts_symmetric`], with minima: `N` parts, codes from 0 to `most`, scales and minima from 0 to `most_scale`. The
/// scale and the minimum of all are written to `at`.
fn fit_parts_affine<const N: usize>(
    x: &[f32],
    most: f32,
    most_scale: f32,
    to: &mut [u8],
    at: usize,
) -> Option<([u8; N], [u8; N], [u8; 256])> {
    let mut fits = [(0.0_f32, 0.0_f32); N];
    let size = 256 / N;
    x.chunks_exact(size).zip(&mut fits).for_each(|(x, fit)| *fit = fit_affine(x, most));
    let greatest = |of: fn(&(f32, f32)) -> f32| fits.iter().map(of).fold(0.0, f32::max);
    let scale = put_half(to, at, greatest(|fit| fit.0) / most_scale)?;
    let minimum = put_half(to, at + 2, greatest(|fit| fit.1) / most_scale)?;
    let (all, all_minima) = (inverse(scale), inverse(minimum));
    let (mut scales, mut minima, mut codes) = ([0; N], [0; N], [0; 256]);
    for (part, (x, codes)) in x.chunks_exact(size).zip(codes.chunks_exact_mut(size)).enumerate() {
        let own = (fits[part].0 * all).round().clamp(0.0, most_scale);
        let own_minimum = (fits[part].1 * all_minima).round().clamp(0.0, most_scale);
        (scales[part], minima[part]) = (own as u8, own_minimum as u8);
        let (inverse, shift) = (inverse(scale * own), minimum * own_minimum);
        for (x, code) in x.iter().zip(codes) {
            *code = ((x + shift) * inverse).round().clamp(0.0, most) as u8;
        }
    }
    Some((scales, minima, codes))
}

/// Q4_K and Q5_K.
fn q45_k(x: &[f32], to: &mut [u8], five: bool) -> Option<()> {
    let (scales, minima, codes) = fit_parts_affine::<8>(x, if five { 31.0 } else { 15.0 }, 63.0, to, 0)?;
    for i in 0..4 {
        to[4 + i] = scales[i] | (scales[4 + i] >> 4) << 6;
        to[8 + i] = minima[i] | (minima[4 + i] >> 4) << 6;
        to[12 + i] = scales[4 + i] & 15 | (minima[4 + i] & 15) << 4;
    }
    if five {
        for (i, to) in to[16..48].iter_mut().enumerate() {
            *to = (0..8).fold(0, |bits, run| bits | (codes[32 * run + i] >> 4) << run);
        }
    }
    pack_nibbles(&codes, 32, &mut to[if five { 48 } else { 16 }..]);
    Some(())
}

/// Packs codes of 2 bits: 128 in 32 bytes.
fn pack_pairs(codes: &[u8; 256], to: &mut [u8]) {
    for (i, to) in to[..64].iter_mut().enumerate() {
        let first = 128 * (i / 32) + i % 32;
        *to = (0..4).fold(0, |bits, run| bits | (codes[first + 32 * run] & 3) << (2 * run));
    }
}

fn q2_k(x: &[f32], to: &mut [u8]) -> Option<()> {
    let (scales, minima, codes) = fit_parts_affine::<16>(x, 3.0, 15.0, to, 80)?;
    for i in 0..16 {
        to[i] = scales[i] | minima[i] << 4;
    }
    pack_pairs(&codes, &mut to[16..80]);
    Some(())
}

fn q3_k(x: &[f32], to: &mut [u8]) -> Option<()> {
    let (scales, codes) = fit_parts_symmetric(x, 4.0, 32.0, to, 108)?;
    for (i, to) in to[..32].iter_mut().enumerate() {
        *to = (0..8).fold(0, |bits, run| bits | (codes[32 * run + i] >> 2) << run);
    }
    pack_pairs(&codes, &mut to[32..96]);
    let scales = scales.map(|scale| (scale + 32) as u8);
    pack_nibbles(&scales, 8, &mut to[96..104]);
    for i in 0..4 {
        to[104 + i] = (0..4).fold(0, |bits, run| bits | (scales[4 * run + i] >> 4) << (2 * run));
    }
    Some(())
}

fn q6_k(x: &[f32], to: &mut [u8]) -> Option<()> {
    let (scales, codes) = fit_parts_symmetric(x, 32.0, 128.0, to, 208)?;
    pack_nibbles(&codes, 64, &mut to[..128]);
    let high = codes.map(|code| code >> 4);
    pack_pairs(&high, &mut to[128..192]);
    to[192..208].iter_mut().zip(scales).for_each(|(to, scale)| *to = scale as u8);
    Some(())
}
