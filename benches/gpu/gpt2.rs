//! A training step of GPT-2 with 124 million parameters in bf16.

use super::{GPU, milliseconds, report};
use cotangent::nn::{Embedding, Forward, LayerNorm, Linear, Module, init};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::{
    DType, Generator, Result, Tensor, memory,
    options::{AttentionOptions, Gelu},
};

const VOCABULARY: usize = 50304;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const LAYERS: usize = 12;
const LENGTH: usize = 1024;
const BATCH: usize = 32;

#[derive(Module)]
struct Block {
    ln1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    ln2: LayerNorm,
    fc: Linear,
    out: Linear,
}

impl Block {
    fn new() -> Result<Block> {
        Ok(Block {
            ln1: LayerNorm::new([WIDTH])?,
            qkv: Linear::new(WIDTH, 3 * WIDTH)?,
            proj: Linear::new(WIDTH, WIDTH)?,
            ln2: LayerNorm::new([WIDTH])?,
            fc: Linear::new(WIDTH, 4 * WIDTH)?,
            out: Linear::new(4 * WIDTH, WIDTH)?,
        })
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = (x.size(0)?, x.size(1)?);
        let qkv = self.qkv.forward(&self.ln1.forward(x)?)?.reshape([b, t, 3, HEADS, WIDTH / HEADS])?;
        let qkv = qkv.permute([2, 0, 3, 1, 4])?;
        let y = qkv.select(0, 0)?.scaled_dot_product_attention_with(
            &qkv.select(0, 1)?,
            &qkv.select(0, 2)?,
            AttentionOptions::new().is_causal(true),
        )?;
        let y = y.transpose(1, 2)?.reshape([b, t, WIDTH])?;
        let x = x.add(&self.proj.forward(&y)?)?;
        let y = self.out.forward(&self.fc.forward(&self.ln2.forward(&x)?)?.gelu_with(Gelu::Tanh)?)?;
        x.add(&y)
    }
}

#[derive(Module)]
struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    lnf: LayerNorm,
}

impl Gpt2 {
    fn new() -> Result<Gpt2> {
        let blocks = (0..LAYERS).map(|_| Block::new()).collect::<Result<_>>()?;
        let mut model = Gpt2 {
            wte: Embedding::new(VOCABULARY, WIDTH)?,
            wpe: Embedding::new(LENGTH, WIDTH)?,
            h: blocks,
            lnf: LayerNorm::new([WIDTH])?,
        };
        for embedding in [&mut model.wte, &mut model.wpe] {
            embedding.weight.set(&init::normal(embedding.weight.shape(), 0.0, 0.02)?)?;
        }
        Ok(model)
    }

    fn loss(&self, text: &Tensor, next: &Tensor) -> Result<Tensor> {
        let positions = Tensor::arange(0, text.size(1)?)?.to_device(GPU)?;
        let mut x = self.wte.forward(text)?.add(&self.wpe.forward(&positions)?)?;
        for block in &self.h {
            x = block.forward(&x)?;
        }
        // The output shares its weight with the embedding.
        let logits = self.lnf.forward(&x)?.linear(&self.wte.weight, None)?;
        logits.reshape([text.numel(), VOCABULARY])?.cross_entropy(&next.reshape(text.numel())?)
    }
}

pub fn train() -> Result<()> {
    let mut model = Gpt2::new()?;
    model.to_dtype(DType::BF16)?;
    model.to_device(GPU)?;
    let mut optimizer = AdamW::new(3e-4);
    let text = Generator::seed(1).randint(0, 50257, [BATCH, LENGTH])?.to_device(GPU)?;
    let next = Generator::seed(2).randint(0, 50257, [BATCH, LENGTH])?.to_device(GPU)?;
    let start = std::time::Instant::now();
    let mut first = None;
    let mut step = || -> Result<()> {
        model.zero_grad();
        let loss = model.loss(&text, &next)?;
        loss.backward()?;
        optimizer.step(&mut model)?;
        if first.is_none() {
            first = Some((loss.to_dtype(DType::F32)?.item::<f32>()?, start.elapsed().as_secs_f64()));
        }
        Ok(())
    };
    let ms = milliseconds(20, &mut step)?;
    let (loss, first) = first.unwrap_or_default();
    let tokens = (BATCH * LENGTH) as f64 / ms * 1e3;
    let flops = 6.0 * (VOCABULARY * WIDTH + 85_054_464) as f64 + (12 * LAYERS * WIDTH * LENGTH) as f64;
    report(
        "gpt2_124M_bf16",
        &[
            ("ms", ms),
            ("tokens_per_s", tokens),
            ("TFLOPs", flops * tokens / 1e12),
            ("peak_GiB", memory::stats(GPU)?.peak() as f64 / (1_u64 << 30) as f64),
            ("first_step_s", first),
            ("first_loss", f64::from(loss)),
        ],
    );
    Ok(())
}
