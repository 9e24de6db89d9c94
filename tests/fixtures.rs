//! Every op against PyTorch: values, dtypes, shapes, gradients and, for views, strides and offsets.
//!
//! The reference values are made by `tools/fixtures.py`, whose documentation says what the files hold. A test runs all
//! cases of its file and then reports all that failed.

#[path = "common/dispatch.rs"]
mod dispatch;
#[path = "common/json.rs"]
mod json;

use cotangent::{DType, Scalar, Tensor};
use dispatch::{call, inputs};
use json::{compare, dtype, list, parse, signed, tensor, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

const FILES: [(&str, &str); 5] = [
    ("elementwise", include_str!("fixtures/elementwise.json")),
    ("reductions", include_str!("fixtures/reductions.json")),
    ("indexing", include_str!("fixtures/indexing.json")),
    ("nn", include_str!("fixtures/nn.json")),
    ("views", include_str!("fixtures/views.json")),
];

/// How an input lies in memory; its values are the same in all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrangement {
    /// Row-major from the start of its storage.
    Plain,
    /// Column-major.
    Transposed,
    /// The middle third of a larger tensor.
    Offset,
    /// Every second element.
    Stepped,
    /// From the last element to the first.
    Reversed,
}

impl Arrangement {
    fn of(self, x: &Tensor) -> cotangent::Result<Tensor> {
        let last_to_first: Vec<isize> = (0..x.rank() as isize).rev().collect();
        match self {
            Arrangement::Plain => Ok(x.clone()),
            Arrangement::Transposed => x.permute(&last_to_first)?.contiguous()?.permute(&last_to_first),
            Arrangement::Offset => Tensor::stack(&[x, x, x], 0)?.select(0, 1),
            Arrangement::Stepped => Tensor::stack(&[x, x], x.rank() as isize)?.select(-1, 1),
            Arrangement::Reversed => x.flip(&last_to_first)?.contiguous()?.flip(&last_to_first),
        }
    }
}

/// Runs one case; what it says is the first thing that is wrong with it.
fn check(case: &Value, arrangement: Arrangement) -> Result<(), String> {
    let says = |what: &'static str| move |e: cotangent::Error| format!("{what}: {e}");
    let mut leaves = Vec::new();
    for (x, grad) in inputs(case).map_err(says("input"))?.iter().zip(list(&case["grad"])) {
        let x = arrangement.of(x).map_err(says("input"))?;
        leaves.push(if *grad == true { x.requires_grad_(true).map_err(says("requires_grad_"))? } else { x });
    }
    let Some(outputs) = call(text(&case["op"]), &case["args"], &leaves) else {
        return Err("tests/common/dispatch.rs does not know this op".into());
    };
    let outputs = outputs.map_err(says("refused"))?;
    let expected = one_or_several(&case["output"]);
    if outputs.len() != expected.len() {
        return Err(format!("{} results and should be {}", outputs.len(), expected.len()));
    }
    for (i, (got, want)) in outputs.iter().zip(expected).enumerate() {
        compare(got, want, case).map_err(|e| format!("output {i}: {e}"))?;
        if arrangement == Arrangement::Plain {
            same_layout(got, want).map_err(|e| format!("output {i}: {e}"))?;
        }
    }
    check_gradients(case, &leaves, &outputs)
}

fn check_gradients(case: &Value, leaves: &[Tensor], outputs: &[Tensor]) -> Result<(), String> {
    let wanted = list(&case["grad"]).iter().any(|g| *g == true);
    if !wanted {
        return match outputs.iter().position(Tensor::requires_grad) {
            Some(i) => Err(format!("output {i} requires a gradient though no input does")),
            None => Ok(()),
        };
    }
    for (output, cotangent) in outputs.iter().zip(one_or_several(&case["cotangent"])) {
        if cotangent.is_null() {
            if output.requires_grad() {
                return Err("an output without gradient requires one".into());
            }
            continue;
        }
        let cotangent = tensor(cotangent).map_err(|e| format!("cotangent: {e}"))?;
        output.backward_with(&cotangent).map_err(|e| format!("backward: {e}"))?;
    }
    for (i, (leaf, want)) in leaves.iter().zip(list(&case["grads"])).enumerate() {
        match (leaf.grad(), want.is_null()) {
            (Some(got), false) => compare(&got, want, case).map_err(|e| format!("gradient {i}: {e}"))?,
            (None, true) => {}
            (None, false) => return Err(format!("gradient {i}: there is none")),
            (Some(_), true) => return Err(format!("gradient {i}: there is one though none was asked for")),
        }
    }
    Ok(())
}

