//! Selection by rank (`topk`, `kthvalue`) and binary search.

use crate::backend::kernel;
use crate::backend::spec::Rank;
use crate::error::bail;
use crate::layout::resolve_dim_or_scalar;
use crate::layout::{Dim, ReduceDims};
use crate::ops::arg::choices;
use crate::ops::elementwise::call::common_dtype;
use crate::ops::index::gather::{at_least_1d, gather};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::tensor::Operand;
use crate::tensor::batch::behind;
use crate::{DType, Result, Tensor};

options! {
    /// The options of [`Tensor::topk_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::TopkOptions};
    /// let (values, _) = tensor!([3, 1, 2])?.topk_with(2, 0, TopkOptions::new().largest(false))?;
    /// assert_eq!(values.to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct TopkOptions {
        /// Whether to return the largest elements instead of the smallest.
        largest: bool = true,
        /// Whether the results must be sorted. They always are.
        sorted: bool = true,
    }
}

choices! {
    /// The side of equal elements at which a value is inserted.
    ///
    /// ```
    /// assert_eq!(cotangent::options::Side::Left.name(), "left");
    /// ```
    pub enum Side {
        /// Before equal elements.
        #[default]
        Left = "left",
        /// After equal elements.
        Right = "right",
    }
}

options! {
    /// The options of [`Tensor::searchsorted_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::{SearchsortedOptions, Side}};
    /// let x = tensor!([1, 3, 3, 5])?;
    /// assert_eq!(x.searchsorted_with(3, SearchsortedOptions::new().side(Side::Right))?.item::<i64>()?, 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SearchsortedOptions<'a> {
        /// Whether the result is `i32` instead of `i64`.
        out_int32: bool = false,
        /// Whether a value is inserted after equal elements.
        right: bool = false,
        /// The same as a [`Side`].
        side: Option<Side> = None,
        /// The indices that sort an unsorted sequence, as [`argsort`](Tensor::argsort) gives them.
        sorter: Option<&'a Tensor> = None,
    }
}

options! {
    /// The options of [`Tensor::bucketize_with`].
    ///
    /// ```
    /// use cotangent::{tensor, options::BucketizeOptions};
    /// let (x, boundaries) = (tensor!([3])?, tensor!([1, 3, 5])?);
    /// let after = x.bucketize_with(&boundaries, BucketizeOptions::new().right(true))?;
    /// assert_eq!(after.to_vec::<i64>()?, [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BucketizeOptions {
        /// Whether the result is `i32` instead of `i64`.
        out_int32: bool = false,
        /// Whether a value is inserted after an equal boundary.
        right: bool = false,
    }
}

/// The given single dimension, or the last one.
pub(in crate::ops) fn named_or_last(op: &'static str, x: &Tensor, over: &ReduceDims) -> Result<usize> {
    match over.dims.named.as_deref() {
        None => resolve_dim_or_scalar(op, -1, x.rank()),
        Some(&[dim]) => resolve_dim_or_scalar(op, dim, x.rank()),
        Some(dims) => bail!(Value, op, "dim must be a single dimension, got {dims:?}"),
    }
}

/// The element of a rank along a dimension, and its index; the dimension is kept with size 1.
#[track_caller]
pub(in crate::ops) fn chosen(op: &'static str, x: &Tensor, dim: usize, rank: Rank) -> Result<(Tensor, Tensor)> {
    let shape = x.layout().shape().with(dim, 1);
    if x.shape()[dim] == 0 {
        bail!(Shape, op, "dimension {dim} must not be empty, got shape {:?}", x.shape());
    }
    let indices = x.private()?.along_dim(dim, &|x, dim| {
        Tensor::build(op, x.layout().shape().with(dim, 1), DType::I64, x.device(), |out| {
            let x = x.as_view()?;
            kernel!("kthvalue" on [x, out]: index::select::kth(x, dim, rank, out))
        })
    })?;
    Ok((gather(op, x, dim, &indices, &shape)?, indices.record_barrier(op, &[x])))
}

/// Removes the reduced dimension from both results, unless `keepdim` is set.
pub(in crate::ops) fn reduced(x: &Tensor, dim: usize, keepdim: bool, all: [&Tensor; 2]) -> Result<(Tensor, Tensor)> {
    let fit = |y: &Tensor| {
        if x.rank() == 0 {
            y.reshape(())
        } else if keepdim {
            Ok(y.clone())
        } else {
            y.squeeze(dim)
        }
    };
    Ok((fit(all[0])?, fit(all[1])?))
}

