//! Largest and smallest elements, and where they are.

use super::reduce::{OverAll, ReducePlan, dim_error_cases, dim_samples, samples};
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::BackwardContext;
use crate::backend;
use crate::backend::cpu::reduce::Reduce;
use crate::backend::cpu::reduce::arg::Extreme;
use crate::error::bail;
use crate::{DType, Dims, Result, Shape, Tensor};
use smallvec::smallvec;

impl ReducePlan {
    /// Refuses to choose from nothing.
    fn some_to_choose_from(&self, op: &'static str) -> Result<()> {
        if self.count() == 0 {
            bail!(Shape, op, "there is nothing to choose from in {:?} over dimensions {:?}", self.from, &self.dims[..]);
        }
        Ok(())
    }
}

#[track_caller]
fn extreme(op: &'static str, by: Reduce, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, dims, keepdim)?;
    plan.some_to_choose_from(op)?;
    plan.reduce_and_save(op, by, x, x.dtype())?.record(op, &[x], |save| {
        let (x, y) = (save.save(&x.detach()), save.save_output());
        move |_: &BackwardContext, g: &Tensor| {
            let (y, nan) = (plan.spread(&y)?, y.ne(&y)?);
            // Where the result is NaN, all NaN are among the chosen.
            let chosen = plan.spread(&nan)?.where_(x.ne(&x)?, x.eq(&y)?)?;
            let count = plan.sum(op, &chosen)?.to_dtype(g.dtype())?;
            Ok(smallvec![Some(chosen.where_(plan.spread(&g.div(count)?)?, 0.0)?)])
        }
    })
}

/// Values and indices along one dimension; the gradient goes to the element that was chosen.
#[track_caller]
fn extreme_dim(op: &'static str, which: Extreme, x: &Tensor, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    let plan = ReducePlan::new(op, x, &Dims::from(dim), keepdim)?;
    plan.some_to_choose_from(op)?;
    let mut values = Tensor::empty(op, plan.to.clone(), x.dtype(), x.device())?;
    let mut indices = Tensor::empty(op, plan.to.clone(), DType::I64, x.device())?;
    backend::arg(
        op,
        which,
        x.as_view()?,
        &plan.dims,
        Some(&mut values.as_view_mut(op)?),
        &mut indices.as_view_mut(op)?,
    )?;
    let values = values.record(op, &[x], |save| {
        let indices = save.save(&indices);
        move |_: &BackwardContext, g: &Tensor| {
            // Along the dimension, where it is a dimension, the numbers of its elements; a scalar is its own choice.
            let along: Shape =
                plan.from.iter().enumerate().map(|(d, &size)| if plan.dims.contains(&d) { size } else { 1 }).collect();
            let numbers = Tensor::arange(0, plan.count(), 1)?.to_device(g.device())?.reshape(&along)?;
            let chosen = plan.spread(&indices)?.eq(&numbers)?;
            Ok(smallvec![Some(chosen.where_(plan.spread(g)?, 0.0)?)])
        }
    })?;
    Ok((values, indices.record_barrier(op, &[x])))
}

#[track_caller]
fn place(op: &'static str, which: Extreme, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, dims, keepdim)?;
    plan.some_to_choose_from(op)?;
    let mut indices = Tensor::empty(op, plan.to.clone(), DType::I64, x.device())?;
    backend::arg(op, which, x.as_view()?, &plan.dims, None, &mut indices.as_view_mut(op)?)?;
    Ok(indices.record_barrier(op, &[x]))
}

impl Tensor {
    /// The largest of all elements, or NaN if there is one. Where several are largest, they share the gradient evenly.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.0, 3.0, 2.0])?.max()?.item::<f32>()?, 3.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn max(&self) -> Result<Tensor> {
        extreme("max", Reduce::Max, self, &Dims::All, false)
    }

    /// The smallest of all elements, or NaN if there is one. Where several are smallest, they share the gradient evenly.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([1.0, 3.0, 2.0])?.min()?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn min(&self) -> Result<Tensor> {
        extreme("min", Reduce::Min, self, &Dims::All, false)
    }

    /// The largest elements over some dimensions, as [`max`](Self::max) over all. To name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.amax(1, false)?.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[track_caller]
    pub fn amax(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        extreme("amax", Reduce::Max, self, &dims.into(), keepdim)
    }

    /// The smallest elements over some dimensions, as [`min`](Self::min) over all. To name none is to name all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.amin(1, false)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, one is named twice, or there are no elements to choose from.
    #[track_caller]
    pub fn amin(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        extreme("amin", Reduce::Min, self, &dims.into(), keepdim)
    }

    /// The largest elements along a dimension, and their indices in it. Of several the first is chosen, and gets the
    /// gradient; a NaN is chosen before everything else.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (values, indices) = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?.max_dim(1, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[track_caller]
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        extreme_dim("max_dim", Extreme::Max, self, dim, keepdim)
    }

    /// The smallest elements along a dimension, and their indices in it. Of several the first is chosen, and gets the
    /// gradient; a NaN is chosen before everything else.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (values, indices) = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?.min_dim(1, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 0.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[track_caller]
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> Result<(Tensor, Tensor)> {
        extreme_dim("min_dim", Extreme::Min, self, dim, keepdim)
    }

    /// The number of the largest element, counted in row-major order; the first of several, and a NaN before everything
    /// else. It has no derivative.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([[1.0, 3.0], [2.0, 0.0]])?.argmax()?.item::<i64>()?, 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn argmax(&self) -> Result<Tensor> {
        place("argmax", Extreme::Max, self, &Dims::All, false)
    }

    /// The number of the smallest element, counted in row-major order; the first of several, and a NaN before everything
    /// else. It has no derivative.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([[1.0, 3.0], [2.0, 0.0]])?.argmin()?.item::<i64>()?, 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no elements.
    #[track_caller]
    pub fn argmin(&self) -> Result<Tensor> {
        place("argmin", Extreme::Min, self, &Dims::All, false)
    }

    /// The indices of the largest elements along a dimension, as in [`max_dim`](Self::max_dim). They have no derivative.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.argmax_dim(1, false)?.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[track_caller]
    pub fn argmax_dim(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        place("argmax_dim", Extreme::Max, self, &Dims::from(dim), keepdim)
    }

    /// The indices of the smallest elements along a dimension, as in [`min_dim`](Self::min_dim). They have no derivative.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 3.0], [2.0, 0.0]])?;
    /// assert_eq!(x.argmin_dim(0, true)?.to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or no elements to choose from.
    #[track_caller]
    pub fn argmin_dim(&self, dim: isize, keepdim: bool) -> Result<Tensor> {
        place("argmin_dim", Extreme::Min, self, &Dims::from(dim), keepdim)
    }
}

