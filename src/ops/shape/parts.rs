//! Slices, single indices, and splitting into pieces.

use crate::autograd::BackwardContext;
use crate::backend::{self, ViewMut};
use crate::error::{bail, err, named};
use crate::layout::{At, Dim, Dims, Sections, Slice};
use crate::layout::{Cuts, Layout, checked_bytes, resolve_dim, resolve_dims};
use crate::memory::scratch::for_handles;
use crate::ops::elementwise::binary::ADD;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::ops::shape::views::samples;
use crate::storage::Storage;
use crate::tensor::batch::behind;
use crate::{Result, Shape, Tensor};
use smallvec::smallvec;

/// A part of a tensor, independent of its layout: the same part can be taken of a tensor with other strides.
#[derive(Clone)]
pub(in crate::ops) enum SubRange {
    /// A range of a dimension.
    Range(usize, Slice),
    /// One index of a dimension, which is removed.
    Index(usize, usize),
    /// The diagonal with this offset of two dimensions, which are removed; the diagonal is the last dimension.
    Diagonal(isize, usize, usize),
}

impl SubRange {
    fn range(dim: usize, start: usize, len: usize) -> SubRange {
        SubRange::Range(dim, Slice::new(start as isize, (start + len) as isize))
    }

    /// The same part of a tensor with an extra leading dimension.
    pub(in crate::ops) fn behind_another(&self) -> SubRange {
        match self {
            SubRange::Range(dim, range) => SubRange::Range(dim + 1, range.clone()),
            SubRange::Index(dim, index) => SubRange::Index(dim + 1, *index),
            SubRange::Diagonal(offset, dim1, dim2) => SubRange::Diagonal(*offset, dim1 + 1, dim2 + 1),
        }
    }

    pub(in crate::ops) fn of(&self, op: &'static str, layout: &Layout) -> Result<Layout> {
        match self {
            SubRange::Range(dim, range) => layout.slice(op, *dim as isize, range),
            SubRange::Index(dim, index) => layout.select(op, *dim as isize, *index as isize),
            SubRange::Diagonal(offset, dim1, dim2) => Ok(layout.diagonal(*offset, *dim1, *dim2)),
        }
    }
}

/// A part of `x`, as a view.
#[track_caller]
pub(in crate::ops) fn take(op: &'static str, x: &Tensor, part: &SubRange) -> Result<Tensor> {
    x.with_layout(part.of(op, x.layout())?).record(op, &[x], |_| {
        let (shape, part) = (x.layout().shape().clone(), part.clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            // Only the first part allocates the whole; the others are added to it in place.
            let whole = match ctx.take_accumulated(0) {
                Some(whole) if !(whole.dtype().is_complex() || whole.is_batched() || g.is_batched()) => {
                    add_to(whole, g, &part)?
                }
                Some(whole) => put(g, &shape, &part)?.add(&whole)?,
                None => put(g, &shape, &part)?,
            };
            Ok(smallvec![Some(whole)])
        }
    })
}

/// Zeros of `shape` with `x` written to one part: the derivative of [`take`], which is the derivative of this.
#[track_caller]
pub(in crate::ops) fn put(x: &Tensor, shape: &Shape, part: &SubRange) -> Result<Tensor> {
    if x.dtype().is_complex() {
        return x.by_parts(|x| put(x, shape, part));
    }
    if x.is_batched() {
        let whole =
            Tensor::over_batch(&[x], |level, x| put(x[0], &behind(level.size, shape)?, &part.behind_another()))?;
        return record_put(whole, x, part);
    }
    let bytes = checked_bytes("put", shape, x.dtype().size())?;
    let mut storage = Storage::zeroed("put", x.device(), bytes)?;
    let whole = Layout::contiguous(shape.clone());
    let target = part.of("put", &whole)?;
    backend::copy("put", x.as_view()?, &mut ViewMut::new("put", &mut storage, &target, x.dtype())?)?;
    record_put(Tensor::from_parts(storage, whole, x.dtype()), x, part)
}

