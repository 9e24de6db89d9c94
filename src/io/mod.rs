//! Files: tensors under names, saved and loaded.

pub mod safetensors;
mod state_dict;

pub use state_dict::StateDict;
