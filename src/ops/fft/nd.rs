//! Fourier transforms along several dimensions, as sequences of transforms along one.

use crate::error::bail;
use crate::layout::{Dim, Dims, Sizes};
use crate::layout::{resolve_dim, resolve_dims};
use crate::ops::fft::transforms::{FftNorm, FftOptions, c2c, complex_numbers, numbers, one_dim};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The options of Fourier transforms along several dimensions.
    ///
    /// ```
    /// use cotangent::{fft, options::FftnOptions, Tensor};
    /// let x = Tensor::randn([3, 5, 2])?;
    /// let y = fft::fftn_with(&x, FftnOptions::new().s([4, 8]).dim([0, 1]))?;
    /// assert_eq!(y.shape(), [4, 8, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct FftnOptions {
        /// The lengths that the dimensions are truncated or zero-padded to; -1 keeps the size. If `dim` is not given, they are
        /// for the last dimensions.
        s: Sizes = Sizes::default(),
        /// The dimensions.
        dim: Dims = Dims::ALL,
        /// Where the factor 1/n goes.
        norm: FftNorm = FftNorm::Backward,
    }
}

/// The dimensions of a transform along several, with their lengths.
struct DimPlan {
    dims: Vec<usize>,
    sizes: Vec<Option<usize>>,
    norm: FftNorm,
}

impl DimPlan {
    fn new(op: &'static str, x: &Tensor, options: &FftnOptions, two: bool) -> Result<DimPlan> {
        let lengths = &options.s.0;
        let dims: Vec<usize> = match &options.dim.named {
            // In the given order: the last one is halved for real input.
            Some(named) => match resolve_dims(op, &options.dim, x.rank())?.is_empty() {
                true => Vec::new(),
                false => named.iter().map(|&dim| resolve_dim(op, dim, x.rank())).collect::<Result<_>>()?,
            },
            None if two && x.rank() < 2 => {
                bail!(Shape, op, "input must have at least 2 dimensions, got shape {:?}", x.shape())
            }
            None if two => vec![x.rank() - 2, x.rank() - 1],
            None if !lengths.is_empty() && lengths.len() <= x.rank() => (x.rank() - lengths.len()..x.rank()).collect(),
            None => (0..x.rank()).collect(),
        };
        if !lengths.is_empty() && lengths.len() != dims.len() {
            bail!(Value, op, "s must have one length for each of dimensions {dims:?}, got {lengths:?}");
        }
        let size = |&length: &isize| match length {
            -1 => Ok(None),
            1.. => Ok(Some(length as usize)),
            _ => bail!(Value, op, "lengths must be positive, or -1 for the size of the input, got {length}"),
        };
        let mut sizes = lengths.iter().map(size).collect::<Result<Vec<_>>>()?;
        sizes.resize(dims.len(), None);
        if dims.is_empty() {
            bail!(Shape, op, "expected at least 1 dimension to transform, got 0 of shape {:?}", x.shape());
        }
        Ok(DimPlan { dims, sizes, norm: options.norm })
    }

    fn options(&self, at: usize) -> FftOptions {
        FftOptions { n: self.sizes[at], dim: Dim(self.dims[at] as isize), norm: self.norm }
    }

    fn last(&self) -> FftOptions {
        self.options(self.dims.len() - 1)
    }

    /// Whether one kernel call does the whole transform: the dimensions are the last ones, in order and of full length. cuFFT
    /// takes at most three.
    fn is_one_plan(&self, x: &Tensor) -> bool {
        let first = x.rank() - self.dims.len();
        let whole = |at: usize| self.sizes[at].is_none_or(|size| size == x.shape()[self.dims[at]]);
        let last = |at: usize| self.dims[at] == first + at && x.shape()[first + at] > 0 && whole(at);
        (2..=3).contains(&self.dims.len()) && (0..self.dims.len()).all(last)
    }

