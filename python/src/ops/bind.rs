//! Binds positional and keyword arguments to the parameters of an operation.

use super::convention::Given;
use super::entry::{Entry, Param, entry};
use crate::args::{self, Fault};
use crate::dtype;
use crate::error::OrRaise;
use crate::operators;
use crate::tensor::PyTensor;
use cotangent::ops::{Arg, ArgKind, Numbers};
use cotangent::{DType, Generator, Scalar, Tensor};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// The arguments of a call in order, and the first tensor object.
pub struct Bindings<'py> {
    pub args: Vec<Arg>,
    pub first: Option<Bound<'py, PyTensor>>,
}

/// PyTorch's old order of arguments, `x.add_(2, y)` and `x.addcmul_(2, y, z)`, as `x.add_(y, alpha=2)` and `x.addcmul_(y, z, value=2)`.
fn number_last(op: &str, args: &mut [Option<Arg>]) {
    let count = match op {
        "add" | "sub" => 3,
        "addcmul" | "addcdiv" => 4,
        _ => return,
    };
    let is_old = args.len() == count
        && matches!(args[1], Some(Arg::Scalar(_)))
        && matches!(args[count - 1], Some(Arg::Tensor(_)));
    if is_old {
        args[1..].rotate_left(1);
    }
}

pub fn bind<'py>(py: Python<'py>, entry: &Entry, given: &Given<'_>) -> PyResult<Bindings<'py>> {
    let (op, params) = (entry.op.name, &entry.params);
    let mut args: Vec<Option<Arg>> = Vec::with_capacity(params.len());
    let mut first = None;
    // SAFETY: the interpreter's objects live as long as the call.
    let object = |pointer: *mut ffi::PyObject| unsafe { Borrowed::from_ptr(py, pointer) };
    let mut take = |param: &Param, at: usize, value: &Bound<'py, PyAny>| {
        if at == 0
            && let Ok(tensor) = value.cast::<PyTensor>()
        {
            first = Some(tensor.clone());
        }
        args::convert(op, shown(param.name), param.kind, value)
    };
    if let Some(own) = given.own {
        args.push(Some(take(&params[0], 0, &object(own))?));
    }
    let mut positional = given.args;
    while let Some((&pointer, others)) = positional.split_first() {
        let at = args.len();
        let Some(param) = params.get(at) else {
            let (most, count) = (params.len(), given.args.len() + usize::from(given.own.is_some()));
            return Err(PyTypeError::new_err(format!("{op}() takes at most {most} arguments, {count} were given")));
        };
        let value = object(pointer);
        if param.spread && (!others.is_empty() || param.kind == ArgKind::Tensors) {
            let count = positional.len();
            let single = |&pointer: &*mut ffi::PyObject| {
                let value = object(pointer);
                if param.kind == ArgKind::Tensors {
                    value.is_instance_of::<PyTensor>()
                } else {
                    args::integer(&value).is_ok_and(|x| x.is_some())
                }
            };
            let run = positional.iter().take_while(|&pointer| single(pointer)).count();
            if run > 1 || (run == 1 && param.kind == ArgKind::Tensors) {
                let all = PyTuple::new(py, positional[..run].iter().map(|&pointer| object(pointer)))?;
                args.push(Some(args::convert(op, param.name, param.kind, &all.into_any())?));
                positional = &positional[run.min(count)..];
                continue;
            }
        }
        args.push(Some(take(param, at, &value)?));
        positional = others;
    }
    number_last(op, &mut args);
    args.resize(params.len(), None);
    let mut none_of_them = false;
    if !given.names.is_null() {
        let names = object(given.names);
        let names = names.cast::<PyTuple>()?;
        for (k, name) in names.iter().enumerate() {
            let pointer = given.named[k];
            let name = name.cast::<PyString>()?;
            let name = name.to_str()?;
            let name = name.strip_suffix('_').unwrap_or(name);
            if name == "out" && entry.position(name).is_none() {
                if object(pointer).is_none() {
                    continue;
                }
                return Err(PyTypeError::new_err(format!("{op}() does not support out: use the result")));
            }
            // PyTorch writes some of them in capitals: UPLO.
            let Some(at) = entry.position(name).or_else(|| entry.position(&name.to_ascii_lowercase())) else {
                let known: Vec<&str> = params.iter().map(|param| shown(param.name)).collect();
                return Err(PyTypeError::new_err(format!("{op}() has no parameter {name}, only {}", known.join(", "))));
            };
            if args[at].is_some() {
                return Err(PyTypeError::new_err(format!("{op}() got {name} twice")));
            }
            let arg = take(&params[at], at, &object(pointer))?;
            none_of_them |= name == "axis" && is_empty(&arg);
            args[at] = Some(arg);
        }
    }
    // PyTorch's `dim=()` reduces all dimensions, except for these two.
    if matches!(op, "all" | "any") {
        none_of_them |= entry.position("dim").and_then(|at| args[at].as_ref()).is_some_and(is_empty);
    }
    let made = if entry.makes && !entry.is_method() { default_made(entry, &args) } else { None };
    let fill = |(arg, param): (Option<Arg>, &Param)| match (arg, param.default) {
        (None | Some(Arg::None), Some(default)) => match dtype::default_device() {
            Some(device) if param.kind == ArgKind::Device && entry.makes && !entry.is_method() => {
                Ok(Arg::Device(device))
            }
            _ => match made {
                Some(dtype) if param.kind == ArgKind::DType => Ok(Arg::DType(dtype)),
                _ => Ok(default()),
            },
        },
        (Some(Arg::None), None) if !matches!(param.kind, ArgKind::Dims) => {
            let none = py.None();
            let (name, wanted) = (shown(param.name), &args::wanted(param.kind));
            Err(Fault { op, name, wanted, given: none.bind(py) }.into())
        }
        (Some(arg), _) => Ok(arg),
        (None, None) => Err(PyTypeError::new_err(format!("{op}() is missing the argument {}", shown(param.name)))),
    };
    let mut args = args.into_iter().zip(params).map(fill).collect::<PyResult<Vec<Arg>>>()?;
    // In the standard `axis=()` reduces no dimension.
    if none_of_them
        && entry.position("keepdim").is_some()
        && let (Some(Arg::Tensor(x)), Some(at)) = (args.first(), entry.position("dim"))
    {
        args[0] = Arg::Tensor(x.unsqueeze(0).or_raise()?);
        args[at] = Arg::from(0_isize);
        if let Some(keep) = entry.position("keepdim") {
            args[keep] = Arg::from(false);
        }
    }
    Ok(Bindings { args: numbers_as_tensors(entry, args)?, first })
}

