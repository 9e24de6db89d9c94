//! Attention.

use crate::autograd::{BackwardContext, Grads, is_grad_enabled};
use crate::backend::spec::AttentionInputs;
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::nn::attention_masks::{additive, grouped, windowed};
use crate::ops::nn::cached::{VisibleKeys, cached_attention, is_cached};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::tensor::batch::{Level, innermost};
use crate::{DType, Device, Result, Shape, Tensor, backend, keepdim};
use smallvec::smallvec;

options! {
    /// The options of [`Tensor::scaled_dot_product_attention_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::AttentionOptions};
    /// let x = Tensor::randn([2, 4, 8])?;
    /// let options = AttentionOptions::new().is_causal(true).scale(0.5);
    /// assert_eq!(x.scaled_dot_product_attention_with(&x, &x, options)?.shape(), [2, 4, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AttentionOptions<'a> {
        /// The mask, broadcast to `[.., queries, keys]`: bools are true where a query attends to a key; floats are
        /// added to the scores.
        attn_mask: Option<&'a Tensor> = None,
        /// Whether query `i` attends to the keys `0..=i` only.
        is_causal: bool = false,
        /// The factor of the scores; by default `1 / √size`, with the size of a query.
        scale: Option<f64> = None,
        /// The dropout probability of the weights. Set it to 0 outside of training.
        dropout_p: f64 = 0.0,
        /// Whether several query heads share one key and value head. Heads are the third dimension from the last; the
        /// number of query heads is a multiple of that of the keys.
        enable_gqa: bool = false,
        /// The window: query `i` attends to key `j` only if `|i - j|` is at most this.
        window: Option<usize> = None,
    }
}

/// # Attention
#[ops]
impl Tensor {
    /// `softmax(query · keyᵀ · scale + mask) · value`, where this tensor is the query. Queries `[.., queries, size]`,
    /// keys `[.., keys, size]` and values `[.., keys, value size]` give `[.., queries, value size]`; leading dimensions
    /// broadcast. The scores are not stored, except with dropout and on a GPU without a kernel for heads of that size.
    /// A query with no visible key gives zeros. The options are the mask, the scale, by default `1 / √size`, causal
    /// attention, a window, grouped query heads and dropout.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::AttentionOptions};
    /// let query = tensor!([[0.0, 0.0], [100.0, 0.0]])?;
    /// let (key, value) = (tensor!([[1.0, 0.0], [0.0, 1.0]])?, tensor!([[2.0], [4.0]])?);
    /// let y = query.scaled_dot_product_attention(&key, &value)?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 2.0]);
    /// let causal = AttentionOptions::new().is_causal(true);
    /// let y = query.scaled_dot_product_attention_with(&key, &value, causal)?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, the tensors are not floating point, or the mask is neither bool nor floating point.
    #[op(autocast = lower, samples = attention_samples, errors = attention_errors)]
    pub fn scaled_dot_product_attention<'a>(
        &self,
        key: &Tensor,
        value: &Tensor,
        options: impl Into<AttentionOptions<'a>>,
    ) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&options.dropout_p) {
            bail!(Value, NAME, "dropout_p must be in [0, 1], got {}", options.dropout_p);
        }
        if let Some(window) = options.window {
            let mask = windowed(self, key, window, options.attn_mask)?;
            let options = AttentionOptions { attn_mask: Some(&mask), window: None, ..options };
            return self.scaled_dot_product_attention_with(key, value, options);
        }
        if options.enable_gqa {
            return grouped(self, key, value, &options);
        }
        if is_cached(self, key, value, &options) {
            let scale = options.scale.unwrap_or(1.0 / (self.shape()[3] as f64).sqrt());
            return cached_attention(self, key, value, VisibleKeys::default(), scale, None);
        }
        let problem = AttentionCall::new(self, key, value, &options)?;
        let out = match &problem.mask {
            _ if options.dropout_p > 0.0 => {
                let wide = problem.wide()?;
                wide.weights()?.dropout(options.dropout_p)?.matmul(&wide.value)?
            }
            // Only the plain form differentiates the mask.
            Some(mask) if mask.requires_grad() && is_grad_enabled() => problem.plain()?,
            _ if problem.is_empty() || !problem.has_kernel => problem.plain()?,
            _ => problem.fused()?,
        };
        match &problem.lead {
            Some(lead) => out.to_dtype(problem.dtype)?.unflatten(0, &lead[..]),
            None => out.to_dtype(problem.dtype),
        }
    }
}

