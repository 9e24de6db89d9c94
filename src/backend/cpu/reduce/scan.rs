//! Cumulative folds along a dimension.

use crate::backend::cpu::runtime::convert::{load, store};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::{Extreme, Scan, SortKey};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::{DType, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The number of elements at a time: small enough for the L1 cache.
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
    let along = Along { op, compute: compute(out.dtype), dim, backwards };
    match (by, along.compute) {
        (Scan::Sum, DType::F64) => along.run::<f64, Add>([x, x], out),
        (Scan::Sum, DType::U64) => along.run::<u64, Add>([x, x], out),
        (Scan::Sum, _) => along.run::<i64, Add>([x, x], out),
        (Scan::Prod, DType::F64) => along.run::<f64, Multiply>([x, x], out),
        (Scan::Prod, DType::U64) => along.run::<u64, Multiply>([x, x], out),
        (Scan::Prod, _) => along.run::<i64, Multiply>([x, x], out),
        (Scan::LogSumExp, DType::F64) => along.run::<f64, AddExp>([x, x], out),
        (Scan::LogSumExp, _) => bail!(Backend, op, "there is no kernel for {}", out.dtype),
    }
}

/// The linear recurrence `out[k] = factor[k] * out[k - 1] + term[k]` along `dim`, from 0 on or, backwards, from the other end. All
/// have the same shape and are floating point; `out` is contiguous.
pub(crate) fn recurrence(
    op: &'static str,
    factor: View<'_>,
    term: View<'_>,
    dim: usize,
    backwards: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if compute(out.dtype) != DType::F64 {
        bail!(Backend, op, "there is no kernel for {}", out.dtype);
    }
    Along { op, compute: DType::F64, dim, backwards }.run::<f64, MultiplyAdd>([factor, term], out)
}

/// The compute dtype. Sums of floats are computed in f64, whose rounding does not show in the results of other dtypes.
fn compute(dtype: DType) -> DType {
    match dtype {
        dtype if dtype.is_float() => DType::F64,
        DType::U64 => DType::U64,
        _ => DType::I64,
    }
}

/// A cumulative operation on numbers of one type.
trait Running<C> {
    /// The number of inputs. With one, the second input is not read.
    const INPUTS: usize;
    const START: C;
    fn next(state: C, x: C, y: C) -> C;

    /// Replaces the elements of a whole tile by its states, from the state before it, and returns the last one. It processes
    /// several stretches at once. Operations whose results would depend on that return `None`, and change nothing.
    ///
    /// # Safety
    /// The tile has [`TILE`] elements.
    #[inline(always)]
    unsafe fn whole_tile(state: C, tile: *mut C) -> Option<C> {
        let _ = (state, tile);
        None
    }
}

struct Add;
struct Multiply;
struct AddExp;
struct MultiplyAdd;

/// The number of stretches of a tile that are summed in parallel, to hide the latency of additions.
const STRETCHES: usize = 4;

