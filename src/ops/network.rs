//! Other operations of networks: rotary positions, bags of embeddings, bilinear maps, dropout of whole channels.

use super::arg::choices;
use super::elementwise::common_dtype;
use super::norm::DropoutOptions;
use super::ops;
use super::reduce::float_only;
use super::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::error::bail;
use crate::options::options;
use crate::{DType, Device, Result, ScatterReduce, ScatterReduceOptions, SearchsortedOptions, Shape, Tensor};

options! {
    /// The options of [`Tensor::rope_with`]. A bool stands for `interleaved`.
    ///
    /// ```
    /// use cotangent::{RopeOptions, tensor};
    /// let (cos, sin) = (tensor!([[0.0, 1.0]])?, tensor!([[1.0, 0.0]])?);
    /// let x = tensor!([[1.0, 2.0, 3.0, 4.0]])?;
    /// let y = x.rope_with(&cos, &sin, RopeOptions::new().interleaved(true))?;
    /// assert_eq!(y.to_vec::<f32>()?, [-2.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RopeOptions {
        /// Whether pairs are neighbours, and not an element of the first half with one of the second.
        interleaved: bool = false,
    }
}

impl From<bool> for RopeOptions {
    fn from(interleaved: bool) -> RopeOptions {
        RopeOptions::new().interleaved(interleaved)
    }
}

options! {
    /// The options of [`Tensor::rope_cos_sin_with`]. A number stands for the base.
    ///
    /// ```
    /// use cotangent::{RopeCosSinOptions, Tensor};
    /// let (cos, _) = Tensor::arange(0, 3)?.rope_cos_sin_with(4, RopeCosSinOptions::new().base(500_000.0))?;
    /// assert_eq!(cos.shape(), [3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct RopeCosSinOptions {
        /// The longest wavelength, over 2π.
        base: f64 = 10_000.0,
    }
}

impl From<f64> for RopeCosSinOptions {
    fn from(base: f64) -> RopeCosSinOptions {
        RopeCosSinOptions::new().base(base)
    }
}

choices! {
    /// What becomes of the vectors in a bag.
    ///
    /// ```
    /// assert_eq!(cotangent::BagMode::default().name(), "mean");
    /// ```
    pub enum BagMode {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        #[default]
        Mean = "mean",
        /// The largest of each element.
        Max = "max",
    }
}

options! {
    /// The options of [`Tensor::embedding_bag_with`]. A mode stands for itself.
    ///
    /// ```
    /// use cotangent::{BagMode, EmbeddingBagOptions, tensor};
    /// let (weight, offsets) = (tensor!([[1.0], [2.0], [4.0]])?, tensor!([0, 2])?);
    /// let options = EmbeddingBagOptions::new().offsets(&offsets).mode(BagMode::Sum);
    /// assert_eq!(tensor!([0, 1, 2])?.embedding_bag_with(&weight, options)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EmbeddingBagOptions<'a> {
        /// Where the bags begin, if all indices are in one row.
        offsets: Option<&'a Tensor> = None,
        /// What becomes of the vectors in a bag.
        mode: BagMode = BagMode::Mean,
        /// What each vector is multiplied by, where they are summed.
        per_sample_weights: Option<&'a Tensor> = None,
        /// Whether the last offset is the end of the last bag.
        include_last_offset: bool = false,
        /// An index that does not count; negative ones count from the last.
        padding_idx: Option<i64> = None,
    }
}

impl From<BagMode> for EmbeddingBagOptions<'_> {
    fn from(mode: BagMode) -> Self {
        EmbeddingBagOptions::new().mode(mode)
    }
}

options! {
    /// The options of [`Tensor::alpha_dropout_with`]. A bool stands for `training`.
    ///
    /// ```
    /// use cotangent::{AlphaDropoutOptions, Tensor};
    /// let x = Tensor::ones([3])?;
    /// assert!(x.alpha_dropout_with(0.5, AlphaDropoutOptions::new().training(false))?.is_same(&x));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct AlphaDropoutOptions {
        /// Whether anything is dropped at all.
        training: bool = false,
    }
}

