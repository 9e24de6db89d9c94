//! Attention by ordinary arithmetic in full precision, for the dtypes and sizes that the tensor cores do not support.

use super::{HeadRows, WithRows, check_sizes, size};
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::AttentionInputs;
use crate::backend::{View, ViewMut};
use crate::error::err;
use crate::storage::Storage;
use crate::{DType, Device, Result};

const FORWARD: &[&str] = &[include_str!("heads.cu"), include_str!("tiles.cu"), include_str!("tiles_forward.cu")];
const BACKWARD: &[&str] = &[include_str!("heads.cu"), include_str!("tiles.cu"), include_str!("tiles_backward.cu")];

/// The largest size of a key or a value.
pub(super) const LARGEST: usize = 256;

/// Shared memory in bytes of each of two resident blocks on a multiprocessor of the Hopper generation.
const SHARED_BY_TWO: usize = 113 << 10;

/// The registers of a multiprocessor, and the most per thread.
const REGISTERS: (usize, usize) = (1 << 16, 255);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    Backward,
}

/// The tile shape of a block, as described in the kernels' source, and the number of blocks that a multiprocessor
/// should hold.
#[derive(Clone, Copy, Debug)]
struct Tile {
    warps: usize,
    rows: usize,
    columns: usize,
    blocks: usize,
}

const fn tile(warps: usize, rows: usize, columns: usize, blocks: usize) -> Tile {
    Tile { warps, rows, columns, blocks }
}

/// For few queries, which would leave most rows of other tiles empty.
const FEW: Tile = tile(4, 1, 8, 2);

/// From tiles with the fewest reads per product and a high occupancy to tiles with the least shared memory, ordered by
/// their times on a GPU of the Hopper generation.
const FORWARD_TILES: &[Tile] = &[
    tile(4, 4, 8, 2),
    tile(8, 4, 8, 1),
    tile(4, 4, 4, 2),
    tile(4, 2, 4, 2),
    tile(8, 2, 4, 1),
    tile(6, 2, 2, 1),
    tile(4, 2, 2, 1),
    tile(4, 1, 2, 1),
    tile(2, 1, 1, 1),
];
const BACKWARD_TILES: &[Tile] = &[
    tile(4, 4, 8, 2),
    tile(4, 4, 4, 2),
    tile(4, 2, 4, 2),
    tile(8, 2, 4, 1),
    tile(4, 2, 4, 1),
    tile(4, 1, 2, 1),
    tile(2, 1, 1, 1),
];

impl Tile {
    /// The rows of a block, and the rows of the other side per tile.
    fn heights(self) -> (usize, usize) {
        (self.warps * 4 * self.rows, 8 * self.columns)
    }

    fn threads(self) -> usize {
        self.warps * 32
    }

    /// The shared memory of a block in bytes, for numbers of `width` bytes and these sizes of keys and values.
    fn shared(self, pass: Pass, width: usize, sizes: [usize; 2]) -> usize {
        let (own, other) = self.heights();
        let [key, value] = sizes.map(|size| size.next_multiple_of(16) + WIDE / width);
        let rows = match pass {
            Pass::Forward => own * key + other * (key + value),
            Pass::Backward => (own + other) * (key + value),
        };
        (rows + own * (other + 8)) * width
    }

    /// Whether shared memory and registers suffice; a third of the registers is kept for everything but the sums.
    fn fits(self, pass: Pass, width: usize, sizes: [usize; 2], limit: usize) -> bool {
        let [key, value] = sizes.map(|size| size.next_multiple_of(16) / 8);
        let sums = match pass {
            Pass::Forward => self.columns + value,
            Pass::Backward => 2 * self.columns + key + value,
        };
        let registers = (REGISTERS.0 / self.blocks / self.threads()).min(REGISTERS.1);
        let limit = if self.blocks == 2 { limit.min(SHARED_BY_TWO) } else { limit };
        self.shared(pass, width, sizes) <= limit && self.rows * sums * (width / 4) <= registers * 2 / 3
    }

    /// The first tile that fits into `limit` bytes of shared memory.
    fn choose(pass: Pass, dtype: DType, sizes: [usize; 2], queries: usize, limit: usize) -> Option<Tile> {
        let few = (pass == Pass::Forward && queries <= FEW.heights().0).then_some(FEW);
        let tiles = if pass == Pass::Forward { FORWARD_TILES } else { BACKWARD_TILES };
        let width = dtype.compute_dtype().size();
        few.into_iter().chain(tiles.iter().copied()).find(|tile| tile.fits(pass, width, sizes, limit))
    }
}

/// The parameters of the source, except for the layout of the operands.
#[derive(Clone, Copy)]
struct Form {
    dtype: DType,
    /// The sizes of a key and of a value.
    sizes: [usize; 2],
    causal: bool,
    masked: bool,
}

