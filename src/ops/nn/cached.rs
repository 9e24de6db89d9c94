//! Attention to cached keys at positions that are data on the device, so that a recorded step can be replayed at any position.
#![forbid(unsafe_code)]

use crate::autograd::is_grad_enabled;
#[cfg(feature = "cuda")]
use crate::autograd::recording::note_change;
use crate::backend::spec::{CachedAttention, TokenRows};
use crate::ops::nn::rope::is_forward_alone;
use crate::options::AttentionOptions;
use crate::{DType, Device, Result, Tensor, backend};

const NAME: &str = "scaled_dot_product_attention";
/// The name of what writes to a cache.
const WRITE: &str = "KeyValueCache";

/// Which of the cached keys a query attends to.
#[derive(Clone, Copy, Default)]
pub(crate) struct VisibleKeys<'a> {
    /// The number of keys: of i64, `[1]`, or `[batch]`. By default all keys.
    pub lengths: Option<&'a Tensor>,
    /// The first key of each sequence: of i64, `[batch]`. By default 0.
    pub starts: Option<&'a Tensor>,
    /// The number of keys before the end that are visible. By default all.
    pub window: Option<usize>,
}

/// Attention of queries `[batch, heads, queries, size]` over keys and values `[batch, heads, keys, size]`. All queries of a head
/// attend to the same keys. Scores are bounded by `cap`, if there is one. Nothing is recorded for derivatives.
#[track_caller]
pub(crate) fn cached_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    visible: VisibleKeys<'_>,
    scale: f64,
    cap: Option<f64>,
) -> Result<Tensor> {
    let (query, key, value) = (query.detach(), key.detach(), value.detach());
    let sizes = [query.size(-1)?, value.size(-1)?];
    if !backend::has_cached_attention(query.device(), query.dtype(), sizes) || key.numel() == 0 {
        return by_definition(&query, &key, &value, visible, scale, cap);
    }
    let VisibleKeys { lengths, starts, window } = visible;
    let inputs = CachedAttention {
        query: query.as_view()?,
        key: key.as_view()?,
        value: value.as_view()?,
        lengths: lengths.map(Tensor::as_view).transpose()?,
        starts: starts.map(Tensor::as_view).transpose()?,
        window: window.unwrap_or(0),
        scale,
        cap,
    };
    Tensor::build(NAME, query.layout().shape().clone(), query.dtype(), query.device(), |out| {
        backend::cached_attention(NAME, &inputs, out)
    })
}

/// Whether attention with these options is [`cached_attention`] to all keys, for which there is a fast kernel.
pub(crate) fn is_cached(query: &Tensor, key: &Tensor, value: &Tensor, options: &AttentionOptions<'_>) -> bool {
    let ([batch, heads, queries, size], [key_batch, key_heads, keys, key_size]) = (query.shape(), key.shape()) else {
        return false;
    };
    let wants_gradients = || is_grad_enabled() && [query, key, value].into_iter().any(Tensor::requires_grad);
    query.device() != Device::Cpu
        && *queries <= 8
        && keys > queries
        && options.attn_mask.is_none()
        && !options.is_causal
        && options.dropout_p == 0.0
        && (batch, heads, size) == (key_batch, key_heads, key_size)
        && key.shape() == value.shape()
        && [key, value].into_iter().all(|x| x.dtype() == query.dtype() && x.device() == query.device())
        && ![query, key, value].into_iter().any(Tensor::is_batched)
        && options.scale.is_none_or(f64::is_finite)
        && backend::has_cached_attention(query.device(), query.dtype(), [*size, *size])
        && !wants_gradients()
}

