//! The one error type, and the two macros that build it.
//!
//! Every message begins with the name of the operation that was called and holds the values that were refused, so that
//! it can be understood without a debugger: `matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ`.
//!
//! An operation is often made of others. The error is made where something is wrong, under that operation's name; on its
//! way out every public function puts its own name and its caller's line in their place ([`Error::within`]), so that the
//! caller sees the one it has called.
#![forbid(unsafe_code)]

use crate::place::{Name, Place};
use std::fmt;
use std::path::Path;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. The inputs of a failed call are as they were before it.
///
/// ```
/// use cotangent::{ErrorKind, Tensor};
/// let (a, b) = (Tensor::zeros([2, 3])?, Tensor::zeros([4, 5])?);
/// let error = a.matmul(&b).err().ok_or("it should fail")?;
/// assert_eq!((error.kind(), error.op()), (ErrorKind::Shape, "matmul"));
/// assert_eq!(error.to_string(), "matmul: cannot multiply [2, 3] by [4, 5]: inner sizes 3 and 4 differ");
/// // What `fn main() -> Result<()>` prints says where, too.
/// assert!(format!("{error:?}").contains(error.place().ok_or("it has a place")?.file()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// Behind a pointer, so that a `Result<Tensor>` is no larger than a tensor.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    op: Name,
    place: Option<Place>,
    cause: Cause,
}

enum Cause {
    Message(String),
    OutOfMemory(OutOfMemory),
    /// Reading or writing a file failed.
    Io(String, std::io::Error),
}

/// What kind of thing was wrong.
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
    /// Sizes that do not fit each other or the operation.
    Shape,
    /// An element type the operation does not take, or two that do not mix.
    DType,
    /// A device that is missing, or operands on different devices.
    Device,
    /// A dimension or an index out of range.
    Index,
    /// A derivative that cannot be had: no graph, a freed one, an operation without a derivative, a foreign tape.
    Graph,
    /// An argument outside its domain.
    Value,
    /// A file or a saved state whose contents do not fit.
    Format,
    /// The values of a tensor were asked for inside of a [`vmap`](crate::vmap), where there are those of many examples.
    Batched,
    /// A failure below this crate: a driver, a compiler, a library.
    Backend,
    /// Memory ran out, or the limit set for the device was reached, even after the cache was flushed.
    OutOfMemory,
    /// Reading or writing a file failed.
    Io,
    /// The operation was ended before it was done: see [`interrupt`](crate::interrupt).
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
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes held from the system.
    pub held: usize,
    /// Bytes of those that no tensor uses.
    pub cached: usize,
    /// Bytes the system still had, where it says.
    pub free: Option<usize>,
}

impl Error {
    /// An error of one's own, such as a [custom function](crate::autograd::Function) may return.
    ///
    /// ```
    /// use cotangent::{Error, ErrorKind, Result, Tensor};
    ///
    /// fn first_row(x: &Tensor) -> Result<Tensor> {
    ///     if x.rank() != 2 {
    ///         return Err(Error::new(ErrorKind::Shape, "first_row", format!("{:?} is no matrix", x.shape())));
    ///     }
    ///     x.select(0, 0)
    /// }
    ///
    /// assert_eq!(first_row(&Tensor::zeros([3])?).err().map(|e| e.to_string()).as_deref(), Some("first_row: [3] is no matrix"));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[track_caller]
    pub fn new(kind: ErrorKind, op: impl Into<Name>, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            op: op.into(),
            place: Some(Place::caller()),
            cause: Cause::Message(message.into()),
        }))
    }

    /// As [`new`](Self::new), without a place: that is known where the call came in.
    #[cold]
    #[inline(never)]
    pub(crate) fn made(kind: ErrorKind, op: Name, message: String) -> Error {
        Error(Box::new(Inner { kind, op, place: None, cause: Cause::Message(message) }))
    }

    #[cold]
    pub(crate) fn out_of_memory(op: &'static str, figures: OutOfMemory) -> Error {
        let cause = Cause::OutOfMemory(figures);
        Error(Box::new(Inner { kind: ErrorKind::OutOfMemory, op: op.into(), place: None, cause }))
    }

    /// What the system said of a file.
    #[cold]
    pub(crate) fn io(op: &'static str, path: &Path, source: std::io::Error) -> Error {
        let cause = Cause::Io(path.display().to_string(), source);
        Error(Box::new(Inner { kind: ErrorKind::Io, op: op.into(), place: None, cause }))
    }

    /// What kind of thing was wrong.
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

    /// The line of the program that called it.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let error = Tensor::zeros([2])?.select(0, 5).err().ok_or("it should fail")?;
    /// println!("{}", error.place().ok_or("it has one")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// What was wrong, with the values, but without the operation's name.
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

    /// The figures, if memory ran out.
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

    /// The error as one of the function that the user called, on the line where it was.
    #[cold]
    #[inline(never)]
    pub(crate) fn within(mut self, op: impl Into<Name>, place: Place) -> Error {
        (self.0.op, self.0.place) = (op.into(), Some(place));
        self
    }

    /// The error with a line, if it has none yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn or_at(mut self, place: Place) -> Error {
        self.0.place.get_or_insert(place);
        self
    }

    /// An error in code of the user's that a pass runs, which is about to get the name of the call that began the pass: the
    /// message says which operation it was, and where.
    pub(crate) fn inside(self) -> Error {
        let place = self.place().map_or_else(String::new, |place| format!(" (called at {place})"));
        let failed = format!("{}{place}", self.op());
        self.context(failed)
    }

    /// The same with something before the message: what the caller was at.
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Error {
        match &mut self.0.cause {
            Cause::Message(text) | Cause::Io(text, _) => *text = format!("{context}: {text}"),
            // It has figures in place of a message.
            Cause::OutOfMemory(_) => {}
        }
        self
    }
}

/// The result of a public function as the caller sees it: an error bears the function's name and the caller's line.
#[track_caller]
#[inline]
pub(crate) fn named<T>(op: &'static str, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.within(op, Place::caller())),
    }
}

/// As [`named`], for a function that calls one of the user's: an error in that keeps its own name and line.
#[track_caller]
#[inline]
pub(crate) fn placed<T>(result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(error.or_at(Place::caller())),
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
                    "out of memory: {requested} bytes asked for, {held} held from the system, {cached} of them cached, {free} free"
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
        self.place().map_or(Ok(()), |place| write!(f, "\n    at {place}"))
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
        let place = error.as_ref().and_then(Error::place).map(|place| (place.file().to_string(), place.line()));
        assert_eq!(place, Some((file!().to_string(), line!() - 3)));
        assert!(format!("{error:?}").contains("outer: 3 is wrong\n    at src/error.rs:"));
    }
}
