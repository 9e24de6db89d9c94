//! Products of a gathered operand with the weight: forward, and the gradient of the input.

use super::source::{Boxes, Copy, Operand};
use super::tiles::{Panels, Space, Tiles, each_place};
use super::{BLOCK, COPIED, Float, PARTS, RESULTS, SHARED, WIDE};
use crate::backend::cpu::linalg::gemm::{GRAIN, Matrix, Start, pack_transposed as transposed};
use crate::backend::cpu::runtime::threads::{self, Ptr, parallel, try_parallel};
use crate::backend::spec::Phase;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::memory::scratch;
use crate::{DType, Result};
use std::ops::Range;

/// A contiguous weight.
pub(super) struct Weight {
    ptr: *const u8,
    dtype: DType,
}

// SAFETY: a pointer is only a number; the weight is only read.
unsafe impl Sync for Weight {}

impl Weight {
    pub(super) fn new(op: &'static str, view: View<'_>) -> Result<Weight> {
        if !view.layout.is_contiguous() {
            bail!(Backend, op, "weight must be contiguous");
        }
        Ok(Weight { ptr: view.first(), dtype: view.dtype })
    }

    /// `n` elements.
    ///
    /// # Safety
    /// The weight has them.
    pub(super) unsafe fn load<T: Float>(&self, at: usize, stride: usize, to: *mut T, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { T::load(self.dtype, self.ptr.add(at * self.dtype.size()), stride as isize, to, n) }
    }
}

/// How a weight is read: the strides to the next inner channel and the next column.
#[derive(Clone, Copy)]
pub(super) struct WeightSteps<'a> {
    pub(super) of: &'a Weight,
    pub(super) inner: usize,
    pub(super) column: usize,
    pub(super) kernel: [usize; 3],
}

/// A contiguous result of five dimensions.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) ptr: *mut u8,
    pub(super) dtype: DType,
    pub(super) channels: usize,
    pub(super) sizes: [usize; 3],
}

// SAFETY: a pointer is only a number; threads write to disjoint results.
unsafe impl Sync for Target {}

impl Target {
    pub(super) fn new(out: &mut ViewMut<'_>) -> Target {
        let shape = out.layout.shape();
        Target { ptr: out.first(), dtype: out.dtype, channels: shape[1], sizes: [shape[2], shape[3], shape[4]] }
    }

    /// The number of elements of a channel.
    pub(super) fn positions(&self) -> usize {
        self.sizes.iter().product()
    }

    pub(super) fn at(&self, n: usize, c: usize, [d, h, w]: [usize; 3]) -> *mut u8 {
        let [_, sh, sw] = self.sizes;
        let at = (n * self.channels + c) * self.positions() + (d * sh + h) * sw + w;
        self.ptr.wrapping_add(at * self.dtype.size())
    }
}

/// Sums of products of a gathered operand `[batch, groups · inner, ..]` with a weight: results `[batch, groups · columns, ..]`.
pub(super) struct Gather<'a, T> {
    pub(super) op: &'static str,
    pub(super) from: Operand,
    pub(super) batch: usize,
    pub(super) groups: usize,
    pub(super) inner: usize,
    pub(super) columns: usize,
    pub(super) phases: [&'a Phase; 3],
    pub(super) weight: WeightSteps<'a>,
    /// The number of elements of the weight per group.
    pub(super) group: usize,
    pub(super) bias: Option<*const T>,
    pub(super) to: Target,
}

// SAFETY: pointers are only numbers; the bias is only read.
unsafe impl<T> Sync for Gather<'_, T> {}

