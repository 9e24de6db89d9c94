//! Modules: networks as structs whose parameters have names.
//!
//! A network is a struct with `#[derive(`[`Module`]`)]`. Its weights are [`Parameter`]s, its other state [`Buffer`]s. The
//! derive macro lists, saves, loads, counts and updates them under PyTorch's names.
//!
//! ```
//! use cotangent::nn::{Forward, Linear, Module, ReLU, Sequential};
//! use cotangent::optim::{AdamW, Optimizer};
//! use cotangent::{Tensor, keepdim};
//!
//! cotangent::manual_seed(0);
//! let mut model = Sequential::new().add(Linear::new(2, 16)?).add(ReLU).add(Linear::new(16, 1)?);
//! let mut optimizer = AdamW::new(0.01);
//! let x = Tensor::randn([32, 2])?;
//! let y = x.sum(keepdim(1))?;
//! for _ in 0..200 {
//!     let loss = model.forward(&x)?.mse_loss(&y)?;
//!     model.zero_grad();
//!     loss.backward()?;
//!     optimizer.step(&mut model)?;
//! }
//! assert!(model.forward(&x)?.mse_loss(&y)?.item::<f32>()? < 0.05);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Modules in modules
//! A field can be a container. The names are those of PyTorch's containers:
//!
//! | PyTorch | here |
//! | --- | --- |
//! | `ModuleList` | `Vec<M>` or `[M; N]`; for layers of different types `Vec<Box<dyn Layer>>` |
//! | `ModuleDict` | `BTreeMap<String, M>`, or a struct with a field for each |
//! | `ParameterList`, `ParameterDict` | `Vec<Parameter>`, `BTreeMap<String, Parameter>` |
//! | `None`, or a module | `Option<M>` |
//! | `Sequential` | [`Sequential`] |
//! | `parametrizations.weight_norm`, `.spectral_norm` | [`WeightNorm`] and [`SpectralNorm`] around a layer |
//!
//! ```
//! use cotangent::nn::{Forward, Layer, Linear, Module, ReLU};
//! use std::collections::BTreeMap;
//!
//! #[derive(Module)]
//! struct Model {
//!     blocks: Vec<Box<dyn Layer>>,
//!     heads: BTreeMap<String, Linear>,
//!     extra: Option<Linear>,
//! }
//!
//! let model = Model {
//!     blocks: vec![Box::new(Linear::new(4, 8)?), Box::new(ReLU)],
//!     heads: BTreeMap::from([("digit".to_string(), Linear::new(8, 10)?)]),
//!     extra: None,
//! };
//! let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["blocks.0.weight", "blocks.0.bias", "heads.digit.weight", "heads.digit.bias"]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Sizes that follow from others
//! There are no lazy layers: a layer creates its parameters when it is made, so an optimiser and a file see the same
//! parameters before the first call as after it. To find a size that follows from the layers before, run them once:
//!
//! ```
//! use cotangent::nn::{Conv2d, Flatten, Forward, Linear, MaxPool2d, ReLU, Sequential};
//! use cotangent::Tensor;
//! let mut model = Sequential::new().add(Conv2d::new(1, 8, 3)?).add(ReLU).add(MaxPool2d::new(2)?).add(Flatten::new());
//! let features = model.forward(&Tensor::zeros([1, 1, 28, 28])?)?.shape()[1];
//! model.push(Linear::new(features, 10)?);
//! assert_eq!(features, 8 * 13 * 13);
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod activation;
mod cells;
mod conv;
pub mod init;
mod layers;
mod list;
mod lora;
mod module;
mod multihead;
mod nonlinear;
mod norm;
mod parameter;
mod parametrize;
mod pool;
mod quantize;
mod recurrent;
mod sequential;
mod shapes;
mod state;
pub(crate) mod summary;
pub(crate) mod tied;
mod transformer;
mod visit;

