//! Reductions of a result that is still to be computed: its chain is evaluated as the fold goes, and what is folded does not
//! leave the cache. Elements are taken in the order in which they would be from memory, so that the bits do not tell.

use super::columns::{GROUP, WIDE, WIDTH, columns, fold_in};
use super::{Plan, Reduce, Rows, Run, Source, Target, goes_by_columns, rows};
use crate::backend::ViewMut;
use crate::backend::cpu::chain::{self, Evaluation, TILE};
use crate::backend::cpu::convert::Compute;
use crate::backend::cpu::fold::{BLOCK, Cascade, Fold, Max, Mean, Min, Prod, Sum};
use crate::backend::cpu::simd::dispatch;
use crate::backend::cpu::threads::Ptr;
use crate::backend::late;
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

// A tile is what a long fold takes at a time.
const _: () = assert!(TILE == BLOCK);

/// As [`reduce`](super::reduce), of a storage whose contents may be pending. False, and nothing has happened, if they are
/// not, or if they are computed in another type, or do not lie so that the result of a chain can be folded as it comes.
pub(crate) fn reduce(
    by: Reduce,
    input: &Storage,
    layout: &Layout,
    dtype: DType,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    match dtype {
        DType::F32 => reduce_as::<f32>(by, input, layout, dims, out),
        DType::F64 => reduce_as::<f64>(by, input, layout, dims, out),
        _ => Ok(false),
    }
}

fn reduce_as<C: Compute>(
    by: Reduce,
    input: &Storage,
    layout: &Layout,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<bool>
where
    Sum: Fold<C>,
    Mean: Fold<C>,
    Prod: Fold<C>,
    Max: Fold<C>,
    Min: Fold<C>,
{
    let numel = layout.numel();
    if numel == 0 || !layout.is_contiguous() || layout.offset() != 0 || input.bytes() != numel * size_of::<C>() {
        return Ok(false);
    }
    let plan = Plan::new(layout, dims, true)?;
    let by_columns = goes_by_columns(&plan, true);
    if !is_dense(&plan, by_columns) {
        return Ok(false);
    }
    let to = Target { ptr: Ptr::new(out.first()), dtype: out.dtype };
    late::fold(input, C::DTYPE, |parts, watched| {
        let chain = &chain::Plan::<C>::watching(parts, numel, watched);
        let run = Folding { plan: &plan, by_columns, chain, to };
        match by {
            Reduce::Sum => run.by(Sum),
            Reduce::Mean => run.by(Mean(plan.reduced.numel() as f64)),
            Reduce::Prod => run.by(Prod),
            Reduce::Max => run.by(Max),
            Reduce::Min => run.by(Min),
        }
    })
}

/// Whether the elements of contiguous results lie in memory one result after the other, or one row of results after the
/// other.
fn is_dense(plan: &Plan, by_columns: bool) -> bool {
    let ([across, _], [along]) = (plan.kept.inner(), plan.reduced.inner());
    let (results, length) = (plan.kept.numel(), plan.reduced.numel());
    let runs = plan.kept.inner_len() == results && plan.reduced.inner_len() == length;
    runs && if by_columns {
        across == 1 && along == results as isize
    } else {
        along == 1 && (results == 1 || across == length as isize)
    }
}

struct Folding<'a, C> {
    plan: &'a Plan,
    by_columns: bool,
    chain: &'a chain::Plan<'a, C>,
    to: Target,
}

impl<C: Compute> Folding<'_, C> {
    fn by<F: Fold<C>>(self, fold: F) {
        let Folding { plan, by_columns, chain, to } = self;
        let source = Pending { chain, length: plan.reduced.numel(), results: plan.kept.numel() };
        if by_columns {
            columns::<C, F>(fold, plan, &source, None, to);
        } else {
            rows::<C, F>(fold, plan, &source, None, to);
        }
    }
}

/// Elements as a chain computes them.
struct Pending<'a, C> {
    chain: &'a chain::Plan<'a, C>,
    /// Elements of a result.
    length: usize,
    results: usize,
}

