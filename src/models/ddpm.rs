//! Denoising diffusion.

use super::Published;
use super::unet::{UNet, UNetConfig, UNetNorm};
use crate::autograd::no_grad;
use crate::error::bail;
use crate::nn::Module;
use crate::{DType, Device, Result, Shape, Tensor};

/// The noise schedule of a [`Ddpm`].
///
/// ```
/// use cotangent::models::NoiseSchedule;
/// let schedule = NoiseSchedule::Linear { first: 1e-4, last: 0.02 };
/// assert_eq!(schedule.betas(1000)?[999], 0.02);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseSchedule {
    /// Linearly spaced variances (Ho et al., 2020).
    Linear {
        /// The variance of the first step.
        first: f64,
        /// The variance of the last step.
        last: f64,
    },
    /// The remaining variance of the image follows a squared cosine (Nichol and Dhariwal, 2021).
    Cosine,
}

impl NoiseSchedule {
    /// The variance that each of `steps` steps adds.
    ///
    /// ```
    /// use cotangent::models::NoiseSchedule;
    /// assert!(NoiseSchedule::Cosine.betas(10)?.iter().all(|&beta| 0.0 < beta && beta <= 0.999));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `steps` is 0 or more than a million, or a variance is not in (0, 1).
    #[track_caller]
    pub fn betas(self, steps: usize) -> Result<Vec<f64>> {
        const MOST: usize = 1_000_000;
        if !(1..=MOST).contains(&steps) {
            bail!(Value, "Ddpm", "steps must be from 1 to {MOST}, got {steps}");
        }
        let count = steps as f64;
        match self {
            NoiseSchedule::Linear { first, last } => {
                if ![first, last].iter().all(|beta| (0.0..1.0).contains(beta) && *beta > 0.0) {
                    bail!(Value, "Ddpm", "first and last must be in (0, 1), got {first} and {last}");
                }
                let step = if steps > 1 { (last - first) / (count - 1.0) } else { 0.0 };
                // The last one is exact.
                Ok((0..steps)
                    .map(|i| if i + 1 == steps && steps > 1 { last } else { first + step * i as f64 })
                    .collect())
            }
            NoiseSchedule::Cosine => {
                let left = |t: f64| ((t / count + 0.008) / 1.008 * std::f64::consts::FRAC_PI_2).cos().powi(2);
                Ok((0..steps).map(|i| (1.0 - left(i as f64 + 1.0) / left(i as f64)).min(0.999)).collect())
            }
        }
    }
}

/// The sizes of a [`Ddpm`].
///
/// ```
/// use cotangent::models::DdpmConfig;
/// assert_eq!(DdpmConfig::default().steps, 1000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DdpmConfig {
    /// The network that predicts the noise in an image. It has equal `in_channels` and `out_channels`, and a `time_size`.
    pub unet: UNetConfig,
    /// The number of diffusion steps.
    pub steps: usize,
    /// The noise schedule.
    pub schedule: NoiseSchedule,
    /// Whether the predicted image is clamped to [-1, 1] in each step.
    pub clip: bool,
}

impl Default for DdpmConfig {
    fn default() -> DdpmConfig {
        DdpmConfig {
            unet: UNetConfig {
                in_channels: 3,
                out_channels: 3,
                channels: vec![64, 128, 256],
                norm: UNetNorm::Group(8),
                time_size: Some(128),
            },
            steps: 1000,
            schedule: NoiseSchedule::Linear { first: 1e-4, last: 0.02 },
            clip: true,
        }
    }
}

/// A denoising diffusion model (Ho et al., 2020): a [`UNet`] learns to predict the noise in an image, and generates images from
/// noise by removing it step by step. Images have values from -1 to 1.
///
/// ```
/// use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
/// use cotangent::optim::{AdamW, Optimizer};
/// use cotangent::nn::Module;
/// use cotangent::Tensor;
/// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4, 8], norm: UNetNorm::Group(2), time_size: Some(8) };
/// let mut model = Ddpm::new(&DdpmConfig { unet, steps: 20, ..DdpmConfig::default() })?;
/// let mut optimizer = AdamW::new(1e-3);
/// for _ in 0..2 {
///     let images = Tensor::rand([4, 1, 8, 8])?.mul(2.0)?.sub(1.0)?;
///     let loss = model.loss(&images)?;
///     model.zero_grad();
///     loss.backward()?;
///     optimizer.step(&mut model)?;
/// }
/// assert_eq!(model.sample([2, 1, 8, 8])?.shape(), [2, 1, 8, 8]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Ddpm {
    unet: UNet,
    /// The variance that each step adds.
    betas: Vec<f64>,
    /// The remaining variance of the image after each step.
    left: Vec<f64>,
    clip: bool,
}