/// The inputs with broadcast leading dimensions, in the dtype of the kernel, or in the compute dtype if there is none.
struct AttentionCall {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// Added to the scores. It is not expanded to their shape.
    mask: Option<Tensor>,
    causal: bool,
    scale: f64,
    /// The dtype of the result.
    dtype: DType,
    /// Whether the device has a fused kernel for it.
    has_kernel: bool,
    /// The leading dimensions that are merged into one, since GPU kernels limit the number of dimensions.
    lead: Option<Shape>,
}

pub(super) const NAME: &str = "scaled_dot_product_attention";

impl AttentionCall {
    #[track_caller]
    fn new(query: &Tensor, key: &Tensor, value: &Tensor, options: &AttentionOptions<'_>) -> Result<AttentionCall> {
        let shapes = [query.shape(), key.shape(), value.shape()];
        let ([.., t, d], [.., s, d_key], [.., s_value, _]) = (shapes[0], shapes[1], shapes[2]) else {
            let [q, k, v] = shapes;
            bail!(
                Shape,
                NAME,
                "query, key and value must have at least 2 dimensions, got shapes {q:?}, {k:?} and {v:?}"
            );
        };
        if d != d_key || s != s_value {
            let [q, k, v] = shapes;
            bail!(
                Shape,
                NAME,
                "query, key and value must be [.., t, d], [.., s, d] and [.., s, e], got shapes {q:?}, {k:?} and {v:?}"
            );
        }
        let mut dtype = query.dtype();
        for t in [query, key, value] {
            float_only(NAME, t)?;
            backend::common_device(NAME, query.device(), [t.device()])?;
            dtype = common_dtype(NAME, dtype, t.dtype())?;
        }
        let lead = |shape: &[usize]| Shape::from(&shape[..shape.len() - 2]);
        let batch = broadcast(NAME, &shapes.map(lead).each_ref())?;
        let scale = options.scale.unwrap_or(if *d == 0 { 1.0 } else { 1.0 / (*d as f64).sqrt() });
        let e = value.shape()[value.rank() - 1];
        let merged = if query.device() == Device::Cpu { 0 } else { batch.len().saturating_sub(2) };
        let lead = (merged > 0).then(|| Shape::from(&batch[..=merged]));
        let joined = |t: Tensor| if merged == 0 { Ok(t) } else { t.flatten(0, merged as isize) };
        let kernel = backend::attention_dtype(query.device(), dtype, [*d, e, batch.len() - merged + 2], scale);
        let operands = kernel.unwrap_or(dtype.compute_dtype());
        let wide = |t: &Tensor| -> Result<Tensor> {
            let shape: Shape = batch.iter().chain(&t.shape()[t.rank() - 2..]).copied().collect();
            let t = t.to_dtype(operands)?;
            joined(if *t.shape() == *shape { t } else { t.expand(&shape[..])? })
        };
        let scores: Shape = batch.iter().copied().chain([*t, *s]).collect();
        let mask = options.attn_mask.map(|mask| additive(mask, &scores, dtype.compute_dtype())).transpose()?;
        let mask = match mask {
            // A mask that all share stays shared.
            Some(mask) if merged > 0 && mask.rank() > 4 => Some(joined(mask.expand(&scores[..])?)?),
            mask => mask,
        };
        let (query, key, value) = (wide(query)?, wide(key)?, wide(value)?);
        Ok(AttentionCall {
            query,
            key,
            value,
            mask,
            causal: options.is_causal,
            scale,
            dtype,
            has_kernel: kernel.is_some(),
            lead,
        })
    }

