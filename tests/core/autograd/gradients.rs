//! What a gradient is: where it is stored, what shape it has, and that it is a value.

use super::{bits, constant, grad_of, leaf, normal, refused, scalar};
use cotangent::autograd::{GradOptions, derivative, enable_grad, grad, grad_with, gradcheck, no_grad};
use cotangent::{DType, Result, Tensor, tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn backward_refuses_and_changes_nothing() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let y = x.mul(3.0)?;
    refused(y.backward(), &["backward", "[2]", "scalar", "cotangent"]);
    refused(y.backward_with(&constant([1.0])?), &["backward", "[1]", "[2]"]);
    refused(y.backward_with(&Tensor::ones([2])?), &["backward", "f32", "f64"]);
    refused(constant([1.0])?.sum(..)?.backward(), &["backward", "no graph"]);
    refused(no_grad(|| x.sum(..))?.backward(), &["backward", "no_grad"]);
    refused(grad(&y, &[&x]), &["grad", "[2]", "scalar"]);
    refused(grad(&y.sum(..)?, &[&constant([1.0])?]), &["grad", "no graph"]);
    refused(tensor!([1, 2])?.requires_grad_(true), &["requires_grad_", "i64"]);
    refused(y.clone().requires_grad_(false), &["requires_grad_", "mul", "detach"]);
    assert!(x.grad().is_none());
    // The graph is whole after all these.
    y.backward_with(&constant([1.0, 10.0])?)?;
    assert_eq!(grad_of(&x)?, [3.0, 30.0]);
    Ok(())
}

#[test]
fn backward_of_a_leaf_and_of_one_element() -> Result<()> {
    let x = scalar(5.0)?;
    x.backward()?;
    assert_eq!(grad_of(&x)?, [1.0]);
    let x = Tensor::from_slice(&[2.0], [1, 1])?.requires_grad_(true)?;
    x.mul(&x)?.backward()?;
    assert_eq!(grad_of(&x)?, [4.0]);
    Ok(())
}

#[test]
fn grad_touches_no_state() -> Result<()> {
    let (x, z) = (leaf([1.0, 2.0])?, scalar(7.0)?);
    x.sum(..)?.backward()?;
    let h = x.mul(&x)?;
    h.retain_grad()?;
    let y = h.sum(..)?;
    let grads = grad_with(&y, &[&x, &z, &h], GradOptions::new().retain_graph(true))?;
    assert_eq!(grads[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![2.0, 4.0]));
    assert!(grads[1].is_none(), "y does not depend on z");
    assert_eq!(grads[2].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0, 1.0]));
    assert_eq!(grad_of(&x)?, [1.0, 1.0]);
    assert!(h.grad().is_none() && z.grad().is_none());
    // With itself, and the same tensor twice.
    let grads = grad(&y, &[&y, &x, &x])?;
    assert_eq!(grads[0].as_ref().map(Tensor::item::<f64>).transpose()?, Some(1.0));
    assert_eq!(grads[1].as_ref().map(bits).transpose()?, grads[2].as_ref().map(bits).transpose()?);
    Ok(())
}

#[test]
fn grad_runs_only_what_leads_to_its_targets() -> Result<()> {
    let (x, w) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    let runs = Arc::new(AtomicUsize::new(0));
    let hook = |at: usize| {
        let runs = runs.clone();
        move |_: &Tensor| {
            runs.fetch_add(at, Ordering::Relaxed);
            Ok(None)
        }
    };
    let unneeded = w.exp()?;
    unneeded.register_hook(hook(1))?;
    w.register_hook(hook(10))?;
    let needed = x.mul(2.0)?;
    needed.register_hook(hook(100))?;
    let y = needed.mul(&unneeded)?.sum(..)?;
    let grads = grad_with(&y, &[&x], GradOptions::new().retain_graph(true))?;
    assert_eq!(runs.load(Ordering::Relaxed), 100);
    assert!(grads[0].is_some());
    // Behind a target nothing runs.
    let grads = grad_with(&y, &[&needed], GradOptions::new().retain_graph(true))?;
    assert!(grads[0].is_some());
    assert_eq!(runs.load(Ordering::Relaxed), 200);
    y.backward()?;
    assert_eq!(runs.load(Ordering::Relaxed), 311);
    Ok(())
}

