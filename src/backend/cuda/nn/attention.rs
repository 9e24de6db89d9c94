//! Attention: in half precision on tensor cores if they support the head size, otherwise by ordinary arithmetic.

mod tiles;

use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::AttentionInputs;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Result};

/// For GPUs of capability 8.0 and later.
const PLAIN: &[&str] = &[
    include_str!("attention/heads.cu"),
    include_str!("attention/common.cu"),
    include_str!("attention/warps.cu"),
    include_str!("attention/forward.cu"),
    include_str!("attention/backward.cu"),
];

/// For the Hopper generation.
const HOPPER: &[&str] = &[
    include_str!("attention/heads.cu"),
    include_str!("attention/common.cu"),
    include_str!("attention/warpgroups.cu"),
    include_str!("attention/handover.cu"),
    include_str!("attention/hopper_forward.cu"),
    include_str!("attention/hopper_backward.cu"),
];

/// Whether a kernel supports the problem. Otherwise attention is computed by its definition.
pub(crate) fn fits(size: usize, value_size: usize, rank: usize, scale: f64) -> bool {
    size.max(value_size) <= tiles::LARGEST && rank <= 4 && scale.is_finite()
}

/// Whether the kernels for tensor cores support the inputs.
fn on_tensor_cores(inputs: &AttentionInputs<'_>) -> bool {
    let sizes = [inputs.query, inputs.value].map(|view| size(view.layout, 1));
    matches!(inputs.query.dtype, DType::F16 | DType::BF16)
        && matches!(sizes, [a @ (16 | 32 | 64 | 96 | 128), b] if a == b)
        && inputs.scale > 0.0
}

/// Refuses more rows than the kernels can count.
fn check_sizes(op: &'static str, inputs: &AttentionInputs<'_>) -> Result<()> {
    let (query, key) = (inputs.query.layout, inputs.key.layout);
    let sizes = [size(query, 2), size(key, 2), size(query, 4) * size(query, 3) * size(query, 2).max(size(key, 2))];
    if let Some(large) = sizes.into_iter().find(|&size| size > i32::MAX as usize - 256) {
        bail!(Backend, op, "the number of rows must be at most {}, got {large}", i32::MAX as usize - 256);
    }
    Ok(())
}

/// The sizes of a problem for tensor cores, and the kernels made for it.
struct FusedAttention<'a> {
    op: &'static str,
    gpu: &'a Gpu,
    batches: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// The size of a query, a key and a value.
    size: usize,
    scale: f64,
    /// Whether the kernels of the Hopper generation are used.
    hopper: bool,
    masked: bool,
    source: KernelSource,
}

/// The rows of one operand: their first element, and the strides of batch, head and row.
pub(super) struct HeadRows {
    first: *const u8,
    steps: [u64; 3],
    _copy: Option<InOrder>,
}

/// The stride of dimension `rank - back`; 0 if the dimension does not exist or has size 1.
fn step(layout: &Layout, back: usize) -> u64 {
    let rank = layout.rank();
    if back > rank || layout.shape()[rank - back] == 1 { 0 } else { layout.strides()[rank - back] as i64 as u64 }
}

fn size(layout: &Layout, back: usize) -> usize {
    let rank = layout.rank();
    if back > rank { 1 } else { layout.shape()[rank - back] }
}

/// Whether rows can be read 16 bytes at a time, as the kernels for tensor cores do.
fn aligned(first: *const u8, layout: &Layout) -> bool {
    let steps = (2..=4).all(|back| step(layout, back).is_multiple_of(8));
    first.addr().is_multiple_of(16) && steps && layout.strides().last() == Some(&1)
}

impl HeadRows {
    pub fn new(op: &'static str, ordinal: usize, view: View<'_>) -> Result<HeadRows> {
        if aligned(view.first(), view.layout) {
            return Ok(HeadRows::of(view.first(), view.layout, None));
        }
        let copy = InOrder::of_own(op, ordinal, view)?;
        let layout = Layout::contiguous(view.layout.shape().clone());
        Ok(HeadRows::of(copy.first, &layout, Some(copy)))
    }

