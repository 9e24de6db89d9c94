//! The maxima and the sums of windows over up to three dimensions.

use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::Windows;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::memory::scratch;
use crate::zip::zip;
use crate::{DType, Result, interrupt};

/// The windows of one dimension: the first element and the number of elements of each.
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

/// The first element of each plane, and the strides inside of it. Planes are indexed by the first two of five
/// dimensions.
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

/// A number with an order in which NaN is the largest, and the last NaN wins, as in PyTorch.
trait Comparable: Copy + PartialOrd + Send + Sync {
    /// The smallest value.
    const LOWEST: Self;

    #[inline(always)]
    fn beats(self, other: Self) -> bool {
        #[allow(clippy::eq_op)]
        let nan = self != self;
        self > other || nan
    }
}

impl Comparable for f32 {
    const LOWEST: f32 = f32::NEG_INFINITY;
}
impl Comparable for f64 {
    const LOWEST: f64 = f64::NEG_INFINITY;
}
impl Comparable for i64 {
    const LOWEST: i64 = i64::MIN;
}
impl Comparable for u64 {
    const LOWEST: u64 = 0;
}

/// The largest element of each window of `x`, which has five dimensions, into `values`, and its flat index in its plane
/// into `indices`, if given. Both are contiguous, and no window is empty. `x` and `values` are of a compute dtype.
///
/// # Errors
/// If memory for a table of windows runs out, or there is no kernel for the dtype.
pub(crate) fn max(
    op: &'static str,
    x: View<'_>,
    windows: &[Windows; 3],
    values: &mut ViewMut<'_>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    debug_assert!(x.dtype.compute_dtype() == x.dtype);
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
    let (planes, n) = (Planes::new(&x), values.layout.numel());
    if n == 0 {
        // Without planes the number of windows is not limited by memory.
        return Ok(());
    }
    let tables = tables(op, windows)?;
    let each: usize = tables.iter().map(|table| table.of.len()).product();
    let from = Ptr::new(x.first().cast::<T>().cast_mut());
    let to = Ptr::new(values.first().cast::<T>());
    let at = indices.map(|indices| Ptr::new(indices.first().cast::<i64>()));
    // Evenly spaced windows along contiguous rows are compared a row at a time.
    let [_, _, along] = windows;
    let size: usize = planes.sizes.iter().product();
    let in_rows = along.den == 1 && planes.strides[2] == 1 && size < i32::MAX as usize;
    scratch::check_room::<i32>(op, along.count)?;
    parallel(n / each, (GRAIN / each).max(1), |range| {
        let mut positions = vec![0_i32; if in_rows { along.count } else { 0 }];
        for plane in range {
            // SAFETY: planes are positions of the layout (L2); results are contiguous, and each plane is one thread's.
            unsafe {
                let from = from.get().offset(planes.first(plane)).cast_const();
                let (to, at) = (to.get().add(plane * each), at.map(|at| at.get().add(plane * each)));
                if in_rows {
                    dispatch(MaxRows {
                        from,
                        planes: &planes,
                        tables: &tables,
                        along,
                        to,
                        at,
                        positions: &mut positions,
                    });
                } else {
                    dispatch(MaxPlane { from, planes: &planes, tables: &tables, to, at });
                }
            }
        }
    });
    Ok(())
}

/// The maxima, window by window.
struct MaxPlane<'a, T> {
    from: *const T,
    planes: &'a Planes,
    tables: &'a [Table; 3],
    to: *mut T,
    at: Option<*mut i64>,
}

/// Checks for an interrupt now and then, in a loop that takes `steps` per iteration: a window may be as large as an
/// expanded tensor.
#[inline(always)]
fn look_up(at: usize, steps: usize) {
    if at & 1023 == 1023 || steps > 1023 {
        interrupt::poll();
    }
}

