//! Kernels over strided buffers. They know storage, layout and dtype, but not gradients.
//!
//! This module dispatches from tensors to devices: it takes [`View`]s and passes them to the device's kernels. Nothing is copied
//! between devices here. A kernel that a device lacks is an error that names the operation.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod deferred;
pub(crate) mod deterministic;
mod devices;
pub(crate) mod events;
mod fused;
pub(crate) mod spec;
mod view;

pub(crate) use cpu::elementwise::copy::read as read_on_cpu;
pub(crate) use cpu::index::Indices;
pub(crate) use cpu::linalg::matmul::{has_bf16, takes_half};
pub(crate) use cpu::linalg::quantized::takes as takes_quantized;
pub(crate) use cpu::nn::optim as optim_on_cpu;
pub(crate) use cpu::runtime::simd;
pub use cpu::runtime::threads::{num_threads, set_num_threads, with_num_threads};
pub use devices::DeviceProperties;
pub(crate) use fused::{
    attention, attention_backward, attention_dtype, batch_norm_backward, batch_norm_stats, cached_attention,
    cross_entropy, cross_entropy_backward, dequantize, draw, group_norm, group_norm_backward, has_cached_attention,
    has_forward_kernels, has_row_layers, layer_norm, layer_norm_backward, layer_norm_pieces, matmul, quantize,
    quantized_matmul, quantized_product, rms_norm, rope, rotate_tokens, row_layers, write_tokens,
};
pub use spec::QuantFormat;
pub(crate) use spec::{Draw, QuantSide, Triangle};
pub(crate) use view::{View, ViewMut};

#[cfg(not(feature = "cuda"))]
use crate::Error;
use crate::error::err;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, Shape};
use spec::{CenteredReduce, Extreme, Formula, IndexFold, Reduce, SoftmaxKind};

/// Dispatches a call to the kernels of a device.
macro_rules! dispatch {
    ($op:expr, $device:expr, cpu => $cpu:expr, cuda($ordinal:ident) => $cuda:expr) => {
        match $device {
            Device::Cpu => $crate::interrupt::caught($op, || $cpu),
            #[cfg(feature = "cuda")]
            Device::Cuda($ordinal) => $cuda,
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(ordinal) => Err(no_cuda($op, ordinal)),
        }
    };
}

use dispatch;

/// Calls the kernel of this name for the device of the views: `kernel!("sort" on [x, out]: index::sort::sort(x, 1, out))` is
/// `cpu::index::sort::sort(op, x, 1, out)`, or the function of that path in `cuda`, which takes the GPU's ordinal second.
macro_rules! kernel {
    ($op:literal on [$first:ident $(, $other:ident)*]: $($kernel:ident)::+($($arg:expr),* $(,)?)) => {
        match $crate::backend::common_device($op, $first.device(), [$($other.device()),*])? {
            $crate::Device::Cpu => $crate::interrupt::caught($op, || $crate::backend::cpu::$($kernel)::+($op, $($arg),*)),
            #[cfg(feature = "cuda")]
            $crate::Device::Cuda(ordinal) => $crate::backend::cuda::$($kernel)::+($op, ordinal, $($arg),*),
            #[cfg(not(feature = "cuda"))]
            $crate::Device::Cuda(ordinal) => Err($crate::backend::no_cuda($op, ordinal)),
        }
    };
}
pub(crate) use kernel;

/// The error for a GPU if the crate was built without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
pub(crate) fn no_cuda(op: &'static str, ordinal: usize) -> Error {
    err!(Device, op, "cuda:{ordinal} is not available: cotangent was built without the feature `cuda`")
}

/// Refuses a device that does not exist.
pub(crate) fn check(op: &'static str, device: Device) -> Result<()> {
    dispatch!(op, device, cpu => Ok(()), cuda(n) => cuda::runtime::gpu::gpu(op, n).map(drop))
}

/// Whether this thread records work for a device instead of running it.
pub(crate) fn is_recording(device: Device) -> bool {
    #[cfg(feature = "cuda")]
    return cuda::runtime::capture::is_recording(device);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Whether convolutions of this dtype return channels-last results.
pub(crate) fn conv_channels_last(device: Device, dtype: DType) -> bool {
    #[cfg(feature = "cuda")]
    return device != Device::Cpu && cuda::nn::conv::channels_last(dtype);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (device, dtype);
        false
    }
}

