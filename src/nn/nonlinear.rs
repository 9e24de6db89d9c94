//! The other activations of PyTorch, as layers.

use super::activation::layers;
use super::list::LayerEntry;
use super::{Forward, Module, Parameter, Training, layer};
use crate::error::bail;
use crate::layout::Dim;
use crate::ops::{ParamGroup, ParamSpec};
use crate::options::options;
use crate::options::{CeluOptions, HardtanhOptions, RreluOptions, ShrinkOptions};
use crate::{Result, Tensor};

layers! {
    /// ReLU with an upper bound: `min(max(x, 0), 6)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, ReLU6}, tensor};
    /// assert_eq!(ReLU6.forward(&tensor!([7.0])?)?.item::<f32>()?, 6.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ReLU6 => |x| x.relu6();
    /// The scaled exponential linear unit, which keeps mean 0 and variance 1.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, SELU}, tensor};
    /// assert_eq!(SELU.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    SELU => |x| x.selu();
    /// `x · tanh(softplus(x))`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Mish}, tensor};
    /// assert_eq!(Mish.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Mish => |x| x.mish();
    /// `x / (1 + |x|)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Softsign}, tensor};
    /// assert_eq!(Softsign.forward(&tensor!([1.0])?)?.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Softsign => |x| x.softsign();
    /// `relu6(x + 3) / 6`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Hardsigmoid}, tensor};
    /// assert_eq!(Hardsigmoid.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Hardsigmoid => |x| x.hardsigmoid();
    /// `x · relu6(x + 3) / 6`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Hardswish}, tensor};
    /// assert_eq!(Hardswish.forward(&tensor!([4.0])?)?.item::<f32>()?, 4.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Hardswish => |x| x.hardswish();
    /// The logarithm of the sigmoid.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, LogSigmoid}, tensor};
    /// assert_eq!(LogSigmoid.forward(&tensor!([-100.0])?)?.item::<f32>()?, -100.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    LogSigmoid => |x| x.logsigmoid();
    /// `x - tanh(x)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Tanhshrink}, tensor};
    /// assert_eq!(Tanhshrink.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Tanhshrink => |x| x.tanhshrink();
    /// The softmax over the channels of `[batch, channels, height, width]` or `[channels, height, width]`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Softmax2d}};
    /// assert_eq!(Softmax2d.forward(&Tensor::zeros([1, 2, 1, 1])?)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Softmax2d => |x| match x.rank() {
        3 | 4 => x.softmax(-3),
        _ => bail!(Shape, "Softmax2d", "input must have 3 or 4 dimensions, got shape {:?}", x.shape()),
    };
}

options! {
    /// The options of [`GLU`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, GLU, GluOptions}};
    /// let layer = GLU::new_with(GluOptions::new().dim(0));
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 3])?)?.shape(), [1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GluOptions {
        /// The dimension to split into halves.
        dim: Dim = Dim(-1),
    }
}

layers! {
    /// The continuously differentiable ELU: `x` where positive, `alpha · (exp(x / alpha) - 1)` elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::CELU::new_with(0.5);
    /// ```
    CELU(CeluOptions) => |x, options| x.celu_with(options);
    /// `x` clamped to `[min_val, max_val]`, by default `[-1, 1]`.
    ///
    /// ```
    /// use cotangent::{nn::Hardtanh, options::HardtanhOptions};
    /// let layer = Hardtanh::new_with(HardtanhOptions::new().min_val(0.0));
    /// ```
    Hardtanh(HardtanhOptions) => |x, options| x.hardtanh_with(options);
    /// `x` where `|x| > lambd`, 0 elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::Hardshrink::new_with(0.1);
    /// ```
    Hardshrink(ShrinkOptions) => |x, options| x.hardshrink_with(options);
    /// `x` moved towards 0 by `lambd`, and 0 where `|x| <= lambd`.
    ///
    /// ```
    /// let layer = cotangent::nn::Softshrink::new_with(0.1);
    /// ```
    Softshrink(ShrinkOptions) => |x, options| x.softshrink_with(options);
}

/// The gated linear unit: the first half of a dimension times the sigmoid of the second half.
///
/// ```
/// use cotangent::{nn::{Forward, GLU}, tensor};
/// assert_eq!(GLU::new().forward(&tensor!([4.0, 0.0])?)?.item::<f32>()?, 2.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default, Module)]
pub struct GLU {
    #[module(skip)]
    options: GluOptions,
}

impl GLU {
    pub(crate) const LAYER: LayerEntry = LayerEntry {
        name: "GLU",
        docs: "The gated linear unit: the first half of `dim` times the sigmoid of the second half.",
        params: &[ParamSpec::Group(<GluOptions as ParamGroup<'static>>::PARAMS)],
        build: |args| Ok(Box::new(GLU { options: crate::ops::Args::new("GLU", args).group()? })),
    };

    /// Splits the last dimension.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, GLU}};
    /// assert_eq!(GLU::new().forward(&Tensor::zeros([2, 4])?)?.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new() -> GLU {
        GLU::default()
    }

    /// Creates the layer with options.
    ///
    /// ```
    /// use cotangent::nn::{GLU, GluOptions};
    /// let layer = GLU::new_with(GluOptions::new().dim(1));
    /// ```
    pub fn new_with(options: impl Into<GluOptions>) -> GLU {
        GLU { options: options.into() }
    }
}

impl Forward for GLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.glu(self.options.dim)
    }
}

