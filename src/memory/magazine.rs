//! A per-thread cache of small buffers, so that tiny tensors need neither a lock nor a `malloc`.
//!
//! When the last handle of a small buffer is dropped, the buffer goes into the magazine of the dropping thread, still inside its
//! `Arc`. The next request of its size class on that thread takes it out again. A magazine is bounded: beyond the bound, buffers
//! go back to the pool. When a thread ends, its magazine goes back to the pool.

use super::CPU;
use super::count::Account;
use crate::storage::Buffer;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Size classes are multiples of this, the pool's alignment.
const UNIT: usize = 64;
/// The number of size classes: eight per doubling, so rounding up adds at most 1/8, or less than 64 bytes.
pub(crate) const CLASSES: usize = 64;
/// The largest size with a class.
pub(crate) const LARGEST: usize = 64 << 10;
/// The most that a class keeps in a magazine, and the most that all classes keep together.
const CLASS_BYTES: usize = 1 << 20;
const ALL_BYTES: usize = 8 << 20;

/// The size class of a request of 1 to `LARGEST` bytes.
#[inline]
pub(crate) const fn class_of(bytes: usize) -> usize {
    // For n + 1 units: classes 0 to 15 are 1 to 16 units; above, the class follows from the three bits after the leading one.
    let n = (bytes - 1) / UNIT;
    let shift = (n | 8).ilog2() as usize - 3;
    8 * shift + (n >> shift)
}

/// The bytes of the buffers of a class.
pub(crate) const fn class_bytes(class: usize) -> usize {
    let shift = (class / 8).saturating_sub(1);
    ((class - 8 * shift + 1) * UNIT) << shift
}

/// The number of buffers of each class that a magazine keeps. A table, to avoid a division.
static SLOTS: [usize; CLASSES] = {
    let mut slots = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        slots[class] = CLASS_BYTES / class_bytes(class);
        class += 1;
    }
    slots
};

/// Raised to make all threads empty their magazines.
static EPOCH: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MAGAZINE: RefCell<Magazine> = const { RefCell::new(Magazine::new()) };
}

struct Magazine {
    epoch: usize,
    /// The account of this thread's small buffers; opened with the first buffer that is kept.
    account: Option<Arc<Account>>,
    /// The bytes of all buffers kept.
    bytes: usize,
    /// Buffers with no other handle. They count as cached in the statistics, and as in use in the pool.
    classes: [Vec<Arc<Buffer>>; CLASSES],
}

impl Magazine {
    const fn new() -> Self {
        Magazine { epoch: 0, account: None, bytes: 0, classes: [const { Vec::new() }; CLASSES] }
    }

    /// Gives everything back to the pool, under one lock.
    #[cold]
    #[inline(never)]
    fn empty(&mut self) {
        let mut pool = CPU.pool();
        // The buffers are not counted as in use, so only their blocks go back: dropping them would subtract them again.
        for buffer in self.classes.iter_mut().flat_map(std::mem::take).filter_map(Arc::into_inner) {
            pool.release(buffer.into_block());
        }
        self.bytes = 0;
    }
}

impl Drop for Magazine {
    fn drop(&mut self) {
        self.empty();
        if let Some(account) = self.account.take() {
            CPU.counter.close(&account);
        }
    }
}

/// Takes a buffer of the class from this thread's magazine, and counts it as in use. There is no other handle to it.
#[inline]
pub(crate) fn take(class: usize) -> Option<Arc<Buffer>> {
    // The magazine may be gone while the thread ends. It is never borrowed twice, since nothing here is reentrant.
    let taken = MAGAZINE.try_with(|magazine| {
        let magazine = &mut *magazine.try_borrow_mut().ok()?;
        let epoch = EPOCH.load(Relaxed);
        if magazine.epoch != epoch {
            magazine.epoch = epoch;
            magazine.empty();
        }
        let buffer = magazine.classes.get_mut(class)?.pop()?;
        magazine.bytes -= buffer.capacity();
        CPU.counter.add(magazine.account.as_deref(), buffer.capacity());
        Some(buffer)
    });
    taken.ok().flatten()
}

