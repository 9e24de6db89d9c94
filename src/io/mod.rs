//! File formats: saving and loading of named tensors.
//!
//! | format | read | written |
//! | --- | --- | --- |
//! | [`safetensors`], one file or shards with an index | yes | yes |
//! | [`npy`] and [`npz`], NumPy's | yes | yes |
//! | [`pytorch`], `.pt` and `.pth` | yes, without running code | yes |
//! | [`gguf`], llama.cpp's | yes, quantised tensors as `f32` | no |
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
