//! Files, checkpoints, datasets and loaders.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;

mod checkpoint;
mod data;
mod formats;
mod safetensors;
