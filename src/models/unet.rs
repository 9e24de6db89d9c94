//! U-Nets.

use super::Published;
use crate::error::bail;
use crate::nn::{
    BatchNorm2d, Conv2d, ConvLayerOptions, ConvTranspose2d, ConvTransposeLayerOptions, Forward, GroupNorm, Linear,
    Module,
};
use crate::{DType, Result, Tensor};

/// The norm and the activation after the convolutions of a [`UNet`].
///
/// ```
/// use cotangent::models::{UNetConfig, UNetNorm};
/// let config = UNetConfig { norm: UNetNorm::Group(8), ..UNetConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UNetNorm {
    /// Batch norms and ReLU, as is usual for segmentation.
    Batch,
    /// Group norms with this number of groups and SiLU, as is usual for diffusion.
    Group(usize),
}

/// The sizes of a [`UNet`].
///
/// ```
/// use cotangent::models::UNetConfig;
/// assert_eq!(UNetConfig::default().channels, [64, 128, 256, 512, 1024]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct UNetConfig {
    /// The number of channels of an image.
    pub in_channels: usize,
    /// The number of output channels: one for each class, or that of the image.
    pub out_channels: usize,
    /// The channels of each level; each has half the height and width of the one before.
    pub channels: Vec<usize>,
    /// The norm and the activation after the convolutions.
    pub norm: UNetNorm,
    /// The size of the time embedding, for networks that are told the time of an image, as in diffusion. It must be even.
    pub time_size: Option<usize>,
}

impl Default for UNetConfig {
    fn default() -> UNetConfig {
        UNetConfig {
            in_channels: 3,
            out_channels: 1,
            channels: vec![64, 128, 256, 512, 1024],
            norm: UNetNorm::Batch,
            time_size: None,
        }
    }
}

/// The largest number of levels, each of which halves the image.
const MOST_LEVELS: usize = 24;

#[derive(Debug, Module)]
enum Norm {
    Batch(BatchNorm2d),
    Group(GroupNorm),
}

impl Norm {
    fn new(kind: UNetNorm, channels: usize) -> Result<Norm> {
        Ok(match kind {
            UNetNorm::Batch => Norm::Batch(BatchNorm2d::new(channels)?),
            UNetNorm::Group(groups) => Norm::Group(GroupNorm::new(groups, channels)?),
        })
    }

    /// The norm and the activation after it.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Norm::Batch(norm) => norm.forward(x)?.relu(),
            Norm::Group(norm) => norm.forward(x)?.silu(),
        }
    }
}

/// Two 3×3 convolutions, with the time added between them.
#[derive(Debug, Module)]
struct Block {
    conv1: Conv2d,
    norm1: Norm,
    time: Option<Linear>,
    conv2: Conv2d,
    norm2: Norm,
}

impl Block {
    fn new(inputs: usize, outputs: usize, config: &UNetConfig) -> Result<Block> {
        // The norm would cancel a bias.
        let options = || ConvLayerOptions::new().padding(1).bias(false);
        Ok(Block {
            conv1: Conv2d::new_with(inputs, outputs, 3, options())?,
            norm1: Norm::new(config.norm, outputs)?,
            time: config.time_size.map(|size| Linear::new(size, outputs)).transpose()?,
            conv2: Conv2d::new_with(outputs, outputs, 3, options())?,
            norm2: Norm::new(config.norm, outputs)?,
        })
    }

    fn forward(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        let mut x = self.norm1.forward(&self.conv1.forward(x)?)?;
        if let (Some(linear), Some(time)) = (&self.time, time) {
            x = x.add(&linear.forward(time)?.unsqueeze(-1)?.unsqueeze(-1)?)?;
        }
        self.norm2.forward(&self.conv2.forward(&x)?)
    }
}

/// From a level to the one with twice its height and width.
#[derive(Debug, Module)]
struct Up {
    conv: ConvTranspose2d,
    block: Block,
}

/// Two linear layers over sines and cosines of the time.
#[derive(Debug, Module)]
struct Time {
    linear_1: Linear,
    linear_2: Linear,
}

impl Time {
    /// Times `[batch]` to vectors `[batch, size]`.
    fn forward(&self, t: &Tensor) -> Result<Tensor> {
        // A quantised weight is multiplied with inputs of any dtype: that of the bias is the model's.
        let weight = &self.linear_1.weight;
        let dtype = match &self.linear_1.bias {
            Some(bias) if !weight.dtype().is_float() => bias.dtype(),
            _ => weight.dtype(),
        };
        let half = weight.logical_shape()[1] / 2;
        // Half precision does not represent times beyond 2048 exactly.
        let exact = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let rates = (0..half).map(|i| 10_000.0_f64.powf(-(i as f64) / half as f64)).collect::<Vec<f64>>();
        let rates = Tensor::from_vec(rates, [half])?.to_dtype(exact)?.to_device(t.device())?;
        let angles = t.to_dtype(exact)?.unsqueeze(-1)?.mul(&rates)?;
        let waves = Tensor::cat(&[angles.sin()?, angles.cos()?], -1)?.to_dtype(dtype)?;
        self.linear_2.forward(&self.linear_1.forward(&waves)?.silu()?)?.silu()
    }
}

