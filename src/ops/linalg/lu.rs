//! LU factorizations.

// PyTorch calls right-hand sides B.
#![allow(non_snake_case)]

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::error::bail;
use crate::ops::linalg::common::{
    columns, count, eye, from_columns, full_precision, mh, mt, refuse_failures, sizes, square,
};
use crate::ops::linalg::solve::{common_batch, regular, triangular};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample};
use crate::options::options;
use crate::{DType, Device, Result, Shape, Tensor};
use smallvec::smallvec;

options! {
    /// The options of [`linalg::lu_with`](crate::linalg::lu_with) and [`linalg::lu_factor_with`](crate::linalg::lu_factor_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LuOptions, tensor};
    /// let (_, l, _) = linalg::lu_with(&tensor!([[1.0, 2.0], [4.0, 6.0]])?, LuOptions::new().pivot(false))?;
    /// assert_eq!(l.to_vec::<f32>()?, [1.0, 0.0, 4.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LuOptions {
        /// Whether rows are exchanged, which keeps rounding errors small. Without it a regular matrix may have no factors.
        pivot: bool = true,
    }
}

options! {
    /// The options of [`linalg::lu_factor_ex_with`](crate::linalg::lu_factor_ex_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LuFactorExOptions, Tensor};
    /// let singular = Tensor::zeros([2, 2])?;
    /// assert!(linalg::lu_factor_ex_with(&singular, LuFactorExOptions::new().check_errors(true)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LuFactorExOptions {
        /// Whether rows are exchanged.
        pivot: bool = true,
        /// Whether a pivot of zero is an error.
        check_errors: bool = false,
    }
}

options! {
    /// The options of [`Tensor::lu_unpack_with`].
    ///
    /// ```
    /// use cotangent::{linalg, options::LuUnpackOptions, tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// let (p, l, _) = lu.lu_unpack_with(&pivots, LuUnpackOptions::new().unpack_data(false))?;
    /// assert_eq!((p.shape(), l.shape()), (&[2, 2][..], &[0][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LuUnpackOptions {
        /// Whether L and U are returned; otherwise they are empty.
        unpack_data: bool = true,
        /// Whether P is returned; otherwise it is empty.
        unpack_pivots: bool = true,
    }
}

options! {
    /// The options of [`linalg::lu_solve_with`](crate::linalg::lu_solve_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LuSolveOptions, tensor, Tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[2.0, 1.0], [0.0, 1.0]])?)?;
    /// let x = linalg::lu_solve_with(&lu, &pivots, &tensor!([[2.0], [2.0]])?, LuSolveOptions::new().adjoint(true))?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LuSolveOptions {
        /// Whether to solve `A · X = B`; otherwise `X · A = B`.
        left: bool = true,
        /// Whether the conjugate transpose of `A` is used.
        adjoint: bool = false,
    }
}

/// LU factorizations of matrices, outside the graph.
#[derive(Clone)]
pub(in crate::ops) struct Factors {
    /// U on and above the diagonals, L below them.
    pub lu: Tensor,
    /// The row, counted from 1, that each row was exchanged with; `i32`.
    pub pivots: Tensor,
    /// 0, or the number of the first pivot that is zero; `i32`.
    pub info: Tensor,
}

/// Factors the matrices of a tensor, with or without row exchanges.
pub(in crate::ops) fn factor(x: &Tensor, exchanges: bool) -> Result<Factors> {
    const OP: &str = "linalg_lu_factor";
    let (m, n) = sizes(OP, x)?;
    let lead: Shape = x.shape()[..x.rank() - 2].into();
    let mut lu = columns(x)?;
    let last: Shape = lead.iter().copied().chain([m.min(n)]).collect();
    let mut pivots = Tensor::empty(OP, last.clone(), DType::I32, x.device())?;
    let mut info = Tensor::empty(OP, lead, DType::I32, x.device())?;
    {
        let (a, p, i) =
            (&mut lu.as_raw_view_mut(OP)?, &mut pivots.as_raw_view_mut(OP)?, &mut info.as_raw_view_mut(OP)?);
        kernel!("linalg_lu_factor" on [a, p, i]: linalg::decompose::lu(a, p, i, exchanges))?;
    }
    if !exchanges {
        let own = Tensor::arange_with(1, m.min(n) as i64 + 1, (DType::I32, x.device()))?;
        pivots = own.expand(last.to_vec())?.contiguous()?;
    }
    Ok(Factors { lu: from_columns(&lu)?, pivots, info })
}

