//! Gradients of the dynamic graph: accumulated into the leaves (`backward`), or returned (`grad`).

use super::engine::{Pass, leading_to};
use super::mode;
use super::node::{NodeKind, NodeRef};
use crate::backend::events;
use crate::error::{bail, err, named};
use crate::options::options;
use crate::{Error, Result, Tensor};
use std::collections::{HashMap, HashSet};

options! {
    /// The options of [`Tensor::backward_with`]. A cotangent alone converts into them.
    ///
    /// For gradients that can be differentiated again use [`grad_with`]: a leaf that stored such a gradient would own the graph
    /// behind it, which owns the leaf, and neither would ever be freed.
    ///
    /// ```
    /// use cotangent::{autograd::BackwardOptions, tensor};
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// let y = x.square()?;
    /// y.backward_with(BackwardOptions::new().retain_graph(true))?;
    /// y.backward()?;
    /// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(12.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BackwardOptions<'a> {
        /// The cotangent of the output, with its shape, dtype and device. For a scalar it defaults to 1.
        gradient: Option<&'a Tensor> = None,
        /// Whether to keep the saved values for another pass over the same graph.
        retain_graph: bool = false,
    }
}

impl<'a> From<&'a Tensor> for BackwardOptions<'a> {
    fn from(gradient: &'a Tensor) -> Self {
        BackwardOptions::new().gradient(gradient)
    }
}

options! {
    /// The options of [`grad_with`]. A cotangent alone converts into them.
    ///
    /// ```
    /// use cotangent::{autograd::{GradOptions, derivative, grad_with}, tensor};
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// let slope = grad_with(&x.square()?, &[&x], GradOptions::new().create_graph(true))?;
    /// let curvature = derivative(slope[0].as_ref().ok_or("x was used")?, &x)?;
    /// assert_eq!(curvature.item::<f32>()?, 2.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct GradOptions<'a> {
        /// The cotangent of the output, with its shape, dtype and device. For a scalar it defaults to 1.
        gradient: Option<&'a Tensor> = None,
        /// Whether to keep the saved values for another pass over the same graph.
        retain_graph: bool = false,
        /// Whether to record the pass itself, so that the gradients can be differentiated. Implies `retain_graph`.
        create_graph: bool = false,
    }
}

impl<'a> From<&'a Tensor> for GradOptions<'a> {
    fn from(gradient: &'a Tensor) -> Self {
        GradOptions::new().gradient(gradient)
    }
}

/// How a pass treats the graph.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassMode {
    pub retain_graph: bool,
    pub create_graph: bool,
}

impl PassMode {
    pub fn pass(self, op: &'static str) -> Pass<'static> {
        Pass {
            op,
            retain_graph: self.retain_graph || self.create_graph,
            create_graph: self.create_graph,
            wanted: None,
            foreign: None,
        }
    }
}

/// # Gradients
impl Tensor {
    /// This tensor as a leaf that requires a gradient, or as a constant.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let w = Tensor::zeros([3])?.requires_grad_(true)?;
    /// assert!(w.requires_grad() && w.is_leaf());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not floating point or complex, or is the result of a recorded operation (detach it first).
    #[track_caller]
    pub fn requires_grad_(self, requires_grad: bool) -> Result<Tensor> {
        named("requires_grad_", self.as_leaf_or_constant(requires_grad))
    }

    #[track_caller]
    fn as_leaf_or_constant(self, requires_grad: bool) -> Result<Tensor> {
        if let Some(name) = self.grad_fn() {
            bail!(Graph, "requires_grad_", "the tensor must be a leaf, got the result of {name}: call detach() first");
        }
        match (requires_grad, self.requires_grad()) {
            (true, true) => Ok(self),
            (true, false) => self.into_leaf("requires_grad_", None),
            (false, _) => Ok(self.with_node(None)),
        }
    }

    /// Whether operations on this tensor are recorded for a backward pass.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let w = Tensor::zeros([3])?.requires_grad_(true)?;
    /// assert!(w.requires_grad() && w.exp()?.requires_grad());
    /// assert!(!w.detach().requires_grad());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.grad_node().is_some()
    }

