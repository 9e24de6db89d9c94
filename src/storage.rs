//! The memory of tensors: reference-counted buffers, and the only way to access them.
//!
//! Invariants:
//!
//! 1. The block of a buffer is valid for reads and writes of `capacity` bytes until the buffer is dropped, and is not used by
//!    anything else. The memory of a foreign buffer is valid for reads as long as its owner lives.
//! 2. `bytes <= capacity`, for every handle.
//! 3. Bytes are written only through a handle that is the sole owner of its buffer ([`Storage::get_mut`]), and never
//!    in a foreign buffer.
//! 4. No `Weak` to a buffer is ever made.
//! 5. The memory of a deferred buffer is that of the storage it gets when it is computed, which has no other handle and never
//!    changes. Until then it has no memory: [`Storage::materialize`] must be called before reads and writes.

#[cfg(feature = "cuda")]
use crate::backend::cuda::runtime::{capture, gpu::gpu, memory as cuda_memory, stream, stream::Uses};
use crate::backend::deferred::{self, Deferred, Step};
use crate::memory::pool::{Block, System};
use crate::memory::{CPU, CpuSystem, magazine};
use crate::{Device, Result};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// A block of a device's pool, which is released when the buffer is dropped; or foreign memory.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
    device: Device,
    origin: Origin,
}

enum Origin {
    /// A block of the size of a class, which a magazine may cache.
    Class(u8),
    /// Any other block.
    Pool,
    /// Foreign memory, kept alive by its owner.
    Foreign { _owner: Arc<dyn Any + Send + Sync> },
    /// Pinned memory of the CPU, from which a GPU can copy asynchronously.
    #[cfg(feature = "cuda")]
    Pinned,
    /// A block of a GPU's pool, with the streams that use it.
    #[cfg(feature = "cuda")]
    Stream(Uses),
    /// Memory of a recorded step.
    #[cfg(feature = "cuda")]
    Recorded(Arc<capture::Memory>),
    /// A deferred step that computes the contents; then the memory that holds them.
    Deferred(Box<Deferred>),
}

// SAFETY: a buffer owns its memory (invariant 1) and no thread has a special claim to it. Sharing it between threads
// only shares reads, as a write needs the sole handle (invariant 3). The owner of foreign memory is `Send + Sync`, and so
// is what a deferred buffer holds (`deferred::tests`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn from_block(block: Block, device: Device, origin: Origin) -> Self {
        let start = NonNull::new(ptr::with_exposed_provenance_mut(block.address)).unwrap_or(NonNull::dangling());
        Buffer { start, capacity: block.bytes, device, origin }
    }

    fn block(&self) -> Block {
        Block { address: self.start.as_ptr().addr(), bytes: self.capacity }
    }

    /// The block of a buffer that is not counted as in use any more. The caller must release it.
    pub(crate) fn into_block(self) -> Block {
        ManuallyDrop::new(self).block()
    }

    /// The size of the block in bytes, which is at least the requested size.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match (&self.origin, self.device) {
            (Origin::Foreign { .. } | Origin::Deferred(_), _) => {}
            (Origin::Class(_) | Origin::Pool, Device::Cpu) => {
                CPU.counter.sub(None, self.capacity);
                CPU.pool().release(self.block());
            }
            #[cfg(feature = "cuda")]
            (Origin::Pinned, _) => cuda_memory::give_pinned(self.block()),
            #[cfg(feature = "cuda")]
            (Origin::Stream(uses), Device::Cuda(ordinal)) => {
                if let Ok(gpu) = gpu("drop", ordinal) {
                    uses.end(gpu);
                    gpu.arena.counter.sub(None, self.capacity);
                    gpu.give_back(self.block());
                }
            }
            #[cfg(feature = "cuda")]
            (Origin::Recorded(memory), _) => memory.arena.pool().release(self.block()),
            // Such a buffer does not exist.
            (_, Device::Cuda(_)) => {}
            #[cfg(feature = "cuda")]
            (Origin::Stream(_), Device::Cpu) => {}
        }
    }
}

/// A shared handle to a buffer. Clones share the memory; it can be written while there is only one handle.
///
/// It is an `Arc`. When the last handle of a small buffer is dropped, the buffer goes to a magazine instead of being freed.
pub(crate) struct Storage {
    buffer: ManuallyDrop<Arc<Buffer>>,
    bytes: usize,
}

impl Storage {
    /// `bytes` bytes on a device, 64-byte aligned, with undefined contents: write them before reading them.
    ///
    /// # Errors
    /// If memory runs out or the device's limit is reached. The error names `op`.
    pub(crate) fn new(op: &'static str, device: Device, bytes: usize) -> Result<Storage> {
        let mut storage = match device {
            Device::Cpu => Self::cpu(op, bytes)?,
            Device::Cuda(ordinal) => return Self::cuda(op, ordinal, bytes),
        };
        // New memory is zero, which would hide a kernel that does not write all of its output. All bits set is NaN.
        if cfg!(all(debug_assertions, not(miri)))
            && let Some(start) = storage.get_mut()
        {
            // SAFETY: invariants 1 and 2: the buffer is valid for writes of `bytes` bytes.
            unsafe { start.write_bytes(0xFF, bytes) }
        }
        Ok(storage)
    }

