//! Every operation of the list inside of a `vmap`, against a loop over the examples.

use super::Outcome;
use crate::checks::{both, tried};
use cotangent::autograd::{GradOptions, grad_with};
use cotangent::ops::{Arg, Derivative, Op};
use cotangent::{
    DType, Result, Tensor, tensor,
    vmap::{VmapFallback, VmapOptions, vmap_all, vmap_with},
};
use std::collections::{BTreeMap, BTreeSet};

const EXAMPLES: usize = 3;

/// Operations that run once for each example, at least for some arguments, and why.
const LOOPS: &[(&str, &str)] = &[
    ("as_strided_scatter", "it is about memory"),
    ("bincount", "a length that depends on the values"),
    ("cross_entropy", "class weights of each example"),
    ("ctc_loss", "it reads the lengths"),
    ("histc", "bounds that depend on the values"),
    ("histogram", "bounds that depend on the values"),
    ("histogramdd", "bounds that depend on the values"),
    ("index", "a mask of each example"),
    ("index_put", "a mask of each example"),
    ("linear_cross_entropy", "class weights of each example"),
    ("masked_scatter", "a mask of each example"),
    ("masked_select", "a mask of each example"),
    ("nll_loss", "class weights of each example"),
    ("nonzero", "a length that depends on the values"),
    ("nonzero_static", "made of nonzero"),
    ("one_hot", "a number of classes that depends on the values, where none is given"),
    ("repeat_interleave", "a length that depends on the values"),
    ("unique", "a length that depends on the values"),
    ("unique_all", "a length that depends on the values"),
    ("unique_consecutive", "a length that depends on the values"),
    ("unique_consecutive_all", "a length that depends on the values"),
    ("unique_counts", "a length that depends on the values"),
    ("unique_inverse", "a length that depends on the values"),
    ("unique_values", "a length that depends on the values"),
];

/// Operations whose samples cannot be compared.
const UNCOMPARED: [&str; 0] = [];

/// Operations on shared tensors whose backward rule runs once for each batched cotangent, and why.
const RULE_LOOPS: &[(&str, &str)] = &[("as_strided_scatter", "it is about memory")];

/// Operations with optional results, which are empty vectors if missing. With 0 examples they look like any other result.
const MAY_BE_MISSING: [&str; 3] = ["linalg_lstsq", "linalg_lu", "linalg_qr"];

/// A tensor for one example: close to the sample's, and different for each example. Indices and masks are permutations of the
/// sample's, so that they are in range and select the same number of elements.
fn example(x: &Tensor, at: usize) -> Result<Tensor> {
    match x.dtype() {
        DType::F64 => x.mul(1.0 - 0.01 * at as f64),
        dtype if dtype.is_complex() || x.numel() < 2 => Ok(x.clone()),
        _ => x.flatten(0, -1)?.roll(at as isize, 0)?.reshape(x.shape()),
    }
}

/// The same arguments with other tensors.
fn fill(args: &[Arg], tensors: &[Tensor]) -> Result<Vec<Arg>> {
    let mut next = tensors.iter();
    let mut swap = |x: &Tensor| Ok(next.next().unwrap_or(x).clone());
    args.iter().map(|arg| arg.map_tensors(&mut swap)).collect()
}

fn real(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { x.view_as_real() } else { Ok(x.clone()) }
}

fn close(a: &Tensor, b: &Tensor) -> Result<bool> {
    Ok(a.shape() == b.shape() && real(a)?.allclose_with(&real(b)?, (1e-9, 1e-9))? || {
        let (a, b) = (real(a)?.to_vec_f64()?, real(b)?.to_vec_f64()?);
        a.len() == b.len()
            && a.iter()
                .zip(&b)
                .all(|(x, y)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-9 * (1.0 + y.abs()))
    })
}

trait Values {
    fn to_vec_f64(&self) -> Result<Vec<f64>>;
}

impl Values for Tensor {
    fn to_vec_f64(&self) -> Result<Vec<f64>> {
        self.to_dtype(DType::F64)?.to_vec()
    }
}

/// A number that depends on every element of some results, each in its own way.
fn weighed(results: &[Tensor]) -> Result<Option<Tensor>> {
    let mut total: Option<Tensor> = None;
    for y in results.iter().filter(|y| y.requires_grad()) {
        let y = real(y)?.to_dtype(DType::F64)?;
        let weights = Tensor::arange(1, y.numel() + 1)?.to_dtype(DType::F64)?.mul(0.7)?.sin()?.reshape(y.shape())?;
        let sum = y.mul(&weights)?.sum(..)?;
        total = Some(match total {
            Some(total) => total.add(&sum)?,
            None => sum,
        });
    }
    Ok(total)
}

