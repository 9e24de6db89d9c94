//! Copies into and out of panels, and between panels.

use crate::butterfly::{Constant, Number};
use crate::lanes::Lanes;
use crate::pass::opposite;

/// A copy of columns or rows between memory and a panel.
pub struct Move<T> {
    /// The numbers in memory, which are read or written.
    pub memory: *mut T,
    /// The stride, in numbers: between elements of columns, or between rows.
    pub step: usize,
    /// The number of columns or rows, at most one per lane.
    pub lanes: usize,
    pub panel: *mut T,
    /// The number of elements of a transform.
    pub n: usize,
    /// As in [`Pass`], if a panel is read.
    pub reverse: bool,
}

/// The most numbers of an element.
pub(crate) const MOST: usize = 32;

/// The first `count` numbers of an element, and zeros.
///
/// # Safety
/// There are `count` numbers, at most two registers of them.
#[inline(always)]
pub(crate) unsafe fn load_some<V: Lanes>(from: *const V::Part, count: usize) -> Number<V> {
    let first = count.min(V::LANES);
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (V::load_first(from, first), V::load_first(from.wrapping_add(V::LANES), count - first));
        let (re, im) = a.split(b);
        Number(re, im)
    }
}

/// # Safety
/// There is space for `count` numbers, at most two registers of them.
#[inline(always)]
pub(crate) unsafe fn store_some<V: Lanes>(x: Number<V>, to: *mut V::Part, count: usize) {
    let first = count.min(V::LANES);
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = x.0.join(x.1);
        a.store_first(to, first);
        b.store_first(to.wrapping_add(V::LANES), count - first);
    }
}

/// Copies columns into a panel.
///
/// # Safety
/// The CPU has the instructions of `V`, and memory and panel have the numbers, here and below.
#[inline(always)]
pub(crate) unsafe fn columns_in<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let from = of.memory.add(e * of.step);
            let x: Number<V> = load_some(from, 2 * of.lanes);
            x.store(of.panel.add(e * 2 * V::LANES), false);
        }
    }
}

/// Copies columns out of a panel.
///
/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn columns_out<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let x = Number::<V>::load(of.panel.add(opposite(e, of.n, of.reverse) * 2 * V::LANES), false);
            store_some(x, of.memory.add(e * of.step), 2 * of.lanes);
        }
    }
}

/// Transposes a tile: register `at` is `load(at)`, or zeros from `count` on. `store` gets the first `keep` registers.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn tile<V: Lanes>(count: usize, load: impl Fn(usize) -> V, keep: usize, store: impl Fn(usize, V)) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut tile = V::tile();
        let x = tile.as_mut();
        // A loop of known length is unrolled, and the tile stays in registers.
        if count == V::LANES {
            let mut at = 0;
            while at < V::LANES {
                x[at] = load(at);
                at += 1;
            }
        } else {
            for (at, x) in x.iter_mut().enumerate().take(count) {
                *x = load(at);
            }
        }
        V::transpose(&mut tile);
        let x = tile.as_mut();
        if keep == V::LANES {
            let mut at = 0;
            while at < V::LANES {
                store(at, x[at]);
                at += 1;
            }
        } else {
            for (at, &mut x) in x.iter_mut().enumerate().take(keep) {
                store(at, x);
            }
        }
    }
}

/// Copies rows into a panel. Real and imaginary parts are split in the panel first, one block of elements at a time.
///
/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn rows_in<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    let mut parts = [[V::Part::of(0.0); MOST]; MOST / 2];
    for first in (0..of.n).step_by(V::LANES) {
        let count = V::LANES.min(of.n - first);
        // SAFETY: the caller's promise. There is room for as many registers as lanes, each of both parts.
        unsafe {
            for (lane, parts) in parts.iter_mut().enumerate().take(of.lanes) {
                let from = of.memory.add(lane * of.step + 2 * first);
                let x: Number<V> =
                    if count == V::LANES { Number::load(from, true) } else { load_some(from, 2 * count) };
                x.store(parts.as_mut_ptr(), false);
            }
            for part in [0, V::LANES] {
                let to = of.panel.add(first * 2 * V::LANES + part);
                let load = |lane: usize| V::load(parts.as_ptr().cast::<V::Part>().add(lane * MOST + part));
                tile(V::LANES, load, count, |e, x: V| x.store(to.add(e * 2 * V::LANES)));
            }
        }
    }
}

