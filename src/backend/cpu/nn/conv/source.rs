//! Parts of an operand, copied so that a kernel reads them through a table of offsets: zero-padded, in the compute
//! dtype, and from any strides.

use crate::Result;
use crate::backend::View;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::spec::Phase;
use crate::dtype::DType;
use crate::memory::scratch;
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

// SAFETY: a pointer is only a number; each read through it justifies its access.
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

    /// The address of an element, which is valid if the element exists.
    #[inline(always)]
    pub fn at(&self, n: usize, c: usize, [d, h, w]: [usize; 3]) -> *const u8 {
        let [sd, sh, sw] = self.strides;
        let at =
            n as isize * self.batch + c as isize * self.channel + d as isize * sd + h as isize * sh + w as isize * sw;
        self.ptr.wrapping_offset(at * self.dtype.size() as isize)
    }
}

/// `[batch, three dimensions]` cut into boxes of equal size, except for the last ones.
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
            // As evenly as possible.
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

    /// The largest number of elements of a box.
    pub fn most(&self) -> usize {
        self.each.iter().product()
    }
}

/// How one dimension of a box is copied: only the elements that its results read.
#[derive(Clone, Copy)]
struct Axis {
    /// The step between results in the source, and in the copy.
    step: usize,
    kept: usize,
    /// The step between taps in the source, and in the copy, and how many taps there are.
    spacing: usize,
    pitch: usize,
    taps: usize,
    /// The first position that a tap reads, and the number of positions of the copy that the taps of one result span.
    low: isize,
    span: usize,
    /// The number of positions of the copy.
    extent: usize,
}

impl Axis {
    fn new(phase: &Phase, results: usize) -> Axis {
        let (step, taps) = (phase.step, phase.taps.len().max(1));
        let low = phase.taps.iter().map(|tap| tap.offset).min().unwrap_or(0);
        let spacing = match &phase.taps[..] {
            [a, b, ..] => a.offset.abs_diff(b.offset),
            _ => 1,
        };
        debug_assert!(phase.taps.iter().all(|tap| ((tap.offset - low) as usize).is_multiple_of(spacing)));
        // If taps are further apart than the extent of all results, the gaps are omitted.
        let pitch = spacing.min((results.max(1) - 1).saturating_mul(step).saturating_add(1));
        let span = (taps - 1) * pitch + 1;
        // So are the gaps between the windows of results that are further apart.
        let kept = step.min(span);
        Axis { step, kept, spacing, pitch, taps, low, span, extent: (results.max(1) - 1) * kept + span }
    }

    /// The source position of position `at` of the copy, for results from `first` on.
    #[inline(always)]
    fn source(&self, first: usize, at: usize) -> isize {
        let mut inside = if self.kept == self.step { at } else { at / self.span * self.step + at % self.span };
        if self.pitch != self.spacing {
            inside += (inside / self.pitch).min(self.taps - 1) * (self.spacing - self.pitch);
        }
        (first * self.step + inside) as isize + self.low
    }

    /// Whether neighbours in the copy are neighbours in the source.
    fn is_whole(&self) -> bool {
        self.kept == self.step && self.pitch == self.spacing
    }

    /// The position in the copy that a tap of the first result reads.
    fn tap(&self, offset: isize) -> usize {
        (offset - self.low) as usize / self.spacing * self.pitch
    }

    /// The number of positions of the copy for `results` results.
    fn used(&self, results: usize) -> usize {
        (results - 1) * self.kept + self.span
    }
}

/// Copies of boxes: `[channels, batch, ..]`. The last dimension is split into pieces by position modulo the step, so
/// that neighbouring results read neighbouring elements whatever the step.
pub(super) struct Copy {
    axes: [Axis; 3],
    batch: usize,
    /// The number of pieces that a row is split into, and the positions of one.
    pieces: usize,
    piece: usize,
}