    /// Along all dimensions.
    #[track_caller]
    fn all(&self, x: &Tensor, forward: bool) -> Result<Tensor> {
        if self.is_one_plan(x) {
            let factor: f64 = self.dims.iter().map(|&dim| self.norm.factor(x.shape()[dim], forward)).product();
            let y = c2c(&complex_numbers("fft", x)?, self.dims.len(), 0, forward)?;
            return if factor == 1.0 { Ok(y) } else { y.mul(factor) };
        }
        let last = one_dim("fft", x, &self.last(), forward)?;
        self.others(&last, forward)
    }

    /// Along all dimensions but the last.
    #[track_caller]
    fn others(&self, x: &Tensor, forward: bool) -> Result<Tensor> {
        let mut x = x.clone();
        for at in (0..self.dims.len() - 1).rev() {
            x = one_dim("fft", &x, &self.options(at), forward)?;
        }
        Ok(x)
    }
}

/// # Fourier transforms along several dimensions
#[ops]
impl Tensor {
    /// The 2-dimensional discrete Fourier transform, over the last two dimensions.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::fft2(&x)?.shape(), [4, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(true, true), errors = many_errors, full_precision, aliases = ["fft_fft2"])]
    #[doc(alias = "fft_fft2")]
    pub fn fft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("fft2", self, &options, true)?;
        plan.all(self, true)
    }

    /// The inverse of [`fft2`](crate::fft::fft2).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::ifft2(&fft::fft2(&x)?)?.real()?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(true, true), errors = many_errors, full_precision, aliases = ["fft_ifft2"])]
    #[doc(alias = "fft_ifft2")]
    pub fn ifft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("ifft2", self, &options, true)?;
        plan.all(self, false)
    }

    /// The 2-dimensional discrete Fourier transform of real input. The last dimension holds the nonnegative frequencies
    /// only.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::rfft2(&x)?.shape(), [4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, autocast_cpu = f32, samples = || many_samples(true, false), errors = real_many_errors, full_precision, aliases = ["fft_rfft2"])]
    #[doc(alias = "fft_rfft2")]
    pub fn rfft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("rfft2", self, &options, true)?;
        plan.others(&self.rfft_with(plan.last())?, true)
    }

    /// The inverse of [`rfft2`](crate::fft::rfft2).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::irfft2(&fft::rfft2(&x)?)?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(true, true), errors = many_errors, full_precision, aliases = ["fft_irfft2"])]
    #[doc(alias = "fft_irfft2")]
    pub fn irfft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("irfft2", self, &options, true)?;
        plan.others(self, false)?.irfft_with(plan.last())
    }

    /// The 2-dimensional discrete Fourier transform of input that is Hermitian-symmetric in the last dimension, of
    /// which the first half is given. The result is real.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::hfft2(&x)?.shape(), [4, 10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(true, true), errors = many_errors, full_precision, aliases = ["fft_hfft2"])]
    #[doc(alias = "fft_hfft2")]
    pub fn hfft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("hfft2", self, &options, true)?;
        plan.others(self, true)?.hfft_with(plan.last())
    }

    /// The inverse of [`hfft2`](crate::fft::hfft2).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::hfft2(&fft::ihfft2(&x)?)?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(true, false), errors = real_many_errors, full_precision, aliases = ["fft_ihfft2"])]
    #[doc(alias = "fft_ihfft2")]
    pub fn ihfft2(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("ihfft2", self, &options, true)?;
        plan.others(&self.ihfft_with(plan.last())?, false)
    }

    /// The discrete Fourier transform over all dimensions, or the given ones.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::fftn(&x)?.shape(), [4, 6]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(false, true), errors = many_errors, full_precision, aliases = ["fft_fftn"])]
    #[doc(alias = "fft_fftn")]
    pub fn fftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("fftn", self, &options, false)?;
        plan.all(self, true)
    }

    /// The inverse of [`fftn`](crate::fft::fftn).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::ifftn(&fft::fftn(&x)?)?.real()?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(false, true), errors = many_errors, full_precision, aliases = ["fft_ifftn"])]
    #[doc(alias = "fft_ifftn")]
    pub fn ifftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("ifftn", self, &options, false)?;
        plan.all(self, false)
    }

    /// The discrete Fourier transform of real input over all dimensions, or the given ones. The last of them holds the
    /// nonnegative frequencies only.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::rfftn(&x)?.shape(), [4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, autocast_cpu = f32, samples = || many_samples(false, false), errors = real_many_errors, full_precision, aliases = ["fft_rfftn"])]
    #[doc(alias = "fft_rfftn")]
    pub fn rfftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("rfftn", self, &options, false)?;
        plan.others(&self.rfft_with(plan.last())?, true)
    }

    /// The inverse of [`rfftn`](crate::fft::rfftn).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::irfftn(&fft::rfftn(&x)?)?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(false, true), errors = many_errors, full_precision, aliases = ["fft_irfftn"])]
    #[doc(alias = "fft_irfftn")]
    pub fn irfftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("irfftn", self, &options, false)?;
        plan.others(self, false)?.irfft_with(plan.last())
    }

    /// The discrete Fourier transform, over all dimensions or the given ones, of input that is Hermitian-symmetric in
    /// the last of them, of which the first half is given. The result is real.
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert_eq!(fft::hfftn(&x)?.shape(), [4, 10]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(false, true), errors = many_errors, full_precision, aliases = ["fft_hfftn"])]
    #[doc(alias = "fft_hfftn")]
    pub fn hfftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("hfftn", self, &options, false)?;
        plan.others(self, true)?.hfft_with(plan.last())
    }

    /// The inverse of [`hfftn`](crate::fft::hfftn).
    ///
    /// ```
    /// # use cotangent::{fft, Tensor};
    /// let x = Tensor::randn([4, 6])?;
    /// assert!(fft::hfftn(&fft::ihfftn(&x)?)?.allclose_with(&x, (1e-4, 1e-5))?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dtype is not supported, there is no such dimension, one is named twice, or the numbers of lengths and
    /// dimensions differ.
    #[op(function = fft, samples = || many_samples(false, false), errors = real_many_errors, full_precision, aliases = ["fft_ihfftn"])]
    #[doc(alias = "fft_ihfftn")]
    pub fn ihfftn(&self, options: impl Into<FftnOptions>) -> Result<Tensor> {
        let plan = DimPlan::new("ihfftn", self, &options, false)?;
        plan.others(&self.ihfft_with(plan.last())?, false)
    }
}

