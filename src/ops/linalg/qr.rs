//! QR factorizations and least squares.

// PyTorch calls right-hand sides B.
#![allow(non_snake_case)]

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::arg::choices;
use crate::ops::linalg::common::{
    columns, diag, diag_embed, epsilon, eye, from_columns, full_precision, mh, sizes, with,
};
use crate::ops::linalg::lu::matrix_errors;
use crate::ops::linalg::solve::{common_batch, triangular};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

choices! {
    /// Which parts of a QR factorization [`linalg::qr`](crate::linalg::qr) returns.
    ///
    /// ```
    /// use cotangent::{linalg, options::QrMode, Tensor};
    /// let (q, r) = linalg::qr_with(&Tensor::ones([4, 2])?, QrMode::Complete)?;
    /// assert_eq!((q.shape(), r.shape()), (&[4, 4][..], &[4, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum QrMode {
        /// The first `min(m, n)` columns of Q and rows of R.
        #[default]
        Reduced = "reduced",
        /// All columns of Q, and all rows of R.
        Complete = "complete",
        /// Only R, with `min(m, n)` rows; Q is empty.
        R = "r",
    }
}

options! {
    /// The options of [`linalg::qr_with`](crate::linalg::qr_with). A [`QrMode`] converts to them.
    ///
    /// ```
    /// use cotangent::{linalg, options::{QrMode, QrOptions}, Tensor};
    /// let (_, r) = linalg::qr_with(&Tensor::ones([4, 2])?, QrOptions::new().mode(QrMode::R))?;
    /// assert_eq!(r.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct QrOptions {
        /// Which parts are returned.
        mode: QrMode = QrMode::Reduced,
    }
}

impl From<QrMode> for QrOptions {
    fn from(mode: QrMode) -> QrOptions {
        QrOptions::new().mode(mode)
    }
}

choices! {
    /// The algorithm of [`linalg::lstsq`](crate::linalg::lstsq).
    ///
    /// ```
    /// use cotangent::options::LstsqDriver;
    /// assert_eq!(LstsqDriver::Gels.name(), "gels");
    /// ```
    pub enum LstsqDriver {
        /// By singular values, for matrices of any rank.
        #[default]
        Gelsy = "gelsy",
        /// By a QR factorization, for matrices of full rank.
        Gels = "gels",
        /// By singular values, which are returned, too.
        Gelsd = "gelsd",
        /// By singular values, which are returned, too.
        Gelss = "gelss",
    }
}

options! {
    /// The options of [`linalg::lstsq_with`](crate::linalg::lstsq_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::{LstsqDriver, LstsqOptions}, tensor, Tensor};
    /// let (a, b) = (tensor!([[1.0], [1.0]])?, tensor!([[1.0], [3.0]])?);
    /// let x = linalg::lstsq_with(&a, &b, LstsqOptions::new().driver(LstsqDriver::Gels))?.swap_remove(0);
    /// assert!(x.allclose(&tensor!([[2.0]])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct LstsqOptions {
        /// Singular values up to this many times the largest count as zero; by default the dtype's epsilon times the larger side.
        rcond: Option<f64> = None,
        /// The algorithm.
        driver: LstsqDriver = LstsqDriver::Gelsy,
    }
}

options! {
    /// The options of [`Tensor::ormqr_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::OrmqrOptions};
    /// let (a, tau) = tensor!([[2.0], [1.0]])?.geqrf()?;
    /// let y = a.ormqr_with(&tau, &tensor!([[2.0], [1.0]])?, OrmqrOptions::new().transpose(true))?;
    /// assert!((y.to_vec::<f32>()?[0] + 5.0_f32.sqrt()).abs() < 1e-5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct OrmqrOptions {
        /// Whether to multiply by `Q` from the left.
        left: bool = true,
        /// Whether the conjugate transpose of `Q` is used.
        transpose: bool = false,
    }
}

/// R and the Householder vectors in column-major order, and the factors `tau`, outside the graph.
fn reflections(x: &Tensor) -> Result<(Tensor, Tensor)> {
    const OP: &str = "linalg_qr";
    let (m, n) = sizes(OP, x)?;
    let lead = &x.shape()[..x.rank() - 2];
    let mut a = columns(x)?;
    let mut taus = Tensor::empty(OP, with(lead, &[m.min(n)]), x.dtype(), x.device())?;
    {
        let (a, t) = (&mut a.as_raw_view_mut(OP)?, &mut taus.as_raw_view_mut(OP)?);
        kernel!("linalg_qr" on [a, t]: linalg::decompose::qr(a, t))?;
    }
    Ok((a, taus))
}

