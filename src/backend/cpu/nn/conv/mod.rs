//! Convolutions: forward, the gradient of the input and that of the weight.
//!
//! The first two are products of a gathered operand with the weight. A box of results is computed at a time: its input
//! is copied with zero padding, and tiles of results by channels are computed from the copy through a table of offsets,
//! so that no im2col matrix is stored. With a stride, the gradient of the input splits into phases, each of which has
//! stride 1 and a part of the kernel. The gradient of the weight uses the same tiles, of kernel elements by channels,
//! and sums over the boxes in order.
//!
//! The lanes of vectors are channels of the result. If there are few, as in depthwise convolutions, the lanes are
//! neighbours in a row (`lines.rs`). Boxes and blocks depend only on the sizes, and so do the bits of all results.

mod gather;
mod kernel;
mod lines;
mod source;
mod tiles;
mod weight_gradient;

use crate::backend::cpu::elementwise::copy::fill;
use crate::backend::cpu::linalg::gemm::{GRAIN, Number};
use crate::backend::cpu::linalg::matmul;
use crate::backend::cpu::runtime::convert::Compute;
use crate::backend::cpu::runtime::threads::{Ptr, parallel};
use crate::backend::spec::{Conv, Phase};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::memory::scratch;
use crate::{DType, Result, Scalar, Shape};
use gather::{Gather, Target, Weight, WeightSteps};
use kernel::HasKernels;
use source::Operand;
use weight_gradient::WeightGradient;

/// The number of elements of the inner dimension in a block.
const BLOCK: usize = 512;
/// The number of results in a box, forward. In debug builds boxes are small, so that small tests have several.
const RESULTS: usize = if cfg!(debug_assertions) { 24 } else { 256 };
/// The number of positions in a box for the gradient of the weight.
const SUMMED: usize = if cfg!(debug_assertions) { 24 } else { 512 };
/// The number of elements of a copy that stay in the second-level cache.
const COPIED: usize = 1 << 17;
/// The most elements of copies that are made once and shared by threads.
const SHARED: usize = 1 << 22;
/// The number of parts that a problem is cut into, if it does not have that many boxes.
const PARTS: usize = 8;
/// The least number of result channels for which channels are the lanes of vectors.
const WIDE: usize = 8;

/// A type that convolutions are computed in.
trait Float: Number + Compute + HasKernels {}

impl Float for f32 {}
impl Float for f64 {}

