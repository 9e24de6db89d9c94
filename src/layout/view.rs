//! Views: each function makes a new layout over the same storage, or an error.

use super::{Layout, Shape, Sizes, Slice, Strides, check_shape, extent, resolve_dim};
use crate::{Result, error::bail};
use smallvec::SmallVec;

impl Layout {
    /// The dimensions in another order; each must occur once.
    pub fn permute(&self, op: &'static str, dims: &[isize]) -> Result<Layout> {
        let order = self.permutation(op, dims)?;
        let shape = order.iter().map(|&d| self.shape[d]).collect();
        let strides = order.iter().map(|&d| self.strides[d]).collect();
        Ok(Layout::new(shape, strides, self.offset))
    }

    /// The order of `permute`, with negative dimensions wrapped.
    pub fn permutation(&self, op: &'static str, dims: &[isize]) -> Result<SmallVec<[usize; 5]>> {
        if dims.len() != self.rank() {
            bail!(Shape, op, "dims must name all {} dimensions of shape {:?}, got {dims:?}", self.rank(), self.shape);
        }
        let mut order = SmallVec::new();
        for &dim in dims {
            let at = resolve_dim(op, dim, self.rank())?;
            if order.contains(&at) {
                bail!(Index, op, "dimension {dim} occurs twice in {dims:?}");
            }
            order.push(at);
        }
        Ok(order)
    }

    /// The layout of the parts of complex numbers: a last dimension of size 2, and all other strides doubled.
    pub fn pairs(&self) -> Layout {
        let mut shape = self.shape.clone();
        shape.insert(self.rank(), 2);
        // A stride that is never used may be arbitrarily large.
        let strides = self.strides.iter().map(|stride| stride.saturating_mul(2)).chain([1]).collect();
        Layout::new(shape, strides, 2 * self.offset)
    }

    /// The inverse of [`pairs`](Self::pairs); `None` if the last dimension does not consist of contiguous pairs.
    pub fn joined_pairs(&self) -> Option<Layout> {
        let (&2, shape) = self.shape.split_last()? else { return None };
        let (last, strides) = self.strides.split_last()?;
        if self.numel == 0 {
            return Some(Layout::contiguous(shape.into()));
        }
        let even = |(size, stride): (&usize, &isize)| *size <= 1 || stride % 2 == 0;
        if *last != 1 || !self.offset.is_multiple_of(2) || !shape.iter().zip(strides).all(even) {
            return None;
        }
        Some(Layout::new(shape.into(), strides.iter().map(|stride| stride / 2).collect(), self.offset / 2))
    }

    /// This layout with one more dimension in front.
    pub fn with_leading(&self, op: &'static str, size: usize, stride: isize) -> Result<Layout> {
        let shape: Shape = std::iter::once(size).chain(self.shape.iter().copied()).collect();
        check_shape(op, &shape)?;
        Ok(Layout::new(shape, std::iter::once(stride).chain(self.strides.iter().copied()).collect(), self.offset))
    }

    /// This layout without the first dimension, at its first element, and the stride of that dimension.
    pub fn without_leading(&self) -> (Layout, isize) {
        let (shape, strides) =
            (self.shape.iter().skip(1).copied().collect(), self.strides.iter().skip(1).copied().collect());
        (Layout::new(shape, strides, self.offset), self.strides.first().copied().unwrap_or(0))
    }

    /// Two dimensions swapped.
    pub fn transpose(&self, op: &'static str, a: isize, b: isize) -> Result<Layout> {
        let (a, b) = (resolve_dim(op, a, self.rank())?, resolve_dim(op, b, self.rank())?);
        let mut dims: SmallVec<[isize; 5]> = (0..self.rank() as isize).collect();
        dims.swap(a, b);
        self.permute(op, &dims)
    }

    /// A part of one dimension.
    pub fn slice(&self, op: &'static str, dim: isize, range: &Slice) -> Result<Layout> {
        let dim = resolve_dim(op, dim, self.rank())?;
        let (start, len, step) = range.resolve(op, self.shape[dim])?;
        Ok(self.strided_part(dim, start, len, step))
    }

