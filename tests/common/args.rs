//! Arguments of operations from the fixtures' JSON, by the kinds of their parameters.

use super::json::{dtype, float, integer, list, signed, tensor, text};
use cotangent::ops::{Arg, ArgKind};
use cotangent::{
    Device, Result, Scalar, Tensor,
    arguments::{Index, IndexItem, Slice},
};
use serde_json::Value;

/// An argument; `leaf` makes a tensor of the call from each tensor of the file.
pub fn arg(kind: ArgKind, value: &Value, leaf: &mut dyn FnMut(Tensor) -> Result<Tensor>) -> Result<Arg> {
    Ok(match (kind, value) {
        (_, Value::Null) => Arg::None,
        (_, Value::Object(fields)) if fields.contains_key("shape") => Arg::Tensor(leaf(tensor(value)?)?),
        (_, Value::Object(fields)) if fields.contains_key("slice") => Arg::Slice(slice(value)),
        (_, Value::Object(fields)) if fields.contains_key("index") => {
            let items = list(&fields["index"]).iter().map(index_item).collect::<Result<_>>()?;
            Arg::Index(Index::new(items))
        }
        (ArgKind::Tensors, _) => Arg::Tensors(list(value).iter().map(|x| leaf(tensor(x)?)).collect::<Result<_>>()?),
        (ArgKind::DType, _) => Arg::DType(dtype(text(value))),
        (ArgKind::Device, _) => Arg::Device(Device::Cpu),
        (ArgKind::Choice(_) | ArgKind::Text, _) => Arg::Text(text(value).to_owned()),
        // A word instead of sizes, such as `same` for a padding.
        (ArgKind::Sizes, Value::String(_)) => Arg::Text(text(value).to_owned()),
        (_, Value::Array(all)) if all.first().is_some_and(Value::is_object) => {
            Arg::Tensors(all.iter().map(|x| leaf(tensor(x)?)).collect::<Result<_>>()?)
        }
        (ArgKind::Floats, Value::Array(all)) => Arg::from(all.iter().map(float).collect::<Vec<f64>>()),
        (_, Value::Array(_)) => Arg::Ints(signed(value)),
        (_, Value::Bool(x)) => Arg::Scalar(Scalar::Bool(*x)),
        (_, Value::Number(x)) if !x.is_f64() => Arg::from(integer(value) as i64),
        _ => Arg::from(float(value)),
    })
}

fn slice(value: &Value) -> Slice {
    let [start, end, step] = list(&value["slice"]) else { return Slice::from(..) };
    let bound = |value: &Value| value.as_i64().map(|at| at as isize);
    Slice::new(bound(start), bound(end)).step(bound(step).unwrap_or(1))
}

fn index_item(value: &Value) -> Result<IndexItem> {
    Ok(match value {
        Value::Null => IndexItem::NewDim,
        Value::String(_) => IndexItem::Ellipsis,
        Value::Number(_) => IndexItem::At(integer(value) as isize),
        Value::Object(fields) if fields.contains_key("slice") => IndexItem::Slice(slice(value)),
        _ => IndexItem::Tensor(tensor(value)?),
    })
}
