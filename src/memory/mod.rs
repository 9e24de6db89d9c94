//! Memory: a caching allocator for each device, its statistics and its limit.
//!
//! Freed storage is cached and serves the next request of about its size, so a repeated training step allocates nothing from
//! the system. There are three layers:
//!
//! - a *magazine* per thread caches small buffers, by size class, without a lock;
//! - a *pool* per device caches all other blocks: best fit, with splitting and joining of blocks;
//! - the *system* provides segments of at least 2 MiB, with huge pages if available.
//!
//! When the system refuses, or the limit set with [`set_limit`] would be exceeded, the cache is emptied and the request is
//! retried. If it fails again, it is an error of [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
//!
//! ```
//! use cotangent::{Device, memory};
//!
//! memory::reset_peak(Device::Cpu)?;
//! // ... a training step ...
//! let stats = memory::stats(Device::Cpu)?;
//! println!("{stats}");
//! assert!(stats.peak() >= stats.current());
//! assert_eq!(stats.held(), stats.current() + stats.cached());
//! # Ok::<(), cotangent::Error>(())
//! ```

mod count;
pub(crate) mod magazine;
pub(crate) mod pool;
pub(crate) mod scratch;
mod shared;
mod system;

pub(crate) use shared::{Shared, Vacant};
pub(crate) use system::CpuSystem;

use crate::error::OutOfMemory;
use crate::{Device, Error, Result};
use cotangent_macros::named;
use count::Counter;
use pool::{Block, Pool, System};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The CPU's memory.
pub(crate) static CPU: Arena<CpuSystem> = Arena::new(CpuSystem);

/// A snapshot of the memory of a device, in bytes. See [`stats`].
///
/// ```
/// use cotangent::{Device, Tensor, memory};
/// let x = Tensor::zeros([1000])?;
/// let stats = memory::stats(Device::Cpu)?;
/// assert!(stats.current() >= 4000);
/// println!("{stats}");
/// # drop(x);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    current: usize,
    peak: usize,
    held: usize,
    system_allocations: u64,
    limit: Option<usize>,
}

impl Stats {
    /// Bytes in use by tensors, gradients and workspaces. Whole blocks are counted: requests rounded up to the allocator's sizes, by
    /// at most 1/8 or to the next 64 bytes. Files mapped into memory are not counted.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, memory};
    /// let x = Tensor::zeros([1000])?;
    /// assert!(memory::stats(Device::Cpu)?.current() >= 4000);
    /// # drop(x);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "memory_allocated")]
    pub fn current(&self) -> usize {
        self.current
    }

    /// The maximum of [`current`](Self::current) since the program began or since the last [`reset_peak`]. It is exact if one thread
    /// allocates; with several threads it may be too high by up to 64 KiB for each of the others.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, memory};
    /// drop(Tensor::zeros([1000])?);
    /// assert!(memory::stats(Device::Cpu)?.peak() >= 4000);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "max_memory_allocated")]
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// Bytes held from the system that are not in use: they are ready for the next requests.
    ///
    /// ```
    /// use cotangent::{Device, memory};
    /// let stats = memory::stats(Device::Cpu)?;
    /// assert_eq!(stats.cached(), stats.held() - stats.current());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn cached(&self) -> usize {
        self.held.saturating_sub(self.current)
    }

    /// Bytes held from the system: in use or cached.
    ///
    /// ```
    /// use cotangent::{Device, memory};
    /// let stats = memory::stats(Device::Cpu)?;
    /// assert!(stats.held() >= stats.current());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "memory_reserved")]
    pub fn held(&self) -> usize {
        self.held
    }

    /// The number of allocations from the system since the program began. In a repeated training step it stays constant after
    /// warm-up.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, memory};
    /// drop(Tensor::zeros([1 << 20])?);
    /// let before = memory::stats(Device::Cpu)?.system_allocations();
    /// drop(Tensor::zeros([1 << 20])?);
    /// println!("{} more", memory::stats(Device::Cpu)?.system_allocations() - before);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn system_allocations(&self) -> u64 {
        self.system_allocations
    }

    /// The limit on [`held`](Self::held), if one is set.
    ///
    /// ```
    /// use cotangent::{Device, memory};
    /// println!("{:?}", memory::stats(Device::Cpu)?.limit());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.2} MiB in use, {:.2} MiB at the peak, {:.2} MiB cached, {} system allocations",
            mib(self.current),
            mib(self.peak),
            mib(self.cached()),
            self.system_allocations
        )?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit {:.2} MiB", mib(limit)))
    }
}

