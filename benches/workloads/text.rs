//! Text generation: reading a prompt and writing tokens, with random weights of published shapes.

use crate::timing::Timer;
use cotangent::models::{CausalModel, Gpt2, Gpt2Config, KeyValueCache, Llama, LlamaConfig};
use cotangent::nn::{self, Module, QuantFormat};
use cotangent::{DType, Generator, Result, Tensor, no_grad};

/// Tokens of a prompt, and tokens written after it.
const PROMPT: usize = 512;
const WRITTEN: usize = 32;

pub fn gpt2(timer: &Timer) -> Result<()> {
    text(timer, "gpt2", &Gpt2::new(&Gpt2Config::default())?, 50257)
}

pub fn gpt2_bf16(timer: &Timer) -> Result<()> {
    let mut model = Gpt2::new(&Gpt2Config::default())?;
    model.to_dtype(DType::BF16)?;
    text(timer, "gpt2_bf16", &model, 50257)
}

/// The shape of Qwen2.5-0.5B.
fn half_billion() -> Result<Llama> {
    Llama::new(&LlamaConfig {
        vocab_size: 151_936,
        hidden_size: 896,
        intermediate_size: 4864,
        num_hidden_layers: 24,
        num_attention_heads: 14,
        num_key_value_heads: Some(2),
        tie_word_embeddings: true,
        ..LlamaConfig::default()
    })
}

pub fn llama(timer: &Timer) -> Result<()> {
    text(timer, "llama_05b", &half_billion()?, 151_936)
}

pub fn llama_bf16(timer: &Timer) -> Result<()> {
    let mut model = half_billion()?;
    model.to_dtype(DType::BF16)?;
    text(timer, "llama_05b_bf16", &model, 151_936)
}

/// Weights in 8 bits, as in files of Q8_0.
pub fn llama_q8_0(timer: &Timer) -> Result<()> {
    quantized(timer, "llama_05b_q8_0", |_| QuantFormat::Q8_0)
}

/// Weights in 4 bits. Rows that are no whole blocks of 256 are stored in Q5_0, as llama.cpp does.
pub fn llama_q4_k(timer: &Timer) -> Result<()> {
    let format = |inputs: usize| if inputs.is_multiple_of(256) { QuantFormat::Q4K } else { QuantFormat::Q5_0 };
    quantized(timer, "llama_05b_q4_k", format)
}

fn quantized(timer: &Timer, name: &str, format: impl Fn(usize) -> QuantFormat) -> Result<()> {
    let mut model = half_billion()?;
    nn::quantize(&mut model, |_, weight| Some(format(weight.shape()[1])))?;
    text(timer, name, &model, 151_936)
}

/// The model of the file that `COTANGENT_GGUF` names, to compare with llama.cpp on the same file.
pub fn gguf(timer: &Timer) -> Result<()> {
    let Ok(path) = std::env::var("COTANGENT_GGUF") else { return Ok(()) };
    let model = Llama::from_gguf(&path)?;
    let vocabulary = model.named_parameters().first().map_or(0, |(_, table)| table.shape()[0]);
    text(timer, "gguf", &model, vocabulary as i64)
}

fn text(timer: &Timer, name: &str, model: &(impl CausalModel + Module), vocabulary: i64) -> Result<()> {
    let tokens = Generator::seed(1).randint(0, vocabulary, [1, PROMPT])?;
    no_grad(|| {
        let prefill = || -> Result<(Tensor, KeyValueCache)> {
            let mut cache = KeyValueCache::new();
            Ok((model.forward_cached(&tokens, &mut cache)?.select(1, PROMPT - 1)?.argmax(-1)?, cache))
        };
        let row = timer.time(&format!("prefill_{name}"), prefill)?;
        row.per_second("tokens_per_s", PROMPT as f64).print();
        let (first, cache) = prefill()?;
        let decode = || -> Result<Vec<i64>> {
            let (mut next, mut cache, mut written) = (first.clone(), cache.clone(), Vec::with_capacity(WRITTEN));
            for _ in 0..WRITTEN {
                written.push(next.item::<i64>()?);
                next =
                    model.forward_cached(&next.reshape([1, 1])?, &mut cache)?.reshape([-1])?.argmax(0)?.reshape([1])?;
            }
            Ok(written)
        };
        let row = timer.time(&format!("decode_{name}"), decode)?;
        // All weights, which every token reads if the head is tied to the embeddings.
        let bytes: usize = model.parameters().iter().map(|weight| weight.numel() * weight.dtype().size()).sum();
        let row = row.per_second("tokens_per_s", WRITTEN as f64);
        row.per_second("weights_gb_per_s", WRITTEN as f64 * bytes as f64 / 1e9).print();
        Ok(())
    })
}
