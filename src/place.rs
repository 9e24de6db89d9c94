//! Names of operations and places in the caller's source, which need not be Rust's: a front in another language says
//! its own.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;

/// The name of an operation: fixed in the source, or made while the program runs.
///
/// ```
/// use cotangent::Name;
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

/// A line of the program that called: of Rust, or of the language that [`with_place`] speaks for.
///
/// ```
/// use cotangent::Place;
/// let place = Place::new("train.py", 7);
/// assert_eq!((place.file(), place.line(), place.to_string()), ("train.py", 7, "train.py:7".to_string()));
/// ```
#[derive(Clone)]
pub struct Place(Line);

#[derive(Clone)]
enum Line {
    Rust(&'static Location<'static>),
    Other(Arc<(String, u32)>),
}

thread_local! {
    /// Whether [`PLACE`] holds something: looked at for every recorded operation, and cheaper to look at.
    static IS_SET: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

impl Place {
    /// A line of a file that is not Rust's.
    ///
    /// ```
    /// assert_eq!(cotangent::Place::new("model.py", 12).to_string(), "model.py:12");
    /// ```
    pub fn new(file: impl Into<String>, line: u32) -> Place {
        Place(Line::Other(Arc::new((file.into(), line))))
    }

    /// The line that called: what [`with_place`] says, or the caller's in Rust.
    #[track_caller]
    #[inline]
    pub(crate) fn caller() -> Place {
        if IS_SET.get() { Place::said(Location::caller()) } else { Place(Line::Rust(Location::caller())) }
    }

    #[cold]
    fn said(otherwise: &'static Location<'static>) -> Place {
        PLACE.with_borrow(Option::clone).unwrap_or(Place(Line::Rust(otherwise)))
    }

    /// The file.
    ///
    /// ```
    /// assert_eq!(cotangent::Place::new("model.py", 12).file(), "model.py");
    /// ```
    pub fn file(&self) -> &str {
        match &self.0 {
            Line::Rust(location) => location.file(),
            Line::Other(line) => &line.0,
        }
    }

    /// The line in it, counted from 1.
    ///
    /// ```
    /// assert_eq!(cotangent::Place::new("model.py", 12).line(), 12);
    /// ```
    pub fn line(&self) -> u32 {
        match &self.0 {
            Line::Rust(location) => location.line(),
            Line::Other(line) => line.1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Line::Rust(location) => fmt::Display::fmt(location, f),
            Line::Other(line) => write!(f, "{}:{}", line.0, line.1),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Runs `f`; operations that it records and errors that it meets bear `place` instead of their line in Rust. For fronts
/// in other languages.
///
/// ```
/// use cotangent::{Place, Tensor, with_place};
/// let failed = with_place(Place::new("train.py", 7), || Tensor::zeros([2])?.view([3]));
/// assert_eq!(failed.err().and_then(|e| e.place().map(ToString::to_string)).as_deref(), Some("train.py:7"));
/// ```
pub fn with_place<R>(place: Place, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_SET.set(self.0.is_some());
            PLACE.set(self.0.take());
        }
    }
    let _restore = Restore(PLACE.replace(Some(place)));
    IS_SET.set(true);
    f()
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn places_nest_and_end() {
        let file = || Place::caller().file().to_string();
        assert_eq!(file(), file!());
        with_place(Place::new("outer.py", 1), || {
            with_place(Place::new("inner.py", 2), || assert_eq!(Place::caller().to_string(), "inner.py:2"));
            assert_eq!(file(), "outer.py");
            let _ = std::panic::catch_unwind(|| with_place(Place::new("lost.py", 3), || panic!("inside")));
            assert_eq!(file(), "outer.py");
        });
        assert_eq!(file(), file!());
    }
}
