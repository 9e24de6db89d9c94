//! Averages of a model's parameters over the steps of its training.

use super::saved::{Saved, save_count, save_number};
use crate::autograd::no_grad;
use crate::error::{bail, named};
use crate::io::StateDict;
use crate::nn::{Buffer, Module, Part, PartMut, Visit, Visitor};
use crate::{DType, Result, Tensor};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// A copy of a model whose parameters are averages over its training: the mean over all updates ([`swa`](Self::swa), Izmailov and
/// others, 2018) or an exponential moving average ([`ema`](Self::ema)). It often generalises better than the model itself.
///
/// Buffers are those of the model at the last update, unless [`use_buffers`](Self::use_buffers) is set. The running statistics of
/// batch norms then belong to other weights: [`update_bn`] recomputes them. Averages of half-precision parameters are kept in
/// `f32`, so that small changes are not lost.
///
/// ```
/// use cotangent::nn::{Forward, Linear, Module};
/// use cotangent::optim::{AveragedModel, Optimizer, Sgd};
/// use cotangent::Tensor;
///
/// let (mut model, mut optimizer) = (Linear::new(3, 1)?, Sgd::new(0.1));
/// let mut ema = AveragedModel::ema(&model, 0.99)?;
/// for _ in 0..10 {
///     let loss = model.forward(&Tensor::ones([8, 3])?)?.mse_loss(&Tensor::zeros([8, 1])?)?;
///     model.zero_grad();
///     loss.backward()?;
///     optimizer.step(&mut model)?;
///     ema.update(&model)?;
/// }
/// let prediction = ema.forward(&Tensor::ones([1, 3])?)?;
/// # assert_eq!(prediction.shape(), [1, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct AveragedModel<M> {
    module: M,
    /// How much of the average is kept in each update; `None` for the mean over all updates.
    decay: Option<f64>,
    use_buffers: bool,
    updates: u64,
    /// The averages of half-precision tensors in `f32`, by name.
    wide: BTreeMap<String, Tensor>,
}

const OP: &str = "AveragedModel";

impl<M: Module> AveragedModel<M> {
    /// The mean over all updates, for stochastic weight averaging.
    ///
    /// ```
    /// use cotangent::{nn::Linear, optim::AveragedModel, tensor};
    /// let mut model = Linear::new(2, 1)?;
    /// let mut swa = AveragedModel::swa(&model)?;
    /// for value in [1.0, 2.0, 6.0] {
    ///     model.weight.update(|weight| weight.fill_(value))?;
    ///     swa.update(&model)?;
    /// }
    /// assert_eq!(swa.weight.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out, or the model cannot be cloned.
    #[track_caller]
    pub fn swa(model: &M) -> Result<AveragedModel<M>> {
        named(OP, AveragedModel::new(model, None))
    }

    /// The exponential moving average: each update gives `decay · average + (1 - decay) · model`.
    ///
    /// ```
    /// use cotangent::{nn::Linear, optim::AveragedModel};
    /// let mut model = Linear::new(2, 1)?;
    /// let mut ema = AveragedModel::ema(&model, 0.75)?;
    /// for value in [1.0, 2.0] {
    ///     model.weight.update(|weight| weight.fill_(value))?;
    ///     ema.update(&model)?;
    /// }
    /// assert_eq!(ema.weight.to_vec::<f32>()?, [1.25, 1.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `decay` is not in [0, 1], memory runs out, or the model cannot be cloned.
    #[track_caller]
    pub fn ema(model: &M, decay: f64) -> Result<AveragedModel<M>> {
        named(OP, AveragedModel::new(model, Some(decay)))
    }

    fn new(model: &M, decay: Option<f64>) -> Result<AveragedModel<M>> {
        if let Some(decay) = decay
            && !(0.0..=1.0).contains(&decay)
        {
            bail!(Value, OP, "decay must be in [0, 1], got {decay}");
        }
        let module = model.deep_clone()?;
        Ok(AveragedModel { module, decay, use_buffers: false, updates: 0, wide: BTreeMap::new() })
    }

    /// Whether to average floating-point buffers, too, such as the running statistics of batch norms. False by default.
    #[must_use]
    pub fn use_buffers(mut self, use_buffers: bool) -> AveragedModel<M> {
        self.use_buffers = use_buffers;
        self
    }

    /// Updates the averages with the model's values. The first update copies them.
    ///
    /// # Errors
    /// If the parameters or buffers differ from those of the averaged model, or memory runs out; nothing is changed then.
    #[track_caller]
    pub fn update(&mut self, model: &M) -> Result<()> {
        named("AveragedModel::update", no_grad(|| self.average(model)))
    }

