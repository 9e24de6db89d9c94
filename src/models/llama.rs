//! Decoders in the style of Llama.

use super::cache::KeyValueCache;
use super::config::ConfigFile;
use super::generate::CausalModel;
use super::{Adaptable, Published, check_tied, without_prefix};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::{
    Embedding, Forward, Linear, LinearOptions, LoraLinear, Module, Parameter, RMSNorm, RmsNormLayerOptions, init,
};
use crate::{DType, Result, Tensor};
use std::path::Path;

/// The sizes of a [`Llama`], under Hugging Face's names.
///
/// ```
/// use cotangent::models::LlamaConfig;
/// assert_eq!(LlamaConfig::default().hidden_size, 4096);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The vocabulary size.
    pub vocab_size: usize,
    /// The size of the token embeddings and hidden states.
    pub hidden_size: usize,
    /// The hidden size of the feed-forward networks.
    pub intermediate_size: usize,
    /// The number of blocks.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The number of heads of keys and values, which these heads share; by default each has its own.
    pub num_key_value_heads: Option<usize>,
    /// The size of a head; by default `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// Added to the mean square in RMS norms.
    pub rms_norm_eps: f64,
    /// The base of the frequencies of rotary positions.
    pub rope_theta: f64,
    /// Whether the head is tied to the token embedding.
    pub tie_word_embeddings: bool,
}

impl Default for LlamaConfig {
    fn default() -> LlamaConfig {
        LlamaConfig {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            tie_word_embeddings: false,
        }
    }
}

impl LlamaConfig {
    /// Reads the `config.json` of published weights.
    ///
    /// ```
    /// use cotangent::models::LlamaConfig;
    /// let path = std::env::temp_dir().join("cotangent-doc-llama.json");
    /// std::fs::write(&path, r#"{"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8}"#)?;
    /// assert_eq!(LlamaConfig::from_file(&path)?.num_key_value_heads, Some(8));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or requires a feature that the model does not support, such as scaled positions.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>) -> Result<LlamaConfig> {
        let (file, default) = (ConfigFile::read(path.as_ref())?, LlamaConfig::default());
        file.expect("model_type", &["llama"])?;
        file.expect("hidden_act", &["silu"])?;
        file.expect("rope_scaling", &[])?;
        let rope = file.inside("rope_parameters");
        rope.expect("rope_type", &["default"])?;
        rope.expect("partial_rotary_factor", &[])?;
        for name in ["attention_bias", "mlp_bias"] {
            if file.flag(name, false)? {
                bail!(Format, "from_file", "{name} must be false, got true");
            }
        }
        let present = |name: &str| file.size(name, 0).map(|size| (size > 0).then_some(size));
        Ok(LlamaConfig {
            vocab_size: file.size("vocab_size", default.vocab_size)?,
            hidden_size: file.size("hidden_size", default.hidden_size)?,
            intermediate_size: file.size("intermediate_size", default.intermediate_size)?,
            num_hidden_layers: file.size("num_hidden_layers", default.num_hidden_layers)?,
            num_attention_heads: file.size("num_attention_heads", default.num_attention_heads)?,
            num_key_value_heads: present("num_key_value_heads")?,
            head_dim: present("head_dim")?,
            rms_norm_eps: file.number("rms_norm_eps", default.rms_norm_eps)?,
            rope_theta: rope.number("rope_theta", file.number("rope_theta", default.rope_theta)?)?,
            tie_word_embeddings: file.flag("tie_word_embeddings", default.tie_word_embeddings)?,
        })
    }
}

#[derive(Debug, Module)]
struct Attention {
    q_proj: LoraLinear,
    k_proj: LoraLinear,
    v_proj: LoraLinear,
    o_proj: LoraLinear,
}

#[derive(Debug, Module)]
struct Mlp {
    gate_proj: LoraLinear,
    up_proj: LoraLinear,
    down_proj: LoraLinear,
}

#[derive(Debug, Module)]
struct Block {
    self_attn: Attention,
    mlp: Mlp,
    input_layernorm: RMSNorm,
    post_attention_layernorm: RMSNorm,
}

#[derive(Debug, Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RMSNorm,
}

