//! The class `Tensor`: a variable that holds a tensor of the crate.

use crate::args::{self, Fault};
use crate::convert;
use crate::dlpack;
use crate::dtype::{self, PyDType, PyDevice};
use crate::error::{self, OrRaise};
use crate::views::{Step, View};
use crate::{index, number};
use cotangent::autograd::{GradMode, is_grad_enabled};
use cotangent::{Operand, Result, Scalar, Tensor};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyTuple, PyType};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Work on fewer elements is done before another thread could take over.
pub const SMALL: usize = 4096;

/// An array of any rank, of one dtype, on one device.
#[pyclass(name = "Tensor", module = "cotangent", frozen, subclass, weakref)]
pub struct PyTensor(Mutex<State>);

struct State {
    value: Tensor,
    /// How often the value was replaced; of a view, the base's when the view was last taken.
    version: u64,
    view: Option<Box<View>>,
    /// The leaf whose gradient this is.
    leaf: Option<Box<Tensor>>,
    /// The object that stands for the gradient.
    grad: Option<Py<PyTensor>>,
}

impl PyTensor {
    /// A variable of its own.
    #[inline]
    pub fn new(value: Tensor) -> PyTensor {
        PyTensor(Mutex::new(State { value: value.into_value(), version: 0, view: None, leaf: None, grad: None }))
    }

    /// The same as an object.
    #[inline]
    pub fn object(py: Python<'_>, value: Tensor) -> PyResult<Py<PyTensor>> {
        dlpack::give_back(py);
        Py::new(py, PyTensor::new(value))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value it has now.
    #[inline]
    pub fn get(&self) -> PyResult<Tensor> {
        let state = self.lock();
        if state.view.is_none() && state.leaf.is_none() {
            return Ok(state.value.clone());
        }
        refreshed(state).or_raise().map(|(value, _)| value)
    }

    /// The object that shows `value`, which one step made of the value of `of`.
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
                None => (Arc::new(of.clone().unbind()), Vec::with_capacity(1)),
            };
            steps.push(step);
            (View { base, steps, recorded }, state.version)
        };
        let state = State { value, version, view: Some(Box::new(view)), leaf: None, grad: None };
        Py::new(py, PyTensor(Mutex::new(state)))
    }

    /// Changes the value in place: of a view, the part of its base that it shows.
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
        // What the view shows is taken anew, so that nothing but the base holds its bytes while they are written.
        (*shown, *version) = (value.clone(), u64::MAX);
        view.follow();
        view.base.get().modify_own(|base| view.put(base, &value))
    }

    /// The same of what is no view.
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

    /// Changes a gradient: its leaf gets the new one.
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

    /// Puts another value in place of the one that is there. It is no view afterwards.
    pub fn replace(&self, value: Tensor) {
        let mut state = self.lock();
        state.value = value.into_value();
        state.version += 1;
        state.view = None;
        state.leaf = None;
    }

    /// The variable, held for whoever changes its value outside of the interpreter; `None` of a view and of a gradient.
    pub fn hold(&self) -> Option<Held<'_>> {
        let state = self.lock();
        (state.view.is_none() && state.leaf.is_none()).then_some(Held(state))
    }

    /// The variable that this one is a view of.
    pub fn base(&self, py: Python<'_>) -> Option<Py<PyTensor>> {
        self.lock().view.as_ref().map(|view| view.base.clone_ref(py))
    }

    /// Adds to the gradient of a leaf. One with a graph keeps it, until something else is added.
    pub fn add_grad(leaf: &Bound<'_, PyTensor>, found: Tensor) -> PyResult<()> {
        let x = leaf.get().get()?;
        let old = PyTensor::grad(leaf)?;
        let sum = match &old {
            Some(old) => old.get().get()?.add(&found).or_raise()?,
            None => found,
        };
        sum.compute().or_raise()?;
        x.set_grad(&sum.detach()).or_raise()?;
        // The object for the gradient has the same values, so that they are not taken from the leaf again.
        if let Some(object) = PyTensor::grad(leaf)? {
            let mut state = object.get().lock();
            state.value = sum.into_value();
            state.version += 1;
        }
        Ok(())
    }

    /// The variable behind this one, if it was made a view after views of it were taken.
    pub fn behind(&self) -> Option<Arc<Py<PyTensor>>> {
        self.lock().view.as_ref().map(|view| Arc::clone(&view.base))
    }

    /// Lets the gradient's object go its own way.
    fn drop_grad(&self) {
        let old = self.lock().grad.take();
        if let Some(old) = old {
            old.get().lock().leaf = None;
        }
    }
}

