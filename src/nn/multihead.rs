//! Multi-head attention.

use super::init::Gain;
use super::{Forward, Linear, LinearOptions, Module, Parameter, Training, init, layer};
use crate::error::{bail, named};
use crate::options::AttentionOptions;
use crate::options::options;
use crate::{DType, Result, Tensor, keepdim};

options! {
    /// The options of [`MultiheadAttention::new_with`].
    ///
    /// ```
    /// use cotangent::nn::{MultiheadAttention, MultiheadAttentionOptions};
    /// let layer = MultiheadAttention::new_with(8, 2, MultiheadAttentionOptions::new().kdim(4).batch_first(true))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MultiheadAttentionOptions {
        /// The dropout probability of the attention weights in training.
        dropout: f64 = 0.0,
        /// Whether the projections have biases.
        bias: bool = true,
        /// Whether to append a learned key and value to each sequence.
        add_bias_kv: bool = false,
        /// Whether to append a key and a value of zeros to each sequence.
        add_zero_attn: bool = false,
        /// The size of the keys before the projection; by default `embed_dim`.
        kdim: Option<usize> = None,
        /// The size of the values before the projection; by default `embed_dim`.
        vdim: Option<usize> = None,
        /// Whether inputs and outputs are `[batch, steps, size]` rather than `[steps, batch, size]`.
        batch_first: bool = false,
    }
}

options! {
    /// The options of [`MultiheadAttention::attend_with`]. Masks are as in PyTorch's layer: boolean masks are **true where a key is
    /// not attended to**, the opposite of [`Tensor::scaled_dot_product_attention`]; float masks are added to the scores.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, MultiheadAttention}};
    /// let (layer, x) = (MultiheadAttention::new(8, 2)?, Tensor::randn([5, 3, 8])?);
    /// let (_, weights) = layer.attend_with(&x, &x, &x, AttendOptions::new().is_causal(true).need_weights(true))?;
    /// assert_eq!(weights.ok_or("weights")?.shape(), [3, 5, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct AttendOptions<'a> {
        /// Which keys are padding: `[batch, keys]`, or `[keys]` without a batch.
        key_padding_mask: Option<&'a Tensor> = None,
        /// Which keys each query does not attend to: `[queries, keys]` for all heads, or `[batch · heads, queries, keys]`.
        attn_mask: Option<&'a Tensor> = None,
        /// Whether each query attends only to the keys up to its own position.
        is_causal: bool = false,
        /// Whether to return the attention weights, too. They are then stored, which takes memory.
        need_weights: bool = false,
        /// Whether to average the returned weights over the heads.
        average_attn_weights: bool = true,
    }
}

/// Multi-head attention: queries, keys and values are projected, each head attends with its part of the features, and the
/// concatenated results are projected again.
///
/// Weights are initialised as in PyTorch: the input projections by Xavier's uniform rule, biases to zeros.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, MultiheadAttention}};
/// let layer = MultiheadAttention::new(8, 2)?;
/// assert_eq!(layer.forward(&Tensor::randn([5, 3, 8])?)?.shape(), [5, 3, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct MultiheadAttention {
    /// The stacked projections of queries, keys and values, if all have the same size.
    pub in_proj_weight: Option<Parameter>,
    /// The projection of queries, if the sizes differ.
    pub q_proj_weight: Option<Parameter>,
    /// The projection of keys, if the sizes differ.
    pub k_proj_weight: Option<Parameter>,
    /// The projection of values, if the sizes differ.
    pub v_proj_weight: Option<Parameter>,
    /// The biases of the three projections.
    pub in_proj_bias: Option<Parameter>,
    /// The learned key that is appended to each sequence.
    pub bias_k: Option<Parameter>,
    /// The learned value that is appended to each sequence.
    pub bias_v: Option<Parameter>,
    /// The output projection.
    pub out_proj: Linear,
    num_heads: usize,
    dropout: f64,
    add_zero_attn: bool,
    batch_first: bool,
    training: Training,
}

