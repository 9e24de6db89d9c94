//! Layers that change shapes, look up bags of vectors, multiply two inputs, or drop whole channels.

use super::{Forward, Module, Parameter, Training, init, layer};
use crate::error::bail;
use crate::layout::{Dim, Sizes};
use crate::options::options;
use crate::options::{BagMode, InterpolateMode, InterpolateOptions};
use crate::{Result, Shape, Tensor};

options! {
    /// The options of [`Upsample`]: either `size` or `scale_factor` must be given.
    ///
    /// ```
    /// use cotangent::nn::{Upsample, UpsampleOptions};
    /// let layer = Upsample::new_with(UpsampleOptions::new().scale_factor(vec![2.0]))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UpsampleOptions {
        /// The output size of the spatial dimensions: one number for all, or one for each.
        size: Option<Shape> = None,
        /// The factor by which these sizes are multiplied.
        scale_factor: Option<Vec<f64>> = None,
        /// The interpolation mode.
        mode: InterpolateMode = InterpolateMode::Nearest,
        /// Whether the corner elements of input and output are aligned.
        align_corners: Option<bool> = None,
        /// Whether the factor is recomputed from the sizes.
        recompute_scale_factor: Option<bool> = None,
    }
}

/// Resizes sequences, images or volumes: [`Tensor::interpolate`] as a layer.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Upsample, UpsampleOptions}};
/// let layer = Upsample::new_with(UpsampleOptions::new().scale_factor(vec![2.0]))?;
/// assert_eq!(layer.forward(&Tensor::zeros([1, 3, 4, 5])?)?.shape(), [1, 3, 8, 10]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Upsample {
    #[module(skip)]
    options: UpsampleOptions,
}

#[layer]
impl Upsample {
    /// Resizes sequences, images or volumes to `size` or by `scale_factor`.
    ///
    /// ```
    /// assert!(cotangent::nn::Upsample::new().is_err());
    /// ```
    ///
    /// # Errors
    /// If both or neither are given.
    pub fn new(options: impl Into<UpsampleOptions>) -> Result<Upsample> {
        if options.size.is_some() == options.scale_factor.is_some() {
            let given = if options.size.is_some() { "both" } else { "neither" };
            bail!(Value, "Upsample", "expected either size or scale_factor, got {given}");
        }
        Ok(Upsample { options })
    }
}

impl Forward for Upsample {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let UpsampleOptions { size, scale_factor, mode, align_corners, recompute_scale_factor } = self.options.clone();
        let options = InterpolateOptions::new().size(size).scale_factor(scale_factor).mode(mode);
        x.interpolate_with(options.align_corners(align_corners).recompute_scale_factor(recompute_scale_factor))
    }
}

/// Layers with one number as their option.
macro_rules! of_a_number {
    ($($(#[doc = $doc:tt])+ $name:ident($number:ident) => $method:ident, $from:literal, $to:literal;)+) => {$(
        $(#[doc = $doc])+
        ///
        /// ```
        #[doc = concat!("use cotangent::{Tensor, nn::{Forward, ", stringify!($name), "}};")]
        #[doc = concat!("let y = ", stringify!($name), "::new(2)?.forward(&Tensor::zeros(", $from, ")?)?;")]
        #[doc = concat!("assert_eq!(y.shape(), ", $to, ");")]
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Module)]
        pub struct $name {
            $number: usize,
        }

        #[layer]
        impl $name {
            $(#[doc = $doc])+
            ///
            /// ```
            #[doc = concat!("let layer = cotangent::nn::", stringify!($name), "::new(2)?;")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// None. The argument is checked when the layer is called.
            pub fn new($number: usize) -> Result<$name> {
                Ok($name { $number })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method(self.$number)
            }
        }
    )+};
}
of_a_number! {
    /// Rearranges `[.., C · r², H, W]` into `[.., C, H · r, W · r]`, with the upscale factor `r`.
    PixelShuffle(upscale_factor) => pixel_shuffle, "[1, 4, 2, 3]", "[1, 1, 4, 6]";
    /// The inverse of [`PixelShuffle`]: rearranges `[.., C, H · r, W · r]` into `[.., C · r², H, W]`.
    PixelUnshuffle(downscale_factor) => pixel_unshuffle, "[1, 1, 4, 6]", "[1, 4, 2, 3]";
    /// Interleaves groups of channels: the first channel of each group, then the second of each, and so on.
    ChannelShuffle(groups) => channel_shuffle, "[1, 4, 2]", "[1, 4, 2]";
}

/// Splits a dimension into several.
///
/// ```
/// use cotangent::{Tensor, nn::{Forward, Unflatten}};
/// assert_eq!(Unflatten::new(1, [2, -1])?.forward(&Tensor::zeros([3, 8])?)?.shape(), [3, 2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Unflatten {
    dim: isize,
    #[module(skip)]
    sizes: Sizes,
}

