//! Sums of f32 by place in fixed point: sums of integers have the same bits in every order. They are rounded to f32 from a sum
//! with at least eight additional bits.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::storage::Storage;
use crate::{DType, Device, Result};
use smallvec::SmallVec;

const FILES: &[&str] =
    &[include_str!("../runtime/fault.cu"), include_str!("../runtime/groups.cu"), include_str!("fixed.cu")];

/// The most blocks that read the floats: enough to keep a GPU busy, and few enough for every block of the next kernel to read
/// all their results.
const BLOCKS: usize = 1024;

/// The buffers of the sums.
pub(super) struct FixedSums {
    n: usize,
    last: usize,
    source: KernelSource,
    /// The sums in the common unit, the sums in the units of the places, the exponents of these units, and the global state.
    memory: Storage,
    /// The numbers of the small elements, in one part per block.
    list: Storage,
    /// The number of threads that read the floats.
    threads: usize,
}

impl FixedSums {
    /// Sums of `n` floats into `last` places, for indices of `rank` dimensions. Both numbers are below 2^30.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(op: &'static str, gpu: &Gpu, n: usize, last: usize, rank: usize) -> Result<FixedSums> {
        let memory = |bytes: usize| Storage::new(op, Device::Cuda(gpu.ordinal), bytes);
        let threads = n.next_multiple_of(256).min(256 * BLOCKS.min(8 * gpu.processors as usize));
        let (memory, list) =
            (memory(last * 20 + (1 + 2 * BLOCKS) * 4)?, memory(n.next_multiple_of(threads.max(1)) * 4)?);
        Ok(FixedSums { n, last, source: source(rank), memory, list, threads })
    }

    /// The number of bits below the largest float: with its own 24, and the carries of `n` summands, there are 62.
    fn span(&self) -> usize {
        38 - (usize::BITS - self.n.leading_zeros()) as usize
    }

    /// Writes `base`, which may be `target` itself, plus the floats at `from` to `target`. `by_index` launches a kernel with a
    /// number of threads; its arguments are the indices, followed by the given ones.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    ///
    /// # Safety
    /// There are `n` floats at `from`, `last` at `base` and `target`, and the indices lead to these.
    pub unsafe fn run(
        &self,
        op: &'static str,
        gpu: &Gpu,
        [from, base, target]: [*const u8; 3],
        by_index: impl Fn(&KernelSource, &str, usize, &[u64]) -> Result<()>,
    ) -> Result<()> {
        let part = |words: usize| self.memory.as_ptr().wrapping_add(self.last * words * 4);
        let (sums, rests, tops, known) = (part(0), part(2), part(4), part(5));
        let (list, span) = (self.list.as_ptr(), self.span() as u64);
        let function = |name: &str| self.source.function(op, gpu, name);
        let words = |addresses: &[*const u8], rest: &[u64]| -> SmallVec<[u64; 8]> {
            addresses.iter().map(|address| address.addr() as u64).chain(rest.iter().copied()).collect()
        };
        let (n, last, threads) = (self.n, self.last, self.threads);
        let start = Grid::over(n.max(last).min(BLOCKS * 256), 256, 256);
        let arguments = Arguments::new().at(from).size(n).size(last).at(known).at(sums).at(tops);
        // SAFETY: the caller's promise, and there is memory for all places.
        unsafe { arguments.launch(op, gpu, function("fixed_start")?, start)? };
        let rest = [span, start.blocks[0] as u64];
        by_index(&self.source, "fixed_sums", threads, &words(&[from, known, sums, tops, rests, list], &rest))?;
        by_index(&self.source, "fixed_rests", threads, &words(&[from, known, tops, rests, list], &[span]))?;
        let arguments =
            Arguments::new().at(base).at(target).size(last).at(known).at(sums).at(tops).at(rests).word(span);
        // SAFETY: as above.
        unsafe { arguments.launch(op, gpu, function("fixed_finish")?, Grid::over(last, 256, 256)) }
    }
}

fn source(rank: usize) -> KernelSource {
    KernelSource::new(FILES, DType::F32, false).set("R", rank).set("BLOCKS", BLOCKS)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    [1, 3].map(source).into()
}
