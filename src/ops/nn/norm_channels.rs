//! Batch, instance, group and root mean square normalization.

mod norm;
mod rows;

use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend::spec::Formula;
use crate::error::bail;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::elementwise::map::map;
use crate::ops::nn::rope::is_forward_alone;
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Result, Scalar, Shape, Tensor, backend};
use norm::{Computed, Norm};
use smallvec::{SmallVec, smallvec};
use std::sync::LazyLock;

options! {
    /// The options of [`Tensor::batch_norm_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::BatchNormOptions};
    /// let (mean, var) = (tensor!([1.0])?, tensor!([4.0])?);
    /// let options = BatchNormOptions::new().running_mean(&mean).running_var(&var).eps(0.0);
    /// assert_eq!(tensor!([[5.0]])?.batch_norm_with(options)?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BatchNormOptions<'a> {
        /// The running means of the channels, used outside of training.
        running_mean: Option<&'a Tensor> = None,
        /// The running variances.
        running_var: Option<&'a Tensor> = None,
        /// The scale of each channel.
        weight: Option<&'a Tensor> = None,
        /// The offset of each channel, added after scaling.
        bias: Option<&'a Tensor> = None,
        /// Whether the means and variances of the batch are used.
        training: bool = false,
        /// Added to the variances for numerical stability.
        eps: f64 = 1e-5,
    }
}

options! {
    /// The options of [`Tensor::batch_norm_with_update_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::BatchNormUpdateOptions};
    /// let (x, mean, var) = (Tensor::full([4, 1], 3.0)?, Tensor::zeros([1])?, Tensor::ones([1])?);
    /// let (_, mean, _) = x.batch_norm_with_update_with(&mean, &var, BatchNormUpdateOptions::new().momentum(0.5))?;
    /// assert_eq!(mean.item::<f32>()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BatchNormUpdateOptions<'a> {
        /// The scale of each channel.
        weight: Option<&'a Tensor> = None,
        /// The offset of each channel, added after scaling.
        bias: Option<&'a Tensor> = None,
        /// The weight of the batch in the updated statistics.
        momentum: f64 = 0.1,
        /// Added to the variances for numerical stability.
        eps: f64 = 1e-5,
    }
}

options! {
    /// The options of [`Tensor::instance_norm_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::InstanceNormOptions};
    /// let (x, bias) = (Tensor::ones([1, 1, 4])?, Tensor::full([1], 7.0)?);
    /// let y = x.instance_norm_with(InstanceNormOptions::new().bias(&bias))?;
    /// assert_eq!(y.to_vec::<f32>()?, [7.0; 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct InstanceNormOptions<'a> {
        /// The running means of the channels, used if `use_input_stats` is false.
        running_mean: Option<&'a Tensor> = None,
        /// The running variances.
        running_var: Option<&'a Tensor> = None,
        /// The scale of each channel.
        weight: Option<&'a Tensor> = None,
        /// The offset of each channel, added after scaling.
        bias: Option<&'a Tensor> = None,
        /// Whether the means and variances are those of each example.
        use_input_stats: bool = true,
        /// Added to the variances for numerical stability.
        eps: f64 = 1e-5,
    }
}

options! {
    /// The options of [`Tensor::group_norm_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::GroupNormOptions};
    /// let (x, bias) = (Tensor::ones([1, 4])?, Tensor::full([4], 7.0)?);
    /// let y = x.group_norm_with(2, GroupNormOptions::new().bias(&bias))?;
    /// assert_eq!(y.to_vec::<f32>()?, [7.0; 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GroupNormOptions<'a> {
        /// The scale of each channel.
        weight: Option<&'a Tensor> = None,
        /// The offset of each channel, added after scaling.
        bias: Option<&'a Tensor> = None,
        /// Added to the variances for numerical stability.
        eps: f64 = 1e-5,
    }
}

options! {
    /// The options of [`Tensor::rms_norm_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::RmsNormOptions};
    /// let weight = tensor!([1.0, 2.0])?;
    /// let y = tensor!([3.0, 3.0])?.rms_norm_with([2], RmsNormOptions::new().weight(&weight).eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RmsNormOptions<'a> {
        /// The scale, of shape `normalized_shape`.
        weight: Option<&'a Tensor> = None,
        /// Added to the mean square for numerical stability; by default the machine epsilon of the compute dtype.
        eps: Option<f64> = None,
    }
}

