//! The largest elements, or the sums, of windows over up to three dimensions.

use super::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::Windows;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("pool.cu")];

/// Sources of every kind, to be compiled by a test.
#[cfg(test)]
pub(crate) fn sources() -> Vec<KernelSource> {
    [DType::F32, DType::F64, DType::I64, DType::U64].map(source).into()
}

fn source(dtype: DType) -> KernelSource {
    KernelSource::new(FILES, dtype, true)
}

/// Windows as the kernel's struct.
fn words(windows: &[Windows; 3]) -> SmallVec<[u64; 24]> {
    let one = |w: &Windows| [w.size as i64, w.count as i64, w.num, w.den, w.start, w.end, w.step];
    windows.iter().flat_map(one).map(|word| word as u64).collect()
}

/// As the CPU's [`max`](crate::backend::cpu::nn::pool::max).
///
/// # Errors
/// If memory runs out, or the kernel cannot be compiled or started.
pub(crate) fn max(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    windows: &[Windows; 3],
    values: &mut ViewMut<'_>,
    indices: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, values.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let from = InOrder::new(op, ordinal, x)?;
    let indices = indices.map(|indices| indices.first().cast_const());
    let arguments = Arguments::new()
        .at(from.first)
        .words(&words(windows))
        .at(values.first().cast_const())
        .at_or_null(indices)
        .size(n);
    let function = source(x.dtype).function(op, gpu, "largest")?;
    // SAFETY: the input lies in order, windows are inside its planes, and results are contiguous.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}

/// As the CPU's [`max_gradient`](crate::backend::cpu::nn::pool::max_gradient); the windows are the inverse ones.
///
/// # Errors
/// As for [`max`].
pub(crate) fn max_gradient(
    op: &'static str,
    ordinal: usize,
    g: View<'_>,
    indices: View<'_>,
    windows: &[Windows; 3],
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, out.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let (g, indices) = (InOrder::new(op, ordinal, g)?, InOrder::new(op, ordinal, indices)?);
    let arguments =
        Arguments::new().at(g.first).at(indices.first).words(&words(windows)).at(out.first().cast_const()).size(n);
    let function = source(out.dtype).function(op, gpu, "at_largest")?;
    // SAFETY: as above; the windows of each element are inside the planes of `g`.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}

/// As the CPU's [`sum`](crate::backend::cpu::nn::pool::sum).
///
/// # Errors
/// As for [`max`].
pub(crate) fn sum(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    windows: &[Windows; 3],
    divisor: f64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, out.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let from = InOrder::new(op, ordinal, x)?;
    let arguments =
        Arguments::new().at(from.first).words(&words(windows)).float(divisor).at(out.first().cast_const()).size(n);
    let function = source(x.dtype).function(op, gpu, "sums")?;
    // SAFETY: as above.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}
