//! Normalisation and dropout.

use super::binary::common_dtype;
use super::formula::Real;
use super::map::map_alike;
use super::sample::{ErrorCase, Op, Sample, normal};
use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend::cpu::elementwise::map::{Floats, Formula};
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::{self, Draw};
use crate::error::bail;
use crate::layout::Shape;
use crate::{DType, Device, Generator, Result, Tensor, random};
use smallvec::{SmallVec, smallvec};

impl Tensor {
    /// `(x - mean) / sqrt(variance + eps) · weight + bias`, with the mean and the variance (of the population) over the
    /// last dimensions, which `normalized_shape` names. `weight` and `bias` have that shape.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 3.0], [10.0, 30.0]])?;
    /// assert_eq!(x.layer_norm([2], None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, or the tensor is not of floating point.
    #[track_caller]
    pub fn layer_norm(
        &self,
        normalized_shape: impl Into<Shape>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let normalized = normalized_shape.into();
        if normalized.is_empty() || !self.shape().ends_with(&normalized) {
            bail!(Shape, "layer_norm", "an input of shape {:?} does not end with {normalized:?}", self.shape());
        }
        for (what, t) in [("weight", weight), ("bias", bias)] {
            if let Some(t) = t.filter(|t| *t.shape() != *normalized) {
                bail!(Shape, "layer_norm", "a {what} of shape {:?} does not fit {normalized:?}", t.shape());
            }
        }
        if !self.dtype().is_float() {
            bail!(DType, "layer_norm", "not defined for {}: cast to a float with to_dtype first", self.dtype());
        }
        let mut dtype = self.dtype();
        for t in [weight, bias].into_iter().flatten() {
            dtype = common_dtype("layer_norm", dtype, t.dtype())?;
        }
        let x = self.to_dtype(dtype)?;
        let [weight, bias] = [weight, bias].map(|t| t.map(|t| t.to_dtype(dtype)).transpose());
        norm(&x, &normalized, weight?.as_ref(), bias?.as_ref(), eps)
    }

    /// In training, zero with probability `p` for each element by itself, and the others scaled by `1 / (1 - p)`, so
    /// that the mean stays. Otherwise the tensor as it is. The random numbers are those of
    /// [`manual_seed`](crate::manual_seed) or [`with_generator`](crate::with_generator).
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([100])?;
    /// assert!(x.dropout(0.5, true)?.to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
    /// assert!(x.dropout(0.5, false)?.is_same(&x));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or the tensor is not of floating point.
    #[track_caller]
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            bail!(Value, "dropout", "a probability of {p} is not between 0 and 1");
        }
        if !self.dtype().is_float() {
            bail!(DType, "dropout", "not defined for {}: cast to a float with to_dtype first", self.dtype());
        }
        if !training || p == 0.0 {
            return Ok(self.clone());
        }
        let mut mask = Tensor::empty("dropout", self.layout().shape().clone(), DType::Bool, self.device())?;
        let (seed, offset) = random::next_range(random::counters(self.numel() as u64, random::PER_COUNTER_32));
        let kept = Draw::Booleans(random::greatest_yes(1.0 - p));
        backend::draw("dropout", kept, (seed, offset), &mut mask.as_view_mut("dropout")?)?;
        masked(self, &mask, 1.0 / (1.0 - p))
    }
}

/// Rows of the normalised elements.
fn rows(x: &Tensor, len: usize) -> Result<Tensor> {
    x.detach().reshape([x.numel() / len.max(1), len])
}

/// A weight or a bias as the kernels take it: the CPU's in the compute dtype, those of a GPU as it is.
fn beside(t: &Tensor, compute: DType) -> Result<Tensor> {
    let dtype = if t.device() == Device::Cpu { compute } else { t.dtype() };
    t.detach().to_dtype(dtype)?.contiguous()
}

