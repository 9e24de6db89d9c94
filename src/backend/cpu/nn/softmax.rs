//! Softmax and log-softmax along one dimension, and their derivatives, each as a fused kernel.
//!
//! A contiguous row is processed in place. If another dimension is innermost, many rows are processed side by side
//! (`columns`). A block of neighbouring rows is copied to a buffer if the rows need a conversion or are shorter than a
//! vector; other rows are copied there one by one.

mod columns;

use crate::backend::cpu::nn::fused::{Float, sum_by};
use crate::backend::cpu::reduce::fold::{Fold, LANES, Max, Sum, fold_block, fold_run};
use crate::backend::cpu::reduce::outermost_first;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::SoftmaxKind;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::zip::zip;
use crate::{DType, Result};

/// `out = row(inputs)` for every row along `dim`, or for each element separately without one. The inputs have the shape
/// of `out` and do not share its storage.
pub(crate) fn softmax<const N: usize>(
    op: &'static str,
    kind: SoftmaxKind,
    inputs: [View<'_>; N],
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match out.dtype.compute_dtype() {
        DType::F32 => softmax_as::<f32, N>(kind, inputs, dim, out),
        DType::F64 => softmax_as::<f64, N>(kind, inputs, dim, out),
        _ => bail!(Backend, op, "there is no kernel for {}", out.dtype),
    }
}

/// An operand without its borrow.
#[derive(Clone, Copy)]
struct RawOperand {
    ptr: Ptr<u8>,
    dtype: DType,
    /// The stride along the rows.
    stride: isize,
}

impl RawOperand {
    /// The address of element `i` of the row at `position`.
    ///
    /// # Safety
    /// The row is one of the layout, and has such an element.
    #[inline(always)]
    unsafe fn at(&self, position: isize, i: usize) -> *mut u8 {
        // SAFETY: the caller names an element of the layout, whose position lies inside (L2).
        unsafe { self.ptr.get().offset((position + i as isize * self.stride) * self.dtype.size() as isize) }
    }
}

/// The number of rows side by side in a buffer.
const WIDTH: usize = 64;

fn softmax_as<C: Float, const N: usize>(
    kind: SoftmaxKind,
    inputs: [View<'_>; N],
    dim: Option<usize>,
    out: &mut ViewMut<'_>,
) -> Result<()>
where
    Max: Fold<C>,
    Sum: Fold<C>,
{
    if out.layout.numel() == 0 {
        return Ok(());
    }
    let length = dim.map_or(1, |d| out.layout.shape()[d]);
    let rows_of = |layout: &Layout| dim.map_or(Ok(layout.clone()), |d| layout.select("softmax", d as isize, 0));
    let stride = |layout: &Layout| dim.map_or(1, |d| layout.strides()[d]);
    let operand =
        |ptr: *mut u8, dtype, layout: &Layout| RawOperand { ptr: Ptr::new(ptr), dtype, stride: stride(layout) };
    let x: [RawOperand; N] =
        std::array::from_fn(|k| operand(inputs[k].ptr().cast_mut(), inputs[k].dtype, inputs[k].layout));
    let y = operand(out.ptr(), out.dtype, out.layout);
    // The walk over the rows: the inputs, and the output as the last of three.
    let target = rows_of(out.layout)?;
    let order = outermost_first(&target);
    let target = target.permute("softmax", &order)?;
    let mut layouts = [target.clone(), target.clone(), target];
    for (k, input) in inputs.iter().enumerate() {
        layouts[k] = rows_of(input.layout)?.permute("softmax", &order)?;
    }
    let walk = Walk::new(layouts[2].shape(), [&layouts[0], &layouts[1], &layouts[2]]);
    let grain = (GRAIN / length).max(1);
    // Rows shorter than a vector are processed side by side as well.
    let narrow = length < LANES && walk.inner_len() >= LANES;
    if !narrow && x.iter().chain([&y]).all(|o| o.dtype == C::DTYPE && (o.stride == 1 || length == 1)) {
        rows_in_place::<C, N>(kind, x, y, &walk, length, grain);
    } else if walk.inner_len() >= 16 && walk.inner() == [1; 3] && x.iter().chain([&y]).all(|o| o.dtype == C::DTYPE) {
        columns::columns::<C, N>(kind, x, y, &walk, length);
    } else if narrow || (walk.inner_len() >= 16 && y.stride.unsigned_abs() > walk.inner()[2].unsigned_abs()) {
        rows_in_blocks::<C, N>(kind, x, y, &walk, length);
    } else {
        parallel(walk.numel(), grain, |range| {
            let mut buffers: [Vec<C>; N] = std::array::from_fn(|_| vec![C::ZERO; length]);
            let (mut result, inner) = (vec![C::ZERO; length], walk.inner());
            walk.runs(range.start, range.end, |at, len| {
                for i in 0..len as isize {
                    let at: [isize; 3] = each(|k| at[k] + i * inner[k]);
                    // SAFETY: positions of rows from the walk; the buffers hold a row each; threads have disjoint rows.
                    unsafe {
                        for (k, buffer) in buffers.iter_mut().enumerate() {
                            C::load(x[k].dtype, x[k].at(at[k], 0), x[k].stride, buffer.as_mut_ptr(), length);
                        }
                        let from = each(|k| buffers[k].as_ptr());
                        dispatch(RowSet::<C, N> {
                            kind,
                            from,
                            to: result.as_mut_ptr(),
                            steps: [0; 3],
                            rows: 1,
                            length,
                        });
                        C::store(y.dtype, result.as_ptr(), y.at(at[2], 0), y.stride, length);
                    }
                }
            });
        });
    }
    Ok(())
}

fn rows_in_place<C: Float, const N: usize>(
    kind: SoftmaxKind,
    x: [RawOperand; N],
    y: RawOperand,
    walk: &Walk<3>,
    length: usize,
    grain: usize,
) where
    Max: Fold<C>,
    Sum: Fold<C>,
{
    parallel(walk.numel(), grain, |range| {
        walk.runs(range.start, range.end, |at, rows| {
            // SAFETY: the walk yields positions of rows (L2), which lie contiguous and are of type C; threads have
            // disjoint rows of the output, whose storage is not an input's.
            unsafe {
                let from = each(|k| x[k].at(at[k], 0).cast::<C>().cast_const());
                dispatch(RowSet::<C, N> {
                    kind,
                    from,
                    to: y.at(at[2], 0).cast::<C>(),
                    steps: walk.inner(),
                    rows,
                    length,
                });
            }
        });
    });
}

fn rows_in_blocks<C: Float, const N: usize>(
    kind: SoftmaxKind,
    x: [RawOperand; N],
    y: RawOperand,
    walk: &Walk<3>,
    length: usize,
) where
    Max: Fold<C>,
    Sum: Fold<C>,
{
    let (run, inner) = (walk.inner_len(), walk.inner());
    // Fewer rows at a time if they are long, so that the buffer stays in the cache.
    let width = ((1 << 15) / length).clamp(8, WIDTH);
    let blocks = run.div_ceil(width);
    parallel(walk.numel() / run * blocks, (GRAIN / (length * width)).max(1), |range| {
        // (length, width)
        let mut buffers: [Vec<C>; N] = std::array::from_fn(|_| vec![C::ZERO; length * width]);
        let mut result = vec![C::ZERO; length * width];
        for block in range {
            let start = block / blocks * run + block % blocks * width;
            walk.runs(start, (start + width).min((block / blocks + 1) * run), |at, n| {
                for (k, buffer) in buffers.iter_mut().enumerate() {
                    for (i, to) in buffer.chunks_exact_mut(n).take(length).enumerate() {
                        // SAFETY: `n` neighbouring rows from the walk, each with an element `i`.
                        unsafe { C::load(x[k].dtype, x[k].at(at[k], i), inner[k], to.as_mut_ptr(), n) };
                    }
                }
                let size = length * n;
                dispatch(Block {
                    kind,
                    x: &buffers[0][..size],
                    y: &buffers[N - 1][..size],
                    to: &mut result[..size],
                    n,
                });
                for (i, from) in result.chunks_exact(n).take(length).enumerate() {
                    // SAFETY: as above; every block has its own rows of the output.
                    unsafe { C::store(y.dtype, from.as_ptr(), y.at(at[2], i), inner[2], n) };
                }
            });
        }
    });
}

/// Rows of `length` contiguous elements, `steps` apart; `to` overlaps nothing else.
struct RowSet<C, const N: usize> {
    kind: SoftmaxKind,
    from: [*const C; N],
    to: *mut C,
    steps: [isize; 3],
    rows: usize,
    length: usize,
}

impl<C: Float, const N: usize> Job for RowSet<C, N>
where
    Max: Fold<C>,
    Sum: Fold<C>,
{
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let RowSet { kind, from, to, steps, rows, length } = self;
        for r in 0..rows as isize {
            // SAFETY: the constructor guarantees `length` elements from each start of a row. The derivatives have two
            // inputs; with only one, it is also the second, which is not read.
            let (x, y, to) = unsafe {
                (
                    std::slice::from_raw_parts(from[0].offset(r * steps[0]), length),
                    std::slice::from_raw_parts(from[N - 1].offset(r * steps[N - 1]), length),
                    std::slice::from_raw_parts_mut(to.offset(r * steps[2]), length),
                )
            };
            // By the number of inputs, which is known at compile time, so that each loop is compiled only once.
            let log = matches!(kind, SoftmaxKind::LogSoftmax | SoftmaxKind::LogSoftmaxGrad);
            match N {
                1 => {
                    let max = fold_run(Max, x, C::ZERO);
                    if log { log_softmax_row::<C, FMA>(x, max, to) } else { softmax_row::<C, FMA>(x, max, to) }
                }
                _ if log => log_softmax_grad_row::<C, FMA>(x, y, to),
                _ => softmax_grad_row(x, y, to),
            }
        }
    }
}

/// Block size of the exponentials and their sum: a block stays in the first-level cache.
const NEAR: usize = 1024;

#[inline(always)]
fn softmax_row<C: Float, const FMA: bool>(x: &[C], max: C, y: &mut [C])
where
    Sum: Fold<C>,
{
    let mut sum = C::ZERO;
    for start in (0..y.len()).step_by(NEAR) {
        let end = y.len().min(start + NEAR);
        let (y, x) = (&mut y[start..end], &x[start..end]);
        zip(&mut y[..], x).for_each(|(y, &x)| *y = (x - max).exp_nonpositive::<FMA>());
        sum = sum + fold_block(Sum, y, C::ZERO);
    }
    let inverse = C::lit(1.0) / sum;
    y.iter_mut().for_each(|y| *y = *y * inverse);
}

#[inline(always)]
fn log_softmax_row<C: Float, const FMA: bool>(x: &[C], max: C, y: &mut [C]) {
    let log = sum_by([x], |[x]| (x - max).exp_nonpositive::<FMA>()).ln();
    zip(&mut y[..], x).for_each(|(y, &x)| *y = x - max - log);
}

#[inline(always)]
fn softmax_grad_row<C: Float>(g: &[C], y: &[C], to: &mut [C]) {
    let dot = sum_by([g, y], |[g, y]| g * y);
    zip(&mut to[..], zip(g, y)).for_each(|(to, (&g, &y))| *to = y * (g - dot));
}

#[inline(always)]
fn log_softmax_grad_row<C: Float, const FMA: bool>(g: &[C], y: &[C], to: &mut [C]) {
    let sum = sum_by([g], |[g]| g);
    zip(&mut to[..], zip(g, y)).for_each(|(to, (&g, &y))| *to = g - y.exp_nonpositive::<FMA>() * sum);
}

/// The same for `n` rows side by side: `x`, `y` and the result are (length, n).
struct Block<'a, C> {
    kind: SoftmaxKind,
    x: &'a [C],
    y: &'a [C],
    to: &'a mut [C],
    n: usize,
}

