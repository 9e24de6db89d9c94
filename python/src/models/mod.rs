//! Language models: their parameters and logits.
//!
//! - `cache`: the keys and values of tokens; `options`: what a generation is asked for; `generation`: its steps.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

mod cache;
mod generation;
mod options;

use crate::dtype;
use crate::error::{self, OrRaise, raise_as};
use crate::tensor::{PyTensor, expect};
use crate::variables::placeholder;
use cache::{PyCache, Taken};
use cotangent::io::{LoadOptions, Value, gguf};
use cotangent::models::{CausalLm, CausalModel, GenerateOptions, KeyValueCache, Llama};
use cotangent::nn::{Module, PartMut, Visit, Visitor};
use cotangent::{DType, Error, ErrorKind, Result, Tensor};
use generation::OP;
pub use generation::raise;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model without the values of its parameters, which are Python variables. Quantised weights stay in it.
type Shell = Mutex<CausalLm>;

#[pyclass(name = "_CausalLm", module = "cotangent.models", frozen)]
struct PyCausalLm {
    shell: Arc<Shell>,
    /// The number of parameters that are variables.
    count: usize,
    vocab_size: usize,
    quantized: usize,
    /// The options that are published with it, or why they are refused, which only a generation minds.
    published: std::result::Result<GenerateOptions, (ErrorKind, String)>,
}

/// The values of parameters, by name.
type Values = Vec<(String, Tensor)>;

impl PyCausalLm {
    /// Takes the values out of a model.
    fn new(mut model: CausalLm, published: Result<GenerateOptions>) -> Result<(PyCausalLm, Values)> {
        let nothing = placeholder()?;
        let vocab_size = vocab_size(&model);
        let (mut values, mut quantized) = (Values::new(), 0);
        model.visit_mut(&mut Visitor::new(&mut |name, part| {
            let PartMut::Param(parameter) = part else { return };
            match parameter.quantized() {
                Some(weight) => quantized += weight.numel(),
                None => values.push((name.to_string(), parameter.swap_tensor(nothing.clone()).detach())),
            }
        }));
        let published = published.map_err(|error| (error.kind(), error.message()));
        let shell = Arc::new(Mutex::new(model));
        Ok((PyCausalLm { shell, count: values.len(), vocab_size, quantized, published }, values))
    }

    fn published(&self) -> PyResult<GenerateOptions> {
        self.published.clone().map_err(|(kind, text)| raise(Error::new(kind, OP, text)))
    }
}

/// The number of rows of the token embedding.
fn vocab_size(model: &CausalLm) -> usize {
    let parameters = model.named_parameters();
    let table = parameters.iter().find(|(name, _)| name.contains("embed_tokens") || name.contains("wte"));
    table.map_or(0, |(_, weight)| weight.quantized().map_or(weight.shape()[0], |weight| weight.shape()[0]))
}

/// A model, the variables of its parameters, and whether it is in training mode.
type Given<'py> = (Bound<'py, PyCausalLm>, Vec<Bound<'py, PyTensor>>, bool);

/// Which variables the parameters are, and how often each has changed: with another stamp, a cache has keys of other values.
type Stamp = Vec<(usize, u64)>;

/// A model with the values that its parameters have at a moment.
struct Valued {
    shell: Arc<Shell>,
    values: Vec<Tensor>,
    stamp: Stamp,
    training: bool,
    recordable_steps: Option<usize>,
}

impl Valued {
    fn new(py: Python<'_>, op: &str, (model, variables, training): &Given<'_>) -> PyResult<Arc<Valued>> {
        let model = model.get();
        if variables.len() != model.count {
            let (own, given) = (model.count, variables.len());
            return Err(PyValueError::new_err(format!("{op}: the model must have {own} parameters, got {given}")));
        }
        let values = variables.iter().map(|variable| variable.get().get()).collect::<PyResult<Vec<_>>>()?;
        let stamp = variables.iter().map(|variable| (variable.as_ptr().addr(), variable.get().version())).collect();
        let shell = model.shell.clone();
        let mut valued = Valued { shell, values, stamp, training: *training, recordable_steps: None };
        // Another thread may run the model, and need the interpreter.
        let steps = py.detach(|| valued.run(|model| Ok(model.recordable_steps())));
        valued.recordable_steps = steps.or_raise()?;
        Ok(Arc::new(valued))
    }

    /// Runs `f` on the model with its values, which are in it only meanwhile.
    fn run<T>(&self, f: impl FnOnce(&CausalLm) -> Result<T>) -> Result<T> {
        let nothing = placeholder()?;
        let mut model = lock(&self.shell);
        put(&mut model, self.values.iter().cloned(), self.training);
        let result = f(&model);
        put(&mut model, std::iter::repeat(nothing), false);
        result
    }
}

