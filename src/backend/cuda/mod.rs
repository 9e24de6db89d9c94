//! The kernels for NVIDIA GPUs.

pub(crate) mod attention;
mod call;
pub(crate) mod capture;
pub(crate) mod chain;
mod compile;
pub(crate) mod gpu;
pub(crate) mod index;
pub(crate) mod matmul;
pub(crate) mod memory;
pub(crate) mod optim;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rows;
mod source;
#[cfg(test)]
pub(crate) mod tests;