fn one_or_several(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// Strides and offset, where they mean something: not of dims of size 1, nor of empty tensors.
fn same_layout(got: &Tensor, want: &Value) -> Result<(), String> {
    if want["strides"].is_null() || got.numel() == 0 {
        return Ok(());
    }
    let strides = signed(&want["strides"]);
    let telling = |strides: &[isize]| -> Vec<isize> {
        strides.iter().zip(got.shape()).filter(|&(_, &size)| size > 1).map(|(&stride, _)| stride).collect()
    };
    if telling(got.strides()) != telling(&strides) {
        return Err(format!("strides are {:?} and should be {strides:?}", got.strides()));
    }
    if want["offset"] != got.offset() {
        return Err(format!("offset is {} and should be {}", got.offset(), want["offset"]));
    }
    Ok(())
}

/// Runs the cases of a file that `choose` picks and collects what is wrong with them; a panic is one fault among others.
fn faults(file: &str, content: &str, arrangement: Arrangement, choose: impl Fn(&str) -> bool) -> Vec<String> {
    let parsed = parse(content);
    let mut faults = Vec::new();
    for (number, case) in list(&parsed["cases"]).iter().enumerate().filter(|(_, c)| choose(text(&c["op"]))) {
        let result =
            catch_unwind(AssertUnwindSafe(|| check(case, arrangement))).unwrap_or_else(|_| Err("panicked".into()));
        if let Err(what) = result {
            let shapes: Vec<String> =
                list(&case["inputs"]).iter().map(|i| format!("{}{}", text(&i["dtype"]), i["shape"])).collect();
            let note = case["note"].as_str().map_or(String::new(), |n| format!(" ({n})"));
            let op = text(&case["op"]);
            faults.push(format!(
                "{file} #{number} {op}{} {arrangement:?} of {}{note}: {what}",
                case["args"],
                shapes.join(", ")
            ));
        }
    }
    faults
}

fn none_of(faults: &[String]) {
    assert!(faults.is_empty(), "{} cases differ from PyTorch:\n{}", faults.len(), faults.join("\n"));
}

fn file_agrees(index: usize) {
    let (name, content) = FILES[index];
    none_of(&faults(name, content, Arrangement::Plain, |_| true));
}

#[test]
fn elementwise_ops_agree_with_pytorch() {
    file_agrees(0);
}

#[test]
fn reductions_agree_with_pytorch() {
    file_agrees(1);
}

#[test]
fn matmul_joining_and_indexing_agree_with_pytorch() {
    file_agrees(2);
}

#[test]
fn losses_and_layers_agree_with_pytorch() {
    file_agrees(3);
}

#[test]
fn views_agree_with_pytorch() {
    file_agrees(4);
}

/// The same values in other places in memory give the same results.
#[test]
fn results_do_not_depend_on_the_layout_of_the_inputs() {
    // These speak of memory itself.
    let about_layout = ["view", "as_strided", "chain"];
    let mut all = Vec::new();
    for arrangement in [Arrangement::Transposed, Arrangement::Offset, Arrangement::Stepped, Arrangement::Reversed] {
        for (name, content) in FILES {
            all.extend(faults(name, content, arrangement, |op| !about_layout.contains(&op)));
        }
    }
    none_of(&all);
}

#[test]
fn every_op_has_a_fixture() {
    let mut in_fixtures = BTreeSet::new();
    for (_, content) in FILES {
        in_fixtures.extend(list(&parse(content)["cases"]).iter().map(|case| text(&case["op"]).to_owned()));
    }
    let missing: Vec<&str> =
        cotangent::ops::list().iter().map(|op| op.name).filter(|name| !in_fixtures.contains(*name)).collect();
    assert!(missing.is_empty(), "no fixtures for {missing:?}: add cases to tools/fixture_cases");
}

/// The dtype of `a + b`, for every pair of dtypes that PyTorch can add. A 0-d tensor counts like any other, as in the
/// array API; PyTorch's rule that it does not widen the other's dtype is not taken over.
#[test]
fn promotion_agrees_with_pytorch() {
    let tables = parse(include_str!("fixtures/promotion.json"));
    let ones = |dtype: DType| Tensor::ones_with([2], dtype);
    let mut faults = Vec::new();
    for table in ["types", "number"] {
        for row in list(&tables[table]) {
            let (left, right, want) = (text(&row[0]), text(&row[1]), text(&row[2]));
            let sum = ones(dtype(left)).and_then(|a| match (table, right) {
                ("types", _) => a.add(&ones(dtype(right))?),
                (_, "float") => a.add(Scalar::F64(1.5)),
                (_, "int") => a.add(Scalar::I64(1)),
                _ => a.add(Scalar::Bool(true)),
            });
            match sum.map(|s| s.dtype().name()) {
                Ok(got) if got == want => {}
                Ok(got) => faults.push(format!("{table}: {left} with {right} gives {got} and should give {want}")),
                Err(e) => faults.push(format!("{table}: {left} with {right} should give {want}: {e}")),
            }
        }
    }
    none_of(&faults);
}
