//! GPT-2.

use super::cache::KeyValueCache;
use super::config::ConfigFile;
use super::generate::CausalModel;
use super::{Adaptable, Published, check_tied, without_prefix};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::{
    Dropout, Embedding, Forward, LayerNorm, LayerNormLayerOptions, LoraLinear, Module, Parameter, init, linear,
};
use crate::options::Gelu;
use crate::{DType, Result, Tensor};
use std::path::Path;

/// The sizes of a [`Gpt2`], under Hugging Face's names. The default is the smallest published model.
///
/// ```
/// use cotangent::models::Gpt2Config;
/// assert_eq!(Gpt2Config::default().n_embd, 768);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Gpt2Config {
    /// The vocabulary size.
    pub vocab_size: usize,
    /// The largest length of a sequence.
    pub n_positions: usize,
    /// The size of the token embeddings and hidden states.
    pub n_embd: usize,
    /// The number of blocks.
    pub n_layer: usize,
    /// The number of attention heads.
    pub n_head: usize,
    /// The hidden size of the feed-forward networks; by default four times `n_embd`.
    pub n_inner: Option<usize>,
    /// Added to the variance in layer norms.
    pub layer_norm_epsilon: f64,
    /// The dropout probability in training, for the embeddings and the residual branches. Attention weights are not dropped.
    pub dropout: f64,
}

impl Default for Gpt2Config {
    fn default() -> Gpt2Config {
        Gpt2Config {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            layer_norm_epsilon: 1e-5,
            dropout: 0.1,
        }
    }
}

impl Gpt2Config {
    /// Reads the `config.json` of published weights.
    ///
    /// ```
    /// use cotangent::models::Gpt2Config;
    /// let path = std::env::temp_dir().join("cotangent-doc-gpt2.json");
    /// std::fs::write(&path, r#"{"n_embd": 1024, "n_layer": 24, "n_head": 16}"#)?;
    /// assert_eq!(Gpt2Config::from_file(&path)?.n_layer, 24);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or requires a feature that the model does not support.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>) -> Result<Gpt2Config> {
        let (file, default) = (ConfigFile::read(path.as_ref())?, Gpt2Config::default());
        file.expect("model_type", &["gpt2"])?;
        file.expect("activation_function", &["gelu_new", "gelu_pytorch_tanh"])?;
        if file.flag("scale_attn_by_inverse_layer_idx", false)? || !file.flag("scale_attn_weights", true)? {
            bail!(Format, "from_file", "scale_attn_weights must be true and scale_attn_by_inverse_layer_idx false");
        }
        let inner = file.size("n_inner", 0)?;
        Ok(Gpt2Config {
            vocab_size: file.size("vocab_size", default.vocab_size)?,
            n_positions: file.size("n_positions", default.n_positions)?,
            n_embd: file.size("n_embd", default.n_embd)?,
            n_layer: file.size("n_layer", default.n_layer)?,
            n_head: file.size("n_head", default.n_head)?,
            n_inner: (inner > 0).then_some(inner),
            layer_norm_epsilon: file.number("layer_norm_epsilon", default.layer_norm_epsilon)?,
            dropout: file.number("resid_pdrop", default.dropout)?,
        })
    }
}

/// A linear layer whose weight is `[inputs, outputs]`, as GPT-2's are.
fn conv1d(inputs: usize, outputs: usize, std: f64) -> Result<LoraLinear> {
    let weight = Parameter::new(init::normal([inputs, outputs], 0.0, std)?)?;
    Ok(LoraLinear::transposed(weight, Parameter::new(Tensor::zeros([outputs])?)?))
}

#[derive(Debug, Module)]
struct Attention {
    c_attn: LoraLinear,
    c_proj: LoraLinear,
}

#[derive(Debug, Module)]
struct Mlp {
    c_fc: LoraLinear,
    c_proj: LoraLinear,
}

#[derive(Debug, Module)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

/// GPT-2: a causal transformer with learned position embeddings, whose head is tied to the token embedding.
///
/// ```
/// use cotangent::models::{Gpt2, Gpt2Config};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() })?;
/// assert_eq!(model.forward(&tensor!([[3, 1], [4, 1]])?)?.shape(), [2, 2, 50]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    drop: Dropout,
    heads: usize,
}

