//! Shared parts of the fused kernels: compute types, rows of a matrix, and sums in a fixed order.

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
    /// The exponential of a number ≤ 0; tiny results are flushed to 0. `FMA` is that of
    /// [`Job::run`](crate::backend::cpu::runtime::simd::Job).
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

    /// A row, in place if it can be read there, else converted to `scratch`.
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
    /// Whether rows bypass the caches, because the whole matrix does not fit there.
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

    /// The same, but [`done`](Self::done) writes rows with non-temporal stores if the whole matrix does not fit in the
    /// caches. The writer must call [`streaming::fence`] after the last row.
    pub fn streaming(view: &'a mut ViewMut<'_>, len: usize) -> MatrixRowsMut<'a, C> {
        let large = view.layout.numel() * size_of::<C>() >= streaming::LARGE;
        MatrixRowsMut { large, ..MatrixRowsMut::new(view, len) }
    }

    /// The slice to write a row to: the row itself if it can be written in place, else `scratch`, which
    /// [`done`](Self::done) then copies to the row. It is a slice instead of a callback because the compiler uses
    /// baseline vectors in a closure that it does not inline, whatever the surrounding loop is compiled for.
    ///
    /// # Safety
    /// No other thread writes the same row, and no other slice of it is alive.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller's promise.
    pub unsafe fn row<'s>(&'s self, at: usize, scratch: &'s mut Vec<C>) -> &'s mut [C] {
        // The count is unknown if rows are empty.
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

    /// As [`row`](Self::row), with the present contents of the row.
    ///
    /// # Safety
    /// As for [`row`](Self::row); the row was written before.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // The caller's promise.
    pub unsafe fn row_as_it_is<'s>(&'s self, at: usize, scratch: &'s mut Vec<C>) -> &'s mut [C] {
        // SAFETY: the caller's promise.
        let row = unsafe { self.row(at, scratch) };
        if (self.dtype != C::DTYPE || self.large) && at < self.count {
            // SAFETY: row `at` of the contiguous view, as above; `row` has the same length and does not overlap it.
            unsafe {
                let first = self.first.get().add(at * self.len * self.dtype.size());
                C::load(self.dtype, first, 1, row.as_mut_ptr(), row.len());
            }
        }
        row
    }

    /// Copies a row that was written to `scratch` to its place.
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

/// Parallel accumulators: two of the widest registers, so that additions need not wait for each other.
const LANES: usize = 32;
const BLOCK: usize = 1024;

/// The sum of `f` over the elements of slices of one length, in lanes within blocks and block by block. To be inlined
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

/// The greatest element, ignoring NaN.
#[inline(always)]
pub(crate) fn greatest<C: Float>(x: &[C]) -> C {
    let greater = |a: C, b: C| if b > a { b } else { a };
    // One register and a separate remainder: the compiler does not vectorize other forms of this loop.
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

/// Block size of [`greatest_and_sum`]: a block stays in the first-level cache.
const NEAR: usize = 1024;

/// The greatest element and `Σ exp(x - greatest)`, in one pass over memory, block by block. When the greatest element
/// grows, the sum is rescaled.
#[inline(always)]
pub(crate) fn greatest_and_sum<C: Float, const FMA: bool>(x: &[C]) -> (C, C) {
    let mut top = greatest(&x[..NEAR.min(x.len())]);
    if top == C::LOWEST {
        // Differences from -∞ are NaN. They may enter the sum only if all elements are -∞.
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

/// `Σ exp(x - top)` over a block, and the greatest element of the next one, which is loaded while the exponentials are
/// computed. Both have [`NEAR`] elements.
#[inline(always)]
fn sum_and_look_ahead<C: Float, const FMA: bool>(block: &[C], top: C, next: &[C]) -> (C, C) {
    // The size of the parts whose loads and exponentials overlap in the CPU.
    const PART: usize = 128;
    let greater = |a: C, b: C| if b > a { b } else { a };
    let (mut sums, mut tops) = ([C::ZERO; LANES], [C::LOWEST; LANES / 2]);
    // Two loops for each part: the compiler keeps the lanes of one loop in registers, but not those of both in one.
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
