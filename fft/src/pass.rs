//! The passes of a transform.
//!
//! A *panel* holds one transform per lane: each element is a register of real parts followed by one of imaginary parts. So a
//! pass needs no shuffles. It is a step of Stockham's algorithm, which leaves the elements in order: of `radix * count`
//! elements with a stride of `s` between them, element `q + s * (p + count * k)` for all `k` becomes `q + s * (radix * p + k)`.

use crate::butterfly::{Constant, Number, butterfly};
use crate::lanes::{Lanes, READ, WRITE};

/// One pass. Elements are given by a pointer to the first one and a stride, in numbers.
pub struct Pass<T> {
    pub from: *const T,
    pub from_step: usize,
    pub to: *mut T,
    pub to_step: usize,
    pub s: usize,
    pub count: usize,
    /// In a last pass: the distance, in numbers, between the two halves of the lanes of an element.
    pub apart: usize,
    /// The prefetch distance, in numbers.
    pub ahead: usize,
    /// `radix - 1` complex factors for each `p`.
    pub twiddles: *const T,
    /// In a last pass: element `e` is written to the position of `-e`, which makes the transform inverse.
    pub reverse: bool,
}

/// The size of a cache line and of the widest register, in bytes.
pub(crate) const ALIGNMENT: usize = 64;

/// The first pass reads complex numbers in memory, and makes a panel.
pub(crate) const FIRST: usize = 0;
/// From panel to panel.
pub(crate) const MIDDLE: usize = 1;
/// The last pass from a panel to complex numbers in memory.
pub(crate) const LAST: usize = 2;

/// The position of the element `-e` of `n`.
#[inline(always)]
pub(crate) fn opposite(e: usize, n: usize, reverse: bool) -> usize {
    if reverse && e != 0 { n - e } else { e }
}

/// Makes the compiler align the stack frame of the function that this is inlined into. It does not do so for spilled registers
/// alone, and accesses that cross a cache line take twice as long.
#[inline(always)]
pub(crate) fn align_frame() {
    #[repr(align(64))]
    struct Line([std::mem::MaybeUninit<u8>; ALIGNMENT]);
    let mut line = Line([std::mem::MaybeUninit::uninit(); ALIGNMENT]);
    std::hint::black_box(&mut line.0);
}

/// # Safety
/// The CPU has the instructions of `V`. `from` and `to` have `radix * count * s` elements, and `twiddles` has all twiddles; they
/// do not overlap.
#[inline(always)]
pub(crate) unsafe fn pass<V: Lanes<Part: Constant>, const R: usize, const KIND: usize>(of: &Pass<V::Part>) {
    let (from_step, to_step, s) = (of.from_step, of.to_step, of.s);
    if R >= 5 {
        align_frame();
    }
    // SAFETY: the caller's promise: all elements are below `radix * count * s`.
    unsafe {
        for p in 0..of.count {
            let twiddles = of.twiddles.add(p * 2 * (R - 1));
            for q in 0..s {
                let from = of.from.add((q + s * p) * from_step);
                let mut x = [Number::load(from, KIND == FIRST); R];
                let mut k = 1;
                while k < R {
                    x[k] = Number::load(from.add(k * of.count * s * from_step), KIND == FIRST);
                    k += 1;
                }
                if KIND == FIRST {
                    let mut k = 0;
                    while k < R {
                        V::prefetch::<READ>(from.wrapping_add(k * of.count * s * from_step + of.ahead));
                        k += 1;
                    }
                }
                butterfly::<V, R>(&mut x);
                let mut k = 0;
                if KIND == LAST {
                    // The first element separately: element 0 is its own opposite. The others have equal distances.
                    let n = s * R;
                    let (start, step) =
                        if of.reverse { (n - q, (s * to_step).wrapping_neg()) } else { (q, s * to_step) };
                    let mut to = of.to.wrapping_add(start * to_step);
                    while k < R {
                        let place = if k == 0 { of.to.add(opposite(q, n, of.reverse) * to_step) } else { to };
                        let (low, high) = x[k].0.join(x[k].1);
                        low.store(place);
                        high.store(place.add(of.apart));
                        V::prefetch::<WRITE>(to.wrapping_add(of.ahead));
                        to = to.wrapping_add(step);
                        k += 1;
                    }
                } else {
                    let to = of.to.add((q + s * R * p) * to_step);
                    x[0].store(to, false);
                    k = 1;
                    if p == 0 {
                        // All twiddles are 1: the whole of a last pass.
                        while k < R {
                            x[k].store(to.add(k * s * to_step), false);
                            k += 1;
                        }
                    } else {
                        while k < R {
                            let w = twiddles.add(2 * (k - 1));
                            let w = Number(V::splat(*w), V::splat(*w.add(1)));
                            x[k].mul(w).store(to.add(k * s * to_step), false);
                            k += 1;
                        }
                    }
                }
            }
        }
    }
}