/// Q with `width` columns and R with as many rows, outside the graph.
pub(in crate::ops) fn factor(x: &Tensor, width: usize, with_q: bool) -> Result<(Tensor, Tensor)> {
    const OP: &str = "linalg_qr";
    let (m, _) = sizes(OP, x)?;
    let lead = &x.shape()[..x.rank() - 2];
    let (a, taus) = reflections(x)?;
    let r = from_columns(&a)?.triu(0)?.narrow(-2, 0, width)?;
    let mut q = Tensor::empty(OP, with(lead, &[if with_q { width } else { 0 }, m]), x.dtype(), x.device())?;
    if with_q {
        let (a, t, to) = (a.as_raw_view()?, taus.as_raw_view()?, &mut q.as_raw_view_mut(OP)?);
        kernel!("linalg_qr" on [a, t, to]: linalg::decompose::qr_q(a, t, to))?;
    }
    Ok((from_columns(&q)?, r))
}

/// `Q · C`, or `Qᴴ · C` if `adjoint`, for reflections whose vectors are below the diagonals of `vectors`.
#[track_caller]
fn reflected(vectors: &Tensor, tau: &Tensor, c: &Tensor, adjoint: bool) -> Result<Tensor> {
    let (m, k) = sizes("linalg_householder_product", vectors)?;
    let vectors = vectors.tril(-1)?.add(&eye(m, k, vectors)?)?;
    let tau = if adjoint { tau.conj()? } else { tau.clone() };
    let mut c = c.clone();
    for step in 0..k {
        let at = if adjoint { step } else { k - 1 - step } as isize;
        let v = vectors.narrow(-1, at, 1)?;
        let weights = mh(&v)?.matmul(&c)?.mul(&tau.narrow(-1, at, 1)?.unsqueeze(-1)?)?;
        c = c.sub(&v.matmul(&weights)?)?;
    }
    Ok(c)
}

/// The cotangent of `A = Q · R` for a square R, from those of Q and R.
fn square_cotangent(q: &Tensor, r: &Tensor, gq: Option<&Tensor>, gr: &Tensor) -> Result<Tensor> {
    let inner = gr.matmul(&mh(r)?)?;
    let inner = gq.map_or(Ok(inner.clone()), |gq| inner.sub(&mh(q)?.matmul(gq)?))?.triu(0)?;
    let symmetric = inner.add(&mh(&inner)?)?.sub(&diag_embed(&diag(&inner)?.real()?)?)?;
    let g = q.matmul(&symmetric)?;
    let g = gq.map_or(Ok(g.clone()), |gq| g.add(gq))?;
    mh(&triangular(r, &mh(&g)?, true, false)?)
}

fn cotangent(x: &Tensor, q: &Tensor, r: &Tensor, gq: Option<&Tensor>, gr: Option<&Tensor>) -> Result<Tensor> {
    let (m, n) = sizes("linalg_qr", x)?;
    let gr = gr.map_or_else(|| r.zeros_like(), |g| Ok(g.clone()))?;
    if m >= n {
        return square_cotangent(q, r, gq, &gr);
    }
    // For a wide matrix R₂ = Qᴴ · A₂: its cotangent is propagated to Q first.
    let (x2, g2) = (x.narrow(-1, m, n - m)?, gr.narrow(-1, m, n - m)?);
    let through = x2.matmul(&mh(&g2)?)?;
    let gq = gq.map_or(Ok(through.clone()), |gq| gq.add(&through))?;
    let first = square_cotangent(q, &r.narrow(-1, 0, m)?, Some(&gq), &gr.narrow(-1, 0, m)?)?;
    Tensor::cat(&[first, q.matmul(&g2)?], -1)
}