    /// `len` elements of a dimension from `start` on. Unlike [`slice`](Self::slice), a range that is too long is an error.
    pub fn narrow(&self, op: &'static str, dim: isize, start: isize, len: usize) -> Result<Layout> {
        let dim = resolve_dim(op, dim, self.rank())?;
        let size = self.shape[dim];
        let first = if start < 0 { start.saturating_add(size as isize) } else { start };
        if first < 0 || (first as usize).checked_add(len).is_none_or(|end| end > size) {
            bail!(
                Index,
                op,
                "{len} elements from index {start} are out of range for dimension {dim} of shape {:?}",
                self.shape
            );
        }
        Ok(self.strided_part(dim, first as usize, len, 1))
    }

    fn strided_part(&self, dim: usize, start: usize, len: usize, step: isize) -> Layout {
        let mut strides = self.strides.clone();
        // Without elements nothing is read, and an offset at the end would break L2 for views of this view.
        let offset = if len == 0 || self.numel == 0 { self.offset } else { self.at(dim, start) };
        // A large step leaves one element, whose stride is never used. It must not overflow.
        strides[dim] = strides[dim].saturating_mul(step);
        Layout::new(self.shape.with(dim, len), strides, offset)
    }

    /// The offset with dimension `dim` moved to index `index`.
    fn at(&self, dim: usize, index: usize) -> usize {
        (self.offset as isize + index as isize * self.strides[dim]) as usize
    }

    /// One index of a dimension, which is removed.
    pub fn select(&self, op: &'static str, dim: isize, index: isize) -> Result<Layout> {
        let dim = resolve_dim(op, dim, self.rank())?;
        let size = self.shape[dim] as isize;
        let at = if index < 0 { index.saturating_add(size) } else { index };
        if at < 0 || at >= size {
            bail!(Index, op, "index {index} is out of range for dimension {dim} of shape {:?}", self.shape);
        }
        let mut part = self.strided_part(dim, at as usize, 1, 1);
        part.shape.remove(dim);
        part.strides.remove(dim);
        Ok(part)
    }

    /// The given dimensions reversed.
    pub fn flip(&self, op: &'static str, dims: &[usize]) -> Result<Layout> {
        let reversed = Slice::from(..).step(-1);
        dims.iter().try_fold(self.clone(), |layout, &dim| layout.slice(op, dim as isize, &reversed))
    }

    /// The given dimensions removed where their size is 1.
    pub fn squeeze(&self, dims: &[usize]) -> Layout {
        let keep = |d: &usize| self.shape[*d] != 1 || !dims.contains(d);
        let kept: SmallVec<[usize; 5]> = (0..self.rank()).filter(keep).collect();
        let shape = kept.iter().map(|&d| self.shape[d]).collect();
        let strides = kept.iter().map(|&d| self.strides[d]).collect();
        Layout::new(shape, strides, self.offset)
    }

    /// A dimension of size 1 inserted at `dim`, which may be one past the last.
    pub fn unsqueeze(&self, op: &'static str, dim: isize) -> Result<Layout> {
        let rank = self.rank() as isize;
        if !(-rank - 1..=rank).contains(&dim) {
            bail!(Index, op, "dim must be from {} to {rank} for shape {:?}, got {dim}", -rank - 1, self.shape);
        }
        let dim = if dim < 0 { dim + rank + 1 } else { dim } as usize;
        let mut layout = self.clone();
        // The stride that the dimension would have in a contiguous layout.
        let stride = self.shape.get(dim).map_or(1, |&size| (size.max(1) as isize).saturating_mul(self.strides[dim]));
        layout.shape.insert(dim, 1);
        layout.strides.insert(dim, stride);
        Ok(layout)
    }

    /// Dimensions of size 1 repeated, and new leading ones added; `-1` keeps a size.
    pub fn expand(&self, op: &'static str, sizes: &Sizes) -> Result<Layout> {
        let asked = &sizes.0;
        let Some(lead) = asked.len().checked_sub(self.rank()) else {
            bail!(Shape, op, "cannot expand {:?} to {:?}, which has fewer dimensions", self.shape, &asked[..]);
        };
        let mut shape = SmallVec::<[usize; 5]>::new();
        for (at, &size) in asked.iter().enumerate() {
            let own = at.checked_sub(lead).map(|d| self.shape[d]);
            match (own, usize::try_from(size)) {
                (Some(own), Err(_)) if size == -1 => shape.push(own),
                (None | Some(1), Ok(size)) => shape.push(size),
                (Some(own), Ok(size)) if own == size => shape.push(size),
                _ => bail!(Shape, op, "cannot expand {:?} to {:?}", self.shape, &asked[..]),
            }
        }
        let shape = Shape::from_slice(&shape);
        check_shape(op, &shape)?;
        Ok(self.broadcast_to(&shape))
    }

