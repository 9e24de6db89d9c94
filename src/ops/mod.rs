//! The operations. Each is defined in one place with its computation, derivative, documentation and test samples.
//! [`list`] returns all of them, for tests, tables and bindings; [`find`] looks one up by name.
//!
//! ```
//! use cotangent::{Tensor, ops};
//! let hypot = ops::find("hypot").ok_or("there is one")?;
//! let args = hypot.bind(&[Tensor::full([2], 3.0)?.into(), 4.0.into()], &[])?;
//! assert_eq!(hypot.call(&args)?[0].to_vec::<f32>()?, [5.0, 5.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The [last section](#accuracy-of-the-elementwise-functions) gives the largest errors of the elementwise functions.
//!
//! # Table of operations
//! Parameters are written as in a Python signature. In Rust those with a default are options, or belong to the dimensions
//! of a reduction: see [the rules of the API](crate#the-rules-of-the-api). The derivative is `rule` (given by a rule),
//! `zero`, or `none` (requesting it is an error).
//!
// In documentation builds only, so that a new table does not cause a recompilation.
#![cfg_attr(doc, doc = include_str!("TABLE.md"))]
#![cfg_attr(doc, doc = include_str!("ACCURACY.md"))]
#![forbid(unsafe_code)]

mod arg;
pub(crate) mod autocast;
pub(crate) mod batched;
mod entry;
pub(crate) mod operators;
mod sample;

/// Declares the modules of a folder that define operations.
macro_rules! files {
    ($($file:ident)+) => {
        $(pub(crate) mod $file;)+

        /// The types in the signatures of operations, such as their options.
        #[allow(unused_imports)]
        pub(crate) mod signatures {
            $(pub use super::$file::*;)+
        }

        /// The operations that are functions of a namespace.
        #[allow(unused_imports)]
        pub(crate) mod namespace {
            $(pub use super::$file::namespace::*;)+
        }

        /// The operations of each file.
        pub(in crate::ops) static FILES: &[&[crate::ops::Op]] = &[$($file::OPS),+];
    };
}

/// Declares the folders, and the list of all operations in their modules.
macro_rules! rooms {
    ($($room:ident)+) => {
        $(pub(crate) mod $room;)+

        /// The types in the signatures of operations, such as their options.
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
