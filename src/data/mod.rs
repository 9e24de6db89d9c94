//! Data sets that come with the crate.
//!
//! ```
//! use cotangent::{Generator, data};
//! let (train, test) = data::digits()?.split(360, 0)?;
//! for batch in train.batches(32, &mut Generator::seed(1))? {
//!     let batch = train.pick(&batch)?;
//!     assert_eq!(batch.images.shape()[1], 64);
//! }
//! # assert_eq!(test.len(), 360);
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod digits;

pub use digits::{Digits, digits};
