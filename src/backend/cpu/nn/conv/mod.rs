//! Convolutions: forward, the gradient of the input and that of the weight.
//!
//! The first two are sums of products of a gathered operand with the weight. A box of results is computed at a time: what it
//! reads is copied with zeros around it, and tiles of results by channels are computed from the copy by a table of offsets, so that
//! no patch is ever written down. With a stride the gradient of the input falls into kinds of places, each of which has
//! stride 1 and a part of the kernel. The gradient of the weight has the same tiles, of the kernel's elements by channels, and adds
//! up over the boxes in order.
//!
//! Lanes of vectors are channels of the result. Where there are few, as in depthwise convolutions, they are neighbours
//! in a row of it (`lines.rs`). Boxes and blocks depend on sizes alone, and so do the bits of all results.

mod kernel;
mod lines;
mod source;

use crate::backend::cpu::elementwise::copy::fill;
use crate::backend::cpu::linalg::gemm::{GRAIN, Matrix, Number, Start, pack_transposed as transposed};
use crate::backend::cpu::linalg::matmul;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::scratch;
use crate::backend::cpu::runtime::threads::{Ptr, parallel, try_parallel};
use crate::backend::spec::{Conv, Phase};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::storage::Storage;
use crate::{DType, Device, Result, Scalar, Shape};
use kernel::{HasKernels, Kernels, ROWS, Tile};
use source::{Boxes, Copy, Operand};
use std::ops::Range;

/// Elements of the inner dimension in a block.
const BLOCK: usize = 512;
/// Results of a box, forward.
const RESULTS: usize = if cfg!(debug_assertions) { 24 } else { 256 };
/// Places of a box over which the gradient of the weight is summed.
const SUMMED: usize = if cfg!(debug_assertions) { 24 } else { 512 };
/// Elements of a copy that stay in the second cache.
const COPIED: usize = 1 << 17;
/// Parts that a problem is cut into, if there are not as many by themselves.
const PARTS: usize = 8;
/// Channels of the result from which on they are the lanes of vectors.
const WIDE: usize = 8;

/// A type that convolutions are computed in.
trait Float: Number + Compute + HasKernels {}

impl Float for f32 {}
impl Float for f64 {}

