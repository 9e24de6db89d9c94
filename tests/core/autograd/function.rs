//! User-defined functions.

use super::{constant, grad_of, leaf, normal, refused, scalar};
use cotangent::autograd::{
    ForwardContext, Function, FunctionContext, GradOptions, apply, apply_all, grad, grad_with, gradcheck,
    gradgradcheck, graph_stats,
};
use cotangent::{Complex, DType, ErrorKind, Result, Tensor, error::Name, tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `a³ · b`, with a rule that can be differentiated.
struct CubeTimes;

impl Function for CubeTimes {
    fn name(&self) -> Name {
        "cube_times".into()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        assert!(inputs.iter().all(|x| !x.requires_grad()));
        assert_eq!((ctx.save(&inputs[0]), ctx.save(&inputs[1])), (0, 1));
        Ok(vec![inputs[0].pow(3.0)?.mul(&inputs[1])?])
    }

    fn backward(&self, ctx: &FunctionContext, cotangents: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let (g, a, b) = (&cotangents[0], ctx.saved(0)?, ctx.saved(1)?);
        let by_a = || g.mul(&a.square()?)?.mul(3.0)?.mul(&b);
        let by_b = || g.mul(&a.pow(3.0)?);
        Ok(vec![ctx.needs(0).then(by_a).transpose()?, ctx.needs(1).then(by_b).transpose()?])
    }
}

#[test]
fn a_function_is_one_operation_with_all_derivatives() -> Result<()> {
    let (a, b) = (normal(1, [3])?, normal(2, [3])?);
    let call = |x: &[Tensor]| apply(CubeTimes, &[&x[0], &x[1]]);
    gradcheck(call, &[a.clone(), b.clone()])?;
    gradgradcheck(call, &[a.clone(), b.clone()])?;
    // Operands that broadcast are summed back by the engine.
    gradcheck(call, &[normal(3, [2, 1])?, b.clone()])?;
    gradgradcheck(call, &[normal(3, [2, 1])?, b.clone()])?;
    let a = a.requires_grad_(true)?;
    let y = apply(CubeTimes, &[&a, &b])?;
    assert_eq!(y.grad_fn(), Some("cube_times"));
    let stats = graph_stats(&y);
    assert_eq!((stats.nodes, stats.edges, stats.saved_bytes), (2, 1, 48), "what forward did was recorded");
    assert!(!apply(CubeTimes, &[&a.detach(), &b])?.requires_grad());
    y.sum(..)?.backward()?;
    refused(y.sum(..)?.backward(), &["cube_times", "tests/core/autograd/function.rs", "retain_graph"]);
    Ok(())
}

/// The identity, with a gradient that is negated and counted.
struct Reverse(Arc<AtomicUsize>);

impl Function for Reverse {
    fn name(&self) -> Name {
        "reverse".into()
    }

    fn forward(&self, _: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, ctx: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(
            ctx.saved(0).is_err_and(|e| e.to_string() == "reverse: saved tensor 0 is out of range for 0 saved tensors")
        );
        Ok(vec![Some(g[0].neg()?)])
    }
}

#[test]
fn a_function_may_return_its_input() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let runs = Arc::new(AtomicUsize::new(0));
    let reverse: Arc<dyn Function> = Arc::new(Reverse(runs.clone()));
    let y = apply(reverse.clone(), &[&x])?;
    assert!(!y.is_leaf() && x.is_leaf() && y.is_same(&x));
    assert_eq!(graph_stats(&y).saved_bytes, 0);
    // x + reverse(x): the two uses are distinguished.
    x.mul(3.0)?.add(&y)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [2.0, 2.0]);
    let twice = apply(reverse.clone(), &[&apply(reverse, &[&x])?])?;
    assert_eq!(grad(&twice.sum(..)?, &[&x])?[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0, 1.0]));
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    // A change of the result does not affect the input.
    let mut y = y.detach();
    y.fill_(9.0)?;
    assert_eq!(x.to_vec::<f64>()?, [1.0, 2.0]);
    Ok(())
}

/// The identity. Its rule computes in a higher precision than its input has, and multiplies by i.
struct InDouble;

