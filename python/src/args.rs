//! Conversion of Python values to arguments of operations.

use crate::tensor::PyTensor;
use crate::{dtype, index, number};
use cotangent::ops::{Arg, ArgKind};
use cotangent::{Scalar, arguments::Slice};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PySequence, PySlice, PyString, PyTuple};

/// An argument of the wrong type.
pub struct Fault<'a, 'py> {
    pub op: &'a str,
    pub name: &'a str,
    pub wanted: &'a str,
    pub given: &'a Bound<'py, PyAny>,
}

impl From<Fault<'_, '_>> for PyErr {
    fn from(fault: Fault<'_, '_>) -> PyErr {
        let Fault { op, name, wanted, given } = fault;
        let given = match given.cast::<PyString>() {
            Ok(text) => format!("{:?}", text.to_string()),
            Err(_) => type_name(given),
        };
        PyTypeError::new_err(format!("{op}: {name} must be {wanted}, got {given}"))
    }
}

/// The type of a value for messages that end in `got ..`.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    if value.is_none() {
        return "None".to_string();
    }
    let class = value.get_type();
    let name = class.name().map_or_else(|_| "an unknown type".to_string(), |name| name.to_string());
    match class.module() {
        Ok(module) if module == "numpy" => {
            format!("a numpy.{name}: cotangent.asarray makes a tensor of it")
        }
        _ => format!("a value of type {name}"),
    }
}

/// The name of a kind in messages.
pub fn wanted(kind: ArgKind) -> String {
    match kind {
        ArgKind::Tensor => "a Tensor".into(),
        ArgKind::Tensors => "a sequence of Tensors".into(),
        ArgKind::Operand => "a Tensor or a number".into(),
        ArgKind::Scalar => "a number".into(),
        ArgKind::Int => "an int".into(),
        ArgKind::Float => "a float".into(),
        ArgKind::Bool => "a bool".into(),
        ArgKind::Dim => "a dimension, an int".into(),
        ArgKind::Dims => "a dimension or several, ints".into(),
        ArgKind::Sizes | ArgKind::Ints => "an int or a sequence of ints".into(),
        ArgKind::Floats => "a number or a sequence of numbers".into(),
        ArgKind::Slice => "a slice".into(),
        ArgKind::DType => "a dtype".into(),
        ArgKind::Device => "a device".into(),
        ArgKind::Choice(words) => format!("one of {}", words.join(", ")),
        ArgKind::Text => "a str".into(),
        _ => kind.to_string(),
    }
}

/// The type of a parameter in stubs.
pub fn annotation(kind: ArgKind) -> String {
    match kind {
        ArgKind::Tensor => "Tensor".into(),
        ArgKind::Tensors => "Sequence[Tensor]".into(),
        ArgKind::Operand => "Tensor | Number".into(),
        ArgKind::Scalar => "Number".into(),
        ArgKind::Int | ArgKind::Dim => "SupportsIndex".into(),
        ArgKind::Float => "float".into(),
        ArgKind::Bool => "builtins.bool".into(),
        ArgKind::Dims | ArgKind::Sizes | ArgKind::Ints => "SupportsIndex | Sequence[SupportsIndex]".into(),
        ArgKind::Floats => "float | Sequence[float]".into(),
        ArgKind::Slice => "slice".into(),
        ArgKind::DType => "DTypeLike".into(),
        ArgKind::Device => "DeviceLike".into(),
        ArgKind::Choice(words) => {
            format!("Literal[{}]", words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", "))
        }
        ArgKind::Text => "str".into(),
        _ => "Any".into(),
    }
}

