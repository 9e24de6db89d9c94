//! The largest elements, or the sums, of windows over up to three dimensions.

use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::cpu::runtime::scratch;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::Windows;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::{DType, Result};

/// The windows of one dimension: of each its first element and their number.
struct Table {
    of: Vec<(usize, usize)>,
    step: usize,
}

fn tables(op: &'static str, windows: &[Windows; 3]) -> Result<[Table; 3]> {
    let table = |windows: &Windows| -> Result<Table> {
        let mut of = scratch::with_room(op, windows.count)?;
        of.extend((0..windows.count).map(|o| windows.at(o)));
        Ok(Table { of, step: windows.step as usize })
    };
    Ok([table(&windows[0])?, table(&windows[1])?, table(&windows[2])?])
}

/// The first element of each plane, and the steps inside of it. Planes are the first two of five dimensions.
#[derive(Clone, Copy)]
struct Planes {
    batch: isize,
    channel: isize,
    channels: usize,
    strides: [isize; 3],
    sizes: [usize; 3],
}

impl Planes {
    fn new(x: &View<'_>) -> Planes {
        let (shape, strides) = (x.layout.shape(), x.layout.strides());
        Planes {
            batch: strides[0],
            channel: strides[1],
            channels: shape[1].max(1),
            strides: [strides[2], strides[3], strides[4]],
            sizes: [shape[2], shape[3], shape[4]],
        }
    }

    fn first(&self, plane: usize) -> isize {
        (plane / self.channels) as isize * self.batch + (plane % self.channels) as isize * self.channel
    }
}

/// A number that can be compared. Of NaN the last is the largest, as in PyTorch.
trait Comparable: Copy + PartialOrd {
    #[inline(always)]
    fn beats(self, other: Self) -> bool {
        #[allow(clippy::eq_op)]
        let nan = self != self;
        self > other || nan
    }
}

impl Comparable for f32 {}
impl Comparable for f64 {}
impl Comparable for i64 {}
impl Comparable for u64 {}

/// The largest element of each window of `x`, which has five dimensions, into `values`, and its number in its plane into
/// `indices`, if they are asked for. Both are contiguous, and every window has elements. All are of a compute dtype.
///
/// # Errors
/// If there is no memory for a table of windows, or no kernel for the dtype.
pub(crate) fn max(
    op: &'static str,
    x: View<'_>,
    windows: &[Windows; 3],
    values: &mut ViewMut<'_>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    debug_assert!(compute_dtype(x.dtype) == x.dtype);
    match x.dtype {
        DType::F32 => max_of::<f32>(op, x, windows, values, indices),
        DType::F64 => max_of::<f64>(op, x, windows, values, indices),
        DType::I64 => max_of::<i64>(op, x, windows, values, indices),
        DType::U64 => max_of::<u64>(op, x, windows, values, indices),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

fn max_of<T: Comparable>(
    op: &'static str,
    x: View<'_>,
    windows: &[Windows; 3],
    values: &mut ViewMut<'_>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let tables = tables(op, windows)?;
    let (planes, n) = (Planes::new(&x), values.layout.numel());
    let each: usize = tables.iter().map(|table| table.of.len()).product();
    if n == 0 {
        return Ok(());
    }
    let from = Ptr::new(x.first().cast::<T>().cast_mut());
    let to = Ptr::new(values.first().cast::<T>());
    let at = indices.map(|indices| Ptr::new(indices.first().cast::<i64>()));
    parallel(n / each, (GRAIN / each).max(1), |range| {
        for plane in range {
            // SAFETY: planes are positions of the layout (L2); results are contiguous, and each plane is one thread's.
            unsafe {
                let from = from.get().offset(planes.first(plane)).cast_const();
                let (to, at) = (to.get().add(plane * each), at.map(|at| at.get().add(plane * each)));
                match at {
                    Some(at) => dispatch(MaxPlane::<T, true> { from, planes: &planes, tables: &tables, to, at }),
                    None => {
                        let at = std::ptr::null_mut();
                        dispatch(MaxPlane::<T, false> { from, planes: &planes, tables: &tables, to, at });
                    }
                }
            }
        }
    });
    Ok(())
}

struct MaxPlane<'a, T, const INDEXED: bool> {
    from: *const T,
    planes: &'a Planes,
    tables: &'a [Table; 3],
    to: *mut T,
    at: *mut i64,
}

impl<T: Comparable, const INDEXED: bool> Job for MaxPlane<'_, T, INDEXED> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let MaxPlane { from, planes, tables: [td, th, tw], to, at } = self;
        let [sd, sh, sw] = planes.strides;
        let (mut o, [_, height, width]) = (0, planes.sizes);
        let offset = |d: usize, h: usize, w: usize| d as isize * sd + h as isize * sh + w as isize * sw;
        for &(d0, dn) in &td.of {
            for &(h0, hn) in &th.of {
                for &(w0, wn) in &tw.of {
                    // SAFETY: windows have elements, all of them inside the plane; there is room for each result.
                    unsafe {
                        let (mut best, mut place) =
                            (from.offset(offset(d0, h0, w0)).read(), (d0 * height + h0) * width + w0);
                        for d in 0..dn {
                            for h in 0..hn {
                                let (d, h) = (d0 + d * td.step, h0 + h * th.step);
                                let row = from.offset(offset(d, h, w0));
                                for w in 0..wn {
                                    let x = row.offset((w * tw.step) as isize * sw).read();
                                    if x.beats(best) {
                                        best = x;
                                        if INDEXED {
                                            place = (d * height + h) * width + w0 + w * tw.step;
                                        }
                                    }
                                }
                            }
                        }
                        to.add(o).write(best);
                        if INDEXED {
                            at.add(o).write(place as i64);
                        }
                    }
                    o += 1;
                }
            }
        }
    }
}