    fn is_empty(&self) -> bool {
        [&self.query, &self.key, &self.value].iter().any(|t| t.numel() == 0)
    }

    #[track_caller]
    fn fused(&self) -> Result<Tensor> {
        let AttentionCall { query, key, value, mask, causal, scale, .. } = self;
        if let Some(level) = innermost([query, key, value].into_iter().chain(mask)) {
            return self.of_examples(level);
        }
        let mask = mask.as_ref().map(Tensor::detach);
        let (last, rank) = (value.shape()[value.rank() - 1], query.rank());
        let rows: Shape = query.shape()[..rank - 1].into();
        let shape: Shape = rows.iter().copied().chain([last]).collect();
        let mut sums = Tensor::empty(NAME, rows, query.dtype().compute_dtype(), query.device())?;
        let operands = Operands::new(query, key, value, mask.clone(), *causal, *scale)?;
        // Heads interleaved in memory give interleaved results, where the kernel can write them: merging the heads,
        // which comes next, then copies nothing.
        let between = query.device() != Device::Cpu && rank == 4 && query.strides()[1] < query.strides()[2];
        let order: [isize; 4] = if between { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        let in_memory = if between { [0, 2, 1, 3].map(|d: usize| shape[d]).into() } else { shape };
        let out = Tensor::build(NAME, in_memory, query.dtype(), query.device(), |out| {
            let layout = if between { out.layout.permute(NAME, &order)? } else { out.layout.clone() };
            operands
                .with(|inputs| backend::attention(NAME, &inputs, &mut sums.as_view_mut(NAME)?, &mut out.part(&layout)))
        })?;
        let out = if between { out.with_layout(out.layout().permute(NAME, &order)?) } else { out };
        let (causal, scale) = (*causal, *scale);
        out.record(NAME, &[query, key, value], |save| {
            let kept = [query, key, value].map(|t| save.save(t));
            let (mask, sums, values) = (mask.map(|mask| save.save(&mask)), save.save(&sums), save.save_output());
            move |ctx: &BackwardContext, g: &Tensor| {
                let [query, key, value] = &kept;
                let mask = mask.clone();
                if is_grad_enabled() || g.is_batched() {
                    let [query, key, value] = [query.clone(), key.clone(), value.clone()];
                    let problem = AttentionCall {
                        query,
                        key,
                        value,
                        mask,
                        causal,
                        scale,
                        dtype: g.dtype(),
                        has_kernel: true,
                        lead: None,
                    };
                    return problem.plain_grads(ctx, g);
                }
                let operands = Operands::new(query, key, value, mask, causal, scale)?;
                let g = if g.device() == Device::Cpu { g.contiguous()? } else { g.clone() };
                let empty = |t: &Tensor| Tensor::empty(NAME, t.layout().shape().clone(), t.dtype(), t.device());
                let mut grads: Grads = smallvec![
                    ctx.want(0, || empty(query))?,
                    ctx.want(1, || empty(key))?,
                    ctx.want(2, || empty(value))?
                ];
                operands.with(|inputs| {
                    let mut views = grads.iter_mut().map(|t| t.as_mut().map(|t| t.as_view_mut(NAME)).transpose());
                    let mut next = || views.next().transpose().map(Option::flatten);
                    let (mut a, mut b, mut c) = (next()?, next()?, next()?);
                    let grads = [a.as_mut(), b.as_mut(), c.as_mut()];
                    backend::attention_backward(
                        NAME,
                        &inputs,
                        [sums.as_view()?, values.as_view()?, g.as_view()?],
                        grads,
                    )
                })?;
                Ok(grads)
            }
        })
    }

    /// Merges the examples of a `vmap` into the first leading dimension, if there is one: GPU kernels limit the number
    /// of dimensions.
    #[track_caller]
    fn of_examples(&self, level: Level) -> Result<Tensor> {
        let AttentionCall { query, key, value, mask, .. } = self;
        let lead = &query.shape()[..query.rank() - 2];
        let joined = |t: &Tensor| {
            let all = t.unbatch(level)?;
            if lead.is_empty() { Ok(all) } else { all.flatten(0, 1) }
        };
        let scores: Vec<usize> = lead.iter().copied().chain([query.size(-2)?, key.size(-2)?]).collect();
        let mask = match mask {
            // A mask shared by all stays shared.
            Some(mask) if mask.is_batched() || mask.rank() > 2 => Some(joined(&mask.expand(&scores[..])?)?),
            mask => mask.clone(),
        };
        let all = AttentionCall {
            query: joined(query)?,
            key: joined(key)?,
            value: joined(value)?,
            mask,
            lead: None,
            ..*self
        };
        let out = if all.is_empty() { all.plain()? } else { all.fused()? };
        let out = if lead.is_empty() { out } else { out.unflatten(0, [level.size, lead[0]])? };
        out.batch(level)
    }

    /// The same in the compute dtype.
    fn wide(&self) -> Result<AttentionCall> {
        let compute = self.query.dtype().compute_dtype();
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|t| t.to_dtype(compute));
        Ok(AttentionCall { query: query?, key: key?, value: value?, mask: self.mask.clone(), lead: None, ..*self })
    }

