//! Reductions where a dimension that stays lies innermost: whole rows are folded into a row of results.

use super::{Data, FoldPlan, FoldSource, Target, centers_at};
use crate::Result;
use crate::backend::cpu::reduce::fold::Fold;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::scratch;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::zip::zip;
use std::ops::Range;

/// Columns folded side by side.
pub(super) const WIDTH: usize = 512;
/// Rows folded one after the other before pieces are joined; more where rows are short.
fn height_of_piece(row: usize) -> usize {
    256.max((1 << 14) / row)
}

/// Folds rows into a row of results, in pieces of at most `WIDTH` columns.
pub(super) fn columns<C: Compute, F: Fold<C>>(
    fold: F,
    plan: &FoldPlan,
    source: &impl FoldSource<C, F>,
    center: Option<&[C]>,
    to: Target,
) -> Result<()> {
    let (results, height) = (plan.kept.numel(), plan.reduced.numel());
    let row = plan.kept.inner_len();
    let piece_height = height_of_piece(row);
    let (tiles, pieces) = (row.div_ceil(WIDTH), height.div_ceil(piece_height));
    let bounds = |tile: usize| {
        let start = tile / tiles * row + tile % tiles * WIDTH;
        (start, (start + WIDTH).min((tile / tiles + 1) * row))
    };
    // (pieces, results), the results in the order of the walk
    let mut partial = scratch::filled("reduce", F::START, if pieces > 1 { pieces.saturating_mul(results) } else { 0 })?;
    let parts = Ptr::new(partial.as_mut_ptr());
    let [_, out_step] = plan.kept.inner();
    let work = row.min(WIDTH) * height.min(piece_height);
    parallel(results / row * tiles * pieces, (GRAIN / work).max(1), |range| {
        // Outside of the loop: to fill them all takes longer than to fold a short row.
        let (mut sums, mut centers) = ([F::START; WIDTH], [F::START; WIDTH]);
        for unit in range {
            let (piece, (start, end)) = (unit % pieces, bounds(unit / pieces));
            plan.kept.runs(start, end, |[from, at], n| {
                let (sums, centers) = (&mut sums[..n], &mut centers[..n]);
                centers_at(center, at, out_step, centers);
                if pieces == 1 {
                    sums.fill(F::START);
                    source.columns(fold, start, from, 0..height, centers, sums);
                    zip(&mut sums[..], &*centers).for_each(|(x, &center)| *x = fold.finish(*x, center));
                    // SAFETY: positions of the output from its walk; every unit has its own.
                    unsafe { to.write(sums.as_ptr(), at, out_step, n) };
                } else {
                    // SAFETY: every unit has its own part of the vector.
                    let sums = unsafe { std::slice::from_raw_parts_mut(parts.get().add(piece * results + start), n) };
                    let rows = piece * piece_height..height.min((piece + 1) * piece_height);
                    source.columns(fold, start, from, rows, centers, sums);
                }
            });
        }
    });
    if pieces == 1 {
        return Ok(());
    }
    parallel(results / row * tiles, (GRAIN / (row.min(WIDTH) * pieces)).max(1), |range| {
        for (start, end) in range.map(bounds) {
            // SAFETY: every tile has its own columns of the vector; of one tile's, each piece has its own.
            let part = |piece: usize| unsafe {
                std::slice::from_raw_parts_mut(parts.get().add(piece * results + start), end - start)
            };
            let mut step = 1;
            while step < pieces {
                for piece in (0..pieces - step).step_by(2 * step) {
                    dispatch(Join { fold, into: part(piece), from: part(piece + step) });
                }
                step *= 2;
            }
            let (sums, mut centers) = (part(0), [F::START; WIDTH]);
            plan.kept.runs(start, end, |[_, at], n| {
                centers_at(center, at, out_step, &mut centers[..n]);
                zip(&mut sums[..], &centers).for_each(|(x, &center)| *x = fold.finish(*x, center));
                // SAFETY: positions of the output from its walk; every tile has its own.
                unsafe { to.write(sums.as_ptr(), at, out_step, n) };
            });
        }
    });
    Ok(())
}

/// Rows that are folded together before they meet the sums.
pub(super) const GROUP: usize = 8;

/// Folds some rows into `sums`, whose centers are given.
pub(super) fn fold_rows<C: Compute, F: Fold<C>>(
    fold: F,
    plan: &FoldPlan,
    data: Data,
    center: &[C],
    from: isize,
    rows: Range<usize>,
    sums: &mut [C],
) {
    let ([across, _], [along], n) = (plan.kept.inner(), plan.reduced.inner(), sums.len());
    let dense = across == 1 && along == n as isize;
    let mut scratch = [const { std::mem::MaybeUninit::<C>::uninit() }; GROUP * WIDTH];
    // Rows that the scratch has room for.
    let room = scratch.len() / n;
    plan.reduced.runs(rows.start, rows.end, |[at], rows| {
        if data.dtype == C::DTYPE && across == 1 {
            // SAFETY: the positions of the walks are those of elements (L2) of type C, `n` in each of the rows.
            return unsafe { fold_in(fold, data.at(from, at).cast::<C>(), along, rows, center, sums) };
        }
        // For f32 alone: what is known when this is compiled costs no code elsewhere.
        if F::LIGHT && size_of::<C>() == 4 && data.dtype == C::DTYPE && across == APART as isize && rows < GROUP {
            // SAFETY: as above.
            let from = unsafe { data.at(from, at) }.cast::<C>();
            return dispatch(FoldApart { fold, from, step: along, rows, center, sums });
        }
        for done in (0..rows).step_by(room) {
            let group = room.min(rows - done);
            // SAFETY: as above; there is room for the rows.
            unsafe {
                let load = |row: usize, stride: isize, n: usize, to: *mut C| {
                    C::load(data.dtype, data.at(from, at + (done + row) as isize * along), stride, to, n);
                };
                let to = scratch.as_mut_ptr().cast::<C>();
                if dense {
                    load(0, 1, group * n, to);
                } else {
                    (0..group).for_each(|row| load(row, across, n, to.add(row * n)));
                }
                fold_in(fold, to, n as isize, group, center, sums);
            }
        }
    });
}

