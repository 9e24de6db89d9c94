//! Training on a GPU: the same results as on the CPU, without growing memory.

use super::{GPU, alone, beside_others, close, gpu, random};
use crate::checks::both;
use cotangent::nn::{Forward, Linear, Module};
use cotangent::optim::{AdamW, Optimizer, Sgd, clip_grad_norm};
use cotangent::{DType, Device, Error, ErrorKind, Generator, Result, Tensor, memory, with_generator};

#[path = "../../examples/char_gpt/model.rs"]
mod model;

#[derive(Module)]
pub struct Mlp {
    pub first: Linear,
    pub second: Linear,
}

impl Mlp {
    pub fn new(device: Device, dtype: DType) -> Result<Mlp> {
        let mut model = with_generator(&mut Generator::seed(1), || -> Result<Mlp> {
            Ok(Mlp { first: Linear::new(20, 50)?, second: Linear::new(50, 7)? })
        })?;
        model.to_dtype(dtype)?;
        model.to_device(device)?;
        Ok(model)
    }
}

impl Forward for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.first.forward(x)?.tanh()?)
    }
}

/// The losses of some steps, and the model.
fn train(device: Device, dtype: DType, optimizer: &mut dyn Optimizer, steps: usize) -> Result<(Vec<f32>, Mlp)> {
    let mut model = Mlp::new(device, dtype)?;
    let x = random(&[64, 20], 2, dtype)?.to_device(device)?;
    let y = Generator::seed(3).randint(0, 7, [64])?.to_device(device)?;
    let mut losses = Vec::new();
    for _ in 0..steps {
        model.zero_grad();
        let loss = model.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        clip_grad_norm(&model, 1.0)?;
        optimizer.step(&mut model)?;
        losses.push(loss.to_dtype(DType::F32)?.item::<f32>()?);
    }
    Ok((losses, model))
}

#[test]
fn optimisers_make_the_processors_steps() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let all: [(&str, fn() -> Box<dyn Optimizer>); 4] = [
        ("sgd", || Box::new(Sgd::new(0.1).weight_decay(0.01))),
        ("momentum", || Box::new(Sgd::new(0.1).momentum(0.9))),
        ("nesterov", || Box::new(Sgd::new(0.1).momentum(0.9).nesterov(true))),
        ("adamw", || Box::new(AdamW::new(1e-2).no_decay(|name| name.ends_with("bias")))),
    ];
    for (name, make) in all {
        for (dtype, tolerance) in [(DType::F64, 1e-9), (DType::F32, 1e-4), (DType::BF16, 3e-2)] {
            let (here, model) = train(Device::Cpu, dtype, &mut *make(), 30)?;
            let (there, other) = train(GPU, dtype, &mut *make(), 30)?;
            for (step, (a, b)) in both(there.iter(), &here).enumerate() {
                assert!(
                    f64::from((a - b).abs()) <= tolerance * f64::from(b.abs()),
                    "{name} {dtype} step {step}: {a} and {b}"
                );
            }
            assert!(here[29] < here[0] && there[29] < there[0], "{name} {dtype} learns");
            for (a, b) in both(other.parameters().iter(), model.parameters()) {
                assert!(close(&a.detach(), &b.detach(), tolerance * 10.0)?, "{name} {dtype}");
            }
        }
    }
    Ok(())
}

/// Small updates of bf16 parameters add up.
#[test]
fn half_precision_learns_by_steps_too_small_for_it() -> Result<()> {
    let _others = beside_others();
    for device in crate::checks::devices() {
        let mut model = Mlp::new(device, DType::BF16)?;
        let before = model.first.weight.detach().to_dtype(DType::F32)?;
        let mut optimizer = Sgd::new(1.0);
        for _ in 0..1000 {
            for parameter in model.parameters() {
                parameter.set_grad(&parameter.detach().full_like(1e-5)?)?;
            }
            optimizer.step(&mut model)?;
        }
        let moved = before.sub(&model.first.weight.detach().to_dtype(DType::F32)?)?.mean(..)?.item::<f32>()?;
        assert!((moved - 1e-2).abs() < 1e-3, "{device}: by {moved} instead of 0.01");
    }
    Ok(())
}

#[test]
fn two_thousand_steps_take_no_more_memory_than_ten() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _alone = alone();
    let mut model = Mlp::new(GPU, DType::F32)?;
    let mut optimizer = AdamW::new(1e-3);
    let x = random(&[64, 20], 2, DType::F32)?.to_device(GPU)?;
    let y = Generator::seed(3).randint(0, 7, [64])?.to_device(GPU)?;
    let mut after_ten = None;
    for step in 0..2000 {
        model.zero_grad();
        model.forward(&x)?.cross_entropy(&y)?.backward()?;
        optimizer.step(&mut model)?;
        let stats = memory::stats(GPU)?;
        let now = (stats.current(), stats.held(), stats.system_allocations());
        if step == 10 {
            after_ten = Some(now);
        }
        assert!(step < 10 || after_ten == Some(now), "step {step}: {now:?} instead of {after_ten:?}");
    }
    Ok(())
}

#[test]
fn the_language_model_learns_as_on_cpu() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let config = model::Config { vocabulary: 32, width: 64, heads: 4, layers: 2, feed_forward: 128 };
    let text = Generator::seed(9).randint(0, 32, [4, 33])?;
    let run = |device: Device| -> Result<Vec<f32>> {
        let mut gpt = with_generator(&mut Generator::seed(6), || model::Gpt::new(&config))?;
        gpt.to_device(device)?;
        let text = text.to_device(device)?;
        let (seen, next) = (text.narrow(1, 0, 32)?, text.narrow(1, 1, 32)?.flatten(0, -1)?);
        let mut optimizer = AdamW::new(3e-3);
        let mut losses = Vec::new();
        for _ in 0..40 {
            let loss = gpt.forward(&seen)?.reshape([128, 32])?.cross_entropy(&next)?;
            gpt.zero_grad();
            loss.backward()?;
            optimizer.step(&mut gpt)?;
            losses.push(loss.item::<f32>()?);
        }
        Ok(losses)
    };
    let (there, here) = (run(GPU)?, run(Device::Cpu)?);
    for (step, (a, b)) in both(there.iter(), &here).enumerate() {
        assert!((a - b).abs() < 2e-3 * b.abs().max(1.0), "step {step}: {a} and {b}");
    }
    Ok(())
}

#[test]
fn models_are_saved_and_loaded_across_devices() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    let path = std::env::temp_dir().join(format!("cotangent-cuda-{}.safetensors", std::process::id()));
    let (_, model) = train(GPU, DType::F32, &mut Sgd::new(0.1), 3)?;
    cotangent::nn::save(&model, &path)?;
    for device in [Device::Cpu, GPU] {
        let mut other = Mlp::new(device, DType::F32)?;
        cotangent::nn::load(&mut other, &path)?;
        assert_eq!(other.first.weight.device(), device);
        assert!(other.first.weight.detach().equal(&model.first.weight.detach())?);
    }
    let removed = std::fs::remove_file(&path);
    removed.map_err(|error| Error::new(ErrorKind::Io, "test", format!("{}: {error}", path.display())))
}
