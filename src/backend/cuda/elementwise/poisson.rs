//! Poisson random numbers.

use super::random::poisson_source;
use crate::Result;
use crate::backend::cuda::runtime::call::{Arguments, Grid};
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};

/// As the CPU's [`poisson`](crate::backend::cpu::elementwise::poisson::poisson), with the same numbers.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn poisson(
    op: &'static str,
    ordinal: usize,
    rates: View<'_>,
    seeds: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, n) = (gpu(op, ordinal)?, out.layout.numel());
    capture::refuse(op, ordinal, "every replay would draw the same numbers")?;
    if n == 0 {
        return Ok(());
    }
    let arguments = Arguments::new().at(rates.first()).at(seeds.first()).at(out.first().cast_const()).size(n);
    let function = poisson_source().function(op, gpu, "poisson")?;
    // SAFETY: all three are contiguous, and have `n` elements.
    unsafe { arguments.launch(op, gpu, function, Grid::over(n, 256, 256)) }
}
