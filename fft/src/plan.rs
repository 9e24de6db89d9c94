//! Plans of transforms by the crate's own kernels, of lengths without other prime factors than 2, 3 and 5.

use crate::panel::{Panel, Source, Target};
use crate::pass::{ALIGNMENT, Kernel, Kernels};
use crate::split::Split;
use std::ops::Range;

/// The longest columns that are transformed in panels: these fit into a second cache.
const LONGEST_COLUMN: usize = 8192;

/// The first place in memory that is aligned. What is asked for has as much more.
fn aligned<T>(room: *mut T) -> *mut T {
    room.wrapping_byte_add(room.addr().wrapping_neg() % ALIGNMENT)
}

fn with_alignment<T>(numbers: usize) -> usize {
    numbers + ALIGNMENT / size_of::<T>()
}

/// The transform of complex numbers along the rows of a matrix.
///
/// Pointers are to the parts of complex numbers, and lengths of memory in such parts. Everything is computed in the same way
/// whoever computes it: results do not depend on how the work is dealt out.
pub struct Rows<T: 'static> {
    n: usize,
    kernels: &'static Kernels<T>,
    way: Way<T>,
}

enum Way<T: 'static> {
    /// Short rows: as many together as there are lanes.
    Together(Panel<T>),
    /// Each in two halves.
    Split(Split<T>),
}

/// What it takes to do a row in two halves.
#[derive(Clone, Copy)]
pub struct Halves {
    /// Blocks of the first half.
    pub first: usize,
    /// Blocks of the second half.
    pub second: usize,
    /// The memory between them.
    pub middle: usize,
    /// The memory that a thread needs.
    pub room: usize,
}

impl<T: Kernel> Rows<T> {
    /// None if `n` is 1 or has a prime factor beyond 5, or the CPU has no kernels.
    pub fn new(n: usize) -> Option<Rows<T>> {
        Rows::with(n, T::kernels().first()?)
    }

    pub(crate) fn with(n: usize, kernels: &'static Kernels<T>) -> Option<Rows<T>> {
        // Halves of shorter rows would not fill the lanes.
        let split = if n < kernels.lanes * kernels.lanes { None } else { Split::new(n, kernels) };
        let way = match split {
            Some(split) => Way::Split(split),
            None => Way::Together(Panel::new(n, 1)?),
        };
        Some(Rows { n, kernels, way })
    }

    /// How many rows are transformed together.
    pub fn group(&self) -> usize {
        match self.way {
            Way::Together(_) => self.kernels.lanes,
            Way::Split(_) => 1,
        }
    }

    /// The memory that a thread needs.
    pub fn room(&self) -> usize {
        with_alignment::<T>(match &self.way {
            Way::Together(panel) => 2 * panel.room(self.kernels),
            Way::Split(split) => split.room(self.kernels).next_multiple_of(ALIGNMENT) + split.middle(self.kernels),
        })
    }

    /// Transforms `count` rows, which lie one after the other.
    ///
    /// # Safety
    /// `from` and `to` have so many rows, which do not overlap, and `room` has [`room`](Self::room) parts.
    pub unsafe fn run(&self, from: *const T, to: *mut T, count: usize, inverse: bool, room: *mut T) {
        let (row, room) = (2 * self.n, aligned(room));
        match &self.way {
            Way::Together(panel) => {
                for first in (0..count).step_by(self.kernels.lanes) {
                    let lanes = self.kernels.lanes.min(count - first);
                    // SAFETY: the caller's promise; the kernels are of this CPU, here and below.
                    unsafe {
                        let from = Source::Rows(from.add(first * row), row, lanes);
                        let to = Target::Rows(to.add(first * row), row, lanes);
                        panel.run(self.kernels, from, to, inverse, 0, room);
                    }
                }
            }
            Way::Split(split) => {
                let [first, second] = split.blocks(self.kernels);
                for at in 0..count {
                    // SAFETY: as above.
                    unsafe {
                        let middle = room.add(split.room(self.kernels).next_multiple_of(ALIGNMENT));
                        for block in 0..first {
                            split.columns(self.kernels, block, from.add(at * row), middle, inverse, room);
                        }
                        for block in 0..second {
                            split.finish(self.kernels, block, middle, to.add(at * row), inverse, room);
                        }
                    }
                }
            }
        }
    }

    /// The halves of a row, if it has any. Blocks of a half can be done at the same time.
    pub fn halves(&self) -> Option<Halves> {
        let Way::Split(split) = &self.way else { return None };
        let [first, second] = split.blocks(self.kernels);
        let (middle, room) = (split.middle(self.kernels), split.room(self.kernels));
        Some(Halves { first, second, middle: with_alignment::<T>(middle), room: with_alignment::<T>(room) })
    }

    /// Blocks of the first half of a row.
    ///
    /// # Safety
    /// `from` has a row, `middle` and `room` what [`halves`](Self::halves) says; the blocks are blocks of this half, and done by
    /// nobody else.
    pub unsafe fn first(&self, blocks: Range<usize>, from: *const T, middle: *mut T, inverse: bool, room: *mut T) {
        if let Way::Split(split) = &self.way {
            for block in blocks {
                // SAFETY: the caller's promise.
                unsafe { split.columns(self.kernels, block, from, aligned(middle), inverse, aligned(room)) };
            }
        }
    }

    /// Blocks of the second half, after all of the first.
    ///
    /// # Safety
    /// As for [`first`](Self::first), with a row at `to`.
    pub unsafe fn second(&self, blocks: Range<usize>, middle: *mut T, to: *mut T, inverse: bool, room: *mut T) {
        if let Way::Split(split) = &self.way {
            for block in blocks {
                // SAFETY: the caller's promise.
                unsafe { split.finish(self.kernels, block, aligned(middle), to, inverse, aligned(room)) };
            }
        }
    }
}

/// The transform of complex numbers along the columns of a matrix, as [`Rows`].
pub struct Columns<T: 'static> {
    kernels: &'static Kernels<T>,
    panel: Panel<T>,
}

impl<T: Kernel> Columns<T> {
    /// None if `n` is 1, has a prime factor beyond 5 or is too long for a cache, or the CPU has no kernels.
    pub fn new(n: usize) -> Option<Columns<T>> {
        Columns::with(n, T::kernels().first()?)
    }

    pub(crate) fn with(n: usize, kernels: &'static Kernels<T>) -> Option<Columns<T>> {
        let panel = if n <= LONGEST_COLUMN { Panel::new(n, 2)? } else { return None };
        Some(Columns { kernels, panel })
    }

    /// How many columns are transformed together.
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
    /// There are such columns from `from` and `to` on, which are the same or do not overlap, and `room` has
    /// [`room`](Self::room) parts.
    pub unsafe fn run(&self, from: *const T, to: *mut T, width: usize, count: usize, inverse: bool, room: *mut T) {
        let lanes = count.min(self.kernels.lanes);
        // SAFETY: the caller's promise. All numbers are in a panel before the first is written, since there is one pass that
        // does not write the result, or a copy.
        unsafe {
            let (from, to) = (Source::Columns(from, 2 * width, lanes), Target::Columns(to, 2 * width, lanes));
            self.panel.run(self.kernels, from, to, inverse, 2 * lanes, aligned(room));
        }
    }
}
