//! Residual networks.

use super::Published;
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::init::{self, Fan, Gain};
use crate::nn::{BatchNorm2d, Conv2d, ConvLayerOptions, Forward, Linear, Module};
use crate::options::MaxPoolOptions;
use crate::{DType, Result, Tensor};

/// The kind of the blocks of a [`ResNet`].
///
/// ```
/// use cotangent::models::{ResNetBlock, ResNetConfig};
/// assert_eq!(ResNetConfig::resnet50().block, ResNetBlock::Bottleneck);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetBlock {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3 and 1×1 convolutions; the last has four times the channels.
    Bottleneck,
}

impl ResNetBlock {
    /// The ratio of a block's output channels to the channels of its stage.
    fn expansion(self) -> usize {
        match self {
            ResNetBlock::Basic => 1,
            ResNetBlock::Bottleneck => 4,
        }
    }
}

/// The sizes of a [`ResNet`]. The functions return those that torchvision publishes weights for; the default is
/// [`resnet18`](Self::resnet18).
///
/// ```
/// use cotangent::models::ResNetConfig;
/// let config = ResNetConfig { num_classes: 10, ..ResNetConfig::resnet50() };
/// assert_eq!(config.layers, [3, 4, 6, 3]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ResNetConfig {
    /// The kind of the blocks.
    pub block: ResNetBlock,
    /// The number of blocks in each of the four stages.
    pub layers: [usize; 4],
    /// The number of classes.
    pub num_classes: usize,
    /// The number of channels of an image.
    pub in_channels: usize,
    /// The channels of the first stage; each further one has twice as many.
    pub width: usize,
    /// The groups of channels in the 3×3 convolutions of a bottleneck.
    pub groups: usize,
    /// The channels of a group in the first stage, where `width` is 64.
    pub width_per_group: usize,
    /// Whether the scale of the last norm of each block is initialised to 0, so that blocks start as the identity.
    pub zero_init_residual: bool,
}

impl Default for ResNetConfig {
    fn default() -> ResNetConfig {
        ResNetConfig {
            block: ResNetBlock::Basic,
            layers: [2, 2, 2, 2],
            num_classes: 1000,
            in_channels: 3,
            width: 64,
            groups: 1,
            width_per_group: 64,
            zero_init_residual: false,
        }
    }
}

macro_rules! published {
    ($($name:ident $text:literal { $($field:ident: $value:expr),+ })+) => {
        impl ResNetConfig {$(
            #[doc = concat!($text, ", as torchvision's `", stringify!($name), "`.")]
            ///
            #[doc = concat!("```\nuse cotangent::models::ResNetConfig;\nassert_eq!(ResNetConfig::", stringify!($name), "().num_classes, 1000);\n```")]
            pub fn $name() -> ResNetConfig {
                ResNetConfig { $($field: $value,)+ ..ResNetConfig::default() }
            }
        )+}
    };
}
published! {
    resnet18 "18 layers" { layers: [2, 2, 2, 2] }
    resnet34 "34 layers" { layers: [3, 4, 6, 3] }
    resnet50 "50 layers" { block: ResNetBlock::Bottleneck, layers: [3, 4, 6, 3] }
    resnet101 "101 layers" { block: ResNetBlock::Bottleneck, layers: [3, 4, 23, 3] }
    resnet152 "152 layers" { block: ResNetBlock::Bottleneck, layers: [3, 8, 36, 3] }
    resnext50_32x4d "50 layers with 32 groups of 4 channels" {
        block: ResNetBlock::Bottleneck, layers: [3, 4, 6, 3], groups: 32, width_per_group: 4
    }
    resnext101_32x8d "101 layers with 32 groups of 8 channels" {
        block: ResNetBlock::Bottleneck, layers: [3, 4, 23, 3], groups: 32, width_per_group: 8
    }
    wide_resnet50_2 "50 layers with twice the channels inside of a block" {
        block: ResNetBlock::Bottleneck, layers: [3, 4, 6, 3], width_per_group: 128
    }
    wide_resnet101_2 "101 layers with twice the channels inside of a block" {
        block: ResNetBlock::Bottleneck, layers: [3, 4, 23, 3], width_per_group: 128
    }
}

