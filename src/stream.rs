//! Streams: queues of work on a GPU that run concurrently.

use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::cuda::runtime::stream::Entered;
use crate::error::bail;
use crate::{Device, Result};
use cotangent_macros::named;
use std::fmt;

/// A queue of work on a GPU in addition to the default one: for copies, or for communication, while the GPU computes.
///
/// The results do not depend on the streams: a stream that uses a tensor of another one waits, on the GPU, for the work that
/// writes it, and memory is reused only when every stream is done with it. Manual synchronisation is not needed.
///
/// ```no_run
/// use cotangent::{Device, Stream, Tensor};
/// let copies = Stream::new(Device::Cuda(0))?;
/// let batch = Tensor::ones([64, 1024])?.pin_memory()?;
/// // The copy runs while the GPU still computes with the previous batch.
/// let batch = copies.run(|| batch.to_device(Device::Cuda(0)))?;
/// let y = batch.mul(2)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Stream {
    gpu: &'static Gpu,
    number: u8,
}

impl Stream {
    /// Makes a stream of a GPU.
    ///
    /// # Errors
    /// If the device is not a GPU or does not exist, or 15 streams of it are in use.
    #[named("Stream::new")]
    pub fn new(device: Device) -> Result<Stream> {
        let Device::Cuda(ordinal) = device else {
            bail!(Device, "Stream::new", "device must be a GPU, got {device}");
        };
        let gpu = gpu("Stream::new", ordinal)?;
        Ok(Stream { gpu, number: gpu.take_stream("Stream::new")? })
    }

    /// Runs `f`; the GPU work of this thread goes to this stream meanwhile. In a [recording](crate::CudaGraph) this has no effect:
    /// recorded work has its own order.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self.gpu.ordinal, self.number);
        f()
    }

    /// Waits until all work submitted to this stream is done. Reading values waits automatically.
    ///
    /// # Errors
    /// If some of that work has failed, or this thread is recording.
    #[named("Stream::synchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let op = "Stream::synchronize";
        capture::refuse(op, self.gpu.ordinal, "it waits for a stream")?;
        self.run(|| self.gpu.synchronize(op))
    }

    /// The GPU of the stream.
    pub fn device(&self) -> Device {
        Device::Cuda(self.gpu.ordinal)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} of {})", self.number, self.device())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.gpu.give_stream(self.number);
    }
}
