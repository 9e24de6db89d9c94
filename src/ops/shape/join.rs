//! Concatenation and stacking.

use crate::autograd::{BackwardContext, Grads};
use crate::backend::{self, ViewMut};
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::{Layout, checked_bytes, resolve_dim};
use crate::ops::elementwise::call::common_dtype;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::storage::Storage;
use crate::tensor::batch::behind;
use crate::{DType, Device, Result, Shape, Tensor};

/// A tensor of `shape` with each of `tensors` copied to the part whose layout `part` gives.
fn join(
    op: &'static str,
    tensors: &[&Tensor],
    shape: Shape,
    part: &dyn Fn(&Layout, usize) -> Result<Layout>,
) -> Result<Tensor> {
    if tensors.iter().any(|tensor| tensor.is_batched()) {
        return Tensor::over_batch(tensors, |level, all| {
            let own = |(all, one): (&&Tensor, &&Tensor)| all.expand(behind(level.size, one.layout().shape())?);
            let own: Vec<Tensor> = all.iter().zip(tensors).map(own).collect::<Result<_>>()?;
            // The position is the same in every example.
            join(op, &own.iter().collect::<Vec<_>>(), behind(level.size, &shape)?, &|whole, at| {
                let (one, stride) = whole.without_leading();
                part(&one, at)?.with_leading(op, level.size, stride)
            })
        });
    }
    let (dtype, device) = common(op, tensors)?;
    let mut storage = Storage::new(op, device, checked_bytes(op, &shape, dtype.size())?)?;
    let whole = Layout::contiguous(shape);
    for (at, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.numel() > 0) {
        backend::copy(op, tensor.as_view()?, &mut ViewMut::new(op, &mut storage, &part(&whole, at)?, dtype)?)?;
    }
    Ok(Tensor::from_parts(storage, whole, dtype))
}

/// The promoted dtype and the common device.
fn common(op: &'static str, tensors: &[&Tensor]) -> Result<(DType, Device)> {
    let Some(first) = tensors.first() else {
        bail!(Shape, op, "tensors must not be empty");
    };
    let mut dtype = first.dtype();
    for tensor in tensors {
        dtype = common_dtype(op, dtype, tensor.dtype())?;
        crate::backend::common_device(op, first.device(), [tensor.device()])?;
    }
    Ok((dtype, first.device()))
}

/// The positions of the tensors along the dimension of the concatenation.
struct CatPlan {
    dim: usize,
    shape: Shape,
    /// The start and the length of each; `None` for an empty vector, which is ignored.
    parts: Vec<Option<(usize, usize)>>,
}

impl CatPlan {
    fn new(tensors: &[&Tensor], dim: isize) -> Result<CatPlan> {
        if tensors.iter().any(|tensor| tensor.rank() == 0) {
            bail!(Shape, "cat", "tensors must have at least 1 dimension, got shape []: use stack");
        }
        // As in PyTorch, an empty vector is compatible with every shape, so that it can start an accumulation.
        let left_out = |tensor: &Tensor| tensor.shape() == [0];
        let Some(first) = tensors.iter().find(|tensor| !left_out(tensor)) else {
            return Ok(CatPlan { dim: 0, shape: Shape::from([0]), parts: vec![None; tensors.len()] });
        };
        let dim = resolve_dim("cat", dim, first.rank())?;
        let mut parts = Vec::with_capacity(tensors.len());
        let mut end = 0_usize;
        for tensor in tensors {
            if left_out(tensor) {
                parts.push(None);
                continue;
            }
            if tensor.rank() != first.rank()
                || tensor.layout().shape().with(dim, first.shape()[dim]) != *first.layout().shape()
            {
                let (a, b) = (first.shape(), tensor.shape());
                bail!(Shape, "cat", "shapes must match except in dimension {dim}, got {a:?} and {b:?}");
            }
            let len = tensor.shape()[dim];
            parts.push(Some((end, len)));
            end = end.saturating_add(len);
        }
        Ok(CatPlan { dim, shape: first.layout().shape().with(dim, end), parts })
    }
}

