//! Evaluates elementwise formulas to tensors, at once or deferred.

use crate::autograd::node::NodeKind;
use crate::autograd::{in_pass, is_grad_enabled};
use crate::backend::deferred::{Input, Step, WORTHWHILE};
use crate::backend::spec::{Formula, Kernel, Params};
use crate::error::bail;
use crate::layout::Layout;
use crate::{DType, Device, Result, Scalar, Shape, Tensor, backend};
use smallvec::SmallVec;

/// A formula and its parameters.
pub(crate) type FormulaCall<'a> = (&'static Formula, &'a [Scalar]);

/// Evaluates a formula on inputs of one shape in the compute dtype, outside the graph. The result of a large tensor is
/// deferred until it is needed.
pub(crate) fn map_alike(
    op: &'static str,
    call: FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    dtype: DType,
) -> Result<Tensor> {
    let shape = inputs[0].layout().shape();
    if inputs.iter().any(|input| input.is_batched()) {
        return map_batched(op, call, compute, inputs, shape, dtype);
    }
    debug_assert!(inputs.iter().all(|input| input.layout().shape() == shape));
    if has_channels_last(inputs, shape) {
        return map_channels_last(op, call, compute, inputs, shape, dtype);
    }
    map_alike_in_order(op, call, compute, inputs, dtype)
}

/// As [`map_alike`], with the elements of the result in row-major order.
fn map_alike_in_order(
    op: &'static str,
    call: FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    dtype: DType,
) -> Result<Tensor> {
    let shape = inputs[0].layout().shape();
    if defers(op, call.0, compute, inputs, inputs[0].numel())? {
        return defer(op, call, compute, inputs, shape, dtype);
    }
    // Materialized first: returning an array of views in a `Result` copies it, which takes longer than the arithmetic of a
    // small tensor.
    inputs.iter().try_for_each(|input| input.compute())?;
    Tensor::build_shaped(op, shape, dtype, inputs[0].device(), |out| {
        let view = |k: usize| inputs[k].materialized_view();
        match inputs.len() {
            1 => backend::map(op, call, compute, &[view(0)], out),
            2 => backend::map(op, call, compute, &[view(0), view(1)], out),
            3 => backend::map(op, call, compute, &[view(0), view(1), view(2)], out),
            n => backend::map(op, call, compute, &(0..n).map(view).collect::<SmallVec<[_; 6]>>(), out),
        }
    })
}

/// As [`map_alike`], for inputs that broadcast to `shape`, which the caller has checked.
pub(crate) fn map(
    op: &'static str,
    call: FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    shape: &Shape,
    dtype: DType,
) -> Result<Tensor> {
    if inputs.iter().any(|input| input.is_batched()) {
        return map_batched(op, call, compute, inputs, shape, dtype);
    }
    if inputs.iter().all(|input| input.layout().shape() == shape) {
        return map_alike(op, call, compute, inputs, dtype);
    }
    if has_channels_last(inputs, shape) {
        return map_channels_last(op, call, compute, inputs, shape, dtype);
    }
    if defers(op, call.0, compute, inputs, shape.numel())? {
        return defer(op, call, compute, inputs, shape, dtype);
    }
    inputs.iter().try_for_each(|input| input.compute())?;
    let layouts: SmallVec<[Layout; 3]> = inputs.iter().map(|input| input.layout().broadcast_to(shape)).collect();
    Tensor::build_shaped(op, shape, dtype, inputs[0].device(), |out| {
        let views = inputs.iter().zip(&layouts);
        let views = views.map(|(input, layout)| backend::View { layout, ..input.materialized_view() });
        backend::map(op, call, compute, &views.collect::<SmallVec<[_; 3]>>(), out)
    })
}

/// Whether, on a GPU, an input of the shape of the result is channels-last.
#[inline]
fn has_channels_last(inputs: &[&Tensor], shape: &Shape) -> bool {
    inputs[0].device() != Device::Cpu
        && inputs.iter().any(|input| input.layout().shape() == shape && input.keeps_channels_last())
}