/// A decoder in the style of Llama: grouped-query attention, rotary positions, RMS norms, and gated feed-forward networks.
///
/// ```
/// use cotangent::models::{Llama, LlamaConfig, generate};
/// use cotangent::tensor;
/// let config = LlamaConfig {
///     vocab_size: 50,
///     hidden_size: 16,
///     intermediate_size: 32,
///     num_hidden_layers: 2,
///     num_attention_heads: 4,
///     num_key_value_heads: Some(2),
///     ..LlamaConfig::default()
/// };
/// let model = Llama::new(&config)?;
/// assert_eq!(model.forward(&tensor!([[3, 1]])?)?.shape(), [1, 2, 50]);
/// assert_eq!(generate(&model, &tensor!([[3, 1]])?, 4)?.shape(), [1, 6]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Llama {
    model: Decoder,
    /// `None` if the head is tied to the token embedding.
    lm_head: Option<Linear>,
    heads: usize,
    groups: usize,
    theta: f64,
}

impl Llama {
    /// A model with new weights, normal with standard deviation 0.02.
    ///
    /// ```
    /// use cotangent::models::{Llama, LlamaConfig};
    /// let config = LlamaConfig { num_attention_heads: 3, ..LlamaConfig::default() };
    /// assert!(Llama::new(&config).is_err());
    /// ```
    ///
    /// # Errors
    /// If the sizes do not fit each other.
    #[track_caller]
    pub fn new(config: &LlamaConfig) -> Result<Llama> {
        let LlamaConfig { vocab_size, hidden_size: size, intermediate_size, num_hidden_layers, rms_norm_eps, .. } =
            *config;
        let heads = config.num_attention_heads;
        let groups = config.num_key_value_heads.unwrap_or(heads);
        if heads == 0 || groups == 0 || !heads.is_multiple_of(groups) {
            bail!(
                Value,
                "Llama",
                "num_attention_heads must be a multiple of num_key_value_heads, got {heads} and {groups}"
            );
        }
        let head = match config.head_dim {
            Some(head) => head,
            None if size.is_multiple_of(heads) => size / heads,
            None => {
                bail!(Value, "Llama", "hidden_size must be a multiple of num_attention_heads, got {size} and {heads}")
            }
        };
        if head == 0 || !head.is_multiple_of(2) {
            bail!(Value, "Llama", "head_dim must be even and > 0 for rotary positions, got {head}");
        }
        let linear = |from: usize, to: usize| -> Result<Linear> {
            let mut layer = Linear::new_with(from, to, LinearOptions::new().bias(false))?;
            layer.weight.set(&init::normal([to, from], 0.0, 0.02)?)?;
            Ok(layer)
        };
        let lora = |from: usize, to: usize| linear(from, to).map(LoraLinear::from_linear);
        let norm = || RMSNorm::new_with(size, RmsNormLayerOptions::new().eps(rms_norm_eps));
        let block = |_| {
            Ok(Block {
                self_attn: Attention {
                    q_proj: lora(size, heads * head)?,
                    k_proj: lora(size, groups * head)?,
                    v_proj: lora(size, groups * head)?,
                    o_proj: lora(heads * head, size)?,
                },
                mlp: Mlp {
                    gate_proj: lora(size, intermediate_size)?,
                    up_proj: lora(size, intermediate_size)?,
                    down_proj: lora(intermediate_size, size)?,
                },
                input_layernorm: norm()?,
                post_attention_layernorm: norm()?,
            })
        };
        let table = Parameter::new(init::normal([vocab_size, size], 0.0, 0.02)?)?;
        Ok(Llama {
            model: Decoder {
                embed_tokens: Embedding::from_weight(table),
                layers: (0..num_hidden_layers).map(block).collect::<Result<_>>()?,
                norm: norm()?,
            },
            lm_head: (!config.tie_word_embeddings).then(|| linear(size, vocab_size)).transpose()?,
            heads,
            groups,
            theta: config.rope_theta,
        })
    }