/// The weighted sum of old and new statistics as one elementwise step: a separate cast would be another pass.
static MOVED: LazyLock<Formula> = LazyLock::new(|| Formula::new("moved", 2, 2, |x, p| x[0] * p[0] + x[1] * p[1]));

/// The number of channels, which are the second dimension.
pub(super) fn channels(op: &'static str, x: &Tensor, least: usize) -> Result<usize> {
    float_only(op, x)?;
    if x.rank() < least {
        bail!(Shape, op, "input must have at least {least} dimensions, got shape {:?}", x.shape());
    }
    Ok(x.shape()[1])
}

/// A parameter with one number per channel, reshaped to broadcast against a tensor of `rank` dimensions.
fn per_channel(op: &'static str, what: &str, t: Option<&Tensor>, count: usize, rank: usize) -> Result<Option<Tensor>> {
    let Some(t) = t else { return Ok(None) };
    if t.shape() != [count] {
        bail!(Shape, op, "{what} must have shape [{count}], got {:?}", t.shape());
    }
    float_only(op, t)?;
    t.reshape(Shape::from(vec![1; rank]).with(1, count)).map(Some)
}

/// Normalization with given statistics, which is elementwise.
#[track_caller]
fn given(
    op: &'static str,
    x: &Tensor,
    [mean, var]: [Option<&Tensor>; 2],
    [weight, bias]: [Option<&Tensor>; 2],
    eps: f64,
) -> Result<Tensor> {
    let count = x.shape()[1];
    let shaped = |what: &str, t: Option<&Tensor>| per_channel(op, what, t, count, x.rank());
    let (Some(mean), Some(var)) = (shaped("running_mean", mean)?, shaped("running_var", var)?) else {
        bail!(Value, op, "running_mean and running_var must be given if batch statistics are not used");
    };
    let (weight, bias) = (shaped("weight", weight)?, shaped("bias", bias)?);
    let mut dtype = x.dtype();
    for t in [&weight, &bias].into_iter().flatten() {
        dtype = common_dtype(op, dtype, t.dtype())?;
    }
    let wide = dtype.compute_dtype();
    let plain = |t: &Tensor| t.to_dtype(wide);
    let norm = Norm { op, over: Vec::new(), eps, centred: true };
    let affine = [weight.as_ref().map(plain).transpose()?, bias.as_ref().map(plain).transpose()?];
    let stats = (plain(&mean)?, plain(&var)?);
    norm.value(&plain(x)?, (Some(&stats.0), &stats.1), [affine[0].as_ref(), affine[1].as_ref()])?.to_dtype(dtype)
}

/// All dimensions but the channels.
fn but_channels(x: &Tensor) -> Vec<usize> {
    (0..x.rank()).filter(|&d| d != 1).collect()
}

/// The number of elements per channel, and the normalization over the batch.
fn of_batch(op: &'static str, x: &Tensor, eps: f64) -> Result<(usize, Norm)> {
    let count = channels(op, x, 2)?;
    let each = x.numel() / count.max(1);
    if each == 1 {
        bail!(Shape, op, "input must have more than one element per channel for a variance, got shape {:?}", x.shape());
    }
    Ok((each, Norm { op, over: but_channels(x), eps, centred: true }))
}

