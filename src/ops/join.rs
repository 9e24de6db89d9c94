//! Putting tensors together.

use super::binary::common_dtype;
use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::{BackwardContext, Grads};
use crate::backend::{self, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, checked_bytes, resolve_dim};
use crate::storage::Storage;
use crate::{DType, Device, Result, Shape, Tensor};

/// A tensor of `shape` whose parts, given by layouts, are the tensors.
fn join(
    op: &'static str,
    tensors: &[&Tensor],
    shape: Shape,
    part: impl Fn(&Layout, usize) -> Result<Layout>,
) -> Result<Tensor> {
    let (dtype, device) = common(op, tensors)?;
    let mut storage = Storage::new(op, device, checked_bytes(op, &shape, dtype.size())?)?;
    let whole = Layout::contiguous(shape);
    for (at, tensor) in tensors.iter().enumerate() {
        backend::copy(op, tensor.as_view()?, &mut ViewMut::new(op, &mut storage, &part(&whole, at)?, dtype)?)?;
    }
    Ok(Tensor::from_parts(storage, whole, dtype))
}

/// The dtype that holds the elements of all, and the device they are on.
fn common(op: &'static str, tensors: &[&Tensor]) -> Result<(DType, Device)> {
    let Some(first) = tensors.first() else {
        bail!(Shape, op, "there are no tensors to put together");
    };
    let mut dtype = first.dtype();
    for tensor in tensors {
        dtype = common_dtype(op, dtype, tensor.dtype())?;
        if tensor.device() != first.device() {
            bail!(Device, op, "one tensor is on {}, another on {}", first.device(), tensor.device());
        }
    }
    Ok((dtype, first.device()))
}

impl Tensor {
    /// Tensors one after the other along a dimension. They have the same shape but for that dimension; their dtypes are
    /// promoted.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (a, b) = (Tensor::new([[1, 2]])?, Tensor::new([[3, 4], [5, 6]])?);
    /// assert_eq!(Tensor::cat(&[&a, &b], 0)?.to_vec::<i64>()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, the shapes do not fit, there is no such dimension or the dtypes have no common type.
    /// Unlike in PyTorch a tensor of shape `[0]` fits only other vectors.
    #[track_caller]
    pub fn cat(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        common("cat", tensors)?;
        let first = tensors[0];
        if first.rank() == 0 {
            bail!(Shape, "cat", "single numbers have no dimension to go along: use stack");
        }
        let dim = resolve_dim("cat", dim, first.rank())?;
        let mut starts = Vec::with_capacity(tensors.len());
        let mut end = 0_usize;
        for tensor in tensors {
            if tensor.rank() != first.rank()
                || tensor.layout().shape().with(dim, first.shape()[dim]) != *first.layout().shape()
            {
                let (a, b) = (first.shape(), tensor.shape());
                bail!(Shape, "cat", "shapes {a:?} and {b:?} differ in more than dimension {dim}");
            }
            starts.push(end);
            end = end.saturating_add(tensor.shape()[dim]);
        }
        let part = |whole: &Layout, at: usize| {
            whole.narrow("cat", dim as isize, starts[at] as isize, tensors[at].shape()[dim])
        };
        let out = join("cat", tensors, first.layout().shape().with(dim, end), part)?;
        out.record("cat", tensors, |_| {
            let parts: Vec<(usize, usize)> = starts.iter().zip(tensors).map(|(&at, x)| (at, x.shape()[dim])).collect();
            move |ctx: &BackwardContext, g: &Tensor| -> Result<Grads> {
                let part = |(i, &(start, len))| ctx.want(i, || g.narrow(dim as isize, start as isize, len));
                parts.iter().enumerate().map(part).collect()
            }
        })
    }

    /// Tensors of one shape beside each other along a new dimension; their dtypes are promoted.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (a, b) = (Tensor::new([1, 2])?, Tensor::new([3, 4])?);
    /// assert_eq!(Tensor::stack(&[&a, &b], 1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, the shapes differ, there is no such place for a dimension or the dtypes have no common
    /// type.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], dim: isize) -> Result<Tensor> {
        common("stack", tensors)?;
        let first = tensors[0];
        let dim = resolve_dim("stack", dim, first.rank() + 1)?;
        if let Some(other) = tensors.iter().find(|x| x.shape() != first.shape()) {
            bail!(Shape, "stack", "shapes {:?} and {:?} differ", first.shape(), other.shape());
        }
        let mut shape = first.layout().shape().clone();
        shape.insert(dim, tensors.len());
        let out = join("stack", tensors, shape, |whole, at| whole.select("stack", dim as isize, at as isize))?;
        out.record("stack", tensors, |_| {
            let count = tensors.len();
            move |ctx: &BackwardContext, g: &Tensor| -> Result<Grads> {
                (0..count).map(|i| ctx.want(i, || g.select(dim as isize, i as isize))).collect()
            }
        })
    }
}

