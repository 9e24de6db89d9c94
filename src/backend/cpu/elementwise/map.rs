//! The driver of all elementwise kernels. It handles strides, dtypes and threads; a kernel processes a contiguous run of one
//! compute dtype.

use crate::backend::cpu::runtime::convert::{load, store};
use crate::backend::cpu::runtime::simd::each;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::{Formula, MOST_INPUTS};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::zip::zip;
use crate::{DType, Result, Scalar};
use std::mem::MaybeUninit;
use std::ptr::null;

/// Elements per tile where they must be converted or gathered: small enough for the L1 cache.
const TILE: usize = 512;

/// `out = formula(inputs)`, computed in the compute dtype of `compute`. The inputs' layouts have the shape of `out`, and
/// their storages are not `out`'s.
#[inline]
pub(crate) fn map(
    op: &'static str,
    (formula, params): (&Formula, &[Scalar]),
    compute: DType,
    inputs: &[View<'_>],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let compute = compute.compute_dtype();
    if !plain(compute, out.dtype, out.layout) || !inputs.iter().all(|x| plain(compute, x.dtype, x.layout)) {
        let mut operands = [RawOperand::none(out.layout); MOST_INPUTS];
        for (operand, input) in zip(&mut operands[..], inputs) {
            *operand = RawOperand { ptr: input.ptr(), layout: input.layout, dtype: input.dtype };
        }
        return strided(op, (formula, params), compute, &operands[..inputs.len().min(MOST_INPUTS)], out);
    }
    let mut x = [null(); MOST_INPUTS];
    for (x, input) in zip(&mut x[..], inputs) {
        *x = input.ptr().wrapping_add(input.layout.offset() * compute.size());
    }
    contiguous(op, (formula, params), compute, x, out)
}

/// `target = formula(target, other)`, in place; `other` has the shape of `target` and another storage.
pub(crate) fn zip_in_place(
    op: &'static str,
    formula: &Formula,
    target: &mut ViewMut<'_>,
    other: View<'_>,
) -> Result<()> {
    let own = RawOperand { ptr: target.ptr(), layout: target.layout, dtype: target.dtype };
    let other = RawOperand { ptr: other.ptr(), layout: other.layout, dtype: other.dtype };
    let compute = target.dtype.compute_dtype();
    if ![own, other].iter().all(|x| plain(compute, x.dtype, x.layout)) {
        return strided(op, (formula, &[]), compute, &[own, other], target);
    }
    let mut x = [null(); MOST_INPUTS];
    for (x, operand) in zip(&mut x[..], [own, other]) {
        *x = operand.ptr.wrapping_add(operand.layout.offset() * compute.size());
    }
    contiguous(op, (formula, &[]), compute, x, target)
}

/// Whether a view is contiguous and has the compute dtype.
#[inline]
fn plain(compute: DType, dtype: DType, layout: &Layout) -> bool {
    dtype == compute && layout.is_contiguous()
}

/// An operand without a borrow, since an in-place operand is also the target.
#[derive(Clone, Copy)]
struct RawOperand<'a> {
    ptr: *const u8,
    layout: &'a Layout,
    dtype: DType,
}

