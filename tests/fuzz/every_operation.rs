//! Every operation of the list with random arguments: it returns a result or an error with its name, and never panics, aborts or
//! hangs. Only the parameters in the list are known here.
//!
//! `COTANGENT_FUZZ_SEED` and `COTANGENT_FUZZ_ROUNDS` run other and more calls, `COTANGENT_FUZZ_OP` those of one operation.
//! With `COTANGENT_FUZZ_VERBOSE` every call is printed before it is made, so that one that ends the process is known.

use crate::dice;
use crate::random_args;

use cotangent::autograd::{BackwardOptions, GradOptions, grad_with};
use cotangent::ops::{Arg, ArgKind, Op, Sample, list};
use cotangent::{DType, Device, ErrorKind, Generator, Result, Tensor, memory, with_generator};
use dice::{Dice, setting};
use random_args::Args;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Results with at most this many elements are computed and differentiated.
const SMALL: usize = 1 << 20;
/// If there are more results than this, only the last one is differentiated.
const MANY: usize = 64;
/// The memory limit for all tensors.
const LIMIT: usize = 256 << 20;
/// The time limit of a call. A call that exceeds it is reported, and the process ends.
const LONGEST: Duration = Duration::from_secs(60);

/// The running call, for the report when the process ends.
static CURRENT: Mutex<Option<(Instant, String)>> = Mutex::new(None);
static DONE: AtomicBool = AtomicBool::new(false);
/// Where the last panic was.
static PANIC: Mutex<String> = Mutex::new(String::new());

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answered,
    Refused,
    /// The random arguments could not be made, or would take too long.
    Skipped,
}

