//! Window functions.

use crate::error::bail;
use crate::ops::create::constants::numbers;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, sample};
use crate::options::options;
use crate::{DType, Device, Result, Tensor, TensorOptions};
use std::f64::consts::PI;

options! {
    /// The options of [`Tensor::hann_window_with`], [`Tensor::bartlett_window_with`] and [`Tensor::blackman_window_with`].
    /// A bool converts to `periodic`.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// assert_eq!(Tensor::hann_window_with(3, false)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct WindowOptions {
        /// Whether the window is periodic; otherwise it is symmetric.
        periodic: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

impl From<bool> for WindowOptions {
    fn from(periodic: bool) -> WindowOptions {
        WindowOptions::new().periodic(periodic)
    }
}

options! {
    /// The options of [`Tensor::hamming_window_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::HammingWindowOptions};
    /// let window = Tensor::hamming_window_with(3, HammingWindowOptions::new().periodic(false).alpha(0.5).beta(0.5))?;
    /// assert_eq!(window.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct HammingWindowOptions {
        /// Whether the window is periodic; otherwise it is symmetric.
        periodic: bool = true,
        /// The coefficient `alpha` of `alpha - beta · cos`.
        alpha: f64 = 0.54,
        /// The coefficient of the cosine.
        beta: f64 = 0.46,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

options! {
    /// The options of [`Tensor::kaiser_window_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::KaiserWindowOptions};
    /// let window = Tensor::kaiser_window_with(3, KaiserWindowOptions::new().periodic(false).beta(0.0))?;
    /// assert_eq!(window.to_vec::<f32>()?, [1.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct KaiserWindowOptions {
        /// Whether the window is periodic; otherwise it is symmetric.
        periodic: bool = true,
        /// The shape parameter: a larger one gives a narrower window.
        beta: f64 = 12.0,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

/// A window of `n` numbers `at(i, last)`, where `last` is the distance between the ends of the window.
pub(in crate::ops) fn window(
    op: &'static str,
    n: usize,
    (periodic, options): (bool, TensorOptions),
    at: impl Fn(f64, f64) -> f64,
) -> Result<Tensor> {
    let (dtype, device) = options.or(DType::F32);
    if !dtype.is_float() {
        bail!(DType, op, "dtype must be floating point, got {dtype}");
    }
    // The next number after a periodic window equals the first one.
    let last = if periodic { n as f64 } else { n as f64 - 1.0 };
    numbers(op, n, (dtype, device), |i| if n == 1 { 1.0 } else { at(i as f64, last) })
}

/// A sum of cosines with alternating signs.
pub(in crate::ops) fn cosines(a: &[f64], i: f64, last: f64) -> f64 {
    let term = |(k, a): (usize, &f64)| if k % 2 == 0 { *a } else { -a } * (2.0 * PI * k as f64 * i / last).cos();
    a.iter().enumerate().map(term).sum()
}

pub(in crate::ops) fn kaiser(op: &'static str, n: usize, kind: (bool, TensorOptions), beta: f64) -> Result<Tensor> {
    let (dtype, _) = kind.1.or(DType::F32);
    let wide = (kind.0, kind.1.dtype(DType::F64));
    let inside = |i: f64, last: f64| beta * (1.0 - (2.0 * i / last - 1.0).powi(2)).max(0.0).sqrt();
    if !dtype.is_float() || n <= 1 {
        return window(op, n, kind, |_, _| 1.0);
    }
    let top = Tensor::scalar(beta.into(), DType::F64, Device::Cpu)?.i0()?.item::<f64>()?;
    window(op, n, wide, inside)?.i0()?.div(top)?.to_dtype(dtype)
}

pub(in crate::ops) const BLACKMAN: [f64; 3] = [0.42, 0.5, 0.08];

/// # Window functions
#[ops]
impl Tensor {
    /// A Hann window: one period of a raised cosine. It is periodic by default, as [`stft`](crate::Tensor::stft) needs it.
    /// [`signal::windows::hann`](crate::signal::windows::hann) is symmetric by default.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::hann_window(4)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5]);
    /// assert_eq!(Tensor::hann_window_with(5, false)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(samples = window_samples, errors = window_errors, derivative = none)]
    pub fn hann_window(window_length: usize, options: impl Into<WindowOptions>) -> Result<Tensor> {
        let WindowOptions { periodic, dtype, device } = options;
        window("hann_window", window_length, (periodic, TensorOptions { dtype, device }), |i, last| {
            cosines(&[0.5, 0.5], i, last)
        })
    }

    /// A Hamming window: a raised cosine that does not reach 0. It is periodic by default;
    /// [`signal::windows::hamming`](crate::signal::windows::hamming) is symmetric.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::hamming_window(2)?.to_vec::<f32>()?, [0.08, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(samples = hamming_samples, errors = window_errors, derivative = none)]
    pub fn hamming_window(window_length: usize, options: impl Into<HammingWindowOptions>) -> Result<Tensor> {
        let HammingWindowOptions { periodic, alpha, beta, dtype, device } = options;
        let kind = (periodic, TensorOptions { dtype, device });
        window("hamming_window", window_length, kind, |i, last| cosines(&[alpha, beta], i, last))
    }

    /// A Bartlett (triangular) window. It is periodic by default;
    /// [`signal::windows::bartlett`](crate::signal::windows::bartlett) is symmetric.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::bartlett_window(4)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(samples = window_samples, errors = window_errors, derivative = none)]
    pub fn bartlett_window(window_length: usize, options: impl Into<WindowOptions>) -> Result<Tensor> {
        let WindowOptions { periodic, dtype, device } = options;
        let kind = (periodic, TensorOptions { dtype, device });
        window("bartlett_window", window_length, kind, |i, last| 1.0 - (2.0 * i / last - 1.0).abs())
    }

    /// A Blackman window: a sum of three cosine terms. It is periodic by default;
    /// [`signal::windows::blackman`](crate::signal::windows::blackman) is symmetric.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::blackman_window(4)?.select(0, 2)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(samples = window_samples, errors = window_errors, derivative = none)]
    pub fn blackman_window(window_length: usize, options: impl Into<WindowOptions>) -> Result<Tensor> {
        let WindowOptions { periodic, dtype, device } = options;
        window("blackman_window", window_length, (periodic, TensorOptions { dtype, device }), |i, last| {
            cosines(&BLACKMAN, i, last)
        })
    }

    /// A Kaiser window. It is periodic by default; [`signal::windows::kaiser`](crate::signal::windows::kaiser) is symmetric.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::kaiser_window(4)?.select(0, 2)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(samples = kaiser_samples, errors = window_errors, derivative = none)]
    pub fn kaiser_window(window_length: usize, options: impl Into<KaiserWindowOptions>) -> Result<Tensor> {
        let KaiserWindowOptions { periodic, beta, dtype, device } = options;
        kaiser("kaiser_window", window_length, (periodic, TensorOptions { dtype, device }), beta)
    }
}

fn window_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![5], sample![4; periodic = false, dtype = DType::F64], sample![1], sample![0]])
}

pub(in crate::ops) fn window_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["integers", "i64"; sample![3; dtype = DType::I64]],
        error!["too long", "bytes"; sample![isize::MAX as usize]],
    ])
}

fn hamming_samples() -> Result<Vec<Sample>> {
    let mut all = window_samples()?;
    all.push(sample![5; alpha = 0.6, beta = 0.3]);
    Ok(all)
}

fn kaiser_samples() -> Result<Vec<Sample>> {
    let mut all = window_samples()?;
    all.push(sample![5; beta = 3.0]);
    Ok(all)
}
