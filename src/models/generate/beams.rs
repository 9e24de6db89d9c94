//! Beam search.

use super::options::{GenerateOptions, OP};
use super::sampling::{Penalties, wide};
use super::stream::shape_of;
use super::{CausalModel, Generated};
use crate::error::bail;
use crate::models::cache::KeyValueCache;
use crate::{DType, Result, Tensor};

/// A continuation of the prompt.
#[derive(Clone)]
struct Beam {
    tokens: Vec<i64>,
    log_probs: Vec<f64>,
    /// The sum of log-probabilities after the penalties; for a continuation that has ended, divided by a power of its length.
    score: f64,
}

/// The best continuation of each prompt.
#[track_caller]
pub(super) fn search(
    model: &(impl CausalModel + ?Sized),
    tokens: &Tensor,
    count: usize,
    options: &GenerateOptions,
) -> Result<Generated> {
    let (batch, steps) = shape_of(tokens)?;
    options.check_padding(batch, steps)?;
    let tokens = tokens.to_dtype(DType::I64)?;
    let (mut best, mut dtype) = (Vec::new(), DType::F32);
    for row in 0..batch {
        let padding = options.padding.get(row).copied().unwrap_or(0);
        let prompt = tokens.narrow(0, row, 1)?.narrow(1, padding, steps - padding)?;
        if count > 0 {
            let (beam, own) = search_one(model, &prompt, count, options)?;
            best.push(beam);
            dtype = own;
        }
    }
    let longest = best.iter().map(|beam| beam.tokens.len()).max().unwrap_or(0);
    for beam in &mut best {
        // As in a stream, a sequence that has ended repeats its last token.
        let last = beam.tokens.last().copied().unwrap_or(0);
        beam.tokens.resize(longest, last);
        beam.log_probs.resize(longest, 0.0);
    }
    let shape = [batch, longest];
    let next = Tensor::from_vec(best.iter().flat_map(|beam| beam.tokens.clone()).collect::<Vec<i64>>(), shape)?;
    let log_probs = Tensor::from_vec(best.into_iter().flat_map(|beam| beam.log_probs).collect::<Vec<f64>>(), shape)?;
    Ok(Generated {
        tokens: Tensor::cat(&[&tokens, &next.to_device(tokens.device())?], 1)?,
        log_probs: log_probs.to_dtype(dtype)?.to_device(tokens.device())?,
    })
}

/// The best continuation of a prompt `[1, steps]`, and the dtype of its log-probabilities.
#[track_caller]
fn search_one(
    model: &(impl CausalModel + ?Sized),
    prompt: &Tensor,
    count: usize,
    options: &GenerateOptions,
) -> Result<(Beam, DType)> {
    let device = prompt.device();
    let forward =
        |tokens: &Tensor, cache: &mut KeyValueCache| wide(&model.next_logits(tokens, cache)?)?.log_softmax(-1);
    let mut cache = KeyValueCache::with_capacity(prompt.shape()[1].saturating_add(count));
    let mut log_probs = forward(prompt, &mut cache)?;
    let mut penalties = Penalties::new(options, prompt, &[]);
    // Each beam has a cache of its own; clones share the memory of what they have in common.
    let mut beams = vec![(Beam { tokens: Vec::new(), log_probs: Vec::new(), score: 0.0 }, cache)];
    let mut ended: Vec<Beam> = Vec::new();
    // As many candidates that at least `beams` of them have not ended.
    let candidates = (1 + options.end.tokens().len() + options.stop.len()).max(2).saturating_mul(options.beams);
    for length in 1..=count {
        let scores: Vec<f64> = beams.iter().map(|(beam, _)| beam.score).collect();
        let scores = Tensor::from_vec(scores, [beams.len(), 1])?.to_dtype(log_probs.dtype())?.to_device(device)?;
        let vocabulary = log_probs.shape()[1];
        let sums = penalties.apply(&log_probs)?.add(&scores)?.flatten(0, -1)?;
        let (scores, at) = sums.topk(candidates.min(sums.numel()), 0)?;
        let own = log_probs.flatten(0, -1)?.gather(0, &at)?.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let (scores, at) = (scores.to_dtype(DType::F64)?.to_vec::<f64>()?, at.to_vec::<i64>()?);
        if scores.iter().any(|score| score.is_nan()) {
            bail!(Value, OP, "logits must be finite or −∞, and not all −∞, got others");
        }
        let lengthy = (length as f64).powf(options.length_penalty);
        let (mut next, mut parents) = (Vec::new(), Vec::new());
        for (rank, ((&score, &at), &own)) in scores.iter().zip(&at).zip(&own).enumerate() {
            let (parent, token) = (at as usize / vocabulary, at as usize % vocabulary);
            let (mut beam, cache) = beams[parent].clone();
            beam.tokens.push(token as i64);
            beam.log_probs.push(own);
            beam.score = score;
            if length == count || options.is_end(&beam.tokens) {
                // Others only replace beams that end.
                if rank < options.beams {
                    beam.score /= lengthy;
                    ended.push(beam);
                }
            } else if next.len() < options.beams {
                next.push((beam, cache));
                parents.push(parent as i64);
            }
        }
        ended.sort_by(|a, b| b.score.total_cmp(&a.score));
        ended.truncate(options.beams);
        let Some((first, _)) = next.first() else { break };
        // With as many tokens as now, no other one is better.
        if ended.len() == options.beams && ended.iter().all(|beam| beam.score >= first.score / lengthy) {
            break;
        }
        let last: Vec<i64> = next.iter().filter_map(|(beam, _)| beam.tokens.last().copied()).collect();
        let last = Tensor::from_vec(last, [next.len(), 1])?.to_device(device)?;
        penalties.select(&Tensor::from_vec(parents, [next.len()])?.to_device(device)?)?;
        penalties.add(&last)?;
        beams = next;
        let mut rows = Vec::with_capacity(beams.len());
        for (row, (_, cache)) in beams.iter_mut().enumerate() {
            rows.push(forward(&last.narrow(0, row as isize, 1)?, cache)?);
        }
        log_probs = Tensor::cat(&rows, 0)?;
    }
    match ended.into_iter().next() {
        Some(best) => Ok((best, log_probs.dtype())),
        None => bail!(Shape, OP, "logits must have at least one token, got shape {:?}", log_probs.shape()),
    }
}
