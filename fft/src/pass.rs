//! The passes of a transform, and the ways into and out of panels.
//!
//! A *panel* holds one transform per lane: element after element, each as a register of real and one of imaginary parts. So
//! a pass needs no shuffles. It is a step of Stockham's algorithm, which leaves the elements in order: of `radix * count`
//! elements with a stride of `s` between them, element `q + s * (p + count * k)` for all `k` becomes `q + s * (radix * p + k)`.

use crate::butterfly::{Constant, Number, butterfly};
use crate::lanes::Lanes;

/// One pass. Elements are given by their first number, and the numbers from one to the next.
pub struct Pass<T> {
    pub from: *const T,
    pub from_step: usize,
    pub to: *mut T,
    pub to_step: usize,
    pub s: usize,
    pub count: usize,
    /// Numbers from an element in memory to one that is read or written soon, which is asked for.
    pub ahead: usize,
    /// For each `p`, `radix - 1` complex factors.
    pub twiddles: *const T,
    /// In a last pass: element `e` is written to the place of `-e`, which makes the transform the inverse one.
    pub reverse: bool,
    /// In a pass before a transposition: for each element that is written a register of cosines and one of sines.
    pub turns: *const T,
}

/// Bytes of a line of the caches, and of the widest register.
pub(crate) const ALIGNMENT: usize = 64;

/// The first pass reads complex numbers in memory, and makes a panel.
pub(crate) const FIRST: usize = 0;
/// From panel to panel.
pub(crate) const MIDDLE: usize = 1;
/// The last pass from a panel to complex numbers in memory.
pub(crate) const LAST: usize = 2;
/// The last pass from panel to panel, each lane of each element multiplied.
pub(crate) const TURN: usize = 3;

/// The place of the element `-e` of `n`.
#[inline(always)]
fn opposite(e: usize, n: usize, reverse: bool) -> usize {
    if reverse && e != 0 { n - e } else { e }
}

/// # Safety
/// The CPU has the instructions of `V`. From `from` and from `to` on there are `radix * count * s` elements, and twiddles at
/// theirs; they do not overlap.
#[inline(always)]
unsafe fn pass<V: Lanes<Part: Constant>, const R: usize, const KIND: usize>(of: &Pass<V::Part>) {
    let (from_step, to_step, s) = (of.from_step, of.to_step, of.s);
    // SAFETY: the caller's promise: all elements are below `radix * count * s`.
    unsafe {
        let sign = V::splat(V::Part::of(if of.reverse { -1.0 } else { 1.0 }));
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
                        V::prefetch::<false>(from.wrapping_add(k * of.count * s * from_step + of.ahead));
                        k += 1;
                    }
                }
                butterfly::<V, R>(&mut x);
                let mut k = 0;
                if KIND == LAST {
                    while k < R {
                        let to = of.to.add(opposite(q + s * k, s * R, of.reverse) * to_step);
                        x[k].store(to, true);
                        V::prefetch::<true>(to.wrapping_add(of.ahead));
                        k += 1;
                    }
                } else if KIND == TURN {
                    while k < R {
                        // To where it was read, so that a panel can be turned in place.
                        let e = q + s * k;
                        let w = Number::<V>::load(of.turns.add(opposite(e, s * R, of.reverse) * to_step), false);
                        x[k].mul(Number(w.0, w.1.mul(sign))).store(of.to.add(e * to_step), false);
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

/// Columns between memory and a panel, or rows.
pub struct Move<T> {
    /// The numbers in memory: what is read, or else written.
    pub memory: *mut T,
    /// Numbers from one element to the next, of columns; from one row to the next, of rows.
    pub step: usize,
    /// Columns or rows, at most as many as lanes.
    pub lanes: usize,
    pub panel: *mut T,
    /// Elements of a transform.
    pub n: usize,
    /// As in [`Pass`], when a panel is read.
    pub reverse: bool,
}

/// Room for the numbers of an element.
const MOST: usize = 32;

/// The first `count` numbers of an element, and zeros.
///
/// # Safety
/// There are so many numbers, at most two registers of them.
#[inline(always)]
unsafe fn load_some<V: Lanes<Part: Constant>>(from: *const V::Part, count: usize) -> Number<V> {
    let mut room = [V::Part::of(0.0); MOST];
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), count);
        Number::load(room.as_ptr(), true)
    }
}