/// Projects the input of a block to the shape of its output.
#[derive(Debug, Module)]
struct Downsample {
    #[module(rename = "0")]
    conv: Conv2d,
    #[module(rename = "1")]
    norm: BatchNorm2d,
}

#[derive(Debug, Module)]
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    conv3: Option<Conv2d>,
    bn3: Option<BatchNorm2d>,
    downsample: Option<Downsample>,
}

/// A convolution of odd size that keeps the image's size, but for its stride.
fn conv(channels: [usize; 2], size: usize, stride: usize, groups: usize) -> Result<Conv2d> {
    let options = ConvLayerOptions::new().stride(stride).padding(size / 2).groups(groups).bias(false);
    let mut layer = Conv2d::new_with(channels[0], channels[1], size, options)?;
    let values = init::kaiming_normal(layer.weight.shape(), Gain::Relu, Fan::Out)?;
    layer.weight.set(&values)?;
    Ok(layer)
}

impl Block {
    /// A block of a stage with `planes` channels, which gets an input of `inputs` channels.
    fn new(config: &ResNetConfig, inputs: usize, planes: usize, stride: usize) -> Result<Block> {
        let outputs = planes * config.block.expansion();
        let last = |channels: usize| {
            let mut norm = BatchNorm2d::new(channels)?;
            if let (Some(weight), true) = (&mut norm.weight, config.zero_init_residual) {
                weight.set(&Tensor::zeros([channels])?)?;
            }
            Ok(norm)
        };
        let downsample = (stride != 1 || inputs != outputs)
            .then(|| Ok(Downsample { conv: conv([inputs, outputs], 1, stride, 1)?, norm: BatchNorm2d::new(outputs)? }))
            .transpose()?;
        Ok(match config.block {
            ResNetBlock::Basic => Block {
                conv1: conv([inputs, planes], 3, stride, 1)?,
                bn1: BatchNorm2d::new(planes)?,
                conv2: conv([planes, planes], 3, 1, 1)?,
                bn2: last(planes)?,
                conv3: None,
                bn3: None,
                downsample,
            },
            ResNetBlock::Bottleneck => {
                let inner = planes * config.width_per_group / 64 * config.groups;
                Block {
                    conv1: conv([inputs, inner], 1, 1, 1)?,
                    bn1: BatchNorm2d::new(inner)?,
                    conv2: conv([inner, inner], 3, stride, config.groups)?,
                    bn2: BatchNorm2d::new(inner)?,
                    conv3: Some(conv([inner, outputs], 1, 1, 1)?),
                    bn3: Some(last(outputs)?),
                    downsample,
                }
            }
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        if let (Some(conv), Some(norm)) = (&self.conv3, &self.bn3) {
            y = norm.forward(&conv.forward(&y.relu()?)?)?;
        }
        match &self.downsample {
            None => y.add(x)?.relu(),
            Some(down) => y.add(&down.norm.forward(&down.conv.forward(x)?)?)?.relu(),
        }
    }
}

/// A residual network, with torchvision's names.
///
/// ```
/// use cotangent::models::{ResNet, ResNetConfig};
/// use cotangent::nn::{Forward, Module};
/// use cotangent::Tensor;
/// let mut model = ResNet::new(&ResNetConfig { width: 4, num_classes: 10, ..ResNetConfig::resnet18() })?;
/// model.eval();
/// assert_eq!(model.forward(&Tensor::randn([2, 3, 32, 32])?)?.shape(), [2, 10]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// Published weights are for 1000 classes. For other classes, load them first, then replace the last layer:
///
/// ```
/// # use cotangent::models::{ResNet, ResNetConfig};
/// # use cotangent::nn::{Forward, Linear};
/// # let mut model = ResNet::new(&ResNetConfig { width: 4, ..ResNetConfig::resnet18() })?;
/// // load_weights(&mut model, "resnet18.safetensors")?;
/// let features = model.fc.weight.shape()[1];
/// model.fc = Linear::new(features, 10)?;
/// # assert_eq!(model.forward(&cotangent::Tensor::randn([2, 3, 32, 32])?)?.shape(), [2, 10]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    /// The last layer, from features to logits.
    pub fc: Linear,
}

impl ResNet {
    /// A model with new weights. Those of convolutions are normal with variance 2 / fan_out, as in torchvision.
    ///
    /// ```
    /// use cotangent::models::{ResNet, ResNetConfig};
    /// use cotangent::nn::Module;
    /// let model = ResNet::new(&ResNetConfig { width: 4, ..ResNetConfig::resnet18() })?;
    /// assert!(model.named_parameters().iter().any(|(name, _)| name == "layer2.0.downsample.1.weight"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size is 0 or too large, basic blocks have groups or another width, or the groups do not divide the channels.
    #[track_caller]
    pub fn new(config: &ResNetConfig) -> Result<ResNet> {
        let &ResNetConfig { block, layers, num_classes, in_channels, width, groups, width_per_group, .. } = config;
        // Widths are multiplied by eight, four, and the groups.
        const MOST: usize = 1 << 20;
        let sizes =
            [width, in_channels, num_classes, groups, width_per_group, layers[0], layers[1], layers[2], layers[3]];
        if let Some(size) = sizes.into_iter().find(|size| !(1..=MOST).contains(size)) {
            bail!(Value, "ResNet", "all sizes must be from 1 to {MOST}, got {size}");
        }
        if block == ResNetBlock::Basic && (groups, width_per_group) != (1, 64) {
            bail!(
                Value,
                "ResNet",
                "groups must be 1 and width_per_group 64 for basic blocks, got {groups} and {width_per_group}"
            );
        }
        if block == ResNetBlock::Bottleneck && !(width * width_per_group).is_multiple_of(64) {
            bail!(
                Value,
                "ResNet",
                "width * width_per_group must be a multiple of 64, got {width} and {width_per_group}"
            );
        }
        let mut inputs = width;
        let mut stage = |at: usize| {
            let (planes, mut blocks) = (width << at, Vec::new());
            for number in 0..layers[at] {
                let stride = if at > 0 && number == 0 { 2 } else { 1 };
                blocks.push(Block::new(config, inputs, planes, stride)?);
                inputs = planes * block.expansion();
            }
            Ok(blocks)
        };
        Ok(ResNet {
            conv1: conv([in_channels, width], 7, 2, 1)?,
            bn1: BatchNorm2d::new(width)?,
            layer1: stage(0)?,
            layer2: stage(1)?,
            layer3: stage(2)?,
            layer4: stage(3)?,
            fc: Linear::new((width << 3) * block.expansion(), num_classes)?,
        })
    }

