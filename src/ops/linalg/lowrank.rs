//! Low-rank decompositions, from products with a few random vectors.

use crate::error::bail;
use crate::ops::linalg::common::{batch, full_precision, mh, sizes, with};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::SvdOptions;
use crate::options::options;
use crate::{Result, Tensor, keepdim};

options! {
    /// The options of [`Tensor::svd_lowrank_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::SvdLowrankOptions};
    /// let x = Tensor::randn([30, 2])?.matmul(&Tensor::randn([2, 20])?)?;
    /// let (u, s, v) = x.svd_lowrank_with(SvdLowrankOptions::new().q(2))?;
    /// assert_eq!((u.shape(), s.shape(), v.shape()), (&[30, 2][..], &[2][..], &[20, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SvdLowrankOptions {
        /// The number of singular values: a little more than the expected rank.
        q: usize = 6,
        /// The number of subspace iterations: products with the matrix and its transpose.
        niter: usize = 2,
    }
}

options! {
    /// The options of [`Tensor::pca_lowrank_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::PcaLowrankOptions};
    /// let (_, s, _) = Tensor::randn([30, 4])?.pca_lowrank_with(PcaLowrankOptions::new().q(3).center(false))?;
    /// assert_eq!(s.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PcaLowrankOptions {
        /// The number of principal components; by default 6, or the smaller side of the matrices if that is less.
        q: Option<usize> = None,
        /// Whether the columns are centered first.
        center: bool = true,
        /// The number of subspace iterations: products with the matrix and its transpose.
        niter: usize = 2,
    }
}

/// The largest `niter`: far more than needed, and few enough that a mistaken number does not run for ever.
const MOST_REFINEMENTS: usize = 1000;

/// An orthonormal basis of approximately the span of the first `q` left singular vectors, after Halko, Martinsson and Tropp. It
/// is orthonormalized after each product; otherwise small singular values would be lost in rounding.
fn basis(x: &Tensor, q: usize, niter: usize) -> Result<Tensor> {
    let columns = x.shape()[x.rank() - 1];
    let draw = Tensor::randn_with([columns, q], (x.dtype(), x.device()))?;
    let mut found = x.matmul(&draw)?.linalg_qr()?.0;
    for _ in 0..niter {
        let back = mh(x)?.matmul(&found)?.linalg_qr()?.0;
        found = x.matmul(&back)?.linalg_qr()?.0;
    }
    Ok(found)
}

fn decompose(op: &'static str, x: &Tensor, q: usize, niter: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes(op, x)?;
    full_precision(op, x)?;
    if q > m.min(n) {
        bail!(Value, op, "q must be at most {} for matrices of {m} by {n}, got {q}", m.min(n));
    }
    if niter > MOST_REFINEMENTS {
        bail!(Value, op, "niter must be at most {MOST_REFINEMENTS}, got {niter}");
    }
    if q == 0 {
        let empty = |last: &[usize], dtype| Tensor::zeros_with(with(batch(x), last), (dtype, x.device()));
        return Ok((empty(&[m, 0], x.dtype())?, empty(&[0], x.dtype().to_real())?, empty(&[n, 0], x.dtype())?));
    }
    // A wide matrix is decomposed as its conjugate transpose.
    let wide = m < n;
    let tall = if wide { mh(x)? } else { x.clone() };
    let found = basis(&tall, q, niter)?;
    let (u, s, vh) = mh(&found)?.matmul(&tall)?.linalg_svd_with(SvdOptions::new().full_matrices(false))?;
    let (u, v) = (found.matmul(&u)?, mh(&vh)?);
    Ok(if wide { (v, s, u) } else { (u, s, v) })
}

/// Matrices of full rank, so that every vector of the basis has a derivative.
fn lowrank_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([5, 3], 1)?; q = 3],
        sample![normal([3, 5], 2)?; q = 3, niter = 1],
        sample![normal([2, 4, 4], 3)?; q = 4, niter = 0],
    ])
}

fn lowrank_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no matrices", "[3]"; sample![normal([3], 1)?; q = 2]],
        error!["more values than there are", "got 4"; sample![normal([5, 3], 1)?; q = 4]],
        error!["refinements without end", "got 1001"; sample![normal([5, 3], 1)?; q = 2, niter = 1001]],
    ])
}

fn pca_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![normal([6, 3], 1)?], sample![normal([4, 3], 2)?; q = 3, center = false, niter = 1]])
}

/// # Low-rank decompositions
#[ops]
impl Tensor {
    /// An approximate singular value decomposition with the `q` largest singular values: `U`, `S` and `V` with `A ≈ U ·
    /// diag(S) · Vᴴ`, from products with `q` random vectors. It is exact if the rank is at most `q`; otherwise its
    /// accuracy depends on the omitted singular values, and improves with `niter`. Much faster than [`svd`](Self::svd)
    /// for large matrices.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::SvdLowrankOptions};
    /// # cotangent::manual_seed(0);
    /// let x = Tensor::randn([30, 2])?.matmul(&Tensor::randn([2, 20])?)?;
    /// let (u, s, v) = x.svd_lowrank_with(SvdLowrankOptions::new().q(2))?;
    /// let again = u.mul(&s)?.matmul(&v.t()?)?;
    /// assert!(again.allclose_with(&x, (1e-3, 1e-3))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices of `f32`, `f64` or complex numbers, `q` is more than their smaller side, or `niter`
    /// more than 1000. There is no derivative if `q` is more than the rank.
    #[op(autocast = f32, samples = lowrank_samples, errors = lowrank_errors, outputs = [u, s, v], full_precision, tolerance = 1000.0, random)]
    pub fn svd_lowrank(&self, options: impl Into<SvdLowrankOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        decompose("svd_lowrank", self, options.q, options.niter)
    }

    /// Principal component analysis of matrices whose rows are observations: [`svd_lowrank`](Self::svd_lowrank) of the
    /// matrices with centered columns. The columns of `V` are the principal directions, and `S² / (m - 1)` the
    /// variances along them.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::PcaLowrankOptions};
    /// let x = tensor!([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [4.0, 8.0]])?;
    /// let (_, _, v) = x.pca_lowrank_with(PcaLowrankOptions::new().q(1))?;
    /// let v = v.to_vec::<f32>()?;
    /// assert!((v[1] / v[0] - 2.0).abs() < 1e-4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`svd_lowrank`](Self::svd_lowrank).
    #[op(autocast = f32, samples = pca_samples, errors = lowrank_errors, outputs = [u, s, v], full_precision, tolerance = 1000.0, random)]
    pub fn pca_lowrank(&self, options: impl Into<PcaLowrankOptions>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "pca_lowrank";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let q = options.q.unwrap_or(6.min(m).min(n));
        let x = if options.center { self.sub(&self.mean(keepdim(-2))?)? } else { self.clone() };
        decompose(OP, &x, q, options.niter)
    }
}
