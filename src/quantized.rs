//! Quantised weights, and products with them.
#![forbid(unsafe_code)]

pub use crate::backend::QuantFormat;

use crate::autograd::BackwardContext;
use crate::backend::QuantSide;
use crate::error::{bail, named};
use crate::ops::{MatmulPrecision, matmul_precision, with_matmul_precision};
use crate::{DType, Device, Result, Shape, Tensor, backend};
use smallvec::smallvec;

const LINEAR: &str = "quantized_linear";
/// The most elements of a weight that are converted at once for products on a unit for bf16.
const PART: usize = 1 << 19;

/// A weight of shape `[outputs, inputs]` in a [`QuantFormat`]: its bytes are those of a file.
///
/// [`linear`](Self::linear) multiplies with it. For at most 16 rows of inputs, as in decoding text, it quantises these to 8
/// bits in blocks of 32, and sums products of integers, as llama.cpp does: for normally distributed inputs the result differs
/// from that of the dequantised weight by 0.47 to 0.55 % of its size (root mean squares). For more rows, for gradients, for
/// `f64` and for [`QuantFormat::Nf4`] it converts parts of the weight to floats, which stay in the cache, and multiplies
/// these. Only inside of [`vmap`](crate::vmap()) the whole weight is converted.
///
/// ```
/// use cotangent::Generator;
/// use cotangent::nn::{QuantFormat, QuantizedTensor};
/// let weight = Generator::seed(1).randn([8, 64])?;
/// let quantized = QuantizedTensor::quantize(&weight, QuantFormat::Q8_0)?;
/// assert_eq!((quantized.shape(), quantized.blocks().numel()), ([8, 64], 8 * 68));
/// assert!(quantized.dequantize()?.allclose_with(&weight, (0.0, 0.02))?);
/// let x = Generator::seed(2).randn([2, 64])?;
/// assert!(quantized.linear(&x, None)?.allclose_with(&x.linear(&weight, None)?, (0.05, 0.3))?);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantizedTensor {
    /// `[outputs, bytes of a row]`, contiguous, of u8.
    blocks: Tensor,
    format: QuantFormat,
    inputs: usize,
}

impl QuantizedTensor {
    /// Quantises a matrix of floats row by row, with the rounding of ggml's reference implementation where the format has
    /// blocks of 32, and with scales fitted by least squares in the K-formats.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// // The scale of a block is rounded to f16.
    /// assert!(weight.dequantize()?.allclose_with(&Tensor::ones([2, 32])?, (1e-3, 0.0))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `values` is not a matrix of floats on the CPU, its rows are not a multiple of the format's blocks, or a value is
    /// not finite or exceeds the range of the scales.
    #[track_caller]
    pub fn quantize(values: &Tensor, format: QuantFormat) -> Result<QuantizedTensor> {
        const OP: &str = "QuantizedTensor::quantize";
        let quantize = || {
            let &[outputs, inputs] = values.shape() else {
                bail!(Shape, OP, "values must be a matrix, got shape {:?}", values.shape());
            };
            if !values.dtype().is_float() {
                bail!(DType, OP, "values must be floating point, got {}", values.dtype());
            }
            let row_bytes = format.row_bytes(inputs)?;
            let values = values.detach().to_dtype(DType::F32)?.contiguous()?;
            let mut blocks = Tensor::empty(OP, [outputs, row_bytes].into(), DType::U8, values.device())?;
            backend::quantize(OP, format, values.as_view()?, blocks.as_view_mut(OP)?)?;
            Ok(QuantizedTensor { blocks, format, inputs })
        };
        named(OP, quantize())
    }

    /// A weight whose bytes are those of a file: a matrix of `u8`, one row for each output.
    ///
    /// ```
    /// use cotangent::{DType, Tensor};
    /// use cotangent::nn::{QuantFormat, QuantizedTensor};
    /// let blocks = Tensor::zeros_with([5, 18], DType::U8)?;
    /// let weight = QuantizedTensor::from_blocks(&blocks, QuantFormat::Q4_0)?;
    /// assert_eq!(weight.shape(), [5, 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `blocks` is not a matrix of `u8` whose rows are whole blocks.
    #[track_caller]
    pub fn from_blocks(blocks: &Tensor, format: QuantFormat) -> Result<QuantizedTensor> {
        const OP: &str = "QuantizedTensor::from_blocks";
        let check = || {
            let (&[_, row_bytes], DType::U8) = (blocks.shape(), blocks.dtype()) else {
                let (dtype, shape) = (blocks.dtype(), blocks.shape());
                bail!(Shape, OP, "blocks must be a matrix of u8, got {dtype} of shape {shape:?}");
            };
            let Some(inputs) = format.row_elements(row_bytes) else {
                bail!(Shape, OP, "rows must be whole blocks of {format}, got {row_bytes} bytes");
            };
            Ok(QuantizedTensor { blocks: blocks.detach().contiguous()?, format, inputs })
        };
        named(OP, check())
    }

