//! Margin losses for rankings and similarities.

use crate::backend::spec::{Ordered, Sym, select};
use crate::error::bail;
use crate::layout::broadcast;
use crate::ops::elementwise::call::{Domain, Elementwise, zero};
use crate::ops::loss::cross_entropy::{REDUCTIONS, from_reduction, loss_dtype, pair_errors, same_rank};
use crate::ops::loss::elementwise::{constant, losses_of};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::PairwiseDistanceOptions;
use crate::options::options;
use crate::{Reduction, Result, Scalar, Shape, Tensor};

options! {
    /// The options of [`Tensor::hinge_embedding_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::HingeEmbeddingLossOptions};
    /// let loss = tensor!([0.5])?.hinge_embedding_loss_with(&tensor!([-1])?, HingeEmbeddingLossOptions::new().margin(2.0))?;
    /// assert_eq!(loss.item::<f32>()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HingeEmbeddingLossOptions {
        /// The minimum distance of dissimilar pairs.
        margin: f64 = 1.0,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::cosine_embedding_loss_with`] and [`Tensor::margin_ranking_loss_with`]. A [`Reduction`] can be
    /// given in their place.
    ///
    /// ```
    /// use cotangent::{tensor, options::MarginOptions};
    /// let (a, b) = (tensor!([3.0])?, tensor!([2.0])?);
    /// let loss = a.margin_ranking_loss_with(&b, &tensor!([1])?, MarginOptions::new().margin(1.5))?;
    /// assert_eq!(loss.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct MarginOptions {
        /// The minimum difference of a ranking, or the maximum cosine of dissimilar pairs.
        margin: f64 = 0.0,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

options! {
    /// The options of [`Tensor::triplet_margin_loss_with`]. A [`Reduction`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, options::TripletMarginLossOptions};
    /// let x = Tensor::zeros([2, 3])?;
    /// let loss = x.triplet_margin_loss_with(&x, &x, TripletMarginLossOptions::new().margin(0.25).p(1.0).swap(true))?;
    /// assert_eq!(loss.item::<f32>()?, 0.25);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct TripletMarginLossOptions {
        /// The minimum difference between the distances to the negative and to the positive.
        margin: f64 = 1.0,
        /// The order of the norm.
        p: f64 = 2.0,
        /// A constant added to each difference.
        eps: f64 = 1e-6,
        /// Whether to use the distance from the positive to the negative where it is smaller than that from the anchor.
        swap: bool = false,
        /// How the losses are reduced.
        reduction: Reduction = Reduction::Mean,
    }
}

from_reduction!(HingeEmbeddingLossOptions, MarginOptions, TripletMarginLossOptions);

/// `max(x, 0)` with derivative 0 at 0, as `clamp` has it. NaN stays NaN, with derivative 0.
fn positive(x: Sym) -> Sym {
    select(x.gt(zero()), x, select(x.le(zero()), zero(), constant(f64::NAN)))
}

static HINGE: Elementwise = Elementwise::new("hinge_embedding_loss", Domain::Float, 2, 1, |x, p| {
    let (x, t) = (x[0], x[1]);
    select(t.ne(constant(1.0)), positive(p[0] - x), zero()) + select(t.ne(constant(-1.0)), x, zero())
});

static RANKING: Elementwise =
    Elementwise::new("margin_ranking_loss", Domain::Float, 3, 1, |x, p| positive(p[0] - x[2] * (x[0] - x[1])));

/// # Margin losses
#[ops]
impl Tensor {
    /// The hinge embedding loss of distances: `x` where `target` is 1, and `max(0, margin - x)` where it is -1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let loss = tensor!([0.5, 0.25])?.hinge_embedding_loss(&tensor!([1, -1])?)?;
    /// assert_eq!(loss.item::<f32>()?, 0.625);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[op(samples = hinge_samples, errors = pair_errors, rounds)]
    pub fn hinge_embedding_loss(
        &self,
        target: &Tensor,
        options: impl Into<HingeEmbeddingLossOptions>,
    ) -> Result<Tensor> {
        let HingeEmbeddingLossOptions { margin, reduction } = options;
        reduction.of(&losses_of("hinge_embedding_loss", &HINGE, [self, target], &[margin])?)
    }

