//! Updates of parameters on GPUs: collected first, then run in few launches.

use super::engine::AnyRule;
use super::store::{ParamState, RuleNumbers};
use crate::{DType, Result, Tensor};

#[cfg(feature = "cuda")]
#[cfg_attr(not(test), allow(unused_imports))]
pub(super) use with_cuda::{Numbers, OnGpus, code_of};

#[cfg(feature = "cuda")]
mod with_cuda {
    use super::{AnyRule, DType, ParamState, Result, RuleNumbers, Tensor};
    use crate::backend::cuda::elementwise::source::statements;
    use crate::backend::cuda::nn::optim::{Entry, Update};
    use crate::backend::spec::RuleSteps;
    use crate::error::bail;
    use crate::{Device, backend};
    use std::any::TypeId;
    use std::collections::HashMap;
    use std::ops::Range;
    use std::sync::{Mutex, PoisonError};

    /// The updates of one optimiser step, grouped into those that one launch can run.
    #[derive(Default)]
    pub struct OnGpus<'a> {
        groups: Vec<Group<'a>>,
        /// The coefficients of all rules, and the parameters that they belong to.
        numbers: Vec<f64>,
        owners: Vec<(String, Range<usize>)>,
    }

    struct Group<'a> {
        device: Device,
        parameter: DType,
        gradient: DType,
        residual: bool,
        entries: Vec<Entry<'a>>,
    }

    /// The coefficients of an optimiser's rules in GPU memory, at the same addresses in every step, so that replays of recorded
    /// steps read the new ones.
    #[derive(Debug, Default)]
    pub struct Numbers(Vec<Table>);

    #[derive(Debug)]
    struct Table {
        device: Device,
        compute: DType,
        owners: Vec<(String, Range<usize>)>,
        /// Of f64.
        values: Tensor,
        recorded: bool,
    }

    impl Table {
        fn write(&mut self, op: &'static str, numbers: &[f64]) -> Result<()> {
            let host = Tensor::from_slice(numbers, numbers.len())?;
            backend::transfer(op, host.as_view()?, &mut self.values.as_view_mut(op)?)
        }
    }

    impl Numbers {
        /// The table for these coefficients. They are written to it, unless the step is being recorded.
        fn table(
            &mut self,
            op: &'static str,
            (device, compute): (Device, DType),
            owners: &[(String, Range<usize>)],
            numbers: &[f64],
        ) -> Result<&Table> {
            let recording = backend::is_recording(device);
            let same = |table: &Table| (table.device, table.compute, &table.owners[..]) == (device, compute, owners);
            let known = self.0.iter().position(same);
            let at = match known {
                Some(at) => at,
                None if recording => {
                    bail!(Backend, op, "a recorded step must update the same parameters as the step before it")
                }
                None => {
                    // Other parameters than before have gradients. Steps recorded with an old table keep it.
                    self.0.retain(|table| table.recorded || (table.device, table.compute) != (device, compute));
                    let values = Tensor::zeros_with(numbers.len(), (DType::F64, device))?;
                    self.0.push(Table { device, compute, owners: owners.to_vec(), values, recorded: false });
                    self.0.len() - 1
                }
            };
            let table = &mut self.0[at];
            if recording {
                table.recorded = true;
            } else {
                table.write(op, numbers)?;
            }
            Ok(table)
        }

        /// Uploads new coefficients for recorded steps, as `of` gives them for each parameter.
        pub fn renew(&mut self, op: &'static str, mut of: impl FnMut(&str) -> RuleNumbers) -> Result<()> {
            for table in self.0.iter_mut().filter(|table| table.recorded) {
                let numbers: Vec<f64> = table.owners.iter().flat_map(|(name, _)| of(name)).collect();
                table.write(op, &numbers)?;
            }
            Ok(())
        }
    }

    impl<'a> OnGpus<'a> {
        /// Adds a parameter with its gradient and state. Parameter and state must be the only handles to their memory.
        pub fn add(
            &mut self,
            op: &'static str,
            name: &str,
            numbers: &[f64],
            parameter: &'a mut Tensor,
            gradient: &'a Tensor,
            own: Option<&'a mut ParamState>,
        ) -> Result<()> {
            let device = parameter.device();
            let mut state = Vec::new();
            let mut residual = false;
            if let Some(own) = own {
                residual = own.residual.is_some();
                for tensor in own.tensors.iter_mut().chain(&mut own.residual) {
                    state.push(tensor.as_view_mut(op)?);
                }
            }
            let start = self.numbers.len();
            self.numbers.extend_from_slice(numbers);
            let numbers = start..self.numbers.len();
            self.owners.push((name.to_string(), numbers.clone()));
            let entry = Entry { parameter: parameter.as_view_mut(op)?, gradient: gradient.as_view()?, state, numbers };
            let (parameter, gradient) = (entry.parameter.dtype, entry.gradient.dtype);
            let same = |group: &&mut Group<'_>| {
                (group.device, group.parameter, group.gradient, group.residual)
                    == (device, parameter, gradient, residual)
            };
            match self.groups.iter_mut().find(same) {
                Some(group) => group.entries.push(entry),
                None => {
                    self.groups.push(Group { device, parameter, gradient, residual, entries: vec![entry] });
                }
            }
            Ok(())
        }

        /// Runs all updates.
        pub fn run(self, op: &'static str, rule: &AnyRule, compute: DType, numbers: &mut Numbers) -> Result<()> {
            if self.groups.is_empty() {
                return Ok(());
            }
            let (code, slots) = (rule_code(rule), rule.slots);
            for Group { device, parameter, gradient, residual, entries } in self.groups {
                let Device::Cuda(ordinal) = device else { continue };
                let table = numbers.table(op, (device, compute), &self.owners, &self.numbers)?;
                let update = Update { rule: &code, slots, residual, parameter, gradient, compute };
                update.run(op, ordinal, &entries, table.values.as_view()?)?;
            }
            Ok(())
        }
    }

    /// A rule as statements in CUDA C, which change the parameter `p` and the state `s[0]`, `s[1]`, …; `g` is the gradient,
    /// and `c(0)`, `c(1)`, … are the coefficients.
    fn rule_code(rule: &AnyRule) -> String {
        static KNOWN: Mutex<Option<HashMap<TypeId, String>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().entry(rule.id).or_insert_with(|| code_of(&(rule.steps)())).clone()
    }

    /// As [`rule_code`], of a rule that is data already.
    pub fn code_of(RuleSteps { steps, results }: &RuleSteps) -> String {
        let slots = results.len().saturating_sub(1);
        let input = |k: usize| match k {
            0 => "p".to_string(),
            1 => "g".to_string(),
            k => format!("s[{}]", k - 2),
        };
        let mut text = String::new();
        let names = statements(steps, "u", &input, &|k| format!("c({k})"), &mut text);
        // Results get separate names first: a new value must not overwrite an old one that is still read.
        let new = results.iter().enumerate().map(|(k, &at)| format!("const T n{k} = {};", names[at]));
        let new: Vec<String> = new.collect();
        let set = (0..slots).map(|k| format!("s[{k}] = n{};", k + 1));
        let set: Vec<String> = std::iter::once("p = n0;".to_string()).chain(set).collect();
        format!("{text} {} {}", new.join(" "), set.join(" ")).replace('\n', " ")
    }
}

#[cfg(not(feature = "cuda"))]
pub(super) use without_cuda::{Numbers, OnGpus};

#[cfg(not(feature = "cuda"))]
mod without_cuda {
    use super::{AnyRule, DType, ParamState, Result, RuleNumbers, Tensor};

    #[derive(Debug, Default)]
    pub struct Numbers(());

    impl Numbers {
        pub fn renew(&mut self, _: &'static str, _: impl FnMut(&str) -> RuleNumbers) -> Result<()> {
            Ok(())
        }
    }

    #[derive(Default)]
    pub struct OnGpus(());

    impl OnGpus {
        pub fn add(
            &mut self,
            op: &'static str,
            _: &str,
            _: &[f64],
            parameter: &mut Tensor,
            _: &Tensor,
            _: Option<&mut ParamState>,
        ) -> Result<()> {
            crate::backend::check(op, parameter.device())
        }

        pub fn run(self, _: &'static str, _: &AnyRule, _: DType, _: &mut Numbers) -> Result<()> {
            Ok(())
        }
    }
}
