//! The contexts of a backward rule: for saving values when it is built, and while it runs.

use super::engine::Pending;
use super::mode;
use super::node::{Edges, NodeRef};
use crate::error::err;
use crate::{Result, Tensor};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Collects what a rule saves while it is built.
pub(crate) struct Saver<'a> {
    pub(super) outputs: &'a [Tensor],
    pub(super) edges: &'a Edges,
    pub(super) bytes: usize,
}

impl Saver<'_> {
    /// Whether the input at this position requires a gradient.
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

    /// Saves a value only if `input` requires a gradient.
    pub fn save_for(&mut self, input: usize, value: &Tensor) -> Saved {
        Saved(self.needs(input).then(|| self.save(value)))
    }

    /// Saves a value, with its graph, whose memory the last call of the rule may write its result to.
    pub fn save_donated(&mut self, value: &Tensor) -> Donated {
        Donated(Mutex::new(Some(self.save(value))))
    }
}

/// A value that is saved only if a gradient needs it.
pub(crate) struct Saved(Option<Tensor>);

impl Saved {
    pub fn get(&self) -> Result<&Tensor> {
        self.0.as_ref().ok_or_else(|| {
            err!(Graph, "backward", "the rule used a value that was not saved, since no gradient needed it")
        })
    }
}

/// A saved value whose memory the last call of a rule may reuse for a gradient of its size.
pub(crate) struct Donated(Mutex<Option<Tensor>>);

impl Donated {
    /// The value; if the rule is not called again, this is its only handle.
    pub fn take(&self, ctx: &BackwardContext) -> Result<Tensor> {
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = if ctx.last { value.take() } else { value.clone() };
        value.ok_or_else(|| err!(Graph, &ctx.node.name, "the rule was called again after its last call"))
    }
}

/// The context of a running rule.
pub(crate) struct BackwardContext<'a> {
    pub node: &'a NodeRef,
    pub edges: &'a Edges,
    /// The nodes whose cotangents are wanted; `None` for all.
    pub wanted: Option<&'a std::collections::HashSet<u64>>,
    /// Whether the rule is never called again.
    pub last: bool,
    /// Whether the node has several results.
    pub joint: bool,
    /// The cotangents of the inputs so far, where the rule may add to them.
    pub(super) accumulated: Option<&'a RefCell<Pending>>,
}

impl BackwardContext<'_> {
    /// Whether the cotangent of the input at this position is needed.
    #[inline]
    pub fn needs(&self, input: usize) -> bool {
        match self.edges.get(input) {
            Some(Some(edge)) => self.wanted.is_none_or(|wanted| wanted.contains(&edge.seq)),
            _ => false,
        }
    }

    /// Computes the cotangent of an input only if it is needed.
    pub fn want(&self, input: usize, f: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        self.needs(input).then(f).transpose()
    }

    /// Takes the cotangent accumulated from other uses of an input, if any, in the input's shape and dtype. The rule adds its
    /// own in place and returns the sum. So the gradient of a slice costs no more than the size of the slice.
    pub fn take_accumulated(&self, input: usize) -> Option<Tensor> {
        let edge = self.edges.get(input)?.as_ref()?;
        self.accumulated?.borrow_mut().take(edge)
    }

    /// The node's output, from its saved values. It is saved without its graph, with which it would own itself.
    pub fn output(&self, values: &Tensor) -> Tensor {
        if mode::is_grad_enabled() { values.clone().with_node(Some(self.node.clone())) } else { values.clone() }
    }

    /// As [`output`](Self::output), for the output at a position of a joint node.
    pub fn output_at(&self, at: usize, values: &Tensor) -> Result<Tensor> {
        if self.joint && mode::is_grad_enabled() {
            return values.clone().as_output(self.node, at);
        }
        Ok(self.output(values))
    }
}
