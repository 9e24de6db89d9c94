//! Slices along a dimension, written at the indices in a vector.

use crate::backend::spec::IndexFold;
use crate::error::bail;
use crate::layout::Dim;
use crate::ops::index::gather::{add_at, along_dim};
use crate::ops::index::scatter::{ScatterReduce, ScatterReduceOptions, fold_at, reduced};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};

options! {
    /// The options of [`Tensor::index_add_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::IndexAddOptions};
    /// let (x, index) = (Tensor::zeros([2])?, tensor!([1])?);
    /// let y = x.index_add_with(0, &index, &Tensor::ones([1])?, IndexAddOptions::new().alpha(3.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct IndexAddOptions {
        /// The factor for the source.
        alpha: Scalar = Scalar::I64(1),
    }
}

/// Checks the arguments: the tensor as at least a vector, the dimension, the index and a source of matching shape.
fn along(
    op: &'static str,
    x: &Tensor,
    dim: Dim,
    index: &Tensor,
    source: &Tensor,
) -> Result<(Tensor, usize, Tensor, Tensor)> {
    let (from, source) =
        if x.rank() == 0 { (x.reshape([1])?, source.atleast_1d()?) } else { (x.clone(), source.clone()) };
    let (dim, index) = along_dim(op, &from, dim.0, index)?;
    let expected = from.layout().shape().with(dim, index.numel());
    // With a single index, the source may lack the dimension.
    let fits = *source.layout().shape() == expected;
    let without = index.numel() == 1 && source.rank() + 1 == from.rank();
    let source = if !fits && without { source.unsqueeze(dim)? } else { source };
    if *source.layout().shape() != expected {
        bail!(Shape, op, "source must have shape {expected:?}, got {:?}", source.shape());
    }
    Ok((from, dim, index, source))
}

/// # Take and put
#[ops]
impl Tensor {
    /// A copy of this tensor with the slices of `source` along a dimension added at the indices in the vector `index`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.index_add(0, &tensor!([1, 1])?, &tensor!([[1.0, 2.0], [3.0, 4.0]])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 4.0, 6.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[op(in_place, samples = index_add_samples, errors = along_errors)]
    pub fn index_add(
        &self,
        dim: impl Into<Dim>,
        index: &Tensor,
        source: &Tensor,
        options: impl Into<IndexAddOptions>,
    ) -> Result<Tensor> {
        let (x, dim, index, mut source) = along("index_add", self, dim, index, source)?;
        let alpha = options.alpha;
        if alpha != Scalar::I64(1) {
            if alpha.promote_with(source.dtype()) != source.dtype() {
                bail!(
                    DType,
                    "index_add",
                    "cannot multiply a source of {} by alpha = {alpha}: cast the source first",
                    source.dtype()
                );
            }
            source = source.mul(alpha)?;
        }
        add_at("index_add", &x, dim, &index, &source)?.reshape(self.shape())
    }

    /// A copy of this tensor with the slices of `source` along a dimension written at the indices in the vector
    /// `index`. If an index repeats, the last slice wins.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([3])?.index_copy(0, &tensor!([2, 0])?, &tensor!([1.0, 2.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[op(in_place, autocast_cpu = widest, samples = index_copy_samples, errors = along_errors)]
    pub fn index_copy(&self, dim: impl Into<Dim>, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        let (x, dim, index, source) = along("index_copy", self, dim, index, source)?;
        fold_at("index_copy", IndexFold::Replace, &x, dim, &index, &source)?.reshape(self.shape())
    }

    /// A copy of this tensor with one value, a number or a 0-dimensional tensor, at the indices of a dimension in the
    /// vector `index`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.index_fill(1, &tensor!([1])?, 5.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 5.0, 0.0, 5.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of range or not an integer, or the value is a tensor that is not 0-dimensional.
    #[op(in_place, samples = index_fill_samples, errors = index_fill_errors)]
    pub fn index_fill<'a>(&self, dim: impl Into<Dim>, index: &Tensor, value: impl Into<Operand<'a>>) -> Result<Tensor> {
        let value = value.put("index_fill", self.dtype(), self.device())?.to_dtype(self.dtype())?;
        if value.rank() != 0 {
            bail!(
                Shape,
                "index_fill",
                "value must be a number or a 0-dimensional tensor, got shape {:?}",
                value.shape()
            );
        }
        let x = self.atleast_1d()?;
        let (dim, index) = along_dim("index_fill", &x, dim.0, index)?;
        let index = wrapped_along("index_fill", &x, dim, &index)?;
        let part = x.layout().shape().with(dim, index.numel());
        fold_at("index_fill", IndexFold::Replace, &x, dim, &index, &value.expand(&part)?)?.reshape(self.shape())
    }

    /// [`scatter_reduce`](Self::scatter_reduce) with whole slices of `source` along a dimension at the indices in the
    /// vector `index`.
    ///
    /// ```
    /// # use cotangent::{tensor, options::ScatterReduce};
    /// let (x, source) = (tensor!([[1.0, 2.0]])?, tensor!([[3.0, 0.0], [0.0, 4.0]])?);
    /// let y = x.index_reduce(0, &tensor!([0, 0])?, &source, ScatterReduce::Amax)?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[op(in_place, samples = index_reduce_samples, errors = index_reduce_errors)]
    pub fn index_reduce(
        &self,
        dim: impl Into<Dim>,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        options: impl Into<ScatterReduceOptions>,
    ) -> Result<Tensor> {
        let (x, dim, index, source) = along("index_reduce", self, dim, index, source)?;
        reduced("index_reduce", (&x, dim, &index, &source), reduce, options.include_self)?.reshape(self.shape())
    }
}

