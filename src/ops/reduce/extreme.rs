//! Minima and maxima, and their indices.

use crate::autograd::BackwardContext;
use crate::backend::spec::{Extreme, Reduce};
use crate::error::bail;
use crate::layout::ReduceDims;
use crate::ops::ops;
use crate::ops::reduce::sums::{ReducePlan, dim_errors, over_dims};
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::tensor::batch::innermost;
use crate::{DType, Result, Shape, Tensor, backend};
use smallvec::smallvec;

impl ReducePlan {
    /// Fails if there are no elements to choose from.
    fn some_to_choose_from(&self, op: &'static str) -> Result<()> {
        if self.count() == 0 {
            bail!(Shape, op, "reduced dimensions must not be empty, got {:?} of shape {:?}", &self.dims[..], self.from);
        }
        Ok(())
    }
}

#[track_caller]
fn extreme(op: &'static str, by: Reduce, x: &Tensor, over: &ReduceDims) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, over)?;
    plan.some_to_choose_from(op)?;
    plan.reduce_and_save(op, by, x, x.dtype())?.record(op, &[x], |save| {
        let (x, y) = (save.save(&x.detach()), save.save_output());
        move |_: &BackwardContext, g: &Tensor| {
            let (y, nan) = (plan.spread(&y)?, y.ne(&y)?);
            // If the result is NaN, all NaN are chosen.
            let chosen = plan.spread(&nan)?.where_(x.ne(&x)?, x.eq(&y)?)?;
            let count = plan.sum(op, &chosen)?.to_dtype(g.dtype())?;
            Ok(smallvec![Some(chosen.where_(plan.spread(&g.div(count)?)?, 0.0)?)])
        }
    })
}

/// The largest or smallest elements and their indices, outside the graph.
fn values_and_places(op: &'static str, which: Extreme, x: &Tensor, plan: &ReducePlan) -> Result<(Tensor, Tensor)> {
    if let Some(level) = innermost([x]) {
        let (values, indices) = values_and_places(op, which, &x.leading_batch(level)?, &plan.of_examples(level)?)?;
        return Ok((values.batched(level)?, indices.batched(level)?));
    }
    let mut values = Tensor::empty(op, plan.to.clone(), x.dtype(), x.device())?;
    let mut indices = Tensor::empty(op, plan.to.clone(), DType::I64, x.device())?;
    let (to, at) = (&mut values.as_view_mut(op)?, &mut indices.as_view_mut(op)?);
    backend::arg(op, which, x.as_view()?, &plan.dims, Some(to), at)?;
    Ok((values, indices))
}

/// The indices of the largest or smallest elements, outside the graph.
fn positions(op: &'static str, which: Extreme, x: &Tensor, plan: &ReducePlan) -> Result<Tensor> {
    if x.is_batched() {
        return Tensor::over_batch(&[x], |level, all| positions(op, which, all[0], &plan.of_examples(level)?));
    }
    let mut indices = Tensor::empty(op, plan.to.clone(), DType::I64, x.device())?;
    backend::arg(op, which, x.as_view()?, &plan.dims, None, &mut indices.as_view_mut(op)?)?;
    Ok(indices)
}

/// Values and indices along one dimension. The gradient goes to the chosen element.
#[track_caller]
fn with_indices(op: &'static str, which: Extreme, x: &Tensor, over: &ReduceDims) -> Result<(Tensor, Tensor)> {
    if over.dims.named.as_ref().is_none_or(|named| named.len() != 1) {
        bail!(Value, op, "dim must name exactly one dimension");
    }
    let plan = ReducePlan::new(op, x, over)?;
    plan.some_to_choose_from(op)?;
    let (values, indices) = values_and_places(op, which, x, &plan)?;
    let chosen = indices.clone();
    let [values, indices] = Tensor::record_joint([values, indices], op, &[x], |save| {
        let indices = save.save(&chosen);
        move |_: &BackwardContext, cotangents: &[Option<Tensor>]| {
            let Some(Some(g)) = cotangents.first() else { return Ok(smallvec![None]) };
            // The indices along the dimension. A 0-dimensional tensor has none, and its element is chosen.
            let along: Shape =
                plan.from.iter().enumerate().map(|(d, &size)| if plan.dims.contains(&d) { size } else { 1 }).collect();
            let numbers = Tensor::arange(0, plan.count())?.to_device(g.device())?.reshape(&along)?;
            let chosen = plan.spread(&indices)?.eq(&numbers)?;
            Ok(smallvec![Some(chosen.where_(plan.spread(g)?, 0.0)?)])
        }
    })?;
    Ok((values, indices))
}

#[track_caller]
fn position(op: &'static str, which: Extreme, x: &Tensor, over: &ReduceDims) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, over)?;
    plan.some_to_choose_from(op)?;
    Ok(positions(op, which, x, &plan)?.record_barrier(op, &[x]))
}

