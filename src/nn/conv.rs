//! Convolutions as layers.

use super::init::{self, Fan, Gain};
use super::{Forward, Module, Parameter, layer};
use crate::error::bail;
use crate::layout::Sizes;
use crate::ops::{choices, each};
use crate::options::options;
use crate::options::{ConvOptions, ConvPadding, ConvTransposeOptions, PadMode};
use crate::{Result, Shape, Tensor};

choices! {
    /// How the input of a convolution is padded.
    ///
    /// ```
    /// use cotangent::nn::{Conv1d, ConvLayerOptions, ConvPaddingMode};
    /// let options = ConvLayerOptions::new().padding(1).padding_mode(ConvPaddingMode::Circular);
    /// let layer = Conv1d::new_with(2, 4, 3, options)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum ConvPaddingMode {
        /// With zeros.
        #[default]
        Zeros = "zeros",
        /// With the input reflected at its border elements, which are not repeated.
        Reflect = "reflect",
        /// With the border elements repeated.
        Replicate = "replicate",
        /// With the input wrapped around.
        Circular = "circular",
    }
}

options! {
    /// The options of [`Conv1d::new_with`], [`Conv2d::new_with`] and [`Conv3d::new_with`]. Sizes are one number for all spatial
    /// dimensions, or one for each.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{Conv2d, ConvLayerOptions, Forward}};
    /// let layer = Conv2d::new_with(3, 8, 3, ConvLayerOptions::new().stride(2).padding(1))?;
    /// assert_eq!(layer.forward(&Tensor::randn([2, 3, 8, 8])?)?.shape(), [2, 8, 4, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ConvLayerOptions {
        /// The stride of the convolution.
        stride: Sizes = Sizes::from(1),
        /// The padding at both ends of each spatial dimension.
        padding: ConvPadding = ConvPadding::from(0),
        /// The spacing between the kernel's elements.
        dilation: Sizes = Sizes::from(1),
        /// The number of groups of channels, which are convolved separately.
        groups: usize = 1,
        /// Whether to add a learned bias.
        bias: bool = true,
        /// How the input is padded.
        padding_mode: ConvPaddingMode = ConvPaddingMode::Zeros,
    }
}

options! {
    /// The options of [`ConvTranspose1d::new_with`], [`ConvTranspose2d::new_with`] and [`ConvTranspose3d::new_with`]. Sizes are one
    /// number for all spatial dimensions, or one for each.
    ///
    /// ```
    /// use cotangent::{Tensor, nn::{ConvTranspose2d, ConvTransposeLayerOptions, Forward}};
    /// let options = ConvTransposeLayerOptions::new().stride(2).padding(1).output_padding(1);
    /// let layer = ConvTranspose2d::new_with(3, 8, 3, options)?;
    /// assert_eq!(layer.forward(&Tensor::randn([2, 3, 4, 4])?)?.shape(), [2, 8, 8, 8]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct ConvTransposeLayerOptions {
        /// The stride of the convolution.
        stride: Sizes = Sizes::from(1),
        /// How many elements are removed at both ends of the output.
        padding: Sizes = Sizes::from(0),
        /// How many elements are added at the end of the output.
        output_padding: Sizes = Sizes::from(0),
        /// The number of groups of channels, which are convolved separately.
        groups: usize = 1,
        /// Whether to add a learned bias.
        bias: bool = true,
        /// The spacing between the kernel's elements.
        dilation: Sizes = Sizes::from(1),
    }
}

