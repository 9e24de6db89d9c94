//! A training step.

use super::fit::{OP, Run, phase, set};
use super::{Moment, Rates, Stop, Trainer};
use crate::autograd::no_grad;
use crate::error::bail;
use crate::nn::Module;
use crate::optim::{Optimizer, clip_grad_norm};
use crate::train::{Batch, Mean};
use crate::{DType, Device, Result, Tensor, autocast};

/// The loss of a batch that was not read yet: reading it waits for a GPU.
pub(super) struct Unread {
    loss: Tensor,
    /// Examples in the batch.
    size: usize,
    /// Whether its step was skipped because of an infinity.
    is_skipped: bool,
}

impl<M: Module, B: Batch> Trainer<'_, M, B> {
    /// The loss of a batch, and its gradients.
    pub(super) fn gather(&mut self, run: &mut Run, model: &mut M, batch: &B, is_first: bool) -> Result<()> {
        let (loss_of, parts, dtype) = (&mut self.loss, self.accumulate, self.autocast);
        let loss = phase(&mut run.phases, "forward", || in_autocast(dtype, || loss_of(model, batch)))?;
        if let Some(report) = &mut self.report
            && run.at.step == 0
            && is_first
            && run.at.batch == 1
        {
            report.graph(&loss, model)?;
        }
        let mean = loss.detach();
        if mean.numel() != 1 {
            bail!(Shape, OP, "loss must be one number, got shape {:?}", mean.shape());
        }
        if is_first {
            model.zero_grad();
        }
        let scaler = &mut self.scaler;
        phase(&mut run.phases, "backward", || {
            let part = if parts > 1 { loss.div(parts as f64)? } else { loss };
            scaler.as_mut().map_or_else(|| Ok(part.clone()), |scaler| scaler.scale(&part))?.backward()
        })?;
        run.unread.push(Unread { loss: mean, size: batch.size(), is_skipped: false });
        Ok(())
    }

    /// A step of the optimiser with the accumulated gradients of `gathered` batches, with averaging, schedules, logs and callbacks.
    pub(super) fn step(
        &mut self,
        run: &mut Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        gathered: u64,
    ) -> Result<()> {
        let step = run.at.step;
        let is_made = phase(&mut run.phases, "optimizer", || self.update(step, model, optimizer, gathered))?;
        run.at.step += 1;
        run.lr = optimizer.lr();
        if is_made {
            self.averaged.iter_mut().try_for_each(|averaged| averaged.update(model))?;
        } else {
            run.unread.iter_mut().rev().take(gathered as usize).for_each(|unread| unread.is_skipped = true);
        }
        if let (Rates::Steps(_), Some(scheduler)) = (&self.rates, &mut run.scheduler) {
            scheduler.step(optimizer)?;
        }
        if run.at.step.is_multiple_of(self.log_every) {
            self.read(run)?;
        }
        self.call(run, model, optimizer, false)?;
        if self.save_every.is_some_and(|every| run.at.step.is_multiple_of(every)) {
            // The checkpoint includes the loss of the epoch so far.
            self.read(run)?;
            self.save(run, model, optimizer, "last")?;
        }
        Ok(())
    }

    /// Updates the parameters. False if a scaler has skipped the step because of infinities.
    fn update(&mut self, step: u64, model: &mut M, optimizer: &mut dyn Optimizer, gathered: u64) -> Result<bool> {
        if let Some(scaler) = &mut self.scaler {
            scaler.unscale(model)?;
        }
        if gathered < self.accumulate {
            // The losses were divided by `accumulate`.
            let factor = self.accumulate as f64 / gathered as f64;
            for parameter in model.parameters() {
                if let Some(grad) = parameter.take_grad() {
                    parameter.set_grad(&no_grad(|| grad.mul(factor))?)?;
                }
            }
        }
        if let Rates::Given(rate) = &mut self.rates {
            optimizer.set_lr(rate(step));
        }
        if let Some(most) = self.clip {
            clip_grad_norm(model, most)?;
        }
        let Some(scaler) = &mut self.scaler else { return optimizer.step(model).map(|()| true) };
        let is_made = scaler.step(optimizer, model)?;
        scaler.update()?;
        Ok(is_made)
    }

    /// Reads the losses since the last time, and logs their mean.
    pub(super) fn read(&mut self, run: &mut Run) -> Result<()> {
        if run.unread.is_empty() {
            return Ok(());
        }
        let unread = std::mem::take(&mut run.unread);
        let wide = |unread: &Unread| unread.loss.reshape([1])?.to_dtype(DType::F64);
        let losses = unread.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let losses: Vec<f64> = Tensor::cat(&losses, 0)?.to_device(Device::Cpu)?.to_vec()?;
        let mut mean = Mean::new();
        for (loss, Unread { size, is_skipped, .. }) in losses.iter().zip(&unread) {
            // A loss that overflowed in half precision has not changed the parameters.
            if loss.is_finite() || !is_skipped {
                mean.update(*loss, *size as f64);
                run.at.mean.update(*loss, *size as f64);
            }
        }
        let Some(loss) = mean.compute() else { return Ok(()) };
        if loss.is_nan() {
            bail!(
                Value,
                OP,
                "loss is NaN at step {} of epoch {}: autograd::detect_anomaly finds its origin",
                run.at.step,
                run.at.epoch + 1
            );
        }
        let values = [("loss", loss), ("lr", run.lr)];
        self.note(run.at.step, &values)?;
        set(&mut run.at.values, "loss", loss);
        let mut shown = values.to_vec();
        let others = run.at.values.iter().filter(|(name, _)| name != "loss");
        shown.extend(others.map(|(name, value)| (name.as_str(), *value)));
        run.bar.update(run.at.done, &shown);
        Ok(())
    }

    pub(super) fn note(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        self.logs.iter_mut().try_for_each(|log| log.log(step, values))?;
        match &mut self.report {
            Some(report) => crate::train::Log::log(*report, step, values),
            None => Ok(()),
        }
    }

    pub(super) fn call(
        &mut self,
        run: &mut Run,
        model: &mut M,
        optimizer: &mut dyn Optimizer,
        is_epoch: bool,
    ) -> Result<()> {
        let mut stop = false;
        for callback in &mut self.callbacks {
            callback(&mut Moment {
                is_epoch,
                epoch: run.at.epoch,
                step: run.at.step,
                values: &run.at.values,
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
}

/// Runs `f` in mixed precision if `dtype` is set.
pub(super) fn in_autocast<R>(dtype: Option<DType>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match dtype {
        Some(dtype) => autocast(dtype, f),
        None => f(),
    }
}
