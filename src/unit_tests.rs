//! The list of the library's unit tests, which `tests/internals` runs.
#![forbid(unsafe_code)]

use std::fmt::Debug;

/// A unit test.
#[derive(Debug)]
pub struct UnitTest {
    /// Its path, such as `cotangent::layout::tests::strides_of_empty_shapes`.
    pub name: &'static str,
    /// Runs it. It fails by a panic or by an error.
    pub run: fn() -> Result<(), String>,
}

inventory::collect!(UnitTest);

/// All unit tests, in no particular order.
pub fn all() -> impl Iterator<Item = &'static UnitTest> {
    inventory::iter::<UnitTest>.into_iter()
}

/// The return type of a test function.
pub trait Outcome {
    /// The error, as text.
    fn outcome(self) -> Result<(), String>;
}

impl Outcome for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Debug> Outcome for Result<(), E> {
    fn outcome(self) -> Result<(), String> {
        self.map_err(|error| format!("{error:?}"))
    }
}
