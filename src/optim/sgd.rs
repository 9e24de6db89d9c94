//! Stochastic gradient descent.

use super::store::{Method, Store, save_numbers};
use super::{Decay, Optimizer, check_rate};
use crate::Result;
use crate::backend::cpu::nn::optim::{Real, Rule};
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::Module;

const OP: &str = "sgd";
const SLOTS: [&str; 1] = ["momentum_buffer"];
const NUMBERS: [&str; 5] = ["lr", "momentum", "dampening", "weight_decay", "nesterov"];

/// Stochastic gradient descent with momentum, Nesterov's form of it, and weight decay; PyTorch's arithmetic.
///
/// ```
/// use cotangent::optim::Sgd;
/// let optimizer = Sgd::new(0.1).momentum(0.9).nesterov(true).weight_decay(1e-4);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Sgd {
    lr: f64,
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    decay: Decay,
    store: Store,
}

impl Sgd {
    /// Plain descent with a learning rate.
    pub fn new(lr: f64) -> Sgd {
        Sgd { lr, momentum: 0.0, dampening: 0.0, nesterov: false, decay: Decay::new(0.0), store: Store::default() }
    }

    /// How much of the last direction is kept: 0 unless set.
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.momentum = momentum;
        self
    }

    /// How much less of each new gradient enters the direction: 0 unless set.
    pub fn dampening(mut self, dampening: f64) -> Sgd {
        self.dampening = dampening;
        self
    }

    /// Whether to look one step ahead along the direction.
    pub fn nesterov(mut self, nesterov: bool) -> Sgd {
        self.nesterov = nesterov;
        self
    }

    /// The factor of the parameter that is added to its gradient: 0 unless set.
    pub fn weight_decay(mut self, weight_decay: f64) -> Sgd {
        self.decay.factor = weight_decay;
        self
    }

    /// The parameters, by name, that do not decay.
    pub fn no_decay(mut self, exempt: impl Fn(&str) -> bool + Send + Sync + 'static) -> Sgd {
        self.decay.exempt = Some(Box::new(exempt));
        self
    }
}

impl Sgd {
    /// Refuses settings out of their domains.
    fn check(&self) -> Result<()> {
        check_rate(OP, self.lr)?;
        self.decay.check(OP)?;
        if self.momentum.is_nan() || self.momentum < 0.0 {
            bail!(Value, OP, "the momentum cannot be {}", self.momentum);
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let Sgd { momentum, dampening, .. } = self;
            bail!(Value, OP, "nesterov needs a momentum and no dampening, not {momentum} and {dampening}");
        }
        Ok(())
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, model: &mut dyn Module) -> Result<()> {
        self.check()?;
        let mut store = std::mem::take(&mut self.store);
        let done =
            if self.momentum == 0.0 { store.step::<0>(OP, model, self) } else { store.step::<1>(OP, model, self) };
        self.store = store;
        done
    }

    #[cfg(feature = "cuda")]
    fn advance(&mut self) -> Result<()> {
        self.check()?;
        let mut store = std::mem::take(&mut self.store);
        let done = if self.momentum == 0.0 { store.advance::<0>(OP, self) } else { store.advance::<1>(OP, self) };
        self.store = store;
        done
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn state_dict(&self) -> Result<StateDict> {
        let numbers = [self.lr, self.momentum, self.dampening, self.decay.factor, f64::from(u8::from(self.nesterov))];
        let mut dict = StateDict::new();
        save_numbers(&std::array::from_fn::<_, 5, _>(|k| (NUMBERS[k], numbers[k])), &mut dict)?;
        self.store.save(&SLOTS, &mut dict)?;
        Ok(dict)
    }

    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        let (store, numbers) = Store::load(OP, &SLOTS, &NUMBERS, dict)?;
        if let [lr, momentum, dampening, weight_decay, nesterov] = numbers[..] {
            (self.lr, self.momentum, self.dampening, self.decay.factor) = (lr, momentum, dampening, weight_decay);
            self.nesterov = nesterov != 0.0;
            self.store = store;
        }
        Ok(())
    }
}

impl Method<0> for Sgd {
    fn rule<T: Real>(&self, name: &str, _: u64) -> impl Rule<T, 0> {
        Plain { lr: T::of(self.lr), decay: T::of(self.decay.of(name)) }
    }
}

impl Method<1> for Sgd {
    fn rule<T: Real>(&self, name: &str, step: u64) -> impl Rule<T, 1> {
        // The first direction is the first gradient, not dampened.
        let (keep, take) = if step == 1 { (0.0, 1.0) } else { (self.momentum, 1.0 - self.dampening) };
        WithMomentum {
            plain: Plain { lr: T::of(self.lr), decay: T::of(self.decay.of(name)) },
            keep: T::of(keep),
            take: T::of(take),
            ahead: self.nesterov.then(|| T::of(self.momentum)),
        }
    }
}

#[derive(Clone, Copy)]
struct Plain<T> {
    lr: T,
    decay: T,
}

impl<T: Real> Plain<T> {
    #[inline(always)]
    fn decayed(&self, parameter: T, gradient: T) -> T {
        if self.decay == T::of(0.0) { gradient } else { gradient + parameter * self.decay }
    }
}

impl<T: Real> Rule<T, 0> for Plain<T> {
    #[inline(always)]
    fn at(&self, parameter: T, gradient: T, _: [T; 0]) -> (T, [T; 0]) {
        (parameter - self.lr * self.decayed(parameter, gradient), [])
    }

    const CODE: &'static str = "if (c(1) != T(0)) g = g + p * c(1); p = p - c(0) * g;";

    fn numbers(&self) -> Vec<f64> {
        [self.lr, self.decay].map(T::wide).to_vec()
    }
}

#[derive(Clone, Copy)]
struct WithMomentum<T> {
    plain: Plain<T>,
    keep: T,
    take: T,
    ahead: Option<T>,
}

impl<T: Real> Rule<T, 1> for WithMomentum<T> {
    #[inline(always)]
    fn at(&self, parameter: T, gradient: T, [direction]: [T; 1]) -> (T, [T; 1]) {
        let gradient = self.plain.decayed(parameter, gradient);
        let direction = direction * self.keep + gradient * self.take;
        let step = self.ahead.map_or(direction, |momentum| gradient + direction * momentum);
        (parameter - self.plain.lr * step, [direction])
    }

    const CODE: &'static str = "if (c(1) != T(0)) g = g + p * c(1); s0 = s0 * c(2) + g * c(3); \
        p = p - c(0) * (c(5) != T(0) ? g + s0 * c(4) : s0);";

    fn numbers(&self) -> Vec<f64> {
        let (ahead, looks) = (self.ahead.unwrap_or(T::of(0.0)), T::of(f64::from(u8::from(self.ahead.is_some()))));
        [self.plain.lr, self.plain.decay, self.keep, self.take, ahead, looks].map(T::wide).to_vec()
    }
}
