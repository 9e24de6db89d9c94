//! Lion (Chen and others, 2023): steps by the sign of a momentum.

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::options::options;

options! {
    /// The settings of [`Lion`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Lion, LionOptions};
    /// let optimizer = Lion::new_with(LionOptions::new().weight_decay(0.1));
    /// ```
    pub struct LionOptions {
        /// The learning rate.
        lr: f64 = 1e-4,
        /// The weight of the running mean of the gradient in the direction.
        beta1: f64 = 0.9,
        /// The decay rate of the running mean of the gradient.
        beta2: f64 = 0.99,
        /// The decoupled weight decay.
        weight_decay: f64 = 0.0,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Lion: updates by the sign of the gradient's running mean, so that all elements move equally. Use a learning rate
    /// about ten times smaller and a weight decay about ten times larger than for AdamW.
    ///
    /// ```
    /// use cotangent::optim::Lion;
    /// let optimizer = Lion::new(1e-4).weight_decay(1.0).no_decay(|name| name.ends_with("bias"));
    /// ```
    Lion(LionOptions) { beta1: f64, beta2: f64, weight_decay: f64, maximize: bool }
}

impl Algorithm for LionOptions {
    const OP: &'static str = "Lion";
    const SLOTS: &'static [&'static str] = &["exp_avg"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<BySign, 1, 5>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta1, beta2, weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        check_betas(Self::OP, [self.beta1, self.beta2])
    }

    fn run(groups: &Groups<LionOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<BySign, 1, 5>(Self::OP, |name, _| {
            let own = groups.of(name);
            [sign(own.maximize), 1.0 - own.lr * own.weight_decay, own.beta1, own.beta2, own.lr]
        })
    }
}

struct BySign;

impl Rule<1, 5> for BySign {
    #[inline(always)]
    fn at<T: Real>([sign, shrink, beta1, beta2, lr]: [T; 5], p: T, g: T, [mean]: [T; 1]) -> (T, [T; 1])
    where
        f64: Constant<T>,
    {
        let zero = T::constant(0.0);
        let g = g * sign;
        let direction = mean * beta1 + (1.0 - beta1) * g;
        // NaN stays NaN.
        let step = select(direction.gt(zero), lr, select(direction.lt(zero), -lr, direction));
        (p * shrink - step, [mean * beta2 + (1.0 - beta2) * g])
    }
}
