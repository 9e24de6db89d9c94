//! What all optimisers share: going over the parameters, and keeping, saving and loading what belongs to each.

use super::on_gpus::{Numbers, OnGpus};
use crate::backend;
use crate::backend::cpu::nn::optim::{Real, Rule, Update, update};
#[cfg(feature = "cuda")]
use crate::cuda_graph::note_change;
use crate::error::{bail, err};
use crate::io::StateDict;
use crate::nn::Module;
use crate::nn::tied::{Group, groups};
use crate::{DType, Device, Result, Tensor, TensorOptions};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// An optimiser's formula with `N` tensors of state for each parameter.
pub(crate) trait Method<const N: usize> {
    /// The rule for the named parameter in its `step`-th step, counted from 1.
    fn rule<T: Real>(&self, name: &str, step: u64) -> impl Rule<T, N>;
}

/// A parameter that has a gradient: nothing of its update can fail any more.
struct Ready<'g, 'm> {
    group: &'g mut Group<'m>,
    /// Contiguous; on the CPU in the compute dtype.
    gradient: Tensor,
    /// The parameter in the compute dtype, where it is of half precision itself, and on the CPU.
    wide: Option<Tensor>,
}

/// The state of all parameters, by name.
#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: BTreeMap<String, Kept>,
    /// The rules' numbers on GPUs.
    numbers: Numbers,
    /// Just loaded, and not yet compared with a model.
    fresh: bool,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    step: u64,
    pub tensors: Vec<Tensor>,
    /// What a parameter of half precision lacks of its value in the compute dtype. Most updates are too small to move a
    /// number of 8 bits: added up here they are not lost.
    pub rest: Option<Tensor>,
}

impl Store {
    /// Updates every parameter that has a gradient. What can fail comes before the first change.
    pub fn step<const N: usize>(
        &mut self,
        op: &'static str,
        model: &mut dyn Module,
        method: &impl Method<N>,
    ) -> Result<()> {
        let mut groups = groups(model)?;
        if self.fresh {
            let unknown = |name: &&String| !groups.iter().any(|group| group.name == **name);
            if let Some(name) = self.kept.keys().find(unknown) {
                bail!(Format, op, "the loaded state has {name}, which is no parameter of the model");
            }
            self.fresh = false;
        }
        let mut ready = Vec::with_capacity(groups.len());
        for group in &mut groups {
            if let Some(made) = group.tensor.grad_fn() {
                bail!(Graph, op, "{} is the result of {made}, not a leaf: it cannot be trained", group.name);
            }
            let Some(gradient) = group.tensor.grad() else { continue };
            if gradient.device() != group.tensor.device() {
                let (name, here, there) = (&group.name, group.tensor.device(), gradient.device());
                bail!(Device, op, "{name} is on {here}, its gradient on {there}");
            }
            ready.push(self.ready::<N>(op, group, &gradient)?);
        }
        // In the order of the state, so that one walk over it finds the state of each.
        ready.sort_unstable_by(|a, b| a.group.name.cmp(&b.group.name));
        if let Some(two) = ready.windows(2).find(|two| two[0].group.name == two[1].group.name) {
            bail!(Graph, op, "{} is the name of several parameters", two[0].group.name);
        }
        self.update::<f32, N>(op, method, &mut ready)?;
        self.update::<f64, N>(op, method, &mut ready)?;
        for Ready { group, wide, .. } in ready {
            #[cfg(feature = "cuda")]
            if backend::is_recording(group.tensor.device()) {
                let kept = self.kept.get(&group.name);
                let state = kept.into_iter().flat_map(|kept| kept.tensors.iter().chain(&kept.rest));
                std::iter::once(&*group.tensor).chain(state).try_for_each(|tensor| note_change(op, tensor))?;
            }
            if let Some(wide) = wide {
                backend::copy(op, wide.as_view()?, &mut group.tensor.as_view_mut(op)?)?;
                if let Some(kept) = self.kept.get_mut(&group.name) {
                    kept.rest = Some(wide.sub(&group.tensor.detach().to_dtype(wide.dtype())?)?);
                }
            }
        }
        Ok(())
    }

