//! The arguments that describe shapes, dimensions and ranges, in the forms a caller would write them.

use crate::{Result, error::bail};
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// Ranks up to this need no allocation.
pub(crate) const INLINE: usize = 5;

pub(crate) type Strides = SmallVec<[isize; INLINE]>;

/// The sizes of a tensor, one for each dimension; none for a single number.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; INLINE]>);

impl Shape {
    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.0.iter().product()
    }

    #[inline]
    pub(crate) fn from_slice(sizes: &[usize]) -> Shape {
        // Written out, since a copy of any length is a call, and every tensor and every node has a shape.
        let inline: [usize; INLINE] = match *sizes {
            [] => [0; INLINE],
            [a] => [a, 0, 0, 0, 0],
            [a, b] => [a, b, 0, 0, 0],
            [a, b, c] => [a, b, c, 0, 0],
            [a, b, c, d] => [a, b, c, d, 0],
            _ => return Shape(SmallVec::from_slice(sizes)),
        };
        Shape(SmallVec::from_buf_and_len(inline, sizes.len()))
    }

    pub(crate) fn with(&self, dim: usize, size: usize) -> Shape {
        let mut shape = self.clone();
        shape.0[dim] = size;
        shape
    }

    pub(crate) fn insert(&mut self, dim: usize, size: usize) {
        self.0.insert(dim, size);
    }

    pub(crate) fn remove(&mut self, dim: usize) {
        self.0.remove(dim);
    }
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        Shape::from_slice(self)
    }
}

impl Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0[..], f)
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.0[..] == *other
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Shape {
        Shape(sizes.into_iter().collect())
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape::default()
    }
}

