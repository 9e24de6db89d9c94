//! The two ways to ask for gradients of the dynamic graph: into the leaves, or as a result.

use super::engine::{Pass, leading_to};
use super::mode;
use super::node::{NodeKind, NodeRef};
use crate::error::{bail, err};
use crate::{Error, Result, Tensor};
use std::collections::{HashMap, HashSet};

/// How a backward pass treats the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backward {
    /// Keep the saved values, so that another pass over the same graph is possible.
    pub retain_graph: bool,
    /// Record the pass itself, so that the gradients can be differentiated. Retains the graph, too.
    pub create_graph: bool,
}

impl Backward {
    /// Keep the graph for another pass.
    pub const RETAIN: Backward = Backward { retain_graph: true, create_graph: false };
    /// Make the gradients differentiable.
    pub const CREATE: Backward = Backward { retain_graph: true, create_graph: true };

    pub(crate) fn pass(self, op: &'static str) -> Pass<'static> {
        Pass {
            op,
            retain_graph: self.retain_graph || self.create_graph,
            create_graph: self.create_graph,
            wanted: None,
            foreign: None,
        }
    }
}

impl Tensor {
    /// Adds the gradient of this scalar to [`grad`](Self::grad) of every leaf it depends on, and frees the graph.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::new(3.0)?.requires_grad_(true)?;
    /// x.mul(&x)?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(6.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor has more than one element (pass a cotangent to [`backward_with`](Self::backward_with)), does not
    /// require a gradient, or its graph was freed by an earlier pass. Nothing is changed then.
    pub fn backward(&self) -> Result<()> {
        self.backward_opts(None, Backward::default())
    }

    /// As [`backward`](Self::backward), for a tensor of any shape, from the cotangent given.
    ///
    /// # Errors
    /// If the cotangent's shape or dtype differs from the tensor's, or as for [`backward`](Self::backward).
    pub fn backward_with(&self, cotangent: &Tensor) -> Result<()> {
        self.backward_opts(Some(cotangent), Backward::default())
    }

    /// As [`backward`](Self::backward), with all options.
    ///
    /// # Errors
    /// As for [`backward`](Self::backward) and [`backward_with`](Self::backward_with).
    pub fn backward_opts(&self, cotangent: Option<&Tensor>, how: Backward) -> Result<()> {
        let node = root("backward", self)?;
        if node.tape.is_some() {
            bail!(Graph, "backward", "the tensor belongs to a tape: call the tape's own backward");
        }
        let cotangent = first_cotangent("backward", self, cotangent)?;
        // Gradients are stored when the whole pass has succeeded, so that a failed one changes none.
        let mut found: Vec<(NodeRef, Tensor)> = Vec::new();
        how.pass("backward").run(vec![(node.clone(), cotangent)], |node, cotangent| {
            if node.kind == NodeKind::Leaf || node.extras.get().is_some_and(|e| e.retains_grad()) {
                found.push((node.clone(), cotangent.clone()));
            }
            Ok(true)
        })?;
        // What was deferred would keep the saved values alive.
        Tensor::materialize(found.iter().map(|(_, grad)| grad))?;
        for (node, grad) in found {
            let mut slot = node.extras().grad();
            match slot.take() {
                None => *slot = Some(grad),
                Some(mut old) => {
                    let _mode = mode::GradMode::set(how.create_graph);
                    let added = old.accumulate(grad);
                    *slot = Some(old);
                    added?;
                }
            }
        }
        Ok(())
    }

    /// The gradient that backward passes have added up for this leaf (or for a result with
    /// [`retain_grad`](Self::retain_grad)); `None` until one arrives.
    pub fn grad(&self) -> Option<Tensor> {
        self.node()?.extras.get()?.grad().clone()
    }

    /// Takes the gradient away, leaving `None`.
    pub fn zero_grad(&self) {
        self.take_grad();
    }

    /// The gradient, taken away from this leaf.
    pub fn take_grad(&self) -> Option<Tensor> {
        self.node()?.extras.get()?.grad().take()
    }

    /// Puts a gradient in place of the one that is there.
    ///
    /// # Errors
    /// If its shape or dtype is not the tensor's, or the tensor does not require a gradient.
    pub fn set_grad(&self, grad: Tensor) -> Result<()> {
        let Some(node) = self.grad_node() else {
            bail!(Graph, "set_grad", "the tensor of shape {:?} does not require a gradient", self.shape());
        };
        check_cotangent("set_grad", self, &grad)?;
        *node.extras().grad() = Some(grad);
        Ok(())
    }
}

/// The gradients of a scalar with respect to `inputs`; no state is touched. `None` stands for an input that the scalar
/// does not depend on.
///
/// ```
/// use cotangent::{Tensor, autograd::grad};
/// let x = Tensor::new(2.0)?.requires_grad_(true)?;
/// let z = Tensor::new(5.0)?.requires_grad_(true)?;
/// let grads = grad(&x.pow(3.0)?, &[&x, &z])?;
/// assert_eq!(grads[0].as_ref().map(|g| g.item::<f32>()).transpose()?, Some(12.0));
/// assert!(grads[1].is_none());
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`Tensor::backward`]; also if an input does not require a gradient.
pub fn grad(output: &Tensor, inputs: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    grad_with(output, inputs, None, Backward::default())
}

