//! Cholesky factorizations.

// PyTorch calls factors L.
#![allow(non_snake_case)]

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::error::bail;
use crate::ops::linalg::common::{
    columns, diag, diag_embed, from_columns, full_precision, identity, mh, refuse_failures, sizes, square,
};
use crate::ops::linalg::solve::{regular, square_errors, triangular};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::{DType, Result, Shape, Tensor};
use smallvec::smallvec;

options! {
    /// The options of [`linalg::cholesky_with`](crate::linalg::cholesky_with) and of those like it.
    ///
    /// ```
    /// use cotangent::{linalg, options::CholeskyOptions, tensor};
    /// let u = linalg::cholesky_with(&tensor!([[4.0, 2.0], [2.0, 2.0]])?, CholeskyOptions::new().upper(true))?;
    /// assert_eq!(u.to_vec::<f32>()?, [2.0, 1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CholeskyOptions {
        /// Whether the factors are upper triangular; otherwise lower.
        upper: bool = false,
    }
}

options! {
    /// The options of [`linalg::cholesky_ex_with`](crate::linalg::cholesky_ex_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::CholeskyExOptions, tensor};
    /// let negative = tensor!([[-1.0]])?;
    /// assert!(linalg::cholesky_ex_with(&negative, CholeskyExOptions::new().check_errors(true)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CholeskyExOptions {
        /// Whether the factors are upper triangular; otherwise lower.
        upper: bool = false,
        /// Whether a matrix that is not positive definite is an error.
        check_errors: bool = false,
    }
}

fn not_positive(size: i32) -> String {
    format!("is not positive definite: the leading minor of order {size} is not positive")
}

/// The factors of the matrices, and `info`.
#[track_caller]
fn factor(op: &'static str, x: &Tensor, upper: bool) -> Result<(Tensor, Tensor)> {
    square(op, x)?;
    full_precision(op, x)?;
    let lead: Shape = x.shape()[..x.rank() - 2].into();
    // The upper triangle of a matrix is the lower one of its transpose.
    let mut l = columns(&if upper { mh(x)? } else { x.clone() })?;
    let mut info = Tensor::empty(op, lead, DType::I32, x.device())?;
    {
        let (a, i) = (&mut l.as_raw_view_mut(op)?, &mut info.as_raw_view_mut(op)?);
        kernel!("linalg_cholesky" on [a, i]: linalg::decompose::cholesky(a, i))?;
    }
    let l = from_columns(&l)?.tril(0)?;
    let value = if upper { mh(&l)? } else { l };
    let value = value.record(op, &[x], |save| {
        let y = save.save_output();
        move |ctx: &BackwardContext, g: &Tensor| {
            let y = ctx.output(&y);
            let (l, g) = if upper { (mh(&y)?, mh(g)?) } else { (y, g.clone()) };
            let lower = mh(&l)?.matmul(&g)?.tril(0)?;
            let inner = lower.add(&mh(&lower)?)?.sub(&diag_embed(&diag(&lower)?.real()?)?)?.mul(0.5)?;
            let half = triangular(&mh(&l)?, &inner, true, false)?;
            Ok(smallvec![Some(mh(&triangular(&mh(&l)?, &mh(&half)?, true, false)?)?)])
        }
    })?;
    Ok((value, info))
}

