//! NAdam (Dozat, 2016): Adam with Nesterov momentum.

use super::adam::Decay;
use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule};
use crate::options::options;

options! {
    /// The settings of [`NAdam`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{NAdam, NAdamOptions};
    /// let optimizer = NAdam::new_with(NAdamOptions::new().momentum_decay(1e-3));
    /// ```
    pub struct NAdamOptions {
        /// The learning rate.
        lr: f64 = 2e-3,
        /// The decay rate of the running mean of the gradient.
        beta1: f64 = 0.9,
        /// The decay rate of the running mean of the squared gradient.
        beta2: f64 = 0.999,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// The weight decay.
        weight_decay: f64 = 0.0,
        /// How fast the momentum approaches `beta1`.
        momentum_decay: f64 = 4e-3,
        /// Whether weight decay is decoupled from the gradient.
        decoupled_weight_decay: bool = false,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// NAdam: Adam with Nesterov momentum, which grows over the first steps. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::NAdam;
    /// let optimizer = NAdam::new(2e-3).weight_decay(0.01).decoupled_weight_decay(true);
    /// ```
    NAdam(NAdamOptions) {
        beta1: f64, beta2: f64, eps: f64, weight_decay: f64, momentum_decay: f64, decoupled_weight_decay: bool,
        maximize: bool
    }
}

impl Algorithm for NAdamOptions {
    const OP: &'static str = "NAdam";
    const SLOTS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];
    const COUNTERS: &'static [(&'static str, f64)] = &[("mu_product", 1.0)];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<Ahead, 2, 10>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled_weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        not_negative(Self::OP, "momentum_decay", self.momentum_decay)?;
        check_betas(Self::OP, [self.beta1, self.beta2])
    }

    fn run(groups: &Groups<NAdamOptions>, call: Call<'_>) -> Result<()> {
        call.counting::<Ahead, 2, 10>(Self::OP, |name, step, counters| {
            let own = groups.of(name);
            let step = step as f64;
            let momentum = |step: f64| own.beta1 * (1.0 - 0.5 * 0.96_f64.powf(step * own.momentum_decay));
            let (now, next) = (momentum(step), momentum(step + 1.0));
            let mut product = now;
            if let [kept] = counters {
                *kept *= now;
                product = *kept;
            }
            let (into_gradient, shrink) = Decay::new(own.weight_decay, own.decoupled_weight_decay).factors(own.lr);
            let rescale = 1.0 / (1.0 - own.beta2.powf(step)).sqrt();
            let (by_gradient, by_mean) =
                (own.lr * (1.0 - now) / (1.0 - product), own.lr * next / (1.0 - product * next));
            let (new, keep) = (1.0 - own.beta1, own.beta2);
            [sign(own.maximize), into_gradient, shrink, new, keep, 1.0 - keep, rescale, own.eps, by_gradient, by_mean]
        })
    }
}

struct Ahead;

impl Rule<2, 10> for Ahead {
    #[inline(always)]
    fn at<T: Real>(
        [sign, into_gradient, shrink, new1, beta2, new2, rescale, eps, by_gradient, by_mean]: [T; 10],
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
        let denominator = square.sqrt() * rescale + eps;
        (p * shrink - (by_gradient * g + by_mean * mean) / denominator, [mean, square])
    }
}
