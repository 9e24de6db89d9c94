//! Diagonals and triangles of matrices, and copies with one part replaced.

use crate::autograd::BackwardContext;
use crate::backend::spec::Triangle;
use crate::error::bail;
use crate::layout::{At, Dim, Slice};
use crate::layout::{Layout, resolve_dim};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::ops::shape::parts::{SubRange, put, take};
use crate::ops::shape::views::samples;
use crate::tensor::batch::innermost;
use crate::{Result, Scalar, Shape, Tensor, backend};
use smallvec::smallvec;

/// The diagonal of two dimensions of a tensor of this rank.
fn diagonal_of(op: &'static str, offset: isize, dim1: Dim, dim2: Dim, rank: usize) -> Result<SubRange> {
    let (a, b) = (resolve_dim(op, dim1.0, rank)?, resolve_dim(op, dim2.0, rank)?);
    if a == b {
        bail!(Index, op, "dim1 and dim2 must be different dimensions, got {} and {}", dim1.0, dim2.0);
    }
    Ok(SubRange::Diagonal(offset, a, b))
}

/// A copy of `x` with `src` written to one part of the same shape.
#[track_caller]
fn replaced(op: &'static str, x: &Tensor, src: &Tensor, part: &SubRange) -> Result<Tensor> {
    backend::common_device(op, x.device(), [src.device()])?;
    let expected = part.of(op, x.layout())?;
    if src.shape() != &expected.shape()[..] {
        bail!(Shape, op, "src must have shape {:?}, got {:?}", expected.shape(), src.shape());
    }
    if let Some(level) = innermost([x, src]) {
        return replaced(op, &x.unbatch(level)?, &src.unbatch(level)?, &part.behind_another())?.batch(level);
    }
    let src = &src.to_dtype(x.dtype())?;
    if x.dtype().is_complex() {
        return x.by_parts_with(src, |x, src| replaced(op, x, src, part));
    }
    let mut out = x.detach().copied(op)?;
    let mut whole = out.as_view_mut(op)?;
    let target = part.of(op, whole.layout)?;
    backend::copy(op, src.as_view()?, &mut whole.part(&target))?;
    out.record(op, &[x, src], |_| {
        let (part, shape) = (part.clone(), src.layout().shape().clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            let others = || {
                let zero = Tensor::scalar(Scalar::I64(0), g.dtype(), g.device())?;
                replaced(op, g, &zero.expand(&shape)?, &part)
            };
            Ok(smallvec![ctx.want(0, others)?, ctx.want(1, || take(op, g, &part))?])
        }
    })
}

