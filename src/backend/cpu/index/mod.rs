//! Kernels that go by index: reading and adding at positions that are themselves data, and triangles of matrices.
//!
//! Results do not depend on the number of threads: every element that is added to is one thread's alone, which adds in
//! the order of the source.

pub(crate) mod sort;

use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Shape, Walk};
use crate::tensor::unravel;
use crate::{DType, Device, Element, Result};
use std::ops::Range;

/// Indices into a dimension, made only by [`Indices::check`].
///
/// Invariant: the elements are `i64` and lie in `0..size`, as long as the view is borrowed.
pub(crate) struct Indices<'a> {
    pub view: View<'a>,
    pub size: usize,
}

impl<'a> Indices<'a> {
    /// Looks at every index before anything is done with one. Those on a GPU are looked at by the kernel that uses them:
    /// to wait for the answer would cost more than the work.
    pub fn check(op: &'static str, view: View<'a>, size: usize) -> Result<Indices<'a>> {
        if view.dtype != DType::I64 {
            bail!(DType, op, "indices must be integers, not {}", view.dtype);
        }
        if view.device() != Device::Cpu {
            return Ok(Indices { view, size });
        }
        let walk = Walk::new(view.layout.shape(), [view.layout]);
        let [step] = walk.inner();
        let start = view.ptr().cast::<i64>();
        let (mut outside, mut done) = (None, 0);
        walk.runs(0, walk.numel(), |[at], len| {
            // An index that is repeated along the run is looked at once.
            let different = if step == 0 { 1 } else { len as isize };
            for i in 0..different {
                // SAFETY: the walk yields positions of the layout, inside the storage (L2), and the elements are i64.
                let index = unsafe { start.offset(at + i * step).read() };
                // As an unsigned number a negative one is too large as well.
                if index as u64 >= size as u64 {
                    outside.get_or_insert((index, done + i as usize));
                }
            }
            done += len;
        });
        match outside {
            Some((index, number)) => {
                let place = unravel(number, view.layout.shape());
                bail!(Index, op, "index {index} at {place:?} is out of range for a dimension of size {size}")
            }
            None => Ok(Indices { view, size }),
        }
    }
}

/// The elements of `layout` at index 0 of `dim`, repeated along it; the other dimensions cut to those of `shape`.
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

/// `out[positions[j]] = source[j]`, in the order of `j`; positions are counted in row-major order. All are contiguous, and
/// the positions `i64`.
pub(crate) fn put(op: &'static str, out: &mut ViewMut<'_>, positions: View<'_>, source: View<'_>) -> Result<()> {
    match out.dtype.size() {
        1 => put_as::<u8>(op, out, positions, source),
        2 => put_as::<u16>(op, out, positions, source),
        4 => put_as::<u32>(op, out, positions, source),
        _ => put_as::<u64>(op, out, positions, source),
    }
}

fn put_as<W: Copy>(op: &'static str, out: &mut ViewMut<'_>, positions: View<'_>, source: View<'_>) -> Result<()> {
    let numel = out.layout.numel();
    let (Some(positions), true) = (positions.as_slice::<i64>(), source.layout.is_contiguous()) else {
        bail!(Backend, op, "positions and values are not contiguous");
    };
    if source.layout.numel() != positions.len() || source.dtype != out.dtype || !out.layout.is_contiguous() {
        bail!(Backend, op, "{} values for {} positions", source.layout.numel(), positions.len());
    }
    if let Some(at) = positions.iter().find(|&&at| at as u64 >= numel as u64) {
        bail!(Index, op, "position {at} is out of range for {numel} elements");
    }
    let (from, to) = (source.first().cast::<W>(), out.first().cast::<W>());
    for (j, &at) in positions.iter().enumerate() {
        // SAFETY: both are contiguous, of elements of this width, `j` is below the number of values and `at` (checked) below
        // that of the elements (L2); the output is not shared.
        unsafe { to.add(at as usize).write(from.add(j).read()) };
    }
    Ok(())
}

