//! The statistics of batch normalization, and its gradients.
//!
//! A batch `[N, C, S]` is read as `N · C` rows: channel `c` has the rows `c`, `C + c`, `2 · C + c` and so on. One
//! thread processes a whole channel, in several passes while it is in the cache.

use crate::backend::cpu::nn::fused::{Float, MatrixRows, MatrixRowsMut, sum_by};
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::{GRAIN, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::zip::zip;
use crate::{DType, Result};
use std::ops::Range;

/// The mean and the variance of each channel of `input` `[N · C, S]` into `stats` `[C, 2]`, which is contiguous and of the compute
/// dtype of `input`. `input` is not empty.
pub(crate) fn stats(op: &'static str, input: View<'_>, stats: &mut ViewMut<'_>) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => stats_as::<f32>(&input, stats),
        DType::F64 => stats_as::<f64>(&input, stats),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn stats_as<C: Float>(input: &View<'_>, stats: &mut ViewMut<'_>) {
    let (rows, len, channels) = (input.layout.shape()[0], input.layout.shape()[1], stats.layout.numel() / 2);
    let (x, stats) = (MatrixRows::<C>::new(input), MatrixRowsMut::<C>::new(stats, 2));
    let batch = rows / channels.max(1);
    parallel(channels, grain(batch * len), |range| {
        dispatch(Stats { x: &x, channels, batch, len, stats: &stats, range });
    });
}

fn grain(channel: usize) -> usize {
    (GRAIN / channel.max(1)).max(1)
}

/// Examples whose sums are added up before they are added to the total, which keeps the rounding error small.
const TOGETHER: usize = 64;

/// Several sums over the examples of a batch. It is a macro so that the summands are compiled for the instruction set
/// of the enclosing loop: a closure might not be inlined.
macro_rules! over_batch {
    ($kinds:literal, $batch:expr, $n:ident => $sums:expr) => {{
        let mut total = [C::ZERO; $kinds];
        for first in (0..$batch).step_by(TOGETHER) {
            let mut part = [C::ZERO; $kinds];
            for $n in first..$batch.min(first + TOGETHER) {
                let next: [C; $kinds] = $sums;
                part = each(|k| part[k] + next[k]);
            }
            total = each(|k| total[k] + part[k]);
        }
        total
    }};
}

struct Stats<'a, C> {
    x: &'a MatrixRows<'a, C>,
    channels: usize,
    batch: usize,
    len: usize,
    stats: &'a MatrixRowsMut<'a, C>,
    range: Range<usize>,
}

impl<C: Float> Job for Stats<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Stats { x, channels, batch, len, stats, range } = self;
        let [mut scratch, mut unused] = [const { Vec::new() }; 2];
        let count = C::lit((batch * len) as f64);
        for channel in range {
            let [sum] = over_batch!(1, batch, n => [sum_by([x.row(n * channels + channel, &mut scratch)], |[x]| x)]);
            let mean = sum / count;
            // The mean is rounded, considerably if the numbers are large compared with their spread. The mean of the
            // differences, which are exact, corrects it.
            let [lack, squares] = over_batch!(2, batch, n => {
                let x = x.row(n * channels + channel, &mut scratch);
                [sum_by([x], |[x]| x - mean), sum_by([x], |[x]| (x - mean) * (x - mean))]
            });
            let lack = lack / count;
            let variance = squares / count - lack * lack;
            let variance = if variance < C::ZERO { C::ZERO } else { variance };
            // SAFETY: the pieces of different threads have different channels; the statistics are of the compute dtype.
            unsafe { stats.row(channel, &mut unused).copy_from_slice(&[mean, variance]) };
        }
    }
}

/// The gradients: of `input` `[N · C, S]` into `input_grad`, and for each channel the sums of `g · normalised` and of
/// `g` into `sums` `[C, 2]`. `numbers` `[C, 3]` are the mean, the inverse square root of the variance, and the weight;
/// both are contiguous and of the compute dtype of `input`.
pub(crate) fn backward(
    op: &'static str,
    [input, g, numbers]: [View<'_>; 3],
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => backward_as::<f32>([&input, &g, &numbers], input_grad, sums),
        DType::F64 => backward_as::<f64>([&input, &g, &numbers], input_grad, sums),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn backward_as<C: Float>(
    [input, g, numbers]: [&View<'_>; 3],
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) {
    let (rows, len, channels) = (input.layout.shape()[0], input.layout.shape()[1], numbers.layout.shape()[0]);
    let [x, g, numbers] = [input, g, numbers].map(MatrixRows::<C>::new);
    let input_grad = input_grad.map(|view| MatrixRowsMut::<C>::streaming(view, len));
    let sums = MatrixRowsMut::<C>::new(sums, 2);
    let batch = rows / channels.max(1);
    parallel(channels, grain(batch * len), |range| {
        dispatch(Backward {
            x: &x,
            g: &g,
            numbers: &numbers,
            channels,
            batch,
            len,
            input_grad: input_grad.as_ref(),
            sums: &sums,
            range,
        });
    });
}

struct Backward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    g: &'a MatrixRows<'a, C>,
    numbers: &'a MatrixRows<'a, C>,
    channels: usize,
    batch: usize,
    len: usize,
    input_grad: Option<&'a MatrixRowsMut<'a, C>>,
    sums: &'a MatrixRowsMut<'a, C>,
    range: Range<usize>,
}

impl<C: Float> Job for Backward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Backward { x: all_x, g: all_g, numbers, channels, batch, len, input_grad, sums, range } = self;
        let [mut x_scratch, mut g_scratch, mut small, mut result, mut unused] = [const { Vec::new() }; 5];
        let count = C::lit((batch * len) as f64);
        for channel in range {
            let &[mean, inverse, weight] = numbers.row(channel, &mut small) else { continue };
            let totals = over_batch!(2, batch, n => {
                let at = n * channels + channel;
                let (x, g) = (all_x.row(at, &mut x_scratch), all_g.row(at, &mut g_scratch));
                [sum_by([g, x], |[g, x]| g * ((x - mean) * inverse)), sum_by([g], |[g]| g)]
            });
            // SAFETY: the pieces of different threads have different channels; the sums are of the compute dtype.
            unsafe { sums.row(channel, &mut unused).copy_from_slice(&totals) };
            let Some(input_grad) = input_grad else { continue };
            let [along_x, along_ones] = totals.map(|total| total / count);
            let scale = inverse * weight;
            for at in (0..batch).map(|n| n * channels + channel) {
                let (x, g) = (all_x.row(at, &mut x_scratch), all_g.row(at, &mut g_scratch));
                // SAFETY: as above.
                let row = unsafe { input_grad.row(at, &mut result) };
                for ((out, &x), &g) in zip(zip(&mut row[..], x), g) {
                    *out = scale * ((g - along_ones) - (x - mean) * inverse * along_x);
                }
                // SAFETY: as above.
                unsafe { input_grad.done(at, &result) };
            }
        }
        streaming::fence();
    }
}