    /// Adds the gradient of this scalar to [`grad`](Self::grad) of every leaf it depends on, and frees the graph.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// x.mul(&x)?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(6.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor has more than one element (pass a cotangent to [`backward_with`](Self::backward_with)), does not
    /// require a gradient, its graph was freed by an earlier pass, or a leaf was changed since the graph was made. No
    /// gradient is changed in that case. If the pass had begun, the graph is freed.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        named("backward", self.run_backward(&BackwardOptions::new()))
    }

    /// As [`backward`](Self::backward), with options: the cotangent to start from, for a tensor of any shape, and whether
    /// to retain the graph.
    ///
    /// ```
    /// use cotangent::{autograd::BackwardOptions, tensor};
    /// let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
    /// let (y, g) = (x.mul(&x)?, tensor!([1.0, 10.0])?);
    /// y.backward_with(BackwardOptions::new().gradient(&g).retain_graph(true))?;
    /// y.backward_with(&g)?;
    /// assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![4.0, 80.0]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the cotangent's shape, dtype or device differs from the tensor's, or as for [`backward`](Self::backward).
    #[track_caller]
    pub fn backward_with<'a>(&self, options: impl Into<BackwardOptions<'a>>) -> Result<()> {
        named("backward", self.run_backward(&options.into()))
    }

    fn run_backward(&self, options: &BackwardOptions<'_>) -> Result<()> {
        let node = root("backward", self)?;
        if node.tape.is_some() {
            bail!(Graph, "backward", "the tensor belongs to a tape: call Tape::backward");
        }
        let cotangent = first_cotangent("backward", self, options.gradient)?;
        // Gradients are stored when the whole pass has succeeded, so that a failed one changes none.
        let mut found: Vec<(NodeRef, Tensor)> = Vec::new();
        let mode = PassMode { retain_graph: options.retain_graph, create_graph: false };
        mode.pass("backward").run(vec![(node.clone(), cotangent)], |node, cotangent| {
            if node.kind == NodeKind::Leaf || node.extras.get().is_some_and(|e| e.retains_grad()) {
                if cotangent.is_batched() {
                    bail!(
                        Graph,
                        "backward",
                        "inside vmap each example has its own gradient for the leaf of shape {:?}: use autograd::grad, or \
                         call backward after vmap",
                        node.shape
                    );
                }
                found.push((node.clone(), cotangent.clone().into_value()));
            }
            Ok(true)
        })?;
        let scope = events::enter_pass("accumulate_grad");
        // A deferred gradient would keep the saved values alive.
        let stored = Tensor::materialize(found.iter().map(|(_, grad)| grad));
        // All of them or none.
        let stored = stored.and_then(|()| crate::interrupt::whole(|| store(found)));
        events::leave(scope);
        stored
    }

    /// The gradient that backward passes have added up for this leaf (or for a result with
    /// [`retain_grad`](Self::retain_grad)); `None` until one arrives.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// assert!(x.grad().is_none());
    /// x.square()?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(6.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn grad(&self) -> Option<Tensor> {
        self.node()?.extras.get()?.grad().clone()
    }

    /// Sets the gradient to `None`.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// x.square()?.backward()?;
    /// x.zero_grad();
    /// assert!(x.grad().is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn zero_grad(&self) {
        self.take_grad();
    }

    /// Removes and returns the gradient of this leaf.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// x.square()?.backward()?;
    /// assert!(x.take_grad().is_some() && x.grad().is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn take_grad(&self) -> Option<Tensor> {
        self.node()?.extras.get()?.grad().take()
    }

    /// Replaces the gradient.
    ///
    /// ```
    /// use cotangent::tensor;
    /// let x = tensor!(3.0)?.requires_grad_(true)?;
    /// x.set_grad(&tensor!(0.5)?)?;
    /// x.square()?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(6.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape, dtype or device of `grad` is not the tensor's, `grad` requires a gradient (detach it), or the tensor
    /// does not require one.
    #[track_caller]
    pub fn set_grad(&self, grad: &Tensor) -> Result<()> {
        named("set_grad", self.replace_grad(grad))
    }

    fn replace_grad(&self, grad: &Tensor) -> Result<()> {
        let Some(node) = self.grad_node() else {
            bail!(Graph, "set_grad", "the tensor of shape {:?} does not require a gradient", self.shape());
        };
        check_cotangent("set_grad", self, grad)?;
        if grad.requires_grad() {
            bail!(
                Graph,
                "set_grad",
                "grad must not require a gradient, as it would keep its graph alive: call detach() first"
            );
        }
        // The old one is dropped when the lock is free again.
        let old = node.extras().grad().replace(grad.detach());
        drop(old);
        Ok(())
    }

    /// The same values outside the graph: no gradient flows through the result. The memory is shared.
    /// [`no_grad`](crate::no_grad) runs a whole function without a graph.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let w = Tensor::ones([3])?.requires_grad_(true)?;
    /// let values = w.exp()?.detach();
    /// assert!(!values.requires_grad());
    /// let y = w.mul(&w.detach())?;
    /// y.sum(..)?.backward()?;
    /// assert_eq!(w.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0; 3]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "stop_gradient")]
    #[must_use]
    pub fn detach(&self) -> Tensor {
        self.without_node()
    }

    /// Whether this is not the result of a recorded operation.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let w = Tensor::zeros([3])?.requires_grad_(true)?;
    /// assert!(w.is_leaf() && !w.exp()?.is_leaf());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_leaf(&self) -> bool {
        self.node().is_none_or(|node| node.kind != NodeKind::Op)
    }

    /// The name of the recorded operation that made this tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let w = Tensor::zeros([3])?.requires_grad_(true)?;
    /// assert_eq!(w.exp()?.grad_fn(), Some("exp"));
    /// assert_eq!(w.grad_fn(), None);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn grad_fn(&self) -> Option<&str> {
        self.node().filter(|node| node.kind == NodeKind::Op).map(|node| &*node.name)
    }
}

