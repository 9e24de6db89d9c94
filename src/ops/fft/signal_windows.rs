//! The windows of `torch.signal.windows`: symmetric unless an option says otherwise.

// `M` is what PyTorch calls the number of elements.
#![allow(non_snake_case)]

use crate::error::bail;
use crate::ops::fft::windows::{BLACKMAN, cosines, kaiser, window, window_errors};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, sample};
use crate::options::options;
use crate::{DType, Device, Result, Tensor, TensorOptions};
use std::f64::consts::PI;

options! {
    /// The options of the windows of `torch.signal.windows` without parameters.
    ///
    /// ```
    /// use cotangent::{options::SignalWindowOptions, signal::windows, Tensor};
    /// let window = windows::hann_with(4, SignalWindowOptions::new().sym(false))?;
    /// assert_eq!(window.to_vec::<f32>()?, [0.0, 0.5, 1.0, 0.5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SignalWindowOptions {
        /// Whether the window is symmetric; otherwise it is periodic.
        sym: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

options! {
    /// The options of [`signal::windows::general_hamming_with`](crate::signal::windows::general_hamming_with).
    ///
    /// ```
    /// use cotangent::{options::GeneralHammingWindowOptions, signal::windows, Tensor};
    /// let window = windows::general_hamming_with(3, GeneralHammingWindowOptions::new().alpha(0.5))?;
    /// assert_eq!(window.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GeneralHammingWindowOptions {
        /// The coefficient `alpha` of `alpha - (1 - alpha) · cos`.
        alpha: f64 = 0.54,
        /// Whether the window is symmetric; otherwise it is periodic.
        sym: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

options! {
    /// The options of [`signal::windows::exponential_with`](crate::signal::windows::exponential_with).
    ///
    /// ```
    /// use cotangent::{options::ExponentialWindowOptions, signal::windows, Tensor};
    /// let window = windows::exponential_with(3, ExponentialWindowOptions::new().tau(2.0))?;
    /// assert_eq!(window.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ExponentialWindowOptions {
        /// The center, where the window is 1; only for a window that is not symmetric.
        center: Option<f64> = None,
        /// The decay constant: a larger one decays more slowly.
        tau: f64 = 1.0,
        /// Whether the window is symmetric; otherwise it is periodic.
        sym: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

options! {
    /// The options of [`signal::windows::gaussian_with`](crate::signal::windows::gaussian_with).
    ///
    /// ```
    /// use cotangent::{options::GaussianWindowOptions, signal::windows, Tensor};
    /// let window = windows::gaussian_with(3, GaussianWindowOptions::new().std(2.0))?;
    /// assert_eq!(window.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct GaussianWindowOptions {
        /// The standard deviation.
        std: f64 = 1.0,
        /// Whether the window is symmetric; otherwise it is periodic.
        sym: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

options! {
    /// The options of [`signal::windows::kaiser_with`](crate::signal::windows::kaiser_with).
    ///
    /// ```
    /// use cotangent::{options::SignalKaiserWindowOptions, signal::windows, Tensor};
    /// let window = windows::kaiser_with(3, SignalKaiserWindowOptions::new().beta(0.0))?;
    /// assert_eq!(window.to_vec::<f32>()?, [1.0, 1.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SignalKaiserWindowOptions {
        /// The shape parameter: a larger one gives a narrower window.
        beta: f64 = 12.0,
        /// Whether the window is symmetric; otherwise it is periodic.
        sym: bool = true,
        /// The dtype, by default `f32`.
        dtype: Option<DType> = None,
        /// The device, by default the CPU.
        device: Option<Device> = None,
    }
}

/// Whether the window is periodic, and the options of the tensor.
fn kind(sym: bool, dtype: Option<DType>, device: Option<Device>) -> (bool, TensorOptions) {
    (!sym, TensorOptions { dtype, device })
}

const NUTTALL: [f64; 4] = [0.363_581_9, 0.489_177_5, 0.136_599_5, 0.010_641_1];

/// # Windows
#[ops]
impl Tensor {
    /// A Hann window, symmetric unless an option says otherwise.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::hann(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_hann(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_hann", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&[0.5, 0.5], i, last)
        })
    }

    /// A Hamming window, symmetric unless an option says otherwise.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::hamming(3)?.to_vec::<f32>()?, [0.08, 1.0, 0.08]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_hamming(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_hamming", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&[0.54, 0.46], i, last)
        })
    }

    /// A Hamming window with the parameter `alpha`.
    ///
    /// ```
    /// # use cotangent::{options::GeneralHammingWindowOptions, signal::windows, Tensor};
    /// let window = windows::general_hamming_with(3, GeneralHammingWindowOptions::new().alpha(0.5))?;
    /// assert_eq!(window.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_general_hamming(M: usize, options: impl Into<GeneralHammingWindowOptions>) -> Result<Tensor> {
        let a = [options.alpha, 1.0 - options.alpha];
        window("signal_windows_general_hamming", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&a, i, last)
        })
    }

    /// A weighted sum of cosines.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::general_cosine(3, vec![0.5, 0.5])?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no factors, or the dtype is not of floats.
    #[op(function = signal_windows, samples = general_samples, errors = general_errors, derivative = none)]
    pub fn signal_windows_general_cosine(
        M: usize,
        a: impl Into<Vec<f64>>,
        options: impl Into<SignalWindowOptions>,
    ) -> Result<Tensor> {
        if a.is_empty() {
            bail!(Value, "signal_windows_general_cosine", "a must have at least 1 coefficient, got 0");
        }
        window("signal_windows_general_cosine", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&a, i, last)
        })
    }

    /// A Bartlett window, symmetric unless an option says otherwise.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::bartlett(3)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_bartlett(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_bartlett", M, kind(options.sym, options.dtype, options.device), |i, last| {
            1.0 - (2.0 * i / last - 1.0).abs()
        })
    }

    /// A Blackman window, symmetric unless an option says otherwise.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::blackman(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_blackman(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_blackman", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&BLACKMAN, i, last)
        })
    }

    /// A Nuttall window: a sum of four cosine terms.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::nuttall(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_nuttall(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_nuttall", M, kind(options.sym, options.dtype, options.device), |i, last| {
            cosines(&NUTTALL, i, last)
        })
    }

    /// A cosine window: half a period of a sine.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::cosine(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_cosine(M: usize, options: impl Into<SignalWindowOptions>) -> Result<Tensor> {
        window("signal_windows_cosine", M, kind(options.sym, options.dtype, options.device), |i, last| {
            (PI * (i + 0.5) / (last + 1.0)).sin()
        })
    }

    /// An exponential window, which decays with `tau` on both sides of its center.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::exponential(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats, `tau` is not positive, or `center` is given for a symmetric window.
    #[op(function = signal_windows, samples = exponential_samples, errors = exponential_errors, derivative = none)]
    pub fn signal_windows_exponential(M: usize, options: impl Into<ExponentialWindowOptions>) -> Result<Tensor> {
        const OP: &str = "signal_windows_exponential";
        let ExponentialWindowOptions { tau, center, sym, .. } = options;
        if tau.is_nan() || tau <= 0.0 {
            bail!(Value, OP, "tau must be positive, got {tau}");
        }
        if let Some(center) = center
            && sym
        {
            bail!(Value, OP, "center must not be given for a symmetric window, got {center}");
        }
        window(OP, M, kind(options.sym, options.dtype, options.device), |i, last| {
            (-(i - center.unwrap_or(last / 2.0)).abs() / tau).exp()
        })
    }

    /// A Gaussian window with the standard deviation `std`.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::gaussian(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats, or `std` is not positive.
    #[op(function = signal_windows, samples = gaussian_samples, errors = gaussian_errors, derivative = none)]
    pub fn signal_windows_gaussian(M: usize, options: impl Into<GaussianWindowOptions>) -> Result<Tensor> {
        const OP: &str = "signal_windows_gaussian";
        let std = options.std;
        if std.is_nan() || std <= 0.0 {
            bail!(Value, OP, "std must be positive, got {std}");
        }
        window(OP, M, kind(options.sym, options.dtype, options.device), |i, last| {
            (-0.5 * ((i - last / 2.0) / std).powi(2)).exp()
        })
    }

    /// A Kaiser window, symmetric unless an option says otherwise.
    ///
    /// ```
    /// # use cotangent::{signal::windows, Tensor};
    /// assert_eq!(windows::kaiser(3)?.select(0, 1)?.item::<f32>()?, 1.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not of floats, or `beta` is negative.
    #[op(function = signal_windows, samples = sym_samples, errors = sym_errors, derivative = none)]
    pub fn signal_windows_kaiser(M: usize, options: impl Into<SignalKaiserWindowOptions>) -> Result<Tensor> {
        const OP: &str = "signal_windows_kaiser";
        if options.beta.is_nan() || options.beta < 0.0 {
            bail!(Value, OP, "beta must be ≥ 0, got {}", options.beta);
        }
        kaiser(OP, M, kind(options.sym, options.dtype, options.device), options.beta)
    }
}

