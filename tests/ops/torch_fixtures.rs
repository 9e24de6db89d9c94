//! Every op against PyTorch: values, dtypes, shapes, gradients and, for views, strides and offsets.
//!
//! The reference values are made by `tools/fixtures.py`, whose documentation says what the files hold: one file for each
//! op, whose cases are called through the list of ops. A test runs all cases and then reports all that failed.

use crate::args;
use crate::checks::{all_are_tried, tried};
use crate::json;

use args::arg;
use cotangent::autograd::BackwardOptions;
use cotangent::ops::{self, Arg, Op};
use cotangent::{DType, Result, Scalar, Tensor};
use json::{compare, dtype, list, parse, signed, tensor, text};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

type Fault<T = ()> = std::result::Result<T, String>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn read(path: &Path) -> Fault<Value> {
    std::fs::read_to_string(path).map(|text| parse(&text)).map_err(|error| format!("{}: {error}", path.display()))
}

/// Every op that has a file, with its cases.
fn all_cases() -> Fault<Vec<(&'static Op, Value)>> {
    let files = std::fs::read_dir(fixtures().join("ops")).map_err(|error| error.to_string())?;
    let mut paths =
        files.map(|file| file.map(|f| f.path())).collect::<std::io::Result<Vec<_>>>().map_err(|e| e.to_string())?;
    paths.sort();
    if !all_are_tried() {
        let tried = tried();
        paths.retain(|path| tried.iter().any(|op| path.file_stem().is_some_and(|stem| stem == op.name)));
    }
    let with_op = |path: &PathBuf| {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        Ok((ops::find(name).ok_or_else(|| format!("there is no op {name}"))?, read(path)?))
    };
    paths.iter().map(with_op).collect()
}

/// The layout of an input; the values are the same in all layouts.
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
    fn of(self, x: &Tensor) -> Result<Tensor> {
        let last_to_first: Vec<isize> = (0..x.rank() as isize).rev().collect();
        match self {
            Arrangement::Plain => Ok(x.clone()),
            Arrangement::Transposed => x.permute(&last_to_first[..])?.contiguous()?.permute(&last_to_first[..]),
            Arrangement::Offset => Tensor::stack(&[x, x, x], 0)?.select(0, 1),
            Arrangement::Stepped => Tensor::stack(&[x, x], x.rank())?.select(-1, 1),
            Arrangement::Reversed => x.flip(..)?.contiguous()?.flip(..),
        }
    }
}

/// The tensors of a case that require gradients, in the order of the parameters.
struct Leaves<'a> {
    grads: std::slice::Iter<'a, Value>,
    arrangement: Arrangement,
    all: Vec<Tensor>,
}

impl Leaves<'_> {
    fn add(&mut self, x: &Tensor) -> Result<Tensor> {
        let x = self.arrangement.of(x)?;
        let wanted = self.grads.next().is_some_and(|grad| *grad == true);
        let x = if wanted { x.requires_grad_(true)? } else { x };
        self.all.push(x.clone());
        Ok(x)
    }

    /// The arguments of a call that the file gives by name.
    fn bind(&mut self, op: &Op, args: &Value, first: Option<&Tensor>) -> Result<Vec<Arg>> {
        let mut named: Vec<(&str, Arg)> = Vec::new();
        for param in op.params() {
            match (args.get(param.name), first) {
                (Some(value), _) => named.push((param.name, arg(param.kind, value, &mut |x| self.add(&x))?)),
                (None, Some(first)) if param.name == "self" => named.push(("self", Arg::from(first))),
                _ => {}
            }
        }
        let unknown = args
            .as_object()
            .into_iter()
            .flat_map(|args| args.keys())
            .filter(|key| op.params().all(|param| param.name != key.as_str()));
        named.extend(unknown.map(|key| (key.as_str(), Arg::None)));
        op.bind(&[], &named)
    }
}

