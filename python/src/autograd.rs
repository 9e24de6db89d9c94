//! Automatic differentiation: modes, passes, hooks, transforms, tapes and custom functions.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::error::{self, OrRaise, carry};
use crate::tensor::{PyTensor, expect};
use crate::{args, dtype};
use cotangent::autograd::{
    self, AnomalyGuard, BackwardOptions, ForwardContext, FunctionContext, GradCheckOptions, GradMode, GradOptions,
    Gradients, HookHandle, Mark, Tape, TapeBackwardOptions,
};
use cotangent::{
    Result, Tensor,
    error::Name,
    vmap::{VmapOptions, VmapRandomness},
};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// Calls a Python function with tensors. The result is one tensor or several.
fn call_all(f: &Py<PyAny>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let call = |py: Python<'_>| {
        let inputs = inputs.iter().map(|x| PyTensor::object(py, x.clone())).collect::<PyResult<Vec<_>>>()?;
        let result = f.bind(py).call1(PyTuple::new(py, inputs)?)?;
        results(&result)
    };
    Python::attach(call).map_err(carry)
}

fn results(result: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    if let Ok(tensor) = result.cast::<PyTensor>() {
        return Ok(vec![tensor.get().get()?]);
    }
    let Some(items) = args::items(result) else {
        let given = args::type_name(result);
        return Err(PyTypeError::new_err(format!("the function must return a Tensor or a tuple of them, got {given}")));
    };
    items.iter().map(|item| expect("function", "result", item)).collect()
}

/// As `call_all`, with one result.
fn call_one(f: &Py<PyAny>, inputs: &[Tensor]) -> Result<Tensor> {
    let mut all = call_all(f, inputs)?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (_, _) => Err(carry(PyTypeError::new_err("the function must return one Tensor"))),
    }
}

fn tensors(op: &str, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    match args::items(value) {
        Some(items) => items.iter().map(|item| expect(op, name, item)).collect(),
        None => Ok(vec![expect(op, name, value)?]),
    }
}

fn objects(py: Python<'_>, all: Vec<Tensor>) -> PyResult<Py<PyTuple>> {
    let all = all.into_iter().map(|x| PyTensor::object(py, x)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, all)?.unbind())
}

/// Whether operations are recorded on this thread.
#[pyfunction]
fn is_grad_enabled() -> bool {
    autograd::is_grad_enabled()
}

/// Sets whether operations are recorded on this thread, and returns the previous setting.
#[pyfunction]
fn _set_grad_enabled(enabled: bool) -> bool {
    let before = autograd::is_grad_enabled();
    // The guard would restore the mode; the caller does that.
    std::mem::forget(if enabled { GradMode::enable() } else { GradMode::disable() });
    before
}

thread_local! {
    static ANOMALY: RefCell<Vec<AnomalyGuard>> = const { RefCell::new(Vec::new()) };
}

/// Enters or leaves a scope that looks for NaN in backward passes of this thread.
#[pyfunction]
fn _detect_anomaly(begin: bool) {
    if begin {
        ANOMALY.with_borrow_mut(|guards| guards.push(AnomalyGuard::new()));
    } else {
        ANOMALY.with_borrow_mut(Vec::pop);
    }
    error::set_lines(ANOMALY.with_borrow(|guards| !guards.is_empty()));
}

#[pymethods]
impl PyTensor {
    /// Adds the gradients of this tensor to those of the leaves it depends on.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<&Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let x = self.get()?;
        let gradient = gradient.map(|gradient| expect("backward", "gradient", gradient)).transpose()?;
        let retain_graph = retain_graph.or(Some(create_graph));
        if let Some(inputs) = inputs {
            return backward_to(py, &x, gradient.as_ref(), inputs, retain_graph.unwrap_or(false), create_graph);
        }
        if create_graph {
            return Err(PyNotImplementedError::new_err(
                "backward: create_graph requires inputs: pass the tensors whose gradients need a graph",
            ));
        }
        let options = BackwardOptions::new().gradient(gradient.as_ref()).retain_graph(retain_graph.unwrap_or(false));
        error::forget();
        py.detach(|| x.backward_with(options)).or_raise()
    }

    /// Calls a function with each gradient of this tensor. A result that is not None replaces the gradient.
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<PyHookHandle> {
        let call = move |grad: &Tensor| {
            let call = |py: Python<'_>| {
                let result = hook.bind(py).call1((PyTensor::object(py, grad.clone())?,))?;
                if result.is_none() { Ok(None) } else { expect("register_hook", "result", &result).map(Some) }
            };
            Python::attach(call).map_err(carry)
        };
        Ok(PyHookHandle(self.get()?.register_hook(call).or_raise()?))
    }
}

