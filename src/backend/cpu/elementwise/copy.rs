//! Copying, casting and filling.

use crate::backend::cpu::elementwise::map::map;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::{Draw, Formula};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::err;
use crate::layout::Walk;
use crate::{DType, Element, Result, Scalar, random};
use std::sync::LazyLock;

/// Copies the elements of `from` to `to`, which has the same shape, casting where the dtypes differ.
pub(crate) fn copy(from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    if from.dtype != to.dtype {
        static IDENTITY: LazyLock<Formula> = LazyLock::new(|| Formula::new("copy", 1, 0, |x, _| x[0]));
        return map("copy", (&IDENTITY, &[]), from.dtype, &[from], to);
    }
    match from.dtype.size() {
        1 => copy_as::<u8>(from, to),
        2 => copy_as::<u16>(from, to),
        4 => copy_as::<u32>(from, to),
        _ => copy_as::<u64>(from, to),
    }
    Ok(())
}

/// Moves elements of the width of `W`, whatever they stand for.
fn copy_as<W: Copy + Send>(from: View<'_>, to: &mut ViewMut<'_>) {
    let walk = Walk::new(to.layout.shape(), [from.layout, to.layout]);
    let [from_step, to_step] = walk.inner();
    let (from, to) = (Ptr::new(from.ptr().cast_mut().cast::<W>()), Ptr::new(to.ptr().cast::<W>()));
    parallel(walk.numel(), GRAIN, |range| {
        walk.runs(range.start, range.end, |[a, b], len| {
            // SAFETY: the walk yields positions of both layouts, inside their storages (L2); the target is not shared
            // with the source, and threads have disjoint ranges of it.
            unsafe {
                let (from, to) = (from.get().offset(a), to.get().offset(b));
                if from_step == 1 && to_step == 1 {
                    to.copy_from_nonoverlapping(from, len);
                } else {
                    for i in 0..len as isize {
                        *to.offset(i * to_step) = *from.offset(i * from_step);
                    }
                }
            }
        });
    });
}

/// Puts one number everywhere.
pub(crate) fn fill(to: &mut ViewMut<'_>, value: Scalar) {
    with_dtype!(to.dtype, T => {
        let value = <T as Element>::from_scalar(value);
        let walk = Walk::new(to.layout.shape(), [to.layout]);
        let [step] = walk.inner();
        let to = Ptr::new(to.ptr().cast::<T>());
        parallel(walk.numel(), GRAIN, |range| {
            walk.runs(range.start, range.end, |[at], len| {
                // SAFETY: the walk yields positions of the layout (L2); threads have disjoint ranges of it.
                unsafe {
                    let to = to.get().offset(at);
                    if step == 1 {
                        // Through a slice of possibly unwritten elements only writes are made.
                        std::slice::from_raw_parts_mut(to, len).fill(value);
                    } else {
                        (0..len as isize).for_each(|i| to.offset(i * step).write(value));
                    }
                }
            });
        });
    });
}

/// Fills a slice piece by piece, on several threads if it is long; `f` gets the index of a piece's first element.
fn fill_parallel<T: Send>(data: &mut [T], f: impl Fn(usize, &mut [T]) + Sync) {
    let ptr = Ptr::new(data.as_mut_ptr());
    parallel(data.len(), GRAIN, |range| {
        // SAFETY: the pieces are disjoint parts of the slice, which is borrowed for the whole call.
        let part = unsafe { std::slice::from_raw_parts_mut(ptr.get().add(range.start), range.len()) };
        f(range.start, part);
    });
}

/// Fills contiguous elements with a draw; f32, f64, i64 and bool are drawn.
pub(crate) fn draw(op: &'static str, draw: Draw, (seed, offset): (u64, u64), out: &mut ViewMut<'_>) -> Result<()> {
    let (dtype, layout) = (out.dtype, out.layout);
    let refused = || err!(Backend, op, "cannot draw {draw:?} as {dtype}");
    match (draw, dtype) {
        (Draw::Uniform(bits), DType::F32) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_uniform_bits(part, seed, offset, at as u64, bits));
        }
        (Draw::Normal, DType::F32) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_normal_f32(part, seed, offset, at as u64));
        }
        (Draw::Uniform(_), DType::F64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_uniform_f64(part, seed, offset, at as u64));
        }
        (Draw::Normal, DType::F64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_normal_f64(part, seed, offset, at as u64));
        }
        (Draw::Integers(low, high), DType::I64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_integers(part, seed, offset, at as u64, low, high));
        }
        (Draw::Booleans(last), DType::Bool) => {
            let data = out.part(layout).into_slice::<bool>().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_bernoulli(part, seed, offset, at as u64, last, [true, false]));
        }
        _ => return Err(refused()),
    }
    Ok(())
}

/// The element at a position of a view's layout.
pub(crate) fn read(from: View<'_>, position: usize) -> Scalar {
    debug_assert!(from.layout.extent().is_some_and(|(low, high)| (low..=high).contains(&position)));
    with_dtype!(from.dtype, T => {
        // SAFETY: the caller computed the position from the layout and an index inside its shape (L2).
        unsafe { from.ptr().cast::<T>().add(position).read() }.to_scalar()
    })
}
