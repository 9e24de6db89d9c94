//! Eigenvalues and singular values.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::backend::spec::SMALL_SVD;
use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::linalg::cholesky::positive;
use crate::ops::linalg::common::{
    any, columns, diag, diag_embed, diagonal_mask, epsilon, from_columns, full_precision, identity, mh, mt,
    refuse_non_finite, sizes, square, with,
};
use crate::ops::linalg::lu::matrix_errors;
use crate::ops::linalg::qr;
use crate::ops::linalg::solve::square_errors;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::SortOptions;
use crate::options::options;
use crate::{DType, Device, Result, Tensor, keepdim};
use smallvec::smallvec;

choices! {
    /// Which triangle of a symmetric matrix is read.
    ///
    /// ```
    /// use cotangent::{linalg, options::Triangle, tensor};
    /// let x = tensor!([[1.0, 100.0], [0.0, 2.0]])?;
    /// assert_eq!(linalg::eigvalsh_with(&x, Triangle::Lower)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum Triangle {
        /// The lower one.
        #[default]
        Lower = "L",
        /// The upper one.
        Upper = "U",
    }
}

options! {
    /// The options of [`Tensor::svd_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::ReducedSvdOptions};
    /// let (u, s, v) = Tensor::ones([3, 2])?.svd_with(ReducedSvdOptions::new().compute_uv(false))?;
    /// assert_eq!((u.shape(), s.shape(), v.shape()), (&[3, 3][..], &[2][..], &[2, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ReducedSvdOptions {
        /// Whether `U` and `V` have one column for each singular value; otherwise they are square.
        some: bool = true,
        /// Whether `U` and `V` are computed; otherwise they are square matrices of zeros.
        compute_uv: bool = true,
    }
}

options! {
    /// The options of [`linalg::eigh_with`](crate::linalg::eigh_with) and [`linalg::eigvalsh_with`](crate::linalg::eigvalsh_with).
    /// A [`Triangle`] converts to them.
    ///
    /// ```
    /// use cotangent::{linalg, options::{EighOptions, Triangle}, tensor};
    /// let x = tensor!([[1.0, 0.0], [100.0, 2.0]])?;
    /// let values = linalg::eigvalsh_with(&x, EighOptions::new().uplo(Triangle::Upper))?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EighOptions {
        /// Which triangle is read.
        uplo: Triangle = Triangle::Lower,
    }
}

impl From<Triangle> for EighOptions {
    fn from(uplo: Triangle) -> EighOptions {
        EighOptions::new().uplo(uplo)
    }
}

options! {
    /// The options of [`linalg::svd_with`](crate::linalg::svd_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::SvdOptions, Tensor};
    /// let (u, s, vh) = linalg::svd_with(&Tensor::ones([4, 2])?, SvdOptions::new().full_matrices(false))?;
    /// assert_eq!((u.shape(), s.shape(), vh.shape()), (&[4, 2][..], &[2][..], &[2, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SvdOptions {
        /// Whether `U` and `Vᴴ` are square; otherwise they have one column and one row for each singular value.
        full_matrices: bool = true,
    }
}