    /// A struct of the address and the strides.
    pub fn words(&self) -> [u64; 4] {
        let [batch, head, row] = self.steps;
        [self.first.addr() as u64, batch, head, row]
    }

    /// As [`new`](Self::new), but requires only contiguous rows.
    fn as_they_lie(op: &'static str, ordinal: usize, view: View<'_>) -> Result<HeadRows> {
        if view.layout.strides().last() == Some(&1) {
            return Ok(HeadRows::of(view.first(), view.layout, None));
        }
        let copy = InOrder::of_own(op, ordinal, view)?;
        Ok(HeadRows::of(copy.first, &Layout::contiguous(view.layout.shape().clone()), Some(copy)))
    }

    fn of(first: *const u8, layout: &Layout, copy: Option<InOrder>) -> HeadRows {
        HeadRows { first, steps: [step(layout, 4), step(layout, 3), step(layout, 2)], _copy: copy }
    }
}

impl<'a> FusedAttention<'a> {
    fn new(op: &'static str, ordinal: usize, inputs: &AttentionInputs<'_>) -> Result<FusedAttention<'a>> {
        let (query, key) = (inputs.query.layout, inputs.key.layout);
        let gpu = gpu(op, ordinal)?;
        let (size_, hopper) = (size(query, 1), gpu.arch == 90 && matches!(size(query, 1), 64 | 128));
        check_sizes(op, inputs)?;
        let source = source(inputs.query.dtype, size_, inputs.causal, inputs.mask.is_some(), hopper);
        Ok(FusedAttention {
            op,
            gpu,
            batches: size(query, 4),
            heads: size(query, 3),
            queries: size(query, 2),
            keys: size(key, 2),
            size: size_,
            scale: inputs.scale,
            hopper,
            masked: inputs.mask.is_some(),
            source,
        })
    }

    fn pairs(&self) -> usize {
        self.batches * self.heads
    }

    /// The first arguments of all kernels but one.
    fn opening(&self) -> Arguments {
        Arguments::new().size(self.heads).size(self.queries).size(self.keys)
    }

    fn scale(&self) -> u64 {
        u64::from((self.scale as f32).to_bits())
    }

    fn memory(&self, bytes: usize) -> Result<Storage> {
        Storage::new(self.op, Device::Cuda(self.gpu.ordinal), bytes)
    }

    /// Runs a kernel.
    ///
    /// # Safety
    /// As for [`Gpu::launch`].
    unsafe fn run(&self, name: &str, arguments: Arguments, blocks: usize, threads: usize, shared: usize) -> Result<()> {
        let function = self.source.function(self.op, self.gpu, name)?;
        // SAFETY: the caller's promise.
        unsafe {
            arguments.launch(self.op, self.gpu, function, Grid { blocks: [blocks, 1], threads: [threads, 1], shared })
        }
    }
}

fn source(dtype: DType, size: usize, causal: bool, masked: bool, hopper: bool) -> KernelSource {
    // A GPU and a size always get the same files, so that the macros identify the source on a GPU.
    KernelSource::bare(if hopper { HOPPER } else { PLAIN })
        .set("BF16", i32::from(dtype == DType::BF16))
        .set("D", size)
        .set("CAUSAL", i32::from(causal))
        .set("MASK", i32::from(masked))
}

/// All variants of the source for older GPUs, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let mut all = Vec::new();
    for (size, dtype) in [(16, DType::F16), (32, DType::BF16), (64, DType::BF16), (96, DType::F16), (128, DType::BF16)]
    {
        all.extend([(false, false), (true, false), (true, true)].map(|(c, m)| source(dtype, size, c, m, false)));
    }
    all.extend(tiles::sources());
    all
}

/// All variants of the source for the Hopper generation.
#[cfg(feature = "samples")]
pub(crate) fn hopper_sources() -> Vec<KernelSource> {
    let mut all = Vec::new();
    for (size, dtype) in [(64, DType::F16), (64, DType::BF16), (128, DType::BF16)] {
        all.extend([(false, false), (true, false), (true, true)].map(|(c, m)| source(dtype, size, c, m, true)));
    }
    all
}

