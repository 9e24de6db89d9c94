//! Normalization over some dimensions, with one backward rule.

mod on_cpu;
#[cfg(feature = "cuda")]
mod on_gpu;

use super::rows::Rows;
use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::layout::Dims;
use crate::ops::elementwise::call::common_dtype;
use crate::options::VarOptions;
use crate::{DType, Result, Shape, Tensor, keepdim};
use smallvec::{SmallVec, smallvec};

/// A result that is to be cast to `dtype`, and its statistics in the dtype `wide`.
pub(super) struct Computed {
    pub(super) y: Tensor,
    pub(super) mean: Option<Tensor>,
    pub(super) var: Tensor,
    pub(super) dtype: DType,
    pub(super) wide: DType,
}

/// A normalization: `(x - mean) / sqrt(var + eps) · weight + bias`, with the statistics over some dimensions. The
/// weight and the bias have the rank of `x`.
pub(super) struct Norm {
    pub(super) op: &'static str,
    pub(super) over: Vec<usize>,
    pub(super) eps: f64,
    /// Whether the mean is subtracted; else the variance is the mean square.
    pub(super) centred: bool,
}

impl Norm {
    pub(super) fn dims(dims: &[usize]) -> Dims {
        Dims { named: Some(dims.iter().map(|&d| d as isize).collect()) }
    }

    /// The mean and the variance, or the mean square.
    pub(super) fn stats(&self, x: &Tensor) -> Result<(Option<Tensor>, Tensor)> {
        let over = keepdim(Norm::dims(&self.over));
        if !self.centred {
            return Ok((None, x.square()?.mean(over)?));
        }
        let (var, mean) = x.var_mean_with(over, VarOptions::new().correction(0.0))?;
        Ok((Some(mean), var))
    }

    pub(super) fn scale(&self, var: &Tensor) -> Result<Tensor> {
        var.add(self.eps)?.rsqrt()
    }

    /// The result, in the compute dtype.
    pub(super) fn value(
        &self,
        x: &Tensor,
        (mean, var): (Option<&Tensor>, &Tensor),
        affine: [Option<&Tensor>; 2],
    ) -> Result<Tensor> {
        let centred = mean.map_or_else(|| Ok(x.clone()), |mean| x.sub(mean))?;
        let mut y = centred.mul(&self.scale(var)?)?;
        if let Some(weight) = affine[0] {
            y = y.mul(weight)?;
        }
        affine[1].map_or(Ok(y.clone()), |bias| y.add(bias))
    }

    /// The result, with one backward rule for the whole: three passes over the elements instead of the nine that the
    /// rules of its operations would take.
    #[track_caller]
    pub(super) fn run(self, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
        if let Some(rows) = Rows::of(&self, x, weight, bias) {
            return self.run_rows(rows, x, weight, bias);
        }
        let Computed { y, mean, var, dtype, wide } = self.compute(x, weight, bias)?;
        let inputs: SmallVec<[&Tensor; 3]> = [Some(x), weight, bias].into_iter().flatten().collect();
        y.to_dtype(dtype)?.record(self.op, &inputs, |save| {
            let (mean, var) = (mean.as_ref().map(|mean| save.save(mean)), save.save(&var));
            let (x, weight) = (save.save(x), weight.map(|weight| save.save(weight)));
            let bias = bias.map(|bias| bias.layout().shape().clone());
            move |ctx: &BackwardContext, g: &Tensor| {
                self.grads(ctx, &x, g, (mean.as_ref(), &var), weight.as_ref(), bias.as_ref(), wide)
            }
        })
    }

