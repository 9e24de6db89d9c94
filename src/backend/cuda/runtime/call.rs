//! Kernels from source files, as opposed to those generated for chains: their sources, specialised for dtypes and sizes, and the
//! arguments of a call.

use crate::backend::cuda::elementwise::source::{name, opening};
use crate::backend::cuda::runtime::compile::Function;
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::layout::Walk;
use crate::{DType, Result};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::fmt::{Display, Write};

/// Bytes that a thread reads or writes with one instruction.
pub(crate) const WIDE: usize = 16;

/// Kernel source files with their parameters.
pub(crate) struct KernelSource {
    files: &'static [&'static str],
    /// The compute dtype.
    compute: DType,
    /// Whether positions need 64 bits.
    wide: bool,
    /// Types and constants, as source lines. Together with the function's name they identify the source.
    settings: String,
    fused: bool,
    /// Whether the files do not need the prelude.
    bare: bool,
}

/// Whether positions for this number of elements need 64 bits.
pub(crate) fn is_wide(numel: usize) -> bool {
    numel >= 1 << 31
}

impl KernelSource {
    pub fn new(files: &'static [&'static str], compute: DType, wide: bool) -> KernelSource {
        KernelSource { files, compute, wide, settings: String::new(), fused: false, bare: false }
    }

    /// Files that do not need the prelude.
    pub fn bare(files: &'static [&'static str]) -> KernelSource {
        KernelSource { bare: true, ..KernelSource::new(files, DType::F32, false) }
    }

    /// Lets the compiler contract products and sums. For kernels whose bits need not match those of the CPU.
    pub fn fused(mut self) -> KernelSource {
        self.fused = true;
        self
    }

    pub fn dtype(mut self, symbol: &str, dtype: DType) -> KernelSource {
        // Writing to a string cannot fail.
        let _ = writeln!(self.settings, "typedef {} {symbol};", name(dtype));
        self
    }

    pub fn set(mut self, symbol: &str, value: impl Display) -> KernelSource {
        let _ = writeln!(self.settings, "#define {symbol} {value}");
        self
    }

    #[cfg(feature = "samples")]
    pub fn settings(&self) -> &str {
        &self.settings
    }

    #[cfg(feature = "samples")]
    pub fn is_fused(&self) -> bool {
        self.fused
    }

    pub fn text(&self) -> String {
        let mut text = if self.bare { String::new() } else { opening(self.compute, self.wide) };
        text.push_str(&self.settings);
        self.files.iter().for_each(|file| text.push_str(file));
        text
    }

    /// The function of this name.
    ///
    /// # Errors
    /// If it cannot be compiled.
    pub fn function(&self, op: &'static str, gpu: &Gpu, name: &str) -> Result<Function> {
        // Two files may have kernels of the same name: the address and length of the list of files distinguish them.
        let (files, count) = (self.files.as_ptr().addr(), self.files.len());
        let key = format!("{name} {files:x}/{count} {} {} {} {}", self.compute, self.wide, self.fused, self.settings);
        gpu.function(op, &key, name, self.fused, || self.text())
    }
}

/// The arguments of a kernel, in the order of its parameters.
#[derive(Default)]
pub(crate) struct Arguments {
    words: SmallVec<[u64; 32]>,
    /// The start of each argument.
    starts: SmallVec<[usize; 24]>,
}

impl Arguments {
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// An integer, a pointer, or the bits of anything that takes at most eight bytes.
    pub fn word(mut self, word: u64) -> Arguments {
        self.push(word);
        self
    }

    pub fn push(&mut self, word: u64) {
        self.starts.push(self.words.len());
        self.words.push(word);
    }

    pub fn size(self, size: usize) -> Arguments {
        self.word(size as u64)
    }

    pub fn at(self, address: *const u8) -> Arguments {
        self.word(address.addr() as u64)
    }

    /// An address, or null.
    pub fn at_or_null(self, address: Option<*const u8>) -> Arguments {
        self.word(address.map_or(0, |address| address.addr() as u64))
    }

    /// A `double`.
    pub fn float(self, value: f64) -> Arguments {
        self.word(value.to_bits())
    }

    /// A struct of words.
    pub fn words(mut self, words: &[u64]) -> Arguments {
        self.push_words(words);
        self
    }

    pub fn push_words(&mut self, words: &[u64]) {
        self.starts.push(self.words.len());
        self.words.extend_from_slice(words);
    }

    /// Runs a kernel with these arguments.
    ///
    /// # Errors
    /// As for [`Gpu::launch`].
    ///
    /// # Safety
    /// As for [`Gpu::launch`].
    pub unsafe fn launch(mut self, op: &'static str, gpu: &Gpu, function: Function, grid: Grid) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { gpu.launch(op, function, grid, &mut self.pointers()) }
    }

    /// As [`launch`](Self::launch), for a kernel that may start before the one before it has ended: see
    /// [`Gpu::launch_overlapping`].
    ///
    /// # Errors
    /// As for [`Gpu::launch`].
    ///
    /// # Safety
    /// As for [`Gpu::launch_overlapping`].
    pub unsafe fn launch_overlapping(self, op: &'static str, gpu: &Gpu, function: Function, grid: Grid) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_clusters(op, gpu, function, grid, 1) }
    }

    /// As [`launch_overlapping`](Self::launch_overlapping), where `cluster` blocks along y form a cluster.
    ///
    /// # Errors
    /// As for [`Gpu::launch`].
    ///
    /// # Safety
    /// As for [`Gpu::launch_overlapping`].
    pub unsafe fn launch_clusters(
        mut self,
        op: &'static str,
        gpu: &Gpu,
        function: Function,
        grid: Grid,
        cluster: usize,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { gpu.launch_overlapping(op, function, grid, cluster, &mut self.pointers()) }
    }

    fn pointers(&mut self) -> SmallVec<[*mut c_void; 24]> {
        let words = self.words.as_mut_ptr();
        // SAFETY: every start lies inside the words.
        self.starts.iter().map(|&start| unsafe { words.add(start) }.cast::<c_void>()).collect()
    }
}

/// The launch configuration of a kernel: blocks, threads per block, and bytes of shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub blocks: [usize; 2],
    pub threads: [usize; 2],
    pub shared: usize,
}

impl Grid {
    /// One dimension of blocks, for `work` items with `each` per block. Kernels use grid-stride loops.
    pub fn over(work: usize, each: usize, threads: usize) -> Grid {
        Grid { blocks: [work.div_ceil(each).clamp(1, 1 << 30), 1], threads: [threads, 1], shared: 0 }
    }
}

/// Sizes, then steps, as in the kernels' `Steps`.
pub(crate) fn steps<const N: usize>(walk: &Walk<N>, operand: usize) -> SmallVec<[u64; 12]> {
    let sizes = walk.dims().iter().map(|&(size, _)| size as u64);
    sizes.chain(walk.dims().iter().map(|&(_, steps)| steps[operand] as i64 as u64)).collect()
}
