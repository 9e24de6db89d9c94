//! Batch, instance, group, RMS and local response normalisation.

use super::{Buffer, Forward, Module, Parameter, Training, layer};
use crate::error::bail;
use crate::options::BatchNormUpdateOptions;
use crate::options::options;
use crate::{DType, Result, Shape, Tensor};
use std::cell::Cell;

options! {
    /// The options of [`BatchNorm1d`], [`BatchNorm2d`] and [`BatchNorm3d`].
    ///
    /// ```
    /// use cotangent::nn::{BatchNorm2d, BatchNormLayerOptions, Module};
    /// let layer = BatchNorm2d::new_with(8, BatchNormLayerOptions::new().affine(false))?;
    /// assert_eq!(layer.num_parameters(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BatchNormLayerOptions {
        /// Added to the variance.
        eps: f64 = 1e-5,
        /// The weight of the batch in the running statistics; `None` for the mean over all batches.
        momentum: Option<f64> = Some(0.1),
        /// Whether to learn a scale and a shift for each channel.
        affine: bool = true,
        /// Whether to keep running statistics, which are used in evaluation mode.
        track_running_stats: bool = true,
    }
}

options! {
    /// The options of [`InstanceNorm1d`], [`InstanceNorm2d`] and [`InstanceNorm3d`].
    ///
    /// ```
    /// use cotangent::nn::{InstanceNorm2d, InstanceNormLayerOptions, Module};
    /// let layer = InstanceNorm2d::new_with(8, InstanceNormLayerOptions::new().affine(true))?;
    /// assert_eq!(layer.num_parameters(), 16);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct InstanceNormLayerOptions {
        /// Added to the variance.
        eps: f64 = 1e-5,
        /// The weight of the batch in the running statistics.
        momentum: f64 = 0.1,
        /// Whether to learn a scale and a shift for each channel.
        affine: bool = false,
        /// Whether to keep running statistics, which are used in evaluation mode.
        track_running_stats: bool = false,
    }
}

/// The optional tensors of layers with running statistics.
struct Parts {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    running_mean: Option<Buffer>,
    running_var: Option<Buffer>,
    num_batches_tracked: Option<Buffer>,
}

impl Parts {
    fn new(num_features: usize, affine: bool, tracked: bool) -> Result<Parts> {
        let ones = || Tensor::ones([num_features]);
        let zeros = || Tensor::zeros([num_features]);
        Ok(Parts {
            weight: affine.then(|| Parameter::new(ones()?)).transpose()?,
            bias: affine.then(|| Parameter::new(zeros()?)).transpose()?,
            running_mean: tracked.then(|| zeros().map(Buffer::new)).transpose()?,
            running_var: tracked.then(|| ones().map(Buffer::new)).transpose()?,
            num_batches_tracked: tracked.then(|| Tensor::zeros_with((), DType::I64).map(Buffer::new)).transpose()?,
        })
    }
}

