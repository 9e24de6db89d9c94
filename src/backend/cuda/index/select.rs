//! Elements by their place in the order along a dimension: found by the bits of their keys.

use super::{ORDER, with_order};
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::Rank;
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[ORDER, include_str!("select.cu")];

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(super) fn sources() -> Vec<KernelSource> {
    DType::REAL.map(source).into()
}

fn source(dtype: DType) -> KernelSource {
    with_order(KernelSource::new(FILES, DType::I64, true), dtype)
}

/// Whether a sort takes less: of lanes that a block sorts in its shared memory, or where a block for each lane would leave most
/// of the GPU without work for long.
fn better_sorted(dtype: DType, lanes: usize, len: usize) -> bool {
    super::sort::in_shared_memory(dtype, len) || (lanes < 64 && len >= 1 << 15)
}

/// The places of the elements along a dimension in order, laid out as these.
fn order(op: &'static str, ordinal: usize, x: View<'_>, dim: usize, descending: bool) -> Result<Storage> {
    let whole = Layout::contiguous(x.layout.shape().clone());
    let mut order = Storage::new(op, Device::Cuda(ordinal), whole.numel() * DType::I64.size())?;
    let mut to = ViewMut::new(op, &mut order, &whole, DType::I64)?;
    super::sort::sort(op, ordinal, x, dim, descending, None, &mut to)?;
    Ok(order)
}

/// As the CPU's [`kth`](crate::backend::cpu::index::select::kth).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn kth(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    dim: usize,
    rank: Rank,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape, lanes) = (gpu(op, ordinal)?, x.layout.shape(), indices.layout.numel());
    if lanes == 0 {
        return Ok(());
    }
    let (kind, k) = match rank {
        Rank::At(k) => (0, k),
        Rank::Median => (1, 0),
        Rank::NanMedian => (2, 0),
    };
    let from = InOrder::new(op, ordinal, x)?;
    if better_sorted(x.dtype, lanes, shape[dim]) {
        let order = order(op, ordinal, x, dim, false)?;
        let arguments = Arguments::new()
            .at(from.first)
            .at(order.as_ptr())
            .size(lanes)
            .size(shape[dim])
            .size(shape[dim + 1..].iter().product())
            .word(kind)
            .size(k)
            .at(indices.first().cast_const());
        let function = source(x.dtype).function(op, gpu, "kth_of_sorted")?;
        // SAFETY: the elements lie in order, and so do the places of all; there is room for the index of every lane.
        return unsafe { arguments.launch(op, gpu, function, Grid::over(lanes, 256, 256)) };
    }
    let arguments = Arguments::new()
        .at(from.first)
        .size(lanes)
        .size(shape[dim])
        .size(shape[dim + 1..].iter().product())
        .word(kind)
        .size(k)
        .at(indices.first().cast_const());
    let function = source(x.dtype).function(op, gpu, "kth")?;
    // SAFETY: the elements lie in order; there is a place for the index of every lane.
    unsafe { arguments.launch(op, gpu, function, Grid::over(lanes, 1, 256)) }
}

/// As the CPU's [`first_in_order`](crate::backend::cpu::index::select::first_in_order).
///
/// # Errors
/// As for [`kth`].
pub(crate) fn first_in_order(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    dim: usize,
    descending: bool,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape, n) = (gpu(op, ordinal)?, x.layout.shape(), indices.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let (k, inner) = (indices.layout.shape()[dim], shape[dim + 1..].iter().product::<usize>());
    let (lanes, device) = (n / k, Device::Cuda(ordinal));
    if better_sorted(x.dtype, lanes, shape[dim]) {
        let order = order(op, ordinal, x, dim, descending)?;
        let arguments = Arguments::new()
            .at(order.as_ptr())
            .size(n)
            .size(shape[dim])
            .size(inner)
            .size(k)
            .at(indices.first().cast_const());
        let function = source(x.dtype).function(op, gpu, "first_of_sorted")?;
        // SAFETY: there are the places of all elements, and the output is contiguous and has `k` for each lane.
        return unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) };
    }
    let (from, source) = (InOrder::new(op, ordinal, x)?, source(x.dtype));
    let places = Storage::new(op, device, n * DType::I64.size())?;
    let values = Storage::new(op, device, n * x.dtype.size())?;
    let first = Arguments::new()
        .at(from.first)
        .size(lanes)
        .size(shape[dim])
        .size(inner)
        .word(u64::from(descending))
        .size(k)
        .at(places.as_ptr())
        .at(values.as_ptr());
    // SAFETY: the elements lie in order; there is memory for `k` places and elements of every lane.
    unsafe { first.launch(op, gpu, source.function(op, gpu, "first_places")?, Grid::over(lanes, 1, 256))? };
    // The few that are left are sorted; the sort is stable.
    let rows = Layout::contiguous([lanes, k].into());
    let mut order = Storage::new(op, device, n * DType::I64.size())?;
    let few = View { storage: &values, layout: &rows, dtype: x.dtype };
    let mut found = ViewMut::new(op, &mut order, &rows, DType::I64)?;
    super::sort::sort(op, ordinal, few, 1, descending, None, &mut found)?;
    let arguments = Arguments::new()
        .at(places.as_ptr())
        .at(order.as_ptr())
        .size(n)
        .size(k)
        .size(inner)
        .at(indices.first().cast_const());
    // SAFETY: the order has numbers below `k`; the output is contiguous and has `n` elements.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, "places_in_order")?, Grid::over(n, 256, 256)) }
}
