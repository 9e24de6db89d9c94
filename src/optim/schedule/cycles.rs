//! Cyclic schedules of the learning rate and the momentum.

use super::decays::{between, cosine};
use super::{PerGroup, Schedule, schedule};
use crate::Result;
use crate::error::bail;
use crate::optim::settings::not_negative;
use std::fmt;
use std::sync::Arc;

/// The curve along which a rate changes from one value to another.
///
/// ```
/// use cotangent::optim::{AnnealStrategy, OneCycleLR};
/// let schedule = OneCycleLR::new(0.1, 1000).anneal_strategy(AnnealStrategy::Linear);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnnealStrategy {
    /// Half a period of a cosine.
    #[default]
    Cos,
    /// A straight line.
    Linear,
}

impl AnnealStrategy {
    pub(super) fn between(self, start: f64, end: f64, over: f64) -> f64 {
        match self {
            AnnealStrategy::Cos => cosine(over, start, end),
            AnnealStrategy::Linear => between(start, end, over),
        }
    }
}

schedule! {
    /// The 1cycle policy (Smith and Topin, 2017): the rate rises from `max_lr / div_factor` to `max_lr`, and falls to far below the
    /// initial rate. The momentum, or `beta1` of Adam's variants, falls and rises meanwhile.
    ///
    /// ```
    /// use cotangent::optim::{OneCycleLR, Optimizer, Scheduler, Sgd};
    /// let (epochs, batches) = (10, 100);
    /// let mut optimizer = Sgd::new(0.1).momentum(0.9);
    /// let mut scheduler = Scheduler::new(&mut optimizer, OneCycleLR::new(0.5, epochs * batches))?;
    /// assert_eq!(optimizer.lr(), 0.5 / 25.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    OneCycleLR(max_lr: PerGroup, total_steps: u64) {
        /// The fraction of all steps in which the rate rises.
        pct_start: f64 = 0.3,
        /// The curve of the rate.
        anneal_strategy: AnnealStrategy = AnnealStrategy::Cos,
        /// Whether the momentum is cycled, too.
        cycle_momentum: bool = true,
        /// The momentum where the rate is highest.
        base_momentum: PerGroup = PerGroup::from(0.85),
        /// The momentum at the start and at the end.
        max_momentum: PerGroup = PerGroup::from(0.95),
        /// The ratio of the highest rate to the initial one.
        div_factor: f64 = 25.0,
        /// The ratio of the initial rate to the final one.
        final_div_factor: f64 = 1e4,
        /// Whether the rate falls to the initial one as slowly as it rose, and to the final one in a third phase.
        three_phase: bool = false,
    }
}

/// The levels at the start and at the end of a phase, and the position of a step in it.
struct Phase {
    from: Level,
    to: Level,
    over: f64,
}

/// The level of a rate or a momentum at the bounds of phases.
#[derive(Clone, Copy)]
enum Level {
    First,
    Peak,
    Last,
}

impl OneCycleLR {
    fn phase(&self, step: u64) -> Result<Phase> {
        if step > self.total_steps {
            bail!(
                Value,
                "OneCycleLR",
                "step must be ≤ total_steps {}, got {step}: total_steps must count every batch of all epochs",
                self.total_steps
            );
        }
        let (total, up) = (self.total_steps as f64, self.pct_start * self.total_steps as f64);
        let mut phases = vec![(up - 1.0, Level::First, Level::Peak)];
        if self.three_phase {
            phases.push((2.0 * up - 2.0, Level::Peak, Level::First));
            phases.push((total - 1.0, Level::First, Level::Last));
        } else {
            phases.push((total - 1.0, Level::Peak, Level::Last));
        }
        let mut start = 0.0;
        // A caller that steps the schedule after each batch also does so after the last. No batch uses that rate: it stays at
        // the end.
        let step = step.min(self.total_steps - 1) as f64;
        let last = phases.len() - 1;
        for (at, (end, from, to)) in phases.into_iter().enumerate() {
            if step <= end || at == last {
                let over = if end > start { (step - start) / (end - start) } else { 1.0 };
                return Ok(Phase { from, to, over });
            }
            start = end;
        }
        Ok(Phase { from: Level::Last, to: Level::Last, over: 1.0 })
    }
}

impl Schedule for OneCycleLR {
    fn lr(&self, step: u64, _: f64, group: usize) -> Result<f64> {
        let peak = self.max_lr.of(group);
        let level = |level| match level {
            Level::First => peak / self.div_factor,
            Level::Peak => peak,
            Level::Last => peak / self.div_factor / self.final_div_factor,
        };
        let Phase { from, to, over } = self.phase(step)?;
        Ok(self.anneal_strategy.between(level(from), level(to), over))
    }

    fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
        if !self.cycle_momentum {
            return Ok(None);
        }
        let level = |level| match level {
            Level::Peak => self.base_momentum.of(group),
            Level::First | Level::Last => self.max_momentum.of(group),
        };
        let Phase { from, to, over } = self.phase(step)?;
        Ok(Some(self.anneal_strategy.between(level(from), level(to), over)))
    }

    fn check(&self, groups: usize) -> Result<()> {
        const OP: &str = "OneCycleLR";
        if self.total_steps == 0 {
            bail!(Value, OP, "total_steps must be ≥ 1, got 0");
        }
        if !(0.0..=1.0).contains(&self.pct_start) {
            bail!(Value, OP, "pct_start must be in [0, 1], got {}", self.pct_start);
        }
        for (what, factor) in [("div_factor", self.div_factor), ("final_div_factor", self.final_div_factor)] {
            if factor.is_nan() || factor <= 0.0 {
                bail!(Value, OP, "{what} must be > 0, got {factor}");
            }
        }
        self.max_lr.check(OP, "max_lr", groups)?;
        self.base_momentum.check(OP, "base_momentum", groups)?;
        self.max_momentum.check(OP, "max_momentum", groups)
    }
}

