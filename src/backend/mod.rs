//! Kernels over strided buffers. They know storage, layout and dtype, and neither gradients nor the names of operations.
//!
//! This module is the seam between tensors and devices: it takes [`View`]s and hands them to the device's kernels. Nothing
//! is ever copied between devices here: a kernel that a device lacks is an error that names the operation.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod deferred;
pub(crate) mod deterministic;
mod devices;
mod fused;
pub(crate) mod spec;
mod view;

pub(crate) use cpu::index::Indices;
pub(crate) use cpu::linalg::matmul::has_bf16;
pub use devices::DeviceProperties;
pub(crate) use fused::{
    attention, attention_backward, attention_dtype, cross_entropy, cross_entropy_backward, draw, layer_norm,
    layer_norm_backward, layer_norm_pieces, matmul,
};
pub(crate) use spec::{Draw, Triangle};
pub(crate) use view::{View, ViewMut};

#[cfg(not(feature = "cuda"))]
use crate::Error;
use crate::error::err;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, Shape};
use spec::{CenteredReduce, Extreme, Formula, IndexFold, Reduce, SoftmaxKind};

/// Hands a call to the kernels of a device.
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

/// Calls the kernel of this name that the device of these views has: `kernel!("sort" on [x, out]: index::sort::sort(x, 1, out))`
/// is `cpu::index::sort::sort(op, x, 1, out)`, or the function of that name in `cuda`, which takes the GPU's ordinal second.
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

/// Why a GPU cannot be used by a program that was built without its kernels.
#[cfg(not(feature = "cuda"))]
pub(crate) fn no_cuda(op: &'static str, ordinal: usize) -> Error {
    err!(Device, op, "cuda:{ordinal} cannot be used: cotangent was built without its feature `cuda`")
}

/// Refuses a device that is not there.
pub(crate) fn check(op: &'static str, device: Device) -> Result<()> {
    dispatch!(op, device, cpu => Ok(()), cuda(n) => cuda::runtime::gpu::gpu(op, n).map(drop))
}

/// Whether this thread records work for a device instead of doing it.
pub(crate) fn is_recording(device: Device) -> bool {
    #[cfg(feature = "cuda")]
    return cuda::runtime::capture::is_recording(device);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Whether convolutions of this dtype give results whose channels come last.
pub(crate) fn conv_channels_last(device: Device, dtype: DType) -> bool {
    #[cfg(feature = "cuda")]
    return device != Device::Cpu && cuda::nn::conv::channels_last(dtype);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (device, dtype);
        false
    }
}

/// Whether the kernels of convolutions leave the bias to an operation of its own.
pub(crate) fn conv_leaves_bias(device: Device) -> bool {
    #[cfg(feature = "cuda")]
    return device != Device::Cpu && cuda::nn::conv::leaves_bias();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Refuses what the CPU's kernels cannot reach.
pub(crate) fn on_cpu(op: &'static str, devices: impl IntoIterator<Item = Device>) -> Result<()> {
    let missing = |device| Err(err!(Device, op, "there is no kernel for this on {device}"));
    devices.into_iter().find(|&device| device != Device::Cpu).map_or(Ok(()), missing)
}

/// The device that all operands are on.
#[inline]
pub(crate) fn common_device(op: &'static str, a: Device, others: impl IntoIterator<Item = Device>) -> Result<Device> {
    for b in others {
        if b != a {
            return Err(err!(Device, op, "one tensor is on {a}, the other on {b}: use to_device"));
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

/// Puts one number everywhere.
pub(crate) fn fill(op: &'static str, to: &mut ViewMut<'_>, value: Scalar) -> Result<()> {
    dispatch!(op, to.device(),
        cpu => {
            cpu::elementwise::copy::fill(to, value);
            Ok(())
        },
        cuda(n) => cuda::elementwise::chain::fill(op, n, to, value))
}

/// The bytes of contiguous elements, from one device to another.
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

/// Folds the dimensions `dims` of `input`. `out` is contiguous and has the other dimensions in their order, between
/// which sizes of 1 make no difference; it is not `input`'s storage. Sums and products of nothing are 0 and 1.
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

/// As [`reduce`], of elements that may be pending: they are folded as they are computed. False, and nothing has happened,
/// if they are not pending or the device has no way to do so.
pub(crate) fn reduce_deferred(by: Reduce, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<bool> {
    match input.device() {
        Device::Cpu => crate::interrupt::caught("reduce", || cpu::reduce::reduce_deferred(by, input, dims, out)),
        Device::Cuda(_) => Ok(false),
    }
}

/// As [`reduce`], with a center for each result: `center` is contiguous, has as many elements as `out`, and is of the
/// compute dtype of the input, which is one of floats. There are elements in the input.
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

/// Writes the extremes over the dimensions `dims` to `values`, if they are asked for, and the numbers they have among
/// the elements they were chosen from, counted in row-major order, to `indices`. Of several the first is taken, and a
/// NaN before everything else. There are elements to choose from.
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

/// `kind` of rows along `dim`; without one every element is a row. All have one shape and dtype.
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

/// `out[.., indices[.., j, ..], ..]` becomes it and `source[.., j, ..]` along `dim`, in the order of `j`. The indices broadcast
/// to the shape of `source`. Both have the same dtype; to do arithmetic it is one of the compute dtypes. With a `base`, of the
/// shape of `out`, this begins with its elements in place of those of `out`, which is contiguous.
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

/// Integers along a dimension of `size`, of which negative ones count from its end, into contiguous memory. One that is outside
/// stays so; on a GPU it is reported when that is next waited for, and becomes one that is outside of any dimension.
pub(crate) fn wrap_indices(op: &'static str, x: View<'_>, size: usize, out: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [out.device()])?,
        cpu => cpu::index::wrap(op, x, size, out),
        cuda(n) => cuda::index::wrap(op, n, x, size, out))
}

/// The order of the rows of a matrix by their first elements, then by their second, and so on, as their numbers in `order`, which
/// is contiguous and `i64`. Rows that are equal stay in their order.
pub(crate) fn order_rows(op: &'static str, x: View<'_>, order: &mut ViewMut<'_>) -> Result<()> {
    dispatch!(op, common_device(op, x.device(), [order.device()])?,
        cpu => cpu::index::sort::order_rows(op, x, order),
        cuda(n) => cuda::index::sort::order_rows(op, n, x, order))
}

/// The indices of the true elements of a contiguous mask, as a tensor of `(how many, dimensions)` in row-major order, and how
/// many there are. `shape` has as many elements as the mask, and need not be its own.
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
