//! Reducing the learning rate when a metric stops improving.

use super::PerGroup;
use crate::Result;
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::optim::Optimizer;
use crate::optim::saved::{Saved, save_count, save_number};
use crate::optim::settings::not_negative;

/// Whether a lower or a higher metric is better.
///
/// ```
/// use cotangent::optim::{PlateauMode, ReduceLROnPlateau};
/// let scheduler = ReduceLROnPlateau::new().mode(PlateauMode::Max); // for an accuracy
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlateauMode {
    /// Lower is better, as for a loss.
    #[default]
    Min,
    /// Higher is better, as for an accuracy.
    Max,
}

/// What the threshold of an improvement is relative to.
///
/// ```
/// use cotangent::optim::{ReduceLROnPlateau, ThresholdMode};
/// let scheduler = ReduceLROnPlateau::new().threshold(0.01).threshold_mode(ThresholdMode::Abs);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThresholdMode {
    /// The best value so far: the threshold is a fraction of it.
    #[default]
    Rel,
    /// Nothing: the threshold is an absolute difference.
    Abs,
}

/// Reduces the learning rates when a metric has stopped improving. It is used in place of a [`Scheduler`](super::Scheduler), and
/// is given the metric in each step, usually once an epoch.
///
/// ```
/// use cotangent::optim::{Optimizer, ReduceLROnPlateau, Sgd};
/// let (mut optimizer, mut scheduler) = (Sgd::new(0.1), ReduceLROnPlateau::new().patience(1).factor(0.5));
/// for loss in [1.0, 0.5, 0.5, 0.5] {
///     scheduler.step(&mut optimizer, loss)?;
/// }
/// assert_eq!(optimizer.lr(), 0.05);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ReduceLROnPlateau {
    mode: PlateauMode,
    factor: f64,
    patience: u64,
    threshold: f64,
    threshold_mode: ThresholdMode,
    cooldown: u64,
    min_lr: PerGroup,
    eps: f64,
    /// Infinitely bad before the first metric.
    best: f64,
    bad_steps: u64,
    cooling: u64,
    step: u64,
}

impl Default for ReduceLROnPlateau {
    fn default() -> ReduceLROnPlateau {
        ReduceLROnPlateau {
            mode: PlateauMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: PerGroup::from(0.0),
            eps: 1e-8,
            best: f64::INFINITY,
            bad_steps: 0,
            cooling: 0,
            step: 0,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])+ $field:ident: $ty:ty;)+) => {$(
        $(#[$doc])+
        #[crate::options::setter]
        pub fn $field(mut self, $field: impl Into<$ty>) -> ReduceLROnPlateau {
            self.$field = $field.into();
            self
        }
    )+};
}

impl ReduceLROnPlateau {
    /// Creates the scheduler with default options.
    ///
    /// ```
    /// use cotangent::optim::ReduceLROnPlateau;
    /// let scheduler = ReduceLROnPlateau::new().factor(0.5).patience(3);
    /// ```
    pub fn new() -> ReduceLROnPlateau {
        ReduceLROnPlateau::default()
    }

    /// Whether a lower or a higher metric is better. Unless set: lower.
    pub fn mode(mut self, mode: PlateauMode) -> ReduceLROnPlateau {
        self.mode = mode;
        self.best = worst(mode);
        self
    }

    setters! {
        /// The factor by which the rates are multiplied. Unless set: `0.1`.
        factor: f64;
        /// The number of steps without an improvement that are tolerated. Unless set: `10`.
        patience: u64;
        /// The smallest change that counts as an improvement. Unless set: `1e-4`.
        threshold: f64;
        /// What the threshold is relative to. Unless set: the best value so far.
        threshold_mode: ThresholdMode;
        /// The number of steps after a reduction in which none counts as bad. Unless set: `0`.
        cooldown: u64;
        /// The lowest rate, for all groups or for each. Unless set: `0.0`.
        min_lr: PerGroup;
        /// Changes of a rate that are not larger are skipped. Unless set: `1e-8`.
        eps: f64;
    }