impl Factors {
    /// `A⁻¹ · B`, or with the transposes of `A`, outside the graph. The matrices are square.
    pub fn solve(&self, b: &Tensor, transposed: bool) -> Result<Tensor> {
        const OP: &str = "linalg_lu_solve";
        let (lu, right) = common_batch(OP, &self.lu, &b.detach())?;
        let lead = &lu.shape()[..lu.rank() - 1];
        let pivots = self.pivots.expand(lead)?.contiguous()?;
        let lu = mt(&lu)?.contiguous()?;
        let mut x = columns(&right)?;
        {
            let (a, p, to) = (lu.as_raw_view()?, pivots.as_raw_view()?, &mut x.as_raw_view_mut(OP)?);
            kernel!("linalg_lu_solve" on [a, p, to]: linalg::decompose::lu_solve(a, p, transposed, to))?;
        }
        from_columns(&x)
    }
}

/// The order of `m` rows after the exchanges of `pivots`: element `i` is the number of the row that is moved to row `i`; `i64`.
fn permutation(op: &'static str, pivots: &Tensor, m: usize) -> Result<Tensor> {
    if let Some(done) = pivots.with_examples(|pivots| permutation(op, pivots, m)) {
        return done;
    }
    let k = pivots.shape()[pivots.rank() - 1];
    let numbers = pivots.detach().to_device(Device::Cpu)?.to_dtype(DType::I64)?.to_vec::<i64>()?;
    let lead = &pivots.shape()[..pivots.rank() - 1];
    let many = count(lead);
    let mut all = crate::memory::scratch::with_room(op, many.saturating_mul(m))?;
    for number in 0..if m == 0 { 0 } else { many } {
        let start = all.len();
        all.extend(0..m as i64);
        for (i, &pivot) in numbers[number * k..(number + 1) * k].iter().enumerate() {
            match usize::try_from(pivot) {
                Ok(row) if row > 0 && row <= m && i < m => all.swap(start + i, start + row - 1),
                _ => bail!(Index, op, "pivots must be in [1, {m}], got {pivot}"),
            }
        }
    }
    let shape: Shape = lead.iter().copied().chain([m]).collect();
    Tensor::from_vec(all, shape)?.to_device(pivots.device())
}

/// The matrix `P` of `A = P · L · U`, for an order of rows.
fn matrix(order: &Tensor, m: usize, dtype: DType) -> Result<Tensor> {
    let positions = Tensor::arange_with(0, m as i64, (DType::I64, order.device()))?;
    mt(&order.unsqueeze(-1)?.eq(&positions)?.to_dtype(dtype)?)
}

