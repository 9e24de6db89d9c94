//! Operations: all of the list through one harness, their values in PyTorch, and families in depth.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/args.rs"]
mod args;
#[path = "../common/call.rs"]
mod call;
#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/json.rs"]
#[allow(dead_code)]
mod json;

mod accuracy;
mod choices;
mod complex;
mod conv;
mod edges;
mod foreign;
mod harness;
mod interrupt;
mod linalg;
mod torch_fixtures;
