//! Transformer layers, and stacks of them.

use super::{
    AttendOptions, Dropout, Forward, LayerNorm, LayerNormLayerOptions, Linear, LinearOptions, Module,
    MultiheadAttention, MultiheadAttentionOptions, layer,
};
use crate::ops::choices;
use crate::options::options;
use crate::{Result, Tensor};

choices! {
    /// The activation between the two linear layers of a transformer layer.
    ///
    /// ```
    /// use cotangent::nn::{TransformerActivation, TransformerEncoderLayer};
    /// let layer = TransformerEncoderLayer::new_with(8, 2, TransformerActivation::Gelu)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum TransformerActivation {
        /// `max(x, 0)`.
        #[default]
        Relu = "relu",
        /// The Gaussian error linear unit.
        Gelu = "gelu",
    }
}

options! {
    /// The options of [`TransformerEncoderLayer::new_with`], [`TransformerDecoderLayer::new_with`] and
    /// [`Transformer::new_with`]. A [`TransformerActivation`] can be passed in their place.
    ///
    /// ```
    /// use cotangent::nn::{TransformerEncoderLayer, TransformerLayerOptions};
    /// let options = TransformerLayerOptions::new().dim_feedforward(32).norm_first(true).batch_first(true);
    /// let layer = TransformerEncoderLayer::new_with(8, 2, options)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct TransformerLayerOptions {
        /// The hidden size of the feed-forward network.
        dim_feedforward: usize = 2048,
        /// The dropout probability in training.
        dropout: f64 = 0.1,
        /// The activation of the feed-forward network.
        activation: TransformerActivation = TransformerActivation::Relu,
        /// Added to the variance in layer norms.
        layer_norm_eps: f64 = 1e-5,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
        /// Whether the layer norm is applied to the input of each part (pre-norm), rather than to the residual sum (post-norm).
        norm_first: bool = false,
        /// Whether attention, linear layers and layer norms have biases.
        bias: bool = true,
    }
}

impl From<TransformerActivation> for TransformerLayerOptions {
    fn from(activation: TransformerActivation) -> TransformerLayerOptions {
        TransformerLayerOptions::new().activation(activation)
    }
}

impl TransformerLayerOptions {
    fn attention(&self, d_model: usize, nhead: usize) -> Result<MultiheadAttention> {
        let options = MultiheadAttentionOptions::new().dropout(self.dropout).bias(self.bias);
        MultiheadAttention::new_with(d_model, nhead, options.batch_first(self.batch_first))
    }

    fn linear(&self, from: usize, to: usize) -> Result<Linear> {
        Linear::new_with(from, to, LinearOptions::new().bias(self.bias))
    }

    fn norm(&self, d_model: usize) -> Result<LayerNorm> {
        LayerNorm::new_with(d_model, LayerNormLayerOptions::new().eps(self.layer_norm_eps).bias(self.bias))
    }
}

impl TransformerActivation {
    fn of(self, x: &Tensor) -> Result<Tensor> {
        match self {
            TransformerActivation::Gelu => x.gelu(),
            _ => x.relu(),
        }
    }
}

/// A transformer encoder layer: self-attention and a feed-forward network, each with a residual connection and a layer norm.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, TransformerEncoderLayer}};
/// let layer = TransformerEncoderLayer::new(8, 2)?;
/// assert_eq!(layer.forward(&Tensor::randn([5, 3, 8])?)?.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct TransformerEncoderLayer {
    /// The self-attention.
    pub self_attn: MultiheadAttention,
    /// The first linear layer of the feed-forward network.
    pub linear1: Linear,
    /// The second linear layer.
    pub linear2: Linear,
    /// The layer norm of the self-attention.
    pub norm1: LayerNorm,
    /// The layer norm of the feed-forward network.
    pub norm2: LayerNorm,
    dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: TransformerActivation,
}

