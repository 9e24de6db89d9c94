//! A loop of training for the common case.

mod fit;
mod save;
mod step;

use super::logs::Log;
use super::metrics::Metric;
use super::report::Report;
use crate::optim::{AveragedModel, GradScaler, Optimizer, ReduceLROnPlateau, Schedule};
use crate::{DType, Result, Tensor};
use std::path::PathBuf;
use std::sync::Arc;

type LossFn<'a, M, B> = Box<dyn FnMut(&M, &B) -> Result<Tensor> + 'a>;
type Batches<'a, B> = Box<dyn FnMut() -> Result<Box<dyn Iterator<Item = Result<B>> + 'a>> + 'a>;
type Predict<'a, M, B> = Box<dyn FnMut(&M, &B) -> Result<(Tensor, Tensor)> + 'a>;
type Average<'a, M> = Box<dyn FnMut(&M) -> Result<AveragedModel<M>> + 'a>;
type Callback<'a, M> = Box<dyn FnMut(&mut Moment<'_, M>) -> Result<()> + 'a>;

/// Trains a model: the loop that [the module's documentation](super) writes out, with what is usually around it. Made of
/// the loss of a batch, with setters for everything else.
///
/// ```
/// use cotangent::data::{Digits, digits};
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::optim::AdamW;
/// use cotangent::train::{Accuracy, Trainer};
/// use cotangent::Generator;
/// let (train, test) = digits()?.split(360, 0)?;
/// let (mut model, mut optimizer) = (Linear::new(64, 10)?, AdamW::new(1e-2));
/// let mut trainer = Trainer::new(|model: &Linear, batch: &Digits| model.forward(&batch.images)?.cross_entropy(&batch.labels))
///     .epochs(2)
///     .clip_grad_norm(1.0)
///     .validate(|| Ok([Ok(test.clone())]), |model, batch| Ok((model.forward(&batch.images)?, batch.labels.clone())))
///     .metric(Accuracy::new());
/// let fit = trainer.fit(&mut model, &mut optimizer, |epoch| {
///     let order = train.batches(64, &mut Generator::seed(epoch))?;
///     Ok(order.into_iter().map(|positions| train.pick(&positions)))
/// })?;
/// assert_eq!(fit.epochs(), 2);
/// assert!(fit.value("val_accuracy").is_some_and(|accuracy| accuracy > 0.8));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Trainer<'a, M, B> {
    loss: LossFn<'a, M, B>,
    epochs: u64,
    max_steps: Option<u64>,
    clip: Option<f64>,
    accumulate: u64,
    rates: Rates<'a>,
    autocast: Option<DType>,
    scaler: Option<GradScaler>,
    average: Option<Average<'a, M>>,
    /// Made by `average` when a run begins.
    averaged: Option<AveragedModel<M>>,
    validation: Option<(Batches<'a, B>, Predict<'a, M, B>)>,
    metrics: Vec<Box<dyn Metric + 'a>>,
    logs: Vec<Box<dyn Log + 'a>>,
    log_every: u64,
    report: Option<&'a mut Report>,
    callbacks: Vec<Callback<'a, M>>,
    monitor: Option<String>,
    patience: Option<u64>,
    folder: Option<PathBuf>,
    save_every: Option<u64>,
    is_quiet: bool,
}

/// Where the learning rates come from.
enum Rates<'a> {
    /// The optimiser's own.
    Fixed,
    /// By a function of the step.
    Given(Box<dyn FnMut(u64) -> f64 + 'a>),
    /// By a schedule that goes on with each step.
    Steps(Arc<dyn Schedule>),
    /// By one that goes on with each epoch.
    Epochs(Arc<dyn Schedule>),
    /// By what is monitored.
    Plateau(ReduceLROnPlateau),
}

/// A moment of the training, for a [callback](Trainer::callback).
pub struct Moment<'m, M> {
    /// Whether an epoch has ended, and not just a step.
    pub is_epoch: bool,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Steps of the optimiser so far.
    pub step: u64,
    /// What was last measured, by name.
    pub values: &'m [(String, f64)],
    /// The model.
    pub model: &'m mut M,
    /// The optimiser.
    pub optimizer: &'m mut dyn Optimizer,
    stop: &'m mut bool,
}

impl<M> Moment<'_, M> {
    /// Ends the training after this moment.
    pub fn stop(&mut self) {
        *self.stop = true;
    }

    /// One of the values.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }
}

/// Why a training has ended.
///
/// ```
/// use cotangent::train::Stop;
/// assert_ne!(Stop::Finished, Stop::Interrupted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// All epochs, or all steps, were done.
    Finished,
    /// The value that is [monitored](Trainer::monitor) has not become better for as many epochs as there was patience.
    Early,
    /// A callback has asked for it.
    Callback,
    /// By Ctrl-C, or the signal to terminate. What was learnt is in the last checkpoint, if there are any.
    Interrupted,
}

