//! Text generation by a model of Llama 3.2's 1B shape in bf16, with random weights: writing tokens, and reading a prompt.

use super::{GPU, milliseconds, report};
use cotangent::models::{CausalModel, GenerateOptions, Generation, KeyValueCache, Llama, LlamaConfig};
use cotangent::nn::Module;
use cotangent::{DType, Generator, Result, Tensor, memory, no_grad, profile};
use std::time::Instant;

const VOCABULARY: usize = 128_256;

fn model() -> Result<Llama> {
    let config = LlamaConfig {
        vocab_size: VOCABULARY,
        hidden_size: 2048,
        intermediate_size: 8192,
        num_hidden_layers: 16,
        num_attention_heads: 32,
        num_key_value_heads: Some(8),
        rope_theta: 500_000.0,
        tie_word_embeddings: true,
        ..LlamaConfig::default()
    };
    let mut model = Llama::new(&config)?;
    model.to_dtype(DType::BF16)?;
    model.to_device(GPU)?;
    model.eval();
    Ok(model)
}

fn prompt(batch: usize, tokens: usize) -> Result<Tensor> {
    Generator::seed(1).randint(0, VOCABULARY as i64, [batch, tokens])?.to_device(GPU)
}

/// Milliseconds of a step that follows a prompt, the mean of `steps` steps.
fn step(model: &Llama, batch: usize, tokens: usize, steps: usize) -> Result<f64> {
    let cache = KeyValueCache::with_capacity(tokens + steps + 32);
    let mut generation = Generation::with_cache(model, cache, &prompt(batch, tokens)?, GenerateOptions::new())?;
    for step in generation.by_ref().take(20) {
        step?;
    }
    GPU.synchronize()?;
    let start = Instant::now();
    for step in generation.by_ref().take(steps) {
        step?;
    }
    GPU.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e3 / steps as f64)
}

pub fn llama() -> Result<()> {
    let model = model()?;
    for (batch, tokens) in [(1, 128), (1, 4096), (8, 128), (32, 128), (32, 4096)] {
        let ms = step(&model, batch, tokens, 200)?;
        let peak = memory::stats(GPU)?.peak() as f64 / (1_u64 << 30) as f64;
        let rate = batch as f64 / ms * 1e3;
        let name = format!("llama_1b_bf16_decode_{batch}x{tokens}");
        report(&name, &[("ms", ms), ("tokens_per_s", rate), ("peak_GiB", peak)]);
    }
    for tokens in [512, 4096] {
        let text = prompt(1, tokens)?;
        let read = || no_grad(|| model.next_logits(&text, &mut KeyValueCache::new()).map(drop));
        let ms = milliseconds(10, read)?;
        report(&format!("llama_1b_bf16_prefill_{tokens}"), &[("ms", ms), ("tokens_per_s", tokens as f64 / ms * 1e3)]);
    }
    Ok(())
}

/// Where the time of a step and of a prompt goes. Steps are not replayed here.
pub fn llama_profile() -> Result<()> {
    let model = model()?;
    let (text, next) = (prompt(1, 4096)?, prompt(1, 1)?);
    no_grad(|| {
        for tokens in [&next, &text] {
            let mut cache = KeyValueCache::with_capacity(4096 * 4);
            model.next_logits(&text, &mut cache)?;
            let mut run = || model.next_logits(tokens, &mut cache);
            run()?.compute()?;
            let (_, profile) = profile(|| run()?.compute())?;
            println!("{profile}");
            cache.truncate(4096)?;
        }
        Ok(())
    })
}