/// Multiplies the columns of some matrices by factors of absolute value 1 that make the largest element of each column of the
/// first matrix positive. Eigenvectors and pairs of singular vectors are unique up to this factor, so that every device gives
/// the same result. For complex matrices this is part of the graph, as the factors depend on them.
pub(in crate::ops) fn turned(first: &Tensor, others: &[&Tensor]) -> Result<Vec<Tensor>> {
    let mut all = vec![first.clone()];
    all.extend(others.iter().map(|&x| x.clone()));
    if first.numel() == 0 {
        return Ok(all);
    }
    let sign = if first.dtype().is_complex() {
        // The first of the elements that are approximately the largest, so that rounding does not decide.
        let size = first.detach().abs()?;
        let large = size.ge(&size.max(keepdim(-2))?.mul(0.999)?)?.to_dtype(DType::I64)?;
        first.gather(-2, &large.argmax(keepdim(-2))?)?.sgn()?.conj()?
    } else {
        // Along the vectors, which are contiguous on the CPU.
        let vectors = mt(first)?;
        let largest = mt(&vectors.gather(-1, &vectors.abs()?.argmax(keepdim(-1))?)?)?;
        largest.lt(0)?.to_dtype(first.dtype())?.mul(-2.0)?.add(1.0)?
    };
    let width = sign.shape()[sign.rank() - 1];
    let turn = |x: Tensor| {
        let columns = x.shape()[x.rank() - 1];
        let (part, sign) = (x.narrow(-1, 0, width.min(columns))?, sign.narrow(-1, 0, width.min(columns))?);
        // Strided elements are slow to multiply: contiguous vectors are transposed afterwards.
        let vectors = mt(&part)?;
        let turned =
            if vectors.is_contiguous() { mt(&vectors.mul(&mt(&sign)?)?)?.contiguous()? } else { part.mul(&sign)? };
        if columns > width { Tensor::cat(&[turned, x.narrow(-1, width, columns - width)?], -1) } else { Ok(turned) }
    };
    all.into_iter().map(turn).collect()
}

/// The differences between all pairs of numbers along the last dimension, with 1 on the diagonal.
///
/// # Errors
/// If two of them are equal up to rounding: `what` then has no derivative.
pub(in crate::ops) fn gaps(op: &'static str, x: &Tensor, what: &str) -> Result<Tensor> {
    let n = x.shape()[x.rank() - 1];
    let gaps = x.unsqueeze(-2)?.sub(&x.unsqueeze(-1)?)?.add(&identity(n, x)?)?;
    if n > 1 {
        let largest = x.detach().abs()?.max(keepdim(-1))?.unsqueeze(-1)?;
        // The ones on the diagonal must not count.
        let known = gaps.detach().abs()?.masked_fill(&diagonal_mask(n, x)?, f64::INFINITY)?;
        if any(&known.le(&largest.mul(4.0 * epsilon(x))?)?)? {
            bail!(Graph, op, "the derivative of {what} does not exist: two of the values are the same");
        }
    }
    Ok(gaps)
}

/// Eigenvalues and, if `vectors`, eigenvectors, outside the graph.
fn eigen(op: &'static str, x: &Tensor, uplo: Triangle, vectors: bool) -> Result<(Tensor, Tensor)> {
    let n = square(op, x)?;
    full_precision(op, x)?;
    refuse_non_finite(op, x)?;
    let mut v = columns(&if uplo == Triangle::Upper { mh(x)? } else { x.clone() })?;
    let mut w = Tensor::empty(op, with(&x.shape()[..x.rank() - 2], &[n]), x.dtype().to_real(), x.device())?;
    {
        let (a, to) = (&mut v.as_raw_view_mut(op)?, &mut w.as_raw_view_mut(op)?);
        kernel!("linalg_eigh" on [a, to]: linalg::decompose::eigh(a, to, vectors))?;
    }
    Ok((w, from_columns(&v)?))
}

/// Singular values and vectors, `U`, `S` and `V`, outside the graph.
pub(in crate::ops) fn singular(
    op: &'static str,
    x: &Tensor,
    vectors: Option<bool>,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes(op, x)?;
    full_precision(op, x)?;
    if m < n {
        let (u, s, v) = singular(op, &mh(x)?, vectors)?;
        return Ok((v, s, u));
    }
    refuse_non_finite(op, x)?;
    // Batches of small matrices are decomposed at once.
    let small = m <= SMALL_SVD && x.numel() > m * n;
    let on_gpu = x.device() != Device::Cpu;
    if let Some(full) = vectors.filter(|_| on_gpu && x.dtype() == DType::F32 && x.numel() > 0 && !small) {
        return from_squares(op, &x.detach(), full);
    }
    let lead = &x.shape()[..x.rank() - 2];
    let empty = |last: &[usize]| Tensor::empty(op, with(lead, last), x.dtype(), x.device());
    let mut a = columns(x)?;
    let mut s = Tensor::empty(op, with(lead, &[n]), x.dtype().to_real(), x.device())?;
    let Some(full) = vectors else {
        let (a, to) = (&mut a.as_raw_view_mut(op)?, &mut s.as_raw_view_mut(op)?);
        kernel!("linalg_svd" on [a, to]: linalg::decompose::svd(a, to, None, None))?;
        return Ok((empty(&[0, 0])?, s, empty(&[0, 0])?));
    };
    let (mut u, mut v) = (empty(&[if full { m } else { n }, m])?, empty(&[n, n])?);
    {
        let (a, to) = (&mut a.as_raw_view_mut(op)?, &mut s.as_raw_view_mut(op)?);
        let (u, v) = (&mut u.as_raw_view_mut(op)?, &mut v.as_raw_view_mut(op)?);
        kernel!("linalg_svd" on [a, to, u, v]: linalg::decompose::svd(a, to, Some(u), Some(v)))?;
    }
    Ok((from_columns(&u)?, s, from_columns(&v)?))
}

