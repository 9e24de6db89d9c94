//! Constants, ranges and random numbers.

use crate::backend::{self, Draw};
use crate::dtype::with_any_dtype;
use crate::error::bail;
use crate::ops::arg::{Arg, ArgKind, FromArg};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, sample, spread};
use crate::options::options;
use crate::{DType, Device, Element, Result, Scalar, Shape, Tensor, TensorOptions, random};
use std::f64::consts::FRAC_1_SQRT_2;

options! {
    /// The options of [`Tensor::arange_with`]. A number converts to the step, a dtype to the dtype.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, options::ArangeOptions};
    /// let options = ArangeOptions::new().step(2).dtype(DType::F64);
    /// assert_eq!(Tensor::arange_with(0, 6, options)?.to_vec::<f64>()?, [0.0, 2.0, 4.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ArangeOptions {
        /// The difference of neighbouring elements.
        step: Scalar = Scalar::I64(1),
        /// The dtype: by default `i64` for integers, `f32` if any of the numbers is a float.
        dtype: Option<DType> = None,
        /// The device: by default the CPU.
        device: Option<Device> = None,
    }
}

/// Converts a dtype, a device, or both, to options that contain these.
macro_rules! where_and_what {
    ($($options:ident),+) => {$(
        impl From<DType> for $options {
            fn from(dtype: DType) -> $options { $options::new().dtype(dtype) }
        }

        impl From<Device> for $options {
            fn from(device: Device) -> $options { $options::new().device(device) }
        }

        impl From<(DType, Device)> for $options {
            fn from((dtype, device): (DType, Device)) -> $options { $options::new().dtype(dtype).device(device) }
        }
    )+};
}
pub(in crate::ops) use where_and_what;
where_and_what!(ArangeOptions, EyeOptions);

macro_rules! steps {
    ($($number:ty),+) => {$(
        impl From<$number> for ArangeOptions {
            fn from(step: $number) -> ArangeOptions { ArangeOptions::new().step(step) }
        }
    )+};
}
steps!(f64, f32, i64, i32, isize);

options! {
    /// The options of [`Tensor::eye_with`]. A number converts to the columns, a dtype to the dtype.
    ///
    /// ```
    /// use cotangent::{DType, Tensor, options::EyeOptions};
    /// let x = Tensor::eye_with(2, EyeOptions::new().m(3_usize).dtype(DType::I64))?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 0, 0, 0, 1, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EyeOptions {
        /// The number of columns: by default that of rows.
        m: Option<usize> = None,
        /// The dtype: by default `f32`.
        dtype: Option<DType> = None,
        /// The device: by default the CPU.
        device: Option<Device> = None,
    }
}

impl From<usize> for EyeOptions {
    fn from(m: usize) -> EyeOptions {
        EyeOptions::new().m(m)
    }
}

pub(in crate::ops) fn of_options(dtype: Option<DType>, device: Option<Device>) -> TensorOptions {
    TensorOptions::new().dtype(dtype).device(device)
}

/// # Creation
#[ops]
impl Tensor {
    /// A tensor of zeros, `f32`. PyTorch's `empty` does the same here: uninitialized memory is never returned.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::zeros([2, 3])?.to_vec::<f32>()?, [0.0; 6]);
    /// assert_eq!(Tensor::zeros_with([2], DType::I64)?.to_vec::<i64>()?, [0, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[doc(alias = "empty")]
    #[op(samples = shapes, errors = too_large, aliases = ["empty"], derivative = none)]
    pub fn zeros(size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let (dtype, device) = options.or(DType::F32);
        Tensor::filled("zeros", size, Scalar::I64(0), dtype, device)
    }

    /// A tensor of ones, `f32`.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::ones([2, 3])?.to_vec::<f32>()?, [1.0; 6]);
    /// assert_eq!(Tensor::ones_with([2], DType::Bool)?.to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large or memory runs out.
    #[op(samples = shapes, errors = too_large, derivative = none)]
    pub fn ones(size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let (dtype, device) = options.or(DType::F32);
        Tensor::filled("ones", size, Scalar::I64(1), dtype, device)
    }