/// New weights, initialised as in PyTorch: uniform, with a bound that depends on the fan-in.
fn weights(
    name: &'static str,
    [from, to]: [usize; 2],
    kernel: &Sizes,
    rank: usize,
    groups: usize,
    bias: Option<usize>,
) -> Result<(Parameter, Option<Parameter>)> {
    if groups == 0 || !from.is_multiple_of(groups) || !to.is_multiple_of(groups) {
        bail!(
            Value,
            name,
            "groups must be ≥ 1 and divide in_channels and out_channels, got {groups} for channels {from} and {to}"
        );
    }
    let kernel = &each(name, "kernel_size", &kernel.0, rank, 1, 1)?[3 - rank..];
    let shape: Shape = [to, from / groups].into_iter().chain(kernel.iter().copied()).collect();
    let weight = Parameter::new(init::kaiming_uniform(shape, Gain::LeakyRelu(5.0_f64.sqrt()), Fan::In)?)?;
    let inputs = kernel.iter().fold(from / groups, |inputs, &size| inputs.saturating_mul(size));
    let bound = 1.0 / (inputs.max(1) as f64).sqrt();
    let bias = bias.map(|channels| Parameter::new(init::uniform([channels], -bound, bound)?)).transpose()?;
    Ok((weight, bias))
}

/// The padded input, unless the padding is zeros.
fn padded(name: &'static str, x: &Tensor, weight: &Tensor, options: &ConvLayerOptions) -> Result<Option<Tensor>> {
    let mode = match options.padding_mode {
        ConvPaddingMode::Zeros => return Ok(None),
        ConvPaddingMode::Reflect => PadMode::Reflect,
        ConvPaddingMode::Replicate => PadMode::Replicate,
        ConvPaddingMode::Circular => PadMode::Circular,
    };
    let rank = weight.rank() - 2;
    let ends: Vec<[usize; 2]> = match &options.padding {
        ConvPadding::Zeros(sizes) => {
            each(name, "padding", &sizes.0, rank, 0, 0)?[3 - rank..].iter().map(|&size| [size; 2]).collect()
        }
        ConvPadding::Same => {
            let steps = each(name, "dilation", &options.dilation.0, rank, 1, 1)?;
            let sizes =
                weight.shape()[2..].iter().zip(&steps[3 - rank..]).map(|(size, step)| (size - 1).saturating_mul(*step));
            sizes.map(|all| [all / 2, all - all / 2]).collect()
        }
        _ => vec![[0, 0]; rank],
    };
    // Padding counts from the last dimension.
    let pads: Vec<isize> =
        ends.iter().rev().flatten().map(|&size| isize::try_from(size).unwrap_or(isize::MAX)).collect();
    Ok(Some(x.pad_with(&pads, mode)?))
}

macro_rules! convolutions {
    ($($name:ident $rank:literal $op:ident $shape:literal;)+) => {$(
        #[doc = concat!("A ", $rank, "-dimensional convolution as a layer: [`Tensor::", stringify!($op), "`].")]
        ///
        /// Weight and bias are initialised uniformly in ±1/√fan_in, as in PyTorch.
        ///
        #[doc = concat!("```\nuse cotangent::{Tensor, nn::{", stringify!($name), ", Forward}};")]
        #[doc = concat!("let layer = ", stringify!($name), "::new(3, 4, 3)?;")]
        #[doc = concat!("assert_eq!(layer.forward(&Tensor::randn(", $shape, ")?)?.shape()[1], 4);")]
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Debug, Module)]
        pub struct $name {
            /// Of shape `[out_channels, in_channels / groups, kernel_size..]`.
            pub weight: Parameter,
            /// Of shape `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: ConvLayerOptions,
        }

        #[layer]
        impl $name {
            /// A convolution from `in_channels` to `out_channels`. `kernel_size` is one number for all spatial dimensions, or
            /// one for each.
            ///
            /// Weight and bias are initialised uniformly in ±1/√fan_in.
            ///
            /// ```
            #[doc = concat!("use cotangent::nn::{", stringify!($name), ", ConvLayerOptions};")]
            #[doc = concat!("let layer = ", stringify!($name), "::new_with(3, 4, 3, ConvLayerOptions::new().bias(false))?;")]
            /// assert!(layer.bias.is_none());
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// If `groups` does not divide the channels, a kernel size is 0, or memory runs out.
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<Sizes>,
                options: impl Into<ConvLayerOptions>,
            ) -> Result<$name> {
                let (channels, bias) = ([in_channels, out_channels], options.bias.then_some(out_channels));
                let (weight, bias) = weights(stringify!($name), channels, &kernel_size, $rank, options.groups, bias)?;
                Ok($name { weight, bias, options })
            }
        }

        impl $name {
            #[track_caller]
            pub(super) fn with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
                let own = &self.options;
                let options = ConvOptions::new().bias(self.bias.as_deref()).stride(own.stride.clone());
                let options = options.dilation(own.dilation.clone()).groups(own.groups);
                match padded(stringify!($name), x, weight, own)? {
                    Some(padded) => padded.$op(weight, options),
                    None => x.$op(weight, options.padding(own.padding.clone())),
                }
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.with_weight(x, &self.weight)
            }
        }
    )+};
}
convolutions! {
    Conv1d 1 conv1d_with "[2, 3, 8]";
    Conv2d 2 conv2d_with "[2, 3, 8, 8]";
    Conv3d 3 conv3d_with "[2, 3, 4, 4, 4]";
}

