//! Determinants.

use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::ops::linalg::common::{any, diag, epsilon, full_precision, identity, mh, square};
use crate::ops::linalg::lu::{Factors, factor};
use crate::ops::linalg::solve::{regular, square_errors, square_samples};
use crate::ops::ops;
use crate::ops::sample::{Sample, normal, sample};
use crate::{DType, Device, Result, Tensor};
use smallvec::smallvec;

/// # Determinants
#[ops]
impl Tensor {
    /// The determinant of square matrices. Singular matrices have derivatives, too.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[0.0, 2.0], [3.0, 4.0]])?.det()?.item::<f32>()?, -6.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, or the elements are not `f32`, `f64` or complex.
    #[doc(alias = "linalg_det")]
    #[op(samples = det_samples, errors = square_errors, aliases = ["linalg_det"], full_precision, tolerance = 100.0, batch)]
    pub fn det(&self) -> Result<Tensor> {
        square("det", self)?;
        full_precision("det", self)?;
        let Factors { lu, pivots, .. } = factor(&self.detach(), true)?;
        let diagonal = diag(&lu)?;
        let value = diagonal.prod(-1)?.mul(&parity(&pivots, self.dtype().to_real())?)?;
        value.record("det", &[self], |save| {
            let (x, det, diagonal) = (save.save(self), save.save_output(), save.save(&diagonal));
            move |ctx: &BackwardContext, g: &Tensor| {
                let matrix = |numbers: &Tensor| numbers.unsqueeze(-1)?.unsqueeze(-1);
                if !nearly_singular(&diagonal)? {
                    let scaled = g.mul(&ctx.output(&det).conj()?)?;
                    return Ok(smallvec![Some(matrix(&scaled)?.mul(&mh(&x.linalg_inv_ex()?.0)?)?)]);
                }
                Ok(smallvec![Some(matrix(g)?.mul(&mh(&adjugate(&x)?)?)?)])
            }
        })
    }

    /// The sign and the logarithm of the absolute value of the determinant of square matrices: 0 and -inf for singular
    /// ones. The sign of a complex determinant is the determinant over its absolute value.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (sign, log) = tensor!([[0.0, 1.0], [1.0, 0.0]])?.slogdet()?;
    /// assert_eq!((sign.item::<f32>()?, log.item::<f32>()?), (-1.0, 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, or the elements are not `f32`, `f64` or complex.
    #[doc(alias = "linalg_slogdet")]
    #[op(samples = square_samples, errors = square_errors, outputs = [sign, logabsdet], aliases = ["linalg_slogdet"], full_precision, tolerance = 100.0, batch)]
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        square("slogdet", self)?;
        full_precision("slogdet", self)?;
        let Factors { lu, pivots, .. } = factor(&self.detach(), true)?;
        let diagonal = diag(&lu)?;
        let sign = diagonal.sgn()?.prod(-1)?.mul(&parity(&pivots, self.dtype().to_real())?)?;
        let log = diagonal.abs()?.log()?.sum(-1)?;
        let [sign, log] = Tensor::record_joint([sign, log], "slogdet", &[self], |save| {
            let (x, sign) = (save.save(self), save.save_output_at(0));
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                // A complex sign e^(iθ) has a derivative, too: i · e^(iθ) · dθ.
                let turning = match &cotangents[0] {
                    Some(g) if g.dtype().is_complex() => Some(g.mul(&ctx.output_at(0, &sign)?.conj()?)?.imag()?),
                    _ => None,
                };
                let g = match (&cotangents[1], turning) {
                    (None, None) => return Ok(smallvec![Some(x.zeros_like()?)]),
                    (Some(g), None) => g.clone(),
                    (None, Some(turning)) => turning.zeros_like()?.complex(&turning)?,
                    (Some(g), Some(turning)) => g.complex(&turning)?,
                };
                let (inverse, info) = x.linalg_inv_ex()?;
                if any(&info.ne(0)?)? {
                    bail!(Graph, "slogdet", "the derivative of the logarithm does not exist: a matrix is singular");
                }
                Ok(smallvec![Some(g.unsqueeze(-1)?.unsqueeze(-1)?.mul(&mh(&inverse)?)?)])
            }
        })?;
        Ok((sign, log))
    }

    /// The logarithm of the determinant of square matrices: -inf for singular ones, NaN for a negative determinant,
    /// unless the elements are complex.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1.0, 0.0], [0.0, 1.0]])?.logdet()?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, or the elements are not `f32`, `f64` or complex.
    #[op(samples = logdet_samples, errors = square_errors, full_precision, tolerance = 100.0, batch)]
    pub fn logdet(&self) -> Result<Tensor> {
        let (sign, log) = self.slogdet()?;
        if sign.dtype().is_complex() {
            return sign.log()?.add(&log);
        }
        log.masked_fill(&sign.detach().lt(0)?, f64::NAN)
    }
}

