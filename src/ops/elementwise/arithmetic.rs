//! Further functions of two and three tensors.

use crate::backend::spec::{Ordered, Real, Sym, SymMask, select};
use crate::error::bail;
use crate::ops::elementwise::binary::{Rounding, pair_errors, pairs};
use crate::ops::elementwise::call::{Domain, Elementwise, common_dtype, elementwise, infinity, zero};
use crate::ops::elementwise::unary::unary;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::{elementwise::complex_forms, ops};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};
use std::f64::consts::LN_2;

options! {
    /// The options of [`Tensor::addcmul_with`] and [`Tensor::addcdiv_with`]. A number is taken as the factor.
    ///
    /// ```
    /// use cotangent::{tensor, options::ValueOptions};
    /// let x = tensor!([1.0])?;
    /// assert_eq!(x.addcmul_with(&x, &x, ValueOptions::new().value(-1))?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ValueOptions {
        /// The factor of the product or quotient.
        value: Scalar = Scalar::I64(1),
    }
}

options! {
    /// The options of [`Tensor::rsub_with`]. A number is taken as the factor.
    ///
    /// ```
    /// use cotangent::{tensor, options::RsubOptions};
    /// assert_eq!(tensor!([1.0])?.rsub_with(5.0, RsubOptions::new().alpha(2))?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RsubOptions {
        /// The factor for this tensor.
        alpha: Scalar = Scalar::I64(1),
    }
}

macro_rules! from_number {
    ($($options:ident $field:ident [$($number:ty),+];)+) => {$($(
        impl From<$number> for $options {
            fn from($field: $number) -> $options { $options::new().$field($field) }
        }
    )+)+};
}
from_number! {
    ValueOptions value [f64, i32, i64, Scalar];
    RsubOptions alpha [f64, i32, i64, Scalar];
}

/// The cotangent of one side, or half of it for each where both are equal.
fn shared(g: Sym, a: Sym, b: Sym, mine: SymMask) -> Sym {
    select(a.eq(b), 0.5 * g, select(mine, g, zero()))
}

/// Python's `%`, whose result has the sign of the divisor.
static REMAINDER: Elementwise = Elementwise::new("remainder", Domain::Float, 2, 0, |x, _| {
    let (rest, b) = (x[0].fmod(x[1]), x[1]);
    // A zero also has the sign of the divisor, as in Python and the array API.
    let rest = select(rest.eq(zero()), zero().copysign(b), rest);
    select(rest.ne(zero()) & b.lt(zero()).differs(rest.lt(zero())), rest + b, rest)
})
// The integral quotient, from the exact remainder. An infinite remainder is the divisor, added once.
.with_gradient(|g, x, y, _| {
    let quotient = ((x[0] - y) / x[1]).rint();
    vec![Some(g), Some(-(g * select(y.abs().eq(zero() + f64::INFINITY), zero() - 1.0, quotient)))]
});
static REMAINDER_OF_INTS: Elementwise = Elementwise::new("remainder", Domain::Number, 2, 0, |x, _| {
    let b = x[1];
    let rest = rest_of_ints(x[0], b);
    select(rest.ne(zero()) & b.lt(zero()).differs(rest.lt(zero())), rest + b, rest)
});
static FMOD: Elementwise = Elementwise::new("fmod", Domain::Float, 2, 0, |x, _| x[0].fmod(x[1]));
static FMOD_OF_INTS: Elementwise = Elementwise::new("fmod", Domain::Number, 2, 0, |x, _| rest_of_ints(x[0], x[1]));

/// `nextafter` in half precision, from the digits, the least exponent and the largest number of the dtype: the distance to
/// the next number follows from the exponent, and is halved below a power of 2.
static NEXT_OF_HALF: Elementwise = Elementwise::new("nextafter", Domain::Float, 2, 3, |x, p| {
    let (a, b, digits, least, largest) = (x[0], x[1], p[0], p[1], p[2]);
    let exponent = select(a.eq(zero()), least, a.exponent().maximum(least));
    let up = b.gt(a);
    let towards_zero = up.differs(a.gt(zero())) & a.ne(zero());
    let at_power = a.mantissa().abs().eq(zero() + 0.5) & exponent.gt(least) & towards_zero;
    let distance = (exponent - digits - Sym::from_mask(at_power)).exp2();
    let next = select(up, a + distance, a - distance);
    let next = select(a.abs().eq(infinity()), largest.copysign(a), next);
    select(a.eq(b) | b.ne(b), b, select(a.ne(a), a, next))
});

