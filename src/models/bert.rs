//! BERT.

use super::config::ConfigFile;
use super::{Published, without_prefix};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::{Dropout, Embedding, Forward, LayerNorm, LayerNormLayerOptions, Linear, Module, Parameter, init};
use crate::options::AttentionOptions;
use crate::{DType, Result, Tensor};
use std::path::Path;

/// The sizes of a [`Bert`], under Hugging Face's names. The default is the base model.
///
/// ```
/// use cotangent::models::BertConfig;
/// assert_eq!(BertConfig::default().num_hidden_layers, 12);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// The vocabulary size.
    pub vocab_size: usize,
    /// The size of the token embeddings and hidden states.
    pub hidden_size: usize,
    /// The number of blocks.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The hidden size of the feed-forward networks.
    pub intermediate_size: usize,
    /// The largest length of a sequence.
    pub max_position_embeddings: usize,
    /// The number of segment types.
    pub type_vocab_size: usize,
    /// Added to the variance in layer norms.
    pub layer_norm_eps: f64,
    /// The dropout probability in training. Attention weights are not dropped.
    pub hidden_dropout_prob: f64,
}

impl Default for BertConfig {
    fn default() -> BertConfig {
        BertConfig {
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            hidden_dropout_prob: 0.1,
        }
    }
}

impl BertConfig {
    /// Reads the `config.json` of published weights.
    ///
    /// ```
    /// use cotangent::models::BertConfig;
    /// let path = std::env::temp_dir().join("cotangent-doc-bert.json");
    /// std::fs::write(&path, r#"{"hidden_size": 1024, "num_attention_heads": 16}"#)?;
    /// assert_eq!(BertConfig::from_file(&path)?.hidden_size, 1024);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or requires a feature that the model does not support.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>) -> Result<BertConfig> {
        let (file, default) = (ConfigFile::read(path.as_ref())?, BertConfig::default());
        file.expect("model_type", &["bert"])?;
        file.expect("hidden_act", &["gelu"])?;
        if file.flag("is_decoder", false)? {
            bail!(Format, "from_file", "is_decoder must be false, got true");
        }
        file.expect("position_embedding_type", &["absolute"])?;
        Ok(BertConfig {
            vocab_size: file.size("vocab_size", default.vocab_size)?,
            hidden_size: file.size("hidden_size", default.hidden_size)?,
            num_hidden_layers: file.size("num_hidden_layers", default.num_hidden_layers)?,
            num_attention_heads: file.size("num_attention_heads", default.num_attention_heads)?,
            intermediate_size: file.size("intermediate_size", default.intermediate_size)?,
            max_position_embeddings: file.size("max_position_embeddings", default.max_position_embeddings)?,
            type_vocab_size: file.size("type_vocab_size", default.type_vocab_size)?,
            layer_norm_eps: file.number("layer_norm_eps", default.layer_norm_eps)?,
            hidden_dropout_prob: file.number("hidden_dropout_prob", default.hidden_dropout_prob)?,
        })
    }
}

#[derive(Debug, Module)]
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    #[module(rename = "LayerNorm")]
    norm: LayerNorm,
}

#[derive(Debug, Module)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
}

/// A linear layer, and the layer norm of the residual sum.
#[derive(Debug, Module)]
struct Output {
    dense: Linear,
    #[module(rename = "LayerNorm")]
    norm: LayerNorm,
}

#[derive(Debug, Module)]
struct Attention {
    #[module(rename = "self")]
    heads: SelfAttention,
    output: Output,
}

#[derive(Debug, Module)]
struct Dense {
    dense: Linear,
}

#[derive(Debug, Module)]
struct Block {
    attention: Attention,
    intermediate: Dense,
    output: Output,
}

#[derive(Debug, Module)]
struct Encoder {
    layer: Vec<Block>,
}

/// BERT: a bidirectional transformer encoder.
///
/// ```
/// use cotangent::models::{Bert, BertConfig};
/// use cotangent::tensor;
/// let config = BertConfig {
///     vocab_size: 50, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 32,
///     ..BertConfig::default()
/// };
/// let output = Bert::new(&config)?.forward(&tensor!([[3, 1, 4]])?, None, None)?;
/// assert_eq!((output.last_hidden_state.shape(), output.pooler_output.shape()), (&[1, 3, 16][..], &[1, 16][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Bert {
    embeddings: Embeddings,
    encoder: Encoder,
    pooler: Dense,
    dropout: Dropout,
    heads: usize,
}

/// The output of a [`Bert`].
///
/// ```
/// use cotangent::models::{Bert, BertConfig};
/// use cotangent::tensor;
/// let config = BertConfig { vocab_size: 50, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, ..BertConfig::default() };
/// let output = Bert::new(&config)?.forward(&tensor!([[3, 1]])?, None, None)?;
/// assert_eq!(output.pooler_output.shape(), [1, 16]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BertOutput {
    /// A vector for each token: `[batch, steps, hidden_size]`.
    pub last_hidden_state: Tensor,
    /// A vector for each sequence, from its first token: `[batch, hidden_size]`.
    pub pooler_output: Tensor,
}

