//! Powers and exponentials of matrices, and equations between tensors.

// PyTorch calls right-hand sides B.
#![allow(non_snake_case)]

use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::error::bail;
use crate::layout::Dims;
use crate::layout::resolve_dims;
use crate::ops::linalg::cholesky::positive;
use crate::ops::linalg::common::{any, count, floats, full_precision, identity, mh, sizes, square};
use crate::ops::linalg::solve::{regular, square_errors, square_samples};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::{DType, Result, Tensor, keepdim};
use smallvec::smallvec;

/// # Matrix functions
#[ops]
impl Tensor {
    /// The `n`-th power of square matrices. A negative `n` inverts them first.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1.0, 1.0], [0.0, 1.0]])?;
    /// assert_eq!(x.matrix_power(5)?.to_vec::<f32>()?, [1.0, 5.0, 0.0, 1.0]);
    /// assert_eq!(x.matrix_power(-2)?.to_vec::<f32>()?, [1.0, -2.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square or, for a negative `n`, singular.
    #[doc(alias = "linalg_matrix_power")]
    #[op(samples = power_samples, errors = power_errors, aliases = ["linalg_matrix_power"], tolerance = 100.0)]
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        const OP: &str = "matrix_power";
        let size = square(OP, self)?;
        if self.dtype() == DType::Bool {
            bail!(DType, OP, "input must be numeric, got {}", self.dtype());
        }
        if n == 0 {
            // The identity, with a derivative of zero.
            let everywhere = Tensor::ones_with((), (DType::Bool, self.device()))?;
            return self.masked_fill(&everywhere, 0)?.add(&identity(size, self)?);
        }
        let mut base = if n < 0 {
            full_precision(OP, self)?;
            self.inverse()?
        } else {
            self.clone()
        };
        let (mut left, mut result) = (n.unsigned_abs(), None::<Tensor>);
        loop {
            if left & 1 == 1 {
                result = Some(result.map_or(Ok(base.clone()), |result| result.matmul(&base))?);
            }
            left >>= 1;
            match (left, result) {
                (0, Some(result)) => return Ok(result),
                (_, so_far) => result = so_far,
            }
            base = base.matmul(&base)?;
        }
    }

    /// The matrix exponential `Σ Aᵏ / k!` of square matrices.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let y = tensor!([[0.0, 1.0], [0.0, 0.0]])?.matrix_exp()?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square, or the elements are not floats.
    #[doc(alias = "linalg_matrix_exp")]
    #[op(samples = square_samples, errors = exp_errors, aliases = ["linalg_matrix_exp"], tolerance = 100.0, batch)]
    pub fn matrix_exp(&self) -> Result<Tensor> {
        const OP: &str = "matrix_exp";
        let n = square(OP, self)?;
        floats(OP, self)?;
        let wide = if self.dtype().is_complex() { self.clone() } else { self.to_dtype(self.dtype().compute_dtype())? };
        let value = exponential(&wide.detach())?.record(OP, &[&wide], |save| {
            let x = save.save(&wide);
            move |_: &BackwardContext, g: &Tensor| {
                // The derivative along g is a block of the exponential of [[Aᴴ, g], [0, Aᴴ]].
                let x = mh(&x)?;
                let above = Tensor::cat(&[&x, g], -1)?;
                let below = Tensor::cat(&[&x.zeros_like()?, &x], -1)?;
                let both = Tensor::cat(&[above, below], -2)?.matrix_exp()?;
                Ok(smallvec![Some(both.narrow(-2, 0, n)?.narrow(-1, n, n)?)])
            }
        })?;
        value.to_dtype(self.dtype())
    }

    /// The principal square root of Hermitian, positive definite matrices. Only the lower triangles are read.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let y = linalg::matrix_sqrth(&tensor!([[4.0, 0.0], [0.0, 9.0]])?)?;
    /// assert!(y.allclose(&tensor!([[2.0, 0.0], [0.0, 3.0]])?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square or has elements that are not finite, or the elements are not `f32`, `f64` or complex. There is no
    /// second derivative if two eigenvalues are equal.
    #[doc(alias = "sqrtm")]
    #[op(function = linalg, autocast = f32, samples = sqrth_samples, errors = square_errors, aliases = ["matrix_sqrth"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_matrix_sqrth(&self) -> Result<Tensor> {
        const OP: &str = "linalg_matrix_sqrth";
        let root = |x: &Tensor| {
            let (w, v) = x.linalg_eigh()?;
            Ok((w.sqrt()?, v))
        };
        let (s, v) = root(&self.detach())?;
        v.mul(&s.unsqueeze(-2)?)?.matmul(&mh(&v)?)?.record(OP, &[self], |save| {
            let (x, s, v) = (save.save(self), save.save(&s), save.save(&v));
            move |_: &BackwardContext, g: &Tensor| {
                // X · dX + dX · X = dA: a division in the basis of eigenvectors.
                let (s, v) = if is_grad_enabled() { root(&x)? } else { (s.clone(), v.clone()) };
                Ok(smallvec![Some(sylvester(&s, &v, &g.add(&mh(g)?)?.mul(0.5)?)?)])
            }
        })
    }

    /// The polar decomposition `A = U · H` of matrices with at least as many rows as columns: `U` has orthonormal
    /// columns, and `H` is Hermitian and positive semidefinite.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor};
    /// let (u, h) = linalg::polar(&tensor!([[0.0, -2.0], [3.0, 0.0]])?)?;
    /// assert!(u.allclose_with(&tensor!([[0.0, -1.0], [1.0, 0.0]])?, (1e-5, 1e-5))?);
    /// assert!(h.allclose_with(&tensor!([[3.0, 0.0], [0.0, 2.0]])?, (1e-5, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer rows than columns, elements are not finite, or are not `f32`, `f64` or complex. The derivative is refused
    /// if columns are linearly dependent, and the second derivative if two singular values are equal.
    #[op(function = linalg, autocast_cpu = f32, samples = polar_samples, errors = polar_errors, outputs = [u, h], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_polar(&self) -> Result<(Tensor, Tensor)> {
        const OP: &str = "linalg_polar";
        let (m, n) = sizes(OP, self)?;
        full_precision(OP, self)?;
        if m < n {
            bail!(
                Shape,
                OP,
                "matrices must have at least as many rows as columns, got {m} by {n} in shape {:?}",
                self.shape()
            );
        }
        let (u, s, v) = self.detach().svd()?;
        let (u, h) = (u.matmul(&mh(&v)?)?, v.mul(&s.unsqueeze(-2)?)?.matmul(&mh(&v)?)?);
        let [u, h] = Tensor::record_joint([u, h], OP, &[self], |save| {
            let (u, h) = (save.save_output_at(0), save.save_output_at(1));
            let (s, v) = (save.save(&s), save.save(&v));
            move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                if any(&s.eq(0)?)? {
                    bail!(Graph, OP, "the derivative does not exist: a singular value is zero");
                }
                let (u, h) = (ctx.output_at(0, &u)?, ctx.output_at(1, &h)?);
                let (s, v) = if is_grad_enabled() { h.linalg_eigh()? } else { (s.clone(), v.clone()) };
                // The skew-Hermitian part changes U, the rest changes H.
                let mut turning = h.zeros_like()?;
                if let Some(g) = &cotangents[0] {
                    turning = turning.add(&mh(&u)?.matmul(g)?)?;
                }
                if let Some(g) = &cotangents[1] {
                    turning = turning.sub(&g.matmul(&h)?)?;
                }
                let mut inner = sylvester(&s, &v, &turning.sub(&mh(&turning)?)?)?;
                if let Some(g) = &cotangents[1] {
                    inner = inner.add(g)?;
                }
                let mut cotangent = u.matmul(&inner)?;
                if let Some(g) = cotangents[0].as_ref().filter(|_| m > n) {
                    let rest = g.sub(&u.matmul(&mh(&u)?.matmul(g)?)?)?;
                    cotangent = cotangent.add(&mh(&h.linalg_solve(&mh(&rest)?)?)?)?;
                }
                Ok(smallvec![Some(cotangent)])
            }
        })?;
        Ok((u, h))
    }

    /// The inverse of a tensor as a linear map: its first `ind` dimensions and the others have the same number of
    /// elements. `linalg::tensorinv(&x, ind)?.tensordot(&b, ind)?` equals
    /// [`linalg::tensorsolve`](crate::linalg::tensorsolve) of `x` and `b`.
    ///
    /// ```
    /// # use cotangent::{linalg, DType, Tensor};
    /// let x = Tensor::eye(4)?.reshape([2, 2, 4])?;
    /// assert_eq!(linalg::tensorinv(&x, 2)?.shape(), [4, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `ind` is 0, the numbers of elements differ, the map has no inverse, or the elements are not `f32`, `f64` or complex.
    #[op(function = linalg, autocast_cpu = f32, samples = tensorinv_samples, errors = tensorinv_errors, full_precision, tolerance = 100.0)]
    pub fn linalg_tensorinv(&self, #[default(2)] ind: usize) -> Result<Tensor> {
        const OP: &str = "linalg_tensorinv";
        full_precision(OP, self)?;
        let shape = self.shape();
        let (first, last) = shape.split_at_checked(ind).unwrap_or((shape, &[]));
        let (rows, columns) = (count(first), count(last));
        if ind == 0 || ind > shape.len() || rows != columns {
            bail!(Shape, OP, "ind must split {shape:?} into two parts with equal numbers of elements, got {ind}");
        }
        let sizes: Vec<usize> = last.iter().chain(first).copied().collect();
        self.reshape([rows, columns])?.inverse()?.reshape(&sizes[..])
    }

    /// Solves `A.tensordot(X, X.rank()) = B` for `X`, where `input` is `A`. The given dimensions of `A` are moved
    /// to its end first. Its leading dimensions must have as many elements as `B`, and so must the others.
    ///
    /// ```
    /// # use cotangent::{linalg, Tensor};
    /// let a = Tensor::eye(4)?.reshape([2, 2, 4])?;
    /// assert_eq!(linalg::tensorsolve(&a, &Tensor::ones([2, 2])?, None)?.shape(), [4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the numbers of elements do not fit, there are no such dimensions, the system is singular, or the elements are not `f32`,
    /// `f64` or complex.
    #[op(function = linalg, autocast_cpu = f32, samples = tensorsolve_samples, errors = tensorsolve_errors, full_precision, tolerance = 100.0)]
    pub fn linalg_tensorsolve(&self, B: &Tensor, dims: Option<Vec<isize>>) -> Result<Tensor> {
        const OP: &str = "linalg_tensorsolve";
        full_precision(OP, self)?;
        let moved = match &dims {
            None => self.clone(),
            Some(dims) => {
                let last = resolve_dims(OP, &Dims::from(&dims[..]), self.rank())?;
                let order: Vec<usize> =
                    (0..self.rank()).filter(|d| !last.contains(d)).chain(last.iter().copied()).collect();
                self.permute(&order[..])?
            }
        };
        let n = B.numel();
        let last = moved.shape().get(B.rank()..).unwrap_or(&[]).to_vec();
        if moved.rank() < B.rank() || count(&last) != n || moved.numel() != n.saturating_mul(n) {
            let (a, b) = (self.shape(), B.shape());
            bail!(Shape, OP, "input must reshape to {n} by {n} for B of shape {b:?}, got shape {a:?}");
        }
        moved.reshape([n, n])?.linalg_solve(&B.reshape([n])?)?.reshape(&last[..])
    }
}

