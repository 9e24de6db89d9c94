//! The GPT of `gpt_tiny`: pre-norm blocks, learned positions, linear layers without biases, and an untied head.

use cotangent::nn::{Embedding, Forward, LayerNorm, Linear, LinearOptions, Module};
use cotangent::{Result, Tensor, options::AttentionOptions};

pub const VOCABULARY: usize = 65;
pub const TIME: usize = 256;
const WIDTH: usize = 384;
const HEADS: usize = 6;
const LAYERS: usize = 6;

#[derive(Module)]
pub struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Module)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

fn without_bias(inputs: usize, outputs: usize) -> Result<Linear> {
    Linear::new_with(inputs, outputs, LinearOptions::new().bias(false))
}

impl Gpt {
    pub fn new() -> Result<Gpt> {
        Ok(Gpt {
            tokens: Embedding::new(VOCABULARY, WIDTH)?,
            positions: Embedding::new(TIME, WIDTH)?,
            blocks: (0..LAYERS).map(|_| Block::new()).collect::<Result<_>>()?,
            norm: LayerNorm::new(WIDTH)?,
            head: without_bias(WIDTH, VOCABULARY)?,
        })
    }

    /// `[batch, TIME]` tokens to `[batch, TIME, VOCABULARY]` logits.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.tokens.forward(tokens)?.add(&self.positions.weight)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
}

impl Block {
    fn new() -> Result<Block> {
        Ok(Block {
            norm1: LayerNorm::new(WIDTH)?,
            qkv: without_bias(WIDTH, 3 * WIDTH)?,
            out: without_bias(WIDTH, WIDTH)?,
            norm2: LayerNorm::new(WIDTH)?,
            up: without_bias(WIDTH, 4 * WIDTH)?,
            down: without_bias(4 * WIDTH, WIDTH)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let batch = x.size(0)?;
        let [q, k, v] = self.qkv.forward(&self.norm1.forward(x)?)?.chunks(-1)?;
        // [batch, TIME, WIDTH] to [batch, HEADS, TIME, WIDTH / HEADS].
        let split = |part: &Tensor| part.reshape([batch, TIME, HEADS, WIDTH / HEADS])?.transpose(1, 2);
        let (q, k, v) = (split(&q)?, split(&k)?, split(&v)?);
        let mixed = q.scaled_dot_product_attention_with(&k, &v, AttentionOptions::new().is_causal(true))?;
        let mixed = mixed.transpose(1, 2)?.reshape([batch, TIME, WIDTH])?;
        let x = x.add(self.out.forward(&mixed)?)?;
        let hidden = self.up.forward(&self.norm2.forward(&x)?)?.gelu()?;
        x.add(self.down.forward(&hidden)?)
    }
}
