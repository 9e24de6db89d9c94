//! The GPT of `gpt_tiny`: pre-norm blocks, learned positions, no biases in the linear layers, the head not tied.

use cotangent::nn::{Embedding, Forward, LayerNorm, Linear, Module};
use cotangent::{Attention, DType, Gelu, Result, Tensor};

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

impl Gpt {
    pub fn new() -> Result<Gpt> {
        Ok(Gpt {
            tokens: Embedding::new(VOCABULARY, WIDTH)?,
            positions: Embedding::new(TIME, WIDTH)?,
            blocks: (0..LAYERS).map(|_| Block::new()).collect::<Result<_>>()?,
            norm: LayerNorm::new(WIDTH)?,
            head: Linear::without_bias(WIDTH, VOCABULARY)?,
        })
    }

    /// `[batch, TIME]` tokens to `[batch, TIME, VOCABULARY]` logits, matrix products in `dtype`.
    pub fn forward(&self, tokens: &Tensor, dtype: DType) -> Result<Tensor> {
        let mut x = self.tokens.forward(tokens)?.add(&self.positions.weight)?;
        for block in &self.blocks {
            x = block.forward(&x, dtype)?;
        }
        linear_in(dtype, &self.norm.forward(&x)?, &self.head)
    }
}

impl Block {
    fn new() -> Result<Block> {
        Ok(Block {
            norm1: LayerNorm::new(WIDTH)?,
            qkv: Linear::without_bias(WIDTH, 3 * WIDTH)?,
            out: Linear::without_bias(WIDTH, WIDTH)?,
            norm2: LayerNorm::new(WIDTH)?,
            up: Linear::without_bias(WIDTH, 4 * WIDTH)?,
            down: Linear::without_bias(4 * WIDTH, WIDTH)?,
        })
    }

    fn forward(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let batch = x.size(0)?;
        let qkv = linear_in(dtype, &self.norm1.forward(x)?, &self.qkv)?.chunk(3, -1)?;
        // [batch, TIME, WIDTH] to [batch, HEADS, TIME, WIDTH / HEADS].
        let split = |part: &Tensor| part.reshape([batch, TIME, HEADS, WIDTH / HEADS])?.transpose(1, 2);
        let mixed = causal_attention(&split(&qkv[0])?, &split(&qkv[1])?, &split(&qkv[2])?, dtype)?;
        let mixed = mixed.transpose(1, 2)?.reshape([batch, TIME, WIDTH])?;
        let x = x.add(linear_in(dtype, &mixed, &self.out)?)?;
        let hidden = linear_in(dtype, &self.norm2.forward(&x)?, &self.up)?.gelu(Gelu::Erf)?;
        x.add(linear_in(dtype, &hidden, &self.down)?)
    }
}

/// A linear layer computed in `dtype`, whatever the dtype of its weights.
pub fn linear_in(dtype: DType, x: &Tensor, layer: &Linear) -> Result<Tensor> {
    let bias = layer.bias.as_ref().map(|bias| bias.to_dtype(dtype)).transpose()?;
    x.to_dtype(dtype)?.linear(&layer.weight.to_dtype(dtype)?, bias.as_ref())
}

/// Attention of `[.., time, size]` queries, keys and values, each position looking at itself and those before; products
/// in `dtype`, the softmax in f32.
pub fn causal_attention(q: &Tensor, k: &Tensor, v: &Tensor, dtype: DType) -> Result<Tensor> {
    q.scaled_dot_product_attention(k, v, &Attention::CAUSAL)?.to_dtype(dtype)
}
