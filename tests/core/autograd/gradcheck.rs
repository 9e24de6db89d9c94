//! The check of derivatives finds what is wrong, and says where.

use super::{constant, normal, refused};
use cotangent::autograd::{
    ForwardContext, Function, FunctionContext, GradCheckOptions, apply, gradcheck, gradcheck_with, gradgradcheck,
    gradgradcheck_with,
};
use cotangent::{Generator, Result, Tensor, error::Name, tensor};

/// Every element of the Jacobian.
fn exhaustive() -> GradCheckOptions {
    GradCheckOptions::new().exhaustive(true)
}

/// `a · b + a²`, with a rule that can be told to be wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    Sign,
    MissingTerm,
    SecondOperand,
    OneElement,
    SecondDerivative,
    Nan,
}

impl Function for Wrong {
    fn name(&self) -> Name {
        "wrong".into()
    }

    fn forward(&self, ctx: &mut ForwardContext, x: &[Tensor]) -> Result<Vec<Tensor>> {
        ctx.save(&x[0]);
        ctx.save(&x[1]);
        Ok(vec![x[0].mul(&x[1])?.add(&x[0].square()?)?])
    }

    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let (g, a, b) = (&cotangents[0], ctx.saved(0)?, ctx.saved(1)?);
        let by_a = match self {
            Wrong::Sign => g.mul(&b.add(&a)?.add(&a)?)?.neg()?,
            Wrong::MissingTerm => g.mul(&b)?,
            Wrong::OneElement => g.mul(&b.add(&a)?.add(&a)?)?.add(&constant([0.0, 0.0, 1e-3])?)?,
            Wrong::SecondDerivative => g.mul(&b.add(a.detach())?.add(&a)?)?,
            Wrong::Nan => g.mul(f64::NAN)?,
            _ => g.mul(&b.add(&a)?.add(&a)?)?,
        };
        let by_b = if *self == Wrong::SecondOperand { g.mul(&b)? } else { g.mul(&a)? };
        Ok(vec![Some(by_a), Some(by_b)])
    }
}

#[test]
fn wrong_rules_are_found() -> Result<()> {
    let inputs = [normal(1, [2, 3])?, normal(2, [2, 3])?];
    let call = |wrong: Wrong| move |x: &[Tensor]| apply(wrong, &[&x[0], &x[1]]);
    for how in [GradCheckOptions::new(), exhaustive()] {
        gradcheck_with(call(Wrong::Nothing), &inputs, how.clone())?;
        gradgradcheck_with(call(Wrong::Nothing), &inputs, how.clone())?;
        refused(gradcheck_with(call(Wrong::Sign), &inputs, how.clone()), &["gradcheck", "input 0", "wrong"]);
        refused(gradcheck_with(call(Wrong::MissingTerm), &inputs, how.clone()), &["gradcheck", "input 0", "[0, 0]"]);
        refused(gradcheck_with(call(Wrong::SecondOperand), &inputs, how.clone()), &["gradcheck", "input 1", "[0, 0]"]);
        refused(
            gradcheck_with(call(Wrong::OneElement), &inputs, how.clone()),
            &["gradcheck", "input 0", "element [0, 2] of input 0"],
        );
        refused(gradcheck_with(call(Wrong::Nan), &inputs, how.clone()), &["gradcheck", "input 0", "NaN"]);
        gradcheck_with(call(Wrong::SecondDerivative), &inputs, how.clone())?;
        refused(gradgradcheck_with(call(Wrong::SecondDerivative), &inputs, how.clone()), &["gradgradcheck", "input 0"]);
    }
    Ok(())
}

#[test]
fn the_message_has_both_values() -> Result<()> {
    let failed = gradcheck_with(|x| x[0].mul(3.0)?.add(x[0].detach()), &[constant([1.0, 2.0])?], exhaustive());
    refused(
        failed,
        &[
            "element [0] of result 0",
            "element [0] of input 0",
            "is 3.00000000e0, but finite differences give 4.00000000e0",
        ],
    );
    Ok(())
}

#[test]
fn gradients_that_stop_are_found() -> Result<()> {
    let x = normal(1, [3])?;
    refused(gradcheck(|x| x[0].detach().exp(), std::slice::from_ref(&x)), &["gradcheck", "input 0"]);
    let half = |x: &[Tensor]| x[0].exp()?.add(x[1].detach());
    refused(gradcheck(half, &[x.clone(), x.clone()]), &["gradcheck", "input 1"]);
    // What truly does not depend on an input has a gradient of zero.
    gradcheck(|x| x[0].exp(), &[x.clone(), x.clone()])?;
    gradgradcheck(|x| x[0].exp(), &[x.clone(), x])
}

#[test]
fn functions_that_cannot_be_checked_are_refused() -> Result<()> {
    let x = normal(1, [3])?;
    refused(gradcheck(|x| x[0].mul(&x[0].rand_like()?), std::slice::from_ref(&x)), &["gradcheck", "not reproducible"]);
    refused(gradcheck(|x| x[0].exp(), &[Tensor::ones([2])?]), &["gradcheck", "input 0", "f32", "f64"]);
    refused(gradcheck(|x| x[0].add(1), &[tensor!([1, 2])?]), &["gradcheck", "floating point"]);
    refused(gradcheck(|x| x[0].gt(0.0), std::slice::from_ref(&x)), &["gradcheck", "bool"]);
    refused(gradcheck(|x| x[0].to_dtype(cotangent::DType::F32), std::slice::from_ref(&x)), &["gradcheck", "f32"]);
    refused(gradgradcheck(|x| x[0].gt(0.0), std::slice::from_ref(&x)), &["gradgradcheck", "bool"]);
    // The same random numbers every time are fine.
    let seeded = |x: &[Tensor]| x[0].mul(&Generator::seed(4).randn_with([3], cotangent::DType::F64)?);
    gradcheck(seeded, &[x])
}

#[test]
fn other_inputs_are_left_alone() -> Result<()> {
    let (x, ints, mask) = (normal(1, [3])?, tensor!([1, 2, 3])?, tensor!([true, false, true])?);
    let call = |x: &[Tensor]| x[2].where_(&x[1].mul(&x[0])?, &x[1].exp()?);
    gradcheck(call, &[ints.clone(), x.clone(), mask.clone()])?;
    gradgradcheck_with(call, &[ints, x, mask], exhaustive())?;
    // Empty and 0-d inputs, strided inputs, and inputs that require a gradient already.
    gradcheck(|x| x[0].exp(), &[normal(1, [0, 2])?])?;
    gradcheck_with(|x| x[0].exp(), &[normal(1, ())?], exhaustive())?;
    gradcheck_with(|x| x[0].exp(), &[normal(1, [2, 3])?.t()?], exhaustive())?;
    let x = normal(1, [2])?.requires_grad_(true)?;
    gradcheck(|x| x[0].exp(), std::slice::from_ref(&x))?;
    assert!(x.grad().is_none());
    Ok(())
}
