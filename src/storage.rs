//! The bytes behind tensors: reference-counted buffers, and the one door to them.
//!
//! Invariants:
//!
//! 1. The block of a buffer is valid for reads and writes of `capacity` bytes until the buffer is dropped, and belongs
//!    to no one else. The memory of a foreign buffer is valid for reads as long as its owner lives.
//! 2. `bytes <= capacity`, for every handle.
//! 3. Bytes are written only through a handle that is the sole owner of its buffer ([`Storage::get_mut`]), and never
//!    in a foreign buffer.
//! 4. No `Weak` to a buffer is ever made.
//! 5. The memory of a late buffer is that of the storage it gets when it is computed, which has no other handle and
//!    never changes. Until then it has none: whoever reads or writes calls [`Storage::settle`] first.

use crate::backend::late::{self, Late, Step};
use crate::memory::pool::Block;
use crate::memory::{CPU, magazine};
use crate::{Device, Result};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// A block of a device's pool, which goes back there when the buffer is dropped; or memory that someone else owns.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
    device: Device,
    origin: Origin,
}

enum Origin {
    /// A block of the size of a class, which a magazine may keep.
    Class(u8),
    /// Any other block.
    Pool,
    /// Memory of someone else, kept alive by its owner.
    Foreign { _owner: Arc<dyn Any + Send + Sync> },
    /// No memory yet, but the way to compute its contents; then the memory that holds them.
    Late(Box<Late>),
}

// SAFETY: a buffer owns its memory (invariant 1) and no thread has a special claim to it. Sharing it between threads
// only shares reads, as a write needs the sole handle (invariant 3). The owner of foreign memory is `Send + Sync`, and so
// is what a late buffer holds (`late::tests`).
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

    /// The block of a buffer that is not counted as in use any more; the caller gives it back to the pool.
    pub(crate) fn into_block(self) -> Block {
        ManuallyDrop::new(self).block()
    }

    /// The bytes of the block, at least as many as were asked for.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match (&self.origin, self.device) {
            (Origin::Foreign { .. } | Origin::Late(_), _) => {}
            (Origin::Class(_) | Origin::Pool, Device::Cpu) => {
                CPU.counter.sub(None, self.capacity);
                CPU.pool().release(self.block());
            }
        }
    }
}

/// A shared handle to a buffer. Clones share the bytes; the bytes can be written while there is one handle only.
///
/// It is an `Arc` whose last handle goes to a magazine instead of being freed, if the buffer is small.
pub(crate) struct Storage {
    buffer: ManuallyDrop<Arc<Buffer>>,
    bytes: usize,
}

