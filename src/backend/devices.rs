//! Properties and synchronisation of devices.

use super::check;
#[cfg(feature = "cuda")]
use super::cuda::runtime::gpu::gpu;
use crate::{Device, Result};
use cotangent_macros::named;

/// The properties of a device.
///
/// ```
/// use cotangent::Device;
/// let properties = Device::Cpu.properties()?;
/// println!("{} with {} threads", properties.name, properties.processors);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The manufacturer's name.
    pub name: String,
    /// The size of its memory in bytes; `None` for the CPU.
    pub memory: Option<usize>,
    /// The compute capability of a GPU, as in `(9, 0)`.
    pub capability: Option<(u32, u32)>,
    /// The number of multiprocessors of a GPU, or of threads on the CPU.
    pub processors: usize,
}

impl Device {
    /// Whether the device can be used: the CPU always; a GPU if this crate was built with the feature `cuda`, and the GPU and its
    /// driver are present.
    ///
    /// ```
    /// use cotangent::{Device, Tensor};
    /// assert!(Device::Cpu.is_available());
    /// assert_eq!(Device::cuda(0).is_available(), Tensor::zeros_with([2], Device::cuda(0)).is_ok());
    /// ```
    pub fn is_available(self) -> bool {
        check("is_available", self).is_ok()
    }

    /// The properties of the device.
    ///
    /// ```
    /// # use cotangent::Device;
    /// assert!(Device::Cpu.properties()?.processors > 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device is not available.
    #[doc(alias = "get_device_properties")]
    #[named]
    pub fn properties(self) -> Result<DeviceProperties> {
        match self {
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => {
                let gpu = gpu("properties", ordinal)?;
                Ok(DeviceProperties {
                    name: gpu.name.clone(),
                    memory: Some(gpu.memory),
                    capability: Some((gpu.arch / 10, gpu.arch % 10)),
                    processors: gpu.processors as usize,
                })
            }
            device => {
                check("properties", device)?;
                let processors = crate::backend::num_threads();
                Ok(DeviceProperties { name: "cpu".to_string(), memory: None, capability: None, processors })
            }
        }
    }

    /// Waits until all submitted work is done. On the CPU this does nothing. Reading values waits automatically.
    ///
    /// ```
    /// use cotangent::{Device, Tensor};
    /// let x = Tensor::ones([64, 64])?;
    /// let start = std::time::Instant::now();
    /// x.matmul(&x)?.compute()?;
    /// x.device().synchronize()?;
    /// println!("{:?}", start.elapsed());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device is not available, or some of that work has failed.
    #[named]
    pub fn synchronize(self) -> Result<()> {
        match self {
            #[cfg(feature = "cuda")]
            Device::Cuda(ordinal) => gpu("synchronize", ordinal)?.synchronize_all("synchronize"),
            device => check("synchronize", device),
        }
    }
}
