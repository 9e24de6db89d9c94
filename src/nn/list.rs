//! The list of layers, for tables and bindings to other languages.

use super::Layer;
use crate::ops::{Arg, Param, ParamSpec, bind};
use crate::{Result, error};

/// A layer of the [list](list). It is made from the signature of `new`.
///
/// ```
/// use cotangent::nn;
/// for layer in nn::list() {
///     let names: Vec<&str> = layer.params().map(|param| param.name).collect();
///     println!("{}({})", layer.name, names.join(", "));
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct LayerEntry {
    /// The name of its type.
    pub name: &'static str,
    /// The documentation of `new`, in Markdown.
    pub docs: &'static str,
    pub(crate) params: &'static [ParamSpec],
    pub(crate) build: fn(&[Arg]) -> Result<Box<dyn Layer>>,
}

impl LayerEntry {
    /// The parameters of `new`, in order.
    ///
    /// ```
    /// use cotangent::nn;
    /// let linear = nn::list().iter().find(|layer| layer.name == "Linear").ok_or("there is one")?;
    /// let names: Vec<&str> = linear.params().map(|param| param.name).collect();
    /// assert_eq!(names, ["in_features", "out_features", "bias"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn params(&self) -> impl Iterator<Item = &'static Param> {
        self.params.iter().flat_map(ParamSpec::params)
    }

    /// Creates the layer from arguments by position and by name. Missing ones take their defaults.
    ///
    /// ```
    /// use cotangent::{Tensor, nn, ops::Arg};
    /// let linear = nn::list().iter().find(|layer| layer.name == "Linear").ok_or("there is one")?;
    /// let layer = linear.build(&[Arg::from(3), Arg::from(2)], &[("bias", false.into())])?;
    /// assert_eq!(layer.forward(&Tensor::ones([5, 3])?)?.shape(), [5, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As `new`; also if the arguments do not fit its parameters.
    #[track_caller]
    pub fn build(&self, positional: &[Arg], named: &[(&str, Arg)]) -> Result<Box<dyn Layer>> {
        let params: Vec<&Param> = self.params().collect();
        error::named(self.name, bind(self.name, &params, positional, named).and_then(|args| (self.build)(&args)))
    }
}

macro_rules! entries {
    [$($layer:ident)+] => { &[$(super::$layer::LAYER),+] };
}

/// Every layer.
///
/// ```
/// assert!(cotangent::nn::list().iter().any(|layer| layer.name == "Linear"));
/// ```
pub fn list() -> &'static [LayerEntry] {
    const ALL: &[LayerEntry] = entries![
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d
        AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d CELU
        ChannelShuffle Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Dropout Dropout1d
        Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten GELU GLU GRU GRUCell
        GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh Identity InstanceNorm1d InstanceNorm2d
        InstanceNorm3d LSTM LSTMCell LayerNorm LeakyReLU Linear LocalResponseNorm LogSigmoid LogSoftmax
        MaxPool1d MaxPool2d MaxPool3d Mish MultiheadAttention PReLU PixelShuffle PixelUnshuffle RMSNorm RNN
        RNNCell RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh
        Tanhshrink Threshold TransformerEncoderLayer Unflatten Upsample
    ];
    ALL
}