/// `out = x * w`, plus `bias` (contiguous, of the compute dtype, one for each channel). All operands have five dimensions, as
/// [`Conv`] says; `w` and `out` are contiguous.
///
/// # Errors
/// If there is no memory for copies of parts of the operands.
pub(crate) fn forward(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => forward_in::<f64>(op, x, w, bias, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => forward_in::<f32>(op, x, w, bias, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// As [`forward`], from the output's side: what `g` there means for the input.
///
/// # Errors
/// As [`forward`].
pub(crate) fn input_gradient(
    op: &'static str,
    g: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => input_gradient_in::<f64>(op, g, w, bias, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => input_gradient_in::<f32>(op, g, w, bias, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// What `g` at the output means for the weight.
///
/// # Errors
/// As [`forward`].
pub(crate) fn weight_gradient(
    op: &'static str,
    x: View<'_>,
    g: View<'_>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => weight_gradient_in::<f64>(op, x, g, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => weight_gradient_in::<f32>(op, x, g, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// Refuses kernels so large that the tables of their elements have no room.
fn check_kernel(op: &'static str, conv: &Conv) -> Result<()> {
    scratch::check_room::<[usize; 8]>(op, conv.kernel.iter().fold(0, |sum: usize, &k| sum.saturating_add(k)))
}

fn forward_in<T: Float>(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if conv.is_pointwise() && pointwise::<T>(op, x, w, bias, conv, false, out)? {
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_output(conv, dim));
    let weight = Weight::new(op, w)?;
    let kernel: usize = conv.kernel.iter().product();
    Gather::<T> {
        op,
        from: Operand::new(&x),
        batch: conv.batch,
        groups: conv.groups,
        inner: conv.c_in,
        columns: conv.c_out,
        phases: [&phases[0], &phases[1], &phases[2]],
        weight: WeightSteps { of: &weight, inner: kernel, column: conv.c_in * kernel, kernel: conv.kernel },
        group: conv.c_out * conv.c_in * kernel,
        bias: bias.map(|bias| bias.first().cast()),
        to: Target::new(out),
    }
    .run()
}

fn input_gradient_in<T: Float>(
    op: &'static str,
    g: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if conv.is_pointwise() && pointwise::<T>(op, g, w, bias, conv, true, out)? {
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_input(conv, dim));
    // Places that no output has read.
    let read = |dim: usize| phases[dim].iter().map(|phase| phase.count).sum::<usize>() == conv.input[dim];
    if !(0..3).all(read) || g.layout.numel() == 0 {
        fill_channels::<T>(bias.map(|bias| bias.first().cast()), conv, out);
    }
    if g.layout.numel() == 0 {
        return Ok(());
    }
    let weight = Weight::new(op, w)?;
    let kernel: usize = conv.kernel.iter().product();
    for d in &phases[0] {
        for h in &phases[1] {
            for w in &phases[2] {
                Gather::<T> {
                    op,
                    from: Operand::new(&g),
                    batch: conv.batch,
                    groups: conv.groups,
                    inner: conv.c_out,
                    columns: conv.c_in,
                    phases: [d, h, w],
                    weight: WeightSteps { of: &weight, inner: conv.c_in * kernel, column: kernel, kernel: conv.kernel },
                    group: conv.c_out * conv.c_in * kernel,
                    bias: bias.map(|bias| bias.first().cast()),
                    to: Target::new(out),
                }
                .run()?;
            }
        }
    }
    Ok(())
}

/// The bias of each channel everywhere, or 0.
fn fill_channels<T: Float>(bias: Option<*const T>, conv: &Conv, out: &mut ViewMut<'_>) {
    let Some(bias) = bias else { return fill(out, Scalar::F64(0.0)) };
    let (to, channels, len) = (Target::new(out), conv.groups * conv.c_in, conv.input.iter().product::<usize>());
    for at in 0..conv.batch * channels {
        for i in 0..len {
            // SAFETY: the output is contiguous and has these elements; the bias has one for each channel.
            unsafe { T::store(to.dtype, bias.add(at % channels), to.ptr.add((at * len + i) * to.dtype.size()), 1, 1) };
        }
    }
}

/// A kernel of one element: products of matrices, in which both operands are read where they are. False, and nothing has happened, if
/// they do not lie so.
fn pointwise<T: Float>(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    transpose: bool,
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    let Conv { batch, groups, c_in, c_out, output, .. } = *conv;
    let (places, (rows, inner)) = (output.iter().product(), if transpose { (c_in, c_out) } else { (c_out, c_in) });
    if x.dtype != T::DTYPE || w.dtype != T::DTYPE || groups * rows < WIDE {
        return Ok(false);
    }
    let columns: Shape = [batch, groups, inner, places].into();
    let Some(columns) = x.layout.reshape(&columns) else { return Ok(false) };
    let matrices: Shape = [1, groups, c_out, c_in].into();
    let Some(mut matrices) = w.layout.reshape(&matrices) else { return Ok(false) };
    if transpose {
        matrices = matrices.transpose(op, 2, 3)?;
    }
    let matrices = matrices.broadcast_to(&[batch, groups, rows, inner].into());
    if inner == 0 {
        return Ok(false);
    }
    matmul::matmul(op, View { layout: &matrices, ..w }, View { layout: &columns, ..x }, out, None)?;
    if let Some(bias) = bias {
        let (to, bias) = (Ptr::new(out.first().cast::<T>()), Ptr::new(bias.first().cast::<T>().cast_mut()));
        let channels = groups * rows;
        parallel(batch * channels, (GRAIN / places.max(1)).max(1), |range| {
            for at in range {
                // SAFETY: the output is contiguous; each channel is one thread's, and the bias has an element for each.
                unsafe {
                    let add = bias.get().add(at % channels).read();
                    let row = std::slice::from_raw_parts_mut(to.get().add(at * places), places);
                    row.iter_mut().for_each(|x| *x = *x + add);
                }
            }
        });
    }
    Ok(true)
}

/// A contiguous weight.
struct Weight {
    ptr: *const u8,
    dtype: DType,
}

// SAFETY: a pointer is only a number; the weight is only read.
unsafe impl Sync for Weight {}

impl Weight {
    fn new(op: &'static str, view: View<'_>) -> Result<Weight> {
        if !view.layout.is_contiguous() {
            bail!(Backend, op, "the weight must be contiguous");
        }
        Ok(Weight { ptr: view.first(), dtype: view.dtype })
    }

    /// `n` elements.
    ///
    /// # Safety
    /// The weight has them.
    unsafe fn load<T: Float>(&self, at: usize, stride: usize, to: *mut T, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { T::load(self.dtype, self.ptr.add(at * self.dtype.size()), stride as isize, to, n) }
    }
}

/// How a weight is read: the steps to the next inner channel and the next column.
#[derive(Clone, Copy)]
struct WeightSteps<'a> {
    of: &'a Weight,
    inner: usize,
    column: usize,
    kernel: [usize; 3],
}

/// A contiguous result of five dimensions.
#[derive(Clone, Copy)]
struct Target {
    ptr: *mut u8,
    dtype: DType,
    channels: usize,
    sizes: [usize; 3],
}

// SAFETY: a pointer is only a number; threads write to disjoint results.
unsafe impl Sync for Target {}

impl Target {
    fn new(out: &mut ViewMut<'_>) -> Target {
        let shape = out.layout.shape();
        Target { ptr: out.first(), dtype: out.dtype, channels: shape[1], sizes: [shape[2], shape[3], shape[4]] }
    }

    /// Elements of a channel.
    fn places(&self) -> usize {
        self.sizes.iter().product()
    }

    fn at(&self, n: usize, c: usize, [d, h, w]: [usize; 3]) -> *mut u8 {
        let [_, sh, sw] = self.sizes;
        let at = (n * self.channels + c) * self.places() + (d * sh + h) * sw + w;
        self.ptr.wrapping_add(at * self.dtype.size())
    }
}

/// Sums of products of a gathered operand `[batch, groups · inner, ..]` with a weight: results `[batch, groups · columns, ..]`.
struct Gather<'a, T> {
    op: &'static str,
    from: Operand,
    batch: usize,
    groups: usize,
    inner: usize,
    columns: usize,
    phases: [&'a Phase; 3],
    weight: WeightSteps<'a>,
    /// Elements of the weight that belong to a group.
    group: usize,
    bias: Option<*const T>,
    to: Target,
}

// SAFETY: pointers are only numbers; the bias is only read.
unsafe impl<T> Sync for Gather<'_, T> {}

impl<T: Float> Gather<'_, T> {
    fn taps(&self) -> usize {
        self.phases.iter().map(|phase| phase.taps.len()).product()
    }

    /// The numbers of the taps' elements in the kernel.
    fn elements(&self) -> Result<Vec<usize>> {
        let mut all = scratch::with_room(self.op, self.taps())?;
        let [_, h_size, w_size] = self.weight.kernel;
        for d in &self.phases[0].taps {
            for h in &self.phases[1].taps {
                all.extend(self.phases[2].taps.iter().map(|w| (d.at * h_size + h.at) * w_size + w.at));
            }
        }
        Ok(all)
    }

    fn sizes(&self) -> [usize; 4] {
        [self.batch, self.phases[0].count, self.phases[1].count, self.phases[2].count]
    }

    fn run(&self) -> Result<()> {
        if self.columns < WIDE {
            return self.lines();
        }
        let kernels = T::conv_kernels();
        let (taps, boxes) = (self.taps(), Boxes::new(self.sizes(), RESULTS));
        let copy = Copy::new(self.phases, boxes.each, false);
        let width = self.columns.next_multiple_of(kernels.lanes);
        // Inner channels of a block.
        let most = (BLOCK / taps).min(COPIED / copy.channel().max(1)).clamp(1, self.inner.max(1));
        let block = self.inner.max(1).div_ceil(self.inner.max(1).div_ceil(most));
        let offsets = copy.offsets(self.op, self.phases, block)?;
        let panels = Panels::new(kernels, self.columns);
        let mut packed = self.packed(&panels, block)?;
        let packed = Ptr::new(packed.part(0));
        let whole = self.groups * boxes.count();
        // Boxes that are few are computed by columns, too.
        let splits = if whole >= PARTS { 1 } else { PARTS.div_ceil(whole).min(panels.count) };
        let work = boxes.most() * self.inner * taps * width / splits;
        let results = boxes.most();
        let mut bias = self.padded_bias(width)?;
        let bias = bias.as_mut().map(|bias| Ptr::new(bias.part(0)));
        try_parallel(whole * splits, (GRAIN / work.max(1)).max(1), |range| {
            let mut space = Space::<T>::new(self.op, &[block.saturating_mul(copy.channel()), results * width])?;
            let (source, sums) = (space.part(0), space.part(1));
            let mut places: Vec<isize> = scratch::with_room(self.op, results)?;
            for item in range {
                let (at, split) = (item / splits, item % splits);
                let (group, within) = (at / boxes.count(), boxes.at(at % boxes.count()));
                let some = split * panels.count / splits..(split + 1) * panels.count / splits;
                places.clear();
                places.extend(each_place(&within).map(|place| copy.place(place)));
                for first in (0..self.inner).step_by(block) {
                    let channels = first..self.inner.min(first + block);
                    let k = channels.len() * taps;
                    let b = packed.get().wrapping_add(group * self.inner * taps * width + first * taps * width);
                    // SAFETY: the copy has room for a block of channels and holds all that the results of the box read, by the
                    // table; the packed weight has `k` rows for this block, the sums a row for each result.
                    unsafe {
                        let own = group * self.inner;
                        copy.fill(&self.from, own + channels.start..own + channels.end, &within, source);
                        for panel in some.clone() {
                            let (column, vectors) = panels.at(panel);
                            let start = match bias {
                                _ if first > 0 => Start::Out,
                                Some(bias) => Start::Row(bias.get().add(group * width + column).cast_const()),
                                None => Start::Zero,
                            };
                            let tiles = Tiles {
                                kernels,
                                source,
                                rows: &places,
                                inner: &offsets[..k],
                                b: b.add(k * column),
                                vectors,
                                out: sums.add(column),
                                width,
                            };
                            tiles.run(start);
                        }
                    }
                }
                let columns = panels.columns(some, self.columns);
                // SAFETY: the sums are those of the box.
                unsafe { self.write(group, &within, columns, sums, width) };
            }
            Ok(())
        })
    }

    /// The bias of each group, with zeros up to whole vectors.
    fn padded_bias(&self, width: usize) -> Result<Option<Space<T>>> {
        let Some(bias) = self.bias else { return Ok(None) };
        let mut space = Space::<T>::new(self.op, &[self.groups * width])?;
        for at in 0..self.groups * width {
            let (group, column) = (at / width, at % width);
            // SAFETY: there is room for all groups; the bias has an element for each column of each.
            unsafe {
                let value =
                    if column < self.columns { bias.add(group * self.columns + column).read() } else { T::ZERO };
                space.part(0).add(at).write(value);
            }
        }
        Ok(Some(space))
    }

    /// The weight as the tiles read it: for each group and block of inner channels, panel by panel, rows of the panel's columns.
    fn packed(&self, panels: &Panels, block: usize) -> Result<Space<T>> {
        let (taps, elements) = (self.taps(), self.elements()?);
        let kernel: usize = self.weight.kernel.iter().product();
        let rows = self.inner * taps;
        let mut space = Space::<T>::new(self.op, &[self.groups.saturating_mul(rows).saturating_mul(panels.width)])?;
        let to = Ptr::new(space.part(0));
        let blocks = self.inner.div_ceil(block);
        // The elements of a column lie side by side, in the order in which they are needed.
        let in_rows = self.weight.inner == kernel && taps == kernel && self.weight.of.dtype == T::DTYPE;
        let each = block * taps * panels.width;
        try_parallel(self.groups * blocks, (GRAIN / each.max(1)).max(1), |range| {
            let mut element: Vec<T> = scratch::filled(self.op, T::ZERO, kernel)?;
            for at in range {
                let (group, first) = (at / blocks, at % blocks * block);
                let channels = first..self.inner.min(first + block);
                let k = channels.len() * taps;
                let base = to.get().wrapping_add((group * rows + first * taps) * panels.width);
                for panel in 0..panels.count {
                    let (column, vectors) = panels.at(panel);
                    let (padded, columns) = (vectors * panels.lanes, panels.columns(panel..panel + 1, self.columns));
                    let to = base.wrapping_add(column * k);
                    // SAFETY: the packed weight has `k` rows for each panel of a block; the weight has all elements read.
                    unsafe {
                        for p in 0..k {
                            to.add(p * padded + columns.len()).write_bytes(0, padded - columns.len());
                        }
                        let from = |column: usize, c: usize| {
                            group * self.group + column * self.weight.column + c * self.weight.inner
                        };
                        if in_rows {
                            let ptr = self.weight.of.ptr.cast::<T>().add(from(columns.start, first));
                            let from = Matrix { ptr, row: 1, col: self.weight.column as isize };
                            transposed(from, k, columns.len(), to, padded);
                            continue;
                        }
                        for (i, c) in channels.clone().enumerate() {
                            for (j, column) in columns.clone().enumerate() {
                                self.weight.of.load(from(column, c), 1, element.as_mut_ptr(), kernel);
                                for (tap, &at) in elements.iter().enumerate() {
                                    to.add((i * taps + tap) * padded + j).write(element[at]);
                                }
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(space)
    }

    /// Writes the results of a box: `sums` has a row for each, and in it `width` columns.
    ///
    /// # Safety
    /// It has them, and these results are nobody else's.
    unsafe fn write(
        &self,
        group: usize,
        within: &[Range<usize>; 4],
        columns: Range<usize>,
        sums: *const T,
        width: usize,
    ) {
        let [batch, d, h, w] = within;
        let [_, hp, wp] = self.phases;
        let side_by_side = wp.every == 1 && self.to.dtype == T::DTYPE;
        // Rows that follow each other without a gap are one.
        let joined = side_by_side && hp.every == 1 && w.len() == self.to.sizes[2];
        let (rows, run) = if joined { (1, h.len() * w.len()) } else { (h.len(), w.len()) };
        let mut line = [T::ZERO; 64];
        let mut from = sums;
        for n in batch.clone() {
            for y in d.clone() {
                for z in 0..rows {
                    let place = [(0, y), (1, h.start + z), (2, w.start)]
                        .map(|(dim, i)| self.phases[dim].first + i * self.phases[dim].every);
                    let to = |column: usize| self.to.at(n, group * self.columns + column, place);
                    // SAFETY: the caller's promise.
                    unsafe {
                        if side_by_side {
                            let from = Matrix { ptr: from.add(columns.start), row: 1, col: width as isize };
                            transposed(from, columns.len(), run, to(columns.start).cast::<T>(), self.to.places());
                        } else {
                            for column in columns.clone() {
                                for first in (0..run).step_by(line.len()) {
                                    let some = &mut line[..(run - first).min(64)];
                                    for (i, x) in some.iter_mut().enumerate() {
                                        *x = from.add((first + i) * width + column).read();
                                    }
                                    let to = to(column).add(first * wp.every * self.to.dtype.size());
                                    T::store(self.to.dtype, some.as_ptr(), to, wp.every as isize, some.len());
                                }
                            }
                        }
                    }
                    from = from.wrapping_add(run * width);
                }
            }
        }
    }
}

/// The places of a box, from its first on.
fn each_place([n, d, h, w]: &[Range<usize>; 4]) -> impl Iterator<Item = [usize; 4]> {
    let [n, d, h, w] = [n.len(), d.len(), h.len(), w.len()];
    (0..n * d * h * w).map(move |i| [i / w / h / d, i / w / h % d, i / w % h, i % w])
}

/// Columns as panels of vectors, as even as can be.
struct Panels {
    lanes: usize,
    vectors: usize,
    count: usize,
    width: usize,
}

impl Panels {
    fn new<T>(kernels: &Kernels<T>, columns: usize) -> Panels {
        let (lanes, vectors) = (kernels.lanes, columns.div_ceil(kernels.lanes));
        Panels { lanes, vectors, count: vectors.div_ceil(kernels.vectors), width: vectors * lanes }
    }

    /// The first column of a panel, and its vectors.
    fn at(&self, panel: usize) -> (usize, usize) {
        let first = |at: usize| at * self.vectors / self.count;
        (first(panel) * self.lanes, first(panel + 1) - first(panel))
    }

    /// The columns of some panels that there are.
    fn columns(&self, panels: Range<usize>, columns: usize) -> Range<usize> {
        let first = |at: usize| at * self.vectors / self.count * self.lanes;
        first(panels.start)..first(panels.end).min(columns)
    }
}

/// Memory that a computation needs meanwhile.
struct Space<T> {
    storage: Storage,
    starts: [usize; 3],
    _elements: std::marker::PhantomData<T>,
}

impl<T> Space<T> {
    /// Up to three parts of so many elements each.
    fn new(op: &'static str, sizes: &[usize]) -> Result<Space<T>> {
        let (mut starts, mut all) = ([0; 3], 0_usize);
        for (start, size) in starts.iter_mut().zip(sizes) {
            *start = all;
            // Whole lines of the cache.
            all = all.saturating_add(size.saturating_add(15) / 16 * 16);
        }
        let storage = Storage::new(op, Device::Cpu, all.saturating_mul(size_of::<T>()).min(isize::MAX as usize))?;
        Ok(Space { storage, starts, _elements: std::marker::PhantomData })
    }

    fn part(&mut self, at: usize) -> *mut T {
        let first = self.storage.get_mut().unwrap_or(std::ptr::null_mut()).cast::<T>();
        first.wrapping_add(self.starts[at])
    }
}

/// Tiles of `out[i][j] = start + Σ_p source[rows[i] + inner[p]] · b[p][j]`, for one panel of columns.
struct Tiles<'a, T: 'static> {
    kernels: &'static Kernels<T>,
    source: *const T,
    rows: &'a [isize],
    inner: &'a [isize],
    b: *const T,
    vectors: usize,
    out: *mut T,
    width: usize,
}

impl<T: Float> Tiles<'_, T> {
    /// # Safety
    /// There are these elements of the source, `b` has as many rows as `inner`, and `out` one for each row.
    unsafe fn run(&self, start: Start<T>) {
        let count = self.rows.len();
        let height = count.div_ceil(count.div_ceil(ROWS).max(1)).max(1);
        for first in (0..count).step_by(height) {
            let rows = &self.rows[first..count.min(first + height)];
            let mut a = [self.source; ROWS];
            for (a, &row) in a.iter_mut().zip(rows) {
                *a = self.source.wrapping_offset(row);
            }
            let tile = Tile {
                k: self.inner.len(),
                a,
                offsets: self.inner.as_ptr(),
                b: self.b,
                b_row: self.vectors * self.kernels.lanes,
                out: self.out.wrapping_add(first * self.width),
                width: self.width,
                start,
            };
            // SAFETY: the caller's promise; the kernels are for this CPU.
            unsafe { self.kernels.tiles[rows.len() - 1][self.vectors - 1](&tile) };
        }
    }
}

fn weight_gradient_in<T: Float>(
    op: &'static str,
    x: View<'_>,
    g: View<'_>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if g.layout.numel() == 0 {
        fill(out, Scalar::F64(0.0));
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_output(conv, dim));
    let phases = [&phases[0], &phases[1], &phases[2]];
    let (from, g) = (Operand::new(&x), Operand::new(&g));
    let (to, kind) = (out.first(), std::marker::PhantomData);
    let gradient = WeightGradient::<T> { op, conv, phases, from, g, to, dtype: out.dtype, kind };
    if conv.c_out < WIDE { gradient.dots() } else { gradient.run() }
}

/// The sums over all places of products of the output's gradient with what the kernel's elements have read.
struct WeightGradient<'a, T> {
    op: &'static str,
    conv: &'a Conv,
    phases: [&'a Phase; 3],
    from: Operand,
    g: Operand,
    /// Contiguous.
    to: *mut u8,
    dtype: DType,
    kind: std::marker::PhantomData<T>,
}

// SAFETY: pointers are only numbers; threads write to disjoint results.
unsafe impl<T> Sync for WeightGradient<'_, T> {}

impl<T: Float> WeightGradient<'_, T> {
    fn taps(&self) -> usize {
        self.conv.kernel.iter().product()
    }

    fn run(&self) -> Result<()> {
        let Conv { batch, groups, c_in, c_out, output: [d, h, w], .. } = *self.conv;
        let (kernels, taps) = (T::conv_kernels(), self.taps());
        let boxes = Boxes::new([batch, d, h, w], SUMMED);
        let copy = Copy::new(self.phases, boxes.each, false);
        let panels = Panels::new(kernels, c_out);
        let most = (BLOCK / taps).min(COPIED / copy.channel().max(1)).clamp(1, c_in);
        let block = c_in.div_ceil(c_in.div_ceil(most));
        let offsets = copy.offsets(self.op, self.phases, block)?;
        // Items are blocks of channels by blocks of panels; where they are few, by chunks of boxes, too, whose sums are added up.
        let (blocks, wide) = (c_in.div_ceil(block), panels.count.div_ceil(4));
        let items = groups * blocks * wide;
        let chunks = if items >= PARTS { 1 } else { PARTS.div_ceil(items).min(boxes.count()) };
        let all = groups * c_in * taps * panels.width;
        let mut sums = Space::<T>::new(self.op, &[all.saturating_mul(chunks)])?;
        let to = Ptr::new(sums.part(0));
        let work = block * taps * panels.width / wide * boxes.most() * (boxes.count() / chunks);
        try_parallel(items * chunks, (GRAIN / work.max(1)).max(1), |range| {
            let mut space = Space::<T>::new(self.op, &[block * copy.channel(), boxes.most() * panels.width])?;
            let (source, packed) = (space.part(0), space.part(1));
            let mut places: Vec<isize> = scratch::with_room(self.op, boxes.most())?;
            for item in range {
                let (chunk, item) = (item % chunks, item / chunks);
                let (group, at, part) = (item / wide / blocks, item / wide % blocks, item % wide);
                let channels = at * block..c_in.min((at + 1) * block);
                let some = part * panels.count / wide..(part + 1) * panels.count / wide;
                let rows = channels.len() * taps;
                let first_row = (group * c_in + channels.start) * taps;
                let to = to.get().wrapping_add(chunk * all + first_row * panels.width);
                let own = group * c_in;
                for (number, at) in (chunk * boxes.count() / chunks..(chunk + 1) * boxes.count() / chunks).enumerate() {
                    let within = boxes.at(at);
                    places.clear();
                    places.extend(each_place(&within).map(|place| copy.place(place)));
                    // SAFETY: the copy has room for a block of channels and holds all that the kernel reads in the box; the
                    // packed gradient has a row for each place, the sums one for each element of the kernel.
                    unsafe {
                        copy.fill(&self.from, own + channels.start..own + channels.end, &within, source);
                        for panel in some.clone() {
                            let (column, vectors) = panels.at(panel);
                            let columns = panels.columns(panel..panel + 1, c_out);
                            let b = packed.add(column * places.len());
                            self.pack(group, &within, columns, b, vectors * panels.lanes);
                            let tiles = Tiles {
                                kernels,
                                source,
                                rows: &offsets[..rows],
                                inner: &places,
                                b,
                                vectors,
                                out: to.add(column),
                                width: panels.width,
                            };
                            tiles.run(if number == 0 { Start::Zero } else { Start::Out });
                        }
                    }
                }
            }
            Ok(())
        })?;
        for chunk in 1..chunks {
            parallel(all, crate::backend::cpu::runtime::threads::GRAIN, |range| {
                for i in range {
                    // SAFETY: each chunk has as many sums, and each of them is one thread's.
                    unsafe { to.get().add(i).write(to.get().add(i).read() + to.get().add(chunk * all + i).read()) };
                }
            });
        }
        self.write(to.get(), panels.width)
    }

    /// The gradient of a box as rows of columns: one for each place.
    ///
    /// # Safety
    /// The gradient has these columns; `to` has room for `padded` in each row.
    unsafe fn pack(&self, group: usize, within: &[Range<usize>; 4], columns: Range<usize>, to: *mut T, padded: usize) {
        let [batch, d, h, w] = within;
        let g = &self.g;
        let plain = g.dtype == T::DTYPE && g.strides[2] == 1;
        let joined = g.strides[1] == g.strides[2] * g.sizes[2] as isize && w.len() == g.sizes[2];
        let (rows, run) = if joined { (1, h.len() * w.len()) } else { (h.len(), w.len()) };
        let mut line = [T::ZERO; 64];
        let mut to = to;
        for n in batch.clone() {
            for y in d.clone() {
                for z in 0..rows {
                    let from = |column: usize| g.at(n, group * self.conv.c_out + column, [y, h.start + z, w.start]);
                    // SAFETY: the caller's promise.
                    unsafe {
                        if columns.len() < padded {
                            for i in 0..run {
                                to.add(i * padded + columns.len()).write_bytes(0, padded - columns.len());
                            }
                        }
                        if plain {
                            let from = Matrix { ptr: from(columns.start).cast::<T>(), row: 1, col: g.channel };
                            transposed(from, run, columns.len(), to, padded);
                        } else {
                            for (j, column) in columns.clone().enumerate() {
                                for first in (0..run).step_by(line.len()) {
                                    let some = &mut line[..(run - first).min(64)];
                                    let from =
                                        from(column).offset(first as isize * g.strides[2] * g.dtype.size() as isize);
                                    T::load(g.dtype, from, g.strides[2], some.as_mut_ptr(), some.len());
                                    for (i, &x) in some.iter().enumerate() {
                                        to.add((first + i) * padded + j).write(x);
                                    }
                                }
                            }
                        }
                        to = to.add(run * padded);
                    }
                }
            }
        }
    }

    /// From a row for each element of the kernel to the weight's order.
    fn write(&self, sums: *const T, width: usize) -> Result<()> {
        let Conv { groups, c_in, c_out, .. } = *self.conv;
        let rows = c_in * self.taps();
        let plain = self.dtype == T::DTYPE;
        let mut space = Space::<T>::new(self.op, &[if plain { 0 } else { c_out * rows }])?;
        for group in 0..groups {
            let from = Matrix { ptr: sums.wrapping_add(group * rows * width), row: 1, col: width as isize };
            let to = self.to.wrapping_add(group * c_out * rows * self.dtype.size());
            let line = if plain { to.cast::<T>() } else { space.part(0) };
            // SAFETY: there are as many sums, and as many elements of the weight.
            unsafe {
                transposed(from, c_out, rows, line, rows);
                if !plain {
                    T::store(self.dtype, line, to, 1, c_out * rows);
                }
            }
        }
        Ok(())
    }
}