    /// As [`new`](Self::new), with all bytes zero.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn zeroed(op: &'static str, device: Device, bytes: usize) -> Result<Storage> {
        let storage = match device {
            Device::Cpu => Self::cpu(op, bytes)?,
            Device::Cuda(ordinal) => {
                let storage = Self::cuda(op, ordinal, bytes)?;
                #[cfg(feature = "cuda")]
                // SAFETY: invariants 1 and 2, as below, on the GPU.
                unsafe {
                    gpu(op, ordinal)?.clear(op, storage.buffer.start.as_ptr(), bytes)?;
                }
                return Ok(storage);
            }
        };
        // SAFETY: invariants 1 and 2: the buffer is valid for writes of `bytes` bytes, and nobody else has a handle.
        unsafe { storage.buffer.start.as_ptr().write_bytes(0, bytes) }
        Ok(storage)
    }

    /// Foreign memory, such as a mapped file: it is never written; a writer copies it first.
    ///
    /// # Safety
    /// As long as `owner` lives, `start` must be valid on the device for reads of `bytes` bytes, and those that are read
    /// must be initialised and not be changed meanwhile.
    /// The caller must check the alignment for the elements.
    pub(crate) unsafe fn foreign(
        owner: Arc<dyn Any + Send + Sync>,
        start: *const u8,
        bytes: usize,
        device: Device,
    ) -> Storage {
        let buffer = Buffer {
            start: NonNull::new(start.cast_mut()).unwrap_or(NonNull::dangling()),
            capacity: bytes,
            device,
            origin: Origin::Foreign { _owner: owner },
        };
        Self::from_buffer(Arc::new(buffer), bytes)
    }

    /// `bytes` bytes whose contents are computed when they are first needed.
    pub(crate) fn deferred(step: Step, bytes: usize) -> Storage {
        let (start, device) = (NonNull::dangling(), step.device);
        let origin = Origin::Deferred(Box::new(Deferred::new(step)));
        Self::from_buffer(Arc::new(Buffer { start, capacity: bytes, device, origin }), bytes)
    }

    #[inline]
    fn cpu(op: &'static str, bytes: usize) -> Result<Storage> {
        if !CpuSystem::CACHED {
            return Self::cpu_from_pool(op, bytes, bytes, Origin::Pool);
        }
        if bytes.wrapping_sub(1) < magazine::LARGEST {
            let class = magazine::class_of(bytes);
            if let Some(buffer) = magazine::take(class) {
                return Ok(Self::from_buffer(buffer, bytes));
            }
            return Self::cpu_from_pool(op, bytes, magazine::class_bytes(class), Origin::Class(class as u8));
        }
        Self::cpu_from_pool(op, bytes, bytes, Origin::Pool)
    }

    /// Pinned memory of the CPU, from which a GPU can copy asynchronously.
    ///
    /// # Errors
    /// If there is no GPU, or pinned memory runs out.
    #[cfg(feature = "cuda")]
    pub(crate) fn pinned(op: &'static str, bytes: usize) -> Result<Storage> {
        let block = cuda_memory::take_pinned(op, bytes)?;
        Ok(Self::from_buffer(Arc::new(Buffer::from_block(block, Device::Cpu, Origin::Pinned)), bytes))
    }

    /// Whether the memory is pinned.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.buffer.origin, Origin::Pinned)
    }

    #[cfg(feature = "cuda")]
    fn cuda(op: &'static str, ordinal: usize, bytes: usize) -> Result<Storage> {
        let gpu = gpu(op, ordinal)?;
        if let Some(memory) = capture::memory(ordinal) {
            let block = memory.arena.allocate(op, 0, [bytes; 2], || ())?;
            let buffer = Buffer::from_block(block, Device::Cuda(ordinal), Origin::Recorded(memory));
            return Ok(Self::from_buffer(Arc::new(buffer), bytes));
        }
        let lane = stream::current(ordinal);
        let block = gpu.arena.allocate(op, lane, [bytes; 2], || ())?;
        gpu.handed_out(&block);
        gpu.arena.counter.add(None, block.bytes);
        Ok(Self::from_buffer(
            Arc::new(Buffer::from_block(block, Device::Cuda(ordinal), Origin::Stream(Uses::by(lane)))),
            bytes,
        ))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(op: &'static str, ordinal: usize, _bytes: usize) -> Result<Storage> {
        Err(crate::backend::no_cuda(op, ordinal))
    }

    #[cold]
    fn cpu_from_pool(op: &'static str, bytes: usize, rounded: usize, origin: Origin) -> Result<Storage> {
        let block = CPU.allocate(op, 0, [bytes, rounded], magazine::empty_all)?;
        magazine::count(block.bytes);
        Ok(Self::from_buffer(Arc::new(Buffer::from_block(block, Device::Cpu, origin)), bytes))
    }

    #[inline]
    fn from_buffer(buffer: Arc<Buffer>, bytes: usize) -> Storage {
        debug_assert!(bytes <= buffer.capacity, "invariant 2");
        Storage { buffer: ManuallyDrop::new(buffer), bytes }
    }

    /// The requested number of bytes. No read or write may go beyond it.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device of the memory.
    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.buffer.device
    }

    /// Computes the contents if they are deferred. Afterwards this is only a check.
    ///
    /// # Errors
    /// If memory runs out; the contents can still be computed later.
    #[inline]
    pub(crate) fn materialize(&self) -> Result<()> {
        if self.pending().is_some() { deferred::materialize(&[self]) } else { Ok(()) }
    }

    /// The deferred contents, if they are not computed yet.
    #[inline]
    pub(crate) fn pending(&self) -> Option<&Deferred> {
        match &self.buffer.origin {
            Origin::Deferred(deferred) if deferred.memory().is_none() => Some(deferred),
            _ => None,
        }
    }

    /// The first byte, valid for reads of [`bytes`](Self::bytes) bytes as long as a handle lives, once the contents are
    /// [materialized](Self::materialize). Must not be written through: use [`get_mut`](Self::get_mut).
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        #[cfg(feature = "cuda")]
        self.for_stream(Uses::read);
        self.start().as_ptr()
    }

    /// Orders the next access of this thread's stream to memory of a GPU with the work of other streams.
    #[cfg(feature = "cuda")]
    #[inline]
    fn for_stream(&self, order: fn(&Uses, usize)) {
        if let Device::Cuda(ordinal) = self.buffer.device {
            let own = match &self.buffer.origin {
                Origin::Deferred(deferred) => deferred.memory().map(|memory| &**memory.buffer),
                _ => Some(&**self.buffer),
            };
            match own.map(|own| (&own.origin, own.start)) {
                Some((Origin::Stream(uses), start)) => {
                    order(uses, ordinal);
                    capture::note_read(ordinal, start.as_ptr().addr());
                }
                Some((Origin::Foreign { _owner: owner }, _)) => capture::note_foreign(ordinal, owner),
                _ => {}
            }
        }
    }

    #[inline]
    fn start(&self) -> NonNull<u8> {
        match &self.buffer.origin {
            Origin::Deferred(deferred) => deferred.memory().map_or(self.buffer.start, |memory| memory.buffer.start),
            _ => self.buffer.start,
        }
    }

    /// The address of the first byte, once the contents are materialized. Not for access.
    #[cfg(feature = "cuda")]
    pub(crate) fn address(&self) -> usize {
        self.start().as_ptr().addr()
    }

    /// An identifier of this buffer, unique among all living buffers.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.buffer).addr()
    }

    /// The number of handles. Other threads may change it at any time, unless the caller has all handles.
    pub(crate) fn handles(&self) -> usize {
        let count = Arc::strong_count(&self.buffer);
        // As in `is_sole`.
        fence(Ordering::Acquire);
        count
    }

    /// The first byte, valid for reads and writes of [`bytes`](Self::bytes) bytes as long as this handle is borrowed;
    /// `None` if another handle shares the buffer or the memory is foreign: then the writer makes a copy.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<*mut u8> {
        if !self.is_unique() {
            return None;
        }
        #[cfg(feature = "cuda")]
        self.for_stream(Uses::write);
        Some(self.start().as_ptr())
    }

    /// Whether [`get_mut`](Self::get_mut) returns a pointer. The answer stays valid only with `&mut self`.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        !matches!(self.buffer.origin, Origin::Foreign { .. }) && self.pending().is_none() && is_sole(&self.buffer)
    }

    /// Whether the memory is foreign. In spite of the safety contract it may change at any time: two reads may give different
    /// values.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.buffer.origin, Origin::Foreign { .. })
    }

    /// Whether two handles share one buffer.
    pub(crate) fn ptr_eq(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }
}

/// Whether this is the only handle. Cheaper than `Arc::get_mut`, which locks the count of `Weak`s: there are none (invariant 4).
/// Only the owner of the sole handle can raise a count of 1. The fence pairs with the release in the `Arc`'s drop, so that
/// accesses through other handles have happened before.
#[inline]
fn is_sole(buffer: &Arc<Buffer>) -> bool {
    let sole = Arc::strong_count(buffer) == 1;
    fence(Ordering::Acquire);
    sole
}

impl Clone for Storage {
    #[inline]
    fn clone(&self) -> Self {
        Storage { buffer: self.buffer.clone(), bytes: self.bytes }
    }
}

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is not used again: this is its destructor.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        // If two handles are dropped concurrently, neither may see itself as the last. Then the `Arc` drops the buffer as usual.
        match buffer.origin {
            Origin::Class(class) if is_sole(&buffer) => magazine::give(class.into(), buffer),
            _ => drop(buffer),
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {} at {:p})", self.bytes, self.buffer.device, self.as_ptr())
    }
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