impl Gpt2 {
    /// A model with new weights, normal with standard deviation 0.02, which is divided by the root of the number of residual sums in
    /// the projections before them.
    ///
    /// ```
    /// use cotangent::models::{Gpt2, Gpt2Config};
    /// use cotangent::nn::Module;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() })?;
    /// assert!(model.named_parameters().iter().any(|(name, _)| name == "h.0.attn.c_attn.weight"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `n_embd` is not a multiple of `n_head`, or `dropout` is not in [0, 1].
    #[track_caller]
    pub fn new(config: &Gpt2Config) -> Result<Gpt2> {
        let Gpt2Config { vocab_size, n_positions, n_embd, n_layer, n_head, n_inner, layer_norm_epsilon, dropout } =
            *config;
        if n_head == 0 || !n_embd.is_multiple_of(n_head) {
            bail!(Value, "Gpt2", "n_embd must be a multiple of n_head, got {n_embd} and {n_head}");
        }
        const STD: f64 = 0.02;
        let table = |rows: usize| Ok(Embedding::from_weight(Parameter::new(init::normal([rows, n_embd], 0.0, STD)?)?));
        let norm = || LayerNorm::new_with(n_embd, LayerNormLayerOptions::new().eps(layer_norm_epsilon));
        let (inner, last) = (n_inner.unwrap_or(n_embd.saturating_mul(4)), STD / (2.0 * n_layer.max(1) as f64).sqrt());
        let block = |_| {
            Ok(Block {
                ln_1: norm()?,
                attn: Attention {
                    c_attn: conv1d(n_embd, n_embd.saturating_mul(3), STD)?,
                    c_proj: conv1d(n_embd, n_embd, last)?,
                },
                ln_2: norm()?,
                mlp: Mlp { c_fc: conv1d(n_embd, inner, STD)?, c_proj: conv1d(inner, n_embd, last)? },
            })
        };
        Ok(Gpt2 {
            wte: table(vocab_size)?,
            wpe: table(n_positions)?,
            h: (0..n_layer).map(block).collect::<Result<_>>()?,
            ln_f: norm()?,
            drop: Dropout::new(dropout)?,
            heads: n_head,
        })
    }

    /// Computes the logits `[batch, steps, vocab_size]` of tokens `[batch, steps]`.
    ///
    /// ```
    /// # use cotangent::models::{Gpt2, Gpt2Config};
    /// # use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() })?;
    /// assert_eq!(model.forward(&tensor!([[3, 1, 4]])?)?.shape(), [1, 3, 50]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token is out of range, or the sequence is too long.
    #[track_caller]
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.forward_cached(tokens, &mut KeyValueCache::none())
    }

    fn attend(&self, at: usize, attention: &Attention, x: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let heads = |x: &Tensor| x.unflatten(2, [self.heads, x.shape()[2] / self.heads])?.transpose(1, 2);
        let [q, k, v] = attention.c_attn.forward(x)?.chunks(-1)?;
        let out = cache.attend(at, &heads(&q)?, heads(&k)?, heads(&v)?)?;
        self.drop.forward(&attention.c_proj.forward(&out.transpose(1, 2)?.flatten(2, 3)?)?)
    }
}

impl Gpt2 {
    /// The last hidden states, `[batch, steps, n_embd]`.
    #[track_caller]
    fn hidden(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let &[batch, steps] = tokens.shape() else {
            bail!(Shape, "Gpt2", "tokens must have shape [batch, steps], got {:?}", tokens.shape());
        };
        let (first, longest) = (cache.len(), self.wpe.weight.shape()[0]);
        if first + steps > longest {
            bail!(Shape, "Gpt2", "expected at most {longest} tokens, cached ones included, got {}", first + steps);
        }
        cache.check("Gpt2", batch, steps)?;
        let positions = cache.positions(steps, DType::I64, tokens.device())?;
        let mut x = self.drop.forward(&self.wte.forward(tokens)?.add(&self.wpe.forward(&positions)?)?)?;
        for (at, block) in self.h.iter().enumerate() {
            x = x.add(&self.attend(at, &block.attn, &block.ln_1.forward(&x)?, cache)?)?;
            let hidden = block.mlp.c_fc.forward(&block.ln_2.forward(&x)?)?.gelu_with(Gelu::Tanh)?;
            x = x.add(&self.drop.forward(&block.mlp.c_proj.forward(&hidden)?)?)?;
        }
        cache.advance(tokens)?;
        Ok(x)
    }

    /// The logits of hidden states.
    #[track_caller]
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        linear(&self.ln_f.forward(x)?, &self.wte.weight, None)
    }
}

impl CausalModel for Gpt2 {
    #[track_caller]
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.logits(&self.hidden(tokens, cache)?)
    }

    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.logits(&self.hidden(tokens, cache)?.narrow(1, -1, 1)?)?.squeeze(1)
    }

    fn recordable_steps(&self) -> Option<usize> {
        // Dropout draws random numbers, which cannot be recorded.
        (!self.is_training()).then(|| self.wpe.weight.shape()[0])
    }
}

impl Adaptable for Gpt2 {
    fn linear_layers(&mut self) -> Vec<(String, &mut LoraLinear)> {
        let mut layers = Vec::new();
        for (at, Block { attn, mlp, .. }) in self.h.iter_mut().enumerate() {
            layers.extend([
                (format!("h.{at}.attn.c_attn"), &mut attn.c_attn),
                (format!("h.{at}.attn.c_proj"), &mut attn.c_proj),
                (format!("h.{at}.mlp.c_fc"), &mut mlp.c_fc),
                (format!("h.{at}.mlp.c_proj"), &mut mlp.c_proj),
            ]);
        }
        layers
    }

    fn prefix(&self) -> &'static str {
        "transformer."
    }

    fn fan_in_fan_out(&self) -> bool {
        true
    }
}

impl Published for Gpt2 {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        for prefix in ["", "transformer."] {
            check_tied(dict, "lm_head.weight", &format!("{prefix}wte.weight"))?;
        }
        // The head repeats the token embedding, and old files store masks.
        without_prefix(dict, "transformer.", |name| {
            name == "lm_head.weight" || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
        })
    }
}
