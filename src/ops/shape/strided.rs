//! Views with explicit strides over the storage.

use crate::autograd::{BackwardContext, is_grad_enabled};
use crate::backend::{self, ViewMut};
use crate::error::bail;
use crate::layout::Dim;
use crate::layout::{Layout, Strides, Walk, checked_bytes, resolve_dim_or_scalar};
use crate::memory::scratch::{filled, with_room};
use crate::ops::index::gather::{lined_up, scatter};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::ops::shape::diagonal::replaced_at;
use crate::storage::Storage;
use crate::{Result, Scalar, Shape, Tensor};
use smallvec::smallvec;

/// # Strided views
#[ops]
impl Tensor {
    /// A view with a given shape, strides and `storage_offset`. The offset counts from the start of the storage, not of
    /// this tensor; `None` means the first element of this tensor. Elements may overlap; their gradients are added up.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 5)?;
    /// let windows = x.as_strided([3, 3], &[1, 1], 0)?;
    /// assert_eq!(windows.to_vec::<i64>()?, [0, 1, 2, 1, 2, 3, 2, 3, 4]);
    /// let last = x.slice(0, 2..)?.as_strided([2], &[1], None)?;
    /// assert_eq!(last.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the view would reach outside the storage or, where a gradient is required, elements of the storage that do not
    /// belong to this tensor: their gradient would be lost.
    #[op(samples = strided_samples, errors = strided_errors, view, reads_layout, aliases = ["as_strided_copy"])]
    pub fn as_strided(
        &self,
        size: impl Into<Shape>,
        stride: &[isize],
        #[default(None)] storage_offset: impl Into<Option<usize>>,
    ) -> Result<Tensor> {
        let storage_offset = storage_offset.unwrap_or(self.offset());
        if self.is_batched() {
            bail!(Value, "as_strided", "not supported inside vmap: the storage holds all examples");
        }
        let len = self.storage().bytes() / self.dtype().size();
        let layout = self.layout().as_strided("as_strided", size, stride, storage_offset, len)?;
        let differentiable = is_grad_enabled() && self.requires_grad();
        if differentiable && let Some(position) = first_foreign(&layout, self.layout())? {
            bail!(
                Graph,
                "as_strided",
                "shape {:?} with strides {stride:?} and offset {storage_offset} reaches position {position} of the storage, which is \
                 not an element of the input of shape {:?} with strides {:?} and offset {}: its gradient would be lost; call \
                 detach() first",
                layout.shape(),
                self.shape(),
                self.strides(),
                self.offset()
            );
        }
        self.with_layout(layout.clone()).record("as_strided", &[self], |_| {
            let own = self.layout().clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(carry_back(g, &layout, &own)?)])
        })
    }

    /// All windows of `size` elements along a dimension, `step` apart, without a copy. The elements of a window are a
    /// new last dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let windows = Tensor::arange(0, 5)?.unfold(0, 3, 2)?;
    /// assert_eq!(windows.to_vec::<i64>()?, [0, 1, 2, 2, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, the windows are longer than it, or the step is 0.
    #[op(samples = unfold_samples, errors = unfold_errors, view, aliases = ["unfold_copy"])]
    pub fn unfold(&self, dimension: impl Into<Dim>, size: usize, step: usize) -> Result<Tensor> {
        let dim = resolve_dim_or_scalar("unfold", dimension.0, self.rank())?;
        // A 0-dimensional tensor has one window: itself.
        let whole = self.shape().get(dim).copied().unwrap_or(1);
        if size > whole || step == 0 {
            bail!(
                Shape,
                "unfold",
                "size must be at most {whole} for dimension {dim} of shape {:?}, and step positive, got {size} and {step}",
                self.shape()
            );
        }
        if self.rank() == 0 {
            return self.reshape([1])?.narrow(0, 0, size);
        }
        let windows = (whole - size) / step + 1;
        let (mut shape, mut strides) = (self.layout().shape().with(dim, windows), Strides::from(self.strides()));
        shape.insert(self.rank(), size);
        strides.push(strides[dim]);
        // With one window the stride may be anything.
        strides[dim] = strides[dim].saturating_mul(isize::try_from(step).unwrap_or(isize::MAX));
        // The windows contain only elements of the tensor. An empty batch has no memory to check against.
        let len = if self.is_batched() { isize::MAX as usize } else { self.storage().bytes() / self.dtype().size() };
        let layout = self.layout().as_strided("unfold", shape, &strides, self.offset(), len)?;
        self.with_layout(layout).record("unfold", &[self], |_| {
            let (shape, rank) = (self.layout().shape().clone(), self.rank());
            move |_: &BackwardContext, g: &Tensor| {
                // The windows flattened, and the indices of their elements.
                let line = g.movedim(-1, dim + 1)?.flatten(dim, dim + 1)?;
                let starts = Tensor::arange(0, windows)?.mul(step)?.unsqueeze(1)?;
                let index = starts.add(&Tensor::arange(0, size)?)?.to_device(g.device())?;
                Ok(smallvec![Some(scatter(&shape, dim, &lined_up(&index, dim, rank)?, &line)?)])
            }
        })
    }

    /// A copy of this tensor with `src` at the positions given by a shape, strides and an offset, counted in row-major
    /// order.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::zeros([2, 2])?.as_strided_scatter(&tensor!([1.0, 2.0])?, [2], &[3], 0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a position is outside this tensor or occurs twice, or `src` has another shape.
    #[op(samples = strided_scatter_samples, errors = strided_scatter_errors)]
    pub fn as_strided_scatter(
        &self,
        src: &Tensor,
        size: impl Into<Shape>,
        stride: &[isize],
        #[default(0)] storage_offset: usize,
    ) -> Result<Tensor> {
        const OP: &str = "as_strided_scatter";
        let layout = self.layout().as_strided(OP, size, stride, storage_offset, self.numel())?;
        backend::common_device(OP, self.device(), [src.device()])?;
        if src.shape() != &layout.shape()[..] {
            bail!(Shape, OP, "src must have shape {:?}, got {:?}", layout.shape(), src.shape());
        }
        if !layout.is_non_overlapping() {
            bail!(Value, OP, "stride must not select an element twice, got {stride:?} for size {:?}", layout.shape());
        }
        replaced_at(OP, self, src, &layout)
    }
}

