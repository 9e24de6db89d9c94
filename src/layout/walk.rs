//! Joint iteration over several layouts of one shape, in as few and as long runs as possible.

use super::{Layout, Shape};
use smallvec::SmallVec;

/// The joint iteration over `N` layouts of one shape. Dimensions of size 1 are dropped, and adjacent dimensions are merged if the
/// strides of all operands allow it, so contiguous operands of any rank are a single run.
pub(crate) struct Walk<const N: usize> {
    /// Sizes and strides, innermost last; never empty.
    dims: SmallVec<[(usize, [isize; N]); 5]>,
    offsets: [isize; N],
    numel: usize,
}

/// Sizes and strides, without dimensions of size 1 and with adjacent dimensions merged where possible; never empty.
#[inline(always)]
fn merged<const N: usize>(shape: &Shape, strides: impl Fn(usize) -> [isize; N]) -> SmallVec<[(usize, [isize; N]); 5]> {
    let mut dims: SmallVec<[(usize, [isize; N]); 5]> = SmallVec::new();
    for (at, &size) in shape.iter().enumerate().filter(|(_, size)| **size != 1) {
        let strides = strides(at);
        match dims.last_mut() {
            Some((run, outer)) if (0..N).all(|k| outer[k] == strides[k].wrapping_mul(size as isize)) => {
                *run *= size;
                *outer = strides;
            }
            _ => dims.push((size, strides)),
        }
    }
    if dims.is_empty() {
        dims.push((1, [0; N]));
    }
    dims
}

impl<const N: usize> Walk<N> {
    /// All layouts have the shape `shape`.
    pub fn new(shape: &Shape, layouts: [&Layout; N]) -> Walk<N> {
        let dims = merged(shape, |at| std::array::from_fn(|k| layouts[k].strides()[at]));
        let offsets = std::array::from_fn(|k| layouts[k].offset() as isize);
        Walk { dims, offsets, numel: shape.numel() }
    }

    /// The walk over dimensions given by their sizes and strides, outermost first, from these positions.
    pub fn over(dims: &[(usize, [isize; N])], offsets: [isize; N]) -> Walk<N> {
        let shape: Shape = dims.iter().map(|&(size, _)| size).collect();
        Walk { dims: merged(&shape, |at| dims[at].1), offsets, numel: shape.numel() }
    }

    /// The walk over one layout given by its shape and strides, from position 0.
    pub fn of(shape: &Shape, strides: &[isize]) -> Walk<1> {
        let dims = merged(shape, |at| [strides[at]]);
        Walk { dims, offsets: [0], numel: shape.numel() }
    }

    /// Sizes and strides of the merged dimensions, innermost last.
    pub fn dims(&self) -> &[(usize, [isize; N])] {
        &self.dims
    }

    /// The positions of the first elements.
    pub fn first(&self) -> [isize; N] {
        self.offsets
    }

    /// The walk over pairs of elements, if these are contiguous for every operand.
    pub fn pairs(&self) -> Option<Walk<N>> {
        let (inner, outer) = self.dims.split_last()?;
        let even = outer.iter().flat_map(|(_, strides)| strides).chain(&self.offsets).all(|step| step % 2 == 0);
        if *inner != (2, [1; N]) || outer.is_empty() || !even {
            return None;
        }
        let dims = outer.iter().map(|&(size, strides)| (size, strides.map(|step| step / 2))).collect();
        Some(Walk { dims, offsets: self.offsets.map(|at| at / 2), numel: self.numel / 2 })
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// The strides of the operands inside a run.
    pub fn inner(&self) -> [isize; N] {
        self.dims[self.dims.len() - 1].1
    }

    /// The number of elements in a whole run.
    pub fn inner_len(&self) -> usize {
        self.dims[self.dims.len() - 1].0
    }

    /// Calls `f` with the operands' positions and the length of each run of the elements `start..end`, in order.
    #[inline]
    pub fn runs(&self, start: usize, end: usize, mut f: impl FnMut([isize; N], usize)) {
        self.each_run(start, end, &mut f);
    }

    /// Compiled once for each number of operands, and not for every closure.
    #[inline(never)]
    fn each_run(&self, start: usize, end: usize, visitor: &mut dyn VisitRuns<N>) {
        if start >= end {
            return;
        }
        let last = self.dims.len() - 1;
        let (inner, inner_strides) = self.dims[last];
        let mut index: SmallVec<[usize; 5]> = SmallVec::from_elem(0, last);
        let mut at = self.offsets;
        let mut rest = start / inner;
        for d in (0..last).rev() {
            let (size, strides) = self.dims[d];
            index[d] = rest % size;
            rest /= size;
            for k in 0..N {
                at[k] += index[d] as isize * strides[k];
            }
        }
        let mut first = start % inner;
        let mut left = end - start;
        loop {
            let run = left.min(inner - first);
            visitor.visit(std::array::from_fn(|k| at[k] + first as isize * inner_strides[k]), run);
            left -= run;
            if left == 0 {
                return;
            }
            first = 0;
            let mut d = last;
            while d > 0 {
                d -= 1;
                let (size, strides) = self.dims[d];
                index[d] += 1;
                for k in 0..N {
                    at[k] += strides[k];
                }
                if index[d] < size {
                    break;
                }
                index[d] = 0;
                for k in 0..N {
                    at[k] -= size as isize * strides[k];
                }
            }
        }
    }
}

/// Visits a run: its positions and its length. A custom trait and not `dyn FnMut`, whose vtable also has a function that takes
/// the closure by value: a second, unused copy of each loop.
trait VisitRuns<const N: usize> {
    fn visit(&mut self, at: [isize; N], len: usize);
}

impl<const N: usize, F: FnMut([isize; N], usize)> VisitRuns<N> for F {
    fn visit(&mut self, at: [isize; N], len: usize) {
        self(at, len);
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Result;

    fn positions<const N: usize>(walk: &Walk<N>, start: usize, end: usize) -> Vec<[isize; N]> {
        let mut all = Vec::new();
        let inner = walk.inner();
        walk.runs(start, end, |at, len| {
            for i in 0..len as isize {
                all.push(std::array::from_fn(|k| at[k] + i * inner[k]));
            }
        });
        all
    }

    #[test]
    fn contiguous_operands_are_one_run() {
        let layout = Layout::contiguous([2, 3, 1, 4].into());
        let walk = Walk::new(layout.shape(), [&layout, &layout]);
        let mut runs = 0;
        walk.runs(0, walk.numel(), |_, len| {
            runs += 1;
            assert_eq!(len, 24);
        });
        assert_eq!(runs, 1);
    }

    #[test]
    fn a_walk_may_start_anywhere() -> Result<()> {
        let a = Layout::contiguous([4, 3, 2].into()).permute("p", &[2, 0, 1])?;
        let b = Layout::contiguous([3].into()).broadcast_to(a.shape());
        let walk = Walk::new(a.shape(), [&a, &b]);
        let all = positions(&walk, 0, 24);
        assert_eq!(all[..4], [[0, 0], [2, 1], [4, 2], [6, 0]]);
        for start in 0..24 {
            for end in start..=24 {
                assert_eq!(positions(&walk, start, end), all[start..end], "{start}..{end}");
            }
        }
        Ok(())
    }
}
