//! Norms of vectors and matrices, and condition numbers.

use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::layout::resolve_dim;
use crate::layout::{Dims, ReduceDims};
use crate::ops::linalg::common::{floats, full_precision, sizes};
use crate::ops::linalg::solve::{regular, square_errors};
use crate::ops::reduce::sums::ReducePlan;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::ops::{Arg, ArgKind, FromArg, ops};
use crate::options::options;
use crate::{DType, Result, Scalar, Tensor};
use smallvec::smallvec;

/// The order of a norm: a number, or one of two names for matrices.
///
/// ```
/// use cotangent::{linalg, options::NormOrd, tensor};
/// let x = tensor!([[3.0, 0.0], [0.0, 4.0]])?;
/// assert_eq!(linalg::matrix_norm(&x, NormOrd::Fro)?.item::<f32>()?, 5.0);
/// assert_eq!(linalg::matrix_norm(&x, 1)?.item::<f32>()?, 4.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NormOrd {
    /// The Frobenius norm: the square root of the sum of squares.
    Fro,
    /// The nuclear norm: the sum of the singular values.
    Nuc,
    /// A number, which may be infinite.
    Number(f64),
}

impl From<f64> for NormOrd {
    fn from(number: f64) -> NormOrd {
        NormOrd::Number(number)
    }
}

impl From<i32> for NormOrd {
    fn from(number: i32) -> NormOrd {
        NormOrd::Number(f64::from(number))
    }
}

impl std::fmt::Display for NormOrd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NormOrd::Fro => f.write_str("fro"),
            NormOrd::Nuc => f.write_str("nuc"),
            NormOrd::Number(number) => write!(f, "{number}"),
        }
    }
}

impl<'a> FromArg<'a> for NormOrd {
    const KIND: ArgKind = ArgKind::Choice(&["fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"]);

    fn from_arg(arg: &'a Arg) -> Option<NormOrd> {
        match arg {
            Arg::Text(word) if word == "fro" => Some(NormOrd::Fro),
            Arg::Text(word) if word == "nuc" => Some(NormOrd::Nuc),
            Arg::Text(word) => word.parse().ok().map(NormOrd::Number),
            Arg::Scalar(Scalar::Bool(_) | Scalar::C128(_)) => None,
            Arg::Scalar(number) => Some(NormOrd::Number(number.to_f64())),
            _ => None,
        }
    }
}

impl From<NormOrd> for Arg {
    fn from(ord: NormOrd) -> Arg {
        Arg::Text(ord.to_string())
    }
}

options! {
    /// The options of [`linalg::vector_norm_with`](crate::linalg::vector_norm_with) and [`linalg::norm_with`](crate::linalg::norm_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::LinalgNormOptions, tensor, DType};
    /// let norm = linalg::vector_norm_with(&tensor!([3.0, 4.0])?, 2.0, .., LinalgNormOptions::new().dtype(DType::F64))?;
    /// assert_eq!(norm.item::<f64>()?, 5.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LinalgNormOptions {
        /// The dtype that elements are cast to first.
        dtype: Option<DType> = None,
    }
}

options! {
    /// The options of [`linalg::matrix_norm_with`](crate::linalg::matrix_norm_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::MatrixNormOptions, Tensor};
    /// let x = Tensor::ones([2, 3, 4])?;
    /// let options = MatrixNormOptions::new().dim([0, 1]).keepdim(true);
    /// assert_eq!(linalg::matrix_norm_with(&x, 1, options)?.shape(), [1, 1, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MatrixNormOptions {
        /// The dimensions of the rows and of the columns.
        dim: Vec<isize> = vec![-2, -1],
        /// Whether both dimensions are kept, with size 1.
        keepdim: bool = false,
        /// The dtype that elements are cast to first.
        dtype: Option<DType> = None,
    }
}

fn cast(x: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or_else(|| Ok(x.clone()), |dtype| x.to_dtype(dtype))
}