/// Whether the bias of convolutions is added by a separate operation.
pub(crate) fn conv_leaves_bias(device: Device) -> bool {
    #[cfg(feature = "cuda")]
    return device != Device::Cpu && cuda::nn::conv::leaves_bias();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Refuses tensors that are not on the CPU.
pub(crate) fn on_cpu(op: &'static str, devices: impl IntoIterator<Item = Device>) -> Result<()> {
    let missing = |device| Err(err!(Device, op, "not implemented on {device}"));
    devices.into_iter().find(|&device| device != Device::Cpu).map_or(Ok(()), missing)
}

/// The device that all operands are on.
#[inline]
pub(crate) fn common_device(op: &'static str, a: Device, others: impl IntoIterator<Item = Device>) -> Result<Device> {
    for b in others {
        if b != a {
            return Err(err!(Device, op, "tensors must be on one device, got {a} and {b}: use to_device"));
        }
    }
    Ok(a)
}

/// `out = formula(inputs)`, computed in the compute dtype of `compute`. The inputs' layouts have the shape of `out`, and
/// their storages are not `out`'s.
pub(crate) fn map(
    op: &'static str,
    kernel: (&'static Formula, &[Scalar]),
    compute: DType,
    inputs: &[View<'_>],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, out.device(), inputs.iter().map(View::device))?,
        cpu => cpu::elementwise::map::map(op, kernel, compute, inputs, out),
        cuda(n) => cuda::elementwise::chain::map(op, n, kernel, compute, inputs, out))
}

/// Copies the elements of `from` to `to`, which has the same shape, casting where the dtypes differ.
pub(crate) fn copy(op: &'static str, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, from.device(), [to.device()])?,
        cpu => cpu::elementwise::copy::copy(from, to),
        cuda(n) => cuda::elementwise::chain::copy(op, n, from, to))
}

/// `target = formula(target, other)`, in place; `other` has the shape of `target` and another storage.
pub(crate) fn zip_in_place(
    op: &'static str,
    formula: &'static Formula,
    target: &mut ViewMut<'_>,
    other: View<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, target.device(), [other.device()])?,
        cpu => cpu::elementwise::map::zip_in_place(op, formula, target, other),
        cuda(n) => cuda::elementwise::chain::zip_in_place(op, n, formula, target, other))
}

/// The element at a position of a view's layout.
pub(crate) fn read(op: &'static str, from: View<'_>, position: usize) -> Result<Scalar> {
    dispatch!(op, from.device(),
        cpu => Ok(cpu::elementwise::copy::read(from, position)),
        cuda(n) => cuda::runtime::memory::read(op, n, from, position))
}

/// Fills with one number.
pub(crate) fn fill(op: &'static str, to: &mut ViewMut<'_>, value: Scalar) -> Result<()> {
    dispatch!(op, to.device(),
        cpu => {
            cpu::elementwise::copy::fill(to, value);
            Ok(())
        },
        cuda(n) => cuda::elementwise::chain::fill(op, n, to, value))
}

/// Copies contiguous elements from one device to another.
pub(crate) fn transfer(op: &'static str, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    match (from.device(), to.device()) {
        (a, b) if a == b => copy(op, from, to),
        #[cfg(feature = "cuda")]
        _ => cuda::runtime::memory::transfer(op, from, to),
        #[cfg(not(feature = "cuda"))]
        (Device::Cuda(ordinal), _) | (_, Device::Cuda(ordinal)) => Err(no_cuda(op, ordinal)),
        #[cfg(not(feature = "cuda"))]
        (Device::Cpu, Device::Cpu) => copy(op, from, to),
    }
}

/// Reduces the dimensions `dims` of `input`. `out` is contiguous and has the other dimensions in their order, possibly with
/// dimensions of size 1 between them; it does not share `input`'s storage. Empty sums and products are 0 and 1.
pub(crate) fn reduce(
    op: &'static str,
    by: Reduce,
    input: View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, input.device(), [out.device()])?,
        cpu => cpu::reduce::reduce(op, by, input, dims, out),
        cuda(n) => cuda::reduce::reduce(op, n, by, input, dims, out))
}

/// As [`reduce`], for pending elements, which are reduced as they are computed. Returns false, without any effect, if they are not
/// pending or the device does not support this.
pub(crate) fn reduce_deferred(by: Reduce, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<bool> {
    match input.device() {
        Device::Cpu => crate::interrupt::caught("reduce", || cpu::reduce::reduce_deferred(by, input, dims, out)),
        Device::Cuda(_) => Ok(false),
    }
}

/// As [`reduce`], with a center for each result: `center` is contiguous, has as many elements as `out`, and is of the compute dtype
/// of the input, which is floating point. The input is not empty.
pub(crate) fn reduce_centered(
    op: &'static str,
    by: CenteredReduce,
    input: View<'_>,
    dims: &[usize],
    center: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, input.device(), [center.device(), out.device()])?,
        cpu => cpu::reduce::reduce_centered(op, by, input, dims, center, out),
        cuda(n) => cuda::reduce::reduce_centered(op, n, by, input, dims, center, out))
}

