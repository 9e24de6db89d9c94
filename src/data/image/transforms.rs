//! What is done to images on their way into a batch, by torchvision's names.
//!
//! A tuple of transforms is a transform, one after the other:
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
//! Random ones draw from the generator in force. Inside of a loader that is one for each item, which follows from the
//! loader's seed, the epoch and the item's index, so that what is drawn does not depend on the workers.

use super::resize::Crop;
use super::{Image, Interpolation};
use crate::data::draw;
use crate::error::bail;
use crate::{DType, Result, Tensor};
use cotangent_macros::named;

/// Something that is done to an item. Functions are transforms, too.
///
/// ```
/// use cotangent::{Result, data::{Image, transforms::{ToTensor, Transform}}};
/// let transform = (|image: Image| image.crop(0, 0, 2, 2), ToTensor);
/// assert_eq!(transform.apply(Image::new(vec![0; 12], 3, 4, 1)?)?.shape(), [1, 2, 2]);
/// # Ok::<(), cotangent::Error>(())
/// ```
pub trait Transform<I>: Send + Sync {
    /// What it gives.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// If the input is not one that it takes.
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

/// A height and a width. A number stands for both.
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
        bail!(Value, op, "an image of {} by {} pixels has none", size.height, size.width);
    }
    Ok(size)
}

fn check_probability(op: &'static str, p: f64) -> Result<f64> {
    if !(0.0..=1.0).contains(&p) {
        bail!(Value, op, "{p} is not a probability");
    }
    Ok(p)
}

/// Half of a difference, rounded as Python rounds: halves to the even number.
fn half(difference: usize) -> usize {
    (difference as f64 / 2.0).round_ties_even() as usize
}

/// Resizes an image: its shorter edge to a number of pixels, the other in proportion; or to a height and a width.
///
/// ```
/// use cotangent::data::{Image, transforms::{Resize, Transform}};
/// let image = Image::new(vec![0; 100 * 50], 100, 50, 1)?;
/// let shorter = Resize::new(20)?.apply(image.clone())?;
/// assert_eq!((shorter.height(), shorter.width()), (40, 20));
/// let exact = Resize::exact(20, 30)?.apply(image)?;
/// assert_eq!((exact.height(), exact.width()), (20, 30));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Resize {
    to: ResizeTo,
    interpolation: Interpolation,
}

#[derive(Clone, Copy, Debug)]
enum ResizeTo {
    Shorter(usize),
    Exact(Size),
}

impl Resize {
    /// The shorter edge to `size` pixels.
    ///
    /// # Errors
    /// If `size` is 0.
    #[named("Resize::new")]
    pub fn new(size: usize) -> Result<Resize> {
        check_size("Resize::new", size.into())?;
        Ok(Resize { to: ResizeTo::Shorter(size), interpolation: Interpolation::Bilinear })
    }

    /// To a height and a width, whatever the proportions.
    ///
    /// # Errors
    /// If one of them is 0.
    #[named("Resize::exact")]
    pub fn exact(height: usize, width: usize) -> Result<Resize> {
        let size = check_size("Resize::exact", (height, width).into())?;
        Ok(Resize { to: ResizeTo::Exact(size), interpolation: Interpolation::Bilinear })
    }

    /// How pixels are made of others. Unless set: [`Interpolation::Bilinear`].
    pub fn interpolation(mut self, interpolation: Interpolation) -> Resize {
        self.interpolation = interpolation;
        self
    }
}

impl Transform<Image> for Resize {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        let size = match self.to {
            ResizeTo::Exact(size) => size,
            ResizeTo::Shorter(size) => {
                let (h, w) = (image.height, image.width);
                // The shorter one has at least one pixel.
                let longer = (size as u128 * h.max(w) as u128 / h.min(w) as u128).min(usize::MAX as u128) as usize;
                if w <= h { (longer, size).into() } else { (size, longer).into() }
            }
        };
        image.resize(size.height, size.width, self.interpolation)
    }
}

/// Cuts out the middle of an image. One that is smaller gets a black border.
///
/// ```
/// use cotangent::data::{Image, transforms::{CenterCrop, Transform}};
/// let image = Image::new((0..9).collect(), 3, 3, 1)?;
/// assert_eq!(CenterCrop::new(1)?.apply(image)?.pixels(), [4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CenterCrop(Size);

impl CenterCrop {
    /// Of this size.
    ///
    /// # Errors
    /// If it has no pixels.
    #[named("CenterCrop::new")]
    pub fn new(size: impl Into<Size>) -> Result<CenterCrop> {
        Ok(CenterCrop(check_size("CenterCrop::new", size.into())?))
    }
}