impl Ddpm {
    /// A model with new weights.
    ///
    /// ```
    /// use cotangent::models::{Ddpm, DdpmConfig, UNetConfig};
    /// let unet = UNetConfig { time_size: None, ..DdpmConfig::default().unet };
    /// assert!(Ddpm::new(&DdpmConfig { unet, ..DdpmConfig::default() }).is_err());
    /// ```
    ///
    /// # Errors
    /// If the network has no `time_size` or different numbers of input and output channels, or the schedule is invalid.
    #[track_caller]
    pub fn new(config: &DdpmConfig) -> Result<Ddpm> {
        let unet = &config.unet;
        if unet.time_size.is_none() || unet.in_channels != unet.out_channels {
            bail!(
                Value,
                "Ddpm",
                "unet must have equal in_channels and out_channels and a time_size, got {}, {} and {:?}",
                unet.in_channels,
                unet.out_channels,
                unet.time_size
            );
        }
        let betas = config.schedule.betas(config.steps)?;
        let left = betas.iter().scan(1.0, |left, beta| {
            *left *= 1.0 - beta;
            Some(*left)
        });
        Ok(Ddpm { left: left.collect(), betas, unet: UNet::new(unet)?, clip: config.clip })
    }

    /// The number of diffusion steps.
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// assert_eq!(Ddpm::new(&DdpmConfig { unet, ..DdpmConfig::default() })?.steps(), 1000);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn steps(&self) -> usize {
        self.betas.len()
    }

    /// The loss of images `[batch, channels, height, width]` at random times, with random noise: the mean squared error of the
    /// predicted noise.
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// # use cotangent::Tensor;
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// let model = Ddpm::new(&DdpmConfig { unet, steps: 10, ..DdpmConfig::default() })?;
    /// model.loss(&Tensor::zeros([4, 1, 8, 8])?)?.backward()?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the images do not fit.
    #[track_caller]
    pub fn loss(&self, images: &Tensor) -> Result<Tensor> {
        let batch = images.shape().first().copied().unwrap_or(0);
        let t = Tensor::randint_with(0, self.steps() as i64, [batch], (DType::I64, images.device()))?;
        self.loss_at(images, &t, &images.detach().randn_like()?)
    }

    /// The loss of images at these times, one of `0..steps` for each, with this noise.
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// # use cotangent::{Tensor, tensor};
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// let model = Ddpm::new(&DdpmConfig { unet, steps: 10, ..DdpmConfig::default() })?;
    /// let (images, noise) = (Tensor::zeros([2, 1, 8, 8])?, Tensor::randn([2, 1, 8, 8])?);
    /// let loss = model.loss_at(&images, &tensor!([0, 9])?, &noise)?;
    /// assert_eq!(loss.rank(), 0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If images, times and noise do not fit, or a time is not in `0..steps`.
    #[track_caller]
    pub fn loss_at(&self, images: &Tensor, t: &Tensor, noise: &Tensor) -> Result<Tensor> {
        let found = self.unet.forward_at(&self.add_noise(images, t, noise)?, t)?;
        found.mse_loss(noise)
    }

    /// Adds noise to images: gives the noisy images at these times.
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// # use cotangent::{Tensor, tensor};
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// let model = Ddpm::new(&DdpmConfig { unet, ..DdpmConfig::default() })?;
    /// let noisy = model.add_noise(&Tensor::zeros([2, 1, 8, 8])?, &tensor!([0, 999])?, &Tensor::ones([2, 1, 8, 8])?)?;
    /// assert!(noisy.select(0, 0)?.max(..)?.item::<f32>()? < 0.02 && noisy.select(0, 1)?.min(..)?.item::<f32>()? > 0.99);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If images, times and noise do not fit, or a time is not in `0..steps`.
    #[track_caller]
    pub fn add_noise(&self, images: &Tensor, t: &Tensor, noise: &Tensor) -> Result<Tensor> {
        if images.rank() != 4 || noise.shape() != images.shape() || t.shape() != [images.shape()[0]] {
            bail!(
                Shape,
                "Ddpm",
                "images and noise must have one 4-D shape, and t one time for each image, got shapes {:?}, {:?} and {:?}",
                images.shape(),
                noise.shape(),
                t.shape()
            );
        }
        let column = |f: fn(f64) -> f64| {
            let values: Vec<f64> = self.left.iter().map(|&left| f(left).sqrt()).collect();
            let table = Tensor::from_vec(values, [self.steps()])?.to_device(t.device())?;
            table.index_select(0, t)?.reshape([t.numel(), 1, 1, 1])?.to_dtype(images.dtype())
        };
        images.mul(&column(|left| left)?)?.add(&noise.mul(&column(|left| 1.0 - left)?)?)
    }

    /// Generates images of this shape, `[batch, channels, height, width]`, on the device and in the dtype of the model. Set a
    /// network with batch norms to evaluation mode first: see [`Module::eval`].
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// let model = Ddpm::new(&DdpmConfig { unet, steps: 10, ..DdpmConfig::default() })?;
    /// assert_eq!(model.sample([2, 1, 8, 8])?.shape(), [2, 1, 8, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape does not fit the network.
    #[track_caller]
    pub fn sample(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let (dtype, device) = self.position();
        let mut x = Tensor::randn_with(shape, (dtype, device))?;
        for t in (0..self.steps()).rev() {
            x = self.step(&x, t, &x.randn_like()?)?;
        }
        Ok(x)
    }

    /// One denoising step: from images at time `t` to those at time `t - 1`, with this noise. The step at time 0 adds none.
    ///
    /// ```
    /// # use cotangent::models::{Ddpm, DdpmConfig, UNetConfig, UNetNorm};
    /// # use cotangent::Tensor;
    /// let unet = UNetConfig { in_channels: 1, out_channels: 1, channels: vec![4], norm: UNetNorm::Group(2), time_size: Some(8) };
    /// let model = Ddpm::new(&DdpmConfig { unet, steps: 10, ..DdpmConfig::default() })?;
    /// let x = Tensor::randn([2, 1, 8, 8])?;
    /// assert_eq!(model.step(&x, 9, &x.randn_like()?)?.shape(), [2, 1, 8, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `t` is not in `0..steps`, or images and noise do not fit.
    #[track_caller]
    pub fn step(&self, x: &Tensor, t: usize, noise: &Tensor) -> Result<Tensor> {
        if t >= self.steps() || x.rank() != 4 || noise.shape() != x.shape() {
            bail!(
                Value,
                "Ddpm",
                "t must be less than {}, and x and noise must have one 4-D shape, got t {t} and shapes {:?} and {:?}",
                self.steps(),
                x.shape(),
                noise.shape()
            );
        }
        let (beta, left) = (self.betas[t], self.left[t]);
        let before = if t > 0 { self.left[t - 1] } else { 1.0 };
        no_grad(|| {
            let times = Tensor::full_with([x.shape()[0]], t as i64, (DType::I64, x.device()))?;
            let found = self.unet.forward_at(x, &times)?;
            let mut image = x.sub(&found.mul((1.0 - left).sqrt())?)?.div(left.sqrt())?;
            if self.clip {
                image = image.clamp(-1.0, 1.0)?;
            }
            // Mean and variance of the previous images, given the predicted image and the current ones.
            let of_image = before.sqrt() * beta / (1.0 - left);
            let of_now = (1.0 - beta).sqrt() * (1.0 - before) / (1.0 - left);
            let variance = beta * (1.0 - before) / (1.0 - left);
            image.mul(of_image)?.add(&x.mul(of_now)?)?.add(&noise.mul(variance.sqrt())?)
        })
    }

    fn position(&self) -> (DType, Device) {
        self.parameters().first().map_or((DType::F32, Device::Cpu), |first| (first.dtype(), first.device()))
    }
}

impl Published for Ddpm {}
