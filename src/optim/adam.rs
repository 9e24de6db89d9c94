//! Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use super::sgd::{decayed, larger};
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::options::options;

/// Defines an optimiser with the default of its decay and whether that is decoupled, which may be an option.
macro_rules! adaptive {
    ($($(#[$($doc:tt)+])+ $name:ident($options:ident), decay $decay:literal, decoupled |$own:ident| $decoupled:expr
        $(, $(#[$option_doc:meta])+ $option:ident)?;)+) => {$(
        options! {
            #[doc = concat!("The settings of [`", stringify!($name), "`], or of one of its parameter groups.\n")]
            #[doc = concat!("```\nuse cotangent::optim::{", stringify!($name), ", ", stringify!($options), "};")]
            #[doc = concat!("let optimizer = ", stringify!($name), "::new_with(", stringify!($options), "::new().lr(3e-4).beta2(0.95));\n```")]
            pub struct $options {
                /// The learning rate.
                lr: f64 = 1e-3,
                /// The decay rate of the running mean of the gradient.
                beta1: f64 = 0.9,
                /// The decay rate of the running mean of the squared gradient.
                beta2: f64 = 0.999,
                /// Added to the denominator.
                eps: f64 = 1e-8,
                /// The weight decay.
                weight_decay: f64 = $decay,
                /// Whether to use AMSGrad: the maximum of the running means of squares so far (Reddi and others, 2018).
                amsgrad: bool = false,
                /// Whether to maximise the loss instead of minimising it.
                maximize: bool = false,
                $($(#[$option_doc])+ $option: bool = false,)?
            }
        }

        optimizer! {
            $(#[$($doc)+])+
            $name($options) {
                beta1: f64, beta2: f64, eps: f64, weight_decay: f64, amsgrad: bool, maximize: bool $(, $option: bool)?
            }
        }

        impl Algorithm for $options {
            const OP: &'static str = stringify!($name);
            const SLOTS: &'static [&'static str] = &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
            const REQUIRED_SLOTS: usize = 2;
            const RULES: &'static [AnyRule] =
                &[AnyRule::of::<Adaptive, 2, 9>(), AnyRule::of::<Amsgrad, 3, 10>()];

            fn settings(&mut self) -> Settings<'_> {
                settings!(self: lr, beta1, beta2, eps, weight_decay, amsgrad, maximize $(, $option)?)
            }

            fn check(&self) -> Result<()> {
                not_negative(Self::OP, "lr", self.lr)?;
                not_negative(Self::OP, "weight_decay", self.weight_decay)?;
                not_negative(Self::OP, "eps", self.eps)?;
                check_betas(Self::OP, [self.beta1, self.beta2])
            }

            fn run(groups: &Groups<$options>, call: Call<'_>) -> Result<()> {
                let numbers = |$own: &$options, step| {
                    let &$options { lr, beta1, beta2, eps, weight_decay, maximize, .. } = $own;
                    let decay = if $decoupled { Decay::Decoupled(weight_decay) } else { Decay::Coupled(weight_decay) };
                    numbers(step, lr, [beta1, beta2], eps, decay, maximize)
                };
                if !groups.all().any(|own| own.amsgrad) {
                    return call.elementwise::<Adaptive, 2, 9>(Self::OP, |name, step| numbers(groups.of(name), step));
                }
                call.elementwise::<Amsgrad, 3, 10>(Self::OP, |name, step| {
                    let own = groups.of(name);
                    let [a, b, c, d, e, f, g, h, i] = numbers(own, step);
                    [a, b, c, d, e, f, g, h, i, f64::from(u8::from(own.amsgrad))]
                })
            }
        }
    )+};
}

adaptive! {
    /// Adam, with weight decay added to the gradient. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Adam;
    /// let optimizer = Adam::new(1e-3).betas(0.9, 0.99).amsgrad(true);
    /// ```
    Adam(AdamOptions), decay 0.0, decoupled |own| own.decoupled_weight_decay,
        /// Whether weight decay is decoupled from the gradient, as in [`AdamW`].
        decoupled_weight_decay;
    /// Adam with decoupled weight decay: each step multiplies the parameter by `1 - lr · weight_decay`. The arithmetic is
    /// PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::AdamW;
    /// let optimizer = AdamW::new(3e-4)
    ///     .betas(0.9, 0.95)
    ///     .weight_decay(0.1)
    ///     .no_decay(|name| name.ends_with("bias"))
    ///     .group(|name| name.starts_with("head."), |options| options.lr(1e-3));
    /// ```
    AdamW(AdamWOptions), decay 0.01, decoupled |own| true;
}

/// How weight decay is applied.
#[derive(Clone, Copy)]
pub(super) enum Decay {
    /// Added to the gradient, and so to the moments.
    Coupled(f64),
    /// Applied to the parameter directly.
    Decoupled(f64),
}

impl Decay {
    pub fn new(decay: f64, decoupled: bool) -> Decay {
        if decoupled { Decay::Decoupled(decay) } else { Decay::Coupled(decay) }
    }

    /// The factor of the parameter in the gradient, and the factor of the parameter itself.
    pub fn factors(self, lr: f64) -> (f64, f64) {
        match self {
            Decay::Coupled(decay) => (decay, 1.0),
            Decay::Decoupled(decay) => (0.0, 1.0 - lr * decay),
        }
    }
}

/// The coefficients of the rule in a step, counted from 1.
fn numbers(step: u64, lr: f64, [beta1, beta2]: [f64; 2], eps: f64, decay: Decay, maximize: bool) -> [f64; 9] {
    // Bias corrections, because both running means start at zero.
    let corrections = (1.0 - beta1.powf(step as f64), 1.0 - beta2.powf(step as f64));
    let (into_gradient, shrink) = decay.factors(lr);
    // A division for every element would cost more than the memory traffic.
    let (rescale, size) = (1.0 / corrections.1.sqrt(), lr / corrections.0);
    [sign(maximize), into_gradient, shrink, 1.0 - beta1, beta2, 1.0 - beta2, rescale, eps, size]
}

struct Adaptive;

impl Rule<2, 9> for Adaptive {
    #[inline(always)]
    fn at<T: Real>(
        [sign, into_gradient, shrink, new1, beta2, new2, rescale, eps, size]: [T; 9],
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
        (p * shrink - size * mean / denominator, [mean, square])
    }
}

/// As [`Adaptive`], with the maximum of the squares so far if the last coefficient is not 0.
struct Amsgrad;

impl Rule<3, 10> for Amsgrad {
    #[inline(always)]
    fn at<T: Real>(
        [sign, into_gradient, shrink, new1, beta2, new2, rescale, eps, size, amsgrad]: [T; 10],
        p: T,
        g: T,
        [mean, square, most]: [T; 3],
    ) -> (T, [T; 3])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, into_gradient);
        let mean = mean + new1 * (g - mean);
        let square = square * beta2 + new2 * g * g;
        let most = larger(most, square);
        let denominator = select(amsgrad.ne(T::constant(0.0)), most, square).sqrt() * rescale + eps;
        (p * shrink - size * mean / denominator, [mean, square, most])
    }
}
