//! The steps of an LSTM between its products, a launch each.

use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("lstm.cu")];

fn source(dtype: DType) -> KernelSource {
    KernelSource::new(FILES, compute_dtype(dtype), true).fused().dtype("E", dtype)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(crate) fn sources() -> Vec<KernelSource> {
    crate::backend::cuda::tests::floats().map(source).into()
}

/// The next state, from the product of the input, that of the hidden state, and the last memory: the gates `[batch, 4 · size]`, the memory and,
/// twice, the hidden state. All are contiguous and of one dtype.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn step(
    op: &'static str,
    ordinal: usize,
    [input, product, last]: [View<'_>; 3],
    next: [&mut ViewMut<'_>; 4],
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (n, size) = (last.layout.numel(), last.layout.shape().last().copied().unwrap_or(0));
    let arguments = Arguments::new().at(input.first()).at(product.first()).at(last.first());
    let arguments = next.into_iter().fold(arguments, |arguments, out| arguments.at(out.first().cast_const()));
    let function = source(last.dtype).function(op, gpu, "step")?;
    // SAFETY: all operands are contiguous (L2); gates and products have four numbers for each of the others.
    unsafe { arguments.size(n).size(size).launch(op, gpu, function, Grid::over(n, 256, 256)) }
}

/// The cotangents of the sums behind the gates, twice, and that of the last memory in the place of this one's, which is of the compute dtype.
/// The views are the gates, the memory, the last memory, and the cotangents of the hidden state from the next step and from the output.
///
/// # Errors
/// As for [`step`].
pub(crate) fn step_back(
    op: &'static str,
    ordinal: usize,
    [gates, memory, last, from_next]: [View<'_>; 4],
    from_output: Option<View<'_>>,
    kept: &mut ViewMut<'_>,
    [sums, product]: [&mut ViewMut<'_>; 2],
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (n, size) = (last.layout.numel(), last.layout.shape().last().copied().unwrap_or(0));
    let arguments = Arguments::new()
        .at(gates.first())
        .at(memory.first())
        .at(last.first())
        .at_or_null(from_output.map(|view| view.first()))
        .at(from_next.first())
        .at(kept.first().cast_const())
        .at(sums.first().cast_const())
        .at(product.first().cast_const());
    let function = source(last.dtype).function(op, gpu, "step_back")?;
    // SAFETY: as above.
    unsafe { arguments.size(n).size(size).launch(op, gpu, function, Grid::over(n, 256, 256)) }
}