/// The solution `X` of `A · X + X · A = C` for a Hermitian `A` with these eigenvalues and eigenvectors.
#[track_caller]
fn sylvester(values: &Tensor, vectors: &Tensor, c: &Tensor) -> Result<Tensor> {
    let inner = mh(vectors)?.matmul(c)?.matmul(vectors)?;
    let inner = inner.div(&values.unsqueeze(-2)?.add(&values.unsqueeze(-1)?)?)?;
    vectors.matmul(&inner)?.matmul(&mh(vectors)?)
}

/// By scaling and squaring, with a Taylor polynomial.
fn exponential(x: &Tensor) -> Result<Tensor> {
    const TERMS: usize = 18;
    let n = x.shape()[x.rank() - 1];
    let one = identity(n, x)?;
    if x.numel() == 0 {
        return Ok(x.clone());
    }
    // The largest absolute column sum.
    let norm = x.abs()?.sum(keepdim(-2))?.max(keepdim(-1))?;
    // Halving does not make an infinite norm smaller.
    let norm = norm.masked_fill(&norm.eq(f64::INFINITY)?, 1)?;
    // With a norm of at most 1 the first omitted term is below rounding.
    let halvings = norm.log()?.mul(std::f64::consts::LOG2_E)?.clamp(0.0, 1100.0)?;
    let halvings = halvings.to_dtype(DType::I64)?.add(&norm.gt(1.0)?.to_dtype(DType::I64)?)?;
    let most = halvings.max(..)?.item::<i64>()?;
    let mut scaled = x.clone();
    for step in 0..most {
        scaled = halvings.gt(step)?.where_(&scaled.mul(0.5)?, &scaled)?;
    }
    // The polynomial in blocks of four powers, from the highest down.
    let square = scaled.matmul(&scaled)?;
    let powers = [scaled.clone(), square.clone(), square.matmul(&scaled)?, square.matmul(&square)?];
    let weights: Vec<f64> = (0..=TERMS + 1).scan(1.0, |f, k| Some(std::mem::replace(f, *f / (k + 1) as f64))).collect();
    let piece = |start: usize| -> Result<Tensor> {
        let mut sum = one.mul(weights[start])?;
        for (power, weight) in powers[..3].iter().zip(&weights[start + 1..]) {
            sum = sum.add(&power.mul(*weight)?)?;
        }
        Ok(sum)
    };
    let mut y = piece(16)?;
    for start in [12, 8, 4, 0] {
        y = y.matmul(&powers[3])?.add(&piece(start)?)?;
    }
    for step in 0..most {
        let squared = y.matmul(&y)?;
        y = halvings.gt(step)?.where_(&squared, &y)?;
    }
    Ok(y)
}

