//! The backward pass: one loop over an ordered map from sequence numbers to cotangents.
//!
//! The youngest node that has a cotangent runs first. All its uses are younger, so its cotangent is complete, and every node
//! runs once. Un-broadcasting and accumulation happen here, and in no rule.

use super::by_example::rule_by_example;
use super::mode::{GradMode, is_grad_enabled};
use super::node::{Body, Edges, Grads, Node, NodeKind, NodeRef, Rule};
use super::rule::BackwardContext;
use super::{anomaly, failures};
use crate::backend::events;
use crate::error::bail;
use crate::zip::zip;
use crate::{Error, ErrorKind, Result, Tensor};
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

/// The options of a pass.
pub(crate) struct Pass<'a> {
    /// The operation that started the pass, for messages.
    pub op: &'static str,
    /// Keep the saved values for another pass.
    pub retain_graph: bool,
    /// Record the pass itself.
    pub create_graph: bool,
    /// The nodes whose cotangents are wanted, and those that lead to them; `None` for all.
    pub wanted: Option<&'a HashSet<u64>>,
    /// Nodes whose hooks are left to another pass: `sink` gets their cotangents, but their hooks do not run.
    pub foreign: Option<&'a HashSet<u64>>,
}

/// Nodes that have a cotangent and have not run yet, by sequence number.
#[derive(Default)]
pub(super) struct Pending {
    /// The youngest is kept out of the map: in long chains it is the only one.
    youngest: Option<(NodeRef, Tensor)>,
    others: BTreeMap<u64, (NodeRef, Tensor)>,
    /// Nodes with several results, and the cotangents of their results.
    joint: BTreeMap<u64, (NodeRef, Vec<Option<Tensor>>)>,
}

/// The next node to run.
enum Ready {
    One(NodeRef, Tensor),
    Joint(NodeRef, Vec<Option<Tensor>>),
}

impl Pending {
    fn pop(&mut self) -> Option<Ready> {
        if !self.joint.is_empty()
            && let Some(joint) = self.pop_joint()
        {
            return Some(joint);
        }
        let (node, cotangent) = self.youngest.take().or_else(|| self.others.pop_last().map(|(_, entry)| entry))?;
        Some(Ready::One(node, cotangent))
    }

    /// A node with several results, if it is the youngest of all.
    #[cold]
    fn pop_joint(&mut self) -> Option<Ready> {
        let last = self.joint.last_key_value().map(|(&seq, _)| seq)?;
        let other = self.others.last_key_value().map(|(&seq, _)| seq);
        let youngest = self.youngest.as_ref().map(|(node, _)| node.seq);
        if youngest.max(other).is_some_and(|seq| seq > last) {
            return None;
        }
        self.joint.remove(&last).map(|(node, cotangents)| Ready::Joint(node, cotangents))
    }

    /// Removes and returns the accumulated cotangent of a node. The caller puts it back with more added.
    pub fn take(&mut self, node: &Node) -> Option<Tensor> {
        match &self.youngest {
            Some((youngest, _)) if youngest.seq == node.seq => self.youngest.take(),
            _ => self.others.remove(&node.seq),
        }
        .map(|(_, cotangent)| cotangent)
    }

    /// Adds a contribution to a node's cotangent: the first is moved in, later ones are added in place.
    #[inline]
    fn add(&mut self, node: NodeRef, grad: Tensor) -> Result<()> {
        let youngest = match &mut self.youngest {
            Some((youngest, cotangent)) if youngest.seq == node.seq => return cotangent.accumulate(grad),
            Some((youngest, _)) => youngest.seq,
            None => self.others.last_key_value().map_or(0, |(&seq, _)| seq),
        };
        grad.mark_needed();
        if node.seq > youngest {
            if let Some((before, cotangent)) = self.youngest.replace((node, grad)) {
                self.others.insert(before.seq, (before, cotangent));
            }
            return Ok(());
        }
        match self.others.entry(node.seq) {
            Entry::Vacant(slot) => {
                slot.insert((node, grad));
            }
            Entry::Occupied(mut slot) => slot.get_mut().1.accumulate(grad)?,
        }
        Ok(())
    }

    /// Adds a contribution to the cotangent of a node's result at position `at`.
    fn add_joint(&mut self, node: NodeRef, at: usize, grad: Tensor) -> Result<()> {
        grad.mark_needed();
        let (_, cotangents) = self.joint.entry(node.seq).or_insert_with(|| (node, Vec::new()));
        if cotangents.len() <= at {
            cotangents.resize(at + 1, None);
        }
        match &mut cotangents[at] {
            Some(cotangent) => cotangent.accumulate(grad),
            empty => {
                *empty = Some(grad);
                Ok(())
            }
        }
    }
}

