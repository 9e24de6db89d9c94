//! The tape: the graph as an explicit value that can be marked and rewound.

use crate::alone;
use cotangent::autograd::{Tape, enable_grad, grad, no_grad};
use cotangent::{DType, Device, Error, Result, Tensor, memory, tensor};
use std::time::Duration;

fn constant<const N: usize>(numbers: [f64; N]) -> Result<Tensor> {
    Tensor::from_slice(&numbers, [N])
}

/// Checks that a call fails, that the message contains all of `parts`, and that the error has a line of these tests.
#[track_caller]
fn refused<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err();
    let location = error.as_ref().and_then(Error::location).map_or_else(|| "nowhere".to_string(), ToString::to_string);
    let message = error.map_or_else(|| "no error".to_string(), |error| error.to_string());
    assert!(location.contains("tests/process/tape.rs"), "{message:?} is from {location}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in the message {message:?}");
    }
}

fn in_use() -> Result<usize> {
    Ok(memory::stats(Device::Cpu)?.current())
}

/// The number of a tape in messages.
fn number(tape: &Tape) -> String {
    let message = tape.id(&Tensor::zeros(()).unwrap_or_else(|_| unreachable!())).err().map(|e| e.to_string());
    message.and_then(|m| m.rsplit("tape ").next().map(|n| format!("tape {n}"))).unwrap_or_default()
}

#[test]
fn ids_count_up_in_the_order_of_recording() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    assert!(tape.is_empty());
    let (x, w) = (tape.variable(&constant([1.0, 2.0])?)?, tape.variable(&constant([3.0, 4.0])?)?);
    let y = x.mul(&w)?;
    // Constants and what happens outside leave no trace.
    let other = constant([1.0, 1.0])?.requires_grad_(true)?.exp()?;
    let z = y.add(&constant([1.0, 1.0])?)?.sum(..)?;
    assert_eq!((tape.id(&x)?, tape.id(&w)?, tape.id(&y)?, tape.id(&z)?), (0, 1, 2, 4));
    assert_eq!(tape.len(), 5);
    refused(tape.id(&other), &["id", "[2]", "not on tape"]);
    assert!(x.is_leaf() && !y.is_leaf() && y.grad_fn() == Some("mul"));
    assert!(!no_grad(|| x.mul(&w))?.requires_grad());
    assert_eq!(tape.len(), 5);
    Ok(())
}

#[test]
fn backward_gives_a_map_and_touches_nothing() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let (x, w) = (tape.variable(&constant([1.0, 2.0])?)?, tape.variable(&constant([3.0, 4.0])?)?);
    let unreached = tape.variable(&constant([1.0])?)?;
    let h = x.mul(&w)?;
    h.retain_grad()?;
    let loss = h.add(&h)?.sum(..)?;
    let grads = tape.backward(&loss)?;
    assert_eq!(grads.get(&x)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![6.0, 8.0]));
    assert_eq!(grads.get(&w)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![2.0, 4.0]));
    assert!(grads.get(&unreached)?.is_none());
    assert_eq!((grads.len(), grads.is_empty()), (2, false));
    assert!(x.grad().is_none() && w.grad().is_none() && h.grad().is_none());
    assert_eq!(tape.len(), 6);
    // The tape is not changed: again, and from the middle.
    let again = tape.backward(&loss)?;
    for variable in [&x, &w] {
        let values =
            |grads: &cotangent::autograd::Gradients| grads.get(variable)?.map(Tensor::to_vec::<f64>).transpose();
        assert_eq!(values(&grads)?, values(&again)?);
    }
    let from_h = tape.backward_with(&h, &constant([1.0, 10.0])?)?;
    assert_eq!(from_h.get(&w)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0, 20.0]));
    // Of a variable with respect to itself.
    let grads = tape.backward(&unreached)?;
    assert_eq!(grads.get(&unreached)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0]));
    // Results are not variables.
    refused(grads.get(&h), &["gradients", "[2]", "not a variable"]);
    Ok(())
}

#[test]
fn backward_refuses_what_it_cannot_do() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let x = tape.variable(&constant([1.0, 2.0])?)?;
    refused(tape.backward(&x.exp()?), &["backward", "[2]", "scalar"]);
    refused(tape.backward_with(&x, &constant([1.0])?), &["backward", "[1]", "[2]"]);
    refused(tape.backward_with(&x, &Tensor::ones([2])?), &["backward", "f32", "f64"]);
    refused(tape.backward(&constant([1.0])?), &["backward", "not on tape"]);
    refused(tape.variable(&tensor!([1, 2])?), &["variable", "i64"]);
    // `Tensor::backward` is refused, since its gradients would be stored in the variables.
    refused(x.sum(..)?.backward(), &["backward", "belongs to a tape"]);
    // Operations without a derivative are not recorded.
    refused(tape.backward(&x.gt(1.0)?.to_dtype(DType::F64)?.sum(..)?), &["backward", "not on tape"]);
    Ok(())
}

