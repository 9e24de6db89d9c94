//! Helpers of linear algebra: checks of matrices, transposes and diagonals.

use crate::error::bail;
use crate::options::EyeOptions;
use crate::{DType, Device, Result, Shape, Tensor};

/// The conjugate transpose of the last two dimensions.
#[track_caller]
pub(in crate::ops) fn mh(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)?.conj()
}

/// The transpose of the last two dimensions.
#[track_caller]
pub(in crate::ops) fn mt(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// Rows and columns of the matrices.
pub(in crate::ops) fn sizes(op: &'static str, x: &Tensor) -> Result<(usize, usize)> {
    match *x.shape() {
        [.., m, n] => Ok((m, n)),
        _ => bail!(Shape, op, "expected at least 2 dimensions, got shape {:?}", x.shape()),
    }
}

/// The size of square matrices.
pub(in crate::ops) fn square(op: &'static str, x: &Tensor) -> Result<usize> {
    match sizes(op, x)? {
        (m, n) if m == n => Ok(n),
        (m, n) => bail!(Shape, op, "matrices must be square, got {m} by {n} in shape {:?}", x.shape()),
    }
}

/// Refuses dtypes that decompositions do not support.
pub(in crate::ops) fn full_precision(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype() {
        DType::F32 | DType::F64 | DType::C64 | DType::C128 => Ok(()),
        dtype => bail!(DType, op, "dtype must be f32, f64, c64 or c128, got {dtype}"),
    }
}

/// Refuses dtypes other than floating point and complex.
pub(in crate::ops) fn floats(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype() {
        dtype if dtype.is_float() || dtype.is_complex() => Ok(()),
        dtype => bail!(DType, op, "dtype must be floating point or complex, got {dtype}"),
    }
}

/// The batch dimensions.
pub(in crate::ops) fn batch(x: &Tensor) -> &[usize] {
    &x.shape()[..x.rank().saturating_sub(2)]
}

/// The product of sizes, which saturates.
pub(in crate::ops) fn count(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |n: usize, &size| n.saturating_mul(size))
}

/// The shape `[lead.., last..]`.
pub(in crate::ops) fn with(lead: &[usize], last: &[usize]) -> Shape {
    lead.iter().chain(last).copied().collect()
}

/// The identity of size `n`, with the dtype and device of `like`.
pub(in crate::ops) fn identity(n: usize, like: &Tensor) -> Result<Tensor> {
    eye(n, n, like)
}

/// Ones on the diagonal of an `m` by `n` matrix, with the dtype and device of `like`.
pub(in crate::ops) fn eye(m: usize, n: usize, like: &Tensor) -> Result<Tensor> {
    let options = EyeOptions::new().m(n).dtype(like.dtype().to_real()).device(like.device());
    Tensor::eye_with(m, options)?.to_dtype(like.dtype())
}

/// The mask of the diagonal of an `n` by `n` matrix.
pub(in crate::ops) fn diagonal_mask(n: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::eye_with(n, EyeOptions::new().dtype(DType::Bool).device(like.device()))
}

/// The machine epsilon of the real dtype.
pub(in crate::ops) fn epsilon(x: &Tensor) -> f64 {
    if x.dtype().to_real() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// The main diagonals of the matrices.
#[track_caller]
pub(in crate::ops) fn diag(x: &Tensor) -> Result<Tensor> {
    x.diagonal(0, -2, -1)
}

/// Matrices with the last dimension as their diagonals.
#[track_caller]
pub(in crate::ops) fn diag_embed(x: &Tensor) -> Result<Tensor> {
    x.diag_embed(0, -2, -1)
}

/// A column-major copy of the matrices, as decompositions take them, outside the graph.
pub(in crate::ops) fn columns(x: &Tensor) -> Result<Tensor> {
    mt(&x.detach())?.copied("copy")
}

/// The matrices of a tensor that holds them in column-major order.
pub(in crate::ops) fn from_columns(x: &Tensor) -> Result<Tensor> {
    mt(x)
}

/// Fails if a decomposition failed: `info` has a number for each matrix, 0 for success.
pub(in crate::ops) fn refuse_failures(op: &'static str, info: &Tensor, why: impl Fn(i32) -> String) -> Result<()> {
    let info = info.all_examples()?;
    let numbers = info.to_device(Device::Cpu)?.to_vec::<i32>()?;
    let Some(at) = numbers.iter().position(|&number| number != 0) else { return Ok(()) };
    let (mut index, mut rest) = (vec![0; info.rank()], at);
    for (position, &size) in index.iter_mut().zip(info.shape()).rev() {
        (*position, rest) = (rest % size, rest / size);
    }
    let which = if index.is_empty() { "the matrix".to_string() } else { format!("matrix {index:?}") };
    bail!(Value, op, "{which} {}", why(numbers[at]))
}

/// Refuses matrices with elements that are not finite, for which decompositions on a GPU may not terminate. Those on the
/// CPU check for themselves.
pub(in crate::ops) fn refuse_non_finite(op: &'static str, x: &Tensor) -> Result<()> {
    if x.device() != Device::Cpu && any(&x.detach().abs()?.lt(f64::INFINITY)?.eq(false)?)? {
        bail!(Value, op, "a matrix has elements that are not finite");
    }
    Ok(())
}

/// Whether any element is true.
pub(in crate::ops) fn any(x: &Tensor) -> Result<bool> {
    Ok(x.detach().all_examples()?.to_dtype(DType::I64)?.sum(..)?.item::<i64>()? > 0)
}