/// The cotangent of a tensor with layout `own` from the cotangent of its view with `layout`: accumulated in a buffer that
/// spans the tensor, and read from there.
fn carry_back(g: &Tensor, layout: &Layout, own: &Layout) -> Result<Tensor> {
    let Some((low, high)) = own.extent() else {
        return Tensor::scalar(Scalar::I64(0), g.dtype(), g.device())?.expand(own.shape());
    };
    let len = high - low + 1;
    let (view, own) = (moved(layout, low, len)?, moved(own, low, len)?);
    let mut piece = add_up(g, &view, len)?;
    if !own.is_non_overlapping() {
        // Elements of an expanded tensor that share a position share the cotangent evenly.
        let ones = Tensor::scalar(Scalar::I64(1), g.dtype(), g.device())?.expand(own.shape())?;
        piece = piece.div(&add_up(&ones, &own, len)?)?;
    }
    read_out(&piece, &own)
}

/// The layout relative to the `len` elements of storage from `low` on, which contain all its elements.
fn moved(layout: &Layout, low: usize, len: usize) -> Result<Layout> {
    let offset = if layout.numel() == 0 { 0 } else { layout.offset() - low };
    layout.as_strided("as_strided", layout.shape().clone(), layout.strides(), offset, len)
}

/// A vector of `len` zeros with the elements of `x` added at the positions of `layout`. Its derivative is [`read_out`].
#[track_caller]
fn add_up(x: &Tensor, layout: &Layout, len: usize) -> Result<Tensor> {
    if x.dtype().is_complex() {
        return x.by_parts(|part| add_up(part, layout, len));
    }
    if !layout.is_non_overlapping() {
        let mut positions = with_room("as_strided", layout.numel())?;
        each_position(layout, |position| positions.push(position as i64));
        let index = Tensor::from_vec(positions, [layout.numel()])?.to_device(x.device())?;
        let zeros = Tensor::scalar(Scalar::I64(0), x.dtype(), x.device())?.expand([len])?;
        return zeros.index_add(0, &index, &x.reshape(-1)?);
    }
    let shape = Shape::from([len]);
    let mut storage =
        Storage::zeroed("as_strided", x.device(), checked_bytes("as_strided", &shape, x.dtype().size())?)?;
    backend::copy("as_strided", x.as_view()?, &mut ViewMut::new("as_strided", &mut storage, layout, x.dtype())?)?;
    Tensor::from_parts(storage, Layout::contiguous(shape), x.dtype()).record("add_up", &[x], |_| {
        let layout = layout.clone();
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(read_out(g, &layout)?)])
    })
}

