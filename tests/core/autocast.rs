//! Mixed precision: PyTorch's dtypes for all operations, the scope, its casts, and what it composes with.

use crate::args;
use crate::checks::both;
use crate::json;

use args::arg;
use cotangent::autograd::{Tape, checkpoint, no_grad, to_dot};
use cotangent::nn::{Forward, Linear, Module};
use cotangent::ops::{self, Arg, Op};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{
    DType, Error, ErrorKind, Generator, Result, Tensor, autocast,
    autocast::{AutocastLists, AutocastOptions, autocast_dtype, autocast_with},
    no_autocast, vmap,
};
use json::{list, parse, text};
use serde_json::Value;
use std::path::Path;

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

/// The arguments of a fixture, with floats of these kinds.
fn arguments(op: &Op, case: &Value, kinds: &str, half: DType) -> Result<Vec<Arg>> {
    let (mut named, mut floats) = (Vec::new(), 0);
    for param in op.params() {
        let Some(value) = case["args"].get(param.name) else { continue };
        let mut cast = |x: Tensor| {
            if !x.dtype().is_float() {
                return Ok(x);
            }
            let wide = kinds == "f32" || (kinds == "mixed" && floats == 0);
            floats += 1;
            x.to_dtype(if wide { DType::F32 } else { half })
        };
        named.push((param.name, arg(param.kind, value, &mut cast)?));
    }
    op.bind(&[], &named)
}

/// Operations whose dtypes differ from PyTorch's on the CPU. PyTorch composes the cells from other operations, the last of which uses
/// the state's dtype; ours compute in the scope's dtype, as on a GPU. PyTorch's two decompositions end with a product in half
/// precision; ours stay in f32.
const DIFFERENT: [&str; 5] = ["gru", "gru_cell", "lstm_cell", "linalg_pinv", "linalg_polar"];

