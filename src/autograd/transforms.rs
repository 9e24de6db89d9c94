//! Transforms of functions: Jacobian products, Jacobians, Hessians.
//!
//! A transform calls the function on new tensors that hold the caller's values. So the state of the caller's tensors is
//! neither read nor changed, and only the function's *arguments* are differentiated, whatever else it uses. The results
//! depend on the caller's tensors and on all tensors the function used, if these require a gradient. So transforms can be
//! nested, and [`backward`](crate::Tensor::backward) can run through them, to any order.

use super::backward::{PassMode, cotangents_at, root};
use super::mode::{self, GradMode};
use super::node::{self, NodeRef};
use super::segment::{Extent, entry};
use super::tape::TapeEntry;
use crate::error::{bail, placed};
use crate::location::Location;
use crate::memory::scratch::for_handles;
use crate::{Result, Tensor};
use std::collections::HashSet;

/// A call of a function on new entries.
struct TracedCall {
    op: &'static str,
    entries: Vec<Tensor>,
    output: Tensor,
    /// Whether the output depends on nodes outside of this call.
    open: bool,
}

#[track_caller]
fn run(op: &'static str, f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<TracedCall> {
    let start = node::next_sequence();
    let mut entries = Vec::with_capacity(inputs.len());
    for x in inputs {
        entries.push(placed(entry(op, x))?);
    }
    let output = mode::enable_grad(|| f(&entries))?;
    let open = match output.grad_node() {
        Some(node) if mode::is_grad_enabled() => {
            !placed(Extent::of(op, node, start, &HashSet::new()))?.boundary.is_empty()
        }
        _ => false,
    };
    Ok(TracedCall { op, entries, output, open })
}

impl TracedCall {
    fn value(&self) -> Tensor {
        if self.open { self.output.clone() } else { self.output.detach() }
    }

    /// The node of the output; `None` if it does not depend on any entry or other tensor that requires a gradient.
    fn root(&self) -> Result<Option<NodeRef>> {
        self.output.node().map(|_| root(self.op, &self.output).cloned()).transpose()
    }

    fn targets(&self) -> Vec<NodeRef> {
        self.entries.iter().filter_map(|entry| entry.grad_node().cloned()).collect()
    }

    /// The cotangents of the entries from that of the output; zeros for entries that the output does not depend on.
    fn pull(&self, cotangent: &Tensor) -> Result<Vec<Tensor>> {
        check_like(self.op, "cotangent", "output", &self.output, cotangent)?;
        let targets = self.targets();
        let create_graph = mode::is_grad_enabled() && (self.open || cotangent.requires_grad());
        let how = PassMode { retain_graph: true, create_graph };
        let found = match self.root()? {
            Some(root) => cotangents_at(&how.pass(self.op), vec![(root, cotangent.clone())], &targets)?,
            None => Default::default(),
        };
        let of = |(entry, target): (&Tensor, &NodeRef)| {
            found.get(&target.seq).map_or_else(|| entry.zeros_like(), |g| Ok(g.clone()))
        };
        self.entries.iter().zip(&targets).map(of).collect()
    }

    /// The cotangent 1 of the output, which must be a scalar.
    fn one(&self) -> Result<Tensor> {
        if self.output.numel() != 1 {
            bail!(Shape, self.op, "the function must return a scalar, got shape {:?}", self.output.shape());
        }
        self.output.ones_like()
    }
}

fn check_like(op: &'static str, what: &str, of: &str, like: &Tensor, given: &Tensor) -> Result<()> {
    if given.shape() != like.shape() {
        bail!(Shape, op, "the {what} must have the {of}'s shape {:?}, got {:?}", like.shape(), given.shape());
    }
    if given.dtype() != like.dtype() {
        bail!(DType, op, "the {what} must have the {of}'s dtype {}, got {}", like.dtype(), given.dtype());
    }
    Ok(())
}

