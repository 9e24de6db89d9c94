//! A language model from a folder, of any supported family.

use super::cache::KeyValueCache;
use super::config::ConfigFile;
use super::generate::CausalModel;
use super::llama::LlamaFamily;
use super::{Adaptable, Gpt2, Gpt2Config, Llama, LlamaConfig, Published};
use crate::error::{bail, named};
use crate::io::{LoadOptions, StateDict, safetensors};
use crate::nn::{LoraLinear, Module, PartMut, Visit, Visitor, init};
use crate::{DType, Result, Tensor};
use std::collections::BTreeSet;
use std::path::Path;

const LOAD: &str = "CausalLm::load";

/// A language model of any supported family, with the weights of a folder.
///
/// The folder has the files of Hugging Face: `config.json`, and `model.safetensors` or its shards with their index. `model_type`
/// in `config.json` decides the family: `gpt2`, or one of [`LlamaFamily`].
///
/// ```
/// use cotangent::io::safetensors;
/// use cotangent::models::{CausalLm, Gpt2, Gpt2Config, generate};
/// use cotangent::nn::Module;
/// use cotangent::tensor;
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-causal-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let config = r#"{"model_type": "gpt2", "vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2}"#;
/// std::fs::write(folder.join("config.json"), config)?;
/// let trained = Gpt2::new(&Gpt2Config::from_file(folder.join("config.json"))?)?;
/// safetensors::save(folder.join("model.safetensors"), &trained.state_dict())?;
///
/// let model = CausalLm::load(&folder)?;
/// assert_eq!(model.model_type(), "gpt2");
/// assert_eq!(generate(&model, &tensor!([[3, 1]])?, 5)?.shape(), [1, 7]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "AutoModelForCausalLM")]
#[doc(alias = "from_pretrained")]
#[derive(Debug, Module)]
#[non_exhaustive]
pub enum CausalLm {
    /// GPT-2.
    Gpt2(Gpt2),
    /// A model in the style of Llama.
    Llama(Llama),
}

/// What `config.json` describes.
enum Config {
    Gpt2(Gpt2Config),
    Llama(LlamaConfig),
}

impl Config {
    fn read(folder: &Path) -> Result<Config> {
        let path = folder.join("config.json");
        let file = ConfigFile::read(&path)?;
        let families = LlamaFamily::NAMES.iter().map(|(name, _)| *name);
        let supported: Vec<&str> = ["gpt2"].into_iter().chain(families).collect();
        match file.text("model_type")? {
            Some("gpt2") => Gpt2Config::from_file(path).map(Config::Gpt2),
            Some(name) if supported.contains(&name) => LlamaConfig::from_file(path).map(Config::Llama),
            other => {
                let (path, got) = (path.display(), other.unwrap_or("none"));
                bail!(Format, LOAD, "{path}: model_type must be one of {}, got {got}", supported.join(", "))
            }
        }
    }

    fn layers(&self) -> usize {
        match self {
            Config::Gpt2(config) => config.n_layer,
            Config::Llama(config) => config.num_hidden_layers,
        }
    }

    fn new_model(&self) -> Result<CausalLm> {
        match self {
            Config::Gpt2(config) => Gpt2::new(config).map(CausalLm::Gpt2),
            Config::Llama(config) => Llama::new(config).map(CausalLm::Llama),
        }
    }
}

impl CausalLm {
    /// Loads a model in the dtype of its file, in evaluation mode.
    ///
    /// # Errors
    /// If a file cannot be read; if the family or a feature of it is not supported; if names or shapes do not fit; or if the
    /// weights have several dtypes: choose one by [`load_with`](Self::load_with).
    #[track_caller]
    pub fn load(folder: impl AsRef<Path>) -> Result<CausalLm> {
        named(LOAD, load(folder.as_ref(), &LoadOptions::new()))
    }

    /// As [`load`](Self::load), with a dtype, a device, or both: `CausalLm::load_with(folder, DType::BF16)`. Each tensor is cast and
    /// moved as soon as it is read, so that the weights are in memory once.
    ///
    /// # Errors
    /// As there; also if the dtype is not floating point, or the device does not exist.
    #[track_caller]
    pub fn load_with(folder: impl AsRef<Path>, options: impl Into<LoadOptions>) -> Result<CausalLm> {
        named("CausalLm::load_with", load(folder.as_ref(), &options.into()))
    }