/// `(Σ |x|ᵖ)^(1/p)`.
#[track_caller]
fn vector_norm(op: &'static str, x: &Tensor, ord: f64, over: &ReduceDims) -> Result<Tensor> {
    floats(op, x)?;
    if x.dtype().is_complex() {
        let plan = ReducePlan::new(op, x, over)?;
        if ord != 2.0 {
            return vector_norm(op, &x.abs()?, ord, over);
        }
        // The norm of real and imaginary parts, whose derivative is also right where an element is zero.
        let parts = x.view_as_real()?;
        let dims: Vec<isize> = plan.dims.iter().map(|&dim| dim as isize).chain([x.rank() as isize]).collect();
        let both = ReduceDims { dims: Dims { named: Some(dims[..].into()) }, keepdim: over.keepdim };
        let norm = vector_norm(op, &parts, ord, &both)?;
        return if over.keepdim { norm.squeeze(-1) } else { Ok(norm) };
    }
    if ord.is_infinite() {
        let plan = ReducePlan::new(op, x, over)?;
        if plan.count() == 0 {
            bail!(Shape, op, "reduced dimensions must not be empty for ord {ord}, got shape {:?}", x.shape());
        }
        return if ord > 0.0 { x.abs()?.max(over.clone()) } else { x.abs()?.min(over.clone()) };
    }
    let wide = x.to_dtype(x.dtype().compute_dtype())?;
    let plan = ReducePlan::new(op, &wide, over)?;
    let values = wide.detach();
    let value = if ord == 0.0 {
        values.ne(0)?.to_dtype(values.dtype())?.sum(over.clone())?
    } else if ord == 1.0 {
        values.abs()?.sum(over.clone())?
    } else if ord == 2.0 {
        values.square()?.sum(over.clone())?.sqrt()?
    } else {
        values.abs()?.pow(ord)?.sum(over.clone())?.pow(1.0 / ord)?
    };
    let norm = value.record(op, &[&wide], |save| {
        let (x, y) = (save.save(&wide), save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            if ord == 0.0 {
                return Ok(smallvec![Some(x.zeros_like()?)]);
            }
            let g = plan.spread(g)?;
            if ord == 1.0 {
                return Ok(smallvec![Some(g.mul(&x.sign()?)?)]);
            }
            // Where the norm is zero, the derivative is defined as zero.
            let filled = |t: &Tensor| t.masked_fill(&t.detach().eq(0)?, 1);
            let y = filled(&plan.spread(&ctx.output(&y))?)?;
            let cotangent = if ord == 2.0 {
                g.mul(&x.div(&y)?)?
            } else {
                let size = filled(&x.abs()?)?;
                g.mul(&x.sign()?)?.mul(&size.pow(ord - 1.0)?)?.mul(&y.pow(1.0 - ord)?)?
            };
            Ok(smallvec![Some(cotangent)])
        }
    })?;
    norm.to_dtype(x.dtype())
}

