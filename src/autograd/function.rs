//! User-defined differentiable functions: a forward computation and its backward rule.

use super::mode;
use super::node::NodeRef;
use super::rule::BackwardContext;
use crate::error::{bail, err, placed};
use crate::layout::broadcast;
use crate::location::{Location, Name};
use crate::{Error, Result, Shape, Tensor};
use std::sync::Arc;

/// A function with a user-defined derivative, from any number of tensors to any number of tensors.
///
/// Saved inputs and outputs have their graph in the backward rule. A rule that is written with tensor operations can
/// therefore be differentiated again, to any order.
///
/// ```
/// use cotangent::autograd::{self, ForwardContext, Function, FunctionContext};
/// use cotangent::{Result, Tensor, tensor, error::Name};
///
/// /// The exponential, whose derivative is itself.
/// struct Exp;
///
/// impl Function for Exp {
///     fn name(&self) -> Name {
///         "my_exp".into()
///     }
///     fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         let y = inputs[0].exp()?;
///         ctx.save(&y);
///         Ok(vec![y])
///     }
///     fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(cotangents[0].mul(&ctx.saved(0)?)?)])
///     }
/// }
///
/// let x = tensor!(0.0)?.requires_grad_(true)?;
/// let y = autograd::apply(Exp, &[&x])?;
/// y.backward()?;
/// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(1.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Function: Send + Sync + 'static {
    /// The name, in messages and drawings.
    fn name(&self) -> Name;

    /// Computes the outputs. Operations here are not recorded, and the inputs are detached. Save what the backward rule needs
    /// in `ctx`: inputs, outputs, or any other tensor.
    ///
    /// # Errors
    /// Those of the computation.
    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Computes one cotangent for each input from those of all outputs. The cotangents of unused outputs, and of those that
    /// are not floating point, are zeros. `None` is allowed where [`needs`](FunctionContext::needs) is false. As for every
    /// operation, a cotangent of a shape that the input broadcasts to is summed back to the input's shape.
    ///
    /// # Errors
    /// Those of the computation.
    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>>;
}

impl<F: Function + ?Sized> Function for Arc<F> {
    fn name(&self) -> Name {
        (**self).name()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        (**self).forward(ctx, inputs)
    }

    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        (**self).backward(ctx, cotangents)
    }
}

/// Where a [`Function`] saves what its rule needs.
///
/// ```
/// use cotangent::autograd::{ForwardContext, Function, FunctionContext, apply};
/// use cotangent::{Result, Tensor, tensor, error::Name};
///
/// struct Square;
///
/// impl Function for Square {
///     fn name(&self) -> Name {
///         "square".into()
///     }
///     fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         ctx.save(&inputs[0]);
///         Ok(vec![inputs[0].square()?])
///     }
///     fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(ctx.saved(0)?.mul(2)?.mul(&cotangents[0])?)])
///     }
/// }
///
/// let x = tensor!(3.0)?.requires_grad_(true)?;
/// apply(Square, &[&x])?.backward()?;
/// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(6.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ForwardContext {
    saved: Vec<Tensor>,
}

impl ForwardContext {
    /// Saves a tensor, and returns its number for [`FunctionContext::saved`], counted from 0.
    ///
    /// An input or an output comes back with its graph. Any other floating point tensor is assumed to depend on the inputs in
    /// a way that was not recorded: the rule may use it, but differentiating the result again is an error.
    #[doc(alias = "save_for_backward")]
    pub fn save(&mut self, tensor: &Tensor) -> usize {
        self.saved.push(tensor.clone());
        self.saved.len() - 1
    }
}

/// A saved tensor, by its role in the function.
enum SavedTensor {
    /// With its graph.
    Input(Tensor),
    /// The values of the output at this position. With its graph it would own itself.
    Output(usize, Tensor),
    Other(Tensor),
}

/// What is available to the backward rule of a [`Function`].
///
/// ```
/// use cotangent::autograd::{ForwardContext, Function, FunctionContext, apply};
/// use cotangent::{Result, Tensor, tensor, error::Name};
///
/// /// A product that computes only the cotangents that are needed.
/// struct Product;
///
/// impl Function for Product {
///     fn name(&self) -> Name {
///         "product".into()
///     }
///     fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         inputs.iter().for_each(|input| drop(ctx.save(input)));
///         Ok(vec![inputs[0].mul(&inputs[1])?])
///     }
///     fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         let of = |input: usize| ctx.needs(input).then(|| cotangents[0].mul(&ctx.saved(1 - input)?)).transpose();
///         Ok(vec![of(0)?, of(1)?])
///     }
/// }
///
/// let (x, c) = (tensor!(3.0)?.requires_grad_(true)?, tensor!(5.0)?);
/// apply(Product, &[&x, &c])?.backward()?;
/// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(5.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "saved_tensors")]
#[doc(alias = "needs_input_grad")]
pub struct FunctionContext<'a> {
    name: &'a Name,
    saved: &'a [SavedTensor],
    ctx: &'a BackwardContext<'a>,
}

