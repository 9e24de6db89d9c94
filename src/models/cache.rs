//! The keys and values that a model keeps between its calls.

use crate::error::bail;
use crate::ops::nn::cached::{VisibleKeys, cached_attention, rotate_tokens, write_tokens};
use crate::options::AttentionOptions;
use crate::tensor::Ellipsis;
use crate::{DType, Device, Result, Tensor, autograd, s};

/// The least number of tokens that a cache has memory for.
const LEAST: usize = 64;

/// The keys and values of all tokens so far, for each block of a model, or the last state of a recurrent model.
///
/// The memory of a block is allocated once, for [`with_capacity`](Self::with_capacity) tokens, or doubles when it is full.
/// New keys are written into it, and nothing else moves. A clone shares this memory until one of the two is used again: so
/// several continuations of a prompt cost one pass over the prompt.
///
/// ```
/// use cotangent::models::{CausalModel, Gpt2, Gpt2Config, KeyValueCache};
/// use cotangent::{no_grad, tensor};
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let mut cache = KeyValueCache::with_capacity(8);
/// no_grad(|| model.forward_cached(&tensor!([[3, 1, 4]])?, &mut cache))?;
/// let mut other = cache.clone();
/// no_grad(|| model.forward_cached(&tensor!([[1]])?, &mut other))?;
/// assert_eq!((cache.len(), other.len()), (3, 4));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    blocks: Vec<Block>,
    /// The last state of a recurrent model, which has no blocks.
    state: Option<(Tensor, Tensor)>,
    len: usize,
    /// The tokens of each call, `[batch, steps]`.
    text: Vec<Tensor>,
    /// Whether keys and values are kept at all.
    keeps: bool,
    capacity: Option<usize>,
    /// The number of padding tokens at the start of each sequence.
    padding: Vec<usize>,
    /// The position of the next token, while a step is recorded.
    step: Option<Step>,
}

/// The position of a token as data on the device, so that a step which is recorded once can be replayed at any position.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Of i64, `[1]`.
    position: Tensor,
    /// The position plus one.
    len: Tensor,
    /// The number of padding tokens of each sequence, of i64, `[batch]`.
    padding: Option<Tensor>,
}

/// What one block of a model asks of attention to its cached keys.
#[derive(Clone, Copy, Default)]
pub(super) struct BlockAttention {
    /// The number of tokens that a query attends to, its own included. By default all.
    pub window: Option<usize>,
    /// The factor of the scores. By default `1 / √size`.
    pub scale: Option<f64>,
    /// The bound of the scores.
    pub cap: Option<f64>,
}

/// Keys and values `[.., capacity, size]` of one block, of which the first tokens are in use.
#[derive(Clone, Debug)]
struct Block {
    keys: Tensor,
    values: Tensor,
    /// The number of tokens in use, which is that of the cache between two calls.
    len: usize,
}

/// The queries `[batch, .., 1, size]` attend to the keys of a block up to their own.
fn attend_block(block: &Block, step: &Step, query: &Tensor, options: BlockAttention) -> Result<Tensor> {
    let grouped = query.rank() == 5;
    let heads = |x: &Tensor, dim| if grouped { x.squeeze(dim) } else { Ok(x.clone()) };
    let visible = VisibleKeys { lengths: Some(&step.len), starts: step.padding.as_ref(), window: options.window };
    let scale = options.scale.unwrap_or_else(|| (query.shape()[query.rank() - 1].max(1) as f64).sqrt().recip());
    let (query, key, value) = (heads(query, 3)?, heads(&block.keys, 2)?, heads(&block.values, 2)?);
    let out = cached_attention(&query, &key, &value, visible, scale, options.cap)?;
    if grouped { out.unsqueeze(3) } else { Ok(out) }
}

impl KeyValueCache {
    /// An empty cache, whose memory grows with the number of tokens.
    ///
    /// ```
    /// use cotangent::models::KeyValueCache;
    /// assert_eq!(KeyValueCache::new().len(), 0);
    /// ```
    pub fn new() -> KeyValueCache {
        KeyValueCache { keeps: true, ..KeyValueCache::default() }
    }

    /// An empty cache for at most `tokens` tokens of each sequence: more are an error. Its memory is allocated by the first call.
    ///
    /// ```
    /// use cotangent::models::KeyValueCache;
    /// assert_eq!(KeyValueCache::with_capacity(128).capacity(), Some(128));
    /// ```
    pub fn with_capacity(tokens: usize) -> KeyValueCache {
        KeyValueCache { capacity: Some(tokens), ..KeyValueCache::new() }
    }

