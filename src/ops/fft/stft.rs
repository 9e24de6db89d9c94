//! The short-time Fourier transform.

use crate::error::bail;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::shape::pad::PadMode;
use crate::options::options;
use crate::options::{FftNorm, FftOptions};
use crate::{DType, Device, Result, Tensor};

options! {
    /// The options of [`Tensor::stft_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::StftOptions};
    /// let window = Tensor::hann_window(8)?;
    /// let x = Tensor::randn([100])?.stft_with(8, StftOptions::new().hop_length(4).window(&window))?;
    /// assert_eq!(x.shape(), [5, 26]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct StftOptions<'a> {
        /// The distance between frames; by default a quarter of `n_fft`.
        hop_length: Option<usize> = None,
        /// The length of the window, which is centered in the frame; by default `n_fft`.
        win_length: Option<usize> = None,
        /// The factors of the elements of a frame; by default ones.
        window: Option<&'a Tensor> = None,
        /// Whether the signal is padded so that frame `t` is centered at `t · hop_length`.
        center: bool = true,
        /// The padding mode.
        pad_mode: PadMode = PadMode::Reflect,
        /// Whether the transforms are divided by `√n_fft`.
        normalized: bool = false,
        /// Whether only the first half of the frequencies is returned; by default for real input.
        onesided: Option<bool> = None,
        /// Whether complex numbers are returned, the default; otherwise real and imaginary parts in a last dimension.
        return_complex: Option<bool> = None,
    }
}

options! {
    /// The options of [`Tensor::istft_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::{IstftOptions, StftOptions}};
    /// let (x, window) = (Tensor::randn([40])?, Tensor::hann_window(8)?);
    /// let y = x.stft_with(8, StftOptions::new().window(&window))?;
    /// assert!(y.istft_with(8, IstftOptions::new().window(&window))?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct IstftOptions<'a> {
        /// The distance between frames; by default a quarter of `n_fft`.
        hop_length: Option<usize> = None,
        /// The length of the window, which is centered in the frame; by default `n_fft`.
        win_length: Option<usize> = None,
        /// The factors of the elements of a frame; by default ones.
        window: Option<&'a Tensor> = None,
        /// Whether the signal was padded: the padding is removed.
        center: bool = true,
        /// Whether the transforms were divided by `√n_fft`.
        normalized: bool = false,
        /// Whether the input holds only the first half of the frequencies; by default this follows from the shape.
        onesided: Option<bool> = None,
        /// The length that the signal is truncated or zero-padded to.
        length: Option<usize> = None,
        /// Whether the signal is complex.
        return_complex: bool = false,
    }
}

/// The length and distance of frames, and the window, padded to `n_fft`.
struct Frames {
    n_fft: usize,
    hop: usize,
    window: Option<Tensor>,
}

impl Frames {
    fn new(
        op: &'static str,
        n_fft: usize,
        hop: Option<usize>,
        win: Option<usize>,
        window: Option<&Tensor>,
        (dtype, device): (DType, Device),
    ) -> Result<Frames> {
        let (hop, win) = (hop.unwrap_or(n_fft / 4), win.unwrap_or(n_fft));
        if n_fft == 0 || hop == 0 || win == 0 || win > n_fft {
            bail!(
                Value,
                op,
                "expected 0 < win_length ≤ n_fft and hop_length > 0, got n_fft = {n_fft}, hop_length = {hop} and win_length = {win}"
            );
        }
        if let Some(window) = window
            && window.shape() != [win]
        {
            bail!(Shape, op, "window must have shape [{win}], got {:?}", window.shape());
        }
        if let Some(window) = window {
            check_dtype(op, window)?;
        }
        let ones = || Tensor::ones_with([win], (dtype, device));
        let window = match window {
            Some(window) => Some(window.clone()),
            None if win < n_fft => Some(ones()?),
            None => None,
        };
        let left = ((n_fft - win) / 2) as isize;
        let whole =
            |window: Tensor| if win < n_fft { window.pad(&[left, (n_fft - win) as isize - left]) } else { Ok(window) };
        Ok(Frames { n_fft, hop, window: window.map(whole).transpose()? })
    }

    /// The overlap-add of rows of frames.
    fn overlapped(&self, frames: &Tensor) -> Result<Tensor> {
        let (rows, count) = (frames.shape()[0], frames.shape()[1]);
        let starts = Tensor::arange(0, count)?.mul(self.hop)?.unsqueeze(1)?;
        let positions = starts.add(&Tensor::arange(0, self.n_fft)?)?.flatten(0, -1)?.to_device(frames.device())?;
        let signal = Tensor::zeros_with([rows, self.length(count)], (frames.dtype(), frames.device()))?;
        signal.index_add(1, &positions, &frames.flatten(1, 2)?)
    }

