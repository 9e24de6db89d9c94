//! First values for parameters.
//!
//! The functions make `f32` tensors that require no gradient yet. They draw from the generator in force: seed it with
//! [`manual_seed`](crate::manual_seed), or use another one for a while with [`with_generator`](crate::with_generator).
//!
//! ```
//! use cotangent::nn::init::{self, Fan, Gain};
//! use cotangent::{Generator, with_generator};
//! let weight = with_generator(&mut Generator::seed(1), || init::kaiming_normal([128, 784], Gain::Relu, Fan::In))?;
//! assert_eq!(weight.shape(), [128, 784]);
//! # Ok::<(), cotangent::Error>(())
//! ```

use crate::error::bail;
use crate::{Result, Shape, Tensor};

/// Which side of a weight keeps its variance: the forward pass (`In`) or the backward pass (`Out`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The number of inputs of an output.
    #[default]
    In,
    /// The number of outputs of an input.
    Out,
}

/// The function that follows a weight; it says by how much the weight must be larger to make up for what it loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// None, or a sigmoid: 1.
    Linear,
    /// tanh: 5/3.
    Tanh,
    /// relu: √2.
    Relu,
    /// A leaky relu of this slope: √(2 / (1 + slope²)).
    LeakyRelu(f64),
}

impl Gain {
    /// The factor.
    pub fn factor(self) -> f64 {
        match self {
            Gain::Linear => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => 2.0_f64.sqrt(),
            Gain::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        }
    }
}

/// One number everywhere.
///
/// # Errors
/// If memory runs out.
pub fn constant(shape: impl Into<Shape>, value: f64) -> Result<Tensor> {
    Tensor::full(shape, value)
}

/// Evenly from `low` to `high`.
///
/// # Errors
/// If there is no such range, or memory runs out.
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64) -> Result<Tensor> {
    if !(low <= high && (high - low).is_finite()) {
        bail!(Value, "uniform", "there is no range from {low} to {high}");
    }
    let mut tensor = Tensor::rand(shape)?;
    tensor.mul_(high - low)?;
    tensor.add_(low)?;
    Ok(tensor)
}

/// From a normal distribution.
///
/// # Errors
/// If `std` is negative or not a number, or memory runs out.
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64) -> Result<Tensor> {
    if std.is_nan() || std < 0.0 {
        bail!(Value, "normal", "the standard deviation cannot be {std}");
    }
    let mut tensor = Tensor::randn(shape)?;
    tensor.mul_(std)?;
    tensor.add_(mean)?;
    Ok(tensor)
}

/// Uniform with variance gain² / fan (He et al., 2015).
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
pub fn kaiming_uniform(shape: impl Into<Shape>, gain: Gain, fan: Fan) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3.0_f64.sqrt() * kaiming_std("kaiming_uniform", &shape, gain, fan)?;
    uniform(shape, -bound, bound)
}

/// Normal with variance gain² / fan (He et al., 2015).
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
pub fn kaiming_normal(shape: impl Into<Shape>, gain: Gain, fan: Fan) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming_std("kaiming_normal", &shape, gain, fan)?;
    normal(shape, 0.0, std)
}

/// Uniform with variance 2 gain² / (fan in + fan out) (Glorot and Bengio, 2010).
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
pub fn xavier_uniform(shape: impl Into<Shape>, gain: Gain) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3.0_f64.sqrt() * xavier_std("xavier_uniform", &shape, gain)?;
    uniform(shape, -bound, bound)
}

/// Normal with variance 2 gain² / (fan in + fan out) (Glorot and Bengio, 2010).
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
pub fn xavier_normal(shape: impl Into<Shape>, gain: Gain) -> Result<Tensor> {
    let shape = shape.into();
    let std = xavier_std("xavier_normal", &shape, gain)?;
    normal(shape, 0.0, std)
}

fn kaiming_std(op: &'static str, shape: &Shape, gain: Gain, fan: Fan) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, shape)?;
    let fan = if fan == Fan::In { fan_in } else { fan_out };
    Ok(gain.factor() / (fan.max(1) as f64).sqrt())
}

fn xavier_std(op: &'static str, shape: &Shape, gain: Gain) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, shape)?;
    Ok(gain.factor() * (2.0 / ((fan_in + fan_out).max(1) as f64)).sqrt())
}

/// Inputs of each output and outputs of each input, for a weight `[out, in, kernel…]`.
fn fans(op: &'static str, shape: &Shape) -> Result<(usize, usize)> {
    match &shape[..] {
        [outputs, inputs, kernel @ ..] => {
            let field: usize = kernel.iter().product();
            Ok((inputs * field, outputs * field))
        }
        _ => bail!(Shape, op, "a weight of shape {shape:?} has no inputs and outputs: it needs two dimensions"),
    }
}
