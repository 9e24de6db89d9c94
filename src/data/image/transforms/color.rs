//! Transforms that change colors.

use super::{Transform, check_probability, random_transforms};
use crate::Result;
use crate::data::{Image, draw};
use crate::error::bail;
use cotangent_macros::named;

random_transforms! {
    /// Converts to grayscale with a probability. The number of channels stays.
    ///
    /// ```
    /// use cotangent::data::{Image, transforms::{RandomGrayscale, Transform}};
    /// assert_eq!(RandomGrayscale::new(1.0)?.apply(Image::new(vec![255, 0, 0], 1, 1, 3)?)?.pixels(), [76; 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    RandomGrayscale, "RandomGrayscale::new": |image| image.to_grayscale(image.channels);
}

/// Converts to grayscale, with 1 or 3 channels.
///
/// ```
/// use cotangent::data::{Image, transforms::{Grayscale, Transform}};
/// assert_eq!(Grayscale::new(1)?.apply(Image::new(vec![255, 0, 0], 1, 1, 3)?)?.pixels(), [76]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Grayscale(usize);

impl Grayscale {
    /// With this number of channels.
    ///
    /// # Errors
    /// If `channels` is neither 1 nor 3.
    #[named("Grayscale::new")]
    pub fn new(channels: usize) -> Result<Grayscale> {
        if channels != 1 && channels != 3 {
            bail!(Value, "Grayscale::new", "channels must be 1 or 3, got {channels}");
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
    /// The factor of the brightness is drawn from `[max(0, 1 - brightness), 1 + brightness]`, those of contrast and
    /// saturation likewise. The shift of the hue is drawn from `[-hue, hue]`; `hue` is at most 0.5.
    ///
    /// # Errors
    /// If a number is negative or not finite, or `hue` is greater than 0.5.
    #[named("ColorJitter::new")]
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Result<ColorJitter> {
        let all = [("brightness", brightness), ("contrast", contrast), ("saturation", saturation), ("hue", hue)];
        if let Some((name, value)) = all.iter().find(|(_, x)| !(*x >= 0.0 && x.is_finite())) {
            bail!(Value, "ColorJitter::new", "{name} must be finite and not negative, got {value}");
        }
        if hue > 0.5 {
            bail!(Value, "ColorJitter::new", "hue must be at most 0.5, got {hue}");
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
