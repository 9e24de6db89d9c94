//! Normalisation of groups of channels, forward and backward.
//!
//! A row is a group of `each` channels. The rows of an example follow each other, so that row `r` has the channels of
//! group `r % groups`, where `groups · each` is the length of the weight.

use crate::backend::cpu::nn::fused::{Float, MatrixRows, MatrixRowsMut, sum_by};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::{GRAIN, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::zip::zip;
use crate::{DType, Result};
use std::ops::Range;

/// The optional scales and offsets of the channels of all groups: slices of one length, a multiple of `each`.
#[derive(Clone, Copy)]
struct Affine<'a, C> {
    weight: Option<&'a [C]>,
    bias: Option<&'a [C]>,
    each: usize,
}

impl<'a, C: Float> Affine<'a, C> {
    fn new(each: usize, weight: Option<View<'a>>, bias: Option<View<'a>>) -> Affine<'a, C> {
        let [weight, bias] = [weight, bias].map(|view| view.and_then(|view| view.as_slice::<C>()));
        Affine { weight, bias, each }
    }

    /// The scale and offset of a channel of a row; by default 1 and 0.
    #[inline(always)]
    fn of(&self, row: usize, channel: usize) -> (C, C) {
        let at = |values: Option<&[C]>, none: f64| match values {
            Some(values) if !values.is_empty() => values[(row * self.each + channel) % values.len()],
            _ => C::lit(none),
        };
        (at(self.weight, 1.0), at(self.bias, 0.0))
    }
}

