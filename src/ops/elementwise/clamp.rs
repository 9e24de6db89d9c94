//! Clamping.

use crate::backend::spec::{Ordered, Sym, select};
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};
use std::borrow::Cow;

/// A bound of [`Tensor::clamp`]: a number, a tensor, or `None` for no bound.
///
/// ```
/// use cotangent::tensor;
/// let x = tensor!([-2.0, 0.5, 2.0])?;
/// assert_eq!(x.clamp(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
/// assert_eq!(x.clamp(None, 1.0)?.to_vec::<f32>()?, [-2.0, 0.5, 1.0]);
/// assert_eq!(x.clamp(&tensor!([0.0, 1.0, 0.0])?, None)?.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bound<'a>(Option<Operand<'a>>);

macro_rules! bounds {
    ($($number:ty),+) => {$(
        impl From<$number> for Bound<'_> {
            fn from(number: $number) -> Self { Bound(Some(number.into())) }
        }
    )+};
}
bounds!(f64, f32, i64, i32, Scalar);

impl<'a> From<&'a Tensor> for Bound<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Bound(Some(tensor.into()))
    }
}

impl From<Option<f64>> for Bound<'_> {
    fn from(number: Option<f64>) -> Self {
        Bound(number.map(Operand::from))
    }
}

impl From<Bound<'_>> for crate::ops::Arg {
    fn from(bound: Bound<'_>) -> crate::ops::Arg {
        bound.0.into()
    }
}

impl<'a> crate::ops::FromArg<'a> for Bound<'a> {
    const KIND: crate::ops::ArgKind = crate::ops::ArgKind::Operand;
    const DEFAULT: Option<fn() -> crate::ops::Arg> = Some(|| crate::ops::Arg::None);

    fn from_arg(arg: &'a crate::ops::Arg) -> Option<Self> {
        Option::<Operand<'a>>::from_arg(arg).map(Bound)
    }
}

static AT_LEAST: Elementwise = Elementwise::new("clamp", Domain::Number, 2, 0, |x, _| x[0].maximum(x[1]));
static AT_MOST: Elementwise = Elementwise::new("clamp", Domain::Number, 2, 0, |x, _| x[0].minimum(x[1]));
/// If `min` exceeds `max`, the result is `max`. An element equal to one bound shares the gradient with it; one equal to both
/// gets all of it. Both as in PyTorch.
static BETWEEN: Elementwise = Elementwise::new("clamp", Domain::Number, 3, 0, |x, _| x[0].maximum(x[1]).minimum(x[2]))
    .with_gradient(|g, x, _, _| {
        let (x, min, max) = (x[0], x[1], x[2]);
        let (ordered, swapped, half) = (min.lt(max), max.lt(min), 0.5 * g);
        let (at_min, at_max) = (x.eq(min) & ordered, x.eq(max) & ordered);
        vec![
            Some(select(x.lt(min) | x.gt(max), zero(), select(at_min | at_max, half, g))),
            Some(select(x.lt(min) & !swapped, g, select(at_min, half, zero()))),
            Some(select(x.gt(max) | swapped, g, select(at_max, half, zero()))),
        ]
    });

