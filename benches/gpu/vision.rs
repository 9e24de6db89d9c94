//! Training steps of residual networks, an LSTM forward and backward, and normalization, pooling and convolutions.

use super::{GPU, leaf, milliseconds, normal, report};
use cotangent::models::{ResNet, ResNetConfig};
use cotangent::nn::{BatchNorm2d, Forward, LSTM, Module};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{
    DType, Generator, Result, Tensor, memory,
    options::{ConvOptions, MaxPoolOptions},
    settings::{MatmulPrecision, with_matmul_precision},
};

fn train(name: &str, mut model: ResNet, dtype: DType, [batch, size]: [usize; 2]) -> Result<()> {
    model.to_dtype(dtype)?;
    model.to_device(GPU)?;
    let mut optimizer = Sgd::new(0.1).momentum(0.9).weight_decay(1e-4);
    let x = normal(&[batch, 3, size, size], 1, dtype)?;
    let y = Generator::seed(2).randint(0, 1000, [batch])?.to_device(GPU)?;
    let mut last = None;
    let mut step = || -> Result<()> {
        model.zero_grad();
        let loss = model.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        optimizer.step(&mut model)?;
        last = Some(loss.detach());
        Ok(())
    };
    let ms = milliseconds(20, &mut step)?;
    let loss = last.map_or(Ok(f32::NAN), |loss| loss.to_dtype(DType::F32)?.item::<f32>())?;
    let peak = memory::stats(GPU)?.peak() as f64 / (1_u64 << 30) as f64;
    let images = batch as f64 / ms * 1e3;
    report(name, &[("ms", ms), ("images_per_s", images), ("peak_GiB", peak), ("loss", f64::from(loss))]);
    Ok(())
}

pub fn resnet50() -> Result<()> {
    train("resnet50_bf16", ResNet::new(&ResNetConfig::resnet50())?, DType::BF16, [256, 224])
}

/// With TF32, PyTorch's default for convolutions.
pub fn resnet18() -> Result<()> {
    let step = || train("resnet18_64px_tf32", ResNet::new(&ResNetConfig::resnet18())?, DType::F32, [32, 64]);
    with_matmul_precision(MatmulPrecision::Tf32, step)
}

pub fn lstm() -> Result<()> {
    let mut layer = LSTM::new(256, 256)?;
    layer.to_device(GPU)?;
    let x = leaf(&[128, 64, 256], 1, DType::F32)?;
    let ms = milliseconds(20, || {
        x.zero_grad();
        layer.zero_grad();
        layer.forward(&x)?.sum(..)?.backward()
    })?;
    report("lstm_256_64x128", &[("ms", ms)]);
    Ok(())
}

pub fn norms_and_pools() -> Result<()> {
    for (dtype, name) in [(DType::F32, "batch_norm_f32"), (DType::BF16, "batch_norm_bf16")] {
        let mut norm = BatchNorm2d::new(256)?;
        norm.to_dtype(dtype)?;
        norm.to_device(GPU)?;
        let (x, g) = (images(&[64, 256, 56, 56], dtype)?.requires_grad_(true)?, images(&[64, 256, 56, 56], dtype)?);
        let ms = milliseconds(20, || {
            x.zero_grad();
            norm.zero_grad();
            norm.forward(&x)?.backward_with(&g)
        })?;
        report(name, &[("ms", ms)]);
    }
    let options = || MaxPoolOptions::new().stride(2).padding(1);
    let x = images(&[64, 64, 112, 112], DType::BF16)?.requires_grad_(true)?;
    let g = images(&[64, 64, 56, 56], DType::BF16)?;
    let ms = milliseconds(20, || {
        x.zero_grad();
        x.max_pool2d_with(3, options())?.backward_with(&g)
    })?;
    report("max_pool_bf16", &[("ms", ms)]);
    let convolutions: [(&str, [usize; 4], [usize; 4], usize, usize); 3] = [
        ("conv_bf16", [64, 256, 56, 56], [256, 256, 3, 3], 1, 1),
        ("conv_1x1_bf16", [64, 256, 56, 56], [512, 256, 1, 1], 0, 1),
        ("conv_depthwise_bf16", [64, 256, 56, 56], [256, 1, 3, 3], 1, 256),
    ];
    for (name, x, w, padding, groups) in convolutions {
        let g = images(&[x[0], w[0], x[2], x[3]], DType::BF16)?;
        let x = images(&x, DType::BF16)?.requires_grad_(true)?;
        let w = normal(&w, 3, DType::BF16)?.requires_grad_(true)?;
        let ms = milliseconds(20, || {
            x.zero_grad();
            w.zero_grad();
            x.conv2d_with(&w, ConvOptions::new().padding(padding).groups(groups))?.backward_with(&g)
        })?;
        report(name, &[("ms", ms)]);
    }
    Ok(())
}

/// Images in the memory order of layers: channels last in half precision.
fn images(shape: &[usize], dtype: DType) -> Result<Tensor> {
    let [n, c, h, w] = [shape[0], shape[1], shape[2], shape[3]];
    if dtype == DType::F32 {
        return normal(shape, 1, dtype);
    }
    normal(&[n, h, w, c], 1, dtype)?.permute([0, 3, 1, 2])
}
