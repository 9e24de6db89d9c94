//! Chains of elementwise operations, each compiled to one kernel.

use crate::backend::cuda::elementwise::source::{Array, Compute, Input, Line, Program, opening};
use crate::backend::cuda::runtime::call::{Arguments, Grid, WIDE, is_wide};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::deferred::{ChainOperand, ChainPart};
use crate::backend::spec::{Formula, Kernel};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::layout::{Layout, Walk};
use crate::{DType, Element, Result, Scalar};
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Threads per block.
const THREADS: usize = 256;

/// Computes all parts, for `numel` elements in the compute dtype `compute`.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn compute(
    op: &'static str,
    ordinal: usize,
    compute: DType,
    numel: usize,
    parts: &[ChainPart<'_>],
) -> Result<()> {
    let mut reads: Vec<View<'_>> = Vec::new();
    let mut lines = Vec::with_capacity(parts.len());
    let mut params: Vec<Scalar> = Vec::new();
    for part in parts {
        let mut inputs = SmallVec::new();
        for operand in &part.operands {
            inputs.push(match operand {
                ChainOperand::Part(at) => Input::Result(*at),
                ChainOperand::Memory(view) => Input::Element(known(&mut reads, view)),
            });
        }
        lines.push(Line { what: line(part.kernel, inputs, &mut params), dtype: part.dtype });
    }
    let in_order = Layout::contiguous(numel.into());
    let reads: Vec<Access> = reads.iter().map(|view| Access::new(view.ptr(), view.layout, view.dtype)).collect();
    let kept =
        |(at, part): (usize, &ChainPart<'_>)| Some((Access::new(part.to?.cast_const(), &in_order, part.dtype), at));
    let writes: Vec<(Access, usize)> = parts.iter().enumerate().filter_map(kept).collect();
    run(op, ordinal, compute, numel, &reads, lines, &writes, &params)
}

/// A kernel as a line of the program; its numbers are appended to `params`.
fn line(kernel: &Kernel, inputs: SmallVec<[Input; 4]>, params: &mut Vec<Scalar>) -> Compute {
    let first_param = params.len();
    match kernel {
        Kernel::Formula(formula, own) => {
            params.extend_from_slice(own);
            Compute::Formula { formula, inputs, first_param }
        }
        Kernel::Number(number) => {
            params.push(*number);
            Compute::Param(first_param)
        }
    }
}

/// The index of a view in `reads`; a new view is appended.
fn known<'a>(reads: &mut Vec<View<'a>>, view: &View<'a>) -> usize {
    let same = |other: &View<'_>| {
        other.storage.ptr_eq(view.storage) && other.layout == view.layout && other.dtype == view.dtype
    };
    reads.iter().position(same).unwrap_or_else(|| {
        reads.push(*view);
        reads.len() - 1
    })
}

/// Permutes the dimensions of layouts of one shape to the memory order of the first, so that adjacent elements of the target are
/// computed by adjacent threads.
fn by_memory<const N: usize>(op: &'static str, layouts: [&Layout; N]) -> Result<[Layout; N]> {
    let strides = layouts[0].strides();
    let mut order: SmallVec<[isize; 5]> = (0..strides.len() as isize).collect();
    order.sort_by_key(|&dim| std::cmp::Reverse(strides[dim as usize].unsigned_abs()));
    let mut moved = layouts.map(Layout::clone);
    if !layouts[0].is_contiguous() {
        for layout in &mut moved {
            *layout = layout.permute(op, &order)?;
        }
    }
    Ok(moved)
}

