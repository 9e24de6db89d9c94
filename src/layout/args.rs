//! Arguments that describe shapes and dimensions, in the forms that callers write them.

use crate::{Result, error::bail};
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, RangeFull};

/// Ranks up to this need no allocation.
pub(crate) const INLINE: usize = 5;

pub(crate) type Strides = SmallVec<[isize; INLINE]>;

/// The sizes of a tensor, one for each dimension; empty for a 0-d tensor.
///
/// ```
/// use cotangent::{Shape, Tensor};
/// let shape = Shape::from([2, 3]);
/// assert_eq!((shape.len(), shape.numel()), (2, 6));
/// assert_eq!(Tensor::zeros(&shape)?.shape(), &shape[..]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; INLINE]>);

impl Shape {
    /// The number of elements.
    ///
    /// ```
    /// use cotangent::Shape;
    /// assert_eq!((Shape::from([2, 3]).numel(), Shape::from(()).numel()), (6, 1));
    /// ```
    #[inline]
    pub fn numel(&self) -> usize {
        // It never overflows for a shape that a tensor has (L3). For any other shape it saturates.
        self.0.iter().fold(1, |n: usize, &size| n.saturating_mul(size))
    }

    #[inline]
    pub(crate) fn from_slice(sizes: &[usize]) -> Shape {
        // Written out, since a copy of variable length is a function call, and every tensor and node has a shape.
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

/// Integers given as arguments.
pub(crate) type Ints = SmallVec<[isize; INLINE]>;

/// An integer as a signed one. Out-of-range values saturate, and are then out of range for any size.
pub(crate) trait ToSigned: Copy {
    fn to_signed(self) -> isize;
}

impl ToSigned for usize {
    fn to_signed(self) -> isize {
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

macro_rules! signed {
    ($($int:ty),+) => {$(
        impl ToSigned for $int {
            fn to_signed(self) -> isize {
                isize::try_from(self).unwrap_or(if self < 0 { isize::MIN } else { isize::MAX })
            }
        }
    )+};
}
signed!(i32, i64, isize);

/// Sizes for `reshape` and `expand`, where `-1` stands for a size to infer or to keep.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::zeros([2, 6])?;
/// assert_eq!(x.reshape([3, -1])?.shape(), [3, 4]);
/// assert_eq!(x.reshape(-1)?.shape(), [12]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes(pub(crate) Ints);

/// A dimension; negative ones count from the last.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::zeros([2, 3])?;
/// assert_eq!(x.softmax(-1)?.shape(), x.softmax(1_usize)?.shape());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim(pub(crate) isize);

/// An index along a dimension; negative ones count from the end.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::arange(0, 4)?;
/// assert_eq!(x.select(0, -1)?.item::<i64>()?, 3);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(pub(crate) isize);

/// How a dimension is split: into a number of parts, or at indices.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::arange(0, 5)?;
/// let lengths = |parts: Vec<Tensor>| parts.iter().map(Tensor::numel).collect::<Vec<_>>();
/// assert_eq!(lengths(x.tensor_split(2, 0)?), [3, 2]);
/// assert_eq!(lengths(x.tensor_split([1, -1], 0)?), [1, 3, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sections(pub(crate) Cuts);

/// The contents of [`Sections`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cuts {
    Parts(isize),
    At(Ints),
}

/// Dimensions: one, several, or all (`..`). Negative ones count from the last.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::zeros([1, 3, 1])?;
/// assert_eq!(x.squeeze(..)?.shape(), [3]);
/// assert_eq!(x.squeeze(-1)?.shape(), [1, 3]);
/// assert_eq!(x.squeeze([0, 2])?.shape(), [3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims {
    /// `None` means all dimensions.
    pub(crate) named: Option<Ints>,
}

/// The dimensions of a reduction: as [`Dims`], or [`keepdim`] of these.
///
/// ```
/// use cotangent::{Tensor, keepdim};
/// let x = Tensor::zeros([2, 3])?;
/// assert_eq!(x.sum(..)?.shape(), [0; 0]);
/// assert_eq!(x.sum(0)?.shape(), [3]);
/// assert_eq!(x.sum(keepdim(..))?.shape(), [1, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReduceDims {
    pub(crate) dims: Dims,
    pub(crate) keepdim: bool,
}

/// The dimensions of a reduction, which are kept with size 1.
///
/// ```
/// use cotangent::{Tensor, keepdim};
/// let x = Tensor::ones([2, 3, 4])?;
/// assert_eq!(x.sum([0, 2])?.shape(), [3]);
/// assert_eq!(x.sum(keepdim([0, 2]))?.shape(), [1, 3, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn keepdim(dims: impl Into<Dims>) -> ReduceDims {
    ReduceDims { dims: dims.into(), keepdim: true }
}

impl Dims {
    pub(crate) const ALL: Dims = Dims { named: None };
}

impl From<RangeFull> for Dims {
    fn from(_: RangeFull) -> Dims {
        Dims::ALL
    }
}

impl From<RangeFull> for ReduceDims {
    fn from(_: RangeFull) -> ReduceDims {
        Dims::ALL.into()
    }
}

