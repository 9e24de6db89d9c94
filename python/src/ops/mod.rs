//! Functions and methods for the operations of the list, made when the module is imported.
//!
//! Each is a built-in function with a docstring and a signature. All calls arrive at one function, `call`, with the index of
//! the operation in the list.

mod bind;
mod convention;
mod entry;

use crate::error::{self, OrRaise};
use crate::tensor::{PyTensor, SMALL};
use crate::views::Step;
use crate::{args, dtype};
use bind::{Bindings, bind, extras};
use convention::{CHANGES, FUNCTIONS, Function, Given, METHODS};
use cotangent::ops::Arg;
use cotangent::{DType, Tensor};
use entry::{ENTRIES, Entry};
pub use entry::{docs, entry, python};
use pyo3::Borrowed;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;

/// Whether a call may take long, so that it should release the interpreter.
fn is_long(args: &[Arg]) -> bool {
    let mut any = false;
    for arg in args {
        match arg {
            Arg::Tensor(x) if x.numel() > SMALL => return true,
            Arg::Tensors(all) if all.iter().any(|x| x.numel() > SMALL) => return true,
            Arg::Tensor(_) | Arg::Tensors(_) => any = true,
            _ => {}
        }
    }
    !any
}

fn run(py: Python<'_>, entry: &Entry, args: &[Arg]) -> PyResult<Vec<Tensor>> {
    let run = || if is_long(args) { py.detach(|| entry.op.call(args)) } else { entry.op.call(args) };
    error::placed(py, run).or_raise()
}

/// For an operation that gave floats for integers, its arguments in the default float dtype; else `None`.
fn of_integers(entry: &Entry, args: &[Arg], results: &[Tensor], default: DType) -> PyResult<Option<Vec<Arg>>> {
    let floats = results.iter().any(|x| matches!(x.dtype(), DType::F32 | DType::C64));
    let named = args.iter().any(|arg| matches!(arg, Arg::DType(_) | Arg::Tensors(_)));
    let tensors = || args.iter().filter_map(|arg| if let Arg::Tensor(x) = arg { Some(x) } else { None });
    let whole = |x: &Tensor| !x.dtype().is_float() && !x.dtype().is_complex();
    if !floats || named || entry.op.random || tensors().next().is_none() || !tensors().all(whole) {
        return Ok(None);
    }
    let condition = entry.op.name == "where";
    let wider = |(at, arg): (usize, &Arg)| match arg {
        Arg::Tensor(_) if condition && at == 0 => Ok(arg.clone()),
        Arg::Scalar(number) if condition => Tensor::full_with((), *number, default).or_raise().map(Arg::Tensor),
        Arg::Tensor(x) => x.to_dtype(default).or_raise().map(Arg::Tensor),
        other => Ok(other.clone()),
    };
    args.iter().enumerate().map(wider).collect::<PyResult<_>>().map(Some)
}

fn call(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    let result = match extras(py, number, given)? {
        None => call_plain(py, number, given),
        Some(extras) => extras.run(py, given, |given| call_plain(py, number, given)),
    };
    match result {
        Err(fault) if fault.is_instance_of::<PyTypeError>(py) => by_another_class(py, number, given, fault),
        result => result,
    }
}

/// Dispatches to `_operation(name, args, kwargs)` of a Python class, as that of sparse tensors, if one of the arguments has
/// such a class.
#[cold]
fn by_another_class(py: Python<'_>, number: usize, given: &Given<'_>, fault: PyErr) -> PyResult<Py<PyAny>> {
    // SAFETY: the interpreter's objects live as long as the call.
    let object = |pointer: *mut ffi::PyObject| unsafe { Borrowed::from_ptr(py, pointer) };
    let args: Vec<_> = given.own.iter().chain(given.args).map(|&pointer| object(pointer).to_owned()).collect();
    let named: Vec<_> = given.named.iter().map(|&pointer| object(pointer).to_owned()).collect();
    let rule = args.iter().chain(&named).find_map(|value| {
        let other = !value.is_instance_of::<PyTensor>() && !value.is_none();
        other.then(|| value.get_type().getattr("_operation").ok()).flatten()
    });
    let Some(rule) = rule else { return Err(fault) };
    let kwargs = PyDict::new(py);
    if !given.names.is_null() {
        for (name, value) in object(given.names).cast::<PyTuple>()?.iter().zip(named) {
            kwargs.set_item(name, value)?;
        }
    }
    Ok(rule.call1((entry(number).op.name, PyTuple::new(py, args)?, kwargs))?.unbind())
}

fn change(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    match extras(py, number, given)? {
        None => change_plain(py, number, given),
        Some(extras) => extras.run(py, given, |given| change_plain(py, number, given)),
    }
}

