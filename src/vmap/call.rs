//! What happens to an operation that is given batched tensors.
//!
//! Most need nothing: their bodies are made of other operations, of formulas and of reductions, which know batches. Those with
//! the flag `batch` treat dimensions they are not told of alike, and get the examples as a first one. All others meet a
//! kernel, which refuses batches; they are called for each example by itself.

use super::{Level, RUNNING, Running, VmapFallback, VmapRandomness, innermost, running};
use crate::autograd::Grads;
use crate::error::{bail, named};
use crate::ops::{Arg, ArgKind, Op};
use crate::random::{rng_state, set_rng_state};
use crate::{Error, ErrorKind, Result, Scalar, Tensor};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The results of an operation with batched arguments; `None` if there is nothing special about the call.
pub(crate) fn intercept(op: &Op, args: &[Arg]) -> Option<Result<Vec<Tensor>>> {
    if op.random
        && let Some(running) = running()
    {
        return Some(named(op.name, random(op, args, running)));
    }
    let level = innermost(args.iter().flat_map(Arg::tensors))?;
    Some(named(op.name, call(op, args, level)))
}

/// The call in the way that fits its arguments.
fn again(op: &Op, args: &[Arg]) -> Result<Vec<Tensor>> {
    intercept(op, args).unwrap_or_else(|| (op.call)(args))
}

fn call(op: &Op, args: &[Arg], level: Level) -> Result<Vec<Tensor>> {
    if op.batch
        && let Some(args) = with_leading_batch(op, args, level)?
    {
        // A result that was not asked for is an empty vector, whatever the batch.
        let missing = |result: &Tensor| result.shape() == [0] && level.size != 0;
        let all = again(op, &args)?;
        return all.iter().map(|x| if missing(x) { Ok(x.clone()) } else { x.batch(level) }).collect();
    }
    match (op.call)(args) {
        Err(error) if error.kind() == ErrorKind::Batched => one_by_one(op, args, level, false),
        done => done,
    }
}

/// The arguments with the examples as a first dimension of every tensor, and with dimensions that are counted from there;
/// `None` if the tensors have different ranks, or a dimension is none of theirs.
fn with_leading_batch(op: &Op, args: &[Arg], level: Level) -> Result<Option<Vec<Arg>>> {
    let mut ranks = args.iter().flat_map(Arg::tensors).map(Tensor::rank);
    let Some(rank) = ranks.next().filter(|&rank| rank > 0) else { return Ok(None) };
    if ranks.any(|other| other != rank) {
        return Ok(None);
    }
    let own = -(rank as isize)..rank as isize;
    let shifted = |dim: isize| own.contains(&dim).then_some(if dim < 0 { dim } else { dim + 1 });
    let mut all = Vec::with_capacity(args.len());
    for (param, arg) in op.params().zip(args) {
        let arg = match (param.kind, arg) {
            (ArgKind::Dim | ArgKind::Dims, Arg::Scalar(Scalar::I64(dim))) => match shifted(*dim as isize) {
                Some(dim) => Arg::from(dim),
                None => return Ok(None),
            },
            (ArgKind::Dims, Arg::Ints(dims)) => {
                match dims.iter().map(|&dim| shifted(dim)).collect::<Option<Vec<_>>>() {
                    Some(dims) => Arg::Ints(dims),
                    None => return Ok(None),
                }
            }
            // Without a dimension most look at all elements.
            (ArgKind::Dim | ArgKind::Dims, Arg::None) => return Ok(None),
            (_, arg) => arg.map_tensors(|x| x.unbatch(level))?,
        };
        all.push(arg);
    }
    Ok(Some(all))
}

/// The operation for each example by itself. With `same` each starts from the same random state.
fn one_by_one(op: &Op, args: &[Arg], level: Level, same: bool) -> Result<Vec<Tensor>> {
    report(op.name, level)?;
    if level.size == 0 {
        bail!(Shape, op.name, "without a batching rule, a batch of 0 examples has no result");
    }
    // Every argument for every example.
    let mut columns = Vec::with_capacity(args.len());
    for arg in args {
        columns.push(examples(arg, level)?);
    }
    let state = rng_state();
    let mut results: Vec<Vec<Tensor>> = Vec::new();
    for at in 0..level.size {
        if same {
            set_rng_state(state);
        }
        let args: Vec<Arg> = columns.iter().map(|column| column[at % column.len()].clone()).collect();
        for (k, result) in again(op, &args)?.into_iter().enumerate() {
            if results.len() <= k {
                results.resize_with(k + 1, Vec::new);
            }
            results[k].push(result);
        }
    }
    let together = |all: &Vec<Tensor>| {
        let first = all[0].shape();
        match all.iter().find(|other| other.shape() != first || all.len() != level.size) {
            Some(other) => bail!(Shape, op.name, "examples give results of shapes {first:?} and {:?}", other.shape()),
            None => Tensor::stack(all, 0)?.batch(level),
        }
    };
    results.iter().map(together).collect()
}

