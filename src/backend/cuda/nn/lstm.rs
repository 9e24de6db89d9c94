//! The steps of an LSTM, one launch each: without the matrix products or, for small states, with them.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("lstm.cu")];

fn source(dtype: DType) -> KernelSource {
    KernelSource::new(FILES, dtype.compute_dtype(), true).fused().dtype("E", dtype)
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    crate::backend::cuda::tests::floats().map(source).into()
}

/// The next state, from the product of the input, that of the hidden state, and the previous cell state: the gates
/// `[batch, 4 · size]`, the cell state and, twice, the hidden state. All are contiguous and of one dtype.
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

/// The cotangents of the gates' preactivations, twice, and the cotangent of the previous cell state, which replaces
/// that of the cell state in place and is of the compute dtype. The views are the gates, the cell state, the previous
/// cell state, and the cotangents of the hidden state from the next step and from the output.
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

/// The most multiplications of a step for which the kernel that contains the product is faster than a library's product
/// and another kernel, because launches dominate.
const SMALL: usize = 1 << 25;

/// Whether [`forward`] and [`backward`] are used for states of this size.
pub(crate) fn is_small(batch: usize, size: usize) -> bool {
    batch.saturating_mul(size).saturating_mul(4 * size) <= SMALL
}

/// The grid for the examples and units of a block, as in the source.
fn blocks(batch: usize, size: usize) -> Grid {
    Grid { blocks: [size.div_ceil(4), batch.div_ceil(32)], threads: [128, 1], shared: 0 }
}

/// All steps, in the given order: from the products of the inputs `[steps, batch, 4 · size]`, the weight, the initial
/// hidden state and the initial cell state, computes the gates `[steps, batch, 4 · size]`, the cell states and the
/// hidden states. All are contiguous and of one dtype.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn forward(
    op: &'static str,
    ordinal: usize,
    order: &[usize],
    [inputs, weight, hidden, memory]: [View<'_>; 4],
    bias: Option<View<'_>>,
    [gates, memories, outputs]: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (batch, size) = (memories.layout.shape()[1], memories.layout.shape()[2]);
    let function = source(inputs.dtype).function(op, gpu, "whole_step")?;
    let step = batch * size * inputs.dtype.size();
    let bias = bias.map(|bias| bias.first());
    for (number, &at) in order.iter().enumerate() {
        let before = |first: *const u8, all: *const u8| match number {
            0 => first,
            _ => all.wrapping_add(order[number - 1] * step),
        };
        let (of_gates, of_state) = (4 * at * step, at * step);
        let arguments = Arguments::new()
            .at(inputs.first().wrapping_add(of_gates))
            .at(weight.first())
            .at_or_null(bias)
            .at(before(hidden.first(), outputs.first()))
            .at(before(memory.first(), memories.first()))
            .at(gates.first().wrapping_add(of_gates))
            .at(memories.first().wrapping_add(of_state))
            .at(outputs.first().wrapping_add(of_state));
        // SAFETY: all operands are contiguous and have all steps (L2), of which `at` is one; values read from another
        // step were written by an earlier launch.
        unsafe { arguments.size(batch).size(size).launch(op, gpu, function, blocks(batch, size))? };
    }
    Ok(())
}

/// The cotangents of the gates' preactivations of all steps, and the cotangent of the initial cell state, which
/// replaces that of the final one in place and is of the compute dtype. The views are the gates, the cell states, the
/// initial cell state, the transposed weight, and the cotangent of the final hidden state; those of all outputs are
/// optional. All are contiguous.
///
/// # Errors
/// As for [`forward`].
pub(crate) fn backward(
    op: &'static str,
    ordinal: usize,
    order: &[usize],
    [gates, memories, first, weight, from_next]: [View<'_>; 5],
    from_outputs: Option<View<'_>>,
    kept: &mut ViewMut<'_>,
    sums: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (batch, size) = (memories.layout.shape()[1], memories.layout.shape()[2]);
    let function = source(gates.dtype).function(op, gpu, "whole_step_back")?;
    let step = batch * size * gates.dtype.size();
    let (memories, from_outputs) = (memories.first(), from_outputs.map(|view| view.first()));
    for (number, &at) in order.iter().enumerate().rev() {
        let next = order.get(number + 1).map(|next| sums.first().cast_const().wrapping_add(4 * next * step));
        let last = if number == 0 { first.first() } else { memories.wrapping_add(order[number - 1] * step) };
        let (of_gates, of_state) = (4 * at * step, at * step);
        let arguments = Arguments::new()
            .at_or_null(next)
            .at(weight.first())
            .at(from_next.first())
            .at_or_null(from_outputs.map(|all| all.wrapping_add(of_state)))
            .at(gates.first().wrapping_add(of_gates))
            .at(memories.wrapping_add(of_state))
            .at(last)
            .at(kept.first().cast_const())
            .at(sums.first().cast_const().wrapping_add(of_gates));
        // SAFETY: as above.
        unsafe { arguments.size(batch).size(size).launch(op, gpu, function, blocks(batch, size))? };
    }
    Ok(())
}
