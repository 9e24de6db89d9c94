//! Differentiable functions written by the user: a forward computation and its own rule for the backward pass.

use super::mode;
use super::node::BackwardContext;
use crate::error::{bail, err};
use crate::layout::broadcast;
use crate::{Result, Shape, Tensor};
use std::sync::Arc;

/// What a [`Function`] keeps from the forward computation for its backward rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saves {
    /// Neither inputs nor output.
    Nothing,
    /// All inputs.
    #[default]
    Inputs,
    /// The output.
    Output,
    /// All inputs and the output.
    InputsAndOutput,
}

/// A function with a derivative of its own.
///
/// The rule sees the saved values with their graph. Written with tensor operations, it can therefore be differentiated
/// again, to any order.
///
/// ```
/// use cotangent::autograd::{self, Function, FunctionContext, Saves};
/// use cotangent::{Result, Tensor};
///
/// struct Exp;
///
/// impl Function for Exp {
///     fn name(&self) -> &'static str {
///         "my_exp"
///     }
///     fn saves(&self) -> Saves {
///         Saves::Output
///     }
///     fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
///         inputs[0].exp()
///     }
///     fn backward(&self, ctx: &FunctionContext, cotangent: &Tensor) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(cotangent.mul(&ctx.output()?)?)])
///     }
/// }
///
/// let x = Tensor::new(0.0)?.requires_grad_(true)?;
/// let y = autograd::apply(Exp, &[&x])?;
/// y.backward()?;
/// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(1.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Function: Send + Sync + 'static {
    /// The name, in messages and drawings.
    fn name(&self) -> &'static str;

    /// The result. What happens here is not recorded, and the inputs come without their graph.
    ///
    /// # Errors
    /// Whatever the computation meets with.
    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor>;

    /// One cotangent for each input, from that of the output. `None` is allowed where
    /// [`needs`](FunctionContext::needs) is false. As for every operation, a cotangent of a shape that the input
    /// broadcasts to is summed back to the input's shape.
    ///
    /// # Errors
    /// Whatever the computation meets with.
    fn backward(&self, ctx: &FunctionContext, cotangent: &Tensor) -> Result<Vec<Option<Tensor>>>;

    /// What [`FunctionContext::input`] and [`FunctionContext::output`] can give.
    fn saves(&self) -> Saves {
        Saves::Inputs
    }
}

impl<F: Function + ?Sized> Function for Arc<F> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        (**self).forward(inputs)
    }

    fn backward(&self, ctx: &FunctionContext, cotangent: &Tensor) -> Result<Vec<Option<Tensor>>> {
        (**self).backward(ctx, cotangent)
    }

    fn saves(&self) -> Saves {
        (**self).saves()
    }
}

/// What the backward rule of a [`Function`] can ask for.
pub struct FunctionContext<'a> {
    name: &'static str,
    inputs: &'a [Tensor],
    output: Option<&'a Tensor>,
    ctx: &'a BackwardContext<'a>,
}

impl std::fmt::Debug for FunctionContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionContext")
            .field("name", &self.name)
            .field("inputs", &self.inputs.len())
            .finish_non_exhaustive()
    }
}

impl FunctionContext<'_> {
    /// An input of the forward computation, with its graph.
    ///
    /// # Errors
    /// If the function does not save its inputs, or has no such input.
    pub fn input(&self, index: usize) -> Result<Tensor> {
        match self.inputs.get(index) {
            Some(input) => Ok(input.clone()),
            None if self.inputs.is_empty() => {
                bail!(Graph, self.name, "the inputs were not saved: saves() must say Saves::Inputs")
            }
            None => bail!(Index, self.name, "there is no input {index}: the function has {}", self.inputs.len()),
        }
    }

    /// The result of the forward computation, with its graph.
    ///
    /// # Errors
    /// If the function does not save its output.
    pub fn output(&self) -> Result<Tensor> {
        match self.output {
            Some(output) => Ok(self.ctx.output(output)),
            None => bail!(Graph, self.name, "the output was not saved: saves() must say Saves::Output"),
        }
    }

    /// Whether anyone needs the cotangent of this input.
    pub fn needs(&self, index: usize) -> bool {
        self.ctx.needs(index)
    }
}

/// The result of a [`Function`] on `inputs`, recorded as one operation.
///
/// # Errors
/// As the function's forward computation. Its backward rule is checked when it runs: one cotangent for each input, none
/// left out that is needed, each of a shape that the input broadcasts to and of floating point.
#[track_caller]
pub fn apply(function: impl Function, inputs: &[&Tensor]) -> Result<Tensor> {
    let name = function.name();
    let plain: Vec<Tensor> = inputs.iter().map(|input| input.detach()).collect();
    // An input that comes back unchanged is detached like any other result, and gets a node of its own.
    let output = mode::no_grad(|| function.forward(&plain))?.detach();
    if !output.dtype().is_float() {
        return Ok(output.record_barrier(name, inputs));
    }
    output.record(name, inputs, |save| {
        let saves = function.saves();
        let shapes: Vec<Shape> = inputs.iter().map(|input| input.shape().into()).collect();
        let kept_inputs: Vec<Tensor> = match saves {
            Saves::Inputs | Saves::InputsAndOutput => inputs.iter().map(|input| save.save(input)).collect(),
            Saves::Nothing | Saves::Output => Vec::new(),
        };
        let kept_output = matches!(saves, Saves::Output | Saves::InputsAndOutput).then(|| save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            let context = FunctionContext { name, inputs: &kept_inputs, output: kept_output.as_ref(), ctx };
            let grads = function.backward(&context, g)?;
            check(name, ctx, &shapes, &grads)?;
            Ok(grads.into())
        }
    })
}

/// Holds a rule to its contract, in terms of the inputs that its author knows.
fn check(name: &'static str, ctx: &BackwardContext, shapes: &[Shape], grads: &[Option<Tensor>]) -> Result<()> {
    if grads.len() != shapes.len() {
        bail!(Graph, name, "backward gave {} cotangents for {} inputs", grads.len(), shapes.len());
    }
    for (at, (shape, grad)) in shapes.iter().zip(grads).enumerate() {
        let grad = match grad {
            Some(grad) if ctx.needs(at) => grad,
            None if ctx.needs(at) => bail!(Graph, name, "backward gave no cotangent for input {at}, which needs one"),
            _ => continue,
        };
        let wrong = || {
            err!(Shape, name, "backward gave a cotangent of shape {:?} for input {at} of shape {shape:?}", grad.shape())
        };
        let common = broadcast(name, &[shape, grad.layout().shape()]).map_err(|_| wrong())?;
        if *common != *grad.shape() {
            return Err(wrong());
        }
        if !grad.dtype().is_float() {
            bail!(DType, name, "backward gave a cotangent of dtype {} for input {at}", grad.dtype());
        }
    }
    Ok(())
}
