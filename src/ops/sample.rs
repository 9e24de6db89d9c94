//! Test samples of an operation: calls, as data.

use super::arg::Arg;
use super::entry::Op;
use crate::{DType, Device, Generator, Result, Shape, Tensor};
use std::fmt;

/// One call of an operation, with positional and named arguments. Its floating point tensors should be `f64`; they are the
/// ones that get gradients.
///
/// ```
/// use cotangent::{DType, Tensor, ops::{self, Sample}};
/// let x = Tensor::zeros_with([2, 3], DType::F64)?;
/// let sample = Sample::new([x.into(), 1.into()]).with("keepdim", true);
/// let sum = ops::find("sum").ok_or("there is a sum")?;
/// assert_eq!(sum.call(&sample.bind(sum)?)?[0].shape(), [2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Sample {
    args: Vec<Arg>,
    named: Vec<(&'static str, Arg)>,
    zero_derivative: bool,
    symmetric: bool,
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |arg: &Arg| match arg {
            Arg::Tensor(x) => format!("{}{:?}", x.dtype(), x.shape()),
            Arg::Tensors(all) => format!("{:?}", all.iter().map(Tensor::shape).collect::<Vec<_>>()),
            other => format!("{other:?}"),
        };
        let positional = self.args.iter().map(&text);
        let named = self.named.iter().map(|(name, arg)| format!("{name}={}", text(arg)));
        write!(f, "({})", positional.chain(named).collect::<Vec<_>>().join(", "))
    }
}

impl Sample {
    /// A call with these arguments.
    pub fn new(args: impl IntoIterator<Item = Arg>) -> Sample {
        Sample { args: args.into_iter().collect(), named: Vec::new(), zero_derivative: false, symmetric: false }
    }

    /// Adds a named argument.
    #[must_use]
    pub fn with(mut self, name: &'static str, arg: impl Into<Arg>) -> Sample {
        self.named.push((name, arg.into()));
        self
    }

    /// Declares that the derivative of this sample is zero; otherwise a zero derivative counts as a fault of the sample.
    #[must_use]
    pub fn zero_derivative(self) -> Sample {
        Sample { zero_derivative: true, ..self }
    }

    /// Whether a derivative of zero was declared.
    pub fn has_zero_derivative(&self) -> bool {
        self.zero_derivative
    }

    /// Declares that the first tensor holds symmetric matrices of which one triangle is read: finite differences change both
    /// triangles equally.
    #[must_use]
    pub fn symmetric(self) -> Sample {
        Sample { symmetric: true, ..self }
    }

    /// Whether the first tensor was declared symmetric.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// The first tensor.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        self.args.first().and_then(|arg| arg.tensors().into_iter().next())
    }

    /// Whether the arguments are two different tensors.
    pub(crate) fn is_of_two(&self) -> bool {
        matches!(&self.args[..], [Arg::Tensor(a), Arg::Tensor(b)] if !a.is_same(b))
    }

    /// All arguments of the operation in order.
    ///
    /// # Errors
    /// If the arguments do not fit the operation's parameters.
    pub fn bind(&self, op: &Op) -> Result<Vec<Arg>> {
        op.bind(&self.args, &self.named)
    }
}

impl Arg {
    /// The same argument with its tensors changed.
    ///
    /// ```
    /// use cotangent::{Tensor, ops::Arg};
    /// let doubled = Arg::from(Tensor::ones([2])?).map_tensors(|x| x.mul(2))?;
    /// assert_eq!(doubled.tensors()[0].to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn map_tensors(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Arg> {
        Ok(match self {
            Arg::Tensor(x) => Arg::Tensor(f(x)?),
            Arg::Tensors(all) => Arg::Tensors(all.iter().map(f).collect::<Result<_>>()?),
            Arg::Index(index) => Arg::Index(index.map_tensors(f)?),
            other => other.clone(),
        })
    }

    /// The tensors in the argument.
    ///
    /// ```
    /// use cotangent::{Tensor, ops::Arg};
    /// assert_eq!(Arg::from(vec![Tensor::ones([2])?, Tensor::ones([3])?]).tensors().len(), 2);
    /// assert!(Arg::from(1.5).tensors().is_empty());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Arg::Tensor(x) => vec![x],
            Arg::Tensors(all) => all.iter().collect(),
            Arg::Index(index) => index.tensors().collect(),
            _ => Vec::new(),
        }
    }

    /// The same argument with its tensors moved to a device; a device argument is replaced by it.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, ops::Arg};
    /// let there = Arg::from(Tensor::ones([2])?).on(Device::Cpu)?;
    /// assert_eq!(there.tensors()[0].device(), Device::Cpu);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such device.
    pub fn on(&self, device: Device) -> Result<Arg> {
        match self {
            Arg::Device(_) => Ok(Arg::Device(device)),
            other => other.map_tensors(|x| x.to_device(device)),
        }
    }
}

/// A call that must fail, and parts that its error message must contain in addition to the name of the operation.
///
/// ```
/// use cotangent::{Tensor, ops::{ErrorCase, Sample}};
/// let call = Sample::new([Tensor::zeros([2, 3])?.into(), 2.into()]);
/// let case = ErrorCase::new("no such dimension", &["2", "rank 2"], call);
/// assert_eq!(case.message.len(), 2);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ErrorCase {
    /// What is wrong with the call.
    pub label: &'static str,
    /// Parts of the message, usually the refused values.
    pub message: Vec<&'static str>,
    /// The call.
    pub call: Sample,
}

impl ErrorCase {
    /// A call that must fail with an error message that contains all of `message`.
    pub fn new(label: &'static str, message: &[&'static str], call: Sample) -> ErrorCase {
        ErrorCase { label, message: message.to_vec(), call }
    }
}

/// A [`Sample`]: positional arguments and, after a semicolon, named ones. `sample![x, 1; keepdim = true]`.
macro_rules! sample {
    ($($arg:expr),* $(; $($name:ident = $value:expr),+)?) => {
        $crate::ops::Sample::new([$($crate::ops::Arg::from($arg)),*])$($(.with(stringify!($name), $value))+)?
    };
}

/// An [`ErrorCase`]: its label, parts of the message, and the call. `error!["no such dimension", "2"; sample![x, 2]]`.
macro_rules! error {
    ($label:literal $(, $word:literal)*; $call:expr) => {
        $crate::ops::ErrorCase::new($label, &[$($word),*], $call)
    };
}
pub(crate) use {error, sample};

/// Distinct, shuffled `f64` numbers strictly between `low` and `high`. They depend on the shape only.
pub(crate) fn spread(shape: impl Into<Shape>, low: f64, high: f64) -> Result<Tensor> {
    let shape = shape.into();
    let n = shape.numel();
    let step = n.checked_ilog2().map_or(1, |_| coprime_step(n));
    let at = |i: usize| low + (high - low) * (((i * step) % n) as f64 + 0.5) / n as f64;
    Tensor::from_vec((0..n).map(at).collect::<Vec<f64>>(), shape)
}

/// A step coprime to `n`: its multiples modulo `n` visit all of `0..n` in a shuffled order.
fn coprime_step(n: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n * 5 / 8 + 1..).find(|&s| gcd(s, n) == 1).unwrap_or(1)
}

/// `f64` numbers from the standard normal distribution with a fixed seed.
pub(crate) fn normal(shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
    Generator::seed(seed).randn_with(shape, DType::F64)
}

/// Integers as a tensor.
pub(crate) fn ints(values: &[i64], shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_slice(values, shape)
}
