//! Recorded work: CUDA graphs, which are captured once and replayed with one call.
//!
//! A recording thread has a separate stream, on which nothing runs; other threads are not affected. Its allocations come from a
//! pool of the recording, since addresses are part of what is recorded. Memory that was in use when the recording began may be
//! part of it as well. As long as a recording lives, such memory is not reused, and a replay that would read released memory is
//! an error, since it would read old values.

use crate::backend::cuda::runtime::gpu::{Gpu, failed, gpu};
use crate::backend::cuda::runtime::memory::CudaSystem;
use crate::error::bail;
use crate::memory::Arena;
use crate::memory::pool::Block;
use crate::{Device, Result};
use cudarc::driver::{result, sys};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The memory of a recording, as long as the recording or a tensor in it lives.
pub(crate) struct Memory {
    pub arena: Arena<CudaSystem>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.arena.pool().empty_cache();
    }
}

/// The recording of a thread.
struct Recording {
    ordinal: usize,
    stream: sys::CUstream,
    memory: Arc<Memory>,
    reads: Reads,
}

/// Memory outside of the recording's pool that it reads.
#[derive(Default)]
struct Reads {
    /// The addresses of blocks.
    addresses: HashSet<usize>,
    /// Owners of foreign memory, to keep it alive.
    foreign: Vec<Arc<dyn Any + Send + Sync>>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

fn recording<R>(ordinal: usize, f: impl FnOnce(&mut Recording) -> R) -> Option<R> {
    let mine = |all: &RefCell<Option<Recording>>| {
        let mut all = all.try_borrow_mut().ok()?;
        all.as_mut().filter(|recording| recording.ordinal == ordinal).map(f)
    };
    RECORDING.try_with(mine).ok().flatten()
}

/// The stream on which this thread's work for a GPU is recorded.
pub(crate) fn stream(ordinal: usize) -> Option<sys::CUstream> {
    recording(ordinal, |recording| recording.stream)
}

/// The memory for tensors of this thread while it records.
pub(crate) fn memory(ordinal: usize) -> Option<Arc<Memory>> {
    recording(ordinal, |recording| recording.memory.clone())
}

/// Notes that the next work of this thread on a GPU reads memory at an address.
pub(crate) fn note_read(ordinal: usize, address: usize) {
    recording(ordinal, |recording| recording.reads.addresses.insert(address));
}

/// As [`note_read`], for foreign memory.
pub(crate) fn note_foreign(ordinal: usize, owner: &Arc<dyn Any + Send + Sync>) {
    recording(ordinal, |recording| recording.reads.foreign.push(owner.clone()));
}

/// Whether this thread records work for a device.
pub(crate) fn is_recording(device: Device) -> bool {
    matches!(device, Device::Cuda(ordinal) if stream(ordinal).is_some())
}

/// Refuses what cannot be recorded.
///
/// # Errors
/// If this thread records.
pub(crate) fn refuse(op: &'static str, ordinal: usize, why: &str) -> Result<()> {
    match stream(ordinal) {
        Some(_) => bail!(Backend, op, "cannot be recorded for replay: {why}"),
        None => Ok(()),
    }
}

/// Blocks of a GPU's pool while recordings live.
#[derive(Default)]
pub(crate) struct Reserved {
    recordings: usize,
    /// Blocks in use that were handed out since the last recording began.
    young: HashSet<usize>,
    /// Released blocks that may be part of a recording.
    waiting: Vec<Block>,
}

impl Gpu {
    fn reserved(&self) -> MutexGuard<'_, Reserved> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a block that the pool has handed out.
    pub(crate) fn handed_out(&self, block: &Block) {
        let mut reserved = self.reserved();
        if reserved.recordings > 0 {
            reserved.young.insert(block.address);
        }
    }

    /// Releases a block to the pool, now or when no recording can use it any more.
    pub(crate) fn give_back(&self, block: Block) {
        let mut reserved = self.reserved();
        if reserved.recordings > 0 && !reserved.young.remove(&block.address) {
            reserved.waiting.push(block);
            return;
        }
        drop(reserved);
        self.arena.pool().release(block);
    }
}

/// Recorded work.
pub(crate) struct Recorded {
    gpu: &'static Gpu,
    exec: sys::CUgraphExec,
    memory: Arc<Memory>,
    reads: Reads,
    /// The number of waiting blocks that it is known not to read, or that the step itself released.
    checked: usize,
}

// SAFETY: handles of the driver, which any thread may use, one at a time: `replay` takes `&mut self`.
unsafe impl Send for Recorded {}

/// Ends a recording when it is dropped, also after an error or a panic.
struct Ending {
    gpu: &'static Gpu,
    stream: sys::CUstream,
    kept: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        RECORDING.take();
        // SAFETY: made by `record`, and destroyed once.
        let _ = unsafe { result::stream::destroy(self.stream) };
        if !self.kept {
            self.gpu.forget_recording();
        }
    }
}

