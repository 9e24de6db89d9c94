//! Image transforms, named as in torchvision.
//!
//! A tuple of transforms applies them in order:
//!
//! ```
//! use cotangent::data::{Image, transforms::*};
//! let augment = (
//!     RandomResizedCrop::new(224)?,
//!     RandomHorizontalFlip::new(0.5)?,
//!     ColorJitter::new(0.4, 0.4, 0.4, 0.1)?,
//!     ToTensor,
//!     Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?,
//! );
//! let image = Image::new(vec![128; 300 * 400 * 3], 300, 400, 3)?;
//! assert_eq!(augment.apply(image)?.shape(), [3, 224, 224]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! Random transforms draw from the current generator. In a loader each item has its own, seeded by the loader's seed, the
//! epoch and the item's index, so the results do not depend on the workers.

mod color;
mod geometry;
mod tensor;

pub use color::{ColorJitter, Grayscale, RandomGrayscale};
pub use geometry::{
    CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize,
};
pub use tensor::{Normalize, ToTensor};

use crate::Result;
use crate::error::bail;

/// A transform of an item. Functions are transforms.
///
/// ```
/// use cotangent::{Result, data::{Image, transforms::{ToTensor, Transform}}};
/// let transform = (|image: Image| image.crop(0, 0, 2, 2), ToTensor);
/// assert_eq!(transform.apply(Image::new(vec![0; 12], 3, 4, 1)?)?.shape(), [1, 2, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Transform<I>: Send + Sync {
    /// The type of the result.
    type Output;

    /// Applies the transform.
    ///
    /// # Errors
    /// If the input does not fit the transform.
    fn apply(&self, input: I) -> Result<Self::Output>;
}

impl<I, O, F: Fn(I) -> Result<O> + Send + Sync> Transform<I> for F {
    type Output = O;

    fn apply(&self, input: I) -> Result<O> {
        self(input)
    }
}

macro_rules! chains {
    ($(($($name:ident $at:tt $input:ty),+) $last:ident;)+) => {$(
        impl<I, $($name: Transform<$input>),+> Transform<I> for ($($name,)+) {
            type Output = $last::Output;

            fn apply(&self, input: I) -> Result<Self::Output> {
                $(let input = self.$at.apply(input)?;)+
                Ok(input)
            }
        }
    )+};
}
chains! {
    (A 0 I, B 1 A::Output) B;
    (A 0 I, B 1 A::Output, C 2 B::Output) C;
    (A 0 I, B 1 A::Output, C 2 B::Output, D 3 C::Output) D;
    (A 0 I, B 1 A::Output, C 2 B::Output, D 3 C::Output, E 4 D::Output) E;
    (A 0 I, B 1 A::Output, C 2 B::Output, D 3 C::Output, E 4 D::Output, F 5 E::Output) F;
    (A 0 I, B 1 A::Output, C 2 B::Output, D 3 C::Output, E 4 D::Output, F 5 E::Output, G 6 F::Output) G;
    (A 0 I, B 1 A::Output, C 2 B::Output, D 3 C::Output, E 4 D::Output, F 5 E::Output, G 6 F::Output, H 7 G::Output) H;
}

/// A height and a width. A single number sets both.
///
/// ```
/// use cotangent::data::transforms::Size;
/// assert_eq!(Size::from(224), Size::from((224, 224)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    height: usize,
    width: usize,
}

impl From<usize> for Size {
    fn from(size: usize) -> Size {
        Size { height: size, width: size }
    }
}

impl From<(usize, usize)> for Size {
    fn from((height, width): (usize, usize)) -> Size {
        Size { height, width }
    }
}

fn check_size(op: &'static str, size: Size) -> Result<Size> {
    if size.height == 0 || size.width == 0 {
        bail!(Value, op, "size must be positive, got {} by {}", size.height, size.width);
    }
    Ok(size)
}

fn check_probability(op: &'static str, p: f64) -> Result<f64> {
    if !(0.0..=1.0).contains(&p) {
        bail!(Value, op, "p must be in [0, 1], got {p}");
    }
    Ok(p)
}

/// Transforms that are applied with a probability.
macro_rules! random_transforms {
    ($($(#[$doc:meta])* $name:ident, $new:literal: |$image:ident| $make:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(f64);

        impl $name {
            /// Applies the transform with probability `p`.
            ///
            /// # Errors
            /// If `p` is not in `[0, 1]`.
            #[named($new)]
            pub fn new(p: f64) -> Result<$name> {
                Ok($name(check_probability($new, p)?))
            }
        }

        impl Transform<Image> for $name {
            type Output = Image;

            fn apply(&self, $image: Image) -> Result<Image> {
                if draw::happens(self.0) { $make } else { Ok($image) }
            }
        }
    )+};
}
use random_transforms;
