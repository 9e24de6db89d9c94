//! Writing by index: replacing elements, or combining them with the existing ones.

use crate::autograd::BackwardContext;
use crate::backend::spec::IndexFold;
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::resolve_dim;
use crate::ops::arg::choices;
use crate::ops::index::gather::{add_at, as_indices, at_least_1d, check_fits, folded, gather, lined_up};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::Rounding;
use crate::options::options;
use crate::tensor::Operand;
use crate::{DType, Result, Scalar, Tensor};
use smallvec::smallvec;
use std::borrow::Cow;

choices! {
    /// How [`Tensor::scatter`] combines an existing element with a new one.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::ScatterMode};
    /// let (x, index) = (tensor!([10, 20])?, tensor!([1, 1])?);
    /// let by = |mode| x.scatter_with(0, &index, 3, mode)?.to_vec::<i64>();
    /// assert_eq!(by(ScatterMode::None)?, [10, 3]);
    /// assert_eq!(by(ScatterMode::Add)?, [10, 26]);
    /// assert_eq!(by(ScatterMode::Multiply)?, [10, 180]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum ScatterMode {
        /// Replaces it.
        #[default]
        None = "none",
        /// Adds the new element.
        Add = "add",
        /// Multiplies by the new element.
        Multiply = "multiply",
    }
}

choices! {
    /// How [`Tensor::scatter_reduce`] reduces all elements written to one index.
    ///
    /// ```
    /// use cotangent::{tensor, options::ScatterReduce};
    /// let (x, index, src) = (tensor!([1.0, 9.0])?, tensor!([0, 0])?, tensor!([2.0, 6.0])?);
    /// let by = |reduce| x.scatter_reduce(0, &index, &src, reduce)?.to_vec::<f32>();
    /// assert_eq!(by(ScatterReduce::Sum)?, [9.0, 9.0]);
    /// assert_eq!(by(ScatterReduce::Prod)?, [12.0, 9.0]);
    /// assert_eq!(by(ScatterReduce::Mean)?, [3.0, 9.0]);
    /// assert_eq!(by(ScatterReduce::Amax)?, [6.0, 9.0]);
    /// assert_eq!(by(ScatterReduce::Amin)?, [1.0, 9.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum ScatterReduce {
        /// The sum.
        #[default]
        Sum = "sum",
        /// The product.
        Prod = "prod",
        /// The mean, rounded down for integers.
        Mean = "mean",
        /// The maximum. NaN propagates.
        Amax = "amax",
        /// The minimum. NaN propagates.
        Amin = "amin",
    }
}

options! {
    /// The options of [`Tensor::scatter_with`]. A [`ScatterMode`] can be given in their place.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor, options::{ScatterMode, ScatterOptions}};
    /// let options = ScatterOptions::new().reduce(ScatterMode::Add);
    /// let x = Tensor::ones([2])?.scatter_with(0, &tensor!([1])?, 2.0, options)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ScatterOptions {
        /// How an existing element is combined with a new one.
        reduce: ScatterMode = ScatterMode::None,
    }
}

impl From<ScatterMode> for ScatterOptions {
    fn from(reduce: ScatterMode) -> ScatterOptions {
        ScatterOptions::new().reduce(reduce)
    }
}

options! {
    /// The options of [`Tensor::scatter_reduce_with`] and [`Tensor::index_reduce_with`]. A bool is taken as `include_self`.
    ///
    /// ```
    /// use cotangent::{tensor, options::{ScatterReduce, ScatterReduceOptions}};
    /// let (x, index, src) = (tensor!([9.0, 9.0])?, tensor!([0, 0])?, tensor!([2.0, 6.0])?);
    /// let options = ScatterReduceOptions::new().include_self(false);
    /// let y = x.scatter_reduce_with(0, &index, &src, ScatterReduce::Amax, options)?;
    /// assert_eq!(y.to_vec::<f32>()?, [6.0, 9.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ScatterReduceOptions {
        /// Whether the existing element is included.
        include_self: bool = true,
    }
}

impl From<bool> for ScatterReduceOptions {
    fn from(include_self: bool) -> ScatterReduceOptions {
        ScatterReduceOptions::new().include_self(include_self)
    }
}