/// The norm of the matrices in two dimensions.
#[track_caller]
fn matrix_norm(op: &'static str, x: &Tensor, ord: NormOrd, dims: [isize; 2], keepdim: bool) -> Result<Tensor> {
    floats(op, x)?;
    let [rows, columns] = [resolve_dim(op, dims[0], x.rank())?, resolve_dim(op, dims[1], x.rank())?];
    if rows == columns {
        bail!(Index, op, "dim must name two different dimensions, got {rows} twice");
    }
    let both = || ReduceDims { dims: Dims { named: Some([rows as isize, columns as isize][..].into()) }, keepdim };
    if ord == NormOrd::Fro {
        return vector_norm(op, x, 2.0, &both());
    }
    // Moves the dimensions of the matrices to the end.
    let order: Vec<usize> = (0..x.rank()).filter(|d| ![rows, columns].contains(d)).chain([rows, columns]).collect();
    let last = x.permute(&order[..])?;
    // The largest of no values is 0, as norms are not negative; the smallest does not exist.
    let largest_or_smallest = |numbers: &Tensor, p: f64| match (p > 0.0, numbers.shape().last()) {
        (true, Some(0)) => numbers.sum(-1),
        (true, _) => numbers.max(-1),
        (false, Some(0)) => {
            bail!(Shape, op, "matrices must not be empty for ord {ord}, got shape {:?}", x.shape())
        }
        (false, _) => numbers.min(-1),
    };
    let norm = match ord {
        NormOrd::Number(p) if [1.0, f64::INFINITY].contains(&p.abs()) => {
            largest_or_smallest(&last.abs()?.sum(if p.abs() == 1.0 { -2 } else { -1 })?, p)?
        }
        NormOrd::Nuc => {
            full_precision(op, x)?;
            last.linalg_svdvals()?.sum(-1)?
        }
        NormOrd::Number(p) if p.abs() == 2.0 => {
            full_precision(op, x)?;
            largest_or_smallest(&last.linalg_svdvals()?, p)?
        }
        NormOrd::Number(_) | NormOrd::Fro => {
            bail!(Value, op, "ord must be fro, nuc, ±1, ±2 or ±inf for matrices, got {ord}")
        }
    };
    if !keepdim {
        return Ok(norm);
    }
    let (low, high) = (rows.min(columns), rows.max(columns));
    norm.unsqueeze(low)?.unsqueeze(high)
}

/// # Norms
#[ops]
impl Tensor {
    /// The vector norm `(Σ |x|ᵖ)^(1/p)` over some dimensions, or all elements (`..`). The orders inf and -inf give the
    /// largest and the smallest absolute value, 0 the number of nonzero elements.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let x = tensor!([[3.0, 4.0], [0.0, -2.0]])?;
    /// assert_eq!(linalg::vector_norm(&x, 2.0, 1)?.to_vec::<f32>()?, [5.0, 2.0]);
    /// assert_eq!(linalg::vector_norm(&x, f64::INFINITY, ..)?.item::<f32>()?, 4.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not floats, or there is no such dimension; for inf and -inf if there are no elements.
    #[op(function = linalg, autocast_cuda = f32, samples = vector_norm_samples, errors = vector_norm_errors, aliases = ["vector_norm"], tolerance = 10.0)]
    pub fn linalg_vector_norm(
        &self,
        #[default(2.0)] ord: f64,
        over: impl Into<ReduceDims>,
        options: impl Into<LinalgNormOptions>,
    ) -> Result<Tensor> {
        vector_norm("linalg_vector_norm", &cast(self, options.dtype)?, ord, &over)
    }

    /// Matrix norms: `fro`, the Frobenius norm; `nuc`, the nuclear norm; 2 and -2, the largest and the smallest
    /// singular value; 1 and -1, the largest and the smallest absolute column sum; inf and -inf, the largest and the
    /// smallest absolute row sum.
    ///
    /// ```
    /// # use cotangent::{linalg, options::NormOrd, tensor};
    /// let x = tensor!([[1.0, -2.0], [3.0, 4.0]])?;
    /// assert_eq!(linalg::matrix_norm(&x, 1)?.item::<f32>()?, 6.0);
    /// assert_eq!(linalg::matrix_norm(&x, f64::INFINITY)?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such norm, `dim` does not name two dimensions, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast_cuda = f32, samples = matrix_norm_samples, errors = matrix_norm_errors, aliases = ["matrix_norm"], tolerance = 1000.0, full_precision)]
    pub fn linalg_matrix_norm(
        &self,
        #[default(NormOrd::Fro)] ord: impl Into<NormOrd>,
        options: impl Into<MatrixNormOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "linalg_matrix_norm";
        let MatrixNormOptions { dim, keepdim, dtype } = options;
        let &[rows, columns] = &dim[..] else { bail!(Shape, OP, "dim must name two dimensions, got {dim:?}") };
        let x = cast(self, dtype)?;
        sizes(OP, &x)?;
        full_precision(OP, &x)?;
        matrix_norm(OP, &x, ord, [rows, columns], keepdim)
    }

