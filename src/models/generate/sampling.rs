//! Penalties, and the choice of the next token.

use super::options::GenerateOptions;
use crate::random::{Generator, with_generator};
use crate::{DType, Result, Tensor, keepdim};

/// Logits in the dtype that they are compared in: `f64` stays, others become `f32`.
pub(super) fn wide(logits: &Tensor) -> Result<Tensor> {
    logits.to_dtype(if logits.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

/// The penalties, and which tokens each sequence has.
#[derive(Clone, Debug)]
pub(super) struct Penalties {
    repetition: f64,
    presence: f64,
    frequency: f64,
    /// The prompt, until the number of tokens in the vocabulary is known.
    prompt: Option<(Tensor, Vec<usize>)>,
    /// Which tokens a sequence has: bools `[batch, vocabulary]`.
    seen: Option<Tensor>,
    /// How often each token has been generated: `[batch, vocabulary]`.
    counts: Option<Tensor>,
}

impl Penalties {
    /// For a prompt `[batch, steps]`, which starts with padding if that is not empty.
    pub(super) fn new(options: &GenerateOptions, prompt: &Tensor, padding: &[usize]) -> Penalties {
        Penalties {
            repetition: options.repetition_penalty,
            presence: options.presence_penalty,
            frequency: options.frequency_penalty,
            prompt: (options.repetition_penalty != 1.0).then(|| (prompt.clone(), padding.to_vec())),
            seen: None,
            counts: None,
        }
    }

    /// Logits `[batch, vocabulary]` after the penalties.
    pub(super) fn apply(&mut self, logits: &Tensor) -> Result<Tensor> {
        let mut logits = logits.clone();
        if let Some((prompt, padding)) = self.prompt.take() {
            self.seen = Some(tokens_in(&prompt, &padding, &logits)?);
        }
        if let Some(seen) = &self.seen {
            let penalized = logits.lt(0.0)?.where_(&logits.mul(self.repetition)?, &logits.div(self.repetition)?)?;
            logits = seen.where_(&penalized, &logits)?;
        }
        if self.presence == 0.0 && self.frequency == 0.0 {
            return Ok(logits);
        }
        let counts = match &self.counts {
            Some(counts) => counts.clone(),
            None => logits.zeros_like()?,
        };
        let present = counts.gt(0.0)?.to_dtype(logits.dtype())?.mul(self.presence)?;
        logits = logits.sub(&counts.mul(self.frequency)?)?.sub(&present)?;
        self.counts = Some(counts);
        Ok(logits)
    }

    /// Counts the next tokens, `[batch, 1]`.
    pub(super) fn add(&mut self, next: &Tensor) -> Result<()> {
        let is_next = |kept: &Tensor| {
            let vocabulary = kept.shape()[1] as i64;
            Tensor::arange_with(0, vocabulary, (DType::I64, next.device()))?.eq(next)
        };
        if let Some(seen) = &mut self.seen {
            *seen = seen.logical_or(&is_next(seen)?)?;
        }
        if let Some(counts) = &mut self.counts {
            *counts = counts.add(&is_next(counts)?.to_dtype(counts.dtype())?)?;
        }
        Ok(())
    }

    /// Continues with these sequences.
    pub(super) fn select(&mut self, rows: &Tensor) -> Result<()> {
        for kept in [&mut self.seen, &mut self.counts].into_iter().flatten() {
            *kept = kept.index_select(0, rows)?;
        }
        Ok(())
    }
}

/// Which tokens of the vocabulary a prompt has: bools `[batch, vocabulary]`.
fn tokens_in(prompt: &Tensor, padding: &[usize], logits: &Tensor) -> Result<Tensor> {
    let (steps, device) = (prompt.shape()[1], prompt.device());
    let mut known = Tensor::ones_with(prompt.shape(), (logits.dtype(), device))?;
    if !padding.is_empty() {
        let starts: Vec<i64> = padding.iter().map(|&count| count as i64).collect();
        let starts = Tensor::from_vec(starts, [padding.len(), 1])?.to_device(device)?;
        known = Tensor::arange_with(0, steps as i64, (DType::I64, device))?.ge(&starts)?.to_dtype(logits.dtype())?;
    }
    logits.zeros_like()?.scatter_add(1, prompt, &known)?.gt(0.0)
}

/// How the next token is chosen.
#[derive(Debug)]
pub(super) struct Sampler {
    temperature: f64,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    generator: Option<Generator>,
}

impl Sampler {
    pub(super) fn new(options: &GenerateOptions) -> Sampler {
        Sampler {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p.filter(|&p| p < 1.0),
            min_p: options.min_p.filter(|&p| p > 0.0),
            generator: options.seed.map(Generator::seed),
        }
    }

    /// The next token of each sequence, `[batch, 1]`, from logits `[batch, vocabulary]`.
    pub(super) fn next(&mut self, logits: &Tensor) -> Result<Tensor> {
        if self.temperature == 0.0 {
            return logits.argmax(keepdim(-1));
        }
        let (logits, tokens) = self.warp(logits)?;
        let drawn = match &mut self.generator {
            Some(generator) => with_generator(generator, || draw(&logits)),
            None => draw(&logits),
        }?;
        match tokens {
            Some(tokens) => tokens.gather(1, &drawn),
            None => Ok(drawn),
        }
    }

    /// The probabilities that tokens are drawn with, in f64, from logits `[1, vocabulary]`.
    pub(super) fn probabilities(&self, logits: &Tensor) -> Result<Vec<f64>> {
        let (kept, tokens) = self.warp(logits)?;
        let kept = kept.to_dtype(DType::F64)?.softmax(-1)?;
        match tokens {
            Some(tokens) => {
                let none = Tensor::zeros_with(logits.shape(), (DType::F64, logits.device()))?;
                none.scatter(1, &tokens, &kept)?.to_vec()
            }
            None => kept.to_vec(),
        }
    }

    /// A number of [0, 1) from the generator that draws tokens.
    pub(super) fn uniform(&mut self) -> Result<f64> {
        let rand = || Tensor::rand_with([1], DType::F64)?.item::<f64>();
        match &mut self.generator {
            Some(generator) => with_generator(generator, rand),
            None => rand(),
        }
    }

    /// The logits to draw from, −∞ for tokens that are not drawn, and their tokens if these are not 0, 1, 2, and so on.
    fn warp(&self, logits: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
        // The largest logit is 0, so that a small temperature makes no infinity of it.
        let temperature = self.temperature.max(f64::from(f32::MIN_POSITIVE));
        let scaled = logits.sub(&logits.max(keepdim(-1))?)?.div(temperature)?;
        let vocabulary = logits.shape()[1];
        let kept = self.top_k.unwrap_or(vocabulary).min(vocabulary);
        let (mut logits, tokens) = if kept < vocabulary || self.top_p.is_some() {
            // In descending order.
            let (values, tokens) = scaled.topk(kept, -1)?;
            (values, Some(tokens))
        } else {
            (scaled, None)
        };
        if let Some(p) = self.top_p {
            let probabilities = logits.softmax(-1)?;
            let before = probabilities.cumsum(-1)?.sub(&probabilities)?;
            logits = logits.masked_fill(&before.ge(p)?, f64::NEG_INFINITY)?;
        }
        if let Some(p) = self.min_p {
            let least = logits.max(keepdim(-1))?.add(p.ln())?;
            logits = logits.masked_fill(&logits.lt(&least)?, f64::NEG_INFINITY)?;
        }
        Ok((logits, tokens))
    }
}

/// Draws one position of each row of logits: `[batch, 1]`. Unlike `multinomial` it reads no value, so that a GPU need not finish.
fn draw(logits: &Tensor) -> Result<Tensor> {
    let sums = logits.softmax(-1)?.to_dtype(DType::F64)?.cumsum(-1)?;
    let total = sums.narrow(-1, -1, 1)?;
    // The product is less than the total even after rounding.
    let below = Tensor::rand_with([logits.shape()[0], 1], (DType::F64, logits.device()))?.mul(1.0 - 1e-15)?;
    // The number of cumulative sums that are at most the number drawn.
    sums.le(&below.mul(&total)?)?.sum(keepdim(-1))
}
