//! Dtypes and devices as Python objects.

use crate::error::OrRaise;
use cotangent::{DType, Device};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// The name of a dtype in PyTorch, NumPy and the array API standard.
pub const fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
        _ => "unknown",
    }
}

fn by_name(text: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| name(dtype) == text)
}

/// The type of a tensor's elements, such as `cotangent.float32`.
#[pyclass(name = "dtype", module = "cotangent", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    /// The name, as in `"float32"`.
    #[getter]
    fn name(&self) -> &'static str {
        name(self.0)
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// Whether it is a real floating-point dtype.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    /// Whether it is a complex dtype.
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }

    /// Whether it has negative numbers.
    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    fn __repr__(&self) -> String {
        format!("cotangent.{}", name(self.0))
    }

    fn __str__(&self) -> String {
        self.__repr__()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&'static str,))> {
        Ok((py.import("cotangent._cotangent")?.getattr("_dtype")?, (name(self.0),)))
    }
}

/// One object for each dtype, so that they can be compared by identity.
pub fn object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    static ALL: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();
    let make = || DType::ALL.into_iter().map(|dtype| Py::new(py, PyDType(dtype))).collect::<PyResult<Vec<_>>>();
    let all = ALL.get_or_try_init(py, make)?;
    match DType::ALL.into_iter().position(|other| other == dtype) {
        Some(at) => Ok(all[at].clone_ref(py)),
        None => Py::new(py, PyDType(dtype)),
    }
}

/// A dtype in any form: a cotangent dtype, `float` and the like, a name, or a NumPy dtype.
pub fn extract(value: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Ok(dtype) = value.cast::<PyDType>() {
        return Ok(dtype.get().0);
    }
    if let Ok(class) = value.cast::<PyType>() {
        let py = value.py();
        if class.is(py.get_type::<PyFloat>()) {
            return Ok(DType::F64);
        } else if class.is(py.get_type::<PyBool>()) {
            return Ok(DType::Bool);
        } else if class.is(py.get_type::<PyInt>()) {
            return Ok(DType::I64);
        } else if class.is(py.get_type::<PyComplex>()) {
            return Ok(DType::C128);
        }
    }
    let text = match value.cast::<PyString>() {
        Ok(text) => text.to_string(),
        // A NumPy dtype or scalar type, by its name.
        Err(_) => ["name", "__name__"]
            .iter()
            .find_map(|&attribute| value.getattr(attribute).ok()?.extract::<String>().ok())
            .unwrap_or_default(),
    };
    by_name(&text).ok_or_else(|| {
        PyTypeError::new_err(format!("dtype must be a dtype of cotangent, NumPy or Python, got {value:?}"))
    })
}

/// A device: `device("cpu")`, `device("cuda:0")`, `device("cuda", 1)`.
#[pyclass(name = "device", module = "cotangent", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyDevice(pub Device);

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index=None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<usize>) -> PyResult<PyDevice> {
        match (device(r#type)?, index) {
            (device, None) | (device @ Device::Cpu, Some(0)) => Ok(PyDevice(device)),
            (Device::Cuda(_), Some(index)) => Ok(PyDevice(Device::Cuda(index))),
            (other, Some(index)) => {
                Err(PyValueError::new_err(format!("device: index must be 0 for {other}, got {index}")))
            }
        }
    }

    /// `"cpu"` or `"cuda"`.
    #[getter]
    fn r#type(&self) -> &'static str {
        if self.0 == Device::Cpu { "cpu" } else { "cuda" }
    }

    /// The index of the GPU; `None` for the CPU.
    #[getter]
    fn index(&self) -> Option<usize> {
        if let Device::Cuda(index) = self.0 { Some(index) } else { None }
    }

    fn __repr__(&self) -> String {
        match self.0 {
            Device::Cuda(index) => format!("device(type='cuda', index={index})"),
            _ => "device(type='cpu')".to_string(),
        }
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (String,))> {
        Ok((py.get_type::<PyDevice>(), (self.0.to_string(),)))
    }
}

/// A device: an object, or a name such as `"cuda:1"`.
pub fn device(value: &Bound<'_, PyAny>) -> PyResult<Device> {
    if let Ok(device) = value.cast::<PyDevice>() {
        return Ok(device.get().0);
    }
    let Ok(text) = value.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!("device must be a device or a str, got {value:?}")));
    };
    let text = text.to_string();
    let device = match text.split_once(':') {
        None if text == "cpu" => Some(Device::Cpu),
        None if text == "cuda" => Some(Device::Cuda(0)),
        Some(("cpu", "0")) => Some(Device::Cpu),
        Some(("cuda", index)) => index.parse().ok().map(Device::Cuda),
        _ => None,
    };
    device.ok_or_else(|| PyValueError::new_err(format!("device: name must be \"cpu\" or \"cuda:N\", got {text:?}")))
}

