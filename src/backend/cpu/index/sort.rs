//! Stable sorts along a dimension.

use crate::backend::cpu::runtime::scratch::check_room;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::SortKey;
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::layout::Walk;
use crate::{DType, Result};

/// The elements along `dim` in order into `values`, and where each of them was into `indices`, which is `i64`. Both are
/// contiguous and have the shape of `x`. Elements that are equal stay in their order; NaN counts as greater than all others.
pub(crate) fn sort(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let shape = x.layout.shape();
    if *values.layout.shape() != *shape || *indices.layout.shape() != *shape || indices.dtype != DType::I64 {
        bail!(Backend, op, "there is no room for {shape:?} sorted elements");
    }
    if shape.numel() == 0 {
        return Ok(());
    }
    check_room::<(u64, u32)>(op, shape[dim])?;
    with_dtype!(x.dtype, T => sort_as::<T>(op, x, dim, descending, values, indices))
}

fn sort_as<T: SortKey>(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    values: &mut ViewMut<'_>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let len = x.layout.shape()[dim];
    let Ok(longest) = u32::try_from(len) else {
        bail!(Backend, op, "{len} elements are too many to sort");
    };
    // The first element of each lane along the dimension.
    let first = |layout: &crate::layout::Layout| layout.select(op, dim as isize, 0);
    let (from, to) = (first(x.layout)?, first(values.layout)?);
    let (step, out_step) = (x.layout.strides()[dim], values.layout.strides()[dim]);
    let walk = Walk::new(from.shape(), [&from, &to]);
    let [across, out_across] = walk.inner();
    let start = Ptr::new(x.ptr().cast_mut().cast::<T>());
    let (values, indices) = (Ptr::new(values.ptr().cast::<T>()), Ptr::new(indices.ptr().cast::<i64>()));
    let flip = if descending { u64::MAX } else { 0 };
    parallel(walk.numel(), (GRAIN / len).max(1), |range| {
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(len);
        walk.runs(range.start, range.end, |[from, to], lanes| {
            for lane in 0..lanes as isize {
                let (from, to) = (from + lane * across, to + lane * out_across);
                // SAFETY: a lane of the layout, whose positions lie inside the storage (L2), and elements of type T.
                let element = |i: u32| unsafe { start.get().offset(from + i as isize * step).read() };
                order.clear();
                order.extend((0..longest).map(|i| (element(i).key() ^ flip, i)));
                // With the place as second key equal elements stay in their order.
                order.sort_unstable();
                for (rank, &(_, i)) in order.iter().enumerate() {
                    let to = to + rank as isize * out_step;
                    // SAFETY: a position of the outputs, which are contiguous, of one shape, and not shared; lanes of other
                    // threads are others.
                    unsafe {
                        values.get().offset(to).write(element(i));
                        indices.get().offset(to).write(i64::from(i));
                    }
                }
            }
        });
    });
    Ok(())
}