/// # Minimum and maximum
#[ops]
impl Tensor {
    /// The maximum over some dimensions, or all (`..`). NaN propagates. Equal maxima share the gradient evenly. See
    /// [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.max(..)?.item::<f32>()?, 3.0);
    /// assert_eq!(x.max(1)?.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = choice_errors, aliases = ["amax"])]
    #[doc(alias = "amax")]
    pub fn max(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        extreme("max", Reduce::Max, self, &over)
    }

    /// The minimum over some dimensions, or all (`..`). NaN propagates. Equal minima share the gradient evenly. See
    /// [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.min(..)?.item::<f32>()?, 0.0);
    /// assert_eq!(x.min(1)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = choice_errors, aliases = ["amin"])]
    #[doc(alias = "amin")]
    pub fn min(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        extreme("min", Reduce::Min, self, &over)
    }

    /// The maxima along a dimension, and their indices. The first of equal maxima is chosen, and gets the gradient. NaN
    /// counts as the largest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices) = tensor!([[1.0, 3.0], [2.0, 0.0]])?.max_with_indices(1)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[doc(alias = "max")]
    #[op(samples = along_dim, errors = along_dim_errors, outputs = [values, indices], batch)]
    pub fn max_with_indices(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        with_indices("max_with_indices", Extreme::Max, self, &over)
    }

    /// The minima along a dimension, and their indices. The first of equal minima is chosen, and gets the gradient. NaN
    /// counts as the smallest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (values, indices) = tensor!([[1.0, 3.0], [2.0, 0.0]])?.min_with_indices(1)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[doc(alias = "min")]
    #[op(samples = along_dim, errors = along_dim_errors, outputs = [values, indices], batch)]
    pub fn min_with_indices(&self, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        with_indices("min_with_indices", Extreme::Min, self, &over)
    }

    /// The indices of the maxima along a dimension or, over all (`..`), the flat index of the maximum. The first of
    /// equal maxima is chosen. NaN counts as the largest. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.argmax(..)?.item::<i64>()?, 1);
    /// assert_eq!(x.argmax(1)?.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = choice_errors, derivative = none, batch)]
    pub fn argmax(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        position("argmax", Extreme::Max, self, &over)
    }

    /// The indices of the minima along a dimension or, over all (`..`), the flat index of the minimum. The first of
    /// equal minima is chosen. NaN counts as the smallest. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, keepdim, tensor};
    /// let x = tensor!([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.argmin(..)?.item::<i64>()?, 3);
    /// assert_eq!(x.argmin(keepdim(0))?.shape(), [1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[op(samples = || over_dims(-2.0, 2.0, false), errors = choice_errors, derivative = none, batch)]
    pub fn argmin(&self, over: impl Into<ReduceDims>) -> Result<Tensor> {
        position("argmin", Extreme::Min, self, &over)
    }
}

fn along_dim() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3, 4], -2.0, 2.0)?, 0],
        sample![spread([2, 3, 4], -2.0, 2.0)?, 1, true],
        sample![spread([2, 3, 4], -2.0, 2.0)?, -1],
        sample![spread([7], -2.0, 2.0)?, 0],
        sample![spread([], -2.0, 2.0)?, -1, true],
        sample![spread([0, 3], -2.0, 2.0)?, 1],
    ])
}

fn along_dim_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "-3", "rank 2"; sample![normal([2, 3], 1)?, -3]],
        error!["nothing to choose from", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1]],
        error!["no dimension", "one dimension"; sample![normal([2, 3], 1)?]],
        error!["two dimensions", "one dimension"; sample![normal([2, 3], 1)?, [0, 1]]],
    ])
}

fn choice_errors() -> Result<Vec<ErrorCase>> {
    let mut all = dim_errors()?;
    all.push(error!["nothing to choose from", "[2, 0]"; sample![Tensor::zeros([2, 0])?]]);
    all.push(error!["nothing along a dimension", "[2, 0]"; sample![Tensor::zeros([2, 0])?, 1]]);
    Ok(all)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn ties_share_the_gradient_and_a_choice_takes_it() -> Result<()> {
        let x = Tensor::from_vec(vec![1.0, 3.0, 3.0, 2.0, 2.0, 2.0], [2, 3])?.requires_grad_(true)?;
        x.max(1)?.backward_with(&Tensor::from_vec(vec![6.0, 12.0], [2])?)?;
        assert_eq!(x.take_grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 3.0, 3.0, 4.0, 4.0, 4.0]));
        let (values, indices) = x.max_with_indices(1)?;
        values.backward_with(&Tensor::from_vec(vec![6.0, 12.0], [2])?)?;
        assert_eq!(x.take_grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 6.0, 0.0, 12.0, 0.0, 0.0]));
        let refused = indices.to_dtype(DType::F64)?.sum(..)?.backward().map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("max_with_indices has no derivative")));
        Ok(())
    }

    #[test]
    fn a_nan_gets_the_gradient_of_a_nan() -> Result<()> {
        let x = Tensor::from_vec(vec![1.0, f64::NAN, 3.0], [3])?.requires_grad_(true)?;
        x.max(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 1.0, 0.0]));
        Ok(())
    }
}
