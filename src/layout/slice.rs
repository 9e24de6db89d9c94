//! Ranges along a dimension.

use super::args::ToSigned;
use crate::{Result, error::bail};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range along one dimension with Python's meaning: open ends, negative indices that count from the end, ends clamped to the
/// size, and a step that may be negative.
///
/// ```
/// use cotangent::{Tensor, s, arguments::Slice};
/// let x = Tensor::arange(0, 6)?;
/// assert_eq!(x.slice(0, 2..4)?.to_vec::<i64>()?, [2, 3]);
/// assert_eq!(x.slice(0, Slice::new(1, -1))?.to_vec::<i64>()?, [1, 2, 3, 4]);
/// assert_eq!(x.slice(0, Slice::from(..).step(-2))?.to_vec::<i64>()?, [5, 3, 1]);
/// // The same with an index.
/// assert_eq!(x.index(s![1..-1])?.to_vec::<i64>()?, [1, 2, 3, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    start: Option<isize>,
    end: Option<isize>,
    step: isize,
}

impl Slice {
    /// From `start` to `end`, exclusive. `None` leaves an end open.
    ///
    /// ```
    /// use cotangent::{Tensor, arguments::Slice};
    /// assert_eq!(Tensor::arange(0, 6)?.slice(0, Slice::new(-2, None))?.to_vec::<i64>()?, [4, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new(start: impl Into<Option<isize>>, end: impl Into<Option<isize>>) -> Slice {
        Slice { start: start.into(), end: end.into(), step: 1 }
    }

    /// From `start` to `end`, inclusive. `None` leaves an end open.
    ///
    /// ```
    /// use cotangent::{Tensor, arguments::Slice};
    /// assert_eq!(Tensor::arange(0, 6)?.slice(0, Slice::inclusive(1, -2))?.to_vec::<i64>()?, [1, 2, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn inclusive(start: impl Into<Option<isize>>, end: impl Into<Option<isize>>) -> Slice {
        // `..=-1` ends with the last element, which needs an open exclusive end.
        let end = end.into().filter(|&end| end != -1).map(|end| end.saturating_add(1));
        Slice { start: start.into(), end, step: 1 }
    }

    /// The same range with step `step`. With a negative step, open ends run from the last element to the first.
    ///
    /// ```
    /// use cotangent::{Tensor, arguments::Slice};
    /// assert_eq!(Tensor::arange(0, 6)?.slice(0, Slice::new(1, None).step(2))?.to_vec::<i64>()?, [1, 3, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn step(self, step: isize) -> Slice {
        Slice { step, ..self }
    }

    /// The first index, the number of elements and the step, for a dimension of `size`.
    pub(crate) fn resolve(&self, op: &'static str, size: usize) -> Result<(usize, usize, isize)> {
        let (n, step) = (size as isize, self.step);
        if step == 0 {
            bail!(Value, op, "step must not be 0");
        }
        let wrap = |at: isize| if at < 0 { at.saturating_add(n) } else { at };
        // A descending slice starts at most at the last element and ends at earliest before the first.
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (first, last) = if step > 0 { (low, high) } else { (high, low) };
        let start = self.start.map_or(first, |at| wrap(at).clamp(low, high));
        let end = self.end.map_or(last, |at| wrap(at).clamp(low, high));
        let span = if step > 0 { end - start } else { start - end };
        let len = if span <= 0 { 0 } else { (span as usize).div_ceil(step.unsigned_abs()) };
        Ok((if len == 0 { 0 } else { start as usize }, len, step))
    }
}

impl From<RangeFull> for Slice {
    fn from(_: RangeFull) -> Slice {
        Slice::new(None, None)
    }
}

/// Ranges with two ends take only `usize`, since a Rust lint reports `1..-1` as empty. For a negative end write
/// `Slice::new(1, -1)` or `s![1..-1]`.
impl From<Range<usize>> for Slice {
    fn from(range: Range<usize>) -> Slice {
        Slice::new(range.start.to_signed(), range.end.to_signed())
    }
}

impl From<RangeInclusive<usize>> for Slice {
    fn from(range: RangeInclusive<usize>) -> Slice {
        Slice::inclusive(range.start().to_signed(), range.end().to_signed())
    }
}

macro_rules! half_open {
    ($($int:ty),+) => {$(
        impl From<RangeFrom<$int>> for Slice {
            fn from(range: RangeFrom<$int>) -> Slice { Slice::new(range.start.to_signed(), None) }
        }
        impl From<RangeTo<$int>> for Slice {
            fn from(range: RangeTo<$int>) -> Slice { Slice::new(None, range.end.to_signed()) }
        }
        impl From<RangeToInclusive<$int>> for Slice {
            fn from(range: RangeToInclusive<$int>) -> Slice { Slice::inclusive(None, range.end.to_signed()) }
        }
    )+};
}
half_open!(i32, i64, isize, usize);

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    fn positions(slice: &Slice, size: usize) -> Vec<isize> {
        let (start, len, step) = slice.resolve("slice", size).unwrap_or((99, 99, 99));
        (0..len as isize).map(|i| start as isize + i * step).collect()
    }

    #[test]
    fn slices_mean_what_they_mean_in_python() {
        assert_eq!(positions(&(1..3).into(), 5), [1, 2]);
        assert_eq!(positions(&(-2..).into(), 5), [3, 4]);
        assert_eq!(positions(&(..-1).into(), 3), [0, 1]);
        assert_eq!(positions(&(2..100).into(), 4), [2, 3]);
        assert!(positions(&Slice::new(3, 1), 4).is_empty());
        assert_eq!(positions(&Slice::inclusive(1, -1), 4), [1, 2, 3]);
        assert_eq!(positions(&(..=1).into(), 4), [0, 1]);
        assert_eq!(positions(&Slice::from(..).step(-1), 3), [2, 1, 0]);
        assert_eq!(positions(&Slice::from(..).step(2), 5), [0, 2, 4]);
        assert_eq!(positions(&Slice::new(4, 1).step(-2), 6), [4, 2]);
        assert_eq!(positions(&Slice::from(-1..).step(-3), 6), [5, 2]);
        assert!(positions(&Slice::from(..).step(-1), 0).is_empty());
        assert!(Slice::from(..).step(0).resolve("slice", 3).is_err());
        assert_eq!(positions(&Slice::from(..).step(isize::MIN), 3), [2]);
        assert_eq!(positions(&Slice::from(..).step(isize::MAX), 3), [0]);
    }
}
