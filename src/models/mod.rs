//! Well-known models, with the parameter names of their published weights.
//!
//! A model is created from a configuration, with new weights. [`load_weights`] loads those of a safetensors file by name.
//! Missing and unexpected names are an error that lists them.
//!
//! ```
//! use cotangent::models::{Gpt2, Gpt2Config};
//! use cotangent::tensor;
//! let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() })?;
//! let logits = model.forward(&tensor!([[3, 1, 4]])?)?;
//! assert_eq!(logits.shape(), [1, 3, 50]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Text
//! This continues a text with published weights. The folder has Hugging Face's files `config.json`, `model.safetensors` and
//! `tokenizer.json`. The [`Tokenizer`] needs the feature `tokenizers`.
//!
#![cfg_attr(feature = "tokenizers", doc = "```no_run")]
#![cfg_attr(not(feature = "tokenizers"), doc = "```ignore")]
//! use cotangent::data::Tokenizer;
//! use cotangent::models::{CausalLm, GenerateOptions, Generation};
//!
//! let model = CausalLm::load("folder")?;
//! let tokenizer = Tokenizer::open("folder/tokenizer.json")?;
//! let prompt = tokenizer.encode_special("The meaning of life is")?.unsqueeze(0)?;
//! let options = GenerateOptions::from_folder("folder")?.temperature(0.8).top_k(40);
//! let mut text = tokenizer.decode_stream();
//! for step in Generation::new(&model, &prompt, options)?.take(50) {
//!     print!("{}", text.push(step?.tokens.item()?)?);
//! }
//! println!("{}", text.finish()?);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! `cargo run --release --example generate --features tokenizers -- FOLDER --chat` is a program for it, with chat templates
//! (`ChatTemplate` in [`data`](mod@crate::data)).
//!
//! [`generate`] and [`generate_with`] keep the keys and values of earlier tokens in a [`KeyValueCache`], so that each step
//! computes only the new token. [`Generation`] is an iterator over the new tokens, to print a text while it is generated.
//! [`GenerateOptions`] has `top_p`, penalties, beams, several samples and more. [`Speculation`] uses a smaller model to save passes. For a loop of your own, pass a cache to
//! [`CausalModel::forward_cached`].
//!
#![cfg_attr(feature = "tokenizers", doc = "[`Tokenizer`]: crate::data::Tokenizer")]
#![cfg_attr(not(feature = "tokenizers"), doc = "[`Tokenizer`]: crate::data")]
#![forbid(unsafe_code)]

mod bert;
mod cache;
mod causal;
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
pub use cache::KeyValueCache;
pub use causal::CausalLm;
pub use ddpm::{Ddpm, DdpmConfig, NoiseSchedule};
pub use generate::{
    CausalModel, EndTokens, GenerateOptions, Generated, Generation, GenerationStep, Speculation, generate,
    generate_scored, generate_with, speculate,
};
pub use gpt2::{Gpt2, Gpt2Config};
pub use llama::{LayerType, Llama, LlamaConfig, LlamaFamily, RopeScaling};
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

/// A model whose published files may have other names than its own.
pub trait Published: Module {
    /// Converts a published dictionary to the model's own names: removes prefixes that only some files have, and entries that
    /// belong to no parameter. By default returns the dictionary unchanged.
    ///
    /// # Errors
    /// If two names become the same.
    fn own_names(&self, dict: &StateDict) -> Result<StateDict> {
        Ok(dict.clone())
    }
}

/// Loads published weights from a safetensors file, the index of several, or the folder of a model. They are cast to the dtypes
/// of the model.
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
#[doc(alias = "from_pretrained")]
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

/// Fails if a file has a separate head where the model ties the head to the token embedding: its logits would differ.
fn check_tied(dict: &StateDict, head: &str, table: &str) -> Result<()> {
    match (dict.get(head), dict.get(table)) {
        (Some(a), Some(b)) if a.shape() != b.shape() || !a.equal(b)? => {
            bail!(Format, "load_weights", "{head} must equal {table}: the head of this model is tied to its embedding")
        }
        _ => Ok(()),
    }
}

/// A dictionary without a prefix of its names, and without the names that `skip` selects.
fn without_prefix(dict: &StateDict, prefix: &str, skip: impl Fn(&str) -> bool) -> Result<StateDict> {
    let mut own = StateDict::new();
    for (name, value) in dict.iter() {
        let short = name.strip_prefix(prefix).unwrap_or(name);
        if skip(short) {
            continue;
        }
        if own.insert(short, value.clone()).is_some() {
            bail!(Format, "load_weights", "expected either {short} or {prefix}{short}, got both");
        }
    }
    Ok(own)
}
