//! Batched tensors: one handle for the values of all examples.
//!
//! A batched tensor has the shape and strides of one example, and in addition a size and a stride for each `vmap` that it is
//! inside of. So an operation that only changes the layout is right for all examples at once, and needs no batching rule.
//! Kernels do not handle batches: [`Tensor::as_view`] refuses them. So an operation without a batching rule is an error, or
//! runs once for each example, but never gives a wrong value.
//!
//! An operation belongs to one of these kinds:
//!
//! - It only changes the layout, or consists of other operations: it needs no batching rule.
//! - It calls formulas, reductions, scans, copies, joins, matrix products or the functions that indexing consists of
//!   (`ops/index/gather.rs`): these put the examples into a first dimension.
//! - It is a convolution, a pooling, an attention or a loss of classes: the examples become part of its batch dimension.
//! - It is marked `batch`: all its tensors get the examples as a first dimension.
//! - It reaches a kernel, which refuses batched tensors by [`ErrorKind::Batched`](crate::ErrorKind::Batched): it is called once
//!   for each example, which is slow. [`VmapFallback`] can report or refuse this. The same holds for a backward rule that gets
//!   a cotangent for each example of an operation on tensors that all examples share.
//!
//! A test compares each operation with a loop. Most of those that run as one have results whose shape depends on values.
//!
//! The graph is recorded for single examples. A tensor that all examples share enters it through a node `spread`. While the
//! function runs, the gradient of this node is one for each example; afterwards it is their sum. This is the only difference
//! between a derivative inside of the function and one outside.

use crate::error::bail;
use crate::layout::check_shape;
use crate::{Result, Shape, Tensor, flags};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The dimension of a `vmap`. The stride is the step from one example to the next, in elements.
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
    /// The level of a new `vmap` over `size` examples.
    pub fn new(size: usize) -> Level {
        Level { number: NEXT.fetch_add(1, Ordering::Relaxed), size }
    }

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
    pub(crate) fn batch_dim(&self, level: Level) -> Option<BatchDim> {
        self.batch_dims()?.iter().find(|dim| dim.level == level.number).copied()
    }

    /// All examples as a new first dimension; of size 1 if the tensor is the same for all of them. Outside the graph.
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
            bail!(Shape, "vmap", "dimension 0 must have {} examples, got shape {:?}", level.size, self.shape());
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

    /// Batches a tensor that is the same for all examples. While the function of the `vmap` is running, its gradient is batched,
    /// one for each example; afterwards it is their sum.
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

    /// Calls a function of this tensor and one of its dimensions, for all examples at once if it is batched. Outside the graph.
    pub(crate) fn along_dim(&self, dim: usize, f: &dyn Fn(&Tensor, usize) -> Result<Tensor>) -> Result<Tensor> {
        if self.is_batched() {
            return Tensor::over_batch(&[self], |_, all| all[0].along_dim(dim + 1, f));
        }
        f(self, dim)
    }

    /// All examples as a first dimension of each tensor, in the graph, followed by dimensions of size 1 up to a common rank, so
    /// that the tensors broadcast as for one example. Constants that are the same for all examples get a dimension of size 1.
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

    /// Calls a function that treats the first dimensions of this tensor alike, for all examples at once, in the graph; `None` if
    /// this tensor is not batched.
    #[track_caller]
    pub(crate) fn with_examples(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Option<Result<Tensor>> {
        let level = innermost([self])?;
        Some(self.unbatch(level).and_then(|all| f(&all)?.batch(level)))
    }

    /// Calls `f` with all examples of the innermost `vmap` as a first dimension of every input, of size 1 in inputs that are the
    /// same for all of them. The first dimension of its result are the examples again. Outside the graph: the caller records the
    /// operation.
    pub(crate) fn over_batch(
        inputs: &[&Tensor],
        f: impl FnOnce(Level, &[&Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(level) = innermost(inputs.iter().copied()) else {
            bail!(Value, "vmap", "expected a batched tensor");
        };
        let all: SmallVec<[Tensor; 3]> = inputs.iter().map(|x| x.leading_batch(level)).collect::<Result<_>>()?;
        let result = f(level, &all.iter().collect::<SmallVec<[&Tensor; 3]>>())?;
        result.batched(level)
    }
}

/// A shape with a dimension of `size` examples in front.
pub(crate) fn behind(size: usize, shape: &Shape) -> Result<Shape> {
    let all: Shape = std::iter::once(size).chain(shape.iter().copied()).collect();
    check_shape("vmap", &all)?;
    Ok(all)
}

/// Whether random draws inside [`vmap`](crate::vmap()) are the same for all examples.
///
/// ```
/// use cotangent::{Tensor, vmap::{VmapRandomness, vmap_with}};
/// # cotangent::manual_seed(0);
/// let noisy = |x: &[Tensor]| x[0].add(Tensor::rand([])?);
/// let x = Tensor::zeros([3])?;
/// assert!(vmap_with(noisy, &[&x], VmapRandomness::Refuse).is_err());
/// let y = vmap_with(noisy, &[&x], VmapRandomness::Same)?.to_vec::<f32>()?;
/// assert!(y[0] == y[1] && y[1] == y[2]);
/// let y = vmap_with(noisy, &[&x], VmapRandomness::Different)?.to_vec::<f32>()?;
/// assert!(y[0] != y[1] && y[1] != y[2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VmapRandomness {
    /// Random draws are errors.
    #[default]
    Refuse,
    /// Every example gets the same numbers.
    Same,
    /// Every example gets different numbers.
    Different,
}

/// What [`vmap`](crate::vmap()) does with an operation that has no batching rule.
///
/// ```
/// use cotangent::{Tensor, vmap::{VmapFallback, vmap_with}};
/// let x = Tensor::randn([3, 4])?;
/// let error = vmap_with(|x| x[0].histc(), &[&x], VmapFallback::Refuse).err().ok_or("it is refused")?;
/// assert!(error.to_string().starts_with("histc") && error.to_string().contains("batching rule"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum VmapFallback {
    /// It is called once for each example.
    #[default]
    Loop,
    /// It is called once for each example, with a warning on standard error, once for each operation.
    Warn,
    /// It is an error.
    Refuse,
}