macro_rules! running {
    ($($fold:ident of $inputs:literal over $t:ty: $start:expr, |$state:ident, $x:ident, $y:ident| $next:expr $(, in stretches $plus:expr)?;)+) => {$(
        impl Running<$t> for $fold {
            const INPUTS: usize = $inputs;
            const START: $t = $start;
            #[inline(always)]
            #[allow(unused_variables)]
            fn next($state: $t, $x: $t, $y: $t) -> $t { $next }
            $(
                #[inline(always)]
                unsafe fn whole_tile(state: $t, tile: *mut $t) -> Option<$t> {
                    const LENGTH: usize = TILE / STRETCHES;
                    let plus: fn($t, $t) -> $t = $plus;
                    let mut sums = [$start; STRETCHES];
                    for i in 0..LENGTH {
                        for (stretch, sum) in sums.iter_mut().enumerate() {
                            // SAFETY: the caller's promise: the element is in the tile.
                            let at = unsafe { &mut *tile.add(stretch * LENGTH + i) };
                            *sum = plus(*sum, *at);
                            *at = *sum;
                        }
                    }
                    let mut state = state;
                    for (stretch, sum) in sums.into_iter().enumerate() {
                        // SAFETY: as above.
                        let own = unsafe { std::slice::from_raw_parts_mut(tile.add(stretch * LENGTH), LENGTH) };
                        own.iter_mut().for_each(|x| *x = plus(*x, state));
                        state = plus(state, sum);
                    }
                    Some(state)
                }
            )?
        }
    )+};
}
running! {
    Add of 1 over f64: 0.0, |state, x, y| state + x, in stretches |a, b| a + b;
    Add of 1 over i64: 0, |state, x, y| state.wrapping_add(x), in stretches i64::wrapping_add;
    Add of 1 over u64: 0, |state, x, y| state.wrapping_add(x), in stretches u64::wrapping_add;
    Multiply of 1 over f64: 1.0, |state, x, y| state * x;
    Multiply of 1 over i64: 1, |state, x, y| state.wrapping_mul(x);
    Multiply of 1 over u64: 1, |state, x, y| state.wrapping_mul(x);
    AddExp of 1 over f64: f64::NEG_INFINITY, |state, x, y| log_add_exp(state, x);
    MultiplyAdd of 2 over f64: 0.0, |state, x, y| x * state + y;
}

/// `log(e^a + e^b)`, also where a power is not finite.
fn log_add_exp(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    // The difference of equal infinities is NaN.
    if low == high && high.is_infinite() { high } else { high + (low - high).exp().ln_1p() }
}

/// The dimension and direction of a scan.
struct Along {
    op: &'static str,
    compute: DType,
    dim: usize,
    backwards: bool,
}

/// The lanes of a scan, without borrows: of two inputs and the output.
struct Lanes {
    compute: DType,
    sides: [Side; 3],
    len: usize,
    /// The walk over the first elements of all lanes.
    walk: Walk<3>,
}

struct Side {
    ptr: Ptr<u8>,
    dtype: DType,
    /// The stride of the elements of a lane.
    step: isize,
}

impl Along {
    fn run<C: Copy + Send + Sync + 'static, R: Running<C>>(
        &self,
        [x, y]: [View<'_>; 2],
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let (op, dim) = (self.op, self.dim);
        if x.layout.shape() != out.layout.shape() || y.layout.shape() != out.layout.shape() {
            let (a, b, to) = (x.layout.shape(), y.layout.shape(), out.layout.shape());
            bail!(Backend, op, "inputs must have shape {to:?}, got {a:?} and {b:?}");
        }
        if out.layout.numel() == 0 {
            return Ok(());
        }
        // A backward scan is a forward scan over the flipped dimension.
        let directed = |layout: &Layout| if self.backwards { layout.flip(op, &[dim]) } else { Ok(layout.clone()) };
        let layouts = [directed(x.layout)?, directed(y.layout)?, directed(out.layout)?];
        let first = |layout: &Layout| layout.select(op, dim as isize, 0);
        let firsts = [first(&layouts[0])?, first(&layouts[1])?, first(&layouts[2])?];
        let read = |view: View<'_>, layout: &Layout| Side {
            ptr: Ptr::new(view.ptr().cast_mut()),
            dtype: view.dtype,
            step: layout.strides()[dim],
        };
        let written = Side { ptr: Ptr::new(out.ptr()), dtype: out.dtype, step: layouts[2].strides()[dim] };
        let lanes = Lanes {
            compute: self.compute,
            sides: [read(x, &layouts[0]), read(y, &layouts[1]), written],
            len: layouts[0].shape()[dim],
            walk: Walk::new(firsts[0].shape(), [&firsts[0], &firsts[1], &firsts[2]]),
        };
        let single = lanes.steps()[2].abs() == 1;
        // Neighbouring lanes share cache lines.
        let fewest = if single { 1 } else { (lanes.walk.numel() / 16).clamp(64, TILE) };
        parallel(lanes.walk.numel(), (GRAIN / lanes.len).max(fewest), |range| {
            if single { lanes.one_by_one::<C, R>(range) } else { lanes.side_by_side::<C, R>(range) }
        });
        Ok(())
    }
}

