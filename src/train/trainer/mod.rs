//! A training loop for the common case.

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

/// Trains a model: the loop of [the module's documentation](super) with validation, logging and checkpoints. It is built
/// from the loss of a batch, with setters for everything else.
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

/// The source of the learning rates.
enum Rates<'a> {
    /// The rates of the optimiser.
    Fixed,
    /// A function of the step.
    Given(Box<dyn FnMut(u64) -> f64 + 'a>),
    /// A schedule by steps.
    Steps(Arc<dyn Schedule>),
    /// A schedule by epochs.
    Epochs(Arc<dyn Schedule>),
    /// By the monitored value.
    Plateau(ReduceLROnPlateau),
}

/// The state of training, passed to a [callback](Trainer::callback).
pub struct Moment<'m, M> {
    /// Whether an epoch has ended, not only a step.
    pub is_epoch: bool,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// Steps of the optimiser so far.
    pub step: u64,
    /// The last measured values, by name.
    pub values: &'m [(String, f64)],
    /// The model.
    pub model: &'m mut M,
    /// The optimiser.
    pub optimizer: &'m mut dyn Optimizer,
    stop: &'m mut bool,
}

impl<M> Moment<'_, M> {
    /// Ends the training after this callback.
    pub fn stop(&mut self) {
        *self.stop = true;
    }

    /// One of the values.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }
}

/// The reason for the end of training.
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
    /// The [monitored](Trainer::monitor) value has not improved for the number of epochs set as patience.
    Early,
    /// A callback has stopped it.
    Callback,
    /// Ctrl-C or SIGTERM. The last checkpoint has the state, if checkpoints are set.
    Interrupted,
}

/// The result of training.
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
    /// The reason for the end.
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// Finished epochs, including those before resuming.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Steps of the optimiser, including those before resuming.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last value of `loss`, `val_loss`, or `val_` and the name of a metric.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(other, _)| other == name).map(|&(_, value)| value)
    }

    /// The best [monitored](Trainer::monitor) value.
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

impl<'a, M: crate::nn::Module, B: super::Batch> Trainer<'a, M, B> {
    /// A trainer with the loss of a batch, the mean over its examples.
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

    /// The number of epochs. Unless set: 1.
    #[must_use]
    pub fn epochs(mut self, epochs: u64) -> Self {
        self.epochs = epochs;
        self
    }

    /// The largest number of steps. Training ends after it or after the last epoch, whichever is first.
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = Some(steps);
        self
    }

    /// Clips the norm of the gradients: [`clip_grad_norm`](crate::optim::clip_grad_norm).
    #[must_use]
    pub fn clip_grad_norm(mut self, max_norm: f64) -> Self {
        self.clip = Some(max_norm);
        self
    }

    /// Accumulates the gradients of this number of batches for each step. Their mean equals that of one large batch if the
    /// batches have one size. Remaining batches at the end of an epoch make a separate step. Unless set: 1.
    #[must_use]
    pub fn accumulate(mut self, batches: u64) -> Self {
        self.accumulate = batches;
        self
    }

    /// The learning rate of each step, as a function of the number of steps before it. It, [`schedule`](Self::schedule),
    /// [`schedule_epochs`](Self::schedule_epochs) and [`reduce_on_plateau`](Self::reduce_on_plateau) replace each other: the
    /// last one set is used.
    #[must_use]
    pub fn lr(mut self, rate: impl FnMut(u64) -> f64 + 'a) -> Self {
        self.rates = Rates::Given(Box::new(rate));
        self
    }

    /// A schedule of the learning rates that advances with each step.
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

    /// A schedule of the learning rates that advances with each epoch.
    #[must_use]
    pub fn schedule_epochs(mut self, schedule: impl Schedule + 'static) -> Self {
        self.rates = Rates::Epochs(Arc::new(schedule));
        self
    }

    /// Reduces the learning rates when the [monitored](Self::monitor) value stops improving. For a metric where higher is
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

    /// Scales losses, for training in `f16`. Steps with infinities are skipped, but count as steps, also for schedules.
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

    /// Averages the parameters over the steps. The averaged model is validated and saved in the checkpoints, and
    /// [`take_averaged`](Self::take_averaged) returns it afterwards.
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

    /// Takes the averaged model of the last run, if [`average`](Self::average) is set.
    pub fn take_averaged(&mut self) -> Option<AveragedModel<M>> {
        self.averaged.take()
    }

    /// Validates after each epoch: `val_loss` by the loss, and each [metric](Self::metric) by the predictions and targets that
    /// `predict` returns. The model is in evaluation mode.
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

    /// Adds a metric for the validation.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'a) -> Self {
        self.metrics.push(Box::new(metric));
        self
    }

    /// Adds a log of `loss` and `lr` by step, and of the results of the validation.
    #[must_use]
    pub fn log(mut self, log: impl Log + 'a) -> Self {
        self.logs.push(Box::new(log));
        self
    }

    /// Logs the mean over this number of steps. Each logging waits for the GPU. Unless set: 1.
    #[must_use]
    pub fn log_every(mut self, steps: u64) -> Self {
        self.log_every = steps;
        self
    }

    /// Fills a report with the curves, the model, the graph of the first loss, norms after each epoch, and the time and memory
    /// of each phase, which waits for a GPU. Save the report afterwards.
    #[must_use]
    pub fn report(mut self, report: &'a mut Report) -> Self {
        self.report = Some(report);
        self
    }

    /// Calls a function after each step and after each epoch: to stop, to log other values, to change a setting. An error of
    /// the function ends the training.
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

    /// The value that determines the best epoch: `loss`, `val_loss`, or `val_` and the name of a metric. Unless set: `val_loss`
    /// with a validation, `loss` without one.
    #[must_use]
    pub fn monitor(mut self, name: impl Into<String>) -> Self {
        self.monitor = Some(name.into());
        self
    }

    /// Ends when the [monitored](Self::monitor) value has not improved for `patience` epochs in a row.
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Writes checkpoints to a folder: `last.safetensors` after each epoch and at the end of training, and `best.safetensors`
    /// when the [monitored](Self::monitor) value has improved. They are [`Checkpoint`](crate::io::Checkpoint)s of `model`,
    /// `optimizer`, `random`, `trainer` (the position in the data) and, if set, `schedule` or `plateau`, `scaler` and
    /// `average`.
    #[must_use]
    pub fn checkpoints(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Also writes `last.safetensors` every `steps` steps.
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
