//! The kernels for NVIDIA GPUs, in the same folders as those for the CPU.

pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod nn;
pub(crate) mod reduce;
pub(crate) mod runtime;
#[cfg(test)]
pub(crate) mod tests;
