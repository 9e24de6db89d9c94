//! Kernels that read and write at indices, and triangles of matrices.

pub(crate) mod fold;
pub(crate) mod nonzero;
pub(crate) mod search;
pub(crate) mod select;
pub(crate) mod sort;

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::unravel;
use crate::layout::{Layout, Shape, Walk};
use crate::{DType, Device, Result, interrupt};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Indices into a dimension, made only by [`Indices::check`] and [`Indices::from_end`].
///
/// Invariant: on the CPU the elements are `i64` and lie in `0..size` as long as the view is borrowed. On a GPU they may be out
/// of range. Shared memory, which others may write to, cannot guarantee this: the caller takes `Tensor::private` of it.
pub(crate) struct Indices<'a> {
    pub view: View<'a>,
    pub size: usize,
    /// Whether negative indices count from the end: only on a GPU, whose kernels check indices anyway.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub from_end: bool,
}

impl<'a> Indices<'a> {
    /// Indices on a GPU of which negative ones count from the end.
    pub fn from_end(op: &'static str, view: View<'a>, size: usize) -> Result<Indices<'a>> {
        if view.device() == Device::Cpu {
            bail!(Device, op, "indices must be on a GPU");
        }
        Ok(Indices { from_end: true, ..Indices::check(op, view, size)? })
    }

    /// Checks every index before any is used. On a GPU the kernel that uses the indices checks them, because waiting for the
    /// result would cost more than the work.
    pub fn check(op: &'static str, view: View<'a>, size: usize) -> Result<Indices<'a>> {
        if view.dtype != DType::I64 {
            bail!(DType, op, "indices must be i64, got {}", view.dtype);
        }
        if view.device() != Device::Cpu {
            return Ok(Indices { view, size, from_end: false });
        }
        if view.storage.is_foreign() {
            bail!(Backend, op, "indices in shared memory must be copied before they are checked");
        }
        // Repeated elements are checked once: an expanded tensor may have too many elements to visit.
        let sizes = view.layout.shape().iter().zip(view.layout.strides());
        let once: Shape = sizes.map(|(&len, &stride)| if stride == 0 { len.min(1) } else { len }).collect();
        let walk = Walk::<1>::of(&once, view.layout.strides());
        let ([step], start) = (walk.inner(), Ptr::new(view.first().cast_mut().cast::<i64>()));
        // SAFETY: the walk yields positions of the layout, inside the storage (L2), and the elements are i64.
        let read = |at: isize| unsafe { start.get().offset(at).read() };
        // As an unsigned number, a negative index is too large as well.
        let is_inside = |index: i64| (index as u64) < size as u64;
        let all_inside = AtomicBool::new(true);
        // Operations check indices before they call a kernel.
        interrupt::caught(op, || {
            parallel(walk.numel(), GRAIN, |range| {
                let mut inside = true;
                walk.runs(range.start, range.end, |[at], len| {
                    (0..len as isize).for_each(|i| inside &= is_inside(read(at + i * step)));
                });
                if !inside {
                    all_inside.store(false, Ordering::Relaxed);
                }
            });
            Ok(())
        })?;
        if all_inside.into_inner() {
            return Ok(Indices { view, size, from_end: false });
        }
        let (mut outside, mut done) = (None, 0);
        walk.runs(0, walk.numel(), |[at], len| {
            for i in (0..len as isize).filter(|i| !is_inside(read(at + i * step))) {
                outside.get_or_insert((read(at + i * step), done + i as usize));
            }
            done += len;
        });
        match outside {
            Some((index, number)) => {
                let place = unravel(number, &once);
                bail!(Index, op, "index {index} at {place:?} is out of range for a dimension of size {size}")
            }
            None => Ok(Indices { view, size, from_end: false }),
        }
    }
}

/// Writes indices into a dimension of `size` to contiguous memory, with negative ones counted from the end. Indices out of
/// range stay out of range; they are not checked.
pub(crate) fn wrap(op: &'static str, x: View<'_>, size: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let layout = out.layout;
    let Some(out) = out.part(layout).into_slice::<i64>().filter(|out| out.len() == x.layout.numel()) else {
        bail!(Backend, op, "output must be contiguous i64 with {} elements", x.layout.numel());
    };
    let walk = Walk::new(x.layout.shape(), [x.layout]);
    let ([step], start, mut done) = (walk.inner(), x.ptr().cast::<i64>(), 0);
    walk.runs(0, out.len(), |[at], len| {
        for (i, to) in out[done..done + len].iter_mut().enumerate() {
            // SAFETY: the walk yields positions of the layout, inside the storage (L2), and the elements are i64.
            let index = unsafe { start.offset(at + i as isize * step).read() };
            *to = if index < 0 { index.saturating_add(size as i64) } else { index };
        }
        done += len;
    });
    Ok(())
}

/// The elements of `layout` at index 0 of `dim`, repeated along it; the other dimensions are cut to those of `shape`.
pub(crate) fn lanes(layout: &Layout, dim: usize, shape: &Shape) -> Result<Layout> {
    let mut part = layout.clone();
    for (d, &size) in shape.iter().enumerate() {
        part = part.narrow("index", d as isize, 0, if d == dim { 1 } else { size })?;
    }
    Ok(part.broadcast_to(shape))
}