/// The remainder of integer division truncated towards zero; 0 for a division by 0.
fn rest_of_ints(a: Sym, b: Sym) -> Sym {
    select(b.eq(zero()), zero(), a - a / b * b)
}

/// A factor, unless it would turn integers into floats. It wraps around as products do.
pub(in crate::ops) fn number_for(op: &'static str, number: Scalar, tensors: &[&Tensor]) -> Result<Scalar> {
    let mut dtype = tensors[0].dtype();
    for tensor in &tensors[1..] {
        dtype = common_dtype(op, dtype, tensor.dtype())?;
    }
    if number.promote_with(dtype) != dtype {
        bail!(DType, op, "cannot multiply {dtype} elements by {number}: cast them first");
    }
    Ok(number.wrapped(dtype))
}

/// # Division, remainders and number theory
#[ops]
impl Tensor {
    /// The quotient rounded towards minus infinity, as Python's `//`. Integers stay integers; an integer divided by 0
    /// gives 0. The derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-7, 7])?.floor_divide(&tensor!([2, 2])?)?.to_vec::<i64>()?, [-4, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = || whole_pairs(true), errors = pair_errors, derivative = zero)]
    pub fn floor_divide<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        self.div_with(other, Rounding::Floor)
    }

    /// The remainder of a division, with the sign of the divisor, as Python's `%`. The remainder of an integer divided
    /// by 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-7, 7])?.remainder(&tensor!([3, -3])?)?.to_vec::<i64>()?, [2, -2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or both are bool.
    #[op(in_place, samples = || whole_pairs(false), errors = pair_errors, aliases = ["__mod__"])]
    pub fn remainder<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("remainder", self.dtype(), self.device())?;
        let dtype = common_dtype("remainder", self.dtype(), other.dtype())?;
        if dtype.is_complex() {
            bail!(DType, "remainder", "not defined for {dtype}");
        }
        if dtype.is_float() {
            return REMAINDER.call(&[self, &other], &[]);
        }
        REMAINDER_OF_INTS.call(&[self, &other], &[])
    }

    /// The remainder of a division, with the sign of the dividend, as C's `fmod`. The remainder of an integer divided
    /// by 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-7, 7])?.fmod(&tensor!([3, -3])?)?.to_vec::<i64>()?, [-1, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or both are bool.
    #[op(in_place, samples = || whole_pairs(false), errors = pair_errors)]
    pub fn fmod<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.element("fmod", self.dtype(), self.device())?;
        let dtype = common_dtype("fmod", self.dtype(), other.dtype())?;
        if dtype.is_complex() {
            bail!(DType, "fmod", "not defined for {dtype}");
        }
        if dtype.is_float() {
            return FMOD.call(&[self, &other], &[]);
        }
        FMOD_OF_INTS.call(&[self, &other], &[])
    }

    /// The elementwise maximum. If one element is NaN, the other is returned. Where both are equal, each gets half
    /// of the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, f32::NAN])?.fmax(&tensor!([2.0, 3.0])?)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn fmax<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Any fmax(self, other) |a, b| select((a.ge(b) | b.ne(b)) & !(a.ne(a)), a, b),
            |g, _y| [shared(g, a, b, a.gt(b) | b.ne(b)), shared(g, a, b, !(a.gt(b) | b.ne(b)))])
    }

    /// The elementwise minimum. If one element is NaN, the other is returned. Where both are equal, each gets half
    /// of the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, f32::NAN])?.fmin(&tensor!([2.0, 3.0])?)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn fmin<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Any fmin(self, other) |a, b| select((a.le(b) | b.ne(b)) & !(a.ne(a)), a, b),
            |g, _y| [shared(g, a, b, a.lt(b) | b.ne(b)), shared(g, a, b, !(a.lt(b) | b.ne(b)))])
    }

    /// `log(exp(a) + exp(b))`, computed without overflow.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1000.0])?.logaddexp(&tensor!([-1000.0])?)?.to_vec::<f32>()?, [1000.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(numbers = floats, samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn logaddexp<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.resolve(self.dtype().to_float(), self.device())?;
        if self.dtype().is_complex() || other.dtype().is_complex() {
            return complex_forms::logaddexp(self, &other);
        }
        let other = Operand::from(&*other);
        elementwise!(Float logaddexp(self, other) |a, b| select(a.eq(b), a + LN_2, a.maximum(b) + (-(a - b).abs()).exp().log1p()),
            |g, _y| [g * select(a.eq(b), zero() + 0.5, (a - b).sigmoid()), g * select(a.eq(b), zero() + 0.5, (b - a).sigmoid())])
    }

    /// `log2(2^a + 2^b)`, computed without overflow.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0])?.logaddexp2(&tensor!([3.0])?)?.to_vec::<f32>()?, [4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(numbers = floats, samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn logaddexp2<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float logaddexp2(self, other) |a, b| select(a.eq(b), a + 1.0, a.maximum(b) + (-(a - b).abs()).exp2().log1p() / LN_2),
            |g, _y| [g * select(a.eq(b), zero() + 0.5, ((a - b) * LN_2).sigmoid()), g * select(a.eq(b), zero() + 0.5, ((b - a) * LN_2).sigmoid())])
    }

    /// The magnitude of this tensor with the sign of the other. Signed zeros count. The gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, -2.0])?.copysign(&tensor!([-0.0, 3.0])?)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = signs, errors = pair_errors)]
    pub fn copysign<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float copysign(self, other) |a, b| a.copysign(b))
    }

    /// The next representable value after each element in the direction of the other. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let next = tensor!([1.0])?.nextafter(&tensor!([2.0])?)?;
    /// assert_eq!(next.to_vec::<f32>()?, [1.0 + f32::EPSILON]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or the shapes do not broadcast.
    #[op(in_place, samples = || pairs(-2.0, 2.0), errors = float_pair_errors, derivative = none)]
    pub fn nextafter<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.resolve(self.dtype(), self.device())?;
        let dtype = common_dtype("nextafter", self.dtype(), other.dtype())?;
        if !dtype.is_float() {
            bail!(DType, "nextafter", "not defined for {dtype}: cast to a float with to_dtype first");
        }
        static NEXT: Elementwise = Elementwise::new("nextafter", Domain::Float, 2, 0, |x, _| x[0].nextafter(x[1]));
        let (a, b) = (self.detach(), other.detach());
        let next = match dtype {
            DType::F16 => NEXT_OF_HALF.call(&[&a, &b], &[11.into(), (-13).into(), dtype.largest().into()])?,
            DType::BF16 => NEXT_OF_HALF.call(&[&a, &b], &[8.into(), (-125).into(), dtype.largest().into()])?,
            _ => NEXT.call(&[&a, &b], &[])?,
        };
        Ok(next.record_barrier("nextafter", &[self, &other]))
    }

    /// `self · 2^other`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0])?.ldexp(&tensor!([2])?)?.to_vec::<f32>()?, [12.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn ldexp<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float ldexp(self, other) |a, b| a * b.exp2())
    }

    /// Decomposes each element into a mantissa and an exponent: `x = mantissa · 2^exponent`, with the magnitude of the
    /// mantissa in [1/2, 1). Exponents are `i32` and have no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (mantissa, exponent) = tensor!([12.0, -0.5])?.frexp()?;
    /// assert_eq!(mantissa.to_vec::<f32>()?, [0.75, -0.5]);
    /// assert_eq!(exponent.to_vec::<i32>()?, [4, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats.
    #[op(samples = || unary(0.3, 5.0), errors = not_of_ints, outputs = [mantissa, exponent])]
    pub fn frexp(&self) -> Result<(Tensor, Tensor)> {
        static MANTISSA: Elementwise = Elementwise::new("frexp", Domain::Float, 1, 0, |x, _| x[0].mantissa());
        static EXPONENT: Elementwise = Elementwise::new("frexp", Domain::Float, 1, 0, |x, _| x[0].exponent());
        float_only("frexp", self)?;
        let exponent = EXPONENT.call_as(&[self], &[], self.dtype(), DType::I32)?;
        Ok((MANTISSA.call(&[self], &[])?, exponent))
    }

    /// The Heaviside step function: 0 for negative elements and NaN, 1 for positive elements, and the value of the
    /// other tensor at 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 0.0, 2.0])?.heaviside(&tensor!([0.5])?)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, samples = steps, errors = pair_errors)]
    pub fn heaviside<'a>(&self, values: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Any heaviside(self, values) |a, b| select(a.eq(zero()), b, Sym::from_mask(a.gt(zero()))),
            |g, _y| [g * 0.0, select(a.eq(zero()), g, zero())])
    }

    /// `self · log(other)`, and 0 where `self` is 0, unless `other` is NaN.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 2.0])?.xlogy(&tensor!([0.0, 1.0])?)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = || pairs(0.5, 2.0), errors = pair_errors, aliases = ["special_xlogy"])]
    pub fn xlogy<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float xlogy(self, other) |a, b| select(b.ne(b), b, select(a.eq(zero()), zero(), a * b.ln())),
            |g, _y| [select(a.eq(zero()) & b.le(zero()), zero(), g * b.ln()), g * a / b])
    }

    /// `self · log(1 + other)`, and 0 where `self` is 0, unless `other` is NaN.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 2.0])?.xlog1py(&tensor!([-1.0, 0.0])?)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(numbers = floats, samples = || pairs(0.5, 2.0), errors = pair_errors, aliases = ["special_xlog1py"])]
    pub fn xlog1py<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float xlog1py(self, other) |a, b| select(b.ne(b), b, select(a.eq(zero()), zero(), a * b.log1p())),
            |g, _y| [select(a.eq(zero()) & b.le(zero() - 1.0), zero(), g * b.log1p()), g * a / (b + 1.0)])
    }

    /// Linear interpolation: `self + weight · (end - self)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 2.0])?.lerp(&tensor!([3.0, 6.0])?, 0.5)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = lerp_samples, errors = lerp_errors)]
    pub fn lerp<'a>(&self, end: impl Into<Operand<'a>>, weight: impl Into<Operand<'a>>) -> Result<Tensor> {
        let float = self.dtype().to_float();
        let (end, weight) = (end.resolve(float, self.device())?, weight.resolve(float, self.device())?);
        if [self.dtype(), end.dtype(), weight.dtype()].iter().any(|dtype| dtype.is_complex()) {
            return complex_forms::lerp(self, &end, &weight);
        }
        let (end, weight) = (Operand::from(&*end), Operand::from(&*weight));
        // From the nearer end, so that a weight of 1 gives exactly `end`.
        elementwise!(Float lerp(self, end, weight)
            |a, b, w| select(w.abs().lt(zero() + 0.5), a + w * (b - a), b - (b - a) * (1.0 - w)),
            |g, _y| [g * (1.0 - w), g * w, g * (b - a)])
    }

    /// `self + value · tensor1 · tensor2`; `value` is 1 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1.0, 2.0])?, tensor!([3.0])?);
    /// assert_eq!(tensor!([10.0, 10.0])?.addcmul_with(&a, &b, 2)?.to_vec::<f32>()?, [16.0, 22.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or integers have a float as factor.
    #[op(in_place, autocast_cuda = widest, samples = three, errors = three_errors)]
    pub fn addcmul(&self, tensor1: &Tensor, tensor2: &Tensor, options: impl Into<ValueOptions>) -> Result<Tensor> {
        let value = number_for("addcmul", options.value, &[self, tensor1, tensor2])?;
        static OP: Elementwise = Elementwise::new("addcmul", Domain::Number, 3, 1, |x, p| x[0] + p[0] * x[1] * x[2]);
        OP.call(&[self, tensor1, tensor2], &[value])
    }

    /// `self + value · tensor1 / tensor2`; `value` is 1 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1.0, 2.0])?, tensor!([4.0])?);
    /// assert_eq!(tensor!([10.0, 10.0])?.addcdiv_with(&a, &b, 2)?.to_vec::<f32>()?, [10.5, 11.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, autocast_cuda = widest, samples = three, errors = three_errors)]
    pub fn addcdiv(&self, tensor1: &Tensor, tensor2: &Tensor, options: impl Into<ValueOptions>) -> Result<Tensor> {
        static OP: Elementwise = Elementwise::new("addcdiv", Domain::Float, 3, 1, |x, p| x[0] + p[0] * (x[1] / x[2]));
        OP.call(&[self, tensor1, tensor2], &[options.value])
    }

    /// The power, computed in `f64` for every input dtype.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2, 3])?.float_power(-1)?.to_vec::<f64>()?, [0.5, 1.0 / 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast.
    #[op(in_place, numbers = floats, samples = || pairs(0.4, 2.0), errors = shape_errors, in_f64)]
    pub fn float_power<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
        let wide = |dtype: DType| if dtype.is_complex() { DType::C128 } else { DType::F64 };
        let exponent = match exponent {
            Operand::Scalar(number) => Tensor::scalar(number, wide(number.promote_with(DType::F64)), self.device())?,
            other => {
                let other = other.resolve(self.dtype(), self.device())?;
                other.to_dtype(wide(other.dtype()))?
            }
        };
        self.to_dtype(wide(self.dtype()))?.pow(&exponent)
    }

    /// `other - alpha · self`; `alpha` is 1 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3, 4])?.rsub(1)?.to_vec::<i64>()?, [-2, -3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or both are bool.
    #[op(numbers = wrapped, samples = rsub_samples, errors = pair_errors, aliases = ["__rsub__"])]
    pub fn rsub<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<RsubOptions>) -> Result<Tensor> {
        let other = other.resolve(self.dtype(), self.device())?;
        let alpha = number_for("rsub", options.alpha, &[self, &other])?;
        static OP: Elementwise = Elementwise::new("rsub", Domain::Number, 2, 1, |x, p| x[1] - p[0] * x[0]);
        OP.call(&[self, &other], &[alpha])
    }
}

