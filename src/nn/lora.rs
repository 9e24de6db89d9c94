//! Linear layers with an optional low-rank adapter (LoRA).
#![forbid(unsafe_code)]

use super::init::{self, Fan, Gain};
use super::layers::linear;
use super::{Dropout, Forward, Module, Parameter, Part, PartMut, Ties, Visit, Visitor};
use crate::error::{bail, named};
use crate::{DType, Result, Tensor};

/// A linear layer with an optional low-rank adapter (LoRA, Hu et al. 2021). The weight `W` is frozen, two small matrices `A` and
/// `B` are trained, and the output is `x Wᵀ + b + scale · dropout(x) Aᵀ Bᵀ`.
///
/// Without an adapter it is a [`Linear`](super::Linear) layer. The adapter's parameters are called `lora_A.weight`, of shape
/// `[rank, inputs]`, and `lora_B.weight`, of shape `[outputs, rank]`, as in PEFT. `A` is initialised as the weight of a linear
/// layer and `B` to zeros, so that a new adapter does not change the output.
///
/// ```
/// use cotangent::nn::{Forward, Linear, LoraLinear, Module};
/// use cotangent::Tensor;
/// let mut layer = LoraLinear::from_linear(Linear::new(8, 6)?);
/// let x = Tensor::ones([5, 8])?;
/// let before = layer.forward(&x)?;
/// layer.attach(2, 4.0, 0.0)?;
/// assert!(layer.forward(&x)?.equal(&before)?);
/// layer.forward(&x)?.sum(..)?.backward()?;
/// let trained: Vec<String> =
///     layer.named_parameters().into_iter().filter(|(_, p)| p.grad().is_some()).map(|(name, _)| name).collect();
/// assert_eq!(trained, ["lora_A.weight", "lora_B.weight"]);
/// layer.merge()?;
/// assert!(!layer.is_adapted());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct LoraLinear {
    /// Of shape `[outputs, inputs]`, or `[inputs, outputs]` in the layers of GPT-2.
    pub weight: Parameter,
    /// Of shape `[outputs]`.
    pub bias: Option<Parameter>,
    /// Whether the weight is `[inputs, outputs]`.
    transposed: bool,
    adapter: Option<Adapter>,
}

#[derive(Debug)]
struct Adapter {
    a: Parameter,
    b: Parameter,
    scale: f64,
    dropout: Dropout,
}

const ATTACH: &str = "LoraLinear::attach";
const MERGE: &str = "LoraLinear::merge";

impl LoraLinear {
    /// A layer with the parameters of `layer` and no adapter.
    pub fn from_linear(layer: super::Linear) -> LoraLinear {
        LoraLinear { weight: layer.weight, bias: layer.bias, transposed: false, adapter: None }
    }

    /// A layer whose weight is `[inputs, outputs]`, as that of GPT-2's layers is.
    pub(crate) fn transposed(weight: Parameter, bias: Parameter) -> LoraLinear {
        LoraLinear { weight, bias: Some(bias), transposed: true, adapter: None }
    }

