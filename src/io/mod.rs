//! File formats: saving and loading of named tensors.
//!
//! | format | read | written |
//! | --- | --- | --- |
//! | [`safetensors`], one file or shards with an index | yes | yes |
//! | [`npy`] and [`npz`], NumPy's | yes | yes |
//! | [`pytorch`], `.pt` and `.pth` | yes, without running code | yes |
//! | [`gguf`], llama.cpp's | yes, quantised tensors as they are or as `f32` | no |
//!
//! A [`Checkpoint`] holds a whole training run, and [`Checkpoints`] keeps the last and the best of them in a folder.
//!
//! Readers do not trust files: a truncated, corrupt or malicious file is an error, and memory is bounded by the size of the
//! file.
//!
//! ```
//! use cotangent::{io::{StateDict, safetensors}, tensor};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-io-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("values.safetensors");
//! let mut dict = StateDict::new();
//! dict.insert("x", tensor!([1.0, 2.0])?);
//! safetensors::save(&path, &dict)?;
//! assert_eq!(safetensors::load(&path)?.len(), 1);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From a file into a model
//! [`nn::load`](crate::nn::load) loads a safetensors file into a model. A dictionary from any format is loaded by
//! [`Module::load_state_dict`](crate::nn::Module::load_state_dict): its names, shapes and dtypes must be those of the model.
//! [`LoadOptions`] rename, select and cast tensors. [`Module::load_matching`](crate::nn::Module::load_matching) loads only the
//! names that the model has. [`models::load_weights`](crate::models::load_weights) loads published weights into a known model.
//!
//! ```
//! use cotangent::{io::{LoadOptions, pytorch}, nn::{Linear, Module}};
//! # use cotangent::{io::StateDict, tensor};
//! # let folder = std::env::temp_dir().join(format!("cotangent-doc-io-model-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("model.pt");
//! # let saved = [("fc.weight", tensor!([[1.0, 2.0]])?), ("fc.bias", tensor!([3.0])?)];
//! # pytorch::save(&path, &StateDict::from_iter(saved))?;
//! let mut model = Linear::new(2, 1)?;
//! // The names in the file are `fc.weight` and `fc.bias`.
//! let options = LoadOptions::new().rename(|name| name.trim_start_matches("fc.").to_string());
//! model.load_state_dict(&pytorch::load_with(&path, options)?)?;
//! assert_eq!(model.weight.to_vec::<f32>()?, [1.0, 2.0]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bytes;
mod checkpoint;
mod checkpoints;
pub mod gguf;
mod load_options;
pub mod npy;
pub mod npz;
pub mod pytorch;
mod replace;
pub mod safetensors;
mod state_dict;
mod stateful;
mod value;
mod zip;

pub use checkpoint::Checkpoint;
pub use checkpoints::{Better, Checkpoints};
pub use load_options::LoadOptions;
pub(crate) use replace::replace as replace_file;
pub use state_dict::StateDict;
pub use stateful::{DefaultGenerator, State, Stateful};
pub(crate) use stateful::{no_values, stateful_optimizer};
pub use value::Value;
