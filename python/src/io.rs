//! Files: the readers and writers of the crate, with Python dictionaries as state dicts.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::error::OrRaise;
use crate::tensor::{PyTensor, expect};
use crate::{args, dtype};
use cotangent::Tensor;
use cotangent::io::{
    Better, Checkpoint, Checkpoints, LoadOptions, State, StateDict, Stateful, Value, gguf, npy, npz, pytorch,
    safetensors,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use std::path::PathBuf;

/// The deepest nesting of values: deeper ones contain themselves.
const DEEPEST: usize = 64;

type Loaded = (Py<PyDict>, Py<PyAny>);

/// Named tensors.
fn state_dict(op: &str, dict: &Bound<'_, PyDict>) -> PyResult<StateDict> {
    let one = |(name, tensor): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let Ok(name) = name.extract::<String>() else {
            let given = args::type_name(&name);
            return Err(PyTypeError::new_err(format!("{op}: names must be str, got {given}")));
        };
        Ok((name.clone(), expect(op, &name, &tensor)?.detach()))
    };
    dict.iter().map(one).collect()
}

fn dict(py: Python<'_>, tensors: StateDict) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    for (name, tensor) in tensors {
        dict.set_item(name, PyTensor::object(py, tensor)?)?;
    }
    Ok(dict.unbind())
}

/// Converts a plain Python value.
fn value(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEEPEST {
        return Err(PyValueError::new_err(format!("save: values must be nested at most {DEEPEST} deep")));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(x) = object.cast::<PyBool>() {
        return Ok(Value::Bool(x.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Value::Int(object.str()?.to_string().parse().map_err(|_| {
            PyValueError::new_err(format!("save: integers must have at most 128 bits, got {object}"))
        })?));
    }
    if let Ok(x) = object.cast::<PyFloat>() {
        return Ok(Value::Float(x.value()));
    }
    if let Ok(x) = object.cast::<PyString>() {
        return Ok(Value::Text(x.to_string()));
    }
    if let Ok(map) = object.cast::<PyDict>() {
        let one = |(name, item): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((name.extract::<String>()?, value(&item, depth + 1)?))
        };
        return map.iter().map(one).collect();
    }
    match args::items(object) {
        Some(items) => Ok(Value::List(items.iter().map(|item| value(item, depth + 1)).collect::<PyResult<_>>()?)),
        None => {
            let given = args::type_name(object);
            Err(PyTypeError::new_err(format!("save: cannot save {given}")))
        }
    }
}

/// The value as a Python object.
fn object(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Bool(x) => PyBool::new(py, *x).to_owned().into_any().unbind(),
        Value::Int(x) => py.get_type::<PyInt>().call1((x.to_string(),))?.unbind(),
        Value::Float(x) => x.into_pyobject(py)?.into_any().unbind(),
        Value::Text(x) => x.into_pyobject(py)?.into_any().unbind(),
        Value::List(all) => {
            let all = all.iter().map(|one| object(py, one)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, all)?.into_any().unbind()
        }
        Value::Map(all) => {
            let map = PyDict::new(py);
            for (name, one) in all {
                map.set_item(name, object(py, one)?)?;
            }
            map.into_any().unbind()
        }
        _ => py.None(),
    })
}

/// The names to load, the dtype and the device.
#[derive(FromPyObject)]
struct Wanted<'py> {
    #[pyo3(item)]
    dtype: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    device: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    names: Option<Vec<String>>,
}

impl Wanted<'_> {
    fn options(&self) -> PyResult<LoadOptions> {
        let mut options = LoadOptions::new();
        if let Some(dtype) = &self.dtype {
            options = options.dtype(dtype::extract(dtype)?);
        }
        if let Some(device) = &self.device {
            options = options.device(dtype::device(device)?);
        }
        if let Some(names) = &self.names {
            options = options.names(names.clone());
        }
        Ok(options)
    }
}

