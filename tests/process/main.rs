//! Tests that look at the whole process: memory statistics and limits, all allocations, all threads.
//!
//! They run one at a time. Each begins with `let _alone = alone();`.

#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/json.rs"]
#[allow(dead_code)]
mod json;

mod deferred;
mod graph_memory;
mod io_fuzz;
mod loader_memory;
mod loss_memory;
mod profile;
mod seed;
mod tape;
mod training_memory;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of this program runs. The next one waits until the guard is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of live Rust allocations. Every tensor, buffer and graph node has at least one.
static LIVE: AtomicIsize = AtomicIsize::new(0);
/// The size of the largest request to the Rust allocator since a test stored 0 here.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with the two figures above.
struct Watched;

// SAFETY: every call goes to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Relaxed);
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(1, Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(1, Relaxed);
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;
