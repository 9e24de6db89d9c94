//! Systems of linear equations and inverses.

// PyTorch calls right-hand sides B.
#![allow(non_snake_case)]

use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::kernel;
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::linalg::common::{
    batch, columns, diag_embed, from_columns, full_precision, identity, mh, mt, refuse_failures, square, with,
};
use crate::ops::linalg::lu::{Factors, factor};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::tensor::batch::innermost;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

options! {
    /// The options of [`linalg::solve_with`](crate::linalg::solve_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LinalgSolveOptions, tensor};
    /// let (a, b) = (tensor!([[2.0, 0.0], [1.0, 4.0]])?, tensor!([[3.0, 4.0]])?);
    /// let x = linalg::solve_with(&a, &b, LinalgSolveOptions::new().left(false))?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LinalgSolveOptions {
        /// Whether to solve `A · X = B`; otherwise `X · A = B`.
        left: bool = true,
    }
}

options! {
    /// The options of [`linalg::solve_triangular_with`](crate::linalg::solve_triangular_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::SolveTriangularOptions, tensor};
    /// let (a, b) = (tensor!([[7.0, 0.0], [1.0, 7.0]])?, tensor!([[3.0], [5.0]])?);
    /// let x = linalg::solve_triangular_with(&a, &b, false, SolveTriangularOptions::new().unitriangular(true))?;
    /// assert_eq!(x.to_vec::<f32>()?, [3.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SolveTriangularOptions {
        /// Whether to solve `A · X = B`; otherwise `X · A = B`.
        left: bool = true,
        /// Whether the diagonal is taken as ones and not read.
        unitriangular: bool = false,
    }
}

options! {
    /// The options of [`linalg::inv_ex_with`](crate::linalg::inv_ex_with) and of the other operations that return `info`.
    ///
    /// ```
    /// use cotangent::{linalg, options::CheckOptions, Tensor};
    /// let singular = Tensor::zeros([2, 2])?;
    /// assert_eq!(linalg::inv_ex(&singular)?.1.item::<i32>()?, 1);
    /// assert!(linalg::inv_ex_with(&singular, CheckOptions::new().check_errors(true)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CheckOptions {
        /// Whether a singular matrix is an error.
        check_errors: bool = false,
    }
}

/// # Linear equations
#[ops]
impl Tensor {
    /// Solves `A · X = B` for square matrices, where `input` is `A`. Batches broadcast. `B` is a vector, or a batch
    /// of vectors if it has the shape of `A` without its last dimension, or matrices of columns.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let a = tensor!([[2.0, 1.0], [1.0, 3.0]])?;
    /// let x = linalg::solve(&a, &tensor!([5.0, 10.0])?)?;
    /// assert!(x.allclose(&tensor!([1.0, 3.0])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is singular or not square, shapes do not fit, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast_cpu = f32, samples = solve_samples, errors = solve_errors, full_precision, tolerance = 100.0, batch)]
    pub fn linalg_solve(&self, B: &Tensor, options: impl Into<LinalgSolveOptions>) -> Result<Tensor> {
        let (x, info) = solve_any("linalg_solve", self, B, options.left)?;
        refuse_failures("linalg_solve", &info, singular)?;
        Ok(x)
    }

    /// [`linalg::solve`](crate::linalg::solve), and for each matrix 0 or, if it is singular, the number of the first zero
    /// pivot. The solution of a singular system is meaningless.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (x, info) = linalg::solve_ex(&tensor!([[2.0]])?, &tensor!([[3.0]])?)?;
    /// assert_eq!((x.item::<f32>()?, info.item::<i32>()?), (1.5, 0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::solve`](crate::linalg::solve); a singular matrix is an error only with `check_errors`.
    #[op(function = linalg, samples = solve_ex_samples, errors = solve_shape_errors, outputs = [result, info], full_precision, tolerance = 100.0)]
    pub fn linalg_solve_ex(&self, B: &Tensor, options: impl Into<CheckOptions>) -> Result<(Tensor, Tensor)> {
        let (x, info) = solve_any("linalg_solve_ex", self, B, true)?;
        if options.check_errors {
            refuse_failures("linalg_solve_ex", &info, singular)?;
        }
        Ok((x, info))
    }

