//! Linear layers, embeddings, layer norm and dropout.

use super::init::{self, Fan, Gain};
use super::{Forward, Module, Parameter, Training, layer};
use crate::error::{bail, named};
use crate::options::EmbeddingOptions;
use crate::options::options;
use crate::{Result, Shape, Tensor};

/// A linear layer: `x Wᵀ + b` over the last dimension.
///
/// Weight and bias are initialised uniformly in ±1/√in_features, as in PyTorch.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}};
/// let layer = Linear::new(3, 2)?;
/// assert_eq!(layer.forward(&Tensor::ones([5, 3])?)?.shape(), [5, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// There is no lazy form. [Sizes that follow from others](crate::nn#sizes-that-follow-from-others) shows how to find
/// `in_features`.
#[doc(alias = "LazyLinear")]
#[derive(Debug, Module)]
pub struct Linear {
    /// Of shape `[out_features, in_features]`.
    #[module(quantizable)]
    pub weight: Parameter,
    /// Of shape `[out_features]`.
    pub bias: Option<Parameter>,
}

options! {
    /// The options of [`Linear::new_with`].
    ///
    /// ```
    /// use cotangent::nn::{Linear, LinearOptions};
    /// assert!(Linear::new_with(3, 2, LinearOptions::new().bias(false))?.bias.is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LinearOptions {
        /// Whether to add a learned bias.
        bias: bool = true,
    }
}

#[layer]
impl Linear {
    /// A linear layer, `x Wᵀ + b`, from `in_features` to `out_features`.
    ///
    /// Weight and bias are initialised uniformly in ±1/√in_features.
    ///
    /// ```
    /// use cotangent::nn::{Linear, LinearOptions};
    /// let layer = Linear::new_with(3, 2, LinearOptions::new().bias(false))?;
    /// assert!(layer.bias.is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(in_features: usize, out_features: usize, options: impl Into<LinearOptions>) -> Result<Linear> {
        let weight = init::kaiming_uniform([out_features, in_features], Gain::LeakyRelu(5.0_f64.sqrt()), Fan::In)?;
        let bound = 1.0 / (in_features.max(1) as f64).sqrt();
        let bias = || Parameter::new(init::uniform([out_features], -bound, bound)?);
        Ok(Linear { weight: Parameter::new(weight)?, bias: options.bias.then(bias).transpose()? })
    }
}

impl Linear {
    #[track_caller]
    pub(super) fn with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        x.linear(weight, self.bias.as_deref())
    }
}

impl Forward for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight, self.bias.as_deref())
    }
}

/// `x Wᵀ + b` with a dense or a quantised weight.
#[track_caller]
pub(crate) fn linear(x: &Tensor, weight: &Parameter, bias: Option<&Tensor>) -> Result<Tensor> {
    match weight.quantized() {
        None => x.linear(weight, bias),
        Some(weight) => weight.linear(x, bias),
    }
}

/// A table of vectors, looked up by index.
///
/// The weight is initialised from the standard normal distribution, as in PyTorch.
///
/// ```
/// use cotangent::{nn::{Embedding, Forward}, tensor};
/// let table = Embedding::new(10, 4)?;
/// assert_eq!(table.forward(&tensor!([7, 7, 1])?)?.shape(), [3, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Embedding {
    /// Of shape `[num_embeddings, embedding_dim]`.
    #[module(quantizable)]
    pub weight: Parameter,
    /// The row that gets no gradient and is initialised to zeros.
    pub padding_idx: Option<i64>,
    /// Whether the gradient of a row is divided by the number of times it was looked up.
    pub scale_grad_by_freq: bool,
}

#[layer]
impl Embedding {
    /// An embedding: a table of `num_embeddings` vectors of size `embedding_dim`, looked up by index.
    ///
    /// The weight is initialised from the standard normal distribution.
    ///
    /// ```
    /// use cotangent::{nn::{Embedding, Forward}, tensor};
    /// let table = Embedding::new(100, 16)?;
    /// assert_eq!(table.forward(&tensor!([[3, 1], [4, 1]])?)?.shape(), [2, 2, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `padding_idx` is out of range, or memory runs out.
    pub fn new(num_embeddings: usize, embedding_dim: usize, options: impl Into<EmbeddingOptions>) -> Result<Embedding> {
        let EmbeddingOptions { padding_idx, scale_grad_by_freq } = options;
        let mut table = init::normal([num_embeddings, embedding_dim], 0.0, 1.0)?;
        if let Some(row) = padding_idx {
            let zeros = Tensor::zeros([embedding_dim])?;
            table = named("Embedding", table.select_scatter(&zeros, 0, row as isize))?;
        }
        Ok(Embedding { padding_idx, scale_grad_by_freq, ..Embedding::from_weight(Parameter::new(table)?) })
    }
}

