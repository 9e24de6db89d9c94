//! The GPU itself: context, streams, memory, compilation, launches and recorded graphs.

pub(crate) mod call;
pub(crate) mod capture;
pub(crate) mod compile;
pub(crate) mod gpu;
pub(crate) mod memory;
pub(crate) mod stream;
pub(crate) mod timing;