impl From<bool> for AlphaDropoutOptions {
    fn from(training: bool) -> AlphaDropoutOptions {
        AlphaDropoutOptions::new().training(training)
    }
}

fn probability(op: &'static str, p: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&p) {
        bail!(Value, op, "a probability of {p} is not between 0 and 1");
    }
    Ok(())
}

/// Whole channels dropped: of `[batch, channels, ..]`, or of `[channels, ..]` where there is a dimension less.
#[track_caller]
fn channel_dropout(op: &'static str, x: &Tensor, p: f64, training: bool, ranks: [usize; 2]) -> Result<Tensor> {
    probability(op, p)?;
    float_only(op, x)?;
    if !ranks.contains(&x.rank()) {
        let [a, b] = ranks;
        bail!(Shape, op, "an input of shape {:?} should have {a} or {b} dimensions", x.shape());
    }
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    let channels = if x.rank() == ranks[0] { 1 } else { 2 };
    x.mul(&noise(x, channels)?.dropout(p)?)
}

/// Ones, for each of the elements of the first dimensions.
fn noise(x: &Tensor, dims: usize) -> Result<Tensor> {
    let shape: Shape = x.shape().iter().enumerate().map(|(d, &size)| if d < dims { size } else { 1 }).collect();
    Tensor::ones_with(shape, (x.dtype(), x.device()))
}

/// Elements set to what an infinitely negative one gives in a SELU, and all scaled and shifted so that mean and variance stay.
#[track_caller]
fn alpha_dropout(op: &'static str, x: &Tensor, p: f64, training: bool, dims: usize) -> Result<Tensor> {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    probability(op, p)?;
    float_only(op, x)?;
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    if p == 1.0 {
        return x.mul(0.0);
    }
    let wide = compute_dtype(x.dtype());
    let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let kept = noise(x, dims)?.dropout(p)?.gt(0.0)?.to_dtype(wide)?;
    let shift = kept.sub(1.0)?.add(p)?.mul(ALPHA * scale)?;
    x.to_dtype(wide)?.mul(&kept.mul(scale)?)?.add(&shift)?.to_dtype(x.dtype())
}

/// # Networks
#[ops]
impl Tensor {
    /// Pairs of elements of the last dimension rotated by the angles whose cosines and sines are given, `[.., size / 2]`, which
    /// broadcast to the pairs: rotary embeddings of positions. A pair is an element of the first half and one of the second, or,
    /// as an option, two neighbours. Angles for fewer elements leave the last ones as they are.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.0, 2.0, 3.0, 4.0]])?;
    /// let (cos, sin) = (tensor!([[0.0, 1.0]])?, tensor!([[1.0, 0.0]])?);
    /// assert_eq!(x.rope(&cos, &sin)?.to_vec::<f32>()?, [-3.0, 2.0, 1.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, or the elements are not floats.
    #[op(samples = rope_samples, errors = rope_errors)]
    pub fn rope(&self, cos: &Tensor, sin: &Tensor, options: impl Into<RopeOptions>) -> Result<Tensor> {
        const OP: &str = "rope";
        for x in [self, cos, sin] {
            float_only(OP, x)?;
        }
        let (Some(&size), Some(&pairs)) = (self.shape().last(), cos.shape().last()) else {
            bail!(Shape, OP, "shapes {:?} and {:?} have no last dimension", self.shape(), cos.shape());
        };
        if cos.shape() != sin.shape() || 2 * pairs > size {
            let (x, c, s) = (self.shape(), cos.shape(), sin.shape());
            bail!(Shape, OP, "cosines of shape {c:?} and sines of shape {s:?} do not fit an input of shape {x:?}");
        }
        let wide = compute_dtype(self.dtype());
        let x = self.to_dtype(wide)?;
        let turned = x.narrow(-1, 0, 2 * pairs)?;
        let (cos, sin) = (cos.to_dtype(wide)?, sin.to_dtype(wide)?);
        let (a, b, joined) = if options.interleaved {
            let both = turned.unflatten(-1, [pairs, 2])?;
            (both.select(-1, 0)?, both.select(-1, 1)?, true)
        } else {
            (turned.narrow(-1, 0, pairs)?, turned.narrow(-1, pairs, pairs)?, false)
        };
        let first = a.mul(&cos)?.sub(&b.mul(&sin)?)?;
        let second = b.mul(&cos)?.add(&a.mul(&sin)?)?;
        if first.shape() != a.shape() {
            bail!(Shape, OP, "cosines of shape {:?} do not broadcast to pairs of shape {:?}", cos.shape(), a.shape());
        }
        let mut parts = if joined {
            vec![Tensor::stack(&[&first, &second], -1)?.flatten(-2, -1)?]
        } else {
            vec![first, second]
        };
        if 2 * pairs < size {
            parts.push(x.narrow(-1, 2 * pairs, size - 2 * pairs)?);
        }
        Tensor::cat(&parts, -1)?.to_dtype(self.dtype())
    }

