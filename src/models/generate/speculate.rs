//! Speculative decoding: a small model proposes tokens, and the model checks several of them in one pass.

use super::options::{GenerateOptions, OP};
use super::sampling::{Penalties, Sampler, wide};
use super::stream::{check_logits, shape_of};
use super::{CausalModel, Generated, GenerationStep};
use crate::error::bail;
use crate::models::cache::KeyValueCache;
use crate::shared::MaybeShared;
use crate::{DType, Result, Tensor, autograd};
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of tokens that the draft proposes, unless another one is set.
const LOOKAHEAD: usize = 4;

/// Generates up to `count` tokens after `tokens`, `[1, steps]`, as [`generate_scored`](crate::models::generate_scored) does, with
/// fewer passes of the model: see [`Speculation`](crate::models::Speculation).
///
/// ```
/// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, generate, speculate};
/// use cotangent::tensor;
/// let sizes = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, dropout: 0.0, ..Gpt2Config::default() };
/// let (model, draft) = (Gpt2::new(&sizes)?, Gpt2::new(&Gpt2Config { n_layer: 1, ..sizes })?);
/// let prompt = tensor!([[3, 1]])?;
/// let generated = speculate(&model, &draft, &prompt, 8, GenerateOptions::new())?;
/// assert!(generated.tokens.equal(&generate(&model, &prompt, 8)?)?);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`Speculation::new`](crate::models::Speculation::new); also if a model fails.
#[track_caller]
pub fn speculate(
    model: &(impl CausalModel + ?Sized),
    draft: &(impl CausalModel + ?Sized),
    tokens: &Tensor,
    count: usize,
    options: impl Into<GenerateOptions>,
) -> Result<Generated> {
    let mut speculation = Speculation::new(model, draft, tokens, count, options)?;
    let mut log_probs = Vec::new();
    for step in speculation.by_ref() {
        log_probs.push(step?.log_probs.unsqueeze(0)?);
    }
    let log_probs = match log_probs.is_empty() {
        true => Tensor::zeros_with([1, 0], (DType::F32, tokens.device()))?,
        false => Tensor::cat(&log_probs, 1)?,
    };
    Ok(Generated { tokens: speculation.tokens()?, log_probs })
}

/// Text generation with a draft model, as an iterator like [`Generation`](crate::models::Generation).
///
/// The draft, a smaller model with the same vocabulary, proposes some tokens one after the other. The model computes the
/// probabilities of all of them in one pass, and keeps the first ones so that the text has the same distribution as without a
/// draft (Leviathan et al., 2023; Chen et al., 2023). With a temperature of 0 it is the same text, as far as the model's passes
/// over one and over several tokens give the same logits. This is faster if the draft is often right, and reading the weights
/// takes most of the time.
///
/// ```
/// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, Speculation};
/// use cotangent::tensor;
/// let sizes = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, dropout: 0.0, ..Gpt2Config::default() };
/// let (model, draft) = (Gpt2::new(&sizes)?, Gpt2::new(&Gpt2Config { n_layer: 1, ..sizes })?);
/// let options = GenerateOptions::new().temperature(0.8).seed(0);
/// let mut text = Speculation::new(&model, &draft, &tensor!([[3, 1]])?, 20, options)?.lookahead(3)?;
/// for step in text.by_ref() {
///     let token = step?.tokens.item::<i64>()?;
///     assert!((0..50).contains(&token));
/// }
/// println!("{} of {} proposed tokens were kept", text.accepted(), text.proposed());
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Speculation<'a, M: ?Sized, D: ?Sized> {
    model: MaybeShared<'a, M>,
    draft: MaybeShared<'a, D>,
    options: GenerateOptions,
    lookahead: usize,
    /// The number of tokens still to generate.
    left: usize,
    cache: KeyValueCache,
    draft_cache: KeyValueCache,
    /// The number of tokens that the draft knows, once it has proposed one.
    draft_vocabulary: Option<usize>,
    penalties: Penalties,
    sampler: Sampler,
    prompt: Tensor,
    /// The tokens so far, with those of the prompt.
    text: Vec<i64>,
    steps: usize,
    /// Steps that have been computed and not been returned.
    ready: VecDeque<GenerationStep>,
    returned: usize,
    is_done: bool,
    accepted: usize,
    proposed: usize,
}

