//! What every kernel for the CPU uses: instruction sets, threads, conversions between dtypes, streaming stores.

pub(crate) mod bytes;
pub(crate) mod convert;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod streaming;
pub(crate) mod thread_pool;
pub(crate) mod threads;
