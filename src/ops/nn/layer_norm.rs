//! Layer normalization.

use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::error::bail;
use crate::layout::Dims;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Device, Result, Shape, Tensor, backend, keepdim};
use smallvec::{SmallVec, smallvec};

options! {
    /// The options of [`Tensor::layer_norm_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::LayerNormOptions};
    /// let (x, weight) = (Tensor::randn([2, 8])?, Tensor::full([8], 2.0)?);
    /// let y = x.layer_norm_with(8, LayerNormOptions::new().weight(&weight).eps(1e-6))?;
    /// assert_eq!(y.shape(), [2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LayerNormOptions<'a> {
        /// The scale, of shape `normalized_shape`.
        weight: Option<&'a Tensor> = None,
        /// The offset, added after scaling, of shape `normalized_shape`.
        bias: Option<&'a Tensor> = None,
        /// Added to the variance for numerical stability.
        eps: f64 = 1e-5,
    }
}

/// # Layer normalization
#[ops]
impl Tensor {
    /// Layer normalization: `(x - mean) / sqrt(variance + eps) · weight + bias`, with the mean and the population
    /// variance over the last dimensions, whose shape is `normalized_shape`. `weight` and `bias` have that shape; `eps`
    /// is 1e-5 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::LayerNormOptions};
    /// let x = tensor!([[1.0, 3.0], [10.0, 30.0]])?;
    /// assert!(x.layer_norm([2])?.allclose_with(&tensor!([[-1.0, 1.0], [-1.0, 1.0]])?, (0.0, 1e-5))?);
    /// let bias = tensor!([0.0, 5.0])?;
    /// let y = x.layer_norm_with([2], LayerNormOptions::new().bias(&bias).eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 6.0, -1.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, or the tensor is not of floating point.
    #[op(autocast_cuda = f32, samples = layer_norm_samples, errors = layer_norm_errors)]
    pub fn layer_norm<'a>(
        &self,
        normalized_shape: impl Into<Shape>,
        options: impl Into<LayerNormOptions<'a>>,
    ) -> Result<Tensor> {
        let (normalized, LayerNormOptions { weight, bias, eps }) = (normalized_shape, options);
        if normalized.is_empty() || !self.shape().ends_with(&normalized) {
            bail!(
                Shape,
                "layer_norm",
                "normalized_shape must match the last dimensions of input shape {:?}, got {normalized:?}",
                self.shape()
            );
        }
        for (what, t) in [("weight", weight), ("bias", bias)] {
            if let Some(t) = t.filter(|t| *t.shape() != *normalized) {
                bail!(Shape, "layer_norm", "{what} must have shape {normalized:?}, got {:?}", t.shape());
            }
        }
        float_only("layer_norm", self)?;
        let mut dtype = self.dtype();
        for t in [weight, bias].into_iter().flatten() {
            dtype = common_dtype("layer_norm", dtype, t.dtype())?;
        }
        let x = self.to_dtype(dtype)?;
        if [Some(self), weight, bias].into_iter().flatten().any(Tensor::is_batched) {
            let plain = |x: &Tensor| norm(x, &normalized, None, None, eps);
            let scaled =
                x.with_examples(plain).unwrap_or_else(|| plain(&x))?.mul(weight.map_or(1.0.into(), Operand::from))?;
            return scaled.add(bias.map_or(0.0.into(), Operand::from));
        }
        let [weight, bias] = [weight, bias].map(|t| t.map(|t| t.to_dtype(dtype)).transpose());
        norm(&x, &normalized, weight?.as_ref(), bias?.as_ref(), eps)
    }
}

/// The input as a matrix whose rows are normalised.
fn rows(x: &Tensor, len: usize) -> Result<Tensor> {
    x.detach().reshape([x.numel() / len.max(1), len])
}

/// A weight or bias as the kernels take it: in the compute dtype on the CPU, in its own dtype on a GPU.
fn as_kernel_input(t: &Tensor, compute: DType) -> Result<Tensor> {
    let dtype = if t.device() == Device::Cpu { compute } else { t.dtype() };
    t.detach().to_dtype(dtype)?.contiguous()
}