/// A call with its arguments, by position and by name.
struct Written {
    positional: Vec<Arg>,
    named: Vec<(&'static str, Arg)>,
    has_large: bool,
}

/// The arguments of a call; an error if tensors for it cannot be made.
fn arguments(op: &Op, samples: &[Sample], dice: &Dice, large: usize) -> Result<Written> {
    let mut args = Args::new(dice.clone(), large);
    // A sample with some arguments changed gets further than purely random arguments.
    let sample = if args.dice.percent(40) { Some(args.dice.choose(samples).bind(op)?) } else { None };
    let (mut positional, mut named, mut by_name) = (Vec::new(), Vec::new(), false);
    for (at, param) in op.params().enumerate() {
        let arg = match &sample {
            Some(sample) if args.dice.percent(70) => sample[at].clone(),
            _ => args.of_kind(param.kind)?,
        };
        // From some parameter on by name, and sometimes without those that have a default.
        by_name |= args.dice.percent(20);
        match by_name {
            false => positional.push(arg),
            true if param.default.is_some() && args.dice.percent(40) => {}
            true if args.dice.percent(1) => {}
            true => named.push((param.name, arg)),
        }
    }
    Ok(Written { positional, named, has_large: args.has_large })
}

/// The numbers of elements of the results with `size` instead of the large sizes, and that of the broadcast arguments, if they
/// broadcast.
fn elements(op: &Op, samples: &[Sample], dice: &Dice, size: usize) -> Option<(Vec<usize>, Option<usize>)> {
    let Written { positional, named, .. } = arguments(op, samples, dice, size).ok()?;
    let args = op.bind(&positional, &named).ok()?;
    let results = op.call(&args).ok()?;
    let given: Vec<&Tensor> = args.iter().flat_map(Arg::tensors).collect();
    let broadcast = Tensor::broadcast_tensors(&given).ok().and_then(|all| all.first().map(Tensor::numel));
    Some((results.iter().map(Tensor::numel).collect(), broadcast))
}

/// Whether a call with large tensors ends quickly: there is nothing to compute, or the result is too large to allocate. Tensors
/// larger than memory are one expanded element, so an operation that reads all elements for a small result would take days. This
/// is excluded only if every element of the arguments has a place in the result, and no dimension is reduced.
fn is_quick(op: &Op, samples: &[Sample], dice: &Dice) -> bool {
    if op.params().any(|param| matches!(param.kind, ArgKind::Dim | ArgKind::Dims)) && !op.view {
        return false;
    }
    match (elements(op, samples, dice, 3), elements(op, samples, dice, 4)) {
        (Some((a, given)), Some((b, _))) => {
            op.view || a.iter().zip(&b).all(|(a, b)| a < b && given.is_some_and(|given| *a >= given))
        }
        _ => op.view,
    }
}

/// Makes the call, computes what it returns and differentiates it once or twice.
fn call(op: &Op, written: &Written, dice: &mut Dice) -> Result<Outcome, String> {
    let outcome = op.bind(&written.positional, &written.named).and_then(|args| Ok((op.call(&args)?, args)));
    let (results, args) = match outcome {
        Ok(outcome) => outcome,
        Err(error) if error.op() != op.name || !error.to_string().starts_with(op.name) => {
            return Err(format!("names {:?}: {error}", error.op()));
        }
        Err(_) => return Ok(Outcome::Refused),
    };
    let leaves: Vec<&Tensor> = args.iter().flat_map(Arg::tensors).filter(|x| x.requires_grad()).collect();
    for (at, y) in results.iter().enumerate().filter(|(_, y)| y.numel() <= SMALL) {
        // The shape of the parts of nothing may be too large for an address.
        if y.dtype().is_complex() && y.numel() == 0 {
            continue;
        }
        let values = parts(y).and_then(|y| y.to_dtype(DType::F64)?.to_vec::<f64>()).map_err(|e| e.to_string())?;
        if values.len() != y.numel() * if y.dtype().is_complex() { 2 } else { 1 } {
            return Err(format!("{} values for shape {:?}", values.len(), y.shape()));
        }
        // Each of many parts has a derivative as large as the whole.
        let wanted = y.requires_grad() && (at < MANY || at + 1 == results.len());
        match if wanted { differentiate(y, &leaves, dice) } else { Ok(()) } {
            // The derivative of a large tensor, or intermediate results, may not fit into memory.
            Err(_) if written.has_large => {}
            outcome => outcome?,
        }
    }
    Ok(Outcome::Answered)
}

/// Complex numbers as real and imaginary parts.
fn parts(x: &Tensor) -> cotangent::Result<Tensor> {
    if x.dtype().is_complex() { x.detach().view_as_real() } else { Ok(x.clone()) }
}

/// Whether a derivative was refused because it does not exist, as for eigenvectors of equal eigenvalues, or because intermediate
/// matrices have infinite elements.
fn does_not_exist(error: &cotangent::Error) -> bool {
    let message = error.message();
    message.contains("not finite")
        || error.kind() == ErrorKind::Graph
            && ["does not exist", "no derivative"].iter().any(|words| message.contains(words))
}

fn differentiate(y: &Tensor, leaves: &[&Tensor], dice: &mut Dice) -> Result<(), String> {
    let text = |what: &'static str| move |error: cotangent::Error| format!("{what}: {error}");
    let twice = dice.percent(30);
    let gradient = y.ones_like().map_err(text("the cotangent"))?;
    let options = GradOptions::new().gradient(&gradient).create_graph(twice).retain_graph(true);
    let grads = match grad_with(y, leaves, options) {
        Err(error) if does_not_exist(&error) => return Ok(()),
        grads => grads.map_err(text("the derivative"))?,
    };
    for (leaf, grad) in leaves.iter().zip(&grads) {
        let Some(grad) = grad else { continue };
        if (grad.shape(), grad.dtype()) != (leaf.shape(), leaf.dtype()) {
            let (a, b) = (leaf.shape(), grad.shape());
            return Err(format!("a gradient of {b:?} {} for {a:?} {}", grad.dtype(), leaf.dtype()));
        }
        if grad.numel() > SMALL {
            continue;
        }
        grad.compute().map_err(text("the gradient"))?;
        if twice && grad.requires_grad() {
            let parts = if grad.dtype().is_complex() { grad.view_as_real() } else { Ok(grad.clone()) };
            let second = parts.and_then(|g| g.square()?.sum(..));
            let second = second.and_then(|g| g.backward_with(BackwardOptions::new().retain_graph(true)));
            match second {
                Err(error) if does_not_exist(&error) => {}
                second => second.map_err(text("the second derivative"))?,
            }
            leaves.iter().for_each(|leaf| leaf.zero_grad());
        }
    }
    Ok(())
}

fn described(op: &Op, call: &Written, round: u64) -> String {
    let one = |arg: &Arg| match arg {
        Arg::Tensor(x) => {
            let grad = if x.requires_grad() { " grad" } else { "" };
            format!("{}{:?} strides {:?}{grad}", x.dtype(), x.shape(), x.strides())
        }
        other => other.to_string(),
    };
    let positional = call.positional.iter().map(one);
    let named = call.named.iter().map(|(name, arg)| format!("{name} = {}", one(arg)));
    format!("round {round}: {}({})", op.name, positional.chain(named).collect::<Vec<_>>().join(", "))
}

/// Ends the process if a call takes too long, which no test can end otherwise.
fn watch() {
    while !DONE.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if let Some((start, call)) = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
            && start.elapsed() > LONGEST
        {
            // Bypassing the harness, which would capture the output.
            let _ = writeln!(std::io::stderr(), "a call goes on for more than {LONGEST:?}: {call}");
            std::process::exit(1);
        }
    }
}

