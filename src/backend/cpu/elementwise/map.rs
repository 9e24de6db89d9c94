//! The driver of all elementwise kernels: it knows strides, dtypes and threads; a kernel knows a short run of numbers.

use crate::backend::code::Code;
use crate::backend::cpu::runtime::convert::{Compute, compute_dtype};
use crate::backend::cpu::runtime::simd::{Job, baseline, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::{DType, Result};
use std::mem::MaybeUninit;

/// An elementwise kernel of `N` operands: for each compute dtype a function over a short contiguous run.
///
/// # Safety
/// For all the functions: each `x[k]` is valid for `n` reads and `y` for `n` writes; an `x[k]` is equal to `y` or does
/// not overlap it.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Tile<const N: usize>: Sync {
    unsafe fn f32(&self, x: [*const f32; N], y: *mut f32, n: usize);
    unsafe fn f64(&self, x: [*const f64; N], y: *mut f64, n: usize);

    /// The kernel for integers, where there is one.
    fn ints(&self) -> Option<&dyn IntTile<N>> {
        None
    }

    /// This kernel, without a detour where it is kept elsewhere.
    #[inline]
    fn plain(&self) -> &dyn Tile<N>
    where
        Self: Sized,
    {
        self
    }

    /// The same for one element, in CUDA C.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    fn code(&self, x: [Code; N]) -> Code;
}

/// The integer half of a [`Tile`], under the same contract.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait IntTile<const N: usize>: Sync {
    unsafe fn i64(&self, x: [*const i64; N], y: *mut i64, n: usize);
    unsafe fn u64(&self, x: [*const u64; N], y: *mut u64, n: usize);
}

/// An elementwise function given by one formula over single numbers, for compute dtype `C`.
pub(crate) trait Formula<C, const N: usize>: Sync {
    fn at(&self, x: [C; N]) -> C;
}

/// Runs a formula over contiguous elements with the widest vectors there are.
///
/// # Safety
/// As for [`Tile`].
#[inline]
pub(crate) unsafe fn run_formula<C: Copy, F: Formula<C, N> + ?Sized, const N: usize>(
    f: &F,
    x: [*const C; N],
    y: *mut C,
    n: usize,
) {
    struct Run<'a, C, F: ?Sized, const N: usize>(&'a F, [*const C; N], *mut C, usize);
    impl<C: Copy, F: Formula<C, N> + ?Sized, const N: usize> Job for Run<'_, C, F, N> {
        type Output = ();
        #[inline(always)]
        fn run<const FMA: bool>(self) {
            let Run(f, x, y, n) = self;
            for i in 0..n {
                // SAFETY: the contract of `run_formula`: all pointers are valid for `n` elements.
                unsafe { y.add(i).write(f.at(std::array::from_fn(|k| x[k].add(i).read()))) };
            }
        }
    }
    if n < 8 {
        // Too short for wide vectors to pay.
        baseline(Run(f, x, y, n));
    } else {
        dispatch(Run(f, x, y, n));
    }
}

/// The kernel of a formula over floats.
pub(crate) struct Floats<F>(pub F);

/// The kernel of a formula over all compute dtypes.
pub(crate) struct Numbers<F>(pub F);

macro_rules! run_as {
    ($($t:ident),+) => {$(
        #[inline]
        unsafe fn $t(&self, x: [*const $t; N], y: *mut $t, n: usize) {
            // SAFETY: the contract of `Tile` is that of `run_formula`.
            unsafe { run_formula::<$t, F, N>(&self.0, x, y, n) }
        }
    )+};
}

impl<F: Formula<f32, N> + Formula<f64, N> + Formula<Code, N>, const N: usize> Tile<N> for Floats<F> {
    run_as!(f32, f64);

    fn code(&self, x: [Code; N]) -> Code {
        self.0.at(x)
    }
}