/// Adds the gradients of some inputs to their `grad`.
fn backward_to(
    py: Python<'_>,
    x: &Tensor,
    gradient: Option<&Tensor>,
    inputs: &Bound<'_, PyAny>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<()> {
    let objects = args::items(inputs).unwrap_or_else(|| vec![inputs.clone()]);
    let leaves = tensors("backward", "inputs", inputs)?;
    let options = GradOptions::new().gradient(gradient).retain_graph(retain_graph).create_graph(create_graph);
    error::forget();
    let found = py.detach(|| autograd::grad_with(x, &leaves.iter().collect::<Vec<_>>(), options)).or_raise()?;
    for (object, found) in objects.iter().zip(found) {
        if let Some(found) = found {
            PyTensor::add_grad(object.cast::<PyTensor>()?, found)?;
        }
    }
    Ok(())
}

/// A handle that removes a hook.
#[pyclass(name = "RemovableHandle", module = "cotangent.autograd", frozen)]
struct PyHookHandle(HookHandle);

#[pymethods]
impl PyHookHandle {
    /// Removes the hook.
    fn remove(&self) {
        self.0.remove();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        self.remove();
    }
}

/// The gradients of a tensor with respect to inputs: `None` for those that it does not depend on.
#[pyfunction]
fn _grad(
    py: Python<'_>,
    output: &Bound<'_, PyTensor>,
    inputs: &Bound<'_, PyAny>,
    gradient: Option<&Bound<'_, PyTensor>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<Vec<Option<Py<PyTensor>>>> {
    let output = output.get().get()?;
    let inputs = tensors("grad", "inputs", inputs)?;
    let gradient = gradient.map(|gradient| gradient.get().get()).transpose()?;
    let options = GradOptions::new().gradient(gradient.as_ref()).retain_graph(retain_graph).create_graph(create_graph);
    error::forget();
    let found = py.detach(|| autograd::grad_with(&output, &inputs.iter().collect::<Vec<_>>(), options)).or_raise()?;
    found.into_iter().map(|grad| grad.map(|grad| PyTensor::object(py, grad)).transpose()).collect()
}

/// A custom function, for the crate.
struct PyFunction {
    class: Py<PyAny>,
    context: Py<PyAny>,
    args: Py<PyTuple>,
    /// The positions of the tensors among the arguments.
    places: Vec<usize>,
    name: String,
}

impl PyFunction {
    fn forward_in(&self, py: Python<'_>, inputs: &[Tensor]) -> PyResult<(Vec<Tensor>, Vec<Tensor>)> {
        let args: Vec<Py<PyAny>> = self.args.bind(py).iter().map(Bound::unbind).collect();
        let mut args = args;
        for (&place, input) in self.places.iter().zip(inputs) {
            args[place] = PyTensor::object(py, input.clone())?.into_any();
        }
        args.insert(0, self.context.clone_ref(py));
        let result = self.class.bind(py).call_method1("forward", PyTuple::new(py, args)?)?;
        self.context.bind(py).setattr("_tuple", !result.is_instance_of::<PyTensor>())?;
        let saved = self.context.bind(py).getattr("_to_save")?;
        let saved = if saved.is_none() { Vec::new() } else { tensors("save_for_backward", "tensors", &saved)? };
        let found = results(&result)?;
        self.context.bind(py).call_method1("_returned", (result,))?;
        Ok((found, saved))
    }

    fn backward_in(
        &self,
        py: Python<'_>,
        ctx: &FunctionContext,
        cotangents: &[Tensor],
    ) -> PyResult<Vec<Option<Tensor>>> {
        let context = self.context.bind(py);
        let count: usize = context.getattr("_saved_count")?.extract()?;
        let saved = (0..count).map(|at| ctx.saved(at)).collect::<Result<Vec<_>>>().or_raise()?;
        context.setattr("_saved", objects(py, saved)?)?;
        let mut needs = vec![false; self.args.bind(py).len()];
        for (k, &place) in self.places.iter().enumerate() {
            needs[place] = ctx.needs(k);
        }
        context.setattr("needs_input_grad", PyTuple::new(py, &needs)?)?;
        let mut args = vec![self.context.clone_ref(py)];
        for cotangent in cotangents {
            args.push(PyTensor::object(py, cotangent.clone())?.into_any());
        }
        let result = self.class.bind(py).call_method1("backward", PyTuple::new(py, args)?)?;
        context.setattr("_saved", py.None())?;
        let all = if result.is_instance_of::<PyTensor>() || result.is_none() {
            vec![result]
        } else {
            args::items(&result).unwrap_or_default()
        };
        let least = self.places.last().map_or(0, |&last| last + 1);
        if all.len() < least || all.len() > needs.len() {
            return Err(PyValueError::new_err(format!(
                "{}.backward must return a gradient for each argument of forward, got {} for {}",
                self.name,
                all.len(),
                needs.len()
            )));
        }
        let one = |&place: &usize| {
            let grad = &all[place];
            if grad.is_none() { Ok(None) } else { expect(&self.name, "gradient", grad).map(Some) }
        };
        self.places.iter().map(one).collect()
    }
}

