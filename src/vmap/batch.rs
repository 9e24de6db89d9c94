//! Batched tensors: one handle for the values of all examples.
//!
//! A batched tensor has the shape and strides of one example, and beside them a size and a stride for each `vmap` that it is
//! inside of. So every operation that only makes another layout is right for all examples at once, and needs no rule. No kernel
//! knows batches: [`Tensor::as_view`] refuses them, so that an operation that has not thought of them is an error, or is done
//! example by example, and never a wrong value.

use super::is_active;
use crate::error::bail;
use crate::layout::check_shape;
use crate::{Result, Shape, Tensor};
use smallvec::SmallVec;

/// The dimension of a `vmap`: the step from one example to the next, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchDim {
    /// Which `vmap` it belongs to. An inner one has a larger number.
    pub level: u64,
    pub size: usize,
    pub stride: isize,
}

/// The dimensions of a batched tensor, from the outermost `vmap` to the innermost.
pub(crate) type BatchDims = SmallVec<[BatchDim; 2]>;

/// A `vmap`, and the number of its examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub number: u64,
    pub size: usize,
}

impl Level {
    pub fn of(dim: &BatchDim) -> Level {
        Level { number: dim.level, size: dim.size }
    }
}

/// The innermost `vmap` that one of these tensors is inside of.
pub(crate) fn innermost<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Option<Level> {
    let last = |x: &Tensor| x.batch_dims().and_then(|dims| dims.last().copied());
    let found = tensors.into_iter().filter_map(last).max_by_key(|dim| dim.level)?;
    Some(Level::of(&found))
}

impl Tensor {
    pub(super) fn batch_dim(&self, level: Level) -> Option<BatchDim> {
        self.batch_dims()?.iter().find(|dim| dim.level == level.number).copied()
    }

    /// All examples as a dimension of its own, in front; one of size 1 where the tensor is the same for all of them.
    /// Outside the graph.
    pub(crate) fn leading_batch(&self, level: Level) -> Result<Tensor> {
        let (size, stride) = self.batch_dim(level).map_or((1, 0), |dim| (dim.size, dim.stride));
        Ok(self.with_batch(self.layout().with_leading("vmap", size, stride)?, self.batch_without(level)))
    }

    fn batch_without(&self, level: Level) -> BatchDims {
        self.batch_dims()
            .map(|dims| dims.iter().filter(|dim| dim.level != level.number).copied().collect())
            .unwrap_or_default()
    }

    /// The values of all examples, with the dimensions of every `vmap` in front. Outside the graph.
    pub(crate) fn all_examples(&self) -> Result<Tensor> {
        let mut all = self.clone();
        while let Some(level) = innermost([&all]) {
            all = all.leading_batch(level)?;
        }
        Ok(all)
    }

    /// The first dimension as the examples of a `vmap`. Outside the graph.
    pub(crate) fn batched(&self, level: Level) -> Result<Tensor> {
        if self.shape().first() != Some(&level.size) {
            bail!(Shape, "vmap", "a result of shape {:?} does not begin with {} examples", self.shape(), level.size);
        }
        let (layout, stride) = self.layout().without_leading();
        Ok(self.in_batch(layout, level, stride))
    }

    fn in_batch(&self, layout: crate::layout::Layout, level: Level, stride: isize) -> Tensor {
        let mut dims = self.batch_without(level);
        let at = dims.iter().position(|dim| dim.level > level.number).unwrap_or(dims.len());
        dims.insert(at, BatchDim { level: level.number, size: level.size, stride });
        self.with_batch(layout, dims)
    }

    /// All examples as a first dimension, in the graph.
    #[track_caller]
    pub(crate) fn unbatch(&self, level: Level) -> Result<Tensor> {
        let all = self.spread_over(level)?;
        all.leading_batch(level)?.record_across("unbatch", &all, move |g| g.batch(level))
    }

    /// The first dimension as the examples of a `vmap`, in the graph.
    #[track_caller]
    pub(crate) fn batch(&self, level: Level) -> Result<Tensor> {
        self.batched(level)?.record_across("batch", self, move |g| g.unbatch(level))
    }

    /// A tensor that is the same for all examples, as one of each. Its gradient is one for each example as long as the
    /// function that sees single examples is running, and their sum afterwards.
    #[track_caller]
    pub(crate) fn spread_over(&self, level: Level) -> Result<Tensor> {
        if self.batch_dim(level).is_some() {
            return Ok(self.clone());
        }
        let spread = self.in_batch(self.layout().clone(), level, 0);
        spread.record_across(
            "spread",
            self,
            move |g| {
                if is_active(level) { Ok(g.clone()) } else { g.unbatch(level)?.sum(0) }
            },
        )
    }

    /// What a function gives of this tensor and one of its dimensions, for all examples at once where there are some.
    /// Outside the graph.
    pub(crate) fn along_dim(&self, dim: usize, f: &dyn Fn(&Tensor, usize) -> Result<Tensor>) -> Result<Tensor> {
        if self.is_batched() {
            return Tensor::over_batch(&[self], |_, all| all[0].along_dim(dim + 1, f));
        }
        f(self, dim)
    }

    /// All examples as a first dimension of each of these, in the graph, and behind it dimensions of size 1 up to a common
    /// rank: what broadcasts for one example does so for all. Constants that are the same for all have one of size 1.
    #[track_caller]
    pub(crate) fn unbatch_aligned<const N: usize>(level: Level, tensors: [&Tensor; N]) -> Result<[Tensor; N]> {
        let rank = tensors.iter().map(|x| x.rank()).max().unwrap_or(0);
        let mut all = tensors.map(Tensor::clone);
        for x in &mut all {
            let missing = rank - x.rank();
            let constant = x.batch_dim(level).is_none() && !x.requires_grad();
            let leading = if constant { x.leading_batch(level)? } else { x.unbatch(level)? };
            *x = (0..missing).try_fold(leading, |x, _| x.unsqueeze(1))?;
        }
        Ok(all)
    }

    /// A function of this tensor that treats its first dimensions alike, of all examples at once, in the graph; `None` if
    /// this is no batched tensor.
    #[track_caller]
    pub(crate) fn with_examples(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Option<Result<Tensor>> {
        let level = innermost([self])?;
        Some(self.unbatch(level).and_then(|all| f(&all)?.batch(level)))
    }

    /// Calls `f` with all examples of the innermost `vmap` as a first dimension of every input, of size 1 in inputs that are
    /// the same for all of them, and takes the first dimension of its result as the examples again. Outside the graph: the
    /// caller records what it has computed.
    pub(crate) fn over_batch(
        inputs: &[&Tensor],
        f: impl FnOnce(Level, &[&Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(level) = innermost(inputs.iter().copied()) else {
            bail!(Value, "vmap", "there is no batched tensor");
        };
        let all: SmallVec<[Tensor; 3]> = inputs.iter().map(|x| x.leading_batch(level)).collect::<Result<_>>()?;
        let result = f(level, &all.iter().collect::<SmallVec<[&Tensor; 3]>>())?;
        result.batched(level)
    }
}

/// A shape behind a dimension of so many examples, if a tensor can have it.
pub(crate) fn behind(size: usize, shape: &Shape) -> Result<Shape> {
    let all: Shape = std::iter::once(size).chain(shape.iter().copied()).collect();
    check_shape("vmap", &all)?;
    Ok(all)
}