#[layer]
impl TransformerEncoderLayer {
    /// A transformer encoder layer over vectors of size `d_model`, with `nhead` heads: self-attention and a feed-forward network,
    /// each with a residual connection and a layer norm.
    ///
    /// ```
    /// use cotangent::nn::{Module, TransformerEncoderLayer, TransformerLayerOptions};
    /// let layer = TransformerEncoderLayer::new_with(8, 2, TransformerLayerOptions::new().dim_feedforward(16))?;
    /// assert_eq!(layer.named_parameters()[4].0, "linear1.weight");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `d_model` is not a positive multiple of `nhead`, or `dropout` is not in [0, 1].
    pub fn new(
        d_model: usize,
        nhead: usize,
        options: impl Into<TransformerLayerOptions>,
    ) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: options.attention(d_model, nhead)?,
            linear1: options.linear(d_model, options.dim_feedforward)?,
            linear2: options.linear(options.dim_feedforward, d_model)?,
            norm1: options.norm(d_model)?,
            norm2: options.norm(d_model)?,
            dropout: Dropout::new(options.dropout)?,
            norm_first: options.norm_first,
            activation: options.activation,
        })
    }

    /// The forward pass with attention masks: see [`AttendOptions`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, TransformerEncoderLayer}};
    /// let layer = TransformerEncoderLayer::new(8, 2)?;
    /// let y = layer.forward_with(&Tensor::randn([5, 3, 8])?, AttendOptions::new().is_causal(true))?;
    /// assert_eq!(y.shape(), [5, 3, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward_with<'a>(&self, x: &Tensor, options: impl Into<AttendOptions<'a>>) -> Result<Tensor> {
        let options = options.into();
        let attend = |x: &Tensor| self.dropout.forward(&self.self_attn.attend_with(x, x, x, options.clone())?.0);
        let feed = |x: &Tensor| {
            let between = self.dropout.forward(&self.activation.of(&self.linear1.forward(x)?)?)?;
            self.dropout.forward(&self.linear2.forward(&between)?)
        };
        let x = residual(x, &self.norm1, self.norm_first, attend)?;
        residual(&x, &self.norm2, self.norm_first, feed)
    }
}

impl Forward for TransformerEncoderLayer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, AttendOptions::new())
    }
}

/// A part with a residual connection around it, with the norm before the part or after the sum.
fn residual(
    x: &Tensor,
    norm: &LayerNorm,
    norm_first: bool,
    part: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if norm_first { x.add(&part(&norm.forward(x)?)?) } else { norm.forward(&x.add(&part(x)?)?) }
}

/// A transformer decoder layer: self-attention, attention to the output of an encoder, and a feed-forward network, each with a
/// residual connection and a layer norm.
///
/// ```
/// use cotangent::{Tensor, nn::TransformerDecoderLayer};
/// let (target, memory) = (Tensor::randn([5, 3, 8])?, Tensor::randn([7, 3, 8])?);
/// let layer = TransformerDecoderLayer::new(8, 2)?;
/// assert_eq!(layer.forward(&target, &memory)?.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct TransformerDecoderLayer {
    /// The self-attention of the target.
    pub self_attn: MultiheadAttention,
    /// The attention of the target to the memory.
    pub multihead_attn: MultiheadAttention,
    /// The first linear layer of the feed-forward network.
    pub linear1: Linear,
    /// The second linear layer.
    pub linear2: Linear,
    /// The layer norm of the self-attention.
    pub norm1: LayerNorm,
    /// The layer norm of the attention to the memory.
    pub norm2: LayerNorm,
    /// The layer norm of the feed-forward network.
    pub norm3: LayerNorm,
    dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: TransformerActivation,
}

