//! Checkpoints of a trainer: a state dictionary of all that a run goes on from.

use crate::error::bail;
use crate::io::{StateDict, safetensors};
use crate::nn::Module;
use crate::optim::Optimizer;
use crate::train::Mean;
use crate::{Result, Tensor, rng_state, set_rng_state};
use std::path::Path;

/// Where a run is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// Whole epochs.
    pub epoch: u64,
    /// Batches of the epoch that is not whole.
    pub batch: u64,
    /// Steps of the optimiser.
    pub step: u64,
    /// Batches of all epochs, for the progress bar.
    pub done: u64,
    /// Epochs in a row that were not better.
    pub bad: u64,
    /// The best of what is monitored.
    pub best: Option<f64>,
    /// The loss of the epoch so far.
    pub mean: Mean,
}

pub(super) fn save(path: &Path, model: &impl Module, optimizer: &dyn Optimizer, at: &Position) -> Result<()> {
    let mut all = StateDict::new();
    all.extend(model.state_dict().into_iter().map(|(name, tensor)| (format!("model.{name}"), tensor)));
    all.extend(optimizer.state_dict()?.into_iter().map(|(name, tensor)| (format!("optimizer.{name}"), tensor)));
    let (seed, offset) = rng_state();
    let counts = [at.epoch, at.batch, at.step, at.done, at.bad, u64::from(at.best.is_some()), seed, offset];
    all.insert("trainer.counts", Tensor::from_vec(counts.map(|count| count as i64).to_vec(), [counts.len()])?);
    let (sum, weight) = at.mean.parts();
    let numbers = vec![at.best.unwrap_or(0.0), sum, weight];
    all.insert("trainer.numbers", Tensor::from_vec(numbers, [3])?);
    safetensors::save(path, &all)
}

/// Brings model, optimiser and random numbers to where they were, or leaves the model and the optimiser as they are.
pub(super) fn load(path: &Path, model: &mut impl Module, optimizer: &mut dyn Optimizer) -> Result<Position> {
    const OP: &str = "Trainer::resume";
    let (mut of_model, mut of_optimizer, mut own) = (StateDict::new(), StateDict::new(), StateDict::new());
    for (name, tensor) in safetensors::load(path)? {
        let (part, rest) = name.split_once('.').unwrap_or((name.as_str(), ""));
        match part {
            "model" => of_model.insert(rest, tensor),
            "optimizer" => of_optimizer.insert(rest, tensor),
            "trainer" => own.insert(rest, tensor),
            _ => bail!(Format, OP, "{}: `{name}` is no part of a trainer's checkpoint", path.display()),
        };
    }
    let missing = || crate::error::err!(Format, OP, "{} is no checkpoint of a trainer", path.display());
    let counts: Vec<i64> = own.get("counts").ok_or_else(missing)?.to_vec()?;
    let numbers: Vec<f64> = own.get("numbers").ok_or_else(missing)?.to_vec()?;
    let (&[epoch, batch, step, done, bad, known, seed, offset], &[best, sum, weight]) = (&counts[..], &numbers[..])
    else {
        return Err(missing());
    };
    let before = optimizer.state_dict()?;
    optimizer.load_state_dict(&of_optimizer).map_err(|error| error.context(path.display()))?;
    if let Err(error) = model.load_state_dict(&of_model) {
        optimizer.load_state_dict(&before)?;
        return Err(error.context(path.display()));
    }
    set_rng_state((seed as u64, offset as u64));
    Ok(Position {
        epoch: epoch as u64,
        batch: batch as u64,
        step: step as u64,
        done: done as u64,
        bad: bad as u64,
        best: (known != 0).then_some(best),
        mean: Mean::from_parts(sum, weight),
    })
}
