//! Making tensors: from Rust values, from formulas, and at random.

use super::Tensor;
use crate::backend::deferred::{Kernel, Step};
use crate::backend::{self, Draw};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::layout::{Layout, Shape, checked_bytes};
use crate::random::{self, Generator};
use crate::{DType, Device, Element, Result, Scalar};
use smallvec::SmallVec;

/// What a new tensor is to be: a dtype, a device, or both. Where one is not named, it is `f32` on the CPU.
///
/// ```
/// use cotangent::{DType, Device, Tensor};
/// let x = Tensor::zeros_with([2, 3], DType::F64)?;
/// let y = Tensor::ones_with([2, 3], (DType::F64, Device::Cpu))?;
/// assert_eq!(x.add(&y)?.dtype(), DType::F64);
/// if Device::cuda(0).is_available() {
///     assert_eq!(Tensor::zeros_with([2, 3], Device::cuda(0))?.device(), Device::cuda(0));
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorOptions {
    /// The type of its elements.
    pub dtype: DType,
    /// Where they are.
    pub device: Device,
}

impl From<DType> for TensorOptions {
    fn from(dtype: DType) -> TensorOptions {
        TensorOptions { dtype, device: Device::Cpu }
    }
}

impl From<Device> for TensorOptions {
    fn from(device: Device) -> TensorOptions {
        TensorOptions { dtype: DType::F32, device }
    }
}

impl From<(DType, Device)> for TensorOptions {
    fn from((dtype, device): (DType, Device)) -> TensorOptions {
        TensorOptions { dtype, device }
    }
}

/// Rust values that can be made into a tensor: numbers, and nested arrays, slices and `Vec`s of them.
///
/// Literals keep PyTorch's defaults: `1.5` becomes `f32` (from `f64` literals too), `1` becomes `i64`. To keep `f64`,
/// use [`Tensor::from_vec`] or [`Tensor::from_slice`], which take the element type as it is.
pub trait NdArray {
    /// The dtype that the tensor gets.
    const DTYPE: DType;
    /// The shape, where all parts have the same one.
    ///
    /// # Errors
    /// If parts of a nested value differ in shape.
    fn shape(&self) -> Result<Shape>;
    /// Appends the elements in row-major order.
    fn append(&self, out: &mut Vec<Scalar>);
}

macro_rules! numbers {
    ($($t:ty => $dtype:ident),+ $(,)?) => {$(
        impl NdArray for $t {
            const DTYPE: DType = DType::$dtype;
            fn shape(&self) -> Result<Shape> { Ok(().into()) }
            fn append(&self, out: &mut Vec<Scalar>) { out.push((*self).into()); }
        }
    )+};
}
// `f64` and `i32` are what Rust makes of plain literals, so they get the defaults.
numbers!(f64 => F32, f32 => F32, half::f16 => F16, half::bf16 => BF16, i64 => I64, i32 => I64, i16 => I16, i8 => I8,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, usize => I64, bool => Bool);

impl<T: NdArray> NdArray for [T] {
    const DTYPE: DType = T::DTYPE;

    fn shape(&self) -> Result<Shape> {
        let mut shape = self.first().map_or_else(|| Ok(Shape::default()), NdArray::shape)?;
        for (at, part) in self.iter().enumerate() {
            let other = part.shape()?;
            if other != shape {
                bail!(Shape, "new", "part 0 has shape {shape:?} but part {at} has shape {other:?}");
            }
        }
        shape.insert(0, self.len());
        Ok(shape)
    }

    fn append(&self, out: &mut Vec<Scalar>) {
        self.iter().for_each(|part| part.append(out));
    }
}

macro_rules! as_slices {
    ($([$($generics:tt)*] $t:ty => |$x:ident| $slice:expr),+) => {$(
        impl<$($generics)*> NdArray for $t {
            const DTYPE: DType = T::DTYPE;
            fn shape(&self) -> Result<Shape> { let $x = self; $slice.shape() }
            fn append(&self, out: &mut Vec<Scalar>) { let $x = self; $slice.append(out); }
        }
    )+};
}
as_slices!([T: NdArray, const N: usize] [T; N] => |x| x[..], [T: NdArray] Vec<T> => |x| x[..], [T: NdArray + ?Sized] &T => |x| (**x));