/// How a training went.
///
/// ```
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::{Tensor, optim::Sgd, train::{Stop, Trainer}};
/// let (mut model, mut optimizer) = (Linear::new(3, 1)?, Sgd::new(0.1));
/// let mut trainer = Trainer::new(|model: &Linear, x: &Tensor| model.forward(x)?.square()?.mean(..)).epochs(3);
/// let fit = trainer.fit(&mut model, &mut optimizer, |_| Ok([Tensor::ones([4, 3])]))?;
/// assert_eq!((fit.stop(), fit.epochs(), fit.steps()), (Stop::Finished, 3, 3));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fit {
    stop: Stop,
    epochs: u64,
    steps: u64,
    values: Vec<(String, f64)>,
    best: Option<f64>,
}

impl Fit {
    /// Why it has ended.
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// Whole epochs, those before a resumption included.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Steps of the optimiser, those before a resumption included.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last value of a name: `loss`, `val_loss`, `val_` and a metric.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }

    /// The best value of what was [monitored](Trainer::monitor).
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

impl<'a, M: crate::nn::Module, B: super::Batch> Trainer<'a, M, B> {
    /// A trainer by the loss of a batch: the mean over its examples.
    pub fn new(loss: impl FnMut(&M, &B) -> Result<Tensor> + 'a) -> Trainer<'a, M, B> {
        Trainer {
            loss: Box::new(loss),
            epochs: 1,
            max_steps: None,
            clip: None,
            accumulate: 1,
            rates: Rates::Fixed,
            autocast: None,
            scaler: None,
            average: None,
            averaged: None,
            validation: None,
            metrics: Vec::new(),
            logs: Vec::new(),
            log_every: 1,
            report: None,
            callbacks: Vec::new(),
            monitor: None,
            patience: None,
            folder: None,
            save_every: None,
            is_quiet: false,
        }
    }

    /// How often to go through the data. Unless set: once.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// Ends after so many steps, if that is before the last epoch does.
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// Scales gradients down whose norm is above this: [`clip_grad_norm`](crate::optim::clip_grad_norm).
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.clip = Some(max_norm);
        self
    }

    /// Adds up the gradients of so many batches for each step: their mean is as of one batch of all their examples, if they
    /// are of one size. Unless set: 1. Batches that are left over at the end of an epoch are a step of their own.
    #[must_use]
    pub fn accumulate(mut self, batches: u64) -> Self {
        self.accumulate = batches;
        self
    }

    /// The learning rate of each step, from the number of steps before it. Of this, [`schedule`](Self::schedule),
    /// [`schedule_epochs`](Self::schedule_epochs) and [`reduce_on_plateau`](Self::reduce_on_plateau) the last that is set
    /// counts.
    #[must_use]
    pub fn lr(mut self, rate: impl FnMut(u64) -> f64 + 'a) -> Self {
        self.rates = Rates::Given(Box::new(rate));
        self
    }

    /// A schedule of the learning rates that goes on with each step.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::optim::{CosineAnnealingLR, LinearLR, Optimizer, Schedule, Sgd};
    /// use cotangent::{Tensor, train::Trainer};
    /// let mut optimizer = Sgd::new(0.1);
    /// Trainer::new(|model: &Linear, x: &Tensor| model.forward(x)?.square()?.mean(..))
    ///     .epochs(10)
    ///     .schedule(LinearLR::warmup(3).then(3, CosineAnnealingLR::new(7)))
    ///     .fit(&mut Linear::new(3, 1)?, &mut optimizer, |_| Ok([Tensor::ones([4, 3])]))?;
    /// assert!(optimizer.lr() < 1e-9);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn schedule(mut self, schedule: impl Schedule + 'static) -> Self {
        self.rates = Rates::Steps(Arc::new(schedule));
        self
    }

    /// A schedule of the learning rates that goes on with each epoch.
    #[must_use]
    pub fn schedule_epochs(mut self, schedule: impl Schedule + 'static) -> Self {
        self.rates = Rates::Epochs(Arc::new(schedule));
        self
    }

    /// Reduces the learning rates when what is [monitored](Self::monitor) does not become better. For a metric of which more is
    /// better, set its [mode](ReduceLROnPlateau::mode).
    #[must_use]
    pub fn reduce_on_plateau(mut self, plateau: ReduceLROnPlateau) -> Self {
        self.rates = Rates::Plateau(plateau);
        self
    }

    /// Computes losses and predictions in mixed precision: [`autocast`](crate::autocast()).
    #[must_use]
    pub fn autocast(mut self, dtype: DType) -> Self {
        self.autocast = Some(dtype);
        self
    }