/// # Diagonals
#[ops]
impl Tensor {
    /// A view of the diagonal of two dimensions, as a new last dimension. A positive `offset` is above the main
    /// diagonal, a negative one below it.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<i64>()?, [1, 4]);
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec::<i64>()?, [2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist, or both are the same.
    #[op(samples = diagonal_samples, errors = diagonal_errors, view, aliases = ["diagonal_copy"])]
    pub fn diagonal(
        &self,
        #[default(0)] offset: isize,
        #[default(0)] dim1: impl Into<Dim>,
        #[default(1)] dim2: impl Into<Dim>,
    ) -> Result<Tensor> {
        take("diagonal", self, &diagonal_of("diagonal", offset, dim1, dim2, self.rank())?)
    }

    /// Matrices with the last dimension on a diagonal and zeros elsewhere. `dim1` and `dim2` are the dimensions of rows
    /// and columns in the result.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([1, 2])?;
    /// assert_eq!(x.diag_embed(0, -2, -1)?.to_vec::<i64>()?, [1, 0, 0, 2]);
    /// assert_eq!(x.diag_embed(1, -2, -1)?.to_vec::<i64>()?, [0, 1, 0, 0, 0, 2, 0, 0, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is 0-dimensional, a dimension does not exist, or both are the same.
    #[op(samples = diag_embed_samples, errors = diag_embed_errors)]
    pub fn diag_embed(
        &self,
        #[default(0)] offset: isize,
        #[default(-2)] dim1: impl Into<Dim>,
        #[default(-1)] dim2: impl Into<Dim>,
    ) -> Result<Tensor> {
        let Some((&len, batch)) = self.shape().split_last() else {
            bail!(Shape, "diag_embed", "input must have at least 1 dimension, got shape []");
        };
        let part = diagonal_of("diag_embed", offset, dim1, dim2, self.rank() + 1)?;
        let SubRange::Diagonal(_, a, b) = part else { return Ok(self.clone()) };
        let size = len.saturating_add(offset.unsigned_abs());
        let mut shape = Shape::from(batch);
        shape.insert(a.min(b), size);
        shape.insert(a.max(b), size);
        put(self, &shape, &part)
    }

    /// The diagonal of a matrix, or a matrix with a vector on its diagonal and zeros elsewhere.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1, 2])?.diag(0)?.to_vec::<i64>()?, [1, 0, 0, 2]);
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.diag(-1)?.to_vec::<i64>()?, [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is neither a vector nor a matrix.
    #[op(samples = diag_samples, errors = || Ok(vec![error!["three dimensions", "[2, 3, 4]"; sample![normal([2, 3, 4], 1)?]]]))]
    pub fn diag(&self, #[default(0)] diagonal: isize) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(diagonal, 0, 1),
            2 => self.diagonal(diagonal, 0, 1),
            _ => bail!(Shape, "diag", "input must be a vector or a matrix, got shape {:?}", self.shape()),
        }
    }

    /// A matrix with all elements, in row-major order, on a diagonal and zeros elsewhere.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1], [2]])?.diagflat(0)?.to_vec::<i64>()?, [1, 0, 0, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the result is too large.
    #[op(samples = || samples(&[&[3], &[2, 2], &[], &[0]], |x| sample![x, -1]),
        errors = || Ok(vec![error!["too large", "bytes"; sample![normal([2], 1)?, isize::MAX]]]))]
    pub fn diagflat(&self, #[default(0)] offset: isize) -> Result<Tensor> {
        self.flatten(0, -1)?.diag_embed(offset, 0, 1)
    }

    /// A copy of this tensor with `src` on a [`diagonal`](Self::diagonal).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.diagonal_scatter(&tensor!([1.0, 2.0])?, 0, 0, 1)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `src` does not have the shape of the diagonal, a dimension does not exist, or both are the same.
    #[op(samples = diagonal_scatter_samples, errors = diagonal_scatter_errors)]
    pub fn diagonal_scatter(
        &self,
        src: &Tensor,
        #[default(0)] offset: isize,
        #[default(0)] dim1: impl Into<Dim>,
        #[default(1)] dim2: impl Into<Dim>,
    ) -> Result<Tensor> {
        let part = diagonal_of("diagonal_scatter", offset, dim1, dim2, self.rank())?;
        replaced("diagonal_scatter", self, src, &part)
    }

    /// A copy of this tensor with `src` at one index of a dimension.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.select_scatter(&tensor!([1.0, 2.0])?, 0, -1)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `src` does not have the shape of the part, or there is no such dimension or index.
    #[op(samples = select_scatter_samples, errors = select_scatter_errors)]
    pub fn select_scatter(&self, src: &Tensor, dim: impl Into<Dim>, index: impl Into<At>) -> Result<Tensor> {
        let (Dim(dim), At(index)) = (dim, index);
        self.layout().select("select_scatter", dim, index)?;
        let dim = resolve_dim("select_scatter", dim, self.rank())?;
        let index = if index < 0 { index + self.shape()[dim] as isize } else { index };
        replaced("select_scatter", self, src, &SubRange::Index(dim, index as usize))
    }

    /// A copy of this tensor with `src` in a range of a dimension: every `step`th index from `start` (included) to
    /// `end` (excluded). Negative indices count from the end.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::SliceScatterOptions};
    /// let (x, src) = (Tensor::zeros([4])?, Tensor::ones([2])?);
    /// let y = x.slice_scatter_with(&src, SliceScatterOptions::new().start(1_isize).step(2_isize))?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `src` does not have the shape of the part, there is no such dimension, or the step is not positive.
    #[op(samples = slice_scatter_samples, errors = slice_scatter_errors)]
    pub fn slice_scatter(&self, src: &Tensor, options: impl Into<SliceScatterOptions>) -> Result<Tensor> {
        let SliceScatterOptions { dim, start, end, step } = options;
        let dim = resolve_dim("slice_scatter", dim.0, self.rank())?;
        if step < 1 {
            bail!(Value, "slice_scatter", "step must be positive, got {step}");
        }
        replaced("slice_scatter", self, src, &SubRange::Range(dim, Slice::new(start, end).step(step)))
    }

    /// The lower triangle of the last two dimensions; other elements become 0. A positive `diagonal` includes diagonals
    /// above the main one, a negative one excludes it.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.tril(0)?.to_vec::<i64>()?, [1, 0, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[op(in_place, samples = triangles, errors = triangle_errors, batch)]
    pub fn tril(&self, #[default(0)] diagonal: isize) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.by_parts(|part| part.tril(diagonal));
        }
        triangle("tril", self, Triangle { upper: false, diagonal })?
            .record("tril", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.tril(diagonal)?)]))
    }

    /// The upper triangle of the last two dimensions; other elements become 0. A positive `diagonal` excludes the main
    /// diagonal, a negative one includes diagonals below it.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.triu(0)?.to_vec::<i64>()?, [1, 2, 0, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[op(in_place, samples = triangles, errors = triangle_errors, batch)]
    pub fn triu(&self, #[default(0)] diagonal: isize) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.by_parts(|part| part.triu(diagonal));
        }
        triangle("triu", self, Triangle { upper: true, diagonal })?
            .record("triu", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.triu(diagonal)?)]))
    }
}

