//! Softmax, log-softmax, softmin, log-sum-exp and Gumbel-softmax.

use crate::autograd::{BackwardContext, is_grad_enabled, no_grad};
use crate::backend::spec::{CenteredReduce, Formula, Real, Reduce, SoftmaxKind};
use crate::error::bail;
use crate::layout::resolve_dims;
use crate::layout::{Dim, Dims, ReduceDims};
use crate::ops::reduce::sums::{DTypeOptions, ReducePlan, dim_errors, float_only, over_dims};
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::{elementwise::complex_forms, ops};
use crate::options::options;
use crate::tensor::batch::behind;
use crate::{DType, Result, Tensor, backend, keepdim};
use smallvec::smallvec;
use std::sync::LazyLock;

/// Runs the kernel of `kind` on tensors of one shape and dtype.
fn rows<const N: usize>(
    op: &'static str,
    kind: SoftmaxKind,
    inputs: [&Tensor; N],
    dim: Option<usize>,
) -> Result<Tensor> {
    if inputs.iter().any(|x| x.is_batched()) {
        return Tensor::over_batch(&inputs, |level, all| {
            // A scalar is a row of one element.
            let single = dim.is_none();
            let own = |at: usize| {
                let x = all[at].expand(behind(level.size, inputs[at].layout().shape())?)?;
                if single { x.unsqueeze(1) } else { Ok(x) }
            };
            let own: Vec<Tensor> = (0..N).map(own).collect::<Result<_>>()?;
            let y = rows(
                op,
                kind,
                std::array::from_fn::<&Tensor, N, _>(|at| &own[at]),
                Some(dim.map_or(1, |dim| dim + 1)),
            )?;
            if single { y.squeeze(1) } else { Ok(y) }
        });
    }
    let like = inputs[0];
    let mut out = Tensor::empty(op, like.layout().shape().clone(), like.dtype(), like.device())?;
    backend::softmax(op, kind, Tensor::views(inputs, inputs.map(Tensor::layout))?, dim, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

/// The resolved dimension; `None` for a scalar, which is one row.
fn dimension(op: &'static str, x: &Tensor, dim: Dim) -> Result<Option<usize>> {
    float_only(op, x)?;
    Ok(resolve_dims(op, &Dims::from(dim), x.rank())?.first().copied())
}

fn softmax_grad(g: &Tensor, y: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    if !is_grad_enabled() {
        return rows("softmax", SoftmaxKind::SoftmaxGrad, [g, y], dim);
    }
    let dot = g.mul(y)?.sum(keepdim(dim.unwrap_or(0)))?;
    g.sub(&dot)?.mul(y)
}

fn log_softmax_grad(g: &Tensor, y: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    if !is_grad_enabled() {
        return rows("log_softmax", SoftmaxKind::LogSoftmaxGrad, [g, y], dim);
    }
    g.sub(&y.exp()?.mul(&g.sum(keepdim(dim.unwrap_or(0)))?)?)
}

options! {
    /// The options of [`Tensor::gumbel_softmax_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::GumbelSoftmaxOptions};
    /// let options = GumbelSoftmaxOptions::new().tau(0.5).dim(0);
    /// assert_eq!(tensor!([[1.0, 2.0]])?.gumbel_softmax_with(options)?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GumbelSoftmaxOptions {
        /// The temperature: the lower, the closer to one-hot.
        tau: f64 = 1.0,
        /// Whether the result is one-hot.
        hard: bool = false,
        /// The dimension of the softmax.
        dim: Dim = Dim(-1),
    }
}

/// # Softmax
#[ops]
impl Tensor {
    /// The softmax along a dimension: `exp(x) / Σ exp(x)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let p = tensor!([[0.0, 0.0], [1000.0, 0.0]])?.softmax(-1)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or there is no such dimension.
    #[op(autocast_cuda = f32, samples = row_samples, errors = row_errors, aliases = ["special_softmax"], batch)]
    pub fn softmax(&self, dim: impl Into<Dim>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.softmax(dim);
        }
        let dim = dimension("softmax", self, dim)?;
        rows("softmax", SoftmaxKind::Softmax, [self], dim)?.record("softmax", &[self], |save| {
            let y = save.save_output();
            move |ctx: &BackwardContext, g: &Tensor| Ok(smallvec![Some(softmax_grad(g, &ctx.output(&y), dim)?)])
        })
    }

    /// The logarithm of [`softmax`](Self::softmax) along a dimension, computed stably: `x - log Σ exp(x)`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let p = tensor!([1000.0, 0.0])?.log_softmax(0)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.0, -1000.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or there is no such dimension.
    #[op(autocast_cuda = f32, samples = row_samples, errors = row_errors, aliases = ["special_log_softmax"], batch)]
    pub fn log_softmax(&self, dim: impl Into<Dim>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.log_softmax(dim);
        }
        let dim = dimension("log_softmax", self, dim)?;
        rows("log_softmax", SoftmaxKind::LogSoftmax, [self], dim)?.record("log_softmax", &[self], |save| {
            let y = save.save_output();
            move |ctx: &BackwardContext, g: &Tensor| Ok(smallvec![Some(log_softmax_grad(g, &ctx.output(&y), dim)?)])
        })
    }

    /// `log Σ exp(x)` over some dimensions, or all (`..`), computed without overflow. See [`sum`](Self::sum) for the
    /// dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, keepdim, tensor};
    /// let x = tensor!([[1000.0, 1000.0], [0.0, f32::NEG_INFINITY]])?;
    /// assert_eq!(x.logsumexp(1)?.to_vec::<f32>()?, [1000.6932, 0.0]);
    /// assert_eq!(x.logsumexp(keepdim(1))?.shape(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(autocast_cuda = f32, samples = || over_dims(-2.0, 2.0, true), errors = dim_errors, aliases = ["special_logsumexp"])]
    pub fn logsumexp(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return complex_forms::logsumexp(self, over);
        }
        let x = self.to_dtype(self.dtype().to_float())?;
        let plan = ReducePlan::new("logsumexp", &x, &over)?;
        no_grad(|| log_sum_exp(&plan, &x))?.record("logsumexp", &[&x], |save| {
            let (x, y) = (save.save(&x), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                let y = ctx.output(&y);
                if !is_grad_enabled() {
                    return Ok(smallvec![Some(plan.map("logsumexp", (&*SHARE, &[]), &x, &[&y, g])?)]);
                }
                let weights = x.sub(&plan.spread(&y)?)?.exp()?;
                Ok(smallvec![Some(plan.spread(g)?.mul(&weights)?)])
            }
        })
    }

    /// The [`softmax`](Self::softmax) of the negative elements.
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

    /// Samples from the Gumbel-softmax distribution: the [`softmax`](Self::softmax) of logits plus Gumbel noise,
    /// divided by the temperature `tau`. With `hard` the result is one-hot, with the gradient of the soft sample.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::GumbelSoftmaxOptions};
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
            bail!(Value, "gumbel_softmax", "tau must be positive, got {tau}");
        }
        float_only("gumbel_softmax", self)?;
        // In the open interval (0, 1), the same for all dtypes.
        let uniform =
            self.rand_like_with(DType::F32)?.clamp(f64::from(f32::MIN_POSITIVE), 1.0 - f64::from(f32::EPSILON))?;
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

