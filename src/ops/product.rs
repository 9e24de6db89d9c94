//! Products over some or all dimensions.

use super::reduce::{ReducePlan, dim_error_cases, dim_samples, samples};
use super::sample::{Op, Sample};
use crate::autograd::BackwardContext;
use crate::backend;
use crate::backend::cpu::reduce::Reduce;
use crate::layout::Sizes;
use crate::{Dims, Result, Tensor};
use smallvec::{SmallVec, smallvec};

#[track_caller]
fn product(op: &'static str, x: &Tensor, dims: &Dims, keepdim: bool) -> Result<Tensor> {
    let plan = ReducePlan::new(op, x, dims, keepdim)?;
    plan.reduce_and_save(op, Reduce::Prod, x, x.dtype().to_sum())?.record(op, &[x], |save| {
        let x = save.save(x);
        move |_: &BackwardContext, g: &Tensor| {
            Ok(smallvec![Some(plan.spread(g)?.mul(&products_of_others(&plan, &x)?)?)])
        }
    })
}

/// For each element the product of all others that go into the same result, without division: right where zeros are.
fn products_of_others(plan: &ReducePlan, x: &Tensor) -> Result<Tensor> {
    // The dimensions that go away to the front, as one; halves of it are then contiguous.
    let front = plan.dims.iter().copied();
    let order: SmallVec<[usize; 5]> = front.chain((0..plan.from.len()).filter(|d| !plan.dims.contains(d))).collect();
    let permuted = x.permute(&order[..])?;
    let count = plan.count();
    let others = others(&permuted.reshape([count, plan.to.numel()])?)?.reshape(Sizes::from(permuted.shape()))?;
    let mut back: SmallVec<[usize; 5]> = smallvec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &dim)| back[dim] = at);
    others.permute(&back[..])
}

/// The same for the columns of a matrix. Elements are paired up and the pairs' products taken to the same question:
/// the others of an element are its partner and the others of the pair.
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

/// A matrix with rows of ones added to make `m` rows.
fn with_rows_of_ones(x: &Tensor, m: usize) -> Result<Tensor> {
    let rows = x.shape()[0];
    if rows == m {
        return Ok(x.clone());
    }
    let mut out = Tensor::filled("prod", [m, x.shape()[1]].into(), 1.0.into(), x.dtype(), x.device())?;
    let mut all = out.as_view_mut("prod")?;
    let top = all.layout.narrow("prod", 0, 0, rows)?;
    all.layout = &top;
    backend::copy("prod", x.as_view()?, &mut all)?;
    out.record("prod", &[x], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.narrow(0, 0, rows)?)]))
}

impl Tensor {
    /// The product of all elements; 1 if there are none. Integers and bools are multiplied in `i64`, `u64` in `u64`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::new([[1.0, 2.0], [3.0, 4.0]])?.prod()?.item::<f32>()?, 24.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn prod(&self) -> Result<Tensor> {
        product("prod", self, &Dims::All, false)
    }

    /// The product over some dimensions, which go away or, with `keepdim`, stay with size 1. To name none is to name
    /// all.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.prod_dim(1, false)?.to_vec::<f32>()?, [2.0, 12.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[track_caller]
    pub fn prod_dim(&self, dims: impl Into<Dims>, keepdim: bool) -> Result<Tensor> {
        product("prod_dim", self, &dims.into(), keepdim)
    }
}

static PROD: Op = Op {
    name: "prod",
    samples: || {
        let mut all = samples("prod", 0.4, 2.0, true, Tensor::prod)?;
        let with = |zeros: [f64; 5]| {
            Ok(Sample::new("prod with zeros", vec![Tensor::from_slice(&zeros, [5])?], |x| x[0].prod()))
        };
        all.push(with([2.0, 0.0, 3.0, -1.5, 0.5])?);
        // With two zeros every product of the others is zero as well; the second derivative is not.
        all.push(with([0.0, 2.0, 0.0, 4.0, 1.5])?.with_zero_derivative());
        Ok(all)
    },
    error_cases: || Ok(Vec::new()),
};

static PROD_DIM: Op = Op {
    name: "prod_dim",
    samples: || {
        let mut all = dim_samples("prod_dim", 0.4, 2.0, true, Tensor::prod_dim)?;
        let x = Tensor::from_vec(vec![2.0, 0.0, 3.0, 0.0, 2.0, 0.0, 1.0, 2.0, 3.0], [3, 3])?;
        all.push(Sample::new("prod_dim with zeros", vec![x], |x| x[0].prod_dim(1, false)));
        Ok(all)
    },
    error_cases: || dim_error_cases("prod_dim", Tensor::prod_dim),
};

pub(crate) static OPS: &[&Op] = &[&PROD, &PROD_DIM];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every product of others by its definition.
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
        use crate::autograd::{Backward, grad_with};
        let x = Tensor::from_vec(vec![0.0, 2.0, 0.0, 3.0], [4])?.requires_grad_(true)?;
        let keep = Backward { create_graph: true, ..Backward::default() };
        let first = grad_with(&x.prod()?, &[&x], None, keep)?;
        let first =
            first.into_iter().flatten().next().ok_or_else(|| crate::error::err!(Graph, "test", "no gradient"))?;
        assert_eq!(first.to_vec::<f64>()?, [0.0; 4]);
        // Of the first derivative's first element, x1 x2 x3, that by x2 is x1 x3.
        let second = grad_with(&first.select(0, 0)?, &[&x], None, Backward::default())?;
        let second = second.into_iter().flatten().next().map(|g| g.to_vec::<f64>()).transpose()?;
        assert_eq!(second, Some(vec![0.0, 0.0, 6.0, 0.0]));
        Ok(())
    }
}