/// The elements at the positions of `layout` in a vector. Its derivative is [`add_up`].
#[track_caller]
pub(in crate::ops) fn read_out(x: &Tensor, layout: &Layout) -> Result<Tensor> {
    let x = x.contiguous()?;
    let (offset, len) = (x.offset() + layout.offset(), x.offset() + x.numel());
    let view = layout.as_strided("as_strided", layout.shape().clone(), layout.strides(), offset, len)?;
    x.with_layout(view).record("as_strided", &[&x], |_| {
        let (layout, len) = (layout.clone(), x.numel());
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(add_up(g, &layout, len)?)])
    })
}

/// A position in the storage that belongs to `view` but not to `own`.
fn first_foreign(view: &Layout, own: &Layout) -> Result<Option<usize>> {
    let Some((first, last)) = view.extent() else { return Ok(None) };
    let Some((low, high)) = own.extent() else { return Ok(Some(first)) };
    if own.is_non_overlapping() && own.numel() == high - low + 1 {
        // `own` covers every position between the outermost ones.
        return Ok(if first < low { Some(first) } else { (last > high).then_some(last) });
    }
    let mut taken = filled("as_strided", false, high - low + 1)?;
    each_position(&without_repeats(own)?, |position| taken[position - low] = true);
    let mut foreign = None;
    each_position(&without_repeats(view)?, |position| {
        if position.checked_sub(low).is_none_or(|at| taken.get(at) != Some(&true)) {
            foreign.get_or_insert(position);
        }
    });
    Ok(foreign)
}

/// The layout with dimensions of stride 0 cut to size 1: an expanded tensor may have too many elements to visit.
fn without_repeats(layout: &Layout) -> Result<Layout> {
    let repeats = |dim: &usize| layout.strides()[*dim] == 0 && layout.shape()[*dim] > 1;
    (0..layout.rank())
        .filter(repeats)
        .try_fold(layout.clone(), |once, dim| once.slice("as_strided", dim as isize, &(0..1).into()))
}

/// Calls `f` with the position of every element, in row-major order.
fn each_position(layout: &Layout, mut f: impl FnMut(usize)) {
    let walk = Walk::new(layout.shape(), [layout]);
    let [step] = walk.inner();
    walk.runs(0, walk.numel(), |[at], len| (0..len as isize).for_each(|i| f((at + i * step) as usize)));
}

fn strided_samples() -> Result<Vec<Sample>> {
    let x = || spread([12], -2.0, 2.0);
    Ok(vec![
        sample![x()?, [3, 2], [1, 3], 2],
        // Overlapping, repeated, backwards.
        sample![x()?, [5, 4], [1, 2], 1],
        sample![x()?, [2, 3], [0, 2], 0],
        sample![x()?, [3], [-2], 8],
        sample![x()?, [], [], 7],
        sample![x()?, [0, 3], [3, 1], 2].zero_derivative(),
        sample![spread([3, 4], -2.0, 2.0)?, [2, 2, 2], [4, 1, 1], 1],
    ])
}

fn strided_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([6], 1)?;
    let part = x.slice(0, 1..)?.requires_grad_(true)?;
    Ok(vec![
        error!["beyond the storage", "[2]", "[6]", "from 1 to 7"; sample![&x, [2], [6], 1]],
        error!["before the storage", "from -1 to 0"; sample![&x, [2], [-1], 0]],
        error!["too few strides", "[2, 2]", "[1]"; sample![&x, [2, 2], [1], 0]],
        error!["a gradient that would be lost", "position 0", "detach"; sample![part, [3], [2], 0]],
    ])
}

fn unfold_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[5])?, 0, 3, 1],
        sample![x(&[5])?, 0, 2, 2],
        sample![x(&[2, 6, 2])?, 1, 3, 2],
        sample![x(&[3, 5])?, -1, 2, 3],
        sample![x(&[3, 4])?, 0, 3, 1],
        sample![x(&[3])?, 0, 0, 1].zero_derivative(),
        sample![x(&[2, 0])?, 0, 2, 1],
        sample![x(&[3])?, 0, 3, isize::MAX],
        sample![x(&[])?, 0, 1, 1],
        sample![x(&[])?, -1, 0, 2].zero_derivative(),
    ])
}

