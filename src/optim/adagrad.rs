//! Adagrad (Duchi, Hazan and Singer, 2011).

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule};
use crate::options::options;

options! {
    /// The settings of [`Adagrad`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Adagrad, AdagradOptions};
    /// let optimizer = Adagrad::new_with(AdagradOptions::new().lr_decay(1e-3));
    /// ```
    pub struct AdagradOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// The decay of the learning rate, which is divided by `1 + (step - 1) · lr_decay`.
        lr_decay: f64 = 0.0,
        /// The weight decay, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// The initial value of the sums of squares.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the denominator.
        eps: f64 = 1e-10,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Adagrad: divides the gradient by the root of the sum of its squares so far. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Adagrad;
    /// let optimizer = Adagrad::new(0.05).initial_accumulator_value(0.1);
    /// ```
    Adagrad(AdagradOptions) {
        lr_decay: f64, weight_decay: f64, initial_accumulator_value: f64, eps: f64, maximize: bool
    }
}

impl Algorithm for AdagradOptions {
    const OP: &'static str = "Adagrad";
    const SLOTS: &'static [&'static str] = &["sum"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<BySum, 1, 4>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "lr_decay", self.lr_decay)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "initial_accumulator_value", self.initial_accumulator_value)?;
        not_negative(Self::OP, "eps", self.eps)
    }

    fn initial(&self, _: usize) -> f64 {
        self.initial_accumulator_value
    }

    fn run(groups: &Groups<AdagradOptions>, call: Call<'_>) -> Result<()> {
        call.elementwise::<BySum, 1, 4>(Self::OP, |name, step| {
            let own = groups.of(name);
            let lr = own.lr / (1.0 + (step - 1) as f64 * own.lr_decay);
            [sign(own.maximize), own.weight_decay, own.eps, lr]
        })
    }
}

struct BySum;

impl Rule<1, 4> for BySum {
    #[inline(always)]
    fn at<T: Real>([sign, decay, eps, lr]: [T; 4], p: T, g: T, [sum]: [T; 1]) -> (T, [T; 1])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let sum = sum + g * g;
        (p - lr * g / (sum.sqrt() + eps), [sum])
    }
}