    /// The attention weights, by the definition.
    fn weights(&self) -> Result<Tensor> {
        let AttentionCall { query, key, mask, causal, scale, .. } = self;
        let mut scores = query.matmul(&key.transpose(-2, -1)?)?.mul(*scale)?;
        let mut hidden = None;
        if *causal {
            let (t, s) = (scores.size(-2)?, scores.size(-1)?);
            let future = Tensor::ones_with([t, s], scores.device())?.triu(1)?.gt(0.0)?;
            scores = scores.masked_fill(&future, f64::NEG_INFINITY)?;
        }
        if let Some(mask) = mask {
            scores = scores.add(mask)?;
            hidden = Some(scores.detach().eq(f64::NEG_INFINITY)?);
        }
        // The softmax of a row of minus infinity would be NaN, and so would its derivative.
        match hidden {
            Some(hidden) if scores.size(-1)? > 0 => {
                let blind = hidden.to_dtype(DType::I64)?.min(keepdim(-1))?.eq(1)?;
                scores.masked_fill(&blind, 0.0)?.softmax(-1)?.masked_fill(&blind, 0.0)
            }
            _ => scores.softmax(-1),
        }
    }

    /// The result by the definition, recorded operation by operation.
    fn plain(&self) -> Result<Tensor> {
        let wide = self.wide()?;
        wide.weights()?.matmul(&wide.value)
    }

    fn plain_grads(&self, ctx: &BackwardContext, g: &Tensor) -> Result<Grads> {
        let (wide, g) = (self.wide()?, &g.to_dtype(g.dtype().compute_dtype())?);
        let weights = wide.weights()?;
        let slopes = g.matmul(&wide.value.transpose(-2, -1)?)?;
        let mean = slopes.mul(&weights)?.sum(keepdim(-1))?;
        let scores = weights.mul(&slopes.sub(&mean)?)?.mul(self.scale)?;
        Ok(smallvec![
            ctx.want(0, || scores.matmul(&wide.key))?,
            ctx.want(1, || scores.transpose(-2, -1)?.matmul(&wide.query))?,
            ctx.want(2, || weights.transpose(-2, -1)?.matmul(g))?,
        ])
    }
}

/// The operands of the kernel: tensors with contiguous rows, and the mask with its broadcast layout.
struct Operands {
    tensors: [Tensor; 3],
    mask: Option<Tensor>,
    causal: bool,
    scale: f64,
}

