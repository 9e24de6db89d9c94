//! The seam for the kernels that do several operations at once.

#[cfg(feature = "cuda")]
use super::cuda;
#[cfg(not(feature = "cuda"))]
use super::no_cuda;
use super::spec::{AttentionInputs, Draw, MatmulPrecision, Targets};
use super::{View, ViewMut, common_device, cpu, dispatch};
use crate::error::err;
use crate::{DType, Device, Result, interrupt};

/// `out = a · b`, plus `row` in every row. `a` is `[batch.., m, k]`, `b` `[batch.., k, n]`, of one dtype. `out` is contiguous
/// and of the same dtype; on the CPU it is of a compute dtype, that of `a` and `b` or, for products of bf16, f32.
/// Operands of bf16 are multiplied as `MatmulPrecision::Bf16`, where the device has that.
pub(crate) fn matmul(
    op: &'static str,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
    precision: MatmulPrecision,
) -> Result<()> {
    let others = [b.device(), out.device()].into_iter().chain(row.map(|row| row.device()));
    dispatch!(op, common_device(op, a.device(), others)?,
        cpu => {
            let bf16 = precision == MatmulPrecision::Bf16;
            let multiply = if bf16 { cpu::linalg::matmul::matmul_bf16 } else { cpu::linalg::matmul::matmul };
            multiply(op, a, b, out, row)
        },
        cuda(n) => cuda::linalg::matmul::matmul(op, n, a, b, out, row, precision))
}

/// With `x` a row of `input` `[R, D]`: `(x - mean) / sqrt(variance + eps) * weight + bias` into `out` `[R, D]`; the mean
/// and the inverse square root into `stats` `[R, 2]`, which is of the compute dtype. So are, on the CPU, `weight` and
/// `bias` (`[D]`, contiguous, of one dtype).
pub(crate) fn layer_norm(
    op: &'static str,
    input: View<'_>,
    [weight, bias]: [Option<View<'_>>; 2],
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let others = [weight, bias].into_iter().flatten().map(|view| view.device()).chain([stats.device(), out.device()]);
    dispatch!(op, common_device(op, input.device(), others)?,
        cpu => cpu::nn::layer_norm::forward(op, input, weight, bias, eps, stats, out),
        cuda(n) => cuda::nn::rows::layer_norm(op, n, input, [weight, bias], eps, stats, out))
}

/// Into how many pieces [`layer_norm_backward`] cuts the rows: their sizes alone decide.
pub(crate) fn layer_norm_pieces(device: Device, rows: usize, len: usize) -> usize {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => cuda::nn::rows::layer_norm_pieces(rows, len),
        _ => cpu::nn::layer_norm::pieces(rows, len),
    }
}

