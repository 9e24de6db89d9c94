//! Covariance and correlation.

use crate::error::bail;
use crate::layout::Slice;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Result, Tensor};

options! {
    /// The options of [`Tensor::cov_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::CovOptions};
    /// let x = tensor!([1.0, 3.0])?;
    /// assert_eq!(x.cov_with(CovOptions::new().correction(0_i64))?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CovOptions<'a> {
        /// The divisor is the number of observations minus this.
        correction: i64 = 1,
        /// The frequency of each observation: a vector of integers.
        fweights: Option<&'a Tensor> = None,
        /// The weight of each observation: a vector of floats.
        aweights: Option<&'a Tensor> = None,
    }
}

fn covariance(op: &'static str, x: &Tensor, options: &CovOptions<'_>) -> Result<Tensor> {
    if x.rank() > 2 || x.dtype() == DType::Bool {
        bail!(Shape, op, "input must be numeric with at most 2 dimensions, got {} of shape {:?}", x.dtype(), x.shape());
    }
    let dtype = x.dtype().to_float();
    let x = x.to_dtype(dtype)?.to_dtype(dtype.compute_dtype())?;
    let x = if x.rank() == 2 { x } else { x.reshape([1, -1])? };
    let n = x.shape()[1];
    let check = |weights: &Tensor, name: &str| -> Result<()> {
        if weights.shape() != [n] {
            bail!(Shape, op, "{name} must have shape [{n}], got {:?}", weights.shape());
        }
        if weights.detach().all_examples()?.lt(0)?.any(..)?.item::<bool>()? {
            bail!(Value, op, "{name} must not be negative");
        }
        Ok(())
    };
    let mut weights: Option<Tensor> = None;
    if let Some(often) = options.fweights {
        if !often.dtype().is_int() {
            bail!(DType, op, "fweights must be integers, got {}", often.dtype());
        }
        check(often, "fweights")?;
        weights = Some(often.to_dtype(x.dtype())?);
    }
    if let Some(much) = options.aweights {
        if !much.dtype().is_float() {
            bail!(DType, op, "aweights must be floating point, got {}", much.dtype());
        }
        check(much, "aweights")?;
        let much = much.to_dtype(x.dtype())?;
        weights = Some(if let Some(often) = weights { often.mul(&much)? } else { much });
    }
    let correction = options.correction as f64;
    let Some(weights) = weights else {
        let center = x.sub(x.mean(crate::keepdim(1))?)?;
        let freedom = (n as f64 - correction).max(0.0);
        return center.matmul(&center.t()?.conj()?)?.div(freedom)?.squeeze(..)?.to_dtype(dtype);
    };
    let total = weights.sum(..)?;
    let mean = x.mul(&weights)?.sum(crate::keepdim(1))?.div(&total)?;
    let taken = match options.aweights {
        Some(much) if correction != 0.0 => {
            weights.mul(much.to_dtype(x.dtype())?)?.sum(..)?.div(&total)?.mul(correction)?
        }
        _ => total.full_like(correction)?,
    };
    // Weights are real numbers, also for complex observations.
    let freedom = total.sub(&taken)?.real()?.maximum(0.0)?;
    let center = x.sub(&mean)?;
    center.mul(&weights)?.matmul(&center.t()?.conj()?)?.div(&freedom)?.squeeze(..)?.to_dtype(dtype)
}

/// # Covariance
#[ops]
impl Tensor {
    /// The covariance matrix of variables, the rows of this matrix; the columns are observations. A vector is one
    /// variable, and gives its variance.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::CovOptions};
    /// let x = tensor!([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])?;
    /// assert_eq!(x.cov()?.to_vec::<f32>()?, [1.0, -1.0, -1.0, 1.0]);
    /// let often = tensor!([1, 0, 1])?;
    /// let weighted = x.cov_with(CovOptions::new().fweights(&often))?;
    /// assert_eq!(weighted.to_vec::<f32>()?, [2.0, -2.0, -2.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more than two dimensions, the elements are bools, or the weights do not fit or are negative.
    #[op(autocast = lower, samples = cov_samples, errors = cov_errors)]
    pub fn cov<'a>(&self, options: impl Into<CovOptions<'a>>) -> Result<Tensor> {
        covariance("cov", self, &options)
    }

    /// The correlation matrix of variables, the rows of this matrix; the columns are observations.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]])?;
    /// assert_eq!(x.corrcoef()?.to_vec::<f32>()?, [1.0, -1.0, -1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more than two dimensions, or the elements are bools.
    #[op(autocast = lower, samples = corrcoef_samples, errors = corrcoef_errors)]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        let wide = if dtype == self.dtype() { self.to_dtype(dtype.compute_dtype())? } else { self.clone() };
        let cov = covariance("corrcoef", &wide, &CovOptions::new())?;
        if cov.rank() == 0 {
            return cov.div(&cov)?.to_dtype(dtype);
        }
        let n = cov.shape()[0];
        let deviations = cov.reshape([-1])?.slice(0, Slice::from(..).step(n as isize + 1))?.real()?.sqrt()?;
        let scaled = cov.div(deviations.unsqueeze(1)?)?.div(&deviations)?;
        if scaled.dtype().is_complex() {
            return scaled.by_parts(|part| part.clamp(-1.0, 1.0))?.to_dtype(dtype);
        }
        scaled.clamp(-1.0, 1.0)?.to_dtype(dtype)
    }
}

fn cov_samples() -> Result<Vec<Sample>> {
    let mut all = corrcoef_samples()?;
    let x = || spread([3, 4], -2.0, 2.0);
    let (often, much) = (ints(&[1, 2, 1, 3], [4])?, spread([4], 0.2, 1.0)?);
    all.push(sample![spread([5], -2.0, 2.0)?]);
    all.push(sample![x()?; correction = 0]);
    all.push(sample![x()?; fweights = &often]);
    all.push(sample![x()?; aweights = &much]);
    all.push(sample![x()?; correction = 0, fweights = &often, aweights = &much]);
    all.push(sample![x()?; fweights = &often, aweights = &much]);
    Ok(all)
}

fn corrcoef_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 5], -2.0, 2.0)?],
        sample![spread([2, 6], -2.0, 2.0)?],
        sample![ints(&[1, 4, 9, 5, 0, 1], [2, 3])?],
    ])
}

fn corrcoef_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["too many dimensions", "[1, 2, 3]"; sample![normal([1, 2, 3], 1)?]],
        error!["bools", "bool"; sample![normal([2, 3], 1)?.gt(0.0)?]],
    ])
}

fn cov_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    let mut all = corrcoef_errors()?;
    all.push(error!["too few weights", "[2]", "[3]"; sample![x()?; fweights = ints(&[1, 1], [2])?]]);
    all.push(error!["negative weights", "fweights", "negative"; sample![x()?; fweights = ints(&[1, -1, 1], [3])?]]);
    all.push(error!["counts of floats", "f64"; sample![x()?; fweights = normal([3], 1)?]]);
    all.push(error!["weights of integers", "i64"; sample![x()?; aweights = ints(&[1, 1, 1], [3])?]]);
    Ok(all)
}