/// `x` where it is above a threshold, another value elsewhere.
///
/// ```
/// use cotangent::{nn::{Forward, Threshold}, tensor};
/// assert_eq!(Threshold::new(0.5, 7.0)?.forward(&tensor!([0.0, 1.0])?)?.to_vec::<f32>()?, [7.0, 1.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct Threshold {
    threshold: f64,
    value: f64,
}

#[layer]
impl Threshold {
    /// `x` where it is above `threshold`, `value` elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::Threshold::new(0.1, 20.0)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    pub fn new(threshold: f64, value: f64) -> Result<Threshold> {
        Ok(Threshold { threshold, value })
    }
}

impl Forward for Threshold {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.threshold(self.threshold, self.value)
    }
}

/// The softmax of `-x` along a dimension.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Softmin}};
/// assert_eq!(Softmin::new(1)?.forward(&Tensor::zeros([1, 4])?)?.to_vec::<f32>()?, [0.25; 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct Softmin {
    dim: isize,
}

#[layer]
impl Softmin {
    /// The softmax of `-x` along `dim`. A negative `dim` counts from the last dimension.
    ///
    /// ```
    /// let layer = cotangent::nn::Softmin::new(-1)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None. `dim` is checked when the layer is called.
    pub fn new(dim: impl Into<Dim>) -> Result<Softmin> {
        Ok(Softmin { dim: dim.0 })
    }
}

impl Forward for Softmin {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.softmin(self.dim)
    }
}

/// `x` where positive, `weight · x` elsewhere, with one learned slope for all channels or one for each.
///
/// ```
/// use cotangent::{nn::{Forward, PReLU}, tensor};
/// assert_eq!(PReLU::new(1)?.forward(&tensor!([-4.0])?)?.item::<f32>()?, -1.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct PReLU {
    /// The slopes.
    pub weight: Parameter,
}

options! {
    /// The options of [`PReLU::new_with`]. A number can be passed in their place: the initial slope.
    ///
    /// ```
    /// use cotangent::nn::{PReLU, PReluOptions};
    /// assert_eq!(PReLU::new_with(3, PReluOptions::new().init(0.1))?.weight.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PReluOptions {
        /// The initial value of the slopes.
        init: f64 = 0.25,
    }
}

impl From<f64> for PReluOptions {
    fn from(init: f64) -> PReluOptions {
        PReluOptions::new().init(init)
    }
}

#[layer]
impl PReLU {
    /// `x` where positive, `weight · x` elsewhere, with `num_parameters` learned slopes: 1, or one for each channel.
    ///
    /// ```
    /// assert_eq!(cotangent::nn::PReLU::new(5)?.weight.shape(), [5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(#[default(1)] num_parameters: usize, options: impl Into<PReluOptions>) -> Result<PReLU> {
        Ok(PReLU { weight: Parameter::new(Tensor::full([num_parameters], options.init)?)? })
    }
}

impl Forward for PReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.prelu(&self.weight)
    }
}

options! {
    /// The options of [`RReLU::new_with`].
    ///
    /// ```
    /// let layer = cotangent::nn::RReLU::new_with(cotangent::nn::RReluLayerOptions::new().lower(0.0).upper(0.5))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RReluLayerOptions {
        /// The lower bound of the slopes.
        lower: f64 = 0.125,
        /// The upper bound of the slopes.
        upper: f64 = 1.0 / 3.0,
    }
}

/// `x` where positive, elsewhere `x` times a slope: drawn from `[lower, upper]` in training, the mean of both in evaluation.
///
/// ```
/// use cotangent::{nn::{Forward, Module, RReLU, RReluLayerOptions}, tensor};
/// let mut layer = RReLU::new_with(RReluLayerOptions::new().lower(0.25).upper(0.75))?;
/// layer.eval();
/// assert_eq!(layer.forward(&tensor!([-2.0])?)?.item::<f32>()?, -1.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct RReLU {
    lower: f64,
    upper: f64,
    training: Training,
}

#[layer]
impl RReLU {
    /// `x` where positive, elsewhere `x` times a slope: drawn from `[lower, upper]` in training, the mean of both in evaluation.
    ///
    /// ```
    /// let layer = cotangent::nn::RReLU::new()?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None. The bounds are checked when the layer is called.
    pub fn new(options: impl Into<RReluLayerOptions>) -> Result<RReLU> {
        Ok(RReLU { lower: options.lower, upper: options.upper, training: Training::default() })
    }
}

impl Forward for RReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let options = RreluOptions::new().lower(self.lower).upper(self.upper);
        x.rrelu_with(options.training(self.training.is_on()))
    }
}
