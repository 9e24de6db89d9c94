//! Training steps: forward, loss, backward, optimiser.

use crate::gpt::{Gpt, TIME, VOCABULARY};
use crate::timing::{Timer, memory_mib};
use cotangent::models::{ResNet, ResNetConfig};
use cotangent::nn::{Forward, Linear, Module, Parameter, ReLU, Sequential};
use cotangent::optim::{Adam, AdamW, Optimizer, Sgd};
use cotangent::{
    Result, Tensor,
    settings::{MatmulPrecision, with_matmul_precision},
};

/// One step: `loss` of the model, its gradients, the optimiser.
fn step<M: Module>(
    model: &mut M,
    optimizer: &mut impl Optimizer,
    loss: impl FnOnce(&M) -> Result<Tensor>,
) -> Result<()> {
    model.zero_grad();
    loss(model)?.backward()?;
    optimizer.step(model)
}

/// 784-128-64-10, batch 32, cross entropy, plain SGD.
pub fn mlp_small(timer: &Timer) -> Result<()> {
    let mut model = Sequential::new()
        .add(Linear::new(784, 128)?)
        .add(ReLU)
        .add(Linear::new(128, 64)?)
        .add(ReLU)
        .add(Linear::new(64, 10)?);
    let mut optimizer = Sgd::new(0.01);
    let (x, y) = (Tensor::randn([32, 784])?, Tensor::randint(0, 10, [32])?);
    let step = || step(&mut model, &mut optimizer, |model| model.forward(&x)?.cross_entropy(&y));
    timer.time("mlp_small", step)?.print();
    Ok(())
}

pub fn mlp_large(timer: &Timer) -> Result<()> {
    mlp_large_in(timer, "mlp_large", MatmulPrecision::Full)
}

pub fn mlp_large_bf16(timer: &Timer) -> Result<()> {
    mlp_large_in(timer, "mlp_large_bf16", MatmulPrecision::Bf16)
}

/// 1024-4096-4096-1024, batch 256, mean squared error, AdamW.
fn mlp_large_in(timer: &Timer, name: &str, precision: MatmulPrecision) -> Result<()> {
    let mut model = Sequential::new()
        .add(Linear::new(1024, 4096)?)
        .add(ReLU)
        .add(Linear::new(4096, 4096)?)
        .add(ReLU)
        .add(Linear::new(4096, 1024)?);
    let mut optimizer = AdamW::new(1e-3);
    let (x, y) = (Tensor::randn([256, 1024])?, Tensor::randn([256, 1024])?);
    let forward = |model: &Sequential| with_matmul_precision(precision, || model.forward(&x));
    let step = || step(&mut model, &mut optimizer, |model| forward(model)?.mse_loss(&y));
    timer.time(name, step)?.print();
    Ok(())
}

pub fn gpt_tiny(timer: &Timer) -> Result<()> {
    gpt_tiny_in(timer, "gpt_tiny", MatmulPrecision::Full)
}

pub fn gpt_tiny_bf16(timer: &Timer) -> Result<()> {
    gpt_tiny_in(timer, "gpt_tiny_bf16", MatmulPrecision::Bf16)
}

fn gpt_tiny_in(timer: &Timer, name: &str, precision: MatmulPrecision) -> Result<()> {
    let before = memory_mib("VmRSS");
    let batch = 8;
    let vocabulary = VOCABULARY as i64;
    let mut model = Gpt::new()?;
    let mut optimizer = AdamW::new(1e-3);
    let (x, y) = (Tensor::randint(0, vocabulary, [batch, TIME])?, Tensor::randint(0, vocabulary, [batch * TIME])?);
    let step = || {
        step(&mut model, &mut optimizer, |model| {
            let logits = with_matmul_precision(precision, || model.forward(&x))?;
            logits.reshape([batch * TIME, VOCABULARY])?.cross_entropy(&y)
        })
    };
    timer.time(name, step)?.per_second("tokens_per_s", (batch * TIME) as f64).memory(before).print();
    Ok(())
}

#[derive(Module)]
struct Parameters {
    tensors: Vec<Parameter>,
}

/// Two convolutions with their pools, and two linear layers.
#[derive(Debug, Module)]
struct Cnn {
    first: Parameter,
    first_bias: Parameter,
    second: Parameter,
    second_bias: Parameter,
    hidden: Linear,
    last: Linear,
}

impl Cnn {
    fn new() -> Result<Cnn> {
        let parameter = |shape: &[usize], scale: f64| Parameter::new(Tensor::randn(shape)?.mul(scale)?);
        Ok(Cnn {
            first: parameter(&[32, 1, 3, 3], 0.3)?,
            first_bias: parameter(&[32], 0.3)?,
            second: parameter(&[64, 32, 3, 3], 0.05)?,
            second_bias: parameter(&[64], 0.05)?,
            hidden: Linear::new(1600, 128)?,
            last: Linear::new(128, 10)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.conv2d_with(&self.first, &*self.first_bias)?.relu()?.max_pool2d(2)?;
        let x = x.conv2d_with(&self.second, &*self.second_bias)?.relu()?.max_pool2d(2)?;
        self.last.forward(&self.hidden.forward(&x.flatten(1, -1)?)?.relu()?)
    }
}

/// A small network on 64 images of 28 × 28, cross entropy, Adam.
pub fn cnn_step(timer: &Timer) -> Result<()> {
    let (mut model, mut optimizer) = (Cnn::new()?, Adam::new(1e-3));
    let (x, y) = (Tensor::randn([64, 1, 28, 28])?, Tensor::randint(0, 10, [64])?);
    let step = || step(&mut model, &mut optimizer, |model| model.forward(&x)?.cross_entropy(&y));
    timer.time("cnn_step", step)?.print();
    Ok(())
}

/// ResNet-18 on 32 images of 64 × 64, cross entropy of 1000 classes, SGD with momentum.
pub fn resnet18_step(timer: &Timer) -> Result<()> {
    let before = memory_mib("VmRSS");
    let mut model = ResNet::new(&ResNetConfig::resnet18())?;
    let mut optimizer = Sgd::new(0.01).momentum(0.9);
    let (x, y) = (Tensor::randn([32, 3, 64, 64])?, Tensor::randint(0, 1000, [32])?);
    let step = || step(&mut model, &mut optimizer, |model| model.forward(&x)?.cross_entropy(&y));
    timer.time("resnet18_step", step)?.per_second("images_per_s", 32.0).memory(before).print();
    Ok(())
}

/// The optimiser alone, on 100 tensors of 100 000 numbers.
pub fn adamw(timer: &Timer) -> Result<()> {
    let (count, size) = (100, 100_000);
    let tensors = (0..count).map(|_| Parameter::new(Tensor::randn([size])?)).collect::<Result<Vec<_>>>()?;
    for tensor in &tensors {
        tensor.set_grad(&Tensor::randn([size])?)?;
    }
    let mut model = Parameters { tensors };
    let mut optimizer = AdamW::new(1e-4);
    let step = || optimizer.step(&mut model);
    // Parameter, gradient and two moments read; parameter and moments written.
    timer.time("adamw", step)?.per_ns("gb_per_s", (7 * count * size * size_of::<f32>()) as f64).print();
    Ok(())
}
