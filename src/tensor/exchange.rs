//! Memory that is shared with other libraries, and what a front in another language needs to give handles an identity.

use super::Tensor;
use crate::autograd::is_grad_enabled;
use crate::backend;
use crate::error::{bail, named};
use crate::layout::{Layout, Shape, check_shape};
use crate::storage::Storage;
use crate::{DType, Device, Result};
use std::any::Any;
use std::sync::Arc;

/// # Memory shared with other libraries
impl Tensor {
    /// The address of the first element, on the device that the tensor is on. What was deferred is computed first. Nothing may
    /// be written there: clones and views, and what is saved for a backward pass, share the bytes. They stay as long as a handle
    /// to them lives.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([1.0, 2.0])?;
    /// assert_eq!(x.select(0, 1)?.data_ptr()?.addr(), x.data_ptr()?.addr() + 4);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out, or inside of a `vmap`.
    #[track_caller]
    pub fn data_ptr(&self) -> Result<*const u8> {
        let first = || {
            let view = self.as_raw_view()?;
            Ok(view.storage.as_ptr().wrapping_add(self.offset() * self.dtype().size()))
        };
        named("data_ptr", first())
    }

    /// A tensor over memory of someone else, which is read and never written: whoever changes the tensor changes a copy. The
    /// strides are counted in elements.
    ///
    /// ```
    /// # use cotangent::{DType, Device, Tensor};
    /// use std::sync::Arc;
    /// let numbers = Arc::new(vec![1_i32, 2, 3, 4]);
    /// let start = numbers.as_ptr().cast();
    /// // SAFETY: the vector is never changed, and lives as long as the tensor.
    /// let x = unsafe { Tensor::from_foreign(numbers, start, [2, 2], &[1, 2], DType::I32, Device::Cpu)? };
    /// assert_eq!(x.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is not one stride for each size, the elements are not aligned, or they span more than can be addressed.
    ///
    /// # Safety
    /// As long as `owner` lives, every element that shape and strides reach from `start` must be valid for reads on the
    /// device and initialised, and nobody may change it while it is read.
    #[track_caller]
    pub unsafe fn from_foreign(
        owner: Arc<dyn Any + Send + Sync>,
        start: *const u8,
        shape: impl Into<Shape>,
        strides: &[isize],
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        const OP: &str = "from_foreign";
        let shape = shape.into();
        let make = || {
            if strides.len() != shape.len() {
                bail!(Shape, OP, "{} strides for the shape {shape:?}", strides.len());
            }
            let (numel, size) = (check_shape(OP, &shape)?, dtype.size());
            // The parts of a complex number lie side by side.
            let alignment = dtype.to_real().size();
            if numel == 0 {
                return Tensor::empty(OP, shape.clone(), dtype, device);
            }
            if start.is_null() || !start.addr().is_multiple_of(alignment) {
                bail!(Value, OP, "elements of {dtype} cannot be at the address {:#x}", start.addr());
            }
            let too_far =
                || crate::error::err!(Shape, OP, "strides {strides:?} of {shape:?} span more than can be addressed");
            let (mut lowest, mut highest) = (0_isize, 0_isize);
            for (&count, &stride) in shape.iter().zip(strides) {
                let reach = stride.checked_mul(count as isize - 1).ok_or_else(too_far)?;
                let end = if reach < 0 { &mut lowest } else { &mut highest };
                *end = end.checked_add(reach).ok_or_else(too_far)?;
            }
            let elements = highest.checked_sub(lowest).and_then(|span| span.checked_add(1)).ok_or_else(too_far)?;
            let bytes =
                (elements as usize).checked_mul(size).filter(|&n| n <= isize::MAX as usize).ok_or_else(too_far)?;
            let first = start.wrapping_sub(lowest.unsigned_abs() * size);
            // SAFETY: the caller's promise: all bytes between the lowest and the highest element belong to one allocation
            // of the owner, and those that the layout reaches are initialised. No other is read.
            let storage = unsafe { Storage::foreign(owner, first, bytes, device) };
            let all = Layout::contiguous([elements as usize].into());
            let layout = all.as_strided(OP, shape.clone(), strides, lowest.unsigned_abs(), elements as usize)?;
            Ok(Tensor::from_parts(storage, layout, dtype))
        };
        named(OP, make())
    }

    /// The same values, not as a view of another tensor: a change is for this one alone, and goes to a copy of what is shared.
    /// The in-place methods of a view are errors, since in Rust nobody would see the change.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 2])?;
    /// let mut row = x.select(0, 0)?.into_value();
    /// row.add_(1)?;
    /// assert_eq!((row.sum(..)?.item::<f32>()?, x.sum(..)?.item::<f32>()?), (2.0, 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[must_use]
    pub fn into_value(self) -> Tensor {
        if !self.data.view || self.is_batched() {
            return self;
        }
        let data = &*self.data;
        Tensor::from_parts(data.storage.clone(), data.layout.clone(), data.dtype).with_node(self.node)
    }

    /// Takes over the result of a function of this tensor, which has its shape, cast to its dtype: the in-place form of any
    /// operation, under this name in errors. Where a gradient is required the function's operations are part of the graph.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let mut x = tensor!([1.0, 4.0])?;
    /// x.change("sqrt_", |x| x.sqrt())?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `f`'s; if its result has another shape or a dtype of a higher kind, this is a leaf that requires a gradient, outside
    /// [`no_grad`](crate::autograd::no_grad), or a view that shares its memory with another tensor.
    #[track_caller]
    pub fn change(&mut self, op: &'static str, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        named(op, self.become_result(op, f))
    }