/// The insertion points of `found` in the last dimension of `sequence`, which is one vector or has one row per row of
/// `found`. Outside the graph.
fn search(sequence: &Tensor, found: &Tensor, right: bool) -> Result<Tensor> {
    const OP: &str = "searchsorted";
    if sequence.is_batched() || found.is_batched() {
        return Tensor::over_batch(&[sequence, found], |level, all| {
            let shape = behind(level.size, found.layout().shape())?;
            let (own, found) = (all[1].expand(&shape)?.contiguous()?, found.numel());
            let each = behind(level.size, sequence.layout().shape())?;
            if sequence.rank() > 1 {
                return search(&all[0].expand(&each)?.contiguous()?, &own, right);
            }
            if all[0].shape()[0] != level.size {
                return search(&all[0].squeeze(0)?, &own, right);
            }
            // The values of an example are one row, for its sequence.
            search(&all[0].contiguous()?, &own.reshape([level.size, found])?, right)?.reshape(&shape)
        });
    }
    let Some((&len, outer)) = sequence.shape().split_last() else { return found.zeros_like() };
    let rows: usize = if outer.is_empty() || len == 0 || found.numel() == 0 { 1 } else { outer.iter().product() };
    Tensor::build(OP, found.layout().shape().clone(), DType::I64, found.device(), |out| {
        let (sequence, found) = (sequence.as_view()?, found.as_view()?);
        kernel!("searchsorted" on [sequence, found, out]: index::search::searchsorted(sequence, rows, found, right, out))
    })
}

/// # Top-k and order statistics
#[ops]
impl Tensor {
    /// The `k` largest elements along a dimension in descending order, or the smallest in ascending order, and their
    /// indices. Among equal elements the first are chosen. NaN counts as the largest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::TopkOptions};
    /// let (values, indices) = tensor!([3.0, 1.0, 2.0])?.topk(2, 0)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(indices.to_vec::<i64>()?, [0, 2]);
    /// let (values, _) = tensor!([3, 1, 2])?.topk_with(1, -1, TopkOptions::new().largest(false))?;
    /// assert_eq!(values.to_vec::<i64>()?, [1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or it has fewer than `k` elements.
    #[op(samples = topk_samples, errors = topk_errors, outputs = [values, indices], batch)]
    pub fn topk(
        &self,
        k: usize,
        #[default(-1)] dim: impl Into<Dim>,
        options: impl Into<TopkOptions>,
    ) -> Result<(Tensor, Tensor)> {
        let dim = resolve_dim_or_scalar("topk", dim.0, self.rank())?;
        let x = at_least_1d(self)?;
        if k > x.shape()[dim] {
            let (most, shape) = (x.shape()[dim], self.shape());
            bail!(Value, "topk", "k must be at most {most} for dimension {dim} of shape {shape:?}, got {k}");
        }
        let shape = x.layout().shape().with(dim, k);
        let indices = x.private()?.along_dim(dim, &|x, dim| {
            Tensor::build("topk", x.layout().shape().with(dim, k), DType::I64, x.device(), |out| {
                let x = x.as_view()?;
                kernel!("topk" on [x, out]: index::select::first_in_order(x, dim, options.largest, out))
            })
        })?;
        let values = gather("topk", &x, dim, &indices, &shape)?;
        let indices = indices.record_barrier("topk", &[self]);
        // A 0-dimensional tensor gives a 0-dimensional result for k = 1, and an empty vector for k = 0.
        if self.rank() == 0 && k == 1 { Ok((values.reshape(())?, indices.reshape(())?)) } else { Ok((values, indices)) }
    }