/// The cotangent of `A = P · L · U` from those of L and U. The rest of a factor depends on its square part and on `A`, so that
/// its cotangent is propagated to these first.
fn cotangent(p: &Tensor, l: &Tensor, u: &Tensor, gl: Option<&Tensor>, gu: Option<&Tensor>) -> Result<Tensor> {
    let (m, n) = (l.shape()[l.rank() - 2], u.shape()[u.rank() - 1]);
    let k = m.min(n);
    let zeros = |like: &Tensor| like.zeros_like();
    let (mut gl, mut gu) =
        (gl.map_or_else(|| zeros(l), |g| Ok(g.clone()))?, gu.map_or_else(|| zeros(u), |g| Ok(g.clone()))?);
    let (mut other_gradient, mut l1, mut u1) = (None, l.clone(), u.clone());
    if n > k {
        // U₂ = L⁻¹ · A₂.
        let (u2, g2) = (u.narrow(-1, k, n - k)?, gu.narrow(-1, k, n - k)?);
        let g = triangular(&mh(l)?, &g2, true, true)?;
        gl = gl.sub(&g.matmul(&mh(&u2)?)?)?;
        (u1, gu) = (u.narrow(-1, 0, k)?, gu.narrow(-1, 0, k)?);
        other_gradient = Some((-1, g));
    } else if m > k {
        // L₂ = A₂ · U⁻¹.
        let (l2, g2) = (l.narrow(-2, k, m - k)?, gl.narrow(-2, k, m - k)?);
        let g = mh(&triangular(u, &mh(&g2)?, true, false)?)?;
        gu = gu.sub(&mh(&l2)?.matmul(&g)?)?;
        (l1, gl) = (l.narrow(-2, 0, k)?, gl.narrow(-2, 0, k)?);
        other_gradient = Some((-2, g));
    }
    let inner = mh(&l1)?.matmul(&gl)?.tril(-1)?.add(&gu.matmul(&mh(&u1)?)?.triu(0)?)?;
    let half = triangular(&mh(&l1)?, &inner, true, true)?;
    let mut g = mh(&triangular(&u1, &mh(&half)?, true, false)?)?;
    if let Some((dim, other)) = other_gradient {
        g = Tensor::cat(&[g, other], dim)?;
    }
    p.matmul(&g)
}

/// L and U from the result of [`factor`].
fn split(lu: &Tensor) -> Result<(Tensor, Tensor)> {
    let (m, n) = sizes("linalg_lu", lu)?;
    let k = m.min(n);
    Ok((lu.narrow(-1, 0, k)?.tril(-1)?.add(&eye(m, k, lu)?)?, lu.narrow(-2, 0, k)?.triu(0)?))
}

/// The LU factorization in one tensor with its derivative, the pivots, and `info`.
#[track_caller]
fn factored(op: &'static str, x: &Tensor, exchanges: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes(op, x)?;
    full_precision(op, x)?;
    let Factors { lu, pivots, info } = factor(&x.detach(), exchanges)?;
    let kept = pivots.clone();
    let [lu, pivots] = Tensor::record_joint([lu, pivots], op, &[x], |save| {
        let (lu, pivots) = (save.save_output_at(0), save.save(&kept));
        move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
            let Some(Some(g)) = cotangents.first() else { return Ok(smallvec![None]) };
            let (l, u) = split(&ctx.output_at(0, &lu)?)?;
            let p = matrix(&permutation(op, &pivots, m)?, m, g.dtype())?;
            let k = m.min(n);
            let (gl, gu) = (g.narrow(-1, 0, k)?.tril(-1)?, g.narrow(-2, 0, k)?.triu(0)?);
            Ok(smallvec![Some(cotangent(&p, &l, &u, Some(&gl), Some(&gu))?)])
        }
    })?;
    Ok((lu, pivots, info))
}

fn singular(pivot: i32) -> String {
    format!("is singular: pivot {pivot} is zero")
}

fn empty(like: &Tensor) -> Result<Tensor> {
    Tensor::zeros_with([0], (like.dtype(), like.device()))
}

/// Checks that pivots are integers, `k` for each matrix.
fn check_pivots(op: &'static str, x: &Tensor, pivots: &Tensor, k: usize) -> Result<()> {
    let fits = pivots.shape().split_last() == Some((&k, crate::ops::linalg::common::batch(x)));
    if pivots.dtype().is_float() || pivots.dtype().is_complex() || !fits {
        let (p, a) = (pivots.shape(), x.shape());
        bail!(Shape, op, "pivots must be {k} integers for each matrix of {a:?}, got {} of shape {p:?}", pivots.dtype());
    }
    Ok(())
}

