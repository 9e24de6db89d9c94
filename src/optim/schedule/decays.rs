//! Schedules that go one way, or repeat.

use super::{PerGroup, Schedule, schedule};
use crate::Result;
use crate::error::bail;
use crate::optim::settings::not_negative;
use std::f64::consts::PI;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

schedule! {
    /// A constant part of the rate for some steps, and all of it afterwards.
    ///
    /// ```
    /// use cotangent::optim::{ConstantLR, Schedule};
    /// let schedule = ConstantLR::new().factor(0.5).total_iters(4);
    /// assert_eq!((schedule.lr(3, 1.0, 0)?, schedule.lr(4, 1.0, 0)?), (0.5, 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ConstantLR() {
        /// The part.
        factor: f64 = 1.0 / 3.0,
        /// For how many steps.
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

/// Refuses what is no part of 1.
fn part(op: &'static str, what: &str, number: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&number) {
        bail!(Value, op, "the {what} cannot be {number}: it lies between 0 and 1");
    }
    Ok(())
}

/// Refuses 0 steps.
fn some(op: &'static str, what: &str, steps: u64) -> Result<()> {
    if steps == 0 {
        bail!(Value, op, "the {what} cannot be 0");
    }
    Ok(())
}

schedule! {
    /// From one part of the rate to another, in a line.
    ///
    /// ```
    /// use cotangent::optim::{LinearLR, Schedule};
    /// let schedule = LinearLR::new().start_factor(0.5).total_iters(4);
    /// assert_eq!((schedule.lr(0, 1.0, 0)?, schedule.lr(2, 1.0, 0)?, schedule.lr(9, 1.0, 0)?), (0.5, 0.75, 1.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    LinearLR() {
        /// The part in the first step.
        start_factor: f64 = 1.0 / 3.0,
        /// The part at the end.
        end_factor: f64 = 1.0,
        /// After how many steps that is.
        total_iters: u64 = 5,
    }
}

impl LinearLR {
    /// A warm-up: a first step with `1 / steps` of the rate, a second with `2 / steps`, and all of it from the last of these
    /// steps on.
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
    /// Less by a factor, every so many steps.
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
    /// Less by a factor at each of some steps.
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
    /// Less by a factor in every step.
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
    /// Down to 0 as a power of the steps that are left; in a line, unless the power is set.
    ///
    /// ```
    /// use cotangent::optim::{PolynomialLR, Schedule};
    /// let schedule = PolynomialLR::new().total_iters(4).power(2.0);
    /// assert_eq!((schedule.lr(2, 1.0, 0)?, schedule.lr(5, 1.0, 0)?), (0.25, 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    PolynomialLR() {
        /// After how many steps the rate is 0.
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
    /// Half a wave of a cosine, from the rate down to `eta_min` in `t_max` steps, and up again in the next as many.
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

/// From `high` to `low` along half a wave, of which `part` is over.
pub(super) fn cosine(part: f64, high: f64, low: f64) -> f64 {
    between(low, high, f64::midpoint(1.0, (PI * part).cos()))
}

/// A part of the way from one rate to another, of which 0 and 1 are exactly these.
pub(super) fn between(start: f64, end: f64, over: f64) -> f64 {
    start * (1.0 - over) + end * over
}

schedule! {
    /// Half a wave of a cosine down to `eta_min` in `t_0` steps, and again from the top, each time `t_mult` times as long.
    ///
    /// ```
    /// use cotangent::optim::{CosineAnnealingWarmRestarts, Schedule};
    /// let schedule = CosineAnnealingWarmRestarts::new(10).t_mult(2);
    /// assert_eq!((schedule.lr(5, 1.0, 0)?, schedule.lr(10, 1.0, 0)?, schedule.lr(20, 1.0, 0)?), (0.5, 1.0, 0.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    CosineAnnealingWarmRestarts(t_0: u64) {
        /// How much longer each wave is than the one before.
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
    /// From the rate to that of stochastic weight averaging, which is held then.
    ///
    /// ```
    /// use cotangent::optim::{Schedule, SwaLR};
    /// let schedule = SwaLR::new(0.1).anneal_epochs(2);
    /// assert_eq!((schedule.lr(0, 1.0, 0)?, schedule.lr(1, 1.0, 0)?, schedule.lr(9, 1.0, 0)?), (1.0, 0.55, 0.1));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "SWALR")]
    SwaLR(swa_lr: PerGroup) {
        /// After how many steps it is reached.
        anneal_epochs: u64 = 10,
        /// Along what.
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

/// The rate times a factor that a function of the step gives.
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

/// The rate of the step before times a factor that a function of the step gives, from step 1 on.
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
    /// The products that were asked for last, for each group: with them the next one is one multiplication.
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