#[track_caller]
fn record_put(whole: Tensor, x: &Tensor, part: &SubRange) -> Result<Tensor> {
    whole.record("put", &[x], |_| {
        let part = part.clone();
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(take("slice", g, &part)?)])
    })
}

/// Adds `x` to one part of `whole`, outside the graph.
fn add_to(mut whole: Tensor, x: &Tensor, part: &SubRange) -> Result<Tensor> {
    let mut target = whole.as_view_mut("put")?;
    let layout = part.of("put", target.layout)?;
    backend::zip_in_place("put", ADD.formula(), &mut target.part(&layout), x.as_view()?)?;
    Ok(whole)
}

/// # Slicing and splitting
#[ops]
impl Tensor {
    /// A range of one dimension, as in Python: negative indices count from the end, and ends are clamped to the size.
    /// The step of a [`Slice`] may be negative.
    ///
    /// ```
    /// # use cotangent::{Tensor, arguments::Slice};
    /// let x = Tensor::arange(0, 5)?;
    /// assert_eq!(x.slice(0, 1..3)?.to_vec::<i64>()?, [1, 2]);
    /// assert_eq!(x.slice(0, Slice::new(1, -1))?.to_vec::<i64>()?, [1, 2, 3]);
    /// assert_eq!(x.slice(0, Slice::from(..).step(-2))?.to_vec::<i64>()?, [4, 2, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the step is 0.
    #[op(samples = slice_samples, errors = slice_errors, view, aliases = ["slice_copy"])]
    pub fn slice(&self, dim: impl Into<Dim>, range: impl Into<Slice>) -> Result<Tensor> {
        let dim = resolve_dim("slice", dim.0, self.rank())?;
        take("slice", self, &SubRange::Range(dim, range))
    }

    /// Selects one index of a dimension, which is removed. A negative index counts from the end.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.select(1, -1)?.to_vec::<i64>()?, [2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension or index.
    #[op(samples = select_samples, errors = select_errors, view, aliases = ["select_copy"])]
    pub fn select(&self, dim: impl Into<Dim>, index: impl Into<At>) -> Result<Tensor> {
        let (Dim(dim), At(index)) = (dim, index);
        // Checked with the index as given, so that the message prints it.
        self.layout().select("select", dim, index)?;
        let dim = resolve_dim("select", dim, self.rank())?;
        let index = if index < 0 { index + self.shape()[dim] as isize } else { index };
        take("select", self, &SubRange::Index(dim, index as usize))
    }

    /// `length` elements of a dimension beginning at `start`, which must exist. A negative start counts from the end.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::arange(0, 5)?.narrow(0, -3, 2)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the elements do not all lie in it.
    #[op(samples = narrow_samples, errors = narrow_errors, view)]
    pub fn narrow(&self, dim: impl Into<Dim>, start: impl Into<At>, length: usize) -> Result<Tensor> {
        let (Dim(dim), At(start)) = (dim, start);
        self.layout().narrow("narrow", dim, start, length)?;
        let dim = resolve_dim("narrow", dim, self.rank())?;
        let start = if start < 0 { start + self.shape()[dim] as isize } else { start };
        take("narrow", self, &SubRange::range(dim, start as usize, length))
    }