impl Operands {
    fn new(
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        mask: Option<Tensor>,
        causal: bool,
        scale: f64,
    ) -> Result<Operands> {
        let rows = |t: &Tensor| {
            let t = t.detach();
            if t.strides().last() == Some(&1) { Ok(t) } else { t.contiguous() }
        };
        Ok(Operands { tensors: [rows(query)?, rows(key)?, rows(value)?], mask, causal, scale })
    }

    fn with<R>(&self, f: impl FnOnce(AttentionInputs<'_>) -> Result<R>) -> Result<R> {
        let [query, key, value] = &self.tensors;
        let rank = query.rank();
        let scores: Shape = query.shape()[..rank - 1].iter().copied().chain([key.shape()[rank - 2]]).collect();
        let layout = self.mask.as_ref().map(|mask| mask.layout().broadcast_to(&scores));
        let mask =
            self.mask.as_ref().zip(layout.as_ref()).map(|(mask, layout)| mask.as_view_with(layout)).transpose()?;
        let (query, key, value) = (query.as_view()?, key.as_view()?, value.as_view()?);
        f(AttentionInputs { query, key, value, mask, causal: self.causal, scale: self.scale })
    }
}

fn attention_samples() -> Result<Vec<Sample>> {
    let shapes: [(&[usize], &[usize], &[usize]); 6] = [
        (&[3, 4], &[5, 4], &[5, 2]),
        (&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]),
        (&[2, 1, 3, 2], &[3, 4, 2], &[1, 4, 3]),
        (&[70, 3], &[66, 3], &[66, 2]),
        (&[0, 3], &[2, 3], &[2, 2]),
        (&[1, 1], &[1, 1], &[1, 1]),
    ];
    let mut all = Vec::new();
    for (q, k, v) in shapes {
        for causal in [false, true] {
            all.push(sample![normal(q, 1)?, normal(k, 2)?, normal(v, 3)?; is_causal = causal, scale = 0.7]);
        }
    }
    let masked = |mask: &Tensor| -> Result<Sample> {
        Ok(sample![normal([2, 3, 4], 1)?, normal([2, 5, 4], 2)?, normal([2, 5, 2], 3)?; attn_mask = mask])
    };
    // The second query attends to no key.
    let seen = Tensor::new([[1.0, 0.0, 1.0, 1.0, 0.0], [0.0; 5], [0.0, 1.0, 1.0, 0.0, 1.0]])?.gt(0.5)?;
    all.push(masked(&seen)?);
    all.push(masked(&seen)?.with("is_causal", true));
    all.push(masked(&normal([3, 1], 4)?.mul(&normal([1, 5], 5)?)?)?);
    all.push(masked(&seen)?.with("window", 1));
    all.push(masked(&normal([3, 1], 4)?.mul(&normal([1, 5], 5)?)?)?.with("window", 2));
    // Groups of heads.
    let groups = |mask: Option<Tensor>| -> Result<Sample> {
        let sample =
            sample![normal([2, 4, 3, 2], 1)?, normal([2, 2, 5, 2], 2)?, normal([2, 2, 5, 3], 3)?; enable_gqa = true];
        Ok(mask.into_iter().fold(sample, |sample, mask| sample.with("attn_mask", mask)))
    };
    all.push(groups(None)?);
    all.push(groups(None)?.with("is_causal", true).with("window", 1));
    all.push(groups(Some(seen))?);
    all.push(groups(Some(normal([2, 1, 3, 5], 6)?))?);
    all.push(groups(Some(normal([4, 1, 5], 6)?))?);
    Ok(all)
}