/// With `x` a row of `input` `[R, each · S]`: `(x - mean) / sqrt(variance + eps) · weight + bias` into `out` `[R, each · S]`; the
/// mean and the inverse square root into `stats` `[R, 2]`. `stats`, `weight` and `bias` are contiguous and of the compute
/// dtype of `input`.
pub(crate) fn forward(
    op: &'static str,
    input: View<'_>,
    each: usize,
    [weight, bias]: [Option<View<'_>>; 2],
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => forward_as(&input, Affine::<f32>::new(each, weight, bias), eps, stats, out),
        DType::F64 => forward_as(&input, Affine::<f64>::new(each, weight, bias), eps, stats, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn forward_as<C: Float>(
    input: &View<'_>,
    affine: Affine<'_, C>,
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) {
    let (count, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    let (x, stats, out) =
        (MatrixRows::<C>::new(input), MatrixRowsMut::<C>::new(stats, 2), MatrixRowsMut::<C>::streaming(out, len));
    parallel(count, (GRAIN / len.max(1)).max(1), |rows| {
        dispatch(Forward { x: &x, affine, eps: C::lit(eps), stats: &stats, out: &out, rows });
    });
}

struct Forward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    affine: Affine<'a, C>,
    eps: C,
    stats: &'a MatrixRowsMut<'a, C>,
    out: &'a MatrixRowsMut<'a, C>,
    rows: Range<usize>,
}

impl<C: Float> Job for Forward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Forward { x, affine, eps, stats, out, rows } = self;
        let [mut scratch, mut result, mut unused] = [const { Vec::new() }; 3];
        for at in rows {
            let x = x.row(at, &mut scratch);
            let len = C::lit(x.len() as f64);
            let mean = sum_by([x], |[x]| x) / len;
            // E[(x - mean)²], not E[x²] - mean², which cancels if the mean is large.
            let variance = sum_by([x], |[x]| (x - mean) * (x - mean)) / len;
            let inverse = C::lit(1.0) / (variance + eps).sqrt();
            // SAFETY: the pieces of different threads have different rows; the statistics are of the compute dtype.
            let row = unsafe {
                stats.row(at, &mut unused).copy_from_slice(&[mean, inverse]);
                out.row(at, &mut result)
            };
            let positions = (x.len() / affine.each).max(1);
            for (channel, (out, x)) in row.chunks_mut(positions).zip(x.chunks(positions)).enumerate() {
                let (weight, bias) = affine.of(at, channel);
                let scale = inverse * weight;
                for (out, &x) in zip(&mut out[..], x) {
                    *out = (x - mean) * scale + bias;
                }
            }
            // SAFETY: as above.
            unsafe { out.done(at, &result) };
        }
        streaming::fence();
    }
}

/// The gradients: of `input` `[R, each · S]` into `input_grad`, and for each channel of each row the sums of
/// `g · normalised` and of `g` into `sums` `[R, each, 2]`, which is of the compute dtype.
pub(crate) fn backward(
    op: &'static str,
    [input, g, stats]: [View<'_>; 3],
    each: usize,
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => backward_as([&input, &g, &stats], Affine::<f32>::new(each, weight, None), input_grad, sums),
        DType::F64 => backward_as([&input, &g, &stats], Affine::<f64>::new(each, weight, None), input_grad, sums),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn backward_as<C: Float>(
    [input, g, stats]: [&View<'_>; 3],
    affine: Affine<'_, C>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: &mut ViewMut<'_>,
) {
    let (count, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    let (x, g, stats) = (MatrixRows::<C>::new(input), MatrixRows::<C>::new(g), MatrixRows::<C>::new(stats));
    let input_grad = input_grad.map(|view| MatrixRowsMut::<C>::streaming(view, len));
    let sums = MatrixRowsMut::<C>::new(sums, 2 * affine.each);
    parallel(count, (GRAIN / len.max(1)).max(1), |rows| {
        dispatch(Backward { x: &x, g: &g, stats: &stats, affine, input_grad: input_grad.as_ref(), sums: &sums, rows });
    });
}

struct Backward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    g: &'a MatrixRows<'a, C>,
    stats: &'a MatrixRows<'a, C>,
    affine: Affine<'a, C>,
    input_grad: Option<&'a MatrixRowsMut<'a, C>>,
    sums: &'a MatrixRowsMut<'a, C>,
    rows: Range<usize>,
}

impl<C: Float> Job for Backward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Backward { x: all_x, g: all_g, stats: all_stats, affine, input_grad, sums, rows } = self;
        let [mut x_scratch, mut g_scratch, mut small, mut result, mut unused] = [const { Vec::new() }; 5];
        for at in rows {
            let (x, g) = (all_x.row(at, &mut x_scratch), all_g.row(at, &mut g_scratch));
            let &[mean, inverse] = all_stats.row(at, &mut small) else { continue };
            let (len, positions) = (C::lit(x.len() as f64), (x.len() / affine.each).max(1));
            // SAFETY: the pieces of different threads have different rows; the sums are of the compute dtype.
            let sums = unsafe { sums.row(at, &mut unused) };
            let (mut along_x, mut along_ones) = (C::ZERO, C::ZERO);
            for (channel, (sums, (x, g))) in
                sums.chunks_mut(2).zip(x.chunks(positions).zip(g.chunks(positions))).enumerate()
            {
                let (weight, _) = affine.of(at, channel);
                let for_weight = sum_by([g, x], |[g, x]| g * ((x - mean) * inverse));
                let for_bias = sum_by([g], |[g]| g);
                sums.copy_from_slice(&[for_weight, for_bias]);
                along_x = along_x + weight * for_weight;
                along_ones = along_ones + weight * for_bias;
            }
            let Some(input_grad) = input_grad else { continue };
            (along_x, along_ones) = (along_x / len, along_ones / len);
            // SAFETY: as above.
            let row = unsafe { input_grad.row(at, &mut result) };
            let parts = row.chunks_mut(positions).zip(x.chunks(positions).zip(g.chunks(positions)));
            for (channel, (out, (x, g))) in parts.enumerate() {
                let (weight, _) = affine.of(at, channel);
                for ((out, &x), &g) in zip(zip(&mut out[..], x), g) {
                    *out = inverse * ((g * weight - along_ones) - (x - mean) * inverse * along_x);
                }
            }
            // SAFETY: as above.
            unsafe { input_grad.done(at, &result) };
        }
        streaming::fence();
    }
}
