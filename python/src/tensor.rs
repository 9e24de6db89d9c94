//! The class `Tensor`: a variable that holds a tensor of the crate.

use crate::args::{self, Fault};
use crate::convert;
use crate::dlpack;
use crate::dtype;
use crate::error::OrRaise;
use crate::views::{self, Step, View};
use crate::{index, number};
use cotangent::autograd::is_grad_enabled;
use cotangent::{Result, Scalar, Tensor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyDict, PyTuple, PyType};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Work on at most this many elements does not release the interpreter, which would take longer.
pub const SMALL: usize = 4096;

/// An array of any rank, of one dtype, on one device.
#[pyclass(name = "Tensor", module = "cotangent", frozen, subclass, weakref)]
pub struct PyTensor(Mutex<State>);

struct State {
    value: Tensor,
    /// The number of changes of the value; of a view, that of the base at the last refresh.
    version: u64,
    view: Option<Box<View>>,
    /// The leaf whose gradient this is.
    leaf: Option<Box<Tensor>>,
    /// The object of the gradient.
    grad: Option<Py<PyTensor>>,
}

impl PyTensor {
    /// A new variable.
    #[inline]
    pub fn new(value: Tensor) -> PyTensor {
        PyTensor(Mutex::new(State { value: value.into_value(), version: 0, view: None, leaf: None, grad: None }))
    }

    /// A new variable as an object.
    #[inline]
    pub fn object(py: Python<'_>, value: Tensor) -> PyResult<Py<PyTensor>> {
        dlpack::give_back(py);
        Py::new(py, PyTensor::new(value))
    }

    /// The result of an operation as an object. It is a leaf only if the operation passes no gradient on.
    #[inline]
    pub fn result(py: Python<'_>, value: Tensor) -> PyResult<Py<PyTensor>> {
        PyTensor::object(py, views::as_result(value).or_raise()?)
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> PyResult<Tensor> {
        let state = self.lock();
        if state.view.is_none() && state.leaf.is_none() {
            return Ok(state.value.clone());
        }
        refreshed(state).or_raise().map(|(value, _)| value)
    }

    /// The object of the view `value` of `of`, made by one step.
    pub fn view(of: &Bound<'_, PyTensor>, value: Tensor, step: Step) -> PyResult<Py<PyTensor>> {
        let py = of.py();
        let (view, version) = {
            let state = of.get().lock();
            let mut recorded = is_grad_enabled();
            let (base, mut steps) = match &state.view {
                Some(view) => {
                    recorded &= view.recorded;
                    (Arc::clone(&view.base), view.steps.clone())
                }
                None => (Arc::new(of.clone().unbind()), SmallVec::new()),
            };
            steps.push(step);
            (View { base, steps, recorded }, state.version)
        };
        let value = views::as_result(value).or_raise()?;
        let state = State { value, version, view: Some(Box::new(view)), leaf: None, grad: None };
        Py::new(py, PyTensor(Mutex::new(state)))
    }

    /// Changes the value in place; of a view, the corresponding part of its base.
    pub fn modify(&self, change: impl FnOnce(&mut Tensor) -> Result<()>) -> PyResult<()> {
        let state = self.lock();
        if state.view.is_none() {
            drop(state);
            return self.modify_own(change);
        }
        let (value, _) = refreshed(state).or_raise()?;
        let mut value = value.into_value();
        change(&mut value).or_raise()?;
        let mut state = self.lock();
        let State { value: shown, version, view: Some(view), .. } = &mut *state else { return Ok(()) };
        // The view is refreshed later, so that only the base holds its bytes while they are written.
        (*shown, *version) = (value.clone(), u64::MAX);
        view.follow();
        view.base.get().modify_own(|base| view.put(base, &value))
    }

    /// As `modify`, for a variable that is not a view.
    fn modify_own(&self, change: impl FnOnce(&mut Tensor) -> Result<()>) -> PyResult<()> {
        let mut state = self.lock();
        if state.leaf.is_some() {
            let (value, _) = refreshed(state).or_raise()?;
            return self.modify_grad(value, change);
        }
        change(&mut state.value).or_raise()?;
        state.version += 1;
        Ok(())
    }

    /// Changes a gradient, also that of its leaf.
    fn modify_grad(&self, mut value: Tensor, change: impl FnOnce(&mut Tensor) -> Result<()>) -> PyResult<()> {
        change(&mut value).or_raise()?;
        let mut state = self.lock();
        if let Some(leaf) = &state.leaf {
            leaf.set_grad(&value.detach()).or_raise()?;
        }
        state.value = value;
        state.version += 1;
        Ok(())
    }

    /// Replaces the value. The variable is not a view afterwards.
    pub fn replace(&self, value: Tensor) {
        let mut state = self.lock();
        state.value = value.into_value();
        state.version += 1;
        state.view = None;
        state.leaf = None;
    }

    /// Locks the variable to change its value without the interpreter; `None` for a view or a gradient.
    pub fn hold(&self) -> Option<Held<'_>> {
        let state = self.lock();
        (state.view.is_none() && state.leaf.is_none()).then_some(Held(state))
    }

