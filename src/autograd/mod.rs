//! Reverse-mode automatic differentiation: the graph, the engine that walks it, and what is built on both.
//!
//! Every operation on a tensor that requires a gradient leaves a node behind: its name, where it was called,
//! edges to the inputs that need a gradient, and a closure from the cotangent of its result to those of its inputs.
//! [`Tensor::backward`](crate::Tensor::backward), [`grad`] and [`Tape::backward`] hand a cotangent to one
//! engine, which runs the nodes from the youngest to the oldest. Derivatives are written with tensor
//! operations, so that `create_graph` gives derivatives of derivatives.
//!
//! ```
//! use cotangent::{autograd, tensor};
//! let x = tensor!([1.0, 2.0, 3.0])?.requires_grad_(true)?;
//! let y = x.mul(&x)?.sum(..)?;
//! y.backward()?;
//! assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![2.0, 4.0, 6.0]));
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod anomaly;
mod backward;
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
