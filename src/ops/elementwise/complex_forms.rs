//! Functions of complex numbers that neither a formula of both parts nor a separate function of each part gives. They are
//! composed of other operations, and differentiated through these.

use crate::layout::ReduceDims;
use crate::layout::Sizes;
use crate::ops::reduce::sums::ReducePlan;
use crate::{Result, Tensor, keepdim};
use smallvec::SmallVec;

impl Tensor {
    /// Applies a function to the real parts of two tensors, and to the imaginary parts; those of real numbers are 0.
    #[track_caller]
    pub(in crate::ops) fn by_parts_with(
        &self,
        other: &Tensor,
        f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        f(&self.real()?, &other.real()?)?.with_imaginary(&f(&self.imag()?, &other.imag()?)?)
    }
}

/// The product over the dimensions of a plan, by pairwise multiplication of halves.
#[track_caller]
pub(in crate::ops) fn prod(plan: &ReducePlan, x: &Tensor) -> Result<Tensor> {
    let front = plan.dims.iter().copied();
    let order: SmallVec<[usize; 5]> = front.chain((0..plan.from.len()).filter(|d| !plan.dims.contains(d))).collect();
    let mut rest = x.permute(&order[..])?.reshape([plan.count(), plan.to.numel()])?;
    if plan.count() == 0 {
        return rest.sum(0)?.add(1)?.reshape(&plan.to);
    }
    while rest.shape()[0] > 1 {
        let n = rest.shape()[0];
        let half = n / 2;
        let pairs = rest.narrow(0, 0, half)?.mul(&rest.narrow(0, half, half)?)?;
        rest = if n % 2 == 0 { pairs } else { Tensor::cat(&[&pairs, &rest.narrow(0, n - 1, 1)?], 0)? };
    }
    rest.reshape(Sizes::from(&plan.to))
}

/// The cumulative product along a dimension, by a parallel scan with doubling steps.
#[track_caller]
pub(in crate::ops) fn cumprod(x: &Tensor, dim: usize) -> Result<Tensor> {
    let n = x.shape()[dim];
    let (mut out, mut step) = (x.clone(), 1);
    while step < n {
        let later = out.narrow(dim, step, n - step)?.mul(&out.narrow(dim, 0, n - step)?)?;
        out = Tensor::cat(&[&out.narrow(dim, 0, step)?, &later], dim)?;
        step *= 2;
    }
    Ok(out)
}

/// Linear interpolation `a + w · (b - a)`, computed from the nearer end.
#[track_caller]
pub(in crate::ops) fn lerp(a: &Tensor, b: &Tensor, w: &Tensor) -> Result<Tensor> {
    let way = b.sub(a)?;
    let (from_a, from_b) = (a.add(&w.mul(&way)?)?, b.sub(&way.mul(&w.rsub(1)?)?)?);
    w.abs()?.lt(0.5)?.where_(&from_a, &from_b)
}

/// `log(exp(a) + exp(b))`, from the one with the larger real part.
#[track_caller]
pub(in crate::ops) fn logaddexp(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let a_is_larger = a.detach().real()?.ge(&b.detach().real()?)?;
    let (more, less) = (a_is_larger.where_(a, b)?, a_is_larger.where_(b, a)?);
    // The difference of two equal infinities would be NaN.
    let alike = more.detach().real()?.isinf()?.logical_and(&more.detach().real()?.eq(&less.detach().real()?)?)?;
    let finite = |x: &Tensor| alike.where_(0.0, x);
    alike.where_(&more, finite(&more)?.add(&finite(&less)?.sub(&finite(&more)?)?.exp()?.log1p()?)?)
}

/// The cumulative `log Σ exp(x)` along a dimension: a parallel scan over 2, 4, 8 .. neighbours, with few rounding steps.
#[track_caller]
pub(in crate::ops) fn logcumsumexp(x: &Tensor, dim: usize) -> Result<Tensor> {
    let (len, mut sums, mut apart) = (x.shape()[dim], x.clone(), 1);
    while apart < len {
        let (first, before) = (sums.narrow(dim, 0, apart)?, sums.narrow(dim, 0, len - apart)?);
        sums = Tensor::cat(&[&first, &logaddexp(&sums.narrow(dim, apart, len - apart)?, &before)?], dim)?;
        apart *= 2;
    }
    Ok(sums)
}

/// `log Σ exp(x)`, from the largest real part.
#[track_caller]
pub(in crate::ops) fn logsumexp(x: &Tensor, over: ReduceDims) -> Result<Tensor> {
    let plan = ReducePlan::new("logsumexp", x, &over)?;
    if plan.count() == 0 || x.numel() == 0 {
        return x.exp()?.sum(over)?.log();
    }
    let largest = x.detach().real()?.max(keepdim(over.dims.clone()))?;
    // Subtracting an infinite maximum would give NaN.
    let largest = largest.isfinite()?.where_(&largest, 0.0)?;
    x.sub(&largest)?.exp()?.sum(over)?.log()?.add(&largest.reshape(Sizes::from(&plan.to))?)
}

/// Whether `|a - b| ≤ atol + rtol · |b|`.
#[track_caller]
pub(in crate::ops) fn isclose(a: &Tensor, b: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
    let (a, b) = (a.detach(), b.detach());
    let allowed = b.abs()?.mul(rtol)?.add(atol)?;
    let near = a.sub(&b)?.abs()?.le(&allowed)?.logical_and(&a.isfinite()?)?.logical_and(&b.isfinite()?)?;
    let close = a.eq(&b)?.logical_or(&near)?;
    if equal_nan { close.logical_or(&a.isnan()?.logical_and(&b.isnan()?)?) } else { Ok(close) }
}
