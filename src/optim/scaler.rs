//! Losses scaled up, so that gradients of half precision do not vanish.

use super::Optimizer;
use super::clip::scale_gradients;
use super::saved::{Saved, save_count, save_number};
use crate::autograd::no_grad;
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::nn::Module;
use crate::options::options;
use crate::{DType, Device, Result, Tensor, backend};

options! {
    /// The settings of a [`GradScaler`].
    ///
    /// ```
    /// use cotangent::optim::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new_with(GradScalerOptions::new().init_scale(1024.0).growth_interval(100));
    /// assert_eq!(scaler.get_scale(), 1024.0);
    /// ```
    pub struct GradScalerOptions {
        /// The first scale.
        init_scale: f64 = 65536.0,
        /// What the scale is multiplied by after enough steps without an infinity.
        growth_factor: f64 = 2.0,
        /// What it is multiplied by after a step with one.
        backoff_factor: f64 = 0.5,
        /// How many steps without an infinity are enough.
        growth_interval: u64 = 2000,
        /// Whether anything is scaled; if not, a step is the optimiser's.
        enabled: bool = true,
    }
}

/// Trains in `f16`, whose smallest numbers are large: the loss is multiplied by a scale before the backward pass, and the
/// gradients are divided by it before the step. A step with gradients that are infinite or not a number is left out, and the scale
/// is made smaller; after many that are finite it is made larger. In `bf16` nothing of this is needed.
///
/// ```
/// use cotangent::nn::{Forward, Linear, Module};
/// use cotangent::optim::{GradScaler, Optimizer, Sgd, clip_grad_norm};
/// use cotangent::{DType, Tensor, autocast};
///
/// let (mut model, mut optimizer, mut scaler) = (Linear::new(3, 1)?, Sgd::new(0.1), GradScaler::new());
/// let (x, y) = (Tensor::ones([8, 3])?, Tensor::zeros([8, 1])?);
/// for _ in 0..10 {
///     let loss = autocast(DType::F16, || model.forward(&x)?.mse_loss(&y))?;
///     model.zero_grad();
///     scaler.scale(&loss)?.backward()?;
///     // Only where something is done with the gradients before the step.
///     scaler.unscale(&model)?;
///     clip_grad_norm(&model, 1.0)?;
///     scaler.step(&mut optimizer, &mut model)?;
///     scaler.update()?;
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// A CUDA graph can hold the scaled loss and its backward pass: each replay leaves new gradients with the parameters, and
/// `unscale`, `step` and `update` follow it outside of the graph, since whether a step is left out depends on values.
#[derive(Debug)]
#[must_use]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    /// Steps without an infinity since the scale was changed.
    growth: u64,
    /// The scale where losses are: the same place in memory from step to step, so that recorded steps find new ones there.
    on_devices: Vec<OnDevice>,
    /// What was unscaled since the last update.
    unscaled: Vec<Unscaled>,
}

#[derive(Debug)]
struct OnDevice {
    device: Device,
    scale: Tensor,
    recorded: bool,
}

#[derive(Debug)]
struct Unscaled {
    /// What tells the model from others: its first parameter with a gradient.
    model: usize,
    infinite: bool,
}

const OP: &str = "GradScaler";

impl Default for GradScaler {
    fn default() -> GradScaler {
        GradScaler::new()
    }
}

impl GradScaler {
    /// With all settings at their defaults.
    ///
    /// ```
    /// assert_eq!(cotangent::optim::GradScaler::new().get_scale(), 65536.0);
    /// ```
    pub fn new() -> GradScaler {
        GradScaler::new_with(GradScalerOptions::new())
    }

    /// With these settings.
    ///
    /// ```
    /// use cotangent::optim::{GradScaler, GradScalerOptions};
    /// let scaler = GradScaler::new_with(GradScalerOptions::new().enabled(false));
    /// assert!(!scaler.is_enabled());
    /// ```
    pub fn new_with(options: impl Into<GradScalerOptions>) -> GradScaler {
        let options = options.into();
        GradScaler { scale: options.init_scale, options, growth: 0, on_devices: Vec::new(), unscaled: Vec::new() }
    }

    fn check(&self) -> Result<()> {
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.options;
        if !(self.scale.is_finite() && self.scale > 0.0) {
            bail!(Value, OP, "the scale cannot be {}", self.scale);
        }
        if growth_factor.is_nan() || growth_factor <= 1.0 {
            bail!(Value, OP, "a growth_factor of {growth_factor} is not above 1");
        }
        if !(backoff_factor > 0.0 && backoff_factor < 1.0) {
            bail!(Value, OP, "a backoff_factor of {backoff_factor} is not between 0 and 1");
        }
        if growth_interval == 0 {
            bail!(Value, OP, "the growth_interval cannot be 0");
        }
        Ok(())
    }

