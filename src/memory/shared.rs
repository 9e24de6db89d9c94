//! The reference-counted pointer that tensors and nodes are made of.
//!
//! It works like `Arc`, without two costs that dominate small operations. A graph consists of thousands of blocks of a few sizes
//! that are freed together, which `malloc` and `free` handle slowly; here each thread caches them in free lists. There are no
//! weak handles, so the last handle needs no atomic read-modify-write to see that it is the last.
//!
//! Invariants:
//!
//! 1. An [`Inner`] is valid, and in a separate block from [`allocate`], as long as there is a handle to it.
//! 2. `count` is the number of handles. Only a handle makes another one, so a handle that reads 1 is the only one and
//!    stays so.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A shared, immutable value; mutable while there is only one handle.
pub(crate) struct Shared<T: ?Sized> {
    inner: NonNull<Inner<T>>,
    _owns: PhantomData<Inner<T>>,
}

/// A value with its reference count. It can only be created in this module.
pub(crate) struct Inner<T: ?Sized> {
    count: AtomicUsize,
    value: T,
}

// SAFETY: as for `Arc`: handles on several threads share the value, and the last one drops it on any of them.
unsafe impl<T: ?Sized + Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Shared<T> {
        Vacant::new().fill(value)
    }
}

/// A block for a value that is not yet created. A large value that is created after its block is constructed in place, and not
/// moved. A block that is not filled is leaked.
pub(crate) struct Vacant<T>(NonNull<Inner<T>>);

impl<T> Vacant<T> {
    #[inline]
    pub(crate) fn new() -> Vacant<T> {
        Vacant(allocate(Layout::new::<Inner<T>>()).cast())
    }

    #[inline(always)]
    pub(crate) fn fill(self, value: T) -> Shared<T> {
        // SAFETY: the block has the size and alignment of an `Inner<T>`, and is ours alone.
        unsafe { self.0.write(Inner { count: AtomicUsize::new(1), value }) };
        Shared { inner: self.0, _owns: PhantomData }
    }
}

impl<T: ?Sized> Shared<T> {
    /// A value of type `U` behind a pointer to the unsized type `T`; `unsize` must be `|inner| inner`.
    // The raw pointer is unsized, and not a reference, whose borrow of the block would be too short.
    #[inline]
    pub(crate) fn new_unsized<U>(value: U, unsize: fn(*mut Inner<U>) -> *mut Inner<T>) -> Shared<T> {
        let block = ManuallyDrop::new(Shared::new(value)).inner;
        let unsized_block = unsize(block.as_ptr());
        assert!(unsized_block.addr() == block.as_ptr().addr(), "the pointer was exchanged for another one");
        // SAFETY: it is the address of the block (checked), which is not null, under the metadata of a `U`, which is in it:
        // outside this module no other `Inner` can be made.
        let inner = unsafe { NonNull::new_unchecked(unsized_block) };
        Shared { inner, _owns: PhantomData }
    }

    /// Whether this is the only handle. The answer stays valid only with `&mut self`.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        // Pairs with the release in `drop`: accesses through other handles have happened before.
        self.inner().count.load(Ordering::Acquire) == 1
    }

    /// The number of handles, which other threads may change at any time.
    #[cfg(feature = "cuda")]
    pub(crate) fn handles(&self) -> usize {
        self.inner().count.load(Ordering::Acquire)
    }

    /// The value, if this is the only handle.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if !self.is_sole() {
            return None;
        }
        // SAFETY: invariants 1 and 2: nobody else has a handle, nor gets one while this one is borrowed mutably.
        Some(unsafe { &mut self.inner.as_mut().value })
    }

    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: invariant 1.
        unsafe { self.inner.as_ref() }
    }

    /// Drops the value and releases its block.
    ///
    /// # Safety
    /// This was the last handle, and it is not used again.
    unsafe fn destroy(&mut self) {
        // Computed before the value is dropped: the size of an unsized value depends on it.
        let layout = Layout::for_value(self.inner());
        // SAFETY: nobody else has the value, by this function's contract; the block came from `allocate` with the layout
        // of the `Inner` in it (invariant 1).
        unsafe {
            ptr::drop_in_place(&raw mut (*self.inner.as_ptr()).value);
            release(self.inner.cast(), layout);
        }
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        let before = self.inner().count.fetch_add(1, Ordering::Relaxed);
        // As in `Arc`: this many handles can only be leaked ones, and an overflow would free a value in use.
        if before > isize::MAX as usize {
            std::process::abort();
        }
        Shared { inner: self.inner, _owns: PhantomData }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_sole() || self.inner().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: by invariant 2 this is the last handle, and here it ends. The fence pairs with the others' releases.
            unsafe { self.destroy() }
        }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

/// Blocks are multiples of this.
const UNIT: usize = 64;
/// The alignment that the system's allocator always provides.
const ALIGN: usize = 16;
/// Blocks up to this many units are cached.
const CLASSES: usize = 8;
/// The most bytes that a list keeps: the nodes of a graph of some thousand operations.
const LIST_BYTES: usize = 1 << 20;

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free([const { Vec::new() }; CLASSES])) };
}

