//! Common parts of the CPU kernels: instruction sets, threads, conversions between dtypes, streaming stores.

pub(crate) mod convert;
pub(crate) mod simd;
pub(crate) mod streaming;
pub(crate) mod thread_pool;
pub(crate) mod threads;
