//! What an operation leaves behind for the backward pass.
//!
//! A node's facts (name, place, shape) are plain fields. Its *body*, the edges to its inputs and the closure with the
//! saved values, can be taken away: by a backward pass that does not retain the graph, or by a tape that is popped.

use super::engine::Pending;
use super::hooks::Extras;
use super::tape::TapeEntry;
use super::{anomaly, mode};
use crate::error::{bail, err};
use crate::layout::Shape;
use crate::memory::{Shared, Vacant};
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// The cotangents a rule returns: one for each input, `None` where none was asked for.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 2]>;
/// The nodes of the inputs, by position; `None` for inputs that need no gradient.
pub(crate) type Edges = SmallVec<[Option<NodeRef>; 2]>;

/// Creation order is a topological order: inputs exist before the operation that uses them.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A tensor that was told to require a gradient.
    Leaf,
    /// The result of an operation with a derivative.
    Op,
    /// The result of an operation without one: it requires no gradient, but can say why when one is asked of it.
    Barrier,
}

/// A recorded operation.
pub(crate) struct Node {
    pub seq: u64,
    pub name: &'static str,
    pub location: &'static Location<'static>,
    pub kind: NodeKind,
    pub dtype: DType,
    pub device: Device,
    pub shape: Shape,
    pub saved_bytes: usize,
    pub tape: Option<TapeEntry>,
    pub extras: OnceLock<Box<Extras>>,
    /// `None` in a leaf or a barrier, and where it was taken away.
    body: RwLock<Option<Body>>,
}

/// The part of a node that can be taken away.
#[derive(Clone)]
pub(crate) struct Body {
    pub edges: Edges,
    /// Not in the node itself: that would make all pointers to nodes, and so all handles of tensors, wide ones, which the
    /// compiler moves through memory and not in registers.
    pub rule: Shared<RuleFn>,
}

pub(crate) type RuleFn = dyn Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync;

impl Node {
    /// A copy of the edges and the rule, which stay; `None` if they are gone.
    pub fn body(&self) -> Option<Body> {
        self.body.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The edges and the rule, for good; `None` if they are gone.
    #[inline]
    pub fn take_body(node: &mut NodeRef) -> Option<Body> {
        // A node that nobody else has, as most are when their turn comes, needs no lock.
        match node.get_mut() {
            Some(node) => node.body.get_mut().unwrap_or_else(PoisonError::into_inner).take(),
            None => node.body.write().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

    /// The edges alone; empty if they are gone.
    pub fn edges(&self) -> Edges {
        let body = self.body.read().unwrap_or_else(PoisonError::into_inner);
        body.as_ref().map(|body| body.edges.clone()).unwrap_or_default()
    }

    /// Drops edges, closure and saved values.
    pub fn release(&self) {
        // Bound first so that the lock is free again while values are dropped.
        let taken = self.body.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }

    /// The rarely used part: the stored gradient and the hooks.
    pub fn extras(&self) -> &Extras {
        self.extras.get_or_init(Box::default)
    }

    /// The error of a rule that broke its contract or a graph that is gone, with the place of the operation.
    pub fn freed(&self, op: &'static str) -> Error {
        err!(
            Graph,
            op,
            "the graph was freed by an earlier backward pass: the saved values of {} (called at {}) are gone; \
             pass retain_graph to the earlier pass, or compute the value again",
            self.name,
            self.location
        )
    }
}

/// Bodies that die while another one is being dropped on the same thread wait here for the outermost to drop them, so
/// that dropping a chain of any length does not recurse.
struct Dying {
    active: bool,
    queue: Vec<Body>,
}

thread_local! {
    static DYING: RefCell<Dying> = const { RefCell::new(Dying { active: false, queue: Vec::new() }) };
}

impl Drop for Node {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            body.drop_flat();
        }
    }
}

impl Body {
    /// Drops it now, or leaves it to the drop of another body that is under way.
    fn drop_flat(self) {
        let outermost = DYING.try_with(|dying| {
            let mut dying = dying.borrow_mut();
            !std::mem::replace(&mut dying.active, true)
        });
        match outermost {
            Ok(true) => {
                drop(self);
                // Popped outside the borrow: dropping it may push more.
                while let Some(next) = DYING.with(|dying| dying.borrow_mut().queue.pop()) {
                    drop(next);
                }
                DYING.with(|dying| dying.borrow_mut().active = false);
            }
            Ok(false) => DYING.with(|dying| dying.borrow_mut().queue.push(self)),
            // The thread is ending and its queue is gone.
            Err(_) => drop(self),
        }
    }
}

/// A shared node.
pub(crate) type NodeRef = Shared<Node>;

/// Collects what a rule keeps, while it is being built.
pub(crate) struct Saver<'a> {
    output: &'a Tensor,
    edges: &'a Edges,
    bytes: usize,
}