/// Numbers that can be added up: the compute dtypes.
trait Sum: Element {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($t:ty: |$a:ident, $b:ident| $sum:expr;)+) => {$(
        impl Sum for $t {
            #[inline(always)]
            fn plus(self, other: $t) -> $t { let ($a, $b) = (self, other); $sum }
        }
    )+};
}
sums! {
    f32: |a, b| a + b;
    f64: |a, b| a + b;
    i64: |a, b| a.wrapping_add(b);
    u64: |a, b| a.wrapping_add(b);
}

/// `out[.., indices[.., j, ..], ..] += source[.., j, ..]` along `dim`. The indices broadcast to the shape of `source`,
/// which may be shorter than `out` in the other dimensions, and were checked against a size not above that of `out` in
/// `dim`.
/// `out` and `source` have the same dtype, one of the compute dtypes.
pub(crate) fn index_add(
    op: &'static str,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    match out.dtype {
        dtype if dtype != source.dtype => bail!(Backend, op, "{} cannot be added to {dtype}", source.dtype),
        DType::F32 => index_add_as::<f32>(out, dim, indices, source),
        DType::F64 => index_add_as::<f64>(out, dim, indices, source),
        DType::I64 => index_add_as::<i64>(out, dim, indices, source),
        DType::U64 => index_add_as::<u64>(out, dim, indices, source),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// What the loops of `index_add` need: lanes are the positions of all dimensions but `dim`, in which source, indices
/// and target are walked side by side; the other numbers are the steps along `dim`.
struct Adding<C> {
    walk: Walk<3>,
    source: Ptr<C>,
    index: Ptr<i64>,
    index_first: isize,
    out: Ptr<C>,
    count: isize,
    source_along: isize,
    index_along: isize,
    out_along: isize,
}

fn index_add_as<C: Sum>(out: &mut ViewMut<'_>, dim: usize, indices: &Indices<'_>, source: View<'_>) -> Result<()> {
    let shape = source.layout.shape();
    if shape.numel() == 0 {
        return Ok(());
    }
    debug_assert!(indices.size <= out.layout.shape()[dim]);
    let first = |layout: &Layout| layout.select("index", dim as isize, 0);
    let index = indices.view.layout.broadcast_to(shape);
    let (index_along, index, from) = (index.strides()[dim], first(&index)?, first(source.layout)?);
    let to = first(&lanes(out.layout, dim, shape)?)?;
    let adding = Adding {
        walk: Walk::new(from.shape(), [&from, &index, &to]),
        source: Ptr::new(source.ptr().cast_mut().cast::<C>()),
        index: Ptr::new(indices.view.ptr().cast_mut().cast::<i64>()),
        index_first: index.offset() as isize,
        out: Ptr::new(out.ptr().cast::<C>()),
        count: shape[dim] as isize,
        source_along: source.layout.strides()[dim],
        index_along,
        out_along: out.layout.strides()[dim],
    };
    let (lanes, count) = (adding.walk.numel(), shape[dim]);
    let same = index.strides().iter().zip(index.shape().iter()).all(|(&stride, &size)| stride == 0 || size == 1);
    if same && lanes >= SHORT {
        // Each index stands for a row. Every thread takes the rows of the target that fall to it, and looks at all
        // indices to find them.
        let shares = num_threads().min(shape.numel().div_ceil(GRAIN));
        parallel(shares, 1, |mine| adding.rows(mine, shares as i64));
    } else {
        parallel(lanes, GRAIN.div_ceil(count).max(64), |mine| adding.lanes(mine));
    }
    Ok(())
}

/// The shortest run for which it pays to go through the lanes once for each index, and not the other way round.
const SHORT: usize = 16;

impl<C: Sum> Adding<C> {
    /// Adds the source's rows whose target is, modulo `shares`, one of `mine`.
    fn rows(&self, mine: Range<usize>, shares: i64) {
        let [source_step, _, out_step] = self.walk.inner();
        for j in 0..self.count {
            // SAFETY: an index at a position of its layout (L2).
            let index = unsafe { self.index.get().offset(self.index_first + j * self.index_along).read() };
            if shares > 1 && !mine.contains(&((index % shares) as usize)) {
                continue;
            }
            self.walk.runs(0, self.walk.numel(), |[from, _, to], len| {
                // SAFETY: the walk yields positions of the layouts at index 0 of `dim`, from which `j` and the index
                // lead to positions that the layouts have too (L2, and the invariant of `Indices`). No other thread
                // writes to this row of the target, which is not shared with the source.
                unsafe {
                    let from = self.source.get().offset(from + j * self.source_along);
                    let to = self.out.get().offset(to + index as isize * self.out_along);
                    add_run(from, source_step, to, out_step, len);
                }
            });
        }
    }

    /// Adds all of the source in the lanes of `mine`.
    fn lanes(&self, mine: Range<usize>) {
        let [source_step, index_step, out_step] = self.walk.inner();
        // SAFETY: `at` are positions of the layouts at index 0 of `dim`, `i` a place in the walk's run there and `j`
        // below the length of `dim`; with the index they lead to positions that the layouts have (L2, and the
        // invariant of `Indices`). No other thread writes in these lanes of the target.
        let add = |[from, index, to]: [isize; 3], i: isize, j: isize| unsafe {
            let index = self.index.get().offset(index + i * index_step + j * self.index_along).read() as isize;
            let from = self.source.get().offset(from + i * source_step + j * self.source_along).read();
            let to = self.out.get().offset(to + i * out_step + index * self.out_along);
            to.write(to.read().plus(from));
        };
        // The first run may be the rest of one; the second tells how long they are.
        let mut longest = 0;
        self.walk.runs(mine.start, mine.end.min(mine.start + 2 * SHORT), |_, len| longest = len.max(longest));
        if longest < SHORT {
            self.walk.runs(mine.start, mine.end, |at, len| {
                (0..len as isize).for_each(|i| (0..self.count).for_each(|j| add(at, i, j)));
            });
        } else {
            for j in 0..self.count {
                self.walk.runs(mine.start, mine.end, |at, len| (0..len as isize).for_each(|i| add(at, i, j)));
            }
        }
    }
}

/// Adds `n` numbers to `n` others.
///
/// # Safety
/// `from` and `to` are valid for `n` elements at their steps, and do not overlap.
unsafe fn add_run<C: Sum>(from: *const C, from_step: isize, to: *mut C, to_step: isize, n: usize) {
    struct AddRun<C>(*const C, *mut C, usize);
    impl<C: Sum> Job for AddRun<C> {
        type Output = ();
        #[inline(always)]
        fn run<const FMA: bool>(self) {
            let AddRun(from, to, n) = self;
            for i in 0..n {
                // SAFETY: the contract of `add_run`, with steps of 1.
                unsafe { to.add(i).write(to.add(i).read().plus(from.add(i).read())) };
            }
        }
    }
    if from_step == 1 && to_step == 1 {
        return dispatch(AddRun(from, to, n));
    }
    for i in 0..n as isize {
        // SAFETY: the contract.
        unsafe {
            let to = to.offset(i * to_step);
            to.write(to.read().plus(from.offset(i * from_step).read()));
        }
    }
}

/// Copies of every row of the matrices in `x` the columns that `keep` names, and puts zero in the others. `out` has the
/// shape of `x`, which has a row dimension; the range for a row lies inside its columns.
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

/// All bits zero is zero in every dtype.
fn rows_within_as<W: Copy + Send + Default>(
    x: View<'_>,
    keep: &(impl Fn(usize) -> Range<usize> + Sync),
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let shape = out.layout.shape();
    let [.., rows, columns] = shape[..] else {
        bail!(Shape, "index", "shape {shape:?} has no rows");
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
