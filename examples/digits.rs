//! Trains a classifier of handwritten digits, and writes a report: `cargo run --release --example digits`.
//!
//! The dataset is part of the crate: 1797 images of 8×8 pixels, of which 360 are held out for testing. A number after
//! `--` sets the number of epochs (default: 80).

use cotangent::data::{Digits, digits};
use cotangent::nn::{Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::AdamW;
use cotangent::train::{Accuracy, ConfusionMatrix, Examples, Metric, Report, Trainer, evaluate, in_eval};
use cotangent::{Generator, Result, Tensor, options::CrossEntropyOptions};
use std::time::Instant;

const EPOCHS: u64 = 80;
const RATE: f64 = 3e-3;
const BATCH: usize = 64;

/// The logits of the model and the labels.
fn predict(model: &Sequential, data: &Digits) -> Result<(Tensor, Tensor)> {
    Ok((model.forward(&data.images)?, data.labels.clone()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let epochs = std::env::args().nth(1).map_or(Ok(EPOCHS), |text| text.parse())?;
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

    let options = CrossEntropyOptions::new().label_smoothing(0.1);
    let steps = epochs as f64 * train.len().div_ceil(BATCH) as f64;
    let (mut report, start) = (Report::new("Handwritten digits"), Instant::now());
    Trainer::new(|model: &Sequential, batch: &Digits| {
        model.forward(&batch.images)?.cross_entropy_with(&batch.labels, &options)
    })
    .epochs(epochs)
    .lr(|step| RATE * (1.0 - step as f64 / steps))
    .validate(|| Ok([Ok(test.clone())]), predict)
    .metric(Accuracy::new())
    .report(&mut report)
    .fit(&mut model, &mut AdamW::new(RATE), |epoch| {
        let order = train.batches(BATCH, &mut Generator::seed(epoch))?;
        Ok(order.into_iter().map(|positions| train.pick(&positions)))
    })?;
    let seconds = start.elapsed().as_secs_f64();

    let (mut on_train, mut on_test) = (Accuracy::new(), ConfusionMatrix::new(10)?);
    evaluate(&mut model, [Ok(train.clone())], &mut [&mut on_train], predict)?;
    evaluate(&mut model, [Ok(test.clone())], &mut [&mut on_test], predict)?;
    let (on_train, accuracy) = (100.0 * on_train.compute()?, 100.0 * on_test.compute()?);
    println!("trained on {} digits in {seconds:.1} s", train.len());
    println!("accuracy: {on_train:.2} % of those, {accuracy:.2} % of {} held-out digits", test.len());

    let mut examples = Examples::new(10)?;
    let guesses = in_eval(&mut model, |model| model.forward(&test.images))?;
    examples.update(&test.images.reshape([-1, 8, 8])?, &guesses, &test.labels)?;
    report.confusion(&on_test, &[])?;
    report.examples(examples)?;
    report.fact("held-out accuracy", format!("{accuracy:.2} %"));
    report.fact("training accuracy", format!("{on_train:.2} %"));
    report.fact("epochs", epochs.to_string());
    report.fact("training time", format!("{seconds:.1} s"));
    let path = std::env::current_exe()?.with_file_name("digits.html");
    report.save(&path)?;
    println!("report: {}", path.strip_prefix(std::env::current_dir()?).unwrap_or(&path).display());
    if epochs >= EPOCHS && accuracy < 97.0 {
        return Err(format!("the accuracy on held-out digits must be at least 97 %, got {accuracy:.2} %").into());
    }
    Ok(())
}