    fn average(&mut self, model: &M) -> Result<()> {
        let (mut new, mut wide) = (BTreeMap::new(), BTreeMap::new());
        let theirs = tensors(model);
        for (name, own, is_parameter) in tensors(&self.module) {
            let Some((_, current, _)) = theirs.iter().find(|(other, ..)| *other == name) else {
                bail!(Value, OP, "the averaged model has {name}, the model does not");
            };
            if current.shape() != own.shape() {
                bail!(Shape, OP, "{name} must have shape {:?}, got {:?}", own.shape(), current.shape());
            }
            let current = current.to_device(own.device())?;
            let (dtype, is_averaged) = (own.dtype(), is_parameter || self.use_buffers);
            if !dtype.is_float() || !is_averaged {
                new.insert(name, current.to_dtype(dtype)?);
                continue;
            }
            let compute = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let mut average = current.to_dtype(compute)?;
            if self.updates > 0 {
                let old = self.wide.get(&name).map_or_else(|| own.to_dtype(compute), |wide| Ok(wide.clone()))?;
                let part = self.decay.map_or(1.0 / (self.updates + 1) as f64, |decay| 1.0 - decay);
                average = old.add(&average.sub(&old)?.mul(part)?)?;
            }
            if dtype != compute {
                wide.insert(name.clone(), average.clone());
            }
            new.insert(name, average.to_dtype(dtype)?);
        }
        if let Some((name, ..)) = theirs.iter().find(|(name, ..)| !new.contains_key(name)) {
            bail!(Value, OP, "the model has {name}, the averaged model does not");
        }
        Tensor::materialize(new.values().chain(wide.values()))?;
        put(&mut self.module, &new)?;
        self.wide = wide;
        self.updates += 1;
        Ok(())
    }

    /// The averages as a model.
    ///
    /// ```
    /// use cotangent::{nn::{Linear, Module}, optim::AveragedModel};
    /// let ema = AveragedModel::ema(&Linear::new(2, 1)?, 0.99)?;
    /// assert_eq!(ema.module().num_parameters(), 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Returns the averages as a model.
    ///
    /// ```
    /// use cotangent::{nn::{Linear, Module}, optim::AveragedModel};
    /// let model = AveragedModel::ema(&Linear::new(2, 1)?, 0.99)?.into_module();
    /// assert_eq!(model.num_parameters(), 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn into_module(self) -> M {
        self.module
    }

    /// The number of updates.
    ///
    /// ```
    /// use cotangent::{nn::Linear, optim::AveragedModel};
    /// assert_eq!(AveragedModel::swa(&Linear::new(2, 1)?)?.n_averaged(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn n_averaged(&self) -> u64 {
        self.updates
    }

    /// The averages under `module.`, the number of updates, and the decay.
    ///
    /// ```
    /// use cotangent::{nn::Linear, optim::AveragedModel};
    /// let dict = AveragedModel::ema(&Linear::new(2, 1)?, 0.99)?.state_dict()?;
    /// assert!(dict.names().eq(["n_averaged", "decay", "module.weight", "module.bias"]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    pub fn state_dict(&self) -> Result<StateDict> {
        let mut dict = StateDict::new();
        save_count("n_averaged", self.updates, &mut dict)?;
        if let Some(decay) = self.decay {
            save_number("decay", decay, &mut dict)?;
        }
        for (name, tensor) in self.module.state_dict() {
            dict.insert(format!("module.{name}"), tensor);
        }
        for (name, tensor) in &self.wide {
            dict.insert(format!("wide.{name}"), tensor.clone());
        }
        Ok(dict)
    }

    /// Loads what [`state_dict`](Self::state_dict) has returned.
    ///
    /// ```
    /// use cotangent::{nn::Linear, optim::AveragedModel};
    /// let mut ema = AveragedModel::ema(&Linear::new(2, 1)?, 0.99)?;
    /// ema.load_state_dict(&AveragedModel::ema(&Linear::new(2, 1)?, 0.9)?.state_dict()?)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape or dtype does not fit; nothing is changed then.
    #[track_caller]
    pub fn load_state_dict(&mut self, dict: &StateDict) -> Result<()> {
        named("load_state_dict", self.load(dict))
    }

    fn load(&mut self, dict: &StateDict) -> Result<()> {
        let (mut numbers, mut module, mut wide) = (StateDict::new(), StateDict::new(), BTreeMap::new());
        for (name, tensor) in dict.iter() {
            match name.split_once('.') {
                Some(("module", name)) => drop(module.insert(name, tensor.clone())),
                Some(("wide", name)) => drop(wide.insert(name.to_string(), tensor.clone())),
                _ => drop(numbers.insert(name, tensor.clone())),
            }
        }
        let mut saved = Saved::new(OP, &numbers);
        let updates = saved.count("n_averaged");
        let decay = self.decay.map(|_| saved.number("decay"));
        for (name, own, _) in tensors(&self.module) {
            if let Some(wide) = wide.get_mut(&name) {
                if wide.shape() != own.shape() || wide.dtype() != DType::F32 {
                    let (shape, dtype) = (wide.shape(), wide.dtype());
                    saved.fault(format!(
                        "wide.{name} must be f32 of shape {:?}, got {dtype} of shape {shape:?}",
                        own.shape()
                    ));
                }
                *wide = wide.to_device(own.device())?;
            }
        }
        let known: Vec<String> = tensors(&self.module).into_iter().map(|(name, ..)| name).collect();
        wide.keys()
            .filter(|name| !known.contains(name))
            .for_each(|name| saved.fault(format!("unexpected wide.{name}")));
        saved.finish()?;
        self.module.load_state_dict(&module)?;
        (self.updates, self.decay, self.wide) = (updates, decay, wide);
        Ok(())
    }
}

