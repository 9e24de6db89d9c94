//! The one way from an elementwise kernel to a tensor.

use crate::autograd::node::Kind;
use crate::autograd::{in_pass, is_grad_enabled};
use crate::backend;
use crate::backend::cpu::convert::compute_dtype;
use crate::backend::cpu::map::Tile;
use crate::backend::late::{Input, Kernel, Step, WORTHWHILE};
use crate::error::bail;
use crate::layout::Layout;
use crate::{DType, Result, Shape, Tensor};

/// `kernel` of the inputs, computed in `compute`, as a tensor of `shape` outside the graph. The inputs have that shape,
/// or broadcast to it, which the caller has checked. With many elements the result is put off until it is needed.
#[inline]
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
    let device = inputs[0].device();
    if let Some(other) = inputs.iter().find(|input| input.device() != device) {
        bail!(Device, op, "one tensor is on {device}, the other on {}", other.device());
    }
    if shape.numel() >= WORTHWHILE && may_wait(compute, &inputs) {
        return put_off(op, Kernel::from(Box::new(kernel)), compute, &inputs, shape, dtype);
    }
    if inputs.iter().all(|input| input.layout().shape() == shape) {
        return Tensor::build_shaped(op, shape, dtype, device, |out| {
            backend::map(op, &kernel, compute, Tensor::views(inputs, inputs.map(Tensor::layout))?, out)
        });
    }
    let layouts = inputs.map(|input| input.layout().broadcast_to(shape));
    Tensor::build_shaped(op, shape, dtype, device, |out| {
        backend::map(op, &kernel, compute, Tensor::views(inputs, layouts.each_ref())?, out)
    })
}

/// Whether an operation on large tensors can be put off. Parameters are changed in place, which a pending step that
/// reads them would turn into a copy; inside a pass, and where a graph is recorded, none outlives the next change.
fn may_wait(compute: DType, inputs: &[&Tensor]) -> bool {
    let leaf = |input: &&Tensor| input.node().is_some_and(|node| node.kind == Kind::Leaf);
    compute_dtype(compute).is_float() && (is_grad_enabled() || in_pass() || !inputs.iter().any(leaf))
}

#[inline(never)]
fn put_off(
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
    let numel = shape.numel();
    let step = Step { op, kernel, compute, dtype, numel, inputs: inputs.iter().map(input).collect() };
    Ok(Tensor::from_parts(step.put_off()?, Layout::shaped(shape), dtype))
}
