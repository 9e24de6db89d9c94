//! Fourier transforms.
//!
//! Three of them are kernels, without a factor: complex to complex along any dimension, and real to complex and complex to
//! real along the last one. All others, and the derivatives, consist of these.

use crate::autograd::BackwardContext;
use crate::backend::kernel;
use crate::error::bail;
use crate::layout::{Dim, Dims};
use crate::layout::{resolve_dim, resolve_dims};
use crate::ops::arg::choices;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::options::options;
use crate::{DType, Device, Result, Tensor, TensorOptions};
use smallvec::smallvec;

choices! {
    /// Where the factor 1/n of a Fourier transform goes.
    ///
    /// ```
    /// use cotangent::{fft, options::{FftNorm, FftOptions}, tensor};
    /// let x = tensor!([1.0, 3.0])?;
    /// let mean = fft::rfft_with(&x, FftOptions::new().norm(FftNorm::Forward))?.real()?.select(0, 0)?;
    /// assert_eq!(mean.item::<f32>()?, 2.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum FftNorm {
        /// 1/n to the inverse transform.
        #[default]
        Backward = "backward",
        /// 1/√n to both, which makes them unitary.
        Ortho = "ortho",
        /// 1/n to the transform.
        Forward = "forward",
    }
}

impl FftNorm {
    pub(in crate::ops) fn factor(self, n: usize, forward: bool) -> f64 {
        match (self, forward) {
            (FftNorm::Backward, true) | (FftNorm::Forward, false) => 1.0,
            (FftNorm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            _ => 1.0 / n as f64,
        }
    }
}

options! {
    /// The options of Fourier transforms along one dimension. A number converts to the length.
    ///
    /// ```
    /// use cotangent::{fft, options::{FftNorm, FftOptions}, Tensor};
    /// let x = Tensor::randn([3, 5])?;
    /// let y = fft::fft_with(&x, FftOptions::new().n(8).dim(0).norm(FftNorm::Ortho))?;
    /// assert_eq!(y.shape(), [8, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct FftOptions {
        /// The length that the dimension is truncated or zero-padded to.
        n: Option<usize> = None,
        /// The dimension.
        dim: Dim = Dim(-1),
        /// Where the factor 1/n goes.
        norm: FftNorm = FftNorm::Backward,
    }
}

impl From<usize> for FftOptions {
    fn from(n: usize) -> FftOptions {
        FftOptions::new().n(n)
    }
}

/// Truncates or zero-pads a dimension to `take` elements.
#[track_caller]
fn resized(op: &'static str, x: &Tensor, dim: usize, take: usize) -> Result<Tensor> {
    let size = x.shape()[dim];
    if take == 0 {
        bail!(
            Value,
            op,
            "the length of the transform must be positive, got 0 for dimension {dim} of shape {:?}",
            x.shape()
        );
    }
    if take <= size {
        return if take < size { x.narrow(dim, 0, take) } else { Ok(x.clone()) };
    }
    let mut rest = x.shape().to_vec();
    rest[dim] = take - size;
    Tensor::cat(&[x, &Tensor::zeros_with(&rest, (x.dtype(), x.device()))?], dim)
}

/// Rows that are ready for a transform, and the dimension that they come from.
struct Rows {
    x: Tensor,
    dim: usize,
    n: usize,
}

impl Rows {
    /// Moves the dimension to the end, with `take` elements; `n` is the length of the transform.
    #[track_caller]
    fn new(op: &'static str, x: &Tensor, dim: usize, take: usize, n: usize) -> Result<Rows> {
        // A length of 0 is refused in either direction.
        let x = resized(op, x, dim, if n == 0 { 0 } else { take })?.transpose(dim, -1)?;
        Ok(Rows { x, dim, n })
    }

    #[track_caller]
    fn r2c(&self) -> Result<Tensor> {
        r2c(&self.x)
    }