impl Bert {
    /// A model with new weights, normal with standard deviation 0.02.
    ///
    /// ```
    /// use cotangent::models::{Bert, BertConfig};
    /// assert!(Bert::new(&BertConfig { num_attention_heads: 5, ..BertConfig::default() }).is_err());
    /// ```
    ///
    /// # Errors
    /// If `hidden_size` is not a multiple of `num_attention_heads`, or `hidden_dropout_prob` is not in [0, 1].
    #[track_caller]
    pub fn new(config: &BertConfig) -> Result<Bert> {
        let (size, heads, inner) = (config.hidden_size, config.num_attention_heads, config.intermediate_size);
        if heads == 0 || !size.is_multiple_of(heads) {
            bail!(Value, "Bert", "hidden_size must be a multiple of num_attention_heads, got {size} and {heads}");
        }
        let table = |rows: usize| Ok(Embedding::from_weight(Parameter::new(init::normal([rows, size], 0.0, 0.02)?)?));
        let linear = |from: usize, to: usize| {
            let weight = Parameter::new(init::normal([to, from], 0.0, 0.02)?)?;
            Ok(Linear { weight, bias: Some(Parameter::new(Tensor::zeros([to])?)?) })
        };
        let norm = || LayerNorm::new_with(size, LayerNormLayerOptions::new().eps(config.layer_norm_eps));
        let block = |_| {
            Ok(Block {
                attention: Attention {
                    heads: SelfAttention {
                        query: linear(size, size)?,
                        key: linear(size, size)?,
                        value: linear(size, size)?,
                    },
                    output: Output { dense: linear(size, size)?, norm: norm()? },
                },
                intermediate: Dense { dense: linear(size, inner)? },
                output: Output { dense: linear(inner, size)?, norm: norm()? },
            })
        };
        Ok(Bert {
            embeddings: Embeddings {
                word_embeddings: table(config.vocab_size)?,
                position_embeddings: table(config.max_position_embeddings)?,
                token_type_embeddings: table(config.type_vocab_size)?,
                norm: norm()?,
            },
            encoder: Encoder { layer: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()? },
            pooler: Dense { dense: linear(size, size)? },
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            heads,
        })
    }

    /// Computes the hidden states of tokens `[batch, steps]`. `attention_mask`, of the same shape, is 0 or false at padding, and
    /// `token_types` are the segments. By default there is no padding, and all tokens are in segment 0.
    ///
    /// ```
    /// use cotangent::models::{Bert, BertConfig};
    /// use cotangent::tensor;
    /// let config = BertConfig { vocab_size: 50, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, ..BertConfig::default() };
    /// let (tokens, counts) = (tensor!([[3, 1, 0]])?, tensor!([[1, 1, 0]])?);
    /// let output = Bert::new(&config)?.forward(&tokens, Some(&counts), None)?;
    /// assert_eq!(output.last_hidden_state.shape(), [1, 3, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token or a segment is out of range, the sequence is too long, or the shapes differ.
    #[track_caller]
    pub fn forward(
        &self,
        tokens: &Tensor,
        attention_mask: Option<&Tensor>,
        token_types: Option<&Tensor>,
    ) -> Result<BertOutput> {
        let &[batch, steps] = tokens.shape() else {
            bail!(Shape, "Bert", "tokens must have shape [batch, steps], got {:?}", tokens.shape());
        };
        if let Some(other) =
            [attention_mask, token_types].into_iter().flatten().find(|other| other.shape() != tokens.shape())
        {
            bail!(
                Shape,
                "Bert",
                "attention_mask and token_types must have the shape {:?} of tokens, got {:?}",
                tokens.shape(),
                other.shape()
            );
        }
        let longest = self.embeddings.position_embeddings.weight.shape()[0];
        if steps == 0 || steps > longest {
            bail!(Shape, "Bert", "tokens must have from 1 to {longest} steps, got {steps}");
        }
        let positions = Tensor::arange(0, steps as i64)?.to_device(tokens.device())?;
        let x = self.embeddings.word_embeddings.forward(tokens)?;
        let x = x.add(&self.embeddings.position_embeddings.forward(&positions)?)?;
        let first = Tensor::zeros_with([1], (DType::I64, tokens.device()))?;
        let x = x.add(&self.embeddings.token_type_embeddings.forward(token_types.unwrap_or(&first))?)?;
        let mut x = self.dropout.forward(&self.embeddings.norm.forward(&x)?)?;
        let seen = attention_mask.map(|mask| mask.ne(0)?.reshape([batch, 1, 1, steps])).transpose()?;
        for block in &self.encoder.layer {
            x = self.block(block, &x, seen.as_ref())?;
        }
        let pooler_output = self.pooler.dense.forward(&x.select(1, 0)?)?.tanh()?;
        Ok(BertOutput { last_hidden_state: x, pooler_output })
    }

    fn block(&self, block: &Block, x: &Tensor, seen: Option<&Tensor>) -> Result<Tensor> {
        let heads = |x: Tensor| x.unflatten(2, [self.heads, x.shape()[2] / self.heads])?.transpose(1, 2);
        let own = &block.attention.heads;
        let (q, k) = (heads(own.query.forward(x)?)?, heads(own.key.forward(x)?)?);
        let v = heads(own.value.forward(x)?)?;
        let options = AttentionOptions::new().attn_mask(seen);
        let out = q.scaled_dot_product_attention_with(&k, &v, options)?.transpose(1, 2)?.flatten(2, 3)?;
        let x = self.sum(&block.attention.output, &out, x)?;
        let hidden = block.intermediate.dense.forward(&x)?.gelu()?;
        self.sum(&block.output, &hidden, &x)
    }

    fn sum(&self, output: &Output, hidden: &Tensor, x: &Tensor) -> Result<Tensor> {
        output.norm.forward(&self.dropout.forward(&output.dense.forward(hidden)?)?.add(x)?)
    }
}

impl Published for Bert {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        // Files of task models have a prefix and the head of the task; old ones also have the positions.
        without_prefix(dict, "bert.", |name| name.starts_with("cls.") || name.ends_with("position_ids"))
    }
}
