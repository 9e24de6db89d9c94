//! In-place changes: they write to the tensor's own buffer if it is the only owner, and to a copy otherwise.
//!
//! A change through one handle is never visible through another. So a change of a view, such as
//! `x.slice(0, 0..1)?.fill_(0)`, would only change a temporary copy, and is an error. [`Tensor::set`] changes a part of a
//! tensor.

use super::{Index, Operand, Tensor};
use crate::autograd::is_grad_enabled;
use crate::autograd::node::NodeKind;
use crate::backend;
use crate::error::{bail, named};
use crate::ops::elementwise::binary::{ADD, DIV, MUL, SUB};
use crate::ops::elementwise::call::Elementwise;
use crate::ops::elementwise::map::map_alike;
use crate::{Result, Scalar, interrupt};

/// # Changing in place
impl Tensor {
    /// Adds `rhs` to this tensor, in place. The sum is computed in the dtype of `self + rhs` and cast to this tensor's. If a
    /// gradient is required, this is recorded as `x = x + rhs`.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = tensor!([1.0, 2.0])?;
    /// let before = x.clone();
    /// x.add_(10)?;
    /// assert_eq!(x.to_vec::<f32>()?, [11.0, 12.0]);
    /// assert_eq!(before.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `rhs` does not broadcast to this tensor's shape, or is of a higher category (a float for integers, a complex number for
    /// floats). Also if this is a leaf that requires a gradient (change it under [`no_grad`](crate::autograd::no_grad)), or a view
    /// that shares its memory with another tensor.
    #[doc(alias = "__iadd__")]
    #[track_caller]
    pub fn add_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        named("add_", self.update("add_", &ADD, &rhs.into()))
    }

    /// Subtracts `rhs` from this tensor, in place, as [`add_`](Self::add_) adds.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = tensor!([1.0, 2.0])?;
    /// x.sub_(&tensor!([1.0, 0.5])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 1.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`add_`](Self::add_).
    #[track_caller]
    pub fn sub_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        named("sub_", self.update("sub_", &SUB, &rhs.into()))
    }

    /// Multiplies this tensor by `rhs`, in place, as [`add_`](Self::add_) adds.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = tensor!([1, 2])?;
    /// x.mul_(3)?;
    /// assert_eq!(x.to_vec::<i64>()?, [3, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`add_`](Self::add_).
    #[track_caller]
    pub fn mul_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        named("mul_", self.update("mul_", &MUL, &rhs.into()))
    }

    /// Divides this tensor by `rhs`, in place, as [`add_`](Self::add_) adds.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = tensor!([1.0, 2.0])?;
    /// x.div_(2.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`add_`](Self::add_); also for integer tensors, since quotients are floats.
    #[track_caller]
    pub fn div_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        named("div_", self.update("div_", &DIV, &rhs.into()))
    }

    /// Fills this tensor with a number, in place. The result does not depend on the old values.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let mut x = Tensor::zeros([2])?;
    /// x.fill_(7.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [7.0, 7.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is a leaf that requires a gradient, outside [`no_grad`](crate::autograd::no_grad), or a view that shares its
    /// memory with another tensor.
    #[track_caller]
    pub fn fill_(&mut self, value: impl Into<Scalar>) -> Result<()> {
        let value = value.into();
        let mut fill = || {
            self.check_change("fill_")?;
            if self.dtype().is_complex() {
                return self.take_values("fill_", &Tensor::scalar(value, self.dtype(), self.device())?);
            }
            value.check_put("fill_", self.dtype())?;
            let to = &mut self.as_view_mut("fill_")?;
            interrupt::whole(|| backend::fill("fill_", to, value))?;
            self.forget_history();
            Ok(())
        };
        named("fill_", fill())
    }

    /// Fills this tensor with zeros, in place.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let mut x = Tensor::ones([2])?;
    /// x.zero_()?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`fill_`](Self::fill_).
    #[track_caller]
    pub fn zero_(&mut self) -> Result<()> {
        named("zero_", self.fill_(0))
    }

    /// Copies the values of `source`, broadcast to this tensor's shape, cast to its dtype and moved to its device, in place. If
    /// `source` requires a gradient, so does the result.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = Tensor::zeros([2, 2])?;
    /// x.copy_(&tensor!([1, 2])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `source` does not broadcast to this shape, this is a leaf that requires a gradient, outside
    /// [`no_grad`](crate::autograd::no_grad), or a view that shares its memory with another tensor.
    #[track_caller]
    pub fn copy_(&mut self, source: &Tensor) -> Result<()> {
        named("copy_", self.take_values("copy_", source))
    }

    /// Writes `value`, a tensor or a number, to the part of this tensor that [`index`](Self::index) selects, in place. The value is
    /// broadcast to the part's shape and cast to this tensor's dtype; its leading dimensions of size 1 are dropped. If a gradient
    /// is required, the change is recorded. Where index tensors contain an element more than once, the last value stays.
    ///
    /// ```
    /// # use cotangent::{Tensor, s, tensor};
    /// let mut x = Tensor::zeros([3, 3])?;
    /// x.set(s![0, ..], 1.0)?;
    /// x.set(s![1.., -1], &tensor!([5.0, 6.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0, 1.0, 0.0, 0.0, 5.0, 0.0, 0.0, 6.0]);
    /// x.set(&x.gt(4.0)?, -1.0)?;
    /// assert_eq!(x.index(s![1.., -1])?.to_vec::<f32>()?, [-1.0, -1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the index does not match the shape, the value does not broadcast, or is a number out of range for the dtype. Also if this
    /// is a leaf that requires a gradient, outside [`no_grad`](crate::autograd::no_grad), or a view that shares its memory with
    /// another tensor.
    #[doc(alias = "__setitem__")]
    #[doc(alias = "index_put")]
    #[doc(alias = "index_put_")]
    #[doc(alias = "index_fill_")]
    #[track_caller]
    pub fn set<'a>(&mut self, index: impl Into<Index>, value: impl Into<Operand<'a>>) -> Result<()> {
        let (index, value) = (index.into(), value.into());
        let mut set = || {
            self.check_change("set")?;
            let value = value.put("set", self.dtype(), self.device())?;
            let ones = value.shape().iter().take_while(|&&size| size == 1).count();
            if ones == 0 {
                return self.assign(&index, &value);
            }
            let value = value.reshape(&value.shape()[ones..])?;
            self.assign(&index, &value)
        };
        named("set", set())
    }

    fn take_values(&mut self, op: &'static str, source: &Tensor) -> Result<()> {
        self.check_change(op)?;
        let shape = self.layout().shape().clone();
        if is_grad_enabled() && source.requires_grad() {
            *self = source.to_dtype(self.dtype())?.to_device(self.device())?.expand(&shape)?.into_value();
            return Ok(());
        }
        source.layout().expand(op, &(&shape).into())?;
        let source = source.detach().to_device(self.device())?;
        if self.dtype().is_complex() || source.dtype().is_complex() {
            self.data = source.to_dtype(self.dtype())?.expand(&shape)?.deep_clone()?.into_value().data;
            self.forget_history();
            return Ok(());
        }
        let source = source.with_layout(source.layout().broadcast_to(&shape));
        let (from, to) = (source.as_view()?, &mut self.as_view_mut(op)?);
        interrupt::whole(|| backend::copy(op, from, to))?;
        self.forget_history();
        Ok(())
    }

    fn update(&mut self, op: &'static str, arithmetic: &'static Elementwise, rhs: &Operand<'_>) -> Result<()> {
        self.check_change(op)?;
        let rhs = rhs.resolve(self.dtype(), self.device())?;
        let (_, dtype) = arithmetic.dtypes(&[self, &rhs])?;
        if dtype != self.dtype() {
            self.check_holds(op, dtype)?;
            return self.become_tensor(op, arithmetic.call(&[self, &rhs], &[])?);
        }
        if is_grad_enabled() && (self.requires_grad() || rhs.requires_grad()) {
            let changed = arithmetic.call(&[self, &rhs], &[])?;
            if changed.shape() != self.shape() {
                bail!(
                    Shape,
                    op,
                    "the result must have the tensor's shape {:?}, got {:?}",
                    self.shape(),
                    changed.shape()
                );
            }
            *self = changed;
            return Ok(());
        }
        let layout = rhs.layout().expand(op, &self.layout().shape().into())?;
        // The right-hand side may share the buffer. This handle keeps the buffer shared, so that it is copied below.
        let rhs = rhs.detach().with_layout(layout);
        if dtype.is_complex() {
            self.data = arithmetic.call(&[&self.detach(), &rhs], &[])?.into_value().data;
            self.renew_leaf();
            return Ok(());
        }
        let (to, rhs) = (&mut self.as_view_mut(op)?, rhs.as_view()?);
        interrupt::whole(|| backend::zip_in_place(op, arithmetic.formula(), to, rhs))?;
        self.renew_leaf();
        Ok(())
    }

    /// Adds a cotangent. Neither operand is needed afterwards, so the sum is written to whichever buffer is not shared.
    pub(crate) fn accumulate(&mut self, mut other: Tensor) -> Result<()> {
        if is_grad_enabled() && (self.requires_grad() || other.requires_grad()) {
            *self = ADD.call(&[self, &other], &[])?;
            return Ok(());
        }
        // The graph of one summand is not that of the sum.
        self.node = None;
        if self.dtype().is_complex() || self.is_batched() || other.is_batched() {
            *self = ADD.call(&[self, &other.detach()], &[])?;
            return Ok(());
        }
        // A channels-last cotangent usually goes through the rule of an activation next, in the same chain.
        let activations = self.keeps_channels_last() && other.keeps_channels_last();
        if activations || self.is_pending() || other.is_pending() {
            // Part of the pending chain, instead of a separate pass.
            let dtype = self.dtype();
            *self = map_alike("backward", (ADD.formula(), &[]), dtype, &[self, &other], dtype)?;
            return Ok(());
        }
        if !self.is_sole() && other.is_sole() {
            std::mem::swap(self, &mut other);
            self.node = None;
        }
        let (to, other) = (&mut self.as_view_mut("backward")?, other.as_view()?);
        interrupt::whole(|| backend::zip_in_place("backward", ADD.formula(), to, other))
    }

    /// Refuses in-place changes of a leaf with recording on, and of a view.
    pub(super) fn check_change(&self, op: &'static str) -> Result<()> {
        if is_grad_enabled() && self.node.as_ref().is_some_and(|node| node.kind == NodeKind::Leaf) {
            bail!(Graph, op, "a leaf that requires a gradient cannot be changed in place: use no_grad");
        }
        if self.is_shared_view() {
            bail!(
                Value,
                op,
                "this tensor of shape {:?} is a view, and the tensor it is a view of would not change: call set(index, value) on \
                 that one, or deep_clone() first",
                self.shape()
            );
        }
        Ok(())
    }

    /// After its values were replaced, a result does not depend on its inputs any more. A leaf stays a leaf, with the new values.
    pub(crate) fn forget_history(&mut self) {
        if self.is_leaf() {
            self.renew_leaf();
        } else {
            self.node = None;
        }
    }
}