/// A `vmap` whose function is running.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    pub level: Level,
    pub randomness: VmapRandomness,
    pub fallback: VmapFallback,
}

/// The number of the next `vmap`.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The levels of all `vmap`s that are running. A derivative inside of one may be taken on another thread.
static ACTIVE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The `vmap`s whose function was called by this thread, from the outermost to the innermost.
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// Whether `vmap` was ever used. Until then operations need not look for batched tensors.
#[inline(always)]
pub(crate) fn is_used() -> bool {
    flags::has(flags::VMAP)
}

/// Whether the function of a `vmap` is running on this thread.
pub(crate) fn is_running() -> bool {
    is_used() && running().is_some()
}

/// Whether the function of this `vmap` is running.
fn is_active(level: Level) -> bool {
    active().contains(&level.number)
}

fn active() -> MutexGuard<'static, BTreeSet<u64>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The innermost `vmap` on this thread.
pub(crate) fn running() -> Option<Running> {
    RUNNING.with_borrow(|running| running.last().copied())
}

/// A running `vmap`. It ends when this is dropped, also if its function panics.
pub(crate) struct Scope(Level);

impl Scope {
    pub fn new(running: Running) -> Scope {
        active().insert(running.level.number);
        RUNNING.with_borrow_mut(|all| all.push(running));
        Scope(running.level)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
        active().remove(&self.0.number);
    }
}

/// Calls `f` outside of the innermost `vmap` of this thread.
pub(crate) fn outside<T>(f: impl FnOnce() -> T) -> T {
    let taken = RUNNING.with_borrow_mut(Vec::pop);
    let _back = Back(taken);
    f()
}

/// Warns about or refuses an operation without a batching rule, as the options of the `vmap` say.
pub(crate) fn report(op: &str, level: Level) -> Result<()> {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let found =
        RUNNING.with_borrow(|all| all.iter().find(|one| one.level.number == level.number).map(|one| one.fallback));
    match found {
        Some(VmapFallback::Refuse) => {
            bail!(Value, op.to_string(), "no batching rule: it would run once for each example")
        }
        Some(VmapFallback::Warn) if REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(op.to_string()) => {
            eprintln!("vmap: {op} has no batching rule, and runs once for each example");
        }
        _ => {}
    }
    Ok(())
}

/// Pushes a `vmap` back on the stack of running ones.
struct Back(Option<Running>);

impl Drop for Back {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            RUNNING.with_borrow_mut(|all| all.push(running));
        }
    }
}