    /// The length of a signal of `count` frames.
    fn length(&self, count: usize) -> usize {
        self.hop.saturating_mul(count.saturating_sub(1)).saturating_add(self.n_fft)
    }
}

/// Refuses dtypes that have no transform.
fn check_dtype(op: &'static str, x: &Tensor) -> Result<()> {
    if !(x.dtype().is_complex() || matches!(x.dtype(), DType::F32 | DType::F64)) {
        bail!(DType, op, "dtype must be f32, f64, c64 or c128, got {}", x.dtype());
    }
    Ok(())
}

fn norm(normalized: bool) -> FftNorm {
    if normalized { FftNorm::Ortho } else { FftNorm::Backward }
}

/// # Short-time Fourier transforms
#[ops]
impl Tensor {
    /// The short-time Fourier transform: the transforms of overlapping frames of a signal, or of a batch of signals, as
    /// a matrix of frequencies and frames.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::StftOptions};
    /// let x = Tensor::ones([8])?.stft_with(4, StftOptions::new().center(false))?;
    /// assert_eq!(x.shape(), [3, 5]);
    /// assert_eq!(x.real()?.select(1, 0)?.to_vec::<f32>()?, [4.0, 0.0, 0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there are not one or two dimensions, the signal is shorter than a frame, a length does
    /// not fit, or `onesided` is true for complex input.
    #[op(autocast_cpu = f32, samples = stft_samples, errors = stft_errors, full_precision, tolerance = 4.0)]
    pub fn stft<'a>(&self, n_fft: usize, options: impl Into<StftOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "stft";
        check_dtype(OP, self)?;
        if !matches!(self.rank(), 1 | 2) {
            bail!(Shape, OP, "input must have 1 or 2 dimensions, got shape {:?}", self.shape());
        }
        let real = self.dtype().to_real();
        let StftOptions { hop_length, win_length, window, .. } = options;
        let frames = Frames::new(OP, n_fft, hop_length, win_length, window, (real, self.device()))?;
        let mut x = if self.rank() == 1 { self.unsqueeze(0)? } else { self.clone() };
        if options.center {
            let half = (n_fft / 2) as isize;
            x = x.pad_with(&[half, half], options.pad_mode)?;
        }
        if x.shape()[1] < n_fft {
            bail!(Value, OP, "the signal must have at least n_fft = {n_fft} elements, got {}", x.shape()[1]);
        }
        x = x.unfold(1, n_fft, frames.hop)?;
        if let Some(window) = &frames.window {
            x = x.mul(window)?;
        }
        let complex = x.dtype().is_complex();
        let half = options.onesided.unwrap_or(!complex);
        if half && complex {
            bail!(DType, OP, "onesided must be false for an input of {}, got true", x.dtype());
        }
        let by = FftOptions::new().norm(norm(options.normalized));
        let out = if half { x.rfft_with(by)? } else { x.fft_with(by)? }.transpose(1, 2)?;
        let out = if self.rank() == 1 { out.squeeze(0)? } else { out };
        if options.return_complex == Some(false) { out.view_as_real() } else { Ok(out) }
    }

    /// The inverse of [`stft`](Self::stft): the signal whose frames fit the given transforms best in the least-squares
    /// sense.
    ///
    /// ```
    /// # use cotangent::{Tensor, options::IstftOptions};
    /// let x = Tensor::randn([40])?;
    /// let y = x.stft(8)?.istft_with(8, IstftOptions::new().length(40))?;
    /// assert!(y.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the elements are not complex, the shape is not that of an `stft`, a length does not fit, or the windows leave gaps
    /// between them.
    #[op(samples = istft_samples, errors = istft_errors, full_precision, tolerance = 4.0)]
    pub fn istft<'a>(&self, n_fft: usize, options: impl Into<IstftOptions<'a>>) -> Result<Tensor> {
        const OP: &str = "istft";
        if !self.dtype().is_complex() {
            bail!(DType, OP, "input must be complex, got {}: call view_as_complex() first", self.dtype());
        }
        if !matches!(self.rank(), 2 | 3) || self.numel() == 0 {
            bail!(
                Shape,
                OP,
                "input must be [frequencies, frames] or a batch of these, and not empty, got shape {:?}",
                self.shape()
            );
        }
        let real = self.dtype().to_real();
        let IstftOptions { hop_length, win_length, window, return_complex, .. } = options;
        let frames = Frames::new(OP, n_fft, hop_length, win_length, window, (real, self.device()))?;
        let x = if self.rank() == 2 { self.unsqueeze(0)? } else { self.clone() };
        let found = x.shape()[1];
        let half = options.onesided.unwrap_or(found != n_fft);
        let expected = if half { n_fft / 2 + 1 } else { n_fft };
        if found != expected || (half && return_complex) {
            if half && return_complex {
                bail!(Shape, OP, "return_complex must be false for a one-sided input, got true");
            }
            bail!(Shape, OP, "expected {expected} frequencies for n_fft = {n_fft} and onesided = {half}, got {found}");
        }
        let x = x.transpose(1, 2)?;
        let by = FftOptions::new().norm(norm(options.normalized)).n(n_fft);
        let x = if return_complex { x.ifft_with(by)? } else { x.narrow(2, 0, n_fft / 2 + 1)?.irfft_with(by)? };
        let window = match &frames.window {
            Some(window) => window.clone(),
            None => Tensor::ones_with([n_fft], (real, self.device()))?,
        };
        let count = x.shape()[1];
        let signal = frames.overlapped(&x.mul(&window)?)?;
        let weight = frames.overlapped(&window.square()?.expand([1, count, n_fft])?)?;
        let start = if options.center { n_fft / 2 } else { 0 };
        let whole = frames.length(count);
        let end = match options.length {
            Some(length) => start.saturating_add(length),
            None => whole - start,
        };
        let taken = end.min(whole).saturating_sub(start);
        if taken == 0 {
            bail!(Value, OP, "the result must not be empty, got elements {start} to {end} of {whole}");
        }
        let (signal, weight) = (signal.narrow(1, start, taken)?, weight.narrow(1, start, taken)?);
        let sums = weight.detach().all_examples()?.abs()?;
        let least = if sums.numel() == 0 { 1.0 } else { sums.min(..)?.to_dtype(DType::F64)?.item::<f64>()? };
        if least < 1e-11 {
            bail!(Value, OP, "windows must overlap without gaps, got a smallest sum of their squares of {least}");
        }
        let mut out = signal.div(&weight)?;
        if end > whole {
            out = out.pad(&[0, (end - start - taken) as isize])?;
        }
        if self.rank() == 2 { out.squeeze(0) } else { Ok(out) }
    }
}

