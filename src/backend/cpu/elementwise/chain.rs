//! Evaluates a chain of elementwise kernels tile by tile: intermediate results stay in the cache. A reduction can consume one
//! of the results tile by tile ([`ChainPlan::watching`]), so that it is not written to memory.

use crate::DType;
use crate::backend::View;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::deferred::{ChainOperand, ChainPart};
use crate::backend::spec::{Kernel, MOST_INPUTS};
use crate::layout::Walk;
use crate::zip::zip;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The elements of a tile, which go through all kernels: few enough that the CPU loads the next tile while it computes this
/// one, and enough to make call overhead negligible.
const STRETCH: usize = 256;
/// The prefetch distance in elements.
const AHEAD: usize = 4 * STRETCH;

/// Computes all parts, for `numel` elements in the compute dtype `compute`, f32 or f64.
pub(crate) fn compute(compute: DType, numel: usize, parts: &[ChainPart<'_>]) {
    match compute {
        DType::F64 => ChainPlan::<f64>::new(parts, numel, None).run(numel),
        _ => ChainPlan::<f32>::new(parts, numel, None).run(numel),
    }
}

/// Where a kernel finds a tile of numbers in the compute dtype.
#[derive(Clone, Copy)]
enum TilePlace {
    /// In memory, at the position of the tile.
    Direct(Ptr<u8>),
    /// In a buffer of the thread.
    Buffer(usize),
    /// In the window of the reduction that takes the result.
    Window,
}

/// An operand that must be gathered or converted.
struct Load {
    from: Ptr<u8>,
    dtype: DType,
    walk: Walk<1>,
    /// One repeated element: the buffer is filled once for all tiles.
    constant: bool,
    buffer: usize,
}

/// A part, with the places of its operands and result.
struct Line<'a> {
    kernel: &'a Kernel,
    from: SmallVec<[TilePlace; 3]>,
    to: TilePlace,
    then: Then,
}

/// What is done with a tile of results.
enum Then {
    /// Nothing: it is already in place.
    Stay,
    /// It is copied with non-temporal stores, while tiles of these operands are prefetched.
    Stream(Ptr<u8>, SmallVec<[Ptr<u8>; 2]>),
    /// It is rounded to its dtype, and stored if it is kept.
    Narrow(DType, Option<Ptr<u8>>),
}

/// How a chain is evaluated.
pub(crate) struct ChainPlan<'a, C> {
    loads: Vec<Load>,
    lines: Vec<Line<'a>>,
    buffers: usize,
    /// Where the watched result appears.
    watched: TilePlace,
    _compute: std::marker::PhantomData<C>,
}