impl From<Dims> for ReduceDims {
    fn from(dims: Dims) -> ReduceDims {
        ReduceDims { dims, keepdim: false }
    }
}

impl From<Dim> for Dims {
    fn from(dim: Dim) -> Dims {
        dim.0.into()
    }
}

/// Conversions from the usual forms of integer lists.
macro_rules! from_lists {
    ($int:ty: $($target:ident |$list:ident| $make:expr;)+) => {$(
        impl<const N: usize> From<[$int; N]> for $target {
            fn from(list: [$int; N]) -> $target { $target::from(&list[..]) }
        }
        impl From<&[$int]> for $target {
            fn from($list: &[$int]) -> $target { $make }
        }
        impl From<&Vec<$int>> for $target {
            fn from(list: &Vec<$int>) -> $target { $target::from(&list[..]) }
        }
        impl From<Vec<$int>> for $target {
            fn from(list: Vec<$int>) -> $target { $target::from(&list[..]) }
        }
    )+};
}

macro_rules! from_integers {
    ($($int:ty),+) => {$(
        from_lists! { $int:
            Dims |list| Dims { named: Some(list.iter().map(|&dim| dim.to_signed()).collect()) };
            ReduceDims |list| ReduceDims { dims: list.into(), keepdim: false };
            Sizes |list| Sizes(list.iter().map(|&size| size.to_signed()).collect());
            Sections |list| Sections(Cuts::At(list.iter().map(|&at| at.to_signed()).collect()));
        }
        impl From<$int> for Dim {
            fn from(dim: $int) -> Dim { Dim(dim.to_signed()) }
        }
        impl From<$int> for At {
            fn from(at: $int) -> At { At(at.to_signed()) }
        }
        impl From<$int> for Sections {
            fn from(parts: $int) -> Sections { Sections(Cuts::Parts(parts.to_signed())) }
        }
        impl From<$int> for Dims {
            fn from(dim: $int) -> Dims { Dims::from([dim]) }
        }
        impl From<$int> for ReduceDims {
            fn from(dim: $int) -> ReduceDims { ReduceDims { dims: dim.into(), keepdim: false } }
        }
        impl From<$int> for Sizes {
            fn from(size: $int) -> Sizes { Sizes::from([size]) }
        }
    )+};
}
from_integers!(i32, i64, isize, usize);

impl From<()> for Sizes {
    fn from((): ()) -> Sizes {
        Sizes(Ints::new())
    }
}

impl From<&Shape> for Sizes {
    fn from(shape: &Shape) -> Sizes {
        Sizes::from(&shape[..])
    }
}

impl From<Shape> for Sizes {
    fn from(shape: Shape) -> Sizes {
        Sizes::from(&shape[..])
    }
}

/// Resolves a dimension argument; negative ones are wrapped.
pub(crate) fn resolve_dim(op: &'static str, dim: isize, rank: usize) -> Result<usize> {
    let wrapped = if dim < 0 { dim.saturating_add(rank as isize) } else { dim };
    if wrapped < 0 || wrapped >= rank as isize {
        bail!(Index, op, "dimension {dim} is out of range for rank {rank}");
    }
    Ok(wrapped as usize)
}

/// As [`resolve_dim`], but 0 and -1 are allowed for a 0-d tensor, as in PyTorch.
pub(crate) fn resolve_dim_or_scalar(op: &'static str, dim: isize, rank: usize) -> Result<usize> {
    if rank == 0 && matches!(dim, 0 | -1) { Ok(0) } else { resolve_dim(op, dim, rank) }
}

/// Resolves dimension arguments to sorted indices without duplicates. For a 0-d tensor 0 and -1 are allowed, as in PyTorch, and
/// ignored.
pub(crate) fn resolve_dims(op: &'static str, dims: &Dims, rank: usize) -> Result<SmallVec<[usize; INLINE]>> {
    let Some(dims) = &dims.named else { return Ok((0..rank).collect()) };
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

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn dims_wrap_and_repeat_is_an_error() {
        assert_eq!(resolve_dims("sum", &Dims::from([-1, 0]), 3).ok().as_deref(), Some(&[0, 2][..]));
        let twice = resolve_dims("sum", &Dims::from([1, -2]), 3).map_err(|e| e.to_string());
        assert_eq!(twice.err().as_deref(), Some("sum: dimension -2 occurs twice in [1, -2]"));
        let outside = resolve_dim("sum", 3, 3).map_err(|e| e.to_string());
        assert_eq!(outside.err().as_deref(), Some("sum: dimension 3 is out of range for rank 3"));
        assert!(resolve_dim("sum", 0, 0).is_err());
        assert_eq!(resolve_dims("sum", &Dims::from([0]), 0).ok().as_deref(), Some(&[][..]));
        assert!(resolve_dims("sum", &Dims::from([1]), 0).is_err());
    }

    #[test]
    fn a_dimension_too_large_for_a_signed_number_is_out_of_range() {
        assert!(resolve_dims("sum", &Dims::from(usize::MAX), 3).is_err(), "it is not -1");
        assert!(resolve_dim("sum", Dim::from(usize::MAX).0, 3).is_err());
        assert!(resolve_dim("sum", isize::MIN, 3).is_err());
    }
}
