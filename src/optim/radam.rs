//! RAdam (Liu and others, 2020): Adam with a rectified variance.

use super::adam::Decay;
use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::options::options;

options! {
    /// The settings of [`RAdam`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{RAdam, RAdamOptions};
    /// let optimizer = RAdam::new_with(RAdamOptions::new().beta2(0.99));
    /// ```
    pub struct RAdamOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// The decay rate of the running mean of the gradient.
        beta1: f64 = 0.9,
        /// The decay rate of the running mean of the squared gradient.
        beta2: f64 = 0.999,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// The weight decay.
        weight_decay: f64 = 0.0,
        /// Whether weight decay is decoupled from the gradient.
        decoupled_weight_decay: bool = false,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// RAdam: Adam with a rectified variance. The first steps use momentum alone, until the variance estimate is reliable. The
    /// arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::RAdam;
    /// let optimizer = RAdam::new(1e-3).betas(0.9, 0.99);
    /// ```
    RAdam(RAdamOptions) {
        beta1: f64, beta2: f64, eps: f64, weight_decay: f64, decoupled_weight_decay: bool, maximize: bool
    }
}

impl Algorithm for RAdamOptions {
    const OP: &'static str = "RAdam";
    const SLOTS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<Rectified, 2, 9>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        check_betas(Self::OP, [self.beta1, self.beta2])
    }

    fn run(groups: &Groups<RAdamOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<Rectified, 2, 9>(Self::OP, |name, step| {
            let own = groups.of(name);
            let (into_gradient, shrink) = Decay::new(own.weight_decay, own.decoupled_weight_decay).factors(own.lr);
            let step = step as f64;
            let (kept, size) = (own.beta2.powf(step), own.lr / (1.0 - own.beta1.powf(step)));
            // The effective length of the running mean of squares: its limit, and its current value.
            let longest = 2.0 / (1.0 - own.beta2) - 1.0;
            let length = longest - 2.0 * step * kept / (1.0 - kept);
            let rectified = if length > 5.0 {
                let part = (length - 4.0) * (length - 2.0) * longest;
                (part / ((longest - 4.0) * (longest - 2.0) * length)).sqrt() * (1.0 - kept).sqrt()
            } else {
                // The squares are not used.
                0.0
            };
            let (new, keep) = (1.0 - own.beta1, own.beta2);
            [sign(own.maximize), into_gradient, shrink, new, keep, 1.0 - keep, rectified, own.eps, size]
        })
    }
}

struct Rectified;

impl Rule<2, 9> for Rectified {
    #[inline(always)]
    fn at<T: Real>(
        [sign, into_gradient, shrink, new1, beta2, new2, rectified, eps, size]: [T; 9],
        p: T,
        g: T,
        [mean, square]: [T; 2],
    ) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, into_gradient);
        let mean = mean + new1 * (g - mean);
        let square = square * beta2 + new2 * g * g;
        let adapted = select(rectified.eq(T::constant(0.0)), mean, mean * rectified / (square.sqrt() + eps));
        (p * shrink - size * adapted, [mean, square])
    }
}
