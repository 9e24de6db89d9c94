//! Reductions of dimensions of a strided view: sums, means, products, maxima and minima, and sums of the differences of elements
//! from the center of their result.
//!
//! There are two access patterns. If the reduced dimensions are innermost, each result is folded separately from long runs
//! (`rows`). If a kept dimension is innermost, whole rows are folded into a row of results (`columns`). Both read their elements
//! from a [`FoldSource`]: memory, or a chain that is evaluated meanwhile (`deferred`). Work is cut into pieces whose bounds depend
//! only on the shape, and the results of the pieces are joined in a fixed order, so that the bits do not depend on the number of
//! threads.

pub(crate) mod arg;
mod columns;
mod deferred;
pub(crate) mod fold;
mod kernels;
pub(crate) mod scan;

use crate::backend::cpu::reduce::fold::{
    Deviation, Fold, Greatest, LogSumExp, Max, Mean, MeanDifference, Min, Prod, Sum,
};
use crate::backend::cpu::reduce::kernels::{Kernels, cascade};
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::{CenteredReduce, Reduce};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::memory::scratch;
use crate::order::sort_few_by_key;
use crate::zip::zip;
use crate::{DType, Result};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::ops::Range;

pub(crate) use deferred::reduce as reduce_deferred;

/// Folds the dimensions `dims` of `input`. `out` is contiguous and has the other dimensions in their order, possibly with
/// dimensions of size 1 between them; it does not share the storage of `input`. Empty sums and products are 0 and 1.
pub(crate) fn reduce(
    op: &'static str,
    by: Reduce,
    input: View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => reduce_floats::<f32>(by, input, dims, out),
        DType::F64 => reduce_floats::<f64>(by, input, dims, out),
        _ if by == Reduce::Mean => bail!(Backend, op, "there is no kernel for the mean of {}", input.dtype),
        DType::U64 => {
            let layout = out.layout;
            let mut out = out.part(layout);
            out.dtype = DType::I64;
            reduce_integers(by, i64::MIN, View { dtype: DType::I64, ..input }, dims, &mut out)
        }
        _ => reduce_integers(by, 0, input, dims, out),
    }
}