fn call_plain(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    let entry = entry(number);
    let Bindings { mut args, first } = bind(py, entry, given)?;
    let mut results = run(py, entry, &args)?;
    if let Some(default) = dtype::other_default()
        && let Some(wider) = of_integers(entry, &args, &results, default)?
    {
        args = wider;
        results = run(py, entry, &args)?;
    }
    let single = !matches!(entry.op.outputs, [name] if *name == "tensors") && entry.op.outputs.len() == 1;
    let base = first.filter(|_| entry.shows || entry.returns).zip(match args.first() {
        Some(Arg::Tensor(x)) => Some(x.clone()),
        _ => None,
    });
    if base.is_some() {
        args[0] = Arg::None;
    }
    let mut object = |output: usize, result: Tensor| match &base {
        Some((first, x)) if entry.returns && result.is_same(x) => Ok(first.clone().unbind()),
        Some((first, x)) if entry.shows && result.shares_memory(x) => {
            // A single result takes the arguments without a copy.
            let args = if single { std::mem::take(&mut args) } else { args.clone() };
            PyTensor::view(first, result, Step::Op { number, args, output })
        }
        Some((first, x)) if entry.inverts && x.dtype().is_complex() => {
            PyTensor::view(first, result, Step::Inverse { number })
        }
        _ if entry.copies && !result.is_contiguous() => PyTensor::result(py, result.contiguous().or_raise()?),
        _ => PyTensor::result(py, result),
    };
    if single {
        let Some(result) = results.pop() else { return Ok(py.None()) };
        if entry.op.name == "allclose" {
            return Ok(result.item::<bool>().or_raise()?.into_pyobject(py)?.to_owned().into_any().unbind());
        }
        return Ok(object(0, result)?.into_any());
    }
    // PyTorch's `unique` returns one tensor unless more are requested.
    let asked = entry.params.iter().any(|param| param.name == "return_inverse");
    if asked
        && results.len() == 1
        && let Some(only) = results.pop()
    {
        return Ok(object(0, only)?.into_any());
    }
    let objects = results.into_iter().enumerate().map(|(at, result)| object(at, result));
    let objects = PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)?;
    if entry.op.outputs == ["tensors"] {
        return Ok(objects.into_any().unbind());
    }
    let class = entry.class.get_or_try_init(py, || named_tuple(py, entry.op.name, entry.op.outputs))?;
    Ok(class.bind(py).call1(objects)?.unbind())
}

/// PyTorch's name of a result: matrices are capitals.
fn field(name: &str) -> &str {
    const MATRICES: [(&str, &str); 11] = [
        ("p", "P"),
        ("l", "L"),
        ("u", "U"),
        ("lu", "LU"),
        ("ld", "LD"),
        ("q", "Q"),
        ("r", "R"),
        ("s", "S"),
        ("v", "V"),
        ("vh", "Vh"),
        ("h", "H"),
    ];
    MATRICES.iter().find(|(own, _)| *own == name).map_or(name, |(_, matrix)| matrix)
}

/// The named tuple of several results.
pub fn named_tuple(py: Python<'_>, name: &str, fields: &[&str]) -> PyResult<Py<PyAny>> {
    let fields = PyList::new(py, fields.iter().map(|name| field(name)))?;
    let options = PyDict::new(py);
    options.set_item("module", "cotangent")?;
    Ok(py.import("collections")?.getattr("namedtuple")?.call((name, fields), Some(&options))?.unbind())
}

fn change_plain(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Py<PyAny>> {
    let entry = entry(number);
    let Bindings { mut args, first } = bind(py, entry, given)?;
    let (Some(first), Some(name)) = (first, entry.in_place) else {
        return Err(PyTypeError::new_err(format!("{} has no in-place form", entry.op.name)));
    };
    let long = is_long(&args);
    // Only the variable may hold the value while it is changed, else it is copied.
    args[0] = Arg::None;
    let object = first.get();
    let change = |x: &mut Tensor| {
        x.change(name, |x| {
            args[0] = Arg::from(x);
            entry.op.call(&args).map(|mut results| results.swap_remove(0))
        })
    };
    if long {
        py.detach(|| object.modify(change))?;
    } else {
        object.modify(change)?;
    }
    Ok(first.into_any().unbind())
}

/// The definition of a built-in function, which lives as long as the process.
fn definition(name: &str, text: &str, function: Function) -> PyResult<*mut ffi::PyMethodDef> {
    let name = CString::new(name)?.into_raw();
    let text = CString::new(text.replace('\0', ""))?.into_raw();
    let meth = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function };
    let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    Ok(Box::into_raw(Box::new(ffi::PyMethodDef { ml_name: name, ml_meth: meth, ml_flags: flags, ml_doc: text })))
}

