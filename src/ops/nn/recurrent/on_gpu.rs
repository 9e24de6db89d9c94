//! The LSTM on a GPU. A step is one matrix product and one kernel; all other products are computed once for all steps.

use super::direction::{Cell, Direction, State};
use crate::autograd::{BackwardContext, Grads};
use crate::backend::cuda::nn::lstm;
use crate::layout::Dims;
use crate::{Device, Result, Tensor};

const OP: &str = "lstm";

/// The values computed by the steps, by step index.
pub(super) struct Steps {
    ordinal: usize,
    outputs: Tensor,
    kept: Kept,
}

/// Gates and cell states.
enum Kept {
    /// One tensor per step, if the steps are launched separately.
    Apart(Vec<Tensor>, Vec<Tensor>),
    /// One tensor for all steps, if one kernel loops over them.
    Together(Tensor, Tensor),
}

impl Direction {
    /// The GPU, if its kernels support this: an LSTM over sequences of one length, without a projection.
    fn gpu(&self) -> Option<usize> {
        let Device::Cuda(ordinal) = self.inputs.device() else { return None };
        let dtype = self.inputs.dtype();
        let plain = self.cell == Cell::Lstm && self.mask.is_none() && self.projection.is_none();
        let alike = self.operands().iter().all(|x| x.dtype() == dtype && !x.is_batched());
        (plain && alike && dtype.is_float() && self.first.hidden.numel() > 0 && self.inputs.numel() > 0)
            .then_some(ordinal)
    }

    /// The hidden states of all steps, the final state, and the values for the backward pass; `None` if the kernels do
    /// not support the operands. Not recorded in the graph.
    pub(super) fn run_on_gpu(&self, keep: bool) -> Result<Option<(Tensor, State, Steps)>> {
        let (Some(ordinal), Some(first)) = (self.gpu(), &self.first.cell) else { return Ok(None) };
        if lstm::is_small(self.inputs.shape()[1], self.inputs.shape()[2] / 4) {
            return self.small_on_gpu(ordinal, first).map(Some);
        }
        let (shape, device, dtype) = (self.inputs.shape(), self.inputs.device(), self.inputs.dtype());
        let (count, batch, size) = (shape[0], shape[1], shape[2] / 4);
        let new = |columns: usize| Tensor::empty(OP, [batch, columns].into(), dtype, device);
        let inputs = self.inputs.contiguous()?;
        let (mut hidden, mut memory) = (self.first.hidden.contiguous()?, first.contiguous()?);
        let (mut gates, mut memories) = (vec![None; count], vec![None; count]);
        let outputs = Tensor::build(OP, [count, batch, size].into(), dtype, device, |out| {
            for at in self.order() {
                let product = hidden.linear(&self.weight, self.bias.as_ref())?;
                let (from, to) = (inputs.layout().select(OP, 0, at as isize)?, out.layout.select(OP, 0, at as isize)?);
                let (mut own, mut next, mut shown) = (new(4 * size)?, new(size)?, new(size)?);
                let read = [inputs.as_view_with(&from)?, product.as_view()?, memory.as_view()?];
                let written = [
                    &mut own.as_view_mut(OP)?,
                    &mut next.as_view_mut(OP)?,
                    &mut shown.as_view_mut(OP)?,
                    &mut out.part(&to),
                ];
                lstm::step(OP, ordinal, read, written)?;
                (hidden, memory) = (shown, next.clone());
                if keep {
                    (gates[at], memories[at]) = (Some(own), Some(next));
                }
            }
            Ok(())
        })?;
        let (gates, memories) = (gates.into_iter().flatten().collect(), memories.into_iter().flatten().collect());
        let steps = Steps { ordinal, outputs: outputs.clone(), kept: Kept::Apart(gates, memories) };
        Ok(Some((outputs, State { hidden, cell: Some(memory) }, steps)))
    }

