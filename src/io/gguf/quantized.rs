//! Storage types of elements: plain, or blocks of elements that share scales.

use super::LOAD;
use crate::error::{bail, err};
use crate::quantized::QuantFormat;
use crate::{DType, Result};

/// The storage type of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Plain(DType, &'static str),
    Blocks(QuantFormat),
}

impl Form {
    /// The type of a number in the file.
    pub fn of(number: u32) -> Result<Form> {
        Ok(match number {
            0 => Form::Plain(DType::F32, "F32"),
            1 => Form::Plain(DType::F16, "F16"),
            24 => Form::Plain(DType::I8, "I8"),
            25 => Form::Plain(DType::I16, "I16"),
            26 => Form::Plain(DType::I32, "I32"),
            27 => Form::Plain(DType::I64, "I64"),
            28 => Form::Plain(DType::F64, "F64"),
            30 => Form::Plain(DType::BF16, "BF16"),
            2 => Form::Blocks(QuantFormat::Q4_0),
            3 => Form::Blocks(QuantFormat::Q4_1),
            6 => Form::Blocks(QuantFormat::Q5_0),
            7 => Form::Blocks(QuantFormat::Q5_1),
            8 => Form::Blocks(QuantFormat::Q8_0),
            10 => Form::Blocks(QuantFormat::Q2K),
            11 => Form::Blocks(QuantFormat::Q3K),
            12 => Form::Blocks(QuantFormat::Q4K),
            13 => Form::Blocks(QuantFormat::Q5K),
            14 => Form::Blocks(QuantFormat::Q6K),
            other => bail!(Format, LOAD, "ggml type {other} is not supported"),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Form::Plain(_, name) => name,
            Form::Blocks(format) => format.name(),
        }
    }

    /// The dtype in which tensors of this type are loaded.
    pub fn dtype(self) -> DType {
        match self {
            Form::Plain(dtype, _) => dtype,
            Form::Blocks(_) => DType::F32,
        }
    }

    /// The number of bytes of a tensor in the file.
    pub fn bytes_of(self, shape: &[usize]) -> Result<u64> {
        let count = shape.iter().try_fold(1_u64, |count, size| count.checked_mul(*size as u64));
        let bytes = match self {
            Form::Plain(dtype, _) => count.and_then(|count| count.checked_mul(dtype.size() as u64)),
            Form::Blocks(format) => {
                let (row, elements) = (shape.last().copied().unwrap_or(1), format.block_elements());
                if row % elements != 0 {
                    bail!(Format, LOAD, "last dimension must be a multiple of {elements} for {format}, got {row}");
                }
                count.map(|count| count / elements as u64).and_then(|n| n.checked_mul(format.block_bytes() as u64))
            }
        };
        bytes.ok_or_else(|| err!(Format, LOAD, "shape {shape:?} takes more bytes than can be addressed"))
    }
}
