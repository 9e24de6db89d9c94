//! The first pass over one or two rows.

use crate::butterfly::{Constant, Number, butterfly};
use crate::lanes::{Lanes, READ_SOON, WRITE};
use crate::pass::align_frame;
use crate::woven::first_column;

/// The transform of the columns of matrices, times twiddles, into a panel of the transposed matrices: of one matrix with one row
/// per lane, or of two with half as many rows.
pub struct Weave<T> {
    /// The complex numbers of the matrices.
    pub from: [*const T; 2],
    /// The number of columns, at least that of lanes.
    pub columns: usize,
    /// For each block of columns, and each element, a register of cosines and one of sines.
    pub turns: *const T,
    pub to: *mut T,
    /// Whether the target of the next block is prefetched.
    pub far: bool,
}

/// Transforms a block of columns, and multiplies it by twiddles.
///
/// # Safety
/// As [`weave`].
#[inline(always)]
unsafe fn transform<V: Lanes<Part: Constant>, const R: usize, const REVERSE: bool>(
    from: *const V::Part,
    columns: usize,
    ahead: usize,
    turns: *const V::Part,
) -> [Number<V>; R] {
    // SAFETY: the caller's promise.
    unsafe {
        // The inverse transform exchanges real and imaginary parts before and after the transform.
        let load = |k: usize| {
            let x = Number::<V>::load(from.add(2 * k * columns), true);
            if REVERSE { Number(x.1, x.0) } else { x }
        };
        // Separate loops, here and below: the compiler keeps arrays in registers if the loops over them are simple.
        let mut k = 0;
        while k < R {
            V::prefetch::<READ_SOON>(from.wrapping_add(2 * k * columns + ahead));
            k += 1;
        }
        let mut x = [load(0); R];
        let mut k = 1;
        while k < R {
            x[k] = load(k);
            k += 1;
        }
        butterfly::<V, R>(&mut x);
        let mut k = 1;
        while k < R {
            x[k] = x[k].mul(Number::load(turns.add(2 * k * V::LANES), false));
            k += 1;
        }
        x
    }
}

/// # Safety
/// The CPU has the instructions of `V`, which has `R` lanes or twice as many. There are all numbers, turns, and elements of the
/// panel, which does not overlap the numbers.
#[inline(always)]
pub(crate) unsafe fn weave<V: Lanes<Part: Constant>, const R: usize, const REVERSE: bool>(of: &Weave<V::Part>) {
    align_frame();
    let blocks = of.columns.div_ceil(V::LANES);
    for block in 0..blocks {
        let first = first_column(block, of.columns, V::LANES);
        // The prefetch distance: to the next block, or to the first one of the next rows.
        let ahead = 2 * if block + 1 < blocks { V::LANES } else { V::LANES * of.columns - first };
        // SAFETY: the caller's promise.
        unsafe {
            let turns = of.turns.add(block * 2 * R * V::LANES);
            let to = of.to.add(first * 2 * V::LANES);
            let (mut re, mut im) = (V::tile(), V::tile());
            let x = transform::<V, R, REVERSE>(of.from[0].add(2 * first), of.columns, ahead, turns);
            let mut k = 0;
            while k < R {
                (re.as_mut()[k], im.as_mut()[k]) = (x[k].0, x[k].1);
                k += 1;
            }
            if R < V::LANES {
                let x = transform::<V, R, REVERSE>(of.from[1].add(2 * first), of.columns, ahead, turns);
                let mut k = 0;
                while k < R {
                    (re.as_mut()[R + k], im.as_mut()[R + k]) = (x[k].0, x[k].1);
                    k += 1;
                }
            }
            let mut k = if of.far { 0 } else { V::LANES };
            while k < V::LANES {
                V::prefetch::<WRITE>(to.wrapping_add(2 * (k + V::LANES) * V::LANES));
                k += 1;
            }
            let (real, imaginary) = if REVERSE { (V::LANES, 0) } else { (0, V::LANES) };
            put::<V>(re, to.add(real));
            put::<V>(im, to.add(imaginary));
        }
    }
}

/// Writes the transposed tile, as the real or the imaginary parts of the elements of a panel.
///
/// # Safety
/// As [`weave`].
#[inline(always)]
unsafe fn put<V: Lanes>(mut tile: V::Tile, to: *mut V::Part) {
    // SAFETY: the caller's promise.
    unsafe {
        V::transpose(&mut tile);
        let mut k = 0;
        while k < V::LANES {
            tile.as_mut()[k].store(to.add(2 * k * V::LANES));
            k += 1;
        }
    }
}