    /// The same for small states: the kernel also computes the products.
    fn small_on_gpu(&self, ordinal: usize, first: &Tensor) -> Result<(Tensor, State, Steps)> {
        let (shape, device, dtype) = (self.inputs.shape(), self.inputs.device(), self.inputs.dtype());
        let (count, batch, size) = (shape[0], shape[1], shape[2] / 4);
        let new = |columns: usize| Tensor::empty(OP, [count, batch, columns].into(), dtype, device);
        let operands = [&self.inputs, &self.weight, &self.first.hidden, first].map(Tensor::contiguous);
        let [inputs, weight, hidden, memory] = operands;
        let (inputs, weight, hidden, memory) = (inputs?, weight?, hidden?, memory?);
        let bias = self.bias.as_ref().map(Tensor::contiguous).transpose()?;
        let (mut gates, mut memories, mut outputs) = (new(4 * size)?, new(size)?, new(size)?);
        let order = self.order();
        lstm::forward(
            OP,
            ordinal,
            &order,
            [inputs.as_view()?, weight.as_view()?, hidden.as_view()?, memory.as_view()?],
            bias.as_ref().map(Tensor::as_view).transpose()?,
            [&mut gates.as_view_mut(OP)?, &mut memories.as_view_mut(OP)?, &mut outputs.as_view_mut(OP)?],
        )?;
        let last = order.last().copied().unwrap_or(0);
        // Copies: a view would keep the storage of all steps alive.
        let at_end = |all: &Tensor| all.select(0, last)?.deep_clone();
        let state = State { hidden: at_end(&outputs)?, cell: Some(at_end(&memories)?) };
        let steps = Steps { ordinal, outputs: outputs.clone(), kept: Kept::Together(gates, memories) };
        Ok((outputs, state, steps))
    }

    /// [`pull`](Self::pull) for steps on a GPU. Not recorded in the graph.
    pub(super) fn pull_on_gpu(&self, ctx: &BackwardContext, steps: &Steps, g: &[Option<Tensor>]) -> Result<Grads> {
        let (shape, device, dtype) = (self.inputs.layout().shape().clone(), self.inputs.device(), self.inputs.dtype());
        let (count, batch) = (shape[0], shape[1]);
        let given = |at: usize| g.get(at).cloned().flatten().map(|g| g.to_dtype(dtype)?.contiguous()).transpose();
        let (from_outputs, first) = (given(0)?, self.first.cell.as_ref().map(Tensor::contiguous).transpose()?);
        let Some(first) = first else { return Ok(Grads::new()) };
        let mut hidden = given(1)?.map_or_else(|| Tensor::zeros_like(&self.first.hidden), Ok)?;
        let kept = given(2)?.map_or_else(|| Tensor::zeros_like(&first), Ok)?;
        // A copy, because each step updates it in place.
        let mut kept = kept.to_dtype(dtype.compute_dtype())?.deep_clone()?;
        let order = self.order();
        let sums = Tensor::build(OP, shape.clone(), dtype, device, |out| {
            let (gates, memories) = match &steps.kept {
                Kept::Apart(gates, memories) => (gates, memories),
                Kept::Together(gates, memories) => {
                    let weight = self.weight.t()?.contiguous()?;
                    let read =
                        [gates.as_view()?, memories.as_view()?, first.as_view()?, weight.as_view()?, hidden.as_view()?];
                    let from_outputs = from_outputs.as_ref().map(Tensor::as_view).transpose()?;
                    let kept = &mut kept.as_view_mut(OP)?;
                    return lstm::backward(OP, steps.ordinal, &order, read, from_outputs, kept, out);
                }
            };
            for (number, &at) in order.iter().enumerate().rev() {
                let last = if number == 0 { &first } else { &memories[order[number - 1]] };
                let to = out.layout.select(OP, 0, at as isize)?;
                let mut product = Tensor::empty(OP, [batch, shape[2]].into(), dtype, device)?;
                let from = from_outputs.as_ref().map(|all| all.layout().select(OP, 0, at as isize)).transpose()?;
                let from_output = match (&from_outputs, &from) {
                    (Some(all), Some(from)) => Some(all.as_view_with(from)?),
                    _ => None,
                };
                let read = [gates[at].as_view()?, memories[at].as_view()?, last.as_view()?, hidden.as_view()?];
                let written = [&mut product.as_view_mut(OP)?, &mut out.part(&to)];
                lstm::step_back(OP, steps.ordinal, read, from_output, &mut kept.as_view_mut(OP)?, written)?;
                hidden = product.matmul(&self.weight)?;
            }
            Ok(())
        })?;
        if let Kept::Together(..) = steps.kept {
            // The cotangent of the initial hidden state.
            hidden = sums.select(0, order[0])?.matmul(&self.weight)?;
        }
        let weight = || {
            // The hidden states before each step: the initial one, then those of all steps but the last.
            let begin = self.first.hidden.unsqueeze(0)?;
            let before = if self.reverse {
                Tensor::cat(&[&steps.outputs.narrow(0, 1, count - 1)?, &begin], 0)?
            } else {
                Tensor::cat(&[&begin, &steps.outputs.narrow(0, 0, count - 1)?], 0)?
            };
            sums.flatten(0, 1)?.t()?.matmul(&before.flatten(0, 1)?)
        };
        let mut grads: Grads =
            [Some(sums.clone()), Some(hidden), ctx.want(2, weight)?, Some(kept)].into_iter().collect();
        if self.bias.is_some() {
            grads.push(Some(sums.sum(Dims::from(&[0, 1][..]))?));
        }
        Ok(grads)
    }
}