    #[track_caller]
    fn c2r(&self) -> Result<Tensor> {
        c2r(&self.x, self.n)
    }

    /// Scales the result of a transform, and moves the dimension back.
    #[track_caller]
    fn finish(&self, y: &Tensor, factor: f64) -> Result<Tensor> {
        let y = y.transpose(self.dim, -1)?;
        if factor == 1.0 { Ok(y) } else { y.mul(factor) }
    }
}

/// The unscaled transform of complex numbers along `dims` dimensions, which are followed by `after` others.
#[track_caller]
pub(in crate::ops) fn c2c(x: &Tensor, dims: usize, after: usize, forward: bool) -> Result<Tensor> {
    if let Some(done) = x.with_examples(|x| c2c(x, dims, after, forward)) {
        return done;
    }
    let first = x.rank() - after - dims;
    if x.device() != Device::Cpu && after > 0 {
        let rows = x.transpose(first, -1)?;
        return c2c(&rows, dims, 0, forward)?.transpose(first, -1);
    }
    let (lengths, others) = x.shape()[first..].split_at(dims);
    let (pairs, inner) = (x.detach().view_as_real()?.contiguous()?, others.iter().product());
    let shape = pairs.layout().shape().clone();
    let out = Tensor::build("fft", shape, pairs.dtype(), x.device(), |out| {
        let x = pairs.as_view()?;
        kernel!("fft" on [x, out]: linalg::fft::c2c(x, lengths, inner, forward, out))
    })?;
    // The matrix of the transform is symmetric, and its conjugate is the matrix of the other direction.
    out.view_as_complex()?.record("fft", &[x], |_| {
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(c2c(g, dims, after, !forward)?)])
    })
}

/// The first half of the unscaled transform of real numbers along the last dimension.
#[track_caller]
fn r2c(x: &Tensor) -> Result<Tensor> {
    if let Some(done) = x.with_examples(r2c) {
        return done;
    }
    let (mut whole, n) = (x.detach().contiguous()?, x.shape()[x.rank() - 1]);
    if whole.device() != Device::Cpu && !whole.offset().is_multiple_of(2) {
        // cuFFT reads pairs, whose address must be a multiple of their size.
        whole = whole.deep_clone()?;
    }
    let mut shape = whole.layout().shape().with(x.rank() - 1, n / 2 + 1);
    shape.insert(x.rank(), 2);
    let out = Tensor::build("rfft", shape, whole.dtype(), x.device(), |out| {
        let x = whole.as_view()?;
        kernel!("rfft" on [x, out]: linalg::fft::r2c(x, n, out))
    })?;
    out.view_as_complex()?.record("rfft", &[x], |_| {
        move |_: &BackwardContext, g: &Tensor| {
            // The inverse transform, with zeros in the other half.
            let whole = resized("rfft", g, g.rank() - 1, n)?;
            Ok(smallvec![Some(c2c(&whole, 1, 0, false)?.real()?)])
        }
    })
}

/// The unscaled inverse transform to `n` real numbers, from the first half of the frequencies, along the last dimension.
#[track_caller]
fn c2r(x: &Tensor, n: usize) -> Result<Tensor> {
    if let Some(done) = x.with_examples(|x| c2r(x, n)) {
        return done;
    }
    let pairs = x.detach().view_as_real()?.contiguous()?;
    let shape = x.layout().shape().with(x.rank() - 1, n);
    let out = Tensor::build("irfft", shape, pairs.dtype(), x.device(), |out| {
        let x = pairs.as_view()?;
        kernel!("irfft" on [x, out]: linalg::fft::c2r(x, n, out))
    })?;
    out.record("irfft", &[x], |_| {
        let from = x.layout().shape().clone();
        move |_: &BackwardContext, g: &Tensor| {
            if g.numel() == 0 {
                // Without elements `n` may be of any size: nothing of that length is allocated.
                return Ok(smallvec![Some(Tensor::zeros_with(&from, (g.dtype().to_complex(), g.device()))?)]);
            }
            // Every number counts twice, for itself and its conjugate, except those that are real.
            let half = n / 2 + 1;
            let mut weights = Tensor::full_with([half], 2.0, (g.dtype(), g.device()))?;
            weights.set(0, 1.0)?;
            if n.is_multiple_of(2) {
                weights.set(half as isize - 1, 1.0)?;
            }
            Ok(smallvec![Some(r2c(g)?.mul(&weights)?)])
        }
    })
}

