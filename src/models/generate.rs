//! Text from a model, token by token.

use crate::error::bail;
use crate::options::options;
use crate::{AttentionOptions, DType, Result, Tensor, autograd};

/// A model that gives the logits of the next token for every token.
///
/// ```
/// use cotangent::models::{CausalModel, Gpt2, Gpt2Config, KeyValueCache};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let mut cache = KeyValueCache::new();
/// model.forward_cached(&tensor!([[3, 1]])?, &mut cache)?;
/// let last = model.forward_cached(&tensor!([[4]])?, &mut cache)?;
/// let all = model.forward(&tensor!([[3, 1, 4]])?)?;
/// assert!(last.allclose_with(&all.narrow(1, 2, 1)?, (1e-4, 1e-5))?);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait CausalModel {
    /// Tokens `[batch, steps]`, which come after those that the cache has seen, to logits `[batch, steps, tokens]`.
    ///
    /// # Errors
    /// If a token or a position is not in the model's tables.
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor>;
}

/// The keys and values of all tokens so far, for each block of a model; of a recurrent one its last state.
///
/// ```
/// use cotangent::models::KeyValueCache;
/// assert_eq!(KeyValueCache::new().len(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    blocks: Vec<(Tensor, Tensor)>,
    len: usize,
    /// Whether keys and values are kept at all.
    keeps: bool,
}

impl KeyValueCache {
    /// An empty one.
    pub fn new() -> KeyValueCache {
        KeyValueCache { keeps: true, ..KeyValueCache::default() }
    }

    /// One that keeps nothing, for a sequence that is computed as a whole.
    pub(super) fn none() -> KeyValueCache {
        KeyValueCache::default()
    }

    /// How many tokens it has seen.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has seen none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn advance(&mut self, steps: usize) {
        if self.keeps {
            self.len += steps;
        }
    }

    /// The state of a recurrent model after the tokens so far.
    pub(super) fn state(&self) -> Option<(&Tensor, &Tensor)> {
        self.blocks.first().map(|(h, c)| (h, c))
    }

    /// Keeps the state of a recurrent model after `steps` more tokens.
    pub(super) fn keep_state(&mut self, state: (Tensor, Tensor), steps: usize) {
        if self.keeps {
            self.blocks = vec![state];
        }
        self.advance(steps);
    }

    /// Causal attention of the block at this place: queries `[.., steps, size]` to the keys and values before them and their
    /// own.
    pub(super) fn attend(&mut self, at: usize, query: &Tensor, key: Tensor, value: Tensor) -> Result<Tensor> {
        let steps = query.shape()[query.rank() - 2];
        if let Some((keys, _)) = self.blocks.get(at)
            && keys.shape()[keys.rank() - 2] != self.len
        {
            bail!(Value, "KeyValueCache", "a call with this cache has failed: begin with a new one");
        }
        let (key, value) = match self.blocks.get(at) {
            Some((keys, values)) => (Tensor::cat(&[keys, &key], -2)?, Tensor::cat(&[values, &value], -2)?),
            None => (key, value),
        };
        let options = AttentionOptions::new();
        let all = key.shape()[key.rank() - 2];
        let out = if all == steps {
            query.scaled_dot_product_attention_with(&key, &value, options.is_causal(true))?
        } else if steps == 1 {
            query.scaled_dot_product_attention_with(&key, &value, options)?
        } else {
            let seen = Tensor::ones_with([steps, all], (DType::Bool, query.device()))?.tril((all - steps) as isize)?;
            query.scaled_dot_product_attention_with(&key, &value, options.attn_mask(&seen))?
        };
        if self.keeps {
            if at < self.blocks.len() {
                self.blocks[at] = (key, value);
            } else {
                self.blocks.push((key, value));
            }
        }
        Ok(out)
    }
}

