//! A stable radix sort of numbers by keys, eight bits at a time, for long lanes and for folds by index.

use super::ORDER;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[ORDER, super::BEFORE, super::RANK, include_str!("sort_long.cu")];
/// The number of values of a digit of eight bits.
const DIGITS: usize = 256;
/// Elements per thread.
const ITEMS: usize = 8;
/// Threads of a counting block, one per digit value.
const COUNTING: usize = DIGITS;

/// A sort of the numbers below `n` by keys, and then by lanes: number `i` belongs to lane `i / len`.
pub(super) struct RadixSort {
    n: usize,
    lanes: usize,
    key_passes: usize,
    /// Whether counts and numbers have eight bytes.
    wide: bool,
    /// Whether keys have eight bytes.
    wide_keys: bool,
    /// Two buffers; the first holds the keys before the sort.
    pub keys: [Storage; 2],
    numbers: [Storage; 2],
    /// The digit counts of all passes, the state of each pass, the tickets of the passes and of the counting blocks, and the
    /// published sums of tiles, twice.
    work: Storage,
}

impl RadixSort {
    /// Numbers and keys have eight bytes if necessary, or if the caller requests it.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        op: &'static str,
        gpu: &Gpu,
        n: usize,
        lanes: usize,
        key_bits: usize,
        [wide, wide_keys]: [bool; 2],
    ) -> Result<RadixSort> {
        // Two bits of a count are flags. A buffer of keys also holds numbers.
        let wide = wide || n >= 1 << 30;
        let wide_keys = wide_keys || wide;
        let memory = |bytes: usize| Storage::new(op, Device::Cuda(gpu.ordinal), bytes);
        let (key, number) = (if wide_keys { 8 } else { 4 }, if wide { 8 } else { 4 });
        let keys = [memory(n * key)?, memory(n * key)?];
        let numbers = [memory(n * number)?, memory(n * number)?];
        let key_passes = key_bits.div_ceil(8);
        let mut sort = RadixSort { n, lanes, key_passes, wide, wide_keys, keys, numbers, work: memory(0)? };
        sort.work = memory(sort.state(2))?;
        // SAFETY: the memory was just asked for.
        unsafe { gpu.clear(op, sort.work.as_ptr().cast_mut(), sort.state(1))? };
        Ok(sort)
    }

    fn passes(&self) -> usize {
        self.key_passes + (usize::BITS - (self.lanes - 1).leading_zeros()).div_ceil(8) as usize
    }

    /// Threads of a block that sorts a tile. More threads with wide keys would exceed the shared memory.
    fn threads(wide_keys: bool) -> usize {
        if wide_keys { 256 } else { 512 }
    }

    fn tiles(&self) -> usize {
        self.n.div_ceil(RadixSort::threads(self.wide_keys) * ITEMS)
    }

    /// Bytes of a count.
    fn count(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The offset of the states of passes in `work`; the tickets and the published sums of tiles follow.
    fn plan(&self) -> usize {
        self.passes() * DIGITS * self.count()
    }

    fn tickets(&self) -> usize {
        self.plan() + (self.passes() + 1) * size_of::<u32>()
    }

    fn state(&self, which: usize) -> usize {
        let first = (self.tickets() + (self.passes() + 1) * size_of::<u32>()).next_multiple_of(256);
        first + which * self.tiles() * DIGITS * self.count()
    }

    fn at(&self, offset: usize) -> *const u8 {
        self.work.as_ptr().wrapping_add(offset)
    }

    /// The arguments by which a kernel reads the result: both buffers of keys, both of numbers, and which of them is valid. Not
    /// after a sort that writes elements.
    pub fn result(&self, arguments: Arguments) -> Arguments {
        let known = self.at(self.plan() + self.passes() * size_of::<u32>());
        let buffers = self.keys.iter().chain(&self.numbers);
        buffers.fold(arguments, |all, buffer| all.at(buffer.as_ptr())).at(known)
    }

    /// The source of the passes.
    pub fn source(wide: bool, wide_keys: bool) -> KernelSource {
        let key = if wide_keys { DType::U64 } else { DType::U32 };
        let warps = RadixSort::threads(wide_keys) / 32;
        KernelSource::new(FILES, DType::I64, wide).dtype("K", key).set("WARPS", warps).set("ITEMS", ITEMS)
    }

    pub fn own_source(&self) -> KernelSource {
        RadixSort::source(self.wide, self.wide_keys)
    }

    /// Sorts by the first keys and by lanes.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    pub fn run(&self, op: &'static str, gpu: &Gpu) -> Result<()> {
        // SAFETY: the keys are those of this sort.
        unsafe { self.run_with(op, gpu, &self.own_source(), &[self.keys[0].as_ptr().addr() as u64]) }
    }

    /// Sorts by the keys that the source reads from `ends`, and by lanes.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    ///
    /// # Safety
    /// `ends` are the words of the source's struct of that name, with memory for all elements.
    pub unsafe fn run_with(&self, op: &'static str, gpu: &Gpu, source: &KernelSource, ends: &[u64]) -> Result<()> {
        let passes = self.passes();
        let sorted = [self.n, self.n / self.lanes, self.lanes, self.key_passes, passes].map(|size| size as u64);
        let (counts, plan, tickets) = (self.at(0), self.at(self.plan()), self.at(self.tickets()));
        let done = tickets.wrapping_add(passes * size_of::<u32>());
        let count = Arguments::new().words(ends).words(&sorted).at(counts).at(plan).at(done);
        // Blocks count many keys each, since every block adds its counts to the global ones.
        let counting = Grid::over(self.n.div_ceil(16).min(gpu.processors as usize * 8 * COUNTING), COUNTING, COUNTING);
        let threads = RadixSort::threads(self.wide_keys);
        let grid = Grid { blocks: [self.tiles(), 1], threads: [threads, 1], shared: 0 };
        let sweep = source.function(op, gpu, "sweep")?;
        // SAFETY: there is memory for all counts, for `n` keys and numbers twice, and for the published sums; see `new`.
        unsafe {
            count.launch(op, gpu, source.function(op, gpu, "count_digits")?, counting)?;
            for pass in 0..passes {
                let arguments = Arguments::new()
                    .words(ends)
                    .at(self.keys[0].as_ptr())
                    .at(self.keys[1].as_ptr())
                    .at(self.numbers[0].as_ptr())
                    .at(self.numbers[1].as_ptr())
                    .words(&sorted)
                    .size(pass)
                    .at(counts)
                    .at(plan)
                    .at(tickets)
                    .at(self.at(self.state(pass % 2)))
                    .at(self.at(self.state(1 - pass % 2)));
                arguments.launch(op, gpu, sweep, grid)?;
            }
        }
        Ok(())
    }
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    [(false, false), (false, true), (true, true)].map(|(wide, wide_keys)| RadixSort::source(wide, wide_keys)).into()
}
