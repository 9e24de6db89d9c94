//! Activation functions beyond those of `unary.rs`.

use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::ops;
use crate::ops::reduce::sums::{DTypeOptions, float_only};
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::elementwise::unary::{from_f64, no_bools, unary, with_option};
use crate::backend::spec::{Ordered, Real, Sym, select};
use crate::error::bail;
use crate::layout::resolve_dim;
use crate::options::options;
use crate::{DType, Dim, Result, Scalar, Tensor, keepdim};

/// The constants of [`Tensor::selu`], for which 0 and 1 are a fixed point of mean and variance.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

options! {
    /// The options of [`Tensor::celu_with`]. A number stands for `alpha`.
    ///
    /// ```
    /// use cotangent::{CeluOptions, tensor};
    /// assert_eq!(tensor!([-100.0])?.celu_with(CeluOptions::new().alpha(2.0))?.item::<f32>()?, -2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CeluOptions {
        /// What large negative elements tend to, with a minus.
        alpha: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::hardtanh_with`].
    ///
    /// ```
    /// use cotangent::{HardtanhOptions, tensor};
    /// assert_eq!(tensor!([-1.0])?.hardtanh_with(HardtanhOptions::new().min_val(0.0))?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HardtanhOptions {
        /// The least result.
        min_val: f64 = -1.0,
        /// The greatest result.
        max_val: f64 = 1.0,
    }
}

options! {
    /// The options of [`Tensor::hardshrink_with`] and [`Tensor::softshrink_with`]. A number stands for `lambd`.
    ///
    /// ```
    /// use cotangent::{ShrinkOptions, tensor};
    /// assert_eq!(tensor!([1.0])?.hardshrink_with(ShrinkOptions::new().lambd(2.0))?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ShrinkOptions {
        /// How near to 0 an element becomes 0.
        lambd: f64 = 0.5,
    }
}

options! {
    /// The options of [`Tensor::rrelu_with`].
    ///
    /// ```
    /// use cotangent::{RreluOptions, tensor};
    /// let options = RreluOptions::new().lower(0.5).upper(0.5);
    /// assert_eq!(tensor!([-1.0])?.rrelu_with(options)?.item::<f32>()?, -0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RreluOptions {
        /// The least slope.
        lower: f64 = 0.125,
        /// The greatest slope.
        upper: f64 = 1.0 / 3.0,
        /// Whether slopes are drawn.
        training: bool = false,
    }
}

options! {
    /// The options of [`Tensor::gumbel_softmax_with`].
    ///
    /// ```
    /// use cotangent::{GumbelSoftmaxOptions, tensor};
    /// let options = GumbelSoftmaxOptions::new().tau(0.5).dim(0);
    /// assert_eq!(tensor!([[1.0, 2.0]])?.gumbel_softmax_with(options)?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GumbelSoftmaxOptions {
        /// The temperature: the lower, the nearer to a choice.
        tau: f64 = 1.0,
        /// Whether the result is a choice.
        hard: bool = false,
        /// The dimension that is chosen along.
        dim: Dim = Dim(-1),
    }
}

from_f64!(CeluOptions alpha, ShrinkOptions lambd);

/// `log(1 + exp(x))`, without overflow.
fn softplus(x: Sym) -> Sym {
    x.relu() + (-x.abs()).exp().log1p()
}

/// Both halves of a dimension.
#[track_caller]
fn halves(op: &'static str, x: &Tensor, dim: Dim) -> Result<(Tensor, Tensor)> {
    let dim = resolve_dim(op, dim.0, x.rank())?;
    let size = x.shape()[dim];
    if !size.is_multiple_of(2) {
        bail!(Shape, op, "size {size} of dimension {dim} of shape {:?} is not even", x.shape());
    }
    Ok((x.narrow(dim, 0, size / 2)?, x.narrow(dim, size / 2, size / 2)?))
}

/// # More activations
#[ops]
impl Tensor {
    /// The logarithm of [`sigmoid`](Self::sigmoid) of each element, with all digits where that is small.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-100.0])?.logsigmoid()?.to_vec::<f32>()?, [-100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1), aliases = ["log_sigmoid"])]
    #[doc(alias = "log_sigmoid")]
    pub fn logsigmoid(&self) -> Result<Tensor> {
        elementwise!(Float logsigmoid(self) |x| select(x.lt(zero()), x, zero()) - (-x.abs()).exp().log1p(),
            |g, _y| [g * (-x).sigmoid()])
    }

