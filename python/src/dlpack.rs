//! Memory shared with other libraries: DLPack 1.x in both directions, and Python's buffer protocol.
//!
//! Exported memory is read-only for consumers, and changing the tensor copies it first. Some consumers ignore the read-only
//! flag, as PyTorch does: so DLPack exports a copy unless `copy=False` asks for the tensor's memory. NumPy and Cython require
//! writable memory, and get a copy through the buffer protocol as well. Imported memory is never written.

use crate::error::OrRaise;
use crate::tensor::PyTensor;
use crate::{data, dtype};
use cotangent::{DType, Device, Tensor};
use pyo3::exceptions::{PyBufferError, PyImportError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[repr(C)]
#[derive(Clone, Copy)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    dl_tensor: DLTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

#[repr(C)]
struct DLManagedTensorVersioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    flags: u64,
    dl_tensor: DLTensor,
}

const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

fn code(dtype: DType) -> DLDataType {
    let code = match dtype {
        DType::Bool => 6,
        DType::BF16 => 4,
        DType::C64 | DType::C128 => 5,
        dtype if dtype.is_float() => 2,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        _ => 0,
    };
    DLDataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

fn decode(given: DLDataType) -> PyResult<DType> {
    let same = |dtype: &DType| {
        let own = code(*dtype);
        (own.code, own.bits, own.lanes) == (given.code, given.bits, given.lanes)
    };
    DType::ALL.into_iter().find(same).ok_or_else(|| {
        let DLDataType { code, bits, lanes } = given;
        PyBufferError::new_err(format!(
            "from_dlpack: elements of code {code}, {bits} bits and {lanes} lanes are not supported"
        ))
    })
}

fn place(device: Device) -> DLDevice {
    match device {
        Device::Cuda(index) => DLDevice { device_type: CUDA, device_id: index as i32 },
        _ => DLDevice { device_type: CPU, device_id: 0 },
    }
}

/// The state held by a consumer: the tensor's handle, and the arrays that the struct points to.
struct Export {
    tensor: Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Export {
    fn new(tensor: Tensor) -> Export {
        let shape = tensor.shape().iter().map(|&size| size as i64).collect();
        let strides = tensor.strides().iter().map(|&stride| stride as i64).collect();
        Export { tensor, shape, strides }
    }

    /// The struct, which points into this box.
    fn describe(self: &mut Box<Export>) -> cotangent::Result<DLTensor> {
        let data = if self.tensor.numel() == 0 { ptr::null() } else { self.tensor.data_ptr()? };
        Ok(DLTensor {
            data: data.cast_mut().cast(),
            device: place(self.tensor.device()),
            ndim: self.shape.len() as i32,
            dtype: code(self.tensor.dtype()),
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        })
    }
}

unsafe extern "C" fn delete_plain(managed: *mut DLManagedTensor) {
    if !managed.is_null() {
        // SAFETY: both boxes were made by `__dlpack__`, and the consumer calls this once.
        unsafe {
            drop(Box::from_raw((*managed).manager_ctx.cast::<Export>()));
            drop(Box::from_raw(managed));
        }
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: as above.
        unsafe {
            drop(Box::from_raw((*managed).manager_ctx.cast::<Export>()));
            drop(Box::from_raw(managed));
        }
    }
}

/// Frees a capsule that no consumer has taken.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter passes a capsule that is about to be freed. The name determines what it holds, and that it was not taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

fn no_graph(op: &str, x: &Tensor) -> PyResult<()> {
    if x.requires_grad() {
        let text = format!("{op}: the tensor must not require a gradient: call detach() first");
        return Err(PyBufferError::new_err(text));
    }
    Ok(())
}

#[pymethods]
impl PyTensor {
    /// A capsule with the elements, for `from_dlpack` of another library: a copy, or with `copy=False` the tensor's own memory,
    /// read-only.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let mut x = self.get()?;
        no_graph("__dlpack__", &x)?;
        if x.device() == Device::Cpu && stream.is_some() {
            return Err(PyValueError::new_err("__dlpack__: stream must be None on the CPU"));
        }
        // A read-only flag does not protect from consumers that ignore it.
        let copied = copy != Some(false);
        if let Some((kind, index)) = dl_device {
            let own = place(x.device());
            if (kind, index) != (own.device_type, own.device_id) {
                if kind != CPU || copy == Some(false) {
                    let text = format!(
                        "__dlpack__: dl_device must be that of the tensor, {}, got ({kind}, {index})",
                        x.device()
                    );
                    return Err(PyBufferError::new_err(text));
                }
                x = py.detach(|| x.to_device(Device::Cpu)).or_raise()?;
            }
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if !versioned && !copied {
            return Err(PyBufferError::new_err(
                "__dlpack__: copy=False requires max_version=(1, 0), the first version with read-only memory",
            ));
        }
        if copied {
            x = py.detach(|| x.deep_clone()).or_raise()?;
        }
        if x.device() != Device::Cpu {
            py.detach(|| x.device().synchronize()).or_raise()?;
        }
        let mut export = Box::new(Export::new(x));
        py.detach(|| export.tensor.compute()).or_raise()?;
        let dl_tensor = export.describe().or_raise()?;
        let manager_ctx = Box::into_raw(export).cast();
        let (pointer, name): (*mut c_void, &CStr) = if versioned {
            let flags = if copied { IS_COPIED } else { READ_ONLY };
            let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut DLManagedTensorVersioned));
            let managed = DLManagedTensorVersioned { major: 1, minor: 1, manager_ctx, deleter, flags, dl_tensor };
            (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
        } else {
            let deleter = Some(delete_plain as unsafe extern "C" fn(*mut DLManagedTensor));
            (Box::into_raw(Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter })).cast(), PLAIN)
        };
        // SAFETY: the pointer is not null, and its target is freed by the destructor or by the consumer.
        unsafe {
            let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy));
            Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
        }
    }

    /// The device type and the device id of DLPack.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        let DLDevice { device_type, device_id } = place(self.get()?.device());
        Ok((device_type, device_id))
    }

    /// Exports a writable copy to NumPy and memoryview. Requests for plain bytes read the tensor's memory.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let access = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT { Access::Copied } else { Access::Shared };
        let x = slf.get().get()?;
        // SAFETY: the interpreter's promise.
        unsafe { fill_buffer(slf.into_any(), &x, access, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter passes a struct that `__getbuffer__` has filled, once.
        unsafe { release_buffer(view) }
    }
}

