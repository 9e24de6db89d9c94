//! Random programs of creation, views, changes in place, operations, copies, passes and threads against a plain model in
//! which nothing is shared, deferred or strided.
//!
//! `COTANGENT_FUZZ_SEED` and `COTANGENT_FUZZ_PROGRAMS` run others and more.

mod compute;
use crate::checks::both;
use crate::dice;
mod model;
mod steps;
mod tape;

use cotangent::{Tensor, settings::with_num_threads};
use dice::{Dice, setting};
use model::{Fault, Model, Plain};
use steps::{Move, Outcome, Size, random_move, take};

/// The number of steps of a program; steps in threads are not included.
const STEPS: usize = 40;

#[derive(Default)]
struct Counts {
    steps: usize,
    unclear: usize,
    refused: usize,
    threads: usize,
}

struct Program {
    dice: Dice,
    size: Size,
    model: Model,
    tensors: Vec<Tensor>,
    slots: Vec<Plain>,
    /// The steps so far, for messages.
    log: Vec<String>,
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + b.abs())
}

/// The values of a tensor agree with the model's.
fn check(model: &Model, tensor: &Tensor, plain: &Plain) -> Result<(), String> {
    if tensor.shape() != plain.shape || tensor.requires_grad() != plain.tracks {
        let (a, b) = (tensor.shape(), &plain.shape);
        let (c, d) = (tensor.requires_grad(), plain.tracks);
        return Err(format!("shape {a:?} instead of {b:?}, requires a gradient: {c} instead of {d}"));
    }
    let (found, wanted) = (tensor.to_vec::<f64>().map_err(|e| e.to_string())?, model.values(plain));
    if !found.iter().zip(&wanted).all(|(&a, &b)| close(a, b)) {
        return Err(format!("{found:?} instead of {wanted:?}"));
    }
    Ok(())
}

/// The gradient of a leaf agrees with the model's.
fn check_grad(model: &Model, tensor: &Tensor, plain: &Plain) -> Result<(), String> {
    let zeros = || vec![0.0; tensor.numel()];
    let found = tensor.grad().map(|grad| grad.to_vec::<f64>()).transpose().map_err(|e| e.to_string())?;
    let (found, wanted) = (found.unwrap_or_else(zeros), model.grad(plain).cloned().unwrap_or_else(zeros));
    if !found.iter().zip(&wanted).all(|(&a, &b)| close(a, b)) {
        return Err(format!("a gradient of {found:?} instead of {wanted:?}"));
    }
    Ok(())
}

impl Program {
    fn fault(&self, what: &str) -> String {
        format!("{what}\nafter\n  {}", self.log.join("\n  "))
    }

    /// Whether it ran to the end.
    fn run(&mut self, counts: &mut Counts) -> Result<bool, String> {
        for _ in 0..STEPS {
            let going_on =
                if self.tensors.len() > 2 && self.dice.percent(4) { self.fork(counts) } else { self.step(counts) }?;
            if !going_on {
                counts.unclear += 1;
                return Ok(false);
            }
            // Not after every step: reading a value computes it.
            if self.dice.percent(10) {
                self.check_all(&self.tensors, &self.slots)?;
            }
        }
        self.check_all(&self.tensors, &self.slots)?;
        Ok(true)
    }

