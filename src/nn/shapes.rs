//! Layers that change shapes, look up bags of vectors, multiply two inputs, or drop whole channels.

use super::{Forward, Module, Parameter, Training, init, layer};
use crate::error::bail;
use crate::options::options;
use crate::{BagMode, Dim, InterpolateMode, InterpolateOptions, Result, Shape, Sizes, Tensor};

options! {
    /// The options of [`Upsample`]: a size or a factor must be given.
    ///
    /// ```
    /// use cotangent::nn::{Upsample, UpsampleOptions};
    /// let layer = Upsample::new_with(UpsampleOptions::new().scale_factor(vec![2.0]))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct UpsampleOptions {
        /// The new sizes of the dimensions behind the channels; one for all, or one for each.
        size: Option<Shape> = None,
        /// By what these sizes are multiplied.
        scale_factor: Option<Vec<f64>> = None,
        /// How new elements are found.
        mode: InterpolateMode = InterpolateMode::Nearest,
        /// Whether the outermost elements keep their places.
        align_corners: Option<bool> = None,
        /// Whether the factor is computed anew from the sizes.
        recompute_scale_factor: Option<bool> = None,
    }
}

/// Images, volumes or sequences in another size: [`Tensor::interpolate`] as a layer.
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
    /// To a size, or by a factor.
    ///
    /// ```
    /// assert!(cotangent::nn::Upsample::new().is_err());
    /// ```
    ///
    /// # Errors
    /// If both or neither of them are given.
    pub fn new(options: impl Into<UpsampleOptions>) -> Result<Upsample> {
        if options.size.is_some() == options.scale_factor.is_some() {
            bail!(Value, "Upsample", "a size or a factor must be given, and not both");
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

/// Layers of one number.
macro_rules! of_a_number {
    ($($(#[doc = $doc:literal])+ $name:ident($number:ident) => $method:ident, $from:literal, $to:literal;)+) => {$(
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
            /// With this number.
            ///
            /// ```
            #[doc = concat!("let layer = cotangent::nn::", stringify!($name), "::new(2)?;")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// None: whether the number fits is seen when the layer is used.
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
    /// Groups of channels made the pixels of one that is higher and wider.
    PixelShuffle(upscale_factor) => pixel_shuffle, "[1, 4, 2, 3]", "[1, 1, 4, 6]";
    /// The inverse of [`PixelShuffle`].
    PixelUnshuffle(downscale_factor) => pixel_unshuffle, "[1, 1, 4, 6]", "[1, 4, 2, 3]";
    /// Channels in another order: the first of each group, then the second of each, and so on.
    ChannelShuffle(groups) => channel_shuffle, "[1, 4, 2]", "[1, 4, 2]";
}

/// One dimension as several.
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
    /// This dimension, into these sizes; one of them may be -1.
    ///
    /// ```
    /// let layer = cotangent::nn::Unflatten::new(1, [3, 32, 32])?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None: whether the sizes fit is seen when the layer is used.
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
        /// Whether there is a bias.
        bias: bool = true,
    }
}

/// `x1ᵀ W x2 + b`, over the last dimensions of two inputs. It is no [`Forward`], which has one.
///
/// ```
/// use cotangent::{Tensor, nn::Bilinear};
/// let layer = Bilinear::new(2, 3, 4)?;
/// assert_eq!(layer.forward(&Tensor::ones([5, 2])?, &Tensor::ones([5, 3])?)?.shape(), [5, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct Bilinear {
    /// Of shape `[outputs, inputs1, inputs2]`; uniform in ±1/√inputs1 at first, and so is the bias.
    pub weight: Parameter,
    /// Of shape `[outputs]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// From two inputs of these sizes.
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

    /// What comes out for two inputs.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::Bilinear};
    /// let (a, b) = (Tensor::ones([2, 1])?, Tensor::ones([2, 1])?);
    /// assert_eq!(Bilinear::new(1, 1, 3)?.forward(&a, &b)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If they do not fit.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor) -> Result<Tensor> {
        input1.bilinear(input2, &self.weight, self.bias.as_deref())
    }
}

options! {
    /// The options of [`EmbeddingBag::new_with`]. A mode stands for itself.
    ///
    /// ```
    /// use cotangent::{BagMode, nn::{EmbeddingBag, EmbeddingBagOptions}};
    /// let bags = EmbeddingBag::new_with(10, 4, EmbeddingBagOptions::new().mode(BagMode::Max))?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct EmbeddingBagOptions {
        /// What becomes of the vectors in a bag.
        mode: BagMode = BagMode::Mean,
        /// Whether the last offset is the end of the last bag.
        include_last_offset: bool = false,
        /// An index that does not count.
        padding_idx: Option<i64> = None,
    }
}