macro_rules! transposed {
    ($($name:ident $rank:literal $op:ident $shape:literal;)+) => {$(
        #[doc = concat!("A ", $rank, "-dimensional transposed convolution as a layer: [`Tensor::", stringify!($op), "`].")]
        ///
        /// Weight and bias are initialised uniformly, as in PyTorch.
        ///
        #[doc = concat!("```\nuse cotangent::{Tensor, nn::{", stringify!($name), ", Forward}};")]
        #[doc = concat!("let layer = ", stringify!($name), "::new(3, 4, 3)?;")]
        #[doc = concat!("assert_eq!(layer.forward(&Tensor::randn(", $shape, ")?)?.shape()[1], 4);")]
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Debug, Module)]
        pub struct $name {
            /// Of shape `[in_channels, out_channels / groups, kernel_size..]`.
            pub weight: Parameter,
            /// Of shape `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: ConvTransposeLayerOptions,
        }

        #[layer]
        impl $name {
            /// A transposed convolution from `in_channels` to `out_channels`. `kernel_size` is one number for all spatial
            /// dimensions, or one for each.
            ///
            /// ```
            #[doc = concat!("use cotangent::nn::{", stringify!($name), ", ConvTransposeLayerOptions};")]
            #[doc = concat!("let layer = ", stringify!($name), "::new_with(3, 4, 3, ConvTransposeLayerOptions::new().bias(false))?;")]
            /// assert!(layer.bias.is_none());
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// If `groups` does not divide the channels, a kernel size is 0, or memory runs out.
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<Sizes>,
                options: impl Into<ConvTransposeLayerOptions>,
            ) -> Result<$name> {
                let (channels, bias) = ([out_channels, in_channels], options.bias.then_some(out_channels));
                let (weight, bias) = weights(stringify!($name), channels, &kernel_size, $rank, options.groups, bias)?;
                Ok($name { weight, bias, options })
            }
        }

        impl $name {
            #[track_caller]
            pub(super) fn with_weight(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
                let own = &self.options;
                let options = ConvTransposeOptions::new().bias(self.bias.as_deref()).stride(own.stride.clone());
                let options = options.padding(own.padding.clone()).output_padding(own.output_padding.clone());
                x.$op(weight, options.dilation(own.dilation.clone()).groups(own.groups))
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.with_weight(x, &self.weight)
            }
        }
    )+};
}
transposed! {
    ConvTranspose1d 1 conv_transpose1d_with "[2, 3, 8]";
    ConvTranspose2d 2 conv_transpose2d_with "[2, 3, 8, 8]";
    ConvTranspose3d 3 conv_transpose3d_with "[2, 3, 4, 4, 4]";
}