/// Copies elements, casting where the dtypes differ.
///
/// # Errors
/// As for [`compute`].
pub(crate) fn copy(op: &'static str, ordinal: usize, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    let [to_layout, from_layout] = by_memory(op, [to.layout, from.layout])?;
    let reads = [Access::new(from.ptr(), &from_layout, from.dtype)];
    let writes = [(Access::new(to.ptr().cast_const(), &to_layout, to.dtype), 0)];
    static IDENTITY: LazyLock<Formula> = LazyLock::new(|| Formula::new("copy", 1, 0, |x, _| x[0]));
    let line = Line { what: whole(&IDENTITY), dtype: to.dtype };
    run(op, ordinal, from.dtype.compute_dtype(), to.layout.numel(), &reads, vec![line], &writes, &[])
}

/// Fills a view with one number.
///
/// # Errors
/// As for [`compute`].
pub(crate) fn fill(op: &'static str, ordinal: usize, to: &mut ViewMut<'_>, value: Scalar) -> Result<()> {
    let compute = to.dtype.compute_dtype();
    let position = Access::new(to.ptr().cast_const(), to.layout, to.dtype);
    // Rounded to the dtype first: a kernel would round a float twice.
    let value = with_dtype!(to.dtype, T => <T as Element>::from_scalar(value).to_scalar());
    let line = Line { what: Compute::Param(0), dtype: to.dtype };
    run(op, ordinal, compute, to.layout.numel(), &[], vec![line], &[(position, 0)], &[value])
}

