//! Fused kernels over rows: softmax, layer norm and cross entropy.

use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE, is_wide};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::{SoftmaxKind, Targets};
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const GROUPS: &str = include_str!("../runtime/groups.cu");
const SOFTMAX: &[&str] = &[GROUPS, include_str!("softmax.cu")];
const LAYER_NORM: &[&str] = &[GROUPS, include_str!("layer_norm.cu")];
const CROSS_ENTROPY: &[&str] = &[GROUPS, include_str!("../runtime/fault.cu"), include_str!("cross_entropy.cu")];

/// Contiguous elements: the original ones, or a copy.
pub(crate) struct InOrder {
    pub first: *const u8,
    _copy: Option<Storage>,
}

impl InOrder {
    /// # Errors
    /// If memory runs out.
    pub fn new(op: &'static str, ordinal: usize, view: View<'_>) -> Result<InOrder> {
        if view.layout.is_contiguous() {
            return Ok(InOrder { first: view.first(), _copy: None });
        }
        InOrder::of_own(op, ordinal, view)
    }

    /// As [`new`](Self::new), aligned to the widest reads.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn aligned(op: &'static str, ordinal: usize, view: View<'_>) -> Result<InOrder> {
        if view.first().addr().is_multiple_of(WIDE) {
            Self::new(op, ordinal, view)
        } else {
            Self::of_own(op, ordinal, view)
        }
    }

    /// A copy, aligned to the widest reads.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn of_own(op: &'static str, ordinal: usize, view: View<'_>) -> Result<InOrder> {
        let layout = Layout::contiguous(view.layout.shape().clone());
        let mut copy = Storage::new(op, Device::Cuda(ordinal), layout.numel() * view.dtype.size())?;
        chain::copy(op, ordinal, view, &mut ViewMut::new(op, &mut copy, &layout, view.dtype)?)?;
        Ok(InOrder { first: copy.as_ptr(), _copy: Some(copy) })
    }
}

/// As the CPU's [`softmax`](crate::backend::cpu::nn::softmax::softmax).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn softmax<const N: usize>(
    op: &'static str,
    ordinal: usize,
    kind: SoftmaxKind,
    inputs: [View<'_>; N],
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape) = (gpu(op, ordinal)?, out.layout.shape().clone());
    let numel = shape.numel();
    if numel == 0 {
        return Ok(());
    }
    // A scalar is a row of one element.
    let (length, inner) = dim.map_or((1, 1), |dim| (shape[dim], shape[dim + 1..].iter().product::<usize>()));
    let [a, b] = [inputs[0], inputs[N - 1]].map(|view| InOrder::new(op, ordinal, view));
    let (a, b) = (a?, b?);
    let group = match length {
        _ if inner > 1 => 1,
        1024.. => 256,
        _ => 32,
    };
    let source = softmax_source(out.dtype, kind, is_wide(numel), group);
    let rows = numel / length;
    let arguments = Arguments::new().at(a.first).at(b.first).at(out.first().cast_const()).size(rows).size(length);
    // SAFETY: all operands have `numel` contiguous elements (L2), and the arguments are those of the kernels.
    unsafe {
        if inner == 1 {
            let function = source.function(op, gpu, "softmax_rows")?;
            arguments.launch(op, gpu, function, Grid::over(rows, 256 / group, 256))
        } else {
            let function = source.function(op, gpu, "softmax_columns")?;
            arguments.size(inner).launch(op, gpu, function, Grid::over(rows, 256, 256))
        }
    }
}

fn softmax_source(dtype: DType, kind: SoftmaxKind, wide: bool, group: usize) -> KernelSource {
    let source = KernelSource::new(SOFTMAX, dtype.compute_dtype(), wide);
    source.dtype("E", dtype).set("WHICH", kind as usize).set("GROUP", group)
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    use crate::backend::cuda::tests::floats;
    let rows = [SoftmaxKind::Softmax, SoftmaxKind::LogSoftmax, SoftmaxKind::SoftmaxGrad, SoftmaxKind::LogSoftmaxGrad];
    let mut all = Vec::new();
    for dtype in floats() {
        all.extend(
            rows.into_iter().zip([1, 32, 256, 32]).map(|(kind, group)| softmax_source(dtype, kind, false, group)),
        );
        all.extend([768, 77, 4100].map(|len| norm_source(dtype, dtype, len, &[])));
        all.extend([false, true].map(|weighted| targets_source(dtype, 50257, weighted).0));
    }
    all.push(norm_source(DType::BF16, DType::F32, 1024, &[]));
    all
}

