//! Generation step by step.

use super::CausalModel;
use super::options::{GenerateOptions, OP};
#[cfg(feature = "cuda")]
use super::recorded::{self, RecordedStep};
use super::sampling::{Penalties, Sampler, wide};
use crate::error::bail;
use crate::models::cache::{KeyValueCache, repeat_rows};
use crate::shared::MaybeShared;
use crate::{DType, Device, Result, Tensor, autograd, keepdim};
use std::sync::Arc;

/// One step of a [`Generation`](crate::models::Generation).
///
/// ```
/// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let mut generation = Generation::new(&model, &tensor!([[3, 1], [4, 1]])?, GenerateOptions::new())?;
/// let step = generation.next().ok_or("a step")??;
/// assert_eq!((step.tokens.shape(), step.log_probs.shape()), (&[2][..], &[2][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GenerationStep {
    /// The next token of each sequence: `i64`, `[batch]`.
    pub tokens: Tensor,
    /// The log-probability of each of these tokens, `[batch]`: under the model's own distribution, before penalties, temperature
    /// and other options change it. It is 0 for sequences that have ended before, and on a GPU NaN if the model's logits are: on
    /// the CPU these are an error.
    pub log_probs: Tensor,
}

/// Text generation as an iterator, which gives a [`GenerationStep`](crate::models::GenerationStep) for each step.
///
/// It ends when all sequences have ended: see [`end`](crate::models::GenerateOptions::end) and
/// [`stop`](crate::models::GenerateOptions::stop). Without them it does not end; use [`take`](Iterator::take). After an error it
/// ends, too. Nothing is recorded for derivatives.
///
/// On a GPU the step of one token is recorded as a `CudaGraph` and replayed, if the model allows it: see
/// [`recordable_steps`](crate::models::CausalModel::recordable_steps).
///
/// ```
/// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
/// use cotangent::tensor;
/// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
/// let options = GenerateOptions::new().temperature(0.8).seed(0);
/// for step in Generation::new(&model, &tensor!([[3, 1]])?, options)?.take(5) {
///     let token = step?.tokens.item::<i64>()?;
///     assert!((0..50).contains(&token));
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Generation<'a, M: ?Sized> {
    model: MaybeShared<'a, M>,
    options: GenerateOptions,
    /// The step of one token on a GPU. It is dropped before the cache whose memory it uses.
    #[cfg(feature = "cuda")]
    recorded: Option<RecordedStep>,
    cache: KeyValueCache,
    penalties: Penalties,
    sampler: Sampler,
    /// The prompt, and the tokens of each step.
    text: Vec<Tensor>,
    log_probs: Vec<Tensor>,
    /// The tokens that are not in the cache yet.
    given: Tensor,
    /// The generated tokens of each sequence, if they can end.
    read: Vec<Vec<i64>>,
    ended: Vec<bool>,
    is_done: bool,
}