#[track_caller]
fn norm(x: &Tensor, normalized: &Shape, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let (len, compute) = (normalized.numel(), x.dtype().compute_dtype());
    let input = rows(x, len)?;
    let [w, b] = [weight, bias].map(|t| t.map(|t| as_kernel_input(t, compute)).transpose());
    let (w, b) = (w?, b?);
    let mut stats = Tensor::empty("layer_norm", [input.shape()[0], 2].into(), compute, x.device())?;
    let out = Tensor::build("layer_norm", x.layout().shape().clone(), x.dtype(), x.device(), |out| {
        let (w, b) = (w.as_ref().map(Tensor::as_view).transpose()?, b.as_ref().map(Tensor::as_view).transpose()?);
        backend::layer_norm("layer_norm", input.as_view()?, [w, b], eps, &mut stats.as_view_mut("layer_norm")?, out)
    })?;
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), weight, bias].into_iter().flatten().collect();
    out.record("layer_norm", &inputs, |save| {
        let (weighted, biased) = (weight.is_some(), bias.is_some());
        // The gradient of the bias alone needs only the cotangent.
        let needed = save.needs(0) || (weighted && save.needs(1));
        let kept = needed.then(|| (save.save(x), save.save(&stats)));
        let kept_weight = weight.filter(|_| save.needs(0)).map(|w| save.save(w));
        let (last, normalized) = (inputs.len() - 1, normalized.clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            // The engine sums the cotangent to the bias's shape, unless the kernel has already computed that sum.
            let mut grads: Grads = smallvec![None; last + 1];
            if biased {
                grads[last] = Some(g.clone());
            }
            let Some((x, stats)) = &kept else { return Ok(grads) };
            let want = Want { x: ctx.needs(0), weight: weighted && ctx.needs(1), bias: biased && ctx.needs(last) };
            if is_grad_enabled() || g.is_batched() {
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

/// Which gradients are needed.
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
    let weight = weight.map(|w| as_kernel_input(w, stats.dtype())).transpose()?;
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
    let sums = sums.map(|sums| sums.sum(0)).transpose()?;
    let total = |wanted: bool, which: isize| {
        let sums = sums.as_ref().filter(|_| wanted);
        sums.map(|sums| sums.select(0, which)?.reshape(normalized)).transpose()
    };
    Ok(Fused { weight: total(want.weight, 0)?, bias: total(want.bias, 1)?, x: x_grad })
}

type Pair = (Option<Tensor>, Option<Tensor>);

/// The gradients of the kernel as tensor operations. The engine sums the weight's cotangent to its shape.
fn plain_grad(x: &Tensor, g: &Tensor, weight: Option<&Tensor>, dims: usize, eps: f64, want: Want) -> Result<Pair> {
    let last = Dims { named: Some((1..=dims as isize).map(|d| -d).collect()) };
    let mean = |t: &Tensor| t.mean(keepdim(last.clone()));
    let (x, g) = (x.to_dtype(x.dtype().compute_dtype())?, g.to_dtype(g.dtype().compute_dtype())?);
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

fn layer_norm_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize]); 7] = [
        (&[4, 6], &[6]),
        (&[2, 3, 4], &[4]),
        (&[2, 3, 4], &[3, 4]),
        (&[5], &[5]),
        (&[2, 2, 2, 3], &[2, 2, 3]),
        (&[0, 3], &[3]),
        (&[0, 2], &[0, 2]),
    ];
    let mut all = Vec::new();
    for (shape, normalized) in shapes {
        let (x, w, b) = (normal(shape, 1)?, normal(normalized, 2)?, normal(normalized, 3)?);
        all.push(sample![&x, normalized]);
        all.push(sample![&x, normalized; weight = &w, eps = 0.1]);
        all.push(sample![&x, normalized; bias = &b, eps = 0.1]);
        all.push(sample![x, normalized, w, b]);
    }
    Ok(all)
}

fn layer_norm_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another size", "[2, 3]", "[2]"; sample![&x, [2]]],
        error!["no size", "[2, 3]", "[]"; sample![&x, []]],
        error!["more dimensions", "[2, 3]", "[1, 2, 3]"; sample![&x, [1, 2, 3]]],
        error!["another weight", "weight", "[2]", "[3]"; sample![&x, [3]; weight = normal([2], 2)?]],
        error!["another bias", "bias", "[1, 3]", "[3]"; sample![&x, [3]; bias = normal([1, 3], 2)?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([3], DType::I64)?, [3]]],
    ])
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
