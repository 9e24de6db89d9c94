//! Elements that are put where indices say.

/// What becomes of an element and a new one that an index puts there.
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
