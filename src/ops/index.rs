//! Choosing and adding up elements by index, and triangles of matrices.

use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::BackwardContext;
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::{self, Indices, Triangle};
use crate::error::bail;
use crate::layout::{Layout, checked_bytes, resolve_dim};
use crate::storage::Storage;
use crate::{DType, Device, Result, Shape, Tensor};
use smallvec::smallvec;
use std::borrow::Cow;

/// Indices as `i64`, outside the graph. The values are looked at by [`Indices::check`].
fn as_indices(op: &'static str, index: &Tensor) -> Result<Tensor> {
    if !index.dtype().is_int() {
        bail!(DType, op, "indices must be integers, not {}", index.dtype());
    }
    // On a GPU such an index becomes a negative one, which the kernel refuses.
    if index.dtype() == DType::U64
        && index.device() == Device::Cpu
        && let Some(largest) = index.detach().to_vec::<u64>()?.into_iter().find(|&i| i > i64::MAX as u64)
    {
        bail!(Index, op, "index {largest} is larger than any dimension");
    }
    index.detach().to_dtype(DType::I64)
}

/// Indices along one of `rank` dimensions, the same for all indices of the others.
fn lined_up(index: &Tensor, dim: usize, rank: usize) -> Result<Tensor> {
    let mut sizes: Vec<usize> = vec![1; rank];
    sizes[dim] = index.numel();
    index.reshape(&sizes)
}

fn check_device(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.device() != b.device() {
        bail!(Device, op, "one tensor is on {}, the other on {}", a.device(), b.device());
    }
    Ok(())
}

/// The elements of `x` that `index` chooses along `dim`, in a tensor of `shape`, to which the index broadcasts; outside
/// the graph.
fn gathered(op: &'static str, x: &Tensor, dim: usize, index: &Tensor, shape: &Shape) -> Result<Tensor> {
    check_device(op, x, index)?;
    let indices = Indices::check(op, index.as_view()?, x.shape()[dim])?;
    let mut out = Tensor::empty(op, shape.clone(), x.dtype(), x.device())?;
    backend::gather(op, x.as_view()?, dim, &indices, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

/// As [`gathered`], with its derivative.
#[track_caller]
fn gather(op: &'static str, x: &Tensor, dim: usize, index: &Tensor, shape: &Shape) -> Result<Tensor> {
    gathered(op, x, dim, index, shape)?.record(op, &[x], |save| {
        let (shape, index) = (x.layout().shape().clone(), save.save(index));
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(scatter(&shape, dim, &index, g)?)])
    })
}

/// Zeros of `shape` with the elements of `source` added where `index`, which broadcasts to their shape, puts them along
/// `dim`: what [`gather`] turns around, and is turned around by.
#[track_caller]
fn scatter(shape: &Shape, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    let (op, dtype, compute) = ("scatter_add", source.dtype(), compute_dtype(source.dtype()));
    let storage = Storage::zeroed(op, source.device(), checked_bytes(op, shape, compute.size())?)?;
    let zeros = Tensor::from_parts(storage, Layout::contiguous(shape.clone()), compute);
    summed(op, zeros, dim, index, source)?.to_dtype(dtype)?.record(op, &[source], |save| {
        let (shape, index) = (source.layout().shape().clone(), save.save(index));
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(gather("gather", g, dim, &index, &shape)?)])
    })
}

/// `base` plus what `source` adds to it, with the derivative in both.
#[track_caller]
fn add_at(op: &'static str, base: &Tensor, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    if base.dtype() != source.dtype() {
        bail!(DType, op, "{} cannot be added to {}: cast one of them first", source.dtype(), base.dtype());
    }
    check_device(op, base, source)?;
    let mut sum = Tensor::empty(op, base.layout().shape().clone(), compute_dtype(base.dtype()), base.device())?;
    backend::copy(op, base.as_view()?, &mut sum.as_view_mut(op)?)?;
    summed(op, sum, dim, index, source)?.to_dtype(base.dtype())?.record(op, &[base, source], |save| {
        let (shape, index) = (source.layout().shape().clone(), save.save_for(1, index));
        move |ctx: &BackwardContext, g: &Tensor| {
            Ok(smallvec![Some(g.clone()), ctx.want(1, || gather("gather", g, dim, index.get()?, &shape))?])
        }
    })
}

