//! Special functions.

use crate::backend::spec::{Ordered, Real, select};
use crate::error::bail;
use crate::ops::elementwise::binary::pair_errors;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, infinity, zero};
use crate::ops::elementwise::unary::unary;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{Result, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

options! {
    /// The options of [`Tensor::logit_with`]. A number converts to `eps`.
    ///
    /// ```
    /// use cotangent::{tensor, options::LogitOptions};
    /// assert!(tensor!([0.0])?.logit_with(LogitOptions::new().eps(0.25))?.item::<f32>()? > -1.1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LogitOptions {
        /// Elements are clamped to `[eps, 1 - eps]`; with `None` they are not clamped.
        eps: Option<f64> = None,
    }
}

impl From<f64> for LogitOptions {
    fn from(eps: f64) -> LogitOptions {
        LogitOptions::new().eps(eps)
    }
}

/// A function without a derivative by its first argument: requesting it is an error, not 0.
#[track_caller]
fn without_first(name: &'static str, op: &'static Elementwise, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.requires_grad() {
        return Ok(op.call(&[&a.detach(), &b.detach()], &[])?.record_barrier(name, &[a, b]));
    }
    op.call(&[a, b], &[])
}

/// # Special functions
#[ops]
impl Tensor {
    /// The error function.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 10.0])?.erf()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.1), aliases = ["special_erf"])]
    pub fn erf(&self) -> Result<Tensor> {
        elementwise!(Float erf(self) |x| x.erf())
    }

    /// The complementary error function, `1 - erf(x)`, accurate for large `x`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.erfc()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-2.0, 2.1), aliases = ["special_erfc"])]
    pub fn erfc(&self) -> Result<Tensor> {
        elementwise!(Float erfc(self) |x| x.erfc())
    }

