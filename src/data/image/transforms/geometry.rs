//! Geometric transforms: resizing, cropping, flips and rotations.

use super::{Size, Transform, check_probability, check_size, random_transforms};
use crate::Result;
use crate::data::draw;
use crate::data::image::resize::Crop;
use crate::data::{Image, Interpolation};
use crate::error::bail;
use cotangent_macros::named;

/// Half of a difference, rounded half to even as in Python.
fn half(difference: usize) -> usize {
    (difference as f64 / 2.0).round_ties_even() as usize
}

/// Resizes the shorter edge to a number of pixels and keeps the proportions, or resizes to a height and a width.
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
    /// Resizes the shorter edge to `size` pixels.
    ///
    /// # Errors
    /// If `size` is 0.
    #[named("Resize::new")]
    pub fn new(size: usize) -> Result<Resize> {
        check_size("Resize::new", size.into())?;
        Ok(Resize { to: ResizeTo::Shorter(size), interpolation: Interpolation::Bilinear })
    }

    /// Resizes to a height and a width.
    ///
    /// # Errors
    /// If one of them is 0.
    #[named("Resize::exact")]
    pub fn exact(height: usize, width: usize) -> Result<Resize> {
        let size = check_size("Resize::exact", (height, width).into())?;
        Ok(Resize { to: ResizeTo::Exact(size), interpolation: Interpolation::Bilinear })
    }

    /// The interpolation. Unless set: [`Interpolation::Bilinear`].
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

/// Crops the center. A smaller image is padded with black.
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
    /// Crops to this size.
    ///
    /// # Errors
    /// If a size is 0.
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

/// Crops at a random place, optionally after padding with black.
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
    /// Crops to this size.
    ///
    /// # Errors
    /// If a size is 0.
    #[named("RandomCrop::new")]
    pub fn new(size: impl Into<Size>) -> Result<RandomCrop> {
        Ok(RandomCrop { size: check_size("RandomCrop::new", size.into())?, padding: 0 })
    }

    /// The padding on each side before cropping. Unless set: `0`.
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
            bail!(Shape, "RandomCrop", "size must fit in the padded image of {h} by {w}, got {height} by {width}");
        }
        let (top, left) = (draw::below(image.height - height + 1), draw::below(image.width - width + 1));
        image.crop(top, left, height, width)
    }
}

/// Crops a part of random size, aspect ratio and place, and resizes it: the usual augmentation for ImageNet.
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
    /// Resizes to this size.
    ///
    /// # Errors
    /// If a size is 0.
    #[named("RandomResizedCrop::new")]
    pub fn new(size: impl Into<Size>) -> Result<RandomResizedCrop> {
        let size = check_size("RandomResizedCrop::new", size.into())?;
        let (scale, ratio) = ((0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0));
        Ok(RandomResizedCrop { size, scale, ratio, interpolation: Interpolation::Bilinear })
    }

    /// The range of the cropped share of the area. Unless set: `(0.08, 1.0)`.
    ///
    /// # Errors
    /// If the bounds are not positive or not in order.
    #[named("RandomResizedCrop::scale")]
    pub fn scale(mut self, least: f64, most: f64) -> Result<RandomResizedCrop> {
        self.scale = check_range("RandomResizedCrop::scale", least, most)?;
        Ok(self)
    }

    /// The range of the aspect ratio, width / height. Unless set: `(3/4, 4/3)`.
    ///
    /// # Errors
    /// If the bounds are not positive or not in order.
    #[named("RandomResizedCrop::ratio")]
    pub fn ratio(mut self, least: f64, most: f64) -> Result<RandomResizedCrop> {
        self.ratio = check_range("RandomResizedCrop::ratio", least, most)?;
        Ok(self)
    }

    /// The interpolation. Unless set: [`Interpolation::Bilinear`].
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
        // The center, with the nearest aspect ratio in the range.
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
        bail!(Value, op, "range must be finite with 0 < least ≤ most, got {least} and {most}");
    }
    Ok((least, most))
}

impl Transform<Image> for RandomResizedCrop {
    type Output = Image;

    fn apply(&self, image: Image) -> Result<Image> {
        image.resize_part(self.draw(&image), self.size.height, self.size.width, self.interpolation)
    }
}

random_transforms! {
    /// Flips left and right with a probability.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomHorizontalFlip, Transform}};
    /// assert_eq!(RandomHorizontalFlip::new(1.0)?.apply(Image::new(vec![1, 2], 1, 2, 1)?)?.pixels(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomHorizontalFlip, "RandomHorizontalFlip::new": |image| Ok(image.horizontal_flip());
    /// Flips top and bottom with a probability.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomVerticalFlip, Transform}};
    /// assert_eq!(RandomVerticalFlip::new(1.0)?.apply(Image::new(vec![1, 2], 2, 1, 1)?)?.pixels(), [2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomVerticalFlip, "RandomVerticalFlip::new": |image| Ok(image.vertical_flip());
}

/// Rotates by a random angle.
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
    /// The angle is drawn from `[-degrees, degrees]`.
    ///
    /// # Errors
    /// If `degrees` is negative or not finite.
    #[named("RandomRotation::new")]
    pub fn new(degrees: f64) -> Result<RandomRotation> {
        if !(degrees >= 0.0 && degrees.is_finite()) {
            bail!(Value, "RandomRotation::new", "degrees must be finite and not negative, got {degrees}");
        }
        Ok(RandomRotation { degrees: (-degrees, degrees), interpolation: Interpolation::Nearest, fill: 0 })
    }

    /// The interpolation: [`Interpolation::Nearest`] or [`Interpolation::Bilinear`]. Unless set: the former.
    pub fn interpolation(mut self, interpolation: Interpolation) -> RandomRotation {
        self.interpolation = interpolation;
        self
    }

    /// The value of pixels from outside of the image. Unless set: `0`.
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
