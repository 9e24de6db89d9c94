//! Stable sorts along a dimension: a radix sort by the bits of the elements, and then by the lanes they belong to.

use super::{SORT, sort_pass, with_order};
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, is_wide};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::storage::Storage;
use crate::{DType, Device, Result};

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(super) fn sources() -> Vec<KernelSource> {
    DType::REAL.into_iter().map(|dtype| source(dtype, dtype.size() == 8)).collect()
}

fn source(dtype: DType, wide: bool) -> KernelSource {
    with_order(KernelSource::new(SORT, DType::I64, wide), dtype)
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
    let gpu = gpu(op, ordinal)?;
    let shape = x.layout.shape();
    let n = shape.numel();
    if n == 0 {
        return Ok(());
    }
    let (len, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
    let lanes = n / len;
    let from = InOrder::new(op, ordinal, x)?;
    // Keys and numbers are of one type, which has to hold both.
    let wide = is_wide(n) || x.dtype.size() == 8;
    let source = source(x.dtype, wide);
    let memory = || Storage::new(op, Device::Cuda(ordinal), n * if wide { 8 } else { 4 });
    let [mut key, mut number, mut other_key, mut other_number] = [memory()?, memory()?, memory()?, memory()?];
    let grid = Grid::over(n, 256, 256);
    let keys = Arguments::new()
        .at(from.first)
        .size(n)
        .size(len)
        .size(inner)
        .word(u64::from(descending))
        .at(key.as_ptr())
        .at(number.as_ptr());
    // SAFETY: the elements lie in order, and there is memory for `n` keys and numbers.
    unsafe { keys.launch(op, gpu, source.function(op, gpu, "sort_keys")?, grid)? };
    let mut passes = |key: &mut Storage, number: &mut Storage, bytes: usize| -> Result<()> {
        for pass in 0..bytes {
            sort_pass(op, gpu, wide, n, 8 * pass, [key, number], [&other_key, &other_number])?;
            std::mem::swap(key, &mut other_key);
            std::mem::swap(number, &mut other_number);
        }
        Ok(())
    };
    passes(&mut key, &mut number, x.dtype.size())?;
    if lanes > 1 {
        let by_lane = Arguments::new().at(number.as_ptr()).size(n).size(len).at(key.as_ptr());
        // SAFETY: as above.
        unsafe { by_lane.launch(op, gpu, source.function(op, gpu, "lane_keys")?, grid)? };
        passes(&mut key, &mut number, (usize::BITS - (lanes - 1).leading_zeros()).div_ceil(8) as usize)?;
    }
    let write = Arguments::new()
        .at(from.first)
        .at(number.as_ptr())
        .size(n)
        .size(len)
        .size(inner)
        .at_or_null(values.map(|values| values.first().cast_const()))
        .at(indices.first().cast_const());
    // SAFETY: the numbers are those of the elements, each once; the outputs that there are are contiguous and have as many.
    unsafe { write.launch(op, gpu, source.function(op, gpu, "write_sorted")?, grid) }
}