/// As [`singular`], for f32 matrices with at least as many rows as columns: `V` has the eigenvectors of `Aᵀ · A` in f64, which
/// take a fraction of the time. The error of squaring in f64 is below the precision of f32. The columns of `A · V` are
/// orthogonal up to rounding; a QR factorization makes those orthogonal, too, that consist of rounding errors.
fn from_squares(op: &'static str, x: &Tensor, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes(op, x)?;
    let wide = x.to_dtype(DType::F64)?;
    let (_, v) = eigen(op, &wide.transpose(-2, -1)?.matmul(&wide)?, Triangle::Lower, true)?;
    // The largest first.
    let v = v.flip(-1)?;
    let (q, r) = qr::factor(&wide.matmul(&v)?, if full { m } else { n }, true)?;
    let lengths = diag(&r)?;
    let (s, order) = lengths.abs()?.sort_with(-1, SortOptions::new().descending(true))?;
    let signs = lengths.lt(0.0)?.where_(-1.0, lengths.ones_like()?)?;
    let ordered = |x: &Tensor| x.gather(-1, &order.unsqueeze(-2)?.expand(x.shape())?);
    let own = ordered(&q.narrow(-1, 0, n)?.mul(&signs.unsqueeze(-2)?)?)?;
    let u = if full && m > n { Tensor::cat(&[&own, &q.narrow(-1, n, m - n)?], -1)? } else { own };
    Ok((u.to_dtype(DType::F32)?, s.to_dtype(DType::F32)?, ordered(&v)?.to_dtype(DType::F32)?))
}

/// The cotangent of `A = U · S · Vᴴ`.
fn svd_cotangent(u: &Tensor, s: &Tensor, vh: &Tensor, [gu, gs, gvh]: [Option<&Tensor>; 3]) -> Result<Tensor> {
    const OP: &str = "linalg_svd";
    let (m, n, k) = (u.shape()[u.rank() - 2], vh.shape()[vh.rank() - 1], s.shape()[s.rank() - 1]);
    let mut inner = gs.map_or_else(|| diag_embed(&s.zeros_like()?), diag_embed)?;
    if gu.is_none() && gvh.is_none() {
        return u.matmul(&inner)?.matmul(vh);
    }
    let complex = u.dtype().is_complex();
    // Without its diagonal, which is zero for real numbers. For complex numbers it is the derivative by the common phase of a
    // pair of vectors, which has no effect.
    let skew = |x: Tensor| {
        let skew = x.sub(&mh(&x)?)?;
        if complex { skew.mul(&identity(k, s)?.neg()?.add(1.0)?) } else { Ok(skew) }
    };
    // Sₖ² - Sⱼ².
    gaps(OP, s, "singular vectors")?;
    let sums = s.unsqueeze(-2)?.add(&s.unsqueeze(-1)?)?;
    let own = identity(k, s)?;
    let gaps = s.unsqueeze(-2)?.sub(&s.unsqueeze(-1)?)?.mul(&sums)?.add(&own)?;
    if let Some(gu) = gu {
        let part = skew(mh(u)?.matmul(gu)?)?.div(&gaps)?;
        inner = inner.add(&part.mul(&s.unsqueeze(-2)?)?)?;
    }
    if let Some(gvh) = gvh {
        let part = skew(vh.matmul(&mh(gvh)?)?)?.div(&gaps)?;
        inner = inner.add(&s.unsqueeze(-1)?.mul(&part)?)?;
    }
    let refuse_zero = || {
        if any(&s.detach().eq(0)?)? {
            bail!(Graph, OP, "the derivative of singular vectors does not exist: a singular value is zero");
        }
        Ok(())
    };
    if let Some(gu) = gu.filter(|_| complex && gvh.is_some()) {
        // The phase of one vector of a pair relative to the other.
        refuse_zero()?;
        let angle = diag(&mh(u)?.matmul(gu)?)?.imag()?.div(s)?;
        inner = inner.add(&diag_embed(&angle.zeros_like()?.complex(&angle)?)?)?;
    }
    let mut g = u.matmul(&inner)?.matmul(vh)?;
    if let Some(gu) = gu.filter(|_| m > k) {
        refuse_zero()?;
        let scaled = gu.div(&s.unsqueeze(-2)?)?;
        g = g.add(&scaled.sub(&u.matmul(&mh(u)?.matmul(&scaled)?)?)?.matmul(vh)?)?;
    }
    if let Some(gvh) = gvh.filter(|_| n > k) {
        refuse_zero()?;
        let scaled = gvh.div(&s.unsqueeze(-1)?)?;
        g = g.add(&u.matmul(&scaled.sub(&scaled.matmul(&mh(vh)?)?.matmul(vh)?)?)?)?;
    }
    Ok(g)
}

