//! Writing elements at indices.

/// How an element is combined with a new one that is written to its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexFold {
    /// The new one.
    Replace,
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The larger one; NaN if one of them is.
    Max,
    /// The smaller one; NaN if one of them is.
    Min,
}
