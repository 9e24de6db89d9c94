//! What an operation leaves behind for the backward pass.
//!
//! A node's facts (name, place, shape) are plain fields. Its *body*, the edges to its inputs and the rule with the
//! saved values, can be taken away: by a backward pass that does not retain the graph, or by a tape that is popped.
//!
//! An operation with several results has one node with a [joint rule](Rule::Joint) and, for each result that has a
//! derivative, a small node with the one edge to it. These pass their cotangents on to the joint node, which runs when
//! all have arrived: they are younger than it.

use super::drop_queue::{self, Garbage};
use super::engine::Pending;
use super::hooks::Extras;
use super::tape::TapeEntry;
use super::{anomaly, failures, mode};
use crate::error::{bail, err};
use crate::layout::Shape;
use crate::memory::{Shared, Vacant};
use crate::place::{Name, Place};
use crate::vmap::Level;
use crate::{DType, Device, Error, ErrorKind, Result, Tensor};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

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
    stale: AtomicBool,
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

/// Collects what a rule saves, while it is being built.
pub(crate) struct Saver<'a> {
    outputs: &'a [Tensor],
    edges: &'a Edges,
    bytes: usize,
}

impl Saver<'_> {
    /// Whether the gradient of the input at this position was asked for.
    pub fn needs(&self, input: usize) -> bool {
        matches!(self.edges.get(input), Some(Some(_)))
    }

    /// Saves a value, with its graph, for the rule.
    pub fn save(&mut self, value: &Tensor) -> Tensor {
        self.bytes += value.numel() * value.dtype().size();
        value.mark_needed();
        value.clone()
    }

    /// Saves the values of the operation's own result, for [`BackwardContext::output`].
    pub fn save_output(&mut self) -> Tensor {
        self.save_output_at(0)
    }

    /// Saves the values of one of several results, for [`BackwardContext::output_at`].
    pub fn save_output_at(&mut self, at: usize) -> Tensor {
        self.save(&self.outputs[at])
    }

    /// Saves a value only if the gradient of `input` was asked for.
    pub fn save_for(&mut self, input: usize, value: &Tensor) -> Saved {
        Saved(self.needs(input).then(|| self.save(value)))
    }

    /// Saves a value, with its graph, whose memory the last call of the rule may write its result to.
    pub fn save_donated(&mut self, value: &Tensor) -> Donated {
        Donated(Mutex::new(Some(self.save(value))))
    }
}

/// A value saved only where a gradient that was asked for needs it.
pub(crate) struct Saved(Option<Tensor>);

impl Saved {
    pub fn get(&self) -> Result<&Tensor> {
        self.0.as_ref().ok_or_else(|| err!(Graph, "backward", "a value was not saved: its gradient was not asked for"))
    }
}

/// A saved value whose memory the last call of a rule may reuse for a gradient of its size.
pub(crate) struct Donated(Mutex<Option<Tensor>>);

impl Donated {
    /// The value: the only handle that the rule has, if it is not called again.
    pub fn take(&self, ctx: &BackwardContext) -> Result<Tensor> {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = if ctx.last { value.take() } else { value.clone() };
        value.ok_or_else(|| err!(Graph, &ctx.node.name, "the rule was called again after its last call"))
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
    /// Whether the node has several results.
    pub joint: bool,
    /// The cotangents of the inputs so far, where the rule may add to them.
    pub(super) accumulated: Option<&'a RefCell<Pending>>,
}

impl BackwardContext<'_> {
    /// Whether someone needs the cotangent of the input at this position.
    #[inline]
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

    /// The output at a position of a node that has several; as [`output`](Self::output).
    pub fn output_at(&self, at: usize, values: &Tensor) -> Result<Tensor> {
        if self.joint && mode::is_grad_enabled() {
            return values.clone().as_output(self.node, at);
        }
        Ok(self.output(values))
    }
}

