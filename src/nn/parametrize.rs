//! Layers whose weight is computed from others: weight norm and spectral norm.

use super::{
    Buffer, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding, Forward, Linear,
    Module, Parameter, Part, PartMut, Ties, Training, Visit, Visitor,
};
use crate::autograd::no_grad;
use crate::error::bail;
use crate::layout::Dims;
use crate::options::{EmbeddingOptions, NormalizeOptions, options};
use crate::{Result, Tensor, keepdim};

/// A layer whose only parameters are a weight and an optional bias, and which can be called with another weight.
/// [`WeightNorm`] and [`SpectralNorm`] wrap such layers.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear, WeightedLayer}};
/// let (layer, x) = (Linear::new(3, 2)?, Tensor::ones([1, 3])?);
/// let y = layer.forward_with_weight(&x, &layer.weight.mul(2.0)?)?;
/// assert_eq!(y.shape(), [1, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait WeightedLayer: Module + Sized {
    /// The weight and the bias.
    fn parts(&self) -> (&Parameter, Option<&Parameter>);

    /// The weight and the bias, to be changed.
    fn parts_mut(&mut self) -> (&mut Parameter, Option<&mut Parameter>);

    /// The dimension of the weight that indexes the outputs.
    fn output_dim(&self) -> usize {
        0
    }

    /// Computes the output with another weight.
    ///
    /// # Errors
    /// If `x` or the weight does not fit.
    fn forward_with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor>;
}

macro_rules! weighted {
    ($($name:ident $dim:literal)+) => {$(
        impl WeightedLayer for $name {
            fn parts(&self) -> (&Parameter, Option<&Parameter>) {
                (&self.weight, self.bias.as_ref())
            }

            fn parts_mut(&mut self) -> (&mut Parameter, Option<&mut Parameter>) {
                (&mut self.weight, self.bias.as_mut())
            }

            fn output_dim(&self) -> usize {
                $dim
            }

            #[track_caller]
            fn forward_with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
                self.with_weight(x, weight)
            }
        }
    )+};
}
weighted! { Linear 0 Conv1d 0 Conv2d 0 Conv3d 0 ConvTranspose1d 1 ConvTranspose2d 1 ConvTranspose3d 1 }

impl WeightedLayer for Embedding {
    fn parts(&self) -> (&Parameter, Option<&Parameter>) {
        (&self.weight, None)
    }

    fn parts_mut(&mut self) -> (&mut Parameter, Option<&mut Parameter>) {
        (&mut self.weight, None)
    }

    #[track_caller]
    fn forward_with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let options = EmbeddingOptions { padding_idx: self.padding_idx, scale_grad_by_freq: self.scale_grad_by_freq };
        x.embedding_with(weight, options)
    }
}

options! {
    /// The options of [`WeightNorm::new_with`](crate::nn::WeightNorm::new_with).
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module, WeightNorm, WeightNormOptions};
    /// let layer = WeightNorm::new_with(Linear::new(3, 2)?, WeightNormOptions::new().dim(None))?;
    /// assert_eq!(layer.state_dict().get("parametrizations.weight.original0").ok_or("a norm")?.rank(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct WeightNormOptions {
        /// The dimension whose slices have a norm each; `None` for one norm of the whole weight.
        dim: Option<usize> = Some(0),
    }
}

/// Weight normalisation: a layer whose weight is `g · v / |v|`, with a norm `g` and a direction `v` that are trained separately
/// (Salimans and Kingma, 2016).
///
/// The names are those of `torch.nn.utils.parametrizations.weight_norm`: `parametrizations.weight.original0` is the norm,
/// `original1` the direction.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Linear, Module, WeightNorm}};
/// let (linear, x) = (Linear::new(3, 2)?, Tensor::ones([4, 3])?);
/// let before = linear.forward(&x)?;
/// let layer = WeightNorm::new(linear)?;
/// // It begins with the weight that the layer has.
/// assert!(layer.forward(&x)?.allclose_with(&before, (1e-5, 1e-6))?);
/// let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "weight_norm")]
#[derive(Debug)]
pub struct WeightNorm<L> {
    /// Its weight is the direction.
    layer: L,
    norm: Parameter,
    dim: Option<usize>,
}

