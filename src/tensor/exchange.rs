//! Memory shared with other libraries, and what a front end in another language needs for views and in-place changes.

use super::Tensor;
use crate::autograd::is_grad_enabled;
use crate::backend;
use crate::error::{bail, named};
use crate::layout::{Layout, Shape, Strides, check_shape};
use crate::storage::Storage;
use crate::{DType, Device, Result, interrupt};
use std::any::Any;
use std::sync::Arc;

/// # Memory shared with other libraries
impl Tensor {
    /// The address of the first element, on the tensor's device. Deferred values are computed first. The memory must not be
    /// written to: clones, views and saved tensors share it. It is valid as long as a handle to it lives.
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

    /// A tensor over foreign memory, which is read and never written: a change of the tensor works on a copy. Strides are counted
    /// in elements.
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
    /// If `strides` does not match `shape`, the elements are not aligned, or they span more than can be addressed.
    ///
    /// # Safety
    /// As long as `owner` lives, every element that shape and strides reach from `start` must be valid for reads on the device
    /// and initialised, and must not be changed while it is read.
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
                bail!(Shape, OP, "expected {} strides for shape {shape:?}, got {strides:?}", shape.len());
            }
            let (numel, size) = (check_shape(OP, &shape)?, dtype.size());
            // A complex number is aligned like its parts.
            let alignment = dtype.to_real().size();
            if numel == 0 {
                return Tensor::empty(OP, shape.clone(), dtype, device);
            }
            if start.is_null() || !start.addr().is_multiple_of(alignment) {
                bail!(Value, OP, "start must be aligned for {dtype} and not null, got address {:#x}", start.addr());
            }
            let too_far = || {
                crate::error::err!(
                    Shape,
                    OP,
                    "shape {shape:?} with strides {strides:?} spans more than can be addressed"
                )
            };
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

    /// The same bytes as elements of another dtype, as a view outside of the graph. The size of the last dimension is scaled by
    /// the ratio of the element sizes.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// let x = tensor!([1.0, -2.0])?;
    /// assert_eq!(x.reinterpret(DType::I32)?.to_vec::<i32>()?, [0x3f80_0000, 0xc000_0000_u32.cast_signed()]);
    /// assert_eq!(x.reinterpret(DType::U8)?.shape(), [8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If exactly one of the two dtypes is bool, since not every byte is a bool. If the element sizes differ, also if the last
    /// dimension is not contiguous, or cannot be divided into elements of the other dtype. Also inside of a `vmap`.
    #[track_caller]
    pub fn reinterpret(&self, dtype: DType) -> Result<Tensor> {
        named("reinterpret", self.with_bytes_as(dtype))
    }

    fn with_bytes_as(&self, dtype: DType) -> Result<Tensor> {
        const OP: &str = "reinterpret";
        if (self.dtype() == DType::Bool) != (dtype == DType::Bool) {
            bail!(DType, OP, "cannot reinterpret {} as {dtype}: not every byte is a bool", self.dtype());
        }
        let start = self.data_ptr()?;
        let (old, new) = (self.dtype().size(), dtype.size());
        let (mut shape, mut strides) = (self.layout().shape().clone(), Strides::from(self.strides()));
        let mut offset = self.offset();
        if old != new {
            let lies_well = match (shape.split_last(), strides.split_last()) {
                (Some((&size, _)), Some((&step, outer))) => {
                    let whole = |n: usize| n.saturating_mul(old).is_multiple_of(new);
                    (step == 1 || size <= 1)
                        && whole(size)
                        && whole(offset)
                        && outer.iter().zip(&shape[..]).all(|(step, &size)| size <= 1 || whole(step.unsigned_abs()))
                }
                _ => false,
            };
            if !lies_well {
                bail!(
                    Shape,
                    OP,
                    "shape {:?} with strides {:?} and offset {offset}, in elements of {old} bytes, cannot be divided into elements of {new} bytes",
                    self.shape(),
                    self.strides()
                );
            }
            let last = shape.len() - 1;
            for stride in &mut strides[..last] {
                *stride = stride.saturating_mul(old as isize) / new as isize;
            }
            (strides[last], offset) = (1, offset * old / new);
            shape = shape.with(last, shape[last] * old / new);
        }
        if self.device() == Device::Cpu && self.numel() > 0 && !start.addr().is_multiple_of(dtype.to_real().size()) {
            bail!(Value, OP, "the first element must be aligned for {dtype}, got address {:#x}", start.addr());
        }
        let layout = self.layout().as_strided(OP, shape, &strides, offset, self.storage().bytes() / new)?;
        Ok(self.reinterpreted(layout, dtype))
    }

    /// The same values, but not as a view: an in-place change affects this tensor only, and works on a copy of shared memory. On
    /// a view in-place methods are errors, since the change would not reach the viewed tensor.
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

    /// Replaces this tensor by `f` of it, which must have its shape and is cast to its dtype: the in-place form of any operation.
    /// Errors name the operation `op`. If a gradient is required, the operations of `f` are part of the graph.
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
    /// Those of `f`; also if its result has another shape or a dtype of a higher category, this is a leaf that requires a
    /// gradient, outside [`no_grad`](crate::autograd::no_grad), or a view that shares its memory with another tensor.
    #[track_caller]
    pub fn change(&mut self, op: &'static str, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        named(op, self.become_result(op, f))
    }

    /// Writes `value` to the part of this tensor that `view` returns, in place. It is broadcast to the part's shape and cast to
    /// its dtype. If a gradient is required, the change is recorded. For front ends whose views write through; otherwise use
    /// [`set`](Self::set), which takes an index.
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
    /// If `view` does not return a view of its argument, or its view contains an element more than once; otherwise as
    /// [`set`](Self::set). `view` may only select and rearrange elements, or the parts of complex ones: it is also called with
    /// other values.
    #[track_caller]
    pub fn set_view(&mut self, view: impl Fn(&Tensor) -> Result<Tensor>, value: &Tensor) -> Result<()> {
        named("set_view", self.assign_view(&view, value))
    }

    #[track_caller]
    fn assign_view(&mut self, view: &dyn Fn(&Tensor) -> Result<Tensor>, value: &Tensor) -> Result<()> {
        const OP: &str = "set_view";
        self.check_change(OP)?;
        let part = view(self)?;
        if !part.shares_memory(self) {
            bail!(Value, OP, "view must return a view of the tensor, got a copy of shape {:?}", part.shape());
        }
        if !part.layout().is_non_overlapping() {
            bail!(Value, OP, "the view of shape {:?} must not contain an element more than once", part.shape());
        }
        let value = value.to_dtype(part.dtype())?.to_device(self.device())?.expand(part.shape())?;
        drop(part);
        let recorded = is_grad_enabled() && (self.requires_grad() || value.requires_grad());
        if recorded || self.is_batched() || value.is_batched() {
            let changed = self.with_part(view, &value)?;
            return self.become_tensor(OP, changed);
        }
        let value = value.detach();
        // The view is taken again after the copy, whose strides may differ from those of the shared memory.
        self.as_raw_view_mut(OP)?;
        let part = view(&self.detach())?;
        if !part.shares_memory(self) {
            let changed = self.with_part(view, &value)?;
            return self.become_tensor(OP, changed);
        }
        let (layout, dtype, value) = if part.dtype().is_complex() {
            (part.layout().pairs(), part.dtype().to_real(), value.view_as_real()?)
        } else {
            (part.layout().clone(), part.dtype(), value)
        };
        drop(part);
        let (from, to) = (value.as_view()?, &mut self.as_raw_view_mut(OP)?);
        interrupt::whole(|| backend::copy(OP, from, &mut to.part_as(&layout, dtype)))?;
        self.renew_leaf();
        Ok(())
    }

    /// This tensor with `value` in the part that `view` returns, as a recorded operation.
    #[track_caller]
    fn with_part(&self, view: &dyn Fn(&Tensor) -> Result<Tensor>, value: &Tensor) -> Result<Tensor> {
        let is_complex = self.dtype().is_complex() || value.dtype().is_complex();
        if is_complex && self.dtype().to_real() == value.dtype().to_real() {
            // The positions of the part, counted in real numbers, from a contiguous tensor of the same shape.
            let model = Tensor::zeros_with(self.shape(), (self.dtype(), self.device()))?;
            let part = view(&model)?;
            if part.shares_memory(&model) {
                let layout = if part.dtype().is_complex() { part.layout().pairs() } else { part.layout().clone() };
                let (whole, value) = (parts(self)?, parts(value)?);
                let positions = Tensor::arange_with(0, whole.numel() as i64, self.device())?.with_layout(layout);
                let changed = whole.put(&positions.contiguous()?, &value.contiguous()?)?;
                return if self.dtype().is_complex() { changed.view_as_complex() } else { Ok(changed) };
            }
        }
        if value.dtype() != self.dtype() {
            let (from, to) = (self.dtype(), value.dtype());
            bail!(Value, "set_view", "view must return a view of the tensor of {from}, got a copy of {to}");
        }
        let positions = Tensor::arange_with(0, self.numel() as i64, self.device())?.reshape(self.shape())?;
        self.put(&view(&positions)?, &value.contiguous()?)
    }
}

