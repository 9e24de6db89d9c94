//! A variational autoencoder.

use super::Published;
use crate::error::bail;
use crate::nn::{Forward, Linear, Module};
use crate::{Reduction, Result, Tensor};

/// The sizes of a [`Vae`]. The default is that of PyTorch's example, for images of 28×28.
///
/// ```
/// use cotangent::models::VaeConfig;
/// assert_eq!(VaeConfig::default().input_size, 784);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct VaeConfig {
    /// How many numbers an example has.
    pub input_size: usize,
    /// The size between the linear layers.
    pub hidden_size: usize,
    /// How many numbers an example is encoded in.
    pub latent_size: usize,
}

impl Default for VaeConfig {
    fn default() -> VaeConfig {
        VaeConfig { input_size: 784, hidden_size: 400, latent_size: 20 }
    }
}

/// A variational autoencoder of linear layers (Kingma and Welling, 2014), for examples of numbers from 0 to 1. The names are
/// those of PyTorch's example.
///
/// ```
/// use cotangent::models::{Vae, VaeConfig};
/// use cotangent::Tensor;
/// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
/// let x = Tensor::rand([4, 16])?;
/// model.forward(&x)?.loss(&x)?.backward()?;
/// // New examples.
/// assert_eq!(model.decode(&Tensor::randn([3, 2])?)?.sigmoid()?.shape(), [3, 16]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Vae {
    fc1: Linear,
    fc21: Linear,
    fc22: Linear,
    fc3: Linear,
    fc4: Linear,
}

/// What a [`Vae`] gives.
///
/// ```
/// use cotangent::models::{Vae, VaeConfig};
/// use cotangent::Tensor;
/// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
/// let output = model.forward(&Tensor::rand([4, 16])?)?;
/// assert_eq!((output.logits.shape(), output.mean.shape()), (&[4, 16][..], &[4, 2][..]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VaeOutput {
    /// The logits of the examples' numbers, `[batch, input_size]`.
    pub logits: Tensor,
    /// The means of the codes, `[batch, latent_size]`.
    pub mean: Tensor,
    /// The logarithms of the codes' variances, `[batch, latent_size]`.
    pub log_variance: Tensor,
}

impl VaeOutput {
    /// The negative lower bound of the examples' log-likelihood, as a mean over the batch: how badly the numbers are
    /// reconstructed (binary cross entropy), and how far the codes are from normal ones (Kullback-Leibler divergence).
    ///
    /// ```
    /// use cotangent::models::{Vae, VaeConfig};
    /// use cotangent::Tensor;
    /// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
    /// let x = Tensor::rand([4, 16])?;
    /// assert!(model.forward(&x)?.loss(&x)?.item::<f32>()? > 0.0);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ, or there is no example.
    #[track_caller]
    pub fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let batch = self.mean.shape()[0];
        if batch == 0 {
            bail!(Shape, "Vae", "the loss of no examples");
        }
        let reconstruction = self.logits.binary_cross_entropy_with_logits_with(x, Reduction::Sum)?;
        let (mean, log) = (&self.mean, &self.log_variance);
        let divergence = mean.square()?.add(&log.exp()?)?.sub(log)?.sub(1.0)?.sum(..)?.mul(0.5)?;
        reconstruction.add(&divergence)?.div(batch as f64)
    }
}

impl Vae {
    /// A model with new weights, as its layers make them.
    ///
    /// ```
    /// use cotangent::models::{Vae, VaeConfig};
    /// use cotangent::nn::Module;
    /// assert_eq!(Vae::new(&VaeConfig { input_size: 4, hidden_size: 3, latent_size: 2 })?.parameters().len(), 10);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size is 0.
    #[track_caller]
    pub fn new(config: &VaeConfig) -> Result<Vae> {
        let &VaeConfig { input_size, hidden_size, latent_size } = config;
        if [input_size, hidden_size, latent_size].contains(&0) {
            bail!(Value, "Vae", "sizes {input_size}, {hidden_size} and {latent_size} must be at least 1");
        }
        Ok(Vae {
            fc1: Linear::new(input_size, hidden_size)?,
            fc21: Linear::new(hidden_size, latent_size)?,
            fc22: Linear::new(hidden_size, latent_size)?,
            fc3: Linear::new(latent_size, hidden_size)?,
            fc4: Linear::new(hidden_size, input_size)?,
        })
    }

    /// Means and logarithms of the variances of the codes of `x`, `[batch, input_size]`.
    ///
    /// ```
    /// # use cotangent::models::{Vae, VaeConfig};
    /// # use cotangent::Tensor;
    /// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
    /// let (mean, log_variance) = model.encode(&Tensor::rand([4, 16])?)?;
    /// assert_eq!((mean.shape(), log_variance.shape()), (&[4, 2][..], &[4, 2][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not fit.
    #[track_caller]
    pub fn encode(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        if x.rank() != 2 {
            bail!(
                Shape,
                "Vae",
                "examples of shape {:?}, they must be [batch, {}]",
                x.shape(),
                self.fc1.weight.shape()[1]
            );
        }
        let hidden = self.fc1.forward(x)?.relu()?;
        Ok((self.fc21.forward(&hidden)?, self.fc22.forward(&hidden)?))
    }

    /// The logits of the examples that the codes stand for.
    ///
    /// ```
    /// # use cotangent::models::{Vae, VaeConfig};
    /// # use cotangent::Tensor;
    /// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
    /// assert_eq!(model.decode(&Tensor::randn([3, 2])?)?.shape(), [3, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the codes do not fit.
    #[track_caller]
    pub fn decode(&self, codes: &Tensor) -> Result<Tensor> {
        self.fc4.forward(&self.fc3.forward(codes)?.relu()?)
    }

    /// Encodes `x`, draws a code for each example and decodes it.
    ///
    /// ```
    /// # use cotangent::models::{Vae, VaeConfig};
    /// # use cotangent::Tensor;
    /// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
    /// assert_eq!(model.forward(&Tensor::rand([4, 16])?)?.logits.shape(), [4, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<VaeOutput> {
        let (mean, log_variance) = self.encode(x)?;
        let noise = mean.detach().randn_like()?;
        self.finish(mean, log_variance, &noise)
    }

    /// As [`forward`](Self::forward), with the normal numbers `[batch, latent_size]` that the codes are drawn by.
    ///
    /// ```
    /// # use cotangent::models::{Vae, VaeConfig};
    /// # use cotangent::Tensor;
    /// let model = Vae::new(&VaeConfig { input_size: 16, hidden_size: 8, latent_size: 2 })?;
    /// // The most probable codes.
    /// let output = model.forward_noise(&Tensor::rand([4, 16])?, &Tensor::zeros([4, 2])?)?;
    /// assert!(output.logits.equal(&model.decode(&output.mean)?)?);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` or the noise does not fit.
    #[doc(alias = "reparameterize")]
    #[track_caller]
    pub fn forward_noise(&self, x: &Tensor, noise: &Tensor) -> Result<VaeOutput> {
        let (mean, log_variance) = self.encode(x)?;
        self.finish(mean, log_variance, noise)
    }

    fn finish(&self, mean: Tensor, log_variance: Tensor, noise: &Tensor) -> Result<VaeOutput> {
        if noise.shape() != mean.shape() {
            bail!(Shape, "Vae", "noise of shape {:?} for codes of shape {:?}", noise.shape(), mean.shape());
        }
        let codes = mean.add(&log_variance.mul(0.5)?.exp()?.mul(noise)?)?;
        Ok(VaeOutput { logits: self.decode(&codes)?, mean, log_variance })
    }
}

impl Published for Vae {}
