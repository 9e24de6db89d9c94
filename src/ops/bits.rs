//! Bitwise operations, on integers and bools.

use super::elementwise::elementwise;
use super::ops;
use super::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::{DType, Operand, Result, Tensor};

/// # Bits
#[ops]
impl Tensor {
    /// The bits that are set in both; of bools, whether both are true. `&a & &b` is the same.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([6, -1])?.bitwise_and(3)?.to_vec::<i64>()?, [2, 3]);
    /// let x = tensor!([1, 2, 3])?;
    /// assert_eq!((x.gt(1)? & x.lt(3)?).to_vec::<bool>()?, [false, true, false]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are floats, the shapes do not broadcast or the dtypes have no common type.
    #[doc(alias = "logical_and")]
    #[op(samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__rand__", "__and__"])]
    pub fn bitwise_and<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_and(self, other) |a, b| a.bitwise_and(b))
    }

    /// The bits that are set in one or both; of bools, whether one is true. `&a | &b` is the same.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([6, -1])?.bitwise_or(3)?.to_vec::<i64>()?, [7, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are floats, the shapes do not broadcast or the dtypes have no common type.
    #[doc(alias = "logical_or")]
    #[op(samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__ror__", "__or__"])]
    pub fn bitwise_or<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_or(self, other) |a, b| a.bitwise_or(b))
    }

    /// The bits that are set in one and not in the other; of bools, whether they differ. `&a ^ &b` is the same.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([6, -1])?.bitwise_xor(3)?.to_vec::<i64>()?, [5, -4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are floats, the shapes do not broadcast or the dtypes have no common type.
    #[doc(alias = "logical_xor")]
    #[op(samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__rxor__", "__xor__"])]
    pub fn bitwise_xor<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_xor(self, other) |a, b| a.bitwise_xor(b))
    }

    /// Every bit reversed; of bools, their opposites. `!&a` is the same.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([6, -1])?.bitwise_not()?.to_vec::<i64>()?, [-7, 0]);
    /// assert_eq!((!tensor!([true, false])?).to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are floats.
    #[doc(alias = "logical_not")]
    #[doc(alias = "invert")]
    #[op(samples = not_samples, errors = not_errors, derivative = none)]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            // The bits of a bool other than the last are not its own.
            return elementwise!(Bits bitwise_not(self) |a| a.bitwise_xor(super::elementwise::zero() + 1.0));
        }
        elementwise!(Bits bitwise_not(self) |a| a.bitwise_not())
    }
}

fn bit_samples() -> Result<Vec<Sample>> {
    let (a, b) = (ints(&[1, -2, 300, 4], [4])?, ints(&[1, 3, -7, 12], [4])?);
    Ok(vec![
        sample![&a, &b],
        sample![a.reshape([2, 2])?, ints(&[5, 6], [2])?],
        sample![&a, 6],
        sample![ints(&[3], [])?, &b],
        sample![a.gt(1)?, b.gt(1)?],
    ])
}

fn not_samples() -> Result<Vec<Sample>> {
    let x = ints(&[1, -2, 300, 0], [2, 2])?;
    Ok(vec![sample![&x], sample![x.gt(1)?]])
}

fn bit_errors() -> Result<Vec<ErrorCase>> {
    let x = ints(&[1, 2, 3], [3])?;
    Ok(vec![
        error!["floats", "f64"; sample![normal([3], 1)?, &x]],
        error!["a float", "f32"; sample![&x, 1.5]],
        error!["shapes that do not broadcast", "[3]", "[2]"; sample![&x, ints(&[1, 2], [2])?]],
    ])
}

fn not_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["floats", "f64"; sample![normal([3], 1)?]]])
}