impl Embedding {
    /// An embedding with this weight.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Embedding, Parameter}};
    /// let table = Embedding::from_weight(Parameter::new(Tensor::zeros([10, 4])?)?);
    /// assert_eq!(table.weight.shape(), [10, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn from_weight(weight: Parameter) -> Embedding {
        Embedding { weight, padding_idx: None, scale_grad_by_freq: false }
    }
}

impl Forward for Embedding {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        if let Some(table) = self.weight.quantized() {
            // The options affect only the gradient, and there is none.
            return table.embedding(indices);
        }
        let options = EmbeddingOptions { padding_idx: self.padding_idx, scale_grad_by_freq: self.scale_grad_by_freq };
        indices.embedding_with(&self.weight, options)
    }
}

/// Normalises the last dimensions to mean 0 and variance 1, then scales and shifts each element.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, LayerNorm}};
/// let y = LayerNorm::new(8)?.forward(&Tensor::randn([4, 8])?)?;
/// assert!(y.mean(-1)?.abs()?.max(..)?.item::<f32>()? < 1e-5);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct LayerNorm {
    /// The scale, initialised to 1, of shape `normalized_shape`.
    pub weight: Option<Parameter>,
    /// The shift, initialised to 0, of shape `normalized_shape`.
    pub bias: Option<Parameter>,
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    shape: Shape,
}

options! {
    /// The options of [`LayerNorm::new_with`](crate::nn::LayerNorm::new_with).
    ///
    /// ```
    /// use cotangent::nn::{LayerNorm, LayerNormLayerOptions};
    /// let layer = LayerNorm::new_with([4, 8], LayerNormLayerOptions::new().eps(1e-6).bias(false))?;
    /// assert!(layer.weight.is_some() && layer.bias.is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LayerNormLayerOptions {
        /// Added to the variance.
        eps: f64 = 1e-5,
        /// Whether to learn a scale and a shift.
        elementwise_affine: bool = true,
        /// Whether to learn a shift, where there is a scale.
        bias: bool = true,
    }
}

#[layer]
impl LayerNorm {
    /// Normalises the last dimensions, of shape `normalized_shape`, to mean 0 and variance 1, then scales and shifts each
    /// element.
    ///
    /// ```
    /// use cotangent::nn::{LayerNorm, LayerNormLayerOptions, Module};
    /// let layer = LayerNorm::new_with(8, LayerNormLayerOptions::new().elementwise_affine(false))?;
    /// assert_eq!(layer.num_parameters(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(normalized_shape: impl Into<Shape>, options: impl Into<LayerNormLayerOptions>) -> Result<LayerNorm> {
        let weight = || Parameter::new(Tensor::ones(&normalized_shape)?);
        let bias = || Parameter::new(Tensor::zeros(&normalized_shape)?);
        Ok(LayerNorm {
            weight: options.elementwise_affine.then(weight).transpose()?,
            bias: (options.elementwise_affine && options.bias).then(bias).transpose()?,
            eps: options.eps,
            shape: normalized_shape,
        })
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let affine = crate::options::LayerNormOptions::new().weight(self.weight.as_deref()).bias(self.bias.as_deref());
        x.layer_norm_with(&self.shape, affine.eps(self.eps))
    }
}

/// In training, sets elements to zero with probability `p` and scales the others by `1 / (1 - p)`. The identity in evaluation.
///
/// ```
/// use cotangent::{Tensor, nn::{Dropout, Forward, Module}};
/// let mut layer = Dropout::new(0.5)?;
/// let x = Tensor::ones([1000])?;
/// assert!(!layer.forward(&x)?.equal(&x)?);
/// layer.eval();
/// assert!(layer.forward(&x)?.equal(&x)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Dropout {
    p: f64,
    training: Training,
}

#[layer]
impl Dropout {
    /// In training, sets elements to zero with probability `p` and scales the others by `1 / (1 - p)`. The identity in
    /// evaluation.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Dropout, Forward, Module}};
    /// let mut layer = Dropout::new(0.5)?;
    /// layer.eval();
    /// assert_eq!(layer.forward(&Tensor::ones([3])?)?.to_vec::<f32>()?, [1.0; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not in [0, 1].
    pub fn new(#[default(0.5)] p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            bail!(Value, "Dropout", "dropout probability p must be in [0, 1], got {p}");
        }
        Ok(Dropout { p, training: Training::default() })
    }
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.dropout_with(self.p, self.training.is_on())
    }
}