    /// The `k`-th smallest element along a dimension, counted from 1, and its index; without a dimension (`..`), along
    /// the last. NaN counts as the largest.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (value, index) = tensor!([3.0, 1.0, 2.0])?.kthvalue(2, 0)?;
    /// assert_eq!((value.item::<f32>()?, index.item::<i64>()?), (2.0, 2));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, several are given, `k` is 0, or there are fewer than `k` elements.
    #[op(samples = kthvalue_samples, errors = kthvalue_errors, outputs = [values, indices], batch)]
    pub fn kthvalue(&self, k: usize, over: impl Into<ReduceDims>) -> Result<(Tensor, Tensor)> {
        let (dim, x) = (named_or_last("kthvalue", self, &over)?, at_least_1d(self)?);
        if k == 0 || k > x.shape()[dim] {
            let (most, shape) = (x.shape()[dim], self.shape());
            bail!(Value, "kthvalue", "k must be in [1, {most}] for dimension {dim} of shape {shape:?}, got {k}");
        }
        let (values, indices) = chosen("kthvalue", &x, dim, Rank::At(k - 1))?;
        reduced(self, dim, over.keepdim, [&values, &indices])
    }

    /// For each number of `input`, the index where it would be inserted into this sequence, which is ascending along
    /// its last dimension: the count of smaller elements or, with `right`, of elements not larger. A vector is searched
    /// for all numbers; otherwise the leading dimensions must be those of `input`. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::SearchsortedOptions};
    /// let x = tensor!([1, 3, 3, 5])?;
    /// assert_eq!(x.searchsorted(&tensor!([0, 3, 9])?)?.to_vec::<i64>()?, [0, 1, 4]);
    /// let right = SearchsortedOptions::new().right(true);
    /// assert_eq!(x.searchsorted_with(&tensor!([0, 3, 9])?, right)?.to_vec::<i64>()?, [0, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not match, the dtypes have no common type, or the options contradict each other.
    #[op(samples = searchsorted_samples, errors = searchsorted_errors, derivative = none)]
    pub fn searchsorted<'a>(
        &self,
        input: impl Into<Operand<'a>>,
        options: impl Into<SearchsortedOptions<'a>>,
    ) -> Result<Tensor> {
        let SearchsortedOptions { out_int32, right, side, sorter } = options;
        if right && side == Some(Side::Left) {
            bail!(Value, "searchsorted", "side must be right when right is true, got {}", Side::Left);
        }
        let values = input.compared(self.dtype(), self.device())?;
        let Some((_, outer)) = self.shape().split_last() else {
            bail!(Shape, "searchsorted", "sorted sequence must have at least 1 dimension, got shape []");
        };
        let alike = self.rank() == 1 || values.shape().split_last().is_some_and(|(_, others)| others == outer);
        if !alike {
            let (own, other) = (self.shape(), values.shape());
            bail!(
                Shape,
                "searchsorted",
                "input must have the leading dimensions of shape {own:?}, got shape {other:?}"
            );
        }
        let sequence = match sorter {
            None => self.detach(),
            Some(sorter) if sorter.shape() != self.shape() => {
                bail!(Shape, "searchsorted", "sorter must have shape {:?}, got {:?}", self.shape(), sorter.shape())
            }
            Some(sorter) => self.detach().gather(-1, sorter)?,
        };
        let dtype = common_dtype("searchsorted", self.dtype(), values.dtype())?;
        let sequence = sequence.to_dtype(dtype)?.contiguous()?;
        let found = values.detach().to_dtype(dtype)?.contiguous()?;
        let out = search(&sequence, &found, right || side == Some(Side::Right))?;
        let out = if out_int32 { out.to_dtype(DType::I32)? } else { out };
        Ok(out.record_barrier("searchsorted", &[self, &values]))
    }

    /// For each element, the index of its bucket between `boundaries`, an ascending vector: the count of boundaries
    /// that are smaller or, with `right`, not larger. It has no derivative.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::BucketizeOptions};
    /// let (x, boundaries) = (tensor!([0, 3, 9])?, tensor!([1, 3, 5])?);
    /// assert_eq!(x.bucketize(&boundaries)?.to_vec::<i64>()?, [0, 1, 3]);
    /// let right = BucketizeOptions::new().right(true);
    /// assert_eq!(x.bucketize_with(&boundaries, right)?.to_vec::<i64>()?, [0, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the boundaries are not a vector, or the dtypes have no common type.
    #[op(samples = bucketize_samples, errors = bucketize_errors, derivative = none)]
    pub fn bucketize(&self, boundaries: &Tensor, options: impl Into<BucketizeOptions>) -> Result<Tensor> {
        if boundaries.rank() != 1 {
            bail!(Shape, "bucketize", "boundaries must be a vector, got shape {:?}", boundaries.shape());
        }
        let same = SearchsortedOptions::new().out_int32(options.out_int32).right(options.right);
        boundaries.searchsorted_with(self, same)
    }
}