/// The default dtype for a function that creates a tensor of floats, if it is not the crate's default. Functions that create
/// integers, and those whose arguments are integers or tensors, keep theirs.
fn default_made(entry: &Entry, args: &[Option<Arg>]) -> Option<DType> {
    let default = dtype::other_default()?;
    let given = || args.iter().flatten();
    if matches!(entry.op.name, "randint" | "randperm" | "tril_indices" | "triu_indices")
        || given().any(|arg| matches!(arg, Arg::Tensor(_) | Arg::Tensors(_)))
    {
        return None;
    }
    if !matches!(entry.op.name, "full" | "arange") {
        return Some(default);
    }
    // Their dtype is that of the numbers; for `full`, of the last one.
    let mut numbers: Vec<_> =
        given().filter_map(|arg| if let Arg::Scalar(number) = arg { Some(*number) } else { None }).collect();
    if entry.op.name == "full" {
        numbers.drain(..numbers.len().saturating_sub(1));
    }
    if numbers.iter().any(|number| matches!(number, Scalar::C128(_))) {
        Some(dtype::default_complex())
    } else {
        numbers.iter().any(|number| matches!(number, Scalar::F64(_))).then_some(default)
    }
}

fn is_empty(dims: &Arg) -> bool {
    matches!(dims, Arg::Ints(ints) if ints.is_empty())
}

