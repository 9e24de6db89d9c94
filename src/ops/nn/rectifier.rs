//! Rectifiers: piecewise linear activation functions, and those with an exponential for negative elements.

use crate::backend::spec::{Ordered, Real, select};
use crate::error::bail;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::elementwise::unary::{no_bools, unary, with_option};
use crate::ops::nn::activation::from_f64;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{Result, Scalar, Tensor};

options! {
    /// The options of [`Tensor::leaky_relu_with`]. A number stands for the slope.
    ///
    /// ```
    /// use cotangent::{tensor, options::LeakyReluOptions};
    /// let x = tensor!([-1.0])?;
    /// assert_eq!(x.leaky_relu_with(LeakyReluOptions::new().negative_slope(0.5))?.item::<f32>()?, -0.5);
    /// assert_eq!(x.leaky_relu_with(0.5)?.item::<f32>()?, -0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LeakyReluOptions {
        /// The factor of negative elements.
        negative_slope: f64 = 0.01,
    }
}

options! {
    /// The options of [`Tensor::elu_with`]. A number stands for `alpha`.
    ///
    /// ```
    /// use cotangent::{tensor, options::EluOptions};
    /// let x = tensor!([-100.0])?;
    /// assert_eq!(x.elu_with(EluOptions::new().alpha(2.0))?.item::<f32>()?, -2.0);
    /// assert_eq!(x.elu_with(2.0)?.item::<f32>()?, -2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EluOptions {
        /// The negated limit for large negative elements.
        alpha: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::celu_with`]. A number stands for `alpha`.
    ///
    /// ```
    /// use cotangent::{tensor, options::CeluOptions};
    /// assert_eq!(tensor!([-100.0])?.celu_with(CeluOptions::new().alpha(2.0))?.item::<f32>()?, -2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CeluOptions {
        /// The negated limit for large negative elements.
        alpha: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::hardtanh_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::HardtanhOptions};
    /// assert_eq!(tensor!([-1.0])?.hardtanh_with(HardtanhOptions::new().min_val(0.0))?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HardtanhOptions {
        /// The lower bound.
        min_val: f64 = -1.0,
        /// The upper bound.
        max_val: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::hardshrink_with`] and [`Tensor::softshrink_with`]. A number stands for `lambd`.
    ///
    /// ```
    /// use cotangent::{tensor, options::ShrinkOptions};
    /// assert_eq!(tensor!([1.0])?.hardshrink_with(ShrinkOptions::new().lambd(2.0))?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ShrinkOptions {
        /// The threshold: elements with `|x| ≤ lambd` become 0.
        lambd: f64 = 0.5,
    }
}

options! {
    /// The options of [`Tensor::rrelu_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::RreluOptions};
    /// let options = RreluOptions::new().lower(0.5).upper(0.5);
    /// assert_eq!(tensor!([-1.0])?.rrelu_with(options)?.item::<f32>()?, -0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RreluOptions {
        /// The lower bound of the slopes.
        lower: f64 = 0.125,
        /// The upper bound of the slopes.
        upper: f64 = 1.0 / 3.0,
        /// Whether the slopes are random.
        training: bool = false,
    }
}

/// The constants of [`Tensor::selu`], for which mean 0 and variance 1 are a fixed point.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

from_f64!(LeakyReluOptions negative_slope, EluOptions alpha, CeluOptions alpha, ShrinkOptions lambd);

/// # Rectified activations
#[ops]
impl Tensor {
    /// The rectified linear unit, `max(0, x)`. The gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 2.0])?.relu()?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-2.0, 2.1), errors = no_bools)]
    pub fn relu(&self) -> Result<Tensor> {
        elementwise!(Number relu(self) |x| x.relu(),
            |g, y| [g.relu_grad(y)])
    }

    /// `min(max(0, x), 6)`. The gradient at 0 and 6 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 3.0, 8.0])?.relu6()?.to_vec::<f32>()?, [0.0, 3.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(in_place, samples = || unary(-3.0, 9.0), errors = no_bools)]
    pub fn relu6(&self) -> Result<Tensor> {
        elementwise!(Number relu6(self) |x| select(x.lt(zero()), zero(), select(x.gt(zero() + 6.0), zero() + 6.0, x)),
            |g, _y| [select(x.gt(zero()) & x.lt(zero() + 6.0), g, zero())])
    }

