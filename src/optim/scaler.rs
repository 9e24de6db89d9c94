//! Loss scaling, so that gradients in `f16` do not underflow.

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
        /// The initial scale.
        init_scale: f64 = 65536.0,
        /// The factor of the scale after `growth_interval` steps with finite gradients.
        growth_factor: f64 = 2.0,
        /// The factor of the scale after a step with gradients that are not finite.
        backoff_factor: f64 = 0.5,
        /// The number of consecutive steps with finite gradients after which the scale grows.
        growth_interval: u64 = 2000,
        /// Whether scaling is enabled. If not, a step is just the optimiser's.
        enabled: bool = true,
    }
}

/// Loss scaling for training in `f16`, in which small gradients underflow. The loss is multiplied by a scale before the backward
/// pass, and the gradients are divided by it before the step. A step with infinite or NaN gradients is skipped, and the scale is
/// reduced; after many steps with finite gradients it is increased. `bf16` does not need this.
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
/// A CUDA graph can hold the scaled loss and its backward pass: each replay leaves new gradients with the parameters. Call
/// `unscale`, `step` and `update` after it, outside the graph, because whether a step is skipped depends on values.
#[derive(Debug)]
#[must_use]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    /// Steps with finite gradients since the scale was changed.
    growth: u64,
    /// The scale on each device, at the same address in every step, so that replays of recorded steps read the new one.
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
    /// Identifies the model: the id of its first parameter with a gradient.
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
    /// Creates a scaler with default settings.
    ///
    /// ```
    /// assert_eq!(cotangent::optim::GradScaler::new().get_scale(), 65536.0);
    /// ```
    pub fn new() -> GradScaler {
        GradScaler::new_with(GradScalerOptions::new())
    }

    /// Creates a scaler with these settings.
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
            bail!(Value, OP, "the scale must be finite and > 0, got {}", self.scale);
        }
        if growth_factor.is_nan() || growth_factor <= 1.0 {
            bail!(Value, OP, "growth_factor must be > 1, got {growth_factor}");
        }
        if !(backoff_factor > 0.0 && backoff_factor < 1.0) {
            bail!(Value, OP, "backoff_factor must be in (0, 1), got {backoff_factor}");
        }
        if growth_interval == 0 {
            bail!(Value, OP, "growth_interval must be ≥ 1, got 0");
        }
        Ok(())
    }

    /// The loss times the scale, to call `backward` on. A half-precision loss becomes `f32`.
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

    /// Divides the model's gradients by the scale. Call it only if the gradients are used before the step, for example clipped;
    /// otherwise [`step`](Self::step) does it. If several optimisers train parts of one model, call it once for all of them.
    ///
    /// # Errors
    /// If it was already called since the last [`update`](Self::update), a gradient is `f16`, in which it would underflow, or
    /// memory runs out; nothing is changed then.
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
            bail!(Value, OP, "the gradients were already unscaled since the last update");
        }
        self.divide(model).map(drop)
    }

    /// The index of the model among those unscaled.
    fn place_of(&self, model: &dyn Module) -> Option<usize> {
        let first = model.parameters().into_iter().find(|parameter| parameter.grad().is_some())?.id();
        self.unscaled.iter().position(|one| one.model == first)
    }

    /// Divides the gradients, and returns the index of the new entry in `unscaled`.
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
                    "gradients must not be f16, in which they underflow when unscaled: keep the parameters in f32 and compute in f16 by autocast"
                );
            }
            if backend::is_recording(grad.device()) {
                bail!(
                    Backend,
                    OP,
                    "unscaling cannot be recorded, because whether a step is skipped depends on values: record the step up \
                     to the backward pass, and call unscale, step and update after each replay"
                );
            }
            // NaN if an element is not finite, otherwise 0.
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

    /// Makes a step of the optimiser, unless a gradient is infinite or NaN. Returns whether it was made.
    ///
    /// # Errors
    /// As [`unscale`](Self::unscale) and the optimiser's step.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, model: &mut dyn Module) -> Result<bool> {
        if !self.options.enabled {
            return optimizer.step(model).map(|()| true);
        }
        let position = match self.place_of(model) {
            Some(at) => Some(at),
            None => named("GradScaler::step", self.divide(model))?,
        };
        let Some(at) = position else {
            // No parameter has a gradient.
            return optimizer.step(model).map(|()| true);
        };
        if self.unscaled[at].infinite {
            return Ok(false);
        }
        optimizer.step(model)?;
        Ok(true)
    }

    /// Ends an iteration: reduces the scale if a gradient was not finite, and increases it after enough steps with finite ones.
    ///
    /// # Errors
    /// If no gradients were unscaled since the last call, or the loss of a recorded step still holds the scale.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        named("GradScaler::update", self.updated())
    }

    fn updated(&mut self) -> Result<()> {
        if !self.options.enabled {
            return Ok(());
        }
        if self.unscaled.is_empty() {
            bail!(Value, OP, "no gradients were unscaled since the last update: call step or unscale first");
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

    /// Sets the scale on all devices.
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

    /// The scale, or 1 if scaling is disabled.
    ///
    /// ```
    /// assert_eq!(cotangent::optim::GradScaler::new().get_scale(), 65536.0);
    /// ```
    pub fn get_scale(&self) -> f64 {
        if self.options.enabled { self.scale } else { 1.0 }
    }

    /// Whether scaling is enabled.
    ///
    /// ```
    /// assert!(cotangent::optim::GradScaler::new().is_enabled());
    /// ```
    pub fn is_enabled(&self) -> bool {
        self.options.enabled
    }

    /// The scale, the settings, and the number of steps with finite gradients since the scale was changed.
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

    /// Loads what [`state_dict`](Self::state_dict) has returned.
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
    /// If a name is missing or unknown, or a shape, dtype or value does not fit; nothing is changed then.
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

/// Whether one of these tensors of one element is not finite. There is one transfer for each GPU.
fn any_not_a_number(sums: &[Tensor]) -> Result<bool> {
    let mut any = false;
    for on_one in sums.chunk_by(|a, b| a.device() == b.device()) {
        any |= no_grad(|| Tensor::stack(on_one, 0))?.to_vec::<f32>()?.iter().any(|sum| !sum.is_finite());
    }
    Ok(any)
}
