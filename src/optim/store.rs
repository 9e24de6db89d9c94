//! The state of each parameter: updating, saving and loading it.

use super::engine::AnyRule;
use super::on_gpus::{Numbers, OnGpus};
#[cfg(feature = "cuda")]
use crate::autograd::recording::note_change;
use crate::backend;
use crate::backend::optim_on_cpu::{Loop, Update, UpdateDType, update};
use crate::error::{bail, err};
use crate::io::StateDict;
use crate::nn::{Module, ParameterMut};
use crate::order::sort_by;
use crate::{DType, Device, Result, Tensor};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A parameter that has a gradient, and whose update can no longer fail.
struct Ready<'g, 'm> {
    parameter: &'g mut ParameterMut<'m>,
    /// Contiguous; on the CPU in the compute dtype.
    gradient: Tensor,
    /// The parameter in the compute dtype, if it is half precision and on the CPU.
    wide: Option<Tensor>,
}

/// The state of all parameters, by name.
#[derive(Debug, Default)]
pub(crate) struct Store {
    states: BTreeMap<String, ParamState>,
    /// The coefficients of the rules on GPUs.
    numbers: Numbers,
    /// Just loaded, and not yet compared with a model.
    fresh: bool,
    /// The parameters that are updated, if not all are.
    pub only: Option<Chosen>,
}

/// Parameters, by their names.
#[derive(Clone)]
pub(crate) struct Chosen(pub std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

/// The state of a parameter.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParamState {
    pub step: u64,
    pub tensors: Vec<Tensor>,
    /// The rounding residual of a half-precision parameter in the compute dtype. Most updates are too small to change a
    /// mantissa of 8 bits; accumulated here they are not lost. It is kept instead of a full-precision copy, so that a
    /// parameter that is loaded or set by hand has the values that it shows.
    pub residual: Option<Tensor>,
    /// The counters besides the step.
    pub counters: Vec<f64>,
}

/// The state of a parameter before its first step.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'a> {
    /// The initial value of each tensor's elements, by the parameter's name and the slot.
    pub initial: &'a dyn Fn(&str, usize) -> f64,
    pub counters: &'static [(&'static str, f64)],
}

/// The names by which the state of a parameter is saved.
pub(crate) struct Saving {
    pub slots: &'static [&'static str],
    /// How many of the slots always exist.
    pub required: usize,
    pub counters: &'static [(&'static str, f64)],
}

/// The arguments of an update by tensor operations: the parameter's name, values, gradient and state.
pub(crate) struct TensorUpdate<'a> {
    pub name: &'a str,
    pub parameter: &'a Tensor,
    pub gradient: &'a Tensor,
    pub state: &'a mut ParamState,
}

impl Store {
    /// Updates every parameter that has a gradient by an elementwise rule. All that can fail is done before the first change.
    pub fn step(
        &mut self,
        op: &'static str,
        model: &mut dyn Module,
        rule: &AnyRule,
        fresh: Fresh<'_>,
        numbers: &NumbersOf<'_>,
    ) -> Result<()> {
        let mut parameters = self.parameters(op, model)?;
        let mut ready = self.all_ready(op, &mut parameters, rule.slots, fresh)?;
        self.update(op, (rule, rule.f32), numbers, &mut ready)?;
        self.update(op, (rule, rule.f64), numbers, &mut ready)?;
        self.finish(op, ready)
    }