#[track_caller]
fn norm(x: &Tensor, normalized: &Shape, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let (len, compute) = (normalized.numel(), compute_dtype(x.dtype()));
    let input = rows(x, len)?;
    let [w, b] = [weight, bias].map(|t| t.map(|t| beside(t, compute)).transpose());
    let (w, b) = (w?, b?);
    let mut stats = Tensor::empty("layer_norm", [input.shape()[0], 2].into(), compute, x.device())?;
    let out = Tensor::build("layer_norm", x.layout().shape().clone(), x.dtype(), x.device(), |out| {
        let (w, b) = (w.as_ref().map(Tensor::as_view).transpose()?, b.as_ref().map(Tensor::as_view).transpose()?);
        backend::layer_norm("layer_norm", input.as_view()?, [w, b], eps, &mut stats.as_view_mut("layer_norm")?, out)
    })?;
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), weight, bias].into_iter().flatten().collect();
    out.record("layer_norm", &inputs, |save| {
        let (weighted, biased) = (weight.is_some(), bias.is_some());
        // A bias alone asks for nothing but the cotangent.
        let needed = save.needs(0) || (weighted && save.needs(1));
        let kept = needed.then(|| (save.save(x), save.save(&stats)));
        let kept_weight = weight.filter(|_| save.needs(0)).map(|w| save.save(w));
        let (last, normalized) = (inputs.len() - 1, normalized.clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            // The engine sums the cotangent to the bias's shape, unless the kernel has done so on its way.
            let mut grads: Grads = smallvec![None; last + 1];
            if biased {
                grads[last] = Some(g.clone());
            }
            let Some((x, stats)) = &kept else { return Ok(grads) };
            let want = Want { x: ctx.needs(0), weight: weighted && ctx.needs(1), bias: biased && ctx.needs(last) };
            if is_grad_enabled() {
                let (x_grad, weight_grad) = plain_grad(x, g, kept_weight.as_ref(), normalized.len(), eps, want)?;
                grads[0] = x_grad;
                if weighted {
                    grads[1] = weight_grad;
                }
                return Ok(grads);
            }
            let fused = fused_grad(x, g, stats, kept_weight.as_ref(), &normalized, want)?;
            grads[0] = fused.x;
            if weighted {
                grads[1] = fused.weight;
            }
            if fused.bias.is_some() {
                grads[last] = fused.bias;
            }
            Ok(grads)
        }
    })
}

/// Which gradients are asked for.
#[derive(Clone, Copy)]
struct Want {
    x: bool,
    weight: bool,
    bias: bool,
}

struct Fused {
    x: Option<Tensor>,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
}

fn fused_grad(
    x: &Tensor,
    g: &Tensor,
    stats: &Tensor,
    weight: Option<&Tensor>,
    normalized: &Shape,
    want: Want,
) -> Result<Fused> {
    let (op, len) = ("layer_norm", normalized.numel());
    let (input, g) = (rows(x, len)?, rows(g, len)?);
    let weight = weight.map(|w| beside(w, stats.dtype())).transpose()?;
    let pieces = backend::layer_norm_pieces(x.device(), input.shape()[0], len);
    let empty = |wanted: bool, shape: Shape, dtype: DType| {
        wanted.then(|| Tensor::empty(op, shape, dtype, x.device())).transpose()
    };
    let mut x_grad = empty(want.x, x.layout().shape().clone(), x.dtype())?;
    let mut sums = empty(want.weight || want.bias, [pieces, 2, len].into(), stats.dtype())?;
    let (mut to_x, mut to_sums) = (
        x_grad.as_mut().map(|t| t.as_view_mut(op)).transpose()?,
        sums.as_mut().map(|t| t.as_view_mut(op)).transpose()?,
    );
    let w = weight.as_ref().map(Tensor::as_view).transpose()?;
    let views = [input.as_view()?, g.as_view()?, stats.as_view()?];
    backend::layer_norm_backward(op, views, w, to_x.as_mut(), to_sums.as_mut())?;
    let sums = sums.map(|sums| sums.sum_dim(0, false)).transpose()?;
    let total = |wanted: bool, which: isize| {
        let sums = sums.as_ref().filter(|_| wanted);
        sums.map(|sums| sums.select(0, which)?.reshape(normalized)).transpose()
    };
    Ok(Fused { weight: total(want.weight, 0)?, bias: total(want.bias, 1)?, x: x_grad })
}

type Pair = (Option<Tensor>, Option<Tensor>);

/// What the kernel computes, in tensor operations; the engine sums the weight's cotangent to its shape.
fn plain_grad(x: &Tensor, g: &Tensor, weight: Option<&Tensor>, dims: usize, eps: f64, want: Want) -> Result<Pair> {
    let last: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
    let mean = |t: &Tensor| t.mean_dim(&last, true);
    let (x, g) = (x.to_dtype(compute_dtype(x.dtype()))?, g.to_dtype(compute_dtype(g.dtype()))?);
    let centred = x.sub(mean(&x)?)?;
    let inverse = mean(&centred.square()?)?.add(eps)?.sqrt()?.reciprocal()?;
    let normalised = centred.mul(&inverse)?;
    let weight_grad = want.weight.then(|| g.mul(&normalised)).transpose()?;
    let to_x = || {
        let g = weight.map_or(Ok(g.clone()), |w| g.mul(w))?;
        let along_x = normalised.mul(mean(&g.mul(&normalised)?)?)?;
        g.sub(mean(&g)?)?.sub(along_x)?.mul(&inverse)
    };
    Ok((want.x.then(to_x).transpose()?, weight_grad))
}

/// `x · scale` where the mask says so, else 0.
#[derive(Clone, Copy)]
struct Masked(f64);

