//! Stable sorts along a dimension, by the bits of the elements: short lanes in the shared memory of a block, long lanes in one
//! radix sort.

use super::radix::RadixSort;
use super::{BEFORE, ORDER, RANK, with_order};
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::storage::Storage;
use crate::{DType, Device, Result};

const ROWS: &[&str] = &[ORDER, BEFORE, RANK, include_str!("sort_rows.cu")];
const ROW_ORDER: &[&str] = &[ORDER, include_str!("row_order.cu")];
/// The longest lane that the threads of one warp sort by comparing all pairs.
const SHORT: usize = 32;

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    let mut all = Vec::new();
    for dtype in DType::REAL {
        let wide = dtype.size() == 8;
        all.push(with_order(RadixSort::source(false, wide), dtype));
        all.push(row_order_source(dtype));
        // All lengths for a few dtypes; they differ only in sizes.
        let few = matches!(dtype, DType::F32 | DType::I64);
        let lens = if few { &[7, 50, 100, 200, 500, 1000, 2000, 4000][..] } else { &[1000] };
        all.extend(lens.iter().filter_map(|&len| rows_source(dtype, len)).map(|(source, _)| source));
    }
    all.push(with_order(RadixSort::source(true, true), DType::F32));
    all
}

fn row_order_source(dtype: DType) -> KernelSource {
    with_order(KernelSource::new(ROW_ORDER, DType::I64, true), dtype)
}

/// Whether lanes of this length are sorted in shared memory.
pub(super) fn in_shared_memory(dtype: DType, len: usize) -> bool {
    rows_source(dtype, len).is_some()
}

/// The source for lanes of this length and its number of warps per block, if a lane fits shared memory.
fn rows_source(dtype: DType, len: usize) -> Option<(KernelSource, usize)> {
    let wide = dtype.size() == 8;
    let (warps, items) = match len {
        0..=SHORT => (8, 1),
        33..=64 => (1, 2),
        65..=128 => (1, 4),
        129..=256 => (2, 4),
        257..=512 => (4, 4),
        513..=1024 => (8, 4),
        1025..=2048 => (8, 8),
        // With wide keys, such lanes would not fit in shared memory.
        2049..=4096 if !wide => (8, 16),
        _ => return None,
    };
    let group = if len <= SHORT { len.next_power_of_two() } else { SHORT };
    let source = KernelSource::new(ROWS, DType::I64, true).dtype("K", if wide { DType::U64 } else { DType::U32 });
    let source = source.set("WARPS", warps).set("ITEMS", items).set("GROUP", group);
    Some((with_order(source, dtype), warps))
}

/// As the CPU's [`sort`](crate::backend::cpu::index::sort::sort).
///
/// # Errors
/// If memory runs out, or a kernel cannot be compiled or started.
pub(crate) fn sort(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    dim: usize,
    descending: bool,
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, shape) = (gpu(op, ordinal)?, x.layout.shape());
    let n = shape.numel();
    if n == 0 {
        return Ok(());
    }
    let (len, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
    let lanes = n / len;
    let from = InOrder::new(op, ordinal, x)?;
    let values = values.map(|values| values.first().cast_const());
    let Some((source, warps)) = rows_source(x.dtype, len) else {
        return sort_long(op, gpu, x.dtype, [n, len, inner], from.first, descending, (values, indices));
    };
    let arguments = Arguments::new()
        .at(from.first)
        .size(lanes)
        .size(len)
        .size(inner)
        .word(u64::from(descending))
        .at_or_null(values)
        .at(indices.first().cast_const());
    let (name, grid) = match len <= SHORT {
        true => ("sort_short", Grid::over(lanes, 256 / len.next_power_of_two(), 256)),
        false => ("sort_rows", Grid::over(lanes, 1, 32 * warps)),
    };
    // SAFETY: the elements lie in order, and the outputs that there are are contiguous and have as many.
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, name)?, grid) }
}

fn sort_long(
    op: &'static str,
    gpu: &Gpu,
    dtype: DType,
    [n, len, inner]: [usize; 3],
    from: *const u8,
    descending: bool,
    (values, indices): (Option<*const u8>, &mut ViewMut<'_>),
) -> Result<()> {
    let sort = RadixSort::new(op, gpu, n, n / len, dtype.size() * 8, [false, dtype.size() == 8])?;
    let address = |at: *const u8| at.addr() as u64;
    let (values, indices) = (values.map_or(0, address), address(indices.first().cast_const()));
    let ends = [address(from), len as u64, inner as u64, u64::from(descending), values, indices];
    // SAFETY: the elements lie in order, and the outputs that there are are contiguous and have as many.
    unsafe { sort.run_with(op, gpu, &with_order(sort.own_source(), dtype), &ends) }
}

/// As the CPU's [`order_rows`](crate::backend::cpu::index::sort::order_rows).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn order_rows(op: &'static str, ordinal: usize, x: View<'_>, order: &mut ViewMut<'_>) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (rows, columns) = (order.layout.numel(), x.layout.numel().checked_div(order.layout.numel()).unwrap_or(0));
    if rows == 0 {
        return Ok(());
    }
    let function = row_order_source(x.dtype).function(op, gpu, "merge_rows")?;
    let (elements, other) = (InOrder::new(op, ordinal, x)?, Storage::new(op, Device::Cuda(ordinal), rows * 8)?);
    let passes = rows.next_power_of_two().trailing_zeros().max(1);
    // The last pass writes the result; the passes before it alternate between the buffers.
    let buffer =
        |pass: u32| if (passes - pass).is_multiple_of(2) { order.first().cast_const() } else { other.as_ptr() };
    for pass in 0..passes {
        let from = (pass > 0).then(|| buffer(pass));
        let arguments = Arguments::new().at(elements.first).size(rows).size(columns).size(1 << pass);
        let arguments = arguments.at_or_null(from).at(buffer(pass + 1));
        // SAFETY: the rows lie in order, and both buffers have room for a number of each.
        unsafe { arguments.launch(op, gpu, function, Grid::over(rows, 256, 256))? };
    }
    Ok(())
}
