//! Names of operations and locations in the caller's source, which may be in another language than Rust.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::panic;
use std::sync::Arc;

/// The name of an operation: a constant, or created at run time.
///
/// ```
/// use cotangent::error::Name;
/// let fixed = Name::from("exp");
/// let made = Name::from(format!("block {}", 3));
/// assert_eq!((&*fixed, &*made), ("exp", "block 3"));
/// ```
#[derive(Clone)]
pub struct Name(Text);

#[derive(Clone)]
enum Text {
    Fixed(&'static str),
    Made(Arc<str>),
}

impl Deref for Name {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        match &self.0 {
            Text::Fixed(text) => text,
            Text::Made(text) => text,
        }
    }
}

impl From<&'static str> for Name {
    #[inline]
    fn from(text: &'static str) -> Name {
        Name(Text::Fixed(text))
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(Text::Made(text.into()))
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Name {
        name.clone()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A source line of the caller: in Rust, or in another language, see [`with_location`].
///
/// ```
/// use cotangent::error::Location;
/// let location = Location::new("train.py", 7);
/// assert_eq!((location.file(), location.line(), location.to_string()), ("train.py", 7, "train.py:7".to_string()));
/// ```
#[derive(Clone)]
pub struct Location(Line);

#[derive(Clone)]
enum Line {
    Rust(&'static panic::Location<'static>),
    Other(Arc<(String, u32)>),
}

thread_local! {
    /// Whether [`LOCATION`] is set: it is checked for every recorded operation, and cheaper to check.
    static IS_SET: Cell<bool> = const { Cell::new(false) };
    static LOCATION: RefCell<Option<Location>> = const { RefCell::new(None) };
}

impl Location {
    /// A line of a file in another language.
    ///
    /// ```
    /// assert_eq!(cotangent::error::Location::new("model.py", 12).to_string(), "model.py:12");
    /// ```
    pub fn new(file: impl Into<String>, line: u32) -> Location {
        Location(Line::Other(Arc::new((file.into(), line))))
    }

    /// The location of the caller: that of [`with_location`], or the one in Rust.
    #[track_caller]
    #[inline]
    pub(crate) fn caller() -> Location {
        if IS_SET.get() {
            Location::said(panic::Location::caller())
        } else {
            Location(Line::Rust(panic::Location::caller()))
        }
    }

    #[cold]
    fn said(otherwise: &'static panic::Location<'static>) -> Location {
        LOCATION.with_borrow(Option::clone).unwrap_or(Location(Line::Rust(otherwise)))
    }

    /// The file.
    ///
    /// ```
    /// assert_eq!(cotangent::error::Location::new("model.py", 12).file(), "model.py");
    /// ```
    pub fn file(&self) -> &str {
        match &self.0 {
            Line::Rust(location) => location.file(),
            Line::Other(line) => &line.0,
        }
    }

    /// The line, counted from 1.
    ///
    /// ```
    /// assert_eq!(cotangent::error::Location::new("model.py", 12).line(), 12);
    /// ```
    pub fn line(&self) -> u32 {
        match &self.0 {
            Line::Rust(location) => location.line(),
            Line::Other(line) => line.1,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Line::Rust(location) => fmt::Display::fmt(location, f),
            Line::Other(line) => write!(f, "{}:{}", line.0, line.1),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Runs `f` with `place` as the location of its operations and errors, instead of their line in Rust. For front ends in other
/// languages.
///
/// ```
/// use cotangent::{Tensor, error::{Location, with_location}};
/// let failed = with_location(Location::new("train.py", 7), || Tensor::zeros([2])?.view([3]));
/// assert_eq!(failed.err().and_then(|e| e.location().map(ToString::to_string)).as_deref(), Some("train.py:7"));
/// ```
pub fn with_location<R>(location: Location, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Location>);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_SET.set(self.0.is_some());
            LOCATION.set(self.0.take());
        }
    }
    let _restore = Restore(LOCATION.replace(Some(location)));
    IS_SET.set(true);
    f()
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn places_nest_and_end() {
        let file = || Location::caller().file().to_string();
        assert_eq!(file(), file!());
        with_location(Location::new("outer.py", 1), || {
            with_location(Location::new("inner.py", 2), || assert_eq!(Location::caller().to_string(), "inner.py:2"));
            assert_eq!(file(), "outer.py");
            let _ = std::panic::catch_unwind(|| with_location(Location::new("lost.py", 3), || panic!("inside")));
            assert_eq!(file(), "outer.py");
        });
        assert_eq!(file(), file!());
    }
}