fn many_samples(two: bool, complex: bool) -> Result<Vec<Sample>> {
    let x = |shape: &[usize]| numbers(shape, complex);
    let mut all = vec![
        sample![x(&[4, 3])?],
        sample![x(&[2, 3, 4])?; norm = "ortho"],
        sample![x(&[3, 4])?; s = [2, 6]],
        sample![x(&[3, 2, 4])?; dim = [0, 2], norm = "forward"],
        sample![x(&[3, 2, 4])?; s = [5, 2], dim = [2, 0]],
        sample![spread([3, 4], -2.0, 2.1)?],
    ];
    if !two {
        all.push(sample![x(&[5])?]);
        all.push(sample![x(&[2, 3, 2])?; s = [4], dim = [1]]);
    }
    Ok(all)
}

fn many_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no such dimension", "2", "rank 2"; sample![&x; dim = [0, 2]]],
        error!["other lengths than dimensions", "[4]", "[0, 1]"; sample![&x; s = [4], dim = [0, 1]]],
        error!["a length of 0", "0"; sample![&x; s = [0, 2]]],
    ])
}

fn real_many_errors() -> Result<Vec<ErrorCase>> {
    let mut all = many_errors()?;
    all.push(error!["complex numbers", "c128"; sample![numbers(&[3, 2], true)?]]);
    Ok(all)
}