impl<T: Comparable> Job for MaxPlane<'_, T> {
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
                        let mut position = (d0 * height + h0) * width + w0;
                        let mut best = from.offset(offset(d0, h0, w0)).read();
                        for d in 0..dn {
                            for h in 0..hn {
                                look_up(d * hn + h, wn);
                                let (d, h) = (d0 + d * td.step, h0 + h * th.step);
                                let row = from.offset(offset(d, h, w0));
                                for w in 0..wn {
                                    look_up(w, 1);
                                    let x = row.offset((w * tw.step) as isize * sw).read();
                                    if x.beats(best) {
                                        best = x;
                                        position = (d * height + h) * width + w0 + w * tw.step;
                                    }
                                }
                            }
                        }
                        to.add(o).write(best);
                        if let Some(at) = at {
                            at.add(o).write(position as i64);
                        }
                    }
                    o += 1;
                }
            }
        }
    }
}

/// The maxima, a row of results at a time: element `k` of all windows of the row is compared in parallel.
struct MaxRows<'a, T> {
    from: *const T,
    planes: &'a Planes,
    tables: &'a [Table; 3],
    along: &'a Windows,
    to: *mut T,
    at: Option<*mut i64>,
    positions: &'a mut [i32],
}

impl<T: Comparable> Job for MaxRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let MaxRows { from, planes, tables: [td, th, tw], along, to, at, positions } = self;
        let ([sd, sh, _], [_, height, width]) = (planes.strides, planes.sizes);
        let (count, stride) = (along.count, along.num as usize);
        // A window may be far larger than the row: only these elements are inside the row for at least one window.
        let steps = |distance: i64| (distance.max(0) + along.step - 1) / along.step;
        let kernel = (along.end - along.start - 1) / along.step + 1;
        let used = steps(-along.start - (count as i64 - 1) * along.num)..kernel.min(steps(width as i64 - along.start));
        let mut o = 0;
        for &(d0, dn) in &td.of {
            for &(h0, hn) in &th.of {
                // SAFETY: there is room for each result.
                let best = unsafe { std::slice::from_raw_parts_mut(to.add(o), count) };
                best.fill(T::LOWEST);
                for (position, &(w0, _)) in zip(&mut positions[..], &tw.of) {
                    *position = ((d0 * height + h0) * width + w0) as i32;
                }
                for d in (0..dn).map(|d| d0 + d * td.step) {
                    for h in (0..hn).map(|h| h0 + h * th.step) {
                        for k in used.clone() {
                            look_up(k as usize, count);
                            let offset = along.start + k * along.step;
                            // The windows for which this element is inside the row.
                            let first = (-offset).max(0) as usize;
                            let (first, end) = (first.div_ceil(stride), (width as i64 - offset).max(0) as usize);
                            let end = end.div_ceil(stride).min(count);
                            if first >= end {
                                continue;
                            }
                            let position = ((d * height + h) * width) as i64 + offset;
                            let row = Compared {
                                // SAFETY: the elements from the first window's on are in the row.
                                from: unsafe {
                                    let start = (first * stride) as i64 + offset;
                                    from.offset(d as isize * sd + h as isize * sh + start as isize)
                                },
                                position: (position + (first * stride) as i64) as i32,
                                best: &mut best[first..end],
                                positions: &mut positions[first..end],
                            };
                            match stride {
                                1 => row.compare(1),
                                2 => row.compare(2),
                                stride => row.compare(stride),
                            }
                        }
                    }
                }
                if let Some(at) = at {
                    // SAFETY: there is room for each result's place.
                    let at = unsafe { std::slice::from_raw_parts_mut(at.add(o), count) };
                    for (at, &position) in zip(&mut at[..], &*positions) {
                        *at = i64::from(position);
                    }
                }
                o += count;
            }
        }
    }
}

/// Strided elements of a row, and the largest elements so far.
struct Compared<'a, T> {
    from: *const T,
    position: i32,
    best: &'a mut [T],
    positions: &'a mut [i32],
}

