//! Forward passes in one kernel, for results that need no derivatives.

use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE, is_wide, steps};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::layout::Walk;
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("../runtime/groups.cu"), include_str!("forward.cu")];

fn norm_source(dtype: DType, weight: DType, pack: usize) -> KernelSource {
    let source = KernelSource::new(FILES, dtype.compute_dtype(), false).fused();
    source.dtype("E", dtype).dtype("V", weight).set("PACK", pack)
}

fn rope_source(dtype: DType, angles: DType, numel: usize, rank: usize) -> KernelSource {
    let source = KernelSource::new(FILES, dtype.compute_dtype(), is_wide(numel));
    source.dtype("E", dtype).dtype("V", angles).set("R", rank)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let mut all = Vec::new();
    for dtype in crate::backend::cuda::tests::floats() {
        all.extend([norm_source(dtype, dtype, 1), rope_source(dtype, DType::F32, 1, 3)]);
    }
    all.push(norm_source(DType::BF16, DType::F32, 8));
    all
}

/// `x / sqrt(mean(x²) + eps) · weight` of rows `[R, D]`; the result is contiguous.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn rms_norm(
    op: &'static str,
    ordinal: usize,
    input: View<'_>,
    weight: Option<View<'_>>,
    eps: f64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (rows, length) = (input.layout.shape()[0], input.layout.shape()[1]);
    if rows * length == 0 {
        return Ok(());
    }
    let x = InOrder::new(op, ordinal, input)?;
    let weight = weight.map(|weight| Ok::<_, crate::Error>((InOrder::new(op, ordinal, weight)?, weight.dtype)));
    let weight = weight.transpose()?;
    let most = WIDE / input.dtype.size();
    let aligned = [x.first, out.first().cast_const()].iter().all(|first| first.addr().is_multiple_of(WIDE));
    let pack = if aligned && length.is_multiple_of(most) { most } else { 1 };
    let source = norm_source(input.dtype, weight.as_ref().map_or(input.dtype, |(_, dtype)| *dtype), pack);
    let function = source.function(op, gpu, "rms_norm")?;
    let arguments = Arguments::new()
        .at(x.first)
        .at_or_null(weight.as_ref().map(|(weight, _)| weight.first))
        .float(eps)
        .size(length)
        .at(out.first().cast_const());
    let grid = Grid { blocks: [rows, 1], threads: [256, 1], shared: 0 };
    // SAFETY: input and result have `rows` contiguous rows (L2), aligned as the kernel requires; the weight has a row.
    unsafe { arguments.launch(op, gpu, function, grid) }
}

/// Rotates the pairs of `first` and of the elements `half` after it, each `[.., pairs]`, by angles of that shape. The result,
/// contiguous `[.., 2 · pairs]`, has the first elements of all pairs of a row, then the second ones.
///
/// # Errors
/// As for [`rms_norm`].
pub(crate) fn rope(
    op: &'static str,
    ordinal: usize,
    first: View<'_>,
    half: isize,
    [cos, sin]: [View<'_>; 2],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape) = (gpu(op, ordinal)?, first.layout.shape());
    let n = shape.numel();
    let Some(&pairs) = shape.last().filter(|_| n > 0) else { return Ok(()) };
    // The positions of the first elements are part of the addresses.
    let walk = Walk::new(shape, [first.layout, cos.layout, sin.layout]);
    let source = rope_source(first.dtype, cos.dtype, n, walk.dims().len());
    let function = source.function(op, gpu, "rope")?;
    let arguments = Arguments::new()
        .at(first.first())
        .at(cos.first())
        .at(sin.first())
        .at(out.first().cast_const())
        .words(&steps(&walk, 0))
        .words(&steps(&walk, 1))
        .words(&steps(&walk, 2))
        .word(half as i64 as u64)
        .size(pairs)
        .size(n);
    // SAFETY: the walks stay inside their layouts (L2), and so do the elements `half` further, which are those of the caller's
    // tensor; the result has two elements for each pair.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}
