//! Recording: gives a tensor its node, as the result of an operation, as one of several results, as a result without a
//! derivative, or as a leaf.

use super::node::{Body, Edges, Grads, NodeKind, NodeRef, Rule, new_node};
use super::rule::{BackwardContext, Saver};
use super::tape::TapeEntry;
use super::{anomaly, mode};
use crate::error::bail;
use crate::location::{Location, Name};
use crate::memory::Shared;
use crate::tensor::batch::Level;
use crate::{Error, ErrorKind, Result, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Tensor {
    /// Makes this result of an operation depend on its inputs. `rule` is called only if one of them requires a gradient. It
    /// builds the backward closure, which saves what it needs through the [`Saver`].
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
        // Behind a `dyn FnMut`, so that the rest is compiled once and not for every operation.
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

    /// Makes this tensor depend on the same values outside or inside of a `vmap`.
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
            // Only barriers: pass the first one on.
            Err(barrier) => return Ok(self.with_node(barrier)),
        };
        if anomaly::enabled() {
            anomaly::check_values(&name, "result", &self, &Location::caller())?;
        }
        let mut saver = Saver { outputs: std::slice::from_ref(&self), edges: &edges, bytes: 0 };
        let rule = rule(&mut saver);
        let bytes = saver.bytes;
        let body = rule.map(|rule| Body { edges, rule });
        let node = new_node(&self, name, NodeKind::Op, tape, bytes, body)?;
        Ok(self.with_node(Some(node)))
    }

    /// Makes several results of one operation depend on its inputs, with one joint rule. Results that are not floating point or
    /// complex have no derivative.
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
            Err(others) => {
                Err(Error::new(ErrorKind::Graph, name, format!("expected {N} results, got {}", others.len())))
            }
        }
    }

    /// As [`record_joint`](Self::record_joint), for any number of results.
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

    /// Records a plain rule for a single differentiable result, or a joint rule for all results.
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
                    anomaly::check_values(&name, "result", output, &Location::caller())?;
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
        // One result may be batched where another is the same for all examples.
        let batched = outputs.iter().filter(|output| output.is_batched());
        let batched = batched.max_by_key(|output| output.batch_dims().map_or(0, SmallVec::len));
        let spread = batched.map(|output| output.spread_inputs(inputs)).transpose()?;
        let spread: Option<Vec<&Tensor>> = spread.as_ref().map(|all| all.iter().collect());
        let inputs = spread.as_deref().unwrap_or(inputs);
        // Batch all results, so that no cotangent is summed over the examples before it is combined with the others.
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
        // A loop, since `track_caller` does not work through a closure.
        for (at, output) in outputs.iter_mut().enumerate() {
            if anomaly::enabled() {
                anomaly::check_values(&name, "result", output, &Location::caller())?;
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

    /// These values as the result at position `at` of a joint node.
    #[track_caller]
    pub(super) fn as_output(self, joint: &NodeRef, at: usize) -> Result<Tensor> {
        let body = Body { edges: Edges::from_iter([Some(joint.clone())]), rule: Rule::Output(at) };
        let tape = joint.tape.as_ref().map(TapeEntry::new_entry);
        let node = new_node(&self, joint.name.clone(), NodeKind::Op, tape, 0, Some(body))?;
        Ok(self.with_node(Some(node)))
    }

    /// The inputs of this result, batched over its examples where they require a gradient.
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

    /// Marks the result of an operation without a derivative, so that the error of a backward pass names the operation.
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
            bail!(DType, op, "only floating point and complex tensors can require a gradient, got {}", self.dtype());
        }
        let node = new_node(&self, "leaf".into(), NodeKind::Leaf, tape, 0, None)?;
        Ok(self.with_node(Some(node)))
    }

    /// Gives a leaf a new node after its values have changed. The gradient and the hooks move to the new node. Older copies of
    /// the leaf, and graphs made from it, are stale from now on: to use them is an error.
    #[track_caller]
    pub(crate) fn renew_leaf(&mut self) {
        let Some(old) = self.grad_node().filter(|node| node.kind == NodeKind::Leaf) else { return };
        let tape = old.tape.as_ref().map(|entry| entry.heir(old));
        let Ok(new) = new_node(self, "leaf".into(), NodeKind::Leaf, tape, 0, None) else { return };
        // Allocated if the old node has none yet, so that an older handle sees a gradient that arrives later. The new node has
        // none.
        let _ = new.extras.set(old.extras.get_or_init(Arc::default).clone());
        old.stale.store(true, Ordering::Relaxed);
        #[cfg(feature = "cuda")]
        if self.device() != crate::Device::Cpu {
            new.extras().set_values(self.storage().address());
        }
        *self = self.detach().with_node(Some(new));
    }
}

/// The edges to the inputs that require a gradient, and their tape; if no input requires one, the first barrier.
#[inline(always)]
fn edges_of(
    name: &Name,
    inputs: &[&Tensor],
) -> Result<std::result::Result<(Edges, Option<TapeEntry>), Option<NodeRef>>> {
    // Two inputs are the common case. They fill the inline buffer, which is faster than collecting.
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
            "operand {at} is a copy of a leaf made before the leaf was changed, by an optimiser or in position: its gradient would \
             be that of the old values; use the leaf itself, or call detach() on the copy"
        );
    }
    let tape = TapeEntry::of_inputs(name, &edges)?;
    Ok(Ok((edges, tape)))
}
