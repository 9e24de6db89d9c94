//! What all optimisers share: going over the parameters, and keeping, saving and loading what belongs to each.

use crate::backend::cpu::optim::{Real, Rule, Update, update};
use crate::error::{bail, err};
use crate::io::StateDict;
use crate::nn::Module;
use crate::nn::tied::{Group, groups};
use crate::{DType, Result, Tensor};
use std::collections::BTreeMap;

/// An optimiser's formula with `N` tensors of state for each parameter.
pub(crate) trait Method<const N: usize> {
    /// The rule for the named parameter in its `step`-th step, counted from 1.
    fn rule<T: Real>(&self, name: &str, step: u64) -> impl Rule<T, N>;
}

/// A parameter that has a gradient: nothing of its update can fail any more.
struct Ready<'g, 'm> {
    group: &'g mut Group<'m>,
    /// Contiguous, in the computing type.
    gradient: Tensor,
    /// The parameter in the computing type, where it is of half precision itself.
    wide: Option<Tensor>,
}

/// The state of all parameters, by name.
#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: BTreeMap<String, Kept>,
    /// Just loaded, and not yet compared with a model.
    fresh: bool,
}

#[derive(Debug, Default)]
struct Kept {
    step: u64,
    tensors: Vec<Tensor>,
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
            let gradient = gradient.detach().to_dtype(compute(gradient.dtype()))?.contiguous()?;
            let wide = own(op, group.tensor)?;
            if N > 0 {
                self.prepare(op, &group.name, &gradient, N)?;
            }
            ready.push(Ready { group, gradient, wide });
        }
        // In the order of the state, so that one walk over it finds the state of each.
        ready.sort_unstable_by(|a, b| a.group.name.cmp(&b.group.name));
        if let Some(two) = ready.windows(2).find(|two| two[0].group.name == two[1].group.name) {
            bail!(Graph, op, "{} is the name of several parameters", two[0].group.name);
        }
        self.update::<f32, N>(op, method, &mut ready)?;
        self.update::<f64, N>(op, method, &mut ready)?;
        for Ready { group, wide, .. } in ready {
            if let Some(wide) = wide {
                crate::backend::copy(wide.as_view()?, &mut group.tensor.as_view_mut(op)?)?;
            }
        }
        Ok(())
    }

    /// One pass over all parameters of a computing type.
    fn update<T: Real, const N: usize>(
        &mut self,
        op: &'static str,
        method: &impl Method<N>,
        ready: &mut [Ready<'_, '_>],
    ) -> Result<()> {
        let mut kept = self.kept.iter_mut();
        let mut updates = Vec::with_capacity(ready.len());
        for Ready { group, gradient, wide } in ready.iter_mut().filter(|one| one.gradient.dtype() == T::DTYPE) {
            let lacking = || err!(Backend, op, "{} has no {} elements to update", group.name, T::DTYPE);
            let (mut step, mut state) = (1, std::array::from_fn::<&mut [T], N, _>(|_| Default::default()));
            if N > 0 {
                let (_, own) = kept.find(|(name, _)| **name == group.name).ok_or_else(lacking)?;
                own.step += 1;
                step = own.step;
                for (slot, tensor) in state.iter_mut().zip(&mut own.tensors) {
                    *slot = tensor.as_mut_slice::<T>(op)?.ok_or_else(lacking)?;
                }
            }
            let rule = method.rule::<T>(&group.name, step);
            let gradient = gradient.as_slice::<T>()?.ok_or_else(lacking)?;
            let parameter = match wide {
                Some(wide) => wide.as_mut_slice::<T>(op)?,
                None => group.tensor.as_mut_slice::<T>(op)?,
            };
            let Some(parameter) = parameter else { return Err(err!(Backend, op, "nothing to update")) };
            updates.push(Update { rule, parameter, gradient, state });
        }
        update(updates);
        Ok(())
    }

    /// Makes the state of a parameter, or checks the one that is there and makes it the only handle to its bytes.
    fn prepare(&mut self, op: &'static str, name: &str, like: &Tensor, count: usize) -> Result<()> {
        let Some(kept) = self.kept.get_mut(name) else {
            let tensors = (0..count).map(|_| like.zeros_like()).collect::<Result<_>>()?;
            self.kept.insert(name.to_string(), Kept { step: 0, tensors });
            return Ok(());
        };
        for tensor in &mut kept.tensors {
            if tensor.shape() != like.shape() || tensor.dtype() != like.dtype() {
                bail!(
                    Format,
                    op,
                    "the state of {name} is {} of shape {:?}, its gradient is {} of shape {:?}",
                    tensor.dtype(),
                    tensor.shape(),
                    like.dtype(),
                    like.shape()
                );
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
                Some((parameter, slot)) if slot == STEP || slots.contains(&slot) => {
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
        let mut store = Store { kept: BTreeMap::new(), fresh: true };
        for (name, step) in names.into_iter().zip(steps) {
            let found: Vec<Tensor> =
                slots.iter().filter_map(|slot| dict.get(&format!("{name}.{slot}"))).map(Tensor::detach).collect();
            let alike =
                found.windows(2).all(|two| two[0].shape() == two[1].shape() && two[0].dtype() == two[1].dtype());
            if found.len() != slots.len() || !alike {
                faults.push(format!("{name} has not one {} of one shape and dtype each", slots.join(" and ")));
            }
            store.kept.insert(name.to_string(), Kept { step, tensors: found });
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

/// Makes a tensor the sole, contiguous owner of its bytes; of a half precision one a wide copy to compute with is given.
fn own(op: &'static str, tensor: &mut Tensor) -> Result<Option<Tensor>> {
    let wide = compute(tensor.dtype());
    if tensor.dtype() == wide {
        tensor.as_mut_slice::<f32>(op)?;
        tensor.as_mut_slice::<f64>(op)?;
        Ok(None)
    } else {
        tensor.as_view_mut(op)?;
        tensor.detach().to_dtype(wide).map(Some)
    }
}
