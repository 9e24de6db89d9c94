//! Reading by index, and adding by index.

use crate::autograd::BackwardContext;
use crate::backend::spec::IndexFold;
use crate::backend::{self, Indices};
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::{Layout, checked_bytes, resolve_dim};
use crate::ops::index::scatter::scattered;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::storage::Storage;
use crate::tensor::Index;
use crate::tensor::batch::behind;
use crate::{DType, Device, Result, Shape, Tensor};
use smallvec::smallvec;
use std::borrow::Cow;

/// Indices as `i64`, outside the graph, in private memory. [`Indices::check`] checks the values.
pub(in crate::ops) fn as_indices(op: &'static str, index: &Tensor) -> Result<Tensor> {
    if !index.dtype().is_int() {
        bail!(DType, op, "indices must be integers, got {}", index.dtype());
    }
    let index = &*index.private()?;
    // On a GPU such an index becomes negative, and the kernel refuses it.
    if index.dtype() == DType::U64
        && index.device() == Device::Cpu
        && let Some(largest) =
            index.detach().all_examples()?.to_vec::<u64>()?.into_iter().find(|&i| i > i64::MAX as u64)
    {
        bail!(Index, op, "index {largest} is out of range for any dimension");
    }
    index.detach().to_dtype(DType::I64)
}

/// A vector of `n` indices in accounted memory, since `n` may be chosen by the caller.
pub(in crate::ops) fn index_vector(op: &'static str, n: usize, indices: impl Iterator<Item = usize>) -> Result<Tensor> {
    Tensor::empty(op, n.into(), DType::I64, Device::Cpu)?.filled_from(indices.map(|at| at as i64))
}

/// A vector of indices reshaped to broadcast along dimension `dim` of `rank` dimensions.
pub(crate) fn lined_up(index: &Tensor, dim: usize, rank: usize) -> Result<Tensor> {
    let mut sizes: Vec<usize> = vec![1; rank];
    sizes[dim] = index.numel();
    index.reshape(&sizes)
}

/// The elements of `x` that `index` selects along `dim`, as a tensor of `shape`, to which `index` broadcasts; outside the
/// graph.
pub(in crate::ops) fn gathered(
    op: &'static str,
    x: &Tensor,
    dim: usize,
    index: &Tensor,
    shape: &Shape,
) -> Result<Tensor> {
    if x.is_batched() || index.is_batched() {
        return Tensor::over_batch(&[x, index], |level, all| {
            let own = all[0].expand(behind(level.size, x.layout().shape())?)?;
            gathered(op, &own, dim + 1, all[1], &behind(level.size, shape)?)
        });
    }
    let indices = Indices::check(op, index.as_view()?, x.shape()[dim])?;
    let mut out = Tensor::empty(op, shape.clone(), x.dtype(), x.device())?;
    backend::gather(op, x.as_view()?, dim, &indices, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

/// [`gathered`] with its derivative.
#[track_caller]
pub(in crate::ops) fn gather(
    op: &'static str,
    x: &Tensor,
    dim: usize,
    index: &Tensor,
    shape: &Shape,
) -> Result<Tensor> {
    if x.dtype().is_complex() {
        return x.by_parts(|part| gather(op, part, dim, index, shape));
    }
    gathered(op, x, dim, index, shape)?.record(op, &[x], |save| {
        let (shape, index) = (x.layout().shape().clone(), save.save(index));
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(scatter(&shape, dim, &index, g)?)])
    })
}

/// Zeros of `shape` with the elements of `source` added at `index` along `dim`; the index broadcasts to the shape of the
/// source. The derivative of [`gather`], which is the derivative of this.
#[track_caller]
pub(in crate::ops) fn scatter(shape: &Shape, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    if source.dtype().is_complex() {
        return source.by_parts(|part| scatter(shape, dim, index, part));
    }
    let op = "scatter_add";
    sums(op, shape, dim, index, source)?.to_dtype(source.dtype())?.record(op, &[source], |save| {
        let (shape, index) = (source.layout().shape().clone(), save.save(index));
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(gather("gather", g, dim, &index, &shape)?)])
    })
}