/// As [`map`], with a channels-last result: the dimensions are permuted so that the elements are contiguous.
#[cold]
fn map_channels_last(
    op: &'static str,
    call: FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    shape: &Shape,
    dtype: DType,
) -> Result<Tensor> {
    let order: SmallVec<[isize; 5]> = std::iter::once(0).chain(2..shape.len() as isize).chain([1]).collect();
    let moved = |input: &&Tensor| Ok(input.with_layout(input.layout().broadcast_to(shape).permute(op, &order)?));
    let moved = inputs.iter().map(moved).collect::<Result<SmallVec<[Tensor; 3]>>>()?;
    let result = map_alike_in_order(op, call, compute, &moved.iter().collect::<SmallVec<[&Tensor; 3]>>(), dtype)?;
    if !may_defer(inputs) {
        result.compute()?;
    }
    Ok(Tensor::from_parts(result.storage().clone(), Layout::channels_last(shape), dtype))
}

/// As [`map`], for all examples of a `vmap` at once: they are a leading dimension.
#[cold]
fn map_batched(
    op: &'static str,
    call: FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    shape: &Shape,
    dtype: DType,
) -> Result<Tensor> {
    let rank = shape.len();
    Tensor::over_batch(inputs, |level, inputs| {
        let filled = |x: &&Tensor| {
            let ones = (1 + rank).saturating_sub(x.rank());
            let layout = (0..ones).try_fold(x.layout().clone(), |layout, _| layout.unsqueeze(op, 1))?;
            Ok(x.with_layout(layout))
        };
        let inputs = inputs.iter().map(filled).collect::<Result<SmallVec<[Tensor; 3]>>>()?;
        let inputs: SmallVec<[&Tensor; 3]> = inputs.iter().collect();
        map(op, call, compute, &inputs, &crate::tensor::batch::behind(level.size, shape)?, dtype)
    })
}

/// Whether the result of an operation on tensors of one device is deferred.
#[inline(always)]
fn defers(
    op: &'static str,
    formula: &'static Formula,
    compute: DType,
    inputs: &[&Tensor],
    numel: usize,
) -> Result<bool> {
    #[cfg(all(feature = "samples", feature = "cuda"))]
    backend::cuda::tests::remember(formula);
    let device = inputs[0].device();
    backend::common_device(op, device, inputs[1..].iter().map(|input| input.device()))?;
    if device != Device::Cpu {
        return defers_on_gpu(op, formula, compute, inputs, numel);
    }
    Ok(numel >= WORTHWHILE && compute.compute_dtype().is_float() && may_defer(inputs))
}

/// Whether an operation on large tensors can be deferred. Parameters are updated in place, and a deferred step that reads
/// them would force a copy. Inside a backward pass, and where a graph is recorded, no deferred step outlives the next update.
#[inline(never)]
fn may_defer(inputs: &[&Tensor]) -> bool {
    let leaf = |input: &&Tensor| input.node().is_some_and(|node| node.kind == NodeKind::Leaf);
    is_grad_enabled() || in_pass() || !inputs.iter().any(leaf)
}

/// On a GPU small tensors are deferred too: a launch costs more than their arithmetic.
#[inline(never)]
fn defers_on_gpu(
    op: &'static str,
    formula: &'static Formula,
    compute: DType,
    inputs: &[&Tensor],
    numel: usize,
) -> Result<bool> {
    if !formula.has_kernel(compute.compute_dtype()) {
        bail!(Backend, op, "there is no kernel for {compute}");
    }
    Ok(numel > 0 && may_defer(inputs))
}

#[inline(never)]
fn defer(
    op: &'static str,
    (formula, params): FormulaCall<'_>,
    compute: DType,
    inputs: &[&Tensor],
    shape: &Shape,
    dtype: DType,
) -> Result<Tensor> {
    let input = |input: &&Tensor| Input {
        storage: input.storage().clone(),
        layout: input.layout().broadcast_to(shape),
        dtype: input.dtype(),
    };
    let (numel, device) = (shape.numel(), inputs[0].device());
    let kernel = Kernel::Formula(formula, Params::from_slice(params));
    let step = Step { op, kernel, compute, dtype, device, numel, inputs: inputs.iter().map(input).collect() };
    Ok(Tensor::from_parts(step.defer()?, Layout::shaped(shape), dtype))
}
