//! Known models, with the names that their published weights have.
//!
//! A model is made from a configuration, with new weights. [`load_weights`] takes over those of a safetensors file, by name: a
//! name that is missing, or that the model does not have, is an error that lists them.
//!
//! ```
//! use cotangent::models::{Gpt2, Gpt2Config};
//! use cotangent::tensor;
//! let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() })?;
//! let logits = model.forward(&tensor!([[3, 1, 4]])?)?;
//! assert_eq!(logits.shape(), [1, 3, 50]);
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod bert;
mod config;
mod ddpm;
mod generate;
mod gpt2;
mod llama;
mod lora;
mod lstm_lm;
mod resnet;
mod unet;
mod vae;
mod vit;

pub use bert::{Bert, BertConfig, BertOutput};
pub use ddpm::{Ddpm, DdpmConfig, NoiseSchedule};
pub use generate::{CausalModel, GenerateOptions, KeyValueCache, generate, generate_with};
pub use gpt2::{Gpt2, Gpt2Config};
pub use llama::{Llama, LlamaConfig};
pub use lora::{Adaptable, LoraConfig, add_lora, load_lora, merge_lora, save_lora};
pub use lstm_lm::{LstmLm, LstmLmConfig};
pub use resnet::{ResNet, ResNetBlock, ResNetConfig};
pub use unet::{UNet, UNetConfig, UNetNorm};
pub use vae::{Vae, VaeConfig, VaeOutput};
pub use vit::{ViT, ViTConfig};

use crate::Result;
use crate::error::bail;
use crate::io::{self, StateDict};
use crate::nn::Module;
use std::path::Path;

/// What the names in a file are, other than those of the model.
pub trait Published: Module {
    /// A dictionary as it is published, with the model's own names: prefixes that some files have and others lack are taken
    /// away, and so is what belongs to no parameter. By default they are the same.
    ///
    /// # Errors
    /// If two names become one.
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        Ok(dict.clone())
    }
}

/// Loads published weights from a safetensors file, the index of several, or the folder of a model. Those of other dtypes are
/// cast to the model's.
///
/// ```
/// use cotangent::models::{Gpt2, Gpt2Config, load_weights};
/// use cotangent::nn;
/// let config = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
/// let path = std::env::temp_dir().join("cotangent-doc-gpt2.safetensors");
/// nn::save(&Gpt2::new(&config)?, &path)?;
/// load_weights(&mut Gpt2::new(&config)?, &path)?;
/// # std::fs::remove_file(path).ok();
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, or names or shapes do not fit: nothing is changed then.
#[track_caller]
pub fn load_weights<M: Published>(model: &mut M, path: impl AsRef<Path>) -> Result<()> {
    let dict = model.own_names(&io::safetensors::load(path)?)?;
    let mut cast = StateDict::new();
    let own = model.state_dict();
    for (name, value) in dict.iter() {
        let dtype = own.get(name).map_or(value.dtype(), crate::Tensor::dtype);
        cast.insert(name, if value.dtype().is_float() { value.to_dtype(dtype)? } else { value.clone() });
    }
    model.load_state_dict(&cast)
}

/// Refuses a head of its own where the model uses the table of tokens: its logits would be others.
fn check_tied(dict: &StateDict, head: &str, table: &str) -> Result<()> {
    match (dict.get(head), dict.get(table)) {
        (Some(a), Some(b)) if a.shape() != b.shape() || !a.equal(b)? => {
            bail!(Format, "load_weights", "{head} is not {table}, and the model has no head of its own")
        }
        _ => Ok(()),
    }
}

/// A dictionary without a prefix of its names and without the names that `skip` tells.
fn without_prefix(dict: &StateDict, prefix: &str, skip: impl Fn(&str) -> bool) -> Result<StateDict> {
    let mut own = StateDict::new();
    for (name, value) in dict.iter() {
        let short = name.strip_prefix(prefix).unwrap_or(name);
        if skip(short) {
            continue;
        }
        if own.insert(short, value.clone()).is_some() {
            bail!(Format, "load_weights", "the names {short} and {prefix}{short} are both there");
        }
    }
    Ok(own)
}
