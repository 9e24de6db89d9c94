//! Matrix products and factorizations.

pub(crate) mod decompose;
pub(crate) mod fft;
pub(crate) mod matmul;
mod spectral;
