//! Activations and reshapings as layers, for a [`Sequential`](super::Sequential). They have no parameters.

use super::{Forward, Module};
use crate::{Gelu, Result, Tensor};

/// Makes layers out of methods of [`Tensor`]: for each `Name => |x| value;` a unit struct that is a [`Module`] and
/// whose [`Forward`] is the value.
macro_rules! unit_layers {
    ($($(#[$doc:meta])+ $name:ident => |$x:ident| $value:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, Module)]
        pub struct $name;

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor) -> Result<Tensor> {
                $value
            }
        }
    )+};
}

unit_layers! {
    /// `max(x, 0)`.
    ReLU => |x| x.relu();
    /// `x · sigmoid(x)`.
    SiLU => |x| x.silu();
    /// The hyperbolic tangent.
    Tanh => |x| x.tanh();
    /// `1 / (1 + exp(-x))`.
    Sigmoid => |x| x.sigmoid();
    /// What comes in.
    Identity => |x| Ok(x.clone());
}

/// The Gaussian error linear unit; exact unless set to the approximation by tanh.
#[derive(Clone, Copy, Debug, Module)]
pub struct GELU {
    /// Exact or approximate.
    #[module(skip)]
    pub approximate: Gelu,
}

impl Default for GELU {
    fn default() -> GELU {
        GELU { approximate: Gelu::Erf }
    }
}

impl Forward for GELU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.gelu(self.approximate)
    }
}

/// `x` where positive, `negative_slope · x` elsewhere.
#[derive(Clone, Copy, Debug, Module)]
pub struct LeakyReLU {
    /// 0.01 unless set.
    pub negative_slope: f64,
}

impl Default for LeakyReLU {
    fn default() -> LeakyReLU {
        LeakyReLU { negative_slope: 0.01 }
    }
}

impl Forward for LeakyReLU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.leaky_relu(self.negative_slope)
    }
}

/// `x` where positive, `alpha · (exp(x) - 1)` elsewhere.
#[derive(Clone, Copy, Debug, Module)]
pub struct ELU {
    /// 1 unless set.
    pub alpha: f64,
}

impl Default for ELU {
    fn default() -> ELU {
        ELU { alpha: 1.0 }
    }
}

impl Forward for ELU {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.elu(self.alpha)
    }
}

/// `ln(1 + exp(beta · x)) / beta`, and `x` where `beta · x` is above the threshold.
#[derive(Clone, Copy, Debug, Module)]
pub struct Softplus {
    /// 1 unless set.
    pub beta: f64,
    /// 20 unless set.
    pub threshold: f64,
}

impl Default for Softplus {
    fn default() -> Softplus {
        Softplus { beta: 1.0, threshold: 20.0 }
    }
}

impl Forward for Softplus {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.softplus(self.beta, self.threshold)
    }
}

/// Exponentials along a dimension, divided by their sum.
#[derive(Clone, Copy, Debug, Module)]
pub struct Softmax {
    /// The dimension; negative ones count from the last.
    pub dim: isize,
}

impl Forward for Softmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.softmax(self.dim)
    }
}

/// The logarithm of [`Softmax`].
#[derive(Clone, Copy, Debug, Module)]
pub struct LogSoftmax {
    /// The dimension; negative ones count from the last.
    pub dim: isize,
}

impl Forward for LogSoftmax {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.log_softmax(self.dim)
    }
}

/// Several dimensions as one: all but the first unless set.
#[derive(Clone, Copy, Debug, Module)]
pub struct Flatten {
    /// The first of them.
    pub start_dim: isize,
    /// The last of them.
    pub end_dim: isize,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten { start_dim: 1, end_dim: -1 }
    }
}

impl Forward for Flatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.flatten(self.start_dim, self.end_dim)
    }
}