/// Unsigned integers are read as signed ones: sums and products that wrap have the same bits, and flipping the bits of `flip` gives
/// them the same order.
fn reduce_integers(by: Reduce, flip: i64, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()> {
    match by {
        Reduce::Sum | Reduce::Mean => reduce_by::<i64>(&Sum, input, dims, None, out),
        Reduce::Prod => reduce_by::<i64>(&Prod, input, dims, None, out),
        Reduce::Max => reduce_by::<i64>(&Greatest { flip }, input, dims, None, out),
        Reduce::Min => reduce_by::<i64>(&Greatest { flip: !flip }, input, dims, None, out),
    }
}

fn reduce_floats<C: Compute>(by: Reduce, input: View<'_>, dims: &[usize], out: &mut ViewMut<'_>) -> Result<()>
where
    Mean: Fold<C>,
    Prod: Fold<C>,
    Max: Fold<C>,
    Min: Fold<C>,
{
    match by {
        Reduce::Sum => reduce_by::<C>(&Mean(1.0), input, dims, None, out),
        Reduce::Mean => {
            let count = dims.iter().map(|&d| input.layout.shape()[d] as f64).product();
            reduce_by::<C>(&Mean(count), input, dims, None, out)
        }
        Reduce::Prod => reduce_by::<C>(&Prod, input, dims, None, out),
        Reduce::Max => reduce_by::<C>(&Max, input, dims, None, out),
        Reduce::Min => reduce_by::<C>(&Min, input, dims, None, out),
    }
}

/// As [`reduce`], with a center for each result: `center` is contiguous, has as many elements as `out`, and is of the
/// compute dtype of the input, which is one of floats. There are elements in the input.
pub(crate) fn reduce_centered(
    op: &'static str,
    by: CenteredReduce,
    input: View<'_>,
    dims: &[usize],
    center: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if center.dtype != input.dtype.compute_dtype() || center.layout.numel() != out.layout.numel() {
        bail!(
            Backend,
            op,
            "expected {} centers of {}, got {} of {}",
            out.layout.numel(),
            input.dtype.compute_dtype(),
            center.layout.numel(),
            center.dtype
        );
    }
    match (by, center.dtype) {
        (CenteredReduce::Deviation(n), DType::F32) => reduce_by::<f32>(&Deviation(n), input, dims, Some(center), out),
        (CenteredReduce::Deviation(n), DType::F64) => reduce_by::<f64>(&Deviation(n), input, dims, Some(center), out),
        (CenteredReduce::Mean(n), DType::F32) => reduce_by::<f32>(&MeanDifference(n), input, dims, Some(center), out),
        (CenteredReduce::Mean(n), DType::F64) => reduce_by::<f64>(&MeanDifference(n), input, dims, Some(center), out),
        (CenteredReduce::LogSumExp, DType::F32) => reduce_by::<f32>(&LogSumExp, input, dims, Some(center), out),
        (CenteredReduce::LogSumExp, DType::F64) => reduce_by::<f64>(&LogSumExp, input, dims, Some(center), out),
        (_, dtype) => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

fn reduce_by<C: Compute>(
    fold: &dyn Kernels<C>,
    input: View<'_>,
    dims: &[usize],
    center: Option<View<'_>>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    debug_assert!(out.layout.is_contiguous());
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if input.layout.numel() == 0 {
        let mut nothing = [fold.start()];
        fold.finish(&mut nothing, &[fold.start()]);
        crate::backend::cpu::elementwise::copy::fill(out, nothing[0].to_scalar());
        return Ok(());
    }
    let center = center.and_then(|center| center.as_slice::<C>());
    let plan = FoldPlan::new(input.layout, dims, true);
    let data = Data { ptr: Ptr::new(input.ptr().cast_mut()), dtype: input.dtype, offset: plan.offset };
    let to = Target { ptr: Ptr::new(out.first()), dtype: out.dtype };
    let source = Memory { plan: &plan, data };
    if goes_by_columns(&plan, data.dtype == C::DTYPE && fold.is_light()) {
        columns::columns(fold, &plan, &source, center, to)
    } else {
        rows(fold, &plan, &source, center, to)
    }
}

/// The source of elements. `from` is the position of a result in the kept walk, `center` are the results' centers.
trait FoldSource<C>: Sync {
    /// Folds neighbouring results of the kept walk separately; `first` is the number of the first one.
    fn rows(&self, fold: &dyn Kernels<C>, first: usize, from: isize, center: &[C], to: &mut [C]);

    /// Folds some of the elements of result number `result`.
    fn piece(&self, fold: &dyn Kernels<C>, result: usize, from: isize, elements: Range<usize>, center: C) -> C;

    /// Folds some of the elements of neighbouring results into `sums`; `first` is the number of the first one.
    fn columns(
        &self,
        fold: &dyn Kernels<C>,
        first: usize,
        from: isize,
        elements: Range<usize>,
        center: &[C],
        sums: &mut [C],
    );
}

/// Elements in memory.
struct Memory<'a> {
    plan: &'a FoldPlan,
    data: Data,
}

impl<C: Compute> FoldSource<C> for Memory<'_> {
    fn rows(&self, fold: &dyn Kernels<C>, _: usize, from: isize, center: &[C], to: &mut [C]) {
        let &Memory { plan, data } = self;
        let ([across, _], length) = (plan.kept.inner(), plan.reduced.numel());
        // Results whose elements are one contiguous run need no walk.
        if data.dtype == C::DTYPE && plan.reduced.inner() == [1] && plan.reduced.inner_len() == length {
            let mut first = plan.offset;
            plan.reduced.runs(0, 1, |[at], _| first = at);
            // SAFETY: the walks' positions are those of elements (L2), which are of type C; from the first on, `length`
            // of them are contiguous.
            return unsafe { fold.runs(data.at(from, first).cast::<C>(), across, length, center, to) };
        }
        for (i, (result, &center)) in zip(&mut to[..], center).enumerate() {
            *result = fold_piece(fold, plan, data, center, from + i as isize * across, 0, length);
        }
    }

    fn piece(&self, fold: &dyn Kernels<C>, _: usize, from: isize, elements: Range<usize>, center: C) -> C {
        fold_piece(fold, self.plan, self.data, center, from, elements.start, elements.end)
    }

    fn columns(
        &self,
        fold: &dyn Kernels<C>,
        _: usize,
        from: isize,
        elements: Range<usize>,
        center: &[C],
        sums: &mut [C],
    ) {
        columns::fold_rows(fold, self.plan, self.data, center, from, elements, sums);
    }
}

/// Whether to fold neighbouring results together: if their stride is smaller than that of the reduced elements, or if these are so
/// few that folding each result separately would be mostly overhead. Results of contiguous `plain` elements, which need no
/// conversion and little computation, are always folded separately.
pub(super) fn goes_by_columns(plan: &FoldPlan, plain: bool) -> bool {
    let ([across, _], [along]) = (plan.kept.inner(), plan.reduced.inner());
    let (row, length) = (plan.kept.inner_len(), plan.reduced.numel());
    let short = length < 64 && !(plain && along == 1 && plan.reduced.inner_len() == length);
    let closer = along != 0 && across.unsigned_abs() < along.unsigned_abs();
    // Contiguous rows are read many at a time, however short they are.
    let dense = across == 1 && along == row as isize;
    across != 0 && ((row >= 16 && (closer || short)) || (row >= 2 && dense))
}

/// The walk over the results, with their sources and targets, and the walk over the reduced elements of each.
pub(super) struct FoldPlan {
    pub kept: Walk<2>,
    pub reduced: Walk<1>,
    /// The layout's offset, which the positions of both walks contain: it is subtracted from their sum.
    pub offset: isize,
}

impl FoldPlan {
    /// The layout has elements. The results are in memory order. With `any_order` the reduced elements are in memory order, too, in
    /// runs as long as possible; otherwise in row-major order.
    pub fn new(layout: &Layout, dims: &[usize], any_order: bool) -> FoldPlan {
        // Sizes with strides. This plan dominates small reductions, so that it creates no layouts.
        let (mut kept, mut reduced) = (SmallVec::<[_; 5]>::new(), SmallVec::<[_; 5]>::new());
        let (offset, mut first, mut across) = (layout.offset() as isize, layout.offset() as isize, 1);
        for dim in (0..layout.rank()).rev() {
            let (size, stride) = (layout.shape()[dim], layout.strides()[dim]);
            if !dims.contains(&dim) {
                kept.push((size, [stride, across]));
                across *= size as isize;
            } else if any_order && stride < 0 {
                first += (size as isize - 1) * stride;
                reduced.push((size, [-stride]));
            } else {
                reduced.push((size, [stride]));
            }
        }
        kept.reverse();
        reduced.reverse();
        sort_few_by_key(&mut kept, |&(_, [stride, _])| by_reach(stride));
        if any_order {
            sort_few_by_key(&mut reduced, |&(_, [stride])| by_reach(stride));
        }
        FoldPlan { kept: Walk::over(&kept, [offset, 0]), reduced: Walk::over(&reduced, [first]), offset }
    }
}

/// The key that sorts dimensions by descending stride; those with stride 0 come first.
fn by_reach(stride: isize) -> Reverse<usize> {
    Reverse(match stride.unsigned_abs() {
        0 => usize::MAX,
        stride => stride,
    })
}

/// The dimensions of a layout in this order.
pub(super) fn outermost_first(layout: &Layout) -> SmallVec<[isize; 5]> {
    let mut order: SmallVec<[isize; 5]> = (0..layout.rank() as isize).collect();
    sort_few_by_key(&mut order, |&dim| by_reach(layout.strides()[dim as usize]));
    order
}

/// The input without its borrow.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub ptr: Ptr<u8>,
    pub dtype: DType,
    pub offset: isize,
}

