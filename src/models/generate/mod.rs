//! Autoregressive generation, token by token.

mod beams;
mod defaults;
mod options;
#[cfg(feature = "cuda")]
mod recorded;
mod sampling;
mod speculate;
mod stream;

pub use options::{EndTokens, GenerateOptions};
pub use speculate::{Speculation, speculate};
pub use stream::{Generation, GenerationStep};

use super::cache::KeyValueCache;
use crate::{Result, Tensor, autograd};

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

    /// As [`forward_cached`](Self::forward_cached), but computes the logits after the last token only: `[batch, vocab_size]`.
    ///
    /// # Errors
    /// As there; also if there are no tokens.
    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.forward_cached(tokens, cache)?.select(1, -1)
    }

    /// The greatest number of tokens up to which a [`Generation`] on a GPU may record the step of one token as a `CudaGraph`, and
    /// replay it for each token. By default `None`: steps are not recorded, for a model may do what cannot be recorded.
    fn recordable_steps(&self) -> Option<usize> {
        None
    }
}

/// Generates up to `count` tokens after `tokens`, `[batch, steps]`, each the most probable one, and returns all tokens. Set a model
/// with dropout to evaluation mode first: see [`Module::eval`](crate::nn::Module::eval).
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
/// If the model fails, `tokens` has no step, or logits are NaN.
#[track_caller]
pub fn generate(model: &(impl CausalModel + ?Sized), tokens: &Tensor, count: usize) -> Result<Tensor> {
    generate_with(model, tokens, count, GenerateOptions::new())
}

/// As [`generate`](crate::models::generate), with options: see [`GenerateOptions`](crate::models::GenerateOptions). If all sequences
/// end before, there are fewer than `count` new tokens. A [`Generation`](crate::models::Generation) gives the tokens one by one.
///
/// ```
/// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, generate_with};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let options = GenerateOptions::new().temperature(1.0).top_k(5).seed(0);
/// assert_eq!(generate_with(&model, &tensor!([[3, 1]])?, 5, options)?.shape(), [1, 7]);
///
/// // Two prompts of different lengths.
/// let options = GenerateOptions::new().padding([0, 1]).beams(2);
/// assert_eq!(generate_with(&model, &tensor!([[3, 1], [0, 4]])?, 5, options)?.shape(), [2, 7]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As there; also if an option is out of range, or does not fit another one.
#[track_caller]
pub fn generate_with(
    model: &(impl CausalModel + ?Sized),
    tokens: &Tensor,
    count: usize,
    options: impl Into<GenerateOptions>,
) -> Result<Tensor> {
    Ok(generate_scored(model, tokens, count, options)?.tokens)
}

/// The result of [`generate_scored`](crate::models::generate_scored).
///
/// ```
/// use cotangent::models::{Generated, GenerateOptions, Gpt2, Gpt2Config, generate_scored};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let Generated { tokens, log_probs } = generate_scored(&model, &tensor!([[3, 1]])?, 5, GenerateOptions::new())?;
/// assert_eq!((tokens.shape(), log_probs.shape()), (&[1, 7][..], &[1, 5][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Generated {
    /// All tokens: `i64`, `[batch, steps + new]`.
    pub tokens: Tensor,
    /// The log-probability of each new token, `[batch, new]`: under the model's own distribution, before penalties, temperature
    /// and other options change it. It is 0 after the end of a sequence.
    pub log_probs: Tensor,
}

/// As [`generate_with`](crate::models::generate_with), and also returns the log-probabilities of the new tokens.
///
/// ```
/// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, generate_scored};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let generated = generate_scored(&model, &tensor!([[3, 1]])?, 5, GenerateOptions::new())?;
/// let score = generated.log_probs.sum(-1)?.item::<f32>()?;
/// assert!(score < 0.0);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As there.
#[track_caller]
pub fn generate_scored(
    model: &(impl CausalModel + ?Sized),
    tokens: &Tensor,
    count: usize,
    options: impl Into<GenerateOptions>,
) -> Result<Generated> {
    let options = options.into();
    options.check()?;
    if options.beams > 1 {
        return autograd::no_grad(|| beams::search(model, tokens, count, &options));
    }
    let (_, steps) = stream::shape_of(tokens)?;
    let cache = KeyValueCache::with_capacity(steps.saturating_add(count));
    let mut generation = Generation::with_cache(model, cache, tokens, options)?;
    for step in generation.by_ref().take(count) {
        step?;
    }
    let log_probs = generation.log_probs()?;
    stream::check_logits(&log_probs)?;
    Ok(Generated { tokens: generation.tokens()?, log_probs })
}
