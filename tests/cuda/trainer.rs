//! The trainer with model, batches and optimiser on a GPU: an interrupted and resumed run ends with the same bits.

use super::{GPU, beside_others, gpu};
use cotangent::nn::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{AdamW, AveragedModel, CosineAnnealingLR, GradScaler};
use cotangent::train::{Accuracy, Moment, Stop, Trainer};
use cotangent::{DType, Generator, Result, Tensor, with_generator};
use std::path::Path;

type Batch = (Tensor, Tensor);

fn batches(epoch: u64) -> Result<Vec<Result<Batch>>> {
    let mut generator = Generator::seed(epoch);
    let mut batch = || {
        let x = generator.randn([16, 6])?;
        let y = x.narrow(1, 0, 3)?.argmax(1)?;
        Ok((x.to_device(GPU)?, y.to_device(GPU)?))
    };
    Ok((0..5).map(|_| batch()).collect())
}

fn model() -> Result<Sequential> {
    let mut model = Sequential::new()
        .add(Linear::new(6, 8)?)
        .add(BatchNorm1d::new(8)?)
        .add(ReLU)
        .add(Dropout::new(0.2)?)
        .add(Linear::new(8, 3)?);
    model.to_device(GPU)?;
    Ok(model)
}

/// Parameters, buffers and averages at the end, and the last loss and accuracy.
fn run(seed: u64, dtype: DType, folder: &Path, stop: Option<u64>) -> Result<(Vec<Vec<f32>>, [Option<f64>; 2])> {
    with_generator(&mut Generator::seed(seed), || {
        let (mut model, mut optimizer) = (model()?, AdamW::new(2e-2));
        let stopping = move |moment: &mut Moment<'_, Sequential>| {
            if Some(moment.step) == stop {
                moment.stop();
            }
            Ok(())
        };
        let mut trainer = Trainer::new(|model: &Sequential, (x, y): &Batch| model.forward(x)?.cross_entropy(y))
            .epochs(6)
            .autocast(dtype)
            .scaler(GradScaler::new())
            .schedule(CosineAnnealingLR::new(30))
            .clip_grad_norm(1.0)
            .average(|model| AveragedModel::ema(model, 0.9))
            .validate(|| batches(100), |model, (x, y)| Ok((model.forward(x)?, y.clone())))
            .metric(Accuracy::new())
            .checkpoints(folder)
            .callback(stopping)
            .quiet();
        let fit = trainer.resume(&mut model, &mut optimizer, batches)?;
        assert_eq!(fit.stop(), if stop.is_some() { Stop::Callback } else { Stop::Finished });
        let state = model.state_dict();
        assert!(state.iter().all(|(_, x)| x.device() == GPU));
        let values = |x: &Tensor| x.to_dtype(DType::F32)?.to_vec::<f32>();
        let mut all = state.iter().map(|(_, x)| values(x)).collect::<Result<Vec<_>>>()?;
        if let Some(average) = trainer.take_averaged() {
            all.extend(average.module().state_dict().iter().map(|(_, x)| values(x)).collect::<Result<Vec<_>>>()?);
        }
        Ok((all, [fit.value("val_loss"), fit.value("val_accuracy")]))
    })
}

#[test]
fn a_trainer_on_a_gpu_is_resumed_bit_for_bit() -> std::result::Result<(), Box<dyn std::error::Error>> {
    if !gpu() {
        return Ok(());
    }
    let _others = beside_others();
    for dtype in [DType::F16, DType::BF16] {
        let folder = std::env::temp_dir().join(format!("cotangent-gpu-trainer-{dtype}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let whole = run(3, dtype, &folder.join("whole"), None)?;
        assert!(whole.1[1].is_some_and(|accuracy| accuracy > 0.6), "it has learned nothing: {:?}", whole.1);
        run(3, dtype, &folder.join("parts"), Some(7))?;
        assert_eq!(run(77, dtype, &folder.join("parts"), None)?, whole, "{dtype}");
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