impl Transform<Image> for CenterCrop {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        let Size { height, width } = self.0;
        let (more_height, more_width) = (height.saturating_sub(image.height), width.saturating_sub(image.width));
        let image = if more_height > 0 || more_width > 0 {
            let border = [more_width / 2, more_height / 2, more_width.div_ceil(2), more_height.div_ceil(2)];
            image.pad(border, 0)?
        } else {
            image
        };
        image.crop(half(image.height - height), half(image.width - width), height, width)
    }
}

/// Cuts out a part at a random place, if asked for from an image with a black border.
///
/// ```
/// use cotangent::data::{Image, transforms::{RandomCrop, Transform}};
/// let image = Image::new(vec![1; 32 * 32 * 3], 32, 32, 3)?;
/// assert_eq!(RandomCrop::new(32)?.padding(4).apply(image)?.width(), 32);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomCrop {
    size: Size,
    padding: usize,
}

impl RandomCrop {
    /// A part of this size.
    ///
    /// # Errors
    /// If it has no pixels.
    #[named("RandomCrop::new")]
    pub fn new(size: impl Into<Size>) -> Result<RandomCrop> {
        Ok(RandomCrop { size: check_size("RandomCrop::new", size.into())?, padding: 0 })
    }

    /// The border that the image gets on each side before. Unless set: `0`.
    pub fn padding(mut self, padding: usize) -> RandomCrop {
        self.padding = padding;
        self
    }
}

impl Transform<Image> for RandomCrop {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        let image = if self.padding > 0 { image.pad([self.padding; 4], 0)? } else { image };
        let Size { height, width } = self.size;
        if height > image.height || width > image.width {
            let (h, w) = (image.height, image.width);
            bail!(Shape, "RandomCrop", "{height} by {width} pixels do not fit into {h} by {w}, border included");
        }
        let (top, left) = (draw::below(image.height - height + 1), draw::below(image.width - width + 1));
        image.crop(top, left, height, width)
    }
}

/// Cuts out a part of random size, proportions and place, and resizes it: what networks for ImageNet are trained with.
///
/// ```
/// use cotangent::data::{Image, transforms::{RandomResizedCrop, Transform}};
/// let image = Image::new(vec![1; 60 * 80 * 3], 60, 80, 3)?;
/// let part = RandomResizedCrop::new(24)?.scale(0.5, 1.0)?.apply(image)?;
/// assert_eq!((part.height(), part.width()), (24, 24));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomResizedCrop {
    size: Size,
    scale: (f64, f64),
    ratio: (f64, f64),
    interpolation: Interpolation,
}

impl RandomResizedCrop {
    /// Resized to this size.
    ///
    /// # Errors
    /// If it has no pixels.
    #[named("RandomResizedCrop::new")]
    pub fn new(size: impl Into<Size>) -> Result<RandomResizedCrop> {
        let size = check_size("RandomResizedCrop::new", size.into())?;
        let (scale, ratio) = ((0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0));
        Ok(RandomResizedCrop { size, scale, ratio, interpolation: Interpolation::Bilinear })
    }

    /// The least and the greatest share of the area that is cut out. Unless set: `(0.08, 1.0)`.
    ///
    /// # Errors
    /// If they are not positive or not in order.
    #[named("RandomResizedCrop::scale")]
    pub fn scale(mut self, least: f64, most: f64) -> Result<RandomResizedCrop> {
        self.scale = check_range("RandomResizedCrop::scale", least, most)?;
        Ok(self)
    }

    /// The least and the greatest width divided by the height. Unless set: `(3/4, 4/3)`.
    ///
    /// # Errors
    /// If they are not positive or not in order.
    #[named("RandomResizedCrop::ratio")]
    pub fn ratio(mut self, least: f64, most: f64) -> Result<RandomResizedCrop> {
        self.ratio = check_range("RandomResizedCrop::ratio", least, most)?;
        Ok(self)
    }

    /// How pixels are made of others. Unless set: [`Interpolation::Bilinear`].
    pub fn interpolation(mut self, interpolation: Interpolation) -> RandomResizedCrop {
        self.interpolation = interpolation;
        self
    }

    fn draw(&self, image: &Image) -> Crop {
        let (h, w) = (image.height, image.width);
        let area = (h * w) as f64;
        for _ in 0..10 {
            let target = area * draw::uniform(self.scale.0, self.scale.1);
            let ratio = draw::uniform(self.ratio.0.ln(), self.ratio.1.ln()).exp();
            let width = (target * ratio).sqrt().round_ties_even() as usize;
            let height = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=w).contains(&width) && (1..=h).contains(&height) {
                return Crop { top: draw::below(h - height + 1), left: draw::below(w - width + 1), height, width };
            }
        }
        // The middle, in the proportions that are nearest.
        let ratio = w as f64 / h as f64;
        let within = |x: f64, most: usize| (x.round_ties_even() as usize).clamp(1, most);
        let (height, width) = if ratio < self.ratio.0 {
            (within(w as f64 / self.ratio.0, h), w)
        } else if ratio > self.ratio.1 {
            (h, within(h as f64 * self.ratio.1, w))
        } else {
            (h, w)
        };
        Crop { top: (h - height) / 2, left: (w - width) / 2, height, width }
    }
}

