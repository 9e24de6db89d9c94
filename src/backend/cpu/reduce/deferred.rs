//! Reductions of a deferred result: its chain is evaluated during the fold, and the elements stay in the cache. They are folded in
//! the same order as from memory, so that the bits are the same.

use super::columns::{WIDE, columns, fold_in};
use super::kernels::{GROUP, Kernels, cascade};
use super::{FoldPlan, FoldSource, Reduce, Target, fold_side_by_side, goes_by_columns, rows};
use crate::backend::cpu::elementwise::chain::{self, Evaluation};
use crate::backend::cpu::reduce::fold::{BLOCK, Fold, Max, Mean, Min, Prod};
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::threads::Ptr;
use crate::backend::{View, ViewMut, deferred};
use crate::{DType, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// As [`reduce`](super::reduce), for elements that may be pending. Returns false without doing anything if they are not
/// pending, are computed in another type, or have a layout for which the results of a chain cannot be folded in order.
pub(crate) fn reduce(by: Reduce, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<bool> {
    match input.dtype {
        DType::F32 => reduce_as::<f32>(by, input, dims, out),
        DType::F64 => reduce_as::<f64>(by, input, dims, out),
        _ => Ok(false),
    }
}

fn reduce_as<C: Compute>(by: Reduce, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<bool>
where
    Mean: Fold<C>,
    Prod: Fold<C>,
    Max: Fold<C>,
    Min: Fold<C>,
{
    let View { storage, layout, .. } = input;
    let numel = layout.numel();
    if numel == 0 || !layout.is_contiguous() || layout.offset() != 0 || storage.bytes() != numel * size_of::<C>() {
        return Ok(false);
    }
    let plan = FoldPlan::new(layout, dims, true);
    let by_columns = goes_by_columns(&plan, true);
    if !is_dense(&plan, by_columns) {
        return Ok(false);
    }
    let to = Target { ptr: Ptr::new(out.first()), dtype: out.dtype };
    deferred::fold(storage, C::DTYPE, |parts| {
        let chain = &chain::ChainPlan::<C>::watching(parts, numel);
        let source = Pending { chain, length: plan.reduced.numel(), results: plan.kept.numel() };
        let mean = Mean(plan.reduced.numel() as f64);
        let fold: &dyn Kernels<C> = match by {
            Reduce::Sum => &Mean(1.0),
            Reduce::Mean => &mean,
            Reduce::Prod => &Prod,
            Reduce::Max => &Max,
            Reduce::Min => &Min,
        };
        if by_columns { columns(fold, &plan, &source, None, to) } else { rows(fold, &plan, &source, None, to) }
    })
}

/// Whether the elements are contiguous, one result after the other or one row of results after the other.
fn is_dense(plan: &FoldPlan, by_columns: bool) -> bool {
    let ([across, _], [along]) = (plan.kept.inner(), plan.reduced.inner());
    let (results, length) = (plan.kept.numel(), plan.reduced.numel());
    let runs = plan.kept.inner_len() == results && plan.reduced.inner_len() == length;
    runs && if by_columns {
        across == 1 && along == results as isize
    } else {
        along == 1 && (results == 1 || across == length as isize)
    }
}

/// Elements that a chain computes.
struct Pending<'a, C> {
    chain: &'a chain::ChainPlan<'a, C>,
    /// The number of elements of a result.
    length: usize,
    results: usize,
}

/// The workspace of a long fold: one block of elements.
type Window<C> = [MaybeUninit<C>; BLOCK];

impl<C: Compute> FoldSource<C> for Pending<'_, C> {
    fn rows(&self, fold: &dyn Kernels<C>, first: usize, _: isize, center: &[C], to: &mut [C]) {
        let mut evaluation = Evaluation::new(self.chain);
        let mut window: Window<C> = [const { MaybeUninit::uninit() }; BLOCK];
        let length = self.length;
        if length > BLOCK {
            for (i, to) in to.iter_mut().enumerate() {
                let start = (first + i) * length;
                *to = fold_long(&mut evaluation, fold, start..start + length, &mut window);
            }
            return;
        }
        let together = BLOCK / length;
        for (i, (to, center)) in to.chunks_mut(together).zip(center.chunks(together)).enumerate() {
            // SAFETY: the results are this thread's, and their elements fit the window.
            unsafe {
                let start = (first + i * together) * length;
                let from = evaluation.run(start, to.len() * length, window.as_mut_ptr().cast());
                fold.runs(from, length as isize, length, center, to);
            }
        }
    }

    fn piece(&self, fold: &dyn Kernels<C>, result: usize, _: isize, elements: Range<usize>, _: C) -> C {
        let mut window: Window<C> = [const { MaybeUninit::uninit() }; BLOCK];
        let start = result * self.length;
        let elements = start + elements.start..start + elements.end;
        let mut all = cascade(fold);
        all.push(fold_long(&mut Evaluation::new(self.chain), fold, elements, &mut window));
        all.total()
    }

    fn columns(
        &self,
        fold: &dyn Kernels<C>,
        first: usize,
        _: isize,
        elements: Range<usize>,
        center: &[C],
        sums: &mut [C],
    ) {
        let (n, width) = (sums.len(), self.results);
        let mut evaluation = Evaluation::new(self.chain);
        // Short rows are folded all at once, others in groups.
        let at_once = if 2 * n <= WIDE { elements.len() } else { GROUP };
        let mut window: Vec<MaybeUninit<C>> = Vec::with_capacity(at_once * n);
        let window = window.as_mut_ptr().cast::<C>();
        for row in elements.clone().step_by(at_once) {
            let rows = at_once.min(elements.end - row);
            let start = row * width + first;
            // SAFETY: the columns and rows are this thread's, and the window has room for `at_once` rows.
            unsafe {
                // All rows at once if they are contiguous, or one by one.
                let from = if n == width {
                    evaluation.run(start, rows * n, window)
                } else {
                    let from = evaluation.run(start, n, window);
                    for r in 1..rows {
                        evaluation.run(start + r * width, n, window.add(r * n));
                    }
                    from
                };
                // If the result is kept, its rows have their final stride.
                let step = if from == window.cast_const() { n } else { width };
                fold_in(fold, from, step as isize, rows, center, sums);
            }
        }
    }
}

/// The fold of consecutive elements, as of a contiguous run in memory.
fn fold_long<C: Compute>(
    evaluation: &mut Evaluation<'_, '_, C>,
    fold: &dyn Kernels<C>,
    elements: Range<usize>,
    window: &mut Window<C>,
) -> C {
    let mut block = |start: usize| {
        let len = BLOCK.min(elements.end - start);
        // SAFETY: the elements are this thread's; the window has room for a block.
        unsafe {
            let from = evaluation.run(start, len, window.as_mut_ptr().cast());
            fold_side_by_side(fold, from, len, fold.start())
        }
    };
    if elements.len() <= BLOCK {
        return block(elements.start);
    }
    let mut all = cascade(fold);
    elements.clone().step_by(BLOCK).for_each(|start| all.push(block(start)));
    all.total()
}