impl Function for InDouble {
    fn name(&self) -> Name {
        "in_double".into()
    }

    fn forward(&self, _: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, _: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(g[0].to_dtype(DType::C128)?.mul(Complex::new(0.0, 1.0))?)])
    }
}

#[test]
fn a_gradient_keeps_its_imaginary_part_in_another_precision() -> Result<()> {
    let x = Tensor::full((), Complex::new(1f32, 2.0))?.requires_grad_(true)?;
    apply(Arc::new(InDouble), &[&x])?.square()?.real()?.backward()?;
    assert_eq!(x.grad().map(|grad| grad.dtype()), Some(DType::C64));
    // The conjugate of the derivative, 2 - 4i, times i.
    assert_eq!(x.grad().map(|grad| grad.item::<Complex<f32>>()).transpose()?, Some(Complex::new(4.0, 2.0)));
    Ok(())
}

/// `exp` by its output.
struct Exp;

impl Function for Exp {
    fn name(&self) -> Name {
        "my_exp".into()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let y = inputs[0].exp()?;
        ctx.save(&y);
        Ok(vec![y])
    }

    fn backward(&self, ctx: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(g[0].mul(&ctx.saved(0)?)?)])
    }
}

#[test]
fn a_saved_output_has_its_graph_and_makes_no_cycle() -> Result<()> {
    let x = normal(4, [3])?;
    gradgradcheck(|x| apply(Exp, &[&x[0]]), std::slice::from_ref(&x))?;
    let x = x.requires_grad_(true)?;
    let y = apply(Exp, &[&x])?;
    assert_eq!(graph_stats(&y).saved_bytes, 24);
    Ok(())
}

/// A rule that returns given values.
struct Gives(fn() -> Result<Vec<Option<Tensor>>>);

impl Function for Gives {
    fn name(&self) -> Name {
        "gives".into()
    }

    fn forward(&self, ctx: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        inputs.iter().for_each(|input| {
            ctx.save(input);
        });
        Ok(vec![inputs[0].add(&inputs[1])?])
    }

    fn backward(&self, ctx: &FunctionContext, _: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        assert!(
            ctx.saved(2).is_err_and(|e| e.to_string() == "gives: saved tensor 2 is out of range for 2 saved tensors")
        );
        (self.0)()
    }
}

#[test]
fn rules_that_break_their_contract_are_refused() -> Result<()> {
    let (x, c) = (leaf([1.0, 2.0])?, constant([3.0, 4.0])?);
    let rule = "backward: in the gradient of gives (called at tests/core/autograd/function.rs";
    let run = |rule: fn() -> Result<Vec<Option<Tensor>>>| apply(Gives(rule), &[&x, &c])?.sum(..)?.backward();
    refused(run(|| Ok(vec![])), &[rule, "2 cotangents, one for each input, got 0"]);
    refused(run(|| Ok(vec![Some(constant([1.0, 1.0])?)])), &[rule, "2 cotangents, one for each input, got 1"]);
    refused(run(|| Ok(vec![None, None])), &[rule, "a cotangent for input 0, got None"]);
    refused(run(|| Ok(vec![Some(constant([1.0, 1.0, 1.0])?), None])), &[rule, "[3]", "input 0", "[2]"]);
    refused(run(|| Ok(vec![Some(constant([1.0])?), None])), &[rule, "[1]", "input 0", "[2]"]);
    refused(run(|| Ok(vec![Some(tensor!([1, 1])?), None])), &[rule, "i64", "input 0"]);
    assert!(x.grad().is_none());
    // The cotangent of a constant is not checked; other float dtypes are cast.
    run(|| Ok(vec![Some(tensor!([1.0, 2.0])?), Some(constant([1.0, 2.0, 3.0])?)]))?;
    assert_eq!(grad_of(&x)?, [1.0, 2.0]);
    refused(apply(Gives(|| Ok(vec![])), &[&x, &constant([1.0, 2.0, 3.0])?]), &["add", "[2]", "[3]"]);
    Ok(())
}

struct IsPositive;

impl Function for IsPositive {
    fn name(&self) -> Name {
        "is_positive".into()
    }

