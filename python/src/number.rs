//! Python numbers.

use crate::dtype;
use cotangent::{Complex, DType, Scalar};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};

/// A Python or NumPy number; `None` for other objects.
pub fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(x) = object.cast::<PyFloat>() {
        return Ok(Some(Scalar::F64(x.value())));
    }
    if let Ok(x) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(x.is_true())));
    }
    if object.cast::<PyInt>().is_ok() {
        return integer(object).map(Some);
    }
    if let Ok(z) = object.cast::<PyComplex>() {
        return Ok(Some(Scalar::C128(Complex::new(z.real(), z.imag()))));
    }
    numpy_scalar(object)
}

/// An integer of at most 64 bits.
fn integer(object: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    if let Ok(x) = object.extract::<i64>() {
        return Ok(Scalar::I64(x));
    }
    match object.extract::<u64>() {
        Ok(x) => Ok(Scalar::U64(x)),
        Err(_) => Err(PyOverflowError::new_err(format!("integers must have at most 64 bits, got {object}"))),
    }
}

/// A NumPy scalar, converted by `item()`.
fn numpy_scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    let class = object.get_type();
    if !class.module().is_ok_and(|module| module == "numpy")
        || !object.hasattr("dtype")?
        || object.hasattr("__len__")?
    {
        return Ok(None);
    }
    let value = object.call_method0("item")?;
    if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || value.is_instance_of::<PyComplex>() {
        return scalar(&value);
    }
    Ok(None)
}

/// The dtype of a NumPy scalar; `None` for a Python number.
pub fn numpy_dtype(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let exact = object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>();
    if exact || !object.get_type().module().is_ok_and(|module| module == "numpy") {
        return Ok(None);
    }
    dtype::extract(&object.getattr("dtype")?).map(Some)
}

/// The dtype of a number as an operand with a tensor of `dtype`.
pub fn promote_with(number: Scalar, dtype: DType) -> DType {
    match number {
        Scalar::C128(_) if !dtype.is_float() && !dtype.is_complex() => dtype::default_complex(),
        Scalar::C128(_) => dtype.to_complex(),
        Scalar::F64(_) if !dtype.is_float() && !dtype.is_complex() => dtype::default_float(),
        Scalar::I64(_) if dtype == DType::Bool => DType::I64,
        Scalar::U64(_) if dtype == DType::Bool => DType::U64,
        _ => dtype,
    }
}

/// The number as a Python object.
pub fn object(py: Python<'_>, number: Scalar) -> PyResult<Py<PyAny>> {
    Ok(match number {
        Scalar::F64(x) => x.into_pyobject(py)?.into_any().unbind(),
        Scalar::I64(x) => x.into_pyobject(py)?.into_any().unbind(),
        Scalar::U64(x) => x.into_pyobject(py)?.into_any().unbind(),
        Scalar::Bool(x) => PyBool::new(py, x).to_owned().into_any().unbind(),
        Scalar::C128(z) => PyComplex::from_doubles(py, z.re, z.im).into_any().unbind(),
    })
}
