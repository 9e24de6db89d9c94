//! Indexing and assignment by index, as with brackets in Python.

use super::Tensor;
use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend;
use crate::backend::Indices;
use crate::backend::spec::IndexFold;
use crate::error::bail;
use crate::layout::{Layout, Shape, Slice, ToSigned, broadcast};
use crate::ops::index::gather::{lined_up, put_rows};
use crate::ops::index::scatter::fold_at;
use crate::{DType, Device, ErrorKind, Result, Scalar, interrupt};
use smallvec::smallvec;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// All dimensions that are not indexed otherwise: `...` in Python.
///
/// ```
/// use cotangent::{Tensor, arguments::{Ellipsis, Index}};
/// let x = Tensor::zeros([2, 3, 4])?;
/// assert_eq!(x.index(Index::new(vec![Ellipsis.into(), 0.into()]))?.shape(), [2, 3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// One item of an [`Index`].
///
/// ```
/// use cotangent::{Tensor, arguments::{Index, IndexItem, Slice}};
/// let x = Tensor::zeros([2, 3, 4])?;
/// let index = Index::new(vec![IndexItem::At(-1), IndexItem::NewDim, IndexItem::Slice(Slice::new(1, None))]);
/// assert_eq!(x.index(index)?.shape(), [1, 2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum IndexItem {
    /// One element of a dimension, which is removed; negative indices count from the end.
    At(isize),
    /// A range of a dimension.
    Slice(Slice),
    /// A new dimension of size 1: `None` in Python.
    NewDim,
    /// All dimensions that are not indexed otherwise.
    Ellipsis,
    /// Integers that select elements of a dimension, or a boolean mask over as many dimensions as it has.
    Tensor(Tensor),
}

/// An index as between brackets in Python: integers, slices, new dimensions, an ellipsis, integer tensors and masks.
/// [`s!`](crate::s) makes one; a single item converts into one: `x.index(0)`, `x.index(1..3)`, `x.index(&mask)`.
///
/// ```
/// use cotangent::{Tensor, s};
/// let x = Tensor::arange(0, 6)?.reshape([2, 3])?;
/// assert_eq!(x.index(s![.., 1..])?.to_vec::<i64>()?, [1, 2, 4, 5]);
/// assert_eq!(x.index(-1)?.to_vec::<i64>()?, [3, 4, 5]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Index(Vec<IndexItem>);

impl Index {
    /// An index of these items.
    ///
    /// ```
    /// use cotangent::{Tensor, arguments::Index};
    /// let at: Vec<usize> = vec![1, 2];
    /// let index = Index::new(at.into_iter().map(Into::into).collect());
    /// assert_eq!(Tensor::arange(0, 6)?.reshape([2, 3])?.index(index)?.item::<i64>()?, 5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new(items: Vec<IndexItem>) -> Index {
        Index(items)
    }

    /// The index tensors and masks in it.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.0.iter().filter_map(|item| if let IndexItem::Tensor(x) = item { Some(x) } else { None })
    }

    /// The same index with other tensors.
    pub(crate) fn map_tensors(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor>) -> Result<Index> {
        let items = self.0.iter().map(|item| match item {
            IndexItem::Tensor(x) => f(x).map(IndexItem::Tensor),
            other => Ok(other.clone()),
        });
        items.collect::<Result<_>>().map(Index)
    }
}

impl Index {
    /// The integers of an index with a single index tensor on a GPU, outside of graph and vmap: there the kernel wraps negative ones.
    fn rows_on_gpu(&self, x: &Tensor, value: &Tensor) -> Option<&Tensor> {
        let [IndexItem::Tensor(rows)] = self.0.as_slice() else { return None };
        let tensors = [x, value, rows];
        let plain = rows.dtype() == DType::I64 && x.rank() > 0 && !x.dtype().is_complex();
        let there = x.device() != Device::Cpu && tensors.iter().all(|tensor| tensor.device() == x.device());
        let recorded = is_grad_enabled() && tensors.iter().any(|tensor| tensor.requires_grad());
        (plain && there && !recorded && !tensors.iter().any(|tensor| tensor.is_batched())).then_some(rows)
    }
}

impl From<IndexItem> for Index {
    fn from(item: IndexItem) -> Index {
        Index(vec![item])
    }
}