    /// Reverses the given dimensions, without a copy.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.flip(-1)?.to_vec::<i64>()?, [2, 1, 4, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist or is named twice.
    #[op(samples = flip_samples, errors = flip_errors, view)]
    pub fn flip(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = resolve_dims("flip", &dims, self.rank())?;
        let layout = self.layout().flip("flip", &dims)?;
        self.with_layout(layout)
            .record("flip", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.flip(&dims[..])?)]))
    }

    /// Splits a dimension into pieces of `split_size`; the last one may be shorter. A list gives the size of each
    /// piece.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let pieces = Tensor::arange(0, 5)?.split(2, 0)?;
    /// assert_eq!(pieces.iter().map(|p| p.numel()).collect::<Vec<_>>(), [2, 2, 1]);
    /// assert_eq!(Tensor::arange(0, 5)?.split([4, 1], 0)?[1].to_vec::<i64>()?, [4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, the sizes do not sum to that of the dimension, the size is 0 and the dimension is
    /// not empty, or memory runs out.
    #[op(samples = split_samples, errors = split_errors, outputs = [tensors], aliases = ["split_copy", "unsafe_split"], view)]
    pub fn split(&self, split_size: impl Into<Sections>, #[default(0)] dim: impl Into<Dim>) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("split", dim.0, self.rank())?;
        let split_size = match split_size.0 {
            Cuts::Parts(size) => {
                usize::try_from(size).map_err(|_| err!(Value, "split", "split_size must be ≥ 0, got {size}"))?
            }
            Cuts::At(sizes) => {
                let checked: Option<Shape> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
                let Some(checked) = checked else {
                    bail!(Value, "split", "sizes in split_size must be ≥ 0, got {:?}", &sizes[..]);
                };
                return self.split_with_sizes(checked, dim);
            }
        };
        let whole = self.shape()[dim];
        if split_size == 0 && whole != 0 {
            bail!(Value, "split", "split_size must be positive for dimension {dim} of shape {:?}, got 0", self.shape());
        }
        // An empty dimension gives one empty piece.
        let size = split_size.clamp(1, whole.max(1));
        let mut pieces = for_handles("split", whole.div_ceil(size).max(1))?;
        for start in (0..whole.max(1)).step_by(size) {
            pieces.push(take("split", self, &SubRange::range(dim, start, size.min(whole - start)))?);
        }
        Ok(pieces)
    }

    /// Splits a dimension into at most the given number of chunks of equal size; the last one may be smaller. There are
    /// fewer chunks if the rounded-up size needs fewer; [`chunks`](Self::chunks) gives an exact number.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let pieces = Tensor::arange(0, 5)?.chunk(4, 0)?;
    /// assert_eq!(pieces.iter().map(|p| p.numel()).collect::<Vec<_>>(), [2, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, `chunks` is 0, or memory runs out.
    #[op(samples = chunk_samples, errors = chunk_errors, outputs = [tensors], aliases = ["unsafe_chunk"], view)]
    pub fn chunk(&self, chunks: usize, #[default(0)] dim: impl Into<Dim>) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("chunk", dim.0, self.rank())?;
        if chunks == 0 {
            bail!(Value, "chunk", "chunks must be positive, got 0");
        }
        let whole = self.shape()[dim];
        let size = whole.div_ceil(chunks);
        // An empty dimension gives `chunks` empty pieces.
        let count = if size == 0 { chunks } else { whole.div_ceil(size) };
        let mut pieces = for_handles("chunk", count)?;
        for at in 0..count {
            pieces.push(take("chunk", self, &SubRange::range(dim, at * size, size.min(whole - at * size)))?);
        }
        Ok(pieces)
    }

    /// Splits a dimension into tensors without it, one for each index.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let rows = tensor!([[1, 2], [3, 4]])?.unbind(0)?;
    /// assert_eq!(rows[1].to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or memory runs out.
    #[op(samples = unbind_samples, errors = unbind_errors, outputs = [tensors], view, aliases = ["unbind_copy"])]
    pub fn unbind(&self, #[default(0)] dim: impl Into<Dim>) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("unbind", dim.0, self.rank())?;
        let mut parts = for_handles("unbind", self.shape()[dim])?;
        for index in 0..self.shape()[dim] {
            parts.push(take("unbind", self, &SubRange::Index(dim, index))?);
        }
        Ok(parts)
    }
}

/// # Splitting into arrays
impl Tensor {
    /// Splits a dimension into exactly `N` chunks of equal size, as an array that can be destructured.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let [a, b] = tensor!([1, 2, 3, 4])?.chunks(0)?;
    /// assert_eq!(a.to_vec::<i64>()?, [1, 2]);
    /// assert_eq!(b.to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or its size is not a multiple of `N`.
    #[track_caller]
    pub fn chunks<const N: usize>(&self, dim: impl Into<Dim>) -> Result<[Tensor; N]> {
        named("chunks", equal_pieces(self, dim.into()))
    }
}

