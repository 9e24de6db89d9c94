//! Casts, copies, and moves between devices.

use crate::autograd::BackwardContext;
use crate::backend;
use crate::error::{bail, named};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, sample, spread};
use crate::{DType, Device, Result, Tensor};
#[cfg(feature = "cuda")]
use crate::{backend::ViewMut, layout::Layout, storage::Storage};
use smallvec::smallvec;
use std::borrow::Cow;

impl Tensor {
    /// This tensor if it has the dtype, otherwise the result of [`to_dtype`](Self::to_dtype).
    #[inline]
    #[track_caller]
    pub(crate) fn as_dtype(&self, dtype: DType) -> Result<Cow<'_, Tensor>> {
        if dtype == self.dtype() { Ok(Cow::Borrowed(self)) } else { self.to_dtype(dtype).map(Cow::Owned) }
    }
}

/// # Dtypes, devices and copies
#[ops]
impl Tensor {
    /// Converts the elements to another dtype. Floats are rounded to the nearest value; floats become integers by
    /// truncation; integers wrap around; every nonzero value becomes `true`. The gradient is converted back.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1.9, -1.9])?.to_dtype(DType::I64)?.to_vec::<i64>()?, [1, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[doc(alias = "to")]
    #[doc(alias = "type")]
    #[doc(alias = "astype")]
    #[doc(alias = "float")]
    #[doc(alias = "double")]
    #[doc(alias = "half")]
    #[doc(alias = "bfloat16")]
    #[doc(alias = "int")]
    #[doc(alias = "long")]
    #[doc(alias = "bool")]
    #[op(samples = dtype_samples, aliases = ["to", "type", "astype"])]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        if self.dtype().is_complex() || dtype.is_complex() {
            return complex_cast(self, dtype);
        }
        let out = if self.keeps_channels_last() {
            let shape = self.layout().shape().clone();
            Tensor::build_ordered("to_dtype", shape, true, dtype, self.device(), |out| {
                backend::copy("to_dtype", self.as_view()?, out)
            })?
        } else {
            self.copied_as("to_dtype", dtype)?
        };
        if !dtype.is_float() {
            return Ok(out.record_barrier("to_dtype", &[self]));
        }
        // The engine casts every cotangent to its tensor's dtype.
        out.record("to_dtype", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }

    /// Copies the tensor to another device, or returns it if it is already there. The gradient is copied back. Copies
    /// between two GPUs go through the CPU and must be requested explicitly.
    ///
    /// ```
    /// # use cotangent::{Device, tensor};
    /// let x = tensor!([1.0, 2.0])?.to_device(Device::Cpu)?;
    /// assert_eq!(x.device(), Device::Cpu);
    /// assert!(x.to_device(Device::cuda(99)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device is missing or has not enough memory, or both are GPUs: bring the tensor to the CPU first.
    #[doc(alias = "to")]
    #[doc(alias = "cpu")]
    #[doc(alias = "cuda")]
    #[op(samples = device_samples, errors = device_errors)]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        if device == self.device() {
            return Ok(self.clone());
        }
        if self.dtype().is_complex() {
            return self.view_as_real()?.to_device(device)?.view_as_complex();
        }
        let (from, whole) = (self.device(), self.detach().contiguous()?);
        let shape = self.layout().shape().clone();
        let out = Tensor::build("to_device", shape, self.dtype(), device, |out| {
            backend::transfer("to_device", whole.as_view()?, out)
        })?;
        out.record("to_device", &[self], |_| {
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.to_device(from)?)])
        })
    }

    /// Returns the tensor itself if it is contiguous, and a contiguous copy otherwise.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?.t()?;
    /// assert!(!x.is_contiguous() && x.contiguous()?.is_contiguous());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = copy_samples, aliases = ["resolve_conj", "resolve_neg"])]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        if self.dtype().is_complex() {
            return self.view_as_real()?.contiguous()?.view_as_complex();
        }
        self.copied("contiguous")?
            .record("contiguous", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }

    /// A contiguous copy with its own memory. The gradient passes through. It is seldom needed: `clone()` shares
    /// memory, and changing one tensor never changes another.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// let y = x.t()?.deep_clone()?;
    /// assert!(y.is_contiguous() && !x.deep_clone()?.is_same(&x));
    /// assert_eq!(y.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[doc(alias = "copy")]
    #[op(samples = copy_samples, aliases = ["alias_copy", "detach_copy", "clone"])]
    #[doc(alias = "clone")]
    pub fn deep_clone(&self) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return Ok(self.view_as_real()?.deep_clone()?.view_as_complex()?.into_value());
        }
        self.copied("deep_clone")?
            .record("deep_clone", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }
}

