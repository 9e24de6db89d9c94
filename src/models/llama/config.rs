//! The configuration of a decoder, and the differences of the families.

use super::super::config::ConfigFile;
use super::rope::{self, RopeScaling};
use crate::Result;
use crate::error::{bail, err};
use std::path::Path;

/// The families of models that a [`Llama`](super::Llama) covers: `model_type` in files.
///
/// ```
/// use cotangent::models::{LlamaConfig, LlamaFamily};
/// assert_eq!(LlamaConfig::new(LlamaFamily::Gemma2).attn_logit_softcapping, Some(50.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LlamaFamily {
    /// Llama 1 to 3.2, and those with the same architecture.
    #[default]
    Llama,
    /// Qwen 2 and 2.5: biases of queries, keys and values.
    Qwen2,
    /// Qwen 3: RMS norms of each head's queries and keys.
    Qwen3,
    /// Mistral: a sliding window.
    Mistral,
    /// Phi-3: files have queries, keys and values in one matrix, and gates and hidden units in one.
    Phi3,
    /// Gemma 1: norms scale by one plus their weight, embeddings are scaled, and the activation is GELU.
    Gemma,
    /// Gemma 2: as Gemma 1, with four norms in each block, and soft caps of the scores and logits.
    Gemma2,
}

impl LlamaFamily {
    pub(in crate::models) const NAMES: [(&str, LlamaFamily); 7] = [
        ("llama", LlamaFamily::Llama),
        ("qwen2", LlamaFamily::Qwen2),
        ("qwen3", LlamaFamily::Qwen3),
        ("mistral", LlamaFamily::Mistral),
        ("phi3", LlamaFamily::Phi3),
        ("gemma", LlamaFamily::Gemma),
        ("gemma2", LlamaFamily::Gemma2),
    ];

    fn from_name(name: &str) -> Result<LlamaFamily> {
        let found = LlamaFamily::NAMES.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, family)| family).ok_or_else(|| {
            let known: Vec<&str> = LlamaFamily::NAMES.iter().map(|(name, _)| *name).collect();
            err!(Format, "from_file", "model_type must be one of {}, got {name}", known.join(", "))
        })
    }

    /// The `model_type` of its files.
    pub(in crate::models) fn name(self) -> &'static str {
        LlamaFamily::NAMES.iter().find(|(_, family)| *family == self).map_or("llama", |(name, _)| name)
    }

    /// Gemma 1 or 2.
    pub(super) fn is_gemma(self) -> bool {
        matches!(self, LlamaFamily::Gemma | LlamaFamily::Gemma2)
    }
}

/// Which tokens the attention of a block sees: an entry of `layer_types` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerType {
    /// All tokens so far.
    FullAttention,
    /// The last `sliding_window` tokens.
    SlidingAttention,
}

/// The sizes of a [`Llama`](super::Llama), under Hugging Face's names. The default is that of Llama 1;
/// [`new`](LlamaConfig::new) gives those of the other families.
///
/// ```
/// use cotangent::models::LlamaConfig;
/// assert_eq!(LlamaConfig::default().hidden_size, 4096);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The family, which decides what is computed.
    pub model_type: LlamaFamily,
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
    /// How the frequencies of rotary positions are scaled, if they are.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether all four projections of attention have biases. In Qwen 2 those of queries, keys and values always do.
    pub attention_bias: bool,
    /// Whether the projections of the feed-forward networks have biases.
    pub mlp_bias: bool,
    /// The number of tokens that a token attends to in blocks with a sliding window, itself included.
    pub sliding_window: Option<usize>,
    /// The type of each block; by default all slide if there is a window, and in Gemma 2 every second one from the first.
    pub layer_types: Option<Vec<LayerType>>,
    /// The scores of attention are divided by the root of this; by default by that of the size of a head.
    pub query_pre_attn_scalar: Option<f64>,
    /// A soft bound of the scores of attention: `cap · tanh(score / cap)`.
    pub attn_logit_softcapping: Option<f64>,
    /// A soft bound of the logits.
    pub final_logit_softcapping: Option<f64>,
    /// Whether the head is tied to the token embedding.
    pub tie_word_embeddings: bool,
}

impl Default for LlamaConfig {
    fn default() -> LlamaConfig {
        LlamaConfig {
            model_type: LlamaFamily::Llama,
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            rms_norm_eps: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            sliding_window: None,
            layer_types: None,
            query_pre_attn_scalar: None,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            tie_word_embeddings: false,
        }
    }
}