    /// The cosines and sines of the angles by which [`rope`](Self::rope) rotates vectors of `size` elements at these positions:
    /// `position / base^(2k / size)` for pair `k`. They are of f32, or of the positions' dtype where these are floats.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (cos, sin) = Tensor::arange(0, 5)?.rope_cos_sin(8)?;
    /// assert_eq!(Tensor::randn([2, 5, 8])?.rope(&cos, &sin)?.shape(), [2, 5, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the size is odd, or the base is not positive.
    #[op(samples = angle_samples, errors = angle_errors, outputs = [cos, sin])]
    pub fn rope_cos_sin(&self, size: usize, options: impl Into<RopeCosSinOptions>) -> Result<(Tensor, Tensor)> {
        const OP: &str = "rope_cos_sin";
        let base = options.base;
        if !(size.is_multiple_of(2) && base.is_finite() && base > 0.0) {
            bail!(Value, OP, "size = {size} should be even, and base = {base} positive");
        }
        if self.dtype().is_complex() {
            bail!(DType, OP, "not defined for {}", self.dtype());
        }
        let dtype = self.dtype().to_float();
        let numbers = Tensor::arange_with(0, size / 2, (DType::F64, self.device()))?;
        // The exponents are negative: exp of a product needs no power.
        let rates = numbers.mul(-2.0 * base.ln() / size as f64)?.exp()?;
        let wide = if dtype == DType::F64 || !self.dtype().is_float() { DType::F64 } else { DType::F32 };
        let angles = self.to_dtype(wide)?.unsqueeze(-1)?.mul(&rates.to_dtype(wide)?)?;
        Ok((angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?))
    }