/// As [`grad`], from a cotangent and with options.
///
/// # Errors
/// As [`grad`] and [`Tensor::backward_with`].
pub fn grad_with(
    output: &Tensor,
    inputs: &[&Tensor],
    cotangent: Option<&Tensor>,
    how: Backward,
) -> Result<Vec<Option<Tensor>>> {
    let node = root("grad", output)?;
    let cotangent = first_cotangent("grad", output, cotangent)?;
    let targets = inputs.iter().map(|input| Ok(root("grad", input)?.clone())).collect::<Result<Vec<NodeRef>>>()?;
    let mut found = cotangents_at(&how.pass("grad"), vec![(node.clone(), cotangent)], &targets)?;
    Ok(targets.iter().map(|node| found.get_mut(&node.seq).cloned()).collect())
}

/// Runs a pass for the cotangents of `targets` alone, and gives them by sequence number.
pub(crate) fn cotangents_at(
    pass: &Pass<'_>,
    roots: Vec<(NodeRef, Tensor)>,
    targets: &[NodeRef],
) -> Result<HashMap<u64, Tensor>> {
    let seqs: HashSet<u64> = targets.iter().map(|node| node.seq).collect();
    let starts: Vec<NodeRef> = roots.iter().map(|(node, _)| node.clone()).collect();
    let wanted = leading_to(pass.op, &starts, &seqs)?;
    let roots = roots.into_iter().filter(|(node, _)| wanted.contains(&node.seq)).collect();
    let mut found = HashMap::new();
    Pass { wanted: Some(&wanted), ..*pass }.run(roots, |node, cotangent| {
        if seqs.contains(&node.seq) {
            found.insert(node.seq, cotangent.clone());
        }
        // Behind a target the pass goes on only if another one lies there.
        Ok(node.edges().iter().flatten().any(|edge| wanted.contains(&edge.seq)) || !seqs.contains(&node.seq))
    })?;
    Tensor::materialize(found.values())?;
    Ok(found)
}

/// The node of a tensor that a gradient is asked of or for.
pub(crate) fn root<'a>(op: &'static str, tensor: &'a Tensor) -> Result<&'a NodeRef> {
    match tensor.node() {
        Some(node) if node.kind != NodeKind::Barrier => Ok(node),
        Some(barrier) => Err(no_derivative(op, barrier)),
        None => bail!(
            Graph,
            op,
            "the tensor of shape {:?} has no graph: none of the tensors it was made from requires a gradient, or it was made under no_grad",
            tensor.shape()
        ),
    }
}

fn no_derivative(op: &'static str, barrier: &NodeRef) -> Error {
    err!(Graph, op, "{} has no derivative (called at {})", barrier.name, barrier.location)
}

/// The cotangent to start from: the one given, checked, or a one for a scalar.
pub(crate) fn first_cotangent(op: &'static str, output: &Tensor, given: Option<&Tensor>) -> Result<Tensor> {
    match given {
        Some(cotangent) => {
            check_cotangent(op, output, cotangent)?;
            Ok(cotangent.clone())
        }
        None if output.numel() == 1 => Tensor::ones_with(output.shape(), (output.dtype(), output.device())),
        None => bail!(
            Graph,
            op,
            "a tensor of shape {:?} is not a scalar: a cotangent of its shape must be given",
            output.shape()
        ),
    }
}

fn check_cotangent(op: &'static str, output: &Tensor, cotangent: &Tensor) -> Result<()> {
    if cotangent.shape() != output.shape() {
        bail!(
            Shape,
            op,
            "a cotangent of shape {:?} was given for a tensor of shape {:?}",
            cotangent.shape(),
            output.shape()
        );
    }
    if cotangent.dtype() != output.dtype() {
        bail!(
            DType,
            op,
            "a cotangent of dtype {} was given for a tensor of dtype {}",
            cotangent.dtype(),
            output.dtype()
        );
    }
    if cotangent.device() != output.device() {
        bail!(Device, op, "a cotangent on {} was given for a tensor on {}", cotangent.device(), output.device());
    }
    Ok(())
}
