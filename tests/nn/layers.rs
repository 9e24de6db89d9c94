//! Every layer of the list: PyTorch's weights give PyTorch's outputs, gradients and buffers, and what holds for all modules
//! holds for each of them: saving, loading, cloning, other dtypes, training and evaluation.
//!
//! The cases are made by `tools/fixtures.py`: one file for each layer.

use crate::args;
use crate::checks::{both, gpu};
use crate::json;

use args::arg;
use cotangent::autograd::{BackwardOptions, GradOptions, grad, grad_with};
use cotangent::nn::{self, Forward, Layer, LayerEntry, Module};
use cotangent::ops::Arg;
use cotangent::{
    DType, Device, Generator, Tensor, keepdim,
    options::{BatchNormOptions, BatchNormUpdateOptions, GroupNormOptions},
    with_generator,
};
use cotangent::{io::StateDict, linalg};
use json::{compare, list, parse, tensor};
use serde_json::Value;
use std::path::Path;

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn cases(entry: &LayerEntry) -> Outcome<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/layers/{}.json", entry.name));
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
        let cases = cases(entry)?;
        let cases = list(&cases["cases"]);
        if cases.is_empty() {
            faults.push(format!("{} has no cases", entry.name));
        }
        for (number, case) in cases.iter().enumerate() {
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
    for_all_cases(|entry, case| compare_with(&loaded(entry, case)?, case))
}

/// A layer with the weights of a case gives the case's values.
fn compare_with(layer: &(impl Module + Forward), case: &Value) -> Outcome {
    let x = tensor(&case["input"])?;
    let x = if case["input_grad"].is_null() { x } else { x.requires_grad_(true)? };
    let y = layer.forward(&x)?;
    same("output", &y, &case["output"], case)?;
    if !case["cotangent"].is_null() {
        y.backward_with(BackwardOptions::new().gradient(&tensor(&case["cotangent"])?))?;
    }
    match (x.grad(), case["input_grad"].is_null()) {
        (Some(grad), false) => same("gradient of the input", &grad, &case["input_grad"], case)?,
        (None, false) => return Err("the input has no gradient".into()),
        (_, true) => {}
    }
    for (name, parameter) in layer.named_parameters() {
        let grad = parameter.grad().ok_or_else(|| format!("{name} has no gradient"))?;
        same(&name, &grad, &case["grads"][&name], case)?;
    }
    for (name, buffer) in layer.named_buffers() {
        same(&name, &buffer.get(), &case["buffers"][&name], case)?;
    }
    Ok(())
}

/// A layer inside of a parametrization of its weight, with the weights of a case.
fn check_around<L: nn::WeightedLayer>(layer: L, case: &Value) -> Outcome {
    fn check(mut layer: impl Module + Forward, case: &Value) -> Outcome {
        if case["training"] == false {
            layer.eval();
        }
        layer.to_dtype(DType::F64)?;
        layer.load_state_dict(&state(case)?)?;
        let clone = layer.deep_clone()?;
        compare_with(&layer, case)?;
        compare_with(&clone, case).map_err(|fault| format!("the clone: {fault}").into())
    }
    let options = case["options"].as_object().ok_or("options")?;
    if case["parametrization"] == "weight_norm" {
        let mut own = nn::WeightNormOptions::new();
        if let Some(dim) = options.get("dim") {
            own = own.dim(dim.as_u64().map(|dim| dim as usize));
        }
        return check(nn::WeightNorm::new_with(layer, own)?, case);
    }
    let mut own = nn::SpectralNormOptions::new();
    if let Some(count) = options.get("n_power_iterations").and_then(Value::as_u64) {
        own = own.n_power_iterations(count as usize);
    }
    if let Some(eps) = options.get("eps").and_then(Value::as_f64) {
        own = own.eps(eps);
    }
    check(nn::SpectralNorm::new_with(layer, own)?, case)
}

#[test]
fn parametrized_layers_are_pytorchs() -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/parametrizations.json");
    let file = parse(&std::fs::read_to_string(path)?);
    for (number, case) in list(&file["cases"]).iter().enumerate() {
        let size = |name: &str| case["args"][name].as_u64().unwrap_or(0) as usize;
        let [from, to, kernel] = ["in_channels", "out_channels", "kernel_size"].map(size);
        let done = match &case["layer"] {
            name if name == "Linear" => check_around(nn::Linear::new(size("in_features"), size("out_features"))?, case),
            name if name == "Conv2d" => {
                let options = nn::ConvLayerOptions::new().bias(false);
                check_around(nn::Conv2d::new_with(from, to, kernel, options)?, case)
            }
            name if name == "ConvTranspose1d" => check_around(nn::ConvTranspose1d::new(from, to, kernel)?, case),
            other => Err(format!("no layer {other}").into()),
        };
        done.map_err(|fault| {
            format!("#{number} {} {} {}: {fault}", case["layer"], case["parametrization"], case["options"])
        })?;
    }
    Ok(())
}