    /// Vectors looked up by these indices, and their sum, mean or maximum over each bag: the rows of a matrix, or, of a vector,
    /// what lies between `offsets`. An empty bag is zero.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let weight = tensor!([[1.0], [2.0], [4.0]])?;
    /// assert_eq!(tensor!([[0, 1], [2, 2]])?.embedding_bag(&weight)?.to_vec::<f32>()?, [1.5, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range, the offsets do not begin with 0 and rise to at most the number of indices, the shapes do
    /// not fit, or there are weights for another mode than the sum.
    #[op(samples = bag_samples, errors = bag_errors)]
    pub fn embedding_bag<'a>(&self, weight: &Tensor, options: impl Into<EmbeddingBagOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "embedding_bag";
        let EmbeddingBagOptions { offsets, mode, per_sample_weights, include_last_offset, padding_idx } = options;
        let [words, width] = *weight.shape() else {
            bail!(Shape, OP, "the weight must be a matrix, not of shape {:?}", weight.shape());
        };
        float_only(OP, weight)?;
        if let Some(weights) = per_sample_weights {
            if mode != BagMode::Sum || weights.shape() != self.shape() {
                bail!(Value, OP, "weights of shape {:?} for indices of shape {:?} and mode {mode}: they are for a sum, one each", weights.shape(), self.shape());
            }
            float_only(OP, weights)?;
        }
        let (bags, ids) = self.bags(offsets, include_last_offset)?;
        let index = self.flatten(0, -1)?;
        let wide = compute_dtype(weight.dtype());
        let mut rows = index.embedding(weight)?.to_dtype(wide)?;
        let counts = match padding_idx {
            None => None,
            Some(padding) => {
                let at = if padding < 0 { padding.saturating_add_unsigned(words as u64) } else { padding };
                if !usize::try_from(at).is_ok_and(|at| at < words) {
                    bail!(Index, OP, "a padding index of {padding} for {words} vectors");
                }
                Some(index.ne(at)?)
            }
        };
        if let Some(weights) = per_sample_weights {
            rows = rows.mul(&weights.flatten(0, -1)?.to_dtype(wide)?.unsqueeze(1)?)?;
        }
        if let Some(counts) = &counts {
            rows = counts.unsqueeze(1)?.where_(&rows, if mode == BagMode::Max { f64::NEG_INFINITY } else { 0.0 })?;
        }
        let zeros = |shape: Shape| Tensor::zeros_with(shape, (wide, weight.device()));
        let each = || -> Result<Tensor> {
            let ones = counts.as_ref().map_or_else(
                || Tensor::ones_with([index.numel()], (wide, weight.device())),
                |counts| counts.to_dtype(wide),
            )?;
            zeros([bags].into())?.index_add(0, &ids, &ones)?.unsqueeze(1)
        };
        let out = zeros([bags, width].into())?;
        let out = match mode {
            BagMode::Sum => out.index_add(0, &ids, &rows)?,
            BagMode::Mean => out.index_add(0, &ids, &rows)?.div(&each()?.maximum(1.0)?)?,
            BagMode::Max => {
                let options = ScatterReduceOptions::new().include_self(false);
                let largest = out.index_reduce_with(0, &ids, &rows, ScatterReduce::Amax, options)?;
                each()?.gt(0.0)?.where_(&largest, 0.0)?
            }
        };
        out.to_dtype(weight.dtype())
    }

    /// `x1ᵀ W x2 + b` for each output, over the last dimensions of both: `[.., in1]` and `[.., in2]` with a weight `[out, in1,
    /// in2]` give `[.., out]`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b, weight) = (tensor!([[2.0]])?, tensor!([[3.0]])?, Tensor::ones([4, 1, 1])?);
    /// assert_eq!(a.bilinear(&b, &weight, None)?.to_vec::<f32>()?, [6.0; 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit, or the elements are not floats.
    #[op(autocast_cuda = widest, samples = bilinear_samples, errors = bilinear_errors)]
    pub fn bilinear(&self, input2: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        const OP: &str = "bilinear";
        let fits = match (self.shape(), input2.shape(), weight.shape()) {
            ([lead @ .., a], [other @ .., b], [out, in1, in2]) => {
                lead == other && a == in1 && b == in2 && bias.is_none_or(|bias| bias.shape() == [*out])
            }
            _ => false,
        };
        if !fits {
            let (a, b, w, c) = (self.shape(), input2.shape(), weight.shape(), bias.map(Tensor::shape));
            bail!(Shape, OP, "inputs of shapes {a:?} and {b:?}, a weight of shape {w:?} and a bias of shape {c:?} do not fit");
        }
        let mut dtype = self.dtype();
        for x in [Some(self), Some(input2), Some(weight), bias].into_iter().flatten() {
            float_only(OP, x)?;
            dtype = common_dtype(OP, dtype, x.dtype())?;
        }
        let (lead, [out, in1, in2]) = (&self.shape()[..self.rank() - 1], [0, 1, 2].map(|d| weight.shape()[d]));
        let rows = lead.iter().product::<usize>();
        let (a, b) = (self.to_dtype(dtype)?.reshape([rows, in1])?, input2.to_dtype(dtype)?.reshape([rows, in2])?);
        let weight = weight.to_dtype(dtype)?.permute([1, 0, 2])?.reshape([in1, out.saturating_mul(in2)])?;
        let half = a.matmul(&weight)?.reshape([rows, out, in2])?;
        let y = half.matmul(&b.unsqueeze(-1)?)?.squeeze(-1)?;
        let y = bias.map_or(Ok(y.clone()), |bias| y.add(&bias.to_dtype(dtype)?))?;
        let shape: Shape = lead.iter().copied().chain([out]).collect();
        y.reshape(&shape)
    }

    /// Whole channels of `[batch, channels, length]` or `[channels, length]` set to zero with probability `p`, and the others
    /// scaled by `1 / (1 - p)`; nothing of the kind if this is not training.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([2, 3, 4])?.dropout1d(0.5)?;
    /// assert!(x.narrow(2, 0, 1)?.expand([2, 3, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, there are other dimensions, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2], &[3, 2]]), errors = channel_errors, random)]
    pub fn dropout1d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        channel_dropout("dropout1d", self, p, options.training, [2, 3])
    }

    /// As [`dropout1d`](Self::dropout1d), of `[batch, channels, height, width]`, or `[batch, channels, length]`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::ones([2, 3, 4, 4])?.dropout2d(0.5)?;
    /// assert!(x.narrow(3, 0, 1)?.expand([2, 3, 4, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, there are other dimensions, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2, 1], &[2, 3, 2]]), errors = channel_errors, random)]
    pub fn dropout2d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        // Three dimensions are a batch of sequences, as PyTorch has it.
        let ranks = if self.rank() == 3 { [2, 3] } else { [3, 4] };
        channel_dropout("dropout2d", self, p, options.training, ranks)
    }

    /// As [`dropout1d`](Self::dropout1d), of `[batch, channels, depth, height, width]`, or without the batch.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([2, 3, 4, 4, 4])?.dropout3d(0.5)?.shape(), [2, 3, 4, 4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, there are other dimensions, or the elements are not floats.
    #[op(samples = || channel_samples(&[&[2, 3, 2, 1, 2], &[3, 2, 1, 2]]), errors = channel_errors, random)]
    pub fn dropout3d(&self, p: f64, options: impl Into<DropoutOptions>) -> Result<Tensor> {
        channel_dropout("dropout3d", self, p, options.training, [4, 5])
    }

    /// Dropout for networks of [`selu`](Self::selu), which keeps mean 0 and variance 1: elements become what a very negative one
    /// gives there. Unless the options say that this is training, the tensor as it is.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::randn([100])?;
    /// assert!(x.alpha_dropout(0.5)?.is_same(&x));
    /// assert_eq!(x.alpha_dropout_with(0.5, true)?.shape(), [100]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, or the elements are not floats.
    #[op(samples = alpha_samples, errors = alpha_errors, random)]
    pub fn alpha_dropout(&self, p: f64, options: impl Into<AlphaDropoutOptions>) -> Result<Tensor> {
        alpha_dropout("alpha_dropout", self, p, options.training, self.rank())
    }

    /// As [`alpha_dropout`](Self::alpha_dropout), of whole channels: the second dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3, 4])?.feature_alpha_dropout_with(0.5, true)?;
    /// assert!(x.narrow(2, 0, 1)?.expand([2, 3, 4])?.equal(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `p` is not between 0 and 1, there are fewer than two dimensions, or the elements are not floats.
    #[op(samples = alpha_samples, errors = feature_errors, random)]
    pub fn feature_alpha_dropout(&self, p: f64, options: impl Into<AlphaDropoutOptions>) -> Result<Tensor> {
        const OP: &str = "feature_alpha_dropout";
        if self.rank() < 2 {
            bail!(Shape, OP, "an input of shape {:?} has no channels", self.shape());
        }
        alpha_dropout(OP, self, p, options.training, 2)
    }
}