impl Tensor {
    /// A tensor from a number or nested arrays, slices or `Vec`s of numbers.
    ///
    /// ```
    /// use cotangent::{DType, Tensor};
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], DType::F32));
    /// assert_eq!(Tensor::new(7)?.rank(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If parts of a nested value differ in shape.
    pub fn new<A: NdArray>(data: A) -> Result<Tensor> {
        let (shape, dtype) = (data.shape()?, A::DTYPE);
        let mut elements = Vec::with_capacity(shape.numel());
        data.append(&mut elements);
        let out = Tensor::empty("new", shape, dtype, Device::Cpu)?;
        crate::dtype::with_dtype!(dtype, T => out.filled_from(elements.into_iter().map(<T as Element>::from_scalar)))
    }

    /// A tensor of the elements of a `Vec`, in row-major order, of exactly their type.
    ///
    /// # Errors
    /// If the number of elements does not fit the shape.
    #[allow(clippy::needless_pass_by_value)] // what a caller has at hand is a `Vec` that was made for this
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(&data, shape)
    }

    /// A tensor of the elements of a slice, in row-major order, of exactly their type.
    ///
    /// # Errors
    /// If the number of elements does not fit the shape.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        crate::layout::checked_bytes("from_slice", &shape, T::DTYPE.size())?;
        if shape.numel() != data.len() {
            bail!(Shape, "from_slice", "{} elements do not fill the shape {shape:?}", data.len());
        }
        let mut out = Tensor::empty("from_slice", shape, T::DTYPE, Device::Cpu)?;
        if let Some(slot) = out.as_mut_slice::<T>("from_slice")? {
            slot.copy_from_slice(data);
        }
        Ok(out)
    }

    /// A one-dimensional tensor of what an iterator yields.
    ///
    /// # Errors
    /// If memory runs out.
    #[allow(clippy::should_implement_trait)]
    pub fn from_iter<T: Element>(elements: impl IntoIterator<Item = T>) -> Result<Tensor> {
        let data: Vec<T> = elements.into_iter().collect();
        let len = data.len();
        Tensor::from_vec(data, len)
    }

    fn filled_from<T: Element>(mut self, elements: impl Iterator<Item = T>) -> Result<Tensor> {
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
        if device == Device::Cpu || shape.numel() == 0 {
            return Tensor::build(op, shape, dtype, device, |out| backend::fill(op, out, value));
        }
        Tensor::number(op, &shape, value, dtype, device)
    }

    /// One number everywhere, not written down before somebody asks for the bytes.
    fn number(op: &'static str, shape: &Shape, value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        checked_bytes(op, shape, dtype.size())?;
        backend::check(op, device)?;
        // As an element of the dtype would hold it.
        let number = with_dtype!(dtype, T => <T as Element>::from_scalar(value).to_scalar());
        let (kernel, numel) = (Kernel::Number(number), shape.numel());
        let step = Step { op, kernel, compute: dtype, dtype, device, numel, inputs: SmallVec::new() };
        Ok(Tensor::from_parts(step.defer()?, Layout::shaped(shape), dtype))
    }

    /// Zeros, as `f32`.
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn zeros(shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::zeros_with(shape, DType::F32)
    }

    /// Zeros of a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// # Errors
    /// If the shape is too large, memory runs out, or there is no such device.
    pub fn zeros_with(shape: impl Into<Shape>, kind: impl Into<TensorOptions>) -> Result<Tensor> {
        let TensorOptions { dtype, device } = kind.into();
        Tensor::filled("zeros", shape.into(), Scalar::I64(0), dtype, device)
    }

    /// Ones, as `f32`.
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn ones(shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::ones_with(shape, DType::F32)
    }

    /// Ones of a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// # Errors
    /// If the shape is too large, memory runs out, or there is no such device.
    pub fn ones_with(shape: impl Into<Shape>, kind: impl Into<TensorOptions>) -> Result<Tensor> {
        let TensorOptions { dtype, device } = kind.into();
        Tensor::filled("ones", shape.into(), Scalar::I64(1), dtype, device)
    }

    /// One number everywhere: `f32` from a float, `i64` from an integer, `bool` from a bool.
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn full(shape: impl Into<Shape>, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        Tensor::full_with(shape, value, value.default_dtype())
    }

    /// One number everywhere, of a dtype, on a device, or both: see [`TensorOptions`].
    ///
    /// # Errors
    /// If the shape is too large, memory runs out, or there is no such device.
    pub fn full_with(
        shape: impl Into<Shape>,
        value: impl Into<Scalar>,
        kind: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let TensorOptions { dtype, device } = kind.into();
        Tensor::filled("full", shape.into(), value.into(), dtype, device)
    }

    /// Zeros of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn zeros_like(&self) -> Result<Tensor> {
        self.full_like(0)
    }

    /// Ones of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn ones_like(&self) -> Result<Tensor> {
        self.full_like(1)
    }

    /// One number in this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::filled("full_like", self.layout().shape().clone(), value.into(), self.dtype(), self.device())
    }

    /// `start`, `start + step`, … up to but without `end`: `i64` from integers, `f32` if any of them is a float.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// assert_eq!(Tensor::arange(0, 10, 3)?.to_vec::<i64>()?, [0, 3, 6, 9]);
    /// assert_eq!(Tensor::arange(1.0, 0.0, -0.5)?.to_vec::<f32>()?, [1.0, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the step is 0 or leads away from `end`, or a number is not finite.
    pub fn arange(start: impl Into<Scalar>, end: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        let (start, end, step) = (start.into(), end.into(), step.into());
        let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
        if !(a.is_finite() && b.is_finite() && s.is_finite()) || s == 0.0 || (b - a) / s < 0.0 {
            bail!(Value, "arange", "no range from {start} to {end} in steps of {step}");
        }
        if let (Scalar::I64(a), Scalar::I64(b), Scalar::I64(s)) = (start, end, step) {
            // In i128, as the span of two i64 can exceed i64.
            let n = (i128::from(b) - i128::from(a)).unsigned_abs().div_ceil(u128::from(s.unsigned_abs()));
            let n = usize::try_from(n).unwrap_or(usize::MAX);
            let out = Tensor::empty("arange", n.into(), DType::I64, Device::Cpu)?;
            return out.filled_from((0..n as i64).map(|i| a.wrapping_add(i.wrapping_mul(s))));
        }
        let n = ((b - a) / s).ceil() as usize;
        let out = Tensor::empty("arange", n.into(), DType::F32, Device::Cpu)?;
        out.filled_from((0..n).map(|i| (a + i as f64 * s) as f32))
    }

    /// `n` numbers at equal distances from `start` to `end`, both included, as `f32`.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn linspace(start: f64, end: f64, n: usize) -> Result<Tensor> {
        let out = Tensor::empty("linspace", n.into(), DType::F32, Device::Cpu)?;
        let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
        // The second half counts from the end, so that the last number is exactly `end`.
        let at = |i: usize| if i < n / 2 || n == 1 { start + step * i as f64 } else { end - step * (n - 1 - i) as f64 };
        out.filled_from((0..n).map(|i| at(i) as f32))
    }

    /// The identity matrix, as `f32`.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn eye(n: usize) -> Result<Tensor> {
        let mut out = Tensor::zeros([n, n])?;
        if let Some(data) = out.as_mut_slice::<f32>("eye")? {
            data.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        }
        Ok(out)
    }

    /// Numbers drawn evenly from [0, 1), as `f32`, by the process-wide generator (see
    /// [`manual_seed`](crate::manual_seed)).
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn rand(shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("rand", shape.into(), DType::F32, Numbers::Uniform, random::next_range)
    }

    /// Numbers drawn from the standard normal distribution, as `f32`.
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn randn(shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("randn", shape.into(), DType::F32, Numbers::Normal, random::next_range)
    }

    /// Integers drawn evenly from `low` up to but without `high`, as `i64`.
    ///
    /// # Errors
    /// If there is no integer in that range.
    pub fn randint(low: i64, high: i64, shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("randint", shape.into(), DType::I64, Numbers::Int(low, high), random::next_range)
    }

    /// Uniform random numbers of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If the tensor is not of floating point.
    pub fn rand_like(&self) -> Result<Tensor> {
        random_tensor(
            "rand_like",
            self.layout().shape().clone(),
            (self.dtype(), self.device()),
            Numbers::Uniform,
            random::next_range,
        )
    }

    /// Normal random numbers of this tensor's shape, dtype and device.
    ///
    /// # Errors
    /// If the tensor is not of floating point.
    pub fn randn_like(&self) -> Result<Tensor> {
        random_tensor(
            "randn_like",
            self.layout().shape().clone(),
            (self.dtype(), self.device()),
            Numbers::Normal,
            random::next_range,
        )
    }
}

