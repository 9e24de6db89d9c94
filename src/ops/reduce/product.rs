//! Products over some or all dimensions.

use crate::autograd::BackwardContext;
use crate::backend::spec::Reduce;
use crate::layout::ReduceDims;
use crate::layout::Sizes;
use crate::ops::reduce::sums::{DTypeOptions, ReducePlan, dim_errors, over_dims};
use crate::ops::sample::{Sample, sample};
use crate::ops::{elementwise::complex_forms, ops};
use crate::{DType, Result, Tensor};
use smallvec::{SmallVec, smallvec};

/// For each element the product of all others of the same result, without division, so that it is correct for zeros.
fn products_of_others(plan: &ReducePlan, x: &Tensor) -> Result<Tensor> {
    // The reduced dimensions are moved to the front and flattened; halves of them are then contiguous.
    let front = plan.dims.iter().copied();
    let order: SmallVec<[usize; 5]> = front.chain((0..plan.from.len()).filter(|d| !plan.dims.contains(d))).collect();
    let permuted = x.permute(&order[..])?;
    let count = plan.count();
    let others = others(&permuted.reshape([count, plan.to.numel()])?)?.reshape(Sizes::from(permuted.shape()))?;
    let mut back: SmallVec<[usize; 5]> = smallvec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &dim)| back[dim] = at);
    others.permute(&back[..])
}

/// The same for the columns of a matrix, by recursion: elements are paired, and the product of the others of an element is its
/// partner times the product of the others of the pair.
fn others(x: &Tensor) -> Result<Tensor> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    match m {
        0 | 1 => return x.ones_like(),
        2 => return x.flip(0),
        _ => {}
    }
    let half = m.div_ceil(2);
    let pairs = with_rows_of_ones(x, 2 * half)?.reshape([2, half, n])?;
    let others_of_pair = others(&pairs.select(0, 0)?.mul(&pairs.select(0, 1)?)?)?;
    others_of_pair.mul(&pairs.flip(0)?)?.reshape([2 * half, n])?.narrow(0, 0, m)
}

/// Pads a matrix with rows of ones to `m` rows.
fn with_rows_of_ones(x: &Tensor, m: usize) -> Result<Tensor> {
    let rows = x.shape()[0];
    if rows == m {
        return Ok(x.clone());
    }
    let ones = Tensor::filled("prod", [m - rows, x.shape()[1]].into(), 1.0.into(), x.dtype(), x.device())?;
    Tensor::cat(&[x, &ones], 0)
}

/// # Products
#[ops]
impl Tensor {
    /// The product over some dimensions, or all (`..`); 1 if there are no elements. Integers and bools are multiplied
    /// in `i64`, `u64` in `u64`. See [`sum`](Self::sum) for the dimensions.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.prod(..)?.item::<f32>()?, 24.0);
    /// assert_eq!(x.prod(1)?.to_vec::<f32>()?, [2.0, 12.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(autocast = f32, samples = prod_samples, errors = dim_errors)]
    pub fn prod(&self, over: impl Into<ReduceDims>, options: impl Into<DTypeOptions>) -> Result<Tensor> {
        if let Some(dtype) = options.dtype {
            return self.to_dtype(dtype)?.prod(over)?.to_dtype(dtype);
        }
        let plan = ReducePlan::new("prod", self, &over)?;
        if self.dtype().is_complex() {
            return complex_forms::prod(&plan, self);
        }
        plan.reduce_and_save("prod", Reduce::Prod, self, self.dtype().to_sum())?.record("prod", &[self], |save| {
            let x = save.save(self);
            move |_: &BackwardContext, g: &Tensor| {
                Ok(smallvec![Some(plan.spread(g)?.mul(&products_of_others(&plan, &x)?)?)])
            }
        })
    }
}

fn prod_samples() -> Result<Vec<Sample>> {
    let mut all = over_dims(0.4, 2.0, true)?;
    let with_zeros = |zeros: [f64; 5]| Tensor::from_slice(&zeros, [5]);
    all.push(sample![with_zeros([2.0, 0.0, 3.0, -1.5, 0.5])?]);
    // With two zeros the first derivative is zero; the second derivative is not.
    all.push(sample![with_zeros([0.0, 2.0, 0.0, 4.0, 1.5])?].zero_derivative());
    all.push(sample![Tensor::from_vec(vec![2.0, 0.0, 3.0, 0.0, 2.0, 0.0, 1.0, 2.0, 3.0], [3, 3])?, 1]);
    all.push(sample![over_four()?, 1; dtype = DType::F64]);
    Ok(all)
}

fn over_four() -> Result<Tensor> {
    Tensor::from_vec(vec![2.0, 0.5, 3.0, 1.5], [2, 2])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    /// The products of others by their definition.
    fn reference(x: &[f64]) -> Vec<f64> {
        let others = |i: usize| x.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, x)| x).product();
        (0..x.len()).map(others).collect()
    }

    #[test]
    fn products_of_others_are_right_for_every_length_and_with_zeros() -> Result<()> {
        for n in 0..20 {
            for zeros in 0..3 {
                let values: Vec<f64> =
                    (0..n).map(|i| if (i * 7) % 5 < zeros { 0.0 } else { 0.5 + (i % 4) as f64 }).collect();
                let got = others(&Tensor::from_slice(&values, [n, 1])?)?.to_vec::<f64>()?;
                assert_eq!(got, reference(&values), "{values:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn second_derivatives_are_right_where_zeros_are() -> Result<()> {
        use crate::autograd::{GradOptions, derivative, grad_with};
        let x = Tensor::from_vec(vec![0.0, 2.0, 0.0, 3.0], [4])?.requires_grad_(true)?;
        let first = grad_with(&x.prod(..)?, &[&x], GradOptions::new().create_graph(true))?;
        let first =
            first.into_iter().flatten().next().ok_or_else(|| crate::error::err!(Graph, "test", "no gradient"))?;
        assert_eq!(first.to_vec::<f64>()?, [0.0; 4]);
        // The first element of the first derivative is x1 x2 x3, whose derivative by x2 is x1 x3.
        let second = derivative(&first.select(0, 0)?, &x)?;
        assert_eq!(second.to_vec::<f64>()?, [0.0, 0.0, 6.0, 0.0]);
        Ok(())
    }
}