/// # Batch, group and instance normalization
#[ops]
impl Tensor {
    /// Batch normalization of the channels, the second dimension: `(x - mean) / sqrt(var + eps) · weight + bias`. In
    /// training the statistics are those of the batch; otherwise they are given. They are not updated:
    /// [`batch_norm_with_update`](Self::batch_norm_with_update) returns new ones, and the layer keeps them.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::BatchNormOptions};
    /// let x = tensor!([[1.0, 10.0], [3.0, 30.0]])?;
    /// let y = x.batch_norm_with(BatchNormOptions::new().training(true).eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, -1.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, no statistics are given outside of training, a channel of the batch has only one
    /// element, or the input is not floating point.
    #[op(samples = batch_samples, errors = batch_errors)]
    pub fn batch_norm<'a>(&self, options: impl Into<BatchNormOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "batch_norm";
        let BatchNormOptions { running_mean, running_var, weight, bias, training, eps } = options;
        let count = channels(OP, self, 2)?;
        if !training {
            return given(OP, self, [running_mean, running_var], [weight, bias], eps);
        }
        for (what, t) in [("running_mean", running_mean), ("running_var", running_var)] {
            per_channel(OP, what, t, count, self.rank())?;
        }
        let (_, norm) = of_batch(OP, self, eps)?;
        let shaped = |what: &str, t: Option<&Tensor>| per_channel(OP, what, t, count, self.rank());
        let (weight, bias) = (shaped("weight", weight)?, shaped("bias", bias)?);
        norm.run(self, weight.as_ref(), bias.as_ref())
    }

    /// [`batch_norm`](Self::batch_norm) in training, and the updated running statistics: `(1 - momentum) · old +
    /// momentum · batch`. The running variance uses the unbiased estimate.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (mean, var) = (Tensor::zeros([1])?, Tensor::zeros([1])?);
    /// let (_, mean, var) = tensor!([[1.0], [3.0]])?.batch_norm_with_update(&mean, &var)?;
    /// assert!((mean.item::<f32>()? - 0.2).abs() < 1e-6 && (var.item::<f32>()? - 0.2).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`batch_norm`](Self::batch_norm).
    #[op(samples = update_samples, errors = update_errors, outputs = [output, running_mean, running_var])]
    pub fn batch_norm_with_update<'a>(
        &self,
        running_mean: &Tensor,
        running_var: &Tensor,
        options: impl Into<BatchNormUpdateOptions<'a>>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "batch_norm_with_update";
        let BatchNormUpdateOptions { weight, bias, momentum, eps } = options;
        let (each, norm) = of_batch(OP, self, eps)?;
        let count = self.shape()[1];
        let shaped = |what: &str, t: Option<&Tensor>| per_channel(OP, what, t, count, self.rank());
        shaped("running_mean", Some(running_mean))?;
        shaped("running_var", Some(running_var))?;
        let (weight, bias) = (shaped("weight", weight)?, shaped("bias", bias)?);
        let (weight, bias, x) = (weight.as_ref(), bias.as_ref(), self);
        let Computed { y, mean, var, dtype, wide } = norm.compute(x, weight, bias)?;
        let sampled = each as f64 / (each as f64 - 1.0);
        let moved = |old: &Tensor, new: &Tensor, factor: f64| {
            let new = new.reshape([count])?;
            if old.device() != Device::Cpu && old.dtype().compute_dtype() == new.dtype() {
                let (old, shares) = (old.detach(), [Scalar::F64(1.0 - momentum), Scalar::F64(momentum * factor)]);
                return map(OP, (&*MOVED, &shares), new.dtype(), &[&old, &new], old.layout().shape(), old.dtype());
            }
            old.detach().mul(1.0 - momentum)?.add(&new.mul(momentum * factor)?)?.to_dtype(old.dtype())
        };
        let Some(mean) = mean else { bail!(Value, OP, "expected a mean of the batch, got none") };
        let all = [y.to_dtype(dtype)?, moved(running_mean, &mean, 1.0)?, moved(running_var, &var, sampled)?];
        let inputs: SmallVec<[&Tensor; 5]> =
            [Some(x), weight, bias, Some(running_mean), Some(running_var)].into_iter().flatten().collect();
        let [y, mean, var] = Tensor::record_joint(all, OP, &inputs, |save| {
            let (mean, var, x) = (save.save(&mean), save.save(&var), save.save(x));
            let (weight, bias) =
                (weight.map(|weight| save.save(weight)), bias.map(|bias| bias.layout().shape().clone()));
            let shapes: SmallVec<[Shape; 5]> = inputs.iter().map(|x| x.layout().shape().clone()).collect();
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let mut grads: Grads = match &cotangents[0] {
                    Some(g) => norm.grads(ctx, &x, g, (Some(&mean), &var), weight.as_ref(), bias.as_ref(), wide)?,
                    None => smallvec![None; 1 + usize::from(weight.is_some()) + usize::from(bias.is_some())],
                };
                // The gradients through the statistics.
                let wide_as = |g: &Tensor, factor: f64| g.to_dtype(wide)?.reshape(var.shape())?.mul(factor);
                let share = momentum / each as f64;
                if let Some(g) = cotangents[1].as_ref().filter(|_| ctx.needs(0)) {
                    let part = wide_as(g, share)?.expand(x.shape())?;
                    grads[0] = Some(grads[0].take().map_or(Ok(part.clone()), |sum| sum.add(&part))?);
                }
                if let Some(g) = cotangents[2].as_ref().filter(|_| ctx.needs(0)) {
                    let x = x.to_dtype(wide)?;
                    let mean = if is_grad_enabled() { norm.stats(&x)?.0 } else { Some(mean.clone()) };
                    let centred = mean.map_or_else(|| Ok(x.clone()), |mean| x.sub(&mean))?;
                    let part = centred.mul(&wide_as(g, 2.0 * share * sampled)?)?;
                    grads[0] = Some(grads[0].take().map_or(Ok(part.clone()), |sum| sum.add(&part))?);
                }
                for g in &cotangents[1..] {
                    grads.push(g.as_ref().map(|g| g.mul(1.0 - momentum)).transpose()?);
                }
                // If a result is unused, an input may have no gradient yet.
                for (at, shape) in shapes.iter().enumerate() {
                    if ctx.needs(at) && grads[at].is_none() {
                        grads[at] = Some(Tensor::zeros_with(shape, (wide, x.device()))?);
                    }
                }
                Ok(grads)
            }
        })?;
        Ok((y, mean, var))
    }

    /// Instance normalization: [`batch_norm`](Self::batch_norm) with the statistics of each example, or with given ones
    /// as an option.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::InstanceNormOptions};
    /// let x = tensor!([[[1.0, 3.0]], [[10.0, 30.0]]])?;
    /// let y = x.instance_norm_with(InstanceNormOptions::new().eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, a channel of an example has only one element, or the input is not floating point.
    #[op(samples = instance_samples, errors = instance_errors)]
    pub fn instance_norm<'a>(&self, options: impl Into<InstanceNormOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "instance_norm";
        let InstanceNormOptions { running_mean, running_var, weight, bias, use_input_stats, eps } = options;
        let count = channels(OP, self, 2)?;
        if !use_input_stats {
            return given(OP, self, [running_mean, running_var], [weight, bias], eps);
        }
        if self.shape()[2..].iter().product::<usize>() == 1 {
            bail!(
                Shape,
                OP,
                "input must have more than one element per channel for a variance, got shape {:?}",
                self.shape()
            );
        }
        let shaped = |what: &str, t: Option<&Tensor>| per_channel(OP, what, t, count, self.rank());
        let (weight, bias) = (shaped("weight", weight)?, shaped("bias", bias)?);
        let norm = Norm { op: OP, over: (2..self.rank()).collect(), eps, centred: true };
        norm.run(self, weight.as_ref(), bias.as_ref())
    }

    /// Group normalization: normalizes groups of channels, the second dimension, of each example. A weight and a bias
    /// per channel are options.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::GroupNormOptions};
    /// let x = tensor!([[1.0, 3.0, 10.0, 30.0]])?;
    /// let y = x.group_norm_with(2, GroupNormOptions::new().eps(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the channels are not a multiple of the groups, the shapes do not match, or the input is not floating point.
    #[op(autocast_cuda = f32, samples = group_samples, errors = group_errors)]
    pub fn group_norm<'a>(&self, num_groups: usize, options: impl Into<GroupNormOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "group_norm";
        let GroupNormOptions { weight, bias, eps } = options;
        let count = channels(OP, self, 2)?;
        if num_groups == 0 || !count.is_multiple_of(num_groups) {
            bail!(
                Shape,
                OP,
                "channels must be divisible by num_groups {num_groups}, got {count} channels in shape {:?}",
                self.shape()
            );
        }
        let positions = self.shape()[2..].iter().product::<usize>();
        let each = count / num_groups;
        let grouped = |what: &str, t: Option<&Tensor>| -> Result<Option<Tensor>> {
            let t = per_channel(OP, what, t, count, 2)?;
            t.map(|t| t.reshape([1, num_groups, each, 1])).transpose()
        };
        let (weight, bias) = (grouped("weight", weight)?, grouped("bias", bias)?);
        let x = self.reshape([self.shape()[0], num_groups, each, positions])?;
        let norm = Norm { op: OP, over: vec![2, 3], eps, centred: true };
        norm.run(&x, weight.as_ref(), bias.as_ref())?.reshape(self.shape())
    }

    /// Root mean square normalization: `x / sqrt(mean(x²) + eps) · weight`, with the mean over the last dimensions,
    /// whose shape is `normalized_shape`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert!(tensor!([3.0, -3.0])?.rms_norm([2])?.allclose(&tensor!([1.0, -1.0])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, or the input is not floating point.
    #[op(autocast_cuda = f32, samples = rms_samples, errors = rms_errors)]
    pub fn rms_norm<'a>(
        &self,
        normalized_shape: impl Into<Shape>,
        options: impl Into<RmsNormOptions<'a>>,
    ) -> Result<Tensor> {
        const OP: &str = "rms_norm";
        let (normalized, RmsNormOptions { weight, eps }) = (normalized_shape, options);
        float_only(OP, self)?;
        if normalized.is_empty() || !self.shape().ends_with(&normalized) {
            bail!(
                Shape,
                OP,
                "normalized_shape must match the last dimensions of input shape {:?}, got {normalized:?}",
                self.shape()
            );
        }
        if let Some(weight) = weight.filter(|weight| *weight.shape() != *normalized) {
            bail!(Shape, OP, "weight must have shape {normalized:?}, got {:?}", weight.shape());
        }
        let least = if self.dtype().compute_dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let eps = eps.unwrap_or(least);
        let weight_dtype = weight.map_or(self.dtype(), Tensor::dtype);
        if weight_dtype == self.dtype() && is_forward_alone(&[self, weight.unwrap_or(self)]) {
            return rms_norm_alone(self, weight, normalized.numel(), eps);
        }
        let first = self.rank() - normalized.len();
        let weight = weight
            .map(|weight| {
                let shape: Shape = vec![1; first].into_iter().chain(normalized.iter().copied()).collect();
                weight.reshape(&shape)
            })
            .transpose()?;
        let norm = Norm { op: OP, over: (first..self.rank()).collect(), eps, centred: false };
        norm.run(self, weight.as_ref(), None)
    }
}