#[pyfunction]
fn _save_safetensors(
    py: Python<'_>,
    path: PathBuf,
    tensors: &Bound<'_, PyDict>,
    metadata: Option<safetensors::Metadata>,
) -> PyResult<()> {
    let dict = state_dict("save", tensors)?;
    py.detach(|| safetensors::save_with_metadata(path, &dict, &metadata.unwrap_or_default())).or_raise()
}

#[pyfunction]
fn _save_sharded(py: Python<'_>, folder: PathBuf, tensors: &Bound<'_, PyDict>, max_shard_bytes: usize) -> PyResult<()> {
    let dict = state_dict("save_sharded", tensors)?;
    py.detach(|| safetensors::save_sharded(folder, &dict, max_shard_bytes)).or_raise()
}

#[pyfunction]
fn _load_safetensors(
    py: Python<'_>,
    path: PathBuf,
    wanted: Wanted<'_>,
) -> PyResult<(Py<PyDict>, safetensors::Metadata)> {
    let options = wanted.options()?;
    let read = || {
        let reader = safetensors::open(path)?;
        Ok((reader.load(options)?, reader.metadata().clone()))
    };
    let (tensors, metadata) = py.detach(read).or_raise()?;
    Ok((dict(py, tensors)?, metadata))
}

#[pyfunction]
fn _save_npy(py: Python<'_>, path: PathBuf, tensor: &Bound<'_, PyTensor>) -> PyResult<()> {
    let tensor = tensor.get().get()?.detach();
    py.detach(|| npy::save(path, &tensor)).or_raise()
}