/// Copies rows out of a panel.
///
/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn rows_out<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    let mut parts = [[V::Part::of(0.0); MOST]; MOST / 2];
    for first in (0..of.n).step_by(V::LANES) {
        let count = V::LANES.min(of.n - first);
        let element = |e: usize| of.panel.wrapping_add(opposite(first + e, of.n, of.reverse) * 2 * V::LANES);
        // SAFETY: as in `rows_in`.
        unsafe {
            for part in [0, V::LANES] {
                let to = parts.as_mut_ptr().cast::<V::Part>();
                let load = |e: usize| V::load(element(e).add(part));
                tile(count, load, V::LANES, |lane, x: V| x.store(to.add(lane * MOST + part)));
            }
            for (lane, parts) in parts.iter().enumerate().take(of.lanes) {
                let to = of.memory.add(lane * of.step + 2 * first);
                let x = Number::<V>::load(parts.as_ptr(), false);
                if count == V::LANES {
                    x.store(to, true);
                } else {
                    store_some(x, to, 2 * count);
                }
            }
        }
    }
}

/// The step between the halves of a long transform: a panel of columns, times twiddles, is written to the panels of the
/// transposed matrix.
pub struct Transpose<T> {
    pub panel: *const T,
    /// For each element a register of cosines and one of sines.
    pub turns: *const T,
    /// The number of elements of the panel.
    pub n: usize,
    /// The number of its lanes that are columns.
    pub lanes: usize,
    /// Whether to read the opposite elements, and to multiply by conjugate twiddles.
    pub reverse: bool,
    /// The position of its first column in the first of the other panels, and the stride of these in numbers.
    pub to: *mut T,
    pub to_step: usize,
}

/// # Safety
/// As above; there are panels for all elements, with space for `lanes` columns.
#[inline(always)]
pub(crate) unsafe fn transpose<V: Lanes<Part: Constant>>(of: &Transpose<V::Part>) {
    for first in (0..of.n).step_by(V::LANES) {
        let count = V::LANES.min(of.n - first);
        let number = |e: usize| {
            let (from, turn) = (opposite(first + e, of.n, of.reverse), first + e);
            let (from, turn) = (of.panel.wrapping_add(from * 2 * V::LANES), of.turns.wrapping_add(turn * 2 * V::LANES));
            // SAFETY: the caller's promise: `e` is below `count`.
            unsafe { (Number::<V>::load(from, false), Number::<V>::load(turn, false)) }
        };
        let to = of.to.wrapping_add(first / V::LANES * of.to_step);
        // SAFETY: the caller's promise.
        unsafe {
            let sign = V::splat(V::Part::of(if of.reverse { -1.0 } else { 1.0 }));
            let re = |e: usize| {
                let (x, w) = number(e);
                x.0.mul_sub(w.0, x.1.mul(w.1.mul(sign)))
            };
            let im = |e: usize| {
                let (x, w) = number(e);
                x.0.mul_add(w.1.mul(sign), x.1.mul(w.0))
            };
            tile(count, re, of.lanes, |lane, x: V| x.store(to.add(lane * 2 * V::LANES)));
            tile(count, im, of.lanes, |lane, x: V| x.store(to.add((lane * 2 + 1) * V::LANES)));
        }
    }
}

/// The twiddles of a block of columns of a long transform, from those of the first block and a factor for each element.
pub struct Turns<T> {
    pub turns: *const T,
    pub factors: *const T,
    pub n: usize,
    pub to: *mut T,
}

/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn turns<V: Lanes<Part: Constant>>(of: &Turns<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = Number(V::splat(*of.factors.add(2 * e)), V::splat(*of.factors.add(2 * e + 1)));
            let turn = Number::<V>::load(of.turns.add(e * 2 * V::LANES), false);
            turn.mul(factor).store(of.to.add(e * 2 * V::LANES), false);
        }
    }
}