/// # QR factorizations
#[ops]
impl Tensor {
    /// The QR decomposition `A = Q · R`: `Q` has orthonormal columns, and `R` is upper triangular. The option `mode`
    /// selects the parts.
    ///
    /// ```
    /// # use cotangent::{linalg, Tensor};
    /// let a = Tensor::randn([5, 3])?;
    /// let (q, r) = linalg::qr(&a)?;
    /// assert_eq!((q.shape(), r.shape()), (&[5, 3][..], &[3, 3][..]));
    /// assert!(q.matmul(&r)?.allclose_with(&a, (1e-4, 1e-4))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, or the elements are not `f32`, `f64` or complex. The complete factors of matrices with more rows
    /// than columns have no derivative.
    #[op(function = linalg, autocast_cpu = f32, samples = qr_samples, errors = matrix_errors, outputs = [q, r], aliases = ["qr"], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_qr(&self, options: impl Into<QrOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_qr";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let k = m.min(n);
        if options.mode == QrMode::R && !self.requires_grad() {
            let (_, r) = factor(self, k, false)?;
            return Ok((Tensor::zeros_with([0], (self.dtype(), self.device()))?, r));
        }
        let complete = options.mode == QrMode::Complete;
        let (q, r) = factor(self, if complete { m } else { k }, true)?;
        let [q, r] = Tensor::record_joint([q, r], OP, &[self], |save| {
            let (x, q, r) = (save.save(self), save.save_output_at(0), save.save_output_at(1));
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                if complete && m > n {
                    bail!(
                        Graph,
                        OP,
                        "the complete factors of a matrix of {m} by {n} have no derivative: use the mode \"reduced\""
                    );
                }
                let (q, r) = (ctx.output_at(0, &q)?, ctx.output_at(1, &r)?);
                Ok(smallvec![Some(cotangent(&x, &q, &r, cotangents[0].as_ref(), cotangents[1].as_ref())?)])
            }
        })?;
        if options.mode == QrMode::R {
            return Ok((Tensor::zeros_with([0], (self.dtype(), self.device()))?, r));
        }
        Ok((q, r))
    }

    /// The first columns of a product of Householder reflections `1 - tau · v · vᴴ`. The vectors `v` are the columns of
    /// the matrices in `input`, with a 1 on the diagonal and zeros above it.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let q = linalg::householder_product(&tensor!([[0.0], [1.0]])?, &tensor!([1.0])?)?;
    /// assert_eq!(q.to_vec::<f32>()?, [0.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more columns than rows, more numbers in `tau` than columns, shapes do not fit, or the elements are not `f32`,
    /// `f64` or complex.
    #[doc(alias = "orgqr")]
    #[op(function = linalg, autocast_cpu = f32, samples = householder_samples, errors = householder_errors, aliases = ["orgqr"], full_precision, tolerance = 100.0, batch)]
    pub fn linalg_householder_product(&self, tau: &Tensor) -> Result<Tensor> {
        const OP: &str = "linalg_householder_product";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let fits = tau.rank() + 1 == self.rank() && tau.shape()[..tau.rank() - 1] == self.shape()[..self.rank() - 2];
        if !fits || m < n || tau.shape()[tau.rank() - 1] > n || tau.dtype() != self.dtype() {
            let (a, t) = (self.shape(), tau.shape());
            if m < n {
                bail!(Shape, OP, "input must have at least as many rows as columns, got shape {a:?}");
            }
            let (da, dt) = (self.dtype(), tau.dtype());
            bail!(
                Shape,
                OP,
                "tau must be {da} with at most {n} elements for each matrix of {a:?}, got {dt} of shape {t:?}"
            );
        }
        let k = tau.shape()[tau.rank() - 1];
        let q = eye(m, n, self)?.expand(self.shape())?;
        reflected(&self.narrow(-1, 0, k)?, tau, &q, false)
    }

    /// The QR decomposition in LAPACK's form: `R` on and above the diagonal, the Householder vectors below it, and the
    /// factors `tau`. [`linalg::householder_product`](crate::linalg::householder_product) and [`ormqr`](Self::ormqr) use
    /// both. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{linalg, Tensor};
    /// let x = Tensor::randn([4, 2])?;
    /// let (a, tau) = x.geqrf()?;
    /// let q = linalg::householder_product(&a, &tau)?;
    /// assert!(q.matmul(&a.triu(0)?.narrow(0, 0, 2)?)?.allclose_with(&x, (1e-4, 1e-4))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, or the elements are not `f32`, `f64` or complex.
    #[op(autocast_cpu = f32, samples = geqrf_samples, errors = matrix_errors, outputs = [a, tau], derivative = none, full_precision, tolerance = 100.0, batch)]
    pub fn geqrf(&self) -> Result<(Tensor, Tensor)> {
        const OP: &str = "geqrf";
        sizes(OP, self)?;
        full_precision(OP, self)?;
        let (a, tau) = reflections(self)?;
        Ok((from_columns(&a)?.record_barrier(OP, &[self]), tau.record_barrier(OP, &[self])))
    }

    /// Multiplies a matrix by the square matrix `Q` of a [`geqrf`](Self::geqrf), this tensor and `tau`, from the left
    /// or the right, with `Q` or its conjugate transpose.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let q = tensor!([[0.0], [1.0]])?;
    /// let y = q.ormqr(&tensor!([1.0])?, &tensor!([[1.0], [0.0]])?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes or dtypes do not fit, or the elements are not `f32`, `f64` or complex.
    #[op(autocast_cpu = f32, samples = ormqr_samples, errors = ormqr_errors, full_precision, tolerance = 100.0)]
    pub fn ormqr(&self, tau: &Tensor, other: &Tensor, options: impl Into<OrmqrOptions>) -> Result<Tensor> {
        const OP: &str = "ormqr";
        let OrmqrOptions { left, transpose } = options;
        let ((m, n), (rows, columns)) = (sizes(OP, self)?, sizes(OP, other)?);
        full_precision(OP, self)?;
        let lead = crate::ops::linalg::common::batch(self);
        let k = tau.shape().last().copied().unwrap_or(0);
        let batches = tau.rank() > 0
            && tau.shape()[..tau.rank() - 1] == *lead
            && crate::ops::linalg::common::batch(other) == lead;
        let dtypes = tau.dtype() == self.dtype() && other.dtype() == self.dtype();
        if !batches || !dtypes || k > n.min(m) || m != if left { rows } else { columns } {
            let (a, t, c) = (self.shape(), tau.shape(), other.shape());
            let (da, dt, dc) = (self.dtype(), tau.dtype(), other.dtype());
            bail!(
                Shape,
                OP,
                "input, tau and other must match in dtype, batch and sizes, got {da} {a:?}, {dt} {t:?} and {dc} {c:?}"
            );
        }
        let vectors = self.narrow(-1, 0, k)?;
        if left {
            reflected(&vectors, tau, other, transpose)
        } else {
            mh(&reflected(&vectors, tau, &mh(other)?, !transpose)?)
        }
    }

    /// The least-squares solution `X` of `min ‖A · X - B‖`, where `input` is `A`; the one with minimal norm if
    /// there are several. Returns the solution, the sums of squared residuals (if there are more rows than columns and
    /// all ranks are full, not with the driver `gelsy`), the ranks (not with `gels`), and the singular values (with
    /// `gelsd` and `gelss`). Results that are not computed are empty.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let a = tensor!([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])?;
    /// let found = linalg::lstsq(&a, &tensor!([[1.0], [3.0], [5.0]])?)?;
    /// assert!(found[0].allclose_with(&tensor!([[1.0], [2.0]])?, (1e-4, 1e-4))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not fit, or the elements are not `f32`, `f64` or complex. With the driver `gels` the derivative is refused if a
    /// matrix is not of full rank.
    #[op(function = linalg, autocast_cpu = f32, samples = lstsq_samples, errors = lstsq_errors, outputs = [solution, residuals, rank, singular_values], aliases = ["lstsq"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_lstsq(&self, B: &Tensor, options: impl Into<LstsqOptions>) -> Result<Vec<Tensor>> {
        const OP: &str = "linalg_lstsq";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let vector = B.rank() + 1 == self.rank() && self.shape()[..B.rank()] == *B.shape();
        let b = if vector { B.unsqueeze(-1)? } else { B.clone() };
        let (rows, _) = sizes(OP, &b)?;
        if rows != m || self.dtype() != b.dtype() {
            let (a, b) = (self.shape(), B.shape());
            let (da, db) = (self.dtype(), B.dtype());
            bail!(Shape, OP, "B must be {da} with {m} rows for {a:?}, got {db} of shape {b:?}");
        }
        broadcast(
            OP,
            &[&crate::ops::linalg::common::batch(self).into(), &crate::ops::linalg::common::batch(&b).into()],
        )?;
        let empty = |dtype: DType| Tensor::zeros_with([0], (dtype, self.device()));
        let by_qr = options.driver == LstsqDriver::Gels;
        let rtol = options.rcond.unwrap_or(epsilon(self) * m.max(n) as f64);
        let solution = if !by_qr {
            self.linalg_pinv_with(crate::options::PinvOptions::new().rtol(rtol))?.matmul(&b)?
        } else if m >= n {
            let (q, r) = self.linalg_qr()?;
            triangular(&r, &mh(&q)?.matmul(&b)?, true, false)?
        } else {
            let (q, r) = mh(self)?.linalg_qr()?;
            q.matmul(&triangular(&mh(&r)?, &b, false, false)?)?
        };
        let values = if by_qr { None } else { Some(self.linalg_svdvals()?) };
        let (rank, full) = match &values {
            None => (empty(DType::I64)?, true),
            Some(s) => {
                let (s, k) = (s.detach(), m.min(n));
                let counted = if k == 0 { s.gt(0)? } else { s.gt(&s.narrow(-1, 0, 1)?.mul(rtol)?)? };
                let rank = counted.to_dtype(DType::I64)?.sum(-1)?;
                let full = !crate::ops::linalg::common::any(&rank.lt(k as i64)?)?;
                (rank, full)
            }
        };
        let residuals = if m > n && full && options.driver != LstsqDriver::Gelsy {
            let (a, b) = common_batch(OP, self, &b)?;
            a.matmul(&solution)?.sub(&b)?.abs()?.square()?.sum(-2)?
        } else {
            empty(self.dtype().to_real())?
        };
        let given = matches!(options.driver, LstsqDriver::Gelsd | LstsqDriver::Gelss);
        let values = match values {
            Some(values) if given => values,
            _ => empty(self.dtype().to_real())?,
        };
        let solution = if vector { solution.squeeze(-1)? } else { solution };
        Ok(vec![solution, residuals, rank, values])
    }
}