trait WithRows {
    fn rows(self, rows: &HeadRows) -> Self;
    fn rows_or_null(self, rows: Option<&HeadRows>) -> Self;
    fn mask(self, mask: Option<View<'_>>) -> Self;
}

impl WithRows for Arguments {
    fn rows(self, rows: &HeadRows) -> Arguments {
        self.at(rows.first).words(&rows.steps)
    }

    fn rows_or_null(self, rows: Option<&HeadRows>) -> Arguments {
        self.at_or_null(rows.map(|rows| rows.first)).words(&rows.map_or([0; 3], |rows| rows.steps))
    }

    fn mask(self, mask: Option<View<'_>>) -> Arguments {
        let steps = mask.map_or([0; 4], |mask| [4, 3, 2, 1].map(|back| step(mask.layout, back)));
        self.at_or_null(mask.map(|mask| mask.first())).words(&steps)
    }
}

/// As the CPU's [`forward`](crate::backend::cpu::nn::attention::forward), for inputs that [`fits`] accepts: `sums` and
/// the mask are of the compute dtype. The rows of `out` may be strided.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn forward(
    op: &'static str,
    ordinal: usize,
    inputs: &AttentionInputs<'_>,
    sums: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if !on_tensor_cores(inputs) {
        return tiles::forward(op, ordinal, inputs, sums, out);
    }
    let problem = FusedAttention::new(op, ordinal, inputs)?;
    let [q, k, v] = [inputs.query, inputs.key, inputs.value].map(|view| HeadRows::new(op, ordinal, view));
    let (q, k, v) = (q?, k?, v?);
    let to = HeadRows::of(out.first().cast_const(), out.layout, None);
    let arguments = problem
        .opening()
        .word(problem.scale())
        .rows(&q)
        .rows(&k)
        .rows(&v)
        .rows(&to)
        .at(sums.first().cast_const())
        .mask(inputs.mask);
    let (d, pairs) = (problem.size, problem.pairs());
    let (rows, threads, shared) = match (problem.hopper, d, problem.masked) {
        (false, ..) => {
            let threads = if d <= 64 && !problem.masked { 128 } else { 256 };
            (128, threads, (128 + 4 * if d <= 96 { 64 } else { 32 }) * (2 * d + 16))
        }
        (true, 64, false) => (192, 512, 1024 + 2 * 192 * d * 2 + 6 * 128 * d * 2 + 192),
        (true, 64, true) => (128, 384, 1024 + 2 * 128 * d * 2 + 6 * 128 * d * 2 + 192),
        (true, ..) => (128, 384, 1024 + 2 * 128 * d * 2 + 4 * 128 * d * 2 + 192),
    };
    let pieces = pairs * problem.queries.div_ceil(rows);
    let (arguments, blocks) = match problem.hopper {
        true => (arguments.size(pairs).word(problem.gpu.count()), pieces.min(problem.gpu.processors as usize)),
        false => (arguments, pieces),
    };
    // SAFETY: the strides are those of layouts inside their storages (L2), with the given numbers of rows, each
    // aligned as the kernels require; the result is borrowed mutably.
    unsafe { problem.run("attention_forward", arguments, blocks, threads, shared) }
}