/// Whether any matrix of the batch, with these pivots, is so close to singular that no digit of its inverse is reliable.
fn nearly_singular(diagonal: &Tensor) -> Result<bool> {
    if diagonal.numel() == 0 {
        return Ok(false);
    }
    let (n, size) = (diagonal.shape()[diagonal.rank() - 1], diagonal.abs()?);
    let (least, most) = (size.min(-1)?, size.max(-1)?);
    any(&least.le(&most.mul(8.0 * epsilon(diagonal) * n as f64)?)?.mul(&most.lt(f64::INFINITY)?)?)
}

/// The adjugate of each matrix `A`, `det(A) · A⁻¹`, with all derivatives. Singular matrices have one, too.
///
/// `B = A + U·C·Vᴴ` is far from singular: `U` and `V` are the singular vectors of small singular values, `C` is as large as the
/// largest one, and all three are constants. With `M = I - Vᴴ·B⁻¹·U·C`, which is as large as these singular values are many,
/// `det(A) = det(B)·det(M)` and `A⁻¹ = B⁻¹ + B⁻¹·U·C·M⁻¹·Vᴴ·B⁻¹`.
fn adjugate(a: &Tensor) -> Result<Tensor> {
    let (u, s, vh) = a.detach().linalg_svd()?;
    let n = s.shape()[s.rank() - 1];
    let most = s.narrow(-1, 0, 1)?;
    // The condition number of B is then at most ε^(-1/3), so that at most a third of the digits is lost.
    let small = s.le(&most.mul(epsilon(a).cbrt())?)?;
    let many = small.to_dtype(DType::I64)?.sum(-1)?.all_examples()?.max(..)?.to_device(Device::Cpu)?.item::<i64>()?;
    let many = (many as usize).max(1);
    let raised = most.masked_fill(&most.eq(0)?, 1)?.mul(&small.to_dtype(s.dtype())?)?.narrow(-1, n - many, many)?;
    let u = u.narrow(-1, n - many, many)?.mul(&raised.unsqueeze(-2)?)?;
    let vh = vh.narrow(-2, n - many, many)?;
    let b = a.add(&u.matmul(&vh)?)?;
    let inverse = b.linalg_inv_ex()?.0;
    let left = inverse.matmul(&u)?;
    let (inner, det) = small_adjugate(&identity(many, a)?.sub(&vh.matmul(&left)?)?)?;
    let matrix = |numbers: &Tensor| numbers.unsqueeze(-1)?.unsqueeze(-1);
    let whole = inverse.mul(&matrix(&det)?)?.add(&left.matmul(&inner)?.matmul(&vh.matmul(&inverse)?)?)?;
    whole.mul(&matrix(&b.det()?)?)
}

/// The adjugates and the determinants of small matrices, by sums and products alone (Faddeev and LeVerrier).
fn small_adjugate(m: &Tensor) -> Result<(Tensor, Tensor)> {
    let n = m.shape()[m.rank() - 1];
    let unit = identity(n, m)?;
    let (mut factor, mut product) = (unit.clone(), m.clone());
    let mut coefficient = diag(m)?.sum(-1)?.neg()?;
    for k in 2..=n {
        factor = product.add(&unit.mul(&coefficient.unsqueeze(-1)?.unsqueeze(-1)?)?)?;
        product = m.matmul(&factor)?;
        coefficient = diag(&product)?.sum(-1)?.div(-(k as f64))?;
    }
    let sign = if n.is_multiple_of(2) { 1.0 } else { -1.0 };
    Ok((factor.mul(-sign)?, coefficient.mul(sign)?))
}

/// 1 for an even number of row exchanges, -1 for an odd one.
fn parity(pivots: &Tensor, dtype: DType) -> Result<Tensor> {
    let n = pivots.shape()[pivots.rank() - 1];
    let own = Tensor::arange_with(1, n as i64 + 1, (DType::I32, pivots.device()))?;
    let exchanged = pivots.ne(&own)?.to_dtype(dtype)?.mul(-2.0)?.add(1.0)?;
    exchanged.prod(-1)
}

fn det_samples() -> Result<Vec<Sample>> {
    let mut all = square_samples()?;
    // Singular matrices of rank n - 1, n - 2 and 0, and a regular one.
    let singular = Tensor::from_vec(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [3, 3])?;
    let line = normal([3, 1], 1)?.matmul(&normal([1, 3], 2)?)?;
    let none = Tensor::zeros_with([3, 3], DType::F64)?;
    all.push(sample![Tensor::stack(&[&singular, &line, &none, &regular(&[3, 3], 2)?], 0)?]);
    all.push(sample![singular]);
    Ok(all)
}

fn logdet_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 4] = [&[3, 3], &[1, 1], &[2, 4, 4], &[0, 2, 2]];
    shapes.iter().map(|shape| Ok(sample![regular(shape, 1)?])).collect()
}