impl<F, const N: usize> Tile<N> for Numbers<F>
where
    F: Formula<f32, N> + Formula<f64, N> + Formula<i64, N> + Formula<u64, N> + Formula<Code, N>,
{
    run_as!(f32, f64);

    fn code(&self, x: [Code; N]) -> Code {
        self.0.at(x)
    }

    fn ints(&self) -> Option<&dyn IntTile<N>> {
        Some(self)
    }
}

impl<F: Formula<i64, N> + Formula<u64, N>, const N: usize> IntTile<N> for Numbers<F> {
    run_as!(i64, u64);
}

/// A kernel kept elsewhere.
impl<const N: usize> Tile<N> for &'static dyn Tile<N> {
    #[inline]
    unsafe fn f32(&self, x: [*const f32; N], y: *mut f32, n: usize) {
        // SAFETY: the contract is the same.
        unsafe { (**self).f32(x, y, n) }
    }

    #[inline]
    unsafe fn f64(&self, x: [*const f64; N], y: *mut f64, n: usize) {
        // SAFETY: the contract is the same.
        unsafe { (**self).f64(x, y, n) }
    }

    fn ints(&self) -> Option<&dyn IntTile<N>> {
        (**self).ints()
    }

    #[inline]
    fn plain(&self) -> &dyn Tile<N> {
        *self
    }

    fn code(&self, x: [Code; N]) -> Code {
        (**self).code(x)
    }
}

/// Elements computed at a time where they have to be converted or gathered: small enough for the first-level cache.
const TILE: usize = 512;

/// `out = tile(inputs)`, computed in the compute dtype of `compute`. The inputs' layouts have the shape of `out`, and
/// their storages are not `out`'s.
#[inline]
pub(crate) fn map<const N: usize>(
    op: &'static str,
    tile: &dyn Tile<N>,
    compute: DType,
    inputs: [View<'_>; N],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match compute_dtype(compute) {
        DType::F32 => map_as::<f32, N>(tile, inputs, out),
        DType::F64 => map_as::<f64, N>(tile, inputs, out),
        _ if tile.ints().is_none() => bail!(Backend, op, "there is no kernel for {compute}"),
        DType::U64 => map_as::<u64, N>(tile, inputs, out),
        _ => map_as::<i64, N>(tile, inputs, out),
    }
    Ok(())
}

/// `target = tile(target, other)`, in place; `other` has the shape of `target` and another storage.
pub(crate) fn zip_in_place(
    op: &'static str,
    tile: &dyn Tile<2>,
    target: &mut ViewMut<'_>,
    other: View<'_>,
) -> Result<()> {
    match compute_dtype(target.dtype) {
        DType::F32 => zip_in_place_as::<f32>(tile, target, other),
        DType::F64 => zip_in_place_as::<f64>(tile, target, other),
        _ if tile.ints().is_none() => bail!(Backend, op, "there is no kernel for {}", target.dtype),
        DType::U64 => zip_in_place_as::<u64>(tile, target, other),
        _ => zip_in_place_as::<i64>(tile, target, other),
    }
    Ok(())
}

#[inline]
fn zip_in_place_as<C: Compute>(tile: &dyn Tile<2>, target: &mut ViewMut<'_>, other: View<'_>) {
    let own = Source { ptr: target.ptr(), layout: target.layout, dtype: target.dtype };
    map_sources::<C, 2>(tile, [own, Source::of(&other)], target);
}

#[inline]
fn map_as<C: Compute, const N: usize>(tile: &dyn Tile<N>, inputs: [View<'_>; N], out: &mut ViewMut<'_>) {
    map_sources::<C, N>(tile, std::array::from_fn(|k| Source::of(&inputs[k])), out);
}

/// An operand without its borrow, since in place it is also the target.
#[derive(Clone, Copy)]
struct Source<'a> {
    ptr: *const u8,
    layout: &'a Layout,
    dtype: DType,
}

