//! Hooks.

use super::{constant, grad_of, leaf, refused, scalar};
use cotangent::autograd::{BackwardOptions, GradOptions, grad, grad_with};
use cotangent::{Result, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// What hooks have seen, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, entry: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[test]
fn hooks_run_in_order_and_may_replace_the_gradient() -> Result<()> {
    let log = Log::default();
    let x = leaf([1.0, 2.0])?;
    let h = x.mul(3.0)?;
    for (name, factor) in [("first", 2.0), ("second", 10.0)] {
        let log = log.clone();
        h.register_hook(move |g| {
            log.add(format!("{name} {:?}", g.to_vec::<f64>()?));
            g.mul(factor).map(Some)
        })?;
    }
    let on_leaf = log.clone();
    x.register_hook(move |g| {
        on_leaf.add(format!("leaf {:?}", g.to_vec::<f64>()?));
        Ok(None)
    })?;
    h.retain_grad()?;
    // Two uses: a hook sees the sum of both, once.
    h.add(&h)?.sum(..)?.backward()?;
    assert_eq!(log.take(), ["first [2.0, 2.0]", "second [4.0, 4.0]", "leaf [120.0, 120.0]"]);
    assert_eq!(grad_of(&x)?, [120.0, 120.0]);
    assert_eq!(grad_of(&h)?, [40.0, 40.0], "what is retained is what passes on");
    Ok(())
}

#[test]
fn hooks_can_be_removed() -> Result<()> {
    let x = scalar(1.0)?;
    let ten = x.register_hook(|g| g.mul(10.0).map(Some))?;
    x.register_hook(|g| g.add(1.0).map(Some))?;
    x.mul(1.0)?.backward()?;
    assert_eq!(grad_of(&x)?, [11.0]);
    ten.remove();
    ten.remove();
    x.zero_grad();
    x.mul(1.0)?.backward()?;
    assert_eq!(grad_of(&x)?, [2.0]);
    // The handle of a dropped tensor is harmless.
    let gone = scalar(1.0)?.register_hook(|_| Ok(None))?;
    gone.remove();
    Ok(())
}

#[test]
fn hooks_that_break_their_contract_are_refused() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let h = x.exp()?;
    let handle = h.register_hook(|_| constant([1.0]).map(Some))?;
    refused(h.sum(..)?.backward(), &["backward: ", "a hook on the result of exp", "[2]", "[1]"]);
    assert!(x.grad().is_none());
    handle.remove();
    let handle = h.register_hook(|_| Tensor::ones([2]).map(Some))?;
    refused(h.sum(..)?.backward(), &["backward: ", "a hook on the result of exp", "f64", "f32"]);
    handle.remove();
    // An error in a hook is the pass's error.
    h.register_hook(|g| g.add(&constant([1.0, 2.0, 3.0])?).map(Some))?;
    refused(
        h.sum(..)?.backward(),
        &["backward: in a hook on the result of exp: add (called at tests/core/autograd/hooks.rs:", "[2]", "[3]"],
    );
    assert!(x.grad().is_none());
    refused(constant([1.0])?.register_hook(|_| Ok(None)), &["register_hook", "gradient"]);
    refused(constant([1.0])?.retain_grad(), &["retain_grad", "gradient"]);
    refused(x.register_node_hook(|_| ()), &["register_node_hook", "leaf"]);
    Ok(())
}

#[test]
fn hooks_run_for_grad_and_for_recorded_passes() -> Result<()> {
    let x = scalar(3.0)?;
    let y = x.mul(&x)?;
    y.register_hook(|g| g.mul(2.0).map(Some))?;
    let grads = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?;
    let first = grads.into_iter().flatten().next().unwrap_or_else(|| x.detach());
    assert_eq!(first.item::<f64>()?, 12.0);
    assert_eq!(grad(&first, &[&x])?[0].as_ref().map(Tensor::item::<f64>).transpose()?, Some(4.0));
    Ok(())
}

#[test]
fn node_hooks_see_both_sides() -> Result<()> {
    let log = Log::default();
    let (x, b) = (leaf([1.0, 2.0])?, scalar(5.0)?);
    let y = x.mul(&b)?;
    let hook = {
        let log = log.clone();
        y.register_node_hook(move |event| {
            let shapes = |side: &[Option<Tensor>]| -> Vec<Option<Vec<usize>>> {
                side.iter().map(|g| g.as_ref().map(|g| g.shape().to_vec())).collect()
            };
            log.add(format!("{} {:?} {:?}", event.name, shapes(event.outputs), shapes(event.inputs)));
        })?
    };
    y.sum(..)?.backward_with(BackwardOptions::new().retain_graph(true))?;
    // Before the scalar's cotangent is summed back.
    assert_eq!(log.take(), ["mul [Some([2])] [Some([2]), Some([2])]"]);
    assert_eq!(grad_of(&b)?, [3.0]);
    hook.remove();
    y.sum(..)?.backward()?;
    assert!(log.take().is_empty());
    Ok(())
}

#[test]
fn retained_gradients_of_results() -> Result<()> {
    let x = leaf([1.0, 2.0])?;
    let h = x.mul(&x)?;
    let unretained = h.mul(1.0)?;
    h.retain_grad()?;
    unretained.sum(..)?.backward_with(BackwardOptions::new().retain_graph(true))?;
    assert_eq!(grad_of(&h)?, [1.0, 1.0]);
    assert!(unretained.grad().is_none());
    unretained.sum(..)?.backward()?;
    assert_eq!(grad_of(&h)?, [2.0, 2.0]);
    Ok(())
}
