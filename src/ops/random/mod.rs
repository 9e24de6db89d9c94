//! Random tensors.
//!
//! - `distributions`, `poisson`: random numbers of many distributions, and permutations.
//! - `generator`: the methods of a generator of one's own.

mod generator;

files! { distributions poisson }
