//! The maxima and the sums of windows over up to three dimensions, with the channels first or last.

use super::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::spec::Windows;
use crate::backend::{View, ViewMut};
use crate::layout::Layout;
use crate::{DType, Result};
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("pool.cu")];

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let floats = crate::backend::cuda::tests::floats().into_iter();
    let packed = floats.map(|dtype| source(dtype, false, WIDE / dtype.size()));
    packed
        .chain(DType::REAL.into_iter().filter(|&dtype| dtype != DType::Bool).map(|dtype| source(dtype, true, 1)))
        .collect()
}

fn source(dtype: DType, wide: bool, pack: usize) -> KernelSource {
    let position = if wide { "long long" } else { "int" };
    KernelSource::new(FILES, dtype.compute_dtype(), wide).dtype("E", dtype).set("S", position).set("PACK", pack)
}

/// The windows as the kernel's struct.
fn words(windows: &[Windows; 3]) -> SmallVec<[u64; 24]> {
    let one = |w: &Windows| [w.size as i64, w.count as i64, w.num, w.den, w.start, w.end, w.step];
    windows.iter().flat_map(one).map(|word| word as u64).collect()
}

/// How a kernel iterates over the results.
struct Pass {
    /// Whether the channels come last.
    last: bool,
    /// The number of packs of channels, and the channels in each; both 1 if the channels come first.
    lanes: usize,
    pack: usize,
    /// Whether indices need more than 32 bits.
    wide: bool,
    numel: usize,
}

impl Pass {
    fn new(windows: &[Windows; 3], from: &Layout, out: &ViewMut<'_>) -> Pass {
        let (channels, last) = (out.layout.shape()[1], out.layout.is_channels_last());
        let pack = WIDE / out.dtype.size();
        let pack = if last && channels.is_multiple_of(pack) { pack } else { 1 };
        let most = 1 << 30;
        let long = |w: &Windows| {
            let ends = [w.num, w.den, w.start, w.end, w.step].into_iter().map(i64::unsigned_abs).max().unwrap_or(0);
            let reach = (w.count as u64).saturating_mul(w.num.unsigned_abs());
            ends >= most as u64 || reach >= most as u64
        };
        let wide = from.numel().max(out.layout.numel()) >= most || windows.iter().any(long);
        let lanes = if last { channels / pack } else { 1 };
        Pass { last, lanes, pack, wide, numel: out.layout.numel() }
    }

    /// Elements in the order of the pass, aligned to a pack.
    fn in_order(&self, op: &'static str, ordinal: usize, x: View<'_>) -> Result<InOrder> {
        let layout = if self.last { x.layout.permute(op, &[0, 2, 3, 4, 1])? } else { x.layout.clone() };
        let x = View { layout: &layout, ..x };
        if self.pack > 1 { InOrder::aligned(op, ordinal, x) } else { InOrder::new(op, ordinal, x) }
    }

    /// # Safety
    /// The arguments are the kernel's up to the counts, for elements in the order of the pass.
    unsafe fn run(
        &self,
        op: &'static str,
        ordinal: usize,
        dtype: DType,
        name: &str,
        arguments: Arguments,
    ) -> Result<()> {
        let (gpu, packs) = (gpu(op, ordinal)?, self.numel / self.pack);
        let function = source(dtype, self.wide, self.pack).function(op, gpu, name)?;
        // SAFETY: the caller's promise.
        unsafe { arguments.size(packs).size(self.lanes).launch(op, gpu, function, Grid::over(packs, 256, 256)) }
    }
}

/// As the CPU's [`max`](crate::backend::cpu::nn::pool::max), of elements of any dtype. If the values have the channels
/// last, so do the indices.
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
    let pass = Pass::new(windows, x.layout, values);
    if pass.numel == 0 {
        return Ok(());
    }
    let from = pass.in_order(op, ordinal, x)?;
    let indices = indices.map(|indices| indices.first().cast_const());
    let arguments =
        Arguments::new().at(from.first).words(&words(windows)).at(values.first().cast_const()).at_or_null(indices);
    // SAFETY: the input is in order, windows are inside its planes, and results have no gaps.
    unsafe { pass.run(op, ordinal, x.dtype, "largest", arguments) }
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
    let pass = Pass::new(windows, g.layout, out);
    if pass.numel == 0 {
        return Ok(());
    }
    let (g, indices) = (pass.in_order(op, ordinal, g)?, pass.in_order(op, ordinal, indices)?);
    let arguments = Arguments::new().at(g.first).at(indices.first).words(&words(windows)).at(out.first().cast_const());
    // SAFETY: as above; the windows of each element are inside the planes of `g`.
    unsafe { pass.run(op, ordinal, out.dtype, "at_largest", arguments) }
}

/// As the CPU's [`sum`](crate::backend::cpu::nn::pool::sum), of elements of any dtype.
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
    let pass = Pass::new(windows, x.layout, out);
    if pass.numel == 0 {
        return Ok(());
    }
    let from = pass.in_order(op, ordinal, x)?;
    let arguments = Arguments::new().at(from.first).words(&words(windows)).float(divisor).at(out.first().cast_const());
    // SAFETY: as above.
    unsafe { pass.run(op, ordinal, x.dtype, "sums", arguments) }
}
