//! Distances and similarities of vectors.

use crate::error::bail;
use crate::layout::resolve_dim;
use crate::layout::{Dim, ReduceDims};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::options::{DistOptions, TriangleIndicesOptions};
use crate::{Result, Tensor, keepdim};

options! {
    /// The options of [`Tensor::pairwise_distance_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::PairwiseDistanceOptions};
    /// let (x, y) = (tensor!([[3.0, 4.0]])?, tensor!([[0.0, 0.0]])?);
    /// let options = PairwiseDistanceOptions::new().p(1.0).eps(0.0).keepdim(true);
    /// assert_eq!(x.pairwise_distance_with(&y, options)?.shape(), [1, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct PairwiseDistanceOptions {
        /// The order of the norm.
        p: f64 = 2.0,
        /// Added to each difference, for numerical stability.
        eps: f64 = 1e-6,
        /// Whether the reduced dimension is kept with size 1.
        keepdim: bool = false,
    }
}

options! {
    /// The options of [`Tensor::cosine_similarity_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::CosineSimilarityOptions};
    /// let x = tensor!([3.0, 4.0])?;
    /// assert_eq!(x.cosine_similarity_with(&x, CosineSimilarityOptions::new().dim(0))?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CosineSimilarityOptions {
        /// The dimension of the vectors.
        dim: Dim = Dim(1),
        /// The lower bound of the norms that are divided by.
        eps: f64 = 1e-8,
    }
}

options! {
    /// The options of [`Tensor::normalize_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::NormalizeOptions};
    /// let x = tensor!([3.0, 4.0])?.normalize_with(NormalizeOptions::new().dim(0))?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.6, 0.8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct NormalizeOptions {
        /// The order of the norm.
        p: f64 = 2.0,
        /// The dimension of the vectors.
        dim: Dim = Dim(1),
        /// The lower bound of the norms that are divided by.
        eps: f64 = 1e-12,
    }
}

/// The norms along the last dimension; 0 for empty vectors.
#[track_caller]
fn lengths(x: &Tensor, over: ReduceDims, p: f64) -> Result<Tensor> {
    if x.shape().last() == Some(&0) { x.sum(over) } else { x.norm_with(over, p) }
}

fn check_power(op: &'static str, p: f64) -> Result<()> {
    if p.is_nan() || p < 0.0 {
        bail!(Value, op, "p must be ≥ 0, got {p}");
    }
    Ok(())
}

/// # Pairwise distances
#[ops]
impl Tensor {
    /// The pairwise distances of the rows of two matrices, as a matrix. Leading dimensions are a batch, and broadcast.
    /// The power of the norm is an option.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (x, y) = (tensor!([[0.0, 0.0], [3.0, 4.0]])?, tensor!([[0.0, 0.0]])?);
    /// assert_eq!(x.cdist(&y)?.to_vec::<f32>()?, [0.0, 5.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, the elements are not floats, or `p` is negative.
    #[op(autocast = f32, samples = cdist_samples, errors = cdist_errors)]
    pub fn cdist(&self, x2: &Tensor, options: impl Into<DistOptions>) -> Result<Tensor> {
        float_only("cdist", self)?;
        check_power("cdist", options.p)?;
        if self.rank() < 2 || x2.rank() < 2 || self.shape().last() != x2.shape().last() {
            bail!(
                Shape,
                "cdist",
                "inputs must have at least 2 dimensions and equal last sizes, got shapes {:?} and {:?}",
                self.shape(),
                x2.shape()
            );
        }
        lengths(&self.unsqueeze(-2)?.sub(&x2.unsqueeze(-3)?)?, (-1).into(), options.p)
    }

    /// The distances of all pairs of rows of a matrix, as a vector: the first row and each later one, then the second,
    /// and so on.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])?;
    /// assert_eq!(x.pdist()?.to_vec::<f32>()?, [5.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input is not a matrix, the elements are not floats, or `p` is negative.
    #[op(autocast_cuda = f32, samples = pdist_samples, errors = pdist_errors)]
    pub fn pdist(&self, options: impl Into<DistOptions>) -> Result<Tensor> {
        float_only("pdist", self)?;
        check_power("pdist", options.p)?;
        if self.rank() != 2 {
            bail!(Shape, "pdist", "input must be a matrix, got shape {:?}", self.shape());
        }
        let n = self.shape()[0];
        let pairs =
            Tensor::triu_indices_with(n, n, TriangleIndicesOptions::new().offset(1_isize))?.to_device(self.device())?;
        let row = |which: usize| self.index_select(0, &pairs.select(0, which)?);
        lengths(&row(0)?.sub(&row(1)?)?, (-1).into(), options.p)
    }

    /// The distances of corresponding vectors in the last dimension.
    ///
    /// ```
    /// # use cotangent::{tensor, options::PairwiseDistanceOptions};
    /// let (x, y) = (tensor!([[3.0, 4.0]])?, tensor!([[0.0, 0.0]])?);
    /// assert_eq!(x.pairwise_distance_with(&y, PairwiseDistanceOptions::new().eps(0.0))?.to_vec::<f32>()?, [5.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, or `p` is NaN.
    #[op(autocast_cuda = f32, samples = pairwise_samples, errors = pairwise_errors)]
    pub fn pairwise_distance(&self, x2: &Tensor, options: impl Into<PairwiseDistanceOptions>) -> Result<Tensor> {
        let PairwiseDistanceOptions { p, eps, keepdim: keep } = options;
        let over = if keep { keepdim(-1) } else { (-1).into() };
        lengths(&self.sub(x2)?.add(eps)?, over, p)
    }

