//! The operations. Each is one block that holds what it computes, its derivative, its documentation and the samples that its
//! tests use. [`list`] has them all, for tests, tables and other languages; [`find`] finds one by name.
//!
//! ```
//! use cotangent::{Tensor, ops};
//! let hypot = ops::find("hypot").ok_or("there is one")?;
//! let args = hypot.bind(&[Tensor::full([2], 3.0)?.into(), 4.0.into()], &[])?;
//! assert_eq!(hypot.call(&args)?[0].to_vec::<f32>()?, [5.0, 5.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How far the results of elementwise functions are from the true values says the [last section](#accuracy-of-the-elementwise-functions).
//!
//! # Table of operations
//! The parameters are written as Python would call them. In Rust those with a default are options, or belong to the
//! dimensions of a reduction: see [the rules of the API](crate#the-rules-of-the-api). A derivative is given by a rule, is
//! zero, or there is none, and to ask for one is an error.
//!
// For the documentation alone, so that a new table is no reason to compile anew.
#![cfg_attr(doc, doc = include_str!("TABLE.md"))]
#![cfg_attr(doc, doc = include_str!("ACCURACY.md"))]
#![forbid(unsafe_code)]

mod arg;
mod entry;
mod operators;
mod sample;

/// Declares the files of a room that have operations.
macro_rules! files {
    ($($file:ident)+) => {
        $(pub(crate) mod $file;)+

        /// What the signatures of operations name, such as their options.
        #[allow(unused_imports)]
        pub(crate) mod signatures {
            $(pub use super::$file::*;)+
        }

        /// The operations of each file.
        pub(in crate::ops) static FILES: &[&[crate::ops::Op]] = &[$($file::OPS),+];
    };
}

/// Declares the rooms, and the list of all that their files hold.
macro_rules! rooms {
    ($($room:ident)+) => {
        $(pub(crate) mod $room;)+

        /// What the signatures of operations name, such as their options.
        #[allow(unused_imports)]
        pub(crate) mod signatures {
            $(pub use super::$room::signatures::*;)+
        }

        /// Every operation.
        ///
        /// ```
        /// assert!(cotangent::ops::list().iter().any(|op| op.name == "add"));
        /// ```
        pub fn list() -> &'static [&'static Op] {
            static ALL: std::sync::LazyLock<Vec<&'static Op>> =
                std::sync::LazyLock::new(|| [$($room::FILES),+].into_iter().flatten().copied().flatten().collect());
            &ALL
        }
    };
}
rooms! { create elementwise special reduce shape index linalg fft random nn loss }

/// The operation of this name, or with this alias.
///
/// ```
/// use cotangent::ops;
/// assert_eq!(ops::find("multiply").map(|op| op.name), Some("mul"));
/// assert!(ops::find("no such operation").is_none());
/// ```
pub fn find(name: &str) -> Option<&'static Op> {
    let by_alias = || list().iter().find(|op| op.aliases.contains(&name));
    list().iter().find(|op| op.name == name).or_else(by_alias).copied()
}

pub(crate) use arg::choices;
pub use arg::{Arg, ArgKind, FromArg};
pub(crate) use cotangent_macros::ops;
pub(crate) use entry::{Args, Intercept, Intercepted, Outputs, ParamSpec, bind, intercepted, one, typed};
pub use entry::{AutocastPolicy, Derivative, Numbers, Op, Param, ParamGroup};
pub(crate) use nn::conv::each;
pub(crate) use nn::recurrent::Cell;
pub use sample::{ErrorCase, Sample};

pub use linalg::precision::{MatmulPrecision, matmul_precision, with_matmul_precision};
