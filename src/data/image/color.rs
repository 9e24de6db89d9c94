//! Brightness, contrast, saturation, hue and gray, by the arithmetic of PIL.

use super::Image;
use crate::Result;
use crate::error::bail;
use cotangent_macros::named;

/// The luma of a color, from 0 to 255.
#[inline(always)]
fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

/// Linear interpolation: `from` at factor 0, `to` at 1. Larger factors extrapolate.
#[inline(always)]
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    // The cast truncates and saturates.
    (from + factor * (to - from)) as u8
}

fn check(op: &'static str, factor: f64) -> Result<f32> {
    if !factor.is_finite() || factor < 0.0 {
        bail!(Value, op, "factor must be finite and not negative, got {factor}");
    }
    Ok(factor as f32)
}

impl Image {
    fn each_byte(&self, f: impl Fn(u8) -> u8) -> Image {
        let pixels = self.pixels.iter().map(|&x| f(x)).collect();
        Image::made(pixels, self.height, self.width, self.channels)
    }

    fn each_color(&self, f: impl Fn([u8; 3]) -> [u8; 3]) -> Image {
        let mut image = self.clone();
        for pixel in image.pixels.as_chunks_mut::<3>().0 {
            *pixel = f(*pixel);
        }
        image
    }

    /// The image in grayscale, with 1 channel or 3 equal ones.
    ///
    /// ```
    /// use cotangent::data::Image;
    /// let image = Image::new(vec![255, 0, 0, 0, 255, 0], 1, 2, 3)?;
    /// assert_eq!(image.to_grayscale(1)?.pixels(), [76, 150]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `channels` is neither 1 nor 3.
    #[named("to_grayscale")]
    pub fn to_grayscale(&self, channels: usize) -> Result<Image> {
        if channels != 1 && channels != 3 {
            bail!(Value, "to_grayscale", "channels must be 1 or 3, got {channels}");
        }
        let gray: Vec<u8> = match self.channels {
            1 => self.pixels.clone(),
            _ => self.pixels.as_chunks::<3>().0.iter().map(|&color| luma(color)).collect(),
        };
        let pixels = if channels == 1 { gray } else { gray.into_iter().flat_map(|x| [x; 3]).collect() };
        Ok(Image::made(pixels, self.height, self.width, channels))
    }

    /// Multiplies the brightness by `factor`.
    ///
    /// # Errors
    /// If the factor is negative or not finite.
    #[named("adjust_brightness")]
    pub fn adjust_brightness(&self, factor: f64) -> Result<Image> {
        let factor = check("adjust_brightness", factor)?;
        Ok(self.each_byte(|x| blend(0, x, factor)))
    }

    /// Multiplies the contrast by `factor`: 0 gives the mean gray.
    ///
    /// # Errors
    /// If the factor is negative or not finite.
    #[named("adjust_contrast")]
    pub fn adjust_contrast(&self, factor: f64) -> Result<Image> {
        let factor = check("adjust_contrast", factor)?;
        let gray = self.to_grayscale(1)?;
        let sum: u64 = gray.pixels.iter().map(|&x| u64::from(x)).sum();
        let mean = (sum as f64 / gray.pixels.len() as f64 + 0.5) as u8;
        Ok(self.each_byte(|x| blend(mean, x, factor)))
    }

    /// Multiplies the saturation by `factor`: 0 gives grayscale.
    ///
    /// # Errors
    /// If the factor is negative or not finite.
    #[named("adjust_saturation")]
    pub fn adjust_saturation(&self, factor: f64) -> Result<Image> {
        let factor = check("adjust_saturation", factor)?;
        if self.channels == 1 {
            return Ok(self.clone());
        }
        Ok(self.each_color(|color| {
            let gray = luma(color);
            color.map(|x| blend(gray, x, factor))
        }))
    }

    /// Shifts the hue by `factor` of the color circle, from -0.5 to 0.5.
    ///
    /// # Errors
    /// If `factor` is out of that range.
    #[named("adjust_hue")]
    pub fn adjust_hue(&self, factor: f64) -> Result<Image> {
        if !(-0.5..=0.5).contains(&factor) {
            bail!(Value, "adjust_hue", "factor must be in [-0.5, 0.5], got {factor}");
        }
        if self.channels == 1 {
            return Ok(self.clone());
        }
        let shift = (factor * 255.0) as i32 as u8;
        Ok(self.each_color(|color| {
            let [h, s, v] = to_hsv(color);
            to_rgb([h.wrapping_add(shift), s, v])
        }))
    }
}

/// Hue, saturation and value, each from 0 to 255.
fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let range = f32::from(most - least);
    let [red, green, blue] = [r, g, b].map(|x| f32::from(most - x) / range);
    // Computed in double precision and rounded to single, as in PIL.
    let (red, green, blue) = (f64::from(red), f64::from(green), f64::from(blue));
    let hue = if r == most {
        blue - green
    } else if g == most {
        2.0 + red - blue
    } else {
        4.0 + green - red
    } as f32;
    let hue = ((f64::from(hue) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = range / f32::from(most);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

fn to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sixth = f64::from(h) * 6.0 / 255.0;
    let part = (sixth - sixth.floor()) as f32;
    let (saturation, value) = (f32::from(s) / 255.0, f32::from(v));
    let scaled = |x: f64| (f64::from(value) * x).round() as u8;
    let p = scaled(1.0 - f64::from(saturation));
    let q = scaled(1.0 - f64::from(saturation * part));
    let t = scaled(1.0 - f64::from(saturation) * (1.0 - f64::from(part)));
    match sixth as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}
