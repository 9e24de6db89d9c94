//! Elementwise functions of one tensor.

use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::arg::choices;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, sample, spread};
use crate::backend::spec::{Ordered, Real, select};
use crate::options::options;
use crate::{DType, Result, Tensor};

choices! {
    /// Which form of [`Tensor::gelu`].
    ///
    /// ```
    /// use cotangent::{Gelu, tensor};
    /// let x = tensor!([1.0])?;
    /// assert!(x.gelu()?.allclose_with(&x.gelu_with(Gelu::Tanh)?, (1e-3, 0.0))?);
    /// assert_eq!(Gelu::Tanh.name(), "tanh");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum Gelu {
        /// With the error function, exactly.
        #[default]
        Erf = "none",
        /// With the hyperbolic tangent of a cubic, approximately.
        Tanh = "tanh",
    }
}

options! {
    /// The options of [`Tensor::gelu_with`]. A [`Gelu`] stands for itself.
    ///
    /// ```
    /// use cotangent::{Gelu, GeluOptions, tensor};
    /// let y = tensor!([0.0])?.gelu_with(GeluOptions::new().approximate(Gelu::Tanh))?;
    /// assert_eq!(y.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GeluOptions {
        /// Exactly, or by the approximation through `tanh`.
        approximate: Gelu = Gelu::Erf,
    }
}

impl From<Gelu> for GeluOptions {
    fn from(approximate: Gelu) -> GeluOptions {
        GeluOptions::new().approximate(approximate)
    }
}

options! {
    /// The options of [`Tensor::leaky_relu_with`]. A number stands for the slope.
    ///
    /// ```
    /// use cotangent::{LeakyReluOptions, tensor};
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
    /// use cotangent::{EluOptions, tensor};
    /// let x = tensor!([-100.0])?;
    /// assert_eq!(x.elu_with(EluOptions::new().alpha(2.0))?.item::<f32>()?, -2.0);
    /// assert_eq!(x.elu_with(2.0)?.item::<f32>()?, -2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EluOptions {
        /// What large negative elements tend to, with a minus.
        alpha: f64 = 1.0,
    }
}

macro_rules! from_f64 {
    ($($options:ident $field:ident),+) => {$(
        impl From<f64> for $options {
            fn from($field: f64) -> $options { $options::new().$field($field) }
        }
    )+};
}
pub(in crate::ops) use from_f64;
from_f64!(LeakyReluOptions negative_slope, EluOptions alpha);

options! {
    /// The options of [`Tensor::softplus_with`].
    ///
    /// ```
    /// use cotangent::{SoftplusOptions, tensor};
    /// let options = SoftplusOptions::new().beta(2.0).threshold(10.0);
    /// assert_eq!(tensor!([6.0])?.softplus_with(options)?.item::<f32>()?, 6.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SoftplusOptions {
        /// How sharply the function bends.
        beta: f64 = 1.0,
        /// Where `beta · x` exceeds this, the result is `x`.
        threshold: f64 = 20.0,
    }
}

/// # Elementwise functions of one tensor
#[ops]
impl Tensor {
    /// The negative of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1, -2])?.neg()?.to_vec::<i64>()?, [-1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(samples = || unary(-2.0, 2.0), errors = no_bools, aliases = ["negative"])]
    #[doc(alias = "negative")]
    pub fn neg(&self) -> Result<Tensor> {
        elementwise!(Number neg(self) |x| -x)
    }

