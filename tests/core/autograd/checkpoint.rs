//! Activation checkpointing.

use super::{bits, constant, grad_of, leaf, normal, refused, scalar};
use cotangent::autograd::{
    BackwardOptions, Tape, checkpoint, detect_anomaly, grad, gradcheck, gradgradcheck, graph_stats, no_grad,
};
use cotangent::{Generator, Result, Tensor, with_generator};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A segment that saves several values: of an input, a parameter and a result of an earlier operation.
fn segment(x: &Tensor, w: &Tensor, h: &Tensor) -> Result<Tensor> {
    let y = x.mul(w)?.tanh()?.mul(h)?.exp()?;
    y.mul(&x.sigmoid()?)?.add(w)
}

#[test]
fn gradients_are_the_same_bit_for_bit() -> Result<()> {
    let values = [normal(1, [4, 3])?, normal(2, [3])?, normal(3, [3])?];
    let run = |checkpointed: bool| -> Result<Vec<Vec<u64>>> {
        let [x, w, v] = values.clone().map(|t| t.requires_grad_(true));
        let (x, w, v) = (x?, w?, v?);
        // A parameter and an intermediate result are captured, not passed.
        let h = v.mul(&v)?;
        let y = if checkpointed {
            let (w, h) = (w.clone(), h.clone());
            checkpoint(move |x| segment(&x[0], &w, &h), &[&x.mul(2.0)?])?
        } else {
            segment(&x.mul(2.0)?, &w, &h)?
        };
        y.square()?.sum(..)?.backward()?;
        [&y, &x, &w, &v].into_iter().map(|t| bits(&t.grad().unwrap_or_else(|| t.detach()))).collect()
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}

#[test]
fn derivatives_of_all_orders() -> Result<()> {
    let inputs = [normal(1, [2, 3])?, normal(2, [3])?, normal(3, [3])?];
    // The second input is captured by the closure, and depends on the third, which is captured, too.
    let call = |x: &[Tensor]| {
        let (w, h) = (x[1].mul(&x[2])?, x[2].clone());
        checkpoint(move |x| segment(&x[0], &w, &h), &[&x[0]])
    };
    gradcheck(call, &inputs)?;
    gradgradcheck(call, &inputs)?;
    // Nested.
    let nested = |x: &[Tensor]| {
        let w = x[1].clone();
        let outer = move |x: &[Tensor]| {
            let inner = w.clone();
            checkpoint(move |x| segment(&x[0], &inner, &x[1]), &[&x[0].mul(&w)?, &x[1]])?.tanh()
        };
        checkpoint(outer, &[&x[0], &x[2]])
    };
    gradcheck(nested, &inputs)?;
    gradgradcheck(nested, &inputs)
}

#[test]
fn only_the_inputs_are_kept() -> Result<()> {
    let x = normal(1, [100])?.requires_grad_(true)?;
    let deep = |x: &[Tensor]| {
        let mut y = x[0].clone();
        for _ in 0..20 {
            y = y.tanh()?;
        }
        Ok(y)
    };
    let plain = graph_stats(&deep(std::slice::from_ref(&x))?);
    let y = checkpoint(deep, &[&x])?;
    let stats = graph_stats(&y);
    assert_eq!((plain.nodes, plain.saved_bytes), (21, 16_000));
    assert_eq!((stats.nodes, stats.edges, stats.saved_bytes), (2, 1, 800));
    assert_eq!(y.grad_fn(), Some("checkpoint"));
    Ok(())
}

#[test]
fn captured_tensors_that_depend_on_each_other_count_once() -> Result<()> {
    // Captured: w, and h = w², which leads to w outside the segment.
    let w = scalar(3.0)?;
    let h = w.mul(&w)?;
    let (w2, h2) = (w.clone(), h.clone());
    let x = scalar(2.0)?;
    // x · w · h, where x is both passed and captured.
    let x2 = x.clone();
    let y = checkpoint(move |x| x[0].mul(&w2)?.mul(&h2)?.mul(&x2), &[&x])?;
    y.backward()?;
    // x² · w³.
    assert_eq!((grad_of(&w)?, grad_of(&x)?), (vec![4.0 * 27.0], vec![4.0 * 27.0]));
    // The same tensor twice, one of them unused.
    let x = scalar(5.0)?;
    let z = scalar(1.0)?;
    let y = checkpoint(|x| x[0].mul(&x[1]), &[&x, &x, &z])?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, [10.0]);
    assert!(z.grad().is_none(), "a gradient that never was is not zero");
    Ok(())
}

