//! The layout of a tensor's elements in its storage: shape, strides and offset.
//!
//! Invariants, cited where they are relied on:
//! - **L1** `shape` and `strides` have the same length.
//! - **L2** every element's position `offset + Σ index·stride` lies inside the storage that the layout was made for. A
//!   contiguous layout has it by construction, views of a layout address a subset of its positions, and
//!   [`Layout::as_strided`] checks it.
//! - **L3** the bytes of all elements fit in `isize`, whatever their dtype, also if sizes of 0 counted as 1, so that neither
//!   strides nor byte counts can overflow. Every new shape passes [`check_shape`]: those that a caller gives, broadcast and
//!   expanded ones included. Views and reductions of a checked shape have no more elements.
#![forbid(unsafe_code)]

mod args;
mod broadcast;
mod slice;
mod view;
mod walk;

pub use args::{At, Dim, Dims, ReduceDims, Sections, Shape, Sizes, keepdim};
pub(crate) use args::{Cuts, INLINE, Ints, Strides, ToSigned, resolve_dim, resolve_dim_or_scalar, resolve_dims};
pub(crate) use broadcast::{broadcast, reduced_dims};
pub use slice::Slice;
pub(crate) use walk::Walk;

use crate::{Result, error::bail};

/// Shape, strides and offset, all counted in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: Shape,
    strides: Strides,
    offset: usize,
    // Derived from the above, and needed at every use of a tensor.
    numel: usize,
    contiguous: bool,
}

impl Layout {
    /// The row-major layout of a shape, with offset 0.
    #[inline]
    pub fn contiguous(shape: Shape) -> Layout {
        let (strides, numel) = (contiguous_strides(&shape), shape.numel());
        Layout { shape, strides, offset: 0, numel, contiguous: true }
    }

    /// As [`contiguous`](Self::contiguous), with the shape copied directly into place.
    #[inline(always)]
    pub fn shaped(shape: &Shape) -> Layout {
        let strides = contiguous_strides(shape);
        Layout { shape: shape.clone(), strides, offset: 0, numel: shape.numel(), contiguous: true }
    }

    fn new(shape: Shape, strides: Strides, offset: usize) -> Layout {
        debug_assert_eq!(shape.len(), strides.len(), "L1");
        let (numel, contiguous) = (shape.numel(), is_contiguous(&shape, &strides));
        Layout { shape, strides, offset, numel, contiguous }
    }

    /// The channels-last layout of a shape of at least two dimensions: the second dimension, the channels, has stride 1.
    pub fn channels_last(shape: &Shape) -> Layout {
        let mut strides = contiguous_strides(shape);
        let mut step = shape[1].max(1) as isize;
        strides[1] = 1;
        for dim in (2..shape.len()).rev().chain([0]) {
            strides[dim] = step;
            step *= shape[dim].max(1) as isize;
        }
        Layout::new(shape.clone(), strides, 0)
    }

    /// Whether the strides are those of [`channels_last`](Self::channels_last), with any offset, and the layout is not contiguous.
    pub fn is_channels_last(&self) -> bool {
        if self.contiguous || self.rank() < 3 || self.strides[1] != 1 {
            return false;
        }
        let mut step = self.shape[1] as isize;
        (2..self.rank()).rev().chain([0]).all(|dim| {
            let fits = self.shape[dim] == 1 || self.strides[dim] == step;
            step *= self.shape[dim] as isize;
            fits
        })
    }

    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    #[inline]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Whether the elements are in row-major order without gaps. Strides of dimensions of size 1 do not matter. A layout without
    /// elements is contiguous.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// The lowest and highest position of an element in the storage; `None` without elements.
    pub fn extent(&self) -> Option<(usize, usize)> {
        extent(&self.shape, &self.strides, self.offset)
            .and_then(|(low, high)| Some((usize::try_from(low).ok()?, usize::try_from(high).ok()?)))
    }

    /// Whether no two indices share a position. Exact for views of contiguous layouts. An interleaving `as_strided` layout may be
    /// reported as overlapping although it is not.
    pub fn is_non_overlapping(&self) -> bool {
        let mut dims: smallvec::SmallVec<[(usize, usize); 5]> = self
            .shape
            .iter()
            .zip(self.strides.iter())
            .filter(|&(&size, _)| size > 1)
            .map(|(&size, &stride)| (stride.unsigned_abs(), size))
            .collect();
        dims.sort_unstable();
        let mut reach = 0_usize;
        for (stride, size) in dims {
            if stride <= reach {
                return false;
            }
            // Without elements the strides are arbitrary.
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        true
    }
}

fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1_isize;
    let mut contiguous = true;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size == 0 {
            return true;
        }
        contiguous &= size == 1 || stride == expected;
        expected *= size as isize;
    }
    contiguous
}

/// The range of positions of strided elements, computed in `i128`, which cannot overflow; `None` without elements.
fn extent(shape: &[usize], strides: &[isize], offset: usize) -> Option<(i128, i128)> {
    if shape.contains(&0) {
        return None;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&size, &stride) in shape.iter().zip(strides) {
        let reach = (size as i128 - 1) * stride as i128;
        if reach < 0 {
            low += reach;
        } else {
            high += reach;
        }
    }
    Some((low, high))
}