#[test]
fn none_differs_from_zero() -> Result<()> {
    let (x, unused) = (leaf([1.0, 2.0])?, scalar(1.0)?);
    x.mul(0.0)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [0.0, 0.0]);
    assert!(unused.grad().is_none());
    x.zero_grad();
    assert!(x.grad().is_none());
    x.sum(..)?.backward()?;
    assert!(x.take_grad().is_some() && x.grad().is_none());
    refused(x.set_grad(&constant([1.0])?), &["set_grad", "[1]", "[2]"]);
    refused(constant([1.0])?.set_grad(&constant([1.0])?), &["set_grad", "gradient"]);
    x.set_grad(&constant([5.0, 6.0])?)?;
    x.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [6.0, 7.0]);
    Ok(())
}

#[test]
fn a_gradient_is_no_alias() -> Result<()> {
    let (a, b) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    let mut cotangent = constant([1.0, 1.0])?;
    // The rule of an addition hands its cotangent on as it is, to both.
    a.add(&b)?.backward_with(&cotangent)?;
    cotangent.mul_(100.0)?;
    assert_eq!((grad_of(&a)?, grad_of(&b)?), (vec![1.0, 1.0], vec![1.0, 1.0]));
    let kept = b.grad();
    if let Some(mut read) = a.grad() {
        read.fill_(7.0)?;
    }
    assert_eq!((grad_of(&a)?, grad_of(&b)?), (vec![1.0, 1.0], vec![1.0, 1.0]));
    // Accumulation works in place, but on its own.
    a.mul(2.0)?.sum(..)?.backward()?;
    b.mul(5.0)?.sum(..)?.backward()?;
    assert_eq!((grad_of(&a)?, grad_of(&b)?), (vec![3.0, 3.0], vec![6.0, 6.0]));
    assert_eq!(kept.map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![1.0, 1.0]));
    // A leaf that is its own root takes over the cotangent.
    let mut cotangent = constant([1.0, 2.0])?;
    let x = leaf([0.0, 0.0])?;
    x.backward_with(&cotangent)?;
    cotangent.zero_()?;
    assert_eq!(grad_of(&x)?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn a_gradient_has_a_graph_only_if_one_was_asked_for() -> Result<()> {
    let (x, c) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    x.add(1.0)?.backward_with(&c)?;
    assert!(x.grad().is_some_and(|g| !g.requires_grad()));
    x.zero_grad();
    // With one, the gradient can be differentiated. It comes as a result, and a leaf does not take it: the two would own
    // each other.
    let y = x.mul(&c)?.sum(..)?;
    let with_graph = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?.swap_remove(0);
    assert!(with_graph.as_ref().is_some_and(Tensor::requires_grad));
    if let Some(with_graph) = with_graph {
        assert_eq!(derivative(&with_graph.sum(..)?, &c)?.to_vec::<f64>()?, [1.0, 1.0]);
        refused(x.set_grad(&with_graph), &["set_grad", "must not require a gradient", "detach"]);
        assert!(x.grad().is_none());
        x.set_grad(&with_graph.detach())?;
    }
    // Without one, also where it is added to what is there, and by `grad`.
    assert!(
        grad_with(&y, &[&x], GradOptions::new().retain_graph(true))?[0].as_ref().is_some_and(|g| !g.requires_grad())
    );
    y.backward()?;
    assert!(x.grad().is_some_and(|g| !g.requires_grad()));
    assert_eq!(grad_of(&x)?, [6.0, 8.0]);
    // Neither does a hook smuggle one in.
    let (x, c) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    let other = c.clone();
    x.register_hook(move |_| Ok(Some(other.clone())))?;
    x.sum(..)?.backward()?;
    assert!(x.grad().is_some_and(|g| !g.requires_grad()));
    Ok(())
}

#[test]
fn changing_a_saved_tensor_changes_no_gradient() -> Result<()> {
    // A leaf under no_grad, as an optimiser does it: its gradient would be that of the old values, and is refused. That of
    // another leaf is right, as what was saved is as it was.
    let (mut x, w) = (leaf([2.0, 3.0])?, leaf([1.0, 1.0])?);
    let y = x.mul(&x)?.mul(&w)?.sum(..)?;
    let before = x.clone();
    no_grad(|| x.mul_(10.0))?;
    assert_eq!((x.to_vec::<f64>()?, before.to_vec::<f64>()?), (vec![20.0, 30.0], vec![2.0, 3.0]));
    assert_eq!(derivative(&y, &w)?.to_vec::<f64>()?, [4.0, 9.0]);
    refused(grad(&y, &[&before]), &["grad", "leaf", "[2]", "was changed", "again"]);
    let y = before.detach().mul(&w)?.sum(..)?;
    refused(before.mul(&w), &["mul", "operand 0", "copy of a leaf", "changed"]);
    y.backward()?;
    assert_eq!(grad_of(&w)?, [2.0, 3.0]);
    let y = x.mul(&x)?.sum(..)?;
    no_grad(|| x.mul_(10.0))?;
    refused(y.backward(), &["backward", "leaf", "[2]", "was changed", "again"]);
    assert!(x.grad().is_none());
    x.mul(&x)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [400.0, 600.0]);
    // What was gathered before the change stays with the leaf.
    no_grad(|| x.div_(100.0))?;
    x.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [401.0, 601.0]);
    refused(x.mul_(2.0), &["mul_", "leaf", "no_grad"]);
    refused(x.fill_(2.0), &["fill_", "leaf", "no_grad"]);
    // A result that the rule of exp keeps.
    let x = leaf([0.0, 0.0])?;
    let mut h = x.exp()?;
    let y = h.sum(..)?;
    h.fill_(100.0)?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, [1.0, 1.0]);
    assert!(!h.requires_grad(), "a filled tensor depends on nothing");
    // A constant operand, through a clone, and through a view.
    let (x, mut c) = (leaf([1.0, 1.0])?, constant([5.0, 6.0])?);
    let mut clone = c.clone();
    let y = x.mul(&c)?.sum(..)?;
    clone.fill_(0.0)?;
    c.add_(1.0)?;
    assert_eq!((c.to_vec::<f64>()?, clone.to_vec::<f64>()?), (vec![6.0, 7.0], vec![0.0, 0.0]));
    y.backward()?;
    assert_eq!(grad_of(&x)?, [5.0, 6.0]);
    // In place with recording is a new value with a history.
    let x = leaf([2.0, 3.0])?;
    let mut h = x.mul(1.0)?;
    let before = h.mul(&h)?;
    h.mul_(&x)?;
    h.sum(..)?.add(&before.sum(..)?)?.backward()?;
    assert_eq!(grad_of(&x)?, [8.0, 12.0]);
    Ok(())
}

