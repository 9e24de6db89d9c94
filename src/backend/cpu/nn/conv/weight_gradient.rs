//! The gradient of the weight.

use super::source::{Boxes, Copy, Operand};
use super::tiles::{Panels, Space, Tiles, each_place};
use super::{BLOCK, COPIED, Float, PARTS, SUMMED};
use crate::backend::cpu::linalg::gemm::{GRAIN, Matrix, Start, pack_transposed as transposed};
use crate::backend::cpu::runtime::threads::{self, Ptr, parallel, try_parallel};
use crate::backend::spec::{Conv, Phase};
use crate::memory::scratch;
use crate::{DType, Result};
use std::ops::Range;

/// The number of columns that are transposed to the weight's order together.
const SIDE: usize = 16;

/// The gradient of the weight: the sums over all positions of the output's cotangent times the element that a tap
/// reads.
pub(super) struct WeightGradient<'a, T> {
    pub(super) op: &'static str,
    pub(super) conv: &'a Conv,
    pub(super) phases: [&'a Phase; 3],
    pub(super) from: Operand,
    pub(super) g: Operand,
    /// Contiguous.
    pub(super) to: *mut u8,
    pub(super) dtype: DType,
    pub(super) kind: std::marker::PhantomData<T>,
}

// SAFETY: pointers are only numbers; threads write to disjoint results.
unsafe impl<T> Sync for WeightGradient<'_, T> {}

impl<T: Float> WeightGradient<'_, T> {
    pub(super) fn taps(&self) -> usize {
        self.conv.kernel.iter().product()
    }

    pub(super) fn run(&self) -> Result<()> {
        let Conv { batch, groups, c_in, c_out, output: [d, h, w], .. } = *self.conv;
        let (kernels, taps) = (T::conv_kernels(), self.taps());
        let boxes = Boxes::new([batch, d, h, w], SUMMED);
        let copy = Copy::new(self.phases, boxes.each, false);
        let panels = Panels::new(kernels, c_out);
        let most = (BLOCK / taps).min(COPIED / copy.channel().max(1)).clamp(1, c_in);
        let block = c_in.div_ceil(c_in.div_ceil(most));
        let offsets = copy.offsets(self.op, self.phases, block)?;
        // Items are blocks of channels by blocks of panels. If these are few, also by chunks of boxes, whose sums are
        // added up.
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
            let mut positions: Vec<isize> = scratch::with_room(self.op, boxes.most())?;
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
                    positions.clear();
                    positions.extend(each_place(&within).map(|position| copy.position(position)));
                    // SAFETY: the copy has room for a block of channels and holds all that the kernel reads in the box; the
                    // packed gradient has a row for each place, the sums one for each element of the kernel.
                    unsafe {
                        copy.fill(&self.from, own + channels.start..own + channels.end, &within, source);
                        for panel in some.clone() {
                            let (column, vectors) = panels.at(panel);
                            let columns = panels.columns(panel..panel + 1, c_out);
                            let b = packed.add(column * positions.len());
                            self.pack(group, &within, columns, b, vectors * panels.lanes);
                            let tiles = Tiles {
                                kernels,
                                source,
                                rows: &offsets[..rows],
                                inner: &positions,
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
            parallel(all, threads::GRAIN, |range| {
                for i in range {
                    // SAFETY: each chunk has these sums, and each of them is one thread's.
                    unsafe { to.get().add(i).write(to.get().add(i).read() + to.get().add(chunk * all + i).read()) };
                }
            });
        }
        self.write(to.get(), panels.width)
    }

    /// Packs the gradient of a box: one row of columns for each position.
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

    /// Writes the sums, which have a row for each kernel element, in the weight's order.
    fn write(&self, sums: *const T, width: usize) -> Result<()> {
        let Conv { groups, c_in, c_out, .. } = *self.conv;
        let rows = c_in * self.taps();
        let plain = self.dtype == T::DTYPE;
        let sums = Ptr::new(sums.cast_mut());
        // A few columns of a group at a time.
        let parts = c_out.div_ceil(SIDE);
        try_parallel(groups * parts, (threads::GRAIN / (SIDE * rows).max(1)).max(1), |range| {
            let mut space = Space::<T>::new(self.op, &[if plain { 0 } else { SIDE * rows }])?;
            for item in range {
                let (group, first) = (item / parts, item % parts * SIDE);
                let columns = SIDE.min(c_out - first);
                let ptr = sums.get().wrapping_add(group * rows * width + first).cast_const();
                let to = self.to.wrapping_add((group * c_out + first) * rows * self.dtype.size());
                let line = if plain { to.cast::<T>() } else { space.part(0) };
                // SAFETY: the sums and the elements of the weight exist, and each element is one thread's.
                unsafe {
                    transposed(Matrix { ptr, row: 1, col: width as isize }, columns, rows, line, rows);
                    if !plain {
                        T::store(self.dtype, line, to, 1, columns * rows);
                    }
                }
            }
            Ok(())
        })
    }
}