    /// The absolute value of each element; of complex numbers the distance from 0. The gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 2.0])?.abs()?.to_vec::<f32>()?, [1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(samples = || unary(-2.0, 2.1), errors = no_bools, aliases = ["absolute"])]
    #[doc(alias = "absolute")]
    pub fn abs(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return complex_abs(self);
        }
        elementwise!(Number abs(self) |x| x.abs())
    }

    /// -1, 0 or 1 by the sign of each element; 0 for a NaN. Bools are their own. Its derivative is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.5, 0.0, 2.0])?.sign()?.to_vec::<f32>()?, [-1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = signs, derivative = zero)]
    pub fn sign(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return Ok(self.clone());
        }
        elementwise!(Number sign(self) |x| x.sign())
    }

    /// The square of each element. Those of bools are `i64`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.5, -2.0])?.square()?.to_vec::<f32>()?, [2.25, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = signs)]
    pub fn square(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            return self.to_dtype(DType::I64);
        }
        elementwise!(Number square(self) |x| x * x, |g, _y| [g * (x + x)])
    }

    /// One over each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2.0, -4.0])?.reciprocal()?.to_vec::<f32>()?, [0.5, -0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || unary(0.5, 3.0))]
    pub fn reciprocal(&self) -> Result<Tensor> {
        elementwise!(Float reciprocal(self) |x| 1.0 / x, |g, y| [-g * (y * y)])
    }

    /// The exponential of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, -1000.0])?.exp()?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || unary(-2.0, 2.0))]
    pub fn exp(&self) -> Result<Tensor> {
        elementwise!(Float exp(self) |x| x.exp(), |g, y| [g * y])
    }

    /// The exponential of each element, minus 1, exact near 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1e-10])?.expm1()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || unary(-2.0, 2.0), aliases = ["special_expm1"])]
    pub fn expm1(&self) -> Result<Tensor> {
        elementwise!(Float expm1(self) |x| x.expm1(), |g, y| [g * (y + 1.0)])
    }

    /// The natural logarithm of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 0.0])?.log()?.to_vec::<f32>()?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || unary(0.3, 3.0))]
    pub fn log(&self) -> Result<Tensor> {
        elementwise!(Float log(self) |x| x.ln(), |g, _y| [g / x])
    }

    /// The natural logarithm of 1 plus each element, exact near 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1e-10])?.log1p()?.to_vec::<f32>()?, [1e-10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || unary(-0.5, 3.0), aliases = ["special_log1p"])]
    pub fn log1p(&self) -> Result<Tensor> {
        elementwise!(Float log1p(self) |x| x.log1p(), |g, _y| [g / (x + 1.0)])
    }

    /// The square root of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([4.0, 2.25])?.sqrt()?.to_vec::<f32>()?, [2.0, 1.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(0.3, 3.0))]
    pub fn sqrt(&self) -> Result<Tensor> {
        elementwise!(Float sqrt(self) |x| x.sqrt(), |g, y| [g / (y + y)])
    }

    /// The hyperbolic tangent of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.tanh()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-2.0, 2.0))]
    pub fn tanh(&self) -> Result<Tensor> {
        elementwise!(Float tanh(self) |x| x.tanh(), |g, y| [g.tanh_grad(y)])
    }

    /// The logistic function `1 / (1 + exp(-x))` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.sigmoid()?.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.0), aliases = ["special_expit", "expit"])]
    pub fn sigmoid(&self) -> Result<Tensor> {
        elementwise!(Float sigmoid(self) |x| x.sigmoid(), |g, y| [g.sigmoid_grad(y)])
    }

    /// The sine of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.sin()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn sin(&self) -> Result<Tensor> {
        elementwise!(Float sin(self) |x| x.sin())
    }

    /// The cosine of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.cos()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn cos(&self) -> Result<Tensor> {
        elementwise!(Float cos(self) |x| x.cos())
    }

    /// The error function of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 10.0])?.erf()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-2.0, 2.1), aliases = ["special_erf"])]
    pub fn erf(&self) -> Result<Tensor> {
        elementwise!(Float erf(self) |x| x.erf())
    }

    /// Each element where it is positive, else 0; the gradient at 0 is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 2.0])?.relu()?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(samples = || unary(-2.0, 2.1), errors = no_bools)]
    pub fn relu(&self) -> Result<Tensor> {
        elementwise!(Number relu(self) |x| x.relu(),
            |g, y| [g.relu_grad(y)])
    }

    /// Each element where it is positive, else a hundredth of it, or as much of it as the options say.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 2.0])?.leaky_relu_with(0.5)?.to_vec::<f32>()?, [-0.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || with_option(-2.0, 2.1, "negative_slope", &0.1.into()))]
    pub fn leaky_relu(&self, options: impl Into<LeakyReluOptions>) -> Result<Tensor> {
        let slope = options.negative_slope;
        elementwise!(Float leaky_relu(self; slope) |x; slope| select(x.gt(zero()), x, x * slope))
    }

    /// Each element where it is positive, else `alpha · (exp(x) - 1)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-100.0, 2.0])?.elu_with(1.5)?.to_vec::<f32>()?, [-1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || with_option(-2.0, 2.1, "alpha", &1.3.into()))]
    pub fn elu(&self, options: impl Into<EluOptions>) -> Result<Tensor> {
        let alpha = options.alpha;
        elementwise!(Float elu(self; alpha) |x; alpha| select(x.gt(zero()), x, x.expm1() * alpha))
    }

    /// `x · sigmoid(x)` of each element, also called swish.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.silu()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    #[doc(alias = "swish")]
    pub fn silu(&self) -> Result<Tensor> {
        elementwise!(Float silu(self) |x| x.silu(),
            |g, _y| [g.silu_grad(x)])
    }

    /// `log(1 + exp(beta · x)) / beta` of each element: a smooth relu. Where `beta · x` exceeds `threshold` it is `x`. Both
    /// are options, 1 and 20 by default.
    ///
    /// ```
    /// # use cotangent::{SoftplusOptions, Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.softplus()?.to_vec::<f32>()?, [0.6931472, 100.0]);
    /// assert_eq!(tensor!([3.0])?.softplus_with(SoftplusOptions::new().threshold(2.0))?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(autocast_cuda = f32, samples = || Ok(vec![sample![spread([3, 4], -3.0, 3.0)?; beta = 1.5, threshold = 3.5], sample![spread([], -3.0, 3.0)?],
        sample![spread([2, 0], -3.0, 3.0)?]]))]
    pub fn softplus(&self, options: impl Into<SoftplusOptions>) -> Result<Tensor> {
        let SoftplusOptions { beta, threshold } = options;
        elementwise!(Float softplus(self; beta, threshold)
            |x; beta, threshold| select((x * beta).gt(threshold), x, (x * beta).exp().log1p() / beta),
            |g, _y| [select((x * beta).gt(threshold), g, g * (x * beta).sigmoid())])
    }

    /// The Gaussian error linear unit: `x · Φ(x)`, with Φ by the error function or, as an option, by the approximation
    /// through `tanh`.
    ///
    /// ```
    /// # use cotangent::{Gelu, Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.gelu()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// assert_eq!(tensor!([0.0, 100.0])?.gelu_with(Gelu::Tanh)?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok([unary(-2.0, 2.1)?, with_option(-2.0, 2.1, "approximate", &"tanh".into())?].concat()))]
    pub fn gelu(&self, options: impl Into<GeluOptions>) -> Result<Tensor> {
        match options.approximate {
            Gelu::Erf => elementwise!(Float gelu(self) |x| x.gelu(),
                |g, _y| [g.gelu_grad(x)]),
            Gelu::Tanh => elementwise!(Float gelu(self) |x| x.gelu_tanh(),
                |g, _y| [g.gelu_tanh_grad(x)]),
        }
    }
}