impl std::fmt::Debug for FunctionContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionContext")
            .field("name", &self.name)
            .field("saved", &self.saved.len())
            .finish_non_exhaustive()
    }
}

impl FunctionContext<'_> {
    /// The tensor that was [saved](ForwardContext::save) with this number.
    ///
    /// # Errors
    /// If fewer were saved.
    #[track_caller]
    pub fn saved(&self, number: usize) -> Result<Tensor> {
        placed(self.find_saved(number))
    }

    #[track_caller]
    fn find_saved(&self, number: usize) -> Result<Tensor> {
        match self.saved.get(number) {
            Some(SavedTensor::Input(input)) => Ok(input.clone()),
            Some(SavedTensor::Output(at, values)) => self.ctx.output_at(*at, values),
            Some(SavedTensor::Other(values)) if !values.dtype().is_differentiable() => Ok(values.clone()),
            Some(SavedTensor::Other(values)) => {
                // In a recorded pass it depends on the inputs in an unknown way. As a constant it would silently be left out
                // of the second derivative.
                let on = |edge: &NodeRef| values.clone().with_node(Some(edge.clone()));
                let carriers: Vec<Tensor> = self.ctx.edges.iter().flatten().map(on).collect();
                let name = self.name.clone();
                values.clone().record(name.clone(), &carriers.iter().collect::<Vec<_>>(), |_| {
                    move |_: &BackwardContext, _: &Tensor| {
                        bail!(
                            Graph,
                            &name,
                            "{name} saved a tensor that is neither an input nor a result, so its derivative is unknown: save \
                             inputs or results to differentiate twice"
                        )
                    }
                })
            }
            None => {
                bail!(Graph, self.name, "saved tensor {number} is out of range for {} saved tensors", self.saved.len())
            }
        }
    }

    /// Whether the cotangent of this input is needed.
    pub fn needs(&self, index: usize) -> bool {
        self.ctx.needs(index)
    }
}

/// Applies a [`Function`] to `inputs`, recorded as one operation.
///
/// ```
/// use cotangent::autograd::{self, ForwardContext, Function, FunctionContext};
/// use cotangent::{Result, Tensor, tensor, error::Name};
///
/// /// The identity, whose gradient changes its sign.
/// struct Reverse;
///
/// impl Function for Reverse {
///     fn name(&self) -> Name {
///         "reverse".into()
///     }
///     fn forward(&self, _: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
///         Ok(vec![inputs[0].clone()])
///     }
///     fn backward(&self, _: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(cotangents[0].neg()?)])
///     }
/// }
///
/// let x = tensor!(2.0)?.requires_grad_(true)?;
/// autograd::apply(Reverse, &[&x])?.backward()?;
/// assert_eq!(x.grad().map(|g| g.item::<f32>()).transpose()?, Some(-1.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of the function's forward computation; also if it does not return exactly one output (see [`apply_all`]). The
/// backward rule is checked when it runs: it must return one cotangent for each input, `None` only where it is not needed,
/// each floating point or complex and of a shape that the input broadcasts to.
#[track_caller]
pub fn apply(function: impl Function, inputs: &[&Tensor]) -> Result<Tensor> {
    let name = function.name();
    let only = |mut outputs: Vec<Tensor>| match (outputs.pop(), outputs.len()) {
        (Some(output), 0) => Ok(output),
        (last, others) => {
            let count = others + usize::from(last.is_some());
            bail!(Value, &name, "expected one result from the function, got {count}: use apply_all")
        }
    };
    placed(apply_all(function, inputs).and_then(only))
}

