//! Batch normalization on the CPU: a channel is read from memory once for its statistics, and once for the gradients.

use super::Norm;
use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend;
use crate::{Device, Result, Shape, Tensor};
use smallvec::smallvec;

impl Norm {
    /// The elements as one row per example and channel, and the shape of the statistics; `None` if the statistics are
    /// not those of channels.
    fn by_channels(&self, x: &Tensor) -> Option<(Tensor, Shape)> {
        let shape = x.shape();
        let over = (0..shape.len()).filter(|&d| d != 1);
        let elsewhere = x.device() != Device::Cpu || x.is_batched() || !x.dtype().is_float();
        if elsewhere || !self.centred || shape.len() < 3 || !over.eq(self.over.iter().copied()) || x.numel() == 0 {
            return None;
        }
        let (count, channels) = (shape[0] * shape[1], shape[1]);
        let len = x.numel() / count;
        if len == 1 {
            // The channels are columns of a matrix, which the reductions read row by row.
            return None;
        }
        let kept = (0..shape.len()).map(|d| if d == 1 { channels } else { 1 }).collect();
        Some((x.detach().with_layout(x.layout().reshape(&[count, len].into())?), kept))
    }

    /// The mean and the variance.
    pub(super) fn stats_on_cpu(&self, x: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
        let Some((rows, kept)) = self.by_channels(x) else { return Ok(None) };
        let mut stats = Tensor::empty(self.op, [x.shape()[1], 2].into(), x.dtype().compute_dtype(), Device::Cpu)?;
        let (rows, to) = (rows.as_view()?, &mut stats.as_view_mut(self.op)?);
        backend::batch_norm_stats(self.op, rows, to)?;
        Ok(Some((stats.select(1, 0)?.reshape(&kept)?, stats.select(1, 1)?.reshape(&kept)?)))
    }

    /// As [`grads`](Self::grads); `None` if the backward pass is recorded or the kernel does not support the operands.
    pub(super) fn grads_on_cpu(
        &self,
        ctx: &BackwardContext,
        x: &Tensor,
        g: &Tensor,
        (mean, var): (&Tensor, &Tensor),
        weight: Option<&Tensor>,
        bias: Option<&Shape>,
    ) -> Result<Option<Grads>> {
        let batched = [Some(g), Some(mean), Some(var), weight].into_iter().flatten().any(Tensor::is_batched);
        let Some((rows, kept)) = self.by_channels(x).filter(|_| !is_grad_enabled() && !batched) else {
            return Ok(None);
        };
        let affine = [weight.map(|weight| weight.layout().shape()), bias];
        if x.dtype().compute_dtype() != mean.dtype() || affine.into_iter().flatten().any(|shape| *shape != kept) {
            return Ok(None);
        }
        let (channels, wide) = (kept[1], mean.dtype());
        let ones = || Tensor::ones_with([channels], wide);
        let numbers = [
            mean.reshape([channels])?,
            self.scale(var)?.reshape([channels])?,
            weight.map_or_else(ones, |weight| weight.detach().to_dtype(wide)?.reshape([channels]))?,
        ];
        let numbers = Tensor::stack(&numbers, 1)?;
        let g = g.reshape(rows.shape())?;
        let mut sums = Tensor::empty(self.op, [channels, 2].into(), wide, Device::Cpu)?;
        let inputs = [rows.as_view()?, g.as_view()?, numbers.as_view()?];
        let mut grads: Grads = smallvec![None];
        if ctx.needs(0) {
            grads[0] = Some(Tensor::build(self.op, x.layout().shape().clone(), wide, Device::Cpu, |out| {
                let sums = &mut sums.as_view_mut(self.op)?;
                backend::batch_norm_backward(self.op, inputs, Some(out), sums)
            })?);
        } else {
            let sums = &mut sums.as_view_mut(self.op)?;
            backend::batch_norm_backward(self.op, inputs, None, sums)?;
        }
        if weight.is_some() {
            grads.push(Some(sums.select(1, 0)?.reshape(&kept)?));
        }
        if bias.is_some() {
            grads.push(Some(sums.select(1, 1)?.reshape(&kept)?));
        }
        Ok(Some(grads))
    }
}
