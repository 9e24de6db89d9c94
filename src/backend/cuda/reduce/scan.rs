//! Cumulative folds along a dimension.

use crate::backend::cuda::index::{ORDER, with_order};
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::{Extreme, Scan};
use crate::backend::{View, ViewMut};
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FILES: &[&str] = &[ORDER, include_str!("scan.cu")];

/// The operation, by its number in the source.
fn number(by: Scan) -> usize {
    match by {
        Scan::Sum => 0,
        Scan::Prod => 1,
        Scan::LogSumExp => 2,
    }
}
const RECURRENCE: usize = 3;
const INDEX: usize = 4;

/// The number of blocks that keep any GPU busy.
const BLOCKS: usize = 2048;
/// The least number of elements of a piece.
const SHORTEST: usize = 4096;
/// The lengths of pieces are multiples of this: the most elements that the threads of a block process at a time.
const STEP: usize = 4096;
const WARPS: usize = 8;
/// The largest size of the state of a piece in bytes.
const STATE: usize = 16;

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    let floats = [(DType::F32, DType::F32), (DType::BF16, DType::BF16), (DType::F64, DType::F64)];
    let ints = [(DType::U8, DType::I64), (DType::U64, DType::U64)];
    let mut all = Vec::new();
    for fold in 0..4 {
        all.extend(floats.map(|(from, to)| source(fold, from, to)));
        if fold < 2 {
            all.extend(ints.map(|(from, to)| source(fold, from, to)));
        }
    }
    all.extend(DType::REAL.map(index_source));
    all
}

fn source(fold: usize, from: DType, to: DType) -> KernelSource {
    KernelSource::new(FILES, to.compute_dtype(), true).dtype("X", from).dtype("Y", to).set("FOLD", fold)
}

/// Elements are compared by their bits.
fn index_source(dtype: DType) -> KernelSource {
    let source = KernelSource::new(FILES, DType::I64, true).dtype("Y", DType::I64).set("FOLD", INDEX);
    with_order(source, dtype).set("X", "E")
}

/// As the CPU's [`scan`](crate::backend::cpu::reduce::scan::scan).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn scan(
    op: &'static str,
    ordinal: usize,
    by: Scan,
    x: View<'_>,
    dim: usize,
    backwards: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    run(op, ordinal, &source(number(by), x.dtype, out.dtype), [x, x], dim, [backwards, false], out)
}

/// As the CPU's [`recurrence`](crate::backend::cpu::reduce::scan::recurrence).
///
/// # Errors
/// As for [`scan`].
pub(crate) fn recurrence(
    op: &'static str,
    ordinal: usize,
    factor: View<'_>,
    term: View<'_>,
    dim: usize,
    backwards: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let source = source(RECURRENCE, factor.dtype, out.dtype);
    run(op, ordinal, &source, [factor, term], dim, [backwards, false], out)
}

/// As the CPU's [`running_arg`](crate::backend::cpu::reduce::scan::running_arg).
///
/// # Errors
/// As for [`scan`].
pub(crate) fn running_arg(
    op: &'static str,
    ordinal: usize,
    which: Extreme,
    x: View<'_>,
    dim: usize,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    run(op, ordinal, &index_source(x.dtype), [x, x], dim, [false, which == Extreme::Min], indices)
}

fn run(
    op: &'static str,
    ordinal: usize,
    source: &KernelSource,
    [x, other]: [View<'_>; 2],
    dim: usize,
    [backwards, smallest]: [bool; 2],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape) = (gpu(op, ordinal)?, x.layout.shape());
    if shape.numel() == 0 {
        return Ok(());
    }
    let (len, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
    let lanes = shape.numel() / len;
    let (from, other) = (InOrder::new(op, ordinal, x)?, InOrder::new(op, ordinal, other)?);
    let arguments = |to: Option<*const u8>| {
        Arguments::new()
            .at(from.first)
            .at(other.first)
            .at_or_null(to)
            .size(lanes)
            .size(len)
            .size(inner)
            .word(u64::from(backwards))
            .word(u64::from(smallest))
    };
    let to = Some(out.first().cast_const());
    // Short lanes have one thread each; long ones are shared by the threads of a block.
    if len < 256 {
        let function = source.function(op, gpu, "short_lanes")?;
        // SAFETY: the elements are contiguous, and the output, which is contiguous, has as many.
        return unsafe { arguments(to).launch(op, gpu, function, Grid::over(lanes, 256, 256)) };
    }
    // Few long ones are split into pieces, so that the whole GPU has work.
    let pieces = (BLOCKS / lanes).min(len / SHORTEST).max(1);
    if pieces == 1 {
        let function = source.function(op, gpu, "long_lanes")?;
        // SAFETY: as above.
        return unsafe { arguments(to).launch(op, gpu, function, Grid::over(lanes, 1, 256)) };
    }
    let piece = len.div_ceil(pieces).next_multiple_of(STEP);
    let pieces = len.div_ceil(piece);
    // A state for every piece, followed by one for every warp of a piece.
    let states = Storage::new(op, Device::Cuda(ordinal), lanes * pieces * (1 + WARPS) * STATE)?;
    let inside = states.as_ptr().wrapping_add(lanes * pieces * STATE);
    let address = |at: *const u8| at.addr() as u64;
    let sizes = [lanes, len, inner, backwards.into(), smallest.into(), piece, pieces].map(|size| size as u64);
    // The source's struct `Pieces`.
    let cut = |to: Option<*const u8>| {
        let data = [from.first, other.first, to.unwrap_or(std::ptr::null())].map(address);
        let states = [states.as_ptr(), inside].map(address);
        Arguments::new().words(&[&data[..], &sizes, &states].concat())
    };
    let grid = Grid::over(lanes * pieces, 1, 256);
    // SAFETY: as above; there is memory for all states.
    unsafe {
        cut(None).launch(op, gpu, source.function(op, gpu, "fold_pieces")?, grid)?;
        cut(to).launch(op, gpu, source.function(op, gpu, "write_pieces")?, grid)
    }
}