impl<T: Comparable> Compared<'_, T> {
    /// Inlined with a constant stride, so that it is vectorized.
    #[inline(always)]
    fn compare(self, stride: usize) {
        let n = self.best.len();
        let (best, positions) = (&mut self.best[..n], &mut self.positions[..n]);
        for i in 0..n {
            // SAFETY: the row has an element for each of these windows.
            let x = unsafe { self.from.add(i * stride).read() };
            let better = x.beats(best[i]);
            best[i] = if better { x } else { best[i] };
            positions[i] = if better { self.position + (i * stride) as i32 } else { positions[i] };
        }
    }
}

/// Adds each element of `g` at its index into its plane of `out`, which has `size` elements. All are contiguous; `g`
/// and `out` are f32 or f64.
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
            // SAFETY: all are contiguous, and each plane is one thread's; an index outside of the plane is ignored.
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
/// If memory for a table of windows runs out, or there is no kernel for the dtype.
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
    let (planes, n) = (Planes::new(&x), out.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let tables = tables(op, windows)?;
    let each: usize = tables.iter().map(|table| table.of.len()).product();
    let from = Ptr::new(x.first().cast::<T>().cast_mut());
    let to = Ptr::new(out.first().cast::<T>());
    if x.layout.numel() == 0 {
        // All windows consist of padding. There is no input memory to point into.
        // SAFETY: results are contiguous, and there are `n`.
        (0..n).for_each(|o| unsafe { to.get().add(o).write(T::default() / divisor) });
        return Ok(());
    }
    let (tables, width) = (&tables, planes.sizes[2]);
    scratch::check_room::<T>(op, width)?;
    parallel(n / each, (GRAIN / each).max(1), |range| {
        let mut sums = vec![T::default(); width];
        for plane in range {
            // SAFETY: planes are positions of the layout (L2); results are contiguous, and each plane is one thread's.
            unsafe {
                let (from, to) = (from.get().offset(planes.first(plane)).cast_const(), to.get().add(plane * each));
                dispatch(SumPlane { from, planes: &planes, tables, divisor, to, sums: &mut sums });
            }
        }
    });
    Ok(())
}

/// Sums down the columns of a row of windows, and then along the row.
struct SumPlane<'a, T> {
    from: *const T,
    planes: &'a Planes,
    tables: &'a [Table; 3],
    divisor: T,
    to: *mut T,
    sums: &'a mut [T],
}

impl<T> Job for SumPlane<'_, T>
where
    T: Copy + Default + std::ops::Add<Output = T> + std::ops::Div<Output = T>,
{
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let SumPlane { from, planes, tables: [td, th, tw], divisor, to, sums } = self;
        let [sd, sh, sw] = planes.strides;
        let (mut o, mut summed) = (0, None);
        for &(d0, dn) in &td.of {
            for &(h0, hn) in &th.of {
                // Neighbouring windows may have the same rows.
                if summed != Some((d0, dn, h0, hn)) {
                    summed = Some((d0, dn, h0, hn));
                    sums.fill(T::default());
                    for d in (0..dn).map(|d| d0 + d * td.step) {
                        for h in (0..hn).map(|h| h0 + h * th.step) {
                            look_up(h, sums.len());
                            // SAFETY: windows are inside the plane.
                            unsafe {
                                let row = from.offset(d as isize * sd + h as isize * sh);
                                if sw == 1 {
                                    let row = std::slice::from_raw_parts(row, sums.len());
                                    zip(&mut sums[..], row).for_each(|(sum, &x)| *sum = *sum + x);
                                } else {
                                    let each = sums.iter_mut().enumerate();
                                    each.for_each(|(w, sum)| *sum = *sum + row.offset(w as isize * sw).read());
                                }
                            }
                        }
                    }
                }
                for &(w0, wn) in &tw.of {
                    let sum = match wn {
                        1 => sums[w0],
                        _ => (0..wn).fold(T::default(), |sum, w| sum + sums[w0 + w * tw.step]),
                    };
                    // SAFETY: there is room for each result.
                    unsafe { to.add(o).write(sum / divisor) };
                    o += 1;
                }
            }
        }
    }
}
