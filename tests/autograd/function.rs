//! Functions with derivatives of the user's own.

use crate::{constant, grad_of, leaf, normal, refused, scalar};
use cotangent::autograd::{
    Function, FunctionContext, GradCheck, Saves, apply, grad, gradcheck, gradgradcheck, graph_stats,
};
use cotangent::{DType, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `a³ · b`, with a rule that can be differentiated.
struct CubeTimes;

impl Function for CubeTimes {
    fn name(&self) -> &'static str {
        "cube_times"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        assert!(inputs.iter().all(|x| !x.requires_grad()));
        inputs[0].pow(3.0)?.mul(&inputs[1])
    }

    fn backward(&self, ctx: &FunctionContext, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let by_a = || g.mul(&a.square()?)?.mul(3.0)?.mul(&b);
        let by_b = || g.mul(&a.pow(3.0)?);
        Ok(vec![ctx.needs(0).then(by_a).transpose()?, ctx.needs(1).then(by_b).transpose()?])
    }
}

#[test]
fn a_function_is_one_operation_with_all_derivatives() -> Result<()> {
    let (a, b) = (normal(1, [3])?, normal(2, [3])?);
    let call = |x: &[Tensor]| apply(CubeTimes, &[&x[0], &x[1]]);
    gradcheck(call, &[a.clone(), b.clone()], &GradCheck::default())?;
    gradgradcheck(call, &[a.clone(), b.clone()], &GradCheck::default())?;
    // Operands that broadcast are summed back by the engine.
    gradcheck(call, &[normal(3, [2, 1])?, b.clone()], &GradCheck::default())?;
    gradgradcheck(call, &[normal(3, [2, 1])?, b.clone()], &GradCheck::default())?;
    let a = a.requires_grad_(true)?;
    let y = apply(CubeTimes, &[&a, &b])?;
    assert_eq!(y.grad_fn(), Some("cube_times"));
    let stats = graph_stats(&y);
    assert_eq!((stats.nodes, stats.edges, stats.saved_bytes), (2, 1, 48), "what forward did was recorded");
    assert!(!apply(CubeTimes, &[&a.detach(), &b])?.requires_grad());
    y.sum()?.backward()?;
    refused(y.sum()?.backward(), &["cube_times", "tests/autograd/function.rs", "retain_graph"]);
    Ok(())
}

/// The identity, with a gradient that is negated and counted.
struct Reverse(Arc<AtomicUsize>);

impl Function for Reverse {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn saves(&self) -> Saves {
        Saves::Nothing
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        Ok(inputs[0].clone())
    }

    fn backward(&self, ctx: &FunctionContext, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(ctx.input(0).is_err_and(|e| e.to_string().contains("reverse: the inputs were not saved")));
        assert!(ctx.output().is_err_and(|e| e.to_string().contains("reverse: the output was not saved")));
        Ok(vec![Some(g.neg()?)])
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
    // x + reverse(x): the two are told apart.
    x.mul(3.0)?.add(&y)?.sum()?.backward()?;
    assert_eq!(grad_of(&x)?, [2.0, 2.0]);
    let twice = apply(reverse.clone(), &[&apply(reverse, &[&x])?])?;
    assert_eq!(grad(&twice.sum()?, &[&x])?[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0, 1.0]));
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    // What is done to the result does not reach the input.
    let mut y = y.detach();
    y.fill_(9.0)?;
    assert_eq!(x.to_vec::<f64>()?, [1.0, 2.0]);
    Ok(())
}

/// `exp` by its output.
struct Exp;

impl Function for Exp {
    fn name(&self) -> &'static str {
        "my_exp"
    }

    fn saves(&self) -> Saves {
        Saves::Output
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].exp()
    }

    fn backward(&self, ctx: &FunctionContext, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(g.mul(&ctx.output()?)?)])
    }
}

#[test]
fn a_saved_output_has_its_graph_and_makes_no_cycle() -> Result<()> {
    let x = normal(4, [3])?;
    gradgradcheck(|x| apply(Exp, &[&x[0]]), std::slice::from_ref(&x), &GradCheck::default())?;
    let x = x.requires_grad_(true)?;
    let y = apply(Exp, &[&x])?;
    assert_eq!(graph_stats(&y).saved_bytes, 24);
    Ok(())
}

/// A rule that gives whatever it is told to.
struct Gives(fn() -> Result<Vec<Option<Tensor>>>);

impl Function for Gives {
    fn name(&self) -> &'static str {
        "gives"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].add(&inputs[1])
    }

    fn backward(&self, ctx: &FunctionContext, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        assert!(ctx.input(2).is_err_and(|e| e.to_string().contains("gives: there is no input 2")));
        (self.0)()
    }
}

#[test]
fn rules_that_break_their_contract_are_refused() -> Result<()> {
    let (x, c) = (leaf([1.0, 2.0])?, constant([3.0, 4.0])?);
    let run = |rule: fn() -> Result<Vec<Option<Tensor>>>| apply(Gives(rule), &[&x, &c])?.sum()?.backward();
    refused(run(|| Ok(vec![])), &["gives: ", "0 cotangents for 2 inputs"]);
    refused(run(|| Ok(vec![Some(constant([1.0, 1.0])?)])), &["gives: ", "1 cotangents for 2 inputs"]);
    refused(run(|| Ok(vec![None, None])), &["gives: ", "no cotangent for input 0"]);
    refused(run(|| Ok(vec![Some(constant([1.0, 1.0, 1.0])?), None])), &["gives: ", "[3]", "input 0", "[2]"]);
    refused(run(|| Ok(vec![Some(constant([1.0])?), None])), &["gives: ", "[1]", "input 0", "[2]"]);
    refused(run(|| Ok(vec![Some(Tensor::new([1, 1])?), None])), &["gives: ", "i64", "input 0"]);
    assert!(x.grad().is_none());
    // A constant's cotangent is nobody's business; other float dtypes are cast.
    run(|| Ok(vec![Some(Tensor::new([1.0, 2.0])?), Some(constant([1.0, 2.0, 3.0])?)]))?;
    assert_eq!(grad_of(&x)?, [1.0, 2.0]);
    refused(apply(Gives(|| Ok(vec![])), &[&x, &constant([1.0, 2.0, 3.0])?]), &["add", "[2]", "[3]"]);
    Ok(())
}

struct IsPositive;

impl Function for IsPositive {
    fn name(&self) -> &'static str {
        "is_positive"
    }

    fn forward(&self, inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].gt(0.0)
    }

    fn backward(&self, _: &FunctionContext, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
}

#[test]
fn a_function_to_other_than_floats_has_no_derivative() -> Result<()> {
    let y = apply(IsPositive, &[&scalar(1.0)?])?;
    assert_eq!(y.dtype(), DType::Bool);
    refused(y.to_dtype(DType::F64)?.backward(), &["is_positive has no derivative", "tests/autograd/function.rs"]);
    Ok(())
}
