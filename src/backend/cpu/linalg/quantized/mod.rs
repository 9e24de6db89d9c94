//! Products of a few rows with a quantised matrix, as in decoding text, and the conversion of quantised rows to f32.
//!
//! The matrix is read once, in memory order, and unpacked in the L1 cache into small integers. The rows of the other operand
//! are quantised to 8 bits in blocks of 32, as llama.cpp does, so that the products are sums of integers, which are exact;
//! the scales are applied in f32. More rows are multiplied with floats, in [`panels`].

mod activations;
mod dot;
mod encode;
mod panels;
#[cfg(target_arch = "x86_64")]
mod registers;
mod unpack;
mod widen;

pub(crate) use encode::quantize;
pub(crate) use panels::matmul;

use crate::backend::cpu::linalg::gemm::GRAIN;
use crate::backend::cpu::runtime::threads::{Ptr, parallel};
use crate::backend::spec::QuantFormat;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::{DType, Result};
use activations::Activations;
use std::ops::Range;
use widen::widen;

/// The most rows, for which there are sums.
pub(crate) const MOST: usize = 16;

/// Calls a generic function for the type that unpacks a format. NF4 has none: its elements are no integers.
macro_rules! with_unpack {
    ($format:expr, $U:ident => $run:expr, nf4 => $nf4:expr) => {
        match $format {
            QuantFormat::Q4_0 => {
                type $U = unpack::Q4_0;
                $run
            }
            QuantFormat::Q4_1 => {
                type $U = unpack::Q4_1;
                $run
            }
            QuantFormat::Q5_0 => {
                type $U = unpack::Q5_0;
                $run
            }
            QuantFormat::Q5_1 => {
                type $U = unpack::Q5_1;
                $run
            }
            QuantFormat::Q8_0 => {
                type $U = unpack::Q8_0;
                $run
            }
            QuantFormat::Q2K => {
                type $U = unpack::Q2K;
                $run
            }
            QuantFormat::Q3K => {
                type $U = unpack::Q3K;
                $run
            }
            QuantFormat::Q4K => {
                type $U = unpack::Q4K;
                $run
            }
            QuantFormat::Q5K => {
                type $U = unpack::Q5K;
                $run
            }
            QuantFormat::Q6K => {
                type $U = unpack::Q6K;
                $run
            }
            QuantFormat::Int8 => {
                type $U = unpack::Int8;
                $run
            }
            QuantFormat::Int4Group32 => {
                type $U = unpack::Int4<32, 19>;
                $run
            }
            QuantFormat::Int4Group64 => {
                type $U = unpack::Int4<64, 35>;
                $run
            }
            QuantFormat::Int4Group128 => {
                type $U = unpack::Int4<128, 67>;
                $run
            }
            QuantFormat::Nf4 => $nf4,
        }
    };
}
use with_unpack;

/// A quantised matrix: rows of `row_bytes` bytes with `inputs` elements each.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    inputs: usize,
}

impl<'a> Matrix<'a> {
    fn new(op: &'static str, format: QuantFormat, blocks: &View<'a>) -> Result<Matrix<'a>> {
        let (Some(bytes), &[rows, row_bytes]) = (blocks.as_slice::<u8>(), &blocks.layout.shape()[..]) else {
            bail!(Backend, op, "blocks must be a contiguous matrix of u8 on the CPU");
        };
        let Some(inputs) = format.row_elements(row_bytes) else {
            bail!(Backend, op, "rows of {row_bytes} bytes are no rows of {format}");
        };
        debug_assert_eq!(bytes.len(), rows * row_bytes);
        Ok(Matrix { bytes, row_bytes, inputs })
    }

    #[inline(always)]
    fn row(&self, at: usize) -> &'a [u8] {
        &self.bytes[at * self.row_bytes..(at + 1) * self.row_bytes]
    }
}

/// Whether [`product`] supports this format and this number of rows.
pub(crate) fn takes(format: QuantFormat, rows: usize) -> bool {
    format != QuantFormat::Nf4 && rows <= MOST
}

/// `out = x · matrixᵀ`, where `x` is contiguous of f32, of shape `[m, inputs]`, and [`takes`] is true. `out` is contiguous,
/// of f32 and shape `[m, outputs]`.
pub(crate) fn product(
    op: &'static str,
    x: View<'_>,
    format: QuantFormat,
    blocks: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let matrix = Matrix::new(op, format, &blocks)?;
    let (outputs, k) = (blocks.layout.shape()[0], matrix.inputs);
    let (Some(x), DType::F32, true) = (x.as_slice::<f32>(), out.dtype, out.layout.is_contiguous()) else {
        bail!(Backend, op, "input and result must be contiguous f32 on the CPU");
    };
    if outputs == 0 || x.is_empty() {
        // SAFETY: the result is contiguous, and has one owner.
        unsafe { out.first().write_bytes(0, out.layout.numel() * size_of::<f32>()) };
        return Ok(());
    }
    let m = x.len() / k;
    if m > MOST || out.layout.numel() != m * outputs {
        bail!(Backend, op, "products with quantised matrices must have at most {MOST} rows, got {m}");
    }
    let to = Ptr::new(out.first().cast::<f32>());
    let grain = (GRAIN / k.saturating_mul(m + 2)).max(1);
    with_unpack!(format, U => {
        let x = Activations::new::<U>(op, x, k)?;
        let part = |range: Range<usize>| dot::Part { matrix, x: &x, out: to.get(), outputs, range };
        // SAFETY: `out` has `outputs` elements for each row of `x`, and each piece writes its own columns.
        parallel(outputs, grain, |range| unsafe { dot::run::<U>(part(range)) });
    }, nf4 => bail!(Backend, op, "there is no product of integers for NF4"));
    Ok(())
}

