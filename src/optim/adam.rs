//! Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).

use super::store::{Method, Store, save_numbers};
use super::{Decay, Optimizer, check_rate};
use crate::Result;
use crate::backend::cpu::nn::optim::{Real, Rule};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::Module;

const SLOTS: [&str; 2] = ["exp_avg", "exp_avg_sq"];
const NUMBERS: [&str; 5] = ["lr", "beta1", "beta2", "eps", "weight_decay"];

/// How weight decay enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Into the gradient, and so into the moments.
    Gradient,
    /// Into the parameter directly.
    Parameter,
}

#[derive(Debug)]
struct Moments {
    op: &'static str,
    way: Way,
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    decay: Decay,
    store: Store,
}

/// Defines a type over [`Moments`] with its name for messages, its way of decay and its factor.
macro_rules! adaptive {
    ($($(#[$doc:meta])+ $name:ident($op:literal, $way:expr, $decay:literal);)+) => {$(
        $(#[$doc])+
        #[derive(Debug)]
        #[must_use]
        pub struct $name(Moments);

        impl $name {
            #[doc = concat!("With a learning rate; betas 0.9 and 0.999, eps 1e-8, weight decay ", $decay, ".")]
            pub fn new(lr: f64) -> $name {
                $name(Moments {
                    op: $op,
                    way: $way,
                    lr,
                    betas: (0.9, 0.999),
                    eps: 1e-8,
                    decay: Decay::new($decay),
                    store: Store::default(),
                })
            }

            /// How much of the running means of the gradient and of its square is kept in each step.
            pub fn betas(mut self, first: f64, second: f64) -> $name {
                self.0.betas = (first, second);
                self
            }

            /// Added to the denominator.
            pub fn eps(mut self, eps: f64) -> $name {
                self.0.eps = eps;
                self
            }

            /// The factor by which parameters decay.
            pub fn weight_decay(mut self, weight_decay: f64) -> $name {
                self.0.decay.factor = weight_decay;
                self
            }

            /// The parameters, by name, that do not decay.
            pub fn no_decay(mut self, exempt: impl Fn(&str) -> bool + Send + Sync + 'static) -> $name {
                self.0.decay.exempt = Some(Box::new(exempt));
                self
            }
        }

        impl Optimizer for $name {
            fn step(&mut self, model: &mut dyn Module) -> Result<()> {
                self.0.step(model)
            }

            #[cfg(feature = "cuda")]
            fn advance(&mut self) -> Result<()> {
                self.0.advance()
            }

            fn lr(&self) -> f64 {
                self.0.lr
            }

            fn set_lr(&mut self, lr: f64) {
                self.0.lr = lr;
            }

            fn state_dict(&self) -> Result<StateDict> {
                self.0.state_dict()
            }

            fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
                self.0.load_state_dict(dict)
            }
        }
    )+};
}

adaptive! {
    /// Adam; weight decay is added to the gradient. PyTorch's arithmetic.
    Adam("adam", Way::Gradient, 0.0);
    /// Adam with weight decay apart from the gradient: the parameter shrinks by `lr · weight_decay`. PyTorch's arithmetic.
    ///
    /// ```
    /// use cotangent::optim::AdamW;
    /// let optimizer = AdamW::new(3e-4).betas(0.9, 0.95).weight_decay(0.1).no_decay(|name| name.ends_with("bias"));
    /// ```
    AdamW("adamw", Way::Parameter, 0.01);
}

impl Moments {
    #[cfg(feature = "cuda")]
    fn advance(&mut self) -> Result<()> {
        self.check()?;
        let mut store = std::mem::take(&mut self.store);
        let done = store.advance::<2>(self.op, self);
        self.store = store;
        done
    }

    fn step(&mut self, model: &mut dyn Module) -> Result<()> {
        self.check()?;
        let mut store = std::mem::take(&mut self.store);
        let done = store.step::<2>(self.op, model, self);
        self.store = store;
        done
    }

    /// Refuses settings out of their domains.
    fn check(&self) -> Result<()> {
        check_rate(self.op, self.lr)?;
        self.decay.check(self.op)?;
        let (first, second) = self.betas;
        if !((0.0..1.0).contains(&first) && (0.0..1.0).contains(&second)) {
            bail!(Value, self.op, "the betas are from 0 up to but without 1, not {first} and {second}");
        }
        if self.eps.is_nan() || self.eps < 0.0 {
            bail!(Value, self.op, "eps cannot be {}", self.eps);
        }
        Ok(())
    }

    fn state_dict(&self) -> Result<StateDict> {
        let numbers = [self.lr, self.betas.0, self.betas.1, self.eps, self.decay.factor];
        let mut dict = StateDict::new();
        save_numbers(&std::array::from_fn::<_, 5, _>(|k| (NUMBERS[k], numbers[k])), &mut dict)?;
        self.store.save(&SLOTS, &mut dict)?;
        Ok(dict)
    }

    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let (store, numbers) = Store::load(self.op, &SLOTS, &NUMBERS, dict)?;
        if let [lr, beta1, beta2, eps, weight_decay] = numbers[..] {
            (self.lr, self.betas, self.eps, self.decay.factor) = (lr, (beta1, beta2), eps, weight_decay);
            self.store = store;
        }
        Ok(())
    }
}