/// # Pinned memory
impl Tensor {
    /// A copy in pinned (page-locked) memory of the CPU. [`to_device`](Self::to_device) copies it to a GPU asynchronously.
    /// The tensor may be dropped or changed at once: memory that the GPU still reads is kept. Use it for batches of data;
    /// large amounts of pinned memory slow the system down.
    ///
    /// ```
    /// # use cotangent::{Device, tensor};
    /// let (x, gpu) = (tensor!([1.0, 2.0])?, Device::cuda(0));
    /// if gpu.is_available() {
    ///     assert_eq!(x.pin_memory()?.to_device(gpu)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// } else {
    ///     assert!(x.pin_memory().is_err());
    /// }
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no GPU, or not enough pinned memory.
    #[track_caller]
    pub fn pin_memory(&self) -> Result<Tensor> {
        named("pin_memory", self.pinned())
    }

    fn pinned(&self) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        {
            let (layout, bytes) = (Layout::contiguous(self.shape().into()), self.numel() * self.dtype().size());
            let mut storage = Storage::pinned("pin_memory", bytes)?;
            let host = self.detach().contiguous()?.to_device(Device::Cpu)?;
            let mut target = ViewMut::new("pin_memory", &mut storage, &layout, self.dtype())?;
            backend::copy("pin_memory", host.as_view()?, &mut target)?;
            Ok(Tensor::from_parts(storage, layout, self.dtype()))
        }
        #[cfg(not(feature = "cuda"))]
        Err(backend::no_cuda("pin_memory", 0))
    }

    /// Whether elementwise results keep the channels-last layout of this tensor. On the CPU they never do.
    pub(crate) fn keeps_channels_last(&self) -> bool {
        self.device() != Device::Cpu && !self.is_batched() && self.layout().is_channels_last()
    }

    /// A contiguous copy outside the graph.
    pub(crate) fn copied(&self, op: &'static str) -> Result<Tensor> {
        if self.dtype().is_complex() {
            // The copy owns its memory: it is not a view of another tensor.
            return Ok(self.detach().view_as_real()?.copied(op)?.view_as_complex()?.into_value());
        }
        self.copied_as(op, self.dtype())
    }

    /// A contiguous copy with elements of another dtype; both are real.
    fn copied_as(&self, op: &'static str, dtype: DType) -> Result<Tensor> {
        if self.is_batched() {
            return Tensor::over_batch(&[self], |_, all| all[0].copied_as(op, dtype));
        }
        let shape = self.layout().shape().clone();
        Tensor::build(op, shape, dtype, self.device(), |out| backend::copy(op, self.as_view()?, out))
    }
}

/// Casts to and from complex numbers. A cast that would lose imaginary parts is refused.
#[track_caller]
fn complex_cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    match (x.dtype().is_complex(), dtype.is_complex()) {
        (true, true) => x.view_as_real()?.to_dtype(dtype.to_real())?.view_as_complex(),
        (false, _) => {
            let re = x.to_dtype(dtype.to_real())?;
            re.with_imaginary(&Tensor::zeros_with(re.shape(), (re.dtype(), re.device()))?)
        }
        (true, false) if dtype == DType::Bool => x.ne(0),
        (true, false) => {
            bail!(
                DType,
                "to_dtype",
                "cannot cast {} to {dtype}, which would lose the imaginary parts: call real() or imag() first",
                x.dtype()
            )
        }
    }
}

fn dtype_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([2, 3], -2.0, 2.0)?, DType::F64],
        sample![spread([2, 0], -2.0, 2.0)?, DType::F64],
        sample![ints(&[3, -4], [2])?, DType::F64],
    ])
}

fn device_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[2, 3])?, Device::Cpu],
        sample![x(&[])?, Device::Cpu],
        sample![x(&[2, 0])?, Device::Cpu],
        sample![x(&[2, 3])?.t()?, Device::Cpu],
    ])
}

fn device_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such device", "cuda:99"; sample![spread([2], -2.0, 2.0)?, Device::cuda(99)]]])
}

fn copy_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.0);
    Ok(vec![
        sample![x(&[2, 3])?],
        sample![x(&[])?],
        sample![x(&[2, 0])?],
        // These need a copy.
        sample![x(&[2, 3])?.t()?],
        sample![x(&[2, 1])?.expand([2, 3])?],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn a_deep_clone_has_memory_of_its_own() -> Result<()> {
        let x = spread([2, 3], -1.0, 1.0)?.requires_grad_(true)?;
        let y = x.deep_clone()?;
        assert!(!y.storage().ptr_eq(x.storage()) && y.is_contiguous());
        assert_eq!((y.to_vec::<f64>()?, y.grad_fn()), (x.to_vec::<f64>()?, Some("deep_clone")));
        y.sum(..)?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![1.0; 6]));
        Ok(())
    }
}