/// `sum`, which is of a compute dtype, with the elements of `source` added to it; outside the graph.
fn summed(op: &'static str, mut sum: Tensor, dim: usize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    check_device(op, &sum, index)?;
    let indices = Indices::check(op, index.as_view()?, sum.shape()[dim])?;
    let source = source.detach().to_dtype(sum.dtype())?;
    backend::index_add(op, &mut sum.as_view_mut(op)?, dim, &indices, source.as_view()?)?;
    Ok(sum)
}

/// A single number as a vector, which is what indexing works on.
fn at_least_1d(x: &Tensor) -> Result<Cow<'_, Tensor>> {
    Ok(if x.rank() == 0 { Cow::Owned(x.reshape([1])?) } else { Cow::Borrowed(x) })
}

/// Checks that `small` has the rank of `large` and is nowhere longer, but for dimension `except`.
fn check_fits(op: &'static str, small: &Tensor, large: &Tensor, except: Option<usize>) -> Result<()> {
    let longer = |(d, (a, b)): (usize, (&usize, &usize))| a > b && except != Some(d);
    if small.rank() != large.rank() || small.shape().iter().zip(large.shape()).enumerate().any(longer) {
        let but = except.map_or(String::new(), |dim| format!(" but for dimension {dim}"));
        bail!(Shape, op, "indices of shape {:?} do not fit into shape {:?}{but}", small.shape(), large.shape());
    }
    Ok(())
}

impl Tensor {
    /// The elements that `index` chooses along a dimension: `y[i, j] = x[i, index[i, j]]` for `dim` 1. The index has as
    /// many dimensions as this tensor, and in the others than `dim` is at most as long.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.gather(1, &Tensor::new([[1], [0]])?)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes do not fit.
    #[track_caller]
    pub fn gather(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 && index.rank() == 0 {
            return at_least_1d(self)?.gather(dim, &*at_least_1d(index)?)?.reshape(());
        }
        let dim = resolve_dim("gather", dim, self.rank())?;
        check_fits("gather", index, self, Some(dim))?;
        gather("gather", self, dim, &as_indices("gather", index)?, index.layout().shape())
    }

    /// The parts of a dimension at the places in `index`, a vector or a single number, in their order.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.index_select(0, &Tensor::new([1, 1, 0])?)?.to_vec::<i64>()?, [3, 4, 3, 4, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the index has more than one dimension.
    #[track_caller]
    pub fn index_select(&self, dim: isize, index: &Tensor) -> Result<Tensor> {
        let (dim, index) = along_dim("index_select", self, dim, index)?;
        let shape = self.layout().shape().with(dim, index.numel());
        gather("index_select", self, dim, &index, &shape)
    }

    /// This tensor with the elements of `source` added at the places that `index` gives along a dimension:
    /// `y[i, index[i, j]] += source[i, j]` for `dim` 1. The index is at most as long as `source` in every dimension, and
    /// as this tensor in the others than `dim`; what of `source` is longer is left out.
    ///
    /// Places that are named more than once get all their elements, added in the order of `source`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let (x, index) = (Tensor::zeros([3])?, Tensor::new([2, 0, 2])?);
    /// let y = x.scatter_add(0, &index, &Tensor::new([1.0, 2.0, 3.0])?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 0.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not fit.
    #[track_caller]
    pub fn scatter_add(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 && index.rank() == 0 && source.rank() == 0 {
            let (x, index, source) = (at_least_1d(self)?, at_least_1d(index)?, at_least_1d(source)?);
            return x.scatter_add(dim, &index, &source)?.reshape(());
        }
        let dim = resolve_dim("scatter_add", dim, self.rank())?;
        check_fits("scatter_add", index, self, Some(dim))?;
        check_fits("scatter_add", index, source, None)?;
        let mut used = Cow::Borrowed(source);
        for (d, &size) in index.shape().iter().enumerate() {
            if size < used.shape()[d] {
                used = Cow::Owned(used.narrow(d as isize, 0, size)?);
            }
        }
        add_at("scatter_add", self, dim, &as_indices("scatter_add", index)?, &used)
    }

