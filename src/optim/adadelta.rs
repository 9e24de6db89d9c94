//! Adadelta (Zeiler, 2012).

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule};
use crate::error::bail;
use crate::options::options;

options! {
    /// The settings of [`Adadelta`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Adadelta, AdadeltaOptions};
    /// let optimizer = Adadelta::new_with(AdadeltaOptions::new().rho(0.95));
    /// ```
    pub struct AdadeltaOptions {
        /// The learning rate.
        lr: f64 = 1.0,
        /// The decay rate of the running means of squares.
        rho: f64 = 0.9,
        /// Added to the running means of squares.
        eps: f64 = 1e-6,
        /// The weight decay, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Adadelta: scales the gradient by the root mean square of past updates over that of past gradients. The arithmetic is
    /// PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Adadelta;
    /// let optimizer = Adadelta::new(1.0).rho(0.95);
    /// ```
    Adadelta(AdadeltaOptions) { rho: f64, eps: f64, weight_decay: f64, maximize: bool }
}

impl Algorithm for AdadeltaOptions {
    const OP: &'static str = "Adadelta";
    const SLOTS: &'static [&'static str] = &["square_avg", "acc_delta"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<ByUpdates, 2, 5>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, rho, eps, weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        if !(0.0..=1.0).contains(&self.rho) {
            bail!(Value, Self::OP, "rho must be in [0, 1], got {}", self.rho);
        }
        Ok(())
    }

    fn run(groups: &Groups<AdadeltaOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<ByUpdates, 2, 5>(Self::OP, |name, _| {
            let own = groups.of(name);
            [sign(own.maximize), own.weight_decay, own.rho, own.eps, own.lr]
        })
    }
}

struct ByUpdates;

impl Rule<2, 5> for ByUpdates {
    #[inline(always)]
    fn at<T: Real>([sign, decay, rho, eps, lr]: [T; 5], p: T, g: T, [square, updates]: [T; 2]) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let square = square * rho + (1.0 - rho) * g * g;
        let update = (updates + eps).sqrt() / (square + eps).sqrt() * g;
        let updates = updates * rho + (1.0 - rho) * update * update;
        (p - lr * update, [square, updates])
    }
}
