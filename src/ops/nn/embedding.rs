//! Embeddings, embedding bags and bilinear maps.

use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::ops::arg::choices;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::index::gather::{as_indices, gather, gathered, scatter};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::options::{ScatterReduce, ScatterReduceOptions, SearchsortedOptions};
use crate::{DType, Device, Result, Scalar, Shape, Tensor};
use smallvec::smallvec;

choices! {
    /// How the vectors of a bag are reduced.
    ///
    /// ```
    /// assert_eq!(cotangent::options::BagMode::default().name(), "mean");
    /// ```
    pub enum BagMode {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        #[default]
        Mean = "mean",
        /// Their elementwise maximum.
        Max = "max",
    }
}

options! {
    /// The options of [`Tensor::embedding_bag_with`]. A [`BagMode`] stands for `mode`.
    ///
    /// ```
    /// use cotangent::{tensor, options::{BagMode, EmbeddingBagOptions}};
    /// let (weight, offsets) = (tensor!([[1.0], [2.0], [4.0]])?, tensor!([0, 2])?);
    /// let options = EmbeddingBagOptions::new().offsets(&offsets).mode(BagMode::Sum);
    /// assert_eq!(tensor!([0, 1, 2])?.embedding_bag_with(&weight, options)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EmbeddingBagOptions<'a> {
        /// The start of each bag, if the indices are a vector.
        offsets: Option<&'a Tensor> = None,
        /// How the vectors of a bag are reduced.
        mode: BagMode = BagMode::Mean,
        /// A factor for each vector, for mode `sum` only.
        per_sample_weights: Option<&'a Tensor> = None,
        /// Whether the last offset is the end of the last bag.
        include_last_offset: bool = false,
        /// An index whose vector is ignored; negative values count from the end.
        padding_idx: Option<i64> = None,
    }
}

impl From<BagMode> for EmbeddingBagOptions<'_> {
    fn from(mode: BagMode) -> Self {
        EmbeddingBagOptions::new().mode(mode)
    }
}

options! {
    /// The options of [`Tensor::embedding_with`]. They affect only the gradient of the table.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::EmbeddingOptions};
    /// let table = Tensor::ones([3, 1])?.requires_grad_(true)?;
    /// let options = EmbeddingOptions::new().padding_idx(0);
    /// tensor!([0, 2, 2])?.embedding_with(&table, options)?.sum(..)?.backward()?;
    /// assert_eq!(table.grad().ok_or("a gradient")?.to_vec::<f32>()?, [0.0, 0.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct EmbeddingOptions {
        /// A row that gets no gradient; negative values count from the end.
        padding_idx: Option<i64> = None,
        /// Whether the gradient of a row is divided by the number of its lookups.
        scale_grad_by_freq: bool = false,
    }
}

/// # Embeddings
#[ops]
impl Tensor {
    /// The rows of `weight` at these indices. The result has the shape of the indices followed by the length of a row.
    /// A row without a gradient is an option.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let weight = tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(tensor!([[1, 0, 1]])?.embedding(&weight)?.shape(), [1, 3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is not an integer or out of range, `weight` is not a matrix, or `padding_idx` is out of range.
    #[op(samples = embedding_samples, errors = embedding_errors)]
    pub fn embedding(&self, weight: &Tensor, options: impl Into<EmbeddingOptions>) -> Result<Tensor> {
        let EmbeddingOptions { padding_idx, scale_grad_by_freq } = options;
        let [_, width] = weight.shape()[..] else {
            bail!(Shape, "embedding", "weight must be a matrix, got shape {:?}", weight.shape());
        };
        let index = as_indices("embedding", self)?.reshape([self.numel(), 1])?;
        let rows = Shape::from([self.numel(), width]);
        let mut shape = self.layout().shape().clone();
        shape.insert(self.rank(), width);
        let found = gathered("embedding", weight, 0, &index, &rows)?.reshape(&shape)?;
        let factors = embedding_factors(&index, weight, padding_idx, scale_grad_by_freq)?;
        found.record("embedding", &[weight], |save| {
            let (index, vocabulary) = (save.save(&index), weight.layout().shape().clone());
            let factors = factors.map(|factors| save.save(&factors));
            move |_: &BackwardContext, g: &Tensor| {
                let g = g.reshape(&rows)?;
                let g = factors.as_ref().map_or(Ok(g.clone()), |factors| g.mul(&factors.to_dtype(g.dtype())?))?;
                Ok(smallvec![Some(scatter(&vocabulary, 0, &index, &g)?)])
            }
        })
    }

