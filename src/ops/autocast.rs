//! Operations inside of an [`autocast`](crate::autocast()): they cast by the policy of their entry in the list.

use super::{Arg, AutocastPolicy, Op};
use crate::autograd::autocast;
use crate::error::bail;
use crate::{DType, Device, Result, Tensor};

/// Calls an operation with its floats cast; `None` if there is nothing to cast.
pub(crate) fn intercept(op: &Op, args: &[Arg]) -> Option<Result<Vec<Tensor>>> {
    let settings = autocast::settings()?;
    let tensors: Vec<&Tensor> = args.iter().flat_map(Arg::tensors).collect();
    let on_gpu = settings.gpu_policies.unwrap_or_else(|| tensors.iter().any(|x| x.device() != Device::Cpu));
    let target = match if on_gpu { op.autocast_cuda } else { op.autocast_cpu }? {
        AutocastPolicy::Lower => settings.dtype,
        AutocastPolicy::F32 if asks_for_dtype(op, args) => return None,
        AutocastPolicy::F32 => DType::F32,
        AutocastPolicy::Widest => widest(&tensors)?,
        AutocastPolicy::Own => return None,
        AutocastPolicy::Refused => return Some(refused(op)),
    };
    if !tensors.iter().any(|x| is_cast(x, target)) {
        return None;
    }
    Some(call(op, args, target, settings))
}

fn call(op: &Op, args: &[Arg], target: DType, settings: autocast::Settings) -> Result<Vec<Tensor>> {
    let mut cast = Vec::with_capacity(args.len());
    for arg in args {
        cast.push(arg.map_tensors(|x| {
            if is_cast(x, target) { autocast::cast_of(x, target, settings) } else { Ok(x.clone()) }
        })?);
    }
    // The operations that its body calls are part of it, and are not cast.
    let _off = autocast::off();
    op.call(&cast)
}

/// Whether a tensor is cast: all floats except `f64` are.
fn is_cast(x: &Tensor, target: DType) -> bool {
    matches!(x.dtype(), DType::F16 | DType::BF16 | DType::F32) && x.dtype() != target
}

/// Whether the caller has chosen the dtype of the result.
fn asks_for_dtype(op: &Op, args: &[Arg]) -> bool {
    op.params().zip(args).any(|(param, arg)| param.name == "dtype" && !matches!(arg, Arg::None))
}

/// The common dtype of all floats, or `f32` if they differ.
fn widest(tensors: &[&Tensor]) -> Option<DType> {
    let floats = tensors.iter().map(|x| x.dtype());
    floats
        .filter(|dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32))
        .reduce(|a, b| if a == b { a } else { DType::F32 })
}

fn refused(op: &Op) -> Result<Vec<Tensor>> {
    bail!(
        DType,
        op.name,
        "its gradient may overflow inside autocast: use {}_with_logits on the input of the sigmoid, or no_autocast",
        op.name
    )
}