impl<'a, C: Compute> ChainPlan<'a, C> {
    /// A plan whose evaluation returns the result of the last part, which has the compute dtype.
    pub(crate) fn watching(parts: &[ChainPart<'a>], numel: usize) -> ChainPlan<'a, C> {
        ChainPlan::new(parts, numel, parts.len().checked_sub(1))
    }

    fn new(parts: &[ChainPart<'a>], numel: usize, watched: Option<usize>) -> ChainPlan<'a, C> {
        // A result this large has left the cache by the time it is read again.
        let stream = numel * size_of::<C>() >= streaming::LARGE;
        let mut loads: Vec<(View<'a>, usize)> = Vec::new();
        let mut buffers = Buffers::new(parts);
        let mut lines: Vec<Line<'a>> = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let position = |operand: &ChainOperand<'a>| match operand {
                ChainOperand::Part(earlier) => lines[*earlier].to,
                ChainOperand::Memory(view) if view.dtype == C::DTYPE && view.layout.is_contiguous() => {
                    TilePlace::Direct(Ptr::new(view.first().cast_mut()))
                }
                ChainOperand::Memory(view) => {
                    let same = |(other, _): &&(View<'_>, usize)| {
                        other.storage.ptr_eq(view.storage) && other.layout == view.layout && other.dtype == view.dtype
                    };
                    let known = loads.iter().find(same).map(|&(_, buffer)| buffer);
                    TilePlace::Buffer(known.unwrap_or_else(|| {
                        let buffer = buffers.fresh();
                        loads.push((*view, buffer));
                        buffer
                    }))
                }
            };
            let from = part.operands.iter().map(position).collect();
            let result = |buffers: &mut Buffers| {
                if watched == Some(at) { TilePlace::Window } else { TilePlace::Buffer(buffers.take()) }
            };
            let (to, then) = match part.to.map(Ptr::new) {
                kept if part.dtype != C::DTYPE => (TilePlace::Buffer(buffers.take()), Then::Narrow(part.dtype, kept)),
                None => (result(&mut buffers), Then::Stay),
                Some(kept) if stream => (result(&mut buffers), Then::Stream(kept, SmallVec::new())),
                Some(kept) => (TilePlace::Direct(kept), Then::Stay),
            };
            buffers.free_after(at, |earlier| lines.get(earlier).map_or(to, |line| line.to));
            lines.push(Line { kernel: part.kernel, from, to, then });
        }
        share_out(parts, &mut lines, C::DTYPE);
        let load = |(view, buffer): (View<'a>, usize)| {
            let walk = Walk::new(view.layout.shape(), [view.layout]);
            let constant = walk.inner() == [0] && walk.inner_len() == numel;
            Load { from: Ptr::new(view.ptr().cast_mut()), dtype: view.dtype, walk, constant, buffer }
        };
        ChainPlan {
            watched: watched.and_then(|at| lines.get(at)).map_or(TilePlace::Window, |line| line.to),
            loads: loads.into_iter().map(load).collect(),
            lines,
            buffers: buffers.count,
            _compute: std::marker::PhantomData,
        }
    }

    fn run(&self, numel: usize) {
        parallel(numel, GRAIN, |range| {
            // SAFETY: these are elements of the chain, and no other thread has them; no result is watched.
            unsafe { Evaluation::new(self).run(range.start, range.len(), std::ptr::null_mut()) };
        });
    }
}

/// Distributes the operands that are read directly over the streamed results, for prefetching.
fn share_out(parts: &[ChainPart<'_>], lines: &mut [Line<'_>], compute: DType) {
    let mut ahead: SmallVec<[*const u8; 4]> = SmallVec::new();
    for operand in parts.iter().flat_map(|part| &part.operands) {
        if let ChainOperand::Memory(view) = operand
            && view.dtype == compute
            && view.layout.is_contiguous()
            && !ahead.contains(&view.first())
        {
            ahead.push(view.first());
        }
    }
    let streams = lines.iter_mut().filter_map(|line| match &mut line.then {
        Then::Stream(_, ahead) => Some(ahead),
        _ => None,
    });
    let mut streams: SmallVec<[_; 4]> = streams.collect();
    let count = streams.len();
    if count > 0 {
        ahead.into_iter().enumerate().for_each(|(at, first)| streams[at % count].push(Ptr::new(first.cast_mut())));
    }
}

/// The evaluation of a chain on one thread, with its buffers. Its writes are visible to others once it is dropped.
pub(crate) struct Evaluation<'p, 'a, C> {
    plan: &'p ChainPlan<'a, C>,
    own: Vec<MaybeUninit<C>>,
}

impl<C> Drop for Evaluation<'_, '_, C> {
    fn drop(&mut self) {
        streaming::fence();
    }
}

impl<'p, 'a, C: Compute> Evaluation<'p, 'a, C> {
    pub(crate) fn new(plan: &'p ChainPlan<'a, C>) -> Self {
        let mut this = Evaluation { plan, own: Vec::with_capacity(plan.buffers * STRETCH) };
        for load in plan.loads.iter().filter(|load| load.constant) {
            let to = this.buffer(load.buffer);
            // SAFETY: the element is repeated at stride 0, as often as there is room for in the buffer.
            load.walk.runs(0, 1, |[at], _| unsafe {
                C::load(load.dtype, load.from.get().offset(at * load.dtype.size() as isize), 0, to, STRETCH);
            });
        }
        this
    }

    fn buffer(&mut self, at: usize) -> *mut C {
        self.own.as_mut_ptr().cast::<C>().wrapping_add(at * STRETCH)
    }

    /// Computes `n` elements from `start` on, and returns the address of those of the watched result: `window`, or where they
    /// are kept.
    ///
    /// # Safety
    /// They are elements of the chain, and no other thread computes them. If a result is watched there is room for `n`
    /// elements at `window`.
    pub(crate) unsafe fn run(&mut self, start: usize, n: usize, window: *mut C) -> *const C {
        for done in (0..n).step_by(STRETCH) {
            // SAFETY: the caller's promise, for a part of the elements.
            unsafe { self.stretch(start + done, STRETCH.min(n - done), window.wrapping_add(done)) };
        }
        match self.plan.watched {
            TilePlace::Direct(first) => first.get().cast::<C>().wrapping_add(start),
            _ => window,
        }
    }

    /// # Safety
    /// As [`run`](Self::run), for at most [`STRETCH`] elements.
    unsafe fn stretch(&mut self, start: usize, n: usize, window: *mut C) {
        let plan = self.plan;
        for load in plan.loads.iter().filter(|load| !load.constant) {
            // SAFETY: the caller's promise; the vector has room for every buffer's tile.
            unsafe { load.read(start, n, self.buffer(load.buffer)) };
        }
        let own = self.buffer(0);
        let position = |position: TilePlace| match position {
            // Memory of at least `start + n` elements of the compute dtype.
            TilePlace::Direct(first) => first.get().cast::<C>().wrapping_add(start),
            TilePlace::Buffer(buffer) => own.wrapping_add(buffer * STRETCH),
            TilePlace::Window => window,
        };
        // A tile in the dtype of the result, whose elements are not larger than those of the compute dtype.
        let mut narrow = [const { MaybeUninit::<C>::uninit() }; STRETCH];
        for line in &plan.lines {
            let (mut from, to) = ([std::ptr::null(); MOST_INPUTS], position(line.to));
            for (from, &operand) in zip(&mut from[..], &line.from[..]) {
                *from = position(operand).cast_const().cast::<u8>();
            }
            // SAFETY: every place has room for `n` elements. Operands were written by earlier lines, loaded, or are
            // memory that nobody writes; the target is fresh memory, in which no other thread has this range, or a
            // buffer that no operand that is still needed lies in.
            unsafe {
                match line.kernel {
                    Kernel::Formula(formula, params) => formula.run(C::DTYPE, params, from, to.cast::<u8>(), n),
                    Kernel::Number(number) => (0..n).for_each(|i| to.add(i).write(C::from_scalar(*number))),
                }
            }
            // SAFETY: as above; kept memory has the elements' own size.
            unsafe {
                match &line.then {
                    Then::Stay => {}
                    Then::Stream(kept, ahead) => {
                        let kept = kept.get().cast::<C>().add(start);
                        let next = |first: &Ptr<u8>| first.get().cast::<C>().wrapping_add(start + AHEAD).cast_const();
                        let ahead: SmallVec<[*const C; 2]> = ahead.iter().map(next).collect();
                        streaming::copy(from_raw_parts(to, n), from_raw_parts_mut(kept, n), &ahead);
                    }
                    &Then::Narrow(dtype, kept) => {
                        let kept = kept.map(|first| first.get().add(start * dtype.size()));
                        let rounded = kept.unwrap_or(narrow.as_mut_ptr().cast::<u8>());
                        C::store(dtype, to, rounded, 1, n);
                        C::load(dtype, rounded, 1, to, n);
                    }
                }
            }
        }
    }
}

impl Load {
    /// # Safety
    /// `start + n` is at most the number of the operand's elements, and `to` has room for `n`.
    unsafe fn read<C: Compute>(&self, start: usize, n: usize, to: *mut C) {
        let [step] = self.walk.inner();
        let mut done = 0;
        self.walk.runs(start, start + n, |[at], len| {
            // SAFETY: the walk yields positions of the layout, inside its storage (L2), `n` in all.
            unsafe {
                let first = self.from.get().offset(at * self.dtype.size() as isize);
                C::load(self.dtype, first, step, to.add(done), len);
            }
            done += len;
        });
    }
}

/// Allocates buffers, and frees those of results that no later part reads.
struct Buffers {
    count: usize,
    free: Vec<usize>,
    /// For each part, the last one that reads it.
    last: Vec<usize>,
}

impl Buffers {
    fn new(parts: &[ChainPart<'_>]) -> Buffers {
        let mut last: Vec<usize> = (0..parts.len()).collect();
        for (at, part) in parts.iter().enumerate() {
            for operand in &part.operands {
                if let ChainOperand::Part(earlier) = operand {
                    last[*earlier] = at;
                }
            }
        }
        Buffers { count: 0, free: Vec::new(), last }
    }

    /// A buffer for a part's result.
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| self.fresh())
    }

    /// A buffer that is not reused: operands are loaded before the first part runs.
    fn fresh(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }

    /// Frees the buffers whose last reader is part `at`.
    fn free_after(&mut self, at: usize, position: impl Fn(usize) -> TilePlace) {
        for earlier in 0..=at {
            if let (true, TilePlace::Buffer(buffer)) = (self.last[earlier] == at, position(earlier)) {
                self.free.push(buffer);
            }
        }
    }
}