const NAME: &str = "MultiheadAttention";

#[layer]
impl MultiheadAttention {
    /// Multi-head attention over vectors of size `embed_dim`, with `num_heads` heads. Queries, keys and values are projected, each
    /// head attends with its part of the features, and the concatenated results are projected again.
    ///
    /// ```
    /// use cotangent::nn::{Module, MultiheadAttention};
    /// assert_eq!(MultiheadAttention::new(8, 2)?.num_parameters(), 4 * (8 * 8 + 8));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `embed_dim` is not a positive multiple of `num_heads`, or `dropout` is not in [0, 1].
    pub fn new(
        embed_dim: usize,
        num_heads: usize,
        options: impl Into<MultiheadAttentionOptions>,
    ) -> Result<MultiheadAttention> {
        let MultiheadAttentionOptions { dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first } = options;
        if num_heads == 0 || embed_dim == 0 || !embed_dim.is_multiple_of(num_heads) {
            bail!(
                Value,
                NAME,
                "embed_dim must be a positive multiple of num_heads, got embed_dim {embed_dim} and num_heads {num_heads}"
            );
        }
        if !(0.0..=1.0).contains(&dropout) {
            bail!(Value, NAME, "dropout must be in [0, 1], got {dropout}");
        }
        let (kdim, vdim) = (kdim.unwrap_or(embed_dim), vdim.unwrap_or(embed_dim));
        let together = kdim == embed_dim && vdim == embed_dim;
        let uniform =
            |rows: usize, columns: usize| Parameter::new(init::xavier_uniform([rows, columns], Gain::Linear)?);
        let apart = |columns: usize| (!together).then(|| uniform(embed_dim, columns)).transpose();
        let kept = || Parameter::new(init::xavier_normal([1, 1, embed_dim], Gain::Linear)?);
        let mut out_proj = Linear::new_with(embed_dim, embed_dim, LinearOptions::new().bias(bias))?;
        if let Some(bias) = &mut out_proj.bias {
            bias.set(&Tensor::zeros([embed_dim])?)?;
        }
        Ok(MultiheadAttention {
            in_proj_weight: together.then(|| uniform(embed_dim.saturating_mul(3), embed_dim)).transpose()?,
            q_proj_weight: apart(embed_dim)?,
            k_proj_weight: apart(kdim)?,
            v_proj_weight: apart(vdim)?,
            in_proj_bias: bias.then(|| Parameter::new(Tensor::zeros([3 * embed_dim])?)).transpose()?,
            bias_k: add_bias_kv.then(kept).transpose()?,
            bias_v: add_bias_kv.then(kept).transpose()?,
            out_proj,
            num_heads,
            dropout,
            add_zero_attn,
            batch_first,
            training: Training::default(),
        })
    }

