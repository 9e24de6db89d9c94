//! Errors of the crate as Python's exceptions, with the same messages.

use cotangent::{Error, ErrorKind};
use pyo3::exceptions::{
    PyIndexError, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// An exception of a Python function that the crate has called, on its way through the crate.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// An error of the crate that stands for an exception, which [`raise`] raises again.
pub fn carry(error: PyErr) -> Error {
    let text = Python::attach(|py| format!("{} was raised: {error}", error.get_type(py)));
    RAISED.set(Some(error));
    Error::new(ErrorKind::Value, "python", text)
}

/// Forgets exceptions that the crate has not passed on.
pub fn forget() {
    RAISED.take();
}

/// The exception for an error of the crate.
pub fn raise(error: Error) -> PyErr {
    if let Some(raised) = RAISED.take() {
        return raised;
    }
    let text = error.to_string();
    match error.kind() {
        ErrorKind::DType => PyTypeError::new_err(text),
        ErrorKind::Index => PyIndexError::new_err(text),
        ErrorKind::OutOfMemory => PyMemoryError::new_err(text),
        ErrorKind::Io => PyOSError::new_err(text),
        ErrorKind::Graph | ErrorKind::Batched | ErrorKind::Backend => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// The same of results.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for cotangent::Result<T> {
    #[inline]
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raise)
    }
}
