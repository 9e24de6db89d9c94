//! Gradient clipping.

use crate::autograd::no_grad;
use crate::backend::optim_on_cpu::{largest, power_sum};
use crate::error::bail;
use crate::nn::{Module, Parameter};
use crate::options::options;
use crate::{DType, Device, Result, Tensor};
use cotangent_macros::named;

/// Scales all gradients of a model so that their total norm, as of one vector, is at most `max_norm`. Returns the norm before
/// clipping. Gradients within the bound do not change. If the norm is NaN, all gradients become NaN, as in PyTorch.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}, optim::clip_grad_norm};
/// let model = Linear::new(3, 2)?;
/// model.forward(&Tensor::full([4, 3], 100.0)?)?.sum(..)?.backward()?;
/// let before = clip_grad_norm(&model, 1.0)?;
/// assert!(before > 100.0 && clip_grad_norm(&model, 1.0)? < 1.001);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `max_norm` is negative or NaN, or memory runs out; nothing is changed then.
#[doc(alias = "clip_grad_norm_")]
#[named]
pub fn clip_grad_norm(model: &dyn Module, max_norm: f64) -> Result<f64> {
    clip_grad_norm_with(model, max_norm, ClipGradNormOptions::new())
}

options! {
    /// The options of [`clip_grad_norm_with`]. A number can be passed in their place: the order of the norm.
    pub struct ClipGradNormOptions {
        /// The order p of the norm (Σ|g|^p)^(1/p). Infinity gives the largest |g|.
        norm_type: f64 = 2.0,
        /// Whether an infinite or NaN norm is an error.
        error_if_nonfinite: bool = false,
    }
}

impl From<f64> for ClipGradNormOptions {
    fn from(norm_type: f64) -> ClipGradNormOptions {
        ClipGradNormOptions::new().norm_type(norm_type)
    }
}

/// As [`clip_grad_norm`], with options: a norm of another order.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}, optim::clip_grad_norm_with};
/// let model = Linear::new(3, 2)?;
/// model.forward(&Tensor::full([4, 3], 100.0)?)?.sum(..)?.backward()?;
/// clip_grad_norm_with(&model, 1.0, f64::INFINITY)?;
/// assert!(model.weight.grad().map(|g| g.abs()?.max(..)?.item::<f32>()).transpose()?.is_some_and(|most| most <= 1.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`clip_grad_norm`]; also if the order is not positive, or `error_if_nonfinite` is set and the norm is not finite.
#[named("clip_grad_norm")]
pub fn clip_grad_norm_with(model: &dyn Module, max_norm: f64, options: impl Into<ClipGradNormOptions>) -> Result<f64> {
    const OP: &str = "clip_grad_norm";
    let ClipGradNormOptions { norm_type: p, error_if_nonfinite } = options.into();
    if max_norm.is_nan() || max_norm < 0.0 {
        bail!(Value, OP, "max_norm must be ≥ 0, got {max_norm}");
    }
    if p.is_nan() || p <= 0.0 {
        bail!(Value, OP, "norm_type must be > 0, got {p}");
    }
    let parameters = model.parameters();
    let total = total_norm(&parameters, p)?;
    if error_if_nonfinite && !total.is_finite() {
        bail!(Value, OP, "the gradient norm of order {p} must be finite, got {total}");
    }
    // PyTorch's formula, small addend included.
    let factor = max_norm / (total + 1e-6);
    // A NaN norm makes all gradients NaN, as in PyTorch, so that none of them seems to be clipped.
    if factor < 1.0 || factor.is_nan() {
        scale_gradients(OP, &parameters, factor)?;
    }
    Ok(total)
}

/// The 2-norm of all gradients of a model, as of one vector.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}, optim::grad_norm};
/// let model = Linear::new(3, 1)?;
/// model.forward(&Tensor::ones([1, 3])?)?.sum(..)?.backward()?;
/// assert_eq!(grad_norm(&model)?, 2.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If memory runs out.
#[doc(alias = "get_total_norm")]
#[named]
pub fn grad_norm(model: &dyn Module) -> Result<f64> {
    total_norm(&model.parameters(), 2.0)
}

