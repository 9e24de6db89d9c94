//! `benches/minimal` in candle.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{Optimizer, SGD, VarBuilder, VarMap, linear, loss};

fn main() -> Result<()> {
    let device = Device::Cpu;
    let parameters = VarMap::new();
    let builder = VarBuilder::from_varmap(&parameters, DType::F32, &device);
    let first = linear(784, 128, builder.pp("first"))?;
    let second = linear(128, 64, builder.pp("second"))?;
    let third = linear(64, 10, builder.pp("third"))?;
    let mut optimizer = SGD::new(parameters.all_vars(), 0.01)?;
    let x = Tensor::randn(0_f32, 1.0, (32, 784), &device)?;
    let classes = Tensor::from_iter((0..32_u32).map(|i| i % 10), &device)?;
    let logits = third.forward(&second.forward(&first.forward(&x)?.relu()?)?.relu()?)?;
    let loss = loss::cross_entropy(&logits, &classes)?;
    optimizer.backward_step(&loss)?;
    println!("loss {}", loss.to_scalar::<f32>()?);
    Ok(())
}