#[test]
fn tapes_and_the_dynamic_graph_do_not_mix() -> Result<()> {
    let _alone = alone();
    let (a, b) = (Tape::new(), Tape::new());
    let (x, y) = (a.variable(&constant([1.0])?)?, b.variable(&constant([2.0])?)?);
    let (name_a, name_b) = (number(&a), number(&b));
    assert_ne!(name_a, name_b);
    refused(x.mul(&y), &["mul", &name_a, &name_b, "one tape"]);
    refused(b.backward(&x.sum(..)?), &["backward", &name_a, &name_b]);
    refused(b.id(&x), &["id", &name_a, &name_b]);
    refused(a.backward(&x.sum(..)?)?.get(&y), &["gradients", &name_a, &name_b]);
    let w = constant([3.0])?.requires_grad_(true)?;
    let length = a.len();
    refused(x.mul(&w), &["mul", &name_a, "outside it", "variable()", "detach"]);
    refused(w.mul(&x), &["mul", &name_a, "outside it"]);
    assert_eq!(a.len(), length, "a refused operation leaves nothing on the tape");
    // Detached, or registered, it can be used.
    x.mul(w.detach())?;
    let registered = a.variable(&w)?;
    let loss = x.mul(&registered)?.sum(..)?;
    let grads = a.backward(&loss)?;
    assert_eq!(grads.get(&registered)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![1.0]));
    assert!(w.grad().is_none());
    refused(grads.get(&w), &["gradients", "not a variable"]);
    Ok(())
}

#[test]
fn rewinding_frees_memory_even_where_handles_live_on() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let x = tape.variable(&Tensor::ones([256, 256])?)?;
    let mark = tape.mark();
    let before = in_use()?;
    let mut handle = x.clone();
    for _ in 0..20 {
        handle = handle.tanh()?;
    }
    handle.compute()?;
    let result = 256 * 256 * 4;
    assert_eq!((tape.len(), tape.saved_bytes()), (21, 20 * result));
    assert!(in_use()? >= before + 20 * result);
    tape.pop_to(mark)?;
    assert_eq!((tape.len(), tape.saved_bytes()), (1, 0));
    assert!(in_use()? <= before + result, "only the values of the last result are left");
    // Its values can be used, but not with the tape.
    assert_eq!(handle.to_vec::<f32>()?.len(), 256 * 256);
    refused(handle.mul(2.0), &["mul", "pop_to"]);
    refused(handle.mul(&x), &["mul", "pop_to"]);
    refused(tape.backward(&handle), &["backward", "pop_to"]);
    refused(tape.id(&handle), &["id", "pop_to"]);
    assert!(handle.detach().mul(2.0).is_ok() && no_grad(|| handle.mul(2.0)).is_ok());
    drop(handle);
    assert!(in_use()? <= before);
    Ok(())
}

#[test]
fn parameters_survive_and_batches_repeat() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let w = tape.variable(&constant([1.0, 2.0])?)?;
    let mark = tape.mark();
    let mut after_first = None;
    for step in 0..100 {
        let batch = tape.variable(&constant([f64::from(step), 1.0])?)?;
        let loss = w.mul(&batch)?.mul(&w)?.sum(..)?;
        assert_eq!(tape.id(&loss)?, 4, "the same ids in every batch");
        let grads = tape.backward(&loss)?;
        assert_eq!(grads.get(&w)?.map(Tensor::to_vec::<f64>).transpose()?, Some(vec![2.0 * f64::from(step), 4.0]));
        assert!(grads.get(&batch)?.is_some());
        tape.pop_to(mark)?;
        refused(w.mul(&batch), &["mul", "pop_to"]);
        drop((loss, grads, batch));
        let now = in_use()?;
        assert_eq!(*after_first.get_or_insert(now), now, "memory grows");
    }
    assert_eq!(tape.len(), 1);
    Ok(())
}

#[test]
fn marks_of_another_tape_and_stale_ones_are_refused() -> Result<()> {
    let _alone = alone();
    let (a, b) = (Tape::new(), Tape::new());
    let x = a.variable(&constant([1.0])?)?;
    refused(b.pop_to(a.mark()), &["pop_to", &number(&a), &number(&b)]);
    let early = a.mark();
    let y = x.exp()?;
    let late = a.mark();
    y.exp()?;
    // A mark can be used again, and marks nest.
    a.pop_to(late)?;
    a.pop_to(late)?;
    assert_eq!(a.len(), 2);
    a.pop_to(early)?;
    refused(a.pop_to(late), &["pop_to", "2", "earlier mark"]);
    // It does not become valid again when the tape has grown past it.
    let z = x.exp()?.exp()?;
    refused(a.pop_to(late), &["pop_to", "2", "earlier mark"]);
    assert!(a.id(&z).is_ok());
    a.pop_to(early)?;
    let empty = Tape::new();
    let start = empty.mark();
    let variable = empty.variable(&constant([1.0])?)?;
    empty.pop_to(start)?;
    assert!(empty.is_empty());
    refused(variable.exp(), &["exp", "pop_to"]);
    Ok(())
}

