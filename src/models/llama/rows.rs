//! The layers of a block that one kernel computes together where there are few rows, as in the step of a token.
#![forbid(unsafe_code)]

use super::{Attention, Llama, Mlp, Norm};
use crate::backend::spec::Gate;
use crate::nn::{Forward, LoraLinear};
use crate::ops::nn::row_layers::{RowLayers, row_layers};
use crate::options::Gelu;
use crate::{Result, Tensor};

impl Norm {
    /// What a kernel of joined layers gets: the input with the norm's weight and ε or, if its scale is not the weight, `norm(x)`.
    fn before(&self, x: &Tensor) -> Result<(Tensor, Option<(&Tensor, f64)>)> {
        if self.is_offset { Ok((self.forward(x)?, None)) } else { Ok((x.clone(), Some((&*self.weight, self.eps)))) }
    }

    /// `norm(x)`, of an input as [`before`](Self::before) returns it.
    fn after(&self, x: Tensor) -> Result<Tensor> {
        if self.is_offset { Ok(x) } else { self.forward(&x) }
    }
}

impl Llama {
    /// The projections of `norm(x)` to queries, keys and values.
    #[track_caller]
    pub(super) fn projections(&self, x: &Tensor, norm: &Norm, attention: &Attention) -> Result<[Tensor; 3]> {
        let Attention { q_proj, k_proj, v_proj, .. } = attention;
        let (x, first) = norm.before(x)?;
        if let Some(layers) = plain([q_proj, k_proj, v_proj]) {
            let call = RowLayers { norm: first, layers: &layers, ..RowLayers::default() };
            if let Some(joined) = row_layers(&x, &call)? {
                let [q, k, v] = layers.map(|(weight, _)| weight.shape()[0]);
                return Ok([joined.narrow(-1, 0, q)?, joined.narrow(-1, q, k)?, joined.narrow(-1, q + k, v)?]);
            }
        }
        let x = norm.after(x)?;
        Ok([q_proj.forward(&x)?, k_proj.forward(&x)?, v_proj.forward(&x)?])
    }

    /// `residual + layer(x)`.
    #[track_caller]
    pub(super) fn add_projection(&self, residual: &Tensor, layer: &LoraLinear, x: &Tensor) -> Result<Tensor> {
        if let Some(layers) = plain([layer]) {
            let call = RowLayers { layers: &layers, residual: Some(residual), ..RowLayers::default() };
            if let Some(sum) = row_layers(x, &call)? {
                return Ok(sum);
            }
        }
        residual.add(&layer.forward(x)?)
    }

    /// The hidden units of the feed-forward network of `norm(x)`: `activation(gate) · up`.
    #[track_caller]
    pub(super) fn gated(&self, x: &Tensor, norm: &Norm, mlp: &Mlp) -> Result<Tensor> {
        let is_gemma = self.config.model_type.is_gemma();
        let (x, first) = norm.before(x)?;
        if let Some(layers) = plain([&mlp.gate_proj, &mlp.up_proj]) {
            let gate = if is_gemma { Gate::GeluTanh } else { Gate::Silu };
            let call = RowLayers { norm: first, layers: &layers, gate: Some(gate), residual: None };
            if let Some(hidden) = row_layers(&x, &call)? {
                return Ok(hidden);
            }
        }
        let x = norm.after(x)?;
        let gate = mlp.gate_proj.forward(&x)?;
        let gate = if is_gemma { gate.gelu_with(Gelu::Tanh)? } else { gate.silu()? };
        gate.mul(&mlp.up_proj.forward(&x)?)
    }
}

/// The weights and biases of layers, if none has an adapter or a quantised weight.
fn plain<const N: usize>(layers: [&LoraLinear; N]) -> Option<[(&Tensor, Option<&Tensor>); N]> {
    let is_plain = |layer: &&LoraLinear| !layer.is_adapted() && layer.weight.quantized().is_none();
    layers.iter().all(is_plain).then(|| layers.map(|layer| (&*layer.weight, layer.bias.as_deref())))
}
