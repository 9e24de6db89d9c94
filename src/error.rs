//! Errors: what every fallible call returns.
//!
//! Every message begins with the name of the operation that was called and contains the values that were refused:
//! `matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ`.
#![forbid(unsafe_code)]

// Operations often call others. An error is first made with the name of the operation that fails, by `bail!` or `err!`. On the way
// out every public function replaces it by its own name and its caller's line (`Error::within`), so that the user sees the function
// that was called.

pub use crate::location::{Location, Name, with_location};
use std::fmt;
use std::path::Path;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of this crate. A failed call does not change its inputs.
///
/// ```
/// use cotangent::{ErrorKind, Tensor};
/// let (a, b) = (Tensor::zeros([2, 3])?, Tensor::zeros([4, 5])?);
/// let error = a.matmul(&b).err().ok_or("it should fail")?;
/// assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, "matmul"));
/// assert_eq!(error.to_string(), "matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ");
/// // `Debug`, which `fn main() -> Result<()>` prints, includes the source line.
/// assert!(format!("{error:?}").contains(error.location().ok_or("it has a location")?.file()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Behind a pointer, so that a `Result<Tensor>` is no larger than a tensor.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    op: Name,
    location: Option<Location>,
    cause: Cause,
}

enum Cause {
    Message(String),
    OutOfMemory(OutOfMemory),
    /// Reading or writing a file failed.
    Io(String, std::io::Error),
}

/// The kind of an error.
///
/// ```
/// use cotangent::{DType, ErrorKind, Tensor};
/// let x = Tensor::zeros_with([2], DType::I64)?;
/// assert!(x.mean(..).is_err_and(|error| error.kind() == ErrorKind::DType));
/// assert!(x.backward().is_err_and(|error| error.kind() == ErrorKind::Graph));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Sizes that do not match each other or the operation.
    Shape,
    /// A dtype that the operation does not support, or two that have no common dtype.
    DType,
    /// A device that does not exist, or operands on different devices.
    Device,
    /// A dimension or an index out of range.
    Index,
    /// A derivative that does not exist: no graph, a freed graph, an operation without a derivative, another tape.
    Graph,
    /// An argument outside its domain.
    Value,
    /// A file or a saved state with invalid or unexpected contents.
    Format,
    /// The values of a batched tensor were read inside of a [`vmap`](crate::vmap()).
    Batched,
    /// A failure of a driver, a compiler or a library.
    Backend,
    /// Memory ran out, or the limit set for the device was reached, even after the cache was emptied.
    OutOfMemory,
    /// Reading or writing a file failed.
    Io,
    /// The operation was interrupted: see [`interrupt`](crate::interrupt).
    Interrupted,
}

/// The figures of an error of [`ErrorKind::OutOfMemory`], in bytes.
///
/// ```
/// use cotangent::{Device, Tensor, memory};
/// memory::set_limit(Device::Cpu, Some(64 << 20))?;
/// let error = Tensor::zeros([1 << 26]).err().ok_or("it should fail")?;
/// memory::set_limit(Device::Cpu, None)?;
/// let figures = error.memory().ok_or("it has figures")?;
/// println!("{} bytes asked for, {} cached", figures.requested, figures.cached);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes requested.
    pub requested: usize,
    /// Bytes allocated from the system.
    pub held: usize,
    /// Bytes of these that no tensor uses.
    pub cached: usize,
    /// Free bytes of the system, if known.
    pub free: Option<usize>,
}

