//! Products of many rows with a quantised matrix, as in reading a prompt or in training an adapter: products of floats.
//!
//! A thread takes some columns of the result and goes through the inner dimension in blocks. It converts the part of the
//! matrix that belongs to both, a panel, to floats in a buffer that stays in its L2 cache, and multiplies all rows with it
//! by the kernels of dense matrices. The matrix is converted once and never stored as a whole.

use super::{Matrix, widen};
use crate::backend::cpu::linalg::gemm::{self, GRAIN, Number, Product, Start, gemm};
use crate::backend::cpu::runtime::threads::{Ptr, num_threads, try_parallel};
use crate::backend::spec::{QuantFormat, QuantSide};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::storage::Storage;
use crate::{DType, Device, Result};
use std::ops::Range;

/// Rows and columns of the quantised matrix in a panel: 768 KB of f32. Columns are a multiple of the group that is unpacked
/// at a time.
const ROWS: usize = 384;
const COLUMNS: usize = 512;
/// The least sizes of the parts of the result that threads compute.
const LEAST: usize = 64;

/// `out = x · matrixᵀ` or `out = x · matrix`. `x` and `out` are contiguous matrices of one type, f32 or f64.
pub(crate) fn matmul(
    op: &'static str,
    x: View<'_>,
    format: QuantFormat,
    blocks: View<'_>,
    side: QuantSide,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match x.dtype {
        DType::F32 => product::<f32>(op, &x, format, &blocks, side, out),
        DType::F64 => product::<f64>(op, &x, format, &blocks, side, out),
        dtype => bail!(Backend, op, "products with panels of quantised matrices have no kernel for {dtype}"),
    }
}

fn product<T: Number + From<f32>>(
    op: &'static str,
    x: &View<'_>,
    format: QuantFormat,
    blocks: &View<'_>,
    side: QuantSide,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let matrix = Matrix::new(op, format, blocks)?;
    let outputs = blocks.layout.shape()[0];
    let (n, k, wide, deep) = match side {
        QuantSide::Transposed => (outputs, matrix.inputs, ROWS, COLUMNS),
        QuantSide::Plain => (matrix.inputs, outputs, COLUMNS, ROWS),
    };
    let (&[m, columns], Some(x)) = (&x.layout.shape()[..], x.as_slice::<T>()) else {
        bail!(Backend, op, "input must be a contiguous matrix on the CPU");
    };
    if columns != k || out.dtype != T::DTYPE || !out.layout.is_contiguous() || out.layout.numel() != m * n {
        bail!(Backend, op, "the result must be contiguous, of the dtype of the input and of shape [{m}, {n}]");
    }
    let to = Ptr::new(out.first().cast::<T>());
    if m * n == 0 || k == 0 {
        // SAFETY: the result is contiguous, and has one owner. The bytes of 0.0 are 0.
        unsafe { out.first().write_bytes(0, m * n * size_of::<T>()) };
        return Ok(());
    }
    let unit = if side == QuantSide::Plain { super::unpack::GROUP } else { 1 };
    let (width, height) = parts(m, n, unit, wide);
    let across = n.div_ceil(width);
    let x = Ptr::new(x.as_ptr().cast_mut());
    // A part is about as much work as the smallest.
    let grain = (GRAIN / k.saturating_mul(width).saturating_mul(height)).max(1);
    try_parallel(across * m.div_ceil(height), grain, |pieces| {
        let room = k.min(deep).next_multiple_of(super::unpack::GROUP) * width.next_multiple_of(unit);
        let mut space = Storage::new(op, Device::Cpu, room * size_of::<T>())?;
        let panel = space.get_mut().unwrap_or(std::ptr::null_mut()).cast::<T>();
        for at in pieces {
            let (i, j) = (at / across * height, at % across * width);
            let (i, j) = (i..m.min(i + height), j..n.min(j + width));
            for p in (0..k).step_by(deep) {
                let p = p..k.min(p + deep);
                let (rows, columns) = match side {
                    QuantSide::Transposed => (&j, &p),
                    QuantSide::Plain => (&p, &j),
                };
                // SAFETY: the buffer has room for the panel, as at most `deep` by `width` elements are converted. `x` has
                // `m` rows of `k` elements, and `out` `m` of `n`, of which this piece alone writes the part.
                unsafe {
                    matrix.panel(format, rows.clone(), columns.clone(), panel);
                    let width = columns.len() as isize;
                    let b = match side {
                        QuantSide::Transposed => gemm::Matrix { ptr: panel.cast_const(), row: 1, col: width },
                        QuantSide::Plain => gemm::Matrix { ptr: panel.cast_const(), row: width, col: 1 },
                    };
                    let a = gemm::Matrix { ptr: x.get().cast_const(), row: k as isize, col: 1 };
                    gemm(
                        op,
                        &Product {
                            m: i.len(),
                            n: j.len(),
                            k: p.len(),
                            a: a.from(i.start, p.start),
                            b,
                            out: to.get().add(i.start * n + j.start),
                            width: n,
                            start: if p.start == 0 { Start::Zero } else { Start::Out },
                        },
                    )?;
                }
            }
        }
        Ok(())
    })
}

/// The width and the height of the parts of the result: as wide as a panel, or narrower so that each thread gets equally many;
/// split by rows, each of which converts the panel, only if columns are few.
fn parts(m: usize, n: usize, unit: usize, wide: usize) -> (usize, usize) {
    let threads = num_threads();
    let count = n.div_ceil(wide).next_multiple_of(threads).min(n.div_ceil(LEAST.max(unit)));
    let width = n.div_ceil(count).next_multiple_of(unit);
    let high = if n.div_ceil(width) < threads { threads.div_ceil(n.div_ceil(width)).min(m.div_ceil(LEAST)) } else { 1 };
    (width, m.div_ceil(high))
}

impl Matrix<'_> {
    /// Writes some rows of some columns, which begin with a group, to `to`, one row after the other.
    ///
    /// # Safety
    /// `to` is valid for writes of as many elements, and nothing else accesses them meanwhile.
    unsafe fn panel<T: From<f32> + Copy>(
        &self,
        format: QuantFormat,
        rows: Range<usize>,
        columns: Range<usize>,
        to: *mut T,
    ) {
        let width = columns.len();
        for (at, row) in rows.enumerate() {
            // SAFETY: the caller's promise.
            let to = unsafe { std::slice::from_raw_parts_mut(to.add(at * width), width) };
            widen(format, self.row(row), columns.start, to);
        }
    }
}
