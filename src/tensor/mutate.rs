//! Changing a tensor in place: in its own buffer where it is the only owner, in a copy where it is not.

use super::{Operand, Tensor};
use crate::autograd::is_grad_enabled;
use crate::autograd::node::NodeKind;
use crate::backend;
use crate::error::bail;
use crate::ops::binary::{self, Arithmetic};
use crate::ops::map::map_alike;
use crate::{Result, Scalar};

impl Tensor {
    /// Adds `rhs` to this tensor, in place. Where a gradient is required this is `x = x + rhs`, recorded like any other
    /// operation.
    ///
    /// # Errors
    /// If `rhs` does not broadcast to this tensor's shape, has a higher dtype, or this is a leaf that requires a
    /// gradient (change it under [`no_grad`](crate::autograd::no_grad)).
    pub fn add_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        self.update("add_", Arithmetic::Add, &rhs.into())
    }

    /// Subtracts `rhs` from this tensor, in place, as [`add_`](Self::add_) adds.
    ///
    /// # Errors
    /// As [`add_`](Self::add_).
    pub fn sub_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        self.update("sub_", Arithmetic::Sub, &rhs.into())
    }

    /// Multiplies this tensor by `rhs`, in place, as [`add_`](Self::add_) adds.
    ///
    /// # Errors
    /// As [`add_`](Self::add_).
    pub fn mul_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        self.update("mul_", Arithmetic::Mul, &rhs.into())
    }

    /// Divides this tensor by `rhs`, in place, as [`add_`](Self::add_) adds.
    ///
    /// # Errors
    /// As [`add_`](Self::add_); also for integers, whose quotients are floats.
    pub fn div_<'a>(&mut self, rhs: impl Into<Operand<'a>>) -> Result<()> {
        self.update("div_", Arithmetic::Div, &rhs.into())
    }

    /// Puts one number everywhere, in place. The result no longer depends on what was there.
    ///
    /// # Errors
    /// If this is a leaf that requires a gradient, outside [`no_grad`](crate::autograd::no_grad).
    pub fn fill_(&mut self, value: impl Into<Scalar>) -> Result<()> {
        self.refuse_leaf("fill_")?;
        backend::fill("fill_", &mut self.as_view_mut("fill_")?, value.into())?;
        self.forget_history();
        Ok(())
    }

    /// Puts zero everywhere, in place.
    ///
    /// # Errors
    /// As [`fill_`](Self::fill_).
    pub fn zero_(&mut self) -> Result<()> {
        self.fill_(0)
    }

    /// Takes over the values of `source`, broadcast to this tensor's shape, cast to its dtype and brought to its device, in
    /// place. Where `source` requires a gradient, so does the result.
    ///
    /// # Errors
    /// If `source` does not broadcast to this shape, or this is a leaf that requires a gradient, outside
    /// [`no_grad`](crate::autograd::no_grad).
    pub fn copy_(&mut self, source: &Tensor) -> Result<()> {
        self.refuse_leaf("copy_")?;
        let shape = self.layout().shape().clone();
        if is_grad_enabled() && source.requires_grad() {
            *self = source.to_dtype(self.dtype())?.to_device(self.device())?.expand(&shape)?;
            return Ok(());
        }
        source.layout().expand("copy_", &(&shape).into())?;
        let source = source.detach().to_device(self.device())?;
        let source = source.with_layout(source.layout().broadcast_to(&shape));
        backend::copy("copy_", source.as_view()?, &mut self.as_view_mut("copy_")?)?;
        self.forget_history();
        Ok(())
    }

    fn update(&mut self, op: &'static str, arithmetic: Arithmetic, rhs: &Operand<'_>) -> Result<()> {
        self.refuse_leaf(op)?;
        let rhs = rhs.resolve(self.dtype(), self.device())?;
        let dtype = binary::result_dtype(arithmetic, self.dtype(), rhs.dtype())?;
        if dtype != self.dtype() {
            bail!(DType, op, "the result is {dtype}, which the tensor's {} cannot hold", self.dtype());
        }
        if is_grad_enabled() && (self.requires_grad() || rhs.requires_grad()) {
            let changed = binary::arithmetic(arithmetic, self, &rhs)?;
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
        backend::zip_in_place(op, arithmetic.tile(), &mut self.as_view_mut(op)?, rhs.as_view()?)
    }

    /// Adds a cotangent; neither side is needed afterwards, so whichever buffer is free is written to.
    pub(crate) fn accumulate(&mut self, mut other: Tensor) -> Result<()> {
        if is_grad_enabled() && (self.requires_grad() || other.requires_grad()) {
            *self = binary::arithmetic(Arithmetic::Add, self, &other)?;
            return Ok(());
        }
        // The sum has another value than what either graph describes.
        self.node = None;
        if self.is_pending() || other.is_pending() {
            // Part of the chain that is under way, instead of passes of their own.
            *self = map_alike("accumulate", Arithmetic::Add.tile(), self.dtype(), [self, &other], self.dtype())?;
            return Ok(());
        }
        if !self.is_sole() && other.is_sole() {
            std::mem::swap(self, &mut other);
            self.node = None;
        }
        backend::zip_in_place(
            "accumulate",
            Arithmetic::Add.tile(),
            &mut self.as_view_mut("accumulate")?,
            other.as_view()?,
        )
    }

    fn refuse_leaf(&self, op: &'static str) -> Result<()> {
        if is_grad_enabled() && self.node.as_ref().is_some_and(|node| node.kind == NodeKind::Leaf) {
            bail!(Graph, op, "a leaf that requires a gradient cannot be changed in place: do it under no_grad");
        }
        Ok(())
    }

    /// After its values were replaced a result no longer depends on its inputs; a leaf stays a leaf.
    fn forget_history(&mut self) {
        if !self.is_leaf() {
            self.node = None;
        }
    }
}