/// Elements of short rows that are taken as one row.
pub(super) const WIDE: usize = 64;

/// Folds `rows` rows, `step` apart, into `sums`.
///
/// # Safety
/// There are `sums.len()` elements behind each start of a row.
pub(super) unsafe fn fold_in<C: Compute, F: Fold<C>>(
    fold: F,
    from: *const C,
    step: isize,
    rows: usize,
    center: &[C],
    sums: &mut [C],
) {
    let n = sums.len();
    let together = WIDE / n;
    if together < 2 || step != n as isize || rows < together {
        return dispatch(FoldColumns { fold, from, step, rows, center, sums });
    }
    // Short rows without gaps: several are taken as one row that is long enough for vectors.
    let (mut wide, mut centers) = ([F::START; WIDE], [F::START; WIDE]);
    let (row, whole) = (together * n, rows / together);
    centers[..row].chunks_exact_mut(n).for_each(|part| part.copy_from_slice(center));
    dispatch(FoldColumns {
        fold,
        from,
        step: row as isize,
        rows: whole,
        center: &centers[..row],
        sums: &mut wide[..row],
    });
    wide[..row].chunks_exact(n).for_each(|part| Join { fold, into: &mut *sums, from: part }.run::<false>());
    // The rows that are left over.
    let rest = from.wrapping_add(whole * row);
    FoldColumns { fold, from: rest, step, rows: rows - whole * together, center, sums }.run::<false>();
}

/// Folds `rows` rows, `step` apart and as long as the sums, into the sums.
struct FoldColumns<'a, C, F> {
    fold: F,
    from: *const C,
    step: isize,
    rows: usize,
    center: &'a [C],
    sums: &'a mut [C],
}

impl<C: Compute, F: Fold<C>> Job for FoldColumns<'_, C, F> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let FoldColumns { fold, from, step, rows, center, sums } = self;
        let n = sums.len();
        let center = &center[..n];
        // SAFETY: whoever makes this has `n` elements behind the start of each of the rows.
        let row = |r: usize| unsafe { std::slice::from_raw_parts(from.offset(r as isize * step), n) };
        let whole = rows - rows % GROUP;
        for r in (0..whole).step_by(GROUP) {
            let [a, b, c, d, e, f, g, h]: [&[C]; GROUP] = each(|k| row(r + k));
            for i in 0..n {
                let [a, b, c, d, e, f, g, h] = [a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]];
                let two = [[a, b], [c, d], [e, f], [g, h]];
                let two: [C; 4] = each(|k| fold.join(fold.take(two[k][0], center[i]), fold.take(two[k][1], center[i])));
                let (left, right) = (fold.join(two[0], two[1]), fold.join(two[2], two[3]));
                sums[i] = fold.join(sums[i], fold.join(left, right));
            }
        }
        for r in whole..rows {
            for (i, &x) in row(r).iter().enumerate() {
                sums[i] = fold.join(sums[i], fold.take(x, center[i]));
            }
        }
    }
}

/// How far apart the elements of a row may lie to be folded where they are: as those of the commonest pool do.
const APART: usize = 2;

/// As [`FoldColumns`], for few rows whose elements are `APART` apart.
struct FoldApart<'a, C, F> {
    fold: F,
    from: *const C,
    step: isize,
    rows: usize,
    center: &'a [C],
    sums: &'a mut [C],
}

impl<C: Compute, F: Fold<C>> Job for FoldApart<'_, C, F> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let FoldApart { fold, from, step, rows, center, sums } = self;
        let n = sums.len();
        let center = &center[..n];
        for r in 0..rows as isize {
            // SAFETY: whoever makes this has `n` elements, so far apart, behind the start of each of the rows.
            let row = unsafe { std::slice::from_raw_parts(from.offset(r * step), (n - 1) * APART + 1) };
            let (last, others) = (n - 1, row.chunks_exact(APART));
            for ((sum, x), &center) in sums.iter_mut().zip(others).zip(center) {
                *sum = fold.join(*sum, fold.take(x[0], center));
            }
            sums[last] = fold.join(sums[last], fold.take(row[last * APART], center[last]));
        }
    }
}

/// Folds one row into another.
struct Join<'a, C, F> {
    fold: F,
    into: &'a mut [C],
    from: &'a [C],
}

impl<C: Compute, F: Fold<C>> Job for Join<'_, C, F> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (into, &from) in zip(&mut self.into[..], self.from) {
            *into = self.fold.join(*into, from);
        }
    }
}
