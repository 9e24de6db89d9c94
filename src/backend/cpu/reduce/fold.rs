//! The associative operations of reductions, and the order in which they fold.

use crate::backend::cpu::elementwise::math;
use crate::zip::zip;

/// An associative operation on values of elements of a compute dtype.
///
/// Each result may have a center, such as the mean for deviations; without centers it is [`START`](Self::START).
pub(crate) trait Fold<C>: Copy + Send + Sync {
    /// The neutral element of the operation.
    const START: C;
    /// Whether [`take`](Self::take) costs little compared to reading the element.
    const LIGHT: bool = true;

    fn join(self, a: C, b: C) -> C;

    /// The value of an element that is folded.
    #[inline(always)]
    fn take(self, x: C, _own: C) -> C {
        x
    }

    /// The result from the fold of all elements.
    #[inline(always)]
    fn finish(self, total: C, _own: C) -> C {
        total
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Sum;
#[derive(Clone, Copy)]
pub(crate) struct Prod;
#[derive(Clone, Copy)]
pub(crate) struct Max;
#[derive(Clone, Copy)]
pub(crate) struct Min;
/// The greatest integer after these bits are flipped. With no bits it is the maximum of signed integers, with the sign bit that of
/// unsigned ones; with the complementary bits it is the minimum. So one loop serves all four.
#[derive(Clone, Copy)]
pub(crate) struct Greatest {
    pub flip: i64,
}
/// The sum of floats, divided by a number: by 1, or by their number for the mean. It is divided before it is rounded to half
/// precision, which the sum might not fit into.
#[derive(Clone, Copy)]
pub(crate) struct Mean(pub f64);

/// Implements a fold for each compute dtype; the first formula is for floats, the second for integers.
macro_rules! folds {
    ($($fold:ident: $t:ident from $start:expr, |$a:ident, $b:ident| $join:expr;)+) => {$(
        impl Fold<$t> for $fold {
            const START: $t = $start;
            #[inline(always)]
            fn join(self, $a: $t, $b: $t) -> $t { $join }
        }
    )+};
}
folds! {
    Sum: f32 from 0.0, |a, b| a + b;
    Sum: f64 from 0.0, |a, b| a + b;
    Sum: i64 from 0, |a, b| a.wrapping_add(b);
    Prod: f32 from 1.0, |a, b| a * b;
    Prod: f64 from 1.0, |a, b| a * b;
    Prod: i64 from 1, |a, b| a.wrapping_mul(b);
    // A NaN on either side wins. Both tests are always evaluated, as a branch would prevent vectorization.
    Max: f32 from f32::NEG_INFINITY, |a, b| if (a > b) | a.is_nan() { a } else { b };
    Max: f64 from f64::NEG_INFINITY, |a, b| if (a > b) | a.is_nan() { a } else { b };
    Max: i64 from i64::MIN, |a, b| a.max(b);
    Max: u64 from u64::MIN, |a, b| a.max(b);
    Min: f32 from f32::INFINITY, |a, b| if (a < b) | a.is_nan() { a } else { b };
    Min: f64 from f64::INFINITY, |a, b| if (a < b) | a.is_nan() { a } else { b };
    Min: i64 from i64::MAX, |a, b| a.min(b);
    Min: u64 from u64::MAX, |a, b| a.min(b);
}

impl Fold<i64> for Greatest {
    const START: i64 = i64::MIN;

    #[inline(always)]
    fn join(self, a: i64, b: i64) -> i64 {
        a.max(b)
    }

    #[inline(always)]
    fn take(self, x: i64, _own: i64) -> i64 {
        x ^ self.flip
    }

    #[inline(always)]
    fn finish(self, total: i64, _own: i64) -> i64 {
        total ^ self.flip
    }
}

macro_rules! means {
    ($($t:ident),+) => {$(
        impl Fold<$t> for Mean {
            const START: $t = 0.0;
            #[inline(always)]
            fn join(self, a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn finish(self, total: $t, _own: $t) -> $t { total / self.0 as $t }
        }
    )+};
}
means!(f32, f64);

/// The sum of the differences from the result's center, divided by a number.
#[derive(Clone, Copy)]
pub(crate) struct MeanDifference(pub f64);
/// The sum of the squared distances from the result's center, the mean, divided by a number.
#[derive(Clone, Copy)]
pub(crate) struct Deviation(pub f64);
/// The logarithm of the sum of exponentials. A result's center is the greatest element, or 0 if that is infinite.
#[derive(Clone, Copy)]
pub(crate) struct LogSumExp;

macro_rules! shifted {
    ($($t:ident, $exp:ident, $ln:ident);+) => {$(
        impl Fold<$t> for Deviation {
            const START: $t = 0.0;
            #[inline(always)]
            fn join(self, a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn take(self, x: $t, center: $t) -> $t { (x - center) * (x - center) }
            #[inline(always)]
            fn finish(self, total: $t, _own: $t) -> $t { total / self.0 as $t }
        }

        impl Fold<$t> for MeanDifference {
            const START: $t = 0.0;
            #[inline(always)]
            fn join(self, a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn take(self, x: $t, center: $t) -> $t { x - center }
            #[inline(always)]
            fn finish(self, total: $t, _own: $t) -> $t { total / self.0 as $t }
        }

        impl Fold<$t> for LogSumExp {
            const START: $t = 0.0;
            const LIGHT: bool = false;
            #[inline(always)]
            fn join(self, a: $t, b: $t) -> $t { a + b }
            #[inline(always)]
            fn take(self, x: $t, center: $t) -> $t { math::$exp(x - center) }
            #[inline(always)]
            fn finish(self, total: $t, center: $t) -> $t { math::$ln(total) + center }
        }
    )+};
}
shifted!(f32, exp_f32, ln_f32; f64, exp_f64, ln_f64);

/// Pairwise summation: joins parts in pairs, pairs of pairs and so on, as they come. The rounding error of a sum grows with the
/// logarithm of their number instead of the number.
pub(crate) struct Cascade<C, J> {
    start: C,
    join: J,
    /// The fold of 2^k parts, if bit `k` of the count is set.
    levels: [C; 48],
    count: u64,
}

impl<C: Copy, J: Fn(C, C) -> C> Cascade<C, J> {
    /// An empty cascade; `start` is the neutral element.
    #[inline(always)]
    pub fn new(start: C, join: J) -> Cascade<C, J> {
        Cascade { start, join, levels: [start; 48], count: 0 }
    }

    #[inline(always)]
    pub fn push(&mut self, part: C) {
        let (mut sum, mut level) = (part, 0);
        while self.count >> level & 1 == 1 {
            sum = (self.join)(self.levels[level], sum);
            level += 1;
        }
        self.levels[level] = sum;
        self.count += 1;
    }

    #[inline(always)]
    pub fn total(&self) -> C {
        let mut total = self.start;
        for (level, &sum) in self.levels.iter().enumerate() {
            if self.count >> level & 1 == 1 {
                total = (self.join)(sum, total);
            }
        }
        total
    }
}

/// The number of accumulators: enough to hide the latency of additions, few enough for the registers.
pub(crate) const LANES: usize = 32;
/// The number of elements that the lanes fold in sequence.
pub(crate) const BLOCK: usize = 1024;

/// The fold of a slice: lanes within blocks, blocks in a cascade. To be inlined into a [`Job`](crate::backend::cpu::runtime::simd::Job).
#[inline(always)]
pub(crate) fn fold_run<C: Copy, F: Fold<C>>(fold: F, x: &[C], center: C) -> C {
    let (mut all, mut left) = (None, x);
    // Blocks are folded in one place, which is compiled once. A single block needs no cascade.
    loop {
        let (block, rest) = left.split_at(left.len().min(BLOCK));
        let part = fold_block(fold, block, center);
        if block.len() == x.len() {
            return part;
        }
        let all = all.get_or_insert_with(|| Cascade::new(F::START, |a, b| fold.join(a, b)));
        all.push(part);
        if rest.is_empty() {
            return all.total();
        }
        left = rest;
    }
}

#[inline(always)]
pub(crate) fn fold_block<C: Copy, F: Fold<C>>(fold: F, x: &[C], center: C) -> C {
    if x.len() < LANES {
        return x.iter().fold(F::START, |total, &x| fold.join(total, fold.take(x, center)));
    }
    let mut lanes = [F::START; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in zip(&mut lanes[..], chunk) {
            *lane = fold.join(*lane, fold.take(x, center));
        }
    }
    for (lane, &x) in zip(&mut lanes[..], chunks.remainder()) {
        *lane = fold.join(*lane, fold.take(x, center));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = fold.join(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}
