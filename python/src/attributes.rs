//! Attributes of tensors, gradients, and conversions.

use crate::dtype::{self, PyDType, PyDevice};
use crate::error::OrRaise;
use crate::tensor::PyTensor;
use crate::views::Step;
use cotangent::Tensor;
use cotangent::autograd::GradMode;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyTuple, PyType};

#[pymethods]
impl PyTensor {
    /// The size of every dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // A subclass of tuple with `numel()`, printed as in PyTorch.
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = CLASS.import(py, "cotangent._core.size", "Size")?;
        class.call1((PyTuple::new(py, self.get()?.shape())?,))
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype::object(py, self.get()?.dtype())
    }

    /// The device of the elements.
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

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> PyResult<usize> {
        Ok(self.get()?.dtype().size())
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        let x = self.get()?;
        Ok(x.numel() * x.dtype().size())
    }

    /// The strides in elements, of one dimension or of all.
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

    /// The offset of the first element in the memory that the tensor shares with its base.
    fn storage_offset(&self) -> PyResult<usize> {
        Ok(self.get()?.offset())
    }

    /// The address of the first element.
    fn data_ptr(&self, py: Python<'_>) -> PyResult<usize> {
        let x = self.get()?;
        py.detach(|| x.data_ptr().map(<*const u8>::addr)).or_raise()
    }

    /// Whether the elements are contiguous in row-major order.
    fn is_contiguous(&self) -> PyResult<bool> {
        Ok(self.get()?.is_contiguous())
    }

    /// Whether the elements are real floating-point numbers.
    fn is_floating_point(&self) -> PyResult<bool> {
        Ok(self.get()?.dtype().is_float())
    }

    /// Whether the elements are complex numbers.
    fn is_complex(&self) -> PyResult<bool> {
        Ok(self.get()?.dtype().is_complex())
    }

    /// The tensor that this one is a view of, or `None`.
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

    /// Makes this tensor a leaf that requires a gradient, or a constant.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.requires_grad() != requires_grad {
            // The gradient is kept, as an independent tensor while there is no leaf.
            let grad = PyTensor::grad_object(slf)?;
            let leaf = x.into_value().requires_grad_(requires_grad).or_raise()?;
            slf.get().drop_grad();
            if let (Some(grad), true) = (&grad, requires_grad) {
                leaf.set_grad(&grad.get().get()?.detach()).or_raise()?;
            }
            slf.get().replace(leaf);
            if let Some(grad) = grad {
                slf.get().keep_grad(grad)?;
            }
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

    /// The same values, detached from the graph, as a view.
    fn detach(slf: &Bound<'_, Self>) -> PyResult<Py<PyTensor>> {
        let x = slf.get().get()?.detach();
        PyTensor::view(slf, x, Step::Detach)
    }

    /// The same bytes as elements of another dtype, as a detached view.
    fn _bytes_as(slf: &Bound<'_, Self>, dtype: &Bound<'_, PyAny>) -> PyResult<Py<PyTensor>> {
        let (x, step) = (slf.get().get()?, Step::Bytes(dtype::extract(dtype)?));
        let bytes = slf.py().detach(|| step.of(&x)).or_raise()?;
        PyTensor::view(slf, bytes, step)
    }

    /// Detaches this tensor from the graph, in place.
    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let x = slf.get().get()?;
        if x.requires_grad() {
            slf.get().drop_grad();
            slf.get().replace(x.detach());
        }
        Ok(slf.clone())
    }

    /// The same values, detached from the graph. Assigning to it replaces the values.
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
            // Another shape, dtype or device: a new leaf without the old gradient.
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

    /// The accumulated gradient of this leaf, or `None`.
    #[getter]
    fn grad(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyTensor>>> {
        PyTensor::grad_object(slf)
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

    /// Keeps the gradient of this tensor, which is not a leaf, in backward passes.
    fn retain_grad(&self) -> PyResult<()> {
        self.get()?.retain_grad().or_raise()
    }

    /// Copies the values of another tensor, broadcast to this shape and cast to this dtype.
    #[pyo3(signature = (src, non_blocking=false))]
    fn copy_<'py>(slf: &Bound<'py, Self>, src: &Bound<'_, PyTensor>, non_blocking: bool) -> PyResult<Bound<'py, Self>> {
        let (src, _) = (src.get().get()?, non_blocking);
        let own = slf.get();
        slf.py().detach(|| own.modify(|x| x.copy_(&src)))?;
        Ok(slf.clone())
    }

    /// Fills with zeros.
    fn zero_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        slf.get().modify(Tensor::zero_)?;
        Ok(slf.clone())
    }

    /// Computes deferred operations.
    fn compute(&self, py: Python<'_>) -> PyResult<()> {
        let x = self.get()?;
        py.detach(|| x.compute()).or_raise()
    }

    /// Whether two tensors share memory.
    fn shares_memory(&self, other: &Bound<'_, PyTensor>) -> PyResult<bool> {
        Ok(self.get()?.shares_memory(&other.get().get()?))
    }

    /// The tensor with another dtype, on another device, or both. Arguments are dtypes, devices, or another tensor.
    ///
    /// `memory_format` and `non_blocking` are accepted and have no effect.
    #[pyo3(signature = (*args, dtype=None, device=None, copy=false, non_blocking=false, memory_format=None))]
    fn to(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        copy: bool,
        non_blocking: bool,
        memory_format: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyTensor>> {
        let _ = (non_blocking, memory_format);
        let (mut copy, mut flags) = (copy, 0);
        let mut to_dtype = dtype.map(dtype::extract).transpose()?;
        let mut to_device = device.map(dtype::device).transpose()?;
        for argument in args {
            if let Ok(flag) = argument.cast::<PyBool>() {
                // By position the first is `non_blocking`, and the second `copy`.
                flags += 1;
                copy |= flags == 2 && flag.is_true();
            } else if argument.is_none() {
                // PyTorch's `to(None, dtype)` keeps the device.
            } else if let Ok(other) = argument.cast::<PyTensor>() {
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
}
