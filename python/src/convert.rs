//! Conversion of tensors to Python numbers, lists and bytes.

use crate::error::OrRaise;
use crate::number;
use cotangent::{Complex, DType, Device, Element, Scalar, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// The element of a tensor with one element.
pub fn item(x: &Tensor) -> PyResult<Scalar> {
    if x.numel() != 1 {
        let text = format!("item: a tensor of shape {:?} must have one element, got {}", x.shape(), x.numel());
        return Err(PyValueError::new_err(text));
    }
    x.at(&vec![0; x.rank()]).or_raise()
}

/// The elements as nested lists.
pub fn to_list(py: Python<'_>, x: &Tensor) -> PyResult<Py<PyAny>> {
    if x.rank() == 0 {
        return number::object(py, item(x)?);
    }
    fn objects<T: Element>(py: Python<'_>, x: &Tensor, make: fn(T) -> Scalar) -> PyResult<Vec<Py<PyAny>>> {
        let elements = py.detach(|| x.to_dtype(T::DTYPE)?.to_vec::<T>()).or_raise()?;
        elements.into_iter().map(|element| number::object(py, make(element))).collect()
    }
    let x = &x.detach();
    let mut items = match x.dtype() {
        DType::Bool => objects::<bool>(py, x, Scalar::Bool)?,
        DType::U64 => objects::<u64>(py, x, Scalar::U64)?,
        DType::C64 | DType::C128 => objects::<Complex<f64>>(py, x, Scalar::C128)?,
        dtype if dtype.is_float() => objects::<f64>(py, x, Scalar::F64)?,
        _ => objects::<i64>(py, x, Scalar::I64)?,
    };
    // From the last dimension to the first, each group of `size` objects becomes a list.
    for (dim, &size) in x.shape().iter().enumerate().rev() {
        let count: usize = x.shape()[..dim].iter().product();
        let mut objects = items.into_iter();
        items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(PyList::new(py, objects.by_ref().take(size).collect::<Vec<_>>())?.into_any().unbind());
        }
    }
    items.pop().ok_or_else(|| PyValueError::new_err("tolist: nothing to list"))
}

/// The elements in row-major order as bytes.
pub fn to_bytes<'py>(py: Python<'py>, x: &Tensor) -> PyResult<Bound<'py, PyBytes>> {
    let whole = py.detach(|| x.detach().to_device(Device::Cpu)?.contiguous()).or_raise()?;
    let bytes = whole.numel() * whole.dtype().size();
    if bytes == 0 {
        return Ok(PyBytes::new(py, &[]));
    }
    let start = whole.data_ptr().or_raise()?;
    // SAFETY: a contiguous tensor on the CPU has this many initialised bytes from its first element on, which are not
    // changed while the handle lives.
    Ok(PyBytes::new(py, unsafe { std::slice::from_raw_parts(start, bytes) }))
}