crate::options::options! {
    /// The options of [`Tensor::slice_scatter_with`]. The default range is all of dimension 0.
    ///
    /// ```
    /// use cotangent::{Tensor, options::SliceScatterOptions};
    /// let options = SliceScatterOptions::new().dim(1).end(1_isize);
    /// let x = Tensor::zeros([2, 2])?.slice_scatter_with(&Tensor::ones([2, 1])?, options)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SliceScatterOptions {
        /// The dimension.
        dim: Dim = Dim(0),
        /// The start of the range, included.
        start: Option<isize> = None,
        /// The end of the range, excluded.
        end: Option<isize> = None,
        /// The step between indices.
        step: isize = 1,
    }
}

/// A contiguous copy of `x` with `src` at the positions of `target`, which is non-overlapping.
#[track_caller]
pub(in crate::ops) fn replaced_at(op: &'static str, x: &Tensor, src: &Tensor, target: &Layout) -> Result<Tensor> {
    let src = &src.to_dtype(x.dtype())?;
    if x.dtype().is_complex() {
        return x.by_parts_with(src, |x, src| replaced_at(op, x, src, target));
    }
    let mut out = x.detach().copied(op)?;
    backend::copy(op, src.as_view()?, &mut out.as_view_mut(op)?.part(target))?;
    out.record(op, &[x, src], |_| {
        let target = target.clone();
        move |ctx: &BackwardContext, g: &Tensor| {
            let others = || {
                let zero = Tensor::scalar(Scalar::I64(0), g.dtype(), g.device())?;
                replaced_at(op, g, &zero.expand(target.shape())?, &target)
            };
            Ok(smallvec![
                ctx.want(0, others)?,
                ctx.want(1, || crate::ops::shape::strided::read_out(&g.flatten(0, -1)?, &target))?
            ])
        }
    })
}

fn diagonal_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[3, 3], &[2, 4], &[4, 2, 3]], |x| sample![x])?;
    all.extend(samples(&[&[3, 4]], |x| sample![x, 1])?);
    all.extend(samples(&[&[3, 4]], |x| sample![x, -2])?);
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x, 1, -1, 0])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, 7].zero_derivative())?);
    all.extend(samples(&[&[0, 3]], |x| sample![x])?);
    Ok(all)
}

fn diagonal_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2"; sample![&x, 0, 0, 2]],
        error!["one dimension", "1", "-1", "different"; sample![&x, 0, 1, -1]],
        error!["a vector", "1", "rank 1"; sample![normal([3], 1)?]],
    ])
}

fn diag_embed_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[3], &[2, 3], &[0], &[2, 0]], |x| sample![x])?;
    all.extend(samples(&[&[2, 3]], |x| sample![x, 1, 0, 2])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, -2, -1, 0])?);
    Ok(all)
}