/// Failures of operations inside of a `vmap`, and the operations that ran once for each example.
#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    /// By name, with one of the calls.
    loops: BTreeMap<&'static str, String>,
    /// The operations that were compared with a loop.
    compared: BTreeSet<&'static str>,
}

impl Findings {
    /// The result of `f` with loops refused, or else with a loop, and whether there was a loop.
    fn run<T>(
        &mut self,
        op: &'static Op,
        args: &[Arg],
        options: &VmapOptions,
        f: impl Fn(VmapOptions) -> Result<T>,
    ) -> (Result<T>, bool) {
        match f(options.clone().fallback(VmapFallback::Refuse)) {
            Err(error) if error.to_string().contains("no batching rule") => {
                let args: Vec<String> = args.iter().map(Arg::to_string).collect();
                self.loops.entry(op.name).or_insert_with(|| format!("({}), {options:?}: {error}", args.join(", ")));
                (f(options.clone()), true)
            }
            done => (done, false),
        }
    }

    /// An operation that loops but is not listed is a failure. If all operations are tested, so is one that is listed but does not
    /// loop.
    fn assert_none(self, known: &[(&str, &str)], all: bool) {
        let Findings { mut faults, loops, .. } = self;
        let stale = known.iter().filter(|(name, _)| all && is_asked(name) && !loops.contains_key(name));
        faults.extend(stale.map(|(name, _)| format!("{name} is said to loop, and does not")));
        let unknown = loops.into_iter().filter(|(name, _)| !known.iter().any(|(known, _)| known == name));
        faults.extend(unknown.map(|(name, call)| format!("{name} has no batching rule for {call}")));
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    }
}

