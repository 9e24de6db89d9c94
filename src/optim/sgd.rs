//! Stochastic gradient descent.

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::error::bail;
use crate::options::options;

options! {
    /// The settings of [`Sgd`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Sgd, SgdOptions};
    /// let optimizer = Sgd::new_with(SgdOptions::new().lr(0.1).momentum(0.9));
    /// ```
    pub struct SgdOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// The momentum factor.
        momentum: f64 = 0.0,
        /// The dampening of the momentum: new gradients are multiplied by `1 - dampening`.
        dampening: f64 = 0.0,
        /// The weight decay, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether to use Nesterov momentum.
        nesterov: bool = false,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Stochastic gradient descent, with optional momentum, Nesterov momentum and weight decay. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Sgd;
    /// let optimizer = Sgd::new(0.1).momentum(0.9).nesterov(true).weight_decay(1e-4).no_decay(|name| name.ends_with("bias"));
    /// ```
    #[doc(alias = "SGD")]
    Sgd(SgdOptions) { momentum: f64, dampening: f64, weight_decay: f64, nesterov: bool, maximize: bool }
}

impl Algorithm for SgdOptions {
    const OP: &'static str = "Sgd";
    const SLOTS: &'static [&'static str] = &["momentum_buffer"];
    const RULES: &'static [AnyRule] = &[AnyRule::of::<Plain, 0, 3>(), AnyRule::of::<WithMomentum, 1, 7>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, momentum, dampening, weight_decay, nesterov, maximize)
    }

    fn check(&self) -> Result<()> {
        let SgdOptions { lr, momentum, dampening, weight_decay, nesterov, .. } = *self;
        not_negative(Self::OP, "lr", lr)?;
        not_negative(Self::OP, "weight_decay", weight_decay)?;
        not_negative(Self::OP, "momentum", momentum)?;
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            bail!(Value, Self::OP, "nesterov requires momentum > 0 and dampening 0, got {momentum} and {dampening}");
        }
        Ok(())
    }

    fn run(groups: &Groups<SgdOptions>, call: Call<'_>) -> Result<()> {
        if groups.all().all(|own| own.momentum == 0.0) {
            return call.elementwise::<Plain, 0, 3>(Self::OP, |name, _| {
                let own = groups.of(name);
                [own.lr, own.weight_decay, sign(own.maximize)]
            });
        }
        call.elementwise::<WithMomentum, 1, 7>(Self::OP, |name, step| {
            let own = groups.of(name);
            // The first direction is the first gradient, not dampened.
            let (keep, take) = if step == 1 { (0.0, 1.0) } else { (own.momentum, 1.0 - own.dampening) };
            let nesterov = f64::from(u8::from(own.nesterov));
            [own.lr, own.weight_decay, keep, take, own.momentum, nesterov, sign(own.maximize)]
        })
    }
}

struct Plain;

impl Rule<0, 3> for Plain {
    #[inline(always)]
    fn at<T: Real>([lr, decay, sign]: [T; 3], p: T, g: T, _: [T; 0]) -> (T, [T; 0])
    where
        f64: Constant<T>,
    {
        (p - lr * decayed(p, g * sign, decay), [])
    }
}

/// The gradient plus weight decay. Without weight decay the parameter does not enter, even if it is infinite or NaN.
#[inline(always)]
pub(super) fn decayed<T: Real>(p: T, g: T, decay: T) -> T {
    select(decay.eq(T::constant(0.0)), g, g + p * decay)
}

/// The larger of two numbers; NaN if one is NaN.
#[inline(always)]
pub(super) fn larger<T: Real>(a: T, b: T) -> T {
    select(a.lt(b) | b.ne(b), b, a)
}

struct WithMomentum;

impl Rule<1, 7> for WithMomentum {
    #[inline(always)]
    fn at<T: Real>(
        [lr, decay, keep, take, momentum, nesterov, sign]: [T; 7],
        p: T,
        g: T,
        [direction]: [T; 1],
    ) -> (T, [T; 1])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let direction = direction * keep + g * take;
        let step = select(nesterov.ne(T::constant(0.0)), g + direction * momentum, direction);
        (p - lr * step, [direction])
    }
}