macro_rules! items {
    ($($ty:ty: |$x:ident| $make:expr;)+) => {$(
        impl From<$ty> for IndexItem {
            fn from($x: $ty) -> IndexItem { $make }
        }
        impl From<$ty> for Index {
            fn from(item: $ty) -> Index { Index(vec![item.into()]) }
        }
    )+};
}
items! {
    i32: |at| IndexItem::At(at.to_signed());
    i64: |at| IndexItem::At(at.to_signed());
    isize: |at| IndexItem::At(at.to_signed());
    usize: |at| IndexItem::At(at.to_signed());
    Slice: |slice| IndexItem::Slice(slice);
    RangeFull: |range| IndexItem::Slice(range.into());
    Range<usize>: |range| IndexItem::Slice(range.into());
    RangeInclusive<usize>: |range| IndexItem::Slice(range.into());
    RangeFrom<usize>: |range| IndexItem::Slice(range.into());
    RangeFrom<i32>: |range| IndexItem::Slice(range.into());
    RangeTo<usize>: |range| IndexItem::Slice(range.into());
    RangeTo<i32>: |range| IndexItem::Slice(range.into());
    RangeToInclusive<usize>: |range| IndexItem::Slice(range.into());
    Ellipsis: |_ellipsis| IndexItem::Ellipsis;
    &Tensor: |tensor| IndexItem::Tensor(tensor.clone());
    Tensor: |tensor| IndexItem::Tensor(tensor);
}

/// An item that makes a view, with the dimension it applies to.
enum Basic {
    Select(usize, isize),
    Slice(usize, Slice),
    NewDim(usize),
}

impl Basic {
    fn of(&self, op: &'static str, layout: &Layout) -> Result<Layout> {
        match self {
            Basic::Select(dim, at) => layout.select(op, *dim as isize, *at),
            Basic::Slice(dim, slice) => layout.slice(op, *dim as isize, slice),
            Basic::NewDim(dim) => layout.unsqueeze(op, *dim as isize),
        }
    }

    #[track_caller]
    fn view(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Basic::Select(dim, at) => x.select(*dim, *at),
            Basic::Slice(dim, slice) => x.slice(*dim, slice.clone()),
            Basic::NewDim(dim) => x.unsqueeze(*dim),
        }
    }
}

/// An index resolved for a shape: first views, then integers along some dimensions of the result.
struct Resolved {
    basic: Vec<Basic>,
    /// Dimensions with their integers, in order.
    chosen: Vec<(usize, Tensor)>,
    /// Whether these are adjacent, so that the indexed dimensions replace them; otherwise they come first.
    together: bool,
}

impl Index {
    /// Resolves the index for a tensor.
    fn resolve(&self, op: &'static str, x: &Tensor) -> Result<Resolved> {
        let rank = x.rank();
        let takes = |item: &IndexItem| match item {
            IndexItem::At(_) | IndexItem::Slice(_) => 1,
            IndexItem::NewDim | IndexItem::Ellipsis => 0,
            IndexItem::Tensor(tensor) if tensor.dtype() == DType::Bool => tensor.rank(),
            IndexItem::Tensor(_) => 1,
        };
        let taken: usize = self.0.iter().map(takes).sum();
        let dots = self.0.iter().filter(|item| matches!(item, IndexItem::Ellipsis)).count();
        if taken > rank || dots > 1 {
            bail!(
                Index,
                op,
                "an index of {taken} dimensions{} does not match shape {:?}",
                if dots > 1 { " with more than one ellipsis" } else { "" },
                x.shape()
            );
        }
        let mut resolved = Resolved { basic: Vec::new(), chosen: Vec::new(), together: true };
        // The current dimension of the tensor after the previous views, and whether the index tensors have ended.
        let (mut dim, mut ended) = (0, false);
        for item in &self.0 {
            match item {
                IndexItem::Ellipsis if taken == rank => {}
                IndexItem::Slice(_) | IndexItem::NewDim | IndexItem::Ellipsis => ended |= !resolved.chosen.is_empty(),
                IndexItem::Tensor(_) => resolved.together &= !ended,
                IndexItem::At(_) => {}
            }
            match item {
                // As in PyTorch and unlike NumPy, an integer is a view also next to index tensors.
                IndexItem::At(at) => resolved.basic.push(Basic::Select(dim, *at)),
                IndexItem::Slice(slice) => {
                    resolved.basic.push(Basic::Slice(dim, slice.clone()));
                    dim += 1;
                }
                IndexItem::NewDim => {
                    resolved.basic.push(Basic::NewDim(dim));
                    dim += 1;
                }
                IndexItem::Ellipsis => dim += rank - taken,
                IndexItem::Tensor(tensor) => {
                    let at = resolved.basic.iter().fold(dim, |at, basic| match basic {
                        Basic::NewDim(_) => at - 1,
                        Basic::Select(..) => at + 1,
                        Basic::Slice(..) => at,
                    });
                    for integers in integers(op, x, at, tensor)? {
                        resolved.chosen.push((dim, integers));
                        dim += 1;
                    }
                }
            }
        }
        Ok(resolved)
    }
}

