//! LDL factorizations of symmetric and Hermitian matrices.

// PyTorch calls right-hand sides B.
#![allow(non_snake_case)]

use crate::backend::kernel;
use crate::error::bail;
use crate::memory::scratch::with_room;
use crate::ops::linalg::common::{
    batch, columns, count, diag, diag_embed, eye, from_columns, full_precision, mh, mt, refuse_failures, sizes, square,
};
use crate::ops::linalg::solve::{common_batch, square_errors, triangular};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::tensor::batch::innermost;
use crate::{DType, Device, Result, Shape, Tensor};

options! {
    /// The options of [`linalg::ldl_factor_with`](crate::linalg::ldl_factor_with) and [`linalg::ldl_solve_with`](crate::linalg::ldl_solve_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LdlOptions, Tensor};
    /// let (ld, _) = linalg::ldl_factor_with(&Tensor::eye(2)?, LdlOptions::new().hermitian(true))?;
    /// assert_eq!(ld.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LdlOptions {
        /// Whether complex matrices are Hermitian; otherwise symmetric.
        hermitian: bool = false,
    }
}

options! {
    /// The options of [`linalg::ldl_factor_ex_with`](crate::linalg::ldl_factor_ex_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LdlFactorExOptions, Tensor};
    /// let zeros = Tensor::zeros([2, 2])?;
    /// assert!(linalg::ldl_factor_ex_with(&zeros, LdlFactorExOptions::new().check_errors(true)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LdlFactorExOptions {
        /// Whether complex matrices are Hermitian; otherwise symmetric.
        hermitian: bool = false,
        /// Whether a block of zeros in `D` is an error.
        check_errors: bool = false,
    }
}

/// Factors, pivots, and `info`.
fn factor(op: &'static str, x: &Tensor, hermitian: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let n = square(op, x)?;
    full_precision(op, x)?;
    let lead: Shape = batch(x).into();
    let mut ld = columns(x)?;
    let last: Shape = lead.iter().copied().chain([n]).collect();
    let mut pivots = Tensor::empty(op, last, DType::I32, x.device())?;
    let mut info = Tensor::empty(op, lead, DType::I32, x.device())?;
    {
        let (a, p, i) = (&mut ld.as_raw_view_mut(op)?, &mut pivots.as_view_mut(op)?, &mut info.as_view_mut(op)?);
        kernel!("linalg_ldl_factor" on [a, p, i]: linalg::decompose::ldl(a, p, i, hermitian))?;
    }
    let [ld, pivots, info] = [from_columns(&ld)?.tril(0)?, pivots, info].map(|y| y.record_barrier(op, &[x]));
    Ok((ld, pivots, info))
}

fn zero_block(number: i32) -> String {
    format!("is singular: block {number} of D is zero")
}

/// The exchanges of rows that pivots stand for.
struct Exchanges {
    /// For each element below the diagonal, its row with the exchanges after its column undone: `[.., n, n]`.
    positions: Tensor,
    /// The order of rows after all exchanges: `[.., n]`.
    order: Tensor,
    /// Whether the element below the diagonal belongs to a block of size 2, for each column: `[.., n]`.
    off_diagonal: Tensor,
}

impl Exchanges {
    fn new(op: &'static str, pivots: &Tensor, n: usize) -> Result<Exchanges> {
        if let Some(level) = innermost([pivots]) {
            let Exchanges { positions, order, off_diagonal } = Exchanges::new(op, &pivots.leading_batch(level)?, n)?;
            let own = |x: Tensor| x.batched(level);
            return Ok(Exchanges { positions: own(positions)?, order: own(order)?, off_diagonal: own(off_diagonal)? });
        }
        let numbers = pivots.detach().to_device(Device::Cpu)?.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let many = numbers.len().checked_div(n).unwrap_or(0);
        let mut positions: Vec<i64> = with_room(op, many.saturating_mul(n).saturating_mul(n))?;
        let (mut order, mut off_diagonal): (Vec<i64>, Vec<bool>) = (with_room(op, many * n)?, with_room(op, many * n)?);
        for numbers in numbers.chunks_exact(n.max(1)) {
            let start = positions.len();
            let (first, own) = (order.len(), off_diagonal.len());
            positions.extend((0..n).flat_map(|row| std::iter::repeat_n(row as i64, n)));
            order.extend(0..n as i64);
            off_diagonal.resize(own + n, false);
            let mut k = 0;
            while k < n {
                let (pivot, two) = (numbers[k].unsigned_abs() as usize, numbers[k] < 0);
                let last = k + usize::from(two);
                if pivot == 0 || pivot > n || last >= n || (two && numbers[last] != numbers[k]) {
                    bail!(Index, op, "pivots must be in [1, {n}], or equal pairs in [-{n}, -1], got {}", numbers[k]);
                }
                let with = pivot - 1;
                order.swap(first + last, first + with);
                for column in 0..k {
                    positions.swap(start + last * n + column, start + with * n + column);
                }
                off_diagonal[own + k] = two;
                k = last + 1;
            }
        }
        let shape: Vec<usize> = pivots.shape().to_vec();
        let square: Vec<usize> = shape.iter().copied().chain([n]).collect();
        let on = pivots.device();
        Ok(Exchanges {
            positions: Tensor::from_vec(positions, square)?.to_device(on)?,
            order: Tensor::from_vec(order, &shape[..])?.to_device(on)?,
            off_diagonal: Tensor::from_vec(off_diagonal, shape)?.to_device(on)?,
        })
    }
}

