//! Reductions of dimensions of strided elements.

pub(crate) mod scan;

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE, is_wide, steps};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::{CenteredReduce, Extreme, Reduce};
use crate::backend::{View, ViewMut};
use crate::layout::{Layout, Shape, Walk};
use crate::storage::Storage;
use crate::{DType, Device, Result};
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("../runtime/groups.cu"), include_str!("reduce.cu")];

/// The number of blocks that keep any GPU busy. A fold with fewer results is split into pieces.
const BLOCKS: usize = 1024;
/// The least number of elements of a piece.
const SHORTEST: usize = 4096;

/// The operation, by its number in the source.
#[derive(Clone, Copy)]
enum Fold {
    Plain(Reduce),
    Centered(CenteredReduce),
    Choice(Extreme),
}

impl Fold {
    fn number(self) -> usize {
        match self {
            Fold::Plain(Reduce::Sum) => 0,
            Fold::Plain(Reduce::Mean) => 1,
            Fold::Plain(Reduce::Prod) => 2,
            Fold::Plain(Reduce::Max) => 3,
            Fold::Plain(Reduce::Min) => 4,
            Fold::Centered(CenteredReduce::Deviation(_)) => 5,
            Fold::Centered(CenteredReduce::Mean(_)) => 9,
            Fold::Centered(CenteredReduce::LogSumExp) => 6,
            Fold::Choice(Extreme::Max) => 7,
            Fold::Choice(Extreme::Min) => 8,
        }
    }

    /// The size of the state of a piece in bytes.
    fn partial(self, compute: DType) -> usize {
        if matches!(self, Fold::Choice(_)) { 16 } else { compute.size() }
    }
}

/// The targets of the results.
struct Results {
    value: Option<(*const u8, DType)>,
    at: Option<*const u8>,
    own: Option<*const u8>,
    numel: usize,
}

/// As the CPU's [`reduce`](crate::backend::cpu::reduce::reduce).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn reduce(
    op: &'static str,
    ordinal: usize,
    by: Reduce,
    input: View<'_>,
    dims: &[usize],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let results = Results::new(Some(out), None, None);
    fold(op, ordinal, Fold::Plain(by), input, dims, &results)
}

/// As the CPU's [`reduce_centered`](crate::backend::cpu::reduce::reduce_centered).
///
/// # Errors
/// As for [`reduce`].
pub(crate) fn reduce_centered(
    op: &'static str,
    ordinal: usize,
    by: CenteredReduce,
    input: View<'_>,
    dims: &[usize],
    own: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let results = Results::new(Some(out), None, Some(own.first()));
    fold(op, ordinal, Fold::Centered(by), input, dims, &results)
}

/// As the CPU's [`arg`](crate::backend::cpu::reduce::arg::arg).
///
/// # Errors
/// As for [`reduce`].
pub(crate) fn arg(
    op: &'static str,
    ordinal: usize,
    which: Extreme,
    input: View<'_>,
    dims: &[usize],
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let results = Results::new(values, Some(indices), None);
    fold(op, ordinal, Fold::Choice(which), input, dims, &results)
}

impl Results {
    fn new(value: Option<&mut ViewMut<'_>>, at: Option<&mut ViewMut<'_>>, own: Option<*const u8>) -> Results {
        let count = |view: &Option<&mut ViewMut<'_>>| view.as_ref().map_or(0, |view| view.layout.numel());
        let numel = count(&value).max(count(&at));
        let value = value.map(|view| (view.first().cast_const(), view.dtype));
        Results { value, at: at.map(|view| view.first().cast_const()), own, numel }
    }

    /// As the kernels' `Results`.
    fn words(&self, count: f64) -> [u64; 4] {
        let address = |at: Option<*const u8>| at.map_or(0, |at| at.addr() as u64);
        [address(self.value.map(|(at, _)| at)), address(self.at), address(self.own), count.to_bits()]
    }
}

/// The walk over some of the dimensions.
fn walk(layout: &Layout, chosen: impl Fn(usize) -> bool) -> Walk<1> {
    let pick = |d: &usize| chosen(*d);
    let shape: Shape = (0..layout.rank()).filter(pick).map(|d| layout.shape()[d]).collect();
    let strides: SmallVec<[isize; 5]> = (0..layout.rank()).filter(pick).map(|d| layout.strides()[d]).collect();
    Walk::<1>::of(&shape, &strides)
}

/// The number of neighbouring results per thread, if neighbouring results have contiguous elements.
fn pack(by: Fold, input: View<'_>, kept: &Walk<1>, folded: &Walk<1>) -> usize {
    let pack = WIDE / input.dtype.size();
    let whole = |step: isize| step.unsigned_abs().is_multiple_of(pack);
    let Some((&(size, [1]), outer)) = kept.dims().split_last() else { return 1 };
    let apart = outer.iter().chain(folded.dims()).all(|&(_, [step])| whole(step));
    let fits = size.is_multiple_of(pack) && apart && input.first().addr().is_multiple_of(WIDE);
    if fits && !matches!(by, Fold::Choice(_)) { pack } else { 1 }
}