#[pyfunction]
fn _load_npy(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyTensor>> {
    let tensor: Tensor = py.detach(|| npy::load(path)).or_raise()?;
    PyTensor::object(py, tensor)
}

#[pyfunction]
fn _save_npz(py: Python<'_>, path: PathBuf, tensors: &Bound<'_, PyDict>, compressed: bool) -> PyResult<()> {
    let dict = state_dict("save_npz", tensors)?;
    py.detach(|| if compressed { npz::save_compressed(path, &dict) } else { npz::save(path, &dict) }).or_raise()
}

#[pyfunction]
fn _load_npz(py: Python<'_>, path: PathBuf, wanted: Wanted<'_>) -> PyResult<Py<PyDict>> {
    let options = wanted.options()?;
    let tensors = py.detach(|| npz::load_with(path, options)).or_raise()?;
    dict(py, tensors)
}

#[pyfunction]
fn _save_pytorch(py: Python<'_>, path: PathBuf, tensors: &Bound<'_, PyDict>) -> PyResult<()> {
    let dict = state_dict("save_pytorch", tensors)?;
    py.detach(|| pytorch::save(path, &dict)).or_raise()
}

#[pyfunction]
fn _load_pytorch(py: Python<'_>, path: PathBuf, wanted: Wanted<'_>) -> PyResult<Loaded> {
    let options = wanted.options()?;
    let state = py.detach(|| pytorch::load_state(path, options)).or_raise()?;
    Ok((dict(py, state.tensors)?, object(py, &state.values)?))
}

#[pyfunction]
fn _load_gguf(py: Python<'_>, path: PathBuf, wanted: Wanted<'_>) -> PyResult<Loaded> {
    let options = wanted.options()?;
    let read = || {
        let reader = gguf::open(path)?;
        Ok((reader.load(options)?, reader.metadata().clone()))
    };
    let (tensors, metadata) = py.detach(read).or_raise()?;
    Ok((dict(py, tensors)?, object(py, &metadata)?))
}

/// A part of a checkpoint that Python has packed.
struct Part(State);

impl Stateful for Part {
    fn save_state(&self) -> cotangent::Result<State> {
        Ok(self.0.clone())
    }

    fn load_state(&mut self, state: &State) -> cotangent::Result<()> {
        self.0 = state.clone();
        Ok(())
    }
}

/// A checkpoint of parts, given as tensors and trees, and of plain values.
fn checkpoint(parts: &Bound<'_, PyDict>, values: &Bound<'_, PyDict>) -> PyResult<Checkpoint> {
    let mut checkpoint = Checkpoint::new();
    for (name, part) in parts {
        let name: String = name.extract()?;
        let (tensors, tree): (Bound<'_, PyDict>, String) = part.extract()?;
        let mut state = State::from(state_dict("Checkpoint", &tensors)?);
        state.set("tree", tree);
        checkpoint.add(&name, &Part(state)).or_raise()?;
    }
    for (name, one) in values {
        checkpoint.set(name.extract::<String>()?, value(&one, 0)?);
    }
    Ok(checkpoint)
}

#[pyfunction]
fn _save_checkpoint(
    py: Python<'_>,
    path: PathBuf,
    parts: &Bound<'_, PyDict>,
    values: &Bound<'_, PyDict>,
) -> PyResult<()> {
    let checkpoint = checkpoint(parts, values)?;
    py.detach(|| checkpoint.save(path)).or_raise()
}

/// The parts and the values of a checkpoint. A part that Rust has written has values instead of a tree.
#[pyfunction]
fn _load_checkpoint(py: Python<'_>, path: PathBuf) -> PyResult<(Py<PyDict>, Py<PyAny>)> {
    let checkpoint = py.detach(|| Checkpoint::load(path)).or_raise()?;
    let parts = PyDict::new(py);
    for name in checkpoint.names() {
        if let Some(state) = checkpoint.part(name) {
            parts.set_item(name, (dict(py, state.tensors.clone())?, object(py, &state.values)?))?;
        }
    }
    Ok((parts.unbind(), object(py, &checkpoint.values().values)?))
}

/// The folder of the checkpoints of a run: it keeps the last and the best.
#[pyclass(name = "_Folder", module = "cotangent.io", frozen)]
struct Folder(Checkpoints);

#[pymethods]
impl Folder {
    #[new]
    fn new(folder: PathBuf, last: usize, best: usize, metric: Option<String>, mode: &str) -> PyResult<Folder> {
        let better = match mode {
            "min" => Better::Lower,
            "max" => Better::Higher,
            _ => {
                return Err(PyValueError::new_err(format!("Checkpoints: mode must be 'min' or 'max', got {mode:?}")));
            }
        };
        let mut folder = Checkpoints::new(folder).or_raise()?.keep_last(last);
        if let Some(metric) = metric {
            folder = folder.keep_best(best, metric, better);
        }
        Ok(Folder(folder))
    }

    fn save(
        &self,
        py: Python<'_>,
        step: u64,
        parts: &Bound<'_, PyDict>,
        values: &Bound<'_, PyDict>,
    ) -> PyResult<PathBuf> {
        let checkpoint = checkpoint(parts, values)?;
        py.detach(|| self.0.save(step, &checkpoint)).or_raise()
    }

    fn steps(&self) -> PyResult<Vec<u64>> {
        self.0.steps().or_raise()
    }

    fn last(&self) -> PyResult<Option<(u64, PathBuf)>> {
        self.0.last().or_raise()
    }

    fn best(&self) -> PyResult<Option<(u64, PathBuf)>> {
        self.0.best().or_raise()
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Folder>()?;
    module.add_function(wrap_pyfunction!(_save_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(_save_sharded, module)?)?;
    module.add_function(wrap_pyfunction!(_load_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(_save_npy, module)?)?;
    module.add_function(wrap_pyfunction!(_load_npy, module)?)?;
    module.add_function(wrap_pyfunction!(_save_npz, module)?)?;
    module.add_function(wrap_pyfunction!(_load_npz, module)?)?;
    module.add_function(wrap_pyfunction!(_save_pytorch, module)?)?;
    module.add_function(wrap_pyfunction!(_load_pytorch, module)?)?;
    module.add_function(wrap_pyfunction!(_load_gguf, module)?)?;
    module.add_function(wrap_pyfunction!(_save_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(_load_checkpoint, module)?)
}
