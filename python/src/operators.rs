//! Python's operators.
// PyO3's macro code calls unsafe functions without unsafe blocks.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::args;
use crate::error::{self, OrRaise};
use crate::tensor::{PyTensor, SMALL};
use crate::{dtype, number};
use cotangent::ops::Numbers;
use cotangent::{DType, Device, ErrorKind, Result, Scalar, Tensor, arguments::Operand};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

type Binary = fn(&Tensor, Operand<'_>) -> Result<Tensor>;

/// A Python operator. `NotImplemented` for unknown operands.
#[inline]
pub fn binary(x: &PyTensor, other: &Bound<'_, PyAny>, f: Binary) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let mut x = x.get()?;
    if let Some(default) = dtype::other_default() {
        x = in_default_dtype(x, other, default, f)?;
    }
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
    PyTensor::result(py, result.or_raise()?).map(Py::into_any)
}

/// Casts integers to the default float dtype, if the operator gives floats for integer operands.
#[cold]
fn in_default_dtype(x: Tensor, other: &Bound<'_, PyAny>, default: DType, f: Binary) -> PyResult<Tensor> {
    let whole = |x: &Tensor| !x.dtype().is_float() && !x.dtype().is_complex();
    if !whole(&x) {
        return Ok(x);
    }
    // The dtype of the result is found with empty tensors.
    let none = |x: &Tensor| Tensor::zeros_with([0], (x.dtype(), x.device())).or_raise();
    let result = match (other.cast::<PyTensor>(), number::scalar(other)?) {
        (Ok(other), _) => {
            let other = other.get().get()?;
            if !whole(&other) {
                return Ok(x);
            }
            f(&none(&x)?, Operand::Borrowed(&none(&other)?))
        }
        (_, Some(number)) => f(&none(&x)?, Operand::Scalar(number)),
        _ => return Ok(x),
    };
    match result {
        Ok(made) if matches!(made.dtype(), DType::F32 | DType::C64) => x.to_dtype(default).or_raise(),
        // Invalid operands are reported where they are used.
        _ => Ok(x),
    }
}

/// A reflected operator, with the number on the left, by the operation's name and its rule for numbers.
pub fn reflected(
    x: &PyTensor,
    other: &Bound<'_, PyAny>,
    (op, rule): (&str, Numbers),
    f: Binary,
) -> PyResult<Py<PyAny>> {
    let py = other.py();
    let Some(number) = number::scalar(other)? else { return Ok(py.NotImplemented()) };
    let mut x = x.get()?;
    if let Some(default) = dtype::other_default() {
        x = in_default_dtype(x, other, default, f)?;
    }
    let left = as_operand(op, number, (x.dtype(), x.device()), rule)?;
    let run = || f(&left, Operand::Borrowed(&x));
    let result = if x.numel() > SMALL { py.detach(run) } else { run() };
    PyTensor::result(py, result.or_raise()?).map(Py::into_any)
}

/// A number as a tensor for operands of this dtype and device, rounded once.
pub fn as_operand(op: &str, number: Scalar, (dtype, device): (DType, Device), rule: Numbers) -> PyResult<Tensor> {
    let dtype = number::promote_with(number, dtype);
    let made = match rule {
        // Integers wrap around when they are cast.
        Numbers::Wrapped if dtype.is_int() => {
            Tensor::full_with((), number, device).and_then(|number| number.to_dtype(dtype))
        }
        Numbers::Elements | Numbers::Wrapped => Tensor::full_with((), number, (dtype, device)),
        Numbers::Floats => Tensor::full_with((), number, (dtype.to_float(), device)),
    };
    match made {
        // `full` was not called by the user.
        Err(e) if e.kind() == ErrorKind::Value => {
            Err(PyValueError::new_err(format!("{op}: {number} is out of range for {dtype}: cast the tensor first")))
        }
        made => made.or_raise(),
    }
}

/// An in-place operator.
pub fn in_place(x: &PyTensor, other: &Bound<'_, PyAny>, f: fn(&mut Tensor, Operand<'_>) -> Result<()>) -> PyResult<()> {
    let (py, large) = (other.py(), x.get()?.numel() > SMALL);
    let run = |operand: Operand<'_>| {
        let change = |x: &mut Tensor| f(x, operand);
        if large { py.detach(|| x.modify(change)) } else { x.modify(change) }
    };
    if let Ok(other) = other.cast::<PyTensor>() {
        return run(Operand::Borrowed(&other.get().get()?));
    }
    match number::scalar(other)? {
        Some(number) => run(Operand::Scalar(number)),
        None => Err(PyTypeError::new_err(format!(
            "the operand must be a Tensor or a number, got {}",
            args::type_name(other)
        ))),
    }
}

fn unary(x: &PyTensor, py: Python<'_>, f: fn(&Tensor) -> Result<Tensor>) -> PyResult<Py<PyTensor>> {
    let x = x.get()?;
    let result = if x.numel() > SMALL { py.detach(|| f(&x)) } else { f(&x) };
    PyTensor::result(py, result.or_raise()?)
}

#[pymethods]
impl PyTensor {
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
        reflected(self, other, ("sub", Numbers::Wrapped), |a, b| a.sub(b))
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
        reflected(self, other, ("div", Numbers::Floats), |a, b| a.div(b))
    }

    fn __itruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        in_place(self, other, |x, other| x.div_(other))
    }

    fn __pow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() { Ok(other.py().NotImplemented()) } else { binary(self, other, |a, b| a.pow(b)) }
    }

    fn __rpow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        if modulo.is_some() {
            Ok(other.py().NotImplemented())
        } else {
            reflected(self, other, ("pow", Numbers::Elements), |a, b| a.pow(b))
        }
    }

    fn __ipow__(&self, other: &Bound<'_, PyAny>, _modulo: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        in_place(self, other, |x, other| x.change("pow_", |x| x.pow(other)))
    }

    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(other) = other.cast::<PyTensor>() else { return Ok(other.py().NotImplemented()) };
        let (py, x, other) = (other.py(), self.get()?, other.get().get()?);
        let result = py.detach(|| x.matmul(&other)).or_raise()?;
        PyTensor::result(py, result).map(Py::into_any)
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
}

/// The methods of an operator in its three forms.
macro_rules! operators {
    ($($forward:ident $backward:ident $change:ident $name:literal: $f:ident $numbers:ident;)+) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[inline]
                fn $forward(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    binary(self, other, |a, b| a.$f(b))
                }

                fn $backward(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    reflected(self, other, (stringify!($f), Numbers::$numbers), |a, b| a.$f(b))
                }

                fn $change(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    in_place(self, other, |x, other| x.change($name, |x| x.$f(other)))
                }
            )+
        }
    };
}

operators! {
    __floordiv__ __rfloordiv__ __ifloordiv__ "floor_divide_": floor_divide Elements;
    __mod__ __rmod__ __imod__ "remainder_": remainder Elements;
    __and__ __rand__ __iand__ "bitwise_and_": bitwise_and Wrapped;
    __or__ __ror__ __ior__ "bitwise_or_": bitwise_or Wrapped;
    __xor__ __rxor__ __ixor__ "bitwise_xor_": bitwise_xor Wrapped;
    __lshift__ __rlshift__ __ilshift__ "bitwise_left_shift_": bitwise_left_shift Elements;
    __rshift__ __rrshift__ __irshift__ "bitwise_right_shift_": bitwise_right_shift Elements;
}