/// It starts with the layer's weight, can be trained, and is removed again.
#[test]
fn a_parametrized_layer_is_trained_and_taken_out_again() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        let x = Tensor::randn([5, 3])?;
        let layer = nn::Linear::new(3, 2)?;
        let before = layer.forward(&x)?;
        let mut layer = nn::WeightNorm::new(layer)?;
        assert!(layer.forward(&x)?.allclose(&before)?);
        for mut parameter in layer.parameters_mut() {
            parameter.update(|values| values.mul_(1.5))?;
        }
        let after = layer.forward(&x)?;
        assert!(layer.into_layer()?.forward(&x)?.allclose(&after)?);
        let mut layer = nn::SpectralNorm::new(nn::Linear::new(3, 2)?)?;
        for _ in 0..50 {
            layer.forward(&x)?;
        }
        layer.eval();
        let after = layer.forward(&x)?;
        let inner = layer.into_layer()?;
        assert!(inner.forward(&x)?.allclose(&after)?);
        assert!((linalg::svdvals(&inner.weight)?.max(..)?.item::<f32>()? - 1.0).abs() < 1e-4);
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
        // Calls in training mode change buffers, and drop different elements.
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

/// The CPU kernel gives the same as the plain rule, which is used for higher derivatives, for rows of all lengths and dtypes.
#[test]
fn the_kernel_of_group_norm_is_its_plain_rule() -> Outcome {
    let mut generator = Generator::seed(3);
    for (shape, groups) in [(&[3, 6, 33, 35][..], 2), (&[2, 4, 700], 4), (&[5, 6, 1], 3), (&[2, 3, 2, 2, 300], 1)] {
        let channels = shape[1];
        for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-3), (DType::BF16, 5e-1)] {
            let mut leaf = |shape: &[usize]| generator.randn(shape)?.add(3.0)?.to_dtype(dtype)?.requires_grad_(true);
            let (x, weight, bias) = (leaf(shape)?, leaf(&[channels])?, leaf(&[channels])?);
            let g = generator.randn(shape)?.to_dtype(dtype)?;
            let y = x.group_norm_with(groups, GroupNormOptions::new().weight(&weight).bias(&bias))?;
            let grads = |create_graph: bool| {
                let options = GradOptions::new().gradient(&g).create_graph(create_graph).retain_graph(true);
                grad_with(&y, &[&x, &weight, &bias], options)
            };
            for (fused, plain) in both(grads(false)?, grads(true)?) {
                let [fused, plain] = [fused, plain].map(|grad| grad.ok_or("a gradient"));
                let (fused, plain) = (fused?.to_dtype(DType::F64)?, plain?.to_dtype(DType::F64)?);
                let difference = fused.sub(&plain)?.abs()?.max(..)?.item::<f64>()?;
                assert!(difference < tolerance, "{shape:?} {dtype}: {difference}");
            }
            // Each group has mean 0 and variance 1 before it is scaled.
            let grouped =
                x.detach().to_dtype(DType::F64)?.reshape([shape[0], groups, x.numel() / shape[0] / groups])?;
            let (var, mean) = grouped.var_mean_with(keepdim(2), 0)?;
            let normal = grouped.sub(&mean)?.div(&var.add(1e-5)?.sqrt()?)?.reshape([
                shape[0],
                channels,
                x.numel() / shape[0] / channels,
            ])?;
            let column = |t: &Tensor| t.detach().to_dtype(DType::F64)?.reshape([channels, 1]);
            let expected = normal.mul(&column(&weight)?)?.add(&column(&bias)?)?.reshape(shape)?;
            let difference = y.detach().to_dtype(DType::F64)?.sub(&expected)?.abs()?.max(..)?.item::<f64>()?;
            assert!(difference < tolerance, "{shape:?} {dtype}: {difference}");
        }
    }
    Ok(())
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
    let Some(device) = gpu() else { return Ok(()) };
    for_all_cases(|entry, case| {
        let (mut layer, x) = (loaded(entry, case)?, tensor(&case["input"])?);
        layer.to_device(device)?;
        let y = layer.forward(&x.to_device(device)?)?.to_device(Device::Cpu)?;
        same("output", &y, &case["output"], case)
    })
}

