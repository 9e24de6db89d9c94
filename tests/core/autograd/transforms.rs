//! Transforms of functions.

use super::{bits, constant, grad_of, leaf, normal, refused, scalar};
use cotangent::autograd::{Tape, grad, hessian, hvp, jacobian, jvp, no_grad, value_and_grad, vjp};
use cotangent::{DType, Result, Tensor, tensor};

fn close(got: &Tensor, expected: &Tensor) -> Result<()> {
    assert!(got.allclose_with(expected, (1e-10, 1e-12))?, "{got} is not {expected}");
    Ok(())
}

/// A function with a full Jacobian, from `[3]` to `[2, 2]`.
fn mixing(x: &Tensor) -> Result<Tensor> {
    let a = x.slice(0, 0..2)?.exp()?.unsqueeze(1)?;
    let b = x.slice(0, 1..3)?.mul(x.select(0, 0)?)?;
    a.mul(&b)?.tanh()
}

#[test]
fn the_jacobian_and_both_products_agree() -> Result<()> {
    let x = normal(1, [3])?.mul(0.5)?;
    let j = jacobian(mixing, &x)?;
    assert_eq!(j.shape(), [2, 2, 3]);
    let (u, v) = (normal(2, [2, 2])?, normal(3, [3])?);
    let (value, pull) = vjp(|x| mixing(&x[0]), &[&x])?;
    close(&value, &mixing(&x)?)?;
    close(&pull(&u)?[0], &j.mul(&u.unsqueeze(2)?)?.sum([0, 1])?)?;
    assert_eq!(bits(&pull(&u)?[0])?, bits(&pull(&u)?[0])?);
    let (value, tangent) = jvp(|x| mixing(&x[0]), &[&x], &[&v])?;
    close(&value, &mixing(&x)?)?;
    close(&tangent, &j.mul(&v)?.sum(2)?)?;
    // Against finite differences.
    let eps = 1e-6;
    let difference = mixing(&x.add(&v.mul(eps)?)?)?.sub(&mixing(&x.sub(&v.mul(eps)?)?)?)?.div(2.0 * eps)?;
    assert!(tangent.allclose_with(&difference, (1e-7, 1e-7))?);
    assert!(
        ![&j, &value, &tangent, &pull(&u)?[0]].iter().any(|t| t.requires_grad()),
        "nothing here requires a gradient"
    );
    Ok(())
}

#[test]
fn several_inputs() -> Result<()> {
    let (a, b) = (normal(1, [2, 3])?, normal(2, [3])?);
    let f = |x: &[Tensor]| x[0].mul(&x[1])?.add(&x[1].exp()?);
    let (_, pull) = vjp(f, &[&a, &b])?;
    let u = normal(3, [2, 3])?;
    let pulled = pull(&u)?;
    close(&pulled[0], &u.mul(&b)?)?;
    close(&pulled[1], &u.mul(&a.add(&b.exp()?)?)?.sum(0)?)?;
    let (da, db) = (normal(4, [2, 3])?, normal(5, [3])?);
    let (_, tangent) = jvp(f, &[&a, &b], &[&da, &db])?;
    close(&tangent, &da.mul(&b)?.add(&a.mul(&db)?)?.add(&b.exp()?.mul(&db)?)?)?;
    // The same for a sum, whose rule hands its cotangent on as it is.
    let (_, tangent) = jvp(|x| x[0].add(&x[1]), &[&b, &b], &[&db, &db])?;
    close(&tangent, &db.mul(2.0)?)?;
    let (value, grads) = value_and_grad(|x| f(x)?.sum(..), &[&a, &b])?;
    close(&value, &f(&[a.clone(), b.clone()])?.sum(..)?)?;
    close(&grads[0], &b.expand([2, 3])?)?;
    Ok(())
}

/// x₀² x₁ + sin-like mixing, so that the Hessian is full.
fn energy(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.sum(..)?.tanh()?.add(&x.exp()?.prod_of_all()?)
}

trait ProdOfAll {
    fn prod_of_all(&self) -> Result<Tensor>;
}

impl ProdOfAll for Tensor {
    fn prod_of_all(&self) -> Result<Tensor> {
        self.log()?.mul(0.3)?.sum(..)?.exp()
    }
}