thread_local! {
    static DEFAULT_DEVICE: Cell<Option<Device>> = const { Cell::new(None) };
}

/// The default device of this thread, if one was set.
pub fn default_device() -> Option<Device> {
    DEFAULT_DEVICE.get()
}

/// The same for Python.
#[pyfunction]
fn _default_device() -> Option<PyDevice> {
    default_device().map(PyDevice)
}

/// Sets the default device of this thread, and returns the previous one.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn _set_default_device(device: Option<&Bound<'_, PyAny>>) -> PyResult<Option<PyDevice>> {
    let device = device.map(self::device).transpose()?;
    Ok(DEFAULT_DEVICE.replace(device).map(PyDevice))
}

/// The dtype of Python floats, as an index into `FLOATS`.
static DEFAULT_DTYPE: AtomicU8 = AtomicU8::new(0);

/// The possible dtypes of Python floats. The first is the crate's default.
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// The dtype of Python floats.
pub fn default_float() -> DType {
    FLOATS[usize::from(DEFAULT_DTYPE.load(Ordering::Relaxed))]
}

/// The dtype of Python complex numbers.
pub fn default_complex() -> DType {
    if default_float() == DType::F64 { DType::C128 } else { DType::C64 }
}

/// The dtype of Python floats, unless it is the crate's default.
pub fn other_default() -> Option<DType> {
    Some(default_float()).filter(|&dtype| dtype != DType::F32)
}

/// The default dtype of floats.
#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Py<PyDType>> {
    object(py, default_float())
}

/// Sets the default dtype of floats: `float16`, `bfloat16`, `float32` or `float64`.
#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyAny>) -> PyResult<()> {
    let dtype = match d.cast::<PyDType>() {
        Ok(dtype) => dtype.get().0,
        Err(_) => return Err(PyTypeError::new_err(format!("set_default_dtype: d must be a dtype, got {d:?}"))),
    };
    let Some(at) = FLOATS.iter().position(|&float| float == dtype) else {
        return Err(PyTypeError::new_err(format!(
            "set_default_dtype: d must be a dtype of floating point, got {}",
            name(dtype)
        )));
    };
    // There are four of them.
    #[allow(clippy::cast_possible_truncation)]
    DEFAULT_DTYPE.store(at as u8, Ordering::Relaxed);
    Ok(())
}

/// Releases the cached memory of a device.
#[pyfunction]
fn _empty_cache(device: &Bound<'_, PyAny>) -> PyResult<()> {
    cotangent::memory::empty_cache(self::device(device)?).or_raise()
}

/// Resets the peak memory of a device.
#[pyfunction]
fn _reset_peak(device: &Bound<'_, PyAny>) -> PyResult<()> {
    cotangent::memory::reset_peak(self::device(device)?).or_raise()
}

#[pyfunction]
fn _dtype(py: Python<'_>, name: &str) -> PyResult<Py<PyDType>> {
    match by_name(name) {
        Some(dtype) => object(py, dtype),
        None => Err(PyTypeError::new_err(format!("unknown dtype {name}"))),
    }
}

/// The dtype to which two dtypes promote.
#[pyfunction]
fn promote_types(py: Python<'_>, type1: &Bound<'_, PyAny>, type2: &Bound<'_, PyAny>) -> PyResult<Py<PyDType>> {
    object(py, extract(type1)?.promote(extract(type2)?).or_raise()?)
}

/// The number of GPUs.
#[pyfunction]
fn _device_count() -> usize {
    (0..64).take_while(|&index| Device::cuda(index).is_available()).count()
}

/// Waits until a device has finished its work.
#[pyfunction]
fn _synchronize(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let device = self::device(device)?;
    py.detach(|| device.synchronize()).or_raise()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<PyDType>()?;
    module.add_class::<PyDevice>()?;
    for dtype in DType::ALL {
        module.add(name(dtype), object(py, dtype)?)?;
    }
    module.add_function(wrap_pyfunction!(_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(promote_types, module)?)?;
    module.add_function(wrap_pyfunction!(_default_device, module)?)?;
    module.add_function(wrap_pyfunction!(_set_default_device, module)?)?;
    module.add_function(wrap_pyfunction!(get_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(set_default_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(_empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(_reset_peak, module)?)?;
    module.add_function(wrap_pyfunction!(_device_count, module)?)?;
    module.add_function(wrap_pyfunction!(_synchronize, module)?)
}