    /// The shape for `sizes`, with `-1` inferred.
    pub fn resolve_sizes(&self, op: &'static str, sizes: &Sizes) -> Result<Shape> {
        let (asked, numel) = (&sizes.0, self.numel());
        let open = asked.iter().filter(|&&s| s == -1).count();
        let known =
            asked.iter().filter(|&&s| s != -1).try_fold(1_usize, |n, &s| n.checked_mul(usize::try_from(s).ok()?));
        let Some(known) = known else {
            bail!(Shape, op, "sizes must be ≥ 0, or -1 for one of them, got {:?}", &asked[..]);
        };
        let fits = match open {
            0 => known == numel,
            1 => known != 0 && numel % known == 0,
            _ => bail!(Shape, op, "at most one size can be -1, got {:?}", &asked[..]),
        };
        if !fits {
            bail!(Shape, op, "cannot change shape {:?} of {numel} elements to {:?}", self.shape, &asked[..]);
        }
        let filled: Shape = asked.iter().map(|&s| if s == -1 { numel / known } else { s as usize }).collect();
        check_shape(op, &filled)?;
        Ok(filled)
    }

    /// The same elements in the same order under another shape; `None` if strides cannot express it.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.is_contiguous() {
            let mut layout = Layout::contiguous(shape.clone());
            layout.offset = self.offset;
            return Some(layout);
        }
        // Walk both shapes from the back. A run of old dimensions that can be merged into one can be split freely. Strides of
        // dimensions of size 1 are arbitrary.
        let old: SmallVec<[(usize, isize); 5]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(size, _)| size != 1).collect();
        let mut strides = Strides::from_elem(1, shape.len());
        let (mut at, mut new_dim) = (old.len(), shape.len());
        while at > 0 {
            at -= 1;
            let (mut run, inner) = old[at];
            while at > 0 && old[at - 1].1 == inner.wrapping_mul(run as isize) {
                at -= 1;
                run *= old[at].0;
            }
            let (mut filled, mut stride) = (1, inner);
            while filled < run && new_dim > 0 {
                new_dim -= 1;
                strides[new_dim] = stride;
                filled *= shape[new_dim];
                stride *= shape[new_dim] as isize;
            }
            if filled != run {
                return None;
            }
        }
        Some(Layout::new(shape.clone(), strides, self.offset))
    }

    /// The diagonal of two different dimensions, at `offset` above the main one, as a last dimension that replaces the two.
    pub fn diagonal(&self, offset: isize, dim1: usize, dim2: usize) -> Layout {
        let (down, right) = if offset < 0 { (offset.unsigned_abs(), 0) } else { (0, offset.unsigned_abs()) };
        let len = self.shape[dim1].saturating_sub(down).min(self.shape[dim2].saturating_sub(right));
        let (a, b) = (self.strides[dim1], self.strides[dim2]);
        let others = (0..self.rank()).filter(|&d| d != dim1 && d != dim2);
        let shape: Shape = others.clone().map(|d| self.shape[d]).chain([len]).collect();
        // The stride of a dimension with one element is arbitrary.
        let strides = others.map(|d| self.strides[d]).chain([a.wrapping_add(b)]).collect();
        let first = if shape.numel() == 0 { 0 } else { down as isize * a + right as isize * b };
        Layout::new(shape, strides, self.offset.wrapping_add_signed(first))
    }

    /// A layout with any strides over a storage of `len` elements. The lowest and highest position are checked.
    pub fn as_strided(
        &self,
        op: &'static str,
        shape: Shape,
        strides: &[isize],
        offset: usize,
        len: usize,
    ) -> Result<Layout> {
        if shape.len() != strides.len() {
            bail!(Shape, op, "expected {} strides for shape {shape:?}, got {strides:?}", shape.len());
        }
        check_shape(op, &shape)?;
        match extent(&shape, strides, offset) {
            Some((low, high)) if low < 0 || high >= len as i128 => bail!(
                Index,
                op,
                "shape {shape:?} with strides {strides:?} and offset {offset} reaches from {low} to {high}, outside the storage's {len} elements"
            ),
            None if offset > len => bail!(Index, op, "offset {offset} is outside the storage's {len} elements"),
            _ => Ok(Layout::new(shape, Strides::from_slice(strides), offset)),
        }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    fn base() -> Layout {
        Layout::contiguous([2, 3, 4].into())
    }

    fn error_case(result: Result<Layout>) -> String {
        result.map_or_else(|e| e.to_string(), |l| format!("not refused: {l:?}"))
    }

    #[test]
    fn offsets_survive_views_of_views() -> Result<()> {
        let v = base().select("select", 0, 1)?.slice("slice", 0, &(1..).into())?.transpose("t", 0, 1)?;
        assert_eq!((&v.shape()[..], v.strides(), v.offset()), (&[4, 2][..], &[1, 4][..], 16));
        let v = v.select("select", 0, -1)?;
        assert_eq!((&v.shape()[..], v.strides(), v.offset()), (&[2][..], &[4][..], 19));
        let reshaped = base().select("select", 0, 1)?.reshape(&[12].into());
        assert_eq!(reshaped.map(|l| l.offset()), Some(12));
        Ok(())
    }

    #[test]
    fn reshape_needs_no_copy_where_strides_can_say_it() -> Result<()> {
        let t = base().permute("permute", &[2, 0, 1])?;
        assert_eq!(t.reshape(&[4, 6].into()).map(|l| l.strides().to_vec()), Some(vec![1, 4]));
        assert_eq!(t.reshape(&[8, 3].into()), None);
        let row = base().slice("slice", 1, &(0..1).into())?;
        assert_eq!(row.reshape(&[2, 4].into()).map(|l| l.strides().to_vec()), Some(vec![12, 1]));
        assert_eq!(row.reshape(&[2, 2, 2, 1].into()).map(|l| l.strides()[..3].to_vec()), Some(vec![12, 2, 1]));
        let flat = base().transpose("t", 0, 1)?;
        assert_eq!(flat.reshape(&[3, 2, 2, 2].into()).map(|l| l.strides().to_vec()), Some(vec![4, 12, 2, 1]));
        Ok(())
    }

    #[test]
    fn refusals_name_the_op_and_the_values() {
        assert_eq!(
            error_case(base().permute("permute", &[0, 1])),
            "permute: dims must name all 3 dimensions of shape [2, 3, 4], got [0, 1]"
        );
        assert_eq!(
            error_case(base().permute("permute", &[0, 1, -2])),
            "permute: dimension -2 occurs twice in [0, 1, -2]"
        );
        assert_eq!(
            error_case(base().select("select", 1, 3)),
            "select: index 3 is out of range for dimension 1 of shape [2, 3, 4]"
        );
        assert_eq!(
            error_case(base().narrow("narrow", 2, 2, 3)),
            "narrow: 3 elements from index 2 are out of range for dimension 2 of shape [2, 3, 4]"
        );
        assert_eq!(
            error_case(base().expand("expand", &Sizes::from([2, 5, 4]))),
            "expand: cannot expand [2, 3, 4] to [2, 5, 4]"
        );
        assert_eq!(
            error_case(base().as_strided("as_strided", [2, 2].into(), &[20, 4], 0, 24)),
            "as_strided: shape [2, 2] with strides [20, 4] and offset 0 reaches from 0 to 24, outside the storage's 24 elements"
        );
        assert!(error_case(base().as_strided("as_strided", [2].into(), &[-1], 0, 24)).contains("from -1 to 0"));
        let sizes = base().resolve_sizes("reshape", &Sizes::from([-1, 5])).map_err(|e| e.to_string());
        assert_eq!(sizes.err().as_deref(), Some("reshape: cannot change shape [2, 3, 4] of 24 elements to [-1, 5]"));
    }

    #[test]
    fn empty_and_scalar_layouts_are_ordinary() -> Result<()> {
        let empty = Layout::contiguous([0, 3].into());
        assert_eq!(empty.slice("slice", 1, &(1..2).into())?.shape()[..], [0, 1]);
        assert_eq!(base().slice("slice", 0, &(2..).into())?.select("select", 1, 2)?.numel(), 0);
        let scalar = Layout::contiguous(().into());
        assert_eq!(scalar.numel(), 1);
        assert_eq!(scalar.unsqueeze("unsqueeze", -1)?.shape()[..], [1]);
        assert_eq!(scalar.expand("expand", &Sizes::from([2, 3]))?.strides(), [0, 0]);
        assert_eq!(scalar.permute("permute", &[])?, scalar);
        Ok(())
    }
}
