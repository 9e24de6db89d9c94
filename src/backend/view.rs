//! The arguments of kernels: memory with a layout and a dtype, to read or to write.

use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Element, Result, error::err};
use std::marker::PhantomData;

/// Elements to read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub storage: &'a Storage,
    pub layout: &'a Layout,
    pub dtype: DType,
}

impl<'a> View<'a> {
    /// The device of the elements.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The start of the storage. Every position of the layout is a valid element from here (L2).
    #[inline]
    pub fn ptr(&self) -> *const u8 {
        self.storage.as_ptr()
    }

    /// The elements, if they are of type `T` and contiguous.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        if T::DTYPE != self.dtype || !self.layout.is_contiguous() || self.storage.device() != Device::Cpu {
            return None;
        }
        let numel = self.layout.numel();
        if numel == 0 {
            return Some(&[]);
        }
        // SAFETY: the dtype is T's; a contiguous layout takes the `numel` positions from its offset on, all inside the
        // storage (L2), which is aligned for every element type; shared storage is never written while a handle to it
        // is borrowed (`Storage::get_mut` wants the only one).
        Some(unsafe { std::slice::from_raw_parts(self.ptr().cast::<T>().add(self.layout.offset()), numel) })
    }

    /// The address of the first element.
    #[inline]
    pub fn first(&self) -> *const u8 {
        self.ptr().wrapping_add(self.layout.offset() * self.dtype.size())
    }
}

/// Elements to write. Nothing else accesses them meanwhile, and no two share a position.
pub(crate) struct ViewMut<'a> {
    ptr: *mut u8,
    device: Device,
    pub layout: &'a Layout,
    pub dtype: DType,
    _borrow: PhantomData<&'a mut Storage>,
}

impl<'a> ViewMut<'a> {
    /// Fails if the storage has other owners; the caller copies it before.
    #[inline(always)]
    pub fn new(op: &'static str, storage: &'a mut Storage, layout: &'a Layout, dtype: DType) -> Result<ViewMut<'a>> {
        let ptr = storage.get_mut().ok_or_else(|| err!(Backend, op, "cannot write to shared memory"))?;
        Ok(ViewMut { ptr, device: storage.device(), layout, dtype, _borrow: PhantomData })
    }

    /// A part of the elements. `layout` must be derived from this one's.
    pub fn part<'b>(&'b mut self, layout: &'b Layout) -> ViewMut<'b> {
        ViewMut { ptr: self.ptr, device: self.device, layout, dtype: self.dtype, _borrow: PhantomData }
    }

    /// The same bytes as elements of another dtype. `layout` must be derived from this one's for that dtype.
    pub fn part_as<'b>(&'b mut self, layout: &'b Layout, dtype: DType) -> ViewMut<'b> {
        ViewMut { ptr: self.ptr, device: self.device, layout, dtype, _borrow: PhantomData }
    }

    /// The device of the elements.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The start of the storage.
    #[inline]
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The address of the first element.
    #[inline]
    pub fn first(&self) -> *mut u8 {
        self.ptr.wrapping_add(self.layout.offset() * self.dtype.size())
    }

    /// The elements, if they are of type `T` and contiguous.
    #[inline]
    pub fn into_slice<T: Element>(self) -> Option<&'a mut [T]> {
        if T::DTYPE != self.dtype || !self.layout.is_contiguous() || self.device != Device::Cpu {
            return None;
        }
        let numel = self.layout.numel();
        if numel == 0 {
            return Some(&mut []);
        }
        // SAFETY: as in `View::as_slice`; the storage has one owner, which is borrowed mutably for 'a. Fresh memory may
        // be uninitialised, but every bit pattern the allocator hands out was written by the system or an earlier
        // tensor; the element types other than bool accept any, and bool buffers are written before they are read.
        Some(unsafe { std::slice::from_raw_parts_mut(self.ptr.cast::<T>().add(self.layout.offset()), numel) })
    }
}