fn power_samples() -> Result<Vec<Sample>> {
    let x = regular(&[2, 3, 3], 1)?;
    let mut all = Vec::new();
    for n in [1, 2, 3, 5] {
        all.push(sample![&x, n]);
    }
    all.push(sample![&x, 0].zero_derivative());
    all.push(sample![normal([0, 0], 1)?, 3]);
    Ok(all)
}

fn power_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["not square", "2 by 3"; sample![normal([2, 3], 1)?, 2]],
        error!["a vector", "[3]"; sample![normal([3], 1)?, 2]],
        error!["no inverse", "singular"; sample![Tensor::zeros_with([2, 2], DType::F64)?, -1]],
        error!["no inverse of integers", "i64"; sample![Tensor::ones_with([1, 1], DType::I64)?, -1]],
        error!["bools", "bool"; sample![Tensor::ones_with([1, 1], DType::Bool)?, 2]],
    ])
}

fn exp_errors() -> Result<Vec<ErrorCase>> {
    Ok(square_errors()?.into_iter().filter(|case| case.label != "half precision").collect())
}

fn tensorinv_samples() -> Result<Vec<Sample>> {
    let x = regular(&[6, 6], 1)?;
    Ok(vec![sample![x.reshape([2, 3, 6])?], sample![x.reshape([6, 3, 2])?, 1], sample![x.reshape([2, 3, 3, 2])?, 2]])
}