impl Data {
    /// The address of the element at a position of the kept walk and one of the reduced walk.
    ///
    /// # Safety
    /// Both positions come from the walks of the plan that this input was made with.
    #[inline(always)]
    pub unsafe fn at(&self, kept: isize, reduced: isize) -> *const u8 {
        // SAFETY: the sum of a kept and a reduced index is an index of the layout, whose position lies inside (L2).
        unsafe { self.ptr.get().offset((kept + reduced - self.offset) * self.dtype.size() as isize) }
    }
}

/// The output without its borrow.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub ptr: Ptr<u8>,
    pub dtype: DType,
}

impl Target {
    /// Writes `n` results from position `at` on, `stride` apart.
    ///
    /// # Safety
    /// The positions lie in the output, and no other thread writes them; `from` is valid for `n` reads.
    #[inline]
    pub unsafe fn write<C: Compute>(&self, from: *const C, at: isize, stride: isize, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.ptr.get().offset(at * self.dtype.size() as isize);
            if self.dtype == C::DTYPE && n == 1 {
                to.cast::<C>().write(from.read());
            } else {
                C::store(self.dtype, from, to, stride, n);
            }
        }
    }
}

/// The number of elements that are gathered or converted at a time: small enough for the L1 cache.
pub(super) const TILE: usize = 1024;
/// The number of elements of one result that are folded in one piece.
pub(super) const PIECE: usize = 1 << 16;
/// The number of results that are written together.
pub(super) const BATCH: usize = 128;

