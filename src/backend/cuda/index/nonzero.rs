//! The indices of the true elements of a mask.

use crate::backend::View;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::cuda::runtime::memory;
use crate::layout::{Layout, checked_bytes};
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, Shape};

const FILES: &[&str] = &[super::BEFORE, include_str!("nonzero.cu")];
/// Elements per block, as in the source.
const BLOCK: usize = 4096;

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    [1, 3].map(source).into()
}

fn source(rank: usize) -> KernelSource {
    KernelSource::new(FILES, DType::I64, true).set("R", rank)
}

/// As the CPU's [`nonzero`](crate::backend::cpu::index::nonzero::nonzero). It synchronizes with the GPU, to read the count.
///
/// # Errors
/// If memory runs out, or a kernel cannot be compiled or started.
pub(crate) fn nonzero(op: &'static str, ordinal: usize, mask: View<'_>, shape: &Shape) -> Result<(Storage, usize)> {
    let (gpu, n, device) = (gpu(op, ordinal)?, shape.numel(), Device::Cuda(ordinal));
    let room = |rows: usize| Storage::new(op, device, checked_bytes(op, &[rows, shape.len()], DType::I64.size())?);
    if n == 0 {
        return Ok((room(0)?, 0));
    }
    let from = InOrder::new(op, ordinal, mask)?;
    let source = source(shape.len().max(1));
    let blocks = n.div_ceil(BLOCK);
    let grid = Grid { blocks: [blocks, 1], threads: [256, 1], shared: 0 };
    // One count more than blocks: the last one becomes the total.
    let line = Layout::contiguous([blocks + 1].into());
    let counts = Storage::new(op, device, (blocks + 1) * 8)?;
    let count = Arguments::new().at(from.first).size(n).at(counts.as_ptr());
    let starts = Arguments::new().at(counts.as_ptr()).size(blocks);
    let one_block = Grid { blocks: [1, 1], threads: [1024, 1], shared: 0 };
    // SAFETY: the mask has `n` elements in order, one byte each, and there is a count for each block and one more.
    unsafe {
        count.launch(op, gpu, source.function(op, gpu, "count_true")?, grid)?;
        starts.launch(op, gpu, source.function(op, gpu, "starts")?, one_block)?;
    }
    let view = View { storage: &counts, layout: &line, dtype: DType::I64 };
    let total = match memory::read(op, ordinal, view, blocks)? {
        Scalar::I64(total) => usize::try_from(total).unwrap_or(0),
        _ => 0,
    };
    let out = room(total)?;
    if total > 0 && !shape.is_empty() {
        let sizes: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
        let write = Arguments::new().at(from.first).size(n).at(counts.as_ptr()).at(out.as_ptr()).words(&sizes);
        // SAFETY: as above, and the output has a row for each of the elements that were counted.
        unsafe { write.launch(op, gpu, source.function(op, gpu, "write_true")?, grid)? };
    }
    Ok((out, total))
}