impl Copy {
    /// For boxes of at most `each` results. With `apart`, rows are split into pieces.
    pub fn new(phases: [&Phase; 3], each: [usize; 4], apart: bool) -> Copy {
        let axes: [Axis; 3] = std::array::from_fn(|dim| Axis::new(phases[dim], each[dim + 1]));
        let pieces = if apart { axes[2].kept.max(1) } else { 1 };
        Copy { axes, batch: each[0], pieces, piece: axes[2].extent.div_ceil(pieces) }
    }

    fn row(&self) -> usize {
        self.pieces * self.piece
    }

    /// The number of elements of one channel.
    pub fn channel(&self) -> usize {
        let rows = self.batch.saturating_mul(self.axes[0].extent).saturating_mul(self.axes[1].extent);
        rows.saturating_mul(self.row())
    }

    /// The stride from a row of results to the next.
    pub fn row_step(&self) -> usize {
        self.axes[1].kept * self.row()
    }

    /// The position at which a result of a box starts to read.
    pub fn position(&self, [n, d, h, w]: [usize; 4]) -> isize {
        let [a, b, c] = self.axes;
        let rows = (n * a.extent + d * a.kept) * b.extent + h * b.kept;
        let w = if self.pieces == 1 { w * c.kept } else { w };
        (rows * self.row() + w) as isize
    }