impl<T: Float> Gather<'_, T> {
    pub(super) fn taps(&self) -> usize {
        self.phases.iter().map(|phase| phase.taps.len()).product()
    }

    /// The flat indices of the taps in the kernel.
    pub(super) fn elements(&self) -> Result<Vec<usize>> {
        let mut all = scratch::with_room(self.op, self.taps())?;
        let [_, h_size, w_size] = self.weight.kernel;
        for d in &self.phases[0].taps {
            for h in &self.phases[1].taps {
                all.extend(self.phases[2].taps.iter().map(|w| (d.at * h_size + h.at) * w_size + w.at));
            }
        }
        Ok(all)
    }

    pub(super) fn sizes(&self) -> [usize; 4] {
        [self.batch, self.phases[0].count, self.phases[1].count, self.phases[2].count]
    }

    pub(super) fn run(&self) -> Result<()> {
        if self.columns < WIDE {
            return self.lines();
        }
        let kernels = T::conv_kernels();
        let (taps, boxes) = (self.taps(), Boxes::new(self.sizes(), RESULTS));
        let copy = Copy::new(self.phases, boxes.each, false);
        let width = self.columns.next_multiple_of(kernels.lanes);
        // The number of inner channels in a block.
        let most = (BLOCK / taps).min(COPIED / copy.channel().max(1)).clamp(1, self.inner.max(1));
        let block = self.inner.max(1).div_ceil(self.inner.max(1).div_ceil(most));
        let offsets = copy.offsets(self.op, self.phases, block)?;
        let panels = Panels::new(kernels, self.columns);
        let mut packed = self.packed(&panels, block)?;
        let packed = Ptr::new(packed.part(0));
        let whole = self.groups * boxes.count();
        // With few boxes, the columns are split as well.
        let splits = if whole >= PARTS { 1 } else { PARTS.div_ceil(whole).min(panels.count) };
        let work = boxes.most() * self.inner * taps * width / splits;
        let results = boxes.most();
        let mut bias = self.padded_bias(width)?;
        let bias = bias.as_mut().map(|bias| Ptr::new(bias.part(0)));
        // If several parts of the columns read a box, it is copied once in advance; else a block at a time.
        let shared = if splits > 1 { self.copied(&copy, &boxes)? } else { None };
        let shared = shared.map(|mut space| (Ptr::new(space.part(0)), space));
        let room = if shared.is_some() { 0 } else { block.saturating_mul(copy.channel()) };
        try_parallel(whole * splits, (GRAIN / work.max(1)).max(1), |range| {
            let mut space = Space::<T>::new(self.op, &[room, results * width])?;
            let (own_copy, sums) = (space.part(0), space.part(1));
            let mut positions: Vec<isize> = scratch::with_room(self.op, results)?;
            for item in range {
                let (at, split) = (item / splits, item % splits);
                let (group, within) = (at / boxes.count(), boxes.at(at % boxes.count()));
                let some = split * panels.count / splits..(split + 1) * panels.count / splits;
                positions.clear();
                positions.extend(each_place(&within).map(|position| copy.position(position)));
                for first in (0..self.inner).step_by(block) {
                    let channels = first..self.inner.min(first + block);
                    let k = channels.len() * taps;
                    let b = packed.get().wrapping_add(group * self.inner * taps * width + first * taps * width);
                    // SAFETY: the copy has room for a block of channels and holds all that the results of the box read, by the
                    // table; the packed weight has `k` rows for this block, the sums a row for each result.
                    unsafe {
                        let source = match &shared {
                            Some((all, _)) => all.get().add((at * self.inner + first) * copy.channel()),
                            None => {
                                let own = group * self.inner;
                                copy.fill(&self.from, own + channels.start..own + channels.end, &within, own_copy);
                                own_copy
                            }
                        };
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
                                rows: &positions,
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

    /// The copies of all boxes, with all inner channels, unless they are large.
    fn copied(&self, copy: &Copy, boxes: &Boxes) -> Result<Option<Space<T>>> {
        let whole = self.groups * boxes.count();
        let size = whole.saturating_mul(self.inner).saturating_mul(copy.channel());
        if size > SHARED {
            return Ok(None);
        }
        let mut space = Space::<T>::new(self.op, &[size])?;
        let to = Ptr::new(space.part(0));
        parallel(whole * self.inner, (threads::GRAIN / copy.channel().max(1)).max(1), |range| {
            for item in range {
                let (at, c) = (item / self.inner, item % self.inner);
                let channel = at / boxes.count() * self.inner + c;
                // SAFETY: there is room for every channel of every box, and each is one thread's.
                unsafe {
                    let to = to.get().add(item * copy.channel());
                    copy.fill(&self.from, channel..channel + 1, &boxes.at(at % boxes.count()), to);
                }
            }
        });
        Ok(Some(space))
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

    /// The weight packed for the tiles: for each group and block of inner channels, panel by panel, rows of the panel's
    /// columns.
    fn packed(&self, panels: &Panels, block: usize) -> Result<Space<T>> {
        let (taps, elements) = (self.taps(), self.elements()?);
        let kernel: usize = self.weight.kernel.iter().product();
        let rows = self.inner * taps;
        let mut space = Space::<T>::new(self.op, &[self.groups.saturating_mul(rows).saturating_mul(panels.width)])?;
        let to = Ptr::new(space.part(0));
        let blocks = self.inner.div_ceil(block);
        let plain = self.weight.of.dtype == T::DTYPE;
        // The elements of a column are contiguous and in the required order.
        let in_rows = self.weight.inner == kernel && taps == kernel && plain;
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
                        if plain {
                            // Some elements of the kernel only, or channels that are not contiguous.
                            for (i, c) in channels.clone().enumerate() {
                                let from = self.weight.of.ptr.cast::<T>().add(from(columns.start, c));
                                for (tap, &at) in elements.iter().enumerate() {
                                    let to = to.add((i * taps + tap) * padded);
                                    for j in 0..columns.len() {
                                        to.add(j).write(from.add(at + j * self.weight.column).read());
                                    }
                                }
                            }
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

    /// Writes the results of a box: `sums` has a row of `width` columns for each.
    ///
    /// # Safety
    /// `sums` has these rows, and no other thread accesses these results.
    pub(super) unsafe fn write(
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
        // Rows without a gap between them are merged into one.
        let joined = side_by_side && hp.every == 1 && w.len() == self.to.sizes[2];
        let (rows, run) = if joined { (1, h.len() * w.len()) } else { (h.len(), w.len()) };
        let mut line = [T::ZERO; 64];
        let mut from = sums;
        for n in batch.clone() {
            for y in d.clone() {
                for z in 0..rows {
                    let position = [(0, y), (1, h.start + z), (2, w.start)]
                        .map(|(dim, i)| self.phases[dim].first + i * self.phases[dim].every);
                    let to = |column: usize| self.to.at(n, group * self.columns + column, position);
                    // SAFETY: the caller's promise.
                    unsafe {
                        if side_by_side {
                            let from = Matrix { ptr: from.add(columns.start), row: 1, col: width as isize };
                            transposed(from, columns.len(), run, to(columns.start).cast::<T>(), self.to.positions());
                        } else if self.to.dtype == T::DTYPE {
                            for column in columns.clone() {
                                let to = to(column).cast::<T>();
                                for i in 0..run {
                                    to.add(i * wp.every).write(from.add(i * width + column).read());
                                }
                            }
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
