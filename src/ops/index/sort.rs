//! Sorting.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::layout::Dim;
use crate::layout::resolve_dim_or_scalar;
use crate::ops::index::gather::scatter;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

options! {
    /// The options of [`Tensor::sort_with`] and [`Tensor::argsort_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::SortOptions};
    /// let (values, _) = tensor!([1, 3, 2])?.sort_with(0, SortOptions::new().descending(true))?;
    /// assert_eq!(values.to_vec::<i64>()?, [3, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SortOptions {
        /// Whether to sort in descending order.
        descending: bool = false,
        /// Whether equal elements must keep their order. They always do.
        stable: bool = true,
    }
}

/// # Sorting
#[ops]
impl Tensor {
    /// Sorts along a dimension in ascending order, and returns the values and their indices. The sort is stable. NaN
    /// counts as the largest. The gradient returns to the original positions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::SortOptions};
    /// let (values, indices) = tensor!([3.0, 1.0, 2.0])?.sort(0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0]);
    /// let (values, _) = tensor!([3, 1, 2])?.sort_with(-1, SortOptions::new().descending(true))?;
    /// assert_eq!(values.to_vec::<i64>()?, [3, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = sort_samples, errors = sort_errors, outputs = [values, indices], batch)]
    pub fn sort(
        &self,
        #[default(-1)] dim: impl Into<Dim>,
        options: impl Into<SortOptions>,
    ) -> Result<(Tensor, Tensor)> {
        let dim = resolve_dim_or_scalar("sort", dim.0, self.rank())?;
        if self.rank() == 0 {
            let (values, indices) = self.reshape([1])?.sort(0)?;
            return Ok((values.reshape(())?, indices.reshape(())?));
        }
        let shape = self.layout().shape().clone();
        let mut values = Tensor::empty("sort", shape.clone(), self.dtype(), self.device())?;
        let mut indices = Tensor::empty("sort", shape.clone(), DType::I64, self.device())?;
        let own = self.private()?;
        let (x, to, at) = (own.as_view()?, &mut values.as_view_mut("sort")?, &mut indices.as_view_mut("sort")?);
        kernel!("sort" on [x, to, at]: index::sort::sort(x, dim, options.descending, Some(to), at))?;
        let order = indices.clone();
        let [values, indices] = Tensor::record_joint([values, indices], "sort", &[self], |save| {
            let order = save.save(&order);
            move |_: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let Some(Some(g)) = cotangents.first() else { return Ok(smallvec![None]) };
                Ok(smallvec![Some(scatter(&shape, dim, &order, g)?)])
            }
        })?;
        Ok((values, indices))
    }

    /// The indices that [`sort`](Self::sort) returns. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::SortOptions};
    /// let x = tensor!([3.0, 1.0, 2.0])?;
    /// assert_eq!(x.argsort(0)?.to_vec::<i64>()?, [1, 2, 0]);
    /// assert_eq!(x.argsort_with(0, SortOptions::new().descending(true))?.to_vec::<i64>()?, [0, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[op(samples = sort_samples, errors = sort_errors, derivative = none, batch)]
    pub fn argsort(&self, #[default(-1)] dim: impl Into<Dim>, options: impl Into<SortOptions>) -> Result<Tensor> {
        let dim = resolve_dim_or_scalar("argsort", dim.0, self.rank())?;
        if self.rank() == 0 {
            return Tensor::filled("argsort", ().into(), 0.into(), DType::I64, self.device());
        }
        let own = self.private()?;
        let indices = Tensor::build("argsort", self.layout().shape().clone(), DType::I64, self.device(), |at| {
            let x = own.as_view()?;
            kernel!("argsort" on [x, at]: index::sort::sort(x, dim, options.descending, None, at))
        })?;
        Ok(indices.record_barrier("argsort", &[self]))
    }

    /// [`sort`](Self::sort) along the first dimension, without the indices.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([[3, 1], [2, 4]])?.msort()?.to_vec::<i64>()?, [2, 1, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = msort_samples)]
    pub fn msort(&self) -> Result<Tensor> {
        Ok(self.sort(0)?.0)
    }
}

fn msort_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 4] = [&[7], &[3, 4], &[], &[0, 2]];
    shapes.into_iter().map(|shape| Ok(sample![spread(shape, -2.0, 2.0)?])).collect()
}

fn sort_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?],
        sample![spread([3, 4], -2.0, 2.0)?, 0],
        sample![spread([2, 5, 3], -2.0, 2.0)?, 1; descending = true],
        sample![spread([7], -2.0, 2.0)?, -1],
        sample![spread([], -2.0, 2.0)?],
        sample![spread([2, 0], -2.0, 2.0)?, 1],
        sample![ints(&[3, -1, 2, 3, -1, 0], [2, 3])?, 1],
    ])
}

fn sort_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]]])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn sorts_are_stable_and_nan_is_the_greatest() -> Result<()> {
        let nan = f64::NAN;
        let x = Tensor::from_vec(vec![1.0, nan, -0.0, f64::INFINITY, 0.0, 1.0, -1.0, nan], [8])?;
        let (values, indices) = x.sort(0)?;
        assert_eq!(indices.to_vec::<i64>()?, [6, 2, 4, 0, 5, 3, 1, 7]);
        assert!(values.to_vec::<f64>()?[6].is_nan());
        let (_, indices) = x.sort_with(0, SortOptions::new().descending(true))?;
        assert_eq!(indices.to_vec::<i64>()?, [1, 7, 3, 0, 5, 2, 4, 6]);
        Ok(())
    }

    #[test]
    fn every_dtype_is_sorted_by_value() -> Result<()> {
        for dtype in DType::REAL {
            let x = Tensor::from_vec(vec![3.0, 0.0, 7.0, 1.0, 5.0, 2.0], [6])?.to_dtype(dtype)?;
            let signed = x.to_dtype(DType::F64)?.neg()?.to_dtype(dtype)?;
            for x in [x, signed] {
                let sorted = x.sort(0)?.0.to_dtype(DType::F64)?.to_vec::<f64>()?;
                let mut want = x.to_dtype(DType::F64)?.to_vec::<f64>()?;
                want.sort_by(f64::total_cmp);
                let want: Vec<f64> = want.into_iter().map(|x| x + 0.0).collect();
                assert_eq!(sorted.into_iter().map(|x| x + 0.0).collect::<Vec<_>>(), want, "{dtype}");
            }
        }
        Ok(())
    }
}
