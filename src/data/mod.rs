//! Data sets that come with the crate.
#![forbid(unsafe_code)]

mod digits;

pub use digits::{Digits, digits};
