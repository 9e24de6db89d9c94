//! Matrix products and factorizations.

pub(crate) mod decompose;
pub(crate) mod few_rows;
pub(crate) mod fft;
pub(crate) mod matmul;
mod spectral;