impl Method<2> for Moments {
    fn rule<T: Real>(&self, name: &str, step: u64) -> impl Rule<T, 2> {
        let ((beta1, beta2), decay) = (self.betas, self.decay.of(name));
        // Both running means begin at zero; dividing by these makes up for it.
        let corrections = (1.0 - beta1.powf(step as f64), 1.0 - beta2.powf(step as f64));
        let (into_gradient, shrink) = match self.way {
            Way::Gradient => (decay, 1.0),
            Way::Parameter => (0.0, 1.0 - self.lr * decay),
        };
        Adaptive {
            into_gradient: T::of(into_gradient),
            shrink: T::of(shrink),
            new1: T::of(1.0 - beta1),
            beta2: T::of(beta2),
            new2: T::of(1.0 - beta2),
            // A division of every element costs more than the memory it is loaded from.
            rescale: T::of(1.0 / corrections.1.sqrt()),
            eps: T::of(self.eps),
            size: T::of(self.lr / corrections.0),
        }
    }
}

#[derive(Clone, Copy)]
struct Adaptive<T> {
    into_gradient: T,
    shrink: T,
    new1: T,
    beta2: T,
    new2: T,
    rescale: T,
    eps: T,
    size: T,
}

impl<T: Real> Rule<T, 2> for Adaptive<T> {
    #[inline(always)]
    fn at(&self, parameter: T, gradient: T, [mean, square]: [T; 2]) -> (T, [T; 2]) {
        let gradient =
            if self.into_gradient == T::of(0.0) { gradient } else { gradient + parameter * self.into_gradient };
        let parameter = parameter * self.shrink;
        let mean = mean + self.new1 * (gradient - mean);
        let square = square * self.beta2 + self.new2 * gradient * gradient;
        let denominator = square.sqrt() * self.rescale + self.eps;
        (parameter - self.size * mean / denominator, [mean, square])
    }

    const CODE: &'static str = "if (c(0) != T(0)) g = g + p * c(0); p = p * c(1); s0 = s0 + c(2) * (g - s0); \
        s1 = s1 * c(3) + c(4) * g * g; p = p - c(7) * s0 / (sqrt(s1) * c(5) + c(6));";

    fn numbers(&self) -> Vec<f64> {
        let Adaptive { into_gradient, shrink, new1, beta2, new2, rescale, eps, size } = *self;
        [into_gradient, shrink, new1, beta2, new2, rescale, eps, size].map(T::wide).to_vec()
    }
}

/// The rule in CUDA C, for tests.
#[cfg(all(test, feature = "cuda"))]
pub(super) fn rule() -> (&'static str, usize) {
    fn code<R: Rule<f32, 2>>(_: &R) -> (&'static str, usize) {
        (R::CODE, 2)
    }
    code(&AdamW::new(0.1).0.rule::<f32>("weight", 1))
}