#[track_caller]
fn svd(op: &'static str, x: &Tensor, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes(op, x)?;
    let (mut u, s, mut v) = singular(op, &x.detach(), Some(full))?;
    let complex = x.dtype().is_complex();
    let turn = |u: &Tensor, v: &Tensor| {
        let (first, second) = if m < n { (u, v) } else { (v, u) };
        let mut both = turned(first, &[second])?;
        if m >= n {
            both.reverse();
        }
        Ok((both.swap_remove(0), both.swap_remove(0)))
    };
    if !complex {
        (u, v) = turn(&u, &v)?;
    }
    let [u, s, vh] = Tensor::record_joint([u, s, mh(&v)?], op, &[x], |save| {
        let saved = [0, 1, 2].map(|at| save.save_output_at(at));
        move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
            let wide = (m > n && cotangents[0].is_some()) || (n > m && cotangents[2].is_some());
            if full && wide {
                bail!(
                    Graph,
                    op,
                    "the full singular vectors of a matrix of {m} by {n} have no derivative: use full_matrices = false"
                );
            }
            let k = m.min(n);
            let [u, s, vh] = [0, 1, 2].map(|at| ctx.output_at(at, &saved[at]));
            let (u, s, vh) = (u?, s?, vh?);
            let (u, vh) = if full { (u.narrow(-1, 0, k)?, vh.narrow(-2, 0, k)?) } else { (u, vh) };
            let g = [0, 1, 2].map(|at| cotangents[at].as_ref());
            Ok(smallvec![Some(svd_cotangent(&u, &s, &vh, g)?)])
        }
    })?;
    if complex {
        let (u, v) = turn(&u, &mh(&vh)?)?;
        return Ok((u, s, mh(&v)?));
    }
    Ok((u, s, vh))
}

