//! Random draws.

/// What is drawn at random.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    /// In `[0, 1)`, with so many bits: those of the significand, or 24 for f32, lest rounding reach 1.
    Uniform(u32),
    /// With mean 0 and variance 1.
    Normal,
    /// From the first up to but without the second.
    Integers(i64, i64),
    /// True for 32-bit words up to this one; false for all if there is none.
    Booleans(Option<u32>),
}