fn qr_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 8] = [&[3, 3], &[5, 3], &[3, 5], &[2, 4, 2], &[1, 1], &[2, 2, 4], &[0, 3, 2], &[3, 0]];
    let mut all = shapes.iter().map(|s| Ok(sample![normal(*s, 4)?])).collect::<Result<Vec<_>>>()?;
    all.push(sample![normal([4, 3], 4)?; mode = "r"]);
    all.push(sample![normal([3, 4], 4)?; mode = "complete"]);
    Ok(all)
}

fn geqrf_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 5] = [&[3, 3], &[5, 3], &[3, 5], &[2, 4, 2], &[0, 3, 2]];
    shapes.iter().map(|s| Ok(sample![normal(*s, 4)?])).collect()
}

fn ormqr_samples() -> Result<Vec<Sample>> {
    let (a, tau) = (normal([4, 2], 1)?, normal([2], 2)?);
    let mut all = vec![sample![normal([2, 3, 3], 1)?, normal([2, 2], 2)?, normal([2, 3, 2], 3)?]];
    for transpose in [false, true] {
        all.push(sample![&a, &tau, normal([4, 3], 3)?; transpose = transpose]);
        all.push(sample![&a, &tau, normal([3, 4], 3)?; left = false, transpose = transpose]);
    }
    Ok(all)
}