impl LlamaConfig {
    /// The defaults of a family in Hugging Face's library, which hold for what a file leaves out.
    ///
    /// ```
    /// use cotangent::models::{LlamaConfig, LlamaFamily};
    /// assert_eq!(LlamaConfig::new(LlamaFamily::Mistral).sliding_window, Some(4096));
    /// ```
    pub fn new(family: LlamaFamily) -> LlamaConfig {
        let plain = LlamaConfig { model_type: family, ..LlamaConfig::default() };
        let qwen = LlamaConfig {
            vocab_size: 151_936,
            intermediate_size: 22016,
            num_key_value_heads: Some(32),
            ..plain.clone()
        };
        let gemma =
            LlamaConfig { vocab_size: 256_000, head_dim: Some(256), tie_word_embeddings: true, ..plain.clone() };
        match family {
            LlamaFamily::Llama => plain,
            LlamaFamily::Qwen2 => qwen,
            LlamaFamily::Qwen3 => LlamaConfig { head_dim: Some(128), ..qwen },
            LlamaFamily::Mistral => LlamaConfig {
                intermediate_size: 14336,
                num_key_value_heads: Some(8),
                sliding_window: Some(4096),
                ..plain
            },
            LlamaFamily::Phi3 => LlamaConfig {
                vocab_size: 32064,
                hidden_size: 3072,
                intermediate_size: 8192,
                rms_norm_eps: 1e-5,
                ..plain
            },
            LlamaFamily::Gemma => LlamaConfig {
                hidden_size: 3072,
                intermediate_size: 24576,
                num_hidden_layers: 28,
                num_attention_heads: 16,
                num_key_value_heads: Some(16),
                ..gemma
            },
            LlamaFamily::Gemma2 => LlamaConfig {
                hidden_size: 2304,
                intermediate_size: 9216,
                num_hidden_layers: 26,
                num_attention_heads: 8,
                num_key_value_heads: Some(4),
                sliding_window: Some(4096),
                query_pre_attn_scalar: Some(256.0),
                attn_logit_softcapping: Some(50.0),
                final_logit_softcapping: Some(30.0),
                ..gemma
            },
        }
    }

