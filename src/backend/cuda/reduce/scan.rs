//! Running folds along a dimension.

use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::Scan;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("scan.cu")];

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(super) fn sources() -> Vec<KernelSource> {
    let pairs =
        [(DType::F32, DType::F32), (DType::BF16, DType::BF16), (DType::F64, DType::F64), (DType::U8, DType::I64)];
    pairs.map(|(from, to)| source(from, to)).into()
}

fn source(from: DType, to: DType) -> KernelSource {
    KernelSource::new(FILES, compute_dtype(to), true).dtype("X", from).dtype("Y", to)
}

/// As the CPU's [`scan`](crate::backend::cpu::reduce::scan::scan).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn scan(
    op: &'static str,
    ordinal: usize,
    by: Scan,
    x: View<'_>,
    dim: usize,
    backwards: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let Scan::Sum = by;
    let (gpu, shape) = (gpu(op, ordinal)?, x.layout.shape());
    if shape.numel() == 0 {
        return Ok(());
    }
    let (len, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
    let lanes = shape.numel() / len;
    let from = InOrder::new(op, ordinal, x)?;
    let source = source(x.dtype, out.dtype);
    let arguments = Arguments::new()
        .at(from.first)
        .at(out.first().cast_const())
        .size(lanes)
        .size(len)
        .size(inner)
        .word(u64::from(backwards));
    // Long lanes are shared by the threads of a block; of short ones each thread has its own.
    let (name, grid) = if len >= 256 {
        ("long_lanes", Grid::over(lanes, 1, 256))
    } else {
        ("short_lanes", Grid::over(lanes, 256, 256))
    };
    // SAFETY: the elements lie in order, and the output, which is contiguous, has as many.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, name)?, grid) }
}
