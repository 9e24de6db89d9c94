//! Decoders from llama.cpp's files.

use super::{Init, Llama, LlamaConfig, LlamaFamily, RopeScaling};
use crate::error::{bail, err, named};
use crate::io::{Value, gguf};
use crate::nn::{Parameter, QuantizedTensor};
use crate::ops::nn::rope::rotary_rates;
use crate::{DType, Device, Result, Tensor};
use std::collections::HashSet;
use std::path::Path;

const OP: &str = "from_gguf";

impl Llama {
    /// Loads a model from a GGUF file of llama.cpp, for the architectures `llama` (which includes Mistral), `qwen2`, `qwen3`,
    /// `phi3`, `gemma` and `gemma2`. Quantised weights stay as they are in the file, embeddings included, and are frozen;
    /// others are loaded as `f32`. The tokenizer is not read.
    ///
    /// The configuration comes from the metadata, and the names of the parameters are those of [`Llama::new`].
    ///
    /// ```
    /// use cotangent::models::{Llama, generate};
    /// use cotangent::tensor;
    /// # let path = "tests/fixtures/models/llama_q8_0.gguf";
    /// let model = Llama::from_gguf(path)?;
    /// assert_eq!(generate(&model, &tensor!([[3, 1]])?, 4)?.shape(), [1, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read, has another architecture, lacks a tensor or has an unknown one, or requires a feature that
    /// the model does not support, such as positions scaled by YaRN.
    #[track_caller]
    pub fn from_gguf(path: impl AsRef<Path>) -> Result<Llama> {
        let load = |path: &Path| {
            let file = gguf::open(path)?;
            let config = Metadata::new(&file)?.config()?;
            load(&file, &config).map_err(|error| error.context(path.display()))
        };
        named(OP, load(path.as_ref()))
    }
}

impl LlamaConfig {
    /// Reads the configuration from the metadata of a GGUF file. [`Llama::from_gguf`] loads the model, too.
    ///
    /// ```
    /// use cotangent::io::gguf;
    /// use cotangent::models::{LlamaConfig, LlamaFamily};
    /// # let path = "tests/fixtures/models/llama_q8_0.gguf";
    /// assert_eq!(LlamaConfig::from_gguf(&gguf::open(path)?)?.model_type, LlamaFamily::Llama);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the architecture is not one of those that a [`Llama`] covers, or requires a feature that the model does not support.
    #[track_caller]
    pub fn from_gguf(file: &gguf::Reader) -> Result<LlamaConfig> {
        named(OP, Metadata::new(file).and_then(|metadata| metadata.config()))
    }
}

/// The metadata under the prefix of the architecture.
struct Metadata<'f> {
    file: &'f gguf::Reader,
    family: LlamaFamily,
    prefix: &'f str,
}