fn topk_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, 2],
        sample![spread([3, 4], -2.0, 2.0)?, 3, 0],
        sample![spread([2, 5, 3], -2.0, 2.0)?, 2, 1; largest = false],
        sample![spread([7], -2.0, 2.0)?, 7, -1],
        sample![spread([], -2.0, 2.0)?, 1],
        sample![spread([300], -2.0, 2.0)?, 5],
        sample![spread([3], -2.0, 2.0)?, 0].zero_derivative(),
        sample![spread([0, 2], -2.0, 2.0)?, 1, 1],
        sample![ints(&[3, -1, 2, 3, -1, 0], [2, 3])?, 2, 1],
    ])
}

fn topk_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 1, 2]],
        error!["too many", "4", "[2, 3]"; sample![normal([2, 3], 1)?, 4]],
    ])
}

fn kthvalue_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([3, 4], -2.0, 2.0)?, 2],
        sample![spread([3, 4], -2.0, 2.0)?, 3, 0; keepdim = true],
        sample![spread([2, 5, 3], -2.0, 2.0)?, 5, 1],
        sample![spread([7], -2.0, 2.0)?, 1, -1],
        sample![spread([], -2.0, 2.0)?, 1; keepdim = true],
        sample![spread([2, 1500], -2.0, 2.0)?, 700],
        sample![spread([0, 2], -2.0, 2.0)?, 1, 1],
    ])
}

fn kthvalue_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 1, 2]],
        error!["too many", "4", "[2, 3]"; sample![normal([2, 3], 1)?, 4]],
        error!["none", "got 0"; sample![normal([2, 3], 1)?, 0]],
        error!["several dimensions", "[0, 1]"; sample![normal([2, 3], 1)?, 1, [0, 1]]],
        error!["no dimension", "[]"; sample![normal([2, 3], 1)?, 1, &[0isize; 0][..]]],
    ])
}

fn searchsorted_samples() -> Result<Vec<Sample>> {
    let sorted = |shape: &[usize]| spread(shape, -2.0, 2.0)?.msort();
    let rows = spread([2, 5], -2.0, 2.0)?.sort(1)?.0;
    let mixed = spread([6], -2.0, 2.0)?;
    Ok(vec![
        sample![sorted(&[6])?, spread([2, 3], -3.0, 3.0)?],
        sample![sorted(&[6])?, sorted(&[6])?; right = true],
        sample![rows, spread([2, 3], -3.0, 3.0)?; side = "right"],
        sample![sorted(&[6])?, 0.5; out_int32 = true],
        sample![&mixed, spread([4], -3.0, 3.0)?; sorter = mixed.argsort(0)?],
        sample![ints(&[1, 3, 3, 5], [4])?, ints(&[0, 3, 4, 9], [2, 2])?],
        sample![sorted(&[0])?, spread([3], -3.0, 3.0)?],
        sample![sorted(&[3])?, spread([0], -3.0, 3.0)?],
    ])
}

fn searchsorted_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["rows that do not fit", "[3, 3]", "[2, 3]"; sample![x()?, normal([3, 3], 1)?]],
        error!["a number for rows", "[]", "[2, 3]"; sample![x()?, 1.0]],
        error!["a number as sequence", "sequence"; sample![normal([], 1)?, 1.0]],
        error!["a contradiction", "right", "left"; sample![normal([3], 1)?, 1.0; right = true, side = "left"]],
        error!["a short sorter", "[2]", "[3]"; sample![normal([3], 1)?, 1.0; sorter = ints(&[0, 1], [2])?]],
    ])
}

fn bucketize_samples() -> Result<Vec<Sample>> {
    let boundaries = || spread([5], -2.0, 2.0)?.msort();
    Ok(vec![
        sample![spread([2, 3], -3.0, 3.0)?, boundaries()?],
        sample![spread([], -3.0, 3.0)?, boundaries()?; right = true],
        sample![ints(&[1, 3, 3, 5], [4])?, ints(&[1, 3], [2])?; out_int32 = true],
    ])
}

fn bucketize_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["boundaries in rows", "[2, 3]"; sample![normal([3], 1)?, normal([2, 3], 1)?]]])
}