/// Compares an operation inside of a `vmap` with a loop, for all samples. `which` says whether a tensor is batched, from the tensor
/// and its position among the floats or among the others.
fn calls(op: &'static Op, which: impl Fn(&Tensor, usize) -> bool, findings: &mut Findings) -> Result<()> {
    for (number, sample) in op.samples()?.iter().enumerate() {
        let args = sample.bind(op)?;
        let tensors: Vec<Tensor> = args.iter().flat_map(Arg::tensors).cloned().collect();
        let is_float = |x: &Tensor| x.dtype() == DType::F64;
        let place = |at: usize| tensors[..at].iter().filter(|x| is_float(x) == is_float(&tensors[at])).count();
        let differs: Vec<bool> = (0..tensors.len()).map(|at| which(&tensors[at], place(at))).collect();
        if !differs.contains(&true) {
            continue;
        }
        let of = |at: usize| -> Result<Vec<Tensor>> {
            tensors.iter().zip(&differs).map(|(x, &own)| if own { example(x, at) } else { Ok(x.clone()) }).collect()
        };
        let each: Vec<Vec<Tensor>> = (0..EXAMPLES).map(of).collect::<Result<_>>()?;
        let column = |k: usize| Tensor::stack(&each.iter().map(|all| all[k].clone()).collect::<Vec<_>>(), 0);
        let stacked: Vec<Tensor> = (0..tensors.len())
            .map(|k| if differs[k] { column(k) } else { Ok(tensors[k].clone()) })
            .collect::<Result<_>>()?;
        let refs: Vec<&Tensor> = stacked.iter().collect();
        let in_dims: Vec<Option<isize>> = differs.iter().map(|&own| own.then_some(0)).collect();
        let options = VmapOptions::new().in_dims(in_dims.clone());
        let fault = |what: &str| format!("{} sample {number} ({differs:?} batched): {what}", op.name);
        let call = |x: &[Tensor]| op.call(&fill(&args, x)?);
        // Values. In another order arguments may be none of the operation's.
        let Ok(expected) = each.iter().map(|x| call(x)).collect::<Result<Vec<Vec<Tensor>>>>() else { continue };
        let expected = match together(&expected) {
            Some(expected) => expected?,
            None => continue,
        };
        let (found, loops) = findings.run(op, &args, &options, |options| vmap_all(call, &refs, options));
        match found {
            Ok(found) => {
                findings.compared.insert(op.name);
                for (k, (y, want)) in both(found.iter(), &expected).enumerate() {
                    if !close(y, want)? {
                        findings.faults.push(fault(&format!("result {k} is {y:?}, not {want:?}")));
                    }
                }
            }
            Err(error) => {
                findings.faults.push(fault(&error.to_string()));
                continue;
            }
        }
        if !loops {
            // An empty batch, and nested batches.
            let none: Vec<Tensor> = stacked
                .iter()
                .zip(&differs)
                .map(|(x, &own)| if own { x.narrow(0, 0, 0) } else { Ok(x.clone()) })
                .collect::<Result<_>>()?;
            match vmap_all(call, &none.iter().collect::<Vec<_>>(), options.clone()) {
                Err(error) => findings.faults.push(fault(&format!("no examples: {error}"))),
                Ok(found) => {
                    for (y, want) in both(found.iter(), &expected) {
                        let missing = y.shape() == [0] && MAY_BE_MISSING.contains(&op.name);
                        if !missing && (y.shape()[0] != 0 || y.shape()[1..] != want.shape()[1..]) {
                            findings.faults.push(fault(&format!(
                                "no examples give {:?}, not {:?}",
                                y.shape(),
                                want.shape()
                            )));
                        }
                    }
                }
            }
            let twice =
                |x: &Tensor, own: bool| if own { Tensor::stack(&[x.clone(), x.flip(0)?], 0) } else { Ok(x.clone()) };
            let pairs: Vec<Tensor> =
                stacked.iter().zip(&differs).map(|(x, &own)| twice(x, own)).collect::<Result<_>>()?;
            let inner = |x: &[Tensor]| vmap_all(call, &x.iter().collect::<Vec<_>>(), options.clone());
            match vmap_all(inner, &pairs.iter().collect::<Vec<_>>(), options.clone()) {
                Err(error) => findings.faults.push(fault(&format!("nested: {error}"))),
                Ok(found) => {
                    for (k, (y, want)) in both(found.iter(), &expected).enumerate() {
                        if !close(y, &twice(want, true)?)? {
                            findings.faults.push(fault(&format!("nested, result {k} is {y:?}")));
                        }
                    }
                }
            }
        }
        if op.derivative != Derivative::Rule || op.random || sample.has_zero_derivative() {
            continue;
        }
        // Derivatives inside are those of a loop for each example, also with respect to shared tensors.
        let floats: Vec<usize> = (0..tensors.len()).filter(|&k| is_float(&tensors[k])).collect();
        let derivative = |inputs: &[Tensor]| -> Result<Vec<Tensor>> {
            let mut all = inputs.to_vec();
            for &k in &floats {
                all[k] = all[k].detach().requires_grad_(true)?;
            }
            let Some(total) = weighed(&call(&all)?)? else { return Ok(Vec::new()) };
            let leaves: Vec<&Tensor> = floats.iter().map(|&k| &all[k]).collect();
            let grads = grad_with(&total, &leaves, GradOptions::new())?;
            grads.into_iter().zip(leaves).map(|(g, leaf)| g.map_or_else(|| leaf.zeros_like(), Ok)).collect()
        };
        let Ok(expected) = each.iter().map(|inputs| derivative(inputs)).collect::<Result<Vec<_>>>() else { continue };
        let Some(wanted) = together(&expected).transpose()? else { continue };
        match findings.run(op, &args, &options, |options| vmap_all(derivative, &refs, options)).0 {
            Ok(found) => {
                for (k, (g, want)) in both(found.iter(), &wanted).enumerate() {
                    if !close(g, want)? {
                        findings.faults.push(fault(&format!("derivative {k} inside is {g:?}, not {want:?}")));
                    }
                }
            }
            Err(error) => {
                findings.faults.push(fault(&format!("the derivative inside: {error}")));
                continue;
            }
        }
        // From outside the sum over examples is differentiated, also by what they share.
        let mut all = stacked.clone();
        for &k in &floats {
            all[k] = all[k].detach().requires_grad_(true)?;
        }
        let leaves: Vec<&Tensor> = floats.iter().map(|&k| &all[k]).collect();
        let total = vmap_with(
            |x| weighed(&call(x)?)?.map_or_else(|| Tensor::zeros_with([], DType::F64), Ok),
            &all.iter().collect::<Vec<_>>(),
            options,
        )?;
        if !total.requires_grad() {
            continue;
        }
        let grads = match grad_with(&total.sum(..)?, &leaves, GradOptions::new()) {
            Ok(grads) => grads,
            Err(error) => {
                findings.faults.push(fault(&format!("the derivative from outside: {error}")));
                continue;
            }
        };
        for (k, (g, want)) in both(grads.iter(), &wanted).enumerate() {
            let want = if differs[floats[k]] { want.clone() } else { want.sum(0)? };
            let g = g.clone().map_or_else(|| want.zeros_like(), Ok)?;
            if !close(&g, &want)? {
                findings.faults.push(fault(&format!("derivative {k} from outside is {g:?}, not {want:?}")));
            }
        }
    }
    Ok(())
}

/// The results of all examples, each in one tensor; `None` if their shapes differ.
fn together(each: &[Vec<Tensor>]) -> Option<Result<Vec<Tensor>>> {
    let shapes = |all: &[Tensor]| all.iter().map(|x| x.shape().to_vec()).collect::<Vec<_>>();
    if each.iter().any(|all| shapes(all) != shapes(&each[0])) {
        return None;
    }
    let column = |k: usize| Tensor::stack(&each.iter().map(|all| all[k].clone()).collect::<Vec<_>>(), 0);
    Some((0..each[0].len()).map(column).collect())
}

