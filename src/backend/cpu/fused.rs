//! What the fused kernels share: the numbers they compute in, rows of a matrix, and sums in a fixed order.

use super::convert::Compute;
use super::math;
use super::threads::Ptr;
use crate::DType;
use crate::backend::{View, ViewMut};
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The computing types of floats.
pub(crate) trait Float:
    Compute + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    const ZERO: Self;
    const LOWEST: Self;
    fn lit(value: f64) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
}

macro_rules! floats {
    ($($t:ident, $exp:ident, $ln:ident;)+) => {$(
        impl Float for $t {
            const ZERO: $t = 0.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn lit(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn exp(self) -> $t { math::$exp(self) }
            #[inline(always)]
            fn ln(self) -> $t { math::$ln(self) }
            #[inline(always)]
            fn sqrt(self) -> $t { $t::sqrt(self) }
        }
    )+};
}
floats! { f32, exp_f32, ln_f32; f64, exp_f64, ln_f64; }

/// The rows of a matrix, read in computing type `C`.
pub(crate) struct Rows<'a, C> {
    first: Ptr<u8>,
    dtype: DType,
    count: usize,
    len: usize,
    steps: (isize, isize),
    _borrow: PhantomData<&'a C>,
}

impl<'a, C: Float> Rows<'a, C> {
    /// The view has two dimensions.
    pub fn new(view: &View<'a>) -> Rows<'a, C> {
        let (shape, strides) = (view.layout.shape(), view.layout.strides());
        Rows {
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

/// The rows of a contiguous matrix, written in computing type `C`.
pub(crate) struct RowsMut<'a, C> {
    first: Ptr<u8>,
    dtype: DType,
    count: usize,
    len: usize,
    _borrow: PhantomData<&'a mut C>,
}

impl<'a, C: Float> RowsMut<'a, C> {
    /// The view is contiguous and has rows of `len`.
    pub fn new(view: &'a mut ViewMut<'_>, len: usize) -> RowsMut<'a, C> {
        debug_assert!(view.layout.is_contiguous());
        let count = view.layout.numel() / len.max(1);
        RowsMut { first: Ptr::new(view.first()), dtype: view.dtype, count, len, _borrow: PhantomData }
    }

    /// Lets `f` write a row.
    ///
    /// # Safety
    /// No other thread writes the same row.
    #[inline(always)]
    pub unsafe fn write(&self, at: usize, scratch: &mut Vec<C>, f: impl FnOnce(&mut [C])) {
        debug_assert!(at < self.count);
        if at >= self.count || self.len == 0 {
            return;
        }
        // SAFETY: row `at` of the contiguous view, whose storage is borrowed mutably; the caller keeps threads apart.
        unsafe {
            let first = self.first.get().add(at * self.len * self.dtype.size());
            if self.dtype == C::DTYPE {
                return f(std::slice::from_raw_parts_mut(first.cast::<C>(), self.len));
            }
            scratch.resize(self.len, C::ZERO);
            f(scratch);
            C::store(self.dtype, scratch.as_ptr(), first, 1, self.len);
        }
    }
}

const LANES: usize = 16;
const BLOCK: usize = 1024;

/// The sum of `f` over the elements of slices of one length: in lanes within blocks, block after block. To be inlined
/// into a [`Job`](super::simd::Job).
#[inline(always)]
pub(crate) fn sum_by<C: Float, const N: usize>(x: [&[C]; N], f: impl Fn([C; N]) -> C) -> C {
    let n = x.iter().map(|x| x.len()).min().unwrap_or(0);
    // SAFETY: `i` is below the length of each slice.
    let at = |i: usize| f(std::array::from_fn(|k| unsafe { *x[k].get_unchecked(i) }));
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
    let mut lanes = [C::LOWEST; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = greater(*lane, x);
        }
    }
    let rest = chunks.remainder().iter().fold(C::LOWEST, |a, &b| greater(a, b));
    lanes.into_iter().fold(rest, greater)
}
