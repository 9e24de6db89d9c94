//! Optimisers: they change a model's parameters by their gradients, in place.
//!
//! ```
//! use cotangent::nn::{Forward, Linear, Module};
//! use cotangent::optim::{Optimizer, Sgd, clip_grad_norm};
//! use cotangent::Tensor;
//!
//! let mut model = Linear::new(3, 1)?;
//! let mut optimizer = Sgd::new(0.1).momentum(0.9);
//! let loss = model.forward(&Tensor::ones([8, 3])?)?.mse_loss(&Tensor::zeros([8, 1])?)?;
//! model.zero_grad();
//! loss.backward()?;
//! clip_grad_norm(&model, 1.0)?;
//! optimizer.step(&mut model)?;
//! # Ok::<(), cotangent::Error>(())
//! ```
#![forbid(unsafe_code)]

mod adam;
mod clip;
mod engine;
mod muon;
mod on_gpus;
mod sgd;
mod store;

pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use clip::{ClipGradNormOptions, clip_grad_norm, clip_grad_norm_with, clip_grad_value};
pub use muon::{Muon, MuonOptions};
pub use sgd::{Sgd, SgdOptions};

use crate::Result;
use crate::io::StateDict;
use crate::nn::Module;

/// Something that changes parameters by their gradients.
///
/// What it keeps for a parameter belongs to the parameter's name, so an optimiser can be saved, and loaded for another
/// model of the same form.
///
/// ```
/// use cotangent::nn::{Forward, Linear, Module};
/// use cotangent::optim::{AdamW, Optimizer, Sgd};
/// use cotangent::{Result, Tensor};
///
/// /// One step with any optimiser.
/// fn train(model: &mut Linear, optimizer: &mut dyn Optimizer, x: &Tensor, y: &Tensor) -> Result<f64> {
///     let loss = model.forward(x)?.mse_loss(y)?;
///     model.zero_grad();
///     loss.backward()?;
///     optimizer.step(model)?;
///     loss.item()
/// }
///
/// let (mut model, x, y) = (Linear::new(3, 1)?, Tensor::ones([4, 3])?, Tensor::zeros([4, 1])?);
/// train(&mut model, &mut AdamW::new(1e-3), &x, &y)?;
/// train(&mut model, &mut Sgd::new(0.1), &x, &y)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Optimizer {
    /// Changes every parameter that has a gradient, in its own memory; the others, their decay included, stay as they
    /// are. A parameter whose bytes are also held elsewhere, by a graph that was not freed or a state dictionary, gets
    /// new ones.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::optim::{Optimizer, Sgd};
    /// use cotangent::Tensor;
    /// let mut model = Linear::new(1, 1)?;
    /// let before = model.weight.item::<f64>()?;
    /// model.forward(&Tensor::ones([1, 1])?)?.sum(..)?.backward()?;
    /// Sgd::new(0.5).step(&mut model)?;
    /// assert!((model.weight.item::<f64>()? - (before - 0.5)).abs() < 1e-6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a setting is out of its domain, a loaded state does not fit the model, or memory runs out; the parameters are
    /// then as they were.
    fn step(&mut self, model: &mut dyn Module) -> Result<()>;

    /// Counts one more step, and lets what was set since, such as the learning rate, take effect, for a step that was recorded
    /// as a CUDA graph and is replayed next. Where nothing was recorded it does nothing; so does an optimiser of one's own
    /// that does not say otherwise.
    ///
    /// # Errors
    /// If a setting is out of its domain, or the GPU refuses.
    fn advance(&mut self) -> Result<()> {
        Ok(())
    }

    /// Takes the gradients of all parameters away.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear};
    /// use cotangent::optim::{Optimizer, Sgd};
    /// use cotangent::Tensor;
    /// let model = Linear::new(3, 2)?;
    /// model.forward(&Tensor::ones([1, 3])?)?.sum(..)?.backward()?;
    /// Sgd::new(0.1).zero_grad(&model);
    /// assert!(model.weight.grad().is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    fn zero_grad(&self, model: &dyn Module) {
        model.zero_grad();
    }

    /// The learning rate: that of parameters which belong to no group.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// assert_eq!(AdamW::new(3e-4).lr(), 3e-4);
    /// ```
    fn lr(&self) -> f64;

    /// Sets the learning rate of the next steps. The rates of groups change in the same proportion.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// let mut optimizer = AdamW::new(1e-3);
    /// for step in 0..10 {
    ///     optimizer.set_lr(1e-3 * f64::from(10 - step) / 10.0);
    /// }
    /// assert!(optimizer.lr() < 2e-4);
    /// ```
    fn set_lr(&mut self, lr: f64);

    /// The settings, and what is kept for each parameter: training that goes on from here goes on bit for bit.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// let dict = AdamW::new(1e-3).state_dict()?;
    /// assert!(dict.names().any(|name| name.contains("lr")));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    fn state_dict(&self) -> Result<StateDict>;

    /// Takes over what [`state_dict`](Self::state_dict) gave.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// let mut optimizer = AdamW::new(1e-3);
    /// optimizer.load_state_dict(&AdamW::new(0.5).state_dict()?)?;
    /// assert_eq!(optimizer.lr(), 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a value is not of the right form: the message lists them all, and nothing is
    /// changed. Whether the state fits a model is seen in the next step.
    fn load_state_dict(&mut self, dict: &StateDict) -> Result<()>;
}

/// An optimiser of the [list], by name.
///
/// ```
/// use cotangent::optim;
/// for entry in optim::list() {
///     let names: Vec<&str> = entry.params.iter().map(|param| param.name).collect();
///     println!("{}({})", entry.name, names.join(", "));
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct OptimizerEntry {
    /// The name of its type.
    pub name: &'static str,
    /// Its settings with their defaults.
    pub params: &'static [crate::ops::Param],
}

/// Every optimiser.
///
/// ```
/// assert!(cotangent::optim::list().iter().any(|entry| entry.name == "AdamW"));
/// ```
pub fn list() -> &'static [OptimizerEntry] {
    const ALL: &[OptimizerEntry] = &[Adam::ENTRY, AdamW::ENTRY, Muon::ENTRY, Sgd::ENTRY];
    ALL
}

/// The rules of all optimisers in CUDA C, with the numbers of their slots; for tests.
#[cfg(all(test, feature = "cuda"))]
pub(crate) fn rules() -> Vec<(String, usize)> {
    use on_gpus::rule_code;
    vec![
        (rule_code::<sgd::Plain, 0, 2>(), 0),
        (rule_code::<sgd::WithMomentum, 1, 6>(), 1),
        (rule_code::<adam::Adaptive, 2, 8>(), 2),
    ]
}
