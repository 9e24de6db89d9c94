//! Plans of transforms along columns.

use crate::kernels::{Kernel, Kernels};
use crate::panel::{AHEAD, Panel, Source, Target};
use crate::plan::{aligned, with_alignment};

/// The longest columns that are transformed in panels, which fit into the L2 cache.
const LONGEST_COLUMN: usize = 8192;

/// The transform of complex numbers along the columns of a matrix. Pointers and lengths of memory are as in [`Plan`](crate::Plan).
pub struct Columns<T: 'static> {
    kernels: &'static Kernels<T>,
    panel: Panel<T>,
}

impl<T: Kernel> Columns<T> {
    /// `None` if `n` is 1, has a prime factor beyond 7 or is too long for the cache.
    pub fn new(n: usize) -> Option<Columns<T>> {
        Columns::with(n, T::kernels())
    }

    pub(crate) fn with(n: usize, kernels: &'static Kernels<T>) -> Option<Columns<T>> {
        let panel = if n <= LONGEST_COLUMN { Panel::new(n, 2)? } else { return None };
        Some(Columns { kernels, panel })
    }

    /// The number of columns that are transformed together.
    pub fn group(&self) -> usize {
        self.kernels.lanes
    }

    /// The memory that a thread needs.
    pub fn room(&self) -> usize {
        with_alignment::<T>(2 * self.panel.room(self.kernels))
    }

    /// Transforms `count` neighbouring columns, at most a [`group`](Self::group), of matrices whose rows have `width` complex
    /// numbers. `from` and `to` may be the same place.
    ///
    /// # Safety
    /// `from` and `to` have `count` such columns, which are the same or do not overlap, and `room` has
    /// [`room`](Self::room) parts.
    pub unsafe fn run(&self, from: *const T, to: *mut T, width: usize, count: usize, inverse: bool, room: *mut T) {
        let lanes = count.min(self.kernels.lanes);
        // SAFETY: the caller's promise. All numbers are in a panel before the first one is written, as at least one pass or copy
        // does not write the result.
        unsafe {
            let (from, to) = (Source::Columns(from, 2 * width, lanes), Target::Columns(to, 2 * width, lanes));
            self.panel.run(self.kernels, from, to, inverse, AHEAD * 2 * width, aligned(room));
        }
    }
}
