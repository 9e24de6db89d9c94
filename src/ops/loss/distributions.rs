//! Losses by distributions: the Kullback-Leibler divergence, and Gaussian and Poisson negative log-likelihoods.

use crate::backend::spec::{Ordered, Real, Sym, select};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::arg::choices;
use crate::ops::elementwise::call::{Domain, Elementwise, elementwise, zero};
use crate::ops::loss::cross_entropy::{from_reduction, loss_dtype, pair_errors, same_rank, same_shape};
use crate::ops::loss::elementwise::{constant, losses_of, pair_samples, within};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{Reduction, Result, Scalar, Tensor};

choices! {
    /// How the terms of a divergence are reduced.
    ///
    /// ```
    /// use cotangent::options::KlReduction;
    /// assert_eq!(KlReduction::BatchMean.name(), "batchmean");
    /// ```
    pub enum KlReduction {
        /// No reduction.
        None = "none",
        /// The mean of all terms.
        #[default]
        Mean = "mean",
        /// The sum of all terms.
        Sum = "sum",
        /// The sum divided by the size of the first dimension: the mean divergence per example.
        BatchMean = "batchmean",
    }
}

options! {
    /// The options of [`Tensor::kl_div_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::{KlDivOptions, KlReduction}};
    /// let x = Tensor::zeros([2, 4])?.log_softmax(1)?;
    /// let options = KlDivOptions::new().reduction(KlReduction::BatchMean).log_target(true);
    /// assert_eq!(x.kl_div_with(&x, options)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct KlDivOptions {
        /// How the terms are reduced.
        reduction: KlReduction = KlReduction::Mean,
        /// Whether the target holds log-probabilities as well.
        log_target: bool = false,
    }
}

options! {
    /// The options of [`Tensor::gaussian_nll_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::GaussianNllLossOptions};
    /// let options = GaussianNllLossOptions::new().full(true);
    /// let loss = tensor!([0.0])?.gaussian_nll_loss_with(&tensor!([0.0])?, 1.0, options)?;
    /// assert!((loss.item::<f32>()? - 0.918_938_5).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GaussianNllLossOptions {
        /// Whether the constant `ln(2π) / 2` is added.
        full: bool = false,
        /// The lower bound of the variance.
        eps: f64 = 1e-6,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::poisson_nll_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::PoissonNllLossOptions};
    /// let options = PoissonNllLossOptions::new().log_input(false).eps(0.0);
    /// let loss = tensor!([1.0])?.poisson_nll_loss_with(&tensor!([5.0])?, options)?;
    /// assert_eq!(loss.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PoissonNllLossOptions {
        /// Whether the input holds log-rates instead of rates.
        log_input: bool = true,
        /// Whether to add Stirling's approximation of `ln(target!)`.
        full: bool = false,
        /// A constant added to the rate before the logarithm.
        eps: f64 = 1e-8,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

from_reduction!(GaussianNllLossOptions, PoissonNllLossOptions);

static GAUSSIAN: Elementwise = Elementwise::new("gaussian_nll_loss", Domain::Float, 3, 2, |x, p| {
    let (d, var) = (x[0] - x[1], select(x[2].lt(p[0]), p[0], x[2]));
    (var.ln() + d * d / var) * 0.5 + p[1]
})
.with_gradient(|g, x, _, p| {
    // The bound is not differentiated, so that a variance below it still gets a gradient.
    let (d, var) = (x[0] - x[1], select(x[2].lt(p[0]), p[0], x[2]));
    let slope = g * d / var;
    vec![Some(slope), Some(-slope), Some(g * 0.5 * (1.0 / var - d * d / (var * var)))]
});

/// Half the logarithm of 2π.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_8;

/// Stirling's approximation of `ln(t!)` for `t` above 1, else 0.
fn stirling(t: Sym) -> Sym {
    select(t.gt(constant(1.0)), t * t.ln() - t + t.ln() * 0.5 + HALF_LN_TAU, zero())
}

static POISSON_LOG: Elementwise = Elementwise::new("poisson_nll_loss", Domain::Float, 2, 2, |x, p| {
    x[0].exp() - x[1] * x[0] + select(p[1].gt(zero()), stirling(x[1]), zero())
});

static POISSON: Elementwise = Elementwise::new("poisson_nll_loss", Domain::Float, 2, 2, |x, p| {
    x[0] - x[1] * (x[0] + p[0]).ln() + select(p[1].gt(zero()), stirling(x[1]), zero())
});

/// # Losses of distributions
#[ops]
impl Tensor {
    /// The Kullback-Leibler divergence from the log-probabilities of this tensor to the probabilities in `target`: `t ·
    /// (ln(t) - x)` elementwise. The mean is over all elements, unless the options ask for `batchmean`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let loss = tensor!([[0.5, 0.5]])?.log()?.kl_div(&tensor!([[1.0, 0.0]])?)?;
    /// assert_eq!(loss.item::<f32>()?, std::f32::consts::LN_2 / 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or `batchmean` is requested for a 0-dimensional tensor.
    #[op(samples = kl_samples, errors = kl_errors, rounds)]
    pub fn kl_div(&self, target: &Tensor, options: impl Into<KlDivOptions>) -> Result<Tensor> {
        same_shape("kl_div", self, target)?;
        let dtype = loss_dtype("kl_div", &[self, target])?;
        let (x, t) = (self.to_dtype(dtype)?, target.to_dtype(dtype)?);
        let terms = if options.log_target {
            let (x, t) = (Operand::from(&x), &t);
            elementwise!(Float kl_div(t, x) |t, x| t.exp() * (t - x))?
        } else {
            t.xlogy(&t)?.sub(&t.mul(&x)?)?
        };
        match options.reduction {
            KlReduction::None => Ok(terms),
            KlReduction::Sum => terms.sum(..),
            KlReduction::Mean => Reduction::Mean.of(&terms),
            KlReduction::BatchMean => match self.shape().first() {
                Some(&batch) => terms.sum(..)?.div(batch as f64),
                None => bail!(Shape, "kl_div", "reduction batchmean requires a batch dimension, got shape []"),
            },
        }
    }