/// # LU factorizations
#[ops]
impl Tensor {
    /// The LU factorization `A = P · L · U`: a permutation matrix, a unit lower triangular and an upper triangular
    /// matrix. Without the option `pivot`, `A = L · U`, and `P` is empty.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (p, l, u) = linalg::lu(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0]);
    /// assert_eq!((l.to_vec::<f32>()?, u.to_vec::<f32>()?), (vec![1.0, 0.0, 0.0, 1.0], vec![4.0, 6.0, 0.0, 2.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, samples = pivot_samples, errors = matrix_errors, outputs = [p, l, u], aliases = ["lu"], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_lu(&self, options: impl Into<LuOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "linalg_lu";
        let (m, _) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let Factors { lu, pivots, .. } = factor(&self.detach(), options.pivot)?;
        let (l, u) = split(&lu)?;
        let p = matrix(&permutation(OP, &pivots, m)?, m, self.dtype())?;
        let [l, u] = Tensor::record_joint([l, u], OP, &[self], |save| {
            let (p, l, u) = (save.save(&p), save.save_output_at(0), save.save_output_at(1));
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let (l, u) = (ctx.output_at(0, &l)?, ctx.output_at(1, &u)?);
                Ok(smallvec![Some(cotangent(&p, &l, &u, cotangents[0].as_ref(), cotangents[1].as_ref())?)])
            }
        })?;
        Ok((if options.pivot { p } else { empty(self)? }, l, u))
    }

    /// The LU factorization in one tensor, `U` on and above the diagonal and `L` below it, and the pivots: the row,
    /// counted from 1, that each row was exchanged with. [`linalg::lu_solve`](crate::linalg::lu_solve) uses both.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// assert_eq!((lu.to_vec::<f32>()?, pivots.to_vec::<i32>()?), (vec![4.0, 6.0, 0.0, 2.0], vec![2, 2]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, a pivot is zero, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, samples = pivot_samples, errors = matrix_errors, outputs = [lu, pivots], aliases = ["lu_factor"], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_lu_factor(&self, options: impl Into<LuOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_lu_factor";
        let (lu, pivots, info) = factored(OP, self, options.pivot)?;
        refuse_failures(OP, &info, singular)?;
        Ok((lu, pivots))
    }

    /// [`linalg::lu_factor`](crate::linalg::lu_factor), and for each matrix 0 or the number of the first zero pivot.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (_, _, info) = linalg::lu_factor_ex(&tensor!([[1.0, 2.0], [2.0, 4.0]])?)?;
    /// assert_eq!(info.item::<i32>()?, 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::lu_factor`](crate::linalg::lu_factor); a zero pivot is an error only with `check_errors`.
    #[op(function = linalg, samples = pivot_samples, errors = lu_factor_ex_errors, outputs = [lu, pivots, info], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_lu_factor_ex(&self, options: impl Into<LuFactorExOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "linalg_lu_factor_ex";
        let (lu, pivots, info) = factored(OP, self, options.pivot)?;
        if options.check_errors {
            refuse_failures(OP, &info, singular)?;
        }
        Ok((lu, pivots, info))
    }

    /// The matrices `P`, `L` and `U` of a [`linalg::lu_factor`](crate::linalg::lu_factor): this tensor and its pivots.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// let (p, l, u) = lu.lu_unpack(&pivots)?;
    /// assert_eq!(p.matmul(&l)?.matmul(&u)?.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not fit, a pivot is out of range, or the elements are not `f32`, `f64` or complex.
    #[op(samples = unpack_samples, errors = unpack_errors, outputs = [p, l, u], full_precision)]
    pub fn lu_unpack(&self, pivots: &Tensor, options: impl Into<LuUnpackOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "lu_unpack";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        check_pivots(OP, self, pivots, m.min(n))?;
        let p = match options.unpack_pivots {
            true => matrix(&permutation(OP, pivots, m)?, m, self.dtype())?,
            false => empty(self)?,
        };
        let (l, u) = if options.unpack_data { split(self)? } else { (empty(self)?, empty(self)?) };
        Ok((p, l, u))
    }

    /// [`linalg::lu_solve`](crate::linalg::lu_solve) with the right-hand sides first.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// assert_eq!(tensor!([[2.0], [10.0]])?.lu_solve(&lu, &pivots)?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::lu_solve`](crate::linalg::lu_solve).
    #[op(autocast_cpu = f32, samples = old_lu_solve_samples, errors = old_lu_solve_errors, full_precision, tolerance = 100.0)]
    pub fn lu_solve(&self, LU_data: &Tensor, LU_pivots: &Tensor) -> Result<Tensor> {
        LU_data.linalg_lu_solve(LU_pivots, self)
    }

    /// Solves `A · X = B`, where `input` and `pivots` are the [`linalg::lu_factor`](crate::linalg::lu_factor) of
    /// `A`. Batches broadcast.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (lu, pivots) = linalg::lu_factor(&tensor!([[0.0, 2.0], [4.0, 6.0]])?)?;
    /// let x = linalg::lu_solve(&lu, &pivots, &tensor!([[2.0], [10.0]])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not fit, a pivot is out of range, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast = own, samples = lu_solve_samples, errors = lu_solve_errors, full_precision, tolerance = 100.0)]
    pub fn linalg_lu_solve(&self, pivots: &Tensor, B: &Tensor, options: impl Into<LuSolveOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_lu_solve";
        let LuSolveOptions { left, adjoint } = options;
        let n = square(OP, self)?;
        full_precision(OP, self)?;
        let (rows, width) = sizes(OP, B)?;
        if self.dtype() != B.dtype() {
            bail!(DType, OP, "B must have dtype {}, got {}", self.dtype(), B.dtype());
        }
        check_pivots(OP, self, pivots, n)?;
        if n != if left { rows } else { width } {
            let (a, b) = (self.shape(), B.shape());
            let side = if left { "rows" } else { "columns" };
            bail!(Shape, OP, "B must have {n} {side} for {a:?}, got shape {b:?}");
        }
        let p = matrix(&permutation(OP, pivots, n)?, n, self.dtype())?;
        // `X · A = B` is solved as its conjugate transpose.
        let right = if left { B.clone() } else { mh(B)? };
        let x = if adjoint == left {
            let half = triangular(&mh(self)?, &right, false, false)?;
            p.matmul(&triangular(&mh(self)?, &half, true, true)?)?
        } else {
            let half = triangular(self, &mh(&p)?.matmul(&right)?, false, true)?;
            triangular(self, &half, true, false)?
        };
        if left { Ok(x) } else { mh(&x) }
    }
}