/// How the amplitude of [`CyclicLR`] changes.
///
/// ```
/// use cotangent::optim::{CyclicLR, CyclicMode};
/// let schedule = CyclicLR::new(0.01, 0.1).mode(CyclicMode::Triangular2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CyclicMode {
    /// It is constant.
    #[default]
    Triangular,
    /// It is halved after each cycle.
    Triangular2,
    /// It is multiplied by `gamma` in each step.
    ExpRange,
}

/// The argument of the function that scales [`CyclicLR`].
///
/// ```
/// use cotangent::optim::{CyclicLR, ScaleMode};
/// let schedule = CyclicLR::new(0.01, 0.1).scale(ScaleMode::Iterations, |step| 0.999_f64.powf(step));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleMode {
    /// The number of the cycle, from 1.
    #[default]
    Cycle,
    /// The number of the step, from 0.
    Iterations,
}

/// An amplitude for each cycle or step.
#[derive(Clone)]
struct Scale(ScaleMode, Arc<dyn Fn(f64) -> f64 + Send + Sync>);

impl fmt::Debug for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

schedule! {
    /// Cycles the rate between `base_lr` and `max_lr` (Smith, 2017). The momentum moves in the opposite direction.
    ///
    /// ```
    /// use cotangent::optim::{CyclicLR, Schedule};
    /// let schedule = CyclicLR::new(0.0, 1.0).step_size_up(4);
    /// assert_eq!((schedule.lr(2, 9.0, 0)?, schedule.lr(4, 9.0, 0)?, schedule.lr(6, 9.0, 0)?), (0.5, 1.0, 0.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    CyclicLR(base_lr: PerGroup, max_lr: PerGroup) {
        /// The number of steps in which the rate rises.
        step_size_up: u64 = 2000,
        /// The number of steps in which it falls; by default `step_size_up`.
        step_size_down: Option<u64> = None,
        /// How the amplitude changes.
        mode: CyclicMode = CyclicMode::Triangular,
        /// The factor of [`CyclicMode::ExpRange`].
        gamma: f64 = 1.0,
        /// Whether the momentum is cycled, too.
        cycle_momentum: bool = true,
        /// The momentum where the rate is highest.
        base_momentum: PerGroup = PerGroup::from(0.8),
        /// The momentum where it is lowest.
        max_momentum: PerGroup = PerGroup::from(0.9),
    }
    with own_scale: Option<Scale>
}

impl CyclicLR {
    /// Sets the amplitude as a function, in place of a [mode](CyclicLR::mode).
    ///
    /// ```
    /// use cotangent::optim::{CyclicLR, ScaleMode, Schedule};
    /// let schedule = CyclicLR::new(0.0, 1.0).step_size_up(4).scale(ScaleMode::Cycle, |cycle| 1.0 / cycle);
    /// assert_eq!((schedule.lr(4, 9.0, 0)?, schedule.lr(12, 9.0, 0)?), (1.0, 0.5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "scale_fn")]
    pub fn scale(mut self, mode: ScaleMode, f: impl Fn(f64) -> f64 + Send + Sync + 'static) -> CyclicLR {
        self.own_scale = Some(Scale(mode, Arc::new(f)));
        self
    }

    /// The position of a step between the lowest and the highest value.
    fn height(&self, step: u64) -> f64 {
        let up = self.step_size_up.max(1) as f64;
        let total = up + self.step_size_down.map_or(up, |down| down as f64);
        let step = step as f64;
        let cycle = (1.0 + step / total).floor();
        let within = 1.0 + step / total - cycle;
        let ratio = up / total;
        let height = if within <= ratio { within / ratio } else { (within - 1.0) / (ratio - 1.0) };
        height.max(0.0)
            * match (&self.own_scale, self.mode) {
                (Some(Scale(ScaleMode::Cycle, f)), _) => f(cycle),
                (Some(Scale(ScaleMode::Iterations, f)), _) => f(step),
                (None, CyclicMode::Triangular) => 1.0,
                (None, CyclicMode::Triangular2) => 0.5_f64.powf(cycle - 1.0),
                (None, CyclicMode::ExpRange) => self.gamma.powf(step),
            }
    }
}

impl Schedule for CyclicLR {
    fn lr(&self, step: u64, _: f64, group: usize) -> Result<f64> {
        let (low, high) = (self.base_lr.of(group), self.max_lr.of(group));
        Ok(low + (high - low) * self.height(step))
    }

    fn momentum(&self, step: u64, group: usize) -> Result<Option<f64>> {
        let (low, high) = (self.base_momentum.of(group), self.max_momentum.of(group));
        Ok(self.cycle_momentum.then(|| high - (high - low) * self.height(step)))
    }

    fn check(&self, groups: usize) -> Result<()> {
        const OP: &str = "CyclicLR";
        if self.step_size_up == 0 || self.step_size_down == Some(0) {
            let down = self.step_size_down.unwrap_or(self.step_size_up);
            bail!(Value, OP, "step_size_up and step_size_down must be ≥ 1, got {} and {down}", self.step_size_up);
        }
        not_negative(OP, "gamma", self.gamma)?;
        self.base_lr.check(OP, "base_lr", groups)?;
        self.max_lr.check(OP, "max_lr", groups)?;
        self.base_momentum.check(OP, "base_momentum", groups)?;
        self.max_momentum.check(OP, "max_momentum", groups)
    }
}