    /// The parameters that have gradients, in the order of the state, so that one walk over it finds the state of each.
    fn all_ready<'g, 'm>(
        &mut self,
        op: &'static str,
        parameters: &'g mut [ParameterMut<'m>],
        slots: usize,
        fresh: Fresh<'_>,
    ) -> Result<Vec<Ready<'g, 'm>>> {
        let mut ready = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            if let Some(gradient) = gradient_of(op, parameter)? {
                parameter.release_others();
                ready.push(self.ready(op, parameter, &gradient, slots, fresh)?);
            }
        }
        sort_by(&mut ready, |a, b| a.parameter.name().cmp(b.parameter.name()));
        if let Some(two) = ready.windows(2).find(|two| two[0].parameter.name() == two[1].parameter.name()) {
            bail!(Graph, op, "parameter names must be unique, got {} more than once", two[0].parameter.name());
        }
        Ok(ready)
    }

    /// Completes an update after the new values are computed.
    fn finish(&mut self, op: &'static str, ready: Vec<Ready<'_, '_>>) -> Result<()> {
        for Ready { parameter, wide, .. } in ready {
            let name = parameter.name().to_string();
            #[cfg(feature = "cuda")]
            if backend::is_recording(parameter.device()) {
                let own = self.states.get(&name);
                let state = own.into_iter().flat_map(|own| own.tensors.iter().chain(&own.residual));
                std::iter::once(&***parameter).chain(state).try_for_each(|tensor| note_change(op, tensor))?;
            }
            if let Some(wide) = wide {
                backend::copy(op, wide.as_view()?, &mut parameter.tensor_mut().as_view_mut(op)?)?;
                if let Some(own) = self.states.get_mut(&name) {
                    own.residual = Some(wide.sub(&parameter.detach().to_dtype(wide.dtype())?)?);
                }
            }
            // Graphs and clones made before the step refer to the old values.
            parameter.changed();
        }
        Ok(())
    }

    /// Updates every parameter that has a gradient by tensor operations: `f` gives its new values and changes its state. All
    /// new values are computed before the first parameter or state is changed.
    pub fn step_tensors(
        &mut self,
        op: &'static str,
        model: &mut dyn Module,
        mut f: impl FnMut(TensorUpdate<'_>) -> Result<Tensor>,
    ) -> Result<()> {
        let mut parameters = self.parameters(op, model)?;
        let mut new = Vec::with_capacity(parameters.len());
        crate::autograd::no_grad(|| {
            for (at, parameter) in parameters.iter().enumerate() {
                let Some(gradient) = gradient_of(op, parameter)? else { continue };
                if backend::is_recording(parameter.device()) {
                    bail!(
                        Backend,
                        op,
                        "steps cannot be recorded: every replay would reuse the coefficients of this one"
                    );
                }
                let mut state = self.states.get(parameter.name()).cloned().unwrap_or_default();
                state.step += 1;
                let dtype = compute(parameter.dtype());
                let half = dtype != parameter.dtype();
                let mut values = parameter.detach().to_dtype(dtype)?;
                if half && let Some(residual) = &state.residual {
                    same_form(op, parameter.name(), residual, parameter.shape(), dtype)?;
                    values = values.add(&residual.to_device(parameter.device())?)?;
                }
                for tensor in &mut state.tensors {
                    *tensor = tensor.to_device(parameter.device())?;
                }
                let gradient = gradient.detach().to_dtype(dtype)?;
                let name = parameter.name();
                let wide = f(TensorUpdate { name, parameter: &values, gradient: &gradient, state: &mut state })?;
                let values = wide.to_dtype(parameter.dtype())?;
                if half {
                    state.residual = Some(wide.sub(&values.to_dtype(dtype)?)?);
                }
                new.push((at, values, state));
            }
            Ok(())
        })?;
        // Together, so that chains of elementwise operations go through memory once.
        Tensor::materialize(
            new.iter().flat_map(|(_, values, state)| state.tensors.iter().chain(&state.residual).chain([values])),
        )?;
        new.into_iter().try_for_each(|(at, values, state)| {
            let parameter = &mut parameters[at];
            parameter.set(&values)?;
            self.states.insert(parameter.name().to_string(), state);
            Ok(())
        })
    }

    fn parameters<'m>(&mut self, op: &'static str, model: &'m mut dyn Module) -> Result<Vec<ParameterMut<'m>>> {
        let mut parameters = model.parameters_mut();
        if self.fresh {
            let unknown = |name: &&String| !parameters.iter().any(|parameter| parameter.name() == **name);
            if let Some(name) = self.states.keys().find(unknown) {
                bail!(Format, op, "the model has no parameter {name}, which is in the loaded state");
            }
            self.fresh = false;
        }
        if let Some(Chosen(only)) = &self.only {
            parameters.retain(|parameter| only(parameter.name()));
        }
        parameters.iter().try_for_each(|parameter| parameter.check_whole(op))?;
        Ok(parameters)
    }

    /// Does everything of an update that may fail.
    fn ready<'g, 'm>(
        &mut self,
        op: &'static str,
        parameter: &'g mut ParameterMut<'m>,
        gradient: &Tensor,
        slots: usize,
        fresh: Fresh<'_>,
    ) -> Result<Ready<'g, 'm>> {
        let on_gpu = gradient.device() != Device::Cpu;
        if backend::is_recording(gradient.device()) && !parameter.is_sole() {
            bail!(
                Backend,
                op,
                "{} is also held elsewhere, but a recorded step must change it in place: drop its clones first",
                parameter.name()
            );
        }
        let (dtype, half) = (compute(gradient.dtype()), parameter.dtype() != compute(parameter.dtype()));
        let gradient = gradient.detach();
        let gradient = if on_gpu { gradient.contiguous()? } else { gradient.to_dtype(dtype)?.contiguous()? };
        own(op, parameter.tensor_mut())?;
        if slots > 0 || half {
            self.prepare(op, parameter.name(), gradient.shape(), (dtype, gradient.device()), slots, half, fresh)?;
        }
        let residual = self.states.get(parameter.name()).and_then(|own| own.residual.as_ref());
        let wide = match residual {
            Some(residual) if half && !on_gpu => Some(parameter.detach().to_dtype(dtype)?.add(residual)?),
            _ => None,
        };
        let wide = wide.map(|mut wide| own(op, &mut wide).map(|()| wide)).transpose()?;
        Ok(Ready { parameter, gradient, wide })
    }

    /// One pass over all parameters of a compute dtype.
    fn update<T: UpdateDType>(
        &mut self,
        op: &'static str,
        (rule, elements): (&AnyRule, Loop<T>),
        numbers_of: &NumbersOf<'_>,
        ready: &mut [Ready<'_, '_>],
    ) -> Result<()> {
        let Store { states, numbers, .. } = self;
        let mut states = states.iter_mut();
        let mut updates: Vec<Update<'_, T>> = Vec::with_capacity(ready.len());
        let mut on_gpus = OnGpus::default();
        let alike = |one: &&mut Ready<'_, '_>| compute(one.gradient.dtype()) == T::DTYPE;
        for Ready { parameter, gradient, wide } in ready.iter_mut().filter(alike) {
            let name = parameter.name().to_string();
            let lacking = || err!(Backend, op, "{name} and its state must be {}", T::DTYPE);
            let half = parameter.dtype() != compute(parameter.dtype());
            let mut own = None;
            if rule.slots > 0 || half {
                own = Some(states.find(|(other, _)| **other == name).ok_or_else(lacking)?.1);
            }
            let numbers = match &mut own {
                // A recorded step has not run: `advance` counts it.
                Some(own) if backend::is_recording(parameter.device()) => {
                    numbers_of(&name, own.step, &mut own.counters.clone())
                }
                Some(own) => {
                    own.step += 1;
                    numbers_of(&name, own.step, &mut own.counters)
                }
                None => numbers_of(&name, 1, &mut []),
            };
            if parameter.device() != Device::Cpu {
                on_gpus.add(op, &name, &numbers, parameter.tensor_mut(), gradient, own)?;
                continue;
            }
            let mut state = SmallVec::new();
            for tensor in own.into_iter().flat_map(|own| &mut own.tensors).take(rule.slots) {
                state.push(tensor.as_mut_slice::<T>(op)?.ok_or_else(lacking)?);
            }
            let gradient = gradient.as_slice::<T>()?.ok_or_else(lacking)?;
            let parameter = match wide {
                Some(wide) => wide.as_mut_slice::<T>(op)?,
                None => parameter.tensor_mut().as_mut_slice::<T>(op)?,
            };
            let Some(parameter) = parameter else { return Err(err!(Backend, op, "{name} must be {}", T::DTYPE)) };
            let numbers = numbers.iter().map(|&number| T::of(number)).collect();
            updates.push(Update { numbers, parameter, gradient, state });
        }
        update(updates, elements);
        on_gpus.run(op, rule, T::DTYPE, numbers)
    }

    /// Counts a recorded step that is replayed next, and uploads its coefficients.
    pub fn advance(&mut self, op: &'static str, numbers_of: &NumbersOf<'_>) -> Result<()> {
        let Store { states, numbers, .. } = self;
        numbers.renew(op, |name| match states.get_mut(name) {
            Some(own) => {
                own.step += 1;
                numbers_of(name, own.step, &mut own.counters)
            }
            None => numbers_of(name, 1, &mut []),
        })
    }

    /// Creates the state of a parameter, or checks the existing one and makes it the only handle to its memory.
    fn prepare(
        &mut self,
        op: &'static str,
        name: &str,
        shape: &[usize],
        (dtype, device): (DType, Device),
        count: usize,
        half: bool,
        fresh: Fresh<'_>,
    ) -> Result<()> {
        let filled = |slot: usize| Tensor::full_with(shape, (fresh.initial)(name, slot), (dtype, device));
        let state = match self.states.entry(name.to_string()) {
            Entry::Occupied(state) => state.into_mut(),
            Entry::Vacant(position) => {
                let tensors = (0..count).map(filled).collect::<Result<_>>()?;
                let counters = fresh.counters.iter().map(|&(_, start)| start).collect();
                position.insert(ParamState { step: 0, tensors, residual: None, counters })
            }
        };
        // The rule may have more slots than before, for example because momentum was set later.
        while state.tensors.len() < count {
            state.tensors.push(filled(state.tensors.len())?);
        }
        if half && state.residual.is_none() {
            state.residual = Some(Tensor::zeros_with(shape, (dtype, device))?);
        }
        for tensor in state.tensors.iter_mut().chain(&mut state.residual) {
            same_form(op, name, tensor, shape, dtype)?;
            // A state that was loaded, or made on another device, is moved to the parameter's device.
            if tensor.device() != device {
                *tensor = tensor.to_device(device)?;
            }
            own(op, tensor)?;
        }
        Ok(())
    }

    /// Adds the state of each parameter to a dictionary, as `name.slot`, with the number of its steps.
    pub fn save(&self, saving: &Saving, dict: &mut StateDict) -> Result<()> {
        for (name, state) in &self.states {
            for (slot, tensor) in saving.slots.iter().zip(&state.tensors) {
                dict.insert(format!("{name}.{slot}"), tensor.clone());
            }
            if let Some(residual) = &state.residual {
                dict.insert(format!("{name}.{RESIDUAL}"), residual.clone());
            }
            dict.insert(format!("{name}.{STEP}"), Tensor::full((), state.step as i64)?);
            let counters = saving.counters.iter().zip(&state.counters);
            let counters: Vec<(String, f64)> =
                counters.map(|((counter, _), &value)| (format!("{name}.{counter}"), value)).collect();
            save_numbers(&counters, dict)?;
        }
        Ok(())
    }

    /// Reads the whole of a dictionary that [`save`](Self::save) and [`save_numbers`] have made: the state, and the
    /// numbers under the given names.
    pub fn load(op: &'static str, saving: &Saving, numbers: &[String], dict: &StateDict) -> Result<(Store, Vec<f64>)> {
        let Saving { slots, required, counters } = *saving;
        let is_known = |slot: &str| {
            slot == STEP || slot == RESIDUAL || slots.contains(&slot) || counters.iter().any(|(name, _)| *name == slot)
        };
        let mut faults = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for name in dict.names().filter(|name| !numbers.iter().any(|number| number == name)) {
            match name.rsplit_once('.') {
                Some((parameter, slot)) if is_known(slot) => {
                    if names.last() != Some(&parameter) {
                        names.push(parameter);
                    }
                }
                _ => faults.push(format!("unexpected {name}")),
            }
        }
        names.sort_unstable();
        names.dedup();
        let mut number = |name: &str, dtype: DType| match dict.get(name) {
            Some(tensor) if tensor.rank() == 0 && tensor.dtype() == dtype => {
                tensor.at(&[]).map(crate::Scalar::to_f64).ok()
            }
            Some(tensor) => {
                faults.push(format!(
                    "{name} must be one {dtype}, got {} of shape {:?}",
                    tensor.dtype(),
                    tensor.shape()
                ));
                None
            }
            None => {
                faults.push(format!("missing {name}"));
                None
            }
        };
        let values: Vec<f64> = numbers.iter().filter_map(|name| number(name, DType::F64)).collect();
        let steps: Vec<u64> =
            names.iter().map(|name| number(&format!("{name}.{STEP}"), DType::I64).unwrap_or(0.0) as u64).collect();
        let counted: Vec<Vec<f64>> = names
            .iter()
            .map(|name| {
                let value =
                    |&(counter, _): &(&str, f64)| number(&format!("{name}.{counter}"), DType::F64).unwrap_or(0.0);
                counters.iter().map(value).collect()
            })
            .collect();
        let mut store = Store { fresh: true, ..Store::default() };
        for ((name, step), counters) in names.into_iter().zip(steps).zip(counted) {
            let found: Vec<Option<&Tensor>> = slots.iter().map(|slot| dict.get(&format!("{name}.{slot}"))).collect();
            let residual = dict.get(&format!("{name}.{RESIDUAL}")).map(Tensor::detach);
            // Optional slots follow the required ones. A half-precision parameter may have only its residual.
            let tensors: Vec<Tensor> = found.iter().map_while(|found| found.map(Tensor::detach)).collect();
            let gaps = found.iter().flatten().count() != tensors.len();
            if gaps || tensors.len() < required && !(tensors.is_empty() && residual.is_some()) {
                faults.push(format!("{name} must have the first {required} or more of {}", slots.join(", ")));
            }
            store.states.insert(name.to_string(), ParamState { step, tensors, residual, counters });
        }
        if faults.is_empty() {
            Ok((store, values))
        } else {
            Err(err!(Format, op, "nothing was loaded:\n  {}", faults.join("\n  ")))
        }
    }
}

