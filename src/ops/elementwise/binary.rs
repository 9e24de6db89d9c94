//! Arithmetic on two tensors that broadcast.

use crate::backend::spec::{Ordered, Real, select};
use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::elementwise::arithmetic::number_for;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};

choices! {
    /// How the quotients of [`Tensor::div`] are rounded.
    ///
    /// ```
    /// use cotangent::{tensor, options::Rounding};
    /// let x = tensor!([-3.0, 3.0])?;
    /// assert_eq!(x.div_with(2.0, Rounding::Trunc)?.to_vec::<f32>()?, [-1.0, 1.0]);
    /// assert_eq!(x.div_with(2.0, Rounding::Floor)?.to_vec::<f32>()?, [-2.0, 1.0]);
    /// assert_eq!(Rounding::Floor.name(), "floor");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum Rounding {
        /// No rounding.
        #[default]
        None = "none",
        /// Towards zero.
        Trunc = "trunc",
        /// Down, as Python's `//` does.
        Floor = "floor",
    }
}

options! {
    /// The options of [`Tensor::div_with`]. A [`Rounding`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::{DivOptions, Rounding}};
    /// let options = DivOptions::new().rounding_mode(Rounding::Trunc);
    /// assert_eq!(tensor!([-3, 3])?.div_with(2, options)?.to_vec::<i64>()?, [-1, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct DivOptions {
        /// How quotients are rounded. Rounded quotients of integers are integers.
        rounding_mode: Rounding = Rounding::None,
    }
}

impl From<Rounding> for DivOptions {
    fn from(rounding_mode: Rounding) -> DivOptions {
        DivOptions::new().rounding_mode(rounding_mode)
    }
}

options! {
    /// The options of [`Tensor::add_with`] and [`Tensor::sub_with`]. A number is taken as the factor.
    ///
    /// ```
    /// use cotangent::{tensor, options::AddOptions};
    /// assert_eq!(tensor!([1.0])?.add_with(3.0, AddOptions::new().alpha(2))?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AddOptions {
        /// The factor for the other operand.
        alpha: Scalar = Scalar::I64(1),
    }
}

impl<T: Into<Scalar>> From<T> for AddOptions {
    fn from(alpha: T) -> AddOptions {
        AddOptions::new().alpha(alpha)
    }
}

/// The sum, also used by the engine and the in-place operations.
pub(crate) static ADD: Elementwise = Elementwise::new("add", Domain::Any, 2, 0, |x, _| x[0] + x[1]);
pub(crate) static SUB: Elementwise = Elementwise::new("sub", Domain::Number, 2, 0, |x, _| x[0] - x[1]);
pub(crate) static MUL: Elementwise = Elementwise::new("mul", Domain::Any, 2, 0, |x, _| x[0] * x[1]);
pub(crate) static DIV: Elementwise = Elementwise::new("div", Domain::Float, 2, 0, |x, _| x[0] / x[1])
    .with_gradient(|g, x, y, _| vec![Some(g / x[1]), Some(-(g / x[1] * y))]);

/// An operation on a tensor and its other operand.
#[track_caller]
fn call(op: &'static Elementwise, a: &Tensor, b: &Operand<'_>) -> Result<Tensor> {
    match b {
        Operand::Borrowed(b) => op.call(&[a, b], &[]),
        b => op.call(&[a, &*b.resolve(op.number_dtype(a.dtype()), a.device())?], &[]),
    }
}