    /// Solves `A · X = B` for triangular matrices, where `input` is `A`. Only the given triangle is read. Batches
    /// broadcast.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (a, b) = (tensor!([[2.0, 0.0], [1.0, 4.0]])?, tensor!([[2.0], [9.0]])?);
    /// assert_eq!(linalg::solve_triangular(&a, &b, false)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the matrices are not square, shapes do not fit, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, samples = triangular_samples, errors = triangular_errors, full_precision, tolerance = 100.0, batch)]
    pub fn linalg_solve_triangular(
        &self,
        B: &Tensor,
        upper: bool,
        options: impl Into<SolveTriangularOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "linalg_solve_triangular";
        let SolveTriangularOptions { left, unitriangular } = options;
        check_system(OP, self, B, left)?;
        if left {
            triangular(self, B, upper, unitriangular)
        } else {
            mt(&triangular(&mt(self)?, &mt(B)?, !upper, unitriangular)?)
        }
    }

    /// The inverse of square matrices.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[2.0, 0.0], [0.0, 4.0]])?.inverse()?.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is singular or not square, or the elements are not `f32`, `f64` or complex.
    #[doc(alias = "inv")]
    #[doc(alias = "linalg_inv")]
    #[op(autocast_cpu = f32, samples = square_samples, errors = inverse_errors, aliases = ["inv", "linalg_inv"], full_precision, tolerance = 100.0, batch)]
    pub fn inverse(&self) -> Result<Tensor> {
        let (inverse, info) = invert("inverse", self)?;
        refuse_failures("inverse", &info, singular)?;
        Ok(inverse)
    }

    /// The inverse of square matrices, and for each matrix 0 or, if it is singular, the number of the first zero pivot.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (_, info) = linalg::inv_ex(&tensor!([[1.0, 2.0], [2.0, 4.0]])?)?;
    /// assert_eq!(info.item::<i32>()?, 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`inverse`](Tensor::inverse); a singular matrix is an error only with `check_errors`.
    #[op(function = linalg, autocast_cpu = f32, samples = square_samples, errors = inv_ex_errors, outputs = [inverse, info], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_inv_ex(&self, options: impl Into<CheckOptions>) -> Result<(Tensor, Tensor)> {
        let (inverse, info) = invert("linalg_inv_ex", self)?;
        if options.check_errors {
            refuse_failures("linalg_inv_ex", &info, singular)?;
        }
        Ok((inverse, info))
    }
}

/// The message for a singular matrix.
fn singular(pivot: i32) -> String {
    format!("is singular: pivot {pivot} is zero")
}

/// Refuses systems whose shapes or dtypes do not fit.
fn check_system(op: &'static str, a: &Tensor, b: &Tensor, left: bool) -> Result<()> {
    let n = square(op, a)?;
    full_precision(op, a)?;
    full_precision(op, b)?;
    if a.dtype() != b.dtype() {
        bail!(DType, op, "B must have dtype {}, got {}", a.dtype(), b.dtype());
    }
    let (rows, columns) = crate::ops::linalg::common::sizes(op, b)?;
    let own = if left { rows } else { columns };
    if own != n {
        let (a, b) = (a.shape(), b.shape());
        bail!(Shape, op, "cannot solve {a:?} for B of shape {b:?}: sizes {n} and {own} differ");
    }
    Ok(())
}

/// Whether the right-hand side is a vector, or a batch of vectors.
fn is_vector(a: &Tensor, b: &Tensor) -> bool {
    b.rank() == 1 || (a.rank() == b.rank() + 1 && a.shape()[..b.rank()] == *b.shape())
}

#[track_caller]
fn solve_any(op: &'static str, a: &Tensor, b: &Tensor, left: bool) -> Result<(Tensor, Tensor)> {
    crate::ops::linalg::common::sizes(op, a)?;
    if is_vector(a, b) {
        if !left {
            bail!(Value, op, "left must be true for a vector B, got false with shape {:?}", b.shape());
        }
        let column = b.unsqueeze(-1)?;
        check_system(op, a, &column, true)?;
        let (x, info) = solve(a, &column)?;
        return Ok((x.squeeze(-1)?, info));
    }
    check_system(op, a, b, left)?;
    if left {
        solve(a, b)
    } else {
        let (x, info) = solve(&mt(a)?, &mt(b)?)?;
        Ok((mt(&x)?, info))
    }
}

/// Broadcasts the batch dimensions of both.
pub(in crate::ops) fn common_batch(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let shape = broadcast(op, &[&batch(a).into(), &batch(b).into()])?;
    let expand = |x: &Tensor| {
        if batch(x) == &shape[..] { Ok(x.clone()) } else { x.expand(with(&shape, &x.shape()[x.rank() - 2..]).to_vec()) }
    };
    Ok((expand(a)?, expand(b)?))
}