/// The value of `f` and its gradients with respect to its inputs; zeros for inputs that it does not depend on.
///
/// The inputs need no [`requires_grad_`](crate::Tensor::requires_grad_): `f` is called with new tensors that have their values.
/// Other tensors that `f` uses are constants. So for the weight of a layer compute with the function's input, as in
/// `x.linear(&inputs[0], None)`: `layer.forward(x)` uses the layer's own parameter.
///
/// ```
/// use cotangent::{autograd::value_and_grad, tensor};
/// let (w, b) = (tensor!([1.0, 2.0])?, tensor!(3.0)?);
/// let (value, grads) = value_and_grad(|inputs| inputs[0].square()?.sum(..)?.mul(&inputs[1]), &[&w, &b])?;
/// assert_eq!(value.item::<f32>()?, 15.0);
/// assert_eq!(grads[0].to_vec::<f32>()?, [6.0, 12.0]);
/// assert_eq!(grads[1].item::<f32>()?, 5.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; also if its result is not a scalar or has no derivative, or an input is not floating point.
#[track_caller]
pub fn value_and_grad(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<(Tensor, Vec<Tensor>)> {
    let run = run("value_and_grad", f, inputs)?;
    let grads = placed(run.one().and_then(|one| run.pull(&one)))?;
    Ok((run.value(), grads))
}

/// The value of `f`, and a function from a cotangent of the value to those of the inputs: the vector-Jacobian product. It can
/// be called any number of times.
///
/// ```
/// use cotangent::{autograd::vjp, tensor};
/// let x = tensor!([1.0, 2.0])?;
/// let (value, pull) = vjp(|x| x[0].mul(&x[0]), &[&x])?;
/// assert_eq!(value.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(pull(&tensor!([1.0, 10.0])?)?[0].to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; also if its result has no derivative, or an input is not floating point. The returned function fails if the
/// cotangent's shape or dtype is not the value's.
#[track_caller]
pub fn vjp<F>(
    f: F,
    inputs: &[&Tensor],
) -> Result<(Tensor, impl Fn(&Tensor) -> Result<Vec<Tensor>> + Send + Sync + use<F>)>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    let run = run("vjp", f, inputs)?;
    placed(run.root())?;
    // An error of the pullback has the source line of this call: a closure does not know that of its caller.
    let location = Location::caller();
    Ok((run.value(), move |cotangent: &Tensor| run.pull(cotangent).map_err(|error| error.or_at(location.clone()))))
}

/// The value of `f`, and its derivative along `tangents`: the Jacobian-vector product.
///
/// It is computed by differentiating the result of [`vjp`], which is linear in the cotangent, with respect to the cotangent.
///
/// ```
/// use cotangent::{autograd::jvp, tensor};
/// let (x, v) = (tensor!([1.0, 2.0])?, tensor!([1.0, 10.0])?);
/// let (_, tangent) = jvp(|x| x[0].mul(&x[0]), &[&x], &[&v])?;
/// assert_eq!(tangent.to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; also if its result has no derivative, an input is not floating point, or the tangents do not have the inputs'
/// number, shapes and dtypes.
#[track_caller]
pub fn jvp(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    tangents: &[&Tensor],
) -> Result<(Tensor, Tensor)> {
    placed(jvp_of(f, inputs, tangents))
}

