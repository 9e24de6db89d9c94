//! Binary search in sorted sequences.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("search.cu")];

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    DType::REAL.map(source).into()
}

fn source(dtype: DType) -> KernelSource {
    KernelSource::new(FILES, dtype.compute_dtype(), true).dtype("X", dtype)
}

/// As the CPU's [`searchsorted`](crate::backend::cpu::index::search::searchsorted).
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn searchsorted(
    op: &'static str,
    ordinal: usize,
    sequence: View<'_>,
    rows: usize,
    values: View<'_>,
    right: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, values.layout.numel());
    if n == 0 {
        return Ok(());
    }
    let arguments = Arguments::new()
        .at(sequence.first())
        .at(values.first())
        .at(out.first().cast_const())
        .size(n)
        .size(sequence.layout.numel() / rows.max(1))
        .size((n / rows.max(1)).max(1))
        .word(u64::from(right));
    let function = source(values.dtype).function(op, gpu, "searchsorted")?;
    // SAFETY: all are contiguous; the sequence has `rows` rows, or one, and the output as many elements as there are values.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}