    /// The norm of vectors, with one dimension, or matrices, with two. Without an order it is the 2-norm of all
    /// elements. With an order and without dimensions, the tensor must be a vector or a matrix.
    ///
    /// ```
    /// # use cotangent::{linalg, options::NormOrd, tensor};
    /// let x = tensor!([[3.0, 0.0], [0.0, 4.0]])?;
    /// assert_eq!(linalg::norm(&x, None, ..)?.item::<f32>()?, 5.0);
    /// assert_eq!(linalg::norm(&x, Some(NormOrd::Nuc), ..)?.item::<f32>()?, 7.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such norm or dimension, or the elements are not floats, or of half precision for norms by singular values.
    #[op(function = linalg, autocast_cuda = f32, samples = norm_samples, errors = norm_errors, tolerance = 1000.0)]
    pub fn linalg_norm(
        &self,
        ord: Option<NormOrd>,
        over: impl Into<ReduceDims>,
        options: impl Into<LinalgNormOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "linalg_norm";
        let x = cast(self, options.dtype)?;
        let named = over.dims.named.is_some();
        let Some(ord) = ord else { return vector_norm(OP, &x, 2.0, &over) };
        // The first of two dimensions is that of the rows, whatever their order in the shape.
        let all: Vec<isize> = (0..x.rank() as isize).collect();
        let dims = over.dims.named.as_ref().map_or(&all[..], |named| &named[..]);
        match (dims, ord) {
            (&[rows, columns], _) => matrix_norm(OP, &x, ord, [rows, columns], over.keepdim),
            (&[_], NormOrd::Number(p)) => vector_norm(OP, &x, p, &over),
            _ => {
                let which = if named { format!("{} dimensions", dims.len()) } else { format!("shape {:?}", x.shape()) };
                bail!(Shape, OP, "a norm of order {ord} is not supported for {which}")
            }
        }
    }

    /// The condition number of matrices, `‖A‖ · ‖A⁻¹‖`. Without an order, or for 2, it is the ratio of the largest to
    /// the smallest singular value; for -2 its inverse. It is 0 for empty matrices.
    ///
    /// ```
    /// # use cotangent::{linalg, options::NormOrd, tensor};
    /// let x = tensor!([[2.0, 0.0], [0.0, 1.0]])?;
    /// assert_eq!(linalg::cond(&x, None)?.item::<f32>()?, 2.0);
    /// assert_eq!(linalg::cond(&x, Some(NormOrd::from(1)))?.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such norm, the elements are not `f32`, `f64` or complex or, with other orders than 2 and -2, a matrix is not square.
    #[op(function = linalg, autocast_cpu = f32, samples = cond_samples, errors = cond_errors, aliases = ["cond"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_cond(&self, p: Option<NormOrd>) -> Result<Tensor> {
        const OP: &str = "linalg_cond";
        let (rows, columns) = sizes(OP, self)?;
        full_precision(OP, self)?;
        if rows == 0 || columns == 0 {
            return self.abs()?.sum([-2, -1]);
        }
        let ord = p.unwrap_or(NormOrd::Number(2.0));
        if let NormOrd::Number(two) = ord
            && two.abs() == 2.0
        {
            let values = self.linalg_svdvals()?;
            let (first, last) = (values.select(-1, 0)?, values.select(-1, -1)?);
            return if two > 0.0 { first.div(&last) } else { last.div(&first) };
        }
        crate::ops::linalg::common::square(OP, self)?;
        let (inverse, info) = self.linalg_inv_ex()?;
        let norm = |x: &Tensor| matrix_norm(OP, x, ord, [-2, -1], false);
        let singular = info.ne(0)?;
        if !crate::ops::linalg::common::any(&singular)? {
            return norm(self)?.mul(&norm(&inverse)?);
        }
        // The condition number of a singular matrix is infinite.
        let safe = inverse.masked_fill(&singular.unsqueeze(-1)?.unsqueeze(-1)?, 0)?;
        norm(self)?.mul(&norm(&safe)?)?.masked_fill(&singular, f64::INFINITY)
    }
}