/// The real numbers that a tensor consists of.
fn parts(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_complex() { x.view_as_real() } else { Ok(x.clone()) }
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

    #[test]
    fn the_parts_of_complex_numbers_are_written_through_with_and_without_a_graph() -> Result<()> {
        let z = || Tensor::arange(0, 8)?.to_dtype(DType::F64)?.reshape([2, 2, 2])?.view_as_complex()?.deep_clone();
        let numbers = |z: &Tensor| z.detach().view_as_real()?.to_vec::<f64>();
        let mut plain = z()?;
        plain.set_view(|z| z.t()?.imag()?.select(0, 1), &tensor!([-1.0, -2.0])?)?;
        assert_eq!(numbers(&plain)?, [0.0, 1.0, 2.0, -1.0, 4.0, 5.0, 6.0, -2.0]);
        let leaf = z()?.requires_grad_(true)?;
        let w = tensor!([-1.0, -2.0])?.requires_grad_(true)?;
        let mut recorded = leaf.mul(1.0)?;
        recorded.set_view(|z| z.t()?.imag()?.select(0, 1), &w)?;
        assert_eq!(numbers(&recorded)?, numbers(&plain)?);
        recorded.view_as_real()?.square()?.sum(..)?.backward()?;
        assert_eq!(w.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![-2.0, -4.0]));
        let grad = leaf.grad().map(|g| numbers(&g)).transpose()?;
        assert_eq!(grad, Some(vec![0.0, 2.0, 4.0, 0.0, 8.0, 10.0, 12.0, 0.0]));
        // A complex view of real numbers.
        let mut x = Tensor::zeros([3, 2])?;
        x.set_view(|x| x.view_as_complex()?.narrow(0, 1, 2), &plain.select(0, 0)?)?;
        assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 2.0, -1.0]);
        Ok(())
    }

    #[test]
    fn a_complex_tensor_that_was_changed_is_still_no_view() -> Result<()> {
        let mut z = tensor!([[3.0, 4.0]])?.view_as_complex()?.into_value();
        for change in [|z: &mut Tensor| z.add_(1), |z: &mut Tensor| z.copy_(&tensor!([2.0])?.to_dtype(DType::C64)?)] {
            change(&mut z)?;
            let parts = z.view_as_real()?;
            z.set_view(|z| z.real(), &tensor!([9.0])?)?;
            assert_eq!((z.real()?.to_vec::<f32>()?, parts.numel()), (vec![9.0], 2));
        }
        Ok(())
    }

    #[test]
    fn bytes_are_seen_as_elements_of_another_dtype() -> Result<()> {
        let mut x = Tensor::arange(0, 6)?.to_dtype(DType::I32)?.reshape([3, 2])?.into_value();
        let wide = x.reinterpret(DType::I64)?;
        assert_eq!((wide.shape(), wide.to_vec::<i64>()?), (&[3, 1][..], vec![1 << 32, 2 + (3 << 32), 4 + (5 << 32)]));
        assert!(wide.shares_memory(&x) && x.t()?.reinterpret(DType::F32)?.shape() == [2, 3]);
        drop(wide);
        x.set_view(|x| x.reinterpret(DType::U8)?.select(1, 0), &tensor!([7, 8, 9])?.to_dtype(DType::U8)?)?;
        assert_eq!(x.to_vec::<i32>()?, [7, 1, 8, 3, 9, 5]);
        let refused = |x: Result<Tensor>, dtype: DType| x.and_then(|x| x.reinterpret(dtype)).is_err();
        assert!(
            refused(x.t(), DType::I64) && refused(x.narrow(1, 1, 1), DType::I64) && refused(Ok(x.clone()), DType::C128)
        );
        assert!(
            refused(Ok(x.clone()), DType::Bool) && refused(x.gt(2), DType::U8) && refused(tensor!(1.0), DType::F64)
        );
        assert!(refused(x.reshape(6)?.narrow(0, 1, 4), DType::I64));
        Ok(())
    }

    #[test]
    fn a_view_that_a_copy_of_its_own_would_not_give_is_written_through() -> Result<()> {
        // Lying transposed, it has its transpose as one row; a contiguous copy has not.
        let base = Tensor::arange(0, 6)?.reshape([3, 2])?;
        let mut x = base.t()?.into_value();
        x.set_view(|x| x.t()?.reshape(6)?.narrow(0, 1, 2), &tensor!([10, 20])?)?;
        assert_eq!(x.to_vec::<i64>()?, [0, 20, 4, 10, 3, 5]);
        assert_eq!(base.to_vec::<i64>()?, [0, 1, 2, 3, 4, 5]);
        Ok(())
    }
}