    /// The number of changes of the value so far.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// The variable that this one is a view of.
    pub fn base(&self, py: Python<'_>) -> Option<Py<PyTensor>> {
        self.lock().view.as_ref().map(|view| view.base.clone_ref(py))
    }

    /// Adds to the gradient of a leaf. A gradient with a graph keeps it until the next addition.
    pub fn add_grad(leaf: &Bound<'_, PyTensor>, found: Tensor) -> PyResult<()> {
        let x = leaf.get().get()?;
        let old = PyTensor::grad_object(leaf)?;
        let sum = match &old {
            Some(old) => old.get().get()?.add(&found).or_raise()?,
            None => found,
        };
        sum.compute().or_raise()?;
        x.set_grad(&sum.detach()).or_raise()?;
        // The object of the gradient gets the value with its graph, so that it is not refreshed from the leaf.
        if let Some(object) = PyTensor::grad_object(leaf)? {
            let mut state = object.get().lock();
            state.value = sum.into_value();
            state.version += 1;
        }
        Ok(())
    }

    /// The base of this variable, if it became a view after views of it were made.
    pub fn behind(&self) -> Option<Arc<Py<PyTensor>>> {
        self.lock().view.as_ref().map(|view| Arc::clone(&view.base))
    }

    /// The object of the gradient of this leaf, if it has one: the same object until the gradient is removed.
    pub fn grad_object(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyTensor>>> {
        let py = slf.py();
        let x = slf.get().get()?;
        let Some(grad) = x.grad() else {
            if !x.requires_grad() {
                // The gradient from before it was frozen.
                return Ok(slf.get().lock().grad.as_ref().map(|grad| grad.clone_ref(py)));
            }
            slf.get().drop_grad();
            return Ok(None);
        };
        if let Some(object) = &slf.get().lock().grad {
            return Ok(Some(object.clone_ref(py)));
        }
        let state = State { value: grad.into_value(), version: 0, view: None, leaf: Some(Box::new(x)), grad: None };
        let object = Py::new(py, PyTensor(Mutex::new(state)))?;
        slf.get().lock().grad = Some(object.clone_ref(py));
        Ok(Some(object))
    }

    /// Sets the object of the gradient, linked to the gradient if this is a leaf.
    pub fn keep_grad(&self, grad: Py<PyTensor>) -> PyResult<()> {
        let x = self.get()?;
        if x.requires_grad() {
            grad.get().lock().leaf = Some(Box::new(x));
        }
        self.lock().grad = Some(grad);
        Ok(())
    }

    /// Unlinks the object of the gradient, which becomes an independent tensor.
    pub fn drop_grad(&self) {
        let old = self.lock().grad.take();
        if let Some(old) = old {
            old.get().lock().leaf = None;
        }
    }
}

/// `copy.deepcopy` of a tensor.
fn copied<'py>(x: &Bound<'py, PyTensor>, memo: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyTensor>> {
    let copy = x.py().import("copy")?.call_method1("deepcopy", (x, memo))?;
    Ok(copy.cast_into::<PyTensor>()?)
}

/// A locked variable.
pub struct Held<'a>(MutexGuard<'a, State>);

impl Held<'_> {
    /// Replaces the value, and returns the old one.
    pub fn swap(&mut self, value: Tensor) -> Tensor {
        self.0.version += 1;
        std::mem::replace(&mut self.0.value, value)
    }
}

/// Refreshes a variable that may be a view or a gradient, and returns its value and version.
#[cold]
fn refreshed(mut state: MutexGuard<'_, State>) -> Result<(Tensor, u64)> {
    let state = &mut *state;
    if let Some(leaf) = &state.leaf {
        match leaf.grad() {
            Some(grad) if !grad.is_same(&state.value) => {
                state.value = grad.into_value();
                state.version += 1;
            }
            Some(_) => {}
            // The gradient was removed: from now on this is an independent tensor.
            None => state.leaf = None,
        }
    }
    if let Some(view) = &mut state.view {
        view.follow();
        let base = view.base.get().lock();
        let (value, version) = if base.leaf.is_some() { refreshed(base)? } else { (base.value.clone(), base.version) };
        if version != state.version {
            state.value = view.of(&value)?;
            state.version = version;
        }
    }
    Ok((state.value.clone(), state.version))
}