    /// This tensor with the parts of `source` along a dimension added at the places in `index`, a vector.
    #[track_caller]
    pub(crate) fn index_add(&self, dim: isize, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        let (dim, index) = along_dim("index_add", self, dim, index)?;
        let expected = self.layout().shape().with(dim, index.numel());
        if *source.layout().shape() != expected {
            bail!(Shape, "index_add", "a source of shape {:?} should have {expected:?}", source.shape());
        }
        add_at("index_add", self, dim, &index, source)
    }

    /// The rows of `weight` at these indices: the result has the indices' shape and then the rows' length.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let weight = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(Tensor::new([[1, 0, 1]])?.embedding(&weight)?.shape(), [1, 3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the weight is not a matrix.
    #[track_caller]
    pub fn embedding(&self, weight: &Tensor) -> Result<Tensor> {
        let [_, width] = weight.shape()[..] else {
            bail!(Shape, "embedding", "the weight must be a matrix, not of shape {:?}", weight.shape());
        };
        let index = as_indices("embedding", self)?.reshape([self.numel(), 1])?;
        let rows = Shape::from([self.numel(), width]);
        let mut shape = self.layout().shape().clone();
        shape.insert(self.rank(), width);
        gathered("embedding", weight, 0, &index, &rows)?.reshape(&shape)?.record("embedding", &[weight], |save| {
            let (index, vocabulary) = (save.save(&index), weight.layout().shape().clone());
            move |_: &BackwardContext, g: &Tensor| {
                Ok(smallvec![Some(scatter(&vocabulary, 0, &index, &g.reshape(&rows)?)?)])
            }
        })
    }

    /// The lower triangle of the last two dimensions, zero elsewhere: what lies on or below the diagonal, or the one
    /// `diagonal` above it.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.tril(0)?.to_vec::<i64>()?, [1, 0, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Result<Tensor> {
        triangle("tril", self, Triangle { upper: false, diagonal })?
            .record("tril", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.tril(diagonal)?)]))
    }

    /// The upper triangle of the last two dimensions, zero elsewhere: what lies on or above the diagonal, or the one
    /// `diagonal` above it.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.triu(0)?.to_vec::<i64>()?, [1, 2, 0, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Result<Tensor> {
        triangle("triu", self, Triangle { upper: true, diagonal })?
            .record("triu", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.triu(diagonal)?)]))
    }
}

/// A dimension and the indices along it, lined up with the dimensions of `x`.
fn along_dim(op: &'static str, x: &Tensor, dim: isize, index: &Tensor) -> Result<(usize, Tensor)> {
    let dim = resolve_dim(op, dim, x.rank())?;
    if index.rank() > 1 {
        bail!(Shape, op, "the indices must be a vector, not of shape {:?}", index.shape());
    }
    Ok((dim, lined_up(&as_indices(op, index)?, dim, x.rank())?))
}