impl Saver<'_> {
    /// Whether the gradient of the input at this position was asked for.
    pub fn needs(&self, input: usize) -> bool {
        matches!(self.edges.get(input), Some(Some(_)))
    }

    /// Keeps a value, with its graph, for the rule.
    pub fn save(&mut self, value: &Tensor) -> Tensor {
        self.bytes += value.numel() * value.dtype().size();
        value.mark_needed();
        value.clone()
    }

    /// Keeps the values of the operation's own result, for [`BackwardContext::output`].
    pub fn save_output(&mut self) -> Tensor {
        self.save(self.output)
    }

    /// Keeps a value only if the gradient of `input` was asked for.
    pub fn save_for(&mut self, input: usize, value: &Tensor) -> Saved {
        Saved(self.needs(input).then(|| self.save(value)))
    }

    /// Keeps a value, with its graph, that the last call of the rule may use up.
    pub fn save_donated(&mut self, value: &Tensor) -> Donated {
        Donated(Mutex::new(Some(self.save(value))))
    }
}

/// A value kept only where a gradient that was asked for needs it.
pub(crate) struct Saved(Option<Tensor>);

impl Saved {
    pub fn get(&self) -> Result<&Tensor> {
        self.0.as_ref().ok_or_else(|| err!(Graph, "backward", "a value was not saved: its gradient was not asked for"))
    }
}

/// A value that the last call of a rule may use up: a gradient of its size can then be written over it.
pub(crate) struct Donated(Mutex<Option<Tensor>>);

impl Donated {
    /// The value: the only handle that the rule has, if it is not called again.
    pub fn take(&self, ctx: &BackwardContext) -> Result<Tensor> {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = if ctx.last { value.take() } else { value.clone() };
        value.ok_or_else(|| err!(Graph, ctx.node.name, "the rule was called again after its last call"))
    }
}

/// What a rule may ask the engine while it runs.
pub(crate) struct BackwardContext<'a> {
    pub node: &'a NodeRef,
    pub edges: &'a Edges,
    /// With a filter only the nodes in it are wanted.
    pub wanted: Option<&'a std::collections::HashSet<u64>>,
    /// Whether the rule is never called again.
    pub last: bool,
    /// What waits for the inputs, where the rule may add to it.
    pub(super) accumulated: Option<&'a RefCell<Pending>>,
}

impl BackwardContext<'_> {
    /// Whether someone needs the cotangent of the input at this position.
    pub fn needs(&self, input: usize) -> bool {
        match self.edges.get(input) {
            Some(Some(edge)) => self.wanted.is_none_or(|wanted| wanted.contains(&edge.seq)),
            _ => false,
        }
    }

    /// The cotangent of an input, computed only if someone needs it.
    pub fn want(&self, input: usize, f: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        self.needs(input).then(f).transpose()
    }

    /// The result's cotangent handed on as an input's, where someone needs it.
    #[inline]
    pub fn pass(&self, input: usize, cotangent: &Tensor) -> Option<Tensor> {
        self.needs(input).then(|| cotangent.clone())
    }

    /// The cotangent that other uses of an input have given so far, if any, in the input's shape and dtype. A rule that
    /// takes it adds its own in place and returns the sum: a part of the input then costs no more than its size.
    pub fn take_accumulated(&self, input: usize) -> Option<Tensor> {
        let edge = self.edges.get(input)?.as_ref()?;
        self.accumulated?.borrow_mut().take(edge)
    }

    /// The node's own output, of which the rule keeps the values alone: kept with its graph it would own itself.
    pub fn output(&self, values: &Tensor) -> Tensor {
        if mode::is_grad_enabled() { values.clone().with_node(Some(self.node.clone())) } else { values.clone() }
    }
}

