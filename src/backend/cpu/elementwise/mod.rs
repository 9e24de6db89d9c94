//! Elementwise kernels, chains of them, copies, and the functions of single numbers they are made of.

pub(crate) mod chain;
pub(crate) mod copy;
pub(crate) mod map;
pub(crate) mod math;
pub(crate) mod poisson;