fn vector_norm_samples() -> Result<Vec<Sample>> {
    let x = spread([2, 3, 2], -2.0, 2.1)?;
    let mut all = vec![sample![&x]];
    for ord in [1.0, 2.0, 3.0, 0.5, 1.5, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        all.push(sample![&x, ord, [1]]);
    }
    all.push(sample![&x, 3.5, [0, -1], true]);
    all.push(sample![&x, 0.0, [1]].zero_derivative());
    all.push(sample![&x, 2.0, [1]; dtype = DType::F64]);
    all.push(sample![normal([2, 0], 1)?, 2.0, [1]].zero_derivative());
    all.push(sample![normal([], 1)?]);
    Ok(all)
}

fn vector_norm_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["integers", "i64"; sample![Tensor::zeros_with([2], DType::I64)?]],
        error!["no such dimension", "2"; sample![normal([2, 3], 1)?, 2.0, [2]]],
        error!["the largest of none", "inf", "[2, 0]"; sample![normal([2, 0], 1)?, f64::INFINITY, [1]]],
    ])
}

fn matrix_norm_samples() -> Result<Vec<Sample>> {
    let x = normal([2, 3, 4], 5)?;
    let mut all = Vec::new();
    for ord in ["fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"] {
        all.push(sample![&x, ord]);
        all.push(sample![&x, ord; dim = [2, 0], keepdim = true]);
    }
    Ok(all)
}

fn matrix_norm_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such norm", "got 3"; sample![&x, 3.0]],
        error!["one dimension", "[0]"; sample![&x, "fro"; dim = vec![0_isize]]],
        error!["the same dimension", "got 1 twice"; sample![&x, "fro"; dim = [1, -1]]],
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?]],
    ])
}

fn norm_samples() -> Result<Vec<Sample>> {
    let x = normal([2, 3], 5)?;
    Ok(vec![
        sample![&x],
        sample![&x, (), (), true],
        sample![&x, "1"],
        sample![&x, "inf", [1]],
        sample![&x, 3.0, [0]],
        sample![&x, "-1", [0, 1], true],
        sample![normal([2, 2, 3], 5)?, (), [0, 2]],
        sample![normal([3], 5)?, "1"],
    ])
}

fn norm_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 2, 3], 1)?;
    Ok(vec![
        error!["an order without dimensions", "[2, 2, 3]", "fro"; sample![&x, "fro"]],
        error!["a matrix's norm of a vector", "nuc"; sample![&x, "nuc", [0]]],
        error!["no such norm", "got 3"; sample![&x, 3.0, [0, 1]]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2], DType::I64)?]],
    ])
}

fn cond_samples() -> Result<Vec<Sample>> {
    let x = regular(&[2, 3, 3], 1)?;
    let mut all = vec![sample![&x], sample![normal([4, 2], 4)?], sample![normal([2, 4], 4)?, "-2"]];
    for ord in ["fro", "nuc", "inf", "-inf", "1", "-1", "2"] {
        all.push(sample![&x, ord]);
    }
    Ok(all)
}

fn cond_errors() -> Result<Vec<ErrorCase>> {
    let mut all: Vec<ErrorCase> = square_errors()?.into_iter().filter(|case| case.label != "not square").collect();
    all.push(error!["not square", "2 by 3"; sample![normal([2, 3], 1)?, "fro"]]);
    all.push(error!["no such norm", "got 3"; sample![regular(&[2, 2], 1)?, 3.0]]);
    Ok(all)
}