/// Keeps a buffer of the class, to which the caller has the only handle, if there is room. Otherwise drops it, and its block goes
/// to the pool.
#[inline]
pub(crate) fn give(class: usize, buffer: Arc<Buffer>) {
    // If the magazine is gone, the closure is dropped, and the buffer with it.
    let _ = MAGAZINE.try_with(move |magazine| {
        if let Ok(mut magazine) = magazine.try_borrow_mut()
            && let Magazine { account, bytes, classes, .. } = &mut *magazine
            && let (Some(kept), Some(&slots)) = (classes.get_mut(class), SLOTS.get(class))
            && kept.len() < slots
            && *bytes + buffer.capacity() <= ALL_BYTES
        {
            *bytes += buffer.capacity();
            let account = account.get_or_insert_with(|| CPU.counter.open());
            CPU.counter.sub(Some(account), buffer.capacity());
            kept.push(buffer);
        }
    });
}

/// Counts a block of the pool as in use, offset against what this thread owes.
pub(crate) fn count(bytes: usize) {
    let counted = MAGAZINE.try_with(|magazine| {
        let magazine = magazine.try_borrow().ok();
        CPU.counter.add(magazine.as_ref().and_then(|m| m.account.as_deref()), bytes);
    });
    if counted.is_err() {
        CPU.counter.add(None, bytes);
    }
}

/// Pays what this thread owes to the count.
pub(crate) fn materialize() {
    let _ = MAGAZINE.try_with(|magazine| {
        if let Some(account) = magazine.try_borrow().ok().as_ref().and_then(|m| m.account.as_deref()) {
            CPU.counter.materialize(account);
        }
    });
}

/// Empties this thread's magazine now, and those of other threads at their next small allocation.
pub(crate) fn empty_all() {
    EPOCH.fetch_add(1, Relaxed);
    let _ = MAGAZINE.try_with(|magazine| magazine.try_borrow_mut().map(|mut magazine| magazine.empty()));
}

/// The number of buffers of a class that this thread keeps.
#[cfg(feature = "samples")]
pub(crate) fn kept(class: usize) -> usize {
    MAGAZINE.with_borrow(|magazine| magazine.classes[class].len())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_waste_little() {
        assert_eq!((class_bytes(0), class_bytes(CLASSES - 1)), (UNIT, LARGEST));
        assert_eq!((class_of(1), class_of(LARGEST)), (0, CLASSES - 1));
        for class in 0..CLASSES {
            assert_eq!(class_of(class_bytes(class)), class);
            assert_eq!(class_bytes(class) % UNIT, 0);
        }
        for bytes in 1..=LARGEST {
            let size = class_bytes(class_of(bytes));
            assert!(size >= bytes, "{bytes} in {size}");
            assert!(size <= (bytes + bytes / 8).next_multiple_of(UNIT), "{bytes} in {size}");
        }
    }

    #[test]
    fn a_magazine_keeps_no_more_than_its_bounds() {
        let fill = |class: usize| {
            let new = || crate::storage::Storage::new("test", crate::Device::Cpu, class_bytes(class));
            let storages: Vec<_> = (0..SLOTS[class] + 3).map(|_| new()).collect();
            drop(storages);
            MAGAZINE.with_borrow(|magazine| (magazine.classes[class].len(), magazine.bytes))
        };
        empty_all();
        let classes = [CLASSES - 1, 31, 39, 47, 55, CLASSES - 2, CLASSES - 3, CLASSES - 4, CLASSES - 5];
        for (i, class) in classes.into_iter().enumerate() {
            let (buffers, bytes) = fill(class);
            assert!(buffers <= SLOTS[class] && bytes <= ALL_BYTES, "class {class}: {buffers} buffers, {bytes} bytes");
            assert!(buffers == SLOTS[class] || i == classes.len() - 1, "class {class} is not full");
        }
        let kept = |m: &Magazine| -> usize { (0..CLASSES).map(|c| m.classes[c].len() * class_bytes(c)).sum() };
        MAGAZINE.with_borrow(|magazine| assert_eq!(magazine.bytes, kept(magazine)));
        empty_all();
        MAGAZINE.with_borrow(|magazine| assert_eq!((magazine.bytes, kept(magazine)), (0, 0)));
    }
}
