//! Cross entropy of rows of logits against a class for each row, without storing the log-probabilities.

use crate::backend::cpu::nn::fused::{Float, MatrixRows, MatrixRowsMut, greatest_and_sum, sum_by};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::streaming;
use crate::backend::cpu::runtime::threads::{GRAIN, parallel};
use crate::backend::spec::Targets;
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::memory::scratch::check_room;
use crate::zip::zip;
use crate::{DType, Result};
use std::ops::Range;

/// The targets as slices. Every class that is not ignored is below the number of classes.
#[derive(Clone, Copy)]
struct TargetSlices<'a> {
    /// The class of each row.
    target: &'a [i64],
    /// The class whose rows are ignored.
    ignore: i64,
    /// A weight for each class; by default 1.
    weight: Option<&'a [f64]>,
    /// The label smoothing: the part of each target that is spread evenly over all classes.
    smoothing: f64,
}

impl<'a> TargetSlices<'a> {
    fn new(op: &'static str, targets: &Targets<'a>) -> Result<TargetSlices<'a>> {
        let strided = || err!(Backend, op, "target and weight must be contiguous and on the CPU");
        let target = targets.target.as_slice::<i64>().ok_or_else(strided)?;
        let weight = targets.weight.map(|weight| weight.as_slice::<f64>().ok_or_else(strided)).transpose()?;
        Ok(TargetSlices { target, ignore: targets.ignore, weight, smoothing: targets.smoothing })
    }

    /// The class of a row, unless it is ignored.
    #[inline(always)]
    fn class(&self, row: usize) -> Option<usize> {
        let class = *self.target.get(row)?;
        if class == self.ignore { None } else { usize::try_from(class).ok() }
    }

    #[inline(always)]
    fn weight_of(&self, class: usize) -> f64 {
        self.weight.and_then(|weight| weight.get(class)).copied().unwrap_or(1.0)
    }
}

/// With `x` a row of `logits` `[R, C]`: its greatest element and the inverse of `Σ exp(x - greatest)` into `stats`
/// `[R, 2]`, and the row's loss into `loss` `[R]`. `stats` and `loss` are of the compute dtype of `logits`.
pub(crate) fn forward(
    op: &'static str,
    logits: View<'_>,
    targets: Targets<'_>,
    stats: &mut ViewMut<'_>,
    loss: &mut ViewMut<'_>,
) -> Result<()> {
    // Rows that are not contiguous are gathered first.
    check_room::<f64>(op, logits.layout.shape()[1])?;
    let classes = TargetSlices::new(op, &targets)?;
    match logits.dtype.compute_dtype() {
        DType::F32 => forward_as::<f32>(&logits, classes, stats, loss),
        DType::F64 => forward_as::<f64>(&logits, classes, stats, loss),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn forward_as<C: Float>(logits: &View<'_>, classes: TargetSlices<'_>, stats: &mut ViewMut<'_>, loss: &mut ViewMut<'_>) {
    let (count, len) = (logits.layout.shape()[0], logits.layout.shape()[1]);
    let (x, stats, loss) =
        (MatrixRows::<C>::new(logits), MatrixRowsMut::<C>::new(stats, 2), MatrixRowsMut::<C>::new(loss, 1));
    parallel(count, rows_per_piece(len), |rows| dispatch(Forward { x: &x, classes, stats: &stats, loss: &loss, rows }));
}

/// The number of rows that is enough work for a thread.
fn rows_per_piece(len: usize) -> usize {
    (GRAIN / 2 / len.max(1)).max(1)
}

struct Forward<'a, C> {
    x: &'a MatrixRows<'a, C>,
    classes: TargetSlices<'a>,
    stats: &'a MatrixRowsMut<'a, C>,
    loss: &'a MatrixRowsMut<'a, C>,
    rows: Range<usize>,
}

impl<C: Float> Job for Forward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Forward { x, classes, stats, loss, rows } = self;
        let (mut scratch, mut unused) = (Vec::new(), Vec::new());
        for at in rows {
            let x = x.row(at, &mut scratch);
            let (top, sum) = greatest_and_sum::<C, FMA>(x);
            let log_sum = sum.ln();
            let value = classes.class(at).and_then(|class| Some((class, *x.get(class)?))).map(|(class, logit)| {
                // Not (top + log_sum) - logit, which loses digits where the logits are large.
                let own = C::lit((1.0 - classes.smoothing) * classes.weight_of(class)) * ((top - logit) + log_sum);
                if classes.smoothing == 0.0 {
                    return own;
                }
                let even = match classes.weight {
                    None => sum_by([x], |[x]| (top - x) + log_sum),
                    Some(weight) => x
                        .iter()
                        .zip(weight)
                        .fold(C::ZERO, |sum, (&x, &weight)| sum + C::lit(weight) * ((top - x) + log_sum)),
                };
                own + C::lit(classes.smoothing / x.len() as f64) * even
            });
            // SAFETY: the pieces of different threads have different rows; both are of the compute dtype.
            unsafe {
                stats.row(at, &mut unused).copy_from_slice(&[top, C::lit(1.0) / sum]);
                loss.row(at, &mut unused).fill(value.unwrap_or(C::ZERO));
            }
        }
    }
}