/// Pairs whose quotients are not integers; with `flat`, the derivative is 0.
fn whole_pairs(flat: bool) -> Result<Vec<Sample>> {
    let pair = |a: &[usize], b: &[usize]| Ok(sample![spread(a, -3.1, 3.3)?, spread(b, 0.7, 1.1)?]);
    let mut all = vec![pair(&[2, 3], &[2, 3])?, pair(&[2, 3], &[3])?, pair(&[], &[2])?, pair(&[0, 2], &[2])?];
    all.push(sample![spread([5], -3.0, 3.2)?, -0.77]);
    if flat {
        all.push(sample![ints(&[7, -7, 3], [3])?, ints(&[2, 2, -2], [3])?]);
    }
    Ok(all)
}

fn signs() -> Result<Vec<Sample>> {
    let sample = |a: &[usize], b: &[usize]| Ok(sample![spread(a, 0.5, 2.0)?, spread(b, -2.0, 2.1)?]);
    Ok(vec![sample(&[2, 3], &[2, 3])?, sample(&[3], &[2, 1])?, sample(&[], &[])?, sample(&[0, 3], &[3])?])
}

/// Samples of the step function at integers, which get no gradient: it jumps where its values matter.
fn steps() -> Result<Vec<Sample>> {
    let x = ints(&[-1, 0, 2, 0], [2, 2])?;
    Ok(vec![
        sample![&x, spread([2], 0.2, 0.8)?],
        sample![x.neg()?, spread([2, 2], 0.2, 0.8)?],
        sample![ints(&[-1, 0, 3], [3])?, ints(&[7], [1])?],
    ])
}

