//! The kernels for NVIDIA GPUs, in the same folders as those for the CPU.

pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod nn;
pub(crate) mod reduce;
pub(crate) mod runtime;
#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
pub(crate) mod tests;
