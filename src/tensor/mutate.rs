//! Changing a tensor in place: in its own buffer where it is the only owner, in a copy where it is not.
//!
//! A tensor is a value: what is done to one handle is never seen through another. So a change of a view, such as
//! `x.slice(0, 0..1)?.fill_(0)`, could only reach a copy that nobody sees, and is an error; [`Tensor::set`] changes a part
//! of a tensor.

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
    /// Adds `rhs` to this tensor, in place. The sum is computed in the dtype of `self + rhs` and cast to this tensor's. Where a gradient is required this is `x = x + rhs`, recorded like any other
    /// operation.
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
    /// If `rhs` does not broadcast to this tensor's shape, is of a higher kind (a float beside integers, a complex number beside
    /// floats), this is a leaf that requires a gradient
    /// (change it under [`no_grad`](crate::autograd::no_grad)), or a view that shares its memory with another tensor.
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
    /// As [`add_`](Self::add_); also for integers, whose quotients are floats.
    #[track_caller]
    pub fn div_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        named("div_", self.update("div_", &DIV, &rhs.into()))
    }

    /// Puts one number everywhere, in place. The result no longer depends on what was there.
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

    /// Puts zero everywhere, in place.
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

    /// Takes over the values of `source`, broadcast to this tensor's shape, cast to its dtype and brought to its device, in
    /// place. Where `source` requires a gradient, so does the result.
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

    /// Puts `value`, a tensor or a number, into a part of this tensor, in place; it is broadcast to the part's shape and cast
    /// to this tensor's dtype; dimensions of size 1 in front of the value are left out. The part is named as
    /// [`index`](Self::index) names it. Where a gradient is required the change
    /// is recorded like any other operation. Of elements that index tensors name more than once the last value stays.
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
    /// If the index does not fit, the value does not broadcast or is a number that the dtype does not have, this is a leaf that requires a gradient, outside
    /// [`no_grad`](crate::autograd::no_grad), or a view that shares its memory with another tensor.
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
                    "a tensor of shape {:?} cannot be changed to shape {:?}",
                    self.shape(),
                    changed.shape()
                );
            }
            *self = changed;
            return Ok(());
        }
        let layout = rhs.layout().expand(op, &self.layout().shape().into())?;
        // The right-hand side may share the buffer; keeping it makes the buffer shared, so that it is copied below.
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

    /// Adds a cotangent; neither side is needed afterwards, so whichever buffer is free is written to.
    pub(crate) fn accumulate(&mut self, mut other: Tensor) -> Result<()> {
        if is_grad_enabled() && (self.requires_grad() || other.requires_grad()) {
            *self = ADD.call(&[self, &other], &[])?;
            return Ok(());
        }
        // The sum has another value than what either graph describes.
        self.node = None;
        if self.dtype().is_complex() || self.is_batched() || other.is_batched() {
            *self = ADD.call(&[self, &other.detach()], &[])?;
            return Ok(());
        }
        // What a network hands on with the channels last goes through an activation next, in the same chain.
        let activations = self.keeps_channels_last() && other.keeps_channels_last();
        if activations || self.is_pending() || other.is_pending() {
            // Part of the chain that is under way, instead of passes of their own.
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

    /// Refuses changes that would go astray: of a leaf under a graph, and of a view.
    pub(super) fn check_change(&self, op: &'static str) -> Result<()> {
        if is_grad_enabled() && self.node.as_ref().is_some_and(|node| node.kind == NodeKind::Leaf) {
            bail!(Graph, op, "a leaf that requires a gradient cannot be changed in place: do it under no_grad");
        }
        if self.is_shared_view() {
            bail!(
                Value,
                op,
                "this tensor of shape {:?} is a view of another one, which would not see the change: change a part of that one with \
                 set(index, value), or take a deep_clone() first",
                self.shape()
            );
        }
        Ok(())
    }

    /// After its values were replaced a result no longer depends on its inputs; a leaf stays a leaf, with the new values.
    pub(crate) fn forget_history(&mut self) {
        if self.is_leaf() {
            self.renew_leaf();
        } else {
            self.node = None;
        }
    }
}