impl<C: Float> Job for Block<'_, C>
where
    Max: Fold<C>,
    Sum: Fold<C>,
{
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Block { kind, x, y, to, n } = self;
        // Per row: its maximum, and the sum of terms that the result holds temporarily.
        let (mut max, mut sum) = ([Max::START; WIDTH], [C::ZERO; WIDTH]);
        let (max, sum) = (&mut max[..n], &mut sum[..n]);
        match kind {
            SoftmaxKind::Softmax | SoftmaxKind::LogSoftmax => {
                for x in x.chunks_exact(n) {
                    zip(&mut max[..], x).for_each(|(max, &x)| *max = Max.join(*max, x));
                }
                for (to, x) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
                    zip(&mut to[..], zip(x, &*max))
                        .for_each(|(to, (&x, &max))| *to = (x - max).exp_nonpositive::<FMA>());
                }
                sum_columns(to, sum);
                if kind == SoftmaxKind::Softmax {
                    sum.iter_mut().for_each(|sum| *sum = C::lit(1.0) / *sum);
                    for to in to.chunks_exact_mut(n) {
                        zip(&mut to[..], &*sum).for_each(|(to, &inverse)| *to = *to * inverse);
                    }
                } else {
                    sum.iter_mut().for_each(|sum| *sum = sum.ln());
                    for (to, x) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)) {
                        let terms = zip(x, zip(&max[..], &*sum));
                        zip(&mut to[..], terms).for_each(|(to, (&x, (&max, &log)))| *to = x - max - log);
                    }
                }
            }
            SoftmaxKind::SoftmaxGrad => {
                zip(&mut to[..], zip(x, y)).for_each(|(to, (&g, &y))| *to = g * y);
                sum_columns(to, sum);
                for ((to, g), y) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(y.chunks_exact(n)) {
                    let terms = zip(zip(g, y), &*sum);
                    zip(&mut to[..], terms).for_each(|(to, ((&g, &y), &dot))| *to = y * (g - dot));
                }
            }
            SoftmaxKind::LogSoftmaxGrad => {
                sum_columns(x, sum);
                for ((to, g), y) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(y.chunks_exact(n)) {
                    let terms = zip(zip(g, y), &*sum);
                    zip(&mut to[..], terms)
                        .for_each(|(to, ((&g, &y), &sum))| *to = g - y.exp_nonpositive::<FMA>() * sum);
                }
            }
        }
    }
}

/// The sums of the columns, in groups of rows, so that the rounding error does not grow with the length.
#[inline(always)]
fn sum_columns<C: Float>(x: &[C], sum: &mut [C]) {
    const GROUP: usize = 32;
    let n = sum.len();
    for group in x.chunks(n * GROUP) {
        let mut part = [C::ZERO; WIDTH];
        let part = &mut part[..n];
        for x in group.chunks_exact(n) {
            zip(&mut part[..], x).for_each(|(part, &x)| *part = *part + x);
        }
        zip(&mut sum[..], part).for_each(|(sum, part)| *sum = *sum + *part);
    }
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
