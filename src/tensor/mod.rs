//! The tensor handle: shared storage, a layout over it, a dtype and, where a gradient is required, a graph node.

mod arguments;
mod create;
mod mutate;
pub(crate) mod print;
mod read;

pub use arguments::Operand;
pub use create::{NdArray, TensorOptions};

use crate::autograd::NodeRef;
use crate::autograd::node;
use crate::backend::{View, ViewMut, deferred};
use crate::error::{bail, err};
use crate::layout::{Layout, Shape, checked_bytes, resolve_dim};
use crate::memory::{Shared, Vacant};
use crate::storage::Storage;
use crate::{DType, Device, Result};

/// An array of any rank, of one dtype, on one device: a value that is cheap to clone.
///
/// Clones and views share their bytes until one of them is changed, which then works on a copy of its own: no tensor
/// ever changes because of what is done to another one.
///
/// ```
/// use cotangent::Tensor;
/// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
/// let y = x.matmul(&x.t()?)?;
/// assert_eq!(y.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    // Behind a pointer so that handles are small: they are moved, saved and returned far more often than made.
    data: Shared<Data>,
    node: Option<NodeRef>,
}

/// The values of a tensor, outside any graph.
struct Data {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Tensor {
    /// The size of every dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.data.layout.shape()
    }

    /// The steps, in elements, from one index of a dimension to the next.
    pub fn strides(&self) -> &[isize] {
        self.data.layout.strides()
    }

    /// The position of the first element in the storage.
    pub fn offset(&self) -> usize {
        self.data.layout.offset()
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.data.layout.rank()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.data.layout.numel()
    }

    /// The size of one dimension; negative ones count from the last.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn size(&self, dim: isize) -> Result<usize> {
        Ok(self.shape()[resolve_dim("size", dim, self.rank())?])
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.data.dtype
    }

    /// Where the elements live.
    #[inline]
    pub fn device(&self) -> Device {
        self.data.storage.device()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.data.layout.is_contiguous()
    }

    /// Whether operations on this tensor are recorded for a backward pass.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.grad_node().is_some()
    }

    /// Whether this is not the result of a recorded operation.
    pub fn is_leaf(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.kind != node::NodeKind::Op)
    }

    /// The name of the recorded operation that made this tensor.
    pub fn grad_fn(&self) -> Option<&'static str> {
        self.node.as_ref().filter(|node| node.kind == node::NodeKind::Op).map(|node| node.name)
    }

    /// This tensor as a new leaf whose gradient is kept, or as a constant.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let w = Tensor::zeros([3])?.requires_grad_(true)?;
    /// assert!(w.requires_grad() && w.is_leaf());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not of floating point, or is the result of a recorded operation (detach it first).
    #[track_caller]
    pub fn requires_grad_(self, requires_grad: bool) -> Result<Tensor> {
        if let Some(name) = self.grad_fn() {
            bail!(Graph, "requires_grad_", "the tensor is the result of {name}, not a leaf: detach it first");
        }
        match (requires_grad, self.requires_grad()) {
            (true, true) => Ok(self),
            (true, false) => self.into_leaf("requires_grad_", None),
            (false, _) => Ok(self.with_node(None)),
        }
    }

    /// The same values outside the graph; the bytes are shared.
    #[must_use]
    pub fn detach(&self) -> Tensor {
        Tensor { data: self.data.clone(), node: None }
    }

    /// Computes the values now. Elementwise operations on large tensors are deferred until someone needs the result, so
    /// that a chain of them goes through memory once; nothing but the time at which they are computed tells. Whoever
    /// measures an operation, or prepares tensors on one thread for another, calls this.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::ones([1 << 20])?;
    /// let start = std::time::Instant::now();
    /// x.exp()?.mul(&x)?.compute()?;
    /// println!("{:?}", start.elapsed());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out. The values can still be computed later.
    #[inline]
    pub fn compute(&self) -> Result<()> {
        self.data.storage.materialize()
    }

    /// Whether two handles show the same values of the same storage, which says more than equal values.
    pub fn is_same(&self, other: &Tensor) -> bool {
        self.data.storage.ptr_eq(&other.data.storage)
            && self.data.layout == other.data.layout
            && self.data.dtype == other.data.dtype
    }
}

