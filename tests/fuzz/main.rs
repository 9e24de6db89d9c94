//! Random calls of every operation, and random programs.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/dice.rs"]
mod dice;
#[path = "../common/random_args.rs"]
mod random_args;

mod every_operation;
mod programs;