#[test]
fn detached_tensors_end_the_graph() -> Result<()> {
    let x = leaf([2.0, 3.0])?;
    let d = x.detach();
    assert!(!d.requires_grad() && d.is_leaf() && d.is_same(&x));
    x.mul(&d)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [2.0, 3.0]);
    let h = x.exp()?;
    refused(h.detach().sum(..)?.backward(), &["no graph"]);
    assert!(enable_grad(|| h.mul(2.0))?.requires_grad());
    Ok(())
}

#[test]
fn third_derivatives() -> Result<()> {
    let x = leaf([0.7, -1.2])?;
    let next = |y: &Tensor| -> Result<Tensor> {
        let grads = grad_with(&y.sum(..)?, &[&x], GradOptions::new().create_graph(true))?;
        Ok(grads.into_iter().flatten().next().unwrap_or_else(|| x.detach()))
    };
    let y = x.pow(4.0)?;
    let (first, second) = (next(&y)?, next(&next(&y)?)?);
    let third = next(&second)?;
    let expect = |got: &Tensor, f: &dyn Fn(f64) -> f64| -> Result<()> {
        let expected = Tensor::from_vec(x.to_vec::<f64>()?.into_iter().map(f).collect::<Vec<f64>>(), [2])?;
        assert!(got.allclose_with(&expected, (1e-12, 1e-12))?, "{got} is not {expected}");
        Ok(())
    };
    expect(&first, &|x| 4.0 * x.powi(3))?;
    expect(&second, &|x| 12.0 * x * x)?;
    expect(&third, &|x| 24.0 * x)?;
    let third = next(&next(&next(&x.tanh()?)?)?)?;
    expect(&third, &|x| {
        let t = x.tanh();
        (1.0 - t * t) * (6.0 * t * t - 2.0)
    })?;
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn gradients_have_the_leafs_dtype() -> Result<()> {
    let dtypes = [DType::F64, DType::F32, DType::F16, DType::BF16];
    for a in dtypes {
        for b in dtypes {
            let x = tensor!([1.0, 2.0])?.to_dtype(a)?.requires_grad_(true)?;
            let y = tensor!([[3.0], [4.0]])?.to_dtype(b)?.requires_grad_(true)?;
            let z = x.mul(&y)?.sum(..)?;
            z.backward_with(&Tensor::ones_with((), z.dtype())?)?;
            assert_eq!((grad_of(&x)?, grad_of(&y)?), (vec![7.0, 7.0], vec![3.0, 3.0]), "{a} and {b}");
        }
    }
    // Casts in the middle, and integer operands.
    let x = tensor!([1.5, 2.0])?.to_dtype(DType::BF16)?.requires_grad_(true)?;
    x.to_dtype(DType::F64)?.mul(&tensor!([2, 3])?)?.to_dtype(DType::F16)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [2.0, 3.0]);
    Ok(())
}

