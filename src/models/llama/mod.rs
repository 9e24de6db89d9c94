//! Decoders in the style of Llama.

mod config;
mod gguf;
mod rope;
mod rows;

pub use config::{LayerType, LlamaConfig, LlamaFamily};
pub use rope::RopeScaling;

use super::cache::{BlockAttention, KeyValueCache};
use super::generate::CausalModel;
use super::{Adaptable, Published, check_tied, without_prefix};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::{self, Embedding, Forward, Linear, LoraLinear, Module, Parameter, init};
use crate::options::{AttentionOptions, RmsNormOptions};
use crate::{DType, Result, Tensor};

/// Where the parameters of a new model come from: makes one from its name, its shape, and what it is without a file.
type Source<'s> = dyn FnMut(&str, &[usize], Init) -> Result<Parameter> + 's;

/// How a parameter is initialised.
#[derive(Clone, Copy)]
enum Init {
    Normal,
    Zeros,
    Ones,
}

#[derive(Debug, Module)]
struct Norm {
    weight: Parameter,
    eps: f64,
    /// Whether the scale is one plus the weight.
    is_offset: bool,
}

impl Norm {
    fn new(name: &str, size: usize, config: &LlamaConfig, source: &mut Source) -> Result<Norm> {
        let is_offset = config.model_type.is_gemma();
        let init = if is_offset { Init::Zeros } else { Init::Ones };
        let weight = source(&format!("{name}.weight"), &[size], init)?;
        Ok(Norm { weight, eps: config.rms_norm_eps, is_offset })
    }
}

impl Forward for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let options = RmsNormOptions::new().eps(self.eps);
        if !self.is_offset {
            return x.rms_norm_with(self.weight.shape(), options.weight(&*self.weight));
        }
        // In half precision the sum would lose most of the weight's digits.
        let wide = x.dtype().compute_dtype();
        let scale = self.weight.to_dtype(wide)?.add(1.0)?;
        x.to_dtype(wide)?.rms_norm_with(scale.shape(), options.weight(&scale))?.to_dtype(x.dtype())
    }
}

#[derive(Debug, Module)]
struct Attention {
    q_proj: LoraLinear,
    k_proj: LoraLinear,
    v_proj: LoraLinear,
    o_proj: LoraLinear,
    /// The norms of each head's queries and keys in Qwen 3.
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    #[module(skip)]
    window: Option<usize>,
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
    input_layernorm: Norm,
    /// Before the feed-forward network; in Gemma 2 after attention.
    post_attention_layernorm: Norm,
    /// Before and after the feed-forward network in Gemma 2.
    pre_feedforward_layernorm: Option<Norm>,
    post_feedforward_layernorm: Option<Norm>,
}

#[derive(Debug, Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: Norm,
}

impl Block {
    fn is_adapted(&self) -> bool {
        let Block { self_attn: Attention { q_proj, k_proj, v_proj, o_proj, .. }, mlp, .. } = self;
        let Mlp { gate_proj, up_proj, down_proj } = mlp;
        [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj].into_iter().any(LoraLinear::is_adapted)
    }
}