/// Accumulates gradients into their leaves: into all of them, or into none if memory runs out.
fn store(mut found: Vec<(NodeRef, Tensor)>) -> Result<()> {
    // All locks are held at once. Every pass takes them in the same order, which prevents a deadlock.
    found.sort_unstable_by_key(|(node, _)| node.seq);
    let (nodes, grads): (Vec<NodeRef>, Vec<Tensor>) = found.into_iter().unzip();
    let mut slots: Vec<_> = nodes.iter().map(|node| node.extras().grad()).collect();
    // A gradient that is shared is copied before it is added to. The copy may fail, but changes no value.
    for slot in slots.iter_mut().filter_map(|slot| slot.as_mut()) {
        slot.as_raw_view_mut("backward")?;
    }
    #[cfg(feature = "cuda")]
    if let Some(at) = super::recording::note_gradients(&nodes, |at| slots[at].is_some()) {
        bail!(
            Graph,
            "backward",
            "the gradient of shape {:?} was there before the recorded step, and every replay would add to that one again: \
             call zero_grad within the step, before backward",
            nodes[at].shape
        );
    }
    let _mode = mode::GradMode::disable();
    for (slot, grad) in slots.iter_mut().zip(grads) {
        match &mut **slot {
            Some(old) => old.accumulate(grad)?,
            empty => *empty = Some(grad),
        }
    }
    Ok(())
}

/// The gradients of a scalar with respect to `inputs`. The gradient is `None` for an input that the scalar does not depend on.
///
/// Unlike [`Tensor::backward`], it stores no gradients in the tensors. It frees the graph between the scalar and the inputs, as
/// `backward` does: [`grad_with`] can retain it. [`derivative`] is the form for one input, and retains the graph.
///
/// ```
/// use cotangent::{autograd::grad, tensor};
/// let x = tensor!(2.0)?.requires_grad_(true)?;
/// let z = tensor!(5.0)?.requires_grad_(true)?;
/// let grads = grad(&x.pow(3.0)?, &[&x, &z])?;
/// assert_eq!(grads[0].as_ref().map(|g| g.item::<f32>()).transpose()?, Some(12.0));
/// assert!(grads[1].is_none());
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`Tensor::backward`]; also if an input does not require a gradient.
#[track_caller]
pub fn grad(output: &Tensor, inputs: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    named("grad", gradients(output, inputs, &GradOptions::new()))
}

/// As [`grad`], with options: the cotangent to start from, whether to retain the graph, and whether to record the pass, so
/// that the gradients can be differentiated again.
///
/// ```
/// use cotangent::{autograd::{GradOptions, derivative, grad_with}, tensor};
/// let x = tensor!(2.0)?.requires_grad_(true)?;
/// let first = grad_with(&x.pow(3.0)?, &[&x], GradOptions::new().create_graph(true))?;
/// let second = derivative(first[0].as_ref().ok_or("x was used")?, &x)?;
/// assert_eq!(second.item::<f32>()?, 12.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`grad`] and [`Tensor::backward_with`].
#[track_caller]
pub fn grad_with<'a>(
    output: &Tensor,
    inputs: &[&Tensor],
    options: impl Into<GradOptions<'a>>,
) -> Result<Vec<Option<Tensor>>> {
    named("grad", gradients(output, inputs, &options.into()))
}