/// Free blocks by size: those in list `i` have `i + 1` units.
struct Free([Vec<NonNull<u8>>; CLASSES]);

impl Drop for Free {
    fn drop(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            for block in std::mem::take(list) {
                // SAFETY: a block of this class came from `alloc` with this very layout, and nobody uses it.
                unsafe { dealloc(block.as_ptr(), class_layout(class)) }
            }
        }
    }
}

/// The class of a block, if it is cached. The layout is never empty: it is that of an [`Inner`].
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let class = (layout.size() - 1) / UNIT;
    (class < CLASSES && layout.align() <= ALIGN && !cfg!(cotangent_uncached)).then_some(class)
}

#[inline]
fn class_layout(class: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and the size of a class is a small multiple of it.
    unsafe { Layout::from_size_align_unchecked((class + 1) * UNIT, ALIGN) }
}

/// A block for `layout`, with undefined contents.
#[inline]
fn allocate(layout: Layout) -> NonNull<u8> {
    let Some(class) = class_of(layout) else { return system(layout) };
    // The lists may be gone while the thread ends. They are never borrowed twice, since nothing is dropped here.
    let kept = FREE.try_with(|free| free.try_borrow_mut().ok()?.0.get_mut(class)?.pop());
    kept.ok().flatten().unwrap_or_else(|| system(class_layout(class)))
}

#[cold]
#[inline(never)]
fn system(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Releases a block.
///
/// # Safety
/// It came from `allocate(layout)`, and nobody uses it any more.
#[inline]
unsafe fn release(block: NonNull<u8>, layout: Layout) {
    let Some(class) = class_of(layout) else {
        // SAFETY: `allocate` had it from the system with this layout, as it has no class.
        return unsafe { dealloc(block.as_ptr(), layout) };
    };
    let layout = class_layout(class);
    let kept = FREE.try_with(|free| {
        let mut free = free.try_borrow_mut().ok()?;
        let list = free.0.get_mut(class).filter(|list| list.len() < LIST_BYTES / layout.size())?;
        list.push(block);
        Some(())
    });
    if kept.ok().flatten().is_none() {
        // SAFETY: `allocate` had it, now or earlier, from the system with the layout of its class.
        unsafe { dealloc(block.as_ptr(), layout) }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_dropped_once_with_its_last_handle() {
        let probe = Arc::new(());
        let a = Shared::new(probe.clone());
        let b = a.clone();
        assert!(!a.is_sole() && Arc::strong_count(&probe) == 2);
        drop(a);
        assert!(b.is_sole() && Arc::strong_count(&probe) == 2);
        drop(b);
        assert_eq!(Arc::strong_count(&probe), 1);
    }

    #[test]
    fn only_the_sole_handle_may_write() {
        let mut a = Shared::new(1);
        let b = a.clone();
        assert!(a.get_mut().is_none());
        drop(b);
        if let Some(value) = a.get_mut() {
            *value = 2;
        }
        assert_eq!(*a, 2);
    }

    #[test]
    fn unsized_values_keep_their_size_and_alignment() {
        trait Sum {
            fn sum(&self) -> u64;
        }
        impl<const N: usize> Sum for [u64; N] {
            fn sum(&self) -> u64 {
                self.iter().sum()
            }
        }
        #[repr(align(256))]
        struct Aligned(u64);
        impl Sum for Aligned {
            fn sum(&self) -> u64 {
                assert!(ptr::from_ref(self).is_aligned());
                self.0
            }
        }
        for _ in 0..3 {
            let all: [Shared<dyn Sum + Send + Sync>; 4] = [
                Shared::new_unsized([3; 1], |inner| inner),
                Shared::new_unsized([3; 20], |inner| inner),
                Shared::new_unsized([3; 200], |inner| inner),
                Shared::new_unsized(Aligned(7), |inner| inner),
            ];
            assert_eq!(all.each_ref().map(|x| x.sum()), [3, 60, 600, 7]);
        }
    }

    #[test]
    fn a_block_is_used_again_and_no_two_values_share_one() {
        let first = Shared::new([1_u64; 9]);
        let position = ptr::from_ref(&*first);
        drop(first);
        let (a, b) = (Shared::new([2_u64; 9]), Shared::new([3_u64; 9]));
        assert_eq!(ptr::from_ref(&*a), position);
        assert_eq!((*a, *b), ([2; 9], [3; 9]));
    }

    #[test]
    fn handles_cross_threads_and_the_last_frees() {
        let probe = Arc::new(());
        for _ in 0..if cfg!(miri) { 5 } else { 200 } {
            let shared = Shared::new(probe.clone());
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    let shared = shared.clone();
                    scope.spawn(move || drop((shared.clone(), shared)));
                }
                drop(shared);
            });
        }
        assert_eq!(Arc::strong_count(&probe), 1);
    }
}