/// `base` with `source` added at `index` along `dim`, with the derivatives of both.
#[track_caller]
pub(in crate::ops) fn add_at(
    op: &'static str,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    if base.dtype() != source.dtype() {
        bail!(DType, op, "cannot add {} to {}: cast one of them first", source.dtype(), base.dtype());
    }
    if base.dtype().is_complex() {
        return base.by_parts_with(source, |base, source| add_at(op, base, dim, index, source));
    }
    let sum = folded(op, IndexFold::Add, base, dim, index, source)?;
    sum.to_dtype(base.dtype())?.record(op, &[base, source], |save| {
        let (shape, index) = (source.layout().shape().clone(), save.save_for(1, index));
        move |ctx: &BackwardContext, g: &Tensor| {
            Ok(smallvec![Some(g.clone()), ctx.want(1, || gather("gather", g, dim, index.get()?, &shape))?])
        }
    })
}

/// Zeros of `shape` with the elements of `source` added, in the compute dtype; outside the graph.
fn sums(op: &'static str, shape: &Shape, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    if index.is_batched() || source.is_batched() {
        return Tensor::over_batch(&[index, source], |level, all| {
            let source = all[1].expand(behind(level.size, source.layout().shape())?)?;
            sums(op, &behind(level.size, shape)?, dim + 1, all[0], &source)
        });
    }
    let compute = source.dtype().compute_dtype();
    let storage = Storage::zeroed(op, source.device(), checked_bytes(op, shape, compute.size())?)?;
    let zeros = Tensor::from_parts(storage, Layout::contiguous(shape.clone()), compute);
    fold_into(op, IndexFold::Add, None, zeros, dim, index, source)
}

/// A copy of `base` with the elements of `source` folded in at `index` along `dim`, outside the graph. The result has the
/// compute dtype, unless elements are replaced.
pub(in crate::ops) fn folded(
    op: &'static str,
    by: IndexFold,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    if base.is_batched() || index.is_batched() || source.is_batched() {
        return Tensor::over_batch(&[base, index, source], |level, all| {
            let own = |at: usize, x: &Tensor| all[at].expand(behind(level.size, x.layout().shape())?);
            folded(op, by, &own(0, base)?, dim + 1, all[1], &own(2, source)?)
        });
    }
    let dtype = if by == IndexFold::Replace { base.dtype() } else { base.dtype().compute_dtype() };
    let out = Tensor::empty(op, base.layout().shape().clone(), dtype, base.device())?;
    fold_into(op, by, Some(base), out, dim, index, source)
}

/// A copy of `base` on a GPU with the rows of `source` written at `index`, whose negative elements count from the end;
/// outside the graph.
pub(crate) fn put_rows(op: &'static str, base: &Tensor, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let mut out = Tensor::empty(op, base.layout().shape().clone(), base.dtype(), base.device())?;
    let indices = Indices::from_end(op, index.as_view()?, base.shape()[0])?;
    let (by, source) = (IndexFold::Replace, source.detach());
    backend::index_fold(op, by, Some(base.as_view()?), &mut out.as_view_mut(op)?, 0, &indices, source.as_view()?)?;
    Ok(out)
}

/// Folds the elements of `source` into `out`, which starts as `base` if there is one; outside the graph.
fn fold_into(
    op: &'static str,
    by: IndexFold,
    base: Option<&Tensor>,
    mut out: Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    let indices = Indices::check(op, index.as_view()?, out.shape()[dim])?;
    let source = source.detach().to_dtype(out.dtype())?;
    let base = base.map(Tensor::as_view).transpose()?;
    backend::index_fold(op, by, base, &mut out.as_view_mut(op)?, dim, &indices, source.as_view()?)?;
    Ok(out)
}

/// A 0-dimensional tensor as a vector, as indexing needs it.
pub(in crate::ops) fn at_least_1d(x: &Tensor) -> Result<Cow<'_, Tensor>> {
    Ok(if x.rank() == 0 { Cow::Owned(x.reshape([1])?) } else { Cow::Borrowed(x) })
}

/// Checks that `small` has the rank of `large` and no larger sizes, except in dimension `except`.
pub(in crate::ops) fn check_fits(
    op: &'static str,
    small: &Tensor,
    large: &Tensor,
    except: Option<usize>,
) -> Result<()> {
    let longer = |(d, (a, b)): (usize, (&usize, &usize))| a > b && except != Some(d);
    if small.rank() != large.rank() || small.shape().iter().zip(large.shape()).enumerate().any(longer) {
        let but = except.map_or(String::new(), |dim| format!(" except in dimension {dim}"));
        let (small, large) = (small.shape(), large.shape());
        bail!(Shape, op, "index must have the rank of shape {large:?} and no larger sizes{but}, got shape {small:?}");
    }
    Ok(())
}