/// `out = formula(inputs)`, evaluated at once.
///
/// # Errors
/// As for [`compute`].
pub(crate) fn map(
    op: &'static str,
    ordinal: usize,
    (formula, params): (&'static Formula, &[Scalar]),
    compute: DType,
    inputs: &[View<'_>],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let reads: Vec<Access> = inputs.iter().map(|view| Access::new(view.ptr(), view.layout, view.dtype)).collect();
    let writes = [(Access::new(out.ptr().cast_const(), out.layout, out.dtype), 0)];
    let line = Line { what: whole(formula), dtype: out.dtype };
    run(op, ordinal, compute.compute_dtype(), out.layout.numel(), &reads, vec![line], &writes, params)
}

/// A formula of the arrays that are read, in order.
fn whole(formula: &'static Formula) -> Compute {
    let inputs = (0..formula.inputs).map(Input::Element).collect();
    Compute::Formula { formula, inputs, first_param: 0 }
}

/// `target = formula(target, other)`, in place.
///
/// # Errors
/// As for [`compute`].
pub(crate) fn zip_in_place(
    op: &'static str,
    ordinal: usize,
    formula: &'static Formula,
    target: &mut ViewMut<'_>,
    other: View<'_>,
) -> Result<()> {
    let [layout, other_layout] = by_memory(op, [target.layout, other.layout])?;
    let own = || Access::new(target.ptr().cast_const(), &layout, target.dtype);
    let reads = [own(), Access::new(other.ptr(), &other_layout, other.dtype)];
    let line = Line { what: whole(formula), dtype: target.dtype };
    run(op, ordinal, target.dtype.compute_dtype(), target.layout.numel(), &reads, vec![line], &[(own(), 0)], &[])
}

/// Elements on the GPU, and their walk.
pub(crate) struct Access {
    address: u64,
    array: Array,
    /// The sizes and then the strides of the dimensions.
    steps: Vec<u64>,
}

impl Access {
    pub fn new(start: *const u8, layout: &Layout, dtype: DType) -> Access {
        let address = start.addr() as u64 + (layout.offset() * dtype.size()) as u64;
        if layout.is_contiguous() {
            return Access { address, array: Array { dtype, rank: None, packed: false }, steps: Vec::new() };
        }
        let walk = Walk::new(layout.shape(), [layout]);
        let dims = walk.dims();
        if dims.iter().all(|(_, [step])| *step == 0) {
            return Access { address, array: Array { dtype, rank: Some(0), packed: false }, steps: Vec::new() };
        }
        let sizes = dims.iter().map(|&(size, _)| size as u64);
        let steps = sizes.chain(dims.iter().map(|&(_, [step])| step as i64 as u64)).collect();
        Access { address, array: Array { dtype, rank: Some(dims.len()), packed: false }, steps }
    }

    /// The number of elements that can be processed at a time.
    fn pack(&self) -> usize {
        if self.array.rank.is_some() {
            return usize::MAX;
        }
        let size = self.array.dtype.size();
        let fitting = |pack: &usize| self.address.is_multiple_of((pack * size) as u64) && pack * size <= WIDE;
        [8, 4, 2, 1].into_iter().find(fitting).unwrap_or(1)
    }

    /// The array, for a kernel with packs of this size.
    fn packed(&self, pack: usize) -> Array {
        Array { packed: self.packs(pack), ..self.array }
    }

    /// Whether the elements of a non-contiguous array are contiguous within packs of this size.
    fn packs(&self, pack: usize) -> bool {
        let Some(rank @ 1..) = self.array.rank else { return false };
        let (sizes, steps) = self.steps.split_at(rank);
        let bytes = (pack * self.array.dtype.size()) as u64;
        let in_order = steps[rank - 1] == 1 && sizes[rank - 1].is_multiple_of(pack as u64);
        // Strides are two's complement: divisibility does not depend on the sign.
        let apart = steps[..rank - 1].iter().all(|step| step.is_multiple_of(pack as u64));
        // Two reads are still far fewer than one per element.
        pack > 1 && in_order && apart && bytes <= 2 * WIDE as u64 && self.address.is_multiple_of(bytes)
    }
}

/// Runs a program of these lines.
///
/// # Errors
/// As for [`compute`].
pub(crate) fn run(
    op: &'static str,
    ordinal: usize,
    compute: DType,
    numel: usize,
    reads: &[Access],
    lines: Vec<Line>,
    writes: &[(Access, usize)],
    params: &[Scalar],
) -> Result<()> {
    if numel == 0 {
        return Ok(());
    }
    let gpu = gpu(op, ordinal)?;
    let positions = || reads.iter().chain(writes.iter().map(|(position, _)| position));
    let pack = positions().map(Access::pack).min().unwrap_or(1).min(8);
    let program = Program {
        compute,
        wide: is_wide(numel),
        pack,
        walks: walks(reads, pack),
        reads: reads.iter().map(|position| position.packed(pack)).collect(),
        lines,
        writes: writes.iter().map(|(position, line)| (position.packed(pack), *line)).collect(),
        params: params.len(),
    };
    let source = || opening(compute, program.wide) + &program.kernel();
    let function = gpu.function(op, &program.key(), "chain", false, source)?;
    let mut arguments = Arguments::new().size(numel);
    for position in positions() {
        arguments.push(position.address);
        if !position.steps.is_empty() {
            arguments.push_words(&position.steps);
        }
    }
    params.iter().for_each(|&param| arguments.push(in_type(param, compute)));
    // SAFETY: the arguments are in the order in which the source names them. The kernel touches the elements of the
    // layouts, which lie inside their storages (L2); these are held by the caller until this returns, and whoever gets
    // their memory afterwards uses it after this kernel.
    unsafe { arguments.launch(op, gpu, function, Grid::over(numel, THREADS * pack, THREADS)) }
}

/// For each place the index of the first one with the same walk and packing.
fn walks(reads: &[Access], pack: usize) -> Vec<usize> {
    let alike = |a: &Access, b: &Access| a.steps == b.steps && a.packs(pack) == b.packs(pack);
    let first =
        |(k, position): (usize, &Access)| reads[..k].iter().position(|other| alike(other, position)).unwrap_or(k);
    reads.iter().enumerate().map(first).collect()
}

/// The bits of a number in the compute dtype.
fn in_type(number: Scalar, compute: DType) -> u64 {
    match compute {
        DType::F64 => f64::from_scalar(number).to_bits(),
        DType::F32 => u64::from(f32::from_scalar(number).to_bits()),
        DType::U64 => u64::from_scalar(number),
        _ => i64::from_scalar(number) as u64,
    }
}