impl Tensor {
    /// Makes this result of an operation depend on its inputs. Only if one of them requires a gradient is `rule` called
    /// to build the closure, which saves what it needs through the [`Saver`].
    #[track_caller]
    #[inline]
    pub(crate) fn record<R>(
        self,
        name: impl Into<Name>,
        inputs: &[&Tensor],
        rule: impl FnOnce(&mut Saver<'_>) -> R,
    ) -> Result<Tensor>
    where
        R: Fn(&BackwardContext, &Tensor) -> Result<Grads> + Send + Sync + 'static,
    {
        if inputs.iter().all(|t| t.node().is_none()) || !mode::is_grad_enabled() {
            return if anomaly::enabled() { anomaly::check_forward(&name.into(), self) } else { Ok(self) };
        }
        let mut rule = Some(rule);
        // Behind a pointer to a function: the rest is compiled once, not for every operation.
        self.record_node(name.into(), inputs, &mut |saver| {
            rule.take().map(|rule| Rule::One(Shared::new_unsized(rule(saver), |inner| inner)))
        })
    }

    #[track_caller]
    #[inline(never)]
    fn record_node(
        self,
        name: Name,
        inputs: &[&Tensor],
        rule: &mut dyn FnMut(&mut Saver<'_>) -> Option<Rule>,
    ) -> Result<Tensor> {
        if self.is_batched() {
            let all = self.spread_inputs(inputs)?;
            return self.record_spread(name, &all.iter().collect::<Vec<_>>(), rule);
        }
        self.record_spread(name, inputs, rule)
    }

    /// Makes this tensor depend on one that shows the same values inside or outside of a `vmap`.
    #[track_caller]
    pub(crate) fn record_across(
        self,
        name: &'static str,
        input: &Tensor,
        rule: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        if input.node().is_none() || !mode::is_grad_enabled() {
            return Ok(self);
        }
        let mut rule = Some(move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(rule(g)?)]));
        self.record_spread(name.into(), &[input], &mut |_| {
            rule.take().map(|rule| Rule::One(Shared::new_unsized(rule, |inner| inner)))
        })
    }