    /// Does all of an update that may fail.
    fn ready<'g, 'm, const N: usize>(
        &mut self,
        op: &'static str,
        group: &'g mut Group<'m>,
        gradient: &Tensor,
    ) -> Result<Ready<'g, 'm>> {
        let on_gpu = gradient.device() != Device::Cpu;
        if backend::is_recording(gradient.device()) && !group.tensor.is_sole() {
            bail!(Backend, op, "{} is also held elsewhere: a recorded step must change it where it lies", group.name);
        }
        let (dtype, half) = (compute(gradient.dtype()), group.tensor.dtype() != compute(group.tensor.dtype()));
        let gradient = gradient.detach();
        let gradient = if on_gpu { gradient.contiguous()? } else { gradient.to_dtype(dtype)?.contiguous()? };
        own(op, group.tensor)?;
        if N > 0 || half {
            let kind = TensorOptions { dtype, device: gradient.device() };
            self.prepare(op, &group.name, gradient.shape(), kind, N, half)?;
        }
        let rest = self.kept.get(&group.name).and_then(|kept| kept.rest.as_ref());
        let wide = match rest {
            Some(rest) if half && !on_gpu => Some(group.tensor.detach().to_dtype(dtype)?.add(rest)?),
            _ => None,
        };
        let wide = wide.map(|mut wide| own(op, &mut wide).map(|()| wide)).transpose()?;
        Ok(Ready { group, gradient, wide })
    }

    /// One pass over all parameters of a compute dtype.
    fn update<T: Real, const N: usize>(
        &mut self,
        op: &'static str,
        method: &impl Method<N>,
        ready: &mut [Ready<'_, '_>],
    ) -> Result<()> {
        let Store { kept, numbers, .. } = self;
        let mut kept = kept.iter_mut();
        let mut updates = Vec::with_capacity(ready.len());
        let mut on_gpus = OnGpus::default();
        for Ready { group, gradient, wide } in ready.iter_mut().filter(|one| compute(one.gradient.dtype()) == T::DTYPE)
        {
            let lacking = || err!(Backend, op, "{} has no {} elements to update", group.name, T::DTYPE);
            let half = group.tensor.dtype() != compute(group.tensor.dtype());
            let mut own = None;
            if N > 0 || half {
                own = Some(kept.find(|(name, _)| **name == group.name).ok_or_else(lacking)?.1);
            }
            let mut step = 1;
            if let Some(own) = &mut own {
                // What is recorded has not happened: `advance` counts it.
                own.step += u64::from(!backend::is_recording(group.tensor.device()));
                step = own.step;
            }
            let rule = method.rule::<T>(&group.name, step);
            if group.tensor.device() != Device::Cpu {
                on_gpus.add(op, &group.name, &rule, group.tensor, gradient, own)?;
                continue;
            }
            let mut state = std::array::from_fn::<&mut [T], N, _>(|_| Default::default());
            for (slot, tensor) in state.iter_mut().zip(own.into_iter().flat_map(|own| &mut own.tensors)) {
                *slot = tensor.as_mut_slice::<T>(op)?.ok_or_else(lacking)?;
            }
            let gradient = gradient.as_slice::<T>()?.ok_or_else(lacking)?;
            let parameter = match wide {
                Some(wide) => wide.as_mut_slice::<T>(op)?,
                None => group.tensor.as_mut_slice::<T>(op)?,
            };
            let Some(parameter) = parameter else { return Err(err!(Backend, op, "nothing to update")) };
            updates.push(Update { rule, parameter, gradient, state });
        }
        update(updates);
        on_gpus.run(op, N, T::DTYPE, numbers)
    }

    /// Counts a step that was recorded and is replayed next, and hands the GPU its numbers.
    #[cfg(feature = "cuda")]
    pub fn advance<const N: usize>(&mut self, op: &'static str, method: &impl Method<N>) -> Result<()> {
        let Store { kept, numbers, .. } = self;
        numbers.renew(op, |name, dtype| {
            let step = kept.get_mut(name).map_or(1, |kept| {
                kept.step += 1;
                kept.step
            });
            if dtype == DType::F64 {
                method.rule::<f64>(name, step).numbers()
            } else {
                method.rule::<f32>(name, step).numbers()
            }
        })
    }