impl autograd::Function for PyFunction {
    fn name(&self) -> Name {
        self.name.clone().into()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let run = |py: Python<'_>| {
            let (results, saved) = self.forward_in(py, inputs)?;
            self.context.bind(py).setattr("_saved_count", saved.len())?;
            Ok((results, saved))
        };
        let (results, saved) = Python::attach(run).map_err(carry)?;
        for tensor in &saved {
            ctx.save(tensor);
        }
        Ok(results)
    }

    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Python::attach(|py| self.backward_in(py, ctx, cotangents)).map_err(carry)
    }
}

/// Calls a custom function with its rule for the backward pass.
#[pyfunction]
fn _apply(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    context: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
) -> PyResult<Py<PyAny>> {
    let (mut places, mut inputs) = (Vec::new(), Vec::new());
    for (place, argument) in args.iter().enumerate() {
        if let Ok(tensor) = argument.cast::<PyTensor>() {
            places.push(place);
            inputs.push(tensor.get().get()?);
        }
    }
    let name = class.getattr("__name__")?.extract()?;
    let function = PyFunction {
        class: class.clone().unbind(),
        context: context.clone().unbind(),
        args: args.clone().unbind(),
        places,
        name,
    };
    error::forget();
    let mut all = autograd::apply_all(function, &inputs.iter().collect::<Vec<_>>()).or_raise()?;
    for place in context.getattr("_constants")?.extract::<Vec<usize>>()? {
        if let Some(result) = all.get_mut(place) {
            *result = result.detach();
        }
    }
    if !context.getattr("_tuple")?.is_truthy()?
        && all.len() == 1
        && let Some(only) = all.pop()
    {
        return Ok(PyTensor::object(py, only)?.into_any());
    }
    Ok(objects(py, all)?.into_any())
}

/// The pullback of a function.
#[pyclass(frozen)]
struct Pull(Box<dyn Fn(&Tensor) -> Result<Vec<Tensor>> + Send + Sync>);

#[pymethods]
impl Pull {
    fn __call__(&self, py: Python<'_>, cotangent: &Bound<'_, PyTensor>) -> PyResult<Py<PyTuple>> {
        let cotangent = cotangent.get().get()?;
        let found = py.detach(|| self.0(&cotangent)).or_raise()?;
        objects(py, found)
    }
}

#[pyfunction]
fn _vjp(py: Python<'_>, f: Py<PyAny>, inputs: &Bound<'_, PyAny>) -> PyResult<(Py<PyTensor>, Pull)> {
    let inputs = tensors("vjp", "primals", inputs)?;
    error::forget();
    let (value, pull) =
        autograd::vjp(move |x: &[Tensor]| call_one(&f, x), &inputs.iter().collect::<Vec<_>>()).or_raise()?;
    Ok((PyTensor::object(py, value)?, Pull(Box::new(pull))))
}

#[pyfunction]
fn _jvp(
    py: Python<'_>,
    f: Py<PyAny>,
    inputs: &Bound<'_, PyAny>,
    tangents: &Bound<'_, PyAny>,
) -> PyResult<(Py<PyTensor>, Py<PyTensor>)> {
    let (inputs, along) = (tensors("jvp", "primals", inputs)?, tensors("jvp", "tangents", tangents)?);
    error::forget();
    let (inputs, along): (Vec<&Tensor>, Vec<&Tensor>) = (inputs.iter().collect(), along.iter().collect());
    let (value, tangent) = autograd::jvp(|x| call_one(&f, x), &inputs, &along).or_raise()?;
    Ok((PyTensor::object(py, value)?, PyTensor::object(py, tangent)?))
}

