//! Attention of a few queries over many keys, such as the keys of a cache.

use crate::backend::ViewMut;
use crate::backend::cuda::nn::attention::HeadRows;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::CachedAttention;
use crate::error::bail;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[include_str!("../runtime/groups.cu"), include_str!("cached.cu")];

/// The most queries that a block takes.
const MOST: usize = 8;
/// The most blocks of a cluster that every GPU with clusters supports.
const MOST_CLUSTER: usize = 8;
/// The least keys for which a block is worth starting.
const LEAST: usize = 64;

/// Whether the kernel supports heads of this size.
pub(crate) fn fits(dtype: DType, size: usize, value_size: usize) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
        && size == value_size
        && size.is_power_of_two()
        && (8..=256).contains(&size)
}

fn source(dtype: DType, size: usize, queries: usize, is_cluster: bool) -> KernelSource {
    let source = KernelSource::new(FILES, DType::F32, false).fused().dtype("E", dtype);
    source.set("D", size).set("R", queries).set("CLUSTER", u8::from(is_cluster))
}

/// Sources for one generation of GPUs, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn hopper_sources() -> Vec<KernelSource> {
    [(16, 2), (64, 4), (128, 8)].map(|(size, queries)| source(DType::BF16, size, queries, true)).into()
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let sizes = [(8, 1), (16, 2), (64, 4), (128, 8), (256, 8)];
    let mut all: Vec<_> = sizes.into_iter().map(|(size, queries)| source(DType::BF16, size, queries, false)).collect();
    all.extend([source(DType::F32, 64, 4, false), source(DType::F16, 128, 1, false)]);
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
    // Where blocks wait for processors, clusters, which start together, wait longer than another kernel takes.
    let is_cluster = gpu.arch >= 90
        && (2..=MOST_CLUSTER).contains(&splits)
        && blocks.saturating_mul(splits) <= gpu.processors as usize;
    let source = source(inputs.query.dtype, size, each, is_cluster);
    let partial = (splits > 1 && !is_cluster)
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
    unsafe { arguments.launch_clusters(op, gpu, attend, grid, if is_cluster { splits } else { 1 })? };
    let Some(partial) = partial else { return Ok(()) };
    let join = source.function(op, gpu, "join_parts")?;
    let arguments = Arguments::new().at(partial.as_ptr()).size(splits).at(out.first().cast_const());
    let grid = Grid { blocks: [batch * heads * queries, 1], threads: [size, 1], shared: 0 };
    // SAFETY: as above; a block for every query, a thread for each of its elements.
    unsafe { arguments.launch_overlapping(op, gpu, join, grid) }
}
