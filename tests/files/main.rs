//! Files, checkpoints, datasets and loaders.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/dice.rs"]
mod dice;

mod checkpoint;
mod data;
mod formats;
mod safetensors;