impl<'a> RawOperand<'a> {
    fn none(layout: &'a Layout) -> RawOperand<'a> {
        RawOperand { ptr: null(), layout, dtype: DType::U8 }
    }
}

/// For operands and output that are [`plain`], given by their first elements.
#[inline]
fn contiguous(
    op: &'static str,
    (formula, params): (&Formula, &[Scalar]),
    compute: DType,
    x: [*const u8; MOST_INPUTS],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    check_kernel(op, formula, compute)?;
    let numel = out.layout.numel();
    if numel == 0 {
        return Ok(());
    }
    let (size, y) = (compute.size(), out.first());
    if numel <= GRAIN {
        // SAFETY: every layout takes `numel` positions from its offset on, inside its storage (L2); outputs are fresh, or
        // equal to an input in place. There is a kernel.
        unsafe { formula.run(compute, params, x, y, numel) };
        return Ok(());
    }
    let (x, y) = (x.map(|x| Ptr::new(x.cast_mut())), Ptr::new(y));
    parallel(numel, GRAIN, |range| {
        let start = range.start * size;
        // SAFETY: as above; the pieces of different threads do not overlap.
        unsafe {
            let x = each(|k| x[k].get().wrapping_add(start).cast_const());
            formula.run(compute, params, x, y.get().add(start), range.len());
        }
    });
    Ok(())
}

#[inline]
fn check_kernel(op: &'static str, formula: &Formula, compute: DType) -> Result<()> {
    let known = match formula.direct {
        Some(function) => function.kernel(compute).is_some(),
        None => formula.has_kernel(compute),
    };
    if !known {
        bail!(Backend, op, "there is no kernel for {compute}");
    }
    Ok(())
}

#[inline(never)]
fn strided(
    op: &'static str,
    kernel: (&Formula, &[Scalar]),
    compute: DType,
    inputs: &[RawOperand<'_>],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    check_kernel(op, kernel.0, compute)?;
    // One walk over all operands, with the output last.
    if inputs.len() <= 3 {
        walk_strided::<4>(kernel, compute, inputs, out);
    } else {
        walk_strided::<{ MOST_INPUTS + 1 }>(kernel, compute, inputs, out);
    }
    Ok(())
}

fn walk_strided<const W: usize>(
    (formula, params): (&Formula, &[Scalar]),
    compute: DType,
    inputs: &[RawOperand<'_>],
    out: &mut ViewMut<'_>,
) {
    /// Room for a tile of any compute dtype.
    type Tile = [MaybeUninit<u64>; TILE];
    let mut layouts: [&Layout; W] = [out.layout; W];
    for (layout, x) in zip(&mut layouts[..], inputs) {
        *layout = x.layout;
    }
    let walk = Walk::new(out.layout.shape(), layouts);
    let (inner, numel, dtype, last) = (walk.inner(), walk.numel(), out.dtype, W - 1);
    let mut from = [(Ptr::new(std::ptr::null_mut::<u8>()), DType::U8); MOST_INPUTS];
    for (from, x) in zip(&mut from[..], inputs) {
        *from = (Ptr::new(x.ptr.cast_mut()), x.dtype);
    }
    let (to, count, identity) = (Ptr::new(out.ptr()), inputs.len(), formula.identity());
    parallel(numel, GRAIN, |range| {
        let mut scratch: [Tile; W] = [[const { MaybeUninit::uninit() }; TILE]; W];
        walk.runs(range.start, range.end, |at, len| {
            for done in (0..len).step_by(TILE) {
                let n = TILE.min(len - done);
                let position = |k: usize| at[k] + done as isize * inner[k];
                let mut x = [null(); MOST_INPUTS];
                for (k, (x, &(ptr, dtype))) in zip(&mut x[..], &from).enumerate().take(count) {
                    // SAFETY: the walk yields positions of the layouts, inside their storages (L2); the scratch holds
                    // TILE >= n elements. An operand of the compute dtype that lies contiguous is read where it is.
                    unsafe {
                        let first = ptr.get().offset(position(k) * dtype.size() as isize);
                        if dtype == compute && inner[k] == 1 {
                            *x = first.cast_const();
                            continue;
                        }
                        let tile = scratch[k].as_mut_ptr().cast::<u8>();
                        if inner[k] != 0 || done == 0 {
                            // A repeated operand is loaded for the first tile of a run only, which is the longest.
                            load(compute, dtype, first, inner[k], tile, n);
                        }
                        *x = tile.cast_const();
                    }
                }
                // SAFETY: as above for the positions of the output, which is the walk's last operand. Threads have
                // disjoint ranges, and no two elements of an output share a position.
                unsafe {
                    let first = to.get().offset(position(last) * dtype.size() as isize);
                    if let Some(k) = identity {
                        // A cast: the loaded elements are stored.
                        store(compute, dtype, x[k], first, inner[last], n);
                    } else if dtype == compute && inner[last] == 1 {
                        formula.run(compute, params, x, first, n);
                    } else {
                        let tile = scratch[last].as_mut_ptr().cast::<u8>();
                        formula.run(compute, params, x, tile, n);
                        store(compute, dtype, tile, first, inner[last], n);
                    }
                }
            }
        });
    });
}
