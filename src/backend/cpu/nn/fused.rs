//! What the fused kernels share: the numbers they compute in, rows of a matrix, and sums in a fixed order.

use crate::DType;
use crate::backend::cpu::elementwise::math;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::simd::each;
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::Ptr;
use crate::backend::{View, ViewMut};
use crate::zip::zip;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The compute dtypes of floats.
pub(crate) trait Float:
    Compute + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    const ZERO: Self;
    const LOWEST: Self;
    fn lit(value: f64) -> Self;
    /// The exponential of what is not above 0, with 0 for what is all but 0. `FMA` is that of [`Job::run`](crate::backend::cpu::runtime::simd::Job).
    fn exp_nonpositive<const FMA: bool>(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
}

macro_rules! floats {
    ($($t:ident, $exp:expr, $ln:ident;)+) => {$(
        impl Float for $t {
            const ZERO: $t = 0.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn lit(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn exp_nonpositive<const FMA: bool>(self) -> $t { $exp(self) }
            #[inline(always)]
            fn ln(self) -> $t { math::$ln(self) }
            #[inline(always)]
            fn sqrt(self) -> $t { $t::sqrt(self) }
        }
    )+};
}
floats! { f32, math::exp_nonpositive_f32::<FMA>, ln_f32; f64, math::exp_nonpositive_f64, ln_f64; }

/// The rows of a matrix, read in compute dtype `C`.
pub(crate) struct MatrixRows<'a, C> {
    first: Ptr<u8>,
    dtype: DType,
    count: usize,
    len: usize,
    steps: (isize, isize),
    _borrow: PhantomData<&'a C>,
}

impl<'a, C: Float> MatrixRows<'a, C> {
    /// The view has two dimensions.
    pub fn new(view: &View<'a>) -> MatrixRows<'a, C> {
        let (shape, strides) = (view.layout.shape(), view.layout.strides());
        MatrixRows {
            first: Ptr::new(view.first().cast_mut()),
            dtype: view.dtype,
            count: shape[0],
            len: shape[1],
            steps: (strides[0], strides[1]),
            _borrow: PhantomData,
        }
    }

    /// A row, where it lies if it can be read there, else in `scratch`.
    #[inline]
    pub fn row<'s>(&'s self, at: usize, scratch: &'s mut Vec<C>) -> &'s [C] {
        debug_assert!(at < self.count);
        if at >= self.count || self.len == 0 {
            return &[];
        }
        // SAFETY: the row is one of the view's, whose positions are inside the storage (L2), which is borrowed for 'a;
        // `scratch` is made long enough.
        unsafe {
            let first = self.first.get().offset(at as isize * self.steps.0 * self.dtype.size() as isize);
            if self.dtype == C::DTYPE && self.steps.1 == 1 {
                return std::slice::from_raw_parts(first.cast::<C>(), self.len);
            }
            scratch.resize(self.len, C::ZERO);
            C::load(self.dtype, first, self.steps.1, scratch.as_mut_ptr(), self.len);
        }
        scratch
    }
}

/// The rows of a contiguous matrix, written in compute dtype `C`.
pub(crate) struct MatrixRowsMut<'a, C> {
    first: Ptr<u8>,
    dtype: DType,
    count: usize,
    len: usize,
    /// Whether rows bypass the caches: all of them together would not stay there.
    large: bool,
    _borrow: PhantomData<&'a mut C>,
}

impl<'a, C: Float> MatrixRowsMut<'a, C> {
    /// The view is contiguous and has rows of `len`.
    pub fn new(view: &'a mut ViewMut<'_>, len: usize) -> MatrixRowsMut<'a, C> {
        debug_assert!(view.layout.is_contiguous());
        let count = view.layout.numel() / len.max(1);
        MatrixRowsMut {
            first: Ptr::new(view.first()),
            dtype: view.dtype,
            count,
            len,
            large: false,
            _borrow: PhantomData,
        }
    }

    /// The same, with rows that [`done`](Self::done) brings past the caches if all of them together would not stay there.
    /// Whoever writes them calls [`streaming::fence`] after the last.
    pub fn streaming(view: &'a mut ViewMut<'_>, len: usize) -> MatrixRowsMut<'a, C> {
        let large = view.layout.numel() * size_of::<C>() >= streaming::LARGE;
        MatrixRowsMut { large, ..MatrixRowsMut::new(view, len) }
    }

    /// The place to write a row to: where it lies if it can be written there, else `scratch`, which [`done`](Self::done)
    /// then brings there. A slice and not a closure that fills it: the compiler gives a closure that it does not inline
    /// the vectors of the baseline, whatever the loop around it is compiled for.
    ///
    /// # Safety
    /// No other thread writes the same row, and no other slice of it is alive.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller's promise.
    pub unsafe fn row<'s>(&'s self, at: usize, scratch: &'s mut Vec<C>) -> &'s mut [C] {
        // How many rows without elements there are, the view does not say.
        debug_assert!(at < self.count || self.len == 0);
        if at >= self.count || self.len == 0 {
            return &mut [];
        }
        if self.dtype != C::DTYPE || self.large {
            scratch.resize(self.len, C::ZERO);
            return scratch;
        }
        // SAFETY: row `at` of the contiguous view, whose storage is borrowed mutably; the caller keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.first.get().cast::<C>().add(at * self.len), self.len) }
    }

    /// As [`row`](Self::row), with what is in the row.
    ///
    /// # Safety
    /// As for [`row`](Self::row); the row was written before.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller's promise.
    pub unsafe fn row_as_it_is<'s>(&'s self, at: usize, scratch: &'s mut Vec<C>) -> &'s mut [C] {
        // SAFETY: the caller's promise.
        let row = unsafe { self.row(at, scratch) };
        if (self.dtype != C::DTYPE || self.large) && at < self.count {
            // SAFETY: row `at` of the contiguous view, as above; `row` is as long, and elsewhere.
            unsafe {
                let first = self.first.get().add(at * self.len * self.dtype.size());
                C::load(self.dtype, first, 1, row.as_mut_ptr(), row.len());
            }
        }
        row
    }

    /// Brings a row that was written to `scratch` to its place.
    ///
    /// # Safety
    /// No other thread writes the same row.
    #[inline(always)]
    pub unsafe fn done(&self, at: usize, scratch: &[C]) {
        if self.dtype == C::DTYPE && !self.large || at >= self.count || scratch.len() != self.len {
            return;
        }
        // SAFETY: row `at` of the contiguous view, as above.
        unsafe {
            let first = self.first.get().add(at * self.len * self.dtype.size());
            if self.dtype == C::DTYPE {
                streaming::copy(scratch, std::slice::from_raw_parts_mut(first.cast::<C>(), self.len), &[]);
            } else {
                C::store(self.dtype, scratch.as_ptr(), first, 1, self.len);
            }
        }
    }
}

