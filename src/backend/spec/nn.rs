//! The parameters of kernels of neural networks: softmax, cross entropy, attention, and layers of few rows.

use crate::Device;
use crate::backend::View;
use smallvec::SmallVec;

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

/// The activation of a gated layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Silu,
    GeluTanh,
}

/// Linear layers of the same few rows, `x · weightᵀ + bias`, whose results are side by side.
pub(crate) struct RowLayers<'a> {
    /// `[rows, inputs]`, contiguous.
    pub x: View<'a>,
    /// The weight `[inputs]` and ε of an RMS normalization of the rows.
    pub norm: Option<(View<'a>, f64)>,
    /// The weights `[outputs, inputs]`, with contiguous rows, and the biases `[outputs]`.
    pub layers: SmallVec<[(View<'a>, Option<View<'a>>); 3]>,
    /// The activation of the first of two layers, by which the second one is multiplied.
    pub gate: Option<Gate>,
    /// Added to the result; contiguous.
    pub residual: Option<View<'a>>,
}

impl RowLayers<'_> {
    pub fn devices(&self) -> impl Iterator<Item = Device> {
        let layers =
            self.layers.iter().flat_map(|(weight, bias)| [Some(weight.device()), bias.map(|bias| bias.device())]);
        let others = [self.norm.map(|(weight, _)| weight.device()), self.residual.map(|residual| residual.device())];
        layers.chain(others).flatten().chain([self.x.device()])
    }
}

/// The queries, keys and values of one token of each sequence, whose pairs of elements are rotated: see
/// [`rotate_tokens`](crate::backend::rotate_tokens).
pub(crate) struct TokenRows<'a> {
    /// `[batch, heads, size]`.
    pub query: View<'a>,
    /// `[batch, groups, size]`, as the value.
    pub key: View<'a>,
    pub value: View<'a>,
    /// The angles, `[1, size / 2]` or `[batch, size / 2]`, contiguous.
    pub cos: View<'a>,
    pub sin: View<'a>,
    /// Where the key and the value are written, of i64: `[1]` or `[batch]`.
    pub positions: View<'a>,
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