/// # Safety
/// There is place for so many numbers, at most two registers of them.
#[inline(always)]
unsafe fn store_some<V: Lanes<Part: Constant>>(x: Number<V>, to: *mut V::Part, count: usize) {
    let mut room = [V::Part::of(0.0); MOST];
    // SAFETY: the caller's promise.
    unsafe {
        x.store(room.as_mut_ptr(), true);
        std::ptr::copy_nonoverlapping(room.as_ptr(), to, count);
    }
}

/// Columns into a panel.
///
/// # Safety
/// The CPU has the instructions of `V`, and memory and panel have the numbers, here and below.
#[inline(always)]
unsafe fn columns_in<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let from = of.memory.add(e * of.step);
            let x: Number<V> =
                if of.lanes == V::LANES { Number::load(from, true) } else { load_some(from, 2 * of.lanes) };
            x.store(of.panel.add(e * 2 * V::LANES), false);
        }
    }
}

/// Columns out of a panel.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn columns_out<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let x = Number::<V>::load(of.panel.add(opposite(e, of.n, of.reverse) * 2 * V::LANES), false);
            store_some(x, of.memory.add(e * of.step), 2 * of.lanes);
        }
    }
}

/// Transposes a tile: register `at` is what `load` gives for it, and zeros from `count` on. `store` gets the first `keep`.
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

/// Rows into a panel. The parts are taken apart in the panel first, one block of elements at a time.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn rows_in<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
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

/// Rows out of a panel.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn rows_out<V: Lanes<Part: Constant>>(of: &Move<V::Part>) {
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

/// The transposition between the halves of a long transform: a panel of columns into the panels of the transposed matrix.
pub struct Transpose<T> {
    pub panel: *const T,
    /// Elements of the panel.
    pub n: usize,
    /// How many of its lanes are columns.
    pub lanes: usize,
    pub reverse: bool,
    /// The place of its first column in the first of the other panels, and numbers from one of these to the next.
    pub to: *mut T,
    pub to_step: usize,
}

/// # Safety
/// As above; there are panels for all elements, with place for so many columns.
#[inline(always)]
unsafe fn transpose<V: Lanes<Part: Constant>>(of: &Transpose<V::Part>) {
    for first in (0..of.n).step_by(V::LANES) {
        let count = V::LANES.min(of.n - first);
        for part in [0, V::LANES] {
            let from = |e: usize| of.panel.wrapping_add(opposite(first + e, of.n, of.reverse) * 2 * V::LANES + part);
            let to = of.to.wrapping_add(first / V::LANES * of.to_step + part);
            // SAFETY: the caller's promise.
            unsafe {
                let load = |e: usize| V::load(from(e));
                tile(count, load, of.lanes, |lane, x: V| x.store(to.add(lane * 2 * V::LANES)));
            }
        }
    }
}

/// Turns of a block of columns of a long transform, out of those of the first and a factor for each element.
pub struct Turns<T> {
    pub turns: *const T,
    pub factors: *const T,
    pub n: usize,
    pub to: *mut T,
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn turns<V: Lanes<Part: Constant>>(of: &Turns<V::Part>) {
    for e in 0..of.n {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = Number(V::splat(*of.factors.add(2 * e)), V::splat(*of.factors.add(2 * e + 1)));
            let turn = Number::<V>::load(of.turns.add(e * 2 * V::LANES), false);
            turn.mul(factor).store(of.to.add(e * 2 * V::LANES), false);
        }
    }
}

/// The radices of passes, in the order of [`Kernels::passes`].
pub(crate) const RADICES: [usize; 6] = [2, 3, 4, 5, 8, 16];

/// What an instruction set has for a kind of number.
pub struct Kernels<T: 'static> {
    pub lanes: usize,
    /// By radix and kind.
    pub passes: [[unsafe fn(&Pass<T>); 4]; 6],
    pub columns_in: unsafe fn(&Move<T>),
    pub columns_out: unsafe fn(&Move<T>),
    pub rows_in: unsafe fn(&Move<T>),
    pub rows_out: unsafe fn(&Move<T>),
    pub transpose: unsafe fn(&Transpose<T>),
    pub turns: unsafe fn(&Turns<T>),
}

