//! Operations on batched tensors, inside of a `vmap`.
//!
//! Most need nothing: their bodies consist of other operations, formulas and reductions, which handle batches. Those with the
//! flag `batch` treat all leading dimensions alike, and get the examples as a first dimension. All others reach a kernel, which
//! refuses batches. They are called once for each example.

use super::{Arg, ArgKind, Op};
use crate::error::{bail, named};
use crate::random::{rng_state, set_rng_state};
use crate::tensor::batch::{Level, Running, VmapRandomness, innermost, outside, report, running};
use crate::{ErrorKind, Result, Scalar, Tensor};

/// Calls an operation with batched arguments; `None` if the call needs no special treatment.
pub(crate) fn intercept(op: &Op, args: &[Arg]) -> Option<Result<Vec<Tensor>>> {
    if op.random
        && let Some(running) = running()
    {
        return Some(named(op.name, random(op, args, running)));
    }
    let level = innermost(args.iter().flat_map(Arg::tensors))?;
    Some(named(op.name, call(op, args, level)))
}

/// Calls an operation, batched or not.
fn again(op: &Op, args: &[Arg]) -> Result<Vec<Tensor>> {
    intercept(op, args).unwrap_or_else(|| (op.call)(args))
}

fn call(op: &Op, args: &[Arg], level: Level) -> Result<Vec<Tensor>> {
    if op.batch
        && let Some(args) = with_leading_batch(op, args, level)?
    {
        // A result that was not asked for is an empty vector, whatever the batch size.
        let missing = |result: &Tensor| result.shape() == [0] && level.size != 0;
        let all = again(op, &args)?;
        return all.iter().map(|x| if missing(x) { Ok(x.clone()) } else { x.batch(level) }).collect();
    }
    match (op.call)(args) {
        Err(error) if error.kind() == ErrorKind::Batched => one_by_one(op, args, level, false),
        done => done,
    }
}

/// The arguments with the examples as a first dimension of every tensor, and with dimension arguments shifted accordingly; `None`
/// if the ranks of the tensors differ, or a dimension is out of range.
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
            // Without a dimension most operations use all elements.
            (ArgKind::Dim | ArgKind::Dims, Arg::None) => return Ok(None),
            (_, arg) => arg.map_tensors(|x| x.unbatch(level))?,
        };
        all.push(arg);
    }
    Ok(Some(all))
}

/// Calls the operation once for each example. With `same` each call starts from the same random state.
fn one_by_one(op: &Op, args: &[Arg], level: Level, same: bool) -> Result<Vec<Tensor>> {
    report(op.name, level)?;
    if level.size == 0 {
        bail!(Shape, op.name, "a batch of 0 examples is not supported without a batching rule");
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
            Some(other) => bail!(
                Shape,
                op.name,
                "results of all examples must have one shape, got shapes {first:?} and {:?}",
                other.shape()
            ),
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

/// An operation that draws random numbers.
fn random(op: &Op, args: &[Arg], inside: Running) -> Result<Vec<Tensor>> {
    // Dropout in evaluation mode draws nothing.
    let evaluates = op
        .params()
        .zip(args)
        .any(|(param, arg)| param.name == "training" && matches!(arg, Arg::Scalar(Scalar::Bool(false))));
    match if evaluates { VmapRandomness::Same } else { inside.randomness } {
        VmapRandomness::Refuse => {
            bail!(Value, op.name, "random numbers inside vmap: set VmapOptions::randomness to Same or Different")
        }
        VmapRandomness::Same => outside(|| match innermost(args.iter().flat_map(Arg::tensors)) {
            Some(level) => match (op.call)(args) {
                Err(error) if error.kind() == ErrorKind::Batched => one_by_one(op, args, level, true),
                done => done,
            },
            None => again(op, args),
        }),
        VmapRandomness::Different => outside(|| one_by_one(op, args, inside.level, false)),
    }
}
