//! Running folds along a dimension.

use crate::backend::cpu::runtime::convert::{load, store};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::Scan;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::{DType, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements at a time: small enough for the first-level cache.
const TILE: usize = 512;

/// `out[.., k, ..]` is the fold of `x[.., 0, ..]` to `x[.., k, ..]` along `dim` or, backwards, of all from `k` on. Both have
/// one shape; `out` is contiguous.
pub(crate) fn scan(
    op: &'static str,
    by: Scan,
    x: View<'_>,
    dim: usize,
    backwards: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if x.layout.shape() != out.layout.shape() {
        bail!(Backend, op, "there is no room for {:?} running sums", x.layout.shape());
    }
    if x.layout.numel() == 0 {
        return Ok(());
    }
    let Scan::Sum = by;
    // Backwards is forwards over the dimension reversed.
    let reversed = |layout: &Layout| if backwards { layout.flip(op, &[dim]) } else { Ok(layout.clone()) };
    let (from, to) = (reversed(x.layout)?, reversed(out.layout)?);
    match out.dtype {
        // Sums of floats are kept in f64, whose rounding does not show in the others.
        dtype if dtype.is_float() => scan_as::<f64>(op, DType::F64, x, &from, dim, out, &to),
        DType::U64 => scan_as::<u64>(op, DType::U64, x, &from, dim, out, &to),
        _ => scan_as::<i64>(op, DType::I64, x, &from, dim, out, &to),
    }
}

/// Numbers that are summed.
trait Sum: Copy + Send + Sync + 'static {
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($t:ty: $zero:expr, |$a:ident, $b:ident| $sum:expr;)+) => {$(
        impl Sum for $t {
            const ZERO: $t = $zero;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { let ($a, $b) = (self, other); $sum }
        }
    )+};
}
sums! {
    f64: 0.0, |a, b| a + b;
    i64: 0, |a, b| a.wrapping_add(b);
    u64: 0, |a, b| a.wrapping_add(b);
}

/// The two sides of a scan, without their borrows.
struct Lanes {
    compute: DType,
    from: (Ptr<u8>, DType, isize),
    to: (Ptr<u8>, DType, isize),
    len: usize,
    /// Over the first elements of all lanes.
    walk: Walk<2>,
}

fn scan_as<C: Sum>(
    op: &'static str,
    compute: DType,
    x: View<'_>,
    from: &Layout,
    dim: usize,
    out: &mut ViewMut<'_>,
    to: &Layout,
) -> Result<()> {
    let first = |layout: &Layout| layout.select(op, dim as isize, 0);
    let (firsts, targets) = (first(from)?, first(to)?);
    let lanes = Lanes {
        compute,
        from: (Ptr::new(x.ptr().cast_mut()), x.dtype, from.strides()[dim]),
        to: (Ptr::new(out.ptr()), out.dtype, to.strides()[dim]),
        len: from.shape()[dim],
        walk: Walk::new(firsts.shape(), [&firsts, &targets]),
    };
    let single = to.strides()[dim].abs() == 1;
    parallel(lanes.walk.numel(), (GRAIN / lanes.len).max(1), |range| {
        if single { lanes.one_by_one::<C>(range) } else { lanes.side_by_side::<C>(range) }
    });
    Ok(())
}

impl Lanes {
    /// Brings elements into the compute dtype.
    ///
    /// # Safety
    /// The positions from `at` on, `step` apart, are `n` of the input's, and `tile` has room for them.
    unsafe fn load<C>(&self, at: isize, step: isize, tile: *mut C, n: usize) {
        let (ptr, dtype, _) = self.from;
        // SAFETY: the caller's promise.
        unsafe { load(self.compute, dtype, ptr.get().offset(at * dtype.size() as isize), step, tile.cast(), n) };
    }

    /// # Safety
    /// As [`load`](Self::load), for positions of the output that no other thread has.
    unsafe fn store<C>(&self, at: isize, step: isize, tile: *const C, n: usize) {
        let (ptr, dtype, _) = self.to;
        // SAFETY: the caller's promise.
        unsafe { store(self.compute, dtype, tile.cast(), ptr.get().offset(at * dtype.size() as isize), step, n) };
    }

    /// Each lane by itself, a tile at a time.
    fn one_by_one<C: Sum>(&self, range: Range<usize>) {
        let ([across, out_across], (_, _, step), (_, _, out_step)) = (self.walk.inner(), self.from, self.to);
        let mut tile = [const { MaybeUninit::<C>::uninit() }; TILE];
        let tile = tile.as_mut_ptr().cast::<C>();
        self.walk.runs(range.start, range.end, |[from, to], lanes| {
            for lane in 0..lanes as isize {
                let mut sum = C::ZERO;
                for start in (0..self.len).step_by(TILE) {
                    let (n, at) = (TILE.min(self.len - start), start as isize);
                    // SAFETY: `n` elements of the lane from `start` on (L2); lanes of other threads are others. The tile was
                    // written by the load.
                    unsafe {
                        self.load(from + lane * across + at * step, step, tile, n);
                        for i in 0..n {
                            sum = sum.plus(tile.add(i).read());
                            tile.add(i).write(sum);
                        }
                        self.store(to + lane * out_across + at * out_step, out_step, tile, n);
                    }
                }
            }
        });
    }

    /// Neighbouring lanes together, element by element.
    fn side_by_side<C: Sum>(&self, range: Range<usize>) {
        let ([across, out_across], (_, _, step), (_, _, out_step)) = (self.walk.inner(), self.from, self.to);
        let mut tile = [const { MaybeUninit::<C>::uninit() }; TILE];
        let tile = tile.as_mut_ptr().cast::<C>();
        self.walk.runs(range.start, range.end, |[from, to], lanes| {
            for start in (0..lanes).step_by(TILE) {
                let n = TILE.min(lanes - start);
                let (from, to) = (from + start as isize * across, to + start as isize * out_across);
                let mut sums = [C::ZERO; TILE];
                for k in 0..self.len as isize {
                    // SAFETY: element `k` of `n` lanes (L2); lanes of other threads are others. The tile was written by the
                    // load.
                    unsafe {
                        self.load(from + k * step, across, tile, n);
                        for (i, sum) in sums[..n].iter_mut().enumerate() {
                            *sum = sum.plus(tile.add(i).read());
                        }
                        self.store(to + k * out_step, out_across, sums.as_ptr(), n);
                    }
                }
            }
        });
    }
}
