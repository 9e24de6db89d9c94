//! Files, checkpoints, datasets and loaders.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/dice.rs"]
mod dice;

mod checkpoint;
mod data;
mod formats;
mod safetensors;
