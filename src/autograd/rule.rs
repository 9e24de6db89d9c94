//! What a rule saves when it is built, and what it may ask the engine while it runs.

use super::engine::Pending;
use super::mode;
use super::node::{Edges, NodeRef};
use crate::error::err;
use crate::{Result, Tensor};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Collects what a rule saves, while it is being built.
pub(crate) struct Saver<'a> {
    pub(super) outputs: &'a [Tensor],
    pub(super) edges: &'a Edges,
    pub(super) bytes: usize,
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