/// Folds each result from its own run or runs.
fn rows<C: Compute>(
    fold: &dyn Kernels<C>,
    plan: &FoldPlan,
    source: &dyn FoldSource<C>,
    center: Option<&[C]>,
    to: Target,
) -> Result<()> {
    let (results, length) = (plan.kept.numel(), plan.reduced.numel());
    let [across, out_step] = plan.kept.inner();
    let pieces = length.div_ceil(PIECE);
    if pieces > 1 {
        return rows_in_pieces(fold, plan, source, center, to, pieces);
    }
    parallel(results, (GRAIN / length).max(1), |range| {
        let (mut batch, mut centers) = ([fold.start(); BATCH], [fold.start(); BATCH]);
        let mut result = range.start;
        plan.kept.runs(range.start, range.end, |[from, at], len| {
            for done in (0..len).step_by(BATCH) {
                let n = BATCH.min(len - done);
                let (start, position) = (from + done as isize * across, at + done as isize * out_step);
                centers_at(center, position, out_step, &mut centers[..n]);
                source.rows(fold, result, start, &centers[..n], &mut batch[..n]);
                result += n;
                fold.finish(&mut batch[..n], &centers[..n]);
                // SAFETY: positions of the output from its walk; threads have disjoint ranges of them.
                unsafe { to.write(batch.as_ptr(), position, out_step, n) };
            }
        });
    });
    Ok(())
}

/// Reads the centers of the results from position `at` on, `step` apart. Without centers, `to` is unchanged.
#[inline]
pub(super) fn centers_at<C: Copy>(center: Option<&[C]>, at: isize, step: isize, to: &mut [C]) {
    let Some(center) = center else { return };
    for (i, to) in to.iter_mut().enumerate() {
        // Positions of results are not negative, and below their number.
        if let Some(&number) = center.get((at + i as isize * step) as usize) {
            *to = number;
        }
    }
}

/// The same for few results of many elements: threads share a result, in pieces.
fn rows_in_pieces<C: Compute>(
    fold: &dyn Kernels<C>,
    plan: &FoldPlan,
    source: &dyn FoldSource<C>,
    center: Option<&[C]>,
    to: Target,
    pieces: usize,
) -> Result<()> {
    let (results, length) = (plan.kept.numel(), plan.reduced.numel());
    // (results, pieces)
    let mut partial = scratch::filled("reduce", fold.start(), results.saturating_mul(pieces))?;
    let parts = Ptr::new(partial.as_mut_ptr());
    parallel(partial.len(), 1, |range| {
        for unit in range {
            let (result, start) = (unit / pieces, unit % pieces * PIECE);
            plan.kept.runs(result, result + 1, |[from, at], _| {
                let [number] = center_at(fold, center, at);
                let value = source.piece(fold, result, from, start..length.min(start + PIECE), number);
                // SAFETY: every unit has its own element of the vector.
                unsafe { parts.get().add(unit).write(value) };
            });
        }
    });
    let mut parts = partial.chunks_exact(pieces);
    let [_, out_step] = plan.kept.inner();
    plan.kept.runs(0, results, |[_, at], len| {
        for i in 0..len as isize {
            let mut all = cascade(fold);
            parts.next().unwrap_or_default().iter().for_each(|&part| all.push(part));
            let mut value = [all.total()];
            fold.finish(&mut value, &center_at(fold, center, at + i * out_step));
            // SAFETY: a position of the output from its walk.
            unsafe { to.write(value.as_ptr(), at + i * out_step, 1, 1) };
        }
    });
    Ok(())
}