/// Draws with a generator of one's own: the same seed gives the same numbers, whatever else is drawn.
///
/// ```
/// use cotangent::Generator;
/// let a = Generator::seed(42).randn([3])?;
/// let b = Generator::seed(42).randn([3])?;
/// assert_eq!(a.to_vec::<f32>()?, b.to_vec::<f32>()?);
/// # Ok::<(), cotangent::Error>(())
/// ```
impl Generator {
    /// As [`Tensor::rand`].
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn rand(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("rand", shape.into(), DType::F32, Numbers::Uniform, |n| self.take(n))
    }

    /// As [`Tensor::randn`].
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    pub fn randn(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("randn", shape.into(), DType::F32, Numbers::Normal, |n| self.take(n))
    }

    /// As [`Tensor::rand`], of a floating point dtype, on a device, or both: see [`TensorOptions`]. The numbers are the same on every
    /// device.
    ///
    /// # Errors
    /// If the dtype is not of floating point, or there is no such device.
    pub fn rand_with(&mut self, shape: impl Into<Shape>, kind: impl Into<TensorOptions>) -> Result<Tensor> {
        random_tensor("rand", shape.into(), kind, Numbers::Uniform, |n| self.take(n))
    }

    /// As [`Tensor::randn`], of a floating point dtype, on a device, or both: see [`TensorOptions`]. The numbers are the same on every
    /// device.
    ///
    /// # Errors
    /// If the dtype is not of floating point, or there is no such device.
    pub fn randn_with(&mut self, shape: impl Into<Shape>, kind: impl Into<TensorOptions>) -> Result<Tensor> {
        random_tensor("randn", shape.into(), kind, Numbers::Normal, |n| self.take(n))
    }