/// Accumulators side by side: two of the widest registers, so that one sum need not wait for the last.
const LANES: usize = 32;
const BLOCK: usize = 1024;

/// The sum of `f` over the elements of slices of one length: in lanes within blocks, block after block. To be inlined
/// into a [`Job`](crate::backend::cpu::runtime::simd::Job).
#[inline(always)]
pub(crate) fn sum_by<C: Float, const N: usize>(x: [&[C]; N], f: impl Fn([C; N]) -> C) -> C {
    let n = x.iter().map(|x| x.len()).min().unwrap_or(0);
    // SAFETY: `i` is below the length of each slice.
    let at = |i: usize| f(each(|k| unsafe { *x[k].get_unchecked(i) }));
    if n < LANES {
        return (0..n).fold(C::ZERO, |sum, i| sum + at(i));
    }
    let mut total = C::ZERO;
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        let whole = start + (end - start) / LANES * LANES;
        let mut lanes = [C::ZERO; LANES];
        for first in (start..whole).step_by(LANES) {
            for (lane, sum) in lanes.iter_mut().enumerate() {
                *sum = *sum + at(first + lane);
            }
        }
        for (lane, i) in (whole..end).enumerate() {
            lanes[lane] = lanes[lane] + at(i);
        }
        let mut width = LANES;
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] = lanes[lane] + lanes[lane + width];
            }
        }
        total = total + lanes[0];
    }
    total
}

/// The greatest element; NaNs do not count.
#[inline(always)]
pub(crate) fn greatest<C: Float>(x: &[C]) -> C {
    let greater = |a: C, b: C| if b > a { b } else { a };
    // One register, and the rest apart from it: other forms of this loop were taken to pieces by the compiler.
    const LANES: usize = 16;
    let mut lanes = [C::LOWEST; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in zip(&mut lanes[..], chunk) {
            *lane = greater(*lane, x);
        }
    }
    let rest = chunks.remainder().iter().fold(C::LOWEST, |a, &b| greater(a, b));
    lanes.into_iter().fold(rest, greater)
}

/// Elements that are looked at together in [`greatest_and_sum`]: they stay in the first-level cache.
const NEAR: usize = 1024;

/// The greatest element and `Σ exp(x - greatest)`, in one pass over memory: block by block, with the sum so far brought
/// to the new greatest element where that grows.
#[inline(always)]
pub(crate) fn greatest_and_sum<C: Float, const FMA: bool>(x: &[C]) -> (C, C) {
    let mut top = greatest(&x[..NEAR.min(x.len())]);
    if top == C::LOWEST {
        // Differences to -∞ are no numbers: they may stand in the sum only if that is all there is.
        top = greatest(x);
    }
    let mut sum = C::ZERO;
    let mut rest = x;
    while !rest.is_empty() {
        let (block, others) = rest.split_at(NEAR.min(rest.len()));
        rest = others;
        let (part, next) = match others.get(..NEAR) {
            Some(next) => sum_and_look_ahead::<C, FMA>(block, top, next),
            None => (sum_by([block], |[x]| (x - top).exp_nonpositive::<FMA>()), greatest(others)),
        };
        sum = sum + part;
        if next > top {
            sum = sum * (top - next).exp_nonpositive::<FMA>();
            top = next;
        }
    }
    (top, sum)
}

/// `Σ exp(x - top)` over a block, and the greatest element of the next one, whose memory comes while exponentials are
/// taken. Both have [`NEAR`] elements.
#[inline(always)]
fn sum_and_look_ahead<C: Float, const FMA: bool>(block: &[C], top: C, next: &[C]) -> (C, C) {
    // Loads of one part and exponentials of another that the CPU has under way at once.
    const PART: usize = 128;
    let greater = |a: C, b: C| if b > a { b } else { a };
    let (mut sums, mut tops) = ([C::ZERO; LANES], [C::LOWEST; LANES / 2]);
    // Two loops for each part: the compiler keeps the lanes of one loop in registers, and not those of both.
    for start in (0..NEAR).step_by(PART) {
        let (block, next) = (&block[start..start + PART], &next[start..start + PART]);
        for next in next.chunks_exact(LANES / 2) {
            zip(&mut tops[..], next).for_each(|(top, &x)| *top = greater(*top, x));
        }
        for block in block.chunks_exact(LANES) {
            zip(&mut sums[..], block).for_each(|(sum, &x)| *sum = *sum + (x - top).exp_nonpositive::<FMA>());
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] = sums[lane] + sums[lane + width];
        }
    }
    (sums[0], tops.into_iter().fold(C::LOWEST, greater))
}
