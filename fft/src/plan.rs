//! Plans of transforms along rows, of any length.
//!
//! A plan is a list of stages, each of which transforms the rows that the previous one has made. It contains one transform of a
//! length that has kernels, or two of them for Bluestein's algorithm, which is used for all other lengths.

use crate::bluestein::Chirp;
use crate::kernels::{Kernel, Kernels};
use crate::panel::{Source, Target, twiddle};
use crate::pass::ALIGNMENT;
use crate::pointwise::{Product, Untangle};
use crate::smooth::Smooth;
use crate::woven;
use std::ops::Range;

/// The first aligned address of some memory, which must be larger than needed by one alignment.
pub(crate) fn aligned<T>(room: *mut T) -> *mut T {
    room.wrapping_byte_add(room.addr().wrapping_neg() % ALIGNMENT)
}

pub(crate) fn with_alignment<T>(numbers: usize) -> usize {
    numbers + ALIGNMENT / size_of::<T>()
}

/// A table of complex numbers in alternating registers of real and imaginary parts. The last ones are padded.
pub(crate) fn table<T: Kernel>(n: usize, lanes: usize, number: impl Fn(usize) -> (f64, f64)) -> Vec<T> {
    let mut table = Vec::with_capacity(2 * n.next_multiple_of(lanes));
    for first in (0..n).step_by(lanes) {
        let numbers: Vec<_> = (first..first + lanes).map(&number).collect();
        table.extend(numbers.iter().map(|w| T::of(w.0)));
        table.extend(numbers.iter().map(|w| T::of(w.1)));
    }
    table
}

/// The best kernels for transforms of `n` complex numbers: those with the most lanes, unless only others can fill theirs.
fn kernels_for<T: Kernel>(n: usize, few: bool) -> &'static Kernels<T> {
    T::kernels_where(|lanes| woven::cost(n, few, lanes).is_some())
}

/// Where the rows of a stage are: in the caller's memory, or in memory between stages.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Given,
    Result,
    First,
    Second,
}

#[derive(Clone, Copy)]
enum Work {
    /// The transform of a group of rows in a panel, forward or inverse.
    Whole(bool),
    /// One half of a transform of one row.
    FirstHalf(bool),
    SecondHalf(bool),
    /// The parts of Bluestein's algorithm around two transforms: multiply by the chirp and pad with zeros, multiply by the
    /// chirp's transform, and multiply by the chirp.
    Chirp,
    Convolve,
    Unchirp,
    /// The step of a real transform by half as many complex numbers: after the transform, and before the inverse one.
    Untangle,
    Tangle,
    /// Real numbers to complex ones, and of their transform the first half.
    Widen,
    Half,
    /// The first half of a transform to the whole of it, and of complex numbers the real parts.
    Mirror,
    Narrow,
}

struct Stage {
    work: Work,
    from: Place,
    to: Place,
    /// The number of blocks, which can run in parallel.
    blocks: usize,
}

/// Complex numbers, or pairs of them, in a block of a stage that is not a transform. It is a multiple of all lane counts.
const BLOCK: usize = 4096;

/// The transform of rows: of complex numbers, or between real numbers and the first half of their transform.
///
/// Pointers are to the parts of complex numbers, and lengths of memory count such parts. Results do not depend on how the work
/// is split among threads.
pub struct Plan<T: 'static> {
    kernels: &'static Kernels<T>,
    /// The number of complex or real numbers in a row.
    n: usize,
    real: bool,
    smooth: Smooth<T>,
    /// For lengths that have no kernels.
    chirp: Option<Chirp<T>>,
    /// For an even number of real numbers, as in [`Untangle`].
    turns: Vec<T>,
    /// The number of parts in a row between stages.
    between: usize,
    /// The number of rows in memory between stages.
    places: usize,
    /// Forward and inverse.
    stages: [Vec<Stage>; 2],
}

/// The memory of a plan's rows, and the workspace of a thread.
#[derive(Clone, Copy)]
struct Memory<T> {
    from: *const T,
    to: *mut T,
    shared: *mut T,
    room: *mut T,
}

impl<T: Kernel> Plan<T> {
    /// A plan for `n` complex numbers. With `few` it is for few rows; many rows are transformed together.
    pub fn complex(n: usize, few: bool) -> Plan<T> {
        Plan::with(n, false, few, kernels_for(n, few))
    }

    /// A plan for `n` real numbers, and for the inverse from `n / 2 + 1` complex ones. The imaginary part of the first complex
    /// number, and of the last one if `n` is even, is not read.
    pub fn real(n: usize, few: bool) -> Plan<T> {
        Plan::with(n, true, few, kernels_for(if n.is_multiple_of(2) { n / 2 } else { n }, few))
    }