fn stft_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| spread(shape, -2.0, 2.1);
    let window = || spread([4], 0.3, 1.0);
    Ok(vec![
        sample![x(&[9])?, 4],
        sample![x(&[2, 9])?, 4; hop_length = 2, window = window()?],
        sample![x(&[2, 9])?, 6; win_length = 4, window = window()?, center = false],
        sample![x(&[9])?, 5; hop_length = 3, win_length = 3, normalized = true, pad_mode = "constant"],
        sample![x(&[9])?, 4; onesided = false, return_complex = false],
        sample![crate::ops::elementwise::complex::complex_spread(&[9])?, 4; window = window()?],
    ])
}

fn stft_errors() -> Result<Vec<ErrorCase>> {
    let x = || normal([9], 1);
    Ok(vec![
        error!["integers", "i64"; sample![ints(&[1, 2, 3, 4], [4])?, 2]],
        error!["three dimensions", "[1, 1, 9]"; sample![normal([1, 1, 9], 1)?, 4]],
        error!["no frame", "9", "12"; sample![x()?, 12; center = false]],
        error!["a step of 0", "hop_length = 0"; sample![x()?, 4; hop_length = 0]],
        error!["a long window", "win_length = 5"; sample![x()?, 4; win_length = 5]],
        error!["a window of another length", "[3]", "4"; sample![x()?, 4; window = normal([3], 1)?]],
        error!["half of complex numbers", "c128", "onesided"; sample![crate::ops::elementwise::complex::complex_spread(&[9])?, 4; onesided = true]],
    ])
}

fn istft_samples() -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| crate::ops::elementwise::complex::complex_spread(shape);
    let window = || spread([4], 0.3, 1.0);
    Ok(vec![
        sample![x(&[3, 5])?, 4],
        sample![x(&[2, 3, 4])?, 4; hop_length = 2, window = window()?],
        sample![x(&[4, 3])?, 6; win_length = 4, hop_length = 2, window = window()?, length = 5],
        sample![x(&[3, 4])?, 5; hop_length = 2, center = false, normalized = true],
        sample![x(&[3, 3])?, 4; hop_length = 2, length = 9],
        sample![x(&[4, 3])?, 4; hop_length = 2, onesided = false],
        sample![x(&[4, 3])?, 4; hop_length = 2, onesided = false, return_complex = true, window = window()?],
    ])
}

fn istft_errors() -> Result<Vec<ErrorCase>> {
    let x = |shape: &[usize]| crate::ops::elementwise::complex::complex_spread(shape);
    Ok(vec![
        error!["real numbers", "f64"; sample![normal([3, 5], 1)?, 4]],
        error!["a vector", "[3]"; sample![x(&[3])?, 4]],
        error!["other frequencies", "5 frequencies", "n_fft = 8", "got 3"; sample![x(&[3, 5])?, 8]],
        error!["half of complex numbers", "return_complex"; sample![x(&[3, 5])?, 4; return_complex = true]],
        error!["gaps", "gaps", "0"; sample![x(&[3, 5])?, 4; window = Tensor::zeros_with([4], DType::F64)?]],
    ])
}