    /// The cosine embedding loss of pairs of vectors: `1 - cos` where `target` is 1, and `max(0, cos - margin)` where
    /// it is -1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (a, b) = (tensor!([[1.0, 0.0], [1.0, 0.0]])?, tensor!([[0.0, 1.0], [1.0, 0.0]])?);
    /// assert_eq!(a.cosine_embedding_loss(&b, &tensor!([1, -1])?)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes are neither `[n, d]`, `[n, d]`, `[n]` nor `[d]`, `[d]`, `[]`; sizes of 1 broadcast.
    #[op(samples = cosine_samples, errors = cosine_errors, rounds)]
    pub fn cosine_embedding_loss(
        &self,
        input2: &Tensor,
        target: &Tensor,
        options: impl Into<MarginOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "cosine_embedding_loss";
        const EPS: f64 = 1e-12;
        let MarginOptions { margin, reduction } = options;
        let both = broadcast(OP, &[self.layout().shape(), input2.layout().shape()]);
        let fits = |both: &Shape| {
            let rows = &both[..both.len() - 1];
            target.shape() == rows || (target.shape() == [1] && rows.len() == 1)
        };
        if !matches!(self.rank(), 1 | 2) || input2.rank() != self.rank() || !both.is_ok_and(|both| fits(&both)) {
            let (a, b, t) = (self.shape(), input2.shape(), target.shape());
            bail!(
                Shape,
                OP,
                "input, input2 and target must have shapes [n, d], [n, d] and [n], got {a:?}, {b:?} and {t:?}"
            );
        }
        let dtype = loss_dtype(OP, &[self, input2])?;
        loss_dtype(OP, &[target])?;
        let (a, b) = (self.to_dtype(dtype)?, input2.to_dtype(dtype)?);
        let size = |x: &Tensor| x.square()?.sum(-1)?.add(EPS);
        let cosine = a.mul(&b)?.sum(-1)?.div(&size(&a)?.mul(&size(&b)?)?.sqrt()?)?;
        let apart = cosine.sub(margin)?.clamp_min(0.0)?;
        let alike = target.eq(1)?.where_(cosine.rsub(1.0)?, 0.0)?;
        reduction.of(&alike.add(&target.eq(-1)?.where_(&apart, 0.0)?)?)
    }

    /// The margin ranking loss `max(0, margin - target · (self - input2))`: the first should be larger where `target`
    /// is 1, and the second where it is -1.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (a, b) = (tensor!([3.0, 3.0])?, tensor!([2.0, 2.0])?);
    /// assert_eq!(a.margin_ranking_loss(&b, &tensor!([1, -1])?)?.item::<f32>()?, 0.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the ranks differ, or the shapes do not broadcast.
    #[op(samples = ranking_samples, errors = ranking_errors, rounds)]
    pub fn margin_ranking_loss(
        &self,
        input2: &Tensor,
        target: &Tensor,
        options: impl Into<MarginOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "margin_ranking_loss";
        let MarginOptions { margin, reduction } = options;
        same_rank(OP, self, input2)?;
        same_rank(OP, self, target)?;
        let dtype = loss_dtype(OP, &[self, input2, target])?;
        reduction.of(&RANKING.call_as(&[self, input2, target], &[Scalar::F64(margin)], dtype, dtype)?)
    }