    /// The loss times the scale; of half precision in `f32`. Call `backward` on it.
    ///
    /// ```
    /// use cotangent::{Tensor, optim::GradScaler};
    /// let loss = Tensor::full((), 0.5)?;
    /// assert_eq!(GradScaler::new().scale(&loss)?.item::<f32>()?, 32768.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a setting is out of its domain, or memory runs out.
    #[track_caller]
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor> {
        named("GradScaler::scale", self.scaled(loss))
    }

    fn scaled(&mut self, loss: &Tensor) -> Result<Tensor> {
        if !self.options.enabled {
            return Ok(loss.clone());
        }
        self.check()?;
        let device = loss.device();
        let at = match self.on_devices.iter().position(|own| own.device == device) {
            Some(at) => at,
            None => {
                let scale = Tensor::full_with((), self.scale, (DType::F32, device))?;
                scale.compute()?;
                self.on_devices.push(OnDevice { device, scale, recorded: false });
                self.on_devices.len() - 1
            }
        };
        let own = &mut self.on_devices[at];
        own.recorded |= backend::is_recording(device);
        loss.mul(&own.scale)
    }

    /// Divides the model's gradients by the scale, where something is done with them before the step, such as clipping.
    /// [`step`](Self::step) does it otherwise. With several optimisers of parts of one model it is done once for all of them.
    ///
    /// # Errors
    /// If it was done since the last [`update`](Self::update), the gradients are of `f16`, in which they would vanish, or memory
    /// runs out; nothing is changed then.
    #[doc(alias = "unscale_")]
    #[track_caller]
    pub fn unscale(&mut self, model: &dyn Module) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        named("GradScaler::unscale", self.unscaled_once(model))
    }

    fn unscaled_once(&mut self, model: &dyn Module) -> Result<()> {
        if self.place_of(model).is_some() {
            bail!(Value, OP, "the gradients were unscaled since the last update");
        }
        self.divide(model).map(drop)
    }

    /// Where the model stands among those unscaled.
    fn place_of(&self, model: &dyn Module) -> Option<usize> {
        let first = model.parameters().into_iter().find(|parameter| parameter.grad().is_some())?.id();
        self.unscaled.iter().position(|one| one.model == first)
    }

    /// Divides the gradients, and returns the place of what was found.
    fn divide(&mut self, model: &dyn Module) -> Result<Option<usize>> {
        let parameters = model.parameters();
        let with_grads: Vec<_> = parameters.iter().filter_map(|&own| Some((own, own.grad()?))).collect();
        let Some((first, _)) = with_grads.first() else { return Ok(None) };
        let mut sums: Vec<Tensor> = Vec::with_capacity(with_grads.len());
        for (_, grad) in &with_grads {
            if grad.dtype() == DType::F16 {
                bail!(
                    DType,
                    OP,
                    "gradients of f16 would vanish if they were unscaled: keep the parameters in f32, and compute in f16 by autocast"
                );
            }
            if backend::is_recording(grad.device()) {
                bail!(
                    Backend,
                    OP,
                    "whether a step is left out depends on values, which cannot be recorded: record the step up to the \
                     backward pass, and call unscale, step and update after each replay"
                );
            }
            // Not a number if an element is not finite, else 0.
            sums.push(no_grad(|| grad.detach().mul(0.0)?.sum(..)?.to_dtype(DType::F32))?);
        }
        let infinite = any_not_a_number(&sums)?;
        let model = first.id();
        if !infinite {
            scale_gradients(OP, &parameters, 1.0 / self.scale)?;
        }
        self.unscaled.push(Unscaled { model, infinite });
        Ok(Some(self.unscaled.len() - 1))
    }

    /// A step of the optimiser, unless a gradient is infinite or not a number. Returns whether there was one.
    ///
    /// # Errors
    /// As [`unscale`](Self::unscale) and the optimiser's.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, model: &mut dyn Module) -> Result<bool> {
        if !self.options.enabled {
            return optimizer.step(model).map(|()| true);
        }
        let place = match self.place_of(model) {
            Some(at) => Some(at),
            None => named("GradScaler::step", self.divide(model))?,
        };
        let Some(at) = place else {
            // Nobody has a gradient.
            return optimizer.step(model).map(|()| true);
        };
        if self.unscaled[at].infinite {
            return Ok(false);
        }
        optimizer.step(model)?;
        Ok(true)
    }

    /// Ends an iteration: makes the scale smaller if a gradient was not finite, and larger after enough steps in which all were.
    ///
    /// # Errors
    /// If no gradients were unscaled since the last time, or a recorded step's loss still holds the scale.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        named("GradScaler::update", self.updated())
    }

    fn updated(&mut self) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        if self.unscaled.is_empty() {
            bail!(Value, OP, "no gradients were unscaled since the last update: call step before it");
        }
        let GradScalerOptions { growth_factor, backoff_factor, growth_interval, .. } = self.options;
        let infinite = self.unscaled.iter().any(|one| one.infinite);
        let (mut scale, mut growth) = (self.scale, self.growth + 1);
        if infinite {
            (scale, growth) = (scale * backoff_factor, 0);
        } else if growth >= growth_interval {
            growth = 0;
            // A scale beyond f32 would make every loss infinite.
            let larger = scale * growth_factor;
            scale = if (larger as f32).is_finite() { larger } else { scale };
        }
        self.write(scale)?;
        (self.scale, self.growth) = (scale, growth);
        self.unscaled.clear();
        Ok(())
    }

    /// Puts another scale where losses find it.
    fn write(&mut self, scale: f64) -> Result<()> {
        if scale == self.scale {
            return Ok(());
        }
        if let Some(held) = self.on_devices.iter().find(|own| own.recorded && !own.scale.is_sole()) {
            bail!(Backend, OP, "a loss of the recorded step on {} still holds the scale: drop it first", held.device);
        }
        for own in &mut self.on_devices {
            let new = Tensor::full_with((), scale, DType::F32)?;
            if own.device == Device::Cpu {
                own.scale = new;
            } else {
                backend::transfer(OP, new.as_view()?, &mut own.scale.as_view_mut(OP)?)?;
            }
        }
        Ok(())
    }

    /// The scale.
    ///
    /// ```
    /// assert_eq!(cotangent::optim::GradScaler::new().get_scale(), 65536.0);
    /// ```
    pub fn get_scale(&self) -> f64 {
        if self.options.enabled { self.scale } else { 1.0 }
    }

    /// Whether anything is scaled.
    ///
    /// ```
    /// assert!(cotangent::optim::GradScaler::new().is_enabled());
    /// ```
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// The scale, the settings, and how many steps since the scale was changed were without an infinity.
    ///
    /// ```
    /// let dict = cotangent::optim::GradScaler::new().state_dict()?;
    /// assert!(dict.names().eq(["scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker"]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        save_number("scale", self.scale, &mut dict)?;
        save_number("growth_factor", self.options.growth_factor, &mut dict)?;
        save_number("backoff_factor", self.options.backoff_factor, &mut dict)?;
        save_count("growth_interval", self.options.growth_interval, &mut dict)?;
        save_count("growth_tracker", self.growth, &mut dict)?;
        Ok(dict)
    }

    /// Takes over what [`state_dict`](Self::state_dict) gave.
    ///
    /// ```
    /// use cotangent::optim::{GradScaler, GradScalerOptions};
    /// let mut scaler = GradScaler::new();
    /// scaler.load_state_dict(&GradScaler::new_with(GradScalerOptions::new().init_scale(8.0)).state_dict()?)?;
    /// assert_eq!(scaler.get_scale(), 8.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a value is not of the right form; nothing is changed then.
    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", self.load(dict))
    }

    fn load(&mut self, dict: &StateDict) -> Result<()> {
        let mut saved = Saved::new(OP, dict);
        let scale = saved.number("scale");
        let options = GradScalerOptions {
            growth_factor: saved.number("growth_factor"),
            backoff_factor: saved.number("backoff_factor"),
            growth_interval: saved.count("growth_interval"),
            ..self.options.clone()
        };
        let growth = saved.count("growth_tracker");
        saved.finish()?;
        let loaded = GradScaler { scale, ..GradScaler::new_with(options) };
        loaded.check()?;
        self.write(scale)?;
        (self.scale, self.growth, self.options) = (scale, growth, loaded.options);
        self.unscaled.clear();
        Ok(())
    }
}

/// Whether one of these numbers, of one element each, is none. GPUs are waited for once.
fn any_not_a_number(sums: &[Tensor]) -> Result<bool> {
    let mut any = false;
    for on_one in sums.chunk_by(|a, b| a.device() == b.device()) {
        any |= no_grad(|| Tensor::stack(on_one, 0))?.to_vec::<f32>()?.iter().any(|sum| !sum.is_finite());
    }
    Ok(any)
}