/// A layer's weight, which the parametrisation computes another from.
fn dense<'a>(op: &'static str, layer: &'a impl WeightedLayer) -> Result<&'a Parameter> {
    let weight = layer.parts().0;
    if let Some(weight) = weight.quantized() {
        bail!(Value, op, "the layer's weight must not be quantized, got {}: dequantize it first", weight.format());
    }
    Ok(weight)
}

/// The norms of all slices of a weight along a dimension, or the norm of the whole weight.
fn norm_except(weight: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    let Some(dim) = dim else { return weight.norm(..) };
    let others = (0..weight.rank()).filter(|&other| other != dim).map(|other| other as isize);
    weight.norm(keepdim(Dims { named: Some(others.collect()) }))
}

impl<L: WeightedLayer> WeightNorm<L> {
    /// Wraps a layer, with one norm for each slice of the weight's first dimension. Its outputs stay.
    ///
    /// ```
    /// use cotangent::nn::{Conv2d, WeightNorm};
    /// let layer = WeightNorm::new(Conv2d::new(3, 8, 3)?)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn new(layer: L) -> Result<WeightNorm<L>> {
        WeightNorm::new_with(layer, WeightNormOptions::new())
    }

    /// As [`new`](Self::new), with options.
    ///
    /// ```
    /// use cotangent::nn::{Linear, WeightNorm, WeightNormOptions};
    /// assert!(WeightNorm::new_with(Linear::new(3, 2)?, WeightNormOptions::new().dim(2)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `dim` is out of range for the weight, the weight is quantised, or memory runs out.
    #[track_caller]
    pub fn new_with(layer: L, options: impl Into<WeightNormOptions>) -> Result<WeightNorm<L>> {
        let (dim, weight) = (options.into().dim, dense("WeightNorm", &layer)?);
        if dim.is_some_and(|dim| dim >= weight.rank()) {
            bail!(
                Shape,
                "WeightNorm",
                "dim {} is out of range for a weight of shape {:?}",
                dim.unwrap_or_default(),
                weight.shape()
            );
        }
        let norm = Parameter::new(norm_except(&weight.detach(), dim)?)?;
        Ok(WeightNorm { layer, norm, dim })
    }

    /// The weight that the layer is called with: `g · v / |v|`.
    ///
    /// ```
    /// use cotangent::nn::{Linear, WeightNorm};
    /// assert_eq!(WeightNorm::new(Linear::new(3, 2)?)?.weight()?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn weight(&self) -> Result<Tensor> {
        let direction = self.layer.parts().0;
        direction.mul(&self.norm.div(&norm_except(direction, self.dim)?)?)
    }

    /// Removes the normalisation: the layer, with the current weight as its parameter.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module, WeightNorm};
    /// let linear = WeightNorm::new(Linear::new(3, 2)?)?.into_layer()?;
    /// assert_eq!(linear.parameters().len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the weight is tied to another layer's, or memory runs out.
    #[doc(alias = "remove_parametrizations")]
    #[track_caller]
    pub fn into_layer(mut self) -> Result<L> {
        let weight = no_grad(|| self.weight())?;
        self.layer.parts_mut().0.set(&weight)?;
        Ok(self.layer)
    }
}

impl<L: WeightedLayer> Forward for WeightNorm<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward_with_weight(x, &self.weight()?)
    }
}

impl<L: WeightedLayer> Visit for WeightNorm<L> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter("WeightNorm");
        let (direction, bias) = self.layer.parts();
        bias.into_iter().for_each(|bias| visitor.module("bias", bias));
        visitor.module("parametrizations.weight.original0", &self.norm);
        visitor.module("parametrizations.weight.original1", direction);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter("WeightNorm");
        let (direction, bias) = self.layer.parts_mut();
        bias.into_iter().for_each(|bias| visitor.module("bias", bias));
        visitor.module("parametrizations.weight.original0", &mut self.norm);
        visitor.module("parametrizations.weight.original1", direction);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<WeightNorm<L>> {
        Ok(WeightNorm { layer: self.layer.deep_clone_in(ties)?, norm: ties.clone_of(&self.norm)?, dim: self.dim })
    }
}

