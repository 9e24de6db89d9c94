//! What reductions fold by.

/// What the elements are folded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
}

/// What is folded of the difference of each element from the center of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CenteredReduce {
    /// The difference; the sum is divided by this number.
    Mean(f64),
    /// Its square; the sum is divided by this number.
    Deviation(f64),
    /// Its exponential; the result is the logarithm of the sum, plus the center.
    LogSumExp,
}

/// What running folds fold by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    Sum,
    Prod,
    /// The logarithm of the sum of the exponentials.
    LogSumExp,
}

/// Which element is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extreme {
    Max,
    Min,
}