    /// A tensor filled with one value: `f32` for a float, `i64` for an integer, `bool` for a bool.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::full([2], 7)?.to_vec::<i64>()?, [7, 7]);
    /// assert_eq!(Tensor::full_with([2], 7, DType::F64)?.to_vec::<f64>()?, [7.0, 7.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large, memory runs out, or the dtype cannot represent the number.
    #[op(samples = || Ok(vec![sample![[2, 3], 1.5], sample![[2], 3], sample![[], true], sample![[2], 255; dtype = DType::U8]]),
        errors = || Ok(vec![error!["too large", "bytes"; sample![[isize::MAX, 8], 1.5]], error!["no such number", "-1", "u8"; sample![[2], -1; dtype = DType::U8]]]), derivative = none)]
    pub fn full(
        size: impl Into<Shape>,
        fill_value: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let (dtype, device) = options.or(fill_value.default_dtype());
        fill_value.check_element("full", dtype)?;
        Tensor::filled("full", size, fill_value, dtype, device)
    }

    /// Zeros with the shape, dtype and device of this tensor. PyTorch's `empty_like` does the same here.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor, tensor};
    /// assert_eq!(tensor!([1, 2])?.zeros_like()?.to_vec::<i64>()?, [0, 0]);
    /// assert_eq!(tensor!([1, 2])?.zeros_like_with(DType::F32)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?], sample![spread([0], -1.0, 1.0)?; dtype = DType::I64]]), aliases = ["empty_like"], derivative = none)]
    #[doc(alias = "empty_like")]
    pub fn zeros_like(&self, options: impl Into<TensorOptions>) -> Result<Tensor> {
        like("zeros_like", self, Scalar::I64(0), options)
    }

    /// Ones with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor, tensor};
    /// assert_eq!(tensor!([1.5, 2.0])?.ones_like()?.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert_eq!(tensor!([1.5, 2.0])?.ones_like_with(DType::Bool)?.to_vec::<bool>()?, [true, true]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?], sample![spread([0], -1.0, 1.0)?; dtype = DType::I64]]), derivative = none)]
    pub fn ones_like(&self, options: impl Into<TensorOptions>) -> Result<Tensor> {
        like("ones_like", self, Scalar::I64(1), options)
    }

    /// One value with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor, tensor};
    /// assert_eq!(tensor!([1.5, 2.0])?.full_like(3)?.to_vec::<f32>()?, [3.0, 3.0]);
    /// assert_eq!(tensor!([1.5, 2.0])?.full_like_with(3, DType::I64)?.to_vec::<i64>()?, [3, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?, 2.5], sample![spread([0], -1.0, 1.0)?, 1; dtype = DType::I64]]), derivative = none)]
    pub fn full_like(&self, fill_value: impl Into<Scalar>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        like("full_like", self, fill_value, options)
    }

    /// The numbers `start`, `start + 1`, … below `end`; the step is an option. `i64` for integer arguments, `f32` if
    /// any argument is a float.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::arange(0, 4)?.to_vec::<i64>()?, [0, 1, 2, 3]);
    /// assert_eq!(Tensor::arange_with(0, 10, 3)?.to_vec::<i64>()?, [0, 3, 6, 9]);
    /// assert_eq!(Tensor::arange_with(1.0, 0.0, -0.5)?.to_vec::<f32>()?, [1.0, 0.5]);
    /// assert_eq!(Tensor::arange_with(0, 2, DType::F64)?.to_vec::<f64>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the step is 0 or leads away from `end`, or a number is not finite.
    #[op(samples = arange_samples, errors = arange_errors, derivative = none)]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<RangeEnd>,
        options: impl Into<ArangeOptions>,
    ) -> Result<Tensor> {
        let ArangeOptions { step, dtype, device } = options;
        let (start, end) = end.after(start);
        // Complex numbers become NaN here.
        let (a, b, s) = (start.to_f64(), end.to_f64(), step.to_f64());
        if !(a.is_finite() && b.is_finite() && s.is_finite()) || s == 0.0 || (b - a) / s < 0.0 {
            bail!(
                Value,
                "arange",
                "step must lead from start to end and all must be finite, got start {start}, end {end} and step {step}"
            );
        }
        let options = of_options(dtype, device);
        #[cfg(feature = "cuda")]
        if let (Scalar::I64(a), Scalar::I64(b), Scalar::I64(1)) = (start, end, step)
            && crate::backend::is_recording(options.or(DType::I64).1)
            && b > a
        {
            // Nothing can be copied to a GPU while a step is recorded: these are sums of ones.
            let (dtype, device) = options.or(DType::I64);
            let n = usize::try_from(b.saturating_sub(a)).unwrap_or(usize::MAX);
            return Tensor::ones_with([n], (DType::I64, device))?.cumsum(0)?.add(a.saturating_sub(1))?.to_dtype(dtype);
        }
        if let (Scalar::I64(a), Scalar::I64(b), Scalar::I64(s)) = (start, end, step) {
            // In i128, as the span of two i64 can exceed i64.
            let n = (i128::from(b) - i128::from(a)).unsigned_abs().div_ceil(u128::from(s.unsigned_abs()));
            let n = usize::try_from(n).unwrap_or(usize::MAX);
            let (at, (dtype, device)) = (|i: usize| a.wrapping_add((i as i64).wrapping_mul(s)), options.or(DType::I64));
            if dtype == DType::I64 {
                // The most common case: indices.
                return Tensor::empty("arange", n.into(), dtype, Device::Cpu)?
                    .filled_from((0..n).map(at))?
                    .to_device(device);
            }
            return numbers("arange", n, (dtype, device), at);
        }
        let n = ((b - a) / s).ceil() as usize;
        // For an integer dtype the start and the step are truncated.
        let whole = dtype.is_some_and(DType::is_int);
        let (a, s) = if whole { (a.trunc(), s.trunc()) } else { (a, s) };
        numbers("arange", n, options.or(DType::F32), |i| a + i as f64 * s)
    }

    /// `steps` evenly spaced numbers from `start` to `end`, both included, `f32`.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::linspace(0.0, 1.0, 5)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// assert_eq!(Tensor::linspace_with(0.0, 1.0, 2, DType::F64)?.to_vec::<f64>()?, [0.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![0.0, 1.0, 5], sample![-2.0, 3.0, 1], sample![1.0, -1.0, 4; dtype = DType::F64], sample![0.0, 1.0, 0]]), derivative = none)]
    pub fn linspace(start: f64, end: f64, steps: usize, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let of = options.or(DType::F32);
        numbers("linspace", steps, of, even_steps(start, end, steps, of.0))
    }

    /// The identity matrix with `n` rows, `f32`. The number of columns is an option.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::eye(2)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// assert_eq!(Tensor::eye_with(2, 3)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[op(samples = || Ok(vec![sample![3], sample![2, 4], sample![4, 2; dtype = DType::I64], sample![0]]),
        errors = || Ok(vec![error!["too large", "bytes"; sample![(1_u64 << 40) as usize, (1_u64 << 40) as usize]]]), derivative = none)]
    pub fn eye(n: usize, options: impl Into<EyeOptions>) -> Result<Tensor> {
        let m = options.m.unwrap_or(n);
        let mut out = Tensor::filled("eye", [n, m].into(), Scalar::I64(0), DType::F64, Device::Cpu)?;
        if let Some(data) = out.as_mut_slice::<f64>("eye")? {
            data.iter_mut().step_by(m.saturating_add(1)).take(n.min(m)).for_each(|x| *x = 1.0);
        }
        let (dtype, device) = of_options(options.dtype, options.device).or(DType::F32);
        out.to_dtype(dtype)?.to_device(device)
    }

    /// Uniform random numbers from [0, 1), `f32`. [`manual_seed`](crate::manual_seed) seeds them.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert!(Tensor::rand([100])?.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
    /// assert_eq!(Tensor::rand_with([2], DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large, the dtype is not of floating point, or memory runs out.
    #[op(samples = shapes, errors = no_such_numbers, derivative = none, random)]
    pub fn rand(size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        random_tensor("rand", size, options, Distribution::Uniform, random::next_range)
    }

    /// Random numbers from the standard normal distribution, `f32`. [`manual_seed`](crate::manual_seed) seeds them.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::randn([2, 3])?.shape(), [2, 3]);
    /// assert_eq!(Tensor::randn_with([2, 3], DType::BF16)?.dtype(), DType::BF16);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape is too large, the dtype is not of floating point, or memory runs out.
    #[op(samples = shapes, errors = no_such_numbers, derivative = none, random)]
    pub fn randn(size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        random_tensor("randn", size, options, Distribution::Normal, random::next_range)
    }

    /// Uniform random integers from `low` (included) to `high` (excluded), `i64`. [`manual_seed`](crate::manual_seed) seeds them.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert!(Tensor::randint(-2, 3, [100])?.to_vec::<i64>()?.iter().all(|x| (-2..3).contains(x)));
    /// assert_eq!(Tensor::randint_with(0, 256, [100], DType::U8)?.dtype(), DType::U8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `low` is not less than `high`.
    #[op(samples = || Ok(vec![sample![-3, 4, [2, 3]], sample![0, 1, []], sample![0, 200, [5]; dtype = DType::U8]]),
        errors = || Ok(vec![error!["an empty range", "3"; sample![3, 3, [2]]]]), derivative = none, random)]
    pub fn randint(low: i64, high: i64, size: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        random_tensor("randint", size, options, Distribution::Integers(low, high), random::next_range)
    }

    /// Uniform random numbers from [0, 1) with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::zeros([2, 3])?.rand_like()?.shape(), [2, 3]);
    /// assert_eq!(Tensor::zeros([2, 3])?.rand_like_with(DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floating point.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?]]), derivative = none, random)]
    pub fn rand_like(&self, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let shape = self.layout().shape().clone();
        random_tensor("rand_like", shape, alike(self, options), Distribution::Uniform, random::next_range)
    }

    /// Standard normal random numbers with the shape, dtype and device of this tensor.
    ///
    /// ```
    /// # use cotangent::{DType, Tensor};
    /// assert_eq!(Tensor::zeros([2, 3])?.randn_like()?.shape(), [2, 3]);
    /// assert_eq!(Tensor::zeros([2, 3])?.randn_like_with(DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floating point.
    #[op(samples = || Ok(vec![sample![spread([2, 3], -1.0, 1.0)?]]), derivative = none, random)]
    pub fn randn_like(&self, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let shape = self.layout().shape().clone();
        random_tensor("randn_like", shape, alike(self, options), Distribution::Normal, random::next_range)
    }
}