/// The same by operations for which every device and dtype has kernels.
#[track_caller]
fn by_definition(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    visible: VisibleKeys<'_>,
    scale: f64,
    cap: Option<f64>,
) -> Result<Tensor> {
    let compute = query.dtype().compute_dtype();
    let mut scores = query.matmul(&key.transpose(-2, -1)?)?.to_dtype(compute)?.mul(scale)?;
    if let Some(cap) = cap {
        scores = scores.div(cap)?.tanh()?.mul(cap)?;
    }
    let keys = i64::try_from(key.size(-2)?).unwrap_or(i64::MAX);
    let at = Tensor::arange_with(0, keys, (DType::I64, query.device()))?;
    let of_sequences = |x: &Tensor| x.reshape([-1, 1, 1, 1]);
    let end = match visible.lengths {
        Some(lengths) => of_sequences(lengths)?,
        None => Tensor::full_with([1, 1, 1, 1], keys, (DType::I64, query.device()))?,
    };
    let mut hidden = at.ge(&end)?;
    if let Some(starts) = visible.starts {
        hidden = hidden.logical_or(&at.lt(&of_sequences(starts)?)?)?;
    }
    if let Some(window) = visible.window {
        hidden = hidden.logical_or(&at.lt(&end.sub(i64::try_from(window).unwrap_or(i64::MAX))?)?)?;
    }
    // Not infinity, so that a query without keys gives no NaN.
    let weights = scores.masked_fill(&hidden, -1e30)?.softmax(-1)?.masked_fill(&hidden, 0.0)?;
    weights.to_dtype(value.dtype())?.matmul(value)
}

/// Writes keys and values `[batch, .., 1, size]` of a token into caches `[batch, .., capacity, size]`, in place, at positions on
/// the device, of i64: `[1]`, or `[batch]`.
#[track_caller]
pub(crate) fn write_tokens(caches: [&mut Tensor; 2], tokens: [&Tensor; 2], positions: &Tensor) -> Result<()> {
    let [keys, values] = caches;
    {
        let (tokens, positions) = ([tokens[0].as_view()?, tokens[1].as_view()?], positions.as_view()?);
        let caches = &[&mut keys.as_view_mut(WRITE)?, &mut values.as_view_mut(WRITE)?];
        backend::write_tokens(WRITE, caches, tokens, positions)?;
    }
    note_changes([keys, values])
}

/// Rotates queries and keys `[batch, .., 1, size]` of a token by angles `[.., size / 2]`, writes keys and values into caches, as
/// [`write_tokens`], and returns the queries: in one kernel. `None`, without any effect, if there is none for them.
#[track_caller]
pub(crate) fn rotate_tokens(
    caches: [&mut Tensor; 2],
    [query, key, value]: [&Tensor; 3],
    [cos, sin]: [&Tensor; 2],
    positions: &Tensor,
) -> Result<Option<Tensor>> {
    let [keys, values] = caches;
    let (size, batch) = (query.size(-1)?, query.size(0)?);
    let pairs = cos.size(-1)?;
    // One row of angles for all sequences, or one for each.
    let rows = cos.numel().checked_div(pairs).unwrap_or(0);
    let alike = [key, value, keys, values]
        .into_iter()
        .all(|x| x.dtype() == query.dtype() && x.size(-1).is_ok_and(|s| s == size));
    let angles = 2 * pairs == size
        && (rows == 1 || (rows == batch && cos.size(0)? == batch))
        && (cos.shape(), cos.dtype()) == (sin.shape(), sin.dtype())
        && [cos, sin].into_iter().all(|x| x.layout().is_contiguous());
    if !alike || !angles || key.numel() != value.numel() || !is_forward_alone(&[query, key, value, cos, sin]) {
        return Ok(None);
    }
    let rows = TokenRows {
        query: query.as_view()?,
        key: key.as_view()?,
        value: value.as_view()?,
        cos: cos.as_view()?,
        sin: sin.as_view()?,
        positions: positions.as_view()?,
    };
    let rotated = Tensor::build("rope", query.layout().shape().clone(), query.dtype(), query.device(), |out| {
        let caches = &[&mut keys.as_view_mut(WRITE)?, &mut values.as_view_mut(WRITE)?];
        backend::rotate_tokens(WRITE, caches, &rows, out)
    })?;
    note_changes([keys, values])?;
    Ok(Some(rotated))
}

/// Tells a recording that tensors were changed.
fn note_changes(changed: [&Tensor; 2]) -> Result<()> {
    #[cfg(feature = "cuda")]
    for tensor in changed {
        if backend::is_recording(tensor.device()) {
            note_change(WRITE, tensor)?;
        }
    }
    #[cfg(not(feature = "cuda"))]
    let _ = changed;
    Ok(())
}