#[test]
fn the_hessian_is_the_jacobian_of_the_gradient() -> Result<()> {
    let x = normal(1, [3])?.mul(0.5)?;
    let h = hessian(energy, &x)?;
    assert_eq!(h.shape(), [3, 3]);
    close(&h, &h.t()?)?;
    let gradient = |x: &Tensor| value_and_grad(|x| energy(&x[0]), &[x]).map(|(_, mut grads)| grads.swap_remove(0));
    close(&h, &jacobian(gradient, &x)?)?;
    close(&h, &jacobian(|x| jacobian(energy, x), &x)?)?;
    let v = normal(2, [3])?;
    close(&hvp(energy, &x, &v)?, &h.mul(&v)?.sum(1)?)?;
    // Forward over reverse gives the same product.
    close(&jvp(|x| gradient(&x[0]), &[&x], &[&v])?.1, &hvp(energy, &x, &v)?)?;
    // Third order: the Hessian of x₀³ + x₁³ has 6 on the diagonal of its derivative.
    let third = jacobian(|x| hessian(|x| x.pow(3.0)?.sum(..), x), &constant([1.0, 2.0])?)?;
    assert_eq!(third.to_vec::<f64>()?, [6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 6.0]);
    // More than one dimension.
    assert_eq!(hessian(energy, &normal(3, [2, 1])?)?.shape(), [2, 1, 2, 1]);
    Ok(())
}

#[test]
fn results_depend_on_what_the_caller_differentiates() -> Result<()> {
    // A penalty on a gradient: by the parameter that the function captured, and by the input.
    let (x, w) = (scalar(2.0)?, scalar(3.0)?);
    let (value, grads) = value_and_grad(|x| x[0].mul(&x[0])?.mul(&w), &[&x])?;
    assert_eq!((value.item::<f64>()?, grads[0].item::<f64>()?), (12.0, 12.0));
    grads[0].square()?.add(&value)?.backward()?;
    // (2 x w)² + x² w.
    assert_eq!((grad_of(&x)?, grad_of(&w)?), (vec![8.0 * 2.0 * 9.0 + 12.0], vec![8.0 * 4.0 * 3.0 + 4.0]));
    let x = leaf([1.0, 2.0])?;
    let (_, tangent) = jvp(|x| x[0].pow(3.0), &[&x], &[&constant([1.0, 1.0])?])?;
    let got = grad(&tangent.sum(..)?, &[&x])?;
    assert_eq!(got[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![6.0, 12.0]));
    let v = leaf([1.0, 1.0])?;
    let (_, tangent) = jvp(|x| x[0].pow(3.0), &[&x.detach()], &[&v])?;
    let got = grad(&tangent.sum(..)?, &[&v])?;
    assert_eq!(got[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![3.0, 12.0]));
    let h = hessian(|x| x.pow(3.0)?.sum(..), &x)?;
    let got = grad(&h.sum(..)?, &[&x])?;
    assert_eq!(got[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![6.0, 6.0]));
    let product = hvp(|x| x.pow(3.0)?.sum(..), &x, &v)?;
    assert!(grad(&product.sum(..)?, &[&x, &v])?.iter().all(Option::is_some));
    assert!(x.grad().is_none() && v.grad().is_none());
    Ok(())
}

#[test]
fn only_the_arguments_are_differentiated() -> Result<()> {
    // x is captured as well: that use of it is a constant.
    let x = scalar(3.0)?;
    let (_, grads) = value_and_grad(|a| a[0].mul(&x), &[&x])?;
    assert_eq!(grads[0].item::<f64>()?, 3.0);
    x.mul(5.0)?.backward()?;
    let before = grad_of(&x)?;
    // No state is changed, and hooks of the caller do not run.
    x.register_hook(|_| constant([1.0, 2.0, 3.0]).map(Some))?;
    let (_, grads) = value_and_grad(|a| a[0].mul(&a[0]), &[&x.detach()])?;
    assert_eq!(grads[0].item::<f64>()?, 6.0);
    assert_eq!(grad_of(&x)?, before);
    // Under no_grad the function is still recorded, but nothing of the graph remains.
    let (value, grads) = no_grad(|| value_and_grad(|a| a[0].mul(&a[0])?.mul(&x), &[&x]))?;
    assert_eq!((grads[0].item::<f64>()?, value.item::<f64>()?), (18.0, 27.0));
    assert!(!value.requires_grad() && !grads[0].requires_grad());
    assert_eq!(no_grad(|| hessian(|x| x.pow(3.0)?.sum(..), &x))?.item::<f64>()?, 18.0);
    Ok(())
}

