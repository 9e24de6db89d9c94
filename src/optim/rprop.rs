//! Rprop (Riedmiller and Braun, 1993): steps by the gradient's sign.

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::error::bail;
use crate::options::options;

options! {
    /// The settings of [`Rprop`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Rprop, RpropOptions};
    /// let optimizer = Rprop::new_with(RpropOptions::new().etaplus(1.1));
    /// ```
    pub struct RpropOptions {
        /// The initial step size.
        lr: f64 = 1e-2,
        /// The factor of the step size when the gradient's sign has changed.
        etaminus: f64 = 0.5,
        /// The factor of the step size when it has not.
        etaplus: f64 = 1.2,
        /// The smallest step size.
        min_step_size: f64 = 1e-6,
        /// The largest step size.
        max_step_size: f64 = 50.0,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Rprop: updates by the gradient's sign. Each element has its own step size, which grows while the sign stays and shrinks when
    /// it changes. It is for full-batch gradients. The learning rate is only the initial step size. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Rprop;
    /// let optimizer = Rprop::new(0.01).etas(0.5, 1.1).step_sizes(1e-6, 1.0);
    /// ```
    Rprop(RpropOptions) {
        etaminus: f64, etaplus: f64, min_step_size: f64, max_step_size: f64, maximize: bool
    }
}

impl Rprop {
    /// Sets the factors of the step size when the gradient's sign has changed, and when it has not.
    ///
    /// ```
    /// use cotangent::optim::Rprop;
    /// let optimizer = Rprop::new(0.01).etas(0.4, 1.3);
    /// ```
    pub fn etas(self, etaminus: f64, etaplus: f64) -> Rprop {
        self.etaminus(etaminus).etaplus(etaplus)
    }

    /// Sets the smallest and the largest step size.
    ///
    /// ```
    /// use cotangent::optim::Rprop;
    /// let optimizer = Rprop::new(0.01).step_sizes(1e-5, 1.0);
    /// ```
    pub fn step_sizes(self, min: f64, max: f64) -> Rprop {
        self.min_step_size(min).max_step_size(max)
    }
}

impl Algorithm for RpropOptions {
    const OP: &'static str = "Rprop";
    const SLOTS: &'static [&'static str] = &["prev", "step_size"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<BySign, 2, 5>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, etaminus, etaplus, min_step_size, max_step_size, maximize)
    }

    fn check(&self) -> Result<()> {
        let RpropOptions { lr, etaminus, etaplus, min_step_size, max_step_size, .. } = *self;
        not_negative(Self::OP, "lr", lr)?;
        not_negative(Self::OP, "min_step_size", min_step_size)?;
        not_negative(Self::OP, "max_step_size", max_step_size)?;
        if !(etaminus > 0.0 && etaminus < 1.0 && etaplus > 1.0) {
            bail!(Value, Self::OP, "etaminus must be in (0, 1) and etaplus > 1, got {etaminus} and {etaplus}");
        }
        Ok(())
    }

    fn initial(&self, slot: usize) -> f64 {
        if slot == 1 { self.lr } else { 0.0 }
    }

    fn run(groups: &Groups<RpropOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<BySign, 2, 5>(Self::OP, |name, _| {
            let own = groups.of(name);
            [sign(own.maximize), own.etaminus, own.etaplus, own.min_step_size, own.max_step_size]
        })
    }
}

struct BySign;

impl Rule<2, 5> for BySign {
    #[inline(always)]
    fn at<T: Real>([sign, less, more, min, max]: [T; 5], p: T, g: T, [last, size]: [T; 2]) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let zero = T::constant(0.0);
        let g = g * sign;
        let same = g * last;
        let factor = select(same.gt(zero), more, select(same.lt(zero), less, T::constant(1.0)));
        let size = size * factor;
        let size = select(size.lt(min), min, size);
        let size = select(size.gt(max), max, size);
        // After a change of sign the element is not updated, and its step size stays in the next step.
        let g = select(same.lt(zero), zero, g);
        let step = select(g.gt(zero), size, select(g.lt(zero), -size, zero));
        (p - step, [g, size])
    }
}