impl Tensor {
    /// The number of bags, and for each index, in a row, which bag it is in.
    fn bags(&self, offsets: Option<&Tensor>, include_last: bool) -> Result<(usize, Tensor)> {
        const OP: &str = "embedding_bag";
        let numbers = |n: usize| Tensor::arange_with(0, n, self.device());
        match (self.shape(), offsets) {
            ([bags, len], None) => Ok((*bags, numbers(*bags)?.unsqueeze(1)?.expand([*bags, *len])?.flatten(0, -1)?)),
            ([n], Some(offsets)) if offsets.rank() == 1 && offsets.dtype().is_int() => {
                let offsets = offsets.detach().to_dtype(DType::I64)?.contiguous()?;
                if self.device() == Device::Cpu {
                    let all = offsets.to_vec::<i64>()?;
                    let rises = all.windows(2).all(|pair| pair[0] <= pair[1]);
                    let ends = all.first().is_none_or(|&first| first == 0) && all.last().is_none_or(|&last| last <= *n as i64);
                    if !rises || !ends {
                        bail!(Value, OP, "offsets {all:?} do not rise from 0 to at most {n}");
                    }
                }
                let starts = offsets.numel();
                let Some(bags) = starts.checked_sub(usize::from(include_last)) else {
                    bail!(Value, OP, "offsets of shape [0] do not include the last");
                };
                if bags == 0 && *n > 0 {
                    bail!(Value, OP, "{n} indices are in no bag: there are no offsets");
                }
                let ids = offsets.narrow(0, 0, bags)?.searchsorted_with(&numbers(*n)?, SearchsortedOptions::new().right(true))?;
                Ok((bags, ids.sub(1)?))
            }
            (shape, offsets) => {
                let offsets = offsets.map(Tensor::shape);
                bail!(Shape, OP, "indices of shape {shape:?} with offsets of shape {offsets:?}: a matrix without, or a vector with a vector of integers")
            }
        }
    }
}