fn attention_errors() -> Result<Vec<ErrorCase>> {
    let call = |q: &[usize], k: &[usize], v: &[usize]| -> Result<Sample> {
        Ok(sample![normal(q, 1)?, normal(k, 2)?, normal(v, 3)?])
    };
    let (ints, floats) = (Tensor::zeros_with([2, 2], DType::I64)?, normal([2, 2], 1)?);
    let masked = call(&[3, 4], &[5, 4], &[5, 2])?.with("attn_mask", normal([4, 5], 4)?);
    Ok(vec![
        error!["sizes", "[3, 4]", "[5, 3]", "[5, 2]"; call(&[3, 4], &[5, 3], &[5, 2])?],
        error!["keys and values", "[5, 4]", "[6, 2]"; call(&[3, 4], &[5, 4], &[6, 2])?],
        error!["one dimension", "[4]"; call(&[4], &[5, 4], &[5, 2])?],
        error!["batches", "[2]", "[3]"; call(&[2, 3, 4], &[3, 5, 4], &[5, 2])?],
        error!["a mask", "[4, 5]", "[3, 5]"; masked],
        error!["integers", "i64"; sample![&floats, &ints, &floats]],
        error!["a mask of integers", "i64"; sample![&floats, &floats, &floats; attn_mask = &ints]],
        error!["a mask of integers and a window", "i64"; sample![&floats, &floats, &floats; attn_mask = ints, window = 1]],
        error!["a probability", "1.5"; sample![&floats, &floats, &floats; dropout_p = 1.5]],
        error!["no heads", "[2, 2]"; sample![&floats, &floats, &floats; enable_gqa = true]],
        error!["other groups", "[3, 2, 4]", "[2, 5, 4]"; call(&[3, 2, 4], &[2, 5, 4], &[2, 5, 2])?.with("enable_gqa", true)],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Generator;
    use crate::autograd::{grad, grad_with};
    use crate::backend::with_num_threads;

    fn causal() -> AttentionOptions<'static> {
        AttentionOptions::new().is_causal(true)
    }

    fn inputs(dtype: DType, t: usize, s: usize) -> Result<[Tensor; 3]> {
        let make = |rows: usize, seed: u64| -> Result<Tensor> {
            // Interleaved heads, as a layer makes them.
            let x = Generator::seed(seed).randn_with([2, rows, 3, 16], dtype)?;
            x.transpose(1, 2)?.requires_grad_(true)
        };
        Ok([make(t, 1)?, make(s, 2)?, make(s, 3)?])
    }

    /// The result and its gradients, by the kernel and by the definition.
    fn both(x: &[Tensor; 3], options: &AttentionOptions<'_>) -> Result<[Vec<Tensor>; 2]> {
        let problem = AttentionCall::new(&x[0], &x[1], &x[2], options)?;
        let run = |y: Tensor| -> Result<Vec<Tensor>> {
            let g = Generator::seed(9).randn_with(y.shape(), y.dtype())?;
            let grads = grad_with(&y, &[&x[0], &x[1], &x[2]], &g)?;
            Ok(std::iter::once(y).chain(grads.into_iter().flatten()).collect())
        };
        Ok([run(problem.fused()?)?, run(problem.plain()?)?])
    }

    #[test]
    fn the_kernel_agrees_with_the_definition() -> Result<()> {
        let seen = Generator::seed(4).rand([2, 1, 100, 130])?.gt(0.3)?;
        for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12)] {
            for (t, s) in [(100, 130), (64, 64), (1, 7), (130, 65)] {
                for causal in [false, true] {
                    let mask = (t == 100).then_some(&seen);
                    let options = AttentionOptions::new().attn_mask(mask).is_causal(causal);
                    let [fused, plain] = both(&inputs(dtype, t, s)?, &options)?;
                    assert_eq!((fused.len(), plain.len()), (4, 4));
                    for (at, (a, b)) in fused.iter().zip(&plain).enumerate() {
                        let close = a.allclose_with(b, (tolerance, tolerance))?;
                        assert!(close, "{dtype} {t}x{s} causal {causal}, tensor {at}");
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
        let x = inputs(DType::F32, 150, 150)?;
        let run = |threads| with_num_threads(threads, || both(&x, &causal()))?;
        let one = run(1)?;
        for threads in [2, 5, 9] {
            for (a, b) in run(threads)?[0].iter().zip(&one[0]) {
                assert!(a.equal(b)?, "{threads} threads");
            }
        }
        Ok(())
    }

    #[test]
    fn each_gradient_can_be_asked_for_alone() -> Result<()> {
        let x = inputs(DType::F64, 70, 80)?;
        let run = |wanted: &[&Tensor], [q, k, v]: [&Tensor; 3]| -> Result<Vec<Tensor>> {
            let y = q.scaled_dot_product_attention_with(k, v, causal())?;
            Ok(grad(&y.square()?.sum(..)?, wanted)?.into_iter().flatten().collect())
        };
        let [q, k, v] = &x;
        let all = run(&[q, k, v], [q, k, v])?;
        let (dq, dk, dv) = (q.detach(), k.detach(), v.detach());
        for (at, alone) in
            [run(&[q], [q, &dk, &dv])?, run(&[k], [&dq, k, &dv])?, run(&[v], [&dq, &dk, v])?].iter().enumerate()
        {
            assert!(alone.len() == 1 && alone[0].equal(&all[at])?, "input {at}");
        }
        Ok(())
    }

    #[test]
    fn dropout_drops_weights_and_keeps_their_mean() -> Result<()> {
        let (x, value) = (Tensor::zeros_with([64, 2], DType::F64)?, Tensor::ones_with([64, 1], DType::F64)?);
        let run = |p: f64| {
            let options = AttentionOptions::new().dropout_p(p);
            let mut generator = Generator::seed(3);
            crate::with_generator(&mut generator, || x.scaled_dot_product_attention_with(&x, &value, options))?
                .to_vec::<f64>()
        };
        let dropped = run(0.5)?;
        let mean = dropped.iter().sum::<f64>() / 64.0;
        assert!((mean - 1.0).abs() < 0.05 && dropped.iter().any(|y| (y - 1.0).abs() > 0.05), "{mean}");
        assert_eq!(run(1.0)?, [0.0; 64]);
        assert!(run(0.0)?.iter().all(|y| (y - 1.0).abs() < 1e-12));
        Ok(())
    }

    #[test]
    fn large_scores_do_not_overflow() -> Result<()> {
        let x = Tensor::full([2, 70, 4], 1e4)?;
        let y = x.scaled_dot_product_attention_with(&x, &x, causal())?;
        assert!(y.allclose_with(&x, (1e-6, 0.0))?);
        Ok(())
    }

    #[test]
    fn the_scores_are_not_kept() -> Result<()> {
        let tape = crate::autograd::Tape::new();
        let x = tape.variable(&Generator::seed(1).randn([4, 256, 8])?)?;
        let before = tape.saved_bytes();
        x.scaled_dot_product_attention_with(&x, &x, causal())?;
        let kept = tape.saved_bytes() - before;
        assert!(kept <= 4 * (256 * 8 * 4 + 256) * 4, "{kept} bytes are kept");
        Ok(())
    }

    #[test]
    fn halves_are_computed_in_f32() -> Result<()> {
        let x = inputs(DType::F32, 9, 9)?;
        let [q, k, v] = x.each_ref().map(|t| t.detach().to_dtype(DType::BF16));
        let (q, k, v) = (q?, k?, v?);
        let y = q.scaled_dot_product_attention_with(&k, &v, causal())?;
        let [q, k, v] = [q, k, v].map(|t| t.to_dtype(DType::F32));
        let wide = q?.scaled_dot_product_attention_with(&k?, &v?, causal())?;
        assert!(y.dtype() == DType::BF16 && y.equal(&wide.to_dtype(DType::BF16)?)?);
        Ok(())
    }
}
