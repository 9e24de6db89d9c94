//! Normalization on a GPU: kernels that read the elements once compute the statistics, and the rest is deferred
//! elementwise chains, which read elements of any dtype without a cast.

use super::Norm;
use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend::cuda::nn::channels;
use crate::backend::spec::Formula;
use crate::ops::elementwise::map::map;
use crate::{DType, Device, Result, Shape, Tensor};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::LazyLock;

static PLAIN: LazyLock<Formula> = LazyLock::new(|| Formula::new("norm", 3, 0, |x, _| (x[0] - x[1]) * x[2]));
static WEIGHTED: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("norm_weighted", 4, 0, |x, _| (x[0] - x[1]) * x[2] * x[3]));
static BIASED: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("norm_biased", 4, 0, |x, _| (x[0] - x[1]) * x[2] + x[3]));
static AFFINE: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("norm_affine", 5, 0, |x, _| (x[0] - x[1]) * x[2] * x[3] + x[4]));
static PRODUCT: LazyLock<Formula> = LazyLock::new(|| Formula::new("norm_scale", 2, 0, |x, _| x[0] * x[1]));
/// The gradient of `x`, from g, x, the mean, the scale, the factor of the distance from the mean, and the mean of g.
static SLOPE: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("norm_backward", 6, 0, |x, _| (x[0] - x[5] - (x[1] - x[2]) * x[4]) * x[3]));

impl Norm {
    /// The dimensions that are not reduced, if they are adjacent and the kernels support the tensor.
    fn channels_on_gpu(&self, x: &Tensor, affine: impl Iterator<Item = Shape>) -> Option<Range<usize>> {
        if x.device() == Device::Cpu || x.is_batched() || x.numel() == 0 || !self.centred || self.over.is_empty() {
            return None;
        }
        let kept: SmallVec<[usize; 5]> = (0..x.rank()).filter(|dim| !self.over.contains(dim)).collect();
        let (first, last) = (*kept.first()?, *kept.last()?);
        let fits = |shape: &Shape| self.over.iter().all(|&dim| shape[dim] == 1);
        (last - first + 1 == kept.len() && affine.into_iter().all(|shape| fits(&shape))).then_some(first..last + 1)
    }

    /// The shape of statistics.
    fn stats_shape(&self, x: &Tensor) -> Shape {
        (0..x.rank()).map(|dim| if self.over.contains(&dim) { 1 } else { x.shape()[dim] }).collect()
    }

    /// The result in `dtype`, the means and the variances; `None` if the kernels do not support the operands.
    pub(super) fn on_gpu(
        &self,
        x: &Tensor,
        affine: [Option<&Tensor>; 2],
        dtype: DType,
    ) -> Result<Option<(Tensor, Tensor, Tensor)>> {
        let given = || affine.into_iter().flatten();
        if given().any(Tensor::is_batched) || dtype.compute_dtype() != x.dtype().compute_dtype() {
            return Ok(None);
        }
        let shapes = given().map(|t| t.layout().shape().clone());
        let (Some(channels), Device::Cuda(ordinal)) = (self.channels_on_gpu(x, shapes), x.device()) else {
            return Ok(None);
        };
        let (shape, wide) = (self.stats_shape(x), dtype.compute_dtype());
        let new = || Tensor::empty(self.op, shape.clone(), wide, x.device());
        let (mut mean, mut var, mut scale) = (new()?, new()?, new()?);
        let x = x.detach();
        let out = [&mut mean.as_view_mut(self.op)?, &mut var.as_view_mut(self.op)?, &mut scale.as_view_mut(self.op)?];
        channels::moments(self.op, ordinal, x.as_view()?, channels, self.eps, out)?;
        let formula = match affine {
            [None, None] => &*PLAIN,
            [Some(_), None] => &*WEIGHTED,
            [None, Some(_)] => &*BIASED,
            [Some(_), Some(_)] => &*AFFINE,
        };
        let affine: SmallVec<[Tensor; 2]> = given().map(Tensor::detach).collect();
        let inputs: SmallVec<[&Tensor; 5]> = [&x, &mean, &scale].into_iter().chain(&affine).collect();
        let y = map(self.op, (formula, &[]), wide, &inputs, x.layout().shape(), dtype)?;
        drop(inputs);
        Ok(Some((y, mean, var)))
    }

    /// As [`grads`](Self::grads), without a graph; `None` if the kernels do not support the operands.
    pub(super) fn grads_on_gpu(
        &self,
        ctx: &BackwardContext,
        x: &Tensor,
        g: &Tensor,
        (mean, var): (Option<&Tensor>, &Tensor),
        weight: Option<&Tensor>,
        bias: Option<&Shape>,
    ) -> Result<Option<Grads>> {
        let Some(mean) = mean else { return Ok(None) };
        let shapes = weight.map(|weight| weight.layout().shape().clone()).into_iter().chain(bias.cloned());
        let others = [Some(g), Some(mean), Some(var), weight].into_iter().flatten();
        if is_grad_enabled() || others.clone().any(Tensor::is_batched) {
            return Ok(None);
        }
        let (Some(channels), Device::Cuda(ordinal)) = (self.channels_on_gpu(x, shapes), x.device()) else {
            return Ok(None);
        };
        let (shape, wide) = (self.stats_shape(x), x.dtype().compute_dtype());
        if [g, mean, var].iter().any(|t| t.dtype().compute_dtype() != wide)
            || mean.dtype() != wide
            || var.dtype() != wide
        {
            return Ok(None);
        }
        let new = || Tensor::empty(self.op, shape.clone(), wide, x.device());
        let (mut total, mut along) = (new()?, new()?);
        let (mut from_each, mut from_distance, mut scale) = (new()?, new()?, new()?);
        let (mean, var) = (mean.contiguous()?, var.contiguous()?);
        let out = [
            &mut total.as_view_mut(self.op)?,
            &mut along.as_view_mut(self.op)?,
            &mut from_each.as_view_mut(self.op)?,
            &mut from_distance.as_view_mut(self.op)?,
            &mut scale.as_view_mut(self.op)?,
        ];
        let stats = [mean.as_view()?, var.as_view()?];
        channels::sums(self.op, ordinal, g.as_view()?, x.as_view()?, channels, stats, self.eps, out)?;
        let mut grads: Grads = smallvec![None];
        if ctx.needs(0) {
            let scale = match weight {
                Some(weight) => map(self.op, (&*PRODUCT, &[]), wide, &[weight, &scale], &shape, wide)?,
                None => scale,
            };
            let inputs = [g, x, &mean, &scale, &from_distance, &from_each];
            grads[0] = Some(map(self.op, (&*SLOPE, &[]), wide, &inputs, x.layout().shape(), x.dtype())?);
        }
        if weight.is_some() {
            grads.push(Some(along));
        }
        if bias.is_some() {
            grads.push(Some(total));
        }
        Ok(Some(grads))
    }
}