fn rope_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for interleaved in [false, true] {
        let sample = |x: &[usize], angles: &[usize]| -> Result<Sample> {
            Ok(sample![normal(x, 1)?, normal(angles, 2)?, normal(angles, 3)?; interleaved = interleaved])
        };
        all.push(sample(&[2, 3, 4], &[3, 2])?);
        all.push(sample(&[3, 7], &[1, 2])?);
        all.push(sample(&[6], &[3])?);
        all.push(sample(&[0, 4], &[2])?);
    }
    Ok(all)
}

fn rope_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3, 4], 1)?;
    Ok(vec![
        error!["too many angles", "[3, 3]", "[3, 4]"; sample![&x, normal([3, 3], 1)?, normal([3, 3], 1)?]],
        error!["other sines", "[3, 2]", "[3, 1]"; sample![&x, normal([3, 2], 1)?, normal([3, 1], 1)?]],
        error!["more positions", "[2, 3, 2]", "[3, 2]"; sample![&x, normal([2, 3, 2], 1)?, normal([2, 3, 2], 1)?]],
        error!["no dimension", "[]"; sample![normal([], 1)?, &x, &x]],
        error!["integers", "i64"; sample![ints(&[1, 2], [2])?, normal([1], 1)?, normal([1], 1)?]],
    ])
}

fn angle_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([5], 0.0, 4.0)?, 4],
        sample![spread([2, 3], -2.0, 4.0)?, 6; base = 50.0],
        sample![ints(&[0, 1, 2], [3])?, 2],
        sample![spread([], 1.0, 4.0)?, 2],
        sample![spread([3], 0.0, 4.0)?, 0],
    ])
}

fn angle_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3], 1)?;
    Ok(vec![
        error!["an odd size", "size = 3"; sample![&x, 3]],
        error!["no base", "base = 0"; sample![&x, 4; base = 0.0]],
    ])
}

fn bag_samples() -> Result<Vec<Sample>> {
    let weight = || spread([5, 3], -2.0, 2.1);
    let matrix = ints(&[0, 2, 4, 1, 3, 4], [2, 3])?;
    let (vector, offsets) = (ints(&[0, 2, 4, 1, 3, 1], [6])?, ints(&[0, 2, 2, 5], [4])?);
    let mut all = Vec::new();
    for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
        all.push(sample![&matrix, weight()?; mode = mode]);
        all.push(sample![&matrix, weight()?; mode = mode, padding_idx = 4]);
        all.push(sample![&vector, weight()?; mode = mode, offsets = &offsets]);
        all.push(sample![&vector, weight()?; mode = mode, offsets = &offsets, include_last_offset = true, padding_idx = -4]);
    }
    all.push(sample![&matrix, weight()?; mode = BagMode::Sum, per_sample_weights = normal([2, 3], 1)?]);
    all.push(sample![&vector, weight()?; mode = BagMode::Sum, offsets = &offsets, per_sample_weights = normal([6], 1)?]);
    all.push(sample![ints(&[], [2, 0])?, weight()?].zero_derivative());
    Ok(all)
}