/// The cotangents: of `input` `[R, D]` into `input_grad`, and for each of the pieces that [`layer_norm_pieces`] asks for
/// the sums over its rows of `g · normalised` and of `g` into `sums` `[pieces, 2, D]`, which is of the compute dtype.
pub(crate) fn layer_norm_backward(
    op: &'static str,
    [input, g, stats]: [View<'_>; 3],
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let others = [g.device(), stats.device()].into_iter().chain(weight.map(|view| view.device()));
    dispatch!(op, common_device(op, input.device(), others)?,
        cpu => cpu::nn::layer_norm::backward(op, input, g, stats, weight, input_grad, sums),
        cuda(n) => cuda::nn::rows::layer_norm_backward(op, n, [input, g, stats], weight, input_grad, sums))
}

/// With `x` a row of `logits` `[R, C]`: its greatest element and the inverse of `Σ exp(x - greatest)` into `stats`
/// `[R, 2]`, the row's loss into `loss` `[R]`, and its weight, if it counts, into `counted` `[R]`, which only a GPU is
/// given. All three are of the compute dtype of `logits`. A GPU reports classes out of range later.
pub(crate) fn cross_entropy(
    op: &'static str,
    logits: View<'_>,
    targets: Targets<'_>,
    stats: &mut ViewMut<'_>,
    loss: &mut ViewMut<'_>,
    counted: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let others = targets.devices().chain([stats.device(), loss.device()]);
    let device = common_device(op, logits.device(), others)?;
    match (device, counted) {
        (Device::Cpu, _) => interrupt::caught(op, || cpu::nn::cross_entropy::forward(op, logits, targets, stats, loss)),
        #[cfg(feature = "cuda")]
        (Device::Cuda(n), Some(counted)) => cuda::nn::rows::cross_entropy(op, n, logits, targets, stats, loss, counted),
        (device, _) => Err(err!(Backend, op, "there is nowhere on {device} to put the rows' weights")),
    }
}

/// The cotangent of `logits`, from those of the rows' losses, `g` `[R, 1]`, and what [`cross_entropy`] found; `total` is the
/// sum of the classes' weights, if these count, which only a GPU asks for. Without `logits`, `out` holds them and they are
/// written over.
pub(crate) fn cross_entropy_backward(
    op: &'static str,
    targets: Targets<'_>,
    logits: Option<View<'_>>,
    [stats, g]: [View<'_>; 2],
    total: Option<View<'_>>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let _ = total;
    let others = targets.devices().chain([stats.device(), g.device()]).chain(logits.map(|logits| logits.device()));
    dispatch!(op, common_device(op, out.device(), others)?,
        cpu => cpu::nn::cross_entropy::backward(op, logits, targets, stats, g, out),
        cuda(n) => cuda::nn::rows::cross_entropy_backward(op, n, targets, logits, [stats, g], total, out))
}

/// The dtype in which a device's fused kernel takes operands of `dtype`, if it has one for rows of so many elements in tensors
/// of this rank.
pub(crate) fn attention_dtype(
    device: Device,
    dtype: DType,
    [size, value_size, rank]: [usize; 3],
    scale: f64,
) -> Option<DType> {
    match device {
        Device::Cpu => Some(cpu::runtime::convert::compute_dtype(dtype)),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => cuda::nn::attention::fits(size, value_size, rank, scale).then_some(dtype),
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(_) => {
            let _ = (dtype, size, value_size, rank, scale);
            None
        }
    }
}

/// Writes the result, `[batch.., T, E]`, and the logarithms of the softmax's sums, `[batch.., T]`; both contiguous, but for
/// the result on a GPU. The sums and the mask are of the compute dtype.
pub(crate) fn attention(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    sums: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let others = inputs.devices().chain([sums.device(), out.device()]);
    dispatch!(op, common_device(op, inputs.query.device(), others)?,
        cpu => cpu::nn::attention::forward(op, inputs, sums, out),
        cuda(n) => cuda::nn::attention::forward(op, n, inputs, sums, out))
}

/// Writes the cotangents of query, key and value that are asked for, given those of the result; all contiguous.
pub(crate) fn attention_backward(
    op: &'static str,
    inputs: &AttentionInputs<'_>,
    [sums, out, g]: [View<'_>; 3],
    grads: [Option<&mut ViewMut<'_>>; 3],
) -> Result<()> {
    let others = inputs.devices().chain([sums.device(), out.device(), g.device()]);
    dispatch!(op, common_device(op, inputs.query.device(), others)?,
        cpu => cpu::nn::attention::backward(op, inputs, sums, out, g, grads),
        cuda(n) => cuda::nn::attention::backward(op, n, inputs, [sums, out, g], grads))
}

/// Fills contiguous elements with the draw of a seed that starts at the counter `offset`. On the CPU halves are not
/// drawn directly.
pub(crate) fn draw(op: &'static str, draw: Draw, (seed, offset): (u64, u64), out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, out.device(),
        cpu => cpu::elementwise::copy::draw(op, draw, (seed, offset), out),
        cuda(n) => cuda::elementwise::random::draw(op, n, draw, seed, offset, out))
}
