//! Python's operators that need nothing of their own.
// PyO3's part of methods that a macro writes calls unsafe functions without saying so again.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::tensor::{PyTensor, binary, in_place, reflected};
use pyo3::prelude::*;

/// The methods of an operator in its three forms.
macro_rules! operators {
    ($($forward:ident $backward:ident $change:ident $name:literal: $f:ident;)+) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[inline]
                fn $forward(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    binary(self, other, |a, b| a.$f(b))
                }

                fn $backward(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                    reflected(self, other, |a, b| a.$f(b))
                }

                fn $change(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    in_place(self, other, |x, other| x.change($name, |x| x.$f(other)))
                }
            )+
        }
    };
}

operators! {
    __floordiv__ __rfloordiv__ __ifloordiv__ "floor_divide_": floor_divide;
    __mod__ __rmod__ __imod__ "remainder_": remainder;
    __and__ __rand__ __iand__ "bitwise_and_": bitwise_and;
    __or__ __ror__ __ior__ "bitwise_or_": bitwise_or;
    __xor__ __rxor__ __ixor__ "bitwise_xor_": bitwise_xor;
    __lshift__ __rlshift__ __ilshift__ "bitwise_left_shift_": bitwise_left_shift;
    __rshift__ __rrshift__ __irshift__ "bitwise_right_shift_": bitwise_right_shift;
}