fn check_range(op: &'static str, least: f64, most: f64) -> Result<(f64, f64)> {
    if !(least > 0.0 && least <= most && most.is_finite()) {
        bail!(Value, op, "from {least} to {most} is no range of positive numbers");
    }
    Ok((least, most))
}

impl Transform<Image> for RandomResizedCrop {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        image.resize_part(self.draw(&image), self.size.height, self.size.width, self.interpolation)
    }
}

macro_rules! random_transforms {
    ($($(#[$doc:meta])* $name:ident, $new:literal: |$image:ident| $make:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(f64);

        impl $name {
            /// With this probability.
            ///
            /// # Errors
            /// If it is not between 0 and 1.
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
random_transforms! {
    /// Exchanges left and right, or not.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomHorizontalFlip, Transform}};
    /// assert_eq!(RandomHorizontalFlip::new(1.0)?.apply(Image::new(vec![1, 2], 1, 2, 1)?)?.pixels(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomHorizontalFlip, "RandomHorizontalFlip::new": |image| Ok(image.horizontal_flip());
    /// Exchanges top and bottom, or not.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomVerticalFlip, Transform}};
    /// assert_eq!(RandomVerticalFlip::new(1.0)?.apply(Image::new(vec![1, 2], 2, 1, 1)?)?.pixels(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomVerticalFlip, "RandomVerticalFlip::new": |image| Ok(image.vertical_flip());
    /// Takes the colors away, or not; the channels stay as many.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomGrayscale, Transform}};
    /// assert_eq!(RandomGrayscale::new(1.0)?.apply(Image::new(vec![255, 0, 0], 1, 1, 3)?)?.pixels(), [76; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomGrayscale, "RandomGrayscale::new": |image| image.to_grayscale(image.channels);
}

/// Shades of gray in place of colors, in 1 or 3 channels.
///
/// ```
/// use cotangent::data::{Image, transforms::{Grayscale, Transform}};
/// assert_eq!(Grayscale::new(1)?.apply(Image::new(vec![255, 0, 0], 1, 1, 3)?)?.pixels(), [76]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Grayscale(usize);

impl Grayscale {
    /// So many channels.
    ///
    /// # Errors
    /// If they are neither 1 nor 3.
    #[named("Grayscale::new")]
    pub fn new(channels: usize) -> Result<Grayscale> {
        if channels != 1 && channels != 3 {
            bail!(Value, "Grayscale::new", "{channels} channels: an image has 1 or 3");
        }
        Ok(Grayscale(channels))
    }
}

impl Transform<Image> for Grayscale {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        image.to_grayscale(self.0)
    }
}

/// Turns an image by a random angle.
///
/// ```
/// use cotangent::data::{Image, transforms::{RandomRotation, Transform}};
/// let image = Image::new(vec![9; 16], 4, 4, 1)?;
/// assert_eq!(RandomRotation::new(15.0)?.apply(image)?.width(), 4);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomRotation {
    degrees: (f64, f64),
    interpolation: Interpolation,
    fill: u8,
}

impl RandomRotation {
    /// By up to so many degrees either way.
    ///
    /// # Errors
    /// If they are negative or not finite.
    #[named("RandomRotation::new")]
    pub fn new(degrees: f64) -> Result<RandomRotation> {
        if !(degrees >= 0.0 && degrees.is_finite()) {
            bail!(Value, "RandomRotation::new", "from -({degrees}) to {degrees} degrees is no range");
        }
        Ok(RandomRotation { degrees: (-degrees, degrees), interpolation: Interpolation::Nearest, fill: 0 })
    }

    /// How pixels are made of others: [`Interpolation::Nearest`] or [`Interpolation::Bilinear`]. Unless set: the former.
    pub fn interpolation(mut self, interpolation: Interpolation) -> RandomRotation {
        self.interpolation = interpolation;
        self
    }

    /// The value of what comes in from outside of the image. Unless set: `0`.
    pub fn fill(mut self, fill: u8) -> RandomRotation {
        self.fill = fill;
        self
    }
}

impl Transform<Image> for RandomRotation {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        image.rotate(draw::uniform(self.degrees.0, self.degrees.1), self.interpolation, self.fill)
    }
}

/// Changes brightness, contrast, saturation and hue at random, in a random order.
///
/// ```
/// use cotangent::data::{Image, transforms::{ColorJitter, Transform}};
/// let image = Image::new(vec![100, 150, 200], 1, 1, 3)?;
/// assert_eq!(ColorJitter::new(0.2, 0.2, 0.2, 0.1)?.apply(image)?.channels(), 3);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ColorJitter {
    brightness: f64,
    contrast: f64,
    saturation: f64,
    hue: f64,
}

impl ColorJitter {
    /// By factors from `1 - brightness`, but at least 0, to `1 + brightness`, and so on; the hue is shifted by `-hue` to
    /// `hue`, which is at most 0.5.
    ///
    /// # Errors
    /// If a number is negative or not finite, or `hue` is greater than 0.5.
    #[named("ColorJitter::new")]
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Result<ColorJitter> {
        let all = [("brightness", brightness), ("contrast", contrast), ("saturation", saturation), ("hue", hue)];
        if let Some((name, value)) = all.iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            bail!(Value, "ColorJitter::new", "a {name} of {value}: it is finite and not negative");
        }
        if hue > 0.5 {
            bail!(Value, "ColorJitter::new", "a hue of {hue}: it is at most 0.5");
        }
        Ok(ColorJitter { brightness, contrast, saturation, hue })
    }
}