/// `base` with the elements of `source` folded in at `index` along `dim`, with the derivatives of both. The index
/// broadcasts to the shape of the source.
#[track_caller]
pub(crate) fn fold_at(
    op: &'static str,
    by: IndexFold,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    if by == IndexFold::Add {
        return add_at(op, base, dim, index, source);
    }
    if base.dtype() != source.dtype() {
        bail!(DType, op, "cannot write {} into {}: cast one of them first", source.dtype(), base.dtype());
    }
    if by == IndexFold::Replace && base.dtype().is_complex() {
        return base.by_parts_with(source, |base, source| fold_at(op, by, base, dim, index, source));
    }
    let out = folded(op, by, base, dim, index, source)?.to_dtype(base.dtype())?;
    match by {
        IndexFold::Multiply => record_product(op, out, base, dim, index, source),
        IndexFold::Max | IndexFold::Min => record_extreme(op, out, base, dim, index, source),
        IndexFold::Replace | IndexFold::Add => record_replaced(op, out, base, dim, index, source),
    }
}

/// Records a replacement: of several elements for one index only the last one was written, and gets the gradient.
#[track_caller]
fn record_replaced(
    op: &'static str,
    out: Tensor,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    out.record(op, &[base, source], |save| {
        let (index, shape) = (save.save(index), source.layout().shape().clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            let others = || {
                let zeros = Tensor::scalar(Scalar::I64(0), g.dtype(), g.device())?.expand(&shape)?;
                fold_at(op, IndexFold::Replace, g, dim, &index, &zeros)
            };
            let stayed = || {
                // Scatter the indices along the dimension: an element was written last if it finds its own.
                let numbers = Tensor::arange(0, shape[dim])?.to_device(g.device())?;
                let numbers = lined_up(&numbers, dim, shape.len())?.expand(&shape)?;
                let none = Tensor::scalar(Scalar::I64(-1), DType::I64, g.device())?.expand(g.shape())?;
                let last = fold_at(op, IndexFold::Replace, &none, dim, &index, &numbers)?;
                let stayed = gather(op, &last, dim, &index, &shape)?.eq(&numbers)?;
                stayed.where_(&gather(op, g, dim, &index, &shape)?, 0.0)
            };
            Ok(smallvec![ctx.want(0, others)?, ctx.want(1, stayed)?])
        }
    })
}

/// Records a maximum or minimum: elements equal to the result share its gradient evenly.
#[track_caller]
fn record_extreme(
    op: &'static str,
    out: Tensor,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    // A NaN result is shared by all NaN elements.
    let chosen = |x: &Tensor, y: &Tensor| y.ne(y)?.where_(x.ne(x)?, x.eq(y)?);
    out.record(op, &[base, source], |save| {
        let (base, source) = (save.save(&base.detach()), save.save(&source.detach()));
        let (index, y) = (save.save(index), save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            let (y, shape) = (y.detach(), source.layout().shape());
            let here = chosen(&base, &y)?;
            let there = chosen(&source, &gather(op, &y, dim, &index, shape)?)?;
            let count = add_at(op, &here.to_dtype(g.dtype())?, dim, &index, &there.to_dtype(g.dtype())?)?;
            let each = g.div(&count)?;
            Ok(smallvec![
                ctx.want(0, || here.where_(&each, 0.0))?,
                ctx.want(1, || there.where_(&gather(op, &each, dim, &index, shape)?, 0.0))?
            ])
        }
    })
}

