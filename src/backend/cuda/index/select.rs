//! Selection by rank along a dimension, by the bits of the keys.

use super::{BEFORE, ORDER, with_order};
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::Rank;
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[ORDER, BEFORE, include_str!("select.cu")];
const LONG_FILES: &[&str] = &[ORDER, BEFORE, include_str!("select.cu"), include_str!("select_long.cu")];

/// The bits of a key that are found per pass in long lanes, and the bytes of the state of a lane.
const DIGIT: usize = 11;
const SEARCH: usize = 24 + (4 << DIGIT);
/// The fewest elements per block, and the most blocks per lane.
const PIECE: usize = 4096;
const MOST_BLOCKS: usize = 1024;

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    DType::REAL.into_iter().flat_map(|dtype| [source(dtype), long_source(dtype)]).collect()
}

fn source(dtype: DType) -> KernelSource {
    with_order(KernelSource::new(FILES, DType::I64, true), dtype)
}

fn long_source(dtype: DType) -> KernelSource {
    with_order(KernelSource::new(LONG_FILES, DType::I64, true), dtype)
        .set("DIGIT", DIGIT)
        .set("MOST_BLOCKS", MOST_BLOCKS)
}

/// Whether one block per lane would leave most of the GPU idle.
fn few_long(lanes: usize, len: usize) -> bool {
    lanes < 64 && len >= 1 << 15
}

/// The sorting indices along a dimension, with the layout of the elements.
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
    let (from, len, inner) = (InOrder::new(op, ordinal, x)?, shape[dim], shape[dim + 1..].iter().product::<usize>());
    if few_long(lanes, len) && len < u32::MAX as usize {
        return kth_of_long(op, gpu, (from.first, x.dtype), [lanes, len, inner], (kind, k), indices);
    }
    if super::sort::in_shared_memory(x.dtype, len) || few_long(lanes, len) {
        let order = order(op, ordinal, x, dim, false)?;
        let arguments = Arguments::new()
            .at(from.first)
            .at(order.as_ptr())
            .size(lanes)
            .size(len)
            .size(inner)
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
        .size(len)
        .size(inner)
        .word(kind)
        .size(k)
        .at(indices.first().cast_const());
    let function = source(x.dtype).function(op, gpu, "kth")?;
    // SAFETY: the elements lie in order; there is a place for the index of every lane.
    unsafe { arguments.launch(op, gpu, function, Grid::over(lanes, 1, 256)) }
}

/// As [`kth`], for a few lanes that the whole GPU scans, once per digit of the keys.
fn kth_of_long(
    op: &'static str,
    gpu: &Gpu,
    (from, dtype): (*const u8, DType),
    [lanes, len, inner]: [usize; 3],
    (kind, k): (u64, usize),
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let blocks = (2 * gpu.processors as usize / lanes).clamp(1, MOST_BLOCKS.min(len.div_ceil(PIECE)));
    let piece = len.div_ceil(blocks).next_multiple_of(256);
    let (blocks, bits) = (len.div_ceil(piece), dtype.size() * 8);
    let memory = |bytes: usize| Storage::new(op, Device::Cuda(gpu.ordinal), bytes);
    let (searches, alike) = (memory(lanes * SEARCH)?, memory(lanes * blocks * size_of::<u32>())?);
    let (source, grid) = (long_source(dtype), Grid { blocks: [blocks, lanes], threads: [256, 1], shared: 0 });
    let lane = || Arguments::new().at(from).size(len).size(inner);
    let (digit, position) = (source.function(op, gpu, "long_digit")?, source.function(op, gpu, "long_place")?);
    // SAFETY: the elements lie in order; there is memory for the state of every lane, a number for every piece, and an index
    // for every lane.
    unsafe {
        gpu.clear(op, searches.as_ptr().cast_mut(), lanes * SEARCH)?;
        for top in (1..=bits).rev().step_by(DIGIT) {
            let arguments = lane().word(kind).size(k).size(piece).size(top).word(u64::from(top == bits));
            arguments.at(searches.as_ptr()).launch(op, gpu, digit, grid)?;
        }
        let arguments = lane().size(piece).at(searches.as_ptr()).at(alike.as_ptr());
        arguments.at(indices.first().cast_const()).launch(op, gpu, position, grid)
    }
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
    // A sort is also faster for lanes that a block sorts in shared memory.
    if super::sort::in_shared_memory(x.dtype, shape[dim]) || few_long(lanes, shape[dim]) {
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
    let positions = Storage::new(op, device, n * DType::I64.size())?;
    let values = Storage::new(op, device, n * x.dtype.size())?;
    let first = Arguments::new()
        .at(from.first)
        .size(lanes)
        .size(shape[dim])
        .size(inner)
        .word(u64::from(descending))
        .size(k)
        .at(positions.as_ptr())
        .at(values.as_ptr());
    // SAFETY: the elements lie in order; there is memory for `k` places and elements of every lane.
    unsafe { first.launch(op, gpu, source.function(op, gpu, "first_places")?, Grid::over(lanes, 1, 256))? };
    // The selected elements are sorted; the sort is stable.
    let rows = Layout::contiguous([lanes, k].into());
    let mut order = Storage::new(op, device, n * DType::I64.size())?;
    let few = View { storage: &values, layout: &rows, dtype: x.dtype };
    let mut found = ViewMut::new(op, &mut order, &rows, DType::I64)?;
    super::sort::sort(op, ordinal, few, 1, descending, None, &mut found)?;
    let arguments = Arguments::new()
        .at(positions.as_ptr())
        .at(order.as_ptr())
        .size(n)
        .size(k)
        .size(inner)
        .at(indices.first().cast_const());
    // SAFETY: the order has numbers below `k`; the output is contiguous and has `n` elements.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, "places_in_order")?, Grid::over(n, 256, 256)) }
}