impl Pass<'_> {
    /// Propagates the cotangents of `roots` back. `sink` gets the complete cotangent of every node, and returns whether the
    /// pass continues behind it.
    pub fn run(
        &self,
        roots: Vec<(NodeRef, Tensor)>,
        mut sink: impl FnMut(&NodeRef, &Tensor) -> Result<bool>,
    ) -> Result<()> {
        let pass = failures::next_pass();
        let scope = events::enter_pass(self.op);
        let done = self.go_back(pass, roots, &mut sink);
        events::leave(scope);
        if let (Err(error), false) = (&done, self.retain_graph) {
            failures::note(pass, error);
        }
        done
    }

    fn go_back(
        &self,
        pass: u64,
        roots: Vec<(NodeRef, Tensor)>,
        sink: &mut dyn FnMut(&NodeRef, &Tensor) -> Result<bool>,
    ) -> Result<()> {
        let _mode = GradMode::pass(self.create_graph);
        // Rules compute in the dtypes of the forward pass, wherever the backward pass is called.
        let _off = super::autocast::off();
        let mut pending = RefCell::new(Pending::default());
        for (node, cotangent) in roots {
            let cotangent = fit(cotangent, &node, None)?;
            pending.get_mut().add(node, cotangent)?;
        }
        while let Some(ready) = pending.get_mut().pop() {
            let (mut node, cotangent) = match ready {
                Ready::One(node, cotangent) => (node, cotangent),
                Ready::Joint(mut node, cotangents) => {
                    self.joint_step(pass, &mut pending, &mut node, &cotangents)?;
                    continue;
                }
            };
            if node.is_stale() {
                return Err(stale(self.op, &node));
            }
            let cotangent = match node.extras.get() {
                Some(extras) if !self.foreign.is_some_and(|foreign| foreign.contains(&node.seq)) => {
                    own_graph(extras.run_hooks(&node, cotangent)?)
                }
                _ => cotangent,
            };
            if sink(&node, &cotangent)? && node.kind == NodeKind::Op {
                self.step(pass, &mut pending, &mut node, cotangent)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn body(&self, pass: u64, node: &mut NodeRef) -> Result<Body> {
        let body = if self.retain_graph { node.body() } else { Node::take_body(node, pass) };
        body.ok_or_else(|| node.freed(self.op))
    }

    fn step(&self, pass: u64, pending: &mut RefCell<Pending>, node: &mut NodeRef, cotangent: Tensor) -> Result<()> {
        let Body { edges, rule } = self.body(pass, node)?;
        let rule = match rule {
            Rule::One(rule) => rule,
            Rule::Output(at) => return self.hand_on(pending.get_mut(), edges, at, cotangent),
            Rule::Joint(_) => bail!(Graph, &node.name, "a node of several results got a cotangent of its own"),
        };
        // If hooks or anomaly mode look at what this rule returns, it must not be accumulated before; nor if the sum is recorded.
        let apart = self.create_graph || node.extras.get().is_some() || anomaly::enabled();
        let accumulated = if apart { None } else { Some(&*pending) };
        let last = !self.retain_graph && rule.is_sole();
        let ctx = BackwardContext { node, edges: &edges, wanted: self.wanted, last, joint: false, accumulated };
        // A NaN is reported below, with the source line of the operation and not of its rule.
        let scope = events::enter_rule(&node.name);
        let grads = match anomaly::suspended(|| rule(&ctx, &cotangent)) {
            Err(error) if error.kind() == ErrorKind::Batched => {
                let one = |g: &[Option<Tensor>]| rule(&ctx, g[0].as_ref().unwrap_or(&cotangent));
                anomaly::suspended(|| rule_by_example(&node.name, &[Some(cotangent.clone())], error, &one))
            }
            done => done,
        };
        let grads = grads.map_err(|error| in_rule(error, node));
        events::leave(scope);
        let grads = grads?;
        // Frees the saved values.
        drop(rule);
        if let Some(extras) = node.extras.get() {
            extras.notify(node, &[Some(cotangent.clone())], &grads);
        }
        drop(cotangent);
        self.deliver(pending.get_mut(), node, edges, grads)
    }

    /// Hands the cotangent of one of several results to their common node.
    #[cold]
    fn hand_on(&self, pending: &mut Pending, edges: Edges, at: usize, cotangent: Tensor) -> Result<()> {
        match edges.into_iter().flatten().next() {
            Some(joint) => pending.add_joint(joint, at, cotangent),
            None => Ok(()),
        }
    }

    /// The step of a node with several results.
    #[cold]
    fn joint_step(
        &self,
        pass: u64,
        pending: &mut RefCell<Pending>,
        node: &mut NodeRef,
        cotangents: &[Option<Tensor>],
    ) -> Result<()> {
        let Body { edges, rule } = self.body(pass, node)?;
        let Rule::Joint(rule) = rule else {
            bail!(Graph, &node.name, "a node of one result got the cotangents of several");
        };
        let last = !self.retain_graph && rule.is_sole();
        let ctx = BackwardContext { node, edges: &edges, wanted: self.wanted, last, joint: true, accumulated: None };
        let scope = events::enter_rule(&node.name);
        let grads = match anomaly::suspended(|| rule(&ctx, cotangents)) {
            Err(error) if error.kind() == ErrorKind::Batched => {
                anomaly::suspended(|| rule_by_example(&node.name, cotangents, error, &|g| rule(&ctx, g)))
            }
            done => done,
        };
        let grads = grads.map_err(|error| in_rule(error, node));
        events::leave(scope);
        let grads = grads?;
        drop(rule);
        if let Some(extras) = node.extras.get() {
            extras.notify(node, cotangents, &grads);
        }
        self.deliver(pending.get_mut(), node, edges, grads)
    }

    #[inline]
    fn deliver(&self, pending: &mut Pending, node: &Node, mut edges: Edges, mut grads: Grads) -> Result<()> {
        if grads.len() != edges.len() {
            bail!(
                Graph,
                &node.name,
                "expected {} cotangents from the rule, one for each input, got {}",
                edges.len(),
                grads.len()
            );
        }
        // Taken out one by one: `into_iter` would move both lists first.
        for (edge, grad) in zip(&mut edges[..], &mut grads[..]) {
            let Some(edge) = edge.take() else { continue };
            if self.wanted.is_some_and(|wanted| !wanted.contains(&edge.seq)) {
                continue;
            }
            // Without this check the gradient would be lost silently.
            let Some(grad) = grad.take() else {
                bail!(
                    Graph,
                    &node.name,
                    "the rule returned no cotangent for an input that needs one (called at {})",
                    node.location
                );
            };
            if anomaly::enabled() {
                anomaly::check_values(&node.name, "gradient", &grad, &node.location)?;
            }
            let grad = fit(grad, &edge, Some(node))?;
            pending.add(edge, grad)?;
        }
        Ok(())
    }
}

/// Adds the operation to an error of its rule: the user did not call the operations that the rule consists of.
#[cold]
fn in_rule(error: Error, node: &Node) -> Error {
    error.context(format_args!("in the gradient of {} (called at {})", node.name, node.location))
}

#[cold]
fn stale(op: &'static str, node: &Node) -> Error {
    crate::error::err!(
        Graph,
        op,
        "a leaf of shape {:?} was changed, by an optimiser or in position, after the graph was made from it: the gradient would be \
         that of its old values; run the forward pass again",
        node.shape
    )
}

/// Converts a cotangent to its tensor's shape and dtype: broadcasting is undone by summing. `from` is the operation whose rule
/// returned it.
#[inline]
fn fit(grad: Tensor, node: &Node, from: Option<&Node>) -> Result<Tensor> {
    let fits = *grad.layout().shape() == node.shape && grad.dtype() == node.dtype && grad.device() == node.device;
    Ok(own_graph(if fits { grad } else { refit(grad, node, from)? }))
}

#[inline(never)]
fn refit(grad: Tensor, node: &Node, from: Option<&Node>) -> Result<Tensor> {
    let fits = *grad.layout().shape() == node.shape;
    if !fits && !grad.is_sole() {
        // It is the cotangent of another input, too: write it while it is summed.
        grad.mark_needed();
    }
    let refused = |error| match from {
        Some(from) => in_rule(error, from),
        None => error,
    };
    let grad = if fits { grad } else { grad.sum_to("backward", &node.shape).map_err(refused)? };
    if grad.device() != node.device {
        bail!(Device, "backward", "cotangent must be on {}, got {}", node.device, grad.device());
    }
    if grad.dtype() == node.dtype {
        return Ok(grad);
    }
    // The gradient of a real tensor is real.
    if grad.dtype().is_complex() && !node.dtype.is_complex() {
        return grad.real()?.to_dtype(node.dtype);
    }
    grad.to_dtype(node.dtype)
}

/// Detaches a cotangent in a pass that is not recorded: the graph of a given cotangent, of a saved value or of what a hook
/// returned must not become the gradient's.
#[inline]
fn own_graph(cotangent: Tensor) -> Tensor {
    if is_grad_enabled() { cotangent } else { cotangent.with_node(None) }
}

/// The nodes behind `roots` that lead to one of `targets`, and the targets.
pub(crate) fn leading_to(op: &'static str, roots: &[NodeRef], targets: &HashSet<u64>) -> Result<HashSet<u64>> {
    let oldest = targets.iter().copied().min().unwrap_or(0);
    let mut seen = BTreeMap::new();
    let mut stack: Vec<NodeRef> = roots.to_vec();
    while let Some(node) = stack.pop() {
        // What is older than every target cannot lead to one.
        if node.seq < oldest || seen.contains_key(&node.seq) {
            continue;
        }
        let edges = node.edges();
        // An older target may have been behind a freed node; going on would lose its gradient silently.
        if node.kind == NodeKind::Op && edges.is_empty() && node.seq > oldest {
            return Err(node.freed(op));
        }
        let behind: Vec<u64> = edges.iter().flatten().map(|edge| edge.seq).collect();
        stack.extend(edges.into_iter().flatten());
        seen.insert(node.seq, behind);
    }
    let mut leading = HashSet::new();
    for (seq, behind) in seen {
        if targets.contains(&seq) || behind.iter().any(|b| leading.contains(b)) {
            leading.insert(seq);
        }
    }
    Ok(leading)
}