    /// The format.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(weight.format(), QuantFormat::Q8_0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn format(&self) -> QuantFormat {
        self.format
    }

    /// The numbers of outputs and of inputs.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(weight.shape(), [2, 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn shape(&self) -> [usize; 2] {
        [self.blocks.shape()[0], self.inputs]
    }

    /// The number of elements.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(weight.numel(), 64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }

    /// The stored bytes, of shape `[outputs, bytes of a row]`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(weight.blocks().shape(), [2, 34]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn blocks(&self) -> &Tensor {
        &self.blocks
    }

    /// The elements in `f32`.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{QuantFormat, QuantizedTensor}};
    /// let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(weight.dequantize()?.shape(), [2, 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the blocks are not on the CPU, or memory runs out.
    #[track_caller]
    pub fn dequantize(&self) -> Result<Tensor> {
        named("dequantize", self.floats("dequantize", &self.blocks))
    }

    /// The elements of some of the rows, given by their bytes.
    fn floats(&self, op: &'static str, blocks: &Tensor) -> Result<Tensor> {
        let shape = [blocks.shape()[0], self.inputs];
        Tensor::build(op, shape.into(), DType::F32, blocks.device(), |out| {
            backend::dequantize(op, self.format, blocks.as_view()?, out)
        })
    }

    /// The rows at these indices, in `f32`: the result has the shape of the indices followed by the number of inputs. Only
    /// these rows are dequantised.
    ///
    /// ```
    /// use cotangent::{Tensor, tensor};
    /// use cotangent::nn::{QuantFormat, QuantizedTensor};
    /// let table = QuantizedTensor::quantize(&Tensor::ones([10, 32])?, QuantFormat::Q8_0)?;
    /// assert_eq!(table.embedding(&tensor!([[7, 1, 7]])?)?.shape(), [1, 3, 32]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an index is not an integer or out of range.
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        const OP: &str = "quantized_embedding";
        let look_up = || {
            let rows = indices.reshape([indices.numel()])?.embedding(&self.blocks)?.contiguous()?;
            let shape: Shape = indices.shape().iter().copied().chain([self.inputs]).collect();
            self.floats(OP, &rows)?.reshape(&shape)
        };
        named(OP, look_up())
    }

    /// `x Wᵀ + bias` over the last dimension, in the dtype of `x`. Gradients flow to `x` and `bias`; the weight has none.
    ///
    /// ```
    /// use cotangent::Generator;
    /// use cotangent::nn::{QuantFormat, QuantizedTensor};
    /// let weight = QuantizedTensor::quantize(&Generator::seed(1).randn([8, 256])?, QuantFormat::Q4K)?;
    /// let x = Generator::seed(2).randn([3, 5, 256])?.requires_grad_(true)?;
    /// weight.linear(&x, None)?.sum(..)?.backward()?;
    /// assert_eq!(x.grad().map(|g| g.shape().to_vec()), Some(vec![3, 5, 256]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not fit each other, `x` is not floating point, or a tensor is not on the CPU.
    #[track_caller]
    pub fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        named(LINEAR, self.product_with_bias(x, bias))
    }

    #[track_caller]
    fn product_with_bias(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let [outputs, inputs] = self.shape();
        if x.shape().last() != Some(&inputs) || bias.is_some_and(|bias| bias.shape() != [outputs]) {
            let bias = bias.map_or_else(String::new, |bias| format!(", {:?}", bias.shape()));
            bail!(
                Shape,
                LINEAR,
                "input, weight and bias must have shapes [.., in], [out, in] and [out], got {:?}, {:?}{bias}",
                x.shape(),
                self.shape()
            );
        }
        if !x.dtype().is_float() {
            bail!(DType, LINEAR, "input must be floating point, got {}", x.dtype());
        }
        for device in [x.device(), self.blocks.device()] {
            if device != Device::Cpu {
                bail!(Device, LINEAR, "products with quantised weights are computed on the CPU, got {device}");
            }
        }
        let out = self.matmul(x, QuantSide::Transposed)?;
        bias.map_or_else(|| Ok(out.clone()), |bias| out.add(bias)?.to_dtype(x.dtype()))
    }

    /// `x Wᵀ` or `x W` over the last dimension. The gradient is the product of the other side.
    #[track_caller]
    fn matmul(&self, x: &Tensor, side: QuantSide) -> Result<Tensor> {
        if x.is_batched() {
            // Inside of `vmap` the product is that of floats.
            let dense = self.dequantize()?.to_dtype(x.dtype())?;
            return x.matmul(&if side == QuantSide::Transposed { dense.t()? } else { dense });
        }
        let (weight, precision) = (self.clone(), matmul_precision());
        let other = if side == QuantSide::Transposed { QuantSide::Plain } else { QuantSide::Transposed };
        self.product(&x.detach(), side)?.record(LINEAR, &[x], move |_| {
            move |_: &BackwardContext, g: &Tensor| {
                with_matmul_precision(precision, || Ok(smallvec![Some(weight.matmul(g, other)?)]))
            }
        })
    }

    /// As [`matmul`](Self::matmul), outside the graph.
    fn product(&self, x: &Tensor, side: QuantSide) -> Result<Tensor> {
        let [outputs, inputs] = self.shape();
        let (columns, inner) = if side == QuantSide::Transposed { (outputs, inputs) } else { (inputs, outputs) };
        let shape: Shape = x.shape()[..x.rank() - 1].iter().copied().chain([columns]).collect();
        let rows = shape[..x.rank() - 1].iter().product();
        let flat = x.reshape([rows, inner])?;
        let is_few = side == QuantSide::Transposed && backend::takes_quantized(self.format, rows);
        let is_bf16 = match x.dtype() {
            DType::BF16 => backend::has_bf16(),
            DType::F32 => backend::has_bf16() && matmul_precision() == MatmulPrecision::Bf16,
            _ => false,
        };
        let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (device, to) = (x.device(), [rows, columns].into());
        let out = if is_bf16 && !is_few {
            self.product_in_parts(&flat, side)?
        } else {
            let flat = flat.to_dtype(dtype)?.contiguous()?;
            let blocks = self.blocks.as_view()?;
            Tensor::build(LINEAR, to, dtype, device, |out| {
                if is_few && dtype == DType::F32 {
                    backend::quantized_product(LINEAR, flat.as_view()?, self.format, blocks, out)
                } else {
                    backend::quantized_matmul(LINEAR, flat.as_view()?, self.format, blocks, side, out)
                }
            })?
        };
        out.to_dtype(x.dtype())?.reshape(&shape)
    }

    /// The product of a matrix with parts of the weight that were converted to its dtype.
    fn product_in_parts(&self, x: &Tensor, side: QuantSide) -> Result<Tensor> {
        let (rows, [outputs, inputs]) = (x.shape()[0], self.shape());
        if side == QuantSide::Transposed {
            return Tensor::build(LINEAR, [rows, outputs].into(), x.dtype(), x.device(), |out| {
                for (first, weight) in self.parts(x.dtype()) {
                    let part = x.matmul(&weight?.t()?)?;
                    let layout = out.layout.narrow(LINEAR, 1, first as isize, part.shape()[1])?;
                    backend::copy(LINEAR, part.as_view()?, &mut out.part(&layout))?;
                }
                Ok(())
            });
        }
        let mut sum: Option<Tensor> = None;
        for (first, weight) in self.parts(x.dtype()) {
            let weight = weight?;
            // Sums of parts in half precision would be rounded once for each.
            let part = x.narrow(-1, first, weight.shape()[0])?.matmul(&weight)?.to_dtype(DType::F32)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => sum.add(&part)?,
            });
        }
        sum.map_or_else(|| Tensor::zeros_with([rows, inputs], (x.dtype(), x.device())), Ok)
    }

    /// Parts of the rows, dequantised one after the other, each with its first row.
    fn parts(&self, dtype: DType) -> impl Iterator<Item = (usize, Result<Tensor>)> {
        let [outputs, inputs] = self.shape();
        let rows = (PART / inputs.max(1)).max(16);
        (0..outputs).step_by(rows).map(move |first| {
            let some = self.blocks.narrow(0, first, rows.min(outputs - first));
            (first, some.and_then(|some| self.floats(LINEAR, &some)?.to_dtype(dtype)))
        })
    }
}