/// # Arithmetic
#[ops]
impl Tensor {
    /// The sum of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0], [2.0]])?;
    /// assert_eq!(x.add(&tensor!([10.0, 20.0])?)?.to_vec::<f32>()?, [11.0, 21.0, 12.0, 22.0]);
    /// assert_eq!((&x + 1).to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[doc(alias = "__add__")]
    #[op(in_place_by_hand, numbers = wrapped, samples = || pairs(-2.0, 2.0), errors = pair_errors, aliases = ["__radd__", "__add__"])]
    pub fn add<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<AddOptions>) -> Result<Tensor> {
        if options.alpha == Scalar::I64(1) {
            return call(&ADD, self, &other);
        }
        static SCALED: Elementwise = Elementwise::new("add", Domain::Number, 2, 1, |x, p| x[0] + p[0] * x[1]);
        let other = other.resolve(self.dtype(), self.device())?;
        SCALED.call(&[self, &other], &[number_for("add", options.alpha, &[self, &other])?])
    }

    /// The difference of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3, 4])?.sub(1)?.to_vec::<i64>()?, [2, 3]);
    /// assert_eq!((1 - tensor!([3, 4])?).to_vec::<i64>()?, [-2, -3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, or both are bool.
    #[op(in_place_by_hand, numbers = wrapped, samples = || pairs_with_itself(-2.0, 2.0, true), errors = pair_errors, aliases = ["subtract"])]
    #[doc(alias = "subtract")]
    pub fn sub<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<AddOptions>) -> Result<Tensor> {
        if options.alpha == Scalar::I64(1) {
            return call(&SUB, self, &other);
        }
        static SCALED: Elementwise = Elementwise::new("sub", Domain::Number, 2, 1, |x, p| x[0] - p[0] * x[1]);
        let other = other.resolve(self.dtype(), self.device())?;
        SCALED.call(&[self, &other], &[number_for("sub", options.alpha, &[self, &other])?])
    }

    /// The elementwise product of two tensors, or of a tensor and a number.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0, 4.0])?.mul(0.5)?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place_by_hand, numbers = wrapped, samples = || pairs(-2.0, 2.0), errors = pair_errors, aliases = ["__rmul__", "multiply"])]
    #[doc(alias = "multiply")]
    pub fn mul<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        call(&MUL, self, &other)
    }

    /// The elementwise quotient of two tensors, or of a tensor and a number. Integers give floats, unless a rounding
    /// mode is given.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::Rounding};
    /// assert_eq!(tensor!([3, 4])?.div(2)?.to_vec::<f32>()?, [1.5, 2.0]);
    /// assert_eq!(tensor!([3, -3])?.div_with(2, Rounding::Floor)?.to_vec::<i64>()?, [1, -2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[doc(alias = "true_divide")]
    #[doc(alias = "floor_divide")]
    #[op(in_place_by_hand, numbers = floats, samples = div_samples, errors = pair_errors, aliases = ["true_divide", "__truediv__", "divide"])]
    #[doc(alias = "divide")]
    pub fn div<'a>(&self, other: impl Into<Operand<'a>>, options: impl Into<DivOptions>) -> Result<Tensor> {
        match options.rounding_mode {
            Rounding::None => call(&DIV, self, &other),
            rounding => divide_rounded(self, &*other.element("div", self.dtype(), self.device())?, rounding),
        }
    }

    /// Each element raised to a power.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0, 4.0])?.pow(2.0)?.to_vec::<f32>()?, [9.0, 16.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, the dtypes have no common type, both are bool, or an integer tensor is raised to a
    /// negative integer.
    #[doc(alias = "__pow__")]
    #[op(in_place, autocast_cuda = f32, samples = || pairs(0.4, 2.0), errors = pow_errors)]
    pub fn pow<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
        if let Operand::Scalar(Scalar::I64(number @ ..0)) = exponent
            && !self.dtype().is_differentiable()
        {
            bail!(Value, "pow", "cannot raise integers to {number}: cast to a float with to_dtype first");
        }
        if let (true, Operand::Scalar(number)) = (self.dtype().is_complex(), &exponent)
            && let Some(power) = known_power(self, *number)?
        {
            return Ok(power);
        }
        elementwise!(Number pow(self, exponent) |a, b| a.pow(b))
    }

    /// The angle of the point `(other, self)`, between -π and π.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let angle = tensor!([0.0, 1.0])?.atan2(&tensor!([-1.0, 0.0])?)?;
    /// assert_eq!(angle.to_vec::<f32>()?, [std::f32::consts::PI, std::f32::consts::FRAC_PI_2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, autocast_cuda = widest, samples = || pairs_with_itself(0.5, 2.0, true), errors = pair_errors, aliases = ["arctan2"])]
    #[doc(alias = "arctan2")]
    pub fn atan2<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float atan2(self, other) |a, b| a.atan2(b))
    }

    /// The hypotenuse `√(a² + b²)`, computed without overflow.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0, 1e30])?.hypot(&tensor!([4.0, 0.0])?)?.to_vec::<f32>()?, [5.0, 1e30]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = || pairs(0.5, 2.0), errors = pair_errors)]
    pub fn hypot<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Float hypot(self, other) |a, b| a.hypot(b))
    }

    /// The elementwise maximum. NaN propagates. Where both are equal, each gets half of the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 4.0])?.maximum(0.0)?.to_vec::<f32>()?, [0.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn maximum<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Any maximum(self, other) |a, b| a.maximum(b))
    }

    /// The elementwise minimum. NaN propagates. Where both are equal, each gets half of the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 4.0])?.minimum(0.0)?.to_vec::<f32>()?, [-1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(samples = || pairs(-2.0, 2.0), errors = pair_errors)]
    pub fn minimum<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        elementwise!(Any minimum(self, other) |a, b| a.minimum(b))
    }
}

/// Powers of complex numbers that are products, quotients or roots: these keep digits and infinities that the exponential of
/// a logarithm loses.
#[track_caller]
fn known_power(x: &Tensor, exponent: Scalar) -> Result<Option<Tensor>> {
    let exponent = match exponent {
        Scalar::F64(number) => number,
        Scalar::I64(number) if number.abs() <= 3 => number as f64,
        _ => return Ok(None),
    };
    let power = if exponent == 0.0 {
        x.fill(1.0)?
    } else if exponent == 1.0 {
        x.clone()
    } else if exponent == 2.0 {
        x.square()?
    } else if exponent == 3.0 {
        x.square()?.mul(x)?
    } else if exponent == 0.5 {
        x.sqrt()?
    } else if exponent == -0.5 {
        x.rsqrt()?
    } else if exponent == -1.0 {
        x.reciprocal()?
    } else if exponent == -2.0 {
        x.square()?.reciprocal()?
    } else {
        return Ok(None);
    };
    Ok(Some(power))
}