/// As the CPU's [`backward`](crate::backend::cpu::nn::attention::backward), for the inputs of [`forward`].
///
/// # Errors
/// As for [`forward`].
pub(crate) fn backward(
    op: &'static str,
    ordinal: usize,
    inputs: &AttentionInputs<'_>,
    [sums, out, g]: [View<'_>; 3],
    grads: [Option<&mut ViewMut<'_>>; 3],
) -> Result<()> {
    if !on_tensor_cores(inputs) {
        return tiles::backward(op, ordinal, inputs, [sums, out, g], grads);
    }
    let problem = FusedAttention::new(op, ordinal, inputs)?;
    let rows = |view: View<'_>| HeadRows::new(op, ordinal, view);
    let (q, k, v) = (rows(inputs.query)?, rows(inputs.key)?, rows(inputs.value)?);
    let (out, g) = (rows(out)?, rows(g)?);
    let (d, pairs) = (problem.size, problem.pairs());
    let padded = problem.queries.next_multiple_of(128);
    let (lse, deltas) = (problem.memory(pairs * padded * 4)?, problem.memory(pairs * padded * 4)?);
    let height = if d == 64 { 128 } else { 64 };
    let tiles = pairs * problem.queries.div_ceil(height);
    let semaphores = problem.hopper.then(|| problem.memory((tiles + 1) * 4)).transpose()?;
    let arguments = Arguments::new()
        .size(problem.heads)
        .size(problem.queries)
        .size(padded)
        .rows(&g)
        .rows(&out)
        .at(sums.first())
        .at(lse.as_ptr())
        .at(deltas.as_ptr())
        .at_or_null(semaphores.as_ref().map(Storage::as_ptr))
        .size(if problem.hopper { tiles + 1 } else { 0 });
    let lanes = (d / 8).min(16).next_power_of_two();
    // SAFETY: as in `forward`; the workspace has room for every query of every head, rounded up.
    unsafe { problem.run("attention_backward_prepare", arguments, pairs * padded * lanes / 256, 256, 0)? };
    // Gradients that are not requested are written to a temporary.
    let [to_q, to_k, to_v] = grads;
    let unwanted = |rows: usize| problem.memory(pairs * rows * d * 2);
    let targets = [(to_q, problem.queries), (to_k, problem.keys), (to_v, problem.keys)].map(|(to, rows)| match to {
        Some(to) => Ok((HeadRows::of(to.first().cast_const(), to.layout, None), None)),
        None => {
            let memory = unwanted(rows)?;
            let steps = [problem.heads * rows * d, rows * d, d].map(|step| step as u64);
            Ok::<_, crate::Error>((HeadRows { first: memory.as_ptr(), steps, _copy: None }, Some(memory)))
        }
    });
    let [to_q, to_k, to_v] = targets;
    let ((to_q, _keep_q), (to_k, _keep_k), (to_v, _keep_v)) = (to_q?, to_k?, to_v?);
    let common = || {
        let start = problem.opening().size(padded).word(problem.scale());
        start.rows(&q).rows(&k).rows(&v).rows(&g).at(lse.as_ptr()).at(deltas.as_ptr())
    };
    if let Some(semaphores) = semaphores {
        let partial_dqs = problem.memory(tiles * height * d * 4)?;
        // Keys and values, three tiles of queries and of dO, two of dS, room for a partial dQ, and the rest.
        let partial_dq = if d == 64 { 128 * d * 2 } else { height * d * 4 };
        let shared =
            1024 + 2 * 128 * d * 2 + 6 * height * d * 2 + 2 * 128 * height * 2 + partial_dq + 3 * height * 8 + 192;
        let arguments = common()
            .rows(&to_k)
            .rows(&to_v)
            .at(partial_dqs.as_ptr())
            .at(semaphores.as_ptr())
            .mask(inputs.mask)
            .size(pairs);
        let blocks = (pairs * problem.keys.div_ceil(128)).min(problem.gpu.processors as usize);
        let finish = Arguments::new()
            .size(problem.heads)
            .size(problem.queries)
            .word(problem.scale())
            .at(partial_dqs.as_ptr())
            .rows(&to_q);
        // SAFETY: as in `forward`; the partial dQ has room for every tile.
        unsafe {
            problem.run("attention_backward", arguments, blocks, 384, shared)?;
            return problem.run("attention_backward_finish", finish, tiles * (height * d / 16 / 256), 256, 0);
        }
    }
    let own = if d <= 64 { 128 } else { 64 };
    let shared = (2 * own + 4 * if d <= 64 { 64 } else { 32 }) * (2 * d + 16);
    let (by_keys, by_queries) =
        (common().rows(&to_k).rows(&to_v).mask(inputs.mask), common().rows(&to_q).mask(inputs.mask));
    // SAFETY: as in `forward`.
    unsafe {
        problem.run("attention_backward_keys", by_keys, pairs * problem.keys.div_ceil(own), 2 * own, shared)?;
        problem.run("attention_backward_queries", by_queries, pairs * problem.queries.div_ceil(own), 2 * own, shared)
    }
}