/// # Eigenvalues and singular values
#[ops]
impl Tensor {
    /// The eigenvalues of Hermitian matrices in ascending order, and orthonormal eigenvectors as columns. Only one
    /// triangle is read, and the gradient is Hermitian. The largest element of each eigenvector is positive.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (values, vectors) = linalg::eigh(&tensor!([[2.0, 0.0], [0.0, 1.0]])?)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(vectors.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square or has elements that are not finite, or the elements are not `f32`, `f64` or complex. The
    /// derivative of eigenvectors is refused if two eigenvalues are equal.
    #[op(function = linalg, autocast_cpu = f32, samples = eigh_samples, errors = eigh_errors, outputs = [eigenvalues, eigenvectors], aliases = ["eigh"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_eigh(&self, options: impl Into<EighOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_eigh";
        let (w, mut v) = eigen(OP, &self.detach(), options.uplo, true)?;
        if !v.dtype().is_complex() {
            v = turned(&v, &[])?.swap_remove(0);
        }
        let [w, v] = Tensor::record_joint([w, v], OP, &[self], |save| {
            let (w, v) = (save.save_output_at(0), save.save_output_at(1));
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                let v = ctx.output_at(1, &v)?;
                let mut inner = match &cotangents[0] {
                    Some(g) => diag_embed(g)?,
                    None => diag_embed(&w.zeros_like()?)?,
                };
                if let Some(g) = &cotangents[1] {
                    let w = ctx.output_at(0, &w)?;
                    let own = diagonal_mask(w.shape()[w.rank() - 1], &w)?;
                    let part = mh(&v)?.matmul(g)?.div(&gaps(OP, &w, "eigenvectors")?)?;
                    inner = inner.add(&part.masked_fill(&own, 0)?)?;
                }
                let g = v.matmul(&inner)?.matmul(&mh(&v)?)?;
                Ok(smallvec![Some(g.add(&mh(&g)?)?.mul(0.5)?)])
            }
        })?;
        Ok((w, if v.dtype().is_complex() { turned(&v, &[])?.swap_remove(0) } else { v }))
    }

    /// The eigenvalues of Hermitian matrices in ascending order. Only one triangle is read.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// assert_eq!(linalg::eigvalsh(&tensor!([[2.0, 0.0], [0.0, 1.0]])?)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::eigh`](crate::linalg::eigh); the derivative exists for equal eigenvalues, too.
    #[op(function = linalg, autocast_cpu = f32, samples = eigh_samples, errors = eigh_errors, aliases = ["eigvalsh"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_eigvalsh(&self, options: impl Into<EighOptions>) -> Result<Tensor> {
        if crate::autograd::is_grad_enabled() && self.requires_grad() {
            return Ok(self.linalg_eigh_with(options)?.0);
        }
        Ok(eigen("linalg_eigvalsh", &self.detach(), options.uplo, false)?.0)
    }

    /// The singular value decomposition `A = U · diag(S) · Vᴴ`, with singular values in descending order. The largest
    /// element of each row of `Vᴴ` (of each column of `U` for matrices with fewer rows than columns) is positive.
    ///
    /// By default `U` and `Vᴴ` are square. With [`full_matrices`](crate::options::SvdOptions::full_matrices) set to false, an
    /// option of [`linalg::svd_with`](crate::linalg::svd_with), the decomposition is reduced: `U` has one column and `Vᴴ` one
    /// row for each singular value. [`Tensor::svd`](crate::Tensor::svd) is reduced by default, and gives `V` instead of `Vᴴ`.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (u, s, vh) = linalg::svd(&tensor!([[0.0, 2.0], [1.0, 0.0]])?)?;
    /// assert_eq!(s.to_vec::<f32>()?, [2.0, 1.0]);
    /// assert_eq!((u.to_vec::<f32>()?, vh.to_vec::<f32>()?), (vec![1.0, 0.0, 0.0, 1.0], vec![0.0, 1.0, 1.0, 0.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// ```
    /// # use cotangent::{Tensor, linalg, options::SvdOptions};
    /// let x = Tensor::ones([4, 2])?;
    /// let (u, s, vh) = linalg::svd(&x)?;
    /// assert_eq!((u.shape(), s.shape(), vh.shape()), (&[4, 4][..], &[2][..], &[2, 2][..]));
    /// let (u, s, vh) = linalg::svd_with(&x, SvdOptions::new().full_matrices(false))?;
    /// assert_eq!((u.shape(), s.shape(), vh.shape()), (&[4, 2][..], &[2][..], &[2, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, elements are not finite, or are not `f32`, `f64` or complex. The derivative of singular vectors is
    /// refused if two singular values are equal, and for the vectors that `full_matrices` adds.
    #[op(function = linalg, autocast_cpu = f32, samples = svd_samples, errors = svd_errors, outputs = [u, s, vh], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_svd(&self, options: impl Into<SvdOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        svd("linalg_svd", self, options.full_matrices)
    }

    /// [`linalg::svd`](crate::linalg::svd), by default reduced, with `V` instead of `Vᴴ`.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::ReducedSvdOptions};
    /// let (u, s, v) = Tensor::ones([4, 2])?.svd()?;
    /// assert_eq!((u.shape(), s.shape(), v.shape()), (&[4, 2][..], &[2][..], &[2, 2][..]));
    /// assert_eq!(Tensor::ones([4, 2])?.svd_with(ReducedSvdOptions::new().some(false))?.0.shape(), [4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::svd`](crate::linalg::svd).
    #[op(autocast_cpu = f32, samples = legacy_svd_samples, errors = svd_errors, outputs = [u, s, v], full_precision, tolerance = 1000.0, batch)]
    pub fn svd(&self, options: impl Into<ReducedSvdOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        let (u, s, vh) = svd("svd", self, !options.some && options.compute_uv)?;
        if options.compute_uv {
            return Ok((u, s, mh(&vh)?));
        }
        let (m, n) = sizes("svd", self)?;
        let zeros = |n: usize| self.detach().new_zeros([&self.shape()[..self.rank() - 2], &[n, n]].concat());
        Ok((zeros(m)?, s, zeros(n)?))
    }

    /// The singular values of matrices in descending order.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// assert_eq!(linalg::svdvals(&tensor!([[0.0, 2.0], [1.0, 0.0]])?)?.to_vec::<f32>()?, [2.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::svd`](crate::linalg::svd); the derivative exists for equal singular values, too.
    #[op(function = linalg, autocast_cpu = f32, samples = svdvals_samples, errors = svd_errors, aliases = ["svdvals"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_svdvals(&self) -> Result<Tensor> {
        if crate::autograd::is_grad_enabled() && self.requires_grad() {
            return Ok(svd("linalg_svdvals", self, false)?.1);
        }
        Ok(singular("linalg_svdvals", &self.detach(), None)?.1)
    }
}

