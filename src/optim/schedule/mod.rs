//! Learning rate schedules.
//!
//! A [`Schedule`] is a function of the step and the base learning rate. A [`Scheduler`] counts the steps and sets the rates of
//! all groups of an optimiser.
//!
//! ```
//! use cotangent::optim::{AdamW, CosineAnnealingLR, LinearLR, Optimizer, Schedule, Scheduler};
//! let mut optimizer = AdamW::new(1e-3);
//! let mut scheduler = Scheduler::new(&mut optimizer, LinearLR::warmup(10).then(10, CosineAnnealingLR::new(90)))?;
//! for step in 0..100 {
//!     // .. optimizer.step(&mut model)?, and after it:
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert!(optimizer.lr() < 1e-9);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! A step is a batch or an epoch: whenever the caller calls `scheduler.step`. [`ReduceLROnPlateau`], which follows a metric, is
//! a separate scheduler.

mod cycles;
mod decays;
mod plateau;

pub use cycles::{AnnealStrategy, CyclicLR, CyclicMode, OneCycleLR, ScaleMode};
pub use decays::{
    ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, LinearLR, MultiStepLR,
    MultiplicativeLR, PolynomialLR, StepLR, SwaLR,
};
pub use plateau::{PlateauMode, ReduceLROnPlateau, ThresholdMode};

use super::Optimizer;
use super::saved::{Saved, save_count, save_numbers};
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::{Error, Result};
use std::fmt;

/// A learning rate schedule: a pure function, which can be evaluated for any step. A [`Scheduler`] applies it to an optimiser.
///
/// ```
/// use cotangent::Result;
/// use cotangent::optim::{AdamW, Optimizer, Schedule, Scheduler};
///
/// /// One over the square root of the step.
/// #[derive(Debug)]
/// struct InverseRoot;
///
/// impl Schedule for InverseRoot {
///     fn lr(&self, step: u64, base_lr: f64, _group: usize) -> Result<f64> {
///         Ok(base_lr / (step as f64 + 1.0).sqrt())
///     }
/// }
///
/// let mut optimizer = AdamW::new(0.1);
/// let mut scheduler = Scheduler::new(&mut optimizer, InverseRoot)?;
/// for _ in 0..3 {
///     scheduler.step(&mut optimizer)?;
/// }
/// assert_eq!(optimizer.lr(), 0.05);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "LRScheduler")]
pub trait Schedule: fmt::Debug + Send + Sync {
    /// The learning rate of a parameter group in a step, counted from 0. `base_lr` is the group's initial rate. Group 0 holds
    /// the parameters that belong to no other group.
    ///
    /// ```
    /// use cotangent::optim::{Schedule, StepLR};
    /// assert_eq!(StepLR::new(30).lr(65, 1.0, 0)?, 0.1 * 0.1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the schedule has no such step, or an option is invalid.
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64>;

    /// The momentum in a step, if the schedule sets it.
    ///
    /// ```
    /// use cotangent::optim::{OneCycleLR, Schedule, StepLR};
    /// assert_eq!(OneCycleLR::new(0.1, 100).momentum(0, 0)?, Some(0.95));
    /// assert_eq!(StepLR::new(30).momentum(0, 0)?, None);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lr`](Self::lr).
    fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
        let _ = (step, group);
        Ok(None)
    }

    /// Checks that all options are in their domains, and that lists fit this number of groups.
    ///
    /// # Errors
    /// If an option does not fit.
    fn check(&self, groups: usize) -> Result<()> {
        let _ = groups;
        Ok(())
    }

    /// Runs this schedule up to `milestone`, and `next` from there on, which counts its steps from the milestone.
    ///
    /// ```
    /// use cotangent::optim::{ConstantLR, ExponentialLR, Schedule};
    /// let schedule = ConstantLR::new().factor(0.1).then(20, ExponentialLR::new(0.9));
    /// assert_eq!((schedule.lr(20, 1.0, 0)?, schedule.lr(21, 1.0, 0)?), (1.0, 0.9));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn then(self, milestone: u64, next: impl Schedule + 'static) -> SequentialLR
    where
        Self: Sized + 'static,
    {
        SequentialLR { first: Box::new(self), milestone, next: Box::new(next) }
    }

    /// Combines two schedules: `other` is applied to the rate that this one gives.
    ///
    /// ```
    /// use cotangent::optim::{ConstantLR, ExponentialLR, Schedule};
    /// let schedule = ConstantLR::new().factor(0.1).total_iters(20).chain(ExponentialLR::new(0.5));
    /// assert_eq!((schedule.lr(1, 1.0, 0)?, schedule.lr(20, 1.0, 0)?), (0.05, 0.5_f64.powi(20)));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn chain(self, other: impl Schedule + 'static) -> ChainedScheduler
    where
        Self: Sized + 'static,
    {
        ChainedScheduler { first: Box::new(self), second: Box::new(other) }
    }
}

