//! Tensors, the engine, the transforms, and combinations of operations.

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

mod architecture;
mod autocast;
mod autograd;
mod in_place;
mod properties;
mod regressions;
mod second_order;
mod tensor;
mod vmap;
