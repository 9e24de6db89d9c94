//! The views that kernels read and write: reading may share memory, writing requires the only owner.

use super::{Data, Tensor};
use crate::Result;
use crate::backend::{View, ViewMut, deferred};
use crate::error::{bail, err};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::tensor::batch::BatchDims;
use std::borrow::Cow;

impl Tensor {
    /// A view for kernels to read. Deferred values are computed first, which fails if memory runs out. Kernels do not handle
    /// complex numbers: an operation that has not split them into parts is refused here.
    #[inline]
    pub(crate) fn as_view(&self) -> Result<View<'_>> {
        self.check_real()?;
        self.as_raw_view()
    }

    /// As [`as_view`](Self::as_view), also for complex dtypes: for code that only copies elements or handles complex numbers.
    #[inline]
    pub(crate) fn as_raw_view(&self) -> Result<View<'_>> {
        self.check_unbatched()?;
        self.data.storage.materialize()?;
        Ok(self.materialized_view())
    }

    #[inline]
    fn check_real(&self) -> Result<()> {
        if self.data.dtype.is_complex() {
            bail!(DType, "as_view", "not defined for {}", self.data.dtype);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_unbatched(&self) -> Result<()> {
        match &self.data.batch {
            None => Ok(()),
            Some(dims) => Err(self.values_of_a_batch(dims)),
        }
    }

    #[cold]
    fn values_of_a_batch(&self, dims: &BatchDims) -> crate::Error {
        let sizes: Vec<usize> = dims.iter().map(|dim| dim.size).collect();
        err!(
            Batched,
            "as_view",
            "the values of a tensor of shape {:?} cannot be read inside vmap: it holds those of {sizes:?} examples",
            self.shape()
        )
    }

    /// A view for kernels to read, of a tensor whose values are computed.
    #[inline(always)]
    pub(crate) fn materialized_view(&self) -> View<'_> {
        debug_assert!(!self.is_pending() && !self.is_batched());
        View { storage: &self.data.storage, layout: &self.data.layout, dtype: self.data.dtype }
    }

    /// Views of several tensors, each under a layout derived from the tensor's own (L2).
    pub(crate) fn views<'a, const N: usize>(
        tensors: [&'a Tensor; N],
        layouts: [&'a Layout; N],
    ) -> Result<[View<'a>; N]> {
        for tensor in tensors {
            tensor.check_real()?;
            tensor.check_unbatched()?;
            tensor.data.storage.materialize()?;
        }
        let view =
            |k: usize| View { storage: &tensors[k].data.storage, layout: layouts[k], dtype: tensors[k].data.dtype };
        Ok(std::array::from_fn(view))
    }

    /// As [`as_view`](Self::as_view), under another layout, which must be derived from this one's (L2).
    #[inline]
    pub(crate) fn as_view_with<'a>(&'a self, layout: &'a Layout) -> Result<View<'a>> {
        Ok(View { layout, ..self.as_view()? })
    }

    /// Whether the values are deferred and not yet computed.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.data.storage.pending().is_some()
    }

    /// Marks deferred values as needed later, so that they are written when they are first computed.
    #[inline]
    pub(crate) fn mark_needed(&self) {
        if let Some(deferred) = self.data.storage.pending() {
            deferred.mark_needed();
        }
    }

    /// Computes the deferred values of these tensors, together.
    pub(crate) fn materialize<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let pending: Vec<&Storage> = tensors.into_iter().filter(|t| t.is_pending()).map(Tensor::storage).collect();
        if pending.is_empty() { Ok(()) } else { deferred::materialize(&pending) }
    }

    /// A view for kernels to write. Shared memory is copied first, so the tensor is its only owner afterwards.
    pub(crate) fn as_view_mut(&mut self, op: &'static str) -> Result<ViewMut<'_>> {
        self.check_real()?;
        self.as_raw_view_mut(op)
    }

    /// As [`as_view_mut`](Self::as_view_mut), also for complex dtypes: for code that only copies elements or handles complex numbers.
    pub(crate) fn as_raw_view_mut(&mut self, op: &'static str) -> Result<ViewMut<'_>> {
        self.check_unbatched()?;
        self.data.storage.materialize()?;
        let writable = |data: &mut Data| {
            data.storage.get_mut().is_some() && (data.layout.is_contiguous() || data.layout.is_non_overlapping())
        };
        if !self.data.get_mut().is_some_and(writable) {
            self.own_copy(op)?;
        }
        self.own_view_mut(op)
    }

    /// A view for kernels to write, of a tensor that is the only owner of its memory.
    #[inline(always)]
    pub(super) fn own_view_mut(&mut self, op: &'static str) -> Result<ViewMut<'_>> {
        let data = self.data.get_mut().ok_or_else(|| err!(Backend, op, "cannot write to shared memory"))?;
        ViewMut::new(op, &mut data.storage, &data.layout, data.dtype)
    }

    /// This tensor, or a copy outside the graph if its memory is foreign, such as NumPy's, and may change at any time. For values
    /// that are read more than once: indices that are checked before they are used, masks that are counted before they are
    /// applied, and elements that are compared before they are moved.
    pub(crate) fn private(&self) -> Result<Cow<'_, Tensor>> {
        if !self.data.storage.is_foreign() {
            return Ok(Cow::Borrowed(self));
        }
        self.detach().private_copy().map(Cow::Owned)
    }

    /// A copy of the memory. Broadcast elements are copied once.
    #[cold]
    fn private_copy(&self) -> Result<Tensor> {
        if self.is_batched() {
            return Tensor::over_batch(&[self], |_, all| all[0].private_copy());
        }
        let mut once = self.clone();
        for (dim, &stride) in self.strides().iter().enumerate() {
            if stride == 0 && self.shape()[dim] > 1 {
                once = once.narrow(dim, 0, 1)?;
            }
        }
        once.copied("private")?.expand(self.layout().shape())
    }

    /// Whether this is the only handle to these values and their storage.
    pub(crate) fn is_sole(&self) -> bool {
        self.data.is_sole() && self.data.storage.is_unique()
    }

    /// The number of handles to these values, and to their storage.
    #[cfg(feature = "cuda")]
    pub(crate) fn handles(&self) -> (usize, usize) {
        (self.data.handles(), self.data.storage.handles())
    }

    /// Replaces shared or strided memory by a contiguous copy.
    pub(crate) fn own_copy(&mut self, op: &'static str) -> Result<()> {
        self.data = self.detach().copied(op)?.data;
        Ok(())
    }
}
