//! The step of one token, which is recorded once and replayed on a GPU.

use super::CausalModel;
use super::options::OP;
use super::sampling::wide;
use crate::error::bail;
use crate::models::cache::KeyValueCache;
use crate::{CudaGraph, DType, Device, Result, Tensor};

/// A recorded step, which writes to the memory of a cache.
#[derive(Debug)]
pub(super) struct RecordedStep {
    graph: CudaGraph,
    /// The position of the next token, of i64, `[1]`.
    position: Tensor,
    /// The padding of each sequence, which the step reads.
    _padding: Option<Tensor>,
}

/// The logits, in the compute dtype, that follow the tokens `[batch, 1]`. `None`, without any effect, where steps are not recorded.
#[track_caller]
pub(super) fn step<M: CausalModel + ?Sized>(
    recorded: &mut Option<RecordedStep>,
    model: &M,
    cache: &mut KeyValueCache,
    tokens: &Tensor,
) -> Result<Option<Tensor>> {
    let (batch, steps) = (tokens.shape()[0], tokens.shape()[1]);
    let recordable = || model.recordable_steps().is_some_and(|most| cache.len() < most);
    if tokens.device() == Device::Cpu || steps != 1 || cache.is_empty() || cache.room() == 0 || !recordable() {
        return Ok(None);
    }
    cache.check(OP, batch, 1)?;
    if cache.room() <= cache.len() {
        // The new memory has other addresses.
        *recorded = None;
        cache.reserve(cache.len() + 1)?;
    }
    let results = match recorded {
        Some(step) => step.graph.replay(&[tokens, &step.position])?,
        None => {
            let (step, results) = RecordedStep::new(model, cache, tokens)?;
            *recorded = Some(step);
            results
        }
    };
    let (Some(step), Ok([logits, position])) = (recorded.as_mut(), <[Tensor; 2]>::try_from(results)) else {
        bail!(Backend, OP, "a recorded step must give logits and a position");
    };
    step.position = position;
    cache.finish_step(tokens)?;
    Ok(Some(logits))
}

impl RecordedStep {
    /// Runs and records the step. Returns it and its results: the logits and the next position.
    #[track_caller]
    fn new<M: CausalModel + ?Sized>(
        model: &M,
        cache: &mut KeyValueCache,
        tokens: &Tensor,
    ) -> Result<(RecordedStep, Vec<Tensor>)> {
        let device = tokens.device();
        let position = Tensor::full_with([1], cache.len() as i64, (DType::I64, device))?;
        let padding = cache.padding().iter().map(|&count| count as i64).collect::<Vec<_>>();
        let padding = match padding.len() {
            0 => None,
            count => Some(Tensor::from_vec(padding, [count])?.to_device(device)?),
        };
        let run = |inputs: &[Tensor]| -> Result<Vec<Tensor>> {
            cache.begin_step(&inputs[1], padding.as_ref())?;
            let logits = model.next_logits(&inputs[0], cache).and_then(|logits| wide(&logits));
            cache.end_step();
            Ok(vec![logits?, inputs[1].add(1)?])
        };
        let (graph, results) = CudaGraph::record(&[tokens, &position], run)?;
        Ok((RecordedStep { graph, position, _padding: padding }, results))
    }
}
