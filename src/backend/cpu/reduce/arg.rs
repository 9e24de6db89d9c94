//! Indices of the largest or smallest elements along some dimensions.

use crate::backend::cpu::reduce::fold::{Fold, Max, Min};
use crate::backend::cpu::reduce::{Data, FoldPlan, PIECE, Target, fold_side_by_side, for_tiles, goes_by_columns};
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::Extreme;
use crate::backend::{View, ViewMut};
use crate::memory::scratch;
use crate::zip::zip;
use crate::{DType, Result};

/// Writes the extremes over the dimensions `dims` to `values`, if it is given, and their row-major indices among the reduced
/// elements to `indices`. The first of equal extremes is chosen, and a NaN before everything else.
///
/// The outputs are contiguous and have the other dimensions in their order; `indices` is of i64, `values` of the
/// input's dtype. There is at least one element for each result.
pub(crate) fn arg(
    which: Extreme,
    input: View<'_>,
    dims: &[usize],
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    debug_assert!(indices.dtype == DType::I64 && values.as_ref().is_none_or(|v| v.dtype == input.dtype));
    match (which, input.dtype.compute_dtype()) {
        (Extreme::Max, DType::F32) => arg_by::<f32, Max>(Max, input, dims, values, indices),
        (Extreme::Max, DType::F64) => arg_by::<f64, Max>(Max, input, dims, values, indices),
        (Extreme::Max, DType::U64) => arg_by::<u64, Max>(Max, input, dims, values, indices),
        (Extreme::Max, _) => arg_by::<i64, Max>(Max, input, dims, values, indices),
        (Extreme::Min, DType::F32) => arg_by::<f32, Min>(Min, input, dims, values, indices),
        (Extreme::Min, DType::F64) => arg_by::<f64, Min>(Min, input, dims, values, indices),
        (Extreme::Min, DType::U64) => arg_by::<u64, Min>(Min, input, dims, values, indices),
        (Extreme::Min, _) => arg_by::<i64, Min>(Min, input, dims, values, indices),
    }
}

/// Equality, with all NaN equal.
#[inline(always)]
fn same<C: Compute>(a: C, b: C) -> bool {
    a == b || (a.partial_cmp(&a).is_none() && b.partial_cmp(&b).is_none())
}

/// The best element so far and its index.
#[derive(Clone, Copy)]
struct Best<C> {
    value: C,
    index: usize,
}

impl<C: Compute> Best<C> {
    /// Whether a later element replaces the best.
    fn loses_to<F: Fold<C>>(&self, fold: F, value: C) -> bool {
        !same(fold.join(self.value, value), self.value)
    }
}