impl<T: Real> Formula<T, 2> for Masked {
    #[inline(always)]
    fn at(&self, [x, mask]: [T; 2]) -> T {
        mask.if_above(0.5, x * T::lit(self.0), T::lit(0.0))
    }
}

/// [`Masked`] with its derivative, which is the same again.
#[track_caller]
fn masked(x: &Tensor, mask: &Tensor, scale: f64) -> Result<Tensor> {
    let out = map_alike("dropout", Floats(Masked(scale)), x.dtype(), [x, mask], x.dtype())?;
    out.record("dropout", &[x], |save| {
        let mask = save.save(mask);
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(masked(g, &mask, scale)?)])
    })
}

static LAYER_NORM: Op = Op {
    name: "layer_norm",
    samples: || {
        let shapes: [(&[usize], &[usize]); 6] = [
            (&[4, 6], &[6]),
            (&[2, 3, 4], &[4]),
            (&[2, 3, 4], &[3, 4]),
            (&[5], &[5]),
            (&[2, 2, 2, 3], &[2, 2, 3]),
            (&[0, 3], &[3]),
        ];
        let mut all = Vec::new();
        for (shape, normalized) in shapes {
            let (x, w, b) = (normal(shape, 1)?, normal(normalized, 2)?, normal(normalized, 3)?);
            all.push(Sample::new("plain", vec![x.clone()], move |x| x[0].layer_norm(normalized, None, None, 1e-5)));
            all.push(Sample::new("with a weight", vec![x.clone(), w.clone()], move |x| {
                x[0].layer_norm(normalized, Some(&x[1]), None, 0.1)
            }));
            all.push(Sample::new("with a bias", vec![x.clone(), b.clone()], move |x| {
                x[0].layer_norm(normalized, None, Some(&x[1]), 0.1)
            }));
            all.push(Sample::new("with both", vec![x, w, b], move |x| {
                x[0].layer_norm(normalized, Some(&x[1]), Some(&x[2]), 1e-5)
            }));
        }
        Ok(all)
    },
    error_cases: || {
        let call = |label: &str,
                    message: &[&str],
                    x: Tensor,
                    normalized: &'static [usize],
                    w: Option<Tensor>,
                    b: Option<Tensor>| {
            ErrorCase::new(label, message, move || x.layer_norm(normalized, w.as_ref(), b.as_ref(), 1e-5))
        };
        let x = normal([2, 3], 1)?;
        Ok(vec![
            call("another size", &["layer_norm", "[2, 3]", "[2]"], x.clone(), &[2], None, None),
            call("no size", &["layer_norm", "[2, 3]", "[]"], x.clone(), &[], None, None),
            call("more dimensions", &["layer_norm", "[2, 3]", "[1, 2, 3]"], x.clone(), &[1, 2, 3], None, None),
            call(
                "another weight",
                &["layer_norm", "weight", "[2]", "[3]"],
                x.clone(),
                &[3],
                Some(normal([2], 2)?),
                None,
            ),
            call("another bias", &["layer_norm", "bias", "[1, 3]", "[3]"], x, &[3], None, Some(normal([1, 3], 2)?)),
            call("integers", &["layer_norm", "i64"], Tensor::zeros_with([3], DType::I64)?, &[3], None, None),
        ])
    },
};

static DROPOUT: Op = Op {
    name: "dropout",
    samples: || {
        // With a generator of its own each call drops the same elements.
        let call =
            |p: f64| move |x: &[Tensor]| crate::with_generator(&mut Generator::seed(5), || x[0].dropout(p, true));
        Ok(vec![
            Sample::new("half of them", vec![normal([4, 5], 1)?], call(0.5)),
            Sample::new("few of them", vec![normal([2, 3, 4], 2)?], call(0.1)),
            Sample::new("none of them", vec![normal([3], 3)?], call(0.0)),
            Sample::new("all of them", vec![normal([3], 4)?], call(1.0)).with_zero_derivative(),
            Sample::new("of nothing", vec![normal([0, 3], 5)?], call(0.5)),
            Sample::new("not in training", vec![normal([3], 6)?], |x| x[0].dropout(0.5, false)),
        ])
    },
    error_cases: || {
        let (x, y, z, ints) = (normal([3], 1)?, normal([3], 1)?, normal([3], 1)?, Tensor::zeros_with([3], DType::I64)?);
        Ok(vec![
            ErrorCase::new("more than all", &["dropout", "1.5"], move || x.dropout(1.5, true)),
            ErrorCase::new("less than none", &["dropout", "-0.1"], move || y.dropout(-0.1, false)),
            ErrorCase::new("no number", &["dropout", "NaN"], move || z.dropout(f64::NAN, true)),
            ErrorCase::new("integers", &["dropout", "i64"], move || ints.dropout(0.5, true)),
        ])
    },
};

pub(crate) static OPS: &[&Op] = &[&LAYER_NORM, &DROPOUT];

#[cfg(test)]
mod tests;