#[pymethods]
impl PyTensor {
    /// A tensor of an array, of nested sequences in the default dtype unless another is given, or of zeros with these sizes.
    #[new]
    #[pyo3(signature = (*data, dtype=None, device=None))]
    fn py_new(
        data: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let mut options = crate::data::options(dtype, device)?;
        // An array of one integer has `__index__`, too, but is data.
        if data.iter().all(|size| size.is_exact_instance_of::<pyo3::types::PyInt>()) {
            let sizes: Vec<usize> = data.extract()?;
            let sizes = if sizes.is_empty() { vec![0] } else { sizes };
            options.dtype = options.dtype.or(Some(dtype::default_float()));
            return Tensor::zeros_with(sizes, options).or_raise().map(PyTensor::new);
        }
        if data.len() != 1 {
            return Err(PyTypeError::new_err(
                "Tensor: arguments must be one sequence of elements, or sizes as integers",
            ));
        }
        let data = data.get_item(0)?;
        // A `Size` is a shape; a plain tuple is data.
        if data.get_type().name().is_ok_and(|name| name == "Size") && data.is_instance_of::<PyTuple>() {
            options.dtype = options.dtype.or(Some(dtype::default_float()));
            return Tensor::zeros_with(data.extract::<Vec<usize>>()?, options).or_raise().map(PyTensor::new);
        }
        if !data.is_instance_of::<PyTensor>() {
            options.dtype = options.dtype.or(Some(dtype::default_float()));
        }
        crate::data::tensor(&data, options).map(PyTensor::new)
    }

