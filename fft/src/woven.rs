//! Rows of a few hundred to a few thousand numbers, one or two at a time.
//!
//! The row of `n` numbers is a matrix with one row per lane of a register. Its columns are transformed, multiplied by twiddles and
//! transposed in registers. That makes one panel, whose lanes are the columns of the transposed matrix, and the passes over the
//! panel complete the transform. Two rows can share a panel, each as a matrix of half as many rows.

use crate::kernels::{Kernel, Kernels};
use crate::panel::{self, Panel, Source, Target, twiddle};
use crate::pass::ALIGNMENT;
use crate::plan::{aligned, with_alignment};
use crate::weave::Weave;

/// The most numbers of a panel: larger ones do not stay in the L2 cache together with the rows that are read and written.
const MOST: usize = 8192;

/// The least numbers of a row: shorter ones are faster with one row per lane.
const LEAST: usize = 32;

/// The size in bytes from which on results do not stay in the L1 cache until the next rows are done.
const LARGE: usize = 1 << 14;

pub(crate) struct Woven<T: 'static> {
    /// The number of rows that share a panel.
    pub rows: usize,
    /// The transform of the panel.
    panel: Panel<T>,
    /// For each block of columns and each element a register of cosines and one of sines.
    turns: Vec<T>,
    /// The index of the first aligned one.
    first_turn: usize,
}

/// The number of rows of `n` numbers that share a panel, and the number of their columns. `None` if there are too few columns,
/// if the last block would repeat too many columns, or if rows are too long or too short.
fn shape(n: usize, few: bool, lanes: usize) -> Option<(usize, usize)> {
    let fits = |rows: usize| {
        let columns = n * rows / lanes;
        let whole = 2 * rows <= lanes && n * rows == columns * lanes;
        let fills = columns >= lanes && 3 * columns.next_multiple_of(lanes) <= 4 * columns;
        (whole && fills && n >= LEAST && n * rows <= MOST).then_some((rows, columns))
    };
    fits(1).or_else(|| if few { None } else { fits(2) })
}

/// The approximate time of a row, as [`panel::cost`]; `None` if this algorithm does not fit.
pub(crate) fn cost(n: usize, few: bool, lanes: usize) -> Option<usize> {
    let (rows, columns) = shape(n, few, lanes)?;
    Some((columns.div_ceil(lanes) * panel::cost(lanes, 1)? + panel::cost(columns, 1)?) / rows)
}

/// The first column of a block. The last block overlaps the one before it if fewer columns than lanes are left.
#[inline(always)]
pub(crate) fn first_column(block: usize, columns: usize, lanes: usize) -> usize {
    (block * lanes).min(columns - lanes)
}

impl<T: Kernel> Woven<T> {
    /// `None` if this algorithm does not fit rows of `n` numbers.
    pub fn new(n: usize, few: bool, kernels: &Kernels<T>) -> Option<Woven<T>> {
        let lanes = kernels.lanes;
        let (rows, columns) = shape(n, few, lanes)?;
        let panel = Panel::new(columns, 1)?;
        let blocks = columns.div_ceil(lanes);
        let mut turns: Vec<T> = Vec::with_capacity(with_alignment::<T>(blocks * 2 * lanes * lanes / rows));
        let first_turn = (aligned(turns.as_mut_ptr()).addr() - turns.as_ptr().addr()) / size_of::<T>();
        turns.resize(first_turn, T::of(0.0));
        for block in 0..blocks {
            let first = first_column(block, columns, lanes);
            for k in 0..lanes / rows {
                let turn: Vec<_> = (first..first + lanes).map(|column| twiddle(k * column, n)).collect();
                turns.extend(turn.iter().map(|w| T::of(w.0)));
                turns.extend(turn.iter().map(|w| T::of(w.1)));
            }
        }
        Some(Woven { rows, panel, turns, first_turn })
    }

    /// The workspace of a thread, in numbers: three panels.
    pub fn room(&self, kernels: &Kernels<T>) -> usize {
        3 * self.panel.room(kernels)
    }

    /// Transforms `count` rows, at most those that share a panel. Steps are the strides of rows, in numbers.
    ///
    /// # Safety
    /// The CPU has the kernels' instructions. The rows have all numbers, `room` has [`room`](Self::room) numbers. They do not overlap.
    pub unsafe fn run(
        &self,
        kernels: &Kernels<T>,
        (from, from_step): (*const T, usize),
        (to, to_step): (*mut T, usize),
        count: usize,
        reverse: bool,
        room: *mut T,
    ) {
        let (columns, lanes, numbers) = (self.panel.n, kernels.lanes, self.panel.room(kernels));
        // A single row takes the place of both.
        let (from_step, to_step) = if count < self.rows { (0, 0) } else { (from_step, to_step) };
        // Whether the results have the layout of a panel. Then they are the panel, which takes less cache and is written in order.
        let alike = to.addr().is_multiple_of(ALIGNMENT) && (self.rows == 1 || self.rows * to_step == numbers);
        // SAFETY: the caller's promise: a panel has as many numbers as the rows, and there are three.
        unsafe {
            let panel = if alike { to } else { room.add(2 * numbers) };
            let turns = self.turns[self.first_turn..].as_ptr();
            let kernel = kernels.weave[self.rows - 1][usize::from(reverse)];
            // The memory of the next result is prefetched while this one is written or, if it is too long for that, before.
            let far = alike && numbers * size_of::<T>() >= LARGE;
            kernel(&Weave { from: [from, from.add(from_step)], columns, turns, to: panel, far });
            let apart = if self.rows == 1 { lanes } else { to_step };
            let ahead = if far { 0 } else { numbers };
            let to = Target::Woven { to, step: 2 * lanes / self.rows, apart };
            self.panel.run(kernels, Source::Panel(panel), to, reverse, ahead, room);
        }
    }
}
