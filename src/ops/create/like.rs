//! Tensors with the dtype and device of another, and 0-dimensional tensors.

use crate::error::bail;
use crate::ops::create::constants::{Distribution, RangeEnd, alike, random_tensor};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Shape, Tensor, TensorOptions, random};

/// A tensor filled with one number, by default with the dtype and device of `x`.
fn new(op: &'static str, x: &Tensor, size: Shape, value: Scalar, options: TensorOptions) -> Result<Tensor> {
    let (dtype, device) = alike(x, options).or(x.dtype());
    value.check_element(op, dtype)?;
    Tensor::filled(op, size, value, dtype, device)
}

/// # Creation like another tensor
#[ops]
impl Tensor {
    /// Zeros of a given shape with the dtype and device of this tensor. PyTorch's `new_empty` does the same here:
    /// uninitialized memory is never returned.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1, 2])?.new_zeros([3])?.to_vec::<i64>()?, [0, 0, 0]);
    /// assert_eq!(tensor!([1, 2])?.new_zeros_with([1], DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[doc(alias = "new_empty")]
    #[op(samples = new_samples, errors = new_errors, aliases = ["new_empty"], derivative = none)]
    pub fn new_zeros(&self, size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        new("new_zeros", self, size, Scalar::I64(0), options)
    }

    /// Ones of a given shape with the dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1, 2])?.new_ones([3])?.to_vec::<i64>()?, [1, 1, 1]);
    /// assert_eq!(tensor!([1, 2])?.new_ones_with([1], DType::Bool)?.to_vec::<bool>()?, [true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[op(samples = new_samples, errors = new_errors, derivative = none)]
    pub fn new_ones(&self, size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        new("new_ones", self, size, Scalar::I64(1), options)
    }

    /// One value in a given shape with the dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1.0])?.new_full([2], 7)?.to_vec::<f32>()?, [7.0, 7.0]);
    /// assert_eq!(tensor!([1.0])?.new_full_with([2], 7, DType::U8)?.to_vec::<u8>()?, [7, 7]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[op(samples = || Ok(vec![sample![spread([2], -1.0, 1.0)?, [2, 3], 1.5], sample![spread([2], -1.0, 1.0)?, [], 2; dtype = DType::I64]]),
        errors = || Ok(vec![error!["too large", "bytes"; sample![spread([2], -1.0, 1.0)?, [isize::MAX, 8], 1.5]]]), derivative = none)]
    pub fn new_full(
        &self,
        size: impl Into<Shape>,
        fill_value: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        new("new_full", self, size, fill_value, options)
    }

    /// A 0-dimensional tensor of one number, `f32` by default.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::scalar_tensor(2.5)?.item::<f32>()?, 2.5);
    /// assert_eq!(Tensor::scalar_tensor_with(2, DType::I64)?.item::<i64>()?, 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such device.
    #[op(samples = || Ok(vec![sample![2.5], sample![3], sample![true; dtype = DType::Bool]]), derivative = none)]
    pub fn scalar_tensor(s: impl Into<Scalar>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let (dtype, device) = options.or(DType::F32);
        s.check_element("scalar_tensor", dtype)?;
        Tensor::filled("scalar_tensor", Shape::default(), s, dtype, device)
    }

    /// Uniform random integers from `low` (included) to `high` (excluded) with the shape, dtype and device of this
    /// tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([100])?.randint_like(-2, 3)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (-2.0..3.0).contains(x)));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `low` is not less than `high`.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?, 0, 5], sample![spread([2], -1.0, 1.0)?, -3, 9; dtype = DType::I32]]),
        errors = || Ok(vec![error!["an empty range", "3"; sample![spread([2], -1.0, 1.0)?, 3, 3]]]), derivative = none, random)]
    pub fn randint_like(
        &self,
        low: i64,
        high: impl Into<RangeEnd>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let (low, high) = high.after(low.into());
        let (Scalar::I64(low), Scalar::I64(high)) = (low, high) else {
            bail!(Value, "randint_like", "low and high must be integers, got {low} and {high}");
        };
        let (shape, integers) = (self.layout().shape().clone(), Distribution::Integers(low, high));
        random_tensor("randint_like", shape, alike(self, options), integers, random::next_range)
    }

    /// One value, a number or a 0-dimensional tensor, with the shape and dtype of this tensor.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2])?.fill(7)?.to_vec::<i64>()?, [7, 7]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value is a tensor with dimensions, or a number that the dtype cannot represent.
    #[op(in_place_by_hand, samples = fill_samples, errors = fill_errors)]
    pub fn fill<'a>(&self, value: impl Into<Operand<'a>>) -> Result<Tensor> {
        let value = match value {
            Operand::Scalar(value) => {
                value.check_put("fill", self.dtype())?;
                Tensor::scalar(value, self.dtype(), self.device())?
            }
            other => other.resolve(self.dtype(), self.device())?.to_dtype(self.dtype())?,
        };
        let everywhere = Tensor::full_with(self.shape(), true, (crate::DType::Bool, self.device()))?;
        self.masked_fill(&everywhere, &value)
    }
}

fn new_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2], -1.0, 1.0)?, [2, 3]],
        sample![spread([2], -1.0, 1.0)?, []],
        sample![spread([2], -1.0, 1.0)?, [0, 2]; dtype = DType::I64],
    ])
}

fn new_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["too large", "bytes"; sample![spread([2], -1.0, 1.0)?, [isize::MAX, 8]]]])
}

fn fill_samples() -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, 1.5].zero_derivative(),
        sample![x()?, spread([], 1.0, 2.0)?],
        sample![ints(&[1, 2], [2])?, 7],
        sample![spread([0], 1.0, 2.0)?, 1.0],
    ])
}

fn fill_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a vector", "[2]"; sample![normal([2], 1)?, normal([2], 1)?]]])
}
