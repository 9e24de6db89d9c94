//! Fine-tuning with low-rank adapters (LoRA), in files that PEFT reads and writes.

use super::Published;
use super::config::ConfigFile;
use crate::error::{bail, err, named};
use crate::io::{self, StateDict};
use crate::json::object;
use crate::nn::LoraLinear;
use crate::order::map_of;
use crate::{Error, Result};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// A model whose linear layers can carry adapters.
///
/// ```
/// use cotangent::models::{Adaptable, Gpt2, Gpt2Config};
/// let config = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
/// let names: Vec<String> = Gpt2::new(&config)?.linear_layers().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Adaptable: Published {
    /// All linear layers that can carry adapters, with their names.
    fn linear_layers(&mut self) -> Vec<(String, &mut LoraLinear)>;

    /// The prefix of the layers' published names that the model's own names lack.
    fn prefix(&self) -> &'static str {
        ""
    }

    /// Whether the weights of the layers are `[inputs, outputs]`, a field of PEFT's configuration.
    fn fan_in_fan_out(&self) -> bool {
        false
    }
}

/// Which layers get adapters, and their settings. The fields are PEFT's.
///
/// ```
/// use cotangent::models::LoraConfig;
/// let config = LoraConfig { r: 4, ..LoraConfig::new(["q_proj", "v_proj"]) };
/// assert_eq!(config.lora_alpha, 8.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// The rank of the adapters.
    pub r: usize,
    /// The scale of the adapters: their output is multiplied by `lora_alpha / r`.
    pub lora_alpha: f64,
    /// The dropout probability of the adapters' inputs in training.
    pub lora_dropout: f64,
    /// The layers to adapt: those whose name is one of these, or ends with a dot and one of these.
    pub target_modules: Vec<String>,
}

impl LoraConfig {
    /// Adapters of rank 8 with a `lora_alpha` of 8, PEFT's defaults, for these layers.
    pub fn new<N: Into<String>>(target_modules: impl IntoIterator<Item = N>) -> LoraConfig {
        let target_modules = target_modules.into_iter().map(Into::into).collect();
        LoraConfig { r: 8, lora_alpha: 8.0, lora_dropout: 0.0, target_modules }
    }

    fn names(&self, layer: &str) -> bool {
        let ends = |target: &String| layer.strip_suffix(target.as_str()).is_some_and(|rest| rest.ends_with('.'));
        self.target_modules.iter().any(|target| target == layer || ends(target))
    }
}

const ADD: &str = "add_lora";
const SAVE: &str = "save_lora";
const LOAD: &str = "load_lora";
const WEIGHTS: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
/// The prefix that PEFT adds to the names of a model's layers.
const PREFIX: &str = "base_model.model.";

/// Freezes a model and adds adapters to its layers, so that only these are trained. Optimisers still get the whole model.
/// Returns the number of adapted layers.
///
/// ```
/// use cotangent::models::{Gpt2, Gpt2Config, LoraConfig, add_lora, merge_lora};
/// use cotangent::nn::Module;
/// use cotangent::optim::{AdamW, Optimizer};
/// use cotangent::tensor;
/// let config = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
/// let mut model = Gpt2::new(&config)?;
/// assert_eq!(add_lora(&mut model, &LoraConfig { r: 2, ..LoraConfig::new(["c_attn"]) })?, 2);
/// let (tokens, next) = (tensor!([[1, 2, 3]])?, tensor!([2, 3, 4])?);
/// model.forward(&tokens)?.flatten(0, 1)?.cross_entropy(&next)?.backward()?;
/// AdamW::new(1e-3).step(&mut model)?;
/// assert!(model.named_parameters().iter().all(|(name, p)| p.grad().is_some() == name.contains("lora_")));
/// merge_lora(&mut model)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If a name matches no layer, a layer already has an adapter, or a number is out of its domain; nothing is changed then.
#[track_caller]
pub fn add_lora<M: Adaptable>(model: &mut M, config: &LoraConfig) -> Result<usize> {
    named(ADD, attach(model, config))
}

