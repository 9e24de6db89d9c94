//! The dynamic graph: the engine, gradients, and what is built on them.

mod checkpoint;
mod dot;
mod engine;
mod function;
mod gradcheck;
mod gradients;
mod hooks;
mod modes;
mod threads;
mod transforms;

use cotangent::{DType, Error, Generator, Result, Shape, Tensor};

/// A leaf of these numbers, as `f64`.
fn leaf<const N: usize>(numbers: [f64; N]) -> Result<Tensor> {
    constant(numbers)?.requires_grad_(true)
}

/// A constant of these numbers, as `f64`.
fn constant<const N: usize>(numbers: [f64; N]) -> Result<Tensor> {
    Tensor::from_slice(&numbers, [N])
}

/// A 0-d leaf.
fn scalar(number: f64) -> Result<Tensor> {
    Tensor::from_slice(&[number], ())?.requires_grad_(true)
}

/// Random `f64` numbers, the same for the same seed.
fn normal(seed: u64, shape: impl Into<Shape>) -> Result<Tensor> {
    Generator::seed(seed).randn_with(shape, DType::F64)
}

/// The gradient stored in a leaf, which must exist, as `f64`.
fn grad_of(x: &Tensor) -> Result<Vec<f64>> {
    let grad = x.grad();
    assert!(grad.is_some(), "there is no gradient");
    grad.map_or(Ok(Vec::new()), |grad| {
        assert_eq!((grad.shape(), grad.dtype()), (x.shape(), x.dtype()), "a gradient has its tensor's shape and dtype");
        grad.to_dtype(DType::F64)?.to_vec()
    })
}

/// The bits of a tensor's elements, so that -0 differs from 0 and NaN equals itself.
fn bits(x: &Tensor) -> Result<Vec<u64>> {
    Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().map(f64::to_bits).collect())
}

/// Checks that a call fails, that the message contains all of `parts`, and that the error has a line of these tests.
#[track_caller]
fn refused<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err();
    let location = error.as_ref().and_then(Error::location).map_or_else(|| "nowhere".to_string(), ToString::to_string);
    let message = error.map_or_else(|| "no error".to_string(), |error| error.to_string());
    assert!(location.contains("tests/core/autograd/"), "{message:?} is from {location}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in the message {message:?}");
    }
}
