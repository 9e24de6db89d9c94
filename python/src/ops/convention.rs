//! The calling convention of built-in functions: one function for each index of the list.

use super::{call, change};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The arguments of a built-in function: positional ones, then keyword ones.
pub struct Given<'a> {
    pub own: Option<*mut ffi::PyObject>,
    pub args: &'a [*mut ffi::PyObject],
    pub named: &'a [*mut ffi::PyObject],
    pub names: *mut ffi::PyObject,
}

impl Given<'static> {
    /// # Safety
    /// The arguments are those that the interpreter passes to a function with this convention, and the value is used only
    /// during the call.
    unsafe fn new(
        own: Option<*mut ffi::PyObject>,
        args: *const *mut ffi::PyObject,
        count: ffi::Py_ssize_t,
        names: *mut ffi::PyObject,
    ) -> Given<'static> {
        // SAFETY: a non-null value is a tuple of names.
        let named = if names.is_null() { 0 } else { unsafe { ffi::PyTuple_Size(names) } };
        let (count, named) = (count.max(0).unsigned_abs(), named.max(0).unsigned_abs());
        let all: &'static [*mut ffi::PyObject] = if args.is_null() || count + named == 0 {
            &[]
        } else {
            // SAFETY: the interpreter passes an array of this many objects, which live as long as the call.
            unsafe { std::slice::from_raw_parts(args, count + named) }
        };
        let (args, named) = all.split_at(count.min(all.len()));
        Given { own, args, named, names }
    }
}

pub type Function = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The entry point of calls from Python. Errors and panics become exceptions.
unsafe fn enter(
    given: impl FnOnce() -> Given<'static>,
    f: impl FnOnce(Python<'_>, &Given<'_>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let error = match catch_unwind(AssertUnwindSafe(|| f(py, &given()))) {
            Ok(Ok(result)) => return result.into_ptr(),
            Ok(Err(error)) => error,
            Err(_) => PyRuntimeError::new_err("internal error: this is a bug in cotangent"),
        };
        error.restore(py);
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn function<const N: usize>(
    _module: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter as the convention of the method says.
    unsafe { enter(|| Given::new(None, args, count, names), |py, given| call(py, N, given)) }
}

unsafe extern "C" fn method<const N: usize>(
    own: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { enter(|| Given::new(Some(own), args, count, names), |py, given| call(py, N, given)) }
}

unsafe extern "C" fn changing<const N: usize>(
    own: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe { enter(|| Given::new(Some(own), args, count, names), |py, given| change(py, N, given)) }
}

/// Sixteen functions with consecutive indices.
macro_rules! sixteen {
    ($f:ident, $from:expr) => {
        [
            $f::<{ $from }>,
            $f::<{ $from + 1 }>,
            $f::<{ $from + 2 }>,
            $f::<{ $from + 3 }>,
            $f::<{ $from + 4 }>,
            $f::<{ $from + 5 }>,
            $f::<{ $from + 6 }>,
            $f::<{ $from + 7 }>,
            $f::<{ $from + 8 }>,
            $f::<{ $from + 9 }>,
            $f::<{ $from + 10 }>,
            $f::<{ $from + 11 }>,
            $f::<{ $from + 12 }>,
            $f::<{ $from + 13 }>,
            $f::<{ $from + 14 }>,
            $f::<{ $from + 15 }>,
        ]
    };
}

/// A function for each index below 1024, as Python does not pass the index.
macro_rules! numbered {
    ($f:ident) => {
        numbered!(@ $f 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $f:ident $($row:literal)+) => { [$(sixteen!($f, $row * 16)),+] };
}

pub static FUNCTIONS: [[Function; 16]; 64] = numbered!(function);
pub static METHODS: [[Function; 16]; 64] = numbered!(method);
pub static CHANGES: [[Function; 16]; 64] = numbered!(changing);