    /// The attention output, which has the shape of `query`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::MultiheadAttention};
    /// let (query, memory) = (Tensor::randn([5, 3, 8])?, Tensor::randn([7, 3, 8])?);
    /// assert_eq!(MultiheadAttention::new(8, 2)?.attend(&query, &memory, &memory)?.shape(), [5, 3, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        Ok(self.attend_with(query, key, value, AttendOptions::new())?.0)
    }

    /// As [`attend`](Self::attend), with masks. With `need_weights` also returns the attention weights: `[batch, queries, keys]`,
    /// or `[batch, heads, queries, keys]` if they are not averaged.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{AttendOptions, MultiheadAttention}, tensor};
    /// let (layer, x) = (MultiheadAttention::new(8, 2)?, Tensor::randn([3, 1, 8])?);
    /// let padding = tensor!([[false, false, true]])?;
    /// let options = AttendOptions::new().key_padding_mask(&padding).need_weights(true);
    /// let weights = layer.attend_with(&x, &x, &x, options)?.1.ok_or("weights")?;
    /// assert_eq!(weights.select(-1, 2)?.max(..)?.item::<f32>()?, 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn attend_with<'a>(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: impl Into<AttendOptions<'a>>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        named(NAME, self.run([query, key, value], &options.into()))
    }

    fn run(&self, inputs: [&Tensor; 3], options: &AttendOptions<'_>) -> Result<(Tensor, Option<Tensor>)> {
        let shapes = inputs.map(Tensor::shape);
        let rank = inputs[0].rank();
        if !(rank == 2 || rank == 3) || inputs.iter().any(|x| x.rank() != rank) {
            bail!(
                Shape,
                NAME,
                "query, key and value must all have 3 dimensions, or 2 without a batch, got shapes {shapes:?}"
            );
        }
        // Always [batch, steps, size].
        let batched = |x: &Tensor| match (rank, self.batch_first) {
            (2, _) => x.unsqueeze(0),
            (_, true) => Ok(x.clone()),
            (_, false) => x.transpose(0, 1),
        };
        let [q, k, v] = self.projected(inputs)?;
        let (q, mut k, mut v) = (batched(&q)?, batched(&k)?, batched(&v)?);
        let (batch, queries, keys) = (q.shape()[0], q.shape()[1], k.shape()[1]);
        if k.shape()[..2] != v.shape()[..2] || k.shape()[0] != batch {
            bail!(
                Shape,
                NAME,
                "query, key and value must have one batch size, and key and value one length, got shapes {shapes:?}"
            );
        }
        let mut mask = self.mask(options, [batch, queries, keys], q.dtype())?;
        let size = q.shape()[2];
        let mut append = |key: &Tensor, value: &Tensor| -> Result<()> {
            k = Tensor::cat(&[&k, &key.expand([batch, 1, size])?], 1)?;
            v = Tensor::cat(&[&v, &value.expand([batch, 1, size])?], 1)?;
            // Every query attends to it.
            mask = mask.as_ref().map(|mask| mask.pad(&[0, 1])).transpose()?;
            Ok(())
        };
        if let (Some(key), Some(value)) = (&self.bias_k, &self.bias_v) {
            append(key, value)?;
        }
        if self.add_zero_attn {
            let zero = Tensor::zeros_with([1, 1, 1], (q.dtype(), q.device()))?;
            append(&zero, &zero)?;
        }
        let heads = |x: &Tensor| x.unflatten(2, [self.num_heads, size / self.num_heads])?.transpose(1, 2);
        let (q, k, v) = (heads(&q)?, heads(&k)?, heads(&v)?);
        let (out, weights) = self.heads([&q, &k, &v], mask.as_ref(), options)?;
        let out = self.out_proj.forward(&out.transpose(1, 2)?.flatten(2, 3)?)?;
        let out = match (rank, self.batch_first) {
            (2, _) => out.squeeze(0)?,
            (_, true) => out,
            (_, false) => out.transpose(0, 1)?,
        };
        let weights = match weights {
            Some(weights) if options.average_attn_weights => Some(weights.mean(1)?),
            weights => weights,
        };
        Ok((out, weights.map(|weights| if rank == 2 { weights.squeeze(0) } else { Ok(weights) }).transpose()?))
    }

    fn projected(&self, inputs: [&Tensor; 3]) -> Result<[Tensor; 3]> {
        let biases = self.in_proj_bias.as_ref().map(|bias| bias.chunks::<3>(0)).transpose()?;
        let bias = |at: usize| biases.as_ref().map(|all| &all[at]);
        match (&self.in_proj_weight, &self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight) {
            (Some(weight), ..) => {
                let [query, key, value] = inputs;
                if std::ptr::eq(query, key) && std::ptr::eq(key, value) {
                    return query.linear(weight, self.in_proj_bias.as_deref())?.chunks(-1);
                }
                let [q, k, v] = weight.chunks::<3>(0)?;
                Ok([query.linear(&q, bias(0))?, key.linear(&k, bias(1))?, value.linear(&v, bias(2))?])
            }
            (None, Some(q), Some(k), Some(v)) => {
                let [query, key, value] = inputs;
                Ok([query.linear(q, bias(0))?, key.linear(k, bias(1))?, value.linear(v, bias(2))?])
            }
            _ => {
                bail!(Value, NAME, "expected in_proj_weight, or all of q_proj_weight, k_proj_weight and v_proj_weight")
            }
        }
    }

    /// The mask that is added to the scores, if any: `[batch or 1, heads or 1, queries, keys]`.
    fn mask(
        &self,
        options: &AttendOptions<'_>,
        [batch, queries, keys]: [usize; 3],
        dtype: DType,
    ) -> Result<Option<Tensor>> {
        let mut all: Option<Tensor> = None;
        let mut add = |mask: Tensor| -> Result<()> {
            all = Some(match &all {
                Some(others) => others.add(&mask)?,
                None => mask,
            });
            Ok(())
        };
        if let Some(mask) = options.attn_mask {
            let mask = additive(mask, dtype)?;
            match *mask.shape() {
                [q, k] if q == queries && k == keys => add(mask)?,
                [n, q, k] if n == batch * self.num_heads && q == queries && k == keys => {
                    add(mask.unflatten(0, [batch, self.num_heads])?)?;
                }
                _ => bail!(
                    Shape,
                    NAME,
                    "attn_mask must have shape {:?} or {:?}, got {:?}",
                    [queries, keys],
                    [batch * self.num_heads, queries, keys],
                    mask.shape()
                ),
            }
        }
        if let Some(mask) = options.key_padding_mask {
            let mask = additive(mask, dtype)?;
            let mask = if mask.rank() == 1 { mask.unsqueeze(0)? } else { mask };
            if *mask.shape() != [batch, keys] {
                bail!(Shape, NAME, "key_padding_mask must have shape {:?}, got {:?}", [batch, keys], mask.shape());
            }
            add(mask.reshape([batch, 1, 1, keys])?)?;
        }
        Ok(all)
    }

    /// The attention of all heads, and the weights with `need_weights`.
    fn heads(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        options: &AttendOptions<'_>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let dropout = if self.training.is_on() { self.dropout } else { 0.0 };
        if !options.need_weights {
            let options = AttentionOptions::new().attn_mask(mask).is_causal(options.is_causal).dropout_p(dropout);
            return Ok((q.scaled_dot_product_attention_with(k, v, options)?, None));
        }
        let mut scores = q.mul((q.shape()[3] as f64).powf(-0.5))?.matmul(&k.mt()?)?;
        if let Some(mask) = mask {
            scores = scores.add(mask)?;
        }
        if options.is_causal {
            let seen = Tensor::ones_with(&scores.shape()[2..], (DType::Bool, q.device()))?.tril(0)?;
            scores = seen.where_(&scores, f64::NEG_INFINITY)?;
        }
        // A query whose keys are all masked gets zeros.
        let sees_none = scores.max(keepdim(-1))?.eq(f64::NEG_INFINITY)?;
        let weights = sees_none.where_(0.0, &scores.softmax(-1)?)?;
        let weights = weights.dropout(dropout)?;
        Ok((weights.matmul(v)?, Some(weights)))
    }
}

impl Forward for MultiheadAttention {
    /// Self-attention.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, x)
    }
}

/// A mask to add to scores: minus infinity where a boolean mask is true.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    match mask.dtype() {
        DType::Bool => mask.where_(Tensor::full_with([], f64::NEG_INFINITY, (dtype, mask.device()))?, 0.0),
        other if other.is_float() => mask.to_dtype(dtype),
        other => bail!(DType, NAME, "attn_mask and key_padding_mask must be bool or floating point, got {other}"),
    }
}