/// A decoder in the style of Llama: grouped-query attention, rotary positions, RMS norms, and gated feed-forward networks. It
/// covers the families Llama 1 to 3.2, Qwen 2, 2.5 and 3, Mistral, Phi-3, and Gemma 1 and 2: see [`LlamaFamily`].
///
/// The names of the parameters are the published ones, except in Phi-3: the joint matrices of its files are split into `q_proj`,
/// `k_proj` and `v_proj`, and into `gate_proj` and `up_proj`, when they are loaded.
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
    /// The size of a head.
    size: usize,
    #[module(skip)]
    config: LlamaConfig,
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
        Llama::assemble(config, &mut |_, shape, init| {
            Parameter::new(match init {
                Init::Normal => init::normal(shape, 0.0, 0.02)?,
                Init::Zeros => Tensor::zeros(shape)?,
                Init::Ones => Tensor::ones(shape)?,
            })
        })
    }

    fn assemble(config: &LlamaConfig, source: &mut Source) -> Result<Llama> {
        let LlamaConfig { model_type, vocab_size, hidden_size: size, intermediate_size, .. } = *config;
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
        if !(config.rope_theta.is_finite() && config.rope_theta > 0.0) {
            bail!(Value, "Llama", "rope_theta must be finite and > 0, got {}", config.rope_theta);
        }
        config.rope_scaling.as_ref().map_or(Ok(()), RopeScaling::check)?;
        for (name, value) in [
            ("query_pre_attn_scalar", config.query_pre_attn_scalar),
            ("attn_logit_softcapping", config.attn_logit_softcapping),
            ("final_logit_softcapping", config.final_logit_softcapping),
        ] {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                bail!(Value, "Llama", "{name} must be finite and > 0, got {value}");
            }
        }
        let linear = |source: &mut Source, name: &str, [from, to]: [usize; 2], bias: bool| -> Result<Linear> {
            let weight = source(&format!("{name}.weight"), &[to, from], Init::Normal)?;
            let bias = bias.then(|| source(&format!("{name}.bias"), &[to], Init::Zeros)).transpose()?;
            Ok(Linear { weight, bias })
        };
        let out_bias = config.attention_bias;
        let bias = out_bias || model_type == LlamaFamily::Qwen2;
        let block = |source: &mut Source, at: usize, window| {
            let name = |part: &str| format!("model.layers.{at}.{part}");
            let mut lora = |part: &str, sizes: [usize; 2], bias| {
                linear(source, &name(part), sizes, bias).map(LoraLinear::from_linear)
            };
            let (q_proj, k_proj) = (
                lora("self_attn.q_proj", [size, heads.saturating_mul(head)], bias)?,
                lora("self_attn.k_proj", [size, groups.saturating_mul(head)], bias)?,
            );
            let (v_proj, o_proj) = (
                lora("self_attn.v_proj", [size, groups.saturating_mul(head)], bias)?,
                lora("self_attn.o_proj", [heads.saturating_mul(head), size], out_bias)?,
            );
            let mlp = Mlp {
                gate_proj: lora("mlp.gate_proj", [size, intermediate_size], config.mlp_bias)?,
                up_proj: lora("mlp.up_proj", [size, intermediate_size], config.mlp_bias)?,
                down_proj: lora("mlp.down_proj", [intermediate_size, size], config.mlp_bias)?,
            };
            let mut norm = |part: &str, size, exists: bool| {
                exists.then(|| Norm::new(&name(part), size, config, source)).transpose()
            };
            let (has_head_norms, has_four) = (model_type == LlamaFamily::Qwen3, model_type == LlamaFamily::Gemma2);
            Ok(Block {
                self_attn: Attention {
                    q_proj,
                    k_proj,
                    v_proj,
                    o_proj,
                    q_norm: norm("self_attn.q_norm", head, has_head_norms)?,
                    k_norm: norm("self_attn.k_norm", head, has_head_norms)?,
                    window,
                },
                mlp,
                pre_feedforward_layernorm: norm("pre_feedforward_layernorm", size, has_four)?,
                post_feedforward_layernorm: norm("post_feedforward_layernorm", size, has_four)?,
                input_layernorm: Norm::new(&name("input_layernorm"), size, config, source)?,
                post_attention_layernorm: Norm::new(&name("post_attention_layernorm"), size, config, source)?,
            })
        };
        let table = source("model.embed_tokens.weight", &[vocab_size, size], Init::Normal)?;
        let windows = config.windows()?.into_iter().enumerate();
        let lm_head = (!config.tie_word_embeddings).then(|| linear(source, "lm_head", [size, vocab_size], false));
        Ok(Llama {
            lm_head: lm_head.transpose()?,
            model: Decoder {
                embed_tokens: Embedding::from_weight(table),
                layers: windows.map(|(at, window)| block(source, at, window)).collect::<Result<_>>()?,
                norm: Norm::new("model.norm", size, config, source)?,
            },
            heads,
            groups,
            size: head,
            config: config.clone(),
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

    pub(super) fn family(&self) -> LlamaFamily {
        self.config.model_type
    }

    /// The results of the heads for `norm(x)`, before their projection.
    fn attend(
        &self,
        at: usize,
        block: &Block,
        x: &Tensor,
        [cos, sin]: [&Tensor; 2],
        cache: &mut KeyValueCache,
    ) -> Result<Tensor> {
        let Block { self_attn: block, input_layernorm: norm, .. } = block;
        let [q, k, v] = self.projections(x, norm, block)?;
        // Heads that share keys are adjacent: [batch, groups, heads of a group, steps, size].
        let split = |x: Tensor, heads: usize, norm: &Option<Norm>| -> Result<Tensor> {
            let mut x = x.unflatten(2, [self.groups, heads / self.groups, self.size])?;
            if let Some(norm) = norm {
                x = norm.forward(&x)?;
            }
            x.permute([0, 2, 3, 1, 4])
        };
        let (q, k) = (split(q, self.heads, &block.q_norm)?, split(k, self.groups, &block.k_norm)?);
        let v = split(v, self.groups, &None)?;
        let scale = self.config.query_pre_attn_scalar.unwrap_or(self.size as f64).sqrt().recip();
        let cap = self.config.attn_logit_softcapping;
        let options = BlockAttention { window: block.window, scale: Some(scale), cap };
        let merged = |out: Tensor| out.permute([0, 3, 1, 2, 4])?.flatten(2, 4);
        if let Some(out) = cache.attend_rotated_step(at, [&q, &k, &v], [cos, sin], options)? {
            return merged(out);
        }
        let (q, k) = (q.rope(cos, sin)?, k.rope(cos, sin)?);
        if let Some(out) = cache.attend_step(at, &q, &k, &v, options)? {
            return merged(out);
        }
        let (k, v, mask) = cache.visible(at, &q, k, v, block.window)?;
        let is_causal = mask.is_none() && x.shape()[1] > 1;
        let out = match cap {
            Some(cap) => soft_capped_attention([&q, &k, &v], mask, is_causal, scale, cap)?,
            None => {
                let mut options = AttentionOptions::new().is_causal(is_causal).scale(scale);
                if let Some(mask) = &mask {
                    options = options.attn_mask(mask);
                }
                q.scaled_dot_product_attention_with(&k, &v, options)?
            }
        };
        merged(out)
    }

    /// Splits the joint matrices of Phi-3's files.
    fn without_joint_matrices(&self, dict: &StateDict) -> Result<StateDict> {
        let (queries, keys, hidden) = (self.heads * self.size, self.groups * self.size, self.config.intermediate_size);
        let joint: [(&str, &[(&str, usize)]); 2] = [
            ("qkv_proj.weight", &[("q_proj", queries), ("k_proj", keys), ("v_proj", keys)]),
            ("gate_up_proj.weight", &[("gate_proj", hidden), ("up_proj", hidden)]),
        ];
        let mut own = StateDict::new();
        for (name, value) in dict.iter() {
            let found = joint.iter().find_map(|(end, parts)| Some((name.strip_suffix(end)?, *parts)));
            let parts = match found {
                None => vec![(name.to_string(), value.clone())],
                Some((start, parts)) => {
                    let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
                    if value.rank() != 2 || value.shape()[0] != rows {
                        let shape = value.shape();
                        bail!(Format, "load_weights", "{name} must have shape [{rows}, ..], got {shape:?}");
                    }
                    let mut first = 0;
                    let mut part = |(part, rows): &(&str, usize)| -> Result<(String, Tensor)> {
                        let values = value.narrow(0, first, *rows)?;
                        first += rows;
                        Ok((format!("{start}{part}.weight"), values))
                    };
                    parts.iter().map(&mut part).collect::<Result<_>>()?
                }
            };
            for (part, value) in parts {
                if own.insert(part.as_str(), value).is_some() {
                    bail!(Format, "load_weights", "expected {part} either alone or as a part of {name}, got both");
                }
            }
        }
        Ok(own)
    }
}

/// Attention whose scores are bounded, which the fused kernels do not compute.
fn soft_capped_attention(
    [query, key, value]: [&Tensor; 3],
    mask: Option<Tensor>,
    is_causal: bool,
    scale: f64,
    cap: f64,
) -> Result<Tensor> {
    let scores = query.matmul(&key.transpose(-2, -1)?)?;
    let mut scores = scores.to_dtype(scores.dtype().compute_dtype())?.mul(scale / cap)?.tanh()?.mul(cap)?;
    let mask = match mask {
        None if is_causal => {
            let steps = query.shape()[query.rank() - 2];
            Some(Tensor::ones_with([steps, steps], (DType::Bool, query.device()))?.tril(0)?)
        }
        mask => mask,
    };
    if let Some(mask) = mask {
        // Not infinity, so that padding, which sees no key, gives no NaN.
        scores = scores.masked_fill(&mask.logical_not()?, -1e30)?;
    }
    scores.softmax(-1)?.to_dtype(value.dtype())?.matmul(value)
}

impl Llama {
    /// The last hidden states, `[batch, steps, hidden_size]`.
    #[track_caller]
    fn hidden(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let &[batch, steps] = tokens.shape() else {
            bail!(Shape, "Llama", "tokens must have shape [batch, steps], got {:?}", tokens.shape());
        };
        cache.check("Llama", batch, steps)?;
        let mut x = self.model.embed_tokens.forward(tokens)?;
        if self.config.model_type.is_gemma() {
            // The reference rounds the factor to the dtype of the embeddings.
            let scale = (self.config.hidden_size as f64).sqrt();
            x = x.mul(&Tensor::full_with([1], scale, (x.dtype(), x.device()))?)?;
        }
        // Integer positions give f32, which is precise enough for half precision, too.
        let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::I64 };
        let positions = cache.positions(steps, dtype, x.device())?;
        let (mut cos, mut sin) =
            rope::cos_sin(&positions, self.size, self.config.rope_theta, self.config.rope_scaling)?;
        if positions.rank() == 2 {
            // Groups, and the heads of a group.
            (cos, sin) = (cos.unsqueeze(1)?.unsqueeze(1)?, sin.unsqueeze(1)?.unsqueeze(1)?);
        }
        for (at, block) in self.model.layers.iter().enumerate() {
            let Block { self_attn: Attention { o_proj, .. }, mlp, .. } = block;
            let y = self.attend(at, block, &x, [&cos, &sin], cache)?;
            let (Some(before), Some(after)) = (&block.pre_feedforward_layernorm, &block.post_feedforward_layernorm)
            else {
                x = self.add_projection(&x, o_proj, &y)?;
                let hidden = self.gated(&x, &block.post_attention_layernorm, mlp)?;
                x = self.add_projection(&x, &mlp.down_proj, &hidden)?;
                continue;
            };
            x = x.add(&block.post_attention_layernorm.forward(&o_proj.forward(&y)?)?)?;
            let hidden = self.gated(&x, before, mlp)?;
            x = x.add(&after.forward(&mlp.down_proj.forward(&hidden)?)?)?;
        }
        cache.advance(tokens)?;
        Ok(x)
    }

    /// The logits of hidden states.
    #[track_caller]
    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.model.norm.forward(x)?;
        let logits = match &self.lm_head {
            Some(head) => head.forward(&x)?,
            None => nn::linear(&x, &self.model.embed_tokens.weight, None)?,
        };
        match self.config.final_logit_softcapping {
            Some(cap) => logits.div(cap)?.tanh()?.mul(cap),
            None => Ok(logits),
        }
    }
}

impl CausalModel for Llama {
    #[track_caller]
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.logits(&self.hidden(tokens, cache)?)
    }

    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.logits(&self.hidden(tokens, cache)?.narrow(1, -1, 1)?)?.squeeze(1)
    }

    fn recordable_steps(&self) -> Option<usize> {
        // Dropout of adapters draws random numbers, which cannot be recorded.
        (!self.is_training() || !self.model.layers.iter().any(Block::is_adapted)).then_some(usize::MAX)
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
        let dict = without_prefix(dict, "", |name| {
            (tied && name == "lm_head.weight") || name.ends_with("rotary_emb.inv_freq")
        })?;
        if self.config.model_type == LlamaFamily::Phi3 { self.without_joint_matrices(&dict) } else { Ok(dict) }
    }
}
