//! The options of creation functions.

use crate::{DType, Device};

/// The dtype and device of a new tensor. The dtype defaults to that of the operation, usually `f32`, and the device to the
/// CPU.
///
/// ```
/// use cotangent::{DType, Device, Tensor, TensorOptions};
/// let x = Tensor::zeros_with([2, 3], DType::F64)?;
/// let y = Tensor::ones_with([2, 3], (DType::F64, Device::Cpu))?;
/// assert_eq!(x.add(&y)?.dtype(), DType::F64);
/// if Device::cuda(0).is_available() {
///     let z = Tensor::zeros_with([2, 3], TensorOptions::new().device(Device::cuda(0)))?;
///     assert_eq!(z.device(), Device::cuda(0));
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct TensorOptions {
    pub(crate) dtype: Option<DType>,
    pub(crate) device: Option<Device>,
}

impl TensorOptions {
    /// All options at their defaults.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, TensorOptions};
    /// assert_eq!(Tensor::zeros_with([2], TensorOptions::new())?.dtype(), DType::F32);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn new() -> TensorOptions {
        TensorOptions::default()
    }

    /// The dtype.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, TensorOptions};
    /// assert_eq!(Tensor::zeros_with([2], TensorOptions::new().dtype(DType::I8))?.dtype(), DType::I8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn dtype(self, dtype: impl Into<Option<DType>>) -> TensorOptions {
        TensorOptions { dtype: dtype.into(), ..self }
    }

    /// The device.
    ///
    /// ```
    /// use cotangent::{Device, Tensor, TensorOptions};
    /// assert_eq!(Tensor::zeros_with([2], TensorOptions::new().device(Device::Cpu))?.device(), Device::Cpu);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn device(self, device: impl Into<Option<Device>>) -> TensorOptions {
        TensorOptions { device: device.into(), ..self }
    }

    /// The same options, with this dtype if none is set.
    ///
    /// ```
    /// use cotangent::{DType, Device, Tensor, TensorOptions};
    /// let options = TensorOptions::from(Device::Cpu).or_dtype(DType::F64);
    /// assert_eq!(Tensor::zeros_with([2], options)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn or_dtype(self, dtype: DType) -> TensorOptions {
        TensorOptions { dtype: self.dtype.or(Some(dtype)), ..self }
    }

    /// Both, with `dtype` if none is set.
    pub(crate) fn or(self, dtype: DType) -> (DType, Device) {
        (self.dtype.unwrap_or(dtype), self.device.unwrap_or(Device::Cpu))
    }
}

impl From<DType> for TensorOptions {
    fn from(dtype: DType) -> TensorOptions {
        TensorOptions::new().dtype(dtype)
    }
}

impl From<Device> for TensorOptions {
    fn from(device: Device) -> TensorOptions {
        TensorOptions::new().device(device)
    }
}

impl From<(DType, Device)> for TensorOptions {
    fn from((dtype, device): (DType, Device)) -> TensorOptions {
        TensorOptions::new().dtype(dtype).device(device)
    }
}