    /// Computes the logits `[batch, steps, vocab_size]` of tokens `[batch, steps]`.
    ///
    /// ```
    /// use cotangent::models::{Llama, LlamaConfig};
    /// use cotangent::tensor;
    /// let config = LlamaConfig {
    ///     vocab_size: 50, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 4,
    ///     tie_word_embeddings: true, ..LlamaConfig::default()
    /// };
    /// assert_eq!(Llama::new(&config)?.forward(&tensor!([[3, 1]])?)?.shape(), [1, 2, 50]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a token is out of range.
    #[track_caller]
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        self.forward_cached(tokens, &mut KeyValueCache::none())
    }

    fn attend(
        &self,
        at: usize,
        block: &Attention,
        x: &Tensor,
        [cos, sin]: [&Tensor; 2],
        cache: &mut KeyValueCache,
    ) -> Result<Tensor> {
        // Heads that share keys are adjacent: [batch, groups, heads of a group, steps, size].
        let split = |x: Tensor, heads: usize| -> Result<Tensor> {
            let size = x.shape()[2] / heads;
            x.unflatten(2, [self.groups, heads / self.groups, size])?.permute([0, 2, 3, 1, 4])
        };
        let q = split(block.q_proj.forward(x)?, self.heads)?.rope(cos, sin)?;
        let k = split(block.k_proj.forward(x)?, self.groups)?.rope(cos, sin)?;
        let v = split(block.v_proj.forward(x)?, self.groups)?;
        let out = cache.attend(at, &q, k, v)?;
        block.o_proj.forward(&out.permute([0, 3, 1, 2, 4])?.flatten(2, 4)?)
    }
}

impl CausalModel for Llama {
    #[track_caller]
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let &[batch, steps] = tokens.shape() else {
            bail!(Shape, "Llama", "tokens must have shape [batch, steps], got {:?}", tokens.shape());
        };
        cache.check("Llama", batch, steps)?;
        let mut x = self.model.embed_tokens.forward(tokens)?;
        let size = self.model.layers.first().map_or(2, |block| block.self_attn.q_proj.weight.shape()[0] / self.heads);
        // Integer positions give f32, which is precise enough for half precision, too.
        let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::I64 };
        let positions = cache.positions(steps, dtype, x.device())?;
        let (mut cos, mut sin) = positions.rope_cos_sin_with(size, self.theta)?;
        if positions.rank() == 2 {
            // Groups, and the heads of a group.
            (cos, sin) = (cos.unsqueeze(1)?.unsqueeze(1)?, sin.unsqueeze(1)?.unsqueeze(1)?);
        }
        for (at, block) in self.model.layers.iter().enumerate() {
            x =
                x.add(&self.attend(at, &block.self_attn, &block.input_layernorm.forward(&x)?, [&cos, &sin], cache)?)?;
            let y = block.post_attention_layernorm.forward(&x)?;
            let gated = block.mlp.gate_proj.forward(&y)?.silu()?.mul(&block.mlp.up_proj.forward(&y)?)?;
            x = x.add(&block.mlp.down_proj.forward(&gated)?)?;
        }
        cache.advance(steps);
        let x = self.model.norm.forward(&x)?;
        match &self.lm_head {
            Some(head) => head.forward(&x),
            None => x.linear(&self.model.embed_tokens.weight, None),
        }
    }
}

impl Adaptable for Llama {
    fn linear_layers(&mut self) -> Vec<(String, &mut LoraLinear)> {
        let mut layers = Vec::new();
        for (at, Block { self_attn, mlp, .. }) in self.model.layers.iter_mut().enumerate() {
            let name = |layer: &str| format!("model.layers.{at}.{layer}");
            layers.extend([
                (name("self_attn.q_proj"), &mut self_attn.q_proj),
                (name("self_attn.k_proj"), &mut self_attn.k_proj),
                (name("self_attn.v_proj"), &mut self_attn.v_proj),
                (name("self_attn.o_proj"), &mut self_attn.o_proj),
                (name("mlp.gate_proj"), &mut mlp.gate_proj),
                (name("mlp.up_proj"), &mut mlp.up_proj),
                (name("mlp.down_proj"), &mut mlp.down_proj),
            ]);
        }
        layers
    }
}

impl Published for Llama {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        // Some files repeat the tied head, and store the frequencies of the positions.
        let tied = self.lm_head.is_none();
        if tied {
            check_tied(dict, "lm_head.weight", "model.embed_tokens.weight")?;
        }
        without_prefix(dict, "", |name| (tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq"))
    }
}
