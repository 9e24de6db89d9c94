//! The layers that have parameters or a state.

use super::init::{self, Fan, Gain};
use super::{Forward, Module, Training};
use crate::error::bail;
use crate::{Result, Shape, Tensor};

/// `x Wᵀ + b`, over the last dimension.
///
/// The weight begins uniform in ±1/√inputs, the bias too, as in PyTorch.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear}};
/// let layer = Linear::new(3, 2)?;
/// assert_eq!(layer.forward(&Tensor::ones([5, 3])?)?.shape(), [5, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Linear {
    /// Of shape `[outputs, inputs]`.
    #[module(param)]
    pub weight: Tensor,
    /// Of shape `[outputs]`.
    #[module(param)]
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer from `inputs` to `outputs` numbers, with a bias.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let mut layer = Linear::without_bias(inputs, outputs)?;
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        layer.bias = Some(init::uniform([outputs], -bound, bound)?.requires_grad_(true)?);
        Ok(layer)
    }

    /// A layer from `inputs` to `outputs` numbers, without a bias.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn without_bias(inputs: usize, outputs: usize) -> Result<Linear> {
        let weight = init::kaiming_uniform([outputs, inputs], Gain::LeakyRelu(5.0_f64.sqrt()), Fan::In)?;
        Ok(Linear { weight: weight.requires_grad_(true)?, bias: None })
    }
}

impl Forward for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// A table of vectors, looked up by integers.
///
/// It begins with standard normal numbers, as in PyTorch.
#[derive(Debug, Module)]
pub struct Embedding {
    /// Of shape `[entries, width]`.
    #[module(param)]
    pub weight: Tensor,
}

impl Embedding {
    /// A table of `entries` vectors of `width` numbers.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(entries: usize, width: usize) -> Result<Embedding> {
        Ok(Embedding { weight: init::normal([entries, width], 0.0, 1.0)?.requires_grad_(true)? })
    }
}

impl Forward for Embedding {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        indices.embedding(&self.weight)
    }
}

/// Normalises the last dimensions to mean 0 and variance 1, then scales and shifts each element.
#[derive(Debug, Module)]
pub struct LayerNorm {
    /// The factors, which begin at 1; of the normalised shape.
    #[module(param)]
    pub weight: Option<Tensor>,
    /// The shifts, which begin at 0; of the normalised shape.
    #[module(param)]
    pub bias: Option<Tensor>,
    /// Added to the variance: 1e-5 unless set.
    pub eps: f64,
    shape: Shape,
}

impl LayerNorm {
    /// Over the last dimensions, which have this shape.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(shape: impl Into<Shape>) -> Result<LayerNorm> {
        let mut layer = LayerNorm::without_affine(shape);
        layer.weight = Some(Tensor::ones(&layer.shape)?.requires_grad_(true)?);
        layer.bias = Some(Tensor::zeros(&layer.shape)?.requires_grad_(true)?);
        Ok(layer)
    }

    /// Without factors and shifts, so without parameters.
    pub fn without_affine(shape: impl Into<Shape>) -> LayerNorm {
        LayerNorm { weight: None, bias: None, eps: 1e-5, shape: shape.into() }
    }
}

impl Forward for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(&self.shape, self.weight.as_ref(), self.bias.as_ref(), self.eps)
    }
}

/// In training, sets elements to zero at random and scales the others up, so that the mean stays.
#[derive(Debug, Module)]
pub struct Dropout {
    p: f64,
    training: Training,
}

impl Dropout {
    /// Drops each element with probability `p`.
    ///
    /// # Errors
    /// If `p` is not a probability.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            bail!(Value, "dropout", "{p} is not a probability");
        }
        Ok(Dropout { p, training: Training::default() })
    }
}

impl Forward for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.dropout(self.p, self.training.is_on())
    }
}