/// The list entries of reductions of everything, of some dimensions, and of one.
macro_rules! entries {
    ($($entry:ident $name:ident all;)* @ $($dims_entry:ident $dims_name:ident dims;)* @ $($dim_entry:ident $dim_name:ident |$x:ident, $dim:ident, $keepdim:ident| $call:expr;)*) => {
        $(static $entry: Op = Op {
            name: stringify!($name),
            samples: || samples(stringify!($name), -2.0, 2.0, false, Tensor::$name),
            error_cases: || Ok(vec![empty_error_case(stringify!($name), Tensor::$name)?]),
        };)*
        $(static $dims_entry: Op = Op {
            name: stringify!($dims_name),
            samples: || dim_samples(stringify!($dims_name), -2.0, 2.0, false, Tensor::$dims_name),
            error_cases: || {
                let mut all = dim_error_cases(stringify!($dims_name), Tensor::$dims_name)?;
                all.push(empty_error_case(stringify!($dims_name), |x| x.$dims_name(1, false))?);
                Ok(all)
            },
        };)*
        $(static $dim_entry: Op = Op {
            name: stringify!($dim_name),
            samples: || one_dim_samples(stringify!($dim_name), |$x, $dim, $keepdim| $call),
            error_cases: || {
                let x = normal([2, 3], 1)?;
                let mut all = vec![empty_error_case(stringify!($dim_name), |$x| { let ($dim, $keepdim) = (1, false); $call })?];
                all.push(ErrorCase::new("no such dimension", &[stringify!($dim_name), "-3", "rank 2"], move || {
                    let ($x, $dim, $keepdim) = (&x, -3, false);
                    $call
                }));
                Ok(all)
            },
        };)*
    };
}

entries! {
    MAX max all;
    MIN min all;
    ARGMAX argmax all;
    ARGMIN argmin all;
    @
    AMAX amax dims;
    AMIN amin dims;
    @
    MAX_DIM max_dim |x, dim, keepdim| x.max_dim(dim, keepdim).map(|(values, _)| values);
    MIN_DIM min_dim |x, dim, keepdim| x.min_dim(dim, keepdim).map(|(values, _)| values);
    ARGMAX_DIM argmax_dim |x, dim, keepdim| x.argmax_dim(dim, keepdim);
    ARGMIN_DIM argmin_dim |x, dim, keepdim| x.argmin_dim(dim, keepdim);
}

fn one_dim_samples(label: &str, call: fn(&Tensor, isize, bool) -> Result<Tensor>) -> Result<Vec<Sample>> {
    let cases: [(&[usize], isize, bool); 6] = [
        (&[2, 3, 4], 0, false),
        (&[2, 3, 4], 1, true),
        (&[2, 3, 4], -1, false),
        (&[7], 0, false),
        (&[], -1, true),
        (&[0, 3], 1, false),
    ];
    cases
        .into_iter()
        .map(|(shape, dim, keepdim)| {
            Ok(Sample::new(label, vec![spread(shape, -2.0, 2.0)?], move |x| call(&x[0], dim, keepdim)))
        })
        .collect()
}

fn empty_error_case(name: &'static str, call: OverAll) -> Result<ErrorCase> {
    let x = Tensor::zeros([2, 0])?;
    Ok(ErrorCase::new("nothing to choose from", &[name, "[2, 0]"], move || call(&x)))
}

pub(crate) static OPS: &[&Op] =
    &[&MAX, &MIN, &AMAX, &AMIN, &MAX_DIM, &MIN_DIM, &ARGMAX, &ARGMIN, &ARGMAX_DIM, &ARGMIN_DIM];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_the_gradient_and_a_choice_takes_it() -> Result<()> {
        let x = Tensor::from_vec(vec![1.0, 3.0, 3.0, 2.0, 2.0, 2.0], [2, 3])?.requires_grad_(true)?;
        x.amax(1, false)?.backward_with(&Tensor::from_vec(vec![6.0, 12.0], [2])?)?;
        assert_eq!(x.take_grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 3.0, 3.0, 4.0, 4.0, 4.0]));
        let (values, indices) = x.max_dim(1, false)?;
        values.backward_with(&Tensor::from_vec(vec![6.0, 12.0], [2])?)?;
        assert_eq!(x.take_grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 6.0, 0.0, 12.0, 0.0, 0.0]));
        let refused = indices.to_dtype(DType::F64)?.sum()?.backward().map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("max_dim has no derivative")));
        Ok(())
    }

    #[test]
    fn a_nan_gets_the_gradient_of_a_nan() -> Result<()> {
        let x = Tensor::from_vec(vec![1.0, f64::NAN, 3.0], [3])?.requires_grad_(true)?;
        x.max()?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![0.0, 1.0, 0.0]));
        Ok(())
    }
}
