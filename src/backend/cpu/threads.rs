//! Splitting work over threads. Pieces have fixed bounds that depend on the amount of work alone, so that results do
//! not depend on the number of threads.

use rayon::prelude::*;
use std::ops::Range;

/// Elements to work on below which a fork and join, which costs some tens of microseconds on a busy machine, is not
/// repaid. Small in debug builds, so that tests come by the seams.
pub(crate) const GRAIN: usize = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 17 };

/// Calls `f` for the pieces of `0..n`, each of `grain` (the last may be shorter), on several threads if there are
/// several pieces.
#[inline]
pub(crate) fn parallel(n: usize, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    if n <= grain || rayon::current_num_threads() == 1 {
        if n > 0 {
            // One thread may take all pieces at once: `f` must not depend on where they are cut.
            f(0..n);
        }
        return;
    }
    fork(n, grain, &f);
}

/// The part that knows rayon, compiled once and not for every closure.
#[inline(never)]
fn fork(n: usize, grain: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    let pieces = n.div_ceil(grain);
    (0..pieces).into_par_iter().for_each(|at| f(at * grain..n.min((at + 1) * grain)));
}

/// A pointer that may go to other threads. Whoever uses it keeps the threads off each other's elements.
#[derive(Clone, Copy)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Ptr<T> {
    pub fn new(ptr: *mut T) -> Ptr<T> {
        Ptr(ptr)
    }

    /// Taken through a method so that closures capture the wrapper.
    #[inline]
    pub fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: a pointer is only a number; the places that read or write through it argue for the accesses.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}