#[test]
fn every_broadcast_gives_gradients_of_the_leafs_shape() -> Result<()> {
    let pairs: [(&[usize], &[usize]); 11] = [
        (&[2, 3], &[2, 3]),
        (&[2, 3], &[1, 3]),
        (&[2, 3], &[2, 1]),
        (&[2, 3], &[1, 1]),
        (&[2, 3], &[3]),
        (&[2, 3], &[1]),
        (&[2, 3], &[]),
        (&[4, 1], &[1, 3]),
        (&[4, 2, 1, 3], &[2, 5, 1]),
        (&[0, 3], &[1, 3]),
        (&[], &[]),
    ];
    type Op = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let ops: [Op; 4] = [|a, b| a.add(b), |a, b| a.sub(b), |a, b| a.mul(b), |a, b| a.div(b)];
    for (a, b) in pairs {
        for (a, b) in [(a, b), (b, a)] {
            for op in ops {
                let x = normal(1, a)?.requires_grad_(true)?;
                let y = normal(2, b)?.abs()?.add(0.5)?.requires_grad_(true)?;
                op(&x, &y)?.sum(..)?.backward()?;
                // The rule checks shapes, too.
                grad_of(&x)?;
                grad_of(&y)?;
                gradcheck(|x| op(&x[0], &x[1]), &[x, y])?;
            }
        }
    }
    // A bias gets the sum over the batch.
    let bias = leaf([0.0, 0.0])?;
    Tensor::ones_with([8, 2], DType::F64)?.add(&bias)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&bias)?, [8.0, 8.0]);
    Ok(())
}

/// The gradients that a pass returns are not views, even if the engine got them as views.
#[test]
fn a_gradient_can_be_changed_whatever_was_made_from_it() -> Result<()> {
    let x = Tensor::zeros([2, 3])?.requires_grad_(true)?;
    x.sum(..)?.backward()?;
    let given = grad(&x.sum(..)?, &[&x])?.swap_remove(0);
    for mut gradient in [x.grad(), given].into_iter().flatten() {
        let part = gradient.select(0, 0)?;
        gradient.add_(1.0)?;
        assert_eq!((gradient.to_vec::<f32>()?, part.to_vec::<f32>()?), (vec![2.0; 6], vec![1.0; 3]));
    }
    assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0; 6]));
    Ok(())
}

#[test]
fn a_tensor_that_took_over_values_can_be_changed() -> Result<()> {
    let source = Tensor::ones([3])?.requires_grad_(true)?;
    let mut x = Tensor::zeros([2, 3])?;
    x.copy_(&source)?;
    x.add_(1.0)?;
    x.mul_(x.clone())?;
    x.sum(..)?.backward()?;
    assert_eq!((x.to_vec::<f32>()?, source.to_vec::<f32>()?), (vec![4.0; 6], vec![1.0; 3]));
    assert_eq!(source.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![8.0; 3]));
    Ok(())
}
