//! Optimisers, which update a model's parameters in place from their gradients.
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
//! # Groups
//! Parameter groups have their own settings. A rule selects them by name, or by the modules they are in ([`in_modules`]).
//!
//! ```
//! use cotangent::nn::{LayerNorm, Linear, Sequential};
//! use cotangent::optim::{AdamW, in_modules};
//! let model = Sequential::new().add(Linear::new(8, 8)?).add(LayerNorm::new([8])?);
//! let optimizer = AdamW::new(1e-3)
//!     .group(in_modules(&model, |kind| kind.ends_with("Norm")), |options| options.weight_decay(0.0))
//!     .group(|name| name.starts_with("0."), |options| options.lr(1e-4));
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Gradient accumulation
//! Gradients of several backward passes add up, so that a large batch can be processed in parts: divide each loss by the number
//! of parts, and step once.
//!
//! ```
//! # use cotangent::nn::{Forward, Linear, Module};
//! # use cotangent::optim::{Optimizer, Sgd};
//! # use cotangent::Tensor;
//! # let (mut model, mut optimizer) = (Linear::new(3, 1)?, Sgd::new(0.1));
//! # let (x, y) = (Tensor::ones([32, 3])?, Tensor::zeros([32, 1])?);
//! model.zero_grad();
//! for (x, y) in x.chunk(4, 0)?.iter().zip(y.chunk(4, 0)?) {
//!     model.forward(x)?.mse_loss(&y)?.div(4)?.backward()?;
//! }
//! optimizer.step(&mut model)?;
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Learning rate schedules
//! A [`Scheduler`] sets the learning rates of an optimiser by a [`Schedule`]: [`StepLR`], [`CosineAnnealingLR`], [`OneCycleLR`] and
//! others, in sequence or combined. [`ReduceLROnPlateau`] follows a metric.
//!
//! ```
//! use cotangent::Tensor;
//! use cotangent::nn::{Forward, Linear, Module};
//! use cotangent::optim::{AdamW, CosineAnnealingLR, LinearLR, Optimizer, Schedule, Scheduler, clip_grad_norm};
//!
//! let (mut model, mut optimizer) = (Linear::new(3, 1)?, AdamW::new(1e-2));
//! // A warm-up of 10 steps, then a cosine to 0.
//! let schedule = LinearLR::warmup(10).then(10, CosineAnnealingLR::new(90));
//! let mut scheduler = Scheduler::new(&mut optimizer, schedule)?;
//! for _ in 0..100 {
//!     let loss = model.forward(&Tensor::ones([8, 3])?)?.mse_loss(&Tensor::zeros([8, 1])?)?;
//!     model.zero_grad();
//!     loss.backward()?;
//!     clip_grad_norm(&model, 1.0)?;
//!     optimizer.step(&mut model)?;
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert!(optimizer.lr() < 1e-8);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! A step of the scheduler is a batch, as here, or an epoch: whatever the schedule counts.
//!
//! # Half precision
//! `f32` parameters are trained in half precision by [`autocast`](crate::autocast()), in `f16` together with a [`GradScaler`].
//! Half-precision parameters are updated in `f32`, so that small updates are not lost.
//!
//! # Saving
//! Optimisers, schedulers, scalers and averaged models have `state_dict` and `load_state_dict`. A state that does not fit is an
//! error that lists all mismatches and changes nothing.
#![forbid(unsafe_code)]

mod average;
mod clip;
mod engine;
mod lbfgs;
mod on_gpus;
mod saved;
mod scaler;
mod schedule;
mod settings;
mod store;

pub use average::{AveragedModel, update_bn};
pub use clip::{ClipGradNormOptions, clip_grad_norm, clip_grad_norm_with, clip_grad_value, grad_norm};
pub use lbfgs::{Lbfgs, LbfgsOptions, LineSearch};
pub use muon::AdjustLr;
pub use scaler::{GradScaler, GradScalerOptions};
pub use schedule::{
    AnnealStrategy, ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, CyclicMode,
    ExponentialLR, LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, OneCycleLR, PerGroup, PlateauMode, PolynomialLR,
    ReduceLROnPlateau, ScaleMode, Schedule, Scheduler, SequentialLR, StepLR, SwaLR, ThresholdMode,
};