/// Indices along a dimension with negative ones counted from the end, shaped to broadcast along it.
fn wrapped_along(op: &'static str, x: &Tensor, dim: usize, index: &Tensor) -> Result<Tensor> {
    crate::tensor::integers(op, x, dim, index).map(|mut all| all.swap_remove(0))
}

/// Samples of operations that take a tensor, a dimension, an index and a source.
fn along_samples(with: impl Fn(Sample) -> Sample) -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    let parts = |shape: &[usize]| spread(shape, 1.1, 2.9);
    let all = vec![
        sample![x(&[3, 2])?, 0, ints(&[2, 0], [2])?, parts(&[2, 2])?],
        sample![x(&[2, 3, 2])?, -2, ints(&[1, 2, 1, 1], [4])?, parts(&[2, 4, 2])?],
        sample![x(&[4])?, 0, ints(&[3, 3], [2])?, parts(&[2])?],
        sample![x(&[2, 3])?, 1, ints(&[1], [])?, parts(&[2, 1])?],
        sample![x(&[2, 3])?, 0, ints(&[], [0])?, parts(&[0, 3])?],
        sample![x(&[])?, 0, ints(&[0], [1])?, parts(&[1])?],
    ];
    Ok(all.into_iter().map(with).collect())
}

fn index_add_samples() -> Result<Vec<Sample>> {
    let mut all = along_samples(|sample| sample)?;
    all.push(sample![spread([3], -2.0, 2.0)?, 0, ints(&[2, 0, 2], [3])?, spread([3], 1.0, 2.0)?; alpha = -1.5]);
    Ok(all)
}

fn index_copy_samples() -> Result<Vec<Sample>> {
    along_samples(|sample| sample)
}

fn index_reduce_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduce in ["prod", "mean", "amax", "amin"] {
        all.extend(along_samples(|sample| sample.with("reduce", reduce))?);
        let index = ints(&[2, 0, 2], [3])?;
        all.push(sample![spread([4], -2.0, 2.0)?, 0, index, spread([3], -3.1, 2.9)?, reduce; include_self = false]);
    }
    Ok(all)
}

fn along_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    let source = normal([1, 3], 2)?;
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![x()?, 0, ints(&[2], [1])?, &source]],
        error!["a negative index", "index -1", "size 2"; sample![x()?, 0, ints(&[-1], [1])?, &source]],
        error!["another shape", "[1, 3]", "[2, 3]"; sample![x()?, 0, ints(&[0, 1], [2])?, &source]],
        error!["a matrix of indices", "[1, 1]"; sample![x()?, 0, ints(&[0], [1, 1])?, &source]],
        error!["another dtype", "f32", "f64"; sample![x()?, 0, ints(&[1], [1])?, source.to_dtype(DType::F32)?]],
    ])
}

fn index_reduce_errors() -> Result<Vec<ErrorCase>> {
    let (x, source) = (normal([2, 3], 1)?, normal([1, 3], 2)?);
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![&x, 0, ints(&[2], [1])?, &source, "prod"]],
        error!["another shape", "[1, 3]", "[2, 3]"; sample![&x, 0, ints(&[0, 1], [2])?, &source, "prod"]],
        error!["no such reduction", "reduce"; sample![&x, 0, ints(&[0], [1])?, &source, "median"]],
    ])
}

fn index_fill_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[3, 2])?, 0, ints(&[2, 0], [2])?, 1.5],
        sample![x(&[2, 3])?, -1, ints(&[1, 1, -3], [3])?, spread([], 1.0, 2.0)?],
        sample![x(&[4])?, 0, ints(&[2], [])?, 3],
        sample![x(&[2, 3])?, 0, ints(&[], [0])?, 1.5],
        sample![x(&[])?, 0, ints(&[0], [1])?, spread([], 1.0, 2.0)?],
    ])
}

fn index_fill_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["an index too large", "2", "[2, 3]"; sample![x()?, 0, ints(&[2], [1])?, 1.5]],
        error!["an index too small", "-3", "[2, 3]"; sample![x()?, 0, ints(&[-3], [1])?, 1.5]],
        error!["a vector", "[1]"; sample![x()?, 0, ints(&[1], [1])?, normal([1], 1)?]],
        error!["indices of floats", "integers", "f64"; sample![x()?, 0, normal([1], 1)?, 1.5]],
    ])
}