/// Casts to complex numbers.
#[track_caller]
pub(in crate::ops) fn complex_numbers(op: &'static str, x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => {
            bail!(DType, op, "half precision is not supported, got {}: cast to f32 first", x.dtype())
        }
        dtype => x.to_dtype(dtype.to_complex()),
    }
}

#[track_caller]
pub(in crate::ops) fn one_dim(op: &'static str, x: &Tensor, options: &FftOptions, forward: bool) -> Result<Tensor> {
    let dim = resolve_dim(op, options.dim.0, x.rank())?;
    let n = options.n.unwrap_or(x.shape()[dim]);
    let y = c2c(&resized(op, &complex_numbers(op, x)?, dim, n)?, 1, x.rank() - 1 - dim, forward)?;
    let factor = options.norm.factor(n, forward);
    if factor == 1.0 { Ok(y) } else { y.mul(factor) }
}

/// Real numbers along the dimension of the options.
#[track_caller]
fn real_rows(op: &'static str, x: &Tensor, options: &FftOptions) -> Result<Rows> {
    let dim = resolve_dim(op, options.dim.0, x.rank())?;
    let x = match x.dtype() {
        DType::F16 | DType::BF16 => {
            bail!(DType, op, "half precision is not supported, got {}: cast to f32 first", x.dtype())
        }
        dtype if dtype.is_complex() => bail!(DType, op, "input must be real, got {dtype}"),
        dtype => x.to_dtype(dtype.to_float())?,
    };
    let n = options.n.unwrap_or(x.shape()[dim]);
    Rows::new(op, &x, dim, n, n)
}

/// The first half of Hermitian-symmetric input, along the dimension of the options.
#[track_caller]
fn half_rows(op: &'static str, x: &Tensor, options: &FftOptions) -> Result<Rows> {
    let dim = resolve_dim(op, options.dim.0, x.rank())?;
    let n = options.n.unwrap_or((2 * x.shape()[dim]).saturating_sub(2));
    Rows::new(op, &complex_numbers(op, x)?, dim, n / 2 + 1, n)
}

/// Splits each of the dimensions at `cut(size)`, and exchanges the parts.
#[track_caller]
fn shifted(op: &'static str, x: &Tensor, dims: &Dims, cut: fn(usize) -> usize) -> Result<Tensor> {
    let mut x = x.clone();
    for dim in resolve_dims(op, dims, x.rank())? {
        let size = x.shape()[dim];
        let at = cut(size);
        x = Tensor::cat(&[x.narrow(dim, at, size - at)?, x.narrow(dim, 0, at)?], dim)?;
    }
    Ok(x)
}

/// The first `count` frequencies of `n` samples.
fn frequencies(op: &'static str, n: usize, d: f64, count: usize, options: TensorOptions) -> Result<Tensor> {
    if n == 0 {
        bail!(Value, op, "n must be positive, got 0");
    }
    let (dtype, device) = options.or(DType::F32);
    if !dtype.is_float() {
        bail!(DType, op, "dtype must be floating point, got {dtype}");
    }
    let positive = Tensor::arange_with(0, count, crate::options::ArangeOptions::new().dtype(dtype).device(device))?;
    // The second half of a whole transform is negative. The name tells it from a half, which is as long for two samples.
    let whole = op == "fftfreq";
    let numbers = if whole { positive.ge(n.div_ceil(2))?.where_(positive.sub(n)?, &positive)? } else { positive };
    numbers.div(n as f64 * d)
}

