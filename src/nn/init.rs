//! Initial values for parameters.
//!
//! The functions return `f32` tensors that do not require gradients. They draw from the current generator: seed it with
//! [`manual_seed`](crate::manual_seed), or replace it for a closure with [`with_generator`](crate::with_generator).
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
use cotangent_macros::named;
use std::cell::Cell;

thread_local! {
    /// Whether values are drawn at all.
    static IS_SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, in which [`uniform`] and [`normal`] draw nothing: they return zeros that need no memory. For models whose values are
/// all loaded from a file.
pub(crate) fn skipped<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_SKIPPED.set(self.0);
        }
    }
    let _restore = Restore(IS_SKIPPED.replace(true));
    f()
}

/// A tensor without values of its own, inside of [`skipped`].
fn placeholder(shape: &Shape) -> Result<Option<Tensor>> {
    IS_SKIPPED.get().then(|| Tensor::zeros(())?.expand(&shape[..])).transpose()
}

/// Whether the variance is preserved in the forward pass (`In`) or in the backward pass (`Out`).
///
/// ```
/// use cotangent::nn::init::{self, Fan, Gain};
/// let weight = init::kaiming_normal([128, 784], Gain::Relu, Fan::Out)?;
/// assert_eq!(weight.shape(), [128, 784]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The number of inputs of each output.
    #[default]
    In,
    /// The number of outputs of each input.
    Out,
}

/// The nonlinearity that follows a weight. It determines the recommended gain, which compensates for the variance that it
/// removes.
///
/// ```
/// use cotangent::nn::init::Gain;
/// assert_eq!(Gain::LeakyRelu(0.0).factor(), Gain::Relu.factor());
/// ```
#[doc(alias = "calculate_gain")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// No nonlinearity, or a sigmoid: 1.
    Linear,
    /// tanh: 5/3.
    Tanh,
    /// relu: √2.
    Relu,
    /// leaky relu with this slope: √(2 / (1 + slope²)).
    LeakyRelu(f64),
}

impl Gain {
    /// The gain.
    ///
    /// ```
    /// use cotangent::nn::init::Gain;
    /// assert_eq!(Gain::Tanh.factor(), 5.0 / 3.0);
    /// ```
    pub fn factor(self) -> f64 {
        match self {
            Gain::Linear => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => 2.0_f64.sqrt(),
            Gain::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        }
    }
}

/// A tensor filled with `value`.
///
/// ```
/// use cotangent::nn::init;
/// assert_eq!(init::constant([2], 0.5)?.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If memory runs out.
#[doc(alias = "constant_")]
#[named]
pub fn constant(shape: impl Into<Shape>, value: f64) -> Result<Tensor> {
    Tensor::full(shape, value)
}

/// Uniform from `low` to `high`.
///
/// ```
/// use cotangent::nn::init;
/// assert!(init::uniform([100], -0.1, 0.1)?.to_vec::<f32>()?.iter().all(|x| x.abs() <= 0.1));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `low` is above `high`, `high - low` is not finite, or memory runs out.
#[doc(alias = "uniform_")]
#[named]
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64) -> Result<Tensor> {
    if !(low <= high && (high - low).is_finite()) {
        bail!(Value, "uniform", "low must be ≤ high and high - low finite, got low {low} and high {high}");
    }
    let shape = shape.into();
    if let Some(zeros) = placeholder(&shape)? {
        return Ok(zeros);
    }
    let mut tensor = Tensor::rand(shape)?;
    tensor.mul_(high - low)?;
    tensor.add_(low)?;
    Ok(tensor)
}

/// Normal with the given mean and standard deviation.
///
/// ```
/// use cotangent::nn::{Linear, init};
/// let mut layer = Linear::new(3, 2)?;
/// layer.weight.set(&init::normal([2, 3], 0.0, 0.02)?)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `std` is negative or NaN, or memory runs out.
#[doc(alias = "normal_")]
#[named]
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64) -> Result<Tensor> {
    if std.is_nan() || std < 0.0 {
        bail!(Value, "normal", "std must be ≥ 0, got {std}");
    }
    let shape = shape.into();
    if let Some(zeros) = placeholder(&shape)? {
        return Ok(zeros);
    }
    let mut tensor = Tensor::randn(shape)?;
    tensor.mul_(std)?;
    tensor.add_(mean)?;
    Ok(tensor)
}

/// Uniform with variance gain² / fan (He et al., 2015).
///
/// ```
/// use cotangent::nn::init::{self, Fan, Gain};
/// let weight = init::kaiming_uniform([64, 32], Gain::Relu, Fan::In)?;
/// let bound = (6.0_f32 / 32.0).sqrt();
/// assert!(weight.to_vec::<f32>()?.iter().all(|x| x.abs() <= bound));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
#[doc(alias = "kaiming_uniform_")]
#[named]
pub fn kaiming_uniform(shape: impl Into<Shape>, gain: Gain, fan: Fan) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3.0_f64.sqrt() * kaiming_std("kaiming_uniform", &shape, gain, fan)?;
    uniform(shape, -bound, bound)
}

/// Normal with variance gain² / fan (He et al., 2015).
///
/// ```
/// use cotangent::nn::init::{self, Fan, Gain};
/// assert_eq!(init::kaiming_normal([64, 32], Gain::Relu, Fan::In)?.shape(), [64, 32]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
#[doc(alias = "kaiming_normal_")]
#[named]
pub fn kaiming_normal(shape: impl Into<Shape>, gain: Gain, fan: Fan) -> Result<Tensor> {
    let shape = shape.into();
    let std = kaiming_std("kaiming_normal", &shape, gain, fan)?;
    normal(shape, 0.0, std)
}

/// Uniform with variance 2 gain² / (fan in + fan out) (Glorot and Bengio, 2010).
///
/// ```
/// use cotangent::nn::init::{self, Gain};
/// let weight = init::xavier_uniform([64, 32], Gain::Linear)?;
/// let bound = (6.0_f32 / 96.0).sqrt();
/// assert!(weight.to_vec::<f32>()?.iter().all(|x| x.abs() <= bound));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
#[doc(alias = "xavier_uniform_")]
#[named]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: Gain) -> Result<Tensor> {
    let shape = shape.into();
    let bound = 3.0_f64.sqrt() * xavier_std("xavier_uniform", &shape, gain)?;
    uniform(shape, -bound, bound)
}

/// Normal with variance 2 gain² / (fan in + fan out) (Glorot and Bengio, 2010).
///
/// ```
/// use cotangent::nn::init::{self, Gain};
/// assert_eq!(init::xavier_normal([64, 32], Gain::Tanh)?.shape(), [64, 32]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the shape has fewer than two dimensions, or memory runs out.
#[doc(alias = "xavier_normal_")]
#[named]
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

/// Fan-in and fan-out of a weight `[out, in, kernel…]`.
fn fans(op: &'static str, shape: &Shape) -> Result<(usize, usize)> {
    match &shape[..] {
        [outputs, inputs, kernel @ ..] => {
            let field: usize = kernel.iter().product();
            Ok((inputs * field, outputs * field))
        }
        _ => bail!(Shape, op, "shape must have at least 2 dimensions, got {shape:?}"),
    }
}
