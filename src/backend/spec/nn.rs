//! What the kernels of neural networks are told: softmax, cross entropy and attention.

use crate::Device;
use crate::backend::View;

/// What is computed for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftmaxKind {
    /// `exp(x) / Σ exp(x)` of `[x]`.
    Softmax,
    /// `x - log Σ exp(x)` of `[x]`.
    LogSoftmax,
    /// `y (g - Σ g y)` of `[g, y]`, the derivative of softmax.
    SoftmaxGrad,
    /// `g - exp(y) Σ g` of `[g, y]`, the derivative of its logarithm.
    LogSoftmaxGrad,
}

/// What rows of logits are compared with: the class of each row.
#[derive(Clone, Copy)]
pub(crate) struct Targets<'a> {
    /// Contiguous i64, one for each row.
    pub target: View<'a>,
    /// Contiguous f64, one for each class; 1 where there are none.
    pub weight: Option<View<'a>>,
    /// A class whose rows do not count.
    pub ignore: i64,
    /// The part of each target that is spread evenly over all classes.
    pub smoothing: f64,
}

impl Targets<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        [Some(self.target.device()), self.weight.map(|weight| weight.device())].into_iter().flatten()
    }
}

/// `query` is `[batch.., T, D]`, `key` `[batch.., S, D]`, `value` `[batch.., S, E]` with the same batch dimensions, and
/// steps of 1 along the last. `mask`, if any, is added to the scores: `[batch.., T, S]`. All have one dtype.
#[derive(Clone, Copy)]
pub(crate) struct AttentionInputs<'a> {
    pub query: View<'a>,
    pub key: View<'a>,
    pub value: View<'a>,
    pub mask: Option<View<'a>>,
    /// Whether query `i` sees keys up to `i` alone.
    pub causal: bool,
    pub scale: f64,
}

impl AttentionInputs<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        let mask = self.mask.as_ref().map(View::device);
        [self.query.device(), self.key.device(), self.value.device()].into_iter().chain(mask)
    }
}
