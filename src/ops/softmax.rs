//! Softmax, its logarithm, and the logarithm of a sum of exponentials.

use super::formula::Real;
use super::reduce::{ReducePlan, dim_error_cases, dim_samples, float_only, int_error_case};
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::{BackwardContext, is_grad_enabled, no_grad};
use crate::backend;
use crate::backend::cpu::elementwise::map::{Floats, Formula};
use crate::backend::cpu::nn::softmax::SoftmaxKind;
use crate::backend::cpu::reduce::{CenteredReduce, Reduce};
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::layout::resolve_dims;
use crate::{Dims, Result, Tensor};
use smallvec::smallvec;

/// `kind` of tensors of one shape and dtype.
fn rows<const N: usize>(
    op: &'static str,
    kind: SoftmaxKind,
    inputs: [&Tensor; N],
    dim: Option<usize>,
) -> Result<Tensor> {
    let like = inputs[0];
    let mut out = Tensor::empty(op, like.layout().shape().clone(), like.dtype(), like.device())?;
    backend::softmax(op, kind, Tensor::views(inputs, inputs.map(Tensor::layout))?, dim, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

/// The dimension, if it is one: a scalar has none, and is a row by itself.
fn dimension(op: &'static str, x: &Tensor, dim: isize) -> Result<Option<usize>> {
    float_only(op, x)?;
    Ok(resolve_dims(op, &Dims::from(dim), x.rank())?.first().copied())
}

fn softmax_grad(g: &Tensor, y: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    if !is_grad_enabled() {
        return rows("softmax", SoftmaxKind::SoftmaxGrad, [g, y], dim);
    }
    let dot = g.mul(y)?.sum_dim(dim.unwrap_or(0), true)?;
    g.sub(&dot)?.mul(y)
}

fn log_softmax_grad(g: &Tensor, y: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    if !is_grad_enabled() {
        return rows("log_softmax", SoftmaxKind::LogSoftmaxGrad, [g, y], dim);
    }
    g.sub(&y.exp()?.mul(&g.sum_dim(dim.unwrap_or(0), true)?)?)
}

impl Tensor {
    /// `exp(x) / Σ exp(x)` along a dimension: positive numbers that add up to 1.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let p = Tensor::new([[0.0, 0.0], [1000.0, 0.0]])?.softmax(-1)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or there is no such dimension.
    #[track_caller]
    pub fn softmax(&self, dim: isize) -> Result<Tensor> {
        let dim = dimension("softmax", self, dim)?;
        rows("softmax", SoftmaxKind::Softmax, [self], dim)?.record("softmax", &[self], |save| {
            let y = save.save_output();
            move |ctx: &BackwardContext, g: &Tensor| Ok(smallvec![Some(softmax_grad(g, &ctx.output(&y), dim)?)])
        })
    }

    /// The logarithm of [`softmax`](Self::softmax), exact where that is tiny: `x - log Σ exp(x)` along a dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let p = Tensor::new([1000.0, 0.0])?.log_softmax(0)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.0, -1000.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or there is no such dimension.
    #[track_caller]
    pub fn log_softmax(&self, dim: isize) -> Result<Tensor> {
        let dim = dimension("log_softmax", self, dim)?;
        rows("log_softmax", SoftmaxKind::LogSoftmax, [self], dim)?.record("log_softmax", &[self], |save| {
            let y = save.save_output();
            move |ctx: &BackwardContext, g: &Tensor| Ok(smallvec![Some(log_softmax_grad(g, &ctx.output(&y), dim)?)])
        })
    }

    /// `log Σ exp(x)` over some dimensions, also where `exp(x)` itself would not be finite. The dimensions go away or,
    /// with `keepdim`, stay with size 1; to name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1000.0, 1000.0], [0.0, f64::NEG_INFINITY]])?;
    /// assert_eq!(x.logsumexp(1, false)?.to_vec::<f32>()?, [1000.6932, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[track_caller]
    pub fn logsumexp(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        let x = self.to_dtype(self.dtype().to_float())?;
        let plan = ReducePlan::new("logsumexp", &x, &dims.into(), keepdim)?;
        no_grad(|| log_sum_exp(&plan, &x))?.record("logsumexp", &[&x], |save| {
            let (x, y) = (save.save(&x), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                if !is_grad_enabled() {
                    let slope = Floats(Share);
                    return Ok(smallvec![Some(plan.map("logsumexp", slope, &x, &ctx.output(&y), g)?)]);
                }
                let weights = x.sub(&plan.spread(&ctx.output(&y))?)?.exp()?;
                Ok(smallvec![Some(plan.spread(g)?.mul(&weights)?)])
            }
        })
    }
}

fn log_sum_exp(plan: &ReducePlan, x: &Tensor) -> Result<Tensor> {
    // Half precision is summed, and its exponentials taken, in f32.
    // It is read twice.
    x.mark_needed();
    let max = plan.reduce("logsumexp", Reduce::Max, x, compute_dtype(x.dtype()))?;
    // An infinite maximum would make NaN of infinities that it is subtracted from.
    let max = max.abs()?.lt(f64::INFINITY)?.where_(&max, 0.0)?;
    plan.reduce_centered("logsumexp", CenteredReduce::LogSumExp, x, &max)
}

/// The derivative of `log Σ exp(x)`, from an element, the result and the cotangent.
struct Share;

impl<T: Real> Formula<T, 3> for Share {
    #[inline(always)]
    fn at(&self, [x, y, g]: [T; 3]) -> T {
        g * (x - y).exp()
    }
}

type AlongDim = fn(&Tensor, isize) -> Result<Tensor>;

fn row_samples(label: &str, call: AlongDim) -> Result<Vec<Sample>> {
    let cases: [(&[usize], isize); 6] =
        [(&[3, 4], 1), (&[3, 4], 0), (&[2, 3, 4], -2), (&[7], 0), (&[0, 3], 1), (&[3, 0], 1)];
    cases
        .into_iter()
        .map(|(shape, dim)| Ok(Sample::new(label, vec![spread(shape, -2.0, 2.0)?], move |x| call(&x[0], dim))))
        .chain([Ok(Sample::new(label, vec![spread((), -2.0, 2.0)?], move |x| call(&x[0], -1)).with_zero_derivative())])
        .collect()
}

fn row_refusals(name: &'static str, call: AlongDim, on_ints: fn(&Tensor) -> Result<Tensor>) -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        ErrorCase::new("no such dimension", &[name, "2", "rank 2"], move || call(&x, 2)),
        int_error_case(name, on_ints)?,
    ])
}