// What the rest of the crate builds and reads tensors with.
impl Tensor {
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.data.layout
    }

    #[inline]
    pub(crate) fn storage(&self) -> &Storage {
        &self.data.storage
    }

    /// The node, barriers included.
    #[inline]
    pub(crate) fn node(&self) -> Option<&NodeRef> {
        self.node.as_ref()
    }

    /// The node, if a gradient is required.
    #[inline]
    pub(crate) fn grad_node(&self) -> Option<&NodeRef> {
        self.node.as_ref().filter(|node| node.kind != node::NodeKind::Barrier)
    }

    #[inline]
    pub(crate) fn with_node(mut self, node: Option<NodeRef>) -> Tensor {
        self.node = node;
        self
    }

    /// A fresh contiguous tensor with undefined contents, which the caller fills before anyone sees it.
    #[inline]
    pub(crate) fn empty(op: &'static str, shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
        let bytes = checked_bytes(op, &shape, dtype.size())?;
        Ok(Tensor::from_parts(Storage::new(op, device, bytes)?, Layout::contiguous(shape), dtype))
    }

    /// A fresh contiguous tensor whose elements `fill` writes.
    #[inline]
    #[allow(clippy::needless_pass_by_value)] // Most callers have made the shape for it.
    pub(crate) fn build(
        op: &'static str,
        shape: Shape,
        dtype: DType,
        device: Device,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        Tensor::build_shaped(op, &shape, dtype, device, fill)
    }

    /// As [`build`](Self::build), of another tensor's shape, which is copied straight to its place.
    #[inline]
    pub(crate) fn build_shaped(
        op: &'static str,
        shape: &Shape,
        dtype: DType,
        device: Device,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        let storage = Storage::new(op, device, checked_bytes(op, shape, dtype.size())?)?;
        let block = Vacant::new();
        let data = block.fill(Data { storage, layout: Layout::shaped(shape), dtype });
        let mut tensor = Tensor { data, node: None };
        fill(&mut tensor.own_view_mut(op)?)?;
        Ok(tensor)
    }

    /// A tensor over a storage whose layout was checked against it (L2).
    #[inline]
    pub(crate) fn from_parts(storage: Storage, layout: Layout, dtype: DType) -> Tensor {
        Tensor { data: Shared::new(Data { storage, layout, dtype }), node: None }
    }

    /// A view of this tensor's values under another layout, which must be derived from this one's (L2).
    #[inline]
    pub(crate) fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor::from_parts(self.data.storage.clone(), layout, self.data.dtype)
    }

    /// What kernels read. What was deferred is computed first, which can fail for want of memory.
    #[inline]
    pub(crate) fn as_view(&self) -> Result<View<'_>> {
        self.data.storage.materialize()?;
        Ok(self.materialized_view())
    }

    /// What kernels read, of a tensor whose values are there.
    #[inline(always)]
    pub(crate) fn materialized_view(&self) -> View<'_> {
        debug_assert!(!self.is_pending());
        View { storage: &self.data.storage, layout: &self.data.layout, dtype: self.data.dtype }
    }

    /// Several of these, each under a layout derived from the tensor's own (L2).
    #[inline]
    pub(crate) fn views<'a, const N: usize>(
        tensors: [&'a Tensor; N],
        layouts: [&'a Layout; N],
    ) -> Result<[View<'a>; N]> {
        tensors.iter().try_for_each(|tensor| tensor.data.storage.materialize())?;
        let view =
            |k: usize| View { storage: &tensors[k].data.storage, layout: layouts[k], dtype: tensors[k].data.dtype };
        Ok(std::array::from_fn(view))
    }

    /// The same under another layout, which must be derived from this one's (L2).
    #[inline]
    pub(crate) fn as_view_with<'a>(&'a self, layout: &'a Layout) -> Result<View<'a>> {
        Ok(View { layout, ..self.as_view()? })
    }

    /// Whether the values are yet to be computed.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.data.storage.pending().is_some()
    }

    /// Tells that the values will be read, now or later.
    #[inline]
    pub(crate) fn mark_needed(&self) {
        if let Some(deferred) = self.data.storage.pending() {
            deferred.mark_needed();
        }
    }

    /// Computes what was deferred of these tensors, together.
    pub(crate) fn materialize<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let pending: Vec<&Storage> = tensors.into_iter().filter(|t| t.is_pending()).map(Tensor::storage).collect();
        if pending.is_empty() { Ok(()) } else { deferred::materialize(&pending) }
    }

    /// What kernels write. The tensor's bytes are its own afterwards: shared ones are copied first.
    pub(crate) fn as_view_mut(&mut self, op: &'static str) -> Result<ViewMut<'_>> {
        self.data.storage.materialize()?;
        let writable = |data: &mut Data| {
            data.storage.get_mut().is_some() && (data.layout.is_contiguous() || data.layout.is_non_overlapping())
        };
        if !self.data.get_mut().is_some_and(writable) {
            self.own_copy(op)?;
        }
        self.own_view_mut(op)
    }

    /// What kernels write, of a tensor whose bytes are its own.
    #[inline(always)]
    fn own_view_mut(&mut self, op: &'static str) -> Result<ViewMut<'_>> {
        let data = self.data.get_mut().ok_or_else(|| err!(Backend, op, "shared memory cannot be written to"))?;
        ViewMut::new(op, &mut data.storage, &data.layout, data.dtype)
    }

    /// Whether this is the only handle to these values and their bytes.
    pub(crate) fn is_sole(&self) -> bool {
        self.data.is_sole() && self.data.storage.is_unique()
    }

    /// How many handles there are to these values, and how many to the bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn handles(&self) -> (usize, usize) {
        (self.data.handles(), self.data.storage.handles())
    }

    /// Puts a contiguous copy of its own in the place of shared or strided bytes.
    pub(crate) fn own_copy(&mut self, op: &'static str) -> Result<()> {
        self.data = self.detach().copied(op)?.data;
        Ok(())
    }
}