/// The options, with the dtype and device of a tensor by default.
pub(in crate::ops) fn alike(x: &Tensor, options: TensorOptions) -> TensorOptions {
    TensorOptions { dtype: options.dtype.or(Some(x.dtype())), device: options.device.or(Some(x.device())) }
}

fn like(op: &'static str, x: &Tensor, value: Scalar, options: TensorOptions) -> Result<Tensor> {
    let (dtype, device) = alike(x, options).or(x.dtype());
    value.check_element(op, dtype)?;
    Tensor::filled(op, x.layout().shape().clone(), value, dtype, device)
}

/// The end of a range, which is excluded. If the only number is given as `start`, as callers of the operation table can, the
/// range goes from 0 to that number.
///
/// ```
/// use cotangent::{Tensor, ops};
/// let arange = ops::find("arange").ok_or("there is one")?;
/// assert_eq!(arange.call(&arange.bind(&[3.into()], &[])?)?[0].to_vec::<i64>()?, [0, 1, 2]);
/// assert_eq!(Tensor::arange(1, 3)?.to_vec::<i64>()?, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RangeEnd(Option<Scalar>);

impl RangeEnd {
    /// Both ends of the range, of which the first given number is `start`.
    pub(in crate::ops) fn after(self, start: Scalar) -> (Scalar, Scalar) {
        self.0.map_or((Scalar::I64(0), start), |end| (start, end))
    }
}