/// Records a product. The derivative is the product of all other elements: the result divided by the element, or the
/// product with 1 in place of a single zero.
#[track_caller]
fn record_product(
    op: &'static str,
    out: Tensor,
    base: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
) -> Result<Tensor> {
    out.record(op, &[base, source], |save| {
        let (base, source) = (save.save(base), save.save(source));
        let (index, y) = (save.save(index), save.save_output());
        move |ctx: &BackwardContext, g: &Tensor| {
            let product = |base: &Tensor, source: &Tensor| fold_at(op, IndexFold::Multiply, base, dim, &index, source);
            let at_source = |x: &Tensor| gather(op, x, dim, &index, source.layout().shape());
            let of_base = || {
                let masked = base.masked_fill(&base.eq(0)?, 1)?;
                g.mul(&product(&masked, &source)?)?.div(&masked)
            };
            let of_source = || {
                let zero = source.eq(0)?;
                let zeros = Tensor::scalar(Scalar::I64(0), g.dtype(), g.device())?.expand(base.shape())?;
                let zeros = add_at(op, &zeros, dim, &index, &zero.to_dtype(g.dtype())?)?;
                let alone = zero.where_(at_source(&zeros)?.eq(1)?, false)?;
                let others = at_source(&g.mul(&product(&base, &source.masked_fill(&alone, 1)?)?)?)?;
                let divided = at_source(&g.mul(ctx.output(&y))?)?.div(&source.masked_fill(&zero, 1)?)?;
                alone.where_(&others, &divided)
            };
            Ok(smallvec![ctx.want(0, of_base)?, ctx.want(1, of_source)?])
        }
    })
}

/// Calls `put` with `src` cut to the shape of `index`, after checking the shapes. A 0-dimensional tensor is treated as a
/// vector.
#[track_caller]
pub(in crate::ops) fn scattered(
    op: &'static str,
    x: &Tensor,
    dim: Dim,
    index: &Tensor,
    src: &Tensor,
    put: impl Fn(&Tensor, usize, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let ranks = [x.rank(), index.rank(), src.rank()];
    let single = ranks.contains(&0) && ranks.iter().all(|&rank| rank <= 1);
    let (from, index, src) = if single {
        (at_least_1d(x)?, at_least_1d(index)?, at_least_1d(src)?)
    } else {
        (Cow::Borrowed(x), Cow::Borrowed(index), Cow::Borrowed(src))
    };
    let dim = resolve_dim(op, dim.0, from.rank())?;
    check_fits(op, &index, &from, Some(dim))?;
    check_fits(op, &index, &src, None)?;
    let mut used = src;
    for (d, &size) in index.shape().iter().enumerate() {
        if size < used.shape()[d] {
            used = Cow::Owned(used.narrow(d, 0, size)?);
        }
    }
    let out = put(&from, dim, &as_indices(op, &index)?, &used)?;
    if single { out.reshape(x.shape()) } else { Ok(out) }
}

/// The lowest value of a dtype.
fn lowest(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::I64(i8::MIN.into()),
        DType::I16 => Scalar::I64(i16::MIN.into()),
        DType::I32 => Scalar::I64(i32::MIN.into()),
        DType::I64 => Scalar::I64(i64::MIN),
        dtype if dtype.is_float() => Scalar::F64(f64::NEG_INFINITY),
        _ => Scalar::I64(0),
    }
}

/// The highest value of a dtype.
fn highest(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::I64(i8::MAX.into()),
        DType::I16 => Scalar::I64(i16::MAX.into()),
        DType::I32 => Scalar::I64(i32::MAX.into()),
        DType::I64 => Scalar::I64(i64::MAX),
        DType::U8 => Scalar::I64(u8::MAX.into()),
        DType::U16 => Scalar::I64(u16::MAX.into()),
        DType::U32 => Scalar::I64(u32::MAX.into()),
        DType::U64 => Scalar::U64(u64::MAX),
        DType::Bool => Scalar::I64(1),
        _ => Scalar::F64(f64::INFINITY),
    }
}