/// Applies a [`Function`] with any number of outputs to `inputs`, recorded as one operation with one backward rule.
///
/// ```
/// use cotangent::autograd::{self, ForwardContext, Function, FunctionContext};
/// use cotangent::{Result, Tensor, tensor, error::Name};
///
/// /// The sum and the difference.
/// struct Both;
///
/// impl Function for Both {
///     fn name(&self) -> Name {
///         "both".into()
///     }
///     fn forward(&self, _: &mut ForwardContext, x: &[Tensor]) -> Result<Vec<Tensor>> {
///         Ok(vec![x[0].add(&x[1])?, x[0].sub(&x[1])?])
///     }
///     fn backward(&self, _: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(g[0].add(&g[1])?), Some(g[0].sub(&g[1])?)])
///     }
/// }
///
/// let (a, b) = (tensor!(5.0)?.requires_grad_(true)?, tensor!(3.0)?.requires_grad_(true)?);
/// let outputs = autograd::apply_all(Both, &[&a, &b])?;
/// outputs[0].mul(&outputs[1])?.backward()?;
/// assert_eq!(a.grad().map(|g| g.item::<f32>()).transpose()?, Some(10.0));
/// assert_eq!(b.grad().map(|g| g.item::<f32>()).transpose()?, Some(-6.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As for [`apply`], with any number of results.
#[track_caller]
pub fn apply_all(function: impl Function, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    placed(record_call(function, inputs))
}

#[track_caller]
fn record_call(function: impl Function, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let name = function.name();
    let plain: Vec<Tensor> = inputs.iter().map(|input| input.detach()).collect();
    let mut ctx = ForwardContext::default();
    let outputs = match mode::no_grad(|| function.forward(&mut ctx, &plain)) {
        Ok(outputs) => outputs,
        Err(error) => return Err(error.inside().within(name, Location::caller())),
    };
    // An input that is returned unchanged is detached like any other result, and gets a new node.
    let outputs: Vec<Tensor> = outputs.iter().map(Tensor::detach).collect();
    let facts: Vec<_> = outputs.iter().map(|y| (Shape::from(y.shape()), y.dtype(), y.device())).collect();
    Tensor::record_all(outputs.clone(), name.clone(), inputs, |save| {
        let shapes: Vec<Shape> = inputs.iter().map(|input| input.shape().into()).collect();
        let of = |value: &Tensor| {
            if let Some(at) = plain.iter().position(|input| input.is_same(value)) {
                return SavedTensor::Input(save.save(inputs[at]));
            }
            match outputs.iter().position(|output| output.is_same(value)) {
                Some(at) => SavedTensor::Output(at, save.save_output_at(at)),
                None => SavedTensor::Other(save.save(&value.detach())),
            }
        };
        let saved: Vec<SavedTensor> = ctx.saved.iter().map(of).collect();
        move |ctx: &BackwardContext, given: &[Option<Tensor>]| {
            let cotangent =
                |(at, (shape, dtype, device)): (usize, &(Shape, crate::DType, crate::Device))| match given.get(at) {
                    Some(Some(cotangent)) => Ok(cotangent.clone()),
                    _ => Tensor::zeros_with(shape, (*dtype, *device)),
                };
            let cotangents = facts.iter().enumerate().map(cotangent).collect::<Result<Vec<Tensor>>>()?;
            let context = FunctionContext { name: &name, saved: &saved, ctx };
            let grads = function.backward(&context, &cotangents).map_err(Error::inside)?;
            check(&name, ctx, &shapes, &grads)?;
            Ok(grads.into())
        }
    })
}

/// Checks the cotangents that a user-defined rule returned.
fn check(name: &Name, ctx: &BackwardContext, shapes: &[Shape], grads: &[Option<Tensor>]) -> Result<()> {
    if grads.len() != shapes.len() {
        bail!(Graph, name, "backward must return {} cotangents, one for each input, got {}", shapes.len(), grads.len());
    }
    for (at, (shape, grad)) in shapes.iter().zip(grads).enumerate() {
        let grad = match grad {
            Some(grad) if ctx.needs(at) => grad,
            None if ctx.needs(at) => bail!(Graph, name, "backward must return a cotangent for input {at}, got None"),
            _ => continue,
        };
        let wrong = || {
            err!(
                Shape,
                name,
                "the cotangent for input {at} must have shape {shape:?} or one it broadcasts to, got {:?}",
                grad.shape()
            )
        };
        let common = broadcast("backward", &[shape, grad.layout().shape()]).map_err(|_| wrong())?;
        if *common != *grad.shape() {
            return Err(wrong());
        }
        if !grad.dtype().is_differentiable() {
            bail!(DType, name, "the cotangent for input {at} must be floating point or complex, got {}", grad.dtype());
        }
    }
    Ok(())
}