fn total_norm(parameters: &[&Parameter], p: f64) -> Result<f64> {
    let grads: Vec<Tensor> = parameters.iter().filter_map(|t| t.grad()).collect();
    let (here, elsewhere): (Vec<_>, Vec<_>) = grads.iter().partition(|grad| grad.device() == Device::Cpu);
    let mut sums = here.into_iter().map(|grad| powers(grad, p)).collect::<Result<Vec<f64>>>()?;
    sums.extend(powers_on_gpus(&elsewhere, p)?);
    Ok(if p == f64::INFINITY { largest(&sums) } else { sums.iter().sum::<f64>().powf(1.0 / p) })
}

/// Clamps every element of every gradient to `[-clip_value, clip_value]`.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}, optim::clip_grad_value};
/// let model = Linear::new(3, 2)?;
/// model.forward(&Tensor::full([4, 3], 100.0)?)?.sum(..)?.backward()?;
/// clip_grad_value(&model, 0.5)?;
/// assert_eq!(model.weight.grad().map(|g| g.max(..)?.item::<f32>()).transpose()?, Some(0.5));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `clip_value` is negative or NaN, or memory runs out.
#[doc(alias = "clip_grad_value_")]
#[named]
pub fn clip_grad_value(model: &dyn Module, clip_value: f64) -> Result<()> {
    if clip_value.is_nan() || clip_value < 0.0 {
        bail!(Value, "clip_grad_value", "clip_value must be ≥ 0, got {clip_value}");
    }
    let clamp = |grad: Tensor| no_grad(|| grad.clamp(-clip_value, clip_value));
    let parameters = model.parameters();
    let clipped = parameters.iter().map(|t| t.grad().map(clamp).transpose()).collect::<Result<Vec<_>>>()?;
    for (parameter, grad) in parameters.into_iter().zip(clipped) {
        if let Some(grad) = grad {
            parameter.set_grad(&grad)?;
        }
    }
    Ok(())
}

fn powers(grad: &Tensor, p: f64) -> Result<f64> {
    let grad = grad.detach().contiguous()?;
    let grad = if grad.dtype() == DType::F64 { grad } else { grad.to_dtype(DType::F32)? };
    let grad = grad.as_view()?;
    let f32s = grad.as_slice::<f32>().map(|x| power_sum(x, p));
    Ok(f32s.or_else(|| grad.as_slice::<f64>().map(|x| power_sum(x, p))).unwrap_or(0.0))
}

/// As [`powers`], for gradients on GPUs, with one transfer for each GPU.
fn powers_on_gpus(grads: &[&Tensor], p: f64) -> Result<Vec<f64>> {
    let power = |grad: &&Tensor| {
        let grad = grad.detach().to_dtype(if grad.dtype() == DType::F64 { DType::F64 } else { DType::F32 })?;
        match p {
            _ if grad.numel() == 0 => grad.sum(..),
            2.0 => grad.square()?.sum(..),
            f64::INFINITY => grad.abs()?.max(..),
            p => grad.abs()?.pow(p)?.sum(..),
        }
    };
    let sums: Vec<Tensor> = no_grad(|| grads.iter().map(power).collect::<Result<_>>())?;
    let wide = sums.iter().map(|sum| sum.to_dtype(DType::F64)).collect::<Result<Vec<_>>>()?;
    let mut all = Vec::with_capacity(wide.len());
    for on_one in wide.chunk_by(|a, b| a.device() == b.device()) {
        all.extend(Tensor::stack(on_one, 0)?.to_vec::<f64>()?);
    }
    Ok(all)
}

/// Multiplies all gradients in place. They are taken out of their leaves meanwhile, so that there is no second handle to
/// their memory.
pub(super) fn scale_gradients(op: &'static str, parameters: &[&Parameter], factor: f64) -> Result<()> {
    let mut grads: Vec<(&Parameter, Tensor)> =
        parameters.iter().filter_map(|parameter| Some((*parameter, parameter.take_grad()?))).collect();
    // Memory that is also held elsewhere is copied, which may fail, before the first gradient is changed.
    let owned = grads.iter_mut().try_for_each(|(_, grad)| grad.as_view_mut(op).map(drop));
    let scaled = owned.and_then(|()| no_grad(|| grads.iter_mut().try_for_each(|(_, grad)| grad.mul_(factor))));
    for (parameter, grad) in grads {
        parameter.set_grad(&grad)?;
    }
    scaled
}
