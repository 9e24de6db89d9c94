//! Statistics of channels for normalization, in one pass, with the channels first or last.

use super::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE, is_wide};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result};
use std::ops::Range;

const FILES: &[&str] = &[include_str!("channels.cu")];
/// The number of blocks that saturates any GPU.
const BLOCKS: usize = 1024;
/// The least number of reads per thread for which a piece gets its own block.
const SHORTEST: usize = 16;

/// The layout of a tensor: `[outer, channels, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    outer: usize,
    channels: usize,
    inner: usize,
}

/// How the channels of a problem are split.
struct Cut {
    frame: Frame,
    pack: usize,
    /// The packs of channels per row of a block, if the channels come last.
    lanes: usize,
    /// Rows, or packs of a channel, in a piece.
    piece: usize,
    pieces: usize,
    blocks: usize,
}

impl Frame {
    /// The frame of a shape whose channels are these dimensions. With the channels last, that is dimension 1 only.
    fn new(layout: &Layout, channels: &Range<usize>, last: bool) -> Frame {
        let product = |dims: Range<usize>| layout.shape()[dims].iter().product::<usize>();
        let (outer, own, inner) =
            (product(0..channels.start), product(channels.clone()), product(channels.end..layout.rank()));
        if last {
            Frame { outer: outer * inner, channels: own, inner: 1 }
        } else {
            Frame { outer, channels: own, inner }
        }
    }

    fn cut(self, aligned: bool, widest: DType) -> Cut {
        let Frame { outer, channels, inner } = self;
        let wide = WIDE / widest.size();
        let along = if inner == 1 { channels } else { inner };
        let pack = if aligned && along.is_multiple_of(wide) { wide } else { 1 };
        let lanes = if inner == 1 { (channels / pack).next_power_of_two().min(32) } else { 32 };
        let (blocks, length, threads) = if inner == 1 {
            (channels.div_ceil(lanes * pack), outer, 256 / lanes)
        } else {
            (channels, outer * inner / pack, 256)
        };
        let most = (BLOCKS / blocks.max(1)).min(length / (threads * SHORTEST));
        let piece = length.div_ceil(most.max(1)).max(1);
        Cut { frame: self, pack, lanes, piece, pieces: length.div_ceil(piece).max(1), blocks }
    }
}

impl Cut {
    fn source(&self, x: DType, g: DType) -> KernelSource {
        let numel = self.frame.outer * self.frame.channels * self.frame.inner;
        source(x, g, is_wide(numel), self.pack, self.lanes)
    }

    fn grid(&self) -> Grid {
        Grid { blocks: [self.blocks, self.pieces], threads: [256, 1], shared: 0 }
    }

    /// Runs a kernel over the elements; `operands` are its inputs, then the output for the pieces.
    ///
    /// # Safety
    /// All of these have the frame's sizes.
    unsafe fn run(
        &self,
        op: &'static str,
        gpu: &Gpu,
        source: &KernelSource,
        name: &str,
        operands: Arguments,
    ) -> Result<()> {
        let Frame { outer, channels, inner } = self.frame;
        let (end, arguments) = if inner == 1 {
            ("last", operands.size(outer))
        } else {
            let inside = inner / self.pack;
            ("first", operands.size(outer * inside).size(inside))
        };
        let function = source.function(op, gpu, &format!("{name}_{end}"))?;
        // SAFETY: the caller's promise; there is room for each piece.
        unsafe { arguments.size(channels).size(self.piece).size(self.pieces).launch(op, gpu, function, self.grid()) }
    }
}

fn source(x: DType, g: DType, wide: bool, pack: usize, lanes: usize) -> KernelSource {
    let source = KernelSource::new(FILES, x.compute_dtype(), wide).fused();
    source.dtype("E", x).dtype("G", g).set("PACK", pack).set("LANES", lanes)
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let all = crate::backend::cuda::tests::floats().into_iter();
    let each = |dtype: DType| [source(dtype, dtype, false, WIDE / dtype.size(), 8), source(dtype, dtype, false, 1, 32)];
    all.flat_map(each).chain([source(DType::BF16, DType::F32, true, 4, 1)]).collect()
}

/// Elements in the order of a frame: in memory order if the layout has the channels last, else in row-major order.
struct Framed {
    elements: InOrder,
    frame: Frame,
}

impl Framed {
    fn new(op: &'static str, ordinal: usize, x: View<'_>, channels: &Range<usize>, last: bool) -> Result<Framed> {
        let frame = Frame::new(x.layout, channels, last);
        let order: Vec<isize> = std::iter::once(0).chain(2..x.layout.rank() as isize).chain([1]).collect();
        let layout = if last { x.layout.permute(op, &order)? } else { x.layout.clone() };
        Ok(Framed { elements: InOrder::new(op, ordinal, View { layout: &layout, ..x })?, frame })
    }

