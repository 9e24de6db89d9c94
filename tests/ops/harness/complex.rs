//! The operations on complex numbers.

use super::call::{Call, LAYOUTS, close, differentiable, parts, relaid};
use super::checks::both;
use super::{for_all_samples, is_differentiable, joined, owned, same_answers, symmetrized, text};
use cotangent::autograd::{GradOptions, grad_with, gradcheck, gradgradcheck};
use cotangent::{DType, Result, Tensor};

/// The tensors of a call on complex numbers, with Hermitian matrices first. Their imaginary parts are small.
fn hermitian(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut tensors = tensors.to_vec();
    let x = tensors[0].real()?;
    let numbers = Tensor::arange_with(0, x.numel() as i64, (DType::F64, x.device()))?.reshape(x.shape())?;
    let imag = numbers.sin()?.mul(0.1)?;
    tensors[0] = x.complex(&imag.sub(&imag.transpose(-2, -1)?)?)?;
    Ok(tensors)
}

/// Operations that support complex numbers have correct derivatives, and the same results in every layout and in lower precision.
#[test]
fn complex_numbers_are_refused_or_right() {
    for_all_samples(
        |_| false,
        |call, sample| {
            let drawn = call.op.random || call.op.reads_layout;
            if drawn
                || call.tensors().iter().all(|x| x.dtype() != DType::F64)
                || call.tensors().iter().any(|x| x.dtype().is_complex())
            {
                return Ok(false);
            }
            let mut complex = text(call.made_complex())?;
            if sample.is_symmetric() {
                complex = text(complex.with(&text(hermitian(&owned(&complex)))?))?;
            }
            let results = match complex.run() {
                Ok(results) => results,
                Err(error) if error.to_string().contains("c128") => return Ok(false),
                Err(error) => return Err(format!("refused without the dtype: {error}")),
            };
            if text(is_differentiable(&complex))? {
                text(gradcheck(|x| joined(&complex, &symmetrized(sample, x)?), &owned(&complex)))?;
                text(gradgradcheck(|x| joined(&complex, &symmetrized(sample, x)?), &owned(&complex)))?;
            }
            for layout in 0..LAYOUTS {
                let other = text(complex.map(|x| relaid(x, layout)))?;
                same_answers(&other, &complex, 1e-11 * call.op.tolerance)
                    .map_err(|e| format!("layout {layout}: {e}"))?;
            }
            let single = text(text(complex.cast(DType::F32))?.run())?;
            for (result, expected) in both(&single, &results) {
                let wide = |x: &Tensor| parts(x)?.to_dtype(DType::F64);
                if !text(close(&text(wide(result))?, &text(wide(expected))?, 2e-5 * call.op.tolerance))? {
                    return Err(format!("in c64: {result:?} instead of {expected:?}"));
                }
            }
            Ok(true)
        },
    );
}

/// A number of each result and gradient, of first and second order, that changes with every element.
fn weighed(tensors: &[Tensor]) -> Result<Option<Tensor>> {
    let mut total: Option<Tensor> = None;
    for x in tensors.iter().filter(|x| differentiable(x)) {
        let x = parts(x)?.to_dtype(DType::F64)?.flatten(0, -1)?;
        let weights = Tensor::arange_with(0, x.numel() as i64, (DType::F64, x.device()))?.add(1.0)?.mul(0.7)?.sin()?;
        let sum = x.mul(&weights)?.sum(..)?;
        total = Some(match total {
            Some(total) => total.add(&sum)?,
            None => sum,
        });
    }
    Ok(total)
}

/// The gradients of the call, of first and of second order where there is one.
fn slopes(call: &Call) -> Result<Vec<Tensor>> {
    let leaf = |x: &Tensor| if differentiable(x) { x.detach().requires_grad_(true) } else { Ok(x.clone()) };
    let call = call.map(leaf)?;
    let leaves: Vec<&Tensor> = call.tensors().into_iter().filter(|x| x.requires_grad()).collect();
    let mut found = Vec::new();
    let mut of = call.run()?;
    for _ in 0..2 {
        let Some(y) = weighed(&of)?.filter(Tensor::requires_grad) else { break };
        of = grad_with(&y, &leaves, GradOptions::new().create_graph(true))?.into_iter().flatten().collect();
        found.extend(of.iter().map(Tensor::detach));
    }
    Ok(found)
}

/// The derivatives on the real and the imaginary axis are those of nearby numbers. On the axes formulas of the parts select between
/// cases, for the sign of a zero, and the derivative must not be that of a case.
#[test]
fn derivatives_on_the_axes_are_those_near_them() {
    for_all_samples(
        |_| false,
        |call, sample| {
            let tensors = call.tensors();
            if call.op.random
                || call.op.reads_layout
                || sample.is_symmetric()
                || tensors.iter().all(|x| x.dtype() != DType::F64)
                || tensors.iter().any(|x| x.dtype().is_complex())
            {
                return Ok(false);
            }
            for (axis, im) in [("real", false), ("imaginary", true)] {
                let at = |off: f64| {
                    call.map(|x| {
                        if !x.dtype().is_float() {
                            return Ok(x.clone());
                        }
                        let other = x.zeros_like()?.add(off)?;
                        if im { other.complex(x) } else { x.complex(&other) }
                    })
                };
                let (on, near) = (text(at(0.0))?, text(at(1e-10))?);
                let Ok(values) = on.run() else { return Ok(false) };
                if !text(is_differentiable(&on))? {
                    return Ok(false);
                }
                // Eigenvalues have no order, and the signs of a factorization are those of a convention: these may jump.
                for (value, other) in both(&values, &text(near.run())?) {
                    if !text(close(value, other, 1e-6))? {
                        assert!(call.op.name.starts_with("linalg_"), "{} jumps at the {axis} axis", call.op.name);
                        return Ok(false);
                    }
                }
                let (on, near) = (text(slopes(&on))?, text(slopes(&near))?);
                if on.len() != near.len() {
                    return Err(format!("{} gradients instead of {}", on.len(), near.len()));
                }
                for (on, near) in both(on.iter(), &near) {
                    if !text(close(on, near, 1e-4))? {
                        return Err(format!("on the {axis} axis a gradient of {on:?} instead of {near:?}"));
                    }
                }
            }
            Ok(true)
        },
    );
}