    /// As [`Tensor::randint`].
    ///
    /// # Errors
    /// If there is no integer in that range.
    pub fn randint(&mut self, low: i64, high: i64, shape: impl Into<Shape>) -> Result<Tensor> {
        random_tensor("randint", shape.into(), DType::I64, Numbers::Int(low, high), |n| self.take(n))
    }
}

/// What is to be drawn.
#[derive(Clone, Copy)]
enum Numbers {
    Uniform,
    Normal,
    Int(i64, i64),
}

fn random_tensor(
    op: &'static str,
    shape: Shape,
    kind: impl Into<TensorOptions>,
    numbers: Numbers,
    take: impl FnOnce(u64) -> (u64, u64),
) -> Result<Tensor> {
    let TensorOptions { dtype, device } = kind.into();
    match numbers {
        Numbers::Int(low, high) if low >= high => bail!(Value, op, "there is no integer from {low} up to {high}"),
        Numbers::Uniform | Numbers::Normal if !dtype.is_float() => {
            bail!(DType, op, "cannot draw random numbers of dtype {dtype}")
        }
        _ => {}
    }
    let draw = match (numbers, dtype) {
        (Numbers::Normal, _) => Draw::Normal,
        (Numbers::Int(low, high), _) => Draw::Integers(low, high),
        // Fewer bits for half precision, so that rounding cannot reach 1.
        (Numbers::Uniform, DType::F16) => Draw::Uniform(11),
        (Numbers::Uniform, DType::BF16) => Draw::Uniform(8),
        (Numbers::Uniform, _) => Draw::Uniform(24),
    };
    // Half precision draws are f32 draws, rounded.
    let wide = if dtype == DType::F64 || dtype == DType::I64 { dtype } else { DType::F32 };
    let mut out = Tensor::empty(op, shape, if device == Device::Cpu { wide } else { dtype }, device)?;
    let per_counter = if wide == DType::F32 { random::PER_COUNTER_32 } else { random::PER_COUNTER_64 };
    let range = take(random::counters(out.numel() as u64, per_counter));
    backend::draw(op, draw, range, &mut out.as_view_mut(op)?)?;
    out.to_dtype(dtype)
}
