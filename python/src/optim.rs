//! The optimisers of the crate's list, over Python variables, and mixed precision.

use crate::args;
use crate::error::{self, OrRaise};
use crate::tensor::PyTensor;
use crate::variables::PyParameters;
use crate::{dtype, nn, ops};
use cotangent::io::StateDict;
use cotangent::nn::Module;
use cotangent::ops::Arg;
use cotangent::optim::{self, GradScaler, GradScalerOptions, Lbfgs, LbfgsOptions, Optimizer, OptimizerEntry};
use cotangent::{
    Result, Tensor,
    autocast::{AutocastMode, AutocastOptions},
};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An optimiser for one group of parameters.
#[pyclass(name = "_Optimizer", module = "cotangent._cotangent", frozen)]
pub struct PyOptimizer {
    entry: &'static OptimizerEntry,
    inner: Mutex<Box<dyn Optimizer + Send + Sync>>,
}

/// The settings of a group as arguments for the crate.
fn settings(entry: &OptimizerEntry, given: &Bound<'_, PyDict>) -> PyResult<Vec<(&'static str, Arg)>> {
    let mut named = Vec::with_capacity(given.len());
    for (key, value) in given {
        let key: String = key.extract()?;
        let Some(param) = entry.params.iter().find(|param| param.name == key) else {
            return Err(PyTypeError::new_err(format!("{} has no setting {key}", entry.name)));
        };
        if !value.is_none() {
            named.push((param.name, args::convert(entry.name, &key, param.kind, &value)?));
        }
    }
    Ok(named)
}

fn to_python(py: Python<'_>, dict: &StateDict) -> PyResult<Py<PyDict>> {
    let all = PyDict::new(py);
    for name in dict.names() {
        if let Some(value) = dict.get(name) {
            all.set_item(name, PyTensor::object(py, value.clone())?)?;
        }
    }
    Ok(all.unbind())
}

fn from_python(dict: &Bound<'_, PyDict>) -> PyResult<StateDict> {
    let mut all = StateDict::new();
    for (name, value) in dict {
        all.insert(name.extract::<String>()?, value.cast::<PyTensor>()?.get().get()?);
    }
    Ok(all)
}

/// The entries of L-BFGS's state that are neither settings nor belong to a parameter.
const COUNTS: [&str; 2] = ["n_iter", "func_evals"];

impl PyOptimizer {
    fn lock(&self) -> MutexGuard<'_, Box<dyn Optimizer + Send + Sync>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyOptimizer {
    #[new]
    fn py_new(name: &str, given: &Bound<'_, PyDict>) -> PyResult<PyOptimizer> {
        let found = optim::list().iter().find(|entry| entry.name == name);
        let entry = found.ok_or_else(|| PyValueError::new_err(format!("unknown optimiser {name}")))?;
        let inner = entry.build(&settings(entry, given)?).or_raise()?;
        Ok(PyOptimizer { entry, inner: Mutex::new(inner) })
    }

    /// Sets the learning rate.
    fn set_lr(&self, lr: f64) {
        self.lock().set_lr(lr);
    }

    /// Changes settings and keeps the state of the parameters.
    fn set(&self, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut new = self.entry.build(&settings(self.entry, given)?).or_raise()?;
        let mut own = self.lock();
        let mut dict = new.state_dict().or_raise()?;
        let old = own.state_dict().or_raise()?;
        let names: Vec<String> = old.names().map(str::to_string).collect();
        let mut kept = false;
        for name in names {
            if (dict.get(&name).is_none() || COUNTS.contains(&&*name))
                && let Some(value) = old.get(&name)
            {
                dict.insert(name, value.clone());
                kept = true;
            }
        }
        drop(old);
        if kept {
            new.load_state_dict(&dict).or_raise()?;
        }
        *own = new;
        Ok(())
    }

    /// Updates the parameters by their gradients.
    fn step(&self, py: Python<'_>, parameters: &Bound<'_, PyParameters>) -> PyResult<()> {
        parameters.get().with(py, |module| self.lock().step(module))
    }

    /// The settings, and the state of each parameter.
    fn state_dict(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        to_python(py, &self.lock().state_dict().or_raise()?)
    }

    /// Loads a state of `state_dict`.
    fn load_state_dict(&self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let dict = from_python(dict)?;
        self.lock().load_state_dict(&dict).or_raise()
    }
}

/// A step of L-BFGS. Returns the loss before it, and the new state.
#[pyfunction]
fn _lbfgs_step(
    py: Python<'_>,
    given: &Bound<'_, PyDict>,
    state: Option<&Bound<'_, PyDict>>,
    parameters: &Bound<'_, PyParameters>,
    closure: &Bound<'_, PyAny>,
) -> PyResult<(Py<PyAny>, Py<PyDict>)> {
    let entry = optim::list().iter().find(|entry| entry.name == "Lbfgs");
    let entry = entry.ok_or_else(|| PyValueError::new_err("unknown optimiser Lbfgs"))?;
    let fresh = entry.build(&settings(entry, given)?).or_raise()?;
    let mut dict = fresh.state_dict().or_raise()?;
    if let Some(state) = state {
        let old = from_python(state)?;
        for name in old.names().filter(|name| dict.get(name).is_none() || COUNTS.contains(name)).collect::<Vec<_>>() {
            if let Some(value) = old.get(name) {
                dict.insert(name, value.clone());
            }
        }
    }
    let mut lbfgs = Lbfgs::new_with(LbfgsOptions::new());
    lbfgs.load_state_dict(&dict).or_raise()?;
    error::forget();
    let (own, mut first) = (parameters.get(), None);
    own.with_copies(|module| {
        lbfgs.step_with(module, |module| {
            own.show(module);
            let loss = closure.call0().map_err(error::carry)?;
            let value = match loss.cast::<PyTensor>() {
                Ok(loss) => loss.get().get().map_err(error::carry)?,
                Err(_) => Tensor::full((), loss.extract::<f64>().map_err(error::carry)?)?,
            };
            first.get_or_insert_with(|| loss.unbind());
            Ok(value)
        })
    })?;
    let state = to_python(py, &lbfgs.state_dict().or_raise()?)?;
    Ok((first.unwrap_or_else(|| py.None()), state))
}