    /// The offsets of the taps from that position, for each of the channels.
    pub fn offsets(&self, op: &'static str, phases: [&Phase; 3], channels: usize) -> Result<Vec<isize>> {
        let taps: usize = phases.iter().map(|phase| phase.taps.len()).product();
        let mut all = scratch::with_room(op, channels.saturating_mul(taps))?;
        for c in 0..channels {
            for d in &phases[0].taps {
                for h in &phases[1].taps {
                    for w in &phases[2].taps {
                        let [d, h, w] = [(d, 0), (h, 1), (w, 2)].map(|(tap, dim)| self.axes[dim].tap(tap.offset));
                        let w = w % self.pieces * self.piece + w / self.pieces;
                        let rows = d * self.axes[1].extent + h;
                        all.push((c * self.channel() + rows * self.row() + w) as isize);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Copies the elements of some channels of a group that the results of a box read.
    ///
    /// # Safety
    /// `to` has room for these channels; the operand has them.
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
        // Short rows are cleared together: a call for each would cost more than the clearing.
        let short = row <= SHORT;
        // Of a long row that is copied whole, only the part outside of the source is cleared.
        let first = c.source(w.start, 0);
        let whole = c.is_whole() && self.pieces == 1;
        let zeros = if whole { (-first).clamp(0, used[2] as isize) as usize } else { row };
        let end = (from.sizes[2] as isize - first).clamp(zeros as isize, used[2].max(zeros) as isize) as usize;
        for (at, channel) in channels.enumerate() {
            let own = to.wrapping_add(at * self.channel());
            if short {
                // SAFETY: the caller's promise.
                unsafe { own.write_bytes(0, batch.len() * a.extent * b.extent * row) };
            }
            for n in 0..batch.len() {
                for i in 0..used[0] {
                    let y = a.source(d.start, i);
                    for j in 0..used[1] {
                        let z = b.source(h.start, j);
                        let inside = |x: isize, dim: usize| x >= 0 && x < from.sizes[dim] as isize;
                        let to = own.wrapping_add(((n * a.extent + i) * b.extent + j) * row);
                        // SAFETY: the caller's promise; places are copied only where the source has them.
                        unsafe {
                            let inside = inside(y, 0) && inside(z, 1);
                            if !short {
                                let (zeros, end) = if inside { (zeros, end) } else { (row, row) };
                                to.write_bytes(0, zeros);
                                to.add(end).write_bytes(0, row - end);
                            }
                            if inside {
                                let start = from.at(batch.start + n, channel, [y as usize, z as usize, 0]);
                                let source = Row { start, dtype: from.dtype, stride: from.strides[2] };
                                self.fill_row(&source, from.sizes[2] as isize, w.start, w.len(), to);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Copies the part of a row that is inside the source to a row of zeros.
    ///
    /// # Safety
    /// As [`fill`](Self::fill).
    #[inline(always)]
    unsafe fn fill_row<T: Compute>(&self, from: &Row, size: isize, first: usize, results: usize, to: *mut T) {
        let c = self.axes[2];
        let (low, used) = (c.source(first, 0), c.used(results));
        let position = |at: usize| at % self.pieces * self.piece + at / self.pieces;
        // Copies `count` positions from `at` on, `step` apart in the source and `apart` in the copy.
        let run = |at: isize, step: usize, count: usize, position: usize, apart: usize| {
            let until = |bound: isize| ((bound - at).max(0) as usize).div_ceil(step).min(count);
            let (begin, end) = (until(0), until(size));
            if begin < end {
                let to = to.wrapping_add(position + begin * apart);
                // SAFETY: these places are in the source, and the caller has room for them.
                unsafe { from.copy(at + (begin * step) as isize, step as isize, to, apart, end - begin) };
            }
        };
        if c.is_whole() {
            // All positions of one remainder are one run.
            for piece in 0..self.pieces.min(used) {
                let count = (used - piece).div_ceil(self.pieces);
                run(low + piece as isize, self.pieces, count, piece * self.piece, 1);
            }
        } else if c.pitch == c.spacing {
            // So are those of all results, for each position of a window.
            let apart = if self.pieces == 1 { c.kept } else { 1 };
            for at in 0..c.span {
                run(low + at as isize, c.step, results, position(at), apart);
            }
        } else if self.pieces == 1 {
            for tap in 0..c.taps {
                let count = if tap + 1 == c.taps { used - tap * c.pitch } else { c.pitch };
                run(low + (tap * c.spacing) as isize, 1, count, tap * c.pitch, 1);
            }
        } else {
            for at in 0..used {
                run(c.source(first, at), 1, 1, position(at), 1);
            }
        }
    }
}

/// The most elements of a row for which a libc call costs more than its work.
const SHORT: usize = 64;

/// A row of the source.
struct Row {
    start: *const u8,
    dtype: DType,
    stride: isize,
}

impl Row {
    /// Copies `n` elements from `at` on, `step` apart, to positions that are `apart`.
    ///
    /// # Safety
    /// The row has these elements, and there is room for them.
    #[inline(always)]
    unsafe fn copy<T: Compute>(&self, at: isize, step: isize, to: *mut T, apart: usize, n: usize) {
        let stride = step * self.stride;
        // SAFETY: the caller's promise.
        unsafe {
            let from = self.start.offset(at * self.stride * self.dtype.size() as isize);
            if self.dtype != T::DTYPE {
                if apart == 1 {
                    return T::load(self.dtype, from, stride, to, n);
                }
                for i in 0..n {
                    let from = from.offset(i as isize * stride * self.dtype.size() as isize);
                    T::load(self.dtype, from, 1, to.add(i * apart), 1);
                }
                return;
            }
            let from = from.cast::<T>();
            if stride != 1 || apart != 1 {
                for i in 0..n {
                    to.add(i * apart).write(from.offset(i as isize * stride).read());
                }
            } else if n > SHORT {
                std::ptr::copy_nonoverlapping(from, to, n);
            } else {
                copy_short(from, to, n);
            }
        }
    }
}

/// Copies few elements without a call.
///
/// # Safety
/// There are `n` elements, and room for them.
#[inline(always)]
unsafe fn copy_short<T>(from: *const T, to: *mut T, n: usize) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at + 8 <= n {
            std::ptr::copy_nonoverlapping(from.add(at), to.add(at), 8);
            at += 8;
        }
        if n & 4 != 0 {
            std::ptr::copy_nonoverlapping(from.add(at), to.add(at), 4);
            at += 4;
        }
        if n & 2 != 0 {
            std::ptr::copy_nonoverlapping(from.add(at), to.add(at), 2);
            at += 2;
        }
        if n & 1 != 0 {
            to.add(at).write(from.add(at).read());
        }
    }
}