#[test]
fn random_numbers_are_drawn_again() -> Result<()> {
    let mut generator = Generator::seed(5);
    let x = leaf([1.0; 64])?;
    let dropout = |x: &[Tensor]| x[0].mul(&x[0].rand_like()?.gt(0.5)?.where_(2.0, 0.0)?)?.exp();
    let (first, second) = with_generator(&mut generator, || -> Result<(Tensor, Tensor)> {
        let first = checkpoint(dropout, &[&x])?;
        // Draws between the two runs, by the same generator.
        Tensor::rand([1000])?;
        let second = checkpoint(dropout, &[&x])?;
        first.sum(..)?.backward()?;
        Ok((first, second))
    })?;
    assert_ne!(bits(&first)?, bits(&second)?, "two segments draw different numbers");
    // d exp(m x) / dx = m exp(m x), where m follows from the values: exp(0) = 1 or exp(2).
    let expected: Vec<f64> = first.to_vec::<f64>()?.into_iter().map(|y| if y == 1.0 { 0.0 } else { 2.0 * y }).collect();
    assert_eq!(grad_of(&x)?, expected);
    assert!(expected.contains(&0.0) && expected.iter().any(|&g| g > 0.0));
    // The same generator gives the same segment, recorded or not.
    let again = with_generator(&mut Generator::seed(5), || no_grad(|| checkpoint(dropout, &[&x])))?;
    assert_eq!(bits(&again)?, bits(&first)?);
    assert!(!again.requires_grad());
    Ok(())
}

#[test]
fn a_function_that_changes_is_refused() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let y = checkpoint(
        move |x| if counter.fetch_add(1, Ordering::Relaxed) == 0 { x[0].exp() } else { x[0].sum(..) },
        &[&x],
    )?;
    refused(y.sum(..)?.backward(), &["checkpoint", "[2]", "[]"]);
    let (a, b) = (leaf([1.0, 2.0])?, leaf([1.0, 2.0])?);
    let counter = calls.clone();
    let y = checkpoint(move |x| x[0].mul(if counter.fetch_add(1, Ordering::Relaxed) == 2 { &a } else { &b }), &[&x])?;
    refused(y.sum(..)?.backward(), &["checkpoint", "the same tensors"]);
    assert!(x.grad().is_none());
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    refused(checkpoint(|x| x[0].add(&constant([1.0, 2.0, 3.0])?), &[&x]), &["add", "[2]", "[3]"]);
    Ok(())
}

#[test]
fn the_result_may_be_an_input_a_captured_tensor_or_a_constant() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let y = checkpoint(|x| Ok(x[0].clone()), &[&x])?;
    assert_eq!(y.grad_fn(), Some("checkpoint"));
    y.mul(3.0)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [3.0, 3.0]);
    let w = leaf([1.0, 2.0])?;
    let captured = w.clone();
    checkpoint(move |_| Ok(captured.clone()), &[&x])?.sum(..)?.backward()?;
    assert_eq!((grad_of(&w)?, grad_of(&x)?), (vec![1.0, 1.0], vec![3.0, 3.0]));
    assert!(!checkpoint(|x| Ok(x[0].detach()), &[&x])?.requires_grad());
    refused(
        checkpoint(|x| x[0].gt(1.0), &[&x])?.to_dtype(cotangent::DType::F64)?.sum(..)?.backward(),
        &["gt has no derivative"],
    );
    Ok(())
}

