//! Pseudoinverses and ranks, by singular values.

use crate::autograd::BackwardContext;
use crate::ops::linalg::cholesky::positive;
use crate::ops::linalg::common::{epsilon, full_precision, mh, sizes, with};
use crate::ops::linalg::spectral::{singular, svd_errors};
use crate::ops::ops;
use crate::ops::sample::{Sample, normal, sample};
use crate::options::options;
use crate::{DType, Result, Tensor, keepdim};
use smallvec::smallvec;

options! {
    /// The options of [`linalg::pinv_with`](crate::linalg::pinv_with) and [`linalg::matrix_rank_with`](crate::linalg::matrix_rank_with).
    ///
    /// ```
    /// use cotangent::{linalg, options::PinvOptions, tensor};
    /// let x = tensor!([[1.0, 0.0], [0.0, 1e-3]])?;
    /// assert_eq!(linalg::matrix_rank_with(&x, PinvOptions::new().atol(0.1))?.item::<i64>()?, 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PinvOptions {
        /// Singular values up to this count as zero; by default 0.
        atol: Option<f64> = None,
        /// Singular values up to this many times the largest count as zero; by default the dtype's epsilon times the larger side, or 0
        /// if `atol` is given.
        rtol: Option<f64> = None,
        /// Whether the matrices are symmetric; then only the lower triangle is read.
        hermitian: bool = false,
    }
}

/// The tolerance that [`PinvOptions`] give: singular values above it count.
fn tolerance(x: &Tensor, s: &Tensor, options: &PinvOptions) -> Result<Tensor> {
    let (m, n) = sizes("linalg_pinv", x)?;
    let rtol = options.rtol.unwrap_or(if options.atol.is_some_and(|atol| atol > 0.0) {
        0.0
    } else {
        epsilon(x) * m.max(n) as f64
    });
    let relative = s.max(keepdim(-1))?.mul(rtol)?;
    relative.maximum(options.atol.unwrap_or(0.0))
}

/// # Pseudoinverses and ranks
#[ops]
impl Tensor {
    /// The Moore-Penrose pseudoinverse of matrices. Small singular values count as 0. The derivative is that at
    /// constant rank.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let y = linalg::pinv(&tensor!([[2.0, 0.0], [0.0, 0.0]])?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.0, 0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, elements are not finite, or are not `f32`, `f64` or complex.
    #[doc(alias = "pinverse")]
    #[op(function = linalg, autocast = f32, samples = pinv_samples, errors = svd_errors, aliases = ["pinv", "pinverse"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_pinv(&self, options: impl Into<PinvOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_pinv";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        let x = self.detach();
        let value = if self.numel() == 0 {
            Tensor::zeros_with(with(&x.shape()[..x.rank() - 2], &[n, m]), (x.dtype(), x.device()))?
        } else if options.hermitian {
            let (w, v) = x.linalg_eigh()?;
            let size = w.abs()?;
            let inverse = w.reciprocal()?.masked_fill(&size.le(&tolerance(&x, &size, &options)?)?, 0)?;
            v.mul(&inverse.unsqueeze(-2)?)?.matmul(&mh(&v)?)?
        } else {
            let (u, s, v) = singular(OP, &x, Some(false))?;
            let inverse = s.reciprocal()?.masked_fill(&s.le(&tolerance(&x, &s, &options)?)?, 0)?;
            v.mul(&inverse.unsqueeze(-2)?)?.matmul(&mh(&u)?)?
        };
        value.record(OP, &[self], |save| {
            let (x, y) = (save.save(self), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                let y = ctx.output(&y);
                let (yh, gh) = (mh(&y)?, mh(g)?);
                let product =
                    |all: &[&Tensor]| all[1..].iter().try_fold(all[0].clone(), |product, x| product.matmul(x));
                let cotangent = if m <= n {
                    let k = gh.matmul(&y)?;
                    let ky = k.matmul(&yh)?;
                    let through = product(&[&yh, &y, &gh.sub(&k.matmul(&x)?)?])?;
                    ky.sub(&mh(&y.matmul(&k)?)?)?.sub(&product(&[&x, &y, &ky])?)?.add(&through)?
                } else {
                    let k = y.matmul(&gh)?;
                    let yk = yh.matmul(&k)?;
                    let through = product(&[&gh.sub(&x.matmul(&k)?)?, &y, &yh])?;
                    yk.sub(&mh(&k.matmul(&y)?)?)?.sub(&product(&[&yk, &y, &x])?)?.add(&through)?
                };
                Ok(smallvec![Some(cotangent)])
            }
        })
    }

    /// The rank of matrices: the number of singular values above a tolerance.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// assert_eq!(linalg::matrix_rank(&tensor!([[1.0, 2.0], [2.0, 4.0]])?)?.item::<i64>()?, 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no matrices, elements are not finite, or are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast_cpu = f32, samples = rank_samples, errors = svd_errors, derivative = none, aliases = ["matrix_rank"], full_precision, batch)]
    pub fn linalg_matrix_rank(&self, options: impl Into<PinvOptions>) -> Result<Tensor> {
        const OP: &str = "linalg_matrix_rank";
        sizes(OP, self)?;
        full_precision(OP, self)?;
        let x = self.detach();
        if x.numel() == 0 {
            let zeros = Tensor::zeros_with(&x.shape()[..x.rank() - 2], (DType::I64, x.device()))?;
            return Ok(zeros.record_barrier(OP, &[self]));
        }
        let s = if options.hermitian { x.linalg_eigvalsh()?.abs()? } else { x.linalg_svdvals()? };
        let counted = s.gt(&tolerance(&x, &s, &options)?)?.to_dtype(DType::I64)?.sum(-1)?;
        Ok(counted.record_barrier(OP, &[self]))
    }
}

fn pinv_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 6] = [&[3, 3], &[4, 2], &[2, 4], &[2, 3, 2], &[0, 3], &[2, 0, 3]];
    let mut all = shapes.iter().map(|s| Ok(sample![normal(*s, 4)?])).collect::<Result<Vec<_>>>()?;
    all.push(sample![positive(&[3, 3], 2)?; hermitian = true].symmetric());
    Ok(all)
}

fn rank_samples() -> Result<Vec<Sample>> {
    let low = normal([4, 2], 1)?.matmul(&normal([2, 3], 2)?)?;
    Ok(vec![
        sample![normal([3, 3], 4)?],
        sample![&low],
        sample![normal([2, 4, 2], 4)?; atol = 0.5, rtol = 0.1],
        sample![positive(&[3, 3], 2)?; hermitian = true],
        sample![normal([2, 0, 3], 1)?],
    ])
}
