//! Elementwise kernels, chains of kernels, copies, and the scalar functions they use.

pub(crate) mod chain;
pub(crate) mod copy;
pub(crate) mod map;
pub(crate) mod math;
pub(crate) mod poisson;
