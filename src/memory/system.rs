//! The source of the CPU's memory: anonymous mappings on Linux, the global allocator elsewhere.

use super::pool::{SEGMENT_STEP, System};

/// The CPU's memory.
pub(crate) struct CpuSystem;

/// From this size on a request is first compared with the free memory: Linux overcommits, and kills the process later. For smaller
/// requests the check would cost too much.
#[cfg(target_os = "linux")]
const ASK_FIRST: usize = 64 << 20;

impl System for CpuSystem {
    /// A cache line, and the widest vector register.
    const ALIGNMENT: usize = 64;
    const CACHED: bool = !cfg!(cotangent_uncached);

    fn map(&mut self, bytes: usize) -> Option<usize> {
        #[cfg(target_os = "linux")]
        if bytes >= ASK_FIRST
            && let Some(available) = meminfo("MemAvailable:")
            && bytes > available.saturating_add(meminfo("SwapFree:").unwrap_or(0))
        {
            return None;
        }
        imp::map(bytes)
    }

    fn unmap(&mut self, address: usize, bytes: usize) {
        // SAFETY: the contract of `System::unmap`: `map` answered with this address for this size, and the pool gives
        // it back once, after the last block of the segment came back, so nobody uses the range any more.
        unsafe { imp::unmap(address, bytes) }
    }

    fn free_bytes(&self) -> Option<usize> {
        #[cfg(target_os = "linux")]
        return meminfo("MemAvailable:");
        #[cfg(not(target_os = "linux"))]
        return None;
    }
}

/// A field of `/proc/meminfo`, in bytes; `None` if it cannot be read.
#[cfg(target_os = "linux")]
fn meminfo(field: &str) -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Segments begin at a multiple of the huge page size, so that they consist of whole huge pages.
#[cfg(all(target_os = "linux", not(miri), not(cotangent_uncached)))]
mod imp {
    use super::SEGMENT_STEP;
    use std::ptr;

    pub(super) fn map(bytes: usize) -> Option<usize> {
        let padded = bytes.checked_add(SEGMENT_STEP)?;
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        let first = start.expose_provenance();
        let (head, tail) = margins(first);
        let address = first + head;
        // SAFETY: head and tail lie inside the mapping just made (head + bytes + tail = padded), outside the range
        // handed out, and nobody else knows of them. They are multiples of the page size because both ends are. The
        // advice concerns the range handed out only and does not change what it holds; where the kernel has no huge
        // pages it fails, which costs nothing but speed.
        unsafe {
            if head > 0 {
                libc::munmap(start, head);
            }
            if tail > 0 {
                libc::munmap(ptr::with_exposed_provenance_mut(address + bytes), tail);
            }
            libc::madvise(ptr::with_exposed_provenance_mut(address), bytes, libc::MADV_HUGEPAGE);
        }
        Some(address)
    }

    /// The bytes to cut off before and after a range at `first` that is one step too long, so that the rest begins at a multiple
    /// of the step.
    pub(super) fn margins(first: usize) -> (usize, usize) {
        let head = first.next_multiple_of(SEGMENT_STEP) - first;
        (head, SEGMENT_STEP - head)
    }

    /// # Safety
    /// `map(bytes)` answered with `address`, and the range is neither used nor given back again.
    pub(super) unsafe fn unmap(address: usize, bytes: usize) {
        // SAFETY: the range is one mapping of ours, unused by this function's contract.
        let result = unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), bytes) };
        debug_assert_eq!(result, 0, "munmap refused a range that mmap gave");
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(cotangent_uncached))))]
mod imp {
    use super::{CpuSystem, SEGMENT_STEP, System};
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr;

    /// A page: allocators serve such sizes from whole pages.
    const ALIGN: usize = if CpuSystem::CACHED { 4096 } else { CpuSystem::ALIGNMENT };

    pub(super) fn map(bytes: usize) -> Option<usize> {
        debug_assert!(bytes.is_multiple_of(SEGMENT_STEP) || !CpuSystem::CACHED);
        let layout = Layout::from_size_align(bytes, ALIGN).ok().filter(|l| l.size() > 0)?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(layout) };
        (!start.is_null()).then(|| start.expose_provenance())
    }

    /// # Safety
    /// `map(bytes)` answered with `address`, and the range is neither used nor given back again.
    pub(super) unsafe fn unmap(address: usize, bytes: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes, ALIGN) {
            // SAFETY: `map` allocated the range with this very layout, and by this function's contract it is unused.
            unsafe { dealloc(ptr::with_exposed_provenance_mut(address), layout) }
        }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_segment_can_be_written_to_its_end_and_is_aligned() {
        for bytes in [SEGMENT_STEP, 16 * SEGMENT_STEP] {
            let address = CpuSystem.map(bytes).expect("a few MiB");
            let step = if cfg!(all(target_os = "linux", not(miri), not(cotangent_uncached))) {
                SEGMENT_STEP
            } else {
                CpuSystem::ALIGNMENT
            };
            assert_eq!(address % step, 0);
            let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: both bytes lie in the segment, which only this test knows of.
            unsafe {
                start.write(1);
                start.add(bytes - 1).write(2);
                assert_eq!((start.read(), start.add(bytes - 1).read()), (1, 2));
            }
            CpuSystem.unmap(address, bytes);
        }
    }

    #[test]
    fn absurd_requests_are_refused() {
        for bytes in [usize::MAX / 4, usize::MAX / 2, usize::MAX].map(|n| n / SEGMENT_STEP * SEGMENT_STEP) {
            assert_eq!(CpuSystem.map(bytes), None, "{bytes}");
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn linux_says_how_much_is_free_and_more_is_refused() {
        let free = CpuSystem.free_bytes().expect("/proc/meminfo");
        assert!(free > SEGMENT_STEP);
        // Linux itself would grant nearly all that is built in, although part of it is in use.
        let total = meminfo("MemTotal:").expect("/proc/meminfo") + meminfo("SwapFree:").unwrap_or(0);
        assert_eq!(CpuSystem.map(total / SEGMENT_STEP * SEGMENT_STEP - 8 * SEGMENT_STEP), None);
        assert_eq!(meminfo("NoSuchField:"), None);
    }

    #[cfg(all(target_os = "linux", not(miri), not(cotangent_uncached)))]
    #[test]
    fn margins_leave_an_aligned_range() {
        for (first, expected) in [
            (SEGMENT_STEP, (0, SEGMENT_STEP)),
            (SEGMENT_STEP + 4096, (SEGMENT_STEP - 4096, 4096)),
            (2 * SEGMENT_STEP - 4096, (4096, SEGMENT_STEP - 4096)),
        ] {
            assert_eq!(imp::margins(first), expected);
        }
    }
}