impl Lanes {
    fn steps(&self) -> [isize; 3] {
        std::array::from_fn(|k| self.sides[k].step)
    }

    /// Converts elements of an input to the compute dtype.
    ///
    /// # Safety
    /// The positions from `at` on, `step` apart, are `n` of the input's, and `tile` has room for them.
    unsafe fn load<C>(&self, side: usize, at: isize, step: isize, tile: *mut C, n: usize) {
        let Side { ptr, dtype, .. } = &self.sides[side];
        // SAFETY: the caller's promise.
        unsafe { load(self.compute, *dtype, ptr.get().offset(at * dtype.size() as isize), step, tile.cast(), n) };
    }

    /// # Safety
    /// As [`load`](Self::load), for positions of the output that no other thread has.
    unsafe fn store<C>(&self, at: isize, step: isize, tile: *const C, n: usize) {
        let Side { ptr, dtype, .. } = &self.sides[2];
        // SAFETY: the caller's promise.
        unsafe { store(self.compute, *dtype, tile.cast(), ptr.get().offset(at * dtype.size() as isize), step, n) };
    }

    /// Processes each lane separately, a tile at a time.
    fn one_by_one<C: Copy, R: Running<C>>(&self, range: Range<usize>) {
        let across = self.walk.inner();
        let steps = self.steps();
        let mut tiles = [const { MaybeUninit::<[C; TILE]>::uninit() }; 2];
        let [x, y] = &mut tiles;
        let (x, y) = (x.as_mut_ptr().cast::<C>(), y.as_mut_ptr().cast::<C>());
        self.walk.runs(range.start, range.end, |from, lanes| {
            for lane in 0..lanes as isize {
                let mut state = R::START;
                for start in (0..self.len).step_by(TILE) {
                    let n = TILE.min(self.len - start);
                    let at = |k: usize| from[k] + lane * across[k] + start as isize * steps[k];
                    // SAFETY: `n` elements of the lane from `start` on (L2); other threads have other lanes. The tiles were written
                    // by the loads.
                    unsafe {
                        self.load(0, at(0), steps[0], x, n);
                        if R::INPUTS > 1 {
                            self.load(1, at(1), steps[1], y, n);
                        }
                        // Sums of f64 could overflow in one order but not in the other.
                        let whole = n == TILE && self.sides[0].dtype != DType::F64;
                        match if whole { R::whole_tile(state, x) } else { None } {
                            Some(last) => state = last,
                            None => {
                                for i in 0..n {
                                    let own = x.add(i).read();
                                    state = R::next(state, own, if R::INPUTS > 1 { y.add(i).read() } else { own });
                                    x.add(i).write(state);
                                }
                            }
                        }
                        self.store(at(2), steps[2], x, n);
                    }
                }
            }
        });
    }

    /// Processes neighbouring lanes together, element by element.
    fn side_by_side<C: Copy, R: Running<C>>(&self, range: Range<usize>) {
        let across = self.walk.inner();
        let steps = self.steps();
        let mut tiles = [const { MaybeUninit::<[C; TILE]>::uninit() }; 2];
        let [x, y] = &mut tiles;
        let (x, y) = (x.as_mut_ptr().cast::<C>(), y.as_mut_ptr().cast::<C>());
        self.walk.runs(range.start, range.end, |from, lanes| {
            for start in (0..lanes).step_by(TILE) {
                let n = TILE.min(lanes - start);
                let mut states = [R::START; TILE];
                for element in 0..self.len as isize {
                    let at = |k: usize| from[k] + start as isize * across[k] + element * steps[k];
                    // SAFETY: one element each of `n` lanes (L2); other threads have other lanes. The tiles were written by the
                    // loads.
                    unsafe {
                        self.load(0, at(0), across[0], x, n);
                        if R::INPUTS > 1 {
                            self.load(1, at(1), across[1], y, n);
                        }
                        for (i, state) in states[..n].iter_mut().enumerate() {
                            let own = x.add(i).read();
                            *state = R::next(*state, own, if R::INPUTS > 1 { y.add(i).read() } else { own });
                        }
                        self.store(at(2), across[2], states.as_ptr(), n);
                    }
                }
            }
        });
    }
}

