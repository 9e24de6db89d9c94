//! The one error type, and the two macros that build it.
//!
//! Every message begins with the name of the operation and holds the values that were refused, so that it can be
//! understood without a debugger: `matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ`.

use std::path::PathBuf;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused. The inputs of a refused call are as they were before it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sizes that do not fit each other or the operation.
    #[error("{op}: {message}")]
    Shape {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// An element type the operation does not take, or two that do not mix.
    #[error("{op}: {message}")]
    DType {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// A device that is missing, or operands on different devices.
    #[error("{op}: {message}")]
    Device {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// A dimension or an index out of range.
    #[error("{op}: {message}")]
    Index {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// A derivative that cannot be had: no graph, a freed one, an operation without a derivative, a foreign tape.
    #[error("{op}: {message}")]
    Graph {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// An argument outside its domain.
    #[error("{op}: {message}")]
    Value {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// A file or a saved state whose contents do not fit.
    #[error("{op}: {message}")]
    Format {
        /// The operation that refused.
        op: &'static str,
        /// What was wrong, with the values.
        message: String,
    },
    /// A failure below this crate: a driver, a compiler, a library.
    #[error("{op}: {message}")]
    Backend {
        /// The operation that failed.
        op: &'static str,
        /// What the layer below said.
        message: String,
    },
    /// Memory ran out, or the limit set for the device was reached, even after the cache was flushed.
    #[error(
        "{op}: out of memory: {requested} bytes asked for, {held} held from the system, {cached} of them cached, {} free",
        free.map_or_else(|| "an unknown number of bytes".to_string(), |f| format!("{f} bytes"))
    )]
    OutOfMemory {
        /// The operation that asked.
        op: &'static str,
        /// Bytes asked for.
        requested: usize,
        /// Bytes held from the system.
        held: usize,
        /// Bytes of those that no tensor uses.
        cached: usize,
        /// Bytes the system still had, where it says.
        free: Option<usize>,
    },
    /// Reading or writing a file failed.
    #[error("{op}: {path}: {source}", path = path.display())]
    Io {
        /// The operation that failed.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Builds an [`Error`] of a kind: `err!(Shape, "add", "{:?} and {:?} do not broadcast", a, b)`.
macro_rules! err {
    ($kind:ident, $op:expr, $($message:tt)+) => {
        $crate::Error::$kind { op: $op, message: format!($($message)+) }
    };
}

/// Returns an [`Error`] of a kind from the enclosing function; the arguments are those of `err!`.
macro_rules! bail {
    ($kind:ident, $op:expr, $($message:tt)+) => {
        return Err($crate::error::err!($kind, $op, $($message)+))
    };
}

pub(crate) use {bail, err};