#[test]
fn without_dependence_there_are_zeros() -> Result<()> {
    let x = constant([1.0, 2.0])?;
    let c = constant([3.0, 4.0, 5.0])?;
    assert_eq!(jacobian(|_| Ok(c.clone()), &x)?.to_vec::<f64>()?, [0.0; 6]);
    assert_eq!(jacobian(|x| x.mul(0.0)?.detach().add(1.0), &x)?.to_vec::<f64>()?, [0.0; 4]);
    assert_eq!(hessian(|x| x.sum(..), &x)?.to_vec::<f64>()?, [0.0; 4]);
    assert_eq!(hessian(|_| c.sum(..), &x)?.to_vec::<f64>()?, [0.0; 4]);
    assert_eq!(hvp(|x| x.sum(..), &x, &x)?.to_vec::<f64>()?, [0.0; 2]);
    let (value, grads) = value_and_grad(|x| x[0].sum(..), &[&x, &c])?;
    assert_eq!((value.item::<f64>()?, grads[1].to_vec::<f64>()?), (3.0, vec![0.0; 3]));
    let (_, tangent) = jvp(|_| Ok(c.clone()), &[&x], &[&x])?;
    assert_eq!(tangent.to_vec::<f64>()?, [0.0; 3]);
    let (_, tangent) = jvp(|x| x[0].sum(..), &[&x, &c], &[&x, &c])?;
    assert_eq!(tangent.item::<f64>()?, 3.0);
    let w = leaf([1.0, 1.0])?;
    let (_, tangent) = jvp(|_| w.mul(2.0), &[&x], &[&x])?;
    assert_eq!(tangent.to_vec::<f64>()?, [0.0; 2]);
    assert_eq!(jacobian(|x| x.slice(0, 0..0), &x)?.shape(), [0, 2]);
    assert_eq!(jacobian(|x| x.exp(), &constant([])?)?.shape(), [0, 0]);
    // f32 stays f32.
    assert_eq!(jacobian(|x| x.exp(), &Tensor::ones([2])?)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let (x, three) = (constant([1.0, 2.0])?, constant([1.0, 2.0, 3.0])?);
    refused(value_and_grad(|x| x[0].exp(), &[&x]), &["value_and_grad", "[2]", "scalar"]);
    refused(hessian(|x| x.exp(), &x), &["hessian", "[2]", "scalar"]);
    refused(hvp(|x| x.sum(..), &x, &three), &["hvp", "vector", "[3]", "[2]"]);
    refused(hvp(|x| x.sum(..), &x, &Tensor::ones([2])?), &["hvp", "f32", "f64"]);
    refused(jvp(|x| x[0].exp(), &[&x], &[]), &["jvp", "expected 1 tangents", "got 0"]);
    refused(jvp(|x| x[0].exp(), &[&x], &[&three]), &["jvp", "tangent", "[3]", "[2]"]);
    refused(vjp(|x| x[0].exp(), &[&x])?.1(&three), &["vjp", "cotangent", "[3]", "[2]"]);
    refused(vjp(|x| x[0].exp(), &[&x])?.1(&Tensor::ones([2])?), &["vjp", "f32", "f64"]);
    refused(jacobian(|x| x.exp(), &tensor!([1, 2])?), &["jacobian", "i64"]);
    refused(jacobian(|x| x.gt(1.0), &x), &["jacobian", "gt has no derivative", "tests/core/autograd/transforms.rs"]);
    refused(vjp(|x| x[0].gt(1.0), &[&x]).map(|_| ()), &["vjp", "gt has no derivative"]);
    refused(jacobian(|x| x.add(&three), &x), &["add", "[2]", "[3]"]);
    Ok(())
}

#[test]
fn transforms_of_a_tapes_variables_are_on_the_tape() -> Result<()> {
    let tape = Tape::new();
    let x = tape.variable(&constant([1.0, 2.0])?)?;
    let (_, grads) = value_and_grad(|x| x[0].pow(3.0)?.sum(..), &[&x])?;
    let second = tape.backward(&grads[0].sum(..)?)?;
    assert_eq!(second.get(&x)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![6.0, 12.0]));
    let (_, tangent) = jvp(|x| x[0].pow(3.0), &[&x], &[&constant([1.0, 1.0])?])?;
    let second = tape.backward(&tangent.sum(..)?)?;
    assert_eq!(second.get(&x)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![6.0, 12.0]));
    Ok(())
}