/// The current memory of a tensor, for readers.
#[pyclass(name = "_Memory", module = "cotangent._cotangent", frozen)]
pub struct PyMemory(Tensor);

#[pymethods]
impl PyMemory {
    #[new]
    fn py_new(x: &Bound<'_, PyTensor>) -> PyResult<PyMemory> {
        Ok(PyMemory(x.get().get()?))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let x = slf.get().0.clone();
        // SAFETY: the interpreter's promise.
        unsafe { fill_buffer(slf.into_any(), &x, Access::Shared, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter passes a struct that `__getbuffer__` has filled, once.
        unsafe { release_buffer(view) }
    }
}

/// The memory that a buffer exports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// The memory of the tensor, read-only.
    Shared,
    /// A writable copy.
    Copied,
}

/// Fills the description of a tensor's elements for the flags of a request.
///
/// # Safety
/// `view` points to a struct to fill, or is null.
unsafe fn fill_buffer(
    owner: Bound<'_, PyAny>,
    x: &Tensor,
    access: Access,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("view must not be null"));
    }
    // SAFETY: the caller's promise.
    let view = unsafe { &mut *view };
    view.obj = ptr::null_mut();
    no_graph("buffer", x)?;
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("the memory of a tensor is read-only: take a copy with numpy.asarray"));
    }
    let Some(format) = format(x.dtype()) else {
        let name = dtype::name(x.dtype());
        return Err(PyBufferError::new_err(format!(
            "the buffer protocol has no elements of {name}: cast the tensor first"
        )));
    };
    let strided = flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES;
    let prepared = owner.py().detach(|| {
        let on_cpu = x.to_device(Device::Cpu)?;
        let x = match access {
            // Elements from another device are already a copy.
            Access::Copied if x.device() == Device::Cpu => on_cpu.deep_clone()?,
            _ if strided => on_cpu,
            _ => on_cpu.contiguous()?,
        };
        x.compute()?;
        Ok(x)
    });
    let x: Tensor = prepared.or_raise()?;
    let size = x.dtype().size();
    let shape = x.shape().iter().map(|&size| size.cast_signed()).collect();
    let strides = x.strides().iter().map(|&stride| stride * size.cast_signed()).collect();
    let start = if x.numel() == 0 { NonNull::<u64>::dangling().as_ptr().cast() } else { x.data_ptr().or_raise()? };
    let mut held = Box::new(Held { shape, strides, tensor: x });
    view.buf = start.cast_mut().cast();
    view.len = (held.tensor.numel() * size).cast_signed();
    view.readonly = c_int::from(access == Access::Shared);
    view.itemsize = size.cast_signed();
    view.format =
        if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT { format.as_ptr().cast_mut() } else { ptr::null_mut() };
    view.ndim = held.shape.len() as c_int;
    view.shape = if flags & ffi::PyBUF_ND == ffi::PyBUF_ND { held.shape.as_mut_ptr() } else { ptr::null_mut() };
    view.strides = if strided { held.strides.as_mut_ptr() } else { ptr::null_mut() };
    view.suboffsets = ptr::null_mut();
    view.internal = Box::into_raw(held).cast();
    view.obj = owner.into_ptr();
    Ok(())
}