fn triangle(op: &'static str, x: &Tensor, triangle: Triangle) -> Result<Tensor> {
    if x.rank() < 2 {
        bail!(Shape, op, "shape {:?} has no rows and columns", x.shape());
    }
    let mut out = Tensor::empty(op, x.layout().shape().clone(), x.dtype(), x.device())?;
    backend::triangle(op, x.as_view()?, triangle, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

fn indices(values: &[i64], shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_slice(values, shape)
}

static GATHER: Op = Op {
    name: "gather",
    samples: || {
        let sample = |shape: &[usize], dim, index: Tensor| {
            let inputs = vec![spread(shape, -2.0, 2.0)?, index];
            Ok(Sample::new("gather", inputs, move |x| x[0].gather(dim, &x[1])))
        };
        Ok(vec![
            sample(&[3, 4], 1, indices(&[3, 0, 0, 1, 2, 2], [3, 2])?)?,
            sample(&[3, 4], -2, indices(&[2, 0, 2, 1, 1, 1], [2, 3])?)?,
            sample(&[2, 3, 2], 1, indices(&[2, 2, 0, 2, 1, 0, 0, 1], [1, 4, 2])?)?,
            sample(&[4], 0, indices(&[3, 3, 0], [3])?.to_dtype(DType::I32)?)?,
            sample(&[], 0, indices(&[0], ())?)?,
            sample(&[3, 4], 1, indices(&[], [3, 0])?)?.with_zero_derivative(),
        ])
    },
    error_cases: || {
        let x = normal([2, 3], 1)?;
        let refused = |label, message: &[&str], index: Tensor| {
            let x = x.clone();
            ErrorCase::new(label, message, move || x.gather(1, &index))
        };
        Ok(vec![
            refused("an index too large", &["gather", "index 3", "size 3"], indices(&[0, 3], [2, 1])?),
            refused("a negative index", &["gather", "index -1", "size 3"], indices(&[0, -1], [2, 1])?),
            refused("indices that do not fit", &["gather", "[3, 1]", "[2, 3]"], indices(&[0, 0, 0], [3, 1])?),
            refused("another rank", &["gather", "[2]", "[2, 3]"], indices(&[0, 0], [2])?),
            refused("indices of floats", &["gather", "integers", "f64"], normal([2, 1], 1)?),
            refused(
                "a huge index",
                &["gather", "18446744073709551615"],
                Tensor::full_with([1, 1], u64::MAX, DType::U64)?,
            ),
        ])
    },
};

static INDEX_SELECT: Op = Op {
    name: "index_select",
    samples: || {
        let sample = |shape: &[usize], dim, index: Tensor| {
            let inputs = vec![spread(shape, -2.0, 2.0)?, index];
            Ok(Sample::new("index_select", inputs, move |x| x[0].index_select(dim, &x[1])))
        };
        Ok(vec![
            sample(&[4, 3], 0, indices(&[3, 0, 3], [3])?)?,
            sample(&[2, 3, 4], 1, indices(&[2, 2, 0, 1], [4])?)?,
            sample(&[2, 3], -1, indices(&[1], ())?)?,
            sample(&[5], 0, indices(&[4, 4], [2])?.to_dtype(DType::U8)?)?,
            sample(&[2, 3], 0, indices(&[], [0])?)?.with_zero_derivative(),
            sample(&[2, 0], 0, indices(&[1, 1, 0], [3])?)?,
        ])
    },
    error_cases: || {
        let x = normal([2, 3], 1)?;
        let refused = |label, message: &[&str], index: Tensor| {
            let x = x.clone();
            ErrorCase::new(label, message, move || x.index_select(0, &index))
        };
        Ok(vec![
            refused("an index too large", &["index_select", "index 2", "size 2"], indices(&[0, 2], [2])?),
            refused("a negative index", &["index_select", "index -2", "size 2"], indices(&[-2], ())?),
            refused("a matrix of indices", &["index_select", "[1, 2]"], indices(&[0, 1], [1, 2])?),
            refused("indices of bools", &["index_select", "integers", "bool"], normal([2], 1)?.gt(0.0)?),
        ])
    },
};

static SCATTER_ADD: Op = Op {
    name: "scatter_add",
    samples: || {
        let sample = |shape: &[usize], dim, index: Tensor, source: &[usize]| {
            let inputs = vec![spread(shape, -2.0, 2.0)?, index, spread(source, 1.0, 3.0)?];
            Ok(Sample::new("scatter_add", inputs, move |x| x[0].scatter_add(dim, &x[1], &x[2])))
        };
        Ok(vec![
            sample(&[2, 3], 1, indices(&[2, 2, 0, 1, 1, 1, 0, 2], [2, 4])?, &[2, 4])?,
            sample(&[3, 4], -2, indices(&[2, 0, 2, 1], [2, 2])?, &[2, 2])?,
            sample(&[3, 4], 0, indices(&[2, 0, 2, 1], [2, 2])?, &[3, 5])?,
            sample(&[2, 3, 2], 1, indices(&[2, 2, 0, 2], [1, 2, 2])?, &[1, 2, 2])?,
            sample(&[], 0, indices(&[0], ())?, &[])?,
            sample(&[3, 4], 1, indices(&[], [3, 0])?, &[3, 0])?,
        ])
    },
    error_cases: || {
        let refused = |label, message: &[&str], index: Tensor, source: Tensor| {
            let x = normal([2, 3], 1)?;
            Ok(ErrorCase::new(label, message, move || x.scatter_add(0, &index, &source)))
        };
        let index = |value| indices(&[0, value, 1], [1, 3]);
        let source = normal([1, 3], 2)?;
        Ok(vec![
            refused("an index too large", &["scatter_add", "index 2", "size 2"], index(2)?, source.clone())?,
            refused("a negative index", &["scatter_add", "index -1", "size 2"], index(-1)?, source.clone())?,
            refused("a short source", &["scatter_add", "[1, 3]", "[1, 2]"], index(1)?, normal([1, 2], 2)?)?,
            refused(
                "wide indices",
                &["scatter_add", "[1, 4]", "[2, 3]"],
                indices(&[0; 4], [1, 4])?,
                normal([1, 4], 2)?,
            )?,
            refused("another dtype", &["scatter_add", "f32", "f64"], index(1)?, source.to_dtype(DType::F32)?)?,
        ])
    },
};

static EMBEDDING: Op = Op {
    name: "embedding",
    samples: || {
        let sample = |index: Tensor, weight: &[usize]| {
            Ok(Sample::new("embedding", vec![index, spread(weight, -2.0, 2.0)?], |x| x[0].embedding(&x[1])))
        };
        Ok(vec![
            sample(indices(&[2, 0, 2, 1, 1, 2], [2, 3])?, &[4, 3])?,
            sample(indices(&[1], ())?, &[2, 5])?,
            sample(indices(&[3, 3], [2])?.to_dtype(DType::I16)?, &[4, 1])?,
            sample(indices(&[], [0, 2])?, &[2, 2])?.with_zero_derivative(),
        ])
    },
    error_cases: || {
        let refused = |label, message: &[&str], index: Tensor, weight: &[usize]| {
            let weight = normal(weight, 1)?;
            Ok(ErrorCase::new(label, message, move || index.embedding(&weight)))
        };
        Ok(vec![
            refused("an index too large", &["embedding", "index 4", "size 4"], indices(&[1, 4], [2])?, &[4, 3])?,
            refused("a negative index", &["embedding", "index -1", "size 4"], indices(&[-1], [1])?, &[4, 3])?,
            refused("a weight that is no matrix", &["embedding", "[4]"], indices(&[1], [1])?, &[4])?,
            refused("indices of floats", &["embedding", "integers", "f64"], normal([2], 1)?, &[4, 3])?,
        ])
    },
};

/// Samples of a triangle on matrices of all sorts.
fn triangles(label: &'static str, call: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Sample>> {
    let calls: [(&[usize], isize); 7] =
        [(&[3, 3], 0), (&[2, 4], 1), (&[4, 2], -1), (&[2, 3, 3], 0), (&[1, 2, 3, 2], 0), (&[0, 3], 0), (&[1, 1], 0)];
    let sample = |(shape, diagonal): (&[usize], isize)| {
        Ok(Sample::new(label, vec![spread(shape, 1.0, 2.0)?], move |x| call(&x[0], diagonal)))
    };
    calls.into_iter().map(sample).collect()
}

static TRIL: Op = Op {
    name: "tril",
    samples: || triangles("tril", Tensor::tril),
    error_cases: || {
        let x = normal([3], 1)?;
        Ok(vec![ErrorCase::new("a vector", &["tril", "[3]"], move || x.tril(0))])
    },
};

static TRIU: Op = Op {
    name: "triu",
    samples: || triangles("triu", Tensor::triu),
    error_cases: || {
        let x = normal([3], 1)?;
        Ok(vec![ErrorCase::new("a vector", &["triu", "[3]"], move || x.triu(0))])
    },
};

pub(crate) static OPS: &[&Op] = &[&GATHER, &INDEX_SELECT, &SCATTER_ADD, &EMBEDDING, &TRIL, &TRIU];

#[cfg(test)]
mod tests;
