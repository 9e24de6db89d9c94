//! Running sums and the like.

use super::ops;
use super::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::backend::spec::Scan;
use crate::layout::resolve_dim_or_scalar;
use crate::{Dim, Result, Tensor};
use smallvec::smallvec;

/// # Running sums
#[ops]
impl Tensor {
    /// Running sums along a dimension: of each element and all before it. Integers and bools are added up in `i64`, `u64` in
    /// `u64`, half precision in f32.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(x.cumsum(1)?.to_vec::<f32>()?, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = scan_samples, errors = scan_errors)]
    pub fn cumsum(&self, dim: impl Into<Dim>) -> Result<Tensor> {
        let dim = resolve_dim_or_scalar("cumsum", dim.0, self.rank())?;
        sums(self, dim, false)
    }
}

/// Running sums from the first element on, or from the last.
#[track_caller]
fn sums(x: &Tensor, dim: usize, backwards: bool) -> Result<Tensor> {
    if x.dtype().is_complex() {
        return x.by_parts(|part| sums(part, dim, backwards));
    }
    let dtype = x.dtype().to_sum();
    if x.rank() == 0 {
        return x.to_dtype(dtype);
    }
    let out = Tensor::build("cumsum", x.layout().shape().clone(), dtype, x.device(), |out| {
        let x = x.as_view()?;
        kernel!("cumsum" on [x, out]: reduce::scan::scan(Scan::Sum, x, dim, backwards, out))
    })?;
    if !dtype.is_float() {
        return Ok(out.record_barrier("cumsum", &[x]));
    }
    // Each element is part of all sums from its own on: the cotangents are summed from the other end.
    out.record("cumsum", &[x], |_| {
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(sums(g, dim, !backwards)?)])
    })
}

fn scan_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, 0],
        sample![spread([3, 4], -2.0, 2.0)?, -1],
        sample![spread([2, 5, 3], -2.0, 2.0)?, 1],
        sample![spread([7], -2.0, 2.0)?, 0],
        sample![spread([], -2.0, 2.0)?, 0],
        sample![spread([2, 0], -2.0, 2.0)?, 1],
        sample![spread([0, 2], -2.0, 2.0)?, 1],
    ])
}

fn scan_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]]])
}