static SOFTMAX: Op = Op {
    name: "softmax",
    samples: || row_samples("softmax", Tensor::softmax),
    error_cases: || row_refusals("softmax", Tensor::softmax, |x| x.softmax(0)),
};

static LOG_SOFTMAX: Op = Op {
    name: "log_softmax",
    samples: || row_samples("log_softmax", Tensor::log_softmax),
    error_cases: || row_refusals("log_softmax", Tensor::log_softmax, |x| x.log_softmax(0)),
};

static LOGSUMEXP: Op = Op {
    name: "logsumexp",
    samples: || dim_samples("logsumexp", -2.0, 2.0, true, Tensor::logsumexp),
    error_cases: || dim_error_cases("logsumexp", Tensor::logsumexp),
};

pub(crate) static OPS: &[&Op] = &[&SOFTMAX, &LOG_SOFTMAX, &LOGSUMEXP];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{Backward, grad_with};

    /// The fused derivative is that of the formula that `create_graph` records.
    #[test]
    fn fused_and_recorded_derivatives_agree() -> Result<()> {
        let calls: [(&str, AlongDim); 2] = [("softmax", Tensor::softmax), ("log_softmax", Tensor::log_softmax)];
        for (name, call) in calls {
            for (shape, dim) in [(&[3, 5][..], 1), (&[3, 20], 0), (&[2, 40, 9], -2), (&[], 0)] {
                let x = normal(shape, 1)?.requires_grad_(true)?;
                let g = normal(shape, 2)?;
                let gradient = |create_graph| -> Result<Vec<Option<Tensor>>> {
                    let how = Backward { create_graph, ..Backward::default() };
                    grad_with(&call(&x, dim)?, &[&x], Some(&g), how)
                };
                let (fused, recorded) = (gradient(false)?, gradient(true)?);
                let (Some(Some(fused)), Some(Some(recorded))) = (fused.first(), recorded.first()) else {
                    crate::error::bail!(Graph, "test", "{name} has no gradient");
                };
                assert!(recorded.requires_grad() && !fused.requires_grad());
                assert!(fused.allclose(recorded, 1e-12, 1e-14)?, "{name} of {shape:?}: {fused} and {recorded}");
            }
        }
        Ok(())
    }

    #[test]
    fn fused_and_recorded_derivatives_of_logsumexp_and_variance_agree() -> Result<()> {
        let calls: [(&str, fn(&Tensor, Dims) -> Result<Tensor>); 2] =
            [("logsumexp", |x, dims| x.logsumexp(dims, false)), ("var_dim", |x, dims| x.var_dim(dims, 1, false))];
        for (name, call) in calls {
            for dims in [Dims::from(0), Dims::from(-1), Dims::from([0, 2]), Dims::All] {
                let x = normal([5, 20, 30], 1)?.requires_grad_(true)?;
                let y = call(&x, dims.clone())?;
                let g = normal(y.shape(), 2)?;
                let gradient = |how| -> Result<Option<Tensor>> {
                    Ok(grad_with(&call(&x, dims.clone())?, &[&x], Some(&g), how)?.pop().flatten())
                };
                let (Some(fused), Some(recorded)) = (gradient(Backward::default())?, gradient(Backward::CREATE)?)
                else {
                    crate::error::bail!(Graph, "test", "{name} has no gradient");
                };
                assert!(recorded.requires_grad() && !fused.requires_grad());
                assert!(fused.allclose(&recorded, 1e-12, 1e-14)?, "{name} over {dims:?}: {fused} and {recorded}");
            }
        }
        Ok(())
    }

    #[test]
    fn infinite_rows_have_infinite_logarithms() -> Result<()> {
        let inf = f64::INFINITY;
        let x = Tensor::from_vec(vec![-inf, -inf, inf, 1.0, inf, inf, -inf, 2.0, inf, -inf], [5, 2])?;
        assert_eq!(x.logsumexp(1, false)?.to_vec::<f64>()?, [-inf, inf, inf, 2.0, inf]);
        assert_eq!(Tensor::zeros([2, 0])?.logsumexp(1, false)?.to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
        Ok(())
    }
}
