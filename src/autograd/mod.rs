//! Reverse-mode automatic differentiation.
//!
//! Operations on tensors that require a gradient are recorded in a graph. [`Tensor::backward`](crate::Tensor::backward) goes back
//! through the graph and adds the gradients to the leaves, the tensors that were made by
//! [`requires_grad_`](crate::Tensor::requires_grad_).
//!
//! ```
//! use cotangent::{autograd, tensor};
//! let x = tensor!([1.0, 2.0, 3.0])?.requires_grad_(true)?;
//! let y = x.mul(&x)?.sum(..)?;
//! y.backward()?;
//! assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0, 6.0]));
//! # Ok::<(), cotangent::Error>(())
//! ```
//! | to | see |
//! | --- | --- |
//! | add gradients to the leaves | [`Tensor::backward`](crate::Tensor::backward), [`Tensor::grad`](crate::Tensor::grad), [`Tensor::zero_grad`](crate::Tensor::zero_grad) |
//! | get gradients as values | [`grad`], and [`derivative`] for one input |
//! | differentiate a function | [`value_and_grad`], [`vjp`], [`jvp`], [`jacobian`], [`hessian`], [`hvp`] |
//! | get gradients of each example | [`vmap()`](crate::vmap()) around one of these |
//! | compute without a graph | [`no_grad`]; [`Tensor::detach`](crate::Tensor::detach) for one tensor |
//! | define an operation with its own derivative | [`Function`] |
//! | save memory | [`checkpoint()`] |
//! | find a NaN, or test a derivative | [`detect_anomaly`], [`gradcheck()`] |
//!
//! # Cotangents
//! The *cotangent* of a value is the gradient of the final scalar with respect to this value. It has the shape of the value.
//! PyTorch calls it `gradient` or `grad_output`. A backward pass begins with the cotangent of the output, which is 1 for a
//! scalar, and computes the cotangents of the inputs from it. The gradient of a leaf is its cotangent.
//!
//! # The graph
//! Every recorded operation is a node: its name, the source line that called it, edges to the inputs that need a gradient, and
//! a closure from the cotangent of its result to those of its inputs. [`Tensor::backward`](crate::Tensor::backward), [`grad`]
//! and [`Tape::backward`] share one engine, which runs the nodes from the youngest to the oldest. Derivatives are written with
//! tensor operations, so `create_graph` gives higher derivatives: see [`GradOptions`].
#![forbid(unsafe_code)]

mod anomaly;
pub(crate) mod autocast;
mod backward;
mod by_example;
mod checkpoint;
mod dot;
mod drop_queue;
mod engine;
mod failures;
mod function;
mod gradcheck;
mod hooks;
mod mode;
pub(crate) mod node;
mod record;
#[cfg(feature = "cuda")]
pub(crate) mod recording;
mod rule;
mod segment;
mod tape;
mod transforms;

pub use anomaly::{AnomalyGuard, detect_anomaly};
pub use backward::{BackwardOptions, GradOptions, derivative, derivative_with, grad, grad_with};
pub use checkpoint::checkpoint;
pub(crate) use dot::{DrawnNode, drawn};
pub use dot::{GraphStats, graph_stats, to_dot};
pub use function::{ForwardContext, Function, FunctionContext, apply, apply_all};
pub use gradcheck::{GradCheckOptions, gradcheck, gradcheck_with, gradgradcheck, gradgradcheck_with};
#[cfg(feature = "cuda")]
pub(crate) use hooks::Extras;
pub use hooks::{HookHandle, NodeEvent};
pub use mode::{GradMode, enable_grad, is_grad_enabled, no_grad};
pub(crate) use mode::{in_pass, is_recomputing};
pub use tape::{Gradients, Mark, Tape, TapeBackwardOptions};
pub use transforms::{hessian, hvp, jacobian, jvp, value_and_grad, vjp};

pub(crate) use node::{Grads, NodeRef};
pub(crate) use rule::{BackwardContext, Saver};