#[track_caller]
fn equal_pieces<const N: usize>(x: &Tensor, dim: Dim) -> Result<[Tensor; N]> {
    let dim = resolve_dim("chunks", dim.0, x.rank())?;
    let (whole, shape) = (x.shape()[dim], x.shape());
    let size = match whole.checked_div(N) {
        Some(size) if size * N == whole => size,
        _ => {
            bail!(
                Shape,
                "chunks",
                "cannot split size {whole} of dimension {dim} of shape {shape:?} into {N} equal chunks"
            )
        }
    };
    let mut pieces = for_handles("chunks", N)?;
    for at in 0..N {
        pieces.push(take("chunk", x, &SubRange::range(dim, at * size, size))?);
    }
    <[Tensor; N]>::try_from(pieces)
        .map_err(|pieces: Vec<_>| err!(Backend, "chunks", "expected {N} chunks, got {}", pieces.len()))
}

fn slice_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[4, 3], &[4], &[4, 0]], |x| sample![x, 0, Slice::new(1, -1)])?;
    all.extend(samples(&[&[2, 5]], |x| sample![x, -1, Slice::from(..).step(-2)])?);
    all.extend(samples(&[&[5, 2]], |x| sample![x, 0, Slice::from(1..).step(3)])?);
    // A slice of a slice.
    all.push(sample![spread([2, 4, 3], -2.0, 2.0)?.slice(1, 1..)?.slice(2, ..2)?, 1, Slice::from(-1..)]);
    all.extend(samples(&[&[3, 2]], |x| sample![x, 0, Slice::from(3..)].zero_derivative())?);
    Ok(all)
}

fn slice_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2"; sample![&x, 2, Slice::from(..)]],
        error!["a step of 0", "step", "0"; sample![&x, 0, Slice::from(..).step(0)]],
    ])
}

fn select_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[2], &[2, 0]], |x| sample![x, 0, 1])?;
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x, -2, -1])?);
    // A slice of a slice.
    all.push(sample![spread([2, 3, 4], -2.0, 2.0)?.select(-2, -1)?, 1, 0]);
    Ok(all)
}

fn select_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no such index", "-4", "1", "[2, 3]"; sample![normal([2, 3], 1)?, 1, -4]],
        error!["no such dimension", "0"; sample![normal([], 1)?, 0, 0]],
    ])
}

fn narrow_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[3, 2], &[3], &[3, 0]], |x| sample![x, 0, 1, 2])?;
    all.extend(samples(&[&[2, 4]], |x| sample![x, -1, -3, 2])?);
    all.extend(samples(&[&[3]], |x| sample![x, 0, 3, 0].zero_derivative())?);
    Ok(all)
}

fn narrow_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["too long", "2", "[2, 3]"; sample![&x, 1, 2, 2]],
        error!["before the first", "-4", "[2, 3]"; sample![&x, 1, -4, 1]],
    ])
}

fn flip_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4], &[3, 0, 2]], |x| sample![x, [0, -1]])?;
    all.extend(samples(&[&[3], &[]], |x| sample![x, ()])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, 1])?);
    Ok(all)
}

fn flip_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["a dimension twice", "-1", "twice"; sample![&x, [1, -1]]],
        error!["no such dimension", "2"; sample![&x, 2]],
    ])
}

fn split_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[5, 3], &[4], &[0, 2]], |x| sample![x, 2])?;
    all.extend(samples(&[&[2, 7]], |x| sample![x, 3, -1])?);
    all.extend(samples(&[&[2, 7]], |x| sample![x, 9, 1])?);
    Ok(all)
}

fn split_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["pieces of nothing", "0", "[2, 3]"; sample![&x, 0, 1]],
        error!["no such dimension", "2"; sample![&x, 1, 2]],
    ])
}

fn chunk_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[5, 3], &[4], &[0, 2], &[1]], |x| sample![x, 3])?;
    all.extend(samples(&[&[2, 7]], |x| sample![x, 4, -1])?);
    Ok(all)
}