fn arg_by<C: Compute, F: Fold<C>>(
    fold: F,
    input: View<'_>,
    dims: &[usize],
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    if indices.layout.numel() == 0 || input.layout.numel() == 0 {
        return Ok(());
    }
    let plan = FoldPlan::new(input.layout, dims, false);
    let data = Data { ptr: Ptr::new(input.ptr().cast_mut()), dtype: input.dtype, offset: plan.offset };
    let values = values.map(|v| Target { ptr: Ptr::new(v.first()), dtype: v.dtype });
    let indices = Target { ptr: Ptr::new(indices.first()), dtype: DType::I64 };
    let (results, length) = (plan.kept.numel(), plan.reduced.numel());
    let [_, out_step] = plan.kept.inner();
    let [across, _] = plan.kept.inner();
    let write = |best: Best<C>, at: isize| {
        // SAFETY: a position of the outputs from their walk, which is one thread's alone.
        unsafe {
            indices.write(&(best.index as i64), at, 1, 1);
            if let Some(values) = values {
                values.write(&best.value, at, 1, 1);
            }
        }
    };
    if goes_by_columns(&plan, false) {
        return arg_columns::<C, F>(fold, &plan, data, values, indices);
    }
    let pieces = length.div_ceil(PIECE);
    if pieces == 1 {
        parallel(results, (GRAIN / length).max(1), |range| {
            plan.kept.runs(range.start, range.end, |[from, at], len| {
                for i in 0..len as isize {
                    write(best_of::<C, F>(fold, &plan, data, from + i * across, 0, length), at + i * out_step);
                }
            });
        });
        return Ok(());
    }
    // (results, pieces)
    let mut partial = scratch::filled("argmax", Best { value: F::START, index: 0 }, results.saturating_mul(pieces))?;
    let parts = Ptr::new(partial.as_mut_ptr());
    parallel(partial.len(), 1, |range| {
        for unit in range {
            let (result, start) = (unit / pieces, unit % pieces * PIECE);
            plan.kept.runs(result, result + 1, |[from, _], _| {
                let best = best_of::<C, F>(fold, &plan, data, from, start, length.min(start + PIECE));
                // SAFETY: every unit has its own element of the vector.
                unsafe { parts.get().add(unit).write(best) };
            });
        }
    });
    let mut parts = partial.chunks_exact(pieces);
    plan.kept.runs(0, results, |[_, at], len| {
        for i in 0..len as isize {
            let best = parts
                .next()
                .and_then(|p| p.iter().copied().reduce(|a, b| if a.loses_to(fold, b.value) { b } else { a }));
            best.into_iter().for_each(|best| write(best, at + i * out_step));
        }
    });
    Ok(())
}

/// The number of results that are computed together.
const WIDTH: usize = 256;
/// The number of elements that are compared with each other before they are compared with the best. The position within the group
/// is found at the end, which is cheaper than tracking it.
const GROUP: usize = 8;
/// The number of elements of a result from which on groups are used.
const FEW: usize = 4 * GROUP;

/// The same where the stride of results is smaller than that of the reduced elements: rows of elements are read in memory order,
/// with the best of each column.
fn arg_columns<C: Compute, F: Fold<C>>(
    fold: F,
    plan: &FoldPlan,
    data: Data,
    values: Option<Target>,
    indices: Target,
) -> Result<()> {
    let (row, length, results) = (plan.kept.inner_len(), plan.reduced.numel(), plan.kept.numel());
    let [_, out_step] = plan.kept.inner();
    let tiles = row.div_ceil(WIDTH);
    let height = (PIECE / row.min(WIDTH)).next_multiple_of(GROUP);
    let pieces = length.div_ceil(height);
    let bounds = |tile: usize| {
        let start = tile / tiles * row + tile % tiles * WIDTH;
        (start, (start + WIDTH).min((tile / tiles + 1) * row))
    };
    let write = |best: &[Best<C>], at: isize| {
        for (i, best) in best.iter().enumerate() {
            let at = at + i as isize * out_step;
            // SAFETY: positions of the outputs from their walk; every tile has its own.
            unsafe {
                indices.write(&(best.index as i64), at, 1, 1);
                if let Some(values) = values {
                    values.write(&best.value, at, 1, 1);
                }
            }
        }
    };
    let units = results / row * tiles;
    let grain = (GRAIN / (row.min(WIDTH) * length.min(height))).max(1);
    if pieces == 1 {
        // Many results of few elements: each goes from the cache to the outputs directly.
        parallel(units, grain, |range| {
            let mut best = [Best { value: F::START, index: 0 }; WIDTH];
            for (start, end) in range.map(bounds) {
                plan.kept.runs(start, end, |[from, at], n| {
                    best_of_columns::<C, F>(fold, plan, data, from, (0, length), &mut best[..n]);
                    write(&best[..n], at);
                });
            }
        });
        return Ok(());
    }
    // (pieces, results), the results in the order of the walk
    let mut partial = scratch::filled("argmax", Best { value: F::START, index: 0 }, pieces.saturating_mul(results))?;
    let parts = Ptr::new(partial.as_mut_ptr());
    // SAFETY: the callers give each thread its own pieces of columns.
    let part = |piece: usize, start: usize, end: usize| unsafe {
        std::slice::from_raw_parts_mut(parts.get().add(piece * results + start), end - start)
    };
    parallel(units * pieces, grain, |range| {
        for unit in range {
            let (piece, (start, end)) = (unit % pieces, bounds(unit / pieces));
            let rows = (piece * height, length.min((piece + 1) * height));
            plan.kept.runs(start, end, |[from, _], _| {
                best_of_columns::<C, F>(fold, plan, data, from, rows, part(piece, start, end));
            });
        }
    });
    parallel(units, (GRAIN / (row.min(WIDTH) * pieces)).max(1), |range| {
        for (start, end) in range.map(bounds) {
            let best = part(0, start, end);
            for piece in 1..pieces {
                for (best, &other) in zip(&mut best[..], &*part(piece, start, end)) {
                    *best = if best.loses_to(fold, other.value) { other } else { *best };
                }
            }
            plan.kept.runs(start, end, |[_, at], _| write(best, at));
        }
    });
    Ok(())
}