impl<'a, M: CausalModel + ?Sized, D: CausalModel + ?Sized> Speculation<'a, M, D> {
    /// Continues a prompt, `[1, steps]`, by up to `count` tokens. Set models with dropout to evaluation mode first.
    ///
    /// # Errors
    /// If `tokens` are not integers, have no step or are more than one sequence; if an option is out of range; or with `beams`,
    /// `samples` or `padding`.
    #[track_caller]
    pub fn new(
        model: &'a M,
        draft: &'a D,
        tokens: &Tensor,
        count: usize,
        options: impl Into<GenerateOptions>,
    ) -> Result<Speculation<'a, M, D>> {
        let (model, draft) = (MaybeShared::Borrowed(model), MaybeShared::Borrowed(draft));
        Speculation::begin(model, draft, tokens, count, options.into())
    }

    /// As [`new`](Self::new), with counted references to the models: see
    /// [`Generation::with_shared`](crate::models::Generation::with_shared).
    ///
    /// ```
    /// use cotangent::models::{GenerateOptions, Gpt2, Gpt2Config, Speculation};
    /// use cotangent::tensor;
    /// use std::sync::Arc;
    /// let sizes = Gpt2Config { vocab_size: 50, n_embd: 16, n_layer: 2, n_head: 2, dropout: 0.0, ..Gpt2Config::default() };
    /// let (model, draft) = (Arc::new(Gpt2::new(&sizes)?), Arc::new(Gpt2::new(&Gpt2Config { n_layer: 1, ..sizes })?));
    /// let text = Speculation::with_shared(model, draft, &tensor!([[3, 1]])?, 5, GenerateOptions::new())?;
    /// assert_eq!(std::thread::spawn(move || text.count()).join().ok(), Some(5));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn with_shared(
        model: Arc<M>,
        draft: Arc<D>,
        tokens: &Tensor,
        count: usize,
        options: impl Into<GenerateOptions>,
    ) -> Result<Speculation<'a, M, D>> {
        let (model, draft) = (MaybeShared::Shared(model), MaybeShared::Shared(draft));
        Speculation::begin(model, draft, tokens, count, options.into())
    }

    #[track_caller]
    fn begin(
        model: MaybeShared<'a, M>,
        draft: MaybeShared<'a, D>,
        tokens: &Tensor,
        count: usize,
        options: GenerateOptions,
    ) -> Result<Speculation<'a, M, D>> {
        options.check()?;
        let (batch, steps) = shape_of(tokens)?;
        if batch != 1 {
            bail!(Shape, OP, "tokens must be one sequence with a draft, got {batch}");
        }
        if options.beams > 1 || options.samples > 1 || !options.padding.is_empty() {
            bail!(Value, OP, "beams and samples must be 1 and padding empty with a draft, got others");
        }
        let prompt = tokens.to_dtype(DType::I64)?;
        Ok(Speculation {
            model,
            draft,
            lookahead: LOOKAHEAD,
            left: count,
            cache: KeyValueCache::new(),
            draft_cache: KeyValueCache::new(),
            draft_vocabulary: None,
            penalties: Penalties::new(&options, &prompt, &[]),
            sampler: Sampler::new(&options),
            text: prompt.flatten(0, -1)?.to_vec()?,
            prompt,
            steps,
            ready: VecDeque::new(),
            returned: 0,
            is_done: false,
            accepted: 0,
            proposed: 0,
            options,
        })
    }

    /// Sets the number of tokens that the draft proposes before the model checks them; 4 by default.
    ///
    /// # Errors
    /// If it is 0.
    #[track_caller]
    pub fn lookahead(mut self, tokens: usize) -> Result<Speculation<'a, M, D>> {
        if tokens == 0 {
            bail!(Value, OP, "lookahead must be ≥ 1, got 0");
        }
        self.lookahead = tokens;
        Ok(self)
    }

    /// The number of proposed tokens that the model has kept.
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// The number of tokens that the draft has proposed.
    pub fn proposed(&self) -> usize {
        self.proposed
    }

    /// All tokens that have been returned, after those of the prompt: `i64`, `[1, steps]`.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn tokens(&self) -> Result<Tensor> {
        self.tensor(&self.text[..self.steps + self.returned])
    }

    fn tensor(&self, tokens: &[i64]) -> Result<Tensor> {
        Tensor::from_vec(tokens.to_vec(), [1, tokens.len()])?.to_device(self.prompt.device())
    }

    /// Computes at least one more step.
    #[track_caller]
    fn round(&mut self) -> Result<()> {
        // The model adds one token of its own, so that the text is never longer than without a draft.
        let most = self.lookahead.min(self.left - 1);
        let known = self.text.len();
        let drafts = self.propose(most)?;
        let given = self.tensor(&self.text[self.cache.len()..])?;
        let new = known - self.cache.len();
        let logits = self.model.forward_cached(&given, &mut self.cache)?;
        // Those after the last known token, and after each proposed one.
        let logits = wide(&logits.narrow(1, new as isize - 1, most + 1)?)?;
        let proposed = self.text.split_off(known);
        if let (Some(drafted), own) = (self.draft_vocabulary, logits.size(-1)?)
            && drafted != own
        {
            bail!(Value, OP, "the draft must have the vocabulary of the model, {own} tokens, got {drafted}");
        }
        self.proposed += proposed.len();
        for at in 0..=most {
            let row = logits.select(1, at as isize)?;
            let penalized = self.penalties.apply(&row)?;
            let draft = proposed.get(at).copied().zip(drafts.get(at));
            let (token, is_kept) = self.choose(&penalized, draft)?;
            let next = self.tensor(&[token])?;
            let log_probs = row.log_softmax(-1)?.gather(1, &next)?;
            check_logits(&log_probs)?;
            self.penalties.add(&next)?;
            self.text.push(token);
            self.left -= 1;
            self.ready.push_back(GenerationStep { tokens: next.squeeze(1)?, log_probs: log_probs.squeeze(1)? });
            self.accepted += usize::from(is_kept);
            self.is_done = self.left == 0 || self.options.is_end(&self.text[self.steps..]);
            if self.is_done || !is_kept {
                break;
            }
        }
        // The last token is not in the caches, and tokens that were not kept are no longer.
        self.cache.truncate(self.text.len() - 1)?;
        self.draft_cache.truncate(self.text.len() - 1)
    }

    /// Adds tokens of the draft to the text, and returns the probabilities that each was drawn with.
    #[track_caller]
    fn propose(&mut self, count: usize) -> Result<Vec<Vec<f64>>> {
        let mut penalties = self.penalties.clone();
        let mut drawn_with = Vec::with_capacity(count);
        for _ in 0..count {
            let given = self.tensor(&self.text[self.draft_cache.len()..])?;
            let logits = self.draft.forward_cached(&given, &mut self.draft_cache)?;
            self.draft_vocabulary = Some(logits.size(-1)?);
            let logits = penalties.apply(&wide(&logits.select(1, -1)?)?)?;
            let token = if self.options.temperature == 0.0 {
                drawn_with.push(Vec::new());
                self.sampler.next(&logits)?.item()?
            } else {
                let probabilities = self.sampler.probabilities(&logits)?;
                let token = draw(&probabilities, self.sampler.uniform()?)?;
                drawn_with.push(probabilities);
                token
            };
            penalties.add(&self.tensor(&[token])?)?;
            self.text.push(token);
        }
        Ok(drawn_with)
    }

    /// The next token from the model's logits `[1, vocabulary]`, and whether it is the proposed one.
    #[track_caller]
    fn choose(&mut self, logits: &Tensor, draft: Option<(i64, &Vec<f64>)>) -> Result<(i64, bool)> {
        if self.options.temperature == 0.0 {
            let token = self.sampler.next(logits)?.item()?;
            return Ok((token, draft.is_some_and(|(proposed, _)| proposed == token)));
        }
        let own = self.sampler.probabilities(logits)?;
        let Some((token, drafted)) = draft else { return Ok((draw(&own, self.sampler.uniform()?)?, false)) };
        let at = token as usize;
        if self.sampler.uniform()? * drafted[at] < own[at] {
            return Ok((token, true));
        }
        // What the draft proposes too rarely.
        let rest: Vec<f64> = own.iter().zip(drafted).map(|(own, drafted)| (own - drafted).max(0.0)).collect();
        // None, where both have the same probabilities but for roundings.
        let weights = if rest.iter().any(|&weight| weight > 0.0) { &rest } else { &own };
        Ok((draw(weights, self.sampler.uniform()?)?, false))
    }
}

/// The index that a number of [0, 1) stands for, of weights that need not add up to 1.
#[track_caller]
fn draw(weights: &[f64], uniform: f64) -> Result<i64> {
    let total: f64 = weights.iter().sum();
    let mut left = uniform * total;
    // After rounding the last one that is possible.
    let mut chosen = None;
    for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        chosen = Some(at as i64);
        if left < weight {
            break;
        }
        left -= weight;
    }
    match chosen {
        Some(token) if total.is_finite() => Ok(token),
        _ => bail!(Value, OP, "logits must be finite or −∞, and not all −∞, got others"),
    }
}

impl<M: CausalModel + ?Sized, D: CausalModel + ?Sized> Iterator for Speculation<'_, M, D> {
    type Item = Result<GenerationStep>;

    #[track_caller]
    fn next(&mut self) -> Option<Result<GenerationStep>> {
        if self.ready.is_empty()
            && !self.is_done
            && self.left > 0
            && let Err(error) = autograd::no_grad(|| self.round())
        {
            self.is_done = true;
            self.ready.clear();
            return Some(Err(error));
        }
        let step = self.ready.pop_front()?;
        self.returned += 1;
        Some(Ok(step))
    }
}