    /// An empty cache for prompts of different lengths in one batch: sequence `i` starts with `padding[i]` tokens of padding,
    /// which no other token attends to, and which do not count as positions.
    ///
    /// ```
    /// use cotangent::models::{CausalModel, Gpt2, Gpt2Config, KeyValueCache};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let mut cache = KeyValueCache::new().with_padding(&[0, 2])?;
    /// let both = model.forward_cached(&tensor!([[3, 1, 4], [0, 0, 4]])?, &mut cache)?;
    /// let alone = model.forward(&tensor!([[4]])?)?;
    /// assert!(both.narrow(0, 1, 1)?.narrow(1, 2, 1)?.allclose_with(&alone, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the cache has tokens: their positions would change.
    pub fn with_padding(mut self, padding: &[usize]) -> Result<KeyValueCache> {
        if !self.is_empty() {
            bail!(Value, "with_padding", "the cache must be empty, got one with {} tokens", self.len);
        }
        self.padding = if padding.iter().all(|&count| count == 0) { Vec::new() } else { padding.to_vec() };
        Ok(self)
    }

    /// A cache that keeps nothing, for a sequence that is computed as a whole.
    pub(super) fn none() -> KeyValueCache {
        KeyValueCache::default()
    }

    /// The number of tokens so far, padding included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no tokens so far.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest number of tokens, if there is one.
    pub fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    /// Removes all tokens but the first `len`. Has no effect if there are not more.
    ///
    /// ```
    /// use cotangent::models::{CausalModel, Gpt2, Gpt2Config, KeyValueCache};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let mut cache = KeyValueCache::new();
    /// model.forward_cached(&tensor!([[3, 1, 4]])?, &mut cache)?;
    /// cache.truncate(2)?;
    /// assert_eq!(cache.len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// For the state of a recurrent model, which has no single tokens.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len >= self.len {
            return Ok(());
        }
        if self.state.is_some() {
            bail!(
                Value,
                "truncate",
                "the state of a recurrent model cannot be truncated to {len} of {} tokens",
                self.len
            );
        }
        let text = Tensor::cat(&self.text, 1)?.narrow(1, 0, len)?;
        self.blocks.iter_mut().for_each(|block| block.len = len);
        (self.len, self.text) = (len, vec![text]);
        Ok(())
    }

    /// Repeats each sequence, so that `count` continuations of it are adjacent.
    pub(super) fn repeat(&mut self, count: usize) -> Result<()> {
        for block in &mut self.blocks {
            let room = self.capacity.unwrap_or(block.len.next_power_of_two().max(LEAST)).max(block.len);
            for kept in [&mut block.keys, &mut block.values] {
                *kept = with_room(&repeat_rows(&kept.narrow(-2, 0, block.len)?, 0, count)?, room)?;
            }
        }
        if let Some((h, c)) = &self.state {
            self.state = Some((repeat_rows(h, 1, count)?, repeat_rows(c, 1, count)?));
        }
        for text in &mut self.text {
            *text = repeat_rows(text, 0, count)?;
        }
        self.padding = self.padding.iter().flat_map(|&padding| vec![padding; count]).collect();
        Ok(())
    }

    /// Checks that `steps` more tokens of `batch` sequences fit, before a model computes anything.
    pub(super) fn check(&self, op: &'static str, batch: usize, steps: usize) -> Result<()> {
        let all = self.len + steps;
        if let Some(most) = self.capacity
            && all > most
        {
            bail!(Value, op, "the capacity of the cache must be at least {all} tokens, got {most}");
        }
        if !self.padding.is_empty() && self.padding.len() != batch {
            bail!(Value, op, "with_padding has {} sequences, but tokens have {batch}", self.padding.len());
        }
        // A call that failed between two blocks.
        if self.blocks.iter().any(|block| block.len != self.len) {
            bail!(Value, op, "a call with this cache has failed: start again with a new cache");
        }
        Ok(())
    }

    /// The positions of the next `steps` tokens: `[steps]`, or `[batch, steps]` with padding, whose own positions are 0.
    pub(super) fn positions(&self, steps: usize, dtype: DType, device: Device) -> Result<Tensor> {
        if let Some(Step { position, padding, .. }) = &self.step {
            return match padding {
                None => position.to_dtype(dtype),
                Some(padding) => position.sub(padding)?.clamp_min(0)?.unsqueeze(1)?.to_dtype(dtype),
            };
        }
        let (first, end) = (self.len as i64, (self.len + steps) as i64);
        if self.padding.is_empty() {
            return Tensor::arange_with(first, end, (dtype, device));
        }
        let starts = self.padding.iter().map(|&count| count as i64);
        let all: Vec<i64> = starts.flat_map(|start| (first..end).map(move |at| (at - start).max(0))).collect();
        Tensor::from_vec(all, [self.padding.len(), steps])?.to_dtype(dtype)?.to_device(device)
    }

    /// The number of padding tokens of each sequence, or an empty slice.
    pub(super) fn padding(&self) -> &[usize] {
        &self.padding
    }

    /// Whether a text, `[batch, steps]`, starts with the tokens so far.
    pub(super) fn is_start_of(&self, text: &Tensor) -> Result<bool> {
        if self.is_empty() {
            return Ok(true);
        }
        let (own, start) = (Tensor::cat(&self.text, 1)?, text.narrow(1, 0, self.len)?);
        Ok(own.shape() == start.shape() && own.equal(&start.to_device(own.device())?)?)
    }

    /// Counts the tokens of a call, `[batch, steps]`.
    pub(super) fn advance(&mut self, tokens: &Tensor) -> Result<()> {
        // The caller of a recorded step counts its tokens: see `finish_step`.
        if self.keeps && self.step.is_none() {
            self.text.push(tokens.to_dtype(DType::I64)?);
            self.len += tokens.shape()[1];
        }
        Ok(())
    }

    /// The state of a recurrent model after the tokens so far.
    pub(super) fn state(&self) -> Option<(&Tensor, &Tensor)> {
        self.state.as_ref().map(|(h, c)| (h, c))
    }

    /// Keeps the state of a recurrent model after more tokens.
    pub(super) fn keep_state(&mut self, state: (Tensor, Tensor), tokens: &Tensor) -> Result<()> {
        self.advance(tokens)?;
        if self.keeps {
            self.state = Some(state);
        }
        Ok(())
    }

    /// Causal attention of block `at`: queries `[batch, .., steps, size]` attend to the cached keys and values and to their own.
    pub(super) fn attend(&mut self, at: usize, query: &Tensor, key: Tensor, value: Tensor) -> Result<Tensor> {
        if let Some(out) = self.attend_step(at, query, &key, &value, BlockAttention::default())? {
            return Ok(out);
        }
        let (key, value, mask) = self.visible(at, query, key, value, None)?;
        let steps = query.shape()[query.rank() - 2];
        let mut options = AttentionOptions::new().is_causal(mask.is_none() && steps > 1);
        if let Some(mask) = &mask {
            options = options.attn_mask(mask);
        }
        query.scaled_dot_product_attention_with(&key, &value, options)
    }

    /// Attention of block `at` in a step that is recorded; `None` in others. Queries are `[batch, heads, 1, size]`, or
    /// `[batch, groups, heads of a group, 1, size]` with keys `[batch, groups, 1, 1, size]`.
    pub(super) fn attend_step(
        &mut self,
        at: usize,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: BlockAttention,
    ) -> Result<Option<Tensor>> {
        let Some(step) = &self.step else { return Ok(None) };
        let Some(block) = self.blocks.get_mut(at) else {
            bail!(Value, "KeyValueCache", "the cache must be that of this model, got one with {at} blocks");
        };
        write_tokens([&mut block.keys, &mut block.values], [key, value], &step.position)?;
        attend_block(block, step, query, options).map(Some)
    }

    /// As [`attend_step`](Self::attend_step), for queries and keys that are not yet rotated by their angles; `None`, without any
    /// effect, where there is no kernel that rotates them.
    pub(super) fn attend_rotated_step(
        &mut self,
        at: usize,
        [query, key, value]: [&Tensor; 3],
        angles: [&Tensor; 2],
        options: BlockAttention,
    ) -> Result<Option<Tensor>> {
        let (Some(step), Some(block)) = (&self.step, self.blocks.get_mut(at)) else { return Ok(None) };
        let caches = [&mut block.keys, &mut block.values];
        let Some(query) = rotate_tokens(caches, [query, key, value], angles, &step.position)? else { return Ok(None) };
        attend_block(block, step, &query, options).map(Some)
    }

    /// Begins a step whose position is data on the device, of i64, `[1]`: what a model then does can be recorded and replayed.
    #[cfg(feature = "cuda")]
    pub(super) fn begin_step(&mut self, position: &Tensor, padding: Option<&Tensor>) -> Result<()> {
        let (position, len) = (position.clone(), position.add(1)?);
        self.step = Some(Step { position, len, padding: padding.cloned() });
        Ok(())
    }

    /// Ends the recording of a step. The cache has the same number of tokens as before.
    #[cfg(feature = "cuda")]
    pub(super) fn end_step(&mut self) {
        self.step = None;
    }

    /// Counts the token `[batch, 1]` of a step that was run or replayed.
    #[cfg(feature = "cuda")]
    pub(super) fn finish_step(&mut self, token: &Tensor) -> Result<()> {
        self.advance(token)?;
        self.blocks.iter_mut().for_each(|block| block.len = self.len);
        Ok(())
    }

    /// Allocates memory for `tokens` tokens, if there is less, or doubles it.
    #[cfg(feature = "cuda")]
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<()> {
        for block in &mut self.blocks {
            grow(&mut block.keys, self.len, tokens)?;
            grow(&mut block.values, self.len, tokens)?;
        }
        Ok(())
    }

    /// The number of tokens that fit into the memory; 0 for the state of a recurrent model.
    #[cfg(feature = "cuda")]
    pub(super) fn room(&self) -> usize {
        self.blocks.iter().map(|block| block.keys.shape()[block.keys.rank() - 2]).min().unwrap_or(0)
    }

    /// Keeps the keys and values of block `at`, and returns those that any of the queries attends to: with a window, each attends
    /// to its own token and the `window - 1` before it. Without a mask, attention is causal.
    pub(super) fn visible(
        &mut self,
        at: usize,
        query: &Tensor,
        key: Tensor,
        value: Tensor,
        window: Option<usize>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let steps = query.shape()[query.rank() - 2];
        let (mut key, mut value) = self.append(at, key, value)?;
        let all = key.shape()[key.rank() - 2];
        let first = window.map_or(0, |window| all.saturating_sub(steps.saturating_add(window).saturating_sub(1)));
        if first > 0 {
            key = key.narrow(-2, first, all - first)?;
            value = value.narrow(-2, first, all - first)?;
        }
        let mask = self.mask(query, steps, (first, all), window)?;
        Ok((key, value, mask))
    }

    /// The mask of `steps` queries over the keys `first..all`, where the causal mask of a whole sequence is not enough.
    fn mask(
        &self,
        query: &Tensor,
        steps: usize,
        (first, all): (usize, usize),
        window: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let (device, keys) = (query.device(), all - first);
        // The first query's own key.
        let own = keys as isize - steps as isize;
        let window = window.filter(|&window| window < keys);
        let causal = || {
            let before = Tensor::ones_with([steps, keys], (DType::Bool, device))?.tril(own)?;
            match window {
                Some(window) => before.triu(own + 1 - window as isize),
                None => Ok(before),
            }
        };
        if self.padding.is_empty() {
            return (steps > 1 && (own > 0 || window.is_some())).then(causal).transpose();
        }
        let padding: Vec<i64> = self.padding.iter().map(|&count| count as i64).collect();
        let mut shape = vec![1; query.rank()];
        shape[0] = padding.len();
        let start = Tensor::from_vec(padding, shape)?.to_device(device)?;
        let known = Tensor::arange_with(first as i64, all as i64, (DType::I64, device))?.ge(&start)?;
        if steps == 1 { Ok(Some(known)) } else { known.logical_and(&causal()?).map(Some) }
    }

    /// The keys and values of all tokens so far and of these, which are kept.
    fn append(&mut self, at: usize, key: Tensor, value: Tensor) -> Result<(Tensor, Tensor)> {
        if !self.keeps {
            return Ok((key, value));
        }
        let steps = key.shape()[key.rank() - 2];
        let (len, all) = (self.len, self.len + steps);
        let Some(block) = self.blocks.get_mut(at) else {
            if at != self.blocks.len() || len != 0 {
                bail!(
                    Value,
                    "KeyValueCache",
                    "the cache must be that of this model, got one with {} blocks",
                    self.blocks.len()
                );
            }
            let room = self.capacity.unwrap_or(all.next_power_of_two().max(LEAST));
            self.blocks.push(Block { keys: with_room(&key, room)?, values: with_room(&value, room)?, len: all });
            return Ok((key, value));
        };
        let expected = |kept: &Tensor, new: &Tensor| -> Result<()> {
            let other =
                |x: &Tensor| (x.shape()[..x.rank() - 2].to_vec(), x.shape()[x.rank() - 1], x.dtype(), x.device());
            if other(kept) != other(new) {
                let (new, kept) = (new.shape(), kept.shape());
                bail!(Shape, "KeyValueCache", "keys and values must fit those in the cache, got {new:?} for {kept:?}");
            }
            Ok(())
        };
        expected(&block.keys, &key)?;
        expected(&block.values, &value)?;
        let graph = |x: &Tensor| x.requires_grad();
        if autograd::is_grad_enabled() && [&block.keys, &block.values, &key, &value].into_iter().any(graph) {
            // In a graph each call has its own keys: what earlier ones have saved does not change.
            block.keys = Tensor::cat(&[&block.keys.narrow(-2, 0, len)?, &key], -2)?;
            block.values = Tensor::cat(&[&block.values.narrow(-2, 0, len)?, &value], -2)?;
        } else {
            write(&mut block.keys, len, &key)?;
            write(&mut block.values, len, &value)?;
        }
        block.len = all;
        Ok((block.keys.narrow(-2, 0, all)?, block.values.narrow(-2, 0, all)?))
    }
}

