//! Views: how one tensor of Python's is seen through another.
//!
//! A tensor of the crate is a value; in Python it is a variable, and a view shows a part of another variable. So a view here
//! is a recipe: the variable that it was made from, and the steps that lead from its value to the view's. Whoever reads a
//! view whose base has changed takes the steps again; whoever changes a view puts the new values into the base
//! (`Tensor::set_view`). Graphs hold values, which never change.

use crate::ops;
use crate::tensor::PyTensor;
use cotangent::autograd::GradMode;
use cotangent::ops::Arg;
use cotangent::{Index, Result, Tensor};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// One step from a base to a view of it.
#[derive(Clone)]
pub enum Step {
    /// A result of an operation of the list, whose first argument is the tensor before.
    Op { number: usize, args: Vec<Arg>, output: usize },
    /// A part named by an index without tensors.
    Index(Index),
    /// The same values outside of the graph.
    Detach,
}

impl Step {
    fn of(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Step::Op { number, args, output } => {
                let mut args = args.clone();
                args[0] = Arg::from(x);
                let mut results = ops::entry(*number).op.call(&args)?;
                Ok(results.swap_remove(*output))
            }
            Step::Index(index) => x.index(index.clone()),
            Step::Detach => Ok(x.detach()),
        }
    }
}

/// What a view is a view of.
pub struct View {
    /// A variable that is no view itself. It is counted apart from Python's references, so that it can be followed without
    /// the interpreter's lock.
    pub base: Arc<Py<PyTensor>>,
    pub steps: SmallVec<[Step; 1]>,
    /// Whether it was made where operations are recorded.
    pub recorded: bool,
}

impl View {
    /// The view of a value of the base.
    pub fn of(&self, base: &Tensor) -> Result<Tensor> {
        let _mode = (!self.recorded).then(GradMode::disable);
        self.steps.iter().try_fold(base.clone(), |x, step| step.of(&x))
    }

    /// Whether the view is outside of the graph of its base, so that a change is not recorded.
    fn is_detached(&self) -> bool {
        !self.recorded || self.steps.iter().any(|step| matches!(step, Step::Detach))
    }

    /// A base that has become a view itself, by `unsqueeze_` and the like, has left its values to another one.
    pub fn follow(&mut self) {
        while let Some(base) = self.base.get().behind() {
            self.base = base;
        }
    }

    /// Puts values into the part of the base that the view shows.
    pub fn put(&self, base: &mut Tensor, value: &Tensor) -> Result<()> {
        let _mode = self.is_detached().then(GradMode::disable);
        // A value such as the gradient of a sum holds one element for all: each gets its own before one is changed.
        if base.shape().iter().zip(base.strides()).any(|(&size, &stride)| size > 1 && stride == 0) {
            *base = base.contiguous()?.into_value();
        }
        base.set_view(|x| self.of(x), value)
    }
}