/// Implements [`Schedule`] for pointers to schedules.
macro_rules! schedule_behind {
    ($($pointer:ty),+) => {$(
        impl Schedule for $pointer {
            fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
                (**self).lr(step, base_lr, group)
            }

            fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
                (**self).momentum(step, group)
            }

            fn check(&self, groups: usize) -> Result<()> {
                (**self).check(groups)
            }
        }
    )+};
}
schedule_behind!(Box<dyn Schedule>, std::sync::Arc<dyn Schedule>);

/// Two schedules in sequence, made by [`Schedule::then`]. A [`Scheduler`] applies them to an optimiser.
///
/// ```
/// use cotangent::optim::{CosineAnnealingLR, LinearLR, Schedule};
/// let schedule = LinearLR::warmup(100).then(100, CosineAnnealingLR::new(900));
/// assert_eq!((schedule.lr(49, 1.0, 0)?, schedule.lr(100, 1.0, 0)?), (0.5, 1.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct SequentialLR {
    first: Box<dyn Schedule>,
    milestone: u64,
    next: Box<dyn Schedule>,
}

impl SequentialLR {
    fn at(&self, step: u64) -> (&dyn Schedule, u64) {
        match step.checked_sub(self.milestone) {
            Some(after) => (&*self.next, after),
            None => (&*self.first, step),
        }
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
        let (schedule, step) = self.at(step);
        schedule.lr(step, base_lr, group)
    }

    fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
        let (schedule, step) = self.at(step);
        schedule.momentum(step, group)
    }

    fn check(&self, groups: usize) -> Result<()> {
        self.first.check(groups)?;
        self.next.check(groups)
    }
}

/// Two combined schedules, made by [`Schedule::chain`]. Schedules that multiply the rate by a factor multiply their factors.
/// A [`Scheduler`] applies them to an optimiser.
///
/// ```
/// use cotangent::optim::{ExponentialLR, LinearLR, Schedule};
/// let schedule = LinearLR::warmup(4).chain(ExponentialLR::new(0.5));
/// assert_eq!(schedule.lr(1, 1.0, 0)?, 0.5 * 0.5);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct ChainedScheduler {
    first: Box<dyn Schedule>,
    second: Box<dyn Schedule>,
}

impl Schedule for ChainedScheduler {
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
        self.second.lr(step, self.first.lr(step, base_lr, group)?, group)
    }

    fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
        Ok(self.second.momentum(step, group)?.or(self.first.momentum(step, group)?))
    }

    fn check(&self, groups: usize) -> Result<()> {
        self.first.check(groups)?;
        self.second.check(groups)
    }
}

/// One number for all parameter groups, or one for each. It is made from a number, an array or a vector.
///
/// ```
/// use cotangent::optim::{OneCycleLR, PerGroup};
/// let same: PerGroup = 0.1.into();
/// assert_eq!(same, PerGroup::from([0.1]));
/// let schedule = OneCycleLR::new([0.1, 0.01], 1000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PerGroup(Vec<f64>);

