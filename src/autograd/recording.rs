//! The tensors and gradients that a step changes while it is recorded for a GPU. See [`CudaGraph`](crate::CudaGraph).
#![forbid(unsafe_code)]

use super::{Extras, NodeRef};
use crate::backend;
use crate::error::bail;
use crate::{Result, Tensor};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The tensors that the recorded step of this thread changes.
    pub(crate) static CHANGED: RefCell<Vec<Tensor>> = const { RefCell::new(Vec::new()) };
    /// The leaves that get gradients from the step, while this thread runs and then records it.
    pub(crate) static LEAVES: RefCell<Option<Vec<Arc<Extras>>>> = const { RefCell::new(None) };
}

/// Notes that the recorded step changes a tensor, which is the only handle to its values.
///
/// # Errors
/// If the same step has changed it before: because of the handle that is kept here, a second change would write to a copy.
pub(crate) fn note_change(op: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.handles() != (1, 1) {
        bail!(
            Backend,
            op,
            "a recorded step cannot change a parameter twice, or a parameter that is also held elsewhere"
        );
    }
    CHANGED.with_borrow_mut(|all| all.push(tensor.detach()));
    Ok(())
}

/// Notes the leaves that a backward pass is about to give gradients to, if it is part of a recorded step. Returns the position
/// of a leaf that has a gradient from before the step.
pub(crate) fn note_gradients(leaves: &[NodeRef], has_gradient: impl Fn(usize) -> bool) -> Option<usize> {
    LEAVES.with_borrow_mut(|all| {
        let all = all.as_mut()?;
        for (at, leaf) in leaves.iter().enumerate() {
            if all.iter().any(|other| Arc::ptr_eq(other, leaf.extras())) {
                continue;
            }
            if has_gradient(at) && backend::is_recording(leaf.device) {
                return Some(at);
            }
            all.push(leaf.extras().clone());
        }
        None
    })
}
