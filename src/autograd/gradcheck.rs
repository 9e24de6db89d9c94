//! Gradient checks: analytic derivatives against finite differences.
//!
//! The analytic side is a backward pass. The numeric side is a central difference, computed without recording. Fast mode
//! compares one number for each input: a random cotangent times the Jacobian times a random direction. Exhaustive mode
//! compares every element of the Jacobian.

use super::backward::{PassMode, cotangents_at, root};
use super::mode::{enable_grad, no_grad};
use super::node::NodeRef;
use super::transforms::vjp;
use crate::error::{bail, named};
use crate::options::options;
use crate::{DType, Generator, Result, Tensor};

options! {
    /// The options of [`gradcheck_with`] and [`gradgradcheck_with`].
    ///
    /// ```
    /// use cotangent::{DType, Generator, autograd::{GradCheckOptions, gradcheck_with}};
    /// let x = Generator::seed(1).randn_with([3], DType::F64)?;
    /// gradcheck_with(|x| x[0].tanh(), &[x], GradCheckOptions::new().rtol(1e-4).projections(5_usize))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GradCheckOptions {
        /// The step of the finite differences, to each side.
        eps: f64 = 1e-6,
        /// The absolute tolerance.
        atol: f64 = 1e-6,
        /// The tolerance relative to the numeric value.
        rtol: f64 = 1e-5,
        /// Whether to compare every element of the Jacobian, instead of products with random vectors.
        exhaustive: bool = false,
        /// The number of random products that fast mode compares.
        projections: usize = 2,
        /// The seed of the random vectors.
        seed: u64 = 0,
    }
}

/// Compares the gradients of `f` with central differences, for all floating point inputs, which must be `f64`.
///
/// ```
/// use cotangent::{Generator, DType, autograd::gradcheck};
/// let x = Generator::seed(1).randn_with([3], DType::F64)?;
/// gradcheck(|x| x[0].mul(&x[0]), &[x])?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If a gradient is wrong: the message names the input, the elements of the input and the result, and both values. Also if
/// `f` returns different results for the same inputs, its result is not `f64` or has no derivative, or no input is floating
/// point.
#[track_caller]
pub fn gradcheck(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<()> {
    gradcheck_with(f, inputs, GradCheckOptions::new())
}

/// As [`gradcheck`], with options.
///
/// ```
/// use cotangent::{DType, Generator, autograd::{GradCheckOptions, gradcheck_with}};
/// let x = Generator::seed(1).randn_with([3], DType::F64)?;
/// gradcheck_with(|x| x[0].softmax(0), &[x], GradCheckOptions::new().exhaustive(true))?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`gradcheck`].
#[track_caller]
pub fn gradcheck_with(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    options: impl Into<GradCheckOptions>,
) -> Result<()> {
    named("gradcheck", first_order(f, inputs, &options.into()))
}

/// As [`gradcheck`], for second derivatives: compares the gradients of `f`'s gradients, with respect to the inputs and to a
/// random cotangent, with central differences.
///
/// ```
/// use cotangent::{Generator, DType, autograd::gradgradcheck};
/// let x = Generator::seed(1).randn_with([3], DType::F64)?;
/// gradgradcheck(|x| x[0].exp(), &[x])?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`gradcheck`]. In messages the cotangent is the last input, and result `i` is the gradient with respect to the `i`-th
/// floating point input.
#[track_caller]
pub fn gradgradcheck(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<()> {
    gradgradcheck_with(f, inputs, GradCheckOptions::new())
}

/// As [`gradgradcheck`], with options.
///
/// ```
/// use cotangent::{DType, Generator, autograd::{GradCheckOptions, gradgradcheck_with}};
/// let x = Generator::seed(1).randn_with([3], DType::F64)?;
/// gradgradcheck_with(|x| x[0].exp(), &[x], GradCheckOptions::new().seed(7_u64))?;
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`gradgradcheck`].
#[track_caller]
pub fn gradgradcheck_with(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    options: impl Into<GradCheckOptions>,
) -> Result<()> {
    named("gradgradcheck", second_order(f, inputs, &options.into()))
}

fn first_order(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor], how: &GradCheckOptions) -> Result<()> {
    let (f, inputs) = in_parts(f, inputs)?;
    Check { op: "gradcheck", f: &|x: &[Tensor]| Ok(vec![f(x)?]), inputs: &inputs, how }.run()
}

/// Complex numbers as their real and imaginary parts: differences are taken of these.
fn parts_of(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

/// `f` as a function from real and imaginary parts to real and imaginary parts.
fn in_parts<'a>(
    f: impl Fn(&[Tensor]) -> Result<Tensor> + 'a,
    inputs: &[Tensor],
) -> Result<(impl Fn(&[Tensor]) -> Result<Tensor> + 'a, Vec<Tensor>)> {
    let complex: Vec<bool> = inputs.iter().map(|x| x.dtype().is_complex()).collect();
    let of_parts = move |parts: &[Tensor]| {
        let whole =
            |(part, complex): (&Tensor, &bool)| if *complex { part.view_as_complex() } else { Ok(part.clone()) };
        parts_of(&f(&parts.iter().zip(&complex).map(whole).collect::<Result<Vec<_>>>()?)?)
    };
    Ok((of_parts, inputs.iter().map(|x| parts_of(&x.detach())).collect::<Result<_>>()?))
}

