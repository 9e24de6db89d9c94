//! Trains a classifier of handwritten digits: `cargo run --release --example digits`.
//!
//! The data set comes with the crate: 1797 images of 8×8 pixels, of which 360 are held out for the test.

use cotangent::autograd::no_grad;
use cotangent::data::{Digits, digits};
use cotangent::nn::{Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::{CrossEntropyOptions, DType, Generator, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

const EPOCHS: usize = 80;
const RATE: f64 = 3e-3;
const BATCH: usize = 64;

/// The share of images whose digit the model names.
fn accuracy(model: &mut Sequential, data: &Digits) -> Result<f64> {
    model.eval();
    let guessed = no_grad(|| model.forward(&data.images)?.argmax(1))?;
    model.train();
    guessed.eq(&data.labels)?.to_dtype(DType::F32)?.mean(..)?.item::<f64>()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    cotangent::manual_seed(42);
    let (train, test) = digits()?.split(360, 42)?;
    let mut model = Sequential::new()
        .add(Dropout::new(0.1)?)
        .add(Linear::new(64, 256)?)
        .add(ReLU)
        .add(Dropout::new(0.3)?)
        .add(Linear::new(256, 256)?)
        .add(ReLU)
        .add(Dropout::new(0.3)?)
        .add(Linear::new(256, 10)?);
    println!("{}", model.summary());

    let mut optimizer = AdamW::new(RATE);
    let options = CrossEntropyOptions::new().label_smoothing(0.1);
    let mut shuffle = Generator::seed(7);
    let bar = ProgressBar::new(EPOCHS as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} epoch {pos}/{len}  loss {msg}  {elapsed}")?);
    let start = Instant::now();
    for epoch in 0..EPOCHS {
        optimizer.set_lr(RATE * (1.0 - epoch as f64 / EPOCHS as f64));
        let mut total = 0.0;
        for positions in train.batches(BATCH, &mut shuffle)? {
            let batch = train.pick(&positions)?;
            let loss = model.forward(&batch.images)?.cross_entropy_with(&batch.labels, options.clone())?;
            model.zero_grad();
            loss.backward()?;
            optimizer.step(&mut model)?;
            total += loss.item::<f64>()? * batch.len() as f64;
        }
        bar.set_message(format!("{:.4}", total / train.len() as f64));
        bar.inc(1);
    }
    bar.finish();

    let (on_train, on_test) = (accuracy(&mut model, &train)?, accuracy(&mut model, &test)?);
    println!("trained on {} digits in {:.1} s", train.len(), start.elapsed().as_secs_f64());
    println!(
        "accuracy: {:.2} % of those, {:.2} % of {} held-out digits",
        100.0 * on_train,
        100.0 * on_test,
        test.len()
    );
    if on_test < 0.97 {
        return Err(format!(
            "{:.2} % of the held-out digits is less than the 97 % this example promises",
            100.0 * on_test
        )
        .into());
    }
    Ok(())
}
