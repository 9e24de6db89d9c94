//! Creation of tensors from Rust values.

use super::{Tensor, TensorOptions};
use crate::backend;
use crate::backend::deferred::Step;
use crate::backend::spec::Kernel;
use crate::dtype::with_dtype;
use crate::error::{bail, named};
use crate::layout::{Layout, Shape, check_shape};
use crate::{Complex, DType, Device, Element, Result, Scalar};
use smallvec::SmallVec;

mod sealed {
    use crate::{Result, Shape};

    /// The implementation of [`NdArray`](super::NdArray). Users cannot implement it, since its `shape` is relied on.
    pub trait Nested {
        type Elem: crate::Element;
        fn shape(&self) -> Result<Shape>;
        /// Appends the elements in row-major order.
        fn append(&self, out: &mut Vec<Self::Elem>);
    }
}
use sealed::Nested;

/// Rust values that can be made into a tensor: numbers, and nested arrays, slices and `Vec`s of them. The tensor has exactly
/// their element type; with [`tensor!`](crate::tensor), untyped literals get PyTorch's default dtypes instead.
///
/// The trait is sealed: users cannot implement it.
///
/// ```
/// use cotangent::Tensor;
/// assert_eq!(Tensor::new([[1_u8, 2], [3, 4]])?.shape(), [2, 2]);
/// assert_eq!(Tensor::new(vec![vec![0.5_f32]; 3])?.shape(), [3, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait NdArray: Nested {}

impl<T: Nested + ?Sized> NdArray for T {}

macro_rules! numbers {
    ($($t:ty),+ $(,)?) => {$(
        impl Nested for $t {
            type Elem = $t;
            fn shape(&self) -> Result<Shape> { Ok(().into()) }
            fn append(&self, out: &mut Vec<$t>) { out.push(*self); }
        }
    )+};
}
numbers!(f64, f32, half::f16, half::bf16, i64, i32, i16, i8, u8, u16, u32, u64, bool, Complex<f32>, Complex<f64>);

/// As `i64`, the type of indices.
impl Nested for usize {
    type Elem = i64;
    fn shape(&self) -> Result<Shape> {
        Ok(().into())
    }
    fn append(&self, out: &mut Vec<i64>) {
        out.push(*self as i64);
    }
}

impl<T: Nested> Nested for [T] {
    type Elem = T::Elem;

    fn shape(&self) -> Result<Shape> {
        let mut shape = self.first().map_or_else(|| Ok(Shape::default()), Nested::shape)?;
        for (at, part) in self.iter().enumerate() {
            let other = part.shape()?;
            if other != shape {
                bail!(
                    Shape,
                    "new",
                    "nested parts must have one shape, got {shape:?} for part 0 and {other:?} for part {at}"
                );
            }
        }
        shape.insert(0, self.len());
        Ok(shape)
    }

    fn append(&self, out: &mut Vec<T::Elem>) {
        self.iter().for_each(|part| part.append(out));
    }
}

macro_rules! as_slices {
    ($([$($generics:tt)*] $t:ty => |$x:ident| $slice:expr),+) => {$(
        impl<$($generics)*> Nested for $t {
            type Elem = T::Elem;
            fn shape(&self) -> Result<Shape> { let $x = self; $slice.shape() }
            fn append(&self, out: &mut Vec<T::Elem>) { let $x = self; $slice.append(out); }
        }
    )+};
}
as_slices!([T: Nested, const N: usize] [T; N] => |x| x[..], [T: Nested] Vec<T> => |x| x[..], [T: Nested + ?Sized] &T => |x| (**x));

/// # From Rust values
impl Tensor {
    /// A tensor from a number or nested arrays, slices or `Vec`s of numbers, of exactly their type: in Rust `1.5` is an `f64` and
    /// `1` an `i32`. [`tensor!`](crate::tensor) makes such literals `f32` and `i64`, as PyTorch does.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, tensor};
    /// let x = Tensor::new([[1.0_f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], DType::F32));
    /// assert_eq!(Tensor::new([0.1])?.dtype(), DType::F64);
    /// assert_eq!(tensor!([0.1])?.dtype(), DType::F32);
    /// assert_eq!(Tensor::new(7)?.rank(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If parts of a nested value differ in shape.
    #[doc(alias = "tensor")]
    #[doc(alias = "as_tensor")]
    #[doc(alias = "asarray")]
    #[doc(alias = "array")]
    #[track_caller]
    pub fn new<A: NdArray>(data: A) -> Result<Tensor> {
        Tensor::new_with(data, TensorOptions::new())
    }

    /// As [`new`](Self::new), cast to a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::new_with([[1, 2], [3, 4]], DType::F32)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); also if the device does not exist.
    #[track_caller]
    pub fn new_with<A: NdArray>(data: A, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let make = || {
            let shape = data.shape()?;
            let mut elements = Vec::with_capacity(shape.numel());
            data.append(&mut elements);
            Tensor::of_elements("new", &elements, shape, options.into())
        };
        named("new", make())
    }