#[track_caller]
fn jvp_of(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    tangents: &[&Tensor],
) -> Result<(Tensor, Tensor)> {
    if inputs.len() != tangents.len() {
        bail!(Value, "jvp", "expected {} tangents, one for each input, got {}", inputs.len(), tangents.len());
    }
    for (input, tangent) in inputs.iter().zip(tangents) {
        check_like("jvp", "tangent", "input", input, tangent)?;
    }
    let run = run("jvp", f, inputs)?;
    let Some(root) = run.root()? else {
        return Ok((run.value(), run.output.zeros_like()?));
    };
    let create_graph = mode::is_grad_enabled() && (run.open || tangents.iter().any(|t| t.requires_grad()));
    // Only the graph of the cotangent matters, not its values.
    let cotangent = run.output.zeros_like()?.into_leaf("jvp", root.tape.as_ref().map(TapeEntry::new_entry))?;
    let targets = run.targets();
    let pulled = {
        let _mode = GradMode::enable();
        cotangents_at(
            &PassMode { retain_graph: true, create_graph: true }.pass("jvp"),
            vec![(root, cotangent.clone())],
            &targets,
        )?
    };
    let depends = |(target, tangent): (&NodeRef, &&Tensor)| {
        Some((pulled.get(&target.seq)?.grad_node()?.clone(), (*tangent).clone()))
    };
    let roots: Vec<(NodeRef, Tensor)> = targets.iter().zip(tangents).filter_map(depends).collect();
    let how = PassMode { retain_graph: create_graph, create_graph };
    let along = cotangent.grad_node().cloned().into_iter().collect::<Vec<NodeRef>>();
    let found = cotangents_at(&how.pass("jvp"), roots, &along)?;
    let tangent = found.into_values().next().map_or_else(|| run.output.zeros_like(), Ok)?;
    Ok((run.value(), tangent))
}

/// The Jacobian of `f` at `x`. Its shape is the shape of `f(x)` followed by that of `x`. It takes one backward pass for each
/// element of `f(x)`.
///
/// ```
/// use cotangent::{autograd::jacobian, tensor};
/// let x = tensor!([1.0, 2.0])?;
/// assert_eq!(jacobian(|x| x.mul(x), &x)?.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; also if its result has no derivative, or `x` is not floating point.
#[track_caller]
pub fn jacobian(f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
    placed(jacobian_as("jacobian", f, x))
}

#[track_caller]
fn jacobian_as(op: &'static str, f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
    let run = run(op, |x| f(&x[0]), &[x])?;
    run.root()?;
    let shape: Vec<usize> = run.output.shape().iter().chain(x.shape()).copied().collect();
    let n = run.output.numel();
    if n == 0 {
        return Tensor::zeros_with(shape, (x.dtype(), x.device()));
    }
    let mut rows = for_handles(op, n)?;
    for at in 0..n {
        let mut one_hot = Tensor::zeros_with([n], (run.output.dtype(), run.output.device()))?;
        one_hot.set(at, 1.0)?;
        rows.extend(run.pull(&one_hot.reshape(run.output.shape())?)?);
    }
    Tensor::stack(&rows.iter().collect::<Vec<&Tensor>>(), 0)?.reshape(shape)
}

/// The Hessian of a scalar function at `x`: the Jacobian of its gradient. Its shape is the shape of `x` twice.
///
/// ```
/// use cotangent::{autograd::hessian, tensor};
/// let x = tensor!([1.0, 2.0])?;
/// assert_eq!(hessian(|x| x.pow(3.0)?.sum(..), &x)?.to_vec::<f32>()?, [6.0, 0.0, 0.0, 12.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`value_and_grad`].
#[track_caller]
pub fn hessian(f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
    placed(jacobian_as("hessian", |x| gradient("hessian", &f, x), x))
}

/// The product of the Hessian of a scalar function and a vector, at about the cost of two gradients.
///
/// ```
/// use cotangent::{autograd::hvp, tensor};
/// let (x, v) = (tensor!([1.0, 2.0])?, tensor!([1.0, 10.0])?);
/// assert_eq!(hvp(|x| x.pow(3.0)?.sum(..), &x, &v)?.to_vec::<f32>()?, [6.0, 120.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`value_and_grad`]; also if `v` does not have the shape and dtype of `x`.
#[track_caller]
pub fn hvp(f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor, v: &Tensor) -> Result<Tensor> {
    placed(check_like("hvp", "vector", "input", x, v))?;
    let run = run("hvp", |x| gradient("hvp", &f, &x[0]), &[x])?;
    // The Hessian is symmetric, so a vector-Jacobian product will do.
    placed(run.pull(v).map(|mut products| products.swap_remove(0)))
}

#[track_caller]
fn gradient(op: &'static str, f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
    let run = run(op, |x| f(&x[0]), &[x])?;
    run.pull(&run.one()?).map(|mut grads| grads.swap_remove(0))
}