/// # Fourier transforms
#[ops]
impl Tensor {
    /// The discrete Fourier transform along a dimension, the last by default. With `n`, the dimension is truncated or
    /// zero-padded to that length first. `norm` says where the factor 1/n goes.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Complex, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(fft::fft(&x)?.to_vec::<Complex<f32>>()?[0], Complex::new(10.0, 0.0));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, samples = || one_samples(true), errors = one_errors, full_precision, aliases = ["fft_fft"])]
    #[doc(alias = "fft_fft")]
    pub fn fft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        one_dim("fft", self, &options, true)
    }

    /// The inverse of [`fft`](crate::fft::fft).
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert!(fft::ifft(&fft::fft(&x)?)?.real()?.allclose(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, samples = || one_samples(true), errors = one_errors, full_precision, aliases = ["fft_ifft"])]
    #[doc(alias = "fft_ifft")]
    pub fn ifft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        one_dim("ifft", self, &options, false)
    }

    /// The discrete Fourier transform of real input. The result holds the `n / 2 + 1` nonnegative frequencies; the
    /// others are their conjugates.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(fft::rfft(&x)?.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, autocast_cpu = f32, samples = || one_samples(false), errors = real_errors, full_precision, aliases = ["fft_rfft"])]
    #[doc(alias = "fft_rfft")]
    pub fn rfft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        let x = real_rows("rfft", self, &options)?;
        x.finish(&x.r2c()?, options.norm.factor(x.n, true))
    }

    /// The inverse of [`rfft`](crate::fft::rfft). The result has `n` real numbers, by default an even count.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert!(fft::irfft(&fft::rfft(&x)?)?.allclose(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, samples = || one_samples(true), errors = one_errors, full_precision, aliases = ["fft_irfft"])]
    #[doc(alias = "fft_irfft")]
    pub fn irfft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        let x = half_rows("irfft", self, &options)?;
        x.finish(&x.c2r()?, options.norm.factor(x.n, false))
    }

    /// The discrete Fourier transform of Hermitian-symmetric input, of which the first half is given. The result has
    /// `n` real numbers.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(fft::hfft(&x)?.shape(), [6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, samples = || one_samples(true), errors = one_errors, full_precision, aliases = ["fft_hfft"])]
    #[doc(alias = "fft_hfft")]
    pub fn hfft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        let x = half_rows("hfft", &self.conj()?, &options)?;
        x.finish(&x.c2r()?, options.norm.factor(x.n, true))
    }

    /// The inverse of [`hfft`](crate::fft::hfft): the first half of the inverse transform of real input.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// let x = tensor!([1.0, 2.0, 3.0, 4.0])?;
    /// assert!(fft::hfft(&fft::ihfft(&x)?)?.allclose(&x)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, or its length is 0.
    #[op(function = fft, autocast_cpu = f32, samples = || one_samples(false), errors = real_errors, full_precision, aliases = ["fft_ihfft"])]
    #[doc(alias = "fft_ihfft")]
    pub fn ihfft(&self, options: impl Into<FftOptions>) -> Result<Tensor> {
        let x = real_rows("ihfft", self, &options)?;
        x.finish(&x.r2c()?.conj()?, options.norm.factor(x.n, false))
    }

    /// Moves frequency 0 to the center of the given dimensions, by default all.
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// assert_eq!(fft::fftshift(&tensor!([0, 1, -2, -1])?, ..)?.to_vec::<i64>()?, [-2, -1, 0, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(function = fft, samples = shift_samples, errors = shift_errors, aliases = ["fft_fftshift"])]
    #[doc(alias = "fft_fftshift")]
    pub fn fftshift(&self, #[default(..)] dim: impl Into<Dims>) -> Result<Tensor> {
        shifted("fftshift", self, &dim, |size| size - size / 2)
    }

    /// The inverse of [`fftshift`](crate::fft::fftshift).
    ///
    /// ```
    /// # use cotangent::{fft, tensor, Tensor};
    /// assert_eq!(fft::ifftshift(&tensor!([-1, 0, 1])?, ..)?.to_vec::<i64>()?, [0, 1, -1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or one is named twice.
    #[op(function = fft, samples = shift_samples, errors = shift_errors, aliases = ["fft_ifftshift"])]
    #[doc(alias = "fft_ifftshift")]
    pub fn ifftshift(&self, #[default(..)] dim: impl Into<Dims>) -> Result<Tensor> {
        shifted("ifftshift", self, &dim, |size| size / 2)
    }

    /// The frequencies of [`fft`](crate::fft::fft) for `n` samples with spacing `d`.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// assert_eq!(fft::fftfreq(4, 1.0)?.to_vec::<f32>()?, [0.0, 0.25, -0.5, -0.25]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `n` is 0, or the dtype is not of floats.
    #[op(function = fft, samples = frequency_samples, errors = frequency_errors, derivative = none, aliases = ["fft_fftfreq"])]
    #[doc(alias = "fft_fftfreq")]
    pub fn fftfreq(n: usize, #[default(1.0)] d: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
        frequencies("fftfreq", n, d, n, options)
    }

    /// The frequencies of [`rfft`](crate::fft::rfft) for `n` samples with spacing `d`.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// assert_eq!(fft::rfftfreq(4, 1.0)?.to_vec::<f32>()?, [0.0, 0.25, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `n` is 0, or the dtype is not of floats.
    #[op(function = fft, samples = frequency_samples, errors = frequency_errors, derivative = none, aliases = ["fft_rfftfreq"])]
    #[doc(alias = "fft_rfftfreq")]
    pub fn rfftfreq(n: usize, #[default(1.0)] d: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
        frequencies("rfftfreq", n, d, n / 2 + 1, options)
    }
}