/// The tensor with each row of a dimension `count` times.
pub(super) fn repeat_rows(x: &Tensor, dim: usize, count: usize) -> Result<Tensor> {
    if count == 1 {
        return Ok(x.clone());
    }
    let x = x.unsqueeze(dim as isize + 1)?;
    let mut shape = x.shape().to_vec();
    shape[dim + 1] = count;
    x.expand(shape)?.flatten(dim as isize, dim as isize + 1)?.contiguous()
}

/// A tensor with memory for `room` tokens, of which the first are those of `x`.
fn with_room(x: &Tensor, room: usize) -> Result<Tensor> {
    if autograd::is_grad_enabled() && x.requires_grad() {
        return Ok(x.clone());
    }
    let mut shape = x.shape().to_vec();
    let tokens = shape.len() - 2;
    shape[tokens] = room;
    let mut all = Tensor::zeros_with(shape, (x.dtype(), x.device()))?;
    all.set(s![Ellipsis, ..x.shape()[tokens], ..], x)?;
    Ok(all)
}

/// Writes tokens after the first `len`, in place unless others share the memory. Doubles the memory where there is too little.
fn write(kept: &mut Tensor, len: usize, new: &Tensor) -> Result<()> {
    let tokens = kept.rank() - 2;
    let all = len + new.shape()[tokens];
    grow(kept, len, all)?;
    kept.set(s![Ellipsis, len..all, ..], new)
}