    #[track_caller]
    #[inline(always)]
    fn record_spread(
        self,
        name: Name,
        inputs: &[&Tensor],
        rule: &mut dyn FnMut(&mut Saver<'_>) -> Option<Rule>,
    ) -> Result<Tensor> {
        let (edges, tape) = match edges_of(&name, inputs)? {
            Ok(found) => found,
            // Only barriers: hand the oldest reason on.
            Err(barrier) => return Ok(self.with_node(barrier)),
        };
        if anomaly::enabled() {
            anomaly::check_values(&name, "result", &self, &Place::caller())?;
        }
        let mut saver = Saver { outputs: std::slice::from_ref(&self), edges: &edges, bytes: 0 };
        let rule = rule(&mut saver);
        let bytes = saver.bytes;
        let body = rule.map(|rule| Body { edges, rule });
        let node = new_node(&self, name, NodeKind::Op, tape, bytes, body)?;
        Ok(self.with_node(Some(node)))
    }

    /// Makes several results of one operation depend on its inputs, with one rule for all of them. Results that are not
    /// of floating point have no derivative.
    #[track_caller]
    pub(crate) fn record_joint<R, const N: usize>(
        outputs: [Tensor; N],
        name: impl Into<Name>,
        inputs: &[&Tensor],
        rule: impl FnOnce(&mut Saver<'_>) -> R,
    ) -> Result<[Tensor; N]>
    where
        R: Fn(&BackwardContext, &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static,
    {
        let name = name.into();
        match Tensor::record_all(outputs.into(), name.clone(), inputs, rule)?.try_into() {
            Ok(outputs) => Ok(outputs),
            Err(others) => Err(Error::new(ErrorKind::Graph, name, format!("{} results of {N}", others.len()))),
        }
    }

    /// As [`record_joint`](Self::record_joint), of results whose number is not known beforehand.
    #[track_caller]
    pub(crate) fn record_all<R>(
        outputs: Vec<Tensor>,
        name: impl Into<Name>,
        inputs: &[&Tensor],
        rule: impl FnOnce(&mut Saver<'_>) -> R,
    ) -> Result<Vec<Tensor>>
    where
        R: Fn(&BackwardContext, &[Option<Tensor>]) -> Result<Grads> + Send + Sync + 'static,
    {
        let (mut rule, results) = (Some(rule), outputs.len());
        let single = matches!(&outputs[..], [only] if only.dtype().is_differentiable());
        // As in `record`: the rest is compiled once.
        Tensor::record_results(outputs, name.into(), inputs, &mut |save| {
            let rule = rule.take()?(save);
            if single {
                let one = move |ctx: &BackwardContext, g: &Tensor| rule(ctx, &[Some(g.clone())]);
                return Some(Rule::One(Shared::new_unsized(one, |inner| inner)));
            }
            let padded = move |ctx: &BackwardContext, cotangents: &[Option<Tensor>]| {
                // Results after the last that has a cotangent have none, either.
                let mut all = cotangents.to_vec();
                all.resize(results, None);
                rule(ctx, &all)
            };
            Some(Rule::Joint(Shared::new_unsized(padded, |inner| inner)))
        })
    }

    /// A rule for the only result, if that is of floating point, or one for all of them.
    #[track_caller]
    fn record_results(
        mut outputs: Vec<Tensor>,
        name: Name,
        inputs: &[&Tensor],
        rule: &mut dyn FnMut(&mut Saver<'_>) -> Option<Rule>,
    ) -> Result<Vec<Tensor>> {
        if inputs.iter().all(|t| t.node().is_none()) || !mode::is_grad_enabled() {
            if anomaly::enabled() {
                for output in &outputs {
                    anomaly::check_values(&name, "result", output, &Place::caller())?;
                }
            }
            return Ok(outputs);
        }
        if let [only] = &outputs[..]
            && only.dtype().is_differentiable()
        {
            outputs[0] = only.clone().record_node(name, inputs, rule)?;
            return Ok(outputs);
        }
        // One result may be the same for all examples where another is not.
        let batched = outputs.iter().filter(|output| output.is_batched());
        let batched = batched.max_by_key(|output| output.batch_dims().map_or(0, SmallVec::len));
        let spread = batched.map(|output| output.spread_inputs(inputs)).transpose()?;
        let spread: Option<Vec<&Tensor>> = spread.as_ref().map(|all| all.iter().collect());
        let inputs = spread.as_deref().unwrap_or(inputs);
        // All have the same examples, so that a cotangent of one is not summed over them before it meets those of the others.
        let levels: Vec<Level> = outputs.iter().filter_map(Tensor::batch_dims).flatten().map(Level::of).collect();
        for level in levels {
            for output in &mut outputs {
                *output = output.spread_over(level)?;
            }
        }
        let (edges, tape) = match edges_of(&name, inputs)? {
            Ok(found) => found,
            Err(barrier) => return Ok(outputs.into_iter().map(|output| output.with_node(barrier.clone())).collect()),
        };
        let mut saver = Saver { outputs: &outputs, edges: &edges, bytes: 0 };
        let rule = rule(&mut saver);
        let bytes = saver.bytes;
        let Some(first) = outputs.first() else { return Ok(outputs) };
        let body = rule.map(|rule| Body { edges, rule });
        let joint = new_node(first, name.clone(), NodeKind::Op, tape, bytes, body)?;
        // A loop, since the caller's place gets lost in a closure.
        for (at, output) in outputs.iter_mut().enumerate() {
            if anomaly::enabled() {
                anomaly::check_values(&name, "result", output, &Place::caller())?;
            }
            let plain = output.clone();
            *output = if plain.dtype().is_differentiable() {
                plain.as_output(&joint, at)?
            } else {
                plain.record_barrier(name.clone(), inputs)
            };
        }
        Ok(outputs)
    }

    /// These values as the result at a position of a node that has several.
    #[track_caller]
    fn as_output(self, joint: &NodeRef, at: usize) -> Result<Tensor> {
        let body = Body { edges: Edges::from_iter([Some(joint.clone())]), rule: Rule::Output(at) };
        let tape = joint.tape.as_ref().map(TapeEntry::beside);
        let node = new_node(&self, joint.name.clone(), NodeKind::Op, tape, 0, Some(body))?;
        Ok(self.with_node(Some(node)))
    }

    /// The inputs of this result, of which those that require a gradient have one for each of its examples.
    #[cold]
    #[track_caller]
    fn spread_inputs(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let levels: Vec<Level> = self.batch_dims().map(|dims| dims.iter().map(Level::of).collect()).unwrap_or_default();
        let spread = |x: &&Tensor| {
            if x.grad_node().is_none() {
                return Ok((*x).clone());
            }
            levels.iter().try_fold((*x).clone(), |x, &level| x.spread_over(level))
        };
        inputs.iter().map(spread).collect()
    }

    /// Marks the result of an operation that has no derivative, so that asking for one is refused by its name.
    #[track_caller]
    pub(crate) fn record_barrier(self, name: impl Into<Name>, inputs: &[&Tensor]) -> Tensor {
        if !mode::is_grad_enabled() || inputs.iter().all(|t| t.node().is_none()) {
            return self;
        }
        let barrier = new_node(&self, name.into(), NodeKind::Barrier, None, 0, None).ok();
        self.with_node(barrier)
    }

    /// This tensor as a leaf of the graph, or of a tape.
    #[track_caller]
    pub(crate) fn into_leaf(self, op: &'static str, tape: Option<TapeEntry>) -> Result<Tensor> {
        if !self.dtype().is_differentiable() {
            bail!(DType, op, "only floating point tensors can require a gradient, not {}", self.dtype());
        }
        let node = new_node(&self, "leaf".into(), NodeKind::Leaf, tape, 0, None)?;
        Ok(self.with_node(Some(node)))
    }

    /// After the values of a leaf have changed: a node of its own for the new ones. The gradient and the hooks stay with
    /// it. Copies of the leaf, and graphs made from it, speak of the old values from now on, and say so when used.
    #[track_caller]
    pub(crate) fn renew_leaf(&mut self) {
        let Some(old) = self.grad_node().filter(|node| node.kind == NodeKind::Leaf) else { return };
        let tape = old.tape.as_ref().map(|entry| entry.heir(old));
        let Ok(new) = new_node(self, "leaf".into(), NodeKind::Leaf, tape, 0, None) else { return };
        // Made if there are none yet, so that an older handle sees the gradient whenever it arrives. The node was just made,
        // and has none.
        let _ = new.extras.set(old.extras.get_or_init(Arc::default).clone());
        old.stale.store(true, Ordering::Relaxed);
        #[cfg(feature = "cuda")]
        if self.device() != Device::Cpu {
            new.extras().set_values(self.storage().address());
        }
        *self = self.detach().with_node(Some(new));
    }
}

/// The edges to those inputs that require a gradient, and the tape they are on; if none does, the reason why.
#[inline(always)]
fn edges_of(
    name: &Name,
    inputs: &[&Tensor],
) -> Result<std::result::Result<(Edges, Option<TapeEntry>), Option<NodeRef>>> {
    // Two inputs are the common case and fill the inline buffer, which is quicker than growing one.
    let edges = match inputs {
        [a, b] => Edges::from([a.grad_node().cloned(), b.grad_node().cloned()]),
        _ => inputs.iter().map(|t| t.grad_node().cloned()).collect(),
    };
    if edges.iter().all(Option::is_none) {
        return Ok(Err(inputs.iter().find_map(|t| t.node().cloned())));
    }
    if let Some(at) = edges.iter().position(|edge| edge.as_ref().is_some_and(|edge| edge.is_stale())) {
        bail!(
            Graph,
            name,
            "operand {at} is a copy of a leaf made before the leaf was changed, by an optimiser or in place: a gradient at \
             its old values would go astray; use the leaf itself, or detach the copy"
        );
    }
    let tape = TapeEntry::of_inputs(name, &edges)?;
    Ok(Ok((edges, tape)))
}

#[track_caller]
#[inline(always)]
fn new_node(
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