/// `ranks` are the numbers of kept and of reduced dimensions.
fn source(by: Fold, [from, to]: [DType; 2], wide: bool, ranks: [usize; 2], [group, pack]: [usize; 2]) -> KernelSource {
    KernelSource::new(FILES, from.compute_dtype(), wide)
        .dtype("X", from)
        .dtype("Y", to)
        .set("FOLD", by.number())
        .set("K", ranks[0])
        .set("R", ranks[1])
        .set("GROUP", group)
        .set("PACK", pack)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let plain = [Reduce::Sum, Reduce::Prod, Reduce::Max, Reduce::Min].map(Fold::Plain);
    let choices = [Extreme::Max, Extreme::Min].map(Fold::Choice);
    let shifted = [
        Fold::Plain(Reduce::Mean),
        Fold::Centered(CenteredReduce::Deviation(1.0)),
        Fold::Centered(CenteredReduce::Mean(1.0)),
        Fold::Centered(CenteredReduce::LogSumExp),
    ];
    let some = |by: &[Fold], dtypes: &[DType]| -> Vec<KernelSource> {
        let each = |&by: &Fold| {
            let pack = move |dtype: DType| if matches!(by, Fold::Choice(_)) { 1 } else { WIDE / dtype.size() };
            dtypes.iter().map(move |&d| source(by, [d; 2], d == DType::F64, [1, 2], [32, pack(d)]))
        };
        by.iter().flat_map(each).collect()
    };
    let mut all = some(&plain, &DType::REAL);
    all.extend(some(&choices, &DType::REAL));
    all.extend(some(&shifted, &crate::backend::cuda::tests::floats()));
    all.extend([1, 256].map(|group| source(Fold::Choice(Extreme::Max), [DType::F32; 2], false, [2, 1], [group, 1])));
    all.extend(scan::sources());
    all
}

fn fold(op: &'static str, ordinal: usize, by: Fold, input: View<'_>, dims: &[usize], to: &Results) -> Result<()> {
    if to.numel == 0 {
        return Ok(());
    }
    let (gpu, compute) = (gpu(op, ordinal)?, input.dtype.compute_dtype());
    let (kept, folded) = (walk(input.layout, |d| !dims.contains(&d)), walk(input.layout, |d| dims.contains(&d)));
    let (results, length) = (to.numel, folded.numel());
    let count = match by {
        Fold::Centered(CenteredReduce::Deviation(n) | CenteredReduce::Mean(n)) => n,
        _ => length as f64,
    };
    // The way in which neighbouring threads read neighbouring elements.
    let ([kept_step], [folded_step]) = (kept.inner(), folded.inner());
    let rows = results == 1 || (folded_step.unsigned_abs() <= kept_step.unsigned_abs() && length > 1);
    let group = match length {
        _ if !rows => 256,
        1024.. => 256,
        16.. => 32,
        _ => 1,
    };
    let pack = if rows { 1 } else { pack(by, input, &kept, &folded) };
    let columns = results.div_ceil(32 * pack);
    let (blocks, shortest) = if rows { ((results * group).div_ceil(256), SHORTEST) } else { (columns, SHORTEST / 32) };
    let pieces = (BLOCKS / blocks).min(length / shortest).clamp(1, BLOCKS);
    let piece = length.div_ceil(pieces).max(1);
    let pieces = length.div_ceil(piece).max(1);
    let out = to.value.map_or(input.dtype, |(_, dtype)| dtype);
    let ranks = [kept.dims().len(), folded.dims().len()];
    let source = source(by, [input.dtype, out], is_wide(input.layout.numel()), ranks, [group, pack]);
    let partial = (pieces > 1)
        .then(|| Storage::new(op, Device::Cuda(ordinal), results * pieces * by.partial(compute)))
        .transpose()?;
    let function = source.function(op, gpu, if rows { "fold_rows" } else { "fold_columns" })?;
    let grid = if rows {
        Grid::over(results * pieces, 256 / group, 256)
    } else {
        Grid { blocks: [columns, pieces], threads: [256, 1], shared: 0 }
    };
    let arguments = Arguments::new()
        .at(input.first())
        .words(&to.words(count))
        .at_or_null(partial.as_ref().map(Storage::as_ptr))
        .words(&steps(&kept, 0))
        .words(&steps(&folded, 0))
        .size(results)
        .size(length)
        .size(piece)
        .size(pieces);
    // SAFETY: the arguments are those of the kernels, which read the elements of the layout (L2), and write exactly the results, or
    // pieces of them to memory with room for all. Memory that is returned is reused only after this.
    unsafe { arguments.launch(op, gpu, function, grid)? };
    if let Some(partial) = partial {
        let function = source.function(op, gpu, "fold_pieces")?;
        let arguments = Arguments::new().words(&to.words(count)).at(partial.as_ptr()).size(results).size(pieces);
        // SAFETY: as above.
        unsafe { arguments.launch(op, gpu, function, Grid::over(results, 1, 256))? };
    }
    Ok(())
}