fn attach<M: Adaptable>(model: &mut M, config: &LoraConfig) -> Result<usize> {
    let LoraConfig { r, lora_alpha, lora_dropout, target_modules } = config;
    if *r == 0 || !lora_alpha.is_finite() || !(0.0..1.0).contains(lora_dropout) {
        bail!(
            Value,
            ADD,
            "r must be ≥ 1, lora_alpha finite and lora_dropout in [0, 1), got r {r}, lora_alpha {lora_alpha} and lora_dropout {lora_dropout}"
        );
    }
    let layers = model.linear_layers();
    for target in target_modules {
        let one = LoraConfig { target_modules: vec![target.clone()], ..config.clone() };
        if !layers.iter().any(|(name, _)| one.names(name)) {
            let mut known: Vec<&str> = layers.iter().filter_map(|(name, _)| name.rsplit('.').next()).collect();
            known.sort_unstable();
            known.dedup();
            bail!(
                Value,
                ADD,
                "target_modules must be names of layers, got {target}: the model has {}",
                known.join(", ")
            );
        }
    }
    let mut chosen: Vec<_> = layers.into_iter().filter(|(name, _)| config.names(name)).collect();
    if chosen.is_empty() {
        bail!(Value, ADD, "target_modules must name at least one layer");
    }
    if let Some((name, _)) = chosen.iter().find(|(_, layer)| layer.is_adapted()) {
        bail!(Value, ADD, "{name} already has an adapter: call merge_lora first");
    }
    let count = chosen.len();
    for (name, layer) in &mut chosen {
        layer.attach(*r, *lora_alpha, *lora_dropout).map_err(|error| error.context(name))?;
    }
    drop(chosen);
    for mut parameter in model.parameters_mut() {
        let trained = is_of_adapter(parameter.name());
        parameter.set_requires_grad(trained)?;
    }
    Ok(count)
}

fn is_of_adapter(name: &str) -> bool {
    name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight")
}

/// Merges all adapters into the weights of their layers. The outputs stay, and the model can be saved or trained as a whole. See
/// [`add_lora`] for an example.
///
/// # Errors
/// If a layer with an adapter has a [quantized](crate::nn::quantize()) weight, where nothing is changed, or if memory runs out.
#[track_caller]
pub fn merge_lora<M: Adaptable>(model: &mut M) -> Result<()> {
    const OP: &str = "merge_lora";
    let mut merge = || {
        let check = |(name, layer): (String, &mut LoraLinear)| layer.check_mergeable().map_err(|e| e.context(name));
        model.linear_layers().into_iter().try_for_each(check)?;
        for (name, layer) in model.linear_layers() {
            layer.merge().map_err(|error| error.context(name))?;
        }
        model.requires_grad_(true)
    };
    named(OP, merge())
}

/// Saves a model's adapters into a folder as PEFT does: `adapter_model.safetensors` and `adapter_config.json`.
///
/// ```
/// use cotangent::models::{Gpt2, Gpt2Config, LoraConfig, add_lora, load_lora, save_lora};
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-save-lora-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let sizes = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
/// let (mut model, config) = (Gpt2::new(&sizes)?, LoraConfig::new(["c_attn"]));
/// add_lora(&mut model, &config)?;
/// save_lora(&model, &config, &folder)?;
/// assert_eq!(load_lora(&mut Gpt2::new(&sizes)?, &folder)?, config);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the model has no adapters, or a file cannot be written.
#[track_caller]
pub fn save_lora<M: Adaptable>(model: &M, config: &LoraConfig, folder: impl AsRef<Path>) -> Result<()> {
    named(SAVE, write(model, config, folder.as_ref()))
}

fn write<M: Adaptable>(model: &M, config: &LoraConfig, folder: &Path) -> Result<()> {
    let prefix = model.prefix();
    let mut dict = StateDict::new();
    for (name, values) in model.state_dict().into_iter().filter(|(name, _)| is_of_adapter(name)) {
        let rank = values.shape()[usize::from(name.ends_with("lora_B.weight"))];
        if rank != config.r {
            bail!(Value, SAVE, "{name} must have rank {}, as in the configuration, got {rank}", config.r);
        }
        dict.insert(format!("{PREFIX}{prefix}{name}"), values);
    }
    if dict.is_empty() {
        bail!(Value, SAVE, "the model has no adapters");
    }
    let LoraConfig { r, lora_alpha, lora_dropout, target_modules } = config;
    let text = object! {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": Value::Null, "inference_mode": true,
        "r": r, "lora_alpha": lora_alpha, "lora_dropout": lora_dropout, "target_modules": target_modules,
        "fan_in_fan_out": model.fan_in_fan_out(), "bias": "none", "use_rslora": false, "use_dora": false,
    };
    std::fs::create_dir_all(folder).map_err(|source| Error::io(SAVE, folder, source))?;
    let metadata = map_of([("format".to_string(), "pt".to_string())]);
    io::safetensors::save_with_metadata(folder.join(WEIGHTS), &dict, &metadata)?;
    let path = folder.join(CONFIG);
    io::replace_file(&path, |file| file.write_all(format!("{text:#}\n").as_bytes()))
        .map_err(|source| Error::io(SAVE, &path, source))
}