fn ormqr_errors() -> Result<Vec<ErrorCase>> {
    let (a, tau) = (normal([4, 2], 1)?, normal([2], 2)?);
    Ok(vec![
        error!["sizes", "[4, 2]", "[3, 4]"; sample![&a, &tau, normal([3, 4], 3)?]],
        error!["too many factors", "[3]"; sample![&a, normal([3], 2)?, normal([4, 3], 3)?]],
        error!["two dtypes", "f32", "f64"; sample![&a, &tau, normal([4, 3], 3)?.to_dtype(DType::F32)?]],
        error!["a vector", "[4]"; sample![normal([4], 1)?, &tau, normal([4, 3], 3)?]],
    ])
}

fn householder_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3, 3], 1)?, normal([3], 2)?],
        sample![normal([4, 2], 1)?, normal([2], 2)?],
        sample![normal([2, 4, 3], 1)?, normal([2, 2], 2)?],
    ])
}

fn householder_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["more columns than rows", "[2, 3]"; sample![normal([2, 3], 1)?, normal([2], 2)?]],
        error!["too many factors", "[3, 2]", "[3]"; sample![normal([3, 2], 1)?, normal([3], 2)?]],
        error!["another batch", "[2, 3, 2]", "[3, 2]"; sample![normal([2, 3, 2], 1)?, normal([3, 2], 2)?]],
        error!["a vector", "[3]"; sample![normal([3], 1)?, normal([3], 2)?]],
    ])
}

fn lstsq_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for driver in ["gelsy", "gels", "gelsd"] {
        all.push(sample![normal([5, 3], 1)?, normal([5, 2], 2)?; driver = driver]);
        all.push(sample![normal([3, 5], 1)?, normal([3, 2], 2)?; driver = driver]);
        all.push(sample![normal([2, 4, 3], 1)?, normal([2, 4, 1], 2)?; driver = driver]);
    }
    all.push(sample![normal([2, 4, 3], 1)?, normal([2, 4], 2)?]);
    Ok(all)
}

fn lstsq_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["sizes", "[3, 2]", "[2, 2]"; sample![normal([3, 2], 1)?, normal([2, 2], 1)?]],
        error!["a vector", "[3]"; sample![normal([3], 1)?, normal([3, 2], 1)?]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?, normal([2, 2], 1)?]],
    ])
}
