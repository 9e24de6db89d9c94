//! Fine-tunes a GPT-2 or Llama from local safetensors with LoRA, and saves the adapters in PEFT's format:
//! `cargo run --release --example lora -- FOLDER --tokens TOKENS.npy [--rank 8] [--steps 200] [--out adapters]`.
//!
//! `FOLDER` has `config.json` and `model.safetensors`, or shards of it with their index, as on Hugging Face.
//! `TOKENS.npy` has the token ids of a text, saved in Python by `np.save("tokens.npy", tokenizer(text)["input_ids"])`.
//! By default the tokens are the bytes of the README.
//!
//! Without a folder, the example first trains a tiny Llama for a few seconds, and saves it in the same format.

use cotangent::autograd::no_grad;
use cotangent::io::{npy, safetensors};
use cotangent::models::{
    Adaptable, CausalModel, Gpt2, Gpt2Config, KeyValueCache, Llama, LlamaConfig, LoraConfig, add_lora, load_lora,
    load_weights, merge_lora, save_lora,
};
use cotangent::nn::Module;
use cotangent::optim::{AdamW, Optimizer};
use cotangent::{Generator, Result, Tensor};
use std::path::{Path, PathBuf};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Arguments {
    folder: Option<PathBuf>,
    tokens: Option<PathBuf>,
    out: PathBuf,
    rank: usize,
    steps: usize,
    batch: usize,
    length: usize,
    rate: f64,
}

fn arguments() -> Outcome<Arguments> {
    let out = std::env::temp_dir().join("cotangent-lora");
    let mut given =
        Arguments { folder: None, tokens: None, out, rank: 8, steps: 200, batch: 8, length: 64, rate: 2e-3 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--tokens" => given.tokens = Some(value()?.into()),
            "--out" => given.out = value()?.into(),
            "--rank" => given.rank = value()?.parse()?,
            "--steps" => given.steps = value()?.parse()?,
            "--batch" => given.batch = value()?.parse()?,
            "--length" => given.length = value()?.parse()?,
            "--rate" => given.rate = value()?.parse()?,
            _ if word.starts_with("--") || given.folder.is_some() => return Err(format!("unexpected {word}").into()),
            _ => given.folder = Some(word.into()),
        }
    }
    Ok(given)
}

/// The mean loss of predicting the next tokens, over windows of a text that begin at `starts`.
fn loss(model: &impl CausalModel, tokens: &[i64], starts: &[i64], length: usize) -> Result<Tensor> {
    let window = |from: usize| {
        let rows = starts.iter().flat_map(|start| &tokens[*start as usize + from..][..length]);
        Tensor::from_iter(rows.copied())?.reshape([starts.len() as isize, length as isize])
    };
    let logits = model.forward_cached(&window(0)?, &mut KeyValueCache::new())?;
    logits.flatten(0, 1)?.cross_entropy(&window(1)?.flatten(0, 1)?)
}

/// The loss in evaluation mode, over fixed windows of a text.
fn held_loss(model: &mut (impl CausalModel + Module), tokens: &[i64], length: usize) -> Result<f64> {
    let places: Vec<i64> = (0..8).map(|at| at * (tokens.len() - length - 1) as i64 / 7).collect();
    model.eval();
    let loss = no_grad(|| loss(model, tokens, &places, length)?.item());
    model.train();
    loss
}

fn train(model: &mut (impl CausalModel + Module), tokens: &[i64], given: &Arguments, steps: usize) -> Outcome {
    let (mut optimizer, mut random) = (AdamW::new(given.rate), Generator::seed(1));
    let last = tokens.len() - given.length;
    for step in 0..steps {
        let places: Vec<i64> = random.randint(0, last as i64, [given.batch])?.to_vec()?;
        let loss = loss(model, tokens, &places, given.length)?;
        model.zero_grad();
        loss.backward()?;
        optimizer.step(model)?;
        if (step + 1).is_multiple_of(steps.div_ceil(10)) {
            println!("step {:4}  loss {:.4}", step + 1, loss.item::<f64>()?);
        }
    }
    Ok(())
}

