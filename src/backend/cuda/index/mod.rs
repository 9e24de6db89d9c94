//! Choosing and adding up elements by index. Indices are looked at by the kernels: a wrong one is reported when the GPU is
//! next waited for, and what it would have touched is left alone.

mod fixed;
mod group;
pub(crate) mod nonzero;
mod radix;
pub(crate) mod search;
pub(crate) mod select;
pub(crate) mod sort;

use crate::backend::cpu::index::{Indices, lanes};
use crate::backend::cuda::elementwise::chain::copy;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, is_wide, steps};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::{IndexFold, Triangle, order_kind};
use crate::backend::{View, ViewMut};
use crate::layout::{Layout, Walk};
use crate::storage::Storage;
use crate::{DType, Device, Result};
use fixed::FixedSums;
use group::Groups;
use radix::RadixSort;
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("../runtime/fault.cu"), include_str!("index.cu")];
/// The order of elements, for sources that [`with_order`] sets.
pub(crate) const ORDER: &str = include_str!("order.cu");
/// Sums over the threads of a block.
const BEFORE: &str = include_str!("../runtime/before.cu");
/// How a block finds the places of elements by digits; after [`BEFORE`].
const RANK: &str = include_str!("rank.cu");

/// An integer of the size of an element, where its value does not matter.
fn bits(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// A source that compares elements of a dtype by their bits.
pub(crate) fn with_order(source: KernelSource, dtype: DType) -> KernelSource {
    // The bits of an infinity in half precision: all of the exponent.
    let infinity = if dtype == DType::F16 { 0x7c00 } else { 0x7f80 };
    source.dtype("E", bits(dtype)).set("ORDER", order_kind(dtype)).set("HALF_INFINITY", infinity)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(crate) fn sources() -> Vec<KernelSource> {
    let moved = [DType::U8, DType::U16, DType::U32, DType::U64];
    let mut all: Vec<KernelSource> =
        moved.map(|dtype| KernelSource::new(FILES, DType::I64, false).dtype("E", dtype).set("R", 2)).into();
    for by in [IndexFold::Add, IndexFold::Multiply, IndexFold::Max, IndexFold::Min] {
        all.extend([DType::F32, DType::F64, DType::I64, DType::U64].map(|dtype| fold_source(by, dtype, true, 1)));
    }
    all.extend(radix::sources());
    all.extend(fixed::sources());
    all.extend(group::sources());
    all.extend(nonzero::sources());
    all.extend(sort::sources());
    all.extend(select::sources());
    all.extend(search::sources());
    all
}

/// As the CPU's [`gather`](crate::backend::cpu::index::gather).
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn gather(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    dim: usize,
    indices: &Indices<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape) = (gpu(op, ordinal)?, out.layout.shape());
    if shape.numel() == 0 {
        return Ok(());
    }
    let (from, chosen) = (lanes(x.layout, dim, shape)?, indices.view.layout.broadcast_to(shape));
    let walk = Walk::new(shape, [&from, &chosen]);
    let source = KernelSource::new(FILES, DType::I64, is_wide(shape.numel()))
        .dtype("E", bits(x.dtype))
        .set("R", walk.dims().len());
    let function = source.function(op, gpu, "gather")?;
    let (number, taken, fault) = gpu.faults(op);
    let arguments = Arguments::new()
        .at(x.first())
        .at(indices.view.first())
        .at(out.first().cast_const())
        .words(&steps(&walk, 0))
        .words(&steps(&walk, 1))
        .word(x.layout.strides()[dim] as i64 as u64)
        .size(indices.size)
        .size(shape.numel())
        .word(number)
        .word(taken)
        .word(fault);
    // SAFETY: the walks stay inside their layouts (L2), and so does an index below the size it is compared with.
    unsafe { arguments.launch(op, gpu, function, Grid::over(shape.numel(), 256, 256)) }
}

/// The source of kernels that put elements where indices say.
fn fold_source(by: IndexFold, dtype: DType, wide: bool, rank: usize) -> KernelSource {
    let which = match by {
        // Elements are moved as they are: the dtype does not matter, but for its size.
        IndexFold::Replace => return KernelSource::new(FILES, DType::I64, wide).dtype("E", bits(dtype)).set("R", rank),
        IndexFold::Add => 0,
        IndexFold::Multiply => 1,
        IndexFold::Max => 2,
        IndexFold::Min => 3,
    };
    let whole = usize::from(in_any_order(by, dtype));
    KernelSource::new(FILES, dtype, wide)
        .dtype("E", bits(dtype))
        .set("R", rank)
        .set("FOLD", which)
        .set("WHOLE", whole)
        .set("FEW", group::FEW)
}

/// Whether the order of elements does not matter, and the GPU can put them together in memory.
fn in_any_order(by: IndexFold, dtype: DType) -> bool {
    !dtype.is_float() && matches!(by, IndexFold::Add | IndexFold::Max | IndexFold::Min)
}

/// As the CPU's [`index_fold`](crate::backend::cpu::index::fold::index_fold): what falls on one place has one order, so that
/// sums have the same bits every time, and the last of several elements stays.
///
/// # Errors
/// If memory runs out, or a kernel cannot be compiled or started.
pub(crate) fn index_fold(
    op: &'static str,
    ordinal: usize,
    by: IndexFold,
    base: Option<View<'_>>,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let shape = source.layout.shape();
    if shape.numel() == 0 {
        return base.map_or(Ok(()), |base| copy(op, ordinal, base, out));
    }
    let from = InOrder::new(op, ordinal, source)?;
    let chosen = indices.view.layout.broadcast_to(shape);
    let alike =
        |d: usize| d == dim || (shape[d] == out.layout.shape()[d] && (shape[d] == 1 || chosen.strides()[d] == 0));
    // One index for whole slices, or one for each element.
    let places = if (0..shape.len()).all(alike) {
        let line = Layout::contiguous([shape[dim]].into());
        let still = Layout::contiguous([1].into()).broadcast_to(line.shape());
        let along =
            (0..shape.len()).filter(|&d| d != dim).try_fold(chosen, |layout, d| layout.narrow(op, d as isize, 0, 1))?;
        let (outer, inner) = (shape[..dim].iter().product(), shape[dim + 1..].iter().product());
        let along = along.reshape(line.shape()).unwrap_or(line);
        Places { to: still, chosen: along, step: 1, last: indices.size, outer, size: indices.size, inner }
    } else {
        let (to, step) = (lanes(out.layout, dim, shape)?, out.layout.strides()[dim]);
        Places { to, chosen, step, last: out.layout.numel(), outer: 1, size: 1, inner: 1 }
    };
    places.run(op, gpu, by, indices, from.first, base, out)
}

/// What is put where.
struct Places {
    /// Where each key's place begins, and how its index is found; layouts of one shape.
    to: Layout,
    chosen: Layout,
    step: isize,
    /// A key above all others.
    last: usize,
    /// Slices with one key are `outer` times `inner` elements, and lie `size` times `inner` apart.
    outer: usize,
    size: usize,
    inner: usize,
}

impl Places {
    fn run(
        &self,
        op: &'static str,
        gpu: &Gpu,
        by: IndexFold,
        indices: &Indices<'_>,
        from: *const u8,
        base: Option<View<'_>>,
        out: &mut ViewMut<'_>,
    ) -> Result<()> {
        let n = self.to.numel();
        // A note at each place is worth its memory unless there are far more places than elements.
        let claimed = by == IndexFold::Replace && self.last / 16 <= n;
        let walk = Walk::new(self.to.shape(), [&self.to, &self.chosen]);
        // Two bits of a count say what it is one of: see the sort.
        let wide = n.max(if claimed { out.layout.numel() } else { self.last }) >= 1 << 30;
        let single = self.outer * self.inner == 1;
        let fixed = by == IndexFold::Add && out.dtype == DType::F32 && single && !wide && self.last / 4 <= n;
        // Where every place is written in the end, what was there before is read from where it is.
        let whole = base.filter(|base| {
            (claimed || fixed) && base.dtype == out.dtype && base.layout.is_contiguous() && out.layout.is_contiguous()
        });
        let target = out.first().cast_const();
        let before = match (whole, base) {
            (Some(base), _) => base.first(),
            (None, Some(base)) => {
                copy(op, gpu.ordinal, base, out)?;
                target
            }
            (None, None) => target,
        };
        let source = fold_source(by, out.dtype, wide, walk.dims().len());
        let size = if wide { 8 } else { 4 };
        let memory = |count: usize| Storage::new(op, Device::Cuda(gpu.ordinal), count * size);
        let by_index = |source: &KernelSource, name: &str, threads: usize, rest: &[u64]| {
            let (own, taken, fault) = gpu.faults(op);
            let arguments = Arguments::new()
                .at(indices.view.first())
                .words(&steps(&walk, 0))
                .words(&steps(&walk, 1))
                .word(self.step as i64 as u64)
                .size(indices.size)
                .size(n)
                .size(self.last);
            let arguments = rest.iter().fold(arguments, |all, &word| all.word(word));
            let arguments = arguments.word(own).word(taken).word(fault);
            let function = source.function(op, gpu, name)?;
            // SAFETY: the walk stays inside the index's layout (L2); there is memory for `n` keys, and a number for every place.
            unsafe { arguments.launch(op, gpu, function, Grid::over(threads, 256, 256)) }
        };
        let keys = |name: &str, results: &[&Storage]| {
            let results: SmallVec<[u64; 4]> = results.iter().map(|result| result.as_ptr().addr() as u64).collect();
            by_index(&source, name, n, &results)
        };
        let slices = [self.outer, self.size, self.inner].map(|size| size as u64);
        // For each element, or for each place.
        let write = |name: &str, each: usize, arguments: Arguments| {
            let arguments = arguments.at(from).at(target).size(n).size(self.last).words(&slices);
            let grid = Grid::over(each * self.outer * self.inner, 256, 256);
            // SAFETY: keys below `last` are places of the target, and numbers are below `n`.
            unsafe { arguments.launch(op, gpu, source.function(op, gpu, name)?, grid) }
        };
        if claimed {
            let winner = memory(self.last)?;
            // SAFETY: the memory was just asked for.
            unsafe { gpu.clear(op, winner.as_ptr().cast_mut(), self.last * size)? };
            keys("claim", &[&winner])?;
            return write("put", self.last, Arguments::new().at(winner.as_ptr()).at(before));
        }
        if in_any_order(by, out.dtype) {
            let key = memory(n)?;
            keys("keys", &[&key])?;
            return write("fold_whole", n, Arguments::new().at(key.as_ptr()));
        }
        if fixed {
            let sums = FixedSums::new(op, gpu, n, self.last, walk.dims().len())?;
            // SAFETY: keys below `last` are places of the target.
            return unsafe { sums.run(op, gpu, [from, before, target], by_index) };
        }
        if by != IndexFold::Replace && self.last / 4 <= n && n / 8 <= self.last {
            let groups = Groups::new(op, gpu, n, self.last, wide)?;
            keys("count_places", &[&groups.key, &groups.order, &groups.counts])?;
            groups.run(op, gpu)?;
            return write("fold_groups", self.last, groups.result());
        }
        let bits = (usize::BITS - self.last.leading_zeros()) as usize;
        let sort = RadixSort::new(op, gpu, n, 1, bits, [wide; 2])?;
        keys("keys", &[&sort.keys[0]])?;
        sort.count_digits(op, gpu)?;
        sort.run(op, gpu)?;
        let name = if by == IndexFold::Replace { "put_sorted" } else { "fold_sorted" };
        write(name, n, sort.result(true, Arguments::new()))
    }
}

/// Integers along a dimension of `size`, of which negative ones count from its end.
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn wrap(op: &'static str, ordinal: usize, x: View<'_>, size: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, x.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let walk = Walk::new(x.layout.shape(), [x.layout]);
    let source = KernelSource::new(FILES, DType::I64, is_wide(n)).dtype("E", DType::U64).set("R", walk.dims().len());
    let (number, taken, fault) = gpu.faults(op);
    let arguments = Arguments::new()
        .at(x.first())
        .at(out.first().cast_const())
        .words(&steps(&walk, 0))
        .size(size)
        .size(n)
        .word(number)
        .word(taken)
        .word(fault);
    // SAFETY: the walk stays inside the layout (L2), and the output, which is contiguous, has as many elements.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, "wrap")?, Grid::over(n, 256, 256)) }
}

/// As the CPU's [`triangle`](crate::backend::cpu::index::triangle).
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn triangle(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    triangle: Triangle,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (shape, numel) = (out.layout.shape(), out.layout.numel());
    let [.., rows, columns] = shape[..] else { return Ok(()) };
    if numel == 0 {
        return Ok(());
    }
    let walk = Walk::new(shape, [x.layout]);
    let source =
        KernelSource::new(FILES, DType::I64, is_wide(numel)).dtype("E", bits(x.dtype)).set("R", walk.dims().len());
    let arguments = Arguments::new()
        .at(x.first())
        .at(out.first().cast_const())
        .words(&steps(&walk, 0))
        .size(numel)
        .size(rows)
        .size(columns)
        .word(triangle.diagonal as i64 as u64)
        .word(u64::from(triangle.upper));
    // SAFETY: the walk stays inside the layout (L2), and the output has as many elements.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, "triangle")?, Grid::over(numel, 256, 256)) }
}