/// A U-Net: maps images to images of the same size, through levels of decreasing resolution. The output of a level on the way
/// down is concatenated to the input of that level on the way up.
///
/// A level is two 3×3 convolutions, each with a norm and an activation. Between levels there is 2×2 max pooling on the way
/// down, and a 2×2 transposed convolution on the way up. The last layer is a 1×1 convolution.
///
/// ```
/// use cotangent::models::{UNet, UNetConfig};
/// use cotangent::nn::Forward;
/// use cotangent::Tensor;
/// let model = UNet::new(&UNetConfig { channels: vec![4, 8, 16], out_channels: 2, ..UNetConfig::default() })?;
/// assert_eq!(model.forward(&Tensor::randn([1, 3, 16, 24])?)?.shape(), [1, 2, 16, 24]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct UNet {
    time: Option<Time>,
    down: Vec<Block>,
    up: Vec<Up>,
    head: Conv2d,
}

impl UNet {
    /// A model with new weights, initialised by its layers.
    ///
    /// ```
    /// use cotangent::models::{UNet, UNetConfig};
    /// use cotangent::nn::Module;
    /// let model = UNet::new(&UNetConfig { channels: vec![4, 8], ..UNetConfig::default() })?;
    /// assert!(model.named_parameters().iter().any(|(name, _)| name == "up.0.block.conv1.weight"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no level, the groups do not divide the channels, or `time_size` is not even.
    #[track_caller]
    pub fn new(config: &UNetConfig) -> Result<UNet> {
        let channels = &config.channels;
        if channels.is_empty() || channels.contains(&0) || config.in_channels == 0 || config.out_channels == 0 {
            bail!(
                Value,
                "UNet",
                "channels must not be empty and all counts must be ≥ 1, got {channels:?}, in_channels {} and out_channels {}",
                config.in_channels,
                config.out_channels
            );
        }
        if channels.len() > MOST_LEVELS {
            bail!(Value, "UNet", "channels must have at most {MOST_LEVELS} levels, got {}", channels.len());
        }
        let time = |size: usize| {
            if size == 0 || !size.is_multiple_of(2) {
                bail!(Value, "UNet", "time_size must be even and > 0, got {size}");
            }
            Ok(Time { linear_1: Linear::new(size, size)?, linear_2: Linear::new(size, size)? })
        };
        let before = std::iter::once(&config.in_channels).chain(channels);
        let down = before.zip(channels).map(|(&inputs, &outputs)| Block::new(inputs, outputs, config));
        let up = channels.windows(2).rev().map(|pair| {
            let (high, low) = (pair[0], pair[1]);
            let conv = ConvTranspose2d::new_with(low, high, 2, ConvTransposeLayerOptions::new().stride(2))?;
            Ok(Up { conv, block: Block::new(2 * high, high, config)? })
        });
        Ok(UNet {
            time: config.time_size.map(time).transpose()?,
            down: down.collect::<Result<_>>()?,
            up: up.collect::<Result<_>>()?,
            head: Conv2d::new(channels[0], config.out_channels, 1)?,
        })
    }

    /// Computes the output for images `x` at the times `t`, one for each image.
    ///
    /// ```
    /// use cotangent::models::{UNet, UNetConfig, UNetNorm};
    /// use cotangent::{Tensor, tensor};
    /// let config = UNetConfig { channels: vec![4, 8], norm: UNetNorm::Group(2), time_size: Some(6), ..UNetConfig::default() };
    /// let y = UNet::new(&config)?.forward_at(&Tensor::randn([2, 3, 8, 8])?, &tensor!([0, 500])?)?;
    /// assert_eq!(y.shape(), [2, 1, 8, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the model takes no times, there is not one for each image, or the images do not fit.
    #[track_caller]
    pub fn forward_at(&self, x: &Tensor, t: &Tensor) -> Result<Tensor> {
        let Some(time) = &self.time else {
            bail!(Value, "UNet", "the model takes no times: set time_size in its configuration, or call forward");
        };
        if t.shape() != &x.shape()[..x.rank().min(1)] || t.rank() != 1 {
            bail!(
                Shape,
                "UNet",
                "t must be one time for each image, got shape {:?} for images {:?}",
                t.shape(),
                x.shape()
            );
        }
        self.run(x, Some(&time.forward(t)?))
    }

    fn run(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        let (channels, multiple) = (self.down[0].conv1.weight.shape()[1], 1 << self.up.len());
        let fits = matches!(x.shape(), &[_, own, h, w] if own == channels && h % multiple == 0 && w % multiple == 0);
        if !fits {
            bail!(
                Shape,
                "UNet",
                "images must have shape [batch, {channels}, height, width] with multiples of {multiple}, got {:?}",
                x.shape()
            );
        }
        let mut x = self.down[0].forward(x, time)?;
        let mut seen = Vec::new();
        for block in &self.down[1..] {
            let smaller = x.max_pool2d(2)?;
            seen.push(std::mem::replace(&mut x, block.forward(&smaller, time)?));
        }
        for (up, seen) in self.up.iter().zip(seen.iter().rev()) {
            x = up.block.forward(&Tensor::cat(&[seen, &up.conv.forward(&x)?], 1)?, time)?;
        }
        self.head.forward(&x)
    }
}

impl Forward for UNet {
    /// Maps images `[batch, in_channels, height, width]` to `[batch, out_channels, height, width]`. Height and width must be
    /// multiples of `2^(levels - 1)`.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.time.is_some() {
            bail!(Value, "UNet", "the model needs times: call forward_at");
        }
        self.run(x, None)
    }
}

impl Published for UNet {}