fn lu_samples() -> Result<Vec<Sample>> {
    let mut all = crate::ops::linalg::solve::square_samples()?;
    let wide: [&[usize]; 5] = [&[2, 4], &[4, 2], &[2, 3, 2], &[5, 3], &[0, 3]];
    for shape in wide {
        let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let side = m.max(n).max(1);
        let mut square = shape.to_vec();
        let rank = square.len();
        (square[rank - 2], square[rank - 1]) = (side, side);
        all.push(sample![regular(&square, 3)?.narrow(-2, 0, m)?.narrow(-1, 0, n)?.contiguous()?]);
    }
    Ok(all)
}

fn pivot_samples() -> Result<Vec<Sample>> {
    let mut all = lu_samples()?;
    for shape in [&[3, 3][..], &[2, 4, 4]] {
        all.push(sample![regular(shape, 3)?; pivot = false]);
    }
    all.push(sample![regular(&[5, 5], 3)?.narrow(-1, 0, 3)?.contiguous()?; pivot = false]);
    Ok(all)
}

fn lu_factor_ex_errors() -> Result<Vec<ErrorCase>> {
    let mut all = matrix_errors()?;
    let zeros = Tensor::zeros_with([2, 2], DType::F64)?;
    all.push(error!["a singular matrix", "pivot 1"; sample![zeros; check_errors = true]]);
    Ok(all)
}