impl<'a, M: CausalModel + ?Sized> Generation<'a, M> {
    /// Continues a prompt, `[batch, steps]`. Set a model with dropout to evaluation mode first: see
    /// [`Module::eval`](crate::nn::Module::eval).
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let generation = Generation::new(&model, &tensor!([[3, 1]])?, GenerateOptions::new())?;
    /// assert_eq!(generation.take(3).count(), 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `tokens` are not integers or have no step; if an option is out of range, or does not fit another one; or with `beams`
    /// above 1, since a beam search knows its tokens only at its end.
    #[track_caller]
    pub fn new(model: &'a M, tokens: &Tensor, options: impl Into<GenerateOptions>) -> Result<Generation<'a, M>> {
        Generation::with_cache(model, KeyValueCache::new(), tokens, options)
    }

    /// As [`new`](Self::new), where the cache already has the first of the tokens: they are not computed again. `tokens` are the
    /// whole text, with those in the cache, and at least one more.
    ///
    /// This continues a conversation:
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config, KeyValueCache};
    /// use cotangent::{Tensor, tensor};
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let (mut text, mut cache) = (tensor!([[3, 1]])?, KeyValueCache::with_capacity(32));
    /// for question in [tensor!([[4, 1]])?, tensor!([[5, 9, 2]])?] {
    ///     text = Tensor::cat(&[&text, &question], 1)?;
    ///     let mut generation = Generation::with_cache(&model, cache, &text, GenerateOptions::new())?;
    ///     for step in generation.by_ref().take(5) {
    ///         step?;
    ///     }
    ///     (text, cache) = (generation.tokens()?, generation.into_cache());
    /// }
    /// assert_eq!((text.shape(), cache.len()), (&[1, 17][..], 16));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there; also if the text does not start with the tokens in the cache, has no more, or has other padding.
    #[track_caller]
    pub fn with_cache(
        model: &'a M,
        cache: KeyValueCache,
        tokens: &Tensor,
        options: impl Into<GenerateOptions>,
    ) -> Result<Generation<'a, M>> {
        Generation::begin(MaybeShared::Borrowed(model), cache, tokens, options.into())
    }

    /// As [`with_cache`](Self::with_cache), with a counted reference to the model: the generation has no lifetime, so a thread or
    /// a struct can own it.
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config, KeyValueCache};
    /// use cotangent::tensor;
    /// use std::sync::Arc;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let (model, prompt) = (Arc::new(model), tensor!([[3, 1]])?);
    /// let generation = Generation::with_shared(model, KeyValueCache::new(), &prompt, GenerateOptions::new())?;
    /// let thread = std::thread::spawn(move || generation.take(3).count());
    /// assert_eq!(thread.join().ok(), Some(3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn with_shared(
        model: Arc<M>,
        cache: KeyValueCache,
        tokens: &Tensor,
        options: impl Into<GenerateOptions>,
    ) -> Result<Generation<'a, M>> {
        Generation::begin(MaybeShared::Shared(model), cache, tokens, options.into())
    }

    #[track_caller]
    fn begin(
        model: MaybeShared<'a, M>,
        cache: KeyValueCache,
        tokens: &Tensor,
        options: GenerateOptions,
    ) -> Result<Generation<'a, M>> {
        options.check()?;
        if options.beams > 1 {
            bail!(Value, OP, "beams must be 1 for a Generation, got {}: use generate_with", options.beams);
        }
        let (batch, steps) = shape_of(tokens)?;
        options.check_padding(batch, steps)?;
        if cache.len() >= steps {
            let len = cache.len();
            bail!(Value, OP, "tokens must have more steps than the cache, whose {len} they include, got {steps}");
        }
        let cache = padded(cache, &options.padding)?;
        autograd::no_grad(|| {
            let text = tokens.to_dtype(DType::I64)?;
            if !cache.is_start_of(&text)? {
                bail!(Value, OP, "tokens must start with the {} tokens in the cache, got others", cache.len());
            }
            let given = text.narrow(1, cache.len(), steps - cache.len())?;
            let samples = options.samples;
            let Some(rows) = batch.checked_mul(samples) else {
                bail!(Value, OP, "samples must be fewer, got {samples} of each of {batch} sequences");
            };
            let text = repeat_rows(&text, 0, samples)?;
            let padding: Vec<usize> = cache.padding().iter().flat_map(|&count| vec![count; samples]).collect();
            Ok(Generation {
                model,
                penalties: Penalties::new(&options, &text, &padding),
                sampler: Sampler::new(&options),
                given,
                text: vec![text],
                log_probs: Vec::new(),
                read: vec![Vec::new(); if options.has_end() { rows } else { 0 }],
                ended: vec![false; rows],
                is_done: false,
                options,
                #[cfg(feature = "cuda")]
                recorded: None,
                cache,
            })
        })
    }

    /// All tokens so far, those of the prompt and the generated ones.
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let mut generation = Generation::new(&model, &tensor!([[3, 1]])?, GenerateOptions::new())?;
    /// for step in generation.by_ref().take(5) {
    ///     step?;
    /// }
    /// assert_eq!(generation.tokens()?.shape(), [1, 7]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn tokens(&self) -> Result<Tensor> {
        Tensor::cat(&self.text, 1)
    }

    /// The log-probabilities of the tokens generated so far, `[batch, steps]`: see
    /// [`GenerationStep`](crate::models::GenerationStep).
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let mut generation = Generation::new(&model, &tensor!([[3, 1]])?, GenerateOptions::new())?;
    /// for step in generation.by_ref().take(5) {
    ///     step?;
    /// }
    /// assert_eq!(generation.log_probs()?.shape(), [1, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn log_probs(&self) -> Result<Tensor> {
        if self.log_probs.is_empty() {
            return Tensor::zeros_with([self.ended.len(), 0], (DType::F32, self.given.device()));
        }
        Tensor::cat(&self.log_probs, 1)
    }

    /// The cache, for [`with_cache`](Self::with_cache). It has all tokens but those of the last step, which the model has not
    /// seen yet. After an error it may be in the middle of a step, and a model then refuses it.
    ///
    /// ```
    /// use cotangent::models::{Generation, GenerateOptions, Gpt2, Gpt2Config};
    /// use cotangent::tensor;
    /// let model = Gpt2::new(&Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 1, n_head: 2, dropout: 0.0, ..Gpt2Config::default() })?;
    /// let mut generation = Generation::new(&model, &tensor!([[3, 1]])?, GenerateOptions::new())?;
    /// for step in generation.by_ref().take(5) {
    ///     step?;
    /// }
    /// assert_eq!(generation.into_cache().len(), 2 + 4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn into_cache(self) -> KeyValueCache {
        self.cache
    }

    /// The logits of the next token, `[batch, vocab_size]`.
    #[track_caller]
    fn logits(&mut self) -> Result<Tensor> {
        if self.options.samples > 1 && self.log_probs.is_empty() {
            // The prompt is computed once.
            let logits = wide(&self.model.next_logits(&self.given, &mut self.cache)?)?;
            self.cache.repeat(self.options.samples)?;
            return repeat_rows(&logits, 0, self.options.samples);
        }
        #[cfg(feature = "cuda")]
        if let Some(logits) = recorded::step(&mut self.recorded, &*self.model, &mut self.cache, &self.given)? {
            return Ok(logits);
        }
        wide(&self.model.next_logits(&self.given, &mut self.cache)?)
    }

    #[track_caller]
    fn step(&mut self) -> Result<GenerationStep> {
        let logits = self.logits()?;
        let mut next = self.sampler.next(&self.penalties.apply(&logits)?)?;
        let mut log_probs = logits.gather(1, &next)?.sub(&logits.logsumexp(keepdim(-1))?)?;
        if logits.device() == Device::Cpu {
            // A GPU would have to finish first.
            check_logits(&log_probs)?;
        }
        if self.ended.contains(&true) {
            let ended = Tensor::from_vec(self.ended.clone(), [self.ended.len(), 1])?.to_device(next.device())?;
            let last = self.given.narrow(1, -1, 1)?;
            next = ended.where_(&last, &next)?;
            log_probs = log_probs.masked_fill(&ended, 0.0)?;
        }
        self.penalties.add(&next)?;
        if !self.read.is_empty() {
            for ((token, read), ended) in next.to_vec::<i64>()?.into_iter().zip(&mut self.read).zip(&mut self.ended) {
                read.push(token);
                *ended = *ended || self.options.is_end(read);
            }
            self.is_done = !self.ended.contains(&false);
        }
        let step = GenerationStep { tokens: next.squeeze(1)?, log_probs: log_probs.squeeze(1)? };
        self.text.push(next.clone());
        self.log_probs.push(log_probs);
        self.given = next;
        Ok(step)
    }
}