options! {
    /// The options of [`generate_with`](crate::models::generate_with).
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// let options = GenerateOptions::new().temperature(0.8).top_k(40).end(2);
    /// ```
    pub struct GenerateOptions {
        /// What logits are divided by before a token is drawn; 0 takes the most probable one.
        temperature: f64 = 0.0,
        /// How many of the most probable tokens one is drawn from; by default all.
        top_k: Option<usize> = None,
        /// The token that ends a sequence: what comes after it is that token again.
        end: Option<i64> = None,
    }
}

/// So many more tokens after those of `tokens`, `[batch, steps]`, each the most probable one. A model with dropout is to be in
/// evaluation: see [`Module::eval`](crate::nn::Module::eval).
///
/// ```
/// use cotangent::models::{Gpt2, Gpt2Config, generate};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// assert_eq!(generate(&model, &tensor!([[3, 1]])?, 5)?.shape(), [1, 7]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As the model's; also if there is no token to begin with.
#[track_caller]
pub fn generate(model: &impl CausalModel, tokens: &Tensor, count: usize) -> Result<Tensor> {
    generate_with(model, tokens, count, GenerateOptions::new())
}

/// As [`generate`](crate::models::generate), with options: see [`GenerateOptions`](crate::models::GenerateOptions).
///
/// ```
/// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, generate_with};
/// use cotangent::tensor;
/// cotangent::manual_seed(0);
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let options = GenerateOptions::new().temperature(1.0).top_k(5);
/// assert_eq!(generate_with(&model, &tensor!([[3, 1]])?, 5, options)?.shape(), [1, 7]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As there; also if the temperature is negative or not a number, or `top_k` is 0.
#[track_caller]
pub fn generate_with(
    model: &impl CausalModel,
    tokens: &Tensor,
    count: usize,
    options: impl Into<GenerateOptions>,
) -> Result<Tensor> {
    const OP: &str = "generate";
    let options = options.into();
    if !(options.temperature >= 0.0 && options.temperature.is_finite()) || options.top_k == Some(0) {
        bail!(Value, OP, "temperature {} and top_k {:?}", options.temperature, options.top_k);
    }
    let &[batch, steps] = tokens.shape() else {
        bail!(Shape, OP, "tokens of shape {:?}, they must be [batch, steps]", tokens.shape());
    };
    if steps == 0 {
        bail!(Shape, OP, "no token to begin with: shape {:?}", tokens.shape());
    }
    autograd::no_grad(|| {
        let (mut all, mut cache) = (tokens.to_dtype(DType::I64)?, KeyValueCache::new());
        let mut given = all.clone();
        let mut ended = Tensor::zeros_with([batch, 1], (DType::Bool, tokens.device()))?;
        for _ in 0..count {
            let logits = model.forward_cached(&given, &mut cache)?;
            let logits = logits.select(1, given.shape()[1] - 1)?;
            let mut next = next_token(&logits, &options)?;
            if let Some(end) = options.end {
                next = ended.where_(end, &next)?;
                ended = next.eq(end)?;
            }
            all = Tensor::cat(&[&all, &next], 1)?;
            given = next;
        }
        Ok(all)
    })
}

/// The next token of each sequence, from logits `[batch, tokens]`: `[batch, 1]`.
fn next_token(logits: &Tensor, options: &GenerateOptions) -> Result<Tensor> {
    if options.temperature == 0.0 {
        return logits.argmax(crate::keepdim(-1));
    }
    let scaled = logits.to_dtype(DType::F32)?.div(options.temperature)?;
    let Some(k) = options.top_k.filter(|&k| k < logits.shape()[1]) else {
        return scaled.softmax(-1)?.multinomial(1, false);
    };
    let (values, places) = scaled.topk(k, -1)?;
    places.gather(1, &values.softmax(-1)?.multinomial(1, false)?)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_a_call_has_left_behind_is_refused() -> Result<()> {
        let (mut cache, x) = (KeyValueCache::new(), Tensor::ones([1, 2, 4])?);
        // The call did not get as far as to say how many tokens it has seen.
        cache.attend(0, &x, x.clone(), x.clone())?;
        assert!(cache.attend(0, &x, x.clone(), x.clone()).is_err());
        Ok(())
    }
}