fn unpack_samples() -> Result<Vec<Sample>> {
    let pivots = |numbers: &[i64]| ints(numbers, [numbers.len()]);
    Ok(vec![
        sample![normal([3, 3], 1)?, pivots(&[2, 3, 3])?],
        sample![normal([2, 4], 1)?, pivots(&[2, 2])?],
        sample![normal([4, 2], 1)?, pivots(&[3, 2])?],
        sample![normal([2, 2, 2], 1)?, ints(&[2, 2, 1, 2], [2, 2])?],
        sample![normal([3, 3], 1)?, pivots(&[2, 3, 3])?; unpack_pivots = false],
    ])
}

fn unpack_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3, 3], 1)?;
    Ok(vec![
        error!["a pivot", "got 4", "3"; sample![&x, ints(&[1, 2, 4], [3])?]],
        error!["too few pivots", "[2]", "[3, 3]"; sample![&x, ints(&[1, 2], [2])?]],
        error!["a vector", "[3]"; sample![normal([3], 1)?, ints(&[1, 2], [2])?]],
    ])
}

fn old_lu_solve_samples() -> Result<Vec<Sample>> {
    let pivots = ints(&[2, 3, 3], [3])?.to_dtype(DType::I32)?;
    Ok(vec![
        sample![normal([3, 2], 2)?, regular(&[3, 3], 1)?, &pivots],
        sample![normal([2, 3, 1], 2)?, regular(&[3, 3], 1)?, &pivots],
    ])
}

fn old_lu_solve_errors() -> Result<Vec<ErrorCase>> {
    let (lu, b) = (regular(&[3, 3], 1)?, normal([3, 2], 2)?);
    Ok(vec![
        error!["a pivot", "got 4", "3"; sample![&b, &lu, ints(&[1, 2, 4], [3])?]],
        error!["too few pivots", "[2]", "[3, 3]"; sample![&b, &lu, ints(&[1, 2], [2])?]],
    ])
}

pub(in crate::ops) fn matrix_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["half precision", "f16"; sample![Tensor::zeros_with([2, 2], DType::F16)?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?]],
    ])
}

fn lu_solve_samples() -> Result<Vec<Sample>> {
    let lu = regular(&[3, 3], 1)?;
    let pivots = ints(&[2, 3, 3], [3])?.to_dtype(DType::I32)?;
    let mut all = vec![sample![&lu, &pivots, normal([3, 2], 2)?], sample![&lu, &pivots, normal([2, 3, 1], 2)?]];
    for (left, adjoint) in [(true, true), (false, false), (false, true)] {
        let b = if left { normal([3, 2], 2)? } else { normal([2, 3], 2)? };
        all.push(sample![&lu, &pivots, b; left = left, adjoint = adjoint]);
    }
    Ok(all)
}

fn lu_solve_errors() -> Result<Vec<ErrorCase>> {
    let (lu, b) = (regular(&[3, 3], 1)?, normal([3, 2], 2)?);
    let pivots = |numbers: &[i64]| ints(numbers, [numbers.len()]);
    Ok(vec![
        error!["a pivot", "got 4", "3"; sample![&lu, pivots(&[1, 2, 4])?, &b]],
        error!["a pivot counted from 0", "got 0"; sample![&lu, pivots(&[0, 2, 3])?, &b]],
        error!["too few pivots", "[2]", "[3, 3]"; sample![&lu, pivots(&[1, 2])?, &b]],
        error!["sizes", "[3, 3]", "[2, 3]"; sample![&lu, pivots(&[1, 2, 3])?, normal([2, 3], 2)?]],
        error!["not square", "2 by 3"; sample![normal([2, 3], 1)?, pivots(&[1, 2])?, &b]],
    ])
}
