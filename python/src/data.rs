//! Tensors from Python values: numbers, nested sequences, and arrays of other libraries.

use crate::args::{self, type_name};
use crate::error::OrRaise;
use crate::tensor::PyTensor;
use crate::{dlpack, dtype, number};
use cotangent::{Complex, DType, Device, Element, Scalar, Tensor, TensorOptions};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The deepest nesting of sequences: deeper ones contain themselves.
const DEEPEST: usize = 64;

/// An optional dtype and an optional device.
#[derive(Clone, Copy, Default)]
pub struct Options {
    pub dtype: Option<DType>,
    pub device: Option<Device>,
}

impl From<Options> for TensorOptions {
    fn from(options: Options) -> TensorOptions {
        TensorOptions::new().dtype(options.dtype).device(options.device)
    }
}

pub fn options(dtype: Option<&Bound<'_, PyAny>>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Options> {
    let dtype = dtype.filter(|value| !value.is_none()).map(dtype::extract).transpose()?;
    let device = device.filter(|value| !value.is_none()).map(dtype::device).transpose()?;
    Ok(Options { dtype, device })
}

/// A tensor with a copy of the values.
pub fn tensor(value: &Bound<'_, PyAny>, options: Options) -> PyResult<Tensor> {
    let py = value.py();
    let own = |x: Tensor| {
        let made = py.detach(|| {
            let x = x.detach();
            let made =
                x.to_dtype(options.dtype.unwrap_or(x.dtype()))?.to_device(options.device.unwrap_or(x.device()))?;
            if made.shares_memory(&x) { made.deep_clone() } else { Ok(made) }
        });
        made.or_raise()
    };
    if let Ok(tensor) = value.cast::<PyTensor>() {
        return own(tensor.get().get()?);
    }
    if let Some(shared) = dlpack::import(value)? {
        return own(shared);
    }
    let mut nested = Nested::default();
    nested.push(value, 0, false)?;
    nested.tensor(Options { device: options.device.or(dtype::default_device()), ..options })
}

/// Numbers of nested sequences, in row-major order.
#[derive(Default)]
struct Nested {
    shape: Vec<usize>,
    numbers: Vec<Scalar>,
    /// The kinds of Python numbers among them, which have no dtype.
    plain: Kinds,
    /// The common dtype of tensors, arrays and NumPy scalars among them.
    dtype: Option<DType>,
}

#[derive(Default)]
struct Kinds {
    complex: bool,
    float: bool,
    unsigned: bool,
    int: bool,
    bool: bool,
}

impl Kinds {
    fn add(&mut self, number: Scalar) {
        match number {
            Scalar::C128(_) => self.complex = true,
            Scalar::F64(_) => self.float = true,
            Scalar::U64(_) => self.unsigned = true,
            Scalar::I64(_) => self.int = true,
            Scalar::Bool(_) => self.bool = true,
        }
    }

    /// The dtype of a tensor of such numbers; `None` if there are none.
    fn dtype(&self) -> Option<DType> {
        let kinds = [
            (self.complex, dtype::default_complex()),
            (self.float, dtype::default_float()),
            (self.unsigned, DType::U64),
            (self.int, DType::I64),
            (self.bool, DType::Bool),
        ];
        kinds.into_iter().find_map(|(is, dtype)| is.then_some(dtype))
    }
}

impl Nested {
    /// Adds a number or the numbers of a sequence; `known` if their dtype is already counted.
    fn push(&mut self, value: &Bound<'_, PyAny>, depth: usize, known: bool) -> PyResult<()> {
        let ragged = || PyValueError::new_err("tensor: items of a nested sequence must have the same shape");
        if let Some(number) = number::scalar(value)? {
            if self.shape.len() != depth {
                return Err(ragged());
            }
            match if known { None } else { number::numpy_dtype(value)? } {
                Some(dtype) => self.join(dtype)?,
                None if !known => self.plain.add(number),
                None => {}
            }
            self.numbers.push(number);
            return Ok(());
        }
        let tensor = match value.cast::<PyTensor>() {
            Ok(tensor) => Some(tensor.get().get()?),
            Err(_) if known => None,
            Err(_) => dlpack::import(value)?,
        };
        if let Some(tensor) = tensor {
            self.join(tensor.dtype())?;
            let list = crate::convert::to_list(value.py(), &tensor)?;
            return self.push(list.bind(value.py()), depth, true);
        }
        let Some(items) = args::items(value) else {
            return Err(PyTypeError::new_err(format!(
                "tensor: data must be numbers, nested sequences or arrays, got {}",
                type_name(value)
            )));
        };
        if depth >= DEEPEST {
            return Err(PyValueError::new_err(format!("tensor: sequences must be nested at most {DEEPEST} deep")));
        }
        if self.shape.len() == depth && self.numbers.is_empty() {
            self.shape.push(items.len());
        } else if self.shape.get(depth) != Some(&items.len()) {
            return Err(ragged());
        }
        items.iter().try_for_each(|item| self.push(item, depth + 1, known))
    }

    fn join(&mut self, dtype: DType) -> PyResult<()> {
        self.dtype = Some(self.dtype.map_or(Ok(dtype), |own| own.promote(dtype)).or_raise()?);
        Ok(())
    }

