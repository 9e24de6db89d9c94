//! Optimisers: they change a model's parameters by their gradients, in place.
//!
//! ```
//! use cotangent::nn::{Forward, Linear, Module};
//! use cotangent::optim::{Optimizer, Sgd, clip_grad_norm};
//! use cotangent::{Reduction, Tensor};
//!
//! let mut model = Linear::new(3, 1)?;
//! let mut optimizer = Sgd::new(0.1).momentum(0.9);
//! let loss = model.forward(&Tensor::ones([8, 3])?)?.mse_loss(&Tensor::zeros([8, 1])?, Reduction::Mean)?;
//! model.zero_grad();
//! loss.backward()?;
//! clip_grad_norm(&model, 1.0)?;
//! optimizer.step(&mut model)?;
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod adam;
mod clip;
mod on_gpus;
mod sgd;
mod store;

pub use adam::{Adam, AdamW};
pub use clip::{clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use sgd::Sgd;

use crate::Result;
use crate::error::bail;
use crate::io::StateDict;
use crate::nn::Module;
use std::fmt;

/// Something that changes parameters by their gradients.
///
/// What it keeps for a parameter belongs to the parameter's name, so an optimiser can be saved, and loaded for another
/// model of the same form.
pub trait Optimizer {
    /// Changes every parameter that has a gradient, in its own memory; the others, their decay included, stay as they
    /// are. A parameter whose bytes are also held elsewhere, by a graph that was not freed or a state dictionary, gets
    /// new ones.
    ///
    /// # Errors
    /// If a setting is out of its domain, a loaded state does not fit the model, or memory runs out; the parameters are
    /// then as they were.
    fn step(&mut self, model: &mut dyn Module) -> Result<()>;

    /// Counts one more step, and lets what was set since, such as the learning rate, take effect, for a step that was recorded
    /// with a [`CudaGraph`](crate::CudaGraph) and is replayed next. Where nothing was recorded it does nothing.
    ///
    /// # Errors
    /// If a setting is out of its domain, or the GPU refuses.
    #[cfg(feature = "cuda")]
    fn advance(&mut self) -> Result<()>;

    /// Takes the gradients of all parameters away.
    fn zero_grad(&self, model: &dyn Module) {
        model.zero_grad();
    }

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the next steps.
    fn set_lr(&mut self, lr: f64);

    /// The settings, and what is kept for each parameter: training that goes on from here goes on bit for bit.
    ///
    /// # Errors
    /// If memory runs out.
    fn state_dict(&self) -> Result<StateDict>;

    /// Takes over what [`state_dict`](Self::state_dict) gave.
    ///
    /// # Errors
    /// If a name is missing or unknown, or a value is not of the right form: the message lists them all, and nothing is
    /// changed. Whether the state fits a model is seen in the next step.
    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()>;
}

/// Weight decay, and which parameters are spared.
struct Decay {
    factor: f64,
    exempt: Option<Box<dyn Fn(&str) -> bool + Send + Sync>>,
}

impl Decay {
    fn new(factor: f64) -> Decay {
        Decay { factor, exempt: None }
    }

    /// The factor for the named parameter.
    fn of(&self, name: &str) -> f64 {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(name)) { 0.0 } else { self.factor }
    }

    fn check(&self, op: &'static str) -> Result<()> {
        if self.factor.is_nan() || self.factor < 0.0 {
            bail!(Value, op, "the weight decay cannot be {}", self.factor);
        }
        Ok(())
    }
}

impl fmt::Debug for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = if self.exempt.is_some() { ", not for all" } else { "" };
        write!(f, "Decay({}{some})", self.factor)
    }
}

fn check_rate(op: &'static str, lr: f64) -> Result<()> {
    if lr.is_nan() || lr < 0.0 {
        bail!(Value, op, "the learning rate cannot be {lr}");
    }
    Ok(())
}

/// The rules of all optimisers in CUDA C, with the numbers of their slots; for tests.
#[cfg(all(test, feature = "cuda"))]
pub(crate) fn rules() -> Vec<(&'static str, usize)> {
    use crate::backend::cpu::nn::optim::Rule;
    fn of<const N: usize>(method: &impl store::Method<N>) -> (&'static str, usize) {
        fn code<R: Rule<f32, N>, const N: usize>(_: &R) -> (&'static str, usize) {
            (R::CODE, N)
        }
        code(&method.rule::<f32>("weight", 1))
    }
    vec![of::<0>(&Sgd::new(0.1)), of::<1>(&Sgd::new(0.1)), adam::rule()]
}
