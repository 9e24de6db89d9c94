//! Linear layers of few rows, joined with what comes before and after them, as in the step of a decoder: where no derivative is
//! needed and the device has a kernel for it.
#![forbid(unsafe_code)]

use crate::autograd::autocast;
use crate::backend::View;
use crate::backend::spec::{self, Gate};
use crate::ops::nn::rope::is_forward_alone;
use crate::{Result, Shape, Tensor, backend};
use smallvec::SmallVec;

/// Linear layers of the same rows.
#[derive(Clone, Copy, Default)]
pub(crate) struct RowLayers<'a> {
    /// The weight and ε of an RMS normalization of the rows.
    pub norm: Option<(&'a Tensor, f64)>,
    /// Up to three weights `[outputs, inputs]` and biases `[outputs]`, whose results are side by side.
    pub layers: &'a [(&'a Tensor, Option<&'a Tensor>)],
    /// The activation of the first of two layers, by which the second one is multiplied.
    pub gate: Option<Gate>,
    /// Added to the result.
    pub residual: Option<&'a Tensor>,
}

impl<'a> RowLayers<'a> {
    fn tensors(&self) -> impl Iterator<Item = &'a Tensor> {
        self.layers.iter().map(|(weight, _)| *weight).chain(self.others())
    }

    /// All tensors but the weights of the layers.
    fn others(&self) -> impl Iterator<Item = &'a Tensor> {
        let biases = self.layers.iter().map(|(_, bias)| *bias);
        biases.chain([self.norm.map(|(weight, _)| weight), self.residual]).flatten()
    }

    /// Whether the shapes fit each other, so that the operations one by one would not fail.
    fn fits(&self, x: &Tensor, inputs: usize, outputs: usize) -> bool {
        let layer = |(weight, bias): &(&Tensor, Option<&Tensor>)| {
            let &[rows, columns] = weight.shape() else { return false };
            columns == inputs && bias.is_none_or(|bias| *bias.shape() == [rows])
        };
        let residual = |residual: &Tensor| {
            let lead = x.rank() - 1;
            residual.shape().get(..lead) == Some(&x.shape()[..lead]) && residual.shape()[lead..] == [outputs]
        };
        let gated =
            self.gate.is_none() || (self.layers.len() == 2 && self.layers[0].0.shape() == self.layers[1].0.shape());
        (1..=3).contains(&self.layers.len())
            && self.layers.iter().all(layer)
            && gated
            && self.norm.is_none_or(|(weight, _)| *weight.shape() == [inputs])
            && self.residual.is_none_or(residual)
    }
}

/// The layers of `x`, `[.., inputs]`, in one kernel: `[.., outputs]`, where the outputs are those of all layers side by side, or of one
/// with a gate. `None` if there is no such kernel, or the operations one by one are faster.
#[track_caller]
pub(crate) fn row_layers(x: &Tensor, call: &RowLayers<'_>) -> Result<Option<Tensor>> {
    const OP: &str = "linear";
    let Some(&inputs) = x.shape().last() else { return Ok(None) };
    let inputs_of: SmallVec<[&Tensor; 8]> = [x].into_iter().chain(call.tensors()).collect();
    if autocast::is_on() || !is_forward_alone(&inputs_of) {
        return Ok(None);
    }
    let outputs = call.layers.iter().map(|(weight, _)| weight.shape().first().copied().unwrap_or(0));
    let outputs = if call.gate.is_some() { outputs.max().unwrap_or(0) } else { outputs.sum() };
    // The rows of a weight may be apart.
    let in_order = call.others().chain([x]).all(|t| t.layout().is_contiguous());
    if !in_order || call.tensors().any(|t| t.dtype() != x.dtype()) || !call.fits(x, inputs, outputs) {
        return Ok(None);
    }
    let norm = call.norm.map(|(weight, eps)| Ok::<_, crate::Error>((weight.as_view()?, eps))).transpose()?;
    let layers = spec::RowLayers {
        x: x.as_view()?,
        norm,
        layers: call.layers.iter().map(|(weight, bias)| views(weight, *bias)).collect::<Result<_>>()?,
        gate: call.gate,
        residual: call.residual.map(Tensor::as_view).transpose()?,
    };
    if !backend::has_row_layers(&layers) {
        return Ok(None);
    }
    let lead = x.shape()[..x.rank() - 1].iter().copied();
    let shape: Shape = lead.chain([outputs]).collect();
    Tensor::build(OP, shape, x.dtype(), x.device(), |out| backend::row_layers(OP, &layers, out)).map(Some)
}

fn views<'a>(weight: &'a Tensor, bias: Option<&'a Tensor>) -> Result<(View<'a>, Option<View<'a>>)> {
    Ok((weight.as_view()?, bias.map(Tensor::as_view).transpose()?))
}
