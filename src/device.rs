//! Devices.

use std::fmt;

/// A device that stores tensors and computes with them.
///
/// ```
/// use cotangent::{Device, Tensor};
/// let device = if Device::cuda(0).is_available() { Device::cuda(0) } else { Device::Cpu };
/// assert_eq!(Tensor::zeros_with([2], device)?.device(), device);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this number. Whether it exists is checked when it is used.
    Cuda(usize),
}

impl Device {
    /// The NVIDIA GPU with this number.
    ///
    /// ```
    /// use cotangent::Device;
    /// assert_eq!(Device::cuda(1).to_string(), "cuda:1");
    /// ```
    pub const fn cuda(ordinal: usize) -> Device {
        Device::Cuda(ordinal)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}
