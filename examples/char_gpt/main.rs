//! Trains a small character GPT on a text and samples from it:
//! `cargo run --release --example char_gpt -- text.txt [steps] [prompt] [--gpu] [--bf16] [--resume] [--until=STEP]`.
//!
//! Every 100 steps, and when Ctrl-C or `--until` stops it, it saves a checkpoint in the folder of the program. With
//! `--resume` it continues from the checkpoint, with the same bits as an uninterrupted run.
//!
//! With `--gpu`, which requires the feature `cuda`, it trains on the first NVIDIA GPU. With `--bf16`, parameters and
//! activations are bf16; the optimiser keeps the f32 residuals of the parameters.

mod model;

use cotangent::autograd::no_grad;
use cotangent::io::Checkpoint;
use cotangent::nn::Module;
use cotangent::optim::{AdamW, Optimizer, clip_grad_norm};
use cotangent::train::{Interrupt, Progress};
use cotangent::{DType, Device, Generator, Result, Tensor, s};
use model::{Config, Gpt};
use std::path::Path;
use std::time::Instant;

const BATCH: usize = 16;
const TIME: usize = 64;

/// The characters of a text, sorted; the number of a character is its index.
struct Vocabulary(Vec<char>);

impl Vocabulary {
    fn of(text: &str) -> Vocabulary {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        Vocabulary(characters)
    }

    /// The numbers of the characters of a text, without those that are not in the vocabulary.
    fn encode(&self, text: &str) -> Vec<i64> {
        text.chars().filter_map(|c| self.0.binary_search(&c).ok()).map(|at| at as i64).collect()
    }

    fn decode(&self, numbers: &[i64]) -> String {
        numbers.iter().filter_map(|&n| self.0.get(n as usize)).collect()
    }
}

/// Inputs and targets: random windows of the text, and the same windows shifted by one.
fn batch(text: &[i64], generator: &mut Generator) -> Result<(Tensor, Tensor)> {
    let starts = generator.randint(0, (text.len() - TIME) as i64, [BATCH])?.to_vec::<i64>()?;
    let windows = |shift: usize| -> Result<Tensor> {
        let all: Vec<i64> = starts.iter().flat_map(|&s| &text[s as usize + shift..][..TIME]).copied().collect();
        Tensor::from_vec(all, [BATCH, TIME])
    };
    Ok((windows(0)?, windows(1)?))
}

/// Continues a text by sampling one character at a time.
fn sample(
    model: &Gpt,
    device: Device,
    prompt: Vec<i64>,
    length: usize,
    temperature: f64,
    generator: &mut Generator,
) -> Result<Vec<i64>> {
    let mut text = prompt;
    for _ in 0..length {
        let seen = &text[text.len().saturating_sub(TIME)..];
        let seen = Tensor::from_slice(seen, [1, seen.len()])?.to_device(device)?;
        let logits = model.forward(&seen)?.to_dtype(DType::F32)?;
        let last = logits.index(s![0, -1])?.div(temperature)?;
        let odds = last.softmax(0)?.to_vec::<f32>()?;
        let mut draw = generator.rand(())?.item::<f32>()?;
        let chosen = odds.iter().position(|p| {
            draw -= p;
            draw < 0.0
        });
        text.push(chosen.unwrap_or(odds.len() - 1) as i64);
    }
    Ok(text)
}

/// The state of a training run.
struct Run {
    model: Gpt,
    optimizer: AdamW,
    generator: Generator,
    step: usize,
}

impl Run {
    fn save(&self, path: &Path) -> Result<()> {
        let mut checkpoint = Checkpoint::new();
        checkpoint.add("model", &self.model)?;
        checkpoint.add("optimizer", &self.optimizer)?;
        checkpoint.add("generator", &self.generator)?;
        checkpoint.set("step", self.step);
        checkpoint.save(path)
    }