/// A variable that nobody else reads or changes meanwhile.
pub struct Held<'a>(MutexGuard<'a, State>);

impl Held<'_> {
    /// Puts another value in place of the one that is there, and returns that.
    pub fn swap(&mut self, value: Tensor) -> Tensor {
        self.0.version += 1;
        std::mem::replace(&mut self.0.value, value)
    }
}

/// The value and the version of a variable that may be a view or a gradient.
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
            // It was taken away: from now on this is a tensor of its own.
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

type Binary = fn(&Tensor, Operand<'_>) -> Result<Tensor>;

/// One of Python's operators. `None` if the other side is nothing that it knows.
#[inline]
pub fn binary(x: &PyTensor, other: &Bound<'_, PyAny>, f: Binary) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let x = x.get()?;
    let result = if let Ok(other) = other.cast::<PyTensor>() {
        let other = other.get().get()?;
        let run = || {
            if x.numel().max(other.numel()) > SMALL {
                py.detach(|| f(&x, Operand::Borrowed(&other)))
            } else {
                f(&x, Operand::Borrowed(&other))
            }
        };
        error::placed(py, run)
    } else if let Some(number) = number::scalar(other)? {
        if x.numel() > SMALL { py.detach(|| f(&x, Operand::Scalar(number))) } else { f(&x, Operand::Scalar(number)) }
    } else {
        return Ok(py.NotImplemented());
    };
    PyTensor::object(py, result.or_raise()?).map(Py::into_any)
}

/// The same with the number on the left.
pub fn reflected(x: &PyTensor, other: &Bound<'_, PyAny>, f: Binary) -> PyResult<Py<PyAny>> {
    let Some(number) = number::scalar(other)? else { return Ok(other.py().NotImplemented()) };
    let (py, x) = (other.py(), x.get()?);
    let left = beside(number, &x).or_raise()?;
    let result = py.detach(|| f(&left, Operand::Borrowed(&x))).or_raise()?;
    PyTensor::object(py, result).map(Py::into_any)
}

/// A number as a tensor beside another one.
pub fn beside(number: Scalar, x: &Tensor) -> Result<Tensor> {
    Tensor::full_with((), number, (number::beside(number, x.dtype()), x.device()))
}

/// An operator that changes its left side.
pub fn in_place(x: &PyTensor, other: &Bound<'_, PyAny>, f: fn(&mut Tensor, Operand<'_>) -> Result<()>) -> PyResult<()> {
    let py = other.py();
    if let Ok(other) = other.cast::<PyTensor>() {
        let other = other.get().get()?;
        return py.detach(|| x.modify(|x| f(x, Operand::Borrowed(&other))));
    }
    match number::scalar(other)? {
        Some(number) => py.detach(|| x.modify(|x| f(x, Operand::Scalar(number)))),
        None => Err(PyTypeError::new_err(format!("a tensor cannot be changed by {}", args::type_name(other)))),
    }
}

fn unary(x: &PyTensor, py: Python<'_>, f: fn(&Tensor) -> Result<Tensor>) -> PyResult<Py<PyTensor>> {
    let x = x.get()?;
    let result = if x.numel() > SMALL { py.detach(|| f(&x)) } else { f(&x) };
    PyTensor::object(py, result.or_raise()?)
}