/// Writes the extremes over the dimensions `dims` to `values`, if given, and their flat row-major indices within `dims` to
/// `indices`. Of equal extremes the first is taken, and a NaN before everything else. The reduced dimensions are not empty.
pub(crate) fn arg(
    op: &'static str,
    which: Extreme,
    input: View<'_>,
    dims: &[usize],
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, input.device(), [indices.device()])?,
        cpu => cpu::reduce::arg::arg(which, input, dims, values, indices),
        cuda(n) => cuda::reduce::arg(op, n, which, input, dims, values, indices))
}

/// `kind` of the rows along `dim`; without `dim` every element is a row. All views have one shape and dtype.
pub(crate) fn softmax<const N: usize>(
    op: &'static str,
    kind: SoftmaxKind,
    inputs: [View<'_>; N],
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, out.device(), inputs.iter().map(View::device))?,
        cpu => cpu::nn::softmax::softmax(op, kind, inputs, dim, out),
        cuda(n) => cuda::nn::rows::softmax(op, n, kind, inputs, dim, out))
}

/// `out[.., j, ..] = x[.., indices[.., j, ..], ..]` along `dim`. The indices broadcast to the shape of `out`, which
/// may be shorter than `x` in the other dimensions, and were checked against a size not above that of `x` in `dim`.
pub(crate) fn gather(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    indices: &Indices<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [indices.view.device(), out.device()])?,
        cpu => cpu::index::gather(x, dim, indices, out),
        cuda(n) => cuda::index::gather(op, n, x, dim, indices, out))
}

/// Folds `source[.., j, ..]` into `out[.., indices[.., j, ..], ..]` along `dim`, in the order of `j`. The indices broadcast
/// to the shape of `source`. Both have the same dtype, which must be a compute dtype for arithmetic. With a `base` of the shape of
/// `out`, this starts from its elements instead of those of `out`, which is contiguous.
pub(crate) fn index_fold(
    op: &'static str,
    by: IndexFold,
    base: Option<View<'_>>,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    let devices = [indices.view.device(), source.device()].into_iter().chain(base.as_ref().map(View::device));
    dispatch!(op, common_device(op, out.device(), devices)?,
        cpu => {
            base.map_or(Ok(()), |base| cpu::elementwise::copy::copy(base, out))?;
            cpu::index::fold::index_fold(op, by, out, dim, indices, source)
        },
        cuda(n) => cuda::index::fold::index_fold(op, n, by, base, out, dim, indices, source))
}

/// Wraps negative indices of a dimension of `size`, into contiguous memory. An index out of range stays out of range. On a GPU it is
/// reported at the next synchronisation, and becomes an index that is out of range for any dimension.
pub(crate) fn wrap_indices(op: &'static str, x: View<'_>, size: usize, out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [out.device()])?,
        cpu => cpu::index::wrap(op, x, size, out),
        cuda(n) => cuda::index::wrap(op, n, x, size, out))
}

/// The lexicographic order of the rows of a matrix, as row indices in `order`, which is contiguous and `i64`. The order is stable.
pub(crate) fn order_rows(op: &'static str, x: View<'_>, order: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [order.device()])?,
        cpu => cpu::index::sort::order_rows(op, x, order),
        cuda(n) => cuda::index::sort::order_rows(op, n, x, order))
}

/// The indices of the true elements of a contiguous mask, as a tensor of shape `[count, rank]` in row-major order, and their count.
/// The mask is read with `shape`, which has as many elements.
pub(crate) fn nonzero(op: &'static str, mask: View<'_>, shape: &Shape) -> Result<(Storage, usize)> {
    dispatch!(op, mask.device(),
        cpu => cpu::index::nonzero::nonzero(op, mask, shape),
        cuda(n) => cuda::index::nonzero::nonzero(op, n, mask, shape))
}

/// The triangle of each matrix in `x`, and zeros elsewhere. `out` has the shape of `x`.
pub(crate) fn triangle(op: &'static str, x: View<'_>, triangle: Triangle, out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [out.device()])?,
        cpu => {
            let columns = x.layout.shape().last().copied().unwrap_or(0);
            cpu::index::rows_within(x, |row| triangle.columns(row, columns), out)
        },
        cuda(n) => cuda::index::triangle(op, n, x, triangle, out))
}

/// Contiguous `i64` in ascending order. CPU only.
pub(crate) fn sort_integers(op: &'static str, x: View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    on_cpu(op, [x.device(), out.device()])?;
    crate::interrupt::caught(op, || cpu::index::sort::sort_integers(op, x, out))
}
