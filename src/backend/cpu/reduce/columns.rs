//! Reductions whose innermost dimension is kept: whole rows are folded into a row of results.

use super::kernels::{APART, GROUP, Kernels};
use super::{Data, FoldPlan, FoldSource, Target, centers_at};
use crate::Result;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::memory::scratch;
use std::ops::Range;

/// The number of columns that are folded together.
pub(super) const WIDTH: usize = 512;
/// The number of rows that are folded in sequence before pieces are joined; more for short rows.
fn height_of_piece(row: usize) -> usize {
    256.max((1 << 14) / row)
}

/// Folds rows into a row of results, in pieces of at most `WIDTH` columns.
pub(super) fn columns<C: Compute>(
    fold: &dyn Kernels<C>,
    plan: &FoldPlan,
    source: &dyn FoldSource<C>,
    center: Option<&[C]>,
    to: Target,
) -> Result<()> {
    let (results, height, blank) = (plan.kept.numel(), plan.reduced.numel(), fold.start());
    let row = plan.kept.inner_len();
    let piece_height = height_of_piece(row);
    let (tiles, pieces) = (row.div_ceil(WIDTH), height.div_ceil(piece_height));
    let bounds = |tile: usize| {
        let start = tile / tiles * row + tile % tiles * WIDTH;
        (start, (start + WIDTH).min((tile / tiles + 1) * row))
    };
    // (pieces, results), the results in the order of the walk
    let mut partial = scratch::filled("reduce", blank, if pieces > 1 { pieces.saturating_mul(results) } else { 0 })?;
    let parts = Ptr::new(partial.as_mut_ptr());
    let [_, out_step] = plan.kept.inner();
    let work = row.min(WIDTH) * height.min(piece_height);
    parallel(results / row * tiles * pieces, (GRAIN / work).max(1), |range| {
        // Outside of the loop: initializing them takes longer than folding a short row.
        let (mut sums, mut centers) = ([blank; WIDTH], [blank; WIDTH]);
        for unit in range {
            let (piece, (start, end)) = (unit % pieces, bounds(unit / pieces));
            plan.kept.runs(start, end, |[from, at], n| {
                let (sums, centers) = (&mut sums[..n], &mut centers[..n]);
                centers_at(center, at, out_step, centers);
                if pieces == 1 {
                    sums.fill(blank);
                    source.columns(fold, start, from, 0..height, centers, sums);
                    fold.finish(sums, centers);
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
                    fold.join_rows(part(piece), part(piece + step));
                }
                step *= 2;
            }
            let (sums, mut centers) = (part(0), [blank; WIDTH]);
            plan.kept.runs(start, end, |[_, at], n| {
                centers_at(center, at, out_step, &mut centers[..n]);
                fold.finish(&mut sums[..n], &centers[..n]);
                // SAFETY: positions of the output from its walk; every tile has its own.
                unsafe { to.write(sums.as_ptr(), at, out_step, n) };
            });
        }
    });
    Ok(())
}

/// Folds some rows into `sums`, whose centers are given.
pub(super) fn fold_rows<C: Compute>(
    fold: &dyn Kernels<C>,
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
    // The number of rows that the workspace has room for.
    let room = scratch.len() / n;
    plan.reduced.runs(rows.start, rows.end, |[at], rows| {
        if data.dtype == C::DTYPE && across == 1 {
            // SAFETY: the positions of the walks are those of elements (L2) of type C, `n` in each of the rows.
            return unsafe { fold_in(fold, data.at(from, at).cast::<C>(), along, rows, center, sums) };
        }
        if data.dtype == C::DTYPE && across == APART as isize && rows < GROUP {
            // SAFETY: as above.
            let done = unsafe { fold.columns_apart(data.at(from, at).cast::<C>(), along, rows, center, sums) };
            if done {
                return;
            }
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

/// The number of elements of short rows that are combined to one row.
pub(super) const WIDE: usize = 64;

/// Folds `rows` rows, `step` apart, into `sums`.
///
/// # Safety
/// There are `sums.len()` elements from each start of a row on.
pub(super) unsafe fn fold_in<C: Compute>(
    fold: &dyn Kernels<C>,
    from: *const C,
    step: isize,
    rows: usize,
    center: &[C],
    sums: &mut [C],
) {
    let n = sums.len();
    let together = WIDE / n;
    if together < 2 || step != n as isize || rows < together {
        // SAFETY: the caller's promise.
        return unsafe { fold.columns(from, step, rows, center, sums) };
    }
    // Short contiguous rows: several are combined to one row that is long enough for vectors.
    let (mut wide, mut centers) = ([fold.start(); WIDE], [fold.start(); WIDE]);
    let (row, whole) = (together * n, rows / together);
    centers[..row].chunks_exact_mut(n).for_each(|part| part.copy_from_slice(center));
    // SAFETY: the caller's promise, for rows that are longer and fewer, and for those that are left over.
    unsafe {
        fold.columns(from, row as isize, whole, &centers[..row], &mut wide[..row]);
        wide[..row].chunks_exact(n).for_each(|part| fold.join_rows(sums, part));
        fold.columns(from.wrapping_add(whole * row), step, rows - whole * together, center, sums);
    }
}