/// `indices[.., k, ..]` is the index along `dim` of the extreme of `x[.., 0, ..]` to `x[.., k, ..]`: the last of equal ones, and a
/// NaN before everything else. Both have the same shape; `indices` is contiguous and `i64`.
pub(crate) fn running_arg(
    op: &'static str,
    which: Extreme,
    x: View<'_>,
    dim: usize,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    if x.layout.shape() != indices.layout.shape() || indices.dtype != DType::I64 {
        let (from, to) = (x.layout.shape(), indices.layout.shape());
        bail!(Backend, op, "indices must be i64 of shape {from:?}, got {} of shape {to:?}", indices.dtype);
    }
    if x.layout.numel() == 0 {
        return Ok(());
    }
    with_dtype!(x.dtype, T => running_arg_as::<T>(op, which, x, dim, indices))
}

fn running_arg_as<T: SortKey>(
    op: &'static str,
    which: Extreme,
    x: View<'_>,
    dim: usize,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    /// The number of neighbouring lanes that are processed together.
    const LANES: usize = 64;
    let len = x.layout.shape()[dim];
    let first = |layout: &Layout| layout.select(op, dim as isize, 0);
    let (from, to) = (first(x.layout)?, first(indices.layout)?);
    let (step, out_step) = (x.layout.strides()[dim], indices.layout.strides()[dim]);
    let walk = Walk::new(from.shape(), [&from, &to]);
    let [across, out_across] = walk.inner();
    let together = if step.abs() <= across.abs() { 1 } else { LANES };
    let (x, indices) = (Ptr::new(x.ptr().cast_mut().cast::<T>()), Ptr::new(indices.ptr().cast::<i64>()));
    // The order in which the extreme comes last.
    let flip = if which == Extreme::Max { T::FIRST } else { T::LAST };
    let key = |x: T| if x.is_nan() { T::LAST } else { x.key() ^ flip };
    parallel(walk.numel(), (GRAIN / len).max(1), |range| {
        walk.runs(range.start, range.end, |[from, to], lanes| {
            for start in (0..lanes).step_by(together) {
                let n = together.min(lanes - start);
                let mut best = [(T::FIRST, 0_i64); LANES];
                for k in 0..len as isize {
                    for (i, (most, at)) in best[..n].iter_mut().enumerate() {
                        let lane = (start + i) as isize;
                        // SAFETY: element `k` of a lane of either (L2), of this type; other threads have other lanes.
                        unsafe {
                            let own = key(x.get().offset(from + lane * across + k * step).read());
                            if own >= *most {
                                (*most, *at) = (own, k as i64);
                            }
                            indices.get().offset(to + lane * out_across + k * out_step).write(*at);
                        }
                    }
                }
            }
        });
    });
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn logarithms_of_sums_are_right_where_powers_are_not_finite() {
        const INF: f64 = f64::INFINITY;
        let cases = [(-INF, -INF, -INF), (-INF, 3.0, 3.0), (INF, -INF, INF), (INF, INF, INF), (1e4, -1e4, 1e4)];
        for (a, b, sum) in cases {
            assert_eq!((log_add_exp(a, b), log_add_exp(b, a)), (sum, sum));
        }
        assert_eq!(log_add_exp(0.0, 0.0), 2_f64.ln());
        assert!(log_add_exp(f64::NAN, 0.0).is_nan() && log_add_exp(0.0, f64::NAN).is_nan());
    }
}