thread_local! {
    /// Whether batch norms average over all batches, whatever their momentum.
    static CUMULATIVE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f`, in which the running statistics of batch norms are means over all batches.
pub(crate) fn with_cumulative_statistics<T>(f: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            CUMULATIVE.set(self.0);
        }
    }
    let _back = Back(CUMULATIVE.replace(true));
    f()
}

/// Moves running statistics towards those of a batch.
#[track_caller]
fn moved(buffer: &Buffer, batch: &Tensor, momentum: f64) -> Result<()> {
    buffer.update(|old| {
        let new = batch.detach().to_dtype(old.dtype())?;
        old.mul(1.0 - momentum)?.add(&new.mul(momentum)?)
    })
}

macro_rules! batch_norms {
    ($($name:ident $words:literal $shape:literal [$ranks:pat];)+) => {$(
        #[doc = concat!("Normalises the channels of a batch, ", $words, ", to mean 0 and variance 1, then scales and shifts each.")]
        ///
        /// In training mode the statistics are those of the batch, and the running statistics are updated. In
        /// [evaluation mode](Module::eval) the running statistics are used.
        ///
        /// ```
        #[doc = concat!("use cotangent::{Tensor, nn::{", stringify!($name), ", Forward, Module}};")]
        #[doc = concat!("let mut layer = ", stringify!($name), "::new(3)?;")]
        #[doc = concat!("let x = Tensor::randn(", $shape, ")?.add(5)?;")]
        /// let channels = layer.forward(&x)?.transpose(0, 1)?.flatten(1, -1)?;
        /// assert!(channels.mean(1)?.abs()?.max(..)?.item::<f32>()? < 1e-3);
        /// assert_eq!(layer.state_dict().len(), 5);
        /// layer.eval();
        /// assert_eq!(layer.forward(&x)?.shape(), x.shape());
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Debug, Module)]
        pub struct $name {
            /// The scale, initialised to 1.
            pub weight: Option<Parameter>,
            /// The shift, initialised to 0.
            pub bias: Option<Parameter>,
            /// The running means, initialised to 0.
            pub running_mean: Option<Buffer>,
            /// The running variances, initialised to 1.
            pub running_var: Option<Buffer>,
            /// The number of batches seen in training.
            pub num_batches_tracked: Option<Buffer>,
            eps: f64,
            momentum: Option<f64>,
            training: Training,
        }

        #[layer]
        impl $name {
            /// Batch normalisation of `num_features` channels to mean 0 and variance 1, followed by a scale and a shift for
            /// each channel.
            ///
            /// In training mode the statistics are those of the batch, and the running statistics are updated. In evaluation
            /// mode the running statistics are used.
            ///
            /// ```
            #[doc = concat!("use cotangent::nn::{", stringify!($name), ", Module};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(4)?.num_parameters(), 8);")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// If memory runs out.
            pub fn new(num_features: usize, options: impl Into<BatchNormLayerOptions>) -> Result<$name> {
                let BatchNormLayerOptions { eps, momentum, affine, track_running_stats } = options;
                let Parts { weight, bias, running_mean, running_var, num_batches_tracked } =
                    Parts::new(num_features, affine, track_running_stats)?;
                let training = Training::default();
                Ok($name { weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, training })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                if !matches!(x.rank(), $ranks) {
                    bail!(Shape, stringify!($name), concat!("input must be ", $words, ", got shape {:?}"), x.shape());
                }
                let options = crate::options::BatchNormOptions::new()
                    .weight(self.weight.as_deref())
                    .bias(self.bias.as_deref())
                    .eps(self.eps);
                let (Some(mean), Some(var)) = (&self.running_mean, &self.running_var) else {
                    return x.batch_norm_with(options.training(true));
                };
                let (old_mean, old_var) = (mean.get(), var.get());
                if !self.training.is_on() {
                    return x.batch_norm_with(options.running_mean(&old_mean).running_var(&old_var));
                }
                // Momentum 1 gives the batch's statistics. The layer updates its own under their locks, so that no update is lost.
                let options = BatchNormUpdateOptions::new()
                    .weight(self.weight.as_deref())
                    .bias(self.bias.as_deref())
                    .eps(self.eps)
                    .momentum(1.0);
                let (y, of_batch, var_of_batch) = x.batch_norm_with_update_with(&old_mean, &old_var, options)?;
                let own_momentum = self.momentum.filter(|_| !CUMULATIVE.get());
                let mut momentum = own_momentum.unwrap_or(0.0);
                if let Some(count) = &self.num_batches_tracked {
                    count.update(|count| {
                        let count = count.add(1)?;
                        if own_momentum.is_none() {
                            momentum = 1.0 / count.item::<i64>()? as f64;
                        }
                        Ok(count)
                    })?;
                }
                moved(mean, &of_batch, momentum)?;
                moved(var, &var_of_batch, momentum)?;
                Ok(y)
            }
        }
    )+};
}
batch_norms! {
    BatchNorm1d "`[batch, channels]` or `[batch, channels, length]`" "[8, 3, 5]" [2 | 3];
    BatchNorm2d "`[batch, channels, height, width]`" "[8, 3, 4, 4]" [4];
    BatchNorm3d "`[batch, channels, depth, height, width]`" "[8, 3, 2, 4, 4]" [5];
}

