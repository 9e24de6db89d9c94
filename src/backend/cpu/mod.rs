//! The kernels for the CPU, in the same folders as those for GPUs.

pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod nn;
pub(crate) mod reduce;
pub(crate) mod runtime;