/// Loads adapters from a folder that [`save_lora`] or PEFT has written, and returns their configuration.
///
/// ```
/// use cotangent::models::{Llama, LlamaConfig, load_lora, load_weights};
/// # let folder = std::path::Path::new("tests/fixtures/io/peft_llama");
/// let mut model = Llama::new(&LlamaConfig::from_file(folder.join("config.json"))?)?;
/// load_weights(&mut model, folder)?;
/// assert_eq!(load_lora(&mut model, folder)?.r, 2);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If a file cannot be read, requires an unsupported feature (DoRA, other ranks for some layers, trained biases), or does not fit
/// the model; nothing is changed then.
#[track_caller]
pub fn load_lora<M: Adaptable>(model: &mut M, folder: impl AsRef<Path>) -> Result<LoraConfig> {
    named(LOAD, read(model, folder.as_ref()))
}

fn read<M: Adaptable>(model: &mut M, folder: &Path) -> Result<LoraConfig> {
    let config = read_config(&folder.join(CONFIG))?;
    let path = folder.join(WEIGHTS);
    let dict = io::safetensors::load(&path)?;
    let prefix = format!("{PREFIX}{}", model.prefix());
    // All matrices are checked before the first layer is changed.
    let (mut faults, mut known) = (Vec::new(), Vec::new());
    for (name, layer) in model.linear_layers().into_iter().filter(|(name, _)| config.names(name)) {
        let (inputs, outputs) = layer.features();
        for (half, shape) in [("lora_A", [config.r, inputs]), ("lora_B", [outputs, config.r])] {
            let name = format!("{prefix}{name}.{half}.weight");
            match dict.get(&name) {
                None => faults.push(format!("missing {name}")),
                Some(x) if x.shape() != shape || !x.dtype().is_float() => {
                    faults.push(format!(
                        "{name} must be float of shape {shape:?}, got {} of shape {:?}",
                        x.dtype(),
                        x.shape()
                    ));
                }
                Some(_) => {}
            }
            known.push(name);
        }
    }
    faults.extend(
        dict.names().filter(|name| !known.iter().any(|known| known == name)).map(|n| format!("unexpected {n}")),
    );
    if !faults.is_empty() {
        bail!(Format, LOAD, "{}: nothing was loaded:\n  {}", path.display(), faults.join("\n  "));
    }
    attach(model, &config)?;
    for (name, layer) in model.linear_layers() {
        let Some((a, b)) = layer.adapter_mut() else { continue };
        for (half, parameter) in [("lora_A", a), ("lora_B", b)] {
            let Some(values) = dict.get(&format!("{prefix}{name}.{half}.weight")) else { continue };
            let values = values.to_dtype(parameter.dtype())?.to_device(parameter.device())?;
            parameter.set(&values)?;
        }
    }
    Ok(config)
}

fn read_config(path: &Path) -> Result<LoraConfig> {
    let file = ConfigFile::read(path)?;
    let default = LoraConfig::new([""; 0]);
    file.expect("peft_type", &["LORA"])?;
    file.expect("bias", &["none"])?;
    for name in ["use_rslora", "use_dora", "use_qalora", "use_bdlora", "lora_bias"] {
        if file.flag(name, false)? {
            bail!(Format, LOAD, "{}: {name} must be false, got true", path.display());
        }
    }
    const OTHER_FORMS: [&str; 10] = [
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "exclude_modules",
        "layers_to_transform",
        "layer_replication",
        "target_parameters",
        "trainable_token_indices",
        "alora_invocation_tokens",
        "kasa_config",
    ];
    for name in OTHER_FORMS {
        if !file.is_empty(name) {
            bail!(Format, LOAD, "{}: {name} is not supported and must be absent or empty", path.display());
        }
    }
    let target_modules = file
        .texts("target_modules")
        .ok_or_else(|| err!(Format, LOAD, "{}: target_modules must be a list of names", path.display()))?;
    Ok(LoraConfig {
        r: file.size("r", default.r)?,
        lora_alpha: file.number("lora_alpha", default.lora_alpha)?,
        lora_dropout: file.number("lora_dropout", default.lora_dropout)?,
        target_modules,
    })
}