    fn is_aligned(&self) -> bool {
        self.elements.first.addr().is_multiple_of(WIDE)
    }
}

/// The means of channels, their variances, and `1 / sqrt(variance + eps)`: three contiguous tensors of the compute dtype. The channels are
/// some dimensions of `x`, which is not empty.
///
/// # Errors
/// If memory runs out, or a kernel cannot be compiled or started.
pub(crate) fn moments(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    channels: Range<usize>,
    eps: f64,
    [mean, var, scale]: [&mut ViewMut<'_>; 3],
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let last = channels == (1..2) && x.layout.is_channels_last();
    let framed = Framed::new(op, ordinal, x, &channels, last)?;
    let cut = framed.frame.cut(framed.is_aligned(), x.dtype);
    let source = cut.source(x.dtype, x.dtype);
    let bytes = 3 * x.dtype.compute_dtype().size() * framed.frame.channels * cut.pieces;
    let partial = Storage::new(op, Device::Cuda(ordinal), bytes)?;
    // SAFETY: the elements are laid out as the frame says (L2), and there is room for three numbers of each piece.
    unsafe {
        cut.run(op, gpu, &source, "moments", Arguments::new().at(framed.elements.first).at(partial.as_ptr()))?;
        let function = source.function(op, gpu, "finish_moments")?;
        Arguments::new()
            .at(partial.as_ptr())
            .at(mean.first().cast_const())
            .at(var.first().cast_const())
            .at(scale.first().cast_const())
            .size(cut.pieces)
            .float(eps)
            .launch(op, gpu, function, Grid::over(framed.frame.channels, 1, 256))
    }
}

/// For the gradient of a normalization, for each channel: the sum of `g`; the sum of `g` times the normalised `x`; the
/// mean of `g`; the factor of the distance from the mean; and the scale. Five contiguous tensors of the compute dtype.
///
/// # Errors
/// As for [`moments`].
pub(crate) fn sums(
    op: &'static str,
    ordinal: usize,
    g: View<'_>,
    x: View<'_>,
    channels: Range<usize>,
    [mean, var]: [View<'_>; 2],
    eps: f64,
    out: [&mut ViewMut<'_>; 5],
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let last = channels == (1..2) && x.layout.is_channels_last();
    let (framed_g, framed) =
        (Framed::new(op, ordinal, g, &channels, last)?, Framed::new(op, ordinal, x, &channels, last)?);
    let widest = if g.dtype.size() > x.dtype.size() { g.dtype } else { x.dtype };
    let cut = framed.frame.cut(framed.is_aligned() && framed_g.is_aligned(), widest);
    let source = cut.source(x.dtype, g.dtype);
    let bytes = 2 * x.dtype.compute_dtype().size() * framed.frame.channels * cut.pieces;
    let partial = Storage::new(op, Device::Cuda(ordinal), bytes)?;
    let Frame { outer, channels, inner } = framed.frame;
    let operands =
        Arguments::new().at(framed_g.elements.first).at(framed.elements.first).at(mean.first()).at(partial.as_ptr());
    // SAFETY: both tensors are laid out as the frame says (L2), there is a mean and a variance for each channel, and
    // room for two numbers of each piece.
    unsafe {
        cut.run(op, gpu, &source, "sums", operands)?;
        let function = source.function(op, gpu, "finish_sums")?;
        let start = Arguments::new().at(partial.as_ptr()).at(var.first());
        out.into_iter()
            .fold(start, |arguments, out| arguments.at(out.first().cast_const()))
            .size(cut.pieces)
            .float((outer * inner) as f64)
            .float(eps)
            .launch(op, gpu, function, Grid::over(channels, 1, 256))
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_and_do_not_depend_on_the_gpu() {
        for (outer, channels, inner) in
            [(1, 1, 1), (802_816, 64, 1), (32, 64, 3136), (7, 3, 5), (1, 4096, 49), (12_544, 2048, 1)]
        {
            for aligned in [false, true] {
                let cut = Frame { outer, channels, inner }.cut(aligned, DType::BF16);
                let length = if inner == 1 { outer } else { outer * inner / cut.pack };
                assert!(cut.piece * cut.pieces >= length && cut.piece * (cut.pieces - 1) < length.max(1));
                assert!(cut.pieces <= BLOCKS && cut.lanes.is_power_of_two() && cut.lanes <= 32);
                assert!(inner > 1 || cut.blocks * cut.lanes * cut.pack >= channels);
            }
        }
    }
}
