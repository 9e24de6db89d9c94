//! The kinds of reductions.

/// The kind of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
}

/// A reduction of the differences of the elements from a center for each result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CenteredReduce {
    /// The sum of the differences, divided by this number.
    Mean(f64),
    /// The sum of their squares, divided by this number.
    Deviation(f64),
    /// The logarithm of the sum of their exponentials, plus the center.
    LogSumExp,
}

/// The kind of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    Sum,
    Prod,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
}

/// Which extreme is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extreme {
    Max,
    Min,
}