impl<T: Into<Scalar>> From<T> for RangeEnd {
    fn from(end: T) -> RangeEnd {
        RangeEnd(Some(end.into()))
    }
}

impl From<RangeEnd> for Arg {
    fn from(end: RangeEnd) -> Arg {
        end.0.into()
    }
}

impl<'a> FromArg<'a> for RangeEnd {
    const KIND: ArgKind = ArgKind::Scalar;
    const DEFAULT: Option<fn() -> Arg> = Some(|| Arg::None);

    fn from_arg(arg: &'a Arg) -> Option<Self> {
        Option::<Scalar>::from_arg(arg).map(RangeEnd)
    }
}

/// The distribution of random numbers.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Distribution {
    Uniform,
    Normal,
    Integers(i64, i64),
}

pub(in crate::ops) fn random_tensor(
    op: &'static str,
    shape: Shape,
    options: TensorOptions,
    numbers: Distribution,
    take: impl FnOnce(u64) -> (u64, u64),
) -> Result<Tensor> {
    let default = if matches!(numbers, Distribution::Integers(..)) { DType::I64 } else { DType::F32 };
    let (dtype, device) = options.or(default);
    if dtype.is_complex() && !matches!(numbers, Distribution::Integers(..)) {
        let mut pairs = shape;
        pairs.insert(pairs.len(), 2);
        let parts = random_tensor(op, pairs, options.dtype(dtype.to_real()), numbers, take)?;
        // The variance of a complex normal number is 1, the sum of those of its parts.
        let parts = if matches!(numbers, Distribution::Normal) { parts.mul(FRAC_1_SQRT_2)? } else { parts };
        return parts.view_as_complex();
    }
    match numbers {
        Distribution::Integers(low, high) if low >= high => {
            bail!(Value, op, "low must be less than high, got {low} and {high}")
        }
        Distribution::Uniform | Distribution::Normal if !dtype.is_float() => {
            bail!(DType, op, "dtype must be floating point or complex, got {dtype}")
        }
        _ => {}
    }
    let (draw, drawn) = match (numbers, dtype) {
        (Distribution::Normal, _) => (Draw::Normal, dtype),
        // Integers are drawn as i64, and cast.
        (Distribution::Integers(low, high), _) => (Draw::Integers(low, high), DType::I64),
        // Fewer bits for half precision, so that rounding cannot reach 1.
        (Distribution::Uniform, DType::F16) => (Draw::Uniform(11), dtype),
        (Distribution::Uniform, DType::BF16) => (Draw::Uniform(8), dtype),
        (Distribution::Uniform, _) => (Draw::Uniform(24), dtype),
    };
    // Half precision draws are f32 draws, rounded.
    let wide = if drawn == DType::F64 || drawn == DType::I64 { drawn } else { DType::F32 };
    let mut out = Tensor::empty(op, shape, if device == Device::Cpu { wide } else { drawn }, device)?;
    let per_counter = if wide == DType::F32 { random::PER_COUNTER_32 } else { random::PER_COUNTER_64 };
    let range = take(random::counters(out.numel() as u64, per_counter));
    backend::draw(op, draw, range, &mut out.as_view_mut(op)?)?;
    out.to_dtype(dtype)
}

