//! Queues of work on a GPU that run beside each other.

use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::cuda::runtime::stream::Entered;
use crate::error::bail;
use crate::{Device, Result};
use cotangent_macros::named;
use std::fmt;

/// A second queue of work on a GPU, beside the one that all work goes to otherwise: for copies, or for communication, while
/// the GPU computes.
///
/// The results are the same whichever stream computes them: a stream that is given a tensor of another one waits, on the
/// GPU, for what writes it, and memory is used again only when every stream is done with it. There is nothing to be
/// ordered by hand.
///
/// ```no_run
/// use cotangent::{Device, Stream, Tensor};
/// let copies = Stream::new(Device::Cuda(0))?;
/// let batch = Tensor::ones([64, 1024])?.pin_memory()?;
/// // The copy runs while the GPU still computes with the batch before.
/// let batch = copies.run(|| batch.to_device(Device::Cuda(0)))?;
/// let y = batch.mul(2)?;
/// # Ok::<(), cotangent::Error>(())
/// ```
pub struct Stream {
    gpu: &'static Gpu,
    number: u8,
}

impl Stream {
    /// A stream of a GPU.
    ///
    /// # Errors
    /// If the device is not a GPU or is not there, or 15 streams of it are in use.
    #[named("Stream::new")]
    pub fn new(device: Device) -> Result<Stream> {
        let Device::Cuda(ordinal) = device else {
            bail!(Device, "Stream::new", "a stream is of a GPU, not of {device}");
        };
        let gpu = gpu("Stream::new", ordinal)?;
        Ok(Stream { gpu, number: gpu.take_stream("Stream::new")? })
    }

    /// Runs `f`; what this thread asks of the GPU meanwhile goes to this stream. In a [recording](crate::CudaGraph) it
    /// changes nothing: what is recorded has an order of its own.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self.gpu.ordinal, self.number);
        f()
    }

    /// Waits until all work that this stream was asked for so far is done. Reading values waits by itself.
    ///
    /// # Errors
    /// If some of that work has failed, or this thread records.
    #[named("Stream::synchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let op = "Stream::synchronize";
        capture::refuse(op, self.gpu.ordinal, "a stream cannot be waited for")?;
        self.run(|| self.gpu.synchronize(op))
    }

    /// The GPU that it belongs to.
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