/// # Concatenation
#[ops]
impl Tensor {
    /// Concatenates tensors along a dimension. Their shapes must agree in all other dimensions; their dtypes are
    /// promoted. As in PyTorch, a tensor of shape `[0]` is accepted with tensors of any rank.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([[1, 2]])?, tensor!([[3, 4], [5, 6]])?);
    /// assert_eq!(Tensor::cat(&[&a, &b], 0)?.to_vec::<i64>()?, [1, 2, 3, 4, 5, 6]);
    /// assert_eq!(Tensor::cat(&[Tensor::zeros([0])?, Tensor::ones([2, 3])?], -1)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, the shapes do not match, there is no such dimension or the dtypes have no common type.
    #[doc(alias = "concat")]
    #[doc(alias = "concatenate")]
    #[op(autocast_cpu = widest, samples = cat_samples, errors = cat_errors, aliases = ["concat", "concatenate"])]
    pub fn cat(tensors: &[impl AsRef<Tensor>], #[default(0)] dim: impl Into<Dim>) -> Result<Tensor> {
        // First, to refuse an empty list.
        let (dtype, _) = common("cat", tensors)?;
        if dtype.is_complex() {
            let part = |part: fn(&Tensor) -> Result<Tensor>| {
                let parts = tensors.iter().map(|x| part(&x.to_dtype(dtype)?)).collect::<Result<Vec<_>>>()?;
                Tensor::cat(&parts, dim.0)
            };
            return part(Tensor::real)?.with_imaginary(&part(Tensor::imag)?);
        }
        let CatPlan { dim, shape, parts } = CatPlan::new(tensors, dim.0)?;
        let position = |whole: &Layout, at: usize| {
            let (start, len) = parts[at].unwrap_or_default();
            whole.narrow("cat", dim as isize, start as isize, len)
        };
        join("cat", tensors, shape, &position)?.record("cat", tensors, |_| {
            move |ctx: &BackwardContext, g: &Tensor| -> Result<Grads> {
                let part = |(i, part): (usize, &Option<(usize, usize)>)| {
                    ctx.want(i, || match *part {
                        Some((start, len)) => g.narrow(dim, start, len),
                        None => Tensor::zeros_with([0], (g.dtype(), g.device())),
                    })
                };
                parts.iter().enumerate().map(part).collect()
            }
        })
    }

    /// Stacks tensors of one shape along a new dimension. Their dtypes are promoted.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1, 2])?, tensor!([3, 4])?);
    /// assert_eq!(Tensor::stack(&[&a, &b], 1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, the shapes differ, `dim` is out of range or the dtypes have no common type.
    #[op(autocast_cpu = widest, samples = stack_samples, errors = stack_errors)]
    pub fn stack(tensors: &[impl AsRef<Tensor>], #[default(0)] dim: impl Into<Dim>) -> Result<Tensor> {
        let (dtype, _) = common("stack", tensors)?;
        if dtype.is_complex() {
            let part = |part: fn(&Tensor) -> Result<Tensor>| {
                let parts = tensors.iter().map(|x| part(&x.to_dtype(dtype)?)).collect::<Result<Vec<_>>>()?;
                Tensor::stack(&parts, dim.0)
            };
            return part(Tensor::real)?.with_imaginary(&part(Tensor::imag)?);
        }
        let first = tensors[0];
        let dim = resolve_dim("stack", dim.0, first.rank() + 1)?;
        if let Some(other) = tensors.iter().find(|x| x.shape() != first.shape()) {
            bail!(Shape, "stack", "tensors must have the same shape, got {:?} and {:?}", first.shape(), other.shape());
        }
        let mut shape = first.layout().shape().clone();
        shape.insert(dim, tensors.len());
        let out = join("stack", tensors, shape, &|whole, at| whole.select("stack", dim as isize, at as isize))?;
        out.record("stack", tensors, |_| {
            let count = tensors.len();
            move |ctx: &BackwardContext, g: &Tensor| -> Result<Grads> {
                (0..count).map(|i| ctx.want(i, || g.select(dim, i))).collect()
            }
        })
    }
}

/// Tensors of several shapes, with different values.
fn several(shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    shapes.iter().enumerate().map(|(i, &shape)| spread(shape, i as f64, i as f64 + 1.0)).collect()
}

fn with_itself() -> Result<Sample> {
    let x = spread([2, 3], -1.0, 1.0)?;
    Ok(sample![vec![x.clone(), x], 1])
}