    fn tensor(self, options: Options) -> PyResult<Tensor> {
        let Nested { shape, numbers, plain, dtype } = self;
        if numbers.len() != shape.iter().product::<usize>() {
            return Err(PyValueError::new_err("tensor: items of a nested sequence must have the same shape"));
        }
        let natural = match (plain.dtype(), dtype) {
            (Some(plain), Some(dtype)) => plain.promote(dtype).or_raise()?,
            (plain, dtype) => plain.or(dtype).unwrap_or_else(dtype::default_float),
        };
        let dtype = options.dtype.unwrap_or(natural);
        numbers.iter().try_for_each(|&number| check(number, dtype))?;
        let options = Options { dtype: Some(dtype), ..options };
        match dtype {
            DType::C64 | DType::C128 => of::<Complex<f64>>(&numbers, shape, options),
            DType::U64 => of::<u64>(&numbers, shape, options),
            DType::Bool => of::<bool>(&numbers, shape, options),
            dtype if dtype.is_int() => of::<i64>(&numbers, shape, options),
            _ => of::<f64>(&numbers, shape, options),
        }
    }
}

/// Refuses numbers that are out of range for the dtype.
fn check(number: Scalar, dtype: DType) -> PyResult<()> {
    if let (Scalar::C128(z), false) = (number, dtype.is_complex()) {
        return Err(PyTypeError::new_err(format!(
            "tensor: {z} is not an element of {}, which is real",
            dtype::name(dtype)
        )));
    }
    let whole = match number {
        Scalar::I64(x) => i128::from(x),
        Scalar::U64(x) => i128::from(x),
        _ => return Ok(()),
    };
    let (low, high) = match dtype {
        DType::U8 => (0, i128::from(u8::MAX)),
        DType::U16 => (0, i128::from(u16::MAX)),
        DType::U32 => (0, i128::from(u32::MAX)),
        DType::U64 => (0, i128::from(u64::MAX)),
        DType::I8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
        DType::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
        DType::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        DType::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => return Ok(()),
    };
    if whole < low || whole > high {
        return Err(PyOverflowError::new_err(format!("tensor: {whole} is out of range for {}", dtype::name(dtype))));
    }
    Ok(())
}

fn of<T: Element>(numbers: &[Scalar], shape: Vec<usize>, options: Options) -> PyResult<Tensor> {
    let elements: Vec<T> = numbers.iter().map(|&number| T::from_scalar(number)).collect();
    Tensor::from_vec_with(elements, shape, options).or_raise()
}

/// A tensor with a copy of numbers, nested sequences, or another array.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false))]
fn tensor_(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    device: Option<&Bound<'_, PyAny>>,
    requires_grad: bool,
) -> PyResult<Py<PyTensor>> {
    let given = options(dtype, device)?;
    let made = tensor(data, Options { device: given.device.or(dtype::default_device()), ..given })?;
    PyTensor::object(py, made.requires_grad_(requires_grad).or_raise()?)
}

/// Rebuilds a pickled tensor.
#[pyfunction]
fn _rebuild(
    py: Python<'_>,
    bytes: &Bound<'_, PyBytes>,
    shape: Vec<usize>,
    dtype: &Bound<'_, PyAny>,
    device: &Bound<'_, PyAny>,
    requires_grad: bool,
) -> PyResult<Py<PyTensor>> {
    let (dtype, device) = (dtype::extract(dtype)?, dtype::device(device)?);
    let bytes = bytes.as_bytes();
    let wanted = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size));
    if wanted != Some(bytes.len()) {
        return Err(PyValueError::new_err(format!("{} bytes do not match shape {shape:?}", bytes.len())));
    }
    let make = || {
        if bytes.is_empty() {
            return Tensor::zeros_with(shape, (dtype, device));
        }
        let strides = row_major(&shape);
        let stored = if dtype == DType::Bool { DType::U8 } else { dtype };
        // Words of eight bytes, so that elements of every dtype are aligned.
        let mut owned = vec![0_u64; bytes.len().div_ceil(8)];
        // SAFETY: the vector has at least as many bytes, and the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), owned.as_mut_ptr().cast(), bytes.len()) };
        let owner = std::sync::Arc::new(owned);
        let start = owner.as_ptr().cast();
        // SAFETY: the vector holds these elements, is never changed, and lives as long as the tensor.
        let shared = unsafe { Tensor::from_foreign(owner, start, shape, &strides, stored, Device::Cpu) }?;
        // Bytes of bools are normalised to 0 and 1.
        let own = if dtype == DType::Bool { shared.ne(0)? } else { shared.deep_clone()? };
        own.to_device(device)
    };
    let made = make().or_raise()?;
    PyTensor::object(py, made.requires_grad_(requires_grad).or_raise()?)
}

/// The strides of a contiguous tensor.
pub fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1_isize; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at].saturating_mul(shape[at].max(1).cast_signed());
    }
    strides
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let made = wrap_pyfunction!(tensor_, module)?;
    module.add("_tensor", made)?;
    module.add_function(wrap_pyfunction!(_rebuild, module)?)
}