/// `A⁻¹ · B`, and `info`.
#[track_caller]
fn solve(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    if let Some(level) = innermost([a, b]) {
        let [all, right] = Tensor::unbatch_aligned(level, [a, b])?;
        let (x, info) = solve(&all, &right)?;
        let info = info.reshape(with(&[all.shape()[0]], batch(a)))?.expand(with(&[level.size], batch(a)))?;
        return Ok((x.batch(level)?, info.batch(level)?));
    }
    // A row-major matrix, the usual case, is its transpose in column-major order: factoring that avoids a transposing copy.
    let factors = factor(&mt(&a.detach())?, true)?;
    let value = factors.solve(&b.detach(), true)?;
    let info = factors.info.clone();
    let x = value.record("linalg_solve", &[a, b], |save| {
        let (a, x) = (save.save(a), save.save_output());
        let Factors { lu, pivots, info } = &factors;
        let factors = Factors { lu: save.save(lu), pivots: save.save(pivots), info: info.clone() };
        move |ctx: &BackwardContext, g: &Tensor| {
            // The factors are those of Aᵀ: Aᴴ · x = g is solved as Aᵀ · conj(x) = conj(g).
            let again = || factors.solve(&g.conj()?, false)?.conj();
            let b = if is_grad_enabled() || g.is_batched() { solve(&mh(&a)?, g)?.0 } else { again()? };
            let for_a = || b.matmul(&mh(&ctx.output(&x))?)?.neg();
            Ok(smallvec![ctx.want(0, for_a)?, ctx.want(1, || Ok(b.clone()))?])
        }
    })?;
    Ok((x, info))
}

/// `A⁻¹`, and `info`.
#[track_caller]
fn invert(op: &'static str, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let n = square(op, x)?;
    full_precision(op, x)?;
    let factors = factor(&x.detach(), true)?;
    let one = identity(n, x)?.expand(x.shape())?;
    let inverse = factors.solve(&one, false)?.record(op, &[x], |save| {
        let y = save.save_output();
        move |ctx: &BackwardContext, g: &Tensor| {
            let y = mh(&ctx.output(&y))?;
            Ok(smallvec![Some(y.matmul(g)?.matmul(&y)?.neg()?)])
        }
    })?;
    Ok((inverse, factors.info))
}

/// `A⁻¹ · B` for a triangular `A`, from the left.
#[track_caller]
pub(in crate::ops) fn triangular(a: &Tensor, b: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
    const OP: &str = "linalg_solve_triangular";
    if let Some(level) = innermost([a, b]) {
        let [a, b] = Tensor::unbatch_aligned(level, [a, b])?;
        return triangular(&a, &b, upper, unit)?.batch(level);
    }
    let (factors, right) = common_batch(OP, &a.detach(), &b.detach())?;
    // A row-major matrix is its transpose in column-major order.
    let by_rows = factors.is_contiguous();
    let factors = if by_rows { factors } else { mt(&factors)?.contiguous()? };
    let mut value = columns(&right)?;
    let (from, to) = (factors.as_raw_view()?, &mut value.as_raw_view_mut(OP)?);
    kernel!("linalg_solve_triangular" on [from, to]: linalg::decompose::solve_triangular(from, by_rows, upper, unit, to))?;
    from_columns(&value)?.record(OP, &[a, b], |save| {
        let (a, x) = (save.save(a), save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            let b = triangular(&mh(&a)?, g, !upper, unit)?;
            let for_a = || {
                let all = b.matmul(&mh(&ctx.output(&x))?)?.neg()?;
                if upper { all.triu(isize::from(unit)) } else { all.tril(-isize::from(unit)) }
            };
            Ok(smallvec![ctx.want(0, for_a)?, ctx.want(1, || Ok(b.clone()))?])
        }
    })
}

/// Square matrices that are far from singular.
pub(in crate::ops) fn regular(shape: &[usize], seed: u64) -> Result<Tensor> {
    let n = shape[shape.len() - 1];
    normal(shape, seed)?.mul(0.4)?.add(&diag_embed(&crate::ops::sample::spread([n], 1.0, 2.0)?)?)
}

pub(in crate::ops) fn square_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 6] = [&[3, 3], &[1, 1], &[2, 4, 4], &[2, 1, 2, 2], &[0, 2, 2], &[9, 9]];
    let mut all = shapes.iter().map(|shape| Ok(sample![regular(shape, 1)?])).collect::<Result<Vec<_>>>()?;
    all.push(sample![regular(&[0, 0], 1)?]);
    // Rows have to be exchanged.
    all.push(sample![Tensor::from_vec(vec![0.1, 2.0, 0.3, 3.0, 0.2, 1.0, 0.5, 1.0, 4.0], [3, 3])?]);
    Ok(all)
}

