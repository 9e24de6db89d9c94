//! Masks of attention, and attention whose query heads share keys.

use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::nn::attention::NAME;
use crate::options::AttentionOptions;
use crate::{DType, Result, Shape, Tensor};

/// A mask that also hides the keys outside a window around each query.
#[track_caller]
pub(super) fn windowed(query: &Tensor, key: &Tensor, window: usize, mask: Option<&Tensor>) -> Result<Tensor> {
    let ([.., t, _], [.., s, _]) = (query.shape(), key.shape()) else {
        bail!(
            Shape,
            NAME,
            "query and key must have at least 2 dimensions, got shapes {:?} and {:?}",
            query.shape(),
            key.shape()
        );
    };
    let numbers = |n: usize| Tensor::arange_with(0, n, query.device());
    let seen = numbers(*t)?.unsqueeze(1)?.sub(&numbers(*s)?)?.abs()?.le(i64::try_from(window).unwrap_or(i64::MAX))?;
    match mask {
        None => Ok(seen),
        Some(mask) if mask.dtype() == DType::Bool => mask.logical_and(&seen),
        Some(mask) if mask.dtype().is_float() => {
            mask.add(&seen.where_(0.0, f64::NEG_INFINITY)?.to_dtype(mask.dtype())?)
        }
        Some(mask) => bail!(DType, NAME, "attn_mask must be bool or floating point, got {}", mask.dtype()),
    }
}

/// Grouped query attention: each group of query heads shares one key and value head. The groups are merged with the
/// leading dimensions, so that the keys are broadcast and not copied.
#[track_caller]
pub(super) fn grouped(query: &Tensor, key: &Tensor, value: &Tensor, options: &AttentionOptions<'_>) -> Result<Tensor> {
    let shapes = [query.shape(), key.shape(), value.shape()];
    let ([lead @ .., heads, t, d], [.., groups, s, _], [.., groups_value, _, e]) = (shapes[0], shapes[1], shapes[2])
    else {
        let [q, k, v] = shapes;
        bail!(
            Shape,
            NAME,
            "query, key and value must have at least 3 dimensions with enable_gqa, got shapes {q:?}, {k:?} and {v:?}"
        );
    };
    let alike = [key, value].iter().all(|x| x.shape()[..x.rank() - 3] == *lead);
    if groups != groups_value || *groups == 0 || heads % groups != 0 || !alike {
        let [q, k, v] = shapes;
        bail!(
            Shape,
            NAME,
            "query heads must be a multiple of key and value heads, with equal batch sizes, got shapes {q:?}, {k:?} and {v:?}"
        );
    }
    let (each, batch) = (heads / groups, lead.iter().product::<usize>() * groups);
    let scores: Shape = lead.iter().copied().chain([*heads, *t, *s]).collect();
    let split = |mask: &Tensor| -> Result<Tensor> {
        let fits = broadcast(NAME, &[&mask.shape().into(), &scores]).is_ok_and(|all| all == scores);
        if !fits {
            bail!(Shape, NAME, "attn_mask must broadcast to shape {scores:?}, got {:?}", mask.shape());
        }
        // A mask shared by all stays shared.
        if mask.rank() <= 2 { Ok(mask.clone()) } else { mask.expand(&scores)?.reshape([batch, each, *t, *s]) }
    };
    let mask = options.attn_mask.map(split).transpose()?;
    let shared = |x: &Tensor| x.reshape([batch, 1, x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]]);
    let options = AttentionOptions { attn_mask: mask.as_ref(), enable_gqa: false, ..options.clone() };
    let query = query.reshape([batch, each, *t, *d])?;
    let out = query.scaled_dot_product_attention_with(&shared(key)?, &shared(value)?, options)?;
    let shape: Shape = lead.iter().copied().chain([*heads, *t, *e]).collect();
    out.reshape(&shape)
}

/// A mask as floats to add to the scores, checked against their shape.
#[track_caller]
pub(super) fn additive(mask: &Tensor, scores: &Shape, dtype: DType) -> Result<Tensor> {
    let fits = broadcast(NAME, &[&mask.shape().into(), scores]).is_ok_and(|all| all == *scores);
    if !fits {
        bail!(Shape, NAME, "attn_mask must broadcast to shape {scores:?}, got {:?}", mask.shape());
    }
    if mask.dtype().is_float() {
        return mask.to_dtype(dtype);
    }
    if mask.dtype() != DType::Bool {
        bail!(DType, NAME, "attn_mask must be bool or floating point, got {}", mask.dtype());
    }
    let zeros = Tensor::zeros_with(mask.shape(), (dtype, mask.device()))?;
    zeros.masked_fill(&mask.detach().eq(false)?, f64::NEG_INFINITY)
}
