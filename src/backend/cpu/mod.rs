//! The kernels for the processor.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod amx;
pub(crate) mod arg;
pub(crate) mod attention;
pub(crate) mod bytes;
pub(crate) mod chain;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod cross_entropy;
pub(crate) mod fold;
pub(crate) mod fused;
pub(crate) mod gemm;
pub(crate) mod index;
pub(crate) mod layer_norm;
pub(crate) mod map;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod optim;
pub(crate) mod reduce;
pub(crate) mod simd;
pub(crate) mod softmax;
pub(crate) mod stream;
mod team;
pub(crate) mod threads;