impl<L: WeightedLayer> Module for WeightNorm<L> {}

options! {
    /// The options of [`SpectralNorm::new_with`](crate::nn::SpectralNorm::new_with).
    ///
    /// ```
    /// use cotangent::nn::{Linear, SpectralNorm, SpectralNormOptions};
    /// let layer = SpectralNorm::new_with(Linear::new(3, 2)?, SpectralNormOptions::new().n_power_iterations(3))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct SpectralNormOptions {
        /// The number of power iterations in each call in training mode.
        n_power_iterations: usize = 1,
        /// The lower bound of norms that are divided by.
        eps: f64 = 1e-12,
        /// The dimension of the weight that indexes the rows of the matrix; by default that of the outputs.
        dim: Option<usize> = None,
    }
}

/// Spectral normalisation: a layer whose weight is divided by its largest singular value (Miyato et al., 2018).
///
/// The singular vectors are buffers. Power iteration refines them in every call in training mode. The names are those of
/// `torch.nn.utils.parametrizations.spectral_norm`.
///
/// ```
/// use cotangent::{linalg, manual_seed, nn::{Forward, Linear, Module, SpectralNorm}, Tensor};
/// manual_seed(0);
/// let layer = SpectralNorm::new(Linear::new(3, 2)?)?;
/// let largest = linalg::svdvals(&layer.weight()?)?.max(..)?.item::<f32>()?;
/// assert!((largest - 1.0).abs() < 1e-2);
/// let dict = layer.state_dict();
/// let names: Vec<&str> = dict.names().collect();
/// assert_eq!(
///     names,
///     ["bias", "parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v"]
/// );
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "spectral_norm")]
#[derive(Debug)]
pub struct SpectralNorm<L> {
    layer: L,
    u: Buffer,
    v: Buffer,
    training: Training,
    n_power_iterations: usize,
    eps: f64,
    dim: usize,
}