pub(in crate::ops) fn numbers(shape: &[usize], complex: bool) -> Result<Tensor> {
    if complex { crate::ops::elementwise::complex::complex_spread(shape) } else { spread(shape, -2.0, 2.1) }
}

fn one_samples(complex: bool) -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| numbers(shape, complex);
    Ok(vec![
        sample![x(&[6])?],
        sample![x(&[2, 5])?],
        sample![x(&[2, 5])?; n = 3],
        sample![x(&[2, 3])?; n = 8, dim = 1, norm = "ortho"],
        sample![x(&[4, 2, 3])?; dim = 0, norm = "forward"],
        sample![x(&[0, 4])?],
        sample![spread([5], -2.0, 2.1)?],
    ])
}

fn one_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![&x; dim = 2]],
        error!["nothing to transform", "0"; sample![normal([2, 0], 1)?]],
        error!["half precision", "f16"; sample![x.to_dtype(DType::F16)?]],
    ])
}

fn real_errors() -> Result<Vec<ErrorCase>> {
    let mut all = one_errors()?;
    all.push(error!["complex numbers", "c128"; sample![numbers(&[3], true)?]]);
    Ok(all)
}

fn shift_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![spread([5], -2.0, 2.1)?],
        sample![spread([4, 3], -2.0, 2.1)?],
        sample![spread([4, 3], -2.0, 2.1)?, 0],
        sample![spread([2, 3, 4], -2.0, 2.1)?, [0, -1]],
        sample![spread([0, 3], -2.0, 2.1)?],
        sample![ints(&[1, 2, 3, 4], [4])?],
    ])
}

fn shift_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no such dimension", "2", "rank 2"; sample![normal([2, 3], 1)?, 2]]])
}

fn frequency_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![5], sample![6, 0.5], sample![1], sample![4; dtype = DType::F64]])
}

fn frequency_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no numbers", "0"; sample![0]], error!["integers", "i64"; sample![4; dtype = DType::I64]]])
}