impl From<BagMode> for EmbeddingBagOptions {
    fn from(mode: BagMode) -> EmbeddingBagOptions {
        EmbeddingBagOptions::new().mode(mode)
    }
}

/// A table of vectors, of which those of each bag are added up, or their mean or maximum is taken. Bags are rows.
///
/// ```
/// use cotangent::{nn::{EmbeddingBag, Forward}, tensor};
/// let bags = EmbeddingBag::new(10, 4)?;
/// assert_eq!(bags.forward(&tensor!([[7, 7, 1], [0, 1, 2]])?)?.shape(), [2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct EmbeddingBag {
    /// Of shape `[num_embeddings, embedding_dim]`; standard normal at first, but for the padding, which is zero.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingBagOptions,
}

#[layer]
impl EmbeddingBag {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    ///
    /// ```
    /// assert_eq!(cotangent::nn::EmbeddingBag::new(100, 16)?.weight.shape(), [100, 16]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no vector for the padding.
    pub fn new(
        num_embeddings: usize,
        embedding_dim: usize,
        options: impl Into<EmbeddingBagOptions>,
    ) -> Result<EmbeddingBag> {
        let mut weight = init::normal([num_embeddings, embedding_dim], 0.0, 1.0)?;
        if let Some(padding) = options.padding_idx {
            let index = Tensor::full([1], padding)?;
            weight = weight.index_fill(0, &index, 0.0)?;
        }
        Ok(EmbeddingBag { weight: Parameter::new(weight)?, options })
    }

    /// As [`forward`](Forward::forward), for bags that begin at these places of a row of indices.
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
        let EmbeddingBagOptions { mode, include_last_offset, padding_idx } = self.options;
        let options = crate::EmbeddingBagOptions::new().mode(mode).include_last_offset(include_last_offset);
        let options = options.padding_idx(padding_idx).offsets(offsets).per_sample_weights(per_sample_weights);
        indices.embedding_bag_with(&self.weight, options)
    }
}

impl Forward for EmbeddingBag {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.forward_with(indices, None, None)
    }
}

/// Layers that drop something in training.
macro_rules! dropouts {
    ($($(#[doc = $doc:literal])+ $name:ident => $method:ident, $shape:literal;)+) => {$(
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
            /// With probability `p`.
            ///
            /// ```
            #[doc = concat!("assert!(cotangent::nn::", stringify!($name), "::new(1.5).is_err());")]
            /// ```
            ///
            /// # Errors
            /// If `p` is not a probability.
            pub fn new(#[default(0.5)] p: f64) -> Result<$name> {
                if !(0.0..=1.0).contains(&p) {
                    bail!(Value, stringify!($name), "{p} is not a probability");
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
    /// In training, sets whole channels of sequences to zero at random.
    Dropout1d => dropout1d_with, "[2, 3, 4]";
    /// In training, sets whole channels of images to zero at random.
    Dropout2d => dropout2d_with, "[2, 3, 4, 4]";
    /// In training, sets whole channels of volumes to zero at random.
    Dropout3d => dropout3d_with, "[2, 3, 4, 4, 4]";
    /// In training, dropout that keeps mean and variance, for networks of [`SELU`](super::SELU).
    AlphaDropout => alpha_dropout_with, "[2, 3]";
    /// As [`AlphaDropout`], of whole channels.
    FeatureAlphaDropout => feature_alpha_dropout_with, "[2, 3, 4]";
}
