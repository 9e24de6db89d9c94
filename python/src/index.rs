//! Indexing with brackets, as in NumPy.

use crate::args::{self, type_name};
use crate::error::OrRaise;
use crate::tensor::{PyTensor, SMALL};
use crate::views::Step;
use crate::{data, number};
use cotangent::{
    DType, Tensor,
    arguments::{Index, IndexItem, Operand},
};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

/// An index, and whether it gives a view.
struct Key {
    items: Vec<IndexItem>,
    basic: bool,
    /// A single bool, which selects all or nothing.
    whole: Option<bool>,
}

fn key(value: &Bound<'_, PyAny>, device_of: Option<&Tensor>) -> PyResult<Key> {
    let mut key = Key { items: Vec::with_capacity(1), basic: true, whole: None };
    match value.cast::<PyTuple>() {
        Ok(tuple) => {
            for item in tuple.iter() {
                key.push(&item, device_of)?;
            }
            if key.whole.is_some() && tuple.len() > 1 {
                return Err(PyIndexError::new_err("a single bool cannot be combined with other indices"));
            }
        }
        Err(_) => key.push(value, device_of)?,
    }
    Ok(key)
}

impl Key {
    fn push(&mut self, item: &Bound<'_, PyAny>, device_of: Option<&Tensor>) -> PyResult<()> {
        if item.is_exact_instance_of::<PyInt>() {
            let at = args::integer(item)?.unwrap_or_default();
            self.items.push(IndexItem::At(at));
        } else if let Ok(slice) = item.cast::<PySlice>() {
            self.items.push(IndexItem::Slice(args::slice(slice)?));
        } else if item.is_none() {
            self.items.push(IndexItem::NewDim);
        } else if item.is_instance_of::<PyEllipsis>() {
            self.items.push(IndexItem::Ellipsis);
        } else if let Ok(flag) = item.cast::<PyBool>() {
            self.whole = Some(flag.is_true());
        } else if let Ok(tensor) = item.cast::<PyTensor>() {
            self.push_tensor(tensor.get().get()?)?;
        } else if let Some(at) = args::integer(item)? {
            self.items.push(IndexItem::At(at));
        } else if args::items(item).is_some() || item.hasattr("__array_interface__")? {
            let mut tensor = data::tensor(item, data::Options::default())?;
            if tensor.numel() == 0 && !tensor.dtype().is_int() && tensor.dtype() != DType::Bool {
                tensor = tensor.to_dtype(DType::I64).or_raise()?;
            }
            if let Some(x) = device_of {
                tensor = tensor.to_device(x.device()).or_raise()?;
            }
            self.push_tensor(tensor)?;
        } else {
            return Err(PyIndexError::new_err(format!(
                "indices must be ints, slices, None, ... or arrays of ints or bools, got {}",
                type_name(item)
            )));
        }
        Ok(())
    }

    fn push_tensor(&mut self, tensor: Tensor) -> PyResult<()> {
        match (tensor.rank(), tensor.dtype()) {
            (0, DType::Bool) => self.whole = Some(tensor.item::<bool>().or_raise()?),
            (0, dtype) if dtype.is_int() => {
                let at = tensor.to_dtype(DType::I64).and_then(|x| x.item::<i64>()).or_raise()?;
                self.items.push(IndexItem::At(at as isize));
            }
            (_, dtype) if !dtype.is_int() && dtype != DType::Bool => {
                let name = crate::dtype::name(dtype);
                return Err(PyIndexError::new_err(format!("indices must be integers or bools, got {name}")));
            }
            _ => {
                self.items.push(IndexItem::Tensor(tensor));
                self.basic = false;
            }
        }
        Ok(())
    }
}

/// An index for an operation that takes one.
pub fn plain(value: &Bound<'_, PyAny>) -> PyResult<Index> {
    let value = match value.cast::<pyo3::types::PyList>() {
        // PyTorch's `index_put` takes a tuple or a list of tensors.
        Ok(list) => &list.to_tuple().into_any(),
        Err(_) => value,
    };
    let key = key(value, None)?;
    if key.whole.is_some() {
        return Err(PyIndexError::new_err("a single bool is not supported as an index here"));
    }
    Ok(Index::new(key.items))
}

/// `x[key]`.
pub fn read(slf: &Bound<'_, PyTensor>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
    let (py, x) = (slf.py(), slf.get().get()?);
    let Key { items, basic, whole } = key(value, Some(&x))?;
    if let Some(all) = whole {
        let kept = x.unsqueeze(0).and_then(|x| x.slice(0, ..usize::from(all))?.deep_clone());
        return PyTensor::result(py, kept.or_raise()?);
    }
    let index = Index::new(items);
    if basic {
        let part = x.index(index.clone()).or_raise()?;
        return PyTensor::view(slf, part, Step::Index(index));
    }
    let part = py.detach(|| x.index(index)).or_raise()?;
    PyTensor::result(py, part)
}

/// `x[at]` along the first dimension.
pub fn element(slf: &Bound<'_, PyTensor>, at: isize) -> PyResult<Py<PyTensor>> {
    let part = slf.get().get()?.index(at).or_raise()?;
    PyTensor::view(slf, part, Step::Index(Index::from(at)))
}

/// `x[key] = value`.
pub fn write(slf: &Bound<'_, PyTensor>, place: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, x) = (slf.py(), slf.get().get()?);
    let Key { mut items, whole, .. } = key(place, Some(&x))?;
    match whole {
        Some(false) => return Ok(()),
        Some(true) => items = vec![IndexItem::Ellipsis],
        None => {}
    }
    let (index, large) = (Index::new(items), x.numel() > SMALL);
    let (dtype, device) = (x.dtype(), x.device());
    // No other handle may hold the bytes while they are written, else they are copied.
    drop(x);
    let value = if let Ok(tensor) = value.cast::<PyTensor>() {
        let tensor = tensor.get().get()?;
        if tensor.dtype().is_complex() && !dtype.is_complex() {
            return Err(PyTypeError::new_err("cannot assign complex numbers to a real tensor"));
        }
        Operand::Owned(tensor)
    } else if let Some(number) = number::scalar(value)? {
        Operand::Scalar(number)
    } else {
        Operand::Owned(data::tensor(value, data::Options { dtype: Some(dtype), device: Some(device) })?)
    };
    let set = |x: &mut Tensor| x.set(index, value);
    let own = slf.get();
    if large { py.detach(|| own.modify(set)) } else { own.modify(set) }
}
