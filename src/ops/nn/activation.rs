//! Smooth activation functions and gated linear units.

use crate::backend::spec::{Ordered, Real, Sym, select};
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::resolve_dim;
use crate::ops::arg::choices;
use crate::ops::elementwise::call::{elementwise, zero};
use crate::ops::elementwise::unary::{unary, with_option};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::options;
use crate::{DType, Result, Tensor};

macro_rules! from_f64 {
    ($($options:ident $field:ident),+) => {$(
        impl From<f64> for $options {
            fn from($field: f64) -> $options { $options::new().$field($field) }
        }
    )+};
}
pub(in crate::ops) use from_f64;

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
        bail!(Shape, op, "the size of dimension {dim} must be even, got {size} in shape {:?}", x.shape());
    }
    Ok((x.narrow(dim, 0, size / 2)?, x.narrow(dim, size / 2, size / 2)?))
}

choices! {
    /// The form of [`Tensor::gelu`].
    ///
    /// ```
    /// use cotangent::{tensor, options::Gelu};
    /// let x = tensor!([1.0])?;
    /// assert!(x.gelu()?.allclose_with(&x.gelu_with(Gelu::Tanh)?, (1e-3, 0.0))?);
    /// assert_eq!(Gelu::Tanh.name(), "tanh");
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum Gelu {
        /// The exact form, with the error function.
        #[default]
        Erf = "none",
        /// The approximation with the hyperbolic tangent.
        Tanh = "tanh",
    }
}

options! {
    /// The options of [`Tensor::gelu_with`]. A [`Gelu`] stands for `approximate`.
    ///
    /// ```
    /// use cotangent::{tensor, options::{Gelu, GeluOptions}};
    /// let y = tensor!([0.0])?.gelu_with(GeluOptions::new().approximate(Gelu::Tanh))?;
    /// assert_eq!(y.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GeluOptions {
        /// The exact form, or the approximation with `tanh`.
        approximate: Gelu = Gelu::Erf,
    }
}

impl From<Gelu> for GeluOptions {
    fn from(approximate: Gelu) -> GeluOptions {
        GeluOptions::new().approximate(approximate)
    }
}

options! {
    /// The options of [`Tensor::softplus_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::SoftplusOptions};
    /// let options = SoftplusOptions::new().beta(2.0).threshold(10.0);
    /// assert_eq!(tensor!([6.0])?.softplus_with(options)?.item::<f32>()?, 6.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SoftplusOptions {
        /// The factor of `x`: the larger, the closer to relu.
        beta: f64 = 1.0,
        /// Where `beta · x` exceeds this, the result is `x`.
        threshold: f64 = 20.0,
    }
}

/// # Activations
#[ops]
impl Tensor {
    /// The logistic function, `1 / (1 + exp(-x))`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.sigmoid()?.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.0), aliases = ["special_expit", "expit"])]
    pub fn sigmoid(&self) -> Result<Tensor> {
        elementwise!(Float sigmoid(self) |x| x.sigmoid(), |g, y| [g.sigmoid_grad(y)])
    }

    /// The sigmoid linear unit, `x · sigmoid(x)`, also called swish.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.silu()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    #[doc(alias = "swish")]
    pub fn silu(&self) -> Result<Tensor> {
        elementwise!(Float silu(self) |x| x.silu(),
            |g, _y| [g.silu_grad(x)])
    }

    /// `log(1 + exp(beta · x)) / beta`, a smooth approximation of relu. Where `beta · x` exceeds `threshold`, it is
    /// `x`. The defaults are 1 and 20.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::SoftplusOptions};
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

    /// The Gaussian error linear unit, `x · Φ(x)`, by the error function or, as an option, by the approximation with
    /// `tanh`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::Gelu};
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

    /// The logarithm of [`sigmoid`](Self::sigmoid), computed stably.
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

    /// `x · tanh(softplus(x))`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0, 100.0])?.mish()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(in_place, samples = || unary(-3.0, 3.1))]
    pub fn mish(&self) -> Result<Tensor> {
        elementwise!(Float mish(self) |x| x * softplus(x).tanh(),
        |g, _y| [{
            let t = softplus(x).tanh();
            g * (t + x * x.sigmoid() * (1.0 - t * t))
        }])
    }

    /// `x / (1 + |x|)`.
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

    /// `x - tanh(x)`.
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

    /// The gated linear unit: the first half of a dimension times the [`sigmoid`](Self::sigmoid) of the second half.
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

    /// The [`silu`](Self::silu) of the first half of a dimension times the second half.
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
