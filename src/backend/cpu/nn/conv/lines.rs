//! Convolutions whose results have few channels, such as depthwise ones: the lanes of vectors are neighbours in a row.

use super::gather::Gather;
use super::kernel::{DOTS, Dots, Line};
use super::source::{Boxes, Copy};
use super::tiles::Space;
use super::weight_gradient::WeightGradient;
use super::{COPIED, Float};
use crate::Result;
use crate::backend::cpu::linalg::gemm::GRAIN;
use crate::backend::cpu::runtime::threads::{Ptr, try_parallel};
use crate::backend::spec::Conv;
use std::ops::Range;

/// The number of results in a box.
const RESULTS: usize = if cfg!(debug_assertions) { 24 } else { 4096 };

impl<T: Float> Gather<'_, T> {
    pub(super) fn lines(&self) -> Result<()> {
        let taps = self.taps();
        let [_, d, h, w] = self.sizes();
        let boxes = Boxes::new([1, d, h, w], RESULTS.min(COPIED / self.inner.max(1)).max(64));
        let copy = Copy::new(self.phases, boxes.each, true);
        let offsets = copy.offsets(self.op, self.phases, self.inner)?;
        let (elements, k) = (self.elements()?, self.inner * taps);
        let kernel: usize = self.weight.kernel.iter().product();
        let channels = self.groups * self.columns;
        // The weights of each result channel, contiguous.
        let mut factors = Space::<T>::new(self.op, &[channels.saturating_mul(k), kernel])?;
        let (packed, element) = (factors.part(0), factors.part(1));
        for channel in 0..channels {
            let (group, column) = (channel / self.columns, channel % self.columns);
            for c in 0..self.inner {
                let from = group * self.group + column * self.weight.column + c * self.weight.inner;
                // SAFETY: the weight has a kernel for each pair of channels; there is room for its elements.
                unsafe {
                    self.weight.of.load(from, 1, element, kernel);
                    for (tap, &at) in elements.iter().enumerate() {
                        packed.add(channel * k + c * taps + tap).write(element.add(at).read());
                    }
                }
            }
        }
        let packed = Ptr::new(packed);
        let plain = self.to.dtype == T::DTYPE && self.phases[2].every == 1;
        let room = if plain { 0 } else { boxes.most() };
        let items = self.batch * self.groups * boxes.count();
        let work = (boxes.most() * k * self.columns).max(1);
        try_parallel(items, (GRAIN / work).max(1), |range| {
            let mut space = Space::<T>::new(self.op, &[self.inner.saturating_mul(copy.channel()), room])?;
            let (source, line) = (space.part(0), space.part(1));
            for item in range {
                let (n, group) = (item / boxes.count() / self.groups, item / boxes.count() % self.groups);
                let [_, d, h, w] = boxes.at(item % boxes.count());
                let within = [n..n + 1, d.clone(), h.clone(), w.clone()];
                let own = group * self.inner;
                // SAFETY: the copy has room for all inner channels of a group.
                unsafe { copy.fill(&self.from, own..own + self.inner, &within, source) };
                for column in 0..self.columns {
                    let channel = group * self.columns + column;
                    for (i, y) in d.clone().enumerate() {
                        let position = |z: usize| {
                            [(0, y), (1, z), (2, w.start)]
                                .map(|(dim, i)| self.phases[dim].first + i * self.phases[dim].every)
                        };
                        let step = self.phases[1].every * self.to.sizes[2];
                        // SAFETY: the copy holds all that the results of the box read; there is room for them, and no
                        // other thread writes them.
                        unsafe {
                            let start = self.bias.map_or(T::ZERO, |bias| bias.add(channel).read());
                            let direct = self.to.at(n, channel, position(h.start));
                            let (out, out_row) = if plain { (direct.cast::<T>(), step) } else { (line, w.len()) };
                            (T::conv_kernels().line)(&Line {
                                k,
                                factors: packed.get().add(channel * k),
                                offsets: offsets.as_ptr(),
                                a: source.offset(copy.position([0, i, 0, 0])),
                                a_row: copy.row_step(),
                                rows: h.len(),
                                len: w.len(),
                                out,
                                out_row,
                                start,
                            });
                            if !plain {
                                for (j, z) in h.clone().enumerate() {
                                    let (from, to) = (line.add(j * w.len()), self.to.at(n, channel, position(z)));
                                    T::store(self.to.dtype, from, to, self.phases[2].every as isize, w.len());
                                }
                            }
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

impl<T: Float> WeightGradient<'_, T> {
    pub(super) fn dots(&self) -> Result<()> {
        let Conv { batch, groups, c_in, c_out, output: [d, h, w], .. } = *self.conv;
        let (taps, lanes) = (self.taps(), T::conv_kernels().lanes);
        let boxes = Boxes::new([batch, d, h, w], RESULTS.min(d * h * w));
        let copy = Copy::new(self.phases, boxes.each, true);
        let offsets = copy.offsets(self.op, self.phases, 1)?;
        let work = taps * c_out * batch * d * h * w;
        try_parallel(groups * c_in, (GRAIN / work.max(1)).max(1), |range| {
            let size = c_out.saturating_mul(taps).saturating_mul(lanes);
            let mut space = Space::<T>::new(self.op, &[copy.channel(), boxes.each[2] * boxes.each[3], size])?;
            let (source, line, sums) = (space.part(0), space.part(1), space.part(2));
            for item in range {
                let (group, c) = (item / c_in, item % c_in);
                // SAFETY: the copy has room for a channel, and holds all that the kernel reads in the box; the sums have
                // as many lanes for each element of the kernel and each column.
                unsafe {
                    sums.write_bytes(0, c_out * taps * lanes);
                    for at in 0..boxes.count() {
                        let within = boxes.at(at);
                        copy.fill(&self.from, item..item + 1, &within, source);
                        for column in 0..c_out {
                            let own = sums.add(column * taps * lanes);
                            self.add(group * c_out + column, &within, (&copy, &offsets, source), line, own);
                        }
                    }
                    for column in 0..c_out {
                        for tap in 0..taps {
                            let own = sums.add((column * taps + tap) * lanes);
                            let sum = (0..lanes).fold(T::ZERO, |sum, lane| sum + own.add(lane).read());
                            let at = ((group * c_out + column) * c_in + c) * taps + tap;
                            T::store(self.dtype, &raw const sum, self.to.add(at * self.dtype.size()), 1, 1);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Adds the products of a box with one channel of the gradient, which is copied to `line` unless its rows can be read.
    ///
    /// # Safety
    /// The copy is the box's; the line has room for all rows, and there are sums for all offsets.
    unsafe fn add(
        &self,
        channel: usize,
        [batch, d, h, w]: &[Range<usize>; 4],
        (copy, offsets, source): (&Copy, &[isize], *const T),
        line: *mut T,
        sums: *mut T,
    ) {
        let (g, kernels) = (&self.g, T::conv_kernels());
        let direct = usize::try_from(g.strides[1]).ok().filter(|_| g.dtype == T::DTYPE && g.strides[2] == 1);
        for (i, n) in batch.clone().enumerate() {
            for (j, y) in d.clone().enumerate() {
                // SAFETY: the caller's promise.
                unsafe {
                    let first = g.at(n, channel, [y, h.start, w.start]).cast::<T>();
                    let (b, b_row) = direct.map_or((line.cast_const(), w.len()), |row| (first, row));
                    if direct.is_none() {
                        for (at, z) in h.clone().enumerate() {
                            let from = g.at(n, channel, [y, z, w.start]);
                            T::load(g.dtype, from, g.strides[2], line.add(at * w.len()), w.len());
                        }
                    }
                    for (at, some) in offsets.chunks(DOTS).enumerate() {
                        kernels.dots[some.len() - 1](&Dots {
                            offsets: some.as_ptr(),
                            a: source.offset(copy.position([i, j, 0, 0])),
                            a_row: copy.row_step(),
                            b,
                            b_row,
                            rows: h.len(),
                            len: w.len(),
                            sums: sums.add(at * DOTS * kernels.lanes),
                        });
                    }
                }
            }
        }
    }
}
