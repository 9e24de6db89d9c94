//! What an operation leaves behind for the backward pass.
//!
//! A node's facts (name, place, shape) are plain fields. Its *body*, the edges to its inputs and the rule with the
//! saved values, can be taken away: by a backward pass that does not retain the graph, or by a tape that is popped.
//!
//! An operation with several results has one node with a [joint rule](Rule::Joint) and, for each result that has a
//! derivative, a small node with the one edge to it. These pass their cotangents on to the joint node, which runs when
//! all have arrived: they are younger than it.

use super::drop_queue::{self, Garbage};
use super::failures;
use super::hooks::Extras;
use super::rule::BackwardContext;
use super::tape::TapeEntry;
use crate::error::err;
use crate::layout::Shape;
use crate::memory::{Shared, Vacant};
use crate::place::{Name, Place};
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

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
    pub name: Name,
    pub place: Place,
    pub kind: NodeKind,
    pub dtype: DType,
    pub device: Device,
    pub shape: Shape,
    pub saved_bytes: usize,
    pub tape: Option<TapeEntry>,
    pub extras: OnceLock<Arc<Extras>>,
    /// Of a leaf: whether its values were changed since, so that this node speaks of old ones.
    pub(super) stale: AtomicBool,
    body: RwLock<BodyState>,
}

/// The part of a node that can be taken away.
enum BodyState {
    Present(Body),
    /// Taken by the backward pass of this number, or by a tape (0).
    Taken(u64),
    /// A leaf or a barrier has none.
    Never,
}

#[derive(Clone)]
pub(crate) struct Body {
    pub edges: Edges,
    pub rule: Rule,
}

/// How the cotangents of the inputs follow from those of the results.
// Closures are not kept in the node itself: that would make all pointers to nodes, and so all handles of tensors, wide
// ones, which the compiler moves through memory and not in registers.
#[derive(Clone)]
pub(crate) enum Rule {
    /// Of an operation with one result.
    One(Shared<RuleFn>),
    /// Of an operation with several: `None` for results whose cotangents nobody gave.
    Joint(Shared<JointRuleFn>),
    /// The result at this position of the joint node behind the one edge.
    Output(usize),
}

pub(crate) type RuleFn = dyn Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync;
pub(crate) type JointRuleFn = dyn Fn(&BackwardContext, &[Option<Tensor>]) -> Result<Grads> + Send + Sync;

impl Node {
    /// A copy of the edges and the rule, which stay; `None` if they are gone.
    pub fn body(&self) -> Option<Body> {
        match &*self.body.read().unwrap_or_else(PoisonError::into_inner) {
            BodyState::Present(body) => Some(body.clone()),
            _ => None,
        }
    }

    /// Whether the edges and the rule are still there.
    pub fn has_body(&self) -> bool {
        matches!(&*self.body.read().unwrap_or_else(PoisonError::into_inner), BodyState::Present(_))
    }

    /// The edges and the rule, for good; `None` if they are gone.
    #[inline]
    pub fn take_body(node: &mut NodeRef, pass: u64) -> Option<Body> {
        // A node that nobody else has, as most are when their turn comes, needs no lock.
        match node.get_mut() {
            Some(node) => node.body.get_mut().unwrap_or_else(PoisonError::into_inner).take(pass),
            None => node.body.write().unwrap_or_else(PoisonError::into_inner).take(pass),
        }
    }

    /// The edges alone; empty if they are gone.
    pub fn edges(&self) -> Edges {
        match &*self.body.read().unwrap_or_else(PoisonError::into_inner) {
            BodyState::Present(body) => body.edges.clone(),
            _ => Edges::new(),
        }
    }

    /// The position of this result among those of an operation that has several.
    pub fn output_index(&self) -> Option<usize> {
        match &*self.body.read().unwrap_or_else(PoisonError::into_inner) {
            BodyState::Present(Body { rule: Rule::Output(index), .. }) => Some(*index),
            _ => None,
        }
    }

    /// Drops edges, rule and saved values.
    pub fn release(&self) {
        // Bound first so that the lock is free again while values are dropped.
        let taken = self.body.write().unwrap_or_else(PoisonError::into_inner).take(0);
        drop(taken);
    }

    /// The rarely used part: the stored gradient and the hooks.
    pub fn extras(&self) -> &Arc<Extras> {
        self.extras.get_or_init(Arc::default)
    }

    /// The error of a graph that is gone, with the place of the operation.
    pub fn freed(&self, op: &'static str) -> Error {
        let pass = match &*self.body.read().unwrap_or_else(PoisonError::into_inner) {
            BodyState::Taken(pass) => *pass,
            _ => 0,
        };
        let (name, place) = (&self.name, &self.place);
        match failures::of(pass) {
            Some(failure) => err!(
                Graph,
                op,
                "the graph was used up by an earlier backward pass that failed ({failure}): the saved values of {name} \
                 (called at {place}) are gone; compute the value again"
            ),
            None => err!(
                Graph,
                op,
                "the graph was freed by an earlier backward pass: the saved values of {name} (called at {place}) are gone; \
                 keep them with backward_with(BackwardOptions::new().retain_graph(true)) in the earlier pass, or compute \
                 the value again"
            ),
        }
    }

    /// Whether this is a leaf whose values were changed since.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }
}

impl BodyState {
    #[inline]
    fn take(&mut self, pass: u64) -> Option<Body> {
        if !matches!(self, BodyState::Present(_)) {
            return None;
        }
        match std::mem::replace(self, BodyState::Taken(pass)) {
            BodyState::Present(body) => Some(body),
            _ => None,
        }
    }
}

// Bodies and stored gradients lead to other nodes. They are dropped by a loop, so that a chain of any length does not
// recurse.
impl Drop for Node {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.get_mut().unwrap_or_else(PoisonError::into_inner).take(0) {
            drop_queue::drop_flat(Garbage::Body(body));
        }
        if let Some(extras) = self.extras.take() {
            drop_queue::drop_flat(Garbage::Extras(extras));
        }
    }
}

/// A shared node.
pub(crate) type NodeRef = Shared<Node>;

#[track_caller]
#[inline(always)]
pub(super) fn new_node(
    value: &Tensor,
    name: Name,
    kind: NodeKind,
    tape: Option<TapeEntry>,
    saved_bytes: usize,
    body: Option<Body>,
) -> Result<NodeRef> {
    let block = Vacant::new();
    let node = block.fill(Node {
        seq: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        name,
        place: Place::caller(),
        kind,
        dtype: value.dtype(),
        device: value.device(),
        shape: value.layout().shape().clone(),
        saved_bytes,
        tape,
        extras: OnceLock::new(),
        stale: AtomicBool::new(false),
        body: RwLock::new(body.map_or(BodyState::Never, BodyState::Present)),
    });
    if let Some(entry) = &node.tape {
        entry.push(&node)?;
    }
    Ok(node)
}

/// The number that the next node will get: whatever exists now has a smaller one.
pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}
