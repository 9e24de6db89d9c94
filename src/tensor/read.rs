//! Reading values: into Rust, and as text.

use super::Tensor;
use super::print::{self, Elem};
use crate::backend::{self, View};
use crate::dtype::with_any_dtype;
use crate::error::{bail, named};
use crate::options::options;
use crate::{Complex, DType, Device, Element, Error, Result, Scalar};
use std::fmt;

options! {
    /// The options of [`Tensor::allclose_with`]. A pair `(rtol, atol)` converts into them.
    ///
    /// ```
    /// use cotangent::{tensor, options::CloseOptions};
    /// let options = CloseOptions::new().rtol(1e-3).atol(1e-6);
    /// assert!(tensor!([1.0])?.allclose_with(&tensor!([1.0005])?, options)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct CloseOptions {
        /// The relative tolerance, a factor of `|other|`.
        rtol: f64 = 1e-5,
        /// The absolute tolerance.
        atol: f64 = 1e-8,
    }
}

impl From<(f64, f64)> for CloseOptions {
    fn from((rtol, atol): (f64, f64)) -> CloseOptions {
        CloseOptions::new().rtol(rtol).atol(atol)
    }
}

/// # Reading
impl Tensor {
    /// The elements in row-major order, in a type that holds all values of the tensor's dtype.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([[1.5, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.5, 2.0, 3.0, 4.0]);
    /// assert_eq!(x.t()?.to_vec::<f64>()?, [1.5, 3.0, 2.0, 4.0]);
    /// assert!(x.to_vec::<i64>().is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `T` cannot hold all values of the dtype: cast first with [`to_dtype`](Self::to_dtype).
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let read = || {
            self.check_type::<T>("to_vec")?;
            let whole = self.detach().to_dtype(T::DTYPE)?.contiguous()?.to_device(Device::Cpu)?;
            Ok(whole.as_slice::<T>()?.map(<[T]>::to_vec).unwrap_or_default())
        };
        named("to_vec", read())
    }

    /// The only element of a tensor, in a type that holds all values of the tensor's dtype.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!(1.5)?.item::<f32>()?, 1.5);
    /// assert_eq!(tensor!([1.5])?.item::<f64>()?, 1.5);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor does not have exactly one element, or `T` cannot hold all values of the dtype.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let read = || {
            self.check_type::<T>("item")?;
            if self.numel() != 1 {
                bail!(Shape, "item", "expected one element, got {} in shape {:?}", self.numel(), self.shape());
            }
            Ok(T::from_scalar(self.number_at("item", self.offset())?))
        };
        named("item", read())
    }

    /// The element at an index, as a number; negative indices count from the end.
    ///
    /// ```
    /// # use cotangent::{Scalar, Tensor, tensor};
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.at(&[1, -1])?, Scalar::I64(4));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the index does not match the shape.
    #[track_caller]
    pub fn at(&self, index: &[isize]) -> Result<Scalar> {
        named("at", self.position(index).and_then(|position| self.number_at("at", position)))
    }

    /// The element at a position of the storage.
    fn number_at(&self, op: &'static str, position: usize) -> Result<Scalar> {
        if !self.dtype().is_complex() {
            return backend::read(op, self.as_view()?, position);
        }
        let parts = self.detach().view_as_real()?;
        let part = |at: usize| Ok::<f64, Error>(backend::read(op, parts.as_view()?, at)?.to_f64());
        Ok(Scalar::C128(Complex::new(part(2 * position)?, part(2 * position + 1)?)))
    }

    fn position(&self, index: &[isize]) -> Result<usize> {
        if index.len() != self.rank() {
            bail!(Index, "at", "expected {} indices for shape {:?}, got {index:?}", self.rank(), self.shape());
        }
        let mut position = self.offset() as isize;
        for ((&i, &size), &stride) in index.iter().zip(self.shape()).zip(self.strides()) {
            let at = if i < 0 { i.saturating_add(size as isize) } else { i };
            if at < 0 || at >= size as isize {
                bail!(Index, "at", "index {index:?} is out of range for shape {:?}", self.shape());
            }
            position += at * stride;
        }
        Ok(position as usize)
    }

    /// Whether two tensors have the same shape, dtype and values. NaN never equals NaN.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert!(tensor!([1, 2])?.equal(&Tensor::arange(1, 3)?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        let same = || Ok(with_any_dtype!(self.dtype(), T => self.to_vec::<T>()? == other.to_vec::<T>()?));
        named("equal", same())
    }

    /// Whether all elements of two tensors of one shape differ by at most `1e-8 + 1e-5 · |other|`. NaN equals NaN. For other
    /// tolerances see [`allclose_with`](Self::allclose_with).
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, 2.0])?;
    /// assert!(x.allclose(&x.add(1e-6)?)?);
    /// assert!(!x.allclose_with(&x.add(1e-3)?, (1e-6, 0.0))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor) -> Result<bool> {
        self.allclose_with(other, CloseOptions::new())
    }

    /// As [`allclose`](Self::allclose), with tolerances: `(rtol, atol)`, or [`CloseOptions`].
    ///
    /// ```
    /// # use cotangent::{tensor, options::CloseOptions};
    /// let (x, y) = (tensor!([1.0, 2.0])?, tensor!([1.0, 2.1])?);
    /// assert!(x.allclose_with(&y, (0.1, 0.0))?);
    /// assert!(x.allclose_with(&y, CloseOptions::new().atol(0.2))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ.
    #[track_caller]
    pub fn allclose_with(&self, other: &Tensor, options: impl Into<CloseOptions>) -> Result<bool> {
        let CloseOptions { rtol, atol } = options.into();
        let close = || {
            if self.shape() != other.shape() {
                bail!(Shape, "allclose", "other must have shape {:?}, got {:?}", self.shape(), other.shape());
            }
            if self.dtype().is_complex() || other.dtype().is_complex() {
                let values = |x: &Tensor| x.detach().to_dtype(DType::C128)?.to_vec::<Complex<f64>>();
                let (a, b) = (values(self)?, values(other)?);
                let nan = |z: &Complex<f64>| z.re.is_nan() || z.im.is_nan();
                let near = |a: Complex<f64>, b: Complex<f64>| (a - b).abs() <= atol + rtol * b.abs();
                return Ok(a.iter().zip(&b).all(|(a, b)| a == b || (nan(a) && nan(b)) || near(*a, *b)));
            }
            let values = |x: &Tensor| x.detach().to_dtype(DType::F64)?.to_vec::<f64>();
            let (a, b) = (values(self)?, values(other)?);
            Ok(a.iter()
                .zip(&b)
                .all(|(&a, &b)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs()))
        };
        named("allclose", close())
    }

    pub(crate) fn has_nan(&self) -> Result<bool> {
        let whole = self.detach().contiguous()?.to_device(Device::Cpu)?;
        Ok(match self.dtype() {
            DType::F64 => whole.as_slice::<f64>()?.is_some_and(|x| x.iter().any(|x| x.is_nan())),
            DType::F32 => whole.as_slice::<f32>()?.is_some_and(|x| x.iter().any(|x| x.is_nan())),
            DType::F16 | DType::BF16 => whole.to_dtype(DType::F32)?.has_nan()?,
            DType::C64 | DType::C128 => whole.view_as_real()?.has_nan()?,
            _ => false,
        })
    }

    fn check_type<T: Element>(&self, op: &'static str) -> Result<()> {
        if !self.dtype().fits_into(T::DTYPE) {
            bail!(DType, op, "cannot read {} as {} without loss: cast with to_dtype first", self.dtype(), T::DTYPE);
        }
        Ok(())
    }

    /// The elements in memory order, if they are of type `T` and contiguous.
    pub(crate) fn as_slice<T: Element>(&self) -> Result<Option<&[T]>> {
        let view = self.as_raw_view()?;
        backend::on_cpu("as_slice", [view.device()])?;
        Ok(view.as_slice::<T>())
    }

    /// The elements for writing, if they are of type `T`. Shared or strided ones are copied first.
    pub(crate) fn as_mut_slice<T: Element>(&mut self, op: &'static str) -> Result<Option<&mut [T]>> {
        if self.dtype() != T::DTYPE {
            return Ok(None);
        }
        if !self.is_contiguous() {
            self.own_copy(op)?;
        }
        Ok(self.as_raw_view_mut(op)?.into_slice::<T>())
    }

    /// The computed values on the CPU.
    fn on_cpu(&self) -> Result<Tensor> {
        self.check_unbatched()?;
        let host = self.detach().to_device(Device::Cpu)?;
        host.compute()?;
        Ok(host)
    }

    fn elem(&self, view: View<'_>, index: &[usize]) -> Elem {
        let at =
            index.iter().zip(self.strides()).fold(self.offset() as isize, |at, (&i, &stride)| at + i as isize * stride);
        if self.dtype().is_complex() {
            let number = self.number_at("print", at as usize).unwrap_or(Scalar::C128(Complex::new(f64::NAN, f64::NAN)));
            let Complex { re, im } = Complex::<f64>::from_scalar(number);
            return if self.dtype() == DType::C64 { Elem::C64(re as f32, im as f32) } else { Elem::C128(re, im) };
        }
        match (backend::read_on_cpu(view, at as usize), self.dtype()) {
            (Scalar::C128(z), _) => Elem::F64(z.re),
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

/// The elements as NumPy prints them, summarised when there are many. With a precision, as in `{:.2}`, floats have exactly that
/// many digits after the point.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.on_cpu() {
            Ok(host) => host,
            Err(error) => return write!(f, "(not computed: {error})"),
        };
        let elem = |index: &[usize]| host.elem(host.materialized_view(), index);
        f.write_str(&print::format_array(self.shape(), &elem, print::Style::Str, 0, f.precision()))
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
            f.precision(),
        ))
    }
}