/// Reduces all elements for each index.
#[track_caller]
pub(in crate::ops) fn reduced(
    op: &'static str,
    (x, dim, index, source): (&Tensor, usize, &Tensor, &Tensor),
    reduce: ScatterReduce,
    include_self: bool,
) -> Result<Tensor> {
    if x.dtype() != source.dtype() {
        bail!(DType, op, "cannot write {} into {}: cast one of them first", source.dtype(), x.dtype());
    }
    let repeated = |value: Scalar, dtype: DType| Tensor::scalar(value, dtype, x.device())?.expand(source.shape());
    let (by, start) = match reduce {
        ScatterReduce::Sum | ScatterReduce::Mean => (IndexFold::Add, Scalar::I64(0)),
        ScatterReduce::Prod => (IndexFold::Multiply, Scalar::I64(1)),
        ScatterReduce::Amax => (IndexFold::Max, lowest(x.dtype())),
        ScatterReduce::Amin => (IndexFold::Min, highest(x.dtype())),
    };
    let start_at =
        |x: &Tensor, start: Scalar| fold_at(op, IndexFold::Replace, x, dim, index, &repeated(start, x.dtype())?);
    let base = if include_self { x.clone() } else { start_at(x, start)? };
    let folded = fold_at(op, by, &base, dim, index, source)?;
    if reduce != ScatterReduce::Mean {
        return Ok(folded);
    }
    let ones = Tensor::scalar(Scalar::I64(1), DType::I64, x.device())?.expand(x.shape())?;
    let own = if include_self { ones } else { start_at(&ones, Scalar::I64(0))? };
    let count = fold_at(op, IndexFold::Add, &own, dim, index, &repeated(Scalar::I64(1), DType::I64)?)?;
    let count = count.to_dtype(x.dtype())?;
    if x.dtype().is_float() { folded.div(&count) } else { folded.div_with(&count, Rounding::Floor) }
}

/// # Scattering
#[ops]
impl Tensor {
    /// A copy of this tensor with the elements of `src`, or one number, written along a dimension: `y[i, index[i, j]] =
    /// src[i, j]` for `dim` 1. An option adds or multiplies instead. The sizes of the index may not exceed those of
    /// `src`, nor, except along `dim`, those of this tensor. Elements of `src` outside of the index's shape are
    /// ignored.
    ///
    /// If an index repeats, the last element wins, on every device, and gets the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::ScatterMode};
    /// let (x, index) = (Tensor::zeros([3])?, tensor!([2, 0, 2])?);
    /// assert_eq!(x.scatter(0, &index, &tensor!([1.0, 2.0, 3.0])?)?.to_vec::<f32>()?, [2.0, 0.0, 3.0]);
    /// assert_eq!(x.scatter_with(0, &index, 1.5, ScatterMode::Add)?.to_vec::<f32>()?, [1.5, 0.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[doc(alias = "scatter_")]
    #[op(in_place, samples = scatter_samples, errors = scatter_errors)]
    pub fn scatter<'a>(
        &self,
        dim: impl Into<Dim>,
        index: &Tensor,
        src: impl Into<Operand<'a>>,
        options: impl Into<ScatterOptions>,
    ) -> Result<Tensor> {
        let by = match options.reduce {
            ScatterMode::None => IndexFold::Replace,
            ScatterMode::Add => IndexFold::Add,
            ScatterMode::Multiply => IndexFold::Multiply,
        };
        let src = match &src {
            Operand::Scalar(number) => {
                number.check_put("scatter", self.dtype())?;
                Cow::Owned(Tensor::scalar(*number, self.dtype(), self.device())?.expand(index.shape())?)
            }
            Operand::Borrowed(src) => Cow::Borrowed(*src),
            Operand::Owned(src) => Cow::Borrowed(src),
        };
        scattered("scatter", self, dim, index, &src, |x, dim, index, src| fold_at("scatter", by, x, dim, index, src))
    }

    /// [`scatter`](Self::scatter) with the sum, product, mean, maximum or minimum of all elements written to one index.
    /// The element already there is included by default. Equal extrema share the gradient.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::ScatterReduce};
    /// let (x, index) = (tensor!([1.0, 9.0])?, tensor!([0, 0, 1])?);
    /// let src = tensor!([3.0, 5.0, 2.0])?;
    /// assert_eq!(x.scatter_reduce(0, &index, &src, ScatterReduce::Mean)?.to_vec::<f32>()?, [3.0, 5.5]);
    /// assert_eq!(x.scatter_reduce_with(0, &index, &src, ScatterReduce::Mean, false)?.to_vec::<f32>()?, [4.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is negative or too large, not an integer, or the shapes or dtypes do not match.
    #[op(in_place_by_hand, samples = scatter_reduce_samples, errors = scatter_reduce_errors)]
    pub fn scatter_reduce(
        &self,
        dim: impl Into<Dim>,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        options: impl Into<ScatterReduceOptions>,
    ) -> Result<Tensor> {
        scattered("scatter_reduce", self, dim, index, src, |x, dim, index, src| {
            reduced("scatter_reduce", (x, dim, index, src), reduce, options.include_self)
        })
    }
}