/// The names of an operation in Python.
fn names(entry: &'static Entry) -> impl Iterator<Item = &'static str> {
    let names = std::iter::once(entry.op.name).chain(entry.op.aliases.iter().copied());
    let own = move |name: &&str| match entry.alias {
        Some(alias) => *name == alias,
        None => *name == entry.op.name || !(entry::is_copy(name) || name.starts_with("__")),
    };
    names.filter(own)
}

/// Attributes that the class defines: properties, and methods that differ from the operation.
const OWN: [&str; 4] = ["to", "T", "mH", "H"];

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = py.get_type::<PyTensor>();
    let functions = PyDict::new(py);
    if ENTRIES.len() > 1024 {
        return Err(PyRuntimeError::new_err("there are more operations than functions for them"));
    }
    for (number, entry) in ENTRIES.iter().enumerate() {
        let docs = entry.docs();
        let (row, column) = (number / 16, number % 16);
        for name in names(entry) {
            let text = format!("{name}{}\n--\n\n{docs}", entry.signature(false));
            let made = definition(name, &text, FUNCTIONS[row][column])?;
            // SAFETY: the definition lives as long as the process; the name of the module is kept by the function.
            let made = unsafe {
                let home = pyo3::types::PyString::new(py, "cotangent");
                Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(made, std::ptr::null_mut(), home.as_ptr()))?
            };
            functions.set_item(name, made)?;
            if !entry.is_method() || OWN.contains(&name) || class.hasattr(name)? {
                continue;
            }
            let text = format!("{name}{}\n--\n\n{docs}", entry.signature(true));
            add_method(&class, name, &text, METHODS[row][column])?;
            // The method `equal` gives one bool.
            if entry.in_place.is_some() && !name.starts_with("special_") && name != "equal" {
                let (own, docs) = (entry.signature(true), format!("`{name}` in place."));
                add_method(&class, &format!("{name}_"), &format!("{name}_{own}\n--\n\n{docs}"), CHANGES[row][column])?;
            }
        }
    }
    module.add("_functions", functions)?;
    module.add_function(wrap_pyfunction!(_ops, module)?)?;
    #[cfg(feature = "samples")]
    module.add_function(wrap_pyfunction!(_samples, module)?)?;
    Ok(())
}

fn add_method(class: &Bound<'_, pyo3::types::PyType>, name: &str, text: &str, function: Function) -> PyResult<()> {
    let made = definition(name, text, function)?;
    // SAFETY: the definition lives as long as the process, and the class is a type object.
    let method =
        unsafe { Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), made))? };
    class.setattr(name, method)
}

/// The list of operations: for stubs, tables and tests.
#[pyfunction]
fn _ops(py: Python<'_>) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for entry in ENTRIES.iter().filter(|entry| entry.alias.is_none()) {
        let op = PyDict::new(py);
        op.set_item("name", entry.op.name)?;
        op.set_item("aliases", entry.op.aliases)?;
        op.set_item("docs", entry.docs())?;
        op.set_item("outputs", PyList::new(py, entry.op.outputs.iter().map(|name| field(name)))?)?;
        op.set_item("view", entry.op.view)?;
        op.set_item("random", entry.op.random)?;
        op.set_item("derivative", format!("{:?}", entry.op.derivative).to_lowercase())?;
        op.set_item("tolerance", entry.op.tolerance)?;
        op.set_item("in_place", entry.in_place.is_some())?;
        let params = PyList::empty(py);
        for param in &entry.params {
            let one = PyDict::new(py);
            one.set_item("name", param.name)?;
            one.set_item("kind", param.kind.to_string())?;
            one.set_item("annotation", args::annotation(param.kind))?;
            one.set_item("default", param.default.map(|default| python(&default())))?;
            one.set_item("spread", param.spread)?;
            params.append(one)?;
        }
        op.set_item("params", params)?;
        all.append(op)?;
    }
    Ok(all.unbind())
}

/// The sample calls of an operation: lists of arguments.
#[cfg(feature = "samples")]
#[pyfunction]
fn _samples(py: Python<'_>, name: &str) -> PyResult<Py<PyList>> {
    let op = cotangent::ops::find(name).ok_or_else(|| PyTypeError::new_err(format!("unknown operation {name}")))?;
    let all = PyList::empty(py);
    for sample in op.samples().or_raise()? {
        let args = PyList::empty(py);
        for arg in sample.bind(op).or_raise()? {
            args.append(object(py, &arg)?)?;
        }
        all.append(args)?;
    }
    Ok(all.unbind())
}

/// An argument as a Python object, or as text if there is none.
pub fn object(py: Python<'_>, arg: &Arg) -> PyResult<Py<PyAny>> {
    Ok(match arg {
        Arg::None => py.None(),
        Arg::Tensor(x) => PyTensor::object(py, x.clone())?.into_any(),
        Arg::Tensors(all) => {
            let all = all.iter().map(|x| PyTensor::object(py, x.clone())).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, all)?.into_any().unbind()
        }
        Arg::Scalar(number) => crate::number::object(py, *number)?,
        Arg::Ints(ints) => PyTuple::new(py, ints)?.into_any().unbind(),
        Arg::Floats(numbers) => PyTuple::new(py, numbers)?.into_any().unbind(),
        Arg::DType(dtype) => crate::dtype::object(py, *dtype)?.into_any(),
        Arg::Device(device) => Py::new(py, crate::dtype::PyDevice(*device))?.into_any(),
        Arg::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        other => format!("{other:?}").into_pyobject(py)?.into_any().unbind(),
    })
}
