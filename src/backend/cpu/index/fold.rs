//! Writes elements at indices, replacing the existing ones or combined with them.
//!
//! Every element of the target belongs to one thread, which processes its source elements in order. So results do not depend
//! on the number of threads, and of several replacements the last one wins.

use super::{Indices, lanes};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, parallel};
use crate::backend::spec::IndexFold;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::{DType, Result, interrupt};
use std::ops::Range;

/// How a new element is combined with an existing one.
trait Fold<C> {
    fn fold(old: C, new: C) -> C;
}

struct Replace;
struct Add;
struct Multiply;
struct Max;
struct Min;

impl<C> Fold<C> for Replace {
    #[inline(always)]
    fn fold(_: C, new: C) -> C {
        new
    }
}

macro_rules! folds {
    ($($t:ty: |$a:ident, $b:ident| $sum:expr, $product:expr;)+) => {$(
        impl Fold<$t> for Add {
            #[inline(always)]
            fn fold($a: $t, $b: $t) -> $t { $sum }
        }
        impl Fold<$t> for Multiply {
            #[inline(always)]
            fn fold($a: $t, $b: $t) -> $t { $product }
        }
        impl Fold<$t> for Max {
            #[inline(always)]
            fn fold(old: $t, new: $t) -> $t { if new > old || is_nan(new) { new } else { old } }
        }
        impl Fold<$t> for Min {
            #[inline(always)]
            fn fold(old: $t, new: $t) -> $t { if new < old || is_nan(new) { new } else { old } }
        }
    )+};
}
folds! {
    f32: |a, b| a + b, a * b;
    f64: |a, b| a + b, a * b;
    i64: |a, b| a.wrapping_add(b), a.wrapping_mul(b);
    u64: |a, b| a.wrapping_add(b), a.wrapping_mul(b);
}

#[inline(always)]
fn is_nan<C: PartialOrd + Copy>(x: C) -> bool {
    x.partial_cmp(&x).is_none()
}