    pub(crate) fn with(n: usize, real: bool, few: bool, kernels: &'static Kernels<T>) -> Plan<T> {
        let even = real && n.is_multiple_of(2);
        // The number of complex numbers that are transformed, at least one.
        let inner = if even { n / 2 } else { n }.max(1);
        let (smooth, chirp) = match Smooth::new(inner, few, kernels) {
            Some(smooth) => (smooth, None),
            None => {
                let (smooth, chirp) = Chirp::new(inner, few, kernels);
                (smooth, Some(chirp))
            }
        };
        let turns = if even {
            table(inner / 2, kernels.lanes, |at| {
                let (re, im) = twiddle(at + 1, 2 * inner);
                (0.5 * im, -0.5 * re)
            })
        } else {
            Vec::new()
        };
        let padded = chirp.as_ref().map_or(inner, |chirp| chirp.padded);
        let between = (2 * padded).next_multiple_of(ALIGNMENT);
        let mut plan =
            Plan { kernels, n, real, smooth, chirp, turns, between, places: 0, stages: [Vec::new(), Vec::new()] };
        plan.stages = [false, true].map(|inverse| plan.make_stages(inverse));
        let places = plan.stages.iter().flatten().flat_map(|stage| [stage.from, stage.to]);
        plan.places = places
            .map(|place| match place {
                Place::Given | Place::Result => 0,
                Place::First => 1,
                Place::Second => 2,
            })
            .max()
            .unwrap_or(0);
        plan
    }

    fn make_stages(&self, inverse: bool) -> Vec<Stage> {
        let mut stages = Vec::new();
        if self.n == 0 {
            return stages;
        }
        let inner = self.inner();
        let blocks = |numbers: usize| numbers.div_ceil(BLOCK).max(1);
        let (mut from, mut to) = (Place::Given, Place::Result);
        if self.real {
            let (before, after) = match (self.n.is_multiple_of(2), inverse) {
                (true, false) => (None, Some((Work::Untangle, blocks(inner / 2)))),
                (true, true) => (Some((Work::Tangle, blocks(inner / 2))), None),
                (false, false) => (Some((Work::Widen, blocks(inner))), Some((Work::Half, blocks(inner / 2 + 1)))),
                (false, true) => (Some((Work::Mirror, blocks(inner))), Some((Work::Narrow, blocks(inner)))),
            };
            if let Some((work, blocks)) = before {
                stages.push(Stage { work, from, to: Place::First, blocks });
                from = Place::First;
            }
            // The result does not have room for the whole transform, of which the last stage keeps a part.
            if after.is_some() && before.is_some() {
                to = if self.chirp.is_some() { Place::First } else { Place::Second };
            }
            self.complex_stages(inverse, from, to, &mut stages);
            if let Some((work, blocks)) = after {
                stages.push(Stage { work, from: to, to: Place::Result, blocks });
            }
        } else {
            self.complex_stages(inverse, from, to, &mut stages);
        }
        stages
    }

    /// The stages of a complex transform. `from` is not [`Place::Second`], nor is `to` if the length has no kernels.
    fn complex_stages(&self, inverse: bool, from: Place, to: Place, stages: &mut Vec<Stage>) {
        let Some(chirp) = &self.chirp else { return self.smooth_stages(inverse, from, to, stages) };
        let (own, padded) = (self.inner().div_ceil(BLOCK), chirp.padded.div_ceil(BLOCK));
        stages.push(Stage { work: Work::Chirp, from, to: Place::Second, blocks: padded });
        self.smooth_stages(false, Place::Second, Place::First, stages);
        stages.push(Stage { work: Work::Convolve, from: Place::First, to: Place::First, blocks: padded });
        self.smooth_stages(true, Place::First, Place::Second, stages);
        stages.push(Stage { work: Work::Unchirp, from: Place::Second, to, blocks: own });
    }

    fn smooth_stages(&self, inverse: bool, from: Place, to: Place, stages: &mut Vec<Stage>) {
        if let Smooth::Split(split) = &self.smooth {
            let [first, second] = split.blocks(self.kernels);
            // The first half reads `from`, and the second one writes `to`: between them is other memory.
            stages.push(Stage { work: Work::FirstHalf(inverse), from, to, blocks: first });
            stages.push(Stage { work: Work::SecondHalf(inverse), from, to, blocks: second });
        } else {
            stages.push(Stage { work: Work::Whole(inverse), from, to, blocks: 1 });
        }
    }