    /// The inverse error function; NaN outside of [-1, 1].
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 1.0])?.erfinv()?.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, autocast_cuda = f32, samples = || unary(-0.9, 0.91), aliases = ["special_erfinv"])]
    pub fn erfinv(&self) -> Result<Tensor> {
        elementwise!(Float erfinv(self) |x| x.erfinv())
    }

    /// The scaled complementary error function, `exp(x²) · erfc(x)`.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::erfcx(&tensor!([0.0])?)?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-1.5, 3.0), aliases = ["special_erfcx"])]
    pub fn erfcx(&self) -> Result<Tensor> {
        elementwise!(Float erfcx(self) |x| x.erfcx())
    }

    /// The logarithm of the absolute value of the gamma function.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 2.0])?.lgamma()?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(0.3, 4.0), aliases = ["gammaln", "special_gammaln"])]
    pub fn lgamma(&self) -> Result<Tensor> {
        elementwise!(Float lgamma(self) |x| x.lgamma())
    }

    /// The digamma function, the derivative of [`lgamma`](Self::lgamma).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.digamma()?.to_vec::<f32>()?, [f32::NEG_INFINITY]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(0.3, 4.0), aliases = ["psi", "special_digamma", "special_psi"])]
    pub fn digamma(&self) -> Result<Tensor> {
        elementwise!(Float digamma(self) |x| x.digamma())
    }

    /// The polygamma function of order `n`: the derivative of order `n` of [`digamma`](Self::digamma).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert!((tensor!([1.0])?.polygamma(1)?.item::<f32>()? - 1.6449341).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || Ok(vec![sample![spread([3, 4], 0.4, 3.0)?, 1], sample![spread([], 0.4, 3.0)?, 2], sample![spread([2, 0], 0.4, 3.0)?, 3], sample![spread([3], 0.4, 3.0)?, 0]]), tolerance = 10.0, aliases = ["special_polygamma"])]
    pub fn polygamma(&self, n: usize) -> Result<Tensor> {
        if n == 0 {
            return self.digamma();
        }
        let order = n as f64;
        // (-1)^(n + 1) n! ζ(n + 1, x).
        let factorial = (1..=n.min(200)).fold(1.0, |product, k| product * k as f64);
        let (exponent, factor) = (order + 1.0, if n.is_multiple_of(2) { -factorial } else { factorial });
        elementwise!(Float polygamma(self; exponent, factor) |x; exponent, factor| exponent.zeta(x) * factor)
    }

    /// The logarithm of the multivariate gamma function of dimension `p`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([2.0])?.mvlgamma(1)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is 0 or more than 65536.
    #[op(in_place, samples = || Ok(vec![sample![spread([3, 4], 1.2, 4.0)?, 3], sample![spread([], 1.2, 4.0)?, 1], sample![spread([2, 0], 1.2, 4.0)?, 2]]), errors = mvlgamma_errors, aliases = ["multigammaln", "special_multigammaln"])]
    pub fn mvlgamma(&self, p: usize) -> Result<Tensor> {
        if p == 0 {
            bail!(Value, "mvlgamma", "p must be positive, got 0");
        }
        if p > 1 << 16 {
            bail!(Value, "mvlgamma", "p must be at most {}, got {p}", 1 << 16);
        }
        let mut sum = self.lgamma()?;
        for j in 1..p {
            sum = sum.add(&self.sub(0.5 * j as f64)?.lgamma()?)?;
        }
        let p = p as f64;
        sum.add(p * (p - 1.0) * 0.25 * std::f64::consts::PI.ln())
    }

    /// The Hurwitz zeta function, `Σ (other + k)^-input` over k ≥ 0. It is not differentiable in `input`.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert!((special::zeta(&tensor!([2.0])?, 1.0)?.item::<f32>()? - 1.6449341).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(function = special, numbers = floats, samples = without_first_samples, errors = pair_errors, aliases = ["special_zeta"])]
    pub fn zeta<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.resolve(self.dtype().to_float(), self.device())?;
        static OP: Elementwise = Elementwise::new("zeta", Domain::Float, 2, 0, |x, _| x[0].zeta(x[1]));
        without_first("zeta", &OP, self, &other)
    }

    /// The regularized lower incomplete gamma function with the parameter `self`. It is not differentiable in `self`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert!((tensor!([1.0])?.igamma(1.0)?.item::<f32>()? - 0.63212055).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = without_first_samples, errors = pair_errors, aliases = ["gammainc", "special_gammainc"])]
    pub fn igamma<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.resolve(self.dtype().to_float(), self.device())?;
        static OP: Elementwise = Elementwise::new("igamma", Domain::Float, 2, 0, |x, _| x[0].igamma(x[1]));
        without_first("igamma", &OP, self, &other)
    }

    /// The regularized upper incomplete gamma function with the parameter `self`. It is not differentiable in `self`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert!((tensor!([1.0])?.igammac(1.0)?.item::<f32>()? - 0.36787945).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast or the dtypes have no common type.
    #[op(in_place, numbers = floats, samples = without_first_samples, errors = pair_errors, aliases = ["gammaincc", "special_gammaincc"])]
    pub fn igammac<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
        let other = other.resolve(self.dtype().to_float(), self.device())?;
        static OP: Elementwise = Elementwise::new("igammac", Domain::Float, 2, 0, |x, _| x[0].igammac(x[1]));
        without_first("igammac", &OP, self, &other)
    }

    /// The modified Bessel function of the first kind of order 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.i0()?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1), aliases = ["special_i0", "modified_bessel_i0", "special_modified_bessel_i0"])]
    pub fn i0(&self) -> Result<Tensor> {
        elementwise!(Float i0(self) |x| x.i0())
    }

    /// `exp(-|x|)` times [`i0`](Tensor::i0).
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::i0e(&tensor!([0.0])?)?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-3.0, 3.1), aliases = ["special_i0e"])]
    pub fn i0e(&self) -> Result<Tensor> {
        elementwise!(Float i0e(self) |x| x.i0e())
    }

    /// The modified Bessel function of the first kind of order 1.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::i1(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-3.0, 3.1), aliases = ["special_i1", "modified_bessel_i1", "special_modified_bessel_i1"])]
    pub fn i1(&self) -> Result<Tensor> {
        elementwise!(Float i1(self) |x| x.i1())
    }

    /// `exp(-|x|)` times [`i1`](crate::special::i1).
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::i1e(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-3.0, 3.1), aliases = ["special_i1e"])]
    pub fn i1e(&self) -> Result<Tensor> {
        elementwise!(Float i1e(self) |x| x.i1e())
    }

    /// The inverse of [`sigmoid`](Self::sigmoid), `log(x / (1 - x))`. With `eps`, elements are clamped to `[eps, 1 -
    /// eps]` first, and the gradient outside is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.5, 1.0])?.logit()?.to_vec::<f32>()?, [0.0, f32::INFINITY]);
    /// assert!(tensor!([1.0])?.logit_with(1e-6)?.item::<f32>()? < 14.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || Ok([unary(0.1, 0.9)?, vec![sample![spread([7], -0.1, 1.2)?; eps = 0.2]]].concat()), aliases = ["special_logit"])]
    pub fn logit(&self, options: impl Into<LogitOptions>) -> Result<Tensor> {
        let Some(eps) = options.eps else {
            if self.dtype().is_complex() {
                return elementwise!(Float logit(self) |x| (x / (1.0 - x)).ln());
            }
            // Near 1/2 the quotient is near 1: log1p of the difference is more accurate.
            return elementwise!(Float logit(self)
                |x| select((x - 0.5).abs().lt(zero() + 0.25), ((2.0 * x - 1.0) / (1.0 - x)).log1p(), (x / (1.0 - x)).ln()),
                |g, _y| [select(x.lt(zero()) | x.gt(zero() + 1.0), zero() / 0.0, g / (x * (1.0 - x)))]);
        };
        elementwise!(Float logit(self; eps) |x; eps| {
                let inside = select(x.lt(eps), eps, select(x.gt(1.0 - eps), 1.0 - eps, x));
                (inside / (1.0 - inside)).ln()
            },
            |g, _y| [select(x.lt(eps) | x.gt(1.0 - eps), zero(), g / (x * (1.0 - x)))])
    }

    /// The entropy `-x · log(x)`; 0 at 0, and minus infinity for negative elements.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::entr(&tensor!([0.0, 1.0])?)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.2, 3.0), aliases = ["special_entr"])]
    pub fn entr(&self) -> Result<Tensor> {
        elementwise!(Float entr(self) |x| select(x.eq(zero()), zero(), select(x.lt(zero()), -infinity(), -(x * x.ln()))),
            |g, _y| [g * (-x.ln() - 1.0)])
    }

    /// The cumulative distribution function of the standard normal distribution.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::ndtr(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-2.0, 2.1), aliases = ["special_ndtr"])]
    pub fn ndtr(&self) -> Result<Tensor> {
        elementwise!(Float ndtr(self) |x| x.ndtr())
    }

    /// The quantile function of the standard normal distribution, the inverse of [`ndtr`](crate::special::ndtr).
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::ndtri(&tensor!([0.5])?)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(0.1, 0.9), aliases = ["special_ndtri"])]
    pub fn ndtri(&self) -> Result<Tensor> {
        elementwise!(Float ndtri(self) |x| x.ndtri())
    }

    /// The logarithm of [`ndtr`](crate::special::ndtr), accurate in the left tail.
    ///
    /// ```
    /// # use cotangent::{special, tensor, Tensor};
    /// assert_eq!(special::log_ndtr(&tensor!([0.0])?)?.to_vec::<f32>()?, [0.5_f32.ln()]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(function = special, samples = || unary(-3.0, 3.1), aliases = ["special_log_ndtr"])]
    pub fn log_ndtr(&self) -> Result<Tensor> {
        elementwise!(Float log_ndtr(self) |x| select(x.lt(zero() - 1.0), (0.5 * (x * -FRAC_1_SQRT_2).erfcx()).ln() - 0.5 * x * x, (-((-x).ndtr())).log1p()),
            |g, _y| [g * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2) / (x * -FRAC_1_SQRT_2).erfcx()])
    }
}

/// Pairs whose first tensor is of integers, as it gets no gradient.
fn without_first_samples() -> Result<Vec<Sample>> {
    let pair = |a: Tensor, b: &[usize]| Ok(sample![a, spread(b, 0.4, 3.0)?]);
    Ok(vec![
        pair(ints(&[2, 3, 4, 5, 2, 3], [2, 3])?, &[2, 3])?,
        pair(ints(&[2, 3, 7], [3])?, &[2, 1])?,
        pair(ints(&[3], [])?, &[2])?,
        pair(ints(&[], [0, 2])?, &[2])?.zero_derivative(),
    ])
}

fn mvlgamma_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no dimension", "positive"; sample![normal([2], 1)?, 0]]])
}