/// Samples of a call on tensors of several shapes.
fn samples(calls: &[(&[&[usize]], isize)], call: fn(&[&Tensor], isize) -> Result<Tensor>) -> Result<Vec<Sample>> {
    let sample = |&(shapes, dim): &(&[&[usize]], isize)| {
        let input = |(i, &shape): (usize, &&[usize])| spread(shape, i as f64, i as f64 + 1.0);
        let inputs = shapes.iter().enumerate().map(input).collect::<Result<Vec<_>>>()?;
        Ok(Sample::new("join", inputs, move |x| call(&x.iter().collect::<Vec<_>>(), dim)))
    };
    let mut all = calls.iter().map(sample).collect::<Result<Vec<_>>>()?;
    all.push(Sample::new("with itself", vec![spread([2, 3], -1.0, 1.0)?], move |x| call(&[&x[0], &x[0]], 1)));
    Ok(all)
}

fn error_case(
    label: &str,
    message: &[&str],
    shapes: &[&[usize]],
    dim: isize,
    call: fn(&[&Tensor], isize) -> Result<Tensor>,
) -> Result<ErrorCase> {
    let tensors = shapes.iter().map(|&shape| normal(shape, 1)).collect::<Result<Vec<_>>>()?;
    Ok(ErrorCase::new(label, message, move || call(&tensors.iter().collect::<Vec<_>>(), dim)))
}

static CAT: Op = Op {
    name: "cat",
    samples: || {
        let calls: [(&[&[usize]], isize); 5] = [
            (&[&[2, 3], &[1, 3], &[4, 3]], 0),
            (&[&[2, 1, 2], &[2, 3, 2]], -2),
            (&[&[2, 0], &[2, 3]], 1),
            (&[&[3]], 0),
            (&[&[0, 2], &[0, 2]], 0),
        ];
        samples(&calls, Tensor::cat)
    },
    error_cases: || {
        let (u, i) = (Tensor::zeros_with([2], DType::U64)?, Tensor::zeros_with([2], DType::I8)?);
        Ok(vec![
            error_case("no tensors", &["cat", "no tensors"], &[], 0, Tensor::cat)?,
            error_case("sizes that differ", &["cat", "[2, 3]", "[2, 4]"], &[&[2, 3], &[2, 4]], 0, Tensor::cat)?,
            error_case("an empty vector", &["cat", "[2, 3]", "[0]"], &[&[2, 3], &[0]], 0, Tensor::cat)?,
            error_case("single numbers", &["cat", "stack"], &[&[], &[]], 0, Tensor::cat)?,
            error_case("no such dimension", &["cat", "2"], &[&[2, 3]], 2, Tensor::cat)?,
            ErrorCase::new("u64 with a signed integer", &["cat", "u64", "i8"], move || Tensor::cat(&[&u, &i], 0)),
        ])
    },
};

static STACK: Op = Op {
    name: "stack",
    samples: || {
        let calls: [(&[&[usize]], isize); 5] = [
            (&[&[2, 3], &[2, 3], &[2, 3]], 1),
            (&[&[2, 3], &[2, 3]], -1),
            (&[&[], &[]], 0),
            (&[&[3]], 0),
            (&[&[0, 2], &[0, 2]], -3),
        ];
        samples(&calls, Tensor::stack)
    },
    error_cases: || {
        Ok(vec![
            error_case("no tensors", &["stack", "no tensors"], &[], 0, Tensor::stack)?,
            error_case("shapes that differ", &["stack", "[2, 3]", "[1, 3]"], &[&[2, 3], &[1, 3]], 0, Tensor::stack)?,
            error_case("no such place", &["stack", "3"], &[&[2, 3]], 3, Tensor::stack)?,
        ])
    },
};

pub(crate) static OPS: &[&Op] = &[&CAT, &STACK];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_promoted_and_gradients_cast_back() -> Result<()> {
        let a = Tensor::from_slice(&[1.5_f32], [1])?.requires_grad_(true)?;
        let (b, c) = (Tensor::from_slice(&[2_i32], [1])?, Tensor::from_slice(&[2.5_f64], [1])?);
        let y = Tensor::cat(&[&a, &b, &c], 0)?;
        assert_eq!(y.to_vec::<f64>()?, [1.5, 2.0, 2.5]);
        y.mul(&y)?.sum()?.backward()?;
        assert_eq!(a.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![3.0]));
        Ok(())
    }

    #[test]
    fn strided_tensors_are_joined_by_value() -> Result<()> {
        let x = Tensor::arange(0, 6, 1)?.view([2, 3])?;
        let joined = Tensor::cat(&[&x.t()?, &x.flip(..)?.t()?], 1)?;
        assert_eq!(joined.to_vec::<i64>()?, [0, 3, 5, 2, 1, 4, 4, 1, 2, 5, 3, 0]);
        Ok(())
    }
}
