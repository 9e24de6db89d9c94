//! Matrix products and factorizations.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod amx;
pub(crate) mod decompose;
pub(crate) mod few_rows;
pub(crate) mod fft;
pub(crate) mod gemm;
pub(crate) mod matmul;
pub(crate) mod quantized;