/// One argument for each example; a single one, if it is the same for all.
fn examples(arg: &Arg, level: Level) -> Result<Vec<Arg>> {
    let differs = |x: &Tensor| x.requires_grad() || innermost([x]).is_some_and(|own| own.number >= level.number);
    if !arg.tensors().into_iter().any(differs) {
        return Ok(vec![arg.clone()]);
    }
    let mut parts = Vec::new();
    for x in arg.tensors() {
        parts.push(x.unbatch(level)?.unbind(0)?);
    }
    let example = |at: usize| {
        let mut next = parts.iter();
        arg.map_tensors(|x| Ok(next.next().map_or_else(|| x.clone(), |part| part[at].clone())))
    };
    (0..level.size).map(example).collect()
}

/// What the rule of a derivative gives for batched cotangents that its kernel refused: called for each example by itself. That
/// is what happens to an operation on tensors that all examples share. `refused` is the error, where nothing else helps.
pub(crate) fn rule_by_example(
    op: &str,
    cotangents: &[Option<Tensor>],
    refused: Error,
    rule: &dyn Fn(&[Option<Tensor>]) -> Result<Grads>,
) -> Result<Grads> {
    let Some(level) = innermost(cotangents.iter().flatten()).filter(|level| level.size > 0) else {
        return Err(refused);
    };
    report(op, level)?;
    let mut columns = Vec::with_capacity(cotangents.len());
    for g in cotangents {
        columns.push(g.as_ref().map(|g| g.unbatch(level)?.unbind(0)).transpose()?);
    }
    let mut each: Vec<Grads> = Vec::with_capacity(level.size);
    for at in 0..level.size {
        let own: Vec<Option<Tensor>> = columns.iter().map(|all| all.as_ref().map(|all| all[at].clone())).collect();
        let grads = match rule(&own) {
            Err(error) if error.kind() == ErrorKind::Batched => rule_by_example(op, &own, error, rule)?,
            done => done?,
        };
        // What the rule has saved is of all examples, too: then this is not the gradient of one.
        if grads.iter().flatten().any(|g| g.batch_dim(level).is_some()) {
            return Err(refused);
        }
        each.push(grads);
    }
    let together = |k: usize| {
        let all: Option<Vec<Tensor>> = each.iter().map(|grads| grads[k].clone()).collect();
        all.map(|all| Tensor::stack(&all, 0)?.batch(level)).transpose()
    };
    (0..each[0].len()).map(together).collect()
}

/// Says that there is no batching rule, where that was asked for.
fn report(op: &str, level: Level) -> Result<()> {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let found =
        RUNNING.with_borrow(|all| all.iter().find(|one| one.level.number == level.number).map(|one| one.fallback));
    match found {
        Some(VmapFallback::Refuse) => {
            bail!(Value, op.to_string(), "there is no batching rule: it would run for each example by itself")
        }
        Some(VmapFallback::Warn) if REPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(op.to_string()) => {
            eprintln!("vmap: {op} has no batching rule, and runs for each example by itself");
        }
        _ => {}
    }
    Ok(())
}

/// An operation that draws numbers.
fn random(op: &Op, args: &[Arg], inside: Running) -> Result<Vec<Tensor>> {
    let outside = |f: &dyn Fn() -> Result<Vec<Tensor>>| {
        let taken = RUNNING.with_borrow_mut(Vec::pop);
        let _back = Back(taken);
        f()
    };
    // Dropout in evaluation mode draws nothing.
    let evaluates = op
        .params()
        .zip(args)
        .any(|(param, arg)| param.name == "training" && matches!(arg, Arg::Scalar(Scalar::Bool(false))));
    match if evaluates { VmapRandomness::Same } else { inside.randomness } {
        VmapRandomness::Refuse => bail!(
            Value,
            op.name,
            "random numbers inside vmap: say with VmapOptions::randomness whether all examples get the same"
        ),
        VmapRandomness::Same => outside(&|| match innermost(args.iter().flat_map(Arg::tensors)) {
            Some(level) => match (op.call)(args) {
                Err(error) if error.kind() == ErrorKind::Batched => one_by_one(op, args, level, true),
                done => done,
            },
            None => again(op, args),
        }),
        VmapRandomness::Different => outside(&|| one_by_one(op, args, inside.level, false)),
    }
}

/// Refuses draws from a generator of the user's own, unless all examples are to get the same numbers: only the generator of
/// the thread can be asked for others.
pub(crate) fn check_own_generator(op: &'static str) -> Result<()> {
    match running().map(|running| running.randomness) {
        None | Some(VmapRandomness::Same) => Ok(()),
        Some(asked) => bail!(
            Value,
            op,
            "a Generator inside vmap gives all examples the same numbers, and VmapRandomness is {asked:?}: use the \
             methods of Tensor, or VmapRandomness::Same"
        ),
    }
}

/// Puts a `vmap` back among those that are running.
struct Back(Option<Running>);

impl Drop for Back {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            RUNNING.with_borrow_mut(|all| all.push(running));
        }
    }
}
