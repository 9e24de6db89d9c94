//! The one way from an elementwise kernel to a tensor.

use crate::autograd::node::NodeKind;
use crate::autograd::{in_pass, is_grad_enabled};
use crate::backend;
use crate::backend::cpu::elementwise::map::Tile;
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::deferred::{Input, Kernel, Step, WORTHWHILE};
use crate::error::bail;
use crate::layout::Layout;
use crate::{DType, Device, Result, Shape, Tensor};

/// `kernel` of inputs of one shape, computed in `compute`, as a tensor of that shape outside the graph. With many elements
/// the result is deferred until it is needed.
#[inline]
pub(crate) fn map_alike<K, const N: usize>(
    op: &'static str,
    kernel: K,
    compute: DType,
    inputs: [&Tensor; N],
    dtype: DType,
) -> Result<Tensor>
where
    K: Tile<N> + Send + 'static,
    Kernel: From<Box<dyn Tile<N> + Send>>,
{
    let shape = inputs[0].layout().shape();
    debug_assert!(inputs.iter().all(|input| input.layout().shape() == shape));
    if defers(op, &kernel, compute, &inputs, inputs[0].numel())? {
        return defer(op, Kernel::from(Box::new(kernel)), compute, &inputs, shape, dtype);
    }
    // Materialized one by one: an array of views that comes out of a `Result` is moved through memory, which takes longer than
    // the arithmetic of a small tensor.
    inputs.iter().try_for_each(|input| input.compute())?;
    Tensor::build_shaped(op, shape, dtype, inputs[0].device(), |out| {
        backend::map(op, kernel.plain(), compute, std::array::from_fn(|k| inputs[k].materialized_view()), out)
    })
}

/// As [`map_alike`], of inputs that broadcast to `shape`, which the caller has checked.
pub(crate) fn map<K, const N: usize>(
    op: &'static str,
    kernel: K,
    compute: DType,
    inputs: [&Tensor; N],
    shape: &Shape,
    dtype: DType,
) -> Result<Tensor>
where
    K: Tile<N> + Send + 'static,
    Kernel: From<Box<dyn Tile<N> + Send>>,
{
    if inputs.iter().all(|input| input.layout().shape() == shape) {
        return map_alike(op, kernel, compute, inputs, dtype);
    }
    if defers(op, &kernel, compute, &inputs, shape.numel())? {
        return defer(op, Kernel::from(Box::new(kernel)), compute, &inputs, shape, dtype);
    }
    let layouts = inputs.map(|input| input.layout().broadcast_to(shape));
    Tensor::build_shaped(op, shape, dtype, inputs[0].device(), |out| {
        backend::map(op, kernel.plain(), compute, Tensor::views(inputs, layouts.each_ref())?, out)
    })
}

/// Whether the result of an operation on tensors of one device is deferred.
#[inline(always)]
fn defers<K: Tile<N>, const N: usize>(
    op: &'static str,
    kernel: &K,
    compute: DType,
    inputs: &[&Tensor; N],
    numel: usize,
) -> Result<bool> {
    #[cfg(all(test, feature = "cuda"))]
    {
        use crate::backend::{code::Code, cuda::tests::remember};
        let symbols = std::array::from_fn(|k| Code::symbol(&format!("x{k}")));
        remember(N, kernel.ints().is_some(), kernel.code(symbols));
    }
    let device = inputs[0].device();
    if let Some(other) = inputs[1..].iter().find(|input| input.device() != device) {
        bail!(Device, op, "one tensor is on {device}, the other on {}", other.device());
    }
    if device != Device::Cpu {
        return defers_on_gpu(op, kernel.ints().is_some(), compute, inputs, numel);
    }
    Ok(numel >= WORTHWHILE && compute_dtype(compute).is_float() && may_defer(inputs))
}

/// Whether an operation on large tensors can be deferred. Parameters are changed in place, which a pending step that
/// reads them would turn into a copy; inside a pass, and where a graph is recorded, none outlives the next change.
#[inline(never)]
fn may_defer(inputs: &[&Tensor]) -> bool {
    let leaf = |input: &&Tensor| input.node().is_some_and(|node| node.kind == NodeKind::Leaf);
    is_grad_enabled() || in_pass() || !inputs.iter().any(leaf)
}

/// On a GPU a launch costs more than the arithmetic of any small tensor.
#[inline(never)]
fn defers_on_gpu(op: &'static str, ints: bool, compute: DType, inputs: &[&Tensor], numel: usize) -> Result<bool> {
    if !ints && !compute_dtype(compute).is_float() {
        bail!(Backend, op, "there is no kernel for {compute}");
    }
    Ok(numel > 0 && may_defer(inputs))
}

#[inline(never)]
fn defer(
    op: &'static str,
    kernel: Kernel,
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
    let step = Step { op, kernel, compute, dtype, device, numel, inputs: inputs.iter().map(input).collect() };
    Ok(Tensor::from_parts(step.defer()?, Layout::shaped(shape), dtype))
}