/// Writes the elements of quantised rows to `out`, contiguous of f32.
pub(crate) fn dequantize(op: &'static str, format: QuantFormat, blocks: View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let matrix = Matrix::new(op, format, &blocks)?;
    let (rows, k) = (blocks.layout.shape()[0], matrix.inputs);
    if out.dtype != DType::F32 || !out.layout.is_contiguous() || out.layout.numel() != rows * k {
        bail!(Backend, op, "the result must be contiguous f32 with {} elements", rows * k);
    }
    let to = Ptr::new(out.first().cast::<f32>());
    parallel(rows, (GRAIN / k.max(1)).max(1), |range| {
        for at in range {
            // SAFETY: `out` has `k` elements for each row, which one piece writes.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(at * k), k) };
            widen(format, matrix.row(at), 0, to);
        }
    });
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::{Generator, Result};

    /// Rows of a format, three blocks more than two groups long, and their values by the reference.
    fn rows(format: QuantFormat, count: usize, k: usize) -> Result<(Vec<u8>, Vec<f32>)> {
        let values = Generator::seed(1).randn([count, k])?.to_vec::<f32>()?;
        let row_bytes = format.row_bytes(k)?;
        let mut bytes = vec![0; count * row_bytes];
        quantize("test", format, &values, k, &mut bytes)?;
        let mut decoded = vec![0.0; count * k];
        for (row, to) in bytes.chunks_exact(row_bytes).zip(decoded.chunks_exact_mut(k)) {
            format.decode_row(row, to);
        }
        Ok((bytes, decoded))
    }

    #[test]
    fn rows_are_converted_to_the_values_of_the_reference() -> Result<()> {
        for format in QuantFormat::ALL {
            let k = 512 + 3 * format.block_elements();
            let (bytes, wanted) = rows(format, 1, k)?;
            let check = |got: &[f32], first: usize| {
                for (got, wanted) in got.iter().zip(&wanted[first..]) {
                    // The zero point of INT4 is multiplied by the scale before it is subtracted.
                    let is_int4 = format.name().starts_with("INT4");
                    let near = is_int4 && (got - wanted).abs() <= 1e-6;
                    assert!(got == wanted || near, "{format}: {got} and {wanted}");
                }
            };
            for first in [0, unpack::GROUP] {
                let (mut got, mut plain) = (vec![0.0_f32; k - first], vec![0.0_f32; k - first]);
                widen(format, &bytes, first, &mut got);
                widen::widen_plain(format, &bytes, first, &mut plain);
                check(&got, first);
                check(&plain, first);
                // A part, in f64.
                let mut wide = vec![0.0_f64; 64];
                widen(format, &bytes, first, &mut wide);
                assert!(wide.iter().zip(&got).all(|(wide, got)| *wide == f64::from(*got)), "{format}");
            }
        }
        Ok(())
    }

    /// The loop without special instructions gives the sums of the one for this CPU.
    #[test]
    fn all_kernels_give_the_products_of_the_reference() -> Result<()> {
        const OUTPUTS: usize = 7;
        for format in QuantFormat::ALL {
            let k = 512 + 3 * format.block_elements();
            let (bytes, decoded) = rows(format, OUTPUTS, k)?;
            let matrix = Matrix { bytes: &bytes, row_bytes: format.row_bytes(k)?, inputs: k };
            for m in [1, 3] {
                // Multiples of an eighth, in every block up to 127 / 8: they are quantised exactly.
                let x: Vec<f32> =
                    (0..m * k).map(|i| if i % k % 32 == 0 { 127 } else { i * 37 % 255 } as f32 / 8.0).collect();
                let x: Vec<f32> = x.iter().map(|&x| if x > 127.0 / 8.0 { x - 255.0 / 8.0 } else { x }).collect();
                with_unpack!(format, U => {
                    let activations = Activations::new::<U>("test", &x, k)?;
                    let part = |out: &mut [f32]| dot::Part {
                        matrix, x: &activations, out: out.as_mut_ptr(), outputs: OUTPUTS, range: 0..OUTPUTS,
                    };
                    let (mut fast, mut plain) = (vec![0.0; m * OUTPUTS], vec![0.0; m * OUTPUTS]);
                    // SAFETY: the vectors have an element for each product.
                    unsafe {
                        dot::run::<U>(part(&mut fast));
                        dot::run_plain::<U>(part(&mut plain));
                    }
                    for (at, (fast, plain)) in fast.into_iter().zip(plain).enumerate() {
                        let (i, j) = (at / OUTPUTS, at % OUTPUTS);
                        let terms = || x[i * k..(i + 1) * k].iter().zip(&decoded[j * k..(j + 1) * k]);
                        let wanted: f64 = terms().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                        let size: f64 = terms().map(|(a, b)| f64::from(*a * *b).abs()).sum();
                        for got in [fast, plain] {
                            // The order of the sums differs.
                            let fault = (f64::from(got) - wanted).abs() / size;
                            assert!(fault < 1e-6, "{format}, {m} rows: {got} and {wanted}");
                        }
                    }
                }, nf4 => assert!(!takes(format, m)));
            }
        }
        Ok(())
    }
}