/// The integers of an index tensor along the dimensions of `x` from `dim` on: itself, or the positions where a mask is true.
pub(crate) fn integers(op: &'static str, x: &Tensor, dim: usize, tensor: &Tensor) -> Result<Vec<Tensor>> {
    if tensor.device() != x.device() {
        bail!(Device, op, "index must be on {}, got {}: use to_device", x.device(), tensor.device());
    }
    if tensor.dtype() == DType::Bool {
        let sizes = &x.shape()[dim..dim + tensor.rank()];
        if tensor.rank() == 0 || tensor.shape() != sizes {
            bail!(
                Index,
                op,
                "mask must have shape {sizes:?} for these dimensions of {:?}, got {:?}",
                x.shape(),
                tensor.shape()
            );
        }
        return where_true(op, tensor);
    }
    if !tensor.dtype().is_int() {
        bail!(DType, op, "indices must be integers or bools, got {}", tensor.dtype());
    }
    let size = x.shape()[dim];
    let wide = tensor.private()?.detach().to_dtype(DType::I64)?;
    // Most indices are valid and not negative. On a GPU the kernel checks them.
    let here = x.device() == Device::Cpu;
    if here {
        match Indices::check(op, wide.all_examples()?.as_view()?, size) {
            Ok(_) => return Ok(vec![wide]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(_) => {}
        }
    }
    let wrapped = wrapped(op, &wide, size)?;
    if here {
        check_range(op, &wide.all_examples()?, &wrapped.all_examples()?, dim, x.shape())?;
    }
    Ok(vec![wrapped])
}

/// Indices of a dimension with negative ones wrapped.
fn wrapped(op: &'static str, x: &Tensor, size: usize) -> Result<Tensor> {
    if x.is_batched() {
        return Tensor::over_batch(&[x], |_, all| wrapped(op, all[0], size));
    }
    Tensor::build(op, x.layout().shape().clone(), DType::I64, x.device(), |out| {
        backend::wrap_indices(op, x.as_view()?, size, out)
    })
}

/// Refuses an index out of range, with its position among the indices.
fn check_range(op: &'static str, given: &Tensor, wrapped: &Tensor, dim: usize, shape: &[usize]) -> Result<()> {
    let size = shape[dim] as i64;
    let values = wrapped.to_vec::<i64>()?;
    match values.iter().position(|&at| at < 0 || at >= size) {
        None => Ok(()),
        Some(position) => {
            let at = given.to_vec::<i64>()?[position];
            let position = crate::layout::unravel(position, given.shape());
            bail!(Index, op, "index {at} at {position:?} is out of range for dimension {dim} of shape {shape:?}")
        }
    }
}

/// The indices of the true elements of a mask, one tensor for each dimension, in row-major order.
pub(crate) fn where_true(op: &'static str, mask: &Tensor) -> Result<Vec<Tensor>> {
    let indices = true_indices(op, mask, mask.layout().shape())?;
    indices.unbind(1)
}

/// The indices of the true elements of a mask in a tensor of `shape`, as rows in row-major order. `shape` has as many elements
/// as the mask.
pub(crate) fn true_indices(op: &'static str, mask: &Tensor, shape: &Shape) -> Result<Tensor> {
    let mask = mask.private()?.detach().contiguous()?;
    let (storage, count) = backend::nonzero(op, mask.as_view()?, shape)?;
    Ok(Tensor::from_parts(storage, Layout::contiguous([count, shape.len()].into()), DType::I64))
}

impl Tensor {
    /// The part that an index selects.
    #[track_caller]
    pub(crate) fn part(&self, op: &'static str, index: &Index) -> Result<Tensor> {
        let Resolved { basic, chosen, together } = index.resolve(op, self)?;
        let mut view = self.clone();
        for basic in &basic {
            view = basic.view(&view)?;
        }
        let Some((first, _)) = chosen.first() else { return Ok(view) };
        choose(op, &view, &chosen, if together { *first } else { 0 })
    }

    /// Writes `value` to the part that an index selects. The caller has checked that the tensor may be changed.
    pub(super) fn assign(&mut self, index: &Index, value: &Tensor) -> Result<()> {
        const OP: &str = "set";
        let recorded = is_grad_enabled() && (self.requires_grad() || value.requires_grad());
        if self.dtype().is_complex() {
            let value = value.to_dtype(self.dtype())?;
            let (mut re, mut im) = (self.real()?, self.imag()?);
            re.assign(index, &value.real()?)?;
            im.assign(index, &value.imag()?)?;
            let changed = re.with_imaginary(&im)?;
            if recorded {
                *self = changed;
            } else {
                self.data = changed.data;
                self.renew_leaf();
            }
            return Ok(());
        }
        let resolved = index.resolve(OP, self)?;
        if resolved.chosen.is_empty() {
            let basic = resolved.basic;
            let part = basic.iter().try_fold(self.layout().clone(), |layout, basic| basic.of(OP, &layout))?;
            let value = fitting(OP, value, part.shape(), self)?;
            if recorded {
                *self = put_part(self, &value, index)?;
                return Ok(());
            }
            let value = value.detach();
            let mut target = self.as_view_mut(OP)?;
            let part = basic.iter().try_fold(target.layout.clone(), |layout, basic| basic.of(OP, &layout))?;
            let (from, to) = (value.as_view()?, &mut target.part(&part));
            interrupt::whole(|| backend::copy(OP, from, to))?;
            self.renew_leaf();
            return Ok(());
        }
        let changed = put_index(OP, self, index, value, IndexFold::Replace)?.into_value();
        if recorded {
            *self = changed;
            return Ok(());
        }
        self.data = changed.data;
        self.renew_leaf();
        Ok(())
    }
}

/// A copy of `x` with `value` at the elements that an index with tensors selects, replacing them or added to them, with its
/// derivative.
#[track_caller]
pub(crate) fn put_index(op: &'static str, x: &Tensor, index: &Index, value: &Tensor, by: IndexFold) -> Result<Tensor> {
    if by == IndexFold::Replace
        && let Some(rows) = index.rows_on_gpu(x, value)
    {
        let part: Shape = rows.shape().iter().chain(&x.shape()[1..]).copied().collect();
        let value = fitting(op, value, &part, x)?;
        let shape: Shape = [rows.numel()].iter().chain(&x.shape()[1..]).copied().collect();
        let rows = lined_up(&rows.detach().reshape([rows.numel()])?, 0, x.rank())?;
        return put_rows(op, &x.detach(), &rows, &value.reshape(shape)?);
    }
    let Resolved { basic, chosen, .. } = index.resolve(op, x)?;
    let leading = chosen.iter().enumerate().all(|(at, (dim, _))| at == *dim);
    if basic.is_empty() && !chosen.is_empty() && leading {
        // Whole rows are selected, by one flat index each.
        let shapes: Vec<&Shape> = chosen.iter().map(|(_, tensor)| tensor.layout().shape()).collect();
        let (common, rest) = (broadcast(op, &shapes)?, &x.shape()[chosen.len()..]);
        let part: Shape = common.iter().chain(rest).copied().collect();
        let value = fitting(op, value, &part, x)?;
        let (count, rows) = (common.numel(), x.shape()[..chosen.len()].iter().product());
        let shape = |first: usize| -> Shape { [first].iter().chain(rest).copied().collect() };
        let numbers = row_numbers(x, &chosen)?.expand(&common)?.reshape([count])?;
        let numbers = lined_up(&numbers, 0, 1 + rest.len())?;
        let (flat, value) = (x.reshape(shape(rows))?, value.reshape(shape(count))?);
        return fold_at(op, by, &flat, 0, &numbers, &value)?.reshape(x.shape());
    }
    // The flat indices of the selected elements: the same index applied to 0, 1, 2, ...
    let numbers = Tensor::arange(0, x.numel())?.to_device(x.device())?.reshape(x.shape())?;
    let positions = numbers.part(op, index)?;
    let value = fitting(op, value, positions.layout().shape(), x)?;
    let (positions, value) = (positions.flatten(0, -1)?, value.flatten(0, -1)?);
    fold_at(op, by, &x.flatten(0, -1)?, 0, &positions, &value)?.reshape(x.shape())
}

/// Flat row-major indices from integers along some dimensions.
fn row_numbers(x: &Tensor, integers: &[(usize, Tensor)]) -> Result<Tensor> {
    let Some(((_, first), rest)) = integers.split_first() else {
        return Tensor::scalar(Scalar::I64(0), DType::I64, x.device());
    };
    rest.iter().try_fold(first.clone(), |numbers, (dim, tensor)| numbers.mul(x.shape()[*dim])?.add(tensor))
}

/// A value broadcast to the shape of the part and cast to the tensor's dtype.
fn fitting(op: &'static str, value: &Tensor, part: &Shape, x: &Tensor) -> Result<Tensor> {
    if value.device() != x.device() {
        bail!(Device, op, "value must be on {}, got {}: use to_device", x.device(), value.device());
    }
    if broadcast(op, &[value.layout().shape(), part]).ok().as_ref() != Some(part) {
        bail!(Shape, op, "value must broadcast to the indexed shape {part:?}, got {:?}", value.shape());
    }
    value.to_dtype(x.dtype())?.expand(part)
}

/// A copy of `x` with `value` in the part that an index without tensors selects.
#[track_caller]
fn put_part(x: &Tensor, value: &Tensor, index: &Index) -> Result<Tensor> {
    let mut out = x.detach().copied("set")?;
    crate::autograd::no_grad(|| out.assign(index, &value.detach()))?;
    out.record("set", &[x, value], |_| {
        let index = index.clone();
        move |ctx: &BackwardContext, g: &Tensor| {
            let zero = || Tensor::scalar(Scalar::I64(0), g.dtype(), g.device());
            let others = || {
                let part = g.part("set", &index)?;
                put_part(g, &zero()?.expand(part.shape())?, &index)
            };
            Ok(smallvec![ctx.want(0, others)?, ctx.want(1, || g.part("set", &index))?])
        }
    })
}

/// The elements of `x` at integers along some dimensions. The integers broadcast against each other, and their dimensions start
/// at dimension `position` of the result.
#[track_caller]
fn choose(op: &'static str, x: &Tensor, integers: &[(usize, Tensor)], position: usize) -> Result<Tensor> {
    let shapes: Vec<&Shape> = integers.iter().map(|(_, tensor)| tensor.layout().shape()).collect();
    let common = broadcast(op, &shapes)?;
    let dims: Vec<usize> = integers.iter().map(|(dim, _)| *dim).collect();
    let others: Vec<usize> = (0..x.rank()).filter(|dim| !dims.contains(dim)).collect();
    // A single dimension is indexed directly; several are flattened to one first.
    let (from, along, numbers) = if let [(dim, tensor)] = integers {
        (x.clone(), *dim, tensor.clone())
    } else {
        let order: Vec<usize> = dims.iter().chain(&others).copied().collect();
        let mut sizes = vec![dims.iter().fold(1usize, |all, &dim| all.saturating_mul(x.shape()[dim]))];
        sizes.extend(others.iter().map(|&dim| x.shape()[dim]));
        (x.permute(order)?.reshape(sizes)?, 0, row_numbers(x, integers)?)
    };
    let numbers = numbers.expand(&common)?.flatten(0, -1)?;
    let taken = from.index_select(along, &numbers)?;
    // The indexed dimension becomes those of the integers.
    let mut sizes: Vec<usize> = taken.shape()[..along].to_vec();
    sizes.extend_from_slice(&common);
    sizes.extend_from_slice(&taken.shape()[along + 1..]);
    let taken = taken.reshape(sizes)?;
    let here: Vec<usize> = (along..along + common.len()).collect();
    let mut order: Vec<usize> = (0..taken.rank()).filter(|dim| !here.contains(dim)).collect();
    let position = position.min(order.len());
    order.splice(position..position, here);
    if order.is_sorted() { Ok(taken) } else { taken.permute(order) }
}