/// Folds `source[.., j, ..]` into `out[.., indices[.., j, ..], ..]` along `dim`, in the order of `j`. The indices broadcast to
/// the shape of `source`, which may be shorter than `out` in the other dimensions, and were checked against a size not above
/// that of `out` in `dim`. Both have the same dtype, for arithmetic one of the compute dtypes.
pub(crate) fn index_fold(
    op: &'static str,
    by: IndexFold,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    if out.dtype != source.dtype {
        bail!(Backend, op, "cannot write {} into {}", source.dtype, out.dtype);
    }
    if by == IndexFold::Replace {
        return match out.dtype.size() {
            1 => fold_as::<u8, Replace>(out, dim, indices, source),
            2 => fold_as::<u16, Replace>(out, dim, indices, source),
            4 => fold_as::<u32, Replace>(out, dim, indices, source),
            _ => fold_as::<u64, Replace>(out, dim, indices, source),
        };
    }
    match out.dtype {
        DType::F32 => fold_by::<f32>(by, out, dim, indices, source),
        DType::F64 => fold_by::<f64>(by, out, dim, indices, source),
        DType::I64 => fold_by::<i64>(by, out, dim, indices, source),
        DType::U64 => fold_by::<u64>(by, out, dim, indices, source),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

fn fold_by<C: Copy + Send>(
    by: IndexFold,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()>
where
    Add: Fold<C>,
    Multiply: Fold<C>,
    Max: Fold<C>,
    Min: Fold<C>,
{
    match by {
        IndexFold::Add => fold_as::<C, Add>(out, dim, indices, source),
        IndexFold::Multiply => fold_as::<C, Multiply>(out, dim, indices, source),
        IndexFold::Max => fold_as::<C, Max>(out, dim, indices, source),
        IndexFold::Min => fold_as::<C, Min>(out, dim, indices, source),
        IndexFold::Replace => fold_as::<C, Replace>(out, dim, indices, source),
    }
}

/// The state of the loops. Lanes are the positions in all dimensions but `dim`, at which source, indices and target are walked
/// together; the other numbers are the strides along `dim`.
struct Folding<C> {
    walk: Walk<3>,
    source: Ptr<C>,
    index: Ptr<i64>,
    index_first: isize,
    out: Ptr<C>,
    count: isize,
    source_along: isize,
    index_along: isize,
    out_along: isize,
}

/// The shortest run for which the loop over lanes is the inner one, and the loop over indices the outer one.
const SHORT: usize = 16;
/// Indices that are filtered before their elements are processed.
const TILE: usize = 256;
/// Indices between two polls for interrupts, since a thread may have any number of them.
const SOME: isize = 1 << 12;
/// The fewest lanes per thread, to avoid false sharing.
const FEWEST: usize = 64;

fn fold_as<C: Copy + Send, F: Fold<C>>(
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    let shape = source.layout.shape();
    if shape.numel() == 0 {
        return Ok(());
    }
    debug_assert!(indices.size <= out.layout.shape()[dim]);
    let first = |layout: &Layout| layout.select("index", dim as isize, 0);
    let index = indices.view.layout.broadcast_to(shape);
    let (index_along, index, from) = (index.strides()[dim], first(&index)?, first(source.layout)?);
    let to = first(&lanes(out.layout, dim, shape)?)?;
    let folding = Folding {
        walk: Walk::new(from.shape(), [&from, &index, &to]),
        source: Ptr::new(source.ptr().cast_mut().cast::<C>()),
        index: Ptr::new(indices.view.ptr().cast_mut().cast::<i64>()),
        index_first: index.offset() as isize,
        out: Ptr::new(out.ptr().cast::<C>()),
        count: shape[dim] as isize,
        source_along: source.layout.strides()[dim],
        index_along,
        out_along: out.layout.strides()[dim],
    };
    let (lanes, count) = (folding.walk.numel(), shape[dim]);
    let same = index.strides().iter().zip(index.shape().iter()).all(|(&stride, &size)| stride == 0 || size == 1);
    let grain = GRAIN.div_ceil(count).max(FEWEST);
    let shares = num_threads().min(shape.numel().div_ceil(GRAIN));
    if same && lanes >= SHORT {
        // Each index refers to a row. Every thread owns some rows of the target, and scans all indices for them.
        parallel(shares, 1, |mine| folding.rows::<F>(mine, shares as i64));
    } else if shares > 1 && lanes.div_ceil(grain) < shares {
        // A few long lanes. Every thread owns a range of the target, and scans all indices for it.
        let share = indices.size.div_ceil(shares).max(1);
        parallel(shares, 1, |mine| folding.ranges::<F>(mine.start * share..mine.end * share));
    } else {
        parallel(lanes, grain, |mine| folding.lanes::<F>(mine));
    }
    Ok(())
}

impl<C: Copy> Folding<C> {
    /// Folds the source rows whose target, modulo `shares`, is in `mine`.
    fn rows<F: Fold<C>>(&self, mine: Range<usize>, shares: i64) {
        let [source_step, _, out_step] = self.walk.inner();
        for j in 0..self.count {
            if j % SOME == 0 {
                interrupt::poll();
            }
            // SAFETY: an index at a position of its layout (L2).
            let index = unsafe { self.index.get().offset(self.index_first + j * self.index_along).read() };
            if shares > 1 && !mine.contains(&((index % shares) as usize)) {
                continue;
            }
            self.walk.runs(0, self.walk.numel(), |[from, _, to], len| {
                // SAFETY: the walk yields positions of the layouts at index 0 of `dim`, from which `j` and the index
                // lead to positions that the layouts have too (L2, and the invariant of `Indices`). No other thread
                // writes to this row of the target, which is not shared with the source.
                unsafe {
                    let from = self.source.get().offset(from + j * self.source_along);
                    let to = self.out.get().offset(to + index as isize * self.out_along);
                    fold_run::<C, F>(from, source_step, to, out_step, len);
                }
            });
        }
    }

    /// Folds the source elements whose index is in `mine`.
    fn ranges<F: Fold<C>>(&self, mine: Range<usize>) {
        let [source_step, index_step, out_step] = self.walk.inner();
        let (low, width) = (mine.start as i64, mine.len() as u64);
        self.walk.runs(0, self.walk.numel(), |[from, index, to], len| {
            for i in 0..len as isize {
                // SAFETY: the walk yields positions of the layouts at index 0 of `dim`, from which `j` and the index lead
                // to positions that the layouts have too (L2, and the invariant of `Indices`). No other thread writes to
                // these indices of the target, which is not shared with the source.
                unsafe {
                    let index = self.index.get().offset(index + i * index_step);
                    let from = self.source.get().offset(from + i * source_step);
                    let to = self.out.get().offset(to + i * out_step);
                    // The matching indices of a tile are collected first without a branch, which would be mispredicted.
                    for start in (0..self.count).step_by(TILE) {
                        interrupt::poll();
                        let (mut found, mut n) = ([(0_isize, 0_isize); TILE], 0);
                        for j in start..self.count.min(start + TILE as isize) {
                            let at = index.offset(j * self.index_along).read();
                            found[n] = (j * self.source_along, at as isize * self.out_along);
                            n += usize::from((at.wrapping_sub(low) as u64) < width);
                        }
                        for &(from_at, to_at) in &found[..n] {
                            let to = to.offset(to_at);
                            to.write(F::fold(to.read(), from.offset(from_at).read()));
                        }
                    }
                }
            }
        });
    }

    /// Folds the source elements in the lanes of `mine`.
    fn lanes<F: Fold<C>>(&self, mine: Range<usize>) {
        let [source_step, index_step, out_step] = self.walk.inner();
        // SAFETY: `at` are positions of the layouts at index 0 of `dim`, `i` a place in the walk's run there and `j`
        // below the length of `dim`; with the index they lead to positions that the layouts have (L2, and the
        // invariant of `Indices`). No other thread writes in these lanes of the target.
        let fold = |[from, index, to]: [isize; 3], i: isize, j: isize| unsafe {
            let index = self.index.get().offset(index + i * index_step + j * self.index_along).read() as isize;
            let from = self.source.get().offset(from + i * source_step + j * self.source_along).read();
            let to = self.out.get().offset(to + i * out_step + index * self.out_along);
            to.write(F::fold(to.read(), from));
        };
        // The first run may be a remainder; the second has the full length.
        let mut longest = 0;
        self.walk.runs(mine.start, mine.end.min(mine.start + 2 * SHORT), |_, len| longest = len.max(longest));
        if longest < SHORT {
            self.walk.runs(mine.start, mine.end, |at, len| {
                for i in 0..len as isize {
                    for start in (0..self.count).step_by(SOME as usize) {
                        interrupt::poll();
                        (start..self.count.min(start + SOME)).for_each(|j| fold(at, i, j));
                    }
                }
            });
        } else {
            for j in 0..self.count {
                if j % SOME == 0 {
                    interrupt::poll();
                }
                self.walk.runs(mine.start, mine.end, |at, len| (0..len as isize).for_each(|i| fold(at, i, j)));
            }
        }
    }
}

/// Folds `n` elements into `n` others.
///
/// # Safety
/// `from` and `to` are valid for `n` elements at their steps, and do not overlap.
unsafe fn fold_run<C: Copy, F: Fold<C>>(from: *const C, from_step: isize, to: *mut C, to_step: isize, n: usize) {
    struct FoldRun<C, F>(*const C, *mut C, usize, std::marker::PhantomData<F>);
    impl<C: Copy, F: Fold<C>> Job for FoldRun<C, F> {
        type Output = ();
        #[inline(always)]
        fn run<const FMA: bool>(self) {
            let FoldRun(from, to, n, _) = self;
            for i in 0..n {
                // SAFETY: the contract of `fold_run`, with steps of 1.
                unsafe { to.add(i).write(F::fold(to.add(i).read(), from.add(i).read())) };
            }
        }
    }
    if from_step == 1 && to_step == 1 {
        return dispatch(FoldRun::<C, F>(from, to, n, std::marker::PhantomData));
    }
    for i in 0..n as isize {
        // SAFETY: the contract.
        unsafe {
            let to = to.offset(i * to_step);
            to.write(F::fold(to.read(), from.offset(i * from_step).read()));
        }
    }
}
