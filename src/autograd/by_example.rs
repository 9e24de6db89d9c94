//! Backward rules without a batching rule: one call for each example.

use super::Grads;
use crate::tensor::batch::{innermost, report};
use crate::{Error, ErrorKind, Result, Tensor};

/// Calls a backward rule once for each example, since its kernel refused batched cotangents. This happens for an operation on
/// tensors that all examples share. `refused` is the error to return if this does not help.
pub(super) fn rule_by_example(
    op: &str,
    cotangents: &[Option<Tensor>],
    refused: Error,
    rule: &dyn Fn(&[Option<Tensor>]) -> Result<Grads>,
) -> Result<Grads> {
    let Some(level) = innermost(cotangents.iter().flatten()).filter(|level| level.size > 0) else {
        return Err(refused);
    };
    report(op, level)?;
    let mut columns = Vec::with_capacity(cotangents.len());
    for g in cotangents {
        columns.push(g.as_ref().map(|g| g.unbatch(level)?.unbind(0)).transpose()?);
    }
    let mut each: Vec<Grads> = Vec::with_capacity(level.size);
    for at in 0..level.size {
        let own: Vec<Option<Tensor>> = columns.iter().map(|all| all.as_ref().map(|all| all[at].clone())).collect();
        let grads = match rule(&own) {
            Err(error) if error.kind() == ErrorKind::Batched => rule_by_example(op, &own, error, rule)?,
            done => done?,
        };
        // The rule has saved batched values, too: then this is not the gradient of one example.
        if grads.iter().flatten().any(|g| g.batch_dim(level).is_some()) {
            return Err(refused);
        }
        each.push(grads);
    }
    let together = |k: usize| {
        let all: Option<Vec<Tensor>> = each.iter().map(|grads| grads[k].clone()).collect();
        all.map(|all| Tensor::stack(&all, 0)?.batch(level)).transpose()
    };
    (0..each[0].len()).map(together).collect()
}