#[test]
fn a_tape_that_goes_leaves_its_variables_as_values() -> Result<()> {
    let _alone = alone();
    let before = in_use()?;
    let (x, y) = {
        let tape = Tape::new();
        let x = tape.variable(&Tensor::ones([100, 100])?)?;
        let mut y = x.clone();
        for _ in 0..10 {
            y = y.exp()?.log()?;
        }
        (x, y)
    };
    let left = in_use()? - before;
    assert!(left <= 2 * 45_000, "two results of 40 000 bytes are left, not {left}");
    refused(x.mul(2.0), &["mul", "pop_to"]);
    assert_eq!(y.to_vec::<f32>()?.len(), 10_000);
    drop((x, y));
    assert_eq!(in_use()?, before);
    Ok(())
}

#[test]
fn a_long_tape_is_marked_rewound_and_dropped_in_linear_time() -> Result<()> {
    let _alone = alone();
    let body = || -> Result<()> {
        let tape = Tape::new();
        let x = tape.variable(&Tensor::ones(())?)?;
        let mark = tape.mark();
        let long = || -> Result<Tensor> {
            let mut y = x.clone();
            for _ in 0..200_000 {
                y = y.mul(&x)?;
            }
            Ok(y)
        };
        let y = long()?;
        let grads = tape.backward(&y)?;
        assert_eq!(grads.get(&x)?.map(Tensor::item::<f32>).transpose()?, Some(200_001.0));
        assert!(tape.backward_time() > Duration::ZERO);
        tape.pop_to(mark)?;
        long()?;
        drop(tape);
        Ok(())
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body);
    assert!(thread.is_ok_and(|thread| thread.join().is_ok_and(|result| result.is_ok())));
    Ok(())
}

#[test]
fn several_tapes_at_once_on_several_threads() -> Result<()> {
    let _alone = alone();
    let run = |seed: f64| -> Result<Vec<f64>> {
        let tape = Tape::new();
        let x = tape.variable(&constant([seed, 2.0])?)?;
        let mark = tape.mark();
        let mut last = Vec::new();
        for _ in 0..50 {
            let grads = tape.backward(&x.exp()?.mul(&x)?.sum(..)?)?;
            last = grads.get(&x)?.map_or(Ok(Vec::new()), Tensor::to_vec::<f64>)?;
            tape.pop_to(mark)?;
        }
        Ok(last)
    };
    let expected: Vec<_> = (0..4).map(|seed| run(f64::from(seed))).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(f64::from(seed)))).collect();
        let got: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect();
        assert_eq!(got, expected);
    });
    Ok(())
}

#[test]
fn grad_works_on_a_tapes_results_too() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let x = tape.variable(&constant([1.0, 2.0])?)?;
    let y = enable_grad(|| x.mul(&x))?.sum(..)?;
    assert_eq!(grad(&y, &[&x])?[0].as_ref().map(Tensor::to_vec::<f64>).transpose()?, Some(vec![2.0, 4.0]));
    // That freed the nodes; the tape says so.
    refused(tape.backward(&y), &["backward", "sum", "tests/process/tape.rs"]);
    Ok(())
}

#[test]
fn a_variable_changed_in_place_stays_on_its_tape() -> Result<()> {
    let _alone = alone();
    let tape = Tape::new();
    let mut w = tape.variable(&constant([1.0, 2.0])?)?;
    let mark = tape.mark();
    for step in 0..3 {
        let loss = w.mul(&w)?.sum(..)?;
        let grads = tape.backward(&loss)?;
        let grad = grads.get(&w)?.map(Tensor::to_vec::<f64>).transpose()?;
        assert_eq!(grad, Some(w.detach().mul(2.0)?.to_vec::<f64>()?), "step {step}");
        tape.pop_to(mark)?;
        no_grad(|| w.mul_(0.5))?;
        assert_eq!((tape.len(), tape.id(&w)?), (1, 0), "step {step}");
    }
    assert_eq!(w.to_vec::<f64>()?, [0.125, 0.25]);
    // A graph of its old values is refused, and one that was released stays so.
    let loss = w.mul(&w)?.sum(..)?;
    no_grad(|| w.fill_(3.0))?;
    refused(tape.backward(&loss), &["backward", "was changed"]);
    tape.pop_to(mark)?;
    let mut late = tape.variable(&constant([1.0])?)?;
    tape.pop_to(mark)?;
    no_grad(|| late.fill_(2.0))?;
    assert_eq!(tape.len(), 1);
    refused(late.exp(), &["exp", "pop_to"]);
    refused(tape.id(&late), &["id", "pop_to"]);
    Ok(())
}