    /// Scales losses up, for training in `f16`. Steps with infinities are left out; they count, for schedules, too.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::{DType, Tensor, optim::{GradScaler, Sgd}, train::Trainer};
    /// let fit = Trainer::new(|model: &Linear, x: &Tensor| model.forward(x)?.square()?.mean(..))
    ///     .autocast(DType::F16)
    ///     .scaler(GradScaler::new())
    ///     .clip_grad_norm(1.0)
    ///     .fit(&mut Linear::new(3, 1)?, &mut Sgd::new(0.1), |_| Ok([Tensor::ones([4, 3])]))?;
    /// assert_eq!(fit.steps(), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn scaler(mut self, scaler: GradScaler) -> Self {
        self.scaler = Some(scaler);
        self
    }

    /// Averages the parameters over the steps. The validation is that of the averaged model, which is in the checkpoints, and
    /// which [`take_averaged`](Self::take_averaged) gives afterwards.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::{Tensor, optim::{AveragedModel, Sgd}, train::Trainer};
    /// let mut trainer = Trainer::new(|model: &Linear, x: &Tensor| model.forward(x)?.square()?.mean(..))
    ///     .epochs(5)
    ///     .average(|model| AveragedModel::ema(model, 0.99));
    /// trainer.fit(&mut Linear::new(3, 1)?, &mut Sgd::new(0.1), |_| Ok([Tensor::ones([4, 3])]))?;
    /// assert_eq!(trainer.take_averaged().map(|model| model.n_averaged()), Some(5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn average(mut self, average: impl FnMut(&M) -> Result<AveragedModel<M>> + 'a) -> Self {
        self.average = Some(Box::new(average));
        self
    }

    /// The averaged model of the last run, if [`average`](Self::average) is set. It is given once.
    pub fn take_averaged(&mut self) -> Option<AveragedModel<M>> {
        self.averaged.take()
    }

    /// After each epoch, goes through batches that are not trained on: `val_loss`, by the loss, and each
    /// [metric](Self::metric) of the predictions and targets that `predict` gives. The model is in evaluation meanwhile.
    #[must_use]
    pub fn validate<I>(
        mut self,
        mut batches: impl FnMut() -> Result<I> + 'a,
        predict: impl FnMut(&M, &B) -> Result<(Tensor, Tensor)> + 'a,
    ) -> Self
    where
        I: IntoIterator<Item = Result<B>>,
        I::IntoIter: 'a,
    {
        let boxed = move || Ok(Box::new(batches()?.into_iter()) as Box<dyn Iterator<Item = Result<B>> + 'a>);
        self.validation = Some((Box::new(boxed), Box::new(predict)));
        self
    }

    /// A metric for the validation.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'a) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Somewhere to put `loss` and `lr` by step, and what the validation says.
    #[must_use]
    pub fn log(mut self, log: impl Log + 'a) -> Self {
        self.logs.push(Box::new(log));
        self
    }

    /// Logs the mean of so many steps together. Unless set: 1. On a GPU each of them waits for it.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.log_every = steps;
        self
    }

    /// A report that gets the curves, the model, the graph of the first loss, norms after each epoch, and the time and memory of
    /// each phase, for which a GPU is waited for. Add what else there is to say, and save it.
    #[must_use]
    pub fn report(mut self, report: &'a mut Report) -> Self {
        self.report = Some(report);
        self
    }

    /// Calls a function after each step and after each epoch: to stop, to log something else, to change a setting. An error of it
    /// ends the training.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::{Tensor, optim::{Optimizer, Sgd}, train::Trainer};
    /// let mut trainer = Trainer::new(|model: &Linear, x: &Tensor| model.forward(x)?.square()?.mean(..))
    ///     .epochs(10)
    ///     .callback(|moment| {
    ///         if moment.is_epoch {
    ///             let rate = moment.optimizer.lr();
    ///             moment.optimizer.set_lr(0.9 * rate);
    ///         }
    ///         if moment.value("loss").is_some_and(|loss| loss < 1e-6) {
    ///             moment.stop();
    ///         }
    ///         Ok(())
    ///     });
    /// trainer.fit(&mut Linear::new(3, 1)?, &mut Sgd::new(0.1), |_| Ok([Tensor::ones([4, 3])]))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn callback(mut self, callback: impl FnMut(&mut Moment<'_, M>) -> Result<()> + 'a) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// The value that says which epoch is the best: `loss`, `val_loss`, or `val_` and the name of a metric. Unless set:
    /// `val_loss` with a validation, `loss` without one.
    #[must_use]
    pub fn monitor(mut self, name: impl Into<String>) -> Self {
        self.monitor = Some(name.into());
        self
    }

    /// Ends when what is [monitored](Self::monitor) has not become better for so many epochs in a row.
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Writes checkpoints to a folder: `last.safetensors` after each epoch and when the training ends otherwise, and
    /// `best.safetensors` when what is [monitored](Self::monitor) has become better. They are
    /// [`Checkpoint`](crate::io::Checkpoint)s of `model`, `optimizer`, `random`, `trainer` (the position in the data) and, where
    /// there are such, `schedule` or `plateau`, `scaler` and `average`.
    #[must_use]
    pub fn checkpoints(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Also writes the last checkpoint every so many steps.
    #[must_use]
    pub fn save_every(mut self, steps: u64) -> Self {
        self.save_every = Some(steps);
        self
    }

    /// Draws no progress bar.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.is_quiet = true;
        self
    }
}