#[pymethods]
impl PyTensor {
    /// Of an array, its values; of nested sequences, these as float32 unless another dtype is named; of sizes, zeros.
    #[new]
    #[pyo3(signature = (*data, dtype=None, device=None))]
    fn py_new(
        data: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTensor> {
        let mut options = crate::data::options(dtype, device)?;
        // An array of one integer knows how to be a size, too, but is data.
        if data.iter().all(|size| size.is_exact_instance_of::<pyo3::types::PyInt>()) {
            let sizes: Vec<usize> = data.extract()?;
            let sizes = if sizes.is_empty() { vec![0] } else { sizes };
            return Tensor::zeros_with(sizes, options).or_raise().map(PyTensor::new);
        }
        if data.len() != 1 {
            return Err(PyTypeError::new_err("Tensor: give the elements as one sequence, or the sizes as integers"));
        }
        let data = data.get_item(0)?;
        if data.is_instance_of::<PyTuple>() || data.is_instance_of::<pyo3::types::PyList>() {
            options.dtype = options.dtype.or(Some(cotangent::DType::F32));
        }
        crate::data::tensor(&data, options).map(PyTensor::new)
    }

    /// Shows the same elements by an operation that gives a view, as in `_become("unsqueeze", 0)`.
    #[pyo3(signature = (name, *args))]
    fn _become<'py>(slf: &Bound<'py, Self>, name: &str, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.is_leaf() && x.requires_grad() && is_grad_enabled() {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
                "{name}_: a leaf that requires a gradient is changed under no_grad() alone"
            )));
        }
        // What the variable was until now goes on as a base that nobody sees, and this one shows it.
        let own = slf.get();
        if own.lock().view.is_none() {
            let state = {
                let mut state = own.lock();
                let leaf = state.leaf.take();
                State { value: state.value.clone(), version: 0, view: None, leaf, grad: None }
            };
            let base = Arc::new(Py::new(slf.py(), PyTensor(Mutex::new(state)))?);
            let view = View { base, steps: Vec::new(), recorded: is_grad_enabled() };
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

    #[inline]
    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.add(b))
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.add(b))
    }

    fn __iadd__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place(self, other, |x, other| x.add_(other))
    }

    #[inline]
    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.sub(b))
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        reflected(self, other, |a, b| a.sub(b))
    }

    fn __isub__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place(self, other, |x, other| x.sub_(other))
    }

    #[inline]
    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.mul(b))
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.mul(b))
    }

    fn __imul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place(self, other, |x, other| x.mul_(other))
    }

    #[inline]
    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(self, other, |a, b| a.div(b))
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        reflected(self, other, |a, b| a.div(b))
    }

    fn __itruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place(self, other, |x, other| x.div_(other))
    }

    fn __pow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() { Ok(other.py().NotImplemented()) } else { binary(self, other, |a, b| a.pow(b)) }
    }

    fn __rpow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() { Ok(other.py().NotImplemented()) } else { reflected(self, other, |a, b| a.pow(b)) }
    }

    fn __ipow__(&self, other: &Bound<'_, PyAny>, _modulo: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        in_place(self, other, |x, other| x.change("pow_", |x| x.pow(other)))
    }

    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(other) = other.cast::<PyTensor>() else { return Ok(other.py().NotImplemented()) };
        let (py, x, other) = (other.py(), self.get()?, other.get().get()?);
        let result = py.detach(|| x.matmul(&other)).or_raise()?;
        PyTensor::object(py, result).map(Py::into_any)
    }

    fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> Py<PyAny> {
        other.py().NotImplemented()
    }

    fn __imatmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        let other = other.cast::<PyTensor>()?.get().get()?;
        Python::attach(|py| py.detach(|| self.modify(|x| x.change("matmul_", |x| x.matmul(&other)))))
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        unary(self, py, Tensor::neg)
    }

    fn __pos__(slf: &Bound<'_, Self>) -> PyResult<Py<PyTensor>> {
        unary(slf.get(), slf.py(), Tensor::positive)
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        unary(self, py, Tensor::abs)
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        unary(self, py, Tensor::bitwise_not)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let f: Binary = match op {
            CompareOp::Lt => |a, b| a.lt(b),
            CompareOp::Le => |a, b| a.le(b),
            CompareOp::Eq => |a, b| a.eq(b),
            CompareOp::Ne => |a, b| a.ne(b),
            CompareOp::Gt => |a, b| a.gt(b),
            CompareOp::Ge => |a, b| a.ge(b),
        };
        binary(self, other, f)
    }

    /// Objects are told apart by what they are, not by their elements.
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
            _ => return Err(PyTypeError::new_err(format!("no tensor has elements of {}", args::type_name(element)))),
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
            Scalar::C128(z) => Err(PyTypeError::new_err(format!("float: {z} is no real number"))),
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
            let text = format!("a tensor of {} and shape {:?} is no index", dtype::name(x.dtype()), x.shape());
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

    /// The element of a tensor that has one, as a number of Python's.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        number::object(py, convert::item(&self.get()?)?)
    }

    /// The elements as nested lists of numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        convert::to_list(py, &self.get()?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let x = self.get()?;
        Ok(py.detach(|| convert::text(&x)))
    }

    fn __format__(&self, py: Python<'_>, spec: &str) -> PyResult<String> {
        let x = self.get()?;
        if x.rank() == 0 && !spec.is_empty() {
            let number = number::object(py, convert::item(&x)?)?;
            return number.bind(py).call_method1("__format__", (spec,))?.extract();
        }
        if spec.is_empty() { self.__repr__(py) } else { Err(PyTypeError::new_err("only a 0-d tensor has a format")) }
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

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
        let x = self.get()?;
        if !x.is_leaf() {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(
                "deepcopy: the tensor is the result of a recorded operation: detach it, or copy leaves",
            ));
        }
        let copy = x.detach().deep_clone().or_raise()?;
        PyTensor::object(py, copy.requires_grad_(x.requires_grad()).or_raise()?)
    }

    #[classmethod]
    fn __class_getitem__(class: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        class.clone().unbind()
    }

    /// The size of every dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.get()?.shape())
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype::object(py, self.get()?.dtype())
    }

    /// Where the elements are.
    #[getter]
    fn device(&self) -> PyResult<PyDevice> {
        Ok(PyDevice(self.get()?.device()))
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> PyResult<usize> {
        Ok(self.get()?.rank())
    }

    /// The number of dimensions.
    fn dim(&self) -> PyResult<usize> {
        self.ndim()
    }

    /// The number of elements.
    fn numel(&self) -> PyResult<usize> {
        Ok(self.get()?.numel())
    }

    /// The number of bytes of an element.
    #[getter]
    fn itemsize(&self) -> PyResult<usize> {
        Ok(self.get()?.dtype().size())
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        let x = self.get()?;
        Ok(x.numel() * x.dtype().size())
    }

    /// The steps, in elements, from one index of a dimension to the next; of one dimension, or of all.
    #[pyo3(signature = (dim=None))]
    fn stride(&self, py: Python<'_>, dim: Option<isize>) -> PyResult<Py<PyAny>> {
        let x = self.get()?;
        let Some(dim) = dim else { return Ok(PyTuple::new(py, x.strides())?.into_any().unbind()) };
        let at = if dim < 0 { dim + x.rank().cast_signed() } else { dim };
        match usize::try_from(at).ok().and_then(|at| x.strides().get(at)) {
            Some(stride) => Ok(stride.into_pyobject(py)?.into_any().unbind()),
            None => Err(pyo3::exceptions::PyIndexError::new_err(format!(
                "stride: dimension {dim} is out of range for rank {}",
                x.rank()
            ))),
        }
    }

    /// The position of the first element in the memory that the tensor shares with what it is a view of.
    fn storage_offset(&self) -> PyResult<usize> {
        Ok(self.get()?.offset())
    }

    /// The address of the first element.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<usize> {
        let x = self.get()?;
        py.detach(|| x.data_ptr().map(<*const u8>::addr)).or_raise()
    }

    /// Whether the elements lie in row-major order without gaps.
    fn is_contiguous(&self) -> PyResult<bool> {
        Ok(self.get()?.is_contiguous())
    }

    /// Whether the elements are real numbers of floating point.
    fn is_floating_point(&self) -> PyResult<bool> {
        Ok(self.get()?.dtype().is_float())
    }

    /// Whether the elements are complex numbers.
    fn is_complex(&self) -> PyResult<bool> {
        Ok(self.get()?.dtype().is_complex())
    }

    /// The variable that this one is a view of, or `None`.
    #[getter]
    fn _base(&self, py: Python<'_>) -> Option<Py<PyTensor>> {
        self.base(py)
    }

    /// Whether operations on this tensor are recorded for a backward pass.
    #[getter]
    fn requires_grad(&self) -> PyResult<bool> {
        Ok(self.get()?.requires_grad())
    }

    #[setter(requires_grad)]
    fn set_requires_grad(slf: &Bound<'_, Self>, requires_grad: bool) -> PyResult<()> {
        PyTensor::requires_grad_(slf, requires_grad).map(drop)
    }

    /// Makes this tensor a leaf whose gradient is kept, or a constant.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.requires_grad() != requires_grad {
            let leaf = x.into_value().requires_grad_(requires_grad).or_raise()?;
            slf.get().drop_grad();
            slf.get().replace(leaf);
        }
        Ok(slf.clone())
    }

    /// Whether this is not the result of a recorded operation.
    #[getter]
    fn is_leaf(&self) -> PyResult<bool> {
        Ok(self.get()?.is_leaf())
    }

    /// The name of the recorded operation that made this tensor, or `None`.
    #[getter]
    fn grad_fn(&self) -> PyResult<Option<String>> {
        Ok(self.get()?.grad_fn().map(str::to_string))
    }

    /// The same values outside of the graph, as a view.
    fn detach(slf: &Bound<'_, Self>) -> PyResult<Py<PyTensor>> {
        let x = slf.get().get()?.detach();
        PyTensor::view(slf, x, Step::Detach)
    }

    /// Takes this tensor out of the graph.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.requires_grad() {
            slf.get().drop_grad();
            slf.get().replace(x.detach());
        }
        Ok(slf.clone())
    }

    /// The same values outside of the graph; to assign to it changes them there.
    #[getter]
    fn data(slf: &Bound<'_, Self>) -> PyResult<Py<PyTensor>> {
        PyTensor::detach(slf)
    }

    #[setter(data)]
    fn set_data(slf: &Bound<'_, Self>, value: &Bound<'_, PyTensor>) -> PyResult<()> {
        let value = value.get().get()?;
        let own = slf.get().get()?;
        let alike = own.shape() == value.shape() && own.dtype() == value.dtype() && own.device() == value.device();
        if !alike && own.is_leaf() && slf.get().hold().is_some() {
            // Another form: a leaf of its own, without the gradient of the old one.
            let leaf = value.detach().into_value().requires_grad_(own.requires_grad()).or_raise()?;
            slf.get().drop_grad();
            slf.get().replace(leaf);
            return Ok(());
        }
        slf.get().modify(|x| {
            let _mode = GradMode::disable();
            x.change("data", |_| Ok(value.detach()))
        })
    }

    /// The gradient that backward passes have added up for this leaf, or `None`.
    #[getter]
    fn grad(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyTensor>>> {
        let py = slf.py();
        let x = slf.get().get()?;
        let Some(grad) = x.grad() else {
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

    #[setter(grad)]
    fn set_grad(slf: &Bound<'_, Self>, grad: Option<&Bound<'_, PyTensor>>) -> PyResult<()> {
        let x = slf.get().get()?;
        let new = grad.map(|grad| grad.get().get()).transpose()?;
        slf.get().drop_grad();
        match new {
            Some(new) => x.set_grad(&new.detach()).or_raise(),
            None => {
                x.zero_grad();
                Ok(())
            }
        }
    }

    /// Keeps the gradient of this result, as is done for leaves anyway.
    fn retain_grad(&self) -> PyResult<()> {
        self.get()?.retain_grad().or_raise()
    }

    /// Takes over the values of another tensor, broadcast to this one's shape and cast to its dtype.
    #[pyo3(signature = (src, non_blocking=false))]
    fn copy_<'py>(slf: &Bound<'py, Self>, src: &Bound<'_, PyTensor>, non_blocking: bool) -> PyResult<Bound<'py, Self>> {
        let (src, _) = (src.get().get()?, non_blocking);
        let own = slf.get();
        slf.py().detach(|| own.modify(|x| x.copy_(&src)))?;
        Ok(slf.clone())
    }

    /// Puts zero everywhere.
    fn zero_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().modify(Tensor::zero_)?;
        Ok(slf.clone())
    }

    /// Computes what was deferred.
    fn compute(&self, py: Python<'_>) -> PyResult<()> {
        let x = self.get()?;
        py.detach(|| x.compute()).or_raise()
    }

    /// Whether two tensors lie in the same memory.
    fn shares_memory(&self, other: &Bound<'_, PyTensor>) -> PyResult<bool> {
        Ok(self.get()?.shares_memory(&other.get().get()?))
    }

    /// The tensor as another dtype, on another device, or both. Arguments are dtypes, devices, or another tensor.
    #[pyo3(signature = (*args, dtype=None, device=None, copy=false, non_blocking=false))]
    fn to(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        copy: bool,
        non_blocking: bool,
    ) -> PyResult<Py<PyTensor>> {
        let _ = non_blocking;
        let mut to_dtype = dtype.map(dtype::extract).transpose()?;
        let mut to_device = device.map(dtype::device).transpose()?;
        for argument in args {
            if let Ok(other) = argument.cast::<PyTensor>() {
                let other = other.get().get()?;
                (to_dtype, to_device) = (Some(other.dtype()), Some(other.device()));
            } else if let Ok(found) = dtype::extract(&argument) {
                to_dtype = Some(found);
            } else {
                to_device = Some(dtype::device(&argument)?);
            }
        }
        let x = slf.get().get()?;
        let (to_dtype, to_device) = (to_dtype.unwrap_or(x.dtype()), to_device.unwrap_or(x.device()));
        if !copy && to_dtype == x.dtype() && to_device == x.device() {
            return Ok(slf.clone().unbind());
        }
        let moved = slf.py().detach(|| {
            let moved = x.to_dtype(to_dtype)?.to_device(to_device)?;
            if copy && moved.shares_memory(&x) { moved.deep_clone() } else { Ok(moved) }
        });
        PyTensor::object(slf.py(), moved.or_raise()?)
    }

    /// NumPy's arrays leave operators to tensors.
    #[classattr]
    fn __array_priority__() -> i32 {
        1000
    }
}

/// The parts of a tensor along its first dimension, one after the other.
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