const SHAPES: [&[usize]; 4] = [&[4, 3], &[2, 3, 4], &[2, 2, 2, 3], &[2, 1, 1, 2, 2]];

fn batch_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in SHAPES {
        let (x, c) = (normal(shape, 1)?, shape[1]);
        all.push(sample![&x; training = true]);
        all.push(sample![&x; training = true, eps = 0.1, weight = normal([c], 2)?, bias = normal([c], 3)?]);
        let sample = sample![&x; running_mean = normal([c], 4)?, running_var = spread([c], 0.3, 2.0)?];
        all.push(sample.with("weight", normal([c], 2)?).with("bias", normal([c], 3)?));
    }
    all.push(sample![normal([3, 2], 1)?; training = true, bias = normal([2], 3)?]);
    all.push(sample![normal([3, 2], 1)?; running_mean = normal([2], 4)?, running_var = spread([2], 0.3, 2.0)?]);
    all.push(
        sample![normal([0, 2], 1)?; running_mean = normal([2], 4)?, running_var = spread([2], 0.3, 2.0)?]
            .zero_derivative(),
    );
    Ok(all)
}

fn batch_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no channels", "[3]"; sample![normal([3], 1)?; training = true]],
        error!["no statistics", "running_mean"; sample![&x]],
        error!["one element", "[1, 3]"; sample![normal([1, 3], 1)?; training = true]],
        error!["another weight", "weight", "[2]", "[3]"; sample![&x; training = true, weight = normal([2], 1)?]],
        error!["another mean", "[2]", "[3]"; sample![&x; running_mean = normal([2], 1)?, running_var = normal([3], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2, 1])?; training = true]],
    ])
}