impl Storage {
    /// `bytes` bytes on a device, 64-byte aligned, with unknown contents: write them all before reading any.
    ///
    /// # Errors
    /// If the device has not enough memory, or its limit is reached; `op` is named in the error.
    #[inline]
    pub(crate) fn new(op: &'static str, device: Device, bytes: usize) -> Result<Storage> {
        let mut storage = match device {
            Device::Cpu => Self::cpu(op, bytes)?,
        };
        // Fresh memory is zero, which would hide a kernel that does not write all of its output. All ones is NaN.
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
        };
        // SAFETY: invariants 1 and 2: the buffer is valid for writes of `bytes` bytes, and nobody else has a handle.
        unsafe { storage.buffer.start.as_ptr().write_bytes(0, bytes) }
        Ok(storage)
    }

    /// Memory of someone else, such as a mapped file: it can be read but never written, so that a writer copies it.
    ///
    /// # Safety
    /// As long as `owner` lives, `start` must be valid for reads of `bytes` initialised bytes that nobody changes.
    /// It has whatever alignment it has: the caller checks that it suits the elements.
    pub(crate) unsafe fn foreign(owner: Arc<dyn Any + Send + Sync>, start: *const u8, bytes: usize) -> Storage {
        let buffer = Buffer {
            start: NonNull::new(start.cast_mut()).unwrap_or(NonNull::dangling()),
            capacity: bytes,
            device: Device::Cpu,
            origin: Origin::Foreign { _owner: owner },
        };
        Self::from_buffer(Arc::new(buffer), bytes)
    }

    /// `bytes` bytes whose contents are computed when they are first needed.
    pub(crate) fn late(step: Step, bytes: usize) -> Storage {
        let (start, device) = (NonNull::dangling(), step.device());
        let origin = Origin::Late(Box::new(Late::new(step)));
        Self::from_buffer(Arc::new(Buffer { start, capacity: bytes, device, origin }), bytes)
    }

    #[inline]
    fn cpu(op: &'static str, bytes: usize) -> Result<Storage> {
        if bytes.wrapping_sub(1) < magazine::LARGEST {
            let class = magazine::class_of(bytes);
            if let Some(buffer) = magazine::take(class) {
                return Ok(Self::from_buffer(buffer, bytes));
            }
            return Self::cpu_from_pool(op, bytes, magazine::class_bytes(class), Origin::Class(class as u8));
        }
        Self::cpu_from_pool(op, bytes, bytes, Origin::Pool)
    }

    #[cold]
    fn cpu_from_pool(op: &'static str, bytes: usize, rounded: usize, origin: Origin) -> Result<Storage> {
        let block = CPU.allocate(op, bytes, rounded, magazine::empty_all)?;
        magazine::count(block.bytes);
        Ok(Self::from_buffer(Arc::new(Buffer::from_block(block, Device::Cpu, origin)), bytes))
    }

    #[inline]
    fn from_buffer(buffer: Arc<Buffer>, bytes: usize) -> Storage {
        debug_assert!(bytes <= buffer.capacity, "invariant 2");
        Storage { buffer: ManuallyDrop::new(buffer), bytes }
    }

    /// The number of bytes asked for. No read or write may go beyond it.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the bytes are.
    #[inline]
    pub(crate) fn device(&self) -> Device {
        self.buffer.device
    }

    /// Computes the contents, if that was put off. From then on this costs a glance.
    ///
    /// # Errors
    /// If memory runs out; the contents can still be computed later.
    #[inline]
    pub(crate) fn settle(&self) -> Result<()> {
        if self.pending().is_some() { late::settle(&[self]) } else { Ok(()) }
    }

    /// What there is to compute before the bytes can be read.
    #[inline]
    pub(crate) fn pending(&self) -> Option<&Late> {
        match &self.buffer.origin {
            Origin::Late(late) if late.memory().is_none() => Some(late),
            _ => None,
        }
    }

    /// The first byte, valid for reads of [`bytes`](Self::bytes) bytes as long as a handle lives, once the contents are
    /// [settled](Self::settle). Not to be written through: that takes [`get_mut`](Self::get_mut).
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start().as_ptr()
    }

    #[inline]
    fn start(&self) -> NonNull<u8> {
        match &self.buffer.origin {
            Origin::Late(late) => late.memory().map_or(self.buffer.start, |memory| memory.buffer.start),
            _ => self.buffer.start,
        }
    }

    /// What tells this buffer from all others that exist.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.buffer).addr()
    }

    /// The number of handles. Others may come and go meanwhile, but not if the caller has them all.
    pub(crate) fn handles(&self) -> usize {
        let count = Arc::strong_count(&self.buffer);
        // As in `is_sole`.
        fence(Ordering::Acquire);
        count
    }

    /// The first byte, valid for reads and writes of [`bytes`](Self::bytes) bytes as long as this handle is borrowed;
    /// `None` when another handle shares the buffer, or when the memory is foreign: then the writer makes a copy.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<*mut u8> {
        self.is_unique().then(|| self.start().as_ptr())
    }

    /// Whether [`get_mut`](Self::get_mut) would answer. Only with `&mut` can one rely on it staying so.
    #[inline]
    pub(crate) fn is_unique(&self) -> bool {
        !matches!(self.buffer.origin, Origin::Foreign { .. }) && self.pending().is_none() && is_sole(&self.buffer)
    }

    /// Whether two handles share one buffer.
    pub(crate) fn ptr_eq(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }
}