    /// Makes the state of a parameter, or checks the one that is there and makes it the only handle to its bytes.
    fn prepare(
        &mut self,
        op: &'static str,
        name: &str,
        shape: &[usize],
        kind: TensorOptions,
        count: usize,
        half: bool,
    ) -> Result<()> {
        let zeros = || Tensor::zeros_with(shape, kind);
        let kept = match self.kept.entry(name.to_string()) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(place) => {
                let tensors = (0..count).map(|_| zeros()).collect::<Result<_>>()?;
                place.insert(Kept { step: 0, tensors, rest: None })
            }
        };
        if half && kept.rest.is_none() {
            kept.rest = Some(zeros()?);
        }
        for tensor in kept.tensors.iter_mut().chain(&mut kept.rest) {
            if tensor.shape() != shape || tensor.dtype() != kind.dtype {
                bail!(
                    Format,
                    op,
                    "the state of {name} is {} of shape {:?}, its gradient is {} of shape {shape:?}",
                    tensor.dtype(),
                    tensor.shape(),
                    kind.dtype
                );
            }
            // A state that was loaded, or made for a model elsewhere, follows the parameter.
            if tensor.device() != kind.device {
                *tensor = tensor.to_device(kind.device)?;
            }
            own(op, tensor)?;
        }
        Ok(())
    }

    /// Adds the state of each parameter to a dictionary, as `name.slot`, with the number of its steps.
    pub fn save(&self, slots: &[&str], dict: &mut StateDict) -> Result<()> {
        for (name, kept) in &self.kept {
            for (slot, tensor) in slots.iter().zip(&kept.tensors) {
                dict.insert(format!("{name}.{slot}"), tensor.clone());
            }
            if let Some(rest) = &kept.rest {
                dict.insert(format!("{name}.{REST}"), rest.clone());
            }
            dict.insert(format!("{name}.{STEP}"), Tensor::full((), kept.step as i64)?);
        }
        Ok(())
    }

    /// Reads the whole of a dictionary that [`save`](Self::save) and [`save_numbers`] have made: the state, and the
    /// numbers under the given names.
    pub fn load(op: &'static str, slots: &[&str], numbers: &[&str], dict: &StateDict) -> Result<(Store, Vec<f64>)> {
        let mut faults = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for name in dict.names().filter(|name| !numbers.contains(name)) {
            match name.rsplit_once('.') {
                Some((parameter, slot)) if slot == STEP || slot == REST || slots.contains(&slot) => {
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
                faults.push(format!("{name} is {} of shape {:?}, not one {dtype}", tensor.dtype(), tensor.shape()));
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
        let mut store = Store { fresh: true, ..Store::default() };
        for (name, step) in names.into_iter().zip(steps) {
            let found: Vec<Tensor> =
                slots.iter().filter_map(|slot| dict.get(&format!("{name}.{slot}"))).map(Tensor::detach).collect();
            let alike =
                found.windows(2).all(|two| two[0].shape() == two[1].shape() && two[0].dtype() == two[1].dtype());
            let rest = dict.get(&format!("{name}.{REST}")).map(Tensor::detach);
            // A parameter of half precision may have nothing but its rest.
            let whole = found.len() == slots.len() || (found.is_empty() && rest.is_some());
            if !whole || !alike {
                faults.push(format!("{name} has not one {} of one shape and dtype each", slots.join(" and ")));
            }
            store.kept.insert(name.to_string(), Kept { step, tensors: found, rest });
        }
        if faults.is_empty() {
            Ok((store, values))
        } else {
            Err(err!(Format, op, "nothing was loaded:\n  {}", faults.join("\n  ")))
        }
    }
}

/// The name under which the number of a parameter's steps is saved.
const STEP: &str = "step";
/// The name under which what a parameter of half precision lacks is saved.
const REST: &str = "rest";

/// Adds numbers to a dictionary.
pub(crate) fn save_numbers(numbers: &[(&str, f64)], dict: &mut StateDict) -> Result<()> {
    for (name, value) in numbers {
        dict.insert(*name, Tensor::full_with((), *value, DType::F64)?);
    }
    Ok(())
}

/// The dtype in which a parameter's update is computed and its state is kept.
fn compute(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Makes a tensor the sole, contiguous owner of its bytes.
fn own(op: &'static str, tensor: &mut Tensor) -> Result<()> {
    if !tensor.is_contiguous() {
        tensor.own_copy(op)?;
    }
    tensor.as_view_mut(op).map(drop)
}
