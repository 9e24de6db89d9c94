//! Matrix products.

pub(crate) mod matmul;
