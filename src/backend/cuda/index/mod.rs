//! Reading and writing by index. The kernels check indices: one out of range is reported at the next synchronization with the
//! GPU, and its element is neither read nor written.

mod fixed;
pub(crate) mod fold;
mod group;
pub(crate) mod nonzero;
mod radix;
pub(crate) mod search;
pub(crate) mod select;
pub(crate) mod sort;

use crate::backend::cpu::index::{Indices, lanes};
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, is_wide, steps};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::{Triangle, order_kind};
use crate::backend::{View, ViewMut};
use crate::layout::Walk;
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("../runtime/fault.cu"), include_str!("index.cu")];
/// The order of elements, for sources configured by [`with_order`].
pub(crate) const ORDER: &str = include_str!("order.cu");
/// Sums over the threads of a block.
const BEFORE: &str = include_str!("../runtime/before.cu");
/// The ranking of elements by digits within a block; after [`BEFORE`].
const RANK: &str = include_str!("rank.cu");

/// The unsigned integer of the size of an element, for kernels that do not interpret its value.
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
    // The bits of infinity in half precision: all exponent bits.
    let infinity = if dtype == DType::F16 { 0x7c00 } else { 0x7f80 };
    source.dtype("E", bits(dtype)).set("ORDER", order_kind(dtype)).set("HALF_INFINITY", infinity)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let moved = [DType::U8, DType::U16, DType::U32, DType::U64];
    let mut all: Vec<KernelSource> =
        moved.map(|dtype| KernelSource::new(FILES, DType::I64, false).dtype("E", dtype).set("R", 2)).into();
    all.extend(fold::sources());
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

/// Indices along a dimension of `size`, with negative ones counted from the end.
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
