//! Eigenvalues of general matrices.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::ops::elementwise::complex::complex_spread;
use crate::ops::linalg::common::{
    columns, diag_embed, diagonal_mask, from_columns, full_precision, mh, refuse_non_finite, square, with,
};
use crate::ops::linalg::solve::{regular, square_errors};
use crate::ops::linalg::spectral::{gaps, turned};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::SortOptions;
use crate::{DType, Result, Tensor};
use smallvec::smallvec;

/// Complex eigenvalues and, if `vectors`, eigenvectors, in the order of [`order`], outside the graph.
fn eigen(op: &'static str, x: &Tensor, vectors: bool) -> Result<(Tensor, Option<Tensor>)> {
    let n = square(op, x)?;
    full_precision(op, x)?;
    refuse_non_finite(op, x)?;
    let lead = &x.shape()[..x.rank() - 2];
    let mut a = columns(x)?;
    let mut w = Tensor::empty(op, with(lead, &[n]), x.dtype().to_complex(), x.device())?;
    let mut v =
        if vectors { Some(Tensor::empty(op, x.layout().shape().clone(), x.dtype(), x.device())?) } else { None };
    {
        let (a, to) = (&mut a.as_raw_view_mut(op)?, &mut w.as_raw_view_mut(op)?);
        let mut v = v.as_mut().map(|v| v.as_raw_view_mut(op)).transpose()?;
        kernel!("linalg_eig" on [a, to]: linalg::decompose::eig(a, to, v.as_mut()))?;
    }
    if w.numel() == 0 {
        return Ok((w, v.map(|v| v.to_dtype(x.dtype().to_complex())).transpose()?));
    }
    let order = order(&w)?;
    let v = match v {
        Some(v) => Some(unpacked(&from_columns(&v)?, &w)?.gather(-1, &order.unsqueeze(-2)?.expand(x.shape())?)?),
        None => None,
    };
    Ok((w.gather(-1, &order)?, v))
}

/// The indices that sort complex numbers by real part; equal ones by descending imaginary part.
fn order(w: &Tensor) -> Result<Tensor> {
    let first = w.imag()?.argsort_with(-1, SortOptions::new().descending(true))?;
    first.gather(-1, &w.real()?.gather(-1, &first)?.argsort(-1)?)
}

/// Eigenvectors of real matrices as complex numbers. For each pair of conjugate eigenvalues the kernel returns two columns: the
/// real and imaginary parts of the eigenvector whose eigenvalue has a positive imaginary part.
fn unpacked(v: &Tensor, w: &Tensor) -> Result<Tensor> {
    if v.dtype().is_complex() {
        return Ok(v.clone());
    }
    let part = w.imag()?.unsqueeze(-2)?;
    let (first, second) = (part.gt(0)?, part.lt(0)?);
    let real = second.where_(&v.roll(1, -1)?, v)?;
    let imag = first.where_(&v.roll(-1, -1)?, &second.where_(&v.neg()?, 0.0)?)?;
    real.complex(&imag)
}

/// # Eigenvalues of general matrices
#[ops]
impl Tensor {
    /// The eigenvalues of square matrices, complex and ascending by real part, and eigenvectors of length 1 as columns.
    /// The largest element of each eigenvector is positive, which makes the derivative unique.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor, Complex};
    /// let (values, vectors) = linalg::eig(&tensor!([[0.0, -1.0], [1.0, 0.0]])?)?;
    /// assert!((values.to_vec::<Complex<f32>>()?[0] - Complex::<f32>::I).abs() < 1e-6);
    /// assert_eq!(vectors.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a matrix is not square or has elements that are not finite, or the elements are not `f32`, `f64` or complex. The
    /// derivative of eigenvectors is refused if two eigenvalues are equal.
    #[op(function = linalg, autocast_cpu = f32, samples = eig_samples, errors = eig_errors, outputs = [eigenvalues, eigenvectors], aliases = ["eig"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_eig(&self) -> Result<(Tensor, Tensor)> {
        let (w, v) = recorded("linalg_eig", self)?;
        Ok((w, turned(&v, &[])?.swap_remove(0)))
    }

    /// The eigenvalues of square matrices, complex and ascending by real part.
    ///
    /// ```
    /// # use cotangent::{linalg, tensor, Complex};
    /// let values = linalg::eigvals(&tensor!([[2.0, 1.0], [0.0, 1.0]])?)?;
    /// assert_eq!(values.to_vec::<Complex<f32>>()?, [Complex::new(1.0, 0.0), Complex::new(2.0, 0.0)]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`linalg::eig`](crate::linalg::eig); the derivative exists for equal eigenvalues, too, if the matrix is
    /// diagonalizable.
    #[op(function = linalg, autocast_cpu = f32, samples = eig_samples, errors = eig_errors, aliases = ["eigvals"], full_precision, tolerance = 1000.0, batch)]
    pub fn linalg_eigvals(&self) -> Result<Tensor> {
        if crate::autograd::is_grad_enabled() && self.requires_grad() {
            return Ok(recorded("linalg_eigvals", self)?.0);
        }
        Ok(eigen("linalg_eigvals", &self.detach(), false)?.0)
    }
}

/// Eigenvalues and eigenvectors with their derivatives. That of an eigenvector leaves its phase unchanged.
#[track_caller]
fn recorded(op: &'static str, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (w, v) = eigen(op, &x.detach(), true)?;
    let Some(v) = v else { return Ok((w.clone(), w)) };
    let [w, v] = Tensor::record_joint([w, v], op, &[x], |save| {
        let (w, v) = (save.save_output_at(0), save.save_output_at(1));
        move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
            let (w, v) = (ctx.output_at(0, &w)?, ctx.output_at(1, &v)?);
            let vh = mh(&v)?;
            let mut inner = match &cotangents[0] {
                Some(g) => diag_embed(g)?,
                None => diag_embed(&w.zeros_like()?)?,
            };
            if let Some(g) = &cotangents[1] {
                let along = vh.matmul(g)?;
                let own = crate::ops::linalg::common::diag(&along)?.real()?.unsqueeze(-2)?;
                // The length stays 1.
                let free = along.sub(&vh.matmul(&v.mul(&own)?)?)?;
                let part = free.div(&gaps(op, &w, "eigenvectors")?.conj()?)?;
                let mask = diagonal_mask(w.shape()[w.rank() - 1], &w)?;
                inner = inner.add(&part.masked_fill(&mask, 0)?)?;
            }
            Ok(smallvec![Some(vh.linalg_solve(&inner.matmul(&vh)?)?)])
        }
    })?;
    Ok((w, v))
}

fn eig_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in [&[3, 3][..], &[1, 1], &[2, 4, 4], &[5, 5], &[0, 2, 2], &[0, 0]] {
        all.push(sample![regular(shape, 1)?]);
    }
    all.push(sample![normal([6, 6], 3)?]);
    all.push(sample![complex_spread(&[3, 3])?.add(&regular(&[3, 3], 2)?)?]);
    Ok(all)
}

fn eig_errors() -> Result<Vec<ErrorCase>> {
    let mut all = square_errors()?;
    all.push(error!["NaN", "not finite"; sample![Tensor::full_with([2, 2], f64::NAN, DType::F64)?]]);
    Ok(all)
}
