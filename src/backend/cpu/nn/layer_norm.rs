//! Layer normalisation of rows, forward and backward.

use crate::backend::cpu::nn::fused::{Float, MatrixRows, MatrixRowsMut, sum_by};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::{GRAIN, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::zip::zip;
use crate::{DType, Result};
use std::ops::Range;

/// With `x` a row of `input` `[R, D]`: `(x - mean) / sqrt(variance + eps) * weight + bias` into `out` `[R, D]`; the mean
/// and the inverse square root into `stats` `[R, 2]`. `stats`, `weight` and `bias` (`[D]`, contiguous) are of the
/// compute dtype of `input`.
pub(crate) fn forward(
    op: &'static str,
    input: View<'_>,
    weight: Option<View<'_>>,
    bias: Option<View<'_>>,
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => forward_as::<f32>(&input, weight, bias, eps, stats, out),
        DType::F64 => forward_as::<f64>(&input, weight, bias, eps, stats, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn forward_as<C: Float>(
    input: &View<'_>,
    weight: Option<View<'_>>,
    bias: Option<View<'_>>,
    eps: f64,
    stats: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
) {
    let (count, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    let (x, stats, out) =
        (MatrixRows::<C>::new(input), MatrixRowsMut::<C>::new(stats, 2), MatrixRowsMut::<C>::streaming(out, len));
    let [weight, bias] = [weight, bias].map(|view| view.and_then(|view| view.as_slice::<C>()));
    parallel(count, (GRAIN / len.max(1)).max(1), |rows| {
        dispatch(Forward { x: &x, weight, bias, eps: C::lit(eps), stats: &stats, out: &out, rows });
    });
}

struct Forward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    weight: Option<&'a [C]>,
    bias: Option<&'a [C]>,
    eps: C,
    stats: &'a MatrixRowsMut<'a, C>,
    out: &'a MatrixRowsMut<'a, C>,
    rows: Range<usize>,
}

impl<C: Float> Job for Forward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Forward { x, weight, bias, eps, stats, out, rows } = self;
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
            match (weight, bias) {
                (Some(w), Some(b)) => {
                    for (((out, &x), &w), &b) in zip(zip(zip(&mut row[..], x), w), b) {
                        *out = (x - mean) * inverse * w + b;
                    }
                }
                (Some(w), None) => {
                    for ((out, &x), &w) in zip(zip(&mut row[..], x), w) {
                        *out = (x - mean) * inverse * w;
                    }
                }
                (None, Some(b)) => {
                    for ((out, &x), &b) in zip(zip(&mut row[..], x), b) {
                        *out = (x - mean) * inverse + b;
                    }
                }
                (None, None) => {
                    for (out, &x) in zip(&mut row[..], x) {
                        *out = (x - mean) * inverse;
                    }
                }
            }
            // SAFETY: as above.
            unsafe { out.done(at, &result) };
        }
        streaming::fence();
    }
}

/// The number of pieces into which [`backward`] cuts the rows. It depends only on the sizes.
pub(crate) fn pieces(rows: usize, len: usize) -> usize {
    (rows.saturating_mul(len) / GRAIN).clamp(1, 64).min(rows.max(1))
}

/// The gradients: of `input` `[R, D]` into `input_grad`, and for each of the [`pieces`] the sums over its rows of
/// `g · normalised` and of `g` into `sums` `[pieces, 2, D]`, which is of the compute dtype.
pub(crate) fn backward(
    op: &'static str,
    input: View<'_>,
    g: View<'_>,
    stats: View<'_>,
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    match input.dtype.compute_dtype() {
        DType::F32 => backward_as::<f32>(&input, &g, &stats, weight, input_grad, sums),
        DType::F64 => backward_as::<f64>(&input, &g, &stats, weight, input_grad, sums),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn backward_as<C: Float>(
    input: &View<'_>,
    g: &View<'_>,
    stats: &View<'_>,
    weight: Option<View<'_>>,
    input_grad: Option<&mut ViewMut<'_>>,
    sums: Option<&mut ViewMut<'_>>,
) {
    let (count, len) = (input.layout.shape()[0], input.layout.shape()[1]);
    let (x, g, stats) = (MatrixRows::<C>::new(input), MatrixRows::<C>::new(g), MatrixRows::<C>::new(stats));
    let weight = weight.and_then(|view| view.as_slice::<C>());
    let input_grad = input_grad.map(|view| MatrixRowsMut::<C>::streaming(view, len));
    let sums = sums.map(|view| MatrixRowsMut::<C>::new(view, 2 * len));
    let pieces = pieces(count, len);
    let piece = count.div_ceil(pieces);
    parallel(pieces, 1, |range| {
        for piece_at in range {
            let rows = count.min(piece_at * piece)..count.min((piece_at + 1) * piece);
            let run = |sums: Option<&mut [C]>| {
                let rows = rows.clone();
                dispatch(Backward { x: &x, g: &g, stats: &stats, weight, input_grad: input_grad.as_ref(), sums, rows });
            };
            let mut unused = Vec::new();
            match &sums {
                None => run(None),
                // SAFETY: each piece has its own row of sums, of the compute dtype, and is computed by one thread.
                Some(all) => run(Some(unsafe { all.row(piece_at, &mut unused) })),
            }
        }
    });
}

struct Backward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    g: &'a MatrixRows<'a, C>,
    stats: &'a MatrixRows<'a, C>,
    weight: Option<&'a [C]>,
    input_grad: Option<&'a MatrixRowsMut<'a, C>>,
    sums: Option<&'a mut [C]>,
    rows: Range<usize>,
}

impl<C: Float> Job for Backward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Backward { x: all_x, g: all_g, stats: all_stats, weight, input_grad, mut sums, rows } = self;
        if let Some(sums) = &mut sums {
            sums.fill(C::ZERO);
        }
        let [mut x_scratch, mut g_scratch, mut small, mut weighted, mut result] = [const { Vec::new() }; 5];
        for at in rows {
            let (x, g) = (all_x.row(at, &mut x_scratch), all_g.row(at, &mut g_scratch));
            let &[mean, inverse] = all_stats.row(at, &mut small) else { continue };
            if let Some(sums) = &mut sums {
                let (for_weight, for_bias) = sums.split_at_mut(x.len());
                for (((w, b), &x), &g) in zip(zip(zip(&mut for_weight[..], for_bias), x), g) {
                    *w = *w + g * ((x - mean) * inverse);
                    *b = *b + g;
                }
            }
            let Some(input_grad) = input_grad else { continue };
            let g = match weight {
                None => g,
                Some(weight) => {
                    weighted.resize(g.len(), C::ZERO);
                    for ((to, &g), &w) in zip(zip(&mut weighted[..], g), weight) {
                        *to = g * w;
                    }
                    &weighted[..]
                }
            };
            let len = C::lit(x.len() as f64);
            let along_ones = sum_by([g], |[g]| g) / len;
            let along_x = sum_by([g, x], |[g, x]| g * ((x - mean) * inverse)) / len;
            // SAFETY: the pieces of different threads have different rows.
            let row = unsafe { input_grad.row(at, &mut result) };
            for ((out, &x), &g) in zip(zip(&mut row[..], x), g) {
                *out = inverse * ((g - along_ones) - (x - mean) * inverse * along_x);
            }
            // SAFETY: as above.
            unsafe { input_grad.done(at, &result) };
        }
        streaming::fence();
    }
}
