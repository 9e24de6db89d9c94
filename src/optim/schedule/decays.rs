//! Decays, annealing and schedules by functions.

use super::{PerGroup, Schedule, schedule};
use crate::Result;
use crate::error::bail;
use crate::optim::settings::not_negative;
use std::f64::consts::PI;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

schedule! {
    /// Multiplies the rate by `factor` in the first `total_iters` steps.
    ///
    /// ```
    /// use cotangent::optim::{ConstantLR, Schedule};
    /// let schedule = ConstantLR::new().factor(0.5).total_iters(4);
    /// assert_eq!((schedule.lr(3, 1.0, 0)?, schedule.lr(4, 1.0, 0)?), (0.5, 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ConstantLR() {
        /// The factor.
        factor: f64 = 1.0 / 3.0,
        /// The number of steps.
        total_iters: u64 = 5,
    }
}

impl Schedule for ConstantLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        Ok(if step < self.total_iters { base_lr * self.factor } else { base_lr })
    }

    fn check(&self, _: usize) -> Result<()> {
        part("ConstantLR", "factor", self.factor)
    }
}

/// Checks that a number is in [0, 1].
fn part(op: &'static str, what: &str, number: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&number) {
        bail!(Value, op, "{what} must be in [0, 1], got {number}");
    }
    Ok(())
}

/// Checks that a number of steps is not 0.
fn some(op: &'static str, what: &str, steps: u64) -> Result<()> {
    if steps == 0 {
        bail!(Value, op, "{what} must be ≥ 1, got 0");
    }
    Ok(())
}

schedule! {
    /// Multiplies the rate by a factor that changes linearly from `start_factor` to `end_factor`.
    ///
    /// ```
    /// use cotangent::optim::{LinearLR, Schedule};
    /// let schedule = LinearLR::new().start_factor(0.5).total_iters(4);
    /// assert_eq!((schedule.lr(0, 1.0, 0)?, schedule.lr(2, 1.0, 0)?, schedule.lr(9, 1.0, 0)?), (0.5, 0.75, 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    LinearLR() {
        /// The factor in the first step.
        start_factor: f64 = 1.0 / 3.0,
        /// The factor at the end.
        end_factor: f64 = 1.0,
        /// The number of steps until the end.
        total_iters: u64 = 5,
    }
}

impl LinearLR {
    /// A linear warm-up: `1 / steps` of the rate in the first step, `2 / steps` in the second, and the whole rate from the last
    /// of these steps on.
    ///
    /// ```
    /// use cotangent::optim::{LinearLR, Schedule};
    /// let schedule = LinearLR::warmup(4);
    /// let lrs = (0..6).map(|step| schedule.lr(step, 1.0, 0)).collect::<cotangent::Result<Vec<f64>>>()?;
    /// assert_eq!(lrs, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn warmup(steps: u64) -> LinearLR {
        let steps = steps.max(1);
        LinearLR { start_factor: 1.0 / steps as f64, end_factor: 1.0, total_iters: steps - 1 }
    }
}

impl Schedule for LinearLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        let LinearLR { start_factor, end_factor, total_iters } = *self;
        if step >= total_iters {
            return Ok(base_lr * end_factor);
        }
        Ok(base_lr * (start_factor + (end_factor - start_factor) * step as f64 / total_iters as f64))
    }

    fn check(&self, _: usize) -> Result<()> {
        part("LinearLR", "start_factor", self.start_factor)?;
        part("LinearLR", "end_factor", self.end_factor)
    }
}

schedule! {
    /// Multiplies the rate by `gamma` every `step_size` steps.
    ///
    /// ```
    /// use cotangent::optim::{Schedule, StepLR};
    /// let schedule = StepLR::new(10).gamma(0.5);
    /// assert_eq!((schedule.lr(9, 1.0, 0)?, schedule.lr(10, 1.0, 0)?), (1.0, 0.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    StepLR(step_size: u64) {
        /// The factor.
        gamma: f64 = 0.1,
    }
}

impl Schedule for StepLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        Ok(base_lr * power(self.gamma, step / self.step_size.max(1)))
    }

    fn check(&self, _: usize) -> Result<()> {
        some("StepLR", "step_size", self.step_size)?;
        not_negative("StepLR", "gamma", self.gamma)
    }
}

fn power(base: f64, exponent: u64) -> f64 {
    i32::try_from(exponent).map_or_else(|_| base.powf(exponent as f64), |exponent| base.powi(exponent))
}

schedule! {
    /// Multiplies the rate by `gamma` at each milestone.
    ///
    /// ```
    /// use cotangent::optim::{MultiStepLR, Schedule};
    /// let schedule = MultiStepLR::new([30, 80]).gamma(0.5);
    /// assert_eq!((schedule.lr(29, 1.0, 0)?, schedule.lr(80, 1.0, 0)?), (1.0, 0.25));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    MultiStepLR(milestones: Vec<u64>) {
        /// The factor.
        gamma: f64 = 0.1,
    }
}

