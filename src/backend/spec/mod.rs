//! Descriptions of what kernels compute, shared by the operations and the backends of all devices.

mod complex;
mod conv;
mod derivative;
mod formula;
pub(crate) mod functions;
mod index;
mod kernel;
mod nn;
mod number;
mod pool;
mod precision;
mod program;
mod quantized;
mod random;
mod reduce;
mod rule;
mod sort;
mod triangle;

pub(crate) use complex::ComplexFormula;
pub(crate) use conv::{Conv, Phase};
#[cfg(feature = "cuda")]
pub(crate) use formula::Inst;
pub(crate) use formula::{Cotangent, Formula, MOST_INPUTS, Params, Sym, SymMask};
#[cfg(feature = "cuda")]
pub(crate) use functions::Meaning;
pub(crate) use functions::{Real, sinc, sinc_slope};
pub(crate) use index::IndexFold;
pub(crate) use kernel::Kernel;
pub(crate) use nn::{AttentionInputs, CachedAttention, Gate, RowLayers, SoftmaxKind, Targets, TokenRows};
pub(crate) use number::{Arithmetic, Constant, N, Ordered, select};
pub(crate) use pool::Windows;
pub use precision::MatmulPrecision;
pub use quantized::QuantFormat;
pub(crate) use quantized::{INT8_SCALE, NF4, QuantSide};
pub(crate) use random::Draw;
pub(crate) use reduce::{CenteredReduce, Extreme, Reduce, Scan};
pub(crate) use rule::Rule;
#[cfg(feature = "cuda")]
pub(crate) use rule::RuleSteps;
#[cfg(feature = "cuda")]
pub(crate) use sort::order_kind;
pub(crate) use sort::{Rank, SortKey};
pub(crate) use triangle::Triangle;

/// The maximum number of rows and columns for which a GPU computes singular values in one batched call.
pub(crate) const SMALL_SVD: usize = 32;
