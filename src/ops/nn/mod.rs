//! Operations of neural networks. The layers of [`crate::nn`] call them.
//!
//! - `activation`, `rectifier`, `softmax`, `dropout`.
//! - `conv`, `fold`, `pool`, `pool_adaptive`, `pool_forms`, `interpolate`, `grid`, `pixels`: images and volumes.
//! - `layer_norm`, `norm_channels`: normalization.
//! - `attention`, `cached`, `rope`, `recurrent`, `embedding`: sequences.
//! - `distance`: distances and similarities of vectors.

pub(crate) mod cached;

files! { activation attention conv distance dropout embedding fold grid interpolate layer_norm norm_channels pixels pool pool_adaptive pool_forms recurrent rectifier rope softmax }