/// # Indexing
#[ops]
impl Tensor {
    /// Indexing as in NumPy, in any combination: integers, ranges with steps, new dimensions (`None`), an ellipsis
    /// (`...`), integer tensors and masks. [`s!`](crate::s) builds such an index. Integers and ranges alone give a
    /// view. [`set`](Self::set) assigns to a part.
    ///
    /// ```
    /// # use cotangent::{Tensor, s, tensor};
    /// let x = Tensor::arange(0, 12)?.reshape([3, 4])?;
    /// assert_eq!(x.index(s![1, 1..-1])?.to_vec::<i64>()?, [5, 6]);
    /// assert_eq!(x.index(s![.., ..;-2])?.shape(), [3, 2]);
    /// assert_eq!(x.index(s![..., None, 0])?.shape(), [3, 1]);
    /// assert_eq!(x.index(-1)?.to_vec::<i64>()?, [8, 9, 10, 11]);
    /// let rows = tensor!([2, 0])?;
    /// assert_eq!(x.index(s![&rows, 1])?.to_vec::<i64>()?, [9, 1]);
    /// assert_eq!(x.index(&x.gt(9)?)?.to_vec::<i64>()?, [10, 11]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more indices than dimensions, an integer or an element of an index tensor is out of range, index tensors
    /// do not broadcast, or a mask does not have the shape of its dimensions.
    #[op(samples = index_samples, errors = index_errors, aliases = ["__getitem__"])]
    #[doc(alias = "__getitem__")]
    pub fn index(&self, index: impl Into<Index>) -> Result<Tensor> {
        self.part("index", &index)
    }

    /// Gathers elements along a dimension: `y[i, j] = x[i, index[i, j]]` for `dim` 1. The index has the rank of this
    /// tensor; except along `dim`, its sizes may not exceed those of this tensor. An empty index fits every tensor.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.gather(1, &tensor!([[1], [0]])?)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes do not match.
    #[op(samples = gather_samples, errors = gather_errors)]
    pub fn gather(&self, dim: impl Into<Dim>, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || (self.rank() == 1 && index.rank() == 0) {
            let chosen = at_least_1d(self)?.gather(dim.0, &*at_least_1d(index)?)?;
            return if index.rank() == 0 { chosen.reshape(()) } else { Ok(chosen) };
        }
        let (dim, indices) = (resolve_dim("gather", dim.0, self.rank())?, as_indices("gather", index)?);
        if index.numel() == 0 {
            // An empty index selects nothing, whatever the shapes.
            let nothing = self.flatten(0, -1)?.narrow(0, 0, 0)?;
            return nothing.reshape(index.shape());
        }
        check_fits("gather", index, self, Some(dim))?;
        gather("gather", self, dim, &indices, index.layout().shape())
    }

    /// Selects the indices in `index`, a vector or a number, along a dimension. The array API calls this `take`; here
    /// [`take`](Self::take) is PyTorch's.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.index_select(0, &tensor!([1, 1, 0])?)?.to_vec::<i64>()?, [3, 4, 3, 4, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the index has more than one dimension.
    #[op(samples = index_select_samples, errors = index_select_errors)]
    pub fn index_select(&self, dim: impl Into<Dim>, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 {
            // A 0-dimensional tensor is treated as a vector of one element, and stays 0-dimensional.
            if index.numel() != 1 {
                bail!(
                    Shape,
                    "index_select",
                    "index must have 1 element for a 0-dimensional input, got {}",
                    index.numel()
                );
            }
            return at_least_1d(self)?.index_select(dim.0, index)?.reshape(());
        }
        let (dim, index) = along_dim("index_select", self, dim.0, index)?;
        let shape = self.layout().shape().with(dim, index.numel());
        gather("index_select", self, dim, &index, &shape)
    }

