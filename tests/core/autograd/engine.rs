//! Deep, wide and shared graphs.

use super::{grad_of, leaf, refused, scalar};
use cotangent::autograd::{BackwardOptions, GradOptions, grad, grad_with};
use cotangent::{Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chain of operations of three kinds: those that save nothing, an input with its graph, or their output.
fn chain(x: &Tensor, length: usize) -> Result<Tensor> {
    let mut y = x.clone();
    for at in 0..length {
        y = match at % 3 {
            0 => y.neg()?,
            1 => y.abs()?,
            _ => y.relu()?,
        };
    }
    Ok(y)
}

/// Only terminates in linear time.
#[test]
fn a_chain_of_a_million_operations() -> Result<()> {
    let x = scalar(2.0)?;
    let mut y = x.clone();
    for _ in 0..1_000_000 {
        y = y.add(1.0)?;
    }
    assert_eq!(y.item::<f64>()?, 1_000_002.0);
    y.backward()?;
    drop(y);
    assert_eq!(grad_of(&x)?, [1.0]);
    // `grad` searches the graph first.
    let y = chain(&x, 1_000_000)?;
    assert!(grad(&y, &[&x])?[0].is_some());
    // Dropped without a backward pass: all nodes and saved values are freed at once.
    drop(chain(&x, 1_000_000)?);
    Ok(())
}

/// Linear time, checked by counting: every rule of a long chain runs once.
#[test]
fn a_long_chain_runs_every_rule_once() -> Result<()> {
    let x = scalar(2.0)?;
    let runs = Arc::new(AtomicUsize::new(0));
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.neg()?;
        let runs = runs.clone();
        y.register_node_hook(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
        })?;
    }
    y.backward()?;
    assert_eq!(runs.load(Ordering::Relaxed), 100_000);
    assert_eq!(grad_of(&x)?, [1.0]);
    Ok(())
}

#[test]
fn a_small_stack_is_enough() -> Result<()> {
    let body = || -> Result<()> {
        let x = scalar(-1.0)?;
        let y = chain(&x, 300_000)?;
        y.backward_with(BackwardOptions::new().retain_graph(true))?;
        grad_with(&y, &[&x], GradOptions::new())?;
        drop(y);
        drop(chain(&x, 300_000)?);
        Ok(())
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body);
    assert!(thread.is_ok_and(|thread| thread.join().is_ok_and(|result| result.is_ok())));
    Ok(())
}

#[test]
fn a_chain_of_diamonds_runs_every_node_once() -> Result<()> {
    let x = scalar(3.0)?;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = |y: &Tensor| -> Result<()> {
        let runs = runs.clone();
        y.register_node_hook(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok(())
    };
    let mut y = x.clone();
    for _ in 0..10_000 {
        let twice = y.add(&y)?;
        count(&twice)?;
        y = twice.mul(0.5)?;
        count(&y)?;
    }
    y.backward()?;
    assert_eq!(runs.load(Ordering::Relaxed), 20_000);
    assert_eq!(grad_of(&x)?, [1.0]);
    Ok(())
}

#[test]
fn residual_links() -> Result<()> {
    let x = leaf([0.5, -1.0])?;
    let mut h = x.clone();
    for _ in 0..1000 {
        // h += h / 1024, exactly, with the link over the operation.
        h = h.add(&h.mul(1.0 / 1024.0)?)?;
    }
    h.sum(..)?.backward()?;
    let expected = (1.0_f64 + 1.0 / 1024.0).powi(1000);
    for g in grad_of(&x)? {
        assert!((g / expected - 1.0).abs() < 1e-12, "{g} is not {expected}");
    }
    // Links over many operations at once: y is the sum of all that came before.
    let x = leaf([1.0])?;
    let mut all = vec![x.clone()];
    for _ in 0..12 {
        let mut sum = all[0].clone();
        for earlier in &all[1..] {
            sum = sum.add(earlier)?;
        }
        all.push(sum);
    }
    all[12].sum(..)?.backward()?;
    assert_eq!(grad_of(&x)?, [2048.0]);
    Ok(())
}

#[test]
fn a_shared_result_passes_everything_on() -> Result<()> {
    let (w, b) = (leaf([1.0, 2.0])?, leaf([3.0, 4.0])?);
    let h = w.add(&b)?;
    h.add(&h)?.sum(..)?.backward()?;
    assert_eq!(grad_of(&w)?, [2.0, 2.0]);
    assert_eq!(grad_of(&b)?, [2.0, 2.0]);
    // Used by an operation and by a later one behind it, so that the cotangent arrives in two steps.
    let x = scalar(3.0)?;
    let h = x.mul(2.0)?;
    let y = h.mul(&h)?.mul(&h)?.add(&h)?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, [2.0 * (3.0 * 36.0 + 1.0)]);
    Ok(())
}

#[test]
fn a_second_pass_over_a_retained_graph_doubles_exactly() -> Result<()> {
    let x = leaf([0.1, 0.7, -1.3])?;
    let h = x.mul(&x)?;
    let y = h.exp()?.mul(&h)?.sum(..)?;
    y.backward_with(BackwardOptions::new().retain_graph(true))?;
    let once = grad_of(&x)?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, once.iter().map(|g| g * 2.0).collect::<Vec<_>>());
    // x = 1, twice: 4, not the 6 of an engine that counts intermediate gradients again.
    let x = scalar(1.0)?;
    let y = x.mul(&x)?;
    y.backward_with(BackwardOptions::new().retain_graph(true))?;
    y.backward()?;
    assert_eq!(grad_of(&x)?, [4.0]);
    Ok(())
}

#[test]
fn a_second_pass_over_a_freed_graph_is_refused() -> Result<()> {
    let (x, w) = (leaf([0.5, 2.0])?, leaf([1.0, 1.0])?);
    let h = x.exp()?;
    let y = h.sum(..)?;
    y.backward()?;
    let once = grad_of(&x)?;
    refused(y.backward(), &["backward", "sum", "tests/core/autograd/engine.rs", "retain_graph"]);
    refused(grad(&y, &[&x]), &["grad", "sum", "tests/core/autograd/engine.rs", "retain_graph"]);
    // A new computation on a value whose graph is gone: the missing part is named, and no gradient is left half added.
    let z = h.mul(&w)?.sum(..)?;
    refused(z.backward(), &["backward", "exp", "tests/core/autograd/engine.rs", "retain_graph"]);
    assert_eq!(grad_of(&x)?, once);
    assert!(w.grad().is_none());
    // Gradients that do not need the freed part still work.
    let z = h.mul(&w)?.sum(..)?;
    assert_eq!(grad(&z, &[&h])?[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0, 1.0]));
    Ok(())
}

#[test]
fn what_a_rule_does_not_need_costs_nothing() -> Result<()> {
    // The constant's cotangent of x * c is never computed: a hook on the rule sees that.
    let (x, c) = (leaf([1.0, 2.0])?, super::constant([3.0, 4.0])?);
    let y = x.mul(&c)?;
    let seen = Arc::new(AtomicUsize::new(0));
    let store = seen.clone();
    y.register_node_hook(move |event| {
        assert_eq!((event.inputs[0].is_some(), event.inputs[1].is_some()), (true, false));
        store.fetch_add(1, Ordering::Relaxed);
    })?;
    y.sum(..)?.backward()?;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    Ok(())
}
