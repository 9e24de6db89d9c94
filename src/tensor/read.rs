//! Reading values out: to Rust, and as text.

use super::Tensor;
use super::print::{self, Elem};
use crate::backend::{self, View};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::{DType, Device, Element, Result, Scalar};
use std::fmt;

impl Tensor {
    /// The elements in row-major order.
    ///
    /// # Errors
    /// If `T` is not the type of the elements: cast first with [`to_dtype`](Self::to_dtype).
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type::<T>("to_vec")?;
        let whole = self.detach().contiguous()?.to_device(Device::Cpu)?;
        Ok(whole.as_slice::<T>()?.map(<[T]>::to_vec).unwrap_or_default())
    }

    /// The element of a tensor that has one.
    ///
    /// # Errors
    /// If the tensor has not exactly one element, or `T` is not its type.
    pub fn item<T: Element>(&self) -> Result<T> {
        self.check_type::<T>("item")?;
        if self.numel() != 1 {
            bail!(Shape, "item", "a tensor of shape {:?} has {} elements, not one", self.shape(), self.numel());
        }
        Ok(T::from_scalar(backend::read("item", self.as_view()?, self.offset())?))
    }

    /// The element at an index, as a number; negative indices count from the end.
    ///
    /// # Errors
    /// If the index does not fit the shape.
    pub fn at(&self, index: &[isize]) -> Result<Scalar> {
        if index.len() != self.rank() {
            bail!(
                Index,
                "at",
                "index {index:?} has {} places, the shape {:?} has {}",
                index.len(),
                self.shape(),
                self.rank()
            );
        }
        let mut position = self.offset() as isize;
        for ((&i, &size), &stride) in index.iter().zip(self.shape()).zip(self.strides()) {
            let at = if i < 0 { i + size as isize } else { i };
            if at < 0 || at >= size as isize {
                bail!(Index, "at", "index {index:?} lies outside the shape {:?}", self.shape());
            }
            position += at * stride;
        }
        backend::read("at", self.as_view()?, position as usize)
    }

    /// Whether two tensors have the same shape, dtype and values; NaN equals nothing.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        Ok(with_dtype!(self.dtype(), T => self.to_vec::<T>()? == other.to_vec::<T>()?))
    }

    /// Whether two tensors of one shape differ nowhere by more than `atol + rtol · |other|`; NaN equals NaN.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64) -> Result<bool> {
        if self.shape() != other.shape() {
            bail!(Shape, "allclose", "shapes {:?} and {:?} differ", self.shape(), other.shape());
        }
        let (a, b) = (
            self.detach().to_dtype(DType::F64)?.to_vec::<f64>()?,
            other.detach().to_dtype(DType::F64)?.to_vec::<f64>()?,
        );
        Ok(a.iter()
            .zip(&b)
            .all(|(&a, &b)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs()))
    }

    pub(crate) fn has_nan(&self) -> Result<bool> {
        let whole = self.detach().contiguous()?.to_device(Device::Cpu)?;
        Ok(match self.dtype() {
            DType::F64 => whole.as_slice::<f64>()?.is_some_and(|x| x.iter().any(|x| x.is_nan())),
            DType::F32 => whole.as_slice::<f32>()?.is_some_and(|x| x.iter().any(|x| x.is_nan())),
            DType::F16 | DType::BF16 => whole.to_dtype(DType::F32)?.has_nan()?,
            _ => false,
        })
    }

    fn check_type<T: Element>(&self, op: &'static str) -> Result<()> {
        if T::DTYPE != self.dtype() {
            bail!(DType, op, "the elements are {}, not {}: cast with to_dtype first", self.dtype(), T::DTYPE);
        }
        Ok(())
    }

    /// The elements in memory order, if they are of type `T` and lie without gaps.
    pub(crate) fn as_slice<T: Element>(&self) -> Result<Option<&[T]>> {
        let view = self.as_view()?;
        backend::on_cpu("as_slice", [view.device()])?;
        Ok(view.as_slice::<T>())
    }

    /// The elements to write to, if they are of type `T`; shared or strided ones are copied first.
    pub(crate) fn as_mut_slice<T: Element>(&mut self, op: &'static str) -> Result<Option<&mut [T]>> {
        if self.dtype() != T::DTYPE {
            return Ok(None);
        }
        if !self.is_contiguous() {
            self.own_copy(op)?;
        }
        Ok(self.as_view_mut(op)?.into_slice::<T>())
    }

    /// The values where they can be looked at, computed.
    fn on_cpu(&self) -> Result<Tensor> {
        let host = self.detach().to_device(Device::Cpu)?;
        host.compute()?;
        Ok(host)
    }

    fn elem(&self, view: View<'_>, index: &[usize]) -> Elem {
        let at =
            index.iter().zip(self.strides()).fold(self.offset() as isize, |at, (&i, &stride)| at + i as isize * stride);
        match (backend::cpu::elementwise::copy::read(view, at as usize), self.dtype()) {
            (Scalar::F64(x), DType::F64) => Elem::F64(x),
            (Scalar::F64(x), DType::F16) => Elem::F16(x as f32),
            (Scalar::F64(x), DType::BF16) => Elem::BF16(x as f32),
            (Scalar::F64(x), _) => Elem::F32(x as f32),
            (Scalar::I64(x), _) => Elem::Int(x),
            (Scalar::U64(x), _) => Elem::UInt(x),
            (Scalar::Bool(x), _) => Elem::Bool(x),
        }
    }
}

/// The elements as NumPy prints them, shortened when there are many.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.on_cpu() {
            Ok(host) => host,
            Err(error) => return write!(f, "(not computed: {error})"),
        };
        let elem = |index: &[usize]| host.elem(host.materialized_view(), index);
        f.write_str(&print::format_array(self.shape(), &elem, print::Style::Str, 0))
    }
}

/// The elements with shape, dtype, device and the operation that made them.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.on_cpu() {
            Ok(host) => host,
            Err(error) => return write!(f, "Tensor(not computed: {error})"),
        };
        let graph = match (self.grad_fn(), self.requires_grad()) {
            (Some(name), _) => format!(", grad_fn={name}"),
            (None, true) => ", requires_grad=true".to_string(),
            (None, false) => String::new(),
        };
        f.write_str(&print::format_debug(
            self.shape(),
            &|index| host.elem(host.materialized_view(), index),
            self.dtype().name(),
            &self.device().to_string(),
            &graph,
        ))
    }
}