    /// Records the metric, and reduces the optimiser's rates if it has not improved for long enough. Returns whether it did. A
    /// NaN metric is not an improvement.
    ///
    /// # Errors
    /// If an option is out of its domain; nothing is changed then.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, metric: f64) -> Result<bool> {
        named("ReduceLROnPlateau::step", self.advance(optimizer, metric))
    }

    fn advance(&mut self, optimizer: &mut dyn Optimizer, metric: f64) -> Result<bool> {
        let lrs = optimizer.lrs();
        self.check(lrs.len())?;
        let mut next = self.clone();
        next.step += 1;
        if self.is_better(metric) {
            (next.best, next.bad_steps) = (metric, 0);
        } else {
            next.bad_steps += 1;
        }
        if next.cooling > 0 {
            (next.cooling, next.bad_steps) = (next.cooling - 1, 0);
        }
        let reduce = next.bad_steps > self.patience;
        if reduce {
            (next.cooling, next.bad_steps) = (self.cooldown, 0);
            let lower = |(group, &lr): (usize, &f64)| {
                let new = (lr * self.factor).max(self.min_lr.of(group));
                if lr - new > self.eps { new } else { lr }
            };
            let lrs: Vec<f64> = lrs.iter().enumerate().map(lower).collect();
            optimizer.set_lrs(&lrs)?;
        }
        *self = next;
        Ok(reduce)
    }

    fn is_better(&self, metric: f64) -> bool {
        let ReduceLROnPlateau { best, threshold, .. } = *self;
        match (self.mode, self.threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Rel) => metric < best * (1.0 - threshold),
            (PlateauMode::Min, ThresholdMode::Abs) => metric < best - threshold,
            (PlateauMode::Max, ThresholdMode::Rel) => metric > best * (threshold + 1.0),
            (PlateauMode::Max, ThresholdMode::Abs) => metric > best + threshold,
        }
    }

    fn check(&self, groups: usize) -> Result<()> {
        const OP: &str = "ReduceLROnPlateau";
        if !(0.0..1.0).contains(&self.factor) {
            bail!(Value, OP, "factor must be in [0, 1), got {}", self.factor);
        }
        not_negative(OP, "threshold", self.threshold)?;
        not_negative(OP, "eps", self.eps)?;
        self.min_lr.check(OP, "min_lr", groups)
    }

    /// The best value so far and the counters.
    ///
    /// ```
    /// use cotangent::optim::ReduceLROnPlateau;
    /// let names = ["best", "num_bad_epochs", "cooldown_counter", "step"];
    /// assert!(ReduceLROnPlateau::new().state_dict()?.names().eq(names));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        save_number("best", self.best, &mut dict)?;
        save_count("num_bad_epochs", self.bad_steps, &mut dict)?;
        save_count("cooldown_counter", self.cooling, &mut dict)?;
        save_count("step", self.step, &mut dict)?;
        Ok(dict)
    }

    /// Loads what [`state_dict`](Self::state_dict) has returned. The optimiser's rates are part of its own state.
    ///
    /// ```
    /// use cotangent::optim::{ReduceLROnPlateau, Sgd};
    /// let mut scheduler = ReduceLROnPlateau::new();
    /// scheduler.step(&mut Sgd::new(0.1), 2.5)?;
    /// let mut resumed = ReduceLROnPlateau::new();
    /// resumed.load_state_dict(&scheduler.state_dict()?)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape or dtype does not fit; nothing is changed then.
    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let mut saved = Saved::new("ReduceLROnPlateau", dict);
        let best = saved.number("best");
        let (bad_steps, cooling, step) =
            (saved.count("num_bad_epochs"), saved.count("cooldown_counter"), saved.count("step"));
        named("load_state_dict", saved.finish())?;
        (self.best, self.bad_steps, self.cooling, self.step) = (best, bad_steps, cooling, step);
        Ok(())
    }
}

fn worst(mode: PlateauMode) -> f64 {
    match mode {
        PlateauMode::Min => f64::INFINITY,
        PlateauMode::Max => f64::NEG_INFINITY,
    }
}