/// The center of the result at a position.
fn center_at<C: Copy>(fold: &dyn Kernels<C>, center: Option<&[C]>, at: isize) -> [C; 1] {
    let mut number = [fold.start()];
    centers_at(center, at, 1, &mut number);
    number
}

/// The fold of the elements `start..end` of one result.
fn fold_piece<C: Compute>(
    fold: &dyn Kernels<C>,
    plan: &FoldPlan,
    data: Data,
    center: C,
    from: isize,
    start: usize,
    end: usize,
) -> C {
    let mut all = cascade(fold);
    let [along] = plan.reduced.inner();
    if data.dtype == C::DTYPE && along == 1 && plan.reduced.inner_len() >= 64 {
        plan.reduced.runs(start, end, |[at], len| {
            // SAFETY: `len` contiguous elements of type C start at the run's position (L2).
            all.push(unsafe { fold_side_by_side(fold, data.at(from, at).cast::<C>(), len, center) });
        });
        return all.total();
    }
    for_tiles::<C>(plan, data, from, start, end, |tile, _| {
        // SAFETY: the tile is a slice.
        all.push(unsafe { fold_side_by_side(fold, tile.as_ptr(), tile.len(), center) });
    });
    all.total()
}

/// Calls `f` with the elements `start..end` of one result, in tiles that are converted and gathered if necessary, and with the
/// index of the tile's first element.
pub(super) fn for_tiles<C: Compute>(
    plan: &FoldPlan,
    data: Data,
    from: isize,
    start: usize,
    end: usize,
    mut f: impl FnMut(&[C], usize),
) {
    let [along] = plan.reduced.inner();
    let (mut filled, mut first) = (0, start);
    if data.dtype == C::DTYPE && along == 1 && plan.reduced.inner_len() >= 64 {
        return plan.reduced.runs(start, end, |[at], len| {
            // SAFETY: `len` contiguous elements of type C start at the run's position (L2).
            let run = unsafe { std::slice::from_raw_parts(data.at(from, at).cast::<C>(), len) };
            for tile in run.chunks(TILE) {
                f(tile, first);
                first += tile.len();
            }
        });
    }
    let mut tile = [const { std::mem::MaybeUninit::<C>::uninit() }; TILE];
    plan.reduced.runs(start, end, |[at], len| {
        let mut done = 0;
        while done < len {
            let n = (len - done).min(TILE - filled);
            // SAFETY: `n` positions of the walk (L2); the tile has room for them behind those already filled.
            unsafe {
                let to = tile.as_mut_ptr().add(filled).cast::<C>();
                C::load(data.dtype, data.at(from, at + done as isize * along), along, to, n);
            }
            (done, filled) = (done + n, filled + n);
            if filled == TILE {
                // SAFETY: the loads have written all of it.
                f(unsafe { std::slice::from_raw_parts(tile.as_ptr().cast::<C>(), TILE) }, first);
                (filled, first) = (0, first + TILE);
            }
        }
    });
    if filled > 0 {
        // SAFETY: the loads have written this much.
        f(unsafe { std::slice::from_raw_parts(tile.as_ptr().cast::<C>(), filled) }, first);
    }
}

/// The fold of `len` contiguous elements.
///
/// # Safety
/// There are `len` elements from `from` on.
#[inline]
unsafe fn fold_side_by_side<C: Compute>(fold: &dyn Kernels<C>, from: *const C, len: usize, center: C) -> C {
    let mut to = [fold.start()];
    // SAFETY: the caller's promise.
    unsafe { fold.runs(from, 0, len, &[center], &mut to) };
    to[0]
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
pub(super) mod tests;