impl PerGroup {
    fn of(&self, group: usize) -> f64 {
        self.0.get(group).or(self.0.first()).copied().unwrap_or(0.0)
    }

    fn check(&self, op: &'static str, what: &str, groups: usize) -> Result<()> {
        if self.0.len() != 1 && self.0.len() != groups {
            bail!(
                Value,
                op,
                "{what} must have 1 value, or one for each of {groups} groups, got {} values",
                self.0.len()
            );
        }
        self.0.iter().try_for_each(|&number| super::settings::not_negative(op, what, number))
    }
}

impl From<f64> for PerGroup {
    fn from(number: f64) -> PerGroup {
        PerGroup(vec![number])
    }
}

impl From<Vec<f64>> for PerGroup {
    fn from(numbers: Vec<f64>) -> PerGroup {
        PerGroup(numbers)
    }
}

impl<const N: usize> From<[f64; N]> for PerGroup {
    fn from(numbers: [f64; N]) -> PerGroup {
        PerGroup(numbers.to_vec())
    }
}

/// Sets the learning rates of all groups of an optimiser by a [`Schedule`], step by step.
///
/// ```
/// use cotangent::optim::{Optimizer, Scheduler, Sgd, StepLR};
/// let mut optimizer = Sgd::new(0.1).group(|name| name.starts_with("head."), |options| options.lr(1.0));
/// let mut scheduler = Scheduler::new(&mut optimizer, StepLR::new(2).gamma(0.5))?;
/// for _epoch in 0..4 {
///     // .. an epoch of training
///     scheduler.step(&mut optimizer)?;
/// }
/// assert_eq!(optimizer.lrs(), [0.025, 0.25]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "lr_scheduler")]
#[derive(Debug)]
pub struct Scheduler {
    schedule: Box<dyn Schedule>,
    base_lrs: Vec<f64>,
    step: u64,
}