macro_rules! kernels {
    ($name:ident, $t:ty, $vector:ty, $(#[$feature:meta])?) => {
        mod $name {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            /// # Safety
            /// As the function of this name above, here and below.
            $(#[$feature])?
            unsafe fn pass<const R: usize, const KIND: usize>(of: &Pass<$t>) {
                // SAFETY: the caller's promise, here and below.
                unsafe { super::pass::<$vector, R, KIND>(of) }
            }

            const fn passes<const R: usize>() -> [unsafe fn(&Pass<$t>); 4] {
                [pass::<R, FIRST>, pass::<R, MIDDLE>, pass::<R, LAST>, pass::<R, TURN>]
            }

            kernels!(@each $vector, [$(#[$feature])?], columns_in(Move<$t>) columns_out(Move<$t>) rows_in(Move<$t>)
                rows_out(Move<$t>) transpose(Transpose<$t>) turns(Turns<$t>));

            pub(super) static KERNELS: Kernels<$t> = Kernels {
                lanes: <$vector as Lanes>::LANES,
                passes: [passes::<2>(), passes::<3>(), passes::<4>(), passes::<5>(), passes::<8>(), passes::<16>()],
                columns_in,
                columns_out,
                rows_in,
                rows_out,
                transpose,
                turns,
            };
        }
    };
    (@each $vector:ty, $feature:tt, $($f:ident($of:ty))+) => { $(kernels!(@one $vector, $feature, $f, $of);)+ };
    (@one $vector:ty, [$(#[$feature:meta])?], $f:ident, $of:ty) => {
        /// # Safety
        /// As above.
        $(#[$feature])?
        unsafe fn $f(of: &$of) {
            // SAFETY: as above.
            unsafe { super::$f::<$vector>(of) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use super::*;
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

    kernels!(avx512_f32, f32, __m512, #[target_feature(enable = "avx512f")]);
    kernels!(avx512_f64, f64, __m512d, #[target_feature(enable = "avx512f")]);
    kernels!(avx2_f32, f32, __m256, #[target_feature(enable = "avx2,fma")]);
    kernels!(avx2_f64, f64, __m256d, #[target_feature(enable = "avx2,fma")]);

    pub(super) static SINGLE: [&Kernels<f32>; 2] = [&avx512_f32::KERNELS, &avx2_f32::KERNELS];
    pub(super) static DOUBLE: [&Kernels<f64>; 2] = [&avx512_f64::KERNELS, &avx2_f64::KERNELS];

    /// Which of them the CPU has.
    pub(super) fn usable() -> [bool; 2] {
        use std::arch::is_x86_feature_detected as has;
        [has!("avx512f"), has!("avx2") && has!("fma")]
    }
}
// They take longer to compile than all others. An x86-64 CPU without AVX2 has `rustfft` instead.
#[cfg(any(test, not(target_arch = "x86_64")))]
kernels!(plain_f32, f32, [f32; 4],);
#[cfg(any(test, not(target_arch = "x86_64")))]
kernels!(plain_f64, f64, [f64; 2],);

/// The kernels that this CPU can run, the best first.
pub trait Kernel: Constant {
    /// May be none.
    fn kernels() -> Vec<&'static Kernels<Self>>;
}

macro_rules! kernel {
    ($t:ident $list:ident $plain:ident) => {
        impl Kernel for $t {
            fn kernels() -> Vec<&'static Kernels<$t>> {
                let mut found: Vec<&'static Kernels<$t>> = Vec::new();
                #[cfg(target_arch = "x86_64")]
                found.extend(
                    x86::$list.iter().zip(x86::usable()).filter_map(|(&kernels, usable)| usable.then_some(kernels)),
                );
                #[cfg(any(test, not(target_arch = "x86_64")))]
                found.push(&$plain::KERNELS);
                found
            }
        }
    };
}
kernel!(f32 SINGLE plain_f32);
kernel!(f64 DOUBLE plain_f64);