#[test]
fn every_operation_computes_in_pytorchs_dtypes() -> Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let read =
        |path: &str| std::fs::read_to_string(fixtures.join(path)).map(|text| parse(&text)).unwrap_or(Value::Null);
    let rows = read("autocast.json");
    let (mut compared, mut faults) = (0, Vec::new());
    for (name, row) in rows.as_object().into_iter().flatten() {
        let Some(op) = ops::find(name) else {
            faults.push(format!("there is no op {name}"));
            continue;
        };
        let file = read(&format!("ops/{name}.json"));
        let case = &file["cases"][row["case"].as_u64().unwrap_or(0) as usize];
        for (device, half, lists) in
            [("cpu", DType::BF16, AutocastLists::ByDevice), ("cuda", DType::F16, AutocastLists::Cuda)]
        {
            for (kinds, dtypes) in both(["f32", "half", "mixed"], list(&row[device])) {
                if dtypes[1].is_null() || (device == "cpu" && DIFFERENT.contains(&name.as_str())) {
                    continue;
                }
                let names = |results: Result<Vec<Tensor>>| -> std::result::Result<Vec<String>, String> {
                    results
                        .map(|all| all.iter().map(|x| x.dtype().name().to_string()).collect())
                        .map_err(|e| e.to_string())
                };
                let args = arguments(op, case, kinds, half)?;
                let outside = names(op.call(&args));
                let inside = names(autocast_with(half, AutocastOptions::new().lists(lists), || op.call(&args)));
                let want: Vec<String> = list(&dtypes[1]).iter().map(|name| text(name).to_string()).collect();
                let plain: Option<Vec<String>> =
                    dtypes[0].as_array().map(|all| all.iter().map(|name| text(name).to_string()).collect());
                compared += 1;
                // Where the dtypes differ from PyTorch's without a scope, it must leave them alone.
                let alike = inside == Ok(want.clone())
                    || (outside.clone().ok() != plain && plain == Some(want.clone()) && inside == outside);
                if !alike {
                    faults.push(format!(
                        "{name} on {device}, {kinds}: {inside:?}, not {want:?}; outside {outside:?} and {plain:?}"
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {compared}:\n{}", faults.len(), faults.join("\n"));
    assert!(compared > 2500, "{compared}");
    Ok(())
}

fn absent() -> Error {
    Error::new(ErrorKind::Value, "test", "there is no gradient")
}

/// Gradients that must exist.
fn grad(y: &Tensor, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    cotangent::autograd::grad(y, inputs)?.into_iter().map(|g| g.ok_or_else(absent)).collect()
}

fn network() -> Result<(Linear, Linear, Tensor)> {
    let mut generator = Generator::seed(4);
    cotangent::with_generator(&mut generator, || Ok((Linear::new(6, 8)?, Linear::new(8, 3)?, Tensor::randn([5, 6])?)))
}

#[test]
fn values_and_gradients_are_those_of_casts_written_out() -> Result<()> {
    for half in [DType::BF16, DType::F16] {
        let (a, b, x) = network()?;
        let loss = autocast(half, || b.forward(&a.forward(&x)?.tanh()?)?.square()?.mean(..))?;
        loss.backward()?;
        let cast = |x: &Tensor| x.to_dtype(half);
        let got: Vec<Tensor> = a.parameters().into_iter().chain(b.parameters()).filter_map(|p| p.grad()).collect();
        a.zero_grad();
        b.zero_grad();
        let linear = |x: &Tensor, layer: &Linear| -> Result<Tensor> {
            let bias = layer.bias.as_ref().map(|bias| cast(bias)).transpose()?;
            cast(x)?.linear(&cast(&layer.weight)?, bias.as_ref())
        };
        let plain = linear(&linear(&x, &a)?.tanh()?, &b)?.square()?.mean(..)?;
        plain.backward()?;
        assert_eq!((loss.dtype(), loss.item::<f64>()?), (plain.dtype(), plain.item::<f64>()?));
        let want = a.parameters().into_iter().chain(b.parameters()).filter_map(|p| p.grad());
        assert_eq!(got.len(), 4);
        for (got, want) in both(got.iter(), want) {
            assert_eq!(got.dtype(), DType::F32);
            assert!(got.equal(&want)?, "{got} and {want}");
        }
    }
    Ok(())
}

#[test]
fn a_scope_nests_is_left_by_errors_and_panics_and_belongs_to_its_thread() -> Result<()> {
    let x = Tensor::ones([2, 2])?;
    let dtype = || x.matmul(&x).map(|y| y.dtype());
    autocast(DType::BF16, || {
        assert_eq!((dtype()?, autocast_dtype()), (DType::BF16, Some(DType::BF16)));
        autocast(DType::F16, || {
            assert_eq!(dtype()?, DType::F16);
            assert_eq!(no_autocast(dtype)?, DType::F32);
            assert_eq!(autocast_with(DType::BF16, false, dtype)?, DType::F32);
            assert_eq!(dtype()?, DType::F16);
            Ok(())
        })?;
        assert_eq!(dtype()?, DType::BF16);
        // Another thread starts with autocast off.
        let there = std::thread::scope(|scope| scope.spawn(|| (autocast_dtype(), dtype())).join());
        assert!(matches!(there, Ok((None, Ok(DType::F32)))));
        let failed: Result<()> = autocast(DType::F16, || Err(Error::new(ErrorKind::Value, "test", "it ends here")));
        assert!(failed.is_err());
        assert_eq!(dtype()?, DType::BF16);
        Ok(())
    })?;
    let panicked =
        std::panic::catch_unwind(|| autocast(DType::F16, || -> Result<()> { std::panic::resume_unwind(Box::new(())) }));
    assert!(panicked.is_err());
    assert_eq!((dtype()?, autocast_dtype()), (DType::F32, None));
    assert_eq!(message(autocast(DType::F64, || Ok(()))), "autocast: dtype must be f16 or bf16, got f64");
    // Double precision is never cast, nor are integers.
    let wide = x.to_dtype(DType::F64)?;
    assert_eq!(autocast(DType::BF16, || wide.matmul(&wide))?.dtype(), DType::F64);
    let whole = x.to_dtype(DType::I64)?;
    assert_eq!(autocast(DType::BF16, || whole.matmul(&whole))?.dtype(), DType::I64);
    let refused = autocast_with(DType::F16, AutocastOptions::new().lists(AutocastLists::Cuda), || {
        x.mul(0.5)?.binary_cross_entropy(&x)
    });
    assert!(message(refused).contains("use binary_cross_entropy_with_logits"));
    Ok(())
}

#[test]
fn a_backward_pass_inside_computes_as_one_outside() -> Result<()> {
    let (a, b, x) = network()?;
    let loss = || b.forward(&a.forward(&x)?.tanh()?)?.square()?.mean(..);
    let outside = autocast(DType::BF16, loss)?;
    let outside = grad(&outside, &[&a.weight, &b.weight])?;
    let inside = autocast(DType::BF16, || {
        let loss = loss()?;
        grad(&loss, &[&a.weight, &b.weight])
    })?;
    for (outside, inside) in both(outside.iter(), &inside) {
        assert!(outside.equal(inside)?);
    }
    // Twice in one scope: the first pass frees the graph of the kept casts.
    autocast(DType::BF16, || {
        for _ in 0..2 {
            loss()?.backward()?;
        }
        Ok(())
    })?;
    let sum = a.weight.grad().ok_or_else(absent)?;
    assert!(sum.allclose(&outside[0].mul(2.0)?)?);
    Ok(())
}

#[test]
fn casts_of_parameters_are_made_once_and_again_after_a_change() -> Result<()> {
    let (mut a, _, x) = network()?;
    autocast(DType::BF16, || {
        // Without recording no casts are cached: a gradient would be lost.
        no_grad(|| a.forward(&x))?;
        let (one, two) = (a.forward(&x)?, a.forward(&x)?);
        let both = one.add(&two)?.sum(..)?;
        let casts = to_dot(&both)?.matches("to_dtype").count();
        assert_eq!(casts, 2, "one of the weight and one of the bias");
        both.backward()?;
        assert!(a.weight.grad().is_some());
        let before = a.forward(&x)?;
        Sgd::new(1.0).step(&mut a)?;
        assert!(!a.forward(&x)?.equal(&before)?, "the cast is that of the new values");
        Ok(())
    })?;
    autocast_with(DType::BF16, AutocastOptions::new().cache_enabled(false), || {
        let both = a.forward(&x)?.add(&a.forward(&x)?)?.sum(..)?;
        assert_eq!(to_dot(&both)?.matches("to_dtype").count(), 4);
        Ok(())
    })
}

#[test]
fn checkpoints_tapes_and_vmap_compose_with_it() -> Result<()> {
    let (a, _, x) = network()?;
    let plain = autocast(DType::BF16, || a.forward(&x)?.tanh()?.sum(..))?;
    let plain = grad(&plain, &[&a.weight])?.swap_remove(0);

    let weight = a.weight.clone();
    let checkpointed = autocast(DType::BF16, || {
        // A cast from outside of the segment is not part of it.
        a.forward(&x)?;
        let weight = weight.clone();
        let bias = a.bias.as_ref().map(|bias| bias.detach());
        checkpoint(move |x| x[0].linear(&weight, bias.as_ref())?.tanh()?.sum(..), &[&x])
    })?;
    let again = grad(&checkpointed, &[&a.weight])?.swap_remove(0);
    assert!(again.equal(&plain)?, "{again} and {plain}");

    let tape = Tape::new();
    let w = tape.variable(&a.weight.detach())?;
    let bias = a.bias.as_ref().map(|bias| bias.detach());
    let y = autocast(DType::BF16, || x.linear(&w, bias.as_ref())?.tanh()?.sum(..))?;
    let grads = tape.backward(&y)?;
    assert!(grads.get(&w)?.ok_or_else(absent)?.equal(&plain)?);

    let each = autocast(DType::BF16, || vmap(|x| a.weight.matmul(&x[0]), &[&x]))?;
    let loop_ = autocast(DType::BF16, || x.matmul(&a.weight.t()?))?;
    assert_eq!(each.dtype(), DType::BF16);
    assert!(each.to_dtype(DType::F32)?.allclose_with(&loop_.to_dtype(DType::F32)?, (1e-2, 1e-2))?);
    Ok(())
}
