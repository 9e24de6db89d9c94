//! Elementwise kernels: generated kernels for whole chains, and random numbers.

pub(crate) mod chain;
pub(crate) mod poisson;
pub(crate) mod random;
pub(crate) mod source;