macro_rules! instance_norms {
    ($($name:ident $words:literal $shape:literal $dims:literal;)+) => {$(
        #[doc = concat!("Normalises each channel of each example, ", $words, " or without the batch, to mean 0 and variance 1.")]
        ///
        /// ```
        #[doc = concat!("use cotangent::{Tensor, nn::{", stringify!($name), ", Forward}};")]
        #[doc = concat!("let x = Tensor::randn(", $shape, ")?;")]
        #[doc = concat!("assert_eq!(", stringify!($name), "::new(3)?.forward(&x)?.shape(), x.shape());")]
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Debug, Module)]
        pub struct $name {
            /// The scale, initialised to 1.
            pub weight: Option<Parameter>,
            /// The shift, initialised to 0.
            pub bias: Option<Parameter>,
            /// The running means, initialised to 0.
            pub running_mean: Option<Buffer>,
            /// The running variances, initialised to 1.
            pub running_var: Option<Buffer>,
            /// The number of batches, which stays 0 as in PyTorch.
            pub num_batches_tracked: Option<Buffer>,
            eps: f64,
            momentum: f64,
            training: Training,
        }

        #[layer]
        impl $name {
            /// Instance normalisation: each of `num_features` channels of each example is normalised to mean 0 and
            /// variance 1.
            ///
            /// ```
            #[doc = concat!("use cotangent::nn::{", stringify!($name), ", Module};")]
            #[doc = concat!("assert_eq!(", stringify!($name), "::new(4)?.num_parameters(), 0);")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// If memory runs out.
            pub fn new(num_features: usize, options: impl Into<InstanceNormLayerOptions>) -> Result<$name> {
                let InstanceNormLayerOptions { eps, momentum, affine, track_running_stats } = options;
                let Parts { weight, bias, running_mean, running_var, num_batches_tracked } =
                    Parts::new(num_features, affine, track_running_stats)?;
                let training = Training::default();
                Ok($name { weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum, training })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                if x.rank() == $dims + 1 {
                    return self.forward(&x.unsqueeze(0)?)?.squeeze(0);
                }
                if x.rank() != $dims + 2 {
                    bail!(
                        Shape,
                        stringify!($name),
                        concat!("input must be ", $words, ", with or without the batch, got shape {:?}"),
                        x.shape()
                    );
                }
                let options = crate::options::InstanceNormOptions::new()
                    .weight(self.weight.as_deref())
                    .bias(self.bias.as_deref())
                    .eps(self.eps);
                let (Some(mean), Some(var)) = (&self.running_mean, &self.running_var) else {
                    return x.instance_norm_with(options);
                };
                if !self.training.is_on() {
                    let (mean, var) = (mean.get(), var.get());
                    return x.instance_norm_with(options.running_mean(&mean).running_var(&var).use_input_stats(false));
                }
                let y = x.instance_norm_with(options)?;
                let dims: Vec<usize> = (2..x.rank()).collect();
                let (var_of_each, of_each) = x.detach().var_mean(&dims[..])?;
                moved(mean, &of_each.mean(0)?, self.momentum)?;
                moved(var, &var_of_each.mean(0)?, self.momentum)?;
                Ok(y)
            }
        }
    )+};
}
instance_norms! {
    InstanceNorm1d "`[batch, channels, length]`" "[8, 3, 5]" 1;
    InstanceNorm2d "`[batch, channels, height, width]`" "[8, 3, 4, 4]" 2;
    InstanceNorm3d "`[batch, channels, depth, height, width]`" "[8, 3, 2, 4, 4]" 3;
}

/// Normalises groups of channels of each example to mean 0 and variance 1, then scales and shifts each channel.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, GroupNorm}};
/// assert_eq!(GroupNorm::new(2, 6)?.forward(&Tensor::randn([4, 6, 5])?)?.shape(), [4, 6, 5]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct GroupNorm {
    /// The scale, initialised to 1.
    pub weight: Option<Parameter>,
    /// The shift, initialised to 0.
    pub bias: Option<Parameter>,
    num_groups: usize,
    num_channels: usize,
    eps: f64,
}

options! {
    /// The options of [`GroupNorm::new_with`](crate::nn::GroupNorm::new_with).
    ///
    /// ```
    /// use cotangent::nn::{GroupNorm, GroupNormLayerOptions, Module};
    /// assert_eq!(GroupNorm::new_with(2, 6, GroupNormLayerOptions::new().affine(false))?.num_parameters(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GroupNormLayerOptions {
        /// Added to the variance.
        eps: f64 = 1e-5,
        /// Whether to learn a scale and a shift for each channel.
        affine: bool = true,
    }
}