fn update_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in SHAPES {
        let c = shape[1];
        let (mean, var) = (normal([c], 4)?, spread([c], 0.3, 2.0)?);
        let sample = sample![normal(shape, 1)?, mean, var; momentum = 0.3];
        all.push(sample.with("weight", normal([c], 2)?).with("bias", normal([c], 3)?));
    }
    Ok(all)
}

fn update_errors() -> Result<Vec<ErrorCase>> {
    let (x, c) = (normal([2, 3], 1)?, normal([3], 1)?);
    Ok(vec![
        error!["another mean", "running_mean", "[2]", "[3]"; sample![&x, normal([2], 1)?, &c]],
        error!["another variance", "running_var", "[2]"; sample![&x, &c, normal([2], 1)?]],
        error!["one element", "[1, 3]"; sample![normal([1, 3], 1)?, &c, &c]],
    ])
}

fn instance_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in &SHAPES[1..] {
        let (x, c) = (normal(*shape, 1)?, shape[1]);
        all.push(sample![&x]);
        all.push(sample![&x; eps = 0.1, weight = normal([c], 2)?, bias = normal([c], 3)?]);
    }
    let sample = sample![normal([2, 3, 2], 1)?; running_mean = normal([3], 4)?, running_var = spread([3], 0.3, 2.0)?];
    all.push(sample.with("use_input_stats", false));
    Ok(all)
}