fn says(what: &'static str) -> impl Fn(cotangent::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Runs one case; returns its first failure.
fn check(op: &'static Op, case: &Value, arrangement: Arrangement) -> Fault {
    let mut leaves = Leaves { grads: list(&case["grad"]).iter(), arrangement, all: Vec::new() };
    let args = leaves.bind(op, &case["args"], None).map_err(says("arguments"))?;
    let outputs = op.call(&args).map_err(says("refused"))?;
    check_results(case, arrangement, &leaves.all, &outputs)
}

/// Runs views of views.
fn check_chain(case: &Value) -> Fault {
    let arrangement = Arrangement::Plain;
    let mut leaves = Leaves { grads: list(&case["grad"]).iter(), arrangement, all: Vec::new() };
    let mut x = tensor(&case["args"]["self"]).and_then(|x| leaves.add(&x)).map_err(says("input"))?;
    for step in list(&case["args"]["steps"]) {
        let name = text(&step[0]);
        let op = ops::find(name).ok_or_else(|| format!("there is no op {name}"))?;
        let args = leaves.bind(op, &step[1], Some(&x)).map_err(says("arguments"))?;
        x = op.call(&args).map_err(says("refused"))?.swap_remove(0);
    }
    check_results(case, arrangement, &leaves.all, &[x])
}

fn check_results(case: &Value, arrangement: Arrangement, leaves: &[Tensor], outputs: &[Tensor]) -> Fault {
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
    if leaves.len() != list(&case["grad"]).len() {
        return Err(format!("{} tensors, of {} that the case has", leaves.len(), list(&case["grad"]).len()));
    }
    check_gradients(case, leaves, outputs)
}

fn check_gradients(case: &Value, leaves: &[Tensor], outputs: &[Tensor]) -> Fault {
    let wanted = list(&case["grad"]).iter().any(|g| *g == true);
    if !wanted {
        return match outputs.iter().position(Tensor::requires_grad) {
            Some(i) => Err(format!("output {i} requires a gradient though no input does")),
            None => Ok(()),
        };
    }
    let cotangents = one_or_several(&case["cotangent"]);
    if cotangents.len() != outputs.len() || list(&case["grads"]).len() != leaves.len() {
        return Err(format!("{} outputs and {} leaves, unlike the case", outputs.len(), leaves.len()));
    }
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        if cotangent.is_null() {
            if output.requires_grad() {
                return Err("an output without gradient requires one".into());
            }
            continue;
        }
        let cotangent = tensor(cotangent).map_err(|e| format!("cotangent: {e}"))?;
        output
            .backward_with(BackwardOptions::new().gradient(&cotangent).retain_graph(true))
            .map_err(|e| format!("backward: {e}"))?;
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

/// The cases of a file that has those of many ops.
fn named_cases(file: &str) -> Fault<Vec<(&'static Op, Value)>> {
    let named = std::env::var("COTANGENT_TEST_OPS").ok();
    let mut cases = Vec::new();
    for case in list(&read(&fixtures().join(file))?["cases"]) {
        let name = text(&case["op"]);
        if named.as_ref().is_none_or(|named| named.split(',').any(|named| named == name)) {
            cases.push((ops::find(name).ok_or_else(|| format!("there is no op {name}"))?, case.clone()));
        }
    }
    Ok(cases)
}

/// Runs one case, and compares only those elements of its gradients that are not NaN in PyTorch.
fn check_known_gradients(op: &'static Op, case: &Value) -> Fault {
    let mut leaves = Leaves { grads: list(&case["grad"]).iter(), arrangement: Arrangement::Plain, all: Vec::new() };
    let args = leaves.bind(op, &case["args"], None).map_err(says("arguments"))?;
    let outputs = op.call(&args).map_err(says("refused"))?;
    for (output, cotangent) in outputs.iter().zip(one_or_several(&case["cotangent"])) {
        if !cotangent.is_null() {
            let cotangent = tensor(cotangent).map_err(says("cotangent"))?;
            let options = BackwardOptions::new().gradient(&cotangent).retain_graph(true);
            output.backward_with(options).map_err(says("backward"))?;
        }
    }
    for (i, (leaf, want)) in leaves.all.iter().zip(list(&case["grads"])).enumerate() {
        if want.is_null() {
            continue;
        }
        let got = leaf.grad().ok_or_else(|| format!("gradient {i}: there is none"))?;
        let (wanted, got) = tensor(want).map(|want| (want, got.detach())).map_err(says("gradient"))?;
        let known = wanted.eq(&wanted).and_then(|known| known.where_(&got, &wanted)).map_err(says("gradient"))?;
        compare(&known, want, case).map_err(|e| format!("gradient {i}: {e}"))?;
    }
    Ok(())
}

fn one_or_several(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// Strides and offset, where they mean something: not of dims of size 1, nor of empty tensors.
fn same_layout(got: &Tensor, want: &Value) -> Fault {
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

/// The failures of the cases; a panic counts as a failure.
fn faults(op: &str, cases: &Value, arrangement: Arrangement, check: impl Fn(&Value) -> Fault) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, case) in list(&cases["cases"]).iter().enumerate() {
        let result = catch_unwind(AssertUnwindSafe(|| check(case))).unwrap_or_else(|_| Err("panicked".into()));
        if let Err(what) = result {
            let mut args = case["args"].to_string();
            args.truncate(300);
            let note = case["note"].as_str().map_or(String::new(), |n| format!(" ({n})"));
            faults.push(format!("{op} #{number} {arrangement:?} of {args}{note}: {what}"));
        }
    }
    faults
}

fn none_of(faults: &[String]) {
    assert!(faults.is_empty(), "{} cases differ from PyTorch:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_op_agrees_with_pytorch() -> Fault {
    let mut all = Vec::new();
    for (op, cases) in all_cases()? {
        all.extend(faults(op.name, &cases, Arrangement::Plain, |case| check(op, case, Arrangement::Plain)));
    }
    none_of(&all);
    Ok(())
}

/// An infinite cotangent of one element is not multiplied by the 0 of another. Elements whose gradient is NaN in PyTorch are not
/// compared.
#[test]
fn gradients_of_infinite_cotangents_are_those_of_pytorch() -> Fault {
    let cases = named_cases("infinite_cotangents.json")?;
    let mut all = Vec::new();
    for (op, case) in &cases {
        let of_one = serde_json::json!({ "cases": [case] });
        all.extend(faults(op.name, &of_one, Arrangement::Plain, |case| check_known_gradients(op, case)));
    }
    none_of(&all);
    Ok(())
}

/// Infinities, NaN and numbers at the ends of a domain, with their gradients.
#[test]
fn special_values_are_those_of_pytorch() -> Fault {
    let mut all = Vec::new();
    for (op, case) in &named_cases("special_values.json")? {
        let of_one = serde_json::json!({ "cases": [case] });
        all.extend(faults(op.name, &of_one, Arrangement::Plain, |case| check(op, case, Arrangement::Plain)));
    }
    none_of(&all);
    Ok(())
}

#[test]
fn views_of_views_agree_with_pytorch() -> Fault {
    none_of(&faults("chain", &read(&fixtures().join("chains.json"))?, Arrangement::Plain, check_chain));
    Ok(())
}

/// The same values in other places in memory give the same results.
#[test]
fn results_do_not_depend_on_the_layout_of_the_inputs() -> Fault {
    let mut all = Vec::new();
    for (op, cases) in all_cases()?.iter().filter(|(op, _)| !op.reads_layout) {
        for arrangement in [Arrangement::Transposed, Arrangement::Offset, Arrangement::Stepped, Arrangement::Reversed] {
            all.extend(faults(op.name, cases, arrangement, |case| check(op, case, arrangement)));
        }
    }
    none_of(&all);
    Ok(())
}

/// Random numbers are drawn in another order than in PyTorch.
#[test]
fn every_op_has_a_fixture() -> Fault {
    let cases = all_cases()?;
    let has_cases =
        |op: &Op| cases.iter().any(|(known, cases)| known.name == op.name && !list(&cases["cases"]).is_empty());
    let missing: Vec<&str> = tried().into_iter().filter(|op| !op.random && !has_cases(op)).map(|op| op.name).collect();
    assert!(missing.is_empty(), "no fixtures for {missing:?}: add cases to tools/fixture_cases");
    Ok(())
}

/// The dtype of `a + b`, for every pair of dtypes that PyTorch can add. A 0-d tensor is treated like any other, as in the array
/// API, and not as in PyTorch, where it does not widen the other dtype.
#[test]
fn promotion_agrees_with_pytorch() {
    let tables = parse(include_str!("../fixtures/promotion.json"));
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
