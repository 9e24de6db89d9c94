//! The loop itself.

use super::save::Position;
use super::{Fit, Moment, Stop, Trainer};
use crate::autograd::no_grad;
use crate::error::{bail, placed};
use crate::nn::Module;
use crate::optim::{Optimizer, clip_grad_norm};
use crate::train::{Batch, Interrupt, Mean, Phases, Progress, in_eval};
use crate::{DType, Device, Result, Tensor};
use std::path::Path;
use std::time::Instant;

const OP: &str = "Trainer::fit";

/// What a run has at hand beside its settings.
struct Run {
    at: Position,
    values: Vec<(String, f64)>,
    phases: Option<Phases>,
    /// Losses that were not read yet, with the sizes of their batches. On a GPU reading one waits for it.
    unread: Vec<(Tensor, usize)>,
    bar: Progress,
    stop: Option<Stop>,
}

impl<M: Module, B: Batch> Trainer<'_, M, B> {
    /// Trains, from the beginning. `batches` gives the batches of an epoch, which is counted from 0: their order should depend on that
    /// number alone, so that a run that is resumed sees the same.
    ///
    /// # Errors
    /// If a setting does not fit, a batch, the loss, the optimiser, a metric, a log or a callback fails, or the loss is NaN.
    #[track_caller]
    pub fn fit<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: impl FnMut(u64) -> Result<I>,
    ) -> Result<Fit> {
        placed(self.run(model, optimizer, batches, Position::default()))
    }

    /// As [`fit`](Self::fit), going on from the last checkpoint in the folder of [`checkpoints`](Self::checkpoints), if there is
    /// one: what follows is bit for bit what would have followed, in the middle of an epoch, too.
    ///
    /// # Errors
    /// As [`fit`](Self::fit); also if there is no folder set, or the checkpoint does not fit the model or the optimiser.
    #[track_caller]
    pub fn resume<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: impl FnMut(u64) -> Result<I>,
    ) -> Result<Fit> {
        let at = placed(self.position(model, optimizer))?;
        placed(self.run(model, optimizer, batches, at))
    }

    /// Where the last checkpoint is, which is loaded.
    fn position(&self, model: &mut M, optimizer: &mut dyn Optimizer) -> Result<Position> {
        let Some(folder) = &self.folder else {
            bail!(Value, "Trainer::resume", "there is no folder to resume from: set checkpoints(folder)");
        };
        let last = folder.join("last.safetensors");
        if last.exists() { super::save::load(&last, model, optimizer) } else { Ok(Position::default()) }
    }

    fn check(&self) -> Result<()> {
        for (name, count) in [("accumulate", self.accumulate), ("log_every", self.log_every)] {
            if count == 0 {
                bail!(Value, OP, "{name} is 0: it is 1 at least");
            }
        }
        if self.save_every.is_some() && self.folder.is_none() {
            bail!(Value, OP, "save_every is set, and there is no folder to save to: set checkpoints(folder)");
        }
        if !self.metrics.is_empty() && self.validation.is_none() {
            bail!(Value, OP, "there are metrics, and nothing to measure: set validate(..)");
        }
        let known = self.names();
        if let Some(monitor) = self.monitor.as_ref().filter(|name| !known.contains(name)) {
            bail!(Value, OP, "`{monitor}` cannot be monitored: there are {}", known.join(", "));
        }
        Ok(())
    }

    /// The names of what is measured after an epoch.
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
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        mut batches: impl FnMut(u64) -> Result<I>,
        at: Position,
    ) -> Result<Fit> {
        self.check()?;
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder).map_err(|error| crate::Error::io(OP, folder, error))?;
        }
        let interrupt = Interrupt::new()?;
        let phases = self.report.as_ref().map(|_| Phases::on(device_of(model)));
        let bar = if self.is_quiet { Progress::unbounded().quiet() } else { Progress::unbounded() };
        let mut run = Run { at, values: Vec::new(), phases, unread: Vec::new(), bar, stop: None };
        if let Some(report) = &mut self.report {
            report.model(model);
        }
        model.train();
        while run.stop.is_none() && run.at.epoch < self.epochs {
            if self.max_steps.is_some_and(|most| run.at.step >= most) {
                break;
            }
            let batches = batches(run.at.epoch)?;
            self.epoch(&mut run, model, optimizer, batches, &interrupt)?;
        }
        run.bar.finish();
        self.logs.iter_mut().try_for_each(|log| log.flush())?;
        if let (Some(report), Some(phases)) = (&mut self.report, &run.phases) {
            report.phases(phases);
        }
        let Run { at, values, stop, .. } = run;
        Ok(Fit { stop: stop.unwrap_or(Stop::Finished), epochs: at.epoch, steps: at.step, values, best: at.best })
    }

    fn epoch<I: IntoIterator<Item = Result<B>>>(
        &mut self,
        run: &mut Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        batches: I,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut batches = batches.into_iter();
        if let (low, Some(high)) = batches.size_hint()
            && low == high
        {
            run.bar.set_total(self.epochs.saturating_mul(high as u64));
        }
        run.bar.set_label(format!("epoch {}/{}", run.at.epoch + 1, self.epochs));
        // Those that were done before the run was interrupted.
        for _ in 0..run.at.batch {
            if batches.next().transpose()?.is_none() {
                bail!(
                    Value,
                    OP,
                    "epoch {} had {} batches before it was resumed, and has fewer now",
                    run.at.epoch,
                    run.at.batch
                );
            }
        }
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
                self.read(run, optimizer)?;
                return self.save(run, model, optimizer, "last");
            }
            if run.stop.is_some() || self.max_steps.is_some_and(|most| run.at.step >= most) {
                self.read(run, optimizer)?;
                return self.save(run, model, optimizer, "last");
            }
        }
        if gathered > 0 {
            self.step(run, model, optimizer, gathered)?;
        }
        self.end_epoch(run, model, optimizer)
    }

    /// The loss of a batch, and its gradients.
    fn gather(&mut self, run: &mut Run, model: &mut M, batch: &B, is_first: bool) -> Result<()> {
        let (loss_of, parts) = (&mut self.loss, self.accumulate);
        let loss = phase(&mut run.phases, "forward", || loss_of(model, batch))?;
        if let Some(report) = &mut self.report
            && run.at.step == 0
            && is_first
            && run.at.batch == 1
        {
            report.graph(&loss, model)?;
        }
        let mean = loss.detach();
        if mean.numel() != 1 {
            bail!(Shape, OP, "the loss of a batch is one number, not of shape {:?}", mean.shape());
        }
        if is_first {
            model.zero_grad();
        }
        phase(&mut run.phases, "backward", || {
            if parts > 1 { loss.div(parts as f64)?.backward() } else { loss.backward() }
        })?;
        run.unread.push((mean, batch.size()));
        Ok(())
    }

    /// A step of the optimiser with the gradients of so many batches.
    fn step(&mut self, run: &mut Run, model: &mut M, optimizer: &mut dyn Optimizer, gathered: u64) -> Result<()> {
        if gathered < self.accumulate {
            // They were divided by the number that a whole step has.
            let factor = self.accumulate as f64 / gathered as f64;
            for parameter in model.parameters() {
                if let Some(grad) = parameter.take_grad() {
                    parameter.set_grad(&no_grad(|| grad.mul(factor))?)?;
                }
            }
        }
        if let Some(rate) = &mut self.rate {
            optimizer.set_lr(rate(run.at.step));
        }
        let clip = self.clip;
        phase(&mut run.phases, "optimizer", || {
            if let Some(most) = clip {
                clip_grad_norm(model, most)?;
            }
            optimizer.step(model)
        })?;
        run.at.step += 1;
        if run.at.step.is_multiple_of(self.log_every) {
            self.read(run, optimizer)?;
        }
        self.call(run, model, optimizer, false)?;
        if self.save_every.is_some_and(|every| run.at.step.is_multiple_of(every)) {
            // The epoch's loss so far is a part of it.
            self.read(run, optimizer)?;
            self.save(run, model, optimizer, "last")?;
        }
        Ok(())
    }

    /// Reads the losses since the last time, and logs their mean.
    fn read(&mut self, run: &mut Run, optimizer: &dyn Optimizer) -> Result<()> {
        if run.unread.is_empty() {
            return Ok(());
        }
        let unread = std::mem::take(&mut run.unread);
        let wide = |(loss, _): &(Tensor, usize)| loss.reshape([1])?.to_dtype(DType::F64);
        let losses = unread.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let losses: Vec<f64> = Tensor::cat(&losses, 0)?.to_device(Device::Cpu)?.to_vec()?;
        let mut mean = Mean::new();
        for (loss, (_, size)) in losses.iter().zip(&unread) {
            mean.update(*loss, *size as f64);
            run.at.mean.update(*loss, *size as f64);
        }
        let loss = mean.compute().unwrap_or(f64::NAN);
        if loss.is_nan() {
            bail!(
                Value,
                OP,
                "the loss is NaN, at step {} of epoch {}: autograd::detect_anomaly finds where it comes from",
                run.at.step,
                run.at.epoch + 1
            );
        }
        let values = [("loss", loss), ("lr", optimizer.lr())];
        self.note(run.at.step, &values)?;
        set(&mut run.values, "loss", loss);
        let mut shown = values.to_vec();
        shown.extend(run.values.iter().filter(|(name, _)| name != "loss").map(|(name, value)| (name.as_str(), *value)));
        run.bar.update(run.at.done, &shown);
        Ok(())
    }

    fn note(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        self.logs.iter_mut().try_for_each(|log| log.log(step, values))?;
        match &mut self.report {
            Some(report) => crate::train::Log::log(*report, step, values),
            None => Ok(()),
        }
    }

    fn call(&mut self, run: &mut Run, model: &mut M, optimizer: &mut dyn Optimizer, is_epoch: bool) -> Result<()> {
        let mut stop = false;
        for callback in &mut self.callbacks {
            callback(&mut Moment {
                is_epoch,
                epoch: run.at.epoch,
                step: run.at.step,
                values: &run.values,
                model,
                optimizer,
                stop: &mut stop,
            })?;
        }
        if stop {
            run.stop.get_or_insert(Stop::Callback);
        }
        Ok(())
    }

    fn end_epoch(&mut self, run: &mut Run, model: &mut M, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.read(run, optimizer)?;
        if let Some(loss) = run.at.mean.compute() {
            set(&mut run.values, "loss", loss);
        }
        let mut run_phases = run.phases.take();
        let measured = phase(&mut run_phases, "validation", || self.measure(model))?;
        run.phases = run_phases;
        for (name, value) in &measured {
            set(&mut run.values, name, *value);
        }
        let values: Vec<(&str, f64)> = measured.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        if !values.is_empty() {
            self.note(run.at.step, &values)?;
        }
        if let Some(report) = &mut self.report {
            report.norms(run.at.step, model)?;
        }
        self.call(run, model, optimizer, true)?;
        (run.at.epoch, run.at.batch, run.at.mean) = (run.at.epoch + 1, 0, Mean::new());
        let is_better = self.compare(run)?;
        self.logs.iter_mut().try_for_each(|log| log.flush())?;
        if is_better {
            self.save(run, model, optimizer, "best")?;
        }
        self.save(run, model, optimizer, "last")
    }

    /// Whether what is monitored has become better; counts the epochs in which it has not.
    fn compare(&mut self, run: &mut Run) -> Result<bool> {
        let name = match &self.monitor {
            Some(name) => name.as_str(),
            None if self.validation.is_some() => "val_loss",
            None => "loss",
        };
        let Some(&(_, value)) = run.values.iter().find(|(other, _)| other == name) else {
            bail!(Value, OP, "there was no `{name}` in epoch {}: it had no batches", run.at.epoch);
        };
        let higher =
            self.metrics.iter().any(|metric| metric.higher_is_better() && name == format!("val_{}", metric.name()));
        let is_better = run.at.best.is_none_or(|best| if higher { value > best } else { value < best });
        if is_better && !value.is_nan() {
            (run.at.best, run.at.bad) = (Some(value), 0);
            return Ok(true);
        }
        run.at.bad += 1;
        if self.patience.is_some_and(|patience| run.at.bad >= patience.max(1)) {
            run.stop.get_or_insert(Stop::Early);
        }
        Ok(false)
    }

    /// Goes through the batches of the validation.
    fn measure(&mut self, model: &mut M) -> Result<Vec<(String, f64)>> {
        let Some((batches, predict)) = &mut self.validation else { return Ok(Vec::new()) };
        let (metrics, loss_of, mut mean) = (&mut self.metrics, &mut self.loss, Mean::new());
        metrics.iter_mut().for_each(|metric| metric.reset());
        let batches = batches()?;
        in_eval(model, |model| {
            for batch in batches {
                let batch = batch?;
                mean.update(loss_of(model, &batch)?.to_dtype(DType::F64)?.item()?, batch.size() as f64);
                if !metrics.is_empty() {
                    let (prediction, target) = predict(model, &batch)?;
                    metrics.iter_mut().try_for_each(|metric| metric.update(&prediction, &target))?;
                }
            }
            Ok(())
        })?;
        let Some(loss) = mean.compute() else { bail!(Value, OP, "the validation has no batches") };
        let mut values = vec![("val_loss".to_string(), loss)];
        for metric in metrics {
            values.push((format!("val_{}", metric.name()), metric.compute()?));
        }
        Ok(values)
    }

    fn save(&self, run: &Run, model: &M, optimizer: &dyn Optimizer, name: &str) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        super::save::save(&Path::new(folder).join(format!("{name}.safetensors")), model, optimizer, &run.at)
    }
}

/// Runs `f`, measured if there are phases.
fn phase<R>(phases: &mut Option<Phases>, name: &str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match phases {
        Some(phases) => phases.run(name, f),
        None => f(),
    }
}

fn set(values: &mut Vec<(String, f64)>, name: &str, value: f64) {
    match values.iter_mut().find(|(other, _)| other == name) {
        Some(known) => known.1 = value,
        None => values.push((name.into(), value)),
    }
}

fn device_of<M: Module>(model: &M) -> Device {
    model.parameters().first().map_or(Device::Cpu, |parameter| parameter.device())
}
