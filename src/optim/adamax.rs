//! Adamax (Kingma and Ba, 2015): Adam with the infinity norm.

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use super::sgd::{decayed, larger};
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule};
use crate::options::options;

options! {
    /// The settings of [`Adamax`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Adamax, AdamaxOptions};
    /// let optimizer = Adamax::new_with(AdamaxOptions::new().beta2(0.99));
    /// ```
    pub struct AdamaxOptions {
        /// The learning rate.
        lr: f64 = 2e-3,
        /// The decay rate of the running mean of the gradient.
        beta1: f64 = 0.9,
        /// The decay rate of the running maximum of the gradient's magnitude.
        beta2: f64 = 0.999,
        /// Added to the magnitude of the gradient.
        eps: f64 = 1e-8,
        /// The weight decay, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Adamax: Adam with a running maximum of the gradient's magnitude as the denominator. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Adamax;
    /// let optimizer = Adamax::new(2e-3).betas(0.9, 0.99);
    /// ```
    Adamax(AdamaxOptions) { beta1: f64, beta2: f64, eps: f64, weight_decay: f64, maximize: bool }
}

impl Algorithm for AdamaxOptions {
    const OP: &'static str = "Adamax";
    const SLOTS: &'static [&'static str] = &["exp_avg", "exp_inf"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<ByLargest, 2, 6>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta1, beta2, eps, weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        check_betas(Self::OP, [self.beta1, self.beta2])
    }

    fn run(groups: &Groups<AdamaxOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<ByLargest, 2, 6>(Self::OP, |name, step| {
            let own = groups.of(name);
            let size = own.lr / (1.0 - own.beta1.powf(step as f64));
            [sign(own.maximize), own.weight_decay, 1.0 - own.beta1, own.beta2, own.eps, size]
        })
    }
}

struct ByLargest;

impl Rule<2, 6> for ByLargest {
    #[inline(always)]
    fn at<T: Real>([sign, decay, new, keep, eps, size]: [T; 6], p: T, g: T, [mean, most]: [T; 2]) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let mean = mean + new * (g - mean);
        let most = larger(most * keep, larger(g, -g) + eps);
        (p - size * mean / most, [mean, most])
    }
}