/// Frees what a buffer held.
///
/// # Safety
/// `view` was filled by [`fill_buffer`], and this is called once for it.
unsafe fn release_buffer(view: *mut ffi::Py_buffer) {
    // SAFETY: the caller's promise.
    unsafe {
        if !view.is_null() && !(*view).internal.is_null() {
            drop(Box::from_raw((*view).internal.cast::<Held>()));
            (*view).internal = ptr::null_mut();
        }
    }
}

/// The arrays that a buffer points to, and the tensor.
struct Held {
    shape: Vec<isize>,
    strides: Vec<isize>,
    tensor: Tensor,
}

/// The format of elements in Python's buffers.
fn format(dtype: DType) -> Option<&'static CStr> {
    // If C's `long` has 64 bits, it is NumPy's int64; `long long` is a different type, which not all consumers accept.
    const LONG: bool = size_of::<std::ffi::c_long>() == 8;
    Some(match dtype {
        DType::U64 if LONG => c"L",
        DType::I64 if LONG => c"l",
        DType::Bool => c"?",
        DType::U8 => c"B",
        DType::U16 => c"H",
        DType::U32 => c"I",
        DType::U64 => c"Q",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::C64 => c"Zf",
        DType::C128 => c"Zd",
        _ => return None,
    })
}

/// Imported memory, released when the last tensor over it is dropped.
struct Import {
    managed: *mut c_void,
    versioned: bool,
}

// SAFETY: a consumer may call the deleter on any thread; nothing else is done with the pointer.
unsafe impl Send for Import {}
// SAFETY: as above.
unsafe impl Sync for Import {}

/// Imported memory to release. The last tensor over it may be dropped on a thread that holds the lock of a variable and not
/// the interpreter, which the other library's deleter may wait for. So the deleter is called later, by a thread that holds the
/// interpreter.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
static IS_ANY_LEFT: AtomicBool = AtomicBool::new(false);

struct Left {
    managed: *mut c_void,
    versioned: bool,
}

// SAFETY: as for `Import`.
unsafe impl Send for Left {}

impl Drop for Import {
    fn drop(&mut self) {
        let left = Left { managed: self.managed, versioned: self.versioned };
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(left);
        IS_ANY_LEFT.store(true, Ordering::Release);
    }
}

/// Releases imported memory that is no longer used.
#[inline]
pub fn give_back(_py: Python<'_>) {
    if IS_ANY_LEFT.load(Ordering::Relaxed) {
        give_all_back();
    }
}

#[cold]
fn give_all_back() {
    IS_ANY_LEFT.store(false, Ordering::Release);
    let all = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    for left in all {
        // SAFETY: the struct was taken from its capsule, and this is the only call.
        unsafe {
            if left.versioned {
                let managed = left.managed.cast::<DLManagedTensorVersioned>();
                if let Some(delete) = (*managed).deleter {
                    delete(managed);
                }
            } else {
                let managed = left.managed.cast::<DLManagedTensor>();
                if let Some(delete) = (*managed).deleter {
                    delete(managed);
                }
            }
        }
    }
}

