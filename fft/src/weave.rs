//! The first pass over a single row.

use crate::butterfly::{Constant, Number, butterfly};
use crate::lanes::Lanes;
use crate::pass::align_frame;
use crate::woven::first_column;

/// The transform of the columns of a matrix that has as many rows as there are lanes, times turns, into a panel of the
/// transposed matrix.
pub struct Weave<T> {
    /// The complex numbers of the matrix.
    pub from: *const T,
    /// At least as many as lanes.
    pub columns: usize,
    /// For each block of columns, and each element, a register of cosines and one of sines.
    pub turns: *const T,
    pub to: *mut T,
}

/// # Safety
/// The CPU has the instructions of `V`, which has `R` lanes. There are so many numbers, turns, and elements of the panel, which
/// does not overlap the numbers.
#[inline(always)]
pub(crate) unsafe fn weave<V: Lanes<Part: Constant>, const R: usize, const REVERSE: bool>(of: &Weave<V::Part>) {
    align_frame();
    let blocks = of.columns.div_ceil(R);
    for block in 0..blocks {
        let first = first_column(block, of.columns, R);
        // To the next block, which is asked for, or to the first of the next row.
        let ahead = 2 * if block + 1 < blocks { R } else { R * of.columns - first };
        // SAFETY: the caller's promise.
        unsafe {
            let from = of.from.add(2 * first);
            let turns = of.turns.add(block * 2 * R * R);
            let to = of.to.add(first * 2 * R);
            // The inverse transform is that of numbers whose parts are exchanged, before it and after it.
            let load = |k: usize| {
                let from = from.add(k * 2 * of.columns);
                V::prefetch::<false>(from.wrapping_add(ahead));
                let x = Number::<V>::load(from, true);
                if REVERSE { Number(x.1, x.0) } else { x }
            };
            let mut x = [load(0); R];
            let mut k = 1;
            while k < R {
                x[k] = load(k);
                k += 1;
            }
            butterfly::<V, R>(&mut x);
            let (mut re, mut im) = (V::tile(), V::tile());
            (re.as_mut()[0], im.as_mut()[0]) = (x[0].0, x[0].1);
            let mut k = 1;
            while k < R {
                let y = x[k].mul(Number::load(turns.add(k * 2 * R), false));
                (re.as_mut()[k], im.as_mut()[k]) = (y.0, y.1);
                k += 1;
            }
            let parts = if REVERSE { [im, re] } else { [re, im] };
            let mut part = 0;
            while part < 2 {
                let mut tile = parts[part];
                V::transpose(&mut tile);
                let mut k = 0;
                while k < R {
                    tile.as_mut()[k].store(to.add(k * 2 * R + part * R));
                    k += 1;
                }
                part += 1;
            }
        }
    }
}
