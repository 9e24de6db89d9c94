//! Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).

use super::engine::{Algorithm, Call, Groups, Setting, not_negative, optimizer, settings};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule};
use crate::error::bail;
use crate::options::options;

/// Defines an optimiser with the way its decay enters and its default.
macro_rules! adaptive {
    ($($(#[$doc:meta])+ $name:ident($options:ident), decay $decay:literal as $mode:ident;)+) => {$(
        options! {
            #[doc = concat!("The settings of [`", stringify!($name), "`], also of one of its groups of parameters.\n")]
            #[doc = concat!("```\nuse cotangent::optim::{", stringify!($name), ", ", stringify!($options), "};")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new_with(", stringify!($options), "::new().lr(3e-4).beta2(0.95));\n```")]
            pub struct $options {
                /// The learning rate.
                lr: f64 = 1e-3,
                /// How much of the running mean of the gradient is kept in each step.
                beta1: f64 = 0.9,
                /// How much of the running mean of its square is kept in each step.
                beta2: f64 = 0.999,
                /// Added to the denominator.
                eps: f64 = 1e-8,
                /// The factor by which parameters decay.
                weight_decay: f64 = $decay,
            }
        }

        optimizer! { $(#[$doc])+ $name($options) { eps: f64, weight_decay: f64 } }

        impl $name {
            /// How much of the running means of the gradient and of its square is kept in each step.
            ///
            #[doc = concat!("```\nuse cotangent::optim::", stringify!($name), ";")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new(3e-4).betas(0.9, 0.95);\n```")]
            pub fn betas(mut self, beta1: f64, beta2: f64) -> $name {
                let options = &mut self.engine.groups.base;
                (options.beta1, options.beta2) = (beta1, beta2);
                self
            }
        }

        impl Algorithm for $options {
            const OP: &'static str = stringify!($name);
            const SLOTS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];

            fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)> {
                settings!(self: lr, beta1, beta2, eps, weight_decay)
            }

            fn check(&self) -> Result<()> {
                let $options { lr, beta1, beta2, eps, weight_decay } = *self;
                check(Self::OP, lr, [beta1, beta2], eps, weight_decay)
            }

            fn run(groups: &Groups<$options>, call: Call<'_>) -> Result<()> {
                call.elementwise::<Adaptive, 2, 8>(Self::OP, |name, step| {
                    let $options { lr, beta1, beta2, eps, weight_decay } = *groups.of(name);
                    numbers(step, lr, [beta1, beta2], eps, DecayMode::$mode(weight_decay))
                })
            }
        }
    )+};
}

adaptive! {
    /// Adam; weight decay is added to the gradient. PyTorch's arithmetic.
    ///
    /// ```
    /// use cotangent::optim::Adam;
    /// let optimizer = Adam::new(1e-3).betas(0.9, 0.99);
    /// ```
    Adam(AdamOptions), decay 0.0 as Coupled;
    /// Adam with weight decay apart from the gradient: the parameter shrinks by `lr · weight_decay`. PyTorch's arithmetic.
    ///
    /// ```
    /// use cotangent::optim::AdamW;
    /// let optimizer = AdamW::new(3e-4)
    ///     .betas(0.9, 0.95)
    ///     .weight_decay(0.1)
    ///     .no_decay(|name| name.ends_with("bias"))
    ///     .group(|name| name.starts_with("head."), |options| options.lr(1e-3));
    /// ```
    AdamW(AdamWOptions), decay 0.01 as Decoupled;
}

/// How weight decay enters.
#[derive(Clone, Copy)]
enum DecayMode {
    /// Into the gradient, and so into the moments.
    Coupled(f64),
    /// Into the parameter directly.
    Decoupled(f64),
}

fn check(op: &'static str, lr: f64, betas: [f64; 2], eps: f64, weight_decay: f64) -> Result<()> {
    not_negative(op, "learning rate", lr)?;
    not_negative(op, "weight decay", weight_decay)?;
    not_negative(op, "eps", eps)?;
    for beta in betas {
        if !(0.0..1.0).contains(&beta) {
            bail!(Value, op, "a beta of {beta} is not at least 0 and below 1");
        }
    }
    Ok(())
}

/// The numbers of the rule in a step, counted from 1.
fn numbers(step: u64, lr: f64, [beta1, beta2]: [f64; 2], eps: f64, decay: DecayMode) -> [f64; 8] {
    // Both running means begin at zero; dividing by these makes up for it.
    let corrections = (1.0 - beta1.powf(step as f64), 1.0 - beta2.powf(step as f64));
    let (into_gradient, shrink) = match decay {
        DecayMode::Coupled(decay) => (decay, 1.0),
        DecayMode::Decoupled(decay) => (0.0, 1.0 - lr * decay),
    };
    // A division of every element costs more than the memory it is loaded from.
    let (rescale, size) = (1.0 / corrections.1.sqrt(), lr / corrections.0);
    [into_gradient, shrink, 1.0 - beta1, beta2, 1.0 - beta2, rescale, eps, size]
}

pub(super) struct Adaptive;

impl Rule<2, 8> for Adaptive {
    #[inline(always)]
    fn at<T: Real>(
        [into_gradient, shrink, new1, beta2, new2, rescale, eps, size]: [T; 8],
        p: T,
        g: T,
        [mean, square]: [T; 2],
    ) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g, into_gradient);
        let mean = mean + new1 * (g - mean);
        let square = square * beta2 + new2 * g * g;
        let denominator = square.sqrt() * rescale + eps;
        (p * shrink - size * mean / denominator, [mean, square])
    }
}