impl TransformerDecoderLayer {
    /// A transformer decoder layer over vectors of size `d_model`, with `nhead` heads.
    ///
    /// ```
    /// use cotangent::nn::{Module, TransformerDecoderLayer};
    /// assert_eq!(TransformerDecoderLayer::new(8, 2)?.parameters().len(), 18);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `d_model` is not a positive multiple of `nhead`.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize) -> Result<TransformerDecoderLayer> {
        TransformerDecoderLayer::new_with(d_model, nhead, TransformerLayerOptions::new())
    }

    /// As [`new`](Self::new), with options: see [`TransformerLayerOptions`].
    ///
    /// ```
    /// use cotangent::nn::{TransformerDecoderLayer, TransformerLayerOptions};
    /// let layer = TransformerDecoderLayer::new_with(8, 2, TransformerLayerOptions::new().dropout(0.0))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there; also if `dropout` is not in [0, 1].
    #[track_caller]
    pub fn new_with(
        d_model: usize,
        nhead: usize,
        options: impl Into<TransformerLayerOptions>,
    ) -> Result<TransformerDecoderLayer> {
        let options = options.into();
        Ok(TransformerDecoderLayer {
            self_attn: options.attention(d_model, nhead)?,
            multihead_attn: options.attention(d_model, nhead)?,
            linear1: options.linear(d_model, options.dim_feedforward)?,
            linear2: options.linear(options.dim_feedforward, d_model)?,
            norm1: options.norm(d_model)?,
            norm2: options.norm(d_model)?,
            norm3: options.norm(d_model)?,
            dropout: Dropout::new(options.dropout)?,
            norm_first: options.norm_first,
            activation: options.activation,
        })
    }

    /// Computes the output for `target`, which attends to itself and to `memory`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::TransformerDecoderLayer};
    /// let layer = TransformerDecoderLayer::new(8, 2)?;
    /// assert_eq!(layer.forward(&Tensor::randn([2, 8])?, &Tensor::randn([7, 8])?)?.shape(), [2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, target: &Tensor, memory: &Tensor) -> Result<Tensor> {
        self.forward_with(target, memory, AttendOptions::new(), AttendOptions::new())
    }

    /// As [`forward`](Self::forward), with masks: `own` for the self-attention, `other` for the attention to `memory`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, TransformerDecoderLayer}};
    /// let (target, memory) = (Tensor::randn([5, 3, 8])?, Tensor::randn([7, 3, 8])?);
    /// let causal = AttendOptions::new().is_causal(true);
    /// let y = TransformerDecoderLayer::new(8, 2)?.forward_with(&target, &memory, causal, AttendOptions::new())?;
    /// assert_eq!(y.shape(), [5, 3, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn forward_with<'a>(
        &self,
        target: &Tensor,
        memory: &Tensor,
        own: impl Into<AttendOptions<'a>>,
        other: impl Into<AttendOptions<'a>>,
    ) -> Result<Tensor> {
        let attend = |x: &Tensor| self.dropout.forward(&self.self_attn.attend_with(x, x, x, own)?.0);
        let look = |x: &Tensor| self.dropout.forward(&self.multihead_attn.attend_with(x, memory, memory, other)?.0);
        let feed = |x: &Tensor| {
            let between = self.dropout.forward(&self.activation.of(&self.linear1.forward(x)?)?)?;
            self.dropout.forward(&self.linear2.forward(&between)?)
        };
        let x = residual(target, &self.norm1, self.norm_first, attend)?;
        let x = residual(&x, &self.norm2, self.norm_first, look)?;
        residual(&x, &self.norm3, self.norm_first, feed)
    }
}

/// A stack of encoder layers, with an optional layer norm at the end.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, TransformerEncoder, TransformerEncoderLayer}};
/// let layers = vec![TransformerEncoderLayer::new(8, 2)?, TransformerEncoderLayer::new(8, 2)?];
/// let encoder = TransformerEncoder { layers, norm: None };
/// assert_eq!(encoder.forward(&Tensor::randn([5, 3, 8])?)?.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// The layer norm at the end.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// The forward pass with attention masks: see [`AttendOptions`].
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, TransformerEncoder, TransformerEncoderLayer}};
    /// let encoder = TransformerEncoder { layers: vec![TransformerEncoderLayer::new(8, 2)?], norm: None };
    /// let y = encoder.forward_with(&Tensor::randn([5, 3, 8])?, AttendOptions::new().is_causal(true))?;
    /// assert_eq!(y.shape(), [5, 3, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward_with<'a>(&self, x: &Tensor, options: impl Into<AttendOptions<'a>>) -> Result<Tensor> {
        let options = options.into();
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward_with(&x, options.clone())?;
        }
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

impl Forward for TransformerEncoder {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, AttendOptions::new())
    }
}