impl Transform<Image> for ColorJitter {
    type Output = Image;

    fn apply(&self, mut image: Image) -> Result<Image> {
        let mut order = [0, 1, 2, 3];
        for last in (1..order.len()).rev() {
            order.swap(last, draw::below(last + 1));
        }
        let factor = |by: f64| draw::uniform((1.0 - by).max(0.0), 1.0 + by);
        let (brightness, contrast, saturation) =
            (factor(self.brightness), factor(self.contrast), factor(self.saturation));
        let hue = draw::uniform(-self.hue, self.hue);
        for which in order {
            image = match which {
                0 if self.brightness > 0.0 => image.adjust_brightness(brightness)?,
                1 if self.contrast > 0.0 => image.adjust_contrast(contrast)?,
                2 if self.saturation > 0.0 => image.adjust_saturation(saturation)?,
                3 if self.hue > 0.0 => image.adjust_hue(hue)?,
                _ => image,
            };
        }
        Ok(image)
    }
}

/// Makes a tensor of an image: `[channels, height, width]`, `f32` from 0 to 1.
///
/// ```
/// use cotangent::data::{Image, transforms::{ToTensor, Transform}};
/// let x = ToTensor.apply(Image::new(vec![0, 255], 1, 2, 1)?)?;
/// assert_eq!((x.shape(), x.to_vec::<f32>()?), (&[1, 1, 2][..], vec![0.0, 1.0]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ToTensor;

impl Transform<Image> for ToTensor {
    type Output = Tensor;

    fn apply(&self, image: Image) -> Result<Tensor> {
        image.to_tensor()
    }
}

/// Takes from each channel of a tensor `[.., channels, height, width]` its mean, and divides by its standard deviation.
///
/// ```
/// use cotangent::{Tensor, data::transforms::{Normalize, Transform}};
/// let x = Normalize::new([0.5], [0.25])?.apply(Tensor::ones([1, 2, 2])?)?;
/// assert_eq!(x.to_vec::<f32>()?, [2.0; 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalize {
    mean: Tensor,
    std: Tensor,
}

impl Normalize {
    /// By a mean and a standard deviation for each channel.
    ///
    /// # Errors
    /// If they are not equally many, or a standard deviation is 0.
    #[named("Normalize::new")]
    pub fn new(mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Result<Normalize> {
        let (mean, std) = (mean.into(), std.into());
        if mean.len() != std.len() || mean.is_empty() || std.iter().any(|&x| x == 0.0 || !x.is_finite()) {
            bail!(
                Value,
                "Normalize::new",
                "means {mean:?} and standard deviations {std:?}: one for each channel, not 0"
            );
        }
        let tensor = |x: Vec<f64>| {
            let n = x.len();
            Tensor::from_vec(x, [n, 1, 1])?.to_dtype(DType::F32)
        };
        Ok(Normalize { mean: tensor(mean)?, std: tensor(std)? })
    }
}

impl Transform<Tensor> for Normalize {
    type Output = Tensor;

    fn apply(&self, x: Tensor) -> Result<Tensor> {
        let channels = self.mean.numel();
        if x.rank() < 3 || x.shape()[x.rank() - 3] != channels || !x.dtype().is_float() {
            let (dtype, shape) = (x.dtype(), x.shape());
            bail!(
                Shape,
                "Normalize",
                "{channels} means do not fit a tensor {dtype}{shape:?}: it is [.., channels, height, width]"
            );
        }
        let (mean, std) = (self.mean.to_dtype(x.dtype())?, self.std.to_dtype(x.dtype())?);
        x.sub(&mean.to_device(x.device())?)?.div(&std.to_device(x.device())?)
    }
}
