//! Random tensors.
//!
//! - `distributions`, `poisson`: random numbers of many distributions, and permutations.
//! - `generator`: the methods of a user-created generator.

mod generator;

files! { distributions poisson }