impl Form {
    fn source(self, pass: Pass, tile: Tile, pack: usize) -> KernelSource {
        let files = if pass == Pass::Forward { FORWARD } else { BACKWARD };
        KernelSource::new(files, self.dtype.compute_dtype(), false)
            .dtype("X", self.dtype)
            .set("D", self.sizes[0])
            .set("E", self.sizes[1])
            .set("CAUSAL", i32::from(self.causal))
            .set("MASK", i32::from(self.masked))
            .set("PACK", pack)
            .set("WARPS", tile.warps)
            .set("ROWS", tile.rows)
            .set("COLUMNS", tile.columns)
            .set("BLOCKS", tile.blocks)
    }

    /// The number of elements that can be read and written at a time: it must divide the rows, and the accesses must be
    /// aligned.
    fn pack(self, operands: &[&HeadRows]) -> usize {
        let fits = |pack: &usize| {
            let steps = operands.iter().flat_map(|rows| rows.steps).all(|step| step.is_multiple_of(*pack as u64));
            let bytes = pack * self.dtype.size();
            steps
                && self.sizes.iter().all(|size| size.is_multiple_of(*pack))
                && operands.iter().all(|rows| rows.first.addr().is_multiple_of(bytes))
        };
        let widest = WIDE / self.dtype.size();
        [8, 4, 2].into_iter().filter(|&pack| pack <= widest).find(fits).unwrap_or(1)
    }
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    use crate::backend::cuda::tests::floats;
    let mut all = Vec::new();
    for dtype in floats() {
        let widest = WIDE / dtype.size();
        let kinds = [
            ([64, 64], (true, false), widest, 227),
            ([128, 128], (false, false), widest, 227),
            ([256, 200], (true, true), widest, 99),
            ([33, 5], (false, true), 1, 99),
        ];
        for (sizes, (causal, masked), pack, limit) in kinds {
            for (pass, queries) in [(Pass::Forward, 1), (Pass::Forward, 1000), (Pass::Backward, 1000)] {
                let form = Form { dtype, sizes, causal, masked };
                all.extend(
                    Tile::choose(pass, dtype, sizes, queries, limit << 10).map(|tile| form.source(pass, tile, pack)),
                );
            }
        }
    }
    all
}

/// A problem on a GPU.
struct TiledAttention<'a> {
    op: &'static str,
    gpu: &'a Gpu,
    form: Form,
    heads: usize,
    /// Heads of all batches.
    pairs: usize,
    queries: usize,
    keys: usize,
    scale: f64,
}

impl<'a> TiledAttention<'a> {
    fn new(op: &'static str, ordinal: usize, inputs: &AttentionInputs<'_>) -> Result<TiledAttention<'a>> {
        let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(|view| view.layout);
        check_sizes(op, inputs)?;
        let form = Form {
            dtype: inputs.query.dtype,
            sizes: [size(key, 1), size(value, 1)],
            causal: inputs.causal,
            masked: inputs.mask.is_some(),
        };
        let (heads, pairs) = (size(query, 3), size(query, 4) * size(query, 3));
        let (queries, keys, scale) = (size(query, 2), size(key, 2), inputs.scale);
        Ok(TiledAttention { op, gpu: gpu(op, ordinal)?, form, heads, pairs, queries, keys, scale })
    }

    fn width(&self) -> usize {
        self.form.dtype.compute_dtype().size()
    }

    fn tile(&self, pass: Pass) -> Result<Tile> {
        let tile = Tile::choose(pass, self.form.dtype, self.form.sizes, self.queries, self.gpu.shared);
        tile.ok_or_else(|| err!(Backend, self.op, "no tile fits in {} bytes of shared memory", self.gpu.shared))
    }

    /// The first arguments of the kernels with tiles.
    fn opening(&self) -> Arguments {
        let scale = match self.form.dtype {
            DType::F64 => self.scale.to_bits(),
            _ => u64::from((self.scale as f32).to_bits()),
        };
        Arguments::new().size(self.heads).size(self.queries).size(self.keys).word(scale)
    }

    /// Runs a kernel whose blocks divide the `rows` of every head.
    ///
    /// # Safety
    /// As for [`Gpu::launch`].
    unsafe fn run(
        &self,
        name: &str,
        (pass, tile, source): (Pass, Tile, &KernelSource),
        rows: usize,
        arguments: Arguments,
    ) -> Result<()> {
        let function = source.function(self.op, self.gpu, name)?;
        let blocks = [self.pairs * rows.div_ceil(tile.heights().0), 1];
        let shared = tile.shared(pass, self.width(), self.form.sizes);
        // SAFETY: the caller's promise.
        unsafe { arguments.launch(self.op, self.gpu, function, Grid { blocks, threads: [tile.threads(), 1], shared }) }
    }
}