fn close(what: &str, a: &Tensor, b: &Tensor, tolerance: f64) -> cotangent::Result<()> {
    let [a, b] = [a, b].map(|t| t.detach().to_dtype(DType::F64));
    let (a, b) = (a?, b?);
    let error = a.sub(&b)?.abs()?.max(..)?.item::<f64>()?;
    assert!(error <= tolerance, "{what}: {error} apart");
    Ok(())
}

/// For contiguous channels statistics and cotangents come from special kernels, for other layouts from reductions. Both give the
/// same norm.
#[test]
fn a_batch_norm_is_the_same_wherever_the_channels_lie() -> cotangent::Result<()> {
    let mut generator = Generator::seed(1);
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-5), (DType::BF16, 0.1)] {
        for shape in [&[70, 3, 5][..], &[3, 4, 33, 7], &[130, 2, 2, 2], &[1, 5, 40]] {
            let new = |generator: &mut Generator, shape: &[usize]| generator.randn(shape.to_vec())?.to_dtype(dtype);
            let (x, g) = (new(&mut generator, shape)?, new(&mut generator, shape)?);
            let (w, b) = (new(&mut generator, &shape[1..2])?, new(&mut generator, &shape[1..2])?);
            let run = |apart: bool| -> cotangent::Result<Vec<Tensor>> {
                let leaves = [&x, &w, &b].map(|t| t.detach().requires_grad_(true));
                let [x, w, b] = leaves;
                let (x, w, b) = (x?, w?, b?);
                // The channels first in memory.
                let own = if apart { x.transpose(0, 1)?.contiguous()?.transpose(0, 1)? } else { x.clone() };
                let options = BatchNormOptions::new().training(true).weight(&w).bias(&b);
                let y = own.batch_norm_with(options)?;
                let grads = grad_with(&y, &[&x, &w, &b], GradOptions::new().gradient(&g))?;
                Ok(std::iter::once(y).chain(grads.into_iter().flatten()).collect())
            };
            let (own, other) = (run(false)?, run(true)?);
            assert_eq!((own.len(), other.len()), (4, 4));
            for (at, (a, b)) in both(own.iter(), &other).enumerate() {
                let scale = if at >= 2 { (shape.iter().product::<usize>() / shape[1]) as f64 } else { 1.0 };
                close(&format!("{dtype} {shape:?}, result {at}"), a, b, tolerance * scale.sqrt())?;
            }
        }
    }
    // Large compared with their differences, but exact in f32.
    let x = generator.randint(0, 8, [40, 2, 30])?.to_dtype(DType::F32)?.add(1e6)?;
    let (_, _, var) = x.batch_norm_with_update_with(
        &Tensor::zeros([2])?,
        &Tensor::zeros([2])?,
        BatchNormUpdateOptions::new().momentum(1.0),
    )?;
    close("large", &var, &x.to_dtype(DType::F64)?.var([0, 2])?, 1e-5)
}

/// Weights are packed for the steps of a long sequence.
#[test]
fn a_long_sequence_is_its_steps_one_by_one() -> cotangent::Result<()> {
    let mut generator = Generator::seed(2);
    let layer = with_generator(&mut generator, || nn::LSTM::new(5, 40))?;
    let x = generator.randn([9, 3, 5])?;
    let (whole, (hidden, cell)) = layer.forward_state(&x, None)?;
    let mut state: Option<(Tensor, Tensor)> = None;
    let mut steps = Vec::new();
    for at in 0..9 {
        let last = state.as_ref().map(|(h, c)| (h, c));
        let (y, next) = layer.forward_state(&x.narrow(0, at, 1)?, last)?;
        steps.push(y);
        state = Some(next);
    }
    let steps = Tensor::cat(&steps, 0)?;
    close("outputs", &whole, &steps, 1e-6)?;
    let Some((h, c)) = state else { unreachable!("there were steps") };
    close("hidden", &hidden, &h, 1e-6)?;
    close("memory", &cell, &c, 1e-6)?;
    let parameters = layer.parameters();
    let leaves: Vec<&Tensor> = parameters.iter().map(|parameter| &***parameter).collect();
    let of = |y: &Tensor| grad(&y.square()?.sum(..)?, &leaves);
    for (at, (a, b)) in both(of(&whole)?.iter().flatten(), of(&steps)?.iter().flatten()).enumerate() {
        close(&format!("gradient {at}"), a, b, 1e-5)?;
    }
    Ok(())
}
