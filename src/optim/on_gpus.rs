//! Updates of parameters on GPUs: collected first, then made in few launches.

use super::store::Kept;
use crate::backend::cpu::nn::optim::Rule;
use crate::{DType, Result, Tensor};

#[cfg(feature = "cuda")]
pub(super) use with_cuda::{Numbers, OnGpus};

#[cfg(feature = "cuda")]
mod with_cuda {
    use super::{DType, Kept, Result, Rule, Tensor};
    use crate::backend::cuda::nn::optim::{Entry, Update};
    use crate::error::bail;
    use crate::{Device, backend};
    use std::ops::Range;

    /// The updates of one optimiser step. Those that one launch can make together stand together.
    #[derive(Default)]
    pub struct OnGpus<'a> {
        groups: Vec<Group<'a>>,
        /// The numbers of all rules, and whose they are.
        numbers: Vec<f64>,
        owners: Vec<(String, Range<usize>)>,
    }

    struct Group<'a> {
        device: Device,
        rule: &'static str,
        parameter: DType,
        gradient: DType,
        rest: bool,
        entries: Vec<Entry<'a>>,
    }

    /// Where the numbers of an optimiser's rules lie on GPUs, from step to step the same place: so that recorded steps find
    /// new ones there.
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
        /// The table for these numbers, with them in it, unless they are only recorded.
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
                None if recording => bail!(Backend, op, "a recorded step updates other parameters than the one before"),
                None => {
                    // Other parameters than before had gradients: what was recorded with the old table keeps it.
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

        /// Hands the numbers of recorded steps over anew, as `of` gives them for each parameter.
        pub fn renew(&mut self, op: &'static str, mut of: impl FnMut(&str, DType) -> Vec<f64>) -> Result<()> {
            for table in self.0.iter_mut().filter(|table| table.recorded) {
                let numbers: Vec<f64> = table.owners.iter().flat_map(|(name, _)| of(name, table.compute)).collect();
                table.write(op, &numbers)?;
            }
            Ok(())
        }
    }

    impl<'a> OnGpus<'a> {
        /// A parameter with its gradient and its state, all of which are the only handles to their bytes but the gradient.
        pub fn add<T, R: Rule<T, N>, const N: usize>(
            &mut self,
            op: &'static str,
            name: &str,
            rule: &R,
            parameter: &'a mut Tensor,
            gradient: &'a Tensor,
            kept: Option<&'a mut Kept>,
        ) -> Result<()> {
            let device = parameter.device();
            let mut state = Vec::with_capacity(N + 1);
            let mut rest = false;
            if let Some(kept) = kept {
                rest = kept.rest.is_some();
                for tensor in kept.tensors.iter_mut().chain(&mut kept.rest) {
                    state.push(tensor.as_view_mut(op)?);
                }
            }
            let start = self.numbers.len();
            self.numbers.extend(rule.numbers());
            let numbers = start..self.numbers.len();
            self.owners.push((name.to_string(), numbers.clone()));
            let entry = Entry { parameter: parameter.as_view_mut(op)?, gradient: gradient.as_view()?, state, numbers };
            let (parameter, gradient) = (entry.parameter.dtype, entry.gradient.dtype);
            let same = |group: &&mut Group<'_>| {
                (group.device, group.rule, group.parameter, group.gradient, group.rest)
                    == (device, R::CODE, parameter, gradient, rest)
            };
            match self.groups.iter_mut().find(same) {
                Some(group) => group.entries.push(entry),
                None => {
                    self.groups.push(Group { device, rule: R::CODE, parameter, gradient, rest, entries: vec![entry] });
                }
            }
            Ok(())
        }

        /// Makes all updates.
        pub fn run(self, op: &'static str, slots: usize, compute: DType, numbers: &mut Numbers) -> Result<()> {
            for Group { device, rule, parameter, gradient, rest, entries } in self.groups {
                let Device::Cuda(ordinal) = device else { continue };
                let table = numbers.table(op, (device, compute), &self.owners, &self.numbers)?;
                let update = Update { rule, slots, rest, parameter, gradient, compute };
                update.run(op, ordinal, &entries, table.values.as_view()?)?;
            }
            Ok(())
        }
    }
}

#[cfg(not(feature = "cuda"))]
pub(super) use without_cuda::{Numbers, OnGpus};

#[cfg(not(feature = "cuda"))]
mod without_cuda {
    use super::{DType, Kept, Result, Rule, Tensor};

    #[derive(Debug, Default)]
    pub struct Numbers(());

    #[derive(Default)]
    pub struct OnGpus(());

    impl OnGpus {
        pub fn add<T, R: Rule<T, N>, const N: usize>(
            &mut self,
            op: &'static str,
            _: &str,
            _: &R,
            parameter: &mut Tensor,
            _: &Tensor,
            _: Option<&mut Kept>,
        ) -> Result<()> {
            crate::backend::check(op, parameter.device())
        }

        pub fn run(self, _: &'static str, _: usize, _: DType, _: &mut Numbers) -> Result<()> {
            Ok(())
        }
    }
}