/// A stack of decoder layers, with an optional layer norm at the end.
///
/// ```
/// use cotangent::{Tensor, nn::{TransformerDecoder, TransformerDecoderLayer}};
/// let decoder = TransformerDecoder { layers: vec![TransformerDecoderLayer::new(8, 2)?], norm: None };
/// assert_eq!(decoder.forward(&Tensor::randn([5, 3, 8])?, &Tensor::randn([7, 3, 8])?)?.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The layer norm at the end.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// Computes the output for `target`, which attends to itself and to `memory` in every layer.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{TransformerDecoder, TransformerDecoderLayer}};
    /// let decoder = TransformerDecoder { layers: vec![TransformerDecoderLayer::new(8, 2)?], norm: None };
    /// assert_eq!(decoder.forward(&Tensor::randn([2, 8])?, &Tensor::randn([7, 8])?)?.shape(), [2, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, target: &Tensor, memory: &Tensor) -> Result<Tensor> {
        self.forward_with(target, memory, AttendOptions::new(), AttendOptions::new())
    }

    /// As [`forward`](Self::forward), with masks: `own` for the self-attention, `other` for the attention to `memory`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, TransformerDecoder, TransformerDecoderLayer}};
    /// let decoder = TransformerDecoder { layers: vec![TransformerDecoderLayer::new(8, 2)?], norm: None };
    /// let (x, causal) = (Tensor::randn([5, 8])?, AttendOptions::new().is_causal(true));
    /// assert_eq!(decoder.forward_with(&x, &x, causal, AttendOptions::new())?.shape(), [5, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn forward_with<'a>(
        &self,
        target: &Tensor,
        memory: &Tensor,
        own: impl Into<AttendOptions<'a>>,
        other: impl Into<AttendOptions<'a>>,
    ) -> Result<Tensor> {
        let (own, other) = (own.into(), other.into());
        let mut x = target.clone();
        for layer in &self.layers {
            x = layer.forward_with(&x, memory, own.clone(), other.clone())?;
        }
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }
}

/// A transformer: an encoder and a decoder, both with a layer norm at the end.
///
/// ```
/// use cotangent::{Tensor, nn::{Transformer, TransformerLayerOptions}};
/// let model = Transformer::new_with(8, 2, 1, 1, TransformerLayerOptions::new().dim_feedforward(16))?;
/// let y = model.forward(&Tensor::randn([7, 3, 8])?, &Tensor::randn([5, 3, 8])?)?;
/// assert_eq!(y.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Transformer {
    /// The encoder of the source.
    pub encoder: TransformerEncoder,
    /// The decoder of the target.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// A transformer over vectors of size `d_model`, with `nhead` heads and the given numbers of layers.
    ///
    /// ```
    /// use cotangent::nn::{Module, Transformer, TransformerLayerOptions};
    /// let options = TransformerLayerOptions::new().dim_feedforward(16);
    /// let model = Transformer::new_with(8, 2, 2, 1, options)?;
    /// assert!(model.named_parameters().iter().any(|(name, _)| name == "encoder.layers.1.self_attn.in_proj_weight"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `d_model` is not a positive multiple of `nhead`, or `dropout` is not in [0, 1].
    #[track_caller]
    pub fn new_with(
        d_model: usize,
        nhead: usize,
        num_encoder_layers: usize,
        num_decoder_layers: usize,
        options: impl Into<TransformerLayerOptions>,
    ) -> Result<Transformer> {
        let options = options.into();
        let encoder =
            (0..num_encoder_layers).map(|_| TransformerEncoderLayer::new_with(d_model, nhead, options.clone()));
        let decoder =
            (0..num_decoder_layers).map(|_| TransformerDecoderLayer::new_with(d_model, nhead, options.clone()));
        Ok(Transformer {
            encoder: TransformerEncoder { layers: encoder.collect::<Result<_>>()?, norm: Some(options.norm(d_model)?) },
            decoder: TransformerDecoder { layers: decoder.collect::<Result<_>>()?, norm: Some(options.norm(d_model)?) },
        })
    }

    /// Encodes `source`, and decodes `target`, which attends to it.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Transformer, TransformerLayerOptions}};
    /// let model = Transformer::new_with(8, 2, 1, 1, TransformerLayerOptions::new().dim_feedforward(16))?;
    /// assert_eq!(model.forward(&Tensor::randn([7, 8])?, &Tensor::randn([5, 8])?)?.shape(), [5, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, source: &Tensor, target: &Tensor) -> Result<Tensor> {
        self.decoder.forward(target, &self.encoder.forward(source)?)
    }
}