fn log_sum_exp(plan: &ReducePlan, x: &Tensor) -> Result<Tensor> {
    // It is read twice.
    x.mark_needed();
    // Half precision is exponentiated and summed in f32.
    let max = plan.reduce("logsumexp", Reduce::Max, x, x.dtype().compute_dtype())?;
    // Infinite elements minus an infinite maximum would be NaN.
    let max = max.abs()?.lt(f64::INFINITY)?.where_(&max, 0.0)?;
    plan.reduce_centered("logsumexp", CenteredReduce::LogSumExp, x, &max, x.dtype())
}

/// The derivative of `log Σ exp(x)`, from an element, the result and the cotangent.
static SHARE: LazyLock<Formula> =
    LazyLock::new(|| Formula::new("logsumexp_backward", 3, 0, |x, _| x[2] * (x[0] - x[1]).exp()));

fn row_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[3, 4])?, 1],
        sample![x(&[3, 4])?, 0],
        sample![x(&[2, 3, 4])?, -2],
        sample![x(&[7])?, 0],
        sample![x(&[0, 3])?, 1],
        sample![x(&[3, 0])?, 1],
        // The softmax of a scalar is 1, whatever its value.
        sample![x(&[])?, -1].zero_derivative(),
    ])
}

fn row_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]],
        error!["integers", "i64", "cast"; sample![ints(&[1, 2], [2])?, 0]],
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

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::autograd::{GradOptions, grad_with};
    use crate::error::err;

    /// The gradient, without and with a recorded backward pass.
    fn both(call: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor, g: &Tensor) -> Result<[Tensor; 2]> {
        let gradient = |create_graph: bool| -> Result<Tensor> {
            let options = GradOptions::new().gradient(g).create_graph(create_graph);
            let found = grad_with(&call(x)?, &[x], options)?.pop().flatten();
            found.ok_or_else(|| err!(Graph, "test", "there is no gradient"))
        };
        let (fused, recorded) = (gradient(false)?, gradient(true)?);
        assert!(recorded.requires_grad() && !fused.requires_grad());
        Ok([fused, recorded])
    }

    /// The fused derivative is that of the formula that `create_graph` records.
    #[test]
    fn fused_and_recorded_derivatives_agree() -> Result<()> {
        let calls: [(&str, fn(&Tensor, isize) -> Result<Tensor>); 2] =
            [("softmax", |x, dim| x.softmax(dim)), ("log_softmax", |x, dim| x.log_softmax(dim))];
        for (name, call) in calls {
            for (shape, dim) in [(&[3, 5][..], 1), (&[3, 20], 0), (&[2, 40, 9], -2), (&[], 0)] {
                let x = normal(shape, 1)?.requires_grad_(true)?;
                let [fused, recorded] = both(|x| call(x, dim), &x, &normal(shape, 2)?)?;
                assert!(fused.allclose_with(&recorded, (1e-12, 1e-14))?, "{name} of {shape:?}: {fused} and {recorded}");
            }
        }
        Ok(())
    }

    #[test]
    fn fused_and_recorded_derivatives_of_logsumexp_and_variance_agree() -> Result<()> {
        let calls: [(&str, fn(&Tensor, ReduceDims) -> Result<Tensor>); 2] =
            [("logsumexp", |x, over| x.logsumexp(over)), ("var", |x, over| x.var(over))];
        for (name, call) in calls {
            for over in [ReduceDims::from(0), ReduceDims::from(-1), ReduceDims::from([0, 2]), ReduceDims::from(..)] {
                let x = normal([5, 20, 30], 1)?.requires_grad_(true)?;
                let g = normal(call(&x, over.clone())?.shape(), 2)?;
                let [fused, recorded] = both(|x| call(x, over.clone()), &x, &g)?;
                assert!(
                    fused.allclose_with(&recorded, (1e-12, 1e-14))?,
                    "{name} over {over:?}: {fused} and {recorded}"
                );
            }
        }
        Ok(())
    }

    #[test]
    fn infinite_rows_have_infinite_logarithms() -> Result<()> {
        let inf = f64::INFINITY;
        let x = Tensor::from_vec(vec![-inf, -inf, inf, 1.0, inf, inf, -inf, 2.0, inf, -inf], [5, 2])?;
        assert_eq!(x.logsumexp(1)?.to_vec::<f64>()?, [-inf, inf, inf, 2.0, inf]);
        assert_eq!(Tensor::zeros([2, 0])?.logsumexp(1)?.to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
        Ok(())
    }
}
