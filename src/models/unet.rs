//! U-Nets.

use super::Published;
use crate::error::bail;
use crate::nn::{
    BatchNorm2d, Conv2d, ConvLayerOptions, ConvTranspose2d, ConvTransposeLayerOptions, Forward, GroupNorm, Linear,
    Module,
};
use crate::{DType, Result, Tensor};

/// What follows the convolutions of a [`UNet`].
///
/// ```
/// use cotangent::models::{UNetConfig, UNetNorm};
/// let config = UNetConfig { norm: UNetNorm::Group(8), ..UNetConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UNetNorm {
    /// Batch norms and ReLU, as is usual for segmentation.
    Batch,
    /// Norms of so many groups of channels and SiLU, as is usual for diffusion.
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
    /// How many channels an image has.
    pub in_channels: usize,
    /// How many channels the result has: one for each class, or as many as the image.
    pub out_channels: usize,
    /// The channels of each level; each has half the height and width of the one before.
    pub channels: Vec<usize>,
    /// What follows the convolutions.
    pub norm: UNetNorm,
    /// How many numbers a time has, where the network is told the time of its image, as in diffusion: an even number.
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

/// Each halves the image.
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

    /// The norm and the function after it.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Norm::Batch(norm) => norm.forward(x)?.relu(),
            Norm::Group(norm) => norm.forward(x)?.silu(),
        }
    }
}

/// Two convolutions of 3×3, with the time between them.
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
        // The norm takes a bias away again.
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

/// From a level to the one of twice its size.
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
        let (dtype, half) = (self.linear_1.weight.dtype(), self.linear_1.weight.shape()[1] / 2);
        // Half precision does not hold times beyond 2048.
        let exact = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let rates = (0..half).map(|i| 10_000.0_f64.powf(-(i as f64) / half as f64)).collect::<Vec<f64>>();
        let rates = Tensor::from_vec(rates, [half])?.to_dtype(exact)?.to_device(t.device())?;
        let angles = t.to_dtype(exact)?.unsqueeze(-1)?.mul(&rates)?;
        let waves = Tensor::cat(&[angles.sin()?, angles.cos()?], -1)?.to_dtype(dtype)?;
        self.linear_2.forward(&self.linear_1.forward(&waves)?.silu()?)?.silu()
    }
}

/// A U-Net: images to images of the same size, by way of smaller and smaller ones. What a level has seen on the way down is put
/// beside what comes up to it.
///
/// A level is two convolutions of 3×3, each with a norm and an activation. Between levels lie a maximum of 2×2 on the way
/// down, and a transposed convolution of 2×2 on the way up. The last layer is a convolution of 1×1.
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
    /// A model with new weights, as its layers make them.
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
    /// If there is no level, the channels of one do not make the groups, or `time_size` is not even.
    #[track_caller]
    pub fn new(config: &UNetConfig) -> Result<UNet> {
        let channels = &config.channels;
        if channels.is_empty() || channels.contains(&0) || config.in_channels == 0 || config.out_channels == 0 {
            bail!(
                Value,
                "UNet",
                "channels {channels:?} from {} to {}: there must be levels, and all have channels",
                config.in_channels,
                config.out_channels
            );
        }
        if channels.len() > MOST_LEVELS {
            bail!(Value, "UNet", "{} levels are more than {MOST_LEVELS}", channels.len());
        }
        let time = |size: usize| {
            if size == 0 || !size.is_multiple_of(2) {
                bail!(Value, "UNet", "time_size {size} must be even, and not 0");
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

    /// Images of the given times, one for each, to images.
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
    /// If the model is not told times, there is not one for each image, or the images do not fit.
    #[track_caller]
    pub fn forward_at(&self, x: &Tensor, t: &Tensor) -> Result<Tensor> {
        let Some(time) = &self.time else {
            bail!(Value, "UNet", "a time, and the model has none: its configuration has no time_size");
        };
        if t.shape() != &x.shape()[..x.rank().min(1)] || t.rank() != 1 {
            bail!(Shape, "UNet", "times of shape {:?} for images of shape {:?}", t.shape(), x.shape());
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
                "images of shape {:?}, they must be [batch, {channels}, height, width] of multiples of {multiple}",
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
    /// Images `[batch, in_channels, height, width]` to `[batch, out_channels, height, width]`. Both sizes must be halved as often
    /// as there are levels.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.time.is_some() {
            bail!(Value, "UNet", "no time, and the model wants one: call `forward_at`");
        }
        self.run(x, None)
    }
}

impl Published for UNet {}