#[layer]
impl Unflatten {
    /// Splits `dim` into dimensions of the sizes `unflattened_size`, of which one may be -1.
    ///
    /// ```
    /// let layer = cotangent::nn::Unflatten::new(1, [3, 32, 32])?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None. The sizes are checked when the layer is called.
    pub fn new(dim: impl Into<Dim>, unflattened_size: impl Into<Sizes>) -> Result<Unflatten> {
        Ok(Unflatten { dim: dim.0, sizes: unflattened_size })
    }
}

impl Forward for Unflatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.unflatten(self.dim, self.sizes.clone())
    }
}

options! {
    /// The options of [`Bilinear::new_with`](crate::nn::Bilinear::new_with).
    ///
    /// ```
    /// use cotangent::nn::{Bilinear, BilinearOptions};
    /// assert!(Bilinear::new_with(2, 3, 4, BilinearOptions::new().bias(false))?.bias.is_none());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct BilinearOptions {
        /// Whether to add a learned bias.
        bias: bool = true,
    }
}

/// A bilinear layer: `x1ᵀ W x2 + b` over the last dimensions of two inputs. It does not implement [`Forward`], which takes one.
///
/// ```
/// use cotangent::{Tensor, nn::Bilinear};
/// let layer = Bilinear::new(2, 3, 4)?;
/// assert_eq!(layer.forward(&Tensor::ones([5, 2])?, &Tensor::ones([5, 3])?)?.shape(), [5, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Bilinear {
    /// Of shape `[out_features, in1_features, in2_features]`. Weight and bias are initialised uniformly in ±1/√in1_features.
    pub weight: Parameter,
    /// Of shape `[out_features]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// A bilinear layer from `in1_features` and `in2_features` to `out_features`.
    ///
    /// ```
    /// assert_eq!(cotangent::nn::Bilinear::new(2, 3, 4)?.weight.shape(), [4, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn new(in1_features: usize, in2_features: usize, out_features: usize) -> Result<Bilinear> {
        Bilinear::new_with(in1_features, in2_features, out_features, BilinearOptions::new())
    }

    /// As [`new`](Self::new), with options.
    ///
    /// ```
    /// use cotangent::nn::{Bilinear, BilinearOptions, Module};
    /// assert_eq!(Bilinear::new_with(2, 3, 4, BilinearOptions::new().bias(false))?.num_parameters(), 24);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn new_with(
        in1_features: usize,
        in2_features: usize,
        out_features: usize,
        options: impl Into<BilinearOptions>,
    ) -> Result<Bilinear> {
        let bound = 1.0 / (in1_features.max(1) as f64).sqrt();
        let weight = init::uniform([out_features, in1_features, in2_features], -bound, bound)?;
        let bias = || Parameter::new(init::uniform([out_features], -bound, bound)?);
        Ok(Bilinear { weight: Parameter::new(weight)?, bias: options.into().bias.then(bias).transpose()? })
    }

    /// Computes the output for two inputs.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Bilinear};
    /// let (a, b) = (Tensor::ones([2, 1])?, Tensor::ones([2, 1])?);
    /// assert_eq!(Bilinear::new(1, 1, 3)?.forward(&a, &b)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor) -> Result<Tensor> {
        input1.bilinear(input2, &self.weight, self.bias.as_deref())
    }
}

options! {
    /// The options of [`EmbeddingBag::new_with`]. A mode can be passed in their place.
    ///
    /// ```
    /// use cotangent::{nn::{EmbeddingBag, EmbeddingBagLayerOptions}, options::BagMode};
    /// let bags = EmbeddingBag::new_with(10, 4, EmbeddingBagLayerOptions::new().mode(BagMode::Max))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EmbeddingBagLayerOptions {
        /// How the vectors of a bag are reduced.
        mode: BagMode = BagMode::Mean,
        /// Whether the last offset is the end of the last bag.
        include_last_offset: bool = false,
        /// An index that the reduction ignores.
        padding_idx: Option<i64> = None,
    }
}

impl From<BagMode> for EmbeddingBagLayerOptions {
    fn from(mode: BagMode) -> EmbeddingBagLayerOptions {
        EmbeddingBagLayerOptions::new().mode(mode)
    }
}