fn chunk_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no pieces", "chunks must be positive", "0"; sample![&x, 0, 1]],
        error!["no such dimension", "-3"; sample![&x, 1, -3]],
        error!["more pieces than memory holds", "out of memory"; sample![normal([0, 3], 1)?, isize::MAX]],
    ])
}

fn unbind_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[3, 2], &[4], &[2, 0]], |x| sample![x])?;
    all.extend(samples(&[&[2, 5, 2]], |x| sample![x, -2])?);
    Ok(all)
}

fn unbind_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "0"; sample![normal([], 1)?, 0]]])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::autograd::{GradOptions, grad_with};
    use crate::tensor;

    /// All pieces concatenated, each multiplied by its position so that they can be told apart.
    fn rejoined(pieces: &[Tensor]) -> Result<Tensor> {
        let weighted = pieces.iter().enumerate().map(|(i, piece)| piece.flatten(0, -1)?.mul(i as f64 + 1.0));
        Tensor::cat(&weighted.collect::<Result<Vec<_>>>()?, 0)
    }

    #[test]
    fn parts_share_the_bytes_and_keep_offsets() -> Result<()> {
        let x = Tensor::arange(0, 24)?.reshape([2, 3, 4])?;
        let part = x.select(0, 1)?.slice(0, 1..)?.t()?.narrow(0, -2, 1)?;
        assert_eq!((part.shape(), part.strides(), part.offset()), (&[1, 2][..], &[1, 4][..], 18));
        assert!(part.storage().ptr_eq(x.storage()));
        assert_eq!(part.to_vec::<i64>()?, [18, 22]);
        assert_eq!(part.flip(1)?.to_vec::<i64>()?, [22, 18]);
        Ok(())
    }

    #[test]
    fn pieces_have_pytorchs_sizes() -> Result<()> {
        let lengths = |pieces: Vec<Tensor>| pieces.iter().map(|p| p.shape()[0]).collect::<Vec<_>>();
        let x = Tensor::zeros([7, 2])?;
        assert_eq!(lengths(x.split(3, 0)?), [3, 3, 1]);
        assert_eq!(lengths(x.split(9, 0)?), [7]);
        assert_eq!(lengths(x.chunk(4, 0)?), [2, 2, 2, 1]);
        assert_eq!(lengths(x.chunk(5, 0)?), [2, 2, 2, 1]);
        let empty = Tensor::zeros([0, 2])?;
        assert_eq!(lengths(empty.split(3, 0)?), [0]);
        assert_eq!(lengths(empty.split(0, 0)?), [0]);
        assert_eq!(lengths(empty.chunk(3, 0)?), [0, 0, 0]);
        assert!(empty.unbind(0)?.is_empty());
        Ok(())
    }

    #[test]
    fn absurd_numbers_of_pieces_are_errors() -> Result<()> {
        let empty = Tensor::zeros([0, 2])?;
        let refused = empty.chunk(usize::MAX, 0).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.starts_with("chunk: out of memory")));
        assert_eq!(empty.split(usize::MAX, 0)?.len(), 1);
        assert_eq!(Tensor::zeros([3])?.chunk(usize::MAX, 0)?.len(), 3);
        assert_eq!(Tensor::zeros([3])?.split(usize::MAX, 0)?.len(), 1);
        let long = Tensor::zeros([1])?.expand([1_usize << 50])?;
        assert!(long.unbind(0).is_err() && long.split(1, 0).is_err() && long.chunk(1 << 49, 0).is_err());
        Ok(())
    }

    #[test]
    fn chunks_are_equal_or_an_error() -> Result<()> {
        let x = Tensor::arange(0, 12)?.view([2, 6])?;
        let [a, b, c] = x.chunks(-1)?;
        assert_eq!(
            [a, b, c].map(|part| part.to_vec::<i64>().ok()),
            [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]].map(|part| Some(part.to_vec()))
        );
        let [a, b] = Tensor::zeros([0, 3])?.chunks(0)?;
        assert_eq!((a.shape(), b.shape()), (&[0, 3][..], &[0, 3][..]));
        let refused = x.chunks::<4>(1).map_err(|e| e.to_string());
        let message = "chunks: cannot split size 6 of dimension 1 of shape [2, 6] into 4 equal chunks";
        assert_eq!(refused.err().as_deref(), Some(message));
        assert!(x.chunks::<0>(0).is_err() && x.chunks::<3>(0).is_err() && x.chunks::<1>(2).is_err());
        Ok(())
    }

    #[test]
    fn every_piece_can_be_gone_back_from_by_itself() -> Result<()> {
        let x = Tensor::arange(0.0, 6.0)?.requires_grad_(true)?;
        for (i, piece) in x.unbind(0)?.iter().enumerate() {
            piece.mul(i as f64)?.backward()?;
        }
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        Ok(())
    }

    #[test]
    fn the_gradient_of_a_part_is_zero_elsewhere_to_any_order() -> Result<()> {
        let x = tensor!([1.0, 2.0, 3.0, 4.0])?.requires_grad_(true)?;
        let y = x.slice(0, Slice::from(..).step(-2))?.pow(3)?.sum(..)?;
        let first = grad_with(&y, &[&x], GradOptions::new().create_graph(true))?.swap_remove(0);
        let first = first.unwrap_or_else(|| x.detach());
        assert_eq!(first.to_vec::<f32>()?, [0.0, 12.0, 0.0, 48.0]);
        first.sum(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![0.0, 12.0, 0.0, 24.0]));
        Ok(())
    }

    /// Uses overlapping parts of `x`, and the whole before and after them; `z` shares the cotangent of the whole.
    fn parts_and_whole(x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let first = x.add(z)?;
        let mut total = x.select(1, 1)?.square()?.sum(..)?;
        for (i, piece) in x.split(2, 1)?.iter().enumerate() {
            total = total.add(&piece.pow(3)?.mul(i as f64 + 1.0)?.sum(..)?)?;
        }
        total = total.add(&x.slice(0, Slice::from(..).step(-2))?.exp()?.sum(..)?)?;
        let last = x.add(z)?;
        total.add(&first.square()?.sum(..)?)?.add(&last.sin()?.sum(..)?)
    }

    #[test]
    fn parts_added_in_place_are_the_recorded_sum_and_leave_shared_cotangents_alone() -> Result<()> {
        let leaf = |shift: f64| Tensor::arange(0.0, 15.0)?.mul(0.1)?.add(shift)?.reshape([3, 5])?.requires_grad_(true);
        let (x, z) = (leaf(0.0)?, leaf(0.5)?);
        let grads = |create_graph| {
            let options = GradOptions::new().create_graph(create_graph);
            let grads = grad_with(&parts_and_whole(&x, &z)?, &[&x, &z], options)?;
            grads.into_iter().flatten().map(|g| g.to_vec::<f32>()).collect::<Result<Vec<_>>>()
        };
        let (plain, recorded) = (grads(false)?, grads(true)?);
        assert_eq!(plain.len(), 2);
        for (plain, recorded) in plain.iter().flatten().zip(recorded.iter().flatten()) {
            assert!((plain - recorded).abs() <= 1e-5 * recorded.abs(), "{plain} is not {recorded}");
        }
        Ok(())
    }

    #[test]
    fn a_node_hook_on_a_part_sees_this_part_alone() -> Result<()> {
        let x = tensor!([1.0, 2.0, 3.0])?.requires_grad_(true)?;
        let parts = x.unbind(0)?;
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let store = seen.clone();
        parts[0].register_node_hook(move |event| {
            let inputs = event.inputs.iter().flatten().filter_map(|g| g.to_vec::<f32>().ok());
            store.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(inputs);
        })?;
        rejoined(&parts)?.sum(..)?.backward()?;
        assert_eq!(*seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner), [[1.0, 0.0, 0.0]]);
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0, 2.0, 3.0]));
        Ok(())
    }
}