pub(in crate::ops) fn square_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["not square", "2 by 3", "[2, 3]"; sample![normal([2, 3], 1)?]],
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["half precision", "f16"; sample![Tensor::zeros_with([2, 2], DType::F16)?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?]],
    ])
}

fn inverse_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    all.push(error!["a singular matrix", "singular", "pivot 1"; sample![Tensor::zeros_with([2, 2], DType::F64)?]]);
    let batch = Tensor::stack(&[identity(2, &normal([1], 1)?)?, Tensor::ones_with([2, 2], DType::F64)?], 0)?;
    all.push(error!["one of a batch", "matrix [1]", "pivot 2"; sample![batch]]);
    Ok(all)
}

fn inv_ex_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    let zeros = Tensor::zeros_with([2, 2], DType::F64)?;
    all.push(error!["a singular matrix", "singular", "pivot 1"; sample![zeros; check_errors = true]]);
    Ok(all)
}

fn solve_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[3, 3], &[3]),
        (&[3, 3], &[3, 2]),
        (&[2, 3, 3], &[2, 3]),
        (&[2, 3, 3], &[3, 2]),
        (&[3, 3], &[2, 3, 1]),
        (&[2, 1, 2, 2], &[3, 2, 2]),
        (&[9, 9], &[9, 5]),
        (&[0, 0], &[0, 2]),
        (&[2, 2], &[2, 0]),
    ];
    let mut all =
        shapes.iter().map(|&(a, b)| Ok(sample![regular(a, 1)?, normal(b, 2)?])).collect::<Result<Vec<_>>>()?;
    all.push(sample![regular(&[3, 3], 1)?, normal([2, 3], 2)?; left = false]);
    all.push(sample![regular(&[2, 3, 3], 1)?, normal([2, 3], 2)?]);
    Ok(all)
}

fn solve_ex_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![regular(&[3, 3], 1)?, normal([3], 2)?], sample![regular(&[2, 3, 3], 1)?, normal([3, 2], 2)?]])
}

fn solve_shape_errors() -> Result<Vec<ErrorCase>> {
    let a = regular(&[3, 3], 1)?;
    Ok(vec![
        error!["not square", "2 by 3"; sample![normal([2, 3], 1)?, normal([2, 2], 1)?]],
        error!["sizes", "[3, 3]", "[2, 2]", "3 and 2"; sample![&a, normal([2, 2], 1)?]],
        error!["a number", "[]"; sample![normal([], 1)?, normal([2, 2], 1)?]],
        error!["two dtypes", "f64", "f32"; sample![&a, normal([3, 2], 1)?.to_dtype(DType::F32)?]],
        error!["half precision", "bf16"; sample![a.to_dtype(DType::BF16)?, normal([3, 2], 1)?.to_dtype(DType::BF16)?]],
    ])
}

fn solve_errors() -> Result<Vec<ErrorCase>> {
    let mut all = solve_shape_errors()?;
    let singular = Tensor::zeros_with([2, 2], DType::F64)?;
    all.push(error!["a singular matrix", "singular", "pivot 1"; sample![singular, normal([2, 1], 1)?]]);
    all.push(error!["a vector from the right", "[3]"; sample![regular(&[3, 3], 1)?, normal([3], 1)?; left = false]]);
    Ok(all)
}

fn triangular_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for upper in [false, true] {
        let call = |a: &[usize], b: &[usize]| Ok(sample![regular(a, 1)?, normal(b, 2)?, upper]);
        all.extend([call(&[3, 3], &[3, 2])?, call(&[2, 3, 3], &[3, 1])?, call(&[2, 2], &[2, 2, 3])?]);
        all.push(sample![regular(&[3, 3], 1)?, normal([2, 3], 2)?, upper; left = false]);
        all.push(sample![regular(&[3, 3], 1)?, normal([3, 2], 2)?, upper; unitriangular = true]);
        all.push(sample![regular(&[2, 3, 3], 1)?, normal([2, 2, 3], 2)?, upper; left = false, unitriangular = true]);
    }
    all.push(sample![normal([0, 0], 1)?, normal([0, 2], 1)?, true]);
    Ok(all)
}

fn triangular_errors() -> Result<Vec<ErrorCase>> {
    let a = regular(&[3, 3], 1)?;
    Ok(vec![
        error!["not square", "2 by 3"; sample![normal([2, 3], 1)?, normal([2, 2], 1)?, true]],
        error!["a vector", "[3]"; sample![&a, normal([3], 1)?, true]],
        error!["sizes", "3 and 2"; sample![&a, normal([3, 2], 1)?, true; left = false]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?, Tensor::zeros_with([2, 2], DType::I64)?, true]],
    ])
}
