//! Convolutions: by cuDNN if it is found and supports the problem, else as implicit matrix products, whose operands are
//! gathered on the fly.

use super::cudnn;
use super::cudnn::convolution::Problem;
use super::rows::InOrder;
use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::Conv;
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar};
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("conv.cu")];
/// The side of a tile, and the step of the inner dimension, as in the source.
const TILE: usize = 64;
const STEP: usize = 16;
/// The most result channels per group for which each thread computes one result.
const FEW: usize = 8;
/// About the number of resident blocks of a GPU: if there would be fewer, the sums are split into parts.
const BLOCKS: usize = 512;

/// What is computed, as in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Forward,
    Input,
    Weight,
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let conv = Conv {
        batch: 2,
        groups: 1,
        c_in: 3,
        c_out: 4,
        input: [1, 5, 5],
        output: [1, 3, 3],
        kernel: [1, 3, 3],
        stride: [1, 2, 2],
        pad: [0, 1, 1],
        dilation: [1, 1, 1],
        tf32: false,
    };
    let kinds = [Kind::Forward, Kind::Input, Kind::Weight];
    let floats = [DType::F32, DType::F64, DType::F16, DType::BF16];
    kinds
        .into_iter()
        .flat_map(|kind| floats.map(|dtype| source(kind, &conv, dtype, false)))
        .chain(kinds.map(|kind| source(kind, &conv, DType::F32, true)))
        .collect()
}

fn source(kind: Kind, conv: &Conv, dtype: DType, wide: bool) -> KernelSource {
    let [kd, kh, kw] = conv.kernel;
    let [sd, sh, sw] = conv.stride;
    KernelSource::new(FILES, dtype.compute_dtype(), wide)
        .fused()
        .dtype("E", dtype)
        .set("KIND", kind as usize)
        .set("S", if wide { "long long" } else { "int" })
        .set("KD", kd)
        .set("KH", kh)
        .set("KW", kw)
        .set("SD", sd)
        .set("SH", sh)
        .set("SW", sw)
}

/// Whether indices need more than 32 bits.
fn is_wide(conv: &Conv) -> bool {
    let most = 1 << 30;
    let positions = |sizes: [usize; 3]| sizes.into_iter().fold(1, usize::saturating_mul);
    let reach = |dim: usize| {
        let window = conv.dilation[dim].saturating_mul(conv.kernel[dim]);
        conv.input[dim].saturating_add(conv.pad[dim]).saturating_add(window).saturating_add(conv.stride[dim])
    };
    positions(conv.input) >= most
        || positions(conv.output) >= most
        || positions(conv.kernel) >= most
        || (0..3).any(|dim| reach(dim) >= most)
}

/// The problem as the kernel's struct.
fn problem(conv: &Conv) -> SmallVec<[u64; 16]> {
    let sizes = [conv.batch, conv.groups, conv.c_in, conv.c_out];
    let dims = [conv.input, conv.output, conv.pad, conv.dilation];
    sizes.into_iter().chain(dims.into_iter().flatten()).map(|size| size as u64).collect()
}

/// As the CPU's [`forward`](crate::backend::cpu::nn::conv::forward).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn forward(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    products(op, ordinal, Kind::Forward, [w, x], bias, conv, out)
}

/// As the CPU's [`input_gradient`](crate::backend::cpu::nn::conv::input_gradient).
///
/// # Errors
/// As for [`forward`].
pub(crate) fn input_gradient(
    op: &'static str,
    ordinal: usize,
    g: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    products(op, ordinal, Kind::Input, [w, g], bias, conv, out)
}

/// As the CPU's [`weight_gradient`](crate::backend::cpu::nn::conv::weight_gradient).
///
/// # Errors
/// As for [`forward`].
pub(crate) fn weight_gradient(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    g: View<'_>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    products(op, ordinal, Kind::Weight, [g, x], None, conv, out)
}

/// Whether convolutions of this dtype use and return the channels-last format, as tensor cores prefer.
pub(crate) fn channels_last(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && cudnn::is_present()
}

/// Whether biases are added to the results of the kernels instead of inside them.
pub(crate) fn leaves_bias() -> bool {
    cudnn::is_present()
}

/// A five-dimensional layout with the channels moved last.
fn channels_behind(op: &'static str, layout: &Layout) -> Result<Layout> {
    layout.permute(op, &[0, 2, 3, 4, 1])
}