/// The memory statistics of a device: bytes in use, their peak, bytes cached, and bytes held from the system.
///
/// # Errors
/// If the device does not exist.
///
/// ```
/// use cotangent::{Device, memory};
///
/// let stats = memory::stats(Device::Cpu)?;
/// assert!(stats.current() <= stats.held());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "memory_stats")]
#[doc(alias = "memory_summary")]
#[doc(alias = "mem_get_info")]
#[named]
pub fn stats(device: Device) -> Result<Stats> {
    match device {
        Device::Cpu => Ok(CPU.stats()),
        Device::Cuda(n) => on_gpu("stats", n, Arena::stats),
    }
}

/// Sets the peak to the bytes in use now, to measure what follows.
///
/// # Errors
/// If the device does not exist.
///
/// ```
/// use cotangent::{Device, memory};
///
/// memory::reset_peak(Device::Cpu)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "reset_peak_memory_stats")]
#[named]
pub fn reset_peak(device: Device) -> Result<()> {
    match device {
        Device::Cpu => {
            magazine::materialize();
            CPU.counter.reset_peak();
        }
        Device::Cuda(n) => on_gpu("reset_peak", n, |arena| arena.counter.reset_peak())?,
    }
    Ok(())
}

/// Returns cached memory to the system: every segment with nothing in use. The small caches of other threads are emptied at their
/// next allocation.
///
/// # Errors
/// If the device does not exist.
///
/// ```
/// use cotangent::{Device, memory};
///
/// memory::empty_cache(Device::Cpu)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[named]
pub fn empty_cache(device: Device) -> Result<()> {
    match device {
        Device::Cpu => {
            magazine::empty_all();
            CPU.pool().empty_cache();
        }
        Device::Cuda(n) => on_gpu("empty_cache", n, |arena| arena.pool().empty_cache())?,
    }
    Ok(())
}

/// Limits the bytes held from the system for a device; `None` removes the limit. Requests that would exceed it fail with
/// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), after the cache was emptied. Memory in use is kept, even beyond the
/// limit. Memory is taken from the system in steps of 2 MiB, so a limit counts in such steps.
///
/// # Errors
/// If the device does not exist.
///
/// ```
/// use cotangent::{Device, memory};
///
/// memory::set_limit(Device::Cpu, Some(4 << 30))?;
/// assert_eq!(memory::stats(Device::Cpu)?.limit(), Some(4 << 30));
/// memory::set_limit(Device::Cpu, None)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
#[named]
pub fn set_limit(device: Device, limit: Option<usize>) -> Result<()> {
    match device {
        Device::Cpu => {
            magazine::empty_all();
            CPU.pool().set_limit(limit);
        }
        Device::Cuda(n) => on_gpu("set_limit", n, |arena| arena.pool().set_limit(limit))?,
    }
    Ok(())
}

/// Free bytes of the CPU's memory, if known.
pub(crate) fn free_bytes() -> Option<usize> {
    CPU.pool().free_bytes()
}

/// Begins to measure the peak on a device. Returns the bytes in use, and the peak so far.
pub(crate) fn begin_peak(device: Device) -> (usize, usize) {
    let watch = |counter: &Counter| {
        let before = counter.peak();
        counter.reset_peak();
        (counter.current(), before)
    };
    match device {
        Device::Cpu => {
            magazine::materialize();
            watch(&CPU.counter)
        }
        Device::Cuda(n) => on_gpu("memory", n, |arena| watch(&arena.counter)).unwrap_or_default(),
    }
}

/// Ends a measurement of [`begin_peak`], which returned `before` as the peak. Returns the bytes in use, and the peak since. The
/// device's own peak is restored.
pub(crate) fn end_peak(device: Device, before: usize) -> (usize, usize) {
    let end = |counter: &Counter| {
        let (current, peak) = (counter.current(), counter.peak());
        counter.raise_peak(before);
        (current, peak.max(current))
    };
    match device {
        Device::Cpu => end(&CPU.counter),
        Device::Cuda(n) => on_gpu("memory", n, |arena| end(&arena.counter)).unwrap_or_default(),
    }
}

pub(crate) fn cpu_stats() -> Stats {
    CPU.stats()
}