impl<L: WeightedLayer> SpectralNorm<L> {
    /// Wraps a layer, with one power iteration in each call in training mode.
    ///
    /// ```
    /// use cotangent::nn::{Conv2d, SpectralNorm};
    /// let layer = SpectralNorm::new(Conv2d::new(3, 8, 3)?)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn new(layer: L) -> Result<SpectralNorm<L>> {
        SpectralNorm::new_with(layer, SpectralNormOptions::new())
    }

    /// As [`new`](Self::new), with options.
    ///
    /// ```
    /// use cotangent::nn::{Linear, SpectralNorm, SpectralNormOptions};
    /// assert!(SpectralNorm::new_with(Linear::new(3, 2)?, SpectralNormOptions::new().n_power_iterations(0)).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `n_power_iterations` is 0, `dim` is out of range, the weight has fewer than two dimensions or is quantised, or memory
    /// runs out.
    #[track_caller]
    pub fn new_with(layer: L, options: impl Into<SpectralNormOptions>) -> Result<SpectralNorm<L>> {
        const OP: &str = "SpectralNorm";
        let SpectralNormOptions { n_power_iterations, eps, dim } = options.into();
        let (dim, weight) = (dim.unwrap_or(layer.output_dim()), dense(OP, &layer)?.detach());
        if n_power_iterations == 0 {
            bail!(Value, OP, "n_power_iterations must be ≥ 1, got 0");
        }
        if dim >= weight.rank() || weight.rank() < 2 {
            bail!(
                Shape,
                OP,
                "weight must have at least 2 dimensions, dim among them, got dim {dim} and shape {:?}",
                weight.shape()
            );
        }
        let matrix = rows_first(&weight, dim)?;
        let vector = |size: usize| {
            Tensor::randn_with([size], (weight.dtype(), weight.device()))?
                .normalize_with(normalized(eps))
                .map(Buffer::new)
        };
        let (u, v) = (vector(matrix.shape()[0])?, vector(matrix.shape()[1])?);
        let new = SpectralNorm { layer, u, v, training: Training::default(), n_power_iterations, eps, dim };
        // PyTorch's number of iterations.
        new.iterate(&matrix, 15)?;
        Ok(new)
    }

    /// Runs `count` power iterations.
    fn iterate(&self, matrix: &Tensor, count: usize) -> Result<()> {
        no_grad(|| {
            // The lock of `u` is always taken while that of `v` is held.
            self.v.update(|v| {
                let mut v = v.clone();
                for _ in 0..count {
                    let u = matrix.mv(&v)?.normalize_with(normalized(self.eps))?;
                    v = matrix.t()?.mv(&u)?.normalize_with(normalized(self.eps))?;
                    self.u.set(&u)?;
                }
                Ok(v)
            })
        })
    }

    /// The weight that the layer is called with, by the current singular vectors.
    ///
    /// ```
    /// use cotangent::nn::{Linear, SpectralNorm};
    /// assert_eq!(SpectralNorm::new(Linear::new(3, 2)?)?.weight()?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn weight(&self) -> Result<Tensor> {
        let weight = self.layer.parts().0;
        let sigma = self.u.get().dot(&rows_first(weight, self.dim)?.mv(&self.v.get())?)?;
        weight.div(&sigma)
    }

    /// Removes the normalisation: the layer, with the current weight as its parameter.
    ///
    /// ```
    /// use cotangent::nn::{Linear, Module, SpectralNorm};
    /// let linear = SpectralNorm::new(Linear::new(3, 2)?)?.into_layer()?;
    /// assert_eq!(linear.state_dict().len(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the weight is tied to another layer's, or memory runs out.
    #[doc(alias = "remove_parametrizations")]
    #[track_caller]
    pub fn into_layer(mut self) -> Result<L> {
        let weight = no_grad(|| self.weight())?;
        self.layer.parts_mut().0.set(&weight)?;
        Ok(self.layer)
    }
}

/// A weight as a matrix whose rows are the slices of a dimension.
fn rows_first(weight: &Tensor, dim: usize) -> Result<Tensor> {
    weight.movedim(dim, 0)?.flatten(1, -1)
}

fn normalized(eps: f64) -> NormalizeOptions {
    NormalizeOptions::new().dim(0).eps(eps)
}

impl<L: WeightedLayer> Forward for SpectralNorm<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.training.is_on() {
            self.iterate(&rows_first(&self.layer.parts().0.detach(), self.dim)?, self.n_power_iterations)?;
        }
        self.layer.forward_with_weight(x, &self.weight()?)
    }
}

impl<L: WeightedLayer> Visit for SpectralNorm<L> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        visitor.enter("SpectralNorm");
        let (weight, bias) = self.layer.parts();
        bias.into_iter().for_each(|bias| visitor.module("bias", bias));
        visitor.module("parametrizations.weight.original", weight);
        visitor.module("parametrizations.weight.0._u", &self.u);
        visitor.module("parametrizations.weight.0._v", &self.v);
        visitor.module("training", &self.training);
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        visitor.enter("SpectralNorm");
        let (weight, bias) = self.layer.parts_mut();
        bias.into_iter().for_each(|bias| visitor.module("bias", bias));
        visitor.module("parametrizations.weight.original", weight);
        visitor.module("parametrizations.weight.0._u", &mut self.u);
        visitor.module("parametrizations.weight.0._v", &mut self.v);
        visitor.module("training", &mut self.training);
    }

    fn deep_clone_in(&self, ties: &mut Ties) -> Result<SpectralNorm<L>> {
        let &SpectralNorm { training, n_power_iterations, eps, dim, .. } = self;
        let (u, v) = (self.u.deep_clone_in(ties)?, self.v.deep_clone_in(ties)?);
        Ok(SpectralNorm { layer: self.layer.deep_clone_in(ties)?, u, v, training, n_power_iterations, eps, dim })
    }
}

impl<L: WeightedLayer> Module for SpectralNorm<L> {}
