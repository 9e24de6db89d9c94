//! Fused kernels of neural networks and optimizers.

pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod conv;
pub(crate) mod cross_entropy;
pub(crate) mod fused;
pub(crate) mod group_norm;
pub(crate) mod layer_norm;
pub(crate) mod optim;
pub(crate) mod pool;
pub(crate) mod softmax;
