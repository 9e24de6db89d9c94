//! Errors of the crate as Python exceptions, with the same messages.

use cotangent::{Error, ErrorKind, error::Location};
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};

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

/// Whether a signal handler has raised an exception, as that of Ctrl-C does. Long operations of the main thread, on which
/// Python handles signals, poll it. The exception is raised when the operation has ended.
fn is_signalled() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    })
}

/// Lets signals interrupt long operations, if this is the main thread.
pub fn heed_signals(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    if threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?) {
        cotangent::interrupt::set_poll(Some(is_signalled));
    }
    Ok(())
}

/// Drops exceptions that the crate has not passed on.
pub fn forget() {
    RAISED.take();
}

/// The exception for an error of the crate.
// By value, for `map_err`.
#[allow(clippy::needless_pass_by_value)]
pub fn raise(error: Error) -> PyErr {
    if let Some(raised) = RAISED.take() {
        return raised;
    }
    let text = without_rust(&error.to_string());
    match error.kind() {
        ErrorKind::DType => PyTypeError::new_err(text),
        ErrorKind::Index => PyIndexError::new_err(text),
        ErrorKind::OutOfMemory => PyMemoryError::new_err(text),
        ErrorKind::Io => PyOSError::new_err(text),
        ErrorKind::Graph | ErrorKind::Batched | ErrorKind::Backend | ErrorKind::Interrupted => {
            PyRuntimeError::new_err(text)
        }
        _ => PyValueError::new_err(text),
    }
}

/// As [`raise`], for a function that has another name in Python.
pub fn raise_as(op: &'static str, error: Error) -> PyErr {
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::Interrupted => raise(error),
        kind => raise(Error::new(kind, op, error.message())),
    }
}

/// The message without locations in the crate's source, which do not help Python users.
fn without_rust(text: &str) -> String {
    let mut text = text.to_string();
    while let Some(at) = text.find(" (called at ") {
        let Some(end) = text[at..].find(')').filter(|&end| text[at..at + end].contains(".rs:")) else { break };
        text.replace_range(at..=at + end, "");
    }
    text
}

thread_local! {
    /// Whether operations record the Python lines that called them.
    static LINES: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether operations of this thread record the Python lines that called them, which takes time.
pub fn set_lines(on: bool) {
    LINES.set(on);
}

/// Runs an operation that was called from Python.
#[inline]
pub fn placed<R>(py: Python<'_>, f: impl FnOnce() -> R) -> R {
    if LINES.get() { cotangent::error::with_location(line(py), f) } else { f() }
}

/// The line of Python that is running.
fn line(py: Python<'_>) -> Location {
    let read = || -> PyResult<Location> {
        let frame = py.import("sys")?.call_method0("_getframe")?;
        let file: String = frame.getattr("f_code")?.getattr("co_filename")?.extract()?;
        Ok(Location::new(file, frame.getattr("f_lineno")?.extract()?))
    };
    read().unwrap_or_else(|_| Location::new("Python", 0))
}

/// `raise` for results.
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
