//! Parts of an operand, copied so that a kernel reads them by a table of offsets: with zeros around them, in the compute
//! dtype, and however the operand lies in memory.

use crate::Result;
use crate::backend::View;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::scratch;
use crate::backend::spec::Phase;
use crate::dtype::DType;
use std::ops::Range;

/// Where the elements of a tensor of `[batch, channels, ..]` with three more dimensions lie.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub ptr: *const u8,
    pub dtype: DType,
    pub batch: isize,
    pub channel: isize,
    pub strides: [isize; 3],
    pub sizes: [usize; 3],
}

// SAFETY: a pointer is only a number; the places that read through it argue for the accesses.
unsafe impl Sync for Operand {}

impl Operand {
    pub fn new(view: &View<'_>) -> Operand {
        let (shape, strides) = (view.layout.shape(), view.layout.strides());
        Operand {
            ptr: view.first(),
            dtype: view.dtype,
            batch: strides[0],
            channel: strides[1],
            strides: [strides[2], strides[3], strides[4]],
            sizes: [shape[2], shape[3], shape[4]],
        }
    }

    /// The address of an element, which is valid if there is one.
    #[inline(always)]
    pub fn at(&self, n: usize, c: usize, [d, h, w]: [usize; 3]) -> *const u8 {
        let [sd, sh, sw] = self.strides;
        let at =
            n as isize * self.batch + c as isize * self.channel + d as isize * sd + h as isize * sh + w as isize * sw;
        self.ptr.wrapping_offset(at * self.dtype.size() as isize)
    }
}

/// `[batch, three dimensions]` cut into boxes, all of one size but for the last ones.
#[derive(Clone, Copy)]
pub(super) struct Boxes {
    pub sizes: [usize; 4],
    pub each: [usize; 4],
    counts: [usize; 4],
}

impl Boxes {
    /// Boxes of about `target` elements, whole rows first.
    pub fn new(sizes: [usize; 4], target: usize) -> Boxes {
        let (mut each, mut left) = ([1; 4], target.max(1));
        for dim in (0..4).rev() {
            let most = sizes[dim].min(left).max(1);
            // As even as can be.
            each[dim] = sizes[dim].max(1).div_ceil(sizes[dim].max(1).div_ceil(most));
            left = (left / each[dim]).max(1);
        }
        Boxes { sizes, each, counts: std::array::from_fn(|dim| sizes[dim].div_ceil(each[dim])) }
    }

    pub fn count(&self) -> usize {
        self.counts.iter().product()
    }

    pub fn at(&self, mut index: usize) -> [Range<usize>; 4] {
        let mut all = [0..0, 0..0, 0..0, 0..0];
        for dim in (0..4).rev() {
            let start = index % self.counts[dim] * self.each[dim];
            index /= self.counts[dim];
            all[dim] = start..self.sizes[dim].min(start + self.each[dim]);
        }
        all
    }

    /// The most elements of a box.
    pub fn most(&self) -> usize {
        self.each.iter().product()
    }
}

/// How one dimension of a box is copied.
#[derive(Clone, Copy)]
struct Axis {
    /// The step between results in the source, and in the copy.
    step: usize,
    kept: usize,
    /// The first place that a tap reads, and how many places the taps of one result span.
    low: isize,
    span: usize,
    /// The places of the copy.
    extent: usize,
}

impl Axis {
    fn new(phase: &Phase, results: usize) -> Axis {
        let offsets = || phase.taps.iter().map(|tap| tap.offset);
        let (low, high) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        let span = (high - low) as usize + 1;
        // What lies between the windows of results that are further apart than that is left out.
        let kept = phase.step.min(span);
        Axis { step: phase.step, kept, low, span, extent: (results.max(1) - 1) * kept + span }
    }

    /// Where the copy's place `at`, of results from `first` on, is in the source.
    #[inline(always)]
    fn source(&self, first: usize, at: usize) -> isize {
        let inside = if self.kept == self.step { at } else { at / self.span * self.step + at % self.span };
        (first * self.step + inside) as isize + self.low
    }

    /// How many places the copy for so many results has.
    fn used(&self, results: usize) -> usize {
        (results - 1) * self.kept + self.span
    }
}

/// Copies of boxes: `[channels, batch, ..]`, whose last dimension is cut into `lanes` by the remainder of places, so that
/// results that are neighbours read neighbours whatever the step.
pub(super) struct Copy {
    axes: [Axis; 3],
    batch: usize,
    /// The pieces that a row is cut into, and the places of one.
    pieces: usize,
    piece: usize,
}

impl Copy {
    /// For boxes of at most `each` results. With `apart` rows are cut.
    pub fn new(phases: [&Phase; 3], each: [usize; 4], apart: bool) -> Copy {
        let axes: [Axis; 3] = std::array::from_fn(|dim| Axis::new(phases[dim], each[dim + 1]));
        let pieces = if apart { axes[2].kept.max(1) } else { 1 };
        Copy { axes, batch: each[0], pieces, piece: axes[2].extent.div_ceil(pieces) }
    }

    fn row(&self) -> usize {
        self.pieces * self.piece
    }

    /// The elements of one channel.
    pub fn channel(&self) -> usize {
        let rows = self.batch.saturating_mul(self.axes[0].extent).saturating_mul(self.axes[1].extent);
        rows.saturating_mul(self.row())
    }

