//! Attention of a few queries over many keys, such as the keys of a cache, and writing tokens into one.

use crate::backend::cuda::nn::attention::HeadRows;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::CachedAttention;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const GROUPS: &str = include_str!("../runtime/groups.cu");
const ATTEND: &[&str] = &[GROUPS, include_str!("cached.cu")];
const WRITE: &[&str] = &[include_str!("write_tokens.cu")];

/// The most queries that a block takes.
const MOST: usize = 8;
/// The least keys for which a block is worth starting.
const LEAST: usize = 64;

/// Whether the kernel supports heads of this size.
pub(crate) fn fits(dtype: DType, size: usize, value_size: usize) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
        && size == value_size
        && size.is_power_of_two()
        && (8..=256).contains(&size)
}

fn source(dtype: DType, size: usize, queries: usize) -> KernelSource {
    KernelSource::new(ATTEND, DType::F32, false).fused().dtype("E", dtype).set("D", size).set("R", queries)
}

fn writer(dtype: DType) -> KernelSource {
    KernelSource::new(WRITE, DType::F32, false).dtype("E", dtype)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let sizes = [(8, 1), (16, 2), (64, 4), (128, 8), (256, 8)];
    let mut all: Vec<_> = sizes.into_iter().map(|(size, queries)| source(DType::BF16, size, queries)).collect();
    all.extend([source(DType::F32, 64, 4), source(DType::F16, 128, 1), writer(DType::BF16), writer(DType::F64)]);
    all
}

/// Writes the result, contiguous `[batch, heads, queries, size]`.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn attend(
    op: &'static str,
    ordinal: usize,
    inputs: &CachedAttention<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let &[batch, heads, queries, size] = inputs.query.layout.shape().as_ref() else {
        bail!(Backend, op, "the query must have 4 dimensions, got {:?}", inputs.query.layout.shape());
    };
    let keys = inputs.key.layout.shape()[2];
    if out.layout.numel() == 0 {
        return Ok(());
    }
    let [q, k, v] = [inputs.query, inputs.key, inputs.value].map(|view| HeadRows::new(op, ordinal, view));
    let (q, k, v) = (q?, k?, v?);
    let each = queries.next_power_of_two().min(MOST);
    let parts = queries.div_ceil(each);
    let blocks = batch.saturating_mul(heads).saturating_mul(parts);
    // Enough blocks for all processors, each with a few warps.
    let visible = if inputs.window > 0 { keys.min(inputs.window) } else { keys };
    let splits = (4 * gpu.processors as usize).div_ceil(blocks).min(visible.div_ceil(LEAST)).clamp(1, 256);
    let source = source(inputs.query.dtype, size, each);
    let partial = (splits > 1)
        .then(|| Storage::new(op, Device::Cuda(ordinal), batch * heads * queries * splits * (size + 2) * 4))
        .transpose()?;
    let arguments = Arguments::new()
        .words(&q.words())
        .words(&k.words())
        .words(&v.words())
        .at_or_null(inputs.lengths.map(|lengths| lengths.first()))
        .word(inputs.lengths.map_or(0, |lengths| u64::from(lengths.layout.numel() > 1)))
        .at_or_null(inputs.starts.map(|starts| starts.first()))
        .size(inputs.window)
        .size(keys)
        .size(heads)
        .size(queries)
        .size(parts)
        .float(inputs.scale)
        .float(inputs.cap.unwrap_or(0.0))
        .at_or_null(partial.as_ref().map(Storage::as_ptr))
        .at(out.first().cast_const());
    let attend = source.function(op, gpu, "attend")?;
    let grid = Grid { blocks: [blocks, splits], threads: [128, 1], shared: 0 };
    // SAFETY: the strides are those of layouts inside their storages (L2), and rows are contiguous and aligned; the kernel reads
    // no key beyond `keys`, whatever the lengths; the workspace has room for every part of every query.
    unsafe { arguments.launch(op, gpu, attend, grid)? };
    let Some(partial) = partial else { return Ok(()) };
    let join = source.function(op, gpu, "join_parts")?;
    let arguments = Arguments::new().at(partial.as_ptr()).size(splits).at(out.first().cast_const());
    let grid = Grid { blocks: [batch * heads * queries, 1], threads: [size, 1], shared: 0 };
    // SAFETY: as above; a block for every query, a thread for each of its elements.
    unsafe { arguments.launch(op, gpu, join, grid) }
}

/// Writes `[batch, .., 1, size]` keys and values into contiguous caches `[batch, .., capacity, size]`, at the positions of the
/// sequences, one for all or one for each. Positions outside of the cache write nothing.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn write_tokens(
    op: &'static str,
    ordinal: usize,
    caches: [&mut ViewMut<'_>; 2],
    tokens: [View<'_>; 2],
    positions: View<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let shape = caches[0].layout.shape().clone();
    let (rank, batch) = (shape.len(), shape[0]);
    let (heads, capacity) = (shape[1..rank - 2].iter().product::<usize>(), shape[rank - 2]);
    let mut arguments = Arguments::new();
    let mut largest = 0;
    let mut copies = Vec::new();
    for (cache, tokens) in caches.into_iter().zip(tokens) {
        let size = cache.layout.shape()[rank - 1];
        largest = largest.max(batch * heads * size);
        // The dimensions of the heads have one stride, or the tokens are copied.
        let layout = tokens.layout.reshape(&[batch, heads, size].as_slice().into());
        let (first, steps) = match &layout {
            Some(layout) => (tokens.first(), [0, 1, 2].map(|at| layout.strides()[at] as i64 as u64)),
            None => {
                let copy = super::rows::InOrder::of_own(op, ordinal, tokens)?;
                let first = copy.first;
                copies.push(copy);
                (first, [heads * size, size, 1].map(|step| step as u64))
            }
        };
        let words = [cache.first().addr() as u64, first.addr() as u64, steps[0], steps[1], steps[2], size as u64];
        arguments.push_words(&words);
    }
    if largest == 0 {
        return Ok(());
    }
    let arguments = arguments
        .at(positions.first())
        .word(u64::from(positions.layout.numel() > 1))
        .size(batch)
        .size(heads)
        .size(capacity);
    let function = writer(tokens[0].dtype).function(op, gpu, "write_tokens")?;
    let grid = Grid { blocks: [largest.div_ceil(256).clamp(1, 1 << 20), 2], threads: [256, 1], shared: 0 };
    // SAFETY: the strides are those of layouts inside their storages (L2); the caches are contiguous and borrowed mutably, and the
    // kernel writes no position beyond their capacity.
    unsafe { arguments.launch(op, gpu, function, grid) }
}
