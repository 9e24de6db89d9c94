//! Operations of neural networks. The layers of [`crate::nn`] call them.
//!
//! - `activation`, `rectifier`, `softmax`, `dropout`.
//! - `conv`, `fold`, `pool`, `pool_adaptive`, `pool_forms`, `interpolate`, `grid`, `pixels`: images and volumes.
//! - `layer_norm`, `local_response_norm`, `norm_channels`: normalization.
//! - `attention`, `attention_masks`, `cached`, `rope`, `recurrent`, `embedding`: sequences.
//! - `row_layers`: linear layers of few rows, joined into one kernel.
//! - `distance`: distances and similarities of vectors.

mod attention_masks;
pub(crate) mod cached;
pub(crate) mod row_layers;

files! { activation attention conv distance dropout embedding fold grid interpolate layer_norm local_response_norm norm_channels pixels pool pool_adaptive pool_forms recurrent rectifier rope softmax }