/// How a row of a layer norm is split over threads.
fn norm_source(dtype: DType, weight: DType, len: usize, first: &[*const u8]) -> KernelSource {
    let fits = |pack: &usize| {
        let aligned = first.iter().all(|first| first.addr().is_multiple_of(pack * dtype.size().max(weight.size())));
        len.is_multiple_of(*pack) && pack * dtype.size() <= WIDE && pack * weight.size() <= WIDE && aligned
    };
    // Not 8: a thread would hold too much of a row.
    let pack = [4, 2, 1].into_iter().find(fits).unwrap_or(1);
    // The part of three rows that a thread can hold in registers.
    let group = if len <= 32 * 32 { 32 } else { 256 };
    KernelSource::new(LAYER_NORM, dtype.compute_dtype(), false)
        .fused()
        .dtype("E", dtype)
        .dtype("V", weight)
        .set("W", len)
        .set("GROUP", group)
        .set("PACK", pack)
        .set("PACKS", len.div_ceil(pack * group))
}

/// The number of rows that a block processes at a time.
fn rows_at_a_time(len: usize) -> usize {
    if len <= 32 * 32 { 8 } else { 1 }
}

/// As the CPU's [`forward`](crate::backend::cpu::nn::layer_norm::forward); weight and bias are of any one dtype.
///
/// # Errors
/// As for [`softmax`].
pub(crate) fn layer_norm(
    op: &'static str,
    ordinal: usize,
    input: View<'_>,
    [weight, bias]: [Option<View<'_>>; 2],
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (rows, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    if rows * len == 0 {
        return Ok(());
    }
    let x = InOrder::new(op, ordinal, input)?;
    let [w, b] = [weight, bias].map(|view| view.map(|view| view.first()));
    let firsts: Vec<*const u8> = [Some(x.first), Some(out.first().cast_const()), w, b].into_iter().flatten().collect();
    let source = norm_source(input.dtype, weight.or(bias).map_or(input.dtype, |view| view.dtype), len, &firsts);
    let function = source.function(op, gpu, "layer_norm")?;
    let arguments = Arguments::new()
        .size(rows)
        .at(x.first)
        .at_or_null(w)
        .at_or_null(b)
        .float(eps)
        .at(out.first().cast_const())
        .at(stats.first().cast_const());
    // SAFETY: input and output are contiguous rows of `len` elements (L2), the statistics two numbers a row, weight and
    // bias `len` elements; the arguments are those of the kernel.
    unsafe { arguments.launch(op, gpu, function, Grid::over(rows, rows_at_a_time(len), 256)) }
}

/// The number of pieces into which [`layer_norm_backward`] cuts the rows.
pub(crate) fn layer_norm_pieces(rows: usize, len: usize) -> usize {
    rows.div_ceil(rows_at_a_time(len)).clamp(1, 512)
}

/// As the CPU's [`backward`](crate::backend::cpu::nn::layer_norm::backward); the weight is of any dtype.
///
/// # Errors
/// As for [`softmax`].
pub(crate) fn layer_norm_backward(
    op: &'static str,
    ordinal: usize,
    [input, g, stats]: [View<'_>; 3],
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (rows, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    let sums_bytes = sums.as_ref().map_or(0, |sums| sums.layout.numel() * sums.dtype.size());
    let (to_x, to_sums) = (input_grad.map(|view| view.first()), sums.map(|view| view.first()));
    if rows * len == 0 {
        // SAFETY: the sums have these bytes.
        return to_sums.map_or(Ok(()), |sums| unsafe { gpu.clear(op, sums, sums_bytes) });
    }
    let (x, g) = (InOrder::new(op, ordinal, input)?, InOrder::new(op, ordinal, g)?);
    let w = weight.map(|view| view.first());
    let firsts: Vec<*const u8> =
        [Some(x.first), Some(g.first), to_x.map(<*mut u8>::cast_const), w].into_iter().flatten().collect();
    let source = norm_source(input.dtype, weight.map_or(input.dtype, |view| view.dtype), len, &firsts);
    let function = source.function(op, gpu, "layer_norm_backward")?;
    let arguments = Arguments::new()
        .size(rows)
        .at(x.first)
        .at(g.first)
        .at(stats.first())
        .at_or_null(w)
        .at_or_null(to_x.map(<*mut u8>::cast_const))
        .at_or_null(to_sums.map(<*mut u8>::cast_const));
    let pieces = layer_norm_pieces(rows, len);
    // SAFETY: as above; the sums have room for every block.
    unsafe { arguments.launch(op, gpu, function, Grid::over(pieces, 1, 256)) }
}

impl Targets<'_> {
    /// As the kernels' `Targets`.
    fn words(&self, classes: usize) -> [u64; 5] {
        [
            self.target.first().addr() as u64,
            self.weight.map_or(0, |weight| weight.first().addr() as u64),
            classes as u64,
            self.ignore as u64,
            self.smoothing.to_bits(),
        ]
    }
}

/// The source for `classes` classes, and the threads of a block.
fn targets_source(dtype: DType, classes: usize, weighted: bool) -> (KernelSource, usize) {
    let threads = if classes <= 1024 { 128 } else { 512 };
    let source = KernelSource::new(CROSS_ENTROPY, dtype.compute_dtype(), false)
        .fused()
        .dtype("E", dtype)
        .set("PACK", WIDE / dtype.size())
        .set("THREADS", threads)
        .set("WEIGHTED", i32::from(weighted));
    (source, threads)
}

/// As the CPU's [`forward`](crate::backend::cpu::nn::cross_entropy::forward); the weight of each row, or 0 if it
/// is ignored, is written to `counted`. A class out of range is reported at the next synchronization.
///
/// # Errors
/// As for [`softmax`].
pub(crate) fn cross_entropy(
    op: &'static str,
    ordinal: usize,
    logits: View<'_>,
    targets: Targets<'_>,
    stats: &mut ViewMut<'_>,
    loss: &mut ViewMut<'_>,
    counted: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu: &Gpu = gpu(op, ordinal)?;
    let (rows, classes) = (logits.layout.shape()[0], logits.layout.shape()[1]);
    if rows == 0 {
        return Ok(());
    }
    let x = InOrder::aligned(op, ordinal, logits)?;
    let (source, threads) = targets_source(logits.dtype, classes, targets.weight.is_some());
    let function = source.function(op, gpu, "cross_entropy")?;
    let (number, taken, fault) = gpu.faults(op);
    let arguments = Arguments::new()
        .at(x.first)
        .words(&targets.words(classes))
        .at(stats.first().cast_const())
        .at(loss.first().cast_const())
        .at(counted.first().cast_const())
        .word(number)
        .word(taken)
        .word(fault);
    // SAFETY: the logits are contiguous rows of `classes` elements (L2); statistics, losses and weights have an entry a
    // row; the kernel checks each class before it uses it.
    unsafe { arguments.launch(op, gpu, function, Grid { blocks: [rows, 1], threads: [threads, 1], shared: 0 }) }
}

/// As the CPU's [`backward`](crate::backend::cpu::nn::cross_entropy::backward); `total` is the sum of all weights
/// in f64, if it is needed.
///
/// # Errors
/// As for [`softmax`].
pub(crate) fn cross_entropy_backward(
    op: &'static str,
    ordinal: usize,
    targets: Targets<'_>,
    logits: Option<View<'_>>,
    [stats, g]: [View<'_>; 2],
    total: Option<View<'_>>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (rows, classes) = (out.layout.shape()[0], out.layout.shape()[1]);
    if rows * classes == 0 {
        return Ok(());
    }
    let x = logits.map(|logits| InOrder::aligned(op, ordinal, logits)).transpose()?;
    let (source, threads) = targets_source(out.dtype, classes, targets.weight.is_some());
    let function = source.function(op, gpu, "cross_entropy_backward")?;
    let arguments = Arguments::new()
        .at(x.as_ref().map_or(out.first().cast_const(), |x| x.first))
        .words(&targets.words(classes))
        .at(stats.first())
        .at(g.first())
        .word(g.layout.strides()[0] as i64 as u64)
        .at_or_null(total.map(|total| total.first()))
        .at(out.first().cast_const());
    // SAFETY: as above; the cotangents have an entry a row at the given stride. If the result overlaps the logits, each
    // element is read by the thread that then writes it.
    unsafe { arguments.launch(op, gpu, function, Grid { blocks: [rows, 1], threads: [threads, 1], shared: 0 }) }
}