impl<M: CausalModel + ?Sized> Iterator for Generation<'_, M> {
    type Item = Result<GenerationStep>;

    #[track_caller]
    fn next(&mut self) -> Option<Result<GenerationStep>> {
        if self.is_done {
            return None;
        }
        let step = autograd::no_grad(|| self.step());
        self.is_done |= step.is_err();
        Some(step)
    }
}

/// The shape `[batch, steps]` of a prompt.
#[track_caller]
pub(super) fn shape_of(tokens: &Tensor) -> Result<(usize, usize)> {
    let &[batch, steps] = tokens.shape() else {
        bail!(Shape, OP, "tokens must have shape [batch, steps], got {:?}", tokens.shape());
    };
    if steps == 0 {
        bail!(Shape, OP, "tokens must have at least one step, got shape {:?}", tokens.shape());
    }
    if !tokens.dtype().is_int() {
        bail!(DType, OP, "tokens must be integers, got {}", tokens.dtype());
    }
    Ok((batch, steps))
}

/// Fails if a model has no probabilities: the log-probabilities of its tokens are NaN then.
#[track_caller]
pub(super) fn check_logits(log_probs: &Tensor) -> Result<()> {
    if log_probs.isnan()?.any(..)?.item::<bool>()? {
        bail!(Value, OP, "logits must be finite or −∞, and not all −∞, got others");
    }
    Ok(())
}

/// The cache with this padding, which must be its own if it has tokens.
#[track_caller]
fn padded(cache: KeyValueCache, padding: &[usize]) -> Result<KeyValueCache> {
    if padding.is_empty() {
        return Ok(cache);
    }
    let own = cache.padding();
    let is_own = if own.is_empty() { padding.iter().all(|&count| count == 0) } else { own == padding };
    if is_own {
        return Ok(cache);
    }
    if cache.is_empty() && own.is_empty() {
        return cache.with_padding(padding);
    }
    let own = if own.is_empty() { "which has none".to_owned() } else { format!("{own:?}") };
    bail!(Value, OP, "padding must be that of the cache, {own}, got {padding:?}")
}