#[pyfunction]
fn _jacobian(py: Python<'_>, f: Py<PyAny>, x: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
    error::forget();
    let x = x.get().get()?;
    PyTensor::object(py, autograd::jacobian(|x| call_one(&f, std::slice::from_ref(x)), &x).or_raise()?)
}

#[pyfunction]
fn _hessian(py: Python<'_>, f: Py<PyAny>, x: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
    error::forget();
    let x = x.get().get()?;
    PyTensor::object(py, autograd::hessian(|x| call_one(&f, std::slice::from_ref(x)), &x).or_raise()?)
}

#[pyfunction]
fn _hvp(py: Python<'_>, f: Py<PyAny>, x: &Bound<'_, PyTensor>, v: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
    error::forget();
    let (x, v) = (x.get().get()?, v.get().get()?);
    PyTensor::object(py, autograd::hvp(|x| call_one(&f, std::slice::from_ref(x)), &x, &v).or_raise()?)
}

#[pyfunction]
fn _vmap(
    py: Python<'_>,
    f: Py<PyAny>,
    inputs: &Bound<'_, PyAny>,
    in_dims: Vec<Option<isize>>,
    out_dim: isize,
    randomness: &str,
) -> PyResult<Py<PyTuple>> {
    let inputs = tensors("vmap", "inputs", inputs)?;
    let randomness = match randomness {
        "error" => VmapRandomness::Refuse,
        "same" => VmapRandomness::Same,
        "different" => VmapRandomness::Different,
        other => {
            return Err(PyValueError::new_err(format!(
                "vmap: randomness must be 'error', 'same' or 'different', got {other:?}"
            )));
        }
    };
    let options = VmapOptions::new().in_dims(in_dims).out_dim(out_dim).randomness(randomness);
    error::forget();
    let all = cotangent::vmap::vmap_all(|x| call_all(&f, x), &inputs.iter().collect::<Vec<_>>(), options).or_raise()?;
    objects(py, all)
}

#[pyfunction]
fn _checkpoint(py: Python<'_>, f: Py<PyAny>, inputs: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
    let inputs = tensors("checkpoint", "inputs", inputs)?;
    error::forget();
    let result = autograd::checkpoint(move |x| call_one(&f, x), &inputs.iter().collect::<Vec<_>>()).or_raise()?;
    PyTensor::object(py, result)
}

#[pyfunction]
fn _gradcheck(
    f: Py<PyAny>,
    inputs: &Bound<'_, PyAny>,
    second_order: bool,
    fast_mode: bool,
    tolerances: Option<(f64, f64)>,
    eps: Option<f64>,
) -> PyResult<()> {
    let inputs = tensors("gradcheck", "inputs", inputs)?;
    let mut options = GradCheckOptions::new().exhaustive(!fast_mode);
    if let Some((rtol, atol)) = tolerances {
        options = options.rtol(rtol).atol(atol);
    }
    if let Some(eps) = eps {
        options = options.eps(eps);
    }
    error::forget();
    let run = |x: &[Tensor]| call_one(&f, x);
    if second_order {
        autograd::gradgradcheck_with(run, &inputs, options).or_raise()
    } else {
        autograd::gradcheck_with(run, &inputs, options).or_raise()
    }
}

/// An explicit graph: it records the operations of its variables, and computes their gradients.
#[pyclass(name = "Tape", module = "cotangent.autograd", frozen)]
struct PyTape(Tape);

#[pymethods]
impl PyTape {
    #[new]
    fn new() -> PyTape {
        PyTape(Tape::new())
    }