/// An optimiser without effect, to ask a scaler whether to step.
struct Asked;

impl Optimizer for Asked {
    fn step(&mut self, _: &mut dyn Module) -> Result<()> {
        Ok(())
    }

    fn lr(&self) -> f64 {
        0.0
    }

    fn set_lr(&mut self, _: f64) {}

    fn state_dict(&self) -> Result<StateDict> {
        Ok(StateDict::new())
    }

    fn load_state_dict(&mut self, _: &StateDict) -> Result<()> {
        Ok(())
    }
}

/// The scale of losses in half precision.
#[pyclass(name = "_GradScaler", module = "cotangent._cotangent", frozen)]
struct PyGradScaler(Mutex<GradScaler>);

impl PyGradScaler {
    fn lock(&self) -> MutexGuard<'_, GradScaler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyGradScaler {
    #[new]
    fn new(
        init_scale: f64,
        growth_factor: f64,
        backoff_factor: f64,
        growth_interval: u64,
        enabled: bool,
    ) -> PyGradScaler {
        let options = GradScalerOptions::new().init_scale(init_scale).growth_factor(growth_factor);
        let options = options.backoff_factor(backoff_factor).growth_interval(growth_interval).enabled(enabled);
        PyGradScaler(Mutex::new(GradScaler::new_with(options)))
    }

    /// The loss times the scale.
    fn scale(&self, py: Python<'_>, loss: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
        let scaled = self.lock().scale(&loss.get().get()?).or_raise()?;
        PyTensor::object(py, scaled)
    }

    /// Divides gradients by the scale.
    fn unscale(&self, py: Python<'_>, parameters: &Bound<'_, PyParameters>) -> PyResult<()> {
        parameters.get().with(py, |module| self.lock().unscale(module))
    }

    /// Whether all gradients are finite, so that the step can be done. Unscales them unless that was done before.
    fn may_step(&self, py: Python<'_>, parameters: &Bound<'_, PyParameters>) -> PyResult<bool> {
        parameters.get().with(py, |module| self.lock().step(&mut Asked, module))
    }

    /// Updates the scale.
    fn update(&self) -> PyResult<()> {
        self.lock().update().or_raise()
    }

    /// The scale.
    fn get_scale(&self) -> f64 {
        self.lock().get_scale()
    }

    /// The scale and the settings.
    fn state_dict(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        to_python(py, &self.lock().state_dict().or_raise()?)
    }

    /// Loads a state of `state_dict`.
    fn load_state_dict(&self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let dict = from_python(dict)?;
        self.lock().load_state_dict(&dict).or_raise()
    }
}

thread_local! {
    /// The open autocast scopes of this thread.
    static SCOPES: RefCell<Vec<AutocastMode>> = const { RefCell::new(Vec::new()) };
}

/// Enters an autocast scope.
#[pyfunction]
fn _autocast_enter(to: &Bound<'_, PyAny>, enabled: bool, cache_enabled: bool) -> PyResult<()> {
    let options = AutocastOptions::new().enabled(enabled).cache_enabled(cache_enabled);
    let scope = AutocastMode::new(dtype::extract(to)?, options).or_raise()?;
    SCOPES.with_borrow_mut(|scopes| scopes.push(scope));
    Ok(())
}

/// Leaves the innermost autocast scope.
#[pyfunction]
fn _autocast_exit() -> PyResult<()> {
    // A separate statement, so that the list is not borrowed while the scope is dropped.
    let last = SCOPES.with_borrow_mut(Vec::pop);
    let lacking = || {
        PyRuntimeError::new_err("autocast: this thread is in no scope: a scope must end in the thread that began it")
    };
    last.map(drop).ok_or_else(lacking)
}

/// The dtype of the innermost scope of this thread.
#[pyfunction]
fn _autocast_dtype(py: Python<'_>) -> PyResult<Option<Py<dtype::PyDType>>> {
    cotangent::autocast::autocast_dtype().map(|found| dtype::object(py, found)).transpose()
}

/// The list of optimisers.
#[pyfunction]
fn _optimizers(py: Python<'_>) -> PyResult<Py<PyList>> {
    let all = PyList::empty(py);
    for entry in optim::list() {
        let one = PyDict::new(py);
        one.set_item("name", entry.name)?;
        one.set_item("docs", ops::docs(entry.docs))?;
        one.set_item("params", nn::params(py, entry.params.iter())?)?;
        all.append(one)?;
    }
    Ok(all.unbind())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyParameters>()?;
    module.add_class::<PyOptimizer>()?;
    module.add_class::<PyGradScaler>()?;
    module.add_function(wrap_pyfunction!(_lbfgs_step, module)?)?;
    module.add_function(wrap_pyfunction!(_autocast_enter, module)?)?;
    module.add_function(wrap_pyfunction!(_autocast_exit, module)?)?;
    module.add_function(wrap_pyfunction!(_autocast_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(_optimizers, module)?)
}
