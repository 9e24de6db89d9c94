//! A small GPT over characters: rotary positions, attention without biases, and an output tied to the embedding.

use cotangent::nn::{Embedding, Forward, LayerNorm, Linear, LinearOptions, Module};
use cotangent::{Result, Tensor, options::AttentionOptions};

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub vocabulary: usize,
    pub width: usize,
    pub heads: usize,
    pub layers: usize,
    pub feed_forward: usize,
}

/// Predicts the logits of the next character.
#[derive(Module)]
pub struct Gpt {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
}

#[derive(Module)]
struct Block {
    norm1: LayerNorm,
    attention: Attention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

#[derive(Module)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    heads: usize,
}

impl Gpt {
    pub fn new(config: &Config) -> Result<Gpt> {
        let Config { vocabulary, width, layers, .. } = *config;
        let mut embedding = Embedding::new(vocabulary, width)?;
        // The embedding is tied to the output: with unit normal numbers the first logits would be too large.
        embedding.weight.update(|weight| weight.mul_(0.02))?;
        let blocks = (0..layers).map(|_| Block::new(config)).collect::<Result<_>>()?;
        Ok(Gpt { embedding, blocks, norm: LayerNorm::new(width)? })
    }

    /// `[batch, time]` characters to `[batch, time, vocabulary]` logits.
    pub fn forward(&self, characters: &Tensor) -> Result<Tensor> {
        let mut x = self.embedding.forward(characters)?;
        let size = self.blocks.first().map_or(2, |b| b.attention.head_size(&x));
        let positions = Rotary::new(x.size(1)?, size, &x)?;
        for block in &self.blocks {
            x = block.forward(&x, &positions)?;
        }
        self.norm.forward(&x)?.linear(&self.embedding.weight, None)
    }
}

impl Block {
    fn new(config: &Config) -> Result<Block> {
        let Config { width, heads, feed_forward, .. } = *config;
        Ok(Block {
            norm1: LayerNorm::new(width)?,
            attention: Attention::new(width, heads)?,
            norm2: LayerNorm::new(width)?,
            up: Linear::new(width, feed_forward)?,
            down: Linear::new(feed_forward, width)?,
        })
    }

    fn forward(&self, x: &Tensor, positions: &Rotary) -> Result<Tensor> {
        let x = x.add(self.attention.forward(&self.norm1.forward(x)?, positions)?)?;
        let hidden = self.up.forward(&self.norm2.forward(&x)?)?.gelu()?;
        x.add(self.down.forward(&hidden)?)
    }
}

impl Attention {
    fn new(width: usize, heads: usize) -> Result<Attention> {
        let project = || Linear::new_with(width, width, LinearOptions::new().bias(false));
        Ok(Attention { query: project()?, key: project()?, value: project()?, out: project()?, heads })
    }

    fn head_size(&self, x: &Tensor) -> usize {
        x.shape().last().map_or(0, |width| width / self.heads)
    }

    /// `x` is `[batch, time, width]`.
    fn forward(&self, x: &Tensor, positions: &Rotary) -> Result<Tensor> {
        let [batch, time, width] = x.dims()?;
        let size = self.head_size(x);
        // [batch, time, width] to [batch, heads, time, size].
        let split = |y: Tensor| y.reshape([batch, time, self.heads, size])?.transpose(1, 2);
        let query = positions.turn(&split(self.query.forward(x)?)?)?;
        let key = positions.turn(&split(self.key.forward(x)?)?)?;
        let value = split(self.value.forward(x)?)?;
        let mixed = query.scaled_dot_product_attention_with(&key, &value, AttentionOptions::new().is_causal(true))?;
        self.out.forward(&mixed.transpose(1, 2)?.reshape([batch, time, width])?)
    }
}

/// Rotary positions: rotates pairs of numbers in queries and keys by angles that grow with the position.
struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    /// Rotary positions for queries and keys with the dtype and device of `like`.
    fn new(time: usize, size: usize, like: &Tensor) -> Result<Rotary> {
        let half = size / 2;
        let frequency = |i: usize| 10_000_f64.powf(-(i as f64) / half as f64);
        let angles: Vec<f32> =
            (0..time).flat_map(|t| (0..half).map(move |i| (t as f64 * frequency(i)) as f32)).collect();
        let angles = Tensor::from_vec(angles, [time, half])?;
        let converted = |x: Tensor| x.to_dtype(like.dtype())?.to_device(like.device());
        Ok(Rotary { cos: converted(angles.cos()?)?, sin: converted(angles.sin()?)? })
    }

    /// `x` is `[batch, heads, time, size]`; the first half of the numbers is paired with the second.
    fn turn(&self, x: &Tensor) -> Result<Tensor> {
        let [a, b] = x.chunks(-1)?;
        let turned_a = a.mul(&self.cos)?.sub(b.mul(&self.sin)?)?;
        let turned_b = b.mul(&self.cos)?.add(a.mul(&self.sin)?)?;
        Tensor::cat(&[&turned_a, &turned_b], -1)
    }
}
