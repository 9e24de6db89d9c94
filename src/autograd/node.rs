//! The nodes of the graph.
//!
//! A node's name, source line and shape are plain fields. Its *body*, the edges to its inputs and the rule with the saved
//! values, can be freed: by a backward pass that does not retain the graph, or by a tape that is rewound.
//!
//! An operation with several results has one node with a [joint rule](Rule::Joint) and, for each result that has a
//! derivative, a small node with one edge to it. These pass their cotangents on to the joint node. They are younger than
//! it, so it runs after all of them.

use super::drop_queue::{self, Garbage};
use super::failures;
use super::hooks::Extras;
use super::rule::BackwardContext;
use super::tape::TapeEntry;
use crate::error::err;
use crate::layout::Shape;
use crate::location::{Location, Name};
use crate::memory::{Shared, Vacant};
use crate::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The cotangents a rule returns: one for each input, `None` where it is not needed.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 2]>;
/// The nodes of the inputs, by position; `None` for inputs that need no gradient.
pub(crate) type Edges = SmallVec<[Option<NodeRef>; 2]>;

/// Creation order is a topological order: inputs exist before the operation that uses them.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// A tensor on which `requires_grad_` was called.
    Leaf,
    /// The result of an operation with a derivative.
    Op,
    /// The result of an operation without a derivative: it requires no gradient, and keeps the name for the error.
    Barrier,
}

/// A recorded operation.
pub(crate) struct Node {
    pub seq: u64,
    pub name: Name,
    pub location: Location,
    pub kind: NodeKind,
    pub dtype: DType,
    pub device: Device,
    pub shape: Shape,
    pub saved_bytes: usize,
    pub tape: Option<TapeEntry>,
    pub extras: OnceLock<Arc<Extras>>,
    /// For a leaf: whether its values were changed after this node was made.
    pub(super) stale: AtomicBool,
    body: RwLock<BodyState>,
}

/// The part of a node that can be freed.
enum BodyState {
    Present(Body),
    /// Freed by the backward pass of this number, or by a tape (0).
    Taken(u64),
    /// A leaf or a barrier has none.
    Never,
}

#[derive(Clone)]
pub(crate) struct Body {
    pub edges: Edges,
    pub rule: Rule,
}

/// The backward rule: from the cotangents of the results to those of the inputs.
// Closures are not stored in the node itself: that would make pointers to nodes, and with them tensor handles, fat pointers,
// which the compiler passes in memory and not in registers.
#[derive(Clone)]
pub(crate) enum Rule {
    /// Of an operation with one result.
    One(Shared<RuleFn>),
    /// Of an operation with several: `None` for results without a cotangent.
    Joint(Shared<JointRuleFn>),
    /// The result at this position of the joint node behind the one edge.
    Output(usize),
}

pub(crate) type RuleFn = dyn Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync;
pub(crate) type JointRuleFn = dyn Fn(&BackwardContext, &[Option<Tensor>]) -> Result<Grads> + Send + Sync;

impl Node {
    /// A copy of the edges and the rule; `None` if they were freed.
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

    /// Removes and returns the edges and the rule; `None` if they were freed.
    #[inline]
    pub fn take_body(node: &mut NodeRef, pass: u64) -> Option<Body> {
        // Most nodes have a single owner by now, and need no lock.
        match node.get_mut() {
            Some(node) => node.body.get_mut().unwrap_or_else(PoisonError::into_inner).take(pass),
            None => node.body.write().unwrap_or_else(PoisonError::into_inner).take(pass),
        }
    }

    /// The edges; empty if they were freed.
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
        // Bound to a variable, so that the lock is released before values are dropped.
        let taken = self.body.write().unwrap_or_else(PoisonError::into_inner).take(0);
        drop(taken);
    }

    /// The rarely used part: the stored gradient and the hooks.
    pub fn extras(&self) -> &Arc<Extras> {
        self.extras.get_or_init(Arc::default)
    }

    /// The error of a freed graph, with the source line of the operation.
    pub fn freed(&self, op: &'static str) -> Error {
        let pass = match &*self.body.read().unwrap_or_else(PoisonError::into_inner) {
            BodyState::Taken(pass) => *pass,
            _ => 0,
        };
        let (name, location) = (&self.name, &self.location);
        match failures::of(pass) {
            Some(failure) => err!(
                Graph,
                op,
                "the graph was freed by an earlier backward pass that failed ({failure}): the saved values of {name} \
                 (called at {location}) are gone; run the forward pass again"
            ),
            None => err!(
                Graph,
                op,
                "the graph was freed by an earlier backward pass: the saved values of {name} (called at {location}) are gone; \
                 keep them with backward_with(BackwardOptions::new().retain_graph(true)) in the earlier pass, or run \
                 the forward pass again"
            ),
        }
    }

    /// Whether this is a leaf whose values were changed after the node was made.
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

// Bodies and stored gradients lead to other nodes. They are dropped in a loop: recursion would overflow the stack in a long
// chain.
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
        location: Location::caller(),
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

/// The sequence number of the next node: all existing nodes have smaller ones.
pub(crate) fn next_sequence() -> u64 {
    SEQUENCE.load(Ordering::Relaxed)
}