fn shown(name: &'static str) -> &'static str {
    if name == "self" { "input" } else { name }
}

/// Converts numbers in the place of tensors, as in `add(1, x)`, to tensors.
fn numbers_as_tensors(entry: &Entry, mut args: Vec<Arg>) -> PyResult<Vec<Arg>> {
    let is_number = |(arg, param): (&Arg, &Param)| param.kind == ArgKind::Tensor && matches!(arg, Arg::Scalar(_));
    if !args.iter().zip(&entry.params).any(is_number) {
        return Ok(args);
    }
    // A mask, as in `where`, does not determine the dtype if there is another tensor.
    let tensors = || args.iter().filter_map(|arg| if let Arg::Tensor(x) = arg { Some(x) } else { None });
    let Some(other) = tensors().find(|x| x.dtype() != DType::Bool).or(tensors().next()) else {
        return Err(PyTypeError::new_err(format!("{}: at least one argument must be a Tensor", entry.op.name)));
    };
    let mut dtype = if entry.op.in_f64 { DType::F64 } else { other.dtype() };
    // With floats of several dtypes, a number is rounded to the promoted dtype, which is that of the result.
    for other in tensors().map(Tensor::dtype).filter(|other| other.is_float() || other.is_complex()) {
        dtype = dtype.promote(other).or_raise()?;
    }
    let target = (dtype, other.device());
    // Rounded quotients of integers stay integers.
    let rounded =
        entry.position("rounding_mode").is_some_and(|at| matches!(&args[at], Arg::Text(mode) if mode != "none"));
    let rule = if rounded { Numbers::Elements } else { entry.op.numbers };
    for (arg, param) in args.iter_mut().zip(&entry.params) {
        if let (Arg::Scalar(number), ArgKind::Tensor) = (&*arg, param.kind) {
            *arg = Arg::Tensor(operators::as_operand(entry.op.name, *number, target, rule)?);
        }
    }
    Ok(args)
}

/// PyTorch's additional arguments.
pub struct Extras {
    /// The remaining keyword arguments.
    named: Vec<*mut ffi::PyObject>,
    names: Py<PyTuple>,
    requires_grad: bool,
    generator: Option<Py<PyAny>>,
}

/// Whether an argument is accepted without effect: `layout`, `pin_memory` or `memory_format`.
fn is_ignored(entry: &Entry, name: &str) -> bool {
    match name {
        "layout" | "pin_memory" => entry.makes,
        "memory_format" => (entry.makes && entry.is_method()) || entry.op.aliases.contains(&"clone"),
        _ => false,
    }
}

/// Extracts `requires_grad` of functions that create tensors and `generator` of random functions, if there are any.
pub fn extras(py: Python<'_>, number: usize, given: &Given<'_>) -> PyResult<Option<Extras>> {
    if given.names.is_null() {
        return Ok(None);
    }
    let entry = entry(number);
    let makes = entry.makes;
    // Most operations take none of these.
    if !makes && !entry.op.random && !is_ignored(entry, "memory_format") {
        return Ok(None);
    }
    // SAFETY: the interpreter's objects live as long as the call.
    let object = |pointer: *mut ffi::PyObject| unsafe { Borrowed::from_ptr(py, pointer) };
    let is_extra = |name: &str| match name {
        "requires_grad" => makes,
        "generator" => entry.op.random,
        name => is_ignored(entry, name),
    };
    let names = object(given.names);
    let names = names.cast::<PyTuple>()?;
    let names = names.iter().map(|name| name.extract::<String>()).collect::<PyResult<Vec<_>>>()?;
    if !names.iter().any(|name| is_extra(name)) {
        return Ok(None);
    }
    let (mut requires_grad, mut generator, mut kept, mut named) = (false, None, Vec::new(), Vec::new());
    for (name, &pointer) in names.iter().zip(given.named) {
        match name.as_str() {
            "requires_grad" if makes => requires_grad = object(pointer).is_truthy()?,
            "generator" if is_extra(name) => {
                generator =
                    Some(object(pointer)).filter(|value| !value.is_none()).map(|value| value.to_owned().unbind());
            }
            name if is_ignored(entry, name) => {}
            _ => {
                kept.push(name.clone());
                named.push(pointer);
            }
        }
    }
    Ok(Some(Extras { named, names: PyTuple::new(py, kept)?.unbind(), requires_grad, generator }))
}

impl Extras {
    pub fn run(
        self,
        py: Python<'_>,
        given: &Given<'_>,
        f: impl FnOnce(&Given<'_>) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given { own: given.own, args: given.args, named: &self.named, names: self.names.as_ptr() };
        let made = match &self.generator {
            None => f(&given)?,
            Some(object) => {
                let object = object.bind(py);
                let (seed, offset) = object.getattr("_state").and_then(|state| state.extract()).map_err(|_| {
                    PyTypeError::new_err(format!("generator must be a Generator, got {}", args::type_name(object)))
                })?;
                let mut generator = Generator::from_state(seed, offset);
                let made = cotangent::with_generator(&mut generator, || f(&given));
                object.setattr("_state", generator.state())?;
                made?
            }
        };
        if self.requires_grad {
            return made.bind(py).call_method0("requires_grad_").map(Bound::unbind);
        }
        Ok(made)
    }
}
