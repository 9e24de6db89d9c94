//! A GPU: its context, its streams, and driver calls with descriptive errors.

use crate::backend::cuda::runtime::call::Grid;
use crate::backend::cuda::runtime::capture::{self, Reserved};
use crate::backend::cuda::runtime::compile::{Function, Modules};
use crate::backend::cuda::runtime::memory::{CudaSystem, Event};
use crate::backend::cuda::runtime::stream::{self, STREAMS, Streams};
use crate::error::{bail, err};
use crate::memory::Arena;
use crate::storage::Storage;
use crate::{Error, Result, flags};
use cudarc::driver::{result, sys};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The shared memory that a kernel gets by default.
const PLAIN_SHARED: usize = 48 << 10;

/// The maximum number of GPUs.
pub(crate) const MOST: usize = 16;

/// A GPU of this machine.
pub(crate) struct Gpu {
    pub ordinal: usize,
    pub name: String,
    /// The compute capability, as in 90 for 9.0.
    pub arch: u32,
    pub processors: u32,
    /// The maximum shared memory of a block, in bytes.
    pub shared: usize,
    pub memory: usize,
    pub arena: Arena<CudaSystem>,
    pub modules: Modules,
    context: Handle<sys::CUcontext>,
    pub(crate) streams: Streams,
    faults: Faults,
    /// The address of counters, one for each stream, that are 0 between its kernels.
    counts: u64,
    /// Pinned memory that submitted work reads.
    pub(crate) held: Mutex<Vec<(Event, Storage)>>,
    pub(crate) reserved: Mutex<Reserved>,
}

/// Error reports of kernels: a flag on the GPU, taken by the first one, and the report in memory that the CPU reads.
struct Faults {
    taken: u64,
    report: Handle<*mut Fault>,
    /// The operations with kernels that report errors, by their number minus one.
    ops: Mutex<Vec<&'static str>>,
}

/// An index out of range, as in the kernels' source. The operation number is 0 if there is no report.
#[repr(C)]
struct Fault {
    op: u64,
    index: i64,
    size: i64,
}

/// A handle of the driver that can be used from any thread.
pub(crate) struct Handle<T>(pub T);
// SAFETY: contexts and streams are objects of the driver, which synchronises access to them.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

thread_local! {
    /// The ordinal plus one of the GPU whose context is current on this thread; 0 if there is none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

static GPUS: [OnceLock<std::result::Result<Gpu, String>>; MOST] = [const { OnceLock::new() }; MOST];

/// The GPUs that were used already.
pub(crate) fn in_use() -> impl Iterator<Item = &'static Gpu> {
    GPUS.iter().filter_map(|gpu| gpu.get()?.as_ref().ok())
}

/// The number of GPUs; 0 without a driver.
fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: only looks for the library.
        let present = unsafe { sys::is_culib_present() };
        let counted = if present { result::init().and_then(|()| result::device::get_count()) } else { Ok(0) };
        counted.map_or(0, |count| count.max(0) as usize)
    })
}