/// Rounded quotients, whose derivative is zero. Integers give integers.
#[track_caller]
fn divide_rounded(a: &Tensor, b: &Tensor, rounding: Rounding) -> Result<Tensor> {
    static TRUNC: Elementwise = Elementwise::new("div", Domain::Number, 2, 0, |x, _| (x[0] / x[1]).trunc());
    // Python's `//`: (a − remainder) / b, so that the quotient is not rounded up to an integer first.
    static FLOOR: Elementwise = Elementwise::new("div", Domain::Number, 2, 0, |x, _| {
        let (a, b) = (x[0], x[1]);
        let rest = a.fmod(b);
        let signs_differ = rest.ne(zero()) & b.lt(zero()).differs(rest.lt(zero()));
        let quotient = select(signs_differ, (a - rest) / b - 1.0, (a - rest) / b);
        let down = quotient.floor();
        let whole = select((quotient - down).gt(zero() + 0.5), down + 1.0, down);
        // A zero gets the sign of the quotient.
        let whole = select(whole.eq(zero()), zero().copysign(a / b), whole);
        select(b.eq(zero()), a / b, whole)
    });
    // The quotient of integers is truncated; the floor is one less where there is a remainder and the signs differ.
    static TRUNC_INTS: Elementwise = Elementwise::new("div", Domain::Number, 2, 0, |x, _| x[0] / x[1]);
    static FLOOR_INTS: Elementwise = Elementwise::new("div", Domain::Number, 2, 0, |x, _| {
        let (a, b, quotient) = (x[0], x[1], x[0] / x[1]);
        let whole = (quotient * b).eq(a) | b.eq(zero());
        select(whole | !(a.lt(zero()).differs(b.lt(zero()))), quotient, quotient - 1.0)
    });
    let (compute, _) = TRUNC.dtypes(&[a, b])?;
    if compute.is_complex() {
        bail!(DType, "div", "rounding_mode {rounding} is not supported for {compute}");
    }
    let op = match (compute.is_float(), rounding) {
        (true, Rounding::Floor) => &FLOOR,
        (true, _) => &TRUNC,
        (false, Rounding::Floor) => &FLOOR_INTS,
        (false, _) => &TRUNC_INTS,
    };
    op.call(&[a, b], &[])
}

/// Pairs of shapes that broadcast in every way.
const PAIRS: [(&[usize], &[usize]); 10] = [
    (&[2, 3], &[2, 3]),
    (&[2, 3], &[1, 3]),
    (&[1, 3], &[2, 3]),
    (&[4, 1], &[1, 3]),
    (&[3], &[4, 3]),
    (&[2, 1, 3], &[4, 1]),
    (&[], &[2, 3]),
    (&[2], &[]),
    (&[], &[]),
    (&[0, 3], &[1, 3]),
];

/// Samples of a function of two tensors, on values between `low` and `high`.
pub(in crate::ops) fn pairs(low: f64, high: f64) -> Result<Vec<Sample>> {
    pairs_with_itself(low, high, false)
}

/// As [`pairs`]; with `flat`, the function is constant if both tensors are the same.
fn pairs_with_itself(low: f64, high: f64, flat: bool) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for (a, b) in PAIRS {
        // The ranges are shifted so that no two elements tie.
        all.push(sample![spread(a, low, high)?, spread(b, low + 0.013, high + 0.017)?]);
    }
    let x = spread([2, 3], low, high)?;
    let itself = sample![&x, &x];
    all.push(if flat { itself.zero_derivative() } else { itself });
    all.push(sample![spread([2, 3], low, high)?, 0.4 * low + 0.6 * high]);
    Ok(all)
}

pub(in crate::ops) fn pair_errors() -> Result<Vec<ErrorCase>> {
    let (u, i) = (Tensor::zeros_with([2], DType::U64)?, Tensor::zeros_with([2], DType::I8)?);
    Ok(vec![
        error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![normal([2, 3], 1)?, normal([4], 2)?]],
        error!["u64 with a signed integer", "u64", "i8"; sample![u, i]],
    ])
}

fn pow_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    all.push(error!["a negative power of integers", "-1"; sample![Tensor::from_slice(&[2_i64], [1])?, -1]]);
    Ok(all)
}

fn div_samples() -> Result<Vec<Sample>> {
    let mut all = pairs_with_itself(0.5, 2.0, true)?;
    for mode in ["trunc", "floor"] {
        let (a, b) = (spread([2, 3], -3.0, 3.0)?, spread([3], 0.4, 0.9)?);
        all.push(sample![a, b; rounding_mode = mode].zero_derivative());
    }
    Ok(all)
}