/// The best of the elements `rows.0..rows.1` of each of several neighbouring results.
fn best_of_columns<C: Compute, F: Fold<C>>(
    fold: F,
    plan: &FoldPlan,
    data: Data,
    from: isize,
    rows: (usize, usize),
    to: &mut [Best<C>],
) {
    let ([across, _], [along], n) = (plan.kept.inner(), plan.reduced.inner(), to.len());
    let mut scratch = [F::START; GROUP * WIDTH];
    let plain = data.dtype == C::DTYPE && across == 1;
    // The number of rows that are compared at once, limited by the workspace.
    let room = if plain { usize::MAX } else { (scratch.len() / n) / GROUP * GROUP };
    let (mut number, mut first_of_all) = (rows.0, true);
    plan.reduced.runs(rows.0, rows.1, |[at], count| {
        let mut done = 0;
        while done < count {
            let some = room.min(count - done);
            let start = at + done as isize * along;
            let (ptr, step) = if plain {
                // SAFETY: positions of the walks (L2), of type C.
                (unsafe { data.at(from, start) }.cast::<C>(), along)
            } else {
                for r in 0..some {
                    // SAFETY: as above, `n` elements of a row; the scratch has room for the rows.
                    unsafe {
                        let to = scratch.as_mut_ptr().add(r * n);
                        C::load(data.dtype, data.at(from, start + r as isize * along), across, to, n);
                    };
                }
                (scratch.as_ptr(), n as isize)
            };
            let (mut best, mut group) = ([F::START; WIDTH], [0_u32; WIDTH]);
            let (best, group) = (&mut best[..n], &mut group[..n]);
            if some < FEW {
                dispatch(Columns::<_, _, 1> {
                    fold,
                    from: ptr,
                    step,
                    rows: some,
                    best: &mut *best,
                    group: &mut *group,
                });
            } else {
                dispatch(Columns::<_, _, GROUP> { fold, from: ptr, step, rows: some, best, group });
                for (i, group) in group.iter_mut().enumerate() {
                    *group = place_in_group(ptr.wrapping_add(i), step, *group as usize * GROUP, some, best[i]) as u32;
                }
            }
            for (i, to) in to.iter_mut().enumerate() {
                if first_of_all || to.loses_to(fold, best[i]) {
                    *to = Best { value: best[i], index: number + group[i] as usize };
                }
            }
            (done, number, first_of_all) = (done + some, number + some, false);
        }
    });
}

/// The first of the rows from `start` on, of its group, whose element is `value`.
fn place_in_group<C: Compute>(column: *const C, step: isize, start: usize, rows: usize, value: C) -> usize {
    let end = rows.min(start + GROUP);
    // SAFETY: the column has `rows` elements, `step` apart.
    let at = |row: usize| unsafe { column.offset(row as isize * step).read() };
    (start..end).find(|&row| same(at(row), value)).unwrap_or(start)
}