/// Room for a tile.
type Window<C> = [MaybeUninit<C>; TILE];

impl<C: Compute, F: Fold<C>> Source<C, F> for Pending<'_, C> {
    fn rows(&self, fold: F, first: usize, _: isize, own: &[C], to: &mut [C]) {
        let mut evaluation = Evaluation::new(self.chain);
        let mut window: Window<C> = [const { MaybeUninit::uninit() }; TILE];
        let length = self.length;
        if length > TILE {
            for (i, to) in to.iter_mut().enumerate() {
                let start = (first + i) * length;
                *to = fold_long(&mut evaluation, fold, start..start + length, &mut window);
            }
            return;
        }
        let together = TILE / length;
        for (i, (to, own)) in to.chunks_mut(together).zip(own.chunks(together)).enumerate() {
            // SAFETY: the results are this thread's, and their elements fit a tile and the window.
            let from = unsafe {
                evaluation.tile((first + i * together) * length, to.len() * length, window.as_mut_ptr().cast())
            };
            dispatch(Rows { fold, from, step: length as isize, length, own, to });
        }
    }

    fn piece(&self, fold: F, result: usize, _: isize, elements: Range<usize>, _: C) -> C {
        let mut window: Window<C> = [const { MaybeUninit::uninit() }; TILE];
        let start = result * self.length;
        let elements = start + elements.start..start + elements.end;
        let mut all = Cascade::new(fold);
        all.push(fold_long(&mut Evaluation::new(self.chain), fold, elements, &mut window));
        all.total()
    }

    fn columns(&self, fold: F, first: usize, _: isize, elements: Range<usize>, own: &[C], sums: &mut [C]) {
        let (n, width) = (sums.len(), self.results);
        let mut evaluation = Evaluation::new(self.chain);
        // Short rows are folded all at once, others in groups.
        let at_once = if 2 * n <= WIDE { elements.len() } else { GROUP };
        let mut window: Vec<MaybeUninit<C>> = Vec::with_capacity(at_once * n);
        let window = window.as_mut_ptr().cast::<C>();
        for row in elements.clone().step_by(at_once) {
            let rows = at_once.min(elements.end - row);
            // Rows in one go, if there is nothing between them, or one by one.
            let (parts, len) = if n == width { (rows * n, TILE) } else { (rows * width, width) };
            let mut from = std::ptr::null();
            for done in (0..parts).step_by(len) {
                let (len, to) = if n == width { (len.min(parts - done), done) } else { (n, done / width * n) };
                // SAFETY: the columns and rows are this thread's. A tile has room for a part: it is as long as one, or
                // as wide as columns are taken at a time; the window has room for `at_once` rows.
                let at = unsafe { evaluation.tile(row * width + first + done, len, window.add(to)) };
                if done == 0 {
                    from = at;
                }
            }
            // Where the result is kept, its rows are as far apart as they will be.
            let step = if n == width || from == window.cast_const() { n } else { width };
            // SAFETY: so many rows were just computed, that far apart.
            unsafe { fold_in(fold, from, step as isize, rows, own, sums) };
        }
    }
}

// What is not a whole row is no longer than a tile.
const _: () = assert!(WIDTH <= TILE);

/// The fold of elements that follow each other, as of a run in memory.
fn fold_long<C: Compute, F: Fold<C>>(
    evaluation: &mut Evaluation<'_, '_, C>,
    fold: F,
    elements: Range<usize>,
    window: &mut Window<C>,
) -> C {
    let mut block = |start: usize| {
        let len = TILE.min(elements.end - start);
        // SAFETY: the elements are this thread's; the window has room for a tile.
        let from = unsafe { evaluation.tile(start, len, window.as_mut_ptr().cast()) };
        dispatch(Run { fold, from, len, own: F::START })
    };
    if elements.len() <= TILE {
        return block(elements.start);
    }
    let mut all = Cascade::new(fold);
    elements.clone().step_by(TILE).for_each(|start| all.push(block(start)));
    all.total()
}