    /// A tensor of the elements of a `Vec`, in row-major order, of exactly their type: Rust's `1.0` without a suffix is an `f64`.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// let x = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], DType::F32));
    /// assert_eq!(Tensor::from_vec(vec![1.0, 2.0], [2])?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    #[doc(alias = "from_numpy")]
    #[allow(clippy::needless_pass_by_value)] // callers usually have a `Vec` that was made for this
    #[track_caller]
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
        named("from_vec", Tensor::of_elements("from_vec", &data, shape.into(), TensorOptions::new()))
    }

    /// As [`from_vec`](Self::from_vec), cast to a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::from_vec_with(vec![1_i32, 2], [2], DType::F32)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_vec`](Self::from_vec); also if the device does not exist.
    #[allow(clippy::needless_pass_by_value)] // as above
    #[track_caller]
    pub fn from_vec_with<T: Element>(
        data: Vec<T>,
        shape: impl Into<Shape>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        named("from_vec", Tensor::of_elements("from_vec", &data, shape.into(), options.into()))
    }

    /// A tensor of the elements of a slice, in row-major order, of exactly their type.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::from_slice(&[1_u8, 2, 3], 3)?.to_vec::<u8>()?, [1, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    #[doc(alias = "frombuffer")]
    #[track_caller]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        named("from_slice", Tensor::of_elements("from_slice", data, shape.into(), TensorOptions::new()))
    }

    /// As [`from_slice`](Self::from_slice), cast to a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// let x = Tensor::from_slice_with(&[1_u8, 2, 3], 3, DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape, or the device does not exist.
    #[track_caller]
    pub fn from_slice_with<T: Element>(
        data: &[T],
        shape: impl Into<Shape>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        named("from_slice", Tensor::of_elements("from_slice", data, shape.into(), options.into()))
    }

    /// A one-dimensional tensor of the items of an iterator.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::from_iter((0..3).map(|i| i * i))?.to_vec::<i32>()?, [0, 1, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[allow(clippy::should_implement_trait)]
    #[track_caller]
    pub fn from_iter<T: Element>(elements: impl IntoIterator<Item = T>) -> Result<Tensor> {
        Tensor::from_iter_with(elements, TensorOptions::new())
    }

    /// As [`from_iter`](Self::from_iter), cast to a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::from_iter_with(0..3, DType::F32)?.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_iter`](Self::from_iter); also if the device does not exist.
    #[track_caller]
    pub fn from_iter_with<T: Element>(
        elements: impl IntoIterator<Item = T>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let data: Vec<T> = elements.into_iter().collect();
        let len = data.len();
        named("from_iter", Tensor::of_elements("from_iter", &data, len.into(), options.into()))
    }

    /// A tensor whose elements a function computes from their indices, in row-major order.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let table = Tensor::from_fn([2, 3], |at| (10 * at[0] + at[1]) as i64)?;
    /// assert_eq!(table.to_vec::<i64>()?, [0, 1, 2, 10, 11, 12]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[track_caller]
    pub fn from_fn<T: Element>(shape: impl Into<Shape>, mut f: impl FnMut(&[usize]) -> T) -> Result<Tensor> {
        let shape = shape.into();
        let mut index = vec![0; shape.len()];
        let element = |_| {
            let element = f(&index);
            for (at, &size) in index.iter_mut().zip(shape.iter()).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
            element
        };
        let out = Tensor::empty("from_fn", shape.clone(), T::DTYPE, Device::Cpu);
        named("from_fn", out.and_then(|out| out.filled_from((0..shape.numel()).map(element))))
    }

    fn of_elements<T: Element>(op: &'static str, data: &[T], shape: Shape, options: TensorOptions) -> Result<Tensor> {
        if check_shape(op, &shape)? != data.len() {
            bail!(Shape, op, "{} elements do not match shape {shape:?}", data.len());
        }
        let mut out = Tensor::empty(op, shape, T::DTYPE, Device::Cpu)?;
        if let Some(slot) = out.as_mut_slice::<T>(op)? {
            slot.copy_from_slice(data);
        }
        let (dtype, device) = options.or(T::DTYPE);
        out.to_dtype(dtype)?.to_device(device)
    }

    /// Fills this contiguous tensor with the items of an iterator.
    pub(crate) fn filled_from<T: Element>(mut self, elements: impl Iterator<Item = T>) -> Result<Tensor> {
        if let Some(slot) = self.as_mut_slice::<T>("new")? {
            for (to, from) in slot.iter_mut().zip(elements) {
                *to = from;
            }
        }
        Ok(self)
    }

    /// A 0-d tensor of a number.
    pub(crate) fn scalar(value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::filled("scalar", Shape::default(), value, dtype, device)
    }

    pub(crate) fn filled(
        op: &'static str,
        shape: Shape,
        value: Scalar,
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        if dtype.is_complex() {
            let z = Complex::<f64>::from_scalar(value);
            let part = |x: f64| Tensor::filled(op, shape.clone(), x.into(), dtype.to_real(), device);
            return part(z.re)?.with_imaginary(&part(z.im)?);
        }
        value.check_real(op, dtype)?;
        if device == Device::Cpu || shape.numel() == 0 {
            return Tensor::build(op, shape, dtype, device, |out| backend::fill(op, out, value));
        }
        Tensor::number(op, &shape, value, dtype, device)
    }

    /// A tensor filled with one number; memory is written only when the values are needed.
    fn number(op: &'static str, shape: &Shape, value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        check_shape(op, shape)?;
        backend::check(op, device)?;
        // Rounded to the dtype.
        let number = with_dtype!(dtype, T => <T as Element>::from_scalar(value).to_scalar());
        let (kernel, numel) = (Kernel::Number(number), shape.numel());
        let step = Step { op, kernel, compute: dtype, dtype, device, numel, inputs: SmallVec::new() };
        Ok(Tensor::from_parts(step.defer()?, Layout::shaped(shape), dtype))
    }
}