    /// `x` where it is positive, and `negative_slope · x` elsewhere; the slope is 0.01 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 2.0])?.leaky_relu_with(0.5)?.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || with_option(-2.0, 2.1, "negative_slope", &0.1.into()))]
    pub fn leaky_relu(&self, options: impl Into<LeakyReluOptions>) -> Result<Tensor> {
        let slope = options.negative_slope;
        elementwise!(Float leaky_relu(self; slope) |x; slope| select(x.gt(zero()), x, x * slope))
    }

    /// `x` where it is positive, and `weight · x` elsewhere. The weight is one number, or one per channel, dimension 1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let weight = tensor!([0.25])?;
    /// assert_eq!(tensor!([-4.0, 2.0])?.prelu(&weight)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape of the weight does not match.
    #[op(autocast = lower, samples = prelu_samples, errors = prelu_errors)]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let channels = if self.rank() >= 2 { self.shape()[1] } else { 1 };
        let weight = if weight.numel() == 1 {
            weight.reshape(())?
        } else if weight.rank() == 1 && weight.numel() == channels {
            let mut sizes = vec![1_usize; self.rank() - 1];
            sizes[0] = channels;
            weight.reshape(&sizes)?
        } else {
            let (weight, x) = (weight.shape(), self.shape());
            bail!(
                Shape,
                "prelu",
                "weight must be a number or a vector of {channels}, got shape {weight:?} for input {x:?}"
            );
        };
        static OP: Elementwise =
            Elementwise::new("prelu", Domain::Float, 2, 0, |x, _| select(x[0].gt(zero()), x[0], x[0] * x[1]));
        OP.call(&[self, &weight], &[])
    }

    /// `x` where it is positive, and `slope · x` elsewhere. With `training`, the slope is drawn for each element
    /// between `lower` and `upper`; otherwise it is their mean. The defaults are 1/8, 1/3 and no training.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::RreluOptions};
    /// assert_eq!(tensor!([-48.0, 2.0])?.rrelu()?.to_vec::<f32>()?, [-11.0, 2.0]);
    /// let drawn = tensor!([-1.0])?.rrelu_with(RreluOptions::new().training(true))?.item::<f32>()?;
    /// assert!((-1.0 / 3.0..=-0.125).contains(&drawn));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `lower` is above `upper`.
    #[op(samples = || unary(-2.0, 2.1), errors = rrelu_errors, random)]
    pub fn rrelu(&self, options: impl Into<RreluOptions>) -> Result<Tensor> {
        let RreluOptions { lower, upper, training } = options;
        if lower.is_nan() || upper.is_nan() || lower > upper {
            bail!(Value, "rrelu", "lower must be at most upper, got lower {lower} and upper {upper}");
        }
        if !training {
            return self.leaky_relu_with(0.5 * (lower + upper));
        }
        let slopes = self.rand_like()?.mul(upper - lower)?.add(lower)?;
        static OP: Elementwise =
            Elementwise::new("rrelu", Domain::Float, 2, 0, |x, _| select(x[0].gt(zero()), x[0], x[0] * x[1]));
        OP.call(&[self, &slopes], &[])
    }

    /// The exponential linear unit: `x` where it is positive, and `alpha · (exp(x) - 1)` elsewhere.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-100.0, 2.0])?.elu_with(1.5)?.to_vec::<f32>()?, [-1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || with_option(-2.0, 2.1, "alpha", &1.3.into()))]
    pub fn elu(&self, options: impl Into<EluOptions>) -> Result<Tensor> {
        let alpha = options.alpha;
        elementwise!(Float elu(self; alpha) |x; alpha| select(x.gt(zero()), x, x.expm1() * alpha))
    }

    /// The scaled exponential linear unit, which preserves mean 0 and variance 1 from layer to layer.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.selu()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    pub fn selu(&self) -> Result<Tensor> {
        elementwise!(Float selu(self) |x| SELU_SCALE * select(x.gt(zero()), x, x.expm1() * SELU_ALPHA))
    }

    /// `max(0, x) + min(0, alpha · (exp(x / alpha) - 1))`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-100.0, 2.0])?.celu_with(1.5)?.to_vec::<f32>()?, [-1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `alpha` is 0.
    #[op(in_place, samples = || with_option(-2.0, 2.1, "alpha", &1.3.into()), errors = celu_errors)]
    pub fn celu(&self, options: impl Into<CeluOptions>) -> Result<Tensor> {
        let alpha = options.alpha;
        if alpha == 0.0 {
            bail!(Value, "celu", "alpha must not be 0");
        }
        elementwise!(Float celu(self; alpha) |x; alpha| select(x.gt(zero()), x, (x / alpha).expm1() * alpha))
    }

    /// `x` where it exceeds `threshold`, and `value` elsewhere.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.5, 2.0])?.threshold(1, -1)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a number does not fit the dtype.
    #[op(in_place, samples = threshold_samples, errors = threshold_errors)]
    pub fn threshold(&self, threshold: impl Into<Scalar>, value: impl Into<Scalar>) -> Result<Tensor> {
        for number in [threshold, value] {
            if number.promote_with(self.dtype()) != self.dtype() {
                bail!(DType, "threshold", "threshold and value must fit dtype {}, got {number}", self.dtype());
            }
        }
        elementwise!(Number threshold(self; threshold, value)
            |x; threshold, value| select(x.le(threshold), value, x), |g, _y| [select(x.le(threshold), zero(), g)])
    }

    /// Limits `x` to the range from `min_val` to `max_val`, by default -1 and 1. The gradient at the bounds is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::HardtanhOptions};
    /// assert_eq!(tensor!([-2.0, 0.5, 2.0])?.hardtanh()?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// let wide = HardtanhOptions::new().min_val(-3.0).max_val(3.0);
    /// assert_eq!(tensor!([-2.0, 4.0])?.hardtanh_with(wide)?.to_vec::<f32>()?, [-2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools, `min_val` is above `max_val`, or a bound does not fit the dtype.
    #[op(in_place, samples = || Ok([unary(-2.0, 2.1)?, vec![sample![spread([7], -2.0, 2.1)?; min_val = -0.3, max_val = 1.5]]].concat()), errors = hardtanh_errors)]
    pub fn hardtanh(&self, options: impl Into<HardtanhOptions>) -> Result<Tensor> {
        let HardtanhOptions { min_val, max_val } = options;
        if min_val.is_nan() || max_val.is_nan() || min_val > max_val {
            bail!(Value, "hardtanh", "min_val must be at most max_val, got min_val {min_val} and max_val {max_val}");
        }
        if !self.dtype().is_float() && (min_val.fract() != 0.0 || max_val.fract() != 0.0) {
            bail!(
                DType,
                "hardtanh",
                "min_val and max_val must fit dtype {}, got {min_val} and {max_val}",
                self.dtype()
            );
        }
        let (min_val, max_val) =
            (Scalar::F64(min_val).lower_bound_in(self.dtype()), Scalar::F64(max_val).upper_bound_in(self.dtype()));
        elementwise!(Number hardtanh(self; min_val, max_val)
            |x; low, high| select(x.lt(low), low, select(x.gt(high), high, x)),
            |g, _y| [select(x.gt(low) & x.lt(high), g, zero())])
    }

    /// A piecewise linear sigmoid: `x / 6 + 1/2`, limited to [0, 1].
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-4.0, 0.0, 4.0])?.hardsigmoid()?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-4.0, 4.1))]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        elementwise!(Float hardsigmoid(self) |x| select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), zero() + 1.0, (x + 3.0) / 6.0)),
            |g, _y| [select(x.gt(zero() - 3.0) & x.lt(zero() + 3.0), g / 6.0, zero())])
    }

    /// `x · hardsigmoid(x)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-4.0, 3.0, 4.0])?.hardswish()?.to_vec::<f32>()?, [0.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-4.0, 4.1))]
    pub fn hardswish(&self) -> Result<Tensor> {
        elementwise!(Float hardswish(self) |x| select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), x, x * (x + 3.0) / 6.0)),
            |g, _y| [select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), g, g * (x / 3.0 + 0.5)))])
    }

    /// `x` where `|x| > lambd`, and 0 elsewhere; `lambd` is 0.5 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 0.3, 0.7])?.hardshrink()?.to_vec::<f32>()?, [-1.0, 0.0, 0.7]);
    /// assert_eq!(tensor!([0.7])?.hardshrink_with(0.8)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = shrink_samples)]
    pub fn hardshrink(&self, options: impl Into<ShrinkOptions>) -> Result<Tensor> {
        let lambd = options.lambd;
        elementwise!(Float hardshrink(self; lambd) |x; limit| select(x.ge(-limit) & x.le(limit), zero(), x))
    }

    /// `x` moved towards 0 by `lambd`, and 0 where `|x| ≤ lambd`; `lambd` is 0.5 by default.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 0.25, 1.5])?.softshrink()?.to_vec::<f32>()?, [-0.5, 0.0, 1.0]);
    /// assert_eq!(tensor!([1.5])?.softshrink_with(0.25)?.to_vec::<f32>()?, [1.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `lambd` is negative or NaN.
    #[op(samples = shrink_samples, errors = shrink_errors)]
    pub fn softshrink(&self, options: impl Into<ShrinkOptions>) -> Result<Tensor> {
        let lambd = options.lambd;
        if lambd.is_nan() || lambd < 0.0 {
            bail!(Value, "softshrink", "lambd must be ≥ 0, got {lambd}");
        }
        elementwise!(Float softshrink(self; lambd)
            |x; limit| select(x.gt(limit), x - limit, select(x.lt(-limit), x + limit, x * 0.0)),
            |g, _y| [select(x.gt(limit) | x.lt(-limit), g, zero())])
    }
}