#[test]
fn every_operation_answers_or_refuses_whatever_it_is_given() {
    let (seed, rounds) = (setting("COTANGENT_FUZZ_SEED", 1), setting("COTANGENT_FUZZ_ROUNDS", 700));
    let only = std::env::var("COTANGENT_FUZZ_OP").ok();
    let verbose = std::env::var("COTANGENT_FUZZ_VERBOSE").is_ok();
    memory::set_limit(Device::Cpu, Some(LIMIT)).expect("there is a CPU");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| *PANIC.lock().expect("no thread has panicked") = info.to_string()));
    let watchdog = std::thread::spawn(watch);
    let mut faults = Vec::new();
    for (at, op) in list().iter().enumerate().filter(|(_, op)| only.as_ref().is_none_or(|only| op.name == only)) {
        let samples = op.samples().unwrap_or_else(|e| panic!("the samples of {} cannot be made: {e}", op.name));
        let (mut answers, mut refusals) = (0_usize, 0_usize);
        for round in 0..rounds {
            let mut dice = Dice::new(seed, round, at as u64);
            let start = Instant::now();
            let set = |call: String| {
                if verbose {
                    eprintln!("{call}");
                }
                *CURRENT.lock().expect("no thread has panicked") = Some((start, call));
            };
            set(format!("round {round}: {} with arguments in the making", op.name));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let large = dice.choose(&[1 << 36, 1 << 40, 1 << 54]);
                let Ok(written) = arguments(op, &samples, &dice, large) else { return Ok(Outcome::Skipped) };
                if written.has_large && !is_quick(op, &samples, &dice) {
                    return Ok(Outcome::Skipped);
                }
                let described = described(op, &written, round);
                set(described.clone());
                with_generator(&mut Generator::seed(round), || call(op, &written, &mut dice))
                    .map_err(|fault| format!("{described}: {fault}"))
            }));
            match outcome {
                Ok(Ok(outcome)) => {
                    answers += usize::from(outcome == Outcome::Answered);
                    refusals += usize::from(outcome == Outcome::Refused);
                }
                Ok(Err(fault)) => faults.push(fault),
                Err(_) => {
                    let (call, panic) = (CURRENT.lock().expect("no panic"), PANIC.lock().expect("no panic"));
                    faults.push(format!("{}: panicked: {panic}", call.as_ref().map_or("", |(_, call)| call)));
                }
            }
        }
        println!("{answers:6} answers, {refusals:6} refusals: {}", op.name);
        if rounds >= 100 && (answers < 5 || refusals == 0) {
            faults.push(format!("{}: {answers} answers and {refusals} refusals prove little", op.name));
        }
    }
    DONE.store(true, Ordering::Relaxed);
    watchdog.join().expect("the watchdog does not panic");
    std::panic::set_hook(hook);
    assert!(faults.is_empty(), "{} faults, seed {seed}:\n{}", faults.len(), faults.join("\n"));
}