/// Doubles the memory where there is too little for `all` tokens, of which the first `len` are kept.
fn grow(kept: &mut Tensor, len: usize, all: usize) -> Result<()> {
    if all > kept.shape()[kept.rank() - 2] {
        *kept = with_room(&kept.narrow(-2, 0, len)?.detach(), all.next_power_of_two().max(LEAST))?;
    }
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_a_failed_call_has_left_is_refused() -> Result<()> {
        let (mut cache, x) = (KeyValueCache::new(), Tensor::ones([1, 2, 4])?);
        // The call has failed before it counted its tokens.
        cache.attend(0, &x, x.clone(), x.clone())?;
        assert!(cache.check("test", 1, 2).is_err());
        Ok(())
    }

    #[test]
    fn keys_are_written_where_they_stay_and_clones_are_apart() -> Result<()> {
        let one = |value: f64| Tensor::full([1, 1, 2], value);
        let mut cache = KeyValueCache::with_capacity(3);
        let append = |cache: &mut KeyValueCache, value: f64| -> Result<Vec<f32>> {
            let (keys, _) = cache.append(0, one(value)?, one(-value)?)?;
            cache.advance(&Tensor::zeros_with([1, 1], DType::I64)?)?;
            keys.select(-1, 0)?.to_vec()
        };
        append(&mut cache, 1.0)?;
        let memory = cache.blocks[0].keys.data_ptr()?;
        assert_eq!(append(&mut cache, 2.0)?, [1.0, 2.0]);
        let mut other = cache.clone();
        assert_eq!(append(&mut cache, 3.0)?, [1.0, 2.0, 3.0]);
        assert_eq!(append(&mut other, 4.0)?, [1.0, 2.0, 4.0]);
        assert_eq!(other.blocks[0].keys.data_ptr()?, memory, "the last of two clones has the memory");
        assert_eq!(cache.blocks[0].keys.narrow(-2, 0, 3)?.select(-1, 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
        assert!(cache.check("test", 1, 1).is_err());
        cache.truncate(1)?;
        assert_eq!(append(&mut cache, 5.0)?, [1.0, 5.0]);
        Ok(())
    }
}