/// The coefficients of a rule for one parameter.
pub(crate) type RuleNumbers = SmallVec<[f64; 10]>;

/// The coefficients of a rule, by the parameter's name, its step and its counters.
pub(crate) type NumbersOf<'a> = dyn Fn(&str, u64, &mut [f64]) -> RuleNumbers + 'a;

/// The name under which the number of a parameter's steps is saved.
const STEP: &str = "step";
/// The name under which a rounding residual is saved.
const RESIDUAL: &str = "residual";

/// Adds numbers to a dictionary.
pub(crate) fn save_numbers(numbers: &[(String, f64)], dict: &mut StateDict) -> Result<()> {
    for (name, value) in numbers {
        dict.insert(name, Tensor::full_with((), *value, DType::F64)?);
    }
    Ok(())
}

/// The dtype in which a parameter's update is computed and its state is kept.
fn compute(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Fails if a state does not have the shape and dtype of its gradient.
pub(super) fn same_form(op: &'static str, name: &str, state: &Tensor, shape: &[usize], dtype: DType) -> Result<()> {
    if state.shape() != shape || state.dtype() != dtype {
        let (own, there) = (state.dtype(), state.shape());
        bail!(Format, op, "the state of {name} must be {dtype} of shape {shape:?}, got {own} of shape {there:?}");
    }
    Ok(())
}

/// Makes a tensor contiguous, and the only handle to its memory.
fn own(op: &'static str, tensor: &mut Tensor) -> Result<()> {
    if !tensor.is_contiguous() {
        tensor.own_copy(op)?;
    }
    tensor.as_view_mut(op).map(drop)
}

/// The gradient of a parameter, if it has one.
fn gradient_of(op: &'static str, parameter: &ParameterMut<'_>) -> Result<Option<Tensor>> {
    let Some(gradient) = parameter.grad() else { return Ok(None) };
    if gradient.device() != parameter.device() {
        let (name, here, there) = (parameter.name(), parameter.device(), gradient.device());
        bail!(Device, op, "the gradient of {name} must be on {here}, got {there}");
    }
    Ok(Some(gradient))
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::nn::Linear;
    use crate::tensor;

    #[test]
    fn a_rule_of_tensor_operations_changes_parameters_and_keeps_its_state() -> Result<()> {
        let mut model = Linear::new(2, 1)?;
        model.weight.set(&tensor!([[3.0, 4.0]])?)?;
        let mut store = Store::default();
        for step in 1..=3 {
            model.zero_grad();
            let weights = model.weight.mul(&model.weight)?.sum(..)?;
            weights.backward()?;
            // Steps of length 1 along the gradient: not elementwise.
            store.step_tensors("unit", &mut model, |TensorUpdate { name, parameter, gradient, state }| {
                assert_eq!((name, state.step), ("weight", step));
                let length = gradient.square()?.sum(..)?.sqrt()?;
                state.tensors = vec![length.clone()];
                parameter.sub(&gradient.div(&length)?)
            })?;
        }
        let left = model.weight.square()?.sum(..)?.sqrt()?.item::<f32>()?;
        assert!((left - 2.0).abs() < 1e-5, "{left}");
        let mut dict = StateDict::new();
        store.save(&Saving { slots: &["length"], required: 1, counters: &[] }, &mut dict)?;
        assert_eq!(dict.get("weight.length").map(|x| x.item::<f32>()).transpose()?.map(f32::round), Some(6.0));
        Ok(())
    }
}