    /// The result and its statistics, not recorded in the graph.
    pub(super) fn compute(&self, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Computed> {
        let mut dtype = x.dtype();
        for t in [weight, bias].into_iter().flatten() {
            dtype = common_dtype(self.op, dtype, t.dtype())?;
        }
        let wide = dtype.compute_dtype();
        if !x.layout().is_non_overlapping() {
            // An expanded tensor may be larger than memory: the allocation fails before a pass over all of it.
            Tensor::empty(self.op, x.layout().shape().clone(), dtype, x.device())?;
        }
        #[cfg(feature = "cuda")]
        if let Some((y, mean, var)) = self.on_gpu(x, [weight, bias], dtype)? {
            return Ok(Computed { y, mean: Some(mean), var, dtype, wide });
        }
        let plain = |t: &Tensor| t.detach().to_dtype(wide);
        let (mean, var) = match self.stats_on_cpu(x)? {
            Some((mean, var)) if mean.dtype() == wide => (Some(mean), var),
            _ => self.stats(&plain(x)?)?,
        };
        let affine = [weight.map(plain).transpose()?, bias.map(plain).transpose()?];
        let y = self.value(&plain(x)?, (mean.as_ref(), &var), [affine[0].as_ref(), affine[1].as_ref()])?;
        Ok(Computed { y, mean, var, dtype, wide })
    }

    /// The gradients of `x`, of the weight if there is one, and of the bias if its shape is given.
    pub(super) fn grads(
        &self,
        ctx: &BackwardContext,
        x: &Tensor,
        g: &Tensor,
        (mean, var): (Option<&Tensor>, &Tensor),
        weight: Option<&Tensor>,
        bias: Option<&Shape>,
        wide: DType,
    ) -> Result<Grads> {
        #[cfg(feature = "cuda")]
        if let Some(grads) = self.grads_on_gpu(ctx, x, g, (mean, var), weight, bias)? {
            return Ok(grads);
        }
        if let Some(mean) = mean
            && let Some(grads) = self.grads_on_cpu(ctx, x, g, (mean, var), weight, bias)?
        {
            return Ok(grads);
        }
        let (x, g) = (&x.to_dtype(wide)?, &g.to_dtype(wide)?);
        let weight = weight.map(|weight| weight.to_dtype(wide)).transpose()?;
        let weight = weight.as_ref();
        // In a recorded backward pass the statistics are functions of the elements.
        let (mean, var) = if is_grad_enabled() { self.stats(x)? } else { (mean.cloned(), var.clone()) };
        let (mean, var) = (mean.as_ref(), &var);
        let scale = self.scale(var)?;
        let centred = mean.map_or_else(|| Ok(x.clone()), |mean| x.sub(mean))?;
        let normalised = centred.mul(&scale)?;
        // First over the dimensions in which the weight has size 1: they give the gradients of weight and bias.
        let differs =
            |d: usize| weight.map(|weight| weight.layout().shape()).or(bias).is_some_and(|shape| shape[d] != 1);
        let (rest, first): (Vec<usize>, Vec<usize>) = self.over.iter().copied().partition(|&d| differs(d));
        let sum = |t: &Tensor, over: &[usize]| {
            if over.is_empty() { Ok(t.clone()) } else { t.sum(keepdim(Norm::dims(over))) }
        };
        let along = sum(&g.mul(&normalised)?, &first)?;
        let total = if mean.is_some() || bias.is_some() { Some(sum(g, &first)?) } else { None };
        let mut grads: Grads = smallvec![None];
        if ctx.needs(0) {
            let count = self.over.iter().map(|&d| x.shape()[d]).product::<usize>() as f64;
            let part = |t: &Tensor| -> Result<Tensor> {
                let t = weight.map_or(Ok(t.clone()), |weight| t.mul(weight))?;
                sum(&t, &rest)?.div(count)
            };
            let scaled = weight.map_or(Ok(g.clone()), |weight| g.mul(weight))?;
            let less = normalised.mul(&part(&along)?)?;
            let less = match &total {
                Some(total) if mean.is_some() => less.add(&part(total)?)?,
                _ => less,
            };
            grads[0] = Some(scaled.sub(&less)?.mul(&scale)?);
        }
        // The engine sums these to the shapes of the weight and the bias.
        if weight.is_some() {
            grads.push(Some(along));
        }
        if bias.is_some() {
            grads.push(total);
        }
        Ok(grads)
    }
}
