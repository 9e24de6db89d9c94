//! The steps of an LSTM, a launch each: between their products, or, of small states, with them.

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
#[cfg(feature = "samples")]
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

/// Multiplications of a step up to which the kernel that has the product in it is faster than a library's product and another
/// kernel: both take less time than it takes to ask for them.
const SMALL: usize = 1 << 25;

/// Whether [`forward`] and [`backward`] are for states of this size.
pub(crate) fn is_small(batch: usize, size: usize) -> bool {
    batch.saturating_mul(size).saturating_mul(4 * size) <= SMALL
}

/// Examples and units that a block has, as in the source.
fn blocks(batch: usize, size: usize) -> Grid {
    Grid { blocks: [size.div_ceil(4), batch.div_ceil(32)], threads: [128, 1], shared: 0 }
}

/// All steps, in this order of their places: from the products of the inputs `[steps, batch, 4 · size]`, the weight, the first hidden state and
/// the first memory, the gates `[steps, batch, 4 · size]`, the memories and the hidden states. All are contiguous and of one dtype.
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
        // SAFETY: all operands are contiguous and have all steps (L2), of which `at` is one; what a step reads of another was
        // written by a launch before it.
        unsafe { arguments.size(batch).size(size).launch(op, gpu, function, blocks(batch, size))? };
    }
    Ok(())
}

/// The cotangents of the sums behind the gates of all steps, and that of the first memory in the place of the last one's, which is of the compute
/// dtype. The views are the gates, the memories, the first memory, the weight with its dimensions exchanged, and the cotangent of the last
/// hidden state; those of all hidden states may be there. All are contiguous.
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
