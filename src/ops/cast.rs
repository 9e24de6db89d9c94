//! Other dtypes, and other places for the same values.

use super::sample::{Op, Sample, spread};
use crate::autograd::Cx;
use crate::backend;
use crate::{DType, Result, Tensor};
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
        let out = Tensor::build("to_dtype", shape, dtype, self.device(), |out| backend::copy(self.as_view()?, out))?;
        if !dtype.is_float() {
            return Ok(out.record_barrier("to_dtype", &[self]));
        }
        // The engine casts every cotangent to its tensor's dtype.
        out.record("to_dtype", &[self], |_| |_: &Cx, g: &Tensor| Ok(smallvec![Some(g.clone())]))
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
            .record("contiguous", &[self], |_| |_: &Cx, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }

    /// A contiguous copy outside the graph.
    pub(crate) fn copied(&self, op: &'static str) -> Result<Tensor> {
        let shape = self.layout().shape().clone();
        Tensor::build(op, shape, self.dtype(), self.device(), |out| backend::copy(self.as_view()?, out))
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
    refusals: || Ok(Vec::new()),
};

static CONTIGUOUS: Op = Op {
    name: "contiguous",
    samples: || Ok(vec![Sample::new("contiguous", vec![spread([2, 3], -2.0, 2.0)?], |x| x[0].contiguous())]),
    refusals: || Ok(Vec::new()),
};

pub(crate) static OPS: &[&Op] = &[&TO_DTYPE, &CONTIGUOUS];
