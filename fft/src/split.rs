//! A long transform in two halves, each of which consists of many short ones.
//!
//! The row of `n = first * second` numbers is a matrix of `first` rows. Its columns are transformed, multiplied by twiddles, and
//! transposed. The columns of the transposed matrix are transformed, which gives the result.

use crate::kernels::{Kernel, Kernels};
use crate::moves::{Transpose, Turns};
use crate::panel::{self, AHEAD, Panel, Source, Target, twiddle};

/// The length up to which every twiddle between the halves is stored. Longer transforms multiply two factors.
const ALL_TWIDDLES: usize = 1 << 16;

/// The length from which on a row does not stay in the L2 cache.
const LONG: usize = 1 << 16;

pub(crate) struct Split<T: 'static> {
    pub first: Panel<T>,
    pub second: Panel<T>,
    /// For each element of a column of `first`, the twiddles of neighbouring columns: of all columns, or of the first block.
    twiddles: Vec<T>,
    /// For long transforms, a further factor for each block of columns and each element.
    factors: Vec<T>,
}

/// The approximate time of the best halves, and the length of the first; `None` if `n` is not a product of two lengths that have
/// passes.
pub(crate) fn best(n: usize, lanes: usize) -> Option<(usize, usize)> {
    // The first half has at least two passes and a transposition; the second begins in a panel.
    let cost = |first: usize| {
        let second = n / first;
        let (one, two) = (panel::cost(first, 2)? + 4 * first, panel::cost(second, 1)?);
        // Of equally good factors the more even ones.
        Some((second.div_ceil(lanes) * one + first.div_ceil(lanes) * two, first.max(second), first))
    };
    let factors = (2..).take_while(|k| k * k <= n).filter(|&k| n.is_multiple_of(k));
    factors.flat_map(|k| [k, n / k]).filter_map(cost).min().map(|(cost, _, first)| (cost, first))
}

impl<T: Kernel> Split<T> {
    /// `None` if there are no such factors.
    pub fn new(n: usize, kernels: &Kernels<T>) -> Option<Split<T>> {
        let lanes = kernels.lanes;
        let (_, first) = best(n, lanes)?;
        let (first, second) = (Panel::new(first, 2)?, Panel::new(n / first, 1)?);
        let blocks = second.n.div_ceil(lanes);
        let all = n <= ALL_TWIDDLES;
        let mut twiddles = Vec::with_capacity(if all { blocks } else { 1 } * first.n * 2 * lanes);
        for block in 0..if all { blocks } else { 1 } {
            for k in 0..first.n {
                let turns: Vec<_> = (0..lanes).map(|lane| twiddle(k * (block * lanes + lane), n)).collect();
                twiddles.extend(turns.iter().map(|w| T::of(w.0)));
                twiddles.extend(turns.iter().map(|w| T::of(w.1)));
            }
        }
        let mut factors = Vec::new();
        if !all {
            for block in 0..blocks {
                for k in 0..first.n {
                    let (re, im) = twiddle(k * (block * lanes) % n, n);
                    factors.extend([T::of(re), T::of(im)]);
                }
            }
        }
        Some(Split { first, second, twiddles, factors })
    }

    /// The size of the memory between the halves, in numbers.
    pub fn middle(&self, kernels: &Kernels<T>) -> usize {
        self.first.n.div_ceil(kernels.lanes) * self.panel_step(kernels)
    }

    /// The stride, in numbers, of the panels between the halves. Long ones have a gap, so that blocks of columns of all panels do
    /// not share cache sets.
    fn panel_step(&self, kernels: &Kernels<T>) -> usize {
        let gap = if self.first.n * self.second.n >= LONG { kernels.lanes } else { 0 };
        (self.second.n + gap) * 2 * kernels.lanes
    }

    /// The workspace of a thread, in numbers.
    pub fn room(&self, kernels: &Kernels<T>) -> usize {
        (2 * self.first.room(kernels) + self.turns_room(kernels)).max(2 * self.second.room(kernels))
    }

    /// The prefetch distance from elements of a block of columns: for a row that fits into the L2 cache to the next block, or to
    /// the first one of the next row; for a longer row to elements of the same block.
    fn ahead(&self, kernels: &Kernels<T>, start: usize, columns: usize) -> usize {
        let n = self.first.n * self.second.n;
        2 * if n >= LONG {
            AHEAD * columns
        } else if start + kernels.lanes < columns {
            kernels.lanes
        } else {
            n - start
        }
    }

    fn turns_room(&self, kernels: &Kernels<T>) -> usize {
        if self.factors.is_empty() { 0 } else { self.first.room(kernels) }
    }

    /// The number of blocks of columns in each half.
    pub fn blocks(&self, kernels: &Kernels<T>) -> [usize; 2] {
        [self.second.n.div_ceil(kernels.lanes), self.first.n.div_ceil(kernels.lanes)]
    }

    /// A block of the first half, from a row.
    ///
    /// # Safety
    /// The CPU has the kernels' instructions. The row has all numbers, `middle` and `room` have the sizes that the functions of
    /// these names give.
    pub unsafe fn columns(
        &self,
        kernels: &Kernels<T>,
        block: usize,
        row: *const T,
        middle: *mut T,
        reverse: bool,
        room: *mut T,
    ) {
        let (first, second, wide) = (self.first.n, self.second.n, 2 * kernels.lanes);
        let start = block * kernels.lanes;
        let lanes = kernels.lanes.min(second - start);
        // SAFETY: the caller's promise.
        unsafe {
            let mut turns = self.twiddles.as_ptr();
            if self.factors.is_empty() {
                turns = turns.add(block * first * wide);
            } else {
                let (to, factors) =
                    (room.add(2 * self.first.room(kernels)), self.factors.as_ptr().add(block * first * 2));
                (kernels.turns)(&Turns { turns, factors, n: first, to });
                turns = to;
            }
            let from = Source::Columns(row.add(2 * start), 2 * second, lanes);
            let panel = self.first.run(kernels, from, Target::Panel, reverse, self.ahead(kernels, start, second), room);
            let (to, to_step) = (middle.add(start * wide), self.panel_step(kernels));
            (kernels.transpose)(&Transpose { panel, turns, n: first, lanes, reverse, to, to_step });
        }
    }

    /// A block of the second half, to a row.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn finish(
        &self,
        kernels: &Kernels<T>,
        block: usize,
        middle: *const T,
        row: *mut T,
        reverse: bool,
        room: *mut T,
    ) {
        let first = self.first.n;
        let start = block * kernels.lanes;
        let lanes = kernels.lanes.min(first - start);
        // SAFETY: the caller's promise.
        unsafe {
            let from = Source::Panel(middle.add(block * self.panel_step(kernels)));
            self.second.run(
                kernels,
                from,
                Target::Columns(row.add(2 * start), 2 * first, lanes),
                reverse,
                self.ahead(kernels, start, first),
                room,
            );
        }
    }
}