/// # LDL factorizations
#[ops]
impl Tensor {
    /// The factorization `A = P · L · D · Lᵀ · Pᵀ` of symmetric matrices, in one tensor, and LAPACK's pivots: `L` is
    /// unit lower triangular, `D` has blocks of size 1 and 2. Only the lower triangles are read. With the option
    /// `hermitian` the matrices are Hermitian. [`linalg::ldl_solve`](crate::linalg::ldl_solve) uses both. It has no
    /// derivative.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (ld, pivots) = linalg::ldl_factor(&tensor!([[4.0, 2.0], [2.0, 3.0]])?)?;
    /// assert_eq!((ld.to_vec::<f32>()?, pivots.to_vec::<i32>()?), (vec![4.0, 0.0, 0.5, 2.0], vec![1, 2]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, a block of `D` is zero, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, samples = ldl_samples, errors = ldl_errors, outputs = [ld, pivots], derivative = none, aliases = ["ldl_factor"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_ldl_factor(&self, options: impl Into<LdlOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_ldl_factor";
        let (ld, pivots, info) = factor(OP, self, options.hermitian)?;
        refuse_failures(OP, &info, zero_block)?;
        Ok((ld, pivots))
    }

    /// [`linalg::ldl_factor`](crate::linalg::ldl_factor), and for each matrix 0 or the number of the first zero block.
    ///
    /// ```
    /// # use cotangent::{linalg, Tensor};
    /// let (_, _, info) = linalg::ldl_factor_ex(&Tensor::zeros([2, 2])?)?;
    /// assert_eq!(info.item::<i32>()?, 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::ldl_factor`](crate::linalg::ldl_factor); a zero block is an error only with `check_errors`.
    #[op(function = linalg, samples = ldl_samples, errors = ldl_ex_errors, outputs = [ld, pivots, info], derivative = none, full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_ldl_factor_ex(&self, options: impl Into<LdlFactorExOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "linalg_ldl_factor_ex";
        let (ld, pivots, info) = factor(OP, self, options.hermitian)?;
        if options.check_errors {
            refuse_failures(OP, &info, zero_block)?;
        }
        Ok((ld, pivots, info))
    }

    /// Solves `A · X = B`, where `input` and `pivots` are the [`linalg::ldl_factor`](crate::linalg::ldl_factor) of
    /// `A`. Batches broadcast.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (ld, pivots) = linalg::ldl_factor(&tensor!([[4.0, 2.0], [2.0, 3.0]])?)?;
    /// let x = linalg::ldl_solve(&ld, &pivots, &tensor!([[6.0], [5.0]])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not fit, a pivot is out of range, `D` is singular, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast = own, samples = ldl_solve_samples, errors = ldl_solve_errors, aliases = ["ldl_solve"], full_precision, tolerance = 1000.0)]
    pub fn linalg_ldl_solve(&self, pivots: &Tensor, B: &Tensor, options: impl Into<LdlOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_ldl_solve";
        let n = square(OP, self)?;
        full_precision(OP, self)?;
        let (rows, _) = sizes(OP, B)?;
        let fits = pivots.shape().split_last() == Some((&n, batch(self))) && pivots.dtype().is_int();
        if !fits || rows != n || B.dtype() != self.dtype() {
            let ((a, p, b), (da, dp, db)) =
                ((self.shape(), pivots.shape(), B.shape()), (self.dtype(), pivots.dtype(), B.dtype()));
            if !fits {
                bail!(Shape, OP, "pivots must be {n} integers for each matrix of {a:?}, got {dp} of shape {p:?}");
            }
            bail!(Shape, OP, "B must be {da} with {n} rows for {a:?}, got {db} of shape {b:?}");
        }
        if count(self.shape()) == 0 || B.numel() == 0 {
            return common_batch(OP, self, B)?.1.contiguous();
        }
        let Exchanges { positions, order, off_diagonal } = Exchanges::new(OP, pivots, n)?;
        let turned = |x: &Tensor| if options.hermitian { mh(x) } else { mt(x) };
        // The element below the diagonal of a block of size 2 belongs to D.
        let own = off_diagonal.narrow(-1, 0, n - 1)?;
        let under = self.diagonal(-1, -2, -1)?;
        let below = own.where_(&under, 0.0)?.diag_embed(-1, -2, -1)?;
        let d = diag_embed(&diag(self)?)?.add(&below)?.add(&turned(&below)?)?;
        let l = self.tril(-1)?.sub(&below)?.gather(-2, &positions)?.add(&eye(n, n, self)?)?;
        let p = order.unsqueeze(-1)?.eq(&Tensor::arange_with(0, n as i64, (DType::I64, self.device()))?)?;
        let p = p.to_dtype(self.dtype())?;
        let half = triangular(&l, &p.matmul(B)?, false, true)?;
        let x = triangular(&turned(&l)?, &d.linalg_solve(&half)?, true, true)?;
        mt(&p)?.matmul(&x)
    }
}