fn bag_errors() -> Result<Vec<ErrorCase>> {
    let (w, x, row) = (normal([5, 3], 1)?, ints(&[0, 1, 2, 3], [2, 2])?, ints(&[0, 1, 2, 3], [4])?);
    Ok(vec![
        error!["an index that is not there", "7"; sample![ints(&[7], [1, 1])?, &w]],
        error!["no offsets", "[4]"; sample![&row, &w]],
        error!["offsets of a matrix", "[2, 2]", "[1]"; sample![&x, &w; offsets = ints(&[0], [1])?]],
        error!["a first offset", "[1, 2]"; sample![&row, &w; offsets = ints(&[1, 2], [2])?]],
        error!["offsets that fall", "[0, 3, 2]"; sample![&row, &w; offsets = ints(&[0, 3, 2], [3])?]],
        error!["offsets that are too large", "[0, 5]"; sample![&row, &w; offsets = ints(&[0, 5], [2])?]],
        error!["weights of a mean", "mean"; sample![&x, &w; per_sample_weights = normal([2, 2], 1)?]],
        error!["padding", "5"; sample![&x, &w; padding_idx = 5]],
        error!["a vector", "[3]"; sample![&x, normal([3], 1)?]],
        error!["floats", "f64"; sample![normal([2, 2], 1)?, &w]],
    ])
}

fn bilinear_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([3, 2], 1)?, normal([3, 4], 2)?, normal([5, 2, 4], 3)?],
        sample![normal([2, 1, 3], 1)?, normal([2, 1, 2], 2)?, normal([2, 3, 2], 3)?, normal([2], 4)?],
        sample![normal([2], 1)?, normal([2], 2)?, normal([3, 2, 2], 3)?, normal([3], 4)?],
        sample![normal([0, 2], 1)?, normal([0, 2], 2)?, normal([3, 2, 2], 3)?].zero_derivative(),
    ])
}

fn bilinear_errors() -> Result<Vec<ErrorCase>> {
    let (a, b, w) = (normal([3, 2], 1)?, normal([3, 4], 2)?, normal([5, 2, 4], 3)?);
    Ok(vec![
        error!["other rows", "[2, 4]"; sample![&a, normal([2, 4], 1)?, &w]],
        error!["another weight", "[5, 4, 2]"; sample![&a, &b, normal([5, 4, 2], 1)?]],
        error!["another bias", "[4]"; sample![&a, &b, &w, normal([4], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?, normal([1, 4], 1)?, &w]],
    ])
}

fn channel_samples(shapes: &[&[usize]]) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for shape in shapes {
        all.push(sample![normal(*shape, 1)?, 0.4]);
        all.push(sample![normal(*shape, 1)?, 0.4; training = false]);
    }
    Ok(all)
}

fn channel_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3], 1)?;
    Ok(vec![error!["more than all", "1.5"; sample![&x, 1.5]], error!["one dimension", "[3]"; sample![&x, 0.5]]])
}

fn alpha_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([2, 3, 2], 1)?, 0.4; training = true],
        sample![normal([2, 3], 1)?, 0.4],
        sample![normal([2, 3], 1)?, 1.0; training = true].zero_derivative(),
    ])
}

fn alpha_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["more than all", "1.5"; sample![normal([2, 3], 1)?, 1.5]]])
}

fn feature_errors() -> Result<Vec<ErrorCase>> {
    let mut all = alpha_errors()?;
    all.push(error!["one dimension", "[3]"; sample![normal([3], 1)?, 0.5]]);
    Ok(all)
}
