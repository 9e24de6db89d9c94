//! What the operations of linear algebra share: checks of matrices, transposes and diagonals.

use crate::error::bail;
use crate::{DType, Device, EyeOptions, Result, Shape, Tensor};

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
        _ => bail!(Shape, op, "a tensor of shape {:?} has no matrices: at least 2 dimensions are needed", x.shape()),
    }
}

/// The size of square matrices.
pub(in crate::ops) fn square(op: &'static str, x: &Tensor) -> Result<usize> {
    match sizes(op, x)? {
        (m, n) if m == n => Ok(n),
        (m, n) => bail!(Shape, op, "matrices of {m} by {n} in shape {:?} are not square", x.shape()),
    }
}

/// Refuses what decompositions do not take.
pub(in crate::ops) fn full_precision(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype() {
        DType::F32 | DType::F64 | DType::C64 | DType::C128 => Ok(()),
        dtype => bail!(DType, op, "not defined for {dtype}: matrices of f32, f64, c64 or c128 are needed"),
    }
}

/// Refuses what is not of floating point, real or complex.
pub(in crate::ops) fn floats(op: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype() {
        dtype if dtype.is_float() || dtype.is_complex() => Ok(()),
        dtype => bail!(DType, op, "not defined for {dtype}: floats are needed"),
    }
}

/// The dimensions before the matrices.
pub(in crate::ops) fn batch(x: &Tensor) -> &[usize] {
    &x.shape()[..x.rank().saturating_sub(2)]
}

/// The product of some sizes; one that is too large stays so.
pub(in crate::ops) fn count(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |n: usize, &size| n.saturating_mul(size))
}

/// A shape with these dimensions at its end.
pub(in crate::ops) fn with(lead: &[usize], last: &[usize]) -> Shape {
    lead.iter().chain(last).copied().collect()
}

/// The identity of size `n` beside a tensor.
pub(in crate::ops) fn identity(n: usize, like: &Tensor) -> Result<Tensor> {
    eye(n, n, like)
}

/// Ones on the diagonal of `m` rows and `n` columns, beside a tensor.
pub(in crate::ops) fn eye(m: usize, n: usize, like: &Tensor) -> Result<Tensor> {
    let options = EyeOptions::new().m(n).dtype(like.dtype().to_real()).device(like.device());
    Tensor::eye_with(m, options)?.to_dtype(like.dtype())
}

/// Which elements are on the diagonals of matrices of size `n`.
pub(in crate::ops) fn diagonal_mask(n: usize, like: &Tensor) -> Result<Tensor> {
    Tensor::eye_with(n, EyeOptions::new().dtype(DType::Bool).device(like.device()))
}

/// The distance of 1 from the next number, in the dtype of the parts.
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

/// A copy of the matrices that lies column by column, as decompositions take them, outside the graph.
pub(in crate::ops) fn columns(x: &Tensor) -> Result<Tensor> {
    mt(&x.detach())?.copied("copy")
}

/// The matrices that lie column by column in a tensor.
pub(in crate::ops) fn from_columns(x: &Tensor) -> Result<Tensor> {
    mt(x)
}

/// Refuses what a decomposition has stopped at: `info` has a number for each matrix, 0 where all went well.
pub(in crate::ops) fn refuse_failures(op: &'static str, info: &Tensor, why: impl Fn(i32) -> String) -> Result<()> {
    let info = info.all_examples()?;
    let numbers = info.to_device(Device::Cpu)?.to_vec::<i32>()?;
    let Some(at) = numbers.iter().position(|&number| number != 0) else { return Ok(()) };
    let (mut index, mut rest) = (vec![0; info.rank()], at);
    for (place, &size) in index.iter_mut().zip(info.shape()).rev() {
        (*place, rest) = (rest % size, rest / size);
    }
    let which = if index.is_empty() { "the matrix".to_string() } else { format!("matrix {index:?}") };
    bail!(Value, op, "{which} {}", why(numbers[at]))
}

/// Refuses matrices with elements that are not finite, which decompositions of a GPU might never end with. Those of the CPU look
/// by themselves.
pub(in crate::ops) fn refuse_non_finite(op: &'static str, x: &Tensor) -> Result<()> {
    if x.device() != Device::Cpu && any(&x.detach().abs()?.lt(f64::INFINITY)?.eq(false)?)? {
        bail!(Value, op, "a matrix has elements that are not finite");
    }
    Ok(())
}

/// Whether one of some bools is true.
pub(in crate::ops) fn any(x: &Tensor) -> Result<bool> {
    Ok(x.detach().all_examples()?.to_dtype(DType::I64)?.sum(..)?.item::<i64>()? > 0)
}
