//! Elementwise operations on rows of complex numbers, before, between and after transforms.

use crate::butterfly::{Constant, Number};
use crate::lanes::Lanes;
use crate::moves::{MOST, load_some, store_some};

/// Complex numbers times those of a table of alternating registers of real and imaginary parts.
pub struct Product<T> {
    pub from: *const T,
    /// May be the same as `from`.
    pub to: *mut T,
    pub by: *const T,
    pub n: usize,
    /// Whether to multiply by the conjugate numbers of the table.
    pub conjugate: bool,
}

/// Numbers times those of the table at `by`.
///
/// # Safety
/// The CPU has the instructions of `V`, here and below, and there is a register of both parts.
#[inline(always)]
unsafe fn times<V: Lanes>(x: Number<V>, by: *const V::Part, sign: V) -> Number<V> {
    // SAFETY: the caller's promise.
    unsafe {
        let w = Number::<V>::load(by, false);
        x.mul(Number(w.0, w.1.mul(sign)))
    }
}

/// # Safety
/// There are as many numbers at `from` and `to`, and as many in the table up to a full register.
#[inline(always)]
pub(crate) unsafe fn product<V: Lanes<Part: Constant>>(of: &Product<V::Part>) {
    // SAFETY: the caller's promise.
    unsafe {
        let sign = V::splat(V::Part::of(if of.conjugate { -1.0 } else { 1.0 }));
        let whole = of.n - of.n % V::LANES;
        for at in (0..whole).step_by(V::LANES) {
            let x = Number::load(of.from.add(2 * at), true);
            times(x, of.by.add(2 * at), sign).store(of.to.add(2 * at), true);
        }
        if whole < of.n {
            let (rest, x) = (2 * (of.n - whole), load_some(of.from.add(2 * whole), 2 * (of.n - whole)));
            store_some(times(x, of.by.add(2 * whole), sign), of.to.add(2 * whole), rest);
        }
    }
}

/// The step between the transform of `2 half` real numbers and that of `half` complex ones, which are the same in memory.
///
/// If `Z` is the transform of the complex numbers, `X` that of the real ones, and `w = exp(-2πi / (2 half))`, then
/// `2 X[k] = (Z[k] + Z*[half - k]) - i w^k (Z[k] - Z*[half - k])`; the other way, `Z[k]` is the same of `X` with `i w^-k`, and
/// no factor 2, where no transform is scaled. Numbers `k` and `half - k` come from the same two.
pub struct Untangle<T> {
    pub from: *const T,
    /// May be the same as `from`.
    pub to: *mut T,
    /// `-i w^k / 2` from `k = 1` on, in registers of real and of imaginary parts.
    pub turns: *const T,
    pub half: usize,
    /// The `k`s to do, with their `half - k`. All are between 1 and `half / 2`. There are a multiple of the lanes before the
    /// first, and after the last of them, unless that is `half / 2`.
    pub start: usize,
    pub end: usize,
    pub inverse: bool,
}

/// The numbers in reverse order.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn reversed<V: Lanes>(x: Number<V>) -> Number<V> {
    // SAFETY: the caller's promise.
    unsafe { Number(x.0.reversed(), x.1.reversed()) }
}

/// The new numbers `k` and the conjugate of the new `half - k`, from the old ones. The factors are those of the sum and of the
/// parts of the twiddles.
///
/// # Safety
/// The CPU has the instructions, and there is a register of turns.
#[inline(always)]
unsafe fn both<V: Lanes>(
    a: Number<V>,
    b: Number<V>,
    turns: *const V::Part,
    factors: (V, V, V),
) -> (Number<V>, Number<V>) {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = Number(a.0.add(b.0), a.1.sub(b.1)).scale(factors.0);
        let difference = Number(a.0.sub(b.0), a.1.add(b.1));
        let w = Number::<V>::load(turns, false);
        let turned = difference.mul(Number(w.0.mul(factors.1), w.1.mul(factors.2)));
        (sum.add(turned), sum.sub(turned))
    }
}

/// # Safety
/// The CPU has the instructions of `V`. There are numbers from 1 to `half - 1` at `from` and `to`, and turns up to a full register.
#[inline(always)]
pub(crate) unsafe fn untangle<V: Lanes<Part: Constant>>(of: &Untangle<V::Part>) {
    // SAFETY: the caller's promise.
    unsafe {
        let factors = if of.inverse { (1.0, 2.0, -2.0) } else { (0.5, 1.0, 1.0) };
        let factors =
            (V::splat(V::Part::of(factors.0)), V::splat(V::Part::of(factors.1)), V::splat(V::Part::of(factors.2)));
        let zero = V::splat(V::Part::of(0.0));
        for k in (of.start..of.end).step_by(V::LANES) {
            let turns = of.turns.add(2 * (k - 1));
            // From `k` to `half - k`. If that is less than two registers, they overlap, and both have the same results.
            let left = of.half + 1 - 2 * k;
            if left >= V::LANES {
                let other = 2 * (of.half + 1 - k - V::LANES);
                let (a, b) = (Number::load(of.from.add(2 * k), true), Number::load(of.from.add(other), true));
                let (low, high) = both(a, reversed(b), turns, factors);
                low.store(of.to.add(2 * k), true);
                reversed(Number(high.0, zero.sub(high.1))).store(of.to.add(other), true);
            } else {
                // Both are the same numbers; reversed they are at the end of the register.
                let a: Number<V> = load_some(of.from.add(2 * k), 2 * left);
                let mut room = [V::Part::of(0.0); MOST];
                let end = room.as_mut_ptr().add(2 * (V::LANES - left));
                std::ptr::copy_nonoverlapping(of.from.add(2 * k), end, 2 * left);
                let (low, _) = both(a, reversed(Number::load(room.as_ptr(), true)), turns, factors);
                store_some(low, of.to.add(2 * k), 2 * left);
            }
        }
    }
}
