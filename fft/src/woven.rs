//! Rows of a few hundred to a few thousand numbers, one at a time.
//!
//! The row of `n = lanes * columns` numbers is a matrix of as many rows as a register has lanes. Its columns are transformed,
//! turned by twiddles and transposed in registers. That makes one panel, whose lanes are the columns of the transposed matrix,
//! and the passes over the panel are the rest of the transform.

use crate::kernels::{Kernel, Kernels};
use crate::panel::{self, Panel, Source, Target, twiddle};
use crate::pass::ALIGNMENT;
use crate::plan::{aligned, with_alignment};
use crate::weave::Weave;

/// The longest row: panels of longer ones do not stay in a second cache with what is read and written meanwhile.
const LONGEST: usize = 8192;

pub(crate) struct Woven<T: 'static> {
    /// The transform of the panel.
    panel: Panel<T>,
    /// For each block of columns and each element a register of cosines and one of sines.
    turns: Vec<T>,
    /// The first of them that is aligned.
    first_turn: usize,
}

/// The columns of rows of `n` numbers; none if they do not fill the lanes, or if there are other ways for such a row.
fn columns(n: usize, lanes: usize) -> Option<usize> {
    let columns = n / lanes;
    (lanes > 1 && n.is_multiple_of(lanes) && columns >= lanes && n <= LONGEST).then_some(columns)
}

/// The time of a row, about, as [`panel::cost`]; none if this is not the way for it.
pub(crate) fn cost(n: usize, lanes: usize) -> Option<usize> {
    let columns = columns(n, lanes)?;
    Some(columns.div_ceil(lanes) * panel::cost(lanes, 1)? + panel::cost(columns, 1)?)
}

/// The first column of a block. The last block has some columns of the one before it, if there are not as many as lanes left.
pub(crate) fn first_column(block: usize, columns: usize, lanes: usize) -> usize {
    (block * lanes).min(columns - lanes)
}

impl<T: Kernel> Woven<T> {
    /// None if this is not the way for rows of `n` numbers.
    pub fn new(n: usize, kernels: &Kernels<T>) -> Option<Woven<T>> {
        let lanes = kernels.lanes;
        let columns = columns(n, lanes)?;
        let panel = Panel::new(columns, 1)?;
        let blocks = columns.div_ceil(lanes);
        let mut turns: Vec<T> = Vec::with_capacity(with_alignment::<T>(blocks * 2 * lanes * lanes));
        let first_turn = (aligned(turns.as_mut_ptr()).addr() - turns.as_ptr().addr()) / size_of::<T>();
        turns.resize(first_turn, T::of(0.0));
        for block in 0..blocks {
            let first = first_column(block, columns, lanes);
            for k in 0..lanes {
                let row: Vec<_> = (first..first + lanes).map(|column| twiddle(k * column, n)).collect();
                turns.extend(row.iter().map(|w| T::of(w.0)));
                turns.extend(row.iter().map(|w| T::of(w.1)));
            }
        }
        Some(Woven { panel, turns, first_turn })
    }

    /// Numbers that a thread needs: three panels.
    pub fn room(&self, kernels: &Kernels<T>) -> usize {
        3 * self.panel.room(kernels)
    }

    /// Transforms a row.
    ///
    /// # Safety
    /// The CPU has the kernels' instructions. Both rows have all numbers, `room` has so many as it says; none of them overlap.
    pub unsafe fn run(&self, kernels: &Kernels<T>, from: *const T, to: *mut T, reverse: bool, room: *mut T) {
        let (columns, lanes) = (self.panel.n, kernels.lanes);
        // SAFETY: the caller's promise: the panel has as many numbers as a row, and there are three.
        unsafe {
            // The place of the result is in a cache sooner, and what is between leaves it none.
            let panel = if to.addr().is_multiple_of(ALIGNMENT) { to } else { room.add(2 * self.panel.room(kernels)) };
            let turns = self.turns[self.first_turn..].as_ptr();
            (kernels.weave[usize::from(reverse)])(&Weave { from, columns, turns, to: panel });
            // What comes next is most likely the next row.
            let (all, ahead) = (Target::Columns(to, 2 * lanes, lanes), 2 * lanes * columns);
            self.panel.run(kernels, Source::Panel(panel), all, reverse, ahead, room);
        }
    }
}