/// Puts values into the parameters of a model that are variables.
fn put(model: &mut CausalLm, mut values: impl Iterator<Item = Tensor>, training: bool) {
    model.visit_mut(&mut Visitor::new(&mut |_, part| match part {
        PartMut::Param(parameter) if parameter.quantized().is_none() => {
            if let Some(value) = values.next() {
                parameter.swap_tensor(value);
            }
        }
        PartMut::Training(own) => *own = training,
        _ => {}
    }));
}

impl CausalModel for Valued {
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.run(|model| model.forward_cached(tokens, cache))
    }

    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.run(|model| model.next_logits(tokens, cache))
    }

    fn recordable_steps(&self) -> Option<usize> {
        self.recordable_steps
    }
}

/// A model and its parameters.
type Loaded = (PyCausalLm, Vec<(String, Py<PyTensor>)>);

fn loaded(py: Python<'_>, found: Result<(PyCausalLm, Values)>) -> PyResult<Loaded> {
    let (model, values) = found.map_err(|error| raise_as("load", error))?;
    let values = values.into_iter().map(|(name, value)| Ok((name, PyTensor::object(py, value)?)));
    Ok((model, values.collect::<PyResult<_>>()?))
}

#[pymethods]
impl PyCausalLm {
    /// Loads a folder with Hugging Face's files.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        folder: PathBuf,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Loaded> {
        let mut options = LoadOptions::new();
        if let Some(dtype) = dtype {
            options = options.dtype(dtype::extract(dtype)?);
        }
        if let Some(device) = device {
            options = options.device(dtype::device(device)?);
        }
        let load = || PyCausalLm::new(CausalLm::load_with(&folder, options)?, GenerateOptions::from_folder(&folder));
        loaded(py, py.detach(load))
    }

    /// Loads a GGUF file.
    #[staticmethod]
    fn load_gguf(py: Python<'_>, path: PathBuf, device: Option<&Bound<'_, PyAny>>) -> PyResult<Loaded> {
        let device = device.map(dtype::device).transpose()?;
        let load = || {
            let mut model = CausalLm::Llama(Llama::from_gguf(&path)?);
            if let Some(device) = device {
                model.to_device(device)?;
            }
            let file = gguf::open(path)?;
            let end = file.metadata().get("tokenizer.ggml.eos_token_id").and_then(Value::as_i64);
            PyCausalLm::new(model, Ok(GenerateOptions::new().end(end)))
        };
        loaded(py, py.detach(load))
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn model_type(&self, py: Python<'_>) -> &'static str {
        py.detach(|| lock(&self.shell).model_type())
    }

    /// The number of elements of quantised weights.
    fn quantized(&self) -> usize {
        self.quantized
    }

    /// It has no values, so that copies share it.
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
}

/// The logits of tokens, which follow those of the cache.
#[pyfunction]
fn _logits(
    py: Python<'_>,
    model: Given<'_>,
    tokens: &Bound<'_, PyAny>,
    cache: Option<&Bound<'_, PyCache>>,
) -> PyResult<Py<PyTensor>> {
    let op = "forward";
    let tokens = expect(op, "tokens", tokens)?;
    check_tokens(op, &tokens)?;
    let model = Valued::new(py, op, &model)?;
    let Some(cache) = cache else {
        // A cache that keeps nothing.
        let compute = || model.forward_cached(&tokens, &mut KeyValueCache::default());
        let logits = error::placed(py, || py.detach(compute));
        return PyTensor::result(py, logits.map_err(|error| raise_as(op, error))?);
    };
    let mut taken = Taken::from(cache, op, &model)?;
    if !taken.kept.is_of(&model) {
        let text = "forward: the parameters must be those that the cache was computed with, but they have changed";
        return Err(PyValueError::new_err(text));
    }
    let compute = || -> Result<Tensor> {
        let rows = rows(&tokens)?;
        let logits = model.forward_cached(&tokens, &mut taken.kept.cache)?;
        taken.kept.extend(&rows);
        Ok(logits)
    };
    let logits = error::placed(py, || py.detach(compute));
    drop(taken);
    PyTensor::result(py, logits.map_err(|error| raise_as(op, error))?)
}

fn check_tokens(op: &str, tokens: &Tensor) -> PyResult<()> {
    if tokens.rank() != 2 {
        let text = format!("{op}: tokens must have shape [batch, steps], got {:?}", tokens.shape());
        return Err(PyValueError::new_err(text));
    }
    if !tokens.dtype().is_int() {
        let dtype = dtype::name(tokens.dtype());
        return Err(PyTypeError::new_err(format!("{op}: tokens must be integers, got {dtype}")));
    }
    Ok(())
}

/// The tokens of each sequence of `[batch, steps]`.
fn rows(tokens: &Tensor) -> Result<Vec<Vec<i64>>> {
    let steps = tokens.shape()[1];
    let all = tokens.to_dtype(DType::I64)?.to_vec::<i64>()?;
    Ok((0..tokens.shape()[0]).map(|row| all[row * steps..(row + 1) * steps].to_vec()).collect())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCausalLm>()?;
    module.add_class::<PyCache>()?;
    module.add_function(wrap_pyfunction!(_logits, module)?)?;
    generation::register(module)
}
