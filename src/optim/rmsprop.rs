//! RMSprop (Hinton, 2012).

use super::engine::{Algorithm, AnyRule, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use super::sgd::decayed;
use crate::Result;
use crate::backend::spec::{Constant, Real, Rule, select};
use crate::options::options;

options! {
    /// The settings of [`RMSprop`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{RMSprop, RMSpropOptions};
    /// let optimizer = RMSprop::new_with(RMSpropOptions::new().momentum(0.9));
    /// ```
    pub struct RMSpropOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// The decay rate of the running mean of the squared gradient.
        alpha: f64 = 0.99,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// The weight decay, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// The momentum factor.
        momentum: f64 = 0.0,
        /// Whether to divide by the gradient's standard deviation instead of its root mean square.
        centered: bool = false,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// RMSprop: divides the gradient by its running root mean square, with optional momentum. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::RMSprop;
    /// let optimizer = RMSprop::new(1e-3).alpha(0.95).momentum(0.9).centered(true);
    /// ```
    RMSprop(RMSpropOptions) {
        alpha: f64, eps: f64, weight_decay: f64, momentum: f64, centered: bool, maximize: bool
    }
}

impl Algorithm for RMSpropOptions {
    const OP: &'static str = "RMSprop";
    const SLOTS: &'static [&'static str] = &["square_avg", "momentum_buffer", "grad_avg"];
    const REQUIRED_SLOTS: usize = 1;
    const RULES: &'static [AnyRule] =
        &[AnyRule::of::<Plain, 1, 5>(), AnyRule::of::<WithMomentum, 2, 6>(), AnyRule::of::<Centered, 3, 7>()];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, alpha, eps, weight_decay, momentum, centered, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        not_negative(Self::OP, "momentum", self.momentum)?;
        not_negative(Self::OP, "alpha", self.alpha)
    }

    fn run(groups: &Groups<RMSpropOptions>, call: Call<'_>) -> Result<()> {
        let numbers = |own: &RMSpropOptions| [sign(own.maximize), own.weight_decay, own.alpha, own.eps, own.lr];
        if groups.all().any(|own| own.centered) {
            return call.elementwise::<Centered, 3, 7>(Self::OP, |name, _| {
                let own = groups.of(name);
                let [sign, decay, alpha, eps, lr] = numbers(own);
                [sign, decay, alpha, eps, lr, own.momentum, f64::from(u8::from(own.centered))]
            });
        }
        if groups.all().any(|own| own.momentum != 0.0) {
            return call.elementwise::<WithMomentum, 2, 6>(Self::OP, |name, _| {
                let own = groups.of(name);
                let [sign, decay, alpha, eps, lr] = numbers(own);
                [sign, decay, alpha, eps, lr, own.momentum]
            });
        }
        call.elementwise::<Plain, 1, 5>(Self::OP, |name, _| numbers(groups.of(name)))
    }
}

struct Plain;

impl Rule<1, 5> for Plain {
    #[inline(always)]
    fn at<T: Real>([sign, decay, alpha, eps, lr]: [T; 5], p: T, g: T, [square]: [T; 1]) -> (T, [T; 1])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let square = square * alpha + (1.0 - alpha) * g * g;
        (p - lr * g / (square.sqrt() + eps), [square])
    }
}

struct WithMomentum;

impl Rule<2, 6> for WithMomentum {
    #[inline(always)]
    fn at<T: Real>(
        [sign, decay, alpha, eps, lr, momentum]: [T; 6],
        p: T,
        g: T,
        [square, direction]: [T; 2],
    ) -> (T, [T; 2])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let square = square * alpha + (1.0 - alpha) * g * g;
        let direction = direction * momentum + g / (square.sqrt() + eps);
        (p - lr * direction, [square, direction])
    }
}

/// With momentum and the gradient's running mean, which is used if the last coefficient is not 0.
struct Centered;

impl Rule<3, 7> for Centered {
    #[inline(always)]
    fn at<T: Real>(
        [sign, decay, alpha, eps, lr, momentum, centered]: [T; 7],
        p: T,
        g: T,
        [square, direction, mean]: [T; 3],
    ) -> (T, [T; 3])
    where
        f64: Constant<T>,
    {
        let g = decayed(p, g * sign, decay);
        let square = square * alpha + (1.0 - alpha) * g * g;
        let mean = mean + (1.0 - alpha) * (g - mean);
        let spread = select(centered.ne(T::constant(0.0)), square - mean * mean, square);
        let direction = direction * momentum + g / (spread.sqrt() + eps);
        (p - lr * direction, [square, direction, mean])
    }
}
