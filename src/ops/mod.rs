//! The operations: each is one block that holds what it computes, its derivative, its documentation and the samples its
//! tests use. [`list`] names them all, for the test harness and for reference tables.
#![forbid(unsafe_code)]

mod attention;
pub(crate) mod binary;
mod cast;
mod compare;
mod extreme;
mod formula;
mod index;
mod join;
mod list;
mod loss;
pub(crate) mod map;
mod matmul;
mod norm;
mod operators;
mod precision;
mod product;
mod reduce;
mod sample;
mod softmax;
mod unary;
mod views;

pub use attention::Attention;
pub use list::list;
pub use loss::{CrossEntropy, Reduction};
pub use precision::{MatmulPrecision, matmul_precision, with_matmul_precision};
pub use sample::{ErrorCase, Op, Sample};
pub use unary::Gelu;