    /// The `model_type` of its files.
    pub fn model_type(&self) -> &'static str {
        match self {
            CausalLm::Gpt2(_) => "gpt2",
            CausalLm::Llama(model) => model.family().name(),
        }
    }

    /// The dtype of the weights.
    pub fn dtype(&self) -> DType {
        self.parameters().first().map_or(DType::F32, |weight| weight.dtype())
    }
}

#[track_caller]
fn load(folder: &Path, options: &LoadOptions) -> Result<CausalLm> {
    let config = Config::read(folder)?;
    // Each block has tensors: a number that is too large is refused before anything is made for it.
    let entries = safetensors::open(folder)?.names().count();
    if config.layers() > entries {
        bail!(
            Format,
            LOAD,
            "the number of layers must be at most that of tensors in the file, {entries}, got {}",
            config.layers()
        );
    }
    let dict = safetensors::load_with(folder, options)?;
    let mut model = init::skipped(|| config.new_model())?;
    let dict = {
        let own = model.own_names(&dict)?;
        drop(dict);
        own
    };
    let dtypes: BTreeSet<&str> =
        dict.iter().map(|(_, value)| value.dtype()).filter(|dtype| dtype.is_float()).map(DType::name).collect();
    if dtypes.len() > 1 {
        let dtypes: Vec<&str> = dtypes.into_iter().collect();
        bail!(Format, LOAD, "weights must have one dtype, got {}: choose one for all of them", dtypes.join(" and "));
    }
    adopt_dtypes(&mut model, &dict)?;
    model.load_state_dict(&dict)?;
    model.eval();
    Ok(model)
}

/// Gives all parameters the dtypes and devices of the values that they are about to get. They need no memory until then.
fn adopt_dtypes(model: &mut CausalLm, dict: &StateDict) -> Result<()> {
    let mut done = Ok(());
    model.visit_mut(&mut Visitor::new(&mut |name, part| {
        if let (PartMut::Param(parameter), Some(value)) = (part, dict.get(name))
            && value.dtype().is_float()
            && done.is_ok()
        {
            let zeros = Tensor::zeros_with((), (value.dtype(), value.device()));
            match zeros.and_then(|zeros| parameter.replaced(&zeros.expand(parameter.shape())?)) {
                Ok(new) => *parameter = new,
                Err(error) => done = Err(error),
            }
        }
    }));
    done
}

impl CausalModel for CausalLm {
    #[track_caller]
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        match self {
            CausalLm::Gpt2(model) => model.forward_cached(tokens, cache),
            CausalLm::Llama(model) => model.forward_cached(tokens, cache),
        }
    }

    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        match self {
            CausalLm::Gpt2(model) => model.next_logits(tokens, cache),
            CausalLm::Llama(model) => model.next_logits(tokens, cache),
        }
    }

    fn recordable_steps(&self) -> Option<usize> {
        match self {
            CausalLm::Gpt2(model) => model.recordable_steps(),
            CausalLm::Llama(model) => model.recordable_steps(),
        }
    }
}

impl Published for CausalLm {
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        match self {
            CausalLm::Gpt2(model) => model.own_names(dict),
            CausalLm::Llama(model) => model.own_names(dict),
        }
    }
}

impl Adaptable for CausalLm {
    fn linear_layers(&mut self) -> Vec<(String, &mut LoraLinear)> {
        match self {
            CausalLm::Gpt2(model) => model.linear_layers(),
            CausalLm::Llama(model) => model.linear_layers(),
        }
    }

    fn prefix(&self) -> &'static str {
        match self {
            CausalLm::Gpt2(model) => model.prefix(),
            CausalLm::Llama(model) => model.prefix(),
        }
    }

    fn fan_in_fan_out(&self) -> bool {
        match self {
            CausalLm::Gpt2(model) => model.fan_in_fan_out(),
            CausalLm::Llama(model) => model.fan_in_fan_out(),
        }
    }
}