    fn forward(&self, _: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].gt(0.0)?])
    }

    fn backward(&self, _: &FunctionContext, _: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

#[test]
fn a_function_to_other_than_floats_has_no_derivative() -> Result<()> {
    let y = apply(IsPositive, &[&scalar(1.0)?])?;
    assert_eq!(y.dtype(), DType::Bool);
    refused(y.to_dtype(DType::F64)?.backward(), &["is_positive has no derivative", "tests/core/autograd/function.rs"]);
    Ok(())
}

/// Sine and cosine, and the sign, which is an integer. The argument says what to save.
struct SinCos(Option<fn(&[Tensor]) -> Result<Tensor>>);

impl Function for SinCos {
    fn name(&self) -> Name {
        format!("sin_cos_{}", u8::from(self.0.is_some())).into()
    }

    fn forward(&self, ctx: &mut ForwardContext, x: &[Tensor]) -> Result<Vec<Tensor>> {
        let (sin, cos) = (x[0].sin()?, x[0].cos()?);
        match self.0 {
            Some(between) => ctx.save(&between(x)?),
            None => ctx.save(&sin),
        };
        ctx.save(&cos);
        Ok(vec![sin, cos, x[0].sign()?.to_dtype(DType::I64)?])
    }

    fn backward(&self, ctx: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        // The cotangents of unused results are zeros.
        assert_eq!((g.len(), g[2].dtype(), g[2].sum(..)?.item::<i64>()?), (3, DType::I64, 0));
        let (sin, cos) = (ctx.saved(0)?, ctx.saved(1)?);
        Ok(vec![Some(g[0].mul(&cos)?.sub(&g[1].mul(&sin)?)?)])
    }
}

#[test]
fn a_function_may_have_several_results() -> Result<()> {
    let x = normal(5, [3])?;
    for at in 0..2 {
        let one = |x: &[Tensor]| Ok(apply_all(SinCos(None), &[&x[0]])?.swap_remove(at));
        gradcheck(one, std::slice::from_ref(&x))?;
        gradgradcheck(one, std::slice::from_ref(&x))?;
    }
    let both = |x: &[Tensor]| {
        let y = apply_all(SinCos(None), &[&x[0]])?;
        y[0].mul(&y[1])?.add(&y[0])
    };
    gradcheck(both, std::slice::from_ref(&x))?;
    gradgradcheck(both, std::slice::from_ref(&x))?;
    let x = leaf([0.0, 0.0])?;
    let y = apply_all(SinCos(None), &[&x])?;
    assert_eq!((y[0].grad_fn(), y[1].grad_fn(), y[2].requires_grad()), (Some("sin_cos_0"), Some("sin_cos_0"), false));
    refused(y[2].to_dtype(DType::F64)?.sum(..)?.backward(), &["sin_cos_0 has no derivative"]);
    y[1].add(&y[0])?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [1.0, 1.0]);
    refused(y[0].sum(..)?.backward(), &["sin_cos_0", "tests/core/autograd/function.rs", "retain_graph"]);
    let failed = apply(SinCos(None), &[&x]);
    assert!(failed.as_ref().is_err_and(|e| e.kind() == ErrorKind::Value));
    refused(failed, &["sin_cos_0: ", "got 3", "apply_all"]);
    Ok(())
}

#[test]
fn a_value_between_gives_first_derivatives_only() -> Result<()> {
    let x = normal(6, [3])?;
    // The sine again: neither an input nor a result.
    let call = |x: &[Tensor]| Ok(apply_all(SinCos(Some(|x| x[0].sin())), &[&x[0]])?.swap_remove(1));
    gradcheck(call, std::slice::from_ref(&x))?;
    let x = x.requires_grad_(true)?;
    let y = call(std::slice::from_ref(&x))?;
    let first = grad_with(&y.sum(..)?, &[&x], GradOptions::new().create_graph(true))?;
    let second = first[0].as_ref().map_or_else(|| x.sum(..), |g| g.sum(..))?;
    refused(
        grad(&second, &[&x]),
        &["grad: ", "sin_cos_1 saved", "neither an input nor a result", "tests/core/autograd/function.rs"],
    );
    Ok(())
}