/// An embedding whose vectors are reduced over each bag of indices by sum, mean or maximum. Bags are rows of the indices.
///
/// ```
/// use cotangent::{nn::{EmbeddingBag, Forward}, tensor};
/// let bags = EmbeddingBag::new(10, 4)?;
/// assert_eq!(bags.forward(&tensor!([[7, 7, 1], [0, 1, 2]])?)?.shape(), [2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct EmbeddingBag {
    /// Of shape `[num_embeddings, embedding_dim]`; initialised from the standard normal distribution, with zeros at
    /// `padding_idx`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingBagLayerOptions,
}

#[layer]
impl EmbeddingBag {
    /// An embedding of `num_embeddings` vectors of size `embedding_dim`, reduced over each bag of indices.
    ///
    /// ```
    /// assert_eq!(cotangent::nn::EmbeddingBag::new(100, 16)?.weight.shape(), [100, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `padding_idx` is out of range, or memory runs out.
    pub fn new(
        num_embeddings: usize,
        embedding_dim: usize,
        options: impl Into<EmbeddingBagLayerOptions>,
    ) -> Result<EmbeddingBag> {
        let mut weight = init::normal([num_embeddings, embedding_dim], 0.0, 1.0)?;
        if let Some(padding) = options.padding_idx {
            let index = Tensor::full([1], padding)?;
            weight = weight.index_fill(0, &index, 0.0)?;
        }
        Ok(EmbeddingBag { weight: Parameter::new(weight)?, options })
    }

    /// As [`forward`](Forward::forward), for bags that begin at `offsets` in a vector of indices.
    ///
    /// ```
    /// use cotangent::{nn::EmbeddingBag, tensor};
    /// let y = EmbeddingBag::new(10, 4)?.forward_with(&tensor!([7, 7, 1])?, Some(&tensor!([0, 2])?), None)?;
    /// assert_eq!(y.shape(), [2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::embedding_bag`].
    #[track_caller]
    pub fn forward_with(
        &self,
        indices: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let EmbeddingBagLayerOptions { mode, include_last_offset, padding_idx } = self.options;
        let options = crate::options::EmbeddingBagOptions::new().mode(mode).include_last_offset(include_last_offset);
        let options = options.padding_idx(padding_idx).offsets(offsets).per_sample_weights(per_sample_weights);
        if let Some(weight) = self.weight.quantized() {
            bail!(
                Value,
                "EmbeddingBag",
                "the weight must not be quantized, got {}: dequantize it first",
                weight.format()
            );
        }
        indices.embedding_bag_with(&self.weight, options)
    }
}

impl Forward for EmbeddingBag {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.forward_with(indices, None, None)
    }
}

/// Layers that drop elements or channels in training.
macro_rules! dropouts {
    ($($(#[doc = $doc:tt])+ $name:ident => $method:ident, $shape:literal;)+) => {$(
        $(#[doc = $doc])+
        ///
        /// ```
        #[doc = concat!("use cotangent::{Tensor, nn::{Forward, Module, ", stringify!($name), "}};")]
        #[doc = concat!("let mut layer = ", stringify!($name), "::new(0.5)?;")]
        #[doc = concat!("let x = Tensor::ones(", $shape, ")?;")]
        /// assert_eq!(layer.forward(&x)?.shape(), x.shape());
        /// layer.eval();
        /// assert!(layer.forward(&x)?.equal(&x)?);
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Debug, Module)]
        pub struct $name {
            p: f64,
            training: Training,
        }

        #[layer]
        impl $name {
            $(#[doc = $doc])+
            ///
            /// ```
            #[doc = concat!("assert!(cotangent::nn::", stringify!($name), "::new(1.5).is_err());")]
            /// ```
            ///
            /// # Errors
            /// If `p` is not in [0, 1].
            pub fn new(#[default(0.5)] p: f64) -> Result<$name> {
                if !(0.0..=1.0).contains(&p) {
                    bail!(Value, stringify!($name), "dropout probability p must be in [0, 1], got {p}");
                }
                Ok($name { p, training: Training::default() })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method(self.p, self.training.is_on())
            }
        }
    )+};
}
dropouts! {
    /// In training, sets whole channels of sequences to zero with probability `p`.
    Dropout1d => dropout1d_with, "[2, 3, 4]";
    /// In training, sets whole channels of images to zero with probability `p`.
    Dropout2d => dropout2d_with, "[2, 3, 4, 4]";
    /// In training, sets whole channels of volumes to zero with probability `p`.
    Dropout3d => dropout3d_with, "[2, 3, 4, 4, 4]";
    /// Dropout with probability `p` that keeps mean and variance, for networks with [`SELU`](super::SELU).
    AlphaDropout => alpha_dropout_with, "[2, 3]";
    /// As [`AlphaDropout`], for whole channels.
    FeatureAlphaDropout => feature_alpha_dropout_with, "[2, 3, 4]";
}