    /// Puts `value` into the part of this tensor that `view` shows of it, in place; it is broadcast to the part's shape and
    /// cast to this tensor's dtype. Where a gradient is required the change is recorded like any other operation. For fronts
    /// whose views are to be seen through: [`set`](Self::set) names parts by an index.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let mut x = Tensor::zeros([2, 2])?;
    /// x.set_view(|x| x.t()?.diagonal(0, 0, 1), &tensor!([1.0, 2.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If what `view` gives is no view of its argument, is of another dtype, or shows an element more than once; otherwise as
    /// [`set`](Self::set). `view` may only choose and arrange elements: it is also called with their positions.
    #[track_caller]
    pub fn set_view(&mut self, view: impl Fn(&Tensor) -> Result<Tensor>, value: &Tensor) -> Result<()> {
        named("set_view", self.assign_view(view, value))
    }

    #[track_caller]
    fn assign_view(&mut self, view: impl Fn(&Tensor) -> Result<Tensor>, value: &Tensor) -> Result<()> {
        const OP: &str = "set_view";
        self.check_change(OP)?;
        let shape = {
            let part = view(self)?;
            if part.dtype() != self.dtype() || !part.shares_memory(self) {
                let (from, to) = (self.dtype(), part.dtype());
                bail!(Value, OP, "the part of {to} is no view of the tensor of {from}: nobody would see the change");
            }
            if !part.layout().is_non_overlapping() {
                bail!(
                    Value,
                    OP,
                    "the view of shape {:?} shows elements more than once: which value should they get?",
                    part.shape()
                );
            }
            part.layout().shape().clone()
        };
        let value = value.to_dtype(self.dtype())?.to_device(self.device())?.expand(&shape)?;
        let recorded = is_grad_enabled() && (self.requires_grad() || value.requires_grad());
        if recorded || self.dtype().is_complex() || self.is_batched() || value.is_batched() {
            let positions = Tensor::arange_with(0, self.numel() as i64, self.device())?.reshape(self.shape())?;
            let changed = self.put(&view(&positions)?, &value.contiguous()?)?;
            return self.become_tensor(OP, changed);
        }
        let value = value.detach();
        // The view is taken of memory that is the tensor's own, which may lie otherwise than what was shared.
        self.as_view_mut(OP)?;
        let part = view(&self.detach())?.layout().clone();
        backend::copy(OP, value.as_view()?, &mut self.as_view_mut(OP)?.part(&part))?;
        self.renew_leaf();
        Ok(())
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use crate::{DType, Device, Result, Tensor, tensor};
    use std::sync::Arc;

    #[test]
    fn a_change_of_foreign_memory_goes_to_a_copy() -> Result<()> {
        let numbers = Arc::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        // SAFETY: nobody changes the vector; from its last element back by steps of one all six are inside.
        let mut x = unsafe {
            Tensor::from_foreign(
                numbers.clone(),
                numbers[5..].as_ptr().cast(),
                [2, 3],
                &[-3, -1],
                DType::F32,
                Device::Cpu,
            )?
        };
        assert_eq!(x.to_vec::<f32>()?, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        x.add_(1.0)?;
        assert_eq!((x.at(&[0, 0])?.to_f64(), numbers[5]), (7.0, 6.0));
        Ok(())
    }

    #[test]
    fn misaligned_and_endless_memory_is_refused() {
        let bytes = Arc::new(vec![0_u64; 4]);
        let start: *const u8 = bytes.as_ptr().cast();
        let refused = |start: *const u8, shape: [usize; 2], strides: &[isize]| {
            // SAFETY: it is refused before anything is read.
            unsafe { Tensor::from_foreign(bytes.clone(), start, shape, strides, DType::I32, Device::Cpu) }.is_err()
        };
        assert!(refused(start.wrapping_add(1), [1, 1], &[1, 1]));
        assert!(refused(start, [2, 2], &[1]));
        assert!(refused(start, [2, 1 << 40], &[1, 1 << 40]));
        assert!(refused(std::ptr::null(), [1, 1], &[1, 1]));
    }

    #[test]
    fn a_view_is_written_through_with_and_without_a_graph() -> Result<()> {
        let mut x = Tensor::arange(0, 12)?.to_dtype(DType::F32)?.reshape([3, 4])?.into_value();
        let saved = x.clone();
        let part = |x: &Tensor| x.transpose(0, 1)?.flip(0)?.slice(0, ..2);
        x.set_view(part, &tensor!(-1.0)?)?;
        assert_eq!(x.sum(1)?.to_vec::<f32>()?, [-1.0, 7.0, 15.0]);
        assert_eq!(saved.sum(..)?.item::<f32>()?, 66.0);
        let w = tensor!(2.0)?.requires_grad_(true)?;
        x.set_view(part, &w)?;
        x.square()?.sum(..)?.backward()?;
        assert_eq!(w.grad().map(|g| g.item::<f32>()).transpose()?, Some(24.0));
        assert!(x.set_view(|x| x.exp(), &w).is_err() && x.set_view(|x| x.expand([2, 3, 4]), &w).is_err());
        Ok(())
    }
}