impl Tensor {
    /// Makes this result of an operation depend on its inputs. Only if one of them requires a gradient is `rule` called
    /// to build the closure, which keeps what it needs through the [`Saver`].
    #[track_caller]
    #[inline]
    pub(crate) fn record<R>(
        self,
        name: &'static str,
        inputs: &[&Tensor],
        rule: impl FnOnce(&mut Saver<'_>) -> R,
    ) -> Result<Tensor>
    where
        R: Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync + 'static,
    {
        if inputs.iter().all(|t| t.node().is_none()) || !mode::is_grad_enabled() {
            return if anomaly::enabled() { anomaly::check_forward(name, self) } else { Ok(self) };
        }
        self.record_node(name, inputs, rule)
    }

    #[track_caller]
    fn record_node<R>(
        self,
        name: &'static str,
        inputs: &[&Tensor],
        rule: impl FnOnce(&mut Saver<'_>) -> R,
    ) -> Result<Tensor>
    where
        R: Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync + 'static,
    {
        // Two inputs are the common case and fill the inline buffer, which is quicker than growing one.
        let edges = match inputs {
            [a, b] => Edges::from([a.grad_node().cloned(), b.grad_node().cloned()]),
            _ => inputs.iter().map(|t| t.grad_node().cloned()).collect(),
        };
        if edges.iter().all(Option::is_none) {
            // Only barriers: hand the oldest reason on.
            let barrier = inputs.iter().find_map(|t| t.node().cloned());
            return Ok(self.with_node(barrier));
        }
        let tape = TapeEntry::of_inputs(name, &edges)?;
        if anomaly::enabled() {
            anomaly::check_values(name, "result", &self, Location::caller())?;
        }
        let mut saver = Saver { output: &self, edges: &edges, bytes: 0 };
        let rule = rule(&mut saver);
        let bytes = saver.bytes;
        let body = Body { edges, rule: Shared::new_unsized(rule, |inner| inner) };
        let node = new_node(&self, name, NodeKind::Op, tape, bytes, Some(body));
        if let Some(entry) = &node.tape {
            entry.push(&node)?;
        }
        Ok(self.with_node(Some(node)))
    }

    /// Marks the result of an operation that has no derivative, so that asking for one is refused by its name.
    #[track_caller]
    pub(crate) fn record_barrier(self, name: &'static str, inputs: &[&Tensor]) -> Tensor {
        if !mode::is_grad_enabled() || inputs.iter().all(|t| t.node().is_none()) {
            return self;
        }
        let barrier = new_node(&self, name, NodeKind::Barrier, None, 0, None);
        self.with_node(Some(barrier))
    }

    /// This tensor as a leaf of the graph, or of a tape.
    #[track_caller]
    pub(crate) fn into_leaf(self, name: &'static str, tape: Option<TapeEntry>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            bail!(DType, name, "only floating point tensors can require a gradient, not {}", self.dtype());
        }
        let node = new_node(&self, "leaf", NodeKind::Leaf, tape, 0, None);
        if let Some(entry) = &node.tape {
            entry.push(&node)?;
        }
        Ok(self.with_node(Some(node)))
    }
}

#[track_caller]
#[inline(always)]
fn new_node(
    value: &Tensor,
    name: &'static str,
    kind: NodeKind,
    tape: Option<TapeEntry>,
    saved_bytes: usize,
    body: Option<Body>,
) -> NodeRef {
    let block = Vacant::new();
    block.fill(Node {
        seq: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        name,
        location: Location::caller(),
        kind,
        dtype: value.dtype(),
        device: value.device(),
        shape: value.layout().shape().clone(),
        saved_bytes,
        tape,
        extras: OnceLock::new(),
        body: RwLock::new(body),
    })
}

/// The number that the next node will get: whatever exists now has a smaller one.
pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}