    /// A copy of this tensor with the elements of `src` added along a dimension: `y[i, index[i, j]] += src[i, j]` for
    /// `dim` 1. The sizes of the index may not exceed those of `src`, nor, except along `dim`, those of this tensor.
    /// Elements of `src` outside of the index's shape are ignored.
    ///
    /// If an index repeats, all its elements are added, in the order of `src`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (x, index) = (Tensor::zeros([3])?, tensor!([2, 0, 2])?);
    /// let y = x.scatter_add(0, &index, &tensor!([1.0, 2.0, 3.0])?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 0.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[doc(alias = "scatter_add_")]
    #[op(in_place, autocast_cuda = widest, samples = scatter_add_samples, errors = scatter_add_errors)]
    pub fn scatter_add(&self, dim: impl Into<Dim>, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        scattered("scatter_add", self, dim, index, src, |x, dim, index, src| add_at("scatter_add", x, dim, index, src))
    }
}

/// The resolved dimension, and the indices along it shaped to broadcast against `x`.
pub(in crate::ops) fn along_dim(op: &'static str, x: &Tensor, dim: isize, index: &Tensor) -> Result<(usize, Tensor)> {
    let dim = resolve_dim(op, dim, x.rank())?;
    if index.rank() > 1 {
        bail!(Shape, op, "index must be a vector, got shape {:?}", index.shape());
    }
    Ok((dim, lined_up(&as_indices(op, index)?, dim, x.rank())?))
}

fn index_samples() -> Result<Vec<Sample>> {
    use crate::s;
    let x = || spread([3, 4, 5], -2.0, 2.0);
    let (rows, columns) = (ints(&[2, 0, -1, 2], [4])?, ints(&[1, -4, 3, 0], [4])?);
    let mask = spread([3, 4], -1.0, 1.0)?.gt(0.0)?;
    Ok(vec![
        sample![x()?, s![1, 1..-1]],
        sample![x()?, s![..., ..;-2]],
        sample![x()?, s![None, -1, .., None, 2]],
        sample![x()?, s![&rows]],
        sample![x()?, s![&rows, &columns]],
        sample![x()?, s![&rows, .., ints(&[4, 0, 1, 1], [4])?]],
        sample![x()?, s![.., &columns.reshape([2, 2])?, 1..]],
        sample![x()?, s![ints(&[1, 0], [2, 1])?, ints(&[3, 0, 2], [3])?]],
        sample![x()?, s![0, .., &ints(&[4, 4, 0], [3])?]],
        sample![x()?, s![&mask]],
        sample![x()?, s![&mask, 1..3]],
        sample![x()?, s![.., &spread([4], -1.0, 1.0)?.gt(0.0)?, 0]],
        sample![spread([4], -2.0, 2.0)?, s![&ints(&[], [0])?]].zero_derivative(),
        sample![spread([], -2.0, 2.0)?, s![...]],
        sample![spread([2, 0], -2.0, 2.0)?, s![1]],
    ])
}

fn index_errors() -> Result<Vec<ErrorCase>> {
    use crate::s;
    let x = || normal([3, 4], 1);
    Ok(vec![
        error!["too many places", "3", "[3, 4]"; sample![x()?, s![0, 0, 0]]],
        error!["an index out of range", "3", "[3, 4]"; sample![x()?, s![3]]],
        error!["a bad element of an index", "-4", "[1]", "[3, 4]"; sample![x()?, s![&ints(&[0, -4], [2])?]]],
        error!["indices that do not broadcast", "[2]", "[3]"; sample![x()?, s![&ints(&[0, 1], [2])?, &ints(&[0, 1, 2], [3])?]]],
        error!["a mask of another shape", "[4]", "[3]"; sample![x()?, s![&normal([4], 1)?.gt(0.0)?]]],
        error!["floats", "f64"; sample![x()?, s![&normal([3], 1)?]]],
        error!["two ellipses", "ellipsis"; sample![x()?, s![..., ...]]],
        error!["a step of 0", "step"; sample![x()?, s![..;0]]],
    ])
}

fn gather_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[3, 4])?, 1, ints(&[3, 0, 0, 1, 2, 2], [3, 2])?],
        sample![x(&[3, 4])?, -2, ints(&[2, 0, 2, 1, 1, 1], [2, 3])?],
        sample![x(&[2, 3, 2])?, 1, ints(&[2, 2, 0, 2, 1, 0, 0, 1], [1, 4, 2])?],
        sample![x(&[4])?, 0, ints(&[3, 3, 0], [3])?.to_dtype(DType::I32)?],
        sample![x(&[])?, 0, ints(&[0], [])?],
        sample![x(&[])?, -1, ints(&[0, 0], [2])?],
        sample![x(&[3, 4])?, 1, ints(&[], [3, 0])?].zero_derivative(),
        sample![x(&[3, 4])?, 1, ints(&[], [0])?].zero_derivative(),
    ])
}

