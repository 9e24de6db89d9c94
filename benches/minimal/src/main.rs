//! One training step of a small network, to measure startup time, build time and binary size.

use cotangent::nn::{Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{Result, Tensor};

fn main() -> Result<()> {
    let mut model = Sequential::new()
        .add(Linear::new(784, 128)?)
        .add(ReLU)
        .add(Linear::new(128, 64)?)
        .add(ReLU)
        .add(Linear::new(64, 10)?);
    let classes = Tensor::from_iter((0..32_i64).map(|i| i % 10))?;
    let loss = model.forward(&Tensor::randn([32, 784])?)?.cross_entropy(&classes)?;
    model.zero_grad();
    loss.backward()?;
    Sgd::new(0.01).step(&mut model)?;
    println!("loss {}", loss.item::<f32>()?);
    Ok(())
}
