//! `benches/minimal` in Burn.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::activation::relu;

#[derive(Module, Debug)]
struct Mlp {
    first: Linear,
    second: Linear,
    third: Linear,
}

fn main() {
    let device = Device::flex().autodiff();
    let layer = |inputs, outputs| LinearConfig::new(inputs, outputs).init(&device);
    let model = Mlp { first: layer(784, 128), second: layer(128, 64), third: layer(64, 10) };
    let x = Tensor::<2>::random([32, 784], Distribution::Normal(0.0, 1.0), &device);
    let classes = Tensor::<1, Int>::arange(0..32, &device).remainder_scalar(10);
    let hidden = relu(model.second.forward(relu(model.first.forward(x))));
    let loss = CrossEntropyLossConfig::new().init(&device).forward(model.third.forward(hidden), classes);
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    std::hint::black_box(SgdConfig::new().init().step(0.01, model, gradients));
    println!("loss {}", loss.into_scalar::<f32>());
}