impl Schedule for MultiStepLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        let reached = self.milestones.iter().filter(|&&milestone| milestone <= step).count();
        Ok(base_lr * power(self.gamma, reached as u64))
    }

    fn check(&self, _: usize) -> Result<()> {
        not_negative("MultiStepLR", "gamma", self.gamma)
    }
}

schedule! {
    /// Multiplies the rate by `gamma` in every step.
    ///
    /// ```
    /// use cotangent::optim::{ExponentialLR, Schedule};
    /// assert_eq!(ExponentialLR::new(0.5).lr(3, 1.0, 0)?, 0.125);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ExponentialLR(gamma: f64) {}
}

impl Schedule for ExponentialLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        Ok(base_lr * power(self.gamma, step))
    }

    fn check(&self, _: usize) -> Result<()> {
        not_negative("ExponentialLR", "gamma", self.gamma)
    }
}

schedule! {
    /// Decays the rate to 0 as a power of the remaining steps; linearly by default.
    ///
    /// ```
    /// use cotangent::optim::{PolynomialLR, Schedule};
    /// let schedule = PolynomialLR::new().total_iters(4).power(2.0);
    /// assert_eq!((schedule.lr(2, 1.0, 0)?, schedule.lr(5, 1.0, 0)?), (0.25, 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    PolynomialLR() {
        /// The number of steps until the rate is 0.
        total_iters: u64 = 5,
        /// The power.
        power: f64 = 1.0,
    }
}

impl Schedule for PolynomialLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        let left = 1.0 - step.min(self.total_iters) as f64 / self.total_iters.max(1) as f64;
        Ok(base_lr * left.powf(self.power))
    }

    fn check(&self, _: usize) -> Result<()> {
        some("PolynomialLR", "total_iters", self.total_iters)?;
        not_negative("PolynomialLR", "power", self.power)
    }
}

schedule! {
    /// Cosine annealing: from the rate down to `eta_min` in `t_max` steps, and up again in the next `t_max` steps.
    ///
    /// ```
    /// use cotangent::optim::{CosineAnnealingLR, Schedule};
    /// let schedule = CosineAnnealingLR::new(10).eta_min(0.2);
    /// assert_eq!((schedule.lr(0, 1.0, 0)?, schedule.lr(5, 1.0, 0)?, schedule.lr(10, 1.0, 0)?), (1.0, 0.6, 0.2));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    CosineAnnealingLR(t_max: u64) {
        /// The lowest rate.
        eta_min: f64 = 0.0,
    }
}

impl Schedule for CosineAnnealingLR {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        Ok(cosine(step as f64 / self.t_max.max(1) as f64, base_lr, self.eta_min))
    }

    fn check(&self, _: usize) -> Result<()> {
        some("CosineAnnealingLR", "t_max", self.t_max)?;
        not_negative("CosineAnnealingLR", "eta_min", self.eta_min)
    }
}

/// Cosine interpolation from `high` to `low` at the fraction `part`.
pub(super) fn cosine(part: f64, high: f64, low: f64) -> f64 {
    between(low, high, f64::midpoint(1.0, (PI * part).cos()))
}

/// Linear interpolation at the fraction `over`, exact at 0 and 1.
pub(super) fn between(start: f64, end: f64, over: f64) -> f64 {
    start * (1.0 - over) + end * over
}

schedule! {
    /// Cosine annealing with warm restarts: down to `eta_min` in `t_0` steps, then again from the rate. Each period is `t_mult`
    /// times as long as the one before.
    ///
    /// ```
    /// use cotangent::optim::{CosineAnnealingWarmRestarts, Schedule};
    /// let schedule = CosineAnnealingWarmRestarts::new(10).t_mult(2);
    /// assert_eq!((schedule.lr(5, 1.0, 0)?, schedule.lr(10, 1.0, 0)?, schedule.lr(20, 1.0, 0)?), (0.5, 1.0, 0.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    CosineAnnealingWarmRestarts(t_0: u64) {
        /// The ratio of the length of each period to the one before.
        t_mult: u64 = 1,
        /// The lowest rate.
        eta_min: f64 = 0.0,
    }
}

impl Schedule for CosineAnnealingWarmRestarts {
    fn lr(&self, step: u64, base_lr: f64, _: usize) -> Result<f64> {
        let (mut length, mut within) = (self.t_0.max(1), step);
        if self.t_mult <= 1 {
            within %= length;
        }
        while within >= length {
            within -= length;
            length = length.saturating_mul(self.t_mult);
        }
        Ok(cosine(within as f64 / length as f64, base_lr, self.eta_min))
    }

    fn check(&self, _: usize) -> Result<()> {
        some("CosineAnnealingWarmRestarts", "t_0", self.t_0)?;
        some("CosineAnnealingWarmRestarts", "t_mult", self.t_mult)?;
        not_negative("CosineAnnealingWarmRestarts", "eta_min", self.eta_min)
    }
}

