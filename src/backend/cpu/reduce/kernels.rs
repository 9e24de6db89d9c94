//! The loops of a fold as trait objects: they are compiled for each fold and each vector width, and the code that plans and splits
//! the work once for each compute dtype.

use crate::backend::cpu::reduce::fold::{Cascade, Fold, fold_run};
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::zip::zip;

/// A fold over slices.
pub(super) trait Kernels<C>: Sync {
    /// The neutral element of the fold.
    fn start(&self) -> C;

    /// Whether the value of an element costs little compared to reading it.
    fn is_light(&self) -> bool;

    fn join(&self, a: C, b: C) -> C;

    /// Joins one row with another.
    fn join_rows(&self, into: &mut [C], from: &[C]);

    /// Computes results from the folds of all their elements.
    fn finish(&self, totals: &mut [C], centers: &[C]);

    /// Folds `to.len()` runs of `length` elements, `step` apart; each has its center.
    ///
    /// # Safety
    /// There are `length` elements from the start of each run on.
    unsafe fn runs(&self, from: *const C, step: isize, length: usize, center: &[C], to: &mut [C]);

    /// Folds `rows` rows, `step` apart and as long as the sums, into the sums.
    ///
    /// # Safety
    /// There are `sums.len()` elements from the start of each row on.
    unsafe fn columns(&self, from: *const C, step: isize, rows: usize, center: &[C], sums: &mut [C]);

    /// As [`columns`](Self::columns), for few rows whose elements are [`APART`] apart. Returns false without doing anything if
    /// this fold has no such loop.
    ///
    /// # Safety
    /// There are `sums.len()` elements, [`APART`] apart, from the start of each row on.
    unsafe fn columns_apart(&self, from: *const C, step: isize, rows: usize, center: &[C], sums: &mut [C]) -> bool;
}

impl<C: Compute, F: Fold<C>> Kernels<C> for F {
    fn start(&self) -> C {
        F::START
    }

    fn is_light(&self) -> bool {
        F::LIGHT
    }

    fn join(&self, a: C, b: C) -> C {
        Fold::join(*self, a, b)
    }

    fn join_rows(&self, into: &mut [C], from: &[C]) {
        dispatch(Join { fold: *self, into, from });
    }

    fn finish(&self, totals: &mut [C], centers: &[C]) {
        zip(totals, centers).for_each(|(x, &center)| *x = Fold::finish(*self, *x, center));
    }

    unsafe fn runs(&self, from: *const C, step: isize, length: usize, center: &[C], to: &mut [C]) {
        dispatch(FoldRows { fold: *self, from, step, length, center, to });
    }

    unsafe fn columns(&self, from: *const C, step: isize, rows: usize, center: &[C], sums: &mut [C]) {
        dispatch(FoldColumns { fold: *self, from, step, rows, center, sums });
    }

    unsafe fn columns_apart(&self, from: *const C, step: isize, rows: usize, center: &[C], sums: &mut [C]) -> bool {
        // Only for f32: the condition is constant, so that other types get no code.
        if F::LIGHT && size_of::<C>() == 4 {
            dispatch(FoldApart { fold: *self, from, step, rows, center, sums });
            return true;
        }
        false
    }
}

/// The number of rows that are folded together before they are joined with the sums.
pub(super) const GROUP: usize = 8;

/// Joins parts as they come.
pub(super) fn cascade<C: Copy>(fold: &dyn Kernels<C>) -> Cascade<C, impl Fn(C, C) -> C> {
    Cascade::new(fold.start(), |a, b| fold.join(a, b))
}

/// The folds of `to.len()` runs of `length` elements, `step` apart; each has its center.
struct FoldRows<'a, C, F> {
    fold: F,
    from: *const C,
    step: isize,
    length: usize,
    center: &'a [C],
    to: &'a mut [C],
}

impl<C: Compute, F: Fold<C>> Job for FoldRows<'_, C, F> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let FoldRows { fold, from, step, length, center, to } = self;
        for i in 0..to.len().min(center.len()) {
            // SAFETY: the creator guarantees `length` elements from every start on.
            let run = unsafe { std::slice::from_raw_parts(from.offset(i as isize * step), length) };
            to[i] = fold_run(fold, run, center[i]);
        }
    }
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
        // SAFETY: the creator guarantees `n` elements from the start of each of the rows.
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

/// The stride of elements of a row that can be folded in place: that of the most common pooling.
pub(super) const APART: usize = 2;

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
            // SAFETY: the creator guarantees `n` elements, `APART` apart, from the start of each of the rows.
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