    /// The sum, mean or maximum of the embeddings in each bag. A bag is a row of a matrix of indices or, for a vector,
    /// the range between two `offsets`. An empty bag gives zeros.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let weight = tensor!([[1.0], [2.0], [4.0]])?;
    /// assert_eq!(tensor!([[0, 1], [2, 2]])?.embedding_bag(&weight)?.to_vec::<f32>()?, [1.5, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range, the offsets do not start at 0, decrease or exceed the number of indices, the shapes
    /// do not match, or `per_sample_weights` are given for a mode other than the sum.
    #[op(samples = bag_samples, errors = bag_errors)]
    pub fn embedding_bag<'a>(&self, weight: &Tensor, options: impl Into<EmbeddingBagOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "embedding_bag";
        let EmbeddingBagOptions { offsets, mode, per_sample_weights, include_last_offset, padding_idx } = options;
        let [words, width] = *weight.shape() else {
            bail!(Shape, OP, "weight must be a matrix, got shape {:?}", weight.shape());
        };
        float_only(OP, weight)?;
        if let Some(weights) = per_sample_weights {
            if mode != BagMode::Sum || weights.shape() != self.shape() {
                bail!(
                    Value,
                    OP,
                    "per_sample_weights requires mode sum and shape {:?}, got mode {mode} and shape {:?}",
                    self.shape(),
                    weights.shape()
                );
            }
            float_only(OP, weights)?;
        }
        let (bags, ids) = self.bags(offsets, include_last_offset)?;
        let index = self.flatten(0, -1)?;
        let wide = weight.dtype().compute_dtype();
        let mut rows = index.embedding(weight)?.to_dtype(wide)?;
        let counts = match padding_idx {
            None => None,
            Some(padding) => {
                let at = if padding < 0 { padding.saturating_add_unsigned(words as u64) } else { padding };
                if !usize::try_from(at).is_ok_and(|at| at < words) {
                    bail!(Index, OP, "padding_idx {padding} is out of range for a weight of {words} rows");
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

    /// The bilinear transformation `x1ᵀ W x2 + b` of the last dimensions: `[.., in1]` and `[.., in2]` with a weight
    /// `[out, in1, in2]` give `[.., out]`.
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
            bail!(
                Shape,
                OP,
                "inputs, weight and bias must be [.., in1], [.., in2], [out, in1, in2] and [out], got {a:?}, {b:?}, {w:?} and {c:?}"
            );
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
}

impl Tensor {
    /// The number of bags, and the bag of each index of the flattened input.
    fn bags(&self, offsets: Option<&Tensor>, include_last: bool) -> Result<(usize, Tensor)> {
        const OP: &str = "embedding_bag";
        let numbers = |n: usize| Tensor::arange_with(0, n, self.device());
        match (self.shape(), offsets) {
            ([bags, len], None) => Ok((*bags, numbers(*bags)?.unsqueeze(1)?.expand([*bags, *len])?.flatten(0, -1)?)),
            ([n], Some(offsets)) if offsets.rank() == 1 && offsets.dtype().is_int() => {
                let offsets = offsets.private()?.detach().to_dtype(DType::I64)?.contiguous()?;
                if self.device() == Device::Cpu {
                    let all = offsets.to_vec::<i64>()?;
                    let rises = all.windows(2).all(|pair| pair[0] <= pair[1]);
                    let ends =
                        all.first().is_none_or(|&first| first == 0) && all.last().is_none_or(|&last| last <= *n as i64);
                    if !rises || !ends {
                        bail!(Value, OP, "offsets must start at 0, not decrease and be at most {n}, got {all:?}");
                    }
                }
                let starts = offsets.numel();
                let Some(bags) = starts.checked_sub(usize::from(include_last)) else {
                    bail!(Value, OP, "offsets must not be empty with include_last_offset, got shape [0]");
                };
                if bags == 0 && *n > 0 {
                    bail!(Value, OP, "offsets must give at least one bag for {n} indices, got none");
                }
                let ids = offsets
                    .narrow(0, 0, bags)?
                    .searchsorted_with(&numbers(*n)?, SearchsortedOptions::new().right(true))?;
                Ok((bags, ids.sub(1)?))
            }
            (shape, offsets) => {
                let offsets = offsets.map(Tensor::shape);
                bail!(
                    Shape,
                    OP,
                    "indices must be a matrix, or a vector with a vector of integer offsets, got shape {shape:?} with offsets {offsets:?}"
                )
            }
        }
    }
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
        all.push(
            sample![&vector, weight()?; mode = mode, offsets = &offsets, include_last_offset = true, padding_idx = -4],
        );
    }
    all.push(sample![&matrix, weight()?; mode = BagMode::Sum, per_sample_weights = normal([2, 3], 1)?]);
    all.push(
        sample![&vector, weight()?; mode = BagMode::Sum, offsets = &offsets, per_sample_weights = normal([6], 1)?],
    );
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

/// The factors of the gradients of the looked-up vectors, of shape `[indices, 1]`; `None` if all are 1.
fn embedding_factors(
    index: &Tensor,
    weight: &Tensor,
    padding_idx: Option<i64>,
    scale_grad_by_freq: bool,
) -> Result<Option<Tensor>> {
    let (count, dtype) = (weight.shape()[0] as i64, weight.dtype().compute_dtype());
    let mut factors = None;
    if let Some(padding) = padding_idx {
        if !(-count..count).contains(&padding) {
            bail!(Value, "embedding", "padding_idx {padding} is out of range for a weight of {count} rows");
        }
        factors = Some(index.ne(if padding < 0 { padding + count } else { padding })?.to_dtype(dtype)?);
    }
    if scale_grad_by_freq {
        let ones = Tensor::scalar(Scalar::I64(1), dtype, index.device())?.expand(index.shape())?;
        let often = scatter(&[weight.shape()[0], 1].into(), 0, index, &ones)?;
        let each = gather("embedding", &often, 0, index, index.layout().shape())?.reciprocal()?;
        factors = Some(factors.map_or(Ok(each.clone()), |factors| factors.mul(&each))?);
    }
    Ok(factors)
}

fn embedding_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![ints(&[2, 0, 2, 1, 1, 2], [2, 3])?, spread([4, 3], -2.0, 2.0)?],
        sample![ints(&[1], [])?, spread([2, 5], -2.0, 2.0)?],
        sample![ints(&[3, 3], [2])?.to_dtype(DType::I16)?, spread([4, 1], -2.0, 2.0)?],
        sample![ints(&[], [0, 2])?, spread([2, 2], -2.0, 2.0)?].zero_derivative(),
    ])
}

fn embedding_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["an index too large", "index 4", "size 4"; sample![ints(&[1, 4], [2])?, normal([4, 3], 1)?]],
        error!["a negative index", "index -1", "size 4"; sample![ints(&[-1], [1])?, normal([4, 3], 1)?]],
        error!["a weight that is no matrix", "[4]"; sample![ints(&[1], [1])?, normal([4], 1)?]],
        error!["indices of floats", "integers", "f64"; sample![normal([2], 1)?, normal([4, 3], 1)?]],
        error!["a padding that is no row", "4", "4 rows"; sample![ints(&[1], [1])?, normal([4, 3], 1)?; padding_idx = 4]],
    ])
}
