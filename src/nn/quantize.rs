//! Quantising the weights of a model.
#![forbid(unsafe_code)]

use super::tied::check_whole;
use super::{Module, Parameter, Part, PartMut, Visitor};
use crate::Result;
use crate::error::{bail, named};
use crate::quantized::{QuantFormat, QuantizedTensor};
use std::collections::HashMap;

/// Quantises the weights of linear layers and embeddings. `choose` gets the name of a layer and its weight, and returns the
/// format, or `None` to leave the layer as it is. Returns the number of weights that were quantised.
///
/// Quantised weights are frozen. [`LoraLinear`](super::LoraLinear) layers can be given an adapter, which is trained on top of
/// them (QLoRA). The layers are [`Linear`](super::Linear), `LoraLinear` and [`Embedding`](super::Embedding), wherever they
/// are in the model, and others whose field is marked with `#[module(quantizable)]`. Weights that are already quantised stay.
///
/// A layer of your own marks a weight of shape `[outputs, inputs]` if it computes with
/// [`Parameter::quantized`](super::Parameter::quantized) where there is one; `choose` gets its name, without `.weight`.
///
/// ```
/// use cotangent::nn::{self, Forward, Linear, Module, QuantFormat, ReLU, Sequential};
/// use cotangent::Tensor;
/// let mut model = Sequential::new().add(Linear::new(64, 32)?).add(ReLU).add(Linear::new(32, 2)?);
/// // All but the last layer.
/// let count = nn::quantize(&mut model, |name, _| (name != "2").then_some(QuantFormat::Q8_0))?;
/// assert_eq!(count, 1);
/// assert_eq!(model.forward(&Tensor::ones([5, 64])?)?.shape(), [5, 2]);
/// assert_eq!(model.state_dict().names().next(), Some("0.weight.Q8_0"));
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If the rows of a weight are not a multiple of the format's blocks, a value is not finite, a weight is not on the CPU or is
/// shared with a layer outside of the model or with one that does not compute with quantised weights, or memory runs out;
/// nothing is changed then.
#[track_caller]
pub fn quantize<M: Module + ?Sized>(
    model: &mut M,
    choose: impl Fn(&str, &Parameter) -> Option<QuantFormat>,
) -> Result<usize> {
    let new = |name: &str, weight: &Parameter, is_transposed: bool| {
        let format = if weight.quantized().is_some() { None } else { choose(name, weight) };
        let Some(format) = format else { return Ok(None) };
        let values = if is_transposed { weight.t()? } else { weight.detach() };
        QuantizedTensor::quantize(&values, format).map(|weight| Some(Parameter::from_quantized(weight)))
    };
    named("quantize", replace("quantize", model, new))
}

/// Replaces all quantised weights by dense ones of `f32`, which are frozen. Returns their number.
///
/// ```
/// use cotangent::nn::{self, Linear, Module, QuantFormat};
/// let mut model = Linear::new(64, 32)?;
/// nn::quantize(&mut model, |_, _| Some(QuantFormat::Nf4))?;
/// assert_eq!(nn::dequantize(&mut model)?, 1);
/// assert_eq!(model.weight.shape(), [32, 64]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// If a weight is not on the CPU or is shared with a layer outside of the model, or memory runs out; nothing is changed then.
#[track_caller]
pub fn dequantize<M: Module + ?Sized>(model: &mut M) -> Result<usize> {
    let new = |_: &str, weight: &Parameter, is_transposed: bool| {
        let Some(weight) = weight.quantized() else { return Ok(None) };
        let values = weight.dequantize()?;
        let mut weight = Parameter::new(if is_transposed { values.t()?.contiguous()? } else { values })?;
        weight.mark(false)?;
        Ok(Some(weight))
    };
    named("dequantize", replace("dequantize", model, new))
}

/// Where a model has a parameter.
struct Place<'a> {
    name: String,
    parameter: &'a Parameter,
    /// Whether a dense weight is `[inputs, outputs]`, if the layer computes with quantised weights.
    transposed: Option<bool>,
}

/// Replaces the weights for which `new` returns a parameter. It gets the name of the layer, its weight, and whether a dense
/// weight of the layer is `[inputs, outputs]`. All new ones are computed before the first is stored.
fn replace<M: Module + ?Sized>(
    op: &'static str,
    model: &mut M,
    new: impl Fn(&str, &Parameter, bool) -> Result<Option<Parameter>>,
) -> Result<usize> {
    check_whole(op, model)?;
    let mut made = HashMap::<usize, Option<Parameter>>::new();
    let places = places(model);
    for Place { name, parameter, transposed } in &places {
        let (Some(is_transposed), false) = (*transposed, made.contains_key(&parameter.id())) else { continue };
        let layer = match name.strip_suffix("weight") {
            Some("") => "",
            Some(path) => path.strip_suffix('.').unwrap_or(name),
            None => name,
        };
        let replacement = new(layer, parameter, is_transposed);
        let replacement =
            replacement.map_err(|error| error.context(if layer.is_empty() { "weight" } else { layer }))?;
        made.insert(parameter.id(), replacement);
    }
    for Place { name, parameter, transposed } in &places {
        let Some(Some(_)) = made.get(&parameter.id()) else { continue };
        let Some(first) =
            places.iter().find(|place| place.transposed.is_some() && place.parameter.is_tied_to(parameter))
        else {
            continue;
        };
        if *transposed != first.transposed {
            bail!(
                Value,
                op,
                "{} is tied to {name}, which does not compute with the same quantized weight: untie them first",
                first.name
            );
        }
    }
    model.visit_mut(&mut Visitor::new(&mut |_, part| {
        if let PartMut::Param(parameter) = part
            && let Some(Some(new)) = made.get(&parameter.id())
        {
            // Graphs made with the old one would lose their gradients: backward through them is now an error.
            parameter.retire();
            *parameter = new.tie();
        }
    }));
    Ok(made.values().flatten().count())
}

/// All parameters, by the names of their dense forms.
fn places<M: Module + ?Sized>(model: &M) -> Vec<Place<'_>> {
    let (mut places, mut marked) = (Vec::new(), None);
    model.visit(&mut Visitor::new(&mut |name, part| match part {
        Part::Quantizable { transposed } => marked = Some((name.to_string(), transposed)),
        Part::Param(parameter) => {
            let format = parameter.quantized().map(|weight| format!(".{}", weight.format()));
            let name = name.strip_suffix(format.as_deref().unwrap_or("")).unwrap_or(name);
            let transposed = marked.take().and_then(|(at, transposed)| (at == name).then_some(transposed));
            places.push(Place { name: name.to_string(), parameter, transposed });
        }
        _ => {}
    }));
    places
}