/// Whether this is the only handle. Cheaper than `Arc::get_mut`, which locks the count of `Weak`s: there are none
/// (invariant 4). A count of 1 cannot rise behind the back of the sole handle's owner, and the fence pairs with the
/// release in the `Arc`'s drop, so that all that other handles did with the bytes has happened before.
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
        // Of two handles dropped at once neither may see itself as the last; then the `Arc` drops the buffer as usual.
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

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::{Error, memory};
    use std::sync::Barrier;
    use std::sync::mpsc;
    use std::thread;

    fn new(bytes: usize) -> Storage {
        Storage::new("test", Device::Cpu, bytes).expect("memory for a test")
    }

    fn stats() -> memory::Stats {
        memory::stats(Device::Cpu).expect("the CPU is always there")
    }

    /// Fills a storage with a byte, and checks that it still holds it.
    fn fill(storage: &mut Storage, byte: u8) {
        let bytes = storage.bytes();
        let start = storage.get_mut().expect("sole owner");
        // SAFETY: `get_mut`: valid for writes of `bytes` bytes.
        unsafe { start.write_bytes(byte, bytes) }
    }

    fn read(storage: &Storage) -> &[u8] {
        // SAFETY: valid for reads of `bytes` bytes, all of them written by the tests that call this.
        unsafe { std::slice::from_raw_parts(storage.as_ptr(), storage.bytes()) }
    }

    /// Runs a test of the process-wide statistics or limit alone, in a process of its own: other tests run beside it.
    fn alone(name: &str, test: impl FnOnce()) {
        const ALONE: &str = "COTANGENT_TEST_ALONE";
        if cfg!(miri) || std::env::var_os(ALONE).is_some_and(|value| value == name) {
            return test();
        }
        let path = format!("{}::{name}", module_path!().split_once("::").map_or("", |(_, path)| path));
        let output = std::process::Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", &path, "--test-threads=1"])
            .env(ALONE, name)
            .output()
            .expect("the test binary runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn storage_can_cross_threads() {
        fn assert_send_sync<T: Send + Sync>() {}
        assert_send_sync::<Storage>();
    }

    #[test]
    fn sizes_alignment_and_contents() {
        for bytes in [0, 1, 4, 63, 64, 65, 4096, 65_536, 65_537, (1 << 20) + 1, 5 << 20] {
            let mut storage = new(bytes);
            assert_eq!((storage.bytes(), storage.device()), (bytes, Device::Cpu));
            assert!(storage.buffer.capacity >= bytes);
            assert_eq!(storage.as_ptr().addr() % 64, 0);
            fill(&mut storage, 7);
            assert!(read(&storage).iter().all(|&byte| byte == 7));
            drop(storage);
            // Now the recycled memory holds sevens.
            let zeroed = Storage::zeroed("test", Device::Cpu, bytes).expect("memory for a test");
            assert!(read(&zeroed).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn only_the_sole_owner_may_write() {
        for bytes in [0, 4, 1 << 20] {
            let mut a = new(bytes);
            assert!(a.is_unique() && a.get_mut().is_some());
            let mut b = a.clone();
            assert!(a.ptr_eq(&b) && a.as_ptr() == b.as_ptr() && b.bytes() == bytes);
            assert!(!a.is_unique() && a.get_mut().is_none() && b.get_mut().is_none());
            drop(a);
            assert!(b.is_unique() && b.get_mut().is_some());
            assert!(!b.ptr_eq(&new(bytes)));
        }
    }

    #[test]
    fn foreign_memory_is_read_only_and_keeps_its_owner() {
        let owner = Arc::new(vec![1u8, 2, 3]);
        // SAFETY: the vector lives as long as its `Arc` and nobody changes it.
        let mut storage = unsafe { Storage::foreign(owner.clone(), owner.as_ptr(), owner.len()) };
        assert_eq!(read(&storage), [1, 2, 3]);
        assert!(!storage.is_unique() && storage.get_mut().is_none());
        let clone = storage.clone();
        drop(storage);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(read(&clone), [1, 2, 3]);
        drop(clone);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn absurd_requests_are_errors() {
        for bytes in [usize::MAX, usize::MAX / 2, usize::MAX / 4] {
            match Storage::new("zeros", Device::Cpu, bytes) {
                Err(Error::OutOfMemory { op: "zeros", requested, .. }) => assert_eq!(requested, bytes),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_small_buffer_is_used_again_at_once() {
        let first = new(4);
        let (buffer, start) = (Arc::as_ptr(&first.buffer), first.as_ptr());
        let kept = magazine::kept(0);
        drop(first);
        assert_eq!(magazine::kept(0), kept + 1, "it waits in the magazine, not in the pool");
        let second = new(60);
        assert_eq!(magazine::kept(0), kept);
        assert_eq!((Arc::as_ptr(&second.buffer), second.as_ptr(), second.bytes()), (buffer, start, 60));
        let other = new(100);
        assert_ne!(other.as_ptr(), start);
    }

    #[test]
    fn memory_is_flat_and_statistics_are_exact() {
        alone("memory_is_flat_and_statistics_are_exact", || {
            let step = || {
                let storages: Vec<_> = [0, 4, 100, 70_000, 3 << 20, 20 << 20].into_iter().map(new).collect();
                // The rounded sizes: to a class, to 64 bytes, and here to a whole segment's 20 MiB.
                64 + 128 + 70_016 + (3 << 20) + (20 << 20) - storages[0].bytes()
            };
            let before = stats();
            let expected = step();
            let warm = stats();
            assert_eq!(warm.current(), before.current());
            assert_eq!(warm.peak(), before.current() + expected);
            assert_eq!(warm.cached() + warm.current(), warm.held());
            for _ in 0..100 {
                step();
            }
            assert_eq!(stats(), warm);
            memory::reset_peak(Device::Cpu).expect("the CPU");
            assert_eq!(stats().peak(), stats().current());
            // A small buffer given up is not counted beside a later large one.
            drop(new(4));
            let large = new(1 << 20);
            assert_eq!((stats().peak(), stats().current()), (large.bytes(), large.bytes()));
        });
    }

    #[test]
    fn emptying_the_cache_gives_everything_back() {
        alone("emptying_the_cache_gives_everything_back", || {
            let held = stats().held();
            let live = new(4);
            drop((new(4), new(1000), new(1 << 20), new(40 << 20)));
            // Another thread's magazine follows at its next allocation, or its end.
            let (to_thread, inbox) = mpsc::channel::<()>();
            let (to_main, outbox) = mpsc::channel();
            let other = thread::spawn(move || {
                drop((new(4), new(100)));
                to_main.send(()).expect("main waits");
                inbox.recv().expect("main sends");
                drop(new(4));
                to_main.send(()).expect("main waits");
                inbox.recv().expect("main sends");
            });
            outbox.recv().expect("the thread sends");
            memory::empty_cache(Device::Cpu).expect("the CPU");
            assert_eq!(stats().current(), 64);
            assert_eq!(stats().held(), held + (2 << 20), "what is in use, or in the other thread's magazine");
            drop(live);
            memory::empty_cache(Device::Cpu).expect("the CPU");
            assert_eq!(stats().held(), held + (2 << 20), "the other thread keeps two blocks");
            assert_eq!(CPU.pool().used(), 64 + 128);
            to_thread.send(()).expect("the thread waits");
            outbox.recv().expect("the thread sends");
            assert_eq!(CPU.pool().used(), 64, "its old ones went back, its new one is kept");
            to_thread.send(()).expect("the thread waits");
            other.join().expect("the thread ends well");
            assert_eq!(CPU.pool().used(), 0);
            memory::empty_cache(Device::Cpu).expect("the CPU");
            assert_eq!((stats().held(), stats().current()), (held, 0));
        });
    }

    #[test]
    fn at_the_limit_the_caches_are_flushed_and_then_it_is_an_error() {
        alone("at_the_limit_the_caches_are_flushed_and_then_it_is_an_error", || {
            drop(new(4));
            memory::set_limit(Device::Cpu, Some(8 << 20)).expect("the CPU");
            drop(new(1000));
            // The small segment is held by this thread's magazine only: without emptying that one, 8 MiB cannot be had.
            let whole = new(8 << 20);
            match Storage::new("matmul", Device::Cpu, 4) {
                Err(Error::OutOfMemory { op: "matmul", requested: 4, held, cached: 0, free: Some(0) }) => {
                    assert_eq!(held, 8 << 20);
                }
                other => panic!("{other:?}"),
            }
            drop(whole);
            drop(new(4));
            memory::set_limit(Device::Cpu, None).expect("the CPU");
            drop(new(16 << 20));
        });
    }

    #[test]
    fn many_threads_allocate_free_and_pass_storages_on() {
        alone("many_threads_allocate_free_and_pass_storages_on", || {
            let before = stats().current();
            let threads: usize = if cfg!(miri) { 3 } else { 8 };
            let rounds: usize = if cfg!(miri) { 30 } else { 5000 };
            let sizes = if cfg!(miri) { [4, 8, 60, 100, 200] } else { [4, 100, 5000, 70_000, 200_000] };
            let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel::<Storage>()).unzip();
            let barrier = Barrier::new(threads);
            thread::scope(|scope| {
                let work = |(id, inbox): (usize, mpsc::Receiver<Storage>)| {
                    let (next, barrier) = (senders[(id + 1) % threads].clone(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        for round in 0..rounds {
                            let bytes = sizes[(round + id) % 5];
                            let mut storage = new(bytes);
                            fill(&mut storage, (bytes % 251) as u8);
                            // The clone here and the one sent away are dropped at about the same time.
                            let clone = storage.clone();
                            next.send(storage).expect("all inboxes are open");
                            for storage in inbox.try_iter() {
                                let byte = (storage.bytes() % 251) as u8;
                                assert!(read(&storage).iter().all(|&b| b == byte), "written by someone else");
                            }
                            drop(clone);
                        }
                        inbox
                    })
                };
                // Only an explicit join waits for the magazines, which go when a thread has ended. The inboxes stay open
                // until then; the handles still in them are the last of their buffers.
                let running: Vec<_> = receivers.into_iter().enumerate().map(work).collect();
                let ended = running.into_iter().map(|thread| thread.join().expect("the thread ends well"));
                drop(ended.collect::<Vec<_>>());
            });
            magazine::empty_all();
            assert_eq!((stats().current(), CPU.pool().used()), (before, 0));
        });
    }

    #[test]
    fn a_storage_that_outlives_its_threads_magazine_is_freed() {
        thread_local! {
            static LATE: std::cell::RefCell<Option<Storage>> = const { std::cell::RefCell::new(None) };
        }
        alone("a_storage_that_outlives_its_threads_magazine_is_freed", || {
            // Destructors of thread-locals run in some order: with one before and one after, both cases occur.
            for late_first in [true, false] {
                let body = move || {
                    if !late_first {
                        drop(new(4));
                    }
                    LATE.with(|late| late.replace(None));
                    LATE.with(|late| late.replace(Some(new(4))));
                    drop(new(4));
                };
                thread::spawn(body).join().expect("the thread ends well");
                assert_eq!((stats().current(), CPU.pool().used()), (0, 0));
            }
        });
    }
}