fn scatter_samples() -> Result<Vec<Sample>> {
    let sample = |shape: &[usize], dim: i64, index: Tensor, src: &[usize]| {
        Ok(sample![spread(shape, -2.0, 2.0)?, dim, index, spread(src, 1.0, 3.0)?])
    };
    let (x, index) = (|| spread([2, 3], -2.0, 2.0), || ints(&[2, 2, 0, 1, 1, 1], [2, 3]));
    Ok(vec![
        sample(&[2, 3], 1, ints(&[2, 2, 0, 1, 1, 1, 0, 2], [2, 4])?, &[2, 4])?,
        sample(&[3, 4], -2, ints(&[2, 0, 2, 1], [2, 2])?, &[3, 5])?,
        sample(&[5], 0, ints(&[4, 1, 4, 4], [4])?, &[4])?,
        sample(&[], 0, ints(&[0], [])?, &[])?,
        sample(&[3, 4], 1, ints(&[], [3, 0])?, &[3, 0])?,
        sample![x()?, 1, index()?, 2.5],
        sample![x()?, 1, index()?, spread([2, 3], 1.0, 3.0)?; reduce = "add"],
        sample![x()?, 1, index()?, spread([2, 3], 1.0, 3.0)?; reduce = "multiply"],
        sample![x()?, 1, index()?, 1.5; reduce = "multiply"],
    ])
}

fn scatter_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    let index = |value| ints(&[0, value, 1], [1, 3]);
    let src = normal([1, 3], 2)?;
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![x()?, 0, index(2)?, &src]],
        error!["a negative index", "index -1", "size 2"; sample![x()?, 0, index(-1)?, 1.5]],
        error!["a short source", "[1, 3]", "[1, 2]"; sample![x()?, 0, index(1)?, normal([1, 2], 2)?]],
        error!["wide indices", "[1, 4]", "[2, 3]"; sample![x()?, 0, ints(&[0; 4], [1, 4])?, normal([1, 4], 2)?]],
        error!["another dtype", "f32", "f64"; sample![x()?, 0, index(1)?, src.to_dtype(DType::F32)?]],
        error!["indices of floats", "integers", "f64"; sample![x()?, 0, &src, &src]],
        error!["no such dimension", "2"; sample![x()?, 2, index(1)?, &src]],
    ])
}

fn scatter_reduce_samples() -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for reduce in ["sum", "prod", "mean", "amax", "amin"] {
        for include_self in [true, false] {
            let index = ints(&[2, 2, 0, 1, 1, 1, 0, 0], [2, 4])?;
            all.push(
                sample![spread([2, 3], -2.0, 2.0)?, 1, index, spread([2, 4], -3.1, 2.9)?, reduce; include_self = include_self],
            );
        }
        all.push(sample![spread([3, 2], -2.0, 2.0)?, 0, ints(&[2, 0, 2], [3, 1])?, spread([4, 2], 1.1, 2.9)?, reduce]);
        all.push(sample![spread([], 1.0, 2.0)?, 0, ints(&[0, 0], [2])?, spread([2], 2.1, 2.9)?, reduce]);
        all.push(sample![spread([3], 1.0, 2.0)?, 0, ints(&[], [0])?, spread([0], 2.1, 2.9)?, reduce]);
    }
    Ok(all)
}

fn scatter_reduce_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([2, 3], 1);
    let (index, src) = (ints(&[0, 2, 1], [1, 3])?, normal([1, 3], 2)?);
    Ok(vec![
        error!["an index too large", "index 2", "size 2"; sample![x()?, 0, &index, &src, "sum"]],
        error!["no such reduction", "reduce"; sample![x()?, 0, &index, &src, "median"]],
        error!["another dtype", "f32", "f64"; sample![x()?, 1, &index, src.to_dtype(DType::F32)?, "mean"]],
    ])
}

#[cfg(feature = "samples")]
#[allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
mod tests;