    fn resume(&mut self, path: &Path) -> Result<()> {
        let checkpoint = Checkpoint::load(path)?;
        let step = checkpoint.values().usize("step")?;
        checkpoint.restore(&mut [
            ("model", &mut self.model),
            ("optimizer", &mut self.optimizer),
            ("generator", &mut self.generator),
        ])?;
        self.step = step;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, arguments): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let until = flags.iter().find_map(|flag| flag.strip_prefix("--until="));
    let until: usize = until.map_or(Ok(usize::MAX), str::parse)?;
    let known =
        |flag: &String| ["--gpu", "--bf16", "--resume"].contains(&flag.as_str()) || flag.starts_with("--until=");
    if let Some(unknown) = flags.iter().find(|flag| !known(flag)) {
        return Err(format!("unknown option: {unknown}").into());
    }
    let checkpoint = std::env::current_exe()?.with_file_name("char_gpt.ckpt");
    let device = if flags.iter().any(|flag| flag == "--gpu") { Device::cuda(0) } else { Device::Cpu };
    let mut arguments = arguments.into_iter();
    let path =
        arguments.next().ok_or("usage: char_gpt TEXT [STEPS] [PROMPT] [--gpu] [--bf16] [--resume] [--until=STEP]")?;
    let steps: usize = arguments.next().map_or(Ok(1000), |s| s.parse())?;
    let prompt = arguments.next().unwrap_or_else(|| "\n".to_string());
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let vocabulary = Vocabulary::of(&text);
    let numbers = vocabulary.encode(&text);
    if numbers.len() <= 10 * TIME {
        return Err(format!("{path}: there must be more than {} characters, got {}", 10 * TIME, numbers.len()).into());
    }
    let (train, held_out) = numbers.split_at(numbers.len() * 9 / 10);

    cotangent::manual_seed(1);
    let config = Config { vocabulary: vocabulary.0.len(), width: 64, heads: 4, layers: 2, feed_forward: 256 };
    let mut model = Gpt::new(&config)?;
    if flags.iter().any(|flag| flag == "--bf16") {
        model.to_dtype(DType::BF16)?;
    }
    model.to_device(device)?;
    println!("{} characters, {} different, {} parameters", numbers.len(), config.vocabulary, model.num_parameters());

    let loss = |model: &Gpt, data: &[i64], generator: &mut Generator| -> Result<Tensor> {
        let (seen, next) = batch(data, generator)?;
        let logits = model.forward(&seen.to_device(device)?)?.reshape([(BATCH * TIME) as isize, -1])?;
        // Half precision is not accurate enough for the mean.
        logits.to_dtype(DType::F32)?.cross_entropy(&next.flatten(0, -1)?.to_device(device)?)
    };
    let held_out_loss = |model: &Gpt| -> Result<f64> {
        let mut generator = Generator::seed(3);
        let losses =
            (0..20).map(|_| loss(model, held_out, &mut generator)?.item::<f64>()).collect::<Result<Vec<_>>>()?;
        Ok(losses.iter().sum::<f64>() / losses.len() as f64)
    };

    let mut run = Run { model, optimizer: AdamW::new(3e-3), generator: Generator::seed(2), step: 0 };
    if flags.iter().any(|flag| flag == "--resume") {
        run.resume(&checkpoint)?;
        println!("going on after step {} of {}", run.step, checkpoint.display());
    }
    let (first, start, interrupt) = (run.step, Instant::now(), Interrupt::new()?);
    let mut bar = Progress::new(steps as u64);
    while run.step < steps {
        if interrupt.is_set() || run.step >= until {
            bar.finish();
            run.save(&checkpoint)?;
            println!("stopped after step {}: --resume continues from {}", run.step, checkpoint.display());
            return Ok(());
        }
        // Cosine annealing to a tenth of the rate.
        let progress = run.step as f64 / steps as f64;
        run.optimizer.set_lr(3e-3 * (0.55 + 0.45 * (std::f64::consts::PI * progress).cos()));
        let value = loss(&run.model, train, &mut run.generator)?;
        run.model.zero_grad();
        value.backward()?;
        clip_grad_norm(&run.model, 1.0)?;
        run.optimizer.step(&mut run.model)?;
        run.step += 1;
        bar.update(run.step as u64, &[("loss", value.item()?), ("lr", run.optimizer.lr())]);
        if run.step.is_multiple_of(100) {
            run.save(&checkpoint)?;
        }
    }
    bar.finish();
    let rate = ((steps - first.min(steps)) * BATCH * TIME) as f64 / start.elapsed().as_secs_f64();
    let Run { mut model, mut generator, .. } = run;
    model.eval();
    println!("{rate:.0} characters a second");
    println!("held-out loss {:.3} after {steps} steps\n", no_grad(|| held_out_loss(&model))?);
    let prompt = vocabulary.encode(&prompt);
    let start = if prompt.is_empty() { vec![train[0]] } else { prompt };
    let written = no_grad(|| sample(&model, device, start, 500, 0.8, &mut generator))?;
    println!("{}", vocabulary.decode(&written));
    Ok(())
}
