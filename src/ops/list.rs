//! The one list of all operations, put together from the lists at the end of each file.

use super::sample::Op;
use super::{
    attention, binary, cast, compare, extreme, index, join, loss, matmul, norm, product, reduce, softmax, unary, views,
};
use std::sync::LazyLock;

/// Every operation, for tests and tables.
///
/// ```
/// assert!(cotangent::ops::list().iter().any(|op| op.name == "add"));
/// ```
pub fn list() -> &'static [&'static Op] {
    static ALL: LazyLock<Vec<&'static Op>> = LazyLock::new(|| {
        [
            binary::OPS,
            unary::OPS,
            compare::OPS,
            cast::OPS,
            reduce::OPS,
            product::OPS,
            extreme::OPS,
            softmax::OPS,
            matmul::OPS,
            attention::OPS,
            views::OPS,
            join::OPS,
            index::OPS,
            loss::OPS,
            norm::OPS,
        ]
        .concat()
    });
    &ALL
}