    /// The name of the layer's type. A transposed one has that of the layers of GPT-2.
    fn kind(&self) -> &'static str {
        match (&self.adapter, self.transposed) {
            (Some(_), false) => "LoraLinear",
            (None, false) => "Linear",
            (Some(_), true) => "LoraConv1D",
            (None, true) => "Conv1D",
        }
    }

    /// The numbers of inputs and outputs.
    pub(crate) fn features(&self) -> (usize, usize) {
        match (&self.weight.logical_shape()[..], self.transposed && self.weight.quantized().is_none()) {
            (&[outputs, inputs], false) | (&[inputs, outputs], true) => (inputs, outputs),
            _ => (0, 0),
        }
    }

    /// Freezes weight and bias, and attaches an adapter, which adds `alpha / rank · dropout(x) Aᵀ Bᵀ` to the output. It has the
    /// dtype and the device of the weight; with a quantized weight it is `f32`.
    ///
    /// # Errors
    /// If there is already an adapter, `rank` is 0, `alpha` is not finite, or `dropout` is not in [0, 1]; nothing is changed
    /// then.
    #[track_caller]
    pub fn attach(&mut self, rank: usize, alpha: f64, dropout: f64) -> Result<()> {
        named(ATTACH, self.attach_new(rank, alpha, dropout))
    }

    fn attach_new(&mut self, rank: usize, alpha: f64, dropout: f64) -> Result<()> {
        if self.adapter.is_some() {
            bail!(Value, ATTACH, "the layer already has an adapter: call merge() first");
        }
        if rank == 0 || !alpha.is_finite() {
            bail!(Value, ATTACH, "rank must be ≥ 1 and alpha finite, got rank {rank} and alpha {alpha}");
        }
        let (inputs, outputs) = self.features();
        let dtype = if self.weight.dtype().is_float() { self.weight.dtype() } else { DType::F32 };
        let like = (dtype, self.weight.device());
        let a = init::kaiming_uniform([rank, inputs], Gain::LeakyRelu(5.0_f64.sqrt()), Fan::In)?;
        let a = Parameter::new(a.to_dtype(like.0)?.to_device(like.1)?)?;
        let b = Parameter::new(Tensor::zeros_with([outputs, rank], like)?)?;
        let adapter = Adapter { a, b, scale: alpha / rank as f64, dropout: Dropout::new(dropout)? };
        self.weight.set_requires_grad(false)?;
        if let Some(bias) = &mut self.bias {
            bias.set_requires_grad(false)?;
        }
        self.adapter = Some(adapter);
        Ok(())
    }

    /// Whether there is an adapter.
    pub fn is_adapted(&self) -> bool {
        self.adapter.is_some()
    }

    /// The matrices `A` and `B`, if there is an adapter.
    pub fn adapter(&self) -> Option<(&Parameter, &Parameter)> {
        self.adapter.as_ref().map(|adapter| (&adapter.a, &adapter.b))
    }

    pub(crate) fn adapter_mut(&mut self) -> Option<(&mut Parameter, &mut Parameter)> {
        self.adapter.as_mut().map(|adapter| (&mut adapter.a, &mut adapter.b))
    }

    /// Adds the adapter's product to the weight and removes the adapter: the outputs stay, at the cost of a linear layer. Weight
    /// and bias require gradients again. Does nothing without an adapter.
    ///
    /// # Errors
    /// If the weight is quantized, or memory runs out; nothing is changed then.
    #[track_caller]
    pub fn merge(&mut self) -> Result<()> {
        named(MERGE, self.merge_adapter())
    }

    /// Fails if there is an adapter on top of a quantised weight.
    pub(crate) fn check_mergeable(&self) -> Result<()> {
        match self.weight.quantized() {
            Some(weight) if self.is_adapted() => {
                bail!(Value, MERGE, "the weight must not be quantized, got {}: dequantize it first", weight.format())
            }
            _ => Ok(()),
        }
    }

    fn merge_adapter(&mut self) -> Result<()> {
        let Some(Adapter { a, b, scale, .. }) = &self.adapter else { return Ok(()) };
        self.check_mergeable()?;
        let delta = b.detach().matmul(&a.detach())?.mul(*scale)?;
        let delta = if self.transposed { delta.t()? } else { delta };
        let merged = self.weight.detach().add(&delta)?.to_dtype(self.weight.dtype())?;
        self.weight.set(&merged)?;
        self.adapter = None;
        self.weight.set_requires_grad(true)?;
        match &mut self.bias {
            Some(bias) => bias.set_requires_grad(true),
            None => Ok(()),
        }
    }
}

impl Forward for LoraLinear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_deref();
        // A quantised weight has one row for each output.
        let is_transposed = self.transposed && self.weight.quantized().is_none();
        let plain = if is_transposed { x.linear(&self.weight.t()?, bias)? } else { linear(x, &self.weight, bias)? };
        match &self.adapter {
            None => Ok(plain),
            Some(Adapter { a, b, scale, dropout }) => {
                let low = dropout.forward(x)?.linear(a, None)?.linear(b, None)?;
                plain.add(&low.mul(*scale)?)
            }
        }
    }
}

impl Visit for LoraLinear {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter(self.kind());
        visitor.weight("weight", &self.weight, self.transposed);
        visitor.module("bias", &self.bias);
        if let Some(adapter) = &self.adapter {
            visitor.child("lora_A", |visitor| visitor.module("weight", &adapter.a));
            visitor.child("lora_B", |visitor| visitor.module("weight", &adapter.b));
            visitor.module("lora_dropout", &adapter.dropout);
        }
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter(self.kind());
        visitor.module("weight", &mut self.weight);
        visitor.module("bias", &mut self.bias);
        if let Some(Adapter { a, b, dropout, .. }) = &mut self.adapter {
            visitor.child("lora_A", |visitor| visitor.module("weight", a));
            visitor.child("lora_B", |visitor| visitor.module("weight", b));
            visitor.module("lora_dropout", dropout);
        }
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<LoraLinear> {
        let adapter = match &self.adapter {
            None => None,
            Some(Adapter { a, b, scale, dropout }) => Some(Adapter {
                a: a.deep_clone_in(ties)?,
                b: b.deep_clone_in(ties)?,
                scale: *scale,
                dropout: dropout.deep_clone_in(ties)?,
            }),
        };
        let (weight, bias) = (self.weight.deep_clone_in(ties)?, self.bias.deep_clone_in(ties)?);
        Ok(LoraLinear { weight, bias, transposed: self.transposed, adapter })
    }
}

impl Module for LoraLinear {}
