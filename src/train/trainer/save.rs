//! Checkpoints of a trainer.

use crate::Result;
use crate::error::bail;
use crate::io::{Checkpoint, DefaultGenerator, State, Stateful, Value, no_values};
use crate::nn::Module;
use crate::optim::{AveragedModel, GradScaler, Optimizer, ReduceLROnPlateau, Scheduler};
use crate::train::Mean;
use std::path::Path;

/// The position of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    /// Finished epochs.
    pub epoch: u64,
    /// Finished batches of the current epoch.
    pub batch: u64,
    /// Steps of the optimiser.
    pub step: u64,
    /// Batches of all epochs, for the progress bar.
    pub done: u64,
    /// Epochs in a row without improvement.
    pub bad: u64,
    /// The best monitored value.
    pub best: Option<f64>,
    /// The loss of the epoch so far.
    pub mean: Mean,
    /// The last measured values, by name.
    pub values: Vec<(String, f64)>,
    /// The state of the generator at the beginning of the epoch: the order of its batches may depend on it.
    pub random: (u64, u64),
}

const COUNTS: [&str; 5] = ["epoch", "batch", "step", "done", "bad"];

impl Stateful for Position {
    fn save_state(&self) -> Result<State> {
        let mut state = State::new();
        for (name, count) in COUNTS.iter().zip([self.epoch, self.batch, self.step, self.done, self.bad]) {
            state.set(*name, count);
        }
        let (sum, weight) = self.mean.parts();
        state.set("best", self.best);
        state.set("loss", vec![sum, weight]);
        let pair = |(name, value): &(String, f64)| Value::List(vec![name.as_str().into(), (*value).into()]);
        state.set("values", Value::List(self.values.iter().map(pair).collect()));
        state.set("random", vec![self.random.0, self.random.1]);
        Ok(state)
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        let [a, b, c, d, e] = COUNTS;
        state.expect_values(&[a, b, c, d, e, "best", "loss", "values", "random"])?;
        let list = |name| state.get(name).and_then(Value::as_list).unwrap_or_default();
        let pair = |pair: &Value| match pair.as_list()? {
            [name, value] => Some((name.as_str()?.to_string(), value.as_f64()?)),
            _ => None,
        };
        let values: Option<Vec<_>> = list("values").iter().map(pair).collect();
        let (Some(values), [sum, weight], [seed, offset]) = (values, list("loss"), list("random")) else {
            bail!(Format, "load_state", "malformed position of the trainer: {}", state.values);
        };
        let (Some(sum), Some(weight), Some(seed), Some(offset)) =
            (sum.as_f64(), weight.as_f64(), seed.as_u64(), offset.as_u64())
        else {
            bail!(Format, "load_state", "malformed position of the trainer: {}", state.values);
        };
        *self = Position {
            epoch: state.u64("epoch")?,
            batch: state.u64("batch")?,
            step: state.u64("step")?,
            done: state.u64("done")?,
            bad: state.u64("bad")?,
            best: state.get("best").and_then(Value::as_f64),
            mean: Mean::from_parts(sum, weight),
            values,
            random: (seed, offset),
        };
        Ok(())
    }
}

/// Any optimiser as a part of a checkpoint.
struct AnyOptimizer<'p>(&'p mut dyn Optimizer);

impl Stateful for AnyOptimizer<'_> {
    fn save_state(&self) -> Result<State> {
        self.0.state_dict().map(Into::into)
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        no_values(state)?;
        self.0.load_state_dict(&state.tensors)
    }
}

/// The parts of a checkpoint.
pub(super) struct Parts<'p, M> {
    pub model: &'p mut M,
    pub optimizer: &'p mut dyn Optimizer,
    pub position: &'p mut Position,
    pub scheduler: Option<&'p mut Scheduler>,
    pub plateau: Option<&'p mut ReduceLROnPlateau>,
    pub scaler: Option<&'p mut GradScaler>,
    pub average: Option<&'p mut AveragedModel<M>>,
}

impl<M: Module> Parts<'_, M> {
    fn with<R>(self, f: impl FnOnce(&mut [(&str, &mut dyn Stateful)]) -> Result<R>) -> Result<R> {
        let (mut optimizer, mut random) = (AnyOptimizer(self.optimizer), DefaultGenerator);
        let mut parts: Vec<(&str, &mut dyn Stateful)> = vec![
            ("model", self.model),
            ("optimizer", &mut optimizer),
            ("trainer", self.position),
            ("random", &mut random),
        ];
        parts.extend(self.scheduler.map(|part| ("schedule", part as &mut dyn Stateful)));
        parts.extend(self.plateau.map(|part| ("plateau", part as &mut dyn Stateful)));
        parts.extend(self.scaler.map(|part| ("scaler", part as &mut dyn Stateful)));
        parts.extend(self.average.map(|part| ("average", part as &mut dyn Stateful)));
        f(&mut parts)
    }

    pub fn save(self, path: &Path) -> Result<()> {
        self.with(|parts| {
            let mut checkpoint = Checkpoint::new();
            parts.iter().try_for_each(|(name, part)| checkpoint.add(name, &**part))?;
            checkpoint.save(path)
        })
    }

    /// Restores everything, or changes nothing.
    pub fn load(self, path: &Path) -> Result<()> {
        let checkpoint = Checkpoint::load(path)?;
        self.with(|parts| {
            // Without this part the run would continue differently.
            if let Some(other) = checkpoint.names().find(|name| parts.iter().all(|(own, _)| own != name)) {
                bail!(Value, "Trainer::resume", "checkpoint has a part `{other}`, which this trainer has not");
            }
            checkpoint.restore(parts)
        })
        .map_err(|error| error.context(path.display()))
    }
}
