//! Random numbers, identical to those of the CPU.

use crate::backend::ViewMut;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::Draw;
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("random.cu")];
const POISSON: &[&str] = &[include_str!("random.cu"), include_str!("poisson.cu")];

fn source(compute: DType, dtype: DType, which: usize, per: usize) -> KernelSource {
    KernelSource::new(FILES, compute, false).dtype("E", dtype).set("DRAW", which).set("PER", per)
}

/// The Poisson source, with the random numbers it uses.
pub(super) fn poisson_source() -> KernelSource {
    KernelSource::new(POISSON, DType::F64, false).dtype("E", DType::F64).set("DRAW", 1).set("PER", 2)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let mut all = vec![source(DType::F64, DType::F64, 1, 2), source(DType::F64, DType::F64, 3, 2), poisson_source()];
    all.extend([source(DType::I64, DType::I64, 4, 2), source(DType::F32, DType::Bool, 5, 4)]);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        all.extend([0, 2].map(|which| source(DType::F32, dtype, which, 4)));
    }
    all
}

/// Fills contiguous elements with a draw that starts at the counter `offset`.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn draw(
    op: &'static str,
    ordinal: usize,
    draw: Draw,
    seed: u64,
    offset: u64,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let (gpu, numel) = (gpu(op, ordinal)?, out.layout.numel());
    capture::refuse(op, ordinal, "every replay would draw the same numbers")?;
    if numel == 0 {
        return Ok(());
    }
    let double = out.dtype == DType::F64;
    let (which, low, high) = match draw {
        Draw::Uniform(_) if double => (1, 0, 0),
        Draw::Uniform(bits) => (0, i64::from(bits), 0),
        Draw::Normal => (if double { 3 } else { 2 }, 0, 0),
        Draw::Integers(low, high) => (4, low, high),
        Draw::Booleans(last) => (5, i64::from(last.unwrap_or(0)), i64::from(last.is_some())),
    };
    let per = if matches!(which, 1 | 3 | 4) { 2 } else { 4 };
    let compute = match which {
        1 | 3 => DType::F64,
        4 => DType::I64,
        _ => DType::F32,
    };
    let source = source(compute, out.dtype, which, per);
    let arguments = Arguments::new()
        .at(out.first().cast_const())
        .size(numel)
        .word(seed)
        .word(offset)
        .word(low as u64)
        .word(high as u64);
    // SAFETY: the output has `numel` elements in order (L2).
    unsafe { arguments.launch(op, gpu, source.function(op, gpu, "draw")?, Grid::over(numel.div_ceil(per), 256, 256)) }
}
