//! The options of text generation, and which of them fit together.

use crate::Result;
use crate::error::bail;
use crate::options::options;

/// The name of errors.
pub(super) const OP: &str = "generate";

/// One or several tokens that end a sequence, for [`GenerateOptions::end`](crate::models::GenerateOptions::end).
///
/// ```
/// use cotangent::models::{EndTokens, GenerateOptions};
/// let options = GenerateOptions::new().end(2);
/// let several = GenerateOptions::new().end([2, 7]);
/// assert_eq!(EndTokens::from([2, 7]).tokens(), [2, 7]);
/// # let _ = (options, several);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndTokens(Vec<i64>);

impl EndTokens {
    /// The tokens.
    ///
    /// ```
    /// use cotangent::models::EndTokens;
    /// assert_eq!(EndTokens::from(2).tokens(), [2]);
    /// assert!(EndTokens::default().tokens().is_empty());
    /// ```
    pub fn tokens(&self) -> &[i64] {
        &self.0
    }
}

impl From<i64> for EndTokens {
    fn from(token: i64) -> EndTokens {
        EndTokens(vec![token])
    }
}

impl From<Option<i64>> for EndTokens {
    fn from(token: Option<i64>) -> EndTokens {
        EndTokens(token.into_iter().collect())
    }
}

impl From<Vec<i64>> for EndTokens {
    fn from(tokens: Vec<i64>) -> EndTokens {
        EndTokens(tokens)
    }
}

impl From<&[i64]> for EndTokens {
    fn from(tokens: &[i64]) -> EndTokens {
        EndTokens(tokens.to_vec())
    }
}

impl<const N: usize> From<[i64; N]> for EndTokens {
    fn from(tokens: [i64; N]) -> EndTokens {
        EndTokens(tokens.to_vec())
    }
}

// Generation is no operation with a list of arguments.
options!(@struct [
    /// The options of [`generate_with`](crate::models::generate_with) and [`Generation`](crate::models::Generation).
    ///
    /// With a temperature of 0, the default, each token is the most probable one. With a temperature above 0 it is drawn;
    /// `top_k`, `top_p`, `min_p` and `seed` are for that, and an error otherwise. The logits change in this order: penalties,
    /// `temperature`, `top_k`, `top_p`, `min_p`. With `beams` above 1 several continuations are compared.
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// let options = GenerateOptions::new().temperature(0.8).top_k(40).top_p(0.95).repetition_penalty(1.1).end(2).seed(0);
    /// let search = GenerateOptions::new().beams(4).length_penalty(0.6).end([2, 7]);
    /// # let _ = (options, search);
    /// ```
] GenerateOptions [] [
    /// The divisor of the logits before sampling; 0 takes the most probable token.
    temperature: f64 = 0.0,
    /// The number of most probable tokens to sample from; by default all. Of equally probable tokens the first are kept.
    top_k: Option<usize> = None,
    /// Samples from the fewest most probable tokens whose probabilities add up to at least this number, which is in (0, 1].
    top_p: Option<f64> = None,
    /// Samples from the tokens whose probability is at least this fraction, in [0, 1], of the largest probability.
    min_p: Option<f64> = None,
    /// Makes tokens that the text already has less probable if it is above 1: their logits are divided by it if they are
    /// positive, and multiplied if they are negative. The tokens of the prompt count, those of padding do not. A beam search
    /// applies this to log-probabilities instead of logits.
    repetition_penalty: f64 = 1.0,
    /// Subtracted from the logits of all tokens that have been generated. The tokens of the prompt do not count.
    presence_penalty: f64 = 0.0,
    /// Subtracted from the logit of each token as often as it has been generated. The tokens of the prompt do not count.
    frequency_penalty: f64 = 0.0,
    /// The token that ends a sequence, or several of them. The tokens after it are the same token.
    end: EndTokens = EndTokens::default(),
    /// Sequences of tokens that end a sequence, as end tokens do: as soon as one has been generated. It stays in the result.
    /// The prompt is not searched.
    stop: Vec<Vec<i64>> = Vec::new(),
    /// The seed of the draws. With a seed they come from a generator of their own, and the same seed gives the same text. By
    /// default they come from the current generator: see [`manual_seed`](crate::manual_seed).
    seed: Option<u64> = None,
    /// The number of continuations of each prompt, each with draws of its own. The prompt is computed once. The continuations of a
    /// prompt are adjacent rows of the result.
    samples: usize = 1,
    /// The number of continuations that a beam search compares at each step. It returns the one with the largest sum of
    /// log-probabilities, divided by a power of its length: see [`length_penalty`](Self::length_penalty). The search ends
    /// when that many continuations have ended and no other one has a better score.
    beams: usize = 1,
    /// The power of the length by which a beam search divides the sum of log-probabilities. Larger values favour longer
    /// sequences.
    length_penalty: f64 = 1.0,
    /// For prompts of different lengths: the number of padding tokens at the start of each sequence. They have no influence on
    /// the result.
    padding: Vec<usize> = Vec::new(),
]);