fn second_order(f: impl Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor], how: &GradCheckOptions) -> Result<()> {
    let (f, inputs) = in_parts(f, inputs)?;
    let inputs = &inputs[..];
    let output = no_grad(|| f(inputs))?;
    if output.dtype() != DType::F64 {
        bail!(DType, "gradgradcheck", "the function must return f64, got {}", output.dtype());
    }
    let cotangent = noise(&mut Generator::seed(how.seed ^ 0x5eed), &output)?;
    let n = inputs.len();
    let gradients = |x: &[Tensor]| {
        let floats: Vec<&Tensor> = x[..n].iter().filter(|x| x.dtype().is_float()).collect();
        let call = |entries: &[Tensor]| {
            let mut entries = entries.iter();
            // The constants stay where they are among the inputs.
            let all: Vec<Tensor> = x[..n]
                .iter()
                .map(|x| if x.dtype().is_float() { entries.next().unwrap_or(x).clone() } else { x.clone() })
                .collect();
            f(&all)
        };
        vjp(call, &floats)?.1(&x[n])
    };
    let with_cotangent: Vec<Tensor> = inputs.iter().cloned().chain([cotangent]).collect();
    Check { op: "gradgradcheck", f: &gradients, inputs: &with_cotangent, how }.run()
}

struct Check<'a, F> {
    op: &'static str,
    f: &'a F,
    inputs: &'a [Tensor],
    how: &'a GradCheckOptions,
}

impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>>> Check<'_, F> {
    fn run(&self) -> Result<()> {
        let mut checked = Vec::new();
        for (at, input) in self.inputs.iter().enumerate() {
            match input.dtype() {
                DType::F64 => checked.push(at),
                float if float.is_float() => {
                    bail!(DType, self.op, "input {at} must be f64, got {float}: cast it with to_dtype first")
                }
                _ => {}
            }
        }
        if checked.is_empty() {
            bail!(Value, self.op, "at least one of the {} inputs must be floating point", self.inputs.len());
        }
        let leaves: Vec<Tensor> = self.inputs.iter().map(as_leaf).collect::<Result<_>>()?;
        let outputs = enable_grad(|| (self.f)(&leaves))?;
        self.reproducible(&outputs)?;
        for &at in &checked {
            if self.how.exhaustive {
                self.exhaustive(at, &leaves, &outputs)?;
            } else {
                self.fast(at, &leaves, &outputs)?;
            }
        }
        Ok(())
    }

    /// Checks that two calls give the same bits, which excludes, for example, functions that draw random numbers. The recorded
    /// call may differ in the last digits, since it may use another kernel than the fused one.
    fn reproducible(&self, outputs: &[Tensor]) -> Result<()> {
        let first = self.values(self.inputs)?;
        let second = self.values(self.inputs)?;
        for (before, after, nearly) in [(outputs, &first, true), (&first[..], &second, false)] {
            for (number, (a, b)) in before.iter().zip(after).enumerate() {
                if a.dtype() != DType::F64 {
                    bail!(DType, self.op, "the function must return f64, got {}", a.dtype());
                }
                let alike =
                    |a: f64, b: f64| a.to_bits() == b.to_bits() || (nearly && (a - b).abs() <= 1e-12 * (1.0 + b.abs()));
                let same = a.shape() == b.shape()
                    && a.to_vec::<f64>()?.into_iter().zip(b.to_vec::<f64>()?).all(|(a, b)| alike(a, b));
                if !same {
                    bail!(
                        Value,
                        self.op,
                        "result {number} of the function is not reproducible: two calls on the same inputs gave different values"
                    );
                }
            }
        }
        Ok(())
    }

    fn values(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        no_grad(|| (self.f)(inputs))
    }

    /// The central differences of the results as one input moves along a direction.
    fn differences(&self, at: usize, direction: &Tensor) -> Result<Vec<Vec<f64>>> {
        let moved = |by: f64| {
            let mut inputs = self.inputs.to_vec();
            inputs[at] = inputs[at].detach().add(&direction.mul(by)?)?;
            self.values(&inputs)?.iter().map(Tensor::to_vec::<f64>).collect::<Result<Vec<_>>>()
        };
        let (up, down) = (moved(self.how.eps)?, moved(-self.how.eps)?);
        let per_unit = |(up, down): (&f64, &f64)| (up - down) / (2.0 * self.how.eps);
        Ok(up.iter().zip(&down).map(|(up, down)| up.iter().zip(down).map(per_unit).collect()).collect())
    }

    /// The gradient with respect to one input, from a cotangent for each result.
    fn gradient(&self, at: usize, leaves: &[Tensor], outputs: &[Tensor], cotangents: &[Tensor]) -> Result<Vec<f64>> {
        let target: Vec<NodeRef> = leaves[at].grad_node().cloned().into_iter().collect();
        let mut roots = Vec::new();
        for (output, cotangent) in outputs.iter().zip(cotangents) {
            // A result that depends on nothing has no node. Its gradient is zero, which the differences check.
            if output.node().is_some() {
                roots.push((root(self.op, output)?.clone(), cotangent.clone()));
            }
        }
        let found = cotangents_at(&PassMode { retain_graph: true, create_graph: false }.pass(self.op), roots, &target)?;
        match found.into_values().next() {
            Some(grad) if grad.shape() != leaves[at].shape() || grad.dtype() != DType::F64 => {
                bail!(
                    Shape,
                    self.op,
                    "the gradient with respect to input {at} must be f64 of shape {:?}, got {} of shape {:?}",
                    leaves[at].shape(),
                    grad.dtype(),
                    grad.shape()
                )
            }
            Some(grad) => grad.to_vec::<f64>(),
            None => Ok(vec![0.0; leaves[at].numel()]),
        }
    }

    fn fast(&self, at: usize, leaves: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        let mut generator = Generator::seed(self.how.seed.wrapping_add(at as u64));
        for _ in 0..self.how.projections.max(1) {
            let direction = noise(&mut generator, &self.inputs[at])?;
            let cotangents = outputs.iter().map(|y| noise(&mut generator, y)).collect::<Result<Vec<_>>>()?;
            let gradient = self.gradient(at, leaves, outputs, &cotangents)?;
            if gradient != self.gradient(at, leaves, outputs, &cotangents)? && !gradient.iter().any(|g| g.is_nan()) {
                bail!(
                    Value,
                    self.op,
                    "the gradient with respect to input {at} is not reproducible: two backward passes gave different values"
                );
            }
            let analytic = dot(&gradient, &direction.to_vec()?);
            let mut numeric = 0.0;
            for (change, cotangent) in self.differences(at, &direction)?.iter().zip(&cotangents) {
                numeric += dot(change, &cotangent.to_vec()?);
            }
            if !self.close(analytic, numeric) {
                // Finds the element that is wrong, for the message.
                self.exhaustive(at, leaves, outputs)?;
                bail!(
                    Value,
                    self.op,
                    "the gradient with respect to input {at} of shape {:?} is wrong: along a random direction it is {analytic:.8e}, but finite differences give {numeric:.8e}",
                    self.inputs[at].shape()
                );
            }
        }
        Ok(())
    }

    fn exhaustive(&self, at: usize, leaves: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        // One row of the Jacobian for each element of the results.
        let mut rows = Vec::new();
        for (number, output) in outputs.iter().enumerate() {
            for element in 0..output.numel() {
                let mut cotangents = outputs.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?;
                cotangents[number] = one_hot(output, element)?;
                rows.push((number, element, self.gradient(at, leaves, outputs, &cotangents)?));
            }
        }
        for element in 0..self.inputs[at].numel() {
            let changes = self.differences(at, &one_hot(&self.inputs[at], element)?)?;
            for (number, of_result, row) in &rows {
                let (analytic, numeric) = (row[element], changes[*number][*of_result]);
                if !self.close(analytic, numeric) {
                    bail!(
                        Value,
                        self.op,
                        "the gradient with respect to input {at} is wrong: the derivative of element {:?} of result {number} with respect \
                         to element {:?} of input {at} is {analytic:.8e}, but finite differences give {numeric:.8e}",
                        index(*of_result, outputs[*number].shape()),
                        index(element, self.inputs[at].shape())
                    );
                }
            }
        }
        Ok(())
    }

    fn close(&self, analytic: f64, numeric: f64) -> bool {
        // A NaN on either side is never close.
        (analytic - numeric).abs() <= self.how.atol + self.how.rtol * numeric.abs()
    }
}

fn as_leaf(input: &Tensor) -> Result<Tensor> {
    let input = input.detach();
    if input.dtype() == DType::F64 { input.requires_grad_(true) } else { Ok(input) }
}

/// Random numbers from 1/2 to 1 of both signs: none is near zero, so every element counts in a product.
fn noise(generator: &mut Generator, like: &Tensor) -> Result<Tensor> {
    let uniform = generator.rand_with(like.shape(), DType::F64)?.to_vec::<f64>()?;
    let signed = uniform.into_iter().map(|u| if u < 0.5 { u - 1.0 } else { u }).collect();
    Tensor::from_vec(signed, like.shape())?.to_device(like.device())
}

fn one_hot(like: &Tensor, element: usize) -> Result<Tensor> {
    let mut values = vec![0.0; like.numel()];
    values[element] = 1.0;
    Tensor::from_vec(values, like.shape())?.to_device(like.device())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The index of an element from its number in row-major order.
fn index(mut element: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape.iter().rev().map(|&size| (element % size, element /= size).0).collect();
    index.reverse();
    index
}
