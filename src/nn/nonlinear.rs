//! The other activations of PyTorch, as layers.

use super::activation::layers;
use super::list::LayerEntry;
use super::{Forward, Module, Parameter, Training, layer};
use crate::error::bail;
use crate::ops::{ParamGroup, ParamSpec};
use crate::options::options;
use crate::{CeluOptions, Dim, HardtanhOptions, Result, RreluOptions, ShrinkOptions, Tensor};

layers! {
    /// `min(max(x, 0), 6)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, ReLU6}, tensor};
    /// assert_eq!(ReLU6.forward(&tensor!([7.0])?)?.item::<f32>()?, 6.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ReLU6 => |x| x.relu6();
    /// A scaled ELU that keeps mean 0 and variance 1.
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
    /// The softmax over the channels of an image, `[batch, channels, height, width]` or one without the batch.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Softmax2d}};
    /// assert_eq!(Softmax2d.forward(&Tensor::zeros([1, 2, 1, 1])?)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Softmax2d => |x| match x.rank() {
        3 | 4 => x.softmax(-3),
        _ => bail!(Shape, "Softmax2d", "an input of shape {:?} should have 3 or 4 dimensions", x.shape()),
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
        /// The dimension that is halved.
        dim: Dim = Dim(-1),
    }
}

layers! {
    /// `x` where positive, `alpha · (exp(x / alpha) - 1)` elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::CELU::new_with(0.5);
    /// ```
    CELU(CeluOptions) => |x, options| x.celu_with(options);
    /// `x`, but at least -1 and at most 1, or other numbers.
    ///
    /// ```
    /// use cotangent::{HardtanhOptions, nn::Hardtanh};
    /// let layer = Hardtanh::new_with(HardtanhOptions::new().min_val(0.0));
    /// ```
    Hardtanh(HardtanhOptions) => |x, options| x.hardtanh_with(options);
    /// `x`, but 0 near 0.
    ///
    /// ```
    /// let layer = cotangent::nn::Hardshrink::new_with(0.1);
    /// ```
    Hardshrink(ShrinkOptions) => |x, options| x.hardshrink_with(options);
    /// `x` moved towards 0.
    ///
    /// ```
    /// let layer = cotangent::nn::Softshrink::new_with(0.1);
    /// ```
    Softshrink(ShrinkOptions) => |x, options| x.softshrink_with(options);
}

/// The first half of a dimension times the sigmoid of the second.
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
        docs: "The first half of a dimension times the sigmoid of the second.",
        params: &[ParamSpec::Group(<GluOptions as ParamGroup<'static>>::PARAMS)],
        build: |args| Ok(Box::new(GLU { options: crate::ops::Args::new("GLU", args).group()? })),
    };

    /// Of the last dimension.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, GLU}};
    /// assert_eq!(GLU::new().forward(&Tensor::zeros([2, 4])?)?.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new() -> GLU {
        GLU::default()
    }

    /// With options.
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

/// `x` above a threshold, and a number elsewhere.
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
    /// What is not above `threshold` becomes `value`.
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

/// Exponentials of the negatives along a dimension, divided by their sum.
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
    /// Along this dimension; negative ones count from the last.
    ///
    /// ```
    /// let layer = cotangent::nn::Softmin::new(-1)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None: whether there is such a dimension is seen when the layer is used.
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

/// `x` where positive, and elsewhere `x` times a slope that is learnt: one for all, or one for each channel.
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
    /// The options of [`PReLU::new_with`]. A number stands for the slope.
    ///
    /// ```
    /// use cotangent::nn::{PReLU, PReluOptions};
    /// assert_eq!(PReLU::new_with(3, PReluOptions::new().init(0.1))?.weight.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PReluOptions {
        /// What the slopes begin at.
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
    /// With so many slopes.
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
    /// let layer = cotangent::nn::RReLU::new_with(cotangent::nn::RReluOptions::new().lower(0.0).upper(0.5))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RReluOptions {
        /// The least slope.
        lower: f64 = 0.125,
        /// The greatest slope.
        upper: f64 = 1.0 / 3.0,
    }
}

/// `x` where positive, and elsewhere `x` times a slope that is drawn in training, and the mean of all slopes outside of it.
///
/// ```
/// use cotangent::{nn::{Forward, Module, RReLU, RReluOptions}, tensor};
/// let mut layer = RReLU::new_with(RReluOptions::new().lower(0.25).upper(0.75))?;
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
    /// With slopes from 1/8 to 1/3, or those of the options.
    ///
    /// ```
    /// let layer = cotangent::nn::RReLU::new()?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None: whether the slopes are in order is seen when the layer is used.
    pub fn new(options: impl Into<RReluOptions>) -> Result<RReLU> {
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