/// Names the file of each optimiser, and puts it on the list.
macro_rules! optimizers {
    ($($file:ident: $($name:ident($options:ident)),+;)+) => {
        $(
            mod $file;
            pub use $file::{$($name, $options),+};
        )+

        const ALL: &[OptimizerEntry] = &[$($($name::ENTRY,)+)+ Lbfgs::ENTRY];

        /// The rules of all optimisers in CUDA C, with their numbers of slots; for tests.
        #[cfg(all(feature = "samples", feature = "cuda"))]
        pub(crate) fn rules() -> Vec<(String, usize)> {
            let all = [$($(<$options as engine::Algorithm>::RULES),+),+];
            let code = |rule: &engine::AnyRule| (on_gpus::code_of(&(rule.steps)()), rule.slots);
            all.into_iter().flatten().map(code).collect()
        }
    };
}
optimizers! {
    adadelta: Adadelta(AdadeltaOptions);
    adafactor: Adafactor(AdafactorOptions);
    adagrad: Adagrad(AdagradOptions);
    adam: Adam(AdamOptions), AdamW(AdamWOptions);
    adamax: Adamax(AdamaxOptions);
    lamb: Lamb(LambOptions);
    lion: Lion(LionOptions);
    muon: Muon(MuonOptions);
    nadam: NAdam(NAdamOptions);
    radam: RAdam(RAdamOptions);
    rmsprop: RMSprop(RMSpropOptions);
    rprop: Rprop(RpropOptions);
    sgd: Sgd(SgdOptions);
}

use crate::Result;
use crate::error::{err, named};
use crate::io::StateDict;
use crate::nn::{Module, Part, Visitor};
use crate::ops::{Arg, Param, bind};

/// An optimiser, which updates parameters from their gradients.
///
/// Its state is kept by parameter name, so an optimiser can be saved, and loaded for another model with the same
/// parameters.
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
    /// Updates every parameter that has a gradient, in place. Parameters without a gradient do not change, not even by
    /// weight decay. A parameter whose memory is also held elsewhere, by a graph that was not freed or a state dictionary,
    /// gets new memory.
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

    /// Prepares the next replay of a step that was recorded as a CUDA graph: counts the step, and applies settings that were
    /// changed since, such as the learning rate. Does nothing if nothing was recorded, and by default in custom optimisers.
    ///
    /// # Errors
    /// If a setting is out of its domain, or the transfer to the GPU fails.
    fn advance(&mut self) -> Result<()> {
        Ok(())
    }

    /// Removes the gradients of all parameters.
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

    /// The learning rate of the parameters that belong to no group.
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

    /// The learning rates of all groups: first that of the parameters that belong to no group, then those of the groups in the
    /// order in which they were added.
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// let optimizer = AdamW::new(1e-3).group(|name| name.starts_with("head."), |options| options.lr(1e-2));
    /// assert_eq!(optimizer.lrs(), [1e-3, 1e-2]);
    /// ```
    #[doc(alias = "param_groups")]
    fn lrs(&self) -> Vec<f64> {
        vec![self.lr()]
    }

    /// Sets the learning rates of all groups, in the order of [`lrs`](Self::lrs).
    ///
    /// ```
    /// use cotangent::optim::{AdamW, Optimizer};
    /// let mut optimizer = AdamW::new(1e-3).no_decay(|name| name.ends_with("bias"));
    /// optimizer.set_lrs(&[1e-4, 1e-5])?;
    /// assert_eq!(optimizer.lr(), 1e-4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of rates is not the number of groups.
    #[track_caller]
    fn set_lrs(&mut self, lrs: &[f64]) -> Result<()> {
        match lrs {
            &[lr] => {
                self.set_lr(lr);
                Ok(())
            }
            _ => named(
                "set_lrs",
                Err(err!(
                    Value,
                    "set_lrs",
                    "expected 1 learning rate for an optimiser without groups, got {}",
                    lrs.len()
                )),
            ),
        }
    }

    /// Sets the momentum of all groups, or `beta1` of optimisers such as Adam.
    ///
    /// ```
    /// use cotangent::optim::{Adagrad, AdamW, Optimizer};
    /// AdamW::new(1e-3).set_momenta(&[0.95])?;
    /// assert!(Adagrad::new(1e-3).set_momenta(&[0.95]).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the optimiser has no momentum, or another number of groups.
    #[track_caller]
    fn set_momenta(&mut self, momenta: &[f64]) -> Result<()> {
        let _ = momenta;
        named("set_momenta", Err(err!(Value, "set_momenta", "the optimiser has no momentum")))
    }

    /// The settings, and the state of each parameter. Training that resumes from it continues bit for bit.
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

    /// Loads what [`state_dict`](Self::state_dict) has returned.
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
    /// If a name is missing or unknown, or a shape or dtype does not fit: the message lists them all, and nothing is
    /// changed. Whether the state fits a model is checked in the next step.
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
    /// Its documentation, in Markdown.
    pub docs: &'static str,
    /// Its settings with their defaults.
    pub params: &'static [Param],
    pub(crate) build: fn(&[Arg]) -> Result<Box<dyn Optimizer + Send + Sync>>,
}

