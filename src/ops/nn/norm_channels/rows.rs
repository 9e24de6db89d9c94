//! Normalization over contiguous elements on the CPU: a kernel with one pass forward and one backward. It computes the
//! backward rule of [`Norm`], which is used itself if the backward pass is recorded.

use super::norm::Norm;
use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend;
use crate::ops::elementwise::call::common_dtype;
use crate::{DType, Device, Result, Tensor};
use smallvec::{SmallVec, smallvec};

/// The elements as rows, each with its own statistics.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    count: usize,
    len: usize,
    /// The number of channels in a row, each with its own weight and bias.
    each: usize,
}

impl Rows {
    /// `Some` on the CPU if the statistics are over all dimensions behind the second, and the weight and the bias vary
    /// in the second and the third at most.
    pub fn of(norm: &Norm, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Option<Rows> {
        let shape = x.shape();
        let all = || [Some(x), weight, bias].into_iter().flatten();
        if !norm.centred || shape.len() < 3 || norm.over != (2..shape.len()).collect::<Vec<_>>() || x.numel() == 0 {
            return None;
        }
        if all().any(|t| t.device() != Device::Cpu || t.is_batched()) {
            return None;
        }
        let each = weight.or(bias).map_or(1, |t| t.shape()[2]);
        let expected = |t: &Tensor| {
            let own = t.shape();
            own[0] == 1 && own[1] == shape[1] && own[2] == each && own[3..].iter().all(|&size| size == 1)
        };
        let fits = (each == 1 || each == shape[2]) && [weight, bias].into_iter().flatten().all(expected);
        let count = shape[0] * shape[1];
        fits.then_some(Rows { count, len: x.numel() / count, each })
    }

    fn matrix(self, t: &Tensor) -> Result<Tensor> {
        t.reshape([self.count, self.len])
    }
}

/// A weight or a bias as the kernel takes it.
fn flat(t: Option<&Tensor>, wide: DType) -> Result<Option<Tensor>> {
    t.map(|t| t.detach().to_dtype(wide)?.reshape([t.numel()])?.contiguous()).transpose()
}

impl Norm {
    #[track_caller]
    pub(super) fn run_rows(
        self,
        rows: Rows,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let op = self.op;
        let mut dtype = x.dtype();
        for t in [weight, bias].into_iter().flatten() {
            dtype = common_dtype(op, dtype, t.dtype())?;
        }
        let wide = dtype.compute_dtype();
        let input = rows.matrix(&x.detach().to_dtype(dtype)?)?;
        let (w, b) = (flat(weight, wide)?, flat(bias, wide)?);
        let mut stats = Tensor::empty(op, [rows.count, 2].into(), wide, Device::Cpu)?;
        let y = Tensor::build(op, x.layout().shape().clone(), dtype, Device::Cpu, |out| {
            let affine = [w.as_ref().map(Tensor::as_view).transpose()?, b.as_ref().map(Tensor::as_view).transpose()?];
            let (input, stats) = (input.as_view()?, &mut stats.as_view_mut(op)?);
            backend::group_norm(op, input, rows.each, affine, self.eps, stats, out)
        })?;
        let inputs: SmallVec<[&Tensor; 3]> = [Some(x), weight, bias].into_iter().flatten().collect();
        y.record(op, &inputs, |save| {
            let (stats, x, weight) = (save.save(&stats), save.save(x), weight.map(|weight| save.save(weight)));
            let bias = bias.map(|bias| bias.layout().shape().clone());
            move |ctx: &BackwardContext, g: &Tensor| {
                if g.is_batched() {
                    let (mean, var) = self.stats(&x.to_dtype(wide)?)?;
                    return self.grads(ctx, &x, g, (mean.as_ref(), &var), weight.as_ref(), bias.as_ref(), wide);
                }
                if is_grad_enabled() {
                    // The statistics are then recomputed from the elements; the saved ones are not read.
                    return self.grads(ctx, &x, g, (None, &stats), weight.as_ref(), bias.as_ref(), wide);
                }
                let x_like = x.to_dtype(dtype)?;
                let (input, g, w) =
                    (rows.matrix(&x_like)?, rows.matrix(&g.to_dtype(dtype)?)?, flat(weight.as_ref(), wide)?);
                let x_grad = || Tensor::empty(op, x.layout().shape().clone(), dtype, Device::Cpu);
                let mut x_grad = ctx.needs(0).then(x_grad).transpose()?;
                let mut sums = Tensor::empty(op, [rows.count, rows.each, 2].into(), wide, Device::Cpu)?;
                let mut to_x = x_grad.as_mut().map(|t| t.as_view_mut(op)).transpose()?;
                let views = [input.as_view()?, g.as_view()?, stats.as_view()?];
                let w = w.as_ref().map(Tensor::as_view).transpose()?;
                let to = &mut sums.as_view_mut(op)?;
                backend::group_norm_backward(op, views, rows.each, w, to_x.as_mut(), to)?;
                let mut grads: Grads = smallvec![x_grad];
                // Per example: the engine sums these to the shapes of the weight and the bias.
                let of_example = |which: isize| {
                    let shape = x.shape();
                    let mut own = vec![1; shape.len()];
                    (own[0], own[1], own[2]) = (shape[0], shape[1], rows.each);
                    sums.select(2, which)?.reshape(&own[..])
                };
                if weight.is_some() {
                    grads.push(Some(of_example(0)?));
                }
                if bias.is_some() {
                    grads.push(Some(of_example(1)?));
                }
                Ok(grads)
            }
        })
    }
}
