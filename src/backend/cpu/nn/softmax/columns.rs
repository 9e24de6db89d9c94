//! Many rows side by side, in place. Memory is read in its own order: once for the maximum and the sum of each row, and
//! once for the results.

use super::{RawOperand, SoftmaxKind};
use crate::backend::cpu::nn::fused::Float;
use crate::backend::cpu::reduce::fold::{Fold, Max};
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::layout::Walk;
use crate::zip::zip;

/// Rows processed together. They are columns in memory: element `i` of one is next to element `i` of the next.
const WIDTH: usize = 512;
/// Elements of all these rows that form one piece of work.
const PIECE: usize = 1 << 16;

/// All operands are of type C, and contiguous along the walk's innermost dimension.
pub(super) fn columns<C: Float, const N: usize>(
    kind: SoftmaxKind,
    x: [RawOperand; N],
    y: RawOperand,
    walk: &Walk<3>,
    length: usize,
) where
    Max: Fold<C>,
{
    let (run, rows) = (walk.inner_len(), walk.numel());
    let tiles = run.div_ceil(WIDTH);
    let height = (PIECE / run.min(WIDTH)).max(8);
    let pieces = length.div_ceil(height);
    let bounds = |tile: usize| {
        let start = tile / tiles * run + tile % tiles * WIDTH;
        (start, (start + WIDTH).min((tile / tiles + 1) * run))
    };
    // The part of a tile's columns from element `first` to `last`.
    let part = |at: [isize; 3], first: usize, last: usize| {
        // SAFETY: the walk yields positions of rows (L2), which have elements up to `length`.
        unsafe {
            ColumnPart::<C> {
                kind,
                x: x[0].at(at[0], first).cast::<C>(),
                y: x[N - 1].at(at[N - 1], first).cast::<C>(),
                to: y.at(at[2], first).cast::<C>(),
                steps: [x[0].stride, x[N - 1].stride, y.stride],
                length: last - first,
            }
        }
    };
    let units = rows / run * tiles;
    if pieces == 1 {
        return parallel(units, (GRAIN / (run.min(WIDTH) * length)).max(1), |range| {
            for (start, end) in range.map(bounds) {
                walk.runs(start, end, |at, n| {
                    let (mut max, mut sum) = ([Max::START; WIDTH], [C::ZERO; WIDTH]);
                    let (max, sum) = (&mut max[..n], &mut sum[..n]);
                    let part = part(at, 0, length);
                    dispatch(Gather { part, max: &mut *max, sum: &mut *sum });
                    finish(kind, sum);
                    dispatch(Spread { part, max, sum });
                });
            }
        });
    }
    // (pieces, rows) each
    let (mut tops, mut sums) = (vec![Max::START; pieces * rows], vec![C::ZERO; pieces * rows]);
    let parts = [Ptr::new(tops.as_mut_ptr()), Ptr::new(sums.as_mut_ptr())];
    // SAFETY: the callers give each thread different pieces of columns.
    let slices = |piece: usize, start: usize, n: usize| unsafe {
        parts.each_ref().map(|part| std::slice::from_raw_parts_mut(part.get().add(piece * rows + start), n))
    };
    let ends = |piece: usize| (piece * height, length.min((piece + 1) * height));
    parallel(units * pieces, 1, |range| {
        for unit in range {
            let (piece, (start, end)) = (unit % pieces, bounds(unit / pieces));
            walk.runs(start, end, |at, n| {
                let ([max, sum], (first, last)) = (slices(piece, start, n), ends(piece));
                dispatch(Gather { part: part(at, first, last), max, sum });
            });
        }
    });
    parallel(units, (GRAIN / (run.min(WIDTH) * pieces)).max(1), |range| {
        for (start, end) in range.map(bounds) {
            let [max, sum] = slices(0, start, end - start);
            for piece in 1..pieces {
                let [other, part] = slices(piece, start, end - start);
                dispatch(Join { kind, max: &mut *max, sum: &mut *sum, other, part });
            }
            finish(kind, sum);
        }
    });
    parallel(units * pieces, 1, |range| {
        for unit in range {
            let (piece, (start, end)) = (unit % pieces, bounds(unit / pieces));
            walk.runs(start, end, |at, n| {
                let (first, last) = ends(piece);
                // SAFETY: they are no longer written.
                let [max, sum] = parts
                    .each_ref()
                    .map(|part| unsafe { std::slice::from_raw_parts(part.get().add(start).cast_const(), n) });
                dispatch(Spread { part: part(at, first, last), max, sum });
            });
        }
    });
}

/// Converts the sums to the form that [`Spread`] needs.
fn finish<C: Float>(kind: SoftmaxKind, sum: &mut [C]) {
    match kind {
        SoftmaxKind::Softmax => sum.iter_mut().for_each(|sum| *sum = C::lit(1.0) / *sum),
        SoftmaxKind::LogSoftmax => sum.iter_mut().for_each(|sum| *sum = sum.ln()),
        SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad => {}
    }
}

/// `length` elements of each of some neighbouring rows, with `steps` between the elements of a row. `to` overlaps
/// nothing else.
#[derive(Clone, Copy)]
struct ColumnPart<C> {
    kind: SoftmaxKind,
    x: *const C,
    y: *const C,
    to: *mut C,
    steps: [isize; 3],
    length: usize,
}