    /// The features `[batch, features]` of images `[batch, channels, height, width]`, which are the input of the last layer.
    ///
    /// ```
    /// use cotangent::models::{ResNet, ResNetConfig};
    /// use cotangent::Tensor;
    /// let model = ResNet::new(&ResNetConfig { width: 4, ..ResNetConfig::resnet18() })?;
    /// assert_eq!(model.features(&Tensor::randn([2, 3, 32, 32])?)?.shape(), [2, 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the images do not fit.
    #[track_caller]
    pub fn features(&self, x: &Tensor) -> Result<Tensor> {
        let channels = self.conv1.weight.shape()[1];
        if x.rank() != 4 || x.shape()[1] != channels {
            bail!(Shape, "ResNet", "images must have shape [batch, {channels}, height, width], got {:?}", x.shape());
        }
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let mut x = x.max_pool2d_with(3, MaxPoolOptions::new().stride(2).padding(1))?;
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(&x)?;
        }
        x.mean([2, 3])
    }
}

impl Forward for ResNet {
    /// Computes the logits `[batch, num_classes]` of images `[batch, channels, height, width]`.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.forward(&self.features(x)?)
    }
}

impl Published for ResNet {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        let mut own = dict.clone();
        // Old files have no counts of batches, which only layers without a momentum read.
        for (name, _) in self.named_buffers() {
            if name.ends_with(".num_batches_tracked") && dict.get(&name).is_none() {
                own.insert(name, Tensor::zeros_with((), DType::I64)?);
            }
        }
        Ok(own)
    }
}