#[cfg(feature = "cuda")]
fn on_gpu<R>(
    op: &'static str,
    ordinal: usize,
    f: impl FnOnce(&Arena<crate::backend::cuda::runtime::memory::CudaSystem>) -> R,
) -> Result<R> {
    Ok(f(&crate::backend::cuda::runtime::gpu::gpu(op, ordinal)?.arena))
}

#[cfg(not(feature = "cuda"))]
fn on_gpu<R>(op: &'static str, ordinal: usize, _: impl FnOnce(&Arena<CpuSystem>) -> R) -> Result<R> {
    Err(crate::backend::no_cuda(op, ordinal))
}

/// A pool that threads share, and the counter of the bytes in use.
///
/// The counter is separate from the pool, since a magazine hands out and takes back buffers without the pool: a buffer in a
/// magazine is in use for the pool, and cached in the statistics. A block is counted after it was handed out, and subtracted
/// before it is released, so the count never exceeds what the pool has handed out.
pub(crate) struct Arena<S> {
    pub(crate) counter: Counter,
    pool: Mutex<Pool<S>>,
}

impl<S: System> Arena<S> {
    pub(crate) const fn new(system: S) -> Self {
        Arena { counter: Counter::new(), pool: Mutex::new(Pool::new(system)) }
    }

    /// The pool, locked. Its code does not panic, so a pool behind a poisoned lock is valid.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool<S>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `size` bytes for a request of `requested`, not yet counted. If neither the cache nor the system has one,
    /// `relieve` releases what the caller caches, then the cache is emptied, and only then the request is refused.
    pub(crate) fn allocate(
        &self,
        op: &'static str,
        lane: u8,
        [requested, size]: [usize; 2],
        relieve: impl FnOnce(),
    ) -> Result<Block> {
        // A separate statement, so that the lock is released before `relieve`.
        let found = self.pool().allocate(lane, size);
        if let Some(block) = found {
            return Ok(block);
        }
        relieve();
        let mut pool = self.pool();
        pool.allocate_flushing(lane, size).ok_or_else(|| {
            let cached = pool.held().saturating_sub(self.counter.current());
            Error::out_of_memory(op, OutOfMemory { requested, held: pool.held(), cached, free: pool.free_bytes() })
        })
    }

    pub(crate) fn stats(&self) -> Stats {
        let pool = self.pool();
        // While other threads allocate, the peak may be read before they raise it.
        let current = self.counter.current();
        let peak = self.counter.peak().max(current);
        Stats { current, peak, held: pool.held(), system_allocations: pool.system_allocations(), limit: pool.limit() }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::pool::tests::Fake;
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_caller_is_asked_for_relief_before_a_request_fails() {
        let arena = Arena::new(Fake::new(32 * MIB));
        let kept = arena.allocate("test", 0, [20 * MIB; 2], || panic!("nothing is short yet")).ok();
        let block = arena.allocate("test", 0, [30 * MIB; 2], || kept.into_iter().for_each(|b| arena.pool().release(b)));
        assert_eq!(block.map(|b| b.bytes).ok(), Some(30 * MIB));
        assert_eq!(arena.stats().system_allocations(), 2);
    }

    #[test]
    fn the_error_says_what_was_asked_held_cached_and_free() {
        let arena = Arena::new(Fake::new(64 * MIB));
        let take = |bytes| {
            let block = arena.allocate("zeros", 0, [bytes; 2], || ()).ok();
            block.iter().for_each(|b| arena.counter.add(None, b.bytes));
        };
        take(20 * MIB);
        take(MIB);
        let error = arena.allocate("zeros", 0, [50 * MIB - 1, 50 * MIB], || ()).map(|_| ()).map_err(|e| e.to_string());
        let expected = format!(
            "zeros: out of memory: {} bytes requested, {} held from the system, {} of them cached, {} bytes free",
            50 * MIB - 1,
            22 * MIB,
            MIB,
            42 * MIB
        );
        assert_eq!(error, Err(expected));
    }

    #[test]
    fn stats_print_in_mib() {
        let stats = Stats { current: MIB, peak: 2 * MIB, held: 4 * MIB, system_allocations: 3, limit: Some(8 * MIB) };
        let text = "1.00 MiB in use, 2.00 MiB at the peak, 3.00 MiB cached, 3 system allocations, limit 8.00 MiB";
        assert_eq!(stats.to_string(), text);
    }
}