/// The tensor over the memory of a capsule, and whether the memory is read-only.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<(Tensor, bool)> {
    let capsule = capsule
        .cast::<PyCapsule>()
        .map_err(|_| PyTypeError::new_err("from_dlpack: __dlpack__ must return a capsule"))?;
    let pointer = capsule.as_ptr();
    // SAFETY: the functions take any capsule; the name determines the type of the pointer. It is renamed, so that its
    // destructor does not free it.
    let (managed, versioned) = unsafe {
        let (name, used, versioned) = if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
            (VERSIONED, VERSIONED_USED, true)
        } else if ffi::PyCapsule_IsValid(pointer, PLAIN.as_ptr()) == 1 {
            (PLAIN, PLAIN_USED, false)
        } else {
            return Err(PyBufferError::new_err("from_dlpack: the capsule must hold a tensor that was not used before"));
        };
        let managed = ffi::PyCapsule_GetPointer(pointer, name.as_ptr());
        if managed.is_null() || ffi::PyCapsule_SetName(pointer, used.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        (managed, versioned)
    };
    let owner = Import { managed, versioned };
    // SAFETY: the name determines the struct.
    let (described, read_only) = unsafe {
        if versioned {
            let managed = managed.cast::<DLManagedTensorVersioned>();
            if (*managed).major != 1 {
                let text =
                    format!("from_dlpack: DLPack version must be 1.x, got {}.{}", (*managed).major, (*managed).minor);
                return Err(PyBufferError::new_err(text));
            }
            (&(*managed).dl_tensor, (*managed).flags & READ_ONLY != 0)
        } else {
            (&(*managed.cast::<DLManagedTensor>()).dl_tensor, false)
        }
    };
    let dtype = decode(described.dtype)?;
    let device = match (described.device.device_type, usize::try_from(described.device.device_id)) {
        (CPU | CUDA_HOST, _) => Device::Cpu,
        (CUDA | CUDA_MANAGED, Ok(index)) => Device::Cuda(index),
        (kind, _) => return Err(PyBufferError::new_err(format!("from_dlpack: device type {kind} is not supported"))),
    };
    let rank =
        usize::try_from(described.ndim).ok().filter(|&rank| rank <= 1024 && (rank == 0 || !described.shape.is_null()));
    let Some(rank) = rank else {
        return Err(PyBufferError::new_err(format!(
            "from_dlpack: the array must have a shape of 0 to 1024 dimensions, got {}",
            described.ndim
        )));
    };
    // SAFETY: both arrays have a number for each dimension.
    let (shape, strides) = unsafe {
        let numbers = |start: *mut i64| if rank == 0 { &[][..] } else { std::slice::from_raw_parts(start, rank) };
        (numbers(described.shape), (!described.strides.is_null()).then(|| numbers(described.strides)))
    };
    let negative = || PyBufferError::new_err(format!("from_dlpack: sizes must not be negative, got {shape:?}"));
    let shape: Vec<usize> =
        shape.iter().map(|&size| usize::try_from(size).map_err(|_| negative())).collect::<PyResult<_>>()?;
    let strides = strides.map_or_else(|| data::row_major(&shape), |all| all.iter().map(|&s| s as isize).collect());
    let start = described.data.cast::<u8>().cast_const().wrapping_add(described.byte_offset as usize);
    // Bools are read as bytes, as other libraries may store any value.
    let stored = if dtype == DType::Bool { DType::U8 } else { dtype };
    // SAFETY: the producer promises that shape and strides describe memory that is there until the deleter is called.
    let shared = unsafe { Tensor::from_foreign(Arc::new(owner), start, shape, &strides, stored, device) };
    let shared = shared.or_raise()?;
    Ok((if dtype == DType::Bool { shared.ne(0).or_raise()? } else { shared }, read_only))
}

/// The capsule of an object, in the newest version that it supports.
fn capsule<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let options = PyDict::new(py);
    options.set_item("max_version", (1_u32, 1_u32))?;
    // The work of the other library on the GPU must be ordered before ours: 1 is the legacy default stream.
    if let Ok((kind, _)) = value.call_method0("__dlpack_device__").and_then(|device| device.extract::<(i32, i32)>())
        && kind == CUDA
    {
        options.set_item("stream", 1)?;
    }
    match value.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            options.del_item("max_version")?;
            value.call_method("__dlpack__", (), Some(&options))
        }
        other => other,
    }
}

/// The tensor that shares the memory of another library's array; `None` for other values.
pub fn import(value: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let py = value.py();
    if value.hasattr("__dlpack__")? {
        return match capsule(value).and_then(|capsule| take(&capsule)) {
            Ok((tensor, _)) => Ok(Some(tensor)),
            // Arrays that NumPy cannot export may be converted to ones that it can.
            Err(_) if value.hasattr("__array_interface__")? => from_numpy(py, value).map(Some),
            Err(error) => Err(error),
        };
    }
    if value.hasattr("__array_interface__")? || value.hasattr("__array__")? {
        return from_numpy(py, value).map(Some);
    }
    Ok(None)
}

/// The values of an object that NumPy converts to an array.
fn from_numpy(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let numpy = py.import("numpy").map_err(|_| PyImportError::new_err("numpy is needed to read this array"))?;
    let array = numpy.call_method1("asarray", (value,))?;
    let native = array.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    let options = PyDict::new(py);
    options.set_item("dtype", native)?;
    options.set_item("copy", true)?;
    let array = numpy.call_method("array", (array,), Some(&options))?;
    match capsule(&array).and_then(|capsule| take(&capsule)) {
        Ok((tensor, _)) => Ok(tensor),
        Err(_) => {
            let dtype = array.getattr("dtype")?;
            Err(PyTypeError::new_err(format!("arrays of {dtype} are not supported")))
        }
    }
}

/// A tensor that shares the memory of another library's array, and whether that is read-only for both.
#[pyfunction]
fn _from_dlpack(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<(Py<PyTensor>, bool)> {
    if let Ok(own) = value.cast::<PyTensor>() {
        let x = own.get().get()?;
        no_graph("from_dlpack", &x)?;
        return Ok((PyTensor::object(py, x.detach())?, false));
    }
    let taken = if value.is_instance_of::<PyCapsule>() { take(value) } else { capsule(value).and_then(|c| take(&c)) };
    let (tensor, read_only) = taken?;
    Ok((PyTensor::object(py, tensor)?, read_only))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMemory>()?;
    module.add_function(wrap_pyfunction!(_from_dlpack, module)?)
}
