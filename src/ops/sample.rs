//! What the tests know about an operation.

use crate::{DType, Device, Generator, Result, Shape, Tensor};
use std::sync::Arc;

/// An entry of the list of operations.
#[derive(Debug)]
#[non_exhaustive]
pub struct Op {
    /// The name, in messages, in drawings and of the method.
    pub name: &'static str,
    /// Calls to be tested: their values, gradients, layouts and dtypes.
    pub samples: fn() -> Result<Vec<Sample>>,
    /// Calls that must be errors.
    pub error_cases: fn() -> Result<Vec<ErrorCase>>,
}

type Call = Arc<dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync>;

/// One call of an operation, as a function of its tensor inputs alone.
#[derive(Clone)]
pub struct Sample {
    label: String,
    inputs: Vec<Tensor>,
    call: Call,
    zero_derivative: bool,
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shapes: Vec<_> = self.inputs.iter().map(Tensor::shape).collect();
        write!(f, "{} on {shapes:?}", self.label)
    }
}

impl Sample {
    /// A call; floating point inputs, which should be `f64`, are those that get gradients.
    pub fn new(
        label: &str,
        inputs: Vec<Tensor>,
        call: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Sample {
        Sample { label: label.to_string(), inputs, call: Arc::new(call), zero_derivative: false }
    }

    /// Declares that the derivative is zero everywhere on this sample, which otherwise counts as a useless sample.
    #[must_use]
    pub fn with_zero_derivative(self) -> Sample {
        Sample { zero_derivative: true, ..self }
    }

    /// The same call with its inputs on a device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn on(&self, device: Device) -> Result<Sample> {
        let inputs = self.inputs.iter().map(|x| x.to_device(device)).collect::<Result<_>>()?;
        Ok(Sample { inputs, ..self.clone() })
    }

    /// What the call is.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// Whether a derivative of zero was declared.
    pub fn has_zero_derivative(&self) -> bool {
        self.zero_derivative
    }

    /// Calls the operation on inputs of the sample's shapes.
    ///
    /// # Errors
    /// As the operation's.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Tensor> {
        (self.call)(inputs)
    }
}

/// A call that must be errors, and words that its message must contain.
pub struct ErrorCase {
    /// What is wrong with the call.
    pub label: String,
    /// Parts of the message: the operation's name and the values.
    pub message: Vec<String>,
    call: Box<dyn Fn() -> Result<Tensor> + Send + Sync>,
}

impl std::fmt::Debug for ErrorCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label)
    }
}

impl ErrorCase {
    /// A call that must fail with a message that contains all of `message`.
    pub fn new(label: &str, message: &[&str], call: impl Fn() -> Result<Tensor> + Send + Sync + 'static) -> ErrorCase {
        ErrorCase {
            label: label.to_string(),
            message: message.iter().map(|&m| m.to_string()).collect(),
            call: Box::new(call),
        }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// Always, if all is well.
    pub fn run(&self) -> Result<Tensor> {
        (self.call)()
    }
}

/// `f64` numbers between `low` and `high`, in no order, no two alike and none at the ends: the same for the same shape.
pub(crate) fn spread(shape: impl Into<Shape>, low: f64, high: f64) -> Result<Tensor> {
    let shape = shape.into();
    let n = shape.numel();
    let step = n.checked_ilog2().map_or(1, |_| coprime_step(n));
    let at = |i: usize| low + (high - low) * (((i * step) % n) as f64 + 0.5) / n as f64;
    Tensor::from_vec((0..n).map(at).collect::<Vec<f64>>(), shape)
}

/// A step that visits all of `0..n` before it repeats, and jumps about on the way.
fn coprime_step(n: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n * 5 / 8 + 1..).find(|&s| gcd(s, n) == 1).unwrap_or(1)
}

/// `f64` normal numbers, the same for the same seed.
pub(crate) fn normal(shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
    Generator::seed(seed).randn_with(shape, DType::F64)
}

/// Samples of a function of one tensor, on values between `low` and `high`.
pub(crate) fn unary_samples(
    label: &str,
    low: f64,
    high: f64,
    call: impl Fn(&Tensor) -> Result<Tensor> + Copy + Send + Sync + 'static,
) -> Result<Vec<Sample>> {
    let sample = |inputs| Sample::new(label, vec![inputs], move |x: &[Tensor]| call(&x[0]));
    Ok(vec![sample(spread([3, 4], low, high)?), sample(spread((), low, high)?), sample(spread([2, 0], low, high)?)])
}
