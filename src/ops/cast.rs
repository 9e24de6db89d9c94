//! Other dtypes, and other places for the same values.

use super::sample::{Op, Sample, spread};
use crate::autograd::BackwardContext;
use crate::backend;
use crate::{DType, Device, Result, Tensor};
#[cfg(feature = "cuda")]
use crate::{backend::ViewMut, layout::Layout, storage::Storage};
use smallvec::smallvec;

impl Tensor {
    /// The same numbers as elements of another dtype: floats are rounded to the nearest, or towards zero into integers;
    /// integers wrap around; everything but 0 is true. The gradient is cast back.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::new([1.9, -1.9])?.to_dtype(DType::I64)?.to_vec::<i64>()?, [1, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        let shape = self.layout().shape().clone();
        let out = Tensor::build("to_dtype", shape, dtype, self.device(), |out| {
            backend::copy("to_dtype", self.as_view()?, out)
        })?;
        if !dtype.is_float() {
            return Ok(out.record_barrier("to_dtype", &[self]));
        }
        // The engine casts every cotangent to its tensor's dtype.
        out.record("to_dtype", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }

    /// The same values on another device; the gradient is brought back. This tensor itself if it is there already. From one
    /// GPU to another the way leads by the CPU, and has to be asked for.
    ///
    /// ```
    /// # use cotangent::{Device, Tensor};
    /// let x = Tensor::new([1.0, 2.0])?.to_device(Device::Cpu)?;
    /// assert_eq!(x.device(), Device::Cpu);
    /// assert!(x.to_device(Device::cuda(99)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device is missing or has not enough memory.
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        if device == self.device() {
            return Ok(self.clone());
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

    /// A copy in pinned memory of the CPU: [`to_device`](Self::to_device) does not wait for such a copy to arrive on a
    /// GPU. It may be dropped or changed at once: what the GPU still reads is kept for it. For data that is brought there
    /// batch by batch; there should not be much of such memory.
    ///
    /// # Errors
    /// If there is no GPU, or not enough of such memory.
    pub fn pin_memory(&self) -> Result<Tensor> {
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

    /// This tensor if it is contiguous, else a contiguous copy.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        self.copied("contiguous")?
            .record("contiguous", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }

    /// A contiguous copy outside the graph.
    pub(crate) fn copied(&self, op: &'static str) -> Result<Tensor> {
        let shape = self.layout().shape().clone();
        Tensor::build(op, shape, self.dtype(), self.device(), |out| backend::copy(op, self.as_view()?, out))
    }
}

static TO_DTYPE: Op = Op {
    name: "to_dtype",
    samples: || {
        Ok(vec![
            Sample::new("to f64", vec![spread([2, 3], -2.0, 2.0)?], |x| x[0].to_dtype(DType::F64)),
            Sample::new("of an integer", vec![Tensor::from_slice(&[3_i64, -4], [2])?], |x| x[0].to_dtype(DType::F64)),
        ])
    },
    error_cases: || Ok(Vec::new()),
};

static CONTIGUOUS: Op = Op {
    name: "contiguous",
    samples: || Ok(vec![Sample::new("contiguous", vec![spread([2, 3], -2.0, 2.0)?], |x| x[0].contiguous())]),
    error_cases: || Ok(Vec::new()),
};

pub(crate) static OPS: &[&Op] = &[&TO_DTYPE, &CONTIGUOUS];
