//! Fused kernels of neural networks and optimizers.

pub(crate) mod attention;
pub(crate) mod cached;
pub(crate) mod channels;
pub(crate) mod conv;
pub(crate) mod cudnn;
pub(crate) mod forward;
pub(crate) mod lstm;
pub(crate) mod optim;
pub(crate) mod pool;
pub(crate) mod rows;
pub(crate) mod tokens;