/// Puts each element of `g` where its index says in its plane of `out`, of `size` elements, and adds up those that meet. All are
/// contiguous and of f32 or f64.
///
/// # Errors
/// If there is no kernel for the dtype.
pub(crate) fn max_gradient(
    op: &'static str,
    g: View<'_>,
    indices: View<'_>,
    _: &[Windows; 3],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F32 => scatter::<f32>(&g, &indices, out),
        DType::F64 => scatter::<f64>(&g, &indices, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn scatter<T: Copy + std::ops::Add<Output = T>>(g: &View<'_>, indices: &View<'_>, out: &mut ViewMut<'_>) {
    let spatial = |shape: &[usize]| shape[2..].iter().product::<usize>();
    let (each, size) = (spatial(g.layout.shape()), spatial(out.layout.shape()));
    if size == 0 {
        return;
    }
    let planes = out.layout.numel() / size;
    let from = Ptr::new(g.first().cast::<T>().cast_mut());
    let at = Ptr::new(indices.first().cast::<i64>().cast_mut());
    let to = Ptr::new(out.first().cast::<T>());
    parallel(planes, (GRAIN / size).max(1), |range| {
        for plane in range {
            // SAFETY: all are contiguous, and each plane is one thread's; an index that is none of the plane is left out.
            unsafe {
                let to = to.get().add(plane * size);
                to.write_bytes(0, size);
                for i in plane * each..(plane + 1) * each {
                    let index = at.get().add(i).read();
                    if (index as u64) < size as u64 {
                        let to = to.add(index as usize);
                        to.write(to.read() + from.get().add(i).read());
                    }
                }
            }
        }
    });
}

/// The sum of each window of `x`, which has five dimensions, divided by a number. `out` is contiguous. Both are of f32 or
/// f64.
///
/// # Errors
/// If there is no memory for a table of windows, or no kernel for the dtype.
pub(crate) fn sum(
    op: &'static str,
    x: View<'_>,
    windows: &[Windows; 3],
    divisor: f64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match x.dtype {
        DType::F32 => sum_of::<f32>(op, x, windows, divisor as f32, out),
        DType::F64 => sum_of::<f64>(op, x, windows, divisor, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

fn sum_of<T>(op: &'static str, x: View<'_>, windows: &[Windows; 3], divisor: T, out: &mut ViewMut<'_>) -> Result<()>
where
    T: Copy + Default + Sync + std::ops::Add<Output = T> + std::ops::Div<Output = T>,
{
    let tables = tables(op, windows)?;
    let (planes, n) = (Planes::new(&x), out.layout.numel());
    let each: usize = tables.iter().map(|table| table.of.len()).product();
    if n == 0 {
        return Ok(());
    }
    let from = Ptr::new(x.first().cast::<T>().cast_mut());
    let to = Ptr::new(out.first().cast::<T>());
    let tables = &tables;
    parallel(n / each, (GRAIN / each).max(1), |range| {
        for plane in range {
            // SAFETY: planes are positions of the layout (L2); results are contiguous, and each plane is one thread's.
            unsafe {
                let from = from.get().offset(planes.first(plane)).cast_const();
                dispatch(SumPlane { from, planes: &planes, tables, divisor, to: to.get().add(plane * each) });
            }
        }
    });
    Ok(())
}

struct SumPlane<'a, T> {
    from: *const T,
    planes: &'a Planes,
    tables: &'a [Table; 3],
    divisor: T,
    to: *mut T,
}

impl<T> Job for SumPlane<'_, T>
where
    T: Copy + Default + std::ops::Add<Output = T> + std::ops::Div<Output = T>,
{
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let SumPlane { from, planes, tables: [td, th, tw], divisor, to } = self;
        let [sd, sh, sw] = planes.strides;
        let mut o = 0;
        for &(d0, dn) in &td.of {
            for &(h0, hn) in &th.of {
                for &(w0, wn) in &tw.of {
                    let mut sum = T::default();
                    // SAFETY: windows are inside the plane; there is room for each result.
                    unsafe {
                        for d in 0..dn {
                            for h in 0..hn {
                                let (d, h) = (d0 + d * td.step, h0 + h * th.step);
                                let row = from.offset(d as isize * sd + h as isize * sh + w0 as isize * sw);
                                for w in 0..wn {
                                    sum = sum + row.offset((w * tw.step) as isize * sw).read();
                                }
                            }
                        }
                        to.add(o).write(sum / divisor);
                    }
                    o += 1;
                }
            }
        }
    }
}