/// The gradient of a scalar with respect to one input. The graph is retained.
///
/// ```
/// use cotangent::{autograd::derivative, tensor};
/// let x = tensor!(2.0)?.requires_grad_(true)?;
/// assert_eq!(derivative(&x.pow(3.0)?, &x)?.item::<f32>()?, 12.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`grad`]; also if the scalar does not depend on the input.
#[track_caller]
pub fn derivative(output: &Tensor, input: &Tensor) -> Result<Tensor> {
    named("derivative", only_gradient(output, input, &GradOptions::new().retain_graph(true)))
}

/// As [`derivative`], with options: for outputs that are not scalars, and for derivatives that are differentiated again. The
/// graph is freed unless the options retain it.
///
/// ```
/// use cotangent::{autograd::{GradOptions, derivative, derivative_with}, tensor};
/// let x = tensor!(2.0)?.requires_grad_(true)?;
/// let first = derivative_with(&x.pow(3.0)?, &x, GradOptions::new().create_graph(true))?;
/// assert_eq!(derivative(&first, &x)?.item::<f32>()?, 12.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`derivative`] and [`grad_with`].
#[track_caller]
pub fn derivative_with<'a>(output: &Tensor, input: &Tensor, options: impl Into<GradOptions<'a>>) -> Result<Tensor> {
    named("derivative", only_gradient(output, input, &options.into()))
}

fn only_gradient(output: &Tensor, input: &Tensor, options: &GradOptions<'_>) -> Result<Tensor> {
    match gradients(output, &[input], options)?.pop().flatten() {
        Some(gradient) => Ok(gradient),
        None => bail!(Graph, "derivative", "the result does not depend on the input of shape {:?}", input.shape()),
    }
}

fn gradients(output: &Tensor, inputs: &[&Tensor], options: &GradOptions<'_>) -> Result<Vec<Option<Tensor>>> {
    let node = root("grad", output)?;
    let cotangent = first_cotangent("grad", output, options.gradient)?;
    let targets = inputs.iter().map(|input| Ok(root("grad", input)?.clone())).collect::<Result<Vec<NodeRef>>>()?;
    let mode = PassMode { retain_graph: options.retain_graph, create_graph: options.create_graph };
    let mut found = cotangents_at(&mode.pass("grad"), vec![(node.clone(), cotangent)], &targets)?;
    Ok(targets.iter().map(|node| found.get_mut(&node.seq).cloned()).collect())
}

/// Runs a pass for the cotangents of `targets` only, and returns them by sequence number.
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
            found.insert(node.seq, cotangent.clone().into_value());
        }
        // The pass continues behind a target only if that leads to another target.
        Ok(node.edges().iter().flatten().any(|edge| wanted.contains(&edge.seq)) || !seqs.contains(&node.seq))
    })?;
    Tensor::materialize(found.values())?;
    Ok(found)
}

/// The node of a tensor to differentiate, or to differentiate with respect to.
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

/// The cotangent to start from: the given one, checked, or 1 for a scalar.
pub(crate) fn first_cotangent(op: &'static str, output: &Tensor, given: Option<&Tensor>) -> Result<Tensor> {
    match given {
        Some(cotangent) => {
            check_cotangent(op, output, cotangent)?;
            Ok(cotangent.clone())
        }
        None if output.dtype().is_complex() => bail!(
            Graph,
            op,
            "the gradient of a complex tensor needs a cotangent: pass one to backward_with, or take real() or abs() first"
        ),
        None if output.numel() == 1 => Tensor::ones_with(output.shape(), (output.dtype(), output.device())),
        None => bail!(Graph, op, "expected a scalar, got shape {:?}: pass a cotangent of that shape", output.shape()),
    }
}

fn check_cotangent(op: &'static str, output: &Tensor, cotangent: &Tensor) -> Result<()> {
    if cotangent.shape() != output.shape() {
        bail!(Shape, op, "cotangent must have shape {:?}, got {:?}", output.shape(), cotangent.shape());
    }
    if cotangent.dtype() != output.dtype() {
        bail!(DType, op, "cotangent must be {}, got {}", output.dtype(), cotangent.dtype());
    }
    if cotangent.device() != output.device() {
        bail!(Device, op, "cotangent must be on {}, got {}", output.device(), cotangent.device());
    }
    Ok(())
}