impl<M> Deref for AveragedModel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

/// For `eval` and similar calls. Changes of half-precision averages are lost in the next update.
impl<M> DerefMut for AveragedModel<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.module
    }
}

/// All parameters, each once, and buffers: name, value, and whether it is a parameter.
fn tensors<M: Visit>(module: &M) -> Vec<(String, Tensor, bool)> {
    let (mut all, mut seen) = (Vec::new(), std::collections::HashSet::new());
    module.visit(&mut Visitor::new(&mut |name, part| match part {
        Part::Param(parameter) if seen.insert(parameter.id()) => {
            all.push((name.to_string(), parameter.detach(), true));
        }
        Part::Buffer(buffer) => all.push((name.to_string(), buffer.get(), false)),
        _ => {}
    }));
    all
}

fn put<M: Module>(module: &mut M, values: &BTreeMap<String, Tensor>) -> Result<()> {
    for mut parameter in module.parameters_mut() {
        if let Some(value) = values.get(parameter.name()) {
            parameter.set(value)?;
        }
    }
    for (name, buffer) in module.named_buffers() {
        if let Some(value) = values.get(&name) {
            buffer.set(value)?;
        }
    }
    Ok(())
}

/// Recomputes the running statistics of all batch norms in a model, as means over the batches that `run` passes through it.
/// Meanwhile the model is in training mode and no graph is recorded. Afterwards the modes are restored.
///
/// ```
/// use cotangent::nn::{BatchNorm1d, Forward};
/// use cotangent::optim::update_bn;
/// use cotangent::{Tensor, tensor};
/// let mut model = BatchNorm1d::new(1)?;
/// let batches = [tensor!([[1.0], [3.0]])?, tensor!([[5.0], [7.0]])?];
/// update_bn(&mut model, |model| batches.iter().try_for_each(|batch| model.forward(batch).map(drop)))?;
/// assert_eq!(model.running_mean.as_ref().map(|mean| mean.get().item::<f64>()).transpose()?, Some(4.0));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If `run` fails; the statistics are then as they were.
#[track_caller]
pub fn update_bn<M: Module>(model: &mut M, run: impl FnOnce(&M) -> Result<()>) -> Result<()> {
    named("update_bn", recompute_statistics(model, run))
}

fn recompute_statistics<M: Module>(model: &mut M, run: impl FnOnce(&M) -> Result<()>) -> Result<()> {
    let modes = training_modes(model, &mut std::iter::repeat(true));
    let before: Vec<Tensor> = statistics(model).into_iter().map(|(_, buffer)| buffer.get()).collect();
    let reset = statistics(model).into_iter().try_for_each(|(name, buffer)| {
        let fresh = if name.ends_with("running_var") { buffer.get().ones_like() } else { buffer.get().zeros_like() };
        buffer.set(&fresh?)
    });
    let done = reset.and_then(|()| no_grad(|| crate::nn::with_cumulative_statistics(|| run(model))));
    if done.is_err() {
        statistics(model).into_iter().zip(&before).try_for_each(|((_, buffer), old)| buffer.set(old))?;
    }
    training_modes(model, &mut modes.into_iter());
    done
}

/// The buffers of all batch norms.
fn statistics<M: Module>(model: &M) -> Vec<(String, &Buffer)> {
    let (mut norms, mut all) = (Vec::new(), Vec::new());
    model.visit(&mut Visitor::new(&mut |name, part| match part {
        Part::Module(kind) if kind.starts_with("BatchNorm") => norms.push(name.to_string()),
        Part::Buffer(buffer) => {
            let of_norm = name.rsplit_once('.').map_or("", |(module, _)| module);
            if norms.iter().any(|norm| norm == of_norm) {
                all.push((name.to_string(), buffer));
            }
        }
        _ => {}
    }));
    all
}

/// Sets the training flag of each part, in order, and returns the flags before.
fn training_modes<M: Module>(model: &mut M, new: &mut dyn Iterator<Item = bool>) -> Vec<bool> {
    let mut before = Vec::new();
    model.visit_mut(&mut Visitor::new(&mut |_, part| {
        if let PartMut::Training(training) = part {
            before.push(*training);
            *training = new.next().unwrap_or(true);
        }
    }));
    before
}
