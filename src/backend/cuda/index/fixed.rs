//! Sums of f32 by place as whole numbers: these need no order to come to the same bits every time. They are rounded to f32 from a
//! sum that keeps at least eight bits more.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[include_str!("../runtime/fault.cu"), include_str!("fixed.cu")];

/// Memory of sums that are under way.
pub(super) struct FixedSums {
    n: usize,
    last: usize,
    source: KernelSource,
    /// Sums in one unit, sums in a unit of each place, the exponents of these, and what is known of all.
    memory: Storage,
    /// The numbers of the elements that are small.
    list: Storage,
}

impl FixedSums {
    /// Sums of `n` floats into `last` places, for indices of `rank` dimensions. Both numbers are below 2^30.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(op: &'static str, gpu: &Gpu, n: usize, last: usize, rank: usize) -> Result<FixedSums> {
        let memory = |bytes: usize| Storage::new(op, Device::Cuda(gpu.ordinal), bytes);
        let (list, bytes) = (memory(n * 4)?, last * 20 + 8);
        let memory = memory(bytes)?;
        // SAFETY: the memory was just asked for.
        unsafe { gpu.clear(op, memory.as_ptr().cast_mut(), bytes)? };
        Ok(FixedSums { n, last, source: source(rank), memory, list })
    }

    /// The bits below the largest float: with its own 24, and those that `n` of them may carry into, there are 62.
    fn span(&self) -> usize {
        38 - (usize::BITS - self.n.leading_zeros()) as usize
    }

    /// Adds floats to a target. `by_index` starts a kernel whose arguments begin with the indices, and go on with these.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    ///
    /// # Safety
    /// There are `n` floats at `from`, `last` at `target`, and the indices lead to these.
    pub unsafe fn run(
        &self,
        op: &'static str,
        gpu: &Gpu,
        from: *const u8,
        target: *const u8,
        by_index: impl Fn(&KernelSource, &str, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let part = |words: usize| self.memory.as_ptr().wrapping_add(self.last * words * 4);
        let (sums, rests, tops, known) = (part(0), part(2), part(4), part(5));
        let (list, span) = (self.list.as_ptr(), self.span());
        let words = |addresses: &[*const u8]| -> Vec<u64> {
            addresses.iter().map(|address| address.addr() as u64).chain([span as u64]).collect()
        };
        let top = Arguments::new().at(from).size(self.n).at(known);
        // The fewer blocks, the fewer of them wait for one another at the end.
        let grid = Grid::over(self.n.min(2 * 256 * gpu.processors as usize), 256, 256);
        // SAFETY: the caller's promise.
        unsafe { top.launch(op, gpu, self.source.function(op, gpu, "fixed_top")?, grid)? };
        by_index(&self.source, "fixed_sums", &words(&[from, target, known, sums, tops, list]))?;
        by_index(&self.source, "fixed_rests", &words(&[from, known, tops, rests, list]))?;
        let finish = Arguments::new().at(target).size(self.last).at(known).at(sums).at(tops).at(rests).size(span);
        let grid = Grid::over(self.last, 256, 256);
        // SAFETY: the caller's promise.
        unsafe { finish.launch(op, gpu, self.source.function(op, gpu, "fixed_finish")?, grid) }
    }
}

fn source(rank: usize) -> KernelSource {
    KernelSource::new(FILES, DType::F32, false).set("R", rank)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(super) fn sources() -> Vec<KernelSource> {
    [1, 3].map(source).into()
}