fn shapes() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![[2, 3]],
        sample![[]],
        sample![[2, 0]],
        sample![[4]; dtype = DType::F64],
        sample![[4]; dtype = DType::C64],
    ])
}

fn too_large() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["too large", "bytes"; sample![[isize::MAX, 8]]], error!["a negative size", "sizes"; sample![[-1]]]])
}

fn no_such_numbers() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["integers", "i64"; sample![[2]; dtype = DType::I64]]])
}

/// `n` numbers as a function of their positions, written in the requested dtype at once, without a second buffer.
pub(in crate::ops) fn numbers<S: Into<Scalar>>(
    op: &'static str,
    n: usize,
    of: (DType, Device),
    at: impl Fn(usize) -> S,
) -> Result<Tensor> {
    scalars(op, n, of, &|i| at(i).into())
}

/// Evenly spaced numbers, both ends included. For integer dtypes the ends are truncated.
pub(in crate::ops) fn even_steps(start: f64, end: f64, steps: usize, dtype: DType) -> impl Fn(usize) -> f64 {
    let whole = dtype.is_int() || dtype == DType::Bool;
    let (start, end) = if whole { (start.trunc(), end.trunc()) } else { (start, end) };
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    // The second half counts from the end, so that the last number is exactly `end`.
    move |i| match i {
        i if i < steps / 2 || steps == 1 => start + step * i as f64,
        i => end - step * (steps - 1 - i) as f64,
    }
}

/// As [`numbers`], with dynamic dispatch: compiled once for each dtype, not for each sequence.
fn scalars(
    op: &'static str,
    n: usize,
    (dtype, device): (DType, Device),
    at: &dyn Fn(usize) -> Scalar,
) -> Result<Tensor> {
    // The sequence is monotonic: all numbers fit if the ends do.
    if n > 0 {
        at(0).check_element(op, dtype)?;
        at(n - 1).check_element(op, dtype)?;
    }
    let out = Tensor::empty(op, n.into(), dtype, Device::Cpu)?;
    let made = with_any_dtype!(dtype, T => out.filled_from((0..n).map(|i| <T as Element>::from_scalar(at(i)))));
    made?.to_device(device)
}

fn arange_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![0, 5],
        sample![0, 10, 3],
        sample![4],
        sample![-0.9, 2.1, 2.0; dtype = DType::I64],
        sample![5, 0; step = -2],
        sample![0.0, 1.0, 0.25],
        sample![3, 3],
        sample![0, 4; dtype = DType::F64],
    ])
}

fn arange_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a step of 0", "0"; sample![0, 5, 0]],
        error!["the wrong way", "-1"; sample![0, 5, -1]],
        error!["not a number", "NaN"; sample![0.0, f64::NAN]],
        error!["too long", "bytes"; sample![i64::MIN, i64::MAX]],
    ])
}