    /// The step from a row of results to the next.
    pub fn row_step(&self) -> usize {
        self.axes[1].kept * self.row()
    }

    /// Where a result of a box begins to read.
    pub fn place(&self, [n, d, h, w]: [usize; 4]) -> isize {
        let [a, b, c] = self.axes;
        let rows = (n * a.extent + d * a.kept) * b.extent + h * b.kept;
        let w = if self.pieces == 1 { w * c.kept } else { w };
        (rows * self.row() + w) as isize
    }

    /// How far from there each tap of so many channels reads, channel by channel.
    pub fn offsets(&self, op: &'static str, phases: [&Phase; 3], channels: usize) -> Result<Vec<isize>> {
        let taps: usize = phases.iter().map(|phase| phase.taps.len()).product();
        let mut all = scratch::with_room(op, channels.saturating_mul(taps))?;
        for c in 0..channels {
            for d in &phases[0].taps {
                for h in &phases[1].taps {
                    for w in &phases[2].taps {
                        let [d, h, w] = [(d, 0), (h, 1), (w, 2)].map(|(tap, dim)| tap.offset - self.axes[dim].low);
                        let w = w as usize % self.pieces * self.piece + w as usize / self.pieces;
                        let rows = d as usize * self.axes[1].extent + h as usize;
                        all.push((c * self.channel() + rows * self.row() + w) as isize);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Copies what the results of a box read of some channels of a group.
    ///
    /// # Safety
    /// `to` has room for as many channels; the operand has them.
    pub unsafe fn fill<T: Compute>(
        &self,
        from: &Operand,
        channels: Range<usize>,
        [batch, d, h, w]: &[Range<usize>; 4],
        to: *mut T,
    ) {
        let [a, b, c] = self.axes;
        let used = [a.used(d.len()), b.used(h.len()), c.used(w.len())];
        let row = self.row();
        // The places of a row that are in the source, where it is copied as a whole.
        let first = c.source(w.start, 0);
        let zeros = (-first).clamp(0, used[2] as isize) as usize;
        let end = (from.sizes[2] as isize - first).clamp(zeros as isize, used[2] as isize) as usize;
        let plain = T::DTYPE == from.dtype && from.strides[2] == 1;
        for (at, channel) in channels.enumerate() {
            for n in 0..batch.len() {
                for i in 0..used[0] {
                    let y = a.source(d.start, i);
                    for j in 0..used[1] {
                        let z = b.source(h.start, j);
                        let place = at * self.channel() + ((n * a.extent + i) * b.extent + j) * row;
                        let inside = |x: isize, dim: usize| x >= 0 && x < from.sizes[dim] as isize;
                        // SAFETY: the caller's promise; places are copied only where the source has them.
                        unsafe {
                            let to = to.add(place);
                            if !inside(y, 0) || !inside(z, 1) {
                                to.write_bytes(0, row);
                                continue;
                            }
                            let of = |x: usize| from.at(batch.start + n, channel, [y as usize, z as usize, x]);
                            if self.pieces > 1 || c.kept != c.step {
                                self.scattered(from, w.start, used[2], to, of);
                                continue;
                            }
                            to.write_bytes(0, zeros);
                            let start = of((first + zeros as isize) as usize);
                            if plain {
                                std::ptr::copy_nonoverlapping(start.cast::<T>(), to.add(zeros), end - zeros);
                            } else {
                                T::load(from.dtype, start, from.strides[2], to.add(zeros), end - zeros);
                            }
                            to.add(end).write_bytes(0, row - end);
                        }
                    }
                }
            }
        }
    }

    /// A row of which places lie apart in the source or in the copy.
    ///
    /// # Safety
    /// As [`fill`](Self::fill).
    unsafe fn scattered<T: Compute>(
        &self,
        from: &Operand,
        first: usize,
        used: usize,
        to: *mut T,
        of: impl Fn(usize) -> *const u8,
    ) {
        let c = self.axes[2];
        // SAFETY: the caller's promise; places are copied only where the source has them.
        unsafe {
            to.write_bytes(0, self.row());
            // All places of one remainder are one strided run, if nothing between them is left out.
            if c.kept == c.step {
                let low = c.source(first, 0);
                for piece in 0..self.pieces.min(used) {
                    let count = (used - piece).div_ceil(self.pieces);
                    let source = |i: usize| low + (piece + i * self.pieces) as isize;
                    let begin = (0..count).find(|&i| source(i) >= 0).unwrap_or(count);
                    let end = (begin..count).find(|&i| source(i) >= from.sizes[2] as isize).unwrap_or(count);
                    if begin < end {
                        let stride = from.strides[2] * self.pieces as isize;
                        let start = of(source(begin) as usize);
                        T::load(from.dtype, start, stride, to.add(piece * self.piece + begin), end - begin);
                    }
                }
                return;
            }
            for at in 0..used {
                let source = c.source(first, at);
                if source >= 0 && source < from.sizes[2] as isize {
                    let place = at % self.pieces * self.piece + at / self.pieces;
                    T::load(from.dtype, of(source as usize), 1, to.add(place), 1);
                }
            }
        }
    }
}
