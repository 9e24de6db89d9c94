//! Writing a token's keys and values into a cache, at positions on the device.

use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::TokenRows;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("tokens.cu")];

fn writer(dtype: DType) -> KernelSource {
    KernelSource::new(FILES, DType::F32, false).dtype("E", dtype)
}

fn rotator(dtype: DType, angles: DType) -> KernelSource {
    KernelSource::new(FILES, dtype.compute_dtype(), false).set("ROTATE", 1).dtype("E", dtype).dtype("V", angles)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let mut all = Vec::from([DType::BF16, DType::F64].map(writer));
    all.extend([(DType::BF16, DType::F32), (DType::F64, DType::F64)].map(|(dtype, angles)| rotator(dtype, angles)));
    all
}

/// Tokens as the kernel's argument, with the copies that it reads.
struct Tokens {
    words: [u64; 6],
    _copy: Option<InOrder>,
}

impl Tokens {
    /// Tokens `[batch, .., size]`, whose dimensions between are `heads` heads.
    fn new(
        op: &'static str,
        ordinal: usize,
        to: *const u8,
        tokens: View<'_>,
        [batch, heads, size]: [usize; 3],
    ) -> Result<Tokens> {
        // The dimensions of the heads have one stride, or the tokens are copied.
        let layout = tokens.layout.reshape(&[batch, heads, size].as_slice().into());
        let (first, steps, copy) = match &layout {
            Some(layout) => (tokens.first(), [0, 1, 2].map(|at| layout.strides()[at] as i64 as u64), None),
            None => {
                let copy = InOrder::of_own(op, ordinal, tokens)?;
                (copy.first, [heads * size, size, 1].map(|step| step as u64), Some(copy))
            }
        };
        let [batch, head, element] = steps;
        Ok(Tokens { words: [to.addr() as u64, first.addr() as u64, batch, head, element, size as u64], _copy: copy })
    }
}

/// Writes `[batch, .., 1, size]` keys and values into contiguous caches `[batch, .., capacity, size]`, at the positions of the
/// sequences, one for all or one for each. Positions outside of the cache write nothing.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn write_tokens(
    op: &'static str,
    ordinal: usize,
    caches: &[&mut ViewMut<'_>; 2],
    tokens: [View<'_>; 2],
    positions: View<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let [batch, heads, capacity] = dimensions(caches[0]);
    let sizes = caches.each_ref().map(|cache| size(cache));
    let largest = batch * heads * sizes[0].max(sizes[1]);
    if largest == 0 {
        return Ok(());
    }
    let [keys, values] = [0, 1]
        .map(|at| Tokens::new(op, ordinal, caches[at].first().cast_const(), tokens[at], [batch, heads, sizes[at]]));
    let (keys, values) = (keys?, values?);
    let arguments = Arguments::new()
        .words(&keys.words)
        .words(&values.words)
        .at(positions.first())
        .word(u64::from(positions.layout.numel() > 1))
        .size(batch)
        .size(heads)
        .size(capacity);
    let function = writer(tokens[0].dtype).function(op, gpu, "write_tokens")?;
    let grid = Grid { blocks: [largest.div_ceil(256).clamp(1, 1 << 20), 2], threads: [256, 1], shared: 0 };
    // SAFETY: the strides are those of layouts inside their storages (L2); the caches are contiguous and borrowed mutably, and the
    // kernel writes no position beyond their capacity.
    unsafe { arguments.launch_overlapping(op, gpu, function, grid) }
}

/// As [`write_tokens`], with keys rotated by their angles; the rotated queries are written to `out`, contiguous `[batch, heads, size]`.
///
/// # Errors
/// As for [`write_tokens`].
pub(crate) fn rotate_tokens(
    op: &'static str,
    ordinal: usize,
    caches: &[&mut ViewMut<'_>; 2],
    rows: &TokenRows<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let [batch, heads, capacity] = dimensions(caches[0]);
    let size = size(caches[0]);
    let query_heads = out.layout.numel() / (batch * size).max(1);
    let largest = batch * heads.max(query_heads) * size / 2;
    if largest == 0 {
        return Ok(());
    }
    let of = |to: *const u8, view, heads| Tokens::new(op, ordinal, to, view, [batch, heads, size]);
    let queries = of(out.first().cast_const(), rows.query, query_heads)?;
    let keys = of(caches[0].first().cast_const(), rows.key, heads)?;
    let values = of(caches[1].first().cast_const(), rows.value, heads)?;
    let angle_step = if rows.cos.layout.numel() > size / 2 { size / 2 } else { 0 };
    let arguments = Arguments::new()
        .words(&queries.words)
        .words(&keys.words)
        .words(&values.words)
        .at(rows.cos.first())
        .at(rows.sin.first())
        .size(angle_step)
        .at(rows.positions.first())
        .word(u64::from(rows.positions.layout.numel() > 1))
        .size(batch)
        .size(query_heads)
        .size(heads)
        .size(capacity);
    let function = rotator(rows.query.dtype, rows.cos.dtype).function(op, gpu, "rotate_tokens")?;
    let grid = Grid { blocks: [largest.div_ceil(256).clamp(1, 1 << 20), 3], threads: [256, 1], shared: 0 };
    // SAFETY: as for `write_tokens`; the angles are contiguous, one row for all sequences or one for each, and the result is
    // contiguous and borrowed mutably.
    unsafe { arguments.launch_overlapping(op, gpu, function, grid) }
}

/// The batch, the heads and the capacity of a cache `[batch, .., capacity, size]`.
fn dimensions(cache: &ViewMut<'_>) -> [usize; 3] {
    let shape = cache.layout.shape();
    let rank = shape.len();
    [shape[0], shape[1..rank - 2].iter().product(), shape[rank - 2]]
}

fn size(cache: &ViewMut<'_>) -> usize {
    cache.layout.shape()[cache.layout.rank() - 1]
}
