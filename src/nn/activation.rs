//! Activations and reshapings as layers, for a [`Sequential`](super::Sequential). They have no parameters.

use super::{Forward, LayerEntry, Module, layer};
use crate::layout::Dim;
use crate::ops::{ParamGroup, ParamSpec};
use crate::options::options;
use crate::options::{EluOptions, GeluOptions, LeakyReluOptions, SoftplusOptions};
use crate::{Result, Tensor};

/// Makes layers out of methods of [`Tensor`]: for each `Name => |x| value;` a unit struct that is a [`Module`] and
/// whose [`Forward`] is the value; with `Name(Options) => |x, options| value;` a struct that holds options.
macro_rules! layers {
    ($($(#[doc = $doc:literal])+ $name:ident => |$x:ident| $value:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, Module)]
        pub struct $name;

        impl $name {
            pub(crate) const LAYER: LayerEntry =
                LayerEntry { name: stringify!($name), docs: concat!($($doc, "\n"),+), params: &[], build: |_| Ok(Box::new($name)) };
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                $value
            }
        }
    )+};
    ($($(#[doc = $doc:literal])+ $name:ident($options:ident) => |$x:ident, $own:ident| $value:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, Module)]
        pub struct $name {
            #[module(skip)]
            options: $options,
        }

        impl $name {
            pub(crate) const LAYER: LayerEntry = LayerEntry {
                name: stringify!($name),
                docs: concat!($($doc, "\n"),+),
                params: &[ParamSpec::Group(<$options as ParamGroup<'static>>::PARAMS)],
                build: |args| Ok(Box::new($name { options: crate::ops::Args::new(stringify!($name), args).group()? })),
            };

            /// Creates the layer with default options.
            ///
            #[doc = concat!("```\nuse cotangent::{Tensor, nn::{Forward, ", stringify!($name), "}};")]
            #[doc = concat!("let y = ", stringify!($name), "::new().forward(&Tensor::zeros([2, 3])?)?;")]
            /// assert_eq!(y.shape(), [2, 3]);
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            pub fn new() -> $name {
                $name::default()
            }

            /// Creates the layer with options.
            ///
            #[doc = concat!("```\nuse cotangent::{Tensor, nn::{Forward, ", stringify!($name), "}};")]
            #[doc = concat!("# use cotangent::{*, nn::*, options::*};\nlet options = ", stringify!($options), "::new();")]
            #[doc = concat!("let y = ", stringify!($name), "::new_with(options).forward(&Tensor::zeros([2, 3])?)?;")]
            /// assert_eq!(y.shape(), [2, 3]);
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            pub fn new_with(options: impl Into<$options>) -> $name {
                $name { options: options.into() }
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                let $own = self.options.clone();
                $value
            }
        }
    )+};
}
pub(super) use layers;

layers! {
    /// The rectified linear unit: `max(x, 0)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, ReLU}, tensor};
    /// assert_eq!(ReLU.forward(&tensor!([-1.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ReLU => |x| x.relu();
    /// The sigmoid linear unit: `x · sigmoid(x)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, SiLU}, tensor};
    /// assert_eq!(SiLU.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    SiLU => |x| x.silu();
    /// The hyperbolic tangent: `tanh(x)`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Tanh}, tensor};
    /// assert_eq!(Tanh.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Tanh => |x| x.tanh();
    /// The sigmoid: `1 / (1 + exp(-x))`.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Sigmoid}, tensor};
    /// assert_eq!(Sigmoid.forward(&tensor!([0.0])?)?.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Sigmoid => |x| x.sigmoid();
    /// The identity: returns its input.
    ///
    /// ```
    /// use cotangent::{nn::{Forward, Identity}, tensor};
    /// assert_eq!(Identity.forward(&tensor!([7.0])?)?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Identity => |x| Ok(x.clone());
}

options! {
    /// The options of [`Flatten`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Flatten, FlattenOptions, Forward}};
    /// let layer = Flatten::new_with(FlattenOptions::new().start_dim(2).end_dim(3));
    /// assert_eq!(layer.forward(&Tensor::zeros([2, 3, 4, 5])?)?.shape(), [2, 3, 20]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct FlattenOptions {
        /// The first dimension to flatten.
        start_dim: Dim = Dim(1),
        /// The last dimension to flatten.
        end_dim: Dim = Dim(-1),
    }
}

layers! {
    /// The Gaussian error linear unit: exact, or with the tanh approximation.
    ///
    /// ```
    /// use cotangent::{nn::GELU, options::Gelu};
    /// let (exact, fast) = (GELU::new(), GELU::new_with(Gelu::Tanh));
    /// ```
    GELU(GeluOptions) => |x, options| x.gelu_with(options);
    /// The leaky ReLU: `x` where positive, `negative_slope · x` elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::LeakyReLU::new_with(0.2);
    /// ```
    LeakyReLU(LeakyReluOptions) => |x, options| x.leaky_relu_with(options);
    /// The exponential linear unit: `x` where positive, `alpha · (exp(x) - 1)` elsewhere.
    ///
    /// ```
    /// let layer = cotangent::nn::ELU::new_with(0.5);
    /// ```
    ELU(EluOptions) => |x, options| x.elu_with(options);
    /// `ln(1 + exp(beta · x)) / beta`, and `x` where `beta · x` is above `threshold`.
    ///
    /// ```
    /// use cotangent::{nn::Softplus, options::SoftplusOptions};
    /// let layer = Softplus::new_with(SoftplusOptions::new().beta(2.0));
    /// ```
    Softplus(SoftplusOptions) => |x, options| x.softplus_with(options);
    /// Flattens the dimensions from `start_dim` to `end_dim` into one; by default all but the first.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Flatten, FlattenOptions, Forward}};
    /// let x = Tensor::zeros([2, 3, 4])?;
    /// assert_eq!(Flatten::new().forward(&x)?.shape(), [2, 12]);
    /// assert_eq!(Flatten::new_with(FlattenOptions::new().start_dim(0)).forward(&x)?.shape(), [24]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Flatten(FlattenOptions) => |x, options| x.flatten(options.start_dim, options.end_dim);
}

/// The softmax along a dimension: `exp(x) / Σ exp(x)`.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Softmax}};
/// assert_eq!(Softmax::new(1)?.forward(&Tensor::zeros([1, 4])?)?.to_vec::<f32>()?, [0.25; 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct Softmax {
    dim: isize,
}

#[layer]
impl Softmax {
    /// The softmax along `dim`: `exp(x) / Σ exp(x)`. A negative `dim` counts from the last dimension.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, Softmax}};
    /// assert_eq!(Softmax::new(-1)?.forward(&Tensor::zeros([2])?)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None. `dim` is checked when the layer is called.
    pub fn new(dim: impl Into<Dim>) -> Result<Softmax> {
        Ok(Softmax { dim: dim.0 })
    }
}

impl Forward for Softmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.softmax(self.dim)
    }
}

/// The logarithm of [`Softmax`].
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, LogSoftmax}};
/// let y = LogSoftmax::new(-1)?.forward(&Tensor::randn([2, 5])?)?;
/// assert!(y.exp()?.sum(-1)?.allclose(&Tensor::ones([2])?)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Module)]
pub struct LogSoftmax {
    dim: isize,
}

#[layer]
impl LogSoftmax {
    /// The logarithm of the softmax along `dim`. A negative `dim` counts from the last dimension.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Forward, LogSoftmax}};
    /// assert_eq!(LogSoftmax::new(-1)?.forward(&Tensor::zeros([1])?)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None. `dim` is checked when the layer is called.
    pub fn new(dim: impl Into<Dim>) -> Result<LogSoftmax> {
        Ok(LogSoftmax { dim: dim.0 })
    }
}

impl Forward for LogSoftmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.log_softmax(self.dim)
    }
}