/// For each column of `rows` rows, `step` apart, the best element and the first group of `G` rows that has it.
struct Columns<'a, C, F, const G: usize> {
    fold: F,
    from: *const C,
    step: isize,
    rows: usize,
    best: &'a mut [C],
    group: &'a mut [u32],
}

impl<C: Compute, F: Fold<C>, const G: usize> Job for Columns<'_, C, F, G> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Columns { fold, from, step, rows, best, group } = self;
        let n = best.len();
        let group = &mut group[..n];
        // SAFETY: the creator guarantees `n` elements from the start of each of the rows.
        let row = |r: usize| unsafe { std::slice::from_raw_parts(from.offset(r as isize * step), n) };
        if rows > 0 {
            best.copy_from_slice(row(0));
        }
        for (number, first) in (0..rows).step_by(G).enumerate() {
            // An incomplete group repeats its last row.
            let together: [&[C]; G] = each(|k| row((first + k).min(rows - 1)));
            for i in 0..n {
                let joined = fold.join(best[i], join_pairs::<C, F, G>(fold, each(|k| together[k][i])));
                // Only a NaN differs from itself, and a NaN that is already the best is kept.
                let better = (joined != best[i]) & PartialEq::eq(&best[i], &best[i]);
                group[i] = if better { number as u32 } else { group[i] };
                best[i] = joined;
            }
        }
    }
}

/// The fold of a power of two of elements, as a tree with short chains of joins.
#[inline(always)]
fn join_pairs<C: Copy, F: Fold<C>, const G: usize>(fold: F, mut x: [C; G]) -> C {
    let mut left = G;
    while left > 1 {
        left /= 2;
        for k in 0..left {
            x[k] = fold.join(x[k], x[k + left]);
        }
    }
    x[0]
}