/// Converts a value for a parameter. `None` stands for the default.
pub fn convert(op: &str, name: &str, kind: ArgKind, value: &Bound<'_, PyAny>) -> PyResult<Arg> {
    let fault = || PyErr::from(Fault { op, name, wanted: &wanted(kind), given: value });
    if value.is_none() {
        return Ok(Arg::None);
    }
    Ok(match kind {
        ArgKind::Tensor | ArgKind::Operand | ArgKind::Scalar | ArgKind::Float => match value.cast::<PyTensor>() {
            Ok(tensor) => Arg::Tensor(tensor.get().get()?),
            Err(_) => Arg::Scalar(number::scalar(value)?.ok_or_else(fault)?),
        },
        ArgKind::Tensors => {
            let all = items(value).ok_or_else(fault)?;
            let tensor = |item: &Bound<'_, PyAny>| match item.cast::<PyTensor>() {
                Ok(tensor) => tensor.get().get(),
                Err(_) => Err(fault()),
            };
            Arg::Tensors(all.iter().map(tensor).collect::<PyResult<_>>()?)
        }
        ArgKind::Int | ArgKind::Dim => Arg::Scalar(Scalar::I64(integer(value)?.ok_or_else(fault)? as i64)),
        ArgKind::Dims | ArgKind::Sizes | ArgKind::Ints => match (integer(value)?, value.cast::<PyTensor>()) {
            // One number is not always a list of one: `tensor_split(x, 3)` makes three parts.
            (Some(one), _) => Arg::from(one),
            (None, Ok(tensor)) => Arg::Tensor(tensor.get().get()?),
            // A convolution's padding may be a word.
            (None, Err(_)) if value.is_instance_of::<PyString>() => Arg::Text(value.to_string()),
            // An empty tuple of dimensions differs from all dimensions.
            (None, Err(_)) => Arg::Ints(integers(&items(value).ok_or_else(fault)?)?.ok_or_else(fault)?),
        },
        ArgKind::Bool => match value.cast::<PyBool>() {
            Ok(flag) => Arg::from(flag.is_true()),
            Err(_) => match number::scalar(value)? {
                Some(Scalar::Bool(flag)) => Arg::from(flag),
                _ => return Err(fault()),
            },
        },
        ArgKind::Floats => match number::scalar(value)? {
            Some(one) => Arg::Scalar(one),
            None => {
                let all = items(value).ok_or_else(fault)?;
                if all.first().is_some_and(pyo3::types::PyAnyMethods::is_instance_of::<PyTensor>) {
                    return convert(op, name, ArgKind::Tensors, value);
                }
                let float = |item: &Bound<'_, PyAny>| number::scalar(item)?.map(Scalar::to_f64).ok_or_else(fault);
                Arg::Floats(all.iter().map(float).collect::<PyResult<_>>()?)
            }
        },
        ArgKind::Slice => Arg::Slice(slice(value.cast::<PySlice>().map_err(|_| fault())?)?),
        ArgKind::Index => Arg::Index(index::plain(value)?),
        ArgKind::DType => Arg::DType(dtype::extract(value)?),
        ArgKind::Device => Arg::Device(dtype::device(value)?),
        // The order of a norm may be a number, not only a name.
        ArgKind::Choice(words) if words.contains(&"fro") && !value.is_instance_of::<PyString>() => {
            Arg::Scalar(number::scalar(value)?.ok_or_else(fault)?)
        }
        ArgKind::Choice(_) | ArgKind::Text => match value.cast::<PyString>() {
            Ok(text) => Arg::Text(text.to_string()),
            Err(_) => return Err(fault()),
        },
        _ => return Err(fault()),
    })
}

/// The items of a list, a tuple or another sequence except text.
pub fn items<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return Some(tuple.iter().collect());
    }
    if let Ok(list) = value.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    if value.is_instance_of::<PyString>() || value.cast::<PySequence>().is_err() {
        return None;
    }
    value.try_iter().ok()?.collect::<PyResult<_>>().ok()
}

/// An integer or an object with `__index__`, such as NumPy's; too large ones are clamped. A bool is refused, though it is an
/// int in Python: in `x.topk(2, True)` it was meant for another parameter.
pub fn integer(value: &Bound<'_, PyAny>) -> PyResult<Option<isize>> {
    if value.cast::<PyBool>().is_ok() {
        return Ok(None);
    }
    if value.cast::<PyInt>().is_ok()
        && let Ok(x) = value.extract::<isize>()
    {
        return Ok(Some(x));
    }
    // Sequences are the most frequent other values: this avoids raising an exception for them.
    if value.cast::<PyTuple>().is_ok() || value.cast::<PyList>().is_ok() || !value.hasattr("__index__")? {
        return Ok(None);
    }
    let Ok(whole) = value.call_method0("__index__") else { return Ok(None) };
    if let Ok(x) = whole.extract::<isize>() {
        return Ok(Some(x));
    }
    Ok(Some(if whole.lt(0)? { isize::MIN } else { isize::MAX }))
}

fn integers(values: &[Bound<'_, PyAny>]) -> PyResult<Option<Vec<isize>>> {
    let mut all = Vec::with_capacity(values.len());
    for value in values {
        match integer(value)? {
            Some(x) => all.push(x),
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// Converts a Python slice.
pub fn slice(value: &Bound<'_, PySlice>) -> PyResult<Slice> {
    let (mut start, mut stop, mut step) = (0, 0, 0);
    // SAFETY: the object is a slice, and the places that are written live until the call returns.
    let failed = unsafe { ffi::PySlice_Unpack(value.as_ptr(), &raw mut start, &raw mut stop, &raw mut step) } < 0;
    if failed {
        return Err(PyErr::fetch(value.py()));
    }
    // Omitted parts come back as the ends of the range, depending on the sign of the step.
    let (first, last) = if step < 0 { (isize::MAX, isize::MIN) } else { (0, isize::MAX) };
    let given = |part: isize, left_out: isize| (part != left_out).then_some(part);
    Ok(Slice::new(given(start, first), given(stop, last)).step(step))
}