/// Runs cuDNN. Returns `false`, without effects, if it is missing or does not support the problem.
fn by_library(
    op: &'static str,
    ordinal: usize,
    kind: Kind,
    [a, b]: [View<'_>; 2],
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    let channels_last = channels_last(out.dtype);
    let order = |layout: &Layout| if channels_last { channels_behind(op, layout) } else { Ok(layout.clone()) };
    let (la, lb, lout) = (order(a.layout)?, order(b.layout)?, order(out.layout)?);
    let (a, b) = (View { layout: &la, ..a }, View { layout: &lb, ..b });
    let (a, b) = (InOrder::new(op, ordinal, a)?, InOrder::new(op, ordinal, b)?);
    let in_order = lout.is_contiguous();
    let copy = Storage::new(op, Device::Cuda(ordinal), if in_order { 0 } else { lout.numel() * out.dtype.size() })?;
    let y = if in_order { out.first().cast_const() } else { copy.as_ptr() };
    let (tensors, bits) = match kind {
        Kind::Forward => ([b.first, a.first, y], [b.first, a.first, y]),
        Kind::Input => ([y, a.first, b.first], [b.first, a.first, y]),
        Kind::Weight => ([b.first, y, a.first], [b.first, a.first, y]),
    };
    let alignment = 1 << bits.iter().fold(16, |bits, at| bits | at.addr()).trailing_zeros();
    let problem = Problem { kind, conv: *conv, dtype: out.dtype, channels_last, alignment };
    // SAFETY: the operands and the result are in the order of the problem; the result is borrowed mutably or new.
    if !unsafe { problem.run(op, gpu(op, ordinal)?, tensors)? } {
        return Ok(false);
    }
    if !in_order {
        let from = Layout::contiguous(lout.shape().clone());
        let from = View { storage: &copy, layout: &from, dtype: out.dtype };
        chain::copy(op, ordinal, from, &mut out.part(&lout))?;
    }
    Ok(true)
}

fn products(
    op: &'static str,
    ordinal: usize,
    kind: Kind,
    [a, b]: [View<'_>; 2],
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, numel) = (gpu(op, ordinal)?, out.layout.numel());
    if numel == 0 {
        return Ok(());
    }
    let read = a.layout.numel() > 0 && b.layout.numel() > 0;
    if bias.is_none() && read && by_library(op, ordinal, kind, [a, b], conv, out)? {
        return Ok(());
    }
    if !out.layout.is_contiguous() {
        let layout = Layout::contiguous(out.layout.shape().clone());
        let mut copy = Storage::new(op, Device::Cuda(ordinal), numel * out.dtype.size())?;
        own_kernels(op, gpu, kind, [a, b], bias, conv, &mut ViewMut::new(op, &mut copy, &layout, out.dtype)?)?;
        return chain::copy(op, ordinal, View { storage: &copy, layout: &layout, dtype: out.dtype }, out);
    }
    own_kernels(op, gpu, kind, [a, b], bias, conv, out)
}

/// As [`products`], by the kernels of this library.
fn own_kernels(
    op: &'static str,
    gpu: &Gpu,
    kind: Kind,
    [a, b]: [View<'_>; 2],
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (ordinal, numel) = (gpu.ordinal, out.layout.numel());
    let count = |sizes: [usize; 3]| sizes.iter().product::<usize>();
    let (kernel, output) = (count(conv.kernel), count(conv.output));
    let (rows, columns, inner) = match kind {
        Kind::Forward => (conv.c_out, conv.batch * output, conv.c_in * kernel),
        Kind::Input => (conv.c_in, conv.batch * count(conv.input), conv.c_out * kernel),
        Kind::Weight => (conv.c_out, conv.c_in * kernel, conv.batch * output),
    };
    if inner == 0 && bias.is_none() {
        return chain::fill(op, ordinal, out, Scalar::F64(0.0));
    }
    let (a, b) = (InOrder::new(op, ordinal, a)?, InOrder::new(op, ordinal, b)?);
    let source = source(kind, conv, out.dtype, is_wide(conv));
    let operands = Arguments::new().at(a.first).at(b.first);
    let (bias, y) = (bias.map(|bias| bias.first()), out.first().cast_const());
    let words = problem(conv);
    if kind != Kind::Weight && rows < FEW {
        let arguments = operands.at_or_null(bias).at(y).words(&words).size(numel);
        let function = source.function(op, gpu, "direct")?;
        // SAFETY: all operands and the output are contiguous (L2) and have the problem's sizes.
        return unsafe { arguments.launch(op, gpu, function, Grid::over(numel, 256, 256)) };
    }
    if kind == Kind::Weight && rows < FEW && conv.c_in < FEW {
        let arguments = operands.at(y).words(&words).size(numel);
        let function = source.function(op, gpu, "direct_weight")?;
        // SAFETY: as above.
        return unsafe { arguments.launch(op, gpu, function, Grid::over(numel, 1, 256)) };
    }
    let tiles = conv.groups * rows.div_ceil(TILE) * columns.div_ceil(TILE);
    let splits = if kind == Kind::Weight { (BLOCKS / tiles).clamp(1, inner.div_ceil(STEP * 32)) } else { 1 };
    let length = inner.div_ceil(splits).next_multiple_of(STEP);
    let splits = inner.div_ceil(length).max(1);
    let compute = out.dtype.compute_dtype();
    let bytes = if kind == Kind::Weight { (numel * compute.size()).saturating_mul(splits) } else { 0 };
    let partial = Storage::new(op, Device::Cuda(ordinal), bytes)?;
    let arguments = operands.at_or_null(bias).at(y).at(partial.as_ptr()).words(&words).size(splits).size(length);
    let grid = Grid { blocks: [tiles * splits, 1], threads: [256, 1], shared: 0 };
    let function = source.function(op, gpu, "tiles")?;
    // SAFETY: as above; there is room for each part's sums.
    unsafe { arguments.launch(op, gpu, function, grid)? };
    if kind == Kind::Weight {
        let arguments = Arguments::new().at(partial.as_ptr()).at(y).size(numel).size(splits);
        let function = source.function(op, gpu, "add_parts")?;
        // SAFETY: the parts have one sum for each output element.
        unsafe { arguments.launch(op, gpu, function, Grid::over(numel, 256, 256))? };
    }
    Ok(())
}
