//! The parameters of kernels of neural networks: softmax, cross entropy and attention.

use crate::Device;
use crate::backend::View;

/// The function computed for each row.
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

/// The targets of cross entropy: the class of each row.
#[derive(Clone, Copy)]
pub(crate) struct Targets<'a> {
    /// Contiguous i64, one for each row.
    pub target: View<'a>,
    /// The weights of the classes, contiguous f64; all 1 if `None`.
    pub weight: Option<View<'a>>,
    /// A class whose rows are ignored.
    pub ignore: i64,
    /// The label smoothing: the part of each target that is distributed evenly over all classes.
    pub smoothing: f64,
}

impl Targets<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        [Some(self.target.device()), self.weight.map(|weight| weight.device())].into_iter().flatten()
    }
}

/// `query` is `[batch.., T, D]`, `key` `[batch.., S, D]`, `value` `[batch.., S, E]` with the same batch dimensions, and
/// a stride of 1 along the last. `mask`, if any, is added to the scores: `[batch.., T, S]`. All have one dtype.
#[derive(Clone, Copy)]
pub(crate) struct AttentionInputs<'a> {
    pub query: View<'a>,
    pub key: View<'a>,
    pub value: View<'a>,
    pub mask: Option<View<'a>>,
    /// Whether query `i` attends only to keys up to `i`.
    pub causal: bool,
    pub scale: f64,
}

/// `query` is `[batch, heads, queries, D]`; `key` and `value` are `[batch, heads, keys, D]`. All queries of a head attend to the same
/// keys.
#[derive(Clone, Copy)]
pub(crate) struct CachedAttention<'a> {
    pub query: View<'a>,
    pub key: View<'a>,
    pub value: View<'a>,
    /// The number of keys: of i64, one for all sequences or one for each. By default all keys.
    pub lengths: Option<View<'a>>,
    /// The first key of each sequence, of i64. By default 0.
    pub starts: Option<View<'a>>,
    /// If not 0, only this many keys before the end are seen.
    pub window: usize,
    pub scale: f64,
    /// The bound `c` of scores, which become `c · tanh(score / c)`.
    pub cap: Option<f64>,
}

impl CachedAttention<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        let others = [self.lengths, self.starts].into_iter().flatten().map(|view| view.device());
        [self.query.device(), self.key.device(), self.value.device()].into_iter().chain(others)
    }
}

impl AttentionInputs<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        let mask = self.mask.as_ref().map(View::device);
        [self.query.device(), self.key.device(), self.value.device()].into_iter().chain(mask)
    }
}