impl Scheduler {
    /// A scheduler for an optimiser, whose current rates are the base rates. The rates of step 0 are set.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, LinearLR, Optimizer, Scheduler};
    /// let mut optimizer = AdamW::new(1e-3);
    /// Scheduler::new(&mut optimizer, LinearLR::warmup(10))?;
    /// assert_eq!(optimizer.lr(), 1e-4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an option of the schedule does not fit, or it sets a momentum that the optimiser does not have; nothing is changed then.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, schedule: impl Schedule + 'static) -> Result<Scheduler> {
        let made = Scheduler { schedule: Box::new(schedule), base_lrs: optimizer.lrs(), step: 0 };
        let checked = made.schedule.check(made.base_lrs.len()).and_then(|()| made.apply(0, optimizer));
        named("Scheduler", checked.map(|()| made).map_err(with_schedule))
    }

    /// Advances to the next step, and sets the optimiser's rates.
    ///
    /// ```
    /// use cotangent::optim::{ExponentialLR, Optimizer, Scheduler, Sgd};
    /// let mut optimizer = Sgd::new(1.0);
    /// let mut scheduler = Scheduler::new(&mut optimizer, ExponentialLR::new(0.5))?;
    /// scheduler.step(&mut optimizer)?;
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the schedule has no further step, or the optimiser has another number of groups; nothing is changed then.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        named("Scheduler::step", self.apply(self.step + 1, optimizer).map_err(with_schedule))?;
        self.step += 1;
        Ok(())
    }

    /// The number of steps so far.
    ///
    /// ```
    /// use cotangent::optim::{Scheduler, Sgd, StepLR};
    /// assert_eq!(Scheduler::new(&mut Sgd::new(1.0), StepLR::new(5))?.steps(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "last_epoch")]
    pub fn steps(&self) -> u64 {
        self.step
    }

    fn apply(&self, step: u64, optimizer: &mut dyn Optimizer) -> Result<()> {
        const OP: &str = "Scheduler";
        let groups = optimizer.lrs().len();
        if groups != self.base_lrs.len() {
            bail!(
                Value,
                OP,
                "the optimiser must have {} groups, as when the scheduler was made, got {groups}",
                self.base_lrs.len()
            );
        }
        let lr = |(group, &base): (usize, &f64)| self.schedule.lr(step, base, group);
        let lrs = self.base_lrs.iter().enumerate().map(lr).collect::<Result<Vec<f64>>>()?;
        let momenta: Vec<Option<f64>> =
            (0..groups).map(|group| self.schedule.momentum(step, group)).collect::<Result<_>>()?;
        if let Some(momenta) = momenta.into_iter().collect::<Option<Vec<f64>>>() {
            optimizer.set_momenta(&momenta)?;
        }
        optimizer.set_lrs(&lrs)
    }

    /// The step and the base rates.
    ///
    /// ```
    /// use cotangent::optim::{Scheduler, Sgd, StepLR};
    /// let scheduler = Scheduler::new(&mut Sgd::new(1.0), StepLR::new(5))?;
    /// assert!(scheduler.state_dict()?.names().eq(["step", "base_lrs"]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        save_count("step", self.step, &mut dict)?;
        save_numbers("base_lrs", &self.base_lrs, &mut dict)?;
        Ok(dict)
    }

    /// Loads what [`state_dict`](Self::state_dict) has returned. The optimiser's rates are part of its own state.
    ///
    /// ```
    /// use cotangent::optim::{Scheduler, Sgd, StepLR};
    /// let mut optimizer = Sgd::new(1.0);
    /// let mut scheduler = Scheduler::new(&mut optimizer, StepLR::new(5))?;
    /// scheduler.step(&mut optimizer)?;
    /// let mut resumed = Scheduler::new(&mut Sgd::new(1.0), StepLR::new(5))?;
    /// resumed.load_state_dict(&scheduler.state_dict()?)?;
    /// assert_eq!(resumed.steps(), 1);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape or dtype does not fit, for example for another number of groups; nothing is
    /// changed then.
    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let mut saved = Saved::new("Scheduler", dict);
        let step = saved.count("step");
        let base_lrs = saved.numbers("base_lrs", self.base_lrs.len());
        named("load_state_dict", saved.finish())?;
        (self.step, self.base_lrs) = (step, base_lrs);
        Ok(())
    }
}

/// Keeps the name of the schedule in a message.
fn with_schedule(error: Error) -> Error {
    let schedule = error.op().to_string();
    if schedule == "Scheduler" { error } else { error.context(&schedule) }
}

/// Defines a schedule: its arguments, its options with their defaults, and a field that a separate method sets.
macro_rules! schedule {
    (
        $(#[$doc:meta])+
        $name:ident($($arg:ident: $arg_ty:ty),*) {
            $($(#[$field_doc:meta])+ $field:ident: $ty:ty = $default:expr,)*
        }
        $(with $own:ident: $own_ty:ty)?
    ) => {
        $(#[$doc])+
        ///
        /// A [`Scheduler`](crate::optim::Scheduler) applies it to an optimiser.
        #[derive(Clone, Debug)]
        #[must_use]
        pub struct $name {
            $($arg: $arg_ty,)*
            $($field: $ty,)*
            $($own: $own_ty,)?
        }

        impl $name {
            /// Creates the schedule with default options.
            #[allow(clippy::new_without_default)]
            #[$crate::options::setter]
            pub fn new($($arg: impl Into<$arg_ty>),*) -> $name {
                $name { $($arg: $arg.into(),)* $($field: $default,)* $($own: Default::default(),)? }
            }

            $(
                $(#[$field_doc])+
                #[doc = concat!("\n\nUnless set: `", stringify!($default), "`.")]
                #[$crate::options::setter]
                pub fn $field(mut self, $field: impl Into<$ty>) -> $name {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}
use schedule;
