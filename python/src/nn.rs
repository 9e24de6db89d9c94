//! The layers of the crate's list.
//!
//! A layer here is only the computation. The parameters and buffers are Python variables, passed with each call. They are in
//! the fields of the layer only while it runs, so that no value can be stale.

// Arguments come from the interpreter by value.
#![allow(clippy::needless_pass_by_value)]

use crate::args;
use crate::error::{self, OrRaise};
use crate::ops;
use crate::tensor::{PyTensor, SMALL};
use crate::variables::placeholder;
use cotangent::nn::{self, Buffer, Layer, LayerEntry, PartMut, Visit, Visitor};
use cotangent::ops::Param;
use cotangent::{Result, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The computation of a layer of the list.
#[pyclass(name = "_Layer", module = "cotangent._cotangent", frozen)]
pub struct PyLayer {
    layer: Mutex<Box<dyn Layer>>,
    params: usize,
    buffers: usize,
}

/// The outcome of a call: the result, and the changed buffers with their positions.
type Called = (Tensor, Vec<(usize, Tensor)>);

/// Puts the tensors into the fields of a layer, runs it, and takes them out.
fn call(layer: &mut dyn Layer, x: &Tensor, params: &[Tensor], buffers: &[Tensor], training: bool) -> Result<Called> {
    let nothing = placeholder()?;
    let (mut params, mut given) = (params.iter(), buffers.iter());
    layer.visit_mut(&mut Visitor::new(&mut |_, part| match part {
        PartMut::Param(parameter) => {
            if let Some(value) = params.next() {
                parameter.swap_tensor(value.clone());
            }
        }
        PartMut::Buffer(buffer) => {
            if let Some(value) = given.next() {
                *buffer = Buffer::new(value.clone());
            }
        }
        PartMut::Training(own) => *own = training,
        _ => {}
    }));
    let result = layer.forward(x);
    let (mut changed, mut at) = (Vec::new(), 0);
    layer.visit_mut(&mut Visitor::new(&mut |_, part| match part {
        PartMut::Param(parameter) => {
            parameter.swap_tensor(nothing.clone());
        }
        PartMut::Buffer(buffer) => {
            let value = buffer.get();
            if buffers.get(at).is_some_and(|before| !value.is_same(before)) {
                changed.push((at, value));
            }
            *buffer = Buffer::new(nothing.clone());
            at += 1;
        }
        _ => {}
    }));
    Ok((result?, changed))
}

#[pymethods]
impl PyLayer {
    /// Runs the layer on an input with these parameters and buffers, and updates the buffers.
    fn __call__(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        params: Vec<PyRef<'_, PyTensor>>,
        buffers: Vec<Py<PyTensor>>,
        training: bool,
    ) -> PyResult<Py<PyTensor>> {
        let Ok(object) = x.cast::<PyTensor>() else {
            return Err(PyTypeError::new_err(format!(
                "the input of a layer must be a Tensor, got {}",
                args::type_name(x)
            )));
        };
        let x = object.get().get()?;
        if (params.len(), buffers.len()) != (self.params, self.buffers) {
            return Err(PyValueError::new_err(format!(
                "got {} parameters and {} buffers for a layer with {} and {}",
                params.len(),
                buffers.len(),
                self.params,
                self.buffers
            )));
        }
        let mut long = x.numel() > SMALL;
        let mut tensors = Vec::with_capacity(params.len());
        for param in &params {
            let value = param.get()?;
            long |= value.numel() > SMALL;
            tensors.push(value);
        }
        drop(params);
        let states = buffers.iter().map(|buffer| buffer.get().get()).collect::<PyResult<Vec<_>>>()?;
        let run = |layer: &mut Box<dyn Layer>| call(&mut **layer, &x, &tensors, &states, training);
        let done = error::placed(py, || match self.at_once(long) {
            Some(mut layer) => run(&mut layer),
            None => py.detach(|| run(&mut self.layer.lock().unwrap_or_else(PoisonError::into_inner))),
        });
        let (result, changed) = done.or_raise()?;
        drop((tensors, states));
        for (at, value) in changed {
            buffers[at].get().modify(|own| own.change("update", |_| Ok(value)))?;
        }
        // A layer that returns its input, such as `Identity`, returns the same object.
        if result.is_same(&x) { Ok(object.clone().unbind()) } else { PyTensor::object(py, result) }
    }
}

impl PyLayer {
    /// Locks the layer for a short call. None if another thread holds it: then the interpreter is released first.
    fn at_once(&self, long: bool) -> Option<MutexGuard<'_, Box<dyn Layer>>> {
        if long {
            return None;
        }
        match self.layer.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn find(name: &str) -> PyResult<&'static LayerEntry> {
    let found = nn::list().iter().find(|entry| entry.name == name);
    found.ok_or_else(|| PyValueError::new_err(format!("unknown layer {name}")))
}

/// Builds a layer of the list by name and arguments, with the names and initial values of its parameters and buffers.
#[pyfunction]
fn _build_layer(
    py: Python<'_>,
    name: &str,
    arguments: &Bound<'_, PyDict>,
) -> PyResult<(PyLayer, Py<PyDict>, Py<PyDict>)> {
    let entry = find(name)?;
    let mut named = Vec::with_capacity(arguments.len());
    for (key, value) in arguments {
        let key: String = key.extract()?;
        let Some(param) = entry.params().find(|param| param.name == key) else {
            return Err(PyTypeError::new_err(format!("{name} has no parameter {key}")));
        };
        if !value.is_none() || param.default.is_none() {
            named.push((param.name, args::convert(name, &key, param.kind, &value)?));
        }
    }
    let mut layer = py.detach(|| entry.build(&[], &named)).or_raise()?;
    let (params, buffers) = (PyDict::new(py), PyDict::new(py));
    let nothing = placeholder().or_raise()?;
    let mut done = Ok(());
    layer.visit_mut(&mut Visitor::new(&mut |name, part| {
        let (dict, value) = match part {
            PartMut::Param(parameter) => (&params, parameter.swap_tensor(nothing.clone()).detach()),
            PartMut::Buffer(buffer) => (&buffers, std::mem::replace(buffer, Buffer::new(nothing.clone())).get()),
            _ => return,
        };
        let set = PyTensor::object(py, value).and_then(|object| dict.set_item(name, object));
        if done.is_ok() {
            done = set;
        }
    }));
    done?;
    let layer = PyLayer { layer: Mutex::new(layer), params: params.len(), buffers: buffers.len() };
    Ok((layer, params.unbind(), buffers.unbind()))
}

/// The parameters of a list entry for Python: name, annotation, and default.
pub fn params<'a>(py: Python<'_>, params: impl Iterator<Item = &'a Param>) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for param in params {
        let one = PyDict::new(py);
        one.set_item("name", param.name)?;
        one.set_item("annotation", args::annotation(param.kind))?;
        one.set_item("required", param.default.is_none())?;
        one.set_item("default", param.default.map(|default| ops::object(py, &default())).transpose()?)?;
        all.append(one)?;
    }
    Ok(all.unbind())
}

/// The list of layers.
#[pyfunction]
fn _layers(py: Python<'_>) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for entry in nn::list() {
        let one = PyDict::new(py);
        one.set_item("name", entry.name)?;
        one.set_item("docs", ops::docs(entry.docs))?;
        one.set_item("params", params(py, entry.params())?)?;
        all.append(one)?;
    }
    Ok(all.unbind())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLayer>()?;
    module.add_function(wrap_pyfunction!(_build_layer, module)?)?;
    module.add_function(wrap_pyfunction!(_layers, module)?)
}