impl Error {
    /// A user-defined error, for example for a [custom function](crate::autograd::Function).
    ///
    /// ```
    /// use cotangent::{Error, ErrorKind, Result, Tensor};
    ///
    /// fn first_row(x: &Tensor) -> Result<Tensor> {
    ///     if x.rank() != 2 {
    ///         return Err(Error::new(ErrorKind::Shape, "first_row", format!("x must be a matrix, got shape {:?}", x.shape())));
    ///     }
    ///     x.select(0, 0)
    /// }
    ///
    /// let error = first_row(&Tensor::zeros([3])?).err().map(|e| e.to_string());
    /// assert_eq!(error.as_deref(), Some("first_row: x must be a matrix, got shape [3]"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[track_caller]
    pub fn new(kind: ErrorKind, op: impl Into<Name>, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            op: op.into(),
            location: Some(Location::caller()),
            cause: Cause::Message(message.into()),
        }))
    }

    /// As [`new`](Self::new), without a place: that is known where the call came in.
    #[cold]
    #[inline(never)]
    pub(crate) fn made(kind: ErrorKind, op: Name, message: String) -> Error {
        Error(Box::new(Inner { kind, op, location: None, cause: Cause::Message(message) }))
    }

    #[cold]
    pub(crate) fn out_of_memory(op: &'static str, figures: OutOfMemory) -> Error {
        let cause = Cause::OutOfMemory(figures);
        Error(Box::new(Inner { kind: ErrorKind::OutOfMemory, op: op.into(), location: None, cause }))
    }

    /// An error of the system about a file.
    #[cold]
    pub(crate) fn io(op: &'static str, path: &Path, source: std::io::Error) -> Error {
        let cause = Cause::Io(path.display().to_string(), source);
        Error(Box::new(Inner { kind: ErrorKind::Io, op: op.into(), location: None, cause }))
    }

    /// The kind of the error.
    ///
    /// ```
    /// use cotangent::{ErrorKind, Tensor};
    /// let failed = Tensor::zeros([2])?.select(0, 5);
    /// assert!(failed.is_err_and(|error| error.kind() == ErrorKind::Index));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that was called.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// assert!(Tensor::zeros([2])?.select(0, 5).is_err_and(|error| error.op() == "select"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// The source line of the call.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let error = Tensor::zeros([2])?.select(0, 5).err().ok_or("it should fail")?;
    /// println!("{}", error.location().ok_or("it has one")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn location(&self) -> Option<&Location> {
        self.0.location.as_ref()
    }

    /// The message without the operation's name.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let error = Tensor::zeros([2, 3])?.view([5]).err().ok_or("it should fail")?;
    /// assert_eq!(error.to_string(), format!("view: {}", error.message()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message(&self) -> String {
        self.0.cause.to_string()
    }

    /// The memory figures, if memory ran out.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, memory};
    /// memory::set_limit(Device::Cpu, Some(64 << 20))?;
    /// let figures = Tensor::zeros([1 << 26]).err().and_then(|error| error.memory());
    /// memory::set_limit(Device::Cpu, None)?;
    /// assert!(figures.is_some_and(|figures| figures.requested >= 1 << 28));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn memory(&self) -> Option<OutOfMemory> {
        match self.0.cause {
            Cause::OutOfMemory(figures) => Some(figures),
            _ => None,
        }
    }

    /// The error with the name and the source line of the function that the user called.
    #[cold]
    #[inline(never)]
    pub(crate) fn within(mut self, op: impl Into<Name>, location: Location) -> Error {
        (self.0.op, self.0.location) = (op.into(), Some(location));
        self
    }

    /// The error with a source line, if it has none yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn or_at(mut self, location: Location) -> Error {
        self.0.location.get_or_insert(location);
        self
    }

    /// Adds the failing operation and its source line to the message of an error in user code, before the error gets the name of
    /// the backward pass that called it.
    pub(crate) fn inside(self) -> Error {
        let location = self.location().map_or_else(String::new, |location| format!(" (called at {location})"));
        let failed = format!("{}{location}", self.op());
        self.context(failed)
    }

    /// The error with a context in front of the message.
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Error {
        match &mut self.0.cause {
            Cause::Message(text) | Cause::Io(text, _) => *text = format!("{context}: {text}"),
            // It has figures in place of a message.
            Cause::OutOfMemory(_) => {}
        }
        self
    }
}

/// The result of a public function, with the function's name and the caller's line in an error.
#[track_caller]
#[inline]
pub(crate) fn named<T>(op: &'static str, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.within(op, Location::caller())),
    }
}

/// As [`named`], for a function that calls user code: an error of that keeps its name and line.
#[track_caller]
#[inline]
pub(crate) fn placed<T>(result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.or_at(Location::caller())),
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Message(message) => f.write_str(message),
            Cause::Io(path, source) => write!(f, "{path}: {source}"),
            Cause::OutOfMemory(OutOfMemory { requested, held, cached, free }) => {
                let free =
                    free.map_or_else(|| "an unknown number of bytes".to_string(), |free| format!("{free} bytes"));
                write!(
                    f,
                    "out of memory: {requested} bytes requested, {held} held from the system, {cached} of them cached, {free} free"
                )
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.op, self.0.cause)
    }
}

/// As `Display`, with the place: this is what a program prints whose `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        self.location().map_or(Ok(()), |location| write!(f, "\n    at {location}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Io(_, source) => Some(source),
            _ => None,
        }
    }
}

/// Builds an [`Error`] of a kind: `err!(Shape, "add", "{:?} and {:?} do not broadcast", a, b)`.
macro_rules! err {
    ($kind:ident, $op:expr, $($message:tt)+) => {
        $crate::Error::made($crate::ErrorKind::$kind, $op.into(), format!($($message)+))
    };
}

/// Returns an [`Error`] of a kind from the enclosing function; the arguments are those of `err!`.
macro_rules! bail {
    ($kind:ident, $op:expr, $($message:tt)+) => {
        return Err($crate::error::err!($kind, $op, $($message)+))
    };
}

pub(crate) use {bail, err};

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn a_result_is_no_larger_than_a_tensor() {
        assert_eq!(size_of::<Result<Tensor>>(), size_of::<Tensor>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn the_outermost_name_wins() {
        #[track_caller]
        fn outer() -> Result<()> {
            named("outer", Err(err!(Value, "inner", "{} is wrong", 3)))
        }
        let error = outer().err();
        assert_eq!(error.as_ref().map(ToString::to_string).as_deref(), Some("outer: 3 is wrong"));
        let line = line!() - 2;
        let location = error.as_ref().and_then(Error::location);
        assert_eq!(location.map(|at| (at.file(), at.line())), Some((file!(), line)));
        assert!(format!("{error:?}").contains("outer: 3 is wrong\n    at src/error.rs:"));
    }
}