fn unfold_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["windows too long", "4", "[2, 3]"; sample![&x, 1, 4, 1]],
        error!["a step of 0", "0"; sample![&x, 1, 2, 0]],
        error!["no such dimension", "2"; sample![&x, 2, 1, 1]],
        error!["two windows of a number", "2", "[]"; sample![normal([], 1)?, 0, 2, 1]],
    ])
}

fn strided_scatter_samples() -> Result<Vec<Sample>> {
    let x = || spread([3, 4], -2.0, 2.0);
    Ok(vec![
        sample![x()?, spread([3], 3.0, 4.0)?, [3], [5], 1],
        sample![x()?, spread([2, 2], 3.0, 4.0)?, [2, 2], [1, 4]],
        sample![x()?, spread([], 3.0, 4.0)?, [], [], 7],
        sample![x()?, spread([2, 0], 3.0, 4.0)?, [2, 0], [1, 1]],
    ])
}

fn strided_scatter_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([6], 1)?;
    Ok(vec![
        error!["beyond the elements", "[2]", "[6]", "from 1 to 7"; sample![&x, normal([2], 1)?, [2], [6], 1]],
        error!["another shape", "[3]", "[2]"; sample![&x, normal([3], 1)?, [2], [1]]],
        error!["an element twice", "[0]", "twice"; sample![&x, normal([2], 1)?, [2], [0]]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::autograd::{gradcheck, gradgradcheck};
    use crate::tensor;

    fn gradient(x: &Tensor) -> Result<Option<Vec<f32>>> {
        x.grad().map(|g| g.to_vec::<f32>()).transpose()
    }

    #[test]
    fn gradients_of_elements_that_occur_twice_add_up() -> Result<()> {
        let x = Tensor::zeros([5])?.requires_grad_(true)?;
        x.as_strided([3, 3], &[1, 1], 0)?.sum(..)?.backward()?;
        assert_eq!(gradient(&x)?, Some(vec![1.0, 2.0, 3.0, 2.0, 1.0]));
        Ok(())
    }

    #[test]
    fn a_view_of_a_view_counts_from_the_storages_start() -> Result<()> {
        let x = Tensor::arange(0.0, 12.0)?.requires_grad_(true)?;
        let part = x.view([3, 4])?.t()?.slice(0, 1..3)?;
        let y = part.as_strided([2, 2], &[4, 1], 5)?;
        assert_eq!(y.to_vec::<f32>()?, [5.0, 6.0, 9.0, 10.0]);
        y.mul(&tensor!([[1.0, 2.0], [3.0, 4.0]])?)?.sum(..)?.backward()?;
        assert_eq!(gradient(&x)?, Some(vec![0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0]));
        Ok(())
    }

    #[test]
    fn a_view_of_a_view_has_the_derivatives_of_its_elements() -> Result<()> {
        let call = |x: &[Tensor]| {
            // Offsets count from the start of the storage, wherever the input lies in it.
            let x = x[0].contiguous()?;
            let part = x.view([3, 4])?.t()?.slice(0, 1..)?;
            part.as_strided([2, 2, 2], &[4, 1, 1], x.offset() + 1)
        };
        let x = [spread([12], -2.0, 2.0)?];
        gradcheck(call, &x)?;
        gradgradcheck(call, &x)
    }

    #[test]
    fn an_expanded_tensor_gets_each_gradient_once() -> Result<()> {
        let x = tensor!([1.0, 2.0])?.requires_grad_(true)?;
        x.expand([3, 2])?.as_strided([2], &[1], 0)?.mul(&tensor!([5.0, 7.0])?)?.sum(..)?.backward()?;
        assert_eq!(gradient(&x)?, Some(vec![5.0, 7.0]));
        Ok(())
    }

    #[test]
    fn elements_of_others_are_refused_only_where_a_gradient_is_required() -> Result<()> {
        let x = Tensor::arange(0.0, 6.0)?.view([2, 3])?.slice(1, ..2)?;
        assert_eq!(x.as_strided([6], &[1], 0)?.numel(), 6);
        let x = x.requires_grad_(true)?;
        assert_eq!(x.as_strided([2, 2], &[3, 1], 0)?.numel(), 4);
        let refused = x.as_strided([3], &[1], 0).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|e| e.contains("reaches position 2")));
        assert_eq!(crate::autograd::no_grad(|| x.as_strided([3], &[1], 0))?.numel(), 3);
        Ok(())
    }
}
