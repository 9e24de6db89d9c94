//! The layers as data, for tables and other languages.

use super::{
    Dropout, ELU, Embedding, Flatten, GELU, GRU, GRUCell, Identity, LSTM, LSTMCell, Layer, LayerNorm, LeakyReLU,
    Linear, LogSoftmax, MultiheadAttention, RNN, RNNCell, ReLU, SiLU, Sigmoid, Softmax, Softplus, Tanh,
    TransformerEncoderLayer,
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
        Dropout::LAYER,
        ELU::LAYER,
        Embedding::LAYER,
        Flatten::LAYER,
        GELU::LAYER,
        GRU::LAYER,
        GRUCell::LAYER,
        Identity::LAYER,
        LSTM::LAYER,
        LSTMCell::LAYER,
        LayerNorm::LAYER,
        LeakyReLU::LAYER,
        Linear::LAYER,
        LogSoftmax::LAYER,
        MultiheadAttention::LAYER,
        RNN::LAYER,
        RNNCell::LAYER,
        ReLU::LAYER,
        SiLU::LAYER,
        Sigmoid::LAYER,
        Softmax::LAYER,
        Softplus::LAYER,
        Tanh::LAYER,
        TransformerEncoderLayer::LAYER,
    ];
    ALL
}