/// Fine-tunes a model with the weights in a folder; `new` creates the model without weights.
fn fine_tune<M: Adaptable + CausalModel>(
    new: impl Fn() -> Result<M>,
    targets: &[&str],
    folder: &Path,
    given: &Arguments,
    tokens: &[i64],
) -> Outcome {
    let mut model = new()?;
    load_weights(&mut model, folder)?;
    let all: usize = model.parameters().iter().map(|parameter| parameter.numel()).sum();
    let before = held_loss(&mut model, tokens, given.length)?;

    let config = LoraConfig { r: given.rank, lora_alpha: 2.0 * given.rank as f64, ..LoraConfig::new(targets.to_vec()) };
    let layers = add_lora(&mut model, &config)?;
    let trained: usize = model.parameters().iter().filter(|p| p.requires_grad()).map(|p| p.numel()).sum();
    println!("{layers} adapters of rank {}: {trained} of {all} parameters are trainable", given.rank);
    train(&mut model, tokens, given, given.steps)?;
    let after = held_loss(&mut model, tokens, given.length)?;
    println!("loss {before:.4} before, {after:.4} after");

    save_lora(&model, &config, &given.out)?;
    println!("saved to {}", given.out.display());
    // As in a program for inference: the published weights, then the adapters, then the merged weights.
    let mut loaded = new()?;
    load_weights(&mut loaded, folder)?;
    load_lora(&mut loaded, &given.out)?;
    let with_adapters = held_loss(&mut loaded, tokens, given.length)?;
    merge_lora(&mut loaded)?;
    let merged = held_loss(&mut loaded, tokens, given.length)?;
    println!("loss {with_adapters:.4} loaded, {merged:.4} merged");
    if with_adapters != after || (merged - after).abs() > 1e-3 {
        return Err("the loss with loaded adapters must equal the trained one".into());
    }
    if given.steps >= 100 && after >= before {
        return Err(format!("the loss must decrease, got {before:.4} before and {after:.4} after").into());
    }
    Ok(())
}

/// Trains a tiny Llama over bytes on half of the text, and saves it in the format of published models.
fn tiny_llama(folder: &Path, given: &Arguments, text: &[i64]) -> Outcome {
    let config = r#"{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu"}"#;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("config.json"), config)?;
    let mut model = Llama::new(&LlamaConfig::from_file(folder.join("config.json"))?)?;
    println!("a tiny Llama, trained from scratch:");
    train(&mut model, text, given, given.steps)?;
    safetensors::save_sharded(folder, &model.state_dict(), 100_000)?;
    Ok(())
}

fn main() -> Outcome {
    cotangent::manual_seed(42);
    let given = arguments()?;
    let mut tokens: Vec<i64> = match &given.tokens {
        Some(path) => npy::load(path)?.flatten(0, -1)?.to_dtype(cotangent::DType::I64)?.to_vec()?,
        None => include_bytes!("../README.md").iter().map(|byte| i64::from(*byte)).collect(),
    };
    if tokens.len() < 2 * (given.length + 2) {
        return Err(format!("there must be at least {} tokens, got {}", 2 * (given.length + 2), tokens.len()).into());
    }
    let folder = match &given.folder {
        Some(folder) => folder.clone(),
        None => {
            let folder = given.out.join("tiny-llama");
            let second = tokens.split_off(tokens.len() / 2);
            tiny_llama(&folder, &given, &tokens)?;
            tokens = second;
            folder
        }
    };
    let config = folder.join("config.json");
    let kind: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&config)?)?;
    match kind["model_type"].as_str() {
        Some("gpt2") => {
            let config = Gpt2Config::from_file(&config)?;
            fine_tune(|| Gpt2::new(&config), &["c_attn", "c_fc"], &folder, &given, &tokens)
        }
        Some("llama") => {
            let config = LlamaConfig::from_file(&config)?;
            fine_tune(|| Llama::new(&config), &["q_proj", "v_proj", "up_proj", "down_proj"], &folder, &given, &tokens)
        }
        other => Err(format!("{}: model_type must be gpt2 or llama, got {other:?}", config.display()).into()),
    }
}
