//! The memory of a long training.

use crate::{LIVE, alone};
use cotangent::data::{DataLoader, DataLoaderOptions};
use cotangent::nn::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{
    AdamW, AveragedModel, CosineAnnealingLR, LinearLR, Optimizer, Schedule, Scheduler, clip_grad_norm,
};
use cotangent::{Device, Result, Tensor, memory};
use std::sync::atomic::Ordering::Relaxed;

const STEPS: u64 = 2000;

#[test]
fn two_thousand_steps_hold_no_more_than_a_hundred() -> Result<()> {
    let _alone = alone();
    cotangent::manual_seed(1);
    let mut model = Sequential::new()
        .add(Linear::new(8, 16)?)
        .add(BatchNorm1d::new(16)?)
        .add(ReLU)
        .add(Dropout::new(0.1)?)
        .add(Linear::new(16, 3)?);
    let mut optimizer = AdamW::new(1e-2).no_decay(|name| name.ends_with("bias"));
    let schedule = LinearLR::warmup(50).then(50, CosineAnnealingLR::new(STEPS - 50));
    let mut scheduler = Scheduler::new(&mut optimizer, schedule)?;
    let mut average = AveragedModel::ema(&model, 0.99)?;
    // Twenty batches in an epoch: both counts are taken after a whole one.
    let data = (Tensor::randn([160, 8])?, Tensor::randint(0, 3, [160])?);
    let loader = DataLoader::new_with(data, DataLoaderOptions::new().batch_size(8).shuffle(true))?;
    let (mut step, mut total, mut held) = (0, 0.0, Vec::with_capacity(2));
    while step < STEPS {
        for batch in &loader {
            let (x, y) = batch?;
            let loss = model.forward(&x)?.cross_entropy(&y)?;
            model.zero_grad();
            loss.backward()?;
            clip_grad_norm(&model, 1.0)?;
            optimizer.step(&mut model)?;
            scheduler.step(&mut optimizer)?;
            average.update(&model)?;
            total += loss.item::<f64>()?;
            step += 1;
        }
        if step == 100 || step == STEPS {
            let stats = memory::stats(Device::Cpu)?;
            held.push((stats.current(), LIVE.load(Relaxed), stats.system_allocations()));
        }
    }
    assert!(total.is_finite() && average.n_averaged() == STEPS);
    let (first, last) = (held[0], held[1]);
    assert_eq!(
        first, last,
        "bytes in use, allocations that live, and requests to the system, after 100 and {STEPS} steps"
    );
    Ok(())
}
