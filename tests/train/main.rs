//! Optimisers, schedules, training loops, and whole programs.

// A helper of tests may panic like a test.
#![allow(clippy::panic)]

#[path = "../common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../common/json.rs"]
#[allow(dead_code)]
mod json;

mod loops;
mod optim;
mod optim_schedules;
mod optim_steps;
mod ports;
mod resume;