/// The best of the elements `start..end` of one result, tile by tile: first the value and then, if it is better, its
/// position.
fn best_of<C: Compute, F: Fold<C>>(
    fold: F,
    plan: &FoldPlan,
    data: Data,
    from: isize,
    start: usize,
    end: usize,
) -> Best<C> {
    let mut best = None::<Best<C>>;
    for_tiles::<C>(plan, data, from, start, end, |tile, first| {
        // SAFETY: the tile is a slice.
        let value = unsafe { fold_side_by_side(&fold, tile.as_ptr(), tile.len(), F::START) };
        if best.is_none_or(|best| best.loses_to(fold, value)) {
            let at = tile.iter().position(|&x| same(x, value)).unwrap_or(0);
            best = Some(Best { value, index: first + at });
        }
    });
    best.unwrap_or(Best { value: F::START, index: start })
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::backend::cpu::reduce::tests::{arrangements, on_threads};
    use crate::{Generator, Shape, Tensor};

    fn run(which: Extreme, x: &Tensor, dims: &[usize]) -> Result<(Tensor, Tensor)> {
        let shape: Shape = (0..x.rank()).filter(|d| !dims.contains(d)).map(|d| x.shape()[d]).collect();
        let mut values = Tensor::empty("arg", shape.clone(), x.dtype(), x.device())?;
        let mut indices = Tensor::empty("arg", shape, DType::I64, x.device())?;
        arg(which, x.as_view()?, dims, Some(&mut values.as_view_mut("arg")?), &mut indices.as_view_mut("arg")?)?;
        Ok((values, indices))
    }

    /// The specification: the first of the best, found index by index.
    fn reference(which: Extreme, x: &Tensor, dims: &[usize]) -> Result<Vec<(f64, i64)>> {
        let shape = x.shape();
        let kept: Vec<usize> = (0..x.rank()).filter(|d| !dims.contains(d)).collect();
        let mut out = vec![None::<(f64, i64)>; kept.iter().map(|&d| shape[d]).product()];
        for flat in 0..x.numel() {
            let (mut index, mut rest) = (vec![0; x.rank()], flat);
            for d in (0..x.rank()).rev() {
                (index[d], rest) = ((rest % shape[d]) as isize, rest / shape[d]);
            }
            let value = x.at(&index)?.to_f64();
            let position = |dims: &[usize]| dims.iter().fold(0, |at, &d| at * shape[d] + index[d] as usize);
            let best = &mut out[position(&kept)];
            let wins = |(b, _): (f64, i64)| match which {
                Extreme::Max => value > b || (value.is_nan() && !b.is_nan()),
                Extreme::Min => value < b || (value.is_nan() && !b.is_nan()),
            };
            if best.is_none_or(wins) {
                *best = Some((value, position(dims) as i64));
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    #[test]
    fn every_layout_and_dtype_agrees_with_the_reference() -> Result<()> {
        let shapes: [&[usize]; 6] = [&[], &[5], &[3, 4], &[2, 30, 40], &[300, 20], &[0, 3]];
        for shape in shapes {
            let mut x = Generator::seed(4).randn_with(shape, DType::F64)?.mul(3.0)?;
            for nan in [false, true] {
                if nan {
                    x = x.gt(4.0)?.where_(f64::NAN, &x)?;
                }
                for dtype in [DType::F64, DType::F32, DType::BF16, DType::I8, DType::U64, DType::Bool] {
                    // Few different values, so that there are ties; none that an f64 cannot hold.
                    let x = if dtype == DType::U64 { x.abs()? } else { x.clone() };
                    for (name, x) in arrangements(&x.to_dtype(DType::F16)?.to_dtype(dtype)?)? {
                        let one = (0..x.rank()).map(|d| vec![d]);
                        for dims in
                            one.chain([(0..x.rank()).collect()]).filter(|dims| dims.iter().all(|&d| x.shape()[d] > 0))
                        {
                            for which in [Extreme::Max, Extreme::Min] {
                                let (values, indices) = run(which, &x, &dims)?;
                                let values = values.to_dtype(DType::F64)?.to_vec::<f64>()?;
                                let got: Vec<(f64, i64)> = values.into_iter().zip(indices.to_vec::<i64>()?).collect();
                                let want = reference(which, &x, &dims)?;
                                let what = format!("{which:?} of {dtype} {:?} {name} over {dims:?}", x.shape());
                                assert_eq!(format!("{got:?}"), format!("{want:?}"), "{what}");
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_first_of_equals_is_found_on_any_number_of_threads() -> Result<()> {
        let n = 5 * PIECE + 3;
        let x = Tensor::from_vec((0..n).map(|i| if i % 70_000 == 69_999 { 2.0_f32 } else { 0.0 }).collect(), [n])?;
        for threads in [1, 2, 5] {
            let (_, index) = on_threads(threads, || run(Extreme::Max, &x, &[0]))?;
            assert_eq!(index.item::<i64>()?, 69_999);
            let (_, index) = on_threads(threads, || run(Extreme::Min, &x, &[0]))?;
            assert_eq!(index.item::<i64>()?, 0);
        }
        Ok(())
    }

    #[test]
    fn the_first_of_equals_is_found_in_long_columns_too() -> Result<()> {
        for n in [3, 16, 300] {
            let length = 3 * PIECE / n + 5;
            // Column `c` has its largest elements at every 1000th row from `c` on.
            let values = (0..length * n).map(|i| if (i / n) % 1000 == i % n { 2.0_f32 } else { 0.0 }).collect();
            let x = Tensor::from_vec(values, [length, n])?;
            for threads in [1, 2, 5] {
                let (values, positions) = on_threads(threads, || run(Extreme::Max, &x, &[0]))?;
                assert!(values.to_vec::<f32>()?.iter().all(|&x| x == 2.0));
                assert_eq!(
                    positions.to_vec::<i64>()?,
                    (0..n as i64).collect::<Vec<_>>(),
                    "{n} columns, {threads} threads"
                );
                let (_, positions) = on_threads(threads, || run(Extreme::Min, &x, &[0]))?;
                assert!(positions.to_vec::<i64>()?.iter().enumerate().all(|(c, &at)| at == i64::from(c == 0)));
            }
        }
        Ok(())
    }
}