/// The GPU with this number, with its context current on the calling thread.
///
/// # Errors
/// If it does not exist, or the driver refuses. The error names `op`.
pub(crate) fn gpu(op: &'static str, ordinal: usize) -> Result<&'static Gpu> {
    let found = count().min(MOST);
    if ordinal >= found {
        bail!(
            Device,
            op,
            "cuda:{ordinal} does not exist: {}",
            match found {
                0 => "no NVIDIA GPU or driver was found".to_string(),
                n => format!("this machine has {n} GPU(s)"),
            }
        );
    }
    match GPUS[ordinal].get_or_init(|| Gpu::open(ordinal).map_err(|error| error.to_string())) {
        Ok(gpu) => gpu.enter(op).map(|()| gpu),
        Err(error) => bail!(Device, op, "cuda:{ordinal} cannot be used: {error}"),
    }
}

/// An error of the driver.
pub(crate) fn failed(op: &'static str, what: &str, error: result::DriverError) -> Error {
    let name = error.error_name().ok().and_then(|name| name.to_str().ok().map(str::to_owned));
    err!(Backend, op, "{what}: {}", name.unwrap_or_else(|| format!("{error:?}")))
}

/// The address of `count` zeros of eight bytes on the current GPU. They are never freed.
fn zeros(count: usize) -> std::result::Result<u64, result::DriverError> {
    // SAFETY: the memory was just allocated.
    unsafe {
        let at = result::malloc_sync(count * size_of::<u64>())?;
        result::memset_d8_sync(at, 0, count * size_of::<u64>())?;
        Ok(at)
    }
}

impl Faults {
    fn new() -> Result<Faults> {
        let e = |error| failed("cuda", "making room for reports", error);
        // SAFETY: the context is this thread's. Memory of the CPU that the GPU may write to has one address for both.
        unsafe {
            let taken = zeros(1).map_err(e)?;
            let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
            let report = result::malloc_host(size_of::<Fault>(), flags).map_err(e)?.cast::<Fault>();
            report.write(Fault { op: 0, index: 0, size: 0 });
            Ok(Faults { taken, report: Handle(report), ops: Mutex::default() })
        }
    }

    /// Checks for a report. All work must be done.
    fn look(&self, op: &'static str, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the memory is never freed, and no kernel runs that could write to it, except perhaps one that another thread has
        // started since, whose report may then be lost.
        let Fault { op: number, index, size } = unsafe { self.report.0.read_volatile() };
        if number == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe {
            self.report.0.write_volatile(Fault { op: 0, index: 0, size: 0 });
            result::memset_d8_async(self.taken, 0, size_of::<u64>(), stream).map_err(|e| failed(op, "clearing", e))?;
        }
        let ops = self.ops.lock().unwrap_or_else(PoisonError::into_inner);
        let by = ops.get(number as usize - 1).copied().unwrap_or(op);
        // The waiting operation puts its name in front of the message, which therefore names the failed operation.
        bail!(Index, op, "{by}: index {index} is out of range for a dimension of size {size}")
    }
}

impl Gpu {
    fn open(ordinal: usize) -> Result<Gpu> {
        const OP: &str = "cuda";
        let device = result::device::get(ordinal as i32).map_err(|e| failed(OP, "finding the device", e))?;
        let attribute = |which| {
            // SAFETY: the device was just found.
            let value = unsafe { result::device::get_attribute(device, which) };
            value.map(|value| value as u32).map_err(|e| failed(OP, "asking for its properties", e))
        };
        use sys::CUdevice_attribute_enum as Attribute;
        let arch = 10 * attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?
            + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize;
        // SAFETY: the device was just found; its primary context is kept as long as the process lives.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(|e| failed(OP, "making a context", e))?;
        // SAFETY: the context is valid.
        unsafe { result::ctx::set_current(context) }.map_err(|e| failed(OP, "using the context", e))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(|e| failed(OP, "making a stream", e))?;
        // SAFETY: the device was just found.
        let memory =
            unsafe { result::device::total_mem(device) }.map_err(|e| failed(OP, "asking for its memory", e))?;
        let name = result::device::get_name(device).map_err(|e| failed(OP, "asking for its name", e))?;
        let (context, streams, faults) = (Handle(context), Streams::new(stream), Faults::new()?);
        let arena = Arena::new(CudaSystem { ordinal });
        let counts = zeros(STREAMS).map_err(|e| failed(OP, "making room for counts", e))?;
        Ok(Gpu {
            ordinal,
            name,
            arch,
            processors,
            shared,
            memory,
            arena,
            modules: Modules::default(),
            context,
            streams,
            faults,
            counts,
            held: Mutex::default(),
            reserved: Mutex::default(),
        })
    }

    /// Makes this GPU's context current on the calling thread.
    fn enter(&self, op: &'static str) -> Result<()> {
        if CURRENT.get() == self.ordinal + 1 {
            return Ok(());
        }
        // SAFETY: the context lives as long as the process.
        unsafe { result::ctx::set_current(self.context.0) }.map_err(|e| failed(op, "using the context", e))?;
        CURRENT.set(self.ordinal + 1);
        Ok(())
    }

    /// The stream for this thread's work.
    pub fn stream(&self) -> sys::CUstream {
        if flags::has(flags::PROFILE) {
            crate::backend::events::note_gpu(self.ordinal);
        }
        capture::stream(self.ordinal).unwrap_or_else(|| self.own_stream())
    }

    /// The address of an i32 that is 0 between the kernels of this thread's stream.
    pub(crate) fn count(&self) -> u64 {
        self.counts + u64::from(stream::current(self.ordinal)) * size_of::<u64>() as u64
    }

    /// Waits for all work submitted to this thread's stream.
    ///
    /// # Errors
    /// If any of it has failed.
    pub fn synchronize(&self, op: &'static str) -> Result<()> {
        self.wait(op, std::iter::once(self.own_stream()))
    }

    /// As [`synchronize`](Self::synchronize), for all streams.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize).
    pub fn synchronize_all(&self, op: &'static str) -> Result<()> {
        self.wait(op, self.streams.open().map(|(_, stream)| stream))
    }

    fn wait(&self, op: &'static str, streams: impl Iterator<Item = sys::CUstream>) -> Result<()> {
        self.enter(op)?;
        capture::refuse(op, self.ordinal, "it waits for values")?;
        for stream in streams {
            // SAFETY: streams live as long as the process.
            unsafe { result::stream::synchronize(stream) }
                .map_err(|e| failed(op, "earlier work on the GPU failed", e))?;
        }
        self.faults.look(op, self.own_stream())
    }

    /// The arguments of a kernel of this operation for its reports: a number, and two addresses.
    pub fn faults(&self, op: &'static str) -> (u64, u64, u64) {
        let mut ops = self.faults.ops.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ops.iter().position(|&known| known == op).unwrap_or_else(|| {
            ops.push(op);
            ops.len() - 1
        });
        (at as u64 + 1, self.faults.taken, self.faults.report.0.addr() as u64)
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// If the driver refuses it, or earlier work has failed.
    ///
    /// # Safety
    /// The arguments must be those that the kernel expects, and its accesses must stay inside memory whose address was taken for this
    /// thread's stream ([`stream`](crate::backend::cuda::runtime::stream)) and which is not released before this returns.
    pub(crate) unsafe fn launch(
        &self,
        op: &'static str,
        function: Function,
        Grid { blocks, threads, shared }: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        allow_shared(op, function, shared)?;
        let three = |[x, y]: [usize; 2]| (x as u32, y as u32, 1);
        // SAFETY: the caller's promise.
        unsafe {
            result::launch_kernel(function.0, three(blocks), three(threads), shared as u32, self.stream(), arguments)
                .map_err(|e| failed(op, "starting a kernel", e))
        }
    }

    /// Launches a kernel that may start before the one before it on the stream has ended, where the GPU can do that: see `prelude.cu`.
    /// `cluster` blocks along y form a cluster, if that is not 1.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    ///
    /// # Safety
    /// As for [`launch`](Self::launch). The kernel waits for the end of the one before, before it reads or writes memory that others
    /// write.
    pub(crate) unsafe fn launch_overlapping(
        &self,
        op: &'static str,
        function: Function,
        grid: Grid,
        cluster: usize,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        use sys::CUlaunchAttributeID::{
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        };
        if self.arch < 90 {
            // SAFETY: the caller's promise.
            return unsafe { self.launch(op, function, grid, arguments) };
        }
        allow_shared(op, function, grid.shared)?;
        let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let overlaps = sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
        let mut size = sys::CUlaunchAttributeValue { pad: [0; 64] };
        size.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: 1, y: cluster as u32, z: 1 };
        let mut attributes = [
            attribute(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, overlaps),
            attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, size),
        ];
        let config = sys::CUlaunchConfig {
            gridDimX: grid.blocks[0] as u32,
            gridDimY: grid.blocks[1] as u32,
            gridDimZ: 1,
            blockDimX: grid.threads[0] as u32,
            blockDimY: grid.threads[1] as u32,
            blockDimZ: 1,
            sharedMemBytes: grid.shared as u32,
            hStream: self.stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: if cluster > 1 { 2 } else { 1 },
        };
        // SAFETY: the caller's promise; configuration and attributes outlive the call.
        unsafe {
            sys::cuLaunchKernelEx(&raw const config, function.0, arguments.as_mut_ptr(), std::ptr::null_mut())
                .result()
                .map_err(|e| failed(op, "starting a kernel", e))
        }
    }
}

/// Lets a kernel have this much shared memory.
fn allow_shared(op: &'static str, function: Function, bytes: usize) -> Result<()> {
    use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST;
    if bytes <= PLAIN_SHARED {
        return Ok(());
    }
    // SAFETY: the function belongs to a loaded module.
    unsafe { result::function::set_function_attribute(function.0, MOST, bytes as i32) }
        .map_err(|e| failed(op, "asking for shared memory", e))
}