impl<C> ColumnPart<C> {
    /// Element `i` of `n` rows of the first input.
    ///
    /// # Safety
    /// These elements exist.
    #[inline(always)]
    unsafe fn x(&self, i: usize, n: usize) -> &[C] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.x.offset(i as isize * self.steps[0]), n) }
    }

    /// Element `i` of the second input, which is the first if there is only one.
    ///
    /// # Safety
    /// As for `x`.
    #[inline(always)]
    unsafe fn y(&self, i: usize, n: usize) -> &[C] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.y.offset(i as isize * self.steps[1]), n) }
    }
}

/// Elements of each row that are added to its sum together.
const GROUP: usize = 8;

/// Adds the part's elements to the maxima and sums of its rows.
struct Gather<'a, C> {
    part: ColumnPart<C>,
    max: &'a mut [C],
    sum: &'a mut [C],
}

impl<C: Float> Job for Gather<'_, C>
where
    Max: Fold<C>,
{
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Gather { part, max, sum } = self;
        let (n, whole) = (sum.len(), part.length - part.length % GROUP);
        // SAFETY: the constructor guarantees one row per sum, with `length` elements each.
        let (x, y) = (|i| unsafe { part.x(i, n) }, |i| unsafe { part.y(i, n) });
        match part.kind {
            SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax => {
                for i in (0..whole).step_by(GROUP) {
                    add_exponentials::<C, GROUP, FMA>(each(|k| x(i + k)), max, sum);
                }
                for i in whole..part.length {
                    add_exponentials::<C, 1, FMA>([x(i)], max, sum);
                }
            }
            SoftmaxKind::SoftmaxGrad => {
                for i in (0..whole).step_by(GROUP) {
                    let pairs = each(|k| (x(i + k), y(i + k)));
                    add_products::<C, GROUP>(pairs, sum);
                }
                for i in whole..part.length {
                    add_products::<C, 1>([(x(i), y(i))], sum);
                }
            }
            SoftmaxKind::LogSoftmaxGrad => {
                for i in 0..part.length {
                    zip(&mut sum[..], x(i)).for_each(|(sum, &g)| *sum = *sum + g);
                }
            }
        }
    }
}

/// The number that is subtracted: 0 instead of a maximum of -∞, which would give NaN.
#[inline(always)]
fn shift<C: Float>(max: C) -> C {
    if max == C::LOWEST { C::ZERO } else { max }
}

#[inline(always)]
fn add_exponentials<C: Float, const G: usize, const FMA: bool>(x: [&[C]; G], max: &mut [C], sum: &mut [C])
where
    Max: Fold<C>,
{
    let n = sum.len();
    let (x, max) = (each::<_, G>(|k| &x[k][..n]), &mut max[..n]);
    for i in 0..n {
        let top = x.iter().fold(max[i], |top, x| Max.join(top, x[i]));
        let shift = shift(top);
        let mut total = C::ZERO;
        for x in x {
            total = total + (x[i] - shift).exp_nonpositive::<FMA>();
        }
        sum[i] = sum[i] * (max[i] - shift).exp_nonpositive::<FMA>() + total;
        max[i] = top;
    }
}

#[inline(always)]
fn add_products<C: Float, const G: usize>(pairs: [(&[C], &[C]); G], sum: &mut [C]) {
    let n = sum.len();
    let pairs = each::<_, G>(|k| (&pairs[k].0[..n], &pairs[k].1[..n]));
    for i in 0..n {
        let mut total = C::ZERO;
        for (g, y) in pairs {
            total = total + g[i] * y[i];
        }
        sum[i] = sum[i] + total;
    }
}

/// Merges the maxima and sums of another part of the same rows.
struct Join<'a, C> {
    kind: SoftmaxKind,
    max: &'a mut [C],
    sum: &'a mut [C],
    other: &'a [C],
    part: &'a [C],
}

impl<C: Float> Job for Join<'_, C>
where
    Max: Fold<C>,
{
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Join { kind, max, sum, other, part } = self;
        if matches!(kind, SoftmaxKind::SoftmaxGrad | SoftmaxKind::LogSoftmaxGrad) {
            return zip(&mut sum[..], part).for_each(|(sum, &part)| *sum = *sum + part);
        }
        for ((max, sum), (&other, &part)) in zip(zip(&mut max[..], sum), zip(other, part)) {
            let top = Max.join(*max, other);
            let shift = shift(top);
            *sum = *sum * (*max - shift).exp_nonpositive::<FMA>() + part * (other - shift).exp_nonpositive::<FMA>();
            *max = top;
        }
    }
}

/// Writes the results of the part from the maxima and sums of its rows.
struct Spread<'a, C> {
    part: ColumnPart<C>,
    max: &'a [C],
    sum: &'a [C],
}

impl<C: Float> Job for Spread<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Spread { part, max, sum } = self;
        let n = sum.len();
        let max = &max[..n];
        for i in 0..part.length {
            // SAFETY: as in `Gather`; the part's own elements of the output.
            let (x, y, to) = unsafe {
                let to = std::slice::from_raw_parts_mut(part.to.offset(i as isize * part.steps[2]), n);
                (part.x(i, n), part.y(i, n), to)
            };
            match part.kind {
                SoftmaxKind::Softmax => (0..n).for_each(|i| to[i] = (x[i] - max[i]).exp_nonpositive::<FMA>() * sum[i]),
                SoftmaxKind::LogSoftmax => (0..n).for_each(|i| to[i] = x[i] - max[i] - sum[i]),
                SoftmaxKind::SoftmaxGrad => (0..n).for_each(|i| to[i] = y[i] * (x[i] - sum[i])),
                SoftmaxKind::LogSoftmaxGrad => {
                    (0..n).for_each(|i| to[i] = x[i] - y[i].exp_nonpositive::<FMA>() * sum[i]);
                }
            }
        }
    }
}
