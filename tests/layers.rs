//! Every layer of the list: PyTorch's weights give PyTorch's outputs, gradients and buffers, and what holds for all modules
//! holds for each of them: saving, loading, cloning, other dtypes, training and evaluation.
//!
//! The cases are made by `tools/fixtures.py`: one file for each layer.

#[path = "common/args.rs"]
mod args;
#[path = "common/json.rs"]
mod json;

use args::arg;
use cotangent::autograd::BackwardOptions;
use cotangent::io::StateDict;
use cotangent::nn::{self, Forward, Layer, LayerEntry, Module};
use cotangent::ops::Arg;
use cotangent::{DType, Device, Tensor};
use json::{compare, list, parse, tensor};
use serde_json::Value;
use std::path::Path;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn cases(entry: &LayerEntry) -> Outcome<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/layers/{}.json", entry.name));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(parse(&text))
}

/// The layer of a case with new weights.
fn build(entry: &LayerEntry, case: &Value) -> Outcome<Box<dyn Layer>> {
    let mut named: Vec<(&str, Arg)> = Vec::new();
    for (name, value) in case["args"].as_object().ok_or("arguments by name")? {
        let param = entry.params().find(|param| param.name == name).ok_or_else(|| format!("no parameter {name}"))?;
        named.push((param.name, arg(param.kind, value, &mut Ok)?));
    }
    let mut layer = entry.build(&[], &named)?;
    if case["training"] == false {
        layer.eval();
    }
    Ok(layer)
}

fn state(case: &Value) -> Outcome<StateDict> {
    let mut dict = StateDict::new();
    for (name, value) in case["state"].as_object().ok_or("a state")? {
        dict.insert(name, tensor(value)?);
    }
    Ok(dict)
}

/// The layer of a case with the weights of the case.
fn loaded(entry: &LayerEntry, case: &Value) -> Outcome<Box<dyn Layer>> {
    let mut layer = build(entry, case)?;
    layer.to_dtype(DType::F64)?;
    layer.load_state_dict(&state(case)?)?;
    Ok(layer)
}

/// Runs `check` on every case of every layer, and reports all that failed.
fn for_all_cases(check: impl Fn(&LayerEntry, &Value) -> Outcome) -> Outcome {
    let mut faults = Vec::new();
    for entry in nn::list() {
        for (number, case) in list(&cases(entry)?["cases"]).iter().enumerate() {
            if let Err(fault) = check(entry, case) {
                faults.push(format!("{} #{number} {}: {fault}", entry.name, case["args"]));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

fn same(what: &str, got: &Tensor, want: &Value, case: &Value) -> Outcome {
    compare(got, want, case).map_err(|fault| format!("{what}: {fault}").into())
}

#[test]
fn outputs_gradients_and_buffers_are_pytorchs() -> Outcome {
    for_all_cases(|entry, case| {
        let layer = loaded(entry, case)?;
        let x = tensor(&case["input"])?;
        let x = if case["input_grad"].is_null() { x } else { x.requires_grad_(true)? };
        let y = layer.forward(&x)?;
        same("output", &y, &case["output"], case)?;
        if !case["cotangent"].is_null() {
            y.backward_with(BackwardOptions::new().gradient(&tensor(&case["cotangent"])?))?;
        }
        if let Some(grad) = x.grad() {
            same("gradient of the input", &grad, &case["input_grad"], case)?;
        }
        for (name, parameter) in layer.named_parameters() {
            let grad = parameter.grad().ok_or_else(|| format!("{name} has no gradient"))?;
            same(&name, &grad, &case["grads"][&name], case)?;
        }
        for (name, buffer) in layer.named_buffers() {
            same(&name, &buffer.get(), &case["buffers"][&name], case)?;
        }
        Ok(())
    })
}

#[test]
fn clones_and_saved_layers_compute_the_same() -> Outcome {
    let folder = std::env::temp_dir().join(format!("cotangent-layers-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = for_all_cases(|entry, case| {
        let (layer, x) = (loaded(entry, case)?, tensor(&case["input"])?);
        let path = folder.join(format!("{}.safetensors", entry.name));
        let clone = layer.deep_clone()?;
        nn::save(&layer, &path)?;
        let mut other = build(entry, case)?;
        other.to_dtype(DType::F64)?;
        nn::load(&mut other, &path)?;
        let expected = layer.forward(&x)?;
        for (what, layer) in [("the clone", &clone), ("the loaded layer", &other)] {
            if !layer.forward(&x)?.equal(&expected)? {
                return Err(format!("{what} computes something else").into());
            }
            if !layer.summary().contains(entry.name) {
                return Err("the summary does not name it".into());
            }
        }
        Ok(())
    });
    std::fs::remove_dir_all(&folder)?;
    result
}

#[test]
fn half_precision_is_near_and_keeps_its_dtype() -> Outcome {
    for_all_cases(|entry, case| {
        let (mut layer, x) = (loaded(entry, case)?, tensor(&case["input"])?);
        // Calls in training change buffers, and what is dropped differs.
        let expected = layer.forward(&x)?;
        for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F16, 3e-2), (DType::BF16, 2e-1)] {
            layer.load_state_dict(&state(case)?)?;
            let mut layer = layer.deep_clone()?;
            layer.to_dtype(dtype)?;
            let x = if x.dtype().is_float() { x.to_dtype(dtype)? } else { x.clone() };
            let y = layer.forward(&x)?;
            if y.dtype() != dtype {
                return Err(format!("{dtype} gives {}", y.dtype()).into());
            }
            let difference = y.to_dtype(DType::F64)?.sub(&expected)?.abs()?.max(..)?.item::<f64>()?;
            if difference > tolerance {
                return Err(format!("{dtype} differs by {difference}").into());
            }
        }
        Ok(())
    })
}

#[test]
fn a_call_that_fails_changes_no_buffer() -> Outcome {
    let layer = nn::BatchNorm1d::new(3)?;
    assert!(layer.forward(&Tensor::ones([8, 4, 5])?).is_err());
    let fresh = nn::BatchNorm1d::new(3)?.state_dict();
    for (name, value) in layer.state_dict().iter() {
        assert!(fresh.get(name).ok_or("the same names")?.equal(value)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_gpu_computes_the_same() -> Outcome {
    let device = Device::Cuda(0);
    if Tensor::zeros_with([1], device).is_err() {
        eprintln!("skipped: there is no GPU");
        return Ok(());
    }
    for_all_cases(|entry, case| {
        let (mut layer, x) = (loaded(entry, case)?, tensor(&case["input"])?);
        layer.to_device(device)?;
        let y = layer.forward(&x.to_device(device)?)?.to_device(Device::Cpu)?;
        same("output", &y, &case["output"], case)
    })
}
