//! Layers and models.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/args.rs"]
mod args;
#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/json.rs"]
#[allow(dead_code)]
mod json;

mod causal;
mod decoders;
mod generate;
mod gpt;
mod layers;
mod lora;
mod models;
mod modules;
mod parametrize;
mod quantized;
mod speculate;
mod transformer;