/// # Clamping
#[ops]
impl Tensor {
    /// Limits each element to the range from `min` to `max`, which are numbers or tensors; `None` means no limit. The
    /// gradient passes where the element is strictly inside of bounds that are numbers, and is 0 outside. An element
    /// equal to a bound that is a tensor shares the gradient with it evenly. A NaN bound gives NaN.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 0.5, 2.0])?.clamp(0.0, 1.0)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// assert_eq!(tensor!([-1, 5])?.clamp(None, 3)?.to_vec::<i64>()?, [-1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If both bounds are `None`, the elements and a number are bools, or a tensor does not broadcast.
    #[op(in_place, samples = clamp_samples, errors = clamp_errors, aliases = ["clip"])]
    #[doc(alias = "clip")]
    pub fn clamp<'a>(&self, min: impl Into<Bound<'a>>, max: impl Into<Bound<'a>>) -> Result<Tensor> {
        use Operand::Scalar as Number;
        let number = |bound: &Option<Operand<'_>>| match bound {
            Some(Number(number)) => number.promote_with(self.dtype()) == self.dtype(),
            _ => true,
        };
        let bound = |bound: Option<Operand<'a>>, of: fn(Scalar, DType) -> Scalar| match bound {
            // A float bound turns integers into floats.
            Some(Number(number)) if !matches!(number, Scalar::F64(_)) => Some(Number(of(number, self.dtype()))),
            other => other,
        };
        let tensor = |bound: &Operand<'_>| bound.element("clamp", self.dtype(), self.device()).map(Cow::into_owned);
        // For bools the minimum is AND, the maximum OR.
        let bools = |bound: &Option<Operand<'_>>| match bound {
            Some(Number(_)) => false,
            Some(Operand::Borrowed(x)) => x.dtype() == DType::Bool,
            Some(Operand::Owned(x)) => x.dtype() == DType::Bool,
            None => true,
        };
        if self.dtype() == DType::Bool && bools(&min.0) && bools(&max.0) && (min.0.is_some() || max.0.is_some()) {
            let least = min.0.map_or_else(|| Ok(self.clone()), |min| self.logical_or(min))?;
            return max.0.map_or_else(|| Ok(least.clone()), |max| least.logical_and(max));
        }
        let is_nan =
            |bound: &Option<Operand<'_>>| matches!(bound, Some(Number(Scalar::F64(number))) if number.is_nan());
        if self.dtype().is_float() && (is_nan(&min.0) || is_nan(&max.0)) {
            // A NaN bound gives NaN.
            return self.fill(f64::NAN);
        }
        match (bound(min.0, Scalar::lower_bound_in), bound(max.0, Scalar::upper_bound_in)) {
            (None, None) => bail!(Value, "clamp", "at least one of min and max must be given"),
            (Some(Number(min)), None) if number(&Some(Number(min))) => {
                elementwise!(Number clamp(self; min) |x; min| select(x.lt(min), min, x), |g, _y| [select(x.gt(min), g, zero())])
            }
            (None, Some(Number(max))) if number(&Some(Number(max))) => {
                elementwise!(Number clamp(self; max) |x; max| select(x.gt(max), max, x), |g, _y| [select(x.lt(max), g, zero())])
            }
            (Some(Number(min)), Some(Number(max))) if number(&Some(Number(min))) && number(&Some(Number(max))) => {
                elementwise!(Number clamp(self; min, max)
                    // If `min` exceeds `max`, the result is `max`, as in PyTorch.
                    |x; min, max| min_of(select(x.lt(min), min, x), max),
                    |g, _y| [select(x.gt(min) & x.lt(max), g, zero())])
            }
            (Some(min), None) => AT_LEAST.call(&[self, &tensor(&min)?], &[]),
            (None, Some(max)) => AT_MOST.call(&[self, &tensor(&max)?], &[]),
            (Some(min), Some(max)) => BETWEEN.call(&[self, &tensor(&min)?, &tensor(&max)?], &[]),
        }
    }

    /// Limits each element to at least the bound.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([-1.0, 2.0])?.clamp_min(0.0)?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the dtypes have no common type.
    #[op(in_place, samples = || bounds("min"), errors = || bound_errors("min"))]
    pub fn clamp_min<'a>(&self, min: impl Into<Bound<'a>>) -> Result<Tensor> {
        self.clamp(min, None::<f64>)
    }

    /// Limits each element to at most the bound.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([-1.0, 2.0])?.clamp_max(0.0)?.to_vec::<f32>()?, [-1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the dtypes have no common type.
    #[op(in_place, samples = || bounds("max"), errors = || bound_errors("max"))]
    pub fn clamp_max<'a>(&self, max: impl Into<Bound<'a>>) -> Result<Tensor> {
        self.clamp(None::<f64>, max)
    }
}

/// The smaller of two; the first if one is NaN.
fn min_of(a: Sym, b: Sym) -> Sym {
    select(a.gt(b), b, a)
}

fn clamp_samples() -> Result<Vec<Sample>> {
    let x = || spread([3, 4], -2.0, 2.1);
    Ok(vec![
        sample![x()?, -0.7, 1.1],
        sample![x()?; min = -0.7],
        sample![x()?; max = 1.1],
        sample![x()?, spread([4], -1.0, -0.5)?, spread([3, 1], 0.5, 1.0)?],
        sample![spread([], -2.0, 2.0)?, 1.0, -1.0].zero_derivative(),
        sample![spread([2, 0], -2.0, 2.0)?, 0.0, 1.0],
    ])
}

fn clamp_errors() -> Result<Vec<ErrorCase>> {
    let mask = Tensor::zeros_with([2], DType::Bool)?;
    Ok(vec![
        error!["bools", "bool", "cast"; sample![&mask, true]],
        error!["no bounds", "at least one"; sample![spread([2], 0.0, 1.0)?]],
        error!["shapes", "[2]", "[3]"; sample![spread([2], 0.0, 1.0)?, spread([3], 0.0, 1.0)?]],
    ])
}

fn bounds(name: &'static str) -> Result<Vec<Sample>> {
    let x = || spread([2, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?].with(name, 0.1),
        sample![x()?].with(name, spread([3], -1.9, 1.7)?),
        sample![ints(&[1, -2], [2])?].with(name, 0),
    ])
}

fn bound_errors(name: &'static str) -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["shapes that do not broadcast", "[2, 3]", "[4]"; sample![normal([2, 3], 1)?].with(name, normal([4], 1)?)],
    ])
}