pub use crate::quantized::{QuantFormat, QuantizedTensor};
pub use activation::{
    ELU, Flatten, FlattenOptions, GELU, Identity, LeakyReLU, LogSoftmax, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh,
};
pub use cells::{CellOptions, GRUCell, LSTMCell, RNNCell, RNNCellOptions};
pub use conv::{
    Conv1d, Conv2d, Conv3d, ConvLayerOptions, ConvPaddingMode, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
    ConvTransposeLayerOptions,
};
/// Implements the trait [`Module`](trait@Module) for a struct or an enum.
///
/// Fields may be parameters, buffers, modules, containers of these, and plain data. [The trait](trait@Module) has the rules and
/// the attributes `#[module(skip)]` and `#[module(rename = "..")]`. `#[module(quantizable)]` marks a weight that
/// [`quantize`](quantize()) may replace.
///
/// ```
/// use cotangent::nn::{Linear, Module, Parameter};
/// use cotangent::Tensor;
///
/// #[derive(Module)]
/// struct Scaled {
///     linear: Linear,
///     scale: Parameter,
///     #[module(skip)]
///     mean: Tensor,
/// }
///
/// let (scale, mean) = (Parameter::new(Tensor::ones([2])?)?, Tensor::zeros([3])?);
/// let model = Scaled { linear: Linear::new(3, 2)?, scale, mean };
/// let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["linear.weight", "linear.bias", "scale"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub use cotangent_macros::Module;
pub(crate) use cotangent_macros::layer;
pub(crate) use layers::linear;
pub use layers::{Dropout, Embedding, LayerNorm, LayerNormLayerOptions, Linear, LinearOptions};
pub use list::{LayerEntry, list};
pub use lora::LoraLinear;
pub use module::{Module, Training};
pub use multihead::{AttendOptions, MultiheadAttention, MultiheadAttentionOptions};
pub use nonlinear::{
    CELU, GLU, GluOptions, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LogSigmoid, Mish, PReLU, PReluOptions, RReLU,
    RReluLayerOptions, ReLU6, SELU, Softmax2d, Softmin, Softshrink, Softsign, Tanhshrink, Threshold,
};
pub(crate) use norm::with_cumulative_statistics;
pub use norm::{
    BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormLayerOptions, GroupNorm, GroupNormLayerOptions, InstanceNorm1d,
    InstanceNorm2d, InstanceNorm3d, InstanceNormLayerOptions, LocalResponseNorm, RMSNorm, RmsNormLayerOptions,
};
pub use parameter::{Buffer, Parameter};
pub use parametrize::{SpectralNorm, SpectralNormOptions, WeightNorm, WeightNormOptions, WeightedLayer};
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use quantize::{dequantize, quantize};
pub use recurrent::{GRU, GRUOptions, LSTM, LSTMOptions, RNN, RNNOptions, RnnNonlinearity};
pub use sequential::{Lambda, Layer, Sequential};
pub use shapes::{
    AlphaDropout, Bilinear, BilinearOptions, ChannelShuffle, Dropout1d, Dropout2d, Dropout3d, EmbeddingBag,
    EmbeddingBagLayerOptions, FeatureAlphaDropout, PixelShuffle, PixelUnshuffle, Unflatten, Upsample, UpsampleOptions,
};
pub use state::{LoadReport, load, save};
pub use tied::ParameterMut;
pub use transformer::{
    Transformer, TransformerActivation, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerLayerOptions,
};
pub use visit::{Part, PartMut, Ties, Visit, Visitor};

use crate::{Result, Tensor};

/// A module that maps one tensor to one tensor.
///
/// ```
/// use cotangent::nn::{Forward, Linear, Module};
/// use cotangent::{Result, Tensor};
///
/// /// A layer and its input.
/// #[derive(Module)]
/// struct Residual {
///     layer: Linear,
/// }
///
/// impl Forward for Residual {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         x.add(&self.layer.forward(x)?)
///     }
/// }
///
/// let block = Residual { layer: Linear::new(4, 4)? };
/// assert_eq!(block.forward(&Tensor::ones([2, 4])?)?.shape(), [2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "__call__")]
pub trait Forward {
    /// Computes the output for `x`.
    ///
    /// # Errors
    /// If the shape or dtype of `x` does not fit the module.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

/// What the derive macro's code uses.
#[doc(hidden)]
pub mod private {
    use crate::Result;
    use crate::error::bail;

    /// A field that is plain data.
    pub struct Field<'a, T>(pub &'a T);

    /// Fields that can be cloned.
    pub trait Cloned<T> {
        /// A clone of the field.
        ///
        /// # Errors
        /// Never.
        fn cloned(&self, module: &str, name: &str) -> Result<T>;
    }

    impl<T: Clone> Cloned<T> for Field<'_, T> {
        fn cloned(&self, _: &str, _: &str) -> Result<T> {
            Ok(self.0.clone())
        }
    }

    /// All other fields: method resolution reaches this trait if the first does not apply.
    pub trait NotCloned<T> {
        /// Returns an error.
        ///
        /// # Errors
        /// Always: the field cannot be cloned.
        fn cloned(&self, module: &str, name: &str) -> Result<T>;
    }

    impl<T> NotCloned<T> for &Field<'_, T> {
        fn cloned(&self, module: &str, name: &str) -> Result<T> {
            bail!(Value, "deep_clone", "field {name} of {module} must implement Clone")
        }
    }
}

impl<T: Forward + ?Sized> Forward for Box<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
}