/// The distance from 0; its gradient there is 0.
#[track_caller]
fn complex_abs(x: &Tensor) -> Result<Tensor> {
    static ABS: Elementwise = Elementwise::new("abs", Domain::Float, 2, 0, |x, _| x[0].hypot(x[1])).with_gradient(
        |g, x, y, _| x.iter().map(|&part| Some(select(y.eq(zero()), zero(), g * (part / y)))).collect(),
    );
    ABS.call(&[&x.real()?, &x.imag()?], &[])
}

/// Samples of a function of one tensor, on values between `low` and `high`.
pub(in crate::ops) fn unary(low: f64, high: f64) -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([3, 4], low, high)?], sample![spread([], low, high)?], sample![spread([2, 0], low, high)?]])
}

pub(in crate::ops) fn with_option(low: f64, high: f64, name: &'static str, value: &crate::ops::Arg) -> Result<Vec<Sample>> {
    let with = |sample: Sample| sample.with(name, value.clone());
    Ok(unary(low, high)?.into_iter().map(with).chain([sample![spread([4], low, high)?]]).collect())
}

/// What every function of numbers refuses.
/// Those of [`unary`], and bools.
fn signs() -> Result<Vec<Sample>> {
    let mut all = unary(-2.0, 2.1)?;
    all.push(sample![Tensor::new([true, false])?]);
    Ok(all)
}

pub(in crate::ops) fn no_bools() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["bools", "bool", "cast"; sample![Tensor::zeros_with([2], DType::Bool)?]]])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn the_left_tail_of_gelu_keeps_its_digits() -> Result<()> {
        let x = Tensor::linspace(-6.0, -2.0, 41)?;
        let (got, want) = (x.gelu_with(Gelu::Tanh)?, x.to_dtype(DType::F64)?.gelu_with(Gelu::Tanh)?);
        assert!(got.to_dtype(DType::F64)?.allclose_with(&want, (1e-5, 0.0))?, "{got} is not {want}");
        Ok(())
    }
}