fn instance_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3, 2], 1)?;
    Ok(vec![
        error!["one element", "[2, 3, 1]"; sample![normal([2, 3, 1], 1)?]],
        error!["no channels", "[3]"; sample![normal([3], 1)?]],
        error!["no statistics", "running_mean"; sample![&x; use_input_stats = false]],
        error!["another bias", "bias", "[2]"; sample![&x; bias = normal([2], 1)?]],
    ])
}

fn group_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for (shape, groups) in [(&[2, 4][..], 2), (&[2, 6, 3], 3), (&[1, 4, 2, 3], 1), (&[2, 3, 4], 3)] {
        let (x, c) = (normal(shape, 1)?, shape[1]);
        all.push(sample![&x, groups]);
        all.push(sample![&x, groups; eps = 0.1, weight = normal([c], 2)?, bias = normal([c], 3)?]);
    }
    all.push(sample![normal([0, 4, 2], 1)?, 2]);
    all.push(sample![normal([2, 4, 2], 1)?, 2; bias = normal([4], 3)?]);
    all.push(sample![normal([2, 4, 2], 1)?, 2; weight = normal([4], 3)?]);
    Ok(all)
}

fn group_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 4], 1)?;
    Ok(vec![
        error!["other groups", "4 channels", "3"; sample![&x, 3]],
        error!["no groups", "0"; sample![&x, 0]],
        error!["another weight", "[2]", "[4]"; sample![&x, 2; weight = normal([2], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?, 1]],
    ])
}

/// [`Tensor::rms_norm_with`] over the last `size` elements, in one kernel.
#[track_caller]
fn rms_norm_alone(x: &Tensor, weight: Option<&Tensor>, size: usize, eps: f64) -> Result<Tensor> {
    const OP: &str = "rms_norm";
    let shape = x.layout().shape().clone();
    let rows = x.detach().reshape([shape.numel() / size.max(1), size])?;
    let weight = weight.map(|weight| weight.detach().reshape([size])).transpose()?;
    let (rows, weight) = (rows.as_view()?, weight.as_ref().map(Tensor::as_view).transpose()?);
    Tensor::build(OP, shape, x.dtype(), x.device(), |out| backend::rms_norm(OP, rows, weight, eps, out))
}

fn rms_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for (shape, normalized) in
        [(&[4, 6][..], &[6][..]), (&[2, 3, 4], &[3, 4]), (&[5], &[5]), (&[0, 3], &[3]), (&[2, 0], &[0])]
    {
        let x = normal(shape, 1)?;
        all.push(sample![&x, normalized]);
        all.push(sample![&x, normalized; weight = normal(normalized, 2)?, eps = 0.1]);
    }
    Ok(all)
}

fn rms_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another size", "[2, 3]", "[2]"; sample![&x, [2]]],
        error!["no size", "[2, 3]", "[]"; sample![&x, []]],
        error!["another weight", "[2]", "[3]"; sample![&x, [3]; weight = normal([2], 2)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, [2]]],
    ])
}