impl Gpu {
    fn forget_recording(&self) {
        let mut reserved = self.reserved();
        reserved.recordings -= 1;
        if reserved.recordings == 0 {
            reserved.young.clear();
            let waiting = std::mem::take(&mut reserved.waiting);
            drop(reserved);
            // Running work may still use it; its next user comes later in the same stream.
            waiting.into_iter().for_each(|block| self.arena.pool().release(block));
        }
    }
}

/// Records the GPU work of `work`.
///
/// # Errors
/// If `work` fails or does what cannot be recorded, or the driver refuses.
pub(crate) fn record<R>(op: &'static str, ordinal: usize, work: impl FnOnce() -> Result<R>) -> Result<(Recorded, R)> {
    let gpu = gpu(op, ordinal)?;
    refuse(op, ordinal, "a recording is under way")?;
    let kind = result::stream::StreamKind::NonBlocking;
    let stream = result::stream::create(kind).map_err(|e| failed(op, "making a stream", e))?;
    let memory = Arc::new(Memory { arena: Arena::new(CudaSystem { ordinal }) });
    {
        let mut reserved = gpu.reserved();
        reserved.recordings += 1;
        // All memory in use now may be part of it.
        reserved.young.clear();
    }
    let mut ending = Ending { gpu, stream, kept: false };
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream was just made.
    unsafe { result::stream::begin_capture(stream, mode) }.map_err(|e| failed(op, "beginning to record", e))?;
    let new = Recording { ordinal, stream, memory: memory.clone(), reads: Reads::default() };
    RECORDING.with(|recording| *recording.borrow_mut() = Some(new));
    let done = work();
    let reads = recording(ordinal, |recording| std::mem::take(&mut recording.reads)).unwrap_or_default();
    // SAFETY: the stream records.
    let graph = unsafe { result::stream::end_capture(stream) };
    let exec = graph.and_then(|graph| {
        // SAFETY: the graph is complete; there are no flags; it is not needed any more once it is instantiated.
        unsafe {
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = result::graph::destroy(graph);
            exec
        }
    });
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            if let Ok(exec) = exec {
                // SAFETY: just made, and destroyed once.
                let _ = unsafe { result::graph::exec_destroy(exec) };
            }
            return Err(error);
        }
    };
    let exec = exec.map_err(|e| failed(op, "what was recorded cannot be replayed", e))?;
    ending.kept = true;
    Ok((Recorded { gpu, exec, memory, reads, checked: 0 }, done))
}

impl Recorded {
    /// Treats blocks released until now as released by the step itself: their values cannot change any more.
    pub fn settle(&mut self) {
        self.checked = self.gpu.reserved().waiting.len();
    }

    /// Whether it reads the memory at an address.
    pub fn reads(&self, address: usize) -> bool {
        self.reads.addresses.contains(&address)
    }

    /// Refuses a replay that would read released memory.
    ///
    /// # Errors
    /// If a tensor that it reads was dropped since.
    fn check_reads(&mut self, op: &'static str) -> Result<()> {
        // The order of waiting blocks does not change as long as this recording lives.
        let reserved = self.gpu.reserved();
        let new = reserved.waiting.get(self.checked..).unwrap_or_default();
        if let Some(gone) = new.iter().find(|block| self.reads(block.address)) {
            bail!(
                Backend,
                op,
                "a tensor of {} bytes that the step reads, such as a parameter, was dropped or replaced since the step was \
                 recorded: keep it, or record the step again",
                gone.bytes
            );
        }
        self.checked = reserved.waiting.len();
        Ok(())
    }

    /// Submits the recorded work.
    ///
    /// # Errors
    /// If the driver refuses, the thread records, or a tensor that the work reads is gone.
    pub fn replay(&mut self, op: &'static str) -> Result<()> {
        gpu(op, self.gpu.ordinal)?;
        refuse(op, self.gpu.ordinal, "a replay cannot be part of a recording")?;
        self.check_reads(op)?;
        let scope = crate::backend::events::enter(op);
        crate::backend::events::note_gpu(self.gpu.ordinal);
        // SAFETY: the recorded work uses memory of its pool, which lives as long as this, and memory that is not reused as long as
        // this lives; the fence keeps the order with the work of all streams.
        let launch = || unsafe { result::graph::launch(self.exec, self.gpu.first_stream()) };
        let launched = self.gpu.fenced(launch).map_err(|e| failed(op, "replaying", e));
        crate::backend::events::leave(scope);
        launched
    }

    /// The bytes of its memory.
    pub fn bytes(&self) -> usize {
        self.memory.arena.stats().held()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // Its memory is freed with the last tensor in it, which waits for the GPU.
        if gpu("drop", self.gpu.ordinal).is_ok() {
            // SAFETY: made by `record`, and destroyed once, after its work.
            unsafe {
                let _ = result::stream::synchronize(self.gpu.first_stream());
                let _ = result::graph::exec_destroy(self.exec);
            }
        }
        self.gpu.forget_recording();
    }
}
