//! Random draws.

/// A random distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    /// Uniform in `[0, 1)` with this many bits: at most those of the significand, so that rounding does not give 1.
    Uniform(u32),
    /// Normal with mean 0 and variance 1.
    Normal,
    /// Integers from the first, inclusive, to the second, exclusive.
    Integers(i64, i64),
    /// True for 32-bit words up to this one; always false if `None`.
    Booleans(Option<u32>),
}
