//! Dispatch of fused kernels to the devices.

#[cfg(feature = "cuda")]
use super::cuda;
#[cfg(not(feature = "cuda"))]
use super::no_cuda;
use super::spec::{
    AttentionInputs, CachedAttention, Draw, MatmulPrecision, QuantFormat, QuantSide, RowLayers, Targets, TokenRows,
};
use super::{View, ViewMut, common_device, cpu, dispatch, on_cpu};
use crate::error::err;
use crate::{DType, Device, Result, interrupt};

/// `out = a · b`, plus `row` in every row. `a` is `[batch.., m, k]`, `b` `[batch.., k, n]`, of one dtype. `out` is contiguous
/// and of the same dtype; on the CPU it is of a compute dtype, that of `a` and `b` or, for products of bf16, f32.
/// Operands of bf16 are multiplied as with `MatmulPrecision::Bf16`, if the device supports it.
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

/// The number of pieces into which [`layer_norm_backward`] splits the rows. It depends only on the sizes.
pub(crate) fn layer_norm_pieces(device: Device, rows: usize, len: usize) -> usize {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => cuda::nn::rows::layer_norm_pieces(rows, len),
        _ => cpu::nn::layer_norm::pieces(rows, len),
    }
}

/// The cotangents: of `input` `[R, D]` into `input_grad`, and for each of the [`layer_norm_pieces`] the sums over its rows of
/// `g · normalised` and of `g` into `sums` `[pieces, 2, D]`, which is of the compute dtype.
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
/// `[R, 2]`, the row's loss into `loss` `[R]`, and its weight, 0 if it is ignored, into `counted` `[R]`, which is only for GPUs.
/// All three are of the compute dtype of `logits`. A GPU reports classes out of range later.
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
        (device, _) => Err(err!(Backend, op, "the kernel for {device} needs a buffer for the weights of the rows")),
    }
}

/// The cotangent of `logits`, from those of the rows' losses, `g` `[R, 1]`, and the `stats` of [`cross_entropy`]. `total` is the
/// sum of the class weights, if they are used, which only a GPU needs. Without `logits`, `out` holds them and they are
/// overwritten.
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

/// The dtype in which a device's fused attention kernel takes operands of `dtype`; `None` if it has none for these sizes and rank.
pub(crate) fn attention_dtype(
    device: Device,
    dtype: DType,
    [size, value_size, rank]: [usize; 3],
    scale: f64,
) -> Option<DType> {
    match device {
        Device::Cpu => Some(dtype.compute_dtype()),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => cuda::nn::attention::fits(size, value_size, rank, scale).then_some(dtype),
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(_) => {
            let _ = (dtype, size, value_size, rank, scale);
            None
        }
    }
}

/// Writes the result, `[batch.., T, E]`, and the LSE, the logarithms of the softmax's sums, `[batch.., T]`. Both are contiguous,
/// except the result on a GPU. The sums and the mask are of the compute dtype.
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

/// Writes the requested cotangents of query, key and value, given that of the result; all contiguous.
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

/// Whether a device has a kernel for [`CachedAttention`] of this dtype and these sizes.
pub(crate) fn has_cached_attention(device: Device, dtype: DType, [size, value_size]: [usize; 2]) -> bool {
    #[cfg(feature = "cuda")]
    return device != Device::Cpu && cuda::nn::cached::fits(dtype, size, value_size);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (device, dtype, size, value_size);
        false
    }
}

/// Attention of a few queries over many keys, where [`has_cached_attention`] says so. The result is contiguous.
pub(crate) fn cached_attention(op: &'static str, inputs: &CachedAttention<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, out.device(), inputs.devices())?,
        cpu => Err(err!(Backend, op, "there is no kernel for cached attention on the CPU")),
        cuda(n) => cuda::nn::cached::attend(op, n, inputs, out))
}