fn diag_embed_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a single number", "[]"; sample![normal([], 1)?]],
        error!["no such dimension", "2"; sample![normal([3], 1)?, 0, 0, 2]],
        error!["one dimension", "different"; sample![normal([3], 1)?, 0, 1, 1]],
        error!["too large", "bytes"; sample![normal([3], 1)?, isize::MAX]],
    ])
}

fn diag_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[3], &[2, 3], &[0]], |x| sample![x])?;
    all.extend(samples(&[&[3], &[2, 3]], |x| sample![x, 1])?);
    all.extend(samples(&[&[3], &[3, 3]], |x| sample![x, -1])?);
    Ok(all)
}

fn diagonal_scatter_samples() -> Result<Vec<Sample>> {
    let case = |shape: &[usize], src: &[usize]| Ok((spread(shape, -2.0, 2.0)?, spread(src, 3.0, 4.0)?));
    let ((a, b), (c, d), (e, f)) = (case(&[3, 3], &[3])?, case(&[3, 4], &[2])?, case(&[2, 3, 4], &[3, 2])?);
    Ok(vec![sample![a, b], sample![c, d, -1], sample![e, f, 1, 0, -1]])
}

fn diagonal_scatter_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([3, 3], 1)?;
    Ok(vec![
        error!["another shape", "[2]", "[3]"; sample![&x, normal([2], 1)?]],
        error!["one dimension", "different"; sample![&x, normal([3], 1)?, 0, 1, 1]],
    ])
}

fn select_scatter_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3], -2.0, 2.0)?, spread([3], 3.0, 4.0)?, 0, 1],
        sample![spread([2, 3, 4], -2.0, 2.0)?, spread([2, 4], 3.0, 4.0)?, -2, -1],
        sample![spread([2], -2.0, 2.0)?, spread([], 3.0, 4.0)?, 0, 0],
    ])
}

fn select_scatter_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["another shape", "[2]", "[3]"; sample![&x, normal([2], 1)?, 0, 0]],
        error!["no such index", "2", "[2, 3]"; sample![&x, normal([3], 1)?, 0, 2]],
        error!["no such dimension", "2"; sample![&x, normal([3], 1)?, 2, 0]],
    ])
}

fn slice_scatter_samples() -> Result<Vec<Sample>> {
    let x = || spread([4, 3], -2.0, 2.0);
    Ok(vec![
        sample![x()?, spread([4, 3], 3.0, 4.0)?],
        sample![x()?, spread([2, 3], 3.0, 4.0)?; start = 1, end = -1],
        sample![x()?, spread([4, 2], 3.0, 4.0)?, 1; step = 2],
        sample![x()?, spread([0, 3], 3.0, 4.0)?; start = 9],
    ])
}

fn slice_scatter_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([4, 3], 1)?;
    Ok(vec![
        error!["another shape", "[3, 3]", "[2, 3]"; sample![&x, normal([3, 3], 1)?; start = 2]],
        error!["a step of 0", "0"; sample![&x, normal([3, 3], 1)?; step = 0]],
        error!["no such dimension", "2"; sample![&x, normal([4, 3], 1)?, 2]],
    ])
}

fn triangle(op: &'static str, x: &Tensor, triangle: Triangle) -> Result<Tensor> {
    if x.rank() < 2 {
        bail!(Shape, op, "input must have at least 2 dimensions, got shape {:?}", x.shape());
    }
    let mut out = Tensor::empty(op, x.layout().shape().clone(), x.dtype(), x.device())?;
    backend::triangle(op, x.as_view()?, triangle, &mut out.as_view_mut(op)?)?;
    Ok(out)
}

/// Triangles of matrices and batches, with various diagonals.
fn triangles() -> Result<Vec<Sample>> {
    let calls: [(&[usize], i64); 7] =
        [(&[3, 3], 0), (&[2, 4], 1), (&[4, 2], -1), (&[2, 3, 3], 0), (&[1, 2, 3, 2], 0), (&[0, 3], 0), (&[1, 1], 0)];
    calls.into_iter().map(|(shape, diagonal)| Ok(sample![spread(shape, 1.0, 2.0)?, diagonal])).collect()
}

fn triangle_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["a vector", "[3]"; sample![normal([3], 1)?]]])
}