/// `out[.., j, ..] = x[.., indices[.., j, ..], ..]` along `dim`. The indices broadcast to the shape of `out`, which
/// may be shorter than `x` in the other dimensions, and were checked against a size not above that of `x` in `dim`.
pub(crate) fn gather(x: View<'_>, dim: usize, indices: &Indices<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    match x.dtype.size() {
        1 => gather_as::<u8>(x, dim, indices, out),
        2 => gather_as::<u16>(x, dim, indices, out),
        4 => gather_as::<u32>(x, dim, indices, out),
        _ => gather_as::<u64>(x, dim, indices, out),
    }
}

fn gather_as<W: Copy + Send>(x: View<'_>, dim: usize, indices: &Indices<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let shape = out.layout.shape();
    if shape.numel() == 0 {
        return Ok(());
    }
    debug_assert!(indices.size <= x.layout.shape()[dim]);
    let index = indices.view.layout.broadcast_to(shape);
    let walk = Walk::new(shape, [&lanes(x.layout, dim, shape)?, &index, out.layout]);
    let ([x_step, index_step, out_step], along) = (walk.inner(), x.layout.strides()[dim]);
    let x = Ptr::new(x.ptr().cast_mut().cast::<W>());
    let (index, out) = (Ptr::new(indices.view.ptr().cast_mut().cast::<i64>()), Ptr::new(out.ptr().cast::<W>()));
    parallel(walk.numel(), GRAIN, |range| {
        walk.runs(range.start, range.end, |[at, index_at, out_at], len| {
            // SAFETY: the walk yields positions of the layouts, inside their storages (L2). The position of an element
            // of `x` is that of index 0 of its lane plus an index that the dimension has. The output is not shared, and
            // threads have disjoint ranges of it.
            unsafe {
                let (x, index, out) = (x.get().offset(at), index.get().offset(index_at), out.get().offset(out_at));
                if index_step == 0 {
                    // One index for the whole run: a row.
                    let row = x.offset(index.read() as isize * along);
                    if x_step == 1 && out_step == 1 {
                        out.copy_from_nonoverlapping(row, len);
                    } else {
                        (0..len as isize).for_each(|i| *out.offset(i * out_step) = *row.offset(i * x_step));
                    }
                } else {
                    for i in 0..len as isize {
                        let position = i * x_step + index.offset(i * index_step).read() as isize * along;
                        *out.offset(i * out_step) = *x.offset(position);
                    }
                }
            }
        });
    });
    Ok(())
}

/// Copies, of every row of the matrices in `x`, the columns in the range `keep(row)`, and writes zero to the others. `out` has
/// the shape of `x`, which has a row dimension; the range of a row lies inside its columns.
pub(crate) fn rows_within(
    x: View<'_>,
    keep: impl Fn(usize) -> Range<usize> + Sync,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match x.dtype.size() {
        1 => rows_within_as::<u8>(x, &keep, out),
        2 => rows_within_as::<u16>(x, &keep, out),
        4 => rows_within_as::<u32>(x, &keep, out),
        _ => rows_within_as::<u64>(x, &keep, out),
    }
}

/// By element size: zero has all bits zero in every dtype.
fn rows_within_as<W: Copy + Send + Default>(
    x: View<'_>,
    keep: &(impl Fn(usize) -> Range<usize> + Sync),
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let shape = out.layout.shape();
    let [.., rows, columns] = shape[..] else {
        bail!(Shape, "index", "output must have at least 2 dimensions, got shape {shape:?}");
    };
    if shape.numel() == 0 {
        return Ok(());
    }
    let first = |layout: &Layout| layout.select("index", -1, 0);
    let (from, to) = (first(x.layout)?, first(out.layout)?);
    let walk = Walk::new(from.shape(), [&from, &to]);
    let ([x_down, out_down], last) = (walk.inner(), shape.len() - 1);
    let (x_step, out_step) = (x.layout.strides()[last], out.layout.strides()[last]);
    let (x, out) = (Ptr::new(x.ptr().cast_mut().cast::<W>()), Ptr::new(out.ptr().cast::<W>()));
    parallel(walk.numel(), GRAIN.div_ceil(columns), |range| {
        let mut row = range.start;
        walk.runs(range.start, range.end, |[x_at, out_at], len| {
            for i in 0..len as isize {
                let kept = keep(row % rows);
                row += 1;
                // SAFETY: the walk yields the positions of the rows' first elements, from which the columns lead to
                // positions of the layouts (L2). The output is not shared, and threads have disjoint rows of it.
                unsafe {
                    let (x, out) = (x.get().offset(x_at + i * x_down), out.get().offset(out_at + i * out_down));
                    for c in (0..kept.start).chain(kept.end..columns) {
                        out.offset(c as isize * out_step).write(W::default());
                    }
                    if x_step == 1 && out_step == 1 {
                        out.add(kept.start).copy_from_nonoverlapping(x.add(kept.start), kept.len());
                    } else {
                        for c in kept {
                            out.offset(c as isize * out_step).write(x.offset(c as isize * x_step).read());
                        }
                    }
                }
            }
        });
    });
    Ok(())
}