/// Writes tokens `[batch, .., 1, size]` into contiguous caches `[batch, .., capacity, size]`, at positions of i64 on the device,
/// one for all sequences or one for each.
pub(crate) fn write_tokens(
    op: &'static str,
    caches: &[&mut ViewMut<'_>; 2],
    tokens: [View<'_>; 2],
    positions: View<'_>,
) -> Result<()> {
    let others = [caches[0].device(), caches[1].device(), tokens[0].device(), tokens[1].device()];
    dispatch!(op, common_device(op, positions.device(), others)?,
        cpu => {
            let _ = (caches, tokens);
            Err(err!(Backend, op, "there is no kernel for positions on the device on the CPU"))
        },
        cuda(n) => cuda::nn::tokens::write_tokens(op, n, caches, tokens, positions))
}

/// As [`write_tokens`], for a token of each sequence, with keys rotated by their angles; the rotated queries are written to `out`,
/// contiguous.
pub(crate) fn rotate_tokens(
    op: &'static str,
    caches: &[&mut ViewMut<'_>; 2],
    rows: &TokenRows<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let TokenRows { query, key, value, cos, sin, positions } = rows;
    let others = [query, key, value, cos, sin, positions].map(View::device);
    let others = others.into_iter().chain([caches[0].device(), caches[1].device()]);
    dispatch!(op, common_device(op, out.device(), others)?,
        cpu => {
            let _ = caches;
            Err(err!(Backend, op, "there is no kernel for positions on the device on the CPU"))
        },
        cuda(n) => cuda::nn::tokens::rotate_tokens(op, n, caches, rows, out))
}

/// Whether the device has a kernel for these layers, and it is the fastest way to compute them.
pub(crate) fn has_row_layers(layers: &RowLayers<'_>) -> bool {
    #[cfg(feature = "cuda")]
    return layers.x.device() != Device::Cpu && cuda::linalg::few_rows::has_row_layers(layers);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = layers;
        false
    }
}

/// Linear layers of few rows, where [`has_row_layers`] says so. The result is contiguous, with the results of a row side by side.
pub(crate) fn row_layers(op: &'static str, layers: &RowLayers<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, out.device(), layers.devices())?,
        cpu => Err(err!(Backend, op, "there is no kernel for layers of few rows on the CPU")),
        cuda(n) => cuda::linalg::few_rows::row_layers(op, n, layers, out))
}

/// Whether a device has kernels for forward passes of which nothing is recorded: [`rms_norm`] and [`rope`].
pub(crate) fn has_forward_kernels(device: Device, dtype: DType) -> bool {
    cfg!(feature = "cuda") && device != Device::Cpu && dtype.is_float()
}

/// `x / sqrt(mean(x²) + eps) · weight` of rows `[R, D]`, where [`has_forward_kernels`] says so; the result is contiguous.
pub(crate) fn rms_norm(
    op: &'static str,
    input: View<'_>,
    weight: Option<View<'_>>,
    eps: f64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let others = weight.iter().map(View::device).chain([input.device()]);
    dispatch!(op, common_device(op, out.device(), others)?,
        cpu => {
            let _ = eps;
            Err(err!(Backend, op, "there is no kernel for forward passes alone on the CPU"))
        },
        cuda(n) => cuda::nn::forward::rms_norm(op, n, input, weight, eps, out))
}

/// Rotates the pairs of `first` and of the elements `half` after it, each `[.., pairs]`, by angles of that shape, where
/// [`has_forward_kernels`] says so. The result is contiguous.
pub(crate) fn rope(
    op: &'static str,
    first: View<'_>,
    half: isize,
    angles: [View<'_>; 2],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let others = [first.device(), angles[0].device(), angles[1].device()];
    dispatch!(op, common_device(op, out.device(), others)?,
        cpu => {
            let _ = half;
            Err(err!(Backend, op, "there is no kernel for forward passes alone on the CPU"))
        },
        cuda(n) => cuda::nn::forward::rope(op, n, first, half, angles, out))
}

/// Fills contiguous elements with random numbers of a seed, from the counter `offset` on. On the CPU half precision is not
/// supported directly.
pub(crate) fn draw(op: &'static str, draw: Draw, (seed, offset): (u64, u64), out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, out.device(),
        cpu => cpu::elementwise::copy::draw(op, draw, (seed, offset), out),
        cuda(n) => cuda::elementwise::random::draw(op, n, draw, seed, offset, out))
}

/// The mean and the variance of each channel into `stats` `[C, 2]`, of `input` `[N, C, L]`. CPU only.
pub(crate) fn batch_norm_stats(op: &'static str, input: View<'_>, stats: &mut ViewMut<'_>) -> Result<()> {
    on_cpu(op, [input.device(), stats.device()])?;
    interrupt::caught(op, || cpu::nn::batch_norm::stats(op, input, stats))
}

/// As [`cpu::nn::batch_norm::backward`]. CPU only.
pub(crate) fn batch_norm_backward(
    op: &'static str,
    inputs: [View<'_>; 3],
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) -> Result<()> {
    on_cpu(op, inputs.iter().map(View::device).chain([sums.device()]))?;
    interrupt::caught(op, || cpu::nn::batch_norm::backward(op, inputs, input_grad, sums))
}

/// As [`cpu::nn::group_norm::forward`]. CPU only.
pub(crate) fn group_norm(
    op: &'static str,
    input: View<'_>,
    each: usize,
    affine: [Option<View<'_>>; 2],
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    on_cpu(op, [input.device(), stats.device(), out.device()])?;
    interrupt::caught(op, || cpu::nn::group_norm::forward(op, input, each, affine, eps, stats, out))
}

/// As [`cpu::nn::group_norm::backward`]. CPU only.
pub(crate) fn group_norm_backward(
    op: &'static str,
    inputs: [View<'_>; 3],
    each: usize,
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) -> Result<()> {
    on_cpu(op, inputs.iter().map(View::device).chain([sums.device()]))?;
    interrupt::caught(op, || cpu::nn::group_norm::backward(op, inputs, each, weight, input_grad, sums))
}

/// `out = x · matrixᵀ` for few rows `x` `[m, inputs]` in f32, for which [`takes_quantized`] is true, and a quantised matrix
/// with the blocks `[outputs, bytes]`. `out` is `[m, outputs]` in f32. All are contiguous.
pub(crate) fn quantized_product(
    op: &'static str,
    x: View<'_>,
    format: QuantFormat,
    blocks: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    on_cpu(op, [x.device(), blocks.device(), out.device()])?;
    interrupt::caught(op, || cpu::linalg::quantized::product(op, x, format, blocks, out))
}

/// `out = x · matrixᵀ` or `out = x · matrix`, for a quantised matrix with the blocks `[rows, bytes]`. `x` and `out` are
/// contiguous matrices, both of f32 or both of f64.
pub(crate) fn quantized_matmul(
    op: &'static str,
    x: View<'_>,
    format: QuantFormat,
    blocks: View<'_>,
    side: QuantSide,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    on_cpu(op, [x.device(), blocks.device(), out.device()])?;
    interrupt::caught(op, || cpu::linalg::quantized::matmul(op, x, format, blocks, side, out))
}

/// The elements of a quantised matrix with the blocks `[rows, bytes]`, into `out` `[rows, elements]`, contiguous in f32.
pub(crate) fn dequantize(op: &'static str, format: QuantFormat, blocks: View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    on_cpu(op, [blocks.device(), out.device()])?;
    interrupt::caught(op, || cpu::linalg::quantized::dequantize(op, format, blocks, out))
}

/// Quantises the rows of `x` `[rows, elements]`, contiguous in f32, into `blocks` `[rows, bytes]`.
pub(crate) fn quantize(op: &'static str, format: QuantFormat, x: View<'_>, blocks: ViewMut<'_>) -> Result<()> {
    on_cpu(op, [x.device(), blocks.device()])?;
    let columns = x.layout.shape().last().copied().unwrap_or(0);
    let (Some(x), Some(blocks)) = (x.as_slice::<f32>(), blocks.into_slice::<u8>()) else {
        return Err(err!(Backend, op, "rows must be contiguous f32"));
    };
    interrupt::caught(op, || cpu::linalg::quantized::quantize(op, format, x, columns, blocks))
}