/// `out = x * w`, plus `bias` (contiguous, of the compute dtype, one for each channel). All operands have five dimensions, as
/// [`Conv`] says; `w` and `out` are contiguous.
///
/// # Errors
/// If there is no memory for copies of parts of the operands.
pub(crate) fn forward(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => forward_in::<f64>(op, x, w, bias, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => forward_in::<f32>(op, x, w, bias, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// The gradient of the input, given the cotangent `g` of the output. As [`forward`].
///
/// # Errors
/// As [`forward`].
pub(crate) fn input_gradient(
    op: &'static str,
    g: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => input_gradient_in::<f64>(op, g, w, bias, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => input_gradient_in::<f32>(op, g, w, bias, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// The gradient of the weight, given the cotangent `g` of the output.
///
/// # Errors
/// As [`forward`].
pub(crate) fn weight_gradient(
    op: &'static str,
    x: View<'_>,
    g: View<'_>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype {
        DType::F64 => weight_gradient_in::<f64>(op, x, g, conv, out),
        DType::F32 | DType::F16 | DType::BF16 => weight_gradient_in::<f32>(op, x, g, conv, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
}

/// Refuses kernels whose tables of elements do not fit in memory.
fn check_kernel(op: &'static str, conv: &Conv) -> Result<()> {
    scratch::check_room::<[usize; 8]>(op, conv.kernel.iter().fold(0, |sum: usize, &k| sum.saturating_add(k)))
}

fn forward_in<T: Float>(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if conv.is_pointwise() && pointwise::<T>(op, x, w, bias, conv, false, out)? {
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_output(conv, dim));
    let weight = Weight::new(op, w)?;
    let kernel: usize = conv.kernel.iter().product();
    Gather::<T> {
        op,
        from: Operand::new(&x),
        batch: conv.batch,
        groups: conv.groups,
        inner: conv.c_in,
        columns: conv.c_out,
        phases: [&phases[0], &phases[1], &phases[2]],
        weight: WeightSteps { of: &weight, inner: kernel, column: conv.c_in * kernel, kernel: conv.kernel },
        group: conv.c_out * conv.c_in * kernel,
        bias: bias.map(|bias| bias.first().cast()),
        to: Target::new(out),
    }
    .run()
}

fn input_gradient_in<T: Float>(
    op: &'static str,
    g: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if conv.is_pointwise() && pointwise::<T>(op, g, w, bias, conv, true, out)? {
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_input(conv, dim));
    // Some positions are read by no output.
    let read = |dim: usize| phases[dim].iter().map(|phase| phase.count).sum::<usize>() == conv.input[dim];
    if !(0..3).all(read) || g.layout.numel() == 0 {
        fill_channels::<T>(bias.map(|bias| bias.first().cast()), conv, out);
    }
    if g.layout.numel() == 0 {
        return Ok(());
    }
    let weight = Weight::new(op, w)?;
    let kernel: usize = conv.kernel.iter().product();
    for d in &phases[0] {
        for h in &phases[1] {
            for w in &phases[2] {
                Gather::<T> {
                    op,
                    from: Operand::new(&g),
                    batch: conv.batch,
                    groups: conv.groups,
                    inner: conv.c_out,
                    columns: conv.c_in,
                    phases: [d, h, w],
                    weight: WeightSteps { of: &weight, inner: conv.c_in * kernel, column: kernel, kernel: conv.kernel },
                    group: conv.c_out * conv.c_in * kernel,
                    bias: bias.map(|bias| bias.first().cast()),
                    to: Target::new(out),
                }
                .run()?;
            }
        }
    }
    Ok(())
}

/// Fills each channel with its bias, or with 0.
fn fill_channels<T: Float>(bias: Option<*const T>, conv: &Conv, out: &mut ViewMut<'_>) {
    let Some(bias) = bias else { return fill(out, Scalar::F64(0.0)) };
    let (to, channels, len) = (Target::new(out), conv.groups * conv.c_in, conv.input.iter().product::<usize>());
    for at in 0..conv.batch * channels {
        for i in 0..len {
            // SAFETY: the output is contiguous and has these elements; the bias has one for each channel.
            unsafe { T::store(to.dtype, bias.add(at % channels), to.ptr.add((at * len + i) * to.dtype.size()), 1, 1) };
        }
    }
}

/// A kernel of one element: matrix products that read both operands in place. Returns false, without effects, if their
/// layouts do not allow it.
fn pointwise<T: Float>(
    op: &'static str,
    x: View<'_>,
    w: View<'_>,
    bias: Option<View<'_>>,
    conv: &Conv,
    transpose: bool,
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    let Conv { batch, groups, c_in, c_out, output, .. } = *conv;
    let (positions, (rows, inner)) = (output.iter().product(), if transpose { (c_in, c_out) } else { (c_out, c_in) });
    if x.dtype != T::DTYPE || w.dtype != T::DTYPE || groups * rows < WIDE {
        return Ok(false);
    }
    let columns: Shape = [batch, groups, inner, positions].into();
    let Some(columns) = x.layout.reshape(&columns) else { return Ok(false) };
    let matrices: Shape = [1, groups, c_out, c_in].into();
    let Some(mut matrices) = w.layout.reshape(&matrices) else { return Ok(false) };
    if transpose {
        matrices = matrices.transpose(op, 2, 3)?;
    }
    let matrices = matrices.broadcast_to(&[batch, groups, rows, inner].into());
    if inner == 0 {
        return Ok(false);
    }
    matmul::matmul(op, View { layout: &matrices, ..w }, View { layout: &columns, ..x }, out, None)?;
    if let Some(bias) = bias {
        let (to, bias) = (Ptr::new(out.first().cast::<T>()), Ptr::new(bias.first().cast::<T>().cast_mut()));
        let channels = groups * rows;
        parallel(batch * channels, (GRAIN / positions.max(1)).max(1), |range| {
            for at in range {
                // SAFETY: the output is contiguous; each channel is one thread's, and the bias has an element for each.
                unsafe {
                    let add = bias.get().add(at % channels).read();
                    let row = std::slice::from_raw_parts_mut(to.get().add(at * positions), positions);
                    row.iter_mut().for_each(|x| *x = *x + add);
                }
            }
        });
    }
    Ok(true)
}

fn weight_gradient_in<T: Float>(
    op: &'static str,
    x: View<'_>,
    g: View<'_>,
    conv: &Conv,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if g.layout.numel() == 0 {
        fill(out, Scalar::F64(0.0));
        return Ok(());
    }
    check_kernel(op, conv)?;
    let phases = [0, 1, 2].map(|dim| Phase::of_output(conv, dim));
    let phases = [&phases[0], &phases[1], &phases[2]];
    let (from, g) = (Operand::new(&x), Operand::new(&g));
    let (to, kind) = (out.first(), std::marker::PhantomData);
    let gradient = WeightGradient::<T> { op, conv, phases, from, g, to, dtype: out.dtype, kind };
    if conv.c_out < WIDE { gradient.dots() } else { gradient.run() }
}