#[layer]
impl GroupNorm {
    /// Group normalisation: `num_groups` groups of the `num_channels` channels of each example are normalised to mean 0 and
    /// variance 1, then each channel is scaled and shifted.
    ///
    /// ```
    /// use cotangent::nn::GroupNorm;
    /// assert!(GroupNorm::new(4, 6).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `num_channels` is not a multiple of `num_groups`.
    pub fn new(num_groups: usize, num_channels: usize, options: impl Into<GroupNormLayerOptions>) -> Result<GroupNorm> {
        if num_groups == 0 || !num_channels.is_multiple_of(num_groups) {
            bail!(
                Value,
                "GroupNorm",
                "num_channels must be a multiple of num_groups, got {num_channels} and {num_groups}"
            );
        }
        let Parts { weight, bias, .. } = Parts::new(num_channels, options.affine, false)?;
        Ok(GroupNorm { weight, bias, num_groups, num_channels, eps: options.eps })
    }
}

impl Forward for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.shape().get(1) != Some(&self.num_channels) {
            bail!(
                Shape,
                "GroupNorm",
                "input must have {} channels in dimension 1, got shape {:?}",
                self.num_channels,
                x.shape()
            );
        }
        let options = crate::options::GroupNormOptions::new().weight(self.weight.as_deref()).bias(self.bias.as_deref());
        x.group_norm_with(self.num_groups, options.eps(self.eps))
    }
}

/// Divides by the root mean square over the last dimensions, then scales each element.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, RMSNorm}};
/// assert_eq!(RMSNorm::new(8)?.forward(&Tensor::randn([4, 8])?)?.shape(), [4, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct RMSNorm {
    /// The scale, initialised to 1, of shape `normalized_shape`.
    pub weight: Option<Parameter>,
    eps: Option<f64>,
    shape: Shape,
}

options! {
    /// The options of [`RMSNorm::new_with`](crate::nn::RMSNorm::new_with).
    ///
    /// ```
    /// use cotangent::nn::{Module, RMSNorm, RmsNormLayerOptions};
    /// assert_eq!(RMSNorm::new_with(8, RmsNormLayerOptions::new().eps(1e-6))?.num_parameters(), 8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RmsNormLayerOptions {
        /// Added to the mean square; by default the machine epsilon of the compute dtype.
        eps: Option<f64> = None,
        /// Whether to learn a scale.
        elementwise_affine: bool = true,
    }
}

#[layer]
impl RMSNorm {
    /// Divides by the root mean square over the last dimensions, of shape `normalized_shape`, then scales each element.
    ///
    /// ```
    /// use cotangent::nn::{Module, RMSNorm};
    /// assert_eq!(RMSNorm::new([2, 3])?.num_parameters(), 6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(normalized_shape: impl Into<Shape>, options: impl Into<RmsNormLayerOptions>) -> Result<RMSNorm> {
        let weight = || Parameter::new(Tensor::ones(&normalized_shape)?);
        let weight = options.elementwise_affine.then(weight).transpose()?;
        Ok(RMSNorm { weight, eps: options.eps, shape: normalized_shape })
    }
}

impl Forward for RMSNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let options = crate::options::RmsNormOptions::new().weight(self.weight.as_deref()).eps(self.eps);
        x.rms_norm_with(&self.shape, options)
    }
}

/// Local response normalisation: `x / (k + alpha · mean(x²))^beta`, with the mean over neighbouring channels.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, LocalResponseNorm}};
/// assert_eq!(LocalResponseNorm::new(3)?.forward(&Tensor::randn([1, 4, 5])?)?.shape(), [1, 4, 5]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct LocalResponseNorm {
    size: usize,
    #[module(skip)]
    options: crate::options::LocalResponseNormOptions,
}

#[layer]
impl LocalResponseNorm {
    /// Local response normalisation: `x / (k + alpha · mean(x²))^beta`, with the mean over `size` neighbouring channels.
    ///
    /// ```
    /// use cotangent::{nn::LocalResponseNorm, options::LocalResponseNormOptions};
    /// let layer = LocalResponseNorm::new_with(5, LocalResponseNormOptions::new().k(2.0))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    pub fn new(size: usize, options: impl Into<crate::options::LocalResponseNormOptions>) -> Result<LocalResponseNorm> {
        Ok(LocalResponseNorm { size, options })
    }
}

impl Forward for LocalResponseNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.local_response_norm_with(self.size, &self.options)
    }
}