/// The gradient of `logits` `[R, C]` into `out`, from `stats` and the cotangent `g` of the losses, of shape `[R, 1]`
/// (possibly with stride 0): the softmax minus the target, times `g`. Without `logits`, `out` holds them.
pub(crate) fn backward(
    op: &'static str,
    logits: Option<View<'_>>,
    targets: Targets<'_>,
    stats: View<'_>,
    g: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let classes = TargetSlices::new(op, &targets)?;
    match out.dtype.compute_dtype() {
        DType::F32 => backward_as::<f32>(logits.as_ref(), classes, &stats, &g, out),
        DType::F64 => backward_as::<f64>(logits.as_ref(), classes, &stats, &g, out),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    }
    Ok(())
}

fn backward_as<C: Float>(
    logits: Option<&View<'_>>,
    classes: TargetSlices<'_>,
    stats: &View<'_>,
    g: &View<'_>,
    out: &mut ViewMut<'_>,
) {
    let (count, len) = (out.layout.shape()[0], out.layout.shape()[1]);
    let (x, stats, g) = (logits.map(MatrixRows::<C>::new), MatrixRows::<C>::new(stats), MatrixRows::<C>::new(g));
    let large = out.layout.numel() * size_of::<C>() >= streaming::LARGE;
    let out = MatrixRowsMut::<C>::new(out, len);
    parallel(count, rows_per_piece(len), |rows| {
        dispatch(Backward { x: x.as_ref(), classes, stats: &stats, g: &g, out: &out, large, rows });
    });
}

struct Backward<'a, C> {
    x: Option<&'a MatrixRows<'a, C>>,
    classes: TargetSlices<'a>,
    stats: &'a MatrixRows<'a, C>,
    g: &'a MatrixRows<'a, C>,
    out: &'a MatrixRowsMut<'a, C>,
    large: bool,
    rows: Range<usize>,
}

impl<C: Float> Job for Backward<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Backward { x, classes, stats, g, out, large, rows } = self;
        let [mut scratch, mut result, mut small, mut one] = [const { Vec::new() }; 4];
        for at in rows {
            let (stats, g) = (stats.row(at, &mut small), g.row(at, &mut one));
            let x = x.map(|x| x.row(at, &mut scratch));
            // SAFETY: the pieces of different threads have different rows. Without logits, `out` holds them.
            let out_row =
                unsafe { if x.is_some() { out.row(at, &mut result) } else { out.row_as_it_is(at, &mut result) } };
            match classes.class(at).zip(stats.first().zip(stats.get(1))).zip(g.first()) {
                None => out_row.fill(C::ZERO),
                Some(((class, (&top, &inverse)), &g)) => {
                    let own = (1.0 - classes.smoothing) * classes.weight_of(class);
                    let even = classes.smoothing / out_row.len() as f64;
                    let weights = classes.weight.map_or(out_row.len() as f64, |weight| weight.iter().sum());
                    let scale = g * C::lit(own + even * weights) * inverse;
                    match x {
                        Some(x) => scaled_exponentials::<C, FMA>(x, top, scale, large && even == 0.0, out_row),
                        None => {
                            for x in out_row.iter_mut() {
                                *x = (*x - top).exp_nonpositive::<FMA>() * scale;
                            }
                        }
                    }
                    if even != 0.0 {
                        for (class, out) in out_row.iter_mut().enumerate() {
                            *out = *out - g * C::lit(even * classes.weight_of(class));
                        }
                    }
                    if let Some(out) = out_row.get_mut(class) {
                        *out = *out - g * C::lit(own);
                    }
                }
            }
            // SAFETY: as above.
            unsafe { out.done(at, &result) };
        }
        streaming::fence();
    }
}

/// `exp(x - top) · scale`, with non-temporal stores if the whole output is large: the row would be evicted from the
/// caches before it is read again.
#[inline(always)]
fn scaled_exponentials<C: Float, const FMA: bool>(x: &[C], top: C, scale: C, large: bool, out: &mut [C]) {
    // Tiles start at cache lines of the output.
    let plain = if large { streaming::until_line(out).min(x.len()) } else { out.len() };
    let ((near, far), (near_x, far_x)) = (out.split_at_mut(plain), x.split_at(plain));
    for (out, &x) in zip(&mut near[..], near_x) {
        *out = (x - top).exp_nonpositive::<FMA>() * scale;
    }
    const TILE: usize = 256;
    let mut tile = [C::ZERO; TILE];
    for start in (0..far.len()).step_by(TILE) {
        let end = far.len().min(start + TILE);
        let (out, x) = (&mut far[start..end], &far_x[start..end]);
        let tile = &mut tile[..x.len()];
        for (tile, &x) in zip(&mut tile[..], x) {
            *tile = (x - top).exp_nonpositive::<FMA>() * scale;
        }
        streaming::copy(tile, out, &[x.as_ptr().wrapping_add(4 * TILE)]);
    }
}