/// # Cholesky factorizations
#[ops]
impl Tensor {
    /// The Cholesky factorization `A = L · Lᴴ` of Hermitian, positive definite matrices, with lower triangular `L`.
    /// Only one triangle of `A` is read. With the option `upper`, `A = Uᴴ · U`. The gradient is Hermitian.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let l = linalg::cholesky(&tensor!([[4.0, 2.0], [2.0, 2.0]])?)?;
    /// assert_eq!(l.to_vec::<f32>()?, [2.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not positive definite or not square, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast_cpu = f32, samples = cholesky_samples, errors = cholesky_errors, aliases = ["cholesky"], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_cholesky(&self, options: impl Into<CholeskyOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_cholesky";
        let (l, info) = factor(OP, self, options.upper)?;
        refuse_failures(OP, &info, not_positive)?;
        Ok(l)
    }

    /// [`linalg::cholesky`](crate::linalg::cholesky), and for each matrix 0 or, if it is not positive definite, the order
    /// of its first leading minor that is not. The factor of such a matrix is meaningless.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (_, info) = linalg::cholesky_ex(&tensor!([[1.0, 0.0], [0.0, -1.0]])?)?;
    /// assert_eq!(info.item::<i32>()?, 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::cholesky`](crate::linalg::cholesky); a matrix that is not positive definite is an error only with
    /// `check_errors`.
    #[op(function = linalg, autocast_cpu = f32, samples = cholesky_samples, errors = cholesky_ex_errors, outputs = [l, info], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_cholesky_ex(&self, options: impl Into<CholeskyExOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_cholesky_ex";
        let (l, info) = factor(OP, self, options.upper)?;
        if options.check_errors {
            refuse_failures(OP, &info, not_positive)?;
        }
        Ok((l, info))
    }

    /// Solves `A · X = B`, where this tensor is `B` and `L` is the Cholesky factor of `A`. Batches broadcast.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let l = tensor!([[2.0, 0.0], [1.0, 1.0]])?;
    /// let x = tensor!([[6.0], [4.0]])?.cholesky_solve(&l)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not fit, or the elements are not `f32`, `f64` or complex.
    #[op(autocast_cpu = f32, samples = cholesky_solve_samples, errors = cholesky_solve_errors, full_precision, tolerance = 100.0, batch)]
    pub fn cholesky_solve(&self, L: &Tensor, options: impl Into<CholeskyOptions>) -> Result<Tensor> {
        const OP: &str = "cholesky_solve";
        let n = square(OP, L)?;
        full_precision(OP, L)?;
        let (rows, _) = sizes(OP, self)?;
        if rows != n || self.dtype() != L.dtype() {
            let (l, b) = (L.shape(), self.shape());
            let (dl, db) = (L.dtype(), self.dtype());
            bail!(Shape, OP, "input must be {dl} with {n} rows for L of shape {l:?}, got {db} of shape {b:?}");
        }
        if options.upper {
            triangular(L, &triangular(&mh(L)?, self, false, false)?, true, false)
        } else {
            triangular(&mh(L)?, &triangular(L, self, false, false)?, true, false)
        }
    }

    /// The inverses of symmetric matrices, whose Cholesky factors this tensor holds.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let inverse = tensor!([[2.0, 0.0], [0.0, 1.0]])?.cholesky_inverse()?;
    /// assert_eq!(inverse.to_vec::<f32>()?, [0.25, 0.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, or the elements are not `f32`, `f64` or complex.
    #[op(autocast_cpu = f32, samples = cholesky_inverse_samples, errors = square_errors, full_precision, tolerance = 100.0, batch)]
    pub fn cholesky_inverse(&self, options: impl Into<CholeskyOptions>) -> Result<Tensor> {
        const OP: &str = "cholesky_inverse";
        let n = square(OP, self)?;
        full_precision(OP, self)?;
        let l = if options.upper { mh(self)? } else { self.clone() };
        let inverse = triangular(&l, &identity(n, self)?, false, false)?;
        mh(&inverse)?.matmul(&inverse)
    }
}

/// Symmetric, positive definite matrices.
pub(in crate::ops) fn positive(shape: &[usize], seed: u64) -> Result<Tensor> {
    let x = regular(shape, seed)?;
    x.matmul(&mh(&x)?)
}

fn cholesky_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 6] = [&[3, 3], &[1, 1], &[2, 4, 4], &[9, 9], &[0, 2, 2], &[0, 0]];
    let mut all = shapes.iter().map(|s| Ok(sample![positive(s, 1)?].symmetric())).collect::<Result<Vec<_>>>()?;
    all.push(sample![positive(&[2, 3, 3], 1)?; upper = true].symmetric());
    Ok(all)
}

fn cholesky_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    let indefinite = Tensor::from_vec(vec![1.0, 2.0, 2.0, 1.0], [2, 2])?;
    all.push(error!["not positive definite", "order 2"; sample![&indefinite]]);
    let batch = Tensor::stack(&[identity(2, &indefinite)?, indefinite], 0)?;
    all.push(error!["one of a batch", "matrix [1]", "order 2"; sample![batch]]);
    all.push(error!["NaN", "order 1"; sample![Tensor::full_with([2, 2], f64::NAN, DType::F64)?]]);
    Ok(all)
}

fn cholesky_ex_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    let negative = Tensor::full_with([1, 1], -1.0, DType::F64)?;
    all.push(error!["not positive definite", "order 1"; sample![negative; check_errors = true]]);
    Ok(all)
}

fn cholesky_solve_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3, 2], 1)?, regular(&[3, 3], 2)?],
        sample![normal([3, 1], 1)?, regular(&[2, 3, 3], 2)?],
        sample![normal([2, 3, 2], 1)?, regular(&[3, 3], 2)?; upper = true],
        sample![normal([0, 2], 1)?, normal([0, 0], 2)?],
    ])
}

fn cholesky_solve_errors() -> Result<Vec<ErrorCase>> {
    let l = regular(&[3, 3], 2)?;
    Ok(vec![
        error!["sizes", "[3, 3]", "[2, 2]"; sample![normal([2, 2], 1)?, &l]],
        error!["a vector", "[3]"; sample![normal([3], 1)?, &l]],
        error!["not square", "2 by 3"; sample![normal([2, 2], 1)?, normal([2, 3], 1)?]],
        error!["two dtypes", "f32", "f64"; sample![normal([3, 1], 1)?.to_dtype(DType::F32)?, l]],
    ])
}

fn cholesky_inverse_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![regular(&[3, 3], 1)?],
        sample![regular(&[2, 4, 4], 1)?],
        sample![regular(&[3, 3], 1)?; upper = true],
        sample![normal([0, 0], 1)?],
    ])
}