fn eigh_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 6] = [&[3, 3], &[1, 1], &[2, 4, 4], &[7, 7], &[0, 2, 2], &[0, 0]];
    let mut all = shapes.iter().map(|s| Ok(sample![positive(s, 1)?].symmetric())).collect::<Result<Vec<_>>>()?;
    all.push(sample![positive(&[3, 3], 2)?; uplo = "U"].symmetric());
    Ok(all)
}

fn eigh_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    all.push(error!["NaN", "not finite"; sample![Tensor::full_with([2, 2], f64::NAN, DType::F64)?]]);
    Ok(all)
}

fn reduced_svd_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 7] = [&[3, 3], &[5, 3], &[3, 5], &[2, 4, 2], &[1, 1], &[0, 3, 2], &[3, 0]];
    shapes.iter().map(|s| Ok(sample![normal(*s, 4)?])).collect()
}

fn svd_samples() -> Result<Vec<Sample>> {
    let mut all = vec![sample![normal([3, 3], 4)?], sample![normal([2, 4, 4], 4)?]];
    for shape in [&[5, 3][..], &[3, 5], &[2, 4, 2], &[0, 3, 2]] {
        all.push(sample![normal(shape, 4)?; full_matrices = false]);
    }
    Ok(all)
}

fn legacy_svd_samples() -> Result<Vec<Sample>> {
    let mut all = reduced_svd_samples()?;
    all.push(sample![normal([3, 3], 5)?; some = false]);
    all.push(sample![normal([2, 4, 3], 4)?; compute_uv = false]);
    Ok(all)
}

fn svdvals_samples() -> Result<Vec<Sample>> {
    let mut all = reduced_svd_samples()?;
    all.push(sample![normal([9, 9], 4)?]);
    Ok(all)
}

pub(in crate::ops) fn svd_errors() -> Result<Vec<ErrorCase>> {
    let mut all = matrix_errors()?;
    all.push(error!["NaN", "not finite"; sample![Tensor::full_with([2, 2], f64::NAN, DType::F64)?]]);
    Ok(all)
}
