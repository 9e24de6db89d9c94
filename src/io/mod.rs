//! Files: tensors under names, saved and loaded.
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

mod replace;
pub mod safetensors;
mod state_dict;

pub use state_dict::StateDict;
