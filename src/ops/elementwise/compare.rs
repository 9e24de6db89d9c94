//! Comparisons, and selection by a bool.

use crate::backend::spec::{Ordered, select};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::elementwise::call::{Domain, Elementwise, common_dtype, elementwise};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};

/// # Comparison and choice
#[ops]
impl Tensor {
    /// True where two elements are equal. NaN equals nothing.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 2])?.eq(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["equal"])]
    pub fn eq<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare eq(self, other) |a, b| a.eq(b).0)
    }

    /// True where two elements differ.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 2])?.ne(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["not_equal"])]
    #[doc(alias = "not_equal")]
    pub fn ne<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare ne(self, other) |a, b| a.ne(b).0)
    }

    /// True where `self < other`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 2])?.lt(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["less"])]
    #[doc(alias = "less")]
    pub fn lt<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare lt(self, other) |a, b| a.lt(b).0)
    }

    /// True where `self ≤ other`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 3])?.le(2)?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["less_equal"])]
    #[doc(alias = "less_equal")]
    pub fn le<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare le(self, other) |a, b| a.le(b).0)
    }

    /// True where `self > other`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 3])?.gt(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["greater"])]
    #[doc(alias = "greater")]
    pub fn gt<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare gt(self, other) |a, b| a.gt(b).0)
    }

    /// True where `self ≥ other`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 2])?.ge(2)?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = comparisons, errors = comparison_errors, derivative = none, aliases = ["greater_equal"])]
    #[doc(alias = "greater_equal")]
    pub fn ge<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Compare ge(self, other) |a, b| a.ge(b).0)
    }

    /// Selects from `input` where this bool tensor is true, and from `other` elsewhere. All three broadcast.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([-1.0, 2.0])?;
    /// assert_eq!(x.gt(0.0)?.where_(&x, 0.0)?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is not a bool tensor, the shapes do not broadcast, or the dtypes have no common type.
    #[op(name = "where", samples = where_samples, errors = where_errors)]
    #[doc(alias = "where")]
    pub fn where_<'a>(&self, input: impl Into<Operand<'a>>, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let dtype_of = |operand: &Operand<'_>| match operand {
            Operand::Scalar(x) => x.default_dtype(),
            Operand::Borrowed(x) => x.dtype(),
            Operand::Owned(x) => x.dtype(),
        };
        // A number takes the dtype of the other operand if that is a tensor; of two numbers the first decides.
        let guide = if matches!(input, Operand::Scalar(_)) && !matches!(other, Operand::Scalar(_)) {
            dtype_of(&other)
        } else {
            dtype_of(&input)
        };
        let input = input.put("where", guide, self.device())?;
        let other = other.put("where", guide, self.device())?;
        choose(self, &input, &other)
    }

    /// Replaces the elements where `mask` is true with `value`, a number or a 0-dimensional tensor. Tensor and mask
    /// broadcast.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, 2.0])?;
    /// assert_eq!(x.masked_fill(&x.gt(1.5)?, 0.0)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the mask is not a bool tensor, the shapes do not broadcast, or the number does not fit the dtype.
    #[op(in_place, samples = masked_fill_samples, errors = masked_fill_errors)]
    pub fn masked_fill<'a>(&self, mask: &Tensor, value: impl Into<Operand<'a>>) -> Result<Tensor> {
        const OP: &str = "masked_fill";
        let value = match value {
            // A bool tensor takes the truth value of an integer.
            Operand::Scalar(Scalar::I64(value)) if self.dtype() == DType::Bool => {
                Tensor::scalar(Scalar::Bool(value != 0), DType::Bool, self.device())?
            }
            Operand::Scalar(value) if value.promote_with(self.dtype()) != self.dtype() => {
                bail!(DType, OP, "cannot fill a tensor of {} with {value}", self.dtype());
            }
            other => other.put(OP, self.dtype(), self.device())?.into_owned(),
        };
        if value.rank() != 0 || value.dtype().category() > self.dtype().category() {
            let (dtype, shape) = (value.dtype(), value.shape());
            bail!(DType, OP, "cannot fill a tensor of {} with {dtype} of shape {shape:?}", self.dtype());
        }
        let value = value.to_dtype(self.dtype())?;
        if mask.dtype() != DType::Bool {
            bail!(DType, "masked_fill", "mask must be bool, got {}", mask.dtype());
        }
        broadcast("masked_fill", &[mask.layout().shape(), self.layout().shape()])?;
        choose(mask, &value, self)
    }
}