fn sym_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![5], sample![4; sym = false, dtype = DType::F64], sample![1], sample![0]])
}

fn sym_errors() -> Result<Vec<ErrorCase>> {
    window_errors()
}

fn general_samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![5, vec![0.5, 0.3, 0.2]], sample![4, vec![0.5]; sym = false]])
}

fn general_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["no factors", "got 0"; sample![5, Vec::<f64>::new()]]])
}

fn exponential_samples() -> Result<Vec<Sample>> {
    let mut all = sym_samples()?;
    all.push(sample![5; tau = 2.0]);
    all.push(sample![5; center = 1.5, sym = false]);
    Ok(all)
}

fn exponential_errors() -> Result<Vec<ErrorCase>> {
    let mut all = window_errors()?;
    all.push(error!["no rise", "tau", "got 0"; sample![5; tau = 0.0]]);
    all.push(error!["two centers", "center"; sample![5; center = 1.0]]);
    Ok(all)
}

fn gaussian_samples() -> Result<Vec<Sample>> {
    let mut all = sym_samples()?;
    all.push(sample![5; std = 2.5]);
    Ok(all)
}

fn gaussian_errors() -> Result<Vec<ErrorCase>> {
    let mut all = window_errors()?;
    all.push(error!["no deviation", "std", "got 0"; sample![5; std = 0.0]]);
    Ok(all)
}