impl<'f> Metadata<'f> {
    fn new(file: &'f gguf::Reader) -> Result<Metadata<'f>> {
        let prefix = file.metadata().get("general.architecture").and_then(Value::as_str);
        let family = match prefix {
            Some("llama") => LlamaFamily::Llama,
            Some("qwen2") => LlamaFamily::Qwen2,
            Some("qwen3") => LlamaFamily::Qwen3,
            Some("phi3") => LlamaFamily::Phi3,
            Some("gemma") => LlamaFamily::Gemma,
            Some("gemma2") => LlamaFamily::Gemma2,
            other => bail!(
                Format,
                OP,
                "general.architecture must be one of llama, qwen2, qwen3, phi3, gemma and gemma2, got {}",
                other.unwrap_or("none")
            ),
        };
        Ok(Metadata { file, family, prefix: prefix.unwrap_or_default() })
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.file.metadata().get(&format!("{}.{name}", self.prefix))
    }

    fn size_or_none(&self, name: &str) -> Result<Option<usize>> {
        let size = |value: &Value| {
            let prefix = self.prefix;
            value.as_usize().ok_or_else(|| err!(Format, OP, "{prefix}.{name} must be one integer ≥ 0"))
        };
        self.value(name).map(size).transpose()
    }

    fn size(&self, name: &str) -> Result<usize> {
        self.size_or_none(name)?.ok_or_else(|| err!(Format, OP, "{}.{name} is missing", self.prefix))
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        let number =
            |value: &Value| value.as_f64().ok_or_else(|| err!(Format, OP, "{}.{name} must be a number", self.prefix));
        self.value(name).map(number).transpose()
    }

    fn config(&self) -> Result<LlamaConfig> {
        let default = LlamaConfig::new(self.family);
        let has = |name: &str| self.file.shape(name).is_some();
        let Some(&[vocab_size, _]) = self.file.shape("token_embd.weight") else {
            bail!(Format, OP, "token_embd.weight must be a matrix");
        };
        for name in ["expert_count", "expert_used_count"] {
            let experts = self.size_or_none(name)?.unwrap_or(0);
            if experts > 0 {
                bail!(
                    Format,
                    OP,
                    "{}.{name} must be 0, as mixtures of experts are not supported, got {experts}",
                    self.prefix
                );
            }
        }
        let hidden_size = self.size("embedding_length")?;
        let heads = self.size("attention.head_count")?;
        let num_hidden_layers = self.size("block_count")?;
        let head_dim = match self.size_or_none("attention.key_length")? {
            None if heads > 0 => hidden_size / heads,
            None => 0,
            Some(size) => size,
        };
        for name in ["attention.value_length", "rope.dimension_count"] {
            let size = self.size_or_none(name)?.unwrap_or(head_dim);
            if size != head_dim {
                bail!(Format, OP, "{}.{name} must be the size of a head, {head_dim}, got {size}", self.prefix);
            }
        }
        let query_pre_attn_scalar = match self.family {
            // The largest model divides by the mean size of a head.
            LlamaFamily::Gemma2 if num_hidden_layers == 46 => Some(hidden_size as f64 / heads.max(1) as f64),
            LlamaFamily::Gemma2 => Some(head_dim as f64),
            _ => None,
        };
        let rope_theta = self.number("rope.freq_base")?.unwrap_or(10_000.0);
        Ok(LlamaConfig {
            vocab_size,
            hidden_size,
            intermediate_size: self.size("feed_forward_length")?,
            num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: Some(self.size_or_none("attention.head_count_kv")?.unwrap_or(heads)),
            head_dim: Some(head_dim),
            rms_norm_eps: self.number("attention.layer_norm_rms_epsilon")?.unwrap_or(default.rms_norm_eps),
            rope_theta,
            rope_scaling: self.rope_scaling(head_dim, rope_theta)?,
            attention_bias: has("blk.0.attn_output.bias"),
            mlp_bias: has("blk.0.ffn_gate.bias"),
            sliding_window: self.size_or_none("attention.sliding_window")?.filter(|&window| window > 0),
            layer_types: None,
            query_pre_attn_scalar,
            attn_logit_softcapping: self.number("attn_logit_softcapping")?.or(default.attn_logit_softcapping),
            final_logit_softcapping: self.number("final_logit_softcapping")?.or(default.final_logit_softcapping),
            tie_word_embeddings: !has("output.weight"),
            ..default
        })
    }

    fn rope_scaling(&self, head_dim: usize, theta: f64) -> Result<Option<RopeScaling>> {
        if self.file.shape(FACTORS).is_some() {
            return self.llama3_scaling(head_dim, theta).map(Some);
        }
        let factor = self.number("rope.scaling.factor")?.or(self.number("rope.scale_linear")?).unwrap_or(1.0);
        match self.value("rope.scaling.type").and_then(Value::as_str).unwrap_or("linear") {
            "none" => Ok(None),
            "linear" => Ok((factor != 1.0).then_some(RopeScaling::Linear { factor })),
            other => bail!(Format, OP, "{}.rope.scaling.type must be none or linear, got {other}", self.prefix),
        }
    }

    /// The file has the divisor of each frequency. Those of Llama 3 follow from one number, the divisor of the lowest.
    fn llama3_scaling(&self, head_dim: usize, theta: f64) -> Result<RopeScaling> {
        let stored = self.file.tensor(FACTORS)?.to_dtype(DType::F64)?;
        let factor = stored.max(..)?.item::<f64>()?;
        let scaling = RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        let rates = rotary_rates(head_dim, theta, Device::Cpu)?;
        let own = scaling.factors(&rates)?.reciprocal()?;
        if own.shape() != stored.shape() || !own.to_dtype(DType::F64)?.allclose_with(&stored, (1e-4, 1e-4))? {
            bail!(Format, OP, "{FACTORS} must have the factors of Llama 3, got others");
        }
        Ok(scaling)
    }
}

/// The divisors of the frequencies of positions.
const FACTORS: &str = "rope_freqs.weight";

/// Which rows of which tensor of the file a parameter consists of.
struct Place {
    name: String,
    /// The first row and the number of rows, if they are a part.
    rows: Option<(usize, usize)>,
}

/// Where the file has a parameter, by its name in the model.
fn place(name: &str, rows: usize, config: &LlamaConfig) -> Result<Place> {
    let whole = |name: String| Ok(Place { name, rows: None });
    match name {
        "model.embed_tokens.weight" => return whole("token_embd.weight".to_string()),
        "model.norm.weight" => return whole("output_norm.weight".to_string()),
        "lm_head.weight" => return whole("output.weight".to_string()),
        _ => {}
    }
    let unknown = || err!(Format, OP, "no name is known for {name}");
    let (block, rest) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')).ok_or_else(unknown)?;
    let (part, kind) = rest.rsplit_once('.').ok_or_else(unknown)?;
    let is_gemma2 = config.model_type == LlamaFamily::Gemma2;
    let (first, own) = match (part, config.model_type) {
        // Phi-3 has the three in one matrix, one after the other, and gate and hidden units in another.
        ("self_attn.q_proj", LlamaFamily::Phi3) => (Some(0), "attn_qkv"),
        ("self_attn.k_proj", LlamaFamily::Phi3) => {
            (Some(config.num_attention_heads * config.head_dim.unwrap_or(0)), "attn_qkv")
        }
        ("self_attn.v_proj", LlamaFamily::Phi3) => {
            (Some(config.num_attention_heads * config.head_dim.unwrap_or(0) + rows), "attn_qkv")
        }
        ("mlp.gate_proj", LlamaFamily::Phi3) => (Some(0), "ffn_up"),
        ("mlp.up_proj", LlamaFamily::Phi3) => (Some(rows), "ffn_up"),
        ("self_attn.q_proj", _) => (None, "attn_q"),
        ("self_attn.k_proj", _) => (None, "attn_k"),
        ("self_attn.v_proj", _) => (None, "attn_v"),
        ("mlp.gate_proj", _) => (None, "ffn_gate"),
        ("mlp.up_proj", _) => (None, "ffn_up"),
        ("self_attn.o_proj", _) => (None, "attn_output"),
        ("self_attn.q_norm", _) => (None, "attn_q_norm"),
        ("self_attn.k_norm", _) => (None, "attn_k_norm"),
        ("mlp.down_proj", _) => (None, "ffn_down"),
        ("input_layernorm", _) => (None, "attn_norm"),
        ("post_attention_layernorm", _) if is_gemma2 => (None, "post_attention_norm"),
        ("pre_feedforward_layernorm", _) | ("post_attention_layernorm", _) => (None, "ffn_norm"),
        ("post_feedforward_layernorm", _) => (None, "post_ffw_norm"),
        _ => return Err(unknown()),
    };
    Ok(Place { name: format!("blk.{block}.{own}.{kind}"), rows: first.map(|first| (first, rows)) })
}

fn load(file: &gguf::Reader, config: &LlamaConfig) -> Result<Llama> {
    let mut used = HashSet::from([FACTORS.to_string()]);
    let model = Llama::assemble(config, &mut |name, shape, init| {
        let place = place(name, shape[0], config)?;
        let read = read(file, &place, name, shape, init, config);
        let parameter = read.map_err(|error| error.context(&place.name))?;
        used.insert(place.name);
        Ok(parameter)
    })?;
    let unknown: Vec<&str> = file.names().filter(|name| !used.contains(*name)).collect();
    if !unknown.is_empty() {
        bail!(Format, OP, "the model has no parameters for {}", unknown.join(", "));
    }
    Ok(model)
}

fn read(
    file: &gguf::Reader,
    place: &Place,
    name: &str,
    shape: &[usize],
    init: Init,
    config: &LlamaConfig,
) -> Result<Parameter> {
    let Some(stored) = file.shape(&place.name) else {
        bail!(Format, OP, "the file has no tensor for {name}");
    };
    let is_quantized = file.form(&place.name).and_then(crate::nn::QuantFormat::from_name).is_some();
    let weight = is_quantized.then(|| file.quantized(&place.name)).transpose()?;
    let values = match &weight {
        Some(weight) => weight.blocks().clone(),
        None => file.tensor(&place.name)?.to_dtype(DType::F32)?,
    };
    let fits = |rows: usize| stored[0] == rows && stored[1..] == shape[1..];
    let mut values = match place.rows {
        Some((first, rows)) if stored[1..] == shape[1..] && first + rows <= stored[0] => {
            values.narrow(0, first, rows)?.contiguous()?
        }
        None if fits(shape[0]) => values,
        _ => bail!(Format, OP, "shape must be that of {name}, {shape:?}, got {stored:?}"),
    };
    if config.model_type == LlamaFamily::Llama && (name.contains(".q_proj.") || name.contains(".k_proj.")) {
        values = without_interleaving(&values, config.head_dim.unwrap_or(0))?;
    }
    if matches!(init, Init::Zeros) && name.ends_with("norm.weight") {
        // Files of Gemma have one plus the weight.
        values = values.sub(1.0)?;
    }
    match weight {
        None => Parameter::new(values),
        Some(weight) => Ok(Parameter::from_quantized(QuantizedTensor::from_blocks(&values, weight.format())?)),
    }
}

/// The rows of queries or keys in the order of Hugging Face's models. llama.cpp rotates pairs of adjacent rows, these the two
/// halves of a head. Quantised rows are moved as a whole.
fn without_interleaving(rows: &Tensor, head: usize) -> Result<Tensor> {
    let count = rows.shape()[0];
    if head == 0 || !count.is_multiple_of(head) {
        bail!(Format, OP, "the number of rows must be a multiple of the size of a head, {head}, got {count}");
    }
    let width = rows.shape()[1..].iter().product::<usize>();
    let pairs = rows.reshape([count / head, head / 2, 2, width])?;
    pairs.transpose(1, 2)?.contiguous()?.reshape(rows.shape())
}
