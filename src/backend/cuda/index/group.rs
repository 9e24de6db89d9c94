//! Groups the numbers of elements by their target places, faster than a sort if there are about as many places as elements.

use super::{BEFORE, RANK};
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[BEFORE, RANK, include_str!("group.cu")];
/// Up to this many elements of a place are ordered by the kernel that reads them.
pub(super) const FEW: usize = 16;
const THREADS: usize = 256;
const ITEMS: usize = 8;

pub(super) struct Groups {
    n: usize,
    last: usize,
    wide: bool,
    /// The place of each element, and its number among the elements of that place.
    pub key: Storage,
    pub order: Storage,
    /// The number of elements of each place, followed by the published sums of tiles of places, a ticket, and the number of
    /// places with more than [`FEW`] elements.
    pub counts: Storage,
    /// The start of the numbers of each place, and the numbers.
    starts: Storage,
    members: Storage,
}

impl Groups {
    /// # Errors
    /// If memory runs out.
    pub fn new(op: &'static str, gpu: &Gpu, n: usize, last: usize, wide: bool) -> Result<Groups> {
        let size = if wide { 8 } else { 4 };
        let memory = |count: usize| Storage::new(op, Device::Cuda(gpu.ordinal), count * size);
        let (key, order, starts, members) = (memory(n)?, memory(n)?, memory(last)?, memory(n)?);
        // Two numbers of four bytes at the end.
        let words = last + last.div_ceil(THREADS * ITEMS) + 2;
        let counts = memory(words)?;
        // SAFETY: the memory was just asked for.
        unsafe { gpu.clear(op, counts.as_ptr().cast_mut(), words * size)? };
        Ok(Groups { n, last, wide, key, order, counts, starts, members })
    }

    fn source(wide: bool) -> KernelSource {
        KernelSource::new(FILES, DType::I64, wide).set("WARPS", THREADS / 32).set("ITEMS", ITEMS).set("FEW", FEW)
    }

    /// Groups the numbers by place, from the counts.
    ///
    /// # Errors
    /// If memory runs out, or a kernel cannot be compiled or started.
    pub fn run(&self, op: &'static str, gpu: &Gpu) -> Result<()> {
        let (n, last, size, source) = (self.n, self.last, if self.wide { 8 } else { 4 }, Groups::source(self.wide));
        let tiles = last.div_ceil(THREADS * ITEMS);
        let state = self.counts.as_ptr().wrapping_add(last * size);
        let ticket = state.wrapping_add(tiles * size);
        let larges = ticket.wrapping_add(size_of::<u32>());
        let large = Storage::new(op, Device::Cuda(gpu.ordinal), (n / FEW + 1) * size)?;
        let starts = Arguments::new()
            .at(self.counts.as_ptr())
            .size(last)
            .at(self.starts.as_ptr())
            .at(state)
            .at(ticket)
            .at(large.as_ptr())
            .at(larges);
        let group = Arguments::new()
            .at(self.key.as_ptr())
            .at(self.order.as_ptr())
            .at(self.starts.as_ptr())
            .size(n)
            .size(last)
            .at(self.members.as_ptr());
        // `order` is no longer needed, and serves as a buffer for a sort.
        let order = Arguments::new()
            .at(self.counts.as_ptr())
            .at(self.starts.as_ptr())
            .at(large.as_ptr())
            .at(larges)
            .size(n)
            .at(self.members.as_ptr())
            .at(self.order.as_ptr());
        // SAFETY: there is memory for a number of every element and of every place, and for all places with more than FEW elements.
        unsafe {
            starts.launch(op, gpu, source.function(op, gpu, "place_starts")?, Grid::over(tiles, 1, THREADS))?;
            group.launch(op, gpu, source.function(op, gpu, "group")?, Grid::over(n, THREADS, THREADS))?;
            let blocks = n.div_ceil(FEW).min(4 * gpu.processors as usize);
            order.launch(op, gpu, source.function(op, gpu, "order_large")?, Grid::over(blocks, 1, THREADS))
        }
    }

    /// The arguments by which a kernel reads the numbers.
    pub fn result(&self) -> Arguments {
        Arguments::new().at(self.counts.as_ptr()).at(self.starts.as_ptr()).at(self.members.as_ptr())
    }
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    [false, true].map(Groups::source).into()
}
