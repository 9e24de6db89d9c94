use cotangent::nn::LSTMOptions;
use cotangent::prelude::*;
use cotangent::{nn, optim};

#[derive(Module)]
struct Forecaster {
    lstm: nn::LSTM,
    head: nn::Linear,
}

impl Forward for Forecaster {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.lstm.forward(x)?)
    }
}

fn waves(count: usize) -> Result<Tensor> {
    let phase = Tensor::rand([count, 1])? * 6.0;
    (phase + Tensor::arange(0, 31)? * 0.3).sin()?.unsqueeze(2)
}

pub fn train(steps: u64) -> Result<f64> {
    cotangent::manual_seed(0);
    let lstm = nn::LSTM::new_with(1, 32, LSTMOptions::new().batch_first(true))?;
    let mut model = Forecaster { lstm, head: nn::Linear::new(32, 1)? };
    let mut optimizer = optim::Adam::new(1e-2);
    let mut scheduler = optim::Scheduler::new(&mut optimizer, optim::CosineAnnealingLR::new(steps))?;
    for _ in 0..steps {
        let wave = waves(32)?;
        let loss = model.forward(&wave.index(s![.., ..-1])?)?.mse_loss(&wave.index(s![.., 1..])?)?;
        model.zero_grad();
        loss.backward()?;
        optim::clip_grad_norm(&model, 1.0)?;
        optimizer.step(&mut model)?;
        scheduler.step(&mut optimizer)?;
    }
    let wave = waves(8)?;
    no_grad(|| model.forward(&wave.index(s![.., ..-1])?)?.l1_loss(&wave.index(s![.., 1..])?)?.item())
}
