//! The training loop.

use super::save::{Parts, Position};
use super::step::{Unread, in_autocast};
use super::{Fit, Rates, Stop, Trainer};
use crate::error::{bail, placed};
use crate::nn::Module;
use crate::optim::{Optimizer, ReduceLROnPlateau, Scheduler};
use crate::random::{rng_state, set_rng_state};
use crate::train::{Batch, Interrupt, Mean, Phases, Progress, in_eval};
use crate::{DType, Device, Result};
use std::path::Path;
use std::time::Instant;

pub(super) const OP: &str = "Trainer::fit";

/// The state of a run.
pub(super) struct Run {
    pub at: Position,
    /// The scheduler of the schedule, if there is one.
    pub scheduler: Option<Scheduler>,
    pub plateau: Option<ReduceLROnPlateau>,
    /// The learning rate of the last step.
    pub lr: f64,
    pub phases: Option<Phases>,
    pub unread: Vec<Unread>,
    pub bar: Progress,
    pub stop: Option<Stop>,
}

impl<M: Module, B: Batch> Trainer<'_, M, B> {
    /// Trains from the beginning. `batches` returns the batches of an epoch, counted from 0. Their order should depend only on
    /// that number, so that a resumed run sees the same batches.
    ///
    /// # Errors
    /// If a setting is invalid, a batch, the loss, the optimiser, a metric, a log or a callback fails, or the loss is NaN.
    #[track_caller]
    pub fn fit<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: impl FnMut(u64) -> Result<I>,
    ) -> Result<Fit> {
        let run = placed(self.begin(model, optimizer))?;
        placed(self.run(run, model, optimizer, batches))
    }

    /// As [`fit`](Self::fit), but continues from the last checkpoint in the folder of [`checkpoints`](Self::checkpoints), if
    /// there is one. The run continues bit for bit as it would have without the interruption, also within an epoch.
    ///
    /// # Errors
    /// As [`fit`](Self::fit); also if no folder is set, or the checkpoint does not fit the model or the optimiser.
    #[track_caller]
    pub fn resume<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: impl FnMut(u64) -> Result<I>,
    ) -> Result<Fit> {
        let run = placed(self.begin_again(model, optimizer))?;
        placed(self.run(run, model, optimizer, batches))
    }

    /// A new run.
    fn begin(&mut self, model: &mut M, optimizer: &mut dyn Optimizer) -> Result<Run> {
        self.check()?;
        self.averaged = self.average.as_mut().map(|average| average(model)).transpose()?;
        let (mut scheduler, mut plateau) = (None, None);
        match &self.rates {
            Rates::Steps(schedule) | Rates::Epochs(schedule) => {
                scheduler = Some(Scheduler::new(optimizer, schedule.clone())?);
            }
            Rates::Plateau(settings) => plateau = Some(settings.clone()),
            Rates::Fixed | Rates::Given(_) => {}
        }
        let bar = if self.is_quiet { Progress::unbounded().quiet() } else { Progress::unbounded() };
        let (at, lr, unread) = (Position::default(), optimizer.lr(), Vec::new());
        Ok(Run { at, scheduler, plateau, lr, phases: None, unread, bar, stop: None })
    }

    /// A run at the last checkpoint, if there is one.
    fn begin_again(&mut self, model: &mut M, optimizer: &mut dyn Optimizer) -> Result<Run> {
        let Some(folder) = &self.folder else {
            bail!(Value, "Trainer::resume", "resume requires a folder: set checkpoints(folder)");
        };
        let last = folder.join("last.safetensors");
        // `begin` changes the optimiser: a schedule sets its first rate.
        let before = optimizer.state_dict()?;
        let mut run = self.begin(model, optimizer)?;
        if last.exists()
            && let Err(error) = self.parts(&mut run, model, optimizer).load(&last)
        {
            optimizer.load_state_dict(&before)?;
            return Err(error);
        }
        run.lr = optimizer.lr();
        if self.is_out_of_patience(&run) {
            run.stop = Some(Stop::Early);
        }
        Ok(run)
    }

    fn check(&self) -> Result<()> {
        let counts = [("accumulate", self.accumulate), ("log_every", self.log_every)];
        for (name, count) in counts.into_iter().chain(self.save_every.map(|count| ("save_every", count))) {
            if count == 0 {
                bail!(Value, OP, "{name} must be positive, got 0");
            }
        }
        if self.save_every.is_some() && self.folder.is_none() {
            bail!(Value, OP, "save_every requires a folder: set checkpoints(folder)");
        }
        if !self.metrics.is_empty() && self.validation.is_none() {
            bail!(Value, OP, "metrics require validation batches: set validate(..)");
        }
        let known = self.names();
        if let Some(monitor) = self.monitor.as_ref().filter(|name| !known.contains(name)) {
            bail!(Value, OP, "monitor must be one of {}, got {monitor}", known.join(", "));
        }
        Ok(())
    }

    /// The names of the values that are measured after an epoch.
    fn names(&self) -> Vec<String> {
        let mut names = vec!["loss".to_string()];
        if self.validation.is_some() {
            names.push("val_loss".into());
            names.extend(self.metrics.iter().map(|metric| format!("val_{}", metric.name())));
        }
        names
    }

    fn run<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        mut run: Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        mut batches: impl FnMut(u64) -> Result<I>,
    ) -> Result<Fit> {
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder).map_err(|error| crate::Error::io(OP, folder, error))?;
        }
        let interrupt = Interrupt::new()?;
        if let Some(report) = &mut self.report {
            report.model(model);
            run.phases = Some(Phases::on(device_of(model)));
        }
        model.train();
        while run.stop.is_none() && run.at.epoch < self.epochs {
            if self.max_steps.is_some_and(|most| run.at.step >= most) {
                break;
            }
            self.epoch(&mut run, model, optimizer, &mut batches, &interrupt)?;
        }
        match run.at.batch {
            // The line of the last epoch has the results.
            0 => run.bar.clear(),
            _ => run.bar.finish(),
        }
        self.logs.iter_mut().try_for_each(|log| log.flush())?;
        if let (Some(report), Some(phases)) = (&mut self.report, &run.phases) {
            report.phases(phases);
        }
        let Run { at: Position { epoch, step, values, best, .. }, stop, .. } = run;
        Ok(Fit { stop: stop.unwrap_or(Stop::Finished), epochs: epoch, steps: step, values, best })
    }

    /// The remaining batches of the epoch, without those that were done before the run was interrupted.
    fn batches<I: IntoIterator<Item = Result<B>>>(
        &self,
        run: &mut Run,
        batches: &mut impl FnMut(u64) -> Result<I>,
    ) -> Result<I::IntoIter> {
        let (epoch, done) = (run.at.epoch, run.at.batch);
        if done == 0 {
            run.at.random = rng_state();
            return Ok(batches(epoch)?.into_iter());
        }
        // Batches may draw from the default generator: its state is set to that at the beginning of the epoch and afterwards
        // back.
        let now = rng_state();
        set_rng_state(run.at.random);
        let mut batches = batches(epoch)?.into_iter();
        for _ in 0..done {
            if batches.next().transpose()?.is_none() {
                bail!(Value, OP, "epoch {epoch} must have at least the {done} batches done before resuming, got fewer");
            }
        }
        set_rng_state(now);
        Ok(batches)
    }

    fn epoch<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        run: &mut Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: &mut impl FnMut(u64) -> Result<I>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut batches = self.batches(run, batches)?;
        if let (low, Some(high)) = batches.size_hint()
            && low == high
        {
            run.bar.set_total(self.epochs.saturating_mul(run.at.batch + high as u64));
        }
        run.bar.set_label(format!("epoch {}/{}", run.at.epoch + 1, self.epochs));
        let mut gathered = 0;
        loop {
            let asked = Instant::now();
            let Some(batch) = batches.next().transpose()? else { break };
            if let Some(phases) = &mut run.phases {
                phases.add("data", asked.elapsed());
            }
            run.at.batch += 1;
            run.at.done += 1;
            self.gather(run, model, &batch, gathered == 0)?;
            gathered += 1;
            if gathered < self.accumulate {
                continue;
            }
            gathered = 0;
            self.step(run, model, optimizer, self.accumulate)?;
            if interrupt.is_set() {
                run.stop = Some(Stop::Interrupted);
            }
            if run.stop.is_some() || self.max_steps.is_some_and(|most| run.at.step >= most) {
                self.read(run)?;
                return self.save(run, model, optimizer, "last");
            }
        }
        if gathered > 0 {
            self.step(run, model, optimizer, gathered)?;
        }
        self.end_epoch(run, model, optimizer)
    }

    fn end_epoch(&mut self, run: &mut Run, model: &mut M, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.read(run)?;
        if let Some(loss) = run.at.mean.compute() {
            set(&mut run.at.values, "loss", loss);
        }
        let mut run_phases = run.phases.take();
        let measured = phase(&mut run_phases, "validation", || self.measure(model))?;
        run.phases = run_phases;
        for (name, value) in &measured {
            set(&mut run.at.values, name, *value);
        }
        let values: Vec<(&str, f64)> = measured.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        if !values.is_empty() {
            self.note(run.at.step, &values)?;
        }
        if let Some(report) = &mut self.report {
            report.norms(run.at.step, model)?;
        }
        self.summarize(run);
        self.call(run, model, optimizer, true)?;
        let is_better = self.compare(run)?;
        if let (Rates::Epochs(_), Some(scheduler)) = (&self.rates, &mut run.scheduler) {
            scheduler.step(optimizer)?;
        }
        if let Some(plateau) = &mut run.plateau {
            plateau.step(optimizer, monitored(self.monitored(), &run.at)?)?;
        }
        (run.at.epoch, run.at.batch, run.at.mean) = (run.at.epoch + 1, 0, Mean::new());
        self.logs.iter_mut().try_for_each(|log| log.flush())?;
        if is_better {
            self.save(run, model, optimizer, "best")?;
        }
        self.save(run, model, optimizer, "last")
    }

    /// Prints the line of an epoch.
    fn summarize(&self, run: &mut Run) {
        let of_name = |name: &str| run.at.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value);
        let names = self.names();
        let mut values: Vec<(&str, f64)> =
            names.iter().filter_map(|name| Some((name.as_str(), of_name(name)?))).collect();
        values.insert(values.len().min(1), ("lr", run.lr));
        run.bar.summary(&values);
    }

    /// The name of the value that determines the best epoch.
    fn monitored(&self) -> &str {
        match &self.monitor {
            Some(name) => name,
            None if self.validation.is_some() => "val_loss",
            None => "loss",
        }
    }

    fn is_out_of_patience(&self, run: &Run) -> bool {
        self.patience.is_some_and(|patience| run.at.bad >= patience.max(1))
    }

    /// Whether the monitored value has improved. Counts the epochs in which it has not.
    fn compare(&mut self, run: &mut Run) -> Result<bool> {
        let name = self.monitored();
        let value = monitored(name, &run.at)?;
        let higher =
            self.metrics.iter().any(|metric| metric.higher_is_better() && name == format!("val_{}", metric.name()));
        let is_better = run.at.best.is_none_or(|best| if higher { value > best } else { value < best });
        if is_better && !value.is_nan() {
            (run.at.best, run.at.bad) = (Some(value), 0);
            return Ok(true);
        }
        run.at.bad += 1;
        if self.is_out_of_patience(run) {
            run.stop.get_or_insert(Stop::Early);
        }
        Ok(false)
    }

    /// Runs the validation, with the averaged model if there is one.
    fn measure(&mut self, model: &mut M) -> Result<Vec<(String, f64)>> {
        let Trainer { validation, metrics, loss: loss_of, averaged, autocast, .. } = self;
        let Some((batches, predict)) = validation else { return Ok(Vec::new()) };
        let mut mean = Mean::new();
        metrics.iter_mut().for_each(|metric| metric.reset());
        let batches = batches()?;
        let model = averaged.as_mut().map_or(model, |averaged| &mut **averaged);
        in_eval(model, |model| {
            for batch in batches {
                let batch = batch?;
                let loss = in_autocast(*autocast, || loss_of(model, &batch))?;
                mean.update(loss.to_dtype(DType::F64)?.item()?, batch.size() as f64);
                if !metrics.is_empty() {
                    let (prediction, target) = in_autocast(*autocast, || predict(model, &batch))?;
                    metrics.iter_mut().try_for_each(|metric| metric.update(&prediction, &target))?;
                }
            }
            Ok(())
        })?;
        let Some(loss) = mean.compute() else { bail!(Value, OP, "validation must have at least one batch, got none") };
        let mut values = vec![("val_loss".to_string(), loss)];
        for metric in metrics {
            values.push((format!("val_{}", metric.name()), metric.compute()?));
        }
        Ok(values)
    }

    pub(super) fn save(
        &mut self,
        run: &mut Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        name: &str,
    ) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = Path::new(folder).join(format!("{name}.safetensors"));
        self.parts(run, model, optimizer).save(&path)
    }

    /// The parts of a checkpoint.
    fn parts<'p>(&'p mut self, run: &'p mut Run, model: &'p mut M, optimizer: &'p mut dyn Optimizer) -> Parts<'p, M> {
        Parts {
            model,
            optimizer,
            position: &mut run.at,
            scheduler: run.scheduler.as_mut(),
            plateau: run.plateau.as_mut(),
            scaler: self.scaler.as_mut(),
            average: self.averaged.as_mut(),
        }
    }
}

/// The last monitored value.
fn monitored(name: &str, at: &Position) -> Result<f64> {
    match at.values.iter().find(|(other, _)| other == name) {
        Some(&(_, value)) => Ok(value),
        None => bail!(Value, OP, "no `{name}` in epoch {}: it had no batches", at.epoch + 1),
    }
}

/// Runs `f`, and measures it if there are phases.
pub(super) fn phase<R>(phases: &mut Option<Phases>, name: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match phases {
        Some(phases) => phases.run(name, f),
        None => f(),
    }
}

pub(super) fn set(values: &mut Vec<(String, f64)>, name: &str, value: f64) {
    match values.iter_mut().find(|(other, _)| other == name) {
        Some(known) => known.1 = value,
        None => values.push((name.into(), value)),
    }
}

fn device_of<M: Module>(model: &M) -> Device {
    model.parameters().first().map_or(Device::Cpu, |parameter| parameter.device())
}