fn celu_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["an alpha of 0", "0"; sample![normal([2], 1)?; alpha = 0.0]]])
}

fn hardtanh_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["bounds the wrong way round", "2", "1"; sample![normal([2], 1)?; min_val = 2.0]],
        error!["a fraction for integers", "0.5", "i64"; sample![ints(&[1, 2], [2])?; min_val = 0.5]],
    ])
}

fn shrink_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.1)?; lambd = 0.7],
        sample![spread([], 1.0, 2.0)?],
        sample![spread([2, 0], -2.0, 2.1)?],
    ])
}

fn shrink_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a negative lambd", "-1"; sample![normal([2], 1)?; lambd = -1.0]]])
}

fn threshold_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.1)?, 0.3, -7.5],
        sample![spread([], 1.0, 2.0)?, 0, 1],
        sample![spread([2, 0], -2.0, 2.0)?, 0, 1],
        sample![ints(&[1, 5, -3], [3])?, 2, 7],
    ])
}

fn threshold_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a float for integers", "0.5", "i64"; sample![ints(&[1, 2], [2])?, 0.5, 1]]])
}

fn prelu_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3, 4], -2.0, 2.1)?, spread([3], 0.1, 0.4)?],
        sample![spread([2, 3], -2.0, 2.1)?, spread([3], 0.1, 0.4)?],
        sample![spread([5], -2.0, 2.1)?, spread([1], 0.1, 0.4)?],
        sample![spread([], -2.0, -1.0)?, spread([], 0.1, 0.4)?],
        sample![spread([0, 3], -2.0, 2.1)?, spread([3], 0.1, 0.4)?].zero_derivative(),
    ])
}

fn prelu_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["too many weights", "[4]", "vector of 3", "[2, 3]"; sample![normal([2, 3], 1)?, normal([4], 1)?]],
        error!["a matrix", "[1, 3]"; sample![normal([2, 3], 1)?, normal([1, 3], 1)?]],
    ])
}

fn rrelu_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["bounds the wrong way round", "0.5", "0.3"; sample![normal([2], 1)?; lower = 0.5]]])
}