/// Selects between two tensors by a condition.
#[track_caller]
pub(in crate::ops) fn choose(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    static SELECT: Elementwise = Elementwise::new("where", Domain::Any, 3, 0, |x, _| {
        select(x[0].ne(crate::ops::elementwise::call::zero()), x[1], x[2])
    });
    if condition.dtype() != DType::Bool {
        bail!(DType, "where", "condition must be bool, got {}", condition.dtype());
    }
    let dtype = common_dtype("where", a.dtype(), b.dtype())?;
    SELECT.call_as(&[condition, a, b], &[], dtype, dtype)
}

fn comparisons() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3], -1.0, 1.0)?, spread([3], -1.0, 1.0)?],
        sample![spread([], -1.0, 1.0)?, spread([2, 2], -1.0, 1.0)?],
        sample![ints(&[1, 2, 3, 4], [4])?, ints(&[1, 3, 2, 4], [4])?],
        sample![spread([2, 3], -1.0, 1.0)?, 0.25],
    ])
}

pub(in crate::ops) fn comparison_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![normal([2, 3], 1)?, normal([4], 2)?]]])
}

fn where_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize], &[usize]); 4] =
        [(&[2, 3], &[2, 3], &[2, 3]), (&[3], &[2, 1], &[2, 3]), (&[2, 1], &[], &[3]), (&[], &[2], &[])];
    let sample = |(c, a, b): (&[usize], &[usize], &[usize])| {
        Ok(sample![spread(c, -1.0, 1.0)?.gt(0.0)?, spread(a, 1.0, 2.0)?, spread(b, -2.0, -1.0)?])
    };
    let mut all: Vec<Sample> = shapes.into_iter().map(sample).collect::<Result<_>>()?;
    all.push(sample![spread([2, 3], -1.0, 1.0)?.gt(0.0)?, spread([2, 3], 1.0, 2.0)?, 0.0]);
    Ok(all)
}

fn where_errors() -> Result<Vec<ErrorCase>> {
    let (a, b, mask) = (normal([2], 1)?, normal([2], 2)?, normal([2], 1)?.gt(0.0)?);
    Ok(vec![
        error!["a condition of floats", "f64"; sample![&a, &a, &b]],
        error!["shapes that do not broadcast", "[2]", "[3]"; sample![&mask, &a, normal([3], 1)?]],
    ])
}

fn masked_fill_samples() -> Result<Vec<Sample>> {
    let mask = |shape: &[usize]| spread(shape, -1.0, 1.0)?.gt(0.0);
    Ok(vec![
        sample![spread([2, 3], -1.0, 1.0)?, mask(&[2, 3])?, -7.5],
        sample![spread([2, 3], -1.0, 1.0)?, mask(&[3])?, -7.5],
        sample![spread([2, 3], -1.0, 1.0)?, mask(&[2, 3])?, spread([], 1.0, 2.0)?],
    ])
}

fn masked_fill_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2], 1)?;
    Ok(vec![
        error!["a mask of floats", "f64"; sample![&x, &x, 0.0]],
        error!["a vector", "[2]"; sample![&x, x.gt(0.0)?, &x]],
        error!["a float into integers", "0.5", "i64"; sample![Tensor::zeros_with([2], DType::I64)?, x.gt(0.0)?, 0.5]],
    ])
}