schedule! {
    /// Anneals the rate to `swa_lr`, the constant rate of stochastic weight averaging.
    ///
    /// ```
    /// use cotangent::optim::{Schedule, SwaLR};
    /// let schedule = SwaLR::new(0.1).anneal_epochs(2);
    /// assert_eq!((schedule.lr(0, 1.0, 0)?, schedule.lr(1, 1.0, 0)?, schedule.lr(9, 1.0, 0)?), (1.0, 0.55, 0.1));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "SWALR")]
    SwaLR(swa_lr: PerGroup) {
        /// The number of steps until it is reached.
        anneal_epochs: u64 = 10,
        /// The annealing curve.
        anneal_strategy: super::AnnealStrategy = super::AnnealStrategy::Cos,
    }
}

impl Schedule for SwaLR {
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
        let over = if step >= self.anneal_epochs { 1.0 } else { step as f64 / self.anneal_epochs as f64 };
        Ok(self.anneal_strategy.between(base_lr, self.swa_lr.of(group), over))
    }

    fn check(&self, groups: usize) -> Result<()> {
        self.swa_lr.check("SwaLR", "swa_lr", groups)
    }
}

/// A factor for every step and group.
type Factor = Arc<dyn Fn(u64, usize) -> f64 + Send + Sync>;

/// Multiplies the rate by a function of the step. A [`Scheduler`](crate::optim::Scheduler) applies it to an optimiser.
///
/// ```
/// use cotangent::optim::{LambdaLR, Schedule};
/// let schedule = LambdaLR::new(|step| 0.5_f64.powi(step as i32));
/// assert_eq!(schedule.lr(3, 1.0, 0)?, 0.125);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone)]
pub struct LambdaLR(Factor);

impl LambdaLR {
    /// With a function of the step, for all groups.
    pub fn new(factor: impl Fn(u64) -> f64 + Send + Sync + 'static) -> LambdaLR {
        LambdaLR(Arc::new(move |step, _| factor(step)))
    }

    /// With a function of the step and the number of the group: 0 for parameters that belong to none.
    ///
    /// ```
    /// use cotangent::optim::{LambdaLR, Schedule};
    /// let schedule = LambdaLR::by_group(|step, group| if group == 0 { 1.0 } else { 1.0 / (step + 1) as f64 });
    /// assert_eq!((schedule.lr(3, 1.0, 0)?, schedule.lr(3, 1.0, 1)?), (1.0, 0.25));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn by_group(factor: impl Fn(u64, usize) -> f64 + Send + Sync + 'static) -> LambdaLR {
        LambdaLR(Arc::new(factor))
    }
}

impl fmt::Debug for LambdaLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LambdaLR(..)")
    }
}

impl Schedule for LambdaLR {
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
        Ok(base_lr * (self.0)(step, group))
    }
}

/// Multiplies the rate of the previous step by a function of the step, from step 1 on. A [`Scheduler`](crate::optim::Scheduler)
/// applies it to an optimiser.
///
/// ```
/// use cotangent::optim::{MultiplicativeLR, Schedule};
/// let schedule = MultiplicativeLR::new(|step| 1.0 / step as f64);
/// assert_eq!(schedule.lr(3, 1.0, 0)?, 1.0 / 6.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone)]
pub struct MultiplicativeLR {
    factor: Factor,
    /// The last product of each group, from which the next takes one multiplication.
    known: Arc<Mutex<Vec<(u64, f64)>>>,
}

impl MultiplicativeLR {
    /// With a function of the step, for all groups.
    pub fn new(factor: impl Fn(u64) -> f64 + Send + Sync + 'static) -> MultiplicativeLR {
        MultiplicativeLR::by_group(move |step, _| factor(step))
    }

    /// With a function of the step and the number of the group: 0 for parameters that belong to none.
    ///
    /// ```
    /// use cotangent::optim::{MultiplicativeLR, Schedule};
    /// let schedule = MultiplicativeLR::by_group(|_, group| if group == 0 { 1.0 } else { 0.5 });
    /// assert_eq!((schedule.lr(3, 1.0, 0)?, schedule.lr(3, 1.0, 1)?), (1.0, 0.125));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn by_group(factor: impl Fn(u64, usize) -> f64 + Send + Sync + 'static) -> MultiplicativeLR {
        MultiplicativeLR { factor: Arc::new(factor), known: Arc::default() }
    }
}

impl fmt::Debug for MultiplicativeLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MultiplicativeLR(..)")
    }
}

impl Schedule for MultiplicativeLR {
    fn lr(&self, step: u64, base_lr: f64, group: usize) -> Result<f64> {
        let last = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(group).copied();
        let (from, product) = last.filter(|&(from, _)| from <= step).unwrap_or((0, 1.0));
        let product = (from + 1..=step).fold(product, |product, step| product * (self.factor)(step, group));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        while known.len() <= group {
            known.push((0, 1.0));
        }
        known[group] = (step, product);
        Ok(base_lr * product)
    }
}