    /// Each element, but at least 0 and at most 6; the gradient at these is 0.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-1.0, 3.0, 8.0])?.relu6()?.to_vec::<f32>()?, [0.0, 3.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools.
    #[op(samples = || unary(-3.0, 9.0), errors = no_bools)]
    pub fn relu6(&self) -> Result<Tensor> {
        elementwise!(Number relu6(self) |x| select(x.lt(zero()), zero(), select(x.gt(zero() + 6.0), zero() + 6.0, x)),
            |g, _y| [select(x.gt(zero()) & x.lt(zero() + 6.0), g, zero())])
    }

    /// The scaled exponential linear unit, which keeps mean and variance from layer to layer.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.selu()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn selu(&self) -> Result<Tensor> {
        elementwise!(Float selu(self) |x| SELU_SCALE * select(x.gt(zero()), x, x.expm1() * SELU_ALPHA))
    }

    /// `max(0, x) + min(0, alpha · (exp(x / alpha) - 1))` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-100.0, 2.0])?.celu_with(1.5)?.to_vec::<f32>()?, [-1.5, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `alpha` is 0.
    #[op(samples = || with_option(-2.0, 2.1, "alpha", &1.3.into()), errors = celu_errors)]
    pub fn celu(&self, options: impl Into<CeluOptions>) -> Result<Tensor> {
        let alpha = options.alpha;
        if alpha == 0.0 {
            bail!(Value, "celu", "alpha cannot be 0");
        }
        elementwise!(Float celu(self; alpha) |x; alpha| select(x.gt(zero()), x, (x / alpha).expm1() * alpha))
    }

    /// `x · tanh(softplus(x))` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.mish()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn mish(&self) -> Result<Tensor> {
        elementwise!(Float mish(self) |x| x * softplus(x).tanh(),
            |g, _y| [{
                let t = softplus(x).tanh();
                g * (t + x * x.sigmoid() * (1.0 - t * t))
            }])
    }

    /// `x / (1 + |x|)` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, -3.0])?.softsign()?.to_vec::<f32>()?, [0.5, -0.75]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn softsign(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.div(&self.abs()?.add(1.0)?);
        }
        elementwise!(Float softsign(self) |x| x / (1.0 + x.abs()))
    }

    /// A sigmoid of three straight lines: `x / 6 + 1/2`, but at least 0 and at most 1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-4.0, 0.0, 4.0])?.hardsigmoid()?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-4.0, 4.1))]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        elementwise!(Float hardsigmoid(self) |x| select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), zero() + 1.0, (x + 3.0) / 6.0)),
            |g, _y| [select(x.gt(zero() - 3.0) & x.lt(zero() + 3.0), g / 6.0, zero())])
    }

    /// `x · hardsigmoid(x)` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([-4.0, 3.0, 4.0])?.hardswish()?.to_vec::<f32>()?, [0.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-4.0, 4.1))]
    pub fn hardswish(&self) -> Result<Tensor> {
        elementwise!(Float hardswish(self) |x| select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), x, x * (x + 3.0) / 6.0)),
            |g, _y| [select(x.le(zero() - 3.0), zero(), select(x.ge(zero() + 3.0), g, g * (x / 3.0 + 0.5)))])
    }

    /// Each element, but at least `min_val` and at most `max_val`, by default -1 and 1; the gradient at these is 0.
    ///
    /// ```
    /// # use cotangent::{HardtanhOptions, Tensor, tensor};
    /// assert_eq!(tensor!([-2.0, 0.5, 2.0])?.hardtanh()?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// let wide = HardtanhOptions::new().min_val(-3.0).max_val(3.0);
    /// assert_eq!(tensor!([-2.0, 4.0])?.hardtanh_with(wide)?.to_vec::<f32>()?, [-2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools, the least value is above the greatest, or one is no number of the dtype.
    #[op(samples = || Ok([unary(-2.0, 2.1)?, vec![sample![spread([7], -2.0, 2.1)?; min_val = -0.3, max_val = 1.5]]].concat()), errors = hardtanh_errors)]
    pub fn hardtanh(&self, options: impl Into<HardtanhOptions>) -> Result<Tensor> {
        let HardtanhOptions { min_val, max_val } = options;
        if min_val.is_nan() || max_val.is_nan() || min_val > max_val {
            bail!(Value, "hardtanh", "min_val {min_val} is above max_val {max_val}");
        }
        if !self.dtype().is_float() && (min_val.fract() != 0.0 || max_val.fract() != 0.0) {
            bail!(DType, "hardtanh", "{min_val} and {max_val} are no numbers of {}", self.dtype());
        }
        let (min_val, max_val) = (Scalar::F64(min_val).lower_bound_in(self.dtype()), Scalar::F64(max_val).upper_bound_in(self.dtype()));
        elementwise!(Number hardtanh(self; min_val, max_val)
            |x; low, high| select(x.lt(low), low, select(x.gt(high), high, x)),
            |g, _y| [select(x.gt(low) & x.lt(high), g, zero())])
    }

    /// Each element, but 0 from `-lambd` to `lambd`, by default 1/2.
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

    /// Each element, moved towards 0 by `lambd`, by default 1/2, and 0 where it is nearer than that.
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
            bail!(Value, "softshrink", "lambd cannot be {lambd}");
        }
        elementwise!(Float softshrink(self; lambd)
            |x; limit| select(x.gt(limit), x - limit, select(x.lt(-limit), x + limit, x * 0.0)),
            |g, _y| [select(x.gt(limit) | x.lt(-limit), g, zero())])
    }

    /// `x - tanh(x)` of each element.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.tanhshrink()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || unary(-3.0, 3.1))]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        elementwise!(Float tanhshrink(self) |x| x - x.tanh())
    }

    /// Each element where it is above `threshold`, else `value`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.5, 2.0])?.threshold(1, -1)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a number does not fit the dtype.
    #[op(samples = threshold_samples, errors = threshold_errors)]
    pub fn threshold(&self, threshold: impl Into<Scalar>, value: impl Into<Scalar>) -> Result<Tensor> {
        for number in [threshold, value] {
            if number.beside(self.dtype()) != self.dtype() {
                bail!(DType, "threshold", "{number} is no number of {}", self.dtype());
            }
        }
        elementwise!(Number threshold(self; threshold, value)
            |x; threshold, value| select(x.le(threshold), value, x), |g, _y| [select(x.le(threshold), zero(), g)])
    }

    /// Each element where it is positive, else `weight` times it. The weight is one number, or one for each channel,
    /// which is dimension 1.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let weight = tensor!([0.25])?;
    /// assert_eq!(tensor!([-4.0, 2.0])?.prelu(&weight)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the weight does not fit.
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
            bail!(Shape, "prelu", "a weight of shape {weight:?} does not fit the {channels} channels of an input of shape {x:?}");
        };
        static OP: Elementwise =
            Elementwise::new("prelu", Domain::Float, 2, 0, |x, _| select(x[0].gt(zero()), x[0], x[0] * x[1]));
        OP.call(&[self, &weight], &[])
    }

    /// Each element where it is positive, else some of it: as much as is drawn for it between `lower` and `upper`
    /// with `training`, else their mean. By default 1/8, 1/3, and no training.
    ///
    /// ```
    /// # use cotangent::{RreluOptions, Tensor, tensor};
    /// assert_eq!(tensor!([-48.0, 2.0])?.rrelu()?.to_vec::<f32>()?, [-11.0, 2.0]);
    /// let drawn = tensor!([-1.0])?.rrelu_with(RreluOptions::new().training(true))?.item::<f32>()?;
    /// assert!((-1.0 / 3.0..=-0.125).contains(&drawn));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the lower end is above the upper.
    #[op(samples = || unary(-2.0, 2.1), errors = rrelu_errors, random)]
    pub fn rrelu(&self, options: impl Into<RreluOptions>) -> Result<Tensor> {
        let RreluOptions { lower, upper, training } = options;
        if lower.is_nan() || upper.is_nan() || lower > upper {
            bail!(Value, "rrelu", "lower {lower} is above upper {upper}");
        }
        if !training {
            return self.leaky_relu_with(0.5 * (lower + upper));
        }
        let slopes = self.rand_like()?.mul(upper - lower)?.add(lower)?;
        static OP: Elementwise =
            Elementwise::new("rrelu", Domain::Float, 2, 0, |x, _| select(x[0].gt(zero()), x[0], x[0] * x[1]));
        OP.call(&[self, &slopes], &[])
    }

    /// The first half of a dimension times the [`sigmoid`](Self::sigmoid) of the second.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([3.0, 0.0])?.glu(-1)?.to_vec::<f32>()?, [1.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or its size is not even.
    #[op(samples = glu_samples, errors = glu_errors)]
    pub fn glu(&self, #[default(-1)] dim: impl Into<Dim>) -> Result<Tensor> {
        let (a, b) = halves("glu", self, dim)?;
        a.mul(&b.sigmoid()?)
    }

    /// The [`silu`](Self::silu) of the first half of a dimension times the second.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 5.0])?.swiglu(-1)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or its size is not even.
    #[op(samples = glu_samples, errors = glu_errors)]
    pub fn swiglu(&self, #[default(-1)] dim: impl Into<Dim>) -> Result<Tensor> {
        let (a, b) = halves("swiglu", self, dim)?;
        a.silu()?.mul(&b)
    }

    /// [`softmax`](Self::softmax) of the negative elements: the smallest get most.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 1.0])?.softmin(0)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are bools, or there is no such dimension.
    #[op(autocast_cuda = f32, samples = || Ok(vec![sample![spread([3, 4], -2.0, 2.0)?, 0], sample![spread([2, 3, 2], -2.0, 2.0)?, 1]]), errors = softmin_errors, batch)]
    pub fn softmin(&self, dim: impl Into<Dim>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        match options.dtype {
            Some(dtype) => self.to_dtype(dtype)?.neg()?.softmax(dim),
            None => self.neg()?.softmax(dim),
        }
    }

    /// A random choice along a dimension that has a gradient: [`softmax`](Self::softmax) of these logits plus Gumbel
    /// noise, over the temperature `tau`. With `hard` the result is 1 for the largest and 0 for the others, and its
    /// gradient that of the soft one.
    ///
    /// ```
    /// # use cotangent::{GumbelSoftmaxOptions, Tensor, tensor};
    /// let logits = tensor!([[1.0, 2.0, 3.0]])?;
    /// let soft = logits.gumbel_softmax()?;
    /// assert!((soft.sum(..)?.item::<f32>()? - 1.0).abs() < 1e-6);
    /// let hard = logits.gumbel_softmax_with(GumbelSoftmaxOptions::new().hard(true))?;
    /// assert_eq!(hard.max(..)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, the temperature is not positive, or there is no such dimension.
    #[op(samples = || Ok(vec![sample![spread([3, 4], -2.0, 2.0)?], sample![spread([2, 3], -2.0, 2.0)?; tau = 0.7, dim = 0]]), errors = gumbel_errors, random)]
    pub fn gumbel_softmax(&self, options: impl Into<GumbelSoftmaxOptions>) -> Result<Tensor> {
        let GumbelSoftmaxOptions { tau, hard, dim: Dim(dim) } = options;
        if tau.is_nan() || tau <= 0.0 {
            bail!(Value, "gumbel_softmax", "tau cannot be {tau}");
        }
        float_only("gumbel_softmax", self)?;
        // Between 0 and 1, both excluded; the same for all dtypes.
        let uniform = self.rand_like_with(DType::F32)?.clamp(f64::from(f32::MIN_POSITIVE), 1.0 - f64::from(f32::EPSILON))?;
        let noise = uniform.to_dtype(DType::F64)?.log()?.neg()?.log()?.neg()?.to_dtype(self.dtype())?;
        let soft = self.add(&noise)?.div(tau)?.softmax(dim)?;
        if !hard {
            return Ok(soft);
        }
        let chosen = soft.detach().argmax(keepdim(dim))?;
        let one = Tensor::ones_with(chosen.shape(), (soft.dtype(), soft.device()))?;
        let choice = soft.detach().zeros_like()?.scatter_add(dim, &chosen, &one)?;
        choice.sub(soft.detach())?.add(&soft)
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
        error!["too many weights", "[4]", "3 channels", "[2, 3]"; sample![normal([2, 3], 1)?, normal([4], 1)?]],
        error!["a matrix", "[1, 3]"; sample![normal([2, 3], 1)?, normal([1, 3], 1)?]],
    ])
}

fn rrelu_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["bounds the wrong way round", "0.5", "0.3"; sample![normal([2], 1)?; lower = 0.5]]])
}

fn glu_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?],
        sample![spread([4, 3], -2.0, 2.0)?, 0],
        sample![spread([2, 6, 2], -2.0, 2.0)?, -2],
        sample![spread([0, 2], -2.0, 2.0)?, 1],
    ])
}

fn glu_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["an odd size", "3", "[2, 3]"; sample![normal([2, 3], 1)?]],
        error!["no such dimension", "2"; sample![normal([2, 2], 1)?, 2]],
    ])
}

fn softmin_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "2"; sample![normal([2, 2], 1)?, 2]]])
}

fn gumbel_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no temperature", "0"; sample![normal([2, 2], 1)?; tau = 0.0]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?]],
    ])
}