    fn check_all(&self, tensors: &[Tensor], slots: &[Plain]) -> Result<(), String> {
        for (at, (tensor, plain)) in both(tensors.iter(), slots).enumerate() {
            check(&self.model, tensor, plain).map_err(|e| self.fault(&format!("tensor {at}: {e}")))?;
            if plain.leaf.is_some() {
                check_grad(&self.model, tensor, plain).map_err(|e| self.fault(&format!("tensor {at}: {e}")))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, counts: &mut Counts) -> Result<bool, String> {
        let moved = random_move(&mut self.dice, &self.tensors, self.size, false);
        let outcome = take(&moved, &mut self.tensors);
        let mut slots = std::mem::take(&mut self.slots);
        let replayed = self.replay(&mut slots, &moved, &outcome, counts);
        self.slots = slots;
        replayed
    }

    fn replay(
        &mut self,
        slots: &mut Vec<Plain>,
        moved: &Move,
        outcome: &Outcome,
        counts: &mut Counts,
    ) -> Result<bool, String> {
        counts.steps += 1;
        counts.refused += usize::from(matches!(outcome, Outcome::Refused(_)));
        self.log.push(format!("{moved:?}: {outcome:?}"));
        match self.model.replay(slots, moved, outcome) {
            Ok(()) => Ok(true),
            Err(Fault::Unclear) => Ok(false),
            Err(Fault::Wrong(what)) => Err(self.fault(&what)),
        }
    }

    /// Several threads continue with the same tensors, each with its own handles.
    fn fork(&mut self, counts: &mut Counts) -> Result<bool, String> {
        let count = 2 + self.dice.below(2);
        counts.threads += count;
        let part = |seed: u64| {
            let (mut dice, mut tensors, size) = (Dice::new(seed, 0, 0), self.tensors.clone(), self.size);
            move || {
                let mut log = Vec::new();
                for _ in 0..8 {
                    let moved = random_move(&mut dice, &tensors, size, true);
                    let outcome = take(&moved, &mut tensors);
                    log.push((moved, outcome));
                }
                (log, tensors)
            }
        };
        let seeds: Vec<u64> = (0..count).map(|_| self.dice.next()).collect();
        let threads: Vec<_> = seeds.into_iter().map(|seed| std::thread::spawn(part(seed))).collect();
        let ended: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
        let before = self.slots.clone();
        for (at, outcome) in ended.into_iter().enumerate() {
            let Ok((log, tensors)) = outcome else { return Err(self.fault("a thread has panicked")) };
            let mut slots = before.clone();
            self.log.push(format!("thread {at} of {count}"));
            for (moved, outcome) in &log {
                if !self.replay(&mut slots, moved, outcome, counts)? {
                    return Ok(false);
                }
            }
            for (at, (tensor, plain)) in both(tensors.iter(), &slots).enumerate() {
                check(&self.model, tensor, plain).map_err(|e| self.fault(&format!("tensor {at}: {e}")))?;
            }
            // Its tensors are used in the rest of the program.
            if let (Some(tensor), Some(plain)) = (tensors.last(), slots.last()) {
                self.tensors.push(tensor.clone());
                self.slots.push(plain.clone());
            }
            self.log.push("end of the thread, whose last tensor stays".to_string());
        }
        Ok(true)
    }
}

#[test]
fn random_programs_do_what_the_model_does() {
    let (seed, programs) = (setting("COTANGENT_FUZZ_SEED", 1), setting("COTANGENT_FUZZ_PROGRAMS", 12000));
    let (mut counts, mut ended) = (Counts::default(), 0);
    for number in 0..programs {
        let mut program = Program {
            dice: Dice::new(seed, number, 0),
            size: if number % 200 == 7 { Size::Large } else { Size::Small },
            model: Model::default(),
            tensors: Vec::new(),
            slots: Vec::new(),
            log: Vec::new(),
        };
        // Each program has its own number of threads.
        let threads = 1 + number as usize % 4;
        let whole = with_num_threads(threads, || program.run(&mut counts)).expect("a number of threads");
        match whole {
            Ok(whole) => ended += usize::from(whole),
            Err(fault) => panic!("seed {seed}, program {number}: {fault}"),
        }
    }
    let Counts { steps, unclear, refused, threads } = counts;
    println!(
        "{programs} programs, {ended} to the end, {unclear} unclear, {steps} steps, {refused} refused, {threads} threads"
    );
    assert!(ended * 2 > programs as usize, "only {ended} of {programs} programs came to their end");
}
