//! The stable sort that long lanes and sums by index go through: of numbers by keys, eight bits of them at a time.

use super::ORDER;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[ORDER, super::BEFORE, super::RANK, include_str!("sort_long.cu")];
const THREADS: usize = 256;
/// Digits of eight bits.
const DIGITS: usize = 256;
/// Elements from which on each thread has more of them: tiles are then enough for all of a GPU.
const MANY: usize = 1 << 23;

/// The numbers below `n`, to be sorted by keys, and then by the lanes that they belong to: lane `i / len` has number `i`.
pub(super) struct RadixSort {
    n: usize,
    lanes: usize,
    key_passes: usize,
    items: usize,
    /// Whether counts and numbers take eight bytes.
    wide: bool,
    /// Whether keys do.
    wide_keys: bool,
    /// The keys before the sort are the first of these.
    pub keys: [Storage; 2],
    numbers: [Storage; 2],
    /// Counts of the digits of all passes, what is known of each pass, tickets of each pass, and what tiles say of themselves,
    /// twice.
    work: Storage,
}

impl RadixSort {
    /// Numbers, and keys, take eight bytes if they have to, or as the caller says.
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
        // Two bits of a count say what it is one of. A buffer of keys also holds numbers.
        let wide = wide || n >= 1 << 30;
        let wide_keys = wide_keys || wide;
        let items = if !wide_keys && n >= MANY { 16 } else { 8 };
        let memory = |bytes: usize| Storage::new(op, Device::Cuda(gpu.ordinal), bytes);
        let (key, number) = (if wide_keys { 8 } else { 4 }, if wide { 8 } else { 4 });
        let keys = [memory(n * key)?, memory(n * key)?];
        let numbers = [memory(n * number)?, memory(n * number)?];
        let key_passes = key_bits.div_ceil(8);
        let mut sort = RadixSort { n, lanes, key_passes, items, wide, wide_keys, keys, numbers, work: memory(0)? };
        sort.work = memory(sort.state(2))?;
        // SAFETY: the memory was just asked for.
        unsafe { gpu.clear(op, sort.work.as_ptr().cast_mut(), sort.state(1))? };
        Ok(sort)
    }

    fn passes(&self) -> usize {
        self.key_passes + (usize::BITS - (self.lanes - 1).leading_zeros()).div_ceil(8) as usize
    }

    fn tiles(&self) -> usize {
        self.n.div_ceil(THREADS * self.items)
    }

    /// Bytes of a count.
    fn count(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Where the parts of the memory begin: what is known of passes, tickets, and what tiles say.
    fn plan(&self) -> usize {
        self.passes() * DIGITS * self.count()
    }

    fn tickets(&self) -> usize {
        self.plan() + (self.passes() + 1) * size_of::<u32>()
    }

    fn state(&self, which: usize) -> usize {
        let first = (self.tickets() + self.passes() * size_of::<u32>()).next_multiple_of(256);
        first + which * self.tiles() * DIGITS * self.count()
    }

    fn at(&self, offset: usize) -> *const u8 {
        self.work.as_ptr().wrapping_add(offset)
    }

    /// Where the digits of keys are counted.
    pub fn counts(&self) -> *const u8 {
        self.at(0)
    }

    /// What a kernel reads the result by: both buffers of keys, where they are wanted, both of numbers, and which of them it is.
    pub fn result(&self, with_keys: bool, arguments: Arguments) -> Arguments {
        let keys = if with_keys { self.keys.iter() } else { [].iter() };
        let buffers = keys.chain(&self.numbers);
        let known = self.at(self.plan() + self.passes() * size_of::<u32>());
        buffers.fold(arguments, |all, buffer| all.at(buffer.as_ptr())).at(known)
    }

    /// The source of the passes.
    pub fn source(wide: bool, wide_keys: bool, items: usize) -> KernelSource {
        let key = if wide_keys { DType::U64 } else { DType::U32 };
        KernelSource::new(FILES, DType::I64, wide).dtype("K", key).set("WARPS", THREADS / 32).set("ITEMS", items)
    }

    pub fn own_source(&self) -> KernelSource {
        RadixSort::source(self.wide, self.wide_keys, self.items)
    }

    /// Counts the digits of the keys.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    pub fn count_digits(&self, op: &'static str, gpu: &Gpu) -> Result<()> {
        let arguments = Arguments::new().at(self.keys[0].as_ptr()).size(self.n).size(self.key_passes).at(self.counts());
        let function = self.own_source().function(op, gpu, "count_digits")?;
        // SAFETY: there are `n` keys, and a count for each digit of each pass.
        unsafe { arguments.launch(op, gpu, function, self.counting_grid(gpu)) }
    }

    /// A block counts many keys, since it adds its counts to those of all.
    pub fn counting_grid(&self, gpu: &Gpu) -> Grid {
        Grid::over(self.n.div_ceil(16).min(gpu.processors as usize * 8 * THREADS), THREADS, THREADS)
    }

    /// Sorts by the digits that were counted, and by lanes.
    ///
    /// # Errors
    /// If a kernel cannot be compiled or started.
    pub fn run(&self, op: &'static str, gpu: &Gpu) -> Result<()> {
        let (source, len, passes) = (self.own_source(), self.n / self.lanes, self.passes());
        let (plan, tickets) = (self.at(self.plan()), self.at(self.tickets()));
        let starts = Arguments::new()
            .at(self.counts())
            .size(self.n)
            .size(self.key_passes)
            .size(passes)
            .size(self.lanes)
            .size(len)
            .at(plan);
        let one_block = Grid { blocks: [1, 1], threads: [THREADS, 1], shared: 0 };
        let grid = Grid { blocks: [self.tiles(), 1], threads: [THREADS, 1], shared: 0 };
        let sweep = source.function(op, gpu, "sweep")?;
        // SAFETY: there is memory for all counts, for `n` keys and numbers twice, and for what the blocks say; see `new`.
        unsafe {
            starts.launch(op, gpu, source.function(op, gpu, "digit_starts")?, one_block)?;
            for pass in 0..passes {
                let arguments = Arguments::new()
                    .at(self.keys[0].as_ptr())
                    .at(self.keys[1].as_ptr())
                    .at(self.numbers[0].as_ptr())
                    .at(self.numbers[1].as_ptr())
                    .size(self.n)
                    .size(pass)
                    .size(self.key_passes)
                    .size(len)
                    .at(self.counts())
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
#[cfg(test)]
pub(super) fn sources() -> Vec<KernelSource> {
    let kinds = [(false, false, 8), (false, false, 16), (false, true, 8), (true, true, 8)];
    kinds.map(|(wide, wide_keys, items)| RadixSort::source(wide, wide_keys, items)).into()
}