    /// The number of complex numbers that are transformed.
    fn inner(&self) -> usize {
        if self.real && self.n.is_multiple_of(2) { self.n / 2 } else { self.n }
    }

    /// The number of parts in a row that is read, and in one that is written.
    pub fn lengths(&self, inverse: bool) -> (usize, usize) {
        match (self.real, inverse) {
            (false, _) => (2 * self.n, 2 * self.n),
            (true, false) => (self.n, 2 * (self.n / 2 + 1)),
            (true, true) => (2 * (self.n / 2 + 1), self.n),
        }
    }

    /// The number of rows that are transformed together.
    pub fn group(&self) -> usize {
        self.smooth.group(self.kernels)
    }

    /// The memory that a thread needs to [`run`](Self::run).
    pub fn room(&self) -> usize {
        self.own_room() + self.shared_room()
    }

    /// The memory that each thread needs for stages.
    pub fn own_room(&self) -> usize {
        with_alignment::<T>(self.smooth.room(self.kernels).next_multiple_of(ALIGNMENT))
    }

    /// The memory that all threads that share a row need for its stages.
    pub fn shared_room(&self) -> usize {
        let middle = self.smooth.middle(self.kernels).next_multiple_of(ALIGNMENT);
        with_alignment::<T>(middle + self.places * self.between * self.group())
    }

    /// Transforms `count` contiguous rows.
    ///
    /// # Safety
    /// `from` and `to` have `count` rows, which do not overlap, and `room` has [`room`](Self::room) parts.
    pub unsafe fn run(&self, from: *const T, to: *mut T, count: usize, inverse: bool, room: *mut T) {
        let (read, written) = self.lengths(inverse);
        let shared = aligned(room.wrapping_add(self.own_room()));
        let room = aligned(room);
        let group = self.group();
        for first in (0..count).step_by(group) {
            let rows = group.min(count - first);
            let (from, to) = (from.wrapping_add(first * read), to.wrapping_add(first * written));
            if let (Smooth::Woven(woven), None, false) = (&self.smooth, &self.chirp, self.real) {
                // This is the only stage. For short rows the overhead of stages would be noticeable.
                // SAFETY: the caller's promise; the kernels are of this CPU.
                unsafe { woven.run(self.kernels, (from, read), (to, written), rows, inverse, room) };
                continue;
            }
            for stage in &self.stages[usize::from(inverse)] {
                // SAFETY: the caller's promise; all blocks run sequentially.
                unsafe { self.work(stage, 0..stage.blocks, Memory { from, to, shared, room }, rows, inverse) };
            }
        }
    }

    /// The number of blocks of each stage of a row. They can run in parallel, after all blocks of the stage before.
    pub fn stages(&self, inverse: bool) -> impl Iterator<Item = usize> {
        self.stages[usize::from(inverse)].iter().map(|stage| stage.blocks)
    }

