//! Trains a classifier of handwritten digits on MNIST: `cargo run --release --example mnist -- FOLDER [--model mlp|cnn]
//! [--epochs N]`.
//!
//! The folder must have the four files of MNIST, gzipped or not: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
//! and the same with `t10k`. Fashion-MNIST and KMNIST have the same file names. The last line is the test accuracy.

use cotangent::autograd::no_grad;
use cotangent::data::{DataLoader, DataLoaderOptions, Mnist, Part};
use cotangent::nn::{Conv2d, ConvLayerOptions, Dropout, Flatten, Forward, Linear, MaxPool2d, Module, ReLU, Sequential};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::train::Progress;
use cotangent::{DType, Result, Tensor, options::CrossEntropyOptions};
use std::time::Instant;

const BATCH: usize = 64;
const USAGE: &str = "usage: mnist FOLDER [--model mlp|cnn] [--epochs N]";

struct Args {
    folder: String,
    model: String,
    epochs: Option<usize>,
}

fn args() -> Result<Args, String> {
    let (mut folder, mut model, mut epochs) = (None, "mlp".to_string(), None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--model" => {
                model = value()?;
                if model != "mlp" && model != "cnn" {
                    return Err(format!("--model must be mlp or cnn, got {model}\n{USAGE}"));
                }
            }
            "--epochs" => {
                let text = value()?;
                let number = text.parse().ok().filter(|&n| n > 0);
                epochs = Some(number.ok_or(format!("--epochs must be at least 1, got {text}\n{USAGE}"))?);
            }
            _ if word.starts_with("--") || folder.is_some() => {
                return Err(format!("unknown argument: {word}\n{USAGE}"));
            }
            _ => folder = Some(word),
        }
    }
    Ok(Args { folder: folder.ok_or(USAGE)?, model, epochs })
}

/// A perceptron with layers of 784, 128 and 10.
fn mlp() -> Result<Sequential> {
    Ok(Sequential::new().add(Flatten::new()).add(Linear::new(784, 128)?).add(ReLU).add(Linear::new(128, 10)?))
}

fn cnn() -> Result<Sequential> {
    let conv = |from, to| Conv2d::new_with(from, to, 5, ConvLayerOptions::new().padding(2));
    Ok(Sequential::new()
        .add(conv(1, 16)?)
        .add(ReLU)
        .add(MaxPool2d::new(2)?)
        .add(conv(16, 32)?)
        .add(ReLU)
        .add(MaxPool2d::new(2)?)
        .add(Flatten::new())
        .add(Dropout::new(0.25)?)
        .add(Linear::new(32 * 7 * 7, 128)?)
        .add(ReLU)
        .add(Dropout::new(0.25)?)
        .add(Linear::new(128, 10)?))
}

/// Normalizes pixels from 0 to 1 with the mean and the standard deviation of MNIST.
fn normalized(images: &Tensor) -> Result<Tensor> {
    images.sub(0.1307)?.div(0.3081)
}

/// The fraction of images that the model classifies correctly.
fn accuracy(model: &mut Sequential, loader: &DataLoader<(Tensor, Tensor)>) -> Result<f64> {
    model.eval();
    let (mut right, mut all) = (0.0, 0);
    for batch in loader {
        let (images, labels) = batch?;
        let guessed = no_grad(|| model.forward(&normalized(&images)?)?.argmax(1))?;
        right += guessed.eq(&labels)?.to_dtype(DType::F32)?.sum(..)?.item::<f64>()?;
        all += labels.numel();
    }
    model.train();
    Ok(right / all as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = args().unwrap_or_else(|message| {
        eprintln!("{message}");
        std::process::exit(2)
    });
    cotangent::manual_seed(42);
    let (mut model, rate, epochs) = match args.model.as_str() {
        "mlp" => (mlp()?, 2e-3, args.epochs.unwrap_or(10)),
        _ => (cnn()?, 2e-3, args.epochs.unwrap_or(3)),
    };
    let (train, test) = (Mnist::load(&args.folder, Part::Train)?, Mnist::load(&args.folder, Part::Test)?);
    let options = DataLoaderOptions::new().batch_size(BATCH).shuffle(true).num_workers(1);
    let train = DataLoader::new_with(train, options)?;
    let test = DataLoader::new(test, 1000)?;
    println!("{}", model.summary());

    let mut optimizer = AdamW::new(rate);
    let smooth = CrossEntropyOptions::new().label_smoothing(0.05);
    let steps = train.len().unwrap_or(0);
    let total = (epochs * steps) as f64;
    for epoch in 0..epochs {
        let mut bar = Progress::new(steps as u64).label(format!("epoch {}/{epochs}", epoch + 1));
        let (mut losses, mut images, start) = (0.0, 0, Instant::now());
        for (step, batch) in train.iter().enumerate() {
            let (x, y) = batch?;
            // Linear warm-up in the first tenth of all steps, then linear decay to 0.
            let done = (epoch * steps + step) as f64 / total;
            optimizer.set_lr(rate * (10.0 * done + 0.01).min((1.0 - done) / 0.9));
            let loss = model.forward(&normalized(&x)?)?.cross_entropy_with(&y, &smooth)?;
            model.zero_grad();
            loss.backward()?;
            optimizer.step(&mut model)?;
            losses += loss.item::<f64>()?;
            images += y.numel();
            bar.update(step as u64 + 1, &[("loss", losses / (step + 1) as f64), ("rate", optimizer.lr())]);
        }
        bar.clear();
        let speed = images as f64 / start.elapsed().as_secs_f64();
        println!(
            "epoch {}/{epochs}  loss {:.4}  rate {:.1e}  {speed:.0} images/s  test {:.2} %",
            epoch + 1,
            losses / steps as f64,
            optimizer.lr(),
            100.0 * accuracy(&mut model, &test)?
        );
    }
    println!("test accuracy: {:.2} %", 100.0 * accuracy(&mut model, &test)?);
    Ok(())
}