#[test]
fn retained_graphs_grad_and_errors_of_the_second_run() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let y = checkpoint(|x| x[0].mul(&x[0]), &[&x])?.sum(..)?;
    y.backward_with(BackwardOptions::new().retain_graph(true))?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, [4.0, 8.0]);
    refused(y.backward(), &["sum", "tests/core/autograd/checkpoint.rs", "retain_graph"]);
    let (w, unneeded) = (scalar(3.0)?, scalar(4.0)?);
    let (w2, unneeded2) = (w.clone(), unneeded.clone());
    let y = checkpoint(move |x| x[0].mul(&w2)?.mul(&unneeded2), &[&x])?.sum(..)?;
    unneeded.register_hook(|_| constant([1.0, 1.0, 1.0]).map(Some))?;
    let grads = grad(&y, &[&w])?;
    assert_eq!(grads[0].as_ref().map(Tensor::item::<f64>).transpose()?, Some(12.0));
    // Anomaly mode checks the second run.
    let x = leaf([0.0])?;
    let failed = detect_anomaly(|| checkpoint(|x| x[0].sqrt(), &[&x])?.mul(0.0)?.sum(..)?.backward());
    refused(failed, &["backward: ", "the gradient of sqrt", "NaN", "tests/core/autograd/checkpoint.rs"]);
    Ok(())
}

#[test]
fn hooks_on_captured_tensors_see_the_whole_gradient_once() -> Result<()> {
    let (x, w) = (leaf([1.0, 2.0])?, scalar(3.0)?);
    w.register_hook(|g| g.mul(10.0).map(Some))?;
    x.register_hook(|g| g.mul(10.0).map(Some))?;
    let captured = w.clone();
    let y = checkpoint(move |x| x[0].mul(&captured), &[&x])?;
    // Outside of the segment w is used once more.
    y.sum(..)?.add(&w)?.backward()?;
    assert_eq!((grad_of(&w)?, grad_of(&x)?), (vec![40.0], vec![30.0, 30.0]));
    Ok(())
}

#[test]
fn on_a_tape_and_on_many_threads() -> Result<()> {
    let tape = Tape::new();
    let (x, w) = (tape.variable(&constant([1.0, 2.0])?)?, tape.variable(&constant([3.0, 4.0])?)?);
    let captured = w.clone();
    // An operation on captured tensors alone is part of the segment, too.
    let y = checkpoint(move |x| x[0].mul(&captured.exp()?)?.mul(&x[0]), &[&x])?.sum(..)?;
    assert_eq!((tape.len(), tape.id(&y)?), (4, 3), "only the segment is on the tape");
    let grads = tape.backward(&y)?;
    assert_eq!(tape.len(), 4);
    let of = |v: &Tensor| grads.get(v)?.map(Tensor::to_vec::<f64>).transpose();
    let (e3, e4) = (constant([3.0, 4.0])?.exp()?.to_vec::<f64>()?[0], constant([3.0, 4.0])?.exp()?.to_vec::<f64>()?[1]);
    assert_eq!((of(&x)?, of(&w)?), (Some(vec![2.0 * e3, 4.0 * e4]), Some(vec![e3, 4.0 * e4])));
    let run = |seed| -> Result<Vec<u64>> {
        let x = normal(seed, [100])?.requires_grad_(true)?;
        let y = checkpoint(|x| x[0].mul(&x[0].rand_like()?)?.tanh(), &[&x])?;
        y.sum(..)?.backward()?;
        bits(&x.grad().unwrap_or_else(|| x.detach()))
    };
    let seeded = |seed| with_generator(&mut Generator::seed(seed), || run(seed));
    let expected: Vec<_> = (0..4).map(seeded).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || seeded(seed))).collect();
        let got: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect();
        assert_eq!(got, expected);
    });
    Ok(())
}