    /// Reads the `config.json` of published weights. What it leaves out has the default of its family.
    ///
    /// ```
    /// use cotangent::models::{LlamaConfig, LlamaFamily};
    /// let path = std::env::temp_dir().join("cotangent-doc-llama.json");
    /// std::fs::write(&path, r#"{"model_type": "qwen3", "hidden_size": 2048, "num_key_value_heads": 8}"#)?;
    /// let config = LlamaConfig::from_file(&path)?;
    /// assert_eq!((config.model_type, config.num_key_value_heads), (LlamaFamily::Qwen3, Some(8)));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, or requires a feature that the model does not support, such as positions scaled by YaRN,
    /// quantized weights, or dropout.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>) -> Result<LlamaConfig> {
        use LlamaFamily::{Gemma2, Llama, Mistral, Phi3, Qwen2, Qwen3};
        let file = ConfigFile::read(path.as_ref())?;
        let family = LlamaFamily::from_name(file.text("model_type")?.unwrap_or("llama"))?;
        let default = LlamaConfig::new(family);
        let unsupported = |names: &[&str], supported: bool| {
            names.iter().try_for_each(|name| if supported { Ok(()) } else { file.expect(name, &[]) })
        };
        // In early files of Gemma this name stands for the approximation, too.
        const GELU: [&str; 2] = ["gelu", "gelu_pytorch_tanh"];
        file.expect("hidden_act", if family.is_gemma() { &GELU } else { &["silu"] })?;
        unsupported(&["quantization_config"], false)?;
        file.expect("hidden_activation", if family.is_gemma() { &GELU[1..] } else { &["silu"] })?;
        unsupported(&["sliding_window"], matches!(family, Qwen2 | Qwen3 | Mistral | Phi3 | Gemma2))?;
        unsupported(&["layer_types"], matches!(family, Qwen2 | Qwen3 | Gemma2))?;
        let caps = ["query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"];
        unsupported(&caps, family == Gemma2)?;
        for name in ["attention_dropout", "resid_pdrop", "embd_pdrop"] {
            let dropout = file.number(name, 0.0)?;
            if dropout != 0.0 {
                bail!(Format, "from_file", "{name} must be 0, as the model has no dropout, got {dropout}");
            }
        }
        let has_windows = matches!(family, Qwen2 | Qwen3);
        let has_biases = family == Llama || family == Qwen3 || family.is_gemma();
        for (name, value, allowed) in [
            ("attention_bias", false, has_biases),
            ("mlp_bias", false, family == Llama),
            ("use_sliding_window", false, has_windows),
            ("use_mrope", false, false),
            ("use_bidirectional_attention", false, false),
            ("is_causal", true, false),
        ] {
            if !allowed && file.flag(name, value)? != value {
                bail!(Format, "from_file", "{name} must be {value}, got {}", !value);
            }
        }
        let (rope_theta, rope_scaling) = rope::read(&file, default.rope_theta)?;
        if family == Phi3 && rope_scaling.is_some() {
            bail!(Format, "from_file", "rope_scaling is not supported for phi3 and must be absent");
        }
        let num_hidden_layers = file.size("num_hidden_layers", default.num_hidden_layers)?;
        let (sliding_window, layer_types) = match family {
            Qwen2 | Qwen3 => {
                let uses = file.flag("use_sliding_window", false)?;
                let window = if uses { file.size_or_null("sliding_window", Some(4096))? } else { None };
                let slides = file.size("max_window_layers", 28)?;
                let kind = |at| if at < slides { LayerType::FullAttention } else { LayerType::SlidingAttention };
                let kinds = match layer_types(&file)? {
                    None if window.is_some() => Some((0..num_hidden_layers).map(kind).collect()),
                    kinds => kinds,
                };
                (window, kinds)
            }
            _ => (file.size_or_null("sliding_window", default.sliding_window)?, layer_types(&file)?),
        };
        let head_dim = file.size_or_null("head_dim", default.head_dim)?;
        let key_value_heads = file.size_or_null("num_key_value_heads", default.num_key_value_heads)?;
        Ok(LlamaConfig {
            model_type: family,
            vocab_size: file.size("vocab_size", default.vocab_size)?,
            hidden_size: file.size("hidden_size", default.hidden_size)?,
            intermediate_size: file.size("intermediate_size", default.intermediate_size)?,
            num_hidden_layers,
            num_attention_heads: file.size("num_attention_heads", default.num_attention_heads)?,
            num_key_value_heads: key_value_heads,
            head_dim,
            rms_norm_eps: file.number("rms_norm_eps", default.rms_norm_eps)?,
            rope_theta,
            rope_scaling,
            attention_bias: file.flag("attention_bias", false)?,
            mlp_bias: file.flag("mlp_bias", false)?,
            sliding_window,
            layer_types,
            query_pre_attn_scalar: file.number_or_null("query_pre_attn_scalar", default.query_pre_attn_scalar)?,
            attn_logit_softcapping: file.number_or_null("attn_logit_softcapping", default.attn_logit_softcapping)?,
            final_logit_softcapping: file.number_or_null("final_logit_softcapping", default.final_logit_softcapping)?,
            tie_word_embeddings: file.flag("tie_word_embeddings", default.tie_word_embeddings)?,
        })
    }

    /// The window of each block.
    pub(super) fn windows(&self) -> Result<Vec<Option<usize>>> {
        let count = self.num_hidden_layers;
        if self.sliding_window == Some(0) {
            bail!(Value, "Llama", "sliding_window must be ≥ 1, got 0");
        }
        let Some(kinds) = &self.layer_types else {
            let slides = |at: usize| self.model_type != LlamaFamily::Gemma2 || at.is_multiple_of(2);
            return Ok((0..count).map(|at| self.sliding_window.filter(|_| slides(at))).collect());
        };
        if kinds.len() != count {
            bail!(Value, "Llama", "layer_types must have {count} entries, one for each block, got {}", kinds.len());
        }
        let window = |kind: &LayerType| match (kind, self.sliding_window) {
            (LayerType::FullAttention, _) => Ok(None),
            (LayerType::SlidingAttention, Some(window)) => Ok(Some(window)),
            (LayerType::SlidingAttention, None) => {
                bail!(Value, "Llama", "sliding_window must be set for the blocks with sliding attention, got none")
            }
        };
        kinds.iter().map(window).collect()
    }
}

fn layer_types(file: &ConfigFile) -> Result<Option<Vec<LayerType>>> {
    if !file.has("layer_types") {
        return Ok(None);
    }
    let Some(names) = file.texts("layer_types") else {
        bail!(Format, "from_file", "layer_types must be a list of names");
    };
    let kind = |name: &String| match name.as_str() {
        "full_attention" => Ok(LayerType::FullAttention),
        "sliding_attention" => Ok(LayerType::SlidingAttention),
        _ => bail!(Format, "from_file", "layer_types must be full_attention or sliding_attention, got {name}"),
    };
    names.iter().map(kind).collect::<Result<_>>().map(Some)
}