/// As [`forward`](super::forward), with `sums` and the mask of the compute dtype.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(super) fn forward(
    op: &'static str,
    ordinal: usize,
    inputs: &AttentionInputs<'_>,
    sums: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let problem = TiledAttention::new(op, ordinal, inputs)?;
    let [q, k, v] = [inputs.query, inputs.key, inputs.value].map(|view| HeadRows::as_they_lie(op, ordinal, view));
    let (q, k, v, to) = (q?, k?, v?, HeadRows::of(out.first().cast_const(), out.layout, None));
    let (pass, tile) = (Pass::Forward, problem.tile(Pass::Forward)?);
    let source = problem.form.source(pass, tile, problem.form.pack(&[&q, &k, &v, &to]));
    let arguments =
        problem.opening().rows(&q).rows(&k).rows(&v).rows(&to).at(sums.first().cast_const()).mask(inputs.mask);
    // SAFETY: the strides are those of layouts inside their storages (L2), with the given numbers of rows, whose
    // elements are contiguous and aligned as the pack requires; the result is borrowed mutably.
    unsafe { problem.run("attention_tiles_forward", (pass, tile, &source), problem.queries, arguments) }
}

/// As [`backward`](super::backward), for the inputs of [`forward`].
///
/// # Errors
/// As for [`forward`].
pub(super) fn backward(
    op: &'static str,
    ordinal: usize,
    inputs: &AttentionInputs<'_>,
    [sums, out, g]: [View<'_>; 3],
    grads: [Option<&mut ViewMut<'_>>; 3],
) -> Result<()> {
    let problem = TiledAttention::new(op, ordinal, inputs)?;
    let rows = |view: View<'_>| HeadRows::as_they_lie(op, ordinal, view);
    let (q, k, v) = (rows(inputs.query)?, rows(inputs.key)?, rows(inputs.value)?);
    let (out, g) = (rows(out)?, rows(g)?);
    let targets = grads.map(|to| to.map(|to| HeadRows::of(to.first().cast_const(), to.layout, None)));
    let (pass, tile) = (Pass::Backward, problem.tile(Pass::Backward)?);
    let operands: Vec<&HeadRows> = [&q, &k, &v, &g].into_iter().chain(targets.iter().flatten()).collect();
    let source = problem.form.source(pass, tile, problem.form.pack(&operands));
    let all = problem.pairs * problem.queries;
    let room = || Storage::new(op, Device::Cuda(ordinal), all * problem.width());
    let (lse, deltas) = (room()?, room()?);
    let prepare = Arguments::new()
        .size(problem.heads)
        .size(problem.queries)
        .size(all)
        .rows(&g)
        .rows(&out)
        .at(sums.first())
        .at(lse.as_ptr())
        .at(deltas.as_ptr());
    let function = source.function(op, problem.gpu, "attention_tiles_prepare")?;
    // SAFETY: as in `forward`; the workspace has room for every query of every head.
    unsafe { prepare.launch(op, problem.gpu, function, Grid::over(all, 8, 256))? };
    let common = || {
        let start = problem.opening().rows(&q).rows(&k).rows(&v).rows(&g);
        start.at(lse.as_ptr()).at(deltas.as_ptr())
    };
    let [to_q, to_k, to_v] = &targets;
    let made = (pass, tile, &source);
    // SAFETY: as in `forward`; gradients that are not requested have a null address and are not written.
    unsafe {
        if to_k.is_some() || to_v.is_some() {
            let arguments = common().rows_or_null(to_k.as_ref()).rows_or_null(to_v.as_ref()).mask(inputs.mask);
            problem.run("attention_tiles_backward_keys", made, problem.keys, arguments)?;
        }
        if let Some(to_q) = to_q {
            let arguments = common().rows(to_q).mask(inputs.mask);
            problem.run("attention_tiles_backward_queries", made, problem.queries, arguments)?;
        }
    }
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn every_size_finds_a_tile() {
        // The shared memory of a block on 8.6, 8.0 and 9.0.
        for limit in [99, 163, 227] {
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                for (key, value) in (1..=LARGEST).flat_map(|a| [(a, a), (a, 1), (1, a), (a, LARGEST), (LARGEST, a)]) {
                    for pass in [Pass::Forward, Pass::Backward] {
                        for queries in [1, 1000] {
                            let tile = Tile::choose(pass, dtype, [key, value], queries, limit << 10);
                            assert!(tile.is_some(), "{dtype} {key}x{value}, {queries} queries in {limit} KiB");
                        }
                    }
                }
            }
        }
    }
}