fn lerp_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 1.0);
    Ok(vec![
        sample![x(&[2, 3], -2.0)?, x(&[2, 3], 1.0)?, x(&[2, 3], -0.1)?],
        sample![x(&[2, 3], -2.0)?, x(&[3], 1.0)?, 0.3],
        sample![x(&[], -2.0)?, x(&[2], 1.0)?, x(&[2, 1], 0.2)?],
        sample![x(&[0, 2], -2.0)?, x(&[2], 1.0)?, 0.7],
    ])
}

fn lerp_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![&x, normal([4], 2)?, 0.5]]])
}

fn three() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 1.0);
    Ok(vec![
        sample![x(&[2, 3], -2.0)?, x(&[2, 3], 1.0)?, x(&[2, 3], 0.5)?],
        sample![x(&[3], -2.0)?, x(&[2, 1], 1.0)?, x(&[], 0.5)?; value = 1.7],
        sample![x(&[0, 3], -2.0)?, x(&[3], 1.0)?, x(&[3], 0.5)?],
    ])
}

fn three_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![&x, &x, normal([4], 2)?]]])
}

fn rsub_samples() -> Result<Vec<Sample>> {
    let mut all = pairs(-2.0, 2.0)?;
    // The difference of a tensor and itself is always 0.
    all.retain(Sample::is_of_two);
    all.push(sample![spread([2, 3], -2.0, 2.0)?, spread([3], -2.0, 2.0)?; alpha = 0.7]);
    all.push(sample![ints(&[1, 2], [2])?, 5; alpha = 3]);
    Ok(all)
}

fn shape_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![normal([2, 3], 1)?, normal([4], 2)?]]])
}

fn float_pair_errors() -> Result<Vec<ErrorCase>> {
    let mut all = shape_errors()?;
    let x = ints(&[1, 2], [2])?;
    all.push(error!["integers", "i64"; sample![&x, &x]]);
    Ok(all)
}

fn not_of_ints() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?]]])
}