#[inline]
pub(crate) fn contiguous_strides(shape: &[usize]) -> Strides {
    // The common ranks are written out, so that strides are computed in registers.
    let at_least_one = |size: usize| size.max(1) as isize;
    let inline: [isize; INLINE] = match *shape {
        [] | [_] => [1; INLINE],
        [_, b] => [at_least_one(b), 1, 1, 1, 1],
        [_, b, c] => [at_least_one(b) * at_least_one(c), at_least_one(c), 1, 1, 1],
        _ => return long_strides(shape),
    };
    Strides::from_buf_and_len(inline, shape.len())
}

fn long_strides(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(1, shape.len());
    let mut step = 1_isize;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step *= size.max(1) as isize;
    }
    strides
}

/// The size in bytes of the largest dtype.
const LARGEST_ELEMENT: usize = 16;

/// Checks L3 for a new shape, and returns its number of elements.
pub(crate) fn check_shape(op: &'static str, shape: &[usize]) -> Result<usize> {
    // Common shapes have few and small sizes, whose product cannot overflow.
    const SMALL: usize = 1 << 14;
    if shape.len() <= 4 && shape.iter().all(|&size| size < SMALL) {
        return Ok(shape.iter().product());
    }
    let bytes = shape.iter().try_fold(LARGEST_ELEMENT, |n, &size| n.checked_mul(size.max(1)));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(if shape.contains(&0) { 0 } else { bytes / LARGEST_ELEMENT }),
        _ => bail!(Shape, op, "a tensor of shape {shape:?} has more bytes than can be addressed"),
    }
}

/// As [`check_shape`], but returns the number of bytes of elements of this size.
#[inline]
pub(crate) fn checked_bytes(op: &'static str, shape: &[usize], element: usize) -> Result<usize> {
    Ok(check_shape(op, shape)? * element)
}

/// The multi-index of an element by its row-major number.
pub(crate) fn unravel(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut position = vec![0; shape.len()];
    for (at, &size) in position.iter_mut().zip(shape).rev() {
        (*at, number) = (number % size.max(1), number / size.max(1));
    }
    position
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn contiguity_is_computed_from_the_strides() -> Result<()> {
        let layout = Layout::contiguous([2, 3, 4].into());
        assert_eq!(layout.strides(), [12, 4, 1]);
        assert!(layout.is_contiguous());
        let transposed = layout.permute("t", &[0, 2, 1])?;
        assert!(!transposed.is_contiguous());
        assert!(transposed.permute("t", &[0, 2, 1])?.is_contiguous(), "no sticky flag");
        assert!(layout.slice("s", 0, &(1..2).into())?.is_contiguous(), "an offset does not matter");
        assert!(!layout.slice("s", 1, &(1..2).into())?.is_contiguous());
        assert!(Layout::contiguous([0, 3].into()).permute("t", &[1, 0])?.is_contiguous());
        Ok(())
    }

    #[test]
    fn channels_that_come_last_are_seen() -> Result<()> {
        let last = Layout::channels_last(&[2, 3, 4, 5].into());
        assert_eq!(last.strides(), [60, 1, 15, 3]);
        assert!(last.is_channels_last() && last.permute("p", &[0, 2, 3, 1])?.is_contiguous());
        assert!(!Layout::contiguous([2, 3, 4, 5].into()).is_channels_last());
        // In either order the elements lie alike.
        assert!(!Layout::channels_last(&[2, 3, 1, 1].into()).is_channels_last());
        assert!(!Layout::channels_last(&[2, 1, 4, 5].into()).is_channels_last());
        assert!(!last.slice("s", 1, &(0..2).into())?.is_channels_last(), "there are gaps");
        assert!(Layout::contiguous([2, 4, 3].into()).permute("p", &[0, 2, 1])?.is_channels_last());
        Ok(())
    }

    #[test]
    fn overlap_is_seen() -> Result<()> {
        let layout = Layout::contiguous([2, 3].into());
        assert!(layout.is_non_overlapping());
        assert!(layout.flip("f", &[0])?.is_non_overlapping());
        assert!(!layout.expand("e", &Sizes::from([4, 2, 3]))?.is_non_overlapping());
        assert!(!layout.as_strided("a", [3, 2].into(), &[1, 1], 0, 6)?.is_non_overlapping());
        Ok(())
    }

    #[test]
    fn sizes_that_cannot_be_addressed_are_refused() {
        assert_eq!(checked_bytes("zeros", &[2, 3], 4).ok(), Some(24));
        assert_eq!(checked_bytes("zeros", &[0, 3], 4).ok(), Some(0));
        assert!(checked_bytes("zeros", &[usize::MAX, 3], 4).is_err());
        assert!(checked_bytes("zeros", &[0, usize::MAX, 3], 4).is_err(), "strides would overflow");
    }
}