/// The operations of the list, or those in `COTANGENT_TEST_OPS`, except random draws and those that read the memory layout, which
/// differ from a loop.
fn asked() -> impl Iterator<Item = &'static Op> {
    tried().into_iter().filter(|op| !op.random && !op.reads_layout)
}

fn is_asked(name: &str) -> bool {
    tried().iter().any(|op| op.name == name)
}

/// Tests every operation with these tensors batched. One that loops but is not listed is a failure.
fn every_operation(all: bool, which: impl Fn(&Tensor, usize) -> bool + Copy) -> Outcome {
    let mut findings = Findings::default();
    for op in asked() {
        calls(op, which, &mut findings).map_err(|error| format!("{}: {error}", op.name))?;
        if all && !findings.compared.contains(op.name) && takes_tensors(op)? && !UNCOMPARED.contains(&op.name) {
            findings.faults.push(format!("{}: no sample was compared with a loop", op.name));
        }
    }
    findings.assert_none(LOOPS, all);
    Ok(())
}

/// Whether a sample has a tensor that can be batched.
fn takes_tensors(op: &Op) -> Result<bool> {
    for sample in op.samples()? {
        if sample.bind(op)?.iter().flat_map(Arg::tensors).any(|x| !x.dtype().is_complex()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_float(x: &Tensor) -> bool {
    x.dtype() == DType::F64
}

#[test]
fn every_operation_on_batched_tensors() -> Outcome {
    every_operation(false, |x, _| is_float(x))
}

#[test]
fn every_operation_with_the_first_tensor_batched() -> Outcome {
    every_operation(false, |x, k| is_float(x) && k == 0)
}

#[test]
fn every_operation_with_the_second_tensor_batched() -> Outcome {
    every_operation(false, |x, k| is_float(x) && k == 1)
}

#[test]
fn every_operation_with_indices_and_masks_batched() -> Outcome {
    every_operation(false, |x, _| !is_float(x) && !x.dtype().is_complex())
}

#[test]
fn every_operation_with_everything_batched() -> Outcome {
    every_operation(true, |x, _| !x.dtype().is_complex())
}

/// Derivatives of operations on what all examples share, by cotangents that differ between them.
#[test]
fn every_derivative_of_batched_cotangents() -> Outcome {
    let mut findings = Findings::default();
    let factors = tensor!([1.0_f64, 2.0, -3.0])?;
    for op in asked() {
        for (number, sample) in op.samples()?.iter().enumerate() {
            if op.derivative != Derivative::Rule || sample.has_zero_derivative() {
                continue;
            }
            let args = sample.bind(op)?;
            let mut tensors: Vec<Tensor> = args.iter().flat_map(Arg::tensors).cloned().collect();
            for x in tensors.iter_mut().filter(|x| is_float(x)) {
                *x = x.detach().requires_grad_(true)?;
            }
            let leaves: Vec<&Tensor> = tensors.iter().filter(|x| is_float(x)).collect();
            let derivative = |factor: &Tensor| -> Result<Vec<Tensor>> {
                let Some(total) = weighed(&op.call(&fill(&args, &tensors)?)?)? else { return Ok(Vec::new()) };
                let grads = grad_with(&total.mul(factor)?, &leaves, GradOptions::new())?;
                grads.into_iter().zip(&leaves).map(|(g, leaf)| g.map_or_else(|| leaf.zeros_like(), Ok)).collect()
            };
            let each = factors.unbind(0)?;
            let Ok(expected) = each.iter().map(derivative).collect::<Result<Vec<_>>>() else { continue };
            let Some(wanted) = together(&expected).transpose()? else { continue };
            let run = |options| vmap_all(|factor| derivative(&factor[0]), &[&factors], options);
            match findings.run(op, &args, &VmapOptions::new(), run).0 {
                Err(error) => findings.faults.push(format!("{} sample {number}: {error}", op.name)),
                Ok(found) => {
                    findings.compared.insert(op.name);
                    for (k, (g, want)) in both(found.iter(), &wanted).enumerate() {
                        if !close(g, want)? {
                            let what = format!("derivative {k} is {g:?}, not {want:?}");
                            findings.faults.push(format!("{} sample {number}: {what}", op.name));
                        }
                    }
                }
            }
        }
    }
    for op in asked().filter(|op| op.derivative == Derivative::Rule && !findings.compared.contains(op.name)) {
        findings.faults.push(format!("{}: no derivative was compared with a loop", op.name));
    }
    findings.assert_none(RULE_LOOPS, true);
    Ok(())
}