/// Symmetric matrices that are not definite.
fn indefinite(shape: &[usize], seed: u64) -> Result<Tensor> {
    let x = normal(shape, seed)?;
    x.add(&mt(&x)?)
}

fn ldl_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 5] = [&[3, 3], &[1, 1], &[2, 5, 5], &[0, 2, 2], &[0, 0]];
    let mut all = shapes.iter().map(|s| Ok(sample![indefinite(s, 1)?])).collect::<Result<Vec<_>>>()?;
    // A block of size 2.
    all.push(sample![Tensor::from_vec(vec![0.1, 2.0, 0.3, 2.0, 0.2, 1.0, 0.3, 1.0, 4.0], [3, 3])?]);
    Ok(all)
}

fn ldl_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    all.push(error!["zeros", "block 1"; sample![Tensor::zeros_with([2, 2], DType::F64)?]]);
    Ok(all)
}

fn ldl_ex_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    all.push(error!["zeros", "block 1"; sample![Tensor::zeros_with([2, 2], DType::F64)?; check_errors = true]]);
    Ok(all)
}

fn ldl_solve_samples() -> Result<Vec<Sample>> {
    let ld = crate::ops::linalg::solve::regular(&[3, 3], 1)?;
    let pivots = |numbers: &[i64]| ints(numbers, [numbers.len()]);
    Ok(vec![
        sample![&ld, pivots(&[2, 3, 3])?, normal([3, 2], 2)?],
        sample![&ld, pivots(&[-3, -3, 3])?, normal([2, 3, 1], 2)?],
        sample![&ld, pivots(&[3, -3, -3])?, normal([3, 1], 2)?; hermitian = true],
        sample![crate::ops::linalg::solve::regular(&[2, 2, 2], 1)?, ints(&[1, 2, -2, -2], [2, 2])?, normal([2, 1], 2)?],
    ])
}

fn ldl_solve_errors() -> Result<Vec<ErrorCase>> {
    let (ld, b) = (crate::ops::linalg::solve::regular(&[3, 3], 1)?, normal([3, 2], 2)?);
    let pivots = |numbers: &[i64]| ints(numbers, [numbers.len()]);
    Ok(vec![
        error!["a pivot", "got 4", "3"; sample![&ld, pivots(&[1, 2, 4])?, &b]],
        error!["half a block", "got -3"; sample![&ld, pivots(&[1, 2, -3])?, &b]],
        error!["too few pivots", "[2]", "[3, 3]"; sample![&ld, pivots(&[1, 2])?, &b]],
        error!["sizes", "[3, 3]", "[2, 2]"; sample![&ld, pivots(&[1, 2, 3])?, normal([2, 2], 2)?]],
    ])
}