    /// The triplet margin loss `max(0, d(anchor, positive) - d(anchor, negative) + margin)` of vectors in the last
    /// dimension. This tensor is the anchor.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (anchor, far) = (tensor!([[0.0, 0.0]])?, tensor!([[3.0, 4.0]])?);
    /// assert_eq!(anchor.triplet_margin_loss(&anchor, &far)?.item::<f32>()?, 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the ranks differ, the shapes do not broadcast, the margin is not positive, or the elements are not floats.
    #[op(samples = triplet_samples, errors = triplet_errors, rounds)]
    pub fn triplet_margin_loss(
        &self,
        positive: &Tensor,
        negative: &Tensor,
        options: impl Into<TripletMarginLossOptions>,
    ) -> Result<Tensor> {
        const OP: &str = "triplet_margin_loss";
        let TripletMarginLossOptions { margin, p, eps, swap, reduction } = options;
        same_rank(OP, self, positive)?;
        same_rank(OP, self, negative)?;
        if margin.is_nan() || margin <= 0.0 {
            bail!(Value, OP, "margin must be positive, got {margin}");
        }
        let dtype = loss_dtype(OP, &[self, positive, negative])?;
        let wide = |x: &Tensor| x.to_dtype(dtype);
        let (anchor, positive, negative) = (wide(self)?, wide(positive)?, wide(negative)?);
        let distance =
            |a: &Tensor, b: &Tensor| a.pairwise_distance_with(b, PairwiseDistanceOptions::new().p(p).eps(eps));
        let mut far = distance(&anchor, &negative)?;
        if swap {
            far = far.minimum(&distance(&positive, &negative)?)?;
        }
        reduction.of(&distance(&anchor, &positive)?.sub(&far)?.add(margin)?.clamp_min(0.0)?)
    }
}

/// Alternating 1 and -1.
fn signs(shape: &[usize]) -> Result<Tensor> {
    let n = shape.iter().product::<usize>();
    ints(&(0..n as i64).map(|i| 1 - 2 * (i % 2)).collect::<Vec<_>>(), shape)
}

fn hinge_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduction in REDUCTIONS {
        for shape in [&[2, 3][..], &[]] {
            all.push(sample![spread(shape, -2.0, 2.1)?, signs(shape)?; reduction = reduction, margin = 1.3]);
        }
    }
    all.push(sample![spread([4], -2.0, 2.1)?, signs(&[4])?]);
    Ok(all)
}

fn cosine_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduction in REDUCTIONS {
        let sample = sample![spread([3, 4], -1.2, 0.8)?, spread([3, 4], -0.3, 2.0)?, signs(&[3])?];
        all.push(sample.with("reduction", reduction).with("margin", -0.9));
    }
    all.push(sample![spread([4], -1.2, 0.8)?, spread([4], -0.3, 2.0)?, ints(&[1], [])?]);
    all.push(sample![spread([3, 4], -1.2, 0.8)?, spread([1, 4], -0.3, 2.0)?, ints(&[1], [1])?]);
    Ok(all)
}

fn cosine_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["shapes that differ", "[2, 3]", "[3]"; sample![&x, normal([3], 2)?, signs(&[2])?]],
        error!["another target", "[2, 3]", "[3]"; sample![&x, &x, signs(&[3])?]],
    ])
}

fn ranking_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduction in REDUCTIONS {
        let sample = sample![spread([2, 3], -1.2, 0.8)?, spread([2, 3], -0.3, 2.0)?, signs(&[2, 3])?];
        all.push(sample.with("reduction", reduction).with("margin", 0.7));
    }
    all.push(sample![spread([3], -1.2, 0.8)?, spread([3], -0.3, 2.0)?, spread([3], -1.0, 1.5)?]);
    all.push(sample![spread([3, 1], -1.2, 0.8)?, spread([1, 2], -0.3, 2.0)?, spread([1, 2], -1.0, 1.5)?]);
    Ok(all)
}

fn ranking_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3, 1], 1)?;
    Ok(vec![
        error!["shapes that differ", "[3, 1]", "[3]"; sample![&x, normal([3], 2)?, signs(&[3, 1])?]],
        error!["another target", "[3, 1]", "[3]"; sample![&x, &x, signs(&[3])?]],
    ])
}

fn triplet_samples() -> Result<Vec<Sample>> {
    let three = |shape: &[usize]| -> Result<Sample> {
        Ok(sample![spread(shape, -1.2, 0.8)?, spread(shape, -0.3, 2.0)?, spread(shape, -2.1, 1.0)?])
    };
    let mut all = vec![three(&[3, 4])?, three(&[4])?.with("p", 1.0)];
    for reduction in REDUCTIONS {
        all.push(three(&[2, 3])?.with("reduction", reduction).with("margin", 5.0).with("swap", true).with("p", 3.0));
    }
    Ok(all)
}

fn triplet_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["shapes that differ", "[2, 3]", "[3]"; sample![&x, &x, normal([3], 2)?]],
        error!["no margin", "0"; sample![&x, &x, &x; margin = 0.0]],
    ])
}