fn gather_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["an index too large", "index 3", "[1, 0]", "size 3"; sample![x()?, 1, ints(&[0, 3], [2, 1])?]],
        error!["a negative index", "index -1", "[1, 0]", "size 3"; sample![x()?, 1, ints(&[0, -1], [2, 1])?]],
        error!["indices that do not fit", "[3, 1]", "[2, 3]"; sample![x()?, 1, ints(&[0, 0, 0], [3, 1])?]],
        error!["another rank", "[2]", "[2, 3]"; sample![x()?, 1, ints(&[0, 0], [2])?]],
        error!["indices of floats", "integers", "f64"; sample![x()?, 1, normal([2, 1], 1)?]],
        error!["a huge index", "18446744073709551615"; sample![x()?, 1, Tensor::full_with([1, 1], u64::MAX, DType::U64)?]],
        error!["no such dimension", "2"; sample![x()?, 2, ints(&[0, 0], [2, 1])?]],
    ])
}

fn index_select_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[4, 3])?, 0, ints(&[3, 0, 3], [3])?],
        sample![x(&[2, 3, 4])?, 1, ints(&[2, 2, 0, 1], [4])?],
        sample![x(&[2, 3])?, -1, ints(&[1], [])?],
        sample![x(&[5])?, 0, ints(&[4, 4], [2])?.to_dtype(DType::U8)?],
        sample![x(&[2, 3])?, 0, ints(&[], [0])?].zero_derivative(),
        sample![x(&[2, 0])?, 0, ints(&[1, 1, 0], [3])?],
        sample![x(&[])?, 0, ints(&[0], [1])?],
    ])
}

fn index_select_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![x()?, 0, ints(&[0, 2], [2])?]],
        error!["a negative index", "index -2", "size 2"; sample![x()?, 0, ints(&[-2], [])?]],
        error!["a matrix of indices", "[1, 2]"; sample![x()?, 0, ints(&[0, 1], [1, 2])?]],
        error!["indices of bools", "integers", "bool"; sample![x()?, 0, normal([2], 1)?.gt(0.0)?]],
    ])
}

fn scatter_add_samples() -> Result<Vec<Sample>> {
    let sample = |shape: &[usize], dim: i64, index: Tensor, source: &[usize]| {
        Ok(sample![spread(shape, -2.0, 2.0)?, dim, index, spread(source, 1.0, 3.0)?])
    };
    Ok(vec![
        sample(&[2, 3], 1, ints(&[2, 2, 0, 1, 1, 1, 0, 2], [2, 4])?, &[2, 4])?,
        sample(&[3, 4], -2, ints(&[2, 0, 2, 1], [2, 2])?, &[2, 2])?,
        sample(&[3, 4], 0, ints(&[2, 0, 2, 1], [2, 2])?, &[3, 5])?,
        sample(&[2, 3, 2], 1, ints(&[2, 2, 0, 2], [1, 2, 2])?, &[1, 2, 2])?,
        sample(&[], 0, ints(&[0], [])?, &[])?,
        sample(&[3, 4], 1, ints(&[], [3, 0])?, &[3, 0])?,
    ])
}

fn scatter_add_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    let index = |value| ints(&[0, value, 1], [1, 3]);
    let source = normal([1, 3], 2)?;
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![x()?, 0, index(2)?, &source]],
        error!["a negative index", "index -1", "size 2"; sample![x()?, 0, index(-1)?, &source]],
        error!["a short source", "[1, 3]", "[1, 2]"; sample![x()?, 0, index(1)?, normal([1, 2], 2)?]],
        error!["wide indices", "[1, 4]", "[2, 3]"; sample![x()?, 0, ints(&[0; 4], [1, 4])?, normal([1, 4], 2)?]],
        error!["another dtype", "f32", "f64"; sample![x()?, 0, index(1)?, source.to_dtype(DType::F32)?]],
    ])
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
