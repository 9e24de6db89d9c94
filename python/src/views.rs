//! Views of Python tensors.
//!
//! A tensor of the crate is a value; in Python it is a variable, and a view is a part of another variable. So a view consists
//! of its base variable and the steps from the value of the base to that of the view. Reading a view whose base has changed
//! repeats the steps; changing a view writes the new values into the base (`Tensor::set_view`). Graphs hold values, which
//! never change.

use crate::ops;
use crate::tensor::PyTensor;
use cotangent::autograd::{GradMode, is_grad_enabled};
use cotangent::ops::Arg;
use cotangent::{DType, Result, Tensor, arguments::Index};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// One step from a base to a view of it.
#[derive(Clone)]
pub enum Step {
    /// A result of an operation of the list, whose first argument is the tensor before.
    Op { number: usize, args: Vec<Arg>, output: usize },
    /// A basic index.
    Index(Index),
    /// An operation of one argument on complex tensors that is its own inverse: the conjugate.
    Inverse { number: usize },
    /// The same values, detached from the graph.
    Detach,
    /// The same bytes as elements of another dtype, detached.
    Bytes(DType),
}

impl Step {
    pub fn of(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Step::Op { number, args, output } => {
                let mut args = args.clone();
                args[0] = Arg::from(x);
                let mut results = ops::entry(*number).op.call(&args)?;
                Ok(results.swap_remove(*output))
            }
            Step::Index(index) => x.index(index.clone()),
            Step::Inverse { number } => Ok(ops::entry(*number).op.call(&[Arg::from(x)])?.swap_remove(0)),
            Step::Detach => Ok(x.detach()),
            Step::Bytes(dtype) => reinterpreted(&x.detach(), *dtype),
        }
    }
}

/// The bytes of a tensor as elements of another dtype: a view if possible, else a copy, which cannot be changed through the
/// view.
fn reinterpreted(x: &Tensor, dtype: DType) -> Result<Tensor> {
    match (x.dtype(), dtype) {
        (from, to) if from == to => Ok(x.clone()),
        // Not every byte is a bool.
        (DType::Bool, _) => reinterpreted(&x.to_dtype(DType::U8)?, dtype),
        (_, DType::Bool) => reinterpreted(x, DType::U8)?.ne(0),
        _ => x.reinterpret(dtype).or_else(|_| x.deep_clone()?.reinterpret(dtype)),
    }
}

/// Applies the steps to a tensor.
fn shown(steps: &[Step], x: &Tensor) -> Result<Tensor> {
    steps.iter().try_fold(x.clone(), |x, step| step.of(&x))
}

/// Writes values into the part of a tensor that the steps select.
fn put(steps: &[Step], x: &mut Tensor, value: &Tensor) -> Result<()> {
    let Some(at) = steps.iter().rposition(|step| matches!(step, Step::Inverse { .. })) else {
        return x.set_view(|x| shown(steps, x), value);
    };
    // The conjugate is computed, not shared: the values are written to it, and its conjugate to the original.
    let (before, conjugate, after) = (&steps[..at], &steps[at], &steps[at + 1..]);
    let changed = if after.is_empty() {
        value.clone()
    } else {
        let mut all = conjugate.of(&shown(before, x)?)?;
        put(after, &mut all, value)?;
        all
    };
    put(before, x, &conjugate.of(&changed)?)
}

/// The result of an operation. If it is the input itself, a leaf, it must not be another handle to the same leaf.
#[inline]
pub fn as_result(value: Tensor) -> Result<Tensor> {
    if !value.requires_grad() || !value.is_leaf() {
        return Ok(value);
    }
    if is_grad_enabled() { value.view(value.shape()) } else { Ok(value.detach()) }
}

/// The base of a view, and the steps from it.
pub struct View {
    /// The base variable, which is not a view. Its `Arc` can be cloned without the interpreter's lock.
    pub base: Arc<Py<PyTensor>>,
    pub steps: SmallVec<[Step; 1]>,
    /// Whether operations were recorded when it was made.
    pub recorded: bool,
}

impl View {
    /// The value of the view for a value of the base.
    pub fn of(&self, base: &Tensor) -> Result<Tensor> {
        let _mode = (!self.recorded).then(GradMode::disable);
        as_result(shown(&self.steps, base)?)
    }

    /// Whether the view is outside of the graph of its base, so that a change is not recorded.
    fn is_detached(&self) -> bool {
        !self.recorded || self.steps.iter().any(|step| matches!(step, Step::Detach | Step::Bytes(_)))
    }

    /// Follows a base that has become a view itself, by `unsqueeze_` and the like, to the new base.
    pub fn follow(&mut self) {
        while let Some(base) = self.base.get().behind() {
            self.base = base;
        }
    }

    /// Writes values into the part of the base that the view selects.
    pub fn put(&self, base: &mut Tensor, value: &Tensor) -> Result<()> {
        let _mode = self.is_detached().then(GradMode::disable);
        // An expanded value, such as the gradient of a sum, is made contiguous before elements are changed.
        if base.shape().iter().zip(base.strides()).any(|(&size, &stride)| size > 1 && stride == 0) {
            *base = base.contiguous()?.into_value();
        }
        put(&self.steps, base, value)
    }
}