    /// The cosine similarity of corresponding vectors along a dimension. The tensors broadcast.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let (x, y) = (tensor!([[3.0, 4.0]])?, tensor!([[-4.0, 3.0]])?);
    /// assert_eq!(x.cosine_similarity(&y)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast, there is no such dimension, or the elements are not floats.
    #[op(autocast_cuda = f32, samples = cosine_samples, errors = cosine_errors)]
    pub fn cosine_similarity(&self, x2: &Tensor, options: impl Into<CosineSimilarityOptions>) -> Result<Tensor> {
        const OP: &str = "cosine_similarity";
        let CosineSimilarityOptions { dim, eps } = options;
        float_only(OP, self)?;
        float_only(OP, x2)?;
        let mut both = Tensor::broadcast_tensors(&[self, x2])?;
        if both[0].rank() == 0 {
            both = vec![both[0].unsqueeze(0)?, both[1].unsqueeze(0)?];
        }
        let dim = resolve_dim(OP, dim.0, both[0].rank())?;
        let unit = |x: &Tensor| x.div(&x.norm(keepdim(dim))?.maximum(eps)?);
        unit(&both[0])?.mul(&unit(&both[1])?)?.sum(dim)
    }

    /// Divides the vectors along a dimension by their norms.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[3.0, 4.0]])?.normalize()?.to_vec::<f32>()?, [0.6, 0.8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the elements are not floats.
    #[op(autocast_cuda = f32, samples = normalize_samples, errors = normalize_errors)]
    pub fn normalize(&self, options: impl Into<NormalizeOptions>) -> Result<Tensor> {
        let NormalizeOptions { p, dim, eps } = options;
        self.div(&self.norm_with(keepdim(dim.0), p)?.maximum(eps)?)
    }
}

fn cdist_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 2.0);
    Ok(vec![
        sample![x(&[3, 2], -2.0)?, x(&[4, 2], 0.3)?],
        sample![x(&[2, 3, 2], -2.0)?, x(&[1, 2, 2], 0.3)?; p = 1.0],
        sample![x(&[3, 2], -2.0)?, x(&[4, 2], 0.3)?; p = 3.0],
        sample![x(&[3, 2], -2.0)?, x(&[4, 2], 0.3)?; p = f64::INFINITY],
        sample![x(&[0, 2], -2.0)?, x(&[4, 2], 0.3)?],
        sample![x(&[3, 0], -2.0)?, x(&[2, 0], 0.3)?],
    ])
}

fn cdist_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["other lengths", "[2, 3]", "[2, 4]"; sample![normal([2, 3], 1)?, normal([2, 4], 1)?]],
        error!["vectors", "[3]"; sample![normal([3], 1)?, normal([3], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?, ints(&[1, 2], [1, 2])?]],
        error!["a negative power", "-1"; sample![normal([2, 3], 1)?, normal([2, 3], 1)?; p = -1.0]],
    ])
}

fn pdist_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[4, 3])?],
        sample![x(&[3, 2])?; p = 1.0],
        sample![x(&[4, 2])?; p = 3.0],
        sample![x(&[1, 2])?].zero_derivative(),
    ])
}

fn pdist_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a vector", "[3]"; sample![normal([3], 1)?]],
        error!["a negative power", "-1"; sample![normal([2, 3], 1)?; p = -1.0]],
    ])
}

fn pairwise_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 2.0);
    Ok(vec![
        sample![x(&[3, 2], -2.0)?, x(&[3, 2], 0.3)?],
        sample![x(&[2, 3], -2.0)?, x(&[3], 0.3)?; p = 1.0, keepdim = true],
        sample![x(&[4], -2.0)?, x(&[4], 0.3)?; p = 3.0, eps = 0.1],
    ])
}

fn pairwise_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["shapes that do not broadcast", "[2, 3]", "[2, 4]"; sample![normal([2, 3], 1)?, normal([2, 4], 1)?]],
    ])
}

fn cosine_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize], low: f64| spread(shape, low, low + 2.0);
    Ok(vec![
        sample![x(&[3, 2], -1.2)?, x(&[3, 2], 0.3)?],
        sample![x(&[3, 2], -1.2)?, x(&[3, 1], 0.3)?; dim = 0],
        sample![x(&[2, 3, 2], -1.2)?, x(&[3, 2], 0.3)?; dim = -1, eps = 0.1],
    ])
}

fn cosine_errors() -> Result<Vec<ErrorCase>> {
    let mut all = pairwise_errors()?;
    all.push(error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?, ints(&[1, 2], [1, 2])?]]);
    all.push(error!["no such dimension", "1", "rank 1"; sample![normal([3], 1)?, normal([3], 1)?]]);
    Ok(all)
}

fn normalize_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.1);
    Ok(vec![
        sample![x(&[3, 2])?],
        sample![x(&[4])?; dim = 0, p = 3.0],
        sample![x(&[2, 3, 2])?; dim = -2, p = 1.0],
        sample![x(&[0, 2])?],
    ])
}

fn normalize_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "1", "rank 1"; sample![normal([3], 1)?]],
        error!["integers", "i64"; sample![ints(&[1, 2], [1, 2])?]],
    ])
}