fn tensorinv_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["elements", "[2, 3, 4]"; sample![normal([2, 3, 4], 1)?]],
        error!["no dimensions", "got 0"; sample![normal([1, 1], 1)?, 0]],
        error!["too many", "got 3"; sample![normal([1, 1], 1)?, 3]],
        error!["half precision", "f16"; sample![Tensor::ones_with([1, 1], DType::F16)?, 1]],
    ])
}

fn tensorsolve_samples() -> Result<Vec<Sample>> {
    let x = regular(&[6, 6], 1)?;
    Ok(vec![
        sample![x.reshape([2, 3, 6])?, normal([2, 3], 2)?],
        sample![x.reshape([6, 2, 3])?, normal([6], 2)?],
        sample![x.reshape([2, 3, 6])?, normal([3, 6], 2)?.narrow(1, 0, 2)?.contiguous()?.reshape([6])?, [0, 1]],
    ])
}

fn tensorsolve_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["elements", "[2, 3, 4]", "[2, 3]"; sample![normal([2, 3, 4], 1)?, normal([2, 3], 1)?]],
        error!["no such dimension", "3"; sample![normal([2, 3, 6], 1)?, normal([2, 3], 1)?, [3]]],
        error!["integers", "i64"; sample![Tensor::zeros_with([2, 2], DType::I64)?, Tensor::zeros_with([2], DType::I64)?]],
    ])
}

fn sqrth_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 4] = [&[3, 3], &[1, 1], &[2, 4, 4], &[0, 0]];
    shapes.iter().map(|s| Ok(sample![positive(s, 1)?].symmetric())).collect()
}

fn polar_samples() -> Result<Vec<Sample>> {
    let shapes: [&[usize]; 5] = [&[3, 3], &[1, 1], &[4, 2], &[2, 3, 2], &[3, 0]];
    shapes.iter().map(|s| Ok(sample![normal(*s, 4)?])).collect()
}

fn polar_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["fewer rows", "2 by 3"; sample![normal([2, 3], 1)?]],
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["half precision", "f16"; sample![Tensor::zeros_with([2, 2], DType::F16)?]],
    ])
}