    /// A leaf of this tape with the values of a tensor.
    fn variable(&self, py: Python<'_>, value: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
        PyTensor::object(py, self.0.variable(&value.get().get()?).or_raise()?)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The bytes of all saved tensors.
    #[getter]
    fn saved_bytes(&self) -> usize {
        self.0.saved_bytes()
    }

    /// A place on the tape, for `pop_to`.
    fn mark(&self) -> PyMark {
        PyMark(Mutex::new(Some(self.0.mark())))
    }

    /// Releases everything that was recorded after a mark.
    fn pop_to(&self, mark: &Bound<'_, PyMark>) -> PyResult<()> {
        let mark = mark.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match mark {
            Some(mark) => self.0.pop_to(mark).or_raise(),
            None => Err(PyValueError::new_err("pop_to: the mark was used already")),
        }
    }

    /// The gradients of a tensor with respect to the variables of this tape.
    #[pyo3(signature = (output, gradient=None))]
    fn backward(
        &self,
        py: Python<'_>,
        output: &Bound<'_, PyTensor>,
        gradient: Option<&Bound<'_, PyTensor>>,
    ) -> PyResult<PyGradients> {
        let output = output.get().get()?;
        let gradient = gradient.map(|gradient| gradient.get().get()).transpose()?;
        let options = TapeBackwardOptions::new().gradient(gradient.as_ref());
        error::forget();
        py.detach(|| self.0.backward_with(&output, options)).or_raise().map(|found| PyGradients(Arc::new(found)))
    }
}

/// A place on a tape.
#[pyclass(name = "Mark", module = "cotangent.autograd", frozen)]
struct PyMark(Mutex<Option<Mark>>);

/// The gradients of a pass over a tape.
#[pyclass(name = "Gradients", module = "cotangent.autograd", frozen)]
struct PyGradients(Arc<Gradients>);

#[pymethods]
impl PyGradients {
    /// The gradient of a variable; `None` if the result does not depend on it.
    fn get(&self, py: Python<'_>, variable: &Bound<'_, PyTensor>) -> PyResult<Option<Py<PyTensor>>> {
        let found = self.0.get(&variable.get().get()?).or_raise()?.cloned();
        found.map(|grad| PyTensor::object(py, grad)).transpose()
    }

    fn __getitem__(&self, py: Python<'_>, variable: &Bound<'_, PyTensor>) -> PyResult<Py<PyTensor>> {
        let missing = || pyo3::exceptions::PyKeyError::new_err("the result does not depend on this variable");
        self.get(py, variable)?.ok_or_else(missing)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// Seeds the random numbers of this thread.
#[pyfunction]
fn manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<()> {
    match seed.extract::<u64>() {
        Ok(seed) => cotangent::manual_seed(seed),
        Err(_) => cotangent::manual_seed(seed.extract::<i64>()?.cast_unsigned()),
    }
    Ok(())
}

/// The state of this thread's random numbers.
#[pyfunction]
fn get_rng_state() -> (u64, u64) {
    cotangent::random::rng_state()
}

/// Sets the state of this thread's random numbers to one of `get_rng_state`.
#[pyfunction]
fn set_rng_state(state: (u64, u64)) {
    cotangent::random::set_rng_state(state);
}

/// The number of threads that compute.
#[pyfunction]
fn get_num_threads() -> usize {
    cotangent::settings::num_threads()
}

/// Sets the number of threads that compute.
#[pyfunction]
fn set_num_threads(count: usize) -> PyResult<()> {
    if count == 0 {
        return Err(PyValueError::new_err("set_num_threads: count must be positive, got 0"));
    }
    cotangent::settings::set_num_threads(count).or_raise()
}

/// Statistics of the allocator of a device, in bytes.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn memory_stats<'py>(py: Python<'py>, device: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
    let device = device.map(dtype::device).transpose()?.unwrap_or_default();
    let stats = cotangent::memory::stats(device).or_raise()?;
    let figures = PyDict::new(py);
    figures.set_item("current", stats.current())?;
    figures.set_item("peak", stats.peak())?;
    figures.set_item("cached", stats.cached())?;
    figures.set_item("held", stats.held())?;
    Ok(figures)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyHookHandle>()?;
    module.add_class::<PyTape>()?;
    module.add_class::<PyMark>()?;
    module.add_class::<PyGradients>()?;
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(_set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(_detect_anomaly, module)?)?;
    module.add_function(wrap_pyfunction!(_grad, module)?)?;
    module.add_function(wrap_pyfunction!(_apply, module)?)?;
    module.add_function(wrap_pyfunction!(_vjp, module)?)?;
    module.add_function(wrap_pyfunction!(_jvp, module)?)?;
    module.add_function(wrap_pyfunction!(_jacobian, module)?)?;
    module.add_function(wrap_pyfunction!(_hessian, module)?)?;
    module.add_function(wrap_pyfunction!(_hvp, module)?)?;
    module.add_function(wrap_pyfunction!(_vmap, module)?)?;
    module.add_function(wrap_pyfunction!(_checkpoint, module)?)?;
    module.add_function(wrap_pyfunction!(_gradcheck, module)?)?;
    module.add_function(wrap_pyfunction!(manual_seed, module)?)?;
    module.add_function(wrap_pyfunction!(get_rng_state, module)?)?;
    module.add_function(wrap_pyfunction!(set_rng_state, module)?)?;
    module.add_function(wrap_pyfunction!(get_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(set_num_threads, module)?)?;
    module.add_function(wrap_pyfunction!(memory_stats, module)?)
}