    /// Runs blocks of a stage of one row.
    ///
    /// # Safety
    /// `from` and `to` have a row, `shared` and `room` what [`shared_room`](Self::shared_room) and
    /// [`own_room`](Self::own_room) say. The stages before are done. The blocks belong to this stage, and run only once.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn stage(
        &self,
        stage: usize,
        blocks: Range<usize>,
        from: *const T,
        to: *mut T,
        inverse: bool,
        shared: *mut T,
        room: *mut T,
    ) {
        if let Some(stage) = self.stages[usize::from(inverse)].get(stage) {
            let memory = Memory { from, to, shared: aligned(shared), room: aligned(room) };
            // SAFETY: the caller's promise.
            unsafe { self.work(stage, blocks, memory, 1, inverse) };
        }
    }

    /// The memory of a place, and the number of parts in its rows.
    fn place(&self, place: Place, memory: Memory<T>, inverse: bool) -> (*mut T, usize) {
        let middle = self.smooth.middle(self.kernels).next_multiple_of(ALIGNMENT);
        let between = |at: usize| (memory.shared.wrapping_add(middle + at * self.group() * self.between), self.between);
        let (read, written) = self.lengths(inverse);
        match place {
            Place::Given => (memory.from.cast_mut(), read),
            Place::Result => (memory.to, written),
            Place::First => between(0),
            Place::Second => between(1),
        }
    }

    /// # Safety
    /// As [`stage`](Self::stage), for `rows` rows.
    unsafe fn work(&self, stage: &Stage, blocks: Range<usize>, memory: Memory<T>, rows: usize, inverse: bool) {
        let ((from, from_step), (to, to_step)) =
            (self.place(stage.from, memory, inverse), self.place(stage.to, memory, inverse));
        let kernels = self.kernels;
        match (stage.work, &self.smooth) {
            (Work::FirstHalf(reverse), Smooth::Split(split)) => {
                for block in blocks {
                    // SAFETY: the caller's promise; the kernels are of this CPU, here and below.
                    unsafe { split.columns(kernels, block, from, memory.shared, reverse, memory.room) };
                }
            }
            (Work::SecondHalf(reverse), Smooth::Split(split)) => {
                for block in blocks {
                    // SAFETY: as above.
                    unsafe { split.finish(kernels, block, memory.shared, to, reverse, memory.room) };
                }
            }
            (Work::Whole(reverse), Smooth::Together(panel)) => {
                let (from, to) = (Source::Rows(from, from_step, rows), Target::Rows(to, to_step, rows));
                // SAFETY: as above.
                unsafe { panel.run(kernels, from, to, reverse, 0, memory.room) };
            }
            (Work::Whole(reverse), Smooth::Woven(woven)) => {
                // SAFETY: as above.
                unsafe { woven.run(kernels, (from, from_step), (to, to_step), rows, reverse, memory.room) };
            }
            (work, _) => {
                for row in 0..rows {
                    let (from, to) = (from.wrapping_add(row * from_step), to.wrapping_add(row * to_step));
                    for block in blocks.clone() {
                        // SAFETY: as above, for this row.
                        unsafe { self.pointwise(work, block, from, to, inverse) };
                    }
                }
            }
        }
    }

    /// A block of a stage that is not a transform, of one row.
    ///
    /// # Safety
    /// As above.
    unsafe fn pointwise(&self, work: Work, block: usize, from: *const T, to: *mut T, inverse: bool) {
        let (n, inner, start, zero) = (self.n, self.inner(), block * BLOCK, T::of(0.0));
        let numbers = |all: usize| start..all.min(start + BLOCK);
        let (read, write) = (from.cast::<[T; 2]>(), to.cast::<[T; 2]>());
        // SAFETY: the caller's promise: rows have the lengths of the stages around a transform of this length, and tables have
        // the lengths of rows.
        unsafe {
            match work {
                Work::Whole(_) | Work::FirstHalf(_) | Work::SecondHalf(_) => write.write(read.read()),
                Work::Chirp | Work::Convolve | Work::Unchirp => {
                    let Some(chirp) = &self.chirp else { return };
                    let (table, all) = match work {
                        Work::Convolve => (&chirp.transform, chirp.padded),
                        _ => (&chirp.factors, inner),
                    };
                    let count = all.saturating_sub(start).min(BLOCK);
                    if count > 0 {
                        (self.kernels.product)(&Product {
                            from: from.add(2 * start),
                            to: to.add(2 * start),
                            by: table.as_ptr().add(2 * start),
                            n: count,
                            conjugate: inverse,
                        });
                    }
                    if matches!(work, Work::Chirp) {
                        let rest = start + count..chirp.padded.min(start + BLOCK);
                        to.add(2 * rest.start).write_bytes(0, 2 * rest.len());
                    }
                }
                Work::Untangle | Work::Tangle => {
                    if block == 0 {
                        let [a, b] = read.read();
                        if inverse {
                            let last = read.add(inner).read()[0];
                            write.write([a.plus(last), a.minus(last)]);
                        } else {
                            write.write([a.plus(b), zero]);
                            write.add(inner).write([a.minus(b), zero]);
                        }
                    }
                    let (start, end) = (start + 1, (start + BLOCK).min(inner / 2) + 1);
                    let turns = self.turns.as_ptr();
                    (self.kernels.untangle)(&Untangle { from, to, turns, half: inner, start, end, inverse });
                }
                Work::Widen => numbers(n).for_each(|at| write.add(at).write([from.add(at).read(), zero])),
                Work::Half => {
                    numbers(n / 2 + 1).for_each(|at| write.add(at).write(read.add(at).read()));
                    if block == 0 {
                        // The sum of real numbers is real.
                        to.add(1).write(zero);
                    }
                }
                Work::Mirror => numbers(n).for_each(|at| {
                    let [re, im] = read.add(at.min(n - at)).read();
                    write.add(at).write([
                        re,
                        match at {
                            0 => zero,
                            _ if at <= n / 2 => im,
                            _ => zero.minus(im),
                        },
                    ]);
                }),
                Work::Narrow => numbers(n).for_each(|at| to.add(at).write(read.add(at).read()[0])),
            }
        }
    }
}