    /// Becomes a view of its elements by an operation, as in `_become("unsqueeze", 0)`.
    #[pyo3(signature = (name, *args))]
    fn _become<'py>(slf: &Bound<'py, Self>, name: &str, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.is_leaf() && x.requires_grad() && is_grad_enabled() {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
                "{name}_: a leaf that requires a gradient can only be changed under no_grad()"
            )));
        }
        // The old value becomes a hidden base, and this variable a view of it.
        let own = slf.get();
        if own.lock().view.is_none() {
            let state = {
                let mut state = own.lock();
                let leaf = state.leaf.take();
                State { value: state.value.clone(), version: 0, view: None, leaf, grad: None }
            };
            let base = Arc::new(Py::new(slf.py(), PyTensor(Mutex::new(state)))?);
            let view = View { base, steps: SmallVec::new(), recorded: is_grad_enabled() };
            let mut state = own.lock();
            (state.view, state.version) = (Some(Box::new(view)), 0);
        }
        let made = slf.call_method1(name, args)?;
        let made = made.cast::<PyTensor>()?.get();
        let (mut shown, mut state) = (made.lock(), own.lock());
        let (Some(from), Some(to)) = (shown.view.take(), state.view.as_mut()) else { return Ok(slf.clone()) };
        to.steps = from.steps;
        (state.value, state.version) = (shown.value.clone(), shown.version);
        drop(state);
        Ok(slf.clone())
    }

    /// Hashes by identity, not by elements.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        (slf.as_ptr().addr() >> 4).cast_signed()
    }

    fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
        index::read(slf, key)
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        index::write(slf, key, value)
    }

    fn __len__(&self) -> PyResult<usize> {
        let x = self.get()?;
        x.shape().first().copied().ok_or_else(|| PyTypeError::new_err("len() of a 0-d tensor"))
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PyResult<TensorIterator> {
        let len = slf.get().get()?.shape().first().copied();
        let len = len.ok_or_else(|| PyTypeError::new_err("iteration over a 0-d tensor"))?;
        Ok(TensorIterator { tensor: slf.clone().unbind(), at: 0, len })
    }

    fn __contains__(&self, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let x = self.get()?;
        let same = match (element.cast::<PyTensor>(), number::scalar(element)?) {
            (Ok(other), _) => x.eq(&other.get().get()?),
            (_, Some(number)) => x.eq(number),
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "in: the element must be a Tensor or a number, got {}",
                    args::type_name(element)
                )));
            }
        };
        same.and_then(|same| same.any(..)).and_then(|any| any.item::<bool>()).or_raise()
    }

    fn __bool__(&self) -> PyResult<bool> {
        let x = self.get()?;
        if x.numel() != 1 {
            return Err(PyValueError::new_err(format!(
                "bool: the truth of a tensor of shape {:?} with {} elements is ambiguous: use any() or all()",
                x.shape(),
                x.numel()
            )));
        }
        Ok(match convert::item(&x)? {
            Scalar::Bool(x) => x,
            Scalar::F64(x) => x != 0.0,
            Scalar::I64(x) => x != 0,
            Scalar::U64(x) => x != 0,
            Scalar::C128(z) => z.re != 0.0 || z.im != 0.0,
        })
    }

    fn __float__(&self) -> PyResult<f64> {
        match convert::item(&self.get()?)? {
            Scalar::C128(z) => Err(PyTypeError::new_err(format!("float: the number must be real, got {z}"))),
            number => Ok(number.to_f64()),
        }
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let object = number::object(py, convert::item(&self.get()?)?)?;
        Ok(py.get_type::<pyo3::types::PyInt>().call1((object,))?.unbind())
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let x = self.get()?;
        if !x.dtype().is_int() || x.rank() != 0 {
            let text = format!(
                "an index must be a 0-d tensor of integers, got {} of shape {:?}",
                dtype::name(x.dtype()),
                x.shape()
            );
            return Err(PyTypeError::new_err(text));
        }
        number::object(py, convert::item(&x)?)
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyComplex>> {
        Ok(match convert::item(&self.get()?)? {
            Scalar::C128(z) => PyComplex::from_doubles(py, z.re, z.im),
            number => PyComplex::from_doubles(py, number.to_f64(), 0.0),
        })
    }

    /// The element of a tensor with one element, as a Python number.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        number::object(py, convert::item(&self.get()?)?)
    }

    /// The elements as nested lists of numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        convert::to_list(py, &self.get()?)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let x = slf.get().get()?;
        let (bytes, shape) = (convert::to_bytes(py, &x)?, PyTuple::new(py, x.shape())?);
        let parts = (bytes, shape, dtype::name(x.dtype()), x.device().to_string(), x.requires_grad() && x.is_leaf());
        Ok((py.import("cotangent._cotangent")?.getattr("_rebuild")?, parts.into_pyobject(py)?))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        PyTensor::object(py, self.get()?)
    }

    /// A copy with its gradient. Copies with one `memo` share memory where the originals do.
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyTensor>> {
        let (py, x) = (slf.py(), slf.get().get()?);
        if !x.is_leaf() {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(
                "deepcopy: the tensor must be a leaf: call detach() first",
            ));
        }
        let view = {
            let mut state = slf.get().lock();
            state.view.as_mut().map(|view| {
                view.follow();
                (view.base.clone_ref(py), view.steps.clone(), view.recorded)
            })
        };
        let Some((base, steps, recorded)) = view else {
            let copy = py.detach(|| x.detach().deep_clone()).or_raise()?;
            let copy = PyTensor::object(py, copy.requires_grad_(x.requires_grad()).or_raise()?)?.into_bound(py);
            if let Some(grad) = PyTensor::grad_object(slf)? {
                let grad = copied(grad.bind(py), memo)?;
                if x.requires_grad() {
                    copy.get().get()?.set_grad(&grad.get().get()?.detach()).or_raise()?;
                } else {
                    copy.get().keep_grad(grad.unbind())?;
                }
            }
            return Ok(copy);
        };
        let base = base.bind(py);
        let whole = base.get().get()?;
        let base = if whole.is_leaf() {
            copied(base, memo)?
        } else {
            // Only its values, which all detached views of it share.
            let key = format!("cotangent {}", base.as_ptr().addr());
            match memo.get_item(&key)? {
                Some(made) => made.cast_into::<PyTensor>()?,
                None => {
                    let made = py.detach(|| whole.detach().deep_clone()).or_raise()?;
                    let made = PyTensor::object(py, made)?.into_bound(py);
                    memo.set_item(key, &made)?;
                    made
                }
            }
        };
        let view = View { base: Arc::new(base.clone().unbind()), steps, recorded };
        let (value, version) = {
            let state = base.get().lock();
            (view.of(&state.value).or_raise()?, state.version)
        };
        let state = State { value, version, view: Some(Box::new(view)), leaf: None, grad: None };
        Bound::new(py, PyTensor(Mutex::new(state)))
    }

    #[classmethod]
    fn __class_getitem__(class: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        class.clone().unbind()
    }

    /// Gives tensors precedence over NumPy arrays in operators.
    #[classattr]
    fn __array_priority__() -> i32 {
        1000
    }
}

/// An iterator over the first dimension of a tensor.
#[pyclass(module = "cotangent")]
pub struct TensorIterator {
    tensor: Py<PyTensor>,
    at: usize,
    len: usize,
}

#[pymethods]
impl TensorIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyTensor>>> {
        if self.at >= self.len {
            return Ok(None);
        }
        self.at += 1;
        index::element(self.tensor.bind(py), self.at.cast_signed() - 1).map(Some)
    }

    fn __length_hint__(&self) -> usize {
        self.len - self.at
    }
}

/// The tensor of an argument that must be one.
pub fn expect(op: &str, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    match object.cast::<PyTensor>() {
        Ok(tensor) => tensor.get().get(),
        Err(_) => Err(Fault { op, name, wanted: "a Tensor", given: object }.into()),
    }
}
