//! Operations on integers: bits, shifts and divisors.

use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::tensor::Operand;
use crate::{DType, Result, Tensor};

/// Refuses tensors that are not integers.
fn whole_numbers(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    match [a, b].into_iter().find(|x| !x.dtype().is_int()) {
        Some(x) => bail!(DType, op, "inputs must be integers, got {}", x.dtype()),
        None => Ok(()),
    }
}

/// # Bitwise operations
#[ops]
impl Tensor {
    /// The bitwise AND of integers; the logical AND of bools. `&a & &b` is the same.
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
    #[op(in_place, numbers = wrapped, samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__rand__", "__and__"])]
    pub fn bitwise_and<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_and(self, other) |a, b| a.bitwise_and(b))
    }

    /// The bitwise OR of integers; the logical OR of bools. `&a | &b` is the same.
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
    #[op(in_place, numbers = wrapped, samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__ror__", "__or__"])]
    pub fn bitwise_or<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_or(self, other) |a, b| a.bitwise_or(b))
    }

    /// The bitwise XOR of integers; the logical XOR of bools. `&a ^ &b` is the same.
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
    #[op(in_place, numbers = wrapped, samples = bit_samples, errors = bit_errors, derivative = none, aliases = ["__rxor__", "__xor__"])]
    pub fn bitwise_xor<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Bits bitwise_xor(self, other) |a, b| a.bitwise_xor(b))
    }

    /// The bitwise NOT of integers; the logical NOT of bools. `!&a` is the same.
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
    #[op(in_place, samples = not_samples, errors = not_errors, derivative = none)]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            // A bool has only one valid bit.
            return elementwise!(Bits bitwise_not(self) |a| a.bitwise_xor(crate::ops::elementwise::call::zero() + 1.0));
        }
        elementwise!(Bits bitwise_not(self) |a| a.bitwise_not())
    }

    /// The greatest common divisor. It is never negative; `gcd(0, 0)` is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([12, -8])?.gcd(&tensor!([18, 4])?)?.to_vec::<i64>()?, [6, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not integers, or the shapes do not broadcast.
    #[op(in_place, samples = whole_numbers_samples, errors = whole_numbers_errors, derivative = none)]
    pub fn gcd<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("gcd", self.dtype(), self.device())?;
        whole_numbers("gcd", self, &other)?;
        static GCD: Elementwise = Elementwise::new("gcd", Domain::Bits, 2, 0, |x, _| x[0].gcd(x[1]));
        GCD.call(&[self, &other], &[])
    }

    /// The least common multiple. It is never negative; `lcm(0, x)` is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([4, -8])?.lcm(&tensor!([6, 0])?)?.to_vec::<i64>()?, [12, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not integers, or the shapes do not broadcast.
    #[op(in_place, samples = whole_numbers_samples, errors = whole_numbers_errors, derivative = none)]
    pub fn lcm<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("lcm", self.dtype(), self.device())?;
        whole_numbers("lcm", self, &other)?;
        static LCM: Elementwise =
            Elementwise::new("lcm", Domain::Bits, 2, 0, |x, _| (x[0] / x[0].gcd(x[1]) * x[1]).abs());
        LCM.call(&[self, &other], &[])
    }

    /// Shifts the bits to the left and fills with zeros. Shifting by a negative number, or by the bit width or more,
    /// gives 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, 3])?.bitwise_left_shift(&tensor!([4, 1])?)?.to_vec::<i64>()?, [16, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not integers, or the shapes do not broadcast.
    #[op(in_place, samples = shift_samples, errors = whole_numbers_errors, derivative = none, aliases = ["left_shift"])]
    #[doc(alias = "left_shift")]
    pub fn bitwise_left_shift<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("bitwise_left_shift", self.dtype(), self.device())?;
        whole_numbers("bitwise_left_shift", self, &other)?;
        static OP: Elementwise =
            Elementwise::new("bitwise_left_shift", Domain::Bits, 2, 0, |x, _| x[0].shift_left(x[1]));
        OP.call(&[self, &other], &[])
    }

    /// Shifts the bits to the right and fills with the sign bit.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([16, -8])?.bitwise_right_shift(&tensor!([4, 1])?)?.to_vec::<i64>()?, [1, -4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not integers, or the shapes do not broadcast.
    #[op(in_place, samples = shift_samples, errors = whole_numbers_errors, derivative = none, aliases = ["right_shift"])]
    #[doc(alias = "right_shift")]
    pub fn bitwise_right_shift<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("bitwise_right_shift", self.dtype(), self.device())?;
        whole_numbers("bitwise_right_shift", self, &other)?;
        static OP: Elementwise =
            Elementwise::new("bitwise_right_shift", Domain::Bits, 2, 0, |x, _| x[0].shift_right(x[1]));
        OP.call(&[self, &other], &[])
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

fn whole_numbers_samples() -> Result<Vec<Sample>> {
    let (a, b) = (ints(&[12, -8, 0, 7], [4])?, ints(&[18, 4, 0, -21], [4])?);
    Ok(vec![
        sample![&a, &b],
        sample![a.reshape([2, 2])?, ints(&[6, 9], [2])?],
        sample![&a, 6],
        sample![ints(&[4], [])?, &b],
    ])
}

fn shift_samples() -> Result<Vec<Sample>> {
    let (a, b) = (ints(&[12, -8, 0, 7], [4])?, ints(&[1, 2, 70, -1], [4])?);
    Ok(vec![sample![&a, &b], sample![a.reshape([2, 2])?, ints(&[3, 0], [2])?], sample![&a, 2]])
}

fn whole_numbers_errors() -> Result<Vec<ErrorCase>> {
    let x = ints(&[1, 2, 3], [3])?;
    Ok(vec![
        error!["floats", "f64"; sample![normal([3], 1)?, &x]],
        error!["bools", "bool"; sample![&x, x.gt(1)?]],
        error!["shapes that do not broadcast", "[3]", "[2]"; sample![&x, ints(&[1, 2], [2])?]],
    ])
}
