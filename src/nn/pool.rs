//! Pooling layers.

use super::{Forward, Module, layer};
use crate::layout::Sizes;
use crate::options::{AvgPoolOptions, MaxPoolOptions};
use crate::{Result, Tensor};

/// Pooling layers: a kernel size, and the options of the operation.
macro_rules! pools {
    ($($name:ident($options:ident) $op:ident $kind:literal $shape:literal;)+) => {$(
        #[doc = concat!($kind, " as a layer: [`Tensor::", stringify!($op), "`].")]
        ///
        #[doc = concat!("```\nuse cotangent::{Tensor, nn::{", stringify!($name), ", Forward}};")]
        #[doc = concat!("let y = ", stringify!($name), "::new(2)?.forward(&Tensor::randn(", $shape, ")?)?;")]
        /// assert_eq!(y.shape()[2], 2);
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            #[module(skip)]
            kernel_size: Sizes,
            #[module(skip)]
            options: $options,
        }

        #[layer]
        impl $name {
            /// Pooling over windows of `kernel_size`: one number for all spatial dimensions, or one for each.
            ///
            /// ```
            #[doc = concat!("use cotangent::{nn::", stringify!($name), ", options::", stringify!($options), "};")]
            #[doc = concat!("let layer = ", stringify!($name), "::new_with(3, ", stringify!($options), "::new().stride(2))?;")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// None. The sizes are checked when the layer is called.
            pub fn new(kernel_size: impl Into<Sizes>, options: impl Into<$options>) -> Result<$name> {
                Ok($name { kernel_size, options })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$op(self.kernel_size.clone(), self.options.clone())
            }
        }
    )+};
}
pools! {
    AvgPool1d(AvgPoolOptions) avg_pool1d_with "Average pooling" "[2, 3, 4]";
    AvgPool2d(AvgPoolOptions) avg_pool2d_with "Average pooling" "[2, 3, 4, 4]";
    AvgPool3d(AvgPoolOptions) avg_pool3d_with "Average pooling" "[2, 3, 4, 4, 4]";
    MaxPool1d(MaxPoolOptions) max_pool1d_with "Max pooling" "[2, 3, 4]";
    MaxPool2d(MaxPoolOptions) max_pool2d_with "Max pooling" "[2, 3, 4, 4]";
    MaxPool3d(MaxPoolOptions) max_pool3d_with "Max pooling" "[2, 3, 4, 4, 4]";
}

/// Adaptive pooling layers: the windows follow from the output size.
macro_rules! adaptive {
    ($($name:ident $op:ident $kind:literal $shape:literal;)+) => {$(
        #[doc = concat!($kind, " as a layer: [`Tensor::", stringify!($op), "`].")]
        ///
        #[doc = concat!("```\nuse cotangent::{Tensor, nn::{", stringify!($name), ", Forward}};")]
        #[doc = concat!("let y = ", stringify!($name), "::new(2)?.forward(&Tensor::randn(", $shape, ")?)?;")]
        /// assert_eq!(y.shape()[2], 2);
        /// # Ok::<(), cotangent::Error>(())
        /// ```
        #[derive(Clone, Debug, Module)]
        pub struct $name {
            #[module(skip)]
            output_size: Sizes,
        }

        #[layer]
        impl $name {
            /// Adaptive pooling to an output of `output_size`: one number for all spatial dimensions, or one for each.
            ///
            /// ```
            #[doc = concat!("use cotangent::nn::", stringify!($name), ";")]
            #[doc = concat!("let layer = ", stringify!($name), "::new(1)?;")]
            /// # Ok::<(), cotangent::Error>(())
            /// ```
            ///
            /// # Errors
            /// None. The sizes are checked when the layer is called.
            pub fn new(output_size: impl Into<Sizes>) -> Result<$name> {
                Ok($name { output_size })
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$op(self.output_size.clone())
            }
        }
    )+};
}
adaptive! {
    AdaptiveAvgPool1d adaptive_avg_pool1d "Adaptive average pooling" "[2, 3, 5]";
    AdaptiveAvgPool2d adaptive_avg_pool2d "Adaptive average pooling" "[2, 3, 5, 5]";
    AdaptiveAvgPool3d adaptive_avg_pool3d "Adaptive average pooling" "[2, 3, 5, 5, 5]";
    AdaptiveMaxPool1d adaptive_max_pool1d "Adaptive max pooling" "[2, 3, 5]";
    AdaptiveMaxPool2d adaptive_max_pool2d "Adaptive max pooling" "[2, 3, 5, 5]";
    AdaptiveMaxPool3d adaptive_max_pool3d "Adaptive max pooling" "[2, 3, 5, 5, 5]";
}