impl OptimizerEntry {
    /// Creates the optimiser from settings by name. Missing ones take their defaults.
    ///
    /// ```
    /// use cotangent::optim;
    /// let sgd = optim::list().iter().find(|entry| entry.name == "Sgd").ok_or("there is one")?;
    /// assert_eq!(sgd.build(&[("lr", 0.5.into())])?.lr(), 0.5);
    /// assert!(sgd.build(&[("rate", 0.5.into())]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a setting is unknown, or a value has the wrong type. Whether it is in its domain is checked in the first step.
    #[track_caller]
    pub fn build(&self, settings: &[(&str, Arg)]) -> Result<Box<dyn Optimizer + Send + Sync>> {
        let params: Vec<&Param> = self.params.iter().collect();
        named(self.name, bind(self.name, &params, &[], settings).and_then(|args| (self.build)(&args)))
    }
}

/// Every optimiser.
///
/// ```
/// assert!(cotangent::optim::list().iter().any(|entry| entry.name == "AdamW"));
/// ```
pub fn list() -> &'static [OptimizerEntry] {
    ALL
}

/// A rule for groups: selects the parameters inside of modules whose type `chosen` accepts, at any depth.
///
/// ```
/// use cotangent::nn::{LayerNorm, Linear, Sequential};
/// use cotangent::optim::in_modules;
/// let model = Sequential::new().add(Linear::new(8, 8)?).add(LayerNorm::new([8])?);
/// let in_norm = in_modules(&model, |kind| kind == "LayerNorm");
/// assert!(in_norm("1.weight") && !in_norm("0.weight"));
/// # Ok::<(), cotangent::Error>(())
/// ```
pub fn in_modules(
    model: &dyn Module,
    chosen: impl Fn(&str) -> bool,
) -> impl Fn(&str) -> bool + Clone + Send + Sync + 'static {
    let (mut around, mut names) = (Vec::new(), std::collections::HashSet::new());
    model.visit(&mut Visitor::new(&mut |name, part| match part {
        Part::Module(kind) if chosen(kind) => around.push(name.to_string()),
        Part::Param(_) => {
            let inside = |module: &String| {
                module.is_empty() || name.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            if around.iter().any(inside) {
                names.insert(name.to_string());
            }
        }
        _ => {}
    }));
    let names = std::sync::Arc::new(names);
    move |name| names.contains(name)
}