impl GenerateOptions {
    /// The tokens that end a sequence: see [`end`](Self::end).
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// assert_eq!(GenerateOptions::new().end(2).end_tokens().tokens(), [2]);
    /// ```
    pub fn end_tokens(&self) -> &EndTokens {
        &self.end
    }

    /// Whether tokens are drawn: the temperature is above 0.
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// assert!(GenerateOptions::new().temperature(0.8).is_sampling() && !GenerateOptions::new().is_sampling());
    /// ```
    pub fn is_sampling(&self) -> bool {
        self.temperature > 0.0
    }

    /// The number of beams: see [`beams`](Self::beams).
    ///
    /// ```
    /// use cotangent::models::GenerateOptions;
    /// assert_eq!(GenerateOptions::new().beams(4).num_beams(), 4);
    /// ```
    pub fn num_beams(&self) -> usize {
        self.beams
    }

    /// Refuses values out of range, and options that would have no effect.
    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        let GenerateOptions { temperature, repetition_penalty, beams, length_penalty, .. } = *self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            bail!(Value, OP, "temperature must be finite and ≥ 0, got {temperature}");
        }
        if self.top_k == Some(0) {
            bail!(Value, OP, "top_k must be ≥ 1, got 0");
        }
        if let Some(p) = self.top_p
            && !(p > 0.0 && p <= 1.0)
        {
            bail!(Value, OP, "top_p must be > 0 and ≤ 1, got {p}");
        }
        if let Some(p) = self.min_p
            && !(0.0..=1.0).contains(&p)
        {
            bail!(Value, OP, "min_p must be ≥ 0 and ≤ 1, got {p}");
        }
        if !(repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
            bail!(Value, OP, "repetition_penalty must be finite and > 0, got {repetition_penalty}");
        }
        for (name, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
            ("length_penalty", length_penalty),
        ] {
            if !value.is_finite() {
                bail!(Value, OP, "{name} must be finite, got {value}");
            }
        }
        if self.stop.iter().any(Vec::is_empty) {
            bail!(Value, OP, "sequences in stop must have at least one token, got an empty one");
        }
        if self.samples == 0 {
            bail!(Value, OP, "samples must be ≥ 1, got 0");
        }
        if self.samples > 1 && temperature == 0.0 {
            bail!(Value, OP, "temperature must be > 0 with samples, got 0: all would be equal");
        }
        if beams == 0 {
            bail!(Value, OP, "beams must be ≥ 1, got 0");
        }
        if beams > 1 && temperature > 0.0 {
            bail!(Value, OP, "temperature must be 0 with beams, got {temperature}: a beam search draws nothing");
        }
        if beams == 1 && length_penalty != 1.0 {
            bail!(Value, OP, "length_penalty must be 1 without beams, got {length_penalty}: it would have no effect");
        }
        for (name, is_set) in [
            ("top_k", self.top_k.is_some()),
            ("top_p", self.top_p.is_some()),
            ("min_p", self.min_p.is_some()),
            ("seed", self.seed.is_some()),
        ] {
            if is_set && temperature == 0.0 {
                bail!(Value, OP, "temperature must be > 0 with {name}, got 0: {name} would have no effect");
            }
        }
        Ok(())
    }

    /// Checks `padding` for tokens `[batch, steps]`.
    #[track_caller]
    pub(super) fn check_padding(&self, batch: usize, steps: usize) -> Result<()> {
        if self.padding.is_empty() {
            return Ok(());
        }
        if self.padding.len() != batch {
            bail!(Value, OP, "padding must have one number for each of {batch} sequences, got {}", self.padding.len());
        }
        if let Some(count) = self.padding.iter().find(|&&count| count >= steps) {
            bail!(Value, OP, "padding must leave at least one of {steps} tokens, got {count}");
        }
        Ok(())
    }

    /// Whether sequences can end before the last step.
    pub(super) fn has_end(&self) -> bool {
        !self.end.0.is_empty() || !self.stop.is_empty()
    }

    /// Whether the generated tokens of a sequence end with an end token or a stop sequence.
    pub(super) fn is_end(&self, generated: &[i64]) -> bool {
        generated.last().is_some_and(|last| self.end.0.contains(last))
            || self.stop.iter().any(|stop| generated.ends_with(stop))
    }
}