impl From<usize> for Shape {
    fn from(size: usize) -> Shape {
        Shape::from_slice(&[size])
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    #[inline]
    fn from(sizes: [usize; N]) -> Shape {
        Shape::from_slice(&sizes)
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Shape {
        Shape::from_slice(sizes)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Shape {
        Shape::from_slice(&sizes)
    }
}

impl From<&Vec<usize>> for Shape {
    fn from(sizes: &Vec<usize>) -> Shape {
        Shape::from_slice(sizes)
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

/// Sizes of which one may be left open with `-1`, as `reshape` and `expand` take them.
#[derive(Clone, Debug)]
pub struct Sizes(pub(crate) SmallVec<[isize; INLINE]>);

/// Dimensions to work on: a number, several, or all (`..`). Negative ones count from the last.
#[derive(Clone, Debug)]
pub enum Dims {
    /// Every dimension.
    All,
    /// The dimensions named.
    Some(SmallVec<[isize; INLINE]>),
}

impl From<RangeFull> for Dims {
    fn from(_: RangeFull) -> Dims {
        Dims::All
    }
}

macro_rules! from_integers {
    ($($int:ty),+) => {$(
        impl From<$int> for Dims {
            fn from(dim: $int) -> Dims { Dims::Some(SmallVec::from_slice(&[dim as isize])) }
        }
        impl<const N: usize> From<[$int; N]> for Dims {
            fn from(dims: [$int; N]) -> Dims { Dims::from(&dims[..]) }
        }
        impl From<&[$int]> for Dims {
            fn from(dims: &[$int]) -> Dims { Dims::Some(dims.iter().map(|&d| d as isize).collect()) }
        }
        impl From<&Vec<$int>> for Dims {
            fn from(dims: &Vec<$int>) -> Dims { Dims::from(&dims[..]) }
        }
        impl From<Vec<$int>> for Dims {
            fn from(dims: Vec<$int>) -> Dims { Dims::from(&dims[..]) }
        }
        impl From<$int> for Sizes {
            fn from(size: $int) -> Sizes { Sizes(SmallVec::from_slice(&[size as isize])) }
        }
        impl<const N: usize> From<[$int; N]> for Sizes {
            fn from(sizes: [$int; N]) -> Sizes { Sizes::from(&sizes[..]) }
        }
        impl From<&[$int]> for Sizes {
            fn from(sizes: &[$int]) -> Sizes { Sizes(sizes.iter().map(|&s| s as isize).collect()) }
        }
        impl From<&Vec<$int>> for Sizes {
            fn from(sizes: &Vec<$int>) -> Sizes { Sizes::from(&sizes[..]) }
        }
        impl From<Vec<$int>> for Sizes {
            fn from(sizes: Vec<$int>) -> Sizes { Sizes::from(&sizes[..]) }
        }
        impl From<Range<$int>> for Slice {
            fn from(r: Range<$int>) -> Slice { Slice::new(Some(r.start as isize), Some(r.end as isize)) }
        }
        impl From<RangeInclusive<$int>> for Slice {
            // `..=-1` ends with the last element, which no exclusive end but the open one can say.
            fn from(r: RangeInclusive<$int>) -> Slice {
                let end = *r.end() as isize;
                Slice::new(Some(*r.start() as isize), (end != -1).then(|| end.saturating_add(1)))
            }
        }
        impl From<RangeFrom<$int>> for Slice {
            fn from(r: RangeFrom<$int>) -> Slice { Slice::new(Some(r.start as isize), None) }
        }
        impl From<RangeTo<$int>> for Slice {
            fn from(r: RangeTo<$int>) -> Slice { Slice::new(None, Some(r.end as isize)) }
        }
    )+};
}
from_integers!(i32, i64, isize, usize);

impl From<()> for Sizes {
    fn from((): ()) -> Sizes {
        Sizes(SmallVec::new())
    }
}

impl From<&Shape> for Sizes {
    fn from(shape: &Shape) -> Sizes {
        Sizes::from(&shape[..])
    }
}

/// A range along one dimension with Python's meaning: open ends, negative positions counted from the end, ends beyond
/// the size cut off, and a step that may be negative.
///
/// ```
/// use cotangent::{Slice, Tensor};
/// let x = Tensor::arange(0, 6, 1)?;
/// assert_eq!(x.slice(0, 1..-1)?.to_vec::<i64>()?, [1, 2, 3, 4]);
/// assert_eq!(x.slice(0, Slice::from(..).step(-2))?.to_vec::<i64>()?, [5, 3, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    start: Option<isize>,
    end: Option<isize>,
    step: isize,
}

impl Slice {
    /// From `start` up to but without `end`; `None` leaves the side open.
    pub fn new(start: Option<isize>, end: Option<isize>) -> Slice {
        Slice { start, end, step: 1 }
    }

    /// The same range in steps of `step`. With a negative step open ends run from the last element to the first.
    #[must_use]
    pub fn step(self, step: isize) -> Slice {
        Slice { step, ..self }
    }

    /// The first position, the number of elements and the step, for a dimension of `size`.
    pub(crate) fn resolve(&self, op: &'static str, size: usize) -> Result<(usize, usize, isize)> {
        let (n, step) = (size as isize, self.step);
        if step == 0 {
            bail!(Value, op, "a slice's step must not be 0");
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

/// A dimension argument as an index, negative ones wrapped.
pub(crate) fn resolve_dim(op: &'static str, dim: isize, rank: usize) -> Result<usize> {
    let wrapped = if dim < 0 { dim + rank as isize } else { dim };
    if wrapped < 0 || wrapped >= rank as isize {
        bail!(Index, op, "dimension {dim} is out of range for rank {rank}");
    }
    Ok(wrapped as usize)
}

/// Dimension arguments as sorted indices, each at most once. A single number has no dimensions, but 0 and -1 are let
/// pass for it, as in PyTorch, and name none.
pub(crate) fn resolve_dims(op: &'static str, dims: &Dims, rank: usize) -> Result<SmallVec<[usize; INLINE]>> {
    let dims = match dims {
        Dims::All => return Ok((0..rank).collect()),
        Dims::Some(dims) => dims,
    };
    let mut resolved = SmallVec::new();
    for &dim in dims {
        if rank == 0 && matches!(dim, 0 | -1) {
            continue;
        }
        let at = resolve_dim(op, dim, rank)?;
        if resolved.contains(&at) {
            bail!(Index, op, "dimension {dim} occurs twice in {:?}", &dims[..]);
        }
        resolved.push(at);
    }
    resolved.sort_unstable();
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(slice: &Slice, size: usize) -> Vec<isize> {
        let (start, len, step) = slice.resolve("slice", size).unwrap_or((99, 99, 99));
        (0..len as isize).map(|i| start as isize + i * step).collect()
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges)] // Python's slices are not Rust's
    fn slices_mean_what_they_mean_in_python() {
        assert_eq!(positions(&(1..3).into(), 5), [1, 2]);
        assert_eq!(positions(&(-2..).into(), 5), [3, 4]);
        assert_eq!(positions(&(..-1).into(), 3), [0, 1]);
        assert_eq!(positions(&(2..100).into(), 4), [2, 3]);
        assert!(positions(&(3..1).into(), 4).is_empty());
        assert_eq!(positions(&(1..=-1).into(), 4), [1, 2, 3]);
        assert_eq!(positions(&Slice::from(..).step(-1), 3), [2, 1, 0]);
        assert_eq!(positions(&Slice::from(..).step(2), 5), [0, 2, 4]);
        assert_eq!(positions(&Slice::from(4..1).step(-2), 6), [4, 2]);
        assert_eq!(positions(&Slice::from(-1..).step(-3), 6), [5, 2]);
        assert!(positions(&Slice::from(..).step(-1), 0).is_empty());
        assert!(Slice::from(..).step(0).resolve("slice", 3).is_err());
    }

    #[test]
    fn dims_wrap_and_repeat_is_refused() {
        assert_eq!(resolve_dims("sum", &Dims::from([-1, 0]), 3).ok().as_deref(), Some(&[0, 2][..]));
        let twice = resolve_dims("sum", &Dims::from([1, -2]), 3).map_err(|e| e.to_string());
        assert_eq!(twice.err().as_deref(), Some("sum: dimension -2 occurs twice in [1, -2]"));
        let outside = resolve_dim("sum", 3, 3).map_err(|e| e.to_string());
        assert_eq!(outside.err().as_deref(), Some("sum: dimension 3 is out of range for rank 3"));
        assert!(resolve_dim("sum", 0, 0).is_err());
        assert_eq!(resolve_dims("sum", &Dims::from([0]), 0).ok().as_deref(), Some(&[][..]));
        assert!(resolve_dims("sum", &Dims::from([1]), 0).is_err());
    }
}