fn cat_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[2, 3], &[1, 3], &[4, 3]])?],
        sample![several(&[&[2, 1, 2], &[2, 3, 2]])?, -2],
        sample![several(&[&[2, 0], &[2, 3]])?, 1],
        sample![several(&[&[3]])?, 0],
        sample![several(&[&[0, 2], &[0, 2]])?, 0],
        // Empty vectors are ignored.
        sample![several(&[&[0], &[2, 3], &[0], &[2, 1]])?, -1],
        sample![several(&[&[2], &[0], &[1]])?],
        sample![several(&[&[0], &[0]])?],
        with_itself()?,
    ])
}

fn cat_errors() -> Result<Vec<ErrorCase>> {
    let (u, i) = (Tensor::zeros_with([2], DType::U64)?, Tensor::zeros_with([2], DType::I8)?);
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new(), 0]],
        error!["sizes that differ", "[2, 3]", "[2, 4]"; sample![several(&[&[2, 3], &[2, 4]])?, 0]],
        error!["ranks that differ", "[2, 3]", "[3]"; sample![several(&[&[2, 3], &[3]])?, 0]],
        error!["an empty tensor that does not fit", "[2, 3]", "[0, 4]"; sample![several(&[&[2, 3], &[0, 4]])?, 0]],
        error!["single numbers", "stack"; sample![several(&[&[], &[]])?, 0]],
        error!["a single number", "stack"; sample![several(&[&[2], &[]])?, 0]],
        error!["no such dimension", "2", "rank 2"; sample![vec![normal([2, 3], 1)?], 2]],
        error!["no such dimension, with a vector without elements", "2", "rank 2"; sample![several(&[&[0], &[2, 3]])?, 2]],
        error!["u64 with a signed integer", "u64", "i8"; sample![vec![u, i], 0]],
    ])
}

fn stack_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[2, 3], &[2, 3], &[2, 3]])?, 1],
        sample![several(&[&[2, 3], &[2, 3]])?, -1],
        sample![several(&[&[], &[]])?],
        sample![several(&[&[3]])?, 0],
        sample![several(&[&[0, 2], &[0, 2]])?, -3],
        with_itself()?,
    ])
}

fn stack_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new(), 0]],
        error!["shapes that differ", "[2, 3]", "[1, 3]"; sample![several(&[&[2, 3], &[1, 3]])?, 0]],
        error!["no such place", "3"; sample![vec![normal([2, 3], 1)?], 3]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_promoted_and_gradients_cast_back() -> Result<()> {
        let a = Tensor::from_slice(&[1.5_f32], [1])?.requires_grad_(true)?;
        let (b, c) = (Tensor::from_slice(&[2_i32], [1])?, Tensor::from_slice(&[2.5_f64], [1])?);
        let y = Tensor::cat(&[&a, &b, &c], 0)?;
        assert_eq!(y.to_vec::<f64>()?, [1.5, 2.0, 2.5]);
        y.mul(&y)?.sum(..)?.backward()?;
        assert_eq!(a.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![3.0]));
        Ok(())
    }

    #[test]
    fn vectors_without_elements_add_their_dtype_alone() -> Result<()> {
        let none = Tensor::zeros_with([0], DType::F64)?.requires_grad_(true)?;
        let x = Tensor::ones([2, 3])?.requires_grad_(true)?;
        let y = Tensor::cat(&[&none, &x], 1)?;
        assert_eq!((y.shape(), y.dtype()), (&[2, 3][..], DType::F64));
        y.sum(..)?.backward()?;
        assert_eq!(none.grad().map(|g| (g.shape().to_vec(), g.dtype())), Some((vec![0], DType::F64)));
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0; 6]));
        assert_eq!(Tensor::cat(&[&none, &none], 1)?.shape(), [0]);
        Ok(())
    }

    #[test]
    fn strided_tensors_are_joined_by_value() -> Result<()> {
        let x = Tensor::arange(0, 6)?.view([2, 3])?;
        let joined = Tensor::cat(&[&x.t()?, &x.flip(..)?.t()?], 1)?;
        assert_eq!(joined.to_vec::<i64>()?, [0, 3, 5, 2, 1, 4, 4, 1, 2, 5, 3, 0]);
        Ok(())
    }
}
