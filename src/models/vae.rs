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
    /// The size of an example.
    pub input_size: usize,
    /// The size of the hidden layers.
    pub hidden_size: usize,
    /// The size of a code.
    pub latent_size: usize,
}

impl Default for VaeConfig {
    fn default() -> VaeConfig {
        VaeConfig { input_size: 784, hidden_size: 400, latent_size: 20 }
    }
}

/// A variational autoencoder of linear layers (Kingma and Welling, 2014), for examples with values in [0, 1]. The names are
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

/// The output of a [`Vae`].
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
    /// The logits of the reconstructed examples, `[batch, input_size]`.
    pub logits: Tensor,
    /// The means of the codes, `[batch, latent_size]`.
    pub mean: Tensor,
    /// The logarithms of the codes' variances, `[batch, latent_size]`.
    pub log_variance: Tensor,
}

impl VaeOutput {
    /// The negative evidence lower bound, as a mean over the batch: the binary cross entropy of the reconstruction plus the
    /// Kullback-Leibler divergence of the codes from the standard normal distribution.
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
    /// If the shapes differ, or the batch is empty.
    #[track_caller]
    pub fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let batch = self.mean.shape()[0];
        if batch == 0 {
            bail!(Shape, "Vae", "the batch must have at least one example");
        }
        let reconstruction = self.logits.binary_cross_entropy_with_logits_with(x, Reduction::Sum)?;
        let (mean, log) = (&self.mean, &self.log_variance);
        let divergence = mean.square()?.add(&log.exp()?)?.sub(log)?.sub(1.0)?.sum(..)?.mul(0.5)?;
        reconstruction.add(&divergence)?.div(batch as f64)
    }
}

impl Vae {
    /// A model with new weights, initialised by its layers.
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
            bail!(
                Value,
                "Vae",
                "all sizes must be ≥ 1, got input_size {input_size}, hidden_size {hidden_size} and latent_size {latent_size}"
            );
        }
        Ok(Vae {
            fc1: Linear::new(input_size, hidden_size)?,
            fc21: Linear::new(hidden_size, latent_size)?,
            fc22: Linear::new(hidden_size, latent_size)?,
            fc3: Linear::new(latent_size, hidden_size)?,
            fc4: Linear::new(hidden_size, input_size)?,
        })
    }

    /// Encodes `x`, `[batch, input_size]`: returns the means and the logarithms of the variances of the codes.
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
            bail!(Shape, "Vae", "x must have shape [batch, {}], got {:?}", self.fc1.weight.shape()[1], x.shape());
        }
        let hidden = self.fc1.forward(x)?.relu()?;
        Ok((self.fc21.forward(&hidden)?, self.fc22.forward(&hidden)?))
    }

    /// Decodes codes to the logits of examples.
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

    /// As [`forward`](Self::forward), with the normal noise `[batch, latent_size]` that the codes are drawn with.
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
            bail!(Shape, "Vae", "noise must have shape {:?}, got {:?}", mean.shape(), noise.shape());
        }
        let codes = mean.add(&log_variance.mul(0.5)?.exp()?.mul(noise)?)?;
        Ok(VaeOutput { logits: self.decode(&codes)?, mean, log_variance })
    }
}

impl Published for Vae {}