    /// The negative log-likelihood of `target` under normal distributions with the means of this tensor and the
    /// variances `var`, a number or a tensor that broadcasts to the means. A dimension of the target may have size 1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([1.0])?.gaussian_nll_loss(&tensor!([3.0])?, 1.0)?;
    /// assert_eq!(loss.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, or a variance is negative. Variances are not checked on a GPU.
    #[op(samples = gaussian_samples, errors = gaussian_errors, rounds)]
    pub fn gaussian_nll_loss<'a>(
        &self,
        target: &Tensor,
        var: impl Into<Operand<'a>>,
        options: impl Into<GaussianNllLossOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "gaussian_nll_loss";
        let GaussianNllLossOptions { full, eps, reduction } = options;
        same_rank(OP, self, target)?;
        let var = var.resolve(self.dtype().to_float(), self.device())?;
        let (all, own) = (self.layout().shape(), var.layout().shape());
        // One variance per row.
        let short = own.len() + 1 == all.len() && all[..own.len()] == own[..];
        let var = if short { var.unsqueeze(-1)? } else { var.into_owned() };
        if !broadcast(OP, &[all, var.layout().shape()]).is_ok_and(|both| both == *all) {
            bail!(Shape, OP, "var must broadcast to shape {all:?}, got shape {:?}", var.shape());
        }
        let dtype = loss_dtype(OP, &[self, target, &var])?;
        within(OP, "var", &var, 0.0, f64::INFINITY)?;
        let params = [Scalar::F64(eps), Scalar::F64(if full { HALF_LN_TAU } else { 0.0 })];
        reduction.of(&GAUSSIAN.call_as(&[self, target, &var], &params, dtype, dtype)?)
    }

    /// The negative log-likelihood of `target` under Poisson distributions whose log-rates are this tensor: `exp(x) - t
    /// · x`. An option takes the rates instead.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([0.0])?.poisson_nll_loss(&tensor!([5.0])?)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[op(samples = poisson_samples, errors = pair_errors, rounds)]
    pub fn poisson_nll_loss(&self, target: &Tensor, options: impl Into<PoissonNllLossOptions>) -> Result<Tensor> {
        let PoissonNllLossOptions { log_input, full, eps, reduction } = options;
        let function = if log_input { &POISSON_LOG } else { &POISSON };
        reduction.of(&losses_of("poisson_nll_loss", function, [self, target], &[eps, f64::from(u8::from(full))])?)
    }
}

fn kl_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-3.0, -0.1), (0.1, 0.9), Ok)?;
    all.extend(pair_samples((-3.0, -0.1), (-2.0, -0.2), |sample| Ok(sample.with("log_target", true)))?);
    all.push(sample![spread([2, 3], -3.0, -0.1)?, spread([2, 3], 0.1, 0.9)?; reduction = KlReduction::BatchMean]);
    Ok(all)
}

fn kl_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pair_errors()?;
    let x = spread([], 0.1, 0.9)?;
    all.push(error!["no batch", "batchmean", "[]"; sample![&x, &x; reduction = KlReduction::BatchMean]]);
    Ok(all)
}

fn gaussian_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-1.0, 1.0), (-0.4, 1.9), |sample| Ok(sample.with("var", 0.7)))?;
    for var in [&[2, 3][..], &[2], &[2, 1], &[1, 3]] {
        let sample = sample![spread([2, 3], -1.0, 1.0)?, spread([2, 3], -0.4, 1.9)?, spread(var, 0.3, 2.0)?];
        all.push(sample.with("full", true).with("eps", 0.1));
    }
    all.push(sample![spread([2, 3], -1.0, 1.0)?, spread([2, 1], -0.4, 1.9)?, spread([2], 0.3, 2.0)?]);
    Ok(all)
}

fn gaussian_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["shapes that differ", "[2, 3]", "[3]"; sample![&x, normal([3], 2)?, 1.0]],
        error!["sizes that differ", "[2, 3]", "[2, 2]"; sample![&x, normal([2, 2], 2)?, 1.0]],
        error!["other variances", "[4]", "[2, 3]"; sample![&x, &x, spread([4], 0.1, 1.0)?]],
        error!["a negative variance", "-1"; sample![&x, &x, -1.0]],
    ])
}

fn poisson_samples() -> Result<Vec<Sample>> {
    let mut all = pair_samples((-1.0, 1.0), (0.3, 4.9), |sample| Ok(sample.with("full", true)))?;
    all.extend(pair_samples((0.3, 2.0), (0.3, 4.9), |sample| Ok(sample.with("log_input", false).with("eps", 0.01)))?);
    Ok(all)
}