impl<'a> Source<'a> {
    #[inline]
    fn of(view: &View<'a>) -> Source<'a> {
        Source { ptr: view.ptr(), layout: view.layout, dtype: view.dtype }
    }
}

#[inline]
fn map_sources<C: Compute, const N: usize>(tile: &dyn Tile<N>, inputs: [Source<'_>; N], out: &mut ViewMut<'_>) {
    let numel = out.layout.numel();
    let plain = |dtype: DType, layout: &Layout| dtype == C::DTYPE && layout.is_contiguous();
    if plain(out.dtype, out.layout) && inputs.iter().all(|x| plain(x.dtype, x.layout)) {
        if numel == 0 {
            return;
        }
        // SAFETY: every layout takes `numel` positions from its offset on, inside its storage (L2).
        let x: [*const C; N] =
            std::array::from_fn(|k| unsafe { inputs[k].ptr.cast::<C>().add(inputs[k].layout.offset()) });
        let y = out.first().cast::<C>();
        if numel <= GRAIN {
            // SAFETY: `numel` elements behind each; outputs are fresh, or equal to an input in place.
            return unsafe { C::tile(tile, x, y, numel) };
        }
        let (x, y) = (x.map(|p| Ptr::new(p.cast_mut())), Ptr::new(y));
        return parallel(numel, GRAIN, |range| {
            // SAFETY: as above; the pieces of different threads do not overlap.
            unsafe {
                C::tile(
                    tile,
                    std::array::from_fn(|k| x[k].get().add(range.start).cast_const()),
                    y.get().add(range.start),
                    range.len(),
                );
            };
        });
    }
    strided::<C, N>(tile, inputs, out);
}

#[inline(never)]
fn strided<C: Compute, const N: usize>(tile: &dyn Tile<N>, inputs: [Source<'_>; N], out: &mut ViewMut<'_>) {
    // One walk over all operands and the output as the last; at most three operands.
    let mut layouts: [&Layout; 4] = [out.layout; 4];
    for (k, x) in inputs.iter().enumerate() {
        layouts[k] = x.layout;
    }
    let walk = Walk::new(out.layout.shape(), layouts);
    let (inner, numel, dtype) = (walk.inner(), walk.numel(), out.dtype);
    let (to, inputs) = (Ptr::new(out.ptr()), inputs.map(|x| (Ptr::new(x.ptr.cast_mut()), x.dtype)));
    parallel(numel, GRAIN, |range| {
        let mut scratch = [[const { MaybeUninit::<C>::uninit() }; TILE]; N];
        let mut result = [const { MaybeUninit::<C>::uninit() }; TILE];
        walk.runs(range.start, range.end, |at, len| {
            for done in (0..len).step_by(TILE) {
                let n = TILE.min(len - done);
                let place = |k: usize| at[k] + done as isize * inner[k];
                let x: [*const C; N] = std::array::from_fn(|k| {
                    let (ptr, dtype) = (inputs[k].0.get(), inputs[k].1);
                    // SAFETY: the walk yields positions of the layouts, inside their storages (L2); the scratch holds
                    // TILE >= n elements. An operand of the compute dtype that lies contiguous is read where it is.
                    unsafe {
                        let first = ptr.offset(place(k) * dtype.size() as isize);
                        if dtype == C::DTYPE && inner[k] == 1 {
                            return first.cast::<C>().cast_const();
                        }
                        if inner[k] != 0 || done == 0 {
                            // A repeated operand is the same in every tile of the run; the first tile is the longest.
                            C::load(dtype, first, inner[k], scratch[k].as_mut_ptr().cast::<C>(), n);
                        }
                        scratch[k].as_ptr().cast::<C>()
                    }
                });
                // SAFETY: as above for the positions of the output, which is the walk's last operand. Threads have
                // disjoint ranges, and no two elements of an output share a position.
                unsafe {
                    let first = to.get().offset(place(3) * dtype.size() as isize);
                    if dtype == C::DTYPE && inner[3] == 1 {
                        C::tile(tile, x, first.cast::<C>(), n);
                    } else {
                        C::tile(tile, x, result.as_mut_ptr().cast::<C>(), n);
                        C::store(dtype, result.as_ptr().cast::<C>(), first, inner[3], n);
                    }
                }
            }
        });
    });
}
