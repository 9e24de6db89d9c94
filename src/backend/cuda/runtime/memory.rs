//! A GPU's memory: the source of its pool's segments, and copies to and from the CPU.

use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, failed, gpu};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::memory::pool::{Block, System};
use crate::storage::Storage;
use crate::{Device, Element, Result, Scalar};
use cudarc::driver::{result, sys};
use std::sync::{Mutex, PoisonError};

/// The source of segments for a GPU's pool.
pub(crate) struct CudaSystem {
    pub ordinal: usize,
}

impl System for CudaSystem {
    /// Aligned to memory sectors, and to the widest reads of matrix products.
    const ALIGNMENT: usize = 256;

    fn map(&mut self, bytes: usize) -> Option<usize> {
        gpu("cuda", self.ordinal).ok()?;
        // SAFETY: the context is this thread's.
        unsafe { result::malloc_sync(bytes) }.ok().map(|address| address as usize)
    }

    fn unmap(&mut self, address: usize, _bytes: usize) {
        if gpu("cuda", self.ordinal).is_ok() {
            // Waits for running work. An error means that the context has failed, and the memory with it.
            // SAFETY: `map` returned this address, and it is not used any more.
            let _ = unsafe { result::free_sync(address as u64) };
        }
    }

    fn free_bytes(&self) -> Option<usize> {
        gpu("cuda", self.ordinal).ok()?;
        result::mem_get_info().ok().map(|(free, _)| free)
    }
}

impl Gpu {
    /// Copies bytes from the CPU to the GPU. The source may be changed as soon as this returns, unless it is pinned.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// `to` is an address on this GPU with room for the bytes.
    pub unsafe fn upload(&self, op: &'static str, from: &[u8], to: *mut u8) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        capture::refuse(op, self.ordinal, "it copies data to the GPU; make that an input of the step")?;
        // SAFETY: the caller's promise. For memory that is not pinned the driver returns after it has read the source; pinned
        // memory is held by the caller.
        unsafe { result::memcpy_htod_async(to.addr() as u64, from, self.stream()) }
            .map_err(|e| failed(op, "copying to the GPU", e))
    }

    /// Keeps a handle to memory that submitted work reads until that work is done, so that it is not released meanwhile. A writer
    /// sees it as shared, and copies it.
    ///
    /// # Errors
    /// If the driver refuses. Without an event this waits for all work instead.
    fn hold(&self, op: &'static str, storage: &Storage) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(event, _)| !event.has_passed());
        match Event::after(self) {
            Ok(event) => held.push((event, storage.clone())),
            Err(_) => self.synchronize(op)?,
        }
        Ok(())
    }

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// If the driver refuses.
    ///
    /// # Safety
    /// `to` is an address on this GPU with room for the bytes.
    pub unsafe fn clear(&self, op: &'static str, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(to.addr() as u64, 0, bytes, self.stream()) }
            .map_err(|e| failed(op, "clearing memory", e))
    }

    /// Copies bytes from the GPU to the CPU, after all submitted work.
    ///
    /// # Errors
    /// If that work has failed, or the driver refuses.
    ///
    /// # Safety
    /// `from` is an address on this GPU with as many bytes.
    pub unsafe fn download(&self, op: &'static str, from: *const u8, to: &mut [u8]) -> Result<()> {
        if !to.is_empty() {
            // SAFETY: the caller's promise; below this waits until the copy is done.
            unsafe { result::memcpy_dtoh_async(to, from.addr() as u64, self.stream()) }
                .map_err(|e| failed(op, "copying from the GPU", e))?;
        }
        self.synchronize(op)
    }
}

/// A point in the order of a GPU's work.
pub(crate) struct Event(sys::CUevent);

// SAFETY: a handle of the driver, valid on every thread.
unsafe impl Send for Event {}

impl Event {
    /// The point after all submitted work.
    fn after(gpu: &Gpu) -> std::result::Result<Event, result::DriverError> {
        let event = Event(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        // SAFETY: event and stream are valid.
        unsafe { result::event::record(event.0, gpu.stream()) }?;
        Ok(event)
    }

    /// Whether the work before it is done, or has failed.
    fn has_passed(&self) -> bool {
        // SAFETY: the event is valid.
        let state = unsafe { result::event::query(self.0) };
        state.map_or_else(|e| e.0 != sys::CUresult::CUDA_ERROR_NOT_READY, |()| true)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `after`, and destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A cache of free pinned memory, since allocating it stops the GPU.
static PINNED: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// A block of pinned memory.
///
/// # Errors
/// If there is no GPU, or pinned memory runs out.
pub(crate) fn take_pinned(op: &'static str, bytes: usize) -> Result<Block> {
    gpu(op, 0)?;
    // Rounded to few sizes, for better reuse.
    let bytes = bytes.max(4096).next_power_of_two();
    let mut free = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = free.iter().position(|block| block.bytes == bytes) {
        return Ok(free.swap_remove(at));
    }
    drop(free);
    // SAFETY: the context is this thread's.
    let start = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
    let start = start.map_err(|e| failed(op, "asking for pinned memory", e))?;
    Ok(Block { address: start.expose_provenance(), bytes })
}

/// Releases a block of pinned memory.
pub(crate) fn give_pinned(block: Block) {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner).push(block);
}

/// The element at a position of a view's layout, after all submitted work.
///
/// # Errors
/// If that work has failed.
pub(crate) fn read(op: &'static str, ordinal: usize, from: View<'_>, position: usize) -> Result<Scalar> {
    with_dtype!(from.dtype, T => {
        let mut bytes = [0_u8; 8];
        let bytes = &mut bytes[..size_of::<T>()];
        // SAFETY: the caller computed the position from the layout and an index inside its shape (L2). The bytes are those
        // of an element that a kernel has written.
        unsafe {
            gpu(op, ordinal)?.download(op, from.ptr().wrapping_add(position * size_of::<T>()), bytes)?;
            Ok(bytes.as_ptr().cast::<T>().read_unaligned().to_scalar())
        }
    })
}

/// Copies contiguous elements of one dtype between the CPU and a GPU.
///
/// # Errors
/// If both devices are GPUs, earlier work has failed, or the driver refuses.
pub(crate) fn transfer(op: &'static str, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    let bytes = to.layout.numel() * to.dtype.size();
    // SAFETY: both are contiguous and have as many elements (L2), of one dtype, on the devices that they say. The
    // CPU's memory is initialised where it is read, and nobody else uses it where it is written.
    unsafe {
        match (from.device(), to.device()) {
            (Device::Cpu, Device::Cuda(n)) => {
                let gpu = gpu(op, n)?;
                gpu.upload(op, std::slice::from_raw_parts(from.first(), bytes), to.first())?;
                if from.storage.is_pinned() { gpu.hold(op, from.storage) } else { Ok(()) }
            }
            (Device::Cuda(n), Device::Cpu) => {
                gpu(op, n)?.download(op, from.first(), std::slice::from_raw_parts_mut(to.first(), bytes))
            }
            (a, b) => bail!(Device, op, "cannot copy from {a} to {b}"),
        }
    }
}
