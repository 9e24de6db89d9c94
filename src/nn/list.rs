//! The layers as data, for tables and other languages.

use super::{
    AlphaDropout, BatchNorm1d, BatchNorm2d, BatchNorm3d, CELU, ChannelShuffle, Dropout, Dropout1d, Dropout2d,
    Dropout3d, ELU, Embedding, EmbeddingBag, FeatureAlphaDropout, Flatten, GELU, GLU, GRU, GRUCell, GroupNorm,
    Hardshrink, Hardsigmoid, Hardswish, Hardtanh, Identity, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LSTM,
    LSTMCell, Layer, LayerNorm, LeakyReLU, Linear, LocalResponseNorm, LogSigmoid, LogSoftmax, Mish, MultiheadAttention,
    PReLU, PixelShuffle, PixelUnshuffle, RMSNorm, RNN, RNNCell, RReLU, ReLU, ReLU6, SELU, SiLU, Sigmoid, Softmax,
    Softmax2d, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold, TransformerEncoderLayer,
    Unflatten, Upsample,
};
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

    /// A new layer, from arguments by position and by name; defaults fill the rest.
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
    /// As those of `new`; also if the arguments do not fit its parameters.
    #[track_caller]
    pub fn build(&self, positional: &[Arg], named: &[(&str, Arg)]) -> Result<Box<dyn Layer>> {
        let params: Vec<&Param> = self.params().collect();
        error::named(self.name, bind(self.name, &params, positional, named).and_then(|args| (self.build)(&args)))
    }
}

/// Every layer.
///
/// ```
/// assert!(cotangent::nn::list().iter().any(|layer| layer.name == "Linear"));
/// ```
pub fn list() -> &'static [LayerEntry] {
    const ALL: &[LayerEntry] = &[
        AlphaDropout::LAYER,
        BatchNorm1d::LAYER,
        BatchNorm2d::LAYER,
        BatchNorm3d::LAYER,
        CELU::LAYER,
        ChannelShuffle::LAYER,
        Dropout::LAYER,
        Dropout1d::LAYER,
        Dropout2d::LAYER,
        Dropout3d::LAYER,
        ELU::LAYER,
        Embedding::LAYER,
        EmbeddingBag::LAYER,
        FeatureAlphaDropout::LAYER,
        Flatten::LAYER,
        GELU::LAYER,
        GLU::LAYER,
        GRU::LAYER,
        GRUCell::LAYER,
        GroupNorm::LAYER,
        Hardshrink::LAYER,
        Hardsigmoid::LAYER,
        Hardswish::LAYER,
        Hardtanh::LAYER,
        Identity::LAYER,
        InstanceNorm1d::LAYER,
        InstanceNorm2d::LAYER,
        InstanceNorm3d::LAYER,
        LSTM::LAYER,
        LSTMCell::LAYER,
        LayerNorm::LAYER,
        LeakyReLU::LAYER,
        Linear::LAYER,
        LocalResponseNorm::LAYER,
        LogSigmoid::LAYER,
        LogSoftmax::LAYER,
        Mish::LAYER,
        MultiheadAttention::LAYER,
        PReLU::LAYER,
        PixelShuffle::LAYER,
        PixelUnshuffle::LAYER,
        RMSNorm::LAYER,
        RNN::LAYER,
        RNNCell::LAYER,
        RReLU::LAYER,
        ReLU::LAYER,
        ReLU6::LAYER,
        SELU::LAYER,
        SiLU::LAYER,
        Sigmoid::LAYER,
        Softmax::LAYER,
        Softmax2d::LAYER,
        Softmin::LAYER,
        Softplus::LAYER,
        Softshrink::LAYER,
        Softsign::LAYER,
        Tanh::LAYER,
        Tanhshrink::LAYER,
        Threshold::LAYER,
        TransformerEncoderLayer::LAYER,
        Unflatten::LAYER,
        Upsample::LAYER,
    ];
    ALL
}
