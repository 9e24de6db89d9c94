//! Autoregressive generation, token by token.

use super::cache::KeyValueCache;
use crate::error::bail;
use crate::options::options;
use crate::{DType, Result, Tensor, autograd};

/// A model that computes the logits of the next token for every token.
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
    /// Computes the logits `[batch, steps, vocab_size]` of tokens `[batch, steps]`, which follow those in the cache.
    ///
    /// # Errors
    /// If a token is out of range, or the sequence is too long.
    fn forward_cached(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor>;
}

options! {
    /// The options of [`generate_with`](crate::models::generate_with).
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// let options = GenerateOptions::new().temperature(0.8).top_k(40).end(2);
    /// ```
    pub struct GenerateOptions {
        /// The divisor of the logits before sampling; 0 takes the most probable token.
        temperature: f64 = 0.0,
        /// The number of most probable tokens to sample from; by default all.
        top_k: Option<usize> = None,
        /// The token that ends a sequence. The tokens after it are the same token.
        end: Option<i64> = None,
    }
}

/// Generates `count` tokens after `tokens`, `[batch, steps]`, each the most probable one, and returns all tokens. Set a model with
/// dropout to evaluation mode first: see [`Module::eval`](crate::nn::Module::eval).
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
/// If the model fails, or `tokens` has no step.
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
/// As there; also if `temperature` is negative or not finite, or `top_k` is 0.
#[track_caller]
pub fn generate_with(
    model: &impl CausalModel,
    tokens: &Tensor,
    count: usize,
    options: impl Into<GenerateOptions>,
) -> Result<Tensor> {
    const OP: &str = "generate";
    let options = options.into();
    if !(options.temperature >= 0.0 && options.temperature.is_finite()) {
        bail!(Value, OP, "temperature must be finite and ≥ 0, got {}", options.temperature);
    }
    if options.top_k == Some(0) {
        bail!(Value, OP, "top_k must be ≥ 1, got 0");
    }
    let &[batch, steps] = tokens.shape() else {
        bail!(Shape, OP, "tokens must have shape [batch, steps], got {:?}", tokens.shape());
    };
    if steps == 0 {
        bail!(Shape, OP, "tokens must have at least one step, got shape {:?}", tokens.shape());
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
    let (values, positions) = scaled.topk(k, -1)?;
    positions.gather(1, &values.softmax(-1)?.multinomial(1, false)?)
}
